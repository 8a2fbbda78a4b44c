//! Records between an application and its guest. Each record is one frame of their link. The tag of the frame contains the
//! record's kind and socket. The bytes of the frame contain the other fields, in little-endian order.
//!
//! The receiver copies a record out of the link before it parses it, so later changes by the sender have no effect. If a record
//! is too short, too long or of an unknown kind, the parser returns `None`.

mod direct;
mod fields;

use crate::extent::Extents;
use crate::options::{ConnectionInfo, DatagramChange, DatagramOptions, Delivery, SendFlags, SendTime, SocketOptions};
pub use direct::DirectEvent;
pub use fields::Arrival;
use fields::DELIVERY_BYTES;
use fields::{
    Reader, code, failure_code, put_address, put_arrivals, put_change, put_datagram_options, put_delivery, put_extents,
    put_flags, put_info, put_options, put_send_times, put_time,
};
use smallvec::SmallVec;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::SystemTime;

/// The number of a socket. The application numbers the sockets that it makes. The guest numbers the connections that peers open.
pub type Number = u32;

/// The numbers of a few sockets. A socket of both IP versions has two.
pub type Numbers = SmallVec<[Number; 2]>;

/// The first number that a guest gives to a socket. The application's numbers are smaller.
pub const GUEST_NUMBERS: Number = 1 << 31;

/// The length of a [`ShareKey`], in bytes.
pub const SHARE_KEY_BYTES: usize = 16;

/// A secret that only the processes of one program know. A process that has it takes over the sockets that were shared with it.
pub type ShareKey = [u8; SHARE_KEY_BYTES];

/// A record from an application to its guest.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the line of each record covers its fields")]
pub enum Command {
    /// Make a listener. The guest answers `Made` or `Refused`, and later sends `Incoming` for each connection.
    Listen { local: SocketAddr, backlog: u32, options: SocketOptions },
    /// Make a connection. The guest answers `Made` or `Refused`, and later sends `Status` for each change.
    Connect { local: SocketAddr, remote: SocketAddr, options: SocketOptions },
    /// Make a datagram socket. Several sockets can have one address if all of them are `shared`. The guest answers `Made` or
    /// `Refused`.
    Bind { local: SocketAddr, shared: bool },
    /// Reserve an address for a stream socket that neither listens nor connects yet. Several sockets can reserve one address if all
    /// of them are `shared`. The guest answers `Made` or `Refused`.
    Reserve { local: SocketAddr, shared: bool },
    /// Connect a datagram socket to one remote address. The guest answers `Connected`, or `Group` with a failure.
    ConnectDatagrams { remote: SocketAddr },
    /// The application accepted `count` connections of a listener. The guest may announce `count` further connections.
    Accepted { count: u32 },
    /// Send bytes that lie in the application's arena.
    Send { extents: Extents, flags: SendFlags },
    /// The application has copied `bytes` received bytes out of the guest's arena.
    Consumed { bytes: u32 },
    /// The application will send no more bytes on this connection.
    Shutdown,
    /// Change the options of a connection.
    Set { options: SocketOptions },
    /// Close the socket. The guest answers `Gone` when it no longer needs any block of the socket.
    Close,
    /// Close the socket by a reset. The guest answers `Gone`, as for `Close`.
    Abort,
    /// Send a datagram.
    SendTo { to: SocketAddr, with: DatagramOptions, bytes: Vec<u8> },
    /// Change the multicast groups or an option of a datagram socket. The guest answers `Group`.
    Group { change: DatagramChange },
    /// Ask for the statistics and options of a connection. The guest answers `Info`.
    Info,
    /// Make a listener pooled: the guest no longer announces its connections, so that several applications can accept them. The guest
    /// answers `NoneWaiting`.
    Pool,
    /// Ask for a connection of a pooled listener. The guest answers `Incoming` or `NoneWaiting`.
    Accept,
    /// Expect `count` more connections of a pooled listener: the guest hands over its next connections by `Incoming`, without offers.
    Expect { count: u32 },
    /// Give back a connection that the application has not accepted to the pooled listener `listener`. The guest answers `Gone`.
    Return { listener: Number },
    /// Share sockets with the application that later inherits with this key: those with these numbers, or all if there are none. The
    /// guest answers `Shared`.
    Share { key: ShareKey, numbers: Vec<Number> },
    /// Become a holder of the sockets that were shared with this key. Each has the number that it has in the application that shared
    /// it, or the second number of its pair in `renumbered`. Without pairs, the application must have no sockets. The guest answers
    /// `Shared`.
    Inherit { key: ShareKey, renumbered: Vec<(Number, Number)> },
    /// Take over a connection or a datagram socket that another application has used last. The guest answers `Yours`, or `Moved` if it has
    /// no memory. Or confirm that the guest has passed the socket on, or that the program has accepted a connection of a pooled listener.
    Take,
    /// Ask for a slot of memory that this application shares with the one at the other end of the connection. The guest answers `Direct`
    /// if both applications have asked and the control program permits it. Otherwise the connection stays with TCP.
    AskDirect,
    /// The application has passed its memory for a couple (`passing.rs`).
    CoupleMemory { couple: u64 },
    /// The application no longer uses the slot of this connection.
    LeaveDirect,
    /// Keep bytes that the application has received by memory and not read, for the application that uses the connection next. They follow
    /// the next `after` bytes that come by TCP, and earlier bytes that the guest keeps.
    KeepRest { after: u64, bytes: Vec<u8> },
    /// The application has read `bytes` of these bytes.
    RestRead { bytes: u32 },
}

