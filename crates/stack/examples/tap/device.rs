//! A TAP or TUN device: non-blocking reads and writes of frames with their marks.

use crate::options::DeviceOption;
use rustix::io::Errno;
use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use siga_stack::link::frame::Marks;
use siga_stack::link::virtio;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Room for a frame and the virtio header in front of it.
pub(crate) const BUFFER_BYTES: usize = virtio::HEADER_BYTES + FRAME_BYTES_MAX;

/// An open device.
pub(crate) struct Tap {
    pub(crate) name: String,
    device: SyncDevice,
    /// The length of the link header.
    link_bytes: usize,
    /// Whether frames have a virtio header.
    offload: bool,
    /// The number of frames that the kernel did not accept, or whose marks are not supported.
    pub(crate) unfit: u64,
}

impl Tap {
    /// Makes the device, assigns the kernel's addresses, and brings it up.
    pub(crate) fn open(option: &DeviceOption, tun: bool, offload: bool) -> io::Result<Self> {
        let layer = if tun { Layer::L3 } else { Layer::L2 };
        let mut builder = DeviceBuilder::new().name(&option.name).layer(layer).mtu(option.mtu).enable(true);
        for prefix in &option.kernel {
            builder = match prefix.address() {
                IpAddr::V4(address) => builder.ipv4(address, prefix.length(), None),
                IpAddr::V6(address) => builder.ipv6(address, prefix.length()),
            };
        }
        let device = builder.with(|builder| _ = builder.offload(offload)).build_sync()?;
        device.set_nonblocking(true)?;
        let link_bytes = if tun { 0 } else { 14 };
        Ok(Self { name: option.name.clone(), device, link_bytes, offload, unfit: 0 })
    }

    /// Receives the next frame; `None` if no frame is waiting.
    pub(crate) fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<(&'a [u8], Marks)>> {
        loop {
            let count = match rustix::io::read(&self.device, &mut *buffer) {
                Ok(count) => count,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if !self.offload {
                return Ok(Some((&buffer[..count], Marks::default())));
            }
            let link_bytes = self.link_bytes;
            let marks = buffer[..count]
                .split_first_chunk_mut()
                .and_then(|(header, frame)| virtio::receive(header, frame, link_bytes));
            if let Some(marks) = marks {
                return Ok(Some((&buffer[virtio::HEADER_BYTES..count], marks)));
            }
            self.unfit += 1;
        }
    }

    /// Sends a frame that consists of two parts.
    pub(crate) fn send(&mut self, first: &[u8], rest: &[u8], marks: Marks) {
        let mut head = [0; HEADER_BYTES_MAX];
        let (from_first, from_rest, header);
        let sent = if self.offload {
            // The kernel expects a partial checksum in the field, so it is written into a copy of the headers.
            from_first = first.len().min(head.len());
            from_rest = rest.len().min(head.len() - from_first);
            head[..from_first].copy_from_slice(&first[..from_first]);
            head[from_first..from_first + from_rest].copy_from_slice(&rest[..from_rest]);
            let head = &mut head[..from_first + from_rest];
            header = virtio::header(head, self.link_bytes, marks);
            header.is_some_and(|header| self.write(&[&header, head, &first[from_first..], &rest[from_rest..]]))
        } else {
            self.write(&[&[], &[], first, rest])
        };
        self.unfit += u64::from(!sent);
    }

    /// Writes a frame. Returns true if the kernel accepted it.
    fn write(&self, parts: &[&[u8]; 4]) -> bool {
        let parts = parts.map(IoSlice::new);
        loop {
            match rustix::io::writev(&self.device, &parts) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
