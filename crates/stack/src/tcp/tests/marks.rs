//! Ends of records, and the times of writes and of received bytes.

use super::pair::{CLIENT, Pair, SERVER};
use super::*;

const RECORD: WriteFlags = WriteFlags { more_follows: false, ends_record: true };
const ALL_TIMES: Timing = Timing { received: true, sent: true, acknowledged: true };

impl Dialogue {
    fn write_record(&mut self, bytes: usize) {
        assert_eq!(self.connection.send_flagged(self.now, &stream(bytes), RECORD), Ok(bytes));
    }

    /// The times that are reported now, as (id, stage, milliseconds since the dialogue began).
    fn times(&mut self) -> Vec<(u32, SendStage, u64)> {
        let mut times = Vec::new();
        while let Some(SendTime { id, stage, at }) = self.connection.take_send_time() {
            times.push((id, stage, at.since(Instant::from_ns(1_000_000_000)).as_millis()));
        }
        times
    }
}

#[test]
fn no_segment_has_bytes_of_two_records() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write_record(300);
    dialogue.write_record(1_500);
    dialogue.write(1_200);
    // The last 200 bytes wait for an acknowledgement of a small segment, as without records. Earlier records do not wait.
    dialogue.sends(&["- 1001:1301 ack 5001", "- 1301:2301 ack 5001", "- 2301:2801 ack 5001", "- 2801:3801 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 3801");
    dialogue.sends(&["- 3801:4001 ack 5001"]);
    // Without ends of records, one segment has bytes of several writes.
    dialogue.gets("- 5001:5001 ack 4001");
    dialogue.write(300);
    dialogue.write(500);
    dialogue.sends(&["- 4001:4801 ack 5001"]);
    dialogue.ends();
}

#[test]
fn retransmissions_and_large_segments_do_not_join_records() {
    let mut dialogue = Dialogue::established(Config { no_delay: true, ..plain() });
    dialogue.write_record(300);
    dialogue.write_record(400);
    dialogue.sends(&["- 1001:1301 ack 5001", "- 1301:1701 ack 5001"]);
    let mut repeated = Vec::new();
    while repeated.len() < 2 {
        dialogue.timeout();
        while let Some(segment) = dialogue.connection.poll_transmit(dialogue.now, 0) {
            repeated.push((segment.payload.seq.0, segment.payload.len));
        }
        if repeated.len() == 1 {
            dialogue.gets("- 5001:5001 ack 1301");
        }
    }
    assert!(repeated.iter().all(|sent| [(1_001, 300), (1_301, 400)].contains(sent)), "{repeated:?}");
    dialogue.gets("- 5001:5001 ack 1701");
    dialogue.ends();
    let mut dialogue = Dialogue::established(plain());
    dialogue.write_record(2_500);
    dialogue.write(3_000);
    let first = dialogue.connection.poll_transmit(dialogue.now, 60_000).unwrap();
    assert_eq!((first.payload.len, first.segment_bytes, first.header.flags.psh), (2_500, 1_000, true));
    let rest = dialogue.connection.poll_transmit(dialogue.now, 60_000).unwrap();
    assert_eq!((rest.payload.seq.0, rest.payload.len), (3_501, 3_000));
    dialogue.ends();
}

