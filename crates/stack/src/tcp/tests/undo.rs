//! Reductions that proved to be for nothing: DSACK, Eifel, F-RTO; and duplicates reported to a sender.

use super::pair::{CLIENT, Fault, Pair};
use super::*;

/// Ten segments of 1,000 bytes are out, 100 ms ago, with more to send; timestamps are in use and stood at 1,433.
fn ten_out_stamped() -> Dialogue {
    let config = Config { congestion: CongestionControl::Reno, ..Config::LINUX };
    let mut dialogue = Dialogue::established_by(config, "S 5000:5000 ack 1001 mss 1012 sackok ts 100 1333");
    dialogue.write(30_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    assert_eq!(dialogue.info().flight, 10_000);
    dialogue.after(100);
    dialogue
}

fn ten_out() -> Dialogue {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(30_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    assert_eq!(dialogue.info().flight, 10_000);
    dialogue.after(100);
    dialogue
}

impl Dialogue {
    fn info(&self) -> Info {
        self.connection.info().unwrap()
    }

    /// Waits until the retransmission timer has run out, what goes before being of no interest.
    fn times_out(&mut self) {
        while self.info().recovery != RecoveryPhase::Loss {
            while self.connection.poll_transmit(self.now, 0).is_some() {}
            self.timeout();
        }
    }
}

#[test]
fn a_timestamp_echo_older_than_the_retransmission_undoes_a_timeout() {
    let mut dialogue = ten_out_stamped();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    assert_eq!((dialogue.info().threshold, dialogue.info().congestion_window), (5_000, 1_000));
    dialogue.after(50);
    dialogue.gets("- 5001:5001 ack 2001 ts 200 1433");
    let info = dialogue.info();
    assert_eq!((info.recovery, info.threshold, info.undone_reductions), (RecoveryPhase::Open, u32::MAX, 1));
    assert!(info.congestion_window >= 10_000 && info.repeated_segments == 1, "{info:?}");
    // The rest flies on and none of it goes twice.
    dialogue.gets("- 5001:5001 ack 6001 ts 201 1433");
    while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
        assert!(segment.payload.seq.at_or_after(SeqNumber(11_001)), "{segment:?}");
    }
    dialogue.ends();
}

#[test]
fn a_timestamp_echo_from_before_an_outage_undoes_nothing_and_gives_no_rtt_sample() {
    let mut dialogue = ten_out_stamped();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(30_000);
    dialogue.connection.carrier_up(dialogue.now);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(10);
    // The first had arrived before the carrier went, its acknowledgement had not; of the others nobody knows.
    dialogue.gets("- 5001:5001 ack 2001 ts 200 1433");
    dialogue.sends(&["- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    let info = dialogue.info();
    assert!(info.rtt < Some(Duration::from_secs(1)) && info.timeout < Duration::from_secs(1), "{info:?}");
    dialogue.ends();
}

#[test]
fn a_timestamp_echo_of_the_retransmission_undoes_nothing() {
    let mut dialogue = ten_out_stamped();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    let stamp = dialogue.last[0].options.timestamps.unwrap().value;
    dialogue.after(100);
    dialogue.gets(&format!("- 5001:5001 ack 2001 ts 200 {stamp}"));
    let info = dialogue.info();
    assert_eq!((info.recovery, info.threshold, info.undone_reductions), (RecoveryPhase::Loss, 5_000, 0));
    dialogue.ends();
}

#[test]
fn a_timestamp_echo_older_than_the_retransmission_undoes_a_recovery() {
    let mut dialogue = ten_out_stamped();
    dialogue.gets("- 5001:5001 ack 1001 ts 200 1433 sack 2001:5001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(10);
    dialogue.gets("- 5001:5001 ack 5001 ts 201 1433");
    let info = dialogue.info();
    assert_eq!((info.recovery, info.threshold, info.undone_reductions), (RecoveryPhase::Open, u32::MAX, 1));
    // Three segments behind a hole mean nothing any more.
    dialogue.gets("- 5001:5001 ack 5001 ts 202 1433 sack 6001:9001");
    assert_eq!(dialogue.info().recovery, RecoveryPhase::Open);
    dialogue.ends();
}

#[test]
fn an_old_timestamp_echo_without_an_acknowledgement_undoes_nothing() {
    let mut dialogue = ten_out_stamped();
    dialogue.gets("- 5001:5001 ack 1001 ts 200 1433 sack 2001:5001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(10);
    dialogue.gets("- 5001:5001 ack 1001 ts 201 1433 sack 2001:6001");
    assert_eq!((dialogue.info().recovery, dialogue.info().undone_reductions), (RecoveryPhase::Recovery, 0));
    dialogue.ends();
}

#[test]
fn frto_sends_new_data_after_a_timeout_and_undoes_it_if_the_flight_was_only_late() {
    let mut dialogue = ten_out();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001");
    // A tail-loss probe had taken 11001 already.
    dialogue.sends(&["- 12001:13001 ack 5001", "- 13001:14001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 3001");
    let info = dialogue.info();
    assert_eq!((info.recovery, info.threshold, info.undone_reductions), (RecoveryPhase::Open, u32::MAX, 1));
    for ack in (4_001..=11_001).step_by(1_000) {
        dialogue.gets(&format!("- 5001:5001 ack {ack}"));
        while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
            assert!(segment.payload.seq.at_or_after(SeqNumber(14_001)), "no going back: {segment:?}");
        }
    }
    assert_eq!(dialogue.info().repeated_segments, 1);
    dialogue.ends();
}

#[test]
fn frto_with_sack_undoes_a_timeout_by_one_acknowledgement_beyond_the_retransmission() {
    let mut dialogue = ten_out();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    // Had the second segment arrived before the timeout, SACK would have reported it.
    dialogue.gets("- 5001:5001 ack 3001");
    assert_eq!((dialogue.info().recovery, dialogue.info().undone_reductions), (RecoveryPhase::Open, 1));
    dialogue.ends();
}

#[test]
fn frto_waits_for_the_answer_to_new_data_while_the_peer_sends() {
    let mut dialogue = ten_out();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 12001:13001 ack 5001", "- 13001:14001 ack 5001"]);
    dialogue.gets("- 5001:5101 ack 2001");
    dialogue.sends(&["- 14001:14001 ack 5101"]);
    dialogue.gets("- 5101:5101 ack 3001");
    assert_eq!((dialogue.info().recovery, dialogue.info().undone_reductions), (RecoveryPhase::Open, 1));
    dialogue.ends();
}

#[test]
fn frto_without_sack_undoes_a_timeout_by_an_acknowledgement_of_data_sent_once() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(30_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 11001:12001 ack 5001", "- 12001:13001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 3001");
    assert_eq!((dialogue.info().recovery, dialogue.info().undone_reductions), (RecoveryPhase::Open, 1));
    dialogue.ends();
}

#[test]
fn frto_retransmits_if_new_data_is_sacked_before_missing_data() {
    let mut dialogue = ten_out();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 12001:13001 ack 5001", "- 13001:14001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001 sack 12001:13001");
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    let info = dialogue.info();
    assert_eq!((info.recovery, info.threshold, info.undone_reductions), (RecoveryPhase::Loss, 5_000, 0));
    dialogue.ends();
}

#[test]
fn frto_sends_new_data_that_nagles_algorithm_holds_back() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(1_012);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:2013 ack 5001"]);
    dialogue.timeout();
    dialogue.sends(&["- 2001:2013 ack 5001"]);
    dialogue.write(100);
    dialogue.sends(&[]);
    dialogue.timeout();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 2013:2113 ack 5001"]);
    dialogue.ends();
}

// RFC 8985 section 6.2: what the needless retransmissions were is forgotten, but not what arrived of the first transmissions.
#[test]
fn sacks_of_an_acknowledgement_that_undoes_a_timeout_start_the_reordering_timer() {
    let mut dialogue = ten_out_stamped();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 3001 ts 200 1433 sack 5001:7001");
    assert_eq!((dialogue.info().recovery, dialogue.info().undone_reductions), (RecoveryPhase::Open, 1));
    while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
        assert!(segment.payload.seq.at_or_after(SeqNumber(11_001)), "{segment:?}");
    }
    assert!(dialogue.timeout() < ms(100));
    let segment = dialogue.connection.poll_transmit(dialogue.now, 0);
    assert_eq!(segment.map(|segment| segment.payload.seq), Some(SeqNumber(3_001)));
    dialogue.ends();
}

// RFC 8985 section 6.2: an acknowledgement shows reordering only if it reports less than an earlier one.
#[test]
fn the_order_of_sack_blocks_is_no_sign_of_reordering() {
    for blocks in ["7001:9001 5001:6001", "5001:6001 7001:9001"] {
        let mut dialogue = ten_out();
        dialogue.gets(&format!("- 5001:5001 ack 3001 sack {blocks}"));
        let segment = dialogue.connection.poll_transmit(dialogue.now, 0);
        assert_eq!(segment.map(|segment| segment.payload.seq), Some(SeqNumber(3_001)), "{blocks}");
        dialogue.ends();
    }
}

#[test]
fn frto_retransmits_if_the_window_is_too_small_for_new_data() {
    let mut dialogue = ten_out();
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001 win 10010");
    dialogue.sends(&["- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn frto_without_sack_ignores_data_that_arrived_before_the_timeout() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(30_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    // Only the first was lost: all are acknowledged by its repetition.
    dialogue.gets("- 5001:5001 ack 8001");
    assert_eq!((dialogue.info().undone_reductions, dialogue.info().threshold), (0, 5_000));
    // The acknowledgement of many opens the window by one segment only (RFC 3465).
    assert_eq!(dialogue.info().congestion_window, 2_000);
    dialogue.ends();
}

#[test]
fn a_timeout_during_recovery_retransmits_and_sends_no_new_data() {
    let mut dialogue = ten_out();
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:5001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    assert_eq!(dialogue.info().threshold, 5_000, "not reduced twice");
    dialogue.gets("- 5001:5001 ack 5001");
    dialogue.sends(&["- 5001:6001 ack 5001", "- 6001:7001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn sacked_data_that_the_peer_discarded_undoes_no_timeout() {
    let mut dialogue = ten_out();
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:3001 4001:5001");
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.times_out();
    dialogue.gets("- 5001:5001 ack 5001");
    assert_eq!(dialogue.info().undone_reductions, 0);
    dialogue.ends();
}

#[test]
fn a_reduction_by_ecn_is_not_undone_with_an_earlier_one() {
    let config = Config { ecn: true, ..plain() };
    let now = Instant::from_ns(1_000_000_000);
    let mut dialogue =
        Dialogue::begin(Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(1_000)).unwrap());
    dialogue.sends(&["SEC 1000:1000"]);
    dialogue.after(100);
    dialogue.gets("SE 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.write(30_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:5001");
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.gets("- 5001:5001 ack 11001");
    let before = dialogue.info().congestion_window;
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.gets("E 5001:5001 ack 11001");
    let reduced = dialogue.info().congestion_window;
    assert!(reduced < before, "{reduced} {before}");
    dialogue.gets("E 5001:5001 ack 11001 sack 1001:2001");
    assert_eq!((dialogue.info().congestion_window, dialogue.info().undone_reductions), (reduced, 0));
    dialogue.ends();
}

#[test]
fn a_timeout_without_new_data_continues_by_retransmission() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_fin_does_not_count_as_new_data_and_follows_retransmissions() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.times_out();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&[]);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 2001:3001 ack 5001", "- 3001:4001 ack 5001", "F 4001:4001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_dsack_for_each_retransmission_undoes_a_recovery_during_it_or_later() {
    for over in [false, true] {
        let mut dialogue = ten_out();
        dialogue.gets("- 5001:5001 ack 1001 sack 2001:5001");
        dialogue.sends(&["- 1001:2001 ack 5001"]);
        if over {
            dialogue.gets("- 5001:5001 ack 11001");
            assert_eq!((dialogue.info().recovery, dialogue.info().threshold), (RecoveryPhase::Open, 5_000));
            dialogue.gets("- 5001:5001 ack 11001 sack 1001:2001");
        } else {
            dialogue.gets("- 5001:5001 ack 5001 sack 1001:2001");
        }
        let info = dialogue.info();
        assert_eq!((info.recovery, info.threshold, info.undone_reductions), (RecoveryPhase::Open, u32::MAX, 1));
        assert!(info.congestion_window >= 10_000 && info.duplicate_bytes == 1_000, "{info:?}");
        dialogue.ends();
    }
}

/// The window of a CUBIC connection after a loss and `rounds` round trips, with or without a spurious recovery.
fn cubic_after(rounds: u32, spurious: bool) -> u32 {
    let config = Config { congestion: CongestionControl::Cubic, ..plain() };
    let mut dialogue = Dialogue::established_by(config, "S 5000:5000 ack 1001 mss 1000 sackok ws 4");
    let mut acked = 1_001;
    for round in 0..rounds {
        let _ = dialogue.connection.send(dialogue.now, &stream(200_000));
        while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
            dialogue.sent_to = dialogue.sent_to.max((segment.payload.seq + segment.payload.len).0);
        }
        let all = dialogue.sent_to;
        dialogue.after(100);
        if round == 0 || (round == 8 && spurious) {
            dialogue.gets(&format!("- 5001:5001 ack {acked} sack {}:{}", acked + 1_000, acked + 4_000));
            dialogue.sends(&[&format!("- {acked}:{} ack 5001", acked + 1_000)]);
        }
        if round == 8 && spurious {
            dialogue.gets(&format!("- 5001:5001 ack {} sack {acked}:{}", acked + 4_000, acked + 1_000));
            assert_eq!(dialogue.info().undone_reductions, 1);
        }
        dialogue.gets(&format!("- 5001:5001 ack {all}"));
        acked = all;
    }
    dialogue.info().congestion_window
}

#[test]
fn cubic_grows_after_a_spurious_recovery_as_without_one() {
    let (with, without) = (cubic_after(70, true), cubic_after(70, false));
    assert!(with.abs_diff(without) <= 1_000, "{with} {without}");
}

#[test]
fn a_dsack_for_one_of_two_retransmissions_undoes_nothing() {
    let mut dialogue = ten_out();
    dialogue.gets("- 5001:5001 ack 1001 sack 3001:8001");
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 10001 sack 1001:2001");
    assert_eq!((dialogue.info().undone_reductions, dialogue.info().threshold), (0, 5_000));
    dialogue.gets("- 5001:5001 ack 10001 sack 2001:3001");
    assert_eq!((dialogue.info().undone_reductions, dialogue.info().threshold), (1, u32::MAX));
    dialogue.ends();
}

// RFC 2883 section 4: the first blocks that report a duplicate, and those that do not.
#[test]
fn a_first_block_below_the_acknowledgement_or_inside_the_second_is_a_dsack() {
    for (told, bytes) in [
        ("ack 2001 sack 1001:2001", 1_000),
        ("ack 2001 sack 1001:2001 3001:4001", 1_000),
        ("ack 1001 sack 3001:4001 2001:5001", 1_000),
        ("ack 1001 sack 2001:3001 2001:5001", 1_000),
        ("ack 1001 sack 4001:5001 2001:5001", 1_000),
        ("ack 1001 sack 4001:6001 2001:5001", 0),
        ("ack 1001 sack 2001:3001 3001:5001", 0),
        ("ack 1001 sack 2001:3001", 0),
    ] {
        let mut dialogue = ten_out();
        dialogue.gets(&format!("- 5001:5001 {told}"));
        assert_eq!(dialogue.connection.info().unwrap().duplicate_bytes, bytes, "{told}");
        dialogue.ends();
    }
}

#[test]
fn dsacks_of_unretransmitted_or_impossible_ranges_change_nothing() {
    for sack in ["900:1000", "4000000000:1001", "1001:1001", "2001:1001"] {
        let mut dialogue = ten_out();
        dialogue.gets(&format!("- 5001:5001 ack 3001 sack {sack}"));
        dialogue.gets("- 5001:5001 ack 3001 sack 4001:5001");
        assert_eq!(dialogue.info().undone_reductions, 0, "{sack}");
        // A quarter of the least round trip, as if the peer had reported nothing.
        assert_eq!(dialogue.timeout(), ms(25), "{sack}");
        dialogue.ends();
    }
}

#[test]
fn each_round_trip_with_a_dsack_widens_the_reordering_window() {
    let mut dialogue = ten_out();
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:5001");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 11001 sack 1001:2001");
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 12001 sack 13001:14001");
    assert_eq!(dialogue.timeout(), ms(50), "two quarters of the least round trip");
    dialogue.ends();
}

#[test]
fn a_path_that_delays_everything_once_causes_few_retransmissions() {
    for (sack, timestamps) in [(true, true), (true, false), (false, true)] {
        for congestion in CongestionControl::ALL {
            let config = Config { sack, timestamps, congestion, ..Config::LINUX };
            let mut pair = Pair::established(config, config);
            pair.delay = ms(20);
            pair.transfer(CLIENT, &stream(400_000));
            let before = pair.ends[CLIENT].info().unwrap();
            pair.held_until = pair.now + ms(900);
            pair.transfer(CLIENT, &stream(1_000_000));
            let info = pair.ends[CLIENT].info().unwrap();
            assert!(info.undone_reductions > 0, "{sack} {timestamps} {congestion:?} {pair:?}");
            // BBR never sets cwnd below four segments, so it sends more before the undo.
            let most = if congestion == CongestionControl::Bbr { 24 } else { 12 };
            assert!(
                info.repeated_segments < before.repeated_segments + most,
                "{sack} {timestamps} {congestion:?} {pair:?}"
            );
            assert_eq!(info.threshold, before.threshold, "{sack} {timestamps} {congestion:?} {pair:?}");
            pair.run(ms(3_000));
            pair.close();
        }
    }
}

#[test]
fn a_receiver_reports_partial_and_adjacent_duplicates_by_dsack() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:6001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    dialogue.gets("- 5501:6501 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6501 sack 5501:6001"]);
    dialogue.gets("- 7001:8001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6501 sack 7001:8001"]);
    dialogue.gets("- 7501:8501 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6501 sack 7501:8001 7001:8501"]);
    dialogue.gets("- 6501:7101 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 8501 sack 7001:7101"]);
    // Two that follow each other before there was an acknowledgement are one.
    dialogue.refuses("- 5001:6001 ack 1001", TcpDrop::OutOfWindow);
    dialogue.refuses("- 6001:7001 ack 1001", TcpDrop::OutOfWindow);
    dialogue.sends(&["- 1001:1001 ack 8501 sack 5001:7001"]);
    dialogue.ends();
}

