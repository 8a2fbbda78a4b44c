//! Finding and repairing loss: SACK, RACK, PRR, tail-loss probes, NewReno, the retransmission timeout.

use super::*;

/// Ten segments of 1,000 bytes are out.
fn ten_out(config: Config) -> Dialogue {
    let mut dialogue = Dialogue::established(config);
    dialogue.write(30_000);
    for at in 0..10 {
        let segment = dialogue.connection.poll_transmit(dialogue.now, 0).unwrap();
        assert_eq!(segment.payload.seq, SeqNumber(1_001 + at * 1_000));
    }
    dialogue.sends(&[]);
    dialogue.after(100);
    dialogue
}

#[test]
fn three_sacked_segments_behind_a_hole_retransmit_it_at_once() {
    let mut dialogue = ten_out(plain());
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:3001");
    // Limited transmit (RFC 3042): what left the network makes room.
    dialogue.sends(&["- 11001:12001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:4001");
    dialogue.sends(&["- 12001:13001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:5001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.threshold), (RecoveryPhase::Recovery, 5_000));
    dialogue.ends();
}

#[test]
fn recovery_sends_half_of_the_delivered_data_and_ends_at_the_threshold() {
    let mut dialogue = ten_out(plain());
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:5001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    let mut sent = 0;
    for end in [6_001, 7_001, 8_001, 9_001, 10_001, 11_001] {
        dialogue.gets(&format!("- 5001:5001 ack 1001 sack 2001:{end}"));
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {
            sent += 1;
        }
    }
    // Nine arrived and the flight was ten: PRR lets five in all go, the repetition among them.
    assert_eq!(sent, 4);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 11001");
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.congestion_window), (RecoveryPhase::Open, 5_000));
    dialogue.ends();
}

// RFC 9937: PRR-SSRB if the ACK advances SND.UNA and reveals no further loss.
#[test]
fn recovery_fills_the_flight_to_the_threshold_while_no_further_loss_is_found() {
    let mut dialogue = ten_out(plain());
    dialogue.gets("- 5001:5001 ack 1001 sack 7001:11001");
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001", "- 4001:5001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 2001 sack 7001:11001");
    dialogue.sends(&["- 5001:6001 ack 5001", "- 6001:7001 ack 5001"]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.flight, info.threshold), (RecoveryPhase::Recovery, 5_000, 5_000));
    for (acked, fresh) in [(3_001, "- 11001:12001 ack 5001"), (4_001, "- 12001:13001 ack 5001")] {
        dialogue.gets(&format!("- 5001:5001 ack {acked} sack 7001:11001"));
        dialogue.sends(&[fresh]);
    }
    dialogue.ends();
}

// RFC 9937: PRR-CRB if the ACK reveals a further loss.
#[test]
fn recovery_sends_only_what_was_delivered_if_a_further_loss_is_found() {
    let mut dialogue = ten_out(plain());
    dialogue.gets("- 5001:5001 ack 1001 sack 7001:10001");
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.after(100);
    // The retransmission arrived before the segment at 10001, which is therefore lost.
    dialogue.gets("- 5001:5001 ack 2001 sack 7001:10001");
    dialogue.sends(&["- 4001:5001 ack 5001"]);
    dialogue.ends();
}

/// Sends so much, which is acknowledged at once a round trip later; says what the congestion window is then.
fn window_after(dialogue: &mut Dialogue, bytes: usize) -> u32 {
    dialogue.write(bytes);
    while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
        dialogue.sent_to = (segment.payload.seq + segment.payload.len).0;
    }
    dialogue.after(100);
    dialogue.gets(&format!("- 5001:5001 ack {}", dialogue.sent_to));
    dialogue.connection.info().unwrap().congestion_window
}

// RFC 9293 MUST-19; RFC 5681 section 3.1, RFC 7661.
#[test]
fn a_congestion_window_in_avoidance_grows_by_a_segment_and_only_if_it_is_used() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(10_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:5001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 11001");
    let unused = [2_000, 2_000, 2_000, 4_000, 4_000].map(|bytes| window_after(&mut dialogue, bytes));
    assert_eq!(unused, [5_000; 5], "a segment had room all the time");
    let used = [4_900, 4_900, 5_100, 5_100].map(|bytes| window_after(&mut dialogue, bytes));
    assert_eq!(used, [5_000, 6_000, 7_000, 7_000], "the last left room for a segment again");
    dialogue.ends();
}

