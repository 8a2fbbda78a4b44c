//! Draws the TCP connections of a world from its seed: how they are used, and all their settings.

use siga_stack::sockets::TcpOptions;
use siga_stack::tcp::{Config, CongestionControl, Keepalive, PathProbing};
use siga_stack::time::{Duration, Instant};

use crate::rng::Rng;
use crate::tcp::{Conduct, End, Leeway, Script, Turns, bounded_pause};

/// Maximum total time of the pauses of one side, summed over all connections that are opened one after the other.
const PAUSES_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of writes or reads of one side, summed over all connections that are opened one after the other. Each write or
/// read may have to wait for an acknowledgement.
const PORTIONS_MAX: u64 = 500;
/// Maximum number of bytes that one side of a stream sends.
const STREAM_BYTES_MAX: u64 = 200_000;
/// Maximum ratio of the bytes that a side sends to the size of the smallest buffer. With this limit, streams through small buffers
/// end in time.
const BUFFERS_MAX: u64 = 100;

/// How the programs of a world use TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Both sides send a stream at the same time. The connections end in all possible ways.
    Streams,
    /// Like `Streams`, but one side has a user timeout, or a limit on how long its close may take (`linger`).
    Impatient,
    /// Requests and responses alternate over one connection.
    Turns,
    /// Each request has a new connection, which is opened after the previous one. All connections may have the same client port.
    Renewed,
    /// Many connections at the same time, up to hundreds.
    Crowd,
    /// Regular clients use a listener while an attacker floods it with SYNs.
    Flood,
    /// Both sides open the same connection at the same time (simultaneous open).
    Crossed,
    /// The listener is closed for some time, while connections wait to be accepted.
    Shuttered,
}

impl Kind {
    pub(super) const ALL: [Self; 8] = [
        Self::Streams,
        Self::Impatient,
        Self::Turns,
        Self::Renewed,
        Self::Crowd,
        Self::Flood,
        Self::Crossed,
        Self::Shuttered,
    ];

    /// Returns the name for [`Outcome`](super::Outcome).
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Streams => "TCP streams",
            Self::Impatient => "impatient TCP streams",
            Self::Turns => "TCP requests and responses",
            Self::Renewed => "a TCP connection for each request",
            Self::Crowd => "a crowd of TCP connections",
            Self::Flood => "TCP beside a flood of SYNs",
            Self::Crossed => "TCP opened by both sides",
            Self::Shuttered => "TCP with a listener that goes",
        }
    }
}

/// Connections between the same two addresses, with the same settings.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// True if the host at the right end of the row opens the connections.
    pub(super) from_right: bool,
    /// True if the connections use IPv6.
    pub(super) v6: bool,
    /// For each connection, the index of the script that it follows.
    pub(super) scripts: Vec<usize>,
    /// The options of the side that opens the connections, then the options of the other side.
    pub(super) options: [TcpOptions; 2],
    pub(super) backlog: usize,
    pub(super) accept_pause: Duration,
    pub(super) closed: Option<[Instant; 2]>,
    /// True if all connections are opened from the same port, one after the other.
    pub(super) one_port: bool,
    /// True if both sides open each connection at the same time.
    pub(super) crossed: bool,
    pub(super) at_once: usize,
    pub(super) begin: Instant,
    pub(super) pause: Duration,
}

/// All connections of a world.
#[derive(Debug, Clone)]
pub(super) struct Company {
    pub(super) scripts: Vec<Script>,
    pub(super) groups: Vec<Group>,
}

/// Draws the connections of a world.
pub(super) fn company(rng: &mut Rng, kind: Kind) -> Company {
    let mut company = Company { scripts: Vec::new(), groups: Vec::new() };
    let groups = match kind {
        Kind::Crossed => rng.between(1, 8),
        Kind::Flood | Kind::Crowd => rng.between(1, 2),
        Kind::Streams | Kind::Impatient | Kind::Turns | Kind::Renewed | Kind::Shuttered => rng.between(1, 4),
    };
    for _ in 0..groups {
        let group = group(rng, kind, &mut company.scripts);
        company.groups.push(group);
    }
    company
}

