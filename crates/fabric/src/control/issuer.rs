//! Issues and checks the tickets of ring pairs and applications.
//!
//! A ticket is a number with a keyed digest, so that no guest can forge it. The digest covers the guests that use the pair or
//! application, and their *incarnations*. Each new process of a guest is a new incarnation, so the tickets of the guest's earlier
//! processes are invalid. The key and the incarnation numbers are in the state file. Therefore a later control program can check a
//! ticket without a record of the pair or the application.

use crate::protocol::message::{Buffers, MemberId};
use crate::protocol::ticket::ApplicationId;
use crate::protocol::ticket::RingPairId;
use crate::protocol::ticket::TicketKey;
use serde::Serialize;
use siga_model::name::Name;
use std::collections::BTreeMap;

/// Issues and checks tickets. The key, and the incarnation numbers of the guests, come from the state file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issuer<'a> {
    pub(super) key: &'a TicketKey,
    pub(super) incarnations: &'a BTreeMap<Name, u64>,
}

/// One end of a pair, as a ticket's digest covers it: the member (a device of a guest), and the buffers of its inbound ring.
pub(super) type EndSubject<'a> = (&'a MemberId, Buffers);

#[derive(Serialize)]
enum Subject<'a> {
    /// The two ends of a pair. The end that asked for the pair comes first.
    Pair([(&'a MemberId, Option<u64>, Buffers); 2]),
    Application(&'a Name, Option<u64>),
}

impl Issuer<'_> {
    pub(super) fn pair(self, number: u64, ends: [EndSubject<'_>; 2]) -> RingPairId {
        RingPairId(self.key.issue(number, &self.pair_subject(ends)))
    }

    pub(super) fn issued_pair(self, pair: RingPairId, ends: [EndSubject<'_>; 2]) -> bool {
        self.key.issued(pair.0, &self.pair_subject(ends))
    }

    pub(super) fn application(self, number: u64, guest: &Name) -> ApplicationId {
        ApplicationId(self.key.issue(number, &Subject::Application(guest, self.incarnation(guest))))
    }

    pub(super) fn issued_application(self, application: ApplicationId, guest: &Name) -> bool {
        self.key.issued(application.0, &Subject::Application(guest, self.incarnation(guest)))
    }

    fn pair_subject<'s>(self, ends: [EndSubject<'s>; 2]) -> Subject<'s> {
        Subject::Pair(ends.map(|(member, inbound)| (member, self.incarnation(&member.guest), inbound)))
    }

    fn incarnation(self, guest: &Name) -> Option<u64> {
        self.incarnations.get(guest).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_of_an_application_matches_its_guest_and_incarnation_only() {
        let (key, other_key) = (TicketKey::draw().unwrap(), TicketKey::draw().unwrap());
        let [a, b]: [Name; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let mut incarnations = BTreeMap::from([(a.clone(), 1), (b.clone(), 1)]);
        let issuer = Issuer { key: &key, incarnations: &incarnations };
        let ticket = issuer.application(1, &a);
        assert!(issuer.issued_application(ticket, &a));
        assert!(!issuer.issued_application(ticket, &b), "another guest claims it");
        assert!(!issuer.issued_application(issuer.application(2, &b), &a));
        let elsewhere = Issuer { key: &other_key, incarnations: &incarnations };
        assert!(!elsewhere.issued_application(ticket, &a), "another network");
        incarnations.insert(a.clone(), 2);
        let later = Issuer { key: &key, incarnations: &incarnations };
        assert!(!later.issued_application(ticket, &a), "the guest has started anew");
    }
}
