//! What lies in ring buffers while it is sent and received, and that nobody waits for that without end.

use super::lockstep::{Figure1, figure_1};
use crate::guest::Written;
use crate::guest::peer_link::Sender;
use crate::limits::ZERO_COPY_BYTES_MIN;
use siga_model::topology::{Full, Topology};
use siga_ring::Producer;
use siga_ring::clock::Ticks;
use siga_stack::sockets::TcpSetting;
use siga_stack::stack::tcp::ZeroCopySend;

/// Buffers of each ring.
const BUFFERS: usize = 16;
const PART: usize = 9_000;
/// No two of these have room in one buffer. One for each buffer is less than the connection's first window.
const LARGE: usize = 33_000;
/// Turns of a send whose frames are paced.
const SEND_TURNS: usize = 100;

impl Sender {
    /// Returns how many buffers of the ring contain retained payload.
    fn retained_buffers(&self) -> usize {
        self.ring.as_ref().map_or(0, Producer::retained_buffers)
    }

    /// Returns the number of buffers that the ring's present round has. Returns `None` if there is no ring.
    pub(crate) fn round(&self) -> Option<usize> {
        self.ring.as_ref().map(Producer::round)
    }
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 11 + at / 253).to_le_bytes()[0]).collect()
}

/// Bytes that a guest copied out of its rings.
fn copied(figure: &Figure1, guest: usize) -> u64 {
    figure.guests[guest].count("copied_bytes")
}

fn write(figure: &mut Figure1, bytes: &[u8]) -> Written {
    let id = figure.client;
    figure.guests[0].node.send_zero_copy(id, bytes)
}

/// Whether the client can send `bytes` bytes by zero-copy before it receives an acknowledgement.
fn can_send(figure: &mut Figure1, bytes: usize) -> bool {
    let (id, node) = (figure.client, &mut figure.guests[0].node);
    let now = node.now();
    let info = node.stack().tcp_info(id).unwrap().unwrap();
    let window = info.congestion_window.min(info.peer_window) as usize;
    window >= bytes && matches!(node.stack().tcp_zero_copy(now, id, ZERO_COPY_BYTES_MIN), ZeroCopySend::Now(_))
}

/// A connection whose receiver offers room for more parts than there are buffers.
fn open() -> Figure1 {
    open_in(&figure_1())
}

/// The clocks count turns, so that no timer of the connection ends while a busy host does something else.
fn open_in(topology: &Topology) -> Figure1 {
    let mut figure = Figure1::by_turns(topology, BUFFERS.try_into().unwrap());
    let text = text(60_000);
    (0..50).for_each(|_| figure.exchange(&text, &[1]));
    for (guest, id) in [(0, figure.client), (2, figure.server)] {
        let now = figure.guests[guest].node.now();
        figure.guests[guest].node.stack().tcp_set(now, id, TcpSetting::NoDelay(true)).unwrap();
    }
    figure
}

#[test]
fn zero_copy_receive_copies_bytes_read_in_time_once_and_others_twice() {
    let (mut figure, text) = (open(), text(PART));
    let start = copied(&figure, 2);
    figure.exchange(&text, &[1]);
    let once = copied(&figure, 2) - start;
    assert!((PART as u64..PART as u64 + 1_000).contains(&once), "{once} bytes, headers included");
    let send = |figure: &mut Figure1| {
        let now = figure.guests[0].node.now();
        let sent = figure.guests[0].node.stack().tcp_send(now, figure.client, &text);
        assert_eq!(sent, Ok(PART));
        figure.turns(SEND_TURNS);
    };
    let start = copied(&figure, 2);
    (1..BUFFERS / 2).for_each(|_| send(&mut figure));
    assert!(copied(&figure, 2) - start < 5_000, "headers alone");
    (BUFFERS / 2..BUFFERS + BUFFERS / 2).for_each(|_| send(&mut figure));
    let moved = copied(&figure, 2) - start;
    assert!(moved > (BUFFERS / 2 * (PART - 100)) as u64, "{moved} bytes were moved out, so that the ring goes on");
    let received = figure.receive(1 << 20);
    assert_eq!(received.len(), (BUFFERS + BUFFERS / 2 - 1) * PART);
    assert!(received.chunks(PART).all(|part| part == text));
}

#[test]
fn zero_copy_receive_copies_short_payloads_on_arrival() {
    let mut figure = open();
    for (len, expected) in [(ZERO_COPY_BYTES_MIN - 1, ZERO_COPY_BYTES_MIN - 1), (ZERO_COPY_BYTES_MIN, 0)] {
        let start = copied(&figure, 2);
        let now = figure.guests[0].node.now();
        let sent = figure.guests[0].node.stack().tcp_send(now, figure.client, &text(len));
        assert_eq!(sent, Ok(len));
        figure.turns(3);
        let headers = (copied(&figure, 2) - start).checked_sub(expected as u64);
        assert!(headers.is_some_and(|headers| headers < 500), "{len} bytes: {headers:?} more than {expected}");
        assert_eq!(figure.receive(1 << 20).len(), len);
    }
}

