//! A world: nodes, links between their devices, a schedule of changes, and virtual time. Virtual time advances from one event to
//! the next.
//!
//! Events with the same time happen in the order in which they were created. So a run depends only on the seed and on the calls.
//! After each event of a node, the world sends all frames that the node has to send. A violation ends the run, and stops virtual
//! time.

use std::collections::BTreeMap;
use std::fmt;

use siga_stack::limits::FRAME_BYTES_MAX;
use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::time::Instant;

use crate::capture::{Capture, Point};
use crate::check::{Violation, Wrong};
use crate::fault::{Faults, Wire};
use crate::lane::{Arrival, Lane};
use crate::limits::{
    DEVICES_MAX, EVENTS_PENDING_MAX, FRAMES_PER_INSTANT_MAX, LINKS_MAX, NODES_MAX, WAKES_PER_INSTANT_MAX,
    WAKES_PER_SECOND_MAX,
};
use crate::node::{LinkState, Node, Outgoing};
use crate::rng::Rng;
use crate::trace::{LaneId, LinkId, NodeId, Side, Trace, Watcher, What};

/// Nodes and links in virtual time.
#[derive(Debug)]
pub struct World<N> {
    now: Instant,
    seed: u64,
    nodes: Vec<Slot<N>>,
    links: Vec<Link>,
    pending: BTreeMap<Key, Pending>,
    scheduled: u64,
    trace: Trace,
    capturing: bool,
    violation: Option<Violation>,
    /// The buffer into which nodes write the frames that they send.
    buffer: Vec<u8>,
}

/// One end of a link: a device of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The node.
    pub node: NodeId,
    /// The device of the node.
    pub device: DeviceId,
}

/// A change of a link, as scheduled by [`World::schedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// New faults for one direction of the link.
    Faults {
        /// The end that sends in this direction.
        from: Side,
        /// The faults that apply from the time of the change on.
        faults: Faults,
    },
    /// New properties of the link, for both directions. If the MTU changes, the world notifies both nodes.
    Wire(Wire),
    /// The link has a carrier (true) or has lost it (false). The world notifies both nodes.
    Carrier(bool),
    /// A new MTU: length of the largest IP packet in bytes. The world notifies both nodes.
    Mtu(usize),
}

/// Why a world could not be built or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildError {
    /// The world already has [`NODES_MAX`] nodes.
    TooManyNodes,
    /// The world already has [`LINKS_MAX`] links.
    TooManyLinks,
    /// The device number is too large, because a node has at most [`DEVICES_MAX`] devices.
    TooManyDevices,
    /// An end of the link is at a node that does not exist.
    NoSuchNode,
    /// The change is for a link that does not exist.
    NoSuchLink,
    /// The device already has a link.
    DeviceTaken,
    /// The change is scheduled for a time that has already passed.
    Past,
    /// A stack refused a device, a route or an address.
    Stack,
}

/// The time of an event, and its number in the order of creation.
type Key = (Instant, u64);

#[derive(Debug)]
enum Pending {
    Arrival(LaneId, Arrival),
    Alarm(NodeId),
    Change(LinkId, Change),
}

#[derive(Debug)]
struct Slot<N> {
    node: N,
    devices: Vec<Option<(LinkId, Side)>>,
    alarm: Option<Key>,
    instant: Instant,
    frames_in_instant: u32,
    wakes_in_instant: u32,
    /// The number of the current second of virtual time.
    second: u64,
    wakes_in_second: u32,
}

#[derive(Debug)]
struct Link {
    ends: [End; 2],
    lanes: [Lane; 2],
    capture: Option<Capture>,
}

const fn at(side: Side) -> usize {
    side as usize
}

