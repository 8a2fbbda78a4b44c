//! Joins a network namespace to a port of a switched network. This is the client's side of `control/tenants.rs`.
//!
//! The client makes the TAP device, because it can enter the namespace. So a network of a user without privileges can have ports for
//! namespaces too: in a user namespace of its own, a process may make devices if it can open /dev/net/tun.

use crate::client::Client;
use crate::netlink::Netlink;
use crate::protocol::request::{Answer, Request};
use crate::sys;
use crate::tap_device::{self, FreshTap};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, UnshareFlags, capabilities, configure_capability_in_ambient_set, set_capabilities,
};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::{Assigned, KernelPort};
use siga_stack::link::device::Agreed;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory in which `ip netns` keeps the named namespaces.
const NAMED: &str = "/run/netns";
/// Time limit of a request. The control program answers at once.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// A port that this process has reserved. The reservation lasts as long as the connection of `client`, or until the port is joined.
#[derive(Debug)]
pub struct ReservedPort<'a> {
    client: &'a mut Client,
    /// The switched network of the port.
    pub lan: Name,
    /// The settings of the port.
    pub port: KernelPort,
    agreed: Agreed,
    hosts: Vec<(Name, IpAddr)>,
}

impl<'a> ReservedPort<'a> {
    /// Reserves a port of a network: the one called `port`, or without a name any free port of the switched network `lan`. `tenant` names
    /// the namespace.
    ///
    /// # Errors
    /// Returns an error if there is no such port, or if another namespace has it.
    pub fn reserve(client: &'a mut Client, lan: Option<Name>, port: Option<Name>, tenant: &str) -> Result<Self> {
        let (mut reserved, mut hosts) = (None, Vec::new());
        for answer in client.request(Request::ReservePort { lan, port, tenant: tenant.to_owned() })? {
            if let Answer::Port { lan, port, checksums, segments } = answer {
                reserved = Some((lan, port, Agreed { checksum_unfilled: checksums, large_segments: segments }));
            } else if let Answer::Hosts(part) = answer {
                hosts.extend(part);
            }
        }
        let (lan, port, agreed) = reserved
            .ok_or_else(|| Error::environment("the control program did not send the settings of the reserved port"))?;
        Ok(Self { client, lan, port: *port, agreed, hosts })
    }

    /// Makes the port's device in the namespace of this thread. It must be another one than that of the port, which the thread enters
    /// next.
    ///
    /// # Errors
    /// Returns an error if this process may not make devices in the namespace.
    pub fn make_device(self) -> Result<MadePort<'a>> {
        let fresh = FreshTap::make(&self.port, self.agreed)?;
        Ok(MadePort { client: self.client, port: self.port, fresh, hosts: self.hosts })
    }

    /// Makes the port's device in the namespace of a file, such as that of a container, and joins the port. The device gets all addresses of
    /// the port, because a container runtime expects them.
    ///
    /// # Errors
    /// Returns an error if this process may not make devices in the namespace.
    pub fn join_at(mut self, path: &Path, interface: &str) -> Result<KernelPort> {
        interface.clone_into(&mut self.port.interface);
        self.port.assigned = Assigned::default();
        let namespace = open_namespace(path)?;
        let device = tap_device::make_at(&self.port, namespace.as_fd(), self.agreed)?;
        join(self.client, device)?;
        Ok(self.port)
    }

    /// Moves this process into a new network namespace that has the port's device. Without CAP_SYS_ADMIN, this is also a new user
    /// namespace, in which the process keeps its user id. With `name`, the namespace gets this name and outlives the process. The inner
    /// error is about the names of hosts: without them, the namespace is usable.
    ///
    /// # Errors
    /// Returns an error if the host forbids the namespaces or the device, or if the name is taken.
    pub fn enter_new_namespace(self, name: Option<&Name>) -> Result<Result<()>> {
        let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
        let is_privileged =
            capabilities(None).context("cannot read the capabilities of this process")?.effective.contains(needed);
        if let Some(name) = name {
            may_have_name(name, is_privileged)?;
        }
        if !is_privileged {
            enter_user_namespace()?;
        }
        // The descriptor of the device keeps the first namespace alive, and not the second one.
        sys::unshare(UnshareFlags::NEWNET).context("cannot make a network namespace")?;
        let made = self.make_device()?;
        sys::unshare(UnshareFlags::NEWNET).context("cannot make a network namespace")?;
        let hosts = hosts_file(&made.hosts);
        made.join_here()?;
        if let Some(name) = name {
            give_name(name)?;
        }
        let mounted = mount_for_namespace(&hosts);
        if !is_privileged {
            keep_network_capabilities().context("cannot keep the capabilities for the network namespace")?;
        }
        Ok(mounted)
    }
}

