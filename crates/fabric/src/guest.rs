//! A guest: a stack over its devices, in a process of its own or in an application that embeds it.
//!
//! The event loop runs *poll iterations*: each takes frames in, does what is due, and lets the stack send. Between iterations
//! the guest waits by the ring's policy ([`siga_ring::wait`]). Nothing here takes a protocol decision: that is the stack's.
//!
//! The stack knows each partner as a device of its own, and this guest's end of the ring pair to it is a *link* (`peer_link`).
//! A network that joins many has one more link without a ring: the stack sends there what is for several partners.

mod applications;
mod backpressure;
mod clock;
mod event_loop;
mod groups;
mod links;
mod orders;
pub(crate) mod peer_link;
pub mod process;
mod report;
mod setup;
#[cfg(test)]
pub(crate) mod tests;
mod wakes;
mod zero_copy;

use crate::groups::GroupNetworks;
use crate::iucv::applications::Applications;
use crate::iucv::memory::Memory;
use crate::protocol::channel::Channel;
use crate::protocol::message::{GuestConfig, RingPairEnd};
use clock::Clock;
use links::HalfPair;
use orders::{Capture, OpenPing};
use peer_link::Links;
use siga_iucv::options::GroupChange;
use siga_ring::clock::Ticks;
use siga_ring::wait::Waiter;
use siga_stack::Stack;
use siga_stack::time::Instant;
use siga_stack::udp::{UdpError, UdpId};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use wakes::Wakes;
pub(crate) use zero_copy::Written;

/// A guest: its stack, its links, and its channel to the control program.
///
/// Method families, in the order of their use:
/// 1. `new` makes a node from a configuration; [`Node::set_confinement`] before the control program asks for it.
/// 2. [`Node::iterate`] runs one poll iteration and returns whether there was anything to do. An application that embeds the stack and
///    reads its events calls [`Node::iterate_before_answers`] instead.
/// 3. [`Node::runs`] and [`Node::stops`] say what the control program has ordered.
/// 4. [`Node::wait`] waits for the next iteration by the waiting policy. A caller with an event loop of its own uses
///    [`Node::fall_asleep`] and waits for [`Node::descriptor`]. [`Node::wake`] ends a wait from another thread.
/// 5. `send_now` and its relatives, between iterations, send what the application has just written.
///
/// ```no_run
/// # fn example(mut node: siga_fabric::guest::Node) {
/// while !node.stops() {
///     if !node.iterate() {
///         node.wait(None);
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Node {
    stack: Stack<Memory>,
    config: GuestConfig,
    confinement: String,
    links: Links,
    /// For each device the link that stands for all its partners; for a point-to-point device, its only link.
    main_links: Vec<usize>,
    control: Option<(u64, Channel)>,
    listener: Option<OwnedFd>,
    reconnecting: Vec<Option<(u64, Channel)>>,
    wakes: Wakes,
    waiter: Waiter,
    /// The stack's output waits until the application has processed its pending events (decision 015).
    owes_answers: bool,
    /// It waits for one more iteration, because the application had not received all events before the last one.
    puts_answers_off: bool,
    clock: Clock,
    /// Halves of ring pairs that wait for the partner's half.
    halves: Vec<HalfPair>,
    /// The ring pairs of the links that are attached.
    held: Vec<(usize, RingPairEnd)>,
    applications: Applications,
    group_networks: GroupNetworks,
    pings: Vec<OpenPing>,
    capture: Option<Capture>,
    /// When to look for idle ring pairs again.
    next_idle_look: Ticks,
    scratch: Vec<u8>,
    /// Until then a zero-copy send waits for a retained buffer.
    retained_until: Option<Ticks>,
    runs: bool,
    stops: bool,
}

impl Node {
    /// A descriptor that is readable when there may be something to do, once [`Node::fall_asleep`] has been called.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.wakes.events.descriptor()
    }

    /// The stack.
    pub(crate) fn stack(&mut self) -> &mut Stack<Memory> {
        &mut self.stack
    }

    /// Changes the groups of a datagram socket, or how it sends to groups.
    pub(crate) fn change_group(&mut self, id: UdpId, change: GroupChange) -> Result<(), UdpError> {
        let at = self.now();
        self.group_networks.change(&mut self.stack, at, id, change)
    }

    /// The stack's time.
    pub fn now(&self) -> Instant {
        self.clock.instant(self.clock.now())
    }

    /// The guest has received all its partners and the order to run.
    pub fn runs(&self) -> bool {
        self.runs
    }

    /// The guest has received the order to end.
    pub fn stops(&self) -> bool {
        self.stops
    }

    /// An event that ends a wait when it is written to.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn wake(&mut self) -> std::io::Result<Arc<OwnedFd>> {
        self.wakes.wake()
    }
}
