//! End-to-end tests of virtual networks: the program starts them, and this process plays their external guests.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

mod channels;
mod ctc;
mod filters;
mod idle;
mod monitor;
#[path = "../common/network.rs"]
mod network;
mod qdio;
mod transfer;

use idle::{are_idle, threads};
use network::{
    EXTERNAL_FIGURE_1, Network, PATIENCE, kill, process, sink, source, use_beside_a_waiting_thread, wait_for_end,
    wait_until,
};
use siga_fabric::client::Client;
use siga_fabric::protocol::message::GuestEvent;
use siga_fabric::protocol::request::{Answer, Request};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::sockets::{Attachment, SocketOptions, TcpListener, TcpStream, UdpSocket};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time limit in seconds for a ping that must be answered, long enough for a busy host.
const ANSWERED: &str = "20";

#[test]
fn a_stream_crosses_a_router_whole_over_both_ip_versions() {
    let network = Network::up("cross", EXTERNAL_FIGURE_1);
    let (client, server) = (network.attach("client"), network.attach("server"));
    for (at, to) in [("10.0.2.2:7", "10.0.2.2:7"), ("[fd00:2::2]:7", "[fd00:2::2]:7")] {
        let listener = TcpListener::bind(&server, at.parse().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| sink(&listener));
            source(&client, to, 16 << 20, |_| {});
            assert_eq!(served.join().unwrap().0, 16 << 20);
        });
    }
}

#[test]
fn a_thread_that_waits_for_sockets_does_not_block_other_threads() {
    let network = Network::up("threads", EXTERNAL_FIGURE_1);
    use_beside_a_waiting_thread(&network.attach("client"), "10.0.1.1:0");
}

#[test]
fn a_router_killed_during_a_transfer_loses_no_byte() {
    let network = Network::up("kill", EXTERNAL_FIGURE_1);
    let (client, server) = (network.attach("client"), network.attach("server"));
    let listener = TcpListener::bind(&server, "10.0.2.2:7".parse().unwrap()).unwrap();
    let bytes = 96 << 20;
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        let mut killed = false;
        source(&client, "10.0.2.2:7", bytes, |sent| {
            if sent >= bytes / 2 && !killed {
                killed = true;
                kill(network.pid("router"));
            }
        });
        let (total, gaps) = served.join().unwrap();
        assert_eq!(total, bytes);
        println!("the longest gaps: {:?}", &gaps[..3]);
    });
    let status = network.status();
    let router = status["guests"].as_array().unwrap().iter().find(|guest| guest["name"] == "router").unwrap().clone();
    assert_eq!(router["restarts"], 1);
}

#[test]
fn a_list_of_processes_shows_which_guest_of_which_network_a_process_is() {
    let network = Network::up("listed", EXTERNAL_FIGURE_1);
    let line = std::fs::read(format!("/proc/{}/cmdline", network.pid("router"))).unwrap();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    assert_eq!(line.trim_end(), "siga net guest listed/router");
}

#[test]
fn established_traffic_outlives_the_control_program_and_a_successor_adopts_the_guests() {
    let network = Network::up("outlive", EXTERNAL_FIGURE_1);
    let (client, server) = (network.attach("client"), network.attach("server"));
    let listener = TcpListener::bind(&server, "10.0.2.2:7".parse().unwrap()).unwrap();
    let router = network.pid("router");
    let bytes = 64 << 20;
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        let mut step = 0;
        source(&client, "10.0.2.2:7", bytes, |sent| {
            if step == 0 && sent >= bytes / 4 {
                step = 1;
                kill(network.control_pid());
                let refused = network.siga(&["status", network.name.as_str()]);
                assert_eq!(refused.status.code(), Some(3));
                assert!(String::from_utf8_lossy(&refused.stderr).contains("its guests continue without it"));
            }
            if step == 1 && sent >= bytes / 2 {
                step = 2;
                network.text(&["up", network.base.path().join("outlive.toml").to_str().unwrap()]);
            }
        });
        assert_eq!(served.join().unwrap().0, bytes);
    });
    assert_eq!(network.pid("router"), router, "the same process");
    let status = network.status();
    assert!(status["guests"].as_array().unwrap().iter().all(|guest| guest["state"] == "running"), "{status}");
    let pairs: i64 =
        status["networks"].as_array().unwrap().iter().map(|network| network["pairs"].as_i64().unwrap()).sum();
    assert_eq!(pairs, 2, "both links are known again: {status}");
    // The new control program restarts the router, as the old one did.
    kill(router);
    wait_until("a new router", || network.pid_of("router").is_some_and(|pid| pid != router));
    drop(listener);
    let listener = TcpListener::bind(&server, "10.0.2.2:8".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(&client, "10.0.2.2:8", 1 << 20, |_| {});
        served.join().unwrap();
    });
}

