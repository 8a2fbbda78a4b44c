//! siga's stack with its defaults: CUBIC, timestamps, SACK. In the rows without checksums, both ends of the link agree to leave
//! checksums unfilled. Large writes are copied from the application into a frame, and from the frame to the other application.
//! Between the two copies, the bytes stay in the frame, as in the ring buffers of siga's networks.

use crate::link::Link;
use crate::pair::{Pair, Setting, Side};
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::seed::Seed;
use siga_stack::sockets::{ListenerId, TcpId, TcpOptions};
use siga_stack::stack::tcp::ZeroCopySend;
use siga_stack::stack::{Handled, Stack, StackConfig};
use siga_stack::tcp::{Config, RetainingHeap};
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::address::Prefix;
use siga_stack::wire::ethernet::MacAddress;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const PORT: u16 = 80;
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// Writes of fewer bytes go through the send buffer: the additional copy costs less than retaining the bytes in the frame.
const ZERO_COPY_BYTES_MIN: usize = 4 << 10;
const DEVICE: DeviceId = DeviceId(0);

struct Host {
    stack: Stack<RetainingHeap<ZERO_COPY_BYTES_MIN>>,
    /// The link on which the host sends.
    out: Link,
}

pub(crate) struct SigaPair {
    now: Instant,
    hosts: [Host; 2],
    options: TcpOptions,
    listener: ListenerId,
}

impl Pair for SigaPair {
    type Socket = TcpId;

    fn new(setting: Setting) -> Self {
        let config = Config {
            no_delay: true,
            send_buffer_bytes_max: setting.buffer_bytes,
            receive_buffer_bytes: setting.buffer_bytes,
            receive_buffer_bytes_max: setting.buffer_bytes,
            ..Config::LINUX
        };
        let options = TcpOptions { config, ..TcpOptions::default() };
        let mut hosts = [0, 1].map(|n| host(n, setting));
        let listener = hosts[1].stack.tcp_listen(address(1, PORT), 128, &options).expect("a free port");
        Self { now: Instant::from_ns(1_000_000_000), hosts, options, listener }
    }

    fn connect(&mut self) -> TcpId {
        let (from, to) = (address(0, 0), address(1, PORT));
        self.hosts[0].stack.tcp_connect(self.now, from, to, &self.options).expect("a free port")
    }

    fn accept(&mut self) -> Option<TcpId> {
        let accepted = self.hosts[1].stack.tcp_accept(self.listener).expect("a listener");
        accepted.map(|(socket, _)| socket)
    }

    fn send(&mut self, side: Side, socket: TcpId, bytes: &[u8]) -> usize {
        let now = self.now;
        let Host { stack, out } = &mut self.hosts[side as usize];
        let mut gone = 0;
        while bytes.len() - gone >= ZERO_COPY_BYTES_MIN && out.has_room() {
            match stack.tcp_zero_copy(now, socket, ZERO_COPY_BYTES_MIN) {
                ZeroCopySend::Now(_) => {}
                ZeroCopySend::Later => return gone,
                ZeroCopySend::Not => break,
            }
            let sent = out.push_shared(|into, retained| {
                stack.tcp_send_zero_copy(now, socket, &bytes[gone..], into, |_| Some(retained))
            });
            let Some(taken) = sent else { break };
            gone += taken;
        }
        if gone > 0 {
            return gone;
        }
        stack.tcp_send(now, socket, bytes).expect("an open connection")
    }

    fn receive(&mut self, side: Side, socket: TcpId, into: &mut [u8]) -> usize {
        let received = self.hosts[side as usize].stack.tcp_receive(self.now, socket, into);
        received.expect("a connection in order").unwrap_or(0)
    }

    fn is_finished(&mut self, side: Side, socket: TcpId) -> bool {
        self.hosts[side as usize].stack.tcp_receive(self.now, socket, &mut []) == Ok(Some(0))
    }

    fn close(&mut self, side: Side, socket: TcpId) {
        self.hosts[side as usize].stack.tcp_close(self.now, socket).expect("an open connection");
    }

    /// Lets the time of TIME-WAIT pass, so that it is over in both stacks.
    fn release(&mut self, _client: TcpId, _server: TcpId) {
        self.now += Config::LINUX.time_wait + Duration::from_secs(1);
        for host in &mut self.hosts {
            host.stack.handle_timeout(self.now);
        }
    }

    fn frames(&self) -> u64 {
        self.hosts.iter().map(|host| host.out.sent()).sum()
    }

    fn emit(&mut self, side: Side) {
        self.now += Duration::from_micros(1);
        let Host { stack, out } = &mut self.hosts[side as usize];
        while out.has_room() {
            let Some(sent) = stack.poll_transmit(self.now, DEVICE, out.next()) else { return };
            out.push(sent.len, sent.marks);
        }
    }

    fn take(&mut self, side: Side) {
        self.now += Duration::from_micros(1);
        let [client, server] = &mut self.hosts;
        let (stack, link) = match side {
            Side::Client => (&mut client.stack, &mut server.out),
            Side::Server => (&mut server.stack, &mut client.out),
        };
        while let Some(slot) = link.pop() {
            let at = slot.bytes().len().min(HEADER_BYTES_MAX);
            let received = Received { header: &slot.bytes()[..at], payload: &slot.rest(at), marks: slot.marks() };
            let handled = stack.handle_frame(self.now, DEVICE, received);
            assert!(matches!(handled, Handled::Done), "a frame was not taken");
        }
        if stack.poll_timeout().is_some_and(|at| at <= self.now) {
            stack.handle_timeout(self.now);
        }
        // Collects the events, as an application with many sockets does to learn which of them are ready.
        while stack.tcp_poll_event().is_some() {}
    }
}

fn address(n: usize, port: u16) -> SocketAddr {
    SocketAddr::new(if port == 0 { Ipv4Addr::UNSPECIFIED } else { ADDRESSES[n] }.into(), port)
}

fn host(n: usize, setting: Setting) -> Host {
    let mut stack = Stack::with_storage(StackConfig { seed: Seed::simulated(n as u64), ..StackConfig::default() });
    let own = IpAddr::V4(ADDRESSES[n]);
    let mac = MacAddress([2, 0, 0, 0, 0, ADDRESSES[n].octets()[3]]);
    let config = DeviceConfig {
        medium: if setting.ethernet { Medium::Ethernet(mac) } else { Medium::Ip },
        mtu: setting.mtu,
        addresses: vec![Prefix::new(own, 24).expect("a prefix")],
        agreed: Agreed { checksum_unfilled: !setting.checksums, large_segments: setting.large_segments },
    };
    stack.add_device(config).expect("a device that can be");
    Host { stack, out: Link::new(setting.burst_frames, setting.frame_bytes_max()) }
}
