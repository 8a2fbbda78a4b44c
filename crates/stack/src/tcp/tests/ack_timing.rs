//! When data of the peer is acknowledged: at once, after a read of the application, or after a delay.

use super::*;
use crate::wire::tcp::IpEcn;

/// A connection whose peer sends segments with PSH, each behind the one before.
struct Receiving {
    dialogue: Dialogue,
    seq: u32,
}

impl Receiving {
    fn new(config: Config) -> Self {
        Self { dialogue: Dialogue::established(config), seq: 5_001 }
    }

    /// The same, after the acknowledgements that are sent at once at the start.
    fn started() -> Self {
        let mut receiving = Self::new(plain());
        for _ in 0..16 {
            receiving.gets(100);
            receiving.acknowledges();
            receiving.dialogue.read(100);
            receiving.silent();
        }
        receiving
    }

    fn gets(&mut self, bytes: u32) {
        self.gets_with("P", bytes);
    }

    fn gets_with(&mut self, flags: &str, bytes: u32) {
        let (first, acked) = (self.seq, self.dialogue.sent_to.max(1_001));
        self.seq += bytes;
        self.dialogue.gets(&format!("{flags} {first}:{} ack {acked}", self.seq));
    }

    fn acknowledges(&mut self) {
        let sent = self.dialogue.sent_to.max(1_001);
        self.dialogue.sends(&[&format!("- {sent}:{sent} ack {}", self.seq)]);
    }

    fn silent(&mut self) {
        self.dialogue.sends(&[]);
    }

    /// The application writes 200 bytes, which carry the acknowledgement.
    fn answers(&mut self) {
        let sent = self.dialogue.sent_to.max(1_001);
        self.dialogue.write(200);
        self.dialogue.sends(&[&format!("- {sent}:{} ack {}", sent + 200, self.seq)]);
    }
}

#[test]
fn a_small_segment_is_acknowledged_when_the_application_has_read_everything() {
    let mut receiving = Receiving::started();
    receiving.gets(100);
    receiving.silent();
    receiving.dialogue.read(99);
    receiving.silent();
    receiving.dialogue.read(1);
    receiving.acknowledges();
    receiving.dialogue.ends();
}

#[test]
fn a_full_segment_is_acknowledged_after_a_read_only_with_push() {
    let mut receiving = Receiving::started();
    receiving.gets_with("-", 1_000);
    receiving.dialogue.read(1_000);
    receiving.silent();
    assert_eq!(receiving.dialogue.timeout(), ms(40));
    receiving.acknowledges();
    receiving.gets(1_000);
    receiving.silent();
    receiving.dialogue.read(1_000);
    receiving.acknowledges();
    receiving.dialogue.ends();
}

#[test]
fn an_answering_application_acknowledges_by_its_answer_unless_two_small_segments_wait() {
    let mut receiving = Receiving::started();
    receiving.gets(100);
    receiving.dialogue.read(100);
    receiving.acknowledges();
    receiving.answers();
    for _ in 0..3 {
        receiving.gets(100);
        receiving.dialogue.read(100);
        receiving.silent();
        receiving.answers();
    }
    receiving.gets(100);
    receiving.gets(50);
    receiving.silent();
    receiving.dialogue.read(150);
    receiving.acknowledges();
    receiving.dialogue.ends();
}

#[test]
fn a_late_answer_ends_the_exchange_of_requests_and_answers() {
    let mut receiving = Receiving::started();
    receiving.gets(100);
    receiving.dialogue.read(100);
    receiving.acknowledges();
    receiving.answers();
    receiving.gets(100);
    receiving.dialogue.read(100);
    assert_eq!(receiving.dialogue.timeout(), ms(40));
    receiving.acknowledges();
    // The answer is later than expected, so the next segment does not wait for an answer.
    receiving.answers();
    receiving.gets(100);
    receiving.dialogue.read(100);
    receiving.acknowledges();
    receiving.dialogue.ends();
}

#[test]
fn an_application_that_writes_first_answers_unless_the_peer_is_silent_for_long() {
    for (pause_ms, is_quick) in [(10, false), (400, true)] {
        let mut receiving = Receiving::new(plain());
        receiving.dialogue.write(200);
        receiving.dialogue.sends(&["- 1001:1201 ack 5001"]);
        receiving.dialogue.gets("- 5001:5001 ack 1201");
        receiving.dialogue.after(pause_ms);
        receiving.gets(100);
        if is_quick {
            receiving.acknowledges();
        } else {
            receiving.silent();
        }
        receiving.dialogue.ends();
    }
}

#[test]
fn repeated_data_is_a_reason_for_acknowledgements_at_once() {
    let mut receiving = Receiving::started();
    receiving.gets(100);
    receiving.dialogue.read(100);
    receiving.acknowledges();
    receiving.answers();
    receiving.gets(100);
    receiving.silent();
    let (first, end) = (receiving.seq - 100, receiving.seq);
    receiving.dialogue.refuses(&format!("P {first}:{end} ack 1201"), TcpDrop::Duplicate);
    receiving.dialogue.sends(&[&format!("- 1201:1201 ack {end} sack {first}:{end}")]);
    receiving.gets(100);
    receiving.acknowledges();
    receiving.dialogue.ends();
}

#[test]
fn few_segments_are_acknowledged_at_once_if_few_fit_into_the_window() {
    // The window of the SYN is 65,535 bytes, which is half of it in one segment of 20,000 bytes.
    let config = Config { mss: 20_000, ..plain() };
    let mut dialogue = Dialogue::established_by(config, "S 5000:5000 ack 1001 mss 20000 sackok");
    dialogue.gets("- 5001:25001 ack 1001");
    dialogue.sends(&["- 1001:1001 ack 25001"]);
    dialogue.gets("- 25001:45001 ack 1001");
    dialogue.sends(&[]);
    dialogue.ends();
}