#[test]
fn a_record_that_did_not_fit_completely_has_no_end() {
    let mut dialogue = Dialogue::established(Config { send_buffer_bytes_max: 500, ..plain() });
    assert_eq!(dialogue.connection.send_flagged(dialogue.now, &stream(700), RECORD), Ok(500));
    dialogue.sends(&["- 1001:1501 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1501");
    assert_eq!(dialogue.connection.send_flagged(dialogue.now, &stream(200), RECORD), Ok(200));
    dialogue.write(100);
    dialogue.sends(&["- 1501:1701 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1701");
    dialogue.sends(&["- 1701:1801 ack 5001"]);
    dialogue.ends();
}

#[test]
fn the_ends_of_records_beyond_the_limit_are_not_kept() {
    let mut dialogue = Dialogue::established(plain());
    for _ in 0..=crate::limits::TCP_RECORD_ENDS_MAX {
        dialogue.write_record(1);
    }
    let board = |dialogue: &Dialogue| dialogue.connection.buffer_bytes();
    let held = board(&dialogue);
    for _ in 0..1_000 {
        dialogue.write_record(1);
    }
    assert!(board(&dialogue) <= held + 4_096, "{held}");
    dialogue.ends();
}

#[test]
fn the_times_are_reported_at_which_the_last_byte_of_a_write_was_sent_and_acknowledged() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1101");
    dialogue.connection.set_timing(ALL_TIMES);
    assert!(!dialogue.connection.take_event());
    dialogue.after(7);
    dialogue.write(1_000);
    dialogue.write(500);
    dialogue.sends(&["- 1101:2101 ack 5001", "- 2101:2601 ack 5001"]);
    assert!(dialogue.connection.take_event() && !dialogue.connection.take_event());
    // The numbers count from the first byte after the application asked for times.
    assert_eq!(dialogue.times(), [(999, SendStage::Sent, 107), (1_499, SendStage::Sent, 107)]);
    dialogue.after(20);
    dialogue.gets("- 5001:5001 ack 2101");
    assert!(dialogue.connection.take_event());
    assert_eq!(dialogue.times(), [(999, SendStage::Acknowledged, 127)]);
    // An acknowledgement of a part of a write reports nothing, and a retransmission is not reported.
    dialogue.gets("- 5001:5001 ack 2301");
    dialogue.timeout();
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    assert!(!dialogue.connection.take_event());
    dialogue.after(3);
    let now = dialogue.now.since(Instant::from_ns(1_000_000_000)).as_millis();
    dialogue.gets("- 5001:5001 ack 2601");
    assert_eq!(dialogue.times(), [(1_499, SendStage::Acknowledged, now)]);
    // Once the application asks for no times, the connection may take the fast path again.
    dialogue.connection.set_timing(Timing::default());
    dialogue.write(1_000);
    dialogue.sends(&["- 2601:3601 ack 5001"]);
    assert_eq!(dialogue.times(), []);
    dialogue.ends();
}

#[test]
fn only_the_chosen_times_are_reported_and_no_more_than_the_limit_is_held() {
    let timing = Timing { acknowledged: true, ..Timing::default() };
    let mut dialogue = Dialogue::established(Config { timing, no_delay: true, ..plain() });
    dialogue.write(10);
    dialogue.sends(&["- 1001:1011 ack 5001"]);
    assert_eq!(dialogue.times(), []);
    dialogue.gets("- 5001:5001 ack 1011");
    assert_eq!(dialogue.times(), [(9, SendStage::Acknowledged, 100)]);
    for at in 0..crate::limits::TCP_SEND_TIMES_MAX + 10 {
        dialogue.write(1);
        let end = 1_012 + at;
        dialogue.sends(&[&format!("- {}:{end} ack 5001", end - 1)]);
        dialogue.gets(&format!("- 5001:5001 ack {end}"));
    }
    let times = dialogue.times();
    assert_eq!((times.len(), times[0].0), (crate::limits::TCP_SEND_TIMES_MAX, 10));
    dialogue.ends();
}

#[test]
fn a_write_before_the_connection_is_open_is_timed_from_its_first_byte() {
    let timing = Timing { sent: true, ..Timing::default() };
    let mut dialogue = Dialogue::connecting(Config { timing, ..plain() });
    dialogue.write(100);
    dialogue.after(30);
    dialogue.gets("S 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    assert_eq!(dialogue.times(), [(99, SendStage::Sent, 30)]);
    dialogue.ends();
}

#[test]
fn received_bytes_have_the_time_at_which_they_arrived() {
    let mut dialogue = Dialogue::established(plain());
    let begun = dialogue.now;
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.connection.set_timing(Timing { received: true, ..Timing::default() });
    dialogue.after(5);
    dialogue.gets("- 5101:5201 ack 1001");
    dialogue.after(5);
    // Ahead of a gap; the gap is filled later.
    dialogue.gets("- 5301:5401 ack 1001");
    dialogue.after(5);
    dialogue.gets("- 5201:5301 ack 1001");
    dialogue.after(5);
    dialogue.refuses("- 5101:5201 ack 1001", TcpDrop::OutOfWindow);
    let at = |ms_later: u64| Some(begun + ms(ms_later));
    let time = |dialogue: &Dialogue, bytes| dialogue.connection.arrival_time(bytes);
    assert_eq!(
        [50, 100, 101, 200, 201, 301, 400].map(|bytes| time(&dialogue, bytes)),
        [None, None, at(5), at(5), at(15), at(10), at(10)]
    );
    let pieces = [(50, None), (100, at(5)), (100, at(15)), (100, at(10))].map(|(bytes, at)| ArrivedBytes { bytes, at });
    assert_eq!(dialogue.connection.arrivals(50, 9).unwrap(), pieces);
    assert_eq!(dialogue.connection.arrivals(50, 2).unwrap(), pieces[..2]);
    dialogue.read(150);
    assert_eq!([50, 51, 250].map(|bytes| time(&dialogue, bytes)), [at(5), at(15), at(10)]);
    dialogue.gets("F 5401:5401 ack 1001");
    assert_eq!([50, 51, 250].map(|bytes| time(&dialogue, bytes)), [at(5), at(15), at(10)]);
    dialogue.read(250);
    assert_eq!(dialogue.connection.arrivals(0, 9).unwrap(), []);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.ends();
}

#[test]
fn the_number_of_arrival_times_is_bounded() {
    let mut dialogue = Dialogue::established(Config { receive_buffer_bytes: 1 << 20, ..plain() });
    dialogue.connection.set_timing(Timing { received: true, ..Timing::default() });
    let pieces = u32::try_from(crate::limits::TCP_ARRIVALS_MAX).unwrap() + 100;
    for at in 0..pieces {
        dialogue.gets(&format!("- {}:{} ack 1001", 5_001 + at, 5_002 + at));
    }
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    let known = dialogue.connection.arrivals(0, usize::MAX).unwrap();
    assert_eq!(known.len(), crate::limits::TCP_ARRIVALS_MAX);
    assert_eq!(known.iter().map(|piece| piece.bytes).sum::<u32>(), pieces);
    dialogue.ends();
}

#[test]
fn timed_transfers_deliver_all_bytes_and_report_each_write_once() {
    let config = Config { timing: ALL_TIMES, ..Config::LINUX };
    let mut pair = Pair::new(config, config);
    pair.run(ms(200));
    pair.transfer(CLIENT, &stream(300_000));
    pair.run(ms(200));
    let mut stages = [0, 0];
    let mut last = None;
    while let Some(SendTime { stage, id, .. }) = pair.ends[CLIENT].take_send_time() {
        stages[usize::from(stage == SendStage::Acknowledged)] += 1;
        last = Some(id);
    }
    assert!(stages[0] > 0 && stages[0] == stages[1], "{stages:?}");
    assert_eq!(last, Some(299_999));
    assert!(!pair.ends[SERVER].has_send_times());
    pair.close();
}
