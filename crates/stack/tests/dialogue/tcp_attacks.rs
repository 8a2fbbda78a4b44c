//! Known attacks on TCP, by the name that they became known by: what the stack does, what it counts, what it holds.

use crate::attack::*;
use crate::world::*;
use siga_stack::drops::{IpDrop, TcpDrop};
use siga_stack::limits::{TCP_CHALLENGE_MS_MIN, TCP_GAPS_MAX, TCP_SEGMENT_BYTES_MIN, TCP_SENT_MAX};
use siga_stack::sockets::{TcpError, TcpOptions};
use siga_stack::tcp::{Config, StateName};
use siga_stack::time::Duration;
use siga_stack::wire::tcp::{Block, Header, HeaderOptions, SeqNumber, Timestamps};

/// SACK Panic, CVE-2019-11477, and its relatives -11478 and -11479: a tiny MSS, a wide window, and SACK of every other crumb.
#[test]
fn sack_panic_a_tiny_mss_makes_neither_tiny_segments_nor_long_lists() {
    for mss in [0, 1, 8, 48] {
        let mut victim = Victim::with(TcpOptions::default(), HeaderOptions { mss: Some(mss), ..usual() });
        let data = vec![1; 1 << 20];
        for round in 0..60 {
            victim.write(&data);
            for (_, payload) in victim.answers() {
                assert!(payload.is_empty() || payload.len() >= usize::from(TCP_SEGMENT_BYTES_MIN) - 12);
            }
            let info = victim.world.stack.tcp_info(victim.id).unwrap().unwrap();
            assert!(info.sent_segments <= 2 * usize::from(TCP_SENT_MAX), "{info:?}");
            let una = victim.next.ack.unwrap();
            let mut sack = Header { window: u16::MAX, ..victim.next };
            for block in 0..4 {
                let at = una + 49 + round * 97 + block * 500;
                sack.options.sack.push(Block { start: at, end: at + 50 });
            }
            victim.give(&sack, &[]);
            pass(&mut victim.world, Duration::from_millis(50));
        }
        assert!(victim.buffers() < 4 << 20, "{}", victim.world.stack.memory());
        victim.bounded();
    }
}

/// SegmentSmack, CVE-2018-5390: bytes in no order, each ahead of a gap of its own.
#[test]
fn segment_smack_a_flood_of_gaps_costs_a_bounded_list() {
    let mut victim = Victim::new();
    for n in 0..20_000 {
        victim.give(&Header { seq: victim.next.seq + 2 + 2 * (n % 20_000), ..victim.next }, &[7]);
        victim.answers();
    }
    let info = victim.world.stack.tcp_info(victim.id).unwrap().unwrap();
    assert_eq!((info.gaps, victim.world.dropped(TcpDrop::GapLimit)), (TCP_GAPS_MAX, 20_000 - TCP_GAPS_MAX as u64));
    assert!(victim.buffers() < 64 << 10, "{}", victim.world.stack.memory());
    victim.lives();
}

/// CVE-2016-5696: through a limit that all connections share, an attacker detects connections of others.
#[test]
fn challenge_acks_of_one_connection_reveal_nothing_about_another() {
    let mut victim = Victim::new();
    let (other, header) = Victim::open(&mut victim.world, victim.listener, 2_000, usual());
    let blind = |header: &Header| Header { seq: header.seq + 100, flags: flags("R"), ..*header };
    for _ in 0..500 {
        assert_eq!(victim.give(&blind(&header), &[]), Outcome::dropped(TcpDrop::ResetBlind));
    }
    assert_eq!(victim.answers().len(), 1, "one challenge in {TCP_CHALLENGE_MS_MIN} ms");
    assert_eq!(victim.give(&blind(&victim.next), &[]), Outcome::dropped(TcpDrop::ResetBlind));
    assert_eq!(victim.answers().len(), 1, "and one for the other connection all the same");
    assert_eq!(victim.world.stack.tcp_state(other), Ok(StateName::Established));
    victim.lives();
}

