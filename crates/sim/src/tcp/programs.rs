//! The programs of one host: those that listen, those that open, and the connections of both.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use siga_stack::Stack;
use siga_stack::sockets::{ListenerId, TcpError, TcpEvent, TcpId, TcpOptions};
use siga_stack::time::{Duration, Instant};

use super::flow::{Flow, Over};
use super::{End, Report, Script};
use crate::trace::Side;

/// A port in use is requested again after this time.
const RETRY: Duration = Duration::from_secs(1);

/// A program that accepts connections.
#[derive(Debug, Clone, Copy)]
pub struct Listen {
    /// Where.
    pub local: SocketAddr,
    /// See [`Stack::tcp_listen`].
    pub backlog: usize,
    /// Of the connections.
    pub options: TcpOptions,
    /// Between accepting one and the next.
    pub accept_pause: Duration,
    /// It does not listen between these two times.
    pub closed: Option<[Instant; 2]>,
}

/// A program that opens connections.
#[derive(Debug, Clone)]
pub struct Dial {
    /// From where: port 0 is any.
    pub local: SocketAddr,
    /// To where.
    pub remote: SocketAddr,
    /// Of the connections.
    pub options: TcpOptions,
    /// Which scripts, in this order.
    pub scripts: VecDeque<usize>,
    /// Connections at a time.
    pub at_once: usize,
    /// When it begins.
    pub begin: Instant,
    /// Between opening one and the next.
    pub pause: Duration,
    /// The side it takes: A, or B where the other host opens the same connection at the same time.
    pub side: Side,
}

#[derive(Debug)]
struct Listening {
    listen: Listen,
    id: Option<ListenerId>,
    acceptable: bool,
    accept_due: Instant,
    /// When it closes or opens next.
    changes: VecDeque<Instant>,
}

#[derive(Debug)]
struct Dialing {
    dial: Dial,
    due: Instant,
    live: Vec<TcpId>,
}

/// What uses TCP on one host.
#[derive(Debug)]
pub struct Programs {
    scripts: Rc<[Script]>,
    listening: Vec<Listening>,
    dialing: Vec<Dialing>,
    flows: Vec<Flow>,
    /// The reports of the connections.
    pub reports: Vec<Report>,
}

impl Default for Programs {
    fn default() -> Self {
        Self::new(Rc::new([]))
    }
}

impl Programs {
    /// None yet; the scripts that they will know.
    pub const fn new(scripts: Rc<[Script]>) -> Self {
        Self { scripts, listening: Vec::new(), dialing: Vec::new(), flows: Vec::new(), reports: Vec::new() }
    }

    /// Adds a program that accepts connections.
    ///
    /// # Errors
    /// The stack's error.
    pub fn listen(&mut self, stack: &mut Stack, listen: Listen) -> Result<(), TcpError> {
        let id = Some(stack.tcp_listen(listen.local, listen.backlog, &listen.options)?);
        let changes = listen.closed.into_iter().flatten().collect();
        let accept_due = Instant::default();
        self.listening.push(Listening { listen, id, acceptable: false, accept_due, changes });
        Ok(())
    }

    /// Adds a program that opens connections.
    pub fn dial(&mut self, dial: Dial) {
        self.dialing.push(Dialing { due: dial.begin, dial, live: Vec::new() });
    }

    /// Whether every connection that was to be is over.
    pub fn is_done(&self) -> bool {
        self.flows.is_empty() && self.dialing.iter().all(|dialing| dialing.dial.scripts.is_empty())
    }

    /// Bytes that have arrived over connections that are not over yet.
    pub fn bytes_arrived(&self) -> u64 {
        self.flows.iter().map(Flow::arrived).sum()
    }

    /// What the connections wait for, in a few words each.
    pub fn describe(&self, stack: &Stack) -> Vec<String> {
        self.flows.iter().map(|flow| flow.describe(stack)).collect()
    }

    /// The time of the next action of a program without an event.
    pub fn due(&self) -> Option<Instant> {
        let accept = self.listening.iter().filter(|listening| listening.acceptable).map(|each| each.accept_due);
        let change = self.listening.iter().filter_map(|listening| listening.changes.front().copied());
        let dial = self.dialing.iter().filter(|dialing| dialing.may_open()).map(|dialing| dialing.due);
        let flows = self.flows.iter().filter_map(Flow::due);
        accept.chain(change).chain(dial).chain(flows).min()
    }

