//! The doorbell: a pipe that carries notifications to the other end of a link. The control program (the process that sets up
//! links) makes it. Its write end is the sender's notify descriptor. Its read end is the receiver's wake descriptor.
//!
//! Both ends are non-blocking. Each end is a separate open file, so no side can change the file status flags of the other end.
//! The two sides of an eventfd would share these flags, so a peer could clear `O_NONBLOCK` and make its victim block in a read. A
//! notification is a hint: it can be missing or spurious. It contains the CPU and the time at which its sender sent it. A full
//! pipe is no problem, because earlier notifications wake the receiver. If the process at one end dies, the other end reports a
//! hang-up.

use crate::clock::Ticks;
use crate::limits::DOORBELL_PIPE_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::thread::sched_getcpu;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Makes a doorbell and returns both of its ends. The control program sends each end to a guest.
///
/// # Errors
/// Returns an error if the host has no descriptors or memory left.
pub fn pair() -> io::Result<(NotifyFd, WakeFd)> {
    let (wake_fd, notify_fd) = pipe()?;
    Ok((NotifyFd { pipe: notify_fd, reader: None }, WakeFd(wake_fd)))
}

/// Makes a non-blocking pipe of one page and returns its read end and its write end. All pipes between processes of a virtual
/// network have this small size. The reason is that the kernel limits the total number of a user's pipe pages
/// (`fs.pipe-user-pages-soft`).
///
/// # Errors
/// Returns an error if the host has no descriptors or memory left.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // Miri does not support changing the size of a pipe.
    if !cfg!(miri) {
        fcntl_setpipe_size(&write, DOORBELL_PIPE_BYTES)?;
    }
    Ok((read, write))
}

/// Size of a notification in the pipe, in bytes.
const NOTIFICATION_BYTES: usize = 8;
/// Number of bits in a notification that contain the time. The other bits contain the sender's CPU, and [`FIXED`].
const MOMENT_BITS: u32 = 48;
const MOMENT_MAX: u64 = u64::MAX >> (u64::BITS - MOMENT_BITS);

/// The bit of the CPU's 16 bits that says that the sender's thread is fixed.
const FIXED: u16 = 1 << 15;

/// The CPU on which a notification was sent, and the time, as the sender claims. All of it can be false.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// The sender's CPU.
    pub cpu: u16,
    /// True if the sender's thread is fixed: it does not move to the CPU of its partners, because it belongs to a program whose
    /// placement siga must not change.
    pub is_fixed: bool,
    /// Time of the notification, without its highest bits.
    pub at: Ticks,
}

impl Notification {
    fn here(is_fixed: bool) -> Self {
        // Miri does not support `sched_getcpu`.
        let cpu = if cfg!(miri) { 0 } else { sched_getcpu() };
        Self { cpu: u16::try_from(cpu).unwrap_or(u16::MAX) & !FIXED, is_fixed, at: Ticks::now() }
    }

    fn to_bytes(self) -> [u8; NOTIFICATION_BYTES] {
        let low = self.cpu & !FIXED | if self.is_fixed { FIXED } else { 0 };
        (self.at.0 << (u64::BITS - MOMENT_BITS) | u64::from(low)).to_le_bytes()
    }

    fn from_bytes(bytes: [u8; NOTIFICATION_BYTES]) -> Self {
        let [low, high, ..] = bytes;
        let at = u64::from_le_bytes(bytes) >> (u64::BITS - MOMENT_BITS);
        let low = u16::from_le_bytes([low, high]);
        Self { cpu: low & !FIXED, is_fixed: low & FIXED != 0, at: Ticks(at) }
    }

    /// Returns the time from the notification to `moment`, or 0 if the notification was sent later.
    #[must_use]
    pub fn before(self, moment: Ticks) -> Ticks {
        let span = moment.0.wrapping_sub(self.at.0) & MOMENT_MAX;
        Ticks(if span > MOMENT_MAX / 2 { 0 } else { span })
    }
}

/// The result of an attempt to send a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notified {
    /// The notification is in the pipe.
    Sent,
    /// The pipe is full of earlier notifications, which wake the receiver too.
    Full,
    /// The receiver has closed its end.
    Gone,
}

/// The notify descriptor: the sender's end.
#[derive(Debug)]
pub struct NotifyFd {
    pipe: OwnedFd,
    /// A read end of the same pipe, which is never read.
    reader: Option<OwnedFd>,
}

