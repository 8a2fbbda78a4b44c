//! Zero-copy send: the application's bytes are written directly into a frame, which keeps them until they are acknowledged. This
//! saves the copy into the send buffer (decisions 013 and 014). The fabric uses zero-copy send for those message
//! sizes for which it is faster than a copy.

use super::output::{HEADERS_BYTES_MAX, PACKET_BYTES_MAX, build_around};
use crate::link::device::{DeviceConfig, Medium};
use crate::link::frame::{DeviceId, Marks, Retained};
use crate::sockets::TcpId;
use crate::sockets::socket::Egress;
use crate::stack::{Stack, Transmit};
use crate::tcp::{Storage, ZeroCopy};
use crate::time::Instant;
use crate::wire::checksum::copy_and_add;
use std::sync::Arc;

/// Whether an application's bytes can be sent by zero-copy send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroCopySend {
    /// The bytes can be sent now, in a frame of this device.
    Now(DeviceId),
    /// The bytes can be sent this way later, because earlier bytes must be sent first.
    Later,
    /// The bytes cannot be sent this way, so they must be copied to the send buffer.
    Not,
}

impl<S: Storage> Stack<S> {
    /// Returns whether bytes that an application writes now can be sent by zero-copy send, and over which device. This is possible
    /// only on a device without a link header. The device must accept large segments, or segments of at least `least` bytes of
    /// payload.
    #[inline]
    pub fn tcp_zero_copy(&mut self, now: Instant, id: TcpId, least: usize) -> ZeroCopySend {
        if self.tcp.buffers.are_scarce() {
            return ZeroCopySend::Not;
        }
        let version = self.ip.routes_version;
        let Ok(socket) = self.socket_mut(id) else { return ZeroCopySend::Not };
        let known = socket.egress_version == version && !socket.egress_changed;
        let Egress::Device { device, .. } = socket.egress else { return ZeroCopySend::Not };
        let goes = socket.connection.zero_copy(now);
        let holds = socket.connection.segment_bytes() >= least;
        let Some(config) = self.ip.devices.get(usize::from(device.0)).map(|device| &device.config) else {
            return ZeroCopySend::Not;
        };
        let takes = config.medium == Medium::Ip && (holds || config.agreed.large_segments);
        match goes {
            // If the connection is queued to send, it has only an acknowledgement to send. The segment with these bytes carries
            // it.
            ZeroCopy::Now if known && takes => ZeroCopySend::Now(device),
            ZeroCopy::Later if known && takes => ZeroCopySend::Later,
            ZeroCopy::Now | ZeroCopy::Later | ZeroCopy::Not => ZeroCopySend::Not,
        }
    }

    /// Builds a frame with as many of `bytes` as possible, if [`Stack::tcp_zero_copy`] allows this. Returns the frame's length and
    /// marks, and the number of bytes in it. `into` must have room for the longest possible frame, or for a frame with all the
    /// bytes.
    ///
    /// `retain` is called with the payload in the frame, and retains the buffer that contains it. If `retain` returns `None`, the
    /// stack keeps a copy of the bytes for retransmission.
    pub fn tcp_send_zero_copy(
        &mut self,
        now: Instant,
        id: TcpId,
        bytes: &[u8],
        into: &mut [u8],
        retain: impl FnOnce(&[u8]) -> Option<Arc<dyn Retained>>,
    ) -> Option<(Transmit, usize)> {
        let ZeroCopySend::Now(device) = self.tcp_zero_copy(now, id, 0) else { return None };
        let DeviceConfig { agreed, mtu, .. } = self.ip.devices[usize::from(device.0)].config;
        let room = into.len().min(PACKET_BYTES_MAX).saturating_sub(HEADERS_BYTES_MAX);
        let large = if agreed.large_segments { room } else { 0 };
        let whole = !agreed.large_segments && into.len() >= usize::from(mtu);
        let most = if whole { bytes.len() } else { bytes.len().min(room) };
        let tcp = &mut self.tcp;
        let socket = tcp.sockets.get_mut(id.slot)?;
        let segment = socket.connection.poll_zero_copy(now, most, large)?;
        socket.connection.borrow_send_buffer(&mut tcp.buffers.spare);
        let taken = segment.header.len as usize;
        let unfilled = agreed.checksum_unfilled;
        let len =
            build_around(socket, &segment, unfilled, into, |payload, sum| copy_and_add(sum, &bytes[..taken], payload));
        if taken > 0 {
            let retained = retain(&into[len - taken..len]).unwrap_or_else(|| Arc::new(Copied(bytes[..taken].into())));
            socket.connection.retain_sent(&retained, taken);
        }
        tcp.buffers.recount(socket);
        let marks = Marks { checksum_unfilled: unfilled, segment_bytes: segment.segment_bytes };
        self.ip.devices[usize::from(device.0)].count_sent(1, len as u64);
        self.ip.capture_sent(now, device, &into[..len]);
        self.leave_unless_more(id.slot, device);
        self.come_to_rest(id.slot);
        Some((Transmit { len, marks }, taken))
    }
}

