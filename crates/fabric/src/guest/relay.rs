//! Moves the frames of a switch between its ports: from rings and TAP devices to rings and TAP devices.
//!
//! A frame from ring to ring is copied once. A frame for a TAP device is written by one system call. If the other end of a port did
//! not agree to a frame's marks, the frame is cut and its checksum is filled in. `ports.rs` adds and removes the ports.

use super::Node;
use super::peer_link::Links;
use super::{block_capture, carded, emulated};
use crate::device::{Inside, Part, qdio};
use crate::limits::RECEIVE_AT_ONCE_MAX;
use crate::protocol::message::Loss;
use crate::switch::assigning;
use crate::switch::drops::DropReason;
use crate::switch::frame::{self, HEAD_BYTES_MAX, Header, LINK_BYTES};
use crate::switch::port::{Attachment, Port};
use crate::switch::tap::{Read, Tap};
use crate::switch::{Decision, Switch, Target};
use rustix::io::Errno;
use siga_ring::clock::Ticks;
use siga_ring::{Frame, Violation};
use siga_stack::link::frame::{Marks, Payload, Received};
use siga_stack::link::virtio;
use siga_stack::pcapng::Direction;
use siga_stack::time::Instant;
use std::ops::Range;

/// The bytes of a frame in a ring that follow its header.
struct Rest<'a> {
    frame: &'a Frame<'a>,
    at: usize,
    len: usize,
}

impl Payload for Rest<'_> {
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.frame.copy_to(self.at + at, into);
    }
}

/// The links whose partners violated the ring's protocol while a frame was sent to them.
pub(super) type Broken = Vec<(usize, Violation)>;

/// A frame to send: first `new`, then a range of the received frame.
pub(super) struct Outgoing<'a, P: ?Sized> {
    pub(super) new: &'a [u8],
    pub(super) header: &'a [u8],
    pub(super) payload: &'a P,
    pub(super) range: Range<usize>,
    pub(super) marks: Marks,
    pub(super) tag: Option<u16>,
}

impl<P: Payload + ?Sized> Outgoing<'_, P> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.new.len() + self.range.len()
    }

    /// Returns the part of the range that is in the header.
    #[inline]
    fn own(&self) -> &[u8] {
        let len = self.header.len();
        &self.header[self.range.start.min(len)..self.range.end.min(len)]
    }

    /// Returns the part of the range that is in the payload.
    #[inline]
    fn behind(&self) -> Range<usize> {
        let len = self.header.len();
        self.range.start.max(len) - len..self.range.end.max(len) - len
    }

    #[inline]
    pub(super) fn fill(&self, into: &mut [u8]) {
        let (first, into) = into.split_at_mut(self.new.len());
        first.copy_from_slice(self.new);
        let (first, into) = into.split_at_mut(self.own().len());
        first.copy_from_slice(self.own());
        if !into.is_empty() {
            self.payload.copy_to(self.behind().start, into);
        }
    }

    /// Writes the frame to a TAP device.
    fn write(&self, tap: &Tap, scratch: &mut Vec<u8>) -> bool {
        /// Room for the largest edited header, the largest header and a tag.
        const ROOM: usize = 2 * HEAD_BYTES_MAX + frame::TAG_BYTES;
        let (mut head, mut tagged) = ([0; ROOM], [0; ROOM]);
        let own = self.own();
        let mut len = self.new.len() + own.len();
        head[..self.new.len()].copy_from_slice(self.new);
        head[self.new.len()..len].copy_from_slice(own);
        let (mut bytes, mut link_bytes) = (&mut head, LINK_BYTES);
        if let Some(tag) = self.tag {
            len = frame::with_tag(&bytes[..len], tag, &mut tagged);
            (bytes, link_bytes) = (&mut tagged, LINK_BYTES + frame::TAG_BYTES);
        }
        let Some(header) = virtio::header(&mut bytes[..len], link_bytes, self.marks) else { return false };
        let behind = self.behind();
        if let Some(payload) = self.payload.private() {
            return tap.write(&header, &bytes[..len], &payload[behind]);
        }
        scratch.resize(behind.len(), 0);
        if !behind.is_empty() {
            self.payload.copy_to(behind.start, scratch);
        }
        tap.write(&header, &bytes[..len], scratch)
    }
}