/// A reserved port with its device.
#[derive(Debug)]
pub struct MadePort<'a> {
    client: &'a mut Client,
    port: KernelPort,
    fresh: FreshTap,
    hosts: Vec<(Name, IpAddr)>,
}

impl MadePort<'_> {
    /// Moves the device into the namespace of this thread, which is another one now, and joins the port. Also brings up the loopback
    /// interface of the namespace.
    ///
    /// # Errors
    /// Returns an error if the namespace has an interface with the same name.
    pub fn join_here(self) -> Result<()> {
        let mut netlink = Netlink::open().context("cannot open a netlink socket for network interfaces")?;
        let mut lo = LinkMessage::default();
        lo.header.index = netlink.link_named("lo").context("cannot find interface lo")?.header.index;
        lo.header.flags = LinkFlags::Up;
        lo.header.change_mask = LinkFlags::Up;
        netlink.set_link(lo).context("cannot bring up interface lo")?;
        join(self.client, self.fresh.move_here(&self.port)?)
    }
}

fn join(client: &mut Client, device: OwnedFd) -> Result<()> {
    client.ask(Request::JoinPort, vec![device])?;
    client.outcome(ANSWER_TIME_MAX)
}

/// Makes a TAP device in the namespace of this thread, and removes it.
///
/// # Errors
/// Returns an error with advice if the host forbids this.
pub fn try_device() -> Result<()> {
    tap_device::try_device()
}

/// Removes a namespace from its port. Succeeds if it has none.
///
/// # Errors
/// Returns an error if the control program has ended.
pub fn release(client: &mut Client, tenant: &str) -> Result<()> {
    client.request(Request::ReleasePort { tenant: tenant.to_owned() }).map(drop)
}

/// Returns the namespaces that have joined ports of a network, each with the name of its port.
///
/// # Errors
/// Returns an error if the network has no control program.
pub fn tenants(client: &mut Client) -> Result<Vec<(String, Name)>> {
    let answers = client.request(Request::Tenants)?;
    let tenant = |answer| if let Answer::Tenant { port, tenant, .. } = answer { Some((tenant, port)) } else { None };
    Ok(answers.into_iter().filter_map(tenant).collect())
}

/// Removes a TAP device from the namespace of a file. Does nothing if there is no such device or namespace.
///
/// # Errors
/// Returns the kernel's error.
pub fn remove_interface(path: &Path, interface: &str) -> Result<()> {
    let Ok(namespace) = open_namespace(path) else { return Ok(()) };
    tap_device::in_namespace(
        namespace.as_fd(),
        || Ok(()),
        |()| {
            let mut netlink = Netlink::open().context("cannot open a netlink socket for network interfaces")?;
            let Ok(link) = netlink.link_named(interface) else { return Ok(()) };
            if !is_tap(&link) {
                return Ok(());
            }
            netlink.remove_link(link.header.index).context(format!("cannot remove interface {interface}"))
        },
    )
}

fn is_tap(link: &LinkMessage) -> bool {
    let is_kind = |info: &LinkInfo| matches!(info, LinkInfo::Kind(InfoKind::Tun));
    link.attributes.iter().any(|each| matches!(each, LinkAttribute::LinkInfo(infos) if infos.iter().any(is_kind)))
}

/// Returns the addresses of an interface in the namespace of a file, and whether it is up.
///
/// # Errors
/// Returns an error if there is no such interface or namespace.
pub fn interface_at(path: &Path, interface: &str) -> Result<Interface> {
    let namespace = open_namespace(path)?;
    tap_device::in_namespace(
        namespace.as_fd(),
        || Ok(()),
        |()| {
            let mut netlink = Netlink::open().context("cannot open a netlink socket for network interfaces")?;
            let link =
                netlink.link_named(interface).context(format!("the network namespace has no interface {interface}"))?;
            let addresses = netlink
                .addresses(link.header.index)
                .context("cannot read the addresses of the interface in the namespace")?;
            Ok(Interface { is_up: link.header.flags.contains(LinkFlags::Up), addresses })
        },
    )
}

/// An interface in a namespace.
#[derive(Debug)]
pub struct Interface {
    /// True if the interface is up.
    pub is_up: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

fn open_namespace(path: &Path) -> Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .context(format!("cannot open the network namespace {}", path.display()))
}

