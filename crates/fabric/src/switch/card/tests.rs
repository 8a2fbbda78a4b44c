//! A card with two guests: which frame the wire sends next, and what happens to frames for which there is no room.

use super::super::tests::{CONFIG, port};
use super::*;
use siga_model::topology::{Card as CardSettings, Protection};

const MS: u64 = 1_000_000;

/// A card with a wire of 8 Mbit/s (1 byte takes 1 us), and its guests at the ports 0 and 1.
fn shared(rule: Full) -> Switch {
    let mut switch = Switch::new(CONFIG);
    for station in [1, 2] {
        let mut added = port(station, Protection::All, PortVlan::Access(1));
        added.settings.card = Some(CardSettings { name: Some("osa1".parse().unwrap()), queueing: Queueing::default() });
        let link = Some("rate=8mbit".parse().unwrap());
        added.settings.link = PortLink { from_station: link.clone(), to_station: link };
        let at = switch.add_port(added);
        switch.attach_card(at, rule, Instant::from_ns(0));
    }
    switch
}

/// Adds a frame of 100 bytes with a name to an output queue of a guest. Returns false if it was dropped.
fn add(switch: &mut Switch, port: usize, queue: usize, name: u8, at_ns: u64) -> bool {
    let output = switch.ports[port].as_mut().unwrap().output.as_mut().unwrap();
    let Some(begins) = output.begin((queue, true), 100) else { return false };
    output.add(queue, Instant::from_ns(at_ns), vec![name; 100], begins);
    true
}

/// Serves the card, and returns the names of the frames that have arrived at the LAN.
fn arrived(switch: &mut Switch, at_ns: u64) -> Vec<u8> {
    let at = Instant::from_ns(at_ns);
    let Switch { cards, ports, .. } = switch;
    cards[0].serve(ports, at);
    std::iter::from_fn(|| cards[0].take_out(ports, at)).map(|held| held.bytes[0]).collect()
}

#[test]
fn the_queue_with_the_lowest_number_is_served_first_and_its_guests_in_turn() {
    let mut switch = shared(Full::Pending);
    assert_eq!((switch.cards.len(), &switch.cards[0].ports[..]), (1, &[0, 1][..]));
    for (port, queue, name) in
        [(0, 3, b'a'), (0, 2, b'b'), (0, 2, b'c'), (1, 2, b'd'), (1, 2, b'e'), (1, 0, b'f'), (0, 0, b'g')]
    {
        assert!(add(&mut switch, port, queue, name, 0));
    }
    assert_eq!(arrived(&mut switch, 0), b"");
    assert_eq!(switch.cards[0].next_due(&switch.ports), Some(Instant::from_ns(MS / 10)));
    // 100 us each. A frame that comes later and has a lower number overtakes those that wait.
    assert_eq!(arrived(&mut switch, 3 * MS / 10), b"gfb");
    assert!(add(&mut switch, 1, 1, b'h', 3 * MS / 10 + 1));
    assert_eq!(arrived(&mut switch, 10 * MS), b"dhcea");
    assert_eq!(switch.cards[0].next_due(&switch.ports), None);
    let counters = switch.port_counters(1);
    assert_eq!(
        (counters["card_queue_0_sent"], counters["card_queue_2_sent"], counters["link_from_station_delivered"]),
        (1, 2, 8)
    );
}

#[test]
fn a_full_output_queue_holds_its_guest_or_drops_its_frames() {
    for (rule, is_held) in [(Full::Pending, true), (Full::Drop, false)] {
        let mut switch = shared(rule);
        for _ in 0..128 {
            assert!(!switch.is_held(0));
            assert!(add(&mut switch, 0, 2, b'a', 0));
        }
        assert_eq!((switch.is_held(0), switch.is_held(1)), (is_held, false));
        assert!(!add(&mut switch, 0, 2, b'b', 0), "the queue has 128 buffers");
        assert!(add(&mut switch, 0, 0, b'c', 0), "each queue has its own buffers");
        assert_eq!(switch.port_counters(0)["card_queue_2_full"], 1);
        arrived(&mut switch, MS);
        assert!(!switch.is_held(0));
        arrived(&mut switch, 100 * MS);
        assert_eq!(switch.port_counters(0)["card_queue_2_sent"], 128);
    }
}

#[test]
fn a_buffer_has_no_more_frames_than_elements_whatever_its_sender_says() {
    let mut output = Output::default();
    let mut begun =
        |says_so, bytes, count| (0..count).filter(|_| output.begin((1, says_so), bytes) == Some(true)).count();
    assert_eq!(begun(false, 60, 64), 4);
    assert_eq!(begun(false, 65_536, 10), 10);
    assert_eq!(begun(true, 60, 5), 5);
    assert_eq!(begun(false, 9_000, 5), 0, "15 elements beside the first one");
    assert_eq!(begun(false, 9_000, 1), 1);
}

#[test]
fn frames_of_a_removed_port_are_lost_and_reach_no_other_guest() {
    let mut switch = shared(Full::Pending);
    add(&mut switch, 0, 2, b'a', 0);
    add(&mut switch, 1, 2, b'b', 0);
    let at = Instant::from_ns(1);
    let Switch { cards, ports, .. } = &mut switch;
    cards[0].serve(ports, at);
    cards[0].receive(at, 0, vec![1; 100], None);
    cards[0].receive(at, 1, vec![2; 100], None);
    switch.remove_port(0);
    assert_eq!(arrived(&mut switch, 10 * MS), b"b");
    let held = switch.cards[0].take_in(Instant::from_ns(10 * MS)).unwrap();
    assert_eq!((held.bytes[0], held.tag.0), (2, 1));
    assert!(switch.cards[0].take_in(Instant::from_ns(10 * MS)).is_none());
    let counters = switch.port_counters(1);
    assert_eq!((counters["link_from_station_lost_at_end"], counters["link_to_station_lost_at_end"]), (1, 1));
}

#[test]
fn a_new_card_takes_the_place_of_one_whose_guests_are_gone() {
    let mut switch = shared(Full::Pending);
    let come = |switch: &mut Switch, name: &str, to: usize| {
        let mut added = port(3, Protection::All, PortVlan::Access(1));
        added.settings.card = Some(CardSettings { name: Some(name.parse().unwrap()), queueing: Queueing::default() });
        let at = switch.add_port(added);
        switch.attach_card(at, Full::Pending, Instant::from_ns(0));
        assert_eq!((at, switch.ports[at].as_ref().unwrap().card), (2, Some(to)), "{name}");
    };
    for name in ["osa2", "osa3", "osa3", "osa4"] {
        come(&mut switch, name, 1);
        switch.remove_port(2);
    }
    come(&mut switch, "osa1", 0);
    assert_eq!((switch.cards.len(), &switch.cards[0].ports[..]), (2, &[0, 1, 2][..]));
}

#[test]
fn frames_that_wait_for_a_wire_that_is_removed_leave_the_card() {
    let mut switch = shared(Full::Pending);
    (0..128).for_each(|_| assert!(add(&mut switch, 0, 2, b'a', 0)));
    add(&mut switch, 1, 0, b'b', 0);
    assert!(switch.is_held(0));
    switch.cards[0].set_link(&PortLink::default(), Instant::from_ns(1));
    assert_eq!(switch.cards[0].next_due(&switch.ports), Some(Instant::from_ns(0)));
    let left = arrived(&mut switch, 1);
    assert_eq!((left.len(), left[0]), (129, b'b'));
    assert!(!switch.is_held(0));
    assert_eq!(switch.cards[0].next_due(&switch.ports), None);
}
