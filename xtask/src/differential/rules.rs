//! The known differences between the kernel and the stack. Each rule recognises one of them and has a line in
//! `docs/linux-differences.md`, which gives the RFC and the reason.

mod acknowledgements;
mod closing;
mod opening;
mod push;
mod recovery;
mod sender;

use super::compare::{Difference, Field, IMMEDIATE_US, Verdict, is_immediate};
use super::dialogue::{AckNumber, Act, Call, Dialogue, PathError, PeerSegment, Step};
use super::packet::{ACK, CWR, ECE, FIN, RST, SYN, TcpOption, URG};
use super::player::{Outcome, Record, Reply, Sent};
use acknowledgements::{
    ack_before_data, ack_delay, closed_timestamp, duplicate_at_edge, fin_ack, sack_at_ack, window_after_fin,
};
use closing::{closed_answer, cwr_without_data, fin_beyond_window, mini_sack, reset_in_close_wait, reset_in_time_wait};
use opening::{early_fin, early_unreachable, path_mss, send_early, simultaneous_ack, simultaneous_end};
use push::push;
use recovery::{
    deferral, duplicate_growth, duplicate_undo, override_timeout, persist_restart, reneging, rtt_variance,
    spurious_timeout, timer_start, unsent_probe,
};
use sender::{
    ack_timestamp, challenge_limit, early_ack, early_timestamp, fast_open_data, fast_open_option, fast_open_room,
    growth_after_timeout, idle_path_error, old_ack, partial_segment, path_error_repeat, peers, probe_backoff,
    probe_sample, sack_room, segment_boundaries, shrunk_edge, simultaneous_gap, steps_of, syn_ecn, unreachable_backoff,
    urgent_mark, urgent_notice, window_fill, window_shrink, window_unit,
};

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
pub(crate) const RULES: [Rule; 73] = [
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
    Rule { name: "early-timestamp", judge: early_timestamp },
    Rule { name: "ghost-ack", judge: ghost_ack },
    Rule { name: "urgent-notice", judge: urgent_notice },
    Rule { name: "fin-ack", judge: fin_ack },
    Rule { name: "ack-delay", judge: ack_delay },
    Rule { name: "ack-before-data", judge: ack_before_data },
    Rule { name: "window-update", judge: window_update },
    Rule { name: "deferral", judge: deferral },
    Rule { name: "small-path-mtu", judge: small_path_mtu },
    Rule { name: "send-early", judge: send_early },
    Rule { name: "reset-after-fin", judge: reset_after_fin },
    Rule { name: "reset-when-closing", judge: reset_when_closing },
    Rule { name: "reset-in-close-wait", judge: reset_in_close_wait },
    Rule { name: "user-timeout", judge: user_timeout },
    Rule { name: "syn-retry", judge: syn_retry },
    Rule { name: "simultaneous-options", judge: simultaneous_options },
    Rule { name: "reset-fields", judge: reset_fields },
    Rule { name: "ack-timestamp", judge: ack_timestamp },
    Rule { name: "closed-timestamp", judge: closed_timestamp },
    Rule { name: "reset-in-time-wait", judge: reset_in_time_wait },
    Rule { name: "urgent-mark", judge: urgent_mark },
    Rule { name: "sack-room", judge: sack_room },
    Rule { name: "mini-sack", judge: mini_sack },
    Rule { name: "probe-sample", judge: probe_sample },
    Rule { name: "growth-after-timeout", judge: growth_after_timeout },
    Rule { name: "fast-open-option", judge: fast_open_option },
    Rule { name: "fast-open-room", judge: fast_open_room },
    Rule { name: "fast-open-data", judge: fast_open_data },
    Rule { name: "segment-boundaries", judge: segment_boundaries },
    Rule { name: "idle-path-error", judge: idle_path_error },
    Rule { name: "challenge-limit", judge: challenge_limit },
    Rule { name: "path-error-repeat", judge: path_error_repeat },
    Rule { name: "closed-answer", judge: closed_answer },
    Rule { name: "probe-backoff", judge: probe_backoff },
    Rule { name: "simultaneous-gap", judge: simultaneous_gap },
    Rule { name: "early-ack", judge: early_ack },
    Rule { name: "window-shrink", judge: window_shrink },
    Rule { name: "partial-segment", judge: partial_segment },
    Rule { name: "unreachable-backoff", judge: unreachable_backoff },
    Rule { name: "syn-ecn", judge: syn_ecn },
    Rule { name: "early-fin", judge: early_fin },
    Rule { name: "window-fill", judge: window_fill },
    Rule { name: "window-unit", judge: window_unit },
    Rule { name: "shrunk-edge", judge: shrunk_edge },
    Rule { name: "old-ack", judge: old_ack },
    Rule { name: "simultaneous-end", judge: simultaneous_end },
    Rule { name: "early-unreachable", judge: early_unreachable },
    Rule { name: "path-mss", judge: path_mss },
    Rule { name: "sack-at-ack", judge: sack_at_ack },
    Rule { name: "simultaneous-ack", judge: simultaneous_ack },
    Rule { name: "spurious-timeout", judge: spurious_timeout },
    Rule { name: "fin-beyond-window", judge: fin_beyond_window },
    Rule { name: "duplicate-growth", judge: duplicate_growth },
    Rule { name: "timer-start", judge: timer_start },
    Rule { name: "reneging", judge: reneging },
    Rule { name: "duplicate-undo", judge: duplicate_undo },
    Rule { name: "persist-restart", judge: persist_restart },
    Rule { name: "duplicate-at-edge", judge: duplicate_at_edge },
    Rule { name: "rtt-variance", judge: rtt_variance },
    Rule { name: "unsent-probe", judge: unsent_probe },
    Rule { name: "override-timeout", judge: override_timeout },
    Rule { name: "window-after-fin", judge: window_after_fin },
    Rule { name: "cwr-without-data", judge: cwr_without_data },
];

