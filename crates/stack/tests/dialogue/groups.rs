//! IGMP and MLD on the wire (RFC 3376, RFC 2236, RFC 3810, RFC 2710): what a stack says of its groups, when, and to whom.

mod messages;

use crate::world::*;
use messages::*;
use proptest::prelude::*;
use siga_stack::drops::{GroupDrop, IcmpDrop, IpDrop};
use siga_stack::limits::{GROUP_QUERY_SOURCES_MAX, GROUPS_DEVICE_MAX};
use siga_stack::time::{Duration, Instant};
use std::net::IpAddr;

#[test]
fn joins_and_leaves_are_reported_at_once_and_once_more() {
    for kind in BOTH {
        let mut world = world(false);
        let socket = world.socket(kind);
        let group = kind.group(3);
        for change in [4, 3] {
            let tell = if change == 4 { World::join } else { World::leave };
            tell(&mut world, socket, group);
            assert_eq!(world.stack.poll_timeout(), Some(world.now), "at once");
            let messages = world.messages_within(Duration::from_secs(60));
            let [(first, told), (again, told_again)] = &messages[..] else { panic!("{messages:?}") };
            let expected = Message {
                from: kind.own().into(),
                to: kind.reports().into(),
                kind: kind.types()[0],
                records: plain(&[(change, group)]),
            };
            assert_eq!((told, told_again), (&expected, &expected));
            assert!(*first == Duration::ZERO && *again > *first && *again <= Duration::from_secs(1), "{again:?}");
            assert_eq!(world.stack.is_joined(ON, group), change == 4);
        }
        assert_eq!(world.stack.poll_timeout(), None);
    }
}

#[test]
fn membership_changes_are_reported_together_in_packets_of_the_mtu() {
    for (kind, reports) in [(Kind::Igmp, 2), (Kind::Mld, 3)] {
        let mut world = world(false);
        let sockets = [4001, 4002, 4003, 4004].map(|port| world.stack.udp_bind(at(kind.any(), port)).unwrap());
        for n in 0..200 {
            world.join(sockets[usize::from(n / 50)], kind.group(n));
        }
        let messages = world.messages_within(Duration::from_secs(2));
        assert_eq!(messages.len(), 2 * reports);
        let all: Vec<_> = (0..200).map(|n| (4, kind.group(n))).collect();
        for half in [&messages[..reports], &messages[reports..]] {
            let told: Vec<_> = half.iter().flat_map(|(_, message)| message.records.clone()).collect();
            assert_eq!(told, plain(&all));
        }
    }
}

#[test]
fn the_robustness_of_the_querier_sets_how_often_changes_are_reported() {
    for kind in BOTH {
        for (robustness, times) in [(7, 7), (0, 2), (1, 1)] {
            let mut world = world(false);
            assert_eq!(world.give_packet(0, &kind.query(None, 0, robustness, 0, &[])), Outcome::Done);
            world.messages_within(Duration::from_secs(1));
            let socket = world.socket(kind);
            world.join(socket, kind.group(1));
            assert_eq!(world.messages_within(Duration::from_secs(60)).len(), times);
        }
    }
}

#[test]
fn a_general_query_is_answered_once_at_a_random_time() {
    for kind in BOTH {
        let mut times = Vec::new();
        for seed in 1..30 {
            let mut world = World::after_group_reports(stack(seed, false, &[ROUTER[0], OWN6]));
            world.member(kind, [1, 2, 3]);
            let code = kind.code(Duration::from_secs(8));
            for _ in 0..2 {
                assert_eq!(world.give_packet(0, &kind.query(None, code, 2, 125, &[])), Outcome::Done);
            }
            let messages = world.messages_within(Duration::from_secs(60));
            let [(time, answer)] = &messages[..] else { panic!("{messages:?}") };
            let mut groups = vec![(2, kind.group(1)), (2, kind.group(2)), (2, kind.group(3))];
            if kind == Kind::Mld {
                groups.insert(0, (2, "ff02::1:ff00:1".parse().unwrap()));
            }
            assert_eq!(answer.records, plain(&groups));
            assert!(*time > Duration::ZERO && *time <= Duration::from_secs(8));
            times.push(*time);
            assert_eq!(world.stack.poll_timeout(), None);
        }
        times.sort();
        times.dedup();
        assert!(times.len() > 25 && times[2] < Duration::from_secs(2) && times[20] > Duration::from_secs(2));
    }
}

