//! A dialogue: the calls of an application on the host under test, and the segments of its peer, each at its time.
//!
//! A dialogue is data, so that the kernel and the stack play the same one. It has a text form with one line for each step, in
//! which a failing dialogue is printed and recorded. `recorded.txt` explains this form. Sequence numbers of the peer count from
//! the peer's SYN, acknowledgement numbers from the SYN of the host under test.

use std::fmt;
use std::str::FromStr;

use super::packet::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};

/// A dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Dialogue {
    /// Whether the hosts use IPv6.
    pub(crate) v6: bool,
    /// Whether an active open offers ECN.
    pub(crate) ecn: bool,
    pub(crate) steps: Vec<Step>,
}

#[cfg(test)]
impl Dialogue {
    /// When each step begins, in microseconds since the dialogue began.
    pub(crate) fn planned_us(&self) -> Vec<u64> {
        let mut at_us = 0;
        let pass = |step: &Step| {
            at_us += u64::from(step.after_ms) * 1_000;
            at_us
        };
        self.steps.iter().map(pass).collect()
    }
}

/// A step, and the time since the step before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) after_ms: u32,
    pub(crate) act: Act,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Call(Call),
    Peer(PeerSegment),
    /// An ICMP error from a router or the peer about the latest segment of the host under test.
    Error(PathError),
    /// Nothing: time passes.
    Wait,
}

/// A call of the application on the host under test. There is at most one listener and one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Listen,
    Connect,
    /// An active open with this number of bytes for the SYN (Fast Open).
    ConnectWith(u32),
    Accept,
    Send(u32),
    SendUrgent(u32),
    Receive(u32),
    Shutdown,
    Close,
    /// A close that resets the connection.
    Abort,
    NoDelay(bool),
    /// Idle time and interval in seconds, and the number of probes.
    Keepalive(u32, u32, u8),
    UserTimeoutMs(u32),
}

/// An ICMP error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// The packet is larger than this MTU of the path.
    TooBig(u16),
    /// The host cannot be reached (a soft error).
    HostUnreachable,
    /// The port is closed (a hard error).
    PortUnreachable,
}

/// A segment of the peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PeerSegment {
    /// Control bits without ACK and URG, which follow from the fields.
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: Option<AckNumber>,
    pub(crate) window: u16,
    pub(crate) len: u16,
    pub(crate) urgent: Option<u16>,
    pub(crate) mss: Option<u16>,
    pub(crate) sack_permitted: bool,
    pub(crate) window_scale: Option<u8>,
    pub(crate) timestamp: Option<Timestamp>,
    /// SACK blocks, relative to the SYN of the host under test.
    pub(crate) sack: Vec<(u32, u32)>,
    pub(crate) fast_open: Option<Cookie>,
    /// The ECN bits of the IP header.
    pub(crate) ip_ecn: u8,
}

/// The Fast Open option of a peer's SYN or SYN-ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// No cookie: the option requests one.
    Request,
    /// The latest cookie of the host under test.
    Latest,
    /// A cookie that the peer chooses.
    Own,
}

/// An acknowledgement number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckNumber {
    /// Relative to the SYN of the host under test.
    At(u32),
    /// Relative to the end of everything that the host under test has sent.
    All(i32),
}

/// The timestamps of a peer's segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub(crate) value: u32,
    /// TSecr; `None` echoes the latest timestamp of the host under test.
    pub(crate) echo: Option<u32>,
}

impl PeerSegment {
    /// All control bits.
    pub(crate) fn bits(&self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        self.flags | bit(self.ack.is_some(), ACK) | bit(self.urgent.is_some(), URG)
    }

    /// The sequence number behind the segment.
    pub(crate) fn end(&self) -> u32 {
        let bit = |bit: u8| u32::from(self.flags & bit != 0);
        self.seq.wrapping_add(u32::from(self.len)).wrapping_add(bit(SYN)).wrapping_add(bit(FIN))
    }
}

/// The letters of the control bits, in the order of the text form.
pub(crate) const LETTERS: [(u8, char); 8] =
    [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (PSH, 'P'), (ECE, 'E'), (CWR, 'C'), (ACK, 'A'), (URG, 'U')];

/// Returns the letters of these control bits, or `.` if no bit is set.
pub(crate) fn letters(bits: u8) -> String {
    let found: String = LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| letter).collect();
    if found.is_empty() { ".".to_owned() } else { found }
}