#[test]
fn a_new_control_program_knows_how_long_guests_run_and_how_often_they_were_restarted() {
    let network = Network::up("known", EXTERNAL_FIGURE_1);
    let router = || {
        let status = network.status();
        status["guests"].as_array().unwrap().iter().find(|guest| guest["name"] == "router").unwrap().clone()
    };
    let first = network.pid("router");
    kill(first);
    wait_until("a new router", || router()["state"] == "running" && router()["pid"] != first);
    std::thread::sleep(Duration::from_secs(2));
    let before = router();
    kill(network.control_pid());
    network.text(&["up", network.base.path().join("known.toml").to_str().unwrap()]);
    let after = router();
    assert_eq!((&before["pid"], &before["restarts"]), (&after["pid"], &after["restarts"]), "{before} {after}");
    assert_eq!(after["restarts"], 1);
    assert!(after["up_ms"].as_u64() >= before["up_ms"].as_u64(), "{before} {after}");
}

#[test]
fn a_network_without_its_control_program_can_be_taken_down() {
    let network = Network::up("orphans", EXTERNAL_FIGURE_1);
    let router = process(network.pid("router"));
    kill(network.control_pid());
    network.text(&["down", "orphans"]);
    assert!(!network.run_dir().join("orphans").exists());
    wait_for_end(&router);
    // Start the network again, because dropping the value takes it down.
    network.text(&["up", network.base.path().join("orphans.toml").to_str().unwrap()]);
}

#[test]
fn guests_stop_and_start_while_their_partners_run_on() {
    let network = Network::up("steps", EXTERNAL_FIGURE_1);
    let _client = network.attach("client");
    network.text(&["stop", "steps", "router"]);
    assert_eq!(network.pid_of("router"), None);
    let again = network.siga(&["stop", "steps", "nobody"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("guests: client, router, server"));
    network.text(&["start", "steps", "router"]);
    let refused = network.siga(&["start", "steps", "router"]);
    assert_eq!((refused.status.code(), network.pid_of("router").is_some()), (Some(2), true));
    let external = network.siga(&["start", "steps", "client"]);
    assert!(String::from_utf8_lossy(&external.stderr).contains("start the process of the guest yourself"));
}

#[test]
fn status_shows_the_memory_limit_of_each_guest_that_siga_starts() {
    let topology = EXTERNAL_FIGURE_1.replace("[guest.router]", "[guest.router]\nmemory_max = 268435456");
    let network = Network::up("memory", &topology);
    let _client = network.attach("client");
    let status = network.status();
    let memory = |guest: &str| {
        let of = |entry: &&serde_json::Value| entry["name"] == guest;
        status["guests"].as_array().unwrap().iter().find(of).unwrap()["memory"].clone()
    };
    assert_eq!(memory("router")["max_bytes"], 256 << 20);
    let by = memory("router")["by"].as_str().unwrap().replace('-', " ");
    assert!(memory("client").is_null() && memory("server").is_null(), "{status}");
    let text = network.text(&["status", "memory"]);
    let line = |guest: &str| text.lines().find(|line| line.starts_with(guest)).unwrap();
    assert!(line("router ").ends_with(&format!(" 256 {by}")) && line("client ").ends_with(" -"), "{text}");
}

#[test]
fn requests_without_permission_are_refused_and_the_network_runs_on() {
    let network = Network::up("rights", EXTERNAL_FIGURE_1);
    let path = network.base.path().join("rights.toml");
    let twice = network.siga(&["up", path.to_str().unwrap()]);
    assert_eq!(twice.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&twice.stderr).contains("is in use"));
    let wrong = Secret::claimed("0".repeat(64));
    let attach = |guest: &str, secret: &Secret| {
        let error = Attachment::embedded_at(&network.run_dir(), &network.name, &guest.parse().unwrap(), secret);
        error.unwrap_err().to_string()
    };
    assert!(attach("client", &wrong).contains("the given secret is not the secret of guest client"));
    assert!(attach("absent", &wrong).contains("the given secret is not the secret of guest absent"));
    let of_server = Secret::claimed(network.text(&["token", "rights", "server"]).trim());
    assert!(attach("client", &of_server).contains("the given secret is not the secret"));
    let of_router = Secret::claimed(network.text(&["token", "rights", "router"]).trim());
    assert!(attach("router", &of_router).contains("is not external"));
    let _server = network.attach("server");
    assert!(attach("server", &of_server).contains("is already attached"));
    assert_eq!(network.siga(&["grant", "rights", "lan", "client"]).status.code(), Some(2), "it is open to all");
    assert!(network.pid_of("router").is_some());
}

