//! Rules for how a connection closes, and for what the kernel's small sockets answer.

use super::super::compare::{Difference, Field, Verdict};
use super::super::dialogue::{AckNumber, Act, Call, PeerSegment, Step};
use super::super::packet::{ACK, CWR, ECE, FIN, PSH, RST, SYN};
use super::super::player::{Outcome, Record, Sent};
use super::sender::{peers, steps_of, window_edges};
use super::{
    Context, has_fin, is_after, is_bare_ack, is_immediate, kernel_reply, last_peer, replies, sack_blocks, stack_reply,
    when, without_sack,
};

/// After the application has closed, the kernel does not answer old data that acknowledges its FIN, and acknowledgements of data that was
/// not sent or was acknowledged long ago. It answers resets outside of the window.
pub(super) fn closed_answer(context: &Context<'_>, difference: &Difference) -> Verdict {
    let has_closed =
        |steps: usize| context.dialogue.steps[..steps].iter().any(|step| step.act == Act::Call(Call::Close));
    if let Some(sent) = kernel_reply(difference).filter(|sent| is_bare_ack(&sent.reply))
        && has_closed(sent.steps)
        && last_peer(context, sent).is_some_and(|segment| segment.flags & RST != 0)
    {
        return Verdict::SkipKernel;
    }
    let Some(sent) = stack_reply(difference).filter(|sent| is_bare_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let is_closed = has_closed(sent.steps);
    let is_wrong = |segment: &PeerSegment| match segment.ack {
        Some(AckNumber::At(ack)) => ack > sent.reply.seq,
        Some(AckNumber::All(more)) => more != 0,
        None => false,
    };
    let explained = |segment: &PeerSegment| segment.ack.is_some() && (segment.len > 0 || is_wrong(segment));
    let answers = |other: &Sent| other.steps == sent.steps && is_immediate(context.kernel, other);
    let is_only = !context.kernel.sent.iter().any(answers);
    when(
        is_closed && is_only && last_peer(context, sent).is_some_and(explained) && is_immediate(context.stack, sent),
        Verdict::SkipStack,
    )
}

/// The kernel's answers in SYN-RECEIVED, TIME-WAIT, and FIN-WAIT-2 without an application carry no SACK blocks. In FIN-WAIT-2, they do
/// not carry ECE either.
pub(super) fn mini_sack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, fields)) = replies(difference) else { return Verdict::Unexplained };
    let is_active = matches!(context.dialogue.steps.first(), Some(Step { act: Act::Call(Call::Connect), .. }));
    let has_one = if is_active && kernel.seq == 1 && stack.seq == 1 {
        // After a simultaneous open, the kernel's socket is a complete one, and reports duplicates in SYN-RECEIVED.
        sack_blocks(kernel).is_some() != sack_blocks(stack).is_some()
    } else {
        sack_blocks(kernel).is_none() && sack_blocks(stack).is_some()
    };
    let lacks = has_one && without_sack(kernel) == without_sack(stack);
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let is_closed = steps.iter().any(|step| step.act == Act::Call(Call::Close));
    let is_early = kernel.ack <= 1 && kernel.seq == 1;
    let lacks_echo = is_closed && kernel.bits | ECE == stack.bits;
    let explained = match fields {
        [Field::Options] => lacks && (is_closed || is_early),
        [Field::Bits] => lacks_echo,
        [Field::Bits, Field::Options] => lacks && lacks_echo,
        _ => false,
    };
    when(is_bare_ack(kernel) && explained, Verdict::Continue)
}

/// A reset inside the window ends TIME-WAIT of the kernel, and FIN-WAIT-2 after the application's close.
pub(super) fn reset_in_time_wait(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let ends = |step: &Step| match &step.act {
        Act::Peer(segment) => segment.flags & FIN != 0,
        Act::Call(call) => *call == Call::Close,
        Act::Error(_) | Act::Wait => false,
    };
    let Some(fin) = steps.iter().position(ends) else {
        return Verdict::Unexplained;
    };
    let is_closed = |record: &Record| record.sent.iter().any(|sent| sent.reply.bits & FIN != 0);
    // In FIN-WAIT-2, both hosts accept a reset with RCV.NXT.
    let is_answer = |sent: &&Sent| sent.steps <= steps.len() && sent.reply.bits & (ACK | RST) == ACK;
    let acked = context.stack.sent.iter().rfind(is_answer).map_or(0, |sent| sent.reply.ack);
    let is_other = |segment: &PeerSegment| has_fin(steps) || is_after(segment.seq, acked);
    let is_reset = peers(&steps[fin..]).any(|segment| segment.flags & RST != 0 && is_other(segment));
    let answers = kernel_reply(difference).is_some_and(|sent| sent.reply.bits & RST != 0)
        || matches!(difference, Difference::OnlyStack(sent) if is_bare_ack(&sent.reply))
        || matches!(difference, Difference::Reply { kernel, .. } if kernel.reply.bits & SYN != 0);
    when(answers && is_reset && is_closed(context.kernel) && is_closed(context.stack), Verdict::Stop)
}

