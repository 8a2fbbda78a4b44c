//! An application whose guest says what cannot be: the attachment ends with an error that says what, and nothing else happens.

use super::link::GuestLink;
use super::{ApplicationEnd, Client};
use crate::extent::{Extent, Extents};
use crate::limits::{
    ANSWER_TIME_MAX, CROWDED_FROM_BYTES, CROWDED_SEND_BYTES_MAX, INCOMING_MAX, SEND_TIMES_HELD_MAX, SEND_TIMES_MAX,
};
use crate::options::{ConnectionInfo, DatagramChange, SendFlags, SendStage, SendTime, SocketOptions, TCP_INFO_BYTES};
use crate::record::{Arrival, Command, Event, GUEST_NUMBERS, Number, Status};
use crate::shape;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::wait::policy::Mode;
use siga_ring::{Link, NotifyFd, OwnMemory, PeerMemory, WakeFd};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

const ARENA_BYTES: usize = 1 << 20;

/// An application, and its guest as a test plays it.
struct Fixture {
    application: Client,
    guest: Link,
    received: OwnArena,
    _sent: PeerArena,
}

fn local() -> SocketAddr {
    "10.0.0.1:80".parse().unwrap()
}

fn remote() -> SocketAddr {
    "10.0.0.2:4000".parse().unwrap()
}

/// The ear and the bell of a doorbell.
fn notify_fd() -> (OwnedFd, OwnedFd) {
    siga_ring::doorbell::pipe().unwrap()
}

fn status() -> Status {
    Status {
        open: true,
        ended: false,
        closed: false,
        failure: None,
        released: 0,
        send_buffer: 9_000,
        received: Extents::new(),
        arrivals: Vec::new(),
    }
}

/// Statistics that begin with this byte.
fn statistics(first: u8) -> Event {
    let mut tcp_info = [0; TCP_INFO_BYTES];
    tcp_info[0] = first;
    Event::Info(Box::new(ConnectionInfo { tcp_info, bbr_info: None, options: SocketOptions::default() }))
}

impl Fixture {
    fn new() -> Self {
        Self::with_arenas_of(ARENA_BYTES)
    }

    fn with_arenas_of(arena_bytes: usize) -> Self {
        Self::of(arena_bytes, |end| Client::new(end).unwrap())
    }

    fn of(arena_bytes: usize, client: impl Fn(ApplicationEnd) -> Client) -> Self {
        let ((wake_fd_guest, notify_fd_application), (wake_fd_application, notify_fd_guest)) =
            (notify_fd(), notify_fd());
        let shape = shape().unwrap();
        let (own, own_fd) = OwnMemory::create(shape).unwrap();
        let (of_guest, guest_fd) = OwnMemory::create(shape).unwrap();
        let (arena, sent_fd) = OwnArena::create(arena_bytes).unwrap();
        let (received, received_fd) = OwnArena::create(arena_bytes).unwrap();
        let link = |own, fd, notify_fd, wake_fd| {
            let (notify_fd, wake_fd) = (NotifyFd::from_fd(notify_fd).unwrap(), WakeFd::from_fd(wake_fd).unwrap());
            Link::new(own, PeerMemory::map(fd, shape).unwrap(), notify_fd, wake_fd)
        };
        let end = ApplicationEnd {
            link: link(own, guest_fd, notify_fd_application, wake_fd_application),
            arena,
            peer: PeerArena::map(received_fd, arena_bytes).unwrap(),
            waiting: Mode::Block,
            colocate: false,
            passing: None,
        };
        let mut guest = link(of_guest, own_fd, notify_fd_guest, wake_fd_guest);
        guest.producer.set_packing(true);
        let sent = PeerArena::map(sent_fd, arena_bytes).unwrap();
        Self { application: client(end), guest, received, _sent: sent }
    }

    fn put(&mut self, tag: u64, bytes: &[u8]) {
        self.guest.producer.reserve(bytes.len()).unwrap().unwrap().copy_from_slice(bytes);
        self.guest.producer.commit(bytes.len(), tag);
        self.guest.producer.publish();
    }

    fn send_event(&mut self, number: Number, event: &Event) {
        let mut bytes = Vec::new();
        let tag = event.write(number, &mut bytes);
        self.put(tag, &bytes);
    }

    fn commands(&mut self) -> Vec<(Number, Command)> {
        let mut all = Vec::new();
        while let Some(frame) = self.guest.consumer.next_frame().unwrap() {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            all.push(Command::parse(frame.tag(), &bytes).unwrap());
        }
        all
    }

