//! What this process shares with others: the descriptors of the client that threads and sets of epoll watch (one for the guest's
//! notifications, and one for those of processes with which this one shares memory), and sockets that other processes have too.

use crate::numbers::{self, Meaning};
use crate::socket::{Socket, State};
use crate::world::{Place, World};
use siga_iucv::client::Client;
use std::os::fd::{AsRawFd, RawFd};

impl World {
    /// Returns the number of the client's descriptor. It is readable when there is something to do.
    pub(crate) fn client_number(&self) -> Option<RawFd> {
        self.client.as_ref().map(|client| client.notifications().as_raw_fd())
    }

    /// Returns the number of the descriptor that is readable when another process has sent a notification, if this process shares memory with
    /// any.
    pub(crate) fn bells_number(&self) -> Option<RawFd> {
        self.client.as_ref().and_then(Client::bells).map(|bells| bells.as_raw_fd())
    }

    /// Records that this descriptor was readable.
    pub(crate) fn note_bell(&mut self) {
        self.client.iter_mut().for_each(Client::note_bell);
    }

    /// Reserves the descriptors that the client has got since the last call, and releases those that it is about to close.
    pub(crate) fn settle_descriptors(&mut self) {
        let Some(client) = &mut self.client else { return };
        let has_changed = client.settle_descriptors(|own, is_new| {
            numbers::set(own.as_raw_fd(), if is_new { Meaning::Reserved } else { Meaning::Foreign });
        });
        if has_changed {
            // Threads that sleep do not watch the new descriptors yet.
            self.wake_all();
        }
    }

    /// Records that the client's descriptor was readable.
    pub(crate) fn note_notification(&mut self) {
        self.client.iter_mut().for_each(Client::note_notification);
    }

    /// Returns whether a socket has sockets of the stack that another process can hold too.
    pub(crate) fn is_of_stack(&mut self, place: Place) -> bool {
        let is_without =
            |socket: &mut Socket| matches!(socket.state, State::New | State::Bound { .. } | State::Lost(_));
        self.socket_at(place).is_ok_and(|socket| !is_without(socket))
    }

    /// Returns whether another process has taken a connection over from this one.
    pub(crate) fn is_elsewhere(&mut self, place: Place) -> bool {
        let number = match self.socket_at(place).map(|socket| &socket.state) {
            Ok(State::Connection { number, .. }) => *number,
            Ok(_) | Err(_) => return false,
        };
        self.client.as_mut().is_some_and(|client| client.is_elsewhere(number))
    }
}