/// Decides about a frame that has arrived, and sends it. Returns the link to which it was sent, if it was sent to one port with a ring.
/// If the port has a modelled link, the frame only begins its way on the link.
#[inline]
fn relay<P: Payload + ?Sized>(
    switch: &mut Switch,
    links: &mut Links,
    at: Instant,
    from: usize,
    frame: (Header, &P, Marks),
    broken: &mut Broken,
) -> Option<usize> {
    if !switch.linked.is_empty() && emulated::hold_from_station(switch, (at, from), (&frame.0, frame.1, frame.2)) {
        return None;
    }
    relay_now(switch, links, at, from, frame, broken)
}

/// Decides about a frame at the switch's end of a link.
pub(super) fn relay_now<P: Payload + ?Sized>(
    switch: &mut Switch,
    links: &mut Links,
    at: Instant,
    from: usize,
    (mut header, payload, marks): (Header, &P, Marks),
    broken: &mut Broken,
) -> Option<usize> {
    let decided = switch.decide(at, from, &mut header, marks);
    if switch.capture.is_some() {
        let comment = decided.err().map_or("", DropReason::name);
        capture(switch, (at, from, Direction::In), &header, payload, comment);
    }
    let decision = decided.ok()?;
    if let Some(mirror) = switch.mirror_of(from, &decision) {
        send_copy(switch, links, at, (mirror, decision), (&header, payload, marks), broken);
    }
    if let Some(question) = switch.question(from, &header, &decision) {
        let answers = switch.answers((at, from), question, (&header, payload, marks));
        send_own(switch, links, at, answers.iter().map(|frame| assigning::split(frame, from, decision.vlan)), broken);
        return None;
    }
    match decision.target {
        Target::One(to) => {
            for place in 0..switch.watchers.len() {
                let watcher = switch.watchers[place];
                if watcher != to && switch.may_pass(from, watcher, decision.vlan) {
                    send_copy(switch, links, at, (watcher, decision), (&header, payload, marks), broken);
                }
            }
            send(switch, links, at, (to, decision), (&header, payload, marks), broken)
        }
        Target::All => {
            for to in 0..switch.ports.len() {
                if switch.may_pass(from, to, decision.vlan) {
                    if let Some(Some(port)) = switch.ports.get_mut(to) {
                        port.counters.flooded += 1;
                    }
                    send_copy(switch, links, at, (to, decision), (&header, payload, marks), broken);
                }
            }
            None
        }
    }
}

/// Sends frames that the switch itself has made.
#[cold]
fn send_own(
    switch: &mut Switch,
    links: &mut Links,
    at: Instant,
    frames: impl Iterator<Item = (Header, Vec<u8>, Decision)>,
    broken: &mut Broken,
) {
    for (header, rest, decision) in frames {
        if let Target::One(to) = decision.target {
            send(switch, links, at, (to, decision), (&header, &rest[..], Marks::default()), broken);
        }
    }
}

/// Sends one of several copies of a frame through a port. If many frames wait there, drops the copy: a station that floods must not take
/// the room for the frames that other stations send to this port.
fn send_copy<P: Payload + ?Sized>(
    switch: &mut Switch,
    links: &mut Links,
    at: Instant,
    (to, decision): (usize, Decision),
    frame: (&Header, &P, Marks),
    broken: &mut Broken,
) {
    if let Some(Some(port)) = switch.ports.get_mut(to)
        && let Attachment::Ring(link) = port.attachment
        && links.senders[link].is_crowded()
    {
        port.counters.drops.count(DropReason::Crowded);
        return;
    }
    send(switch, links, at, (to, decision), frame, broken);
}

