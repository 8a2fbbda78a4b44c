//! A run: plays dialogues with both players, repeats those that differ, and counts how often each rule applied.

use std::io;

use super::compare::{self, Difference};
use super::coverage::Coverage;
use super::dialogue::Dialogue;
use super::kernel::Kernel;
use super::player::Record;
use super::rules::{self, Context, RULES};
use super::stack;

/// The number of dialogues that the kernel plays at once.
const AT_ONCE: usize = 400;
/// The number of dialogues at once in a repetition, where the machine has little else to do.
const AT_ONCE_REPEATED: usize = 100;
/// How often a difference must appear until it counts.
const REPETITIONS: usize = 3;
/// The number of dialogues at once when differences are confirmed, and how often these dialogues are played.
const AT_ONCE_CONFIRMED: usize = 8;
const CONFIRMATIONS: usize = 2;
/// How often a dialogue is played again because the machine was too busy.
const LATE_REPETITIONS: usize = 6;

/// The comparison of one dialogue.
pub(crate) struct Comparison {
    pub(crate) kernel: Record,
    pub(crate) stack: Record,
    /// The first difference that no rule explains.
    pub(crate) difference: Option<Difference>,
    /// Whether each rule applied.
    applied: [bool; RULES.len()],
}

pub(crate) struct Session {
    kernel: Kernel,
    /// For each rule, the number of dialogues in which it applied.
    pub(crate) applied: [u64; RULES.len()],
    /// The number of dialogues that were compared.
    pub(crate) compared: u64,
    /// The number of dialogues that differed once, but not again.
    pub(crate) unstable: u64,
    /// The number of dialogues that were not compared, because the machine was too busy each time.
    pub(crate) late: u64,
    pub(crate) coverage: Coverage,
}

impl Session {
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self { kernel, applied: [0; RULES.len()], compared: 0, unstable: 0, late: 0, coverage: Coverage::default() }
    }

    /// Plays dialogues once, `at_once` of them at a time.
    pub(crate) fn play(&mut self, dialogues: &[Dialogue], at_once: usize) -> io::Result<Vec<Comparison>> {
        let mut comparisons = Vec::with_capacity(dialogues.len());
        for part in dialogues.chunks(at_once) {
            let records = self.kernel.play(part)?;
            for (dialogue, (ends, kernel)) in part.iter().zip(records) {
                let stack = stack::play(dialogue, ends, &kernel.begun_us);
                let mut applied = [false; RULES.len()];
                let context = Context { dialogue, kernel: &kernel, stack: &stack };
                let difference = compare::compare(dialogue, &kernel, &stack, |difference| {
                    let (verdict, rule) = rules::judge(&context, difference);
                    rule.into_iter().for_each(|rule| applied[rule] = true);
                    verdict
                });
                comparisons.push(Comparison { kernel, stack, difference, applied });
            }
        }
        Ok(comparisons)
    }

    /// Plays dialogues, and again those that differ or were late. Returns the places of those that differ each time, with the last
    /// comparison.
    pub(crate) fn check(&mut self, dialogues: &[Dialogue]) -> io::Result<Vec<(usize, Comparison)>> {
        let mut open: Vec<usize> = (0..dialogues.len()).collect();
        let mut differed = vec![0; dialogues.len()];
        let mut found = Vec::new();
        for attempt in 0..=LATE_REPETITIONS {
            let chosen: Vec<Dialogue> = open.iter().map(|place| dialogues[*place].clone()).collect();
            let at_once = if attempt == 0 { AT_ONCE } else { AT_ONCE_REPEATED };
            let comparisons = self.play(&chosen, at_once)?;
            let mut again = Vec::new();
            for (place, comparison) in open.into_iter().zip(comparisons) {
                if comparison.kernel.is_late {
                    again.push(place);
                } else if comparison.difference.is_none() {
                    self.unstable += u64::from(differed[place] > 0);
                    self.count(&dialogues[place], &comparison);
                } else if differed[place] == REPETITIONS {
                    self.count(&dialogues[place], &comparison);
                    found.push((place, comparison));
                } else {
                    differed[place] += 1;
                    again.push(place);
                }
            }
            open = again;
            if open.is_empty() {
                break;
            }
        }
        self.late += u64::try_from(open.len()).unwrap_or(0);
        found.sort_by_key(|(place, _)| *place);
        self.confirm(dialogues, found)
    }

    /// Plays the dialogues that differ again, a few at once, so that dialogues do not delay each other. Returns those that still
    /// differ each time.
    fn confirm(
        &mut self,
        dialogues: &[Dialogue],
        mut found: Vec<(usize, Comparison)>,
    ) -> io::Result<Vec<(usize, Comparison)>> {
        for _ in 0..CONFIRMATIONS {
            let chosen: Vec<Dialogue> = found.iter().map(|(place, _)| dialogues[*place].clone()).collect();
            let comparisons = self.play(&chosen, AT_ONCE_CONFIRMED.max(chosen.len() / 5))?;
            let places = found.into_iter().map(|(place, _)| place);
            let (again, gone): (Vec<_>, Vec<_>) =
                places.zip(comparisons).partition(|(_, comparison)| comparison.difference.is_some());
            self.unstable += u64::try_from(gone.len()).unwrap_or(0);
            found = again;
        }
        Ok(found)
    }

    fn count(&mut self, dialogue: &Dialogue, comparison: &Comparison) {
        self.compared += 1;
        self.coverage.add(dialogue, &comparison.stack);
        for (count, applied) in self.applied.iter_mut().zip(comparison.applied) {
            *count += u64::from(applied);
        }
    }
}

impl Comparison {
    /// Whether the same kind of difference was found, which no rule explains.
    pub(crate) fn differs_like(&self, other: &Difference) -> bool {
        !self.kernel.is_late && self.difference.as_ref().is_some_and(|difference| kind(difference) == kind(other))
    }
}

/// The kind of a difference: the fields that differ, and the control bits.
pub(crate) fn kind(difference: &Difference) -> String {
    match difference {
        Difference::Call { kernel, stack, .. } => format!("call {kernel:?} {stack:?}"),
        Difference::Reply { kernel, stack, fields } => {
            let bits = [kernel, stack].map(|sent| super::dialogue::letters(sent.reply.bits));
            format!("reply {} {} {fields:?}", bits[0], bits[1])
        }
        Difference::OnlyKernel(sent) => format!("only kernel {}", super::dialogue::letters(sent.reply.bits)),
        Difference::OnlyStack(sent) => format!("only stack {}", super::dialogue::letters(sent.reply.bits)),
    }
}
