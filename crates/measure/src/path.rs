//! Network paths that siga builds in the kernel: the description of a built path, and the process that builds it and keeps it
//! alive.
//!
//! A built path consists of network namespaces that siga creates for it. A *namespace holder* process (`holder`) keeps these
//! namespaces alive, and the path ends with that process. This module measures nothing: a trial starts agents in the
//! namespaces of a [`Built`] path.

mod build;
pub(crate) mod carrier;
pub(crate) mod feature;
pub(crate) mod filter;
mod handle;
pub mod holder;
mod namespace;
mod napi;
mod netlink;
mod network;
mod own;
mod qdisc;
mod raised;
pub(crate) mod route;
mod settings;

pub use handle::Path;
pub(crate) use handle::try_feature;
pub(crate) use own::own_network;
pub use raised::{Net, Raised};

use serde::{Deserialize, Serialize};
use siga_plan::place::Place;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// The component (client, router or server) that a namespace belongs to. CPU time that is spent for packets in the namespace is
/// charged to this component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The side that opens connections.
    Client,
    /// The node between client and server: a router or a switch.
    Router,
    /// The side that accepts connections.
    Server,
}

/// A namespace of a built path. It exists while its namespace holder lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The component that this namespace belongs to. A namespace that serves both client and server (loopback) has two entries,
    /// one for each.
    pub role: Role,
    /// Path of a file that represents the namespace (`/proc/HOLDER/fd/N`). To enter the namespace, open this file and pass the
    /// descriptor to setns(2) with CLONE_NEWNET.
    pub net: String,
    /// Path of the user namespace (`/proc/HOLDER/ns/user`) that a process must enter before `net`. `None` if the holder is in
    /// the caller's user namespace.
    pub user: Option<String>,
    /// Inode number of the network namespace. It identifies the namespace in traces and records.
    pub inode: u64,
}

impl Namespace {
    /// Returns the namespace as a place for an agent.
    pub(crate) fn place(&self) -> Place {
        Place::Built(PathBuf::from(&self.net), self.user.as_ref().map(PathBuf::from))
    }
}

/// A built path, with the settings that siga read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// The namespaces of the path: first the client's, then the router's, then the server's.
    pub namespaces: Vec<Namespace>,
    /// Source address of the client. `None` for the path `unix`, which has no addresses.
    pub client_address: Option<IpAddr>,
    /// The address on which the server listens. `None` for the path `unix`.
    pub server_address: Option<IpAddr>,
    /// Settings of each interface, read back from the kernel, for example `mtu=1500 qdisc=noqueue ... gro=on`. The key is the
    /// label of the interface, for example `client/siga-c`. If the namespace serves both client and server, the label begins
    /// with `shared`.
    pub interfaces: BTreeMap<String, String>,
    /// Sysctls that affect the path, with their values read back from the kernel. A key consists of the namespace and the name:
    /// `client net.ipv4.tcp_rmem`.
    pub sysctls: BTreeMap<String, String>,
    /// Summary of each packet filter, read back from the kernel. The key names the namespace ("router nftables").
    pub filters: BTreeMap<String, String>,
    /// The congestion control that sockets on this path request from the kernel.
    pub congestion: String,
    /// Text about each setting that siga could not make, with the reason.
    pub notes: Vec<String>,
}

/// The traffic of an interface since the interface was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Received frames that were dropped.
    pub rx_dropped: u64,
    /// Received frames that were damaged.
    pub rx_errors: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that were dropped before they were sent.
    pub tx_dropped: u64,
    /// Frames that could not be sent because of an error.
    pub tx_errors: u64,
    /// Number of times that the interface lost its carrier.
    pub carrier_losses: u64,
}
