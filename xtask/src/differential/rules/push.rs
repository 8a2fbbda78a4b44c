//! The rule for PSH.

use super::super::compare::{Difference, Field, Verdict};
use super::super::dialogue::{Act, Call, PathError, PeerSegment, Step};
use super::super::packet::{PSH, SYN};
use super::super::player::Outcome;
use super::sender::{peers, window_edges};
use super::{Context, is_after, replies, when};

/// The kernel sets PSH although further data is queued: at the end of a write, in the last of several segments that it sends as one
/// (GSO), when half of the largest window was written since the last PSH, and in data that is sent again or that a window has cut.
pub(super) fn push(context: &Context<'_>, difference: &Difference) -> Verdict {
    let (Difference::Reply { kernel: sent, .. }, Some((kernel, stack, [Field::Push]))) =
        (difference, replies(difference))
    else {
        return Verdict::Unexplained;
    };
    let end = kernel.seq.wrapping_add(kernel.len);
    let earlier = || context.kernel.sent.iter().filter(|other| other.at_us < sent.at_us && other.reply.len > 0);
    let is_repeated = earlier().any(|other| is_after(other.reply.seq.wrapping_add(other.reply.len), kernel.seq));
    let pushed = earlier()
        .filter(|other| other.reply.bits & PSH != 0)
        .map(|other| other.reply.seq.wrapping_add(other.reply.len))
        .max();
    let is_cut = context.dialogue.steps.iter().any(|step| matches!(step.act, Act::Error(PathError::TooBig(_))));
    let explained = is_repeated
        || is_cut
        || write_ends(context).any(|written| written == end)
        || window_edges(context, sent.steps).any(|edge| edge == end)
        || earlier()
            .any(|other| other.steps == sent.steps && other.reply.seq.wrapping_add(other.reply.len) == kernel.seq)
        || end.wrapping_sub(pushed.unwrap_or(1)) >= largest_window_at_first_write(context) / 2;
    when(kernel.bits & PSH != 0 && stack.bits & PSH == 0 && kernel.len > 0 && explained, Verdict::Continue)
}

/// The sequence numbers at which the kernel's application has ended a write.
fn write_ends<'a>(context: &'a Context<'_>) -> impl Iterator<Item = u32> + 'a {
    let mut end = 1;
    context.dialogue.steps.iter().zip(&context.kernel.outcomes).filter_map(move |(step, outcome)| {
        let writes = matches!(step.act, Act::Call(Call::Send(_) | Call::SendUrgent(_) | Call::ConnectWith(_)));
        let Some(Outcome::Bytes(count)) = outcome.filter(|_| writes) else { return None };
        end += count;
        Some(end)
    })
}

/// The largest window that the peer has offered before the first write. It grows later. A connection that the peer has opened begins
/// with the window of the acknowledgement of the SYN-ACK.
fn largest_window_at_first_write(context: &Context<'_>) -> u32 {
    let steps = &context.dialogue.steps;
    let first = steps.iter().position(|step| matches!(step.act, Act::Call(Call::Send(_) | Call::SendUrgent(_))));
    let scale = peers(steps).find_map(|segment| segment.window_scale).unwrap_or(0).min(14);
    let window = |segment: &PeerSegment| u32::from(segment.window) << if segment.flags & SYN == 0 { scale } else { 0 };
    let is_passive = matches!(steps.first(), Some(Step { act: Act::Call(Call::Listen), .. }));
    let counts = |segment: &&PeerSegment| !is_passive || segment.flags & SYN == 0;
    peers(&steps[..first.unwrap_or(0)]).filter(counts).map(window).max().unwrap_or(0)
}