#[test]
fn zero_copy_send_retains_bytes_until_they_are_acknowledged() {
    let mut figure = open();
    // The send buffer and both windows must have room for all buffers.
    let room = (BUFFERS + 1) * LARGE;
    for exchanges in 1.. {
        figure.exchange(&text(room), &[1]);
        if can_send(&mut figure, room) {
            break;
        }
        assert!(exchanges < 100, "{:?}", figure.guests[0].node.stack().tcp_info(figure.client));
    }
    let text = text(LARGE);
    figure.guests[0].node.links.retain_time = Ticks(u64::MAX / 4);
    let mut written = 0;
    // The router takes all, and nobody acknowledges.
    while let Written::Gone(count) = write(&mut figure, &text) {
        assert_eq!(count, LARGE);
        written += 1;
        figure.guests[1].turn();
    }
    let id = figure.client;
    assert!(figure.guests[0].node.stalls(id));
    assert!((BUFFERS - 1..=BUFFERS).contains(&written), "{written}");
    // What has waited long enough is moved out.
    figure.guests[0].node.links.retain_time = Ticks(0);
    assert!(!figure.guests[0].node.stalls(id));
    assert_eq!(write(&mut figure, &text), Written::Gone(LARGE));
    figure.turns(20);
    let received = figure.receive(1 << 22);
    assert_eq!(received.len(), (written + 1) * LARGE);
    assert!(received.chunks(LARGE).all(|part| part == text));
    let kept =
        |figure: &Figure1| figure.guests[0].node.links.senders.iter().map(Sender::retained_buffers).sum::<usize>();
    // The last acknowledgement may wait for its time.
    let mut turns = 0;
    while kept(&figure) > 0 && turns < 1_000_000 {
        figure.turns(20);
        turns += 20;
    }
    assert_eq!(kept(&figure), 0, "all is acknowledged");
}

#[test]
fn zero_copy_send_leaves_less_than_a_full_frame_to_the_next_write() {
    let (mut figure, text) = (open(), text(130_000));
    for exchanges in 1.. {
        figure.exchange(&text, &[1]);
        if can_send(&mut figure, text.len()) {
            break;
        }
        assert!(exchanges < 100, "{:?}", figure.guests[0].node.stack().tcp_info(figure.client));
    }
    let Written::Gone(gone) = write(&mut figure, &text) else { panic!("it waits") };
    let full = gone / 2;
    assert!(full > 50_000 && gone == 2 * full && text.len() - gone > ZERO_COPY_BYTES_MIN, "{gone}: two full frames");
    assert_eq!(write(&mut figure, &text[gone..]), Written::Gone(text.len() - gone), "a write of its own takes a frame");
    figure.turns(20);
    assert!(figure.receive(1 << 20) == text);
}

#[test]
fn rings_between_co_located_guests_use_few_buffers_for_streams() {
    let mut figure = open();
    let round = |figure: &Figure1, guest: usize| {
        figure.guests[guest].node.links.senders.iter().filter_map(Sender::round).min().unwrap()
    };
    // Six frames of this size have more than 320 KB. Acknowledgements may take further buffers.
    let text = text(57_000);
    for (colocated, buffers) in [(false, BUFFERS..=BUFFERS), (true, 6..=8), (false, BUFFERS..=BUFFERS)] {
        figure.guests.iter_mut().for_each(|guest| guest.node.links.set_colocated(colocated));
        for _ in 0..8 * BUFFERS {
            figure.exchange(&text, &[1]);
        }
        let rounds = [0, 1].map(|guest| round(&figure, guest));
        assert!(rounds.iter().all(|round| buffers.contains(round)), "co-located: {colocated}: {rounds:?}");
    }
}

#[test]
fn unread_bytes_do_not_stop_a_link_whose_sender_waits_for_all_buffers() {
    let mut figure = open();
    let text = text(LARGE);
    for sent in 1..=3 {
        let (now, id) = (figure.guests[2].node.now(), figure.server);
        assert_eq!(figure.guests[2].node.stack().tcp_send(now, id, &text), Ok(LARGE));
        figure.turns(5);
        let id = figure.client;
        assert_eq!(figure.guests[0].node.stack().tcp_progress(id).unwrap().received, sent * LARGE);
    }
}

/// How often each byte is copied on its way from application to application.
fn copies(topology: &Topology) -> usize {
    const HEADERS: usize = 1_000;
    let (mut figure, text) = (open_in(topology), text(LARGE));
    figure.exchange(&text, &[1]);
    for _ in 0..100 {
        let into_frames = |figure: &Figure1| figure.guests[0].count("bytes_sent");
        let start = (into_frames(&figure), copied(&figure, 1), copied(&figure, 2));
        let Written::Gone(straight) = write(&mut figure, &text) else { panic!("it waits") };
        let (now, id) = (figure.guests[0].node.now(), figure.client);
        let into_buffer = figure.guests[0].node.stack().tcp_send(now, id, &text[straight..]).unwrap();
        figure.turns(3);
        let before_read = copied(&figure, 2) - start.2;
        // What is read is copied, wherever from.
        let read = figure.receive(1 << 20);
        assert!(read == text);
        let (frames, forwarded) = (into_frames(&figure) - start.0, copied(&figure, 1) - start.1);
        let [frames, forwarded, before_read] =
            [frames, forwarded, before_read].map(|count| usize::try_from(count).unwrap());
        let all = into_buffer + frames + forwarded + before_read + read.len();
        // Else something was repeated, as it was due by the clock.
        if frames < LARGE + HEADERS {
            assert!(all % LARGE < 3 * HEADERS, "{all} for {LARGE}");
            return all / LARGE;
        }
    }
    panic!("interrupted each time");
}

#[test]
fn a_streamed_byte_is_copied_three_times_with_zero_copy_and_five_times_without() {
    let mut topology = figure_1();
    assert_eq!(copies(&topology), 3);
    topology.features.zero_copy = false;
    assert_eq!(copies(&topology), 5);
}

#[test]
fn zero_copy_send_is_off_if_full_partners_mean_drops() {
    let mut topology = figure_1();
    let devices = topology.guests.values_mut().flat_map(|guest| &mut guest.devices);
    devices.for_each(|device| device.full = Full::Drop);
    assert_eq!(write(&mut open_in(&topology), &text(LARGE)), Written::Gone(0));
    assert_eq!(copies(&topology), 4, "received in place");
}
