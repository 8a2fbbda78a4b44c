//! Closing in every state (RFC 9293 section 3.6), TIME-WAIT (RFC 1337, RFC 6191).

use super::*;

/// In FIN-WAIT-2, both directions empty.
fn fin_wait_2(config: Config) -> Dialogue {
    let mut dialogue = Dialogue::established(config);
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    assert_eq!(dialogue.state(), StateName::FinWait1);
    dialogue.gets("- 5001:5001 ack 1002");
    assert_eq!(dialogue.state(), StateName::FinWait2);
    dialogue
}

// RFC 9293 MUST-12, MUST-13.
#[test]
fn a_connection_that_closes_first_still_receives() {
    let mut dialogue = fin_wait_2(plain());
    assert_eq!(dialogue.connection.send(dialogue.now, b"x"), Err(SendError::ShutDown));
    dialogue.gets("- 5001:5501 ack 1002");
    dialogue.read(500);
    dialogue.gets("F 5501:5501 ack 1002");
    assert_eq!(dialogue.state(), StateName::TimeWait);
    dialogue.sends(&["- 1002:1002 ack 5502"]);
    assert!(dialogue.connection.finished() && dialogue.connection.failure().is_none());
    assert_eq!(dialogue.timeout(), Duration::from_secs(60));
    assert_eq!(dialogue.state(), StateName::Closed);
    dialogue.ends();
}

#[test]
fn a_connection_whose_peer_closes_first_still_sends() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("F 5001:5001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5002"]);
    assert_eq!(dialogue.state(), StateName::CloseWait);
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5002"]);
    dialogue.refuses("F 5001:5001 ack 1101", TcpDrop::AfterFin);
    dialogue.sends(&["- 1101:1101 ack 5002 sack 5001:5002"]);
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1101:1101 ack 5002"]);
    assert_eq!(dialogue.state(), StateName::LastAck);
    dialogue.gets("- 5002:5002 ack 1102");
    assert_eq!((dialogue.state(), dialogue.connection.failure()), (StateName::Closed, None));
    dialogue.ends();
}

#[test]
fn both_sides_close_at_once() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("F 5001:5001 ack 1001");
    assert_eq!(dialogue.state(), StateName::Closing);
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.gets("- 5002:5002 ack 1002");
    assert_eq!(dialogue.state(), StateName::TimeWait);
    dialogue.sends(&[]);
    dialogue.ends();
}

// RFC 9293 section 3.10.7.4: text behind the FIN is ignored.
#[test]
fn text_behind_the_fin_is_not_acknowledged_when_time_wait_begins() {
    for (segment, answer) in [("- 5002:5102 ack 1002", None), ("F 5001:5001 ack 1002", Some("- 1002:1002 ack 5002"))] {
        let mut dialogue = Dialogue::established(plain());
        dialogue.connection.shutdown(dialogue.now);
        dialogue.sends(&["F 1001:1001 ack 5001"]);
        dialogue.gets("F 5001:5001 ack 1001");
        dialogue.sends(&["- 1002:1002 ack 5002"]);
        dialogue.gets(segment);
        assert_eq!(dialogue.state(), StateName::TimeWait);
        dialogue.sends(answer.as_slice());
        dialogue.ends();
    }
}

#[test]
fn a_fin_is_acknowledged_even_if_time_wait_begins_before_the_acknowledgement_is_sent() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("F 5001:5001 ack 1001");
    dialogue.gets("- 5002:5002 ack 1002");
    assert_eq!(dialogue.state(), StateName::TimeWait);
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.ends();
}

// RFC 3168 section 6.1.3.
#[test]
fn the_acknowledgement_that_begins_time_wait_echoes_a_congestion_mark() {
    let mut dialogue = Dialogue::connecting_with(Config { ecn: true, ..plain() }, "SEC 1000:1000");
    dialogue.gets("SE 5000:5000 ack 1001 mss 1000");
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1002");
    assert_eq!(dialogue.take("- 5001:5501 ack 1002", true), Ok(()));
    dialogue.sends(&["E 1002:1002 ack 5501"]);
    dialogue.gets("F 5501:5501 ack 1002");
    assert_eq!(dialogue.state(), StateName::TimeWait);
    dialogue.sends(&["E 1002:1002 ack 5502"]);
    dialogue.ends();
}

