//! Conversions between the socket options and errors of applications and those of the stack.

use rustix::io::Errno;
use siga_iucv::options::{
    CongestionControl, ConnectionInfo, MtuDiscovery, SendFlags, SendStage, SendTime, SocketOptions, Timing,
};
use siga_stack::Stack;
use siga_stack::drops::{DropReason, LinkDrop};
use siga_stack::sockets::{FastOpenKeys, ListenerId, TcpDefaults, TcpError, TcpId, TcpOptions, TcpSetting};
use siga_stack::tcp::{self, Config, Failure, Keepalive, Storage, WriteFlags};
use siga_stack::time::Instant;
use siga_stack::udp::UdpError;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::SystemTime;

/// The ports from which a listener gets one if it does not request a certain port. They are the ephemeral ports of Linux.
pub(crate) const EPHEMERAL_PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Makes a listener. If the requested port is 0, any free ephemeral port is used.
pub(crate) fn listen<S: Storage>(
    stack: &mut Stack<S>,
    local: SocketAddr,
    backlog: usize,
    options: &SocketOptions,
) -> io::Result<ListenerId> {
    let of_listener = tcp_options(stack.tcp_defaults(), options);
    let ports = if local.port() == 0 { EPHEMERAL_PORTS } else { local.port()..=local.port() };
    let mut listened = Err(TcpError::InUse);
    for port in ports {
        listened = stack.tcp_listen(SocketAddr::new(local.ip(), port), backlog, &of_listener);
        if listened != Err(TcpError::InUse) {
            break;
        }
    }
    let id = listened.map_err(tcp_error)?;
    if let Some(siga_iucv::options::FastOpenKeys { primary, backup }) = options.fast_open_keys {
        stack.tcp_set_listener_keys(id, FastOpenKeys { primary, backup }).map_err(tcp_error)?;
    }
    Ok(id)
}

/// Returns how a connection with these options probes its peer, if it does. `defaults` are those of the stack.
fn keepalive(defaults: Keepalive, options: &SocketOptions) -> Option<Keepalive> {
    Some(Keepalive {
        idle: options.keepalive?.into(),
        interval: options.probe_interval.map_or(defaults.interval, Into::into),
        probes: options.probes_max.unwrap_or(defaults.probes),
    })
}

/// Changes the socket options of a connection.
pub(crate) fn change<S: Storage>(
    stack: &mut Stack<S>,
    now: Instant,
    id: TcpId,
    options: &SocketOptions,
) -> io::Result<()> {
    let probes = stack.tcp_defaults().keepalive;
    let settings = [
        Some(TcpSetting::NoDelay(options.no_delay)),
        Some(TcpSetting::Cork(options.cork)),
        options.unsent_max.map(TcpSetting::UnsentMax),
        options.congestion.map(|chosen| TcpSetting::Congestion(congestion(chosen))),
        Some(TcpSetting::Linger(options.linger.map(Into::into))),
        Some(TcpSetting::Keepalive(keepalive(probes, options))),
        Some(TcpSetting::UserTimeout(options.user_timeout.map(Into::into))),
        Some(TcpSetting::Service(options.service)),
        Some(TcpSetting::HopLimit(options.hop_limit)),
        Some(TcpSetting::Timing(timing(options.timing))),
        options.mtu_discovery.map(|chosen| TcpSetting::MtuDiscovery(mtu_discovery(chosen))),
        options.send_buffer.map(|bytes| TcpSetting::SendBuffer(Config::send_buffer_for(bytes))),
        options.receive_buffer.map(|bytes| TcpSetting::ReceiveBuffer(Config::receive_buffer_for(bytes))),
    ];
    settings.into_iter().flatten().try_for_each(|setting| stack.tcp_set(now, id, setting)).map_err(tcp_error)
}

