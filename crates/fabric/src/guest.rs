//! A guest: a TCP/IP stack and its devices. A guest runs in a process of its own, or in the process of an application that embeds
//! it.
//!
//! The event loop of a guest runs *poll iterations*. An iteration receives frames from the rings, handles expired timers, and sends
//! the stack's output. Between iterations the guest waits according to its waiting policy ([`siga_ring::wait`]). The stack makes
//! all protocol decisions.
//!
//! A *partner* is another guest on one of the guest's networks. The guest's end of the ring pair to a partner is a *link*
//! (`peer_link`). The stack sees each link as a separate device. A network that can join more than two guests also has a *main
//! link* without a ring. The stack sends packets for several partners, such as multicast packets, over the main link.

mod applications;
mod backlog;
mod block_capture;
pub(crate) mod carded;
mod emulated;
mod event_loop;
mod groups;
mod hot;
mod links;
mod orders;
pub(crate) mod peer_link;
pub(crate) mod port_filter;
mod ports;
pub mod process;
mod relay;
mod report;
mod retire;
mod senders;
mod setup;
#[cfg(test)]
pub(crate) mod tests;
mod totals;
mod wakes;
mod wire;
mod zero_copy;

use crate::clock::Clock;
use crate::groups::GroupNetworks;
use crate::iucv::applications::Applications;
use crate::iucv::memory::Memory;
use crate::protocol::channel::Channel;
use crate::protocol::message::{GuestConfig, RingPairEnd};
use crate::switch::Switch;
use links::HalfPair;
use orders::{Capture, OpenPing};
use peer_link::Links;
use retire::Stopping;
use siga_iucv::options::DatagramChange;
use siga_ring::clock::Ticks;
use siga_ring::wait::Waiter;
use siga_stack::Stack;
use siga_stack::time::Instant;
use siga_stack::udp::{UdpError, UdpId};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;
use wakes::Wakes;
pub(crate) use zero_copy::Written;

/// A guest (a node of a virtual network): its stack, its links, and its channel to the control program.
///
/// Method families, in the order of their use:
/// 1. `new` makes a node from a configuration. The caller then calls [`Node::set_confinement`], because the control program
///    receives a description of how the process is confined.
/// 2. [`Node::iterate`] runs one poll iteration and returns whether there was anything to do. An application that embeds the node
///    calls [`Node::iterate_before_answers`] instead.
/// 3. [`Node::runs`] and [`Node::stops`] return whether the control program has ordered the guest to run or to stop.
/// 4. [`Node::wait`] waits, according to the waiting policy, until another iteration is needed. A caller with its own event loop
///    calls [`Node::fall_asleep`] instead, and waits until [`Node::descriptor`] is readable. [`Node::wake`] returns an eventfd by
///    which another thread ends a wait.
/// 5. `send_now` and related methods send data that the application has just written, without waiting for the next iteration.
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
    /// For each device, the index of its main link, over which the stack sends to several partners. The main link of a
    /// point-to-point device is the device's only link.
    main_links: Vec<usize>,
    control: Option<(u64, Channel)>,
    listener: Option<OwnedFd>,
    reconnecting: Vec<Option<(u64, Channel)>>,
    wakes: Wakes,
    waiter: Waiter,
    /// True if the stack's output is not sent until the application has processed its pending events (decision 015).
    owes_answers: bool,
    /// True if the stack's output may be delayed once more, because the application had not received all its events before the last
    /// iteration.
    puts_answers_off: bool,
    clock: Clock,
    /// Ring pairs for which this guest has made its half, but the partner's half has not arrived.
    halves: Vec<HalfPair>,
    /// The ring pairs of all attached links, each with the index of its link.
    held: Vec<(usize, RingPairEnd)>,
    applications: Applications,
    group_networks: GroupNetworks,
    pings: Vec<OpenPing>,
    capture: Option<Capture>,
    /// The time of the next check for idle ring pairs.
    next_idle_look: Ticks,
    scratch: Vec<u8>,
    /// The switch, if this node is one. A switch's stack has no addresses.
    switch: Option<Box<Switch>>,
    /// The time until which a zero-copy send waits for a retained buffer to become free. `None` if no zero-copy send waits.
    retained_until: Option<Ticks>,
    /// What the guest has been ordered to stop, and has not reported yet.
    stopping: Option<Box<Stopping>>,
    runs: bool,
    stops: bool,
}

impl Node {
    /// Returns a descriptor that becomes readable when another iteration may be needed. The caller must call [`Node::fall_asleep`]
    /// before it waits for the descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.wakes.events.descriptor()
    }

    pub(crate) fn stack(&mut self) -> &mut Stack<Memory> {
        &mut self.stack
    }

    /// Changes the multicast groups or an option of a datagram socket.
    pub(crate) fn change_datagrams(&mut self, id: UdpId, change: DatagramChange) -> Result<(), UdpError> {
        let at = self.now();
        self.group_networks.change(&mut self.stack, at, id, change)
    }

    /// Returns the current time on the stack's clock.
    pub fn now(&self) -> Instant {
        self.clock.instant(self.clock.now())
    }

    /// Returns the time on the clock of the host at which the stack's clock showed `at`.
    pub(crate) fn wall_time(&self, at: Instant) -> SystemTime {
        self.clock.wall_time(at)
    }

    /// Returns whether the guest has received the order to run. The control program sends this order after it has announced all
    /// partners.
    pub fn runs(&self) -> bool {
        self.runs
    }

    /// Returns whether the guest has to end: it has received the order to stop, or its control program has ended and no other can
    /// connect to it.
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