/// Within this time, one host may delay an acknowledgement that the other sends at once.
const ACK_DELAY_MS: u32 = 60;
/// The time between two answers to segments without data, with a tolerance.
const CHALLENGE_LIMIT_US: u64 = 510_000;
/// The clocks of the peers in dialogues differ by more than this only after a wrong timestamp.
const ECHO_STEP_MAX: u32 = 5_000;
/// The unit of both hosts' scaled windows.
const SCALE_UNIT: u16 = 128;
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

/// Whether a reply is an acknowledgement without data. It may announce urgent data that waits for the peer's window.
fn is_empty_ack(reply: &Reply) -> bool {
    reply.bits & !(ECE | CWR | URG) == ACK && reply.len == 0
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

/// The kernel's first window is rounded down to whole segments, and its later windows are smaller, because packets in the buffer count
/// with their memory. The right edge of neither window moves back.
fn window_size(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Reply { kernel: kernel_sent, stack: stack_sent, fields } = difference else {
        return Verdict::Unexplained;
    };
    let kernel = &kernel_sent.reply;
    let explained = if kernel.bits & SYN != 0 {
        let mss =
            kernel.options.iter().find_map(|option| if let TcpOption::Mss(mss) = option { Some(*mss) } else { None });
        // A SYN-ACK of a simultaneous open has the window of the SYN before it.
        [0, 12].into_iter().any(|options| {
            let segment = mss.unwrap_or(0).saturating_sub(options);
            u16::MAX.checked_div(segment).is_some_and(|count| {
                let window = count * segment;
                kernel.window == window || kernel.window == window.next_multiple_of(SCALE_UNIT)
            })
        })
    } else {
        // RFC 7323 section 2.3: the edge may move back by less than one unit of the window scale.
        let unit = u32::from(SCALE_UNIT);
        let grows = |record: &Record, sent: &Sent| {
            right_edge(context, record, sent) + unit > earlier_edge(context, record, sent)
        };
        // The stack's TIME-WAIT offers the largest window.
        let is_over = stack_sent.reply.window == u16::MAX && has_fin(&context.dialogue.steps);
        (is_over || grows(context.kernel, kernel_sent)) && grows(context.stack, stack_sent)
    };
    when(fields[..] == [Field::WindowSize] && explained, Verdict::Continue)
}

/// The right edge of the window that a segment offers. The latest SYN before it belongs to the same connection, and says whether windows
/// are scaled.
fn right_edge(context: &Context<'_>, record: &Record, sent: &Sent) -> u32 {
    let scales =
        peers(&context.dialogue.steps).any(|segment| segment.flags & SYN != 0 && segment.window_scale.is_some());
    let opening = record.sent.iter().rfind(|other| other.at_us <= sent.at_us && other.reply.bits & SYN != 0);
    let own = opening.and_then(|syn| {
        syn.reply
            .options
            .iter()
            .find_map(|option| if let TcpOption::WindowScale(shift) = option { Some(*shift) } else { None })
    });
    let shift = if sent.reply.bits & SYN == 0 && scales { own.unwrap_or(0) } else { 0 };
    sent.reply.ack.wrapping_add(u32::from(sent.reply.window) << shift)
}

/// The right edge of the window that a host has offered last before this segment, without resets, which offer none. Another SYN opens
/// another connection.
fn earlier_edge(context: &Context<'_>, record: &Record, sent: &Sent) -> u32 {
    let earlier = || record.sent.iter().filter(|other| other.at_us < sent.at_us);
    let opened_us = earlier().filter(|other| other.reply.bits & SYN != 0).map(|other| other.at_us).max().unwrap_or(0);
    let is_offer =
        |other: &&Sent| other.at_us >= opened_us && other.reply.bits & (ACK | RST) == ACK && sent.reply.bits & RST == 0;
    earlier().rfind(is_offer).map_or(0, |last| right_edge(context, record, last))
}

/// The kernel's SACK blocks cover the sequence number of the peer's FIN, and data behind the FIN.
fn sack_fin(context: &Context<'_>, difference: &Difference) -> Verdict {
    let same_step = matches!(difference, Difference::Reply { kernel, stack, .. } if kernel.steps == stack.steps);
    // The rule `small-path-mtu` explains the flag DF.
    let Some((kernel, stack, [Field::Options] | [Field::Options, Field::DontFragment])) = replies(difference) else {
        return Verdict::Unexplained;
    };
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

/// The kernel accepts a reset at the end of the highest SACK block, which the stack answers by a challenge ACK, or ignores if the limit
/// of challenge ACKs is reached.
fn reset_after_sack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let highest = |record: &Record, before: usize| {
        let reported = record.sent.iter().rfind(|sent| sent.steps <= before)?;
        sack_blocks(&reported.reply)?.iter().map(|(_, end)| *end).max()
    };
    let is_end =
        |at: usize, seq: u32| [context.kernel, context.stack].iter().any(|record| highest(record, at) == Some(seq));
    let is_accepted = |(at, step): (usize, &Step)| matches!(&step.act, Act::Peer(segment) if segment.flags & RST != 0 && is_end(at, segment.seq));
    when(steps.iter().enumerate().any(is_accepted), Verdict::Stop)
}

/// The kernel acknowledges data or a further FIN behind a FIN, which the stack ignores.
fn data_after_fin(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference) else { return Verdict::Unexplained };
    let acked = context.stack.sent.iter().rfind(|other| other.steps <= sent.steps).map_or(0, |other| other.reply.ack);
    let steps = &context.dialogue.steps[..sent.steps];
    let is_behind = |one: &PeerSegment| {
        peers(steps).any(|fin| fin.flags & FIN != 0 && is_after(one.end(), fin.end()) && fin != one)
    };
    let fins = peers(steps).filter(|segment| segment.flags & FIN != 0).count();
    let goes_on = fins > 1 || peers(steps).any(is_behind);
    when(goes_on && is_after(sent.reply.ack, acked), Verdict::Stop)
}

