//! Keepalive, user timeout, giving up, path changes, ICMP.

use super::*;

fn minute() -> Config {
    let keepalive = Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 3 };
    Config { keepalive: Some(keepalive), ..plain() }
}

// RFC 9293 MUST-27, MUST-29, SHLD-12, MAY-5.
#[test]
fn an_idle_peer_is_sent_keepalives_and_given_up() {
    let mut dialogue = Dialogue::established(minute());
    assert_eq!(dialogue.timeout(), Duration::from_secs(60));
    dialogue.sends(&["- 1000:1000 ack 5001"]);
    for _ in 0..2 {
        assert_eq!(dialogue.timeout(), Duration::from_secs(10));
        dialogue.sends(&["- 1000:1000 ack 5001"]);
    }
    dialogue.timeout();
    dialogue.sends(&["R 1001:1001 ack 5001"]);
    assert_eq!((dialogue.state(), dialogue.connection.failure()), (StateName::Closed, Some(Failure::TimedOut)));
    dialogue.ends();
}

// RFC 9293 MUST-25, MUST-28.
#[test]
fn keepalive_is_off_by_default_and_first_probes_after_two_hours() {
    assert_eq!(Config::LINUX.keepalive, None);
    assert_eq!(Dialogue::established(plain()).connection.poll_timeout(), None);
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.set_keepalive(dialogue.now, Some(Keepalive::default())).unwrap();
    assert_eq!(dialogue.timeout(), Duration::from_secs(7_200));
    dialogue.sends(&["- 1000:1000 ack 5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-20, SHLD-9: R1, in every state that repeats.
#[test]
fn three_unanswered_retransmissions_are_reported_as_a_delivery_problem() {
    let mut established = Dialogue::established(Config { sack: false, ..plain() });
    established.write(100);
    established.sends(&["- 1001:1101 ack 5001"]);
    for mut dialogue in [Dialogue::connecting(plain()), Dialogue::accepting(plain()), established] {
        for repetitions in 0..3 {
            assert!(!dialogue.connection.delivery_problem(), "{:?} {repetitions}", dialogue.state());
            dialogue.timeout();
            assert!(dialogue.connection.poll_transmit(dialogue.now, 0).is_some());
        }
        assert!(dialogue.connection.delivery_problem() && dialogue.connection.readiness().error);
        dialogue.ends();
    }
}

// RFC 9293 MUST-20.
#[test]
fn a_tail_loss_probe_of_the_first_segment_counts_towards_a_delivery_problem() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    for repetitions in 0..3 {
        assert!(!dialogue.connection.delivery_problem(), "{repetitions}");
        dialogue.timeout();
        dialogue.sends(&["- 1001:1101 ack 5001"]);
    }
    assert!(dialogue.connection.delivery_problem());
    dialogue.gets("- 5001:5001 ack 1101");
    assert!(!dialogue.connection.delivery_problem());
    dialogue.ends();
    // The probe of another segment is no repetition of the first.
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    for sent in ["- 2001:3001 ack 5001", "- 1001:2001 ack 5001", "- 1001:2001 ack 5001"] {
        dialogue.timeout();
        dialogue.sends(&[sent]);
    }
    assert!(!dialogue.connection.delivery_problem());
    dialogue.ends();
}

// RFC 9293 MUST-26.
#[test]
fn no_keepalive_is_sent_while_data_is_in_flight_or_has_just_arrived() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..minute() });
    dialogue.after(59_000);
    dialogue.gets("- 5001:5001 ack 1001");
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    let start = dialogue.now;
    while dialogue.now.since(start) < Duration::from_secs(70) {
        dialogue.timeout();
        dialogue.sends(&["- 1001:1101 ack 5001"]);
    }
    dialogue.gets("- 5001:5001 ack 1101");
    assert_eq!(dialogue.timeout(), Duration::from_secs(60), "counted from what came last");
    dialogue.sends(&["- 1100:1100 ack 5001"]);
    dialogue.ends();
}

// As in Linux: the time of FIN-WAIT-2 is limited.
#[test]
fn no_keepalive_is_sent_in_fin_wait_2_once_the_application_has_closed() {
    let mut dialogue = Dialogue::established(minute());
    dialogue.connection.shutdown(dialogue.now);
    dialogue.sends(&["F 1001:1001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1002");
    assert_eq!(dialogue.timeout(), Duration::from_secs(60));
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.connection.close(dialogue.now);
    assert_eq!((dialogue.timeout(), dialogue.state()), (Duration::from_secs(60), StateName::Closed));
    dialogue.sends(&[]);
    dialogue.ends();
}

// RFC 9293 MUST-18: Karn's algorithm.
#[test]
fn a_retransmitted_segment_gives_no_rtt_sample() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.after(500);
    dialogue.gets("- 5001:5001 ack 1101");
    assert_eq!(dialogue.connection.info().unwrap().rtt, Some(ms(100)), "as the SYN measured");
    dialogue.ends();
}

