//! Streams of libc on siga sockets (fdopen(3)). libc's own streams read and write without libc's public functions, so a stream on a siga
//! socket is one whose functions are those of this library (fopencookie(3)).

use super::{descriptors, next, transfer};
use crate::numbers::{Meaning, meaning};
use libc::{FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The functions of a stream (`cookie_io_functions_t`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// The numbers of the sockets of streams, by the addresses of the streams.
static STREAMS: LazyLock<Mutex<HashMap<usize, c_int>>> = LazyLock::new(Mutex::default);

fn number_of(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
}

unsafe extern "C" fn read(cookie: *mut c_void, into: *mut c_char, len: size_t) -> ssize_t {
    unsafe { transfer::read(number_of(cookie), into.cast(), len) }
}

unsafe extern "C" fn write(cookie: *mut c_void, from: *const c_char, len: size_t) -> ssize_t {
    // A stream expects 0 for an error.
    unsafe { transfer::write(number_of(cookie), from.cast(), len) }.max(0)
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    unsafe { descriptors::close(number_of(cookie)) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fdopen(number: c_int, mode: *const c_char) -> *mut FILE {
    if meaning(number) != Meaning::Socket {
        return unsafe { next::fdopen(number, mode) };
    }
    let cookie = std::ptr::without_provenance_mut(usize::try_from(number).unwrap_or(0));
    let stream = unsafe { next::fopencookie(cookie, mode, Functions { read, write, seek: None, close }) };
    if !stream.is_null() {
        STREAMS.lock().unwrap_or_else(PoisonError::into_inner).insert(stream.addr(), number);
    }
    stream
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream.addr());
    unsafe { next::fclose(stream) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
    let known = STREAMS.lock().unwrap_or_else(PoisonError::into_inner).get(&stream.addr()).copied();
    known.unwrap_or_else(|| unsafe { next::fileno(stream) })
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    unsafe { fileno(stream) }
}
