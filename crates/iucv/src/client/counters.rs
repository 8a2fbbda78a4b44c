//! The counters of a client.

use super::Client;
use crate::BLOCK_BYTES;
use siga_ring::clock::{Rate, Ticks};
use siga_ring::counters::{ConsumerCounters, ProducerCounters};
use siga_ring::wait::WaitCounters;

/// The counters of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientCounters {
    /// Counters of the ring with commands.
    pub commands: ProducerCounters,
    /// Counters of the ring with events.
    pub events: ConsumerCounters,
    /// Counters and times of waiting.
    pub wait: WaitCounters,
    /// Rate of the clock with which all these times were measured.
    pub rate: Rate,
    /// Number of bytes copied out of the guest's arena.
    pub copied_bytes: u64,
    /// Time of the copies out of the guest's arena and out of the ring with events, in ticks.
    pub copy_ticks: Ticks,
    /// Number of sockets that exist.
    pub sockets: usize,
    /// Number of free bytes in this process's arena.
    pub free_bytes: usize,
    /// Number of connections that have a slot of memory that this application shares with another one.
    pub direct_connections: usize,
    /// Number of bytes that were sent and received by memory that this application shares with another one.
    pub direct_sent_bytes: u64,
    /// See `direct_sent_bytes`.
    pub direct_received_bytes: u64,
}

impl Client {
    /// Returns the counters of this client.
    pub fn counters(&self) -> ClientCounters {
        let events = self.link.events.counters();
        let (direct_sent_bytes, direct_received_bytes) = self.direct.bytes();
        ClientCounters {
            commands: self.link.commands.counters(),
            events,
            wait: self.waiter.counters(),
            rate: self.waiter.rate(),
            copied_bytes: self.peer.copied_bytes(),
            copy_ticks: Ticks(events.copy_ticks.0 + self.peer.copy_ticks().0),
            sockets: self.sockets.len(),
            free_bytes: self.free.len() * BLOCK_BYTES,
            direct_connections: self.direct.lanes(),
            direct_sent_bytes,
            direct_received_bytes,
        }
    }
}