#[test]
fn a_retransmitted_fin_that_acknowledges_ours_is_acknowledged_too() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("F 5001:5001 ack 1001");
    // It is lost.
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.gets("F 5001:5001 ack 1002");
    assert_eq!(dialogue.state(), StateName::TimeWait);
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.ends();
}

#[test]
fn one_segment_may_acknowledge_our_fin_and_carry_the_fin_of_the_peer() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("F 5001:5101 ack 1002");
    assert_eq!(dialogue.state(), StateName::TimeWait);
    dialogue.sends(&["- 1002:1002 ack 5102"]);
    dialogue.read(100);
    assert!(dialogue.connection.finished());
    dialogue.ends();
}

#[test]
fn a_fin_behind_a_gap_takes_effect_once_the_gap_is_filled() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("F 5101:5201 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 5101:5202"]);
    assert_eq!(dialogue.state(), StateName::Established);
    dialogue.gets("- 5001:5101 ack 1001");
    assert_eq!(dialogue.state(), StateName::CloseWait);
    dialogue.sends(&["- 1001:1001 ack 5202"]);
    dialogue.read(200);
    dialogue.ends();
}

// RFC 5681 section 4.2: a FIN without data holds no bytes, but missing bytes before it are a gap all the same.
// RFC 9293 section 3.10.7.4: the old part of a segment is trimmed, and the rest is processed.
#[test]
fn a_fin_behind_payload_that_arrived_before_is_accepted() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5101"]);
    dialogue.gets("F 5001:5101 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5102 sack 5001:5101"]);
    assert_eq!(dialogue.state(), StateName::CloseWait);
    dialogue.ends();
    // The payload arrived ahead of a gap.
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5101:5201 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 5101:5201"]);
    dialogue.gets("F 5101:5201 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 5101:5201 5101:5202"]);
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5202"]);
    assert_eq!((dialogue.state(), dialogue.connection.received()), (StateName::CloseWait, 200));
    dialogue.ends();
}

#[test]
fn a_segment_that_fills_the_gap_before_a_bare_fin_is_acknowledged_at_once() {
    let mut dialogue = Dialogue::established(plain());
    // The application answers: else acknowledgements do not wait.
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.write(10);
    dialogue.sends(&["- 1001:1011 ack 5101"]);
    dialogue.gets("F 5301:5301 ack 1011");
    dialogue.sends(&["- 1011:1011 ack 5101 sack 5301:5302"]);
    dialogue.gets("- 5101:5201 ack 1011");
    dialogue.sends(&["- 1011:1011 ack 5201 sack 5301:5302"]);
    dialogue.gets("- 5201:5301 ack 1011");
    assert_eq!(dialogue.state(), StateName::CloseWait);
    dialogue.sends(&["- 1011:1011 ack 5302"]);
    dialogue.read(300);
    dialogue.ends();
}

#[test]
fn a_fin_follows_the_written_data_and_is_retransmitted_with_it() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(1_500);
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["- 1001:2001 ack 5001", "F 2001:2501 ack 5001"]);
    dialogue.timeout();
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["F 2001:2501 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 2502");
    assert_eq!(dialogue.state(), StateName::FinWait2);
    dialogue.ends();
}

// RFC 9293 MUST-13.
#[test]
fn time_wait_acknowledges_a_retransmitted_fin_and_restarts() {
    let mut dialogue = fin_wait_2(plain());
    dialogue.gets("F 5001:5001 ack 1002");
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.after(30_000);
    dialogue.gets("F 5001:5001 ack 1002");
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.after(59_000);
    assert_eq!(dialogue.state(), StateName::TimeWait, "60 s count from the last FIN");
    // RFC 1337: a reset does not cut it short.
    dialogue.refuses("R 5002:5002", TcpDrop::ResetInTimeWait);
    dialogue.refuses("- 5002:5002 ack 1002", TcpDrop::Duplicate);
    // A segment without ACK is not answered, unless it is old (RFC 9293 section 3.10.7.4).
    dialogue.refuses("- 5002:5012", TcpDrop::NoAck);
    dialogue.sends(&[]);
    dialogue.gets("- 4901:5001");
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    // Data beyond the FIN is not part of the connection, and restarts nothing.
    for behind in ["- 5002:5012 ack 1002", "F 5002:5002 ack 1002", "S 5002:5002"] {
        dialogue.gets(behind);
        dialogue.sends(&["- 1002:1002 ack 5002"]);
    }
    dialogue.after(1_000);
    assert_eq!(dialogue.state(), StateName::Closed);
    dialogue.ends();
}

