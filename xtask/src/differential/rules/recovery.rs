//! Rules for the time at which data is sent: bursts, and timeouts that prove spurious.

use std::collections::BTreeSet;

use super::super::compare::{Difference, Field, Verdict, is_immediate};
use super::super::dialogue::{Act, PeerSegment, Step};
use super::super::packet::{ACK, CWR, FIN, RST, SYN};
use super::super::player::{Record, Sent};
use super::sender::{full_segment, has_repeated, offers, peers, steps_of, window_edges};
use super::{Context, IMMEDIATE_US, is_after, is_empty_ack, kernel_reply, only_late, stack_reply, when};

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
    // Or the next step follows at once, or ends the connection.
    let is_cut = kernel_reply(difference).is_some_and(|other| {
        let ends = other.reply.bits & RST != 0 && is_immediate(context.kernel, other);
        other.steps > sent.steps && (ends || other.at_us < sent.at_us + DEFERRAL_US)
    });
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
    let is_initial = acked == 1 && !has_repeated(context.kernel, sent.at_us);
    let rest = if is_cut || is_initial { rest.min(room) } else { rest };
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
    let at = kernel_reply(difference).map(|kernel| kernel.steps).into_iter().chain([steps_of(difference)]);
    let Some(acked) = at.into_iter().find_map(|steps| spurious_at(context, steps)) else { return Verdict::Unexplained };
    let is_repeated = |record: &Record, sent: &Sent| {
        let earlier =
            |other: &Sent| other.at_us < sent.at_us && other.reply.seq == sent.reply.seq && other.reply.len > 0;
        sent.reply.len > 0 && !is_after(acked, sent.reply.seq) && record.sent.iter().any(earlier)
    };
    let (kernel, stack) = (kernel_reply(difference), stack_reply(difference));
    if let Some(kernel) = kernel.filter(|kernel| is_repeated(context.kernel, kernel)) {
        let at_once = |stack: &Sent| stack.steps == kernel.steps && is_immediate(context.stack, stack);
        let is_ahead = stack.is_none_or(|stack| stack.at_us > kernel.at_us || at_once(stack));
        // The stack sends nothing at once if the peer's window has no room for new data.
        let earlier = context.kernel.sent.iter().filter(|other| other.at_us < kernel.at_us);
        let end = earlier.map(|other| other.reply.seq.wrapping_add(other.reply.len)).max().unwrap_or(1);
        let is_closed = window_edges(context, kernel.steps).last().is_some_and(|edge| !is_after(edge, end));
        if is_ahead && (!is_immediate(context.kernel, kernel) || is_closed || stack.is_none_or(at_once)) {
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

/// The kernel counts a duplicate that the peer reports (D-SACK) as a delivered segment, so its congestion window grows by it. It does so
/// only after it has sent a segment or its SYN-ACK again.
pub(super) fn duplicate_growth(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(kernel) = kernel_reply(difference).filter(|sent| sent.reply.len > 0) else { return Verdict::Unexplained };
    let is_ahead = stack_reply(difference).is_none_or(|stack| stack.at_us > kernel.at_us + IMMEDIATE_US);
    let full = full_segment(context);
    let duplicates = offers(context, kernel.steps).filter_map(|(segment, acked, _)| {
        let (start, end) = *segment.sack.first()?;
        let is_inside = segment.sack.get(1).is_some_and(|(first, last)| *first <= start && end <= *last);
        (end <= acked || is_inside).then(|| end.wrapping_sub(start).div_ceil(full).max(1))
    });
    let grown = duplicates.sum::<u32>().saturating_mul(full);
    let in_burst = |other: &&Sent| other.steps == kernel.steps && is_immediate(context.kernel, other);
    let burst_end =
        context.kernel.sent.iter().filter(in_burst).map(|other| other.reply.seq.wrapping_add(other.reply.len)).max();
    let more = burst_end.unwrap_or(0).wrapping_sub(kernel.reply.seq);
    let opens = |sent: &&Sent| sent.at_us < kernel.at_us && sent.reply.bits & (SYN | ACK) == SYN | ACK;
    let has_sent_again =
        has_repeated(context.kernel, kernel.at_us) || context.kernel.sent.iter().filter(opens).count() > 1;
    when(is_ahead && is_immediate(context.kernel, kernel) && has_sent_again && more <= grown, Verdict::Stop)
}

/// The kernel counts the duplicates that the peer reports in segments, and takes a reduction of cwnd back if there are as many as
/// repeated segments. So it does not announce the reduction (CWR).
pub(super) fn duplicate_undo(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Reply { kernel, stack, fields } = difference else { return Verdict::Unexplained };
    let is_announced = fields[..] == [Field::Bits] && kernel.reply.bits | CWR == stack.reply.bits;
    let repeats = |record: &Record, sent: &Sent| has_repeated(record, sent.at_us);
    let reports = |(segment, acked, _): (&PeerSegment, u32, u32)| {
        segment.sack.first().is_some_and(|(start, end)| *end <= acked && end.wrapping_sub(*start) > 0)
    };
    let is_reported = offers(context, kernel.steps).any(reports);
    when(is_announced && is_reported && repeats(context.kernel, kernel) && repeats(context.stack, stack), Verdict::Stop)
}

/// The peer's next data does not restart the kernel's persist timer if its socket has enough memory. It restarts that of the stack.
pub(super) fn persist_restart(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(kernel) = kernel_reply(difference).filter(|sent| is_empty_ack(&sent.reply)) else {
        return Verdict::Unexplained;
    };
    let next = context.kernel.sent.iter().filter(|other| other.at_us < kernel.at_us).map(|other| other.reply.seq).max();
    let is_probe = next.is_some_and(|next| kernel.reply.seq < next) && !is_immediate(context.kernel, kernel);
    let later_us = stack_reply(difference).filter(|stack| stack.reply.seq == kernel.reply.seq).map(|stack| stack.at_us);
    let steps = &context.dialogue.steps[..kernel.steps];
    let waits_alike = |at: usize| {
        let data_us = context.kernel.begun_us[at];
        // The timer of the kernel began at an earlier step, or with an earlier probe.
        let starts = context.kernel.begun_us[..at].iter().copied();
        let probes = context.kernel.sent.iter().map(|sent| sent.at_us).filter(|at_us| *at_us < data_us);
        let mut waited_us = starts.chain(probes).map(|start_us| kernel.at_us - start_us);
        match later_us {
            Some(later_us) => waited_us.any(|waited| (later_us - data_us).abs_diff(waited) < slack_us(waited)),
            None => true,
        }
    };
    let is_data = |(at, step): (usize, &Step)| {
        matches!(&step.act, Act::Peer(segment) if segment.len > 0 && segment.flags & (SYN | FIN | RST) == 0)
            && waits_alike(at)
    };
    let is_later = later_us.is_none_or(|later_us| later_us > kernel.at_us);
    when(is_probe && is_later && steps.iter().enumerate().any(is_data), Verdict::Stop)
}

/// The time that two waits of equal timers may differ.
fn slack_us(waited_us: u64) -> u64 {
    15_000 + waited_us / 8
}

/// If an acknowledgement and new data meet a tail-loss probe that is due, the kernel's retransmission timer runs since the oldest
/// outstanding segment was sent. That of the stack runs since the acknowledgement.
pub(super) fn timer_start(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(kernel) = kernel_reply(difference).filter(|sent| sent.reply.len > 0) else { return Verdict::Unexplained };
    let is_same = |other: &&Sent| other.reply.seq == kernel.reply.seq && other.reply.len > 0;
    let Some(before) = context.kernel.sent.iter().filter(is_same).rfind(|other| other.at_us < kernel.at_us) else {
        return Verdict::Unexplained;
    };
    // The acknowledgement that made this segment the oldest one.
    let Some(at) = (before.steps + 1..=kernel.steps).find(|step| {
        let highest = offers(context, *step).map(|(_, acked, _)| acked).max();
        highest == Some(kernel.reply.seq)
    }) else {
        return Verdict::Unexplained;
    };
    let acked_us = context.kernel.begun_us[at - 1];
    let is_new = |other: &Sent| other.steps == at && other.reply.len > 0 && is_immediate(context.kernel, other);
    let sends_new = context.kernel.sent.iter().any(is_new);
    let with_sack = peers(&context.dialogue.steps).any(|segment| segment.flags & SYN != 0 && segment.sack_permitted);
    let waited_us = kernel.at_us - before.at_us;
    let later_us = context.stack.sent.iter().filter(is_same).map(|other| other.at_us).find(|at_us| *at_us > acked_us);
    let waits_alike = match later_us {
        Some(later_us) => (later_us - acked_us).abs_diff(waited_us) < slack_us(waited_us),
        None => {
            context.stack.begun_us.last().is_some_and(|end_us| acked_us + waited_us + slack_us(waited_us) > *end_us)
        }
    };
    let is_timer = !is_immediate(context.kernel, kernel);
    when(is_timer && sends_new && with_sack && waits_alike && later_us != Some(kernel.at_us), Verdict::Stop)
}

/// The longest time for which the stack's data waits if the peer's window is open, but too small, with a tolerance.
const OVERRIDE_US: std::ops::Range<u64> = 1_000_000..1_005_000;

/// If the peer's window is open, but too small for the data that waits, the stack sends the data after a second at the latest. The kernel
/// waits for a retransmission timeout.
pub(super) fn override_timeout(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some(sent) = stack_reply(difference).filter(|sent| sent.reply.len > 0) else { return Verdict::Unexplained };
    let waits = kernel_reply(difference).is_none_or(|kernel| kernel.at_us > sent.at_us);
    let begun_us = context.stack.begun_us.get(sent.steps.wrapping_sub(1)).copied().unwrap_or(0);
    let fills = window_edges(context, sent.steps).last() == Some(sent.reply.seq.wrapping_add(sent.reply.len));
    when(waits && fills && OVERRIDE_US.contains(&(sent.at_us - begun_us)), Verdict::Stop)
}

/// If the peer's window has shrunk, a tail-loss probe cannot be sent. The stack's retransmission timer then runs since this probe was
/// due, and that of the kernel since the oldest outstanding segment was sent.
pub(super) fn unsent_probe(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Reply { kernel, stack, fields } = difference else { return Verdict::Unexplained };
    let is_timer = !is_immediate(context.kernel, kernel) && !is_immediate(context.stack, stack);
    let is_same = kernel.reply.len > 0 && only_late(fields);
    let end = |sent: &Sent| sent.reply.seq.wrapping_add(sent.reply.len);
    let outstanding = context.stack.sent.iter().filter(|other| other.at_us < stack.at_us).map(end).max();
    let edge = window_edges(context, stack.steps).last();
    let has_shrunk = outstanding.zip(edge).is_some_and(|(end, edge)| is_after(end, edge));
    // The probe is due after two round trips.
    let waited_us = |record: &Record, sent: &Sent| {
        let first = record.sent.iter().find(|other| other.reply.seq == sent.reply.seq && other.reply.len > 0);
        first.map_or(0, |first| sent.at_us.saturating_sub(first.at_us))
    };
    let (kernel_us, stack_us) = (waited_us(context.kernel, kernel), waited_us(context.stack, stack));
    let is_later = (kernel_us + 1..2 * kernel_us).contains(&stack_us);
    when(is_timer && is_same && has_shrunk && is_later, Verdict::Stop)
}

/// The kernel's estimate of the RTT's variation differs from that of RFC 6298: it grows more slowly after a sample below the smoothed RTT,
/// and it is the largest one of a round trip.
pub(super) fn rtt_variance(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Reply { kernel, stack, fields } = difference else { return Verdict::Unexplained };
    let is_timer = !is_immediate(context.kernel, kernel) && !is_immediate(context.stack, stack);
    let counts = |field: &Field| matches!(field, Field::Time | Field::Clock);
    if !is_timer || !fields.iter().all(counts) {
        return Verdict::Unexplained;
    }
    let (estimates, last_us) = Estimates::of(context, kernel.at_us);
    // The time since the last transmission of this segment, or since the last sample.
    let waited_us = |record: &Record, sent: &Sent| {
        let is_earlier = |other: &&Sent| other.reply.seq == sent.reply.seq && other.at_us < sent.at_us;
        let sent_us = record.sent.iter().rfind(is_earlier).map_or(0, |earlier| earlier.at_us);
        sent.at_us - sent_us.max(last_us)
    };
    let is_near = |waited_us: u64, timeout_us: u64| {
        waited_us + 10_000 > timeout_us && waited_us < timeout_us + slack_us(timeout_us)
    };
    let (kernel_us, stack_us) = (estimates.kernel_us(), estimates.stack_us());
    // Both timeouts were doubled equally often.
    let are_near = |backoff: u32| {
        is_near(waited_us(context.kernel, kernel), kernel_us << backoff)
            && is_near(waited_us(context.stack, stack), stack_us << backoff)
    };
    when(kernel_us.abs_diff(stack_us) > 10_000 && (0..4).any(are_near), Verdict::Stop)
}

/// The smallest variance term of both hosts' RTO.
const SLACK_MIN_US: u64 = 200_000;

/// The estimates of the RTT and of its variation in both hosts. They differ only in the variation.
#[derive(Default)]
struct Estimates {
    smoothed_us: u64,
    /// RTTVAR of RFC 6298, four times.
    stack_us: u64,
    /// The kernel's `mdev_us`, `mdev_max_us` and `rttvar_us`.
    mean_us: u64,
    mean_max_us: u64,
    kernel_us: u64,
    /// The sequence number at which a new `mdev_max_us` begins.
    next: u32,
}

impl Estimates {
    /// Returns the estimates from the first transmissions before this time, and the time of the last sample.
    fn of(context: &Context<'_>, until_us: u64) -> (Self, u64) {
        let mut estimates = Self::default();
        let (mut acked, mut last_us) = (0, 0);
        let until = context.kernel.begun_us.iter().filter(|begun| **begun < until_us).count();
        for at in 1..=until {
            let Some((segment, ack, _)) = offers(context, at).last() else { continue };
            let is_now = matches!(&context.dialogue.steps[at - 1].act, Act::Peer(last) if std::ptr::eq(last, segment));
            if !is_now || ack <= acked {
                continue;
            }
            let before = || context.kernel.sent.iter().filter(|sent| sent.steps < at);
            let is_covered = |sent: &&Sent| {
                let occupies = sent.reply.len > 0 || sent.reply.bits & (SYN | FIN) != 0;
                occupies && !is_after(acked, sent.reply.seq)
            };
            let end = before().map(|sent| sent.reply.seq.wrapping_add(sent.reply.len)).max().unwrap_or(1).max(1);
            if let Some(oldest) = before().find(is_covered) {
                last_us = context.kernel.begun_us[at - 1];
                // After a repetition, only a timestamp gives a sample. The peer echoes the latest one.
                let is_again =
                    before().filter(|other| other.reply.seq == oldest.reply.seq && is_covered(other)).count() > 1;
                let has_echo = segment.timestamp.is_some_and(|timestamp| timestamp.echo.is_none());
                let echoed = if is_again { before().next_back().filter(|_| has_echo) } else { Some(oldest) };
                if let Some(sent) = echoed {
                    estimates.add(last_us.saturating_sub(sent.at_us), ack, end);
                }
            }
            acked = ack;
        }
        (estimates, last_us)
    }

    /// Adds a sample from an acknowledgement of the data before `acked`, when the data before `end` was sent.
    fn add(&mut self, sample_us: u64, acked: u32, end: u32) {
        if self.mean_us == 0 {
            (self.smoothed_us, self.stack_us, self.mean_us) = (sample_us, sample_us * 2, sample_us * 2);
            self.kernel_us = self.mean_us.max(SLACK_MIN_US);
            (self.mean_max_us, self.next) = (self.kernel_us, end);
            return;
        }
        let distance_us = self.smoothed_us.abs_diff(sample_us);
        self.stack_us = (self.stack_us * 3 + distance_us * 4) / 4;
        let fourth_us = self.mean_us / 4;
        let grows_us = distance_us.saturating_sub(fourth_us);
        let grows_us = if sample_us < self.smoothed_us { grows_us / 8 } else { grows_us };
        self.mean_us = self.mean_us + grows_us - fourth_us.saturating_sub(distance_us);
        self.smoothed_us = (self.smoothed_us * 7 + sample_us) / 8;
        if self.mean_us > self.mean_max_us {
            self.mean_max_us = self.mean_us;
            self.kernel_us = self.kernel_us.max(self.mean_us);
        }
        if is_after(acked, self.next) {
            self.kernel_us -= self.kernel_us.saturating_sub(self.mean_max_us) / 4;
            (self.mean_max_us, self.next) = (SLACK_MIN_US, end);
        }
    }

    fn kernel_us(&self) -> u64 {
        self.smoothed_us + self.kernel_us
    }

    fn stack_us(&self) -> u64 {
        self.smoothed_us + self.stack_us.max(SLACK_MIN_US)
    }
}

/// The peer acknowledges only a part of what it has reported in an earlier SACK block. The kernel takes this for a loss of the reported
/// data (reneging), and soon sends it again.
pub(super) fn reneging(context: &Context<'_>, difference: &Difference) -> Verdict {
    let steps = steps_of(difference);
    let Some((_, acked, _)) = offers(context, steps).last() else { return Verdict::Unexplained };
    let is_inside = |(segment, before, _): (&PeerSegment, u32, u32)| {
        before < acked && segment.sack.iter().any(|(start, end)| *start > before && *start <= acked && acked < *end)
    };
    let is_data = |sent: &Sent| sent.reply.len > 0;
    let has_data = kernel_reply(difference).is_some_and(is_data) || stack_reply(difference).is_some_and(is_data);
    when(has_data && offers(context, steps).any(is_inside), Verdict::Stop)
}
