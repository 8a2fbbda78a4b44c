//! Opening (RFC 9293 sections 3.5 and 3.10.7.1 to 3.10.7.4).

use super::*;

// RFC 9293 MUST-14, SHLD-5, MAY-3.
#[test]
fn a_syn_offers_what_linux_offers() {
    let dialogue = Dialogue::connecting(Config::LINUX);
    let options = dialogue.last[0].options;
    assert_eq!((options.mss, options.window_scale, options.sack_permitted), (Some(1_460), Some(7), true));
    assert_eq!(dialogue.last[0].window, u16::MAX);
    assert!(options.timestamps.is_some_and(|timestamps| timestamps.echo == 0));
    dialogue.ends();
}

// RFC 9293 MUST-22, MUST-23, SHLD-10.
#[test]
fn an_unanswered_syn_is_retransmitted_with_backoff_and_given_up() {
    let mut dialogue = Dialogue::connecting(plain());
    let begun = dialogue.now;
    for seconds in [1, 2, 4, 8, 16, 32, 64] {
        assert_eq!(dialogue.connection.delivery_problem(), seconds > 4, "MUST-20, SHLD-10");
        assert_eq!(dialogue.timeout(), Duration::from_secs(seconds));
        dialogue.sends(&["S 1000:1000"]);
    }
    dialogue.timeout();
    assert!(dialogue.now.since(begun) >= Duration::from_secs(180), "MUST-23");
    dialogue.sends(&[]);
    assert_eq!(dialogue.connection.failure(), Some(Failure::TimedOut));
    dialogue.ends();
}

// RFC 9293 MUST-21, MUST-22.
#[test]
fn a_user_timeout_ends_an_attempt_to_connect() {
    let config = Config { user_timeout: Some(Duration::from_secs(5)), ..plain() };
    let mut dialogue = Dialogue::connecting(config);
    for seconds in [1, 2] {
        assert_eq!(dialogue.timeout(), Duration::from_secs(seconds));
        dialogue.sends(&["S 1000:1000"]);
    }
    assert_eq!(dialogue.timeout(), Duration::from_secs(2), "MUST-21");
    assert_eq!(dialogue.connection.failure(), Some(Failure::TimedOut));
    dialogue.ends();
}

// RFC 9293 MUST-14.
#[test]
fn a_syn_ack_opens_the_connection_and_its_options_take_effect() {
    let mut dialogue = Dialogue::connecting(Config::LINUX);
    dialogue.after(100);
    dialogue.gets("S 5000:5000 ack 1001 mss 900 sackok ts 77 1 ws 3 win 1000");
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.segment_bytes, info.peer_window, info.rtt), (888, 1_000, Some(ms(100))));
    assert_eq!(dialogue.last[0].options.timestamps.unwrap().echo, 77);
    dialogue.gets("- 5001:5001 ack 1001 win 1000 ts 78 1");
    assert_eq!(dialogue.connection.info().unwrap().peer_window, 8_000);
    dialogue.ends();
}

// RFC 9293 MUST-15.
#[test]
fn a_receive_buffer_changed_during_the_handshake_takes_no_offered_window_back() {
    // The largest window that the SYN's window scale can express is 65,535 times 128 bytes.
    for (bytes, offered) in [(2_000, 65_536), (60_000, 65_536), (1 << 20, 1 << 20), (64 << 20, 65_535 << 7)] {
        let mut dialogue = Dialogue::connecting(Config::LINUX);
        assert_eq!((dialogue.last[0].window, dialogue.last[0].options.window_scale), (u16::MAX, Some(7)));
        dialogue.connection.set_receive_buffer(bytes).unwrap();
        dialogue.gets("S 5000:5000 ack 1001 mss 1000 sackok ts 77 1 ws 3");
        dialogue.sends(&["- 1001:1001 ack 5001"]);
        assert_eq!(u32::from(dialogue.last[0].window) << 7, offered, "{bytes}");
        dialogue.gets("- 69536:70536 ack 1001 ts 78 1");
        assert_eq!(dialogue.connection.info().unwrap().gaps, 1);
        dialogue.ends();
    }
}

