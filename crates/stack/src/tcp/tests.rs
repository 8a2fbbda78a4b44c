//! Dialogues and whole transfers, by topic.
//!
//! A dialogue is one connection and a script: what the peer sends, what the connection answers. Both are written as
//! `FLAGS FIRST:END ack N up N win N ts VALUE ECHO fo COOKIE sack A:B ...`. FLAGS are letters of `SFREC`
//! (SYN, FIN, RST, ECE, CWR), `A` (AE) and, in segments of the peer, `P` (PSH), or `-` if no flag is set.
//! This side's data begins at 1001, the peer's at 5001. What is sent is written without window and timestamps.

mod accurate_ecn;
mod ack_timing;
mod bbr;
mod closing;
mod fast_open;
mod fast_path;
mod flow;
mod handshake;
mod hostile;
mod loss;
mod marks;
mod pair;
mod plpmtud;
mod random;
mod samples;
mod timers;
mod transfer;
mod undo;
mod urgent;

use super::*;
use crate::drops::TcpDrop;
use crate::wire::tcp::{Block, FastOpenOption, Flags, HEADER_BYTES_MAX, Header, HeaderOptions, SeqNumber, Timestamps};
use pair::{initial, ms, stream};

/// One connection and its script.
pub(super) struct Dialogue {
    now: Instant,
    connection: Connection,
    /// Headers of what was sent last.
    last: Vec<Header>,
    /// Behind all that was sent.
    sent_to: u32,
}

/// A plain configuration: no timestamps, so that scripts are short.
fn plain() -> Config {
    Config { timestamps: false, congestion: CongestionControl::Reno, ..Config::LINUX }
}

fn header(text: &str) -> (Header, usize) {
    let mut header = Header { source_port: 2, destination_port: 1, window: 60_000, ..Header::default() };
    let mut words = text.split_whitespace();
    let number = |word: Option<&str>| word.unwrap().parse::<u32>().unwrap();
    let range = |word: &str| {
        let (first, end) = word.split_once(':').unwrap();
        Block { start: SeqNumber(number(Some(first))), end: SeqNumber(number(Some(end))) }
    };
    for letter in words.next().unwrap().chars() {
        match letter {
            'S' => header.flags.syn = true,
            'F' => header.flags.fin = true,
            'R' => header.flags.rst = true,
            'E' => header.flags.ece = true,
            'C' => header.flags.cwr = true,
            'P' => header.flags.psh = true,
            'A' => header.flags.ae = true,
            _ => assert_eq!(letter, '-'),
        }
    }
    let text = range(words.next().unwrap());
    header.seq = text.start;
    while let Some(word) = words.next() {
        match word {
            "ack" => header.ack = Some(SeqNumber(number(words.next()))),
            "win" => header.window = number(words.next()).try_into().unwrap(),
            "up" => header.urgent = Some(number(words.next()).try_into().unwrap()),
            "mss" => header.options.mss = Some(number(words.next()).try_into().unwrap()),
            "ws" => header.options.window_scale = Some(number(words.next()).try_into().unwrap()),
            "fo" => header.options.fast_open = FastOpenOption::new(words.next().unwrap().trim_matches('-').as_bytes()),
            "sackok" => header.options.sack_permitted = true,
            "ts" => {
                let (value, echo) = (number(words.next()), number(words.next()));
                header.options.timestamps = Some(Timestamps { value, echo });
            }
            "sack" => {
                for word in words.by_ref() {
                    assert!(header.options.sack.push(range(word)));
                }
            }
            _ => panic!("{word}"),
        }
    }
    (header, text.bytes() as usize)
}

fn text(header: &Header, len: u32) -> String {
    let flags = header.flags;
    let letters =
        [(flags.syn, 'S'), (flags.fin, 'F'), (flags.rst, 'R'), (flags.ece, 'E'), (flags.cwr, 'C'), (flags.ae, 'A')];
    let mut out: String = letters.iter().filter(|(set, _)| *set).map(|(_, letter)| *letter).collect();
    if out.is_empty() {
        out.push('-');
    }
    out += &format!(" {}:{}", header.seq.0, header.seq.0.wrapping_add(len));
    if let Some(ack) = header.ack {
        out += &format!(" ack {}", ack.0);
    }
    if let Some(pointer) = header.urgent {
        out += &format!(" up {pointer}");
    }
    if let Some(option) = header.options.fast_open {
        let cookie = str::from_utf8(option.cookie()).unwrap();
        out += &format!(" fo {}", if option.is_request() { "-" } else { cookie });
    }
    for (at, Block { start, end }) in header.options.sack.as_slice().iter().enumerate() {
        out += if at == 0 { " sack" } else { "" };
        out += &format!(" {}:{}", start.0, end.0);
    }
    out
}

