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
    /// Whether all handlers that ran in this thread since the last call of [`forget_handlers`] let calls continue (`SA_RESTART`).
    /// `None` if no handler ran.
    static HANDLED: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Returns whether this thread uses the state.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Defers signals from now on.
pub(crate) fn enter() {
    IS_INSIDE.set(true);
}

/// Lets signals arrive. Handlers of deferred signals run in this call. Returns whether there were any.
pub(crate) fn leave() -> bool {
    IS_INSIDE.set(false);
    let deferred = DEFERRED.take();
    deferred.into_iter().for_each(sys::restore_signals);
    deferred.is_some()
}

/// Forgets the handlers that have run in this thread.
pub(crate) fn forget_handlers() {
    HANDLED.set(None);
}

/// Records that a handler of the program runs in this thread, and whether it lets calls continue.
pub(crate) fn handles(restarts: bool) {
    HANDLED.set(Some(restarts && HANDLED.get() != Some(false)));
}

/// Returns whether a call continues that signals have interrupted since the last call of [`forget_handlers`].
pub(crate) fn call_continues() -> bool {
    // A program can install a handler without libc. This library does not know when such a handler runs.
    HANDLED.get().unwrap_or_else(sys::handlers_restart)
}

/// Records that a signal was deferred. `blocked` are the signals that were blocked when it arrived.
pub(crate) fn defer(blocked: Signals) {
    // A signal that interrupts the handler of another one finds signals blocked that the program has not blocked.
    DEFERRED.set(DEFERRED.get().or(Some(blocked)));
}