#[test]
fn an_option_that_only_one_side_offered_is_not_used() {
    let mut dialogue = Dialogue::established_by(Config::LINUX, "S 5000:5000 ack 1001");
    assert_eq!(dialogue.connection.info().unwrap().segment_bytes, 536, "MUST-15");
    assert_eq!((dialogue.last[0].options, dialogue.last[0].window), (HeaderOptions::default(), u16::MAX));
    dialogue.gets("- 5002:5003 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_reset_that_acknowledges_the_syn_refuses_the_connection_and_a_blind_one_does_not() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.refuses("R 0:0", TcpDrop::ResetBlind);
    dialogue.refuses("R 0:0 ack 1000", TcpDrop::AckUnacceptable);
    dialogue.refuses("- 0:0 ack 1001", TcpDrop::NoSyn);
    dialogue.sends(&[]);
    dialogue.gets("R 0:0 ack 1001");
    assert_eq!((dialogue.state(), dialogue.connection.failure()), (StateName::Closed, Some(Failure::Refused)));
    dialogue.ends();
}

#[test]
fn a_segment_of_an_old_connection_in_syn_sent_is_answered_by_a_reset() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.refuses("- 5000:5100 ack 700", TcpDrop::AckUnacceptable);
    dialogue.sends(&["R 700:700"]);
    dialogue.refuses("S 5000:5000 ack 700", TcpDrop::AckUnacceptable);
    dialogue.sends(&["R 700:700"]);
    assert_eq!(dialogue.state(), StateName::SynSent);
    dialogue.ends();
}

// RFC 9293 MUST-65.
#[test]
fn only_a_syn_carries_an_mss_option() {
    let mut dialogue = Dialogue::connecting(Config::LINUX);
    assert!(dialogue.last[0].options.mss.is_some());
    dialogue.gets("S 5000:5000 ack 1001 mss 1000 sackok ts 1 1");
    dialogue.write(1_200);
    dialogue.connection.shutdown(dialogue.now);
    while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
        assert_eq!(segment.header.options.mss, None);
    }
    dialogue.connection.abort();
    assert_eq!(dialogue.connection.poll_transmit(dialogue.now, 0).unwrap().header.options.mss, None);
    dialogue.ends();
}

// RFC 9293 MUST-18 by way of RFC 6298 section 5.7.
#[test]
fn a_retransmitted_syn_gives_no_rtt_sample_and_a_longer_initial_timeout() {
    let mut connecting = Dialogue::connecting(plain());
    connecting.timeout();
    connecting.sends(&["S 1000:1000"]);
    connecting.gets("S 5000:5000 ack 1001 mss 1000");
    let mut accepting = Dialogue::accepting(plain());
    accepting.timeout();
    accepting.sends(&["S 1000:1000 ack 5001"]);
    accepting.gets("- 5001:5001 ack 1001");
    for dialogue in [connecting, accepting] {
        let info = dialogue.connection.info().unwrap();
        assert_eq!((info.rtt, info.timeout), (None, Duration::from_secs(3)));
        dialogue.ends();
    }
}

// RFC 6928 section 2.
#[test]
fn after_a_syn_that_was_lost_twice_the_initial_window_is_one_segment() {
    for lost in 0..4 {
        let mut dialogue = Dialogue::connecting(plain());
        for _ in 0..lost {
            dialogue.timeout();
            dialogue.sends(&["S 1000:1000"]);
        }
        dialogue.gets("S 5000:5000 ack 1001 mss 1000");
        let segments = if lost < 2 { 10 } else { 1 };
        assert_eq!(dialogue.connection.info().unwrap().congestion_window, segments * 1_000, "{lost}");
        dialogue.ends();
    }
}