#[test]
fn the_expected_time_of_an_answer_follows_the_gaps_between_segments_up_to_the_rtt() {
    let mut receiving = Receiving::started();
    // Gaps of 39 ms let the estimate approach 78 ms; the RTT of 100 ms is longer.
    for _ in 0..20 {
        receiving.dialogue.after(39);
        receiving.gets(100);
        receiving.dialogue.read(100);
        receiving.acknowledges();
    }
    receiving.gets_with("-", 1_000);
    assert_eq!(receiving.dialogue.timeout(), ms(58));
    receiving.acknowledges();
    receiving.dialogue.ends();
}

#[test]
fn an_exchange_of_requests_and_responses_has_no_further_segments() {
    use pair::{CLIENT, Pair, SERVER};
    let mut pair = Pair::established(Config::LINUX, Config::LINUX);
    pair.delay = Duration::from_micros(5);
    // The first response and the first request are acknowledged at once.
    for (from, bytes) in [(CLIENT, 200), (SERVER, 1_000), (CLIENT, 200), (SERVER, 1_000)] {
        pair.transfer(from, &stream(bytes));
    }
    let before = pair.counts;
    for _ in 0..1_000 {
        pair.transfer(CLIENT, &stream(200));
        pair.transfer(SERVER, &stream(1_000));
    }
    assert_eq!(pair.counts, before.map(|count| count + 1_000));
}

// Nagle's algorithm of the sender holds back each write until the one before is acknowledged.
#[test]
fn a_stream_of_small_writes_does_not_wait_for_delayed_acknowledgements() {
    use pair::{CLIENT, Pair, SERVER};
    for from in [CLIENT, SERVER] {
        let mut pair = Pair::established(Config::LINUX, Config::LINUX);
        pair.delay = Duration::from_micros(5);
        pair.transfer(CLIENT, &stream(100));
        pair.transfer(SERVER, &stream(100));
        pair.run(ms(100));
        let begun = pair.now;
        for _ in 0..100 {
            pair.transfer(from, &stream(50));
        }
        // After the request and the response, the receiver waits once in vain for an answer of its application.
        assert!(pair.now.since(begun) < ms(45), "{from}: {:?}", pair.now.since(begun));
    }
}

/// A connection with classic ECN whose application answers requests, so that answers carry the acknowledgements.
fn answering_with_ecn() -> Dialogue {
    let now = Instant::from_ns(1_000_000_000);
    let (syn, _) = header("SEC 5000:5000 mss 1000 sackok");
    let config = Config { ecn: true, ..plain() };
    let mut dialogue = Dialogue::begin(Connection::accept(now, config, &syn, initial(1_000)).unwrap());
    dialogue.sends(&["SE 1000:1000 ack 5001"]);
    dialogue.gets("- 5001:5001 ack 1001");
    // The acknowledgements that are sent at once at the start.
    for request in 0..20 {
        let first = 5_001 + 100 * request;
        dialogue.gets(&format!("P {first}:{} ack {}", first + 100, dialogue.sent_to.max(1_001)));
        dialogue.read(100);
        dialogue.write(100);
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        dialogue.sent_to = 1_101 + 100 * request;
    }
    dialogue
}

#[test]
fn after_a_packet_without_ect_on_a_connection_with_ecn_acknowledgements_are_sent_at_once() {
    // The payload of the first packet, its ECN field, and whether a later packet without ECT is acknowledged at once.
    for (ecn, at_once) in [(IpEcn::NotCapable, false), (IpEcn::Capable0, true), (IpEcn::Congestion, true)] {
        let mut dialogue = answering_with_ecn();
        let (first, _) = header("P 7001:7101 ack 3001");
        let payload = stream(100);
        assert_eq!(dialogue.connection.handle_segment(dialogue.now, &first, ecn, payload.as_slice(), 0), Ok(()));
        dialogue.read(100);
        dialogue.write(100);
        while dialogue.connection.poll_transmit(dialogue.now, 0).is_some() {}
        dialogue.gets("P 7101:7201 ack 3101");
        let mark = if ecn == IpEcn::Congestion { "E" } else { "-" };
        let acknowledgement = format!("{mark} 3101:3101 ack 7201");
        let expected: &[&str] = if at_once { &[&acknowledgement] } else { &[] };
        dialogue.sends(expected);
    }
}

#[test]
fn the_first_congestion_mark_lets_the_next_two_segments_be_acknowledged_at_once() {
    let (usual, marked) = (IpEcn::Capable0, IpEcn::Congestion);
    // The ECN fields of four packets, and whether each is acknowledged at once. Each packet with a mark is.
    for (fields, at_once) in [
        ([usual, usual, usual, usual], [false; 4]),
        ([marked, usual, usual, usual], [true, true, false, false]),
        ([usual, marked, usual, usual], [false, true, true, false]),
        // Only the first mark before CWR counts.
        ([marked, usual, marked, usual], [true, true, true, false]),
    ] {
        let mut dialogue = answering_with_ecn();
        let mut is_marked = false;
        for (first, (ecn, at_once)) in (7_001..).step_by(100).zip(fields.into_iter().zip(at_once)) {
            let end = first + 100;
            let (header, _) = header(&format!("P {first}:{end} ack 3001"));
            let payload = stream(100);
            assert_eq!(dialogue.connection.handle_segment(dialogue.now, &header, ecn, payload.as_slice(), 0), Ok(()));
            is_marked |= ecn == marked;
            let acknowledgement = format!("{} 3001:3001 ack {end}", if is_marked { "E" } else { "-" });
            let expected: &[&str] = if at_once { &[&acknowledgement] } else { &[] };
            dialogue.sends(expected);
        }
    }
}
