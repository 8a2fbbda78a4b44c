//! Windows and small segments: zero window, silly windows, Nagle, delayed acknowledgements, buffers.

use super::pair::{CLIENT, Pair};
use super::*;

// RFC 9293 MUST-60, SHLD-7, MAY-16.
#[test]
fn a_small_segment_waits_only_for_an_unacknowledged_small_one() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.write(100);
    dialogue.sends(&[]);
    dialogue.write(1_000);
    dialogue.sends(&["- 1101:2101 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1101");
    dialogue.sends(&["- 2101:2201 ack 5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-61, SHLD-27.
#[test]
fn the_last_segment_of_written_data_has_psh() {
    let mut dialogue = Dialogue::established(plain());
    for bytes in [1_000, 1_200, 300] {
        dialogue.write(bytes);
    }
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:3501 ack 5001"]);
    assert_eq!(dialogue.last.iter().map(|header| header.flags.psh).collect::<Vec<_>>(), [false, false, true]);
    dialogue.ends();
    // A FIN that carries nothing pushes nothing, with a gap in what came or without.
    for first in [5_001, 6_001] {
        let mut dialogue = Dialogue::established(plain());
        dialogue.gets(&format!("- {first}:{} ack 1001", first + 100));
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        dialogue.write(100);
        assert!(dialogue.connection.poll_transmit(dialogue.now, 0).unwrap().header.flags.psh, "{first}");
        dialogue.connection.shutdown(dialogue.now);
        let fin = dialogue.connection.poll_transmit(dialogue.now, 0).unwrap().header;
        assert_eq!((fin.flags.fin, fin.flags.psh), (true, false), "{first}");
        dialogue.ends();
    }
}

// RFC 9293 MUST-17.
#[test]
fn no_delay_and_a_shutdown_send_a_small_segment_at_once() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.write(100);
    dialogue.connection.set_no_delay(dialogue.now, true);
    dialogue.sends(&["- 1101:1201 ack 5001"]);
    dialogue.connection.set_no_delay(dialogue.now, false);
    dialogue.write(100);
    dialogue.sends(&[]);
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1201:1301 ack 5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-19, SHLD-28.
#[test]
fn slow_start_sends_ten_segments_and_then_two_for_each_acknowledged_segment() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(60_000);
    let starts: Vec<String> =
        (0..10).map(|at| format!("- {}:{} ack 5001", 1_001 + at * 1_000, 2_001 + at * 1_000)).collect();
    dialogue.sends(&starts.iter().map(String::as_str).collect::<Vec<_>>());
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 11001:12001 ack 5001", "- 12001:13001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn cubic_ends_its_first_slow_start_when_round_trips_grow() {
    for (congestion, ends) in [(CongestionControl::Cubic, true), (CongestionControl::Reno, false)] {
        let config = Config { congestion, receive_buffer_bytes: 4 << 20, ..Config::LINUX };
        let mut pair = Pair::new(config, config);
        pair.delay = ms(20);
        pair.run(ms(200));
        // 40 segments fill the path, whose queue has no end.
        pair.occupies = ms(1);
        pair.transfer(CLIENT, &stream(4_000_000));
        let info = pair.ends[CLIENT].info().unwrap();
        assert_eq!((info.threshold < u32::MAX, info.repeated_segments), (ends, 0), "{pair:?}");
        pair.close();
    }
}

// RFC 9293 MUST-38.
#[test]
fn no_data_is_sent_beyond_the_window_of_the_peer() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5001 ack 1001 win 2500");
    dialogue.write(5_000);
    // The rest of the window is silly.
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001 win 2500");
    dialogue.sends(&["- 3001:4001 ack 5001"]);
    // An older segment does not set the window.
    dialogue.gets("- 5001:5001 ack 3001 win 1000");
    dialogue.gets("- 5001:5001 ack 2001 win 60000");
    dialogue.sends(&[]);
    dialogue.ends();
}

// RFC 9293 section 3.10.7.4: SND.WL1.
#[test]
fn a_reordered_older_segment_does_not_change_the_send_window() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5101:5201 ack 1001 win 1000");
    dialogue.gets("- 5001:5101 ack 1001 win 60000");
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:2001 ack 5201"]);
    dialogue.ends();
}

// RFC 9293 MUST-1, REC-1.
#[test]
fn a_scaled_window_is_unsigned_and_exceeds_16_bits() {
    let mut dialogue = Dialogue::established_by(plain(), "S 5000:5000 ack 1001 mss 1000 ws 14 win 65535");
    assert_eq!(dialogue.connection.info().unwrap().peer_window, 65_535);
    dialogue.gets("- 5001:5001 ack 1001 win 65535");
    assert_eq!(dialogue.connection.info().unwrap().peer_window, 65_535 << 14);
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-58, MUST-59.
#[test]
fn segments_received_together_are_acknowledged_by_one_segment() {
    let mut dialogue = Dialogue::established(plain());
    for at in 0..8 {
        dialogue.gets(&format!("- {}:{} ack 1001", 5_001 + at * 1_000, 6_001 + at * 1_000));
    }
    dialogue.sends(&["- 1001:1001 ack 13001"]);
    // A segment that is sent anyway carries the acknowledgement.
    dialogue.gets("- 13001:14001 ack 1001");
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 14001"]);
    dialogue.ends();
}

// RFC 9293 MUST-36, MUST-37, SHLD-29, SHLD-30.
#[test]
fn a_closed_window_is_probed_without_end_and_data_is_sent_once_it_opens() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5001 ack 1001 win 0");
    dialogue.write(2_000);
    dialogue.sends(&[]);
    let mut waits = Vec::new();
    for _ in 0..30 {
        waits.push(dialogue.timeout());
        dialogue.sends(&["- 1000:1000 ack 5001"]);
        dialogue.gets("- 5001:5001 ack 1001 win 0");
    }
    assert_eq!(waits[..4], [300, 600, 1_200, 2_400].map(ms));
    assert_eq!(waits[29], Duration::from_secs(120));
    dialogue.gets("- 5001:5001 ack 1001 win 5000");
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-38, MUST-60.
#[test]
fn a_window_smaller_than_a_segment_is_used_after_a_timeout() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5001 ack 1001 win 10");
    dialogue.write(2_000);
    dialogue.sends(&[]);
    dialogue.timeout();
    dialogue.sends(&["- 1001:1011 ack 5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-38: the override timeout is one second at most.
#[test]
fn a_timeout_does_not_delay_data_for_a_small_window() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    for wait in [300, 600, 1_200, 2_400] {
        assert_eq!(dialogue.timeout(), ms(wait));
        dialogue.sends(&["- 1001:1101 ack 5001"]);
    }
    // This ACK gives no RTT sample, so the RTO keeps its backoff.
    dialogue.gets("- 5001:5001 ack 1101 win 10");
    dialogue.write(2_000);
    dialogue.sends(&[]);
    assert_eq!(dialogue.connection.info().unwrap().timeout, ms(4_800));
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.sends(&["- 1101:1111 ack 5001"]);
    // A closed window is probed after the RTO with its backoff.
    dialogue.gets("- 5001:5001 ack 1111 win 0");
    dialogue.sends(&[]);
    dialogue.ends();
}

// RFC 9293 SHLD-30.
#[test]
fn a_small_window_that_closes_does_not_reset_the_probe_backoff() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5001 ack 1001 win 10");
    dialogue.write(2_000);
    dialogue.sends(&[]);
    assert_eq!(dialogue.timeout(), ms(300));
    // The window closes before a device takes the bytes for which there was room.
    dialogue.gets("- 5001:5001 ack 1001 win 0");
    for wait in [600, 1_200] {
        assert_eq!(dialogue.timeout(), ms(wait));
        dialogue.sends(&["- 1000:1000 ack 5001"]);
    }
    dialogue.ends();
}

// RFC 9293 MUST-38.
#[test]
fn a_segment_of_half_the_largest_window_is_sent_at_once() {
    let mut dialogue = Dialogue::established_by(plain(), "S 5000:5000 ack 1001 mss 1000 sackok win 800");
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:1401 ack 5001", "- 1401:1801 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1801 win 400");
    dialogue.sends(&["- 1801:2201 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2201 win 399");
    dialogue.sends(&[]);
    dialogue.ends();
}

#[test]
fn a_window_that_was_never_large_is_filled_by_one_segment() {
    let mut dialogue = Dialogue::established_by(plain(), "S 5000:5000 ack 1001 mss 1000 sackok win 500");
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:1501 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1501 win 499");
    dialogue.sends(&[]);
    dialogue.gets("- 5001:5001 ack 1501 win 500");
    dialogue.sends(&["- 1501:2001 ack 5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-34, MUST-35, SHLD-15, SHLD-16, MAY-7.
#[test]
fn a_connection_survives_a_window_that_shrinks_below_the_sent_data() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(5_000);
    let full = ["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"];
    dialogue.sends(&[&full[..], &["- 4001:5001 ack 5001", "- 5001:6001 ack 5001"]].concat());
    dialogue.gets("- 5001:5001 ack 1001 win 1500");
    // No new data is sent.
    dialogue.write(1_000);
    dialogue.sends(&[]);
    // Only the first may be repeated; what is acknowledged carries a number that the peer takes.
    let mut waits = 0;
    while dialogue.connection.info().unwrap().recovery != RecoveryPhase::Loss {
        dialogue.timeout();
        waits += 1;
        assert!(waits < 4);
        if dialogue.connection.info().unwrap().recovery != RecoveryPhase::Loss {
            dialogue.sends(&[]);
        }
    }
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001 win 0");
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    dialogue.gets("- 5001:5002 ack 2001 win 0");
    dialogue.sends(&["- 2001:2001 ack 5002"]);
    dialogue.gets("- 5002:5002 ack 2001 win 9000");
    dialogue.sends(&["- 3001:4001 ack 5002"]);
    dialogue.ends();
}

// RFC 9293 MUST-37, SHLD-17.
#[test]
fn a_window_that_closes_over_data_in_flight_does_not_end_the_connection() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    for _ in 0..40 {
        dialogue.timeout();
        dialogue.sends(&["- 1001:2001 ack 5001"]);
        dialogue.gets("- 5001:5001 ack 1001 win 0");
    }
    dialogue.gets("- 5001:5001 ack 2001 win 9000");
    assert_eq!(dialogue.state(), StateName::Established);
    dialogue.ends();
}

// RFC 9293 MUST-39, MAY-8.
#[test]
fn a_full_buffer_closes_the_window_and_reading_opens_it_by_whole_segments() {
    let config = Config { receive_buffer_bytes: 4_000, receive_buffer_bytes_max: 4_000, ..plain() };
    let mut dialogue = Dialogue::established(config);
    for at in 0..4 {
        dialogue.gets(&format!("- {}:{} ack 1001", 5_001 + at * 1_000, 6_001 + at * 1_000));
    }
    dialogue.sends(&["- 1001:1001 ack 9001"]);
    assert_eq!(dialogue.last[0].window, 0);
    // A probe of one byte is answered, not taken.
    dialogue.refuses("- 9001:9002 ack 1001", TcpDrop::WindowFull);
    dialogue.sends(&["- 1001:1001 ack 9001"]);
    dialogue.read(1_000);
    dialogue.sends(&[]);
    dialogue.refuses("- 9001:9002 ack 1001", TcpDrop::WindowFull);
    dialogue.sends(&["- 1001:1001 ack 9001"]);
    assert_eq!(dialogue.last[0].window, 0, "what is said anyway opens it by no crumb either");
    dialogue.read(1_000);
    dialogue.sends(&["- 1001:1001 ack 9001"]);
    assert_eq!(dialogue.last[0].window, 2_000);
    // An acknowledgement and a FIN are taken through a closed window too.
    dialogue.gets("- 9001:11001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 11001"]);
    assert_eq!(dialogue.last[0].window, 0);
    dialogue.gets("F 11001:11001 ack 1001");
    assert_eq!(dialogue.state(), StateName::CloseWait);
    dialogue.ends();
}

// RFC 9293 SHLD-14.
#[test]
fn an_offered_window_is_never_taken_back() {
    let config = Config { receive_buffer_bytes: 64_000, ..plain() };
    let mut dialogue = Dialogue::established(config);
    dialogue.connection.set_receive_buffer(1_000).unwrap();
    dialogue.gets("- 5001:6001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    assert_eq!(dialogue.last[0].window, 63_000, "SHLD-14");
    dialogue.ends();
}

// RFC 5681 section 2: the peer would count an identical ACK as a duplicate.
#[test]
fn reading_sends_no_acknowledgement_if_the_window_is_already_the_largest_possible() {
    // The peer does not scale windows, and the buffer is larger than the largest window.
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:7001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 7001"]);
    assert_eq!(dialogue.last[0].window, u16::MAX);
    dialogue.read(2_000);
    dialogue.sends(&[]);
    dialogue.ends();
}

#[test]
fn a_receive_buffer_made_larger_opens_the_window_of_an_open_connection() {
    let config = Config { receive_buffer_bytes: 10_000, receive_buffer_bytes_max: 10_000, ..plain() };
    let mut dialogue = Dialogue::established(config);
    assert_eq!(dialogue.last[0].window, 10_000);
    dialogue.connection.set_receive_buffer(20_000).unwrap();
    dialogue.gets("- 5001:6001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    assert_eq!(dialogue.last[0].window, 19_000, "1,000 are unread");
    dialogue.read(1_000);
    dialogue.ends();
}

#[test]
fn a_receive_buffer_grows_if_more_than_half_of_it_is_read_in_a_round_trip() {
    let config = Config { receive_buffer_bytes: 20_000, receive_buffer_bytes_max: 64_000, ..plain() };
    // Twice what was read and 16 segments.
    let grown = 2 * 10_001 + 16 * 1_460;
    for (after_ms, bytes, window) in [(99, 10_001, 20_000), (100, 10_000, 20_000), (100, 10_001, grown)] {
        let mut dialogue = Dialogue::established(config);
        dialogue.after(after_ms);
        let end = 5_001 + bytes;
        dialogue.gets(&format!("- 5001:{end} ack 1001"));
        dialogue.read(bytes);
        dialogue.sends(&[&format!("- 1001:1001 ack {end}")]);
        assert_eq!(dialogue.last[0].window, window, "{bytes} bytes in {after_ms} ms");
        dialogue.ends();
    }
}

#[test]
fn a_segment_that_ends_beyond_the_receive_memory_makes_the_buffer_grow() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5101 ack 1001");
    let memory = dialogue.connection.info().unwrap().buffer_bytes;
    let growth = |text: String| {
        let (header, len) = header(&text);
        dialogue.connection.receive_growth(&header, len)
    };
    let end = 5_001 + u32::try_from(memory).unwrap();
    for first in [5_101, 5_201] {
        assert_eq!(growth(format!("- {first}:{} ack 1001", end - 1)), 0);
        assert_eq!(growth(format!("- {first}:{end} ack 1001")), 0, "it just fits");
        assert_eq!(growth(format!("- {first}:{} ack 1001", end + 1)), memory + 1);
    }
    dialogue.read(100);
    dialogue.ends();
}

// RFC 9293 section 3.8.6.2.2.
#[test]
fn a_receive_buffer_smaller_than_a_segment_opens_its_window_by_halves() {
    let mut dialogue = Dialogue::full();
    dialogue.read(499);
    dialogue.sends(&[]);
    dialogue.read(1);
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    assert_eq!(dialogue.last[0].window, 500);
    dialogue.read(500);
    dialogue.ends();
}

// RFC 9293 SHLD-14.
#[test]
fn a_limited_window_keeps_what_it_offered_and_opens_again() {
    let config = Config { receive_buffer_bytes: 64_000, receive_buffer_bytes_max: 64_000, ..plain() };
    let mut dialogue = Dialogue::established(config);
    dialogue.connection.limit_window(10_000);
    dialogue.gets("- 5001:6001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    assert_eq!(dialogue.last[0].window, 63_000, "what was offered");
    dialogue.read(1_000);
    dialogue.gets("- 6001:66001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 66001"]);
    assert_eq!(dialogue.last[0].window, 3_000, "the rest of it");
    dialogue.read(59_000);
    dialogue.sends(&["- 1001:1001 ack 66001"]);
    assert_eq!(dialogue.last[0].window, 9_000, "no more than 10,000 unread");
    dialogue.connection.limit_window(u32::MAX);
    dialogue.read(1_000);
    dialogue.sends(&["- 1001:1001 ack 66001"]);
    assert_eq!(dialogue.last[0].window, 64_000);
    dialogue.ends();
}

// RFC 9293 MUST-40, SHLD-18, SHLD-19.
#[test]
fn acknowledgements_are_immediate_at_first_and_then_for_every_second_segment_or_delayed() {
    let mut dialogue = Dialogue::established(plain());
    let mut seq = 5_001;
    let mut next = |len: u32| {
        seq += len;
        (format!("- {}:{seq} ack 1001", seq - len), format!("- 1001:1001 ack {seq}"))
    };
    for _ in 0..16 {
        let (segment, answer) = next(100);
        dialogue.gets(&segment);
        dialogue.sends(&[&answer]);
    }
    let (segment, _) = next(1_000);
    dialogue.gets(&segment);
    dialogue.sends(&[]);
    let (segment, answer) = next(1_000);
    dialogue.gets(&segment);
    dialogue.sends(&[&answer]);
    let (segment, answer) = next(1_000);
    dialogue.gets(&segment);
    dialogue.sends(&[]);
    assert_eq!(dialogue.timeout(), ms(40));
    dialogue.sends(&[&answer]);
    // After a pause they are quick again.
    dialogue.after(500);
    let (segment, answer) = next(100);
    dialogue.gets(&segment);
    dialogue.sends(&[&answer]);
    dialogue.ends();
}

// RFC 2883: a sender that repeats what had come is to know soon.
#[test]
fn a_partly_duplicate_segment_is_acknowledged_at_once() {
    let mut dialogue = Dialogue::established(plain());
    for end in (5_101..=6_601).step_by(100) {
        dialogue.gets(&format!("- {}:{end} ack 1001", end - 100));
        dialogue.sends(&[&format!("- 1001:1001 ack {end}")]);
    }
    dialogue.gets("- 6601:6701 ack 1001");
    dialogue.sends(&[]);
    dialogue.gets("- 6651:6751 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6751 sack 6651:6701"]);
    dialogue.ends();
}

#[test]
fn acknowledgements_of_an_answering_application_are_carried_by_its_answers() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5101"]);
    dialogue.write(200);
    dialogue.sends(&["- 1001:1201 ack 5101"]);
    dialogue.after(1);
    dialogue.gets("- 5101:5201 ack 1201");
    dialogue.sends(&[]);
    dialogue.write(200);
    dialogue.sends(&["- 1201:1401 ack 5201"]);
    dialogue.ends();
}

#[test]
fn a_send_buffer_has_a_limit_and_room_again_when_acknowledged() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.set_send_buffer(1_500).unwrap();
    assert_eq!(dialogue.connection.send(dialogue.now, &stream(9_000)), Ok(1_500));
    assert!(!dialogue.connection.readiness().writable);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:2501 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001");
    assert_eq!((dialogue.connection.send_room(), dialogue.connection.readiness().writable), (1_000, true));
    dialogue.ends();
}

// RFC 9293 SHLD-8.
#[test]
fn a_congestion_mark_is_echoed_until_the_peer_reports_its_reduction() {
    let config = Config { ecn: true, ..plain() };
    let now = Instant::from_ns(1_000_000_000);
    let mut dialogue =
        Dialogue::begin(Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(1_000)).unwrap());
    dialogue.sends(&["SEC 1000:1000"]);
    dialogue.gets("SE 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.take("- 5001:5101 ack 1001", true).unwrap();
    dialogue.sends(&["E 1001:1001 ack 5101"]);
    dialogue.gets("- 5101:5201 ack 1001");
    dialogue.sends(&["E 1001:1001 ack 5201"]);
    // Neither a bare acknowledgement that is marked nor one that says "reduced" means anything.
    dialogue.take("C 5201:5201 ack 1001", true).unwrap();
    dialogue.sends(&[]);
    dialogue.gets("- 5201:5201 ack 1001");
    dialogue.gets("C 5201:5301 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5301"]);
    // The other way: one reduction for a window, said once.
    dialogue.write(5_000);
    assert_eq!(dialogue.connection.poll_transmit(dialogue.now, 0).unwrap().payload.len, 1_000);
    dialogue.gets("E 5301:5301 ack 1001");
    dialogue.gets("E 5301:5301 ack 1001");
    assert_eq!(dialogue.connection.info().unwrap().congestion_window, 5_000);
    dialogue.sends(&["C 2001:3001 ack 5301", "- 3001:4001 ack 5301", "- 4001:5001 ack 5301", "- 5001:6001 ack 5301"]);
    dialogue.ends();
}