// RFC 9293 MUST-10.
#[test]
fn both_sides_may_open_at_once() {
    let now = Instant::from_ns(1);
    let mut left = Connection::<Heap>::connect(now, Config::LINUX, Ports { local: 1, remote: 2 }, initial(10)).unwrap();
    let mut right =
        Connection::<Heap>::connect(now, Config::LINUX, Ports { local: 2, remote: 1 }, initial(90)).unwrap();
    let syns = [left.poll_transmit(now, 0).unwrap(), right.poll_transmit(now, 0).unwrap()];
    left.handle_segment(now, &syns[1].header, false, [].as_slice(), 0).unwrap();
    right.handle_segment(now, &syns[0].header, false, [].as_slice(), 0).unwrap();
    assert_eq!([left.state_name(), right.state_name()], [StateName::SynReceived; 2]);
    let mut pair = pair::Pair::between(now, left, right);
    pair.run(ms(50));
    assert_eq!(pair.states(), [StateName::Established; 2]);
    pair.transfer(0, &stream(5_000));
    pair.transfer(1, &stream(5_000));
    pair.close();
}

// RFC 9293 MUST-11.
#[test]
fn syn_received_answers_repeated_syns_and_gives_up_silently() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.refuses("S 5000:5000 mss 1000 sackok", TcpDrop::Duplicate);
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    for _ in 0..5 {
        dialogue.timeout();
        dialogue.sends(&["S 1000:1000 ack 5001"]);
    }
    dialogue.timeout();
    assert_eq!(dialogue.state(), StateName::Closed);
    dialogue.sends(&[]);
    dialogue.ends();
}

#[test]
fn the_acknowledgement_that_completes_the_handshake_may_carry_data_and_fin() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.gets("F 5001:5101 ack 1001");
    assert_eq!(dialogue.state(), StateName::CloseWait);
    dialogue.sends(&["- 1001:1001 ack 5102"]);
    dialogue.read(100);
    assert!(dialogue.connection.finished());
    dialogue.ends();
}

#[test]
fn data_that_reaches_into_the_window_completes_the_handshake() {
    for (segment, window, received) in [
        ("- 4991:5101 ack 1001", 128 << 10, 100),
        ("- 5001:70601 ack 1001", 128 << 10, 65_535),
        ("- 4991:6001 ack 1001", 1_000, 1_000),
    ] {
        let config = Config { receive_buffer_bytes: window, receive_buffer_bytes_max: 6 << 20, ..plain() };
        let mut dialogue = Dialogue::accepting(config);
        dialogue.gets(segment);
        assert_eq!((dialogue.state(), dialogue.connection.received()), (StateName::Established, received));
        dialogue.ends();
    }
}

#[test]
fn syn_received_accepts_only_acceptable_numbers() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.refuses("- 5001:5001 ack 900", TcpDrop::AckUnacceptable);
    dialogue.sends(&["R 900:900"]);
    dialogue.refuses("- 5001:5001", TcpDrop::NoAck);
    dialogue.refuses("R 5002:5002", TcpDrop::ResetBlind);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.refuses("- 900:900 ack 1001", TcpDrop::OutOfWindow);
    dialogue.sends(&[]);
    dialogue.after(600);
    dialogue.refuses("S 5002:5002", TcpDrop::SynInWindow);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    assert_eq!(dialogue.state(), StateName::SynReceived);
    dialogue.gets("R 5001:5001");
    assert_eq!(dialogue.state(), StateName::Closed);
    dialogue.ends();
}

// RFC 5961 section 3.2.
#[test]
fn syn_received_challenges_a_reset_inside_the_window_and_ignores_one_at_its_edge() {
    for (seq, answer) in [(5_001 + 65_534, &["- 1001:1001 ack 5001"][..]), (5_001 + 65_535, &[])] {
        let mut dialogue = Dialogue::accepting(plain());
        dialogue.refuses(&format!("R {seq}:{seq}"), TcpDrop::ResetBlind);
        dialogue.sends(answer);
        dialogue.ends();
    }
}

