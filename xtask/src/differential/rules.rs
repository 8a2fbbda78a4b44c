//! The known differences between the kernel and the stack. Each rule recognises one of them and has a line in
//! `docs/linux-differences.md`, which gives the RFC and the reason.

use super::compare::{Difference, Field, Verdict};
use super::dialogue::{AckNumber, Act, Call, Dialogue, PathError, PeerSegment, Step};
use super::packet::{ACK, CWR, ECE, FIN, RST, SYN, TcpOption};
use super::player::{Outcome, Record, Reply, Sent};

/// The records in which a difference was found.
pub(crate) struct Context<'a> {
    pub(crate) dialogue: &'a Dialogue,
    pub(crate) kernel: &'a Record,
    pub(crate) stack: &'a Record,
}

/// A rule. The name is the first column of its line in the document.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) judge: fn(&Context<'_>, &Difference) -> Verdict,
}

/// All rules, in the order in which they are tried.
pub(crate) const RULES: [Rule; 25] = [
    Rule { name: "window-size", judge: window_size },
    Rule { name: "push", judge: push },
    Rule { name: "sack-fin", judge: sack_fin },
    Rule { name: "data-after-end", judge: data_after_end },
    Rule { name: "reset-after-sack", judge: reset_after_sack },
    Rule { name: "syn-in-syn-received", judge: syn_in_syn_received },
    Rule { name: "syn-data", judge: syn_data },
    Rule { name: "timestamp-missing", judge: timestamp_missing },
    Rule { name: "no-ack", judge: no_ack },
    Rule { name: "data-after-fin", judge: data_after_fin },
    Rule { name: "fin-ack", judge: fin_ack },
    Rule { name: "ack-delay", judge: ack_delay },
    Rule { name: "ack-before-data", judge: ack_before_data },
    Rule { name: "window-update", judge: window_update },
    Rule { name: "deferral", judge: deferral },
    Rule { name: "small-path-mtu", judge: small_path_mtu },
    Rule { name: "send-early", judge: send_early },
    Rule { name: "reset-after-fin", judge: reset_after_fin },
    Rule { name: "user-timeout", judge: user_timeout },
    Rule { name: "ghost-ack", judge: ghost_ack },
    Rule { name: "keepalive-start", judge: keepalive_start },
    Rule { name: "syn-retry", judge: syn_retry },
    Rule { name: "simultaneous-options", judge: simultaneous_options },
    Rule { name: "half-window", judge: half_window },
    Rule { name: "reset-fields", judge: reset_fields },
];

/// Within this time, one host may delay an acknowledgement that the other sends at once.
const ACK_DELAY_MS: u32 = 60;
/// The smallest path MTU that the kernel uses (`min_pmtu`).
const KERNEL_PATH_MTU_MIN: u16 = 552;

/// Applies the rules to a difference. Returns the verdict, and the place of the rule that explains the difference.
pub(crate) fn judge(context: &Context<'_>, difference: &Difference) -> (Verdict, Option<usize>) {
    let verdicts = RULES.iter().map(|rule| (rule.judge)(context, difference));
    let found = verdicts.enumerate().find(|(_, verdict)| *verdict != Verdict::Unexplained);
    found.map_or((Verdict::Unexplained, None), |(place, verdict)| (verdict, Some(place)))
}

/// Verdict `verdict` if `applies`.
fn when(applies: bool, verdict: Verdict) -> Verdict {
    if applies { verdict } else { Verdict::Unexplained }
}

/// The replies of a difference, and the fields in which they differ.
fn replies(difference: &Difference) -> Option<(&Reply, &Reply, &[Field])> {
    match difference {
        Difference::Reply { kernel, stack, fields } => Some((&kernel.reply, &stack.reply, fields)),
        Difference::Call { .. } | Difference::OnlyKernel(_) | Difference::OnlyStack(_) => None,
    }
}

/// The kernel's next reply in a difference.
fn kernel_reply(difference: &Difference) -> Option<&Sent> {
    match difference {
        Difference::Reply { kernel, .. } | Difference::OnlyKernel(kernel) => Some(kernel),
        Difference::Call { .. } | Difference::OnlyStack(_) => None,
    }
}

