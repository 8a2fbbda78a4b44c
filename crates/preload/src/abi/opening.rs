//! Functions that return new descriptors of the kernel. A program may have closed a siga socket without libc. Then its number is known as
//! a siga socket until the kernel gives the number to another file.

use super::next;
use crate::numbers::{self, Meaning, meaning};
use crate::{deferral, sys, world};
use libc::{FILE, c_char, c_int, c_uint, mode_t, sigset_t};

/// Makes a new number foreign, if it is not. Returns the number.
pub(super) fn fresh(number: c_int) -> c_int {
    match meaning(number) {
        // This library opens the file of its log while it has the lock.
        Meaning::Socket | Meaning::EpollSet if sys::is_own_memory() && !deferral::is_inside() => {
            world::lock().forget(number);
        }
        Meaning::PlainSet => _ = numbers::set(number, Meaning::Foreign),
        Meaning::Socket | Meaning::EpollSet | Meaning::Foreign | Meaning::Reserved => {}
    }
    number
}

unsafe fn fresh_pair(status: c_int, pair: *const c_int) -> c_int {
    if status == 0 {
        fresh(unsafe { *pair });
        fresh(unsafe { *pair.add(1) });
    }
    status
}

/// Defines functions whose result is a new descriptor.
macro_rules! opening {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            #[cfg_attr(siga_preload_library, unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                fresh(unsafe { next::$name($($argument),*) })
            }
        )*
    };
}

// The mode is an argument only if the file is made. As in libc, it is read in any case.
opening! {
    open(path: *const c_char, flags: c_int, mode: mode_t);
    open64(path: *const c_char, flags: c_int, mode: mode_t);
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    creat(path: *const c_char, mode: mode_t);
    creat64(path: *const c_char, mode: mode_t);
    eventfd(value: c_uint, flags: c_int);
    timerfd_create(clock: c_int, flags: c_int);
    signalfd(number: c_int, signals: *const sigset_t, flags: c_int);
    inotify_init();
    inotify_init1(flags: c_int);
    memfd_create(name: *const c_char, flags: c_uint);
    __open_2(path: *const c_char, flags: c_int);
    __open64_2(path: *const c_char, flags: c_int);
    __openat_2(directory: c_int, path: *const c_char, flags: c_int);
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int);
    mkstemp(template: *mut c_char);
    mkstemp64(template: *mut c_char);
    mkostemp(template: *mut c_char, flags: c_int);
    mkostemp64(template: *mut c_char, flags: c_int);
}

/// Defines functions whose result is a stream of libc on a new descriptor.
macro_rules! streams {
    ($($name:ident;)*) => {
        $(
            #[cfg_attr(siga_preload_library, unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
                let stream = unsafe { next::$name(path, mode) };
                if !stream.is_null() {
                    fresh(unsafe { next::fileno(stream) });
                }
                stream
            }
        )*
    };
}

streams! {
    fopen;
    fopen64;
}

/// Records that a new descriptor is one of epoll.
fn fresh_set(number: c_int) -> c_int {
    fresh(number);
    numbers::set(number, Meaning::PlainSet);
    number
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    fresh_set(unsafe { next::epoll_create(size) })
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    fresh_set(unsafe { next::epoll_create1(flags) })
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pipe(pair: *mut c_int) -> c_int {
    unsafe { fresh_pair(next::pipe(pair), pair) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pipe2(pair: *mut c_int, flags: c_int) -> c_int {
    unsafe { fresh_pair(next::pipe2(pair, flags), pair) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
    unsafe { fresh_pair(next::socketpair(domain, kind, protocol, pair), pair) }
}
