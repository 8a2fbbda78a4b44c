//! Sockets that several processes of one program hold, because a process has forked or executes another program.
//!
//! 1. A process calls [`Client::share`] before it forks or executes a program.
//! 2. The other process calls [`Client::inherit`]. Both processes hold the sockets from then on.
//! 3. A connection or datagram socket is used by one process at a time. Another one takes it over at its first use.
//! 4. The guest closes a socket when its last holder has closed it or has ended.

use super::Client;
use super::connection::{Ask, Connection, Datagrams, Kind, Pool, Shared, Socket, Stage, Use};
use crate::limits::{ANSWER_TIME_MAX, APPLICATION_SOCKETS_MAX, EXPECTED_MAX};
use crate::record::{Command, GUEST_NUMBERS, Number, ShareKey};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Instant;

/// How often a process tries to take over a socket that other processes take over at the same time.
const TAKES_MAX: u32 = 16;

/// A socket that a process shares. The process that inherits it has to know this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedSocket {
    /// The number of the socket in both processes.
    pub number: Number,
    /// The local address.
    pub local: SocketAddr,
    /// What kind of socket this is.
    pub kind: SharedKind,
}

/// The kind of a shared socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedKind {
    /// A connection to this remote address.
    Connection(SocketAddr),
    /// A listener.
    Listener,
    /// A datagram socket.
    Datagrams,
}

/// Returns how a socket is used that several applications can use, one at a time.
fn used(socket: &mut Socket) -> Option<&mut Use> {
    match &mut socket.kind {
        Kind::Connection(connection) => Some(&mut connection.used),
        Kind::Datagrams(datagrams) => Some(&mut datagrams.used),
        Kind::Listener { .. } | Kind::Reserved => None,
    }
}

impl Client {
    /// Shares sockets with the process that inherits them with this key: those with these numbers, or all if there are none. The
    /// call waits for the guest's answer.
    ///
    /// # Errors
    /// Returns an error if the guest refuses, or if it does not answer within [`ANSWER_TIME_MAX`].
    pub fn share(&mut self, key: ShareKey, numbers: &[Number]) -> io::Result<Vec<SharedSocket>> {
        self.work();
        let is_meant = |number: &Number| numbers.is_empty() || numbers.contains(number);
        let meant: Vec<Number> = self.sockets.keys().copied().filter(is_meant).collect();
        let mut shared = Vec::new();
        for number in meant {
            // A socket that the guest refuses is not shared.
            let Ok(local) = self.await_made(number) else { continue };
            let Ok(socket) = self.socket(number) else { continue };
            let kind = match &mut socket.kind {
                Kind::Connection(connection) => {
                    let remote = connection.remote;
                    self.return_to_tcp(number);
                    SharedKind::Connection(remote)
                }
                Kind::Listener { .. } => SharedKind::Listener,
                Kind::Datagrams(_) => SharedKind::Datagrams,
                Kind::Reserved => continue,
            };
            if kind == SharedKind::Listener {
                self.pool(number)?;
                self.give_back_incoming(number)?;
            }
            shared.push(SharedSocket { number, local, kind });
        }
        // Connections that this application has not accepted are given back, so they are no longer among its sockets.
        shared.retain(|one| self.sockets.get(&one.number).is_some_and(|socket| matches!(socket.stage, Stage::Made(_))));
        self.shared = None;
        self.send_command_now(0, Command::Share { key, numbers: numbers.to_vec() });
        self.await_shared()?;
        Ok(shared)
    }

    /// Takes over sockets that another process has shared with this key. This client must have no sockets. The call waits for the
    /// guest's answer.
    ///
    /// # Errors
    /// Returns an error if no sockets were shared with this key, or if the guest does not answer within [`ANSWER_TIME_MAX`].
    pub fn inherit(&mut self, key: ShareKey, sockets: &[SharedSocket]) -> io::Result<()> {
        self.insert_inherited(sockets);
        let outcome = self.await_inherited(key, Vec::new());
        if outcome.is_err() {
            self.sockets.clear();
        }
        outcome
    }

