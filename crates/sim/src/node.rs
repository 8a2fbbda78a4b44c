//! The interface between the world and its nodes.
//!
//! The world drives a node as a caller drives a stack. Frames and deadlines go in, frames and the next deadline come out, and the
//! time is always an argument. After each call that may change a node, the world sends all frames that the node has to send and
//! reads the node's deadline.

use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;

/// A frame that a node forwards from one of its devices to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The device that sends the frame.
    pub device: DeviceId,
    /// The complete frame.
    pub bytes: Vec<u8>,
    /// The frame's marks: whether the checksum is left out, and the segment size of a large segment.
    pub marks: Marks,
}

/// The state of a link, as one of its nodes receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState {
    /// Whether the link has a carrier.
    pub carrier: bool,
    /// The MTU: bytes of the largest packet.
    pub mtu: usize,
}

/// A host, a router, or anything else that sends and receives frames.
pub trait Node {
    /// Processes a received frame. Frames that the node forwards at once are added to `forwarded`.
    fn handle_frame(
        &mut self,
        now: Instant,
        device: DeviceId,
        frame: &[u8],
        marks: Marks,
        forwarded: &mut Vec<Outgoing>,
    );

    /// Builds the next frame that `device` has to send, if there is one. `into` has room for the longest frame.
    fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit>;

    /// Returns the next time at which the world has to wake the node.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Wakes the node: its deadline has come.
    fn handle_timeout(&mut self, now: Instant);

    /// Notifies the node that the link of this device changed its carrier or MTU. The world also calls this once, when it adds the
    /// link.
    fn link_changed(&mut self, now: Instant, device: DeviceId, state: LinkState);

    /// Returns the first error that the node's own checks found. The world calls this after each event of the node.
    fn check(&self) -> Result<(), String>;

    /// Names everything that the node still has but should not have at rest, such as queued frames, in a few words each.
    fn left_over(&self) -> Vec<String>;
}
