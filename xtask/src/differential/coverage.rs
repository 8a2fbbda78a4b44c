//! Which states and features of TCP the dialogues reach, so that a run shows what it has compared.

use std::collections::BTreeMap;

use siga_stack::tcp::StateName;

use super::dialogue::{Act, Call, Dialogue, PathError, PeerSegment};
use super::packet::{ACK, CWR, ECE, FIN, RST, SYN};
use super::player::Record;

/// All states and features, in the order in which they are printed.
pub(crate) const ALL: [&str; 33] = [
    "SYN-SENT",
    "SYN-RECEIVED",
    "ESTABLISHED",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "CLOSE-WAIT",
    "CLOSING",
    "LAST-ACK",
    "TIME-WAIT",
    "CLOSED",
    "IPv4",
    "IPv6",
    "active open",
    "passive open",
    "simultaneous open",
    "Fast Open",
    "retransmission by the host",
    "SACK blocks of the host",
    "SACK blocks of the peer",
    "data ahead of a gap",
    "data that overlaps earlier data",
    "zero window of the peer",
    "reset inside the window",
    "reset outside the window",
    "old timestamp",
    "ECN",
    "CE mark, ECE or CWR of the peer",
    "keepalive",
    "user timeout",
    "urgent data",
    "path MTU error",
    "other ICMP error",
    "MSS below 100",
];

/// The number of dialogues that reached each state and feature.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    counts: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(crate) fn add(&mut self, dialogue: &Dialogue, stack: &Record) {
        for name in reached(dialogue, stack) {
            *self.counts.entry(name).or_default() += 1;
        }
    }

    /// Returns how many dialogues reached this state or feature.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

fn state(name: StateName) -> &'static str {
    match name {
        StateName::SynSent => "SYN-SENT",
        StateName::SynReceived => "SYN-RECEIVED",
        StateName::Established => "ESTABLISHED",
        StateName::FinWait1 => "FIN-WAIT-1",
        StateName::FinWait2 => "FIN-WAIT-2",
        StateName::CloseWait => "CLOSE-WAIT",
        StateName::Closing => "CLOSING",
        StateName::LastAck => "LAST-ACK",
        StateName::TimeWait => "TIME-WAIT",
        StateName::Closed => "CLOSED",
    }
}

/// The states and features that a dialogue reaches with the stack.
fn reached(dialogue: &Dialogue, stack: &Record) -> Vec<&'static str> {
    let sent = || stack.sent.iter().map(|sent| &sent.reply);
    let act = |found: &dyn Fn(&Act) -> bool| dialogue.steps.iter().any(|step| found(&step.act));
    let call = |found: &dyn Fn(&Call) -> bool| act(&|act| matches!(act, Act::Call(call) if found(call)));
    let peer = |found: &dyn Fn(&PeerSegment) -> bool| act(&|act| matches!(act, Act::Peer(segment) if found(segment)));
    let is_active = call(&|call| matches!(call, Call::Connect | Call::ConnectWith(_)));
    let (resets_inside, resets_outside) = resets(dialogue, stack);
    let (has_gap, overlaps) = arrivals(dialogue);
    let repeats = stack.sent.iter().enumerate().any(|(at, sent)| {
        let earlier = |other: &super::player::Sent| other.reply.len > 0 && other.reply.seq == sent.reply.seq;
        sent.reply.len > 0 && stack.sent[..at].iter().any(earlier)
    });
    let has_sack =
        sent().any(|reply| reply.options.iter().any(|option| matches!(option, super::packet::TcpOption::Sack(_))));
    let features = [
        ("SYN-RECEIVED", sent().any(|reply| reply.bits & (SYN | ACK) == SYN | ACK)),
        (if dialogue.v6 { "IPv6" } else { "IPv4" }, true),
        (if is_active { "active open" } else { "passive open" }, true),
        ("simultaneous open", is_active && peer(&|segment| segment.bits() & (SYN | ACK | RST) == SYN)),
        ("Fast Open", peer(&|segment| segment.fast_open.is_some())),
        ("retransmission by the host", repeats),
        ("SACK blocks of the host", has_sack),
        ("SACK blocks of the peer", peer(&|segment| !segment.sack.is_empty())),
        ("data ahead of a gap", has_gap),
        ("data that overlaps earlier data", overlaps),
        ("zero window of the peer", peer(&|segment| segment.window == 0 && segment.flags & (SYN | RST) == 0)),
        ("reset inside the window", resets_inside),
        ("reset outside the window", resets_outside),
        ("old timestamp", has_old_timestamp(dialogue)),
        ("ECN", sent().any(|reply| reply.service & 3 != 0)),
        (
            "CE mark, ECE or CWR of the peer",
            peer(&|segment| segment.flags & SYN == 0 && (segment.ip_ecn == 3 || segment.flags & (ECE | CWR) != 0)),
        ),
        ("keepalive", call(&|call| matches!(call, Call::Keepalive(..)))),
        ("user timeout", call(&|call| matches!(call, Call::UserTimeoutMs(_)))),
        ("urgent data", call(&|call| matches!(call, Call::SendUrgent(_))) || peer(&|segment| segment.urgent.is_some())),
        ("path MTU error", act(&|act| matches!(act, Act::Error(PathError::TooBig(_))))),
        (
            "other ICMP error",
            act(&|act| matches!(act, Act::Error(PathError::HostUnreachable | PathError::PortUnreachable))),
        ),
        ("MSS below 100", peer(&|segment| segment.mss.is_some_and(|mss| mss < 100))),
    ];
    let features = features.into_iter().filter_map(|(name, is_reached)| is_reached.then_some(name));
    let mut all: Vec<&str> = stack.states.iter().flatten().map(|name| state(*name)).chain(features).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether resets of the peer were inside, and outside of the window that the host had offered last.
