//! From one packet to what goes out: the packet whole with its header edited, as fragments, or as TCP segments.
//!
//! A piece is a header of its own and a part of the original frame, to be copied by whoever moves frames. Nothing here
//! decides: `forward.rs` and `output.rs` do.

use crate::checksum::Sum;
use crate::device::LINK_BYTES;
use crate::drops::LinkDrop;
use crate::frame::{Marks, Packet, Payload};
use crate::ipv4::{Ipv4Header, blank_uncopied_options};
use crate::ipv6::{FRAGMENT_BYTES, Ipv6Header};
use crate::limits::HEADER_BYTES_MAX;
use smoltcp::wire::{IPV6_HEADER_LEN, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket};
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

/// One frame to send: a header, then a part of the original frame.
#[derive(Clone)]
pub struct Piece {
    header: [u8; HEADER_BYTES_MAX],
    header_range: Range<usize>,
    /// The bytes of the original frame that follow the header.
    pub range: Range<usize>,
    /// What the receiver is to know.
    pub marks: Marks,
}

impl Piece {
    /// The first bytes of the frame.
    pub fn header(&self) -> &[u8] {
        &self.header[self.header_range.clone()]
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        self.header_range.len() + self.range.len()
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} then {:?}, {:?}", self.header(), self.range, self.marks)
    }
}

/// How a packet is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Not at all.
    Whole,
    /// Into IPv4 fragments with this much payload, a multiple of 8.
    FragmentsV4 { bytes: usize },
    /// Into IPv6 fragments with this much payload, a multiple of 8.
    FragmentsV6 { bytes: usize, ident: u32 },
    /// Into TCP segments with this much payload.
    Segments { bytes: usize },
    /// All is out.
    Done,
}

/// What of the packet's IP header matters for cutting it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    /// Bytes of the IP header.
    pub(crate) ip_bytes: usize,
    /// Bytes of the packet.
    pub(crate) total_bytes: usize,
}

impl Shape {
    pub(crate) fn v4(header: &Ipv4Header) -> Self {
        Self {
            from: header.from.into(),
            to: header.to.into(),
            protocol: header.protocol,
            ip_bytes: header.header_bytes,
            total_bytes: header.total_bytes,
        }
    }

    /// Extension headers count as payload.
    pub(crate) fn v6(header: &Ipv6Header) -> Self {
        Self {
            from: header.from.into(),
            to: header.to.into(),
            protocol: header.next_header,
            ip_bytes: IPV6_HEADER_LEN,
            total_bytes: header.total_bytes,
        }
    }
}

/// The pieces of a packet, in order.
#[derive(Debug)]
pub(crate) struct Pieces<'a, P: ?Sized> {
    packet: Packet<'a, P>,
    shape: Shape,
    /// Room for the link's header, the IP header, and what was edited behind it.
    head: [u8; HEADER_BYTES_MAX],
    head_end: usize,
    /// Bytes of the link's header in use.
    link_bytes: usize,
    marks: Marks,
    plan: Plan,
    /// Bytes of payload that are out.
    done_bytes: usize,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;

impl<'a, P: Payload + ?Sized> Pieces<'a, P> {
    /// The packet with its header copied for editing. `shape` was checked against the packet's own bytes.
    #[inline]
    pub(crate) fn new(packet: Packet<'a, P>, shape: Shape) -> Self {
        let mut head = [0; HEADER_BYTES_MAX];
        let head_end = LINK_BYTES + shape.ip_bytes;
        head[LINK_BYTES..head_end].copy_from_slice(&packet.header()[..shape.ip_bytes]);
        let marks = Marks::default();
        Self { packet, shape, head, head_end, link_bytes: 0, marks, plan: Plan::Whole, done_bytes: 0 }
    }

    /// The IP header, to be edited.
    pub(crate) fn ip_mut(&mut self) -> &mut [u8] {
        &mut self.head[LINK_BYTES..LINK_BYTES + self.shape.ip_bytes]
    }

    /// Room for the link's header; `bytes` of it will be used.
    pub(crate) fn link_mut(&mut self, bytes: usize) -> &mut [u8] {
        self.link_bytes = bytes;
        &mut self.head[..LINK_BYTES]
    }

    pub(crate) fn set_plan(&mut self, plan: Plan) {
        self.plan = plan;
    }

    pub(crate) fn set_marks(&mut self, marks: Marks) {
        self.marks = marks;
    }

    pub(crate) fn clear_unfilled(&mut self) {
        self.marks.checksum_unfilled = false;
    }