fn group(rng: &mut Rng, kind: Kind, scripts: &mut Vec<Script>) -> Group {
    // True if both sides read to the end. `Flood` and `Shuttered` need no random number for this; the other kinds draw one.
    let calm = kind == Kind::Flood || (kind != Kind::Shuttered && rng.below(2) == 0);
    let impatient = kind == Kind::Impatient;
    let mut options = [0, 1].map(|_| draw_options(rng, kind));
    let mut leeway = Leeway { refused: kind == Kind::Shuttered, ..Leeway::default() };
    if impatient && rng.below(2) == 0 {
        leeway.lingers = true;
        options[rng.index(2)].linger = Some(Duration::from_millis(rng.below(3) * rng.below(3_000)));
    } else if impatient {
        leeway.timed_out = true;
        options[rng.index(2)].config.user_timeout = Some(Duration::from_millis(rng.between(1, 20_000)));
    }
    // If a side may disappear, the other side needs keep-alive probes or a timeout to detect this.
    if !calm || impatient || rng.below(3) == 0 {
        for options in &mut options {
            options.config.keepalive = Some(draw_keepalive(rng));
        }
    }
    let one_port = kind == Kind::Renewed && rng.below(2) == 0;
    let count = match kind {
        Kind::Streams | Kind::Impatient | Kind::Turns => rng.between(1, 4),
        Kind::Renewed => rng.between(5, 40),
        Kind::Crowd => rng.between(50, 150),
        Kind::Flood => rng.between(5, 30),
        Kind::Crossed => 1,
        Kind::Shuttered => rng.between(3, 30),
    };
    let backlog = rng.index(if kind == Kind::Flood { 64 } else { 300 }) + 1;
    leeway.replayed = kind == Kind::Flood || u64::try_from(backlog).unwrap_or(u64::MAX) <= count;
    let bytes_max = bytes_max(kind, &options);
    let first = scripts.len();
    let at_once = match kind {
        Kind::Crowd => 1_000,
        Kind::Renewed if one_port => 1,
        Kind::Streams
        | Kind::Impatient
        | Kind::Turns
        | Kind::Renewed
        | Kind::Flood
        | Kind::Crossed
        | Kind::Shuttered => [1, 3, 1_000][rng.index(3)],
    };
    let in_a_row = count.div_ceil(at_once);
    for _ in 0..count {
        scripts.push(draw_script(rng, kind, calm, [bytes_max, in_a_row], leeway));
    }
    let closes_at = Instant::from_ns(rng.below(5_000_000_000));
    let sometime = |rng: &mut Rng| Instant::from_ns(rng.below(5_000_000_000) >> rng.below(20));
    Group {
        from_right: kind != Kind::Flood && rng.below(2) == 0,
        v6: kind != Kind::Flood && rng.below(2) == 0,
        scripts: (first..scripts.len()).collect(),
        options,
        backlog,
        accept_pause: Duration::from_micros(rng.below(3) / 2 * rng.below(20_000)),
        closed: (kind == Kind::Shuttered).then(|| [closes_at, closes_at + Duration::from_millis(rng.below(5_000))]),
        one_port,
        crossed: kind == Kind::Crossed,
        at_once: usize::try_from(at_once).unwrap_or(1),
        begin: sometime(rng),
        pause: Duration::from_micros(rng.below(3) / 2 * rng.below(20_000)),
    }
}

fn bytes_max(kind: Kind, options: &[TcpOptions; 2]) -> u64 {
    let buffer = options.iter().map(|options| options.config.receive_buffer_bytes_max).min().unwrap_or(0);
    let buffer = buffer.min(options.iter().map(|options| options.config.send_buffer_bytes_max).min().unwrap_or(0));
    let most = match kind {
        Kind::Streams | Kind::Impatient | Kind::Crossed => STREAM_BYTES_MAX,
        Kind::Turns | Kind::Flood | Kind::Shuttered => 20_000,
        Kind::Renewed => 5_000,
        Kind::Crowd => 3_000,
    };
    most.min(u64::try_from(buffer).unwrap_or(u64::MAX).saturating_mul(BUFFERS_MAX))
}

