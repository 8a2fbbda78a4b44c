//! RTT samples of acknowledgements, and what is retransmitted after a timeout.

use super::*;

#[test]
fn an_acknowledgement_of_a_retransmission_gives_no_sample_of_the_segments_behind_it() {
    let mut dialogue = Dialogue::established(Config { tail_loss_probes: false, ..plain() });
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(200);
    dialogue.gets("- 5001:5001 ack 4001");
    assert_eq!(dialogue.connection.info().unwrap().rtt, Some(ms(100)));
    dialogue.ends();
}

#[test]
fn the_oldest_of_several_acknowledged_segments_gives_the_sample() {
    let mut dialogue = Dialogue::established(Config { no_delay: true, ..plain() });
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.after(80);
    dialogue.write(100);
    dialogue.sends(&["- 1101:1201 ack 5001"]);
    dialogue.after(20);
    dialogue.gets("- 5001:5001 ack 1201");
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.rtt, info.rtt_min), (Some(ms(100)), ms(20)));
    dialogue.ends();
}

#[test]
fn small_lost_segments_are_joined_when_they_are_retransmitted() {
    let mut dialogue = Dialogue::established(Config { no_delay: true, tail_loss_probes: false, ..plain() });
    for (bytes, sent) in [(100, "- 1001:1101 ack 5001"), (200, "- 1101:1301 ack 5001"), (900, "- 1301:2201 ack 5001")] {
        dialogue.write(bytes);
        dialogue.sends(&[sent]);
    }
    dialogue.timeout();
    // A third segment would exceed the segment size.
    dialogue.sends(&["- 1001:1301 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1301");
    dialogue.sends(&["- 1301:2201 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_duplicate_acknowledgement_after_a_timeout_sends_nothing() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.timeout();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.sends(&[]);
    dialogue.ends();
}