/// Returns the options of a connection: the options of its application, and for everything else the defaults of the stack.
pub(crate) fn tcp_options(defaults: TcpDefaults, options: &SocketOptions) -> TcpOptions {
    let TcpDefaults { config: defaults, keepalive: probes, .. } = defaults;
    let receive = options.receive_buffer.map(Config::receive_buffer_for);
    let config = Config {
        no_delay: options.no_delay,
        cork: options.cork,
        unsent_bytes_max: options.unsent_max.unwrap_or(defaults.unsent_bytes_max),
        mss_max: options.segment_bytes_max.unwrap_or(defaults.mss_max),
        congestion: options.congestion.map_or(defaults.congestion, congestion),
        keepalive: keepalive(probes, options),
        user_timeout: options.user_timeout.map(Into::into).or(defaults.user_timeout),
        send_buffer_bytes_max: options.send_buffer.map_or(defaults.send_buffer_bytes_max, Config::send_buffer_for),
        receive_buffer_bytes: receive.unwrap_or(defaults.receive_buffer_bytes),
        receive_buffer_bytes_max: receive.unwrap_or(defaults.receive_buffer_bytes_max),
        timing: timing(options.timing),
        mtu_discovery: options.mtu_discovery.map_or(defaults.mtu_discovery, mtu_discovery),
        ..defaults
    };
    let linger = options.linger.map(Into::into);
    TcpOptions {
        config,
        hop_limit: options.hop_limit,
        linger,
        service: options.service,
        fast_open: options.fast_open,
        fast_open_pending_max: options.fast_open_pending_max,
        defer_accept: options.defer_accept.map(Into::into),
        ..TcpOptions::default()
    }
}

/// Returns the statistics of a connection, and the options that it uses now.
pub(crate) fn connection_info<S: Storage>(
    stack: &Stack<S>,
    now: Instant,
    id: TcpId,
) -> Result<ConnectionInfo, TcpError> {
    let tcp_info = stack.tcp_linux_info(now, id)?.to_bytes();
    let TcpOptions { config, hop_limit, linger, service, .. } = stack.tcp_options(id)?;
    let (send_buffer, receive_buffer) = config.linux_buffers(&stack.tcp_defaults().config);
    let options = SocketOptions {
        no_delay: config.no_delay,
        cork: config.cork,
        unsent_max: Some(config.unsent_bytes_max),
        segment_bytes_max: (config.mss_max != u16::MAX).then_some(config.mss_max),
        send_buffer: Some(send_buffer),
        receive_buffer: Some(receive_buffer),
        congestion: Some(match config.congestion {
            tcp::CongestionControl::Cubic => CongestionControl::Cubic,
            tcp::CongestionControl::Reno => CongestionControl::Reno,
            tcp::CongestionControl::Bbr => CongestionControl::Bbr,
        }),
        linger: linger.map(Into::into),
        keepalive: config.keepalive.map(|keepalive| keepalive.idle.into()),
        probe_interval: config.keepalive.map(|keepalive| keepalive.interval.into()),
        probes_max: config.keepalive.map(|keepalive| keepalive.probes),
        user_timeout: config.user_timeout.map(Into::into),
        service,
        hop_limit,
        mtu_discovery: Some(match config.mtu_discovery {
            tcp::MtuDiscovery::Dont => MtuDiscovery::Dont,
            tcp::MtuDiscovery::Want => MtuDiscovery::Want,
            tcp::MtuDiscovery::Do => MtuDiscovery::Do,
            tcp::MtuDiscovery::Probe => MtuDiscovery::Probe,
            tcp::MtuDiscovery::Interface => MtuDiscovery::Interface,
        }),
        timing: {
            let tcp::Timing { received, sent, acknowledged } = config.timing;
            Timing { received, sent, acknowledged }
        },
        ..SocketOptions::default()
    };
    let bbr_info = stack.tcp_bbr_info(id)?.map(|info| info.to_bytes());
    Ok(ConnectionInfo { tcp_info, bbr_info, options })
}

