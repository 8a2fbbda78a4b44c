//! Sockets over the stack of a guest that is another process. This module implements the trait [`Provider`] for the client of
//! [`siga_iucv`].

use super::provider::{Named, Provider, SocketId};
use crate::counters;
use crate::protocol::report::{ApplicationReport, ReportPart};
use siga_iucv::client::Client;
use siga_iucv::options::{ConnectionInfo, DatagramChange, Readiness, SendFlags, SendTime, SocketOptions};
use siga_iucv::record::Number;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn id(number: Number) -> SocketId {
    SocketId(Named::Number(number))
}

fn number(socket: SocketId) -> io::Result<Number> {
    match socket.0 {
        Named::Number(number) => Ok(number),
        Named::Connection(_) | Named::Listener(_) | Named::Datagrams(_) => Err(ErrorKind::InvalidInput.into()),
    }
}

impl Provider for Client {
    fn listen(&mut self, local: SocketAddr, backlog: usize, options: &SocketOptions) -> io::Result<SocketId> {
        self.listen(local, backlog, options).map(id)
    }

    fn accept(&mut self, listener: SocketId) -> io::Result<(SocketId, SocketAddr)> {
        self.accept(number(listener)?).map(|(socket, remote)| (id(socket), remote))
    }

    fn connect(&mut self, local: SocketAddr, remote: SocketAddr, options: &SocketOptions) -> io::Result<SocketId> {
        self.connect(local, remote, options).map(id)
    }

    fn connected(&mut self, socket: SocketId) -> io::Result<bool> {
        self.connected(number(socket)?)
    }

    fn send(&mut self, socket: SocketId, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        self.send(number(socket)?, bytes, flags)
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<usize> {
        self.receive(number(socket)?, into)
    }

    fn receive_timed(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, Option<SystemTime>)> {
        self.receive_timed(number(socket)?, into)
    }

    fn take_send_time(&mut self, socket: SocketId) -> io::Result<Option<SendTime>> {
        self.take_send_time(number(socket)?)
    }

    fn shutdown(&mut self, socket: SocketId, how: Shutdown) -> io::Result<()> {
        self.shutdown(number(socket)?, how)
    }

    fn set(&mut self, socket: SocketId, options: &SocketOptions) -> io::Result<()> {
        self.set(number(socket)?, options)
    }

    fn info(&mut self, socket: SocketId) -> io::Result<Box<ConnectionInfo>> {
        self.info(number(socket)?)
    }

    fn unread(&mut self, socket: SocketId) -> io::Result<usize> {
        self.unread(number(socket)?)
    }

    fn bind(&mut self, local: SocketAddr) -> io::Result<SocketId> {
        self.bind(local).map(id)
    }

    fn send_to(&mut self, socket: SocketId, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_to(number(socket)?, bytes, to)
    }

    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive_from(number(socket)?, into)
    }

    fn receive_from_timed(
        &mut self,
        socket: SocketId,
        into: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, Option<SystemTime>)> {
        self.receive_from_timed(number(socket)?, into)
    }

    fn change_datagrams(&mut self, socket: SocketId, change: DatagramChange) -> io::Result<()> {
        self.change_datagrams(number(socket)?, change)
    }

    fn addresses(&mut self, socket: SocketId) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        self.addresses(number(socket)?)
    }

    fn close(&mut self, socket: SocketId) {
        if let Ok(socket) = number(socket) {
            self.close(socket);
        }
    }

    fn abort(&mut self, socket: SocketId) {
        if let Ok(socket) = number(socket) {
            self.abort(socket);
        }
    }

    fn readiness(&mut self, socket: SocketId) -> io::Result<Readiness> {
        self.readiness(number(socket)?)
    }

    fn work(&mut self) -> bool {
        self.work()
    }

    fn poll_event(&mut self) -> Option<SocketId> {
        self.poll_event().map(id)
    }

    fn report(&mut self) -> io::Result<Vec<ReportPart>> {
        let counted = self.counters();
        let mut counters = counters::producer_counters(&counted.commands);
        counters::add(&mut counters, &counters::consumer_counters(&counted.events));
        let moved = [
            ("copied_bytes", counted.copied_bytes),
            ("direct_connections", counted.direct_connections as u64),
            ("direct_sent_bytes", counted.direct_sent_bytes),
            ("direct_received_bytes", counted.direct_received_bytes),
        ];
        counters::add(&mut counters, &counters::named(moved));
        let mut times_ns = counters::wait_times(&counted.wait, &counted.rate);
        times_ns.insert("copying".to_owned(), counted.rate.ns(counted.copy_ticks));
        Ok(vec![ReportPart::Application(ApplicationReport {
            application: None,
            sockets: counted.sockets as u64,
            free_bytes: counted.free_bytes as u64,
            counters,
            times_ns,
        })])
    }

    fn wake(&mut self) -> io::Result<Arc<OwnedFd>> {
        Client::wake(self).ok_or_else(|| ErrorKind::Unsupported.into())
    }

    fn wait(&mut self, time: Option<Duration>) {
        self.wait(time);
    }

    fn fall_asleep(&mut self) -> io::Result<bool> {
        Ok(self.fall_asleep())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor()
    }

    fn ended(&self) -> Option<io::Error> {
        self.ended()
    }
}
