//! The doorbell: a pipe, made by a third party, whose write end is the sender's and whose read end the receiver's.
//!
//! Both ends are non-blocking, and each is an open file of its own, so that neither side can change the other's flags (those of
//! an eventfd are shared: a peer could make its victim wait in a read). A ring is one byte, a hint that may be wrong either
//! way. A pipe that is full has rung already. The hang-up of either end is the death notice of who held it.

use crate::limits::DOORBELL_PIPE_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A doorbell in two ends, for the control program to hand out.
///
/// # Errors
/// The host has no descriptors or memory left.
pub fn pair() -> io::Result<(Bell, Ear)> {
    let (ear, bell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // The pipes of many guests would use up what a user may have (fs.pipe-user-pages-soft). Miri has one size of pipe.
    if !cfg!(miri) {
        fcntl_setpipe_size(&bell, DOORBELL_PIPE_BYTES)?;
    }
    Ok((Bell(bell), Ear(ear)))
}

/// What became of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// It will be heard.
    Sent,
    /// The pipe is full: earlier ones have yet to be heard.
    Full,
    /// Nobody is there to hear it.
    Gone,
}

/// The end that rings.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A doorbell's write end as it was received from its maker; it is made non-blocking.
    ///
    /// # Errors
    /// The descriptor's flags cannot be set.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(non_blocking(fd)?))
    }

    /// Rings, in one system call that does not wait. The program has to ignore SIGPIPE, as Rust programs do.
    pub fn ring(&self) -> Ring {
        match retry_on_intr(|| write(&self.0, &[1])) {
            Ok(_) => Ring::Sent,
            Err(Errno::AGAIN) => Ring::Full,
            Err(_) => Ring::Gone,
        }
    }
}

/// The end that listens: readable after a ring, hung up when the peer is dead.
#[derive(Debug)]
pub struct Ear(OwnedFd);

/// What an ear heard since it was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Rings; no more than the pipe holds.
    pub rings: usize,
    /// Nobody is left to ring.
    pub hung_up: bool,
}

impl Ear {
    /// A doorbell's read end as it was received from its maker; it is made non-blocking.
    ///
    /// # Errors
    /// The descriptor's flags cannot be set.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(non_blocking(fd)?))
    }

    /// Takes the rings there are, in one system call that does not wait: a peer that goes on ringing is heard again next time.
    ///
    /// # Errors
    /// The descriptor is no doorbell.
    pub fn drain(&self) -> io::Result<Heard> {
        let mut rings = [0; DOORBELL_PIPE_BYTES];
        match read(&self.0, &mut rings) {
            Ok(0) => Ok(Heard { rings: 0, hung_up: true }),
            Ok(rings) => Ok(Heard { rings, hung_up: false }),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Heard { rings: 0, hung_up: false }),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the peer is dead, without taking the rings that it left.
    ///
    /// # Errors
    /// The kernel has no memory for the question.
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

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Bell> for OwnedFd {
    fn from(bell: Bell) -> Self {
        bell.0
    }
}

impl From<Ear> for OwnedFd {
    fn from(ear: Ear) -> Self {
        ear.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has one size of pipe")]
    fn rings_are_heard_and_a_full_pipe_has_rung() {
        let (bell, ear) = pair().unwrap();
        assert_eq!(ear.drain().unwrap(), Heard { rings: 0, hung_up: false });
        assert_eq!(bell.ring(), Ring::Sent);
        assert_eq!(bell.ring(), Ring::Sent);
        assert_eq!(ear.drain().unwrap(), Heard { rings: 2, hung_up: false });
        let sent = std::iter::repeat_with(|| bell.ring()).take_while(|ring| *ring == Ring::Sent).count();
        assert_eq!(sent, DOORBELL_PIPE_BYTES);
        assert_eq!(bell.ring(), Ring::Full);
        assert_eq!(ear.drain().unwrap(), Heard { rings: sent, hung_up: false });
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri polls no pipe")]
    fn either_end_learns_that_the_other_is_gone() {
        let (bell, ear) = pair().unwrap();
        assert!(!ear.has_hung_up().unwrap());
        assert_eq!(bell.ring(), Ring::Sent);
        drop(bell);
        assert!(ear.has_hung_up().unwrap());
        assert_eq!(ear.drain().unwrap(), Heard { rings: 1, hung_up: false });
        assert_eq!(ear.drain().unwrap(), Heard { rings: 0, hung_up: true });
        let (bell, ear) = pair().unwrap();
        drop(ear);
        assert_eq!(bell.ring(), Ring::Gone);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has one size of pipe")]
    fn flags_of_the_other_end_of_a_doorbell_make_nobody_wait() {
        let (bell, ear) = pair().unwrap();
        let flags = |fd: BorrowedFd<'_>| fcntl_getfl(fd).unwrap();
        fcntl_setfl(&bell, flags(bell.as_fd()) - OFlags::NONBLOCK).unwrap();
        assert_eq!(ear.drain().unwrap(), Heard { rings: 0, hung_up: false });
        let (bell, ear) = pair().unwrap();
        fcntl_setfl(&ear, flags(ear.as_fd()) - OFlags::NONBLOCK).unwrap();
        while bell.ring() == Ring::Sent {}
        assert_eq!(bell.ring(), Ring::Full);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has one size of pipe")]
    fn an_end_that_was_received_does_not_wait_whatever_its_flags_were() {
        let (ear, bell) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (bell, ear) = (Bell::from_fd(bell).unwrap(), Ear::from_fd(ear).unwrap());
        assert_eq!(ear.drain().unwrap(), Heard { rings: 0, hung_up: false });
        while bell.ring() == Ring::Sent {}
        assert_eq!(bell.ring(), Ring::Full);
    }
}