/// Whether a sequence number is behind another one.
fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

fn only_late(fields: &[Field]) -> bool {
    fields.iter().all(|field| matches!(field, Field::Time | Field::Clock))
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
    let agreed = |record: &Record| {
        let opens = |sent: &&Sent| sent.reply.bits & SYN != 0;
        record.sent.iter().rfind(opens).is_some_and(|sent| has_timestamps(&sent.reply))
    };
    let offers = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.flags & SYN != 0 && segment.timestamp.is_some());
    let lacks = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.timestamp.is_none() && segment.flags & (RST | SYN) == 0);
    let lacking = context.dialogue.steps[..until].iter().any(lacks);
    let are_agreed = context.dialogue.steps.iter().any(offers) && agreed(context.kernel) && agreed(context.stack);
    when(lacking && are_agreed, Verdict::Stop)
}

fn has_timestamps(reply: &Reply) -> bool {
    reply.options.iter().any(|option| matches!(option, TcpOption::Timestamps(..)))
}

/// The stack acknowledges a segment outside of the window even if the segment has no ACK bit. The kernel drops it silently.
fn no_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let lacks = |segment: &PeerSegment| segment.bits() & (ACK | SYN | RST) == 0;
    if let Some(sent) = kernel_reply(difference).filter(|sent| is_bare_ack(&sent.reply))
        && last_peer(context, sent).is_some_and(lacks)
        && has_fin(&context.dialogue.steps[..sent.steps])
    {
        return Verdict::SkipKernel;
    }
    let Some(sent) = stack_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    when(is_immediate(context.stack, sent) && last_peer(context, sent).is_some_and(lacks), Verdict::SkipStack)
}

