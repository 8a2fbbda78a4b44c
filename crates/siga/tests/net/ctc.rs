//! Networks of type ctc: a real channel-to-channel adapter, whose channel is modelled.

use super::channels::{many_connections, run_stack};
use super::network::{EXTERNAL_FIGURE_1, Network, kill, sink, source};
use siga_fabric::sockets::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn bytes_cross_a_real_ctc_both_ways_although_the_router_is_killed() {
    let topology = EXTERNAL_FIGURE_1.replacen("type = \"vctc\"\nbuffer = 65535", "type = \"ctc\"", 1);
    let network = Network::up("real-ctc", &topology.replace("mtu = 57344", "mtu = 32760"));
    let (client, server) = (network.attach("client"), network.attach("server"));
    for (from, to, at, kills, bytes) in [
        (&client, &server, "10.0.2.2:7", true, 64 << 20),
        (&server, &client, "10.0.1.1:7", false, 64 << 20),
        (&client, &server, "[fd00:2::2]:7", false, 16 << 20),
        (&server, &client, "[fd00:1::1]:7", true, 16 << 20),
    ] {
        let listener = TcpListener::bind(to, at.parse().unwrap()).unwrap();
        let (begun, done) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let served = scope.spawn(|| sink(&listener));
            scope.spawn(|| run_stack(to, &done));
            let mut killed = !kills;
            source(from, at, bytes, |sent| {
                if sent >= bytes / 2 && !killed {
                    killed = true;
                    kill(network.pid("router"));
                }
            });
            done.store(true, Ordering::Relaxed);
            assert_eq!(served.join().unwrap().0, bytes);
        });
        // The channel carries at most 8.4 MB/s.
        let least = Duration::from_millis(bytes / 10_000);
        assert!(begun.elapsed() > least, "{:?} instead of {least:?}", begun.elapsed());
    }
}

#[test]
fn ten_thousand_connections_cross_a_real_ctc() {
    let topology = EXTERNAL_FIGURE_1.replacen("type = \"vctc\"\nbuffer = 65535", "type = \"ctc\"", 1);
    let fast = "mtu = 32760, link = \"rate=8gbit,latency=10us\"";
    let topology = topology.replacen("mtu = 57344", fast, 1).replace("mtu = 57344", "mtu = 32760");
    many_connections(&Network::up("many-over-ctc", &topology), 10_000);
}