/// The stack's next reply in a difference.
fn stack_reply(difference: &Difference) -> Option<&Sent> {
    match difference {
        Difference::Reply { stack, .. } | Difference::OnlyStack(stack) => Some(stack),
        Difference::Call { .. } | Difference::OnlyKernel(_) => None,
    }
}

/// Whether the peer has sent a FIN in these steps.
fn has_fin(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(&step.act, Act::Peer(segment) if segment.flags & FIN != 0))
}

fn is_bare_ack(reply: &Reply) -> bool {
    reply.bits & !(ECE | CWR) == ACK && reply.len == 0
}

/// The peer's segment that this reply answers, if the step before the reply is one.
fn last_peer<'a>(context: &'a Context<'_>, sent: &Sent) -> Option<&'a PeerSegment> {
    match &context.dialogue.steps[..sent.steps].last()?.act {
        Act::Peer(segment) => Some(segment),
        Act::Call(_) | Act::Error(_) | Act::Wait => None,
    }
}

/// The segments of the peer in the last [`ACK_DELAY_MS`] before this reply.
fn recent_peers<'a>(context: &'a Context<'_>, sent: &Sent) -> impl Iterator<Item = &'a PeerSegment> {
    let mut since_ms = 0;
    let recent = context.dialogue.steps[..sent.steps].iter().rev().take_while(move |step| {
        since_ms += step.after_ms;
        since_ms - step.after_ms < ACK_DELAY_MS
    });
    recent.filter_map(|step| match &step.act {
        Act::Peer(segment) => Some(segment),
        Act::Call(_) | Act::Error(_) | Act::Wait => None,
    })
}

/// Both windows are open, but their sizes differ.
fn window_size(_: &Context<'_>, difference: &Difference) -> Verdict {
    let fields = replies(difference).map(|(_, _, fields)| fields);
    when(fields == Some(&[Field::WindowSize]), Verdict::Continue)
}

/// Only PSH differs.
fn push(_: &Context<'_>, difference: &Difference) -> Verdict {
    let fields = replies(difference).map(|(_, _, fields)| fields);
    when(fields == Some(&[Field::Push]), Verdict::Continue)
}

/// The kernel's SACK blocks cover the sequence number of the peer's FIN, and data behind the FIN.
fn sack_fin(context: &Context<'_>, difference: &Difference) -> Verdict {
    let same_step = matches!(difference, Difference::Reply { kernel, stack, .. } if kernel.steps == stack.steps);
    let Some((kernel, stack, [Field::Options])) = replies(difference) else { return Verdict::Unexplained };
    let one_has = sack_blocks(kernel).is_some() || sack_blocks(stack).is_some();
    when(
        same_step && one_has && has_fin(&context.dialogue.steps) && without_sack(kernel) == without_sack(stack),
        Verdict::Continue,
    )
}

/// The options that count for the comparison, without SACK blocks and without the padding in front of them.
fn without_sack(reply: &Reply) -> Vec<&TcpOption> {
    let counts = |option: &&TcpOption| match option {
        TcpOption::Mss(_) | TcpOption::WindowScale(_) | TcpOption::SackPermitted | TcpOption::Other(..) => true,
        TcpOption::NoOperation | TcpOption::Sack(_) | TcpOption::Timestamps(..) => false,
    };
    reply.options.iter().filter(counts).collect()
}

fn sack_blocks(reply: &Reply) -> Option<&Vec<(u32, u32)>> {
    reply.options.iter().find_map(|option| match option {
        TcpOption::Sack(blocks) => Some(blocks),
        TcpOption::NoOperation
        | TcpOption::Mss(_)
        | TcpOption::WindowScale(_)
        | TcpOption::SackPermitted
        | TcpOption::Timestamps(..)
        | TcpOption::Other(..) => None,
    })
}

/// The kernel resets a connection when data follows the peer's FIN, or the close of the application.
fn data_after_end(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference) else { return Verdict::Unexplained };
    let steps = &context.dialogue.steps[..sent.steps];
    let answers_data = matches!(steps.last(), Some(Step { act: Act::Peer(segment), .. }) if segment.len > 0 || segment.flags & FIN != 0);
    let ended = steps[..sent.steps - 1].iter().any(|step| match &step.act {
        Act::Peer(segment) => segment.flags & FIN != 0,
        Act::Call(call) => *call == Call::Close,
        Act::Error(_) | Act::Wait => false,
    });
    when(sent.reply.bits & RST != 0 && answers_data && ended, Verdict::Stop)
}