/// The stack accepts data and FIN of a SYN. The kernel ignores them without a Fast Open cookie.
fn syn_data(context: &Context<'_>, difference: &Difference) -> Verdict {
    let differs = replies(difference).is_some_and(|(kernel, stack, _)| kernel.ack != stack.ack || is_bare_ack(stack))
        || matches!(difference, Difference::OnlyStack(_) | Difference::Call { .. });
    let has_data = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.flags & SYN != 0 && (segment.len > 0 || segment.flags & FIN != 0));
    when(differs && context.dialogue.steps.iter().any(has_data), Verdict::Stop)
}

/// The kernel allows fragmentation on a path with an MTU below 552 bytes.
fn small_path_mtu(context: &Context<'_>, difference: &Difference) -> Verdict {
    let fields = replies(difference).map(|(_, _, fields)| fields);
    let small = |step: &Step| matches!(step.act, Act::Error(PathError::TooBig(mtu)) if mtu < KERNEL_PATH_MTU_MIN);
    when(fields == Some(&[Field::DontFragment]) && context.dialogue.steps.iter().any(small), Verdict::Continue)
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

/// In CLOSING and LAST-ACK, a reset is an error of the kernel's socket. The stack's connection then ends without an error.
fn reset_when_closing(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Call { step, kernel: Some(Outcome::Failed), stack: Some(Outcome::Refused | Outcome::End) } =
        difference
    else {
        return Verdict::Unexplained;
    };
    let steps = &context.dialogue.steps[..*step];
    let is_reset = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.flags & RST != 0);
    let Some(reset) = steps.iter().position(is_reset) else { return Verdict::Unexplained };
    let has_shut = steps[..reset].iter().any(|step| step.act == Act::Call(Call::Shutdown));
    when(has_shut && has_fin(&steps[..reset]), Verdict::Continue)
}

/// The stack ends a connection as soon as its user timeout expires, the kernel at the retransmission after it. In a simultaneous open,
/// this retransmission is a SYN-ACK.
fn user_timeout(context: &Context<'_>, difference: &Difference) -> Verdict {
    let set_ms = |step: &Step| match step.act {
        Act::Call(Call::UserTimeoutMs(ms)) => Some(ms),
        Act::Call(_) | Act::Peer(_) | Act::Error(_) | Act::Wait => None,
    };
    let Some(ms) = context.dialogue.steps.iter().find_map(set_ms) else { return Verdict::Unexplained };
    let ends = stack_reply(difference).is_some_and(|sent| sent.reply.bits & RST != 0)
        || matches!(difference, Difference::Call { stack: Some(Outcome::Failed), .. });
    let repeats = |sent: &Sent| {
        sent.reply.bits & SYN != 0 && !is_immediate(context.kernel, sent) && sent.at_us > u64::from(ms) * 1_000
    };
    when(ends || matches!(difference, Difference::OnlyKernel(sent) if repeats(sent)), Verdict::Stop)
}

