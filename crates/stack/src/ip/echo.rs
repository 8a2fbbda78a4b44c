//! Echo requests of our own (RFC 792, RFC 4443 4.1) and the replies to them. A reply that answers no request is dropped.

use crate::drops::{DropReason, IcmpDrop, IpDrop};
use crate::limits::PINGS_MAX;
use crate::stack::{Input, Stack};
use crate::tcp::Storage;
use crate::time::Instant;
use std::collections::VecDeque;
use std::net::IpAddr;

/// An echo request, and the reply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// Who is asked.
    pub to: IpAddr,
    /// Told apart from others' by this.
    pub ident: u16,
    /// Counted by who asks.
    pub seq: u16,
}

/// Requests without a reply, and replies that nobody has taken.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    open: VecDeque<Ping>,
    answered: VecDeque<Ping>,
}

impl<S: Storage> Stack<S> {
    /// Sends an echo request with so many bytes behind its header. Of those without a reply the newest
    /// [`crate::limits::PINGS_MAX`] are remembered.
    ///
    /// # Errors
    /// There is no way there, or the packet is too long.
    pub fn ping(&mut self, now: Instant, ping: Ping, bytes: u16) -> Result<(), DropReason> {
        let from = self.address_towards(ping.to, None).ok_or(IpDrop::NoRoute)?;
        let kind = if ping.to.is_ipv4() { 8 } else { 128 };
        let mut message = vec![kind, 0, 0, 0];
        message.extend_from_slice(&ping.ident.to_be_bytes());
        message.extend_from_slice(&ping.seq.to_be_bytes());
        message.extend((0..bytes).map(|at| at.to_be_bytes()[1]));
        self.pings.open.push_back(ping);
        if self.pings.open.len() > PINGS_MAX {
            self.pings.open.pop_front();
        }
        let sent = self.send_icmp(now, from, ping.to, message, None);
        self.deliver_loopback(now);
        sent
    }

    /// A request that was answered.
    pub fn poll_pong(&mut self) -> Option<Ping> {
        self.pings.answered.pop_front()
    }

    pub(crate) fn input_echo_reply(&mut self, input: &Input<'_>, message: &[u8]) -> Result<(), DropReason> {
        let [ident, seq] = [4, 6].map(|at| u16::from_be_bytes([message[at], message[at + 1]]));
        let answers = |open: &Ping| (open.to, open.ident, open.seq) == (input.from, ident, seq);
        let at = self.pings.open.iter().position(answers).ok_or(IcmpDrop::Ignored)?;
        self.pings.answered.extend(self.pings.open.remove(at));
        // Nobody who asks lets them pile up; who does loses the oldest.
        if self.pings.answered.len() > PINGS_MAX {
            self.pings.answered.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HEADER_BYTES_MAX;
    use crate::link::device::{Agreed, DeviceConfig, Medium};
    use crate::link::frame::{DeviceId, Received};
    use crate::stack::StackConfig;
    use crate::wire::address::Prefix;

    fn host(addresses: [&str; 2]) -> Stack {
        let mut stack = Stack::new(StackConfig::default());
        let lengths = [24, 64];
        let prefix = |(address, length): (&str, u8)| Prefix::new(address.parse().unwrap(), length).unwrap();
        let addresses = addresses.into_iter().zip(lengths).map(prefix).collect();
        let config = DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses, agreed: Agreed::default() };
        stack.add_device(config).unwrap();
        stack
    }

    fn carry(now: Instant, from: &mut Stack, to: &mut Stack) -> usize {
        let mut room = [0; 2_000];
        let mut count = 0;
        while let Some(sent) = from.poll_transmit(now, DeviceId(0), &mut room) {
            let (head, rest) = room[..sent.len].split_at(sent.len.min(HEADER_BYTES_MAX));
            to.handle_frame(now, DeviceId(0), Received::unmarked(head, rest));
            count += 1;
        }
        count
    }

    #[test]
    fn a_reply_is_told_once_and_only_to_who_asked() {
        let now = Instant::default();
        let mut one = host(["10.0.0.1", "fd00::1"]);
        let mut other = host(["10.0.0.2", "fd00::2"]);
        for to in ["10.0.0.2", "fd00::2"] {
            let ping = Ping { to: to.parse().unwrap(), ident: 7, seq: 1 };
            one.ping(now, ping, 56).unwrap();
            assert_eq!(one.poll_pong(), None);
            carry(now, &mut one, &mut other);
            carry(now, &mut other, &mut one);
            assert_eq!((one.poll_pong(), one.poll_pong()), (Some(ping), None));
        }
        let nowhere = Ping { to: "10.9.0.1".parse().unwrap(), ident: 7, seq: 2 };
        assert_eq!(one.ping(now, nowhere, 0), Err(IpDrop::NoRoute.into()));
        // A request to the host itself is answered without a device.
        let own = Ping { to: "10.0.0.1".parse().unwrap(), ident: 7, seq: 3 };
        one.ping(now, own, 8).unwrap();
        assert_eq!(one.poll_pong(), Some(own));
    }

    #[test]
    fn what_is_not_answered_is_forgotten_at_a_bound() {
        let now = Instant::default();
        let mut one = host(["10.0.0.1", "fd00::1"]);
        let mut other = host(["10.0.0.2", "fd00::2"]);
        let ping = |seq| Ping { to: "10.0.0.2".parse().unwrap(), ident: 7, seq };
        for seq in 0..100 {
            one.ping(now, ping(seq), 0).unwrap();
        }
        carry(now, &mut one, &mut other);
        carry(now, &mut other, &mut one);
        let pongs: Vec<_> = std::iter::from_fn(|| one.poll_pong()).collect();
        let newest = 100 - u16::try_from(PINGS_MAX).unwrap()..100;
        assert_eq!(pongs, newest.map(ping).collect::<Vec<_>>());
    }
}
