//! What the fuzz programs `switch`, `addresses`, `cni`, `filter` and `blocks` play: input of hostile stations and partners, and of container
//! runtimes. Each function panics if the code breaks a promise.

mod blocks;
mod filter;

pub use blocks::blocks;
pub use filter::filter;

use crate::cni;
use crate::device::qdio;
use crate::guest::carded;
use crate::limits::{SWITCH_MACS_MAX, SWITCH_MACS_OF_PORT_MAX};
use crate::protocol::message::SwitchConfig;
use crate::switch::drops::DropReason;
use crate::switch::flood::Flood;
use crate::switch::frame::{HEAD_BYTES_MAX, Header};
use crate::switch::guard::Guard;
use crate::switch::port::{Attachment, Port, PortCounters};
use crate::switch::{Decision, Switch, Target};
use siga_model::link::Link;
use siga_model::mac::Mac;
use siga_model::topology::{Card, Full, Mirror, PortLink, PortSettings, PortVlan, Protection, Queueing};
use siga_stack::assign::{Advertised, Assignment, Lease, Question, REQUEST_BYTES_MAX, Router};
use siga_stack::link::device::Agreed;
use siga_stack::link::frame::{Marks, Received};
use siga_stack::link::source::Sources;
use siga_stack::time::Instant;
use siga_stack::wire::address::Prefix;
use siga_stack::wire::ethernet::MacAddress;
use std::net::IpAddr;

/// Reads `bytes` as the configuration of a container runtime. See [`cni::run`].
pub fn cni(bytes: &[u8]) {
    cni::survives(bytes);
}

/// Plays requests for addresses. The first byte says how much of the frame is given: the DHCP message, the message of neighbour discovery,
/// or the complete frame.
///
/// # Panics
/// Panics if an answer gives another address than the station's own, goes to another station, or is too long.
pub fn addresses(bytes: &[u8]) {
    const OWN: [u8; 4] = [10, 0, 0, 1];
    let Some((kind, rest)) = bytes.split_first() else { return };
    let prefix = |address: IpAddr, length| Prefix::new(address, length);
    let (Some(default), Some(own)) = (prefix([0; 4].into(), 0), prefix([0; 16].into(), 64)) else { return };
    let (station, server) = (MacAddress(mac(1).0), MacAddress(mac(9).0));
    let router = Router { mac: MacAddress(mac(2).0), routes: vec![own] };
    let routes = vec![(default, address(2).into())];
    let assignment = Assignment {
        station,
        server,
        mtu: 1_500,
        lease: Some(Lease { address: OWN.into(), length: 24, routes, host_name: "one".into() }),
        advertised: Some(Advertised { prefixes: vec![own], routers: vec![router] }),
    };
    let frame = match kind % 3 {
        0 => dhcp_frame(rest),
        1 => icmp_frame(rest),
        _ => rest.to_vec(),
    };
    let Some(question) = assignment.asks(&frame[..frame.len().min(HEAD_BYTES_MAX)], frame.len()) else { return };
    // Checksums may be left out, so that the messages behind them are reached.
    let Ok(answers) = assignment.answer(question, &frame, kind & 0x80 == 0) else { return };
    assert!(answers.len() <= 2);
    for answer in answers {
        assert!(answer.len() <= REQUEST_BYTES_MAX && (answer[..6] == station.0 || answer[0] & 1 != 0));
        if question == Question::Dhcp {
            assert!(answer[58..62] == OWN || answer[58..62] == [0; 4], "the client gets its own address or none");
            assert_eq!(answer[70..76], station.0);
        }
    }
}

/// Returns a frame with a DHCP message to the server.
fn dhcp_frame(message: &[u8]) -> Vec<u8> {
    let bytes = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255];
    header[2..4].copy_from_slice(&bytes(28 + message.len()));
    fill_checksum(&mut header);
    let udp = [&[0, 68, 0, 67][..], &bytes(8 + message.len()), &[0, 0]].concat();
    [&[0xff; 6][..], &mac(1).0, &[8, 0], &header, &udp, message].concat()
}

