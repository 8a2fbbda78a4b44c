//! Rules for the time at which data is sent: bursts, and timeouts that prove spurious.

use std::collections::BTreeSet;

use super::super::compare::{Difference, Field, Verdict, is_immediate};
use super::super::dialogue::PeerSegment;
use super::super::player::{Record, Sent};
use super::sender::{full_segment, offers, steps_of};
use super::{Context, is_after, kernel_reply, stack_reply, when};

/// The kernel sends a segment later than the stack, because it waits until it can send several segments at once.
pub(super) fn deferral(context: &Context<'_>, difference: &Difference) -> Verdict {
    if defers_rest(context, difference) {
        return Verdict::Stop;
    }
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
    when(are_new && kernel.at_us > stack.at_us && fields.iter().all(|field| counts.contains(field)), Verdict::Stop)
}

/// Within this time after it has sent data, the kernel may wait with further data.
const DEFERRAL_US: u64 = 1_500;
/// Both hosts begin with a window of ten segments.
const INITIAL_WINDOW: u32 = 10;

/// Whether the kernel has sent all but the last segments of a burst, and sends the rest later, perhaps after a retransmission. It waits
/// only if the rest is less than a third of what the windows allow.
fn defers_rest(context: &Context<'_>, difference: &Difference) -> bool {
    let Some(sent) = stack_reply(difference).filter(|sent| sent.reply.len > 0) else { return false };
    let end = |other: &Sent| other.reply.seq.wrapping_add(other.reply.len);
    let in_burst =
        |record: &Record, other: &Sent| other.steps == sent.steps && other.reply.len > 0 && is_immediate(record, other);
    let is_recent =
        |other: &Sent| other.reply.len > 0 && other.at_us < sent.at_us && sent.at_us - other.at_us < DEFERRAL_US;
    let is_before =
        |other: &Sent| (in_burst(context.kernel, other) || is_recent(other)) && end(other) == sent.reply.seq;
    let follows = context.kernel.sent.iter().any(is_before);
    let comes_later = context
        .kernel
        .sent
        .iter()
        .any(|other| other.at_us > sent.at_us && other.reply.seq == sent.reply.seq && other.reply.len > 0);
    // The kernel may send other data first if its retransmission timer expires before the rest is sent.
    let times_out = kernel_reply(difference).is_some_and(|other| !is_immediate(context.kernel, other));
    // Or the next step follows at once.
    let is_cut = kernel_reply(difference)
        .is_some_and(|other| other.steps > sent.steps && other.at_us < sent.at_us + DEFERRAL_US);
    let acked = acked_before(context, sent.steps);
    let burst_end = context.stack.sent.iter().filter(|other| in_burst(context.stack, other)).map(end).max();
    let burst_end = burst_end.unwrap_or(sent.reply.seq);
    // The kernel counts the congestion window in segments, so a short segment takes as much of it as a full one.
    let count = |record: &Record, until_us: u64| {
        let is_outstanding =
            |other: &&Sent| other.at_us <= until_us && other.reply.len > 0 && is_after(end(other), acked);
        let outstanding: BTreeSet<u32> =
            record.sent.iter().filter(is_outstanding).map(|other| other.reply.seq).collect();
        u32::try_from(outstanding.len()).unwrap_or(0)
    };
    let full = full_segment(context);
    let all = burst_end.wrapping_sub(acked).max(count(context.stack, sent.at_us).saturating_mul(full));
    // In the initial window, the kernel has at most this room.
    let segments = count(context.kernel, sent.at_us + DEFERRAL_US);
    let room = INITIAL_WINDOW.saturating_sub(segments).saturating_mul(full);
    let rest = burst_end.wrapping_sub(sent.reply.seq);
    let rest = if is_cut { rest.min(room) } else { rest };
    is_immediate(context.stack, sent) && follows && (comes_later || times_out || is_cut) && rest < all / 3
}

/// The highest acknowledgement number of the peer in these steps. Both hosts drop a segment with an older timestamp (PAWS).
fn acked_before(context: &Context<'_>, steps: usize) -> u32 {
    let (mut newest, mut acked) = (None, 1);
    for (segment, ack, _) in offers(context, steps) {
        let value = segment.timestamp.map(|timestamp| timestamp.value);
        if value.zip(newest).is_none_or(|(value, newest)| !is_after(newest, value)) {
            (newest, acked) = (value.or(newest), ack);
        }
    }
    acked
}

/// An acknowledgement after a timeout reports data that was sent only once, so both hosts take the timeout back. The kernel may then send
/// outstanding segments again, because its RACK counts the repetition as the newest delivered segment. It also counts a repeated segment
/// twice in the bytes in flight, so it may send one segment less.
pub(super) fn spurious_timeout(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(acked) = spurious_at(context, steps_of(difference)) else { return Verdict::Unexplained };
    let is_repeated = |record: &Record, sent: &Sent| {
        let earlier =
            |other: &Sent| other.at_us < sent.at_us && other.reply.seq == sent.reply.seq && other.reply.len > 0;
        sent.reply.len > 0 && !is_after(acked, sent.reply.seq) && record.sent.iter().any(earlier)
    };
    let (kernel, stack) = (kernel_reply(difference), stack_reply(difference));
    if let Some(kernel) = kernel.filter(|kernel| is_repeated(context.kernel, kernel)) {
        let at_once = |stack: &Sent| stack.steps == kernel.steps && is_immediate(context.stack, stack);
        let is_ahead = stack.is_none_or(|stack| stack.at_us > kernel.at_us || at_once(stack));
        if is_ahead && (!is_immediate(context.kernel, kernel) || stack.is_none_or(at_once)) {
            return Verdict::Stop;
        }
    }
    let is_last = |stack: &Sent| {
        let behind = |other: &&Sent| other.steps == stack.steps && is_immediate(context.stack, other);
        let end = |other: &Sent| other.reply.seq.wrapping_add(other.reply.len);
        let burst_end = context.stack.sent.iter().filter(behind).map(end).max();
        burst_end.is_some_and(|burst_end| burst_end.wrapping_sub(stack.reply.seq) <= full_segment(context))
    };
    let explained =
        |stack: &Sent| is_immediate(context.stack, stack) && is_repeated(context.stack, stack) && is_last(stack);
    when(stack.is_some_and(explained), Verdict::Stop)
}

/// If the peer's last acknowledgement in these steps shows that a timeout before was spurious, returns its number: it reports data that
/// both hosts have sent only once, behind a segment that both have sent again.
fn spurious_at(context: &Context<'_>, steps: usize) -> Option<u32> {
    let (segment, acked, _): (&PeerSegment, u32, u32) = offers(context, steps).last()?;
    let is_again = |record: &Record, sent: &Sent| {
        record
            .sent
            .iter()
            .any(|other| other.at_us < sent.at_us && other.reply.seq == sent.reply.seq && other.reply.len > 0)
    };
    let until = |record: &Record, sent: &Sent| {
        sent.steps <= steps && !is_after(sent.reply.seq, acked) && is_again(record, sent)
    };
    let repeated = context.stack.sent.iter().find(|sent| sent.reply.len > 0 && until(context.stack, sent))?;
    let in_both =
        context.kernel.sent.iter().any(|sent| sent.reply.seq == repeated.reply.seq && is_again(context.kernel, sent));
    let is_timer = !is_immediate(context.stack, repeated);
    let reported = segment.sack.iter().map(|(_, end)| *end).max().unwrap_or(acked).max(acked);
    (in_both && is_timer && is_after(reported, repeated.reply.seq.wrapping_add(repeated.reply.len))).then_some(acked)
}