/// CVE-2004-0230, RFC 5961: a reset, a SYN or data that only has to fall into the window.
#[test]
fn slipping_in_the_window_blind_resets_syns_and_data_have_no_effect() {
    let mut victim = Victim::new();
    for distance in [1, 100, 30_000, 60_000] {
        let seq = victim.next.seq + distance;
        let reset = Header { seq, flags: flags("R"), ..victim.next };
        assert_eq!(victim.give(&reset, &[]), Outcome::dropped(TcpDrop::ResetBlind), "{distance}");
        let syn = Header { seq, flags: flags("S"), ack: None, ..victim.next };
        assert_eq!(victim.give(&syn, &[]), Outcome::dropped(TcpDrop::SynInWindow), "{distance}");
    }
    let ack = victim.next.ack.unwrap();
    for (wrong, reason) in [
        (ack + 1, TcpDrop::AckUnsent),
        (ack + 1_000_000_000, TcpDrop::AckUnsent),
        (ack - 1_000_000_000, TcpDrop::AckOld),
    ] {
        let data = Header { ack: Some(wrong), ..victim.next };
        assert_eq!(victim.give(&data, b"injected"), Outcome::dropped(reason));
    }
    assert_eq!(victim.give(&Header { ack: None, ..victim.next }, b"injected"), Outcome::dropped(TcpDrop::NoAck));
    assert!(victim.answers().len() <= 1, "challenges are few");
    assert_eq!(victim.received(), 0);
    victim.lives();
}

/// LAND, CVE-1999-0016: a SYN from the address and port it goes to.
#[test]
fn land_a_segment_from_ourselves_is_a_martian() {
    let mut world = World::host();
    world.stack.tcp_listen("0.0.0.0:80".parse().unwrap(), 8, &TcpOptions::default()).unwrap();
    for own in [ROUTER[0], ROUTER[1]] {
        let land = packet(own, ROUTER[0], &syn(80, usual()), &[]);
        assert_eq!(world.give_packet(0, &land), Outcome::dropped(IpDrop::SourceMartian));
    }
    let land = packet(ROUTER6[0], ROUTER6[0], &syn(80, usual()), &[]);
    assert_eq!(world.give_packet(0, &land), Outcome::dropped(IpDrop::SourceMartian));
    world.assert_silent();
}

/// Sockstress, CVE-2008-4609, and Netkill: a peer that asks for much, closes its window, and lets the connection be held for ever.
#[test]
fn sockstress_a_closed_window_does_not_keep_a_closed_socket() {
    let mut victim = Victim::new();
    assert!(victim.write(&[1; 60_000]) > 0);
    victim.answers();
    assert_eq!(victim.give(&Header { window: 0, ..victim.next }, &[]), Outcome::Done);
    let now = victim.world.now;
    victim.world.stack.tcp_close(now, victim.id).unwrap();
    let mut probes = 0;
    for _ in 0..2_000 {
        pass(&mut victim.world, Duration::from_secs(1));
        for _ in victim.answers().iter().filter(|(answer, _)| !answer.flags.rst) {
            probes += 1;
            victim.world.give_packet(0, &packet(HOST[0], ROUTER[0], &Header { window: 0, ..victim.next }, &[]));
        }
    }
    assert!((1..40).contains(&probes), "{probes} segments");
    let memory = victim.world.stack.memory();
    assert_eq!((memory.held("TCP connections"), memory.held("bytes in TCP buffers")), (0, 0), "{memory}");
}

/// A window that shrinks below what was sent, to nothing and back (RFC 9293 MUST-34).
#[test]
fn a_send_window_that_shrinks_costs_probes_and_no_panic() {
    let mut victim = Victim::new();
    victim.write(&[1; 30_000]);
    let sent: usize = victim.answers().iter().map(|(_, payload)| payload.len()).sum();
    assert!(sent > 5_000);
    for window in [1, 0, 2, 0, u16::MAX, 0] {
        assert_eq!(victim.give(&Header { window, ..victim.next }, &[]), Outcome::Done);
        pass(&mut victim.world, Duration::from_secs(3));
        assert!(victim.answers().len() <= 60);
    }
    victim.give(&Header { ack: victim.next.ack.map(|ack| ack + 3_000), ..victim.next }, &[]);
    victim.next.ack = victim.next.ack.map(|ack| ack + 3_000);
    victim.lives();
}

