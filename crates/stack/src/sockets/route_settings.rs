//! Settings of TCP for the connections to the hosts of a prefix: the attributes of a route in Linux, and each setting of connections that
//! the stack has by its name in Linux. What an application has chosen for its socket has precedence.

use super::settings::PacketClass;
use crate::limits::{TCP_INITIAL_WINDOW_MAX, TCP_MAXSEG_MIN, TCP_ROUTE_SETTINGS_MAX};
use crate::tcp::{
    ChosenSetting, Config, CongestionControl, Setting, SettingError, config_setting_names, congestion, find, one, small,
};
use crate::wire::address::Prefix;
use std::net::IpAddr;
use std::num::NonZeroU8;

/// Settings of the connections to the hosts of a prefix. `None` leaves the setting of the connection unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteSettings {
    /// Initial congestion window in segments (`initcwnd` in Linux), at least 1.
    pub initial_window_segments: Option<u8>,
    /// Largest MSS in bytes that this side offers and uses (`advmss` in Linux), at least [`TCP_MAXSEG_MIN`].
    pub mss_max: Option<u16>,
    /// TTL (IPv4) or hop limit (IPv6) of sent packets (`hoplimit` in Linux).
    pub hop_limit: Option<NonZeroU8>,
    /// Largest receive window that a connection offers first, in segments (`initrwnd` in Linux), at least 1. The window grows as usual.
    pub receive_window_segments: Option<u8>,
    /// Congestion control algorithm (`congctl` in Linux).
    pub congestion: Option<CongestionControl>,
    /// Further settings by their names in Linux, such as `tcp_sack`. Each is in the list once.
    named: Vec<ChosenSetting>,
}

/// The attribute whose value is the name of an algorithm, and its name as a setting of the stack.
const CONGESTION: [&str; 2] = ["congctl", "tcp_congestion_control"];

static SETTINGS: [Setting<RouteSettings>; 4] = [
    Setting {
        name: "advmss",
        ranges: &[TCP_MAXSEG_MIN as u64..=u16::MAX as u64],
        get: |settings| one(settings.mss_max.unwrap_or(0).into()),
        set: |settings, [bytes, ..]| settings.mss_max = u16::try_from(bytes).ok(),
    },
    Setting {
        name: "hoplimit",
        ranges: &[1..=u8::MAX as u64],
        get: |settings| one(settings.hop_limit.map_or(0, NonZeroU8::get).into()),
        set: |settings, [hops, ..]| settings.hop_limit = NonZeroU8::new(small(hops)),
    },
    Setting {
        name: "initcwnd",
        ranges: &[1..=TCP_INITIAL_WINDOW_MAX as u64],
        get: |settings| one(settings.initial_window_segments.unwrap_or(0).into()),
        set: |settings, [segments, ..]| settings.initial_window_segments = Some(small(segments)),
    },
    Setting {
        name: "initrwnd",
        ranges: &[1..=TCP_INITIAL_WINDOW_MAX as u64],
        get: |settings| one(settings.receive_window_segments.unwrap_or(0).into()),
        set: |settings, [segments, ..]| settings.receive_window_segments = Some(small(segments)),
    },
];

impl RouteSettings {
    /// Changes the attribute of a route with this name in Linux, such as `initcwnd`, or the setting of connections with this name, such as
    /// `tcp_sack`.
    ///
    /// Returns an error, and changes nothing, if there is no such attribute or setting, or if the value is not accepted.
    pub fn set_named(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        if CONGESTION.contains(&name) {
            self.congestion = Some(congestion(value)?);
            return Ok(());
        }
        if let Ok(setting) = find(&SETTINGS, name, []) {
            return setting.write(self, value);
        }
        let of_routes = SETTINGS.iter().map(|setting| setting.name);
        // The list of an error has each name once.
        let of_routes = of_routes.filter(|name| config_setting_names().all(|known| known != *name));
        let attributes = CONGESTION.into_iter().chain(of_routes);
        let chosen = ChosenSetting::new(name, value, attributes)?;
        self.named.retain(|known| known.name() != chosen.name());
        self.named.push(chosen);
        Ok(())
    }
}

