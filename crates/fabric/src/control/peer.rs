//! Identifies the process at the other end of a connection.

use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A process that this process did not start.
#[derive(Debug)]
pub(super) struct Peer {
    /// The process id.
    pub(super) pid: Pid,
    /// The process descriptor. It becomes readable when the process ends. Afterwards another process may get the same id, but this
    /// descriptor never refers to that process.
    pub(super) pidfd: OwnedFd,
}

impl Peer {
    /// Returns the process at the other end of a connection: the process that called connect(2), listen(2) or socketpair(2) for
    /// that end.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub(super) fn of(connection: impl AsFd) -> io::Result<Self> {
        let pid = sockopt::socket_peercred(&connection)?.pid;
        let pidfd = match sys::peer_pidfd(&connection) {
            Ok(pidfd) => pidfd,
            // Kernels before 6.5 report only the process id. A process whose connection is open has not ended, so the id still
            // belongs to it. This is wrong only if the process passed its connection to another process and then ended.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOPROTOOPT) => {
                let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
                if has_hung_up(&connection)? {
                    return Err(io::ErrorKind::NotConnected.into());
                }
                pidfd
            }
            Err(error) => return Err(error),
        };
        Ok(Self { pid, pidfd })
    }
}

/// Returns true if the other end of a connection is closed.
pub(crate) fn has_hung_up(connection: impl AsFd) -> io::Result<bool> {
    let mut ends = [PollFd::new(&connection, PollFlags::RDHUP)];
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(ends[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_peer_process_is_known_until_it_hangs_up() {
        let (one, other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        assert_eq!(peer.pid, rustix::process::getpid());
        let mut ends = [PollFd::new(&peer.pidfd, PollFlags::IN)];
        assert_eq!(poll(&mut ends, Some(&Timespec::default())), Ok(0), "it lives");
        assert!(!has_hung_up(&one).unwrap());
        drop(other);
        assert!(has_hung_up(&one).unwrap());
    }
}
