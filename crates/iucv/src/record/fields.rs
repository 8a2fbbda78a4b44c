//! The fields of records: how a field is written to a record, and how it is read and checked.

use crate::extent::{Extent, Extents, size};
use crate::limits::{ARRIVALS_MAX, EXTENTS_MAX, SEND_TIMES_MAX, SHARED_NUMBERS_MAX};
use crate::options::{
    CongestionControl, ConnectionInfo, DatagramChange, DatagramOptions, Delivery, FastOpenKeys, Interface,
    MtuDiscovery, SendFlags, SendStage, SendTime, SocketOptions, Timing,
};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU8;
use std::time::{Duration, SystemTime};

/// Kinds of errors. A record contains an index into this array.
pub(super) const KINDS: [ErrorKind; 16] = [
    ErrorKind::NotConnected,
    ErrorKind::AddrInUse,
    ErrorKind::AddrNotAvailable,
    ErrorKind::QuotaExceeded,
    ErrorKind::InvalidInput,
    ErrorKind::NetworkUnreachable,
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionRefused,
    ErrorKind::ConnectionReset,
    ErrorKind::TimedOut,
    ErrorKind::ConnectionAborted,
    ErrorKind::HostUnreachable,
    ErrorKind::PermissionDenied,
    ErrorKind::NotFound,
    ErrorKind::Unsupported,
    ErrorKind::Other,
];

/// Received bytes that arrived at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Number of bytes, not 0.
    pub bytes: u32,
    /// When they arrived. `None` if they arrived before the application asked for times.
    pub at: Option<SystemTime>,
}

