//! Sockets over a stack that runs in this process. The process itself is a guest of the network.
//!
//! The stack runs only while this process calls operations or waits. At other times the stack does not even send acknowledgements.

use super::provider::{Named, Provider, SocketId};
use crate::guest::{Node, Written};
use crate::limits::ZERO_COPY_BYTES_MIN;
use crate::protocol::report::ReportPart;
use crate::stack_sockets::{
    change, connection_info, listen, send_time, tcp_error, tcp_options, udp_error, write_flags,
};
use siga_iucv::options::{ConnectionInfo, DatagramChange, Readiness, SendFlags, SendTime, SocketOptions};
use siga_stack::sockets::{TcpError, TcpEvent, TcpId};
use siga_stack::tcp;
use siga_stack::udp::{Datagram, UdpId};
use std::collections::{HashSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A stack in this process.
#[derive(Debug)]
pub(super) struct Embedded {
    node: Node,
    /// Sockets that were ready when they were made. `poll_event` returns them before the sockets for which the stack has events.
    pending_events: VecDeque<SocketId>,
    stalled: Stalled,
    /// Datagram sockets whose application wants to know when datagrams arrived.
    timed_datagrams: HashSet<UdpId>,
}

/// Connections whose zero-copy send waits for a ring buffer, in the order in which they began to wait.
#[derive(Debug, Default)]
struct Stalled {
    queue: VecDeque<(SocketId, TcpId)>,
    members: HashSet<SocketId>,
}

impl Stalled {
    fn add(&mut self, socket: SocketId, id: TcpId) {
        if self.members.insert(socket) {
            self.queue.push_back((socket, id));
        }
    }

    fn has(&self, socket: SocketId) -> bool {
        self.members.contains(&socket)
    }

    fn remove(&mut self, socket: SocketId) {
        if self.members.remove(&socket) {
            self.queue.retain(|(stalled, _)| *stalled != socket);
        }
    }

    /// Removes the first connection that can continue, and returns its socket.
    fn take(&mut self, mut goes_on: impl FnMut(TcpId) -> bool) -> Option<SocketId> {
        let place = self.queue.iter().position(|(_, id)| goes_on(*id))?;
        let (socket, _) = self.queue.remove(place)?;
        self.members.remove(&socket);
        Some(socket)
    }
}

impl Embedded {
    pub(super) fn new(node: Node) -> Self {
        let (pending_events, timed_datagrams) = (VecDeque::new(), HashSet::new());
        Self { node, pending_events, stalled: Stalled::default(), timed_datagrams }
    }

    fn receive_datagram(&mut self, socket: SocketId) -> io::Result<Datagram> {
        let id = datagrams(socket)?;
        self.node.stack().udp_receive(id).map_err(udp_error)?.ok_or_else(|| ErrorKind::WouldBlock.into())
    }
}

/// Copies a datagram as far as it fits, and returns the number of copied bytes.
fn copy_datagram(datagram: &Datagram, into: &mut [u8]) -> usize {
    let count = datagram.bytes.len().min(into.len());
    into[..count].copy_from_slice(&datagram.bytes[..count]);
    count
}

fn connection(socket: SocketId) -> io::Result<TcpId> {
    match socket.0 {
        Named::Connection(id) => Ok(id),
        Named::Listener(_) | Named::Datagrams(_) | Named::Number(_) => Err(ErrorKind::InvalidInput.into()),
    }
}

fn datagrams(socket: SocketId) -> io::Result<UdpId> {
    match socket.0 {
        Named::Datagrams(id) => Ok(id),
        Named::Connection(_) | Named::Listener(_) | Named::Number(_) => Err(ErrorKind::InvalidInput.into()),
    }
}

impl Provider for Embedded {
    fn listen(&mut self, local: SocketAddr, backlog: usize, options: &SocketOptions) -> io::Result<SocketId> {
        let id = listen(self.node.stack(), local, backlog, options)?;
        Ok(SocketId(Named::Listener(id)))
    }

    fn accept(&mut self, listener: SocketId) -> io::Result<(SocketId, SocketAddr)> {
        let Named::Listener(id) = listener.0 else { return Err(ErrorKind::InvalidInput.into()) };
        let (connection, from) = self.node.stack().tcp_accept(id).map_err(tcp_error)?.ok_or(ErrorKind::WouldBlock)?;
        let socket = SocketId(Named::Connection(connection));
        self.pending_events.push_back(socket);
        Ok((socket, from))
    }

    fn connect(&mut self, local: SocketAddr, remote: SocketAddr, options: &SocketOptions) -> io::Result<SocketId> {
        let now = self.node.now();
        let stack = self.node.stack();
        let options = tcp_options(stack.tcp_defaults(), options);
        let id = stack.tcp_connect(now, local, remote, &options).map_err(tcp_error)?;
        self.node.send_now();
        Ok(SocketId(Named::Connection(id)))
    }

    fn connected(&mut self, socket: SocketId) -> io::Result<bool> {
        let id = connection(socket)?;
        let now = self.node.now();
        let stack = self.node.stack();
        let readiness = stack.tcp_readiness(id).map_err(tcp_error)?;
        if readiness.closed {
            stack.tcp_receive(now, id, &mut []).map_err(tcp_error)?;
        }
        Ok(readiness.writable || readiness.readable || readiness.closed)
    }

    fn send(&mut self, socket: SocketId, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        let id = connection(socket)?;
        if bytes.len() >= ZERO_COPY_BYTES_MIN && flags == SendFlags::default() {
            match self.node.send_zero_copy(id, bytes) {
                Written::Gone(0) => {}
                Written::Gone(count) => return Ok(count),
                Written::Wait => {
                    self.stalled.add(socket, id);
                    return Err(ErrorKind::WouldBlock.into());
                }
            }
        }
        let now = self.node.now();
        let stack = self.node.stack();
        let sent = if flags == SendFlags::default() {
            stack.tcp_send(now, id, bytes)
        } else {
            stack.tcp_send_flagged(now, id, bytes, write_flags(flags))
        };
        match sent {
            Ok(0) if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            Err(TcpError::NotOpen) if !self.connected(socket)? => Err(ErrorKind::WouldBlock.into()),
            outcome => {
                let sent = outcome.map_err(tcp_error)?;
                self.node.send_now_of(id);
                Ok(sent)
            }
        }
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<usize> {
        let id = connection(socket)?;
        let now = self.node.now();
        let received = self.node.stack().tcp_receive(now, id, into).map_err(tcp_error)?;
        if received.is_some_and(|count| count >= ZERO_COPY_BYTES_MIN) {
            self.node.give_back();
        }
        received.ok_or_else(|| ErrorKind::WouldBlock.into())
    }

    fn receive_timed(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, Option<SystemTime>)> {
        let id = connection(socket)?;
        let at = self.node.stack().tcp_arrival_time(id, into.len()).map_err(tcp_error)?;
        let at = at.map(|at| self.node.wall_time(at));
        self.receive(socket, into).map(|count| (count, at.filter(|_| count > 0)))
    }

    fn take_send_time(&mut self, socket: SocketId) -> io::Result<Option<SendTime>> {
        let of_stack = match socket.0 {
            Named::Datagrams(id) => {
                let sent = self.node.stack().udp_take_send_time(id).map_err(udp_error)?;
                sent.map(|(id, at)| tcp::SendTime { id, stage: tcp::SendStage::Sent, at })
            }
            Named::Connection(_) | Named::Listener(_) | Named::Number(_) => {
                self.node.stack().tcp_take_send_time(connection(socket)?).map_err(tcp_error)?
            }
        };
        Ok(of_stack.map(|time| send_time(&time, self.node.wall_time(time.at))))
    }

    fn shutdown(&mut self, socket: SocketId, how: Shutdown) -> io::Result<()> {
        let id = connection(socket)?;
        let now = self.node.now();
        match how {
            Shutdown::Write | Shutdown::Both => self.node.stack().tcp_shutdown(now, id).map_err(tcp_error)?,
            // Shutting down the receive direction needs no action: received bytes stay readable, and the application need not read
            // them.
            Shutdown::Read => {}
        }
        self.node.send_now_of(id);
        Ok(())
    }

    fn set(&mut self, socket: SocketId, options: &SocketOptions) -> io::Result<()> {
        let id = connection(socket)?;
        let now = self.node.now();
        change(self.node.stack(), now, id, options)?;
        self.node.send_now();
        Ok(())
    }

    fn info(&mut self, socket: SocketId) -> io::Result<Box<ConnectionInfo>> {
        let id = connection(socket)?;
        let now = self.node.now();
        connection_info(self.node.stack(), now, id).map(Box::new).map_err(tcp_error)
    }

    fn unread(&mut self, socket: SocketId) -> io::Result<usize> {
        self.node.stack().tcp_unread(connection(socket)?).map_err(tcp_error)
    }

    fn bind(&mut self, local: SocketAddr) -> io::Result<SocketId> {
        let id = self.node.stack().udp_bind(local).map_err(udp_error)?;
        Ok(SocketId(Named::Datagrams(id)))
    }

    fn send_to(&mut self, socket: SocketId, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        let id = datagrams(socket)?;
        let now = self.node.now();
        self.node.stack().udp_send(now, id, Some(to), bytes).map_err(udp_error)?;
        self.node.send_now();
        Ok(bytes.len())
    }

    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let datagram = self.receive_datagram(socket)?;
        Ok((copy_datagram(&datagram, into), datagram.from))
    }

    fn receive_from_timed(
        &mut self,
        socket: SocketId,
        into: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, Option<SystemTime>)> {
        let datagram = self.receive_datagram(socket)?;
        let at = self.timed_datagrams.contains(&datagrams(socket)?).then(|| self.node.wall_time(datagram.at));
        Ok((copy_datagram(&datagram, into), datagram.from, at))
    }

    fn change_datagrams(&mut self, socket: SocketId, change: DatagramChange) -> io::Result<()> {
        let id = datagrams(socket)?;
        self.node.change_datagrams(id, change).map_err(udp_error)?;
        if let DatagramChange::Timing(timing) = change {
            if timing.received {
                self.timed_datagrams.insert(id);
            } else {
                self.timed_datagrams.remove(&id);
            }
        }
        Ok(())
    }

    fn addresses(&mut self, socket: SocketId) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        let stack = self.node.stack();
        match socket.0 {
            Named::Connection(id) => {
                let (local, remote) = stack.tcp_addresses(id).map_err(tcp_error)?;
                Ok((local, Some(remote)))
            }
            Named::Listener(id) => Ok((stack.tcp_listener_address(id).map_err(tcp_error)?, None)),
            Named::Datagrams(id) => Ok((stack.udp_local(id).map_err(udp_error)?, None)),
            Named::Number(_) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    fn close(&mut self, socket: SocketId) {
        let now = self.node.now();
        self.stalled.remove(socket);
        let stack = self.node.stack();
        // If the socket has already ended by itself, the call fails, which does no harm.
        let _ = match socket.0 {
            Named::Connection(id) => stack.tcp_close(now, id).map_err(tcp_error),
            Named::Listener(id) => stack.tcp_unlisten(now, id).map_err(tcp_error),
            Named::Datagrams(id) => {
                self.timed_datagrams.remove(&id);
                stack.udp_close(id).map_err(udp_error)
            }
            Named::Number(_) => Ok(()),
        };
        match socket.0 {
            Named::Connection(id) => self.node.send_now_of(id),
            Named::Listener(_) | Named::Datagrams(_) | Named::Number(_) => self.node.send_now(),
        }
    }

    fn abort(&mut self, socket: SocketId) {
        let now = self.node.now();
        self.stalled.remove(socket);
        if let Named::Connection(id) = socket.0 {
            let _ = self.node.stack().tcp_abort(now, id);
            self.node.send_now();
        }
    }

    fn readiness(&mut self, socket: SocketId) -> io::Result<Readiness> {
        let stack = self.node.stack();
        match socket.0 {
            Named::Connection(id) => {
                let readiness = stack.tcp_readiness(id).map_err(tcp_error)?;
                let stalls = self.stalled.has(socket) && self.node.stalls(id);
                let writable = readiness.writable && !stalls || readiness.closed;
                Ok(Readiness { readable: readiness.readable, writable, closed: readiness.closed })
            }
            Named::Listener(id) => {
                let readable = stack.tcp_acceptable(id).map_err(tcp_error)? > 0;
                Ok(Readiness { readable, writable: false, closed: false })
            }
            Named::Datagrams(id) => {
                let readable = stack.udp_readable(id).map_err(udp_error)?;
                Ok(Readiness { readable, writable: true, closed: false })
            }
            Named::Number(_) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    fn work(&mut self) -> bool {
        self.node.iterate()
    }

    fn work_before_answers(&mut self) -> bool {
        self.node.iterate_before_answers(!self.pending_events.is_empty())
    }

    fn poll_event(&mut self) -> Option<SocketId> {
        if let Some(socket) = self.pending_events.pop_front() {
            return Some(socket);
        }
        if let Some(socket) = self.stalled.take(|id| !self.node.stalls(id)) {
            return Some(socket);
        }
        let stack = self.node.stack();
        let of_tcp = stack.tcp_poll_event().map(|ready| match ready {
            TcpEvent::Connection(id) => Named::Connection(id),
            TcpEvent::Listener(id) => Named::Listener(id),
        });
        of_tcp.or_else(|| stack.udp_poll_event().map(Named::Datagrams)).map(SocketId)
    }

    fn report(&mut self) -> io::Result<Vec<ReportPart>> {
        Ok(self.node.report_parts())
    }

    fn wake(&mut self) -> io::Result<Arc<OwnedFd>> {
        self.node.wake()
    }

    fn wait(&mut self, time: Option<Duration>) {
        self.node.wait(time);
    }

    fn fall_asleep(&mut self) -> io::Result<bool> {
        self.node.fall_asleep()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.node.descriptor()
    }

    fn ended(&self) -> Option<io::Error> {
        self.node.stops().then(|| io::Error::new(ErrorKind::NotConnected, "the network has gone down"))
    }
}
