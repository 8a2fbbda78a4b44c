//! Defers signals while a thread uses the state, so that a signal handler may call any function of this library.
//!
//! No system call is needed for this while no signal arrives: the library installs a handler of its own in front of each handler of
//! the program (`abi/signals.rs`). If a signal arrives while the thread uses the state, this handler sends the signal again and
//! blocks all signals of the thread. The thread unblocks them when it no longer uses the state, and the program's handler runs then.

use crate::sys::{self, Signals};
use std::cell::Cell;

thread_local! {
    /// Whether this thread uses the state.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The signals that the program has blocked, if all are blocked because a signal was deferred.
    static DEFERRED: Cell<Option<Signals>> = const { Cell::new(None) };
}

/// Returns whether this thread uses the state.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Defers signals from now on.
pub(crate) fn enter() {
    IS_INSIDE.set(true);
}

/// Lets signals arrive. Handlers of deferred signals run in this call.
pub(crate) fn leave() {
    IS_INSIDE.set(false);
    if let Some(blocked) = DEFERRED.take() {
        sys::restore_signals(blocked);
    }
}

/// Blocks all signals, because this thread is going to sleep. Returns the signals that the program has blocked. A deferred signal ends
/// the sleep at once.
pub(crate) fn block() -> Signals {
    let before = sys::block_signals();
    DEFERRED.take().unwrap_or(before)
}

/// Records that a signal was deferred. `blocked` are the signals that were blocked when it arrived.
pub(crate) fn defer(blocked: Signals) {
    // A signal that interrupts the handler of another one finds signals blocked that the program has not blocked.
    DEFERRED.set(DEFERRED.get().or(Some(blocked)));
}