/// The bytes of a record that are not parsed yet.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    pub(super) fn kind(&mut self) -> Option<ErrorKind> {
        KINDS.get(usize::from(self.u8()?)).copied()
    }

    /// Reads an optional kind of error.
    pub(super) fn failure(&mut self) -> Option<Option<ErrorKind>> {
        let code = self.u8()?;
        if code == u8::MAX { Some(None) } else { KINDS.get(usize::from(code)).map(|kind| Some(*kind)) }
    }

    pub(super) fn flags<const N: usize>(&mut self) -> Option<[bool; N]> {
        let byte = self.u8()?;
        (u32::from(byte) >> N == 0).then(|| std::array::from_fn(|at| byte >> at & 1 == 1))
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        let [flag] = self.flags()?;
        Some(flag)
    }

    pub(super) fn address(&mut self) -> Option<SocketAddr> {
        let (version, bits, port) = (self.u8()?, self.take::<16>()?, self.u16()?);
        let ip = match version {
            4 => {
                let (bits, rest) = bits.split_first_chunk::<4>()?;
                if rest.iter().any(|byte| *byte != 0) {
                    return None;
                }
                IpAddr::V4(Ipv4Addr::from(*bits))
            }
            6 => IpAddr::V6(Ipv6Addr::from(bits)),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }

    pub(super) fn change(&mut self) -> Option<DatagramChange> {
        Some(match self.u8()? {
            0 => DatagramChange::Join(self.ip()?, self.interface()?),
            1 => DatagramChange::Leave(self.ip()?, self.interface()?),
            2 => DatagramChange::HopLimit(self.u8()?),
            3 => {
                let [on] = self.flags()?;
                DatagramChange::Loop(on)
            }
            4 => DatagramChange::MtuDiscovery(self.mtu_discovery()??),
            5 => DatagramChange::Timing(self.timing()?),
            6 => DatagramChange::UnicastHopLimit(NonZeroU8::new(self.u8()?)?),
            7 => DatagramChange::Service(self.u8()?),
            8 => DatagramChange::GroupNetwork(self.interface()?),
            _ => return None,
        })
    }

    /// Reads an address without a port.
    pub(super) fn ip(&mut self) -> Option<IpAddr> {
        self.address().filter(|address| address.port() == 0).map(|address| address.ip())
    }

    pub(super) fn interface(&mut self) -> Option<Interface> {
        match (self.u8()?, self.u32()?) {
            (0, 0) => Some(Interface::OfRoute),
            (1, bits) => Some(Interface::Address(Ipv4Addr::from_bits(bits))),
            (2, number) => Some(Interface::Number(number)),
            _ => None,
        }
    }

    pub(super) fn delivery(&mut self) -> Option<Delivery> {
        let (to, network, hop_limit, service) = (self.ip()?, self.u32()?, self.u8()?, self.u8()?);
        Some(Delivery { to, network: (network != 0).then_some(network), hop_limit, service })
    }

    pub(super) fn datagram_options(&mut self) -> Option<DatagramOptions> {
        let [from, network, hop_limit, service] = self.flags()?;
        if !(from || network || hop_limit || service) {
            return None;
        }
        Some(DatagramOptions {
            from: if from { Some(self.ip()?) } else { None },
            network: if network { Some(self.u32()?) } else { None },
            hop_limit: if hop_limit { Some(self.u8()?) } else { None },
            service: if service { Some(self.u8()?) } else { None },
        })
    }

    pub(super) fn extents(&mut self) -> Option<Extents> {
        let mut extents = Extents::new();
        while !self.0.is_empty() {
            if extents.len() >= EXTENTS_MAX {
                return None;
            }
            extents.push(Extent { at: self.u32()?, len: self.u32()? });
        }
        Some(extents)
    }

    /// Reads numbers of sockets up to the end of the record.
    pub(super) fn numbers(&mut self) -> Option<Vec<u32>> {
        let (numbers, []) = self.0.as_chunks::<4>() else { return None };
        self.0 = &[];
        (numbers.len() <= SHARED_NUMBERS_MAX).then(|| numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }

    /// Reads pairs of numbers of sockets up to the end of the record.
    pub(super) fn pairs(&mut self) -> Option<Vec<(u32, u32)>> {
        let numbers = self.numbers()?;
        let (pairs, []) = numbers.as_chunks::<2>() else { return None };
        Some(pairs.iter().map(|[first, second]| (*first, *second)).collect())
    }

    pub(super) fn send_flags(&mut self) -> Option<SendFlags> {
        let [more, end_of_record] = self.flags()?;
        Some(SendFlags { more, end_of_record })
    }

    fn mtu_discovery(&mut self) -> Option<Option<MtuDiscovery>> {
        match self.u8()? {
            u8::MAX => Some(None),
            index => MtuDiscovery::ALL.get(usize::from(index)).map(|discovery| Some(*discovery)),
        }
    }

    fn timing(&mut self) -> Option<Timing> {
        let [received, sent, acknowledged] = self.flags()?;
        Some(Timing { received, sent, acknowledged })
    }

    /// Reads a time. 0 means no time.
    pub(super) fn time(&mut self) -> Option<Option<SystemTime>> {
        match self.u64()? {
            0 => Some(None),
            ns => SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(ns)).map(Some),
        }
    }

    /// Reads pieces of received bytes with their arrival times.
    pub(super) fn arrivals(&mut self) -> Option<Vec<Arrival>> {
        let count = usize::from(self.u16()?);
        if count > ARRIVALS_MAX {
            return None;
        }
        (0..count).map(|_| Some(Arrival { bytes: self.u32().filter(|bytes| *bytes > 0)?, at: self.time()? })).collect()
    }

    pub(super) fn send_times(&mut self) -> Option<Vec<SendTime>> {
        let mut times = Vec::new();
        while !self.0.is_empty() {
            if times.len() >= SEND_TIMES_MAX {
                return None;
            }
            let (id, [acknowledged]) = (self.u32()?, self.flags()?);
            let stage = if acknowledged { SendStage::Acknowledged } else { SendStage::Sent };
            times.push(SendTime { id, stage, at: self.time()?? });
        }
        Some(times)
    }

    pub(super) fn info(&mut self) -> Option<Box<ConnectionInfo>> {
        let (tcp_info, [has_bbr]) = (self.take()?, self.flags()?);
        let bbr_info = if has_bbr { Some(self.take()?) } else { None };
        Some(Box::new(ConnectionInfo { tcp_info, bbr_info, options: self.options()? }))
    }

    pub(super) fn options(&mut self) -> Option<SocketOptions> {
        let [no_delay, send, receive, linger, keepalive, fast_open, keys, backup] = self.flags()?;
        let [cork, unsent, segment, probe_interval, probes, user, defer] = self.flags()?;
        let congestion = match self.u8()? {
            u8::MAX => None,
            index => Some(CongestionControl::ALL.get(usize::from(index)).copied()?),
        };
        let hop_limit = self.u8()?;
        let buffers = (size(self.u32()?), size(self.u32()?));
        let times = (Duration::from_nanos(self.u64()?), Duration::from_nanos(self.u64()?));
        let probe_times = (Duration::from_nanos(self.u64()?), Duration::from_nanos(self.u64()?));
        let defer_time = Duration::from_nanos(self.u64()?);
        let (probes_max, service) = (self.u8()?, self.u8()?);
        let fast_open_pending_max = size(self.u32()?);
        let (unsent_max, segment_bytes_max) = (self.u32()?, self.u16()?);
        let (mtu_discovery, timing) = (self.mtu_discovery()?, self.timing()?);
        let fast_open_keys = match (keys, backup) {
            (false, false) => None,
            (true, false) => Some(FastOpenKeys { primary: self.take()?, backup: None }),
            (true, true) => Some(FastOpenKeys { primary: self.take()?, backup: Some(self.take()?) }),
            (false, true) => return None,
        };
        Some(SocketOptions {
            no_delay,
            send_buffer: send.then_some(buffers.0),
            receive_buffer: receive.then_some(buffers.1),
            cork,
            unsent_max: unsent.then_some(unsent_max),
            segment_bytes_max: segment.then_some(segment_bytes_max),
            congestion,
            linger: linger.then_some(times.0),
            keepalive: keepalive.then_some(times.1),
            probe_interval: probe_interval.then_some(probe_times.0),
            user_timeout: user.then_some(probe_times.1),
            probes_max: probes.then_some(probes_max),
            service,
            hop_limit,
            fast_open,
            fast_open_pending_max,
            fast_open_keys,
            defer_accept: defer.then_some(defer_time),
            mtu_discovery,
            timing,
        })
    }
}

