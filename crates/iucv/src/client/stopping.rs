//! Returns the sending direction of a connection to TCP, because its peer stops to read memory. The bytes that the peer has not read are sent
//! again by TCP.

use super::Client;
use crate::limits::{ANSWER_TIME_MAX, STOP_TIME_MAX, STOP_YIELDS_MAX};
use crate::options::SendFlags;
use crate::record::{Command, Number};
use siga_ring::direct::Stopped;
use std::collections::VecDeque;
use std::time::Instant;

impl Client {
    /// Waits until it is known which bytes in memory the peer does not read, and until they are sent by TCP. An application calls this before
    /// it ends the stream, or itself returns to TCP. Returns false if this takes too long, so that bytes would be missing in the stream.
    pub(super) fn settle_stop(&mut self, number: Number) -> bool {
        let begun = Instant::now();
        loop {
            let is_known = self.heeds_stop(number);
            if is_known && self.resend(number) {
                return true;
            }
            if begun.elapsed() > if is_known { ANSWER_TIME_MAX } else { STOP_TIME_MAX } || self.ended.is_some() {
                return false;
            }
            if !self.work_within_call() {
                std::thread::yield_now();
            }
        }
    }

    /// Returns to TCP if the peer wants it. Returns false if the peer has not yet said after which byte.
    pub(super) fn heeds_stop(&mut self, number: Number) -> bool {
        let Some(place) = self.lane_place(number) else { return true };
        for _ in 0..STOP_YIELDS_MAX {
            let Some((couple, lane, _)) = self.direct.lane(place) else { return true };
            match lane.stopped(couple) {
                Ok(Stopped::No) => return true,
                Ok(Stopped::Soon) => std::thread::yield_now(),
                Ok(Stopped::Yes) => {
                    let bytes = lane.read_own(couple, lane.unread_by_peer());
                    if let Some(connection) = self.carried(number) {
                        connection.carrier.sends_again(&bytes);
                    }
                    self.resend(number);
                    self.leave_lane(number);
                    return true;
                }
                Err(_) => {
                    self.break_connection(number);
                    return true;
                }
            }
        }
        false
    }

    /// Sends the bytes by TCP that the peer has not read from memory. Returns true if none are left.
    pub(super) fn resend(&mut self, number: Number) -> bool {
        while let Some(connection) = self.carried(number)
            && connection.carrier.resends()
        {
            if !self.unsent.is_empty() || !self.link.has_room() || self.free.is_empty() {
                return false;
            }
            let bytes = self.carried(number).map_or_else(VecDeque::new, |one| std::mem::take(&mut one.carrier.resend));
            let bytes: Vec<u8> = bytes.into();
            let extents = self.write_blocks(number, &bytes);
            let sent: usize = extents.iter().map(|extent| extent.len()).sum();
            if let Some(connection) = self.carried(number) {
                connection.carrier.resend = bytes[sent..].to_vec().into();
                connection.carrier.sent += sent as u64;
            }
            if sent > 0 {
                self.send_command(number, Command::Send { extents, flags: SendFlags::default() });
                self.link.publish();
            }
        }
        true
    }
}
