//! Frames on the modelled links between ports of a switch and their stations: an emulator holds them until they arrive.
//!
//! A link carries ordinary frames only: large segments are cut, and checksums are filled in, before the link loses or changes frames.

use super::Node;
use super::carded;
use super::peer_link::Links;
use super::relay::{Broken, Outgoing, pass, relay_now};
use crate::emulator::Held;
use crate::limits::RECEIVE_AT_ONCE_MAX;
use crate::switch::drops::DropReason;
use crate::switch::frame::{self, HEAD_BYTES_MAX, Header};
use crate::switch::port::Port;
use crate::switch::{Switch, is_too_fine};
use siga_stack::ip::cut::Cutter;
use siga_stack::link::device::Agreed;
use siga_stack::link::frame::{Marks, Payload, Received};
use siga_stack::time::Instant;

/// Returns the time at which the next frame arrives at the end of a link.
pub(super) fn next_due(switch: &Switch) -> Option<Instant> {
    let links = switch.linked.iter().filter_map(|port| switch.ports.get(*port)?.as_ref()?.link.as_ref());
    let cards = switch.cards.iter().filter_map(|card| card.next_due(&switch.ports));
    links.filter_map(|link| link.next_due()).chain(cards).min()
}

/// Puts a frame of a station on the link to its port. Returns false if the port has no such link, or if the switch must refuse the frame.
pub(super) fn hold_from_station<P: Payload + ?Sized>(
    switch: &mut Switch,
    (at, from): (Instant, usize),
    (header, payload, marks): (&Header, &P, Marks),
) -> bool {
    let Switch { ports, cutter, pieces, .. } = switch;
    let Some(Some(Port { link: Some(link), agreed, counters, .. })) = ports.get_mut(from) else { return false };
    let Some(emulator) = &mut link.from_station else { return false };
    let each = |bytes| {
        *pieces += usize::from(marks.segment_bytes > 0);
        // The emulator counts lost frames.
        let _ = emulator.offer(at, Held { bytes, tag: () });
    };
    let Some(is_cut) = cut_with_tag(cutter, *agreed, (header, payload, marks), each) else { return false };
    if !is_cut {
        counters.drops.count(DropReason::Marks);
    }
    true
}

/// Cuts a frame of a station into ordinary frames with the same tag. Returns false if its marks do not fit its headers, and `None` if the
/// switch must refuse the frame. This includes segments that would become too many frames.
pub(super) fn cut_with_tag<P: Payload + ?Sized>(
    cutter: &mut Cutter,
    agreed: Agreed,
    (header, payload, marks): (&Header, &P, Marks),
    mut each: impl FnMut(Vec<u8>),
) -> Option<bool> {
    let mut header = *header;
    let tag = header.take_tag().ok()?;
    if !agreed.covers(marks) || is_too_fine(marks) {
        return None;
    }
    let is_cut = cut(cutter, (&header, payload, marks), |bytes| {
        let bytes = match tag {
            Some(tag) => {
                let mut tagged = vec![0; bytes.len() + frame::TAG_BYTES];
                frame::with_tag(&bytes, tag, &mut tagged);
                tagged
            }
            None => bytes,
        };
        each(bytes);
    });
    Some(is_cut)
}

/// Puts a frame for a station on the link from its port. Returns false if the port has no such link.
pub(super) fn hold_to_station<P: Payload + ?Sized>(
    port: &mut Port,
    (cutter, pieces): (&mut Cutter, &mut usize),
    at: Instant,
    frame: (&Header, &P, Marks),
    tag: Option<u16>,
) -> bool {
    let Some(emulator) = port.link.as_mut().and_then(|link| link.to_station.as_mut()) else { return false };
    let is_cut = cut(cutter, frame, |bytes| {
        *pieces += usize::from(frame.2.segment_bytes > 0);
        // The emulator counts lost frames.
        let _ = emulator.offer(at, Held { bytes, tag });
    });
    if !is_cut {
        port.counters.drops.count(DropReason::Marks);
    }
    true
}

