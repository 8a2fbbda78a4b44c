//! TCP sockets and what lies below them: MTU, next hop, carrier, route, and the sizes of frames.

use crate::net::{Link, Net, PLAIN, content};
use crate::tcp::{ALL_AGREED, whole};
use siga_stack::Stack;
use siga_stack::link::device::{Agreed, DeviceConfig, DeviceError, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::seed::Seed;
use siga_stack::sockets::TcpOptions;
use siga_stack::stack::StackConfig;
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::address::Prefix;
use std::net::IpAddr;

#[test]
fn the_stack_bounds_the_length_of_its_next_frame() {
    let mut net = Net::new(&[Link { mtu: 57_344, agreed: ALL_AGREED, ethernet: false }]);
    let listener = net.listen(false, 80, 10);
    let (here, there) = net.open(false, 80, listener);
    net.stream((0, here), (1, there), &[1; 10]);
    let device = DeviceId(0);
    let now = net.now;
    let bound = |net: &Net| net.stacks[0].next_frame_bytes_max(now, device);
    assert_eq!(bound(&net), 0);
    assert_eq!(net.first().tcp_send(now, here, &[1; 100]), Ok(100));
    let most = bound(&net);
    assert!((100 + 40..100 + 120).contains(&most), "{most}");
    let frame = net.first().poll_transmit(now, device, &mut vec![0; most]);
    assert!(frame.is_some_and(|frame| frame.len <= most), "{frame:?}");
    assert_eq!(bound(&net), 0);
    net.first().tcp_send(now, here, &[1; 200_000]).unwrap();
    assert_eq!(bound(&net), 65_535);
}

#[test]
fn a_frame_has_room_for_the_link_header_and_for_a_large_segment_with_the_longest_headers() {
    for (ethernet, link) in [(false, 0), (true, 14)] {
        let mut net = Net::new(&[Link { mtu: 1_500, agreed: ALL_AGREED, ethernet }]);
        let listener = net.listen(false, 80, 1);
        let (here, there) = net.open(false, 80, listener);
        assert_eq!(net.stream((0, here), (1, there), &content(100_000)).len(), 100_000);
        let (now, device) = (net.now, DeviceId(0));
        net.first().tcp_send(now, here, &content(60_000)).unwrap();
        assert_eq!(net.stacks[0].next_frame_bytes_max(now, device), link + 65_535);
        let mut len = |room: usize| net.first().poll_transmit(now, device, &mut vec![0; room]).map(|frame| frame.len);
        let frame = |segments: usize| link + 52 + segments * 1_448;
        assert_eq!(len(link + 1_499), None);
        assert_eq!(len(link + 1_500), Some(frame(1)), "the device takes that much");
        // IPv6 with all options of TCP: it is not known before which ones there will be.
        assert_eq!(len(link + 100 + 2 * 1_448 - 1), Some(frame(1)));
        assert_eq!(len(link + 100 + 2 * 1_448), Some(frame(2)));
        assert_eq!(len(link + 100 + 5 * 1_448 + 100), Some(frame(5)));
    }
}

// RFC 9293 MUST-16.
#[test]
fn segments_follow_the_mtu_of_their_device() {
    let mut net = Net::new(&[Link { mtu: 8_992, ..PLAIN }]);
    let listener = net.listen(false, 80, 4);
    let (here, there) = net.open(false, 80, listener);
    let bytes = content(200_000);
    for mtu in [1_500, 8_992] {
        let now = net.now;
        net.first().set_mtu(now, DeviceId(0), mtu).unwrap();
        net.frames.clear();
        net.keep_frames = true;
        assert_eq!(net.stream((0, here), (1, there), &bytes), bytes);
        let longest = net.frames.iter().filter(|(from, ..)| *from == 0).map(|(_, frame, _)| frame.len()).max();
        assert_eq!(longest, Some(usize::from(mtu) + 14));
    }
    let now = net.now;
    assert_eq!(net.first().set_mtu(now, DeviceId(0), 1_279), Err(DeviceError::Mtu));
    assert_eq!(net.first().set_mtu(now, DeviceId(9), 1_500), Err(DeviceError::NoDevice));
}

// RFC 1191, RFC 8201: a path's MTU belongs to the destination, not to the connection that learnt of it.
#[test]
fn a_learnt_path_mtu_holds_for_all_connections_whatever_the_mtu_of_the_device() {
    for v6 in [false, true] {
        let mut net = Net::new(&[PLAIN, Link { mtu: 1_400, ..PLAIN }, PLAIN]);
        let listener = net.listen(v6, 80, 10);
        let (here, there) = net.open(v6, 80, listener);
        assert_eq!(net.stream((0, here), (3, there), &content(20_000)), content(20_000));
        let (here, there) = net.open(v6, 80, listener);
        for mtu in [None, Some(1_300), Some(1_500)] {
            let now = net.now;
            mtu.map_or(Ok(()), |mtu| net.first().set_mtu(now, DeviceId(0), mtu)).unwrap();
            net.frames.clear();
            net.keep_frames = true;
            assert_eq!(net.stream((0, here), (3, there), &content(20_000)), content(20_000));
            let longest = net.frames.iter().filter(|(from, ..)| *from == 0).map(|(_, frame, _)| frame.len()).max();
            assert_eq!(longest, Some(usize::from(mtu.unwrap_or(1_400).min(1_400)) + 14));
        }
    }
}

#[test]
fn a_path_that_drops_large_packets_silently_is_used_with_smaller_ones() {
    for agreed in [Agreed::default(), ALL_AGREED] {
        let mut net = Net::new(&[Link { agreed, ..PLAIN }, PLAIN]);
        let listener = net.listen(false, 80, 10);
        let (here, there) = net.open(false, 80, listener);
        // Between router and server, and nobody says so.
        net.lost = Box::new(|from, frame| from == 1 && frame.len() > 14 + 1_300);
        let bytes = content(1_000_000);
        assert_eq!(net.stream((0, here), (2, there), &bytes), bytes);
        let info = net.first().tcp_info(here).unwrap().unwrap();
        assert_eq!(info.black_holes, 1);
        assert!((1_240..=1_248).contains(&info.segment_bytes), "{info:?}");
    }
}

// RFC 9293 MUST-20.
#[test]
fn a_silent_next_hop_is_probed_early() {
    let mut net = Net::new(&[Link { ethernet: true, ..PLAIN }]);
    let listener = net.listen(false, 80, 10);
    let (here, there) = net.open(false, 80, listener);
    assert_eq!(net.stream((0, here), (1, there), &content(1_000)), content(1_000));
    net.lost = Box::new(|_, _| true);
    net.keep_frames = true;
    let now = net.now;
    net.first().tcp_send(now, here, b"?").unwrap();
    net.pass(Duration::from_secs(20));
    let asked = net.frames.iter().filter(|(from, frame, _)| *from == 0 && frame[12..14] == [8, 6]).count();
    assert!(asked > 0, "MUST-20: within 30 s of its last answer");
}

#[test]
fn a_returning_carrier_retransmits_at_once() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 4);
    let (here, there) = net.open(false, 80, listener);
    net.lost = Box::new(|_, _| true);
    let now = net.now;
    net.first().tcp_send(now, here, b"hello").unwrap();
    net.pass(Duration::from_secs(20));
    net.lost = Box::new(|_, _| false);
    let now = net.now;
    net.first().carrier_up(now, DeviceId(0));
    net.cross();
    assert_eq!(net.last().tcp_receive(now, there, &mut [0; 9]), Ok(Some(5)));
}

