//! Urgent data (RFC 9293 section 3.8.5, RFC 6093): a mark in the stream, sent and received.

use super::pair::{CLIENT, Fault, Pair, SERVER};
use super::*;

impl Dialogue {
    /// Whether there is an urgent event, and how many bytes ahead are urgent.
    fn urgent(&mut self) -> (bool, u32) {
        let ahead = self.connection.urgent_ahead();
        assert_eq!(self.connection.readiness().urgent, ahead > 0);
        (self.connection.take_event(), ahead)
    }
}

// RFC 9293 MUST-30, MUST-32, MUST-33.
#[test]
fn the_application_gets_an_event_when_the_urgent_pointer_advances() {
    let mut dialogue = Dialogue::established(plain());
    assert_eq!(dialogue.urgent(), (false, 0));
    // MUST-62: the pointer names the first byte that is not urgent, which need not be here.
    dialogue.gets("- 5001:5101 ack 1001 up 300");
    assert_eq!(dialogue.urgent(), (true, 300), "MUST-32");
    dialogue.gets("- 5101:5201 ack 1001 up 200");
    assert_eq!(dialogue.urgent(), (false, 300), "it did not move");
    dialogue.read(150);
    assert_eq!(dialogue.urgent(), (false, 150), "MUST-33");
    dialogue.gets("- 5201:5201 ack 1001 up 500");
    assert_eq!(dialogue.urgent(), (true, 550), "a bare acknowledgement moves it too");
    dialogue.gets("- 5201:5801 ack 1001");
    dialogue.read(550);
    assert_eq!((dialogue.urgent(), dialogue.connection.received()), ((false, 0), 100));
    dialogue.read(100);
    // Bytes that were read are not urgent again.
    dialogue.gets("- 5801:5801 ack 1001 up 0");
    dialogue.refuses("- 5700:5801 ack 1001 up 1", TcpDrop::Duplicate);
    assert_eq!(dialogue.urgent(), (false, 0));
    dialogue.ends();
}

// RFC 9293 MUST-66.
#[test]
fn a_closed_window_does_not_hold_back_the_urgent_pointer() {
    let mut dialogue = Dialogue::full();
    dialogue.refuses("- 6001:6002 ack 1001 up 1", TcpDrop::WindowFull);
    assert_eq!(dialogue.urgent(), (true, 1_001), "MUST-66");
    dialogue.ends();
    // The other way: the urgent pointer is sent although the data cannot be.
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5001 ack 1001 win 0");
    assert_eq!(dialogue.connection.send_urgent(dialogue.now, &[1; 7]), Ok(7));
    dialogue.sends(&["- 1001:1001 ack 5001 up 7"]);
    dialogue.ends();
}

// RFC 9293 MUST-30, MUST-31, MUST-62.
#[test]
fn urgent_data_of_any_length_is_marked_until_it_is_acknowledged() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(1_500);
    assert_eq!(dialogue.connection.send_urgent(dialogue.now, &stream(700)), Ok(700));
    dialogue.write(500);
    // No large segment carries an urgent pointer: the device that cuts the segment would not adjust the pointer.
    let segment = dialogue.connection.poll_transmit(dialogue.now, 60_000).unwrap();
    assert_eq!((segment.payload.len, segment.header.urgent), (1_000, Some(2_200)));
    dialogue.sends(&["- 2001:3001 ack 5001 up 1200", "- 3001:3701 ack 5001 up 200"]);
    dialogue.gets("- 5001:5001 ack 3701");
    dialogue.write(2_000);
    let segment = dialogue.connection.poll_transmit(dialogue.now, 60_000).unwrap();
    assert_eq!((segment.payload.len, segment.header.urgent), (2_000, None));
    dialogue.ends();
    // More than a pointer can name: it names what it can (MUST-31).
    let mut dialogue = Dialogue::established_by(plain(), "S 5000:5000 ack 1001 mss 1000 sackok ws 4");
    dialogue.write(60_000);
    assert_eq!(dialogue.connection.send_urgent(dialogue.now, &stream(5_000)), Ok(5_000));
    dialogue.gets("- 5001:5001 ack 1001");
    assert_eq!(dialogue.connection.poll_transmit(dialogue.now, 0).unwrap().header.urgent, Some(65_000));
    dialogue.ends();
}

#[test]
fn small_urgent_data_is_sent_at_once() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    assert_eq!(dialogue.connection.send_urgent(dialogue.now, &[1; 20]), Ok(20));
    dialogue.sends(&["- 1101:1121 ack 5001 up 20"]);
    dialogue.ends();
}

#[test]
fn urgent_data_written_during_the_handshake_is_marked_once_it_is_sent() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.write(100);
    assert_eq!(dialogue.connection.send_urgent(dialogue.now, &[1; 50]), Ok(50));
    dialogue.write(30);
    dialogue.gets("S 5000:5000 ack 1001 mss 1000");
    dialogue.sends(&["- 1001:1181 ack 5001 up 150"]);
    dialogue.connection.shutdown(dialogue.now);
    assert_eq!(dialogue.connection.send_urgent(dialogue.now, b"x"), Err(SendError::ShutDown));
    dialogue.ends();
}

#[test]
fn an_urgent_pointer_beyond_the_end_of_the_stream_is_cut_to_the_end() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("F 5001:5101 ack 1001 up 60000");
    assert_eq!(dialogue.urgent(), (true, 100));
    dialogue.gets("- 5102:5102 ack 1001 up 60000");
    assert_eq!(dialogue.urgent(), (false, 100));
    dialogue.read(100);
    assert_eq!(dialogue.urgent(), (false, 0));
    dialogue.ends();
    // Nor does the mark of a SYN-ACK count the SYN.
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.gets("S 5000:5100 ack 1001 mss 1000 up 41");
    assert_eq!(dialogue.urgent(), (true, 40));
    dialogue.ends();
}

#[test]
fn urgent_data_arrives_marked_over_a_link_that_loses_segments() {
    let mut pair = Pair::established(Config::LINUX, Config::LINUX);
    pair.large_bytes = 64_000;
    pair.faults[CLIENT] = Box::new(|number, _| number.is_multiple_of(7).then_some(Fault::Drop));
    pair.ends[CLIENT].send(pair.now, &stream(20_000)).unwrap();
    pair.ends[CLIENT].send_urgent(pair.now, &stream(10_000)).unwrap();
    pair.ends[CLIENT].send(pair.now, &stream(5_000)).unwrap();
    pair.run(ms(5_000));
    assert!(pair.ends[SERVER].take_event());
    assert_eq!((pair.ends[SERVER].urgent_ahead(), pair.ends[SERVER].received()), (30_000, 35_000));
}
