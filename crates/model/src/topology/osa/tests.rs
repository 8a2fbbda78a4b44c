//! Tests of the tables of networks of type qdio, and of their contradictions.

use super::*;
use crate::topology::{Device, Topology};

/// A topology with two guests on a network of type qdio.
fn osa(network: &str, one: &str, two: &str) -> Result<Topology> {
    Topology::parse(&format!(
        "[network.lan]\ntype = \"qdio\"\n{network}\n\
        [guest.one]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.1/24\"]{one} }}]\n\
        [guest.two]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.2/24\"]{two} }}]\n"
    ))
}

fn device<'a>(topology: &'a Topology, guest: &str) -> &'a Device {
    &topology.guests[&guest.parse().unwrap()].devices[0]
}

#[test]
fn a_card_has_the_mtu_of_its_layer_and_the_rate_of_its_wire() {
    for (network, mtu, shown, rate) in [
        ("", 1_492, "qdio, layer 3, MTU 1492", Some(1_000_000_000)),
        ("mtu = 8992\nwire = \"1000base-t\"", 8_992, "qdio, layer 3, MTU 8992", Some(1_000_000_000)),
        ("layer = \"ethernet\"\nwire = \"10gbe\"", 1_500, "qdio, layer 2, MTU 1500", Some(10_000_000_000)),
        ("layer = \"ethernet\"\nmtu = 9000\nwire = \"real\"", 9_000, "qdio, layer 2, MTU 9000", None),
    ] {
        let topology = osa(network, "", "").unwrap();
        assert_eq!(topology.networks[&"lan".parse().unwrap()].kind.to_string(), shown);
        let one = device(&topology, "one");
        let link = &one.port.as_ref().unwrap().link;
        assert_eq!((u32::from(one.mtu), one.buffer_count), (mtu, 64));
        assert_eq!(link.from_station.as_ref().and_then(|link| link.rate), rate);
        assert_eq!(link.to_station, link.from_station);
        // The rings in which guests send to the adapter.
        assert_eq!(device(&topology, "lan").buffer_count, 128);
    }
}

#[test]
fn devices_share_a_card_by_its_name_and_have_its_wire() {
    let cards = "wire = \"10gbe\"\n[[network.lan.card]]\nname = \"osa1\"\nwire = \"1gbe\"\n\
        [[network.lan.card]]\nname = \"osa2\"\nlink = \"rate=100mbit,latency=5us\"\n";
    let topology = osa(
        cards,
        ", card = \"osa1\", priority_queueing = \"prio_queueing_prec\", buffer_count = 1000",
        ", card = \"osa2\", priority_queueing = \"no_prio_queueing\", buffer_count = 1",
    )
    .unwrap();
    let of = |guest: &str| {
        let device = device(&topology, guest);
        let port = device.port.clone().unwrap();
        (port.card.unwrap(), port.link.from_station.unwrap().to_string(), device.buffer_count)
    };
    let card = |name: &str, queueing| Card { name: Some(name.parse().unwrap()), queueing };
    assert_eq!(of("one"), (card("osa1", Queueing::Precedence), "rate=1gbit".to_owned(), 128));
    assert_eq!(of("two"), (card("osa2", Queueing::Always(2)), "rate=100mbit,latency=5us".to_owned(), 8));
    let topology = osa(cards, "", ", link = \"latency=1ms\"").unwrap();
    let port = |guest: &str| device(&topology, guest).port.clone().unwrap();
    assert_eq!(
        (port("one").card, port("one").link.from_station.unwrap().rate),
        (Some(Card::default()), Some(10_000_000_000))
    );
    assert_eq!(port("two").link.from_station.unwrap().to_string(), "latency=1ms");
}

#[test]
fn a_network_of_cards_with_a_contradiction_is_refused() {
    let card = "[[network.lan.card]]\nname = \"osa1\"\n";
    for (network, one, part) in [
        (format!("{card}{card}"), "", "two cards have the same name osa1"),
        (card.to_owned(), ", card = \"osa2\"", "has no card osa2"),
        (String::new(), ", card = \"osa2\"", "has no card osa2"),
        (card.to_owned(), ", card = \"osa1\", link = \"latency=1ms\"", "in the table of the card"),
        (format!("{card}wire = \"1gbe\"\nlink = \"latency=1ms\"\n"), "", "replaces the wire"),
        (format!("{card}link = \"rate=0bit\"\n"), "", "rate=0bit"),
        (String::new(), ", link = \"rate=0bit\"", "rate=0bit"),
        ("wire = \"fddi\"".to_owned(), "", "fddi"),
        ("mtu = 9000".to_owned(), "", "outside the range 576 to 8992"),
        ("layer = \"ethernet\"\nmtu = 9001".to_owned(), "", "outside the range 576 to 9000"),
        (String::new(), ", mtu = 8992", "an MTU of 8992 bytes (on qdio, layer 3, MTU 1492)"),
        (String::new(), ", priority_queueing = \"fast\"", "not a rule for output queues"),
        (String::new(), ", priority_queueing = \"no_prio_queueing:4\"", "not a rule for output queues"),
        (String::new(), ", priority_queueing = \"prio_queueing_vlan\"", "not a rule for output queues"),
        (String::new(), ", vlan = 3", "layer 2"),
        ("nic = \"qdio\"".to_owned(), "", "always have type qdio"),
        ("frame = \"64K\"".to_owned(), "", "the key `mtu` instead"),
        ("buffer = 65535".to_owned(), "", "only networks of type vctc, ctc, netiucv and claw"),
        ("owner = \"one\"".to_owned(), "", "always SYSTEM"),
        ("accounting = true".to_owned(), "", "only networks of type guestlan"),
    ] {
        let error = osa(&network, one, "").unwrap_err();
        assert!(error.to_string().contains(part), "{network} {one}: {error}");
    }
    for (network, key) in
        [("wire = \"1gbe\"", ""), (card, ""), ("", ", card = \"a\""), ("", ", priority_queueing = \"x\"")]
    {
        let text = format!(
            "[network.lan]\ntype = \"vswitch\"\n{network}\n[guest.one]\ndevice = [{{ network = \"lan\"{key} }}]\n"
        );
        assert!(Topology::parse(&text).unwrap_err().to_string().contains("networks of type qdio"), "{network} {key}");
    }
}
