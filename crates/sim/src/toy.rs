//! A toy protocol that tests the world itself: go-back-N in both directions, over frames with a checksum.
//!
//! The protocol is simple enough to be obviously correct. It has cumulative acknowledgements and one timer. After a timeout, it
//! sends all unacknowledged data again. So if a test with this protocol fails, the world has a bug. The protocol is not meant to
//! be efficient.

use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::stack::Transmit;
use siga_stack::time::{Duration, Instant};

use crate::check::{Content, Stream};
use crate::node::{LinkState, Node, Outgoing};
use crate::trace::digest;

/// Length of the header in bytes: kind, offset, length, checksum.
const HEADER_BYTES: usize = 1 + 8 + 2 + 8;
const WINDOW_BYTES: u64 = 32 * 1_024;
const TIMEOUT_MIN: Duration = Duration::from_millis(250);
const TIMEOUT_MAX: Duration = Duration::from_secs(1);
const DATA: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;

/// One end of a connection. The connection exists from the beginning of the run, without a handshake.
#[derive(Debug)]
pub struct Toy {
    content: Content,
    bytes: u64,
    acknowledged: u64,
    next: u64,
    timeout: Duration,
    deadline: Option<Instant>,
    data_bytes_max: usize,
    peer: Stream,
    acknowledge: bool,
    wrong: Option<String>,
}

impl Toy {
    /// Creates an end that sends one stream and expects another. A stream is given by its content and its length in bytes.
    pub fn new(send: (Content, u64), expect: (Content, u64)) -> Self {
        let mut peer = Stream::new(expect.0);
        peer.sent(expect.1);
        Self {
            content: send.0,
            bytes: send.1,
            acknowledged: 0,
            next: 0,
            timeout: TIMEOUT_MIN,
            deadline: None,
            data_bytes_max: 1,
            peer,
            acknowledge: false,
            wrong: None,
        }
    }

    /// Returns true if both streams have arrived completely.
    pub fn is_done(&self) -> bool {
        self.acknowledged == self.bytes && self.peer.is_complete()
    }

    fn handle_data(&mut self, from: u64, data: &[u8]) {
        self.acknowledge = true;
        if from == self.peer.arrived()
            && let Err(error) = self.peer.received(data)
        {
            self.wrong.get_or_insert(error.to_string());
        }
    }

    fn handle_acknowledgement(&mut self, now: Instant, to: u64) {
        if to <= self.acknowledged || to > self.bytes {
            return;
        }
        self.acknowledged = to;
        self.next = self.next.max(to);
        self.timeout = TIMEOUT_MIN;
        self.deadline = (to < self.next).then(|| now + self.timeout);
    }
}

impl Node for Toy {
    fn handle_frame(&mut self, now: Instant, _: DeviceId, frame: &[u8], _: Marks, _: &mut Vec<Outgoing>) {
        match parse(frame) {
            Some((DATA, from, data)) => self.handle_data(from, data),
            Some((ACKNOWLEDGEMENT, to, [])) => self.handle_acknowledgement(now, to),
            Some(_) | None => {}
        }
    }

    fn poll_transmit(&mut self, now: Instant, _: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        let marks = Marks::default();
        if std::mem::take(&mut self.acknowledge) {
            return Some(Transmit { len: emit(into, ACKNOWLEDGEMENT, self.peer.arrived(), 0), marks });
        }
        let end = self.bytes.min(self.acknowledged + WINDOW_BYTES);
        let room = usize::try_from(end.saturating_sub(self.next)).unwrap_or(usize::MAX);
        let data_bytes = room.min(self.data_bytes_max);
        if data_bytes == 0 {
            return None;
        }
        self.content.fill(self.next, &mut into[HEADER_BYTES..HEADER_BYTES + data_bytes]);
        let len = emit(into, DATA, self.next, data_bytes);
        self.next += u64::try_from(data_bytes).unwrap_or(0);
        self.deadline.get_or_insert(now + self.timeout);
        Some(Transmit { len, marks })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.next = self.acknowledged;
            self.timeout = (self.timeout * 2).min(TIMEOUT_MAX);
            self.deadline = None;
        }
    }

    fn link_changed(&mut self, _: Instant, _: DeviceId, state: LinkState) {
        self.data_bytes_max = state.mtu.saturating_sub(HEADER_BYTES).clamp(1, usize::from(u16::MAX));
    }

    fn check(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    fn left_over(&self) -> Vec<String> {
        let unacknowledged = self.next - self.acknowledged;
        (unacknowledged > 0).then(|| format!("{unacknowledged} bytes unacknowledged")).into_iter().collect()
    }
}

/// Writes the header before the data, which `into` already contains. Returns the length of the frame in bytes.
fn emit(into: &mut [u8], kind: u8, offset: u64, data_bytes: usize) -> usize {
    into[0] = kind;
    into[1..9].copy_from_slice(&offset.to_be_bytes());
    into[9..11].copy_from_slice(&u16::try_from(data_bytes).unwrap_or(u16::MAX).to_be_bytes());
    let frame = &mut into[..HEADER_BYTES + data_bytes];
    frame[11..HEADER_BYTES].fill(0);
    let sum = digest(frame);
    frame[11..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
    frame.len()
}

/// Returns the kind, the offset and the data of a frame, or `None` if the frame is damaged.
fn parse(frame: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (header, data) = frame.split_first_chunk::<HEADER_BYTES>()?;
    let offset = u64::from_be_bytes(header[1..9].try_into().ok()?);
    let data_bytes = u16::from_be_bytes(header[9..11].try_into().ok()?);
    let sum = u64::from_be_bytes(header[11..].try_into().ok()?);
    let mut whole = frame.to_vec();
    whole[11..HEADER_BYTES].fill(0);
    (usize::from(data_bytes) == data.len() && digest(&whole) == sum).then_some((header[0], offset, data))
}