#[test]
fn a_running_guest_loses_and_gets_access_to_a_network() {
    let restricted = EXTERNAL_FIGURE_1.replace(
        "type = \"hipersockets\"",
        "type = \"hipersockets\"\naccess = \"restricted\"\ngrant = [\"router\", \"server\"]",
    );
    // Remove the last `external = true`, that of the server, so that the control program runs the server.
    let (before, after) = restricted.rsplit_once("external = true\n").unwrap();
    let network = Network::up("access", &format!("{before}{after}"));
    let ping =
        |seconds: &str| network.siga(&["ping", "access", "router", "10.0.2.2", "-c", "1", "-W", seconds]).status.code();
    assert_eq!(ping(ANSWERED), Some(0));
    network.text(&["revoke", "access", "lan", "server"]);
    assert_eq!(ping("0.5"), Some(4));
    assert!(network.text(&["status", "access"]).contains("restricted"));
    network.text(&["grant", "access", "lan", "server"]);
    assert_eq!(ping(ANSWERED), Some(0));
}

#[test]
fn a_new_grant_ends_the_wait_after_a_refusal() {
    let network = Network::up(
        "anew",
        r#"
        [network.lan]
        type = "hipersockets"
        access = "restricted"
        grant = ["hub", "one", "two"]
        [guest.hub]
        pairs_max = 1
        device = [{ network = "lan", addresses = ["10.0.2.1/24"] }]
        [guest.one]
        device = [{ network = "lan", addresses = ["10.0.2.2/24"] }]
        [guest.two]
        device = [{ network = "lan", addresses = ["10.0.2.3/24"] }]
        "#,
    );
    let ping =
        |to: &str, seconds: &str| network.siga(&["ping", "anew", "hub", to, "-c", "1", "-W", seconds]).status.code();
    let refusals = || network.log().lines().filter(|line| line.contains("hub.dev0 cannot connect to two.dev0")).count();
    assert_eq!(ping("10.0.2.2", ANSWERED), Some(0));
    let begun = Instant::now();
    assert_eq!(ping("10.0.2.3", "0.3"), Some(4));
    wait_until("nobody is refused", || refusals() == 1);
    assert_eq!(ping("10.0.2.3", "0.3"), Some(4));
    let asked = refusals();
    let is_time_over = begun.elapsed() >= siga_fabric::limits::REFUSED_TIME;
    assert!(asked == 1 || is_time_over, "who was refused does not ask again for some time: {asked} times");
    network.text(&["revoke", "anew", "lan", "two"]);
    network.text(&["grant", "anew", "lan", "two"]);
    assert_eq!(ping("10.0.2.3", "0.3"), Some(4));
    wait_until("the grant is no reason to ask", || refusals() > asked);
}

