//! A model of one end of a connection. It checks each segment that the end sends, and the timers of the end.
//!
//! The model sees the same segments as the end. It shares no code with the stack: it keeps the received ranges as a plain list,
//! each with the number of its latest arrival. It knows the honest part of TCP only, so it judges no end whose peer breaks rules.

use siga_stack::tcp::{Info, RecoveryPhase};
use siga_stack::time::Instant;
use siga_stack::wire::tcp::{Block, Header, SeqNumber};

/// Maximum number of ranges behind gaps for which the model knows the order of the SACK blocks.
const ORDERED_MAX: usize = 4;
/// Maximum number of ranges behind gaps. The stack may drop segments if there are more.
const RUNS_MAX: usize = 200;

/// What a received segment means for the timers of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A pure acknowledgement that repeats the previous one.
    Repeated,
    /// An acknowledgement from which no RTT can be computed (Karn's algorithm).
    NoSample,
    /// Anything else.
    Other,
}

/// What the end reports of itself: its next deadline, and its statistics if it is synchronised.
pub(super) struct Reported {
    pub(super) deadline: Option<Instant>,
    pub(super) info: Option<Info>,
}

/// A received range behind a gap, and the number of the latest arrival in it.
#[derive(Debug, Clone, Copy)]
struct Run {
    block: Block,
    arrival: u64,
}

/// The options of a SYN.
#[derive(Debug, Clone, Copy)]
struct Offer {
    sack: bool,
    timestamps: bool,
    scale: Option<u8>,
    window: u16,
}

/// The model of one end.
#[derive(Debug, Default)]
pub(super) struct Model {
    own: Option<Offer>,
    peer: Option<Offer>,
    /// RCV.NXT, and the right edge of the offered window.
    next: SeqNumber,
    edge: SeqNumber,
    fin: Option<SeqNumber>,
    finished: bool,
    /// Sorted, without overlaps.
    runs: Vec<Run>,
    arrivals: u64,
    /// Whether there were more runs than [`ORDERED_MAX`] since there was none.
    unordered: bool,
    duplicate: Option<Block>,
    /// TS.Recent and Last.ACK.sent.
    recent: u32,
    acknowledged: SeqNumber,
    /// SND.UNA and the highest SND.NXT so far.
    una: SeqNumber,
    sent: SeqNumber,
    window: u32,
    window_max: u32,
    repeated: Vec<Block>,
    /// No SACK block ends after this sequence number.
    sacked: SeqNumber,
    /// The end of what was sent when a timer last expired.
    probed: Option<SeqNumber>,
    /// Whether the latest segment acknowledged bytes that were sent once, which gives an RTT sample if no loss is being repaired.
    measures: bool,
    /// Whether there may be no RTT sample since a timer last expired. Then there is no tail-loss probe.
    unmeasured: bool,
    /// The latest segment that was sent, if no segment has arrived since then.
    last: Option<Header>,
    /// Whether the end has sent timestamps, except in a SYN.
    stamped: bool,
    /// Whether the model no longer knows what the end has to do.
    gave_up: bool,
}

fn offer(header: &Header) -> Offer {
    let options = &header.options;
    let (sack, timestamps) = (options.sack_permitted, options.timestamps.is_some());
    Offer { sack, timestamps, scale: options.window_scale, window: header.window }
}

fn before(a: SeqNumber, b: SeqNumber) -> bool {
    a.0.wrapping_sub(b.0).cast_signed() < 0
}

fn lower(a: SeqNumber, b: SeqNumber) -> SeqNumber {
    if before(b, a) { b } else { a }
}

fn higher(a: SeqNumber, b: SeqNumber) -> SeqNumber {
    if before(a, b) { b } else { a }
}

fn contains(outer: Block, inner: Block) -> bool {
    !before(inner.start, outer.start) && !before(outer.end, inner.end)
}

impl Model {
    fn agree(&self, option: impl Fn(&Offer) -> bool) -> bool {
        self.own.as_ref().is_some_and(&option) && self.peer.as_ref().is_some_and(&option)
    }

    /// Gives up judging the end.
    pub(super) fn give_up(&mut self) {
        self.gave_up = true;
    }

    /// Notes a call of the application, which may change the window.
    pub(super) fn note_call(&mut self) {
        self.last = None;
    }

    fn is_sacked(&self) -> bool {
        before(self.una, self.sacked)
    }

