//! Which segments are predicted. That they are taken as others are is for `random.rs` to see.

use super::super::fast_path::TAKEN;
use super::*;
use crate::limits::TCP_SPARES_MAX;
use crate::wire::tcp::FastHeader;

impl Dialogue {
    /// The peer sends a segment; true if it went the short way.
    fn predicts(&mut self, text: &str) -> bool {
        let before = TAKEN.get();
        self.gets(text);
        TAKEN.get() > before
    }
}

#[test]
fn segments_in_order_are_eligible_for_the_fast_path() {
    let mut dialogue = Dialogue::established(plain());
    assert!(dialogue.predicts("- 5001:6001 ack 1001"));
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 6001", "- 2001:3001 ack 6001", "- 3001:4001 ack 6001"]);
    assert!(dialogue.predicts("- 6001:6001 ack 2001"), "a bare acknowledgement");
    assert!(dialogue.predicts("- 6001:6101 ack 3001"), "one with data");
    assert!(dialogue.predicts("- 6101:6201 ack 3001"), "data with more of it outstanding");
    assert!(dialogue.predicts("- 6201:6201 ack 4001"), "the last one");
    dialogue.ends();
}

#[test]
fn segments_in_order_with_timestamps_are_eligible_for_the_fast_path() {
    let mut dialogue = Dialogue::connecting(Config { timestamps: true, ..plain() });
    let value = dialogue.last[0].options.timestamps.unwrap().value;
    dialogue.gets(&format!("S 5000:5000 ack 1001 mss 1000 sackok ts 7 {value}"));
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    assert!(dialogue.predicts(&format!("- 5001:6001 ack 1001 ts 7 {value}")));
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    assert!(dialogue.predicts(&format!("- 6001:6101 ack 1001 ts 8 {value}")));
    dialogue.refuses(&format!("- 6101:6201 ack 1001 ts 7 {value}"), TcpDrop::TimestampOld);
    dialogue.ends();
}

#[test]
fn a_segment_with_gaps_flags_or_options_is_not_eligible_for_the_fast_path() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    for other in ["- 5001:5001 ack 1001", "- 5101:5201 ack 1001", "- 5001:5101 ack 1001 up 5", "E 5201:5301 ack 1001"] {
        assert!(!dialogue.predicts(other), "{other}");
    }
    assert!(!dialogue.predicts("- 5301:5301 ack 2001 win 0"));
    assert!(!dialogue.predicts("- 5301:5401 ack 2001"), "the window was closed");
    assert!(dialogue.predicts("- 5401:5501 ack 2001"));
    assert!(!dialogue.predicts("F 5501:5501 ack 2001"));
    dialogue.ends();
}

#[test]
fn a_duplicate_on_a_connection_without_sack_does_not_end_the_fast_path() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.gets("- 5001:6001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    dialogue.refuses("- 5001:6001 ack 1001", TcpDrop::Duplicate);
    dialogue.sends(&["- 1001:1001 ack 6001"]);
    assert!(dialogue.predicts("- 6001:7001 ack 1001"));
    dialogue.ends();
}

#[test]
fn data_that_acknowledges_all_sent_bytes_reuses_their_buffer() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    let held = dialogue.connection.buffer_bytes();
    // As much is put aside as may be.
    let mut spare: Vec<Heap> = (0..TCP_SPARES_MAX).map(|_| Heap::default()).collect();
    let plain = FastHeader {
        seq: SeqNumber(5_001),
        ack: SeqNumber(1_101),
        window: 60_000,
        push: false,
        timestamps: None,
        len: 10,
    };
    let acked = dialogue.connection.receive_fast(dialogue.now, &plain, Some([1; 10].as_slice()), &mut spare);
    assert_eq!((acked, dialogue.connection.buffer_bytes(), spare.len()), (Some(100), held, TCP_SPARES_MAX));
    dialogue.ends();
}