#[test]
fn a_query_about_a_group_is_answered_for_the_group_and_the_queried_sources() {
    for kind in BOTH {
        let mut world = world(false);
        world.member(kind, [1, 2]);
        let sources: Vec<IpAddr> = (1..=100).map(|n| kind.group(n)).collect();
        let code = kind.code(Duration::from_secs(1));
        let whole = (2, kind.group(1), vec![]);
        let max = GROUP_QUERY_SOURCES_MAX;
        for (queries, answers) in [
            (vec![&sources[..0]], vec![whole.clone()]),
            (vec![&sources[..2]], vec![(1, kind.group(1), sources[..2].to_vec())]),
            (vec![&sources[..2], &sources[1..4]], vec![(1, kind.group(1), sources[..4].to_vec())]),
            (vec![&sources[..2], &sources[..0]], vec![whole.clone()]),
            (vec![&sources[..0], &sources[..2]], vec![whole.clone()]),
            (vec![&sources[..max]], vec![(1, kind.group(1), sources[..max].to_vec())]),
            (vec![&sources[..=max]], vec![whole.clone()]),
            (vec![&sources[..max], &sources[1..=max]], vec![whole.clone()]),
        ] {
            for sources in queries {
                let query = kind.query(Some(kind.group(1)), code, 2, 125, sources);
                assert_eq!(world.give_packet(0, &query), Outcome::Done);
            }
            let messages = world.messages_within(Duration::from_secs(2));
            assert!(messages.iter().all(|(time, _)| *time <= Duration::from_secs(1)));
            let records: Vec<_> = messages.into_iter().flat_map(|(_, message)| message.records).collect();
            assert_eq!(records, answers);
        }
        let other = kind.query(Some(kind.group(9)), code, 2, 125, &[]);
        assert_eq!(world.give_packet(0, &other), Outcome::dropped(IpDrop::NotJoined));
        assert_eq!(world.messages_within(Duration::from_secs(60)), []);
    }
}

#[test]
fn a_pending_general_answer_replaces_answers_about_single_groups() {
    for kind in BOTH {
        let mut world = world(false);
        world.member(kind, [1]);
        assert_eq!(world.give_packet(0, &kind.query(None, 0, 2, 125, &[])), Outcome::Done);
        let late = kind.query(Some(kind.group(1)), kind.code(Duration::from_secs(9)), 2, 125, &[]);
        assert_eq!(world.give_packet(0, &late), Outcome::Done);
        assert_eq!(world.messages_within(Duration::from_secs(60)).len(), 1);
    }
}

#[test]
fn older_queriers_get_a_separate_report_for_each_group() {
    for kind in BOTH {
        let mut world = world(false);
        let socket = world.member(kind, 1..40);
        let query = kind.older_query(None, kind.code(Duration::from_secs(10)));
        assert_eq!(world.give_packet(0, &query), Outcome::Done);
        let mut messages = world.messages_within(Duration::from_secs(10));
        messages.retain(|(_, message)| !message.to.starts_with("ff02"));
        let times: std::collections::BTreeSet<Duration> = messages.iter().map(|(time, _)| *time).collect();
        assert_eq!((messages.len(), times.len()), (39, 39));
        for (_, message) in messages {
            let group = message.records[0].1;
            assert_eq!(message.to, group.to_string());
            assert_eq!((message.from.as_str(), message.kind), (kind.own(), kind.types()[1]));
        }
        // A later join is reported at once and again within 10 s.
        world.join(socket, kind.group(50));
        let messages = world.messages_within(Duration::from_secs(60));
        assert_eq!(messages.len(), 2);
        assert!(messages[0].0 == Duration::ZERO && messages[1].0 <= Duration::from_secs(10));
        assert_eq!(messages[1].1.records, plain(&[(0, kind.group(50))]));
    }
}