fn resets(dialogue: &Dialogue, stack: &Record) -> (bool, bool) {
    let mut found = (false, false);
    for (at, step) in dialogue.steps.iter().enumerate() {
        let Act::Peer(segment) = &step.act else { continue };
        let last = stack.sent.iter().rfind(|sent| sent.steps <= at && sent.reply.bits & ACK != 0);
        let Some(last) = last.filter(|_| segment.flags & RST != 0) else { continue };
        // The scale is at most 7, as in the SYN of the host.
        let is_inside = segment.seq.wrapping_sub(last.reply.ack) < u32::from(last.reply.window) << 7;
        found = (found.0 || is_inside, found.1 || !is_inside);
    }
    found
}

/// Whether data of the peer arrived ahead of a gap, and whether data overlapped earlier data.
fn arrivals(dialogue: &Dialogue) -> (bool, bool) {
    let (mut has_gap, mut overlaps) = (false, false);
    let mut end: Option<u32> = None;
    for step in &dialogue.steps {
        let Act::Peer(segment) = &step.act else { continue };
        if segment.flags & SYN != 0 {
            end = Some(segment.end());
        } else if let Some(known) = end
            && segment.len > 0
        {
            let ahead = segment.seq.wrapping_sub(known).cast_signed();
            has_gap |= ahead > 0;
            overlaps |= ahead < 0;
            end = Some(if segment.end().wrapping_sub(known).cast_signed() > 0 { segment.end() } else { known });
        }
    }
    (has_gap, overlaps)
}

fn has_old_timestamp(dialogue: &Dialogue) -> bool {
    let mut newest: Option<u32> = None;
    dialogue.steps.iter().any(|step| {
        let Act::Peer(PeerSegment { timestamp: Some(timestamp), flags, .. }) = &step.act else { return false };
        let is_old = newest.is_some_and(|newest| timestamp.value.wrapping_sub(newest).cast_signed() < 0);
        newest = newest.filter(|_| is_old).or(Some(timestamp.value));
        is_old && flags & (SYN | FIN | RST) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::{ends, generate, stack};

    #[test]
    fn drawn_dialogues_reach_all_states_and_features() {
        let mut coverage = Coverage::default();
        for seed in 0..1_000 {
            let dialogue = generate::dialogue(seed);
            coverage.add(&dialogue, &stack::play(&dialogue, ends(7, &dialogue), &dialogue.planned_us()));
        }
        let missing: Vec<&str> = ALL.into_iter().filter(|name| coverage.count(name) < 5).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(coverage.counts.keys().all(|name| ALL.contains(name)), "{coverage:?}");
    }
}