// RFC 7323 section 2.2: the window of a SYN is never in the unit that it names, that of every other segment is.
#[test]
fn answers_in_syn_received_offer_the_window_of_the_syn_ack() {
    let now = Instant::from_ns(1_000_000_000);
    for (syn, window) in [("S 5000:5000 mss 1000", u16::MAX), ("S 5000:5000 mss 1000 ws 3", u16::MAX >> 7)] {
        let mut dialogue = Dialogue::begin(Connection::accept(now, plain(), &header(syn).0, initial(1_000)).unwrap());
        dialogue.sends(&["S 1000:1000 ack 5001"]);
        assert_eq!(dialogue.last[0].window, u16::MAX);
        dialogue.refuses("S 5002:5002", TcpDrop::SynInWindow);
        dialogue.sends(&["- 1001:1001 ack 5001"]);
        assert_eq!(dialogue.last[0].window, window, "{syn}");
        dialogue.ends();
    }
}

#[test]
fn syn_received_refuses_an_old_timestamp_and_a_missing_one() {
    let now = Instant::from_ns(1_000_000_000);
    let (syn, _) = header("S 5000:5000 mss 1000 sackok ts 500 0");
    let mut dialogue = Dialogue::begin(Connection::accept(now, Config::LINUX, &syn, initial(1_000)).unwrap());
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.refuses("- 5001:5001 ack 1001", TcpDrop::TimestampMissing);
    dialogue.refuses("- 5001:5001 ack 1001 ts 499 1", TcpDrop::TimestampOld);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001 ts 501 1");
    assert_eq!(dialogue.state(), StateName::Established);
    dialogue.ends();
}

// RFC 9293 SHLD-8.
#[test]
fn ecn_is_agreed_by_both_or_not_at_all() {
    let config = Config { ecn: true, ..plain() };
    for (syn, capable) in [("SE 5000:5000 ack 1001 sackok", true), ("SEC 5000:5000 ack 1001 sackok", false)] {
        let now = Instant::from_ns(1);
        let mut dialogue =
            Dialogue::begin(Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(1_000)).unwrap());
        dialogue.sends(&["SEC 1000:1000"]);
        dialogue.gets(syn);
        dialogue.write(100);
        let segment = dialogue.connection.poll_transmit(dialogue.now, 0).unwrap();
        assert_eq!(segment.ecn_capable, capable, "{syn}");
        dialogue.ends();
    }
}

