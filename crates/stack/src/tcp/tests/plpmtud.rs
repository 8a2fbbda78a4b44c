//! The size of segments: black holes, probes, ICMP, ageing (RFC 4821, RFC 8201, RFC 8899).

use super::pair::{CLIENT, Fault, Pair, Plan};
use super::*;
use crate::limits::{PATH_MTU_AGE, TCP_PATH_PROBES_MAX};

fn always() -> Config {
    Config { path_probing: PathProbing::Always, ..plain() }
}

/// Both sides would take 1,460 bytes.
fn wide(config: Config) -> Dialogue {
    Dialogue::established_by(config, "S 5000:5000 ack 1001 mss 1460 sackok")
}

impl Dialogue {
    fn path(&self) -> Info {
        self.connection.info().unwrap()
    }

    /// Everything goes that may; returns the probe among it.
    fn flight(&mut self) -> Option<SendRange> {
        let mut probe = None;
        while let Some(segment) = self.connection.poll_transmit(self.now, 0) {
            let size = self.path().segment_bytes;
            assert_eq!(segment.path_probe, segment.payload.len > size, "{segment:?}");
            assert_eq!(segment.segment_bytes, 0);
            self.sent_to = self.sent_to.max((segment.payload.seq + segment.payload.len).0);
            if segment.path_probe {
                assert_eq!(probe, None, "one at a time");
                probe = Some(segment.payload);
            }
        }
        probe
    }

    /// Behind what was sent.
    fn sent_to(&self) -> u32 {
        self.sent_to
    }

    fn acknowledge(&mut self, to: u32) {
        self.gets(&format!("- 5001:5001 ack {to}"));
    }
}

#[test]
fn full_segments_that_are_lost_repeatedly_are_made_smaller() {
    let mut dialogue = wide(Config { sack: false, ..plain() });
    dialogue.write(8_000);
    dialogue.flight();
    for (wait, end) in [(300, 2_461), (600, 2_461), (1_200, 2_025), (2_400, 2_025), (4_800, 1_537)] {
        assert_eq!(dialogue.timeout(), ms(wait));
        dialogue.sends(&[&format!("- 1001:{end} ack 5001")]);
    }
    let info = dialogue.path();
    assert_eq!((info.segment_bytes, info.black_holes, info.path_probing), (536, 2, true));
    dialogue.timeout();
    assert_eq!(dialogue.path().segment_bytes, 536, "every path takes that");
    dialogue.ends();
}

#[test]
fn a_black_hole_is_counted_once_while_no_segment_can_be_sent() {
    let mut dialogue = wide(Config { sack: false, ..plain() });
    dialogue.write(8_000);
    dialogue.flight();
    for holes in [0, 0, 1, 1] {
        dialogue.timeout();
        assert_eq!(dialogue.path().black_holes, holes);
    }
    assert_eq!(dialogue.path().segment_bytes, 1_024);
    dialogue.ends();
}

#[test]
fn lost_small_segments_or_disabled_probing_find_no_black_hole() {
    for (bytes, path_probing) in [(500, PathProbing::BlackHole), (8_000, PathProbing::Off)] {
        let mut dialogue = wide(Config { path_probing, ..plain() });
        dialogue.write(bytes);
        for _ in 0..8 {
            dialogue.flight();
            dialogue.timeout();
        }
        let info = dialogue.path();
        assert_eq!((info.segment_bytes, info.black_holes, info.path_probing), (1_460, 0, false), "{path_probing:?}");
        dialogue.ends();
    }
}

