//! SYN cookies: a listener whose backlog is full answers a SYN without storing state.
//!
//! The SYN-ACK carries the state of the connection, and the peer's ACK returns this state. The initial sequence number contains a
//! keyed hash and the peer's MSS, rounded down. As in Linux, the low bits of the timestamp contain the window scale and whether
//! SACK is used. Without timestamps, the connection has neither window scaling nor SACK. A cookie is valid for one to two minutes.
//! ECN is not negotiated.

use super::buffer::Storage;
use super::config::Config;
use super::connection::Connection;
use super::initial::Initial;
use super::timestamp;
use crate::seed::Secret;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, HeaderOptions, SeqNumber, Timestamps};
use subtle::ConstantTimeEq;

/// MSS values that the three bits of a cookie select. A cookie uses the largest value that is not above the peer's MSS.
const MSS: [u16; 8] = [48, 536, 1_220, 1_360, 1_440, 1_460, 4_312, 8_960];
/// Tick of the clock in a cookie, in nanoseconds.
const TICK_NS: u64 = 64_000_000_000;
/// Low bits of a timestamp that carry options: four bits for window scale, one bit for SACK.
const OPTION_BITS: u32 = 0x1f;
/// Value of the window scale bits if window scaling is not used.
const NO_SCALE: u32 = 0xf;

/// Makes and checks the SYN cookies for connections between one local and one remote address and port.
#[derive(Debug, Clone, Copy)]
pub struct SynCookie<'a> {
    /// Key of the hash in the cookies. It is used for nothing else.
    pub secret: Secret,
    /// Key of the timestamp offsets. All connections share it.
    pub numbers: Secret,
    /// Both addresses and both ports, in the form that [`Initial::new`] expects.
    pub identity: &'a [u8],
    /// Settings of the resulting connections.
    pub config: &'a Config,
}

