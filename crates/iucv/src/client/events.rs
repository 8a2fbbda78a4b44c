//! Handles events of the guest. The client checks each event against its own state before it applies the event.

use super::connection::{Ask, Connection, Datagram, Kind, Pool, Shared, Socket, Stage};
use super::{Client, under_way};
use crate::extent::size;
use crate::limits::{APPLICATION_SOCKETS_MAX, DATAGRAM_QUEUE_BYTES_MAX, INCOMING_MAX};
use crate::options::ConnectionInfo;
use crate::record::{Command, Event, GUEST_NUMBERS, Number, Status};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;

impl Socket {
    fn handle_info(&mut self, info: Box<ConnectionInfo>) -> Result<(), &'static str> {
        match &mut self.kind {
            Kind::Connection(connection) if connection.unanswered > 0 => {
                connection.unanswered -= 1;
                connection.info = Some(info);
                Ok(())
            }
            Kind::Connection(_) | Kind::Datagrams(_) | Kind::Listener { .. } | Kind::Reserved => {
                Err("the guest sent statistics that the application did not request")
            }
        }
    }
}

impl Client {
    /// Applies an event. If the event violates the protocol, returns a description of the violation.
    pub(super) fn handle_event(&mut self, number: Number, event: Event) -> Result<(), &'static str> {
        if let Event::Incoming { listener, local, remote } = event {
            return self.handle_incoming(number, listener, local, remote);
        }
        if let Event::Shared { done } = event {
            self.shared = Some(done);
            return Ok(());
        }
        if let Event::Direct(event) = event {
            return self.handle_direct_event(number, event);
        }
        let socket = self.sockets.get_mut(&number).ok_or("the guest sent an event for a socket that does not exist")?;
        match event {
            Event::Made { local } => self.handle_made(number, local),
            Event::Refused { why } => self.handle_refused(number, why),
            Event::Status(status) => self.handle_status(number, status),
            Event::Gone if socket.stage == Stage::Closing => {
                if let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.remove(&number) {
                    self.free.extend(connection.blocks.iter().map(|(block, _)| *block));
                }
                Ok(())
            }
            Event::Gone => match &mut socket.kind {
                Kind::Connection(connection) if connection.carrier.is_broken => {
                    connection.carrier.is_gone = true;
                    let blocks = connection.blocks.drain(..).map(|(block, _)| block);
                    self.free.extend(blocks);
                    Ok(())
                }
                Kind::Connection(_) | Kind::Listener { .. } | Kind::Datagrams(_) | Kind::Reserved => {
                    Err("the guest reported the end of a socket that the application did not close")
                }
            },
            Event::Info(info) => socket.handle_info(info),
            Event::SendTimes { times } => match &socket.kind {
                Kind::Connection(_) | Kind::Datagrams(_) => {
                    socket.add_send_times(times);
                    self.announce(number);
                    Ok(())
                }
                Kind::Listener { .. } | Kind::Reserved => {
                    Err("the guest sent transmit timestamps for a socket that cannot send")
                }
            },
            Event::Moved => self.handle_use(number, false),
            Event::Yours => self.handle_use(number, true),
            Event::Offer => self.handle_pool(number, true),
            Event::NoneWaiting => self.handle_pool(number, false),
            Event::Withdrawn => self.handle_withdrawn(number),
            Event::Datagram { .. }
            | Event::Group { .. }
            | Event::TooLong
            | Event::Connected { .. }
            | Event::Failed { .. } => self.handle_datagrams(number, event),
            Event::Incoming { .. } | Event::Shared { .. } | Event::Direct(_) => Ok(()),
        }
    }

    /// Applies an event of a datagram socket.
    fn handle_datagrams(&mut self, number: Number, event: Event) -> Result<(), &'static str> {
        let Some(Socket { kind: Kind::Datagrams(datagrams), stage, .. }) = self.sockets.get_mut(&number) else {
            return Err("the guest sent a datagram event to a socket that is not a datagram socket");
        };
        match event {
            Event::Datagram { from, bytes, at, delivery } => {
                if datagrams.bytes + bytes.len() <= DATAGRAM_QUEUE_BYTES_MAX && *stage != Stage::Closing {
                    // An empty datagram counts as one byte, because it uses memory too.
                    datagrams.bytes += bytes.len().max(1);
                    datagrams.queue.push_back(Datagram { from, bytes, at, delivery });
                    self.announce(number);
                }
                Ok(())
            }
            Event::Group { .. } | Event::Connected { .. } if datagrams.unanswered == 0 => {
                Err("the guest sent an answer without a request")
            }
            Event::Group { failure } => {
                datagrams.unanswered -= 1;
                datagrams.failure = failure;
                Ok(())
            }
            Event::Connected { local } => {
                datagrams.unanswered -= 1;
                datagrams.failure = None;
                if matches!(stage, Stage::Made(_)) {
                    *stage = Stage::Made(local);
                }
                Ok(())
            }
            Event::Failed { why } => {
                datagrams.error = Some(why);
                self.announce(number);
                Ok(())
            }
            Event::TooLong => {
                datagrams.too_long = true;
                Ok(())
            }
            Event::Made { .. }
            | Event::Refused { .. }
            | Event::Incoming { .. }
            | Event::Status(_)
            | Event::Gone
            | Event::Info(_)
            | Event::Shared { .. }
            | Event::Moved
            | Event::Yours
            | Event::Offer
            | Event::NoneWaiting
            | Event::Withdrawn
            | Event::Direct(_)
            | Event::SendTimes { .. } => Err("the guest sent a datagram socket an event for another type of socket"),
        }
    }

    fn handle_made(&mut self, number: Number, local: SocketAddr) -> Result<(), &'static str> {
        let socket = self.sockets.get_mut(&number).ok_or("the guest sent an event for a socket that does not exist")?;
        match socket.stage {
            Stage::Asked => {
                socket.stage = Stage::Made(local);
                if let Some(options) = socket.later.take() {
                    self.send_command(number, Command::Set { options: *options });
                }
                Ok(())
            }
            Stage::Unwanted => {
                socket.stage = Stage::Closing;
                self.send_command(number, Command::Close);
                Ok(())
            }
            Stage::Made(_) | Stage::Refused(_) | Stage::Closing => {
                Err("the guest created a socket that already exists")
            }
        }
    }

    fn handle_refused(&mut self, number: Number, why: ErrorKind) -> Result<(), &'static str> {
        let socket = self.sockets.get_mut(&number).ok_or("the guest sent an event for a socket that does not exist")?;
        match socket.stage {
            Stage::Asked => {
                socket.stage = Stage::Refused(why);
                if let Kind::Connection(connection) = &mut socket.kind {
                    (connection.closed, connection.failure) = (true, Some(why));
                }
                self.announce(number);
                Ok(())
            }
            Stage::Unwanted => {
                self.sockets.remove(&number);
                Ok(())
            }
            Stage::Made(_) | Stage::Refused(_) | Stage::Closing => {
                Err("the guest refused to create a socket that already exists")
            }
        }
    }

    fn handle_status(&mut self, number: Number, status: Status) -> Result<(), &'static str> {
        let (arena_bytes, in_all) = (self.peer.len(), under_way(&self.arena, &self.free));
        let Some(Socket { kind: Kind::Connection(connection), stage, .. }) = self.sockets.get_mut(&number) else {
            return Err("the guest sent the state of a connection to a socket that is not a connection");
        };
        if connection.carrier.is_broken {
            // The connection has ended for the application. Its blocks become free when the guest has forgotten it.
            let followed = connection.release(size(status.released), &mut self.free);
            return followed.ok_or("the guest sent an impossible connection state");
        }
        let before = connection.readiness(in_all);
        connection
            .follow(status, arena_bytes, &mut self.free)
            .ok_or("the guest sent an impossible connection state")?;
        let now = connection.readiness(under_way(&self.arena, &self.free));
        // Other connections may have freed blocks since a send on this connection was refused, so announce the socket if it can
        // send again.
        let goes_on = now.writable && (std::mem::take(&mut connection.stalled) || !before.writable);
        let more = now.readable && (connection.unread > 0 || !before.readable) || goes_on;
        if *stage == Stage::Closing {
            (connection.unread, connection.received) = (0, VecDeque::new());
            connection.arrivals = VecDeque::new();
        } else if more || now.closed && !before.closed {
            self.announce(number);
        }
        Ok(())
    }

    fn handle_incoming(
        &mut self,
        number: Number,
        listener: Number,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), &'static str> {
        if number < GUEST_NUMBERS || self.sockets.contains_key(&number) {
            return Err("the guest used a socket number that is not allowed");
        }
        // `APPLICATION_SOCKETS_MAX` applies separately to the sockets that the application numbered and to those that the guest
        // numbered.
        let full = self.sockets.len() >= 2 * APPLICATION_SOCKETS_MAX;
        let of =
            self.sockets.get_mut(&listener).ok_or("the guest sent a connection to a socket that does not listen")?;
        let wanted = of.stage != Stage::Closing;
        let Kind::Listener { incoming, pool } = &mut of.kind else {
            return Err("the guest sent a connection to a socket that does not listen");
        };
        let is_shared = match pool {
            // The application does not ask for a connection while it expects one.
            Pool::Shared(Shared { expected, .. }) if *expected > 0 => {
                *expected -= 1;
                true
            }
            Pool::Shared(Shared { asks: Ask::Nothing, .. }) => {
                return Err("the guest sent a connection that the application did not request");
            }
            Pool::Shared(Shared { asks: asks @ Ask::Connection, .. }) => {
                *asks = Ask::Nothing;
                true
            }
            // The answer to the command `Pool` follows the connections that were announced before.
            Pool::Shared(Shared { asks: Ask::Pool, .. }) | Pool::Own => false,
        };
        if full || incoming.len() >= size(INCOMING_MAX) {
            return Err("the guest sent more connections than allowed");
        }
        if wanted {
            incoming.push_back(number);
        }
        let kind = Kind::Connection(Box::new(Connection::new(remote)));
        self.sockets.insert(number, Socket::new(kind, Stage::Made(local), true));
        match (wanted, is_shared) {
            (true, _) => self.announce(listener),
            // Another application may accept the connection.
            (false, true) => self.give_back(number, listener),
            (false, false) => self.abort(number),
        }
        Ok(())
    }
}
