//! Modelled links: how frames are delayed, lost and changed on their way in one direction.
//!
//! A link is written as one text, such as `rate=1gbit,latency=500us,loss=0.1%`. `Link::default()` changes nothing.

use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub mod table;

/// Number of parts of a [`Share`] that make up the whole.
pub const SHARE_PARTS: u32 = 1_000_000_000;
/// Maximum rate of a link in bits per second: 1 Tbit/s.
const RATE_MAX: u64 = 1_000_000_000_000;
/// Maximum time of a link in nanoseconds: one minute.
const TIME_NS_MAX: u64 = 60_000_000_000;
/// Maximum number of frames that wait for the link.
const QUEUE_FRAMES_MAX: u64 = 1_000_000;
/// Maximum number of bytes that wait for the link, and of bytes in a block.
const QUEUE_BYTES_MAX: u64 = 64 << 20;

/// Maximum length of the text of a link in files and messages.
const TEXT_BYTES_MAX: usize = 4_096;

/// A probability, in billionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// Returns the probability in parts of [`SHARE_PARTS`].
    pub fn parts(self) -> u32 {
        self.0
    }

    /// Returns true if the probability is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = f64::from(self.0) * 100.0 / f64::from(SHARE_PARTS);
        write!(f, "{percent}%")
    }
}

/// How the latency of a link varies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Every value from `latency - jitter` to `latency + jitter` is equally likely.
    Uniform,
    /// Normal distribution with the standard deviation `jitter`. Values below zero become zero.
    Normal,
    /// Equally likely values in ascending order, and all values between them, in units of `jitter` / [`table::UNIT`]. They are added to
    /// the latency. Results below zero become zero.
    Table(Arc<[i16]>),
}

/// How a link loses frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Each frame is lost with this probability.
    Random(Share),
    /// The model of Gilbert and Elliott: the link is good or bad, and can change its state before each frame.
    Gilbert {
        /// Probability that a good link becomes bad.
        to_bad: Share,
        /// Probability that a bad link becomes good.
        to_good: Share,
        /// Probability that a bad link loses a frame.
        in_bad: Share,
        /// Probability that a good link loses a frame.
        in_good: Share,
    },
}

/// What limits the frames that wait for the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Maximum number of frames.
    Frames(u64),
    /// Maximum number of bytes.
    Bytes(u64),
}

impl Default for Queue {
    fn default() -> Self {
        Self::Frames(1_000)
    }
}

/// A link that sends frames in blocks: it collects frames until a block is full, or until the first frame has waited long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Size of a block in bytes.
    pub bytes: u64,
    /// Longest time in nanoseconds for which a frame waits until its block is full.
    pub collect_ns: u64,
}

/// One direction of a modelled link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// Rate in bits per second. `None`: frames take no time on the wire.
    pub rate: Option<u64>,
    /// Time in nanoseconds from the last bit that is sent to the last bit that arrives.
    pub latency_ns: u64,
    /// How far the latency varies, in nanoseconds; the distribution says how. Frames still keep their order.
    pub jitter: Option<(u64, Distribution)>,
    /// Frames that are lost.
    pub loss: Option<Loss>,
    /// Frames that arrive without the latency, and thus before earlier frames.
    pub reorder: Share,
    /// Frames that arrive twice.
    pub duplicate: Share,
    /// Frames in which one bit changes.
    pub corrupt: Share,
    /// What limits the frames that wait until the link is free.
    pub queue: Queue,
    /// Blocks, if the link sends frames in blocks.
    pub block: Option<Block>,
    /// The number from which all random decisions follow. The same seed and the same arrivals give the same departures.
    pub seed: u64,
}

impl Link {
    /// Returns a link that has only a rate in bits per second, and a latency in nanoseconds.
    pub const fn channel(rate: u64, latency_ns: u64) -> Self {
        let nothing = Share(0);
        Self {
            rate: Some(rate),
            latency_ns,
            jitter: None,
            loss: None,
            reorder: nothing,
            duplicate: nothing,
            corrupt: nothing,
            queue: Queue::Frames(1_000),
            block: None,
            seed: 0,
        }
    }

    /// Returns true if the link has no settings other than a rate and a latency.
    pub fn is_channel(&self) -> bool {
        *self == Self { rate: self.rate, latency_ns: self.latency_ns, ..Self::default() }
    }

    /// Returns the nanoseconds for which a number of bytes keeps the wire busy.
    pub fn time_on_wire_ns(&self, bytes: u64) -> u64 {
        let bits_ns = u128::from(bytes) * 8 * 1_000_000_000;
        self.rate.map_or(0, |rate| u64::try_from(bits_ns.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX))
    }

