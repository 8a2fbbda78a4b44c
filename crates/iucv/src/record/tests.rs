//! Records are written and parsed.

use super::fields::KINDS;
use super::*;
use crate::extent::Extent;
use crate::limits::EXTENTS_MAX;
use crate::options::{
    BBR_INFO_BYTES, CongestionControl, FastOpenKeys, Interface, MtuDiscovery, SendStage, TCP_INFO_BYTES, Timing,
};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;
use std::time::Duration;

fn commands() -> Vec<Command> {
    let [one, other]: [SocketAddr; 2] = ["10.0.0.1:80", "[fd00::1]:65535"].map(|text| text.parse().unwrap());
    let options = SocketOptions {
        send_buffer: Some(5),
        linger: Some(Duration::ZERO),
        congestion: Some(CongestionControl::Bbr),
        cork: true,
        unsent_max: Some(7),
        probe_interval: Some(Duration::from_secs(8)),
        probes_max: Some(9),
        user_timeout: Some(Duration::from_secs(10)),
        defer_accept: Some(Duration::from_secs(12)),
        service: 11,
        segment_bytes_max: Some(1_000),
        mtu_discovery: Some(MtuDiscovery::Interface),
        timing: Timing { received: false, sent: true, acknowledged: true },
        ..SocketOptions::default()
    };
    let keys = |backup| SocketOptions {
        fast_open_pending_max: 5,
        fast_open_keys: Some(FastOpenKeys { primary: [3; 16], backup }),
        ..options
    };
    let with = DatagramOptions { from: Some(one.ip()), network: Some(u32::MAX), hop_limit: None, service: Some(255) };
    let extents: Extents = vec![Extent { at: 1, len: 2 }, Extent { at: 3, len: u32::MAX }].into();
    vec![
        Command::Listen { local: one, backlog: 7, options: keys(None) },
        Command::Listen { local: one, backlog: 7, options: keys(Some([4; 16])) },
        Command::Connect { local: one, remote: other, options: SocketOptions { fast_open: true, ..options } },
        Command::Listen { local: one, backlog: 7, options },
        Command::Connect { local: one, remote: other, options: SocketOptions::default() },
        Command::Bind { local: other, shared: false },
        Command::Bind { local: other, shared: true },
        Command::Reserve { local: one, shared: true },
        Command::ConnectDatagrams { remote: other },
        Command::Pool,
        Command::Accept,
        Command::Expect { count: 4 },
        Command::Return { listener: 3 },
        Command::Share { key: [7; SHARE_KEY_BYTES], numbers: vec![1, u32::MAX] },
        Command::Inherit { key: [8; SHARE_KEY_BYTES], renumbered: vec![(u32::MAX, 1), (2, 3)] },
        Command::Take,
        Command::Accepted { count: 3 },
        Command::Send { extents: extents.clone(), flags: SendFlags::default() },
        Command::Send { extents: extents.clone(), flags: SendFlags { more: true, end_of_record: false } },
        Command::Send { extents, flags: SendFlags { more: false, end_of_record: true } },
        Command::Info,
        Command::Consumed { bytes: 9 },
        Command::Shutdown,
        Command::Set { options },
        Command::Close,
        Command::Abort,
        Command::SendTo { to: other, with: DatagramOptions::default(), bytes: vec![1, 2, 3] },
        Command::SendTo { to: other, with: DatagramOptions { hop_limit: Some(0), ..with }, bytes: vec![1, 2, 3] },
        Command::SendTo { to: one, with, bytes: Vec::new() },
        Command::Group { change: DatagramChange::Join(one.ip(), Interface::OfRoute) },
        Command::Group { change: DatagramChange::Join(other.ip(), Interface::Number(u32::MAX)) },
        Command::Group { change: DatagramChange::Leave(one.ip(), Interface::Address(Ipv4Addr::new(10, 0, 0, 1))) },
        Command::Group { change: DatagramChange::HopLimit(255) },
        Command::Group { change: DatagramChange::Loop(true) },
        Command::Group { change: DatagramChange::UnicastHopLimit(NonZeroU8::MIN) },
        Command::Group { change: DatagramChange::Service(255) },
        Command::Group { change: DatagramChange::GroupNetwork(Interface::Number(3)) },
        Command::Group { change: DatagramChange::MtuDiscovery(MtuDiscovery::Probe) },
        Command::Group { change: DatagramChange::Timing(Timing { received: true, ..Timing::default() }) },
    ]
}

