//! Fast Open (RFC 7413): data in the SYN, and data before the handshake is complete.

use super::pair::{CLIENT, Fault, Pair, SERVER};
use super::*;
use crate::limits::TCP_FAST_OPEN_BLACK_HOLE_TIMEOUTS;
use crate::wire::tcp::IpEcn;

const COOKIE: &str = "8_bytes.";

fn option(cookie: &str) -> Option<FastOpenOption> {
    FastOpenOption::new(cookie.as_bytes())
}

/// How a client opens that has a cookie of a server with an MSS of 1,000.
fn syn() -> FastOpenSyn {
    FastOpenSyn { option: option(COOKIE), mss: Some(1_000), deferred: true }
}

fn client(config: Config, syn: FastOpenSyn) -> Connection {
    let ports = Ports { local: 1, remote: 2 };
    Connection::connect_fast(Instant::from_ns(1_000_000_000), config, ports, initial(1_000), syn).unwrap()
}

/// From SYN-SENT, the first SYN with 100 bytes being out.
fn sent(config: Config) -> Dialogue {
    let mut dialogue = Dialogue::begin(client(config, syn()));
    dialogue.write(100);
    dialogue.sends(&["S 1000:1100 fo 8_bytes."]);
    dialogue
}

fn server(config: Config, text: &str, cookie: Option<FastOpenOption>) -> Connection {
    let (header, len) = header(text);
    let payload = stream(len);
    let now = Instant::from_ns(1_000_000_000);
    Connection::accept_fast(now, config, &header, IpEcn::default(), initial(1_000), cookie, payload.as_slice()).unwrap()
}

/// From SYN-RECEIVED: a SYN with 100 bytes and a valid cookie has come, and the SYN-ACK is out.
fn received(config: Config) -> Dialogue {
    let mut dialogue = Dialogue::begin(server(config, "S 5000:5100 mss 1000 sackok", None));
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    dialogue
}

fn bytes_of(dialogue: &Dialogue, range: SendRange) -> Vec<u8> {
    let mut into = vec![0; range.len as usize];
    dialogue.connection.copy_payload(range, 0, &mut into);
    into
}

#[test]
fn a_syn_with_a_cookie_waits_for_the_first_write_and_carries_its_data() {
    let mut dialogue = Dialogue::begin(client(plain(), syn()));
    dialogue.sends(&[]);
    assert!(dialogue.connection.readiness().writable && dialogue.connection.awaits_first_write());
    assert_eq!(dialogue.connection.poll_timeout().filter(|at| *at != Instant::NEVER), None);
    dialogue.after(500_000);
    dialogue.connection.carrier_up(dialogue.now);
    dialogue.sends(&[]);
    dialogue.write(100);
    assert!(!dialogue.connection.readiness().writable, "until the handshake is complete");
    let segment = dialogue.connection.poll_transmit(dialogue.now, 0).unwrap();
    assert_eq!(text(&segment.header, segment.payload.len), "S 1000:1100 fo 8_bytes.");
    assert_eq!(bytes_of(&dialogue, segment.payload), stream(100));
    dialogue.after(100);
    dialogue.gets("S 5000:5000 ack 1101 mss 1000");
    dialogue.sends(&["- 1101:1101 ack 5001"]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.syn_data, info.unsent, info.flight, info.rtt), (true, 0, 0, Some(ms(100))));
    assert_eq!(dialogue.connection.linux_info(dialogue.now, 40).options & 32, 32, "TCPI_OPT_SYN_DATA");
    dialogue.write(50);
    dialogue.sends(&["- 1101:1151 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_deferred_connection_ignores_the_user_timeout_and_ends_by_a_shutdown() {
    let config = Config { user_timeout: Some(Duration::from_secs(5)), ..plain() };
    let mut dialogue = Dialogue::begin(client(config, syn()));
    dialogue.after(60_000);
    assert_eq!(dialogue.state(), StateName::SynSent);
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&[]);
    assert_eq!((dialogue.state(), dialogue.connection.failure()), (StateName::Closed, None));
    dialogue.ends();
}

#[test]
fn an_empty_write_sends_a_deferred_syn_without_data() {
    let mut dialogue = Dialogue::begin(client(plain(), syn()));
    dialogue.write(0);
    dialogue.sends(&["S 1000:1000 fo 8_bytes."]);
    dialogue.ends();
}

