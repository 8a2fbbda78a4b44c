//! The interface between the world and its nodes.
//!
//! The world drives a node as a caller drives a stack: frames and deadlines in, frames and the next deadline out, time always an
//! argument. After each call that may change a node, the world takes all its frames from every device, and reads its deadline.

use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;

/// A frame that a node passes on from one of its devices to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The device it leaves by.
    pub device: DeviceId,
    /// All of it.
    pub bytes: Vec<u8>,
    /// What its receiver has to know of it.
    pub marks: Marks,
}

/// The state of a link, as one of its nodes receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState {
    /// Whether there is a carrier.
    pub carrier: bool,
    /// Bytes of the largest packet.
    pub mtu: usize,
}

/// A host, a router, or anything else that sends and receives frames.
pub trait Node {
    /// Takes a frame that arrived. What it passes on at once goes into `forwarded`.
    fn handle_frame(
        &mut self,
        now: Instant,
        device: DeviceId,
        frame: &[u8],
        marks: Marks,
        forwarded: &mut Vec<Outgoing>,
    );

    /// Builds the next frame for this device, if there is one to be sent. `into` is as long as the longest frame.
    fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit>;

    /// The time at which the world has to wake it.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Its deadline has come.
    fn handle_timeout(&mut self, now: Instant);

    /// The link at this device changed its carrier or MTU. The world also calls this once at the beginning.
    fn link_changed(&mut self, now: Instant, device: DeviceId, state: LinkState);

    /// The result of the node's own checks so far. The world calls this after each event.
    fn check(&self) -> Result<(), String>;

    /// What the node holds that a node at rest would not, such as a queue or a buffer, in one or two words each.
    fn left_over(&self) -> Vec<String>;
}