impl SynCookie<'_> {
    /// Returns the SYN-ACK that answers a SYN.
    pub fn answer(&self, now: Instant, syn: &Header) -> Header {
        let config = self.config;
        let theirs = syn.options.timestamps.filter(|_| config.timestamps);
        let scale = syn.options.window_scale.filter(|_| theirs.is_some() && config.window_scaling);
        let sack = syn.options.sack_permitted && theirs.is_some() && config.sack;
        let mss = syn.options.mss.unwrap_or(config.mss_default);
        let place = MSS.partition_point(|value| *value <= mss).saturating_sub(1);
        let index = u32::try_from(place).unwrap_or(0);
        let bits = scale.map_or(NO_SCALE, u32::from) | if sack { 0x10 } else { 0 };
        let clock = timestamp(now, self.offset(now));
        // The timestamp must not be ahead of the clock. Otherwise the segments that follow would have an older timestamp, and
        // PAWS at the peer would drop them.
        let marked = (clock & !OPTION_BITS) | bits;
        let value =
            if SeqNumber(marked).after(SeqNumber(clock)) { marked.wrapping_sub(OPTION_BITS + 1) } else { marked };
        Header {
            source_port: syn.destination_port,
            destination_port: syn.source_port,
            seq: self.seq(syn.seq, now.as_ns() / TICK_NS, index),
            ack: Some(syn.seq + 1),
            flags: Flags { syn: true, ..Flags::default() },
            window: u16::try_from(config.receive_buffer_bytes).unwrap_or(u16::MAX),
            options: HeaderOptions {
                mss: Some(config.mss),
                window_scale: scale.map(|_| config.window_shift()),
                sack_permitted: sack,
                timestamps: theirs.map(|theirs| Timestamps { value, echo: theirs.value }),
                ..HeaderOptions::default()
            },
            ..Header::default()
        }
    }

    /// Returns the connection that `ack` opens, or `None` if `ack` acknowledges no valid cookie. The caller then passes `ack` to
    /// the connection.
    pub fn accept<S: Storage + Default>(&self, now: Instant, ack: &Header) -> Option<Connection<S>> {
        if ack.flags.syn || ack.flags.rst {
            return None;
        }
        let (iss, irs) = (ack.ack? - 1, ack.seq - 1);
        let index = iss.0 >> 24 & 7;
        let now_tick = now.as_ns() / TICK_NS;
        // The cookies of this tick and of the tick before are valid. Both comparisons run in constant time, so that the duration
        // of a refusal reveals nothing to a forger.
        let [now_is, before_is] =
            [now_tick, now_tick.saturating_sub(1)].map(|tick| self.seq(irs, tick, index).0.ct_eq(&iss.0));
        let valid = bool::from(now_is | before_is);
        let mss = MSS.get(usize::try_from(index).ok()?).filter(|_| valid)?;
        let bits = ack.options.timestamps.filter(|_| self.config.timestamps).map(|theirs| theirs.echo & OPTION_BITS);
        let scale = bits.map(|bits| bits & NO_SCALE).filter(|scale| *scale != NO_SCALE);
        let syn = Header {
            source_port: ack.source_port,
            destination_port: ack.destination_port,
            seq: irs,
            window: ack.window,
            flags: Flags { syn: true, ..Flags::default() },
            options: HeaderOptions {
                mss: Some(*mss),
                window_scale: scale.and_then(|scale| u8::try_from(scale.min(14)).ok()),
                sack_permitted: bits.is_some_and(|bits| bits & 0x10 != 0),
                timestamps: ack.options.timestamps,
                ..HeaderOptions::default()
            },
            ..Header::default()
        };
        let initial = Initial { seq: iss, timestamp_offset: self.offset(now) };
        Connection::accept_answered(now, *self.config, &syn, initial).ok()
    }

    fn offset(&self, now: Instant) -> u32 {
        Initial::new(self.numbers, self.identity, now).timestamp_offset
    }

    /// Returns the sequence number of a cookie: five bits of clock, three bits of MSS and 24 bits of hash.
    fn seq(&self, irs: SeqNumber, tick: u64, index: u32) -> SeqNumber {
        let mut bytes = Vec::with_capacity(self.identity.len() + 16);
        bytes.extend_from_slice(&irs.0.to_be_bytes());
        bytes.extend_from_slice(&index.to_be_bytes());
        bytes.extend_from_slice(&tick.to_be_bytes());
        bytes.extend_from_slice(self.identity);
        let [.., a, b, c] = self.secret.hash(&bytes).to_be_bytes();
        let clock = u32::try_from(tick & 31).unwrap_or(0);
        SeqNumber(clock << 27 | index << 24 | u32::from_be_bytes([0, a, b, c]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CongestionControl, Heap, Ports, StateName};
    use super::*;
    use crate::drops::TcpDrop;
    use crate::time::Duration;

    const CONFIG: Config = Config {
        send_buffer_bytes_max: 1 << 20,
        receive_buffer_bytes: 1 << 16,
        receive_buffer_bytes_max: 1 << 20,
        congestion: CongestionControl::Reno,
        ..Config::LINUX
    };

    fn cookie(secret: u64) -> SynCookie<'static> {
        SynCookie {
            secret: Secret([secret, 7]),
            numbers: Secret([secret, 8]),
            identity: b"1.2.3.4:5 6.7.8.9:10",
            config: &CONFIG,
        }
    }

    /// A client's connection, the cookie that answered its SYN, and its ACK of the cookie.
    fn client(now: Instant, config: Config) -> (Connection, Header, Header) {
        let initial = Initial { seq: SeqNumber(70), timestamp_offset: 9 };
        let mut client = Connection::connect(now, config, Ports { local: 5, remote: 10 }, initial).unwrap();
        let syn = client.poll_transmit(now, 0).unwrap().header;
        let answer = cookie(1).answer(now, &syn);
        client.handle_segment(now, &answer, false, [].as_slice(), 0).unwrap();
        let ack = client.poll_transmit(now, 0).unwrap().header;
        (client, answer, ack)
    }

    #[test]
    fn a_syn_cookie_becomes_a_connection_with_the_agreed_options() {
        for ms in 0..64 {
            let now = Instant::from_ns(1_000_000_000 + ms * 1_000_000);
            let (mut client, _, ack) = client(now, CONFIG);
            let mut server: Connection = cookie(1).accept(now, &ack).unwrap();
            server.handle_segment(now, &ack, false, [].as_slice(), 0).unwrap();
            assert_eq!(server.state_name(), StateName::Established);
            let info = server.info().unwrap();
            assert_eq!((info.segment_bytes, info.peer_window), (1_448, client.info().unwrap().window));
            // The server's next timestamp is not older than that of its cookie.
            server.send(now, b"hello").unwrap();
            let segment = server.poll_transmit(now, 0).unwrap();
            client.handle_segment(now, &segment.header, false, b"hello".as_slice(), 0).unwrap();
            assert_eq!(client.received(), 5);
            // SACK was negotiated, so a gap is reported.
            let mut ahead = ack;
            ahead.seq += 100;
            server.handle_segment(now, &ahead, false, [1; 10].as_slice(), 0).unwrap();
            assert_eq!(server.poll_transmit(now, 0).unwrap().header.options.sack.as_slice().len(), 1);
        }
    }

    #[test]
    fn a_syn_ack_with_a_cookie_offers_what_a_listener_with_room_offers() {
        let (now, initial) = (Instant::from_ns(1), Initial { seq: SeqNumber(70), timestamp_offset: 9 });
        let mut client: Connection = Connection::connect(now, CONFIG, Ports { local: 5, remote: 10 }, initial).unwrap();
        let syn = client.poll_transmit(now, 0).unwrap().header;
        let answer = cookie(1).answer(now, &syn);
        let mut server: Connection = Connection::accept(now, CONFIG, &syn, initial).unwrap();
        let offer = server.poll_transmit(now, 0).unwrap().header;
        let echo = |header: &Header| header.options.timestamps.map(|timestamps| timestamps.echo);
        assert_eq!(echo(&answer), echo(&offer));
        let options = HeaderOptions { timestamps: answer.options.timestamps, ..offer.options };
        assert_eq!(answer, Header { seq: answer.seq, options, ..offer });
    }

    #[test]
    fn cookie_numbers_and_timestamps_follow_the_clock_from_a_secret_offset() {
        let (now, syn) = (Instant::from_ns(1), Header { seq: SeqNumber(9), ..Header::default() });
        for step in 0..40 {
            let answer = cookie(1).answer(now + Duration::from_nanos(TICK_NS) * step, &syn);
            assert_eq!(answer.seq.0 >> 27, step & 31);
        }
        let mut clocks: Vec<u32> = Vec::new();
        for (secret, identity) in [(1, b"one"), (1, b"two"), (2, b"one")] {
            let options =
                HeaderOptions { timestamps: Some(Timestamps { value: 5, echo: 0 }), ..HeaderOptions::default() };
            let cookie = SynCookie { identity, ..cookie(secret) };
            let clock = |ms| {
                let now = now + Duration::from_millis(ms);
                cookie.answer(now, &Header { options, ..syn }).options.timestamps.unwrap().value
            };
            assert_eq!(clock(64_000).wrapping_sub(clock(0)), 64_000);
            clocks.push(clock(0));
        }
        clocks.sort_unstable();
        assert!(clocks.windows(2).all(|pair| pair[1] - pair[0] > 1_000) && clocks[0] > 1_000, "{clocks:?}");
    }

    #[test]
    fn a_syn_cookie_agrees_no_option_that_the_peer_did_not_offer() {
        let now = Instant::from_ns(1);
        for (sack, window_scaling) in [(false, false), (false, true), (true, false), (true, true)] {
            let (client, answer, ack) = client(now, Config { sack, window_scaling, ..CONFIG });
            assert_eq!((answer.options.sack_permitted, answer.options.window_scale.is_some()), (sack, window_scaling));
            let mut server: Connection = cookie(1).accept(now, &ack).unwrap();
            server.handle_segment(now, &ack, false, [].as_slice(), 0).unwrap();
            assert_eq!(server.info().unwrap().peer_window, client.info().unwrap().window);
            let ahead = Header { seq: ack.seq + 100, ..ack };
            server.handle_segment(now, &ahead, false, [1; 10].as_slice(), 0).unwrap();
            let told = server.poll_transmit(now, 0).unwrap().header.options.sack;
            assert_eq!(told.as_slice().len(), usize::from(sack));
        }
    }

    #[test]
    fn a_syn_cookie_without_timestamps_agrees_no_further_options() {
        let now = Instant::from_ns(1);
        let (_, answer, ack) = client(now, Config { timestamps: false, mss: 1_000, ..CONFIG });
        assert_eq!((answer.options.window_scale, answer.options.sack_permitted), (None, false));
        let mut server: Connection = cookie(1).accept(now, &ack).unwrap();
        server.handle_segment(now, &ack, false, [].as_slice(), 0).unwrap();
        assert_eq!(server.info().unwrap().segment_bytes, 536, "the next lower value that has a name");
    }

    #[test]
    fn only_the_acknowledgement_of_a_fresh_syn_cookie_becomes_a_connection() {
        let now = Instant::from_ns(1);
        let (_, _, ack) = client(now, CONFIG);
        let made = |cookie: SynCookie<'_>, now, header: &Header| cookie.accept::<Heap>(now, header).is_some();
        assert!(made(cookie(1), now + Duration::from_secs(64), &ack));
        assert!(!made(cookie(1), now + Duration::from_secs(128), &ack), "too old");
        assert!(!made(cookie(1), now + Duration::from_secs(64 * 32), &ack), "the clock's five bits come round");
        assert!(!made(cookie(2), now, &ack), "another secret");
        assert!(!made(SynCookie { identity: b"another", ..cookie(1) }, now, &ack));
        assert!(!made(cookie(1), now, &Header { ack: Some(ack.ack.unwrap() + 1), ..ack }));
        assert!(!made(cookie(1), now, &Header { seq: ack.seq + 1, ..ack }));
        assert!(!made(cookie(1), now, &Header { ack: None, ..ack }));
        let mut reset = ack;
        reset.flags.rst = true;
        assert!(!made(cookie(1), now, &reset));
        let mut server: Connection = cookie(1).accept(now, &ack).unwrap();
        assert!(server.poll_transmit(now, 0).is_none(), "its SYN-ACK has gone already");
        let old = Header { seq: ack.seq - 10, ..ack };
        assert_eq!(server.handle_segment(now, &old, false, [].as_slice(), 0), Err(TcpDrop::OutOfWindow));
    }

    #[test]
    fn a_forged_syn_cookie_is_refused() {
        let now = Instant::from_ns(1);
        let (_, _, ack) = client(now, CONFIG);
        let genuine = ack.ack.unwrap();
        let accepted = |ack: Header| cookie(1).accept::<Heap>(now, &ack).is_some();
        assert!(accepted(ack));
        // A forger knows all bits but the 24 of the hash.
        let guesses = (1..100_000).map(|guess: u32| Header { ack: Some(SeqNumber(genuine.0 ^ guess)), ..ack });
        assert!(guesses.filter(|guess| accepted(*guess)).count() <= 1, "one of 16,777,216 guesses is right");
        // Cookies and timestamp offsets have different keys.
        let swapped = SynCookie { secret: cookie(1).numbers, numbers: cookie(1).secret, ..cookie(1) };
        assert!(swapped.accept::<Heap>(now, &ack).is_none());
    }
}
