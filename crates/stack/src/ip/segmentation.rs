//! Cuts one packet into the frames to send. The result is the packet with an edited header, its fragments, or TCP segments.
//!
//! A piece is a new header and a range of the original frame. The owner of the link copies this range. `forward.rs` and
//! `output.rs` decide how a packet is cut.

use crate::drops::LinkDrop;
use crate::limits::HEADER_BYTES_MAX;
use crate::link::frame::{Marks, Packet, Payload};
use crate::wire::checksum::Sum;
use crate::wire::ethernet::LINK_BYTES;
use crate::wire::ipv4::{Ipv4Header, blank_uncopied_options};
use crate::wire::ipv6::{FRAGMENT_BYTES, Ipv6Header};
use crate::wire::protocol::{TCP, UDP};
use crate::wire::udp;
use smoltcp::wire::{IPV6_HEADER_LEN, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket};
use std::ops::Range;

/// One frame to send: a header, followed by a part of the original frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The first bytes of the frame.
    pub header: &'a [u8],
    /// The bytes of the original frame that follow the header.
    pub range: Range<usize>,
    /// Properties of the frame that the receiver cannot see from its bytes, such as a checksum that is not filled in.
    pub marks: Marks,
}

/// Memory for edited headers. It is a field of the stack, so that a header is written once and never copied.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The link header and the IP header of the packet, and the transport header if it is edited too.
    head: [u8; HEADER_BYTES_MAX],
    /// The header of one fragment or segment.
    piece: [u8; HEADER_BYTES_MAX],
    /// The plan for the current packet, and its progress.
    pub(crate) cut: Cut,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let shape = Shape { is_v4: true, protocol: 0, ip_bytes: 0, total_bytes: 0 };
        let cut = Cut { shape, head_end: 0, link_bytes: 0, marks: Marks::default(), plan: Plan::Done, done_bytes: 0 };
        Self { head: [0; HEADER_BYTES_MAX], piece: [0; HEADER_BYTES_MAX], cut }
    }

    /// Prepares a packet that is sent as one piece, without a link header. `header` is its edited IP header.
    #[inline]
    pub(crate) fn set_whole<const BYTES: usize>(&mut self, shape: Shape, header: &[u8; BYTES], marks: Marks) {
        self.head[LINK_BYTES..LINK_BYTES + BYTES].copy_from_slice(header);
        let head_end = LINK_BYTES + BYTES;
        self.cut = Cut { shape, head_end, link_bytes: 0, marks, plan: Plan::Whole, done_bytes: 0 };
    }
}

/// How a packet is cut into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The packet is not cut.
    Whole,
    /// The packet is cut into IPv4 fragments with up to `bytes` bytes of payload each. `bytes` is a multiple of 8.
    FragmentsV4 { bytes: usize },
    /// The packet is cut into IPv6 fragments with up to `bytes` bytes of payload each. `bytes` is a multiple of 8.
    FragmentsV6 { bytes: usize, ident: u32 },
    /// The packet is cut into TCP segments with up to `bytes` bytes of payload each.
    Segments { bytes: usize },
    /// All pieces have been returned.
    Done,
}

/// The properties of a packet that are needed to cut it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) is_v4: bool,
    pub(crate) protocol: u8,
    /// Length of the IP header, in bytes.
    pub(crate) ip_bytes: usize,
    /// Length of the packet, in bytes.
    pub(crate) total_bytes: usize,
}

impl Shape {
    pub(crate) fn v4(header: &Ipv4Header) -> Self {
        Self { is_v4: true, protocol: header.protocol, ip_bytes: header.header_bytes, total_bytes: header.total_bytes }
    }

    /// Returns the shape of an IPv6 packet. Extension headers count as payload.
    pub(crate) fn v6(header: &Ipv6Header) -> Self {
        Self { is_v4: false, protocol: header.next_header, ip_bytes: IPV6_HEADER_LEN, total_bytes: header.total_bytes }
    }
}

