//! Shortens a sequence that shows a difference: removes steps and simplifies packets while the difference stays.

use std::io;

use super::Session;
use super::compare::Difference;
use super::sequence::{Act, Body, CallKind, Packet, Sequence};

/// Maximum number of rounds.
const ROUNDS_MAX: usize = 60;

/// Returns the shortest sequence found that shows the same kind of difference.
pub(crate) fn minimise(session: &mut Session, sequence: &Sequence, difference: &Difference) -> io::Result<Sequence> {
    let mut best = sequence.clone();
    for _ in 0..ROUNDS_MAX {
        let candidates = candidates(&best);
        let comparisons = session.play(&candidates)?;
        let shows = |found: &Difference| found.kind() == difference.kind();
        let found = candidates
            .into_iter()
            .zip(comparisons)
            .find(|(_, comparison)| comparison.difference.as_ref().is_some_and(shows));
        let Some((shorter, _)) = found else { break };
        best = shorter;
    }
    Ok(best)
}

/// All sequences that are one change simpler, the shortest first.
fn candidates(sequence: &Sequence) -> Vec<Sequence> {
    let mut found = Vec::new();
    let steps = sequence.steps.len();
    for count in [8, 4, 2, 1] {
        for start in (0..=steps.saturating_sub(count)).rev().filter(|_| steps > count) {
            let mut shorter = sequence.clone();
            shorter.steps.drain(start..start + count);
            found.push(shorter);
        }
    }
    for (at, act) in sequence.steps.iter().enumerate() {
        let simpler: Vec<Act> = match act {
            Act::Packet(packet) => simpler(packet).into_iter().map(Act::Packet).collect(),
            Act::Call(call) => match call.kind {
                CallKind::Send(len, to) if len > 10 => {
                    let shorter = CallKind::Send(10, to);
                    vec![Act::Call(super::sequence::Call { kind: shorter, ..*call })]
                }
                CallKind::Send(..)
                | CallKind::Bind(..)
                | CallKind::Connect(..)
                | CallKind::Receive
                | CallKind::Close => Vec::new(),
            },
            Act::Expire => Vec::new(),
        };
        found.extend(simpler.into_iter().map(|act| {
            let mut changed = sequence.clone();
            changed.steps[at] = act;
            changed
        }));
    }
    if sequence.router {
        found.push(Sequence { router: false, ..sequence.clone() });
    }
    found
}

/// The packets in which one field has its usual value.
fn simpler(packet: &Packet) -> Vec<Packet> {
    let usual = Packet::new(packet.device, packet.from, packet.to, packet.body.clone());
    let short = match packet.body {
        Body::Udp { from, to, len } => Body::Udp { from, to, len: len.min(10) },
        Body::Echo { ident, seq, len } => Body::Echo { ident, seq, len: len.min(10) },
        Body::Icmp { kind, code, rest, len } => Body::Icmp { kind, code, rest, len: len.min(10) },
        Body::Protocol { number, len } => Body::Protocol { number, len: len.min(10) },
        Body::Error { .. } => packet.body.clone(),
    };
    let all = [
        Packet { hop_limit: usual.hop_limit, ..packet.clone() },
        Packet { service: usual.service, ..packet.clone() },
        Packet { dont_fragment: false, ..packet.clone() },
        Packet { options: Vec::new(), ..packet.clone() },
        Packet { extensions: packet.extensions.iter().skip(1).cloned().collect(), ..packet.clone() },
        Packet { extensions: packet.extensions.iter().take(1).cloned().collect(), ..packet.clone() },
        Packet { damage: None, ..packet.clone() },
        Packet { cut: None, ..packet.clone() },
        Packet { body: short, ..packet.clone() },
    ];
    all.into_iter().filter(|simpler| simpler != packet).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::packets::generate;

    #[test]
    fn each_candidate_is_simpler_and_the_shortest_come_first() {
        for seed in 0..200 {
            let sequence = generate::sequence(seed);
            let candidates = candidates(&sequence);
            assert!(candidates.iter().all(|candidate| *candidate != sequence));
            let lengths: Vec<usize> = candidates.iter().map(|candidate| candidate.steps.len()).collect();
            assert!(lengths.is_sorted(), "{lengths:?}");
            assert_eq!(lengths.contains(&(sequence.steps.len() - 1)), sequence.steps.len() > 1);
        }
    }
}
