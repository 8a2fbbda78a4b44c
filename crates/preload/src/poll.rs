//! Waits for several descriptors, of which some are siga sockets (poll(2), select(2)).

use crate::errors::{Error, Result};
use crate::numbers::{Meaning, meaning};
use crate::sys;
use crate::world::{self, Place};
use std::time::{Duration, Instant};

/// The events that poll(2) reports although the program did not ask for them.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// Returns whether one of the descriptors is a siga socket, or a set of epoll with siga sockets.
pub(crate) fn concerns_us(entries: &[libc::pollfd]) -> bool {
    entries.iter().any(|entry| matches!(meaning(entry.fd), Meaning::Socket | Meaning::EpollSet))
}

/// Waits until a descriptor has events, and returns the number of such descriptors. `blocked` are the signals that are blocked while
/// the thread waits; `None` leaves them as they are.
pub(crate) fn poll(
    entries: &mut [libc::pollfd],
    time: Option<Duration>,
    blocked: Option<sys::Signals>,
) -> Result<usize> {
    let end = time.map(|time| Instant::now() + time);
    let mut held = world::lock();
    if let Some(blocked) = blocked {
        held.wait_with(blocked);
    }
    let mut others: Vec<libc::pollfd> = entries.to_vec();
    others.iter_mut().filter(|entry| meaning(entry.fd) == Meaning::Socket).for_each(|entry| entry.fd = -1);
    for entry in entries.iter().filter(|entry| meaning(entry.fd) == Meaning::EpollSet) {
        held.watch_set(entry.fd);
    }
    loop {
        held.work();
        held.refresh_nested();
        let mut places: Vec<Place> = Vec::new();
        let mut ready = 0;
        for entry in entries.iter_mut().filter(|entry| meaning(entry.fd) == Meaning::Socket) {
            let Ok(place) = held.place(entry.fd) else {
                (entry.revents, ready) = (libc::POLLNVAL, ready + 1);
                continue;
            };
            // All bits of poll(2) fit into 16 bits.
            let events = i16::try_from(held.readiness(place) & 0x7fff).unwrap_or(i16::MAX);
            entry.revents = events & (entry.events | ALWAYS);
            ready += usize::from(entry.revents != 0);
            places.push(place);
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = if ready > 0 { Some(Duration::ZERO) } else { left };
        let outcome = if left == Some(Duration::ZERO) && others.iter().all(|other| other.fd < 0) {
            Ok(())
        } else if left == Some(Duration::ZERO) {
            held.unlocked(false, |before| sys::poll(&mut others, left, before)).map(|_| ())
        } else {
            held.sleep(places, &mut others, left)
        };
        match outcome {
            Ok(()) => {}
            Err(Error::WOULD_BLOCK) => continue,
            Err(error) if ready == 0 => return Err(error),
            Err(_) => {}
        }
        for (entry, other) in entries.iter_mut().zip(&others).filter(|(_, other)| other.fd >= 0) {
            entry.revents = other.revents;
        }
        let foreign = others.iter().filter(|other| other.fd >= 0 && other.revents != 0).count();
        if ready + foreign > 0 || left == Some(Duration::ZERO) {
            return Ok(ready + foreign);
        }
    }
}