/// Cuts a frame into ordinary frames. Returns false if its marks do not fit its headers.
pub(super) fn cut<P: Payload + ?Sized>(
    cutter: &mut Cutter,
    (header, payload, marks): (&Header, &P, Marks),
    mut each: impl FnMut(Vec<u8>),
) -> bool {
    let whole = header.bytes();
    let mut add = |new: &[u8], range| {
        let out = Outgoing { new, header: whole, payload, range, marks: Marks::default(), tag: None };
        let mut bytes = vec![0; out.len()];
        out.fill(&mut bytes);
        each(bytes);
    };
    if marks == Marks::default() {
        add(&[], 0..header.frame_bytes());
        return true;
    }
    let Ok(mut cut) = cutter.cut(Received { header: whole, payload, marks }, Agreed::default()) else { return false };
    while let Some(piece) = cut.next_piece() {
        add(piece.header, piece.range);
    }
    true
}

impl Node {
    /// Takes frames that have arrived at the end of a link, and sends them on. Returns true if there were any.
    pub(super) fn receive_from_links(&mut self, at: Instant) -> bool {
        if self.switch.as_deref().and_then(next_due).is_none_or(|due| due > at) {
            return false;
        }
        let Some(mut switch) = self.switch.take() else { return false };
        let mut broken = Broken::new();
        let mut count = 0;
        for place in 0..switch.linked.len() {
            let port = switch.linked[place];
            let most = count + RECEIVE_AT_ONCE_MAX;
            while count < most && self.take_from_station(&mut switch, at, port, &mut broken) {
                count += 1;
            }
            let most = count + RECEIVE_AT_ONCE_MAX;
            while count < most && self.take_to_station(&mut switch, at, port, &mut broken) {
                count += 1;
            }
        }
        count += carded::receive(&mut switch, &mut self.links, at, &mut broken);
        self.switch = Some(switch);
        self.lose_broken(broken);
        count > 0
    }

    fn take_from_station(&mut self, switch: &mut Switch, at: Instant, from: usize, broken: &mut Broken) -> bool {
        let Some(Some(Port { link: Some(link), .. })) = switch.ports.get_mut(from) else { return false };
        let Some(held) = link.from_station.as_mut().and_then(|emulator| emulator.take(at)) else { return false };
        relay_held(switch, &mut self.links, at, (from, &held.bytes), broken);
        true
    }

    fn take_to_station(&mut self, switch: &mut Switch, at: Instant, to: usize, broken: &mut Broken) -> bool {
        let Switch { ports, scratch, .. } = switch;
        let Some(Some(port)) = ports.get_mut(to) else { return false };
        let emulator = port.link.as_mut().and_then(|link| link.to_station.as_mut());
        let Some(held) = emulator.and_then(|emulator| emulator.take(at)) else { return false };
        pass_held(port, &mut self.links, scratch, (&held.bytes, held.tag), broken);
        true
    }
}

/// Lets the switch decide about a frame that has arrived at its end of a link.
pub(super) fn relay_held(
    switch: &mut Switch,
    links: &mut Links,
    at: Instant,
    (from, bytes): (usize, &[u8]),
    broken: &mut Broken,
) {
    let head = bytes.len().min(HEAD_BYTES_MAX);
    let header = Header::new(bytes.len(), |into| into.copy_from_slice(&bytes[..head]));
    relay_now(switch, links, at, from, (header, &bytes[head..], Marks::default()), broken);
}

/// Passes a frame that has arrived at the station's end of a link.
pub(super) fn pass_held(
    port: &mut Port,
    links: &mut Links,
    scratch: &mut Vec<u8>,
    (bytes, tag): (&[u8], Option<u16>),
    broken: &mut Broken,
) {
    let (header, payload) = bytes.split_at(bytes.len().min(HEAD_BYTES_MAX));
    let range = 0..bytes.len();
    let out = Outgoing { new: &[], header, payload, range, marks: Marks::default(), tag };
    pass(port, links, scratch, &out, broken);
}
