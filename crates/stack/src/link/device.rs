//! Devices: the attachments of a stack to networks. Each device has addresses and a queue of frames to send.

use crate::drops::LinkDrop;
use crate::limits::{
    DEVICE_ADDRESSES_MAX, DEVICE_QUEUE_BYTES_MAX, DEVICE_QUEUE_FRAMES_MAX, MTU_IPV4_MIN, MTU_IPV6_MIN,
};
use crate::link::frame::Marks;
use crate::link::source::SourceFilter;
use crate::wire::address::{Prefix, is_link_local};
use crate::wire::ethernet::{LINK_BYTES, MacAddress};
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The link header with which a device's frames begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Frames begin with an Ethernet header. The field is the device's own link address.
    Ethernet(MacAddress),
    /// Frames have no link header: a frame is an IP packet. The link connects exactly two stations.
    Ip,
}

/// Kinds of frames that both ends of a link agreed to accept in addition to ordinary frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agreed {
    /// Whether frames may have an unfilled TCP or UDP checksum.
    pub checksum_unfilled: bool,
    /// Whether TCP segments of up to 64 KB may cross the link in one frame, regardless of the MTU.
    pub large_segments: bool,
}

impl Agreed {
    /// Returns whether a frame with these marks may cross the link as it is.
    #[inline]
    pub fn covers(self, marks: Marks) -> bool {
        (!marks.checksum_unfilled || self.checksum_unfilled) && (marks.segment_bytes == 0 || self.large_segments)
    }
}

/// The configuration of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The link header with which the device's frames begin.
    pub medium: Medium,
    /// Maximum size of an IP packet, in bytes.
    pub mtu: u16,
    /// The device's own addresses, each with the prefix length of its network.
    pub addresses: Vec<Prefix>,
    /// Kinds of frames that both ends of the link agreed to accept.
    pub agreed: Agreed,
}

/// The reason for which a device cannot be added or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceError {
    /// The stack has [`crate::limits::DEVICES_MAX`] devices already. Or the device has too many addresses, the stack has too many
    /// routes, or a source filter has too many prefixes.
    Full,
    /// The MTU is smaller than the minimum of an IP version for which the device has an address.
    Mtu,
    /// An address is invalid: no station can have it.
    Address,
    /// The stack has no such device.
    NoDevice,
}

/// Counters of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceCounters {
    /// Number of received frames.
    pub frames_received: u64,
    /// Number of bytes in received frames.
    pub bytes_received: u64,
    /// Number of sent frames. Forwarded frames are included.
    pub frames_sent: u64,
    /// Number of bytes in sent frames.
    pub bytes_sent: u64,
}

/// A packet to send. `bytes` has [`LINK_BYTES`] of room in front of the packet.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) marks: Marks,
}

impl Outgoing {
    pub(crate) fn packet(&self) -> &[u8] {
        &self.bytes[LINK_BYTES..]
    }
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) config: DeviceConfig,
    /// The name in captures. If it is empty, the device's number stands for it.
    pub(crate) name: String,
    pub(crate) counters: DeviceCounters,
    pub(crate) filter: SourceFilter,
    queue: VecDeque<Outgoing>,
    pub(crate) queue_bytes: usize,
}

impl Device {
    pub(crate) fn new(config: DeviceConfig) -> Result<Self, DeviceError> {
        if config.addresses.len() > DEVICE_ADDRESSES_MAX {
            return Err(DeviceError::Full);
        }
        if let Medium::Ethernet(mac) = config.medium
            && mac.is_group()
        {
            return Err(DeviceError::Address);
        }
        let unicast = |prefix: &Prefix| match prefix.address() {
            IpAddr::V4(a) => !a.is_multicast() && !a.is_broadcast() && a.octets()[0] != 0 && !a.is_loopback(),
            IpAddr::V6(a) => !a.is_multicast() && !a.is_unspecified() && !a.is_loopback(),
        };
        if !config.addresses.iter().all(unicast) {
            return Err(DeviceError::Address);
        }
        check_mtu(&config.addresses, config.mtu)?;
        let (counters, filter) = (DeviceCounters::default(), SourceFilter::default());
        let name = String::new();
        Ok(Self { config, name, counters, filter, queue: VecDeque::new(), queue_bytes: 0 })
    }

    pub(crate) fn link_bytes(&self) -> usize {
        match self.config.medium {
            Medium::Ethernet(_) => LINK_BYTES,
            Medium::Ip => 0,
        }
    }

    /// Returns the source address for packets to `to`. If the device has an address on the same network as `to`, that address is
    /// returned. Otherwise it is the first address of that IP version, if possible one that is not link-local.
    pub(crate) fn address_for(&self, to: IpAddr) -> Option<IpAddr> {
        let same_version = || self.config.addresses.iter().filter(|p| p.address().is_ipv4() == to.is_ipv4());
        same_version()
            .find(|p| p.covers(to))
            .or_else(|| same_version().find(|p| !is_link_local(p.address())))
            .or_else(|| same_version().next())
            .map(|p| p.address())
    }