/// A record from a guest to an application.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the line of each record covers its fields")]
pub enum Event {
    /// The socket was made.
    Made { local: SocketAddr },
    /// The socket was refused.
    Refused { why: ErrorKind },
    /// A peer opened a connection to the listener `listener`. The record's own number is that of the new connection.
    Incoming { listener: Number, local: SocketAddr, remote: SocketAddr },
    /// A connection has changed.
    Status(Status),
    /// A datagram was received. Its time is 0 (`None`) unless the application asked for times. `delivery` is `None` if the record has no
    /// room for it.
    Datagram { from: SocketAddr, bytes: Vec<u8>, at: Option<SystemTime>, delivery: Option<Delivery> },
    /// The guest no longer needs any block of a closed socket.
    Gone,
    /// The result of the oldest unanswered command `Group`.
    Group { failure: Option<ErrorKind> },
    /// The statistics and options of a connection: the answer to a command `Info`.
    Info(Box<ConnectionInfo>),
    /// When bytes or datagrams were sent and acknowledged.
    SendTimes { times: Vec<SendTime> },
    /// The guest did not send a datagram, because it is longer than the MTU of its path.
    TooLong,
    /// A datagram socket is connected, and now has this local address.
    Connected { local: SocketAddr },
    /// The network reported an error about a datagram of a connected socket.
    Failed { why: ErrorKind },
    /// The answer to `Share` and `Inherit`.
    Shared { done: bool },
    /// Another application has taken over the connection or the datagram socket. Its bytes are no longer in the arenas.
    Moved,
    /// The connection or datagram socket is used by this application from now on. Its whole state follows as changes.
    Yours,
    /// A pooled listener may have connections that wait.
    Offer,
    /// No connection of a pooled listener waits, or the listener is now pooled.
    NoneWaiting,
    /// The guest takes back a connection of a pooled listener that the application has not accepted. The application answers `Return`,
    /// unless it has confirmed the connection before.
    Withdrawn,
    /// An event of direct connections.
    Direct(DirectEvent),
}

/// The state of a connection, and its changes since the last status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// True if the connection is open.
    pub open: bool,
    /// True if the peer has closed its direction, so that no bytes follow the received ones.
    pub ended: bool,
    /// True if the connection is closed in both directions.
    pub closed: bool,
    /// The error with which the connection failed, if it failed.
    pub failure: Option<ErrorKind>,
    /// Number of sent bytes that were acknowledged since the last status. Their blocks become free.
    pub released: u32,
    /// Maximum number of bytes that the connection can have in flight.
    pub send_buffer: u32,
    /// Extents of the bytes that were received since the last status, in the guest's arena.
    pub received: Extents,
    /// When these bytes arrived, if the application asked for times; otherwise empty.
    pub arrivals: Vec<Arrival>,
}

/// Size of an address with its port, and of a time, in bytes.
const ADDRESS_BYTES: usize = 19;
const TIME_BYTES: usize = 8;

/// Longest datagram that fits into a frame, in bytes.
pub const DATAGRAM_BYTES_MAX: usize = siga_ring::limits::BUFFER_BYTES_MAX - ADDRESS_BYTES - TIME_BYTES;

/// Longest datagram that fits into a frame together with its [`Delivery`], in bytes.
pub const DELIVERED_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - DELIVERY_BYTES;

const KIND_SHIFT: u32 = 56;

fn tag(kind: u8, socket: Number) -> u64 {
    u64::from(kind) << KIND_SHIFT | u64::from(socket)
}

/// Splits a tag into the record's kind and socket. Returns `None` if the unused bits between them are not 0.
fn split(tag: u64) -> Option<(u8, Number)> {
    let kind = u8::try_from(tag >> KIND_SHIFT).ok()?;
    Some((kind, Number::try_from(tag & ((1 << KIND_SHIFT) - 1)).ok()?))
}