// RFC 9293 SHLD-4, MAY-2.
#[test]
fn time_wait_yields_to_a_newer_syn_only() {
    let mut dialogue = Dialogue::established_by(Config::LINUX, "S 5000:5000 ack 1001 ts 100 1");
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("F 5001:5001 ack 1002 ts 100 1");
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    let mut wait = dialogue.connection.time_wait().unwrap();
    let mut now = dialogue.now;
    let mut answer = |text: &str| {
        now += Duration::from_secs(1);
        wait.handle_segment(now, &header(text).0, 0)
    };
    assert_eq!(answer("S 9:9 ts 101 0"), Ok(TimeWaitAnswer::TakeOver(SeqNumber(1_002))), "RFC 6191");
    assert!(matches!(answer("S 9:9 ts 99 0"), Ok(TimeWaitAnswer::Acknowledge(_))));
    assert!(matches!(answer("S 9:9 ts 100 0"), Ok(TimeWaitAnswer::Acknowledge(_))), "as old, but before");
    assert!(matches!(answer("S 6000:6000 ts 100 0"), Ok(TimeWaitAnswer::TakeOver(_))), "as old, but after");
    assert!(
        matches!(answer("S 6000:6000 ack 1002 ts 101 0"), Ok(TimeWaitAnswer::Acknowledge(_))),
        "a SYN-ACK opens nothing"
    );
    dialogue.ends();
}

// RFC 9293 MUST-12.
#[test]
fn an_abort_sends_a_reset_and_a_received_reset_ends_the_connection() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.connection.abort();
    dialogue.sends(&["R 1001:1001 ack 5001"]);
    assert_eq!(dialogue.connection.failure(), Some(Failure::Aborted));
    dialogue.refuses("- 5001:5001 ack 1001", TcpDrop::Closed);
    assert_eq!(dialogue.connection.send(dialogue.now, b"x"), Err(SendError::Closed));
    dialogue.ends();
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("R 5001:5001");
    assert_eq!((dialogue.state(), dialogue.connection.failure()), (StateName::Closed, Some(Failure::Reset)));
    assert_eq!(dialogue.connection.send(dialogue.now, b"x"), Err(SendError::Closed));
    dialogue.ends();
}

// RFC 7323 section 3.2.
#[test]
fn a_reset_carries_timestamps_if_they_are_in_use() {
    let syn = "S 5000:5000 ack 1001 mss 1000 ts 700 1";
    let aborted = Dialogue::established_by(Config::LINUX, syn);
    let handshake = || {
        let (syn, _) = header("S 5000:5000 mss 1000 ts 700 0");
        let now = Instant::from_ns(1_000_000_000);
        let mut dialogue = Dialogue::begin(Connection::accept(now, Config::LINUX, &syn, initial(1_000)).unwrap());
        dialogue.sends(&["S 1000:1000 ack 5001"]);
        dialogue
    };
    for mut dialogue in [aborted, handshake()] {
        dialogue.connection.abort();
        dialogue.sends(&["R 1001:1001 ack 5001"]);
        assert_eq!(dialogue.last[0].options.timestamps.map(|timestamps| timestamps.echo), Some(700));
        dialogue.ends();
    }
    let mut dialogue = handshake();
    dialogue.refuses("- 5001:5001 ack 900 ts 701 1", TcpDrop::AckUnacceptable);
    dialogue.sends(&["R 900:900"]);
    assert_eq!(dialogue.last[0].options.timestamps.map(|timestamps| timestamps.echo), Some(700));
    dialogue.ends();
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.abort();
    dialogue.sends(&["R 1001:1001 ack 5001"]);
    assert_eq!(dialogue.last[0].options.timestamps, None);
    dialogue.ends();
}

