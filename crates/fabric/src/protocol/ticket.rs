//! Tickets: ids of ring pairs and applications that only a control program of the network can issue.
//!
//! A guest repeats the id of a pair or an application in its messages to the control program. A restarted control program has no
//! record of the ids that its predecessor issued. Therefore each id is a number with a keyed digest of the number and its
//! *subject*: the guests that may use the id. The key is in the state file, so a restarted control program can compute the digest
//! again. The digest does not match if a guest invented the number, changed it, or copied it from another guest.

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::fmt;
use std::hash::Hasher;
use subtle::ConstantTimeEq;

/// A number with a digest. The digest proves that a control program of the network issued the number for certain guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket {
    number: u64,
    digest: [u64; 2],
}

impl Ticket {
    /// Returns the number without the digest, for display.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Creates a ticket with an arbitrary digest, for tests of forged tickets.
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

/// The secret key with which a control program issues and checks tickets. The state file stores the key.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TicketKey([u8; 16]);

impl TicketKey {
    /// Draws a random key of 128 bits, which is the key length of SipHash.
    ///
    /// # Errors
    /// Returns an error if the host provides no random numbers.
    pub(crate) fn draw() -> std::io::Result<Self> {
        crate::random::draw().map(Self)
    }

    /// Returns the ticket for a number and a subject. If subjects differ in any way, their tickets differ.
    pub(crate) fn issue(&self, number: u64, subject: &impl Serialize) -> Ticket {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u64(number);
        // The JSON texts of different subjects differ. The conversion to JSON cannot fail, because subjects consist of names and
        // numbers.
        hasher.write(&serde_json::to_vec(subject).unwrap_or_default());
        let digest = hasher.finish128();
        Ticket { number, digest: [digest.h1, digest.h2] }
    }

    /// Returns true if this key issued the ticket for this subject.
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