/// Returns the total CPU time of processes.
fn cpu_time(pids: &[i32]) -> Duration {
    let of = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        stat.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    Duration::from_nanos(pids.iter().map(of).sum())
}

/// Makes each of `guests` guests reach every other guest, and prints the time and memory. Then checks that the guests are idle.
fn all_pairs(network: &str, guests: usize) {
    let mut topology = "[network.lan]\ntype = \"hipersockets\"\n".to_owned();
    for at in 1..=guests {
        let device = format!("device = [{{ network = \"lan\", addresses = [\"10.0.0.{at}/24\"] }}]");
        topology += &format!("[guest.g{at}]\n{device}\n");
    }
    let network = Network::up(network, &topology);
    let mut client = Client::connect_at(&network.run_dir(), &network.name).unwrap();
    let begun = Instant::now();
    for one in 1..=guests {
        for other in one + 1..=guests {
            let to = format!("10.0.0.{other}").parse().unwrap();
            let guest = format!("g{one}").parse().unwrap();
            let answers = client.request(Request::Ping { guest, to, bytes: 56, timeout_ms: 5_000 }).unwrap();
            assert!(matches!(answers[..], [Answer::Pong { time_ns: Some(_) }]), "{one} {other}: {answers:?}");
        }
    }
    let status = network.status();
    let pairs = status["networks"][0]["pairs"].as_u64().unwrap();
    assert_eq!(pairs, (guests * (guests - 1) / 2) as u64);
    let entries = status["guests"].as_array().unwrap();
    let sum = |key: &str| entries.iter().map(|guest| guest[key].as_u64().unwrap()).sum::<u64>();
    // Each pair has two rings of `buffer_count` buffers.
    assert_eq!(sum("ring_bytes"), pairs * 2 * 32 * (64 << 10));
    println!("{pairs} pairs in {:?}, {} MB of rings", begun.elapsed(), sum("ring_bytes") >> 20);
    let mut pids: Vec<i32> = entries.iter().map(|guest| guest["pid"].as_i64().unwrap().try_into().unwrap()).collect();
    pids.push(network.control_pid());
    are_idle(&threads(&pids)).unwrap();
}

#[test]
fn all_guests_reach_each_other_with_the_predicted_ring_memory() {
    all_pairs("twenty", 20);
}

#[test]
#[ignore = "takes a minute; `cargo xtask nightly --only net` runs it"]
fn a_hundred_guests_all_reach_each_other() {
    all_pairs("hundred", 100);
}

#[test]
fn an_idle_ring_pair_is_removed_and_made_again_at_the_next_use() {
    let (before, after) = EXTERNAL_FIGURE_1.rsplit_once("external = true\n").unwrap();
    let topology =
        format!("{before}{after}").replace("type = \"hipersockets\"", "type = \"hipersockets\"\nidle_seconds = 1");
    let network = Network::up("idle", &topology);
    let ping = || network.text(&["ping", "idle", "router", "10.0.2.2", "-c", "1"]);
    let pairs = || network.status()["networks"][0]["pairs"].as_u64().unwrap();
    ping();
    assert_eq!(pairs(), 1);
    wait_until("the pair's end", || pairs() == 0);
    ping();
    assert_eq!(pairs(), 1);
    let text = network.text(&["status", "idle", "--detail"]);
    assert!(text.contains("idle_seconds"), "{text}");
}