impl<N: Node> World<N> {
    /// Creates an empty world. All its random numbers come from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::default(),
            seed,
            nodes: Vec::new(),
            links: Vec::new(),
            pending: BTreeMap::new(),
            scheduled: 0,
            trace: Trace::default(),
            capturing: false,
            violation: None,
            buffer: vec![0; FRAME_BYTES_MAX],
        }
    }

    /// Connects the nodes in the order of their ids, each to the next. Each link connects the last device of the left node to the
    /// first device of the right node.
    pub fn link_row(&mut self, wires: &[Wire]) -> Result<Vec<LinkId>, BuildError> {
        let end = |node, device| End { node: NodeId(node), device: DeviceId(device) };
        let joints = (0..).zip(wires);
        joints.map(|(left, wire)| self.link(end(left, u16::from(left > 0)), end(left + 1, 0), *wire)).collect()
    }

    /// Adds a node and returns its id.
    pub fn add(&mut self, node: N) -> Result<NodeId, BuildError> {
        let id = u16::try_from(self.nodes.len()).map_err(|_| BuildError::TooManyNodes)?;
        if self.nodes.len() >= NODES_MAX {
            return Err(BuildError::TooManyNodes);
        }
        self.nodes.push(Slot {
            node,
            devices: Vec::new(),
            alarm: None,
            instant: self.now,
            frames_in_instant: 0,
            wakes_in_instant: 0,
            second: 0,
            wakes_in_second: 0,
        });
        Ok(NodeId(id))
    }

    /// Connects two devices by a link, and notifies the nodes of both devices.
    pub fn link(&mut self, a: End, b: End, wire: Wire) -> Result<LinkId, BuildError> {
        let id = u16::try_from(self.links.len()).map_err(|_| BuildError::TooManyLinks)?;
        if self.links.len() >= LINKS_MAX {
            return Err(BuildError::TooManyLinks);
        }
        let link = LinkId(id);
        if a == b {
            return Err(BuildError::DeviceTaken);
        }
        for end in [a, b] {
            let slot = self.nodes.get(usize::from(end.node.0)).ok_or(BuildError::NoSuchNode)?;
            if usize::from(end.device.0) >= DEVICES_MAX {
                return Err(BuildError::TooManyDevices);
            }
            if slot.devices.get(usize::from(end.device.0)).is_some_and(Option::is_some) {
                return Err(BuildError::DeviceTaken);
            }
        }
        for (end, side) in [(a, Side::A), (b, Side::B)] {
            let (devices, device) = (&mut self.slot_mut(end.node).devices, usize::from(end.device.0));
            devices.resize(devices.len().max(device + 1), None);
            devices[device] = Some((link, side));
        }
        let lane = |side| Lane::new(wire, Rng::new(self.seed, u64::from(id) * 2 + side));
        let lanes = [lane(0), lane(1)];
        let capture = self.capturing.then(|| Capture::new(wire.medium));
        self.links.push(Link { ends: [a, b], lanes, capture });
        self.tell(link);
        Ok(link)
    }

    /// Schedules a change of a link. The time `when` must not be in the past.
    pub fn schedule(&mut self, when: Instant, link: LinkId, change: Change) -> Result<(), BuildError> {
        if usize::from(link.0) >= self.links.len() {
            return Err(BuildError::NoSuchLink);
        }
        if when < self.now {
            return Err(BuildError::Past);
        }
        self.push(when, Pending::Change(link, change));
        Ok(())
    }

    /// Makes the world call `watcher` with every event from now on.
    pub fn watch(&mut self, watcher: Watcher) {
        self.trace.watcher = Some(watcher);
    }

    /// Excludes the contents of frames from the hash. This saves time in large worlds in which the contents do not matter.
    pub fn hash_no_contents(&mut self) {
        self.trace.no_contents = true;
    }

    /// Makes the world capture the frames of every link that is added from now on.
    pub fn capture_links(&mut self) {
        self.capturing = true;
    }

    /// Returns the capture of a link, or `None` if the link is not captured.
    pub fn capture(&self, link: LinkId) -> Option<&Capture> {
        self.links[usize::from(link.0)].capture.as_ref()
    }

    /// Returns the current virtual time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the hash of all events until now.
    pub const fn hash(&self) -> u64 {
        self.trace.hash.0
    }

    /// Returns the number of events until now.
    pub const fn events(&self) -> u64 {
        self.trace.events
    }

    /// Returns the first violation, or `None` if the run is correct until now.
    pub const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Returns the ids of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<N> {
        (0..u16::try_from(self.nodes.len()).unwrap_or(u16::MAX)).map(NodeId)
    }

    /// Returns a node.
    pub fn node(&self, id: NodeId) -> &N {
        &self.nodes[usize::from(id.0)].node
    }

    /// Returns the ids of all lanes. A link has two lanes, one for each direction.
    pub fn lane_ids(&self) -> impl Iterator<Item = LaneId> + use<N> {
        let links = (0..u16::try_from(self.links.len()).unwrap_or(u16::MAX)).map(LinkId);
        links.flat_map(|link| [Side::A, Side::B].map(|from| LaneId { link, from }))
    }

    /// Returns a lane: one direction of a link.
    pub fn lane(&self, id: LaneId) -> &Lane {
        &self.links[usize::from(id.link.0)].lanes[at(id.from)]
    }

    /// Calls `act` with a node and the current time, then sends all frames that the node has to send.
    pub fn drive<R>(&mut self, id: NodeId, act: impl FnOnce(&mut N, Instant) -> R) -> R {
        let now = self.now;
        let result = act(&mut self.slot_mut(id).node, now);
        self.settle(id);
        result
    }

    /// Processes all events up to the time `end`, and sets the clock to `end`.
    pub fn run_until(&mut self, end: Instant) -> Result<(), Violation> {
        while self.violation.is_none() && self.pending.first_key_value().is_some_and(|(key, _)| key.0 <= end) {
            self.step();
        }
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Processes events until `done` returns true, and returns the time of the last event. `done` is called before each event. If
    /// `done` still returns false at the time `end`, the result is a violation that contains `what`.
    pub fn run_until_done(
        &mut self,
        end: Instant,
        what: &str,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<Instant, Violation> {
        let begin = self.now;
        while !done(self) {
            let next = self.pending.first_key_value().map(|(key, _)| key.0).filter(|&next| next <= end);
            if self.violation.is_none() && next.is_none() {
                self.now = self.now.max(end);
                self.fail(Wrong::NoProgress { within: end.since(begin), what: what.to_owned() });
            }
            if let Some(violation) = &self.violation {
                return Err(violation.clone());
            }
            self.step();
        }
        Ok(self.now)
    }

    /// Checks that all activity has ended: every frame is accounted for, no frame is in flight, and no node has anything queued or
    /// buffered.
    pub fn check_at_rest(&self) -> Result<(), Violation> {
        for (id, link) in (0..).map(LinkId).zip(&self.links) {
            for (from, lane) in [Side::A, Side::B].into_iter().zip(&link.lanes) {
                let lane_id = LaneId { link: id, from };
                let wrong = match lane.in_flight() {
                    _ if !lane.is_balanced() => Wrong::Unaccounted(lane_id),
                    0 => continue,
                    frames => Wrong::LeftOver(format!("{lane_id}: {frames} frames are still on their way")),
                };
                return Err(Violation { at: self.now, what: wrong });
            }
        }
        for (id, slot) in (0..).map(NodeId).zip(&self.nodes) {
            if let Some(held) = slot.node.left_over().first() {
                let what = Wrong::LeftOver(format!("node {}: {held}", id.0));
                return Err(Violation { at: self.now, what });
            }
        }
        Ok(())
    }

    fn slot_mut(&mut self, id: NodeId) -> &mut Slot<N> {
        &mut self.nodes[usize::from(id.0)]
    }

    fn fail(&mut self, what: Wrong) {
        let at = self.now;
        self.violation.get_or_insert(Violation { at, what });
    }

    fn push(&mut self, when: Instant, pending: Pending) -> Key {
        let key = (when.max(self.now), self.scheduled);
        self.scheduled += 1;
        if self.pending.len() >= EVENTS_PENDING_MAX {
            self.fail(Wrong::TooManyPending);
        } else {
            self.pending.insert(key, pending);
        }
        key
    }

    /// Processes the next scheduled event.
    fn step(&mut self) {
        let Some(((when, _), event)) = self.pending.pop_first() else { return };
        self.now = when;
        match event {
            Pending::Arrival(lane, arrival) => self.arrive(lane, &arrival),
            Pending::Alarm(node) => self.wake(node),
            Pending::Change(link, change) => self.change(link, change),
        }
    }

    fn arrive(&mut self, id: LaneId, arrival: &Arrival) {
        let now = self.now;
        let link = &mut self.links[usize::from(id.link.0)];
        if let Err(fate) = link.lanes[at(id.from)].arrive(arrival) {
            self.trace.record(now, What::Befell { lane: id, fate });
            return;
        }
        let medium = link.lanes[at(id.from)].wire().medium;
        self.trace.record(now, What::Arrived { lane: id, medium, frame: &arrival.bytes });
        let to = id.from.other();
        if let Some(capture) = &mut link.capture {
            capture.add(now, Point::Reached(to), &arrival.bytes, "");
        }
        let end = link.ends[at(to)];
        let mut forwarded = Vec::new();
        let node = &mut self.slot_mut(end.node).node;
        node.handle_frame(now, end.device, &arrival.bytes, arrival.marks, &mut forwarded);
        for Outgoing { device, bytes, marks } in forwarded {
            self.send(end.node, device, bytes, marks);
        }
        self.settle(end.node);
    }

    fn wake(&mut self, id: NodeId) {
        let now = self.now;
        self.trace.record(now, What::Woken { node: id });
        let slot = self.slot_mut(id);
        slot.alarm = None;
        slot.begin_instant(now);
        slot.wakes_in_instant += 1;
        if slot.wakes_in_instant > WAKES_PER_INSTANT_MAX {
            return self.fail(Wrong::Spinning(id));
        }
        slot.wakes_in_second += 1;
        if slot.wakes_in_second > WAKES_PER_SECOND_MAX {
            return self.fail(Wrong::Restless(id));
        }
        slot.node.handle_timeout(now);
        self.settle(id);
    }

    fn change(&mut self, id: LinkId, change: Change) {
        self.trace.record(self.now, What::Changed { link: id, kind: change.kind(), text: &change.to_string() });
        let lanes = &mut self.links[usize::from(id.0)].lanes;
        let before = (lanes[0].wire().mtu, lanes[0].carrier());
        match change {
            Change::Faults { from, faults } => lanes[at(from)].set_faults(faults),
            Change::Wire(wire) => lanes.iter_mut().for_each(|lane| lane.set_wire(wire)),
            Change::Carrier(up) => lanes.iter_mut().for_each(|lane| lane.set_carrier(up)),
            Change::Mtu(mtu) => lanes.iter_mut().for_each(|lane| lane.set_wire(Wire { mtu, ..*lane.wire() })),
        }
        if before != (lanes[0].wire().mtu, lanes[0].carrier()) {
            self.tell(id);
        }
    }

    /// Notifies the nodes at both ends of a link of the link's state.
    fn tell(&mut self, id: LinkId) {
        let now = self.now;
        let link = &self.links[usize::from(id.0)];
        let state = LinkState { carrier: link.lanes[0].carrier(), mtu: link.lanes[0].wire().mtu };
        for end in link.ends {
            self.slot_mut(end.node).node.link_changed(now, end.device, state);
            self.settle(end.node);
        }
    }

    /// Sends all frames that a node has to send, reads the node's next deadline, and runs the node's own checks.
    fn settle(&mut self, id: NodeId) {
        let now = self.now;
        let mut sending = true;
        while sending && self.violation.is_none() {
            sending = false;
            let devices = u16::try_from(self.slot_mut(id).devices.len()).unwrap_or(u16::MAX);
            for device in (0..devices).map(DeviceId) {
                let slot = &mut self.nodes[usize::from(id.0)];
                if slot.devices[usize::from(device.0)].is_none() {
                    continue;
                }
                while let Some(built) = self.nodes[usize::from(id.0)].node.poll_transmit(now, device, &mut self.buffer)
                {
                    sending = true;
                    let bytes = self.buffer[..built.len].to_vec();
                    self.send(id, device, bytes, built.marks);
                    if self.violation.is_some() {
                        return;
                    }
                }
            }
        }
        self.set_alarm(id);
        if let Err(what) = self.node(id).check() {
            self.fail(Wrong::Node(id, what));
        }
    }

    fn set_alarm(&mut self, id: NodeId) {
        let slot = self.slot_mut(id);
        let (old, wanted) = (slot.alarm, slot.node.poll_timeout());
        if old.map(|key| key.0) == wanted {
            return;
        }
        if let Some(key) = old {
            self.pending.remove(&key);
        }
        let alarm = wanted.map(|when| self.push(when, Pending::Alarm(id)));
        self.slot_mut(id).alarm = alarm;
    }

    fn send(&mut self, id: NodeId, device: DeviceId, bytes: Vec<u8>, marks: Marks) {
        let now = self.now;
        let slot = self.slot_mut(id);
        slot.begin_instant(now);
        slot.frames_in_instant += 1;
        if slot.frames_in_instant > FRAMES_PER_INSTANT_MAX {
            return self.fail(Wrong::NeverSilent(id));
        }
        let Some(&Some((link_id, from))) = slot.devices.get(usize::from(device.0)) else {
            return self.fail(Wrong::NoSuchDevice(id, device));
        };
        let lane_id = LaneId { link: link_id, from };
        let link = &mut self.links[usize::from(link_id.0)];
        let lane = &mut link.lanes[at(from)];
        if marks != Marks::default() && !lane.wire().marks_agreed {
            return self.fail(Wrong::MarksNotAgreed(lane_id));
        }
        self.trace.record(now, What::Sent { lane: lane_id, medium: lane.wire().medium, frame: &bytes });
        let kept = link.capture.is_some().then(|| bytes.clone());
        let passage = lane.send(now, bytes, marks);
        if let (Some(capture), Some(bytes)) = (&mut link.capture, kept) {
            let comment: Vec<&str> = passage.fates.iter().map(|fate| fate.label()).collect();
            capture.add(now, Point::SentBy(from), &bytes, &comment.join(", "));
        }
        for fate in passage.fates {
            self.trace.record(now, What::Befell { lane: lane_id, fate });
        }
        for arrival in passage.arrivals {
            self.push(arrival.at, Pending::Arrival(lane_id, arrival));
        }
    }
}

impl<N> Slot<N> {
    fn begin_instant(&mut self, now: Instant) {
        if self.instant != now {
            self.instant = now;
            self.frames_in_instant = 0;
            self.wakes_in_instant = 0;
        }
        let second = now.as_ns() / 1_000_000_000;
        if self.second != second {
            self.second = second;
            self.wakes_in_second = 0;
        }
    }
}

impl Change {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Faults { .. } => "faults",
            Self::Wire(_) => "wire",
            Self::Carrier(_) => "carrier",
            Self::Mtu(_) => "mtu",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults { from, faults } if *faults == Faults::NONE => write!(f, "faultless from {from:?}"),
            Self::Faults { from, faults } => write!(f, "faulty from {from:?}: {faults:?}"),
            Self::Wire(wire) => write!(f, "{wire:?}"),
            Self::Carrier(true) => f.write_str("carrier up"),
            Self::Carrier(false) => f.write_str("carrier down"),
            Self::Mtu(mtu) => write!(f, "mtu {mtu}"),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyNodes => "more nodes than a world holds",
            Self::TooManyLinks => "more links than a world holds",
            Self::TooManyDevices => "more devices than a node has",
            Self::NoSuchNode => "a link to a node that is not there",
            Self::NoSuchLink => "a change of a link that is not there",
            Self::DeviceTaken => "a second link at one device",
            Self::Past => "a change in the past",
            Self::Stack => "a stack refuses a device, a route or an address",
        })
    }
}

impl std::error::Error for BuildError {}

#[cfg(test)]
mod tests;