/// Optimistic and divided acknowledgements (Savage 1999, CVE-2005-0184's kind): a receiver that wants more than its share.
#[test]
fn optimistic_and_divided_acknowledgements_do_not_open_the_congestion_window_faster() {
    let mut victim = Victim::new();
    victim.write(&[1; 60_000]);
    let before = victim.world.stack.tcp_info(victim.id).unwrap().unwrap().congestion_window;
    let sent: usize = victim.answers().iter().map(|(_, payload)| payload.len()).sum();
    let una = victim.next.ack.unwrap();
    let optimistic = Header { ack: Some(una + 100_000), ..victim.next };
    assert_eq!(victim.give(&optimistic, &[]), Outcome::dropped(TcpDrop::AckUnsent));
    let now = |victim: &Victim| victim.world.stack.tcp_info(victim.id).unwrap().unwrap().congestion_window;
    assert_eq!(now(&victim), before);
    // RFC 3465: growth by bytes acknowledged, into however many acknowledgements they are cut.
    for part in 1..=1_000 {
        victim.give(&Header { ack: Some(una + part), ..victim.next }, &[]);
    }
    assert!(now(&victim) <= before + 1_000, "{} from {before}", now(&victim));
    // Nor do duplicates make it larger than what is outstanding allows.
    let at = Header { ack: Some(una + 1_000), ..victim.next };
    for _ in 0..10_000 {
        victim.give(&at, &[]);
        victim.answers();
    }
    assert!(now(&victim) as usize <= before as usize + sent, "{} from {before}", now(&victim));
    victim.bounded();
}

/// An acknowledgement storm: two ends put out of step answer each other for as long as both answer everything.
#[test]
fn ack_storm_acknowledgements_out_of_window_are_answered_at_a_limited_rate() {
    let mut victim = Victim::new();
    let far = Header { seq: victim.next.seq - 70_000, ..victim.next };
    let mut answered = 0;
    for _ in 0..1_000 {
        assert_eq!(victim.give(&far, &[]), Outcome::dropped(TcpDrop::OutOfWindow));
        answered += victim.answers().len();
        pass(&mut victim.world, Duration::from_millis(1));
    }
    assert!((1..=3).contains(&answered), "{answered} answers in a second");
    victim.lives();
}

/// Reflected amplification: what is not a connection's is answered by less than was sent, or not at all.
#[test]
fn reflection_a_segment_without_a_connection_gets_at_most_one_short_answer() {
    let mut victim = Victim::new();
    for (letters, ack, payload) in [
        ("", true, 500),
        ("P", true, 500),
        ("", false, 500),
        ("F", true, 0),
        ("SF", false, 0),
        ("FPU", false, 0),
        ("S", true, 0),
        ("R", true, 0),
        ("SR", true, 0),
    ] {
        for port in [80, 81] {
            let ack = ack.then_some(SeqNumber(77));
            let header =
                Header { source_port: 3_000, destination_port: port, ack, flags: flags(letters), ..victim.next };
            let request = packet(HOST[0], ROUTER[0], &header, &vec![1; payload]);
            victim.world.give_packet(0, &request);
            let frames = victim.world.sent(0);
            assert!(frames.len() <= 1, "{letters} to {port}: {frames:?}");
            assert!(frames.iter().map(Vec::len).sum::<usize>() <= request.len() + 14 + 24, "{letters} to {port}");
        }
    }
    // A SYN that nobody follows up is answered six times in all, by no more bytes each than 44.
    let request = packet(HOST[0], ROUTER[0], &syn(3_001, HeaderOptions::default()), &[]);
    victim.world.give_packet(0, &request);
    let mut frames = victim.world.sent(0);
    for _ in 0..300 {
        pass(&mut victim.world, Duration::from_secs(1));
        frames.extend(victim.world.sent(0));
    }
    frames.retain(|frame| frame[23] == 6 && frame[36..38] == 3_001_u16.to_be_bytes());
    assert_eq!(frames.len(), 6);
    assert!(frames.iter().all(|frame| frame.len() <= 14 + 44), "{frames:?}");
}

