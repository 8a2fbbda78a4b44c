//! The messages that guests write to their descriptors 2, as lines of the log.
//!
//! A guest's descriptor 2 is a pipe of one page that belongs to it alone. The control program reads a page at a time, and then
//! leaves the pipe alone for a moment, so that a guest that writes without end costs little. Neither end ever waits: what a
//! guest writes to a full pipe, or to one that nobody reads, is lost.

use super::{Control, Source};
use crate::limits::{LOG_LINE_BYTES_MAX, STDERR_INTERVAL};
use rustix::io::Errno;
use siga_model::error::{IoContext, Result};
use siga_model::name::Name;
use siga_ring::doorbell;
use siga_ring::limits::DOORBELL_PIPE_BYTES;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The read end of a guest's pipe.
#[derive(Debug)]
pub(super) struct GuestStderr {
    key: u64,
    pipe: OwnedFd,
    line: Line,
    /// The pipe is left alone until then.
    rests_until: Option<Instant>,
}

impl GuestStderr {
    /// When there is something to be done with it that no descriptor tells.
    pub(super) fn due(&self) -> Option<Instant> {
        self.rests_until
    }
}

/// A line that has not ended yet.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
}

impl Line {
    /// Takes in what was read, and hands out the lines that end in it. A line that is too long is handed out in parts.
    fn take(&mut self, read: &[u8], mut each: impl FnMut(&[u8])) {
        for part in read.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            self.bytes.extend_from_slice(text);
            if ends || self.bytes.len() >= LOG_LINE_BYTES_MAX {
                self.finish(&mut each);
            }
        }
    }

    /// Hands out what there is of a line.
    fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.bytes.is_empty() {
            each(&self.bytes);
            self.bytes.clear();
        }
    }
}

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    /// Nobody is left to write.
    End,
}

impl Control {
    /// A new pipe for a guest's messages; its write end.
    pub(super) fn open_stderr(&mut self, name: &Name) -> Result<OwnedFd> {
        self.close_stderr(name);
        let (pipe, write) = doorbell::pipe().context("cannot make a pipe for messages")?;
        let key = self.events.add(&pipe, Source::Stderr(name.clone()))?;
        let stderr = GuestStderr { key, pipe, line: Line::default(), rests_until: None };
        self.stderr.insert(name.clone(), stderr);
        Ok(write)
    }

    /// A guest has written something, or has ended.
    pub(super) fn receive_stderr(&mut self, name: &Name) {
        if self.read_stderr(name) == Read::End {
            self.close_stderr(name);
        } else if let Some(GuestStderr { key, pipe, rests_until, .. }) = self.stderr.get_mut(name) {
            *rests_until = Some(Instant::now() + STDERR_INTERVAL);
            self.events.set_listening(*key, &*pipe, false);
        }
    }

    /// Listens again to guests whose pipes were left alone for long enough.
    pub(super) fn stderr_due(&mut self, now: Instant) {
        for GuestStderr { key, pipe, rests_until, .. } in self.stderr.values_mut() {
            if rests_until.take_if(|until| *until <= now).is_some() {
                self.events.set_listening(*key, &*pipe, true);
            }
        }
    }

    /// Logs what is left in a guest's pipe, and closes it.
    pub(super) fn close_stderr(&mut self, name: &Name) {
        // The first read takes all that a page holds. A guest that goes on writing meanwhile is not heard out.
        self.read_stderr(name);
        let Some(mut stderr) = self.stderr.remove(name) else { return };
        stderr.line.finish(|line| self.log.said_by_guest(name, line));
        self.events.remove(stderr.key, &stderr.pipe);
    }

    /// Reads once, and logs the lines that ended.
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
    fn lines_come_whole_however_they_were_written() {
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