#[test]
fn a_path_probe_carries_queued_data_and_raises_the_segment_size_once_acknowledged() {
    let mut dialogue = wide(always());
    assert_eq!((dialogue.path().segment_bytes, dialogue.path().segment_bytes_high), (1_024, 1_460));
    // Too little to see a loss without a timeout.
    dialogue.write(5_000);
    assert_eq!(dialogue.flight(), None);
    dialogue.after(100);
    dialogue.acknowledge(6_001);
    dialogue.write(20_000);
    assert_eq!(dialogue.flight(), Some(SendRange { seq: SeqNumber(6_001), len: 1_460 }));
    dialogue.after(100);
    dialogue.acknowledge(7_000);
    assert_eq!(dialogue.path().segment_bytes, 1_024);
    dialogue.acknowledge(7_461);
    let info = dialogue.path();
    assert_eq!((info.segment_bytes, info.path_probes, info.path_probes_lost), (1_460, 1, 0));
    assert_eq!(dialogue.flight(), None, "there is nothing larger");
    dialogue.ends();
}

#[test]
fn a_path_probe_waits_for_the_window_and_is_never_cut() {
    let mut dialogue = wide(always());
    dialogue.write(5_000);
    dialogue.flight();
    dialogue.write(30_000);
    // 5,240 bytes of the window are left; the probe takes its share first.
    let segment = dialogue.connection.poll_transmit(dialogue.now, 60_000).unwrap();
    assert_eq!((segment.payload.len, segment.segment_bytes, segment.path_probe), (1_460, 0, true));
    let segment = dialogue.connection.poll_transmit(dialogue.now, 60_000).unwrap();
    assert_eq!((segment.payload.len, segment.segment_bytes, segment.path_probe), (3 * 1_024, 1_024, false));
    dialogue.after(100);
    dialogue.acknowledge(7_461);
    assert_eq!(dialogue.path().segment_bytes, 1_460);
    dialogue.ends();
    // If there is room for an ordinary segment only, no segment is sent before the probe.
    let mut dialogue = wide(Config { no_delay: true, ..always() });
    for bytes in [5_120, 4_096] {
        dialogue.write(bytes);
        assert_eq!(dialogue.flight(), None, "too little follows");
    }
    assert_eq!(dialogue.path().congestion_window - dialogue.path().flight, 1_024);
    dialogue.write(20_000);
    dialogue.sends(&[]);
    dialogue.after(100);
    dialogue.acknowledge(2_025);
    assert_eq!(dialogue.flight(), Some(SendRange { seq: SeqNumber(10_217), len: 1_460 }));
    dialogue.ends();
}

#[test]
fn a_path_probe_that_is_lost_alone_is_retransmitted_in_pieces_without_a_reduction() {
    for sack in [true, false] {
        let mut dialogue = wide(Config { sack, ..always() });
        let mut sizes = Vec::new();
        let mut at = 1_001;
        for _ in 0..12 {
            dialogue.write(20_000);
            let Some(probe) = dialogue.flight() else { break };
            sizes.push(probe.len);
            dialogue.after(100);
            if probe.seq.0 > at {
                dialogue.acknowledge(probe.seq.0);
            }
            let (cwnd, end) = (dialogue.path().congestion_window, probe.seq + probe.len);
            let lost = |from: u32| format!("- 5001:5001 ack {} sack {}:{}", probe.seq.0, end.0, end.0 + from);
            for behind in 1..=3 {
                dialogue.gets(&if sack { lost(behind * 1_024) } else { format!("- 5001:5001 ack {}", probe.seq.0) });
            }
            let first = dialogue.connection.poll_transmit(dialogue.now, 0).unwrap();
            assert_eq!((first.payload.seq, first.payload.len, first.path_probe), (probe.seq, 1_024, false));
            let info = dialogue.path();
            assert!(info.threshold == u32::MAX && info.congestion_window >= cwnd, "{sack} {info:?}");
            dialogue.flight();
            dialogue.after(100);
            at = dialogue.sent_to();
            dialogue.acknowledge(at);
        }
        let high = 1_024 + (1_459 - 1_024_u32).div_ceil(2);
        assert_eq!(sizes[..4], [1_460, 1_460, 1_460, high], "{sack}");
        assert_eq!(dialogue.path().path_probes_lost, u32::try_from(sizes.len()).unwrap());
        assert_eq!(dialogue.path().segment_bytes, 1_024);
        dialogue.ends();
    }
}