pub(crate) fn mtu_discovery(chosen: MtuDiscovery) -> tcp::MtuDiscovery {
    match chosen {
        MtuDiscovery::Dont => tcp::MtuDiscovery::Dont,
        MtuDiscovery::Want => tcp::MtuDiscovery::Want,
        MtuDiscovery::Do => tcp::MtuDiscovery::Do,
        MtuDiscovery::Probe => tcp::MtuDiscovery::Probe,
        MtuDiscovery::Interface => tcp::MtuDiscovery::Interface,
    }
}

fn timing(Timing { received, sent, acknowledged }: Timing) -> tcp::Timing {
    tcp::Timing { received, sent, acknowledged }
}

pub(crate) fn write_flags(SendFlags { more, end_of_record }: SendFlags) -> WriteFlags {
    WriteFlags { more_follows: more, ends_record: end_of_record }
}

/// Returns the time of a write for its application. `at` is the time on the clock of the host.
pub(crate) fn send_time(time: &tcp::SendTime, at: SystemTime) -> SendTime {
    let stage = match time.stage {
        tcp::SendStage::Sent => SendStage::Sent,
        tcp::SendStage::Acknowledged => SendStage::Acknowledged,
    };
    SendTime { id: time.id, stage, at }
}

fn congestion(chosen: CongestionControl) -> tcp::CongestionControl {
    match chosen {
        CongestionControl::Cubic => tcp::CongestionControl::Cubic,
        CongestionControl::Reno => tcp::CongestionControl::Reno,
        CongestionControl::Bbr => tcp::CongestionControl::Bbr,
    }
}

pub(crate) fn tcp_error(error: TcpError) -> io::Error {
    let kind = match error {
        TcpError::Closed | TcpError::NotOpen => ErrorKind::NotConnected,
        TcpError::InUse => ErrorKind::AddrInUse,
        TcpError::NotOurs | TcpError::PortsExhausted => ErrorKind::AddrNotAvailable,
        TcpError::Full => ErrorKind::QuotaExceeded,
        TcpError::Address | TcpError::Setting(_) | TcpError::Range => ErrorKind::InvalidInput,
        TcpError::Dropped(_) => ErrorKind::NetworkUnreachable,
        TcpError::FastOpenOff => ErrorKind::Unsupported,
        TcpError::ShutDown => ErrorKind::BrokenPipe,
        TcpError::Failed(failure) => failure_kind(failure),
    };
    io::Error::new(kind, format!("{error:?}"))
}

pub(crate) fn failure_kind(failure: Failure) -> ErrorKind {
    match failure {
        Failure::Refused => ErrorKind::ConnectionRefused,
        Failure::Reset => ErrorKind::ConnectionReset,
        Failure::TimedOut => ErrorKind::TimedOut,
        Failure::Aborted => ErrorKind::ConnectionAborted,
        Failure::Unreachable => ErrorKind::HostUnreachable,
    }
}

pub(crate) fn udp_error(error: UdpError) -> io::Error {
    if matches!(error, UdpError::Dropped(DropReason::Link(LinkDrop::QueueFull))) {
        return Errno::NOBUFS.into();
    }
    let kind = match error {
        UdpError::Closed | UdpError::NotConnected => ErrorKind::NotConnected,
        UdpError::InUse | UdpError::Joined => ErrorKind::AddrInUse,
        UdpError::NotOurs | UdpError::NotJoined => ErrorKind::AddrNotAvailable,
        UdpError::Full | UdpError::TooManyGroups => ErrorKind::QuotaExceeded,
        UdpError::Address | UdpError::TooLong | UdpError::TooLarge(_) | UdpError::NotGroup => ErrorKind::InvalidInput,
        UdpError::NoDevice => ErrorKind::NotFound,
        UdpError::Dropped(_) => ErrorKind::NetworkUnreachable,
        UdpError::Network(..) => ErrorKind::ConnectionRefused,
    };
    io::Error::new(kind, format!("{error:?}"))
}
