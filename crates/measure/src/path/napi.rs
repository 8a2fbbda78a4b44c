//! Switches threaded NAPI of a path's interfaces, and reads it back.
//!
//! With threaded NAPI, a kernel thread of its own receives the packets of an interface, instead of the CPU that sent them. The
//! switch is a file in sysfs. A sysfs shows the interfaces of the network namespace in which it was mounted, so this module makes
//! a mount of its own in each namespace. The mount is in no directory, and it ends with its descriptor.

use super::namespace::Node;
use super::network::{Interface, Network};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::level::Level;
use std::fs::File;
use std::io::{Read, Write};

/// Switches threaded NAPI as the level says. Call it when the interfaces are up, because veth has no NAPI before.
pub(super) fn apply(network: &mut Network, level: &Level) -> Result<()> {
    let Some(on) = level.threaded_napi else { return Ok(()) };
    for interface in network.interfaces.clone() {
        let written = open(network.node(interface.node)?, interface, OFlags::WRONLY)
            .and_then(|mut file| file.write_all(if on { b"1" } else { b"0" }).context("cannot write the sysfs file"));
        written.map_err(|error| refused(level, interface, &error.to_string()))?;
    }
    Ok(())
}

/// Reads the switch of an interface and returns it for the record, or an empty text if the level does not set it. Returns an error
/// if the kernel has not switched as the level says.
pub(super) fn read_back(network: &mut Network, interface: Interface, level: &Level) -> Result<String> {
    let Some(on) = level.threaded_napi else { return Ok(String::new()) };
    let mut text = String::new();
    let mut file = open(network.node(interface.node)?, interface, OFlags::RDONLY)?;
    file.read_to_string(&mut text)
        .context(format!("cannot read whether threaded NAPI is on at {}", interface.label()))?;
    let is_on = text.trim() == "1";
    if is_on != on {
        return Err(refused(level, interface, &format!("the kernel keeps the value {}", text.trim())));
    }
    Ok(format!(" threaded-napi={}", if on { "on" } else { "off" }))
}

fn open(node: &Node, interface: Interface, access: OFlags) -> Result<File> {
    node.enter()?;
    let system = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC).context("cannot open a sysfs file system")?;
    fsconfig_create(&system).context("cannot create an instance of sysfs")?;
    let mount = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        .context("cannot mount an instance of sysfs")?;
    let path = format!("class/net/{}/threaded", interface.name);
    let file = openat(&mount, &path, access | OFlags::CLOEXEC, Mode::empty())
        .context(format!("cannot open the sysfs file {path}"))?;
    Ok(file.into())
}

fn refused(level: &Level, interface: Interface, reason: &str) -> Error {
    let label = interface.label();
    Error::environment(format!("level {}: cannot set threaded NAPI of {label}: {reason}", level.name))
        .hint("run siga as root, on an interface with NAPI; veth uses NAPI if `gro = true`")
}
