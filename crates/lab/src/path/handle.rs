//! The coordinator's side of a built path: starts its keeper, asks it, and lets it go.
//!
//! A [`Path`] is a lease: dropping it ends the keeper and with it every namespace. All waiting is bounded.

use super::protocol::{LINE_BYTES_MAX, Request, parse_answer, request_line};
use super::{Built, Counters, PathKind, PathSpec};
use crate::error::{Error, IoContext, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long building may take, loading of kernel modules included.
const BUILD_TIME_MAX: Duration = Duration::from_secs(20);
/// How long any other request may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a keeper may take to leave before it is killed.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

/// A built path; it exists as long as this value.
#[derive(Debug)]
pub struct Path {
    /// What was built.
    pub built: Built,
    kind: PathKind,
    keeper: Keeper,
}

impl Path {
    /// Starts `program keep` and has it build `spec`.
    ///
    /// The keeper dies with the calling *thread* (PR_SET_PDEATHSIG), which therefore must outlive the path. It has a
    /// process group of its own: an interrupt typed at the terminal does not reach it.
    ///
    /// # Errors
    /// Usage: [`PathSpec::check`]. Environment: the program cannot be started or the host cannot build the path.
    pub fn build(program: &std::path::Path, spec: &PathSpec) -> Result<Self> {
        spec.check()?;
        let mut keeper = Keeper::start(program)?;
        let request = Request::Build { spec: spec.clone(), parent: std::process::id() };
        let built = keeper.ask(&request, BUILD_TIME_MAX).map_err(|error| named(spec.kind, error))?;
        Ok(Self { built, kind: spec.kind, keeper })
    }

    /// The counters of every interface, by the names of [`Built::interfaces`].
    ///
    /// # Errors
    /// Environment: the keeper is gone or does not answer.
    pub fn counters(&mut self) -> Result<BTreeMap<String, Counters>> {
        self.keeper.ask(&Request::Counters, ANSWER_TIME_MAX).map_err(|error| named(self.kind, error))
    }

    /// Process id of the keeper.
    pub fn keeper(&self) -> u32 {
        self.keeper.child.id()
    }

    /// Ends the path and returns when its keeper is gone; the same as dropping it.
    pub fn close(self) {}
}

fn named(kind: PathKind, error: Error) -> Error {
    error.at(format!("path {kind}"))
}

/// The child process and its pipes.
#[derive(Debug)]
struct Keeper {
    child: Child,
    /// `None` once the keeper was told to leave.
    requests: Option<ChildStdin>,
    answers: ChildStdout,
}

impl Keeper {
    fn start(program: &std::path::Path) -> Result<Self> {
        let mut child = Command::new(program)
            .arg("keep")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context(format!("cannot start {} keep", program.display()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(answers)) => Ok(Self { child, requests: Some(requests), answers }),
            (None, _) | (_, None) => Err(Error::environment("the keeper of a path has no pipes")),
        }
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Request, time_max: Duration) -> Result<T> {
        let line = request_line(request)?;
        // A failed write means that the keeper is gone, which reading its answer explains better.
        let _broken = self.requests.as_mut().map(|requests| requests.write_all(&line));
        let line = self.answer_line(Instant::now() + time_max)?;
        parse_answer(&line)
    }

    fn answer_line(&mut self, deadline: Instant) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut chunk = [0; 16 << 10];
        while line.last() != Some(&b'\n') {
            if !wait_readable(&self.answers, deadline) {
                return Err(Error::environment("its keeper did not answer in time")
                    .hint("the host is overloaded, or the loading of a kernel module hangs; try again"));
            }
            let length = rustix::io::read(&self.answers, &mut chunk[..]).context("cannot read its keeper's answer")?;
            if length == 0 || line.len() > LINE_BYTES_MAX {
                return Err(self.explain_end());
            }
            line.extend_from_slice(&chunk[..length]);
        }
        Ok(line)
    }

    fn explain_end(&mut self) -> Error {
        let status = self.leave();
        Error::environment(format!("its keeper ended without an answer ({status})"))
            .hint("what it wrote to standard error, above, says why; was it killed?")
    }

    /// Has the keeper leave, by force if it takes too long, and says how it ended.
    fn leave(&mut self) -> String {
        self.requests = None;
        let deadline = Instant::now() + LEAVE_TIME_MAX;
        let mut chunk = [0; 4 << 10];
        // The end of its output is the end of the keeper: nobody else holds the pipe.
        let left = loop {
            if !wait_readable(&self.answers, deadline) {
                break false;
            }
            match rustix::io::read(&self.answers, &mut chunk[..]) {
                Ok(0) => break true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break false,
            }
        };
        if !left {
            // An error means that it is gone already.
            let _gone = self.child.kill();
        }
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Waits until `pipe` can be read or has ended; false at the deadline.
fn wait_readable(pipe: &ChildStdout, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
