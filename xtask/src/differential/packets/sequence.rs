//! A sequence: packets that arrive at the host under test, and calls of an application on this host.
//!
//! A sequence is data, so that the kernel and the stack play the same one. It has a text form with one line for each step, in
//! which a sequence that differs is printed and recorded. `recorded.txt` explains this form.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

use super::place::Place;

/// The number of sockets that a sequence may use.
pub(crate) const SOCKETS: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sequence {
    /// Whether the host under test forwards packets.
    pub(crate) router: bool,
    pub(crate) v6: bool,
    pub(crate) steps: Vec<Act>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Call(Call),
    Packet(Packet),
    /// The time for reassembly passes. Only the last step of a sequence may be this one.
    Expire,
}

/// A call on the UDP socket with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) socket: u8,
    pub(crate) kind: CallKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Opens the socket. `None` is the wildcard address.
    Bind(Option<Place>, u16),
    Connect(Place, u16),
    /// Sends this number of bytes to the connected peer, or to the given address and port.
    Send(u16, Option<(Place, u16)>),
    Receive,
    Close,
}

/// A packet that arrives over a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) device: u8,
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) hop_limit: u8,
    pub(crate) service: u8,
    /// The identification of an IPv4 header or of an IPv6 fragment header.
    pub(crate) ident: u16,
    pub(crate) dont_fragment: bool,
    /// Options of the IPv4 header. Their length is a multiple of 4.
    pub(crate) options: Vec<u8>,
    /// IPv6 extension headers. A fragment header stands before the first destination options.
    pub(crate) extensions: Vec<Extension>,
    pub(crate) body: Body,
    /// The part of the payload that the packet has, if it is a fragment.
    pub(crate) cut: Option<Cut>,
    pub(crate) damage: Option<Damage>,
}

/// An IPv6 extension header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extension {
    pub(crate) kind: u8,
    /// The bytes behind the next-header field and the length field: 6 and a multiple of 8.
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Udp {
        from: u16,
        to: u16,
        len: u16,
    },
    Echo {
        ident: u16,
        seq: u16,
        len: u16,
    },
    /// Another ICMP message, with bytes that are no packet.
    Icmp {
        kind: u8,
        code: u8,
        rest: u32,
        len: u16,
    },
    /// An ICMP error that quotes this number of bytes of the latest packet that the host under test sent from a socket.
    Error {
        kind: u8,
        code: u8,
        rest: u32,
        quote: u16,
    },
    Protocol {
        number: u8,
        len: u16,
    },
}

/// A part of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) offset: u16,
    pub(crate) len: u16,
    pub(crate) more: bool,
}

/// A field that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The checksum of the transport header.
    Checksum,
    /// The checksum of the UDP header is left out.
    NoChecksum,
    /// The checksum of the IPv4 header.
    HeaderChecksum,
    /// The IP length differs from the length of the packet by this number of bytes.
    Length(i16),
    /// The UDP length differs by this number of bytes.
    UdpLength(i16),
    /// The header length of IPv4 in units of four bytes.
    HeaderLength(u8),
    Version(u8),
    /// The reserved bit of the IPv4 flags is set.
    ReservedFlag,
}

impl Packet {
    /// A packet without particular features.
    pub(crate) fn new(device: u8, from: Place, to: Place, body: Body) -> Self {
        Self {
            device,
            from,
            to,
            hop_limit: 64,
            service: 0,
            ident: 1,
            dont_fragment: false,
            options: Vec::new(),
            extensions: Vec::new(),
            body,
            cut: None,
            damage: None,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(word: &str) -> Result<Vec<u8>, String> {
    let byte = |at: usize| word.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    (0..word.len()).step_by(2).map(|at| byte(at).ok_or_else(|| format!("`{word}` is not hexadecimal"))).collect()
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.router { "router" } else { "host" };
        writeln!(f, "{host} {}", if self.v6 { "ipv6" } else { "ipv4" })?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => write!(f, "{call}"),
            Self::Packet(packet) => write!(f, "{packet}"),
            Self::Expire => write!(f, "expire"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.socket;
        match self.kind {
            CallKind::Bind(None, port) => write!(f, "bind {socket} any {port}"),
            CallKind::Bind(Some(place), port) => write!(f, "bind {socket} {place} {port}"),
            CallKind::Connect(place, port) => write!(f, "connect {socket} {place} {port}"),
            CallKind::Send(len, None) => write!(f, "send {socket} {len}"),
            CallKind::Send(len, Some((place, port))) => write!(f, "send {socket} {len} {place} {port}"),
            CallKind::Receive => write!(f, "receive {socket}"),
            CallKind::Close => write!(f, "close {socket}"),
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::new(self.device, self.from, self.to, self.body.clone());
        write!(f, "in {} from {} to {}", self.device, self.from, self.to)?;
        for (name, value, usual) in [
            ("hops", u16::from(self.hop_limit), u16::from(plain.hop_limit)),
            ("service", self.service.into(), plain.service.into()),
            ("id", self.ident, plain.ident),
        ] {
            if value != usual {
                write!(f, " {name} {value}")?;
            }
        }
        if self.dont_fragment {
            write!(f, " df")?;
        }
        if !self.options.is_empty() {
            write!(f, " options {}", hex(&self.options))?;
        }
        for Extension { kind, bytes } in &self.extensions {
            write!(f, " ext {kind} {}", hex(bytes))?;
        }
        match self.body {
            Body::Udp { from, to, len } => write!(f, " udp {from} {to} {len}")?,
            Body::Echo { ident, seq, len } => write!(f, " echo {ident} {seq} {len}")?,
            Body::Icmp { kind, code, rest, len } => write!(f, " icmp {kind} {code} {rest} {len}")?,
            Body::Error { kind, code, rest, quote } => write!(f, " error {kind} {code} {rest} {quote}")?,
            Body::Protocol { number, len } => write!(f, " protocol {number} {len}")?,
        }
        if let Some(Cut { offset, len, more }) = self.cut {
            write!(f, " cut {offset} {len} {}", if more { "more" } else { "last" })?;
        }
        match self.damage {
            None => Ok(()),
            Some(Damage::Checksum) => write!(f, " bad sum"),
            Some(Damage::NoChecksum) => write!(f, " bad nosum"),
            Some(Damage::HeaderChecksum) => write!(f, " bad headersum"),
            Some(Damage::Length(by)) => write!(f, " bad length {by}"),
            Some(Damage::UdpLength(by)) => write!(f, " bad udplength {by}"),
            Some(Damage::HeaderLength(units)) => write!(f, " bad headerlength {units}"),
            Some(Damage::Version(version)) => write!(f, " bad version {version}"),
            Some(Damage::ReservedFlag) => write!(f, " bad reserved"),
        }
    }
}

/// The words of a line.
struct Words<'a>(SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "the line is too short".to_owned())
    }

    fn get<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("`{word}` has the wrong form"))
    }