#[test]
fn a_dsack_follows_a_full_segment_that_had_no_room_for_it() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:6001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    dialogue.refuses("- 5001:6001 ack 1001", TcpDrop::Duplicate);
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 6001", "- 2001:2001 ack 6001 sack 5001:6001"]);
    dialogue.ends();
}

#[test]
fn a_loss_with_ecn_sets_cwr_and_retransmissions_are_not_ecn_capable() {
    let config = Config { ecn: true, ..plain() };
    let mut pair = Pair::established(config, config);
    let first = pair.counts[CLIENT];
    let told = std::rc::Rc::new(std::cell::Cell::new(0));
    let (seen, mut highest) = (told.clone(), None);
    pair.faults[CLIENT] = Box::new(move |number, packet| {
        let end = packet.header.seq + packet.header.sequence_len(packet.payload.len());
        let fresh = !packet.payload.is_empty() && highest.is_none_or(|highest| end.after(highest));
        highest = highest.filter(|_| !fresh).or(Some(end));
        assert_eq!(packet.ecn_capable, fresh, "neither repetitions nor bare acknowledgements are marked");
        seen.set(seen.get() + u32::from(packet.header.flags.cwr));
        (number == first + 3).then_some(Fault::Drop)
    });
    pair.transfer(CLIENT, &stream(100_000));
    assert_eq!(told.get(), 1);
    pair.faults[CLIENT] = Box::new(|_, _| None);
    pair.close();
}

