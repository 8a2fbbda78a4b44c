//! Two connections and a link between them, in virtual time, under a test's control.

use std::collections::VecDeque;

use super::*;

/// A segment on its way.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) ecn_capable: bool,
}

/// What a link does with a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Drop,
    Delay(Duration),
    Twice,
    Mark,
}

pub(super) type Plan = Box<dyn FnMut(u64, &Packet) -> Option<Fault>>;

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) ends: [Connection; 2],
    pub(super) delay: Duration,
    /// How long each segment of the client occupies the narrowest link, before which the others wait.
    pub(super) occupies: Duration,
    occupied_until: Instant,
    /// Nothing arrives from the client before this.
    pub(super) held_until: Instant,
    /// Largest payload of a large segment; 0: there are none.
    pub(super) large_bytes: usize,
    /// Decides over each segment, by number and contents, on the way from an end.
    pub(super) faults: [Plan; 2],
    pub(super) counts: [u64; 2],
    flying: [VecDeque<(Instant, Packet, bool)>; 2],
    pub(super) drops: Vec<TcpDrop>,
}

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn initial(seq: u32) -> Initial {
    Initial { seq: SeqNumber(seq), timestamp_offset: seq / 3 }
}

impl Pair {
    /// A client that connects and a server that has its SYN; sequence numbers wrap soon.
    pub(super) fn new(client: Config, server: Config) -> Self {
        let now = Instant::from_ns(1_000_000_000);
        let mut client =
            Connection::connect(now, client, Ports { local: 1, remote: 2 }, initial(u32::MAX - 5_000)).unwrap();
        let syn = client.poll_transmit(now, 0).unwrap().header;
        let server = Connection::accept(now, server, &syn, initial(u32::MAX - 9_000)).unwrap();
        Self::between(now, client, server)
    }

    pub(super) fn between(now: Instant, client: Connection, server: Connection) -> Self {
        Self {
            now,
            ends: [client, server],
            delay: ms(5),
            occupies: Duration::ZERO,
            occupied_until: now,
            held_until: now,
            large_bytes: 0,
            faults: [Box::new(|_, _| None), Box::new(|_, _| None)],
            counts: [0, 0],
            flying: [VecDeque::new(), VecDeque::new()],
            drops: Vec::new(),
        }
    }

