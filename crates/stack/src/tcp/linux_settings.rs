//! The settings of TCP that have a name in Linux (`net.ipv4.*` and attributes of routes), with the values that the stack accepts.
//!
//! A table maps each name to fields of a structure; the table here maps names to fields of [`Config`]. A value is text, as in Linux: one
//! number, several numbers, or a name. If the stack has only one behaviour where Linux has several, the range of the setting
//! contains only the values that mean this behaviour.

use super::config::Config;
use super::congestion::CongestionControl;
use super::plpmtud::PathProbing;
use crate::limits::{TCP_BUFFER_BYTES_MAX, TCP_INITIAL_WINDOW_MAX, TCP_SOCKET_BYTES_FREE};
use crate::time::Duration;
use std::fmt;
use std::ops::RangeInclusive;

/// Largest number of values of one setting.
const VALUES_MAX: usize = 3;
pub(crate) type Values = [u64; VALUES_MAX];

/// A setting: its name in Linux, the range of each value, and how it is read from and stored in a `T`. Unused values are 0.
pub(crate) struct Setting<T> {
    pub(crate) name: &'static str,
    pub(crate) ranges: &'static [RangeInclusive<u64>],
    pub(crate) get: fn(&T) -> Values,
    pub(crate) set: fn(&mut T, Values),
}

impl<T> Setting<T> {
    /// Returns the values as text, as [`Setting::write`] accepts it.
    pub(crate) fn read(&self, from: &T) -> String {
        let values = (self.get)(from);
        let texts: Vec<_> = values[..self.ranges.len()].iter().map(u64::to_string).collect();
        texts.join(" ")
    }

    /// Stores the values of a text with one number, or with several numbers that are separated by white space.
    ///
    /// Returns an error, and changes nothing, if the text is not accepted.
    pub(crate) fn write(&self, into: &mut T, text: &str) -> Result<(), SettingError> {
        (self.set)(into, self.parse(text)?);
        Ok(())
    }

    fn parse(&self, text: &str) -> Result<Values, SettingError> {
        let syntax = SettingError::Syntax { name: self.name, values: self.ranges.len() };
        let mut values = [0; VALUES_MAX];
        let mut texts = text.split_ascii_whitespace();
        for (value, range) in values.iter_mut().zip(self.ranges) {
            *value = texts.next().and_then(|text| text.parse().ok()).ok_or_else(|| syntax.clone())?;
            if !range.contains(value) {
                return Err(SettingError::Range { name: self.name, value: *value, range: range.clone() });
            }
        }
        if texts.next().is_some() {
            return Err(syntax);
        }
        // Three values are always sizes of a buffer: the least, the default and the largest size.
        let [least, default, most] = values;
        match self.ranges.len() {
            VALUES_MAX if least > default => Err(self.unordered(("least", least), ("default", default))),
            VALUES_MAX if default > most => Err(self.unordered(("default", default), ("largest", most))),
            _ => Ok(values),
        }
    }

    fn unordered(&self, larger: (&'static str, u64), smaller: (&'static str, u64)) -> SettingError {
        SettingError::Order { name: self.name, larger, smaller }
    }
}

/// Returns the setting with this name, or an error that lists the names of `table` and `others`.
pub(crate) fn find<'a, T>(
    table: &'a [Setting<T>],
    name: &str,
    others: impl IntoIterator<Item = &'static str>,
) -> Result<&'a Setting<T>, SettingError> {
    let unknown = || {
        let names = others.into_iter().chain(table.iter().map(|setting| setting.name)).collect();
        SettingError::Unknown { name: name.to_owned(), names }
    };
    table.iter().find(|setting| setting.name == name).ok_or_else(unknown)
}

const BUFFER_BYTES_MAX: u64 = TCP_BUFFER_BYTES_MAX as u64;
/// Bytes that each buffer of a connection can hold even if buffer memory is short.
const BYTES_FREE: u64 = TCP_SOCKET_BYTES_FREE as u64;
/// `tcp_fin_timeout` can have this value at most.
const FIN_TIMEOUT_SECS_MAX: u64 = u16::MAX as u64;
/// `initcwnd` can have this value at most.
const INITIAL_WINDOW_MAX: u64 = TCP_INITIAL_WINDOW_MAX as u64;

