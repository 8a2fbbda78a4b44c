//! Rules for what a host sends on its own: timestamps, probes, windows, Fast Open, and answers after a close.

use super::super::compare::{Difference, Field, Verdict};
use super::super::dialogue::{AckNumber, Act, Call, Cookie, PathError, PeerSegment, Step};
use super::super::packet::{ACK, CWR, ECE, FIN, RST, SYN, TcpOption, URG};
use super::super::player::{Outcome, Record, Reply, Sent};
use super::{
    CHALLENGE_LIMIT_US, Context, ECHO_STEP_MAX, IMMEDIATE_US, SCALE_UNIT, has_fin, has_timestamps, is_after,
    is_bare_ack, is_empty_ack, is_immediate, kernel_reply, last_peer, replies, sack_blocks, stack_reply, when,
};

/// The options without the TSecr.
pub(super) fn without_echo(reply: &Reply) -> Vec<TcpOption> {
    let mut options = reply.options.clone();
    for option in &mut options {
        if let TcpOption::Timestamps(value, echo) = option {
            (*value, *echo) = (0, 0);
        }
    }
    options
}

/// The time before which each host sends what a difference shows.
pub(super) fn steps_of(difference: &Difference) -> usize {
    match difference {
        Difference::Reply { kernel, stack, .. } => kernel.steps.max(stack.steps),
        Difference::OnlyKernel(sent) | Difference::OnlyStack(sent) => sent.steps,
        Difference::Call { step, .. } => step + 1,
    }
}

/// The peer's segments in these steps.
pub(super) fn peers(steps: &[Step]) -> impl Iterator<Item = &PeerSegment> {
    steps.iter().filter_map(|step| match &step.act {
        Act::Peer(segment) => Some(segment),
        Act::Call(_) | Act::Error(_) | Act::Wait => None,
    })
}

/// In SYN-RECEIVED, the kernel drops a segment that echoes another timestamp than that of a SYN-ACK.
pub(super) fn early_timestamp(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let until_us = kernel_reply(difference).map_or(u64::MAX, |sent| sent.at_us);
    let before = || context.kernel.sent.iter().filter(|sent| sent.steps <= steps.len() && sent.at_us <= until_us);
    let opening = before().rfind(|sent| sent.reply.bits & (SYN | ACK) == SYN | ACK).map_or(1, |sent| sent.reply.ack);
    let mut echoes = Vec::new();
    let mut has_other = false;
    // Timestamps of bare acknowledgements that were sent before the connection was open, and segments that echo one.
    for sent in before() {
        let Some(value) = sent.reply.options.iter().find_map(clock) else { continue };
        if sent.reply.bits & SYN != 0 {
            echoes.push(value);
        } else {
            has_other |= !echoes.contains(&value) && sent.reply.ack == opening && sent.reply.seq == 1;
        }
    }
    let is_passive = matches!(context.dialogue.steps.first(), Some(Step { act: Act::Call(Call::Listen), .. }));
    let is_wrong = |segment: &PeerSegment| {
        segment.flags & (SYN | RST) == 0
            && segment.timestamp.is_some_and(|timestamp| timestamp.echo.is_some_and(|echo| echo != 0))
    };
    let stays = before().all(|sent| sent.reply.bits & RST != 0 || (sent.reply.ack <= opening && sent.reply.len == 0));
    // The kernel answers a segment without ACK bit, or one that opens the connection, only because of its timestamp.
    let lacks_ack = |segment: &PeerSegment| segment.bits() & (ACK | SYN | RST) == 0;
    let answers = |kernel: &Sent| {
        let has_reason = has_other || last_peer(context, kernel).is_some_and(lacks_ack);
        is_bare_ack(&kernel.reply) && has_reason && is_immediate(context.kernel, kernel)
    };
    // The kernel is still in SYN-RECEIVED, and the stack is not.
    let is_behind = match difference {
        Difference::Call { kernel, .. } => matches!(kernel, Some(Outcome::Blocked | Outcome::NoSocket)),
        Difference::Reply { kernel, stack, .. } => {
            let is_earlier = kernel.at_us < stack.at_us && answers(kernel);
            kernel.reply.bits & SYN != 0 || stack.reply.ack != kernel.reply.ack || is_earlier
        }
        Difference::OnlyKernel(kernel) => kernel.reply.bits & (SYN | RST) != 0 || answers(kernel),
        Difference::OnlyStack(_) => true,
    };
    when(is_behind && is_passive && stays && (has_other || peers(steps).any(is_wrong)), Verdict::Stop)
}

