//! The namespaces of a path: made here, never mounted; they live as long as their descriptors.
//!
//! All namespaces of one path belong to one user namespace: the holder's own if it may make network namespaces, else
//! a new one. The kernel resolves a sysctl in the namespace of the thread that opens its file, so every access enters
//! the namespace first. No sysctl is ever written in a namespace that was not made here.

use super::Role;
use super::netlink::Netlink;
use crate::sys::namespace::{unshare_network, unshare_user};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space};
use siga_model::error::{Error, IoContext, Result};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

/// What a namespace is on its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// The client's.
    Client,
    /// The router's, or the one that holds the switch.
    Router,
    /// The server's.
    Server,
    /// Client and server share it.
    Shared,
}

impl NodeKind {
    /// How interfaces and sysctls of the namespace are labelled.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Router => "router",
            Self::Server => "server",
            Self::Shared => "shared",
        }
    }

    /// The roles it serves.
    pub(super) fn roles(self) -> &'static [Role] {
        match self {
            Self::Client => &[Role::Client],
            Self::Router => &[Role::Router],
            Self::Server => &[Role::Server],
            Self::Shared => &[Role::Client, Role::Server],
        }
    }
}

/// A namespace of the path and the means to work in it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// Keeps the namespace alive.
    namespace: OwnedFd,
    /// Identity of the namespace.
    pub(super) inode: u64,
    /// Bound to the namespace.
    pub(super) netlink: Netlink,
    /// Bound to the namespace; carries ioctls.
    pub(super) socket: OwnedFd,
}

impl Node {
    /// Makes a namespace and leaves the thread in it.
    pub(super) fn create(kind: NodeKind) -> Result<Self> {
        unshare_network().map_err(|error| refused("network", &error))?;
        let file = fs::File::open("/proc/thread-self/ns/net").context("cannot open /proc/thread-self/ns/net")?;
        let inode = rustix::fs::fstat(&file).context("cannot identify a network namespace")?.st_ino;
        let netlink = Netlink::open().context("cannot open a netlink socket")?;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .context("cannot open an IPv4 socket")?;
        Ok(Self { kind, namespace: file.into(), inode, netlink, socket })
    }

    /// Moves the thread into the namespace.
    pub(super) fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .context(format!("cannot enter the {} namespace", self.kind.name()))
    }

    /// Moves the thread into the namespace and fails unless it is there: the next steps must not reach any other.
    pub(super) fn enter_surely(&self) -> Result<()> {
        self.enter()?;
        let here = rustix::fs::stat("/proc/thread-self/ns/net").context("cannot identify a network namespace")?;
        if here.st_ino == self.inode {
            return Ok(());
        }
        Err(Error::environment(format!("is in network namespace {}, not in {}", here.st_ino, self.inode))
            .at(self.kind.name()))
    }

    /// The namespace's descriptor, for netlink requests that move an interface into it.
    pub(super) fn descriptor(&self) -> i32 {
        self.namespace.as_raw_fd()
    }

    /// Where other processes of the host find the namespace.
    pub(super) fn proc_path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// Index of an interface.
    pub(super) fn index(&self, interface: &str) -> Result<u32> {
        rustix::net::netdevice::name_to_index(&self.socket, interface)
            .context(format!("no interface {interface} in the {} namespace", self.kind.name()))
    }

    /// Reads a sysctl, its white space normalised; `None` if the namespace has none of that name or hides it.
    pub(super) fn sysctl(&self, name: &str) -> Result<Option<String>> {
        self.enter()?;
        let text = fs::read_to_string(sysctl_file(name)).ok();
        Ok(text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    /// Whether the namespace has a sysctl of that name.
    pub(super) fn has_sysctl(&self, name: &str) -> Result<bool> {
        self.enter()?;
        Ok(sysctl_file(name).exists())
    }

    /// Writes a sysctl.
    pub(super) fn set_sysctl(&self, name: &str, value: &str) -> Result<io::Result<()>> {
        self.enter()?;
        // Not `fs::write`: a sysctl file is neither created nor truncated.
        Ok(fs::OpenOptions::new()
            .write(true)
            .open(sysctl_file(name))
            .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes())))
    }
}

/// Makes sure that this process may make and configure network namespaces; true if it needed a user namespace of its
/// own.
pub(super) fn gain_privilege() -> Result<bool> {
    let held = capabilities(None).context("cannot read the capabilities of the holder")?.effective;
    if held.contains(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN) {
        return Ok(false);
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare_user().map_err(|error| refused("user", &error))?;
    // The kernel accepts a group map from an unprivileged process only once setgroups(2) is denied (user_namespaces(7)).
    for (file, text) in
        [("setgroups", "deny".to_owned()), ("uid_map", format!("0 {user} 1")), ("gid_map", format!("0 {group} 1"))]
    {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| refused("user", &io::Error::new(error.kind(), format!("/proc/self/{file}: {error}"))))?;
    }
    Ok(true)
}

fn sysctl_file(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}

fn refused(kind: &str, error: &io::Error) -> Error {
    let reads = |name: &str, value: &str| {
        fs::read_to_string(sysctl_file(name)).is_ok_and(|text| text.trim() == value).then(|| format!("{name}={value}"))
    };
    let causes: Vec<_> = [
        ("user.max_user_namespaces", "0"),
        ("user.max_net_namespaces", "0"),
        ("kernel.unprivileged_userns_clone", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    ]
    .into_iter()
    .filter_map(|(name, value)| reads(name, value))
    .collect();
    let hint = if causes.is_empty() {
        "run siga as root, or where unprivileged user namespaces are allowed (in a container: --privileged)".to_owned()
    } else {
        format!("run siga as root, or ask the administrator to change {}", causes.join(", "))
    };
    Error::environment(format!("cannot make a {kind} namespace: {error}")).hint(hint)
}
