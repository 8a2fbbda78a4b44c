//! Plays the same sequences of packets with the kernel and with the stack, and compares what both send: UDP, ICMP, fragments and
//! forwarding.
//!
//! The parent module starts the process in a network namespace of its own. A difference that is a decision of the stack has a rule,
//! which names a line of `docs/linux-differences.md`. Any other difference fails the run, and the shortest sequence that shows it is
//! printed.

mod build;
mod compare;
mod generate;
mod kernel;
mod minimise;
mod place;
mod record;
mod rules;
mod sequence;
mod stack;

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use super::Options;
use crate::command;
use compare::Difference;
use kernel::Kernel;
use record::Reaction;
use rules::{Context, RULES};
use sequence::Sequence;

/// How often a difference must appear until it counts.
const REPETITIONS: usize = 2;

const RECORDED: &str = include_str!("packets/recorded.txt");

/// Plays sequences. Returns an error if a difference is not explained.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let failed = |error: io::Error| format!("the kernel's part of the comparison failed: {error}");
    let mut session = Session::new(Kernel::open().map_err(failed)?);
    match options.seed {
        Some(seed) => one(&mut session, &generate::sequence(seed)).map_err(failed)?,
        None => many(&mut session, options).map_err(failed)?,
    }
}

/// Plays one sequence, and prints both records.
fn one(session: &mut Session, sequence: &Sequence) -> io::Result<Result<(), String>> {
    let comparison = session.play(std::slice::from_ref(sequence))?.remove(0);
    let table = compare::table(sequence, &comparison.kernel, &comparison.stack);
    let difference = comparison.difference.map(|difference| format!("{difference}\n"));
    let result = if difference.is_some() { Err("the kernel and the stack differ".to_owned()) } else { Ok(()) };
    Ok(command::print(&format!("{sequence}\n{table}{}", difference.unwrap_or_default())).and(result))
}

/// Plays the recorded sequences and drawn ones.
fn many(session: &mut Session, options: &Options) -> io::Result<Result<(), String>> {
    let began = Instant::now();
    let mut found = Findings::default();
    found.check(session, options, &recorded(), |place| format!("recorded sequence {}", place + 1))?;
    for seeds in options.batches(began) {
        let sequences: Vec<Sequence> = seeds.clone().map(generate::sequence).collect();
        found.check(session, options, &sequences, |place| {
            format!("seed {}", seeds.start + u64::try_from(place).unwrap_or(0))
        })?;
    }
    Ok(found.report(session, began))
}

/// The recorded sequences. The tests check that all of them can be read.
fn recorded() -> Vec<Sequence> {
    let blocks = RECORDED.split("\n\n").filter(|block| block.lines().any(|line| !line.starts_with('#')));
    blocks.filter_map(|block| block.parse().ok()).collect()
}

/// The comparison of one sequence.
struct Comparison {
    kernel: Vec<Reaction>,
    stack: Vec<Reaction>,
    /// The first difference that no rule explains.
    difference: Option<Difference>,
    /// Whether each rule applied.
    applied: [bool; RULES.len()],
}

/// A run: plays sequences with both players, and counts how often each rule applied.
struct Session {
    kernel: Kernel,
    /// For each rule, the number of sequences in which it applied.
    applied: [u64; RULES.len()],
    compared: u64,
    /// The number of sequences that differed once, but not again.
    unstable: u64,
}

impl Session {
    fn new(kernel: Kernel) -> Self {
        Self { kernel, applied: [0; RULES.len()], compared: 0, unstable: 0 }
    }

    /// Plays sequences once.
    fn play(&mut self, sequences: &[Sequence]) -> io::Result<Vec<Comparison>> {
        let records = self.kernel.play(sequences)?;
        let compared = sequences.iter().zip(records).map(|(sequence, (number, kernel))| {
            let stack = stack::play(sequence, number);
            let mut applied = [false; RULES.len()];
            let context = Context { sequence };
            let difference = compare::compare(&kernel, &stack, |difference| {
                let (verdict, rule) = rules::judge(&context, difference);
                rule.into_iter().for_each(|rule| applied[rule] = true);
                verdict
            });
            Comparison { kernel, stack, difference, applied }
        });
        Ok(compared.collect())
    }

    /// Plays sequences, and again those that differ. Returns the places of those that differ each time, with the last difference.
    fn check(&mut self, sequences: &[Sequence]) -> io::Result<Vec<(usize, Difference)>> {
        let mut open: Vec<usize> = (0..sequences.len()).collect();
        let mut found = Vec::new();
        for attempt in 0..=REPETITIONS {
            let chosen: Vec<Sequence> = open.iter().map(|place| sequences[*place].clone()).collect();
            let comparisons = self.play(&chosen)?;
            let before = std::mem::take(&mut open);
            for (place, comparison) in before.into_iter().zip(comparisons) {
                match comparison.difference {
                    Some(_) if attempt < REPETITIONS => open.push(place),
                    difference => {
                        self.compared += 1;
                        self.unstable += u64::from(difference.is_none() && attempt > 0);
                        for (count, applied) in self.applied.iter_mut().zip(comparison.applied) {
                            *count += u64::from(applied);
                        }
                        found.extend(difference.map(|difference| (place, difference)));
                    }
                }
            }
        }
        found.sort_by_key(|(place, _)| *place);
        Ok(found)
    }
}