// RFC 7661, as Linux.
#[test]
fn a_congestion_window_in_slow_start_grows_only_if_more_than_half_is_used() {
    let mut dialogue = Dialogue::established(plain());
    assert_eq!([5_000, 5_100].map(|bytes| window_after(&mut dialogue, bytes)), [10_000, 15_100]);
    dialogue.ends();
}

// RFC 6582 section 3.2 step 3: a partial acknowledgement takes back what the duplicates had counted of it, but for one segment.
#[test]
fn a_partial_acknowledgement_without_sack_keeps_the_flight_correct() {
    let mut dialogue = Dialogue::established_by(Config { sack: false, ..plain() }, "S 5000:5000 ack 1001 mss 1000");
    dialogue.write(10_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.after(100);
    // The first and the fourth segment are lost, eight arrive.
    for _ in 0..8 {
        dialogue.gets("- 5001:5001 ack 1001");
    }
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    assert_eq!(dialogue.connection.info().unwrap().flight, 2_000);
    dialogue.gets("- 5001:5001 ack 4001");
    assert_eq!(dialogue.connection.info().unwrap().flight, 0);
    dialogue.sends(&["- 4001:5001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 11001");
    assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Open);
    dialogue.ends();
}

// RFC 5681 section 2: a duplicate carries no data and changes no window.
#[test]
fn segments_with_data_or_a_new_window_are_no_duplicate_acknowledgements() {
    let mut dialogue = ten_out(Config { sack: false, ..plain() });
    for (first, window) in [(5_001, 60_000), (5_101, 60_000), (5_201, 60_000), (5_301, 50_000), (5_301, 50_001)] {
        let end = if window == 60_000 { first + 100 } else { first };
        dialogue.gets(&format!("P {first}:{end} ack 1001 win {window}"));
    }
    dialogue.sends(&[]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.flight), (RecoveryPhase::Open, 10_000));
    dialogue.ends();
}

// RFC 2018 section 3.
#[test]
fn sack_blocks_of_a_peer_that_did_not_offer_sack_are_ignored() {
    let mut dialogue = Dialogue::established_by(plain(), "S 5000:5000 ack 1001 mss 1000");
    dialogue.write(5_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.gets("- 5001:5101 ack 1001 sack 2001:6001");
    dialogue.sends(&[]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.flight), (RecoveryPhase::Open, 5_000));
    dialogue.ends();
}

#[test]
fn a_reordered_segment_is_not_retransmitted() {
    let mut dialogue = ten_out(plain());
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:3001");
    dialogue.after(5);
    dialogue.gets("- 5001:5001 ack 3001");
    assert_eq!(dialogue.connection.info().unwrap().repeated_segments, 0);
    dialogue.sends(&["- 11001:12001 ack 5001", "- 12001:13001 ack 5001", "- 13001:14001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn one_sacked_segment_behind_a_hole_retransmits_it_after_the_reordering_window() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:3001");
    dialogue.sends(&[]);
    // RACK.rtt is 100 ms, of which all have gone; a quarter of the least round trip is left.
    assert_eq!(dialogue.timeout(), ms(25));
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.threshold), (RecoveryPhase::Recovery, 5_000));
    dialogue.ends();
}

#[test]
fn a_tail_loss_probe_is_sent_after_two_round_trips() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    // Two round trips, and two ticks for the peer to get a CPU.
    assert_eq!(dialogue.timeout(), ms(208));
    dialogue.sends(&["- 3001:4001 ack 5001"]);
    // The probe arrived: what is missing before it is found without a timeout.
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 2001 sack 3001:4001");
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Recovery);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 4001");
    dialogue.ends();
}

// RFC 8985 section 7.2.
#[test]
fn a_tail_loss_probe_takes_the_place_of_an_earlier_timeout() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    // The RTO is 300 ms. Two round trips and the delay of an ACK are 400 ms.
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.congestion_window, info.timeout), (RecoveryPhase::Open, 10_000, ms(300)));
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.congestion_window, info.timeout), (RecoveryPhase::Loss, 1_000, ms(600)));
    dialogue.ends();
}

