//! Makes the TAP device of a switch's port in a network namespace, with its addresses, routes and MTU. The kernel removes the device
//! when its last descriptor is closed.

use crate::netlink::Netlink;
use crate::sys;
use netlink_packet_core::NLM_F_REPLACE;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType, move_into_link_name_space, move_into_thread_name_spaces};
use siga_model::error::{Error, IoContext, Result};
use siga_model::topology::{KernelPort, Where};
use siga_stack::link::device::Agreed;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::fs::MetadataExt as _;

/// The directory in which `ip netns` keeps the named namespaces.
const NAMED: &str = "/run/netns";
const TUN: &str = "/dev/net/tun";

/// Opens the process by which a namespace is found.
///
/// # Errors
/// Returns an error if there is no such process.
pub(crate) fn open_holder(pid: u32) -> Result<OwnedFd> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let holder = number.map_or(Err(Errno::SRCH), |pid| pidfd_open(pid, PidfdFlags::empty()));
    holder.map_err(|error| no_such_process(&Where::Pid(pid), error))
}

/// Returns the start time of a process, in the kernel's unit: ticks since the host's start.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    /// Which of the words behind the name of the program it is (proc_pid_stat(5)).
    const START_TIME: usize = 19;
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(START_TIME)?.parse().ok()
}

fn no_such_process(place: &Where, error: Errno) -> Error {
    Error::environment(format!("cannot open {place}: {error}"))
        .hint("use the ID of a running process that you are allowed to inspect")
}

/// Makes the device of a port. `holder` is the process by which its namespace is found. `agreed` says which kinds of frames the namespace's kernel may exchange with the switch.
///
/// # Errors
/// Returns an error if there is no such namespace, if this process may not make devices in it, or if it has an interface of this
/// name.
pub(crate) fn make(port: &KernelPort, holder: Option<BorrowedFd<'_>>, agreed: Agreed) -> Result<OwnedFd> {
    // Only a thread can be in another namespace than its process. The thread ends after this work.
    let made = std::thread::scope(|scope| {
        let made = std::thread::Builder::new().spawn_scoped(scope, || make_here(port, holder, agreed));
        made.map(std::thread::ScopedJoinHandle::join)
    });
    made.context("cannot start a thread that works in another network namespace")?
        .map_err(|_| Error::environment("the thread that makes a TAP device in another network namespace failed"))?
}

fn make_here(port: &KernelPort, holder: Option<BorrowedFd<'_>>, agreed: Agreed) -> Result<OwnedFd> {
    let fresh = FreshTap::make(port, agreed)?;
    enter(&port.place, holder)?;
    refuse_own_namespace(&port.place)?;
    fresh.move_here(port)
}

/// Makes the device of a port in the namespace of an open file, for example that of a container.
///
/// # Errors
/// Returns an error as [`make`] does.
pub(crate) fn make_at(port: &KernelPort, namespace: BorrowedFd<'_>, agreed: Agreed) -> Result<OwnedFd> {
    in_namespace(
        namespace,
        || FreshTap::make(port, agreed),
        |fresh| {
            refuse_own_namespace(&port.place)?;
            fresh.move_here(port)
        },
    )
}

/// Runs two steps of work in a thread of its own: the first in the namespace of the process, the second in another one.
///
/// # Errors
/// Returns the error of the work, or an error if this process may not enter the namespace.
pub(crate) fn in_namespace<F, T: Send>(
    namespace: BorrowedFd<'_>,
    here: impl FnOnce() -> Result<F> + Send,
    there: impl FnOnce(F) -> Result<T> + Send,
) -> Result<T> {
    let work = || {
        let first = here()?;
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).map_err(|error| {
            Error::environment(format!("cannot enter the network namespace of a port: {error}"))
                .hint("entering a network namespace needs CAP_SYS_ADMIN: run siga as root")
        })?;
        there(first)
    };
    let done = std::thread::scope(|scope| {
        let done = std::thread::Builder::new().spawn_scoped(scope, work);
        done.map(std::thread::ScopedJoinHandle::join)
    });
    done.context("cannot start a thread that works in another network namespace")?
        .map_err(|_| Error::environment("the thread that works in another network namespace failed"))?
}