/// Fills in the checksum of an IPv4 header.
fn fill_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>();
    // The sum of the carries can cause one more.
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or_default();
    header[10..12].copy_from_slice(&(!sum).to_be_bytes());
}

/// Returns a frame with an ICMPv6 message.
fn icmp_frame(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes();
    let from = mac(1).link_local().octets();
    let header = [&[0x60, 0, 0, 0][..], &length, &[58, 255], &from, &[0xff; 16]].concat();
    [&[0x33, 0x33, 0, 0, 0, 1][..], &mac(1).0, &[0x86, 0xdd], &header, message].concat()
}

const PORTS: u8 = 5;
const LEARNING_PORT: u8 = 3;
const TRUNK_PORT: u8 = 4;
const FRAME_BYTES_MAX: usize = 9_100;

/// The unread rest of an input. Zeros follow its last byte.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

fn mac(station: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, station])
}

fn address(station: u8) -> [u8; 4] {
    [10, 0, 0, station]
}

/// Returns a port: three protected access ports in VLANs 1 and 2, one that learns, and a trunk. The first three have cards: stations 0
/// and 2 share one, and station 1 has its own.
fn port(station: u8) -> Option<Port> {
    let v6: IpAddr = format!("fd00::{station}").parse().ok()?;
    let own = [Prefix::new(IpAddr::from(address(station)), 32)?, Prefix::new(v6, 128)?];
    let vlan = match station {
        TRUNK_PORT => PortVlan::Trunk { allowed: [1, 2].into(), native: Some(3) },
        station => PortVlan::Access(1 + u16::from(station) % 2),
    };
    let protection = if station == LEARNING_PORT { Protection::Off } else { Protection::All };
    let sources = || Sources::new(&own, &[]).ok();
    Some(Port {
        label: station.to_string(),
        kernel_port: None,
        uplink: None,
        has_carrier: false,
        settings: PortSettings {
            mac: mac(station),
            vlan,
            protection,
            isolated: false,
            promiscuous: false,
            link: PortLink::default(),
            card: card(station),
        },
        guard: Guard { mac: mac(station), sources: sources()?, own: sources()?, is_router: false },
        mtu: 9_000,
        agreed: Agreed { checksum_unfilled: true, large_segments: true },
        attachment: Attachment::Ring(station.into()),
        flood: Flood::new(1_000_000),
        assigning: None,
        link: None,
        card: None,
        output: None,
        counters: PortCounters::default(),
    })
}

fn card(station: u8) -> Option<Card> {
    let name = match station {
        0 | 2 => Some("osa1".parse().ok()?),
        1 => None,
        _ => return None,
    };
    Some(Card { name, queueing: Queueing::default() })
}

/// Plays stations that send frames to a switch, while ports change, go and come back. Some frames wait for the wires of cards.
///
/// # Panics
/// Panics if a frame reaches another VLAN or leaves a protected port with a foreign source, if a large segment loses bytes, if a table or
/// an output queue exceeds its limit, or if a frame stays in a card for ever.
pub fn switch(bytes: &[u8]) {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let mut input = Input(bytes);
    let config = SwitchConfig { any_protocol: true, only_v4: false, flood_per_second: 1_000_000, accounting: true };
    let mut switch = Switch::new(config);
    (0..PORTS).for_each(|station| come(&mut switch, station, true));
    let mut now_ns = 1_000_000_000;
    while !input.0.is_empty() {
        let operation = input.byte();
        let station = input.byte() % PORTS;
        match operation % 8 {
            0 => change(&mut switch, station, &mut input),
            1 => come_or_go(&mut switch, station, operation & 0x80 == 0),
            2 => {
                let from = Some(station.to_string()).filter(|_| operation & 0x80 == 0);
                switch.set_mirror(Some(Mirror { from, to: (input.byte() % PORTS).to_string() }));
            }
            3 => {
                now_ns += u64::from(input.number()) * 10_000_000;
                carry(&mut switch, Instant::from_ns(now_ns));
            }
            _ => send(&mut switch, Instant::from_ns(now_ns), station, operation, &mut input),
        }
        if operation == 0xff {
            assert!(switch.accounts(None).len() <= usize::from(PORTS) && switch.accounts(None).is_empty());
        }
        assert!(switch.counters()["macs"] <= (SWITCH_MACS_MAX + 16 * usize::from(PORTS)) as u64);
        assert!(switch.addresses(Instant::from_ns(now_ns)).len() <= SWITCH_MACS_OF_PORT_MAX * usize::from(PORTS));
        switch.ports.iter().flatten().filter_map(|port| port.output.as_ref()).for_each(|output| output.check());
    }
    // A frame can wait for two wires: that of its sender's card, and that of its receiver's.
    (1..=3).for_each(|hours| carry(&mut switch, Instant::from_ns(now_ns + hours * HOUR_NS)));
    assert!(switch.cards.iter().all(|card| card.next_due(&switch.ports).is_none()), "no frame stays in a card");
}

