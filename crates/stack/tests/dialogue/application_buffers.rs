//! Connections whose buffers lie with their application.

use crate::net::{Net, PLAIN, content};
use siga_stack::Stack;
use siga_stack::drops::TcpDrop;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Payload, Received};
use siga_stack::sockets::{TcpError, TcpId, TcpOptions};
use siga_stack::stack::StackConfig;
use siga_stack::tcp::{Failure, Heap, StateName, Storage, WriteFlags};
use siga_stack::time::Instant;
use siga_stack::wire::address::Prefix;
use std::net::{IpAddr, SocketAddr};

#[test]
fn an_application_reads_received_bytes_in_its_buffer_and_consumes_them() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let (here, there) = net.open(false, 80, listener);
    let (now, bytes, mut into) = (net.now, content(1_000), vec![0; 1_000]);
    assert_eq!(net.first().tcp_send(now, here, &bytes), Ok(1_000));
    net.first().tcp_outgoing(here).unwrap().read(0, &mut into);
    assert!(into == bytes);
    net.cross();
    into.fill(0);
    net.last().tcp_incoming(there).unwrap().read(0, &mut into);
    assert!(into == bytes);
    net.last().tcp_take(now, there, 400).unwrap();
    assert_eq!(net.last().tcp_progress(there).unwrap().received, 600);
    assert_eq!(net.last().tcp_receive(now, there, &mut into), Ok(Some(600)));
    assert!(into[..600] == bytes[400..]);
}

#[test]
fn an_application_sends_bytes_from_where_it_placed_them() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let (here, there) = net.open(false, 80, listener);
    let (now, bytes, mut into) = (net.now, content(1_000), vec![0; 2_000]);
    let place = |memory: &mut Heap| {
        memory.grow(2_048);
        memory.write(0, &bytes);
    };
    assert_eq!(net.first().tcp_send_with(now, here, bytes.len(), WriteFlags::default(), place), Ok(()));
    net.cross();
    assert_eq!(net.last().tcp_receive(now, there, &mut into), Ok(Some(1_000)));
    assert!(into[..1_000] == bytes);
    net.first().tcp_shutdown(now, here).unwrap();
    let late = net
        .first()
        .tcp_send_with(now, here, 1, WriteFlags::default(), |memory| panic!("nothing is to be placed in {memory:?}"));
    assert_eq!(late, Err(TcpError::ShutDown));
}

#[test]
fn without_its_memory_a_closed_connection_delivers_its_bytes_and_its_end_and_an_open_one_is_reset() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 4);
    let [open, closed, ended, other] = std::array::from_fn(|_| net.open(false, 80, listener));
    let (now, bytes, mut into) = (net.now, content(5_000), vec![0; 5_000]);
    for (id, count) in [(open.0, 5_000), (closed.0, 5_000), (other.0, 100)] {
        assert_eq!(net.first().tcp_send(now, id, &bytes[..count]), Ok(count));
    }
    for (id, _) in [closed, ended] {
        net.first().tcp_close(now, id).unwrap();
    }
    let kept = net.first().tcp_outgoing(other.0).unwrap().capacity();
    net.first().tcp_separate_those(now, |memory| memory.capacity() != kept);
    net.cross();
    assert_eq!(net.last().tcp_progress(open.1).unwrap().failure, Some(Failure::Reset));
    assert_eq!(net.last().tcp_receive(now, closed.1, &mut into), Ok(Some(5_000)));
    assert!(into == bytes);
    for (_, there) in [closed, ended] {
        let progress = net.last().tcp_progress(there).unwrap();
        assert!(progress.ended && progress.failure.is_none(), "{progress:?}");
    }
    assert_eq!(net.first().tcp_state(open.0), Err(TcpError::Closed));
    assert_eq!(net.first().tcp_state(other.0), Ok(StateName::Established));
    assert_eq!(net.last().tcp_progress(other.1).unwrap().received, 100);
}

/// Memory that holds `SHORT_BYTES` bytes, or `SHORT_BYTES_AHEAD` ahead of a gap. It frees bytes no longer wanted.
#[derive(Debug, Default)]
struct Short {
    base: usize,
    bytes: Vec<u8>,
}

const SHORT_BYTES: usize = 4_096;
const SHORT_BYTES_AHEAD: usize = 2_500;

impl Storage for Short {
    fn capacity(&self) -> usize {
        usize::MAX / 2
    }

    fn grow(&mut self, capacity: usize) {
        panic!("positions go on up to {capacity}");
    }

    fn release(&mut self) {}

    fn write(&mut self, at: usize, from: &[u8]) {
        let at = at - self.base;
        let end = self.bytes.len().max(at + from.len());
        assert!(end <= SHORT_BYTES, "there is no room for {end} bytes");
        self.bytes.resize(end, 0);
        self.bytes[at..at + from.len()].copy_from_slice(from);
    }