pub(super) fn code(kind: ErrorKind) -> u8 {
    let other = KINDS.len() - 1;
    let place = KINDS.iter().position(|known| *known == kind).unwrap_or(other);
    u8::try_from(place).unwrap_or(u8::MAX)
}

pub(super) fn failure_code(failure: Option<ErrorKind>) -> u8 {
    failure.map_or(u8::MAX, code)
}

pub(super) fn put_change(into: &mut Vec<u8>, change: DatagramChange) {
    let (kind, group, interface) = match change {
        DatagramChange::Join(group, interface) => (0, group, interface),
        DatagramChange::Leave(group, interface) => (1, group, interface),
        DatagramChange::HopLimit(hops) => return into.extend([2, hops]),
        DatagramChange::Loop(on) => return into.extend([3, u8::from(on)]),
        DatagramChange::MtuDiscovery(discovery) => return into.extend([4, discovery_code(Some(discovery))]),
        DatagramChange::Timing(timing) => return into.extend([5, timing_code(timing)]),
        DatagramChange::UnicastHopLimit(hops) => return into.extend([6, hops.get()]),
        DatagramChange::Service(service) => return into.extend([7, service]),
        DatagramChange::GroupNetwork(interface) => {
            into.push(8);
            return put_interface(into, interface);
        }
    };
    into.push(kind);
    put_address(into, SocketAddr::new(group, 0));
    put_interface(into, interface);
}

fn put_interface(into: &mut Vec<u8>, interface: Interface) {
    let (kind, word) = match interface {
        Interface::OfRoute => (0, 0),
        Interface::Address(own) => (1, own.to_bits()),
        Interface::Number(number) => (2, number),
    };
    into.push(kind);
    into.extend(word.to_le_bytes());
}

/// Size of a [`Delivery`] in a record, in bytes.
pub(super) const DELIVERY_BYTES: usize = 25;

pub(super) fn put_delivery(into: &mut Vec<u8>, delivery: &Delivery) {
    put_address(into, SocketAddr::new(delivery.to, 0));
    into.extend(delivery.network.unwrap_or(0).to_le_bytes());
    into.extend([delivery.hop_limit, delivery.service]);
}

pub(super) fn put_datagram_options(into: &mut Vec<u8>, options: &DatagramOptions) {
    let DatagramOptions { from, network, hop_limit, service } = options;
    into.push(put_flags(&[from.is_some(), network.is_some(), hop_limit.is_some(), service.is_some()]));
    from.iter().for_each(|from| put_address(into, SocketAddr::new(*from, 0)));
    network.iter().for_each(|network| into.extend(network.to_le_bytes()));
    into.extend(hop_limit);
    into.extend(service);
}

