//! The hand-over of a network from one control program to another, for example of a newer build.
//!
//! The new control program connects to the old one as a client, and asks for the network. The old one then behaves as if it had been
//! killed: it closes its channels and its files. The guests go on, and the new control program adopts them as after a crash. The old
//! process waits. If the new one ends before it has the guests, the old one takes the network back in the same way.

use super::clients::Waits;
use super::{Control, Stage};
use crate::control::peer::Peer;
use crate::isolate::launch::Program;
use crate::limits::{ANSWER_TIME_MAX, START_TIME_MAX};
use crate::protocol::channel::Channel;
use crate::protocol::request::{Answer, Moment, Request, TimedRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, pidfd_send_signal};
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time limit for the new control program to adopt the guests.
pub(crate) const TAKE_OVER_TIME_MAX: Duration = START_TIME_MAX.saturating_add(ANSWER_TIME_MAX);

/// The time between two attempts to take the network back.
const TAKE_BACK_INTERVAL: Duration = Duration::from_millis(10);

/// The connection to the control program that has handed its network over, and waits until it may end.
#[derive(Debug)]
pub(super) struct Former(pub(super) Channel);

impl Former {
    /// Lets the former control program end.
    fn release(mut self) {
        let until = Moment::now().after(ANSWER_TIME_MAX);
        // If this fails, the former control program has ended, or sees the end of this connection and finds the network in use.
        let _ = self.0.send(&TimedRequest { request: Request::HandedOver, until }, Vec::new());
    }
}

/// Runs a control program until its network is down or another control program has it. `former` is the control program that handed the
/// network over to this one.
pub(super) fn serve(
    base: &Path,
    mut control: Control,
    mut former: Option<Former>,
    program: &Rc<Program>,
) -> Result<()> {
    loop {
        while control.turn(None) {
            if control.stage == Stage::Up
                && let Some(former) = former.take()
            {
                former.release();
                control.log.line("network: this control program has taken over");
            }
        }
        let (name, topology) = (control.state.name.clone(), control.state.topology.clone());
        let Some(mut heir) = control.heir.take().and_then(|key| control.clients.remove(&key)) else { return Ok(()) };
        control.log.line("network: another control program takes over");
        // This releases the lock of the run directory and closes the channels to the guests.
        drop(control);
        let has_it = heir.channel.send(&Answer::Done, Vec::new()).is_ok() && takes_it(&mut heir.channel);
        if has_it {
            return Ok(());
        }
        control = take_back(base, (name, topology), program, &heir.channel)?;
        control.log.become_stderr()?;
        control.log.line("network: the other control program failed, so this one goes on");
    }
}

/// Waits until the new control program says that it has the guests. Returns false if it ends first, or does not answer in time.
fn takes_it(heir: &mut Channel) -> bool {
    let until = Instant::now() + TAKE_OVER_TIME_MAX;
    loop {
        match heir.receive::<TimedRequest>() {
            Ok(Some((TimedRequest { request: Request::HandedOver, .. }, _))) => return true,
            Ok(Some(_)) | Err(_) => return false,
            Ok(None) => {}
        }
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or_default();
        match poll(&mut [PollFd::new(heir, PollFlags::IN)], Some(&left)) {
            Ok(0) => return false,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Takes a network back. If the other control program still has it after a while, ends that one.
fn take_back(base: &Path, (name, topology): (Name, String), program: &Rc<Program>, heir: &Channel) -> Result<Control> {
    let begun = Instant::now();
    loop {
        match Control::begin(base, name.clone(), topology.clone(), Box::new(Rc::clone(program))) {
            Err(_) if begun.elapsed() < ANSWER_TIME_MAX / 2 => {}
            Err(_) if begun.elapsed() < ANSWER_TIME_MAX => end(heir),
            outcome => return outcome,
        }
        std::thread::sleep(TAKE_BACK_INTERVAL);
    }
}

/// Ends a control program that has not taken over, and waits until its process is gone.
fn end(heir: &Channel) {
    let Ok(peer) = Peer::of(heir) else { return };
    // A test may run several control programs in one process.
    if peer.pid == getpid() {
        return;
    }
    let _ = pidfd_send_signal(&peer.pidfd, Signal::KILL);
    let time = Timespec::try_from(ANSWER_TIME_MAX).unwrap_or_default();
    let _ = poll(&mut [PollFd::new(&peer.pidfd, PollFlags::IN)], Some(&time));
}

impl Control {
    /// Begins to hand the network over. [`Control::turn`] returns false afterwards.
    pub(super) fn hand_over(&mut self, key: u64) -> Result<()> {
        if self.lease.is_some() {
            return Err(Error::usage("the network belongs to a command of siga that still runs, and ends with it"));
        }
        // A client whose ping has not been answered repeats it.
        let waits = |(other, client): (&u64, &super::Client)| {
            *other != key && !matches!(client.waits, Waits::Nothing | Waits::Capture(_) | Waits::Pong { .. })
        };
        if self.stage != Stage::Up || self.guests.values().any(|guest| guest.is_starting()) {
            return Err(Error::environment("the network is starting or going down").hint("try again"));
        }
        if self.clients.iter().any(waits) {
            return Err(Error::environment("the control program is carrying out another request").hint("try again"));
        }
        self.write_state()?;
        self.heir = Some(key);
        Ok(())
    }
}