/// Moves frames over the wires of cards, as far as they have come at a time.
fn carry(switch: &mut Switch, now: Instant) {
    let is_at = |switch: &Switch, port: usize, card: usize| {
        switch.ports.get(port).and_then(Option::as_ref).is_some_and(|port| port.card == Some(card))
    };
    for card in 0..switch.cards.len() {
        let Switch { cards, ports, .. } = &mut *switch;
        cards[card].serve(ports, now);
        loop {
            let Switch { cards, ports, .. } = &mut *switch;
            let Some(held) = cards[card].take_out(ports, now) else { break };
            assert!(is_at(switch, held.tag, card) && held.bytes.len() <= 9_000 + 18);
            decide(switch, now, held.tag, &held.bytes, Marks::default());
        }
        while let Some(held) = switch.cards[card].take_in(now) {
            assert!(is_at(switch, held.tag.0, card), "the frame is for a guest of the card");
        }
    }
}

fn at(switch: &Switch, station: u8) -> Option<usize> {
    let label = station.to_string();
    switch.ports.iter().position(|port| port.as_ref().is_some_and(|port| port.label == label))
}

fn change(switch: &mut Switch, station: u8, input: &mut Input<'_>) {
    let Some(at) = at(switch, station) else { return };
    let Some(Some(port)) = switch.ports.get(at) else { return };
    let mut settings = port.settings.clone();
    let choice = input.byte();
    settings.vlan = match choice % 4 {
        3 => PortVlan::Trunk { allowed: [1, 2].into(), native: Some(3).filter(|_| choice & 4 != 0) },
        vlan => PortVlan::Access(1 + u16::from(vlan)),
    };
    settings.protection = [Protection::All, Protection::Mac, Protection::Off][usize::from(choice / 8) % 3];
    (settings.isolated, settings.promiscuous) = (choice & 0x40 != 0, choice & 0x80 != 0);
    switch.set_settings(at, settings, Instant::from_ns(0));
}

fn come_or_go(switch: &mut Switch, station: u8, has_wire: bool) {
    match at(switch, station) {
        Some(at) => _ = switch.remove_port(at),
        None => come(switch, station, has_wire),
    }
}

/// Adds the port of a station. With a card, the station says whether the card has a modelled wire.
fn come(switch: &mut Switch, station: u8, has_wire: bool) {
    let Some(mut port) = port(station) else { return };
    if port.settings.card.is_some() && has_wire {
        let link = Some(Link::channel(100_000_000, 0));
        port.settings.link = PortLink { from_station: link.clone(), to_station: link };
    }
    let at = switch.add_port(port);
    switch.attach_card(at, if station == 0 { Full::Pending } else { Full::Drop }, Instant::from_ns(0));
}

