//! The TCP programs of one host: programs that listen, programs that open connections, and the connections of both kinds.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use siga_stack::Stack;
use siga_stack::sockets::{ListenerId, TcpError, TcpEvent, TcpId, TcpOptions};
use siga_stack::time::{Duration, Instant};

use super::flow::{Flow, Over};
use super::{Report, Script};
use crate::trace::Side;

/// Time after which a program tries again to open a connection, if its port was in use.
const RETRY: Duration = Duration::from_secs(1);

/// A program that listens and accepts connections.
#[derive(Debug, Clone, Copy)]
pub struct Listen {
    /// The address and port at which the program listens.
    pub local: SocketAddr,
    /// See [`Stack::tcp_listen`].
    pub backlog: usize,
    /// The options of the accepted connections.
    pub options: TcpOptions,
    /// Minimum time between accepting two connections.
    pub accept_pause: Duration,
    /// If set, the listener is closed from the first of these times to the second.
    pub closed: Option<[Instant; 2]>,
}

/// A program that opens connections.
#[derive(Debug, Clone)]
pub struct Dial {
    /// The local address and port. With port 0, the stack chooses the port.
    pub local: SocketAddr,
    /// The address and port to connect to.
    pub remote: SocketAddr,
    /// The options of the opened connections.
    pub options: TcpOptions,
    /// For each connection, the index of the script that it follows. The connections are opened in this order.
    pub scripts: VecDeque<usize>,
    /// Maximum number of connections at the same time.
    pub at_once: usize,
    /// The time at which the first connection is opened.
    pub begin: Instant,
    /// Minimum time between opening two connections.
    pub pause: Duration,
    /// The side of the scripts (A or B) that this program follows on its connections. The host that opens a connection follows side
    /// A, and the host that accepts it follows side B. If both hosts open the same connection at the same time, one follows A and
    /// the other follows B.
    pub side: Side,
}

#[derive(Debug)]
struct Listening {
    listen: Listen,
    id: Option<ListenerId>,
    acceptable: bool,
    accept_due: Instant,
    /// The next times at which the listener closes or opens.
    changes: VecDeque<Instant>,
}

#[derive(Debug)]
struct Dialing {
    dial: Dial,
    due: Instant,
    live: Vec<TcpId>,
}

/// All TCP programs of one host.
#[derive(Debug)]
pub struct Programs {
    scripts: Rc<[Script]>,
    listening: Vec<Listening>,
    dialing: Vec<Dialing>,
    flows: Vec<Flow>,
    /// The reports of the connections that have ended.
    pub reports: Vec<Report>,
}

impl Default for Programs {
    fn default() -> Self {
        Self::new(Rc::new([]))
    }
}

impl Programs {
    /// Creates an empty set of programs. Programs that are added later use these scripts.
    pub const fn new(scripts: Rc<[Script]>) -> Self {
        Self { scripts, listening: Vec::new(), dialing: Vec::new(), flows: Vec::new(), reports: Vec::new() }
    }

    /// Adds a program that listens and accepts connections.
    ///
    /// # Errors
    /// Returns the error of the stack.
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

    /// Returns true if all planned connections have been opened and have ended.
    pub fn is_done(&self) -> bool {
        self.flows.is_empty() && self.dialing.iter().all(|dialing| dialing.dial.scripts.is_empty())
    }

    /// Returns the number of bytes that have arrived over the connections that still exist.
    pub fn bytes_arrived(&self) -> u64 {
        self.flows.iter().map(Flow::arrived).sum()
    }

    /// Returns the number of bytes that have arrived over the connections that follow a script.
    pub fn bytes_arrived_over(&self, script: usize) -> u64 {
        self.flows.iter().filter(|flow| flow.script() == Some(script)).map(Flow::arrived).sum()
    }

    /// Returns the connection that follows a script, if it exists.
    pub fn connection(&self, script: usize) -> Option<TcpId> {
        self.flows.iter().find(|flow| flow.script() == Some(script)).map(|flow| flow.id)
    }

    /// Describes the state of each open connection in one line.
    pub fn describe(&self, stack: &Stack) -> Vec<String> {
        self.flows.iter().map(|flow| flow.describe(stack)).collect()
    }

    /// Returns the next time at which a program acts without an event.
    pub fn due(&self) -> Option<Instant> {
        let accept = self.listening.iter().filter(|listening| listening.acceptable).map(|each| each.accept_due);
        let change = self.listening.iter().filter_map(|listening| listening.changes.front().copied());
        let dial = self.dialing.iter().filter(|dialing| dialing.may_open()).map(|dialing| dialing.due);
        let flows = self.flows.iter().filter_map(Flow::due);
        accept.chain(change).chain(dial).chain(flows).min()
    }

    /// Runs every program until it has to wait.
    ///
    /// # Errors
    /// Returns a description if the stack broke a rule.
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
            if !self.handle_events(stack)? {
                return Ok(());
            }
        }
    }

    /// Processes all pending events. Returns false if no event was pending.
    fn handle_events(&mut self, stack: &mut Stack) -> Result<bool, String> {
        let mut any = false;
        while let Some(ready) = stack.tcp_poll_event() {
            any = true;
            match ready {
                TcpEvent::Connection(id) => {
                    let flow = self.flows.iter_mut().find(|flow| flow.id == id);
                    let flow = flow.ok_or_else(|| {
                        format!("the stack reported an event of {id:?}, but no program has this socket")
                    })?;
                    let state = stack
                        .tcp_readiness(id)
                        .map_err(|error| format!("reading an event of connection {id:?} failed: {error:?}"))?;
                    flow.note_readiness(state);
                    // An ICMP error or an unresponsive peer does not end the connection, so the program continues.
                    let taken = stack.tcp_take_soft_error(id);
                    taken.map_err(|error| format!("reading the soft error of connection {id:?} failed: {error:?}"))?;
                }
                TcpEvent::Listener(id) => {
                    let listening = self.listening.iter_mut().find(|listening| listening.id == Some(id));
                    listening
                        .ok_or_else(|| {
                            format!("the stack reported an event of {id:?}, but no program has this socket")
                        })?
                        .acceptable = true;
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
                        self.flows.push(flow);
                        dialing.live.push(id);
                        dialing.due = now + pause;
                    }
                    // An earlier connection with the same addresses and ports still exists, or is in TIME-WAIT.
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