#[test]
fn a_capture_of_a_router_has_the_frames_of_both_links() {
    let (before, after) = EXTERNAL_FIGURE_1.rsplit_once("external = true\n").unwrap();
    let network = &Network::up("capture", &format!("{before}{after}"));
    let file = network.base.path().join("router.pcapng");
    // Three requests and three replies, each 20 + 8 + 56 bytes. The payload bytes are 0, 1, 2 and so on.
    let payload: Vec<u8> = (0..56).collect();
    let captured = |seconds: &str| {
        std::thread::scope(|scope| {
            let arguments = ["capture", "capture", "router", "-o", file.to_str().unwrap(), "--seconds", seconds];
            let capture = scope.spawn(move || network.text(&arguments));
            wait_until("the capture's beginning", || file.exists());
            std::thread::sleep(Duration::from_millis(300));
            network.text(&["ping", "capture", "router", "10.0.2.2", "-c", "3", "-i", "0.1"]);
            capture.join().unwrap();
        });
        let bytes = std::fs::read(&file).unwrap();
        assert_tcpdump_reads(&file);
        assert_tshark_reads(&file);
        std::fs::remove_file(&file).unwrap();
        let begins = bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) || bytes.is_empty();
        assert!(begins, "a pcapng file begins with a section header block");
        bytes.windows(payload.len()).filter(|window| *window == payload).count()
    };
    // On a busy host, the capture may end before all pings are answered.
    let first = captured("2");
    assert_eq!(if first == 6 { first } else { captured("10") }, 6, "the first time {first}");
}

/// Asserts that tcpdump, if the host has it, reads the pings on both links of the router, with times of the present.
fn assert_tcpdump_reads(file: &Path) {
    let mut tcpdump = Command::new("tcpdump");
    let Ok(output) = tcpdump.args(["-n", "-tt", "-r"]).arg(file).arg("icmp").output() else {
        println!("tcpdump is missing, so nothing else reads the capture");
        return;
    };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    for line in text.lines() {
        let at: f64 = line.split(' ').next().unwrap().parse().unwrap();
        assert!((now - 60.0..=now).contains(&at) && line.contains("ICMP echo"), "{line}");
    }
}

/// Asserts that tshark, if the host has it, finds no malformed packet, and reads the pings with times of the present and a name
/// that begins with a device of the guest as their interface.
fn assert_tshark_reads(file: &Path) {
    const FIELDS: &str =
        "-T fields -E separator=, -e frame.time_epoch -e frame.interface_name -e icmp.type -e _ws.malformed";
    let mut tshark = Command::new("tshark");
    let Ok(output) = tshark.args(["-n", "-r"]).arg(file).args(FIELDS.split(' ')).output() else {
        println!("tshark is missing, so Wireshark's code does not read the capture");
        return;
    };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let mut pings = 0;
    for line in text.lines() {
        let [at, device, icmp_type, malformed] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!((now - 60.0..=now).contains(&at.parse().unwrap()) && malformed.is_empty(), "{line}");
        assert!(device.starts_with("dev0") || device.starts_with("dev1"), "{line}");
        pings += u32::from(["0", "8"].contains(&icmp_type));
    }
    println!("tshark read {pings} pings");
    let in_file = std::fs::read(file).unwrap().windows(56).filter(|window| window.iter().copied().eq(0..56)).count();
    assert_eq!(usize::try_from(pings), Ok(in_file), "{text}");
}

fn udp(attachment: &Attachment, at: &str) -> UdpSocket {
    let socket = UdpSocket::bind(attachment, at.parse().unwrap()).unwrap();
    socket.set_timeout(Some(PATIENCE));
    socket
}

