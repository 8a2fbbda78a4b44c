//! The completions of zero-copy sends (`MSG_ZEROCOPY` of Linux). Both kinds of stacks copy the bytes during the call, so each send is
//! complete at once and counts as copied.

/// The zero-copy sends of one connection, which are numbered from 0.
#[derive(Debug, Default)]
pub(super) struct ZeroCopySends {
    /// Number of sends so far, and how many of them are reported as complete. Both numbers wrap, as in Linux.
    sent: u32,
    reported: u32,
}

/// Zero-copy sends that are complete, so that the application may change their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCopyCompletion {
    /// Number of the first of these sends (`ee_info` of Linux).
    pub first: u32,
    /// Number of the last of these sends (`ee_data` of Linux).
    pub last: u32,
    /// True if the bytes were copied (`SO_EE_CODE_ZEROCOPY_COPIED` of Linux), so that zero-copy sends save nothing.
    pub copied: bool,
}

impl ZeroCopySends {
    pub(super) fn add(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    pub(super) fn take_completion(&mut self) -> Option<ZeroCopyCompletion> {
        let first = std::mem::replace(&mut self.reported, self.sent);
        (first != self.sent).then(|| ZeroCopyCompletion { first, last: self.sent.wrapping_sub(1), copied: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_covers_all_zero_copy_sends_since_the_last_one_and_their_numbers_wrap() {
        let mut sends = ZeroCopySends { sent: u32::MAX - 1, reported: u32::MAX - 1 };
        assert_eq!(sends.take_completion(), None);
        for (count, first, last) in [(1, u32::MAX - 1, u32::MAX - 1), (3, u32::MAX, 1), (1, 2, 2)] {
            (0..count).for_each(|_| sends.add());
            assert_eq!(sends.take_completion(), Some(ZeroCopyCompletion { first, last, copied: true }));
            assert_eq!(sends.take_completion(), None);
        }
    }
}
