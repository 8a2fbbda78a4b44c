//! What the scoreboard makes of acknowledgements, SACK blocks and losses.

use super::*;

const MSS: u32 = 100;
const RTT: Duration = Duration::from_millis(10);

fn rtt() -> Rtt {
    let mut rtt = Rtt::default();
    rtt.sample(at(0), RTT);
    rtt
}

fn seq(at: u32) -> SeqNumber {
    SeqNumber(u32::MAX - 250) + at
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(1_000_000 * (1_000 + ms))
}

fn block(start: u32, end: u32) -> Block {
    Block { start: seq(start), end: seq(end) }
}

fn ten() -> Scoreboard {
    let mut board = Scoreboard::new(seq(0));
    for place in 0..10 {
        board.push(at(u64::from(place)), seq(place * MSS), seq((place + 1) * MSS));
    }
    board
}

fn sack(board: &mut Scoreboard, ms: u64, start: u32, end: u32) -> Delivery {
    let mut delivery = Delivery::new(at(ms), RTT, None, 1_000);
    let mut blocks = SackBlocks::default();
    blocks.push(block(start, end));
    board.sack(&blocks, MSS, &mut delivery);
    board.check();
    delivery
}

#[test]
fn a_hole_is_marked_lost_once_three_segments_behind_it_arrived() {
    let mut board = ten();
    sack(&mut board, 12, 100, 300);
    assert!(board.detect_loss(at(12), false, &rtt(), 3).is_some());
    assert_eq!(board.lost, 0, "it may only be reordered");
    assert_eq!(sack(&mut board, 13, 100, 400).bytes, 100);
    board.detect_loss(at(13), false, &rtt(), 3);
    assert_eq!(board.first_lost(), Some(block(0, 100)));
    assert_eq!((board.flying, board.sacked, board.lost), (600, 300, 100));
    board.repeat(at(14), seq(0), seq(100));
    board.check();
    assert_eq!(board.flying, 700);
}

#[test]
fn a_lost_retransmission_is_found_by_time() {
    let mut board = ten();
    sack(&mut board, 13, 100, 400);
    board.detect_loss(at(13), false, &rtt(), 3);
    board.repeat(at(14), seq(0), seq(100));
    board.push(at(15), seq(1000), seq(1100));
    sack(&mut board, 30, 1000, 1100);
    board.detect_loss(at(30), true, &rtt(), 3);
    assert_eq!(board.first_lost(), Some(block(0, 100)));
}

#[test]
fn a_timestamp_echo_older_than_a_retransmission_marks_no_older_segment_lost() {
    for (before, known) in [(Some(at(14)), false), (Some(at(15)), true), (None, true)] {
        let mut board = ten();
        sack(&mut board, 13, 100, 400);
        board.detect_loss(at(13), false, &rtt(), 3);
        board.repeat(at(14), seq(0), seq(100));
        board.check();
        let mut delivery = Delivery::new(at(30), RTT, before, 1_000);
        board.acknowledge(seq(400), &mut delivery);
        // If it is the repetition that arrived, what flies since before it is lost.
        board.detect_loss(at(30), true, &rtt(), 3);
        assert_eq!(board.lost > 0, known, "{before:?}");
        assert!(delivery.repeated);
    }
}

#[test]
fn new_data_sent_with_a_retransmission_does_not_mark_the_retransmission_lost() {
    let mut board = ten();
    sack(&mut board, 13, 100, 400);
    board.detect_loss(at(13), false, &rtt(), 3);
    board.push(at(14), seq(1000), seq(1100));
    board.push(at(14), seq(1100), seq(1200));
    board.repeat(at(14), seq(0), seq(100));
    sack(&mut board, 30, 1100, 1200);
    board.detect_loss(at(30), true, &rtt(), 3);
    let lost = board.first_lost();
    assert_eq!(lost, Some(block(400, 500)), "the repetition may be under way yet");
    assert_eq!(board.lost, 700, "what was fresh has an order: 400 to 1000, and 1000 to 1100");
}

#[test]
fn reported_duplicates_widen_the_reordering_window_once_in_a_round_trip() {
    let mut board = ten();
    let mut slow = rtt();
    slow.smoothed = RTT * 10;
    let mut waits = Vec::new();
    let far = 1 << 31;
    for (una, nxt) in [(0, 1000), (100, 1000), (900, 1100), (1000, 1200), (1100, 1300), (far + 1_250, far + 2_000)] {
        board.duplicate_reported(seq(una), seq(nxt));
        waits.push(board.reorder_window(false, &slow, 3).as_nanos() / (RTT.as_nanos() / 4));
    }
    assert_eq!(waits, [2, 2, 2, 3, 3, 4]);
}

