//! State that few connections have. It is in a box that a connection allocates when it first needs it, so that it costs other
//! connections one pointer.
//!
//! A connection with such state always takes the slow path, so the fast path needs no checks for it.

use super::accurate_ecn::AccurateEcn;
use super::arrivals::Arrivals;
use super::send_marks::SendMarks;
use super::sender::Sender;

#[derive(Debug, Default)]
pub(super) struct Extras {
    /// Ends of records, and writes whose times are reported.
    pub(super) marks: SendMarks,
    /// When received bytes arrived, if the application wants to know.
    pub(super) arrivals: Option<Arrivals>,
    /// The counters of accurate ECN, if both sides agreed on it.
    pub(super) accurate_ecn: Option<AccurateEcn>,
}

impl Extras {
    fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.arrivals.is_none() && self.accurate_ecn.is_none()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.marks.bytes() + self.arrivals.as_ref().map_or(0, Arrivals::bytes)
    }
}

impl Sender {
    /// Returns the state that few connections have, after creating it if there is none. The caller has left the fast path.
    pub(super) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Frees the state that few connections have if it is empty.
    pub(super) fn drop_empty_extras(&mut self) {
        if self.extras.as_ref().is_some_and(|extras| extras.is_empty()) {
            self.extras = None;
        }
    }

    /// Returns the memory of the state that few connections have, in bytes.
    #[inline]
    pub(super) fn extra_bytes(&self) -> usize {
        self.extras.as_ref().map_or(0, |extras| extras.bytes())
    }
}
