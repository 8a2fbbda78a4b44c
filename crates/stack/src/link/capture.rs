//! Captures of a stack's frames in the pcapng format. Each device is an interface, each frame has a direction, and each dropped
//! frame has the reason as a comment. If no capture runs, each frame needs only one comparison.
//!
//! All interfaces of a file have the link type Ethernet, because libpcap reads no file with several link types. A frame of a device
//! without link headers gets an Ethernet header with zero addresses.

use crate::drops::DropReason;
use crate::link::device::{Device, Medium};
use crate::link::frame::{DeviceId, Payload, Received};
use crate::pcapng::{Direction, Frame, LinkType, Pcapng};
use crate::time::Instant;
use crate::wire::ethernet::LINK_BYTES;
use smoltcp::wire::{EthernetFrame, EthernetProtocol};

/// The settings of a capture.
#[derive(Debug, Clone, Copy)]
pub struct CaptureSettings {
    /// Number of bytes that are captured of each frame, from its beginning. An added Ethernet header does not count.
    pub snap_bytes: usize,
    /// Number of bytes of the file that wait for [`Stack::take_capture`](crate::Stack::take_capture) at most.
    pub bytes_max: usize,
    /// The time of the stack's instant 0, in nanoseconds since the beginning of 1970 (UTC).
    pub epoch_ns: u64,
}

/// A captured device.
#[derive(Debug)]
struct Interface {
    name: String,
    /// Whether the device's frames have no link header.
    is_bare: bool,
    /// The number of the interface in the file, once a frame has been captured.
    number: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) file: Pcapng,
    snap_bytes: usize,
    epoch_ns: u64,
    interfaces: Vec<Interface>,
}

impl Capture {
    pub(crate) fn new(settings: CaptureSettings) -> Self {
        let CaptureSettings { snap_bytes, bytes_max, epoch_ns } = settings;
        Self { file: Pcapng::new(bytes_max), snap_bytes, epoch_ns, interfaces: Vec::new() }
    }

    pub(crate) fn add_device(&mut self, device: &Device) {
        let is_bare = match device.config.medium {
            Medium::Ethernet(_) => false,
            Medium::Ip => true,
        };
        let name = match device.name.as_str() {
            "" => format!("device {}", self.interfaces.len()),
            name => name.to_owned(),
        };
        self.interfaces.push(Interface { name, is_bare, number: None });
    }

    /// Renames a device. Its interface keeps an earlier name if frames have been captured.
    pub(crate) fn rename_device(&mut self, device: DeviceId, name: &str) {
        if let Some(interface) = self.interfaces.get_mut(usize::from(device.0)) {
            name.clone_into(&mut interface.name);
        }
    }

    /// Returns the bytes of a received frame that the capture stores, and the length of the complete frame.
    pub(crate) fn part<P: Payload + ?Sized>(&self, received: Received<'_, P>) -> (Vec<u8>, usize) {
        let (header, payload) = (received.header, received.payload.len());
        let mut bytes = header[..header.len().min(self.snap_bytes)].to_vec();
        let behind = payload.min(self.snap_bytes - bytes.len());
        if behind > 0 {
            let at = bytes.len();
            bytes.resize(at + behind, 0);
            received.payload.copy_to(0, &mut bytes[at..]);
        }
        (bytes, header.len() + payload)
    }

    pub(crate) fn received(&mut self, at: Instant, device: DeviceId, part: &(Vec<u8>, usize), why: Option<DropReason>) {
        let comment = why.map_or_else(String::new, |reason| format!("dropped: {reason}"));
        let (bytes, len) = part;
        self.add(at, device, Direction::In, (bytes, *len), &comment);
    }

    pub(crate) fn sent(&mut self, at: Instant, device: DeviceId, frame: &[u8]) {
        let bytes = &frame[..frame.len().min(self.snap_bytes)];
        self.add(at, device, Direction::Out, (bytes, frame.len()), "");
    }

    fn add(&mut self, at: Instant, device: DeviceId, direction: Direction, frame: (&[u8], usize), comment: &str) {
        let Some(interface) = self.interfaces.get_mut(usize::from(device.0)) else { return };
        let number = match interface.number {
            Some(number) => number,
            None => *interface.number.insert(self.file.add_interface(&interface.name, LinkType::Ethernet)),
        };
        let (bytes, len) = frame;
        let with_header;
        let (bytes, len) = if interface.is_bare {
            with_header = [&ethernet_header(bytes)[..], bytes].concat();
            (&with_header[..], len + LINK_BYTES)
        } else {
            (bytes, len)
        };
        let at = Instant::from_ns(self.epoch_ns + at.as_ns());
        self.file.add(Frame { at, interface: number, direction: Some(direction), bytes, len, comment });
    }
}

/// Returns an Ethernet header with zero addresses for an IP packet. The first byte of the packet contains the version of IP.
fn ethernet_header(packet: &[u8]) -> [u8; LINK_BYTES] {
    let protocol = match packet.first().map(|byte| byte >> 4) {
        Some(6) => EthernetProtocol::Ipv6,
        _ => EthernetProtocol::Ipv4,
    };
    let mut header = [0; LINK_BYTES];
    EthernetFrame::new_unchecked(&mut header).set_ethertype(protocol);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::device::{Agreed, DeviceConfig};
    use crate::wire::ethernet::MacAddress;

    #[test]
    fn a_capture_of_devices_with_and_without_link_headers_has_one_link_type() {
        let device = |medium| {
            let config = DeviceConfig { medium, mtu: 1_500, addresses: Vec::new(), agreed: Agreed::default() };
            Device::new(config).unwrap()
        };
        let mut capture = Capture::new(CaptureSettings { snap_bytes: 4, bytes_max: 1_000, epoch_ns: 7 << 32 });
        capture.add_device(&device(Medium::Ethernet(MacAddress([2; 6]))));
        let mut named = device(Medium::Ip);
        named.name = "lan".to_owned();
        capture.add_device(&named);
        let at = Instant::from_ns(5);
        capture.sent(at, DeviceId(1), &[0x60, 1, 2, 3, 4]);
        capture.sent(at, DeviceId(0), &[0x11; 20]);
        capture.rename_device(DeviceId(1), "late");
        capture.sent(at, DeviceId(1), &[0x45, 1]);
        let file = capture.file.take();
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let mut blocks = Vec::new();
        let mut at = 0;
        while at < file.len() {
            blocks.push(&file[at..at + word(at + 4) as usize]);
            at += word(at + 4) as usize;
        }
        let [_, lan, six, other, ethernet, four] = blocks[..] else { panic!("{} blocks", blocks.len()) };
        assert!(lan.starts_with(&[1, 0, 0, 0]) && lan[8] == 1 && lan.windows(3).any(|part| part == b"lan"));
        assert!(other.starts_with(&[1, 0, 0, 0]) && other[8] == 1);
        assert!(other.windows(8).any(|part| part == b"device 0"));
        // Interface, high and low half of the time, captured length, length, frame.
        assert_eq!(six[8..28], [[0; 4], [7, 0, 0, 0], [5, 0, 0, 0], [18, 0, 0, 0], [19, 0, 0, 0]].concat());
        assert_eq!(six[28..46], [&[0; 12][..], &[0x86, 0xdd, 0x60, 1, 2, 3]].concat());
        assert_eq!(ethernet[20..32], [[4, 0, 0, 0], [20, 0, 0, 0], [0x11; 4]].concat());
        assert_eq!(four[28..44], [&[0; 12][..], &[8, 0, 0x45, 1]].concat());
    }
}