// RFC 9293 SHLD-3, MAY-1.
#[test]
fn closing_a_connection_with_unread_data_sends_a_reset() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.connection.close(dialogue.now);
    dialogue.sends(&["R 1001:1001 ack 5101"]);
    dialogue.ends();
}

// RFC 9293 SHLD-3, MAY-1.
#[test]
fn data_for_a_closed_socket_is_answered_by_a_reset() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.close(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("- 5001:5101 ack 1002");
    dialogue.sends(&["R 1002:1002 ack 5001"]);
    assert_eq!(dialogue.state(), StateName::Closed);
    dialogue.ends();
}

#[test]
fn a_duplicate_of_data_read_before_the_close_is_not_answered_by_a_reset() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.read(100);
    dialogue.connection.close(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5101"]);
    dialogue.refuses("- 5001:5101 ack 1001", TcpDrop::Duplicate);
    dialogue.sends(&["- 1002:1002 ack 5101 sack 5001:5101"]);
    dialogue.gets("F 5101:5101 ack 1002");
    assert_eq!(dialogue.state(), StateName::TimeWait);
    dialogue.ends();
}

#[test]
fn fin_wait_2_of_a_closed_socket_ends_after_60_seconds() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.close(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1002");
    assert_eq!(dialogue.timeout(), Duration::from_secs(60));
    assert_eq!(dialogue.state(), StateName::Closed);
    dialogue.ends();
    assert_eq!(fin_wait_2(plain()).connection.poll_timeout(), None, "with one it may last");
}

#[test]
fn a_closed_socket_ends_even_if_the_peer_keeps_its_window_closed() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5001 ack 1001 win 0");
    dialogue.write(100);
    dialogue.connection.close(dialogue.now);
    let mut probes = 0;
    while dialogue.state() != StateName::Closed {
        dialogue.timeout();
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        let _ = dialogue.take("- 5001:5001 ack 1001 win 0", false);
        probes += 1;
        assert!(probes < 20);
    }
    assert_eq!(dialogue.connection.failure(), Some(Failure::TimedOut));
    dialogue.ends();
}

#[test]
fn a_shutdown_in_syn_sent_closes_at_once_and_in_syn_received_once_open() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.connection.shutdown(dialogue.now);
    assert_eq!(dialogue.state(), StateName::Closed);
    dialogue.ends();
    let mut dialogue = Dialogue::accepting(plain());
    dialogue.connection.shutdown(dialogue.now);
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    assert_eq!(dialogue.state(), StateName::FinWait1);
    dialogue.ends();
}

// RFC 5961 section 7.
#[test]
fn time_wait_limits_its_answers_to_segments_without_data() {
    let mut dialogue = fin_wait_2(plain());
    dialogue.gets("F 5001:5001 ack 1002");
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.gets("- 5000:5000 ack 1002");
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.refuses("- 5000:5000 ack 1002", TcpDrop::OutOfWindow);
    dialogue.gets("F 5001:5001 ack 1002");
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.after(500);
    dialogue.gets("- 5000:5000 ack 1002");
    dialogue.sends(&["- 1002:1002 ack 5002"]);
    dialogue.ends();
}

// RFC 9293 section 3.10.7.4.
#[test]
fn data_behind_a_fin_is_ignored() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("F 5001:5001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5002"]);
    dialogue.refuses("- 5002:5102 ack 1001", TcpDrop::AfterFin);
    dialogue.sends(&[]);
    dialogue.refuses("F 5001:5001 ack 1001", TcpDrop::AfterFin);
    dialogue.sends(&["- 1001:1001 ack 5002 sack 5001:5002"]);
    dialogue.ends();
}

#[test]
fn a_fin_ahead_of_a_gap_counts_like_a_byte_in_sack_blocks() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("F 5101:5101 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 5101:5102"]);
    dialogue.gets("- 5051:5101 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5001 sack 5051:5102"]);
    dialogue.gets("- 5001:5051 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 5102"]);
    dialogue.ends();
}
