//! TCP sockets through whole stacks: opening, moving bytes, closing, and their events and errors.

use crate::net::{Link, Net, PLAIN, address, any, content};
use siga_stack::Stack;
use siga_stack::drops::{IpDrop, TcpDrop};
use siga_stack::limits::{HEADER_BYTES_MAX, TCP_BURST_FRAMES};
use siga_stack::link::device::Agreed;
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::sockets::{TcpError, TcpEvent, TcpId, TcpOptions, TcpSetting};
use siga_stack::tcp::{Config, ConfigError, Failure, StateName};
use siga_stack::time::{Duration, Instant};
use smoltcp::wire::{Ipv4Packet, Ipv6Packet};
use std::net::SocketAddr;

pub(crate) const ALL_AGREED: Agreed = Agreed { checksum_unfilled: true, large_segments: true };

fn rows() -> Vec<Vec<Link>> {
    let with = |mtu, agreed, ethernet| Link { mtu, agreed, ethernet };
    vec![
        vec![PLAIN],
        vec![with(57_344, ALL_AGREED, false)],
        vec![PLAIN, PLAIN],
        vec![with(1_500, ALL_AGREED, false), PLAIN],
        vec![with(8_992, ALL_AGREED, false), with(1_500, ALL_AGREED, true), with(1_280, Agreed::default(), false)],
    ]
}

#[test]
fn streams_cross_every_combination_of_links_whole() {
    for (row, links) in rows().iter().enumerate() {
        for v6 in [false, true] {
            let mut net = Net::new(links);
            let listener = net.listen(v6, 80, 10);
            let (here, there) = net.open(v6, 80, listener);
            let last = net.stacks.len() - 1;
            for bytes in [200, 1_000, 70_000, 1_000_000] {
                let question = content(bytes);
                assert_eq!(net.stream((0, here), (last, there), &question), question, "row {row}, {bytes} bytes");
                assert_eq!(net.stream((last, there), (0, here), &question), question, "row {row}, {bytes} bytes");
            }
            let now = net.now;
            net.first().tcp_shutdown(now, here).unwrap();
            net.cross();
            assert_eq!(net.last().tcp_receive(now, there, &mut [0; 9]), Ok(Some(0)));
            net.last().tcp_close(now, there).unwrap();
            net.cross();
            assert_eq!(net.first().tcp_receive(now, here, &mut [0; 9]), Ok(Some(0)));
            assert_eq!(net.first().tcp_state(here), Ok(StateName::TimeWait));
            net.first().tcp_close(now, here).unwrap();
            net.pass(Duration::from_secs(61));
            assert_eq!(net.dropped(), []);
        }
    }
}

/// What the sockets of a stack hold: connections, and those in TIME-WAIT.
pub(crate) fn held(stack: &Stack) -> (usize, usize) {
    let memory = stack.memory();
    (memory.held("TCP connections"), memory.held("TCP connections in TIME-WAIT"))
}

#[test]
fn a_stack_reaches_its_own_sockets() {
    for v6 in [false, true] {
        let mut net = Net::new(&[PLAIN]);
        let (now, at) = (net.now, SocketAddr::new(address(v6, 0, 1), 80));
        let options = TcpOptions::default();
        let listener = net.first().tcp_listen(at, 1, &options).unwrap();
        let here = net.first().tcp_connect(now, any(v6), at, &options).unwrap();
        net.pass(Duration::from_millis(1));
        let (there, _) = net.first().tcp_accept(listener).unwrap().unwrap();
        let bytes = content(3_000_000);
        assert_eq!(net.stream((0, here), (0, there), &bytes), bytes);
        assert_eq!(net.first().tcp_addresses(there).unwrap(), (at, net.stacks[0].tcp_addresses(here).unwrap().0));
        for id in [here, there] {
            let now = net.now;
            net.first().tcp_close(now, id).unwrap();
        }
        net.pass(Duration::from_secs(61));
        assert_eq!(held(&net.stacks[0]), (0, 0));
        assert_eq!(net.dropped(), []);
    }
}