// RFC 9768 section 3.1.2: a SYN with AE, CWR and ECE offers accurate ECN and, if the other side only knows classic ECN, classic ECN.
#[test]
fn an_offer_of_accurate_ecn_is_accepted_as_an_offer_of_classic_ecn() {
    let (syn, _) = header("SECA 5000:5000 mss 1000 sackok");
    let now = Instant::from_ns(1_000_000_000);
    let mut dialogue = Dialogue::begin(Connection::accept(now, plain(), &syn, initial(1_000)).unwrap());
    // AE, CWR and ECE of 0, 0 and 1 select classic ECN.
    dialogue.sends(&["SE 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.write(1_000);
    let segment = dialogue.connection.poll_transmit(dialogue.now, 0).unwrap();
    assert!(segment.ecn_capable);
    // One mark is echoed until the peer reports its reduction.
    assert_eq!(dialogue.take("- 5001:6001 ack 1001", true), Ok(()));
    dialogue.sends(&["E 2001:2001 ack 6001"]);
    dialogue.gets("- 6001:7001 ack 1001");
    dialogue.gets("- 7001:8001 ack 1001");
    dialogue.sends(&["E 2001:2001 ack 8001"]);
    dialogue.gets("C 8001:9001 ack 1001");
    dialogue.gets("- 9001:10001 ack 1001");
    dialogue.sends(&["- 2001:2001 ack 10001"]);
    dialogue.ends();
}

// As once the connection is open: who has filled the window numbers what it sends so.
#[test]
fn only_a_segment_up_to_the_window_edge_completes_the_handshake() {
    for (first, opens) in [(70_536, true), (70_537, false)] {
        for end in [first, first + 1] {
            let mut dialogue = Dialogue::accepting(plain());
            let _ = dialogue.take(&format!("- {first}:{end} ack 1001"), false);
            assert_eq!(dialogue.state() == StateName::Established, opens, "{first} {end}");
            dialogue.ends();
        }
    }
}

// RFC 3168 section 6.1.1.1.
#[test]
fn a_syn_that_was_lost_twice_is_sent_without_ecn() {
    let now = Instant::from_ns(1_000_000_000);
    let config = Config { ecn: true, ..plain() };
    let mut dialogue =
        Dialogue::begin(Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(1_000)).unwrap());
    dialogue.sends(&["SEC 1000:1000"]);
    for syn in ["SEC 1000:1000", "S 1000:1000", "S 1000:1000"] {
        dialogue.timeout();
        dialogue.sends(&[syn]);
    }
    dialogue.ends();
}

// RFC 3168 section 6.1.1: a host that has sent a SYN without ECN sends no ECT, but echoes marks.
#[test]
fn a_connection_whose_last_syn_had_no_ecn_sends_no_ecn_capable_data() {
    let now = Instant::from_ns(1_000_000_000);
    for lost in 0..3 {
        let config = Config { ecn: true, ..plain() };
        let mut dialogue =
            Dialogue::begin(Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(1_000)).unwrap());
        for at in 0..=lost {
            dialogue.sends(&[if at < 2 { "SEC 1000:1000" } else { "S 1000:1000" }]);
            if at < lost {
                dialogue.timeout();
            }
        }
        dialogue.gets("SE 5000:5000 ack 1001 mss 1000 sackok");
        dialogue.write(1_000);
        assert_eq!(dialogue.connection.poll_transmit(dialogue.now, 0).unwrap().ecn_capable, lost < 2, "{lost}");
        assert_eq!(dialogue.take("- 5001:6001 ack 1001", true), Ok(()));
        dialogue.sends(&["E 2001:2001 ack 6001"]);
        dialogue.ends();
    }
}

// RFC 3168 section 6.1.1.
#[test]
fn a_repeated_syn_without_ecn_ends_the_offer_of_ecn() {
    let now = Instant::from_ns(1_000_000_000);
    let (syn, _) = header("SEC 5000:5000 mss 1000 sackok");
    let mut dialogue = Dialogue::begin(Connection::accept(now, plain(), &syn, initial(1_000)).unwrap());
    dialogue.sends(&["SE 1000:1000 ack 5001"]);
    dialogue.refuses("S 5000:5000 mss 1000 sackok", TcpDrop::Duplicate);
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.write(1_000);
    assert!(!dialogue.connection.poll_transmit(dialogue.now, 0).unwrap().ecn_capable);
    dialogue.ends();
}

#[test]
fn data_written_during_the_handshake_is_sent_once_the_connection_is_open() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.write(100);
    dialogue.sends(&[]);
    dialogue.gets("S 5000:5000 ack 1001 mss 1000");
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.ends();
}

#[test]
fn data_and_fin_of_a_syn_are_delivered_once_the_connection_is_open() {
    let now = Instant::from_ns(1_000_000_000);
    let (syn, len) = header("SF 5000:5600 mss 1000 sackok");
    let mut connection = Connection::accept(now, plain(), &syn, initial(1_000)).unwrap();
    assert_eq!(connection.handle_segment(now, &syn, false, stream(len).as_slice(), 0), Ok(()));
    let mut dialogue = Dialogue::begin(connection);
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    assert_eq!((dialogue.connection.received(), dialogue.connection.readiness().readable), (0, false));
    // A repeated SYN is a duplicate and cannot change what the first one said.
    dialogue.refuses("S 5000:5100 mss 1000 sackok", TcpDrop::Duplicate);
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    assert_eq!(dialogue.state(), StateName::CloseWait);
    dialogue.sends(&["- 1001:1001 ack 5602"]);
    let mut into = [0; 700];
    assert_eq!(dialogue.connection.receive(dialogue.now, &mut into), 600);
    assert!(into[..600] == stream(600) && dialogue.connection.finished());
    dialogue.ends();
}

