//! Functions that install signal handlers. In front of each handler of the program, the kernel gets one of this library, which defers
//! signals while the thread uses the state of this library.

use super::{next, returned};
use crate::deferral;
use crate::errors::Error;
use crate::sys::{self, Signals};
use libc::{c_int, c_void, sigaction as Action, sighandler_t, siginfo_t, ucontext_t};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Number of signals, and 1.
const SIGNALS: usize = 65;

/// The handlers of the program and the flags with which it has installed them, by signal.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(libc::SIG_DFL) }; SIGNALS];
static FLAGS: [AtomicI32; SIGNALS] = [const { AtomicI32::new(0) }; SIGNALS];

/// The flags of an action that this library carries out itself.
const OWN_FLAGS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;

fn place(signal: c_int) -> Option<usize> {
    usize::try_from(signal).ok().filter(|at| (1..SIGNALS).contains(at))
}

/// Whether this library has a handler in front of `handler`. Signals of faulty instructions cannot wait.
fn is_wrapped(signal: c_int, handler: sighandler_t) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN && !sys::FAULTS.contains(&signal)
}

/// The handler of the kernel for all signals that have a handler of the program.
unsafe extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let blocked = unsafe { &raw mut (*context.cast::<ucontext_t>()).uc_sigmask }.cast::<u64>();
    if deferral::is_inside() {
        // The kernel's set is the first 64 bits of libc's.
        deferral::defer(Signals::from_bits(unsafe { blocked.read_unaligned() }));
        unsafe { blocked.write_unaligned(sys::all_signals()) };
        sys::send_to_this_thread(signal, info.cast());
        return;
    }
    let Some(at) = place(signal) else { return };
    let handler = HANDLERS[at].load(Ordering::Acquire);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return;
    }
    let flags = FLAGS[at].load(Ordering::Acquire);
    deferral::handles(flags & libc::SA_RESTART != 0);
    if flags & libc::SA_RESETHAND != 0 {
        unsafe { sigaction(signal, &with_handler(libc::SIG_DFL, 0), std::ptr::null_mut()) };
    }
    // A function of one argument ignores the others.
    let function: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { std::mem::transmute(handler) };
    unsafe { function(signal, info, context) };
}

fn with_handler(handler: sighandler_t, flags: c_int) -> Action {
    // All bytes 0 are a valid action: no signals are blocked.
    let mut action: Action = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    action
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let Some(at) = place(signal) else { return unsafe { next::sigaction(signal, new, old) } };
    let known = (HANDLERS[at].load(Ordering::Acquire), FLAGS[at].load(Ordering::Acquire));
    let own = handle as *const () as sighandler_t;
    let mut action = std::mem::MaybeUninit::<Action>::uninit();
    let mut installed = new;
    if !new.is_null() {
        let mut wanted = unsafe { new.read() };
        if is_wrapped(signal, wanted.sa_sigaction) {
            FLAGS[at].store(wanted.sa_flags, Ordering::Release);
            HANDLERS[at].store(wanted.sa_sigaction, Ordering::Release);
            wanted.sa_sigaction = own;
            wanted.sa_flags = wanted.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
        }
        installed = action.write(wanted);
    }
    let mut before = std::mem::MaybeUninit::<Action>::uninit();
    let status = unsafe { next::sigaction(signal, installed, before.as_mut_ptr()) };
    if status != 0 {
        // The kernel still has the action before.
        FLAGS[at].store(known.1, Ordering::Release);
        HANDLERS[at].store(known.0, Ordering::Release);
        return status;
    }
    if !old.is_null() {
        let mut before = unsafe { before.assume_init() };
        if before.sa_sigaction == own {
            before.sa_sigaction = known.0;
            before.sa_flags = before.sa_flags & !OWN_FLAGS | known.1 & OWN_FLAGS;
        }
        unsafe { old.write(before) };
    }
    0
}

/// Installs a handler with flags, and returns the handler before, or `SIG_ERR`.
unsafe fn install(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    if handler == libc::SIG_ERR {
        returned::<c_int, c_int>(Err(Error::INVALID));
        return libc::SIG_ERR;
    }
    let mut before = with_handler(libc::SIG_DFL, 0);
    let status = unsafe { sigaction(signal, &with_handler(handler, flags), &raw mut before) };
    if status == 0 { before.sa_sigaction } else { libc::SIG_ERR }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    unsafe { install(signal, handler, libc::SA_RESTART) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    unsafe { install(signal, handler, libc::SA_RESTART) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    unsafe { install(signal, handler, libc::SA_RESTART) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    unsafe { install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    unsafe { install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER) }
}