/// The differences of a run that no rule explains.
#[derive(Default)]
struct Findings {
    /// How many sequences show each kind of difference.
    kinds: BTreeMap<String, usize>,
}

impl Findings {
    /// Plays sequences, and prints the first of each kind of difference, shortened.
    fn check(
        &mut self,
        session: &mut Session,
        options: &Options,
        sequences: &[Sequence],
        name: impl Fn(usize) -> String,
    ) -> io::Result<()> {
        for (place, difference) in session.check(sequences)? {
            let (name, kind) = (name(place), difference.kind());
            eprintln!("{name}: {kind}");
            if !self.kinds.contains_key(&kind) && self.kinds.len() < options.minimise {
                let shorter = minimise::minimise(session, &sequences[place], &difference)?;
                let comparison = session.play(std::slice::from_ref(&shorter))?.remove(0);
                let table = compare::table(&shorter, &comparison.kernel, &comparison.stack);
                let difference = comparison.difference.unwrap_or(difference);
                eprintln!("the shortest sequence found from {name}, as in packets/recorded.txt:\n\n{shorter}\n{table}");
                eprintln!("{difference}\n");
            }
            *self.kinds.entry(kind).or_default() += 1;
        }
        Ok(())
    }

    /// Prints how often each rule applied. Returns an error if there is an unexplained difference.
    fn report(&self, session: &Session, began: Instant) -> Result<(), String> {
        let Session { applied, compared, unstable, .. } = session;
        let rules = RULES.iter().zip(applied).map(|(rule, count)| format!("{count:>8}  {}\n", rule.name));
        let kinds = self.kinds.iter().map(|(kind, count)| format!("{count:>8}  not explained: {kind}\n"));
        let different: usize = self.kinds.values().sum();
        command::print(&format!(
            "sequences in which each rule applied:\n{}{}{compared} sequences compared in {} s; {different} differ without \
             explanation; {unstable} differed only once\n",
            rules.collect::<String>(),
            kinds.collect::<String>(),
            began.elapsed().as_secs(),
        ))?;
        if different == 0 { Ok(()) } else { Err(format!("{different} sequences differ without explanation")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Outcome, Sent};

    #[test]
    fn every_recorded_sequence_is_valid() {
        let blocks =
            RECORDED.split("\n\n").map(str::trim).filter(|block| !block.lines().all(|line| line.starts_with('#')));
        let read: Vec<Sequence> = blocks.map(|block| block.parse().unwrap()).collect();
        assert_eq!(read, recorded());
        assert!(!read.is_empty());
    }

    #[test]
    fn the_stack_reacts_in_the_step_of_each_packet_and_call() {
        let reactions = stack::play(&recorded()[0], 7);
        let sent: Vec<usize> = reactions.iter().map(|reaction| reaction.sent.len()).collect();
        assert_eq!(sent, [0, 0, 0, 0, 1, 0, 0, 0]);
        assert!(matches!(&reactions[3].outcome, Some(Outcome::Received(_, bytes)) if bytes.len() == 100));
        assert_eq!(reactions[6].outcome, Some(Outcome::Failed(rustix::io::Errno::CONNREFUSED)));
        let forwarded = stack::play(&recorded()[1], 7);
        let places = forwarded[0].sent.iter().filter_map(|sent| sent.fragment).map(|part| (part.offset, part.more));
        assert_eq!(places.collect::<Vec<_>>(), [(0, true), (552, false)]);
        assert_eq!(forwarded[1].sent[0].icmp(), Some((3, 4)));
    }

    #[test]
    fn each_difference_of_a_packet_is_named() {
        type Change = fn(&mut Sent);
        let changes: [(Change, &str); 9] = [
            (|sent| sent.hop_limit -= 1, "[HopLimit]"),
            (|sent| sent.device = 1, "[Device]"),
            (|sent| sent.service = 3, "[Service]"),
            (|sent| sent.dont_fragment = true, "[DontFragment]"),
            (|sent| sent.intact = false, "[Intact]"),
            (|sent| sent.from = sent.to, "[From]"),
            (|sent| sent.payload[4] ^= 1, "[Rest]"),
            (|sent| sent.payload[9] ^= 1, "[Payload]"),
            (|sent| sent.payload.truncate(20), "[Len]"),
        ];
        let reactions = stack::play(&recorded()[1], 7);
        for (change, name) in changes {
            let mut changed = reactions.clone();
            change(&mut changed[1].sent[0]);
            let found = compare::compare(&changed, &reactions, |_| compare::Verdict::Unexplained).unwrap();
            assert_eq!((found.step(), found.kind().contains(name)), (1, true), "{name}: {found}");
        }
        let mut fewer = reactions.clone();
        fewer[0].sent.pop();
        let found = compare::compare(&fewer, &reactions, |_| compare::Verdict::Unexplained);
        assert!(matches!(found, Some(Difference::OnlyStack { step: 0, .. })));
        assert!(compare::compare(&reactions, &reactions, |_| compare::Verdict::Unexplained).is_none());
    }
}
