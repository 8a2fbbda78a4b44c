//! Operations that send the packets of peers and attackers: segments, floods, ICMP errors, fragments, IGMP and MLD messages, and
//! random bytes.

use super::*;

impl World {
    pub(super) fn send_segment(&mut self, input: &mut Input<'_>) {
        let (now_ms, at) = (self.now_ms(), input.index(self.peers.len()));
        let Some(peer) = self.peers.get_mut(at) else { return };
        let segment = peer.segment(input, now_ms);
        let service = if segment.flags & 0x80 != 0 { 3 } else { 0 };
        let (device, packet) = (peer.device, peer.packet(&segment, service));
        let large = packet.len() > usize::from(MTU[device]);
        let marks = if large { self.marks(device, 3, 1_400) } else { Marks::default() };
        self.inject(device, &packet, marks);
    }

    pub(super) fn send_data(&mut self, input: &mut Input<'_>) {
        let (now_ms, at) = (self.now_ms(), input.index(self.peers.len()));
        let len = input.payload_len();
        let Some(peer) = self.peers.get_mut(at) else { return };
        let mut segment = peer.bare(now_ms);
        peer.fill(&mut segment, len.min(usize::from(MTU[peer.device]) - 92));
        let (device, packet) = (peer.device, peer.packet(&segment, 0));
        self.inject(device, &packet, Marks::default());
    }

    /// Opens a connection from a peer. It may be a peer that has not sent anything before.
    pub(super) fn begin(&mut self, input: &mut Input<'_>) {
        let (device, v6) = (input.index(3), input.u8() & 1 != 0);
        let port = 1_001 + u16::from(input.u8() % 16);
        let isn = input.pick(&[0, u32::MAX - 3_000, 0x7fff_ff00, 1_000_000]);
        let (bits, mss) = (input.u8(), input.pick(&[1_460, 536, 1, 0, 48, 8_960, 65_535]));
        let (there, here) = (address(device, v6, 9), own(device, v6));
        let known = self.peers.iter().position(|peer| peer.there == there && peer.ports == (port, 80));
        let at = known.unwrap_or(self.peers.len());
        if known.is_none() && self.peers.len() < PEERS_MAX {
            self.peers.push(Peer::new(device, there, here, (port, 80), isn));
        }
        self.answer(at, bits, mss);
        if bits & 1 != 0 {
            self.answer(at, 0, 0);
        }
    }

    pub(super) fn flood_syns(&mut self, input: &mut Input<'_>) {
        let (device, v6, count) = (input.index(3), input.u8() & 1 != 0, input.u8());
        let (now_ms, first) = (self.now_ms(), 20_000 + input.u16() % 100);
        for port in (first..).take(usize::from(count)) {
            let there = address(device, v6, 9 + port % 3);
            let mut peer = Peer::new(device, there, own(device, v6), (port, 80), u32::from(port));
            let segment = peer.syn(0, 1_460, now_ms);
            self.inject(device, &peer.packet(&segment, 0), Marks::default());
        }
    }

    pub(super) fn flood_gaps(&mut self, input: &mut Input<'_>) {
        let (now_ms, at) = (self.now_ms(), input.index(self.peers.len()));
        let (count, stride, len) = (input.u8(), u32::from(input.u8()) + 1, usize::from(input.u8() % 32) + 1);
        let Some(peer) = self.peers.get_mut(at) else { return };
        let device = peer.device;
        let mut packets = Vec::new();
        for step in 1..=u32::from(count) {
            let mut segment = peer.bare(now_ms);
            segment.seq = segment.seq.wrapping_add(step * stride);
            peer.fill(&mut segment, len);
            packets.push(peer.packet(&segment, 0));
        }
        packets.iter().for_each(|packet| self.inject(device, packet, Marks::default()));
    }