/// The plan for the current packet, and how much of the packet has been returned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    shape: Shape,
    head_end: usize,
    /// Length of the link header, in bytes.
    link_bytes: usize,
    marks: Marks,
    plan: Plan,
    /// Number of payload bytes in the pieces that have been returned.
    done_bytes: usize,
}

impl Cut {
    pub(crate) fn total_bytes(&self) -> usize {
        self.shape.total_bytes
    }
}

/// The pieces of a packet, in order.
#[derive(Debug)]
pub(crate) struct Pieces<'a, P: ?Sized> {
    pub(crate) packet: Packet<'a, P>,
    pub(crate) scratch: &'a mut Scratch,
}

/// Positions of the source and destination addresses in an IP header.
const IPV4_ADDRESSES: Range<usize> = 12..20;
const IPV6_ADDRESSES: Range<usize> = 8..40;
const TCP_HEADER_BYTES: usize = 20;

impl<'a, P: Payload + ?Sized> Pieces<'a, P> {
    /// Prepares the pieces of a packet, with a copy of its IP header for editing. The caller has checked `shape` against the
    /// bytes of the packet.
    #[inline]
    pub(crate) fn new(packet: Packet<'a, P>, shape: Shape, scratch: &'a mut Scratch) -> Self {
        let head_end = LINK_BYTES + shape.ip_bytes;
        match packet.header().first_chunk::<IPV6_HEADER_LEN>() {
            // A copy of constant length is faster than a copy of the header's length. The copied bytes after the header are never
            // read.
            Some(header) if shape.ip_bytes <= IPV6_HEADER_LEN => {
                scratch.head[LINK_BYTES..LINK_BYTES + IPV6_HEADER_LEN].copy_from_slice(header);
            }
            Some(_) | None => {
                scratch.head[LINK_BYTES..head_end].copy_from_slice(&packet.header()[..shape.ip_bytes]);
            }
        }
        let marks = Marks::default();
        scratch.cut = Cut { shape, head_end, link_bytes: 0, marks, plan: Plan::Whole, done_bytes: 0 };
        Self { packet, scratch }
    }

    /// Returns the IP header for editing.
    pub(crate) fn ip_mut(&mut self) -> &mut [u8] {
        &mut self.scratch.head[LINK_BYTES..LINK_BYTES + self.scratch.cut.shape.ip_bytes]
    }

    /// Returns the room for the link header. The link header will have `bytes` bytes.
    pub(crate) fn link_mut(&mut self, bytes: usize) -> &mut [u8] {
        self.scratch.cut.link_bytes = bytes;
        &mut self.scratch.head[..LINK_BYTES]
    }

    pub(crate) fn set_plan(&mut self, plan: Plan) {
        self.scratch.cut.plan = plan;
    }

    pub(crate) fn set_marks(&mut self, marks: Marks) {
        self.scratch.cut.marks = marks;
    }

    /// Plans IPv4 fragments that fit into an MTU.
    pub(crate) fn plan_fragments_v4(&mut self, mtu: usize) {
        self.scratch.cut.plan = Plan::FragmentsV4 { bytes: (mtu - self.scratch.cut.shape.ip_bytes) & !7 };
    }