impl Command {
    /// Replaces the contents of `into` with the record. Returns the tag.
    pub fn write(&self, socket: Number, into: &mut Vec<u8>) -> u64 {
        into.clear();
        match self {
            Self::Listen { local, backlog, options } => {
                put_address(into, *local);
                into.extend(backlog.to_le_bytes());
                put_options(into, options);
            }
            Self::Connect { local, remote, options } => {
                put_address(into, *local);
                put_address(into, *remote);
                put_options(into, options);
            }
            Self::Bind { local: address, .. } | Self::ConnectDatagrams { remote: address } => {
                put_address(into, *address);
            }
            Self::Reserve { local, shared } => {
                put_address(into, *local);
                into.push(put_flags(&[*shared]));
            }
            Self::Send { extents, flags } => {
                if *flags != SendFlags::default() {
                    into.push(put_flags(&[flags.more, flags.end_of_record]));
                }
                put_extents(into, extents);
            }
            Self::Accepted { count: number }
            | Self::Expect { count: number }
            | Self::Consumed { bytes: number }
            | Self::RestRead { bytes: number }
            | Self::Return { listener: number } => into.extend(number.to_le_bytes()),
            Self::Set { options } => put_options(into, options),
            Self::SendTo { to, with, bytes } => {
                put_address(into, *to);
                if *with != DatagramOptions::default() {
                    put_datagram_options(into, with);
                }
                into.extend(bytes);
            }
            Self::Group { change } => put_change(into, *change),
            Self::Share { key, numbers } => {
                into.extend(key);
                numbers.iter().for_each(|number| into.extend(number.to_le_bytes()));
            }
            Self::Inherit { key, renumbered } => {
                into.extend(key);
                let numbers = renumbered.iter().flat_map(|(there, here)| [there, here]);
                numbers.for_each(|number| into.extend(number.to_le_bytes()));
            }
            Self::CoupleMemory { couple } => into.extend(couple.to_le_bytes()),
            Self::KeepRest { after, bytes } => {
                into.extend(after.to_le_bytes());
                into.extend(bytes);
            }
            Self::Shutdown
            | Self::Close
            | Self::Abort
            | Self::Info
            | Self::Pool
            | Self::Accept
            | Self::Take
            | Self::AskDirect
            | Self::LeaveDirect => {}
        }
        tag(self.kind(), socket)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Listen { .. } => 0,
            Self::Connect { .. } => 1,
            Self::Bind { shared: false, .. } => 2,
            Self::Accepted { .. } => 3,
            Self::Send { flags, .. } if *flags == SendFlags::default() => 4,
            Self::Consumed { .. } => 5,
            Self::Shutdown => 6,
            Self::Set { .. } => 7,
            Self::Close => 8,
            Self::Abort => 9,
            Self::SendTo { with, .. } if *with == DatagramOptions::default() => 10,
            Self::Group { .. } => 11,
            Self::Send { .. } => 12,
            Self::Info => 13,
            Self::Reserve { .. } => 14,
            Self::ConnectDatagrams { .. } => 15,
            Self::Pool => 16,
            Self::Accept => 17,
            Self::Return { .. } => 18,
            Self::Share { .. } => 19,
            Self::Inherit { .. } => 20,
            Self::Take => 21,
            Self::Bind { shared: true, .. } => 22,
            Self::SendTo { .. } => 23,
            Self::Expect { .. } => 24,
            Self::AskDirect => 25,
            Self::CoupleMemory { .. } => 26,
            Self::LeaveDirect => 27,
            Self::KeepRest { .. } => 28,
            Self::RestRead { .. } => 29,
        }
    }

    /// Parses the tag and the bytes of a frame.
    pub fn parse(tag: u64, bytes: &[u8]) -> Option<(Number, Self)> {
        let (kind, socket) = split(tag)?;
        let mut from = Reader(bytes);
        let command = match kind {
            0 => Self::Listen { local: from.address()?, backlog: from.u32()?, options: from.options()? },
            1 => Self::Connect { local: from.address()?, remote: from.address()?, options: from.options()? },
            2 | 22 => Self::Bind { local: from.address()?, shared: kind == 22 },
            3 => Self::Accepted { count: from.u32()? },
            4 => Self::Send { flags: SendFlags::default(), extents: from.extents()? },
            5 => Self::Consumed { bytes: from.u32()? },
            6 => Self::Shutdown,
            7 => Self::Set { options: from.options()? },
            8 => Self::Close,
            9 => Self::Abort,
            10 => Self::SendTo { to: from.address()?, with: DatagramOptions::default(), bytes: from.rest() },
            11 => Self::Group { change: from.change()? },
            12 => Self::Send { flags: from.send_flags()?, extents: from.extents()? },
            13 => Self::Info,
            14 => Self::Reserve { local: from.address()?, shared: from.flag()? },
            15 => Self::ConnectDatagrams { remote: from.address()? },
            16 => Self::Pool,
            17 => Self::Accept,
            18 => Self::Return { listener: from.u32()? },
            19 => Self::Share { key: from.take()?, numbers: from.numbers()? },
            20 => Self::Inherit { key: from.take()?, renumbered: from.pairs()? },
            21 => Self::Take,
            24 => Self::Expect { count: from.u32()? },
            25 => Self::AskDirect,
            26 => Self::CoupleMemory { couple: from.u64()? },
            27 => Self::LeaveDirect,
            28 => Self::KeepRest { after: from.u64()?, bytes: from.rest() },
            29 => Self::RestRead { bytes: from.u32()? },
            23 => Self::SendTo { to: from.address()?, with: from.datagram_options()?, bytes: from.rest() },
            _ => return None,
        };
        from.0.is_empty().then_some((socket, command))
    }
}

