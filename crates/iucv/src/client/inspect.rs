//! Calls that look at received bytes and at the state of a connection, and change neither.

use super::Client;
use super::connection::{Connection, Kind, Socket};
use crate::options::Endings;
use crate::record::Number;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

impl Client {
    /// Copies received bytes as [`Client::receive`] does, but leaves them for the next receive (`MSG_PEEK` of Linux).
    ///
    /// # Errors
    /// Returns the same errors as [`Client::receive`].
    pub fn peek(&mut self, socket: Number, into: &mut [u8]) -> io::Result<usize> {
        self.connection(socket)?;
        let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.get(&socket) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let mut done = 0;
        for extent in &connection.received {
            let part = extent.len().min(into.len() - done);
            let copied = self.peer.copy_to(extent.at(), &mut into[done..done + part]);
            debug_assert_eq!(copied, Ok(()), "an event with this extent was not checked");
            done += part;
        }
        if done > 0 { Ok(done) } else { connection.nothing_received() }
    }

    /// Copies the next datagram as [`Client::receive_from`] does, but leaves it for the next receive. Returns the length of the
    /// datagram, which may be more than `into` takes.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no datagram waits.
    pub fn peek_from(&mut self, socket: Number, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.alive()?;
        let Kind::Datagrams(datagrams) = &self.socket(socket)?.kind else { return Err(ErrorKind::InvalidInput.into()) };
        let (from, bytes, _) = datagrams.queue.front().ok_or(ErrorKind::WouldBlock)?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok((bytes.len(), *from))
    }

    /// Returns which directions of a connection have ended, and whether it has failed.
    ///
    /// # Errors
    /// Returns an error if the socket is no connection, or if the client has ended.
    pub fn endings(&mut self, socket: Number) -> io::Result<Endings> {
        let Connection { ended, closed, shut, failure, .. } = *self.connection(socket)?;
        Ok(Endings { received: ended || closed, sent: shut || closed, failure })
    }

    /// Ends the client in a child process that was forked from the client's process. The parent's client continues, so this call
    /// changes nothing in shared memory.
    pub fn abandon(mut self) {
        self.ended = Some((ErrorKind::NotConnected, "a child does not share the sockets of its parent".to_owned()));
    }
}
