//! Receives a segment for a connection, a connection in TIME-WAIT, or a listener. Every other segment is answered by a reset.

use super::fast_open::SynVerdict;
use crate::drops::{DropReason, IpDrop, TcpDrop};
use crate::ip::icmp::ErrorReport;
use crate::ip::path_mtu::believable;
use crate::limits::{MTU_IPV6_MIN, TCP_COOKIE_TIME, TCP_SOCKET_BYTES_FREE};
use crate::link::frame::{DeviceId, Packet, Payload, Retained};
use crate::sockets::settings::PacketClass;
use crate::sockets::socket::{Egress, Owner, Provenance, Socket, header_bytes};
use crate::sockets::{Flow, FlowTarget, NextStep, PackedEvent};
use crate::stack::Stack;
use crate::tcp::{Belief, Config, Connection, Initial, SegmentError, StateName, Storage, SynCookie, TimeWaitAnswer};
use crate::time::Instant;
use crate::wire::address::is_link_local;
use crate::wire::checksum::Sum;
use crate::wire::icmp::NetworkError;
use crate::wire::protocol::TCP;
use crate::wire::tcp::{Header, IpEcn, SeqNumber};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// If a new connection follows one in TIME-WAIT: distance from the last sequence number of the old connection to the first of the
/// new one. The distance is larger than a window without window scaling.
const FOLLOW_SEQ: u32 = 65_537;

/// The payload of a segment, in two parts. `own` is the part in the stack's copy of the frame's first bytes, after the TCP header.
/// `rest` is the other part, in the frame's payload.
pub(super) struct Tail<'a, P: ?Sized> {
    pub(super) own: &'a [u8],
    pub(super) rest: &'a P,
    pub(super) len: usize,
}

impl<P: Payload + ?Sized> Payload for Tail<'_, P> {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, at: usize, into: &mut [u8]) {
        let own = self.own.get(at..).unwrap_or_default();
        let (front, back) = into.split_at_mut(own.len().min(into.len()));
        front.copy_from_slice(&own[..front.len()]);
        if !back.is_empty() {
            self.rest.copy_to((at + front.len()) - self.own.len(), back);
        }
    }

    fn retain(&self, at: usize, len: usize) -> Option<(usize, Arc<dyn Retained>)> {
        let own = self.own.len().saturating_sub(at);
        let len = len.checked_sub(own).filter(|len| *len > 0)?;
        let (more, retained) = self.rest.retain((at + own) - self.own.len(), len)?;
        Some((own + more, retained))
    }
}

/// Where a segment is: its IP addresses, and the offsets in its packet at which it begins and ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentPlace {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) at: usize,
    pub(crate) end: usize,
    /// True if the frame was sent to a multicast or broadcast address.
    pub(crate) to_group: bool,
    /// True if the segment was received from a device, and its addresses have passed the source filter.
    pub(crate) judged: bool,
}

/// A received segment with a valid header and checksum.
pub(super) struct Arrived<'a, P: ?Sized> {
    pub(super) flow: Flow,
    pub(super) header: &'a Header,
    pub(super) payload: &'a P,
    pub(super) ecn: IpEcn,
    pub(super) device: DeviceId,
    /// True if the segment has passed all checks of the slow path. The socket's [`Provenance`] may then be set.
    pub(super) validates: bool,
}