    /// Returns whether the address belongs to this device.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.config.addresses.iter().any(|own| own.address() == address)
    }

    /// Adds a frame to the transmit queue. The frame's link header must be complete.
    pub(crate) fn push(&mut self, outgoing: Outgoing) -> Result<(), LinkDrop> {
        let bytes = self.queue_bytes + outgoing.bytes.len();
        if self.queue.len() >= DEVICE_QUEUE_FRAMES_MAX || bytes > DEVICE_QUEUE_BYTES_MAX {
            return Err(LinkDrop::QueueFull);
        }
        self.queue_bytes = bytes;
        self.queue.push_back(outgoing);
        Ok(())
    }

    /// Removes the next frame from the queue and returns it, if it fits into `room` bytes. The second value is the number of
    /// unused bytes in front of the frame.
    pub(crate) fn pop(&mut self, room: usize) -> Option<(Outgoing, usize)> {
        let skip = LINK_BYTES - self.link_bytes();
        self.queue.front().filter(|frame| frame.bytes.len() - skip <= room)?;
        let outgoing = self.queue.pop_front()?;
        self.queue_bytes -= outgoing.bytes.len();
        self.count_sent(1, (outgoing.bytes.len() - skip) as u64);
        Some((outgoing, skip))
    }

    pub(crate) fn next_bytes(&self) -> Option<usize> {
        let skip = LINK_BYTES - self.link_bytes();
        self.queue.front().map(|frame| frame.bytes.len() - skip)
    }

    /// Returns whether the transmit queue is empty.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, frames: u64, bytes: u64) {
        self.counters.frames_sent += frames;
        self.counters.bytes_sent += bytes;
    }

    /// Writes the link header into the room in front of a packet.
    #[inline]
    pub(crate) fn write_link_header(&self, to: MacAddress, protocol: EthernetProtocol, into: &mut [u8]) {
        if let Medium::Ethernet(own) = self.config.medium {
            let mut frame = EthernetFrame::new_unchecked(&mut into[..LINK_BYTES]);
            frame.set_dst_addr(EthernetAddress(to.0));
            frame.set_src_addr(EthernetAddress(own.0));
            frame.set_ethertype(protocol);
        }
    }
}

/// Checks an MTU against the minimum for the IP versions of the device's addresses.
pub(crate) fn check_mtu(addresses: &[Prefix], mtu: u16) -> Result<(), DeviceError> {
    let v6 = addresses.iter().any(|prefix| prefix.address().is_ipv6());
    let mtu_min = if v6 { MTU_IPV6_MIN } else { MTU_IPV4_MIN };
    if mtu < mtu_min { Err(DeviceError::Mtu) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(address: &str, length: u8, mtu: u16) -> DeviceConfig {
        let addresses = vec![Prefix::new(address.parse().unwrap(), length).unwrap()];
        DeviceConfig { medium: Medium::Ip, mtu, addresses, agreed: Agreed::default() }
    }

    #[test]
    fn an_invalid_device_configuration_is_refused() {
        for (address, mtu, error) in [
            ("10.0.0.1", 575, DeviceError::Mtu),
            ("2001:db8::1", 1279, DeviceError::Mtu),
            ("224.0.0.1", 1500, DeviceError::Address),
            ("0.0.0.0", 1500, DeviceError::Address),
            ("127.0.0.1", 1500, DeviceError::Address),
            ("ff02::1", 1500, DeviceError::Address),
        ] {
            assert_eq!(Device::new(config(address, 8, mtu)).unwrap_err(), error, "{address}");
        }
        let mut many = config("10.0.0.1", 8, 1500);
        many.addresses = vec![many.addresses[0]; DEVICE_ADDRESSES_MAX + 1];
        assert_eq!(Device::new(many).unwrap_err(), DeviceError::Full);
        let group = DeviceConfig { medium: Medium::Ethernet(MacAddress([1; 6])), ..config("10.0.0.1", 8, 1500) };
        assert_eq!(Device::new(group).unwrap_err(), DeviceError::Address);
    }

    #[test]
    fn packets_get_the_source_address_of_their_network() {
        let mut config = config("fe80::1", 64, 1500);
        for (address, length) in [("10.1.0.1", 24), ("10.2.0.1", 24), ("2001:db8::1", 64)] {
            config.addresses.push(Prefix::new(address.parse().unwrap(), length).unwrap());
        }
        let device = Device::new(config).unwrap();
        for (to, from) in [
            ("10.1.0.9", "10.1.0.1"),
            ("10.2.0.9", "10.2.0.1"),
            ("192.0.2.1", "10.1.0.1"),
            ("fe80::9", "fe80::1"),
            ("2001:db8:9::1", "2001:db8::1"),
        ] {
            assert_eq!(device.address_for(to.parse().unwrap()), Some(from.parse().unwrap()), "{to}");
        }
    }

    #[test]
    fn the_device_queue_is_bounded_in_frames_and_in_bytes() {
        for (bytes, frames) in [(64, DEVICE_QUEUE_FRAMES_MAX), (65_536, DEVICE_QUEUE_BYTES_MAX / 65_536)] {
            let mut device = Device::new(config("10.0.0.1", 8, 1500)).unwrap();
            let frame = || Outgoing { bytes: vec![0; bytes], marks: Marks::default() };
            assert_eq!((0..2000).filter(|_| device.push(frame()).is_ok()).count(), frames);
            assert!(device.pop(bytes).is_some());
            assert_eq!(device.push(frame()), Ok(()));
        }
    }
}