#[test]
fn data_that_the_syn_ack_does_not_acknowledge_is_sent_again_at_once() {
    for (syn_ack, syn_data, again) in [
        ("S 5000:5000 ack 1001 mss 1000", false, "- 1001:1101 ack 5001"),
        ("S 5000:5000 ack 1041 mss 1000", true, "- 1041:1101 ack 5001"),
    ] {
        let mut dialogue = sent(plain());
        dialogue.gets(syn_ack);
        dialogue.sends(&[again]);
        assert_eq!(dialogue.connection.info().unwrap().syn_data, syn_data);
        dialogue.gets("- 5001:5001 ack 1101");
        assert_eq!(dialogue.connection.info().unwrap().flight, 0);
        dialogue.ends();
    }
}

#[test]
fn data_beyond_the_room_of_the_syn_follows_the_handshake() {
    // The options of the SYN are the MSS, SACK, the window scale and the cookie: 4 + 4 + 4 + 12 bytes.
    for (mss, room) in [(1_000, 976), (100, 76), (0, 24), (u16::MAX, 1_436)] {
        let mut dialogue = Dialogue::begin(client(plain(), FastOpenSyn { mss: Some(mss), ..syn() }));
        dialogue.write(1_450);
        dialogue.sends(&[format!("S 1000:{} fo 8_bytes.", 1_000 + room).as_str()]);
        let end = 1_001 + room;
        dialogue.gets(&format!("S 5000:5000 ack {end} mss 2500"));
        dialogue.sends(&[format!("- {end}:2451 ack 5001").as_str()]);
        dialogue.ends();
    }
    let mut dialogue = Dialogue::begin(client(plain(), syn()));
    dialogue.connection.set_path_mss(dialogue.now, 500);
    dialogue.write(3_000);
    dialogue.sends(&["S 1000:1476 fo 8_bytes."]);
    dialogue.ends();
}

#[test]
fn without_a_cookie_the_syn_requests_one_and_data_waits_for_the_handshake() {
    let request = FastOpenSyn { option: Some(FastOpenOption::REQUEST), mss: None, deferred: false };
    let mut dialogue = Dialogue::begin(client(plain(), request));
    dialogue.write(100);
    dialogue.sends(&["S 1000:1000 fo -"]);
    assert!(dialogue.connection.awaits_cookie());
    dialogue.gets("S 5000:5000 ack 1001 mss 1000 fo 8_bytes.");
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    assert!(!dialogue.connection.awaits_cookie() && !dialogue.connection.info().unwrap().syn_data);
    dialogue.ends();
}

// RFC 7413 section 4.1.3.
#[test]
fn a_retransmitted_syn_has_neither_cookie_nor_data() {
    for (syn_ack, again) in [
        // The first SYN arrived, but its answer was lost; or the first SYN was lost.
        ("S 5000:5000 ack 1101 mss 1000", "- 1101:1101 ack 5001"),
        ("S 5000:5000 ack 1001 mss 1000", "- 1001:1101 ack 5001"),
    ] {
        let mut dialogue = sent(plain());
        dialogue.timeout();
        dialogue.sends(&["S 1000:1000"]);
        dialogue.gets(syn_ack);
        dialogue.sends(&[again]);
        dialogue.ends();
    }
}

#[test]
fn an_answer_that_acknowledges_more_than_the_syn_and_its_data_is_refused() {
    let mut dialogue = sent(plain());
    dialogue.refuses("S 5000:5000 ack 1102 mss 1000", TcpDrop::AckUnacceptable);
    dialogue.sends(&["R 1102:1102"]);
    dialogue.refuses("R 0:0 ack 1102", TcpDrop::AckUnacceptable);
    dialogue.refuses("R 0:0 ack 1000", TcpDrop::AckUnacceptable);
    dialogue.gets("R 0:0 ack 1101");
    assert_eq!(dialogue.connection.failure(), Some(Failure::Refused));
    dialogue.ends();
}

#[test]
fn both_sides_may_open_at_once_with_data() {
    let mut dialogue = sent(plain());
    dialogue.gets("S 5000:5000 mss 1000");
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1061");
    assert_eq!(dialogue.state(), StateName::Established);
    dialogue.sends(&["- 1061:1101 ack 5001"]);
    dialogue.ends();
}

#[test]
fn urgent_data_does_not_travel_in_a_syn() {
    let mut dialogue = Dialogue::begin(client(plain(), syn()));
    dialogue.connection.send_urgent(dialogue.now, b"now").unwrap();
    dialogue.sends(&["S 1000:1000 fo 8_bytes."]);
    dialogue.gets("S 5000:5000 ack 1001 mss 1000");
    dialogue.sends(&["- 1001:1004 ack 5001 up 3"]);
    dialogue.ends();
}