/// A copy of sent bytes for retransmission, used if the frame's buffer could not be retained.
#[derive(Debug)]
struct Copied(Box<[u8]>);

impl Retained for Copied {
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[at..at + into.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HEADER_BYTES_MAX;
    use crate::link::device::Agreed;
    use crate::link::frame::Received;
    use crate::sockets::{TcpOptions, TcpSetting};
    use crate::stack::StackConfig;
    use crate::tcp::Config;
    use crate::time::Duration;
    use crate::wire::address::Prefix;
    use std::net::{IpAddr, SocketAddr};

    const DEVICE: DeviceId = DeviceId(0);
    const MTU: u16 = 9_000;

    /// Two hosts on a memory-to-memory link, and a connection.
    struct World {
        now: Instant,
        hosts: [Stack; 2],
        sockets: [TcpId; 2],
    }

    fn host(n: u8, agreed: Agreed) -> Stack {
        let addresses = vec![Prefix::new(IpAddr::from([10, 0, 0, n]), 24).unwrap()];
        let mut stack = Stack::new(StackConfig { seed: crate::seed::Seed::simulated(5), ..StackConfig::default() });
        stack.add_device(DeviceConfig { medium: Medium::Ip, mtu: MTU, addresses, agreed }).unwrap();
        stack
    }

    impl World {
        fn new(agreed: Agreed, config: Config) -> Self {
            let mut hosts = [host(1, agreed), host(2, agreed)];
            let (now, server) = (Instant::from_ns(1_000_000_000), SocketAddr::from(([10, 0, 0, 2], 80)));
            let options = TcpOptions { config, ..TcpOptions::default() };
            let listener = hosts[1].tcp_listen(server, 1, &options).unwrap();
            let client = hosts[0].tcp_connect(now, SocketAddr::from(([0, 0, 0, 0], 0)), server, &options).unwrap();
            let mut world = Self { now, hosts, sockets: [client; 2] };
            world.exchange();
            world.sockets[1] = world.hosts[1].tcp_accept(listener).unwrap().unwrap().0;
            world
        }

        fn memory(no_delay: bool) -> Self {
            Self::memory_with(Config { no_delay, ..Config::LINUX })
        }

        fn memory_with(config: Config) -> Self {
            Self::new(Agreed { checksum_unfilled: true, large_segments: true }, config)
        }

        fn frame(&mut self, side: usize) -> Option<(Vec<u8>, Marks)> {
            let mut bytes = vec![0; 65_535];
            let sent = self.hosts[side].poll_transmit(self.now, DEVICE, &mut bytes)?;
            bytes.truncate(sent.len);
            Some((bytes, sent.marks))
        }

        fn hand_over(&mut self, to: usize, (frame, marks): &(Vec<u8>, Marks)) {
            let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
            self.hosts[to].handle_frame(self.now, DEVICE, Received { header, payload, marks: *marks });
        }

        fn exchange(&mut self) {
            while let Some((side, frame)) = [0, 1].into_iter().find_map(|side| Some((side, self.frame(side)?))) {
                self.now += Duration::from_micros(1);
                self.hand_over(1 - side, &frame);
            }
        }

        fn permits(&mut self) -> ZeroCopySend {
            self.hosts[0].tcp_zero_copy(self.now, self.sockets[0], 0)
        }

        /// Sends bytes by zero-copy: the frame, and how many of the bytes it carries.
        fn send_zero_copy(&mut self, bytes: &[u8]) -> Option<((Vec<u8>, Marks), usize)> {
            let mut into = vec![0; 65_535];
            let retain = |part: &[u8]| -> Option<Arc<dyn Retained>> { Some(Arc::new(Copied(part.into()))) };
            let (sent, taken) =
                self.hosts[0].tcp_send_zero_copy(self.now, self.sockets[0], bytes, &mut into, retain)?;
            self.hosts[0].check();
            into.truncate(sent.len);
            Some(((into, sent.marks), taken))
        }

        fn receive(&mut self, len: usize) -> Vec<u8> {
            let mut into = vec![0; len];
            let count = self.hosts[1].tcp_receive(self.now, self.sockets[1], &mut into).unwrap().unwrap_or(0);
            into.truncate(count);
            into
        }
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 13 + at / 251).to_le_bytes()[0]).collect()
    }

    #[test]
    fn zero_copy_send_makes_the_same_frames_as_a_copying_send() {
        for (checksum_unfilled, large_segments) in [(true, true), (true, false), (false, true), (false, false)] {
            make_the_same_frames(Agreed { checksum_unfilled, large_segments });
        }
    }

    fn make_the_same_frames(agreed: Agreed) {
        let text = text(40_000);
        let no_delay = Config { no_delay: true, ..Config::LINUX };
        let (mut zero_copy, mut copying) = (World::new(agreed, no_delay), World::new(agreed, no_delay));
        assert_eq!(zero_copy.permits(), ZeroCopySend::Now(DEVICE));
        let mut gone = 0;
        assert_eq!(copying.hosts[0].tcp_send(copying.now, copying.sockets[0], &text), Ok(text.len()));
        while gone < text.len() {
            let (frame, taken) = zero_copy.send_zero_copy(&text[gone..]).unwrap();
            // The copying side knows at once how much is to come. So PSH may differ, and the checksum.
            let expected = copying.frame(0).unwrap();
            assert_eq!((&frame.0[40..], frame.1), (&expected.0[40..], expected.1), "from byte {gone}, {agreed:?}");
            gone += taken;
            zero_copy.hand_over(1, &frame);
        }
        assert_eq!(zero_copy.hosts[0].counters(DEVICE), copying.hosts[0].counters(DEVICE));
        zero_copy.exchange();
        assert!(zero_copy.receive(50_000) == text);
        assert!(zero_copy.frame(0).is_none() && zero_copy.permits() == ZeroCopySend::Now(DEVICE));
    }

    #[test]
    fn lost_zero_copy_bytes_are_retransmitted_from_the_retained_buffer() {
        let (mut world, text) = (World::memory(true), text(60_000));
        let mut gone = 0;
        while let Some((_lost, taken)) = world.send_zero_copy(&text[gone..]) {
            gone += taken;
        }
        assert!(gone > 2 * usize::from(MTU));
        while let Some(due) = world.hosts[0].poll_timeout() {
            world.now = world.now.max(due);
            world.hosts[0].handle_timeout(world.now);
            world.exchange();
        }
        assert!(world.receive(gone) == text[..gone]);
        assert_eq!(world.permits(), ZeroCopySend::Now(DEVICE), "it goes on as before");
    }

    #[test]
    fn zero_copy_send_waits_for_bytes_written_before() {
        let mut world = World::memory(true);
        world.hosts[0].tcp_send(world.now, world.sockets[0], &text(100)).unwrap();
        assert_eq!(world.permits(), ZeroCopySend::Later);
        assert!(world.send_zero_copy(&text(9_000)).is_none());
        let frame = world.frame(0).unwrap();
        assert_eq!(world.permits(), ZeroCopySend::Now(DEVICE));
        world.hand_over(1, &frame);
    }

    #[test]
    fn a_zero_copy_segment_carries_the_pending_acknowledgement() {
        let mut world = World::memory(true);
        let number =
            |(frame, _): &(Vec<u8>, Marks), at: usize| u32::from_be_bytes(*frame[20 + at..].first_chunk().unwrap());
        world.hosts[1].tcp_send(world.now, world.sockets[1], &text(100)).unwrap();
        let request = world.frame(1).unwrap();
        world.hand_over(0, &request);
        assert!(world.hosts[0].wants_transmit(DEVICE));
        assert_eq!(world.permits(), ZeroCopySend::Now(DEVICE));
        let (response, taken) = world.send_zero_copy(&text(9_000)).unwrap();
        assert_eq!(taken, 9_000);
        assert_eq!(number(&response, 8), number(&request, 4).wrapping_add(100));
        assert!(!world.hosts[0].wants_transmit(DEVICE), "no acknowledgement of its own");
        assert!(world.frame(0).is_none());
        world.hosts[0].check();
        world.hand_over(1, &response);
        world.exchange();
        assert_eq!(world.receive(10_000), text(9_000));
    }

    #[test]
    fn zero_copy_send_is_refused_while_the_nagle_rule_delays_bytes() {
        let mut world = World::memory(false);
        let (first, taken) = world.send_zero_copy(&text(9_000)).unwrap();
        assert_eq!(taken, 9_000, "nothing is under way");
        let (second, taken) = world.send_zero_copy(&text(9_000)).unwrap();
        assert!(taken < 9_000, "what does not fill a segment waits");
        assert!(world.send_zero_copy(&text(9_000)[taken..]).is_none());
        world.hosts[0].tcp_send(world.now, world.sockets[0], &text(9_000)[taken..]).unwrap();
        assert!(world.frame(0).is_none());
        assert_eq!(world.permits(), ZeroCopySend::Not);
        world.hand_over(1, &first);
        world.hand_over(1, &second);
        world.exchange();
        assert_eq!(world.receive(20_000).len(), 18_000);
    }

    #[test]
    fn zero_copy_send_is_refused_while_the_congestion_window_is_full() {
        let mut world = World::memory_with(Config { initial_window_segments: 2, ..Config::LINUX });
        let window = world.hosts[0].tcp_info(world.sockets[0]).unwrap().unwrap().congestion_window as usize;
        assert_eq!(world.send_zero_copy(&text(window)).map(|(_frame, taken)| taken), Some(window));
        assert_eq!(world.permits(), ZeroCopySend::Not, "the peer's takes more");
    }

    #[test]
    fn zero_copy_send_is_refused_by_a_closed_window_a_full_buffer_and_after_shutdown() {
        let mut world = World::memory(true);
        let mut gone = 0;
        while let Some((frame, taken)) = world.send_zero_copy(&text(60_000)) {
            gone += taken;
            world.hand_over(1, &frame);
            world.exchange();
            assert!(gone < 100 << 20, "nobody reads");
        }
        assert_ne!(world.permits(), ZeroCopySend::Later, "the window would be closed for good if nothing probed it");
        let written = world.hosts[0].tcp_send(world.now, world.sockets[0], &text(60_000)).unwrap();
        world.exchange();
        assert_eq!(world.permits(), ZeroCopySend::Later);
        assert!(written > 0 && world.hosts[0].poll_timeout().is_some());
        let mut world = World::memory(true);
        world.hosts[0].tcp_set(world.now, world.sockets[0], TcpSetting::SendBuffer(4_000)).unwrap();
        assert_eq!(world.send_zero_copy(&text(9_000)).map(|(_frame, taken)| taken), Some(4_000));
        assert_eq!(world.permits(), ZeroCopySend::Not, "the windows would take more");
        let mut world = World::memory(true);
        world.hosts[0].tcp_shutdown(world.now, world.sockets[0]).unwrap();
        assert_eq!(world.permits(), ZeroCopySend::Not);
    }

    #[test]
    fn zero_copy_send_is_refused_for_more_bytes_than_a_frame_carries() {
        for (large_segments, goes) in [(true, ZeroCopySend::Now(DEVICE)), (false, ZeroCopySend::Not)] {
            let mut world = World::new(Agreed { checksum_unfilled: true, large_segments }, Config::LINUX);
            let segment = usize::from(MTU) - 52;
            for (least, expected) in [(segment, ZeroCopySend::Now(DEVICE)), (segment + 1, goes)] {
                let found = world.hosts[0].tcp_zero_copy(world.now, world.sockets[0], least);
                assert_eq!(found, expected, "{least} with large segments: {large_segments}");
            }
        }
    }

    #[test]
    fn a_zero_copy_frame_of_the_mtu_carries_a_full_segment() {
        let mut world = World::new(Agreed { checksum_unfilled: false, large_segments: false }, Config::LINUX);
        let mut into = vec![0; usize::from(MTU)];
        let (sent, taken) =
            world.hosts[0].tcp_send_zero_copy(world.now, world.sockets[0], &text(20_000), &mut into, |_| None).unwrap();
        assert_eq!((sent.len, taken), (usize::from(MTU), usize::from(MTU) - 52));
    }

    #[test]
    fn a_socket_that_is_put_first_sends_before_sockets_that_waited_longer() {
        let mut world = World::memory(true);
        let (now, first) = (world.now, world.sockets[0]);
        let stack = &mut world.hosts[0];
        assert_eq!(stack.tcp_put_first(first), None, "it has nothing to send");
        stack.tcp_send(now, first, &text(100)).unwrap();
        let (any, server) = (SocketAddr::from(([0, 0, 0, 0], 0)), SocketAddr::from(([10, 0, 0, 2], 80)));
        let second = stack.tcp_connect(now, any, server, &TcpOptions::default()).unwrap();
        assert!(stack.tcp_is_first(first, DEVICE) && !stack.tcp_is_first(second, DEVICE));
        assert_eq!(stack.tcp_put_first(second), Some(DEVICE));
        let mut into = vec![0; 65_535];
        assert!(stack.poll_transmit_of(now, DEVICE, first, &mut into).is_none());
        let syn = stack.poll_transmit_of(now, DEVICE, second, &mut into).unwrap();
        assert_eq!((syn.len, into[33]), (60, 2));
        assert!(stack.poll_transmit_of(now, DEVICE, second, &mut into).is_none());
        assert_eq!(stack.poll_transmit_of(now, DEVICE, first, &mut into).map(|sent| sent.len), Some(52 + 100));
    }

    #[test]
    fn an_acknowledgement_after_our_fin_carries_no_payload() {
        let mut world = World::memory(true);
        world.hosts[0].tcp_shutdown(world.now, world.sockets[0]).unwrap();
        let _fin = world.frame(0).unwrap();
        world.hosts[1].tcp_send(world.now, world.sockets[1], &text(30_000)).unwrap();
        let data = world.frame(1).unwrap();
        world.hand_over(0, &data);
        assert_eq!(world.frame(0).unwrap().0.len(), 52);
    }

    #[test]
    fn a_zero_copy_frame_shorter_than_the_mtu_carries_what_fits() {
        let mut world = World::new(Agreed { checksum_unfilled: false, large_segments: false }, Config::LINUX);
        let mut into = vec![0; 5_000 + HEADERS_BYTES_MAX];
        let text = text(6_000);
        let (sent, taken) =
            world.hosts[0].tcp_send_zero_copy(world.now, world.sockets[0], &text, &mut into, |_| None).unwrap();
        assert_eq!(taken, 5_000);
        world.hand_over(1, &(into[..sent.len].to_vec(), sent.marks));
        assert!(world.receive(9_000) == text[..5_000]);
    }
}
