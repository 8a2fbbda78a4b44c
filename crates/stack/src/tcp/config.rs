//! Settings of a connection, which its owner or its application chooses.

use super::congestion::CongestionControl;
use super::plpmtud::PathProbing;
use super::rtt::RTO_MIN;
use super::send_marks::Timing;
use crate::ip::mtu_discovery::MtuDiscovery;
use crate::limits::{
    TCP_BUFFER_BYTES_MAX, TCP_MAXSEG_MIN, TCP_RECEIVE_BUFFER_BYTES_MIN, TCP_RETRIES, TCP_RTO_MIN_LEAST,
    TCP_SEGMENT_BYTES_MIN, TCP_SEND_BUFFER_BYTES_FIRST, TCP_SEND_BUFFER_BYTES_MIN, TCP_SYN_ACK_RETRIES,
    TCP_SYN_RETRIES, TCP_TIME_WAIT_MAX, TCP_TIME_WAIT_MIN, TCP_USER_TIMEOUT_MIN,
};
use crate::time::Duration;

/// Settings of a connection. [`Config::LINUX`] has the defaults of Linux, with CUBIC. The setting that every write reads comes
/// first, so that it shares a cache line with the connection's fields before the `Config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// Largest send buffer in bytes. Below this limit, the send buffer accepts up to twice cwnd.
    pub send_buffer_bytes_max: usize,
    /// Initial size of the send buffer in bytes: it accepts as much even if twice cwnd is less.
    pub send_buffer_bytes: usize,
    /// While this number of written bytes is unsent, the connection accepts no more bytes (`TCP_NOTSENT_LOWAT` in Linux). It is
    /// writable again when fewer than half of these bytes are unsent. `u32::MAX`, the default, means no such limit.
    pub unsent_bytes_max: u32,
    /// Largest segment payload in bytes that this end accepts: the MTU of its device less 40 (IPv4) or 60 (IPv6) (RFC 9293
    /// MUST-67).
    pub mss: u16,
    /// The application's limit for `mss` (`TCP_MAXSEG` in Linux), at least [`TCP_MAXSEG_MIN`]. `u16::MAX`, the default, means no
    /// limit.
    pub mss_max: u16,
    /// The MSS that is assumed for a peer whose SYN has no MSS option (RFC 9293 MUST-15). This must be an MSS that every path of
    /// the connection's IP version carries: 536 for IPv4, 1,220 for IPv6.
    pub mss_default: u16,
    /// Initial size of the receive buffer in bytes.
    pub receive_buffer_bytes: usize,
    /// Size in bytes to which the receive buffer may grow.
    pub receive_buffer_bytes_max: usize,
    /// Congestion control algorithm.
    pub congestion: CongestionControl,
    /// Whether Nagle's algorithm is off (RFC 9293 MUST-17).
    pub no_delay: bool,
    /// Whether a last segment that is not full is held back (`TCP_CORK` in Linux).
    pub cork: bool,
    /// The times that are reported to the application (`SO_TIMESTAMPING` in Linux).
    pub timing: Timing,
    /// What is done to find the MTU of the path (`IP_MTU_DISCOVER` in Linux).
    pub mtu_discovery: MtuDiscovery,
    /// Whether an active open offers ECN.
    pub ecn: bool,
    /// Whether a passive open accepts ECN.
    pub accepts_ecn: bool,
    /// Whether an active open that offers ECN, and a passive open that accepts it, does so for accurate ECN (RFC 9768).
    pub offers_accurate_ecn: bool,
    /// See `offers_accurate_ecn`.
    pub accepts_accurate_ecn: bool,
    /// Whether timestamps are offered and accepted.
    pub timestamps: bool,
    /// Whether SACK is offered and accepted.
    pub sack: bool,
    /// Whether window scaling is offered and accepted.
    pub window_scaling: bool,
    /// When probes search for a larger path MTU (RFC 4821).
    pub path_probing: PathProbing,
    /// Initial window in segments (RFC 6928), at least 1.
    pub initial_window_segments: u8,
    /// Number of segments by which a segment may be late before it counts as lost (DupThresh of RFC 6675), at least 1.
    pub reordering_segments: u8,
    /// Number of retransmissions of an unanswered SYN before an active open fails.
    pub syn_retries_max: u8,
    /// Number of retransmissions of a SYN-ACK before a passive open fails.
    pub syn_ack_retries_max: u8,
    /// Number of retransmissions of a segment before an open connection fails (R2 of RFC 9293 section 3.8.3).
    pub retries_max: u8,
    /// Whether a tail-loss probe is sent if the last segments stay unacknowledged (RFC 8985 section 7).
    pub tail_loss_probes: bool,
    /// Whether cwnd falls to the initial window after an idle time of one RTO (RFC 5681 section 4.1).
    pub slow_start_after_idle: bool,
    /// Whether each segment with data is acknowledged at once (`quickack` of a route in Linux).
    pub quick_acks: bool,
    /// How much longer than the smoothed RTT a retransmission timeout is at least (`rto_min` of a route in Linux), at least
    /// [`TCP_RTO_MIN_LEAST`]. At most 65,535 ms are used. Acknowledgements are delayed for a shorter time, because the peer probably has the same setting.
    pub rto_min: Duration,
    /// How long the minimum RTT is valid.
    pub min_rtt_life: Duration,
    /// Duration of FIN-WAIT-2 after the application has closed, in seconds. The default is 60, as in Linux.
    pub fin_wait_secs: u16,
    /// Duration of TIME-WAIT (RFC 9293 MUST-13). The default of 60 s is twice
    /// an MSL of 30 s, as in Linux. Valid durations are from [`TCP_TIME_WAIT_MIN`] to [`TCP_TIME_WAIT_MAX`]. If the stack's table
    /// of connections in TIME-WAIT is full, the entry that ends first is dropped.
    pub time_wait: Duration,
    /// Keepalive probes of an idle connection. `None`, the default, sends no probes (RFC 9293 MUST-25).
    pub keepalive: Option<Keepalive>,
    /// How long data may stay unacknowledged before the connection ends (RFC 9293 MUST-21, RFC 5482). With `None`, the default,
    /// the connection ends after the last retransmission.
    pub user_timeout: Option<Duration>,
}

