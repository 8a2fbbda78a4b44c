//! The connections that sent or received a segment lately. The next segment often belongs to one of them: an answer follows a
//! request. The stack finds such a connection without a hash of the flow, and without the table of flows, which is often not in the
//! CPU cache.

use super::Flow;

/// Number of entries. Up to 64 connections with a request in flight are found, if the ports of the clients follow each other.
const PLACES: usize = 64;
/// The index of no connection.
const NOBODY: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    ports: u32,
    slot: u32,
}

/// A table from the ports of a flow to the index of the connection that last had these ports. The table is only a hint: the caller
/// has to compare the flow of the connection. A peer that chooses ports which share an entry only makes the hint useless.
#[derive(Debug)]
pub(crate) struct RecentConnections {
    entries: [Entry; PLACES],
    /// The index of the connection that sent or received the latest segment.
    pub(crate) latest: u32,
}

impl RecentConnections {
    pub(crate) fn new() -> Self {
        Self { entries: [Entry { ports: 0, slot: NOBODY }; PLACES], latest: NOBODY }
    }

    /// Returns the index of a connection that may have this flow.
    #[inline]
    pub(crate) fn guess(&self, flow: &Flow) -> Option<u32> {
        let ports = flow.ports();
        let entry = self.entries[place(ports)];
        (entry.ports == ports).then_some(entry.slot)
    }

    /// Records that the connection at index `slot` has sent or received a segment.
    #[inline]
    pub(crate) fn note(&mut self, flow: &Flow, slot: u32) {
        if self.latest != slot {
            let ports = flow.ports();
            self.entries[place(ports)] = Entry { ports, slot };
            self.latest = slot;
        }
    }
}

/// Returns the index of the entry for these ports. Connections to one server, or of one server, differ in the port of the client,
/// which is the upper or the lower half.
#[inline]
fn place(ports: u32) -> usize {
    ((ports >> 16 ^ ports) as usize) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(local_port: u16, remote_port: u16) -> Flow {
        Flow::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), local_port, remote_port)
    }

    #[test]
    fn each_of_a_burst_of_connections_is_guessed_and_no_other() {
        for is_server in [false, true] {
            let of = |port| if is_server { flow(80, port) } else { flow(port, 80) };
            let mut recent = RecentConnections::new();
            assert_eq!((recent.guess(&flow(0, 0)), recent.guess(&of(32_768))), (Some(NOBODY), None));
            for slot in 0..64 {
                recent.note(&of(32_768 + u16::try_from(slot).unwrap()), slot);
            }
            for slot in 0..64 {
                assert_eq!(recent.guess(&of(32_768 + u16::try_from(slot).unwrap())), Some(slot));
            }
            assert_eq!((recent.guess(&of(40_000)), recent.latest), (None, 63));
        }
    }

    #[test]
    fn a_later_connection_replaces_an_earlier_one_with_the_same_ports() {
        let mut recent = RecentConnections::new();
        recent.note(&flow(5_000, 80), 1);
        recent.note(&flow(5_000, 80), 2);
        assert_eq!(recent.guess(&flow(5_000, 80)), Some(2));
        recent.note(&flow(5_000, 80), 1);
        assert_eq!(recent.guess(&flow(5_000, 80)), Some(1));
    }
}