// As in Linux. A peer repeats ECE until it receives CWR, which needs new data.
#[test]
fn an_echo_of_a_mark_is_ignored_if_nothing_is_outstanding() {
    let config = Config { ecn: true, ..plain() };
    let mut dialogue = Dialogue::begin(
        Connection::connect(Instant::from_ns(1_000_000_000), config, Ports { local: 1, remote: 2 }, initial(1_000))
            .unwrap(),
    );
    dialogue.sends(&["SEC 1000:1000"]);
    dialogue.gets("SE 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.gets("E 5001:5001 ack 1001");
    assert_eq!(dialogue.connection.info().unwrap().congestion_window, 10_000);
    dialogue.write(500);
    dialogue.sends(&["- 1001:1501 ack 5001"]);
    // The last outstanding byte is acknowledged together with the mark.
    dialogue.gets("E 5001:5001 ack 1501");
    assert_eq!(dialogue.connection.info().unwrap().congestion_window, 5_000);
    dialogue.write(500);
    dialogue.sends(&["C 1501:2001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn the_lists_of_sent_segments_and_of_gaps_count_as_memory() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(10_000);
    let written = dialogue.connection.buffer_bytes();
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    let sent = dialogue.connection.buffer_bytes();
    assert!(sent > written, "{sent} {written}");
    dialogue.gets("- 5101:5201 ack 1001");
    let ahead = dialogue.connection.buffer_bytes();
    dialogue.gets("- 5301:5401 ack 11001");
    assert!(ahead > sent && dialogue.connection.info().unwrap().gaps == 2);
    dialogue.ends();
}

#[test]
fn a_window_that_opens_resets_the_probe_backoff() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.gets("- 5001:5001 ack 1001 win 0");
    dialogue.write(100);
    dialogue.sends(&[]);
    let waits = [(); 3].map(|()| {
        let waited = dialogue.timeout();
        dialogue.sends(&["- 1000:1000 ack 5001"]);
        dialogue.gets("- 5001:5001 ack 1001 win 0");
        waited
    });
    assert_eq!(waits, [waits[0], waits[0] * 2, waits[0] * 4]);
    dialogue.gets("- 5001:5001 ack 1001 win 60000");
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    assert_eq!(dialogue.timeout(), waits[0]);
    dialogue.ends();
}
