//! Segments that no honest peer sends: each class of known attack on TCP stacks by name.

use super::*;
use crate::limits::{TCP_GAPS_MAX, TCP_SENT_MAX};

// RFC 5961 section 3.2.
#[test]
fn a_reset_inside_the_window_is_challenged_and_one_beyond_it_is_not_answered() {
    for (from_edge, answer) in [(0, &[][..]), (1, &["- 1001:1001 ack 5001"][..])] {
        let mut dialogue = Dialogue::established(plain());
        let at = 5_001 + dialogue.connection.info().unwrap().window - from_edge;
        dialogue.refuses(&format!("R {at}:{at}"), TcpDrop::ResetBlind);
        dialogue.sends(answer);
        dialogue.ends();
    }
}

#[test]
fn a_reset_is_accepted_only_at_the_next_expected_number() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.refuses("R 5002:5002", TcpDrop::ResetBlind);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.refuses("R 4999:4999", TcpDrop::OutOfWindow);
    dialogue.refuses("R 1000000:1000000", TcpDrop::OutOfWindow);
    dialogue.sends(&[]);
    assert_eq!(dialogue.state(), StateName::Established);
    dialogue.ends();
}

// RFC 9293 MUST-66, SHLD-2.
#[test]
fn a_reset_is_accepted_at_a_closed_window_and_with_data() {
    for reset in ["R 6001:6001", "R 6001:6030"] {
        let mut dialogue = Dialogue::full();
        dialogue.gets(reset);
        assert_eq!(dialogue.connection.failure(), Some(Failure::Reset), "{reset}");
        dialogue.ends();
    }
}

#[test]
fn a_syn_inside_the_window_is_challenged() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.refuses("S 5001:5001", TcpDrop::SynInWindow);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.after(1_000);
    dialogue.refuses("S 5500:5500 ack 1001", TcpDrop::SynInWindow);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    assert_eq!(dialogue.state(), StateName::Established);
    dialogue.ends();
}

#[test]
fn challenge_acks_are_limited_for_each_connection() {
    let mut dialogue = Dialogue::established(plain());
    let mut sent = 0;
    for _ in 0..1_000 {
        dialogue.refuses("S 5001:5001", TcpDrop::SynInWindow);
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {
            sent += 1;
        }
        dialogue.after(1);
    }
    assert_eq!(sent, 2, "one in 500 ms");
    // Another connection has a limit of its own, so that nobody can count here what happens there (CVE-2016-5696).
    let mut other = Dialogue::established(plain());
    other.refuses("S 5001:5001", TcpDrop::SynInWindow);
    other.sends(&["- 1001:1001 ack 5001"]);
    dialogue.ends();
    other.ends();
}

// RFC 9293 MAY-12.
#[test]
fn acknowledgements_of_unsent_data_change_nothing() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.refuses("- 5001:5101 ack 1102", TcpDrop::AckUnsent);
    dialogue.sends(&["- 1101:1101 ack 5001"]);
    dialogue.refuses("- 5001:5101 ack 4000000000", TcpDrop::AckOld);
    dialogue.refuses("- 5001:5101", TcpDrop::NoAck);
    assert_eq!((dialogue.connection.received(), dialogue.connection.info().unwrap().flight), (0, 100));
    dialogue.ends();
}

#[test]
fn a_segment_with_an_old_or_missing_timestamp_is_refused() {
    let mut dialogue = Dialogue::established_by(Config::LINUX, "S 5000:5000 ack 1001 mss 1000 ts 1000 1");
    dialogue.gets("- 5001:5101 ack 1001 ts 1001 1");
    dialogue.sends(&["- 1001:1001 ack 5101"]);
    assert_eq!(dialogue.last[0].options.timestamps.unwrap().echo, 1_001);
    dialogue.refuses("- 5101:5201 ack 1001 ts 1000 1", TcpDrop::TimestampOld);
    dialogue.sends(&["- 1001:1001 ack 5101"]);
    dialogue.refuses("- 5101:5201 ack 1001", TcpDrop::TimestampMissing);
    dialogue.sends(&[]);
    // Out of order, a newer one is not echoed (RFC 7323 section 4.3).
    dialogue.gets("- 5201:5301 ack 1001 ts 1005 1");
    dialogue.sends(&["- 1001:1001 ack 5101"]);
    assert_eq!(dialogue.last[0].options.timestamps.unwrap().echo, 1_001);
    // A reset needs none.
    dialogue.gets("R 5101:5101");
    assert_eq!(dialogue.connection.failure(), Some(Failure::Reset));
    dialogue.ends();
    // After 24 days of silence an old one is believed again (section 5.5).
    let mut dialogue = Dialogue::established_by(Config::LINUX, "S 5000:5000 ack 1001 mss 1000 ts 1000 1");
    dialogue.after(24 * 24 * 3_600_000 - 1);
    dialogue.refuses("- 5001:5101 ack 1001 ts 900 1", TcpDrop::TimestampOld);
    dialogue.after(1);
    dialogue.gets("- 5001:5101 ack 1001 ts 900 1");
    dialogue.ends();
}