    /// Opens a connection, the one of this number.
    fn connect(&mut self, number: Number, status: Status) -> Number {
        let socket = self.application.connect(local(), remote(), &SocketOptions::default()).unwrap();
        assert!(matches!(self.commands()[..], [(of, Command::Connect { .. })] if of == number));
        self.send_event(number, &Event::Made { local: local() });
        self.send_event(number, &Event::Status(status));
        assert!(self.application.work() && self.application.connected(socket).unwrap());
        socket
    }

    /// A connection that is open: number 0.
    fn connected() -> (Self, Number) {
        let mut fixture = Self::new();
        let socket = fixture.connect(0, status());
        (fixture, socket)
    }

    /// A datagram socket with number 0. The guest's next event answers the next command.
    fn bound() -> (Self, Number) {
        let mut fixture = Self::new();
        fixture.send_event(0, &Event::Made { local: local() });
        let socket = fixture.application.bind(local()).unwrap();
        (fixture, socket)
    }

    /// A listener, number 0, as the guest sees it; the application has not taken its answer.
    fn listening() -> Self {
        let mut fixture = Self::new();
        fixture.send_event(0, &Event::Made { local: local() });
        fixture.application.listen(local(), 5, &SocketOptions::default()).unwrap();
        fixture
    }

    fn assert_ends(mut self, why: &str) {
        self.application.work();
        let error = self.application.ended().unwrap_or_else(|| panic!("{why}: it goes on"));
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains(why), "{error}: {why}");
        let after = self.application.connect(local(), remote(), &SocketOptions::default()).unwrap_err();
        assert_eq!(after.to_string(), error.to_string(), "nothing goes on");
        assert!(!self.application.work());
    }
}

#[test]
fn a_guest_that_took_more_commands_than_were_sent_ends_the_attachment_when_it_notifies() {
    let mut fixture = Fixture::new();
    let (mut crafted, crafted_fd) = OwnArena::create(shape().unwrap().memory_bytes()).unwrap();
    let (own, _own_fd) = OwnMemory::create(shape().unwrap()).unwrap();
    let ((wake_fd, notify_fd_guest), (_wake_fd_guest, notify_fd)) = (notify_fd(), notify_fd());
    let (notify_fd, wake_fd) = (NotifyFd::from_fd(notify_fd).unwrap(), WakeFd::from_fd(wake_fd).unwrap());
    let link = Link::new(own, PeerMemory::map(crafted_fd, shape().unwrap()).unwrap(), notify_fd, wake_fd);
    fixture.application.link = GuestLink::new(link);
    fixture.application.link.make_calls(None).unwrap();
    fixture.application.work();
    assert!(fixture.application.ended().is_none());
    assert!(fixture.application.fall_asleep());
    // Where the count of taken buffers lies.
    crafted.write(0, &1_u64.to_ne_bytes()).unwrap();
    NotifyFd::from_fd(notify_fd_guest).unwrap().notify();
    fixture.assert_ends("the peer reports 1 consumed buffers, but 0 to 0 are possible");
}

#[test]
fn the_caller_of_a_client_without_a_wake_descriptor_sends_the_notification() {
    let mut fixture = Fixture::of(ARENA_BYTES, Client::without_wake);
    fixture.application.connect(local(), remote(), &SocketOptions::default()).unwrap();
    assert!(fixture.application.take_notification().is_none(), "the guest does not sleep");
    while fixture.guest.consumer.next_frame().unwrap().is_some() {}
    assert!(fixture.guest.consumer.declare_asleep().unwrap());
    fixture.application.connect(local(), remote(), &SocketOptions::default()).unwrap();
    assert_eq!(fixture.guest.wake_fd.drain().unwrap().notifications, 0, "the client itself sends none");
    fixture.application.take_notification().expect("the guest sleeps").notify();
    assert_eq!(fixture.guest.wake_fd.drain().unwrap().notifications, 1);
    assert!(fixture.application.take_notification().is_none(), "one is enough");
    // A wait sends it too.
    while fixture.guest.consumer.next_frame().unwrap().is_some() {}
    assert!(fixture.guest.consumer.declare_asleep().unwrap());
    fixture.application.connect(local(), remote(), &SocketOptions::default()).unwrap();
    fixture.application.wait(Some(Duration::from_millis(1)));
    assert_eq!(fixture.guest.wake_fd.drain().unwrap().notifications, 1);
}