    /// Processes a segment that the end receives.
    pub(super) fn receive(&mut self, header: &Header, len: usize) -> Meaning {
        self.last = None;
        let len = u32::try_from(len).unwrap_or(0);
        if header.flags.syn && self.peer.is_none() {
            self.peer = Some(offer(header));
            self.next = header.seq + 1;
            self.edge = self.next + self.own.map_or(0, |own| u32::from(own.window));
            (self.acknowledged, self.window) = (self.next, u32::from(header.window));
            self.window_max = self.window;
            self.recent = header.options.timestamps.map_or(0, |stamps| stamps.value);
            self.gave_up |= len > 0 || header.flags.fin;
            self.una = higher(self.una, header.ack.unwrap_or(self.una));
        }
        let judged = self.peer.is_some() && !header.flags.syn && !header.flags.rst && !self.gave_up;
        let Some(ack) = header.ack.filter(|_| judged) else { return Meaning::Other };
        let end = header.seq + len;
        if self.agree(|offer| offer.timestamps) {
            let Some(stamps) = header.options.timestamps else { return Meaning::Other };
            if before(SeqNumber(stamps.value), SeqNumber(self.recent)) {
                self.note_old(Block { start: header.seq, end: end + u32::from(header.flags.fin) });
                return Meaning::Other;
            }
        }
        let fin = u32::from(header.flags.fin);
        if before(end + fin, self.next) || before(higher(self.edge, self.next), header.seq) {
            self.note_old(Block { start: header.seq, end: end + fin });
            return Meaning::Other;
        }
        if before(self.sent, ack) || before(ack, self.una - self.window_max) {
            return Meaning::Other;
        }
        let newest = !before(self.acknowledged, header.seq) && !before(ack, self.una);
        if let Some(stamps) = header.options.timestamps.filter(|_| newest) {
            self.recent = stamps.value;
        }
        let meaning = self.acknowledge(header, ack, len + fin == 0);
        self.take(Block { start: header.seq, end }, header.flags.fin);
        meaning
    }

    fn acknowledge(&mut self, header: &Header, ack: SeqNumber, bare: bool) -> Meaning {
        let blocks = header.options.sack.as_slice();
        let scale =
            if self.agree(|offer| offer.scale.is_some()) { self.peer.and_then(|peer| peer.scale) } else { None };
        let window = u32::from(header.window) << scale.unwrap_or(0);
        let same = window == self.window;
        (self.window, self.window_max) = (window, self.window_max.max(window));
        for block in blocks {
            self.sacked = higher(self.sacked, block.end);
        }
        if before(self.una, ack) {
            let acked = Block { start: self.una, end: ack };
            self.una = ack;
            // An ACK that covers a retransmission gives no sample, except by its timestamp.
            let repeats = self.repeated.iter().any(|block| before(block.start, ack) && before(acked.start, block.end));
            self.measures = self.sent_once(acked) && (!repeats || self.agree(|offer| offer.timestamps));
            self.sacked = higher(self.sacked, ack);
            // RFC 8985 section 7.4.2: only an ACK beyond the probe ends the episode for certain.
            self.probed = self.probed.filter(|probed| !before(*probed, ack));
            let sample = blocks.len() + usize::from(self.agree(|offer| offer.timestamps)) > 0 || self.sent_once(acked);
            self.repeated.retain(|block| before(ack, block.end));
            return if sample { Meaning::Other } else { Meaning::NoSample };
        }
        let repeats = ack == self.una && bare && same && blocks.is_empty() && !header.flags.ece;
        if repeats { Meaning::Repeated } else { Meaning::Other }
    }

    /// Returns whether any byte of `acked` was sent only once.
    fn sent_once(&self, acked: Block) -> bool {
        let mut at = acked.start;
        while before(at, acked.end) {
            match self.repeated.iter().find(|block| !before(at, block.start) && before(at, block.end)) {
                Some(block) => at = block.end,
                None => return true,
            }
        }
        false
    }

    /// Only the first duplicate is reported, with what follows it without a gap.
    fn note_duplicate(&mut self, block: Block) {
        match &mut self.duplicate {
            Some(first) if first.end == block.start => first.end = block.end,
            Some(_) => {}
            None => self.duplicate = Some(block),
        }
    }

    /// Notes the part of a segment that lies before RCV.NXT. A FIN counts like a byte.
    fn note_old(&mut self, segment: Block) {
        let end = lower(segment.end, self.next);
        if before(segment.start, end) {
            self.note_duplicate(Block { end, ..segment });
        }
    }