// RFC 9293 MUST-46.
#[test]
fn wrong_use_of_tcp_sockets_returns_typed_errors() {
    let mut net = Net::new(&[PLAIN]);
    let now = net.now;
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    let options = TcpOptions::default();
    let stack = net.first();
    let listener = stack.tcp_listen(at("10.0.0.1:80"), 5, &options).unwrap();
    assert_eq!(stack.tcp_listener_address(listener), Ok(at("10.0.0.1:80")));
    for (local, backlog, error) in [
        ("10.0.0.1:80", 5, TcpError::InUse),
        ("10.0.0.1:0", 5, TcpError::Address),
        ("10.9.0.1:81", 5, TcpError::NotOurs),
        ("10.0.0.1:81", 0, TcpError::Range),
        ("10.0.0.1:81", 65_537, TcpError::Range),
    ] {
        assert_eq!(stack.tcp_listen(at(local), backlog, &options), Err(error), "{local}");
    }
    assert!(stack.tcp_listen(at("0.0.0.0:80"), 5, &options).is_ok(), "an address and any are two");
    for (local, remote, error) in [
        ("0.0.0.0:0", "10.0.0.2:0", TcpError::Address),
        ("0.0.0.0:0", "0.0.0.0:80", TcpError::Address),
        ("0.0.0.0:0", "224.0.0.1:80", TcpError::Address),
        ("0.0.0.0:0", "255.255.255.255:80", TcpError::Address),
        ("0.0.0.0:0", "10.0.0.255:80", TcpError::Address),
        ("0.0.0.0:0", "[2001:db8::2]:80", TcpError::Address),
        ("10.9.0.1:0", "10.0.0.2:80", TcpError::NotOurs),
        ("0.0.0.0:0", "192.0.2.1:80", TcpError::Dropped(IpDrop::NoRoute.into())),
    ] {
        assert_eq!(stack.tcp_connect(now, at(local), at(remote), &options), Err(error), "{local} {remote}");
    }
    let bad = |config| TcpOptions { config, ..options };
    for options in [
        TcpOptions { hop_limit: 0, ..options },
        TcpOptions { service: 3, ..options },
        bad(Config { receive_buffer_bytes: 0, ..Config::LINUX }),
        bad(Config { initial_window_segments: 0, ..Config::LINUX }),
        bad(Config { mss_default: 0, ..Config::LINUX }),
        bad(Config { time_wait: Duration::ZERO, ..Config::LINUX }),
        bad(Config { user_timeout: Some(Duration::ZERO), ..Config::LINUX }),
    ] {
        assert!(stack.tcp_connect(now, at("0.0.0.0:0"), at("10.0.0.2:80"), &options).is_err(), "{options:?}");
        assert!(stack.tcp_listen(at("10.0.0.1:99"), 1, &options).is_err(), "{options:?}");
    }
    let id = stack.tcp_connect(now, at("10.0.0.1:5000"), at("10.0.0.2:80"), &options).unwrap();
    assert_eq!(stack.tcp_receive(now, id, &mut [0]), Ok(None), "it opens");
    let again = stack.tcp_connect(now, at("10.0.0.1:5000"), at("10.0.0.2:80"), &options);
    assert_eq!(again, Err(TcpError::InUse));
    for (setting, error) in [
        (TcpSetting::HopLimit(0), TcpError::Range),
        (TcpSetting::Service(1), TcpError::Range),
        (TcpSetting::UserTimeout(Some(Duration::ZERO)), TcpError::Setting(ConfigError::UserTimeout)),
        (TcpSetting::SendBuffer(0), TcpError::Setting(ConfigError::BufferSize)),
        (TcpSetting::ReceiveBuffer(1 << 40), TcpError::Setting(ConfigError::BufferSize)),
    ] {
        assert_eq!(stack.tcp_set(now, id, setting), Err(error), "{setting:?}");
    }
    stack.tcp_abort(now, id).unwrap();
    assert_eq!(stack.tcp_send(now, id, b"x"), Err(TcpError::Closed));
    assert_eq!(stack.tcp_receive(now, id, &mut [0]), Err(TcpError::Closed));
    assert_eq!(stack.tcp_close(now, id), Err(TcpError::Closed));
    stack.tcp_unlisten(now, listener).unwrap();
    assert_eq!(stack.tcp_accept(listener), Err(TcpError::Closed));
    assert_eq!(stack.tcp_unlisten(now, listener), Err(TcpError::Closed));
}

#[test]
fn a_closed_port_is_reported_by_a_reset_and_an_absent_host_by_icmp() {
    for v6 in [false, true] {
        let mut net = Net::new(&[PLAIN, PLAIN]);
        let refused = net.connect(v6, 81);
        net.cross();
        assert_eq!(net.stacks[0].tcp_state(refused), Ok(StateName::Closed));
        let now = net.now;
        assert_eq!(net.first().tcp_send(now, refused, b"x"), Err(TcpError::Failed(Failure::Refused)));
        assert_eq!(net.first().tcp_receive(now, refused, &mut [0]), Err(TcpError::Failed(Failure::Refused)));
        assert_eq!(net.first().tcp_close(now, refused), Ok(()));
        assert_eq!((held(&net.stacks[0]), held(&net.stacks[1])), ((0, 0), (0, 0)));
    }
}

