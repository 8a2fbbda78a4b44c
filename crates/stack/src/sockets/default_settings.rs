//! The settings of a stack's TCP that its connections begin with, by their names in Linux.

use super::FastOpenSettings;
use crate::tcp::{Config, Keepalive, Setting, SettingError, config_setting_names, find, one, small};
use crate::time::Duration;

/// What the sockets of a stack use unless the application chooses something else.
#[derive(Debug, Clone, Copy)]
pub struct TcpDefaults {
    /// Settings of connections.
    pub config: Config,
    /// Times of keepalive probes, for applications that only switch the probes on.
    pub keepalive: Keepalive,
    /// How sockets may use Fast Open.
    pub fast_open: FastOpenSettings,
}

impl Default for TcpDefaults {
    fn default() -> Self {
        Self { config: Config::LINUX, keepalive: Keepalive::default(), fast_open: FastOpenSettings::default() }
    }
}

/// The bits of `tcp_fastopen`. Other bits have no meaning.
const CLIENT: u64 = 0x1;
const SERVER: u64 = 0x2;
const CLIENT_WITHOUT_COOKIE: u64 = 0x4;
const SERVER_WITHOUT_COOKIE: u64 = 0x200;
const ALL_LISTENERS: u64 = 0x400;
const BITS: u64 = CLIENT | SERVER | CLIENT_WITHOUT_COOKIE | SERVER_WITHOUT_COOKIE | ALL_LISTENERS;

/// Largest time in seconds that a keepalive setting can have, as for sockets of Linux.
const KEEPALIVE_SECS_MAX: u64 = 32_767;
const DAY_SECS: u64 = 86_400;

fn secs(time: Duration) -> u64 {
    time.as_millis() / 1_000
}

const SETTINGS: [Setting<TcpDefaults>; 5] = [
    Setting {
        name: "tcp_fastopen",
        ranges: &[0..=BITS],
        get: |defaults| {
            let of = defaults.fast_open;
            let bits = [
                (of.client, CLIENT),
                (of.server, SERVER),
                (of.client_without_cookie, CLIENT_WITHOUT_COOKIE),
                (of.server_without_cookie, SERVER_WITHOUT_COOKIE),
                (of.all_listeners, ALL_LISTENERS),
            ];
            one(bits.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum())
        },
        set: |defaults, [bits, ..]| {
            let has = |bit| bits & bit > 0;
            defaults.fast_open = FastOpenSettings {
                client: has(CLIENT),
                server: has(SERVER),
                client_without_cookie: has(CLIENT_WITHOUT_COOKIE),
                server_without_cookie: has(SERVER_WITHOUT_COOKIE),
                all_listeners: has(ALL_LISTENERS),
                ..defaults.fast_open
            };
        },
    },
    Setting {
        name: "tcp_fastopen_blackhole_timeout_sec",
        ranges: &[0..=DAY_SECS],
        get: |defaults| one(secs(defaults.fast_open.black_hole_time)),
        set: |defaults, [time, ..]| defaults.fast_open.black_hole_time = Duration::from_secs(time),
    },
    Setting {
        name: "tcp_keepalive_intvl",
        ranges: &[1..=KEEPALIVE_SECS_MAX],
        get: |defaults| one(secs(defaults.keepalive.interval)),
        set: |defaults, [time, ..]| defaults.keepalive.interval = Duration::from_secs(time),
    },
    Setting {
        name: "tcp_keepalive_probes",
        ranges: &[1..=127],
        get: |defaults| one(defaults.keepalive.probes.into()),
        set: |defaults, [probes, ..]| defaults.keepalive.probes = small(probes),
    },
    Setting {
        name: "tcp_keepalive_time",
        ranges: &[1..=KEEPALIVE_SECS_MAX],
        get: |defaults| one(secs(defaults.keepalive.idle)),
        set: |defaults, [time, ..]| defaults.keepalive.idle = Duration::from_secs(time),
    },
];

impl TcpDefaults {
    /// Returns the names of all settings.
    pub fn setting_names() -> impl Iterator<Item = &'static str> {
        config_setting_names().chain(SETTINGS.iter().map(|setting| setting.name))
    }

    /// Returns the value of the setting with this name in Linux, as the text that [`TcpDefaults::set_named`] accepts.
    ///
    /// Returns an error if no setting has this name.
    pub fn named(&self, name: &str) -> Result<String, SettingError> {
        match find(&SETTINGS, name, config_setting_names()) {
            Ok(setting) => Ok(setting.read(self)),
            Err(unknown) => self.config.named(name).map_err(|_| unknown),
        }
    }

    /// Changes the setting with this name in Linux, such as `tcp_sack`. The text `value` has one number, several numbers that are
    /// separated by white space, or the name of an algorithm.
    ///
    /// Returns an error, and changes nothing, if no setting has this name or if the value is not accepted.
    pub fn set_named(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match find(&SETTINGS, name, config_setting_names()) {
            Ok(setting) => setting.write(self, value),
            Err(unknown) => match self.config.set_named(name, value) {
                Err(SettingError::Unknown { .. }) => Err(unknown),
                outcome => outcome,
            },
        }
    }
}
