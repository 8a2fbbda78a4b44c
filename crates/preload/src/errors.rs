//! The errors of this library: error numbers of Linux.

use std::io::{self, ErrorKind};

/// An error number of Linux, such as `EAGAIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) i32);

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) const WOULD_BLOCK: Self = Self(libc::EAGAIN);
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NOT_CONNECTED: Self = Self(libc::ENOTCONN);
    pub(crate) const NOT_SUPPORTED: Self = Self(libc::EOPNOTSUPP);
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the standard library may add kinds")]
        Self(match kind {
            ErrorKind::WouldBlock => libc::EAGAIN,
            ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
            ErrorKind::ConnectionReset => libc::ECONNRESET,
            ErrorKind::ConnectionAborted => libc::ECONNABORTED,
            ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
            ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
            ErrorKind::NetworkDown => libc::ENETDOWN,
            ErrorKind::NotConnected => libc::ENOTCONN,
            ErrorKind::AddrInUse => libc::EADDRINUSE,
            ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
            ErrorKind::BrokenPipe => libc::EPIPE,
            ErrorKind::InvalidInput => libc::EINVAL,
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::PermissionDenied => libc::EACCES,
            ErrorKind::QuotaExceeded | ErrorKind::OutOfMemory => libc::ENOBUFS,
            ErrorKind::Unsupported => libc::EOPNOTSUPP,
            ErrorKind::Interrupted => libc::EINTR,
            ErrorKind::NotFound => libc::ENODEV,
            _ => libc::EIO,
        })
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or_else(|| error.kind().into(), Self)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}