pub(super) fn clock(option: &TcpOption) -> Option<u32> {
    if let TcpOption::Timestamps(value, _) = option { Some(*value) } else { None }
}

/// The TSecr of a reply.
pub(super) fn echo(reply: &Reply) -> Option<u32> {
    let echo = |option: &TcpOption| if let TcpOption::Timestamps(_, echo) = option { Some(*echo) } else { None };
    reply.options.iter().find_map(echo)
}

/// While a host delays an acknowledgement that the other one has sent at once, further segments do not update its TS.Recent.
pub(super) fn ack_timestamp(context: &Context<'_>, difference: &Difference) -> Verdict {
    if let Difference::OnlyStack(sent) = difference {
        // Only the stack has taken a timestamp far ahead, so it answers a segment with an older one.
        let steps = &context.dialogue.steps[..sent.steps];
        let value = |segment: &PeerSegment| segment.timestamp.map(|timestamp| timestamp.value);
        let ours = echo(&sent.reply).unwrap_or(0);
        let is_old = last_peer(context, sent)
            .and_then(value)
            .is_some_and(|value| ours.wrapping_sub(value).cast_signed() >= ECHO_STEP_MAX.cast_signed());
        return when(is_bare_ack(&sent.reply) && is_old && has_fin(steps), Verdict::Stop);
    }
    let Difference::Reply { kernel, stack, fields } = difference else { return Verdict::Unexplained };
    let (Some(theirs), Some(ours)) = (echo(&kernel.reply), echo(&stack.reply)) else { return Verdict::Unexplained };
    let same = fields[..] == [Field::Options] && without_echo(&kernel.reply) == without_echo(&stack.reply);
    let acked = |record: &Record, sent: &Sent| {
        record.sent.iter().rfind(|other| other.at_us < sent.at_us).map(|other| other.reply.ack)
    };
    // One host has sent an acknowledgement of the same number in a later step than the other.
    let was_late = |host: &Record, other: &Record| {
        let has_earlier = |late: &Sent| {
            let is_same = |early: &Sent| early.reply.ack == late.reply.ack && early.steps < late.steps;
            late.at_us < kernel.at_us.max(stack.at_us) && is_bare_ack(&late.reply) && other.sent.iter().any(is_same)
        };
        host.sent.iter().any(has_earlier)
    };
    let is_delayed = acked(context.kernel, kernel) != acked(context.stack, stack)
        || was_late(context.kernel, context.stack)
        || was_late(context.stack, context.kernel);
    // After a large step of the timestamps, one host takes the next segments for old ones.
    let is_step = theirs.abs_diff(ours) >= ECHO_STEP_MAX;
    let explained = (same || is_step) && (is_delayed || has_fin(&context.dialogue.steps[..stack.steps]));
    let verdict = if is_step { Verdict::Stop } else { Verdict::Continue };
    when(explained, verdict)
}

/// A read on a kernel socket ends in front of the urgent byte.
pub(super) fn urgent_mark(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Call { step, kernel: Some(Outcome::Bytes(kernel)), stack: Some(Outcome::Bytes(stack)) } =
        difference
    else {
        return Verdict::Unexplained;
    };
    let is_urgent = peers(&context.dialogue.steps[..*step]).any(|segment| segment.urgent.is_some());
    when(is_urgent && kernel < stack, Verdict::Stop)
}

/// The stack announces urgent data although the peer's window has no room for data.
pub(super) fn urgent_notice(context: &Context<'_>, difference: &Difference) -> Verdict {
    let notices = |sent: &&Sent| sent.reply.bits == ACK | URG && sent.reply.len == 0;
    // A window probe of the kernel is preceded by another one if there is urgent data.
    if let Some(sent) = kernel_reply(difference).filter(notices)
        && context.kernel.sent.iter().any(|next| {
            notices(&next)
                && next.reply.seq == sent.reply.seq.wrapping_sub(1)
                && next.at_us.abs_diff(sent.at_us) < 1_000
        })
    {
        return Verdict::SkipKernel;
    }
    let Some(sent) = stack_reply(difference).filter(notices) else { return Verdict::Unexplained };
    let last = context.dialogue.steps[..sent.steps].last();
    let is_urgent = matches!(last, Some(Step { act: Act::Call(Call::SendUrgent(_)), .. }));
    when(is_urgent && is_immediate(context.stack, sent), Verdict::SkipStack)
}

