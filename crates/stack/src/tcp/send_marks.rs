//! Places in the written data that an application has marked: the ends of records (`MSG_EOR` of Linux), and the writes whose times it
//! wants to know (`SO_TIMESTAMPING` of Linux).

use super::sender::Sender;
use crate::limits::{TCP_RECORD_ENDS_MAX, TCP_SEND_TIMES_MAX, TCP_TIMED_WRITES_MAX};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;
use std::collections::VecDeque;

/// What a write means for the bytes that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteFlags {
    /// Whether more bytes follow soon, so that a last segment that is not full waits for them (`MSG_MORE` of Linux).
    pub more_follows: bool,
    /// Whether a record ends with the last byte of the write (`MSG_EOR` of Linux). No segment has bytes of two records.
    pub ends_record: bool,
}

/// The times that a connection reports to its application (`SO_TIMESTAMPING` of Linux, by software). By default, it reports none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// Whether the times are known at which received bytes arrived (`SOF_TIMESTAMPING_RX_SOFTWARE`).
    pub received: bool,
    /// Whether it is reported when the last byte of each write was first sent (`SOF_TIMESTAMPING_TX_SOFTWARE`).
    pub sent: bool,
    /// Whether it is reported when the peer had acknowledged all bytes of a write (`SOF_TIMESTAMPING_TX_ACK`).
    pub acknowledged: bool,
}

impl Timing {
    /// Returns whether any times of writes are reported.
    pub(super) fn of_writes(self) -> bool {
        self.sent || self.acknowledged
    }
}

/// What has happened to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStage {
    /// Its last byte was handed to the device for the first time.
    Sent,
    /// The peer has acknowledged all of its bytes.
    Acknowledged,
}

/// When something happened to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendTime {
    /// Number of the last byte of the write, modulo 2^32. The first byte that was written after the application asked for times of
    /// writes has the number 0 (`SOF_TIMESTAMPING_OPT_ID` of Linux).
    pub id: u32,
    /// What happened.
    pub stage: SendStage,
    /// When it happened.
    pub at: Instant,
}

#[derive(Debug)]
struct TimedWrite {
    end: SeqNumber,
    is_sent: bool,
}

/// The writes whose times are reported.
#[derive(Debug)]
struct TimedWrites {
    timing: Timing,
    /// Sequence number of the byte with the number 0.
    first: SeqNumber,
    /// Writes that are not acknowledged.
    writes: VecDeque<TimedWrite>,
    /// Times that the application has not taken.
    times: VecDeque<SendTime>,
    /// Whether there are times since the last [`SendMarks::take_event`].
    event: bool,
}

impl TimedWrites {
    fn report(&mut self, stage: SendStage, end: SeqNumber, at: Instant) {
        let wanted = match stage {
            SendStage::Sent => self.timing.sent,
            SendStage::Acknowledged => self.timing.acknowledged,
        };
        if wanted && self.times.len() < TCP_SEND_TIMES_MAX {
            self.times.push_back(SendTime { id: (end - 1).since(self.first), stage, at });
            self.event = true;
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct SendMarks {
    /// Ends of records with unsent bytes. After a segment was sent, its limits stay: retransmissions do not join segments.
    records: VecDeque<SeqNumber>,
    timed: Option<TimedWrites>,
}

impl SendMarks {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.timed.is_none()
    }

    pub(super) fn bytes(&self) -> usize {
        let timed = self.timed.as_ref().map_or(0, |timed| {
            timed.writes.capacity() * size_of::<TimedWrite>() + timed.times.capacity() * size_of::<SendTime>()
        });
        self.records.capacity() * size_of::<SeqNumber>() + timed
    }

    /// Returns where the first record with unsent bytes ends.
    fn record_end(&self) -> Option<SeqNumber> {
        self.records.front().copied()
    }

    fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    fn note_write(&mut self, end: SeqNumber, ends_record: bool) {
        if ends_record && self.records.len() < TCP_RECORD_ENDS_MAX {
            self.records.push_back(end);
        }
        if let Some(timed) = &mut self.timed
            && timed.writes.len() < TCP_TIMED_WRITES_MAX
        {
            timed.writes.push_back(TimedWrite { end, is_sent: false });
        }
    }

    fn note_sent(&mut self, now: Instant, nxt: SeqNumber) {
        while self.records.front().is_some_and(|end| end.at_or_before(nxt)) {
            self.records.pop_front();
        }
        let Some(timed) = &mut self.timed else { return };
        let from = timed.writes.partition_point(|write| write.is_sent);
        for at in from..timed.writes.len() {
            let TimedWrite { end, is_sent } = &mut timed.writes[at];
            if end.after(nxt) {
                break;
            }
            let end = *end;
            *is_sent = true;
            timed.report(SendStage::Sent, end, now);
        }
    }

    fn note_acknowledged(&mut self, now: Instant, una: SeqNumber) {
        let Some(timed) = &mut self.timed else { return };
        while let Some(write) = timed.writes.pop_front_if(|write| write.end.at_or_before(una)) {
            timed.report(SendStage::Acknowledged, write.end, now);
        }
    }

    /// Returns whether there are new times since the last call.
    pub(super) fn take_event(&mut self) -> bool {
        self.timed.as_mut().is_some_and(|timed| std::mem::take(&mut timed.event))
    }

    pub(super) fn has_times(&self) -> bool {
        self.timed.as_ref().is_some_and(|timed| !timed.times.is_empty())
    }

    pub(super) fn take_time(&mut self) -> Option<SendTime> {
        self.timed.as_mut()?.times.pop_front()
    }

    /// Sets which times of writes are reported. `end` is the end of the written data. As in Linux, the numbers of bytes begin again
    /// if no times were reported before.
    pub(super) fn set_timing(&mut self, timing: Timing, end: SeqNumber) {
        if !timing.of_writes() {
            self.timed = None;
        } else if let Some(timed) = &mut self.timed {
            timed.timing = timing;
        } else {
            let (writes, times) = (VecDeque::new(), VecDeque::new());
            self.timed = Some(TimedWrites { timing, first: end, writes, times, event: false });
        }
    }
}

impl Sender {
    /// Records the end of a write, if the application has marked it or wants to know its times.
    pub(super) fn note_write(&mut self, ends_record: bool) {
        let end = self.end;
        self.extras_mut().marks.note_write(end, ends_record);
        self.drop_empty_extras();
    }

    /// Returns where the first record with unsent bytes ends.
    pub(super) fn record_end(&self) -> Option<SeqNumber> {
        self.extras.as_ref()?.marks.record_end()
    }

    /// Returns whether a record with unsent bytes has an end, so that no probe of the path MTU may join bytes of two records.
    pub(super) fn has_record_ends(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.marks.has_records())
    }

    /// Processes the marks of new data that is sent now.
    pub(super) fn pass_marks(&mut self, now: Instant) {
        let nxt = self.nxt;
        if let Some(extras) = &mut self.extras {
            extras.marks.note_sent(now, nxt);
            self.drop_empty_extras();
        }
    }

    /// Processes the marks of data that was acknowledged now.
    pub(super) fn acknowledge_marks(&mut self, now: Instant) {
        let una = self.una;
        if let Some(extras) = &mut self.extras {
            extras.marks.note_acknowledged(now, una);
        }
    }
}
