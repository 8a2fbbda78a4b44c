//! The network namespaces of a path. The namespace holder creates them and does not mount them, so a namespace exists as long
//! as a descriptor for it is open.
//!
//! All network namespaces of a path belong to one user namespace. If the holder may create network namespaces, it is the
//! holder's own user namespace, otherwise a new one. When a thread opens the file of a sysctl, the kernel uses the network
//! namespace of this thread. So every access to a sysctl first enters the namespace. siga writes sysctls only in namespaces
//! that it created itself.

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

/// The components of a path (client, router, server) that a namespace serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// The client's namespace.
    Client,
    /// The namespace of the router or of the switch.
    Router,
    /// The server's namespace.
    Server,
    /// A namespace that client and server share.
    Shared,
}

impl NodeKind {
    /// Returns the name of the namespace in the labels of its interfaces and sysctls.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Router => "router",
            Self::Server => "server",
            Self::Shared => "shared",
        }
    }

    /// Returns the components that the namespace serves.
    pub(super) fn roles(self) -> &'static [Role] {
        match self {
            Self::Client => &[Role::Client],
            Self::Router => &[Role::Router],
            Self::Server => &[Role::Server],
            Self::Shared => &[Role::Client, Role::Server],
        }
    }
}

/// A namespace of the path, with descriptors for working in it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// Descriptor that keeps the namespace alive.
    namespace: OwnedFd,
    /// Inode number, which identifies the namespace.
    pub(super) inode: u64,
    /// A netlink socket in this namespace.
    pub(super) netlink: Netlink,
    /// An IPv4 socket in this namespace, for ioctls.
    pub(super) socket: OwnedFd,
}

impl Node {
    /// Creates a network namespace and moves the calling thread into it.
    pub(super) fn create(kind: NodeKind) -> Result<Self> {
        unshare_network().map_err(|error| refused("network", &error))?;
        let file = fs::File::open("/proc/thread-self/ns/net").context("cannot open /proc/thread-self/ns/net")?;
        let inode = rustix::fs::fstat(&file).context("cannot identify a network namespace")?.st_ino;
        let netlink = Netlink::open().context("cannot open a netlink socket for network interfaces")?;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .context("cannot open an IPv4 socket to change settings of interfaces")?;
        Ok(Self { kind, namespace: file.into(), inode, netlink, socket })
    }

    /// Moves the calling thread into the namespace.
    pub(super) fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .context(format!("cannot enter the {} namespace of the path", self.kind.name()))
    }

    /// Moves the calling thread into the namespace and checks that the thread is there. Used before steps that would be harmful
    /// in another namespace.
    pub(super) fn enter_surely(&self) -> Result<()> {
        self.enter()?;
        let here = rustix::fs::stat("/proc/thread-self/ns/net").context("cannot identify a network namespace")?;
        if here.st_ino == self.inode {
            return Ok(());
        }
        Err(Error::environment(format!(
            "siga is in network namespace {}, but should be in network namespace {}",
            here.st_ino, self.inode
        ))
        .at(self.kind.name()))
    }

    /// Returns the number of the namespace's descriptor, for netlink requests that move an interface into the namespace.
    pub(super) fn descriptor(&self) -> i32 {
        self.namespace.as_raw_fd()
    }

    /// Returns the path of the file with which other processes of this host can open the namespace.
    pub(super) fn proc_path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// Returns the index of an interface.
    pub(super) fn index(&self, interface: &str) -> Result<u32> {
        rustix::net::netdevice::name_to_index(&self.socket, interface)
            .context(format!("there is no interface {interface} in the {} namespace", self.kind.name()))
    }

    /// Reads a sysctl and replaces each run of white space by one space. Returns `None` if the namespace has no such sysctl
    /// or hides it.
    pub(super) fn sysctl(&self, name: &str) -> Result<Option<String>> {
        self.enter()?;
        Ok(sysctl_here(name))
    }

    /// Returns whether the namespace has a sysctl with this name.
    pub(super) fn has_sysctl(&self, name: &str) -> Result<bool> {
        self.enter()?;
        Ok(sysctl_file(name).exists())
    }

    /// Writes a sysctl. The outer result is an error if the namespace cannot be entered. The inner result is an error if the
    /// kernel refuses the value.
    pub(super) fn set_sysctl(&self, name: &str, value: &str) -> Result<io::Result<()>> {
        self.enter()?;
        // `fs::write` would open the file with O_CREAT and O_TRUNC. Open it only for writing, because the kernel created the file
        // and nobody else can create files there.
        Ok(fs::OpenOptions::new()
            .write(true)
            .open(sysctl_file(name))
            .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes())))
    }
}

/// Makes sure that this process may create and configure network namespaces. Returns true if the process had to create a
/// user namespace for this.
pub(super) fn gain_privilege() -> Result<bool> {
    let held = capabilities(None).context("cannot read the capabilities of the namespace holder")?.effective;
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

/// Reads a sysctl of the calling thread's namespace, as [`Node::sysctl`] does.
pub(super) fn sysctl_here(name: &str) -> Option<String> {
    let text = fs::read_to_string(sysctl_file(name)).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

pub(super) fn sysctl_file(name: &str) -> PathBuf {
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
    Error::environment(format!("cannot create a {kind} namespace: {error}")).hint(hint)
}
