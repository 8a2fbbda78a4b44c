//! The log: a line an event, with its time.

use crate::limits::LOG_BYTES_MAX;
use crate::rundir::RunDir;
use std::fs::File;
use std::io::Write;
use std::time::SystemTime;

/// A file that grows up to a bound; what it cannot take is left out, since nothing is worth stopping a network for.
#[derive(Debug)]
pub(super) struct Log(Option<File>);

impl Log {
    pub(super) fn open(run: &RunDir) -> Self {
        Self(run.append_log().ok().map(Into::into))
    }

    pub(super) fn line(&mut self, text: &str) {
        let Some(file) = &mut self.0 else { return };
        if file.metadata().is_ok_and(|metadata| metadata.len() < LOG_BYTES_MAX) {
            let time = humantime::format_rfc3339_micros(SystemTime::now());
            let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
            let _ = file.write_all(format!("{time} {line}\n").as_bytes());
        }
    }

    /// For what guests write to their standard error.
    pub(super) fn descriptor(&self) -> Option<std::os::fd::OwnedFd> {
        self.0.as_ref()?.try_clone().ok().map(Into::into)
    }
}
