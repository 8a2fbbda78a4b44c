//! Hosts and routers in a row, whose frames cross at once: what TCP needs to be talked with through the whole stack.

use siga_stack::Stack;
use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::seed::Seed;
use siga_stack::sockets::{ListenerId, TcpId, TcpOptions};
use siga_stack::stack::{Handled, StackConfig, Transmit};
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::address::Prefix;
use siga_stack::wire::ethernet::MacAddress;
use std::net::{IpAddr, SocketAddr};

/// A link between a stack and the next in the row.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) mtu: u16,
    pub(crate) agreed: Agreed,
    pub(crate) ethernet: bool,
}

pub(crate) const PLAIN: Link =
    Link { mtu: 1_500, agreed: Agreed { checksum_unfilled: false, large_segments: false }, ethernet: true };

/// Says of a frame from the stack at that place whether it is lost.
type Loss = Box<dyn FnMut(usize, &[u8]) -> bool>;

/// Stacks in a row: the first and the last are hosts, the others routers.
pub(crate) struct Net {
    pub(crate) stacks: Vec<Stack>,
    pub(crate) now: Instant,
    pub(crate) lost: Loss,
    /// Frames that crossed, by the stack that sent them.
    pub(crate) frames: Vec<(usize, Vec<u8>, Marks)>,
    pub(crate) keep_frames: bool,
    /// Where a frame is built: one for all, as clearing it would take longer than most frames.
    buffer: Vec<u8>,
}

/// The address of the end of a link: 1 is the left one.
pub(crate) fn address(v6: bool, link: usize, end: usize) -> IpAddr {
    if v6 { format!("2001:db8:{link}::{end}") } else { format!("10.0.{link}.{end}") }.parse().unwrap()
}

/// Any address and port.
pub(crate) fn any(v6: bool) -> SocketAddr {
    if v6 { "[::]:0" } else { "0.0.0.0:0" }.parse().unwrap()
}

impl Net {
    pub(crate) fn new(links: &[Link]) -> Self {
        Self::with(links, &[StackConfig::default(); 8][..=links.len()])
    }

    pub(crate) fn with(links: &[Link], configs: &[StackConfig]) -> Self {
        let mut stacks = Vec::new();
        for (place, config) in configs.iter().enumerate() {
            let forwarding = place > 0 && place < links.len();
            // Each stack has a seed of its own.
            let Seed([first, rest @ ..]) = config.seed;
            let mut seed = [first.wrapping_add(u8::try_from(place).unwrap()); 32];
            seed[1..].copy_from_slice(&rest);
            let seed = Seed(seed);
            let mut stack = Stack::new(StackConfig { seed, forwarding, ..*config });
            let left = (place > 0).then(|| (place - 1, 2));
            for (link, end) in left.into_iter().chain((place < links.len()).then_some((place, 1))) {
                let Link { mtu, agreed, ethernet } = links[link];
                let octet = |n: usize| u8::try_from(n).unwrap();
                let medium = if ethernet {
                    Medium::Ethernet(MacAddress([2, 0, 0, 0, octet(link), octet(end)]))
                } else {
                    Medium::Ip
                };
                let prefix = |v6, length| Prefix::new(address(v6, link, end), length).unwrap();
                let mut addresses = vec![prefix(false, 24), prefix(true, 64)];
                addresses.truncate(if mtu < 1_280 { 1 } else { 2 });
                let device = stack.add_device(DeviceConfig { medium, mtu, addresses, agreed }).unwrap();
                for far in (0..links.len()).filter(|far| if end == 2 { *far < link } else { *far > link }) {
                    for (v6, length) in [(false, 24), (true, 64)] {
                        let to = Prefix::new(address(v6, far, 0), length).unwrap();
                        stack.add_route(to, device, Some(address(v6, link, 3 - end))).unwrap();
                    }
                }
            }
            // Which groups its addresses need is said before tests begin.
            while let Some(due) = stack.poll_timeout() {
                stack.handle_timeout(due);
                for device in [DeviceId(0), DeviceId(1)] {
                    while stack.poll_transmit(due, device, &mut [0; 2_000]).is_some() {}
                }
            }
            stacks.push(stack);
        }
        let now = Instant::from_ns(1_000_000_000);
        let buffer = vec![0; FRAME_BYTES_MAX];
        Self { stacks, now, lost: Box::new(|_, _| false), frames: Vec::new(), keep_frames: false, buffer }
    }

    /// The last host's address as the first one sees it.
    pub(crate) fn far(&self, v6: bool, port: u16) -> SocketAddr {
        SocketAddr::new(address(v6, self.stacks.len() - 2, 2), port)
    }

