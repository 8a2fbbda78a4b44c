//! Code that several methods of the client share: sending commands to the guest and waiting for its answers.

use super::Client;
use super::connection::{Connection, Kind, Pool, Socket, Stage};
use crate::BLOCK_BYTES;
use crate::extent::{Extent, Extents, size};
use crate::limits::{ANSWER_TIME_MAX, APPLICATION_SOCKETS_MAX};
use crate::options::SocketOptions;
use crate::record::{Command, GUEST_NUMBERS, Number};
use siga_ring::clock::Ticks;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Instant;

impl Client {
    pub(super) fn alive(&self) -> io::Result<()> {
        self.ended().map_or(Ok(()), Err)
    }

    pub(super) fn give_up_guest(&mut self, kind: ErrorKind, why: String) {
        if self.ended.is_none() {
            self.ended = Some((kind, why));
        }
    }

    pub(super) fn violated(&mut self, what: &str) {
        self.give_up_guest(ErrorKind::InvalidData, format!("the guest violated the protocol: {what}"));
    }

    /// Gives a new socket a number, and sends `command`, which asks the guest to make the socket.
    pub(super) fn ask(&mut self, kind: Kind, command: Command) -> io::Result<Number> {
        self.alive()?;
        if self.sockets.len() >= APPLICATION_SOCKETS_MAX {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let number = self.take_number();
        self.sockets.insert(number, Socket::new(kind, Stage::Asked, false));
        self.send_command_now(number, command);
        Ok(number)
    }

    /// Returns the next number that no socket has.
    pub(super) fn take_number(&mut self) -> Number {
        while self.sockets.contains_key(&self.next) {
            self.next = (self.next + 1) % GUEST_NUMBERS;
        }
        let number = self.next;
        self.next = (self.next + 1) % GUEST_NUMBERS;
        number
    }

    /// Sends a command, or queues it until there is room. The guest first learns which bytes the application has read.
    pub(super) fn send_command(&mut self, number: Number, command: Command) {
        self.report_read();
        self.queue_command(number, command);
    }

    /// Queues the report of the bytes that the application has read.
    pub(super) fn report_read(&mut self) {
        if let Some((number, bytes, _)) = self.read.take() {
            self.queue_command(number, Command::Consumed { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
        }
    }

    fn queue_command(&mut self, number: Number, command: Command) {
        if !self.unsent.is_empty() || !self.try_send_command(number, &command) {
            self.unsent.push_back((number, command));
        }
    }

    /// Waits until all commands are sent, because the application may make no later call that could send them. The wait ends at
    /// the guest's next poll iteration, because the guest takes commands independently of the traffic on its networks.
    pub(super) fn drain_commands(&mut self) {
        let until = Instant::now() + ANSWER_TIME_MAX;
        while !self.unsent.is_empty() && self.ended.is_none() && !self.guest_stalled {
            // `work` may send all commands without an event of the guest.
            if !self.work_within_call() && !self.unsent.is_empty() {
                let left = until.saturating_duration_since(Instant::now());
                self.guest_stalled = left.is_zero();
                self.wait(Some(left));
            }
        }
    }

    /// Sends and publishes a command.
    pub(super) fn send_command_now(&mut self, number: Number, command: Command) {
        self.send_command(number, command);
        self.link.publish();
        self.drain_commands();
    }

    /// Works within a call that does not wait. This may consume what would have woken another thread, which sleeps on the descriptors. So it
    /// wakes that thread.
    pub(super) fn work_within_call(&mut self) -> bool {
        let has_sleeper = self.link.has_sleeper();
        let has_news = self.work();
        if has_sleeper && !self.link.has_sleeper() || self.link.was_called {
            self.link.call();
        }
        has_news
    }

    /// Processes pending events. Without this call, a program that only writes and closes would never process events, and would
    /// run out of blocks.
    pub(super) fn catch_up(&mut self) {
        if self.link.events.is_ready().unwrap_or(true) {
            self.work_within_call();
        }
    }

    /// Sends a command if there is room for it. Returns false if there is no room.
    pub(super) fn try_send_command(&mut self, number: Number, command: &Command) -> bool {
        let tag = command.write(number, &mut self.record);
        match self.link.commands.reserve(self.record.len()) {
            Ok(Some(into)) => into.copy_from_slice(&self.record),
            Ok(None) => return false,
            Err(error) => {
                self.violated(&error.to_string());
                return true;
            }
        }
        self.link.commands.commit(self.record.len(), tag);
        true
    }

    /// Reports the bytes that the application has read, and sends queued commands. Returns true if sockets that lacked blocks can continue.
    pub(super) fn flush(&mut self) -> bool {
        self.report_read();
        self.unreported = 0;
        self.flush_commands()
    }

    /// Sends queued commands. Returns true if sockets that lacked blocks can continue.
    pub(super) fn flush_commands(&mut self) -> bool {
        while let Some((number, command)) = self.unsent.pop_front() {
            if !self.try_send_command(number, &command) {
                self.unsent.push_front((number, command));
                break;
            }
            self.guest_stalled = false;
        }
        self.link.publish();
        // While no block is free, room for commands does not help these sockets. Only an event of the guest, which frees blocks,
        // can let them continue.
        let could_go_on = !self.starved.is_empty() && !self.free.is_empty();
        self.link.wants_room = !self.unsent.is_empty() || could_go_on;
        let goes_on = could_go_on && self.unsent.is_empty() && self.link.has_room();
        let starved = if goes_on { std::mem::take(&mut self.starved) } else { Vec::new() };
        for number in &starved {
            self.announce(*number);
        }
        !starved.is_empty()
    }

    pub(super) fn announce(&mut self, number: Number) {
        if let Some(socket) = self.sockets.get_mut(&number)
            && !socket.announced
        {
            socket.announced = true;
            self.pending_events.push_back(number);
        }
    }

    pub(super) fn socket(&mut self, number: Number) -> io::Result<&mut Socket> {
        self.sockets.get_mut(&number).ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    pub(super) fn connection(&mut self, number: Number) -> io::Result<&mut Connection> {
        self.alive()?;
        match &mut self.socket(number)?.kind {
            Kind::Connection(connection) => Ok(connection),
            Kind::Listener { .. } | Kind::Datagrams(_) | Kind::Reserved => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Waits until the guest has made or refused a socket.
    pub(super) fn await_made(&mut self, number: Number) -> io::Result<SocketAddr> {
        self.await_answer(number, |socket| match socket.stage {
            Stage::Made(local) => Some(Ok(local)),
            Stage::Refused(why) => Some(Err(why)),
            Stage::Unwanted | Stage::Closing => Some(Err(ErrorKind::NotConnected)),
            Stage::Asked => None,
        })
    }

    /// Waits until the guest has answered all commands about multicast groups and the remote address of a socket. Returns the last answer.
    pub(super) fn await_group_answers(&mut self, number: Number) -> io::Result<()> {
        self.await_answer(number, |socket| match &socket.kind {
            Kind::Datagrams(datagrams) if datagrams.unanswered > 0 => None,
            Kind::Datagrams(datagrams) => Some(datagrams.failure.map_or(Ok(()), Err)),
            Kind::Connection(_) | Kind::Listener { .. } | Kind::Reserved => Some(Err(ErrorKind::InvalidInput)),
        })
    }

    /// Waits until `answer` returns a value. The guest answers in its next poll iteration.
    pub(super) fn await_answer<T>(
        &mut self,
        number: Number,
        answer: impl Fn(&Socket) -> Option<Result<T, ErrorKind>>,
    ) -> io::Result<T> {
        let until = Instant::now() + ANSWER_TIME_MAX;
        loop {
            self.alive()?;
            let socket = self.sockets.get(&number).ok_or(ErrorKind::NotConnected)?;
            if let Some(answer) = answer(socket) {
                return answer.map_err(Into::into);
            }
            if !self.work_within_call() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                self.wait(Some(left));
            }
        }
    }

    /// Makes a socket and waits for the guest's answer.
    pub(super) fn open(&mut self, kind: Kind, command: Command) -> io::Result<Number> {
        let number = self.ask(kind, command)?;
        match self.await_made(number) {
            Ok(_) => Ok(number),
            Err(error) => {
                self.close(number);
                Err(error)
            }
        }
    }

    /// Copies as many bytes as fit into free blocks, and returns their extents.
    pub(super) fn write_blocks(&mut self, number: Number, bytes: &[u8]) -> Extents {
        let mut extents = Extents::new();
        let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.get_mut(&number) else {
            return extents;
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            if connection.blocks.is_empty() || connection.filled == BLOCK_BYTES {
                let Some(block) = self.free.pop() else { break };
                connection.blocks.push_back((block, 0));
                connection.filled = 0;
            }
            let Some((block, under_way)) = connection.blocks.back_mut() else { break };
            let (part, behind) = rest.split_at(rest.len().min(BLOCK_BYTES - connection.filled));
            let at = size(*block) * BLOCK_BYTES + connection.filled;
            let written = self.arena.write(at, part);
            debug_assert_eq!(written, Ok(()), "a block is in its arena");
            *under_way += part.len();
            connection.filled += part.len();
            connection.under_way += part.len();
            let extent = Extent::new(at, part.len());
            match extents.last_mut() {
                Some(last) if last.at() + last.len() == at => last.len += extent.len,
                Some(_) | None => extents.push(extent),
            }
            rest = behind;
        }
        extents
    }

    pub(super) fn starve(&mut self, number: Number) -> io::Error {
        if !self.starved.contains(&number) {
            self.starved.push(number);
        }
        self.link.wants_room = !self.free.is_empty();
        ErrorKind::WouldBlock.into()
    }

    /// Notes that the application has read bytes, for a report to the guest. If many bytes are unreported, the report is published
    /// immediately, so that the guest opens the window for the peer in time.
    pub(super) fn consume(&mut self, number: Number, bytes: usize) {
        match &mut self.read {
            Some((of, count, _)) if *of == number => *count += bytes,
            Some(_) | None => {
                self.report_read();
                self.read = Some((number, bytes, Ticks::now()));
            }
        }
        self.unreported += bytes;
        if self.unreported >= self.unreported_max {
            self.flush();
        }
        self.drain_commands();
    }

    /// Records the options of a connection. With a small receive buffer, consumed bytes are reported sooner, so that the guest opens its
    /// window in time.
    pub(super) fn note_options(&mut self, options: &SocketOptions) {
        let window = options.receive_buffer.unwrap_or(usize::MAX);
        self.unreported_max = self.unreported_max.min(window / 4);
    }

    pub(super) fn give_up(&mut self, number: Number, command: Command) {
        let Ok(socket) = self.socket(number) else { return };
        if let Kind::Connection(connection) = &socket.kind
            && connection.carrier.is_broken
        {
            // The guest already knows that the connection ends.
            socket.stage = Stage::Closing;
            if connection.carrier.is_gone {
                self.sockets.remove(&number);
            }
            return;
        }
        match socket.stage {
            Stage::Asked => socket.stage = Stage::Unwanted,
            Stage::Refused(_) => _ = self.sockets.remove(&number),
            Stage::Unwanted | Stage::Closing => {}
            Stage::Made(_) => {
                socket.stage = Stage::Closing;
                let (orphans, is_shared) = match &mut socket.kind {
                    Kind::Listener { incoming, pool } => (std::mem::take(incoming), *pool != Pool::Own),
                    Kind::Connection(_) | Kind::Datagrams(_) | Kind::Reserved => (VecDeque::new(), false),
                };
                for orphan in orphans {
                    if is_shared {
                        self.give_back(orphan, number);
                    } else {
                        self.give_up(orphan, Command::Abort);
                    }
                }
                self.send_command(number, command);
                self.link.publish();
            }
        }
    }
}
