//! A guest: a stack and its devices, in a process of their own or in an application that embeds them.
//!
//! The event loop runs *poll iterations*. An iteration takes frames from the rings, handles expired timers, and sends the stack's
//! output. Between iterations the guest waits according to its waiting policy ([`siga_ring::wait`]). The stack makes all protocol
//! decisions, and this module makes none.
//!
//! For the stack, each partner is a separate device. The guest's end of the ring pair to a partner is a *link* (`peer_link`). A
//! network that can join more than two guests has one additional link without a ring, the main link. The stack sends packets for
//! several partners over the main link.

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
/// 1. `new` makes a node from a configuration. Before the control program asks how the process is confined, the caller calls
///    [`Node::set_confinement`].
/// 2. [`Node::iterate`] runs one poll iteration and returns whether there was anything to do. An application that embeds the stack
///    and reads the stack's events calls [`Node::iterate_before_answers`] instead.
/// 3. [`Node::runs`] and [`Node::stops`] return what the control program has ordered.
/// 4. [`Node::wait`] waits for the next iteration according to the waiting policy. A caller with its own event loop calls
///    [`Node::fall_asleep`] and waits until [`Node::descriptor`] is readable. [`Node::wake`] returns an eventfd by which another
///    thread ends a wait.
/// 5. `send_now` and related methods send, between iterations, what the application has just written.
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
    /// For each device, the index of its main link, which stands for all partners. The main link of a point-to-point device is its
    /// only link.
    main_links: Vec<usize>,
    control: Option<(u64, Channel)>,
    listener: Option<OwnedFd>,
    reconnecting: Vec<Option<(u64, Channel)>>,
    wakes: Wakes,
    waiter: Waiter,
    /// True if the stack's output waits until the application has processed its pending events (decision 015).
    owes_answers: bool,
    /// True if the stack's output waits for one more iteration, because the application had not received all events before the last
    /// one.
    puts_answers_off: bool,
    clock: Clock,
    /// Ring pairs for which this guest has made its half, and the partner's half has not arrived.
    halves: Vec<HalfPair>,
    /// The ring pair of each attached link, with the index of the link.
    held: Vec<(usize, RingPairEnd)>,
    applications: Applications,
    group_networks: GroupNetworks,
    pings: Vec<OpenPing>,
    capture: Option<Capture>,
    /// The time of the next check for idle ring pairs.
    next_idle_look: Ticks,
    scratch: Vec<u8>,
    /// The time until which a zero-copy send waits for a retained buffer to become free. `None` if none waits.
    retained_until: Option<Ticks>,
    runs: bool,
    stops: bool,
}

impl Node {
    /// Returns a descriptor that becomes readable when there may be something to do. The caller must call [`Node::fall_asleep`]
    /// first.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.wakes.events.descriptor()
    }

    pub(crate) fn stack(&mut self) -> &mut Stack<Memory> {
        &mut self.stack
    }

    /// Changes the multicast groups of a datagram socket, or how it sends to groups.
    pub(crate) fn change_group(&mut self, id: UdpId, change: GroupChange) -> Result<(), UdpError> {
        let at = self.now();
        self.group_networks.change(&mut self.stack, at, id, change)
    }

    /// Returns the current time of the stack.
    pub fn now(&self) -> Instant {
        self.clock.instant(self.clock.now())
    }

    /// Returns whether the guest has received the order to run. The control program sends this order after it has announced all
    /// partners.
    pub fn runs(&self) -> bool {
        self.runs
    }

    /// Returns whether the guest has to end: it has received the order, or it has lost a control program that no other can replace.
    pub fn stops(&self) -> bool {
        self.stops
    }

    /// Returns an eventfd. A write to it ends a wait of this node.
    ///
    /// # Errors
    /// Returns an error if this process has run out of descriptors.
    pub fn wake(&mut self) -> std::io::Result<Arc<OwnedFd>> {
        self.wakes.wake()
    }
}
