//! What this process shares with others: the descriptors of the client that threads and sets of epoll watch (one for the guest's
//! notifications, and one for those of processes with which this one shares memory), and sockets that other processes have too.

use crate::numbers::{self, Meaning};
use crate::socket::{Socket, State};
use crate::world::{Place, World};
use siga_iucv::client::Client;
use smallvec::SmallVec;
use std::os::fd::{AsRawFd, RawFd};

impl World {
    /// Returns the number of the client's descriptor. It is readable when there is something to do.
    pub(crate) fn client_number(&self) -> Option<RawFd> {
        self.client.as_ref().map(|client| client.notifications().as_raw_fd())
    }

    /// Returns the numbers of the descriptors that are readable when other processes have sent notifications, with which this process shares
    /// memory.
    pub(crate) fn bells(&self) -> SmallVec<[RawFd; 8]> {
        let bells = self.client.as_ref().map(Client::bells).unwrap_or_default();
        bells.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Records that one of these descriptors was readable; `None` stands for any of them.
    pub(crate) fn note_bell(&mut self, bell: Option<RawFd>) {
        self.client.iter_mut().for_each(|client| client.note_bell(bell));
    }

    /// Reserves the descriptors that the client has got since the last call, and releases those that it is about to close.
    pub(crate) fn settle_descriptors(&mut self) {
        let Some(client) = &mut self.client else { return };
        let sets = &mut self.sets;
        let has_changed = client.settle_descriptors(|own, is_new| {
            numbers::set(own.as_raw_fd(), if is_new { Meaning::Reserved } else { Meaning::Foreign });
            if !is_new {
                sets.iter_mut().for_each(|(number, set)| set.forget_bell(*number, own.as_raw_fd()));
            }
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
