//! Draws dialogues from seeds: an opening, moves of both sides in any state, and a wait in which timers run.
//!
//! The drawn peer follows the connection well enough to reach every state, and often breaks its rules. Waits keep a distance from
//! the usual timers (40 ms and 200 ms after an event), so that a busy machine rarely changes the order of events.

use siga_sim::rng::{Ppm, Rng};

use super::dialogue::{AckNumber, Act, Call, Cookie, Dialogue, PathError, PeerSegment, Step, Timestamp};
use super::packet::{CWR, ECE, FIN, PSH, RST, SYN};

/// Longest duration of a dialogue before its last wait.
const DIALOGUE_MS_MAX: u32 = 2_500;

/// The sequence number of the second SYN of a dialogue with Fast Open.
const SECOND_SYN: u32 = 100_000;

struct Draw {
    rng: Rng,
    /// Decides on moves that were added later, so that other moves stay the same.
    added: Rng,
    dialogue: Dialogue,
    elapsed_ms: u32,
    /// The peer's SYN or SYN-ACK, whose options the whole dialogue follows.
    offer: PeerSegment,
    /// The peer's next sequence number.
    next: u32,
    /// Parts of the peer's data that were not sent.
    holes: Vec<(u32, u16)>,
    window: u16,
    /// Bytes that the application has written.
    written: u32,
}

/// Returns the dialogue of a seed.
pub(crate) fn dialogue(seed: u64) -> Dialogue {
    let mut rng = Rng::new(seed, 1);
    let v6 = rng.chance(Ppm::percent(25));
    let ecn = rng.chance(Ppm::percent(15));
    let mut draw = Draw {
        dialogue: Dialogue { v6, ecn, steps: Vec::new() },
        elapsed_ms: 0,
        offer: PeerSegment::default(),
        next: 1,
        holes: Vec::new(),
        window: 0,
        written: 0,
        added: Rng::new(seed, 2),
        rng,
    };
    draw.offer();
    if draw.added.chance(Ppm::percent(8)) {
        draw.fast_open();
    } else if draw.percent(60) {
        draw.passive();
    } else {
        draw.active();
    }
    for _ in 0..draw.rng.between(1, 14) {
        if draw.elapsed_ms < DIALOGUE_MS_MAX {
            draw.some_move();
        }
    }
    let rest = draw.pick(&[300, 700, 1_500]);
    draw.step(rest, Act::Wait);
    draw.dialogue
}