#[test]
fn a_socket_gives_one_event_for_each_change_of_readiness() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 10);
    let here = net.connect(false, 80);
    net.cross();
    assert_eq!((net.first().tcp_poll_event(), net.first().tcp_poll_event()), (Some(TcpEvent::Connection(here)), None));
    assert_eq!((net.last().tcp_poll_event(), net.last().tcp_poll_event()), (Some(TcpEvent::Listener(listener)), None));
    let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
    assert_eq!(net.last().tcp_poll_event(), None, "accepting reported this readiness already");
    let now = net.now;
    for _ in 0..3 {
        net.first().tcp_send(now, here, b"abc").unwrap();
        net.cross();
    }
    assert_eq!((net.last().tcp_poll_event(), net.last().tcp_poll_event()), (Some(TcpEvent::Connection(there)), None));
    assert_eq!(net.last().tcp_receive(now, there, &mut [0; 4]), Ok(Some(4)));
    assert!(net.last().tcp_readiness(there).unwrap().readable);
    assert_eq!(net.last().tcp_receive(now, there, &mut [0; 9]), Ok(Some(5)));
    assert_eq!(net.last().tcp_receive(now, there, &mut [0; 9]), Ok(None));
    net.first().tcp_send(now, here, b"abc").unwrap();
    net.cross();
    assert_eq!(net.last().tcp_poll_event(), Some(TcpEvent::Connection(there)));
    // A full buffer, and room in it again.
    while net.first().tcp_send(now, here, &[0; 100_000]).unwrap() > 0 {
        net.cross();
    }
    while net.first().tcp_poll_event().is_some() {}
    let mut into = vec![0; 1 << 20];
    for _ in 0..10 {
        while net.last().tcp_receive(now, there, &mut into).unwrap().is_some() {}
        net.pass(Duration::from_millis(50));
    }
    assert_eq!(net.first().tcp_poll_event(), Some(TcpEvent::Connection(here)));
    // The end of the other direction.
    net.last().tcp_poll_event();
    let now = net.now;
    while net.last().tcp_receive(now, there, &mut into).unwrap().is_some() {}
    net.first().tcp_shutdown(now, here).unwrap();
    net.pass(Duration::from_secs(1));
    while net.last().tcp_receive(now, there, &mut into).unwrap().is_some_and(|count| count > 0) {}
    assert_eq!(net.last().tcp_poll_event(), Some(TcpEvent::Connection(there)));
    // A closed socket has no events any more.
    net.last().tcp_send(now, there, b"x").unwrap();
    net.cross();
    net.first().tcp_close(now, here).unwrap();
    assert_eq!(net.first().tcp_poll_event(), None);
}

// RFC 9293 MUST-30, MUST-32, MUST-33.
#[test]
fn urgent_data_is_reported_to_the_application_through_both_stacks() {
    let mut net = Net::new(&[Link { agreed: ALL_AGREED, ..PLAIN }, PLAIN]);
    let listener = net.listen(false, 80, 10);
    let (here, there) = net.open(false, 80, listener);
    let now = net.now;
    net.first().tcp_send(now, here, &content(3_000)).unwrap();
    net.cross();
    while net.last().tcp_poll_event().is_some() {}
    assert!(!net.last().tcp_readiness(there).unwrap().urgent);
    for more in [5_000, 6_000] {
        assert_eq!(net.first().tcp_send_urgent(now, here, &content(1_000)), Ok(1_000));
        net.cross();
        // It is readable as before; what is new is that it is urgent, and that there is more of it.
        assert_eq!(
            (net.last().tcp_poll_event(), net.last().tcp_poll_event()),
            (Some(TcpEvent::Connection(there)), None)
        );
        assert_eq!(net.last().tcp_urgent_ahead(there), Ok(more - 1_000));
    }
    assert!(net.last().tcp_readiness(there).unwrap().urgent);
    assert_eq!(net.last().tcp_receive(now, there, &mut [0; 9_000]), Ok(Some(5_000)));
    assert_eq!(net.last().tcp_urgent_ahead(there), Ok(0));
    assert_eq!(net.dropped(), []);
}