/// The kernel accepts a reset at the end of the highest SACK block, which the stack answers by a challenge ACK.
fn reset_after_sack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let answers_reset = |sent: &Sent| matches!(last_peer(context, sent), Some(segment) if segment.flags & RST != 0);
    let stack = stack_reply(difference).filter(|sent| is_bare_ack(&sent.reply) && answers_reset(sent));
    when(stack.is_some_and(|sent| sack_blocks(&sent.reply).is_some()), Verdict::Stop)
}

/// The stack acknowledges data behind the peer's FIN, which the kernel drops silently.
fn data_after_fin(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = stack_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let behind = recent_peers(context, sent).any(|segment| segment.len > 0 || segment.flags & FIN != 0);
    when(behind && has_fin(&context.dialogue.steps[..sent.steps - 1]), Verdict::SkipStack)
}

/// The kernel delays the acknowledgement of the peer's FIN, so that it can go with data or the FIN of this side.
fn fin_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let answers_fin = |sent: &&Sent| recent_peers(context, sent).any(|segment| segment.flags & FIN != 0);
    if let Some(sent) = kernel_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) {
        let same = |other: &Sent| (other.reply.seq, other.reply.ack) == (sent.reply.seq, sent.reply.ack);
        let before =
            |other: &Sent| other.at_us < sent.at_us && sent.at_us - other.at_us < u64::from(ACK_DELAY_MS) * 1_000;
        if context.stack.sent.iter().any(|other| same(other) && before(other) && answers_fin(&other)) {
            return Verdict::SkipKernel;
        }
    }
    when(
        stack_reply(difference).filter(|sent| is_bare_ack(&sent.reply)).is_some_and(|sent| answers_fin(&sent)),
        Verdict::SkipStack,
    )
}

fn only_late(fields: &[Field]) -> bool {
    fields.iter().all(|field| matches!(field, Field::Time | Field::Clock))
}

/// The same acknowledgement comes at once from one host, and delayed or with a later one from the other.
fn ack_delay(_: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Reply { kernel, stack, fields } = difference else { return Verdict::Unexplained };
    let is_near = kernel.at_us.abs_diff(stack.at_us) < u64::from(ACK_DELAY_MS) * 1_000;
    let covers = |late: &Sent, early: &Sent| {
        let more = late.reply.ack.wrapping_sub(early.reply.ack).cast_signed() >= 0;
        is_near && is_bare_ack(&early.reply) && more && late.steps > early.steps
    };
    if is_bare_ack(&kernel.reply) && is_bare_ack(&stack.reply) && only_late(fields) && is_near {
        return Verdict::Continue;
    }
    if covers(kernel, stack) {
        return Verdict::SkipStack;
    }
    when(covers(stack, kernel), Verdict::SkipKernel)
}

/// The kernel sends a bare acknowledgement immediately before data with the same acknowledgement number.
fn ack_before_data(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let next = context.kernel.sent.iter().find(|next| next.at_us > sent.at_us);
    let is_data = |next: &Sent| next.steps == sent.steps && next.reply.len > 0 && next.reply.ack == sent.reply.ack;
    when(next.is_some_and(|next| is_data(next) && next.at_us - sent.at_us < 1_000), Verdict::SkipKernel)
}

/// After a read, one host announces a larger window, and the other does not.
fn window_update(context: &Context<'_>, difference: &Difference) -> Verdict {
    let updates = |sent: &&Sent| {
        let last = context.dialogue.steps[..sent.steps].last();
        is_bare_ack(&sent.reply) && matches!(last, Some(Step { act: Act::Call(Call::Receive(_)), .. }))
    };
    if stack_reply(difference).filter(updates).is_some() {
        return Verdict::SkipStack;
    }
    when(kernel_reply(difference).filter(updates).is_some(), Verdict::SkipKernel)
}

/// The kernel resets a half-open connection for a SYN with another sequence number, which the stack answers by a challenge ACK.
fn syn_in_syn_received(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference) else { return Verdict::Unexplained };
    let answers_syn = matches!(last_peer(context, sent), Some(segment) if segment.flags & SYN != 0);
    when(sent.reply.bits & RST != 0 && answers_syn, Verdict::Stop)
}

