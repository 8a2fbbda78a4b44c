//! The functions with the names of libc's.
//!
//! Each function checks first whether it concerns a siga socket. If it does not, libc's own function carries out the call. No function
//! unwinds: a panic in a function of C ends the process.
#![allow(unsafe_code, reason = "functions of C receive pointers")]
// The program's calls fulfil the conditions of the manual pages. Each function repeats none of them.
#![allow(
    clippy::missing_safety_doc,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "the manual page of each function has its conditions"
)]

mod control;
mod descriptors;
mod interfaces;
mod names;
mod next;
mod opening;
mod programs;
mod signals;
mod sockets;
mod streams;
mod transfer;
mod underscored;
mod values;
mod waits;

use crate::errors::Error;
use crate::inheritance::{self, INHERITANCE_VARIABLE};
use crate::{attach, errors};

/// Runs when the library is loaded, before the program begins.
extern "C" fn begin() {
    attach::prepare();
    next::prepare();
    if let Ok(description) = std::env::var(INHERITANCE_VARIABLE) {
        // The description is for this program only.
        unsafe { std::env::remove_var(INHERITANCE_VARIABLE) };
        inheritance::take_over(&description);
    }
}

#[cfg(siga_preload_library)]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Converts a result to that of a function of C: the value, or -1 with `errno`.
fn returned<T: TryInto<R>, R: From<i8>>(result: errors::Result<T>) -> R {
    let outcome = result.and_then(|value| value.try_into().map_err(|_| Error(libc::EOVERFLOW)));
    outcome.unwrap_or_else(|Error(number)| {
        unsafe { *libc::__errno_location() = number };
        R::from(-1)
    })
}