// RFC 8985 section 7.3: a probe needs an RTT sample since the probe before it, or since the start of the connection.
#[test]
fn no_tail_loss_probe_is_sent_without_a_new_rtt_sample() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.timeout();
    dialogue.sends(&["S 1000:1000"]);
    dialogue.gets("S 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(3_000), "the RTO after a lost SYN");
    dialogue.ends();

    let mut dialogue = Dialogue::established(plain());
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    // The peer reports that it received the segment twice. Its acknowledgement gives no sample.
    dialogue.gets("- 5001:5001 ack 2001 sack 1001:2001");
    dialogue.write(3_000);
    dialogue.sends(&["- 2001:3001 ack 5001", "- 3001:4001 ack 5001", "- 4001:5001 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(300));
    assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Loss);
    dialogue.ends();
}

// RFC 8985 section 7.2: only new data and a cumulative acknowledgement restart the timer.
#[test]
fn a_segment_without_progress_does_not_delay_the_tail_loss_probe() {
    for segment in ["- 5001:5001 ack 1001", "- 5001:5001 ack 1001 win 50000", "- 5001:5101 ack 1001"] {
        let mut dialogue = Dialogue::established(plain());
        dialogue.write(3_000);
        dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
        dialogue.after(100);
        dialogue.gets(segment);
        // The ACK of the data that arrived may be delayed.
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        dialogue.after(40);
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        assert_eq!(dialogue.timeout(), ms(68), "{segment}");
        dialogue.sends(&[&format!("- 3001:4001 ack {}", if segment.contains("5101") { 5_101 } else { 5_001 })]);
        dialogue.ends();
    }
}

#[test]
fn a_tail_loss_probe_retransmits_the_last_part_of_a_large_segment() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(3_000);
    let segment = dialogue.connection.poll_transmit(dialogue.now, 60_000).unwrap();
    assert_eq!((segment.payload.len, segment.segment_bytes), (3_000, 1_000));
    dialogue.timeout();
    dialogue.sends(&["- 3001:4001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_tail_loss_probe_sends_new_data_if_there_is_some() {
    let mut dialogue = ten_out(plain());
    dialogue.timeout();
    dialogue.sends(&["- 11001:12001 ack 5001"]);
    // The probe hides no loss: an acknowledgement of it or of later data slows nothing down.
    for ack in [12_001, 13_001] {
        dialogue.after(100);
        dialogue.gets(&format!("- 5001:5001 ack {ack}"));
        assert!(dialogue.connection.poll_transmit(dialogue.now, 0).is_some());
    }
    assert_eq!(dialogue.connection.info().unwrap().threshold, u32::MAX);
    dialogue.ends();
}

#[test]
fn a_tail_loss_probe_that_repaired_a_loss_reduces_the_window() {
    for (duplicate, reduced) in [("- 5001:5001 ack 3001", true), ("- 5001:5001 ack 3001 sack 2001:3001", false)] {
        let mut dialogue = Dialogue::established(plain());
        dialogue.write(2_000);
        dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
        dialogue.timeout();
        dialogue.sends(&["- 2001:3001 ack 5001"]);
        dialogue.gets(duplicate);
        dialogue.write(1_000);
        dialogue.sends(&["- 3001:4001 ack 5001"]);
        dialogue.after(100);
        dialogue.gets("- 5001:5001 ack 4001");
        assert_eq!(dialogue.connection.info().unwrap().threshold < u32::MAX, reduced, "{duplicate}");
        dialogue.ends();
    }
}

// RFC 9293 MUST-19.
#[test]
fn a_retransmission_timeout_doubles_and_retransmits_all_unacknowledged_data() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    // SRTT 100 ms, RTTVAR 50 ms.
    for wait in [300, 600, 1_200, 2_400] {
        assert_eq!(dialogue.timeout(), ms(wait));
        dialogue.sends(&["- 1001:2001 ack 5001"]);
    }
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.congestion_window, info.threshold, info.recovery), (1_000, 5_000, RecoveryPhase::Loss));
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 4001");
    assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Open);
    assert_eq!(dialogue.connection.poll_timeout(), None);
    dialogue.ends();
}

// RFC 8985 section 6.3: only the first segment has waited for an RTO.
#[test]
fn a_timeout_retransmits_no_segment_that_was_sent_lately() {
    let mut dialogue = Dialogue::established(Config { tail_loss_probes: false, ..plain() });
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(250);
    dialogue.write(1_000);
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(50));
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    assert_eq!(dialogue.connection.info().unwrap().congestion_window, 1_000);
    // The first segment was late, and so is the second one.
    dialogue.after(10);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&[]);
    dialogue.after(80);
    dialogue.gets("- 5001:5001 ack 3001");
    assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Open);
    dialogue.ends();
}