// RFC 9293 MUST-18, MUST-19: the peer is there, and what is missing may still lie in a queue.
#[test]
fn a_window_update_alone_does_not_reset_the_timeout_backoff() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    for wait in [300, 600] {
        assert_eq!(dialogue.timeout(), ms(wait));
        dialogue.sends(&["- 1001:1101 ack 5001"]);
    }
    dialogue.gets("- 5001:5001 ack 1001 win 50000");
    assert_eq!(dialogue.timeout(), ms(1_200));
    dialogue.ends();
}

// RFC 6298 section 5: a new RTT sample ends the backoff.
#[test]
fn a_timeout_keeps_its_backoff_until_an_rtt_sample() {
    let mut dialogue = Dialogue::established(Config { sack: false, ..plain() });
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    for wait in [300, 600, 1_200] {
        assert_eq!(dialogue.timeout(), ms(wait));
        dialogue.sends(&["- 1001:2001 ack 5001"]);
    }
    // The ACK may answer any of the transmissions, so it gives no sample. Nor does the new window end the backoff.
    dialogue.gets("- 5001:5001 ack 2001 win 50000");
    dialogue.sends(&["- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(2_400));
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 4001 win 40000");
    dialogue.write(1_000);
    dialogue.sends(&["- 4001:5001 ack 5001"]);
    assert_eq!(dialogue.connection.info().unwrap().timeout, ms(4_800));
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 5001");
    assert!(dialogue.connection.info().unwrap().timeout < ms(400));
    dialogue.ends();
}

// RFC 9293 MUST-21.
#[test]
fn a_user_timeout_may_be_longer_than_the_default_limit_of_retransmissions() {
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    for patience in [hours(12), Duration::MAX] {
        let mut dialogue = Dialogue::established(Config { user_timeout: Some(patience), ..plain() });
        dialogue.write(100);
        let start = dialogue.now;
        while dialogue.state() == StateName::Established && dialogue.now.since(start) < hours(13) {
            while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
            dialogue.timeout();
        }
        let over = dialogue.connection.failure() == Some(Failure::TimedOut);
        assert_eq!(over, patience == hours(12));
        assert!(!over || dialogue.now.since(start) == hours(12));
        let mut dialogue = Dialogue::connecting(Config { user_timeout: Some(patience), ..plain() });
        let start = dialogue.now;
        while dialogue.state() == StateName::SynSent && dialogue.now.since(start) < hours(13) {
            while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
            dialogue.timeout();
        }
        assert_eq!(dialogue.connection.failure() == Some(Failure::TimedOut), patience == hours(12));
    }
}

#[test]
fn a_late_timer_call_gives_the_peer_time_to_answer_each_keepalive() {
    let mut dialogue = Dialogue::established(minute());
    dialogue.after(3_600_000);
    for _ in 0..3 {
        dialogue.sends(&["- 1000:1000 ack 5001"]);
        dialogue.after(0);
        dialogue.sends(&[]);
        assert_eq!(dialogue.timeout(), Duration::from_secs(10));
    }
    dialogue.sends(&["R 1001:1001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn infinite_keepalive_times_and_user_timeouts_are_accepted() {
    let keepalive = Keepalive { idle: Duration::MAX, interval: Duration::MAX, probes: u8::MAX };
    let config = Config { keepalive: Some(keepalive), user_timeout: Some(Duration::MAX), ..plain() };
    let mut dialogue = Dialogue::established(config);
    dialogue.timeout();
    dialogue.sends(&["- 1000:1000 ack 5001"]);
    assert!(dialogue.connection.poll_timeout().is_some());
    dialogue.ends();
}

// RFC 9293 MUST-24, MUST-29.
#[test]
fn a_peer_that_answers_keepalives_stays_connected() {
    let mut dialogue = Dialogue::established(minute());
    for _ in 0..10 {
        assert_eq!(dialogue.timeout(), Duration::from_secs(60));
        dialogue.sends(&["- 1000:1000 ack 5001"]);
        dialogue.gets("- 5001:5001 ack 1001");
    }
    dialogue.connection.set_keepalive(dialogue.now, None).unwrap();
    assert_eq!(dialogue.connection.poll_timeout(), None, "MUST-25: off unless asked for");
    dialogue.ends();
}

#[test]
fn a_keepalive_of_the_peer_is_answered() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.refuses("- 5000:5000 ack 1001", TcpDrop::OutOfWindow);
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.refuses("- 5000:5001 ack 1001", TcpDrop::Duplicate);
    dialogue.sends(&["- 1001:1001 ack 5001 sack 5000:5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-20, SHLD-10, SHLD-11.
#[test]
fn data_without_an_acknowledgement_ends_the_connection() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    let start = dialogue.now;
    while dialogue.state() == StateName::Established {
        assert_eq!(dialogue.connection.delivery_problem(), dialogue.now.since(start) > ms(1_000), "MUST-20");
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        dialogue.timeout();
    }
    dialogue.sends(&["R 1101:1101 ack 5001"]);
    let waited = dialogue.now.since(start).as_millis() / 1_000;
    assert!(!dialogue.connection.delivery_problem(), "it is over");
    assert!((100..2_000).contains(&waited), "SHLD-11: at least 100 s, not {waited} s");
    assert_eq!(dialogue.connection.failure(), Some(Failure::TimedOut));
    dialogue.ends();
}

// RFC 9293 MUST-21.
#[test]
fn a_user_timeout_ends_the_connection_and_each_acknowledgement_restarts_it() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.connection.set_user_timeout(Some(Duration::from_secs(5))).unwrap();
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.after(4_000);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.after(4_000);
    assert_eq!(dialogue.state(), StateName::Established);
    dialogue.after(1_000);
    assert_eq!(dialogue.connection.failure(), Some(Failure::TimedOut));
    dialogue.ends();
}

#[test]
fn a_connection_reports_the_earliest_of_its_deadlines() {
    let mut dialogue = Dialogue::established(minute());
    dialogue.connection.set_user_timeout(Some(Duration::from_secs(50))).unwrap();
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.ends();
}

// RFC 9293 MUST-16.
#[test]
fn a_smaller_path_mtu_retransmits_smaller_segments_without_a_reduction() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.connection.handle_icmp(dialogue.now, SeqNumber(2_001), SegmentError::TooBig(500)).unwrap();
    dialogue.sends(&["- 1001:1501 ack 5001", "- 1501:2001 ack 5001", "- 2001:2501 ack 5001", "- 2501:3001 ack 5001"]);
    assert_eq!(dialogue.connection.info().unwrap().threshold, u32::MAX);
    // A larger one is not believed from a stranger, but from the owner.
    let larger = dialogue.connection.handle_icmp(dialogue.now, SeqNumber(2_001), SegmentError::TooBig(900));
    assert_eq!(larger, Err(TcpDrop::IcmpNotOutstanding));
    assert_eq!(dialogue.connection.info().unwrap().segment_bytes, 500);
    dialogue.connection.set_path_mss(dialogue.now, 9_000);
    assert_eq!(dialogue.connection.info().unwrap().segment_bytes, 1_000, "never above the peer's MSS");
    dialogue.ends();
}

#[test]
fn an_icmp_error_about_data_that_is_not_in_flight_is_ignored() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    // In front of it, inside it, behind it.
    for seq in [1_000, 1_050, 1_101] {
        let error = SegmentError::TooBig(100);
        let outcome = dialogue.connection.handle_icmp(dialogue.now, SeqNumber(seq), error);
        assert_eq!(outcome, Err(TcpDrop::IcmpNotOutstanding));
    }
    // RFC 5927: an open connection survives a hard error and reports it to the application.
    dialogue.connection.handle_icmp(dialogue.now, SeqNumber(1_001), SegmentError::Hard).unwrap();
    assert_eq!(dialogue.state(), StateName::Established);
    assert_eq!(dialogue.connection.take_soft_error(), Some(SegmentError::Hard));
    dialogue.connection.handle_icmp(dialogue.now, SeqNumber(1_001), SegmentError::TooBig(1)).unwrap();
    assert_eq!(dialogue.connection.info().unwrap().segment_bytes, 48);
    dialogue.ends();
}

// RFC 9293 MUST-56, SHLD-26.
#[test]
fn a_hard_icmp_error_ends_a_connection_in_its_handshake() {
    let mut dialogue = Dialogue::connecting(plain());
    let refused = dialogue.connection.handle_icmp(dialogue.now, SeqNumber(7), SegmentError::Hard);
    assert_eq!(refused, Err(TcpDrop::IcmpNotOutstanding));
    dialogue.connection.handle_icmp(dialogue.now, SeqNumber(1_000), SegmentError::Soft).unwrap();
    assert_eq!(dialogue.state(), StateName::SynSent);
    dialogue.connection.handle_icmp(dialogue.now, SeqNumber(1_000), SegmentError::Hard).unwrap();
    assert_eq!(dialogue.connection.failure(), Some(Failure::Unreachable));
    dialogue.ends();
}

#[test]
fn a_returning_carrier_retransmits_at_once() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.after(10);
    dialogue.connection.carrier_up(dialogue.now);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.ends();
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.connection.carrier_up(dialogue.now);
    dialogue.sends(&["S 1000:1000"]);
    dialogue.ends();
    // With nothing outstanding but a closed window, the window is asked for.
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5001 ack 1001 win 0");
    dialogue.connection.carrier_up(dialogue.now);
    dialogue.sends(&[]);
    dialogue.write(10);
    dialogue.connection.carrier_up(dialogue.now);
    dialogue.sends(&["- 1000:1000 ack 5001"]);
    dialogue.ends();
}

// RFC 3465 section 2.3 asks for less after a timeout only.
#[test]
fn a_congestion_window_grows_by_all_acknowledged_data_after_an_outage() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(10_000);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.connection.carrier_up(dialogue.now);
    while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 4001");
    let info = dialogue.connection.info().unwrap();
    assert_eq!((info.recovery, info.congestion_window), (RecoveryPhase::Loss, 13_000));
    dialogue.ends();
}