/// The kernel accepts a segment without timestamps on a connection with timestamps. The stack drops it.
fn timestamp_missing(context: &Context<'_>, difference: &Difference) -> Verdict {
    let until = match difference {
        Difference::Reply { kernel, stack, .. } => kernel.steps.max(stack.steps),
        Difference::OnlyKernel(sent) | Difference::OnlyStack(sent) => sent.steps,
        Difference::Call { step, .. } => step + 1,
    };
    let agreed =
        |record: &Record| record.sent.iter().any(|sent| sent.reply.bits & SYN == 0 && has_timestamps(&sent.reply));
    let lacks = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.timestamp.is_none() && segment.flags & (RST | SYN) == 0);
    let lacking = context.dialogue.steps[..until].iter().any(lacks);
    when(lacking && agreed(context.kernel) && agreed(context.stack), Verdict::Stop)
}

fn has_timestamps(reply: &Reply) -> bool {
    reply.options.iter().any(|option| matches!(option, TcpOption::Timestamps(..)))
}

/// The stack acknowledges a segment outside of the window even if the segment has no ACK bit. The kernel drops it silently.
fn no_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = stack_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let lacks_ack = recent_peers(context, sent).any(|segment| segment.bits() & (ACK | SYN | RST) == 0);
    when(lacks_ack, Verdict::SkipStack)
}

/// The stack accepts data and FIN of a SYN. The kernel ignores them without a Fast Open cookie.
fn syn_data(context: &Context<'_>, difference: &Difference) -> Verdict {
    let differs = replies(difference).is_some_and(|(kernel, stack, _)| kernel.ack != stack.ack)
        || matches!(difference, Difference::OnlyStack(_) | Difference::Call { .. });
    let has_data = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.flags & SYN != 0 && (segment.len > 0 || segment.flags & FIN != 0));
    when(differs && context.dialogue.steps.iter().any(has_data), Verdict::Stop)
}

/// The kernel sends a segment later than the stack, because it waits until it can send several segments at once.
fn deferral(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Reply { kernel, stack, fields } = difference else { return Verdict::Unexplained };
    let counts = [Field::Ack, Field::Options, Field::Clock, Field::Time, Field::Service];
    let is_first = |record: &Record, sent: &Sent| {
        record
            .sent
            .iter()
            .find(|other| other.reply.seq == sent.reply.seq && other.reply.len > 0)
            .is_some_and(|first| first.at_us == sent.at_us)
    };
    let are_new = kernel.reply.len > 0 && is_first(context.kernel, kernel) && is_first(context.stack, stack);
    when(are_new && kernel.at_us > stack.at_us && fields.iter().all(|field| counts.contains(field)), Verdict::Continue)
}

/// The kernel allows fragmentation on a path with an MTU below 552 bytes.
fn small_path_mtu(context: &Context<'_>, difference: &Difference) -> Verdict {
    let fields = replies(difference).map(|(_, _, fields)| fields);
    let small = |step: &Step| matches!(step.act, Act::Error(PathError::TooBig(mtu)) if mtu < KERNEL_PATH_MTU_MIN);
    when(fields == Some(&[Field::DontFragment]) && context.dialogue.steps.iter().any(small), Verdict::Continue)
}

/// The stack takes data before the connection is open. A call on a kernel socket blocks.
fn send_early(_: &Context<'_>, difference: &Difference) -> Verdict {
    let early =
        matches!(difference, Difference::Call { kernel: Some(Outcome::Blocked), stack: Some(Outcome::Bytes(_)), .. });
    when(early, Verdict::Stop)
}