// RFC 6582 section 3.2 step 1: duplicates of what a timeout retransmitted are no sign of a loss.
#[test]
fn duplicate_acknowledgements_after_a_timeout_start_no_fast_recovery() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(10_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.timeout();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    // All segments were only late, and the retransmissions are duplicates.
    for (ack, sent) in [(2_001, 2), (4_001, 3)] {
        dialogue.gets(&format!("- 5001:5001 ack {ack}"));
        let mut count = 0;
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {
            count += 1;
        }
        assert_eq!(count, sent);
    }
    dialogue.gets("- 5001:5001 ack 11001");
    dialogue.write(5_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    for _ in 0..5 {
        dialogue.gets("- 5001:5001 ack 11001");
        dialogue.sends(&[]);
    }
    assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Open);
    // Duplicates above what was sent before the timeout are a sign again.
    dialogue.gets("- 5001:5001 ack 12001");
    dialogue.write(1_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    for _ in 0..3 {
        assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Open);
        dialogue.gets("- 5001:5001 ack 12001");
    }
    dialogue.sends(&["- 12001:13001 ack 5001"]);
    assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Recovery);
    dialogue.ends();
}

#[test]
fn three_duplicate_acknowledgements_start_recovery_and_partial_ones_continue_it() {
    let mut dialogue = ten_out(Config { sack: false, ..plain() });
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.sends(&["- 11001:12001 ack 5001", "- 12001:13001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 4001");
    assert_eq!(dialogue.connection.info().unwrap().recovery, RecoveryPhase::Recovery);
    dialogue.sends(&["- 4001:5001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 13001");
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.congestion_window), (RecoveryPhase::Open, 5_000));
    dialogue.ends();
}

// RFC 9293 SHLD-31, MAY-13.
#[test]
fn more_duplicate_acknowledgements_than_segments_let_one_new_segment_go() {
    let mut dialogue = Dialogue::established(Config { sack: false, no_delay: true, ..plain() });
    dialogue.write(2_500);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:3501 ack 5001"]);
    for _ in 0..2 {
        dialogue.gets("- 5001:5001 ack 1001");
        dialogue.sends(&[]);
    }
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    for _ in 0..3 {
        dialogue.gets("- 5001:5001 ack 1001");
        dialogue.connection.check();
    }
    dialogue.write(1_000);
    dialogue.sends(&["- 3501:4501 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_late_tail_loss_probe_does_not_hide_losses() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    // The probe is due, and before it can go everything is lost.
    dialogue.timeout();
    dialogue.connection.carrier_up(dialogue.now);
    let mut repeated: Vec<u32> = Vec::new();
    while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
        repeated.push(segment.payload.seq.0);
        dialogue.connection.check();
    }
    repeated.sort_unstable();
    assert_eq!(repeated, [1_001, 2_001, 3_001]);
    dialogue.ends();
}

#[test]
fn a_lost_segment_is_retransmitted_at_any_initial_sequence_number() {
    let now = Instant::from_ns(1_000_000_000);
    // The first segment lies across the middle of the numbers, or across their end.
    for iss in [0x7fff_ff00, 0x8000_0000, u32::MAX - 100, 0] {
        let config = Config { timestamps: false, ..Config::LINUX };
        let mut client = Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(iss)).unwrap();
        let syn = client.poll_transmit(now, 0).unwrap().header;
        let server = Connection::accept(now, config, &syn, initial(7)).unwrap();
        let mut pair = pair::Pair::between(now, client, server);
        pair.run(ms(30));
        let mut lost = false;
        pair.faults[0] = Box::new(move |_, packet| {
            let first = !packet.payload.is_empty() && !std::mem::replace(&mut lost, true);
            first.then_some(pair::Fault::Drop)
        });
        assert!(pair.transfer(0, &stream(20_000)) < ms(1_000), "from {iss}");
        pair.close();
    }
}

