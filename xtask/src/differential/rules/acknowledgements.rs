//! Rules about the time of acknowledgements.

use super::sender::{echo, offers, peers, steps_of, without_echo};
use super::{
    ACK, ACK_DELAY_MS, Act, Call, Context, Difference, FIN, Field, PeerSegment, RST, Record, SYN, Sent, Step, Verdict,
    has_fin, is_after, is_bare_ack, is_empty_ack, is_immediate, kernel_reply, only_late, recent_peers, replies,
    sack_blocks, stack_reply, when, without_sack,
};

/// The kernel delays the acknowledgement of the peer's FIN, so that it can go with data or the FIN of this side.
pub(super) fn fin_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let answers_fin = |sent: &&Sent| recent_peers(context, sent).any(|segment| segment.flags & FIN != 0);
    if let Some(sent) = kernel_reply(difference).filter(|sent| is_empty_ack(&sent.reply)) {
        let same = |other: &Sent| (other.reply.seq, other.reply.ack) == (sent.reply.seq, sent.reply.ack);
        let is_delayed = |other: &Sent| other.steps < sent.steps || !is_immediate(context.kernel, sent);
        let before = |other: &Sent| {
            other.at_us < sent.at_us && sent.at_us - other.at_us < u64::from(ACK_DELAY_MS) * 1_000 && is_delayed(other)
        };
        // Earlier replies of the stack belong to earlier ones of the kernel, so they are compared first.
        let next_us = stack_reply(difference).map_or(u64::MAX, |next| next.at_us);
        let is_counterpart =
            |other: &Sent| same(other) && before(other) && other.at_us < next_us && answers_fin(&other);
        if context.stack.sent.iter().any(is_counterpart) {
            return Verdict::SkipKernel;
        }
    }
    // The rule `ack-delay` explains an earlier acknowledgement of less, or of as much. Two acknowledgements of the same step belong
    // together.
    let is_earlier = |kernel: &Sent, sent: &Sent| {
        let is_less = kernel.steps < sent.steps && !is_after(kernel.reply.ack, sent.reply.ack);
        let is_same =
            kernel.steps == sent.steps && kernel.reply.ack == sent.reply.ack && is_immediate(context.kernel, kernel);
        is_bare_ack(&kernel.reply) && is_less || is_empty_ack(&kernel.reply) && is_same
    };
    when(
        stack_reply(difference)
            .filter(|sent| is_empty_ack(&sent.reply) && answers_fin(sent))
            .is_some_and(|sent| !kernel_reply(difference).is_some_and(|kernel| is_earlier(kernel, sent))),
        Verdict::SkipStack,
    )
}

/// The application has written first, so the stack delays an acknowledgement that the kernel sends at once; later acknowledgements
/// then differ, too. Or the peer has repeated a part of earlier data, or has sent several segments that the application has not read.
/// Only the stack acknowledges these at once.
pub(super) fn ack_delay(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let writes =
        |step: &Step| matches!(step.act, Act::Call(Call::Send(_) | Call::SendUrgent(_) | Call::ConnectWith(_)));
    let has_data = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.len > 0);
    let writes_first = steps.iter().position(writes).is_some_and(|at| !steps[..at].iter().any(has_data));
    let repeats = |later: &PeerSegment| {
        peers(steps).any(|earlier| is_after(earlier.end(), later.seq) && is_after(later.end(), earlier.end()))
    };
    let reads = |step: &Step| matches!(step.act, Act::Call(Call::Receive(_)));
    let read = steps.iter().rposition(reads).map_or(0, |at| at + 1);
    let has_unread = steps[read..].iter().filter(|step| has_data(step)).count() > 1;
    if !writes_first && !has_unread && !peers(steps).any(repeats) {
        return Verdict::Unexplained;
    }
    if let Some(sent) = kernel_reply(difference)
        && is_bare_ack(&sent.reply)
        && is_reset_soon(context, sent)
    {
        return Verdict::SkipKernel;
    }
    if let Difference::OnlyStack(sent) = difference {
        // The stack has acknowledged at once, and again for the segment that the kernel's acknowledgement answers.
        let is_near = |other: &Sent| {
            let waited_us = sent.at_us.saturating_sub(other.at_us);
            is_bare_ack(&other.reply)
                && other.reply.ack == sent.reply.ack
                && waited_us < u64::from(ACK_DELAY_MS) * 1_000
        };
        let earlier = context.stack.sent.iter().filter(|other| other.at_us < sent.at_us).any(is_near);
        let acked = context.kernel.sent.iter().any(is_near);
        return when(is_bare_ack(&sent.reply) && earlier && acked, Verdict::SkipStack);
    }
    let Difference::Reply { kernel, stack, fields } = difference else { return Verdict::Unexplained };
    let is_near = kernel.at_us.abs_diff(stack.at_us) < u64::from(ACK_DELAY_MS) * 1_000;
    let covers = |late: &Sent, early: &Sent| {
        // A reset that answers a segment without a connection acknowledges nothing.
        let more = late.reply.bits & ACK == 0 || !is_after(early.reply.ack, late.reply.ack);
        is_near && is_bare_ack(&early.reply) && more && late.steps > early.steps
    };
    let answer_other_steps =
        kernel.steps != stack.steps && is_immediate(context.kernel, kernel) && is_immediate(context.stack, stack);
    let are_bare = is_bare_ack(&kernel.reply) && is_bare_ack(&stack.reply);
    if are_bare && only_late(fields) && is_near && !answer_other_steps {
        return Verdict::Continue;
    }
    // The stack has reported a duplicate at once, and the kernel reports it with its late acknowledgement.
    let is_reported = |early: &Sent| {
        let waited_us = kernel.at_us.saturating_sub(early.at_us);
        is_bare_ack(&early.reply)
            && early.reply.ack == kernel.reply.ack
            && waited_us < u64::from(ACK_DELAY_MS) * 1_000
            && sack_blocks(&early.reply) == sack_blocks(&kernel.reply)
    };
    if fields[..] == [Field::Options] && without_sack(&kernel.reply) == without_sack(&stack.reply) {
        let earlier = || context.stack.sent.iter().filter(|early| early.steps < stack.steps);
        return when(sack_blocks(&stack.reply).is_none() && earlier().any(is_reported), Verdict::Continue);
    }
    if covers(kernel, stack) {
        return Verdict::SkipStack;
    }
    when(covers(stack, kernel), Verdict::SkipKernel)
}

