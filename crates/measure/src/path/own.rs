//! A network namespace for one process that measures no path, such as that of a command: it has the loopback interface only.

use super::build::up;
use super::namespace::{sysctl_file, sysctl_here};
use super::netlink::Netlink;
use crate::sys::namespace::unshare_network;
use siga_model::error::{Error, IoContext, Result};
use std::collections::BTreeMap;
use std::fs;

/// Index of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;

/// Moves this thread into a new network namespace, and sets these sysctls there.
///
/// # Errors
/// Returns an error of kind `Environment` if the host does not permit it, or if a sysctl does not have its value afterwards.
pub(crate) fn own_network(sysctls: &BTreeMap<String, String>) -> Result<()> {
    unshare_network().map_err(|error| {
        Error::environment(format!("cannot make a network namespace for the command: {error}"))
            .hint("siga needs root to set the sysctls of a level for a command")
    })?;
    let raised = Netlink::open().and_then(|mut netlink| netlink.set_link(up(LOOPBACK)));
    raised.context("cannot bring up the loopback interface")?;
    for (name, value) in sysctls {
        let written = fs::write(sysctl_file(name), value).map_err(|error| error.to_string());
        let is = sysctl_here(name);
        let wanted = value.split_whitespace().collect::<Vec<_>>().join(" ");
        if written.is_err() || is.as_ref() != Some(&wanted) {
            let why = written
                .err()
                .unwrap_or_else(|| format!("the value is still {}", is.unwrap_or_else(|| "absent".to_owned())));
            return Err(Error::environment(format!("cannot set sysctl {name} to {value}: {why}"))
                .hint("change the table `sysctl` in the level"));
        }
    }
    Ok(())
}