    /// Takes the transport header into what is edited, and fills its checksum in.
    pub(crate) fn fill_checksum(&mut self) -> Result<(), LinkDrop> {
        let (bytes, at) = self.checksum_place().ok_or(LinkDrop::Marks)?;
        self.take_transport_header(bytes)?;
        let field = LINK_BYTES + self.shape.ip_bytes + at;
        let unfilled = u16::from_be_bytes([self.head[field], self.head[field + 1]]);
        let sum =
            self.packet.sum(self.pseudo_header(self.payload_bytes()), self.shape.ip_bytes, self.shape.total_bytes);
        let checksum = match sum.word(!unfilled).checksum() {
            0 if self.shape.protocol == UDP => u16::MAX, // RFC 768: 0 says that there is none
            checksum => checksum,
        };
        self.head[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }

    /// True if the transport checksum of the whole packet is right.
    pub(crate) fn is_intact(&self) -> bool {
        let sum = self.pseudo_header(self.payload_bytes());
        self.packet.sum(sum, self.shape.ip_bytes, self.shape.total_bytes).is_intact()
    }

    /// Takes the TCP header into what is edited, so that the packet can be cut into segments. Says how much payload there is.
    pub(crate) fn prepare_segments(&mut self) -> Result<usize, LinkDrop> {
        if self.shape.protocol != TCP {
            return Err(LinkDrop::Marks);
        }
        self.take_transport_header(TCP_HEADER_BYTES)?;
        let header_bytes = usize::from(TcpPacket::new_unchecked(self.transport()).header_len());
        if header_bytes < TCP_HEADER_BYTES || header_bytes > self.payload_bytes() {
            return Err(LinkDrop::Marks);
        }
        self.take_transport_header(header_bytes)?;
        // Segments that end a connection or carry urgent data are not made large by anyone.
        let tcp = TcpPacket::new_unchecked(self.transport());
        if tcp.syn() || tcp.rst() || tcp.urg() {
            return Err(LinkDrop::Marks);
        }
        Ok(self.payload_bytes() - header_bytes)
    }

    /// Bytes of IP and TCP headers, once segments were prepared.
    pub(crate) fn segment_header_bytes(&self) -> usize {
        self.head_end - LINK_BYTES
    }

    /// The next piece.
    pub(crate) fn next_piece(&mut self) -> Option<Piece> {
        match self.plan {
            Plan::Whole => {
                self.plan = Plan::Done;
                Some(self.piece(self.head_end, self.head_end - LINK_BYTES, self.shape.total_bytes))
            }
            Plan::FragmentsV4 { bytes } => Some(self.fragment_v4(bytes)),
            Plan::FragmentsV6 { bytes, ident } => Some(self.fragment_v6(bytes, ident)),
            Plan::Segments { bytes } => Some(self.segment(bytes)),
            Plan::Done => None,
        }
    }

    /// Adds bytes of the original frame.
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

    /// How many frames are to come, and their bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        let whole = self.link_bytes + self.shape.total_bytes;
        let per_frame = self.link_bytes + self.shape.ip_bytes;
        let (frames, header) = match self.plan {
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
        self.shape.total_bytes - self.shape.ip_bytes
    }

    fn transport(&self) -> &[u8] {
        &self.head[LINK_BYTES + self.shape.ip_bytes..self.head_end]
    }

    /// The edited head up to `head_end`, then the packet's bytes from `at` up to `end`.
    fn piece(&self, head_end: usize, at: usize, end: usize) -> Piece {
        Piece {
            header: self.head,
            header_range: LINK_BYTES - self.link_bytes..head_end,
            range: self.packet.link_bytes + at..self.packet.link_bytes + end,
            marks: self.marks,
        }
    }

    /// The part of the payload that comes next, and whether it is the last.
    fn advance(&mut self, bytes: usize, total: usize) -> (Range<usize>, bool) {
        let part = self.done_bytes..total.min(self.done_bytes + bytes);
        self.done_bytes = part.end;
        let last = part.end == total;
        if last {
            self.plan = Plan::Done;
        }
        (part, last)
    }

    /// A fragment's piece: what was edited behind the IP header goes with the first alone.
    fn part(&self, part: &Range<usize>) -> Piece {
        let head_end = if part.start == 0 { self.head_end } else { LINK_BYTES + self.shape.ip_bytes };
        let edited = head_end - LINK_BYTES - self.shape.ip_bytes;
        self.piece(head_end, self.shape.ip_bytes + part.start + edited, self.shape.ip_bytes + part.end)
    }

    fn fragment_v4(&mut self, bytes: usize) -> Piece {
        let (part, last) = self.advance(bytes, self.payload_bytes());
        let mut piece = self.part(&part);
        let header = &mut piece.header[LINK_BYTES..LINK_BYTES + self.shape.ip_bytes];
        if part.start > 0 {
            blank_uncopied_options(header);
        }
        let mut ip = Ipv4Packet::new_unchecked(header);
        ip.set_total_len(low_u16(self.shape.ip_bytes + part.len()));
        // The packet may be a fragment already.
        let offset = ip.frag_offset() + low_u16(part.start);
        ip.set_frag_offset(offset);
        let more = ip.more_frags() || !last;
        ip.set_more_frags(more);
        ip.fill_checksum();
        piece
    }

    /// RFC 8200 4.5. Packets of our own have no extension headers.
    fn fragment_v6(&mut self, bytes: usize, ident: u32) -> Piece {
        let (part, last) = self.advance(bytes, self.payload_bytes());
        let mut piece = self.part(&part);
        let fragment_at = LINK_BYTES + self.shape.ip_bytes;
        let mut ip = Ipv6Packet::new_unchecked(&mut piece.header[LINK_BYTES..fragment_at]);
        let next_header = ip.next_header();
        ip.set_next_header(IpProtocol::Ipv6Frag);
        ip.set_payload_len(low_u16(FRAGMENT_BYTES + part.len()));
        let edited = fragment_at..piece.header_range.end;
        let edited_bytes = edited.len();
        piece.header.copy_within(edited, fragment_at + FRAGMENT_BYTES);
        piece.header_range.end = fragment_at + FRAGMENT_BYTES + edited_bytes;
        let word = (low_u16(part.start) & !7) | u16::from(!last);
        let header = &mut piece.header[fragment_at..fragment_at + FRAGMENT_BYTES];
        header[0] = next_header.into();
        header[1] = 0;
        header[2..4].copy_from_slice(&word.to_be_bytes());
        header[4..].copy_from_slice(&ident.to_be_bytes());
        piece
    }

    fn segment(&mut self, bytes: usize) -> Piece {
        let tcp_bytes = self.transport().len();
        let total = self.payload_bytes() - tcp_bytes;
        let (part, last) = self.advance(bytes, total);
        let at = self.shape.ip_bytes + tcp_bytes;
        let mut piece = self.piece(self.head_end, at + part.start, at + part.end);
        let (ip, tcp) = piece.header[LINK_BYTES..self.head_end].split_at_mut(self.shape.ip_bytes);
        match self.shape.from {
            IpAddr::V4(_) => {
                let mut ip = Ipv4Packet::new_unchecked(ip);
                ip.set_total_len(low_u16(at + part.len()));
                let ident = ip.ident().wrapping_add(low_u16(part.start / bytes));
                ip.set_ident(ident);
                ip.fill_checksum();
            }
            IpAddr::V6(_) => Ipv6Packet::new_unchecked(ip).set_payload_len(low_u16(tcp_bytes + part.len())),
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
        if !self.marks.checksum_unfilled {
            header.set_checksum(0);
            let sum = self.pseudo_header(tcp_bytes + part.len()).bytes(tcp);
            let sum = self.packet.sum(sum, at + part.start, at + part.end);
            TcpPacket::new_unchecked(tcp).set_checksum(sum.checksum());
        }
        piece
    }

    fn take_transport_header(&mut self, bytes: usize) -> Result<(), LinkDrop> {
        let end = self.shape.ip_bytes + bytes;
        if end > self.shape.total_bytes {
            return Err(LinkDrop::Marks);
        }
        let own = self.packet.header().get(self.shape.ip_bytes..end).ok_or(LinkDrop::Marks)?;
        self.head_end = LINK_BYTES + end;
        self.head.get_mut(LINK_BYTES + self.shape.ip_bytes..self.head_end).ok_or(LinkDrop::Marks)?.copy_from_slice(own);
        Ok(())
    }

    /// Bytes of the transport header up to its checksum's end, and where in it that stands.
    fn checksum_place(&self) -> Option<(usize, usize)> {
        match self.shape.protocol {
            TCP => Some((TCP_HEADER_BYTES, 16)),
            UDP => Some((UDP_HEADER_BYTES, 6)),
            _ => None,
        }
    }

    fn pseudo_header(&self, bytes: usize) -> Sum {
        Sum::default().pseudo_header(self.shape.from, self.shape.to, self.shape.protocol, bytes)
    }
}

/// A length that was checked to be that of a packet.
fn low_u16(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}