/// Half-open connections, and open ones that say nothing more (Naptha, CVE-2000-1039): bounded, and gone in the end.
#[test]
fn half_open_and_silent_connections_end_by_timers() {
    let keepalive = siga_stack::tcp::Keepalive::default();
    let config = Config { keepalive: Some(keepalive), ..Config::LINUX };
    let mut victim = Victim::with(TcpOptions { config, ..TcpOptions::default() }, usual());
    for port in 2_000..2_100 {
        victim.world.give_packet(0, &packet(HOST[0], ROUTER[0], &syn(port, usual()), &[]));
        victim.answers();
    }
    assert_eq!(victim.world.stack.memory().held("TCP connections"), 1 + 8, "the backlog");
    // No application accepts these connections, and the stack admits none beyond the backlog.
    for port in 4_000..4_100 {
        let header = syn(port, usual());
        victim.world.give_packet(0, &packet(HOST[0], ROUTER[0], &header, &[]));
        for (answer, _) in victim.answers() {
            let ack = Header { seq: header.seq + 1, ack: Some(answer.seq + 1), flags: flags(""), ..header };
            victim.give(&Header { options: HeaderOptions::default(), ..ack }, &[]);
        }
    }
    assert_eq!(victim.world.stack.tcp_acceptable(victim.listener), Ok(8));
    assert!(victim.world.stack.memory().held("TCP connections") <= 1 + 8 + 8);
    while let Some((id, _)) = victim.world.stack.tcp_accept(victim.listener).unwrap() {
        let now = victim.world.now;
        victim.world.stack.tcp_close(now, id).unwrap();
    }
    for _ in 0..100 {
        pass(&mut victim.world, Duration::from_secs(120));
        victim.world.sent(0);
    }
    let memory = victim.world.stack.memory();
    assert_eq!(memory.held("TCP connections"), 1, "the accepted one, of which its application is told");
    assert!(matches!(victim.world.stack.tcp_receive(victim.world.now, victim.id, &mut [0]), Err(TcpError::Failed(_))));
}

/// RFC 1337: a reset in TIME-WAIT must not end it before its time.
#[test]
fn time_wait_is_not_assassinated() {
    let mut victim = Victim::new();
    let now = victim.world.now;
    victim.world.stack.tcp_shutdown(now, victim.id).unwrap();
    let fin = victim.answers().remove(0).0;
    assert!(fin.flags.fin);
    victim.next.ack = Some(fin.seq + 1);
    victim.give(&Header { flags: flags("F"), ..victim.next }, &[]);
    let last = victim.answers().remove(0).0;
    assert_eq!((last.seq, last.ack), (fin.seq + 1, Some(victim.next.seq + 1)));
    assert!(last.window > 0, "a peer would probe a closed one");
    assert_eq!(victim.state(), StateName::TimeWait);
    for distance in [0, 1, 2, 100] {
        let reset = Header { seq: victim.next.seq + distance, flags: flags("R"), ..victim.next };
        assert_eq!(victim.give(&reset, &[]), Outcome::dropped(TcpDrop::ResetInTimeWait));
    }
    assert_eq!(victim.world.stack.memory().held("TCP connections in TIME-WAIT"), 1);
    pass(&mut victim.world, Duration::from_secs(61));
    assert_eq!(victim.world.stack.memory().held("TCP connections in TIME-WAIT"), 0);
}

