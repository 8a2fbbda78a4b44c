//! Compares the records of the kernel and of the stack, and names each difference.

use std::fmt;

use super::dialogue::{Act, Dialogue, letters};
use super::packet::{PSH, TcpOption};
use super::player::{Outcome, Record, Reply, Sent};

/// A part of a reply in which the two hosts differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// The control bits except PSH.
    Bits,
    Push,
    Seq,
    Ack,
    /// One window is closed and the other open.
    Window,
    /// Both windows are open, with different sizes.
    WindowSize,
    Len,
    Urgent,
    Options,
    HopLimit,
    Service,
    DontFragment,
    /// The value of the timestamp clock.
    Clock,
    /// The time at which the segment was sent.
    Time,
}

/// A difference between the two hosts.
#[derive(Debug, Clone)]
pub(crate) enum Difference {
    /// The call of this step has different results.
    Call { step: usize, kernel: Option<Outcome>, stack: Option<Outcome> },
    /// The replies at the same place differ in these fields.
    Reply { kernel: Sent, stack: Sent, fields: Vec<Field> },
    /// Only the kernel sent a further reply.
    OnlyKernel(Sent),
    /// Only the stack sent a further reply.
    OnlyStack(Sent),
}

/// What becomes of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing explains it.
    Unexplained,
    /// It is explained, and has no further effect: the comparison continues behind it.
    Continue,
    /// The kernel's reply is explained, and the stack's belongs to the kernel's next one.
    SkipKernel,
    /// The stack's reply is explained, and the kernel's belongs to the stack's next one.
    SkipStack,
    /// It is explained, and what follows from it cannot be compared.
    Stop,
}

/// How far two times of the same reply may differ: the kernel's timers have ticks of up to 10 ms and are late by up to 1/8 of their time,
/// and the machine is busy.
fn tolerance_us(at_us: u64) -> u64 {
    15_000 + at_us / 16
}

/// An immediate answer comes within this time.
pub(crate) const IMMEDIATE_US: u64 = 2_000;

/// Whether a host sent this as the immediate answer to a step.
pub(crate) fn is_immediate(record: &Record, sent: &Sent) -> bool {
    let begun = sent.steps.checked_sub(1).and_then(|last| record.begun_us.get(last));
    begun.is_some_and(|begun| sent.at_us < begun + IMMEDIATE_US)
}

/// From this distance on, the immediate answer of one host and what the timer of the other host sends have different times.
const ANSWER_DISTANCE_US: u64 = 8_000;

/// The fields in which two replies differ. `answer` says of the kernel's and of the stack's reply whether it is an immediate answer to a
/// step.
fn fields(kernel: &Sent, stack: &Sent, answer: [bool; 2]) -> Vec<Field> {
    let (one, other) = (&kernel.reply, &stack.reply);
    let mut found = Vec::new();
    let mut check = |differs: bool, field: Field| found.extend(differs.then_some(field));
    check(one.bits | PSH != other.bits | PSH, Field::Bits);
    check(one.seq != other.seq, Field::Seq);
    check(one.ack != other.ack, Field::Ack);
    check((one.window == 0) != (other.window == 0), Field::Window);
    check(one.len != other.len, Field::Len);
    check(one.urgent != other.urgent, Field::Urgent);
    check(timeless(one) != timeless(other), Field::Options);
    check(one.hop_limit != other.hop_limit, Field::HopLimit);
    check(one.service != other.service, Field::Service);
    check(one.dont_fragment != other.dont_fragment, Field::DontFragment);
    if let (Some(one), Some(other)) = (clock_ms(one), clock_ms(other)) {
        check(u64::from(one.abs_diff(other)) * 1_000 > tolerance_us(kernel.at_us), Field::Clock);
    }
    // What one host sends in answer to a step, and the other one in answer to another step.
    let distance_us = kernel.at_us.abs_diff(stack.at_us);
    let has_data = kernel.reply.len > 0 && stack.reply.len > 0;
    let other_step = (answer == [true; 2] || has_data && distance_us < IMMEDIATE_US) && kernel.steps != stack.steps;
    let one_by_timer = has_data && answer[0] != answer[1] && distance_us > ANSWER_DISTANCE_US;
    check(other_step || one_by_timer || distance_us > tolerance_us(kernel.at_us), Field::Time);
    found
}

/// The fields in which two replies differ, and that are judged one by one, because they do not affect other fields.
fn minor_fields(kernel: &Sent, stack: &Sent) -> Vec<Field> {
    let (one, other) = (&kernel.reply, &stack.reply);
    let mut found = Vec::new();
    found.extend((one.bits & PSH != other.bits & PSH).then_some(Field::Push));
    let are_open = one.window > 0 && other.window > 0;
    found.extend((are_open && one.window != other.window).then_some(Field::WindowSize));
    found
}

fn reply(kernel: &Sent, stack: &Sent, fields: Vec<Field>) -> Difference {
    Difference::Reply { kernel: kernel.clone(), stack: stack.clone(), fields }
}