    /// Returns true if frames pass as if there were no link.
    pub fn is_transparent(&self) -> bool {
        *self == Self { queue: self.queue, seed: self.seed, ..Self::default() }
    }
}

fn bad(key: &str, value: &str, hint: &str) -> Error {
    Error::usage(format!("`{key}={value}` is not valid for a link")).hint(hint.to_owned())
}

/// Reads a decimal number such as `1.5`, multiplied by a power of ten, without rounding of the digits that fit.
fn scaled(text: &str, factor: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !are_digits(whole) || !are_digits(part) || part.len() > 9 || text.ends_with('.') {
        return None;
    }
    let mut value = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let mut place = factor;
    for digit in part.bytes() {
        if !place.is_multiple_of(10) && digit != b'0' {
            return None;
        }
        place /= 10;
        value = value.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(value)
}

/// Splits a number from its unit.
fn with_unit<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(&'a str, u64)> {
    let at = text.find(|letter: char| letter.is_ascii_alphabetic() || letter == '%')?;
    let (number, unit) = text.split_at(at);
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| (number, *factor))
}

fn quantity(text: &str, units: &[(&str, u64)], most: u64) -> Option<u64> {
    let (number, factor) = with_unit(text, units)?;
    scaled(number, factor).filter(|value| *value <= most)
}

const RATES: [(&str, u64); 4] = [("bit", 1), ("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
const TIMES: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
const SIZES: [(&str, u64); 3] = [("b", 1), ("kb", 1_024), ("mb", 1_048_576)];

fn rate(text: &str) -> Option<u64> {
    quantity(text, &RATES, RATE_MAX).filter(|rate| *rate > 0)
}

fn time(text: &str) -> Option<u64> {
    quantity(text, &TIMES, TIME_NS_MAX)
}

fn share(text: &str) -> Option<Share> {
    let parts = quantity(text, &[("%", u64::from(SHARE_PARTS) / 100)], SHARE_PARTS.into())?;
    u32::try_from(parts).ok().map(Share)
}

fn jitter(text: &str) -> Option<(u64, Distribution)> {
    let (value, distribution) = match text.split_once(':') {
        None | Some((_, "uniform")) => (text.split(':').next()?, Distribution::Uniform),
        Some((value, "normal")) => (value, Distribution::Normal),
        Some((value, table)) if table.starts_with(table::NAME) => (value, Distribution::Table(table::parse(table)?)),
        Some(_) => return None,
    };
    Some((time(value)?, distribution))
}

fn loss(text: &str) -> Option<Loss> {
    let Some(states) = text.strip_prefix("gilbert:") else { return share(text).map(Loss::Random) };
    let mut shares = states.split(':').map(share);
    let (to_bad, to_good) = (shares.next()??, shares.next()??);
    let in_bad = shares.next().unwrap_or(Some(Share(SHARE_PARTS)))?;
    let in_good = shares.next().unwrap_or(Some(Share(0)))?;
    shares.next().is_none().then_some(Loss::Gilbert { to_bad, to_good, in_bad, in_good })
}

fn queue(text: &str) -> Option<Queue> {
    if let Ok(frames) = text.parse::<u64>() {
        return (1..=QUEUE_FRAMES_MAX).contains(&frames).then_some(Queue::Frames(frames));
    }
    quantity(text, &SIZES, QUEUE_BYTES_MAX).filter(|bytes| *bytes > 0).map(Queue::Bytes)
}

fn block(text: &str) -> Option<Block> {
    let (bytes, collect) = text.split_once(':')?;
    let bytes = quantity(bytes, &SIZES, QUEUE_BYTES_MAX).filter(|bytes| *bytes > 0)?;
    Some(Block { bytes, collect_ns: time(collect)? })
}

const TIME_HINT: &str = "write a time from 0 to 60 seconds with its unit: ns, us, ms or s, such as 500us";
const SHARE_HINT: &str = "write a percentage from 0% to 100%, such as 0.1%";

impl Link {
    /// Changes one setting.
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let no = |hint: &'static str| move || bad(key, value, hint);
        match key {
            "rate" => {
                let hint = "write a rate from 1bit to 1000gbit with its unit: bit, kbit, mbit or gbit (per second)";
                self.rate = Some(rate(value).ok_or_else(no(hint))?);
            }
            "latency" => self.latency_ns = time(value).ok_or_else(no(TIME_HINT))?,
            "jitter" => {
                let hint = "write a time, and optionally a distribution: 100us, 100us:uniform, 100us:normal, or 100us:FILE, where FILE is a table of tc's netem with a / in its name";
                self.jitter = Some(jitter(value).ok_or_else(no(hint))?);
            }
            "loss" => {
                let hint =
                    "write a percentage, such as 0.1%, or gilbert:TO_BAD%:TO_GOOD%[:LOSS_IN_BAD%[:LOSS_IN_GOOD%]]";
                self.loss = Some(loss(value).ok_or_else(no(hint))?);
            }
            "reorder" => self.reorder = share(value).ok_or_else(no(SHARE_HINT))?,
            "duplicate" => self.duplicate = share(value).ok_or_else(no(SHARE_HINT))?,
            "corrupt" => self.corrupt = share(value).ok_or_else(no(SHARE_HINT))?,
            "queue" => {
                let hint =
                    "write a number of frames from 1 to 1000000, or a size up to 64mb with its unit: b, kb or mb";
                self.queue = queue(value).ok_or_else(no(hint))?;
            }
            "block" => {
                let hint = "write SIZE:TIME, such as 32kb:1ms; the size is up to 64mb";
                self.block = Some(block(value).ok_or_else(no(hint))?);
            }
            "seed" => self.seed = value.parse().map_err(|_| bad(key, value, "write a whole number"))?,
            _ => {
                return Err(Error::usage(format!("a link has no setting `{key}`"))
                    .hint("settings: rate, latency, jitter, loss, reorder, duplicate, corrupt, queue, block, seed"));
            }
        }
        Ok(())
    }

    /// Changes the settings that a text names.
    fn change(&mut self, text: &str) -> Result<()> {
        let mut seen = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                Error::usage(format!("`{part}` is not a setting of a link"))
                    .hint("write settings as KEY=VALUE, such as rate=1gbit,latency=500us,loss=0.1%")
            })?;
            if seen.contains(&key) {
                return Err(Error::usage(format!("a link has only one setting `{key}`")));
            }
            seen.push(key);
            self.set(key, value)?;
        }
        Ok(())
    }
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut link = Self::default();
        link.change(text)?;
        Ok(link)
    }
}