/// Sends a frame through a port. Returns the link, if the port has a ring.
pub(super) fn send<P: Payload + ?Sized>(
    switch: &mut Switch,
    links: &mut Links,
    at: Instant,
    (to, decision): (usize, Decision),
    (header, payload, marks): (&Header, &P, Marks),
    broken: &mut Broken,
) -> Option<usize> {
    if switch.capture.is_some() {
        capture(switch, (at, to, Direction::Out), header, payload, "");
    }
    let Switch { ports, cards, cutter, scratch, pieces, relayed_bytes, .. } = switch;
    let port = ports.get_mut(to)?.as_mut()?;
    if Switch::is_of_other_server(port, header, &decision) {
        port.counters.drops.count(DropReason::OtherServer);
        return None;
    }
    if !fits(port, header, marks, decision.large_header_bytes) {
        port.counters.drops.count(DropReason::TooLong);
        return None;
    }
    *relayed_bytes = relayed_bytes.wrapping_add(header.frame_bytes() as u64);
    let tag = port.tag(decision.vlan, decision.priority);
    if port.link.is_some()
        && emulated::hold_to_station(port, (&mut *cutter, &mut *pieces), at, (header, payload, marks), tag)
    {
        return None;
    }
    let card = port.card.filter(|card| decision.card != Some(*card)).and_then(|card| cards.get_mut(card));
    if let Some(card) = card {
        let tools = (card, &mut *cutter, &mut *pieces);
        if carded::hold_to_guest((&mut *port, to), tools, at, (header, payload, marks), tag) {
            return None;
        }
    }
    let agreed = port.agreed;
    let passes_whole = agreed.covers(marks);
    let whole = header.bytes();
    if passes_whole {
        let out = Outgoing { new: &[], header: whole, payload, range: 0..header.frame_bytes(), marks, tag };
        return pass(port, links, scratch, &out, broken);
    }
    match cutter.cut(Received { header: whole, payload, marks }, agreed) {
        Ok(mut cut) => {
            while let Some(piece) = cut.next_piece() {
                *pieces += 1;
                let (new, range, marks) = (piece.header, piece.range, piece.marks);
                pass(port, links, scratch, &Outgoing { new, header: whole, payload, range, marks, tag }, broken);
            }
        }
        Err(_) => port.counters.drops.count(DropReason::Marks),
    }
    if let Attachment::Ring(link) = port.attachment { Some(link) } else { None }
}

/// Returns whether the packets of a frame fit into the MTU of a port.
#[inline]
fn fits(port: &Port, header: &Header, marks: Marks, large_header_bytes: usize) -> bool {
    let packet_bytes = match marks.segment_bytes {
        0 => header.packet_bytes(),
        segment_bytes => large_header_bytes + usize::from(segment_bytes),
    };
    packet_bytes <= port.mtu
}

#[inline]
pub(super) fn pass<P: Payload + ?Sized>(
    port: &mut Port,
    links: &mut Links,
    scratch: &mut Vec<u8>,
    out: &Outgoing<'_, P>,
    broken: &mut Broken,
) -> Option<usize> {
    port.counters.frames_sent += 1;
    port.counters.bytes_sent += out.len() as u64;
    match &port.attachment {
        Attachment::Ring(link) => {
            if let Err(violation) = links.senders[*link].forward(out.len(), out.marks, |into: &mut [u8]| out.fill(into))
            {
                broken.push((*link, violation));
            }
            Some(*link)
        }
        Attachment::Tap(tap) => {
            if !out.write(tap, scratch) {
                port.counters.frames_sent -= 1;
                port.counters.bytes_sent -= out.len() as u64;
                port.counters.drops.count(DropReason::Refused);
            }
            None
        }
    }
}

#[cold]
fn capture<P: Payload + ?Sized>(
    switch: &mut Switch,
    (at, port, direction): (Instant, usize, Direction),
    header: &Header,
    payload: &P,
    comment: &str,
) {
    let Switch { ports, capture: Some(capture), .. } = switch else { return };
    let label = ports.get(port).and_then(Option::as_ref).map_or("", |port| port.label.as_str());
    let frame = (header.bytes(), header.frame_bytes());
    capture.add(at, (port, label), direction, frame, |into| payload.copy_to(0, into), comment);
}

