//! The port filter of a guest: what others may open to it, and how the rules change while the network runs.

use super::ANSWERED;
use super::network::{EXTERNAL_FIGURE_1, Network, PATIENCE, kill, wait_until};
use siga_fabric::sockets::{TcpListener, TcpStream, UdpSocket};
use std::io::{Read, Write};

/// Returns how many packets the filter of the guest `server` has dropped.
fn refused(network: &Network) -> u64 {
    let status = network.text(&["status", network.name.as_str(), "--detail", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let reports = status["reports"].as_array().unwrap().iter().filter(|report| report["guest"] == "server");
    let devices = reports.filter_map(|report| report["part"].get("device"));
    devices.filter_map(|device| device["counters"]["not_allowed"].as_u64()).sum()
}

fn ping(network: &Network, seconds: &str) -> Option<i32> {
    network.siga(&["ping", network.name.as_str(), "router", "10.0.2.2", "-c", "1", "-W", seconds]).status.code()
}

fn up(name: &str, rules: &str) -> Network {
    let rules = format!("[guest.server]\nallow = [{rules}]");
    Network::up(name, &EXTERNAL_FIGURE_1.replace("external = true\n", "").replace("[guest.server]", &rules))
}

#[test]
fn a_guest_gets_only_what_its_rules_allow_and_the_rules_change_while_it_runs() {
    let network = up("filters", "\"tcp 7 from lan\"");
    let (client, server) = (network.application("client"), network.application("server"));
    assert_eq!(ping(&network, "0.5"), Some(4));
    assert!(refused(&network) > 0);
    let [seven, eight] =
        ["10.0.2.2:7", "10.0.2.2:8"].map(|at| TcpListener::bind(&server, at.parse().unwrap()).unwrap());
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            seven.set_timeout(Some(PATIENCE));
            let (mut stream, _) = seven.accept().unwrap();
            stream.set_timeout(Some(PATIENCE));
            let mut bytes = [0; 4];
            while stream.read_exact(&mut bytes).is_ok() {
                stream.write_all(&bytes).unwrap();
            }
        });
        let mut stream = TcpStream::connect(&client, "10.0.2.2:7".parse().unwrap()).unwrap();
        let mut exchange = |text: &[u8; 4]| {
            stream.write_all(text).unwrap();
            let mut back = [0; 4];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, *text);
        };
        exchange(b"open");
        let before = refused(&network);
        let late = scope.spawn(|| TcpStream::connect(&client, "10.0.2.2:8".parse().unwrap()).map(drop));
        wait_until("the connection to port 8 is refused", || refused(&network) > before);
        network.text(&["allow", "filters", "server", "tcp 8 from 10.0.0.0/16", "icmp"]);
        // The client sends the lost segment again, and the existing connection goes on without a rule.
        late.join().unwrap().unwrap();
        exchange(b"more");
        assert_eq!(ping(&network, ANSWERED), Some(0));
        drop(stream);
        echo.join().unwrap();
    });
    drop(eight);
    for wrong in [&["tcp 8 from nowhere"][..], &["sctp"], &[], &["tcp 8", "--everything"]] {
        let output = network.siga(&[&["allow", "filters", "server"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_guest_gets_rules_that_a_killed_control_program_had_not_sent_and_a_new_process_has_them() {
    let network = up("resent", "");
    assert_eq!(ping(&network, "0.5"), Some(4));
    let listed = |rules: &str| {
        let status = network.text(&["status", "resent", "--detail"]);
        let expected = format!("port filter of guest server: others may open\n{rules}");
        assert!(status.contains(&expected) && status.matches("port filter").count() == 1, "{status}");
    };
    listed("  nothing\n");
    kill(network.control_pid());
    // The control program was killed after it had written new rules to its state, and before it sent them.
    let path = network.run_dir().join("resent").join("state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    state["allow"]["server"] = serde_json::json!(["tcp 7", "icmp from 10.0.0.0/8"]);
    std::fs::write(&path, state.to_string()).unwrap();
    network.text(&["up", network.base.path().join("resent.toml").to_str().unwrap()]);
    assert_eq!(ping(&network, ANSWERED), Some(0));
    listed("  tcp 7\n  icmp from 10.0.0.0/8\n");
    network.text(&["allow", "resent", "server", "tcp 7"]);
    let before = network.pid("server");
    kill(before);
    wait_until("a new server", || network.pid_of("server").is_some_and(|pid| pid != before));
    wait_until("the new server refuses a ping", || {
        assert_eq!(ping(&network, "0.5"), Some(4));
        refused(&network) > 0
    });
}

#[test]
fn answers_to_a_guests_datagrams_need_no_rule() {
    let network = up("answers", "");
    let (client, server) = (network.application("client"), network.application("server"));
    let socket = |attachment, at: &str| {
        let socket = UdpSocket::bind(attachment, at.parse().unwrap()).unwrap();
        socket.set_timeout(Some(PATIENCE));
        socket
    };
    let (near, far) = (socket(&server, "10.0.2.2:5000"), socket(&client, "10.0.1.1:53"));
    far.send_to(b"first", "10.0.2.2:5000".parse().unwrap()).unwrap();
    wait_until("the datagram is refused", || refused(&network) > 0);
    near.send_to(b"question", "10.0.1.1:53".parse().unwrap()).unwrap();
    let mut bytes = [0; 16];
    let (count, from) = far.recv_from(&mut bytes).unwrap();
    assert_eq!(&bytes[..count], b"question");
    far.send_to(b"answer", from).unwrap();
    let (count, _) = near.recv_from(&mut bytes).unwrap();
    assert_eq!(&bytes[..count], b"answer", "the datagram before was dropped");

    network.text(&["allow", "answers", "server", "--nothing"]);
    assert_eq!(ping(&network, "0.5"), Some(4));
    network.text(&["allow", "answers", "server", "--everything"]);
    assert_eq!(ping(&network, ANSWERED), Some(0));
}
