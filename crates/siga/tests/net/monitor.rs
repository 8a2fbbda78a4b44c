//! `siga monitor` of networks and places.

use crate::network::{EXTERNAL_FIGURE_1, Network, sink, source, wait_until};
use serde_json::Value;
use siga_fabric::sockets::TcpListener;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

fn monitor(network: &Network, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.arg("monitor").args(arguments).env("SIGA_RUN_DIR", network.run_dir());
    command
}

/// Returns the process with this role and name in the last sample.
fn last<'a>(samples: &'a [Value], role: &str, name: &str) -> &'a Value {
    let processes = samples.last().unwrap()["processes"].as_array().unwrap();
    let mut found = processes.iter().filter(|process| process["role"] == role && process["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {role} {name} in {processes:#?}"))
}

#[test]
fn a_monitor_has_the_cpu_time_and_the_traffic_of_each_process_of_a_network() {
    let network = Network::up("watched", EXTERNAL_FIGURE_1);
    let (client, server) = (network.attach("client"), network.attach("server"));
    let listener = TcpListener::bind(&server, "10.0.2.2:7".parse().unwrap()).unwrap();
    let mut child = monitor(&network, &["watched", "--interval", "100ms", "--format", "jsonl"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut samples: Vec<Value> = Vec::new();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(&client, "10.0.2.2:7", 256 << 20, |_| {});
        served.join().unwrap();
    });
    // The samples from the begin of the transfer until the router was quiet again.
    let bytes = |sample: &Value| last(std::slice::from_ref(sample), "router", "router")["net"]["bytes_sent"].as_u64();
    let mut sent = 0;
    while sent < 256 << 20 {
        let sample: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        sent += bytes(&sample).unwrap_or(0);
        samples.push(sample);
        assert!(samples.len() < 600, "{sent} bytes in {} samples", samples.len());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let router = last(&samples, "router", "router");
    assert_eq!(router["pid"], network.pid("router"));
    let cpu_ms = |sample: &Value| {
        let cpu = &last(std::slice::from_ref(sample), "router", "router")["cpu"];
        cpu["virtual_ms"].as_f64().unwrap_or(0.0) + cpu["cp_ms"].as_f64().unwrap_or(0.0)
    };
    assert!(samples.iter().map(cpu_ms).sum::<f64>() > 1.0, "{samples:#?}");
    for guest in ["client", "server"] {
        assert_eq!(last(&samples, "guest", guest)["pid"], std::process::id());
    }
    assert!(last(&samples, "control", "control program")["cpu"]["cp_ms"].is_f64());
    let monitor = samples.last().unwrap()["monitor"]["percent"].as_f64().unwrap();
    assert!(monitor > 0.0, "{monitor}");
}

#[test]
fn a_monitor_names_the_applications_of_a_guest() {
    let (before, after) = EXTERNAL_FIGURE_1.rsplit_once("external = true\n").unwrap();
    let network = Network::up("applied", &format!("{before}{after}"));
    let _application = network.application("server");
    let output = monitor(&network, &["--interval", "100ms", "--count", "1", "--format", "jsonl"]).output().unwrap();
    let sample: Value = serde_json::from_slice(&output.stdout).unwrap();
    let processes = sample["processes"].as_array().unwrap();
    let application = processes.iter().find(|process| process["role"] == "application").unwrap();
    assert_eq!((&application["guest"], &application["pid"]), (&"server".into(), &std::process::id().into()));
    // The external guest has no process yet.
    assert_eq!(last(std::slice::from_ref(&sample), "guest", "client")["state"], "down");
}

#[test]
fn a_monitor_of_a_network_that_goes_down_ends_with_a_message_and_status_4() {
    let network = Network::up("ends", EXTERNAL_FIGURE_1);
    let mut command = monitor(&network, &["ends", "--interval", "100ms", "--layout", "zvm"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let head: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
    assert!(head[0].starts_with("SYSTEM_SUMMARY_BY_TIME"), "{head:?}");
    network.text(&["down", "ends"]);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert!(errors.contains("network ends has ended"), "{errors}");
    // The end of the test takes the network down.
    let path = network.base.path().join("ends.toml");
    network.text(&["up", path.to_str().unwrap()]);
    // The users are printed nevertheless.
    assert!(rest.iter().any(|line| line.starts_with("USER_RESOURCE_UTILIZATION")), "{rest:?}");
}

#[test]
fn a_monitor_without_a_name_needs_exactly_one_network() {
    let none = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_siga")).arg("monitor").env("SIGA_RUN_DIR", none.path()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no network is up"));
    let network = Network::up("one", EXTERNAL_FIGURE_1);
    let path = network.base.path().join("other.toml");
    std::fs::write(&path, EXTERNAL_FIGURE_1).unwrap();
    network.text(&["up", path.to_str().unwrap(), "--name", "other"]);
    let output = monitor(&network, &["--count", "1"]).output().unwrap();
    network.text(&["down", "other"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("name one of them: one, other"));
}

#[test]
fn a_monitor_of_a_place_has_the_processes_there() {
    let network = Network::up("place", EXTERNAL_FIGURE_1);
    let place = format!("pid:{}", std::process::id());
    let arguments = ["--place", &place, "--interval", "100ms", "--count", "2", "--format", "csv"];
    let output = monitor(&network, &arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = format!(",process,,{},running,", std::process::id());
    assert!(text.starts_with("at,sample,seconds,target,name,role,"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(&wanted)).count(), 2, "{text}");
    let output = monitor(&network, &["--place", "netns:siga-no-such-place"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_monitor_serves_open_metrics() {
    let network = Network::up("served", EXTERNAL_FIGURE_1);
    let arguments = ["served", "--interval", "100ms", "--listen", "127.0.0.1:0"];
    let mut child = monitor(&network, &arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("siga: serving http://").unwrap().strip_suffix("/metrics").unwrap();
    let get = || {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    };
    wait_until("the first counters", || get().contains("siga_process_up"));
    let text = get();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let up = format!("name=\"router\",role=\"router\",guest=\"\",pid=\"{}\"}} 1\n", network.pid("router"));
    assert!(text.contains(&format!("siga_process_up{{target=\"network served\",{up}")), "{text}");
}

#[test]
fn a_live_monitor_draws_on_the_terminal_and_restores_it_when_q_is_pressed() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped, because script(1) is not installed");
        return;
    }
    let network = Network::up("drawn", EXTERNAL_FIGURE_1);
    let inner = format!("stty rows 24 cols 120; {} monitor drawn --interval 100ms", env!("CARGO_BIN_EXE_siga"));
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &inner, "/dev/null"]).env("SIGA_RUN_DIR", network.run_dir());
    let mut child = command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut shown = Vec::new();
    let mut output = child.stdout.take().unwrap();
    let has = |shown: &[u8], wanted: &str| shown.windows(wanted.len()).any(|part| part == wanted.as_bytes());
    while !has(&shown, "router") {
        let mut bytes = [0; 4096];
        let count = output.read(&mut bytes).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&bytes[..count]);
    }
    child.stdin.take().unwrap().write_all(b"q").unwrap();
    output.read_to_end(&mut shown).unwrap();
    assert!(child.wait().unwrap().success());
    // The alternate screen begins and ends, and the cursor is shown again.
    for wanted in ["\u{1b}[?1049h", "\u{1b}[?1049l", "\u{1b}[?25h"] {
        assert!(has(&shown, wanted), "{wanted:?} in {:?}", String::from_utf8_lossy(&shown));
    }
}

#[test]
fn the_time_of_a_network_is_that_of_its_guests_since_they_started() {
    let network = Network::up("timed", include_str!("../../../../topologies/figure-1.toml"));
    let name = network.name.as_str();
    let of_client = || {
        let times: Value = serde_json::from_str(&network.text(&["time", name, "--format", "json"])).unwrap();
        let processes = times["processes"].as_array().unwrap().clone();
        let client = processes.into_iter().find(|process| process["name"] == "tcpip1").unwrap();
        assert_eq!(client["pid"], network.pid("tcpip1"), "{client}");
        [&client["virtual_s"], &client["total_s"]].map(|seconds| seconds.as_f64().unwrap())
    };
    let [before, after] = [(); 2].map(|()| {
        let times = of_client();
        network.text(&["ping", name, "tcpip1", "10.0.2.2", "--count", "200", "--interval", "0.001"]);
        times
    });
    assert!(after[1] > before[1] && after[0] >= before[0] && after[0] <= after[1], "{before:?} {after:?}");
    let text = network.text(&["time", name]);
    let line = text.lines().find(|line| line.starts_with("tcpip2 ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words[1] == "router" && words[2].parse::<f64>().unwrap() <= words[3].parse::<f64>().unwrap(), "{text}");
    assert!(text.contains("control"), "{text}");
}