/// Moves this process into a new user namespace, in which it keeps its user id and group id.
fn enter_user_namespace() -> Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER).map_err(|error| {
        let hint = match Errno::from_io_error(&error) {
            Some(Errno::NOSPC) => "raise the sysctl user.max_user_namespaces, or run as root",
            _ => "allow user namespaces (kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), or run as root",
        };
        Error::environment(format!("cannot make a user namespace: {error}")).hint(hint)
    })?;
    let write = |file: &str, text: String| {
        let path = Path::new("/proc/self").join(file);
        std::fs::write(&path, text).context(format!("cannot write {}", path.display()))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

/// Lets the program that this process executes configure the network of its namespace, and use raw sockets and all port numbers.
fn keep_network_capabilities() -> rustix::io::Result<()> {
    let kept = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::NET_BIND_SERVICE;
    let mut own = capabilities(None)?;
    own.inheritable |= kept;
    set_capabilities(None, own)?;
    kept.iter().try_for_each(|capability| configure_capability_in_ambient_set(capability, true))
}

fn may_have_name(name: &Name, is_privileged: bool) -> Result<()> {
    if !is_privileged {
        return Err(Error::environment("only root can give a network namespace a name").hint(
            "leave out --name. To run another program in the namespace, use `nsenter --user --net --preserve-credentials -t PID \
             PROGRAM` with the process ID of a program that already runs there",
        ));
    }
    if Path::new(NAMED).join(name.as_str()).exists() {
        return Err(Error::usage(format!("a network namespace with the name {name} already exists"))
            .hint(format!("to remove the existing namespace: ip netns del {name}")));
    }
    Ok(())
}

/// Gives the namespace of this process a name, as `ip netns add` does.
fn give_name(name: &Name) -> Result<()> {
    std::fs::create_dir_all(NAMED).context(format!("cannot make the directory {NAMED}"))?;
    // Other mount namespaces see the name only if the directory is a shared mount.
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    if mount_change(NAMED, shared).is_err() {
        mount_bind(NAMED, NAMED).context(format!("cannot mount the directory {NAMED} on itself"))?;
        mount_change(NAMED, shared)
            .context(format!("cannot make {NAMED} a mount that is shared between namespaces"))?;
    }
    let path: PathBuf = Path::new(NAMED).join(name.as_str());
    let at = || format!("cannot make the file {}, which gives the network namespace its name", path.display());
    std::fs::File::options().write(true).create_new(true).open(&path).context(at())?;
    mount_bind("/proc/self/ns/net", &path).context(at()).inspect_err(|_| {
        let _ = std::fs::remove_file(&path);
    })
}

fn hosts_file(hosts: &[(Name, IpAddr)]) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for (name, address) in hosts {
        let _ = writeln!(text, "{address} {name}");
    }
    text
}

/// Gives this process mounts of its own: `/etc/hosts` has the names of the network's guests and ports, and `/sys` shows the interfaces of
/// its namespace.
fn mount_for_namespace(hosts: &str) -> Result<()> {
    const HOSTS: &str = "/etc/hosts";
    const SYS: &str = "/sys";
    const NO_DATA: Option<&CStr> = None;
    let harmless = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    sys::unshare(UnshareFlags::NEWNS).context("cannot make a mount namespace")?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context("cannot separate the mounts of this process from the mounts of the host")?;
    // The file is in memory, and no directory shows it afterwards. `/sys` is only a place for it.
    mount("siga", SYS, "tmpfs", harmless, NO_DATA)
        .context("cannot mount a temporary file system for a new /etc/hosts")?;
    let file = Path::new(SYS).join("hosts");
    let written = std::fs::write(&file, hosts).context("cannot write the file that replaces /etc/hosts");
    let bound = written.and_then(|()| {
        mount_bind(&file, HOSTS).context(format!("cannot mount a new {HOSTS} over the file of the host"))
    });
    unmount(SYS, UnmountFlags::DETACH).context("cannot unmount the temporary file system at /sys")?;
    // In a container, the kernel can refuse this. Then `/sys` stays that of the host.
    let _ = mount("siga", SYS, "sysfs", harmless, NO_DATA);
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_hosts_has_localhost_and_each_address_with_its_name() {
        let hosts = [("one", "10.0.3.1"), ("one", "fd00::1")]
            .map(|(name, address)| (name.parse().unwrap(), address.parse().unwrap()));
        let text = hosts_file(&hosts);
        assert!(text.starts_with("127.0.0.1 localhost\n::1 localhost"), "{text}");
        assert!(text.ends_with("10.0.3.1 one\nfd00::1 one\n"), "{text}");
    }
}