// RFC 3168 section 6.1.3.
#[test]
fn a_congestion_mark_is_echoed_and_no_other_bits_are() {
    for (v6, flags_at, service) in [(false, 14 + 20 + 13, 0), (false, 14 + 20 + 13, 0x28), (true, 14 + 40 + 13, 0x28)] {
        let mut net = Net::new(&[PLAIN]);
        let options = TcpOptions { config: Config { ecn: true, ..Config::LINUX }, service, ..TcpOptions::default() };
        let (now, to) = (net.now, net.far(v6, 80));
        let listener = net.last().tcp_listen(to, 1, &options).unwrap();
        let here = net.first().tcp_connect(now, any(v6), to, &options).unwrap();
        net.cross();
        net.last().tcp_accept(listener).unwrap().unwrap();
        for ecn in 0..4 {
            assert_eq!(net.first().tcp_send(now, here, &[1; 100]), Ok(100));
            let (mut frame, mut answer) = ([0; 1_600], [0; 1_600]);
            let sent = net.first().poll_transmit(now, DeviceId(0), &mut frame).unwrap();
            let frame = &mut frame[..sent.len];
            if v6 {
                Ipv6Packet::new_unchecked(&mut frame[14..]).set_traffic_class(service | ecn);
            } else {
                let mut ip = Ipv4Packet::new_unchecked(&mut frame[14..]);
                ip.set_ecn(ecn);
                ip.fill_checksum();
            }
            net.last().handle_frame(now, DeviceId(0), whole(frame));
            let sent = net.last().poll_transmit(now, DeviceId(0), &mut answer).unwrap();
            assert_eq!(answer[flags_at] & 0x40 != 0, ecn == 3, "{ecn}");
            net.first().handle_frame(now, DeviceId(0), whole(&answer[..sent.len]));
        }
    }
}

#[test]
fn a_backlog_bounds_opening_and_waiting_connections_and_cookies_serve_the_rest() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 4);
    // The handshakes' last segments are lost: the connections stay half open.
    net.lost = Box::new(|from, frame| from == 0 && frame.len() == 66);
    let half: Vec<TcpId> = (0..4).map(|_| net.connect(false, 80)).collect();
    net.cross();
    assert_eq!((held(&net.stacks[1]), net.last().tcp_acceptable(listener)), ((4, 0), Ok(0)));
    net.lost = Box::new(|_, _| false);
    let by_cookie: Vec<TcpId> = (0..4).map(|_| net.connect(false, 80)).collect();
    net.cross();
    assert_eq!((held(&net.stacks[1]), net.last().tcp_acceptable(listener)), ((8, 0), Ok(4)));
    // The queue is full: the listener drops acknowledgements of handshakes, and further SYNs as well.
    net.pass(Duration::from_secs(1));
    let late = net.connect(false, 80);
    net.cross();
    assert_eq!(net.stacks[0].tcp_state(late), Ok(StateName::SynSent));
    assert!(net.last().drops().get(TcpDrop::BacklogFull) > 0);
    let mut accepted: Vec<TcpId> = Vec::new();
    let end = net.now + Duration::from_secs(20);
    while accepted.len() < 9 && net.now < end {
        while let Some((id, _)) = net.last().tcp_accept(listener).unwrap() {
            accepted.push(id);
        }
        let now = net.now;
        for id in half.iter().chain(&by_cookie) {
            net.first().tcp_send(now, *id, b"?").ok();
        }
        net.pass(Duration::from_millis(500));
    }
    assert_eq!(accepted.len(), 9, "all are open in the end: {:?}", net.dropped());
    for (id, there) in by_cookie.iter().zip(&accepted) {
        let bytes = content(100_000);
        let now = net.now;
        let mut question = [0; 99];
        while net.last().tcp_receive(now, *there, &mut question).unwrap().is_some() {}
        assert_eq!(net.stream((0, *id), (1, *there), &bytes), bytes);
    }
}

#[test]
fn a_connection_by_syn_cookie_survives_the_loss_of_its_first_data() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    // One connection stays half open, so that the next is answered by a cookie.
    net.lost = Box::new(|from, frame| from == 0 && frame.len() == 66);
    net.connect(false, 80);
    net.cross();
    let by_cookie = net.connect(false, 80);
    let (now, bytes) = (net.now, content(5_000));
    assert_eq!(net.first().tcp_send(now, by_cookie, &bytes), Ok(bytes.len()));
    let mut segments = 0;
    net.lost = Box::new(move |from, frame| {
        segments += u32::from(from == 0 && frame.len() > 66);
        // The SYN passes, then the first segment is lost and those behind it are not.
        from == 0 && segments == 2 && frame.len() > 100
    });
    net.cross();
    assert_eq!(net.stacks[0].tcp_state(by_cookie), Ok(StateName::Established), "{:?}", net.dropped());
    net.pass(Duration::from_secs(3));
    let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
    let (now, mut into) = (net.now, vec![0; 9_000]);
    assert_eq!(net.last().tcp_receive(now, there, &mut into), Ok(Some(bytes.len())));
    assert_eq!(into[..bytes.len()], bytes);
}

