//! TIME-WAIT: which connections may replace one, when each ends, and ports that are in use.

use crate::net::{Net, PLAIN, address, content};
use crate::tcp::{held, whole};
use siga_stack::link::frame::DeviceId;
use siga_stack::sockets::{TcpError, TcpOptions};
use siga_stack::tcp::Config;
use siga_stack::time::Duration;
use std::net::SocketAddr;

// RFC 6191 section 2, RFC 9293 MUST-8: the clock of initial sequence numbers has not come as far as what was sent.
#[test]
fn a_connection_that_replaces_one_in_time_wait_gets_a_higher_initial_number() {
    // The side that closes first, and so is in TIME-WAIT, either connects anew or is connected to.
    for waits in [0, 1] {
        let mut net = Net::new(&[PLAIN]);
        let listener = net.listen(false, 80, 4);
        let (local, remote) = (SocketAddr::new(address(false, 0, 1), 5_000), net.far(false, 80));
        net.keep_frames = true;
        // Where its numbers begin and end.
        let mut numbers: Vec<(u32, u32)> = Vec::new();
        for _ in 0..2 {
            let now = net.now;
            let here = net.first().tcp_connect(now, local, remote, &TcpOptions::default()).unwrap();
            net.cross();
            let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
            let (ids, answers) = ([here, there], 1 - waits);
            let from_to = ((waits, ids[waits]), (answers, ids[answers]));
            assert_eq!(net.stream(from_to.0, from_to.1, &content(500_000)).len(), 500_000);
            for side in [waits, answers] {
                net.stacks[side].tcp_close(net.now, ids[side]).unwrap();
                net.cross();
            }
            net.pass(Duration::from_millis(5));
            let sent = net.frames.drain(..).filter(|(from, frame, _)| *from == waits && frame[12..14] == [8, 0]);
            let sent: Vec<u32> =
                sent.map(|(_, frame, _)| u32::from_be_bytes(frame[38..42].try_into().unwrap())).collect();
            let most = sent.iter().map(|number| number.wrapping_sub(sent[0])).max().unwrap();
            numbers.push((sent[0], sent[0].wrapping_add(most)));
        }
        assert_eq!(held(&net.stacks[waits]).1, 1);
        assert!((1..1 << 20).contains(&numbers[1].0.wrapping_sub(numbers[0].1)), "{waits}: {numbers:?}");
    }
}

// RFC 9293 section 3.10.7.4: a repeated FIN restarts the time.
#[test]
fn a_restarted_time_wait_does_not_delay_the_end_of_another() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 4);
    let mut fins = Vec::new();
    for _ in 0..2 {
        let (here, there) = net.open(false, 80, listener);
        let now = net.now;
        net.first().tcp_close(now, here).unwrap();
        net.cross();
        net.keep_frames = true;
        net.last().tcp_close(now, there).unwrap();
        net.cross();
        net.keep_frames = false;
        fins.extend(net.frames.drain(..).find(|(from, _, _)| *from == 1));
    }
    assert_eq!(held(&net.stacks[0]), (0, 2));
    net.pass(Duration::from_secs(30));
    let now = net.now;
    net.first().handle_frame(now, DeviceId(0), whole(&fins[0].1));
    net.pass(Duration::from_secs(31));
    assert_eq!(held(&net.stacks[0]), (0, 1), "the second came later and ends before");
    net.pass(Duration::from_secs(30));
    assert_eq!(held(&net.stacks[0]), (0, 0));
}

#[test]
fn a_short_time_wait_ends_before_a_longer_one_that_began_earlier() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 4);
    for (port, seconds) in [(5_000, 60), (5_001, 2), (5_002, 30), (5_003, 2)] {
        let (local, remote) = (SocketAddr::new(address(false, 0, 1), port), net.far(false, 80));
        let config = Config { time_wait: Duration::from_secs(seconds), ..Config::LINUX };
        let (now, options) = (net.now, TcpOptions { config, ..TcpOptions::default() });
        let here = net.first().tcp_connect(now, local, remote, &options).unwrap();
        net.cross();
        let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
        for (side, id) in [(0, here), (1, there)] {
            net.stacks[side].tcp_close(net.now, id).unwrap();
            net.cross();
        }
    }
    for (seconds, left) in [(1, 4), (2, 2), (26, 2), (2, 1), (28, 1), (2, 0)] {
        net.pass(Duration::from_secs(seconds));
        assert_eq!(held(&net.stacks[0]), (0, left), "{:?}", net.now);
    }
}

// RFC 6191 section 2: timestamps count milliseconds.
#[test]
fn a_connection_may_replace_one_in_time_wait_once_its_timestamps_are_newer() {
    for timestamps in [true, false] {
        let mut net = Net::new(&[PLAIN]);
        let listener = net.listen(false, 80, 4);
        let (local, remote) = (SocketAddr::new(address(false, 0, 1), 50_000), net.far(false, 80));
        let options = TcpOptions { config: Config { timestamps, ..Config::LINUX }, ..TcpOptions::default() };
        let connect = |net: &mut Net| {
            let now = net.now;
            net.first().tcp_connect(now, local, remote, &options)
        };
        let here = connect(&mut net).unwrap();
        net.cross();
        let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
        let now = net.now;
        net.first().tcp_close(now, here).unwrap();
        net.cross();
        net.last().tcp_close(now, there).unwrap();
        net.cross();
        assert_eq!(held(&net.stacks[0]), (0, 1));
        assert_eq!(net.stacks[0].memory().held("TCP ports taken"), usize::from(!timestamps));
        assert_eq!(connect(&mut net), Err(TcpError::InUse));
        net.pass(Duration::from_millis(1));
        assert_eq!(connect(&mut net).is_ok(), timestamps);
    }
}

#[test]
fn an_ephemeral_port_that_is_in_use_is_skipped() {
    let port = |net: &mut Net| {
        let id = net.connect(false, 80);
        net.first().tcp_addresses(id).unwrap().0.port()
    };
    let (first, mut net) = (port(&mut Net::new(&[PLAIN])), Net::new(&[PLAIN]));
    let (now, here, there) = (net.now, SocketAddr::new(address(false, 0, 1), first), net.far(false, 80));
    let listener = net.first().tcp_listen(here, 1, &TcpOptions::default()).unwrap();
    net.last().tcp_connect(now, there, here, &TcpOptions::default()).unwrap();
    net.cross();
    net.first().tcp_accept(listener).unwrap().unwrap();
    net.first().tcp_unlisten(now, listener).unwrap();
    assert_ne!(port(&mut net), first);
}