/// Why settings of a prefix are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteSettingsError {
    /// The initial window is 0.
    InitialWindow,
    /// The MSS is less than [`TCP_MAXSEG_MIN`].
    SegmentSize,
    /// [`TCP_ROUTE_SETTINGS_MAX`] prefixes have settings already.
    Full,
}

/// The prefixes that have settings. The table is short, and is searched only when a connection opens.
#[derive(Debug, Default)]
pub(crate) struct PrefixSettings(Vec<(Prefix, RouteSettings)>);

impl PrefixSettings {
    pub(crate) fn set(&mut self, prefix: Prefix, settings: RouteSettings) -> Result<(), RouteSettingsError> {
        let window = settings.initial_window_segments;
        if window == Some(0) {
            return Err(RouteSettingsError::InitialWindow);
        }
        if settings.mss_max.is_some_and(|bytes| bytes < TCP_MAXSEG_MIN) {
            return Err(RouteSettingsError::SegmentSize);
        }
        let same = |known: &Prefix| known.length() == prefix.length() && known.covers(prefix.address());
        let place = self.0.iter().position(|(known, _)| same(known));
        match (place, settings == RouteSettings::default()) {
            (Some(place), true) => drop(self.0.swap_remove(place)),
            (Some(place), false) => self.0[place].1 = settings,
            (None, true) => {}
            (None, false) if self.0.len() >= TCP_ROUTE_SETTINGS_MAX => return Err(RouteSettingsError::Full),
            (None, false) => self.0.push((prefix, settings)),
        }
        Ok(())
    }

    /// Returns the settings of the longest prefix.
    fn longest(&self, remote: IpAddr) -> Option<&RouteSettings> {
        let covering = self.0.iter().filter(|(prefix, _)| prefix.covers(remote));
        covering.max_by_key(|(prefix, _)| prefix.length()).map(|(_, settings)| settings)
    }

    /// Returns the fields of packets to `remote`. The prefix decides about a hop limit that the application has not chosen.
    pub(crate) fn class(&self, class: PacketClass, remote: IpAddr) -> PacketClass {
        let is_chosen = class.hop_limit != PacketClass::default().hop_limit;
        let of_prefix = self.longest(remote).and_then(|settings| settings.hop_limit).filter(|_| !is_chosen);
        PacketClass { hop_limit: of_prefix.map_or(class.hop_limit, NonZeroU8::get), ..class }
    }

    /// Returns the configuration of a connection to `remote`: `config`, changed by the settings of the longest prefix. The settings that
    /// differ from those in `defaults` were chosen by the application. `mss_max` is the largest MSS of the device.
    pub(crate) fn apply(&self, mut config: Config, defaults: &Config, remote: IpAddr, mss_max: u16) -> Config {
        config.mss = config.mss_max.min(mss_max);
        let Some(settings) = self.longest(remote) else { return config };
        settings.named.iter().for_each(|chosen| chosen.apply(&mut config, defaults));
        let congestion = settings.congestion.filter(|_| config.congestion == defaults.congestion);
        let limit = settings.mss_max.unwrap_or(u16::MAX).min(config.mss_max);
        let mss = limit.min(mss_max);
        if let Some(segments) = settings.receive_window_segments
            && config.receive_buffer_bytes == defaults.receive_buffer_bytes
        {
            config.receive_buffer_bytes =
                config.receive_buffer_bytes.min(usize::from(segments) * usize::from(mss)).max(1);
        }
        Config {
            initial_window_segments: settings.initial_window_segments.unwrap_or(config.initial_window_segments),
            mss_max: limit,
            mss,
            congestion: congestion.unwrap_or(config.congestion),
            ..config
        }
    }
}
