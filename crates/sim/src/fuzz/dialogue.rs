//! Fuzz target: two TCP connections exchange segments. The input delivers, drops, repeats, reorders and changes segments, and
//! makes any call on the two connections.
//!
//! Whatever happens to the segments, each application reads exactly what the other one wrote. An *honest* input changes no
//! segment. With an honest input, all bytes arrive in the end, and both ends close.

#![expect(clippy::unwrap_used, reason = "a fuzzer says what it wants by panicking")]

use siga_stack::limits::TCP_SENT_MAX;
use siga_stack::tcp::{
    Config, CongestionControl, Connection, Initial, Keepalive, Ports, Secret, SegmentError, StateName, SynCookie,
};
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::tcp::{Block, Header, HeaderOptions, SeqNumber, Timestamps};

use super::contents;
use super::input::Input;
use super::model::{Model, Reported};

const STEPS_MAX: usize = 600;
/// Maximum number of segments that an end may send after one call.
const SEGMENTS_MAX: usize = 2 * TCP_SENT_MAX as usize + 64;
/// Maximum number of segments that are delivered in one flush. It is enough for full buffers in segments of the smallest size, and
/// for their acknowledgements.
const DELIVERIES_MAX: usize = 60_000;
const FLYING_MAX: usize = 256;
/// Smallest buffer size. With a smaller buffer, a stream could proceed byte by byte, and would take hours of virtual time.
const BUFFER_BYTES_MIN: usize = 1_000;
const BUFFER_BYTES_MAX: usize = 256 << 10;
/// Number of times that the clock may advance after losses or delays. After more times, an end may have given up.
const STRIKES_MAX: usize = 4;
const IDENTITY: &[u8] = b"both ends";

/// Runs an input. Panics if a connection breaks a promise.
pub fn dialogue(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(&mut input);
    input.each_step(STEPS_MAX, |input| {
        world.step(input);
        world.check();
    });
    world.end();
}

/// A segment in flight.
#[derive(Clone)]
struct Flying {
    header: Header,
    payload: Vec<u8>,
}

/// One end of the connection, with the segments that it has sent and that are not delivered yet.
struct End {
    /// The connection. `None` means that this end is a listener that keeps no state for the connection.
    connection: Option<Connection>,
    config: Config,
    iss: Option<SeqNumber>,
    /// The initial sequence number of the other end, if this end knows it.
    irs: Option<SeqNumber>,
    /// True if this end answered SYNs with several different SYN cookies. Then the target cannot know which cookie the other end
    /// accepted.
    mixed: bool,
    written: u32,
    read: u32,
    closed: bool,
    flying: Vec<Flying>,
    model: Model,
}

impl End {
    fn report(&self) -> Reported {
        let connection = self.connection.as_ref();
        let deadline = connection.and_then(Connection::poll_timeout);
        Reported { deadline, info: connection.and_then(Connection::info) }
    }

    /// Runs the timers of the connection that are due, and checks what they did.
    fn handle_timeout(&mut self, now: Instant) {
        let earlier = self.report();
        let due = earlier.deadline.is_some_and(|at| at <= now);
        let Some(connection) = &mut self.connection else { return };
        connection.handle_timeout(now);
        if due {
            let later = self.report();
            self.model.check_expiry(&earlier, &later);
        }
    }
}

struct World {
    now: Instant,
    ends: [End; 2],
    honest: bool,
    cookies: bool,
    large: usize,
    lost: bool,
    strikes: usize,
}

/// Returns the TCP settings that the bits of the input select.
fn config(bits: u16, honest: bool) -> Config {
    let set = |bit: u16| bits >> bit & 1 != 0;
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), probes: 3 };
    Config {
        mss: [1_460, 536, 8_960, 48][usize::from(bits & 3)],
        receive_buffer_bytes: if set(2) { 3_000 } else { 64 << 10 },
        receive_buffer_bytes_max: if set(2) { 5_000 } else { BUFFER_BYTES_MAX },
        send_buffer_bytes_max: if set(3) { 2_000 } else { BUFFER_BYTES_MAX },
        congestion: if set(4) { CongestionControl::Reno } else { CongestionControl::Cubic },
        no_delay: set(5),
        keepalive: (set(6) && !honest).then_some(keepalive),
        user_timeout: (set(7) && !honest).then_some(Duration::from_secs(30)),
        ecn: set(8),
        timestamps: !set(9),
        sack: !set(10),
        window_scaling: !set(11),
        initial_window_segments: if set(12) { 1 } else { 10 },
        ..Config::LINUX
    }
}