/// RFC 5961 section 4.2: without a listener, a new SYN cannot replace a connection in TIME-WAIT. It gets a challenge ACK like any
/// other SYN, and no reset, which the peer of the old connection might take for its end.
#[test]
fn a_syn_in_time_wait_without_a_listener_gets_limited_challenge_acks() {
    let mut victim = Victim::new();
    let (now, next) = (victim.world.now, victim.next);
    victim.world.stack.tcp_unlisten(now, victim.listener).unwrap();
    victim.world.stack.tcp_shutdown(now, victim.id).unwrap();
    let fin = victim.answers().remove(0).0;
    victim.give(&Header { flags: flags("F"), ack: Some(fin.seq + 1), ..next }, &[]);
    victim.answers();
    assert_eq!(victim.state(), StateName::TimeWait);
    pass(&mut victim.world, Duration::from_secs(10));
    victim.answers();
    let newer = Header { seq: next.seq + 1_000, ..syn(1_000, usual()) };
    assert_eq!(victim.give(&newer, &[]), Outcome::dropped(TcpDrop::SynInWindow));
    let answers = victim.answers();
    let [(challenge, _)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((challenge.flags, challenge.seq, challenge.ack), (flags(""), fin.seq + 1, Some(next.seq + 1)));
    assert_eq!(victim.give(&newer, &[]), Outcome::dropped(TcpDrop::OutOfWindow), "the limit");
    assert_eq!(victim.answers(), []);
    assert_eq!(victim.world.stack.memory().held("TCP connections in TIME-WAIT"), 1);
}

/// A socket that connects to its own address reaches itself. The connection opens, does not run for ever, and does not
/// stall the stack.
#[test]
fn a_connection_of_a_socket_to_itself_causes_bounded_work() {
    let mut world = World::host();
    let own = format!("{}:7777", ROUTER[0]).parse().unwrap();
    let id = world.stack.tcp_connect(world.now, own, own, &TcpOptions::default()).unwrap();
    for _ in 0..50 {
        world.pass(Duration::from_millis(100));
        assert_eq!(answers(&mut world), []);
        world.stack.check();
    }
    assert_eq!(world.stack.tcp_state(id), Ok(StateName::Established));
    assert_eq!(world.stack.tcp_send(world.now, id, b"echo"), Ok(4));
    world.pass(Duration::from_millis(100));
    let mut into = [0; 9];
    assert_eq!(world.stack.tcp_receive(world.now, id, &mut into), Ok(Some(4)));
    world.stack.tcp_close(world.now, id).unwrap();
    world.pass(Duration::from_secs(600));
    assert_eq!(world.stack.memory().held("TCP connections"), 0);
}

/// ECN: marks and echoes that were never agreed mean nothing, and agreed ones cost one reduction a window.
#[test]
fn ecn_echoes_slow_a_sender_no_more_than_losses() {
    let ece = |header: &Header| Header { flags: flags("E"), ..*header };
    let mut victim = Victim::new();
    victim.write(&[1; 60_000]);
    victim.answers();
    let window = |victim: &Victim| victim.world.stack.tcp_info(victim.id).unwrap().unwrap().congestion_window;
    let before = window(&victim);
    for _ in 0..100 {
        victim.give(&ece(&victim.next), &[]);
    }
    assert_eq!(window(&victim), before, "not agreed");

    let mut world = World::host();
    let listener = world.stack.tcp_listen("0.0.0.0:80".parse().unwrap(), 8, &TcpOptions::default()).unwrap();
    let first = Header { flags: flags("SEC"), ..syn(1_000, usual()) };
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &first, &[]));
    let answer = answers(&mut world).remove(0).0;
    assert!(answer.flags.ece, "agreed");
    let next = Header { seq: first.seq + 1, ack: Some(answer.seq + 1), flags: flags(""), ..first };
    let next = Header { options: HeaderOptions::default(), ..next };
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &next, &[]));
    let (id, _) = world.stack.tcp_accept(listener).unwrap().unwrap();
    let mut victim = Victim { world, listener, id, next };
    victim.write(&[1; 60_000]);
    victim.answers();
    let before = window(&victim);
    for _ in 0..100 {
        victim.give(&ece(&victim.next), &[]);
    }
    assert!(window(&victim) >= before / 2, "{} from {before}", window(&victim));
}

/// Timestamps from the far future or past (RFC 7323 section 5): nobody outside the window moves TS.Recent, and none is a panic.
#[test]
fn spoofed_timestamps_do_not_lock_the_peer_out() {
    let mut start = usual();
    start.timestamps = Some(Timestamps { value: u32::MAX - 5, echo: 0 });
    let mut victim = Victim::with(TcpOptions::default(), start);
    let stamped = |victim: &Victim, value: u32| {
        let timestamps = victim.next.options.timestamps.map(|stamps| Timestamps { value, ..stamps });
        Header { options: HeaderOptions { timestamps, ..victim.next.options }, ..victim.next }
    };
    // The clock goes past its end.
    assert_eq!(victim.give(&stamped(&victim, 3), b"a"), Outcome::Done);
    assert_eq!(victim.received(), 1);
    victim.answers();
    let out = Header { seq: victim.next.seq + 1_000_000, ..stamped(&victim, 3 + 0x7fff_0000) };
    assert_eq!(victim.give(&out, b"x"), Outcome::dropped(TcpDrop::OutOfWindow));
    assert_eq!(victim.give(&stamped(&victim, u32::MAX - 9), b"x"), Outcome::dropped(TcpDrop::TimestampOld));
    let bare = Header { options: HeaderOptions::default(), ..victim.next };
    assert_eq!(victim.give(&bare, b"x"), Outcome::dropped(TcpDrop::TimestampMissing));
    victim.next = stamped(&victim, 4);
    victim.lives();
}
