//! Waits until an operation on a siga socket is possible.

use crate::errors::{Error, Result};
use crate::sys;
use crate::world::{self, Held, Place, World};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Whether and how long an operation waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Return `EAGAIN` instead of waiting.
    None,
    /// Wait for at most this time, or without a limit.
    For(Option<Duration>),
}

/// Which of a socket's time limits applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Send,
}

impl World {
    /// Returns how long an operation on a socket waits. `now` is true if the call itself asks not to wait (`MSG_DONTWAIT`).
    pub(crate) fn patience(&mut self, place: Place, direction: Direction, now: bool) -> Result<Patience> {
        let socket = self.socket_at(place)?;
        if now || socket.nonblocking {
            return Ok(Patience::None);
        }
        Ok(Patience::For(match direction {
            Direction::Receive => socket.receive_time_max,
            Direction::Send => socket.send_time_max,
        }))
    }
}

/// Repeats an operation on a socket until it returns something other than `EAGAIN`, as long as the socket waits.
pub(crate) fn until<T>(
    number: RawFd,
    direction: Direction,
    now: bool,
    mut operation: impl FnMut(&mut World, Place) -> Result<T>,
) -> Result<T> {
    let mut held = world::lock();
    let place = held.place(number)?;
    let patience = held.patience(place, direction, now)?;
    let outcome = operation(&mut held, place);
    if outcome.as_ref().err() != Some(&Error::WOULD_BLOCK) {
        return outcome;
    }
    until_ready(&mut held, number, patience, |world| operation(world, place))
}

/// Repeats an operation on a socket until it returns something other than `EAGAIN`, or until the time limit. Returns `EBADF` if another
/// thread closes the socket meanwhile, or duplicates another descriptor to its number.
pub(crate) fn until_ready<T>(
    held: &mut Held,
    number: RawFd,
    patience: Patience,
    mut operation: impl FnMut(&mut World) -> Result<T>,
) -> Result<T> {
    let limit = if let Patience::For(limit) = patience { limit } else { Some(Duration::ZERO) };
    let end = limit.map(|limit| Instant::now() + limit);
    let place = held.place(number)?;
    let inode = held.socket_at(place)?.inode;
    loop {
        held.work();
        if held.place(number)? != place || held.socket_at(place)?.inode != inode {
            return Err(Error(libc::EBADF));
        }
        let outcome = operation(held);
        if outcome.as_ref().err() != Some(&Error::WOULD_BLOCK) {
            return outcome;
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(Error::WOULD_BLOCK);
        }
        match held.sleep(vec![place], &mut Vec::new(), left) {
            Ok(()) | Err(Error::WOULD_BLOCK) => {}
            // As in Linux, a call with a time limit does not continue after a signal.
            Err(Error(libc::EINTR)) if limit.is_none() && sys::handlers_restart() => {}
            Err(error) => return Err(error),
        }
    }
}
