//! A guest's process: confined, then one node's event loop until the control program says stop.

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

/// Runs the guest that the control program at the other end of descriptor 0 wants.
///
/// # Errors
/// The process cannot be confined, or the configuration cannot be run; the control program has the reason by then.
pub fn run() -> Result<()> {
    hide()?;
    let mut channel = Channel::new(launch::channel()?)?;
    channel
        .send(&GuestEvent::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() }, Vec::new())?;
    let (config, listener) = first_order(&mut channel)?;
    // A guest has no need of the host's shortest slice; without it, it waits longer beside busy processes.
    let _ = siga_ring::sys::set_slice(u64::try_from(SLICE.as_nanos()).unwrap_or(u64::MAX));
    raise_descriptor_limit();
    net::listen(&listener, 4).context("cannot listen for a later control program")?;
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

/// What this guest is, and its socket.
fn first_order(channel: &mut Channel) -> Result<(GuestConfig, OwnedFd)> {
    let time = Timespec::try_from(START_TIME_MAX).context("the time to start")?;
    poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&time)).context("cannot wait for the first order")?;
    match channel.receive::<Order>() {
        Ok(Some((Order::Configure(config), mut descriptors))) if descriptors.len() == 1 => {
            Ok((*config, descriptors.remove(0)))
        }
        _ => Err(Error::environment("the control program did not say what guest this is")),
    }
}