/// The kernel accepts a reset with the sequence number of the peer's FIN, as some other stacks send it.
fn reset_after_fin(context: &Context<'_>, difference: &Difference) -> Verdict {
    let until = match difference {
        Difference::Reply { kernel, .. } | Difference::OnlyKernel(kernel) | Difference::OnlyStack(kernel) => {
            kernel.steps
        }
        Difference::Call { step, .. } => *step,
    };
    let ends_at_fin = |segment: &&PeerSegment, reset: &PeerSegment| {
        segment.flags & FIN != 0 && segment.end().wrapping_sub(1) == reset.seq
    };
    let peers = || {
        context.dialogue.steps[..until].iter().filter_map(|step| match &step.act {
            Act::Peer(segment) => Some(segment),
            Act::Call(_) | Act::Error(_) | Act::Wait => None,
        })
    };
    let found = peers().any(|reset| reset.flags & RST != 0 && peers().any(|segment| ends_at_fin(&segment, reset)));
    when(found, Verdict::Stop)
}

/// The stack ends a connection as soon as its user timeout expires, the kernel at the retransmission after it.
fn user_timeout(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_set = |step: &Step| matches!(step.act, Act::Call(Call::UserTimeoutMs(_)));
    let ends = stack_reply(difference).is_some_and(|sent| sent.reply.bits & RST != 0)
        || matches!(difference, Difference::Call { stack: Some(Outcome::Failed), .. });
    when(ends && context.dialogue.steps.iter().any(is_set), Verdict::Stop)
}

/// The kernel also sends a challenge ACK for the acknowledgement of bytes from before the connection.
fn ghost_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let is_old = |segment: &PeerSegment| matches!(segment.ack, Some(AckNumber::All(more)) if more < 0);
    when(last_peer(context, sent).is_some_and(is_old), Verdict::SkipKernel)
}

/// The kernel counts the idle time of keepalive from the call that switches it on, the stack from the last received segment.
fn keepalive_start(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_on = |step: &Step| matches!(step.act, Act::Call(Call::Keepalive(..)));
    let is_probe = |sent: &&Sent| {
        let steps = &context.dialogue.steps[..sent.steps];
        let after_data = context
            .stack
            .sent
            .iter()
            .any(|other| other.at_us < sent.at_us && other.reply.seq == sent.reply.seq.wrapping_add(1));
        is_bare_ack(&sent.reply) && steps.iter().any(is_on) && after_data
    };
    when(stack_reply(difference).filter(is_probe).is_some(), Verdict::Stop)
}

/// The kernel repeats its SYN as soon as the peer acknowledges a wrong number.
fn syn_retry(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference) else { return Verdict::Unexplained };
    let wrong_ack = recent_peers(context, sent).any(|segment| segment.bits() & (SYN | ACK) == ACK);
    // The kernel's later SYNs come earlier too.
    when(sent.reply.bits & (SYN | ACK) == SYN && wrong_ack, Verdict::Stop)
}

/// In a simultaneous open, the kernel's SYN-ACK has options that the peer has not offered.
fn simultaneous_options(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, _, [Field::Options])) = replies(difference) else { return Verdict::Unexplained };
    let active = matches!(context.dialogue.steps.first(), Some(Step { act: Act::Call(Call::Connect), .. }));
    when(active && kernel.bits & (SYN | ACK) == SYN | ACK, Verdict::Stop)
}

/// The kernel's segments are at most half of the largest window that the peer has offered.
fn half_window(_: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, fields)) = replies(difference) else { return Verdict::Unexplained };
    when(fields.contains(&Field::Len) && kernel.len > 0 && kernel.len < stack.len, Verdict::Stop)
}

/// The kernel's resets of an application have a window and SACK blocks, and those in SYN-RECEIVED have no timestamps.
fn reset_fields(_: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, fields)) = replies(difference) else { return Verdict::Unexplained };
    let are_resets = kernel.bits & stack.bits & RST != 0;
    when(are_resets && fields.iter().all(|field| matches!(field, Field::Window | Field::Options)), Verdict::Continue)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the names of the rules in one section of the document, sorted.
    pub(crate) fn names_of_table(section: &str) -> Vec<&'static str> {
        let text = include_str!("../../../docs/linux-differences.md");
        let lines =
            text.lines().skip_while(|line| *line != section).skip(1).take_while(|line| !line.starts_with("## "));
        let rows = lines.filter_map(|line| line.strip_prefix("| `")).filter_map(|line| line.split_once('`'));
        let mut names: Vec<&str> = rows.map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn each_rule_has_a_line_in_the_document_and_each_line_a_rule() {
        let mut rules: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        rules.sort_unstable();
        assert_eq!(names_of_table("## TCP"), rules);
    }
}