fn discovery_code(discovery: Option<MtuDiscovery>) -> u8 {
    let index = discovery.and_then(|discovery| MtuDiscovery::ALL.iter().position(|known| *known == discovery));
    index.and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX)
}

fn timing_code(timing: Timing) -> u8 {
    put_flags(&[timing.received, timing.sent, timing.acknowledged])
}

pub(super) fn put_time(into: &mut Vec<u8>, time: Option<SystemTime>) {
    let since_1970 = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    into.extend(since_1970.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).to_le_bytes());
}

pub(super) fn put_arrivals(into: &mut Vec<u8>, arrivals: &[Arrival]) {
    into.extend(u16::try_from(arrivals.len()).unwrap_or(u16::MAX).to_le_bytes());
    for Arrival { bytes, at } in arrivals {
        into.extend(bytes.to_le_bytes());
        put_time(into, *at);
    }
}

pub(super) fn put_send_times(into: &mut Vec<u8>, times: &[SendTime]) {
    for SendTime { id, stage, at } in times {
        into.extend(id.to_le_bytes());
        into.push(put_flags(&[*stage == SendStage::Acknowledged]));
        put_time(into, Some(*at));
    }
}

pub(super) fn put_flags(flags: &[bool]) -> u8 {
    flags.iter().rev().fold(0, |all, flag| all << 1 | u8::from(*flag))
}

pub(super) fn put_address(into: &mut Vec<u8>, address: SocketAddr) {
    let (version, bits) = match address.ip() {
        IpAddr::V4(ip) => {
            let mut bits = [0; 16];
            bits[..4].copy_from_slice(&ip.octets());
            (4, bits)
        }
        IpAddr::V6(ip) => (6, ip.octets()),
    };
    into.push(version);
    into.extend(bits);
    into.extend(address.port().to_le_bytes());
}

pub(super) fn put_extents(into: &mut Vec<u8>, extents: &[Extent]) {
    for extent in extents {
        into.extend(extent.at.to_le_bytes());
        into.extend(extent.len.to_le_bytes());
    }
}

pub(super) fn put_options(into: &mut Vec<u8>, options: &SocketOptions) {
    let flags = [
        options.no_delay,
        options.send_buffer.is_some(),
        options.receive_buffer.is_some(),
        options.linger.is_some(),
        options.keepalive.is_some(),
        options.fast_open,
        options.fast_open_keys.is_some(),
        options.fast_open_keys.is_some_and(|keys| keys.backup.is_some()),
    ];
    into.push(put_flags(&flags));
    into.push(put_flags(&[
        options.cork,
        options.unsent_max.is_some(),
        options.segment_bytes_max.is_some(),
        options.probe_interval.is_some(),
        options.probes_max.is_some(),
        options.user_timeout.is_some(),
        options.defer_accept.is_some(),
    ]));
    let index = |chosen| CongestionControl::ALL.iter().position(|choice| *choice == chosen);
    let congestion = options.congestion.and_then(index);
    into.push(congestion.and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX));
    into.push(options.hop_limit);
    for bytes in [options.send_buffer, options.receive_buffer] {
        into.extend(u32::try_from(bytes.unwrap_or(0)).unwrap_or(u32::MAX).to_le_bytes());
    }
    let times = [options.linger, options.keepalive, options.probe_interval, options.user_timeout, options.defer_accept];
    for time in times {
        let ns = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        into.extend(ns.to_le_bytes());
    }
    into.extend([options.probes_max.unwrap_or(0), options.service]);
    into.extend(u32::try_from(options.fast_open_pending_max).unwrap_or(u32::MAX).to_le_bytes());
    into.extend(options.unsent_max.unwrap_or(0).to_le_bytes());
    into.extend(options.segment_bytes_max.unwrap_or(0).to_le_bytes());
    into.extend([discovery_code(options.mtu_discovery), timing_code(options.timing)]);
    for key in options.fast_open_keys.into_iter().flat_map(|keys| [Some(keys.primary), keys.backup]).flatten() {
        into.extend(key);
    }
}

pub(super) fn put_info(into: &mut Vec<u8>, info: &ConnectionInfo) {
    into.extend(info.tcp_info);
    into.push(put_flags(&[info.bbr_info.is_some()]));
    into.extend(info.bbr_info.into_iter().flatten());
    put_options(into, &info.options);
}
