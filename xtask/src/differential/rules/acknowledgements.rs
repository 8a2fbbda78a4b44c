//! Rules about the time of acknowledgements.

use super::sender::{peers, steps_of};
use super::{
    ACK_DELAY_MS, Act, Call, Context, Difference, FIN, PeerSegment, Sent, Step, Verdict, is_after, is_bare_ack,
    is_immediate, kernel_reply, only_late, recent_peers, stack_reply, when,
};

/// The kernel delays the acknowledgement of the peer's FIN, so that it can go with data or the FIN of this side.
pub(super) fn fin_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let answers_fin = |sent: &&Sent| recent_peers(context, sent).any(|segment| segment.flags & FIN != 0);
    if let Some(sent) = kernel_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) {
        let same = |other: &Sent| (other.reply.seq, other.reply.ack) == (sent.reply.seq, sent.reply.ack);
        let is_delayed = |other: &Sent| other.steps < sent.steps || !is_immediate(context.kernel, sent);
        let before = |other: &Sent| {
            other.at_us < sent.at_us && sent.at_us - other.at_us < u64::from(ACK_DELAY_MS) * 1_000 && is_delayed(other)
        };
        if context.stack.sent.iter().any(|other| same(other) && before(other) && answers_fin(&other)) {
            return Verdict::SkipKernel;
        }
    }
    // The rule `ack-delay` explains an earlier acknowledgement of less. Two acknowledgements of the same step belong together.
    let is_earlier = |kernel: &Sent, sent: &Sent| {
        let is_less = kernel.steps < sent.steps && is_after(sent.reply.ack, kernel.reply.ack);
        let is_same =
            kernel.steps == sent.steps && kernel.reply.ack == sent.reply.ack && is_immediate(context.kernel, kernel);
        is_bare_ack(&kernel.reply) && (is_less || is_same)
    };
    when(
        stack_reply(difference)
            .filter(|sent| is_bare_ack(&sent.reply) && answers_fin(sent))
            .is_some_and(|sent| !kernel_reply(difference).is_some_and(|kernel| is_earlier(kernel, sent))),
        Verdict::SkipStack,
    )
}

/// The application has written first, so the stack delays an acknowledgement that the kernel sends at once; later acknowledgements
/// then differ, too. Or the peer has repeated a part of earlier data, which only the stack acknowledges at once.
pub(super) fn ack_delay(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let writes = |step: &Step| matches!(step.act, Act::Call(Call::Send(_) | Call::SendUrgent(_)));
    let has_data = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.len > 0);
    let writes_first = steps.iter().position(writes).is_some_and(|at| !steps[..at].iter().any(has_data));
    let repeats = |later: &PeerSegment| {
        peers(steps).any(|earlier| is_after(earlier.end(), later.seq) && is_after(later.end(), earlier.end()))
    };
    if !writes_first && !peers(steps).any(repeats) {
        return Verdict::Unexplained;
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
        let more = late.reply.ack.wrapping_sub(early.reply.ack).cast_signed() >= 0;
        is_near && is_bare_ack(&early.reply) && more && late.steps > early.steps
    };
    let answer_other_steps =
        kernel.steps != stack.steps && is_immediate(context.kernel, kernel) && is_immediate(context.stack, stack);
    let are_bare = is_bare_ack(&kernel.reply) && is_bare_ack(&stack.reply);
    if are_bare && only_late(fields) && is_near && !answer_other_steps {
        return Verdict::Continue;
    }
    if covers(kernel, stack) {
        return Verdict::SkipStack;
    }
    when(covers(stack, kernel), Verdict::SkipKernel)
}

/// The kernel sends a bare acknowledgement immediately before data with the same acknowledgement number.
pub(super) fn ack_before_data(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let next = context.kernel.sent.iter().find(|next| next.at_us > sent.at_us);
    let is_data = |next: &Sent| next.steps == sent.steps && next.reply.len > 0 && next.reply.ack == sent.reply.ack;
    when(next.is_some_and(|next| is_data(next) && next.at_us - sent.at_us < 1_000), Verdict::SkipKernel)
}
