//! Tickets: numbers that only this network's control programs can issue.
//!
//! Guests send the number of a pair or an application back, also to a control program that has come later and has no record of it. So each
//! number carries a keyed digest over what it stands for. A control program that has the key of the state file recomputes the digest,
//! and a number that a guest made up, changed, or took from another guest does not match.

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::fmt;
use std::hash::Hasher;
use subtle::ConstantTimeEq;

/// A number with the digest that proves who issued it and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket {
    number: u64,
    digest: [u64; 2],
}

impl Ticket {
    /// The number alone, for people.
    pub fn number(self) -> u64 {
        self.number
    }

    /// What a process claims to have been given: tests forge tickets with it.
    #[doc(hidden)]
    pub fn claimed(number: u64, digest: [u64; 2]) -> Self {
        Self { number, digest }
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.number, f)
    }
}

/// A ring pair, by the ticket that the control program issued for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RingPairId(pub Ticket);

/// An application of a guest, by the ticket that the control program issued for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ApplicationId(pub Ticket);

/// The secret with which tickets are issued and checked. It lies in the state file.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TicketKey([u8; 16]);

impl TicketKey {
    /// A key of 128 bits, the most that SipHash takes.
    ///
    /// # Errors
    /// The host has no random numbers.
    pub(crate) fn draw() -> std::io::Result<Self> {
        crate::random::draw().map(Self)
    }

    /// The ticket with this number for a subject. Two subjects that differ in anything have different tickets.
    pub(crate) fn issue(&self, number: u64, subject: &impl Serialize) -> Ticket {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u64(number);
        // JSON of a subject is one text and of no other subject; a subject of names and numbers always has one.
        hasher.write(&serde_json::to_vec(subject).unwrap_or_default());
        let digest = hasher.finish128();
        Ticket { number, digest: [digest.h1, digest.h2] }
    }

    /// True if this key issued the ticket for this subject.
    pub(crate) fn issued(&self, ticket: Ticket, subject: &impl Serialize) -> bool {
        self.issue(ticket.number, subject).digest.ct_eq(&ticket.digest).into()
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_its_number_its_subject_and_its_key_alone() {
        let (key, other) = (TicketKey::draw().unwrap(), TicketKey::draw().unwrap());
        let ticket = key.issue(7, &("pair", "a", 1));
        assert!(key.issued(ticket, &("pair", "a", 1)));
        assert!(!key.issued(ticket, &("pair", "a", 2)), "another incarnation");
        assert!(!key.issued(ticket, &("application", "a", 1)), "another kind");
        assert!(!key.issued(Ticket { number: 8, ..ticket }, &("pair", "a", 1)), "another number");
        assert!(!key.issued(Ticket { number: u64::MAX, ..ticket }, &("pair", "a", 1)));
        assert!(!other.issued(ticket, &("pair", "a", 1)), "another key");
        for bit in 0..128 {
            let mut forged = ticket;
            forged.digest[bit / 64] ^= 1 << (bit % 64);
            assert!(!key.issued(forged, &("pair", "a", 1)), "bit {bit}");
        }
        assert_eq!(format!("{key:?}"), "TicketKey(..)");
    }
}