#[test]
fn sack_panic_a_tiny_mss_costs_bounded_bookkeeping() {
    // CVE-2019-11477 to 11479: an MSS of 1, a large window, and SACK of every other crumb.
    let mut dialogue = Dialogue::established_by(
        Config { send_buffer_bytes_max: 1 << 20, ..plain() },
        "S 5000:5000 ack 1001 mss 1 sackok ws 14",
    );
    assert_eq!(dialogue.connection.info().unwrap().segment_bytes, 48);
    let bytes = stream(1 << 20);
    for round in 0..200 {
        let _ = dialogue.connection.send(dialogue.now, &bytes);
        while dialogue.connection.poll_transmit(dialogue.now, 64_000).is_some() {}
        let info = dialogue.connection.info().unwrap();
        assert!(info.sent_segments <= 2 * usize::from(TCP_SENT_MAX), "{info:?}");
        let at = 1_100 + round * 97;
        let segment = format!("- 5001:5001 ack 1001 win 60000 sack {}:{} {}:{}", at, at + 49, at + 9_000, at + 9_050);
        dialogue.gets(&segment);
        dialogue.after(50);
    }
    dialogue.ends();
}

#[test]
fn segment_smack_a_flood_of_gaps_is_bounded_in_memory_and_the_stream_continues() {
    let mut dialogue = Dialogue::established(plain());
    let mut dropped = 0;
    for at in 0..10_000 {
        let first = 5_003 + at * 2;
        match dialogue.take(&format!("- {first}:{} ack 1001", first + 1), false) {
            Ok(()) => {}
            Err(reason) => {
                assert_eq!(reason, TcpDrop::GapLimit);
                dropped += 1;
            }
        }
    }
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.gaps, dropped), (TCP_GAPS_MAX, 10_000 - TCP_GAPS_MAX));
    assert!(info.buffer_bytes <= 64 << 10, "{info:?}");
    dialogue.gets("- 5001:20001 ack 1001");
    assert_eq!((dialogue.connection.received(), dialogue.connection.info().unwrap().gaps), (15_000, 0));
    dialogue.ends();
}

#[test]
fn bytes_beyond_the_receive_window_take_no_memory() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.refuses("- 200001:201001 ack 1001", TcpDrop::OutOfWindow);
    dialogue.refuses("- 70536:71536 ack 1001", TcpDrop::WindowFull);
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.gaps, info.buffer_bytes), (0, 0));
    // Data beyond the window is cut at the window's edge.
    dialogue.gets("- 70036:71036 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 70036:70536"]);
    dialogue.ends();
}

#[test]
fn sack_blocks_of_unsent_data_or_with_swapped_edges_change_nothing() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    for sack in ["5001:6001", "3001:2001", "2001:9001", "2001:2001", "4000000000:4000001000", "900:3001"] {
        dialogue.gets(&format!("- 5001:5001 ack 1001 sack 1500:1600 {sack}"));
        assert_eq!(dialogue.connection.info().unwrap().flight, 3_000, "{sack}");
    }
    dialogue.sends(&[]);
    dialogue.ends();
}

#[test]
fn sacked_data_that_the_peer_discards_is_retransmitted() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001 sack 2001:3001");
    dialogue.after(50);
    dialogue.gets("- 5001:5001 ack 2001");
    // SACK reported the segment, so it is not sent again at first: the peer may still hold it. In the end the timer
    // repeats it (RFC 2018 section 8).
    for _ in 0..3 {
        dialogue.timeout();
        if dialogue.connection.poll_transmit(dialogue.now, 0).is_some_and(|segment| segment.payload.len == 1_000) {
            return dialogue.ends();
        }
    }
    panic!("it was never repeated");
}

#[test]
fn data_behind_a_fin_and_a_second_fin_at_another_number_are_ignored() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("F 5101:5201 ack 1001");
    let _ = dialogue.take("F 5301:5401 ack 1001", false);
    dialogue.gets("- 5001:5101 ack 1001");
    assert_eq!((dialogue.state(), dialogue.connection.received()), (StateName::CloseWait, 200));
    dialogue.refuses("- 5202:5302 ack 1001", TcpDrop::AfterFin);
    assert_eq!(dialogue.connection.received(), 200);
    dialogue.ends();
}

#[test]
fn two_peers_out_of_step_do_not_answer_each_other_for_ever() {
    let mut pair = pair::Pair::established(Config::LINUX, Config::LINUX);
    // Both ends are put out of step by a segment that neither sent.
    let far = Header {
        source_port: 2,
        destination_port: 1,
        seq: SeqNumber(77),
        ack: Some(SeqNumber(99)),
        options: HeaderOptions {
            timestamps: Some(Timestamps { value: u32::MAX / 2, echo: 1 }),
            ..HeaderOptions::default()
        },
        ..Header::default()
    };
    let before = pair.counts;
    for _ in 0..100 {
        let _ = pair.ends[0].handle_segment(pair.now, &far, false, [].as_slice(), 0);
        let _ = pair.ends[1].handle_segment(pair.now, &far, false, [].as_slice(), 0);
        pair.run(ms(5));
    }
    assert!(pair.counts[0] + pair.counts[1] - before[0] - before[1] < 10, "{pair:?}");
    pair.transfer(0, &stream(10_000));
    pair.close();
}

// RFC 5961 section 7.
#[test]
fn a_syn_outside_of_the_window_counts_for_the_limit_of_challenges() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.refuses("S 4000:4000", TcpDrop::OutOfWindow);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.refuses("S 4000:4000", TcpDrop::OutOfWindow);
    dialogue.refuses("- 4000:4000 ack 1001", TcpDrop::OutOfWindow);
    dialogue.sends(&[]);
    dialogue.ends();
}
