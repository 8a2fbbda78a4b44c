//! Functions that wait for several descriptors.

use super::{next, returned, values};
use crate::errors::{Error, Result};
use crate::numbers::{Meaning, meaning};
use crate::{epoll, poll as waiting};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::time::Duration;

unsafe fn entries<'a>(entries: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    let count = usize::try_from(count).unwrap_or(0);
    if entries.is_null() || count == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(entries, count) } }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn poll(list: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
    let all = unsafe { entries(list, count) };
    if !waiting::concerns_us(all) {
        return unsafe { next::poll(list, count, ms) };
    }
    returned(waiting::poll(all, values::milliseconds(ms), None))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __poll_chk(list: *mut pollfd, count: nfds_t, ms: c_int, room: usize) -> c_int {
    assert!(
        usize::try_from(count).is_ok_and(|count| count <= room / size_of::<pollfd>()),
        "the program's list for poll has fewer entries than the program states"
    );
    unsafe { poll(list, count, ms) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ppoll(
    list: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    blocked: *const sigset_t,
) -> c_int {
    let all = unsafe { entries(list, count) };
    if !waiting::concerns_us(all) {
        return unsafe { next::ppoll(list, count, time, blocked) };
    }
    let limit = unsafe { values::time(time) };
    returned(limit.and_then(|limit| waiting::poll(all, limit, unsafe { values::signals(blocked) })))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __ppoll_chk(
    list: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    blocked: *const sigset_t,
    room: usize,
) -> c_int {
    assert!(
        usize::try_from(count).is_ok_and(|count| count <= room / size_of::<pollfd>()),
        "the program's list for poll has fewer entries than the program states"
    );
    unsafe { ppoll(list, count, time, blocked) }
}

/// The three sets of a call of `select`, as words of 64 bits. A set may have more words than `fd_set`.
struct Sets {
    words: usize,
    sets: [*mut u64; 3],
}

/// The events of poll(2) that `select` reports in each of its sets, and those that it asks for.
const EVENTS: [(i16, i16); 3] = [
    (libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR, libc::POLLIN),
    (libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR, libc::POLLOUT),
    (libc::POLLPRI, libc::POLLPRI),
];

/// Returns the place of a descriptor's bit in a set.
fn word_and_bit(number: c_int) -> (usize, usize) {
    let number = usize::try_from(number).unwrap_or(0);
    (number / 64, number % 64)
}

impl Sets {
    fn new(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set) -> Self {
        let words = usize::try_from(count).unwrap_or(0).div_ceil(64);
        Self { words, sets: [read.cast(), write.cast(), except.cast()] }
    }

    /// Returns the entries of poll(2) for these sets.
    unsafe fn entries(&self, count: c_int) -> Vec<pollfd> {
        let asked = |number: c_int| {
            let (word, bit) = word_and_bit(number);
            let is_in = |set: &*mut u64| !set.is_null() && unsafe { *set.add(word) } >> bit & 1 == 1;
            let events = self.sets.iter().zip(EVENTS).filter(|(set, _)| is_in(set)).map(|(_, (_, asked))| asked);
            events.fold(0, |all, one| all | one)
        };
        let all = (0..count.max(0)).map(|number| pollfd { fd: number, events: asked(number), revents: 0 });
        all.filter(|entry| entry.events != 0).collect()
    }

    /// Replaces the sets with the descriptors that are ready, and returns the number of entries in them.
    unsafe fn put(&self, entries: &[pollfd]) -> Result<usize> {
        if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(Error(libc::EBADF));
        }
        for set in self.sets.iter().filter(|set| !set.is_null()) {
            unsafe { std::slice::from_raw_parts_mut(*set, self.words) }.fill(0);
        }
        let mut count = 0;
        for entry in entries {
            for (set, (reported, asked)) in self.sets.iter().zip(EVENTS) {
                if entry.events & asked != 0 && entry.revents & reported != 0 {
                    let (word, bit) = word_and_bit(entry.fd);
                    unsafe { *set.add(word) |= 1 << bit };
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

/// Carries out a call of `select`, or returns `None` if no descriptor is siga's.
unsafe fn selected(
    count: c_int,
    sets: &Sets,
    time: Result<Option<Duration>>,
    blocked: *const sigset_t,
) -> Option<Result<usize>> {
    let mut entries = unsafe { sets.entries(count) };
    if !waiting::concerns_us(&entries) {
        return None;
    }
    let ready = time.and_then(|time| waiting::poll(&mut entries, time, unsafe { values::signals(blocked) }));
    Some(ready.and_then(|_| unsafe { sets.put(&entries) }))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    let sets = Sets::new(count, read, write, except);
    match unsafe { selected(count, &sets, values::time_us(time), std::ptr::null()) } {
        Some(outcome) => returned(outcome),
        None => unsafe { next::select(count, read, write, except, time) },
    }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *const timespec,
    blocked: *const sigset_t,
) -> c_int {
    let sets = Sets::new(count, read, write, except);
    match unsafe { selected(count, &sets, values::time(time), blocked) } {
        Some(outcome) => returned(outcome),
        None => unsafe { next::pselect(count, read, write, except, time, blocked) },
    }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    number: c_int,
    event: *mut epoll_event,
) -> c_int {
    match meaning(number) {
        Meaning::Socket => {}
        Meaning::PlainSet | Meaning::EpollSet if operation == libc::EPOLL_CTL_ADD => {
            let status = unsafe { next::epoll_ctl(set, operation, number, event) };
            if status == 0
                && let Err(error) = epoll::nest(set, number)
            {
                return returned::<c_int, c_int>(Err(error));
            }
            return status;
        }
        Meaning::PlainSet | Meaning::EpollSet | Meaning::Foreign | Meaning::Reserved => {
            return unsafe { next::epoll_ctl(set, operation, number, event) };
        }
    }
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    returned(epoll::control(set, operation, number, event).map(|()| 0))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_wait(set: c_int, events: *mut epoll_event, max: c_int, ms: c_int) -> c_int {
    if meaning(set) != Meaning::EpollSet {
        let count = unsafe { next::epoll_wait(set, events, max, ms) };
        if let Some(count) = unsafe { without_own(set, events, count) } {
            return count;
        }
    }
    unsafe { epoll_waited(set, events, max, Ok(values::milliseconds(ms)), std::ptr::null()) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    ms: c_int,
    blocked: *const sigset_t,
) -> c_int {
    if meaning(set) != Meaning::EpollSet {
        let count = unsafe { next::epoll_pwait(set, events, max, ms, blocked) };
        if let Some(count) = unsafe { without_own(set, events, count) } {
            return count;
        }
    }
    unsafe { epoll_waited(set, events, max, Ok(values::milliseconds(ms)), blocked) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    time: *const timespec,
    blocked: *const sigset_t,
) -> c_int {
    if meaning(set) != Meaning::EpollSet {
        let count = unsafe { next::epoll_pwait2(set, events, max, time, blocked) };
        if let Some(count) = unsafe { without_own(set, events, count) } {
            return count;
        }
    }
    unsafe { epoll_waited(set, events, max, values::time(time), blocked) }
}

/// Returns the result of the kernel's wait for a set. If the set got its first siga socket meanwhile, or under another descriptor number,
/// removes the events of this library that ended the wait. Returns `None` if no other event is left: then the call has to wait again, for
/// siga sockets too. Its time begins again in this rare case.
unsafe fn without_own(set: c_int, events: *mut epoll_event, count: c_int) -> Option<c_int> {
    let found = usize::try_from(count).unwrap_or(0);
    let event = |at: usize| unsafe { events.add(at).read_unaligned() };
    if !(0..found).any(|at| epoll::is_own(&event(at))) {
        return Some(count);
    }
    let is_known = meaning(set) == Meaning::EpollSet || epoll::is_duplicate(set);
    let mut kept = 0;
    for event in (0..found).map(event).filter(|event| !epoll::is_own(event)) {
        unsafe { events.add(kept).write_unaligned(event) };
        kept += 1;
    }
    c_int::try_from(kept).ok().filter(|kept| *kept > 0 || !is_known)
}

unsafe fn epoll_waited(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    time: Result<Option<Duration>>,
    blocked: *const sigset_t,
) -> c_int {
    let max = usize::try_from(max).ok().filter(|max| *max > 0).ok_or(Error::INVALID);
    let blocked = unsafe { values::signals(blocked) };
    let found = max.and_then(|max| epoll::wait(set, max, time?, blocked));
    returned(found.map(|found| {
        for (at, event) in found.iter().enumerate() {
            unsafe { events.add(at).write_unaligned(*event) };
        }
        found.len()
    }))
}
