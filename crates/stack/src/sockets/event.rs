//! PackedEvent in one word: what is queued as it is computed, in a register, and read back at its own width. A name stored in parts
//! and moved as a whole would wait for its parts.

use super::{ListenerId, TcpEvent, TcpId};

/// Whose news it is: the generation above the number, and between them whether that is a listener's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedEvent(u64);

/// Far above how many sockets there can be.
const LISTENER: u64 = 1 << 31;

impl PackedEvent {
    #[inline]
    pub(crate) fn connection(id: TcpId) -> Self {
        Self(u64::from(id.generation) << 32 | u64::from(id.slot))
    }

    pub(crate) fn listener(id: ListenerId) -> Self {
        Self(u64::from(id.generation) << 32 | LISTENER | u64::from(id.slot))
    }

    #[inline]
    pub(crate) fn ready(self) -> TcpEvent {
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        let (slot, generation) = (half(self.0 & (LISTENER - 1)), half(self.0 >> 32));
        if self.0 & LISTENER == 0 {
            TcpEvent::Connection(TcpId { slot, generation })
        } else {
            TcpEvent::Listener(ListenerId { slot, generation })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_names_whose_it_is() {
        for (slot, generation) in [(0, 0), (7, u32::MAX), ((1 << 31) - 1, 1 << 31)] {
            let (connection, listener) = (TcpId { slot, generation }, ListenerId { slot, generation });
            assert_eq!(PackedEvent::connection(connection).ready(), TcpEvent::Connection(connection));
            assert_eq!(PackedEvent::listener(listener).ready(), TcpEvent::Listener(listener));
        }
    }
}
