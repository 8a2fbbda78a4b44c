//! Arbitrary segments, calls and links against a model: no panic, bounded work and memory, streams as they were written.

use proptest::prelude::*;

use super::pair::{CLIENT, Fault, Pair, Plan, SERVER};
use super::*;

/// A step of a random dialogue; numbers are taken near where they matter.
#[derive(Debug, Clone)]
enum Step {
    Segment {
        flags: u8,
        seq: i32,
        len: u16,
        ack: Option<i32>,
        window: u16,
        sack: Vec<(i32, i32)>,
        timestamp: Option<i8>,
        marked: bool,
        urgent: Option<u16>,
    },
    Write(u16),
    Urgent(u8),
    Read(u16),
    Wait(u16),
    Timeout,
    Shutdown,
    Close,
    PathMss(u16),
    TooBig(u16),
    Carrier,
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![8 => -3_i32..3_000, 4 => Just(0), 2 => -70_000_i32..140_000, 1 => any::<i32>()]
}

fn step() -> impl Strategy<Value = Step> {
    let sack = proptest::collection::vec((near(), near()), 0..4);
    let flags = prop_oneof![20 => Just(0_u8), 2 => Just(1_u8), 1 => any::<u8>()];
    let segment = (
        flags,
        near(),
        0_u16..2_000,
        proptest::option::weighted(0.95, near()),
        any::<u16>(),
        sack,
        any::<(Option<i8>, bool, Option<u16>)>(),
    );
    let segment = segment.prop_map(|(flags, seq, len, ack, window, sack, (timestamp, marked, urgent))| Step::Segment {
        flags,
        seq,
        len,
        ack,
        window,
        sack,
        timestamp,
        marked,
        urgent: urgent.filter(|pointer| pointer % 8 == 0),
    });
    prop_oneof![
        20 => segment,
        4 => any::<u16>().prop_map(Step::Write),
        1 => any::<u8>().prop_map(Step::Urgent),
        4 => any::<u16>().prop_map(Step::Read),
        2 => any::<u16>().prop_map(Step::Wait),
        4 => Just(Step::Timeout),
        1 => Just(Step::Shutdown),
        1 => Just(Step::PathMss(0)),
        1 => any::<u16>().prop_map(Step::PathMss),
        1 => any::<u16>().prop_map(Step::TooBig),
        1 => Just(Step::Carrier),
        1 => Just(Step::Close),
    ]
}

/// Segments as a peer sends them if all is well, some time apart.
fn in_order() -> impl Strategy<Value = Step> {
    let ack = prop_oneof![4 => Just(Some(0)), 1 => (-4_000_i32..1).prop_map(Some)];
    let segment = (0_u16..1_400, ack, 1_u16.., proptest::option::weighted(0.3, 0_i8..9)).prop_map(
        |(len, ack, window, timestamp)| Step::Segment {
            flags: 0,
            seq: 0,
            len,
            ack,
            window,
            sack: Vec::new(),
            timestamp,
            marked: false,
            urgent: None,
        },
    );
    prop_oneof![4 => segment, 2 => (1_u16..5_000).prop_map(Step::Write), 1 => (1_u16..60).prop_map(Step::Wait)]
}

/// A connection, what its application wrote and read, and what its peer has seen.
struct Model {
    now: Instant,
    connection: Connection,
    written: Vec<u8>,
    incoming: Vec<u8>,
    read: usize,
    /// Latest acknowledgement and highest number that the connection sent.
    rcv_nxt: SeqNumber,
    snd_max: SeqNumber,
    first: SeqNumber,
    peer_first: SeqNumber,
}

