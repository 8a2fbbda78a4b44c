//! OSA-Express adapters (cards) between the guests and the LAN of a network of type qdio.
//!
//! A card has a wire to the LAN, which is a modelled link, and four output queues for each of its guests. While the wire is busy, frames
//! wait in these queues. The card then takes the next frame from the queue with the lowest number, and from its guests in turn. So a guest
//! that uses queue 0 can delay the frames of all others. Frames between guests of one card do not use the wire. A guest cannot make the
//! card hold more than 128 buffers in a queue: the card itself counts how many buffers the guest's frames fill.

use super::Switch;
use super::frame::Header;
use super::port::Port;
use crate::counters::Counters;
use crate::emulator::{self, Emulator, Held};
use crate::limits::{QDIO_ELEMENT_BYTES, QDIO_ELEMENTS, QDIO_QUEUE_BUFFERS};
use siga_model::topology::{Full, PortLink, PortVlan, Queueing};
use siga_stack::time::Instant;
use std::collections::VecDeque;

/// A frame that waits for the wire.
#[derive(Debug)]
struct Waiting {
    arrived: Instant,
    bytes: Vec<u8>,
    /// Whether it is the first frame of a buffer.
    begins_buffer: bool,
}

/// One output queue of a guest.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Waiting>,
    buffers: usize,
    /// The elements of the latest buffer that are in use.
    elements: usize,
    sent: u64,
    full: u64,
}

/// The output queues of a guest's device at its card.
#[derive(Debug, Default)]
pub(crate) struct Output {
    queues: [Queue; Queueing::QUEUES],
    rule: Full,
}

/// Returns how many elements of a buffer a frame uses.
pub(crate) fn elements(bytes: usize) -> usize {
    bytes.div_ceil(QDIO_ELEMENT_BYTES).max(1)
}

impl Queue {
    /// Returns whether a frame begins a new buffer. A sender cannot make a buffer contain more than its elements.
    fn begins_buffer(&self, says_so: bool, elements: usize) -> bool {
        says_so || self.elements == 0 || self.elements + elements > QDIO_ELEMENTS
    }

    fn take(&mut self) -> Option<Waiting> {
        let frame = self.frames.pop_front()?;
        self.sent += 1;
        // A buffer counts until its first frame is taken.
        self.buffers -= usize::from(frame.begins_buffer);
        if self.frames.is_empty() {
            self.elements = 0;
        }
        Some(frame)
    }
}

impl Output {
    /// Sets what happens to a frame for which its queue has no room.
    pub(crate) fn set_rule(&mut self, rule: Full) {
        self.rule = rule;
    }

    /// Returns true if the card takes no further frame of this guest now, because an output queue is full and its frames are not
    /// dropped.
    pub(crate) fn is_held(&self) -> bool {
        self.rule == Full::Pending && self.queues.iter().any(|queue| queue.buffers >= QDIO_QUEUE_BUFFERS)
    }

    /// Begins a frame of `bytes` bytes in the ring for a queue. Returns `None` if the queue is full, so that the frame is dropped, and
    /// otherwise whether it begins a buffer.
    pub(crate) fn begin(&mut self, (queue, says_so): (usize, bool), bytes: usize) -> Option<bool> {
        let queue = &mut self.queues[queue];
        let more = elements(bytes);
        let begins = queue.begins_buffer(says_so, more);
        if begins && queue.buffers >= QDIO_QUEUE_BUFFERS {
            queue.full += 1;
            return None;
        }
        queue.elements = if begins { more } else { queue.elements + more };
        queue.buffers += usize::from(begins);
        Some(begins)
    }

    /// Adds a frame that has begun, or one of the frames into which it was cut.
    pub(crate) fn add(&mut self, queue: usize, arrived: Instant, bytes: Vec<u8>, begins_buffer: bool) {
        self.queues[queue].frames.push_back(Waiting { arrived, bytes, begins_buffer });
    }

    /// Returns the time at which the first frame of a queue arrived.
    fn first(&self, queue: usize) -> Option<Instant> {
        self.queues[queue].frames.front().map(|frame| frame.arrived)
    }

    fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.frames.is_empty())
    }

    pub(crate) fn add_to(&self, counters: &mut Counters) {
        for (number, queue) in self.queues.iter().enumerate() {
            counters.insert(format!("card_queue_{number}_sent"), queue.sent);
            counters.insert(format!("card_queue_{number}_full"), queue.full);
        }
    }

    /// Checks what holds after each operation, whatever the guest has sent.
    ///
    /// # Panics
    /// Panics if a queue has too many buffers, or a buffer without a frame.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn check(&self) {
        for queue in &self.queues {
            let begun = queue.frames.iter().filter(|frame| frame.begins_buffer).count();
            assert!(queue.buffers == begun && begun <= QDIO_QUEUE_BUFFERS, "{} buffers, {begun} begun", queue.buffers);
        }
    }

    /// Returns the number of frames that were dropped because their queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.queues.iter().map(|queue| queue.full).sum()
    }
}

/// Returns the time at which the first frame of a guest's output queue arrived.
fn first_of(ports: &[Option<Port>], port: usize, queue: usize) -> Option<Instant> {
    ports.get(port)?.as_ref()?.output.as_ref()?.first(queue)
}

/// The receiver of a frame on the wire to a card: the number of its port, and the tag with which the frame leaves.
type Receiver = (usize, Option<u16>);

/// A card.
#[derive(Debug)]
pub(crate) struct Card {
    /// The name of the card, or the label of its only port.
    pub(crate) name: String,
    /// The numbers of the ports of its guests.
    pub(crate) ports: Vec<usize>,
    link: PortLink,
    /// The wire to the LAN. Each frame has the number of its port.
    from_card: Option<Emulator<usize>>,
    /// The wire from the LAN.
    to_card: Option<Emulator<Receiver>>,
    /// The place in `ports` whose guest is served next, for each queue.
    turns: [usize; Queueing::QUEUES],
}

impl Card {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            ports: Vec::new(),
            link: PortLink::default(),
            from_card: None,
            to_card: None,
            turns: [0; Queueing::QUEUES],
        }
    }

    /// Makes the wires of the card, or changes their settings.
    pub(crate) fn set_link(&mut self, link: &PortLink, at: Instant) {
        if self.link == *link {
            return;
        }
        emulator::set(&mut self.from_card, (link.from_station.as_ref(), 0), at);
        emulator::set(&mut self.to_card, (link.to_station.as_ref(), 1), at);
        self.link = link.clone();
    }

    /// Returns true if frames that leave the card take time.
    pub(crate) fn has_wire_out(&self) -> bool {
        self.from_card.is_some()
    }

    /// Puts a frame for a guest on the wire from the LAN.
    pub(crate) fn receive(&mut self, at: Instant, to: usize, frame: Vec<u8>, tag: Option<u16>) {
        if let Some(wire) = &mut self.to_card {
            // The emulator counts lost frames.
            let _ = wire.offer(at, Held { bytes: frame, tag: (to, tag) });
        }
    }

    /// Returns true if frames that come to the card take time.
    pub(crate) fn has_wire_in(&self) -> bool {
        self.to_card.is_some()
    }

    /// Lets frames of the output queues begin their way on the wire, as far as it is free. A frame begins when the wire becomes free, also
    /// if this process was late to notice that. So the card uses all of the wire's rate. Returns true if there were frames.
    pub(crate) fn serve(&mut self, ports: &mut [Option<Port>], at: Instant) -> bool {
        let mut has_served = false;
        while let Some(free_at) = self.from_card.as_ref().map(Emulator::free_at).filter(|free_at| *free_at <= at) {
            let all = self.ports.iter().flat_map(|port| (0..Queueing::QUEUES).map(move |queue| (*port, queue)));
            let Some(earliest) = all.filter_map(|(port, queue)| first_of(ports, port, queue)).min() else { break };
            let begin = earliest.max(free_at).min(at);
            let Some(frame) = self.take_waiting(ports, begin) else { break };
            if let Some(wire) = &mut self.from_card {
                // The emulator counts lost frames.
                let _ = wire.offer(begin, frame);
            }
            has_served = true;
        }
        has_served
    }

    /// Takes the frame that is sent next from the output queues, of those that have arrived by a time.
    fn take_waiting(&mut self, ports: &mut [Option<Port>], at: Instant) -> Option<Held<usize>> {
        let count = self.ports.len();
        let (queue, place) = (0..Queueing::QUEUES).find_map(|queue| {
            let turns = (0..count).map(|more| (self.turns[queue] + more) % count);
            turns
                .map(|place| (queue, place))
                .find(|(queue, place)| first_of(ports, self.ports[*place], *queue).is_some_and(|arrived| arrived <= at))
        })?;
        self.turns[queue] = (place + 1) % count;
        let port = self.ports[place];
        let output = ports.get_mut(port)?.as_mut()?.output.as_mut()?;
        output.queues[queue].take().map(|frame| Held { bytes: frame.bytes, tag: port })
    }

    /// Returns the next frame that has arrived at the LAN, with the number of its port. A wire without a model takes no time.
    pub(crate) fn take_out(&mut self, ports: &mut [Option<Port>], at: Instant) -> Option<Held<usize>> {
        match &mut self.from_card {
            Some(wire) => wire.take(at),
            None => self.take_waiting(ports, at),
        }
    }

    /// Returns the next frame that has arrived from the LAN.
    pub(crate) fn take_in(&mut self, at: Instant) -> Option<Held<Receiver>> {
        self.to_card.as_mut()?.take(at)
    }

    /// Returns the time at which the card has something to do.
    pub(crate) fn next_due(&self, ports: &[Option<Port>]) -> Option<Instant> {
        let has_frames = |port: &usize| {
            let output = ports.get(*port).and_then(Option::as_ref).and_then(|port| port.output.as_ref());
            output.is_some_and(|output| !output.is_empty())
        };
        let wire = self.from_card.as_ref();
        let free = wire.map_or(Instant::from_ns(0), Emulator::free_at);
        let free = self.ports.iter().any(has_frames).then_some(free);
        let arrivals = [wire.and_then(Emulator::next_due), self.to_card.as_ref().and_then(Emulator::next_due)];
        arrivals.into_iter().flatten().chain(free).min()
    }

    /// Loses the frames of a port that is removed.
    pub(crate) fn forget(&mut self, port: usize) {
        if let Some(wire) = &mut self.from_card {
            wire.lose_those(|from| *from == port);
        }
        if let Some(wire) = &mut self.to_card {
            wire.lose_those(|(to, _)| *to == port);
        }
    }

    pub(crate) fn add_to(&self, counters: &mut Counters) {
        if let Some(wire) = &self.from_card {
            wire.counters.add_to("link_from_station", counters);
        }
        if let Some(wire) = &self.to_card {
            wire.counters.add_to("link_to_station", counters);
        }
    }
}

