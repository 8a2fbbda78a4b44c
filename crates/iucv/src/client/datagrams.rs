//! Datagram sockets.

use super::Client;
use super::connection::{Datagrams, Kind};
#[cfg(doc)]
use crate::limits::ANSWER_TIME_MAX;
use crate::options::{DatagramChange, DatagramOptions};
use crate::record::{Command, DATAGRAM_BYTES_MAX, DELIVERED_BYTES_MAX, Number};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

impl Client {
    /// Makes a datagram socket. The call waits for the guest's answer.
    ///
    /// # Errors
    /// Returns an error if the guest refuses the command, or if it does not answer within [`ANSWER_TIME_MAX`].
    pub fn bind(&mut self, local: SocketAddr) -> io::Result<Number> {
        self.open(Kind::Datagrams(Datagrams::default()), Command::Bind { local, shared: false })
    }

    /// Makes a datagram socket like [`Client::bind`]. Other sockets can have the same address if all of them are made by this method.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::bind`].
    pub fn bind_shared(&mut self, local: SocketAddr) -> io::Result<Number> {
        self.open(Kind::Datagrams(Datagrams::default()), Command::Bind { local, shared: true })
    }

    /// Connects a datagram socket to one remote address. From then on, it receives datagrams of this address only, and errors that the
    /// network reports about its datagrams. The call waits for the guest's answer.
    ///
    /// # Errors
    /// Returns an error if the guest refuses the command, or if it does not answer within [`ANSWER_TIME_MAX`].
    pub fn connect_datagrams(&mut self, socket: Number, remote: SocketAddr) -> io::Result<()> {
        self.alive()?;
        let Kind::Datagrams(datagrams) = &mut self.socket(socket)?.kind else {
            return Err(ErrorKind::InvalidInput.into());
        };
        datagrams.unanswered += 1;
        self.send_command_now(socket, Command::ConnectDatagrams { remote });
        self.await_group_answers(socket)
    }

    /// Returns and clears the error that the network reported about an earlier datagram of a connected socket.
    ///
    /// # Errors
    /// Returns an error if the socket is no datagram socket, or if the client has ended.
    pub fn take_datagram_error(&mut self, socket: Number) -> io::Result<Option<ErrorKind>> {
        self.alive()?;
        match &mut self.socket(socket)?.kind {
            Kind::Datagrams(datagrams) => Ok(datagrams.error.take()),
            Kind::Connection(_) | Kind::Listener { .. } | Kind::Reserved => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::send_to_with`].
    pub fn send_to(&mut self, socket: Number, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_to_with(socket, bytes, to, DatagramOptions::default())
    }

    /// Sends a datagram with options of its own.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the datagram is too long, or if an earlier one was longer than the MTU of its path and was not sent, and
    /// `WouldBlock` if there is no room. Returns an error that the network reported about an earlier datagram, or with which the guest
    /// refused the options of an earlier one.
    pub fn send_to_with(
        &mut self,
        socket: Number,
        bytes: &[u8],
        to: SocketAddr,
        with: DatagramOptions,
    ) -> io::Result<usize> {
        self.alive()?;
        let Kind::Datagrams(datagrams) = &mut self.socket(socket)?.kind else {
            return Err(ErrorKind::InvalidInput.into());
        };
        if let Some(error) = datagrams.error.take() {
            return Err(error.into());
        }
        let bytes_max = if with.from.is_some() { DELIVERED_BYTES_MAX } else { DATAGRAM_BYTES_MAX };
        if std::mem::take(&mut datagrams.too_long) || bytes.len() > bytes_max {
            return Err(ErrorKind::InvalidInput.into());
        }
        if !self.unsent.is_empty() || !self.link.has_room() {
            return Err(self.starve(socket));
        }
        self.send_command(socket, Command::SendTo { to, with, bytes: bytes.to_vec() });
        self.link.publish();
        Ok(bytes.len())
    }

    /// Receives the next datagram. Returns the number of its bytes that were copied, and the sender's address.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no datagram waits. Returns an error that the network reported about an earlier datagram.
    pub fn receive_from(&mut self, socket: Number, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive_from_timed(socket, into).map(|(count, from, _)| (count, from))
    }

    /// Joins or leaves a multicast group, or changes an option of a datagram socket. The call waits for the guest's answer.
    ///
    /// # Errors
    /// Returns an error if the guest refuses the command, or if it does not answer within [`ANSWER_TIME_MAX`].
    pub fn change_datagrams(&mut self, socket: Number, change: DatagramChange) -> io::Result<()> {
        self.alive()?;
        let known = self.socket(socket)?;
        let Kind::Datagrams(datagrams) = &mut known.kind else { return Err(ErrorKind::InvalidInput.into()) };
        datagrams.unanswered += 1;
        self.send_command_now(socket, Command::Group { change });
        self.await_group_answers(socket)
    }
}
