//! The server side of IUCV: applications in other processes use this guest's stack. [`siga_iucv`] has the protocol and the
//! application's side.
//!
//! [`Applications`](applications::Applications) is driven by the guest's event loop:
//! 1. `begin` and `complete` link an application, `woken` handles its notification;
//! 2. `serve`, once a poll iteration, takes commands and announces events;
//! 3. `take_ended` returns the applications that ended meanwhile, for the control program.

mod announce;
pub(crate) mod applications;
mod commands;
pub(crate) mod memory;
mod violation;

use crate::groups::GroupNetworks;
use memory::Memory;
use siga_ring::clock::Ticks;
use siga_stack::Stack;
use siga_stack::time::Instant;

/// What applications use of their guest during one call.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    pub(crate) stack: &'a mut Stack<Memory>,
    pub(crate) groups: &'a GroupNetworks,
    /// This moment, by the ring's clock and by the stack's.
    pub(crate) now: Ticks,
    pub(crate) at: Instant,
    /// An application without commands for this long is no longer polled.
    pub(crate) hot_time: Ticks,
}