#[test]
fn a_closed_listener_resets_connections_that_were_not_accepted() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(true, 80, 4);
    let waiting = net.connect(true, 80);
    net.cross();
    net.lost = Box::new(|from, frame| from == 0 && frame.len() == 86);
    let opening = net.connect(true, 80);
    net.cross();
    net.lost = Box::new(|_, _| false);
    let now = net.now;
    net.last().tcp_unlisten(now, listener).unwrap();
    net.cross();
    for id in [waiting, opening] {
        let error = net.first().tcp_receive(now, id, &mut [0]).unwrap_err();
        assert_eq!(error, TcpError::Failed(Failure::Reset));
    }
    assert_eq!(held(&net.stacks[1]), (0, 0));
}

#[test]
fn a_closed_socket_lingers_as_long_as_configured() {
    for (linger, resets) in [(None, false), (Some(Duration::ZERO), true), (Some(Duration::from_secs(3)), true)] {
        let mut net = Net::new(&[PLAIN]);
        let listener = net.listen(false, 80, 4);
        let (here, there) = net.open(false, 80, listener);
        // The reader is slow: bytes stay in the buffer.
        let now = net.now;
        while net.first().tcp_send(now, here, &[7; 100_000]).unwrap() > 0 {
            net.cross();
        }
        net.first().tcp_set(now, here, TcpSetting::Linger(linger)).unwrap();
        net.first().tcp_close(now, here).unwrap();
        net.pass(Duration::from_secs(2));
        let early = linger == Some(Duration::ZERO);
        assert_eq!(net.last().tcp_state(there).unwrap() == StateName::Closed, early, "{linger:?}");
        net.pass(Duration::from_secs(2));
        assert_eq!(net.last().tcp_state(there).unwrap() == StateName::Closed, resets, "{linger:?}");
        assert_eq!(held(&net.stacks[0]).0, usize::from(!resets));
    }
}

#[test]
fn a_receive_without_room_reports_the_end_only_after_all_data_is_read() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 4);
    let (here, there) = net.open(false, 80, listener);
    let now = net.now;
    net.first().tcp_send(now, here, b"hello").unwrap();
    net.first().tcp_shutdown(now, here).unwrap();
    net.cross();
    assert_eq!(net.last().tcp_receive(now, there, &mut []), Ok(None));
    assert_eq!(net.last().tcp_receive(now, there, &mut [0; 9]), Ok(Some(5)));
    assert_eq!(net.last().tcp_receive(now, there, &mut []), Ok(Some(0)));
}

#[test]
fn sending_connections_take_turns_by_bursts() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 4);
    let open: Vec<(TcpId, TcpId)> = (0..2).map(|_| net.open(false, 80, listener)).collect();
    for (here, there) in &open {
        assert_eq!(net.stream((0, *here), (1, *there), &content(300_000)).len(), 300_000);
    }
    net.keep_frames = true;
    for (here, _) in &open {
        let now = net.now;
        assert_eq!(net.first().tcp_send(now, *here, &content(40 * 1_448)), Ok(40 * 1_448));
    }
    net.cross();
    let ports: Vec<&[u8]> =
        net.frames.iter().filter(|(from, ..)| *from == 0).map(|(_, frame, _)| &frame[34..36]).collect();
    let turns: Vec<usize> = ports.chunk_by(|one, next| one == next).map(<[_]>::len).collect();
    let burst = usize::from(TCP_BURST_FRAMES);
    assert_eq!(turns, [burst, burst, burst, burst, 40 - 2 * burst, 40 - 2 * burst]);
}

#[test]
fn a_timer_that_is_due_at_a_tick_fires_at_this_tick() {
    let mut net = Net::new(&[Link { ethernet: false, ..PLAIN }]);
    // It ticks every 2^20 ns.
    let due = Instant::from_ns(2_000 << 20);
    net.now = due - Duration::from_secs(1);
    net.connect(false, 80);
    let mut into = vec![0; 2_000];
    let mut sends = |net: &mut Net, now| net.first().poll_transmit(now, DeviceId(0), &mut into).is_some();
    let now = net.now;
    assert!(sends(&mut net, now) && !sends(&mut net, now), "the SYN");
    net.first().handle_timeout(due);
    assert!(sends(&mut net, due), "again");
}

/// A frame as its link hands it over.
pub(crate) fn whole(frame: &[u8]) -> Received<'_, [u8]> {
    let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
    Received::unmarked(header, payload)
}