#[test]
fn the_third_timeout_of_a_fast_open_connection_suggests_a_black_hole() {
    let mut opening = sent(plain());
    let mut open = sent(plain());
    open.gets("S 5000:5000 ack 1101 mss 1000 sackok");
    open.write(100);
    open.sends(&["- 1101:1201 ack 5001"]);
    for mut dialogue in [opening, open] {
        let mut timeouts = 0;
        while dialogue.connection.take_fast_open_event().is_none() {
            dialogue.timeout();
            while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
            timeouts += 1;
            assert!(timeouts < 6, "{timeouts}");
        }
        // The open connection first sends a tail-loss probe.
        let probes = u8::from(dialogue.state() == StateName::Established);
        assert_eq!(timeouts, TCP_FAST_OPEN_BLACK_HOLE_TIMEOUTS + probes);
        dialogue.ends();
    }
    opening = sent(Config { user_timeout: Some(Duration::from_millis(1_500)), ..plain() });
    opening.timeout();
    opening.sends(&["S 1000:1000"]);
    assert_eq!(opening.connection.take_fast_open_event(), None);
    opening.timeout();
    assert_eq!(opening.connection.take_fast_open_event(), Some(FastOpenEvent::BlackHole));
    opening.ends();
    let mut usual = Dialogue::connecting(plain());
    for _ in 0..7 {
        usual.timeout();
        usual.sends(&["S 1000:1000"]);
        assert_eq!(usual.connection.take_fast_open_event(), None, "a connection without Fast Open");
    }
    usual.ends();
}

#[test]
fn a_fin_without_the_data_before_it_suggests_a_black_hole_and_data_refutes_it() {
    for (segment, event) in [
        ("F 5051:5051 ack 1101", Some(FastOpenEvent::BlackHole)),
        ("F 5001:5001 ack 1101", None),
        ("- 5001:5051 ack 1101", Some(FastOpenEvent::Works)),
        ("- 5011:5051 ack 1101", None),
    ] {
        let mut dialogue = sent(plain());
        dialogue.gets("S 5000:5000 ack 1101 mss 1000 sackok");
        dialogue.gets(segment);
        assert_eq!(dialogue.connection.take_fast_open_event(), None);
        dialogue.connection.abort();
        assert_eq!(dialogue.connection.take_fast_open_event(), event, "{segment}");
        dialogue.ends();
    }
}

#[test]
fn a_valid_cookie_delivers_data_before_the_handshake_ends_and_lets_the_server_answer() {
    let mut dialogue = Dialogue::begin(server(plain(), "S 5000:5100 mss 1000 sackok", None));
    assert_eq!((dialogue.state(), dialogue.connection.received()), (StateName::SynReceived, 100));
    assert!(dialogue.connection.opens_fast() && dialogue.connection.readiness().writable);
    let mut into = [0; 100];
    dialogue.connection.receive(dialogue.now, &mut into);
    assert_eq!(into.as_slice(), stream(100));
    dialogue.write(2_500);
    dialogue.sends(&["S 1000:1000 ack 5101", "- 1001:2001 ack 5101", "- 2001:3001 ack 5101", "- 3001:3501 ack 5101"]);
    dialogue.after(100);
    dialogue.gets("- 5101:5101 ack 3501");
    assert_eq!((dialogue.state(), dialogue.connection.opens_fast()), (StateName::Established, false));
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.syn_data, info.flight, info.rtt), (true, 0, Some(ms(100))));
    dialogue.ends();
}

#[test]
fn a_syn_with_a_valid_cookie_and_without_data_is_answered_at_once() {
    let mut dialogue = Dialogue::begin(server(plain(), "S 5000:5000 mss 1000 sackok", None));
    assert!(dialogue.connection.wants_transmit());
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.sends(&[]);
    assert_eq!(dialogue.state(), StateName::Established);
    dialogue.ends();
}