/// The kernel shortens a segment so that SACK blocks fit in. The shorter segment may fit a window that has no room for a full one.
pub(super) fn sack_room(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference).filter(|sent| sent.reply.len > 0) else { return Verdict::Unexplained };
    let Some(blocks) = sack_blocks(&sent.reply).map(|blocks| 4 + 8 * u32::try_from(blocks.len()).unwrap_or(0)) else {
        return Verdict::Unexplained;
    };
    let len = sent.reply.len;
    let is_shorter = replies(difference)
        .is_some_and(|(_, stack, fields)| fields.contains(&Field::Len) && len < stack.len && stack.len - len <= blocks);
    let waits =
        stack_reply(difference).is_none_or(|stack| stack.reply.seq != sent.reply.seq || stack.at_us > sent.at_us);
    let windows = || offers(context, sent.steps).map(|(.., window)| window);
    let largest = windows().max().unwrap_or(0);
    let is_full = [full_segment(context), largest, largest / 2].contains(&(len + blocks));
    let edge = window_edges(context, sent.steps).last().unwrap_or(0);
    let lacks_room = (len..len + blocks).contains(&edge.wrapping_sub(sent.reply.seq));
    when(is_shorter || (waits && is_full && lacks_room), Verdict::Stop)
}

/// The kernel sends a tail-loss probe although there was no RTT sample since the probe before it.
pub(super) fn probe_sample(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference).filter(|sent| sent.reply.len > 0 || sent.reply.bits & FIN != 0) else {
        return Verdict::Unexplained;
    };
    let is_timer = context.kernel.begun_us.get(sent.steps - 1).is_some_and(|begun| sent.at_us > begun + 1_000);
    let earlier = || context.stack.sent.iter().filter(|other| other.at_us < sent.at_us && other.reply.len > 0);
    let was_repeated =
        earlier().enumerate().any(|(at, other)| earlier().take(at).any(|first| first.reply.seq == other.reply.seq));
    // The latest acknowledgement of new data gives no sample either if its TSecr is 0.
    let is_unsampled = |segment: &PeerSegment| segment.timestamp.is_some_and(|timestamp| timestamp.echo == Some(0));
    let latest =
        offers(context, sent.steps).reduce(|latest, offer| if is_after(offer.1, latest.1) { offer } else { latest });
    let lacks_echo = !has_timestamps(&sent.reply) || latest.is_some_and(|(segment, ..)| is_unsampled(segment));
    when(is_timer && (was_repeated || is_first_probe(context, sent)) && lacks_echo, Verdict::Stop)
}

/// Whether the kernel sends a probe after the initial RTO on a connection without a sample, because both hosts have repeated
/// their SYN-ACK. The stack waits for three seconds then (RFC 6298 section 5.7).
fn is_first_probe(context: &Context<'_>, sent: &Sent) -> bool {
    const INITIAL_RTO_US: std::ops::Range<u64> = 990_000..1_100_000;
    let is_repeated =
        |record: &Record| record.sent.iter().filter(|other| other.reply.bits & (SYN | ACK) == SYN | ACK).count() > 1;
    let is_text = |other: &Sent| other.reply.len > 0 || other.reply.bits & FIN != 0;
    let last = context.kernel.sent.iter().rfind(|other| other.at_us < sent.at_us && is_text(other));
    let waits = last.is_some_and(|last| INITIAL_RTO_US.contains(&(sent.at_us - last.at_us)));
    waits && is_repeated(context.kernel) && is_repeated(context.stack)
}

/// Whether a host has sent a segment again before this time.
pub(super) fn has_repeated(record: &Record, at_us: u64) -> bool {
    let data = || record.sent.iter().filter(|sent| sent.at_us < at_us && sent.reply.len > 0);
    let covers = |first: &Sent, seq: u32| seq.wrapping_sub(first.reply.seq) < first.reply.len;
    data().enumerate().any(|(at, sent)| data().take(at).any(|first| covers(first, sent.reply.seq)))
}