/// Draws a script. `in_a_row` is the number of connections that are opened one after the other, and that share the available time.
fn draw_script(rng: &mut Rng, kind: Kind, calm: bool, [bytes_max, in_a_row]: [u64; 2], leeway: Leeway) -> Script {
    let turns = kind == Kind::Turns || kind == Kind::Renewed;
    let rounds = if kind == Kind::Turns { rng.between(1, 40) } else { 1 };
    let [own_bytes, peer_bytes] = [0, 1].map(|_| draw_bytes(rng, bytes_max / rounds));
    let mut sides = [own_bytes, peer_bytes].map(|bytes| draw_conduct(rng, calm, [bytes * rounds, bytes_max], in_a_row));
    if sides.iter().all(|side| side.end == End::AfterPeer) {
        sides[rng.index(2)].end = End::Shutdown;
    }
    if turns {
        sides[0].turns = Some(Turns { own_bytes, peer_bytes, first: true });
        sides[1].turns = Some(Turns { own_bytes: peer_bytes, peer_bytes: own_bytes, first: false });
    }
    Script { sides, leeway }
}

fn draw_bytes(rng: &mut Rng, bytes_max: u64) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => 1,
        2 => rng.below(bytes_max.min(2_000)),
        _ => rng.below(bytes_max),
    }
}

fn draw_conduct(rng: &mut Rng, calm: bool, [bytes, bytes_max]: [u64; 2], in_a_row: u64) -> Conduct {
    // Portions have a minimum size, because it limits the number of reads and writes, so that a run ends in time.
    let portion = |rng: &mut Rng, bytes: u64| {
        let least = usize::try_from(bytes * in_a_row / PORTIONS_MAX).unwrap_or(0) + 1;
        [1, 100, 1_000, 10_000, 65_536][rng.index(5)].max(least)
    };
    let (write_bytes_max, read_bytes_max) = (portion(rng, bytes), portion(rng, bytes_max));
    let pause = |rng: &mut Rng, portions: u64| {
        let pause = Duration::from_micros(rng.below(3) / 2 * rng.below(100_000));
        bounded_pause(pause, portions * in_a_row, PAUSES_WITHIN)
    };
    let portions = |bytes: u64, each: usize| bytes / u64::try_from(each).unwrap_or(1) + 1;
    Conduct {
        bytes,
        write_bytes_max,
        write_pause: pause(rng, portions(bytes, write_bytes_max)),
        read_bytes_max,
        read_pause: pause(rng, portions(bytes_max, read_bytes_max)),
        turns: None,
        end: match rng.below(if calm { 2 } else { 4 }) {
            0 => End::Shutdown,
            1 => End::AfterPeer,
            2 => End::Close,
            _ => End::AbortAfter(Duration::from_micros(rng.below(5_000_000) >> rng.below(20))),
        },
    }
}

/// Draws any valid options. The two sides of a connection may have different options.
fn draw_options(rng: &mut Rng, kind: Kind) -> TcpOptions {
    let buffer = |rng: &mut Rng| [300, 1_000, 2_500, 10_000, 65_536, 128 << 10, 1 << 20][rng.index(7)];
    let (receive, most) = (buffer(rng), buffer(rng));
    let off = |rng: &mut Rng| rng.below(4) == 0;
    let config = Config {
        send_buffer_bytes_max: buffer(rng),
        receive_buffer_bytes: receive,
        receive_buffer_bytes_max: most.max(receive),
        congestion: CongestionControl::ALL[rng.index(CongestionControl::ALL.len())],
        no_delay: off(rng),
        ecn: off(rng),
        timestamps: !off(rng),
        sack: !off(rng),
        window_scaling: !off(rng),
        path_probing: [PathProbing::Off, PathProbing::BlackHole, PathProbing::Always][rng.index(3)],
        initial_window_segments: u8::try_from(rng.between(1, 10)).unwrap_or(1),
        // Without timestamps, a new connection from the same port must wait until TIME-WAIT ends. `Renewed` needs many connections
        // from one port, so its TIME-WAIT is short.
        time_wait: Duration::from_secs(if kind == Kind::Renewed { rng.between(1, 4) } else { rng.between(1, 60) }),
        ..Config::LINUX
    };
    let service = u8::try_from(rng.below(64) << 2).unwrap_or(0);
    TcpOptions { config, service, ..TcpOptions::default() }
}

fn draw_keepalive(rng: &mut Rng) -> Keepalive {
    // 25 probes with intervals of 5 s take longer than any fault, so a fault does not end a connection.
    Keepalive { idle: Duration::from_secs(rng.between(1, 20)), interval: Duration::from_secs(5), probes: 25 }
}
