//! Moves a thread or process out of its current network or user namespace into a new one (unshare(2)).
//!
//! This module offers only the two flags that the builder of paths needs. unshare(2) is unsafe in general because other flags
//! change memory, descriptor tables or the file system; these two do not. To enter an existing namespace, use rustix's
//! `move_into_link_name_space`, which is already safe.

use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;

/// Moves the calling thread into a new network namespace. Returns EPERM without CAP_SYS_ADMIN, and ENOSPC at the limit
/// `user.max_net_namespaces`.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: without the flag CLONE_FILES, every thread keeps its descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Moves the calling process into a new user namespace. There the process has every capability, and no user id is mapped
/// yet. Returns EINVAL if the process has several threads. Returns EPERM or ENOSPC where unprivileged user namespaces are
/// switched off.
pub(crate) fn unshare_user() -> io::Result<()> {
    // SAFETY: without the flag CLONE_FILES, every thread keeps its descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}
