//! The settings of connections. Connections with equal settings share one copy of them, because the settings are large and few
//! connections differ (decision 025).

use crate::tcp::{Config, Connection, Storage};
use std::sync::Arc;

/// Number of different settings that are remembered for later connections. More are rarely in use, and each of them costs a
/// comparison.
const REMEMBERED_MAX: usize = 8;

/// The settings that connections used last, the latest first.
#[derive(Debug, Default)]
pub(crate) struct SharedConfigs(Vec<Arc<Config>>);

impl SharedConfigs {
    /// Returns settings that equal `config`. If none are remembered, they are a new copy, which is then remembered.
    pub(crate) fn share(&mut self, config: &Config) -> Arc<Config> {
        let known = self.0.iter().position(|known| **known == *config);
        if let Some(at) = known {
            self.0.swap(0, at);
        } else {
            self.0.truncate(REMEMBERED_MAX - 1);
            self.0.insert(0, Arc::new(*config));
        }
        Arc::clone(&self.0[0])
    }

    /// Makes a connection whose settings have changed share them with other connections.
    pub(crate) fn adopt<S: Storage>(&mut self, connection: &mut Connection<S>) {
        let shared = self.share(connection.config());
        connection.share_config(shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_settings_are_stored_once_and_few_are_remembered() {
        let mut shared = SharedConfigs::default();
        let with = |mss| Config { mss, ..Config::LINUX };
        let first = shared.share(&with(1));
        assert!(Arc::ptr_eq(&first, &shared.share(&with(1))));
        for mss in 2..100 {
            assert_eq!(shared.share(&with(mss)).mss, mss);
            assert!(Arc::ptr_eq(&first, &shared.share(&with(1))), "settings in use stay remembered");
        }
        assert_eq!(shared.0.len(), REMEMBERED_MAX);
    }
}
