//! The connections of a world, drawn from its seed: the kind of use, and every setting within it.

use siga_stack::sockets::TcpOptions;
use siga_stack::tcp::{Config, CongestionControl, Keepalive, PathProbing};
use siga_stack::time::{Duration, Instant};

use crate::rng::Rng;
use crate::tcp::{Conduct, End, Leeway, Script, Turns, bounded_pause};

/// The longest sum of all pauses of one side, over connections that follow one another.
const PAUSES_WITHIN: Duration = Duration::from_secs(10);
/// The most portions in which one side writes or reads. Each may wait for an acknowledgement.
const PORTIONS_MAX: u64 = 500;
/// The most that one side of a stream sends.
const STREAM_BYTES_MAX: u64 = 200_000;
/// How often a buffer may fill up, so that small buffers end in time.
const BUFFERS_MAX: u64 = 100;

/// How TCP is used in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Both directions at once, ended in every way.
    Streams,
    /// As before, with a time after which a side gives up, or lingering.
    Impatient,
    /// Requests and responses over one connection.
    Turns,
    /// A connection for each request, one after the other, perhaps from one port.
    Renewed,
    /// Hundreds of connections.
    Crowd,
    /// Proper clients beside a flood of SYNs.
    Flood,
    /// Both sides open at once.
    Crossed,
    /// The listener is closed for a while, with connections that wait.
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

    /// In words.
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

/// Connections between two addresses.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// They are opened from the right end of the row.
    pub(super) from_right: bool,
    /// Over IPv6.
    pub(super) v6: bool,
    /// Which scripts.
    pub(super) scripts: Vec<usize>,
    /// Of the side that opens, and of the other.
    pub(super) options: [TcpOptions; 2],
    pub(super) backlog: usize,
    pub(super) accept_pause: Duration,
    pub(super) closed: Option<[Instant; 2]>,
    /// All from the same port, one after the other.
    pub(super) one_port: bool,
    /// Both sides open.
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
    // Only the kinds that leave it open draw.
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
    // A side whose peer is gone notices it only by keepalive or a timeout.
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

/// `in_a_row`: how many connections follow one another and have to share the time.
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
    // The number of portions is bounded, so that a world has time for other things.
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

/// Any setting that may be; a pair of sides need not agree in anything.
fn draw_options(rng: &mut Rng, kind: Kind) -> TcpOptions {
    let buffer = |rng: &mut Rng| [300, 1_000, 2_500, 10_000, 65_536, 128 << 10, 1 << 20][rng.index(7)];
    let (receive, most) = (buffer(rng), buffer(rng));
    let off = |rng: &mut Rng| rng.below(4) == 0;
    let config = Config {
        send_buffer_bytes_max: buffer(rng),
        receive_buffer_bytes: receive,
        receive_buffer_bytes_max: most.max(receive),
        congestion: [CongestionControl::Cubic, CongestionControl::Reno][rng.index(2)],
        no_delay: off(rng),
        ecn: off(rng),
        timestamps: !off(rng),
        sack: !off(rng),
        window_scaling: !off(rng),
        path_probing: [PathProbing::Off, PathProbing::BlackHole, PathProbing::Always][rng.index(3)],
        initial_window_segments: u8::try_from(rng.between(1, 10)).unwrap_or(1),
        // Connections from one port wait for it where there are no timestamps.
        time_wait: Duration::from_secs(if kind == Kind::Renewed { rng.between(1, 4) } else { rng.between(1, 60) }),
        ..Config::LINUX
    };
    let service = u8::try_from(rng.below(64) << 2).unwrap_or(0);
    TcpOptions { config, service, ..TcpOptions::default() }
}

fn draw_keepalive(rng: &mut Rng) -> Keepalive {
    // The side is patient enough that no fault counts as an end.
    Keepalive { idle: Duration::from_secs(rng.between(1, 20)), interval: Duration::from_secs(5), probes: 25 }
}