impl<S: Storage> Stack<S> {
    /// Receives a segment on the slow path.
    pub(crate) fn input_tcp<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        place: SegmentPlace,
    ) -> Result<(), DropReason> {
        let SegmentPlace { from, to, at, end, to_group, judged } = place;
        let own = packet.header();
        let own_end = own.len().min(end);
        let mut header = Header::default();
        let header_bytes = header.read(own.get(at..own_end).unwrap_or_default())?;
        let sum = || Sum::default().pseudo_header(from, to, TCP, end - at);
        // RFC 9293 MUST-3: a segment with a wrong checksum is dropped.
        if !packet.marks.checksum_unfilled && !packet.sum(sum(), at, end).is_intact() {
            return Err(TcpDrop::Checksum.into());
        }
        if to_group || to.is_multicast() {
            return Err(TcpDrop::ToGroup.into()); // RFC 9293 MUST-57
        }
        if header.source_port == 0 || header.destination_port == 0 {
            return Err(TcpDrop::Port.into());
        }
        let payload_at = at + header_bytes;
        let payload = Tail { own: &own[payload_at..own_end], rest: packet.payload, len: end - payload_at };
        let service = if to.is_ipv4() { own[1] } else { own[1] >> 4 };
        let arrived = Arrived {
            flow: Flow::new(to, from, header.destination_port, header.source_port),
            header: &header,
            payload: &payload,
            ecn: IpEcn::of_service(service),
            device: packet.device,
            validates: judged && !is_link_local(from) && !is_link_local(to),
        };
        match self.tcp.find(&arrived.flow) {
            Some(FlowTarget::Connection(slot)) => {
                self.segment(now, slot, &arrived)?;
                if arrived.validates
                    && let Some(socket) = self.tcp.sockets.get_mut(slot)
                {
                    socket.provenance = Provenance::new(self.ip.routes_version, arrived.device);
                }
                Ok(())
            }
            Some(FlowTarget::TimeWait(place)) => self.segment_for_wait(now, place, &arrived),
            // RFC 9293 MUST-63: the address is checked only after the lookup, because no connection has such a remote address.
            None if self.is_impossible(from) => Err(IpDrop::SourceMartian.into()),
            None => self.segment_for_listener(now, &arrived),
        }
    }

    /// Returns true if the address cannot belong to a single host, so that an answer would be sent to many hosts or to none. IP
    /// itself drops most packets from such addresses earlier.
    fn is_impossible(&self, from: IpAddr) -> bool {
        from.is_unspecified() || from.is_multicast() || self.ip.is_broadcast(from)
    }

    pub(super) fn segment<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        slot: u32,
        arrived: &Arrived<'_, P>,
    ) -> Result<(), DropReason> {
        let tcp = &mut self.tcp;
        let socket = tcp.sockets.get_mut(slot).ok_or(TcpDrop::NoConnection)?;
        if let Owner::Opening(listener) = socket.owner
            && arrived.header.ack.is_some()
            && tcp.listeners.get(listener).is_some_and(|listener| listener.is_full())
        {
            return Err(TcpDrop::BacklogFull.into());
        }
        let bytes = arrived.payload.len();
        if bytes > 0 && !tcp.buffers.are_scarce() {
            socket.connection.borrow_receive_buffer(&mut tcp.buffers.spare);
        } else if bytes > 0 && socket.connection.receive_growth(arrived.header, bytes) > TCP_SOCKET_BYTES_FREE {
            return Err(TcpDrop::Memory.into());
        }
        if bytes > 0 && !socket.connection.has_receive_room(arrived.header, bytes) {
            return Err(TcpDrop::Memory.into());
        }
        let awaits_cookie = socket.connection.awaits_cookie();
        let result = socket.connection.handle_segment(now, arrived.header, arrived.ecn, arrived.payload, 0);
        if let Owner::Opening(_) = socket.owner {
            self.opened(now, slot);
        }
        if awaits_cookie {
            self.learn_cookie(slot, arrived);
        }
        self.settle_fast_open(now, slot);
        self.touched(slot);
        Ok(result?)
    }

    /// Does what is necessary after a change of a connection: adds events, queues the connection to send, and sets its deadline.
    #[inline]
    pub(super) fn touched(&mut self, slot: u32) {
        match self.tcp.take_stock(slot) {
            NextStep::Wait => {}
            NextStep::Transmit => self.enqueue(slot),
            NextStep::End => self.tcp.end(slot),
        }
    }

    /// If a connection has been established, moves it to its listener's queue of connections that wait to be accepted. A listener may
    /// defer this until bytes arrive, but only for a limited time, and only for as many connections as may be opening.
    pub(super) fn opened(&mut self, now: Instant, slot: u32) {
        let tcp = &mut self.tcp;
        let Some(socket) = tcp.sockets.get_mut(slot) else { return };
        let Owner::Opening(index) = socket.owner else { return };
        if !socket.connection.is_open() && socket.connection.state_name() != StateName::TimeWait {
            return;
        }
        let generation = tcp.listeners.generation(index);
        let Some(listener) = tcp.listeners.get_mut(index) else { return };
        if let Some(time) = listener.options.defer_accept
            && listener.opening <= listener.backlog
            && !socket.connection.readiness().readable
        {
            if socket.linger_until == Instant::NEVER {
                socket.linger_until = now + time;
            }
            if now < socket.linger_until {
                return;
            }
        }
        socket.linger_until = Instant::NEVER;
        socket.owner = Owner::Waiting(index);
        listener.opening -= 1;
        listener.waiting.push_back(slot);
        if !std::mem::replace(&mut listener.announced, true) {
            tcp.announce(PackedEvent::listener(crate::sockets::ListenerId { slot: index, generation }));
        }
    }

    fn segment_for_wait<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        place: u32,
        arrived: &Arrived<'_, P>,
    ) -> Result<(), DropReason> {
        let Some(wait) = self.tcp.waits.slab.get_mut(place) else { return Err(TcpDrop::NoConnection.into()) };
        let (until, class) = (wait.state.until, wait.class);
        let answer = wait.state.handle_segment(now, arrived.header, arrived.payload.len())?;
        if wait.state.until != until {
            self.tcp.waits.restarted(place);
        }
        match answer {
            TimeWaitAnswer::Acknowledge(header) => self.send_segment(now, arrived.flow, &header, class, arrived.device),
            TimeWaitAnswer::TakeOver(after) => match self.listener_of(arrived.flow.local()) {
                Some(listener) => self.open(now, listener, arrived, Some((after, place))),
                None => {
                    let Some(wait) = self.tcp.waits.slab.get_mut(place) else {
                        return Err(TcpDrop::NoConnection.into());
                    };
                    let challenge = wait.state.challenge(now)?;
                    self.send_segment(now, arrived.flow, &challenge, class, arrived.device)?;
                    Err(TcpDrop::SynInWindow.into())
                }
            },
        }
    }

    pub(super) fn listener_of(&self, local: SocketAddr) -> Option<u32> {
        let any = SocketAddr::new(crate::udp::unspecified(local.ip()), local.port());
        self.tcp.by_address.get(&local).or_else(|| self.tcp.by_address.get(&any)).copied()
    }

    fn segment_for_listener<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        arrived: &Arrived<'_, P>,
    ) -> Result<(), DropReason> {
        let Some(index) = self.listener_of(arrived.flow.local()) else { return self.answer_by_reset(now, arrived) };
        let flags = arrived.header.flags;
        if arrived.header.ack.is_some() || flags.rst {
            return self.take_cookie(now, index, arrived);
        }
        if !flags.syn {
            return Err(TcpDrop::NoSyn.into());
        }
        self.open(now, index, arrived, None)
    }

    /// Answers a segment with a reset (RFC 9293 3.10.7.1).
    fn answer_by_reset<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        arrived: &Arrived<'_, P>,
    ) -> Result<(), DropReason> {
        if let Some(reset) = arrived.header.reset(arrived.payload.len()) {
            let class = self.class_towards(PacketClass::default(), arrived.flow.remote_ip());
            self.send_segment(now, arrived.flow, &reset, class, arrived.device)?;
        }
        Err(TcpDrop::NoConnection.into())
    }

    /// Opens a connection for a SYN. If too many connections are opening, answers with a SYN cookie instead. `after` is set if the
    /// flow is in TIME-WAIT: it contains the last sequence number of the old connection, and the index of the TIME-WAIT entry.
    fn open<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        arrived: &Arrived<'_, P>,
        after: Option<(SeqNumber, u32)>,
    ) -> Result<(), DropReason> {
        let full = self.tcp.is_full();
        let Some(listener) = self.tcp.listeners.get_mut(index) else { return Err(TcpDrop::NoConnection.into()) };
        let many = full || listener.opening >= listener.backlog;
        if listener.is_full() || (many && after.is_some()) {
            return Err(TcpDrop::BacklogFull.into());
        }
        let (options, flow) = (listener.options, arrived.flow);
        if many {
            listener.cookies_until = Some(now + TCP_COOKIE_TIME);
        }
        let egress = self.egress_to(flow.remote_ip(), self.ip.link_of(arrived.device, flow.remote_ip()));
        let config = self.config_towards(options.config, flow.remote_ip(), egress);
        let identity = flow.identity();
        if many {
            let answer = self.cookie(&identity, &config).answer(now, arrived.header);
            let class = self.class_towards(options.class(), flow.remote_ip());
            return self.send_segment(now, flow, &answer, class, arrived.device);
        }
        let mut initial = Initial::new(self.tcp.numbers, &identity, now);
        if let Some((after, _)) = after.filter(|(after, _)| !initial.seq.after(*after)) {
            initial.seq = after + FOLLOW_SEQ;
        }
        let verdict = self.judge_syn(now, index, arrived);
        let opened = match verdict {
            SynVerdict::Open(cookie) => {
                let config = self.tcp.configs.share(&config);
                Connection::accept_fast(now, config, arrived.header, arrived.ecn, initial, cookie, arrived.payload)
            }
            SynVerdict::Handshake(_) => {
                let config = self.tcp.configs.share(&config);
                Connection::accept_with(now, config, arrived.header, arrived.ecn, initial)
            }
        };
        let Ok(mut connection) = opened else { return Err(TcpDrop::Memory.into()) };
        if let SynVerdict::Handshake(Some(cookie)) = verdict {
            connection.offer_cookie(cookie);
        }
        let opens_fast = connection.opens_fast();
        // Data that came without a valid cookie costs no memory (RFC 7413 section 4.2.2). The peer sends it again.
        let takes_text = arrived.header.options.fast_open.is_none() && !opens_fast;
        if takes_text && (!arrived.payload.is_empty() || arrived.header.flags.fin) {
            connection.handle_segment(now, arrived.header, arrived.ecn, arrived.payload, 0)?;
        }
        if let Some((_, place)) = after {
            self.tcp.remove_wait(place);
        }
        if let Some(slot) = self.admit(now, index, arrived, connection, egress)
            && opens_fast
        {
            self.begin_pending(now, index, slot);
        }
        Ok(())
    }

    fn cookie<'a>(&self, identity: &'a [u8], config: &'a Config) -> SynCookie<'a> {
        SynCookie { secret: self.tcp.cookies, numbers: self.tcp.numbers, identity, config }
    }

    /// Adds a connection to the table, with a listener as its owner.
    fn admit<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        arrived: &Arrived<'_, P>,
        connection: Connection<S>,
        egress: Egress,
    ) -> Option<u32> {
        let options = self.tcp.listeners.get(index)?.options;
        let on = self.ip.link_of(arrived.device, arrived.flow.remote_ip());
        let mut socket = Socket::new(connection, arrived.flow, Owner::Opening(index), &options, on);
        socket.class = self.class_towards(socket.class, arrived.flow.remote_ip());
        (socket.egress, socket.egress_version) = (egress, self.ip.routes_version);
        socket.provenance =
            if arrived.validates { Provenance::new(self.ip.routes_version, arrived.device) } else { Provenance::NONE };
        self.learn_path(now, &mut socket);
        let slot = self.tcp.insert(socket);
        if let Some(listener) = self.tcp.listeners.get_mut(index) {
            listener.opening += 1;
        }
        self.touched(slot);
        Some(slot)
    }

    /// Receives an acknowledgement for a listener. If the acknowledgement carries a valid SYN cookie, a connection is opened. If
    /// not, the stack answers with a reset.
    fn take_cookie<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        arrived: &Arrived<'_, P>,
    ) -> Result<(), DropReason> {
        let Some(listener) = self.tcp.listeners.get(index) else { return Err(TcpDrop::NoConnection.into()) };
        let (expected, full) = (listener.cookies_until.is_some_and(|until| now < until), listener.is_full());
        let (options, flags) = (listener.options, arrived.header.flags);
        let flow = arrived.flow;
        let egress = self.egress_to(flow.remote_ip(), self.ip.link_of(arrived.device, flow.remote_ip()));
        let connection = if expected {
            let config = self.config_towards(options.config, flow.remote_ip(), egress);
            self.cookie(&flow.identity(), &config).accept(now, arrived.header)
        } else {
            None
        };
        let Some(mut connection) = connection else {
            // A segment with later data carries no cookie. Such a segment arrives first if the client's first segment was lost. It
            // is dropped without a reset, because the connection can still open when the peer retransmits the first segment.
            if expected && !flags.rst && !arrived.payload.is_empty() {
                return Err(TcpDrop::NoConnection.into());
            }
            return self.answer_by_reset(now, arrived);
        };
        if full || self.tcp.is_full() {
            return Err(TcpDrop::BacklogFull.into());
        }
        self.tcp.configs.adopt(&mut connection);
        let slot = self.admit(now, index, arrived, connection, egress).ok_or(TcpDrop::NoConnection)?;
        self.segment(now, slot, arrived)
    }

    /// Returns `config` with the segment sizes for an egress.
    pub(super) fn config_towards(&self, config: Config, remote: IpAddr, egress: Egress) -> Config {
        let mtu = match egress {
            Egress::Device { device, .. } => self.ip.devices[usize::from(device.0)].config.mtu,
            Egress::Local => u16::MAX,
            Egress::Unreachable => MTU_IPV6_MIN,
        };
        // RFC 9293 MUST-15, MUST-67: the offered MSS is the device's MTU without the headers. `mss_default` is the segment size
        // for a peer that sends no MSS option.
        let mss_default = if remote.is_ipv4() { 536 } else { 1_220 };
        let mss = mtu - header_bytes(remote);
        Config { mss_default, ..self.tcp.route_settings.apply(config, &self.tcp.defaults, remote, mss) }
    }

    /// Returns the fields of packets to a peer, with the hop limit of its prefix if the application has not chosen one.
    pub(super) fn class_towards(&self, class: PacketClass, remote: IpAddr) -> PacketClass {
        self.tcp.route_settings.class(class, remote)
    }

    /// Sets the path MTU of a new connection if the stack knows it.
    pub(super) fn learn_path(&mut self, now: Instant, socket: &mut Socket<S>) {
        if socket.follows_path_mtu()
            && let Some(mtu) = self.ip.path_mtus.get(now, socket.flow.remote_ip())
        {
            socket.connection.set_path_mss(now, mtu - header_bytes(socket.flow.remote_ip()));
        }
    }

    /// Passes an ICMP error to the connection that it is about. `seq` is the sequence number in the quoted segment. From it, the
    /// connection decides whether to believe the error.
    pub(crate) fn report_tcp(
        &mut self,
        now: Instant,
        report: &ErrorReport,
        seq: SeqNumber,
    ) -> Result<Belief, DropReason> {
        let ErrorReport { error, local, remote, .. } = *report;
        let flow = Flow::new(local.ip(), remote.ip(), local.port(), remote.port());
        // RFC 9293 MUST-54: the connection that the error is about receives the error.
        let Some(FlowTarget::Connection(slot)) = self.tcp.look_up(&flow) else {
            return Err(TcpDrop::NoConnection.into());
        };
        let socket = self.tcp.sockets.get_mut(slot).ok_or(TcpDrop::NoConnection)?;
        let error = match error {
            NetworkError::TooBig { .. } if !socket.follows_path_mtu() => return Err(TcpDrop::MtuIgnored.into()),
            NetworkError::TooBig { mtu } => {
                SegmentError::TooBig(believable(mtu, remote.ip()) - header_bytes(remote.ip()))
            }
            NetworkError::PortUnreachable | NetworkError::ProtocolUnreachable => SegmentError::Hard,
            // RFC 9293 MUST-56: these errors do not end the connection.
            NetworkError::NoRoute
            | NetworkError::HostUnreachable
            | NetworkError::TimeExceeded
            | NetworkError::Parameter
            | NetworkError::Prohibited => SegmentError::Soft,
        };
        let belief = socket.connection.handle_icmp(now, seq, error)?;
        self.touched(slot);
        Ok(belief)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that may be retained.
    #[derive(Debug, Clone)]
    struct Elsewhere(Vec<u8>);

    impl Payload for Elsewhere {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn copy_to(&self, at: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.0[at..at + into.len()]);
        }

        fn retain(&self, at: usize, len: usize) -> Option<(usize, Arc<dyn Retained>)> {
            Some((0, Arc::new(Self(self.0[at..at + len].to_vec()))))
        }
    }

    impl Retained for Elsewhere {
        fn copy_to(&self, at: usize, into: &mut [u8]) {
            Payload::copy_to(self, at, into);
        }
    }

    #[test]
    fn only_the_retainable_part_of_a_payload_is_retained() {
        let whole = [1, 2, 3, 4, 5, 6, 7, 8];
        let rest = Elsewhere(whole[3..].to_vec());
        let tail = Tail { own: &whole[..3], rest: &rest, len: whole.len() };
        let cases = [(0, 3, None), (1, 1, None), (0, 4, Some(3)), (2, 6, Some(1)), (3, 5, Some(0)), (5, 3, Some(0))];
        for (at, len, copied) in cases {
            let retained = tail.retain(at, len);
            assert_eq!(retained.as_ref().map(|(copied, _)| *copied), copied, "{len} from {at} on");
            if let Some((copied, retained)) = retained {
                let mut bytes = vec![0; len - copied];
                retained.copy_to(0, &mut bytes);
                assert_eq!(bytes, whole[at + copied..at + len]);
            }
        }
    }
}
