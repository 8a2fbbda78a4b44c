//! A TAP or TUN device: frames with their marks, read and written without waiting.

use crate::options::DeviceOption;
use crate::vnet;
use rustix::io::Errno;
use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use siga_stack::link::frame::Marks;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Room for a frame and what stands before it.
pub(crate) const BUFFER_BYTES: usize = vnet::HEADER_BYTES + FRAME_BYTES_MAX;

/// An open device.
pub(crate) struct Tap {
    pub(crate) name: String,
    device: SyncDevice,
    /// Bytes of the link header.
    link_bytes: usize,
    /// Frames have a header of virtio before them.
    offload: bool,
    /// Frames that the kernel did not take, or whose marks were not agreed to.
    pub(crate) unfit: u64,
}

impl Tap {
    /// Makes the device, with the kernel's addresses, and brings it up.
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

    /// The next frame, if there is one.
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
            if let Some(marks) = buffer[..count].first_chunk().and_then(vnet::marks) {
                return Ok(Some((&buffer[vnet::HEADER_BYTES..count], marks)));
            }
            self.unfit += 1;
        }
    }

    /// Sends a frame that lies in two parts.
    pub(crate) fn send(&mut self, first: &[u8], rest: &[u8], marks: Marks) {
        let mut head = [0; HEADER_BYTES_MAX];
        let (from_first, from_rest, header);
        let sent = if self.offload {
            // What the kernel wants in the checksum's field is written into a copy of the headers.
            from_first = first.len().min(head.len());
            from_rest = rest.len().min(head.len() - from_first);
            head[..from_first].copy_from_slice(&first[..from_first]);
            head[from_first..from_first + from_rest].copy_from_slice(&rest[..from_rest]);
            let head = &mut head[..from_first + from_rest];
            header = vnet::header(head, self.link_bytes, marks);
            header.is_some_and(|header| self.write(&[&header, head, &first[from_first..], &rest[from_rest..]]))
        } else {
            self.write(&[&[], &[], first, rest])
        };
        self.unfit += u64::from(!sent);
    }

    /// True if the kernel took it.
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