#[test]
fn a_connection_follows_its_route_to_a_device_with_a_smaller_mtu() {
    let stack = |host: u8| {
        let mut stack = Stack::new(StackConfig { seed: Seed([host; 32]), ..StackConfig::default() });
        for (network, mtu) in [(1_u8, 9_000), (2, 1_500)] {
            let addresses = vec![Prefix::new(IpAddr::from([10, network, 0, host]), 24).unwrap()];
            let agreed = Agreed::default();
            stack.add_device(DeviceConfig { medium: Medium::Ip, mtu, addresses, agreed }).unwrap();
        }
        stack
    };
    let (mut here, mut there) = (stack(1), stack(2));
    let (now, mut into) = (Instant::from_ns(1_000_000_000), vec![0; 70_000]);
    let at = "10.1.0.2:80".parse().unwrap();
    let listener = there.tcp_listen(at, 1, &TcpOptions::default()).unwrap();
    let id = here.tcp_connect(now, "10.1.0.1:0".parse().unwrap(), at, &TcpOptions::default()).unwrap();
    let mut cross = |here: &mut Stack, there: &mut Stack| {
        let mut longest = [0; 2];
        for _ in 0..10 {
            for device in 0..2_u16 {
                while let Some(frame) = here.poll_transmit(now, DeviceId(device), &mut into) {
                    longest[usize::from(device)] = frame.len.max(longest[usize::from(device)]);
                    let _ = there.handle_frame(now, DeviceId(device), whole(&into[..frame.len]));
                }
                while let Some(frame) = there.poll_transmit(now, DeviceId(device), &mut into) {
                    let _ = here.handle_frame(now, DeviceId(device), whole(&into[..frame.len]));
                }
            }
        }
        longest
    };
    cross(&mut here, &mut there);
    let (other, _) = there.tcp_accept(listener).unwrap().unwrap();
    let bytes = content(30_000);
    assert_eq!(here.tcp_send(now, id, &bytes), Ok(bytes.len()));
    assert_eq!(cross(&mut here, &mut there), [9_000, 0]);
    here.add_route(Prefix::new(IpAddr::from([10, 1, 0, 2]), 32).unwrap(), DeviceId(1), None).unwrap();
    assert_eq!(here.tcp_send(now, id, &bytes), Ok(bytes.len()));
    assert_eq!(cross(&mut here, &mut there), [0, 1_500]);
    let mut arrived = vec![0; 70_000];
    assert_eq!(there.tcp_receive(now, other, &mut arrived), Ok(Some(60_000)));
    assert_eq!(arrived[..60_000], [bytes.clone(), bytes].concat());
}
