//! Rules for how a connection opens.

use super::super::compare::{Difference, Field, Verdict};
use super::super::dialogue::{AckNumber, Act, Call, PathError, PeerSegment, Step};
use super::super::packet::{ACK, RST, SYN, TcpOption};
use super::super::player::{Outcome, Reply, Sent};
use super::sender::{peers, steps_of};
use super::{Context, last_peer, replies, stack_reply, when};

/// A report that the peer cannot be reached ends a connection of the kernel in SYN-RECEIVED. A report that the peer's port has no
/// listener ends that of the stack.
pub(super) fn early_unreachable(context: &Context<'_>, difference: &Difference) -> Verdict {
    let until = steps_of(difference);
    let is_early = |step: usize| {
        let last = context.kernel.sent.iter().rfind(|sent| sent.steps <= step);
        last.is_some_and(|sent| sent.reply.bits & (SYN | ACK) == SYN | ACK)
    };
    let has_report = |error: PathError| {
        let is_report = |(at, step): (usize, &Step)| step.act == Act::Error(error) && is_early(at);
        context.dialogue.steps[..until].iter().enumerate().any(is_report)
    };
    let has_ended = match difference {
        Difference::Reply { kernel, .. } | Difference::OnlyKernel(kernel) => kernel.reply.bits & (RST | SYN) != 0,
        Difference::Call { kernel, .. } => *kernel == Some(Outcome::Failed),
        Difference::OnlyStack(_) => true,
    };
    let is_reset = stack_reply(difference).is_some_and(|sent| sent.reply.bits & (RST | ACK) == RST);
    let explained =
        has_report(PathError::HostUnreachable) && has_ended || has_report(PathError::PortUnreachable) && is_reset;
    when(explained, Verdict::Stop)
}

/// The MSS in a SYN of the kernel follows from the path MTU that an earlier connection has learnt.
pub(super) fn path_mss(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack, [Field::Options])) = replies(difference) else { return Verdict::Unexplained };
    let mss = |reply: &Reply| {
        reply.options.iter().find_map(|option| if let TcpOption::Mss(mss) = option { Some(*mss) } else { None })
    };
    let headers = if context.dialogue.v6 { 60 } else { 40 };
    let is_cause = |step: &Step| matches!(step.act, Act::Error(PathError::TooBig(mtu)) if Some(mtu.saturating_sub(headers)) == mss(kernel));
    let reported = context.dialogue.steps[..steps_of(difference)].iter().any(is_cause);
    when(kernel.bits & SYN != 0 && mss(kernel) < mss(stack) && reported, Verdict::Continue)
}

/// After a simultaneous open, the kernel's connection opens by the acknowledgement of a segment whose data ends at RCV.NXT.
pub(super) fn simultaneous_end(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = &context.dialogue.steps[..steps_of(difference)];
    let is_active = matches!(steps.first(), Some(Step { act: Act::Call(Call::Connect), .. }));
    let opens = |sent: &Sent| sent.reply.bits & (SYN | ACK) == SYN | ACK;
    let next = peers(steps).find(|segment| segment.flags & SYN != 0).map(PeerSegment::end);
    let is_old = |segment: &PeerSegment| {
        segment.flags & (SYN | RST) == 0 && segment.len > 0 && segment.ack.is_some() && Some(segment.end()) == next
    };
    let explained = is_active && context.kernel.sent.iter().any(opens) && peers(steps).any(is_old);
    when(explained && stack_reply(difference).is_some_and(opens), Verdict::Stop)
}

/// After a simultaneous open, an acknowledgement that does not cover the kernel's SYN completes the handshake. The stack resets it.
pub(super) fn simultaneous_ack(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_active = matches!(context.dialogue.steps.first(), Some(Step { act: Act::Call(Call::Connect), .. }));
    let opens = |sent: &Sent| sent.reply.bits & (SYN | ACK) == SYN | ACK;
    let covers_nothing = |segment: &PeerSegment| {
        let is_first = matches!(segment.ack, Some(AckNumber::All(-1) | AckNumber::At(0)));
        is_first && segment.flags & (SYN | RST) == 0
    };
    let Some(sent) = stack_reply(difference).filter(|sent| sent.reply.bits & (RST | ACK) == RST) else {
        return Verdict::Unexplained;
    };
    let answers = sent.reply.seq == 0 && last_peer(context, sent).is_some_and(covers_nothing);
    when(is_active && answers && context.kernel.sent.iter().any(opens), Verdict::Stop)
}