/// A change of a link: settings such as `loss=1%`, or `off`. Settings that it does not name stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkChange(String);

impl LinkChange {
    /// The text that removes a link.
    const OFF: &str = "off";

    /// Returns the link after the change; `None` if it has been removed.
    ///
    /// # Errors
    /// The settings do not fit together.
    pub fn apply(&self, before: Option<&Link>) -> Result<Option<Link>> {
        if self.0 == Self::OFF {
            return Ok(None);
        }
        let mut link = before.cloned().unwrap_or_default();
        link.change(&self.0)?;
        Ok(Some(link))
    }
}

impl FromStr for LinkChange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let change = Self(text.to_owned());
        change.apply(None)?;
        Ok(change)
    }
}

impl fmt::Display for LinkChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes a number with the largest unit that divides it.
fn write_unit(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let unit = units.iter().rev().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    let (name, factor) = unit.or(units.first()).copied().unwrap_or(("", 1));
    write!(f, "{}{name}", value / factor)
}

/// Writes a value by [`write_unit`].
struct Unit<'a>(u64, &'a [(&'a str, u64)]);

impl fmt::Display for Unit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_unit(f, self.0, self.1)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(share) => share.fmt(f),
            Self::Gilbert { to_bad, to_good, in_bad, in_good } => {
                write!(f, "gilbert:{to_bad}:{to_good}:{in_bad}:{in_good}")
            }
        }
    }
}

impl fmt::Display for Link {
    /// Writes the settings that differ from those of a link that changes nothing. [`Link::from_str`] reads the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(table::text))
    }
}

impl Link {
    /// Returns a short text for people, without the values of a table of jitter.
    pub fn label(&self) -> String {
        self.text(|_| ":table".to_owned())
    }