impl Model {
    fn new(sack: bool, timestamps: bool, probing: bool) -> Self {
        let now = Instant::from_ns(1_000_000_000);
        let path_probing = if probing { PathProbing::Always } else { PathProbing::BlackHole };
        let config = Config {
            timestamps: true,
            receive_buffer_bytes_max: 400_000,
            ecn: true,
            mss_default: 300,
            path_probing,
            ..Config::LINUX
        };
        // Both directions wrap soon.
        let mut connection =
            Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(u32::MAX - 7_000)).unwrap();
        connection.poll_transmit(now, 0).unwrap();
        let irs = SeqNumber(u32::MAX - 4_000);
        let (mut header, _) = header("SE 0:0 mss 1400 ws 2");
        (header.seq, header.ack) = (irs, Some(SeqNumber(u32::MAX - 7_000) + 1));
        header.options.sack_permitted = sack;
        header.options.timestamps = timestamps.then_some(Timestamps { value: 1_000, echo: 1 });
        connection.handle_segment(now, &header, false, [].as_slice(), 0).unwrap();
        let first = SeqNumber(u32::MAX - 7_000) + 1;
        let (written, incoming) = (Vec::new(), stream(400_000));
        Self {
            now,
            connection,
            written,
            incoming,
            read: 0,
            rcv_nxt: irs + 1,
            snd_max: first,
            first,
            peer_first: irs + 1,
        }
    }

    fn drain(&mut self) {
        for polls in 0.. {
            assert!(polls < 2_000, "one step makes endless segments");
            let Some(segment) = self.connection.poll_transmit(self.now, 8_000) else { break };
            let mut payload = vec![0; segment.payload.len as usize];
            self.connection.copy_payload(segment.payload, 0, &mut payload);
            if !payload.is_empty() {
                let at = segment.payload.seq.since(self.first) as usize;
                assert!(payload == self.written[at..at + payload.len()], "other bytes than were written");
            }
            let end = segment.header.seq + segment.header.sequence_len(payload.len());
            self.snd_max = self.snd_max.later(end);
            if let Some(ack) = segment.header.ack {
                self.rcv_nxt = self.rcv_nxt.later(ack);
            }
        }
        self.connection.check();
    }

    fn receive(&mut self, most: usize) {
        let mut into = vec![0; most];
        let len = self.connection.receive(self.now, &mut into);
        assert!(into[..len] == self.incoming[self.read..self.read + len], "other bytes than were sent");
        self.read += len;
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Segment { flags, seq, len, ack, window, sack, timestamp, marked, urgent } => {
                let mut header = Header { window: *window, urgent: *urgent, ..Header::default() };
                let at = |base: SeqNumber, offset: i32| SeqNumber(base.0.wrapping_add_signed(offset));
                header.seq = at(self.rcv_nxt, *seq);
                header.ack = ack.map(|ack| at(self.snd_max, ack));
                let [fin, syn, rst, ece, cwr] = [1, 2, 4, 8, 16].map(|bit| flags & bit != 0);
                header.flags = Flags { syn, fin, rst, psh: false, ece, cwr, ae: false };
                for (start, end) in sack {
                    let (start, end) = (at(self.snd_max, *start), at(self.snd_max, *end));
                    header.options.sack.push(Block { start, end });
                }
                let value = 1_010_u32.wrapping_add_signed(i32::from(timestamp.unwrap_or(0)));
                header.options.timestamps = Some(Timestamps { value, echo: 1 });
                // Bytes depend on their place alone; where there are none of that place nothing is sent.
                let place = header.seq.since(self.peer_first) as usize;
                let payload = self.incoming.get(place..place + usize::from(*len)).unwrap_or_default().to_vec();
                let _ = self.connection.handle_segment(self.now, &header, *marked, payload.as_slice(), 0);
            }
            Step::Write(len) => {
                let bytes = stream(usize::from(*len));
                let taken = self.connection.send(self.now, &bytes).unwrap_or(0);
                self.written.extend_from_slice(&bytes[..taken]);
            }
            Step::Urgent(len) => {
                let bytes = stream(usize::from(*len));
                let taken = self.connection.send_urgent(self.now, &bytes).unwrap_or(0);
                self.written.extend_from_slice(&bytes[..taken]);
            }
            Step::Read(most) => self.receive(usize::from(*most)),
            Step::Wait(time_ms) => {
                self.now += ms(u64::from(*time_ms));
                self.connection.handle_timeout(self.now);
            }
            Step::Timeout => {
                if let Some(at) = self.connection.poll_timeout() {
                    self.now = self.now.max(at);
                    self.connection.handle_timeout(self.now);
                    self.drain();
                    let later = self.connection.poll_timeout();
                    assert!(later.is_none_or(|later| later > self.now), "a timer fires for ever");
                }
            }
            Step::Shutdown => self.connection.shutdown(self.now),
            Step::Close => self.connection.close(self.now),
            Step::PathMss(mss) => self.connection.set_path_mss(self.now, *mss),
            Step::TooBig(mss) => {
                let _ = self.connection.handle_icmp(self.now, self.snd_max - 1, SegmentError::TooBig(*mss));
            }
            Step::Carrier => self.connection.carrier_up(self.now),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_segments_and_calls_keep_streams_whole(
        steps in proptest::collection::vec(step(), 1..120),
        sack: bool,
        timestamps: bool,
        probing: bool,
    ) {
        let mut model = Model::new(sack, timestamps, probing);
        for step in &steps {
            model.take(step);
            model.drain();
            prop_assert_eq!(model.connection.readiness().urgent, model.connection.urgent_ahead() > 0);
            if let Some(info) = model.connection.info() {
                prop_assert!(info.buffer_bytes <= 10 << 20 && info.sent_segments <= 8_192, "{:?}", info);
            }
        }
        model.receive(4_000_000);
        model.connection.abort();
        model.drain();
        prop_assert_eq!((model.connection.poll_timeout(), model.connection.received()), (None, 0));
    }
}

