//! The guest's side of IUCV, the protocol with which applications in other processes use this guest's stack. The crate
//! [`siga_iucv`] contains the protocol and the application's side.
//!
//! The guest's event loop calls the methods of [`Applications`](applications::Applications):
//! 1. `begin` and `complete` make the shared-memory link to an application. `woken` handles a notification from the application.
//! 2. `serve` carries out commands of the applications and sends events to them, once in each poll iteration.
//! 3. `take_ended` returns the applications that have ended since the last call. The guest reports them to the control program.

mod announce;
pub(crate) mod applications;
mod commands;
pub(crate) mod direct;
pub(crate) mod memory;
mod pooled;
mod reservations;
mod sharing;
mod violation;

use crate::clock::Clock;
use crate::groups::GroupNetworks;
use memory::Memory;
use siga_ring::clock::Ticks;
use siga_stack::Stack;
use siga_stack::time::Instant;

/// The parts of a guest that the methods of this module use: its stack and the current time.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    pub(crate) stack: &'a mut Stack<Memory>,
    pub(crate) groups: &'a GroupNetworks,
    /// Converts times of the stack to times of the host.
    pub(crate) clock: &'a Clock,
    /// The current time on the clock of the rings (`now`) and on the clock of the stack (`at`).
    pub(crate) now: Ticks,
    pub(crate) at: Instant,
    /// After this time without a command from an application, the guest no longer polls the application's ring.
    pub(crate) hot_time: Ticks,
}