#[test]
fn datagrams_reach_one_partner_or_all_partners_of_a_network() {
    let lan = "[network.lan]\ntype = \"hipersockets\"\n[guest.a]\nexternal = true\n\
        device = [{ network = \"lan\", addresses = [\"10.0.0.1/24\"] }]\n[guest.b]\nexternal = true\n\
        device = [{ network = \"lan\", addresses = [\"10.0.0.2/24\"] }]\n";
    let network = Network::up("datagrams", lan);
    let (a, b) = (network.attach("a"), network.attach("b"));
    let one = udp(&a, "10.0.0.1:5000");
    let other = udp(&b, "10.0.0.2:5000");
    let mut buffer = [0; 60_000];
    let all_came = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let mut buffer = [0; 60_000];
            for _ in 0..3 {
                let (count, from) = other.recv_from(&mut buffer).unwrap();
                other.send_to(&buffer[..count], from).unwrap();
            }
            // The last datagram is only sent while a call waits for events, so keep waiting.
            let begun = Instant::now();
            other.set_timeout(Some(Duration::from_millis(200)));
            while !all_came.load(Ordering::Relaxed) && begun.elapsed() < PATIENCE {
                assert_eq!(other.recv_from(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
            }
        });
        // The largest datagram needs IP fragments.
        for bytes in [0, 1_000, 59_000] {
            let sent: Vec<u8> = (0..bytes).map(|at: u32| at.to_le_bytes()[0]).collect();
            one.send_to(&sent, "10.0.0.2:5000".parse().unwrap()).unwrap();
            let (count, from) = one.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..count], from), (&sent[..], "10.0.0.2:5000".parse().unwrap()));
        }
        all_came.store(true, Ordering::Relaxed);
        echo.join().unwrap();
    });
    // Broadcasts reach all guests of the network.
    let everybody = udp(&b, "0.0.0.0:5001");
    for to in ["10.0.0.255:5001", "255.255.255.255:5001"] {
        one.send_to(b"all", to.parse().unwrap()).unwrap();
        let (count, from) = everybody.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..count], from), (&b"all"[..], "10.0.0.1:5000".parse().unwrap()), "{to}");
    }
}

#[test]
fn a_peer_of_another_version_and_a_bad_topology_are_refused_with_a_reason() {
    let network = Network::up("versions", EXTERNAL_FIGURE_1);
    let mut client = Client::connect_at(&network.run_dir(), &network.name).unwrap();
    let (guest, secret) = ("client".parse().unwrap(), Secret::claimed(""));
    let request = Request::Attach { protocol: 0, version: "0.0.1".to_owned(), guest, secret };
    let error = client.request(request).unwrap_err();
    assert!(error.to_string().contains("protocol 0 (siga version 0.0.1)"), "{error}");
    for (text, status, why) in [
        ("[guest.a]\ncolour = 1", 2, "unknown field `colour`"),
        ("[network.n]\ntype = \"vctc\"\n[guest.a]\ndevice = [{ network = \"n\", mtu = 70000 }]", 2, "an MTU of 70000"),
        ("", 2, "no guest"),
    ] {
        let path = network.base.path().join("bad.toml");
        std::fs::write(&path, text).unwrap();
        let output = network.siga(&["up", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(status), "{text}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(why) && message.contains("bad.toml"), "{message}");
        assert!(!network.run_dir().join("bad").exists());
    }
    assert!(network.pid_of("router").is_some());
}

#[test]
fn a_ring_pair_beyond_the_limits_of_the_asking_guest_is_refused() {
    // The client's limit on ring memory is less than one pair needs. The pair is refused with a reason, and the router continues
    // to run.
    let limited = EXTERNAL_FIGURE_1.replace("[guest.client]\n", "[guest.client]\nring_bytes_max = 1000\n");
    let network = Network::up("limits", &limited);
    let client = network.attach("client");
    let error = std::thread::scope(|scope| {
        let connect = scope.spawn(|| {
            let stream = TcpStream::begin(&client, "10.0.2.2:7".parse().unwrap(), &SocketOptions::default()).unwrap();
            stream.set_timeout(Some(Duration::from_millis(300)));
            (&stream).read(&mut [0]).unwrap_err()
        });
        connect.join().unwrap()
    });
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    wait_until("nobody is told why", || network.log().contains("ring_bytes_max"));
    assert!(network.pid_of("router").is_some());
}

#[test]
fn a_control_program_recovers_from_a_lack_of_descriptors() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped, because only root sees how many descriptors a hidden process has");
        return;
    }
    let network = Network::up("descriptors", EXTERNAL_FIGURE_1);
    let control = network.control_pid();
    // Set the limit to the number of descriptors that the control program already has.
    let open = std::fs::read_dir(format!("/proc/{control}/fd")).unwrap().flatten();
    let highest = open.map(|entry| entry.file_name().to_str().unwrap().parse::<u64>().unwrap()).max().unwrap();
    let limit = rustix::process::Rlimit { current: Some(highest + 1), maximum: None };
    let before = set_descriptor_limit(control, limit);
    let address = rustix::net::SocketAddrUnix::new(network.run_dir().join("descriptors").join("control")).unwrap();
    let kind = rustix::net::SocketType::SEQPACKET;
    let connect = || {
        let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        socket
    };
    // Some connections use the free numbers between its descriptors; the control program closes the others.
    let held: Vec<_> = (0..200).map(|_| connect()).collect();
    let ended = rustix::net::recv(held.last().unwrap(), &mut [0; 16][..], rustix::net::RecvFlags::empty());
    assert_eq!(ended.unwrap().0, 0);
    let spent = cpu_time(&[control]);
    std::thread::sleep(Duration::from_millis(500));
    let spent = cpu_time(&[control]) - spent;
    assert!(spent < Duration::from_millis(250), "it spins: {spent:?}");
    set_descriptor_limit(control, before);
    drop(held);
    assert!(network.pid_of("router").is_some());
}

