//! The channel between a process of siga and its child process. It consists of pipes, and carries one line of JSON for each
//! request and one for each answer.
//!
//! The child runs in a namespace, or on another host over ssh. The channel is never part of the measured path. Every wait for
//! an answer has a time limit. If the child dies, hangs or sends an invalid answer, the caller gets an error that names the
//! child. A child exits when its standard input ends.

use crate::ended_first::EndedFirst;
use crate::interrupt::{NOTICE_TIME_MAX, interrupted};
use crate::limits;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use siga_model::error::{Error, IoContext, Result};
use std::io::{Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The outcome of a request as it crosses the channel: the answer, or an error with its kind and hint.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<T> {
    Ok(T),
    Error(Error),
}

/// Reads lines from a pipe, with a limit on waiting time and line length.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    pipe: R,
    buffer: Vec<u8>,
}

impl<R: Read + rustix::fd::AsFd> Lines<R> {
    /// Makes a reader of `pipe`.
    pub(crate) fn new(pipe: R) -> Self {
        Self { pipe, buffer: Vec::new() }
    }

    /// Returns the next line without its line break, or `None` at the end of the input. Waits without limit if `timeout` is
    /// `None`. Returns an error if no complete line arrives in time, if the line exceeds `limits::LINE_BYTES_MAX`, if a read
    /// fails, or if the user interrupts siga.
    pub(crate) fn next(&mut self, timeout: Option<Duration>) -> Result<Option<String>> {
        let deadline = timeout.map(|time| Instant::now() + time);
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return String::from_utf8(line)
                    .map(Some)
                    .map_err(|_| Error::environment("the process sent an answer that is not valid UTF-8"));
            }
            searched = self.buffer.len();
            if searched > limits::LINE_BYTES_MAX {
                return Err(Error::environment("the process sent an answer with a line that is too long"));
            }
            if interrupted() {
                return Err(Error::incomplete("interrupted"));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::environment("the process did not answer before the timeout"));
            }
            if !self.wait(deadline)? {
                continue;
            }
            let mut chunk = [0; 16 << 10];
            match self.pipe.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::environment(format!("cannot read the answer of the process: {error}")));
                }
            }
        }
    }

    /// Reads and discards input up to its end. Returns false if the input has not ended by `deadline`.
    fn drain(&mut self, deadline: Instant) -> bool {
        let mut chunk = [0; 4 << 10];
        while Instant::now() < deadline {
            match self.wait(Some(deadline)) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return false,
            }
            match self.pipe.read(&mut chunk) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Returns whether the process has sent something that `next` has not returned, or has closed the pipe.
    fn has_more(&self) -> Result<bool> {
        Ok(!self.buffer.is_empty() || self.wait(Some(Instant::now()))?)
    }

    /// With a deadline, waits for input until `deadline`, but for at most `NOTICE_TIME_MAX`, so that the caller can check for
    /// an interrupt. Without a deadline, waits without limit. Returns false if no input has arrived.
    fn wait(&self, deadline: Option<Instant>) -> Result<bool> {
        let left = deadline.map_or(NOTICE_TIME_MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now()).min(NOTICE_TIME_MAX)
        });
        // Only agents and namespace holders, which wait for requests, wait without a deadline. They must not wake up during a
        // measurement, so poll gets no timeout in this case.
        let time = deadline.is_some().then(|| rustix::time::Timespec::try_from(left)).transpose();
        let time = time.map_err(|_| Error::environment("the timeout for an answer of the process is too long"))?;
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], time.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::environment(format!("cannot wait for the answer of the process: {error}"))),
        }
    }
}

/// Writes the outcome of a request as one line. Returns an error if the other process has closed the pipe.
pub(crate) fn write_outcome<T: Serialize>(pipe: &mut impl Write, outcome: Result<T>) -> Result<()> {
    match outcome {
        Ok(value) => write_line(pipe, &Outcome::Ok(value)),
        Err(error) => write_line(pipe, &Outcome::<T>::Error(error)),
    }
}

fn write_line(pipe: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(value).context("cannot encode a message to the process")?;
    text.push(b'\n');
    pipe.write_all(&text).and_then(|()| pipe.flush()).context("cannot write")
}

/// A child process that receives requests as lines. Dropping this value ends the process.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<ChildStdout>,
    /// The child's standard error, if the caller's command redirects it into a pipe. It is read only after the child has ended.
    diagnostics: Option<ChildStderr>,
}