#[test]
fn a_receiver_reports_sack_blocks_latest_first_after_a_duplicate() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 6001:7001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 6001:7001"]);
    dialogue.gets("- 8001:9001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 8001:9001 6001:7001"]);
    dialogue.gets("- 10001:11001 ack 1001");
    dialogue.gets("- 12001:13001 ack 1001");
    dialogue.gets("- 14001:15001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 14001:15001 12001:13001 10001:11001 8001:9001"]);
    dialogue.refuses("- 8001:9001 ack 1001", TcpDrop::Duplicate);
    dialogue.sends(&["- 1001:1001 ack 5001 sack 8001:9001 8001:9001 14001:15001 12001:13001"]);
    dialogue.gets("- 5001:6001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 7001 sack 8001:9001 14001:15001 12001:13001 10001:11001"]);
    dialogue.refuses("- 5001:6001 ack 1001", TcpDrop::OutOfWindow);
    dialogue.sends(&["- 1001:1001 ack 7001 sack 5001:6001 8001:9001 14001:15001 12001:13001"]);
    dialogue.ends();
}

// RFC 2883 section 4.
#[test]
fn the_block_behind_a_dsack_contains_the_duplicate() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 6001:7001 ack 1001");
    dialogue.gets("- 8001:9001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 8001:9001 6001:7001"]);
    dialogue.refuses("- 6001:7001 ack 1001", TcpDrop::Duplicate);
    dialogue.sends(&["- 1001:1001 ack 5001 sack 6001:7001 6001:7001 8001:9001"]);
    // More data arrives before the duplicate is reported.
    dialogue.refuses("- 8001:8501 ack 1001", TcpDrop::Duplicate);
    dialogue.gets("- 10001:11001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 8001:8501 8001:9001 10001:11001 6001:7001"]);
    dialogue.ends();
}

// As in Linux and FreeBSD.
#[test]
fn the_first_of_several_duplicates_is_reported() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.gets("- 5201:5301 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5101 sack 5201:5301"]);
    dialogue.gets("- 5051:5251 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5301 sack 5051:5101"]);
    dialogue.ends();
}

#[test]
fn sack_blocks_go_beside_full_segments_and_inside_small_ones() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 6001:7001 ack 1001");
    dialogue.write(1_100);
    // Blocks have no room in the first; the second takes what fits.
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:2101 ack 5001 sack 6001:7001"]);
    dialogue.gets("- 8001:9001 ack 2101");
    dialogue.write(1_000);
    dialogue.sends(&["- 2101:3101 ack 5001", "- 3101:3101 ack 5001 sack 8001:9001 6001:7001"]);
    dialogue.gets("- 10001:11001 ack 3101");
    dialogue.write(985);
    dialogue.sends(&["- 3101:4086 ack 5001 sack 10001:11001"]);
    dialogue.ends();
}

#[test]
fn an_idle_connection_resets_its_congestion_window() {
    let mut dialogue = Dialogue::established(plain());
    for round in 0..6 {
        dialogue.write(20_000);
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        dialogue.after(100);
        let sent = dialogue.connection.info().unwrap().unsent;
        let _ = dialogue.take(&format!("- 5001:5001 ack {}", 1_001 + 20_000 * (round + 1) - sent), false);
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        dialogue.after(100);
        dialogue.gets(&format!("- 5001:5001 ack {}", 1_001 + 20_000 * (round + 1)));
    }
    assert!(dialogue.connection.info().unwrap().congestion_window > 20_000);
    dialogue.after(5_000);
    dialogue.write(1_000);
    dialogue.sends(&["- 121001:122001 ack 5001"]);
    assert_eq!(dialogue.connection.info().unwrap().congestion_window, 10_000);
    dialogue.ends();
}

// As in Linux.
#[test]
fn a_sack_block_that_begins_at_the_acknowledgement_number_is_ignored() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(20_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.gets("- 5001:5001 ack 3001 sack 3001:5001");
    assert_eq!(dialogue.connection.info().unwrap().flight, 8_000);
    dialogue.ends();
}

// The peer repeats a lost segment, and this segment has the peer's current window.
#[test]
fn a_segment_that_acknowledges_new_data_sets_the_window_although_its_number_is_old() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    for (seq, ack, window, is) in [(5_201, 1_001, 900, 900), (5_101, 2_001, 800, 800), (5_201, 1_001, 900, 800)] {
        dialogue.gets(&format!("- {seq}:{seq} ack {ack} win {window}"));
        assert_eq!(dialogue.connection.info().unwrap().peer_window, is, "{seq} {ack}");
    }
    dialogue.ends();
}
