//! Rules for how a connection opens.

use super::super::compare::{Difference, Field, Verdict};
use super::super::dialogue::{AckNumber, Act, Call, PathError, PeerSegment, Step};
use super::super::packet::{ACK, FIN, RST, SYN, TcpOption};
use super::super::player::{Outcome, Reply, Sent};
use super::sender::{peers, steps_of};
use super::{Context, is_bare_ack, kernel_reply, last_peer, replies, stack_reply, when};
use siga_stack::tcp::StateName;

/// The state of the stack's connection until the handshake is complete.
const OPENING: Option<StateName> = Some(StateName::SynReceived);

/// A report that the peer cannot be reached ends a connection of the kernel in SYN-RECEIVED. A report that the peer's port has no
/// listener ends that of the stack.
pub(super) fn early_unreachable(context: &Context<'_>, difference: &Difference) -> Verdict {
    let until = steps_of(difference);
    let is_early = |step: usize| {
        let last = context.kernel.sent.iter().rfind(|sent| sent.steps <= step);
        let has_state = context.stack.states.get(step) == Some(&Some(StateName::SynReceived));
        has_state || last.is_some_and(|sent| sent.reply.bits & (SYN | ACK) == SYN | ACK)
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
    let is_repeated = matches!(difference, Difference::OnlyKernel(sent) if sent.reply.bits & (SYN | ACK) == SYN | ACK);
    let explained = has_report(PathError::HostUnreachable) && has_ended
        || has_report(PathError::PortUnreachable) && (is_reset || is_repeated);
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
    // The stack still waits for the end of the handshake.
    let waits = |at: usize| at.checked_sub(1).and_then(|last| context.stack.states.get(last)) == Some(&OPENING);
    let is_opening = stack_reply(difference).is_some_and(opens)
        || kernel_reply(difference).is_some_and(|kernel| kernel.reply.bits & SYN == 0 && waits(kernel.steps));
    when(explained && is_opening, Verdict::Stop)
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

/// In a simultaneous open, the kernel sends the FIN of a close in SYN-RECEIVED. It sends the FIN of a shutdown when the handshake is
/// complete, before it processes the data of the segment that completes it.
pub(super) fn early_fin(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = kernel_reply(difference) else { return Verdict::Unexplained };
    let steps = &context.dialogue.steps[..sent.steps];
    let is_active = matches!(steps.first(), Some(Step { act: Act::Call(Call::Connect | Call::ConnectWith(_)), .. }));
    let before = sent.steps.checked_sub(2).and_then(|before| context.stack.states.get(before));
    if !is_active || before != Some(&OPENING) {
        return Verdict::Unexplained;
    }
    let is_fin = |sent: &Sent| sent.reply.bits & FIN != 0;
    if !is_fin(sent) {
        // An acknowledgement of the data follows.
        let is_earlier = |other: &Sent| is_fin(other) && other.steps == sent.steps && other.at_us < sent.at_us;
        let follows = context.kernel.sent.iter().any(is_earlier);
        return when(is_bare_ack(&sent.reply) && follows, Verdict::SkipKernel);
    }
    let has_data = last_peer(context, sent).is_some_and(|segment| segment.len > 0 || segment.flags & FIN != 0);
    match difference {
        Difference::Reply { stack, fields, .. } if is_fin(stack) && stack.steps == sent.steps => {
            let counts = |field: &Field| matches!(field, Field::Ack | Field::Options | Field::Window);
            when(has_data && fields.iter().all(counts), Verdict::Continue)
        }
        Difference::Reply { .. } | Difference::OnlyKernel(_) | Difference::OnlyStack(_) | Difference::Call { .. } => {
            let closes = |step: &Step| step.act == Act::Call(Call::Close);
            when(steps.last().is_some_and(closes), Verdict::Stop)
        }
    }
}

/// The stack takes data before the connection is open, and refuses it after a shutdown. A call on a kernel socket blocks in both cases.
pub(super) fn send_early(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Call { step, kernel: Some(Outcome::Blocked), stack: Some(outcome) } = difference else {
        return Verdict::Unexplained;
    };
    match outcome {
        Outcome::Bytes(_) => Verdict::Stop,
        Outcome::Refused => {
            let shuts = |step: &Step| step.act == Act::Call(Call::Shutdown);
            let is_shut = context.dialogue.steps[..*step].iter().any(shuts);
            let opens =
                matches!(context.stack.states.get(*step), Some(Some(StateName::SynReceived | StateName::SynSent)));
            when(is_shut && opens, Verdict::Continue)
        }
        Outcome::Done | Outcome::End | Outcome::Blocked | Outcome::Failed | Outcome::NoSocket => Verdict::Unexplained,
    }
}