    /// Sends an ICMP error that quotes an earlier packet.
    pub(super) fn send_icmp_error(&mut self, input: &mut Input<'_>) {
        let at = input.index(self.history.len());
        let Some((device, quoted, _)) = self.history.iter().rev().nth(at).cloned() else { return };
        let v6 = quoted.first().is_some_and(|first| first >> 4 == 6);
        let kind = if v6 { input.pick(&[2, 1, 3, 4, 137]) } else { input.pick(&[3, 11, 12, 4, 5]) };
        let code = if kind == 3 && !v6 { input.pick(&[4, 3, 2, 1, 0, 13]) } else { input.u8() % 5 };
        let [a, b] = input.pick(&[1_280, 576, 68, 0, 1_400, 65_535_u16]).to_be_bytes();
        let quote = &quoted[..quoted.len().min(20 + usize::from(input.u8()))];
        let message = [&[kind, code, 0, 0, 0, 0, a, b][..], quote].concat();
        let host = input.pick(&[9, 77]);
        let protocol = if v6 { 58 } else { 1 };
        let mut packet = Ip::new(address(device, v6, host), own(device, v6), protocol).packet(&message);
        wire::mend(&mut packet);
        self.inject(device, &packet, Marks::default());
    }

    /// Sends a packet of some protocol. The input may change bytes of the packet, and may correct the checksums afterwards.
    pub(super) fn send_packet(&mut self, input: &mut Input<'_>) {
        let (device, v6, kind) = (input.index(3), input.u8() & 1 != 0, input.u8());
        let protocol = match kind % 8 {
            0..3 => wire::UDP,
            3..5 => {
                if v6 {
                    58
                } else {
                    1
                }
            }
            5 => wire::TCP,
            _ => input.u8(),
        };
        let far = input.index(3);
        let to = input.pick(&[own(device, v6), own(far, v6), address(far, v6, 9), address(device, v6, 255)]);
        let len = input.index(256);
        let mut payload = input.bytes(len).to_vec();
        if protocol == wire::UDP {
            let port = input.pick(&[6, 7, 80, 0]);
            payload = wire::udp((5, port), &payload);
        }
        let hops = input.pick(&[64, 255, 1, 0]);
        let ip = Ip { hops, flags: input.u16(), ..Ip::new(address(device, v6, 9), to, protocol) };
        let mut packet = ip.packet(&payload);
        self.tainted |= protocol == wire::TCP || protocol == 0 || protocol == 43 || protocol == 60 || protocol == 44;
        self.change(input, &mut packet);
        self.inject(device, &packet, Marks::default());
    }

