//! Network paths that siga builds: what a built path consists of, and who builds and holds it.
//!
//! A built path lives in network namespaces of its own. A *namespace holder* process (`holder`) holds them; the path
//! ends with it. Nothing here measures: the trial places agents in the namespaces of a [`Built`] path.

mod build;
pub mod filter;
mod handle;
pub mod holder;
mod namespace;
mod netlink;
mod network;
mod raised;
mod settings;

pub use handle::Path;
pub use raised::{Net, Raised};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Component that a namespace belongs to; its CPU time is charged to that component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The side that connects.
    Client,
    /// The node in the middle: a router or a switch.
    Router,
    /// The side that accepts.
    Server,
}

/// A namespace of a built path, open for as long as its holder lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its component. A namespace that serves client and server (loopback) is listed twice.
    pub role: Role,
    /// A path to open and pass to setns(2) with CLONE_NEWNET (`/proc/HOLDER/fd/N`).
    pub net: String,
    /// The user namespace to enter first (`/proc/HOLDER/ns/user`); `None` if the holder shares the caller's.
    pub user: Option<String>,
    /// Inode number of the network namespace: its identity in traces and records.
    pub inode: u64,
}

/// What was built, with every setting read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// Client first, then router, then server.
    pub namespaces: Vec<Namespace>,
    /// Source address of the client; `None` for `unix`.
    pub client_address: Option<IpAddr>,
    /// The address the server listens on; `None` for `unix`.
    pub server_address: Option<IpAddr>,
    /// Interface settings as read back, one entry an interface: `client/siga-c` to `mtu=1500 qdisc=noqueue ... gro=on`.
    /// A namespace that serves both client and server is called `shared`.
    pub interfaces: BTreeMap<String, String>,
    /// Sysctls that shape the path as read back: `client net.ipv4.tcp_rmem` to its value.
    pub sysctls: BTreeMap<String, String>,
    /// Packet filters as read back, by the namespace they are in ("router nftables").
    pub filters: BTreeMap<String, String>,
    /// The congestion control that sockets on this path request.
    pub congestion: String,
    /// What could not be set, in words.
    pub notes: Vec<String>,
}

/// What an interface has carried since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames received; large segments count as one.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Received and dropped.
    pub rx_dropped: u64,
    /// Received damaged.
    pub rx_errors: u64,
    /// Frames sent; large segments count as one.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Dropped before sending.
    pub tx_dropped: u64,
    /// Failed to be sent.
    pub tx_errors: u64,
}
