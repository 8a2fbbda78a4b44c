//! What the world asks of whoever lives in it.
//!
//! A node is driven as a stack is: frames and deadlines in, frames and the next deadline out, time always an argument. After
//! each call that may change it the world takes all frames that it has to send, from every device, and asks for its deadline.

use siga_stack::link::frame::{DeviceId, Marks};
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

/// A frame that a node has built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Built {
    /// Its length.
    pub len: usize,
    /// What its receiver has to know of it.
    pub marks: Marks,
}

/// What a node is told of the link at one of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState {
    /// Whether there is a carrier.
    pub carrier: bool,
    /// Bytes of the largest packet.
    pub mtu: usize,
}

/// A host, a router, or whatever else sends and receives frames.
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
    fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Built>;

    /// When it wants to be woken.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Its time has come.
    fn handle_timeout(&mut self, now: Instant);

    /// The link at this device changed: its carrier or its MTU. Told once in the beginning, too.
    fn link_changed(&mut self, now: Instant, device: DeviceId, state: LinkState);

    /// Whether all is right with it so far, as far as it knows: a checker at work inside it. Asked for after each event.
    fn check(&self) -> Result<(), String>;

    /// What it still holds that a node at rest would not: a queue, a buffer, a half of something. One word or two each.
    fn left_over(&self) -> Vec<String>;
}