/// After a timeout or a loss, the kernel's congestion window grows by all segments that an acknowledgement covers, and that of the stack
/// by one segment. So the kernel sends more after such an acknowledgement. Later, and after a reduction by ECN, the kernel's window grows in
/// whole segments, and that of the stack in bytes, so one of them may send one segment more.
pub(super) fn growth_after_timeout(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_data = |sent: &&Sent| sent.reply.len > 0 || sent.reply.bits & FIN != 0;
    let (kernel, stack) = (kernel_reply(difference), stack_reply(difference));
    let kernel_is_ahead = match (kernel.filter(is_data), stack.filter(is_data)) {
        (Some(kernel), Some(stack)) => {
            let at_once = kernel.steps == stack.steps && kernel.at_us.abs_diff(stack.at_us) < IMMEDIATE_US;
            if at_once { is_after(kernel.reply.seq, stack.reply.seq) } else { kernel.at_us < stack.at_us }
        }
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (None, None) => return Verdict::Unexplained,
    };
    let (record, one) = if kernel_is_ahead { (context.kernel, kernel) } else { (context.stack, stack) };
    let Some(one) = one else { return Verdict::Unexplained };
    let is_earlier = |other: &Sent| other.at_us < one.at_us && other.reply.seq == one.reply.seq;
    let is_new = !record.sent.iter().filter(is_data).any(is_earlier);
    let before_one = || context.stack.sent.iter().filter(|sent| sent.at_us < one.at_us);
    let repeated_us = before_one().map(|sent| sent.at_us).find(|at| has_repeated(context.stack, at + 1));
    let is_reduced = before_one().any(|sent| sent.reply.bits & (SYN | CWR) == CWR);
    let full = full_segment(context);
    let burst = record.sent.iter().filter(|other| other.steps == one.steps && is_immediate(record, other));
    let burst_end = burst.map(|other| other.reply.seq.wrapping_add(other.reply.len)).max().unwrap_or(one.reply.seq);
    let is_one_more = burst_end.wrapping_sub(one.reply.seq) <= full && (is_reduced || repeated_us.is_some());
    let covers_several = repeated_us.is_some_and(|at| covers_several(context, at, one.steps, full));
    let explained = is_one_more || (kernel_is_ahead && covers_several);
    when(is_new && is_immediate(record, one) && explained, Verdict::Stop)
}

/// Whether an acknowledgement in these steps, after the repetition at this time, covers several segments.
fn covers_several(context: &Context<'_>, repeated_us: u64, steps: usize, full: u32) -> bool {
    let before = context.stack.begun_us.iter().filter(|begun| **begun <= repeated_us).count();
    let mut acked = offers(context, before).map(|(_, acked, _)| acked).max().unwrap_or(1);
    let mut covers_several = false;
    for (_, next, _) in offers(context, steps).skip(offers(context, before).count()) {
        covers_several |= next.wrapping_sub(acked).cast_signed() > full.cast_signed();
        acked = acked.max(next);
    }
    covers_several
}

/// The payload of a full segment to this peer.
pub(super) fn full_segment(context: &Context<'_>) -> u32 {
    let syn = peers(&context.dialogue.steps).find(|segment| segment.flags & SYN != 0);
    let default = if context.dialogue.v6 { 1_220 } else { 536 };
    let mss = syn.map_or(default, |syn| syn.mss.map_or(default, u32::from)).clamp(48, 1_460);
    mss - if syn.is_some_and(|syn| syn.timestamp.is_some()) { 12 } else { 0 }
}

/// The kernel requests a cookie by the experimental option if the server has not answered the other one.
pub(super) fn fast_open_option(_: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, _, [Field::Options])) = replies(difference) else { return Verdict::Unexplained };
    let is_experimental =
        |option: &TcpOption| matches!(option, TcpOption::Other(254, body) if body[..] == [0xf9, 0x89]);
    when(kernel.bits & (SYN | ACK) == SYN && kernel.options.iter().any(is_experimental), Verdict::Stop)
}

/// The kernel's SYN with data leaves room for 40 bytes of options, and the call takes only the data of the SYN.
pub(super) fn fast_open_room(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Call { step, kernel: Some(Outcome::Bytes(kernel)), stack: Some(Outcome::Bytes(stack)) } =
        difference
    else {
        let longer = replies(difference).is_some_and(|(kernel, stack, fields)| {
            kernel.bits & (SYN | ACK) == SYN && fields[..] == [Field::Len] && kernel.len < stack.len
        });
        return when(longer, Verdict::Stop);
    };
    let opens = matches!(context.dialogue.steps[*step].act, Act::Call(Call::ConnectWith(_)));
    when(opens && kernel < stack, Verdict::Stop)
}

/// Data of a SYN counts for Nagle's algorithm, the segment size and the RTT only in the stack.
pub(super) fn fast_open_data(context: &Context<'_>, difference: &Difference) -> Verdict {
    let opens_early = |record: &Record| {
        let is_syn = |sent: &Sent| sent.reply.bits & SYN != 0 && sent.reply.len > 0;
        record.sent.iter().any(is_syn)
    };
    let by_cookie = |segment: &PeerSegment| segment.fast_open == Some(Cookie::Latest);
    let fast = opens_early(context.kernel) || peers(&context.dialogue.steps).any(by_cookie);
    let is_data = |sent: &Sent| sent.reply.len > 0;
    let explained = match difference {
        // The hosts send the same data with another length, or at another time.
        Difference::Reply { kernel, stack, .. } => {
            is_data(kernel) != is_data(stack) || (is_data(kernel) && kernel.reply.seq == stack.reply.seq)
        }
        Difference::OnlyKernel(sent) | Difference::OnlyStack(sent) => is_data(sent),
        Difference::Call { .. } => false,
    };
    when(fast && explained, Verdict::Stop)
}

