//! The log: a line an event, with its time.

use crate::error::{IoContext, Result};
use crate::limits::LOG_BYTES_MAX;
use crate::rundir::RunDir;
use std::fs::File;
use std::io::Write;
use std::time::SystemTime;

/// A file that grows up to a bound; what it cannot take is left out, since nothing is worth stopping a network for.
#[derive(Debug)]
pub(super) struct Log(File);

impl Log {
    /// Opens the log of a network, or makes it.
    pub(super) fn open(run: &RunDir) -> Result<Self> {
        Ok(Self(run.append_log()?.into()))
    }

    /// Standard error goes there from now on, and with it that of guests: whoever reads the messages of the process that started
    /// this one is not to wait for the end of the network.
    pub(super) fn take_standard_error(&self) -> Result<()> {
        rustix::stdio::dup2_stderr(&self.0).context("cannot write to the log")
    }

    pub(super) fn line(&mut self, text: &str) {
        if self.0.metadata().is_ok_and(|metadata| metadata.len() < LOG_BYTES_MAX) {
            let time = humantime::format_rfc3339_micros(SystemTime::now());
            let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
            let _ = self.0.write_all(format!("{time} {line}\n").as_bytes());
        }
    }
}