    /// Copies the transport header behind the IP header for editing, and fills in its checksum.
    pub(crate) fn fill_checksum(&mut self) -> Result<(), LinkDrop> {
        let (bytes, at) = self.checksum_place().ok_or(LinkDrop::Marks)?;
        self.take_transport_header(bytes)?;
        let field = LINK_BYTES + self.scratch.cut.shape.ip_bytes + at;
        let unfilled = u16::from_be_bytes([self.scratch.head[field], self.scratch.head[field + 1]]);
        let sum = self.packet.sum(
            self.pseudo_header(self.payload_bytes()),
            self.scratch.cut.shape.ip_bytes,
            self.scratch.cut.shape.total_bytes,
        );
        let sum = sum.word(!unfilled);
        let checksum = if self.scratch.cut.shape.protocol == UDP { udp::checksum(sum) } else { sum.checksum() };
        self.scratch.head[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        self.scratch.cut.marks.checksum_unfilled = false;
        Ok(())
    }

    /// Returns whether the transport checksum of the complete packet is correct.
    pub(crate) fn is_intact(&self) -> bool {
        let sum = self.pseudo_header(self.payload_bytes());
        self.packet.sum(sum, self.scratch.cut.shape.ip_bytes, self.scratch.cut.shape.total_bytes).is_intact()
    }

    /// Copies the TCP header behind the IP header for editing, so that the packet can be cut into segments. Returns the payload
    /// length in bytes.
    pub(crate) fn prepare_segments(&mut self) -> Result<usize, LinkDrop> {
        if self.scratch.cut.shape.protocol != TCP {
            return Err(LinkDrop::Marks);
        }
        self.take_transport_header(TCP_HEADER_BYTES)?;
        let header_bytes = usize::from(TcpPacket::new_unchecked(self.transport()).header_len());
        if header_bytes < TCP_HEADER_BYTES || header_bytes > self.payload_bytes() {
            return Err(LinkDrop::Marks);
        }
        self.take_transport_header(header_bytes)?;
        // Senders never set these control bits in a large segment, so drop such a segment.
        let tcp = TcpPacket::new_unchecked(self.transport());
        if tcp.syn() || tcp.rst() || tcp.urg() {
            return Err(LinkDrop::Marks);
        }
        Ok(self.payload_bytes() - header_bytes)
    }

    /// Returns the length of the IP and TCP headers, in bytes. Call [`Pieces::prepare_segments`] before.
    pub(crate) fn segment_header_bytes(&self) -> usize {
        self.scratch.cut.head_end - LINK_BYTES
    }

    /// Returns the next piece. Other functions cut the packet, so this function is small enough to be inlined. Inlining saves 1%
    /// of the instructions for a packet that is not cut.
    #[inline(always)]
    pub(crate) fn next_piece(&mut self) -> Option<Piece<'_>> {
        let (marks, link_bytes) = (self.scratch.cut.marks, self.packet.link_bytes);
        let (header, part) = match self.scratch.cut.plan {
            Plan::Whole => {
                self.scratch.cut.plan = Plan::Done;
                let edited = self.scratch.cut.head_end - LINK_BYTES;
                (
                    &self.scratch.head[LINK_BYTES - self.scratch.cut.link_bytes..self.scratch.cut.head_end],
                    edited..self.scratch.cut.shape.total_bytes,
                )
            }
            Plan::FragmentsV4 { bytes } => self.fragment_v4(bytes),
            Plan::FragmentsV6 { bytes, ident } => self.fragment_v6(bytes, ident),
            Plan::Segments { bytes } => self.segment(bytes),
            Plan::Done => return None,
        };
        let range = link_bytes + part.start..link_bytes + part.end;
        Some(Piece { header, range, marks })
    }

    /// Appends a range of the original frame to a vector.
    pub(crate) fn append(&self, range: Range<usize>, to: &mut Vec<u8>) {
        let own = self.packet.frame;
        let split = own.len().clamp(range.start, range.end);
        to.extend_from_slice(&own[range.start.min(own.len())..split.min(own.len())]);
        let at = to.len();
        to.resize(at + range.end - split, 0);
        if split < range.end {
            self.packet.payload.copy_to(split - own.len(), &mut to[at..]);
        }
    }

    /// Returns the number of frames and their total length in bytes.
    #[inline]
    pub(crate) fn size(&self) -> (u64, u64) {
        let whole = self.scratch.cut.link_bytes + self.scratch.cut.shape.total_bytes;
        let per_frame = self.scratch.cut.link_bytes + self.scratch.cut.shape.ip_bytes;
        let (frames, header) = match self.scratch.cut.plan {
            Plan::Whole => (1, 0),
            Plan::FragmentsV4 { bytes } => (self.payload_bytes().div_ceil(bytes), per_frame),
            Plan::FragmentsV6 { bytes, .. } => (self.payload_bytes().div_ceil(bytes), per_frame + FRAGMENT_BYTES),
            Plan::Segments { bytes } => {
                let tcp = self.transport().len();
                ((self.payload_bytes() - tcp).div_ceil(bytes).max(1), per_frame + tcp)
            }
            Plan::Done => return (0, 0),
        };
        (frames as u64, (whole + frames.saturating_sub(1) * header) as u64)
    }

