//! Settings that an application may change while a connection is open.

use super::super::buffer::Storage;
use super::super::config::{Config, ConfigError, Keepalive, check_buffer, check_user_timeout};
use super::super::congestion::CongestionControl;
use super::super::initial::Initial;
use super::super::opening::Base;
use super::super::send_marks::Timing;
use super::{Connection, ConnectionState, Ports};
use crate::ip::mtu_discovery::MtuDiscovery;
use crate::time::{Duration, Instant};
use std::sync::Arc;

impl<S: Storage> Connection<S> {
    /// Returns the settings that the connection uses now.
    pub fn config(&self) -> &Config {
        &self.base.config
    }

    /// Replaces the settings by equal ones, which other connections use, too.
    pub(crate) fn share_config(&mut self, equal: Arc<Config>) {
        debug_assert_eq!(*self.base.config, *equal, "the settings are not equal");
        self.base.config = equal;
    }

    /// Returns the settings to change them. Connections that share them keep theirs.
    fn own_config(&mut self) -> &mut Config {
        Arc::make_mut(&mut self.base.config)
    }

    /// Switches Nagle's algorithm off if `no_delay` is true, and on otherwise.
    /// RFC 9293 MUST-17.
    pub fn set_no_delay(&mut self, now: Instant, no_delay: bool) {
        self.own_config().no_delay = no_delay;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.snd.no_delay = no_delay;
            open.snd.rearm(now);
        }
    }

    /// Holds back a last segment that is not full if `corked` is true (`TCP_CORK` in Linux), for at most one RTO after the preceding
    /// data was acknowledged. Otherwise sends what was held back.
    pub fn set_cork(&mut self, now: Instant, corked: bool) {
        self.own_config().cork = corked;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            (open.snd.corked, open.snd.more_follows) = (corked, false);
            open.snd.rearm(now);
        }
    }

    /// Sets what is done to find the MTU of the path. A known limit of the path stays until it expires.
    pub fn set_mtu_discovery(&mut self, discovery: MtuDiscovery) {
        self.leave_fast_path();
        self.own_config().mtu_discovery = discovery;
    }

    /// Sets which times are reported ([`Config::timing`](crate::tcp::Config::timing)).
    pub fn set_timing(&mut self, timing: Timing) {
        self.own_config().timing = timing;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.set_timing(timing, open.snd.end);
        }
    }

    /// Sets the limit of unsent bytes ([`Config::unsent_bytes_max`](crate::tcp::Config::unsent_bytes_max)).
    pub fn set_unsent_max(&mut self, bytes: u32) {
        self.own_config().unsent_bytes_max = bytes;
    }

    /// Switches keepalive probes of an idle connection on (`Some`) or off (`None`). The idle time begins now, or when the next
    /// segment arrives. If keepalive is on already, the idle time begins with the last segment that arrived, as in Linux.
    ///
    /// Returns an error if a time or the number of probes is 0.
    /// RFC 9293 MUST-24, MAY-5.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<Keepalive>) -> Result<(), ConfigError> {
        self.leave_fast_path();
        keepalive.map_or(Ok(()), |keepalive| keepalive.check())?;
        if let ConnectionState::Synchronized(open) = &mut self.state
            && keepalive.is_some()
        {
            let is_on = self.base.config.keepalive.is_some();
            if !is_on {
                open.snd.rare.edit().probed_at = now;
            } else if open.keepalive_probes == 0 {
                open.snd.rare.edit().probed_at = open.last_received;
            }
        }
        self.own_config().keepalive = keepalive;
        Ok(())
    }

    /// Sets how long data may stay unacknowledged before the connection ends. With `None`, the connection ends after the last
    /// retransmission.
    ///
    /// Returns an error if the time is too short.
    /// RFC 9293 MUST-21.
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>) -> Result<(), ConfigError> {
        check_user_timeout(timeout)?;
        self.leave_fast_path();
        self.own_config().user_timeout = timeout;
        Ok(())
    }

    /// Fixes the size of the receive buffer in bytes, so that the buffer no longer grows. A window that was already offered stays
    /// valid.
    ///
    /// Returns an error if the size is out of range.
    pub fn set_receive_buffer(&mut self, bytes: usize) -> Result<(), ConfigError> {
        check_buffer(bytes)?;
        let config = self.own_config();
        (config.receive_buffer_bytes, config.receive_buffer_bytes_max) = (bytes, bytes);
        if let ConnectionState::Synchronized(open) = &mut self.state {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            (open.rcv.capacity, open.rcv.capacity_max) = (bytes, bytes);
        }
        Ok(())
    }

    /// Limits the window that is offered to the peer from now on, in bytes. A window that was already offered stays valid, and
    /// the size of the receive buffer does not change.
    pub fn limit_window(&mut self, bytes: u32) {
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.rcv.window_max = bytes;
        }
    }

    /// Limits the size of the send buffer to `bytes`. Bytes that are already in the buffer stay there.
    ///
    /// Returns an error if the size is out of range.
    pub fn set_send_buffer(&mut self, bytes: usize) -> Result<(), ConfigError> {
        check_buffer(bytes)?;
        self.own_config().send_buffer_bytes_max = bytes;
        Ok(())
    }

    /// Changes the congestion control algorithm. cwnd keeps its value, and the new algorithm starts with an empty state.
    pub fn set_congestion(&mut self, congestion: CongestionControl) {
        self.leave_fast_path();
        self.own_config().congestion = congestion;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.snd.set_control(congestion.control());
        }
    }
}

impl Base {
    pub(super) fn new(config: Arc<Config>, ports: Ports, initial: Initial) -> Self {
        let syn_window = u16::try_from(config.receive_buffer_bytes).unwrap_or(u16::MAX);
        let window_shift = config.window_shift();
        Self { ports, config, initial, syn_window, window_shift, path_mss: None, reset: None, fast_open: None }
    }
}

/// Returns the settings if all of them are valid.
pub(super) fn checked(config: impl Into<Arc<Config>>) -> Result<Arc<Config>, ConfigError> {
    let config = config.into();
    config.check().map(|()| config)
}