    fn write_payload<P: Payload + ?Sized>(&mut self, at: usize, payload: &P, from: usize, len: usize) {
        let mut bytes = vec![0; len];
        payload.copy_to(from, &mut bytes);
        self.write(at, &bytes);
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[at - self.base..][..into.len()]);
    }

    fn held(&self) -> usize {
        0
    }

    fn is_common(&self) -> bool {
        false
    }

    fn has_room(&self, at: usize, bytes: usize, in_order: bool) -> bool {
        at - self.base + bytes <= if in_order { SHORT_BYTES } else { SHORT_BYTES_AHEAD }
    }

    fn discard(&mut self, at: usize) {
        drop(self.bytes.drain(..at - self.base));
        self.base = at;
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A host that writes, and one whose memory is short.
struct Pair {
    now: Instant,
    writer: Stack,
    reader: Stack<Short>,
    here: TcpId,
    there: TcpId,
}

fn plugged<S: Storage>(mut stack: Stack<S>, octet: u8) -> Stack<S> {
    let addresses = vec![Prefix::new(IpAddr::from([10, 0, 0, octet]), 24).unwrap()];
    stack.add_device(DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses, agreed: Agreed::default() }).unwrap();
    stack
}

fn frame<S: Storage>(stack: &mut Stack<S>, now: Instant) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 1_500];
    let sent = stack.poll_transmit(now, DeviceId(0), &mut bytes)?;
    bytes.truncate(sent.len);
    Some(bytes)
}

fn give<S: Storage>(stack: &mut Stack<S>, now: Instant, frame: &[u8]) {
    let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
    stack.handle_frame(now, DeviceId(0), Received::unmarked(header, payload));
}

impl Pair {
    fn new() -> Self {
        let (now, server) = (Instant::from_ns(1_000_000_000), SocketAddr::from(([10, 0, 0, 2], 80)));
        let mut writer = plugged(Stack::new(StackConfig::default()), 1);
        let mut reader = plugged(Stack::with_storage(StackConfig::default()), 2);
        let listener = reader.tcp_listen(server, 1, &TcpOptions::default()).unwrap();
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let here = writer.tcp_connect(now, any, server, &TcpOptions::default()).unwrap();
        let mut pair = Self { now, writer, reader, here, there: here };
        pair.exchange();
        pair.there = pair.reader.tcp_accept(listener).unwrap().unwrap().0;
        pair
    }

    fn exchange(&mut self) {
        loop {
            if let Some(bytes) = frame(&mut self.writer, self.now) {
                give(&mut self.reader, self.now, &bytes);
            } else if let Some(bytes) = frame(&mut self.reader, self.now) {
                give(&mut self.writer, self.now, &bytes);
            } else {
                return;
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.reader.drops().iter().filter(|(reason, _)| *reason == TcpDrop::Memory.into()).map(|(_, count)| count).sum()
    }

    /// What has come, and all that comes once there is room, `len` bytes.
    fn read(&mut self, len: usize) -> Vec<u8> {
        let (mut arrived, mut into) = (Vec::new(), vec![0; len]);
        for _ in 0..100 {
            while let Some(count) = self.reader.tcp_receive(self.now, self.there, &mut into).unwrap() {
                arrived.extend_from_slice(&into[..count]);
            }
            if arrived.len() == len {
                break;
            }
            let due = [self.writer.poll_timeout(), self.reader.poll_timeout()].into_iter().flatten().min();
            self.now = self.now.max(due.unwrap());
            self.writer.handle_timeout(self.now);
            self.reader.handle_timeout(self.now);
            self.exchange();
        }
        arrived
    }
}

#[test]
fn a_segment_beyond_the_end_of_bounded_memory_is_dropped_and_retransmitted() {
    let (mut pair, bytes) = (Pair::new(), content(10_000));
    pair.writer.tcp_send(pair.now, pair.here, &bytes).unwrap();
    let frames: Vec<Vec<u8>> = std::iter::from_fn(|| frame(&mut pair.writer, pair.now)).collect();
    assert!(frames.len() > 4 && frames[..4].iter().all(|frame| frame.len() == 1_500));
    give(&mut pair.reader, pair.now, &frames[0]);
    give(&mut pair.reader, pair.now, &frames[1]);
    assert_eq!(pair.dropped(), 0);
    give(&mut pair.reader, pair.now, &frames[2]);
    assert_eq!(pair.dropped(), 1, "the third ends behind the end");
    assert_eq!(pair.reader.tcp_progress(pair.there).unwrap().received, 2 * 1_448);
    assert!(pair.read(bytes.len()) == bytes);
    pair.reader.check();
}

#[test]
fn bounded_memory_sees_the_place_of_a_segment_and_whether_it_fills_a_gap() {
    for (order, dropped) in [([0, 1], 0), ([1, 0], 1)] {
        let (mut pair, bytes) = (Pair::new(), content(2 * 1_448));
        pair.writer.tcp_send(pair.now, pair.here, &bytes).unwrap();
        let frames: Vec<Vec<u8>> = std::iter::from_fn(|| frame(&mut pair.writer, pair.now)).collect();
        for at in order {
            give(&mut pair.reader, pair.now, &frames[at]);
        }
        assert_eq!(pair.dropped(), dropped, "{order:?}");
        assert!(pair.read(bytes.len()) == bytes);
    }
}
