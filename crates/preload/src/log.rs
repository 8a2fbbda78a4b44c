//! The log of calls that this library cannot carry out (`SIGA_EXEC_LOG`).

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

/// The environment variable with the path of the log.
pub(crate) const LOG_VARIABLE: &str = "SIGA_EXEC_LOG";

/// Appends a line to the log, if the program has one.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    static PATH: OnceLock<Option<std::ffi::OsString>> = OnceLock::new();
    let Some(path) = PATH.get_or_init(|| std::env::var_os(LOG_VARIABLE)) else { return };
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    if let Ok(mut file) = opened {
        let _ = writeln!(file, "siga exec: process {}: {text}", std::process::id());
    }
}
