//! Frames on their way through the cards of a network of type qdio: from a guest's ring to the output queues of its card, and over the
//! modelled wires of cards.
//!
//! A card carries ordinary frames only: it cuts large segments and fills in checksums, as OSA-Express adapters do for their guests.

use super::emulated::{cut, cut_with_tag, pass_held, relay_held};
use super::peer_link::Links;
use super::relay::Broken;
use crate::limits::RECEIVE_AT_ONCE_MAX;
use crate::switch::Switch;
use crate::switch::card::Card;
use crate::switch::drops::DropReason;
use crate::switch::frame::{Header, LINK_BYTES, TAG_BYTES, TAGGED};
use crate::switch::port::{Attachment, Port};
use siga_stack::ip::cut::Cutter;
use siga_stack::link::frame::{Marks, Payload};
use siga_stack::time::Instant;

/// Puts a frame of a guest into an output queue of its card. `place` is the queue, and whether the frame begins a buffer. Returns false if
/// the frame does not use the card's wire, or if the switch must refuse the frame.
pub(crate) fn hold_from_guest<P: Payload + ?Sized>(
    switch: &mut Switch,
    (at, from): (Instant, usize),
    place: (usize, bool),
    (header, payload, marks): (&Header, &P, Marks),
) -> bool {
    let card = switch.ports.get(from).and_then(Option::as_ref).and_then(|port| port.card);
    let has_wire = card.and_then(|card| switch.cards.get(card)).is_some_and(Card::has_wire_out);
    if !has_wire || switch.stays_inside(at, from, header) {
        return false;
    }
    let Switch { ports, cutter, pieces, .. } = switch;
    let Some(Some(Port { output: Some(output), agreed, counters, mtu, .. })) = ports.get_mut(from) else {
        return false;
    };
    let mut frames = Vec::new();
    let each = |bytes| {
        *pieces += usize::from(marks.segment_bytes > 0);
        frames.push(bytes);
    };
    let Some(is_cut) = cut_with_tag(cutter, *agreed, (header, payload, marks), each) else { return false };
    if !is_cut {
        counters.drops.count(DropReason::Marks);
    } else if frames.iter().any(|frame| packet_bytes(frame) > *mtu) {
        counters.drops.count(DropReason::TooLong);
    } else if let Some(begins_buffer) = output.begin(place, header.frame_bytes()) {
        // There is at least one frame, so each buffer has one that begins it.
        for (number, frame) in frames.into_iter().enumerate() {
            output.add(place.0, at, frame, begins_buffer && number == 0);
        }
    }
    true
}

/// Returns the length of the packet in a frame, which may have a tag.
fn packet_bytes(frame: &[u8]) -> usize {
    let is_tagged = frame.get(LINK_BYTES - 2..LINK_BYTES) == Some(&TAGGED.to_be_bytes()[..]);
    frame.len().saturating_sub(if is_tagged { LINK_BYTES + TAG_BYTES } else { LINK_BYTES })
}

/// Puts a frame for a guest on the wire to its card. Returns false if the frame does not use a modelled wire.
pub(super) fn hold_to_guest<P: Payload + ?Sized>(
    (port, to): (&mut Port, usize),
    (card, cutter, pieces): (&mut Card, &mut Cutter, &mut usize),
    at: Instant,
    frame: (&Header, &P, Marks),
    tag: Option<u16>,
) -> bool {
    if !card.has_wire_in() {
        return false;
    }
    let each = |bytes| {
        *pieces += usize::from(frame.2.segment_bytes > 0);
        card.receive(at, to, bytes, tag);
    };
    if !cut(cutter, frame, each) {
        port.counters.drops.count(DropReason::Marks);
    }
    true
}

/// Moves frames through the cards that have something to do. Returns their number.
pub(super) fn receive(switch: &mut Switch, links: &mut Links, at: Instant, broken: &mut Broken) -> usize {
    let mut count = 0;
    for number in 0..switch.cards.len() {
        let Switch { cards, ports, .. } = switch;
        if cards[number].next_due(ports).is_none_or(|due| due > at) {
            continue;
        }
        count += usize::from(cards[number].serve(ports, at));
        let most = count + RECEIVE_AT_ONCE_MAX;
        while count < most {
            let Switch { cards, ports, .. } = switch;
            let Some(held) = cards[number].take_out(ports, at) else { break };
            relay_held(switch, links, at, (held.tag, &held.bytes), broken);
            count += 1;
        }
        let most = count + RECEIVE_AT_ONCE_MAX;
        while count < most
            && let Some(held) = switch.cards[number].take_in(at)
        {
            let Switch { ports, scratch, .. } = switch;
            let (to, tag) = held.tag;
            if let Some(Some(port)) = ports.get_mut(to) {
                pass_held(port, links, scratch, (&held.bytes, tag), broken);
            }
            count += 1;
        }
        release(switch, links, number);
    }
    count
}

/// Receives again from guests whose output queues have room.
fn release(switch: &Switch, links: &mut Links, card: usize) {
    for port in &switch.cards[card].ports {
        if let Some(Some(Port { attachment: Attachment::Ring(link), .. })) = switch.ports.get(*port) {
            links.receivers[*link].waits_for_card = switch.is_held(*port);
        }
    }
}