/// Sends a frame. Most frames have the station's own source, so that later checks are reached.
fn send(switch: &mut Switch, now: Instant, station: u8, operation: u8, input: &mut Input<'_>) {
    let Some(from) = at(switch, station) else { return };
    let wanted = usize::from(input.number()) % FRAME_BYTES_MAX;
    let segment_bytes = if operation & 0x10 == 0 { 0 } else { input.number() % 9_000 };
    let marks = Marks { checksum_unfilled: operation & 0x20 != 0 || segment_bytes > 0, segment_bytes };
    let given = usize::from(input.byte());
    let mut frame = input.take(given).to_vec();
    frame.resize(frame.len().max(wanted), 0x55);
    if operation & 0x40 == 0 && frame.len() > 54 {
        frame[6..12].copy_from_slice(&mac(station).0);
        if operation & 0x80 == 0 {
            let packet_bytes = u16::try_from(frame.len() - 14).unwrap_or(u16::MAX);
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            frame[16..18].copy_from_slice(&packet_bytes.to_be_bytes());
            (frame[20], frame[21], frame[23]) = (0, 0, 6);
            frame[26..30].copy_from_slice(&address(station));
            (frame[46], frame[47]) = (0x50, 0x10);
            fill_checksum(&mut frame[14..34]);
        }
    }
    if operation & 1 != 0 {
        let place = qdio::place(input.number().into());
        let header = Header::new(frame.len(), |into| into.copy_from_slice(&frame[..into.len()]));
        let payload = &frame[header.bytes().len()..];
        if carded::hold_from_guest(switch, (now, from), place, (&header, payload, marks)) {
            return;
        }
    }
    decide(switch, now, from, &frame, marks);
}

/// Lets the switch decide about a frame, and checks the decision. A frame for a guest of another card then waits for the wire of that card.
fn decide(switch: &mut Switch, now: Instant, from: usize, frame: &[u8], marks: Marks) {
    let mut header = Header::new(frame.len(), |into| into.copy_from_slice(&frame[..into.len()]));
    let decided = switch.decide(now, from, &mut header, marks);
    if let Ok(decision) = decided {
        check(switch, from, &header, &decision);
        if let Target::One(to) = decision.target
            && let Some(card) = switch.ports[to].as_ref().and_then(|port| port.card)
            && decision.card != Some(card)
            && frame.len() <= 9_000 + 18
        {
            switch.cards[card].receive(now, to, frame.to_vec(), None);
        }
        let tagged = usize::from(u16::from_be_bytes([frame[12], frame[13]]) == 0x8100) * 4;
        cut(switch, &header, &frame[(header.bytes().len() + tagged).min(frame.len())..], marks);
    } else {
        let counters = switch.port_counters(from);
        assert!(decided.is_err_and(|reason| reason == DropReason::NoPort || counters[reason.name()] > 0));
    }
}

fn check(switch: &Switch, from: usize, header: &Header, decision: &Decision) {
    let (Some(Some(port)), Ok((_, source, ethertype))) = (switch.ports.get(from), header.link()) else {
        panic!("a frame without a port or a header is passed on")
    };
    assert!(port.settings.vlan.has(decision.vlan), "the frame is in a VLAN of its sender");
    assert_ne!(ethertype, 0x8100, "the tag is removed");
    if port.settings.protection != Protection::Off {
        assert_eq!(source, port.settings.mac.0);
    }
    if port.settings.protection == Protection::All && ethertype == 0x0800 {
        let station: u8 = port.label.parse().unwrap_or_default();
        let claimed = header.packet().get(12..16).unwrap_or_default();
        assert!(claimed == address(station) || claimed == [0; 4], "{claimed:?} at port {station}");
    }
    for to in 0..switch.ports.len() {
        let gets = match decision.target {
            Target::One(only) => to == only,
            Target::All => switch.may_pass(from, to, decision.vlan),
        };
        let Some(Some(receiver)) = switch.ports.get(to).filter(|_| gets) else { continue };
        assert!(to != from && receiver.settings.vlan.has(decision.vlan), "the frame is in a VLAN of its receiver");
        assert!(!(port.settings.isolated && receiver.settings.isolated));
    }
    if let Some(mirror) = switch.mirror_of(from, decision) {
        assert!(mirror != from && decision.target != Target::One(mirror));
    }
}