    fn payload_bytes(&self) -> usize {
        self.scratch.cut.shape.total_bytes - self.scratch.cut.shape.ip_bytes
    }

    fn transport(&self) -> &[u8] {
        &self.scratch.head[LINK_BYTES + self.scratch.cut.shape.ip_bytes..self.scratch.cut.head_end]
    }

    /// Returns the next part of the payload, and whether this part is the last.
    fn advance(&mut self, bytes: usize, total: usize) -> (Range<usize>, bool) {
        let part = self.scratch.cut.done_bytes..total.min(self.scratch.cut.done_bytes + bytes);
        self.scratch.cut.done_bytes = part.end;
        let last = part.end == total;
        if last {
            self.scratch.cut.plan = Plan::Done;
        }
        (part, last)
    }

    /// Copies the headers for a fragment. Only the first fragment gets the edited transport header. Returns the end of the copied
    /// headers, and the range of the packet that follows them.
    fn begin_fragment(&mut self, part: &Range<usize>) -> (usize, Range<usize>) {
        let ip_bytes = self.scratch.cut.shape.ip_bytes;
        let head_end = if part.start == 0 { self.scratch.cut.head_end } else { LINK_BYTES + ip_bytes };
        self.scratch.piece[..head_end].copy_from_slice(&self.scratch.head[..head_end]);
        let edited = head_end - LINK_BYTES - ip_bytes;
        (head_end, ip_bytes + part.start + edited..ip_bytes + part.end)
    }

    #[inline(never)]
    fn fragment_v4(&mut self, bytes: usize) -> (&[u8], Range<usize>) {
        let (part, last) = self.advance(bytes, self.payload_bytes());
        let (head_end, range) = self.begin_fragment(&part);
        let ip_bytes = self.scratch.cut.shape.ip_bytes;
        let header = &mut self.scratch.piece[LINK_BYTES..LINK_BYTES + ip_bytes];
        if part.start > 0 {
            blank_uncopied_options(header);
        }
        let mut ip = Ipv4Packet::new_unchecked(header);
        ip.set_total_len(low_u16(ip_bytes + part.len()));
        // The packet may already be a fragment, so the new offset is added to the packet's fragment offset.
        let offset = ip.frag_offset() + low_u16(part.start);
        ip.set_frag_offset(offset);
        let more = ip.more_frags() || !last;
        ip.set_more_frags(more);
        ip.fill_checksum();
        (&self.scratch.piece[LINK_BYTES - self.scratch.cut.link_bytes..head_end], range)
    }

    /// Builds the next IPv6 fragment (RFC 8200 4.5). Packets that this stack fragments have no extension headers.
    #[inline(never)]
    fn fragment_v6(&mut self, bytes: usize, ident: u32) -> (&[u8], Range<usize>) {
        let (part, last) = self.advance(bytes, self.payload_bytes());
        let (head_end, range) = self.begin_fragment(&part);
        let fragment_at = LINK_BYTES + self.scratch.cut.shape.ip_bytes;
        let piece = &mut self.scratch.piece;
        let mut ip = Ipv6Packet::new_unchecked(&mut piece[LINK_BYTES..fragment_at]);
        let next_header = ip.next_header();
        ip.set_next_header(IpProtocol::Ipv6Frag);
        ip.set_payload_len(low_u16(FRAGMENT_BYTES + part.len()));
        piece.copy_within(fragment_at..head_end, fragment_at + FRAGMENT_BYTES);
        let word = (low_u16(part.start) & !7) | u16::from(!last);
        let header = &mut piece[fragment_at..fragment_at + FRAGMENT_BYTES];
        header[0] = next_header.into();
        header[1] = 0;
        header[2..4].copy_from_slice(&word.to_be_bytes());
        header[4..].copy_from_slice(&ident.to_be_bytes());
        (&self.scratch.piece[LINK_BYTES - self.scratch.cut.link_bytes..head_end + FRAGMENT_BYTES], range)
    }

