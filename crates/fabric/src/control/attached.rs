//! Processes that attached to the network, as a guest or as an application. They may attach again and ask for nothing else.
//!
//! A process is known by its number, which the kernel tells of each connection, for as long as it lives. Its children are other
//! processes: this keeps a guest or an application that was taken over from administering the network itself. It does not bound
//! a process that can start others, which act for the user who administers the network.

use super::Control;
use super::peer::Peer;
use crate::limits::ATTACHED_PROCESSES_MAX;
use crate::protocol::request::Request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustix::process::getpid;
use siga_model::error::{Error, IoContext, Result};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

/// Processes by their numbers, each with a descriptor that is readable once the process has ended.
#[derive(Debug, Default)]
pub(super) struct Attached(BTreeMap<i32, OwnedFd>);

impl Attached {
    /// Notes the process that made a connection.
    fn note(&mut self, connection: impl AsFd) -> Result<()> {
        let Peer { pid, pidfd } = Peer::of(connection).context("the process that attaches cannot be watched")?;
        self.forget_ended()?;
        // A control program beside the guests of its own process is that of a test, which asks for everything.
        if self.0.contains_key(&pid.as_raw_nonzero().get()) || pid == getpid() {
            return Ok(());
        }
        if self.0.len() >= ATTACHED_PROCESSES_MAX {
            return Err(Error::environment(format!("{ATTACHED_PROCESSES_MAX} processes are attached")));
        }
        self.0.insert(pid.as_raw_nonzero().get(), pidfd);
        Ok(())
    }

    /// True if the process that made a connection attached before.
    fn has(&mut self, connection: impl AsFd) -> Result<bool> {
        if self.0.is_empty() {
            return Ok(false);
        }
        let pid = sockopt::socket_peercred(connection).context("the process that asks cannot be told")?.pid;
        let pid = pid.as_raw_nonzero().get();
        self.forget_ended()?;
        Ok(self.0.contains_key(&pid))
    }

    /// The same as far as it is known now: the process may have ended since.
    pub(super) fn is_of_one(&self, connection: impl AsFd) -> bool {
        let peer = sockopt::socket_peercred(connection);
        peer.is_ok_and(|peer| self.0.contains_key(&peer.pid.as_raw_nonzero().get()))
    }

    /// Their numbers may be those of other processes soon.
    fn forget_ended(&mut self) -> Result<()> {
        let ended: Vec<bool> = {
            let mut ready: Vec<PollFd<'_>> =
                self.0.values().map(|process| PollFd::new(process, PollFlags::IN)).collect();
            poll(&mut ready, Some(&Timespec::default())).context("attached processes cannot be watched")?;
            ready.iter().map(|process| !process.revents().is_empty()).collect()
        };
        let mut ended = ended.into_iter();
        self.0.retain(|_, _| !ended.next().unwrap_or(false));
        Ok(())
    }
}

impl Control {
    /// Notes a process that asks to attach, and refuses any other request of a process that did. The process whose connection
    /// the network ends with may ask for anything.
    pub(super) fn may_ask(&mut self, key: u64, request: &Request) -> Result<()> {
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        match request {
            Request::Application { .. } | Request::Attach { .. } => self.attached.note(&client.channel),
            Request::ApplicationMemory => Ok(()),
            Request::Start { .. }
            | Request::Status { .. }
            | Request::Report(_)
            | Request::Down
            | Request::StartGuest(_)
            | Request::StopGuest(_)
            | Request::Grant { .. }
            | Request::Revoke { .. }
            | Request::Secret { .. }
            | Request::Ping { .. }
            | Request::Capture { .. } => {
                if self.lease != Some(key) && self.attached.has(&client.channel)? {
                    let message = "this process is attached to the network, and may ask for nothing else";
                    return Err(Error::usage(message).hint("ask from another process"));
                }
                Ok(())
            }
        }
    }
}
