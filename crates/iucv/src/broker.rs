//! The protocol between a program under `siga exec` and its broker.
//!
//! The broker is a process that attaches other processes to a guest. All processes of the program inherit one socket, the
//! *channel*. A process sends one end of a new socket pair over the channel. From then on, process and broker exchange questions and
//! answers over this pair, one packet each. So the answers for one process cannot reach another process.
//!
//! Neither side trusts the other: a packet that is not a valid message ends the conversation.

use crate::client::ApplicationEnd;
pub use crate::packets::{DESCRIPTOR_NUMBER_MIN, out_of_the_way};
use crate::packets::{PACKET_BYTES_MAX, receive, send};
use crate::passing::Passing;
use crate::shape;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::wait::policy::Mode;
use siga_ring::{Link, MapError, NotifyFd, OwnMemory, PeerMemory, WakeFd};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The environment variable with the number of the inherited channel.
pub const CHANNEL_VARIABLE: &str = "SIGA_EXEC_CHANNEL";
/// The environment variable with the number of the inherited descriptor of the preload library.
pub const LIBRARY_VARIABLE: &str = "SIGA_EXEC_LIBRARY";

/// The environment variable that says whose loopback addresses the program sees: [`LOOPBACK_OF_GUEST`] or the host's.
pub const LOOPBACK_VARIABLE: &str = "SIGA_EXEC_LOOPBACK";
/// The value of [`LOOPBACK_VARIABLE`] with which loopback addresses are the guest's.
pub const LOOPBACK_OF_GUEST: &str = "guest";

/// Largest number of addresses of a name. All of them fit into one packet.
pub const ADDRESSES_MAX: usize = 64;
/// Longest name of an interface, in bytes (`IFNAMSIZ` of Linux, without the last byte).
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// Longest name, in bytes. Names in the DNS are not longer (RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest description of a socket, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1_024;
/// How long a process waits for an answer of the broker.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// A message of a process to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Attach this process to the guest. The broker answers [`Answer::Terms`].
    Attach,
    /// Pass the memory files of this process's ring and arena to the guest. The broker answers [`Answer::Memory`].
    Memory,
    /// Return the addresses of a host. The broker answers [`Answer::Addresses`].
    Resolve(String),
    /// Return the network interfaces of the guest. The broker answers [`Answer::Interfaces`].
    Interfaces,
    /// Keep the description of a socket for the process that receives it. The socket's placeholder has this inode. The broker answers
    /// [`Answer::Described`] without a description.
    Pass(u64, String),
    /// Return and forget the description of the socket whose placeholder has this inode. The broker answers [`Answer::Described`].
    Receive(u64),
}

/// A message of the broker to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// What the process needs to make its memory. Descriptors: the notify descriptor, the wake descriptor, a read end of the notify
    /// descriptor's pipe, which protects the process from SIGPIPE, and the socket over which guest and application pass descriptors.
    Terms(Terms),
    /// Descriptors: the memory files of the guest's ring and arena.
    Memory,
    /// The addresses of a host; none if the name is unknown.
    Addresses(Vec<IpAddr>),
    /// The network interfaces of the guest.
    Interfaces(Vec<Interface>),
    /// The description of a socket; `None` if no process has passed it.
    Described(Option<String>),
    /// The broker could not do what the process asked for. The text says why.
    Refused(String),
}

/// A network interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name, of at most [`INTERFACE_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// The length of the largest IP packet, in bytes.
    pub mtu: u16,
    /// The addresses, each with the length of its prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// What an application and its guest agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Size of each of the two arenas, in bytes.
    pub arena_bytes: u64,
    /// The guest's waiting policy.
    pub waiting: Mode,
    /// Whether a sleeping application moves to the CPU of the thread that wakes it.
    pub colocate: bool,
}

/// The waiting policies. A packet contains an index into this array.
const MODES: [Mode; 3] = [Mode::Block, Mode::Adaptive, Mode::Poll];

impl Question {
    fn write(&self) -> Vec<u8> {
        match self {
            Self::Attach => vec![0],
            Self::Memory => vec![1],
            Self::Resolve(name) => [&[2], name.as_bytes()].concat(),
            Self::Interfaces => vec![3],
            Self::Pass(inode, text) => [&[4][..], &inode.to_le_bytes(), text.as_bytes()].concat(),
            Self::Receive(inode) => [&[5][..], &inode.to_le_bytes()].concat(),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (0, []) => Some(Self::Attach),
            (1, []) => Some(Self::Memory),
            (2, name) if name.len() <= NAME_BYTES_MAX => {
                Some(Self::Resolve(std::str::from_utf8(name).ok()?.to_owned()))
            }
            (3, []) => Some(Self::Interfaces),
            (4, rest) => {
                let (inode, text) = rest.split_first_chunk()?;
                let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= DESCRIPTION_BYTES_MAX)?;
                Some(Self::Pass(u64::from_le_bytes(*inode), text.to_owned()))
            }
            (5, inode) => Some(Self::Receive(u64::from_le_bytes(inode.try_into().ok()?))),
            _ => None,
        }
    }
}

