//! The sending side of a lane.

use super::layout::{BEGIN, CONSUMED, END, PRODUCED, ROOM_THRESHOLD, SEND_GENERATION, SENT, STOP, STOPPING};
use super::{Couple, Lane, Violation};
use crate::layout::word;
use crate::sync::{Ordering, fence};

/// State of the sending side.
#[derive(Debug)]
pub(super) struct Sending {
    stage: Stage,
    /// How many published bytes the peer may have not consumed. At most the size of the buffer.
    most: usize,
    /// Number of published bytes.
    produced: u64,
    /// Number of these bytes that the peer has consumed, as far as this side knows.
    consumed: u64,
    /// True if this side wants a notification when there is room.
    wants_room: bool,
}

impl Sending {
    pub(super) fn new(most: usize) -> Self {
        Self { stage: Stage::default(), most, produced: 0, consumed: 0, wants_room: false }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// This side sends by TCP, and may begin to send by memory.
    #[default]
    Before,
    Memory,
    /// This side sends by TCP until the connection gets another slot.
    Ended,
}

/// What [`Lane::stopped`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The peer reads on.
    No,
    /// The peer stops, and has not yet said where. Ask again.
    Soon,
    /// The peer stops. This side sends by TCP from now on, first the bytes that [`Lane::unread_by_peer`] returns.
    Yes,
}

/// How many bytes at the end of the published ones the peer never reads from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadByPeer {
    from: u64,
    /// Their number.
    pub bytes: usize,
}

impl Lane {
    /// Returns whether [`Lane::begin`] may be called: the peer can receive by memory, and this side has not sent by memory before.
    pub fn can_begin(&self, couple: &Couple) -> bool {
        let (is_before, shape) = (self.sending.stage == Stage::Before, couple.shape);
        is_before && self.peer_is_bound(couple) && couple.peer.load(self.at(shape, STOP)) == 0
    }

    /// Sends by memory from now on. `offset` is the number of bytes that this side has sent by TCP since the connection began.
    pub fn begin(&mut self, couple: &mut Couple, offset: u64) {
        let shape = couple.shape;
        for (word, value) in [(PRODUCED, 0), (BEGIN, offset), (END, 0)] {
            couple.own.store(self.at(shape, word), value);
        }
        // Release: the peer sees these words when it sees the generation.
        fence(Ordering::Release);
        couple.own.store(self.at(shape, SEND_GENERATION), self.generation);
        self.sending.stage = Stage::Memory;
    }

    /// Returns whether this side sends by memory now.
    #[inline]
    pub fn sends_by_memory(&self) -> bool {
        self.sending.stage == Stage::Memory
    }

    /// Returns whether this side has sent by memory, and sends by TCP again.
    pub fn has_ended_sending(&self) -> bool {
        self.sending.stage == Stage::Ended
    }

    /// Returns how many published bytes the peer has not consumed, as far as this side knows.
    pub fn unconsumed(&self) -> usize {
        usize::try_from(self.sending.produced - self.sending.consumed).unwrap_or(usize::MAX)
    }

    /// Limits the published bytes that the peer has not consumed. The size of the buffer limits them in any case.
    pub fn limit(&mut self, couple: &mut Couple, bytes: usize) {
        self.sending.most = bytes.clamp(1, couple.shape.slot_bytes());
        // A higher limit may be the room for which this side waits.
        couple.seen_changes = None;
    }

    /// Returns how many bytes [`Lane::send`] takes now.
    ///
    /// # Errors
    /// Returns the violation if the peer's word is impossible.
    pub fn room(&mut self, couple: &Couple) -> Result<usize, Violation> {
        self.refresh_consumed(couple)?;
        Ok(self.sending.most.saturating_sub(self.unconsumed()))
    }

    pub(super) fn refresh_consumed(&mut self, couple: &Couple) -> Result<(), Violation> {
        if self.sending.produced == self.sending.consumed {
            return Ok(());
        }
        let found = couple.peer.load(self.at(couple.shape, CONSUMED));
        let (least, most) = (self.sending.consumed, self.sending.produced);
        if !(least..=most).contains(&found) {
            return Err(Violation::Consumed { found, least, most });
        }
        // Acquire: the peer has read the bytes before this side writes others in their place.
        fence(Ordering::Acquire);
        self.sending.consumed = found;
        Ok(())
    }

    /// Copies bytes to the slot, as many as there is room for, publishes them, and returns their number. Notifies the peer if it sleeps.
    ///
    /// # Errors
    /// Returns the violation if the peer's word is impossible.
    pub fn send(&mut self, couple: &mut Couple, bytes: &[u8]) -> Result<usize, Violation> {
        let most = self.sending.most;
        if most.saturating_sub(self.unconsumed()) < bytes.len() {
            self.refresh_consumed(couple)?;
        }
        let len = bytes.len().min(most.saturating_sub(self.unconsumed()));
        if len == 0 {
            return Ok(0);
        }
        let (at, first, second) = couple.shape.parts(self.slot, self.sending.produced, len);
        couple.own.write(at, &bytes[..first]);
        if second > 0 {
            couple.own.write(couple.shape.buffer(self.slot), &bytes[first..len]);
        }
        self.sending.produced += word(len);
        couple.sent_bytes += word(len);
        couple.own.store(SENT, couple.sent_bytes);
        // Release: the peer sees the bytes when it sees their number.
        fence(Ordering::Release);
        couple.own.store(self.at(couple.shape, PRODUCED), self.sending.produced);
        couple.changed();
        if self.wants_room() {
            // An earlier request counts from bytes that were published before these. The peer would notify this side too early, and once.
            // If the peer's word is impossible, the next call returns the violation, because this call has published bytes.
            let _ = self.want_room(couple);
        }
        Ok(len)
    }