/// The kernel also sends a challenge ACK for the acknowledgement of bytes from before the connection.
fn ghost_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_old = |segment: &PeerSegment| matches!(segment.ack, Some(AckNumber::All(more)) if more < 0);
    // The limit of challenge ACKs was reached, and only the stack has accepted the data or the FIN of such a segment.
    let has_accepted =
        |steps: usize, end: u32| context.stack.sent.iter().any(|other| other.steps <= steps && other.reply.ack == end);
    if let Difference::Call { step, .. } = difference {
        let acked = context.kernel.sent.iter().rfind(|other| other.steps <= *step).map_or(0, |other| other.reply.ack);
        let end = context.kernel.sent.iter().map(|other| other.reply.seq.wrapping_add(other.reply.len)).max();
        let is_dropped = |segment: &PeerSegment| {
            is_old(segment)
                && end.is_none_or(|end| end <= 1)
                && is_after(segment.end(), acked)
                && has_accepted(*step, segment.end())
        };
        return when(peers(&context.dialogue.steps[..*step]).any(is_dropped), Verdict::Stop);
    }
    let Some(sent) = kernel_reply(difference).filter(|sent| is_empty_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let is_dropped = |segment: &PeerSegment| {
        is_old(segment) && is_after(segment.end(), sent.reply.ack) && has_accepted(sent.steps, segment.end())
    };
    if peers(&context.dialogue.steps[..sent.steps - 1]).any(is_dropped) {
        return Verdict::Stop;
    }
    let Some(last) = last_peer(context, sent) else { return Verdict::Unexplained };
    // The stack accepts the data of the segment.
    when(is_old(last), if last.len > 0 || last.flags & FIN != 0 { Verdict::Stop } else { Verdict::SkipKernel })
}

/// The kernel repeats its SYN as soon as the peer acknowledges a wrong number.
fn syn_retry(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference) else { return Verdict::Unexplained };
    let wrong_ack = recent_peers(context, sent).any(|segment| segment.bits() & (SYN | ACK) == ACK);
    // In a simultaneous open, it repeats the SYN-ACK. The kernel's later SYNs come earlier too.
    let is_active = matches!(context.dialogue.steps.first(), Some(Step { act: Act::Call(Call::Connect), .. }));
    let is_repeated = sent.reply.bits & ACK != 0 && is_active && !is_immediate(context.kernel, sent);
    let repeats = sent.reply.bits & (SYN | ACK) == SYN || sent.reply.bits & SYN != 0 && is_repeated;
    when(repeats && wrong_ack, Verdict::Stop)
}

/// In a simultaneous open, the kernel's SYN-ACK has options that the peer has not offered.
fn simultaneous_options(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, _, [Field::Options])) = replies(difference) else { return Verdict::Unexplained };
    let active = matches!(context.dialogue.steps.first(), Some(Step { act: Act::Call(Call::Connect), .. }));
    when(active && kernel.bits & (SYN | ACK) == SYN | ACK, Verdict::Stop)
}

/// The kernel's resets of an application have a window and SACK blocks, and those in SYN-RECEIVED have no timestamps.
///
/// A peer that echoes the timestamp of such a reset gives the stack a later RTT sample.
fn reset_fields(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = steps_of(difference);
    let is_reset = |sent: &&Sent| sent.steps < steps && sent.reply.bits & RST != 0;
    let with_timestamps = |record: &Record| record.sent.iter().filter(is_reset).any(|sent| has_timestamps(&sent.reply));
    let is_timed = with_timestamps(context.stack) && !with_timestamps(context.kernel);
    let Some((kernel, stack, fields)) = replies(difference) else {
        let is_timer = |record: &Record, sent: &Sent| !is_immediate(record, sent);
        let repeats = match difference {
            Difference::OnlyKernel(sent) => is_timer(context.kernel, sent),
            Difference::OnlyStack(sent) => is_timer(context.stack, sent),
            Difference::Call { .. } | Difference::Reply { .. } => false,
        };
        return when(is_timed && repeats, Verdict::Stop);
    };
    if is_timed && only_late(fields) {
        return Verdict::Stop;
    }
    let are_resets = kernel.bits & stack.bits & RST != 0;
    // The rule `small-path-mtu` explains the flag DF.
    let counts = [Field::Window, Field::Options, Field::DontFragment, Field::Urgent];
    let is_urgent = |step: &Step| matches!(step.act, Act::Call(Call::SendUrgent(_)));
    // A reset of the kernel marks urgent data that the peer has not acknowledged.
    let urgent = if context.dialogue.steps[..steps].iter().any(is_urgent) { URG } else { 0 };
    let marks_only = (kernel.bits ^ stack.bits) & !(ECE | CWR | urgent) == 0;
    let explained = |field: &Field| counts.contains(field) || (*field == Field::Bits && marks_only);
    when(are_resets && fields.iter().all(explained), Verdict::Continue)
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