impl NotifyFd {
    /// Creates the value from the write end of a doorbell, which the control program sent, and makes the descriptor non-blocking.
    ///
    /// # Errors
    /// Returns an error if the descriptor's flags cannot be set.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { pipe: non_blocking(fd)?, reader: None })
    }

    /// Opens a read end of this descriptor's pipe, for [`NotifyFd::keep_reader`].
    ///
    /// # Errors
    /// Returns an error if the process has no `/proc`, or no descriptors left.
    pub fn open_reader(fd: impl AsFd) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        Ok(open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Keeps a read end of the pipe open. A notification then raises no SIGPIPE after the receiver has closed its end or is dead. The
    /// result is [`Notified::Sent`] or [`Notified::Full`] in this case, and only the wake descriptor reports the hang-up.
    #[must_use]
    pub fn keep_reader(self, reader: OwnedFd) -> Self {
        Self { reader: Some(reader), ..self }
    }

    /// Returns the notify descriptor, and the read end that is kept open.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.pipe.as_fd()].into_iter().chain(self.reader.iter().map(AsFd::as_fd))
    }

    /// Sends a notification, in one system call that does not block. A program that does not ignore SIGPIPE, as Rust programs do by
    /// default, has to keep a read end open ([`NotifyFd::keep_reader`]).
    pub fn notify(&self) -> Notified {
        self.send(Notification::here(false))
    }

    /// Sends a notification as [`NotifyFd::notify`] does, from a thread that is fixed ([`Notification::is_fixed`]).
    pub fn notify_from_fixed(&self) -> Notified {
        self.send(Notification::here(true))
    }

    fn send(&self, notification: Notification) -> Notified {
        let bytes = notification.to_bytes();
        match retry_on_intr(|| write(&self.pipe, &bytes)) {
            Ok(_) => Notified::Sent,
            Err(Errno::AGAIN) => Notified::Full,
            Err(_) => Notified::Gone,
        }
    }
}

/// The wake descriptor: the receiver's end. It is readable after a notification, and reports a hang-up when the peer is dead.
#[derive(Debug)]
pub struct WakeFd(OwnedFd);

/// The notifications that arrived since the last call of [`WakeFd::drain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Number of notifications. It is at most the number for which the pipe has room.
    pub notifications: usize,
    /// The last of these notifications.
    pub last: Option<Notification>,
    /// True if the sender has closed its end or is dead.
    pub hung_up: bool,
}

