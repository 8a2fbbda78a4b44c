//! Calls that look at received bytes and at the state of a connection or of the client, and change neither.

use super::Client;
use super::carrier::Carrier;
use super::connection::{Connection, Datagram, Kind, Socket};
use crate::options::{ConnectionInfo, Delivery, Endings};
use crate::record::Number;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// The next datagram of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextDatagram {
    /// The length of the datagram, which may be more than was copied.
    pub bytes: usize,
    /// The address of the sender.
    pub from: SocketAddr,
    /// How the datagram arrived. `None` if it is longer than [`DELIVERED_BYTES_MAX`](crate::record::DELIVERED_BYTES_MAX).
    pub delivery: Option<Delivery>,
}

// Places of `tcpi_bytes_acked`, `tcpi_bytes_received` and `tcpi_bytes_sent` in `struct tcp_info`.
const BYTES_ACKED_AT: usize = 120;
const BYTES_RECEIVED_AT: usize = 128;
const BYTES_SENT_AT: usize = 200;

impl Carrier {
    /// Adds the bytes in memory to the statistics of TCP. Published bytes count as acknowledged.
    pub(super) fn add_to(&self, info: &mut ConnectionInfo) {
        let (sent, received) = self.by_memory;
        for (at, bytes) in [(BYTES_ACKED_AT, sent), (BYTES_RECEIVED_AT, received), (BYTES_SENT_AT, sent)] {
            if let Some(field) = info.tcp_info.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<8>) {
                *field = u64::from_ne_bytes(*field).wrapping_add(bytes).to_ne_bytes();
            }
        }
    }
}

impl Client {
    /// Returns whether the client has ended ([`Client::ended`]).
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Copies received bytes as [`Client::receive`] does, but leaves them for the next receive (`MSG_PEEK` of Linux).
    ///
    /// # Errors
    /// Returns the same errors as [`Client::receive`].
    pub fn peek(&mut self, socket: Number, into: &mut [u8]) -> io::Result<usize> {
        self.use_here(socket)?;
        self.connection(socket)?;
        let tcp_max = into.len().min(self.tcp_first_announced(socket));
        let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.get(&socket) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let mut done = 0;
        for extent in &connection.received {
            let part = extent.len().min(tcp_max - done);
            let copied = self.peer.copy_to(extent.at(), &mut into[done..done + part]);
            debug_assert_eq!(copied, Ok(()), "an event with this extent was not checked");
            done += part;
        }
        done += self.peek_at_memory(socket, done, &mut into[done..]);
        if done > 0 { Ok(done) } else { self.nothing_to_read(socket, into.is_empty()) }
    }

    /// Copies the next datagram as [`Client::receive_from`] does, but leaves it for the next receive.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no datagram waits. Returns an error that the network reported about an earlier datagram.
    pub fn peek_from(&mut self, socket: Number, into: &mut [u8]) -> io::Result<NextDatagram> {
        self.alive()?;
        self.use_here(socket)?;
        let Kind::Datagrams(datagrams) = &mut self.socket(socket)?.kind else {
            return Err(ErrorKind::InvalidInput.into());
        };
        if let Some(error) = datagrams.error.take() {
            return Err(error.into());
        }
        let Datagram { from, bytes, delivery, .. } = datagrams.queue.front().ok_or(ErrorKind::WouldBlock)?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(NextDatagram { bytes: bytes.len(), from: *from, delivery: *delivery })
    }

    /// Returns whether this application has received bytes of a connection and not read them. The end of the stream does not count.
    pub fn holds_unread(&mut self, socket: Number) -> bool {
        self.work_within_call();
        self.readable_bytes(socket) > 0
    }

    /// Returns the number of bytes that this application has sent on a connection and the peer has not acknowledged, as far as it knows
    /// (`SIOCOUTQ` of Linux).
    ///
    /// # Errors
    /// Returns an error if the socket is no connection, or if the client has ended.
    pub fn undelivered(&mut self, socket: Number) -> io::Result<usize> {
        self.work_within_call();
        let connection = self.connection(socket)?;
        // Bytes in memory count as delivered.
        Ok(connection.under_way + connection.carrier.resend_bytes())
    }

    /// Keeps a connection with TCP, because the application waits for more bytes than a sender may have in memory (`SO_RCVLOWAT`).
    ///
    /// # Errors
    /// Returns an error if the socket is no connection, or if the client has ended.
    pub fn keep_with_tcp(&mut self, socket: Number) -> io::Result<()> {
        self.connection(socket)?;
        self.return_to_tcp(socket);
        Ok(())
    }

    /// Returns which directions of a connection have ended, and whether it has failed.
    ///
    /// # Errors
    /// Returns an error if the socket is no connection, or if the client has ended.
    pub fn endings(&mut self, socket: Number) -> io::Result<Endings> {
        self.use_inherited(socket)?;
        let Connection { ended, closed, shut, failure, .. } = *self.connection(socket)?;
        Ok(Endings { received: ended || closed, sent: shut || closed, failure })
    }

    /// Ends the client in a child process that was forked from the client's process. The parent's client continues, so this call
    /// changes nothing in shared memory.
    pub fn abandon(mut self) {
        self.ended = Some((ErrorKind::NotConnected, "a child process cannot use the sockets of its parent".to_owned()));
    }
}
