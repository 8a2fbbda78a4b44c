//! The process of a guest. The process first gives up the privileges that it does not need. Then it runs the event loop of one node
//! until the control program orders it to stop.

use crate::guest::Node;
use crate::isolate::launch;
use crate::isolate::{Profile, confine, hide, raise_descriptor_limit};
use crate::limits::{SLICE, START_TIME_MAX};
use crate::protocol::channel::Channel;
use crate::protocol::message::{GuestConfig, GuestEvent, Order, PROTOCOL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net;
use siga_model::error::{Error, IoContext, Result};
use std::os::fd::OwnedFd;

/// Runs a guest in this process. Descriptor 0 is the channel to the control program, which sends the guest's configuration.
///
/// # Errors
/// Returns an error if the process cannot be confined or the configuration is invalid. If the process cannot be confined, the
/// control program receives the error too.
pub fn run() -> Result<()> {
    // A confined process cannot find the kernel's vDSO. Without it, each notification needs a system call for the number of the CPU.
    siga_ring::clock::begin();
    hide()?;
    let mut channel = Channel::new(launch::channel()?)?;
    channel
        .send(&GuestEvent::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() }, Vec::new())?;
    let (config, listener) = first_order(&mut channel)?;
    ask_for_slice();
    raise_descriptor_limit();
    let confinement = match confine(Profile::Guest) {
        Ok(confinement) => confinement,
        Err(error) => {
            channel.send(&GuestEvent::Failed(error.clone()), Vec::new())?;
            return Err(error);
        }
    };
    let mut node = Node::new(config, channel, Some(listener))?;
    node.set_confinement(confinement.to_string());
    loop {
        let busy = node.iterate();
        if node.stops() {
            return Ok(());
        }
        if !busy {
            node.wait(None);
        }
    }
}

/// Requests a short time slice from the scheduler, so that this process gets the CPU sooner when other processes are busy. Older
/// kernels do not support the request, and the failure is ignored.
pub(crate) fn ask_for_slice() {
    let _ = siga_ring::sys::set_slice(u64::try_from(SLICE.as_nanos()).unwrap_or(u64::MAX));
}

/// Receives the first order, which contains the configuration of this guest and a socket. Makes the socket listen, so that a
/// restarted control program can connect to this guest.
pub(crate) fn first_order(channel: &mut Channel) -> Result<(GuestConfig, OwnedFd)> {
    let time = Timespec::try_from(START_TIME_MAX).context("the time limit for the start of a guest is too long")?;
    poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&time))
        .context("the guest cannot wait for the first order of the control program")?;
    let silent = || Error::environment("the control program did not send the guest's identity");
    let Ok(Some((Order::Configure(config), descriptors))) = channel.receive() else { return Err(silent()) };
    let [listener]: [OwnedFd; 1] = descriptors.try_into().map_err(|_| silent())?;
    net::listen(&listener, 4).context("the guest cannot listen for connections of a later control program")?;
    Ok((*config, listener))
}
