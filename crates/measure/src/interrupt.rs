//! Handles Ctrl-C: a signal sets one flag for the whole process, and every wait of a measurement checks this flag.

use siga_model::error::{IoContext, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum time until a wait notices an interrupt.
pub(crate) const NOTICE_TIME_MAX: Duration = Duration::from_millis(200);

static INTERRUPT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes Ctrl-C (SIGINT) and SIGTERM end all waits and the run. A second signal ends the process immediately. Also catches
/// SIGXFSZ, so that a write beyond the file size limit returns an error instead of killing the process.
///
/// # Errors
/// Returns an error of kind `Environment` if the signals cannot be caught.
pub fn catch_interrupts() -> Result<()> {
    let flag = INTERRUPT.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(flag)).context("cannot catch Ctrl-C")?;
        signal_hook::flag::register(signal, Arc::clone(flag)).context("cannot catch Ctrl-C")?;
    }
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).context("cannot catch SIGXFSZ")?;
    Ok(())
}

/// Ends all waits, as Ctrl-C does.
pub(crate) fn interrupt() {
    INTERRUPT.get_or_init(Arc::default).store(true, Ordering::Relaxed);
}

/// Returns true if Ctrl-C or SIGTERM has been received.
pub fn interrupted() -> bool {
    INTERRUPT.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
