//! Attached processes: external guests and applications. An attached process may attach again, but may make no other request.
//!
//! The control program recognises an attached process by the process id that the kernel reports for each connection. While a
//! process lives, no other process has its id. Therefore a guest or an application that an attacker has taken over cannot itself
//! administer the network. But its child processes have other ids. So if it can start children, they can make every request that
//! its user can make.

use super::Control;
use super::peer::Peer;
use crate::limits::ATTACHED_PROCESSES_MAX;
use crate::protocol::request::Request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustix::process::{Pid, getpid};
use siga_model::error::{Error, IoContext, Result};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// The ids of the attached processes. Each id is stored with a process descriptor, which becomes readable when the process ends.
#[derive(Debug, Default)]
pub(super) struct Attached(HashMap<Pid, OwnedFd>);

impl Attached {
    /// Adds the process at the other end of a connection.
    fn add(&mut self, connection: impl AsFd) -> Result<()> {
        let Peer { pid, pidfd } =
            Peer::of(connection).context("cannot watch the process that attaches to the network")?;
        self.forget_ended()?;
        // A test may run the control program and its guests in one process. That process must be able to make every request.
        if self.0.contains_key(&pid) || pid == getpid() {
            return Ok(());
        }
        if self.0.len() >= ATTACHED_PROCESSES_MAX {
            return Err(Error::environment(format!(
                "{ATTACHED_PROCESSES_MAX} processes are attached to the network, which is the maximum"
            )));
        }
        self.0.insert(pid, pidfd);
        Ok(())
    }

    /// Returns true if the process at the other end of a connection is attached.
    fn has(&mut self, connection: impl AsFd) -> Result<bool> {
        if self.0.is_empty() {
            return Ok(false);
        }
        let pid = sockopt::socket_peercred(connection)
            .context("cannot identify the process that sent a request to the control program")?
            .pid;
        self.forget_ended()?;
        Ok(self.0.contains_key(&pid))
    }

    /// Returns true if the process at the other end of a connection is attached. Unlike `has`, this method does not first remove
    /// ended processes. So the result is wrong if another process already has the id of an ended one.
    pub(super) fn is_of_one(&self, connection: impl AsFd) -> bool {
        let peer = sockopt::socket_peercred(connection);
        peer.is_ok_and(|peer| self.0.contains_key(&peer.pid))
    }

    /// Removes the ids of ended processes, because other processes may get the same ids.
    fn forget_ended(&mut self) -> Result<()> {
        let ended: Vec<bool> = {
            let mut ready: Vec<PollFd<'_>> =
                self.0.values().map(|process| PollFd::new(process, PollFlags::IN)).collect();
            poll(&mut ready, Some(&Timespec::default()))
                .context("cannot check whether processes that are attached to the network still run")?;
            ready.iter().map(|process| !process.revents().is_empty()).collect()
        };
        let mut ended = ended.into_iter();
        self.0.retain(|_, _| !ended.next().unwrap_or(false));
        Ok(())
    }
}

impl Control {
    /// Checks whether a client may make a request. A process that asks to attach is added to the attached processes. Any other
    /// request of an attached process is refused, unless the process holds the lease.
    pub(super) fn may_ask(&mut self, key: u64, request: &Request) -> Result<()> {
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        match request {
            Request::Application { .. } | Request::Attach { .. } => self.attached.add(&client.channel),
            Request::ApplicationMemory => Ok(()),
            Request::Start { .. }
            | Request::HandOver
            | Request::HandedOver
            | Request::Replace
            | Request::Status { .. }
            | Request::Report(_)
            | Request::Sample { .. }
            | Request::Down
            | Request::StartGuest(_)
            | Request::StopGuest(_)
            | Request::Grant { .. }
            | Request::Allow { .. }
            | Request::Revoke { .. }
            | Request::Secret { .. }
            | Request::Ping { .. }
            | Request::Capture { .. }
            | Request::ReservePort { .. }
            | Request::JoinPort
            | Request::ReleasePort { .. }
            | Request::Tenants
            | Request::ChangePort { .. }
            | Request::Mirror { .. }
            | Request::Addresses { .. } => {
                if self.lease != Some(key) && self.attached.has(&client.channel)? {
                    let message = "a process that is attached to the network as a guest or application may not send other requests";
                    return Err(Error::usage(message).hint("send the request from another process"));
                }
                Ok(())
            }
        }
    }
}