impl WakeFd {
    /// Creates the value from the read end of a doorbell, which the control program sent, and makes the descriptor non-blocking.
    ///
    /// # Errors
    /// Returns an error if the descriptor's flags cannot be set.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(non_blocking(fd)?))
    }

    /// Reads the notifications from the pipe, in one system call that does not block. There is no second read, so a peer that
    /// sends continuously cannot keep this side busy.
    ///
    /// # Errors
    /// Returns an error if the descriptor is not a doorbell.
    pub fn drain(&self) -> io::Result<Drained> {
        let mut rings = [0; DOORBELL_PIPE_BYTES];
        match read(&self.0, &mut rings) {
            Ok(0) => Ok(Drained { notifications: 0, last: None, hung_up: true }),
            Ok(bytes) => {
                let last = rings[..bytes].last_chunk().copied().map(Notification::from_bytes);
                Ok(Drained { notifications: bytes / NOTIFICATION_BYTES, last, hung_up: false })
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Drained { notifications: 0, last: None, hung_up: false }),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the peer is dead. The notifications stay in the pipe.
    ///
    /// # Errors
    /// Returns an error if the kernel has no memory left for the call.
    pub fn has_hung_up(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        let [fd] = fds;
        Ok(fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
    }
}

fn non_blocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    Ok(fd)
}

impl AsFd for NotifyFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<NotifyFd> for OwnedFd {
    fn from(notify_fd: NotifyFd) -> Self {
        notify_fd.pipe
    }
}

impl From<WakeFd> for OwnedFd {
    fn from(wake_fd: WakeFd) -> Self {
        wake_fd.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::fcntl_getpipe_size;
    use rustix::thread::sched_getaffinity;

    const NOTHING: Drained = Drained { notifications: 0, last: None, hung_up: false };

    #[test]
    #[cfg_attr(miri, ignore = "Miri has one size of pipe")]
    fn notifications_arrive_and_a_full_pipe_reports_full() {
        let (notify_fd, wake_fd) = pair().unwrap();
        assert_eq!(wake_fd.drain().unwrap(), NOTHING);
        let before = Ticks::now();
        assert_eq!(notify_fd.notify(), Notified::Sent);
        assert_eq!(notify_fd.notify(), Notified::Sent);
        let Drained { notifications: 2, last: Some(last), hung_up: false } = wake_fd.drain().unwrap() else {
            panic!("two rings")
        };
        assert!(last.before(Ticks::now()) <= Ticks::now().since(before));
        assert!(sched_getaffinity(None).unwrap().is_set(last.cpu.into()));
        let sent = std::iter::repeat_with(|| notify_fd.notify()).take_while(|ring| *ring == Notified::Sent).count();
        assert_eq!(sent, DOORBELL_PIPE_BYTES / NOTIFICATION_BYTES);
        assert_eq!(notify_fd.notify(), Notified::Full);
        assert_eq!(wake_fd.drain().unwrap().notifications, sent);
    }

    #[test]
    fn a_notification_carries_cpu_and_time() {
        let sent = Notification { cpu: 0x1234, is_fixed: true, at: Ticks(0xabcd_9876_5432_1012) };
        let read = Notification::from_bytes(sent.to_bytes());
        assert_eq!(read, Notification { cpu: 0x1234, is_fixed: true, at: Ticks(0x9876_5432_1012) });
        assert_eq!(read.before(sent.at), Ticks(0));
        assert_eq!(read.before(Ticks(sent.at.0 + 77)), Ticks(77));
        assert_eq!(read.before(Ticks(sent.at.0 - 1)), Ticks(0), "it came after");
        let turns = Notification { cpu: 0, is_fixed: false, at: Ticks(MOMENT_MAX) };
        assert_eq!(turns.before(Ticks(MOMENT_MAX + 5)), Ticks(5), "across the highest bit");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri polls no pipe")]
    fn either_end_learns_that_the_other_is_gone() {
        let (notify_fd, wake_fd) = pair().unwrap();
        assert!(!wake_fd.has_hung_up().unwrap());
        assert_eq!(notify_fd.notify(), Notified::Sent);
        drop(notify_fd);
        assert!(wake_fd.has_hung_up().unwrap());
        assert_eq!(wake_fd.drain().unwrap().notifications, 1);
        assert_eq!(wake_fd.drain().unwrap(), Drained { hung_up: true, ..NOTHING });
        let (notify_fd, wake_fd) = pair().unwrap();
        drop(wake_fd);
        assert_eq!(notify_fd.notify(), Notified::Gone);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no /proc")]
    fn a_notification_with_a_kept_read_end_finds_the_pipe_whole() {
        let (notify_fd, wake_fd) = pair().unwrap();
        let reader = NotifyFd::open_reader(&notify_fd).unwrap();
        let notify_fd = notify_fd.keep_reader(reader);
        assert_eq!(notify_fd.descriptors().count(), 2);
        drop(wake_fd);
        while notify_fd.notify() == Notified::Sent {}
        assert_eq!(notify_fd.notify(), Notified::Full);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has one size of pipe")]
    fn changed_flags_of_one_end_do_not_make_the_other_block() {
        let (notify_fd, wake_fd) = pair().unwrap();
        let flags = |fd: BorrowedFd<'_>| fcntl_getfl(fd).unwrap();
        fcntl_setfl(&notify_fd, flags(notify_fd.as_fd()) - OFlags::NONBLOCK).unwrap();
        assert_eq!(wake_fd.drain().unwrap(), NOTHING);
        let (notify_fd, wake_fd) = pair().unwrap();
        fcntl_setfl(&wake_fd, flags(wake_fd.as_fd()) - OFlags::NONBLOCK).unwrap();
        while notify_fd.notify() == Notified::Sent {}
        assert_eq!(notify_fd.notify(), Notified::Full);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has one size of pipe")]
    fn a_pipe_that_a_peer_made_larger_is_drained_a_page_at_a_time() {
        let (notify_fd, wake_fd) = pair().unwrap();
        assert_eq!(fcntl_getpipe_size(&wake_fd), Ok(DOORBELL_PIPE_BYTES));
        fcntl_setpipe_size(&notify_fd, 16 * DOORBELL_PIPE_BYTES).unwrap();
        let sent = std::iter::repeat_with(|| notify_fd.notify()).take_while(|ring| *ring == Notified::Sent).count();
        assert_eq!(sent, 16 * DOORBELL_PIPE_BYTES / NOTIFICATION_BYTES);
        let heard = [(); 16].map(|()| wake_fd.drain().unwrap().notifications);
        assert_eq!(heard, [DOORBELL_PIPE_BYTES / NOTIFICATION_BYTES; 16]);
        assert_eq!(wake_fd.drain().unwrap(), NOTHING);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has one size of pipe")]
    fn a_received_end_does_not_block_whatever_its_flags_were() {
        let (wake_fd, notify_fd) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (notify_fd, wake_fd) = (NotifyFd::from_fd(notify_fd).unwrap(), WakeFd::from_fd(wake_fd).unwrap());
        assert_eq!(wake_fd.drain().unwrap(), NOTHING);
        while notify_fd.notify() == Notified::Sent {}
        assert_eq!(notify_fd.notify(), Notified::Full);
    }
}
