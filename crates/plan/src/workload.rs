//! Workloads: what client and server send to each other, and the unit of the measured rate.
//!
//! RR, CRR, STRG and STRP are exchanges of a request and a response. RR, STRG and STRP use one connection for all exchanges; CRR
//! opens one for each transaction. RR and CRR count transactions. STRG (streaming get) and STRP (streaming put) count megabytes of
//! payload. Over UDP, STRG is a stream of datagrams that nothing acknowledges. STRB (streaming both ways) sends requests and responses
//! at the same time, without waiting for each other. RR can run beside streams, which shows its latency under load.
//! The suffixes `k`, `m` and `g` of a size mean 1,024 and its powers. A megabyte in a *result* is 10^6 bytes.

use crate::limits::{BESIDE_MAX, DATAGRAM_BYTES_MAX, MESSAGE_BYTES_MAX, PACE_MAX, STREAM_DATAGRAM_BYTES_MIN};
use crate::serde_by_text::serde_by_text;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The four shapes of exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Request and response over a connection that stays open.
    Rr,
    /// Connect, request, response, close.
    Crr,
    /// A short request, a long response: data flows from server to client.
    Strg,
    /// A long request, a short response: data flows from client to server.
    Strp,
    /// Requests and responses at the same time: data flows in both directions of each connection.
    Strb,
}

/// Which side closes a connection of the CRR workload first. Its socket then stays in TIME-WAIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Close {
    /// The server closes first, after it has sent the response.
    #[default]
    Server,
    /// The client closes first, after it has received the whole response.
    Client,
}

/// The unit of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Transactions; rates are in trans/sec.
    #[serde(rename = "trans")]
    Transaction,
    /// Megabytes of 10^6 bytes of payload; rates are in MB/sec.
    #[serde(rename = "MB")]
    Megabyte,
    /// Runs of a command; rates are in runs/sec.
    #[serde(rename = "run")]
    Run,
}

impl Unit {
    /// `trans`, `MB` or `run`, as in `cpu_msec/trans`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transaction => "trans",
            Self::Megabyte => "MB",
            Self::Run => "run",
        }
    }

    /// The unit of CPU time per unit of work in every report: `us/trans`, `ms/MB` or `ms/run`.
    pub fn cpu_name(self) -> &'static str {
        match self {
            Self::Transaction => "us/trans",
            Self::Megabyte => "ms/MB",
            Self::Run => "ms/run",
        }
    }

    /// The factor that converts CPU milliseconds per unit of work to the unit of [`Self::cpu_name`].
    pub fn cpu_scale(self) -> f64 {
        match self {
            Self::Transaction => 1_000.0,
            Self::Megabyte | Self::Run => 1.0,
        }
    }

    /// `trans/CPU sec`, `MB/CPU sec` or `runs/CPU sec`: the unit of the internal throughput rate.
    pub fn itr_name(self) -> &'static str {
        match self {
            Self::Transaction => "trans/CPU sec",
            Self::Megabyte => "MB/CPU sec",
            Self::Run => "runs/CPU sec",
        }
    }

    /// `trans/sec`, `MB/sec` or `runs/sec`.
    pub fn rate_name(self) -> &'static str {
        match self {
            Self::Transaction => "trans/sec",
            Self::Megabyte => "MB/sec",
            Self::Run => "runs/sec",
        }
    }
}

/// A shape of exchange with its sizes. Equal workloads have equal names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Workload {
    /// Shape of the exchange.
    pub shape: Shape,
    /// True if the exchange uses UDP datagrams instead of a TCP connection (RR and STRG only).
    pub udp: bool,
    /// Bytes from client to server in one exchange. For a stream of datagrams, the size of the datagram that asks for the stream.
    pub request: u64,
    /// Bytes from server to client in one exchange. For a stream of datagrams, the payload of one datagram.
    pub response: u64,
    /// For a stream of datagrams: payload in bytes per second that the server sends for each pair. `None`: as fast as it can.
    pub pace: Option<u64>,
    /// Number of streams (STRG over TCP) that run beside RR, on connections of their own. 0 for all other workloads.
    pub beside: u32,
}

/// A workload with a name of its own.
#[derive(Debug)]
pub struct Preset {
    /// The name used on the command line and in plans.
    pub name: &'static str,
    /// Typical traffic of this kind, in one line for help texts.
    pub about: &'static str,
    workload: Workload,
}