    #[inline(never)]
    fn segment(&mut self, bytes: usize) -> (&[u8], Range<usize>) {
        let tcp_bytes = self.transport().len();
        let (part, last) = self.advance(bytes, self.payload_bytes() - tcp_bytes);
        let Cut { shape, head_end, link_bytes, marks, .. } = self.scratch.cut;
        let at = shape.ip_bytes + tcp_bytes;
        let pseudo_header = self.pseudo_header(tcp_bytes + part.len());
        let Scratch { head, piece, .. } = &mut *self.scratch;
        piece[..head_end].copy_from_slice(&head[..head_end]);
        let (ip, tcp) = piece[LINK_BYTES..head_end].split_at_mut(shape.ip_bytes);
        if shape.is_v4 {
            let mut ip = Ipv4Packet::new_unchecked(ip);
            ip.set_total_len(low_u16(at + part.len()));
            let ident = ip.ident().wrapping_add(low_u16(part.start / bytes));
            ip.set_ident(ident);
            ip.fill_checksum();
        } else {
            Ipv6Packet::new_unchecked(ip).set_payload_len(low_u16(tcp_bytes + part.len()));
        }
        let mut header = TcpPacket::new_unchecked(&mut *tcp);
        let sequence = header.seq_number() + part.start;
        header.set_seq_number(sequence);
        if !last {
            header.set_fin(false);
            header.set_psh(false);
        }
        if part.start > 0 {
            header.set_cwr(false);
        }
        if !marks.checksum_unfilled {
            header.set_checksum(0);
            let sum = self.packet.sum(pseudo_header.bytes(tcp), at + part.start, at + part.end);
            TcpPacket::new_unchecked(tcp).set_checksum(sum.checksum());
        }
        (&self.scratch.piece[LINK_BYTES - link_bytes..head_end], at + part.start..at + part.end)
    }

    fn take_transport_header(&mut self, bytes: usize) -> Result<(), LinkDrop> {
        let end = self.scratch.cut.shape.ip_bytes + bytes;
        if end > self.scratch.cut.shape.total_bytes {
            return Err(LinkDrop::Marks);
        }
        let own = self.packet.header().get(self.scratch.cut.shape.ip_bytes..end).ok_or(LinkDrop::Marks)?;
        self.scratch.cut.head_end = LINK_BYTES + end;
        self.scratch
            .head
            .get_mut(LINK_BYTES + self.scratch.cut.shape.ip_bytes..self.scratch.cut.head_end)
            .ok_or(LinkDrop::Marks)?
            .copy_from_slice(own);
        Ok(())
    }

    /// Returns the length of the transport header, in bytes, and the offset of the checksum in it.
    fn checksum_place(&self) -> Option<(usize, usize)> {
        match self.scratch.cut.shape.protocol {
            TCP => Some((TCP_HEADER_BYTES, 16)),
            UDP => Some((udp::HEADER_BYTES, udp::field::CHECKSUM.start)),
            _ => None,
        }
    }

    fn pseudo_header(&self, bytes: usize) -> Sum {
        let addresses = if self.scratch.cut.shape.is_v4 { IPV4_ADDRESSES } else { IPV6_ADDRESSES };
        let ip = &self.scratch.head[LINK_BYTES..];
        Sum::default().bytes(&ip[addresses]).word(low_u16(bytes)).word(u16::from(self.scratch.cut.shape.protocol))
    }
}

/// Converts a length to 16 bits. The length was checked against the packet before, so it fits.
fn low_u16(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}