/// Sends one frame of a ring on, or gives it to the card of its guest. Returns the link to which it was sent, if it was sent to one port
/// with a ring.
#[inline]
fn take_part(
    switch: &mut Switch,
    links: &mut Links,
    (at, from): (Instant, usize),
    link: usize,
    (frame, part): (&Frame<'_>, Part),
    broken: &mut Broken,
) -> Option<usize> {
    let header = Header::new(part.len, |into| frame.copy_to(part.at, into));
    let head = header.bytes().len();
    let rest = Rest { frame, at: part.at + head, len: part.len - head };
    if !switch.cards.is_empty() {
        let place = qdio::place(frame.tag());
        let is_held = carded::hold_from_guest(switch, (at, from), place, (&header, &rest, part.marks));
        links.receivers[link].waits_for_card = switch.is_held(from);
        if is_held {
            return None;
        }
    }
    relay(switch, links, at, from, (header, &rest, part.marks), broken)
}

/// Receives frames of one link and sends them on. Returns the number of frames. The error contains the index of the link to detach
/// and the reason.
pub(super) fn take(
    switch: &mut Switch,
    links: &mut Links,
    (now, at): (Ticks, Instant),
    link: usize,
    broken: &mut Broken,
) -> Result<usize, (usize, Loss)> {
    let Some(from) = switch.port_of_link(link) else { return Ok(0) };
    let times = links.backpressure_times;
    let Some(mut ring) = links.receivers[link].ring.take() else { return Ok(0) };
    let mut count = 0;
    let mut failed = None;
    switch.pieces = 0;
    if !switch.cards.is_empty() {
        // The guest may have attached again while the output queues were full.
        links.receivers[link].waits_for_card = switch.is_held(from);
    }
    while count + switch.pieces < RECEIVE_AT_ONCE_MAX
        && links.receivers[link].backpressure.waits_for().is_none()
        && !links.receivers[link].waits_for_card
    {
        let frame = match ring.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(violation) => {
                failed = Some(violation);
                break;
            }
        };
        count += 1;
        if let Some(capture) = &mut links.captured_blocks
            && let Some(format) = links.receivers[link].inbound.format()
        {
            block_capture::add_received(capture, (at, link), &links.senders[link], format, &frame);
        }
        let mut done = 0;
        while done < frame.len() {
            let part = match links.receivers[link].inbound.next(&frame, &mut done) {
                Inside::Packet(part) => part,
                Inside::Message(part) => {
                    links.senders[link].receive(&frame, part);
                    continue;
                }
                Inside::End => break,
                Inside::Malformed => {
                    links.receivers[link].malformed += 1;
                    break;
                }
            };
            // The other frames of a block count towards the frames that a guest can send in one turn.
            switch.pieces += usize::from(done < frame.len());
            if let Some(to) = take_part(switch, links, (at, from), link, (&frame, part), broken) {
                let backpressure = &mut links.receivers[link].backpressure;
                backpressure.forwarded(now, times, to);
                if links.senders[to].has_backpressure() {
                    links.receivers[link].backpressure.begin(now, times);
                }
            }
        }
    }
    if links.receivers[link].backpressure.waits_for().is_some() || links.receivers[link].waits_for_card {
        ring.give_back();
    }
    links.receivers[link].ring = Some(ring);
    failed.map_or(Ok(count), |violation| Err((link, Loss::Violation(violation.to_string()))))
}

impl Node {
    /// Receives frames of the switch's TAP devices and sends them on. Returns true if frames had arrived.
    pub(super) fn receive_from_taps(&mut self, now: Ticks, at: Instant) -> bool {
        let Some(mut switch) = self.switch.take() else { return false };
        let (mut busy, mut broken, mut gone) = (false, Broken::new(), Vec::new());
        for port in std::mem::take(&mut switch.hot_taps) {
            if self.may_read(&mut switch, port, now) {
                let (count, error) = take_from_tap(&mut switch, &mut self.links, (now, at), port, &mut broken);
                busy |= count > 0;
                gone.extend(error.map(|error| (port, error)));
            }
            if switch.tap(port).is_some_and(|tap| tap.needs_care()) {
                switch.hot_taps.push(port);
            }
        }
        self.switch = Some(switch);
        self.lose_broken(broken);
        for (port, error) in gone {
            self.lose_port(port, error, at);
        }
        busy
    }

    /// Sends the router advertisements that are due. Returns true if there were any.
    pub(super) fn advertise(&mut self, at: Instant) -> bool {
        if self.switch.as_ref().and_then(|switch| switch.advertise_at).is_none_or(|due| due > at) {
            return false;
        }
        let Some(mut switch) = self.switch.take() else { return false };
        let mut broken = Broken::new();
        let due = switch.advertisements(at);
        send_own(&mut switch, &mut self.links, at, due.into_iter(), &mut broken);
        self.switch = Some(switch);
        self.lose_broken(broken);
        true
    }