#[test]
fn a_lost_syn_ack_is_sent_again_and_the_data_behind_it_after_the_handshake() {
    let mut dialogue = received(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5101"]);
    assert_eq!(dialogue.timeout(), Duration::from_secs(1));
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    dialogue.refuses("S 5000:5000 mss 1000", TcpDrop::Duplicate);
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    dialogue.gets("- 5101:5101 ack 1001");
    dialogue.sends(&["- 1001:1101 ack 5101"]);
    assert_eq!(dialogue.connection.info().unwrap().rtt, None, "Karn's algorithm");
    dialogue.ends();
}

#[test]
fn a_repeated_syn_does_not_delay_the_retransmission_of_the_syn_ack_of_a_fast_open() {
    let mut dialogue = received(plain());
    dialogue.after(480);
    dialogue.refuses("S 5000:5100 mss 1000 fo 8_bytes.", TcpDrop::Duplicate);
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    assert_eq!(dialogue.timeout(), ms(520));
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    assert_eq!(dialogue.timeout(), ms(2_000));
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    dialogue.ends();
}

#[test]
fn data_of_a_repeated_syn_is_not_delivered_twice() {
    let mut dialogue = received(plain());
    dialogue.refuses("S 5000:5100 mss 1000 fo 8_bytes.", TcpDrop::Duplicate);
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    dialogue.gets("- 5001:5201 ack 1001");
    assert_eq!(dialogue.connection.received(), 200);
    dialogue.ends();
}

#[test]
fn an_unanswered_syn_ack_of_a_fast_open_is_given_up_after_one_more_retry_than_usual() {
    let mut dialogue = received(plain());
    dialogue.write(10);
    dialogue.sends(&["- 1001:1011 ack 5101"]);
    for seconds in [1, 2, 4, 8, 16, 32] {
        assert_eq!(dialogue.timeout(), Duration::from_secs(seconds), "only the SYN-ACK has a timer");
        dialogue.sends(&["S 1000:1000 ack 5101"]);
    }
    dialogue.timeout();
    dialogue.sends(&[]);
    assert_eq!((dialogue.state(), dialogue.connection.failure()), (StateName::Closed, Some(Failure::TimedOut)));
    dialogue.ends();
}

#[test]
fn only_an_acceptable_acknowledgement_completes_a_fast_handshake() {
    let mut dialogue = received(plain());
    for (segment, answer) in [("- 5101:5101 ack 1000", "R 1000:1000"), ("- 5101:5101 ack 1002", "R 1002:1002")] {
        dialogue.refuses(segment, TcpDrop::AckUnacceptable);
        dialogue.sends(&[answer]);
    }
    dialogue.refuses("- 5101:5101", TcpDrop::NoAck);
    dialogue.refuses("R 5102:5102", TcpDrop::ResetBlind);
    dialogue.sends(&["- 1001:1001 ack 5101"]);
    assert_eq!(dialogue.state(), StateName::SynReceived);
    dialogue.gets("R 5101:5101");
    assert_eq!(dialogue.connection.failure(), Some(Failure::Reset));
    dialogue.ends();
}

#[test]
fn a_cookie_is_only_in_the_first_syn_ack() {
    let mut dialogue = Dialogue::begin(server(plain(), "S 5000:5100 mss 1000", option(COOKIE)));
    dialogue.sends(&["S 1000:1000 ack 5101 fo 8_bytes."]);
    dialogue.timeout();
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    dialogue.ends();
    let now = Instant::from_ns(1_000_000_000);
    let mut usual = Connection::accept(now, plain(), &header("S 5000:5000 mss 1000").0, initial(1_000)).unwrap();
    usual.offer_cookie(option(COOKIE).unwrap());
    let mut dialogue = Dialogue::begin(usual);
    dialogue.sends(&["S 1000:1000 ack 5001 fo 8_bytes."]);
    dialogue.timeout();
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.ends();
}

#[test]
fn text_of_a_syn_with_an_invalid_cookie_is_not_stored() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.refuses("S 5000:5100 mss 1000 fo invalid.", TcpDrop::Duplicate);
    assert_eq!((dialogue.connection.received(), dialogue.connection.buffer_bytes()), (0, 0));
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_fin_in_a_syn_with_a_valid_cookie_ends_the_peers_direction() {
    let mut dialogue = Dialogue::begin(server(plain(), "SF 5000:5100 mss 1000", None));
    assert!(dialogue.connection.peer_finished());
    dialogue.sends(&["S 1000:1000 ack 5102"]);
    dialogue.write(10);
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1011 ack 5102"]);
    dialogue.gets("- 5102:5102 ack 1001");
    assert_eq!(dialogue.state(), StateName::LastAck);
    dialogue.gets("- 5102:5102 ack 1012");
    assert_eq!(dialogue.state(), StateName::Closed);
    dialogue.ends();
}

#[test]
fn the_syn_ack_of_a_fast_open_offers_what_is_left_of_the_window() {
    let config = Config { receive_buffer_bytes: 80, receive_buffer_bytes_max: 1_000, ..plain() };
    let mut dialogue = Dialogue::begin(server(config, "S 5000:5100 mss 1000 ws 3 win 200", None));
    dialogue.sends(&["S 1000:1000 ack 5081"]);
    assert_eq!((dialogue.last[0].window, dialogue.connection.received()), (0, 80));
    assert_eq!(dialogue.connection.info().unwrap().peer_window, 200, "the window of a SYN is not scaled");
    dialogue.gets("- 5081:5081 ack 1001 win 200");
    assert_eq!(dialogue.connection.info().unwrap().peer_window, 1_600);
    dialogue.ends();
}

#[test]
fn data_flows_both_ways_whichever_segment_of_a_fast_open_is_lost() {
    for lost in 0..6 {
        for end in [CLIENT, SERVER] {
            let now = Instant::from_ns(1_000_000_000);
            let mut first = client(Config::LINUX, syn());
            first.send(now, &stream(5_000)[..200]).unwrap();
            let segment = first.poll_transmit(now, 0).unwrap();
            let mut payload = vec![0; segment.payload.len as usize];
            first.copy_payload(segment.payload, 0, &mut payload);
            let accepted = Connection::accept_fast(
                now,
                Config::LINUX,
                &segment.header,
                IpEcn::default(),
                initial(9_000),
                None,
                payload.as_slice(),
            );
            let mut pair = Pair::between(now, first, accepted.unwrap());
            pair.faults[end] = Box::new(move |number, _| (number == lost).then_some(Fault::Drop));
            let mut question = [0; 200];
            assert_eq!(pair.ends[SERVER].receive(now, &mut question), 200);
            assert_eq!(question.as_slice(), &stream(5_000)[..200]);
            pair.transfer(SERVER, &stream(9_000));
            pair.transfer(CLIENT, &stream(9_000));
            assert_eq!(pair.states(), [StateName::Established; 2]);
            pair.close();
        }
    }
}

#[test]
fn a_delayed_acknowledgement_of_the_syn_ack_gives_no_sample_if_it_acknowledges_data() {
    for (written, sample_ms) in [(100, 20), (0, 220)] {
        let mut dialogue = received(plain());
        dialogue.after(200);
        dialogue.write(written);
        let end = 1_001 + written;
        if written > 0 {
            dialogue.sends(&[&format!("- 1001:{end} ack 5101")]);
        }
        dialogue.after(20);
        dialogue.gets(&format!("- 5101:5101 ack {end}"));
        assert_eq!(dialogue.connection.info().unwrap().rtt, Some(Duration::from_millis(sample_ms)));
    }
}

#[test]
fn the_timestamp_of_a_repeated_syn_ack_gives_an_rtt_sample() {
    let mut dialogue = Dialogue::begin(server(Config::LINUX, "S 5000:5100 mss 1000 ts 1 0", None));
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    dialogue.timeout();
    dialogue.sends(&["S 1000:1000 ack 5101"]);
    let echo = dialogue.last[0].options.timestamps.unwrap().value;
    dialogue.after(300);
    dialogue.gets(&format!("- 5101:5101 ack 1001 ts 2 {echo}"));
    assert_eq!(dialogue.connection.info().unwrap().rtt, Some(ms(300)));
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5101"]);
    assert_eq!(dialogue.timeout(), ms(900));
    dialogue.ends();
}

#[test]
fn data_of_a_syn_that_was_not_acknowledged_has_no_tail_loss_probe() {
    let no_delay = Config { no_delay: true, ..plain() };
    let mut dialogue = sent(no_delay);
    dialogue.after(20);
    dialogue.gets("S 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.write(1_000);
    dialogue.sends(&["- 1101:2101 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(220), "the retransmission timeout");
    dialogue.ends();
    // Other data has one.
    let mut dialogue = sent(no_delay);
    dialogue.after(20);
    dialogue.gets("S 5000:5000 ack 1101 mss 1000 sackok");
    dialogue.sends(&["- 1101:1101 ack 5001"]);
    dialogue.write(1_100);
    dialogue.sends(&["- 1101:2101 ack 5001", "- 2101:2201 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(48), "the tail-loss probe");
    dialogue.ends();
}
