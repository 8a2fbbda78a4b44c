//! Converts the counters of rings, waits and links to maps from names to values, for reports.

use siga_ring::clock::Rate;
use siga_ring::counters::{ConsumerCounters, ProducerCounters};
use siga_ring::wait::WaitCounters;
use std::collections::BTreeMap;

/// A map from the names of counters to their values.
pub(crate) type Counters = BTreeMap<String, u64>;

pub(crate) fn named<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> Counters {
    counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns how long a waiter has waited in each way, in nanoseconds by name.
pub(crate) fn wait_times(counters: &WaitCounters, rate: &Rate) -> Counters {
    named([
        ("waiting", rate.ns(counters.wait_ticks)),
        ("yielding", rate.ns(counters.yield_ticks)),
        ("given_away", rate.ns(counters.given_away_ticks)),
        ("asleep", rate.ns(counters.sleep_ticks)),
        ("colocated", rate.ns(counters.colocated_ticks)),
    ])
}

/// Adds each counter of `more` to the counter with the same name in `all`.
pub(crate) fn add(all: &mut Counters, more: &Counters) {
    for (name, value) in more {
        *all.entry(name.clone()).or_default() += value;
    }
}

pub(crate) fn producer_counters(counters: &ProducerCounters) -> Counters {
    named([
        ("frames_sent", counters.frames),
        ("bytes_sent", counters.bytes),
        ("buffers_sent", counters.buffers),
        ("target_full", counters.target_full),
        ("pending", counters.pending),
        ("doorbells_sent", counters.doorbells.sent),
        ("doorbells_suppressed", counters.doorbells.suppressed),
        ("violations", counters.violations),
    ])
}

pub(crate) fn consumer_counters(counters: &ConsumerCounters) -> Counters {
    named([
        ("frames_received", counters.frames),
        ("bytes_received", counters.bytes),
        ("buffers_received", counters.buffers),
        ("doorbells_sent", counters.doorbells.sent),
        ("doorbells_suppressed", counters.doorbells.suppressed),
        ("violations", counters.violations),
        ("copied_bytes", counters.copied_bytes),
        ("copy_ticks", counters.copy_ticks.0),
    ])
}
