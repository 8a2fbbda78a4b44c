//! Passes siga sockets on to a program that this process executes. The program's own copy of this library takes them over when it is
//! loaded.
//!
//! The text of an environment variable describes the sockets. It identifies a descriptor by the inode of its placeholder, because the
//! new program may have it under another number.

use crate::errors::{Error, Result};
use crate::socket::{Family, Kind, Socket, State};
use crate::world::{self, Bequest, Place, World};
use crate::{attach, log, sys};
use siga_iucv::client::{SharedKind, SharedSocket};
use siga_iucv::record::{Number, Numbers, ShareKey};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// The environment variable with the description of inherited sockets.
pub(crate) const INHERITANCE_VARIABLE: &str = "SIGA_EXEC_SOCKETS";

/// Which descriptors a new program may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Those of this process that are not closed by exec (`FD_CLOEXEC`).
    OpenAcrossExec,
    /// Any, because the file actions of posix_spawn(3) may duplicate them.
    Any,
}

/// Returns the numbers of this process's descriptors.
fn descriptors() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Shares the sockets that a new program may get. Returns the value of [`INHERITANCE_VARIABLE`], or `None` if there are none.
pub(crate) fn describe(passed: Passed) -> Option<String> {
    let mut held = world::lock();
    let places: BTreeMap<u64, Place> = held.inodes().collect();
    if places.is_empty() {
        return None;
    }
    let inodes: BTreeSet<u64> = match passed {
        Passed::Any => places.keys().copied().collect(),
        Passed::OpenAcrossExec => descriptors()
            .into_iter()
            .filter(|number| !sys::closes_on_exec(*number))
            .filter_map(sys::socket_inode)
            .collect(),
    };
    let meant: Vec<(u64, Place)> =
        places.into_iter().filter(|(inode, place)| inodes.contains(inode) && held.is_of_stack(*place)).collect();
    describe_sockets(&mut held, meant)
}

/// Shares sockets, which are given by the inodes of their placeholders and their places, and describes them.
fn describe_sockets(held: &mut World, meant: Vec<(u64, Place)>) -> Option<String> {
    let mut numbers = Vec::new();
    for (_, place) in &meant {
        numbers.extend(held.socket_at(*place).ok()?.stack_numbers());
    }
    if numbers.is_empty() {
        return None;
    }
    let Bequest { key, sockets } = held.bequeath(&numbers)?;
    let mut text = key.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    for (inode, place) in meant {
        let socket = held.socket_at(place).ok()?;
        let _ = write!(text, ";{inode},{}", text_of(socket));
        for number in socket.stack_numbers() {
            let Some(shared) = sockets.iter().find(|shared| shared.number == number) else { continue };
            let remote = if let SharedKind::Connection(remote) = shared.kind { Some(remote) } else { None };
            let _ = write!(text, ",{number},{},{}", shared.local, address_text(remote));
        }
    }
    Some(text)
}

fn address_text(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "-".to_owned(), |address| address.to_string())
}

/// The fields of a socket: IP version, kind, whether it uses IPv6 only, state, and the addresses of the state.
fn text_of(socket: &Socket) -> String {
    let family = if socket.family == Family::V4 { 4 } else { 6 };
    let (state, address, peer) = match &socket.state {
        State::Listening { local, .. } => ("listener", Some(*local), None),
        State::Connection { is_open: true, .. } => ("open", None, None),
        State::Connection { is_open: false, .. } => ("opening", None, None),
        State::Datagrams { bound, peer, .. } => ("datagrams", *bound, *peer),
        State::New | State::Bound { .. } | State::Lost(_) => ("new", None, None),
    };
    format!("{family},{},{state},{},{}", u8::from(socket.v6_only), address_text(address), address_text(peer))
}

/// A socket in a description.
struct Described {
    inode: u64,
    socket: Socket,
    shared: Vec<SharedSocket>,
}