    fn packet(&mut self) -> Result<Packet, String> {
        let mut packet = Packet::new(self.get()?, Place::Lost, Place::Lost, Body::Protocol { number: 0, len: 0 });
        while let Some(word) = self.0.next() {
            match word {
                "from" => packet.from = self.get()?,
                "to" => packet.to = self.get()?,
                "hops" => packet.hop_limit = self.get()?,
                "service" => packet.service = self.get()?,
                "id" => packet.ident = self.get()?,
                "df" => packet.dont_fragment = true,
                "options" => packet.options = unhex(self.word()?)?,
                "ext" => packet.extensions.push(Extension { kind: self.get()?, bytes: unhex(self.word()?)? }),
                "udp" => packet.body = Body::Udp { from: self.get()?, to: self.get()?, len: self.get()? },
                "echo" => packet.body = Body::Echo { ident: self.get()?, seq: self.get()?, len: self.get()? },
                "icmp" => {
                    let (kind, code, rest, len) = (self.get()?, self.get()?, self.get()?, self.get()?);
                    packet.body = Body::Icmp { kind, code, rest, len };
                }
                "error" => {
                    let (kind, code, rest, quote) = (self.get()?, self.get()?, self.get()?, self.get()?);
                    packet.body = Body::Error { kind, code, rest, quote };
                }
                "protocol" => packet.body = Body::Protocol { number: self.get()?, len: self.get()? },
                "cut" => {
                    let (offset, len) = (self.get()?, self.get()?);
                    packet.cut = Some(Cut { offset, len, more: self.word()? == "more" });
                }
                "bad" => packet.damage = Some(self.damage()?),
                other => return Err(format!("`{other}` is not known")),
            }
        }
        Ok(packet)
    }

    fn damage(&mut self) -> Result<Damage, String> {
        Ok(match self.word()? {
            "sum" => Damage::Checksum,
            "nosum" => Damage::NoChecksum,
            "headersum" => Damage::HeaderChecksum,
            "length" => Damage::Length(self.get()?),
            "udplength" => Damage::UdpLength(self.get()?),
            "headerlength" => Damage::HeaderLength(self.get()?),
            "version" => Damage::Version(self.get()?),
            "reserved" => Damage::ReservedFlag,
            other => return Err(format!("`{other}` is not known")),
        })
    }

    fn call(&mut self, name: &str) -> Result<Call, String> {
        let socket = self.get()?;
        if usize::from(socket) >= SOCKETS {
            return Err(format!("there is no socket {socket}"));
        }
        let kind = match name {
            "bind" => {
                let place = self.word()?;
                let place = if place == "any" { None } else { Some(place.parse()?) };
                CallKind::Bind(place, self.get()?)
            }
            "connect" => CallKind::Connect(self.get()?, self.get()?),
            "send" => {
                let len = self.get()?;
                let to = match self.0.next() {
                    None => None,
                    Some(place) => Some((place.parse()?, self.get()?)),
                };
                CallKind::Send(len, to)
            }
            "receive" => CallKind::Receive,
            "close" => CallKind::Close,
            other => return Err(format!("`{other}` is not known")),
        };
        Ok(Call { socket, kind })
    }
}

impl FromStr for Act {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Words(line.split_whitespace());
        match words.word()? {
            "in" => words.packet().map(Self::Packet),
            "expire" => Ok(Self::Expire),
            name => words.call(name).map(Self::Call),
        }
    }
}

impl FromStr for Sequence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (router, v6) = match lines.next() {
            Some("host ipv4") => (false, false),
            Some("host ipv6") => (false, true),
            Some("router ipv4") => (true, false),
            Some("router ipv6") => (true, true),
            other => return Err(format!("{other:?} begins no sequence")),
        };
        let read = |line: &str| line.parse().map_err(|error| format!("{line}: {error}"));
        Ok(Self { router, v6, steps: lines.map(read).collect::<Result<_, String>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::packets::generate;

    #[test]
    fn the_text_of_a_sequence_is_read_as_the_same_sequence() {
        for seed in 0..2_000 {
            let sequence = generate::sequence(seed);
            assert_eq!(sequence.to_string().parse(), Ok(sequence), "seed {seed}");
        }
    }

    #[test]
    fn a_line_that_is_no_step_is_refused() {
        for line in [
            "in 0 from nowhere to own0 udp 1 2 3",
            "in 0 udp 1 2",
            "bind 9 any 7",
            "receive",
            "jump 0",
            "in 0 from own7",
        ] {
            assert!(line.parse::<Act>().is_err(), "{line}");
        }
    }
}