/// `rto_min` can have this value at most.
const RTO_MIN_MS_MAX: u64 = u16::MAX as u64;

pub(crate) const fn one(value: u64) -> Values {
    [value, 0, 0]
}

pub(crate) fn small(value: u64) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

static SETTINGS: [Setting<Config>; 20] = [
    Setting {
        name: "initcwnd",
        ranges: &[1..=INITIAL_WINDOW_MAX],
        get: |config| one(config.initial_window_segments.into()),
        set: |config, [segments, ..]| config.initial_window_segments = small(segments),
    },
    Setting {
        // The attribute of routes: 1 acknowledges each segment with data at once.
        name: "quickack",
        ranges: &[0..=1],
        get: |config| one(config.quick_acks.into()),
        set: |config, [on, ..]| config.quick_acks = on == 1,
    },
    Setting {
        // The attribute of routes, in milliseconds.
        name: "rto_min",
        ranges: &[1..=RTO_MIN_MS_MAX],
        get: |config| one(config.rto_min.as_millis()),
        set: |config, [ms, ..]| config.rto_min = Duration::from_millis(ms),
    },
    Setting {
        // 0 disables tail-loss probes, and each other value enables them.
        name: "tcp_early_retrans",
        ranges: &[0..=4],
        get: |config| one(if config.tail_loss_probes { 3 } else { 0 }),
        set: |config, [mode, ..]| config.tail_loss_probes = mode > 0,
    },
    Setting {
        // 0 does not use ECN, 1 offers and accepts ECN, 2 only accepts ECN. 3 offers and accepts accurate ECN, 4 accepts it and offers
        // classic ECN, 5 only accepts it.
        name: "tcp_ecn",
        ranges: &[0..=5],
        get: |config| {
            one(match (config.ecn, config.accepts_ecn) {
                (true, _) if config.accepts_accurate_ecn => {
                    if config.offers_accurate_ecn {
                        3
                    } else {
                        4
                    }
                }
                (true, _) => 1,
                (false, true) => {
                    if config.accepts_accurate_ecn {
                        5
                    } else {
                        2
                    }
                }
                (false, false) => 0,
            })
        },
        set: |config, [mode, ..]| {
            (config.ecn, config.accepts_ecn) = (matches!(mode, 1 | 3 | 4), mode > 0);
            (config.offers_accurate_ecn, config.accepts_accurate_ecn) = (mode == 3, mode >= 3);
        },
    },
    Setting {
        // How long FIN-WAIT-2 lasts after the application has closed, in seconds.
        name: "tcp_fin_timeout",
        ranges: &[1..=FIN_TIMEOUT_SECS_MAX],
        get: |config| one(config.fin_wait_secs.into()),
        set: |config, [secs, ..]| config.fin_wait_secs = u16::try_from(secs).unwrap_or(u16::MAX),
    },
    Setting {
        name: "tcp_min_rtt_wlen",
        ranges: &[0..=86_400],
        get: |config| one(config.min_rtt_life.as_millis() / 1_000),
        set: |config, [secs, ..]| config.min_rtt_life = Duration::from_secs(secs),
    },
    Setting {
        name: "tcp_mtu_probing",
        ranges: &[0..=2],
        get: |config| {
            one(match config.path_probing {
                PathProbing::Off => 0,
                PathProbing::BlackHole => 1,
                PathProbing::Always => 2,
            })
        },
        set: |config, [mode, ..]| {
            config.path_probing = match mode {
                0 => PathProbing::Off,
                1 => PathProbing::BlackHole,
                _ => PathProbing::Always,
            };
        },
    },
    Setting {
        name: "tcp_notsent_lowat",
        ranges: &[1..=u32::MAX as u64],
        get: |config| one(config.unsent_bytes_max.into()),
        set: |config, [bytes, ..]| config.unsent_bytes_max = u32::try_from(bytes).unwrap_or(u32::MAX),
    },
    Setting {
        // 1 detects losses by RACK with a reordering window that adapts.
        name: "tcp_recovery",
        ranges: &[1..=1],
        get: |_| one(1),
        set: |_, _| {},
    },
    Setting {
        name: "tcp_reordering",
        ranges: &[1..=127],
        get: |config| one(config.reordering_segments.into()),
        set: |config, [segments, ..]| config.reordering_segments = small(segments),
    },
    Setting {
        name: "tcp_retries2",
        ranges: &[1..=255],
        get: |config| one(config.retries_max.into()),
        set: |config, [retries, ..]| config.retries_max = small(retries),
    },
    Setting {
        name: "tcp_rmem",
        ranges: &[BYTES_FREE..=BYTES_FREE, 1..=BUFFER_BYTES_MAX, 1..=BUFFER_BYTES_MAX],
        get: |config| [BYTES_FREE, config.receive_buffer_bytes as u64, config.receive_buffer_bytes_max as u64],
        set: |config, [_, initial, most]| {
            (config.receive_buffer_bytes, config.receive_buffer_bytes_max) = (size(initial), size(most));
        },
    },
    Setting {
        name: "tcp_sack",
        ranges: &[0..=1],
        get: |config| one(config.sack.into()),
        set: |config, [on, ..]| config.sack = on == 1,
    },
    Setting {
        name: "tcp_slow_start_after_idle",
        ranges: &[0..=1],
        get: |config| one(config.slow_start_after_idle.into()),
        set: |config, [on, ..]| config.slow_start_after_idle = on == 1,
    },
    Setting {
        name: "tcp_syn_retries",
        ranges: &[1..=127],
        get: |config| one(config.syn_retries_max.into()),
        set: |config, [retries, ..]| config.syn_retries_max = small(retries),
    },
    Setting {
        name: "tcp_synack_retries",
        ranges: &[0..=255],
        get: |config| one(config.syn_ack_retries_max.into()),
        set: |config, [retries, ..]| config.syn_ack_retries_max = small(retries),
    },
    Setting {
        name: "tcp_timestamps",
        ranges: &[0..=1],
        get: |config| one(config.timestamps.into()),
        set: |config, [on, ..]| config.timestamps = on == 1,
    },
    Setting {
        name: "tcp_window_scaling",
        ranges: &[0..=1],
        get: |config| one(config.window_scaling.into()),
        set: |config, [on, ..]| config.window_scaling = on == 1,
    },
    Setting {
        name: "tcp_wmem",
        ranges: &[BYTES_FREE..=BYTES_FREE, 1..=BUFFER_BYTES_MAX, 1..=BUFFER_BYTES_MAX],
        get: |config| [BYTES_FREE, config.send_buffer_bytes as u64, config.send_buffer_bytes_max as u64],
        set: |config, [_, initial, most]| {
            (config.send_buffer_bytes, config.send_buffer_bytes_max) = (size(initial), size(most));
        },
    },
];

