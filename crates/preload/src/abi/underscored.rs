//! Names of libc's functions that begin with two underscores. They are public, and some libraries call the functions by them.

use super::{descriptors, opening, signals, sockets, transfer, waits};
use libc::{
    c_char, c_int, c_long, c_void, fd_set, mode_t, nfds_t, pollfd, sigaction as Action, size_t, sockaddr, socklen_t,
    ssize_t, timeval,
};

/// Defines functions that have another name for a function of this library.
macro_rules! underscored {
    ($($name:ident => $module:ident::$function:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[cfg_attr(siga_preload_library, unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                unsafe { $module::$function($($argument),*) }
            }
        )*
    };
}

underscored! {
    __open => opening::open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open64 => opening::open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __pipe => opening::pipe(pair: *mut c_int) -> c_int;
    __read => transfer::read(number: c_int, into: *mut c_void, len: size_t) -> ssize_t;
    __write => transfer::write(number: c_int, from: *const c_void, len: size_t) -> ssize_t;
    __send => transfer::send(number: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    __connect => sockets::connect(number: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    __close => descriptors::close(number: c_int) -> c_int;
    __dup2 => descriptors::dup2(from: c_int, to: c_int) -> c_int;
    __fcntl => descriptors::fcntl(number: c_int, command: c_int, argument: c_long) -> c_int;
    __poll => waits::poll(list: *mut pollfd, count: nfds_t, ms: c_int) -> c_int;
    __select => waits::select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval) -> c_int;
    __sigaction => signals::sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
}