    /// Both ends established.
    pub(super) fn established(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, server);
        pair.run(ms(30));
        assert_eq!(pair.states(), [StateName::Established; 2]);
        pair
    }

    pub(super) fn states(&self) -> [StateName; 2] {
        [self.ends[0].state_name(), self.ends[1].state_name()]
    }

    fn drain(&mut self, end: usize) {
        for polls in 0.. {
            assert!(polls < 100_000, "an end never falls silent");
            let Some(segment) = self.ends[end].poll_transmit(self.now, self.large_bytes) else { break };
            let mut bytes = [0; HEADER_BYTES_MAX];
            segment.header.emit(&mut bytes);
            let (header, _) = Header::parse(&bytes).unwrap();
            assert_eq!(header, segment.header);
            let mut payload = vec![0; segment.payload.len as usize];
            self.ends[end].copy_payload(segment.payload, 0, &mut payload);
            assert!(payload.len() <= self.large_bytes.max(1_460));
            let packet = Packet { header, payload, ecn_capable: segment.ecn_capable };
            self.counts[end] += 1;
            let fault = (self.faults[end])(self.counts[end], &packet);
            let mut at = self.now + self.delay;
            if end == CLIENT {
                self.occupied_until = self.occupied_until.max(self.now) + self.occupies;
                at = (self.occupied_until + self.delay).max(self.held_until);
            }
            match fault {
                Some(Fault::Drop) => continue,
                Some(Fault::Delay(more)) => at += more,
                Some(Fault::Twice) => self.fly(end, at, packet.clone(), false),
                Some(Fault::Mark) | None => {}
            }
            self.fly(end, at, packet, fault == Some(Fault::Mark));
        }
    }

    fn fly(&mut self, end: usize, at: Instant, packet: Packet, marked: bool) {
        let place = self.flying[end].partition_point(|other| other.0 <= at);
        self.flying[end].insert(place, (at, packet, marked));
    }

    /// Lets both ends send and moves to the next event before `until`; false if there is none.
    fn step(&mut self, until: Instant) -> bool {
        self.drain(CLIENT);
        self.drain(SERVER);
        let arrivals = self.flying.iter().filter_map(|queue| queue.front().map(|front| front.0));
        let timeouts = self.ends.iter().filter_map(Connection::poll_timeout);
        let Some(next) = arrivals.chain(timeouts).min().filter(|next| *next <= until) else {
            self.now = until;
            return false;
        };
        self.now = self.now.max(next);
        for end in [CLIENT, SERVER] {
            if self.ends[end].poll_timeout().is_some_and(|at| at <= self.now) {
                self.ends[end].handle_timeout(self.now);
                assert!(self.ends[end].poll_timeout().is_none_or(|at| at > self.now), "a timer fires for ever");
            }
            while self.flying[end].front().is_some_and(|front| front.0 <= self.now) {
                let (_, packet, marked) = self.flying[end].pop_front().unwrap();
                let to = &mut self.ends[1 - end];
                if let Err(reason) = to.handle_segment(self.now, &packet.header, marked, packet.payload.as_slice(), 0) {
                    self.drops.push(reason);
                }
                self.drain(1 - end);
            }
        }
        true
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        for steps in 0.. {
            assert!(steps < 10_000_000, "the world never rests");
            if !self.step(until) {
                break;
            }
        }
    }

    /// Sends `bytes` from an end and receives them at the other; returns the time it took.
    pub(super) fn transfer(&mut self, from: usize, bytes: &[u8]) -> Duration {
        let (start, mut sent, mut got) = (self.now, 0, Vec::new());
        let mut buffer = vec![0; 100_000];
        while got.len() < bytes.len() {
            sent += self.ends[from].send(self.now, &bytes[sent..]).unwrap();
            self.step(self.now + Duration::from_secs(600));
            loop {
                let len = self.ends[1 - from].receive(self.now, &mut buffer);
                if len == 0 {
                    break;
                }
                got.extend_from_slice(&buffer[..len]);
            }
            assert!(
                self.now.since(start) < Duration::from_secs(3_000),
                "stalled at {} of {}: {self:?}",
                got.len(),
                bytes.len()
            );
        }
        assert!(got == bytes, "the stream was not what was sent");
        self.now.since(start)
    }

    /// Closes both ends and checks that nothing is left.
    pub(super) fn close(&mut self) {
        self.ends[CLIENT].shutdown(self.now);
        self.run(ms(3_000));
        assert_eq!(self.states(), [StateName::FinWait2, StateName::CloseWait]);
        self.ends[SERVER].shutdown(self.now);
        self.run(ms(10_000));
        assert_eq!(self.states(), [StateName::TimeWait, StateName::Closed]);
        self.run(Duration::from_secs(61));
        self.check_idle();
    }

    /// No segment is in flight, no timer is due, no buffer is held.
    pub(super) fn check_idle(&mut self) {
        assert_eq!(self.states(), [StateName::Closed; 2]);
        for end in &mut self.ends {
            assert_eq!((end.poll_timeout(), end.poll_transmit(self.now, 0), end.send_room()), (None, None, 0));
        }
        assert!(self.flying.iter().all(VecDeque::is_empty));
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(out, "at {:?}, sent {:?}, drops {:?}", self.now, self.counts, self.drops)?;
        writeln!(out, "client {:#?}\nserver {:#?}", self.ends[0].info(), self.ends[1].info())
    }
}

/// Bytes that are wrong anywhere but in their place.
pub(super) fn stream(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let byte = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..len).map(byte).collect()
}
