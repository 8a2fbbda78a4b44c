//! libc's own functions, which this library's functions replace and call.

/// Declares libc's functions, each with its type. The first call of each function looks up its address. Until then, the stored address is
/// that of `look_up_and_call`, so a call does not have to test whether the address is known.
macro_rules! next {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[allow(clippy::too_many_arguments, reason = "the function of libc has this number of arguments")]
            #[inline]
            pub(super) unsafe fn $name($($argument: $type),*) -> $result {
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(look_up_and_call as Function as *mut c_void);
                #[cold]
                #[allow(clippy::too_many_arguments, reason = "the function of libc has this number of arguments")]
                unsafe extern "C" fn look_up_and_call($($argument: $type),*) -> $result {
                    let address = look_up(concat!(stringify!($name), "\0"));
                    ADDRESS.store(address, Ordering::Relaxed);
                    let function: Function = unsafe { std::mem::transmute(address) };
                    unsafe { function($($argument),*) }
                }
                let function: Function = unsafe { std::mem::transmute(ADDRESS.load(Ordering::Relaxed)) };
                unsafe { function($($argument),*) }
            }
        )*
    };
}

use libc::{
    FILE, addrinfo, c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, mode_t,
    msghdr, nfds_t, off64_t, pid_t, pollfd, posix_spawn_file_actions_t, posix_spawnattr_t, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Returns the address of a function of libc. `name` ends with a zero byte.
fn look_up(name: &str) -> *mut c_void {
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    assert!(!address.is_null(), "libc has no function {name}");
    address
}

next! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(number: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    listen(number: c_int, backlog: c_int) -> c_int;
    accept4(number: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect(number: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    getsockname(number: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername(number: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    shutdown(number: c_int, how: c_int) -> c_int;
    getsockopt(number: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt(number: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    read(number: c_int, into: *mut c_void, len: size_t) -> ssize_t;
    readv(number: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    recv(number: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(number: c_int, into: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    recvmsg(number: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(number: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, time: *mut timespec) -> c_int;
    write(number: c_int, from: *const c_void, len: size_t) -> ssize_t;
    writev(number: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    send(number: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto(number: c_int, from: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t;
    sendmsg(number: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(number: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t;
    splice(from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t;
    syscall(call: c_long, first: c_long, second: c_long, third: c_long, fourth: c_long, fifth: c_long, sixth: c_long) -> c_long;
    close(number: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(number: c_int) -> c_int;
    dup2(from: c_int, to: c_int) -> c_int;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(number: c_int, command: c_int, argument: c_long) -> c_int;
    fcntl64(number: c_int, command: c_int, argument: c_long) -> c_int;
    ioctl(number: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    poll(entries: *mut pollfd, count: nfds_t, ms: c_int) -> c_int;
    ppoll(entries: *mut pollfd, count: nfds_t, time: *const timespec, blocked: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *const timespec, blocked: *const sigset_t) -> c_int;
    epoll_ctl(set: c_int, operation: c_int, number: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(set: c_int, events: *mut epoll_event, max: c_int, ms: c_int) -> c_int;
    epoll_pwait(set: c_int, events: *mut epoll_event, max: c_int, ms: c_int, blocked: *const sigset_t) -> c_int;
    epoll_pwait2(set: c_int, events: *mut epoll_event, max: c_int, time: *const timespec, blocked: *const sigset_t) -> c_int;
    getaddrinfo(name: *const c_char, service: *const c_char, hints: *const addrinfo, result: *mut *mut addrinfo) -> c_int;
    getnameinfo(address: *const sockaddr, len: socklen_t, host: *mut c_char, host_room: socklen_t, service: *mut c_char, service_room: socklen_t, flags: c_int) -> c_int;
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    creat(path: *const c_char, mode: mode_t) -> c_int;
    creat64(path: *const c_char, mode: mode_t) -> c_int;
    eventfd(value: c_uint, flags: c_int) -> c_int;
    epoll_create(size: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    timerfd_create(clock: c_int, flags: c_int) -> c_int;
    signalfd(number: c_int, signals: *const sigset_t, flags: c_int) -> c_int;
    inotify_init() -> c_int;
    inotify_init1(flags: c_int) -> c_int;
    memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    __open_2(path: *const c_char, flags: c_int) -> c_int;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    mkstemp(template: *mut c_char) -> c_int;
    mkstemp64(template: *mut c_char) -> c_int;
    mkostemp(template: *mut c_char, flags: c_int) -> c_int;
    mkostemp64(template: *mut c_char, flags: c_int) -> c_int;
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    pipe(pair: *mut c_int) -> c_int;
    pipe2(pair: *mut c_int, flags: c_int) -> c_int;
    socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fdopen(number: c_int, mode: *const c_char) -> *mut FILE;
    fopencookie(cookie: *mut c_void, mode: *const c_char, functions: super::streams::Functions) -> *mut FILE;
    fclose(stream: *mut FILE) -> c_int;
    fileno(stream: *mut FILE) -> c_int;
    execve(path: *const c_char, arguments: *const *mut c_char, variables: *const *mut c_char) -> c_int;
    execvpe(file: *const c_char, arguments: *const *mut c_char, variables: *const *mut c_char) -> c_int;
    fexecve(number: c_int, arguments: *const *mut c_char, variables: *const *mut c_char) -> c_int;
    posix_spawn(child: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: *const *mut c_char, variables: *const *mut c_char) -> c_int;
    posix_spawnp(child: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: *const *mut c_char, variables: *const *mut c_char) -> c_int;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
}

static EXIT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Looks up `_exit` when this library is loaded, so that not each child of the program has to do it.
pub(super) fn prepare() {
    EXIT.store(look_up("_exit\0"), Ordering::Relaxed);
}

pub(super) unsafe fn _exit(status: c_int) -> ! {
    let address = EXIT.load(Ordering::Relaxed);
    let address = if address.is_null() { look_up("_exit\0") } else { address };
    let function: unsafe extern "C" fn(c_int) -> ! = unsafe { std::mem::transmute(address) };
    unsafe { function(status) }
}
