//! Settings that an application may change while a connection is open.

use super::super::buffer::Storage;
use super::super::config::{Config, ConfigError, Keepalive, check_buffer, check_user_timeout};
use super::super::congestion::CongestionControl;
use super::super::send_marks::Timing;
use super::{Connection, ConnectionState};
use crate::ip::mtu_discovery::MtuDiscovery;
use crate::time::{Duration, Instant};

impl<S: Storage> Connection<S> {
    /// Returns the settings that the connection uses now.
    pub fn config(&self) -> &Config {
        &self.base.config
    }

    /// Switches Nagle's algorithm off if `no_delay` is true, and on otherwise.
    /// RFC 9293 MUST-17.
    pub fn set_no_delay(&mut self, now: Instant, no_delay: bool) {
        self.base.config.no_delay = no_delay;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.snd.no_delay = no_delay;
            open.snd.rearm(now);
        }
    }

    /// Holds back a last segment that is not full if `corked` is true (`TCP_CORK` in Linux), for at most one RTO after the preceding
    /// data was acknowledged. Otherwise sends what was held back.
    pub fn set_cork(&mut self, now: Instant, corked: bool) {
        self.base.config.cork = corked;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            (open.snd.corked, open.snd.more_follows) = (corked, false);
            open.snd.rearm(now);
        }
    }

    /// Sets what is done to find the MTU of the path. A known limit of the path stays until it expires.
    pub fn set_mtu_discovery(&mut self, discovery: MtuDiscovery) {
        self.leave_fast_path();
        self.base.config.mtu_discovery = discovery;
    }

    /// Sets which times are reported ([`Config::timing`](crate::tcp::Config::timing)).
    pub fn set_timing(&mut self, timing: Timing) {
        self.base.config.timing = timing;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.set_timing(timing, open.snd.end);
        }
    }

    /// Sets the limit of unsent bytes ([`Config::unsent_bytes_max`](crate::tcp::Config::unsent_bytes_max)).
    pub fn set_unsent_max(&mut self, bytes: u32) {
        self.base.config.unsent_bytes_max = bytes;
    }

    /// Switches keepalive probes of an idle connection on (`Some`) or off (`None`). The idle time begins now, or when the next
    /// segment arrives.
    ///
    /// Returns an error if a time or the number of probes is 0.
    /// RFC 9293 MUST-24, MAY-5.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<Keepalive>) -> Result<(), ConfigError> {
        self.leave_fast_path();
        keepalive.map_or(Ok(()), |keepalive| keepalive.check())?;
        if let ConnectionState::Synchronized(open) = &mut self.state
            && keepalive.is_some()
            && self.base.config.keepalive.is_none()
        {
            open.probed_at = now;
        }
        self.base.config.keepalive = keepalive;
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
        self.base.config.user_timeout = timeout;
        Ok(())
    }

    /// Fixes the size of the receive buffer in bytes, so that the buffer no longer grows. A window that was already offered stays
    /// valid.
    ///
    /// Returns an error if the size is out of range.
    pub fn set_receive_buffer(&mut self, bytes: usize) -> Result<(), ConfigError> {
        check_buffer(bytes)?;
        (self.base.config.receive_buffer_bytes, self.base.config.receive_buffer_bytes_max) = (bytes, bytes);
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
        self.base.config.send_buffer_bytes_max = bytes;
        Ok(())
    }

    /// Changes the congestion control algorithm. cwnd keeps its value, and the new algorithm starts with an empty state.
    pub fn set_congestion(&mut self, congestion: CongestionControl) {
        self.leave_fast_path();
        self.base.config.congestion = congestion;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.snd.set_control(congestion.control());
        }
    }
}
