//! The player of the stack: virtual time, one stack for each dialogue.

use std::net::SocketAddr;

use siga_stack::Stack;
use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::seed::Seed;
use siga_stack::sockets::{FastOpenSettings, ListenerId, TcpError, TcpId, TcpOptions, TcpSetting};
use siga_stack::stack::StackConfig;
use siga_stack::tcp::{Config, Keepalive};
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::address::Prefix;

use super::dialogue::{Act, Call, Dialogue};
use super::player::{Ends, Outcome, Peer, Record, Sent};

const DEVICE: DeviceId = DeviceId(0);

struct Host<'a> {
    stack: Stack,
    now: Instant,
    began: Instant,
    buffer: &'a mut [u8],
    peer: Peer,
    options: TcpOptions,
    listener: Option<ListenerId>,
    connection: Option<TcpId>,
    /// Whether a call has reported that the connection failed.
    has_failed: bool,
    steps: usize,
    record: Record,
}

/// Plays a dialogue with a stack. Each step begins at its time in `begun_us`, at which it began on the kernel's side, so that both
/// hosts measure the same round trips.
pub(crate) fn play(dialogue: &Dialogue, ends: Ends, begun_us: &[u64]) -> Record {
    let fast_open = FastOpenSettings { all_listeners: true, ..FastOpenSettings::default() };
    let mut stack = Stack::new(StackConfig { seed: Seed::simulated(1), fast_open, ..StackConfig::default() });
    let length = if ends.local.is_ipv4() { 9 } else { 48 };
    let addresses = Prefix::new(ends.local, length).into_iter().collect();
    let device = DeviceConfig { medium: Medium::Ip, mtu: super::MTU, addresses, agreed: Agreed::default() };
    let added = stack.add_device(device);
    debug_assert!(added.is_ok(), "{added:?}");
    let options = TcpOptions { config: Config { ecn: dialogue.ecn, ..Config::LINUX }, ..TcpOptions::default() };
    let began = Instant::from_ns(100_000_000_000);
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let mut host = Host {
        stack,
        now: Instant::from_ns(0),
        began,
        buffer: &mut buffer,
        peer: Peer::new(ends),
        options,
        listener: None,
        connection: None,
        has_failed: false,
        steps: 0,
        record: Record::default(),
    };
    host.pass_until(began);
    for (step, begun_us) in dialogue.steps.iter().zip(begun_us) {
        host.pass_until(began + Duration::from_micros(*begun_us));
        host.steps += 1;
        host.record.begun_us.push(*begun_us);
        let outcome = host.act(&step.act);
        host.record.outcomes.push(outcome);
        host.collect();
        let state = host.connection.and_then(|id| host.stack.tcp_state(id).ok());
        host.record.states.push(state);
    }
    host.record
}