#[test]
fn the_idle_time_of_keepalive_begins_when_it_is_switched_on_or_with_the_last_segment() {
    let keepalive = Keepalive { idle: Duration::from_secs(10), ..Keepalive::default() };
    for changes in [false, true] {
        let mut dialogue = Dialogue::established(plain());
        dialogue.after(5_000);
        dialogue.connection.set_keepalive(dialogue.now, Some(keepalive)).unwrap();
        dialogue.after(4_000);
        if changes {
            dialogue.connection.set_keepalive(dialogue.now, Some(keepalive)).unwrap();
        }
        assert_eq!(dialogue.timeout(), Duration::from_secs(if changes { 1 } else { 6 }));
        dialogue.sends(&["- 1000:1000 ack 5001"]);
        dialogue.ends();
    }
}

#[test]
fn a_probe_of_two_small_segments_does_not_wait_for_a_delayed_acknowledgement() {
    let mut dialogue = Dialogue::established(Config { no_delay: true, ..plain() });
    dialogue.write(100);
    dialogue.write(100);
    dialogue.sends(&["- 1001:1201 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.ends();
    let mut dialogue = Dialogue::established(Config { no_delay: true, ..plain() });
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.write(100);
    dialogue.sends(&["- 1101:1201 ack 5001"]);
    assert_eq!(dialogue.timeout(), ms(208));
    dialogue.sends(&["- 1101:1201 ack 5001"]);
    dialogue.ends();
}

// RFC 9293 MUST-40. As in Linux, the delay is shorter than the minimum of the RTO.
#[test]
fn acknowledgements_are_not_delayed_with_quick_acks_and_less_with_a_short_rto() {
    for (quick_acks, rto_min, delay) in
        [(true, 200, None), (false, 1, None), (false, 10, Some(9)), (false, 41, Some(40))]
    {
        let mut dialogue = Dialogue::established(Config { quick_acks, rto_min: ms(rto_min), ..plain() });
        for end in (5_101..=6_601).step_by(100) {
            dialogue.gets(&format!("- {}:{end} ack 1001", end - 100));
            dialogue.sends(&[&format!("- 1001:1001 ack {end}")]);
        }
        // The application answers, so that its next answer could carry the acknowledgement.
        dialogue.write(1);
        dialogue.sends(&["- 1001:1002 ack 6601"]);
        dialogue.gets("- 6601:6701 ack 1002");
        if let Some(delay) = delay {
            dialogue.sends(&[]);
            assert_eq!(dialogue.timeout(), ms(delay));
        }
        dialogue.sends(&["- 1002:1002 ack 6701"]);
        dialogue.ends();
    }
}

// RFC 6298 section 2.4, RFC 8985 section 7.2.
#[test]
fn the_minimum_of_the_rto_moves_timeouts_and_tail_loss_probes() {
    for (rto_min, timeout) in [(1, 300), (200, 300), (500, 600)] {
        // The SYN was answered after 100 ms, so its variance adds 200 ms.
        let mut dialogue = Dialogue::established(Config { sack: false, rto_min: ms(rto_min), ..plain() });
        dialogue.write(100);
        dialogue.sends(&["- 1001:1101 ack 5001"]);
        assert_eq!(dialogue.timeout(), ms(timeout));
        dialogue.ends();
    }
    for (rto_min, probe) in [(10, 210), (50, 250), (200, 300)] {
        let mut dialogue = Dialogue::established(Config { rto_min: ms(rto_min), ..plain() });
        dialogue.write(100);
        dialogue.sends(&["- 1001:1101 ack 5001"]);
        assert_eq!(dialogue.timeout(), ms(probe));
        dialogue.sends(&["- 1001:1101 ack 5001"]);
        dialogue.ends();
    }
}

#[test]
fn a_tail_loss_probe_sends_data_that_nagles_algorithm_holds_back() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.write(200);
    dialogue.sends(&[]);
    dialogue.timeout();
    dialogue.sends(&["- 1101:1301 ack 5001"]);
    dialogue.ends();
}

#[test]
fn an_answer_to_a_window_probe_restarts_the_persist_timer() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.gets("- 5001:5001 ack 1001 win 0");
    dialogue.write(100);
    assert_eq!(dialogue.timeout(), ms(300));
    dialogue.sends(&["- 1000:1000 ack 5001"]);
    dialogue.after(500);
    dialogue.gets("- 5001:5001 ack 1001 win 0");
    assert_eq!(dialogue.timeout(), ms(600));
    dialogue.sends(&["- 1000:1000 ack 5001"]);
    dialogue.ends();
}