    /// Takes over sockets as [`Client::inherit`] does. This client may have other sockets, so the new ones get other numbers. Returns the
    /// sockets with these.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::inherit`], and an error if this client already holds one of the sockets.
    pub fn adopt(&mut self, key: ShareKey, sockets: &[SharedSocket]) -> io::Result<Vec<SharedSocket>> {
        self.alive()?;
        if self.sockets.len() + sockets.len() > APPLICATION_SOCKETS_MAX {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let here: Vec<SharedSocket> =
            sockets.iter().map(|socket| SharedSocket { number: self.take_number(), ..*socket }).collect();
        self.insert_inherited(&here);
        let renumbered = sockets.iter().zip(&here).map(|(there, here)| (there.number, here.number)).collect();
        let outcome = self.await_inherited(key, renumbered);
        if outcome.is_err() {
            here.iter().for_each(|socket| _ = self.sockets.remove(&socket.number));
        }
        outcome.map(|()| here)
    }

    fn await_inherited(&mut self, key: ShareKey, renumbered: Vec<(Number, Number)>) -> io::Result<()> {
        self.shared = None;
        self.send_command_now(0, Command::Inherit { key, renumbered });
        self.await_shared()
    }

    fn insert_inherited(&mut self, sockets: &[SharedSocket]) {
        for SharedSocket { number, local, kind } in sockets {
            let kind = match kind {
                SharedKind::Connection(remote) => {
                    let connection = Connection { used: Use::Inherited, ..Connection::new(*remote) };
                    Kind::Connection(Box::new(connection))
                }
                SharedKind::Listener => {
                    Kind::Listener { incoming: VecDeque::new(), pool: Pool::Shared(Shared::new(Ask::Nothing)) }
                }
                SharedKind::Datagrams => Kind::Datagrams(Datagrams { used: Use::Inherited, ..Datagrams::default() }),
            };
            self.sockets.insert(*number, Socket::new(kind, Stage::Made(*local), false));
        }
    }

    /// Makes a listener pooled.
    fn pool(&mut self, listener: Number) -> io::Result<()> {
        let Kind::Listener { pool: pool @ Pool::Own, .. } = &mut self.socket(listener)?.kind else { return Ok(()) };
        *pool = Pool::Shared(Shared::new(Ask::Pool));
        self.send_command_now(listener, Command::Pool);
        self.await_pool(listener)
    }

    /// Gives back the connections of a pooled listener that the program has not accepted.
    fn give_back_incoming(&mut self, listener: Number) -> io::Result<()> {
        let Kind::Listener { incoming, .. } = &mut self.socket(listener)?.kind else { return Ok(()) };
        for number in std::mem::take(incoming) {
            self.give_back(number, listener);
        }
        self.drain_commands();
        Ok(())
    }

    /// Gives a connection of a pooled listener back, which the program has not accepted.
    pub(super) fn give_back(&mut self, number: Number, listener: Number) {
        let Some(socket) = self.sockets.get_mut(&number) else { return };
        socket.stage = Stage::Closing;
        if let Kind::Connection(connection) = &mut socket.kind {
            connection.leave(&mut self.free);
        }
        self.send_command(number, Command::Return { listener });
    }

    /// Asks the guest for connections of a pooled listener in advance, because the program waits for them. The guest then hands over
    /// the next connections, and this client accepts them without waiting for an answer. The command wakes the guest only if a connection
    /// waits. Does nothing for other sockets.
    pub fn expect(&mut self, listener: Number) {
        let Some(Socket {
            kind: Kind::Listener { incoming, pool: Pool::Shared(shared) }, stage: Stage::Made(_), ..
        }) = self.sockets.get_mut(&listener)
        else {
            return;
        };
        let has = shared.expected.saturating_add(u32::try_from(incoming.len()).unwrap_or(u32::MAX));
        if has > shared.depth / 2 {
            return;
        }
        let is_offered = std::mem::take(&mut shared.is_offered);
        if is_offered {
            // More connections came than this application had asked for.
            shared.depth = (2 * shared.depth).min(EXPECTED_MAX);
        }
        let count = shared.depth - has;
        shared.expected += count;
        self.flush();
        self.send_command(listener, Command::Expect { count });
        if is_offered {
            self.link.publish();
        } else {
            self.link.commands.publish_quietly();
        }
    }

    /// Confirms to the guest that the program accepts a connection of a pooled listener. Returns false if the guest has withdrawn the
    /// connection before.
    pub(super) fn confirm(&mut self, number: Number, listener: Number) -> bool {
        self.accepting = Some((number, listener));
        self.send_command(number, Command::Take);
        // The guest need not read this before the next command. But either it reads this before it decides that the connection is
        // withdrawn, or this client sees that event now: both sides have a SeqCst fence between their publication and their check.
        self.link.commands.publish_quietly();
        self.drain_commands();
        while self.ended.is_none() && self.link.events.is_ready().unwrap_or(false) {
            self.work();
        }
        self.accepting.take().is_some()
    }

    /// Applies the event that the guest has withdrawn a connection.
    pub(super) fn handle_withdrawn(&mut self, number: Number) -> Result<(), &'static str> {
        let is_connection = self.sockets.get(&number).is_some_and(|socket| matches!(socket.kind, Kind::Connection(_)));
        if number < GUEST_NUMBERS || !is_connection {
            return Err("the guest withdrew a connection that no peer has opened");
        }
        let accepted = self.accepting.take_if(|(accepting, _)| *accepting == number).map(|(_, listener)| listener);
        let waits = self.sockets.iter_mut().find_map(|(listener, socket)| {
            let Kind::Listener { incoming, pool: Pool::Shared(shared) } = &mut socket.kind else { return None };
            let place = incoming.iter().position(|waits| *waits == number)?;
            incoming.remove(place);
            // This program accepts its connections late.
            shared.depth = 1;
            Some(*listener)
        });
        // Otherwise the program has accepted the connection, and the guest knows this.
        if let Some(listener) = accepted.or(waits) {
            self.give_back(number, listener);
        }
        Ok(())
    }