const fn tcp(shape: Shape, request: u64, response: u64) -> Workload {
    Workload { shape, udp: false, request, response, pace: None, beside: 0 }
}

const fn datagrams(bytes: u64, pace: Option<u64>) -> Workload {
    Workload { shape: Shape::Strg, udp: true, request: STREAM_DATAGRAM_BYTES_MIN, response: bytes, pace, beside: 0 }
}

/// The presets, in the order of help texts.
pub const PRESETS: [Preset; 8] = [
    Preset {
        name: "rr-1-1",
        about: "request and response of 1 byte each: measures latency",
        workload: tcp(Shape::Rr, 1, 1),
    },
    Preset {
        name: "rr-200-1000",
        about: "request of 200 bytes, response of 1,000 bytes: online transaction",
        workload: tcp(Shape::Rr, 200, 1_000),
    },
    Preset {
        name: "rr-200-32k",
        about: "request of 200 bytes, response of 32,768 bytes: database query or access to a website",
        workload: tcp(Shape::Rr, 200, 32 << 10),
    },
    Preset {
        name: "crr-64-8k",
        about: "connect, request of 64 bytes, response of 8,192 bytes, close: access to a website or database query",
        workload: tcp(Shape::Crr, 64, 8 << 10),
    },
    Preset {
        name: "strg-20m",
        about: "request of 20 bytes, response of 20,971,520 bytes: stream from server to client",
        workload: tcp(Shape::Strg, 20, 20 << 20),
    },
    Preset {
        name: "strp-20m",
        about: "request of 20,971,520 bytes, response of 20 bytes: stream from client to server",
        workload: tcp(Shape::Strp, 20 << 20, 20),
    },
    Preset {
        name: "strb-20m",
        about: "streams of 20,971,520 bytes in both directions at the same time",
        workload: tcp(Shape::Strb, 20 << 20, 20 << 20),
    },
    Preset {
        name: "udp-strg-1400",
        about: "UDP datagrams of 1,400 bytes from server to client, as fast as the server can send",
        workload: datagrams(1_400, None),
    },
];

/// Other names of presets. The published reports use both words for both workloads.
const ALIASES: [(&str, &str); 4] = [
    ("rr-website", "rr-200-32k"),
    ("rr-database", "rr-200-32k"),
    ("crr-website", "crr-64-8k"),
    ("crr-database", "crr-64-8k"),
];

impl Workload {
    /// Returns the unit in which the rate of this workload is measured.
    pub fn unit(&self) -> Unit {
        match self.shape {
            Shape::Rr | Shape::Crr => Unit::Transaction,
            Shape::Strg | Shape::Strp | Shape::Strb => Unit::Megabyte,
        }
    }

    /// Returns the unit to which CPU time is related. Beside streams, most CPU time is that of the streams, so it is related to all
    /// payload.
    pub fn cpu_unit(&self) -> Unit {
        if self.beside > 0 { Unit::Megabyte } else { self.unit() }
    }

    /// Returns the number of units of [`Self::cpu_unit`].
    pub fn cpu_units(&self, transactions: u64, payload_bytes: u64) -> f64 {
        if self.beside > 0 { payload_bytes as f64 / 1e6 } else { self.units(transactions, payload_bytes) }
    }

    /// Returns the workload of the streams beside RR.
    pub fn stream_beside() -> Self {
        tcp(Shape::Strg, 20, 20 << 20)
    }