/// A TAP device in the namespace in which it was made. A descriptor keeps the namespace alive in which it was opened. So a device is made
/// in another namespace than that of its port, and is moved: then it ends with the port's namespace.
#[derive(Debug)]
pub(crate) struct FreshTap {
    device: OwnedFd,
    /// A socket in the namespace in which the device is.
    netlink: Netlink,
    index: u32,
}

impl FreshTap {
    /// Makes a device in the namespace of this thread.
    ///
    /// # Errors
    /// Returns an error if this process may not make devices in it.
    pub(crate) fn make(port: &KernelPort, agreed: Agreed) -> Result<Self> {
        let device = open(TUN, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(no_tun)?;
        let failed = |error: std::io::Error| why_no_tap(&port.interface, &port.place, &error);
        let made =
            sys::make_tap(device.as_fd(), "siga%d", agreed.checksum_unfilled, agreed.large_segments).map_err(failed)?;
        let mut netlink = Netlink::open().context("cannot open a netlink socket for network interfaces")?;
        let index = netlink.link_named(&made).context(format!("cannot find interface {made}"))?.header.index;
        Ok(Self { device, netlink, index })
    }

    /// Moves the device into the namespace of this thread, which is another one now, and configures it.
    ///
    /// # Errors
    /// Returns an error if the namespace has an interface of this name or a route to the same network.
    pub(crate) fn move_here(mut self, port: &KernelPort) -> Result<OwnedFd> {
        let interface = &port.interface;
        let at = |what: &str| format!("cannot {what} interface {interface} in {}", port.place);
        let there = open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let there = there.context("cannot open the network namespace of this process")?;
        let moved = self.netlink.move_to(self.index, there.as_fd(), interface);
        moved.map_err(|error| why_no_tap(interface, &port.place, &error))?;
        let mut netlink = Netlink::open().context("cannot open a netlink socket for network interfaces")?;
        let index = netlink.link_named(interface).context(at("find"))?.header.index;
        netlink.bring_up(index, port.settings.mac, port.mtu).context(at("bring up"))?;
        for own in port.addresses.iter().filter(|own| port.is_configured(own.addr())) {
            netlink
                .add_address(index, own.addr(), own.prefix_len(), NLM_F_REPLACE)
                .context(at(&format!("add {own} to")))?;
        }
        for (to, via) in port.routes.iter().filter(|(_, via)| port.is_configured(*via)) {
            netlink.add_route(to.network(), to.prefix_len(), *via).map_err(|error| {
                let message = at(&format!("add the route to {to} through"));
                let exists = Errno::from_io_error(&error) == Some(Errno::EXIST);
                let error = Error::environment(format!("{message}: {error}"));
                if exists {
                    error.hint("the namespace has a route to this network; remove it, or the `route` of the port")
                } else {
                    error
                }
            })?;
        }
        Ok(self.device)
    }
}

/// Makes a device in the namespace of this thread, and removes it.
///
/// # Errors
/// Returns an error if this process may not make devices in it.
pub(crate) fn try_device() -> Result<()> {
    let device = open(TUN, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(no_tun)?;
    sys::make_tap(device.as_fd(), "siga%d", true, true).context("cannot make a TAP device").map(drop)
}

fn no_tun(error: Errno) -> Error {
    let hint = match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => "modprobe tun",
        Errno::ACCESS | Errno::PERM => {
            "as root: chmod 0666 /dev/net/tun (systemd's default), or give your group access to it"
        }
        _ => "siga doctor",
    };
    Error::environment(format!("cannot open {TUN}: {error}")).hint(hint)
}

fn why_no_tap(interface: &str, place: &Where, error: &std::io::Error) -> Error {
    let message = format!("cannot make the TAP device {interface} in {place}: {error}");
    match Errno::from_io_error(error) {
        Some(Errno::BUSY | Errno::EXIST) => Error::environment(message)
            .hint("an interface with this name already exists; set `interface` to another name"),
        Some(Errno::PERM) => {
            Error::environment(message).hint("making a TAP device needs CAP_NET_ADMIN in this namespace")
        }
        _ => Error::environment(message),
    }
}

/// The interface of an uplink.
#[derive(Debug)]
pub(crate) struct Uplink {
    /// The packet socket of the interface.
    pub(crate) socket: OwnedFd,
    /// Receives the changes of the interface.
    pub(crate) changes: Netlink,
    /// Reads the interface again if changes were lost.
    pub(crate) requests: Netlink,
    pub(crate) index: u32,
    /// The MTU that the interface had when it was opened.
    pub(crate) mtu: u16,
    pub(crate) has_carrier: bool,
}

/// Opens the interface of an uplink.
///
/// # Errors
/// Returns an error if there is no such interface, or if this process may not use it.
pub(crate) fn open_uplink(port: &KernelPort, holder: Option<BorrowedFd<'_>>) -> Result<Uplink> {
    let open = || {
        enter(&port.place, holder)?;
        let interface = &port.interface;
        let at = |what: &str| format!("cannot {what} interface {interface} in {}", port.place);
        let mut netlink = Netlink::open().context("cannot open a netlink socket for network interfaces")?;
        let index = netlink.link_named(interface).context(at("find"))?.header.index;
        let changes = Netlink::watch().context("cannot open a netlink socket for network interfaces")?;
        let has_carrier = netlink.has_carrier(index).context(at("read"))?;
        let mtu = netlink.mtu(index).context(at("read"))?;
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let socket = sys::open_uplink(index).context(at("open a packet socket on"))?;
        Ok(Uplink { socket, changes, requests: netlink, index, mtu, has_carrier })
    };
    let opened = std::thread::scope(|scope| {
        let opened = std::thread::Builder::new().spawn_scoped(scope, open);
        opened.map(std::thread::ScopedJoinHandle::join)
    });
    opened
        .context("cannot start a thread that works in another network namespace")?
        .map_err(|_| Error::environment("the thread that opens an uplink failed"))?
}

fn refuse_own_namespace(place: &Where) -> Result<()> {
    if !is_own_namespace().context("cannot compare the namespace of the port with the namespace of this host")? {
        return Ok(());
    }
    Err(Error::usage(format!("{place} is the network namespace of this host"))
        .hint("use another namespace, or an uplink, which joins the network to this host's interfaces"))
}

/// Returns whether this thread is in the network namespace of its process's first thread.
fn is_own_namespace() -> std::io::Result<bool> {
    let of = |thread: &str| std::fs::metadata(format!("/proc/{thread}/ns/net")).map(|at| (at.st_dev(), at.st_ino()));
    Ok(of("self")? == of("thread-self")?)
}

/// Moves this thread into a namespace. That of a process is entered through `holder`, which never means another process.
fn enter(place: &Where, holder: Option<BorrowedFd<'_>>) -> Result<()> {
    let refused = |error: Errno| {
        Error::environment(format!("cannot enter {place}: {error}"))
            .hint("entering a network namespace needs CAP_SYS_ADMIN: run siga as root")
    };
    let name = match place {
        Where::Here | Where::Joins => return Ok(()),
        Where::Netns(name) => name,
        Where::Pid(_) => {
            let holder = holder.ok_or_else(|| no_such_process(place, Errno::SRCH))?;
            return match move_into_thread_name_spaces(holder, ThreadNameSpaceType::NETWORK) {
                Err(error @ Errno::SRCH) => Err(no_such_process(place, error)),
                entered => entered.map_err(refused),
            };
        }
    };
    let path = format!("{NAMED}/{name}");
    let namespace = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
        Error::environment(format!("cannot open {place}: {path}: {error}"))
            .hint(format!("create the namespace with `ip netns add {name}`"))
    })?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(refused)
}