    /// Takes the part of a payload that lies in the window, and the FIN behind it.
    fn take(&mut self, payload: Block, fin: bool) {
        if payload.start == payload.end && !fin {
            return;
        }
        if self.finished {
            self.note_old(Block { end: payload.end + u32::from(fin), ..payload });
            return;
        }
        let old = !before(self.next, payload.end);
        let stop = lower(lower(payload.end, self.edge), self.fin.unwrap_or(payload.end));
        let start = higher(payload.start, self.next);
        if payload.start != payload.end && old {
            self.note_old(Block { end: payload.end + u32::from(fin), ..payload });
        } else if payload.start != payload.end {
            if !before(start, stop) {
                return;
            }
            if before(payload.start, start) {
                self.note_duplicate(Block { start: payload.start, end: start });
            }
            self.insert(Block { start, end: stop });
        }
        let cut = !old && before(self.edge, payload.end);
        if fin && !cut && !before(payload.end, self.next) && self.fin.is_none() {
            self.fin = Some(payload.end);
        }
        while let Some(run) = self.runs.first().copied().filter(|run| !before(self.next, run.block.start)) {
            self.next = higher(self.next, run.block.end);
            self.runs.remove(0);
        }
        self.unordered &= !self.runs.is_empty();
        if self.fin == Some(self.next) {
            self.next += 1;
            self.finished = true;
        }
    }

    fn insert(&mut self, fresh: Block) {
        let overlap = self
            .runs
            .iter()
            .map(|run| Block { start: higher(run.block.start, fresh.start), end: lower(run.block.end, fresh.end) });
        if let Some(twice) = overlap.clone().find(|block| before(block.start, block.end)) {
            self.note_duplicate(twice);
        }
        let mut joined = fresh;
        for run in &self.runs {
            if !before(run.block.end, joined.start) && !before(joined.end, run.block.start) {
                joined.start = lower(joined.start, run.block.start);
                joined.end = higher(joined.end, run.block.end);
            }
        }
        self.runs.retain(|run| !contains(joined, run.block));
        self.arrivals += 1;
        let at = self.runs.iter().take_while(|run| before(run.block.start, joined.start)).count();
        self.runs.insert(at, Run { block: joined, arrival: self.arrivals });
        self.unordered |= self.runs.len() > ORDERED_MAX;
        self.gave_up |= self.runs.len() > RUNS_MAX;
    }

    /// Processes a segment that the end sends. Panics if the segment breaks a rule.
    pub(super) fn send(&mut self, header: &Header, len: usize) {
        let len = u32::try_from(len).unwrap_or(0);
        let stamped = header.options.timestamps.is_some();
        // RFC 7323 section 3.2.
        assert!(header.flags.syn || stamped || !self.stamped, "a segment without timestamps: {header:?}");
        self.stamped |= stamped && !header.flags.syn;
        if header.flags.rst {
            return;
        }
        let end = header.seq + len + u32::from(header.flags.fin) + u32::from(header.flags.syn);
        if header.flags.syn {
            if self.own.is_none() {
                (self.una, self.sent, self.sacked) = (end, end, end);
                self.edge = self.next + u32::from(header.window);
            }
            self.own = Some(offer(header));
            return;
        }
        if !self.gave_up && self.peer.is_some() {
            self.check(header, len);
        }
        if before(header.seq, self.sent) && before(header.seq, end) {
            self.repeated.push(Block { start: header.seq, end: lower(end, self.sent) });
        }
        self.sent = higher(self.sent, end);
        // The peer ignores the acknowledgement of a probe, because it has received the probe's sequence number before.
        if !before(header.seq, self.una) {
            self.last = Some(*header);
        }
    }

    fn check(&mut self, header: &Header, len: u32) {
        assert_eq!(header.ack, Some(self.next), "RCV.NXT is {:?}, {self:?}", self.next);
        let scale = if self.agree(|offer| offer.scale.is_some()) { self.own.and_then(|own| own.scale) } else { None };
        let edge = self.next + (u32::from(header.window) << scale.unwrap_or(0));
        assert!(self.finished || !before(edge, self.edge), "the window shrinks from {:?} to {edge:?}", self.edge);
        self.edge = edge;
        self.acknowledged = self.next;
        // A probe has a sequence number that the peer has received before.
        let probe = len == 0 && before(header.seq, self.una);
        let bare = len == 0 && !header.flags.fin && !probe;
        if bare
            && header.urgent.is_none()
            && let Some(last) = &self.last
        {
            let same = (last.ack, last.window, last.flags.ece) == (header.ack, header.window, header.flags.ece);
            assert!(!same || self.has_blocks(), "a pure ACK again, although nothing has arrived: {header:?}");
        }
        self.check_blocks(header.options.sack.as_slice(), bare);
    }

    fn has_blocks(&self) -> bool {
        let waits = self.duplicate.is_some() || !self.runs.is_empty() || self.waiting_fin().is_some();
        self.agree(|offer| offer.sack) && waits
    }