    /// Asks the guest for a connection of a pooled listener, as long as one may wait and none has come.
    pub(super) fn ask_pool(&mut self, listener: Number) -> io::Result<()> {
        while let Kind::Listener { incoming, pool: Pool::Shared(shared) } = &mut self.socket(listener)?.kind
            && incoming.is_empty()
            && shared.has_offer()
        {
            (shared.is_offered, shared.asks) = (false, Ask::Connection);
            self.send_command_now(listener, Command::Accept);
            self.await_pool(listener)?;
        }
        Ok(())
    }

    fn await_pool(&mut self, listener: Number) -> io::Result<()> {
        self.await_answer(listener, |socket| match &socket.kind {
            Kind::Listener { pool: Pool::Shared(Shared { asks: Ask::Pool | Ask::Connection, .. }), .. } => None,
            Kind::Listener { .. } | Kind::Connection(_) | Kind::Datagrams(_) | Kind::Reserved => Some(Ok(())),
        })
    }

    /// Applies an offer or an answer about a pooled listener.
    pub(super) fn handle_pool(&mut self, number: Number, offers: bool) -> Result<(), &'static str> {
        let kind = self.sockets.get_mut(&number).map(|socket| &mut socket.kind);
        let Some(Kind::Listener { pool: Pool::Shared(shared), .. }) = kind else {
            return Err("the guest sent an event about waiting connections to a socket that is not a shared listener");
        };
        if offers {
            shared.is_offered = true;
            if shared.expected > 0 {
                // The guest has not read that this application expects a connection, and may sleep.
                shared.is_offered = false;
                self.link.commands.notify();
            }
            self.announce(number);
            return Ok(());
        }
        let was_asked = std::mem::replace(&mut shared.asks, Ask::Nothing) != Ask::Nothing;
        if was_asked { Ok(()) } else { Err("the guest sent an answer without a request") }
    }

    fn await_shared(&mut self) -> io::Result<()> {
        let until = Instant::now() + ANSWER_TIME_MAX;
        loop {
            self.alive()?;
            match self.shared {
                Some(true) => return Ok(()),
                Some(false) => return Err(ErrorKind::NotFound.into()),
                None => {}
            }
            if !self.work() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                self.wait(Some(left));
            }
        }
    }

    /// Takes over a socket that another process uses.
    pub(super) fn use_here(&mut self, number: Number) -> io::Result<()> {
        for _ in 0..TAKES_MAX {
            let Some(how) = self.sockets.get_mut(&number).and_then(used) else { return Ok(()) };
            if *how == Use::Here {
                return Ok(());
            }
            *how = Use::Asked;
            self.send_command_now(number, Command::Take);
            self.await_answer(number, |socket| match &socket.kind {
                Kind::Connection(connection) => answer(connection.used),
                Kind::Datagrams(datagrams) => answer(datagrams.used),
                Kind::Listener { .. } | Kind::Reserved => Some(Ok(())),
            })?;
        }
        // Other processes take the socket over again and again.
        Err(ErrorKind::WouldBlock.into())
    }

    /// Takes over an inherited socket that this process asks about for the first time. A socket that another process has taken over from
    /// this one stays there, so that two processes that wait for the same socket do not take it from each other all the time.
    pub(super) fn use_inherited(&mut self, number: Number) -> io::Result<()> {
        match self.sockets.get_mut(&number).and_then(used) {
            Some(Use::Inherited) => self.use_here(number),
            Some(Use::Here | Use::Elsewhere | Use::Asked | Use::Refused) | None => Ok(()),
        }
    }

    /// Returns whether another process has taken a socket over from this one.
    pub fn is_elsewhere(&mut self, number: Number) -> bool {
        self.sockets.get_mut(&number).and_then(used) == Some(&mut Use::Elsewhere)
    }

    /// Applies the event that this application uses a socket from now on, or no longer.
    pub(super) fn handle_use(&mut self, number: Number, is_here: bool) -> Result<(), &'static str> {
        self.close_lane(number);
        let socket = self.sockets.get_mut(&number).ok_or("the guest sent an event for a socket that does not exist")?;
        if let Kind::Connection(connection) = &mut socket.kind {
            connection.leave(&mut self.free);
        }
        let is_closing = socket.stage == Stage::Closing;
        if self.read.is_some_and(|(of, ..)| of == number) {
            self.read = None;
        }
        let how = used(socket)
            .ok_or("the guest reported the user of a socket that is neither a connection nor a datagram socket")?;
        let was_asked = *how == Use::Asked;
        *how = match (is_here, was_asked) {
            (true, _) => Use::Here,
            (false, true) => Use::Refused,
            (false, false) => Use::Elsewhere,
        };
        if is_here && !was_asked && !is_closing {
            // Commands before this one are about an earlier use. The guest ignores them.
            self.send_command(number, Command::Take);
        }
        self.announce(number);
        Ok(())
    }
}

/// Returns the outcome of a command that takes over a socket, or `None` before the guest's answer.
fn answer(used: Use) -> Option<Result<(), ErrorKind>> {
    match used {
        Use::Asked => None,
        // Another process may have taken it over again at once.
        Use::Here | Use::Inherited | Use::Elsewhere => Some(Ok(())),
        Use::Refused => Some(Err(ErrorKind::QuotaExceeded)),
    }
}