impl Dialogue {
    fn begin(connection: Connection) -> Self {
        Self { now: Instant::from_ns(1_000_000_000), connection, last: Vec::new(), sent_to: 0 }
    }

    /// From SYN-SENT, the SYN being out.
    fn connecting(config: Config) -> Self {
        Self::connecting_with(config, "S 1000:1000")
    }

    /// The same, with this SYN.
    fn connecting_with(config: Config, syn: &str) -> Self {
        let now = Instant::from_ns(1_000_000_000);
        let mut dialogue =
            Self::begin(Connection::connect(now, config, Ports { local: 1, remote: 2 }, initial(1_000)).unwrap());
        dialogue.sends(&[syn]);
        dialogue
    }

    /// From SYN-RECEIVED, the SYN-ACK being out.
    fn accepting(config: Config) -> Self {
        let now = Instant::from_ns(1_000_000_000);
        let (syn, _) = header("S 5000:5000 mss 1000 sackok");
        let mut dialogue = Self::begin(Connection::accept(now, config, &syn, initial(1_000)).unwrap());
        dialogue.sends(&["S 1000:1000 ack 5001"]);
        dialogue
    }

    /// From ESTABLISHED, 100 ms away from a peer that takes segments of 1,000 bytes.
    fn established(config: Config) -> Self {
        Self::established_by(config, "S 5000:5000 ack 1001 mss 1000 sackok")
    }

    fn established_by(config: Config, syn: &str) -> Self {
        let mut dialogue = Self::connecting(config);
        dialogue.after(100);
        dialogue.gets(syn);
        dialogue.sends(&["- 1001:1001 ack 5001"]);
        assert_eq!(dialogue.state(), StateName::Established);
        dialogue
    }

    /// The same, its window of 1,000 bytes being full, and the peer told so.
    fn full() -> Self {
        let config = Config { receive_buffer_bytes: 1_000, receive_buffer_bytes_max: 1_000, ..plain() };
        let mut dialogue = Self::established(config);
        dialogue.gets("- 5001:6001 ack 1001");
        dialogue.sends(&["- 1001:1001 ack 6001"]);
        assert_eq!(dialogue.last[0].window, 0);
        dialogue
    }

    fn state(&self) -> StateName {
        self.connection.state_name()
    }

    fn after(&mut self, time_ms: u64) {
        self.now += ms(time_ms);
        self.connection.handle_timeout(self.now);
    }

    /// Moves on to the connection's next deadline and returns how long that took.
    fn timeout(&mut self) -> Duration {
        let at = self.connection.poll_timeout().unwrap();
        let waited = at.since(self.now);
        self.now += waited;
        self.connection.handle_timeout(self.now);
        waited
    }

    fn take(&mut self, text: &str, marked: bool) -> Result<(), TcpDrop> {
        let (header, len) = header(text);
        let payload: Vec<u8> = stream(len);
        self.connection.handle_segment(self.now, &header, marked, payload.as_slice(), 0)
    }

    /// The peer sends a segment, which is taken.
    fn gets(&mut self, text: &str) {
        assert_eq!(self.take(text, false), Ok(()), "{text}");
    }

    /// The peer sends a segment, which is dropped.
    fn refuses(&mut self, text: &str, reason: TcpDrop) {
        assert_eq!(self.take(text, false), Err(reason), "{text}");
    }

    /// The connection sends these segments and no others.
    fn sends(&mut self, texts: &[&str]) {
        let mut sent = Vec::new();
        self.last.clear();
        loop {
            let is_announced = self.connection.wants_transmit();
            let Some(segment) = self.connection.poll_transmit(self.now, 0) else { break };
            assert!(is_announced, "the owner would not have asked for {segment:?}");
            sent.push(text(&segment.header, segment.payload.len));
            self.last.push(segment.header);
            self.sent_to = self.sent_to.max((segment.payload.seq + segment.payload.len).0);
            assert!(sent.len() < 10_000);
        }
        assert_eq!(sent, texts);
    }

    fn write(&mut self, bytes: usize) {
        assert_eq!(self.connection.send(self.now, &stream(bytes)), Ok(bytes));
    }

    fn read(&mut self, bytes: usize) {
        let mut into = vec![0; bytes];
        assert_eq!(self.connection.receive(self.now, &mut into), bytes);
    }

    /// Ends the dialogue: the connection goes away and leaves nothing due.
    fn ends(mut self) {
        self.connection.abort();
        while self.connection.poll_transmit(self.now, 0).is_some() {}
        assert_eq!(self.state(), StateName::Closed);
        assert_eq!((self.connection.poll_timeout(), self.connection.received()), (None, 0));
    }
}
