//! Leaving the current network and user namespace (unshare(2)).
//!
//! Only the two flags that the builder of paths needs are offered: neither touches memory, descriptor tables or the file
//! system, which is what makes unshare(2) unsafe in general. Entering an existing namespace is rustix's
//! `move_into_link_name_space`, which is safe already.

use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;

/// Moves the calling thread into a network namespace of its own.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; ENOSPC at the limit `user.max_net_namespaces`.
pub fn unshare_network() -> io::Result<()> {
    // SAFETY: CLONE_FILES is not asked for, so every thread keeps its view of the descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Moves the calling process into a user namespace of its own, in which it has every capability and no mapped id.
///
/// # Errors
/// EINVAL in a process with several threads; EPERM or ENOSPC where unprivileged user namespaces are switched off.
pub fn unshare_user() -> io::Result<()> {
    // SAFETY: CLONE_FILES is not asked for, so every thread keeps its view of the descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}