/// Sets another process's limit on descriptors and returns the old limit. If `limit` has no maximum, the maximum stays the same.
fn set_descriptor_limit(pid: i32, limit: rustix::process::Rlimit) -> rustix::process::Rlimit {
    use rustix::process::{Pid, Resource, prlimit};
    let pid = Pid::from_raw(pid);
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, rustix::process::Rlimit { current: limit.current, maximum: hard }).unwrap()
}

#[test]
fn status_shows_a_guest_without_a_report_as_silent_and_shows_the_others() {
    let network = Network::up("silent", EXTERNAL_FIGURE_1);
    let secret = Secret::claimed(network.text(&["token", "silent", "client"]).trim());
    let client = Client::connect_at(&network.run_dir(), &network.name).unwrap();
    let mut channel = client.attach(&"client".parse().unwrap(), &secret).unwrap();
    channel.send(&GuestEvent::Ready { confinement: "none".to_owned() }, Vec::new()).unwrap();
    let status = network.text(&["status", "silent", "--detail"]);
    assert!(status.contains("guest client did not send a report before the timeout"), "{status}");
    assert!(status.contains("device dev0 of guest router"), "{status}");
    let status: serde_json::Value =
        serde_json::from_str(&network.text(&["status", "silent", "--detail", "--format", "json"])).unwrap();
    assert_eq!(status["silent"], serde_json::json!(["client"]));
}

#[test]
fn a_request_to_a_stopped_control_program_fails_in_time_and_has_no_later_effect() {
    let network = Network::up("stopped", EXTERNAL_FIGURE_1);
    let control = rustix::process::Pid::from_raw(network.control_pid()).unwrap();
    rustix::process::kill_process(control, rustix::process::Signal::STOP).unwrap();
    // Three commands: the user kills the first, the second reaches its time limit, and the third is answered in time.
    let mut given_up = network.command(&["down", "stopped"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    given_up.kill().unwrap();
    given_up.wait().unwrap();
    let begun = Instant::now();
    let late = network.siga(&["status", "stopped"]);
    let down = network.siga(&["down", "stopped"]);
    let took = begun.elapsed();
    rustix::process::kill_process(control, rustix::process::Signal::CONT).unwrap();
    for output in [&late, &down] {
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("did not accept the request within 5 s") && text.contains("kill -CONT"), "{text}");
    }
    println!("two requests in {took:?}");
    let states = network.text(&["status", "stopped"]);
    assert!(states.contains("router          running"), "{states}");
    assert_eq!(network.control_pid(), control.as_raw_nonzero().get());
}