impl Answer {
    fn write(&self) -> Vec<u8> {
        match self {
            Self::Terms(terms) => {
                let mode = MODES.iter().position(|mode| *mode == terms.waiting).unwrap_or(0);
                let mut bytes = vec![0, u8::try_from(mode).unwrap_or(0), u8::from(terms.colocate)];
                bytes.extend(terms.arena_bytes.to_le_bytes());
                bytes
            }
            Self::Memory => vec![1],
            Self::Addresses(addresses) => {
                let mut bytes = vec![2];
                addresses.iter().take(ADDRESSES_MAX).for_each(|address| put_address(&mut bytes, *address));
                bytes
            }
            Self::Interfaces(interfaces) => {
                let mut bytes = vec![4];
                for Interface { name, mtu, addresses } in interfaces {
                    let name = &name.as_bytes()[..name.len().min(INTERFACE_NAME_BYTES_MAX)];
                    bytes.push(u8::try_from(name.len()).unwrap_or(0));
                    bytes.extend(name);
                    bytes.extend(mtu.to_le_bytes());
                    let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
                    bytes.push(u8::try_from(addresses.len()).unwrap_or(0));
                    for (address, prefix) in addresses {
                        put_address(&mut bytes, *address);
                        bytes.push(*prefix);
                    }
                }
                bytes
            }
            Self::Described(None) => vec![5],
            Self::Described(Some(text)) => [&[6], &text.as_bytes()[..text.len().min(DESCRIPTION_BYTES_MAX)]].concat(),
            Self::Refused(why) => [&[3], &why.as_bytes()[..why.len().min(PACKET_BYTES_MAX - 1)]].concat(),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            0 => {
                let [mode, colocate @ (0 | 1), size @ ..] = rest else { return None };
                let waiting = *MODES.get(usize::from(*mode))?;
                let arena_bytes = u64::from_le_bytes(size.try_into().ok()?);
                Some(Self::Terms(Terms { arena_bytes, waiting, colocate: *colocate == 1 }))
            }
            1 => rest.is_empty().then_some(Self::Memory),
            2 => {
                let (all, []) = rest.as_chunks::<ADDRESS_BYTES>() else { return None };
                (all.len() <= ADDRESSES_MAX)
                    .then(|| all.iter().map(parse_address).collect())
                    .flatten()
                    .map(Self::Addresses)
            }
            5 => rest.is_empty().then_some(Self::Described(None)),
            6 => Some(Self::Described(Some(std::str::from_utf8(rest).ok()?.to_owned()))),
            3 => Some(Self::Refused(String::from_utf8_lossy(rest).into_owned())),
            4 => {
                let (mut rest, mut interfaces) = (rest, Vec::new());
                while !rest.is_empty() {
                    interfaces.push(parse_interface(&mut rest)?);
                }
                Some(Self::Interfaces(interfaces))
            }
            _ => None,
        }
    }
}

/// Size of an address in a packet, in bytes: the IP version, and the address as one of IPv6.
const ADDRESS_BYTES: usize = 17;

fn put_address(bytes: &mut Vec<u8>, address: IpAddr) {
    bytes.push(if address.is_ipv4() { 4 } else { 6 });
    match address {
        IpAddr::V4(address) => bytes.extend(address.to_ipv6_mapped().octets()),
        IpAddr::V6(address) => bytes.extend(address.octets()),
    }
}

fn parse_address([version, octets @ ..]: &[u8; ADDRESS_BYTES]) -> Option<IpAddr> {
    let address = Ipv6Addr::from(*octets);
    match version {
        4 => address.to_ipv4_mapped().map(|address: Ipv4Addr| address.into()),
        6 => Some(address.into()),
        _ => None,
    }
}

/// Parses the next interface of an answer, and removes its bytes.
fn parse_interface(rest: &mut &[u8]) -> Option<Interface> {
    let (name_bytes, behind) = rest.split_first()?;
    let (name, behind) = behind.split_at_checked(usize::from(*name_bytes))?;
    let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= INTERFACE_NAME_BYTES_MAX)?;
    let (mtu, behind) = behind.split_first_chunk::<2>()?;
    let (count, mut behind) = behind.split_first()?;
    if usize::from(*count) > ADDRESSES_MAX {
        return None;
    }
    let mut addresses = Vec::new();
    for _ in 0..*count {
        let (address, then) = behind.split_first_chunk::<ADDRESS_BYTES>()?;
        let (prefix, then) = then.split_first()?;
        let address = parse_address(address)?;
        if *prefix > if address.is_ipv4() { 32 } else { 128 } {
            return None;
        }
        addresses.push((address, *prefix));
        behind = then;
    }
    *rest = behind;
    Some(Interface { name: name.to_owned(), mtu: u16::from_le_bytes(*mtu), addresses })
}

