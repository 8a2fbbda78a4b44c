//! A flow: one side of one connection, which reads, writes and ends the connection as its [`Conduct`](super::Conduct) says.
//!
//! A flow waits until the connection is established. Then it reads until no more bytes are available, and writes until the stack
//! accepts fewer bytes than the flow offered. Then it waits for an event. These results and events are all that a program needs to
//! know.

use std::rc::Rc;

use siga_stack::Stack;
use siga_stack::sockets::{TcpError, TcpId};
use siga_stack::tcp::{ConnectionReadiness, Failure, StateName};
use siga_stack::time::{Duration, Instant};

use super::{Conduct, End, HEAD_BYTES, Last, Report, Script, content, head, parse_head};
use crate::check::Stream;
use crate::trace::Side;

/// One side of one connection.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: TcpId,
    scripts: Rc<[Script]>,
    side: Side,
    /// The script. An opening side knows its script from the beginning. An accepting side learns it from the script number that
    /// arrives first.
    part: Option<Part>,
    /// The bytes of the encoded script number that side A has sent, or that side B has received.
    head: Vec<u8>,
    began: Instant,
    readable: bool,
    writable: bool,
    read_due: Instant,
    write_due: Instant,
    written: u64,
    ended: bool,
    shut: bool,
    /// Why the stack accepts no more bytes: the connection has failed. Reads report the failure only after all received bytes.
    refused: Option<Failure>,
}

/// The script and this side's part in it, and the state of the other side's stream.
#[derive(Debug)]
struct Part {
    script: usize,
    conduct: Conduct,
    peer: Stream,
}

/// The result of a flow that has ended.
#[derive(Debug)]
pub(super) enum Over {
    Report(Report),
    /// The flow ended before it knew its script.
    Nameless,
}

type Step = Result<Option<Over>, String>;

impl Flow {
    /// Creates the flow for a connection that was opened or accepted. `script` is the index of the script if the flow knows it.
    pub(super) fn new(now: Instant, id: TcpId, scripts: &Rc<[Script]>, side: Side, script: Option<usize>) -> Self {
        let accepted = script.is_none();
        let mut flow = Self {
            id,
            scripts: Rc::clone(scripts),
            side,
            part: None,
            head: Vec::new(),
            began: now,
            // An accepted connection may already have bytes, and no event announces these.
            readable: accepted,
            writable: accepted,
            read_due: now,
            write_due: now,
            written: 0,
            ended: false,
            shut: false,
            refused: None,
        };
        if let Some(script) = script {
            flow.know(now, script);
        }
        flow
    }

    /// Processes an event. `state` says whether the connection is readable or writable, or has failed.
    pub(super) const fn note_readiness(&mut self, state: ConnectionReadiness) {
        self.readable |= state.readable;
        // A flow that only writes must learn of a failure, too, so it tries to write.
        self.writable |= state.writable || state.closed;
    }

    /// Returns the next time at which the flow acts without an event.
    pub(super) fn due(&self) -> Option<Instant> {
        let conduct = self.part.as_ref().map(|part| part.conduct);
        let abort = conduct.and_then(|conduct| match conduct.end {
            End::AbortAfter(time) => Some(self.began + time),
            End::Shutdown | End::AfterPeer | End::Close => None,
        });
        let read = (self.readable && !self.ended).then_some(self.read_due);
        let write = (self.writable && self.allowed() > 0).then_some(self.write_due);
        [abort, read, write].into_iter().flatten().min()
    }

    /// Reads, writes and ends the connection, until the flow has to wait. Returns the result if the flow has ended.
    pub(super) fn work(&mut self, stack: &mut Stack, now: Instant) -> Step {
        if self.is_abort_due(now) {
            stack.tcp_abort(now, self.id).map_err(|error| format!("aborting: {error:?}"))?;
            return Ok(Some(self.over(Last::Aborted)));
        }
        // The event can be an ICMP error. Writing or shutting down would end a connection that is not established yet.
        if matches!(stack.tcp_state(self.id), Ok(StateName::SynSent | StateName::SynReceived)) {
            (self.readable, self.writable) = (false, false);
            return Ok(None);
        }
        loop {
            let before = (self.written, self.arrived(), self.ended);
            if let Some(over) = self.read(stack, now)? {
                return Ok(Some(over));
            }
            if let Some(over) = self.write(stack, now)? {
                return Ok(Some(over));
            }
            if let Some(over) = self.end(stack, now)? {
                return Ok(Some(over));
            }
            if before == (self.written, self.arrived(), self.ended) {
                return Ok(None);
            }
        }
    }

    fn is_abort_due(&self, now: Instant) -> bool {
        let end = self.part.as_ref().map(|part| part.conduct.end);
        matches!(end, Some(End::AbortAfter(time)) if self.began + time <= now)
    }

