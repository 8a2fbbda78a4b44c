//! Captures of a stack's frames in the pcapng format. Each device is an interface, each frame has a direction, and each dropped
//! frame has the reason as a comment. If no capture runs, each frame needs only one comparison.

use crate::drops::DropReason;
use crate::link::device::{Device, Medium};
use crate::link::frame::{DeviceId, Payload, Received};
use crate::pcapng::{Direction, Frame, LinkType, Pcapng};
use crate::time::Instant;

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) file: Pcapng,
    snap_bytes: usize,
}

impl Capture {
    pub(crate) fn new(snap_bytes: usize, bytes_max: usize) -> Self {
        Self { file: Pcapng::new(bytes_max), snap_bytes }
    }

    pub(crate) fn add_device(&mut self, id: usize, device: &Device) {
        let link_type = match device.config.medium {
            Medium::Ethernet(_) => LinkType::Ethernet,
            Medium::Ip => LinkType::Ip,
        };
        self.file.add_interface(&format!("device {id}"), link_type);
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
        let direction = Some(Direction::In);
        self.file.add(Frame { at, interface: device.0.into(), direction, bytes, len: *len, comment: &comment });
    }

    pub(crate) fn sent(&mut self, at: Instant, device: DeviceId, frame: &[u8]) {
        let (bytes, len) = (&frame[..frame.len().min(self.snap_bytes)], frame.len());
        let direction = Some(Direction::Out);
        self.file.add(Frame { at, interface: device.0.into(), direction, bytes, len, comment: "" });
    }
}
