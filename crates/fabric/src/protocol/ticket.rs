//! Tickets: numbers that only the control programs of a network can issue.
//!
//! Guests send the number of a pair or an application back, also to a later control program without a record of it. So each number
//! carries a keyed digest over its subject. A control program with the key of the state file computes the digest again. A number that a
//! guest invented, changed, or took from another guest does not match.

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::fmt;
use std::hash::Hasher;
use subtle::ConstantTimeEq;

/// A number with the digest that proves its issuer and its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket {
    number: u64,
    digest: [u64; 2],
}

impl Ticket {
    /// The number without the digest, for people.
    pub fn number(self) -> u64 {
        self.number
    }

    /// A ticket that may be forged, for tests.
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

/// The ticket of a ring pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RingPairId(pub Ticket);

/// The ticket of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ApplicationId(pub Ticket);

/// The secret key that issues and checks tickets. It is kept in the state file.
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
        // Different subjects have different JSON. A subject of names and numbers can always be serialised.
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
    fn a_ticket_matches_only_its_number_subject_and_key() {
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