    pub(super) fn change(&mut self, input: &mut Input<'_>, packet: &mut [u8]) {
        let changes = input.u8();
        for _ in 0..changes & 7 {
            let (at, byte) = (input.index(packet.len()), input.u8());
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
                self.tainted = true;
            }
        }
        if changes & 0x80 == 0 {
            wire::mend(packet);
        }
    }

    /// Sends a frame that consists of the input's bytes. A valid Ethernet header may precede them.
    pub(super) fn send_bytes(&mut self, input: &mut Input<'_>) {
        let (device, kind, len) = (input.index(3), input.u8(), input.index(256));
        let bytes = input.bytes(len);
        self.tainted = true;
        let marks = Marks { checksum_unfilled: kind & 1 != 0, segment_bytes: u16::from(kind >> 1 & 7) };
        if kind & 0x80 != 0 || device == 2 {
            return self.give(device, bytes, marks);
        }
        let kind = [[8, 0], [0x86, 0xdd], [8, 6]][usize::from(kind % 3)];
        let group = input.u8() & 1 != 0;
        let to = if group { [0xff; 6] } else { mac(device, 1) };
        self.give(device, &[&to[..], &mac(device, 9), &kind, bytes].concat(), marks);
    }

    /// Sends again a recent packet of either direction. The packet may be changed, or its source and destination may be exchanged.
    pub(super) fn send_again(&mut self, input: &mut Input<'_>) {
        let at = input.index(self.history.len());
        let Some((device, mut packet, marks)) = self.history.iter().rev().nth(at).cloned() else { return };
        let how = input.u8();
        if how & 1 != 0 {
            let v4 = packet.first().is_some_and(|first| first >> 4 == 4);
            let (at, len) = if v4 { (12, 4) } else { (8, 16) };
            if packet.len() >= at + 2 * len {
                packet[at..at + 2 * len].rotate_left(len);
            }
            self.tainted = true;
        }
        if how & 2 != 0 {
            self.change(input, &mut packet);
        }
        let device = if how & 4 == 0 { device } else { input.index(3) };
        let agreed = self.agreed[device];
        let marks = Marks {
            checksum_unfilled: marks.checksum_unfilled && agreed.checksum_unfilled,
            segment_bytes: if agreed.large_segments { marks.segment_bytes } else { 0 },
        };
        self.inject(device, &packet, marks);
    }

    /// Sends a segment in IP fragments, in order or in reverse order.
    pub(super) fn send_fragments(&mut self, input: &mut Input<'_>) {
        let (now_ms, at) = (self.now_ms(), input.index(self.peers.len()));
        let (ident, size) = (input.u8(), 8 * (1 + usize::from(input.u8())));
        let backwards = input.u8() & 1 != 0;
        let Some(peer) = self.peers.get_mut(at) else { return };
        let segment = peer.segment(input, now_ms);
        let (device, packet) = (peer.device, peer.packet(&segment, 0));
        let (ip, v4) = (Ip::new(peer.there, peer.here, wire::TCP), peer.here.is_ipv4());
        let body = &packet[if v4 { 20 } else { 40 }..];
        let pieces = body.chunks(size).count();
        for at in 0..pieces {
            let at = if backwards { pieces - 1 - at } else { at };
            let (units, more) = (u16::try_from(at * size / 8).unwrap_or(0), u16::from(at + 1 < pieces));
            let piece = &body[at * size..body.len().min((at + 1) * size)];
            let fragment = if v4 {
                Ip { ident: ident.into(), flags: units & 0x1fff | more << 13, ..ip }.packet(piece)
            } else {
                let [a, b] = (units << 3 | more).to_be_bytes();
                let header = [wire::TCP, 0, a, b, 0, 0, 0, ident];
                Ip { protocol: 44, ..ip }.packet(&[&header, piece].concat())
            };
            self.inject(device, &fragment, Marks::default());
        }
    }

    /// Sends an IGMP or MLD query or report with a valid IP header.
    pub(super) fn send_group_message(&mut self, input: &mut Input<'_>, device: usize) {
        let (how, code, which) = (input.u8(), input.u8(), input.u8());
        let v6 = how & 1 != 0;
        let general = how & 2 != 0;
        let about = group(v6, which);
        let kind = if v6 { input.pick(&[130, 131, 132, 143]) } else { input.pick(&[0x11, 0x12, 0x16, 0x17, 0x22]) };
        let address = if general { vec![0; wire::octets(about).len()] } else { wire::octets(about) };
        let len = input.index(64);
        let rest = input.bytes(len);
        let packet = if v6 {
            let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9).into();
            let to = if general { group(true, 0) } else { about };
            let alert = [58, 0, 5, 2, 0, 0, 1, 0];
            let message = [&alert[..], &[kind, 0, 0, 0, 0, code, 0, 0], &address, rest].concat();
            let mut packet = Ip { hops: 1, ..Ip::new(link_local, to, 0) }.packet(&message);
            wire::mend(&mut packet);
            packet
        } else {
            let to = if general { group(false, 0) } else { about };
            let mut message = [&[kind, code, 0, 0], &address[..], rest].concat();
            let sum = wire::sum(&[&message]).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
            let ip = Ip { hops: 1, ..Ip::new(self::address(device, false, 9), to, 2) };
            let mut packet = ip.packet(&message);
            packet[0] += 1;
            packet.splice(20..20, [0x94, 4, 0, 0]);
            wire::mend_ip(&mut packet);
            packet
        };
        self.inject(device, &packet, Marks::default());
    }
}