/// The kernel cuts data into segments when the application writes, so a later change of the segment size leaves shorter ones.
pub(super) fn segment_boundaries(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, fields)) = replies(difference) else { return Verdict::Unexplained };
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let shrinks = steps.iter().any(|step| matches!(step.act, Act::Error(PathError::TooBig(_))));
    let full = full_segment(context);
    let scale = |segment: &PeerSegment| if segment.flags & SYN != 0 { 0 } else { 7 };
    let was_small = peers(steps).any(|segment| u32::from(segment.window) << scale(segment) < 2 * full)
        || peers(steps).any(|segment| u32::from(segment.window) < 2 * full);
    let same_start = kernel.seq == stack.seq && kernel.len > 0 && stack.len > 0 && fields.contains(&Field::Len);
    when(same_start && (shrinks || was_small), Verdict::Stop)
}

/// The kernel believes a report about the path although no data is outstanding.
pub(super) fn idle_path_error(context: &Context<'_>, difference: &Difference) -> Verdict {
    let until = steps_of(difference);
    let error = context.dialogue.steps[..until].iter().rposition(|step| matches!(step.act, Act::Error(_)));
    let Some(error) = error else { return Verdict::Unexplained };
    let quoted = context.stack.sent.iter().rfind(|sent| sent.steps <= error);
    let quotes_nothing = quoted.is_some_and(|sent| sent.reply.len == 0 && sent.reply.bits & (SYN | FIN) == 0);
    let has_data = kernel_reply(difference).is_some_and(|sent| sent.reply.len > 0);
    when(quotes_nothing && has_data, Verdict::Stop)
}

/// After a report about the path, the kernel sends only the segments again that are too large.
pub(super) fn path_error_repeat(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = stack_reply(difference).filter(|sent| sent.reply.len > 0) else { return Verdict::Unexplained };
    let too_big = |step: &Step| matches!(step.act, Act::Error(PathError::TooBig(_)));
    let answers = context.dialogue.steps[..sent.steps].last().is_some_and(too_big);
    when(answers && is_immediate(context.stack, sent), Verdict::Stop)
}

/// After a simultaneous open, the kernel resets the connection if the first segment of the peer lies ahead of a gap.
pub(super) fn simultaneous_gap(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference).filter(|sent| sent.reply.bits & (RST | ACK) == RST) else {
        return Verdict::Unexplained;
    };
    let is_syn_ack = |other: &Sent| other.at_us < sent.at_us && other.reply.bits & (SYN | ACK) == SYN | ACK;
    let opened = context.kernel.sent.iter().any(is_syn_ack);
    let is_active = matches!(context.dialogue.steps.first(), Some(Step { act: Act::Call(Call::Connect), .. }));
    let is_ahead = last_peer(context, sent).is_some_and(|segment| segment.seq > 1 && segment.ack.is_some());
    when(opened && is_active && is_ahead, Verdict::Stop)
}

/// In SYN-RECEIVED, the kernel checks the acknowledgement number first, and resets a segment outside of the window. The stack answers by
/// an acknowledgement, whose number is limited.
pub(super) fn early_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_wrong = |sent: &Sent| {
        // A listener may open several connections one after the other.
        let earlier = || context.kernel.sent.iter().filter(|other| other.at_us < sent.at_us);
        let since_us = earlier().filter(|other| other.reply.bits & SYN != 0).map(|other| other.at_us).max();
        let is_recent = |other: &&Sent| Some(other.at_us) >= since_us;
        let is_early = earlier().filter(is_recent).all(|other| other.reply.bits & RST != 0 || other.reply.seq <= 1);
        let wrong = |segment: &PeerSegment| {
            let is_other = match segment.ack {
                Some(AckNumber::At(ack)) => ack != 1,
                Some(AckNumber::All(more)) => more != 0,
                None => false,
            };
            is_other && segment.flags & (SYN | RST) == 0
        };
        is_early && last_peer(context, sent).is_some_and(wrong)
    };
    if let Some(sent) = kernel_reply(difference).filter(|sent| sent.reply.bits & (RST | ACK) == RST && is_wrong(sent)) {
        let follows = |other: &&Sent| other.steps == sent.steps && is_bare_ack(&other.reply);
        return if stack_reply(difference).is_some_and(|sent| follows(&sent)) {
            Verdict::Continue
        } else {
            Verdict::SkipKernel
        };
    }
    Verdict::Unexplained
}