    /// Requests a notification when half of the buffer, or of its limit ([`Lane::limit`]), is free. Returns false if there is as much room already.
    ///
    /// # Errors
    /// Returns the violation if the peer's word is impossible.
    pub fn want_room(&mut self, couple: &mut Couple) -> Result<bool, Violation> {
        let half = word(self.sending.most / 2);
        let threshold = self.sending.produced.saturating_sub(half).max(1);
        couple.own.store(self.at(couple.shape, ROOM_THRESHOLD), threshold);
        self.sending.wants_room = true;
        // SeqCst, paired with the fence in `Couple::made_room`: either the peer sees the threshold, or this side sees the peer's index.
        fence(Ordering::SeqCst);
        self.refresh_consumed(couple)?;
        let waits = self.sending.consumed < threshold;
        if !waits {
            self.has_room(couple);
        }
        Ok(waits)
    }

    /// Returns whether there is room for a byte, as poll(2) reports it: after the buffer was full, half of it has to be free. If there is
    /// no room, requests a notification, because a program that filled the buffer exactly waits for room without another attempt. If the
    /// peer's word is impossible, returns true, because the next attempt returns the violation.
    pub fn is_writable(&mut self, couple: &mut Couple) -> bool {
        !self.wants_room()
            && match self.room(couple) {
                Ok(0) => !self.want_room(couple).unwrap_or(false),
                Ok(_) | Err(_) => true,
            }
    }

    /// Returns whether the room has come for which [`Lane::want_room`] was called, and withdraws the request if it has.
    pub(super) fn has_room(&mut self, couple: &mut Couple) -> bool {
        let half = word(self.sending.most / 2);
        let has_room = self.sending.wants_room && self.sending.produced - self.sending.consumed <= half;
        if has_room {
            self.sending.wants_room = false;
            couple.own.store(self.at(couple.shape, ROOM_THRESHOLD), 0);
        }
        has_room
    }

    /// Returns whether this side waits for room.
    pub fn wants_room(&self) -> bool {
        self.sending.wants_room
    }

    /// Returns to TCP after the bytes that were published before. The connection sends by memory again only in another slot.
    pub fn end(&mut self, couple: &mut Couple) {
        if self.sending.stage == Stage::Memory {
            couple.own.store(self.at(couple.shape, END), self.sending.produced + 1);
            couple.changed();
        }
        self.sending.stage = Stage::Ended;
    }

    /// Returns whether [`Lane::stopped`] has something to do.
    pub(super) fn is_stopping(&self, couple: &Couple) -> bool {
        let found = couple.peer.load(self.at(couple.shape, STOP));
        found != 0 && found != STOPPING && self.sending.stage == Stage::Memory && self.peer_is_bound(couple)
    }

    /// Checks whether the peer wants this side to return to TCP, and returns to TCP if it does.
    ///
    /// # Errors
    /// Returns the violation if the peer's word is impossible.
    pub fn stopped(&mut self, couple: &Couple) -> Result<Stopped, Violation> {
        if self.sending.stage == Stage::Ended {
            return Ok(Stopped::No);
        }
        let found = couple.peer.load(self.at(couple.shape, STOP));
        if found == 0 || !self.peer_is_bound(couple) {
            return Ok(Stopped::No);
        }
        if found == STOPPING {
            return Ok(Stopped::Soon);
        }
        self.refresh_consumed(couple)?;
        let (least, most) = (self.sending.consumed, self.sending.produced);
        if !(least..=most).contains(&(found - 1)) {
            return Err(Violation::Stop { found: found - 1, least, most });
        }
        self.sending.stage = Stage::Ended;
        self.sending.consumed = found - 1;
        Ok(Stopped::Yes)
    }

    /// Returns to TCP, because the peer's process has ended or no longer shares the memory. Returns which bytes it has not read, if this
    /// side has sent by memory.
    pub fn lose_peer(&mut self, couple: &mut Couple) -> Option<UnreadByPeer> {
        if self.sending.stage != Stage::Memory {
            self.sending.stage = Stage::Ended;
            return None;
        }
        if self.stopped(couple) != Ok(Stopped::Yes) {
            // If the word is impossible, the bytes after the last possible value count as unread.
            let _ = self.refresh_consumed(couple);
            self.end(couple);
        }
        Some(self.unread_by_peer())
    }

    /// Returns which bytes the peer never reads from memory, after [`Lane::stopped`] returned [`Stopped::Yes`].
    pub fn unread_by_peer(&self) -> UnreadByPeer {
        UnreadByPeer { from: self.sending.consumed, bytes: self.unconsumed() }
    }

    /// Copies these bytes out of the own slot.
    pub fn read_own(&self, couple: &Couple, unread: UnreadByPeer) -> Vec<u8> {
        let (at, first, second) = couple.shape.parts(self.slot, unread.from, unread.bytes);
        let buffer = couple.shape.buffer(self.slot);
        let mut bytes = couple.own.bytes(at, first).to_vec();
        bytes.extend(couple.own.bytes(buffer, second).iter());
        bytes
    }
}
