//! TCP streams that share one link: all go from one host to another, and the link's rate, queue and losses limit them.
//!
//! Each stream has its own congestion control and its own times of writing. A caller advances virtual time, changes the link, and asks
//! how many bytes of each stream have arrived.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use siga_stack::sockets::TcpOptions;
use siga_stack::tcp::{Config, LinuxInfo};
use siga_stack::time::{Duration, Instant};

use crate::fault::{Fate, Faults, Medium, Wire};
use crate::host::Host;
use crate::net;
use crate::rng::Ppm;
use crate::tcp::{Conduct, Dial, End, Leeway, Listen, Programs, Script};
use crate::trace::{LaneId, LinkId, NodeId, Side};
use crate::world::{BuildError, Change, World};

/// MTU of the link in bytes.
pub const MTU: usize = 1_500;
const PORT: u16 = 80;
const WRITE_BYTES: usize = 16 << 10;

/// A link, with the properties that limit the rate of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// The rate of the link in bits per second.
    pub rate_bits_per_s: u64,
    /// The round-trip time, which is twice the delay of the link.
    pub round_trip: Duration,
}

impl Path {
    /// Returns the bandwidth-delay product in bytes.
    pub fn window_bytes(self) -> u64 {
        self.rate_bits_per_s / 8 * self.round_trip.as_nanos() / 1_000_000_000
    }

    /// Returns the number of full frames in one bandwidth-delay product.
    pub fn window_frames(self) -> usize {
        usize::try_from(self.window_bytes()).unwrap_or(0) / MTU
    }

    fn wire(self, queue_frames_max: usize) -> Wire {
        Wire {
            medium: Medium::Ip,
            mtu: MTU,
            delay: self.round_trip / 2,
            rate_bits_per_s: Some(self.rate_bits_per_s),
            queue_frames_max,
            marks_agreed: false,
        }
    }
}

/// A link, and what goes wrong on it.
#[derive(Debug, Clone, Copy)]
pub struct Bottleneck {
    /// The rate and the round-trip time.
    pub path: Path,
    /// Maximum number of frames in the link's queue.
    pub queue_frames: usize,
    /// Probability of loss of a frame with data, independently of other frames.
    pub loss: Ppm,
    /// Each acknowledgement is late by a random time below this. Acknowledgements stay in order, so that several arrive together.
    pub ack_jitter: Duration,
    /// If more than this many frames are in the queue, frames of senders with ECN are marked.
    pub mark_over: Option<usize>,
}

impl Bottleneck {
    /// Returns a link with a queue of one bandwidth-delay product, on which nothing goes wrong.
    pub fn of(path: Path) -> Self {
        Self {
            path,
            queue_frames: path.window_frames(),
            loss: Ppm::new(0),
            ack_jitter: Duration::ZERO,
            mark_over: None,
        }
    }
}

/// A stream: how it behaves, and how its application writes.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// The settings of both ends of the connection.
    pub config: Config,
    /// When the connection is opened.
    pub begin: Duration,
    /// Time between two writes of 16 KB. With zero, the application always has data.
    pub write_pause: Duration,
}

impl Stream {
    /// Returns a stream that starts at once and always has data.
    pub const fn of(config: Config) -> Self {
        Self { config, begin: Duration::ZERO, write_pause: Duration::ZERO }
    }
}

/// A world with the two hosts, the link and the streams.
#[derive(Debug)]
pub struct Streams {
    world: World<Host>,
    path: Path,
    queue_frames: usize,
    link: LinkId,
}