/// The kernel ignores a smaller window in a segment with the same numbers as an earlier one, unless the window is 0.
pub(super) fn window_shrink(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_data = |sent: &&Sent| sent.reply.len > 0 || sent.reply.bits & FIN != 0;
    let Some(sent) = kernel_reply(difference).filter(is_data) else { return Verdict::Unexplained };
    let offers: Vec<_> = offers(context, sent.steps).collect();
    let is_smaller = |(place, (segment, acked, window)): (usize, &(&PeerSegment, u32, u32))| {
        let larger = |(other, other_acked, other_window): &(&PeerSegment, u32, u32)| {
            other.seq == segment.seq && other_acked == acked && other_window > window
        };
        *window > 0 && offers[..place].iter().any(larger)
    };
    let shrinks = offers.iter().enumerate().any(is_smaller);
    let goes_on =
        stack_reply(difference).is_none_or(|stack| stack.reply.len < sent.reply.len || stack.at_us > sent.at_us);
    when(shrinks && goes_on, Verdict::Stop)
}

/// An acknowledgement of a part of a segment does not restart the kernel's retransmission timer. The retransmission then has the rest of
/// the segment and the next one.
pub(super) fn partial_segment(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference).filter(|sent| sent.reply.len > 0) else { return Verdict::Unexplained };
    let cuts = |ack: u32| {
        let is_inside = |other: &Sent| {
            let ahead = ack.wrapping_sub(other.reply.seq);
            other.at_us < sent.at_us && ahead > 0 && ahead < other.reply.len
        };
        context.kernel.sent.iter().any(is_inside) && context.stack.sent.iter().any(is_inside)
    };
    let acks =
        |segment: &PeerSegment| matches!(segment.ack, Some(AckNumber::At(ack)) if ack == sent.reply.seq && cuts(ack));
    when(peers(&context.dialogue.steps[..sent.steps]).any(acks), Verdict::Stop)
}

/// The kernel does not answer an acknowledgement whose number and timestamp are old.
pub(super) fn old_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = stack_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let earlier = || peers(&context.dialogue.steps[..sent.steps - 1]).filter_map(|segment| segment.timestamp);
    let is_old = |segment: &PeerSegment| {
        let is_bare = segment.len == 0 && segment.flags & (SYN | FIN | RST) == 0 && segment.ack.is_some();
        let is_late = |now: u32| earlier().any(|other| is_after(other.value, now));
        is_bare
            && is_after(sent.reply.ack, segment.seq)
            && segment.timestamp.is_some_and(|timestamp| is_late(timestamp.value))
    };
    when(is_immediate(context.stack, sent) && last_peer(context, sent).is_some_and(is_old), Verdict::SkipStack)
}

/// A segment of the kernel without data has SND.NXT if the peer's window has shrunk by less than a unit of the kernel's window scale.
pub(super) fn shrunk_edge(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, fields)) = replies(difference) else { return Verdict::Unexplained };
    // Urgent data may lie between the two numbers.
    let is_urgent = (kernel.bits ^ stack.bits) & !URG == 0;
    let explained = |field: &Field| *field == Field::Seq || is_urgent && [Field::Bits, Field::Urgent].contains(field);
    if !fields.iter().all(explained) {
        return Verdict::Unexplained;
    }
    let beyond = kernel.seq.wrapping_sub(stack.seq);
    let is_edge = window_edges(context, steps_of(difference)).any(|edge| edge == stack.seq);
    let are_bare = is_empty_ack(kernel) && is_empty_ack(stack);
    when(are_bare && is_edge && (1..u32::from(SCALE_UNIT)).contains(&beyond), Verdict::Continue)
}