// RFC 4015 section 3.2.
#[test]
fn an_acknowledgement_with_a_mark_ends_a_spurious_timeout_without_a_larger_window() {
    for (flags, window) in [("-", 20_000), ("E", 1_000)] {
        let mut dialogue = Dialogue::connecting_with(Config { ecn: true, ..plain() }, "SEC 1000:1000");
        dialogue.after(100);
        dialogue.gets("SE 5000:5000 ack 1001 mss 1000 sackok");
        dialogue.write(30_000);
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        dialogue.times_out();
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        // All data was received, although only the first segment was sent again.
        dialogue.gets(&format!("{flags} 5001:5001 ack 11001"));
        let info = dialogue.info();
        assert_eq!((info.recovery, info.congestion_window), (RecoveryPhase::Open, window), "{flags}");
        dialogue.ends();
    }
}

// RFC 3168 section 6.1.2.
#[test]
fn an_acknowledgement_with_a_mark_does_not_grow_the_window_before_it_is_reduced() {
    let mut dialogue = Dialogue::connecting_with(Config { ecn: true, ..plain() }, "SEC 1000:1000");
    dialogue.after(100);
    dialogue.gets("SE 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.write(30_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.after(100);
    dialogue.gets("E 5001:5001 ack 11001");
    assert_eq!(dialogue.info().congestion_window, 5_000);
    dialogue.ends();
}
