//! Accurate ECN (RFC 9768): the handshake, both counters, the option, and paths that change ECN fields. The counters begin with 5, so a
//! segment without news has the flags `EA` (101).

use super::pair::{CLIENT, Fault, Pair};
use super::*;
use crate::wire::tcp::{AccurateEcnOption, IpEcn};

fn accurate() -> Config {
    let mut config = plain();
    config.set_named("tcp_ecn", "3").unwrap();
    config
}

fn client(config: Config) -> Dialogue {
    let now = Instant::from_ns(1_000_000_000);
    Dialogue::begin(Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(1_000)).unwrap())
}

fn server(config: Config, syn: &str, arrived_with: IpEcn) -> Dialogue {
    let (now, (syn, _)) = (Instant::from_ns(1_000_000_000), header(syn));
    Dialogue::begin(Connection::accept_with(now, config, &syn, arrived_with, initial(1_000)).unwrap())
}

/// An open connection that this side has opened.
fn opened() -> Dialogue {
    let mut dialogue = client(accurate());
    dialogue.sends(&["SECA 1000:1000"]);
    dialogue.after(100);
    dialogue.gets("SC 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.sends(&["C 1001:1001 ack 5001"]);
    dialogue
}

impl Dialogue {
    fn delivered_marked(&self) -> u32 {
        self.connection.linux_info(self.now, 40).delivered_ce
    }

    fn congestion_window(&self) -> u32 {
        self.connection.info().unwrap().congestion_window
    }

    fn next_is_capable(&mut self) -> bool {
        self.write(1_000);
        self.connection.poll_transmit(self.now, 0).unwrap().ecn_capable
    }
}

// RFC 9768 section 3.1.1.
#[test]
fn a_client_offers_accurate_ecn_and_follows_the_answer_of_the_server() {
    for (answer, first_ack, is_capable, data) in [
        ("SC", "C", true, "EA"),
        // The server claims that the SYN arrived with an ECN field that it never had.
        ("SEC", "C", false, "EA"),
        ("SA", "C", false, "EA"),
        ("SCA", "C", false, "EA"),
        // Reserved: accurate ECN, and the field has arrived unchanged.
        ("SEA", "C", true, "EA"),
        ("SE", "-", true, "-"),
        ("S", "-", false, "-"),
        // A server that echoes flags does not know ECN.
        ("SECA", "-", false, "-"),
    ] {
        let mut dialogue = client(accurate());
        dialogue.sends(&["SECA 1000:1000"]);
        dialogue.gets(&format!("{answer} 5000:5000 ack 1001 mss 1000 sackok"));
        dialogue.sends(&[&format!("{first_ack} 1001:1001 ack 5001")]);
        dialogue.write(100);
        let segment = dialogue.connection.poll_transmit(dialogue.now, 0).unwrap();
        assert_eq!(segment.ecn_capable, is_capable, "{answer}");
        assert_eq!(text(&segment.header, 100), format!("{data} 1001:1101 ack 5001"), "{answer}");
        dialogue.ends();
    }
    // The ECN field of the SYN-ACK is in the acknowledgement, and a mark is counted.
    let mut dialogue = client(accurate());
    dialogue.sends(&["SECA 1000:1000"]);
    assert_eq!(dialogue.take("SC 5000:5000 ack 1001 mss 1000 sackok", true), Ok(()));
    dialogue.sends(&["CA 1001:1001 ack 5001"]);
    dialogue.write(100);
    dialogue.sends(&["CA 1001:1101 ack 5001"]);
    dialogue.ends();
}

// RFC 9768 sections 3.1.1 and 3.1.3.
#[test]
fn a_server_reports_the_ecn_field_of_the_syn_if_both_know_accurate_ecn() {
    for (syn, arrived_with, answer) in [
        ("SECA", IpEcn::NotCapable, "SC"),
        ("SECA", IpEcn::Capable1, "SEC"),
        ("SECA", IpEcn::Capable0, "SA"),
        ("SECA", IpEcn::Congestion, "SCA"),
        ("SEC", IpEcn::NotCapable, "SE"),
        ("S", IpEcn::NotCapable, "S"),
        // Combinations that have no meaning yet.
        ("SA", IpEcn::NotCapable, "SC"),
        ("SE", IpEcn::NotCapable, "SC"),
    ] {
        let mut dialogue = server(accurate(), &format!("{syn} 5000:5000 mss 1000 sackok"), arrived_with);
        dialogue.sends(&[&format!("{answer} 1000:1000 ack 5001")]);
        dialogue.ends();
    }
    // `tcp_ecn`: which ECN a listener accepts and which a client offers.
    for (mode, accepts, offers) in [
        ("0", "S", "S"),
        ("1", "SE", "SEC"),
        ("2", "SE", "S"),
        ("3", "SC", "SECA"),
        ("4", "SC", "SEC"),
        ("5", "SC", "S"),
    ] {
        let mut config = plain();
        config.set_named("tcp_ecn", mode).unwrap();
        assert_eq!(config.named("tcp_ecn").as_deref(), Ok(mode));
        let mut listening = server(config, "SECA 5000:5000 mss 1000", IpEcn::NotCapable);
        listening.sends(&[&format!("{accepts} 1000:1000 ack 5001")]);
        listening.ends();
        let mut opening = client(config);
        opening.sends(&[&format!("{offers} 1000:1000")]);
        opening.ends();
    }
}

// RFC 9768 sections 3.1.4.1 and 3.1.4.2.
#[test]
fn handshakes_that_do_not_get_through_are_repeated_without_accurate_ecn() {
    let mut dialogue = client(accurate());
    dialogue.sends(&["SECA 1000:1000"]);
    for syn in ["SECA 1000:1000", "S 1000:1000"] {
        dialogue.timeout();
        dialogue.sends(&[syn]);
    }
    // A late answer to the first SYN selects accurate ECN, but a host that has sent a SYN without ECN sends no ECT.
    dialogue.gets("SC 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.sends(&["C 1001:1001 ack 5001"]);
    assert!(!dialogue.next_is_capable());
    dialogue.ends();
    let mut dialogue = server(accurate(), "SECA 5000:5000 mss 1000 sackok", IpEcn::NotCapable);
    let option = |dialogue: &Dialogue| dialogue.last[0].options.accurate_ecn.is_some();
    dialogue.sends(&["SC 1000:1000 ack 5001"]);
    assert!(option(&dialogue));
    for answer in ["SC 1000:1000 ack 5001", "S 1000:1000 ack 5001"] {
        dialogue.timeout();
        dialogue.sends(&[answer]);
        assert!(!option(&dialogue));
    }
    // The server stays in the mode that it has begun with.
    dialogue.gets("C 5001:5001 ack 1001");
    dialogue.write(100);
    dialogue.sends(&["EA 1001:1101 ack 5001"]);
    dialogue.ends();
}

// RFC 9768 sections 3.2.2.3 and 3.2.2.4.
#[test]
fn a_path_that_changes_ecn_fields_or_clears_the_flags_gets_no_ecn_capable_packets() {
    for (first, is_capable) in [("C", true), ("-", false), ("EC", false), ("A", false), ("CA", false), ("EA", true)] {
        let mut dialogue = server(accurate(), "SECA 5000:5000 mss 1000 sackok", IpEcn::NotCapable);
        dialogue.sends(&["SC 1000:1000 ack 5001"]);
        dialogue.gets(&format!("{first} 5001:5001 ack 1001"));
        assert_eq!((dialogue.next_is_capable(), dialogue.delivered_marked()), (is_capable, 0), "{first}");
        dialogue.ends();
    }
    let mut dialogue = opened();
    assert!(dialogue.next_is_capable());
    dialogue.gets("- 5001:5001 ack 2001");
    assert!(!dialogue.next_is_capable());
    dialogue.ends();
}

// RFC 9768 section 3.2.2.
#[test]
fn each_marked_packet_is_counted_and_a_marked_packet_with_payload_is_acknowledged_at_once() {
    let mut dialogue = opened();
    // The receiver acknowledges at once at the beginning, so pass its quick acknowledgements.
    let mut next = 5_001;
    let mut arrive = |dialogue: &mut Dialogue, marked| {
        let segment = format!("EA {next}:{} ack 1001", next + 100);
        next += 100;
        assert_eq!(dialogue.take(&segment, marked), Ok(()));
        format!("1001:1001 ack {next}")
    };
    for _ in 0..16 {
        let rest = arrive(&mut dialogue, false);
        dialogue.sends(&[&format!("EA {rest}")]);
    }
    arrive(&mut dialogue, false);
    dialogue.sends(&[]);
    for flags in ["CA", "ECA", "-", "E", "C", "EC", "A", "EA"] {
        let rest = arrive(&mut dialogue, true);
        dialogue.sends(&[&format!("{flags} {rest}")]);
    }
    // A marked acknowledgement is counted, and not acknowledged.
    dialogue.write(10);
    dialogue.connection.poll_transmit(dialogue.now, 0).unwrap();
    assert_eq!(dialogue.take(&format!("EA {next}:{next} ack 1011"), true), Ok(()));
    dialogue.sends(&[]);
    dialogue.write(10);
    dialogue.sends(&[&format!("CA 1011:1021 ack {next}")]);
    dialogue.ends();
}

#[test]
fn a_sender_reduces_its_window_once_in_a_round_trip_and_counts_every_mark() {
    let mut dialogue = opened();
    dialogue.write(20_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.after(100);
    dialogue.gets("EA 5001:5001 ack 3001");
    let before = dialogue.congestion_window();
    assert_eq!((dialogue.delivered_marked(), before), (0, 12_000));
    // Three of four packets were marked: 5 + 3 is 0 in three bits.
    dialogue.gets("- 5001:5001 ack 7001");
    let reduced = dialogue.congestion_window();
    assert!(reduced < before && dialogue.delivered_marked() == 3, "{reduced} {}", dialogue.delivered_marked());
    dialogue.gets("E 5001:5001 ack 8001");
    assert!(dialogue.congestion_window() < before, "a second mark in a round trip does not reduce the window again");
    assert!(dialogue.congestion_window() >= reduced && dialogue.delivered_marked() == 4);
    // Old acknowledgements have an old counter.
    dialogue.gets("- 5001:5001 ack 8001");
    dialogue.gets("EA 5001:5001 ack 7001");
    assert_eq!(dialogue.delivered_marked(), 4);
    // No segment has CWR, which is a part of the field.
    while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
        let Flags { ae, cwr, ece, .. } = segment.header.flags;
        assert_eq!((ae, cwr, ece), (true, false, true));
    }
    dialogue.ends();
}

// RFC 9768 section 3.2.2.5.2 and appendix A.2.
#[test]
fn an_option_shows_how_often_the_field_has_wrapped() {
    // Ten packets of 1,000 bytes, of which one or nine were marked: the field is 6 in both cases.
    for (marked_bytes, known) in [(Some(1_000), 1), (Some(9_000), 9), (None, 9)] {
        let mut dialogue = opened();
        dialogue.write(10_000);
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        let (mut ack, _) = header("CA 5001:5001 ack 11001");
        ack.options.accurate_ecn = marked_bytes.map(|bytes| AccurateEcnOption::new(bytes, 1, 1));
        dialogue.connection.handle_segment(dialogue.now, &ack, false, &[][..], 0).unwrap();
        assert_eq!(dialogue.delivered_marked(), known, "{marked_bytes:?}");
        dialogue.ends();
    }
}

// RFC 9768 section 3.2.3.
#[test]
fn options_report_bytes_by_their_ecn_field_if_the_peer_sends_options_too() {
    let counters = |dialogue: &Dialogue| dialogue.last[0].options.accurate_ecn;
    for with_options in [true, false] {
        let mut dialogue = client(accurate());
        dialogue.sends(&["SECA 1000:1000"]);
        let (mut answer, _) = header("SC 5000:5000 ack 1001 mss 1000 sackok");
        answer.options.accurate_ecn = with_options.then(AccurateEcnOption::first);
        dialogue.connection.handle_segment(dialogue.now, &answer, false, &[][..], 0).unwrap();
        dialogue.sends(&["C 1001:1001 ack 5001"]);
        assert_eq!(counters(&dialogue), with_options.then(AccurateEcnOption::first));
        for (segment, ecn, sent) in [
            ("EA 5001:5101 ack 1001", IpEcn::Capable0, "EA 1001:1001 ack 5101"),
            ("EA 5101:5301 ack 1001", IpEcn::Capable1, "EA 1001:1001 ack 5301"),
            ("EA 5301:5601 ack 1001", IpEcn::Congestion, "CA 1001:1001 ack 5601"),
        ] {
            let (header, len) = header(segment);
            dialogue.connection.handle_segment(dialogue.now, &header, ecn, stream(len).as_slice(), 0).unwrap();
            dialogue.sends(&[sent]);
        }
        assert_eq!(counters(&dialogue), with_options.then(|| AccurateEcnOption::new(300, 101, 201)));
        // Without news, an acknowledgement has no option.
        dialogue.gets("EA 5601:5701 ack 1001");
        dialogue.sends(&["CA 1001:1001 ack 5701"]);
        assert_eq!(counters(&dialogue), None);
        dialogue.ends();
    }
}

#[test]
fn a_connection_that_opened_by_fast_open_does_not_take_the_end_of_the_handshake_for_marks() {
    let (now, payload) = (Instant::from_ns(1_000_000_000), stream(100));
    let (syn, _) = header("SECA 5000:5100 mss 1000 sackok fo 12345678");
    let connection =
        Connection::accept_fast(now, accurate(), &syn, IpEcn::default(), initial(1_000), None, payload.as_slice());
    let mut dialogue = Dialogue::begin(connection.unwrap());
    dialogue.write(1_000);
    dialogue.sends(&["SC 1000:1000 ack 5101", "EA 1001:2001 ack 5101"]);
    dialogue.after(10);
    dialogue.gets("C 5101:5101 ack 1001");
    dialogue.gets("EA 5101:5101 ack 2001");
    assert_eq!(dialogue.delivered_marked(), 0);
    dialogue.write(1_000);
    dialogue.sends(&["EA 2001:3001 ack 5101"]);
    dialogue.gets("CA 5101:5101 ack 3001");
    assert_eq!(dialogue.delivered_marked(), 1);
    dialogue.ends();
}

#[test]
fn two_connections_with_accurate_ecn_agree_on_every_mark() {
    let config = Config { timestamps: true, ..accurate() };
    let mut pair = Pair::established(config, config);
    let marks = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = std::rc::Rc::clone(&marks);
    pair.faults[CLIENT] = Box::new(move |number, packet| {
        if packet.ecn_capable && number.is_multiple_of(7) {
            counted.set(counted.get() + 1);
            return Some(Fault::Mark);
        }
        number.is_multiple_of(101).then_some(Fault::Drop)
    });
    pair.delay = ms(5);
    pair.transfer(CLIENT, &stream(2_000_000));
    pair.run(ms(500));
    let info = pair.ends[CLIENT].linux_info(pair.now, 40);
    assert!(marks.get() > 100 && info.total_retrans > 0, "{} {info:?}", marks.get());
    assert_eq!(info.delivered_ce, marks.get(), "{info:?}");
    pair.close();
}
