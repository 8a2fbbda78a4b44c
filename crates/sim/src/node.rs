//! The interface between the world and its nodes.
//!
//! The world calls a node as the owner of a stack calls the stack. It passes frames and the current time, and receives frames and
//! the next deadline. After each call that can change a node, the world sends all frames that the node has to send, and asks for
//! the node's next deadline.

use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;

/// A frame that a node forwards from one of its devices to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The device over which the node sends the frame.
    pub device: DeviceId,
    /// The complete frame.
    pub bytes: Vec<u8>,
    /// The frame's marks: whether its checksum is left out, and the segment size if it contains a large segment.
    pub marks: Marks,
}

/// The state of a link. The world passes this state to the nodes at both ends of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState {
    /// True if the link has a carrier.
    pub carrier: bool,
    /// The MTU: length of the largest IP packet in bytes.
    pub mtu: usize,
}

/// A host, a router, or any other type that sends and receives frames.
pub trait Node {
    /// Processes a received frame. The node adds frames that it forwards immediately to `forwarded`.
    fn handle_frame(
        &mut self,
        now: Instant,
        device: DeviceId,
        frame: &[u8],
        marks: Marks,
        forwarded: &mut Vec<Outgoing>,
    );

    /// Writes the next frame that the node has to send over `device` into `into`, if there is one. `into` has room for the longest
    /// frame.
    fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit>;

    /// Returns the next time at which the world has to call [`Node::handle_timeout`], if any.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Does what is due at the node's deadline. The world calls this method when the deadline has come.
    fn handle_timeout(&mut self, now: Instant);

    /// Reports to the node that the link of this device has a new carrier state or MTU. The world also calls this when the link is
    /// added.
    fn link_changed(&mut self, now: Instant, device: DeviceId, state: LinkState);

    /// Returns an error if the node's own checks found one. The world calls this after each event of the node.
    fn check(&self) -> Result<(), String>;

    /// Returns descriptions, of a few words each, of everything that the node should not have at the end of a run, such as queued
    /// frames.
    fn left_over(&self) -> Vec<String>;
}