/// The kernel sends its FIN with data that fills the peer's window, although the FIN lies beyond the window. If this data is one segment,
/// the kernel sends neither the data nor the FIN.
pub(super) fn fin_beyond_window(context: &Context<'_>, difference: &Difference) -> Verdict {
    if let Some(sent) = stack_reply(difference).filter(|sent| sent.reply.len > 0) {
        let end = sent.reply.seq.wrapping_add(sent.reply.len);
        let is_end = |other: &Sent| other.reply.bits & FIN != 0 && other.reply.seq == end && other.reply.len == 0;
        // The dialogue may end before the window has room for the FIN.
        let has_end = context.stack.sent.iter().any(is_end) || is_closed_behind(context, sent, end);
        let fills = window_edges(context, sent.steps).last() == Some(end);
        let waits = kernel_reply(difference).is_none_or(|kernel| kernel.at_us > sent.at_us && kernel.reply.len == 0);
        if fills && waits && is_immediate(context.stack, sent) && has_end {
            return Verdict::Stop;
        }
    }
    let Some((kernel, stack, [Field::Bits])) = replies(difference) else { return Verdict::Unexplained };
    let is_only = (kernel.bits ^ stack.bits) & !PSH == FIN && kernel.bits & FIN != 0;
    let end = kernel.seq.wrapping_add(kernel.len);
    let fills = window_edges(context, steps_of(difference)).last() == Some(end);
    when(is_only && kernel.len > 0 && fills, Verdict::Stop)
}

/// Whether the application has closed the sending direction before the stack sent this, and has written data up to this sequence number.
fn is_closed_behind(context: &Context<'_>, sent: &Sent, end: u32) -> bool {
    let steps = &context.dialogue.steps[..sent.steps];
    let is_close = |step: &Step| matches!(step.act, Act::Call(Call::Shutdown | Call::Close));
    let written = |(step, outcome): (&Step, &Option<Outcome>)| match (&step.act, outcome) {
        (Act::Call(Call::Send(_) | Call::SendUrgent(_)), Some(Outcome::Bytes(bytes))) => *bytes,
        _ => 0,
    };
    let written: u32 = steps.iter().zip(&context.stack.outcomes).map(written).sum();
    steps.iter().any(is_close) && end == 1 + written
}

/// In CLOSE-WAIT, a reset is the error EPIPE of the kernel's socket. A call after a shutdown has the same error without a reset.
pub(super) fn reset_in_close_wait(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Call { step, kernel: Some(Outcome::Refused), stack: Some(Outcome::Failed) } = difference else {
        return Verdict::Unexplained;
    };
    let steps = &context.dialogue.steps[..*step];
    let is_reset = |step: &Step| matches!(&step.act, Act::Peer(segment) if segment.flags & RST != 0);
    let Some(reset) = steps.iter().position(is_reset) else { return Verdict::Unexplained };
    let is_shut = |step: &Step| step.act == Act::Call(Call::Shutdown);
    let (before, after) = steps.split_at(reset);
    when(has_fin(before) && !before.iter().any(is_shut) && after.iter().any(is_shut), Verdict::Continue)
}

/// A segment without data has CWR. Only the kernel then stops to set ECE in its acknowledgements.
pub(super) fn cwr_without_data(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, [Field::Bits])) = replies(difference) else { return Verdict::Unexplained };
    let is_empty =
        |segment: &PeerSegment| segment.len == 0 && segment.flags & CWR != 0 && segment.flags & (SYN | RST) == 0;
    let has_one = peers(&context.dialogue.steps[..steps_of(difference)]).any(is_empty);
    when(has_one && kernel.bits ^ stack.bits == ECE && stack.bits & ECE != 0, Verdict::Continue)
}