#[test]
fn an_old_acknowledgement_does_not_restart_the_keepalive_timer() {
    let mut dialogue = Dialogue::established(minute());
    dialogue.write(100);
    dialogue.sends(&["- 1001:1101 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1101");
    dialogue.after(50_000);
    dialogue.gets("- 5001:5001 ack 1001");
    assert_eq!(dialogue.timeout(), Duration::from_secs(10));
    dialogue.sends(&["- 1100:1100 ack 5001"]);
    // New data restarts it.
    dialogue.gets("- 5001:5101 ack 1001");
    dialogue.read(100);
    dialogue.after(1_000);
    dialogue.sends(&["- 1101:1101 ack 5101"]);
    assert_eq!(dialogue.timeout(), Duration::from_secs(59));
    dialogue.ends();
}

#[test]
fn a_tail_loss_probe_is_not_sent_beyond_a_window_that_has_shrunk() {
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.after(20);
    dialogue.gets("- 5001:5001 ack 2001 win 500");
    dialogue.timeout();
    dialogue.sends(&[]);
    // The retransmission timeout sends the first outstanding segment.
    dialogue.timeout();
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    dialogue.ends();
    // A window whose edge lies in the last segment limits this segment.
    let mut dialogue = Dialogue::established(plain());
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001", "- 3001:4001 ack 5001"]);
    dialogue.after(20);
    dialogue.gets("- 5001:5001 ack 2001 win 1500");
    dialogue.timeout();
    dialogue.sends(&["- 3001:3501 ack 5001"]);
    dialogue.ends();
}

#[test]
fn a_mark_ends_the_wait_for_the_answer_to_a_tail_loss_probe() {
    let mut dialogue = Dialogue::connecting_with(Config { ecn: true, ..plain() }, "SEC 1000:1000");
    dialogue.after(100);
    dialogue.gets("SE 5000:5000 ack 1001 mss 1000 sackok");
    dialogue.sends(&["- 1001:1001 ack 5001"]);
    dialogue.write(2_000);
    dialogue.sends(&["- 1001:2001 ack 5001", "- 2001:3001 ack 5001"]);
    dialogue.timeout();
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    dialogue.after(10);
    dialogue.gets("E 5001:5001 ack 3001");
    assert_eq!(dialogue.connection.info().unwrap().congestion_window, 5_000);
    dialogue.write(1_000);
    dialogue.sends(&["C 3001:4001 ack 5001"]);
    // This acknowledgement lies beyond the probe, which would be a second sign of the same congestion.
    dialogue.gets("- 5001:5001 ack 4001");
    assert_eq!(dialogue.connection.info().unwrap().congestion_window, 5_000);
    dialogue.write(1_000);
    dialogue.sends(&["- 4001:5001 ack 5001"]);
    dialogue.ends();
}

#[test]
fn the_window_of_the_syn_of_a_simultaneous_open_counts_for_small_segments() {
    let mut dialogue = Dialogue::connecting(plain());
    dialogue.gets("S 5000:5000 mss 1000 sackok win 60000");
    dialogue.sends(&["S 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001 win 500");
    dialogue.write(1_000);
    // RFC 9293 section 3.8.6.2.1: the window is far below half of the largest one.
    dialogue.sends(&[]);
    dialogue.gets("- 5001:5001 ack 1001 win 2000");
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.ends();
}
