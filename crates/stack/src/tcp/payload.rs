//! The bytes of a segment that is on its way out, which lie in the send buffer.

use super::SendRange;
use super::buffer::Storage;
use super::connection::{Connection, ConnectionState};

impl<S: Storage> Connection<S> {
    /// Copies payload of a segment just polled, from its byte `at` on, as much as `into` takes.
    pub fn copy_payload(&self, range: SendRange, at: usize, into: &mut [u8]) {
        if let ConnectionState::Synchronized(open) = &self.state
            && !into.is_empty()
        {
            let start = usize::try_from(range.seq.since(open.snd.una)).unwrap_or(usize::MAX);
            self.outgoing.peek(start + at, into);
        }
    }

    /// The whole of it where it lies, if that is one row in memory that nobody else can write.
    #[inline]
    pub(crate) fn private_payload(&self, range: SendRange) -> Option<&[u8]> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        // A bare acknowledgement behind our FIN lies behind all that was written.
        let len = usize::try_from(range.len).ok().filter(|len| *len > 0)?;
        let start = usize::try_from(range.seq.since(open.snd.una)).ok()?;
        self.outgoing.private(start, len)
    }
}