/// All that a connection is after each of these steps, by header prediction or without.
fn history(steps: &[Step], settings: (bool, bool, bool), predicting: bool) -> Vec<String> {
    crate::tcp::fast_path::OFF.set(!predicting);
    let mut model = Model::new(settings.0, settings.1, settings.2);
    let mut states = Vec::new();
    for step in steps {
        model.take(step);
        states.push(format!("{:?}", model.connection));
        model.drain();
        states.push(format!("{:?}", model.connection));
    }
    crate::tcp::fast_path::OFF.set(false);
    states
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_segment_has_the_same_effect_on_the_fast_and_the_slow_path(
        steps in proptest::collection::vec(prop_oneof![1 => step(), 2 => in_order()], 1..60),
        sack: bool,
        timestamps: bool,
        probing: bool,
    ) {
        let (with, without) = (history(&steps, (sack, timestamps, probing), true), history(&steps, (sack, timestamps, probing), false));
        for (at, (with, without)) in with.iter().zip(&without).enumerate() {
            prop_assert_eq!(with, without, "after {:?}", steps.get(at / 2));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_link_with_random_faults_carries_both_streams_whole(
        seed: u64,
        percent in 0_u64..12,
        sack: bool,
        control in 0..CongestionControl::ALL.len(),
        large: bool,
        timestamps: bool,
        probing: bool,
        delay_ms in 1_u64..80,
        buffer in 3_000_usize..200_000,
    ) {
        let congestion = CongestionControl::ALL[control];
        let path_probing = if probing { PathProbing::Always } else { PathProbing::BlackHole };
        let (receive_buffer_bytes, receive_buffer_bytes_max) = (buffer, buffer * 2);
        let config = Config { sack, timestamps, congestion, path_probing, receive_buffer_bytes, receive_buffer_bytes_max, ..Config::LINUX };
        let mut pair = Pair::established(config, Config { no_delay: true, ..config });
        pair.delay = ms(delay_ms);
        pair.large_bytes = if large { 16_000 } else { 0 };
        pair.faults = [faults(seed, percent), faults(!seed, percent)];
        let bytes = stream(60_000);
        pair.transfer(CLIENT, &bytes);
        pair.transfer(SERVER, &bytes);
        pair.faults = [Box::new(|_, _| None), Box::new(|_, _| None)];
        pair.run(ms(130_000));
        pair.close();
    }
}

fn faults(mut state: u64, percent: u64) -> Plan {
    Box::new(move |_, _| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (dice, time) = ((state >> 33) % 100, (state >> 50) % 40);
        match dice / percent.max(1) {
            _ if percent == 0 => None,
            0 => Some(Fault::Drop),
            1 => Some(Fault::Delay(ms(time))),
            2 => Some(Fault::Twice),
            _ => None,
        }
    })
}