#[test]
fn data_of_a_syn_and_of_the_completing_segment_are_one_stream() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.gets("S 5000:5100 mss 1000 sackok");
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    // The peer sends all of the SYN's data again, with more behind it, as the SYN-ACK acknowledged none.
    let bytes = stream(400);
    let (segment, _) = header("- 5001:5301 ack 1001");
    let mut sent = bytes[..100].to_vec();
    sent.copy_from_slice(&stream(100));
    sent.extend_from_slice(&bytes[100..300]);
    dialogue.connection.handle_segment(dialogue.now, &segment, false, sent.as_slice(), 0).unwrap();
    dialogue.sends(&["- 1001:1001 ack 5301 sack 5001:5101"]);
    let mut into = [0; 300];
    assert_eq!(dialogue.connection.receive(dialogue.now, &mut into), 300);
    assert!(into == bytes[..300]);
    dialogue.ends();
}

#[test]
fn data_of_a_syn_joins_data_received_behind_it() {
    let mut dialogue = Dialogue::accepting(plain());
    let bytes = stream(300);
    let mut put = |text: &str, bytes: &[u8]| {
        dialogue.connection.handle_segment(dialogue.now, &header(text).0, false, bytes, 0).unwrap();
    };
    put("S 5000:5100 mss 1000 sackok", &bytes[..100]);
    put("F 5101:5301 ack 1001", &bytes[100..]);
    dialogue.sends(&["- 1001:1001 ack 5302"]);
    let mut into = [0; 300];
    assert_eq!(dialogue.connection.receive(dialogue.now, &mut into), 300);
    assert!(into == bytes[..] && dialogue.connection.finished());
    assert_eq!(dialogue.state(), StateName::CloseWait);
    dialogue.ends();
}

#[test]
fn data_of_a_syn_is_bounded() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.gets("SF 5000:65000 mss 1000 sackok");
    dialogue.refuses("S 5000:65000 mss 1000 sackok", TcpDrop::Duplicate);
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    assert_eq!(dialogue.connection.received(), usize::from(crate::limits::TCP_SYN_TEXT_BYTES_MAX));
    assert!(dialogue.connection.info().unwrap().buffer_bytes <= 2_048);
    assert_eq!(dialogue.state(), StateName::Established, "the FIN lies behind what was left out");
    dialogue.ends();
}

#[test]
fn data_and_fin_of_a_syn_ack_are_received_at_once() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.gets("SF 5000:5100 ack 1001 mss 1000 sackok");
    assert_eq!((dialogue.state(), dialogue.connection.received()), (StateName::CloseWait, 100));
    dialogue.sends(&["- 1001:1001 ack 5102"]);
    dialogue.read(100);
    assert!(dialogue.connection.finished());
    dialogue.ends();
}

#[test]
fn data_of_a_simultaneous_syn_is_delivered_once_the_connection_is_open() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.gets("S 5000:5100 mss 1000 sackok");
    assert_eq!((dialogue.state(), dialogue.connection.received()), (StateName::SynReceived, 0));
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.gets("S 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.read(100);
    dialogue.sends(&["- 1001:1001 ack 5101"]);
    dialogue.ends();
    // It may come with the SYN-ACK alone.
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.gets("S 5000:5000 mss 1000 sackok");
    dialogue.gets("S 5000:5100 ack 1001 mss 1000 sackok");
    dialogue.read(100);
    dialogue.ends();
}

