//! Shortens a dialogue that shows a difference: removes steps and simplifies values while the difference stays.
//!
//! Each round plays all dialogues that are one change shorter at the same time, so a round takes as long as one dialogue.

use std::io;

use super::compare::Difference;
use super::dialogue::{Act, Call, Dialogue};
use super::session::Session;

/// Maximum number of rounds.
const ROUNDS_MAX: usize = 25;

/// Returns the shortest dialogue found that shows the same kind of difference.
pub(crate) fn minimise(session: &mut Session, dialogue: &Dialogue, difference: &Difference) -> io::Result<Dialogue> {
    let mut best = dialogue.clone();
    for _ in 0..ROUNDS_MAX {
        let candidates = candidates(&best);
        let comparisons = session.play(&candidates, candidates.len().max(1))?;
        let found = candidates.into_iter().zip(comparisons).find(|(_, comparison)| comparison.differs_like(difference));
        let Some((shorter, _)) = found else { break };
        best = shorter;
    }
    Ok(best)
}

/// All dialogues that are one change shorter, the shortest first.
fn candidates(dialogue: &Dialogue) -> Vec<Dialogue> {
    let mut found = Vec::new();
    let steps = dialogue.steps.len();
    for count in [8, 4, 2, 1] {
        for start in (0..=steps.saturating_sub(count)).rev().filter(|_| steps > count) {
            let mut shorter = dialogue.clone();
            shorter.steps.drain(start..start + count);
            found.push(shorter);
        }
    }
    for at in 0..steps {
        found.extend(simpler(dialogue, at));
    }
    if dialogue.v6 {
        found.push(Dialogue { v6: false, ..dialogue.clone() });
    }
    if dialogue.ecn {
        found.push(Dialogue { ecn: false, ..dialogue.clone() });
    }
    found
}

/// The dialogues in which one value of a step is simpler.
fn simpler(dialogue: &Dialogue, at: usize) -> Vec<Dialogue> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut u32, &mut Act)| {
        let mut changed = dialogue.clone();
        let step = &mut changed.steps[at];
        change(&mut step.after_ms, &mut step.act);
        if changed != *dialogue {
            found.push(changed);
        }
    };
    with(&|after_ms, _| *after_ms = 0);
    with(&|_, act| {
        if let Act::Call(Call::Send(bytes)) = act {
            *bytes = (*bytes).min(100);
        }
    });
    with(&|_, act| {
        if let Act::Peer(segment) = act {
            segment.timestamp = None;
        }
    });
    with(&|_, act| {
        if let Act::Peer(segment) = act {
            segment.sack.clear();
        }
    });
    with(&|_, act| {
        if let Act::Peer(segment) = act {
            segment.sack_permitted = false;
        }
    });
    with(&|_, act| {
        if let Act::Peer(segment) = act {
            segment.ip_ecn = 0;
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::generate;

    #[test]
    fn each_candidate_is_simpler_and_the_shortest_come_first() {
        for seed in 0..50 {
            let dialogue = generate::dialogue(seed);
            let candidates = candidates(&dialogue);
            assert!(candidates.iter().all(|candidate| *candidate != dialogue));
            let lengths: Vec<usize> = candidates.iter().map(|candidate| candidate.steps.len()).collect();
            assert!(lengths.is_sorted(), "{lengths:?}");
            assert_eq!(lengths.contains(&(dialogue.steps.len() - 1)), dialogue.steps.len() > 1);
        }
    }
}