/// A setting of a [`Config`] with a value.
#[derive(Clone, Copy)]
pub(crate) struct ChosenSetting {
    setting: &'static Setting<Config>,
    values: Values,
}

impl ChosenSetting {
    /// Returns the setting with this name in Linux and this value. `others` are names that the caller accepts, too.
    pub(crate) fn new(
        name: &str,
        text: &str,
        others: impl IntoIterator<Item = &'static str>,
    ) -> Result<Self, SettingError> {
        let setting = find(&SETTINGS, name, others)?;
        Ok(Self { setting, values: setting.parse(text)? })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.setting.name
    }

    /// Changes the setting, unless its value in `config` differs from that in `defaults`, because the application has chosen it.
    pub(crate) fn apply(&self, config: &mut Config, defaults: &Config) {
        if (self.setting.get)(config) == (self.setting.get)(defaults) {
            (self.setting.set)(config, self.values);
        }
    }
}

impl PartialEq for ChosenSetting {
    fn eq(&self, other: &Self) -> bool {
        (self.name(), self.values) == (other.name(), other.values)
    }
}

impl Eq for ChosenSetting {}

impl fmt::Debug for ChosenSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} = {:?}", self.name(), &self.values[..self.setting.ranges.len()])
    }
}

/// The setting whose value is the name of an algorithm.
const CONGESTION_CONTROL: &str = "tcp_congestion_control";

