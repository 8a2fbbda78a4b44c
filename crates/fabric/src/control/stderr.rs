//! The standard error of the guests: the control program writes it to the log line by line.
//!
//! The standard error of each guest is a pipe with a buffer of one page. After each read the control program pauses, so that a
//! guest that writes continuously uses little of the control program's time. Neither end of the pipe ever blocks: bytes that do not
//! fit into the pipe are lost.

use super::{Control, Source};
use crate::limits::{LOG_LINE_BYTES_MAX, STDERR_INTERVAL};
use rustix::io::Errno;
use siga_model::error::{IoContext, Result};
use siga_model::name::Name;
use siga_ring::doorbell;
use siga_ring::limits::DOORBELL_PIPE_BYTES;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The read end of the pipe that is a guest's standard error, and the state of reading.
#[derive(Debug)]
pub(super) struct GuestStderr {
    key: u64,
    pipe: OwnedFd,
    line: Line,
    /// Until this time, the control program does not read from the pipe.
    paused_until: Option<Instant>,
}

impl GuestStderr {
    /// Returns the time at which reading resumes, or `None` if reading is not paused.
    pub(super) fn due(&self) -> Option<Instant> {
        self.paused_until
    }
}

/// The received bytes of a line whose end has not arrived yet.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
}

impl Line {
    /// Appends received bytes, and calls `each` for every line that is now complete. A line that is too long is split.
    fn take(&mut self, read: &[u8], mut each: impl FnMut(&[u8])) {
        for part in read.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            self.bytes.extend_from_slice(text);
            if ends || self.bytes.len() >= LOG_LINE_BYTES_MAX {
                self.finish(&mut each);
            }
        }
    }

    /// Calls `each` for the incomplete line, if there is one, because no more bytes will arrive.
    fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.bytes.is_empty() {
            each(&self.bytes);
            self.bytes.clear();
        }
    }
}

/// The outcome of a read from a guest's pipe.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    /// The pipe's write end is closed in every process.
    End,
}

impl Control {
    /// Creates a new pipe for a guest's standard error and returns its write end.
    pub(super) fn open_stderr(&mut self, name: &Name) -> Result<OwnedFd> {
        self.close_stderr(name);
        let (pipe, write) = doorbell::pipe().context("cannot create a pipe for a guest's standard error")?;
        let key = self.watch(&pipe, Source::Stderr(name.clone()))?;
        let stderr = GuestStderr { key, pipe, line: Line::default(), paused_until: None };
        self.stderr.insert(name.clone(), stderr);
        Ok(write)
    }

    /// Handles a guest's pipe that is readable: reads once, then pauses reading. Closes the pipe if no process can write to it any
    /// more.
    pub(super) fn receive_stderr(&mut self, name: &Name) {
        if self.read_stderr(name) == Read::End {
            self.close_stderr(name);
        } else if let Some(GuestStderr { key, pipe, paused_until, .. }) = self.stderr.get_mut(name) {
            *paused_until = Some(Instant::now() + STDERR_INTERVAL);
            self.events.set_listening(*key, &*pipe, false);
        }
    }

    /// Resumes reading from guests whose pause has ended.
    pub(super) fn stderr_due(&mut self, now: Instant) {
        for GuestStderr { key, pipe, paused_until, .. } in self.stderr.values_mut() {
            if paused_until.take_if(|until| *until <= now).is_some() {
                self.events.set_listening(*key, &*pipe, true);
            }
        }
    }

    /// Logs the bytes that are still in a guest's pipe, and closes the pipe.
    pub(super) fn close_stderr(&mut self, name: &Name) {
        // One read empties the pipe, because the pipe has only one page. Bytes that the guest writes afterwards are lost.
        self.read_stderr(name);
        let Some(mut stderr) = self.stderr.remove(name) else { return };
        stderr.line.finish(|line| self.log.said_by_guest(name, line));
        self.events.remove(stderr.key, &stderr.pipe);
    }

    /// Reads once from a guest's pipe, and logs the lines that are now complete.
    fn read_stderr(&mut self, name: &Name) -> Read {
        let Some(GuestStderr { pipe, line, .. }) = self.stderr.get_mut(name) else { return Read::Nothing };
        let mut bytes = [0; DOORBELL_PIPE_BYTES];
        match rustix::io::read(&*pipe, &mut bytes) {
            Ok(0) => Read::End,
            Ok(count) => {
                line.take(&bytes[..count], |line| self.log.said_by_guest(name, line));
                Read::Some
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            Err(_) => Read::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_a_guest_splits_its_writes() {
        let mut line = Line::default();
        let mut lines = Vec::new();
        let long = [b'x'; LOG_LINE_BYTES_MAX];
        for read in [&b"one\ntw"[..], b"o\n", b"\n\nthree", &long, b"\nlast"] {
            line.take(read, |line| lines.push(line.len()));
        }
        assert_eq!(lines, [3, 3, 5 + LOG_LINE_BYTES_MAX]);
        line.finish(|line| lines.push(line.len()));
        assert_eq!(lines.pop(), Some(4));
    }
}