    /// Returns how many bytes of the stream have arrived, plus how many bytes of the script number were sent or received.
    pub(super) fn arrived(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.peer.arrived()) + u64::try_from(self.head.len()).unwrap_or(0)
    }

    /// Returns the index of the flow's script, if the flow knows it.
    pub(super) fn script(&self) -> Option<usize> {
        self.part.as_ref().map(|part| part.script)
    }

    /// Sets the script of the flow.
    fn know(&mut self, now: Instant, script: usize) {
        let Some(known) = self.scripts.get(script) else { return };
        let mut peer = Stream::new(content(script, self.side.other()));
        peer.sent(known.conduct(self.side.other()).bytes);
        self.began = now;
        self.part = Some(Part { script, conduct: *known.conduct(self.side), peer });
    }

    fn read(&mut self, stack: &mut Stack, now: Instant) -> Step {
        while self.readable && !self.ended && self.read_due <= now {
            let most = match &self.part {
                Some(part) if self.side == Side::A || self.head.len() == HEAD_BYTES => part.conduct.read_bytes_max,
                Some(_) | None => HEAD_BYTES - self.head.len(),
            };
            let mut into = vec![0; most.max(1)];
            if stack.tcp_receive(now, self.id, &mut []).is_ok_and(|count| count.is_some_and(|count| count > 0)) {
                return Err("bytes were received into nothing".to_owned());
            }
            match stack.tcp_receive(now, self.id, &mut into) {
                Ok(None) => self.readable = false,
                Ok(Some(0)) => {
                    self.ended = true;
                    return self.read_the_end(stack, now);
                }
                Ok(Some(count)) => self.take(now, &into[..count])?,
                Err(TcpError::Failed(failure)) => return self.fail(stack, now, failure),
                Err(error) => return Err(format!("receiving: {error:?}")),
            }
        }
        Ok(None)
    }

    /// Processes received bytes: first those of the script number, then those of the stream.
    fn take(&mut self, now: Instant, bytes: &[u8]) -> Result<(), String> {
        if self.side == Side::B && self.head.len() < HEAD_BYTES {
            self.head.extend_from_slice(bytes);
            let Ok(whole) = <[u8; HEAD_BYTES]>::try_from(self.head.as_slice()) else { return Ok(()) };
            let script = parse_head(whole).filter(|script| *script < self.scripts.len());
            let script = script
                .ok_or_else(|| format!("a connection begins with {whole:?}, which is not the number of a script"))?;
            match &self.part {
                Some(part) if part.script != script => {
                    return Err(format!(
                        "a connection belongs to script {}, but received the number of script {script}",
                        part.script
                    ));
                }
                Some(_) => {}
                None => self.know(now, script),
            }
            return Ok(());
        }
        let part = self.part.as_mut().ok_or("bytes arrived before the number of the script")?;
        part.peer.received(bytes).map_err(|error| format!("script {}, {:?}: {error}", part.script, self.side))?;
        if !part.conduct.read_pause.is_zero() {
            self.read_due = now + part.conduct.read_pause;
        }
        Ok(())
    }

    /// Processes the end of the other side's stream. Checks that a further read reports the end again.
    fn read_the_end(&mut self, stack: &mut Stack, now: Instant) -> Step {
        let again = stack.tcp_receive(now, self.id, &mut [0; 64]);
        if again != Ok(Some(0)) {
            return Err(format!("a read after the end of the stream returned {again:?}"));
        }
        if self.part.is_some() {
            return Ok(None);
        }
        stack.tcp_close(now, self.id).map_err(|error| format!("closing: {error:?}"))?;
        Ok(Some(Over::Nameless))
    }

    /// Processes a failure of the connection. Checks that further reads and writes report the failure again.
    fn fail(&mut self, stack: &mut Stack, now: Instant, failure: Failure) -> Step {
        let again = stack.tcp_receive(now, self.id, &mut [0; 64]);
        if again != if self.ended { Ok(Some(0)) } else { Err(TcpError::Failed(failure)) } {
            return Err(format!("after the failure {failure:?}, a read returned {again:?}"));
        }
        if stack.tcp_send(now, self.id, b"x").is_ok() {
            return Err(format!("after the failure {failure:?}, the stack accepted bytes to send"));
        }
        stack.tcp_close(now, self.id).map_err(|error| format!("closing: {error:?}"))?;
        Ok(Some(self.over(Last::Failed(failure))))
    }

    /// Returns the number of bytes that the flow may write now, including the rest of the script number.
    fn allowed(&self) -> u64 {
        let Some(part) = &self.part else { return 0 };
        if self.shut || self.refused.is_some() {
            return 0;
        }
        let head_left = self.head_left();
        let conduct = &part.conduct;
        let turn = conduct.turns.map_or(u64::MAX, |turns| {
            let rounds = part.peer.arrived().checked_div(turns.peer_bytes).unwrap_or(u64::MAX);
            turns.own_bytes.saturating_mul(rounds.saturating_add(u64::from(turns.first)))
        });
        head_left + conduct.bytes.min(turn).saturating_sub(self.written)
    }

    fn head_left(&self) -> u64 {
        match self.side {
            Side::A => u64::try_from(HEAD_BYTES - self.head.len()).unwrap_or(0),
            Side::B => 0,
        }
    }

    fn write(&mut self, stack: &mut Stack, now: Instant) -> Step {
        while self.writable && self.write_due <= now {
            let allowed = self.allowed();
            let Some(part) = self.part.as_ref().filter(|_| allowed > 0) else { return Ok(None) };
            let (script, conduct) = (part.script, part.conduct);
            let mut bytes = vec![0; conduct.write_bytes_max.min(usize::try_from(allowed).unwrap_or(usize::MAX))];
            let head_left = self.head_left();
            if head_left > 0 {
                bytes = head(script)[self.head.len()..].to_vec();
            } else {
                content(script, self.side).fill(self.written, &mut bytes);
            }
            if stack.tcp_send(now, self.id, &[]).is_ok_and(|taken| taken > 0) {
                return Err("more bytes were taken than there were".to_owned());
            }
            let taken = match stack.tcp_send(now, self.id, &bytes) {
                Ok(taken) => taken,
                Err(TcpError::Failed(failure)) => {
                    self.refused = Some(failure);
                    return Ok(None);
                }
                Err(error) => return Err(format!("sending: {error:?}")),
            };
            self.writable = taken == bytes.len();
            if head_left > 0 {
                self.head.extend_from_slice(&bytes[..taken]);
            } else {
                self.written += u64::try_from(taken).unwrap_or(0);
                if !conduct.write_pause.is_zero() {
                    self.write_due = now + conduct.write_pause;
                }
            }
        }
        Ok(None)
    }

    /// Shuts down or closes the connection if the script says so for the current state.
    fn end(&mut self, stack: &mut Stack, now: Instant) -> Step {
        // After the end of the other side's stream, reads report only this end. Only a write reports the failure.
        if let Some(failure) = self.refused.filter(|_| self.ended) {
            return self.fail(stack, now, failure);
        }
        let Some(part) = &self.part else { return Ok(None) };
        let all_written = self.head_left() == 0 && self.written == part.conduct.bytes;
        let (script, end) = (part.script, part.conduct.end);
        // Side A sends the script number only when the connection is established. So `all_written` implies that the connection is
        // established.
        let close = match end {
            End::Shutdown if all_written && !self.shut && self.refused.is_none() => {
                stack.tcp_shutdown(now, self.id).map_err(|error| format!("shutting down: {error:?}"))?;
                self.shut = true;
                if stack.tcp_send(now, self.id, b"x").is_ok() {
                    return Err("the stack accepted bytes to send after the program had shut down its side".to_owned());
                }
                self.ended
            }
            End::Shutdown => self.shut && self.ended,
            End::AfterPeer => all_written && self.ended,
            // If side B closed with unread bytes, the close would become a reset. So side B waits for the complete script number.
            End::Close => all_written && (self.side == Side::A || self.head.len() == HEAD_BYTES),
            End::AbortAfter(_) => false,
        };
        if !close {
            return Ok(None);
        }
        let state = stack
            .tcp_state(self.id)
            .map_err(|error| format!("reading the state of the connection failed: {error:?}"))?;
        if self.ended && !self.is_legal(state) {
            return Err(format!(
                "script {script}, side {:?}: the program closes the connection in state {state:?}, which is not possible",
                self.side
            ));
        }
        self.shut = true;
        stack.tcp_close(now, self.id).map_err(|error| format!("closing: {error:?}"))?;
        if stack.tcp_state(self.id) != Err(TcpError::Closed) {
            return Err("the stack still knows a connection that the program has closed".to_owned());
        }
        Ok(Some(self.over(Last::Closed)))
    }

    /// Returns true if a connection can be in this state (RFC 9293 3.3.2) after it has received the end of the other side's stream.
    /// If the connection has failed since then, its state is CLOSED.
    fn is_legal(&self, state: StateName) -> bool {
        match state {
            StateName::CloseWait => !self.shut,
            StateName::Closing | StateName::LastAck | StateName::TimeWait => self.shut,
            StateName::Closed => true,
            StateName::SynSent
            | StateName::SynReceived
            | StateName::Established
            | StateName::FinWait1
            | StateName::FinWait2 => false,
        }
    }

    fn over(&self, last: Last) -> Over {
        let Some(part) = &self.part else { return Over::Nameless };
        Over::Report(Report {
            script: part.script,
            side: self.side,
            written: self.written,
            read: part.peer.arrived(),
            ended: self.ended,
            shut: self.shut,
            last,
        })
    }

    /// Describes the state of the flow in one line.
    pub(super) fn describe(&self, stack: &Stack) -> String {
        let script = self.script();
        let state = stack.tcp_state(self.id);
        let Self { side, written, ended, shut, readable, writable, .. } = self;
        let arrived = self.arrived();
        format!(
            "script {script:?}, {side:?}, {state:?}: written {written}, arrived {arrived}, ended {ended}, shut {shut}, readable \
             {readable}, writable {writable}"
        )
    }
}

/// Shortens `pause` if necessary, so that `portions` pauses together last at most `within`.
pub(crate) fn bounded_pause(pause: Duration, portions: u64, within: Duration) -> Duration {
    pause.min(within / u32::try_from(portions.max(1)).unwrap_or(u32::MAX))
}