    /// Lets all frames cross until nobody has one; true if there were any.
    pub(crate) fn cross(&mut self) -> bool {
        let mut into = std::mem::take(&mut self.buffer);
        let mut any = false;
        loop {
            let mut moved = false;
            for place in 0..self.stacks.len() {
                for device in 0..2 {
                    let device = DeviceId(device);
                    while let Some(frame) = poll(&mut self.stacks[place], self.now, device, &mut into) {
                        moved = true;
                        self.carry(place, device, &into[..frame.len], frame.marks);
                    }
                }
            }
            if !moved {
                self.buffer = into;
                return any;
            }
            any = true;
        }
    }

    /// Takes a frame to the other end of its link, and on from there.
    pub(crate) fn carry(&mut self, from: usize, device: DeviceId, frame: &[u8], marks: Marks) {
        // A stack's left device is its first, but for the leftmost's.
        let right = from == 0 || device.0 == 1;
        let to = if right { from + 1 } else { from - 1 };
        let at = DeviceId(u16::from(!right && to > 0));
        if self.keep_frames {
            self.frames.push((from, frame.to_vec(), marks));
        }
        if (self.lost)(from, frame) {
            return;
        }
        let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
        let mut passed = Vec::new();
        match self.stacks[to].handle_frame(self.now, at, Received { header, payload, marks }) {
            Handled::Done | Handled::Dropped(_) => {}
            Handled::Forward(mut forward) => {
                let out = forward.device;
                while let Some(piece) = forward.next_piece() {
                    passed.push((out, [piece.header, &frame[piece.range.clone()]].concat(), piece.marks));
                }
            }
        }
        for (out, bytes, marks) in passed {
            self.carry(to, out, &bytes, marks);
        }
    }

    /// Lets time pass, with everything that is due in it.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.cross();
        while let Some(due) = self.stacks.iter().filter_map(Stack::poll_timeout).min().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            for stack in &mut self.stacks {
                stack.handle_timeout(self.now);
            }
            self.cross();
        }
        self.now = end;
    }

    pub(crate) fn first(&mut self) -> &mut Stack {
        &mut self.stacks[0]
    }

    pub(crate) fn last(&mut self) -> &mut Stack {
        self.stacks.last_mut().unwrap()
    }

    pub(crate) fn listen(&mut self, v6: bool, port: u16, backlog: usize) -> ListenerId {
        let at = self.far(v6, port);
        self.last().tcp_listen(at, backlog, &TcpOptions::default()).unwrap()
    }

    /// Begins a connection from the first host.
    pub(crate) fn connect(&mut self, v6: bool, port: u16) -> TcpId {
        let (now, to) = (self.now, self.far(v6, port));
        self.first().tcp_connect(now, any(v6), to, &TcpOptions::default()).unwrap()
    }

    /// An open connection from the first host to the last, where the listener is: both ends.
    pub(crate) fn open(&mut self, v6: bool, port: u16, listener: ListenerId) -> (TcpId, TcpId) {
        let here = self.connect(v6, port);
        self.accept(here, listener)
    }

    /// Crosses the net, and gives both ends of the connection that opens.
    pub(crate) fn accept(&mut self, here: TcpId, listener: ListenerId) -> (TcpId, TcpId) {
        self.cross();
        let accepted = self.last().tcp_accept(listener).unwrap();
        let (there, _) = accepted.unwrap_or_else(|| panic!("not open; dropped: {:?}", self.dropped()));
        (here, there)
    }

    /// Every drop of every stack.
    pub(crate) fn dropped(&self) -> Vec<(usize, String, u64)> {
        let of = |(place, stack): (usize, &Stack)| {
            let counts: Vec<_> = stack.drops().iter().filter(|(_, count)| *count > 0).collect();
            counts.into_iter().map(move |(reason, count)| (place, reason.to_string(), count))
        };
        self.stacks.iter().enumerate().flat_map(of).collect()
    }

    /// Sends bytes from one host to the other, as fast as it takes them, for at most a minute; gives what arrived.
    pub(crate) fn stream(&mut self, from: (usize, TcpId), to: (usize, TcpId), bytes: &[u8]) -> Vec<u8> {
        let (mut sent, mut arrived, end) = (0, Vec::new(), self.now + Duration::from_secs(60));
        let mut into = vec![0; 100_000];
        while arrived.len() < bytes.len() && self.now < end {
            sent += self.stacks[from.0].tcp_send(self.now, from.1, &bytes[sent..]).unwrap();
            self.cross();
            while let Some(count) = self.stacks[to.0].tcp_receive(self.now, to.1, &mut into).unwrap() {
                arrived.extend_from_slice(&into[..count]);
            }
            if !self.cross() {
                self.pass(Duration::from_millis(1));
            }
        }
        arrived
    }
}

/// The next frame; it is no longer than `next_frame_bytes_max` said.
fn poll(stack: &mut Stack, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
    let most = stack.next_frame_bytes_max(now, device).min(into.len());
    let frame = stack.poll_transmit(now, device, &mut into[..most]);
    // The first sender in line may have had nothing to send.
    frame.or_else(|| stack.poll_transmit(now, device, into))
}

pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251).to_le_bytes()[0]).collect()
}