impl Event {
    /// Replaces the contents of `into` with the record. Returns the tag.
    pub fn write(&self, socket: Number, into: &mut Vec<u8>) -> u64 {
        into.clear();
        let kind = match self {
            Self::Made { local } => {
                put_address(into, *local);
                0
            }
            Self::Refused { why } => {
                into.push(code(*why));
                1
            }
            Self::Incoming { listener, local, remote } => {
                into.extend(listener.to_le_bytes());
                put_address(into, *local);
                put_address(into, *remote);
                2
            }
            Self::Status(status) => {
                let flags = [status.open, status.ended, status.closed];
                into.push(put_flags(&flags));
                into.push(failure_code(status.failure));
                into.extend(status.released.to_le_bytes());
                into.extend(status.send_buffer.to_le_bytes());
                if !status.arrivals.is_empty() {
                    put_arrivals(into, &status.arrivals);
                }
                put_extents(into, &status.received);
                if status.arrivals.is_empty() { 3 } else { 8 }
            }
            Self::Datagram { from, bytes, at, delivery } => {
                put_address(into, *from);
                put_time(into, *at);
                delivery.iter().for_each(|delivery| put_delivery(into, delivery));
                into.extend(bytes);
                if delivery.is_none() { 4 } else { 18 }
            }
            Self::Gone => 5,
            Self::Group { failure } => {
                into.push(failure_code(*failure));
                6
            }
            Self::Info(info) => {
                put_info(into, info);
                7
            }
            Self::SendTimes { times } => {
                put_send_times(into, times);
                9
            }
            Self::TooLong => 10,
            Self::Connected { local } => {
                put_address(into, *local);
                11
            }
            Self::Failed { why } => {
                into.push(code(*why));
                12
            }
            Self::Shared { done } => {
                into.push(put_flags(&[*done]));
                13
            }
            Self::Moved => 14,
            Self::Yours => 15,
            Self::Offer => 16,
            Self::NoneWaiting => 17,
            Self::Withdrawn => 19,
            Self::Direct(event) => event.write(into),
        };
        tag(kind, socket)
    }

    /// Parses the tag and the bytes of a frame.
    pub fn parse(tag: u64, bytes: &[u8]) -> Option<(Number, Self)> {
        let (kind, socket) = split(tag)?;
        let mut from = Reader(bytes);
        let event = match kind {
            0 => Self::Made { local: from.address()? },
            1 => Self::Refused { why: from.kind()? },
            2 => Self::Incoming { listener: from.u32()?, local: from.address()?, remote: from.address()? },
            3 | 8 => {
                let [open, ended, closed] = from.flags()?;
                let failure = from.failure()?;
                let (released, send_buffer) = (from.u32()?, from.u32()?);
                let arrivals = if kind == 8 { from.arrivals()? } else { Vec::new() };
                let received = from.extents()?;
                Self::Status(Status { open, ended, closed, failure, released, send_buffer, received, arrivals })
            }
            4 | 18 => {
                let (address, at) = (from.address()?, from.time()?);
                let delivery = if kind == 18 { Some(from.delivery()?) } else { None };
                Self::Datagram { from: address, at, delivery, bytes: from.rest() }
            }
            5 => Self::Gone,
            6 => Self::Group { failure: from.failure()? },
            7 => Self::Info(from.info()?),
            9 => Self::SendTimes { times: from.send_times()? },
            10 => Self::TooLong,
            11 => Self::Connected { local: from.address()? },
            12 => Self::Failed { why: from.kind()? },
            13 => Self::Shared { done: from.flag()? },
            14 => Self::Moved,
            15 => Self::Yours,
            16 => Self::Offer,
            17 => Self::NoneWaiting,
            19 => Self::Withdrawn,
            20..=24 => Self::Direct(DirectEvent::parse(kind, &mut from)?),
            _ => return None,
        };
        from.0.is_empty().then_some((socket, event))
    }
}

#[cfg(test)]
mod tests;
