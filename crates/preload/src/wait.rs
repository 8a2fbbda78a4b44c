//! Waits until an operation on a siga socket is possible.

use crate::deferral;
use crate::errors::{Error, Result};
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

/// How long a thread waits for a connection that another process uses before it takes the connection over again. The time doubles up to
/// the second value.
const TAKE_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// Repeats an operation on a socket until it returns something other than `EAGAIN`, or until the time limit. Returns `EBADF` if another
/// thread closes the socket meanwhile, or duplicates another descriptor to its number.
///
/// If several processes wait for one connection, each takes it over from time to time, because it does not know whether the others still
/// wait.
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
    let (mut interval, mut take_at) = (TAKE_INTERVALS.0, Instant::now());
    loop {
        held.work();
        if held.place(number)? != place || held.socket_at(place)?.inode != inode {
            return Err(Error(libc::EBADF));
        }
        let is_elsewhere = held.is_elsewhere(place);
        if !is_elsewhere || Instant::now() >= take_at {
            let outcome = operation(held);
            if outcome.as_ref().err() != Some(&Error::WOULD_BLOCK) {
                return outcome;
            }
            if is_elsewhere {
                interval = (2 * interval).min(TAKE_INTERVALS.1);
            }
            take_at = Instant::now() + interval;
        }
        let mut left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(Error::WOULD_BLOCK);
        }
        if held.is_elsewhere(place) {
            let rest = take_at.saturating_duration_since(Instant::now());
            left = Some(left.map_or(rest, |left| left.min(rest)));
        }
        deferral::forget_handlers();
        match held.sleep(vec![place], &mut Vec::new(), left) {
            Ok(()) | Err(Error::WOULD_BLOCK) => {}
            // As in Linux, a call with a time limit does not continue after a signal.
            Err(Error(libc::EINTR)) if limit.is_none() && deferral::call_continues() => {}
            Err(error) => return Err(error),
        }
    }
}