impl fmt::Display for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}{}", if self.v6 { "ipv6" } else { "ipv4" }, if self.ecn { " ecn" } else { "" })?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{} ", self.after_ms)?;
        match &self.act {
            Act::Call(call) => call.fmt(f),
            Act::Peer(segment) => segment.fmt(f),
            Act::Error(PathError::TooBig(mtu)) => write!(f, "icmp too-big {mtu}"),
            Act::Error(PathError::HostUnreachable) => write!(f, "icmp host-unreachable"),
            Act::Error(PathError::PortUnreachable) => write!(f, "icmp port-unreachable"),
            Act::Wait => write!(f, "wait"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen => write!(f, "listen"),
            Self::Connect => write!(f, "connect"),
            Self::ConnectWith(bytes) => write!(f, "connect-with {bytes}"),
            Self::Accept => write!(f, "accept"),
            Self::Send(bytes) => write!(f, "send {bytes}"),
            Self::SendUrgent(bytes) => write!(f, "send-urgent {bytes}"),
            Self::Receive(bytes) => write!(f, "receive {bytes}"),
            Self::Shutdown => write!(f, "shutdown"),
            Self::Close => write!(f, "close"),
            Self::Abort => write!(f, "abort"),
            Self::NoDelay(on) => write!(f, "no-delay {}", u8::from(*on)),
            Self::Keepalive(idle, interval, probes) => write!(f, "keepalive {idle} {interval} {probes}"),
            Self::UserTimeoutMs(ms) => write!(f, "user-timeout {ms}"),
        }
    }
}

impl fmt::Display for PeerSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {} seq {}", letters(self.flags), self.seq)?;
        match self.ack {
            None => {}
            Some(AckNumber::At(at)) => write!(f, " ack {at}")?,
            Some(AckNumber::All(0)) => write!(f, " ack all")?,
            Some(AckNumber::All(more)) => write!(f, " ack all{more:+}")?,
        }
        write!(f, " win {}", self.window)?;
        if self.len > 0 {
            write!(f, " len {}", self.len)?;
        }
        if let Some(urgent) = self.urgent {
            write!(f, " urg {urgent}")?;
        }
        if let Some(mss) = self.mss {
            write!(f, " mss {mss}")?;
        }
        if self.sack_permitted {
            write!(f, " sackok")?;
        }
        if let Some(shift) = self.window_scale {
            write!(f, " ws {shift}")?;
        }
        match self.timestamp {
            None => {}
            Some(Timestamp { value, echo: None }) => write!(f, " ts {value}")?,
            Some(Timestamp { value, echo: Some(echo) }) => write!(f, " ts {value}/{echo}")?,
        }
        self.sack.iter().try_for_each(|(start, end)| write!(f, " sack {start}:{end}"))?;
        match self.fast_open {
            None => {}
            Some(Cookie::Request) => write!(f, " cookie request")?,
            Some(Cookie::Latest) => write!(f, " cookie latest")?,
            Some(Cookie::Own) => write!(f, " cookie own")?,
        }
        if self.ip_ecn > 0 {
            write!(f, " ip-ecn {}", self.ip_ecn)?;
        }
        Ok(())
    }
}

/// The words of a line, read from left to right.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.0.next().ok_or("a number is missing")?;
        word.parse().map_err(|_| format!("{word:?} is not a fitting number"))
    }
}

impl FromStr for Dialogue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (v6, ecn) = match lines.next() {
            Some("ipv4") => (false, false),
            Some("ipv4 ecn") => (false, true),
            Some("ipv6") => (true, false),
            Some("ipv6 ecn") => (true, true),
            other => return Err(format!("a dialogue starts with ipv4 or ipv6, not with {other:?}")),
        };
        let step = |line: &str| step(line).map_err(|error| format!("{line}: {error}"));
        Ok(Self { v6, ecn, steps: lines.map(step).collect::<Result<_, _>>()? })
    }
}