    /// Lets all of them do what they can.
    ///
    /// # Errors
    /// The stack broke a rule.
    pub fn work(&mut self, stack: &mut Stack, now: Instant) -> Result<(), String> {
        loop {
            self.listen_and_accept(stack, now)?;
            self.open(stack, now)?;
            for at in (0..self.flows.len()).rev() {
                if self.flows[at].due().is_some_and(|due| due <= now)
                    && let Some(over) = self.flows[at].work(stack, now)?
                {
                    self.finish(at, &over);
                }
            }
            if !self.hear(stack)? {
                return Ok(());
            }
        }
    }

    /// Handles the next event; false if there is none.
    fn hear(&mut self, stack: &mut Stack) -> Result<bool, String> {
        let mut any = false;
        while let Some(ready) = stack.tcp_poll_event() {
            any = true;
            match ready {
                TcpEvent::Connection(id) => {
                    let flow = self.flows.iter_mut().find(|flow| flow.id == id);
                    let flow = flow.ok_or_else(|| format!("news of {id:?}, which nobody has"))?;
                    let state = stack.tcp_readiness(id).map_err(|error| format!("news of {id:?}: {error:?}"))?;
                    flow.told(state);
                    // An ICMP error, or a peer that does not answer, is no reason to stop.
                    let heard = stack.tcp_take_soft_error(id);
                    heard.map_err(|error| format!("asking what was said of {id:?}: {error:?}"))?;
                }
                TcpEvent::Listener(id) => {
                    let listening = self.listening.iter_mut().find(|listening| listening.id == Some(id));
                    listening.ok_or_else(|| format!("news of {id:?}, which nobody has"))?.acceptable = true;
                }
            }
        }
        Ok(any)
    }

    fn finish(&mut self, at: usize, over: &Over) {
        let id = self.flows.swap_remove(at).id;
        for dialing in &mut self.dialing {
            dialing.live.retain(|live| *live != id);
        }
        match over {
            Over::Report(report) => self.reports.push(*report),
            Over::Nameless => {}
        }
    }

    fn listen_and_accept(&mut self, stack: &mut Stack, now: Instant) -> Result<(), String> {
        for listening in &mut self.listening {
            if listening.changes.front().is_some_and(|at| *at <= now) {
                listening.changes.pop_front();
                let Listen { local, backlog, options, .. } = listening.listen;
                listening.id = match listening.id {
                    Some(id) => {
                        listening.acceptable = false;
                        stack.tcp_unlisten(now, id).map_err(|error| format!("listening no more: {error:?}"))?;
                        None
                    }
                    None => Some(
                        stack
                            .tcp_listen(local, backlog, &options)
                            .map_err(|error| format!("listening again: {error:?}"))?,
                    ),
                };
            }
            while let (Some(id), true) = (listening.id, listening.acceptable && listening.accept_due <= now) {
                let accepted = stack.tcp_accept(id).map_err(|error| format!("accepting: {error:?}"))?;
                listening.acceptable = accepted.is_some();
                if let Some((id, _)) = accepted {
                    self.flows.push(Flow::new(now, id, &self.scripts, Side::B, None));
                    listening.accept_due = now + listening.listen.accept_pause;
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, stack: &mut Stack, now: Instant) -> Result<(), String> {
        for dialing in &mut self.dialing {
            while dialing.may_open() && dialing.due <= now {
                let Dial { local, remote, options, side, pause, .. } = dialing.dial;
                match stack.tcp_connect(now, local, remote, &options) {
                    Ok(id) => {
                        let Some(script) = dialing.dial.scripts.pop_front() else { break };
                        let flow = Flow::new(now, id, &self.scripts, side, Some(script));
                        // Shutting down before it is open would end the connection.
                        let end = self.scripts.get(script).map(|script| script.conduct(side).end);
                        let eager = end == Some(End::AfterPeer) && script.is_multiple_of(2);
                        self.flows.push(if eager { flow.eager() } else { flow });
                        dialing.live.push(id);
                        dialing.due = now + pause;
                    }
                    // A connection of the same name has not ended completely.
                    Err(TcpError::InUse) => dialing.due = now + RETRY,
                    Err(error) => return Err(format!("opening: {error:?}")),
                }
            }
        }
        Ok(())
    }
}

impl Dialing {
    fn may_open(&self) -> bool {
        !self.dial.scripts.is_empty() && self.live.len() < self.dial.at_once
    }
}