/// The options with 0 instead of TSval.
fn timeless(reply: &Reply) -> Vec<TcpOption> {
    let mut options = reply.options.clone();
    for option in &mut options {
        if let TcpOption::Timestamps(value, _) = option {
            *value = 0;
        }
    }
    options
}

fn clock_ms(reply: &Reply) -> Option<u32> {
    reply.options.iter().find_map(|option| match option {
        TcpOption::Timestamps(value, _) => Some(*value),
        TcpOption::NoOperation
        | TcpOption::Mss(_)
        | TcpOption::WindowScale(_)
        | TcpOption::SackPermitted
        | TcpOption::Sack(_)
        | TcpOption::Other(..) => None,
    })
}

/// Compares two records in the order of time. Calls `judge` for each difference, until `judge` does not explain one or stops the
/// comparison. Returns the difference that nothing explains.
pub(crate) fn compare(
    dialogue: &Dialogue,
    kernel: &Record,
    stack: &Record,
    mut judge: impl FnMut(&Difference) -> Verdict,
) -> Option<Difference> {
    let cut_us = uncertain_from_us(kernel, stack);
    let (mut kernel_at, mut stack_at) = (0, 0);
    let end_us = stack.begun_us.last().copied().unwrap_or(0);
    for step in 0..=dialogue.steps.len() {
        loop {
            let (theirs, ours) = (kernel.sent.get(kernel_at), stack.sent.get(stack_at));
            let first_us = theirs.into_iter().chain(ours).map(|sent| sent.at_us).min();
            if first_us.is_some_and(|first| first >= cut_us) {
                return None;
            }
            let difference = match (theirs, ours) {
                (None, None) => break,
                (Some(theirs), Some(ours)) if theirs.steps.min(ours.steps) <= step => {
                    pair((kernel, theirs), (stack, ours))
                }
                // What one host sends at the very end, the other sends after the end.
                (Some(last), None) | (None, Some(last)) if last.at_us + tolerance_us(end_us) > end_us => return None,
                (Some(theirs), None) if theirs.steps <= step => Some(Difference::OnlyKernel(theirs.clone())),
                (None, Some(ours)) if ours.steps <= step => Some(Difference::OnlyStack(ours.clone())),
                (Some(_), _) | (_, Some(_)) => break,
            };
            let verdict = difference.as_ref().map_or(Verdict::Continue, &mut judge);
            if let (Some(theirs), Some(ours), Verdict::Continue) = (theirs, ours, verdict) {
                let alone = minor_fields(theirs, ours).into_iter().map(|field| reply(theirs, ours, vec![field]));
                if let Some(difference) = alone.into_iter().find(|alone| judge(alone) == Verdict::Unexplained) {
                    return Some(difference);
                }
            }
            kernel_at += usize::from(verdict != Verdict::SkipStack);
            stack_at += usize::from(verdict != Verdict::SkipKernel);
            match verdict {
                Verdict::Unexplained => return difference,
                Verdict::Stop => return None,
                Verdict::Continue | Verdict::SkipKernel | Verdict::SkipStack => {}
            }
        }
        if step_us(stack, step) >= cut_us {
            return None;
        }
        if step < dialogue.steps.len() && kernel.outcomes[step] != stack.outcomes[step] {
            let difference = Difference::Call { step, kernel: kernel.outcomes[step], stack: stack.outcomes[step] };
            match judge(&difference) {
                Verdict::Unexplained => return Some(difference),
                Verdict::Continue | Verdict::SkipKernel | Verdict::SkipStack => {}
                Verdict::Stop => return None,
            }
        }
    }
    None
}

/// The time at which a step begins, or the end of the dialogue.
fn step_us(record: &Record, step: usize) -> u64 {
    record.begun_us.get(step).or(record.begun_us.last()).copied().unwrap_or(0)
}

/// How much later than a timer of the stack the same timer of the kernel may expire, after this waiting time: the kernel's timers have
/// coarse ticks.
fn lateness_us(waited_us: u64) -> u64 {
    15_000 + waited_us / 8
}

/// How much earlier than a timer of the stack the same timer of the kernel may expire.
const EARLINESS_US: u64 = 10_000;

/// The time from which the records cannot be compared: a timer of the stack expires shortly before a step, so that the same timer of
/// the kernel may expire after it. Or a timer of the kernel does, so that the same timer of the stack may expire after it.
fn uncertain_from_us(kernel: &Record, stack: &Record) -> u64 {
    let next_us = |sent: &Sent| stack.begun_us.get(sent.steps).copied().unwrap_or(u64::MAX);
    let is_timer = |sent: &Sent| {
        // The kernel's replies are read a moment after the step.
        sent.steps.checked_sub(1).is_some_and(|last| sent.at_us > step_us(stack, last) + 2_000)
    };
    let mut before_us = 0;
    let stack_is_near = |sent: &&Sent| {
        // Most timers start when a segment is sent.
        let waited_us = sent.at_us - before_us;
        before_us = sent.at_us;
        is_timer(sent) && sent.at_us + lateness_us(waited_us) > next_us(sent)
    };
    let kernel_is_near = |sent: &&Sent| is_timer(sent) && sent.at_us + EARLINESS_US > next_us(sent);
    let near = stack.sent.iter().find(stack_is_near).into_iter().chain(kernel.sent.iter().find(kernel_is_near));
    near.map(|sent| sent.at_us).min().unwrap_or(u64::MAX)
}