#[test]
fn a_path_probe_that_is_lost_with_other_segments_counts_as_congestion() {
    let mut dialogue = wide(always());
    dialogue.write(30_000);
    let probe = dialogue.flight().unwrap();
    let end = (probe.seq + probe.len).0;
    dialogue.after(100);
    dialogue.gets(&format!("- 5001:5001 ack 1001 sack {}:{}", end + 1_024, end + 4 * 1_024));
    let info = dialogue.path();
    assert_eq!((info.recovery, info.path_probes_lost, info.segment_bytes_high), (RecoveryPhase::Recovery, 0, 1_460));
    assert!(info.threshold < u32::MAX);
    dialogue.ends();
}

#[test]
fn a_timeout_of_a_path_probe_counts_against_its_size() {
    let mut dialogue = wide(always());
    dialogue.write(30_000);
    assert!(dialogue.flight().is_some());
    while dialogue.path().recovery != RecoveryPhase::Loss {
        dialogue.timeout();
        dialogue.flight();
    }
    assert_eq!((dialogue.path().path_probes_lost, dialogue.path().segment_bytes), (1, 1_024));
    dialogue.ends();
    // One of what was sent before it does not.
    let mut dialogue = wide(always());
    dialogue.write(5_000);
    assert_eq!(dialogue.flight(), None);
    dialogue.write(30_000);
    assert!(dialogue.flight().is_some());
    while dialogue.path().recovery != RecoveryPhase::Loss {
        dialogue.timeout();
        dialogue.flight();
    }
    assert_eq!(dialogue.path().path_probes_lost, 0);
    dialogue.ends();
}

#[test]
fn a_path_probe_retransmitted_in_pieces_proves_no_size() {
    let mut dialogue = wide(always());
    dialogue.write(30_000);
    assert!(dialogue.flight().is_some());
    dialogue.connection.carrier_up(dialogue.now);
    dialogue.flight();
    dialogue.after(100);
    let all = dialogue.sent_to();
    dialogue.acknowledge(all);
    assert_eq!((dialogue.path().segment_bytes, dialogue.path().path_probes_lost), (1_024, 0));
    assert!(dialogue.flight().is_some(), "it is tried again");
    dialogue.ends();
}

#[test]
fn a_router_that_refuses_a_path_probe_sets_the_next_size() {
    let mut dialogue = wide(always());
    dialogue.write(30_000);
    let probe = dialogue.flight().unwrap();
    dialogue.connection.handle_icmp(dialogue.now, probe.seq, SegmentError::TooBig(1_360)).unwrap();
    assert_eq!((dialogue.path().segment_bytes, dialogue.path().segment_bytes_high), (1_024, 1_360));
    dialogue.after(100);
    let end = (probe.seq + probe.len).0;
    dialogue.gets(&format!("- 5001:5001 ack 1001 sack {end}:{}", end + 3 * 1_024));
    dialogue.flight();
    dialogue.after(100);
    dialogue.write(20_000);
    dialogue.acknowledge(dialogue.sent_to());
    assert_eq!(dialogue.flight().map(|probe| probe.len), Some(1_360 - (1_360 - 1_024) / 2));
    dialogue.ends();
}

#[test]
fn a_lost_path_probe_is_no_congestion_if_no_larger_size_can_pass() {
    for told_by_router in [true, false] {
        let mut dialogue = wide(always());
        dialogue.write(30_000);
        let probe = dialogue.flight().unwrap();
        if told_by_router {
            dialogue.connection.handle_icmp(dialogue.now, probe.seq, SegmentError::TooBig(1_024)).unwrap();
        } else {
            dialogue.connection.set_device_mss(dialogue.now, 1_024);
        }
        dialogue.after(100);
        let end = (probe.seq + probe.len).0;
        dialogue.gets(&format!("- 5001:5001 ack 1001 sack {end}:{}", end + 3 * 1_024));
        let info = dialogue.path();
        assert_eq!((info.segment_bytes, info.path_probes_lost, info.threshold), (1_024, 1, u32::MAX));
        dialogue.ends();
    }
}

