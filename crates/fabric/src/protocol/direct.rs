//! What the messages about direct connections contain (`docs/direct.md`).

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A connection, as one of its ends sees it. Both initial sequence numbers tell it from earlier connections between the same ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's address.
    pub remote: SocketAddr,
    /// The initial sequence number of this end.
    pub iss: u32,
    /// The initial sequence number of the other end.
    pub irs: u32,
}

/// A slot of a couple. No two uses of a slot have the same generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectSlot {
    /// The number of the couple.
    pub couple: u64,
    /// The number of the slot in the memory files of the couple.
    pub slot: u16,
    /// The generation.
    pub generation: u64,
}

/// What the control program orders a guest to do for an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each order covers its fields")]
pub enum DirectOrder {
    /// The application shares memory with another one from now on. Descriptors: the notify descriptor, a read end of its pipe, and the wake
    /// descriptor. The guest passes them to the application, and sends its memory file in `DirectRequest::Memory`.
    Couple { couple: u64 },
    /// The other application of a couple has made its memory. Descriptor: the memory file.
    Memory { couple: u64 },
    /// Both ends of a connection have asked for a slot, and get this one. `request` is the number from `DirectRequest::Wanted`.
    Slot { request: u64, slot: DirectSlot },
    /// A couple has ended. Reset its connections if `reset` is true.
    Gone { couple: u64, reset: bool },
}

/// What a guest asks and reports for an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each request covers its fields")]
pub enum DirectRequest {
    /// The application asks for a slot for a connection. The control program answers with `DirectOrder::Slot` when the other end asks too,
    /// and not at all if the connection stays with TCP.
    Wanted { request: u64, flow: Flow },
    /// A connection for which `Wanted` was sent needs no slot any more.
    Unwanted { request: u64 },
    /// The application has made its memory for a couple. Descriptor: the memory file.
    Memory { couple: u64 },
    /// One end of a connection no longer uses its slot.
    Left { slot: DirectSlot },
}