#[test]
fn a_client_without_a_wake_descriptor_reads_the_notification_that_its_caller_records() {
    let mut fixture = Fixture::of(ARENA_BYTES, Client::without_wake);
    let is_readable = |fixture: &Fixture| {
        let notifications = fixture.application.notifications();
        let mut entries = [PollFd::from_borrowed_fd(notifications, PollFlags::IN)];
        poll(&mut entries, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    fixture.application.connect(local(), remote(), &SocketOptions::default()).unwrap();
    assert!(fixture.application.fall_asleep());
    // This call reads the descriptor in any case, and the next one does not soon after it.
    fixture.application.work();
    // The guest gives buffers back, and sends a notification although there is no event.
    fixture.guest.consumer.set_notify_always(true);
    while fixture.guest.consumer.next_frame().unwrap().is_some() {}
    assert!(is_readable(&fixture));
    fixture.application.note_notification();
    fixture.application.work();
    assert!(!is_readable(&fixture));
}

#[test]
fn a_call_wakes_the_thread_whose_notification_it_has_consumed() {
    let (mut fixture, socket) = Fixture::connected();
    let is_readable = |fixture: &Fixture| {
        let mut entries = [PollFd::from_borrowed_fd(fixture.application.descriptor(), PollFlags::IN)];
        poll(&mut entries, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    // Another thread sleeps, and its notification comes together with an event.
    assert!(fixture.application.fall_asleep());
    fixture.send_event(socket, &Event::Status(status()));
    assert!(is_readable(&fixture));
    fixture.application.send(socket, b"x", SendFlags::default()).unwrap();
    assert!(is_readable(&fixture), "the thread sleeps on");
    // A thread that the program itself wakes. The client reads the descriptors from time to time.
    std::thread::sleep(2 * crate::limits::WAKE_FD_INTERVAL);
    fixture.application.work();
    assert!(!is_readable(&fixture));
    rustix::io::write(fixture.application.wake().unwrap(), &1_u64.to_ne_bytes()).unwrap();
    std::thread::sleep(2 * crate::limits::WAKE_FD_INTERVAL);
    fixture.send_event(socket, &Event::Status(status()));
    fixture.application.send(socket, b"x", SendFlags::default()).unwrap();
    assert!(is_readable(&fixture), "the thread sleeps on");
}

#[test]
fn bytes_that_are_no_event_end_the_attachment() {
    let mut fixture = Fixture::new();
    fixture.put(u64::MAX, &[1, 2, 3]);
    fixture.assert_ends("the guest sent bytes that are not a valid event");
}

#[test]
fn events_of_unknown_sockets_end_the_attachment() {
    let cases = [
        (7, Event::Made { local: local() }, "a socket that does not exist, socket 7"),
        (7, Event::Gone, "a socket that does not exist"),
        (0, Event::Made { local: local() }, "a socket that already exists, socket 0"),
        (0, Event::Refused { why: ErrorKind::AddrInUse }, "refused to create a socket that already exists"),
        (0, Event::Gone, "the end of a socket that the application did not close"),
        (0, Event::Datagram { from: remote(), bytes: vec![1], at: None, delivery: None }, "a datagram event"),
        (0, Event::Group { failure: None }, "a datagram event"),
        (0, Event::TooLong, "a datagram event"),
        (0, statistics(1), "statistics that the application did not request"),
        (
            GUEST_NUMBERS,
            Event::Incoming { listener: 0, local: local(), remote: remote() },
            "a connection to a socket that does not listen",
        ),
        (
            GUEST_NUMBERS,
            Event::Incoming { listener: 9, local: local(), remote: remote() },
            "a connection to a socket that does not listen",
        ),
        (1, Event::Incoming { listener: 0, local: local(), remote: remote() }, "a socket number that is not allowed"),
    ];
    for (number, event, why) in cases {
        let (mut fixture, _) = Fixture::connected();
        fixture.send_event(number, &event);
        fixture.assert_ends(why);
    }
    let mut fixture = Fixture::listening();
    fixture.send_event(0, &Event::Status(status()));
    fixture.assert_ends("the state of a connection to a socket that is not a connection");
    let (mut fixture, socket) = Fixture::bound();
    fixture.send_event(0, &Event::Group { failure: None });
    assert!(fixture.application.change_datagrams(socket, DatagramChange::Loop(true)).is_ok());
    fixture.send_event(0, &Event::Group { failure: None });
    fixture.assert_ends("an answer without a request, socket 0");
}

#[test]
fn statistics_of_a_connection_are_those_that_the_guest_answers() {
    let (mut fixture, socket) = Fixture::connected();
    let ask =
        |application: &mut Client| application.info(socket).map(|info| info.tcp_info[0]).map_err(|error| error.kind());
    fixture.send_event(0, &statistics(1));
    assert_eq!(ask(&mut fixture.application), Ok(1));
    assert_eq!(fixture.commands(), [(0, Command::Info)]);
    // An answer that comes too late is not the answer to the next question.
    assert_eq!(ask(&mut fixture.application), Err(ErrorKind::TimedOut));
    [2, 3].into_iter().for_each(|first| fixture.send_event(0, &statistics(first)));
    assert_eq!(ask(&mut fixture.application), Ok(3));
    let (mut fixture, socket) = Fixture::bound();
    assert_eq!(fixture.application.info(socket).unwrap_err().kind(), ErrorKind::InvalidInput);
    fixture.send_event(0, &statistics(1));
    fixture.assert_ends("statistics that the application did not request");
}

#[test]
fn unread_bytes_are_counted_and_the_end_of_the_stream_counts_as_one() {
    let (mut fixture, socket) = Fixture::connected();
    assert_eq!(fixture.application.unread(socket).unwrap(), 0);
    let received = vec![Extent { at: 0, len: 9 }].into();
    fixture.send_event(0, &Event::Status(Status { ended: true, received, ..status() }));
    assert_eq!(fixture.application.unread(socket).unwrap(), 9);
    assert_eq!(fixture.application.receive(socket, &mut [0; 9]).unwrap(), 9);
    assert_eq!(fixture.application.unread(socket).unwrap(), 1);
}

fn at(secs: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
}

#[test]
fn a_read_returns_the_time_at_which_its_last_byte_arrived() {
    let (mut fixture, socket) = Fixture::connected();
    let status = |bytes: u32, arrivals: &[Arrival]| {
        let received = vec![Extent { at: 0, len: bytes }].into();
        Event::Status(Status { received, arrivals: arrivals.to_vec(), ..status() })
    };
    let piece = |bytes, secs| Arrival { bytes, at: Some(at(secs)) };
    fixture.send_event(0, &status(5, &[]));
    fixture.send_event(0, &status(9, &[Arrival { bytes: 2, at: None }, piece(3, 1), piece(4, 2)]));
    fixture.send_event(0, &status(4, &[piece(4, 3)]));
    // The application asked for no more times.
    fixture.send_event(0, &status(6, &[]));
    fixture.application.work();
    let mut read = |bytes: usize| fixture.application.receive_timed(socket, &mut vec![0; bytes]).unwrap();
    for (bytes, secs) in [(5, None), (2, None), (1, Some(1)), (3, Some(2)), (3, Some(2)), (3, Some(3)), (7, None)] {
        assert_eq!(read(bytes), (bytes, secs.map(at)));
    }
    fixture.send_event(0, &status(9, &[piece(8, 1)]));
    fixture.assert_ends("an impossible connection state");
}

#[test]
fn times_of_sent_bytes_are_taken_in_their_order_and_only_a_limited_number_is_held() {
    let (mut fixture, socket) = Fixture::connected();
    while fixture.application.poll_event().is_some() {}
    let time = |id| SendTime { id, stage: SendStage::Sent, at: at(1 + u64::from(id)) };
    let records = SEND_TIMES_HELD_MAX / SEND_TIMES_MAX + 1;
    for record in 0..records {
        let first = u32::try_from(record * SEND_TIMES_MAX).unwrap();
        let times = (first..first + u32::try_from(SEND_TIMES_MAX).unwrap()).map(time).collect();
        fixture.send_event(0, &Event::SendTimes { times });
    }
    fixture.application.work();
    assert_eq!(fixture.application.poll_event(), Some(socket));
    for id in 0..u32::try_from(SEND_TIMES_HELD_MAX).unwrap() {
        assert_eq!(fixture.application.take_send_time(socket).unwrap(), Some(time(id)));
    }
    assert_eq!(fixture.application.take_send_time(socket).unwrap(), None);
    let mut listening = Fixture::listening();
    listening.send_event(0, &Event::SendTimes { times: vec![time(0)] });
    listening.assert_ends("transmit timestamps for a socket that cannot send");
}

#[test]
fn the_next_send_reports_a_datagram_that_was_too_long() {
    let (mut fixture, socket) = Fixture::bound();
    fixture.send_event(0, &Event::TooLong);
    fixture.application.work();
    let mut send = || fixture.application.send_to(socket, b"x", remote()).map_err(|error| error.kind());
    assert_eq!([send(), send()], [Err(ErrorKind::InvalidInput), Ok(1)]);
}

#[test]
fn a_late_answer_is_not_taken_for_the_answer_to_a_later_question() {
    let (mut fixture, socket) = Fixture::bound();
    let change = |application: &mut Client| {
        application.change_datagrams(socket, DatagramChange::HopLimit(1)).map_err(|error| error.kind())
    };
    assert_eq!(change(&mut fixture.application), Err(ErrorKind::TimedOut));
    for failure in [None, Some(ErrorKind::QuotaExceeded)] {
        fixture.send_event(0, &Event::Group { failure });
    }
    assert_eq!(change(&mut fixture.application), Err(ErrorKind::QuotaExceeded));
}

#[test]
fn impossible_states_end_the_attachment() {
    let outside = [
        Extent { at: 0, len: 0 },
        Extent { at: 1 << 20, len: 1 },
        Extent { at: (1 << 20) - 1, len: 2 },
        Extent { at: u32::MAX, len: u32::MAX },
    ];
    let received = |extents: &[Extent]| Status { received: extents.into(), ..status() };
    let mut cases: Vec<Vec<Status>> = outside.iter().map(|extent| vec![received(&[*extent])]).collect();
    // More than an arena has, in one record and in several.
    cases.push(vec![received(&[Extent { at: 0, len: 1 << 20 }, Extent { at: 0, len: 1 }])]);
    cases.push(vec![received(&[Extent { at: 0, len: 1 << 20 }]), received(&[Extent { at: 0, len: 1 }])]);
    cases.push(vec![received(&[Extent { at: 0, len: 1 }; 130])]);
    cases.push(vec![Status { released: 10_001, ..status() }]);
    cases.push(vec![Status { released: 9_000, ..status() }, Status { released: 1, ..status() }]);
    for states in cases {
        let (mut fixture, socket) = Fixture::connected();
        assert_eq!(fixture.application.send(socket, &[7; 10_000], SendFlags::default()).unwrap(), 9_000);
        states.iter().for_each(|status| fixture.send_event(0, &Event::Status(status.clone())));
        fixture.assert_ends("an impossible connection state, socket 0");
    }
}

#[test]
fn received_single_bytes_wait_without_a_time_limit() {
    let (mut fixture, socket) = Fixture::connected();
    let bytes: Vec<u8> = (0..=250).cycle().take(9_000).collect();
    for (at, byte) in (0_u32..).zip(&bytes) {
        fixture.received.write(usize::try_from(at).unwrap(), &[*byte]).unwrap();
        fixture
            .send_event(0, &Event::Status(Status { received: [Extent { at, len: 1 }].as_slice().into(), ..status() }));
        assert!(fixture.application.work() && fixture.application.ended().is_none(), "byte {at}");
    }
    let mut read = vec![0; 9_001];
    assert_eq!(fixture.application.receive(socket, &mut read).unwrap(), 9_000);
    assert_eq!(read[..9_000], bytes);
}

#[test]
fn a_connection_waits_for_its_own_bytes_while_others_have_many_in_flight() {
    const PART: usize = 64 << 10;
    let mut fixture = Fixture::with_arenas_of(4 * CROWDED_FROM_BYTES);
    let wide = || Status { send_buffer: u32::try_from(2 * CROWDED_FROM_BYTES).unwrap(), ..status() };
    let (many, few) = (fixture.connect(0, wide()), fixture.connect(1, wide()));
    while fixture.application.poll_event().is_some() {}
    let part = vec![1; PART];
    let parts_of_many = CROWDED_FROM_BYTES / PART + 1;
    (0..parts_of_many)
        .for_each(|_| assert_eq!(fixture.application.send(many, &part, SendFlags::default()).unwrap(), PART));
    (0..CROWDED_SEND_BYTES_MAX / PART)
        .for_each(|_| assert_eq!(fixture.application.send(few, &part, SendFlags::default()).unwrap(), PART));
    assert_eq!(fixture.application.send(few, &part, SendFlags::default()).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!fixture.application.readiness(few).unwrap().writable);
    assert!(fixture.application.readiness(many).unwrap().writable, "the others have little");
    fixture.commands();
    let all = u32::try_from(parts_of_many * PART).unwrap();
    fixture.send_event(0, &Event::Status(Status { released: all, ..wide() }));
    fixture.application.work();
    assert!(fixture.application.readiness(few).unwrap().writable, "there is room for all");
    fixture.send_event(1, &Event::Status(Status { released: 1, ..wide() }));
    fixture.application.work();
    let told: Vec<_> = std::iter::from_fn(|| fixture.application.poll_event()).collect();
    assert!(told.contains(&few), "{told:?}");
    assert_eq!(fixture.application.send(few, &part, SendFlags::default()).unwrap(), PART);
}

#[test]
fn a_single_stream_becomes_writable_however_many_bytes_are_in_flight() {
    const PART: usize = 256 << 10;
    let all = 2 * CROWDED_FROM_BYTES;
    let mut fixture = Fixture::with_arenas_of(2 * all);
    let wide = || Status { send_buffer: u32::try_from(all).unwrap(), ..status() };
    let socket = fixture.connect(0, wide());
    while fixture.application.poll_event().is_some() {}
    let part = vec![1; PART];
    (0..all / PART)
        .for_each(|_| assert_eq!(fixture.application.send(socket, &part, SendFlags::default()).unwrap(), PART));
    assert_eq!(
        fixture.application.send(socket, &part, SendFlags::default()).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    fixture.commands();
    fixture.send_event(0, &Event::Status(Status { released: u32::try_from(3 * PART).unwrap(), ..wide() }));
    fixture.application.work();
    assert_eq!(fixture.application.poll_event(), Some(socket));
    assert_eq!(fixture.application.send(socket, &part, SendFlags::default()).unwrap(), PART);
}

#[test]
fn a_guest_that_floods_a_listener_ends_the_attachment() {
    let mut fixture = Fixture::listening();
    let incoming = Event::Incoming { listener: 0, local: local(), remote: remote() };
    for number in 0..INCOMING_MAX {
        fixture.send_event(GUEST_NUMBERS + number, &incoming);
        assert!(fixture.application.work() && fixture.application.ended().is_none());
    }
    fixture.send_event(GUEST_NUMBERS + INCOMING_MAX, &incoming);
    fixture.assert_ends("more connections than allowed");
}

#[test]
fn random_events_of_a_guest_end_the_attachment_at_worst() {
    for seed in 1..=200_u64 {
        let (mut fixture, socket) = Fixture::connected();
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for _ in 0..50 {
            let bytes: Vec<u8> = (0..random() % 60).map(|_| (random() % 9).to_le_bytes()[0]).collect();
            fixture.put(((random() % 8) << 56) | (random() % 3), &bytes);
            fixture.application.work();
            let _ = fixture.application.receive(socket, &mut [0; 99]);
            let _ = fixture.application.send(socket, &[1; 99], SendFlags::default());
        }
        if let Some(error) = fixture.application.ended() {
            assert!(error.to_string().starts_with("the guest violated the protocol: "), "seed {seed}: {error}");
        }
    }
}

#[test]
fn a_guest_that_takes_no_commands_delays_a_closing_application_once() {
    let (mut fixture, _) = Fixture::connected();
    let begun = std::time::Instant::now();
    // Each is asked for in a buffer of its own; the ring has 64.
    for number in 1..200 {
        let socket = fixture.application.connect(local(), remote(), &SocketOptions::default()).unwrap();
        assert_eq!(socket, number);
    }
    assert!(fixture.application.guest_stalled && begun.elapsed() >= ANSWER_TIME_MAX);
    // When it does, everything comes, in order.
    let mut told = Vec::new();
    while told.len() < 199 {
        let more = fixture.commands();
        assert!(!more.is_empty(), "{} of 199 have come", told.len());
        told.extend(more.into_iter().map(|(number, _)| u64::from(number)));
        fixture.application.work();
    }
    assert_eq!(told, (1..200).collect::<Vec<u64>>());
    assert!(!fixture.application.guest_stalled);
}

#[test]
fn commands_that_are_sent_at_once_are_not_waited_for() {
    let (mut fixture, socket) = Fixture::connected();
    let before = fixture.application.counters().wait;
    fixture.application.unsent.push_back((socket, Command::Shutdown));
    fixture.application.drain_commands();
    assert_eq!(fixture.commands(), [(socket, Command::Shutdown)]);
    assert_eq!(fixture.application.counters().wait.sleeps, before.sleeps, "the application has slept");
}