/// Before the kernel has acknowledged the peer's FIN, it accepts segments with the sequence number of the FIN, and uses their window.
pub(super) fn window_after_fin(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let is_fin = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.flags & FIN != 0);
    let Some(at) = steps.iter().position(is_fin) else { return Verdict::Unexplained };
    let Some(fin) = peers(&steps[at..]).next() else { return Verdict::Unexplained };
    let acks_fin = |sent: &&Sent| sent.reply.bits & ACK != 0 && sent.reply.ack == fin.end();
    let acked = |record: &Record| record.sent.iter().find(acks_fin).map_or(usize::MAX, |sent| sent.steps);
    // The steps between the acknowledgement of the stack and that of the kernel.
    let (from, to) = (acked(context.stack).max(at + 1), acked(context.kernel).min(steps.len()));
    let is_used = |segment: &PeerSegment| {
        segment.bits() & (ACK | FIN | SYN | RST) == ACK
            && segment.end().wrapping_add(1) == fin.end()
            && segment.window != fin.window
    };
    when(from < to && peers(&steps[from..to]).any(is_used), Verdict::Stop)
}

/// Whether the peer resets the connection before the stack's delayed acknowledgement of what the kernel acknowledges at once.
fn is_reset_soon(context: &Context<'_>, sent: &Sent) -> bool {
    let mut since_ms = 0;
    let mut soon = context.dialogue.steps[sent.steps..].iter().take_while(|step| {
        since_ms += step.after_ms;
        since_ms < ACK_DELAY_MS
    });
    let is_reset = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.flags & RST != 0);
    is_immediate(context.kernel, sent) && soon.any(is_reset)
}

/// The kernel sends a bare acknowledgement immediately before data or a FIN with the same acknowledgement number.
pub(super) fn ack_before_data(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let next = context.kernel.sent.iter().find(|next| next.at_us > sent.at_us);
    let has_text = |next: &Sent| next.reply.len > 0 || next.reply.bits & FIN != 0;
    let is_data = |next: &Sent| next.steps == sent.steps && has_text(next) && next.reply.ack == sent.reply.ack;
    when(next.is_some_and(|next| is_data(next) && next.at_us - sent.at_us < 1_000), Verdict::SkipKernel)
}

/// After the application's close, the kernel waits in FIN-WAIT-2 with a small socket, whose TS.Recent only a FIN updates.
pub(super) fn closed_timestamp(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, [Field::Options])) = replies(difference) else { return Verdict::Unexplained };
    let (Some(theirs), Some(ours)) = (echo(kernel), echo(stack)) else { return Verdict::Unexplained };
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let Some(close) = steps.iter().position(|step| step.act == Act::Call(Call::Close)) else {
        return Verdict::Unexplained;
    };
    // The stack echoes a later segment without new data, and the rest is equal.
    let is_later = |segment: &PeerSegment| {
        let has_nothing = segment.len == 0 || !is_after(segment.end(), kernel.ack);
        let is_bare = has_nothing && segment.flags & (SYN | FIN | RST) == 0 && segment.ack.is_some();
        is_bare && segment.timestamp.is_some_and(|timestamp| timestamp.value == ours)
    };
    let explained = is_after(ours, theirs) && peers(&steps[close..]).any(is_later) && !has_fin(steps);
    when(explained && without_echo(kernel) == without_echo(stack), Verdict::Continue)
}

/// The peer has sent a SACK block that begins at its acknowledgement number, although it would have acknowledged these bytes. The kernel
/// counts them as received, and the stack ignores the block.
pub(super) fn sack_at_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_data = |sent: &Sent| sent.reply.len > 0;
    let has_data = kernel_reply(difference).is_some_and(is_data) && stack_reply(difference).is_some_and(is_data);
    let contradicts = |(segment, acked, _): (&PeerSegment, u32, u32)| {
        segment.sack.iter().any(|(start, end)| *start == acked && is_after(*end, acked))
    };
    when(has_data && offers(context, steps_of(difference)).any(contradicts), Verdict::Stop)
}

/// The kernel stores a duplicate as new data if it begins at the end of a stored segment, so it does not report it. Only the next stored
/// segment contains its bytes.
pub(super) fn duplicate_at_edge(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, [Field::Options])) = replies(difference) else { return Verdict::Unexplained };
    let Some([(start, end), rest @ ..]) = sack_blocks(stack).map(Vec::as_slice) else { return Verdict::Unexplained };
    let is_duplicate = rest.first().is_some_and(|(first, last)| first <= start && end <= last);
    let is_unreported = sack_blocks(kernel).is_some_and(|blocks| blocks.as_slice() == rest);
    let earlier = &context.dialogue.steps[..steps_of(difference).saturating_sub(1)];
    let at_edge = peers(earlier).any(|segment| segment.end() == *start && is_after(segment.seq, stack.ack));
    when(is_duplicate && is_unreported && at_edge && without_sack(kernel) == without_sack(stack), Verdict::Continue)
}