/// After a timeout without a later RTT sample, the kernel doubles the time before a window probe twice as often.
pub(super) fn probe_backoff(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = stack_reply(difference).filter(|sent| is_empty_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let next = context.stack.sent.iter().filter(|other| other.at_us < sent.at_us).map(|other| other.reply.seq).max();
    let is_probe = next.is_some_and(|next| sent.reply.seq < next) && !is_immediate(context.stack, sent);
    when(is_probe && has_repeated(context.stack, sent.at_us), Verdict::Stop)
}

/// The limit of answers to segments without data started at another time, because the kernel had delayed the acknowledgement of a FIN,
/// or because the times are near the limit.
pub(super) fn challenge_limit(context: &Context<'_>, difference: &Difference) -> Verdict {
    let (sent, other) = match difference {
        Difference::OnlyKernel(sent) => (sent, context.stack),
        Difference::OnlyStack(sent) => (sent, context.kernel),
        Difference::Reply { kernel, stack, .. } if kernel.at_us < stack.at_us => (kernel, context.stack),
        Difference::Reply { stack, .. } => (stack, context.kernel),
        Difference::Call { .. } => return Verdict::Unexplained,
    };
    let verdict = if std::ptr::eq(other, context.stack) { Verdict::SkipKernel } else { Verdict::SkipStack };
    let answers = last_peer(context, sent).is_some_and(|segment| segment.len == 0);
    let is_recent = |earlier: &Sent| {
        // An answer to a repeated SYN counts, too.
        (is_bare_ack(&earlier.reply) || earlier.reply.bits & SYN != 0)
            && earlier.at_us < sent.at_us
            && sent.at_us - earlier.at_us < CHALLENGE_LIMIT_US
    };
    // Only the stack answers each repeated SYN.
    let is_syn_ack = |sent: &Sent| sent.reply.bits & (SYN | ACK) == SYN | ACK;
    let repeats_syn_ack = std::ptr::eq(other, context.kernel)
        && is_syn_ack(sent)
        && !other.sent.iter().any(|answer| answer.steps == sent.steps && is_syn_ack(answer));
    when((is_bare_ack(&sent.reply) || repeats_syn_ack) && answers && other.sent.iter().any(is_recent), verdict)
}

/// The kernel still agrees to ECN after the peer has repeated its SYN without an offer of ECN.
pub(super) fn syn_ecn(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, [Field::Bits | Field::Service, ..])) = replies(difference) else {
        return Verdict::Unexplained;
    };
    let offers =
        |segment: &PeerSegment| segment.bits() & (SYN | ACK) == SYN && segment.flags & (ECE | CWR) == ECE | CWR;
    let plain = |segment: &PeerSegment| segment.bits() & (SYN | ACK) == SYN && segment.flags & (ECE | CWR) == 0;
    let steps = || peers(&context.dialogue.steps[..steps_of(difference)]);
    let is_repeated = steps().any(|first| offers(first) && steps().any(|next| plain(next) && next.seq == first.seq));
    let marks_only = kernel.bits ^ stack.bits == ECE && kernel.bits & SYN != 0;
    when(is_repeated && marks_only, Verdict::Stop)
}

/// A report that the peer cannot be reached takes back one doubling of the kernel's retransmission timeout.
pub(super) fn unreachable_backoff(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference) else { return Verdict::Unexplained };
    let is_report = |step: &Step| step.act == Act::Error(PathError::HostUnreachable);
    let reported = context.dialogue.steps[..sent.steps].iter().any(is_report);
    let same = |other: &&Sent| {
        other.at_us < sent.at_us && other.reply.seq == sent.reply.seq && other.reply.bits == sent.reply.bits
    };
    let is_repeated = context.kernel.sent.iter().filter(same).count() > 1;
    let is_earlier = stack_reply(difference).is_none_or(|stack| stack.at_us > sent.at_us);
    // The shorter timeout may have passed already when the report arrives.
    let is_now = context.dialogue.steps[..sent.steps].last().is_some_and(is_report);
    when(reported && is_repeated && is_earlier && (is_now || !is_immediate(context.kernel, sent)), Verdict::Stop)
}