#[test]
fn data_of_a_syn_for_a_closed_socket_is_answered_by_a_reset() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.gets("S 5000:5100 mss 1000 sackok");
    dialogue.connection.close(dialogue.now);
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    assert_eq!((dialogue.state(), dialogue.connection.failure()), (StateName::Closed, Some(Failure::Aborted)));
    dialogue.sends(&["R 1001:1001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn impossible_tcp_settings_are_refused() {
    let connect = |config| {
        Connection::<Heap>::connect(Instant::default(), config, Ports { local: 1, remote: 2 }, initial(1)).err()
    };
    assert_eq!(connect(Config { receive_buffer_bytes: 0, ..plain() }), Some(ConfigError::BufferSize));
    assert_eq!(connect(Config { receive_buffer_bytes_max: 1, ..plain() }), Some(ConfigError::BufferSize));
    let window = |initial_window_segments| connect(Config { initial_window_segments, ..plain() });
    assert_eq!((window(0), window(11), window(255)), (Some(ConfigError::InitialWindow), None, None));
    for config in [Config { mss: 47, ..plain() }, Config { mss_default: 0, ..plain() }] {
        assert_eq!(connect(config), Some(ConfigError::SegmentSize));
    }
    for time_wait in [Duration::ZERO, Duration::from_millis(999), Duration::from_millis(240_001)] {
        assert_eq!(connect(Config { time_wait, ..plain() }), Some(ConfigError::TimeWait));
    }
    for timeout in [Duration::ZERO, Duration::from_micros(999)] {
        assert_eq!(connect(Config { user_timeout: Some(timeout), ..plain() }), Some(ConfigError::UserTimeout));
    }
    for time_wait in [1, 240].map(Duration::from_secs) {
        let timeout = Some(Duration::from_millis(1));
        let config = Config { mss: 48, mss_default: 48, initial_window_segments: 10, time_wait, ..plain() };
        assert_eq!(connect(Config { user_timeout: timeout, ..config }), None);
    }
    for keepalive in [
        Keepalive { probes: 0, ..Keepalive::default() },
        Keepalive { idle: Duration::ZERO, ..Keepalive::default() },
        Keepalive { interval: Duration::ZERO, ..Keepalive::default() },
    ] {
        assert_eq!(connect(Config { keepalive: Some(keepalive), ..plain() }), Some(ConfigError::Keepalive));
    }
}

// RFC 6298 section 3.
#[test]
fn a_syn_ack_that_was_sent_twice_gives_no_sample() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.refuses("S 5000:5000 mss 1000 sackok", TcpDrop::Duplicate);
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 1001");
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.rtt, info.timeout), (None, Duration::from_secs(3)));
    dialogue.ends();
}

#[test]
fn data_outside_the_window_is_always_answered_in_syn_received() {
    let mut dialogue = Dialogue::accepting(plain());
    for _ in 0..2 {
        dialogue.refuses("- 4000:4100 ack 1001", TcpDrop::OutOfWindow);
        dialogue.sends(&["- 1001:1001 ack 5001"]);
    }
    dialogue.refuses("- 4000:4000 ack 1001", TcpDrop::OutOfWindow);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.refuses("- 4000:4000 ack 1001", TcpDrop::OutOfWindow);
    dialogue.sends(&[]);
    dialogue.ends();
}

// RFC 9293 section 3.10.7.4: a segment is acceptable only if its last byte is in the window.
#[test]
fn data_that_ends_in_front_of_the_window_does_not_open_a_connection() {
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.refuses("- 5000:5001 ack 1001", TcpDrop::OutOfWindow);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    assert_eq!(dialogue.state(), StateName::SynReceived);
    dialogue.gets("- 5000:5002 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5002 sack 5000:5001"]);
    assert_eq!((dialogue.state(), dialogue.connection.received()), (StateName::Established, 1));
    dialogue.ends();
}
