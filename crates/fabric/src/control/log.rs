//! The log of a network: a file with one line for each event, with the event's time. The file is rotated.
//!
//! Lines that the control program writes on its own account are always written. A line that a guest or a client caused counts
//! against two limits of its cause: a rate, and a share of the file. The log omits a line that exceeds a limit, and later writes
//! how many lines it omitted. Each line is escaped and shortened, so that text from a guest cannot look like a separate line.

mod share;
mod text;

use crate::limits::{LOG_BYTES_MAX, LOG_GUESTS_BYTES_MAX, LOG_KEPT_MIN};
use crate::rundir::RunDir;
use share::{LeftOut, Share};
use siga_model::error::{IoContext, Result};
use siga_model::name::Name;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// The cause of a line that the control program does not write on its own account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// A guest of the topology.
    Guest(Name),
    /// The clients. All clients of the control program together count as one cause.
    Clients,
}

/// The log of one network.
#[derive(Debug)]
pub(super) struct Log {
    run: Rc<RunDir>,
    file: File,
    /// The size of the file in bytes.
    bytes: u64,
    /// Bytes of lines in the file that exceeded the reserve of their cause, summed over all guests and the clients.
    shared_bytes: u64,
    /// The time at which this process created or opened the file.
    begun: Instant,
    shares: BTreeMap<Cause, Share>,
    /// True if the standard error of this process is redirected to the file.
    is_stderr: bool,
}

impl Log {
    /// Opens the log of a network for appending.
    pub(super) fn open(run: &Rc<RunDir>) -> Result<Self> {
        let (file, bytes) = append(run)?;
        let (begun, shares) = (Instant::now(), BTreeMap::new());
        Ok(Self { run: Rc::clone(run), file, bytes, shared_bytes: 0, begun, shares, is_stderr: false })
    }

    /// Redirects the standard error of this process to the log. This closes the former standard error. Otherwise a process that
    /// reads it until its end would wait until the network is taken down.
    pub(super) fn become_stderr(&mut self) -> Result<()> {
        rustix::stdio::dup2_stderr(&self.file).context("cannot write to the control program's log")?;
        self.is_stderr = true;
        Ok(())
    }

    /// Writes a line on the control program's own account, without a limit. So the cause of the line must be an administrator or
    /// the host, never a guest.
    pub(super) fn line(&mut self, text: &str) {
        self.write(&text::line(text.as_bytes()));
    }

    /// Writes a line that a guest caused. If the line exceeds a limit of the guest, omits and counts it.
    pub(super) fn of_guest(&mut self, guest: &Name, text: &str) {
        self.of(&Cause::Guest(guest.clone()), &text::line(text.as_bytes()), Instant::now());
    }

    /// Writes a line that a guest wrote to its standard error, marked as the guest's text, or omits and counts the line.
    pub(super) fn said_by_guest(&mut self, guest: &Name, said: &[u8]) {
        let line = format!("guest {guest}: says: {}", text::line(said));
        self.of(&Cause::Guest(guest.clone()), &line, Instant::now());
    }

    /// Writes a line that a client caused. If the line exceeds a limit of the clients, omits and counts it.
    pub(super) fn of_clients(&mut self, text: &str) {
        self.of(&Cause::Clients, &text::line(text.as_bytes()), Instant::now());
    }

    /// Returns the time at which the next count of omitted lines is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.shares.values().filter_map(Share::due).min()
    }

    /// Writes the counts of omitted lines that are due.
    pub(super) fn write_due_counts(&mut self, now: Instant) {
        let due = |(cause, share): (&Cause, &Share)| (share.due()? <= now).then(|| cause.clone());
        let due: Vec<Cause> = self.shares.iter().filter_map(due).collect();
        due.into_iter().for_each(|cause| self.write_left_out(&cause, now));
    }

    fn of(&mut self, cause: &Cause, line: &str, now: Instant) {
        let length = written_bytes(line);
        let share = self.shares.entry(cause.clone()).or_insert_with(|| Share::new(now));
        if !share.allows(length, now) || !self.has_room(cause, length, now) {
            if let Some(share) = self.shares.get_mut(cause) {
                share.leave_out(now);
            }
            return;
        }
        self.write_left_out(cause, now);
        self.write(line);
    }

    /// Reserves room for a line in the file, and returns true if there is room. The room is taken from the reserve of the line's
    /// cause first, then from the bytes that all causes share.
    fn has_room(&mut self, cause: &Cause, length: u64, now: Instant) -> bool {
        if self.shared_bytes + length > LOG_GUESTS_BYTES_MAX && now.duration_since(self.begun) >= LOG_KEPT_MIN {
            self.rotate();
        }
        let has_shared = self.shared_bytes + length <= LOG_GUESTS_BYTES_MAX;
        let Some(share) = self.shares.get_mut(cause) else { return false };
        let is_reserved = share.take_reserve(length);
        if !is_reserved && has_shared {
            self.shared_bytes += length;
        }
        is_reserved || has_shared
    }

    fn write_left_out(&mut self, cause: &Cause, now: Instant) {
        let Some(LeftOut { lines, .. }) = self.shares.get(cause).and_then(Share::left_out) else { return };
        let whose = match cause {
            Cause::Guest(name) => format!("guest {name}"),
            Cause::Clients => "requests".to_owned(),
        };
        let line = format!("{whose}: {lines} lines omitted");
        let has_room = self.has_room(cause, written_bytes(&line), now);
        if let Some(share) = self.shares.get_mut(cause) {
            share.wrote_left_out(has_room, now);
        }
        if has_room {
            self.write(&line);
        }
    }

    fn write(&mut self, line: &str) {
        let length = written_bytes(line);
        if self.bytes + length > LOG_BYTES_MAX {
            self.rotate();
        }
        let time = humantime::format_rfc3339_micros(SystemTime::now());
        // A write error such as a full disk is ignored, because it must not stop the network.
        if self.bytes + length <= LOG_BYTES_MAX && self.file.write_all(format!("{time} {line}\n").as_bytes()).is_ok() {
            self.bytes += length;
        }
    }

    /// Begins a new log file. If that fails, the log continues in the old file until the file reaches its size limit.
    fn rotate(&mut self) {
        if let Ok((file, bytes)) = self.run.rotate_log().and_then(|()| append(&self.run)) {
            (self.file, self.bytes, self.shared_bytes, self.begun) = (file, bytes, 0, Instant::now());
            self.shares.values_mut().for_each(Share::renew);
            if self.is_stderr {
                // If this fails, the standard error of this process still goes to the former log file, which does no harm.
                let _ = rustix::stdio::dup2_stderr(&self.file);
            }
        }
    }
}

/// How many bytes each line has in addition to its text: the time, a space and the line end.
const FRAME_BYTES: u64 = 29;

fn written_bytes(line: &str) -> u64 {
    line.len() as u64 + FRAME_BYTES
}

/// Opens the log file for appending. Returns the file and its size in bytes.
fn append(run: &RunDir) -> Result<(File, u64)> {
    let file = File::from(run.append_log()?);
    let bytes = file.metadata().context("cannot read the properties of the control program's log")?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests;
