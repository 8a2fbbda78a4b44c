//! Queueing disciplines (qdiscs) that a level can put on the interfaces with which client and server send.
//!
//! Every packet passes the qdisc once in each direction, on every type of path. So each number here applies to one direction: a
//! delay of 10 ms lengthens a round trip by 20 ms.

use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};

/// A queueing discipline: `qdisc = "fq"`, or a table `[qdisc.netem]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Qdisc {
    /// Fair queueing, which also paces TCP (sch_fq).
    Fq,
    /// Emulation of a wide-area network (sch_netem).
    Netem(Netem),
}

/// Settings of netem, for each direction. At least one of delay, loss and rate is not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Netem {
    /// Delay of every packet in microseconds, 0 to 10,000,000.
    pub delay_us: u32,
    /// Each packet's delay differs at random from `delay_us`, by up to this many microseconds. Packets can overtake each other.
    pub jitter_us: u32,
    /// Share of packets that are dropped at random, in percent: 0 to 50.
    pub loss_percent: f64,
    /// Bits of frames sent per second, 1,000 to 1,000,000,000,000; `None`: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bits_per_s: Option<u64>,
    /// Packets that wait at most; further packets are dropped. `None`: 1,000 with a rate, else 100,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
}

impl Qdisc {
    /// Returns the kernel's name of this qdisc. Its module is called `sch_NAME`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fq => "fq",
            Self::Netem(_) => "netem",
        }
    }

    /// Returns an error of kind `Usage` if a number is out of its range or contradicts another.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Fq => Ok(()),
            Self::Netem(netem) => netem.check(),
        }
    }
}

impl Netem {
    const DELAY_US_MAX: u32 = 10_000_000;
    const LOSS_PERCENT_MAX: f64 = 50.0;
    const RATES: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000;
    const QUEUES: std::ops::RangeInclusive<u32> = 1..=1_000_000;

    /// Returns how many packets wait at most. Without a rate, all packets in flight wait, so the default is large: netem drops
    /// none of them. With a rate, the default is the kernel's.
    pub fn queue(self) -> u32 {
        self.queue_packets.unwrap_or(if self.rate_bits_per_s.is_some() { 1_000 } else { 100_000 })
    }

    fn check(self) -> Result<()> {
        let refused = |message: String, hint: &str| Err(Error::usage(message).hint(hint));
        if self.delay_us > Self::DELAY_US_MAX {
            let most = Self::DELAY_US_MAX;
            return refused(
                format!("delay_us = {} is more than the maximum of {most}", self.delay_us),
                "write `delay_us` in microseconds",
            );
        }
        if self.jitter_us > self.delay_us {
            return refused(
                format!("jitter_us = {} is more than delay_us = {}", self.jitter_us, self.delay_us),
                "lower `jitter_us`, or raise `delay_us`",
            );
        }
        if !(0.0..=Self::LOSS_PERCENT_MAX).contains(&self.loss_percent) {
            return refused(
                format!("loss_percent = {} is outside the range 0 to 50", self.loss_percent),
                "write `loss_percent` as the percentage of packets to lose in each direction",
            );
        }
        if let Some(rate) = self.rate_bits_per_s.filter(|rate| !Self::RATES.contains(rate)) {
            return refused(
                format!("rate_bits_per_s = {rate} is outside the range 1000 to 1000000000000"),
                "write the rate in bits per second, or remove `rate_bits_per_s` for no limit",
            );
        }
        if let Some(queue) = self.queue_packets.filter(|queue| !Self::QUEUES.contains(queue)) {
            return refused(
                format!("queue_packets = {queue} is outside the range 1 to 1000000"),
                "without `queue_packets`, siga chooses a queue length that fits the other settings",
            );
        }
        if self.delay_us == 0 && self.loss_percent == 0.0 && self.rate_bits_per_s.is_none() {
            return refused(
                "the qdisc netem needs a delay, a loss or a rate, but has none of them".into(),
                "set `delay_us`, `loss_percent` or `rate_bits_per_s`",
            );
        }
        Ok(())
    }
}