fn pair((kernel_record, kernel): (&Record, &Sent), (stack_record, stack): (&Record, &Sent)) -> Option<Difference> {
    let answer = [is_immediate(kernel_record, kernel), is_immediate(stack_record, stack)];
    let fields = fields(kernel, stack, answer);
    (!fields.is_empty()).then(|| reply(kernel, stack, fields))
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { step, kernel, stack } => {
                write!(f, "step {}: the call returns {kernel:?} from the kernel, {stack:?} from the stack", step + 1)
            }
            Self::Reply { kernel, stack, fields } => {
                write!(f, "replies differ in {fields:?}\n  kernel {kernel}\n  stack  {stack}")
            }
            Self::OnlyKernel(sent) => write!(f, "only the kernel sends\n  kernel {sent}"),
            Self::OnlyStack(sent) => write!(f, "only the stack sends\n  stack  {sent}"),
        }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, at_us, reply } = self;
        write!(f, "step {steps}, {}.{:03} ms: {}", at_us / 1_000, at_us % 1_000, letters(reply.bits))?;
        write!(f, " seq {} ack {} win {}", reply.seq.cast_signed(), reply.ack.cast_signed(), reply.window)?;
        if reply.len > 0 {
            write!(f, " len {}", reply.len)?;
        }
        if reply.urgent > 0 {
            write!(f, " urg {}", reply.urgent)?;
        }
        reply.options.iter().try_for_each(|option| write!(f, " {option:?}"))?;
        write!(f, " hops {} service {} df {}", reply.hop_limit, reply.service, u8::from(reply.dont_fragment))
    }
}

/// The two records side by side, with the steps of the dialogue.
pub(crate) fn table(dialogue: &Dialogue, kernel: &Record, stack: &Record) -> String {
    let mut text = String::new();
    for step in 0..=dialogue.steps.len() {
        for (name, record) in [("kernel", kernel), ("stack ", stack)] {
            for sent in record.sent.iter().filter(|sent| sent.steps == step) {
                text += &format!("  {name} {sent}\n");
            }
        }
        if let Some(next) = dialogue.steps.get(step) {
            let outcome = match next.act {
                Act::Call(_) => format!("  kernel {:?}, stack {:?}", kernel.outcomes[step], stack.outcomes[step]),
                Act::Peer(_) | Act::Error(_) | Act::Wait => String::new(),
            };
            text += &format!("{}: {next}{outcome}\n", step + 1);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::stack;
    use crate::differential::{ends, recorded};

    /// Compares the record of a recorded dialogue with a changed copy of it.
    fn changed(change: impl FnOnce(&mut Record)) -> Option<Difference> {
        let dialogue = &recorded()[0];
        let record = stack::play(dialogue, ends(7, dialogue), &dialogue.planned_us());
        let mut other = record.clone();
        change(&mut other);
        compare(dialogue, &other, &record, |_| Verdict::Unexplained)
    }

    fn field(difference: Option<Difference>) -> Vec<Field> {
        match difference {
            Some(Difference::Reply { fields, .. }) => fields,
            other => panic!("no difference of replies: {other:?}"),
        }
    }

    #[test]
    fn equal_records_do_not_differ() {
        assert!(changed(|_| {}).is_none());
    }

    #[test]
    fn each_field_that_differs_is_named() {
        assert_eq!(field(changed(|record| record.sent[1].reply.ack += 1)), [Field::Ack]);
        assert_eq!(field(changed(|record| record.sent[2].reply.len -= 1)), [Field::Len]);
        assert_eq!(field(changed(|record| record.sent[1].reply.window = 0)), [Field::Window]);
        assert_eq!(field(changed(|record| record.sent[1].reply.window -= 1)), [Field::WindowSize]);
        assert_eq!(field(changed(|record| record.sent[1].reply.bits ^= PSH)), [Field::Push]);
        assert_eq!(field(changed(|record| record.sent[0].reply.options.reverse())), [Field::Options]);
        assert!(matches!(changed(|record| record.outcomes[0] = None), Some(Difference::Call { step: 0, .. })));
    }

    #[test]
    fn a_time_differs_only_beyond_the_tolerance() {
        assert!(changed(|record| record.sent[1].at_us += 10_000).is_none());
        assert_eq!(field(changed(|record| record.sent[1].at_us += 30_000)), [Field::Time]);
    }

    #[test]
    fn a_missing_reply_is_a_difference_except_at_the_end() {
        let removed = changed(|record| drop(record.sent.remove(1)));
        assert!(removed.is_some());
        let last = changed(|record| record.sent.truncate(record.sent.len() - 1));
        assert!(matches!(last, Some(Difference::OnlyStack(_))), "{last:?}");
    }
}