fn salt(end: usize) -> u32 {
    u32::try_from(end).unwrap() << 31
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let (bits, shape) = (input.u8(), input.u16());
        let honest = bits & 1 != 0;
        let now = Instant::from_ns(1_000_000_000);
        let first = [u32::MAX - 3_000, 0x7fff_f800, 0, 1_000_000][usize::from(bits >> 1 & 3)];
        let initial = |seq| Initial { seq: SeqNumber(seq), timestamp_offset: seq / 3 };
        let end = |config| End {
            connection: None,
            config,
            iss: None,
            irs: None,
            mixed: false,
            written: 0,
            read: 0,
            closed: false,
            flying: Vec::new(),
            model: Model::default(),
        };
        let mut ends = [end(config(shape, honest)), end(config(input.u16(), honest))];
        let client = Connection::connect(now, ends[0].config, Ports { local: 1, remote: 2 }, initial(first)).unwrap();
        ends[0].connection = Some(client);
        let both = bits & 0x08 != 0;
        if both {
            let server =
                Connection::connect(now, ends[1].config, Ports { local: 2, remote: 1 }, initial(first ^ 0x5555))
                    .unwrap();
            ends[1].connection = Some(server);
        }
        let large = [0, 0, 8_000, 60_000][usize::from(bits >> 5 & 3)];
        let mut world = Self { now, ends, honest, cookies: bits & 0x10 != 0 && !both, large, lost: false, strikes: 0 };
        if !world.honest || world.cookies {
            world.ends.iter_mut().for_each(|end| end.model.give_up());
        }
        world.drain();
        world
    }

    /// Polls both ends, and adds the segments that they send to their lists of segments in flight.
    fn drain(&mut self) {
        for end in 0..2 {
            self.drain_end(end);
        }
    }

    fn drain_end(&mut self, end: usize) {
        let from = &mut self.ends[end];
        let Some(connection) = &mut from.connection else { return };
        for segments in 0.. {
            assert!(segments < SEGMENTS_MAX, "an end never falls silent");
            let wanted = connection.wants_transmit();
            let Some(segment) = connection.poll_transmit(self.now, self.large) else { break };
            assert!(wanted, "a segment that nobody wanted: {segment:?}");
            let mut payload = vec![0; usize::try_from(segment.payload.len).unwrap()];
            connection.copy_payload(segment.payload, 0, &mut payload);
            let mut bytes = [0; 60];
            segment.header.emit(&mut bytes);
            let (header, _) = Header::parse(&bytes).unwrap();
            assert_eq!(header, segment.header, "what was written is not what is read");
            assert!(payload.len() <= self.large.max(usize::from(from.config.mss)), "{} bytes", payload.len());
            if header.flags.syn {
                from.iss = Some(header.seq);
            }
            if matches!(connection.state_name(), StateName::TimeWait | StateName::Closed) {
                from.model.give_up();
            }
            from.model.send(&header, payload.len());
            if let Some(iss) = from.iss.filter(|_| !payload.is_empty()) {
                let place = header.seq.since(iss + 1);
                assert!(payload == contents(salt(end) ^ place, payload.len()), "other bytes than were written");
            }
            if from.flying.len() < FLYING_MAX {
                from.flying.push(Flying { header, payload });
            } else {
                self.lost = true;
            }
        }
    }

    /// Delivers a segment of end `from` to the other end. If `marked` is set, the segment has a congestion mark (ECN).
    fn deliver(&mut self, from: usize, flying: &Flying, marked: bool) {
        let Flying { header, payload } = flying;
        let to = &mut self.ends[1 - from];
        let (secret, numbers) = (Secret([1, 2]), Secret([3, 4]));
        let cookie = SynCookie { secret, numbers, identity: IDENTITY, config: &to.config };
        let meaning = to.model.receive(header, payload.len());
        let earlier = to.report();
        match &mut to.connection {
            Some(connection) => {
                let opening = connection.state_name() == StateName::SynSent;
                let _ = connection.handle_segment(self.now, header, marked, payload.as_slice(), 0);
                if opening && connection.state_name() != StateName::SynSent {
                    to.irs = Some(header.seq);
                }
            }
            None if !self.cookies && header.flags.syn && header.ack.is_none() => {
                let initial = Initial::new(secret, IDENTITY, self.now);
                to.connection = Some(Connection::accept(self.now, to.config, header, initial).unwrap());
                to.irs = Some(header.seq);
            }
            None if header.flags.syn && header.ack.is_none() => {
                let answer = cookie.answer(self.now, header);
                to.mixed |= to.iss.is_some_and(|iss| iss != answer.seq);
                (to.iss, to.irs) = (Some(answer.seq), None);
                to.flying.push(Flying { header: answer, payload: Vec::new() });
            }
            None => {
                if let Some(mut connection) = cookie.accept(self.now, header) {
                    let _ = connection.handle_segment(self.now, header, marked, payload.as_slice(), 0);
                    let iss = header.ack.map(|ack| ack - 1);
                    to.mixed |= to.iss != iss;
                    (to.iss, to.irs) = (iss, Some(header.seq - 1));
                    to.connection = Some(connection);
                }
            }
        }
        let later = to.report();
        to.model.check_timers(meaning, &earlier, &later);
        self.drain();
    }

    /// Delivers all segments in flight in order, and then the segments that the ends send in response.
    fn flush(&mut self) {
        for _ in 0..DELIVERIES_MAX {
            let Some(from) = (0..2).find(|from| !self.ends[*from].flying.is_empty()) else { return };
            let flying = self.ends[from].flying.remove(0);
            self.deliver(from, &flying, false);
        }
        assert!(!self.honest, "two ends never fall silent");
        // With changed segments, the two ends may answer each other endlessly. The segments in flight are then discarded.
        self.ends.iter_mut().for_each(|end| end.flying.clear());
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let operation = input.u8();
        let end = usize::from(operation >> 7);
        let at = |input: &mut Input<'_>, count: usize| if input.u8() & 1 == 0 { 0 } else { input.index(count) };
        let count = self.ends[end].flying.len();
        match operation & 15 {
            0..4 if count > 0 => {
                let at = at(input, count);
                let flying = self.ends[end].flying.remove(at);
                self.deliver(end, &flying, operation & 0x40 != 0);
            }
            4 if count > 0 => {
                let at = at(input, count);
                self.ends[end].flying.remove(at);
                self.lost = true;
            }
            5 if count > 0 => {
                let at = at(input, count);
                let flying = self.ends[end].flying[at].clone();
                self.deliver(end, &flying, false);
            }
            6 | 7 if count > 0 => {
                let at = at(input, count);
                let mut flying = self.ends[end].flying[at].clone();
                if self.honest {
                    self.recut(end, input, &mut flying);
                } else {
                    self.rewrite(end, input, &mut flying);
                }
                self.deliver(end, &flying, operation & 0x40 != 0);
            }
            8 | 9 => self.write(end, input.size()),
            10 => self.read(end, input.size()),
            11 => self.wait_for_deadline(),
            12 => self.wait(input),
            13 => self.flush(),
            _ => self.call(end, input),
        }
        // After some operations the connections are not polled, so that their segments are sent late.
        if operation & 0x30 != 0x30 {
            self.drain();
        }
    }

    /// Extends a segment in flight by bytes that precede its payload. A sender may retransmit bytes in other segments than before.
    fn recut(&self, from: usize, input: &mut Input<'_>, flying: &mut Flying) {
        let Some(iss) = self.ends[from].iss.filter(|_| !flying.header.flags.syn && flying.header.urgent.is_none())
        else {
            return;
        };
        let place = flying.header.seq.since(iss + 1);
        let more = u32::from(input.u16() % 2_000).min(place).min(self.ends[from].written);
        // A bare ACK stays one, and a probe begins before the stream.
        if flying.header.sequence_len(flying.payload.len()) > 0 && place <= self.ends[from].written {
            flying.header.seq = flying.header.seq - more;
            let first = contents(salt(from) ^ (place - more), usize::try_from(more).unwrap());
            flying.payload = [first, std::mem::take(&mut flying.payload)].concat();
        }
    }

    /// Changes a segment in flight into one that its end never sent.
    fn rewrite(&self, from: usize, input: &mut Input<'_>, flying: &mut Flying) {
        let Flying { header, payload } = flying;
        let what = input.u8();
        let mut len = payload.len();
        if what & 1 != 0 {
            header.seq = SeqNumber(header.seq.0.wrapping_add(input.distance()));
            len = input.payload_len();
        }
        if what & 2 != 0 {
            header.ack = header.ack.map(|ack| SeqNumber(ack.0.wrapping_add(input.distance())));
        }
        if what & 4 != 0 {
            header.window = input.u16();
        }
        if what & 8 != 0 {
            let base = header.ack.unwrap_or_default();
            let mut edge = base;
            for _ in 0..1 + input.u8() % 4 {
                let start = SeqNumber(edge.0.wrapping_add(input.distance()));
                edge = start + u32::try_from(input.payload_len()).unwrap();
                header.options.sack.push(Block { start, end: edge });
            }
        }
        if what & 16 != 0 {
            header.options.timestamps = match header.options.timestamps {
                Some(Timestamps { value, echo }) if input.u8() < 0xe0 => Some(Timestamps {
                    value: value.wrapping_add(input.distance()),
                    echo: echo.wrapping_add(input.distance()),
                }),
                Some(_) | None => None,
            };
        }
        if what & 32 != 0 {
            let bits = input.u8();
            let set = |bit: u8| bits >> bit & 1 != 0;
            let flags = &mut header.flags;
            (flags.syn, flags.fin, flags.rst) = (set(0), set(1), set(2) && set(3));
            (flags.psh, flags.ece, flags.cwr) = (set(4), set(5), set(6));
            if set(7) {
                header.ack = None;
            }
            if flags.syn {
                let mss = Some(input.pick(&[1_460, 1, 0, 65_535]));
                header.options = HeaderOptions { mss, window_scale: Some(bits & 15), ..header.options };
            }
        }
        if !payload.is_empty() || what & 1 != 0 {
            let first = header.seq + u32::from(header.flags.syn);
            let place = self.ends[from].iss.map_or(0, |iss| first.since(iss + 1));
            // The stream has no bytes before its beginning.
            len = if place.cast_signed() < 0 { 0 } else { len };
            *payload = contents(salt(from) ^ place, len);
        }
    }

    fn write(&mut self, end: usize, len: usize) {
        let from = &mut self.ends[end];
        let Some(connection) = &mut from.connection else { return };
        let room = connection.send_room();
        let bytes = contents(salt(end) ^ from.written, len.min(room));
        let taken = connection.send(self.now, &bytes).unwrap_or(0);
        assert!(taken <= room, "more than there is room for");
        from.written += u32::try_from(taken).unwrap();
    }

    fn read(&mut self, end: usize, most: usize) {
        let iss = self.ends[1 - end].iss.filter(|_| !self.ends[1 - end].mixed);
        let to = &mut self.ends[end];
        let Some(connection) = &mut to.connection else { return };
        let mut into = vec![0; most];
        let count = connection.receive(self.now, &mut into);
        if let Some((irs, iss)) = to.irs.zip(iss) {
            let place = irs.since(iss).wrapping_add(to.read);
            let right = into[..count] == contents(salt(1 - end) ^ place, count);
            assert!(right, "other bytes than were sent, from {} on", to.read);
        }
        to.read += u32::try_from(count).unwrap();
    }

    fn strike(&mut self) {
        if std::mem::take(&mut self.lost) || self.ends.iter().any(|end| !end.flying.is_empty()) {
            self.strikes += 1;
        }
    }

    fn wait(&mut self, input: &mut Input<'_>) {
        self.strike();
        let time = u64::from(input.u16());
        let unit = if self.honest { 1 } else { input.pick(&[1, 1, 1, 1_000, 100_000]) };
        self.now += Duration::from_millis(time * unit);
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
    }

    fn deadline(&self) -> Option<Instant> {
        self.ends.iter().filter_map(|end| end.connection.as_ref()?.poll_timeout()).min()
    }

    /// Advances the clock to the earlier deadline of the two ends. Panics if an end does not move its deadline when the time has
    /// come.
    fn wait_for_deadline(&mut self) {
        self.strike();
        let Some(at) = self.deadline() else { return };
        self.now = self.now.max(at);
        for end in 0..2 {
            self.ends[end].handle_timeout(self.now);
            self.drain_end(end);
            let Some(connection) = &self.ends[end].connection else { continue };
            let moves = connection.poll_timeout().is_none_or(|next| next > self.now);
            assert!(moves, "a deadline that does not move: {connection:?}");
        }
    }

    /// Makes a call on a connection, as an application or as the connection's owner would.
    fn call(&mut self, at: usize, input: &mut Input<'_>) {
        let (now, honest) = (self.now, self.honest);
        let kind = input.u8();
        let end = &mut self.ends[at];
        end.model.note_call();
        let Some(connection) = &mut end.connection else { return };
        match kind % 15 {
            0 if connection.state_name() != StateName::SynSent || !honest => connection.shutdown(now),
            1 if !honest => {
                connection.close(now);
                end.closed = true;
            }
            2 if !honest => {
                connection.abort();
                end.closed = true;
            }
            3 => connection.carrier_up(now),
            4 => connection.set_path_mss(now, input.pick(&[0, 48, 1_000, 1_460, 65_535])),
            5 => connection.set_no_delay(now, input.u8() & 1 != 0),
            6 => drop(connection.set_receive_buffer(input.size().max(BUFFER_BYTES_MIN))),
            7 => drop(connection.set_send_buffer(input.size().max(BUFFER_BYTES_MIN))),
            8 => connection.set_congestion(input.pick(&CongestionControl::ALL)),
            9 if !honest => drop(connection.set_user_timeout(Some(Duration::from_millis(u64::from(input.u16()))))),
            10 => {
                let seq = end.iss.unwrap_or_default() + (end.written + 1).wrapping_add(input.distance());
                let too_big = SegmentError::TooBig(input.pick(&[0, 28, 500, 1_400]));
                let error =
                    if honest { too_big } else { input.pick(&[too_big, SegmentError::Soft, SegmentError::Hard]) };
                let _ = connection.handle_icmp(now, seq, error);
                let _ = connection.take_soft_error();
            }
            11 => {
                end.config.mss = input.pick(&[48, 1_000, 1_460, 8_960]);
                connection.set_device_mss(now, end.config.mss);
            }
            12 => {
                let bytes = contents(salt(at) ^ end.written, input.size().min(connection.send_room()));
                end.written += u32::try_from(connection.send_urgent(now, &bytes).unwrap_or(0)).unwrap();
            }
            13 => drop((connection.urgent_ahead(), connection.take_event())),
            _ => connection.release_empty_buffers(),
        }
    }

    fn check(&self) {
        for end in &self.ends {
            let Some(connection) = &end.connection else { continue };
            connection.check();
            let Some(info) = connection.info() else { continue };
            // Buffers grow by doubling, so they can have twice the maximum size. The lists of sent segments and of gaps have their
            // own limits.
            let most = 2 * (2 * BUFFER_BYTES_MAX) + (1 << 20);
            assert!(info.buffer_bytes <= most, "{info:?}");
            assert!(info.sent_segments <= 2 * usize::from(TCP_SENT_MAX), "{info:?}");
        }
    }

    /// Ends the run: the link has no more faults, and both applications read everything and close.
    fn end(&mut self) {
        let failed = |end: &End| end.connection.as_ref().is_none_or(|connection| connection.failure().is_some());
        let alive = self.honest && self.strikes <= STRIKES_MAX && !self.ends.iter().any(failed);
        let until = self.now + Duration::from_secs(3 * 3_600);
        for wakes in 0.. {
            assert!(wakes < 20_000 && self.now < until, "a connection that never ends: {:?}", self.states());
            self.drain();
            self.flush();
            for end in 0..2 {
                while self.ends[end].connection.as_ref().is_some_and(|connection| connection.received() > 0) {
                    self.read(end, 1 << 16);
                }
                self.leave(end);
            }
            self.drain();
            self.check();
            if self.ends.iter().any(|end| !end.flying.is_empty()) {
                continue;
            }
            if self.deadline().is_none() {
                break;
            }
            self.wait_for_deadline();
        }
        assert!(self.states().into_iter().flatten().all(|state| state == StateName::Closed), "{:?}", self.states());
        if alive {
            let failures = self.ends.each_ref().map(|end| end.connection.as_ref().and_then(Connection::failure));
            // A late FIN can arrive after TIME-WAIT, when the other end has already forgotten the connection. In this case the
            // sender of the FIN fails.
            assert!(self.strikes > 0 || failures == [None; 2], "{failures:?} over a link that lost nothing");
            assert_eq!((self.ends[0].written, self.ends[1].written), (self.ends[1].read, self.ends[0].read), "streams");
        }
    }

    /// Makes an application stop writing. The application also stops reading if the other end is closed.
    fn leave(&mut self, end: usize) {
        let gone = self.states()[1 - end] == Some(StateName::Closed);
        let End { connection: Some(connection), closed, .. } = &mut self.ends[end] else { return };
        if (!self.honest || gone) && !*closed {
            connection.close(self.now);
            *closed = true;
        }
        if self.honest && connection.state_name() != StateName::SynSent {
            connection.shutdown(self.now);
        }
    }

    fn states(&self) -> [Option<StateName>; 2] {
        [0, 1].map(|end| self.ends[end].connection.as_ref().map(Connection::state_name))
    }
}