    fn text(&self, table: impl Fn(&[i16]) -> String) -> String {
        let mut settings = Vec::new();
        settings.extend(self.rate.map(|rate| format!("rate={}", Unit(rate, &RATES))));
        let mut add = |is_set: bool, text: String| settings.extend(is_set.then_some(text));
        add(self.latency_ns > 0, format!("latency={}", Unit(self.latency_ns, &TIMES)));
        if let Some((jitter, distribution)) = &self.jitter {
            let name = match distribution {
                Distribution::Uniform => String::new(),
                Distribution::Normal => ":normal".to_owned(),
                Distribution::Table(values) => table(values),
            };
            add(true, format!("jitter={}{name}", Unit(*jitter, &TIMES)));
        }
        if let Some(loss) = self.loss {
            add(true, format!("loss={loss}"));
        }
        add(!self.reorder.is_zero(), format!("reorder={}", self.reorder));
        add(!self.duplicate.is_zero(), format!("duplicate={}", self.duplicate));
        add(!self.corrupt.is_zero(), format!("corrupt={}", self.corrupt));
        add(
            self.queue != Queue::default(),
            match self.queue {
                Queue::Frames(frames) => format!("queue={frames}"),
                Queue::Bytes(bytes) => format!("queue={}", Unit(bytes, &SIZES)),
            },
        );
        if let Some(block) = self.block {
            add(true, format!("block={}:{}", Unit(block.bytes, &SIZES), Unit(block.collect_ns, &TIMES)));
        }
        add(self.seed != 0 || self.is_transparent(), format!("seed={}", self.seed));
        settings.join(",")
    }
}

macro_rules! serde_by_text {
    ($($kind:ident)*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                if text.len() > TEXT_BYTES_MAX {
                    return Err(serde::de::Error::custom(format!("the settings of a link have more than {TEXT_BYTES_MAX} bytes")));
                }
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

serde_by_text!(Link LinkChange);

#[cfg(test)]
mod tests {
    use super::*;

    fn link(text: &str) -> Link {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_setting_is_read_and_written() {
        for text in [
            "rate=1gbit,latency=500us,loss=0.1%",
            "rate=1500kbit,jitter=100us,seed=7",
            "latency=1s,jitter=20ms:normal,reorder=1%,duplicate=0.5%,corrupt=100%",
            "loss=gilbert:1%:20%:100%:0%,queue=64kb",
            "latency=1ns,queue=10,block=32kb:1ms",
            "jitter=20ms:table:-8192/0/16384",
            "seed=0",
        ] {
            let read = link(text);
            assert_eq!(read.to_string(), text);
            assert_eq!(link(&read.to_string()), read);
        }
        let read = link("rate=1.5mbit, latency=0.25ms, loss=gilbert:1%:20%, jitter=1us:uniform");
        assert_eq!((read.rate, read.latency_ns), (Some(1_500_000), 250_000));
        assert_eq!(read.jitter, Some((1_000, Distribution::Uniform)));
        let full = Share(SHARE_PARTS);
        let (to_bad, to_good) = (Share(10_000_000), Share(200_000_000));
        assert_eq!(read.loss, Some(Loss::Gilbert { to_bad, to_good, in_bad: full, in_good: Share(0) }));
        assert!(link("seed=4,queue=5").is_transparent() && !read.is_transparent());
    }

    #[test]
    fn other_texts_are_refused_with_a_hint() {
        for text in [
            "",
            "rate",
            "rate=0bit",
            "rate=1",
            "rate=1GB",
            "rate=1001gbit",
            "rate=-1gbit",
            "rate=1gbit,rate=2gbit",
            "latency=61s",
            "latency=1",
            "latency=0.5ns",
            "latency=1.us",
            "latency=99999999999999999999s",
            "jitter=1us:pareto",
            "jitter=1us:table:",
            "jitter=1us:table:5",
            "jitter=1us:table:2/1",
            "jitter=1us:table:1/99999",
            "jitter=1us:./no/such/file",
            "loss=101%",
            "loss=1",
            "loss=gilbert:1%",
            "loss=gilbert:1%:2%:3%:4%:5%",
            "reorder=x%",
            "queue=0",
            "queue=65mb",
            "block=1kb",
            "block=0b:1ms",
            "seed=x",
            "colour=red",
        ] {
            assert!(text.parse::<Link>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_change_keeps_the_settings_that_it_does_not_name() {
        let change = |text: &str| text.parse::<LinkChange>().unwrap();
        let before = link("rate=1gbit,loss=1%");
        assert_eq!(
            change("loss=2%,latency=1ms").apply(Some(&before)).unwrap(),
            Some(link("rate=1gbit,loss=2%,latency=1ms"))
        );
        assert_eq!(change("loss=2%").apply(None).unwrap(), Some(link("loss=2%")));
        assert_eq!(change("off").apply(Some(&before)).unwrap(), None);
        assert!("off,loss=1%".parse::<LinkChange>().is_err());
    }

    #[test]
    fn a_link_is_one_text_in_files() {
        let text = r#""rate=1gbit,latency=1ms""#;
        let read: Link = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert!(serde_json::from_str::<Link>(r#""rate=fast""#).is_err());
    }
}
