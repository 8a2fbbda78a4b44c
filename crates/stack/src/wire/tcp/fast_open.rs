//! The Fast Open option of a SYN or SYN-ACK (RFC 7413 section 4.1.1): a cookie, or the request for a cookie.

/// Length in bytes of the longest cookie.
pub const COOKIE_BYTES_MAX: usize = 16;
/// Length in bytes of the shortest cookie.
const COOKIE_BYTES_MIN: usize = 4;

/// The contents of a Fast Open option. An empty option of a SYN requests a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOpenOption {
    len: u8,
    bytes: [u8; COOKIE_BYTES_MAX],
}

impl FastOpenOption {
    /// The request for a cookie.
    pub const REQUEST: Self = Self { len: 0, bytes: [0; COOKIE_BYTES_MAX] };

    /// Returns the option with this cookie, or the request if `cookie` is empty. Returns `None` for a length that RFC 7413 does
    /// not allow: a cookie has an even number of bytes, from 4 to 16. As in Linux, an option of another length counts as absent.
    pub fn new(cookie: &[u8]) -> Option<Self> {
        let allowed = cookie.is_empty() || (COOKIE_BYTES_MIN..=COOKIE_BYTES_MAX).contains(&cookie.len());
        if !allowed || !cookie.len().is_multiple_of(2) {
            return None;
        }
        let mut option = Self { len: u8::try_from(cookie.len()).ok()?, ..Self::REQUEST };
        option.bytes[..cookie.len()].copy_from_slice(cookie);
        Some(option)
    }

    /// Returns the cookie, which is empty if the option is a request.
    pub fn cookie(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns whether the option requests a cookie.
    pub fn is_request(&self) -> bool {
        self.len == 0
    }
}