#[test]
fn a_path_mtu_from_icmp_is_used_for_ten_minutes() {
    let mut dialogue = wide(plain());
    dialogue.write(1_460);
    dialogue.flight();
    dialogue.connection.handle_icmp(dialogue.now, SeqNumber(1_001), SegmentError::TooBig(900)).unwrap();
    dialogue.sends(&["- 1001:1901 ack 5001", "- 1901:2461 ack 5001"]);
    dialogue.acknowledge(2_461);
    dialogue.after(599_000);
    dialogue.write(2_000);
    dialogue.sends(&["- 2461:3361 ack 5001", "- 3361:4261 ack 5001", "- 4261:4461 ack 5001"]);
    dialogue.acknowledge(4_461);
    dialogue.after(1_000);
    dialogue.write(1_500);
    dialogue.sends(&["- 4461:5921 ack 5001", "- 5921:5961 ack 5001"]);
    // The path's limit still holds, and a router reports it again.
    dialogue.connection.handle_icmp(dialogue.now, SeqNumber(4_461), SegmentError::TooBig(900)).unwrap();
    dialogue.sends(&["- 4461:5361 ack 5001", "- 5361:5961 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_finished_path_search_begins_again_after_ten_minutes() {
    let mut dialogue = wide(always());
    dialogue.connection.set_path_mss(dialogue.now, 1_300);
    let mut probe = |expected: Option<u32>| {
        dialogue.write(20_000);
        assert_eq!(dialogue.flight().map(|probe| probe.len), expected);
        dialogue.after(100);
        let all = dialogue.sent_to();
        dialogue.acknowledge(all);
        dialogue.flight();
        let all = dialogue.sent_to();
        dialogue.acknowledge(all);
        dialogue.after(PATH_MTU_AGE.as_millis());
    };
    probe(Some(1_300));
    probe(Some(1_460));
    probe(None);
    dialogue.ends();
}

// RFC 9293 MUST-16.
#[test]
fn path_probing_tries_no_size_above_the_mtu_of_the_device() {
    // The device shrinks, and ten minutes later it still has.
    let mut dialogue = wide(plain());
    dialogue.connection.set_device_mss(dialogue.now, 1_000);
    dialogue.write(1_500);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:2501 ack 5001"]);
    dialogue.acknowledge(2_501);
    dialogue.after(700_000);
    dialogue.write(1_000);
    dialogue.sends(&["- 2501:3501 ack 5001"]);
    dialogue.acknowledge(3_501);
    // It grows again, up to what the peer takes.
    dialogue.connection.set_device_mss(dialogue.now, 8_960);
    dialogue.write(2_000);
    dialogue.sends(&["- 3501:4961 ack 5001", "- 4961:5501 ack 5001"]);
    dialogue.acknowledge(5_501);
    // The packet size that the path is known to carry stays in force meanwhile.
    dialogue.connection.set_path_mss(dialogue.now, 1_200);
    dialogue.connection.set_device_mss(dialogue.now, 1_400);
    dialogue.connection.set_device_mss(dialogue.now, 8_960);
    dialogue.write(1_200);
    dialogue.sends(&["- 5501:6701 ack 5001"]);
    dialogue.ends();
    // A probe under way that the device would not take any more proves nothing.
    let mut dialogue = wide(always());
    dialogue.write(30_000);
    assert!(dialogue.flight().is_some());
    dialogue.connection.set_device_mss(dialogue.now, 1_200);
    dialogue.after(100);
    dialogue.acknowledge(2_461);
    assert_eq!(dialogue.path().segment_bytes, 1_200);
    dialogue.ends();
    // Nor does one where the path is known to take no more than what is sent.
    let mut dialogue = wide(always());
    dialogue.write(30_000);
    assert!(dialogue.flight().is_some());
    dialogue.connection.set_path_mss(dialogue.now, 1_024);
    dialogue.after(100);
    dialogue.acknowledge(2_461);
    assert_eq!(dialogue.path().segment_bytes, 1_024);
    dialogue.ends();
}

/// A path that says nothing about what it does not take, and loses some of the rest.
fn narrow(limit: usize, percent: u64) -> Plan {
    let mut state = 7_u64;
    Box::new(move |_, packet| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (packet.payload.len() > limit || (state >> 33) % 100 < percent).then_some(Fault::Drop)
    })
}

#[test]
fn path_probing_finds_a_black_hole_and_its_size() {
    for (sack, timestamps) in [(true, true), (true, false), (false, true), (false, false)] {
        let config = Config { sack, timestamps, ..Config::LINUX };
        let mut pair = Pair::established(config, config);
        pair.faults[CLIENT] = narrow(1_300, 0);
        pair.transfer(CLIENT, &stream(1_500_000));
        let info = pair.ends[CLIENT].info().unwrap();
        assert_eq!((info.black_holes, info.path_probing), (1, true), "{pair:?}");
        assert!((1_292..=1_300).contains(&info.segment_bytes), "{sack} {timestamps} {pair:?}");
        pair.close();
    }
}

#[test]
fn path_probes_find_the_size_without_a_timeout_or_a_slower_start() {
    for (sack, limit) in [(true, 1_300), (false, 1_300), (true, 1_448), (false, 1_100)] {
        let bytes = 30_000;
        let config = Config {
            sack,
            path_probing: PathProbing::Always,
            congestion: CongestionControl::Reno,
            receive_buffer_bytes: bytes,
            receive_buffer_bytes_max: bytes,
            ..Config::LINUX
        };
        let mut pair = Pair::established(config, config);
        pair.faults[CLIENT] = narrow(limit, 0);
        let time = pair.transfer(CLIENT, &stream(1_500_000));
        let info = pair.ends[CLIENT].info().unwrap();
        let bytes = u32::try_from(limit).unwrap();
        assert!((bytes - 8..=bytes).contains(&info.segment_bytes), "{sack} {limit} {pair:?}");
        assert_eq!((info.threshold, info.black_holes), (u32::MAX, 0), "{sack} {limit} {pair:?}");
        assert!(time < ms(1_500), "{sack} {limit} {time:?}");
        pair.close();
    }
}

#[test]
fn a_path_search_over_a_lossy_path_ends_and_the_stream_is_whole() {
    for seed in 1..4 {
        let config = Config { path_probing: PathProbing::Always, ..Config::LINUX };
        let mut pair = Pair::established(config, config);
        pair.faults[CLIENT] = narrow(1_250, seed * 2);
        pair.transfer(CLIENT, &stream(2_000_000));
        let info = pair.ends[CLIENT].info().unwrap();
        assert!(info.segment_bytes <= 1_250 && info.path_probes > 0, "{pair:?}");
        // Halves of 436 bytes down to 8, each tried as often as may be.
        assert!(info.path_probes_lost <= 8 * u32::from(TCP_PATH_PROBES_MAX), "{pair:?}");
    }
}

#[test]
fn a_path_without_its_black_hole_is_used_in_full_again() {
    let config = Config::LINUX;
    let mut pair = Pair::established(config, config);
    // Nothing at all arrives for a while: that looks like a black hole too.
    pair.faults[CLIENT] = Box::new(|_, _| Some(Fault::Drop));
    pair.ends[CLIENT].send(pair.now, &stream(20_000)).unwrap();
    pair.run(ms(3_000));
    assert_eq!(pair.ends[CLIENT].info().unwrap().segment_bytes, 1_012);
    pair.faults[CLIENT] = Box::new(|_, _| None);
    pair.run(ms(10_000));
    let mut into = vec![0; 20_000];
    assert_eq!(pair.ends[1].receive(pair.now, &mut into), 20_000);
    pair.transfer(CLIENT, &stream(300_000));
    assert_eq!(pair.ends[CLIENT].info().unwrap().segment_bytes, 1_448);
    pair.close();
}