/// A conversation between a process and the broker.
#[derive(Debug)]
pub struct Conversation(OwnedFd);

impl Conversation {
    /// Begins a conversation of this process with the broker at the other end of the channel.
    ///
    /// # Errors
    /// Returns an error if the broker has ended, or if this process has no free descriptors.
    pub fn begin(channel: impl AsFd) -> io::Result<Self> {
        let (own, other) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        send(channel, &[0], &[other.as_fd()])?;
        Ok(Self(own))
    }

    /// Accepts the next conversation at the broker's end of the channel, and waits for it.
    ///
    /// # Errors
    /// Returns an error if no process has the other end of the channel any more. Returns `InvalidData` if a process sent something
    /// else.
    pub fn accept(channel: impl AsFd) -> io::Result<Self> {
        let (_, descriptors) = receive(channel)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let [socket] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self(socket))
    }

    /// Sends a question, and returns the answer with its descriptors.
    ///
    /// # Errors
    /// Returns an error if the broker refuses, if it has ended, or if it does not answer in time.
    pub fn ask(&self, question: &Question, descriptors: &[BorrowedFd<'_>]) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.pose(question, descriptors)?;
        self.await_answer()
    }

    fn pose(&self, question: &Question, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(&self.0, &question.write(), descriptors)
    }

    fn await_answer(&self) -> io::Result<(Answer, Vec<OwnedFd>)> {
        await_packet(&self.0)?;
        let (bytes, descriptors) = receive(&self.0)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match Answer::parse(&bytes) {
            Some(Answer::Refused(why)) => Err(io::Error::other(why)),
            Some(answer) => Ok((answer, descriptors)),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns the next question with its descriptors, or `None` if the process has ended the conversation.
    ///
    /// # Errors
    /// Returns an error if the packet is not a valid question.
    pub fn question(&self) -> io::Result<Option<(Question, Vec<OwnedFd>)>> {
        let Some((bytes, descriptors)) = receive(&self.0)? else { return Ok(None) };
        let question = Question::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some((question, descriptors)))
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// Returns an error if the process has ended the conversation.
    pub fn answer(&self, answer: &Answer, descriptors: &[OwnedFd]) -> io::Result<()> {
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        send(&self.0, &answer.write(), &borrowed)
    }

    /// Attaches this process to the guest.
    ///
    /// # Errors
    /// Returns an error if the broker or the guest refuses, or if the host has too little memory.
    pub fn attach(&self) -> io::Result<ApplicationEnd> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        self.pose(&Question::Attach, &[])?;
        // This process does whatever needs no answer while the others work on the answer.
        let ring = own_ring()?;
        let (Answer::Terms(terms), doorbell) = self.await_answer()? else { return Err(invalid()) };
        let half = HalfEnd::with_ring(terms, ring)?;
        let memory: Vec<BorrowedFd<'_>> = half.memory.iter().map(AsFd::as_fd).collect();
        self.pose(&Question::Memory, &memory)?;
        let doorbell: Vec<OwnedFd> = doorbell.into_iter().map(out_of_the_way).collect();
        let [notify, wake, reader, passing] = <[OwnedFd; 4]>::try_from(doorbell).map_err(|_| invalid())?;
        let (notify, wake) = (NotifyFd::from_fd(notify)?.keep_reader(reader), WakeFd::from_fd(wake)?);
        let (Answer::Memory, memory) = self.await_answer()? else { return Err(invalid()) };
        let end = half.complete(notify, wake, memory.try_into().map_err(|_| invalid())?)?;
        Ok(ApplicationEnd { passing: Some(Passing::from_fd(passing)?), ..end })
    }
}

impl AsFd for Conversation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The memory that an application makes for its link to a guest, before it has the guest's memory.
#[derive(Debug)]
pub struct HalfEnd {
    terms: Terms,
    ring: OwnMemory,
    arena: OwnArena,
    /// The memory files of the ring and of the arena, for the guest.
    pub memory: [OwnedFd; 2],
}

impl HalfEnd {
    /// Makes the memory.
    ///
    /// # Errors
    /// Returns an error if the host has too little memory.
    pub fn new(terms: Terms) -> io::Result<Self> {
        Self::with_ring(terms, own_ring()?)
    }

    fn with_ring(terms: Terms, (ring, ring_memory): (OwnMemory, OwnedFd)) -> io::Result<Self> {
        let bytes = usize::try_from(terms.arena_bytes).map_err(|_| io::ErrorKind::InvalidData)?;
        let (arena, arena_memory) = OwnArena::create(bytes)?;
        Ok(Self { terms, ring, arena, memory: [ring_memory, arena_memory] })
    }

    /// Completes the link. `memory` has the memory files of the guest's ring and arena.
    ///
    /// # Errors
    /// Returns an error if a descriptor is not what it should be.
    pub fn complete(self, notify: NotifyFd, wake: WakeFd, memory: [OwnedFd; 2]) -> io::Result<ApplicationEnd> {
        let unusable = |error: MapError| io::Error::other(error.to_string());
        let [ring, arena] = memory;
        let ring = PeerMemory::map(ring, shape().ok_or(io::ErrorKind::InvalidData)?).map_err(unusable)?;
        let peer = PeerArena::map(arena, self.arena.len()).map_err(unusable)?;
        let Terms { waiting, colocate, .. } = self.terms;
        Ok(ApplicationEnd {
            link: Link::new(self.ring, ring, notify, wake),
            arena: self.arena,
            peer,
            waiting,
            colocate,
            passing: None,
        })
    }
}

/// Makes the memory of the ring, whose size does not depend on the guest.
fn own_ring() -> io::Result<(OwnMemory, OwnedFd)> {
    OwnMemory::create(shape().ok_or(io::ErrorKind::InvalidData)?)
}

/// Waits until a packet has arrived or the other end is closed.
fn await_packet(socket: impl AsFd) -> io::Result<()> {
    let until = Instant::now() + ANSWER_TIME_MAX;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_message_parses_and_a_shorter_or_longer_one_does_not() {
        for question in [Question::Attach, Question::Memory, Question::Interfaces, Question::Receive(u64::MAX)] {
            let mut bytes = question.write();
            assert_eq!(Question::parse(&bytes), Some(question));
            bytes.push(0);
            assert_eq!(Question::parse(&bytes), None);
        }
        let name = Question::Resolve("server.figure-1".to_owned());
        assert_eq!(Question::parse(&name.write()), Some(name));
        assert_eq!(Question::parse(&Question::Resolve("x".repeat(NAME_BYTES_MAX + 1)).write()), None);
        assert_eq!(Question::parse(&[2, 0xff]), None);
        let passed = Question::Pass(7, "a socket".to_owned());
        assert_eq!(Question::parse(&passed.write()), Some(passed));
        assert_eq!(Question::parse(&Question::Pass(7, "x".repeat(DESCRIPTION_BYTES_MAX + 1)).write()), None);
        let described = Answer::Described(Some("a socket".to_owned()));
        assert_eq!(Answer::parse(&described.write()), Some(described));

        let terms = Terms { arena_bytes: 1 << 20, waiting: Mode::Adaptive, colocate: true };
        let addresses = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let interface = |name: &str| Interface {
            name: name.to_owned(),
            mtu: 57_344,
            addresses: vec![("10.0.0.1".parse().unwrap(), 24), ("fd00::1".parse().unwrap(), 64)],
        };
        let interfaces = Answer::Interfaces(vec![interface("hsi0"), interface("ctc1")]);
        for answer in
            [Answer::Terms(terms), Answer::Memory, Answer::Addresses(addresses), interfaces, Answer::Described(None)]
        {
            let mut bytes = answer.write();
            assert_eq!(Answer::parse(&bytes), Some(answer.clone()));
            bytes.push(0);
            assert_eq!(Answer::parse(&bytes), None, "{answer:?}");
        }
        assert_eq!(Answer::parse(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None, "there are three waiting policies");
        assert_eq!(
            Answer::parse(&[2, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            None,
            "this is no IPv4 address"
        );
        let why = Answer::Refused("no such guest".to_owned());
        assert_eq!(Answer::parse(&why.write()), Some(why));
    }

    #[test]
    fn the_broker_answers_the_process_that_asked() {
        let (channel, at_broker) =
            net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let broker = std::thread::spawn(move || {
            let (one, other) = (Conversation::accept(&at_broker).unwrap(), Conversation::accept(&at_broker).unwrap());
            for conversation in [other, one] {
                let (question, _) = conversation.question().unwrap().unwrap();
                let Question::Resolve(name) = question else { panic!("another question was asked") };
                conversation.answer(&Answer::Refused(format!("there is no {name}")), &[]).unwrap();
                assert!(conversation.question().unwrap().is_none(), "the process has ended its conversation");
            }
            assert_eq!(Conversation::accept(&at_broker).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        });
        let (one, other) = (Conversation::begin(&channel).unwrap(), Conversation::begin(&channel).unwrap());
        let second = std::thread::spawn(move || other.ask(&Question::Resolve("b".to_owned()), &[]).unwrap_err());
        assert_eq!(one.ask(&Question::Resolve("a".to_owned()), &[]).unwrap_err().to_string(), "there is no a");
        assert_eq!(second.join().unwrap().to_string(), "there is no b");
        drop((one, channel));
        broker.join().unwrap();
    }
}