    /// Returns the workload without the streams beside it.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { beside: 0, ..self }
    }

    /// Returns the workload of pair `number` of `pairs` pairs: the last ones are the streams beside RR.
    #[must_use]
    pub fn of_pair(self, number: u32, pairs: u32) -> Self {
        if number >= pairs.saturating_sub(self.beside) { Self::stream_beside() } else { self.alone() }
    }

    /// Returns true for the streaming shapes. A phase can end in the middle of one of their exchanges.
    pub fn is_stream(&self) -> bool {
        self.unit() == Unit::Megabyte
    }

    /// Returns true for a stream of UDP datagrams, of which some may be lost.
    pub fn is_datagram_stream(&self) -> bool {
        self.udp && self.is_stream()
    }

    /// Converts a number of exchanges and of payload bytes in both directions into the workload's unit.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub fn units(&self, transactions: u64, payload_bytes: u64) -> f64 {
        if self.is_stream() { payload_bytes as f64 / 1e6 } else { transactions as f64 }
    }

    fn check(self, text: &str) -> Result<Self> {
        for (what, bytes) in [("request", self.request), ("response", self.response)] {
            if bytes == 0 || bytes > MESSAGE_BYTES_MAX {
                return Err(Error::usage(format!("workload `{text}`: a {what} cannot have {bytes} bytes"))
                    .hint(format!("use a size from 1 to {MESSAGE_BYTES_MAX} bytes")));
            }
        }
        if self.udp && self.shape != Shape::Rr {
            return Err(Error::usage(format!("workload `{text}`: UDP supports only the workload types rr and strg"))
                .hint("write `udp-rr:REQUEST/RESPONSE` or `udp-strg:BYTES`"));
        }
        if self.udp && self.request.max(self.response) > DATAGRAM_BYTES_MAX {
            return Err(Error::usage(format!("workload `{text}`: a UDP message must fit into one datagram"))
                .hint(format!("use a size from 8 to {DATAGRAM_BYTES_MAX} bytes")));
        }
        if self.udp && self.request < 8 {
            return Err(Error::usage(format!(
                "workload `{text}`: the UDP request is too short, because it must contain an 8-byte transaction number"
            ))
            .hint("use a request of at least 8 bytes"));
        }
        if self.shape == Shape::Strb && self.request < 8 {
            return Err(Error::usage(format!(
                "workload `{text}`: the request is too short, because it must contain the 8-byte identity of its connection"
            ))
            .hint("use at least 8 bytes in each direction"));
        }
        Ok(self)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.beside > 0 {
            return f.pad(&format!("{}+{}strg", self.alone(), self.beside));
        }
        if let Some(preset) = PRESETS.iter().find(|preset| preset.workload == *self) {
            return f.pad(preset.name);
        }
        let shape = match self.shape {
            Shape::Rr => "rr",
            Shape::Crr => "crr",
            Shape::Strg => "strg",
            Shape::Strp => "strp",
            Shape::Strb => "strb",
        };
        let udp = if self.udp { "udp-" } else { "" };
        if self.is_datagram_stream() {
            let pace = self.pace.map(|pace| format!("@{}MB/s", megabytes(pace))).unwrap_or_default();
            return f.pad(&format!("{udp}{shape}:{}{pace}", self.response));
        }
        f.pad(&format!("{udp}{shape}:{}/{}", self.request, self.response))
    }
}

impl FromStr for Workload {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((alone, streams)) = text.split_once('+') {
            return with_streams(text, alone, streams);
        }
        let name = ALIASES.iter().find(|(alias, _)| *alias == text).map_or(text, |(_, name)| *name);
        if let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) {
            return Ok(preset.workload);
        }
        let unknown = || {
            let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
            Error::usage(format!("unknown workload `{text}`")).hint(format!(
                "use a name: {}; or TYPE:REQUEST/RESPONSE with TYPE rr, crr, strg, strp, strb or udp-rr, and sizes such as \
                 200, 8k, 20m; or udp-strg:BYTES, or udp-strg:BYTES@RATE with a rate such as 50MB/s; or rr-1-1+4strg for RR \
                 beside 4 streams",
                names.join(", ")
            ))
        };
        let (shape, sizes) = text.split_once(':').ok_or_else(unknown)?;
        let (udp, shape) = match shape.strip_prefix("udp-") {
            Some(rest) => (true, rest),
            None => (false, shape),
        };
        let shape = match shape {
            "rr" => Shape::Rr,
            "crr" => Shape::Crr,
            "strg" => Shape::Strg,
            "strp" => Shape::Strp,
            "strb" => Shape::Strb,
            _ => return Err(unknown()),
        };
        if (udp, shape) == (true, Shape::Strg) {
            return stream_of_datagrams(text, sizes);
        }
        let (request, response) = sizes.split_once('/').ok_or_else(unknown)?;
        let size = |word: &str| parse_size(word).map_err(|error| error.at(format!("workload `{text}`")));
        Self { shape, udp, request: size(request)?, response: size(response)?, pace: None, beside: 0 }.check(text)
    }
}