fn step(line: &str) -> Result<Step, String> {
    let mut words = Words(line.split_whitespace());
    let after = words.0.next().and_then(|word| word.strip_prefix('+')).ok_or("a step starts with +MS")?;
    let after_ms = after.parse().map_err(|_| format!("{after:?} is no time"))?;
    let act = match words.0.next().ok_or("an act is missing")? {
        "wait" => Act::Wait,
        "peer" => Act::Peer(segment(&mut words)?),
        "icmp" => Act::Error(match words.0.next() {
            Some("too-big") => PathError::TooBig(words.number()?),
            Some("host-unreachable") => PathError::HostUnreachable,
            Some("port-unreachable") => PathError::PortUnreachable,
            other => return Err(format!("unknown ICMP error {other:?}")),
        }),
        "listen" => Act::Call(Call::Listen),
        "connect" => Act::Call(Call::Connect),
        "connect-with" => Act::Call(Call::ConnectWith(words.number()?)),
        "accept" => Act::Call(Call::Accept),
        "send" => Act::Call(Call::Send(words.number()?)),
        "send-urgent" => Act::Call(Call::SendUrgent(words.number()?)),
        "receive" => Act::Call(Call::Receive(words.number()?)),
        "shutdown" => Act::Call(Call::Shutdown),
        "close" => Act::Call(Call::Close),
        "abort" => Act::Call(Call::Abort),
        "no-delay" => Act::Call(Call::NoDelay(words.number::<u8>()? > 0)),
        "keepalive" => Act::Call(Call::Keepalive(words.number()?, words.number()?, words.number()?)),
        "user-timeout" => Act::Call(Call::UserTimeoutMs(words.number()?)),
        other => return Err(format!("unknown act {other:?}")),
    };
    words.0.next().map_or(Ok(Step { after_ms, act }), |word| Err(format!("{word:?} is too much")))
}

fn segment(words: &mut Words<'_>) -> Result<PeerSegment, String> {
    let mut segment = PeerSegment::default();
    for letter in words.0.next().ok_or("control bits are missing")?.chars().filter(|letter| *letter != '.') {
        let found = LETTERS.iter().find(|(_, known)| *known == letter);
        segment.flags |= found.ok_or_else(|| format!("unknown control bit {letter}"))?.0;
    }
    while let Some(word) = words.0.next() {
        match word {
            "seq" => segment.seq = words.number()?,
            "ack" => segment.ack = Some(ack(words.0.next().ok_or("a number is missing")?)?),
            "win" => segment.window = words.number()?,
            "len" => segment.len = words.number()?,
            "urg" => segment.urgent = Some(words.number()?),
            "mss" => segment.mss = Some(words.number()?),
            "sackok" => segment.sack_permitted = true,
            "ws" => segment.window_scale = Some(words.number()?),
            "ts" => segment.timestamp = Some(timestamp(words.0.next().ok_or("a number is missing")?)?),
            "sack" => segment.sack.push(pair(words.0.next().unwrap_or_default(), ':')?),
            "cookie" => {
                segment.fast_open = Some(match words.0.next() {
                    Some("request") => Cookie::Request,
                    Some("latest") => Cookie::Latest,
                    Some("own") => Cookie::Own,
                    other => return Err(format!("unknown cookie {other:?}")),
                });
            }
            "ip-ecn" => segment.ip_ecn = words.number()?,
            other => return Err(format!("unknown field {other:?}")),
        }
    }
    Ok(segment)
}

fn ack(word: &str) -> Result<AckNumber, String> {
    let wrong = |_| format!("{word:?} is not an acknowledgement number");
    match word.strip_prefix("all") {
        Some("") => Ok(AckNumber::All(0)),
        Some(more) => more.parse().map(AckNumber::All).map_err(wrong),
        None => word.parse().map(AckNumber::At).map_err(wrong),
    }
}

fn timestamp(word: &str) -> Result<Timestamp, String> {
    if word.contains('/') {
        let (value, echo) = pair(word, '/')?;
        return Ok(Timestamp { value, echo: Some(echo) });
    }
    let value = word.parse().map_err(|_| format!("{word:?} is not a timestamp"))?;
    Ok(Timestamp { value, echo: None })
}

fn pair(word: &str, between: char) -> Result<(u32, u32), String> {
    let pair = word.split_once(between).and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
    pair.ok_or_else(|| format!("{word:?} is not a pair of numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::generate;

    #[test]
    fn the_text_of_a_dialogue_is_read_as_the_same_dialogue() {
        for seed in 0..300 {
            let dialogue = generate::dialogue(seed);
            assert_eq!(dialogue.to_string().parse(), Ok(dialogue));
        }
    }

    #[test]
    fn a_wrong_line_is_refused_with_the_line() {
        for line in [
            "listen",
            "+0",
            "+x listen",
            "+0 sing",
            "+0 send",
            "+0 send x",
            "+0 wait 1",
            "+0 peer X",
            "+0 peer S sack 1",
            "+0 icmp",
        ] {
            let error = format!("ipv4\n{line}\n").parse::<Dialogue>().unwrap_err();
            assert!(error.starts_with(line), "{error}");
        }
        assert!("ipx\n".parse::<Dialogue>().is_err());
    }
}