#[test]
fn an_older_report_of_another_station_suppresses_our_report_and_leave() {
    for kind in BOTH {
        let mut world = world(false);
        let socket = world.member(kind, [1, 2]);
        let query = kind.older_query(None, kind.code(Duration::from_secs(10)));
        assert_eq!(world.give_packet(0, &query), Outcome::Done);
        assert_eq!(world.give_packet(0, &kind.older_report(kind.group(1))), Outcome::Done);
        let reported: Vec<_> = world
            .messages_within(Duration::from_secs(20))
            .into_iter()
            .flat_map(|(_, message)| message.records)
            .filter(|(_, group, _)| !group.to_string().starts_with("ff02"))
            .collect();
        assert_eq!(reported, plain(&[(0, kind.group(2))]));
        world.leave(socket, kind.group(1));
        assert_eq!(
            world.messages_within(Duration::from_secs(20)),
            [],
            "the other station is still in it, for all we know"
        );
        world.leave(socket, kind.group(2));
        let messages = world.messages_within(Duration::from_secs(20));
        let [(Duration::ZERO, left)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!((left.to.as_str(), left.kind), (kind.routers(), kind.types()[2]));
        assert_eq!(left.records, plain(&[(0, kind.group(2))]));
    }
}

#[test]
fn a_querier_of_the_newest_version_gets_our_report_despite_reports_of_others() {
    for kind in BOTH {
        let mut world = world(false);
        world.member(kind, [1]);
        let query = kind.query(Some(kind.group(1)), kind.code(Duration::from_secs(1)), 2, 125, &[]);
        assert_eq!(world.give_packet(0, &query), Outcome::Done);
        assert_eq!(world.give_packet(0, &kind.older_report(kind.group(1))), Outcome::Done);
        assert_eq!(world.messages_within(Duration::from_secs(2)).len(), 1);
    }
}

#[test]
fn an_older_querier_is_remembered_for_its_robustness_times_interval_and_response_time() {
    for kind in BOTH {
        for (wait, expected) in [(64, kind.types()[1]), (66, kind.types()[0])] {
            let mut world = world(false);
            let socket = world.member(kind, []);
            // Three intervals of 20 s, and 5 s for the answer.
            assert_eq!(world.give_packet(0, &kind.query(None, 0, 3, 20, &[])), Outcome::Done);
            let query = kind.older_query(None, kind.code(Duration::from_secs(5)));
            assert_eq!(world.give_packet(0, &query), Outcome::Done);
            world.messages_within(Duration::from_secs(wait));
            world.join(socket, kind.group(1));
            let messages = world.messages_within(Duration::ZERO);
            assert_eq!(messages[0].1.kind, expected, "{kind:?} after {wait} s");
            // A repetition due for the older querier is dropped when that querier times out, a second later.
            let repeated = world.messages_within(Duration::from_secs(60)).len();
            assert_eq!(repeated, if wait == 64 { 0 } else { 2 });
        }
    }
}

#[test]
fn queriers_of_igmp_version_1_get_no_leave_messages() {
    let kind = Kind::Igmp;
    let mut world = world(false);
    let socket = world.member(kind, [1]);
    // It has no router alert: those came later.
    let query = V4 { ttl: 1, ..V4::new(HOST[0], "224.0.0.1", 2) }.packet(&igmp_sum(&[0x11, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(world.give_packet(0, &query), Outcome::Done);
    let messages = world.messages_within(Duration::from_secs(10));
    let [(_, report)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((report.kind, &report.records), (0x12, &plain(&[(0, kind.group(1))])));
    world.leave(socket, kind.group(1));
    assert_eq!(world.messages_within(Duration::from_secs(60)), []);
    assert!(!world.stack.is_joined(ON, kind.group(1)));
}

#[test]
fn a_change_of_the_querier_version_drops_pending_answers_but_not_unreported_joins() {
    for kind in BOTH {
        let mut world = world(false);
        let socket = world.member(kind, [1]);
        assert_eq!(
            world.give_packet(0, &kind.query(None, kind.code(Duration::from_secs(9)), 2, 125, &[])),
            Outcome::Done
        );
        world.join(socket, kind.group(2));
        let query = kind.older_query(None, kind.code(Duration::from_secs(9)));
        assert_eq!(world.give_packet(0, &query), Outcome::Done);
        let messages = world.messages_within(Duration::from_secs(60));
        assert!(messages.iter().all(|(_, message)| message.kind == kind.types()[1]));
        let of = |n| messages.iter().filter(|(_, message)| message.to == kind.group(n).to_string()).count();
        assert_eq!((of(1), messages[0].1.to.clone()), (1, kind.group(2).to_string()));
    }
}

#[test]
fn solicited_node_groups_are_reported_from_the_link_local_address() {
    for (forwarding, addresses, from) in
        [(false, &[ROUTER6[0], OWN6][..], OWN6), (true, &[ROUTER6[0], "2001:db8:1::77"][..], "::")]
    {
        let mut world = World { stack: stack(1, forwarding, addresses), now: Instant::from_ns(5) };
        let messages = world.messages_within(Duration::from_secs(60));
        let mut groups: Vec<IpAddr> = vec!["ff02::1:ff00:1".parse().unwrap()];
        if forwarding {
            let [link, other, site] = ["ff02::2", "ff02::1:ff00:77", "ff05::2"].map(|group| group.parse().unwrap());
            groups = vec![link, groups[0], other, site];
        }
        assert_eq!(messages.len(), 2);
        for (_, message) in &messages {
            assert_eq!((message.from.as_str(), message.to.as_str()), (from, "ff02::16"));
            assert_eq!(message.records, plain(&groups.iter().map(|group| (4, *group)).collect::<Vec<_>>()));
        }
        assert_eq!(world.stack.groups(ON).collect::<Vec<_>>(), groups);
        assert_eq!(world.stack.is_joined(ON, "ff02::2".parse().unwrap()), forwarding);
        assert_eq!(world.stack.poll_timeout(), None);
    }
}

#[test]
fn all_nodes_and_node_local_groups_are_never_reported() {
    let mut world = world(false);
    for (kind, groups) in [(Kind::Igmp, &["224.0.0.1"][..]), (Kind::Mld, &["ff02::1", "ff01::5", "ff11::5"][..])] {
        let socket = world.member(kind, []);
        for group in groups {
            let group: IpAddr = group.parse().unwrap();
            world.join(socket, group);
            for query in [kind.query(None, 10, 2, 125, &[]), kind.query(Some(group), 10, 2, 125, &[])] {
                world.give_packet(0, &query);
                let told = world.messages_within(Duration::from_secs(20)).into_iter().flat_map(|(_, m)| m.records);
                assert_eq!(told.filter(|(_, told, _)| *told == group).count(), 0);
            }
            world.give_packet(0, &kind.older_query(None, 10));
            world.leave(socket, group);
            let told = world.messages_within(Duration::from_secs(600)).into_iter().flat_map(|(_, m)| m.records);
            assert_eq!(told.filter(|(_, told, _)| *told == group).count(), 0);
        }
    }
}

#[test]
fn igmp_queries_from_beyond_the_link_are_dropped_with_their_reasons() {
    let mut world = world(false);
    world.member(Kind::Igmp, [1, 2]);
    let general = [0x11, 1, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    let of = |group: &[u8]| [&general[..4], group, &general[8..]].concat();
    let alert = V4 { ttl: 1, options: &[0x94, 4, 0, 0], ..V4::new(HOST[0], "224.0.0.1", 2) };
    let mut damaged = igmp_sum(&general);
    damaged[9] ^= 1;
    for (packet, reason) in [
        (V4 { ttl: 2, ..alert }.packet(&igmp_sum(&general)), GroupDrop::HopLimit),
        (V4 { options: &[], ..alert }.packet(&igmp_sum(&general)), GroupDrop::RouterAlert),
        (V4 { options: &[1, 7, 3, 4], ..alert }.packet(&igmp_sum(&general)), GroupDrop::RouterAlert),
        (V4 { options: &[0, 0x94, 4, 0, 0, 0, 0, 0], ..alert }.packet(&igmp_sum(&general)), GroupDrop::RouterAlert),
        (V4 { options: &[], ..alert }.packet(&igmp_sum(&[0x11, 5, 0, 0, 0, 0, 0, 0])), GroupDrop::RouterAlert),
        (alert.packet(&damaged), GroupDrop::Checksum),
        (alert.packet(&igmp_sum(&general[..11])), GroupDrop::Length),
        (alert.packet(&igmp_sum(&[&general[..11], &[1, 10, 9, 9, 9]].concat())), GroupDrop::Address),
        (alert.packet(&igmp_sum(&of(&[10, 1, 0, 9]))), GroupDrop::Address),
        (V4 { to: "239.1.0.1", ..alert }.packet(&igmp_sum(&general)), GroupDrop::Address),
        (V4 { to: "239.1.0.1", ..alert }.packet(&igmp_sum(&[0x16, 0, 0, 0, 239, 1, 0, 2])), GroupDrop::Address),
        (V4 { to: ROUTER[0], ..alert }.packet(&igmp_sum(&[0x16, 0, 0, 0, 10, 1, 0, 1])), GroupDrop::Address),
        (alert.packet(&igmp_sum(&[0x16, 0, 0, 0, 224, 0, 0, 1])), GroupDrop::NotJoined),
        (alert.packet(&igmp_sum(&[0x17, 0, 0, 0, 239, 1, 0, 1])), GroupDrop::Ignored),
        (alert.packet(&igmp_sum(&[0x22, 0, 0, 0, 0, 0, 0, 0])), GroupDrop::Ignored),
        (alert.packet(&igmp_sum(&[0x13, 0, 0, 0, 0, 0, 0, 0])), GroupDrop::Ignored),
    ] {
        let before = world.dropped(reason);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(reason), "{packet:?}");
        assert_eq!(world.dropped(reason), before + 1);
    }
    assert_eq!(world.messages_within(Duration::from_secs(60)), []);
    // To the station itself, from a switch without an address, about a group to all (as Linux' bridges ask), they are queries.
    for (packet, query) in [
        (V4 { to: ROUTER[0], ..alert }, &general[..]),
        (V4 { from: "0.0.0.0", ..alert }, &general),
        (alert, &of(&[239, 1, 0, 1])),
        (V4 { to: "239.1.0.2", ..alert }, &of(&[239, 1, 0, 1])),
    ] {
        assert_eq!(world.give_packet(0, &packet.packet(&igmp_sum(query))), Outcome::Done);
        assert_eq!(world.messages_within(Duration::from_secs(1)).len(), 1);
    }
    let martian = V4 { from: "0.0.0.0", ..V4::new(HOST[0], "239.1.0.1", 17) }.packet(&[0; 8]);
    assert_eq!(world.give_packet(0, &martian), Outcome::dropped(IpDrop::SourceMartian));
}

#[test]
fn mld_messages_from_beyond_the_link_are_dropped_with_their_reasons() {
    let mut world = world(true);
    world.member(Kind::Mld, [1, 2]);
    let group = |group: &str| octets(group.parse().unwrap());
    let query = |about: &str, rest: &[u8]| [&[130, 0, 0, 0, 0, 1, 0, 0], &group(about)[..], rest].concat();
    let rest = [2, 125, 0, 0];
    let general = query("::", &rest);
    let all = "ff02::1";
    let with = |from: &str, to: &str, hops: u8, options: [u8; 6], message: &[u8]| {
        v6(from, to, 0, hops, &[&[58, 0], &options[..], &mld_sum(from, to, message)].concat())
    };
    let alert = [5, 2, 0, 0, 1, 0];
    let mut damaged = with(QUERIER6, all, 1, alert, &general);
    damaged[60] ^= 1;
    for (packet, reason) in [
        (with(QUERIER6, all, 2, alert, &general), GroupDrop::HopLimit),
        (with(HOST6[0], all, 1, alert, &general), GroupDrop::Source),
        (with("::", all, 1, alert, &general), GroupDrop::Source),
        (with(QUERIER6, all, 1, [5, 2, 0, 1, 1, 0], &general), GroupDrop::RouterAlert),
        (v6(QUERIER6, all, 58, 1, &mld_sum(QUERIER6, all, &general)), GroupDrop::RouterAlert),
        (with(QUERIER6, all, 1, alert, &general[..23]), GroupDrop::Length),
        (with(QUERIER6, all, 1, alert, &general[..27]), GroupDrop::Length),
        (with(QUERIER6, all, 1, alert, &query(HOST6[0], &rest)), GroupDrop::Address),
        (with(QUERIER6, "ff05::1", 1, alert, &general), GroupDrop::Address),
        (with(QUERIER6, "ff05::1", 1, alert, &query("ff05::1", &[2, 125, 0, 1])), GroupDrop::Length),
        (with("::", "ff05::1", 1, alert, &Kind::Mld.older(0, 131, 0, Kind::Mld.group(1))), GroupDrop::Source),
        (with(QUERIER6, "ff05::1", 1, alert, &Kind::Mld.older(0, 131, 0, Kind::Mld.group(2))), GroupDrop::Address),
        (with(QUERIER6, OWN6, 1, alert, &Kind::Mld.older(0, 131, 0, OWN6.parse().unwrap())), GroupDrop::Address),
    ] {
        let before = world.dropped(reason);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(reason), "{packet:?}");
        assert_eq!(world.dropped(reason), before + 1);
    }
    assert_eq!(world.give_packet(0, &damaged), Outcome::dropped(IcmpDrop::Checksum));
    let done = with(QUERIER6, "ff02::2", 1, alert, &Kind::Mld.older(0, 132, 0, Kind::Mld.group(1)));
    assert_eq!(world.give_packet(0, &done), Outcome::dropped(IcmpDrop::Ignored), "it is for routers of groups");
    assert_eq!(world.messages_within(Duration::from_secs(60)), []);
    for (to, query) in [(OWN6, &general), (all, &query("ff05::1", &rest)), ("ff05::2", &query("ff05::1", &rest))] {
        assert_eq!(world.give_packet(0, &with(QUERIER6, to, 1, alert, query)), Outcome::Done);
        assert_eq!(world.messages_within(Duration::from_secs(1)).len(), 1);
    }
}

#[test]
fn response_times_of_queries_are_read_by_the_version_of_the_query() {
    // (query, the longest time it leaves for answers)
    let floating = |kind: Kind, code| (kind, kind.query(None, code, 2, 125, &[]));
    let plain = |kind: Kind, code| (kind, kind.older_query(None, code));
    let ms = Duration::from_millis;
    for ((kind, query), longest) in [
        (floating(Kind::Igmp, 127), ms(12_700)),
        (floating(Kind::Igmp, 0x80), ms(12_800)),
        (floating(Kind::Igmp, 255), ms(3_174_400)),
        (plain(Kind::Igmp, 255), ms(25_500)),
        (floating(Kind::Mld, 32_767), ms(32_767)),
        (floating(Kind::Mld, 0x8000), ms(32_768)),
        (floating(Kind::Mld, 0xffff), ms(8_387_584)),
        (plain(Kind::Mld, 0xffff), ms(65_535)),
    ] {
        let mut latest = Duration::ZERO;
        for seed in 0..60 {
            let mut world = World::after_group_reports(stack(seed, false, &[ROUTER[0], OWN6]));
            world.member(kind, [1]);
            assert_eq!(world.give_packet(0, &query), Outcome::Done);
            let messages = world.messages_within(longest);
            assert!(!messages.is_empty());
            latest = messages.iter().map(|(time, _)| *time).max().unwrap().max(latest);
        }
        assert!(latest > longest * 8 / 10, "{kind:?}: {latest:?} of {longest:?}");
    }
}

#[test]
fn a_flood_of_group_queries_is_answered_at_most_ten_times_a_second() {
    for kind in BOTH {
        for queries in [
            vec![kind.query(None, 0, 2, 125, &[])],
            vec![kind.query(Some(kind.group(1)), 0, 2, 125, &[])],
            vec![kind.older_query(None, if kind == Kind::Igmp { 1 } else { 0 })],
            vec![kind.query(None, 0, 2, 125, &[]), kind.older_query(None, if kind == Kind::Igmp { 1 } else { 0 })],
        ] {
            let mut world = world(false);
            world.member(kind, [1]);
            let begin = world.now;
            let mut answers = 0;
            for _ in 0..20_000 {
                for query in &queries {
                    assert_eq!(world.give_packet(0, query), Outcome::Done);
                }
                world.pass(MS / 10);
                let messages = world.messages();
                let about = |message: &Message| message.records.iter().any(|record| record.1 == kind.group(1));
                answers += messages.into_iter().filter(about).count();
            }
            assert_eq!(world.now.since(begin), Duration::from_secs(2));
            assert!((5..=21).contains(&answers), "{kind:?}: {answers}");
        }
    }
}

#[test]
fn queries_with_thousands_of_sources_or_false_lengths_are_dropped() {
    for kind in BOTH {
        let mut world = world(false);
        world.member(kind, [1]);
        let group = kind.group(1);
        let message = |count: u16, sources: usize| {
            let mut message = if kind == Kind::Igmp { vec![0x11, 0, 0, 0] } else { vec![130, 0, 0, 0, 0, 0, 0, 0] };
            message.extend(octets(group));
            message.extend([2, 125]);
            message.extend(count.to_be_bytes());
            message.extend(vec![1; sources * octets(group).len()]);
            kind.packet(&group.to_string(), &message)
        };
        let most = if kind == Kind::Igmp { 365 } else { 89 };
        assert_eq!(world.give_packet(0, &message(u16::try_from(most).unwrap(), most)), Outcome::Done);
        let messages = world.messages_within(Duration::from_secs(1));
        assert_eq!(messages[0].1.records, plain(&[(2, group)]), "of many it is for all");
        for (count, sources) in [(u16::MAX, most), (2, 1), (u16::try_from(most).unwrap() + 1, most), (1, 0)] {
            assert_eq!(world.give_packet(0, &message(count, sources)), Outcome::dropped(GroupDrop::Length));
        }
        assert_eq!(world.messages_within(Duration::from_secs(60)), []);
    }
}

proptest! {
    #[test]
    fn random_group_messages_in_any_order_cause_no_panic(
        steps in proptest::collection::vec(
            (any::<bool>(), 0..8_usize, proptest::collection::vec(any::<u8>(), 0..60), 0..4_u16, 0..20_000_u64),
            1..80,
        ),
    ) {
        let mut world = world(true);
        let sockets = BOTH.map(|kind| world.member(kind, [1]));
        for (mld, step, bytes, n, wait) in steps {
            let kind = BOTH[usize::from(mld)];
            let (group, socket) = (kind.group(n), sockets[usize::from(mld)]);
            let code = bytes.first().copied().map_or(0, u16::from);
            let packet = match step {
                0 => Some(kind.query(None, code, bytes.get(1).copied().unwrap_or(0), 1, &[])),
                1 => Some(kind.query(Some(group), code, 7, 255, &[group][..bytes.len() % 2])),
                2 => Some(kind.older_query(None, code)),
                3 => Some(kind.older_report(group)),
                4 => Some(kind.packet(kind.all_nodes(), &[&[if mld { 130 } else { 0x11 }, 0, 0, 0], &bytes[..]].concat())),
                5 => Some(kind.packet(kind.all_nodes(), &[&[0; 4], &bytes[..]].concat())),
                6 => { let _ = world.stack.udp_join(world.now, socket, group, ON); None }
                _ => { let _ = world.stack.udp_leave(world.now, socket, group, ON); None }
            };
            if let Some(packet) = packet {
                world.give_packet(0, &packet);
            }
            let sent = world.messages_within(Duration::from_millis(wait));
            prop_assert!(sent.len() <= 4_000);
        }
        for socket in sockets {
            prop_assert_eq!(world.stack.udp_close(socket), Ok(()));
        }
        world.messages_within(Duration::from_secs(9_000));
        world.sent(1);
        prop_assert_eq!(world.stack.poll_timeout(), None);
        let is_own = |group: IpAddr| group.to_string().starts_with("ff02") || group.to_string() == "ff05::2";
        prop_assert!(world.stack.groups(ON).all(is_own));
    }
}

#[test]
fn groups_of_a_device_are_bounded_and_a_leave_frees_room() {
    use siga_stack::udp::UdpError;
    let kind = Kind::Igmp;
    let mut world = world(false);
    let mut joined = Vec::new();
    for port in 1.. {
        let socket = world.stack.udp_bind(at(kind.any(), port)).unwrap();
        let count = (0..100).take_while(|n| {
            world
                .stack
                .udp_join(world.now, socket, kind.group(port * 100 + n), ON)
                .inspect_err(|error| assert_eq!(*error, UdpError::TooManyGroups))
                .is_ok()
        });
        let count = count.count();
        joined.push((socket, count));
        if count == 0 {
            break;
        }
    }
    assert_eq!(joined.iter().map(|(_, count)| count).sum::<usize>(), GROUPS_DEVICE_MAX);
    let (last, _) = joined[joined.len() - 1];
    let refused = world.stack.udp_leave(world.now, last, kind.group(1), ON);
    assert_eq!(refused, Err(UdpError::NotJoined), "what is refused leaves nothing");
    world.leave(joined[0].0, kind.group(100));
    world.join(last, kind.group(1));
    assert_eq!(world.stack.groups(ON).filter(IpAddr::is_ipv4).count(), GROUPS_DEVICE_MAX);
    for n in 0..1000 {
        world.leave(last, kind.group(n + 1));
        world.join(last, kind.group(n + 2));
        assert_eq!(world.stack.memory().held("groups"), GROUPS_DEVICE_MAX);
    }
    let told: usize = world.messages_within(Duration::ZERO).iter().map(|(_, message)| message.records.len()).sum();
    assert_eq!(told, GROUPS_DEVICE_MAX);
}