/// Cuts a frame for a port without offload, and checks that no byte of the payload is lost.
fn cut(switch: &mut Switch, header: &Header, payload: &[u8], marks: Marks) {
    if !marks.checksum_unfilled {
        return;
    }
    let whole = header.bytes();
    assert!(whole.len() <= HEAD_BYTES_MAX);
    let Ok(mut cut) = switch.cutter.cut(Received { header: whole, payload, marks }, Agreed::default()) else { return };
    let mut next = None;
    while let Some(piece) = cut.next_piece() {
        assert_eq!(piece.marks, Marks::default());
        assert!(marks.segment_bytes == 0 || piece.range.len() <= usize::from(marks.segment_bytes));
        assert!(next.is_none_or(|next| next == piece.range.start), "the pieces follow each other");
        next = Some(piece.range.end);
    }
    assert!(next.is_some(), "each frame becomes at least one");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of a station with a card, a step of time, or a port that comes or goes.
    fn send_over_cards() -> impl Strategy<Value = Vec<u8>> {
        let frame = (any::<u8>(), 0..3_u8, 60..9_000_u16, 0..200_u16, any::<u16>()).prop_map(
            |(operation, station, bytes, segment_bytes, tag)| {
                let [high, low] = bytes.to_be_bytes();
                // The length of the frame, its first bytes (the address of a station), and its tag in the ring.
                let mut all = vec![(operation & 0x30) | 5, station, high, low];
                if operation & 0x10 != 0 {
                    all.extend(segment_bytes.to_be_bytes());
                }
                all.extend([&[6][..], &mac(operation % 3).0, &tag.to_be_bytes()].concat());
                all
            },
        );
        let time = any::<u16>().prop_map(|time| [&[3, 0][..], &(time % 3).to_be_bytes()].concat());
        let port =
            (any::<bool>(), 0..3_u8).prop_map(|(has_wire, station)| vec![if has_wire { 1 } else { 0x81 }, station]);
        prop_oneof![8 => frame, 2 => time, 1 => port]
    }

    #[test]
    fn a_segment_that_would_become_too_many_frames_is_refused_before_it_is_cut() {
        let config = SwitchConfig { any_protocol: true, only_v4: false, flood_per_second: 1, accounting: false };
        let mut switch = Switch::new(config);
        come(&mut switch, 0, true);
        let mut frame = [&mac(1).0[..], &mac(0).0, &[8, 0, 0x45], &[0; 3_039]].concat();
        frame[16..18].copy_from_slice(&3_040_u16.to_be_bytes());
        (frame[23], frame[46], frame[47]) = (6, 0x50, 0x10);
        frame[26..30].copy_from_slice(&address(0));
        fill_checksum(&mut frame[14..34]);
        for (segment_bytes, pieces) in [(1, 0), (47, 0), (48, 63), (1_448, 66)] {
            let marks = Marks { checksum_unfilled: true, segment_bytes };
            let header = Header::new(frame.len(), |into| into.copy_from_slice(&frame[..into.len()]));
            let payload = &frame[header.bytes().len()..];
            let at = Instant::from_ns(0);
            let is_held = carded::hold_from_guest(&mut switch, (at, 0), (2, true), (&header, payload, marks));
            // The pieces count towards the frames that a guest can send in one turn.
            assert_eq!((is_held, switch.pieces), (pieces > 0, pieces), "{segment_bytes}");
            decide(&mut switch, at, 0, &frame, marks);
        }
        assert_eq!(switch.port_counters(0)[DropReason::Marks.name()], 2);
    }

    proptest! {
        #[test]
        fn a_switch_keeps_its_promises_for_any_frames(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            switch(&bytes);
        }

        #[test]
        fn no_frame_stays_in_a_card_whatever_its_guests_send(bytes in proptest::collection::vec(send_over_cards(), 0..60)) {
            switch(&bytes.concat());
        }

        #[test]
        fn any_request_for_addresses_is_survived(
            kind in any::<u8>(),
            fields in any::<bool>(),
            rest in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut bytes = rest;
            if fields && bytes.len() > 243 {
                bytes[..3].copy_from_slice(&[1, 1, 6]);
                bytes[24..28].fill(0);
                bytes[28..34].copy_from_slice(&mac(1).0);
                bytes[236..242].copy_from_slice(&[0x63, 0x82, 0x53, 0x63, 53, 1]);
            }
            addresses(&[&[kind], &bytes[..]].concat());
        }

        #[test]
        fn the_plug_in_survives_any_configuration(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            cni(&bytes);
        }
    }
}
