//! Moves a thread or process out of its current network or user namespace into a new one (unshare(2)).
//!
//! This module offers only the two flags of unshare(2) that siga needs for building paths. These two are safe. unshare(2) is
//! unsafe in general, because other flags change memory, descriptor tables or the file system. To enter an existing namespace,
//! use rustix's `move_into_link_name_space`, which is a safe function.

use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;

/// Moves the calling thread into a new network namespace. Returns EPERM if the thread lacks CAP_SYS_ADMIN, and ENOSPC if there
/// are already `user.max_net_namespaces` network namespaces.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: without the flag CLONE_FILES, every thread keeps its descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Moves the calling process into a new user namespace. In this namespace the process has every capability, but no user id is
/// mapped yet. Returns EINVAL if the process has several threads. Returns EPERM or ENOSPC if the host has disabled user
/// namespaces for unprivileged processes.
pub(crate) fn unshare_user() -> io::Result<()> {
    // SAFETY: without the flag CLONE_FILES, every thread keeps its descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}