/// Reads RR beside streams from the text of RR and of the streams, such as `4strg`. `text` is the whole workload, for messages.
fn with_streams(text: &str, alone: &str, streams: &str) -> Result<Workload> {
    let alone: Workload = alone.parse()?;
    if alone.shape != Shape::Rr || alone.udp {
        return Err(Error::usage(format!(
            "workload `{text}`: siga can run streams only beside a TCP workload of type rr, and `{alone}` is another workload"
        ))
        .hint("write `rr-1-1+4strg`, or `rr:REQUEST/RESPONSE+4strg`"));
    }
    let digits = streams.strip_suffix("strg").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()).filter(|count| (1..=BESIDE_MAX).contains(count)) {
        Some(beside) => Ok(Workload { beside, ..alone }),
        None => {
            Err(Error::usage(format!("workload `{text}`: `{}` is not a number of streams", streams.escape_debug()))
                .hint(format!(
                    "write a number of streams from 1 to {BESIDE_MAX}, followed by `strg`, such as `rr-1-1+4strg`"
                )))
        }
    }
}

/// Reads `BYTES` or `BYTES@RATE`. `text` is the whole workload, for messages.
fn stream_of_datagrams(text: &str, sizes: &str) -> Result<Workload> {
    let at = |error: Error| error.at(format!("workload `{text}`"));
    let (bytes, pace) = match sizes.split_once('@') {
        Some((bytes, pace)) => (bytes, Some(parse_pace(pace).map_err(at)?)),
        None => (sizes, None),
    };
    let bytes = parse_size(bytes).map_err(at)?;
    let range = STREAM_DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX;
    if !range.contains(&bytes) {
        return Err(Error::usage(format!("workload `{text}`: datagrams cannot have {bytes} bytes")).hint(format!(
            "use a size from {} to {} bytes",
            range.start(),
            range.end()
        )));
    }
    Ok(datagrams(bytes, pace))
}

/// Reads a rate such as `50MB/s` or `0.5MB/s`: megabytes of 10^6 bytes, with up to three digits after the point. Returns bytes per
/// second.
fn parse_pace(text: &str) -> Result<u64> {
    let bad = || {
        Error::usage(format!("`{}` is not a valid rate of a stream of datagrams", text.escape_debug())).hint(format!(
            "use a rate from 0.001MB/s to {}MB/s (MB: 10^6 bytes), with at most three digits after the decimal point",
            megabytes(PACE_MAX)
        ))
    };
    let number = text.strip_suffix("MB/s").ok_or_else(bad)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(part) || part.len() > 3 {
        return Err(bad());
    }
    let thousandths: u64 = format!("{part:0<3}").parse().map_err(|_| bad())?;
    let kilobytes = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(1_000)?.checked_add(thousandths));
    let pace = kilobytes.and_then(|kilobytes| kilobytes.checked_mul(1_000)).ok_or_else(bad)?;
    if pace == 0 || pace > PACE_MAX { Err(bad()) } else { Ok(pace) }
}

/// Writes bytes per second in megabytes, in the shortest form that [`parse_pace`] reads.
fn megabytes(pace: u64) -> String {
    let (whole, part) = (pace / 1_000_000, pace % 1_000_000 / 1_000);
    if part == 0 { whole.to_string() } else { format!("{whole}.{part:03}").trim_end_matches('0').to_owned() }
}

serde_by_text!(Workload);