impl Draw {
    fn percent(&mut self, percent: u32) -> bool {
        self.rng.chance(Ppm::percent(percent))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.index(from.len())]
    }

    fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.rng.below(end.into())).unwrap_or(0)
    }

    fn step(&mut self, after_ms: u32, act: Act) {
        self.elapsed_ms += after_ms;
        self.dialogue.steps.push(Step { after_ms, act });
    }

    /// A time until the next step.
    fn pause(&mut self) -> u32 {
        self.pick(&[0, 0, 0, 0, 0, 5, 5, 20, 20, 70, 120, 300, 480, 850])
    }

    fn call(&mut self, call: Call) {
        let after = self.pause();
        self.step(after, Act::Call(call));
    }

    fn peer(&mut self, segment: PeerSegment) {
        let after = self.pause();
        self.peer_after(after, segment);
    }

    /// Sends a segment with the present timestamp.
    fn peer_after(&mut self, after: u32, mut segment: PeerSegment) {
        if let Some(timestamp) = &mut segment.timestamp {
            timestamp.value = timestamp.value.wrapping_add(self.elapsed_ms + after);
        }
        self.step(after, Act::Peer(segment));
    }

    fn offer(&mut self) {
        let timestamp = self.percent(70).then_some(Timestamp { value: 1_000, echo: None });
        self.offer = PeerSegment {
            flags: SYN,
            window: self.pick(&[64_240, 65_535, 8_192, 1_000]),
            mss: self.pick(&[Some(1_460), Some(1_460), Some(1_000), Some(536), Some(88), Some(20), None]),
            sack_permitted: self.percent(75),
            window_scale: self.pick(&[Some(7), Some(0), Some(2), None]),
            timestamp,
            ..PeerSegment::default()
        };
        self.window = self.pick(&[64_240, 5_000, 1_000, 500]);
    }

    /// A segment that continues the peer's stream, with `len` bytes.
    fn segment(&mut self, flags: u8, len: u16) -> PeerSegment {
        let timestamp = self.offer.timestamp;
        PeerSegment {
            flags,
            seq: self.next,
            ack: Some(AckNumber::All(0)),
            window: self.window,
            len,
            timestamp,
            ..PeerSegment::default()
        }
    }

    fn passive(&mut self) {
        self.step(0, Act::Call(Call::Listen));
        let mut syn = self.offer.clone();
        if self.percent(20) {
            syn.flags |= ECE | CWR;
        }
        if self.percent(5) {
            syn.len = self.pick(&[1, 100]);
        }
        self.peer(syn.clone());
        while self.percent(15) {
            self.opening_oddity(&syn);
        }
        let ack = self.segment(0, 0);
        if self.percent(90) {
            let after = self.pick(&[0, 20, 20, 70]);
            self.peer_after(after, ack);
        }
        self.call(Call::Accept);
    }

    fn active(&mut self) {
        self.step(0, Act::Call(Call::Connect));
        let mut answer = PeerSegment { ack: Some(AckNumber::All(0)), ..self.offer.clone() };
        if self.dialogue.ecn && self.percent(70) {
            answer.flags |= ECE;
        }
        while self.percent(15) {
            self.opening_oddity(&answer);
        }
        if self.percent(5) {
            // Both sides open.
            answer.ack = None;
        }
        let after = self.pick(&[0, 20, 20, 70]);
        self.peer_after(after, answer);
    }

    /// Opens a connection in order to get a cookie, ends it, and opens another one with data in the SYN.
    fn fast_open(&mut self) {
        let bytes = self.pick(&[0, 1, 100, 1_000, 3_000]);
        if self.percent(60) {
            self.step(0, Act::Call(Call::Listen));
            let request = PeerSegment { fast_open: Some(Cookie::Request), ..self.offer.clone() };
            self.peer(request);
            let reset = PeerSegment { flags: RST, seq: 1, timestamp: None, ..PeerSegment::default() };
            self.peer(reset);
            let cookie = self.pick(&[Cookie::Latest, Cookie::Latest, Cookie::Latest, Cookie::Own, Cookie::Request]);
            let len = u16::try_from(bytes).unwrap_or(0).min(1_400);
            let mut syn = PeerSegment { seq: SECOND_SYN, len, fast_open: Some(cookie), ..self.offer.clone() };
            if self.percent(10) {
                syn.flags |= FIN;
            }
            self.next = SECOND_SYN + 1;
            if cookie == Cookie::Latest {
                self.next = syn.end();
            }
            self.peer(syn.clone());
            if self.percent(15) {
                self.peer(syn);
            }
            if self.percent(50) {
                self.call(Call::Accept);
            }
            if self.percent(50) {
                self.write();
            }
            let ack = self.segment(0, 0);
            self.peer(ack);
            self.call(Call::Accept);
            return;
        }
        for is_last in [false, true] {
            self.step(0, Act::Call(Call::ConnectWith(bytes)));
            let mut answer = PeerSegment { ack: Some(AckNumber::All(0)), ..self.offer.clone() };
            answer.fast_open = self.pick(&[Some(Cookie::Own), Some(Cookie::Own), Some(Cookie::Own), None]);
            if self.percent(20) {
                answer.ack = Some(AckNumber::At(1));
            }
            let after = self.pick(&[0, 20, 20, 70]);
            self.peer_after(after, answer);
            if !is_last {
                self.call(Call::Abort);
            }
        }
    }

    /// A segment that is wrong or unusual in a handshake.
    fn opening_oddity(&mut self, syn: &PeerSegment) {
        let base = self.segment(0, 0);
        let segment = match self.below(8) {
            0 => syn.clone(),
            1 => PeerSegment { seq: self.below(5_000), ..syn.clone() },
            2 => PeerSegment { ack: Some(AckNumber::All(self.pick(&[-1, 1, 1_000]))), ..base },
            3 => PeerSegment { flags: RST, seq: self.pick(&[0, 1, 2, 300_000]), ack: None, ..base },
            4 => PeerSegment { flags: RST, ack: Some(AckNumber::All(self.pick(&[-1, 0, 1]))), ..base },
            5 => PeerSegment { flags: PSH, len: 100, ..base },
            6 => PeerSegment { flags: FIN, ..base },
            _ => PeerSegment { ack: None, len: self.pick(&[0, 10]), ..base },
        };
        self.peer(segment);
    }

    fn some_move(&mut self) {
        match self.below(100) {
            0..16 => self.data(),
            16..24 => self.old_data(),
            24..32 => {
                let bytes = self.pick(&[10, 1_000, 10_000, 100_000]);
                self.call(Call::Receive(bytes));
            }
            32..46 => self.write(),
            46..62 => self.acknowledge(),
            62..66 => self.reset(),
            66..72 => self.end_of_stream(),
            72..78 => self.close(),
            78..84 => self.wrong_number(),
            84..88 => self.wrong_timestamp(),
            88..91 => self.urgent(),
            91..94 => self.congestion_marks(),
            94..96 => self.path_error(),
            _ => self.settings(),
        }
    }

    fn data(&mut self) {
        let most = self.pick(&[1, 100, 536, 1_000, 1_400]);
        let flags = self.pick(&[0, PSH]);
        let mut segment = self.segment(flags, most);
        if self.percent(25) {
            // The segment in front of this one is lost.
            let lost = self.pick(&[1, 300, 1_400]);
            self.holes.push((segment.seq, lost));
            segment.seq = segment.seq.wrapping_add(lost.into());
        }
        self.next = segment.end();
        if self.percent(6) {
            segment.flags |= FIN;
            self.next = segment.end();
        }
        self.peer(segment);
    }

    /// A retransmission: of a hole, or of any data.
    fn old_data(&mut self) {
        let mut segment = self.segment(0, 0);
        if !self.holes.is_empty() && self.percent(60) {
            let hole = self.rng.index(self.holes.len());
            (segment.seq, segment.len) = self.holes.swap_remove(hole);
        } else {
            let back = self.pick(&[1, 100, 536, 1_000, 1_400, 3_000]);
            segment.seq = self.next.wrapping_sub(back);
            segment.len = self.pick(&[0, 1, 50, 536, 1_400]);
            if self.percent(15) {
                segment.flags |= FIN;
            }
            let end = segment.end();
            if end.wrapping_sub(self.next).cast_signed() > 0 {
                self.next = end;
            }
        }
        self.peer(segment);
    }

    fn write(&mut self) {
        let bytes = self.pick(&[1, 100, 1_000, 2_000, 5_000, 15_000]);
        self.written += bytes;
        self.call(Call::Send(bytes));
    }

    fn acknowledge(&mut self) {
        if self.percent(20) {
            self.window = self.pick(&[0, 0, 1, 500, 5_000, 64_240]);
        }
        let mut segment = self.segment(0, 0);
        let unit = u32::from(self.offer.mss.unwrap_or(536)) - if self.offer.timestamp.is_some() { 12 } else { 0 };
        let unit = unit.max(36);
        if self.percent(45) {
            segment.ack = Some(AckNumber::At(1 + unit * self.below(6)));
        }
        if self.offer.sack_permitted && self.percent(50) {
            let mut start = 1 + unit * self.rng.between(1, 5).try_into().unwrap_or(1);
            for _ in 0..self.rng.between(1, 2) {
                let end = start + unit * (1 + self.below(2));
                segment.sack.insert(0, (start, end));
                start = end + unit;
            }
        }
        let copies = if self.percent(25) { 3 } else { 1 };
        for _ in 0..copies {
            self.peer(segment.clone());
        }
    }

    fn reset(&mut self) {
        let mut segment = self.segment(RST, 0);
        segment.seq = segment.seq.wrapping_add_signed(self.pick(&[0, 0, 0, 1, -1, 1_000, -1_000, 300_000]));
        if self.percent(40) {
            segment.ack = None;
        }
        if self.percent(50) {
            segment.timestamp = None;
        }
        self.peer(segment);
    }

    fn end_of_stream(&mut self) {
        let len = self.pick(&[0, 0, 100]);
        let mut segment = self.segment(FIN, len);
        self.next = segment.end();
        if self.added.chance(Ppm::percent(15)) {
            // Both sides close at once: the peer has not received the FIN of the host yet.
            self.call(Call::Shutdown);
            segment.ack = Some(AckNumber::All(-1));
            self.peer_after(0, segment);
            let ack = self.segment(0, 0);
            let after = if self.added.chance(Ppm::percent(50)) { 0 } else { 20 };
            self.peer_after(after, ack);
            return;
        }
        self.peer(segment);
    }

    fn close(&mut self) {
        let call = self.pick(&[Call::Shutdown, Call::Shutdown, Call::Close, Call::Close, Call::Abort]);
        self.call(call);
    }

    fn wrong_number(&mut self) {
        let mut segment = self.segment(0, 0);
        match self.below(6) {
            0 => segment.ack = Some(AckNumber::All(self.pick(&[1, 1_000, 100_000, -1, -1_000, -100_000]))),
            1 => {
                segment.seq = segment.seq.wrapping_add_signed(self.pick(&[-1, -1, 300_000, -70_000, 6_000_000]));
                segment.len = self.pick(&[0, 0, 1, 100]);
            }
            2 => {
                segment.flags = SYN;
                segment.seq = segment.seq.wrapping_add_signed(self.pick(&[0, -1, 5_000, 100_000]));
                if self.percent(60) {
                    segment.ack = None;
                }
            }
            3 => (segment.ack, segment.len) = (None, self.pick(&[0, 100])),
            4 => {
                segment.flags = self.pick(&[SYN | FIN, SYN | RST, FIN | RST, FIN | SYN | RST]);
                segment.ack = None;
            }
            // A keepalive probe.
            _ => {
                segment.seq = segment.seq.wrapping_sub(1);
                segment.len = self.pick(&[0, 1]);
            }
        }
        self.peer(segment);
    }

    fn wrong_timestamp(&mut self) {
        let len = self.pick(&[0, 0, 100]);
        let mut segment = self.segment(0, len);
        if self.offer.timestamp.is_none() || self.percent(30) {
            segment.timestamp =
                if segment.timestamp.is_some() { None } else { Some(Timestamp { value: 5, echo: None }) };
        } else {
            let value = 1_000_u32.wrapping_add_signed(self.pick(&[-5_000, -100_000, -1_000_000_000, 100_000]));
            let echo = self.pick(&[None, None, Some(0), Some(77)]);
            segment.timestamp = Some(Timestamp { value, echo });
        }
        if self.percent(40) {
            self.next = segment.end();
        }
        self.peer(segment);
    }

    fn urgent(&mut self) {
        if self.percent(50) {
            let bytes = self.pick(&[1, 100]);
            self.written += bytes;
            self.call(Call::SendUrgent(bytes));
            return;
        }
        let len = self.pick(&[1, 100]);
        let segment = self.segment(PSH, len);
        let segment = PeerSegment { urgent: Some(self.pick(&[0, 1, 50, 100, 2_000])), ..segment };
        self.next = segment.end();
        self.peer(segment);
    }

    fn congestion_marks(&mut self) {
        let len = self.pick(&[0, 100, 1_000]);
        let mut segment = self.segment(0, len);
        segment.ip_ecn = self.pick(&[0, 2, 3, 3]);
        segment.flags = self.pick(&[0, ECE, CWR, 0]);
        self.next = segment.end();
        self.peer(segment);
    }

    fn path_error(&mut self) {
        let error = self.pick(&[
            PathError::TooBig(1_400),
            PathError::TooBig(1_280),
            PathError::TooBig(600),
            PathError::TooBig(68),
            PathError::HostUnreachable,
            PathError::PortUnreachable,
        ]);
        let after = self.pause();
        self.step(after, Act::Error(error));
    }

    fn settings(&mut self) {
        let call = self.pick(&[
            Call::NoDelay(true),
            Call::NoDelay(true),
            Call::NoDelay(false),
            Call::Keepalive(1, 1, 2),
            Call::UserTimeoutMs(500),
        ]);
        self.call(call);
    }
}
