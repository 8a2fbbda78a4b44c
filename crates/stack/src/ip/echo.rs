//! Echo requests that this stack sends (RFC 792, RFC 4443 4.1), and the replies to them.

use super::Ip;
use super::icmp::Answer;
use super::input::LocalPacket;
use crate::drops::{DropReason, IcmpDrop, IpDrop};
use crate::limits::PINGS_MAX;
use crate::time::Instant;
use crate::wire::icmp::{IcmpHeader, v4, v6};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Identifies an echo request and the reply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// The destination of the request.
    pub to: IpAddr,
    /// The identifier, which distinguishes the requests of different callers.
    pub ident: u16,
    /// The sequence number, which the caller chooses.
    pub seq: u16,
}

/// Echo requests without a reply, and replies that the caller has not read yet.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    open: VecDeque<Ping>,
    pub(crate) answered: VecDeque<Ping>,
}

impl Ping {
    /// Returns the identifier and the sequence number as one number, in the format of [`IcmpHeader::rest`].
    fn rest(&self) -> u32 {
        u32::from(self.ident) << 16 | u32::from(self.seq)
    }
}

impl Ip {
    /// Sends an echo request with `bytes` bytes of data.
    pub(crate) fn ping(&mut self, now: Instant, ping: Ping, bytes: u16) -> Result<(), DropReason> {
        let from = self.address_towards(ping.to, None).ok_or(IpDrop::NoRoute)?;
        let kind = if ping.to.is_ipv4() { v4::ECHO_REQUEST } else { v6::ECHO_REQUEST };
        let data: Vec<u8> = (0..bytes).map(|at| at.to_be_bytes()[1]).collect();
        self.pings.open.push_back(ping);
        if self.pings.open.len() > PINGS_MAX {
            self.pings.open.pop_front();
        }
        self.send_icmp(now, from, ping.to, IcmpHeader { kind, code: 0, rest: ping.rest() }.message(&data), None)
    }

    /// Finds the request that a reply belongs to. A reply without a request is dropped.
    pub(crate) fn input_echo_reply(
        &mut self,
        input: &LocalPacket<'_>,
        header: IcmpHeader,
    ) -> Result<Answer, DropReason> {
        let answers = |open: &Ping| open.to == input.from && open.rest() == header.rest;
        let at = self.pings.open.iter().position(answers).ok_or(IcmpDrop::Ignored)?;
        self.pings.answered.extend(self.pings.open.remove(at));
        // If a caller sends requests but does not read the replies, drop the oldest reply.
        if self.pings.answered.len() > PINGS_MAX {
            self.pings.answered.pop_front();
        }
        Ok(Answer::Done)
    }
}