// RFC 8985 section 6.2 step 4.
#[test]
fn a_widened_reordering_window_is_reset_after_sixteen_recoveries() {
    let mut board = ten();
    let mut slow = rtt();
    slow.smoothed = RTT * 10;
    board.duplicate_reported(seq(0), seq(1000));
    for recovery in 0..=16 {
        let quarters = board.reorder_window(false, &slow, 3).as_nanos() / (RTT.as_nanos() / 4);
        assert_eq!(quarters, if recovery < 16 { 2 } else { 1 }, "after {recovery}");
        board.recovered();
    }
}

#[test]
fn observed_reordering_delays_loss_detection() {
    let mut board = ten();
    sack(&mut board, 11, 100, 200);
    let mut delivery = Delivery::new(at(12), RTT, None, 1_000);
    board.acknowledge(seq(200), &mut delivery);
    board.check();
    sack(&mut board, 14, 300, 500);
    board.detect_loss(at(14), false, &rtt(), 2);
    assert_eq!(board.lost, 0, "the first segment came late, so the third may");
}

#[test]
fn a_tail_loss_probe_retransmits_only_the_end_of_the_last_entry() {
    let mut board = Scoreboard::new(seq(0));
    board.push(at(0), seq(0), seq(500));
    board.push(at(0), seq(500), seq(1000));
    for _ in 0..2 {
        board.cut_tail(seq(900));
        assert_eq!((board.tail(), board.sent.len()), (Some(block(900, 1000)), 3));
    }
    board.repeat(at(5), seq(900), seq(1000));
    board.check();
    // What goes before it was sent once, and measures a round trip.
    let mut delivery = Delivery::new(at(10), RTT, None, 1_000);
    board.acknowledge(seq(900), &mut delivery);
    assert_eq!((delivery.bytes, delivery.rtt, delivery.repeated), (900, Some(RTT), false));
}

#[test]
fn a_sack_block_splits_a_large_entry_only_between_segments() {
    let mut board = Scoreboard::new(seq(0));
    board.push(at(0), seq(0), seq(1000));
    for byte in 0..999 {
        sack(&mut board, 1, byte, byte + 1);
    }
    assert_eq!((board.sent.len(), board.sacked), (1 + 9, 0), "a byte is not a segment");
    sack(&mut board, 1, 250, 570);
    assert_eq!(board.sacked, 200, "300 to 500 lie inside");
    let mut delivery = Delivery::new(at(2), RTT, None, 1_000);
    board.acknowledge(seq(450), &mut delivery);
    board.check();
    assert_eq!(delivery.bytes, 300, "the rest was told before");
}

#[test]
fn an_acknowledgement_of_the_only_entry_has_the_same_effect_by_the_short_and_the_long_way() {
    let one = || {
        let mut board = Scoreboard::new(seq(0));
        board.push(at(1), seq(0), seq(250));
        board
    };
    let after_later = || {
        let mut board = ten();
        sack(&mut board, 12, 100, 1000);
        board.sent = Queue::default();
        board.sent.push_back(Sent { start: seq(0), end: seq(100), at: at(1), fate: Fate::Flying, repeated: false });
        (board.flying, board.sacked, board.sacked_segments) = (100, 0, 0);
        board
    };
    let repeated = || {
        let mut board = one();
        board.lose_first();
        board.repeat(at(2), seq(0), seq(250));
        board
    };
    let (mut short, mut long) = (one(), one());
    let mut delivery = Delivery::new(at(30), RTT, None, MSS);
    long.acknowledge(seq(250), &mut delivery);
    let only = short.acknowledge_only(at(30), seq(250), MSS).unwrap();
    assert_eq!((only.bytes, only.segments, Some(only.rtt)), (delivery.bytes, delivery.segments, delivery.rtt));
    assert_eq!((delivery.rtt_oldest, delivery.repeated, delivery.reordered), (delivery.rtt, false, false));
    assert_eq!(format!("{short:?}"), format!("{long:?}"));
    // Part of the entry, nothing, several entries, a lost one, a retransmission, and one that arrived behind a later one.
    let mut lost = one();
    lost.lose_first();
    let others = [(one(), 100), (Scoreboard::new(seq(0)), 0), (ten(), 1_000), (lost, 250), (repeated(), 250)];
    for (mut board, una) in others.into_iter().chain([(after_later(), 100)]) {
        let before = format!("{board:?}");
        assert!(board.acknowledge_only(at(30), seq(una), MSS).is_none(), "{before}");
        assert_eq!(format!("{board:?}"), before);
    }
}