/// Returns the number of the card with this name. If no card has it, adds one, which takes the place of a card without guests. So the
/// number of cards stays limited while guests attach and leave.
fn card_named(cards: &mut Vec<Card>, name: String) -> usize {
    if let Some(known) = cards.iter().position(|card| card.name == name) {
        return known;
    }
    if let Some(unused) = cards.iter().position(|card| card.ports.is_empty()) {
        cards[unused] = Card::new(name);
        return unused;
    }
    cards.push(Card::new(name));
    cards.len() - 1
}

impl Switch {
    /// Gives a port its card. All ports whose settings name the same card share it.
    pub(crate) fn attach_card(&mut self, at: usize, rule: Full, now: Instant) {
        let Some(Some(port)) = self.ports.get_mut(at) else { return };
        let Some(settings) = &port.settings.card else { return };
        let name = settings.name.as_ref().map_or_else(|| port.label.clone(), |name| format!("card {name}"));
        let card = card_named(&mut self.cards, name);
        port.card = Some(card);
        port.output.get_or_insert_default().set_rule(rule);
        self.cards[card].set_link(&port.settings.link, now);
        self.index_cards();
    }

    /// Computes again which ports each card has.
    pub(super) fn index_cards(&mut self) {
        self.cards.iter_mut().for_each(|card| card.ports.clear());
        for (at, port) in self.ports.iter().enumerate() {
            if let Some(card) = port.as_ref().and_then(|port| self.cards.get_mut(port.card?)) {
                card.ports.push(at);
            }
        }
    }

    /// Returns true if a frame is for a guest of the sender's own card, so that it does not use the wire.
    pub(crate) fn stays_inside(&self, at: Instant, from: usize, header: &Header) -> bool {
        let Some(Some(Port { settings, card: Some(own), .. })) = self.ports.get(from) else { return false };
        let PortVlan::Access(vlan) = settings.vlan else { return false };
        if self.cards.get(*own).is_none_or(|card| card.ports.len() < 2) {
            return false;
        }
        let mut header = *header;
        let to = header.take_tag().and_then(|_| header.link()).map(|(to, _, _)| to);
        let port = to.ok().and_then(|to| self.table.find(at, vlan, to)).and_then(|port| self.ports.get(port)?.as_ref());
        port.is_some_and(|port| port.card == Some(*own))
    }

    /// Returns true if the card takes no further frame from a port now.
    pub(crate) fn is_held(&self, port: usize) -> bool {
        let output = self.ports.get(port).and_then(Option::as_ref).and_then(|port| port.output.as_ref());
        output.is_some_and(|output| output.is_held())
    }
}

#[cfg(test)]
mod tests;