fn events() -> Vec<Event> {
    let (one, other): (SocketAddr, SocketAddr) = ("10.0.0.1:80".parse().unwrap(), "[fd00::1]:65535".parse().unwrap());
    let status = Status {
        open: true,
        ended: false,
        closed: true,
        failure: Some(ErrorKind::ConnectionReset),
        released: 1,
        send_buffer: 2,
        received: vec![Extent { at: 8_192, len: 9 }].into(),
        arrivals: Vec::new(),
    };
    let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789);
    let arrivals = vec![Arrival { bytes: 4, at: None }, Arrival { bytes: 5, at: Some(at) }];
    let sent = SendTime { id: 7, stage: SendStage::Sent, at };
    let delivery = Delivery { to: one.ip(), network: Some(u32::MAX), hop_limit: 255, service: 3 };
    let of_own = Delivery { network: None, ..delivery };
    let times = vec![sent, SendTime { stage: SendStage::Acknowledged, ..sent }];
    vec![
        Event::Made { local: one },
        Event::Refused { why: ErrorKind::AddrInUse },
        Event::Incoming { listener: 4, local: one, remote: other },
        Event::Status(Status { failure: None, received: Extents::new(), ..status.clone() }),
        Event::Status(status.clone()),
        Event::Status(Status { arrivals, ..status }),
        Event::SendTimes { times },
        Event::TooLong,
        Event::Connected { local: "10.0.0.1:80".parse().unwrap() },
        Event::Failed { why: ErrorKind::ConnectionRefused },
        Event::Shared { done: true },
        Event::Moved,
        Event::Yours,
        Event::Offer,
        Event::NoneWaiting,
        Event::Withdrawn,
        Event::Datagram { from: one, bytes: Vec::new(), at: Some(at), delivery: None },
        Event::Datagram { from: one, bytes: Vec::new(), at: None, delivery: Some(delivery) },
        Event::Datagram { from: one, bytes: Vec::new(), at: None, delivery: Some(of_own) },
        Event::Gone,
        Event::Info(Box::new(ConnectionInfo {
            tcp_info: [5; TCP_INFO_BYTES],
            bbr_info: None,
            options: SocketOptions::default(),
        })),
        Event::Info(Box::new(ConnectionInfo {
            tcp_info: [5; TCP_INFO_BYTES],
            bbr_info: Some([6; BBR_INFO_BYTES]),
            options: SocketOptions::default(),
        })),
        Event::Group { failure: None },
        Event::Group { failure: Some(ErrorKind::QuotaExceeded) },
    ]
}

#[test]
fn a_written_record_parses_and_a_shorter_or_longer_one_does_not() {
    let mut bytes = Vec::new();
    for command in commands() {
        let tag = command.write(77, &mut bytes);
        assert_eq!(Command::parse(tag, &bytes), Some((77, command.clone())));
        for len in 0..bytes.len() {
            assert_ne!(Command::parse(tag, &bytes[..len]), Some((77, command.clone())));
        }
        if !matches!(command, Command::SendTo { .. }) {
            bytes.push(0);
            assert_eq!(Command::parse(tag, &bytes), None, "{command:?}");
        }
    }
    for event in events() {
        let tag = event.write(u32::MAX, &mut bytes);
        assert_eq!(Event::parse(tag, &bytes), Some((u32::MAX, event.clone())));
        if !matches!(event, Event::Datagram { .. }) {
            bytes.push(0);
            assert_eq!(Event::parse(tag, &bytes), None, "{event:?}");
        }
    }
}

#[test]
fn undefined_bits_do_not_parse() {
    assert!(Command::parse(tag(8, 1), &[]).is_some());
    assert_eq!(Command::parse(tag(8, 1) | 1 << 40, &[]), None);
    assert_eq!(Command::parse(tag(60, 1), &[]), None);
    assert_eq!(Command::parse(tag(12, 1), &[4]), None, "a flag that has no meaning");
    assert_eq!(Event::parse(tag(60, 1), &[]), None);
    assert_eq!(Event::parse(tag(6, 1), &[u8::try_from(KINDS.len()).unwrap()]), None);
    let mut bytes = Vec::new();
    let kind = Command::Bind { local: "10.0.0.1:80".parse().unwrap(), shared: false }.write(1, &mut bytes);
    bytes[5] = 1;
    assert_eq!(Command::parse(kind, &bytes), None, "an address of IPv4 has 32 bits");
    let group = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));
    for (interface, odd) in [
        // A port, a word that says nothing, no such kind of interface, a change without these bytes.
        (Interface::OfRoute, (18, 1)),
        (Interface::OfRoute, (21, 1)),
        (Interface::Number(1), (20, 3)),
        (Interface::Number(1), (0, 4)),
    ] {
        let kind = Command::Group { change: DatagramChange::Join(group, interface) }.write(1, &mut bytes);
        assert!(Command::parse(kind, &bytes).is_some());
        bytes[odd.0] = odd.1;
        assert_eq!(Command::parse(kind, &bytes), None, "{odd:?}");
    }
    assert_eq!(Command::parse(tag(11, 1), &[3, 2]), None);
    assert_eq!(Command::parse(tag(11, 1), &[6, 0]), None, "a hop limit of 0");
    let kind = Command::Set { options: SocketOptions::default() }.write(1, &mut bytes);
    let timing = bytes.len() - 1;
    for (place, value) in [(1, 1 << 7), (2, 3), (timing - 1, 5), (timing, 1 << 3)] {
        let mut odd = bytes.clone();
        odd[place] = value;
        assert_eq!(Command::parse(kind, &odd), None, "a flag or an algorithm that has no meaning");
    }
    bytes[0] = 1 << 7;
    bytes.extend([0; 16]);
    assert_eq!(Command::parse(kind, &bytes), None, "a backup key needs a primary key");
    let many = vec![Extent { at: 0, len: 1 }; EXTENTS_MAX + 1];
    let kind = Command::Send { extents: many.into(), flags: SendFlags::default() }.write(1, &mut bytes);
    assert_eq!(Command::parse(kind, &bytes), None);
}
