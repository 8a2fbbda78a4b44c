//! The TAP device of a port: non-blocking reads and writes of frames with a virtio header. The control program has opened and
//! configured the device.

use crate::backpressure::Backpressure;
use rustix::io::Errno;
use siga_stack::link::virtio;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An open TAP device.
#[derive(Debug)]
pub(crate) struct Tap {
    device: OwnedFd,
    /// The registration of the device with the event loop.
    pub(crate) registration: u64,
    /// True if frames may be waiting, so that the device is read.
    pub(crate) is_hot: bool,
    /// True if the event loop waits for frames of this device.
    pub(crate) is_listening: bool,
    pub(crate) backpressure: Backpressure,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// A frame with its virtio header, of this length.
    Frame(usize),
    /// No frame is waiting.
    Nothing,
    /// The kernel could not pass the next frame, and has dropped it.
    Failed,
    /// The device is gone, for example because its namespace has ended.
    Gone(Errno),
}

impl Tap {
    pub(crate) fn new(device: OwnedFd, registration: u64) -> Self {
        Self { device, registration, is_hot: true, is_listening: true, backpressure: Backpressure::default() }
    }

    /// Returns whether the event loop has to look at the device.
    pub(crate) fn needs_care(&self) -> bool {
        self.is_hot || self.backpressure.waits_for().is_some()
    }

    /// Reads the next frame.
    #[inline]
    pub(crate) fn read(&self, into: &mut [u8]) -> Read {
        loop {
            match rustix::io::read(&self.device, &mut *into) {
                Ok(len) => return Read::Frame(len),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Read::Nothing,
                Err(error @ (Errno::BADFD | Errno::NETDOWN | Errno::NODEV | Errno::NXIO)) => return Read::Gone(error),
                // For example the header cannot express how the frame is segmented.
                Err(_) => return Read::Failed,
            }
        }
    }

    /// Writes a frame that consists of several parts. Returns false if the kernel did not take it.
    #[inline]
    pub(crate) fn write(&self, header: &[u8; virtio::HEADER_BYTES], head: &[u8], rest: &[u8]) -> bool {
        let parts = [IoSlice::new(header), IoSlice::new(head), IoSlice::new(rest)];
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{Mode, OFlags, open};

    #[test]
    fn only_errors_of_a_device_that_is_gone_end_its_port() {
        // A read of fewer than 8 bytes from this descriptor fails with EINVAL.
        let tap = Tap::new(eventfd(1, EventfdFlags::NONBLOCK).unwrap(), 0);
        assert_eq!(tap.read(&mut [0; 4]), Read::Failed);
        assert_eq!(tap.read(&mut [0; 8]), Read::Frame(8));
        assert_eq!(tap.read(&mut [0; 8]), Read::Nothing);
        // A descriptor without an interface fails as one whose interface was deleted.
        if let Ok(device) = open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()) {
            assert_eq!(Tap::new(device, 0).read(&mut [0; 8]), Read::Gone(Errno::BADFD));
        }
    }
}