/// The acknowledgement number and the window in bytes of each segment of the peer in these steps, as the kernel sees them.
pub(super) fn offers<'a>(
    context: &'a Context<'_>,
    steps: usize,
) -> impl Iterator<Item = (&'a PeerSegment, u32, u32)> + 'a {
    let end_of =
        |sent: &Sent| sent.reply.seq.wrapping_add(sent.reply.len).wrapping_add(u32::from(sent.reply.bits & SYN != 0));
    let scale = peers(&context.dialogue.steps).find_map(|segment| segment.window_scale);
    let unit = scale.map_or(1, |_| u32::from(SCALE_UNIT));
    let scale = scale.unwrap_or(0).min(14);
    context.dialogue.steps[..steps].iter().enumerate().filter_map(move |(at, step)| {
        let Act::Peer(segment) = &step.act else { return None };
        let sent_before = || context.kernel.sent.iter().filter(|other| other.steps <= at);
        let end = sent_before().map(end_of).max().unwrap_or(1).max(1);
        // Both hosts drop a segment that ends before what they have acknowledged, or begins behind their window.
        let answer = sent_before().rfind(|other| other.reply.bits & (ACK | RST) == ACK);
        let is_outside = |Sent { reply, .. }: &Sent| {
            let edge = reply.ack.wrapping_add(u32::from(reply.window) * unit);
            is_after(reply.ack, segment.end()) || is_after(segment.seq, edge)
        };
        if segment.flags & SYN == 0 && answer.is_some_and(is_outside) {
            return None;
        }
        let acked = match segment.ack? {
            // Both hosts drop an acknowledgement of data that was not sent. A FIN has a number, too.
            AckNumber::At(ack) if is_after(ack, end.wrapping_add(1)) => return None,
            AckNumber::At(ack) => ack,
            AckNumber::All(more) => end.wrapping_add_signed(more),
        };
        let scale = if segment.flags & SYN == 0 { scale } else { 0 };
        Some((segment, acked, u32::from(segment.window) << scale))
    })
}

/// The right edges of the windows that the peer has offered in these steps, as the kernel sees them.
pub(super) fn window_edges<'a>(context: &'a Context<'_>, steps: usize) -> impl Iterator<Item = u32> + 'a {
    offers(context, steps).map(|(_, acked, window)| acked.wrapping_add(window))
}

/// The kernel fills the peer's window with a short segment. The stack waits until the window has room for a full one.
pub(super) fn window_fill(context: &Context<'_>, difference: &Difference) -> Verdict {
    let full = full_segment(context);
    let is_short = |sent: &&Sent| sent.reply.len > 0 && sent.reply.len < full;
    let Some(sent) = kernel_reply(difference).filter(is_short) else { return Verdict::Unexplained };
    let end = sent.reply.seq.wrapping_add(sent.reply.len);
    let fills = window_edges(context, sent.steps).any(|edge| edge == end);
    let waits =
        stack_reply(difference).is_none_or(|stack| stack.reply.seq != sent.reply.seq || stack.at_us > sent.at_us);
    when(fills && waits, Verdict::Stop)
}

/// Both hosts begin with a window of ten segments. The kernel may defer the last of them.
const INITIAL_WINDOW_SEGMENTS: usize = 8;
/// By how much the times of two equal events differ at most on both hosts.
const TIME_SLACK_US: u64 = 20_000;

/// The kernel counts segments in the congestion window, and the stack bytes. So short segments make a difference.
pub(super) fn window_unit(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_data = |sent: &&Sent| sent.reply.len > 0 || sent.reply.bits & (FIN | SYN) == FIN;
    let (kernel, stack) = (kernel_reply(difference).filter(is_data), stack_reply(difference).filter(is_data));
    // One host sends data at a time at which the other host does not.
    let one =
        match (kernel, stack) {
            (Some(kernel), Some(stack))
                if kernel.steps != stack.steps || kernel.at_us.abs_diff(stack.at_us) > 2_000 =>
            {
                if kernel.at_us < stack.at_us { kernel } else { stack }
            }
            (Some(one), None) | (None, Some(one)) => one,
            (Some(_), Some(_)) | (None, None) => return Verdict::Unexplained,
        };
    let full = full_segment(context);
    // The hosts' times differ a little.
    let until_us = one.at_us + TIME_SLACK_US;
    let before = || context.kernel.sent.iter().filter(|sent| sent.at_us <= until_us);
    let is_short = |sent: &Sent| sent.reply.len > 0 && sent.reply.len < full;
    // An acknowledgement of a part of a segment leaves a short one.
    let cuts = |acked: u32, sent: &Sent| (1..sent.reply.len).contains(&acked.wrapping_sub(sent.reply.seq));
    let is_cut = offers(context, one.steps).any(|(_, acked, _)| before().any(|sent| cuts(acked, sent)));
    let has_short = before().any(is_short) || is_short(one) || one.reply.len == 0 || is_cut;
    // cwnd limits a host only after it has sent the initial window, or after a reduction.
    let was_reduced = has_repeated(context.kernel, until_us)
        || has_repeated(context.stack, until_us)
        || peers(&context.dialogue.steps[..one.steps]).any(|segment| segment.flags & (SYN | ECE) == ECE);
    let segments = before().filter(|sent| sent.reply.len > 0).count();
    when(has_short && (was_reduced || segments >= INITIAL_WINDOW_SEGMENTS), Verdict::Stop)
}