    /// Returns the sequence number of a FIN that has arrived ahead of a gap.
    fn waiting_fin(&self) -> Option<SeqNumber> {
        self.fin.filter(|_| !self.finished)
    }

    /// Checks the order of SACK blocks (RFC 2018 section 4, RFC 2883 section 4).
    fn check_blocks(&mut self, sent: &[Block], bare: bool) {
        if !self.has_blocks() {
            return assert!(sent.is_empty(), "blocks without a reason: {sent:?}, {self:?}");
        }
        let mut runs = self.runs.clone();
        runs.sort_by_key(|run| std::cmp::Reverse(run.arrival));
        let holder = self.duplicate.and_then(|twice| runs.iter().position(|run| contains(run.block, twice)));
        if let Some(at) = holder {
            let run = runs.remove(at);
            runs.insert(0, run);
        }
        // A FIN ahead of a gap counts like a byte.
        let fin = self.waiting_fin();
        let alone = fin.filter(|fin| runs.iter().all(|run| run.block.end != *fin));
        let alone = alone.map(|fin| Block { start: fin, end: fin + 1 });
        let with_fin = |run: &Run| Block { end: run.block.end + u32::from(Some(run.block.end) == fin), ..run.block };
        let held = usize::from(holder.is_some());
        let blocks = runs[..held].iter().map(with_fin).chain(alone).chain(runs[held..].iter().map(with_fin));
        let wanted: Vec<Block> = self.duplicate.into_iter().chain(blocks).collect();
        let most = if self.agree(|offer| offer.timestamps) { 3 } else { 4 };
        assert!(!bare || sent.len() == wanted.len().min(most), "{sent:?}, not {wanted:?}");
        // The stack remembers the order of the latest runs only. But the run of the latest arrival is always first.
        let first = usize::from(runs.first().is_some_and(|run| run.arrival == self.arrivals || holder.is_some()));
        let known = if self.unordered || alone.is_some() {
            usize::from(self.duplicate.is_some()) + if alone.is_some() { 0 } else { first }
        } else {
            sent.len()
        };
        let ordered = sent.len().min(known);
        assert_eq!(sent[..ordered], wanted[..ordered], "{self:?}");
        assert!(sent.iter().all(|block| wanted.contains(block)), "{sent:?}, not of {wanted:?}");
        if !sent.is_empty() {
            self.duplicate = None;
        }
    }

    /// Checks the timers of the end after it has processed a segment with this meaning.
    pub(super) fn check_timers(&mut self, meaning: Meaning, earlier: &Reported, later: &Reported) {
        let (Some(earlier_info), Some(later_info)) = (&earlier.info, &later.info) else { return };
        if self.gave_up {
            return;
        }
        if std::mem::take(&mut self.measures) && earlier_info.recovery == RecoveryPhase::Open {
            self.unmeasured = false;
        }
        // RFC 6298 section 5.
        let shorter = later_info.timeout < earlier_info.timeout;
        assert!(
            meaning != Meaning::NoSample || !shorter,
            "an RTO without its backoff: {earlier_info:?}, {later_info:?}"
        );
        // RFC 8985 section 7.2.
        let open = [earlier_info, later_info].iter().all(|info| info.recovery == RecoveryPhase::Open);
        let waits = before(self.una, self.sent) && self.agree(|offer| offer.sack) && !self.is_sacked() && open;
        if let (Meaning::Repeated, true, Some(earlier), Some(later)) =
            (meaning, waits, earlier.deadline, later.deadline)
        {
            assert!(later <= earlier, "an ACK without progress delays a timer from {earlier:?} to {later:?}");
        }
    }

    /// Checks what an expired timer did.
    pub(super) fn check_expiry(&mut self, earlier: &Reported, later: &Reported) {
        let (Some(earlier), Some(later)) = (&earlier.info, &later.info) else { return };
        if self.gave_up || earlier.recovery != RecoveryPhase::Open {
            return;
        }
        // No probe follows a segment of the persist timer before the peer has answered.
        self.unmeasured |= !before(self.una, self.sent);
        // RFC 8985 sections 7.2 and 7.3: a tail-loss probe precedes the first timeout if there is a new RTT sample.
        let probes = before(self.una, self.sent) && self.agree(|offer| offer.sack) && !self.is_sacked();
        let timed_out = later.recovery == RecoveryPhase::Loss;
        let needs_none = self.probed.is_some() || self.unmeasured || earlier.rtt.is_none();
        assert!(!(probes && timed_out) || needs_none, "a timeout without a probe: {later:?}");
        if probes {
            (self.probed, self.unmeasured) = (Some(self.sent), true);
        }
    }
}