    /// Returns whether a TAP device may have frames and is not under back-pressure.
    fn may_read(&mut self, switch: &mut Switch, port: usize, now: Ticks) -> bool {
        let Some(tap) = switch.tap(port) else { return false };
        if !tap.is_hot && tap.is_listening {
            return false;
        }
        let mut waits = false;
        if let Some((to, until)) = tap.backpressure.waits_for() {
            let goes_on = self.links.senders[to].has_backpressure();
            waits = goes_on && now < until;
            if goes_on && !waits {
                self.links.senders[to].backpressure_timed_out();
            }
            if !waits {
                tap.backpressure.end();
            }
        }
        if waits == tap.is_listening {
            // The event loop must not wake up again and again because of frames that it does not read.
            self.wakes.events.set_listening(tap.registration, &*tap, !waits);
            tap.is_listening = !waits;
        }
        tap.is_hot |= !waits;
        !waits
    }

    /// Detaches the links whose partners violated the ring's protocol.
    pub(super) fn lose_broken(&mut self, broken: Broken) {
        for (link, violation) in broken {
            self.lose(link, Loss::Violation(violation.to_string()));
        }
    }

    /// Records that a TAP device has frames.
    pub(super) fn tap_woken(&mut self, port: usize) {
        if let Some(switch) = &mut self.switch
            && let Some(tap) = switch.tap(port)
            && !std::mem::replace(&mut tap.is_hot, true)
            && tap.backpressure.waits_for().is_none()
        {
            switch.hot_taps.push(port);
        }
    }
}

/// Receives frames of a TAP device and sends them on. Returns their number, and an error if the device is gone.
fn take_from_tap(
    switch: &mut Switch,
    links: &mut Links,
    (now, at): (Ticks, Instant),
    from: usize,
    broken: &mut Broken,
) -> (usize, Option<Errno>) {
    let times = links.backpressure_times;
    let mut inbox = std::mem::take(&mut switch.inbox);
    let (mut count, mut error) = (0, None);
    switch.pieces = 0;
    while count + switch.pieces < RECEIVE_AT_ONCE_MAX {
        let Some(Some(port @ Port { .. })) = switch.ports.get_mut(from) else { break };
        let Attachment::Tap(tap) = &mut port.attachment else { break };
        let len = match tap.read(&mut inbox) {
            Read::Frame(len) => len,
            Read::Nothing => {
                tap.is_hot = false;
                break;
            }
            Read::Failed => {
                count += 1;
                port.counters.drops.count(DropReason::Unreadable);
                continue;
            }
            Read::Gone(why) => {
                error = Some(why);
                break;
            }
        };
        count += 1;
        let Some((first, frame)) = inbox[..len].split_first_chunk_mut() else {
            port.counters.drops.count(DropReason::Malformed);
            continue;
        };
        let is_tagged = frame.get(12..14) == Some(&[0x81, 0]);
        let link_bytes = if is_tagged { LINK_BYTES + frame::TAG_BYTES } else { LINK_BYTES };
        let Some(marks) = virtio::receive(first, frame, link_bytes) else {
            port.counters.drops.count(DropReason::Marks);
            continue;
        };
        let head = frame.len().min(HEAD_BYTES_MAX);
        let header = Header::new(frame.len(), |into| into.copy_from_slice(&frame[..head]));
        let sent = relay(switch, links, at, from, (header, &frame[head..], marks), broken);
        if let Some(to) = sent
            && let Some(Some(Port { attachment: Attachment::Tap(tap), .. })) = switch.ports.get_mut(from)
        {
            tap.backpressure.forwarded(now, times, to);
            if links.senders[to].has_backpressure() {
                tap.backpressure.begin(now, times);
                break;
            }
        }
    }
    switch.inbox = inbox;
    (count, error)
}

/// Returns true if a TAP device can be read: it may have frames, or its back-pressure is no longer needed.
pub(super) fn has_work(switch: &Switch, links: &mut Links) -> bool {
    taps(switch).any(|tap| match tap.backpressure.waits_for() {
        Some((to, _)) => !links.senders[to].has_backpressure(),
        None => tap.is_hot,
    })
}

/// Returns the time at which the first back-pressure of a TAP device ends.
pub(super) fn held_until(switch: &Switch) -> Option<Ticks> {
    taps(switch).filter_map(|tap| tap.backpressure.waits_for().map(|(_, until)| until)).min()
}

fn taps(switch: &Switch) -> impl Iterator<Item = &Tap> {
    switch.hot_taps.iter().filter_map(|port| match &switch.ports.get(*port)?.as_ref()?.attachment {
        Attachment::Tap(tap) => Some(&**tap),
        Attachment::Ring(_) => None,
    })
}