/// Reads a size in bytes: digits with an optional `k`, `m` or `g` (1,024 and its powers).
///
/// # Errors
/// Returns an error of kind `Usage` if the text is not a number, has an unknown suffix, or is too large for a `u64`.
pub fn parse_size(text: &str) -> Result<u64> {
    let bad = || {
        Error::usage(format!("`{text}` is not a valid size in bytes"))
            .hint("write digits with an optional suffix: k (1,024), m (1,024²) or g (1,024³)")
    };
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        Some(_) => (text, 0),
        None => return Err(bad()),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_sizes_their_names_say() {
        let sizes = |name: &str| {
            let workload: Workload = name.parse().unwrap();
            (workload.request, workload.response)
        };
        assert_eq!(sizes("rr-200-1000"), (200, 1000));
        assert_eq!(sizes("rr-200-32k"), (200, 32_768));
        for (alias, name) in ALIASES {
            assert_eq!(alias.parse::<Workload>().unwrap().to_string(), name);
        }
        assert_eq!(sizes("crr-64-8k"), (64, 8_192));
        assert_eq!(sizes("strg-20m"), (20, 20_971_520));
        assert_eq!(sizes("strp-20m"), (20_971_520, 20));
    }

    #[test]
    fn names_are_canonical() {
        assert_eq!("rr:200/1000".parse::<Workload>().unwrap().to_string(), "rr-200-1000");
        assert_eq!("rr:200/1001".parse::<Workload>().unwrap().to_string(), "rr:200/1001");
        assert_eq!("udp-rr:200/1k".parse::<Workload>().unwrap().to_string(), "udp-rr:200/1024");
    }

    #[test]
    fn streams_of_datagrams_have_a_size_and_perhaps_a_rate() {
        for (text, bytes, pace, name) in [
            ("udp-strg:1400", 1_400, None, "udp-strg-1400"),
            ("udp-strg:8k@50MB/s", 8_192, Some(50_000_000), "udp-strg:8192@50MB/s"),
            ("udp-strg:32@0.001MB/s", 32, Some(1_000), "udp-strg:32@0.001MB/s"),
            ("udp-strg:1400@12.50MB/s", 1_400, Some(12_500_000), "udp-strg:1400@12.5MB/s"),
        ] {
            let workload: Workload = text.parse().unwrap();
            assert_eq!((workload.response, workload.pace), (bytes, pace), "{text}");
            assert!(workload.is_datagram_stream() && workload.is_stream());
            assert_eq!(workload.to_string(), name);
            assert_eq!(name.parse::<Workload>().unwrap(), workload);
        }
    }

    #[test]
    fn rr_may_run_beside_streams() {
        let workload: Workload = "rr:1/1+4strg".parse().unwrap();
        assert_eq!((workload.beside, workload.to_string().as_str()), (4, "rr-1-1+4strg"));
        assert_eq!(workload.to_string().parse::<Workload>().unwrap(), workload);
        assert_eq!((workload.unit(), workload.cpu_unit()), (Unit::Transaction, Unit::Megabyte));
        let kinds: Vec<_> = (0..6).map(|number| workload.of_pair(number, 6).shape).collect();
        assert_eq!(kinds, [Shape::Rr, Shape::Rr, Shape::Strg, Shape::Strg, Shape::Strg, Shape::Strg]);
        let alone: Workload = "strg-20m".parse().unwrap();
        assert_eq!(alone.of_pair(5, 6), alone);
        assert!("strb-20m".parse::<Workload>().unwrap().is_stream());
    }

    #[test]
    fn zero_and_absurd_sizes_are_refused_with_the_way_out() {
        for text in [
            "rr:0/1",
            "rr:1/0",
            "rr:1/2g",
            "rr:1/99999999999999999999",
            "rr:-1/1",
            "rr:1",
            "rr:/",
            "xx:1/1",
            "",
            "udp-crr:8/8",
            "udp-rr:7/7",
            "udp-rr:8/65508",
            "rr:1/17179869184g",
            "udp-strg:31",
            "strb:7/8",
            "udp-strb:8/8",
            "rr-1-1+0strg",
            "rr-1-1+1001strg",
            "rr-1-1+strg",
            "rr-1-1+4strp",
            "rr-1-1+-4strg",
            "rr-1-1+4strg+4strg",
            "crr-64-8k+4strg",
            "udp-rr:8/8+4strg",
            "udp-strg:65508",
            "udp-strg:1400@0MB/s",
            "udp-strg:1400@0.0001MB/s",
            "udp-strg:1400@100001MB/s",
            "udp-strg:1400@18446744073709551615MB/s",
            "udp-strg:1400@50",
            "udp-strg:1400@-1MB/s",
            "udp-strg:1400@.MB/s",
            "udp-strg:20/1400",
            "udp-strp:1400/20",
        ] {
            let error = text.parse::<Workload>().unwrap_err();
            assert_eq!(error.exit_status(), 2, "{text}");
            assert!(error.to_string().contains('\n'), "{text} has no way out: {error}");
        }
    }
}