/// Keepalive: when an idle connection is probed, and how many unanswered probes end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Time without a received segment until the first probe is sent (RFC 9293 MUST-27).
    pub idle: Duration,
    /// Time between two probes.
    pub interval: Duration,
    /// Number of unanswered probes that ends the connection.
    pub probes: u8,
}

impl Default for Keepalive {
    /// Returns an idle time of two hours (RFC 9293 MUST-28). The interval and the number of probes are the defaults of Linux.
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), probes: 9 }
    }
}

impl Config {
    /// The defaults of Linux, except that a SYN is retransmitted once more. The order of a SYN's options and the timers also follow
    /// Linux, but no setting changes them. [`Config::set_named`] changes settings by their names in Linux.
    pub const LINUX: Self = Self {
        mss: 1_460,
        mss_max: u16::MAX,
        unsent_bytes_max: u32::MAX,
        mss_default: 536,
        send_buffer_bytes_max: 4 << 20,
        send_buffer_bytes: TCP_SEND_BUFFER_BYTES_FIRST,
        receive_buffer_bytes: 128 << 10,
        receive_buffer_bytes_max: 6 << 20,
        congestion: CongestionControl::Cubic,
        no_delay: false,
        cork: false,
        mtu_discovery: MtuDiscovery::Want,
        timing: Timing { received: false, sent: false, acknowledged: false },
        keepalive: None,
        user_timeout: None,
        ecn: false,
        accepts_ecn: true,
        offers_accurate_ecn: false,
        accepts_accurate_ecn: false,
        timestamps: true,
        sack: true,
        window_scaling: true,
        path_probing: PathProbing::BlackHole,
        initial_window_segments: 10,
        fin_wait_secs: 60,
        reordering_segments: 3,
        syn_retries_max: TCP_SYN_RETRIES,
        syn_ack_retries_max: TCP_SYN_ACK_RETRIES,
        retries_max: TCP_RETRIES,
        tail_loss_probes: true,
        slow_start_after_idle: true,
        quick_acks: false,
        rto_min: RTO_MIN,
        min_rtt_life: Duration::from_secs(300),
        time_wait: Duration::from_secs(60),
    };
}

/// A setting that is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// A buffer of 0 bytes or more than [`TCP_BUFFER_BYTES_MAX`], or an initial receive buffer above its maximum.
    BufferSize,
    /// A keepalive whose idle time, interval or number of probes is 0.
    Keepalive,
    /// A minimum of the retransmission timeout below [`TCP_RTO_MIN_LEAST`].
    MinimumTimeout,
    /// A reordering of 0 segments.
    Reordering,
    /// An initial window of 0 segments.
    InitialWindow,
    /// An MSS below [`TCP_SEGMENT_BYTES_MIN`], or a limit of the MSS below [`TCP_MAXSEG_MIN`].
    SegmentSize,
    /// A TIME-WAIT shorter than [`TCP_TIME_WAIT_MIN`] or longer than [`TCP_TIME_WAIT_MAX`] (RFC 9293 MUST-13).
    TimeWait,
    /// A user timeout shorter than [`TCP_USER_TIMEOUT_MIN`].
    UserTimeout,
}