/// Why a setting cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingError {
    /// No setting has this name.
    Unknown {
        /// The unknown name.
        name: String,
        /// The names of all settings.
        names: Vec<&'static str>,
    },
    /// The value consists of another count of numbers than the setting has, or is not made of numbers.
    Syntax {
        /// Name of the setting.
        name: &'static str,
        /// Number of values that the setting has.
        values: usize,
    },
    /// A value is outside of its range.
    Range {
        /// Name of the setting.
        name: &'static str,
        /// The value that was refused.
        value: u64,
        /// The values that are accepted.
        range: RangeInclusive<u64>,
    },
    /// Of the three sizes of a buffer, one is larger than one that follows it.
    Order {
        /// Name of the setting.
        name: &'static str,
        /// The size that is too large: which of the three, and its value.
        larger: (&'static str, u64),
        /// The size that follows it.
        smaller: (&'static str, u64),
    },
    /// The stack has no congestion control algorithm with this name.
    Algorithm(String),
}

impl fmt::Display for SettingError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, names } => {
                write!(out, "{name:?} is not a setting; the settings are: {}", list(names.iter().copied()))
            }
            Self::Syntax { name, values: 1 } => write!(out, "{name}: the value must be one number"),
            Self::Syntax { name, values } => {
                write!(out, "{name}: the value must be {values} numbers, separated by spaces")
            }
            Self::Range { name, value, range } if range.start() == range.end() => {
                write!(out, "{name}: {value} is not supported; the only supported value is {}", range.start())
            }
            Self::Range { name, value, range } => {
                write!(out, "{name}: {value} is out of range; write {} to {}", range.start(), range.end())
            }
            Self::Order { name, larger: (large, bytes), smaller: (small, limit) } => write!(
                out,
                "{name}: the {large} size {bytes} is larger than the {small} size {limit}; write the least, the default and the \
                 largest size of the buffer in this order"
            ),
            Self::Algorithm(name) => {
                let names = CongestionControl::ALL.map(CongestionControl::name);
                write!(out, "{name:?} is not a congestion control algorithm; the algorithms are: {}", list(names))
            }
        }
    }
}

impl std::error::Error for SettingError {}

fn list(names: impl IntoIterator<Item = &'static str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns the names of the settings of a [`Config`].
pub(crate) fn config_setting_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(CONGESTION_CONTROL).chain(SETTINGS.iter().map(|setting| setting.name))
}

/// Returns the algorithm with this name.
pub(crate) fn congestion(name: &str) -> Result<CongestionControl, SettingError> {
    let name = name.trim();
    CongestionControl::by_name(name).ok_or_else(|| SettingError::Algorithm(name.to_owned()))
}

impl Config {
    /// Returns the value of the setting with this name in Linux, as the text that [`Config::set_named`] accepts.
    ///
    /// Returns an error if no setting has this name.
    pub fn named(&self, name: &str) -> Result<String, SettingError> {
        if name == CONGESTION_CONTROL {
            return Ok(self.congestion.name().to_owned());
        }
        Ok(find(&SETTINGS, name, [CONGESTION_CONTROL])?.read(self))
    }

    /// Changes the setting with this name in Linux. The text `value` has one number, several numbers that are separated by white
    /// space, or the name of an algorithm.
    ///
    /// Returns an error, and changes nothing, if no setting has this name or if the value is not accepted.
    pub fn set_named(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        if name == CONGESTION_CONTROL {
            self.congestion = congestion(value)?;
            return Ok(());
        }
        find(&SETTINGS, name, [CONGESTION_CONTROL])?.write(self, value)
    }
}