fn parse_key(text: &str) -> Option<ShareKey> {
    let mut key = ShareKey::default();
    if text.len() != 2 * key.len() {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(key)
}

fn parse_address(text: &str) -> Option<Option<SocketAddr>> {
    if text == "-" { Some(None) } else { text.parse().ok().map(Some) }
}

fn parse_socket(text: &str) -> Option<Described> {
    let mut fields = text.split(',');
    let inode = fields.next()?.parse().ok()?;
    let family = if fields.next()? == "4" { Family::V4 } else { Family::V6 };
    let v6_only = fields.next()? == "1";
    let state = fields.next()?;
    let (address, peer) = (parse_address(fields.next()?)?, parse_address(fields.next()?)?);
    let mut shared = Vec::new();
    while let Some(number) = fields.next() {
        let number: Number = number.parse().ok()?;
        let (local, remote) = (fields.next()?.parse().ok()?, parse_address(fields.next()?)?);
        let kind = match (state, remote) {
            ("listener", None) => SharedKind::Listener,
            ("datagrams", None) => SharedKind::Datagrams,
            (_, Some(remote)) => SharedKind::Connection(remote),
            (_, None) => return None,
        };
        shared.push(SharedSocket { number, local, kind });
    }
    let numbers: Numbers = shared.iter().map(|one| one.number).collect();
    let kind = if state == "datagrams" { Kind::Datagram } else { Kind::Stream };
    let mut socket = Socket::new(family, kind, false);
    socket.v6_only = v6_only;
    socket.state = match state {
        "listener" => State::Listening { numbers, local: address? },
        "open" | "opening" => State::Connection { number: *numbers.first()?, is_open: state == "open" },
        "datagrams" => {
            let of = |v4| shared.iter().find(|one| one.local.is_ipv4() == v4).map(|one| one.number);
            State::Datagrams { v4: of(true), v6: of(false), peer, bound: address }
        }
        _ => return None,
    };
    Some(Described { inode, socket, shared })
}

/// Shares a socket with the process that receives its descriptor in a message (`SCM_RIGHTS`).
///
/// # Errors
/// `EOPNOTSUPP` if the socket has no address and no connection.
pub(crate) fn pass_on(number: RawFd) -> Result<()> {
    let (inode, text) = {
        let mut held = world::lock();
        let place = held.place(number)?;
        if !held.is_of_stack(place) {
            return Err(Error::NOT_SUPPORTED);
        }
        let inode = held.socket_at(place)?.inode;
        (inode, describe_sockets(&mut held, vec![(inode, place)]).ok_or(Error::NOT_SUPPORTED)?)
    };
    attach::pass(inode, text)
}

/// Takes over the socket of a descriptor that this process has received in a message, if another process of this program has passed it.
pub(crate) fn take_received(number: RawFd) {
    let Some(inode) = sys::socket_inode(number) else { return };
    let own = world::lock().number_of_inode(inode);
    let outcome = match own {
        Some(own) => world::lock().duplicate(own, number),
        None => attach::received(inode).and_then(|text| match text.as_deref().and_then(parse_passed) {
            Some((key, described)) => world::lock().adopt_passed(number, key, described),
            None => Ok(()),
        }),
    };
    if let Err(error) = outcome {
        log::line(format_args!(
            "the process cannot use a socket that it received from another process: error {}",
            error.0
        ));
    }
}

fn parse_passed(text: &str) -> Option<(ShareKey, Described)> {
    let (key, socket) = text.split_once(';')?;
    Some((parse_key(key)?, parse_socket(socket)?))
}

/// Takes over the sockets of a description. Runs before the program begins.
pub(crate) fn take_over(text: &str) {
    let mut parts = text.split(';');
    let Some(key) = parts.next().and_then(parse_key) else { return };
    let mut described: BTreeMap<u64, Described> =
        parts.filter_map(parse_socket).map(|described| (described.inode, described)).collect();
    let sockets = described.values().flat_map(|described| described.shared.clone()).collect();
    let mut held = world::lock();
    if let Err(error) = held.inherit(&Bequest { key, sockets }) {
        log::line(format_args!("the program cannot use the sockets of the process that started it: error {}", error.0));
        return;
    }
    let mut places: BTreeMap<u64, RawFd> = BTreeMap::new();
    for number in descriptors() {
        let Some(inode) = sys::socket_inode(number) else { continue };
        if let Some(first) = places.get(&inode) {
            let _ = held.duplicate(*first, number);
        } else if let Some(Described { mut socket, .. }) = described.remove(&inode) {
            socket.nonblocking = sys::is_nonblocking(number);
            if held.adopt(number, socket).is_ok() {
                places.insert(inode, number);
            }
        }
    }
    // The other sockets were closed when the program was executed.
    let unused: Vec<Number> =
        described.values().flat_map(|described| &described.shared).map(|shared| shared.number).collect();
    held.close_unused(&unused);
}

impl World {
    /// Adds an inherited socket with its first descriptor number.
    fn adopt(&mut self, number: RawFd, socket: Socket) -> Result<()> {
        let (numbers, listens) = (socket.stack_numbers(), matches!(socket.state, State::Listening { .. }));
        let place = self.add(number, socket)?;
        if listens {
            self.begin_listening(place);
        }
        numbers.into_iter().for_each(|number| self.bind_number(number, place));
        Ok(())
    }

    /// Adds a socket that another process has passed, with its first descriptor number.
    fn adopt_passed(&mut self, number: RawFd, key: ShareKey, described: Described) -> Result<()> {
        let Described { mut socket, shared, .. } = described;
        let here = self.client()?.adopt(key, &shared)?;
        let renumbered = |there: &mut Number| {
            if let Some(place) = shared.iter().position(|one| one.number == *there) {
                *there = here[place].number;
            }
        };
        match &mut socket.state {
            State::Listening { numbers, .. } | State::Bound { numbers, .. } => numbers.iter_mut().for_each(renumbered),
            State::Connection { number, .. } => renumbered(number),
            State::Datagrams { v4, v6, .. } => v4.iter_mut().chain(v6).for_each(renumbered),
            State::New | State::Lost(_) => {}
        }
        socket.nonblocking = sys::is_nonblocking(number);
        self.adopt(number, socket)
    }

    /// Returns a number of the socket whose placeholder has this inode, if this process has it.
    fn number_of_inode(&self, inode: u64) -> Option<RawFd> {
        let place = self.inodes().find(|(known, _)| *known == inode)?.1;
        self.number_at(place)
    }

    fn close_unused(&mut self, numbers: &[Number]) {
        if let Ok(client) = self.client() {
            numbers.iter().for_each(|number| client.close(*number));
        }
    }
}
