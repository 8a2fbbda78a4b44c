//! Ctrl-C: one flag for the process, which every wait of the laboratory checks.

use siga_model::error::{IoContext, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Longest time until an interrupt is noticed.
pub(crate) const NOTICE_TIME_MAX: Duration = Duration::from_millis(200);

static INTERRUPT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes Ctrl-C (SIGINT) and SIGTERM end waiting and the run; a second one ends the process at once. Reaching a limit of
/// file size becomes an error of the write instead of a signal that kills.
///
/// # Errors
/// Environment: the signals cannot be caught.
pub fn catch_interrupts() -> Result<()> {
    let flag = INTERRUPT.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(flag)).context("cannot catch Ctrl-C")?;
        signal_hook::flag::register(signal, Arc::clone(flag)).context("cannot catch Ctrl-C")?;
    }
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).context("cannot catch SIGXFSZ")?;
    Ok(())
}

/// True once an interrupt has come.
pub fn interrupted() -> bool {
    INTERRUPT.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
