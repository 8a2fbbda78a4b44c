//! The library that `siga exec` loads into an unmodified program. It takes the place of libc's functions for sockets, so that the
//! program's sockets are sockets of a guest's stack.
//!
//! - `abi` has the functions with the names of libc's. They convert their arguments, and pass every call on a descriptor that is
//!   not siga's to libc.
//! - `world` has the state of the process: the client of the guest's stack, the sockets, and the sets of epoll. `held` has its lock, and
//!   lets threads wait while others use the state.
//! - `socket` and `datagrams` have the operations of a socket; none of them waits. `wait` waits until an operation is possible.
//!
//! A siga socket has the number of a real socket of the kernel, its *placeholder*. So the number stays reserved, and an access that
//! bypasses libc fails instead of reaching another file.
//!
//! Signals are deferred while a thread uses the state (`deferral`), so that a signal handler may call any of these functions.

#![cfg_attr(
    not(siga_preload_library),
    allow(dead_code, reason = "only the library for programs exports the functions")
)]

mod abi;
mod attach;
mod datagrams;
mod deferral;
mod epoll;
mod errors;
mod event;
mod held;
mod inheritance;
mod log;
mod numbers;
mod options;
mod others;
mod poll;
mod socket;
mod sys;
mod wait;
mod world;