impl Streams {
    /// Builds the world. All random numbers follow from `seed`.
    ///
    /// # Errors
    /// Returns an error if a stack refuses an address, or if there are too many streams.
    pub fn new(seed: u64, bottleneck: &Bottleneck, streams: &[Stream]) -> Result<Self, BuildError> {
        let Bottleneck { path, queue_frames, loss, ack_jitter, mark_over } = *bottleneck;
        let wire = path.wire(queue_frames);
        let conduct = |bytes, write_pause| Conduct {
            bytes,
            write_bytes_max: WRITE_BYTES,
            write_pause,
            read_bytes_max: WRITE_BYTES,
            read_pause: Duration::ZERO,
            turns: None,
            end: End::Shutdown,
        };
        let script = |stream: &Stream| Script {
            sides: [conduct(u64::MAX / 2, stream.write_pause), conduct(0, Duration::ZERO)],
            leeway: Leeway::default(),
        };
        let scripts: Rc<[Script]> = streams.iter().map(script).collect();
        let mut world = World::new(seed);
        world.hash_no_contents();
        let address = |host, port| SocketAddr::new(IpAddr::from(net::v4(0, host)), port);
        let [mut client, mut server] = [Self::host(0, &wire, &scripts)?, Self::host(1, &wire, &scripts)?];
        for (index, stream) in streams.iter().enumerate() {
            let options = TcpOptions { config: stream.config, ..TcpOptions::default() };
            let port = PORT + u16::try_from(index).map_err(|_| BuildError::Stack)?;
            let (local, accept_pause) = (address(2, port), Duration::ZERO);
            server
                .listen(Listen { local, backlog: 1, options, accept_pause, closed: None })
                .map_err(|_| BuildError::Stack)?;
            client.tcp.dial(Dial {
                local: address(1, 0),
                remote: local,
                options,
                scripts: VecDeque::from([index]),
                at_once: 1,
                begin: Instant::default() + stream.begin,
                pause: Duration::ZERO,
                side: Side::A,
            });
        }
        world.add(client)?;
        world.add(server)?;
        let link = *world.link_row(&[wire])?.first().ok_or(BuildError::NoSuchLink)?;
        for (from, faults) in [
            (Side::A, Faults { loss, mark_over, ..Faults::NONE }),
            (Side::B, Faults { jitter: ack_jitter, ..Faults::NONE }),
        ] {
            world.schedule(world.now(), link, Change::Faults { from, faults })?;
        }
        Ok(Self { world, path, queue_frames, link })
    }

    fn host(place: u8, wire: &Wire, scripts: &Rc<[Script]>) -> Result<Host, BuildError> {
        let mut host = Host::new(net::stack(u64::from(place), place, &[*wire])?);
        host.tcp = Programs::new(Rc::clone(scripts));
        Ok(host)
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.world.now()
    }

    /// Lets virtual time pass.
    ///
    /// # Errors
    /// Returns a description if the world had a violation.
    pub fn run_for(&mut self, time: Duration) -> Result<(), String> {
        self.world.run_until(self.world.now() + time).map_err(|violation| violation.to_string())
    }

    /// Changes the rate of the link from now on.
    ///
    /// # Errors
    /// Returns an error if the world refuses the change.
    pub fn set_rate(&mut self, bits_per_s: u64) -> Result<(), BuildError> {
        self.path.rate_bits_per_s = bits_per_s;
        let wire = self.path.wire(self.queue_frames);
        self.world.schedule(self.world.now(), self.link, Change::Wire(wire))
    }

    /// Returns the number of bytes of a stream that have arrived. Streams have the numbers of their order.
    pub fn arrived(&self, stream: usize) -> u64 {
        self.world.node(NodeId(1)).tcp.bytes_arrived_over(stream)
    }

    /// Returns the statistics of a stream's sender, if its connection is open.
    pub fn info(&self, stream: usize) -> Option<LinuxInfo> {
        self.world.node(NodeId(0)).linux_info(self.world.now(), stream)
    }

    /// Returns how many frames with data were marked because of congestion.
    pub fn marked(&self) -> u64 {
        self.world.lane(LaneId { link: self.link, from: Side::A }).counts().of(Fate::Marked)
    }

    /// Returns how many frames with data were dropped because the queue was full.
    pub fn queue_drops(&self) -> u64 {
        self.world.lane(LaneId { link: self.link, from: Side::A }).counts().of(Fate::QueueFull)
    }
}
