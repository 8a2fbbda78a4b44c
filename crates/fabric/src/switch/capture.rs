//! The capture of a switch: the frames of all its ports, in one file.

use siga_stack::pcapng::{Direction, Frame, LinkType, Pcapng};
use siga_stack::time::Instant;

/// A capture of a switch's frames, or of the blocks of a guest's devices. Each port or link is an interface.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) file: Pcapng,
    link_type: LinkType,
    snap_bytes: usize,
    epoch_ns: u64,
    /// The number of each port's interface in the file.
    interfaces: Vec<Option<u32>>,
}

impl Capture {
    pub(crate) fn new(link_type: LinkType, (snap_bytes, bytes_max): (usize, usize), epoch_ns: u64) -> Self {
        Self { file: Pcapng::new(bytes_max), link_type, snap_bytes, epoch_ns, interfaces: Vec::new() }
    }

    /// Forgets the interface of a port, because another port has its number now.
    pub(crate) fn forget(&mut self, port: usize) {
        if let Some(interface) = self.interfaces.get_mut(port) {
            *interface = None;
        }
    }

    /// Adds a frame. `rest` copies the bytes behind the header.
    pub(crate) fn add(
        &mut self,
        at: Instant,
        (port, label): (usize, &str),
        direction: Direction,
        (header, frame_bytes): (&[u8], usize),
        rest: impl FnOnce(&mut [u8]),
        comment: &str,
    ) {
        if self.interfaces.len() <= port {
            self.interfaces.resize(port + 1, None);
        }
        let interface = match self.interfaces[port] {
            Some(known) => known,
            None => {
                let added = self.file.add_interface(label, self.link_type);
                self.interfaces[port] = Some(added);
                added
            }
        };
        let kept = frame_bytes.min(self.snap_bytes);
        let mut bytes = header[..header.len().min(kept)].to_vec();
        if kept > header.len() {
            bytes.resize(kept, 0);
            rest(&mut bytes[header.len()..]);
        }
        let at = Instant::from_ns(self.epoch_ns.saturating_add(at.as_ns()));
        self.file.add(Frame { at, interface, direction: Some(direction), bytes: &bytes, len: frame_bytes, comment });
    }
}