impl Config {
    /// Checks all settings.
    ///
    /// Returns an error that names the first setting that is not valid.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_buffer(self.send_buffer_bytes_max)?;
        check_buffer(self.send_buffer_bytes)?;
        check_buffer(self.receive_buffer_bytes)?;
        check_buffer(self.receive_buffer_bytes_max)?;
        if self.receive_buffer_bytes > self.receive_buffer_bytes_max {
            return Err(ConfigError::BufferSize);
        }
        if self.initial_window_segments == 0 {
            return Err(ConfigError::InitialWindow);
        }
        if self.rto_min < TCP_RTO_MIN_LEAST {
            return Err(ConfigError::MinimumTimeout);
        }
        if self.reordering_segments == 0 {
            return Err(ConfigError::Reordering);
        }
        if self.mss.min(self.mss_default) < TCP_SEGMENT_BYTES_MIN || self.mss_max < TCP_MAXSEG_MIN {
            return Err(ConfigError::SegmentSize);
        }
        if !(TCP_TIME_WAIT_MIN..=TCP_TIME_WAIT_MAX).contains(&self.time_wait) {
            return Err(ConfigError::TimeWait);
        }
        check_user_timeout(self.user_timeout)?;
        self.keepalive.map_or(Ok(()), |keepalive| keepalive.check())
    }

    /// Returns the size of the send buffer of a connection whose application requests `bytes` bytes (`SO_SNDBUF` of Linux).
    pub fn send_buffer_for(bytes: usize) -> usize {
        bytes.clamp(TCP_SEND_BUFFER_BYTES_MIN, TCP_BUFFER_BYTES_MAX)
    }

    /// Returns the size of the receive buffer of a connection whose application requests `bytes` bytes (`SO_RCVBUF` of Linux).
    pub fn receive_buffer_for(bytes: usize) -> usize {
        bytes.clamp(TCP_RECEIVE_BUFFER_BYTES_MIN, TCP_BUFFER_BYTES_MAX)
    }

    /// Returns the sizes of the send buffer and of the receive buffer as `getsockopt` of Linux reports them. Linux doubles a size that an
    /// application requests, because its own overhead counts, too. A size that is equal to that of `defaults` was not requested.
    pub fn linux_buffers(&self, defaults: &Self) -> (usize, usize) {
        let reported = |bytes: usize, default: usize| if bytes == default { bytes } else { bytes.saturating_mul(2) };
        (
            reported(self.send_buffer_bytes_max, defaults.send_buffer_bytes_max),
            reported(self.receive_buffer_bytes, defaults.receive_buffer_bytes),
        )
    }

    /// Returns the smallest window scale whose largest window covers the largest receive buffer (RFC 7323 section 2.3).
    pub(super) fn window_shift(&self) -> u8 {
        (0..14).find(|shift| self.receive_buffer_bytes_max >> shift <= usize::from(u16::MAX)).unwrap_or(14)
    }
}

impl Keepalive {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let none = self.idle.is_zero() || self.interval.is_zero() || self.probes == 0;
        if none { Err(ConfigError::Keepalive) } else { Ok(()) }
    }
}

pub(super) fn check_buffer(bytes: usize) -> Result<(), ConfigError> {
    if (1..=TCP_BUFFER_BYTES_MAX).contains(&bytes) { Ok(()) } else { Err(ConfigError::BufferSize) }
}

pub(super) fn check_user_timeout(timeout: Option<Duration>) -> Result<(), ConfigError> {
    if timeout.is_none_or(|timeout| timeout >= TCP_USER_TIMEOUT_MIN) { Ok(()) } else { Err(ConfigError::UserTimeout) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_buffers_and_windows_have_the_sizes_of_linux() {
        let Config { send_buffer_bytes_max, receive_buffer_bytes, receive_buffer_bytes_max, .. } = Config::LINUX;
        assert_eq!((send_buffer_bytes_max, receive_buffer_bytes), (4_194_304, 131_072));
        assert_eq!((receive_buffer_bytes_max, Config::LINUX.window_shift()), (6_291_456, 7));
    }

    // RFC 7323 section 2.3.
    #[test]
    fn the_window_scale_is_the_least_that_can_express_the_largest_buffer() {
        for (bytes, shift) in [(1, 0), (65_535, 0), (65_536, 1), (131_071, 1), (131_072, 2), (1 << 29, 14)] {
            let config = Config { receive_buffer_bytes: 1, receive_buffer_bytes_max: bytes, ..Config::LINUX };
            assert_eq!((config.check(), config.window_shift()), (Ok(()), shift), "{bytes}");
        }
        let config = Config { receive_buffer_bytes_max: (1 << 29) + 1, ..Config::LINUX };
        assert_eq!(config.check(), Err(ConfigError::BufferSize));
    }

    #[test]
    fn the_initial_receive_buffer_may_equal_the_maximum() {
        let config = Config { receive_buffer_bytes: 9_000, receive_buffer_bytes_max: 9_000, ..Config::LINUX };
        assert_eq!(config.check(), Ok(()));
        assert_eq!(Config { receive_buffer_bytes: 9_001, ..config }.check(), Err(ConfigError::BufferSize));
    }
}
