//! The times of datagrams and of sent bytes, for applications that want to know them.

use super::Client;
use super::connection::{Datagram, Kind};
use crate::options::SendTime;
use crate::record::Number;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::SystemTime;

impl Client {
    /// Receives a datagram as [`Client::receive_from`] does, and also returns when it arrived. The time is `None` unless the application
    /// asked for the times of received datagrams.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::receive_from`].
    pub fn receive_from_timed(
        &mut self,
        socket: Number,
        into: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, Option<SystemTime>)> {
        self.alive()?;
        self.use_here(socket)?;
        let known = self.socket(socket)?;
        let Kind::Datagrams(datagrams) = &mut known.kind else { return Err(ErrorKind::InvalidInput.into()) };
        if let Some(error) = datagrams.error.take() {
            return Err(error.into());
        }
        let Datagram { from, bytes, at, .. } = datagrams.queue.pop_front().ok_or(ErrorKind::WouldBlock)?;
        datagrams.bytes -= bytes.len().max(1);
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok((count, from, at))
    }

    /// Returns the oldest time of sent bytes, or of a sent datagram, that the application has not taken. [`Client::poll_event`] returns
    /// a socket with new times.
    ///
    /// # Errors
    /// Returns an error if the socket does not exist, or if the client has ended.
    pub fn take_send_time(&mut self, socket: Number) -> io::Result<Option<SendTime>> {
        self.alive()?;
        Ok(self.socket(socket)?.send_times.pop_front())
    }
}