impl ChildProcess {
    /// Starts `command`. Error messages call the process `name`. The process gets its own process group, so that it receives no
    /// signal when the user presses Ctrl-C. Returns an error if the process cannot be started.
    pub(crate) fn start(mut command: Command, name: impl Into<String>) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let name = name.into();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let ended_first = EndedFirst::of_run();
        let mut child = command.spawn().context(format!("{name}: cannot start {}", command.get_program().display()))?;
        drop(ended_first);
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::environment(format!("{name}: the process was started without pipes")));
        };
        let diagnostics = child.stderr.take();
        Ok(Self { name, child, input: Some(input), output: Lines::new(output), diagnostics })
    }

    /// Returns the child's process id on this host.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the name that messages use for the child.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request and does not wait for the answer. Returns an error if the child has ended.
    pub(crate) fn send<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let Some(input) = &mut self.input else { return Err(self.gone()) };
        match write_line(input, value) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.gone()),
        }
    }

    /// Sends all bytes of `source` to the child's standard input. Returns an error if the child has ended, if it reads nothing
    /// for the time `stall`, if `source` cannot be read, or if the user interrupts siga.
    pub(crate) fn feed(&mut self, source: &mut impl Read, stall: Duration) -> Result<()> {
        // A write of up to PIPE_BUF bytes to a pipe that poll reports as writable does not block (pipe(7)).
        let mut chunk = [0; rustix::pipe::PIPE_BUF];
        let mut moved = Instant::now();
        loop {
            let count = source.read(&mut chunk).context("cannot read the running program")?;
            let mut left = &chunk[..count];
            if left.is_empty() {
                return Ok(());
            }
            while !left.is_empty() {
                let Some(input) = &mut self.input else { return Err(self.gone()) };
                if interrupted() {
                    return Err(Error::incomplete("interrupted"));
                }
                if moved.elapsed() > stall {
                    return Err(Error::environment("the process does not read its input").at(&self.name));
                }
                let notice = rustix::time::Timespec::try_from(NOTICE_TIME_MAX)
                    .context("the timeout for an answer of the process is too long")?;
                match poll(&mut [PollFd::new(input, PollFlags::OUT)], Some(&notice)) {
                    Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                    Ok(_) => {}
                    Err(error) => return Err(Error::environment(format!("cannot wait for {}: {error}", self.name))),
                }
                match input.write(left) {
                    Ok(written) => (left, moved) = (&left[written..], Instant::now()),
                    Err(_) => return Err(self.gone()),
                }
            }
        }
    }

    /// Waits for the next answer. If the child answers with an error, returns this error. Also returns an error if the child
    /// has ended, does not answer within `timeout`, or sends an invalid answer.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T> {
        let Some(line) = self.output.next(Some(timeout)).map_err(|error| error.at(&self.name))? else {
            return Err(self.gone());
        };
        match serde_json::from_str(&line) {
            Ok(Outcome::Ok(answer)) => Ok(answer),
            Ok(Outcome::Error(error)) => Err(error.at(&self.name)),
            Err(error) => {
                let start: String = line.chars().take(80).flat_map(char::escape_debug).collect();
                Err(Error::environment(format!(
                    "{}: the process sent the invalid answer `{start}`: {error}",
                    self.name
                )))
            }
        }
    }

    /// Returns whether the child has sent an answer that this process has not received, or has ended.
    pub(crate) fn has_answered(&self) -> Result<bool> {
        self.output.has_more().map_err(|error| error.at(&self.name))
    }

    /// Sends a request and waits for the answer. Returns the errors of `send` and `receive`.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, request: &impl Serialize, timeout: Duration) -> Result<T> {
        self.send(request)?;
        self.receive(timeout)
    }

    /// Returns the error for an answer that does not fit the request.
    pub(crate) fn unexpected(&self, answer: &impl std::fmt::Debug) -> Error {
        Error::environment(format!(
            "{}: the process sent an answer that does not fit the request: {answer:?}",
            self.name
        ))
    }

    /// Returns an error that says how the child ended. Waits up to one second for the child's exit status.
    fn gone(&mut self) -> Error {
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    let diagnostic = self.diagnostic();
                    return Error::incomplete(format!("{}: the process died ({status}){diagnostic}", self.name));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => break,
            }
        }
        Error::incomplete(format!("{}: the process closed its connection to siga", self.name))
    }

    /// Returns the last line that the child wrote to standard error.
    fn diagnostic(&mut self) -> String {
        let Some(pipe) = &mut self.diagnostics else { return String::new() };
        let mut bytes = vec![0; DIAGNOSTIC_BYTES_MAX];
        let mut length = 0;
        // Processes that the child started may keep the pipe open. So this loop reads only the bytes that are available, and
        // does not wait for the end of the input.
        while poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&rustix::time::Timespec::default())) == Ok(1) {
            match pipe.read(&mut bytes[length..]) {
                Ok(count) if count > 0 => length += count,
                Ok(_) | Err(_) => break,
            }
        }
        let text = String::from_utf8_lossy(&bytes[..length]);
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        last.map(|line| format!(": {line}")).unwrap_or_default()
    }

    /// Waits until the child has ended. Returns false if the child is still running at `deadline`.
    fn leaves(&mut self, deadline: Instant) -> bool {
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                Ok(status) => return status.is_some(),
                Err(_) => return true,
            }
        }
    }

    /// Closes the child's input, so that the child exits. Kills the child if it does not exit within `time`. An interrupt by the user
    /// does not shorten this time.
    pub(crate) fn end_within(&mut self, time: Duration) {
        self.input = None;
        let deadline = Instant::now() + time;
        // First wait for the end of the child's output: a process of siga closes its standard output only when it exits.
        if !(self.output.drain(deadline) && self.leaves(deadline)) {
            // `kill` fails only if the child has already ended.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Maximum number of bytes that are read from a child's standard error: the default capacity of a pipe.
const DIAGNOSTIC_BYTES_MAX: usize = 64 << 10;

/// Maximum time between the end of a child's input and its exit. A child that needs longer is killed.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end_within(LEAVE_TIME_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_that_is_too_long_or_too_late_is_an_error() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut lines = Lines::new(reader);
        writer.write_all(b"a line\nhalf of").unwrap();
        assert_eq!(lines.next(None).unwrap().as_deref(), Some("a line"));
        let late = lines.next(Some(Duration::from_millis(10))).unwrap_err();
        assert!(late.message().contains("did not answer before the timeout"), "{late}");
        let endless = std::thread::spawn(move || while writer.write_all(&[b'x'; 4 << 10]).is_ok() {});
        let error = lines.next(None).unwrap_err();
        assert!(error.message().contains("an answer with a line that is too long"), "{error}");
        assert!(lines.buffer.len() <= limits::LINE_BYTES_MAX + (16 << 10));
        drop(lines);
        endless.join().unwrap();
    }
}