impl Host<'_> {
    fn pass_until(&mut self, end: Instant) {
        while let Some(due) = self.stack.poll_timeout().filter(|due| *due < end) {
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
            self.collect();
        }
        self.now = end;
    }

    /// Records what the stack has to send.
    fn collect(&mut self) {
        while let Some(sent) = self.stack.poll_transmit(self.now, DEVICE, self.buffer) {
            if let Some(reply) = self.peer.receive(&self.buffer[..sent.len]) {
                let at_us = self.now.since(self.began).as_nanos() / 1_000;
                self.record.sent.push(Sent { steps: self.steps, at_us, reply });
            }
        }
    }

    fn give(&mut self, packet: &[u8]) {
        let (header, payload) = packet.split_at(packet.len().min(HEADER_BYTES_MAX));
        // The record shows how the stack answers, so the reason of a drop is not needed.
        let _handled = self.stack.handle_frame(self.now, DEVICE, Received::unmarked(header, payload));
    }

    fn act(&mut self, act: &Act) -> Option<Outcome> {
        match act {
            Act::Call(call) => Some(self.call(*call)),
            Act::Peer(segment) => {
                let packet = self.peer.packet(segment);
                self.give(&packet);
                None
            }
            Act::Error(error) => {
                if let Some(packet) = self.peer.error(*error) {
                    self.give(&packet);
                }
                None
            }
            Act::Wait => None,
        }
    }

    fn call(&mut self, call: Call) -> Outcome {
        let Ends { local, local_port, remote, remote_port } = self.peer.ends;
        let local = SocketAddr::new(local, local_port);
        match call {
            Call::Listen => match self.stack.tcp_listen(local, super::BACKLOG, &self.options) {
                Ok(listener) => {
                    self.listener = Some(listener);
                    Outcome::Done
                }
                Err(error) => failed(error),
            },
            Call::Connect | Call::ConnectWith(_) if self.connection.is_some() => Outcome::NoSocket,
            Call::ConnectWith(count) => {
                let (remote, options) =
                    (SocketAddr::new(remote, remote_port), TcpOptions { fast_open: true, ..self.options });
                match self.stack.tcp_connect(self.now, local, remote, &options) {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        // Without a cookie, the SYN carries no data, and the call on a kernel socket would wait.
                        let is_deferred =
                            self.stack.tcp_readiness(connection).is_ok_and(|readiness| readiness.writable);
                        if is_deferred { self.use_connection(connection, Call::Send(count)) } else { Outcome::Blocked }
                    }
                    Err(error) => failed(error),
                }
            }
            Call::Connect => {
                let remote = SocketAddr::new(remote, remote_port);
                match self.stack.tcp_connect(self.now, local, remote, &self.options) {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        Outcome::Blocked
                    }
                    Err(error) => failed(error),
                }
            }
            Call::Accept => self.accept(),
            Call::Send(_)
            | Call::SendUrgent(_)
            | Call::Receive(_)
            | Call::Shutdown
            | Call::Close
            | Call::Abort
            | Call::NoDelay(_)
            | Call::Keepalive(..)
            | Call::UserTimeoutMs(_) => {
                let outcome = self.connection.map_or(Outcome::NoSocket, |id| self.use_connection(id, call));
                self.has_failed |= outcome == Outcome::Failed;
                // The kernel reports a failure only once, and then the end of the stream. So both players treat them alike.
                if self.has_failed && outcome == Outcome::End { Outcome::Failed } else { outcome }
            }
        }
    }

    fn accept(&mut self) -> Outcome {
        let (Some(listener), None) = (self.listener, self.connection) else { return Outcome::NoSocket };
        match self.stack.tcp_accept(listener) {
            Ok(Some((connection, _))) => {
                self.connection = Some(connection);
                Outcome::Done
            }
            Ok(None) => Outcome::Blocked,
            Err(error) => failed(error),
        }
    }

    fn use_connection(&mut self, id: TcpId, call: Call) -> Outcome {
        let (now, stack) = (self.now, &mut self.stack);
        let zeros = |bytes: u32| vec![0; usize::try_from(bytes).unwrap_or(0)];
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let sent = |bytes: u32, result: Result<usize, TcpError>| match result {
            Ok(0) if bytes > 0 => Outcome::Blocked,
            Ok(count) => Outcome::Bytes(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(error) => failed(error),
        };
        let done = |result: Result<(), TcpError>| result.map_or_else(failed, |()| Outcome::Done);
        match call {
            Call::Send(bytes) => sent(bytes, stack.tcp_send(now, id, &zeros(bytes))),
            Call::SendUrgent(bytes) => sent(bytes, stack.tcp_send_urgent(now, id, &zeros(bytes))),
            Call::Receive(bytes) => match stack.tcp_receive(now, id, &mut zeros(bytes)) {
                Ok(None) => Outcome::Blocked,
                Ok(Some(0)) => Outcome::End,
                other => sent(bytes, other.map(Option::unwrap_or_default)),
            },
            Call::Shutdown => done(stack.tcp_shutdown(now, id)),
            Call::Close => {
                self.connection = None;
                done(stack.tcp_close(now, id))
            }
            Call::Abort => {
                self.connection = None;
                done(stack.tcp_abort(now, id))
            }
            Call::NoDelay(on) => done(stack.tcp_set(now, id, TcpSetting::NoDelay(on))),
            Call::Keepalive(idle, interval, probes) => {
                let keepalive = Keepalive { idle: seconds(idle), interval: seconds(interval), probes };
                done(stack.tcp_set(now, id, TcpSetting::Keepalive(Some(keepalive))))
            }
            Call::UserTimeoutMs(ms) => {
                let timeout = (ms > 0).then(|| Duration::from_millis(ms.into()));
                done(stack.tcp_set(now, id, TcpSetting::UserTimeout(timeout)))
            }
            Call::Listen | Call::Connect | Call::ConnectWith(_) | Call::Accept => Outcome::NoSocket,
        }
    }
}

fn failed(error: TcpError) -> Outcome {
    match error {
        TcpError::Failed(_) => Outcome::Failed,
        TcpError::Closed
        | TcpError::InUse
        | TcpError::NotOurs
        | TcpError::Full
        | TcpError::Address
        | TcpError::Dropped(_)
        | TcpError::PortsExhausted
        | TcpError::ShutDown
        | TcpError::NotOpen
        | TcpError::FastOpenOff
        | TcpError::Setting(_)
        | TcpError::Range => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::packet::{ACK, FIN, PSH, SYN};
    use crate::differential::{ends, recorded};

    #[test]
    fn the_record_of_the_stack_has_the_outcomes_and_relative_numbers() {
        let dialogue = &recorded()[0];
        let record = play(dialogue, ends(7, dialogue), &dialogue.planned_us());
        let outcomes: Vec<Outcome> = record.outcomes.iter().filter_map(|outcome| *outcome).collect();
        let (done, bytes) = (Outcome::Done, Outcome::Bytes);
        assert_eq!(outcomes, [done, done, bytes(1_000), bytes(3_000), done, Outcome::End, done]);
        let sent: Vec<(u8, u32, u32, u32)> = record
            .sent
            .iter()
            .map(|sent| (sent.reply.bits & !PSH, sent.reply.seq, sent.reply.ack, sent.reply.len))
            .collect();
        let expected = [
            (SYN | ACK, 0, 1, 0),
            (ACK, 1, 1_001, 0),
            (ACK, 1, 1_001, 1_448),
            (ACK, 1_449, 1_001, 1_448),
            (ACK, 2_897, 1_001, 104),
            (FIN | ACK, 3_001, 1_001, 0),
            (ACK, 3_002, 1_002, 0),
        ];
        assert_eq!(sent, expected);
    }
}
