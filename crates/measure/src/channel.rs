//! The channel between processes of siga: one JSON line a request, one JSON line an answer, over pipes.
//!
//! The far end is a child in a namespace or runs behind ssh. The channel is never part of the measured path. Every
//! wait has a limit. A far end that dies, hangs or answers nonsense becomes an error that names it. A child leaves
//! when its input ends.

use crate::interrupt::{NOTICE_TIME_MAX, interrupted};
use crate::limits;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use siga_model::error::{Error, IoContext, Result};
use std::io::{Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The outcome of a request: the answer, or the error with its kind and hint.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<T> {
    Ok(T),
    Error(Error),
}

/// Reads lines from a pipe with a bound on time and size.
#[derive(Debug)]
pub struct Lines<R> {
    pipe: R,
    buffer: Vec<u8>,
}

impl<R: Read + rustix::fd::AsFd> Lines<R> {
    /// Reads from `pipe`.
    pub fn new(pipe: R) -> Self {
        Self { pipe, buffer: Vec::new() }
    }

    /// The next line without its end; `None` at the end of the input. Waits for ever without a `timeout`.
    ///
    /// # Errors
    /// The time is over, the line is longer than `limits::LINE_BYTES_MAX`, or reading failed.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<String>> {
        let deadline = timeout.map(|time| Instant::now() + time);
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return String::from_utf8(line)
                    .map(Some)
                    .map_err(|_| Error::environment("answered with bytes that are not UTF-8"));
            }
            searched = self.buffer.len();
            if searched > limits::LINE_BYTES_MAX {
                return Err(Error::environment("answered with a line that is too long"));
            }
            if interrupted() {
                return Err(Error::incomplete("interrupted"));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::environment("did not answer in time"));
            }
            if !self.wait(deadline)? {
                continue;
            }
            let mut chunk = [0; 16 << 10];
            match self.pipe.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::environment(format!("cannot read: {error}"))),
            }
        }
    }

    /// Reads to the end of the input; false if the end does not come by `deadline`.
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

    /// Waits for input in short steps, so that an interrupt is noticed; false if there is none yet.
    fn wait(&self, deadline: Option<Instant>) -> Result<bool> {
        let left = deadline.map_or(NOTICE_TIME_MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now()).min(NOTICE_TIME_MAX)
        });
        // An agent without a deadline waits only for input, and must not wake up while it measures.
        let time = deadline.is_some().then(|| rustix::time::Timespec::try_from(left)).transpose();
        let time = time.map_err(|_| Error::environment("cannot wait that long"))?;
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], time.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::environment(format!("cannot wait for input: {error}"))),
        }
    }
}

/// Writes the outcome of a request as a line.
///
/// # Errors
/// The other end is gone.
pub fn write_outcome<T: Serialize>(pipe: &mut impl Write, outcome: Result<T>) -> Result<()> {
    match outcome {
        Ok(value) => write_line(pipe, &Outcome::Ok(value)),
        Err(error) => write_line(pipe, &Outcome::<T>::Error(error)),
    }
}

fn write_line(pipe: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(value).context("cannot encode a message")?;
    text.push(b'\n');
    pipe.write_all(&text).and_then(|()| pipe.flush()).context("cannot write")
}

/// A child process that receives orders line by line; it ends with this value.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<ChildStdout>,
    /// Its standard error, if the caller asked for it; read when it has ended.
    diagnostics: Option<ChildStderr>,
}

impl ChildProcess {
    /// Starts `command` as `name`, in a process group of its own so that the terminal's Ctrl-C does not reach it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(mut command: Command, name: impl Into<String>) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let name = name.into();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context(format!("{name}: cannot start {}", command.get_program().display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::environment(format!("{name}: started without pipes")));
        };
        let diagnostics = child.stderr.take();
        Ok(Self { name, child, input: Some(input), output: Lines::new(output), diagnostics })
    }

    /// Its process id on this host.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    /// It is gone.
    pub fn send<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let Some(input) = &mut self.input else { return Err(self.gone()) };
        match write_line(input, value) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.gone()),
        }
    }

    /// Sends all bytes of `source`; gives up if the child takes none for `stall`.
    ///
    /// # Errors
    /// It is gone or stuck, or `source` cannot be read.
    pub fn feed(&mut self, source: &mut impl Read, stall: Duration) -> Result<()> {
        // What a pipe that is ready takes without blocking (pipe(7)).
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
                    return Err(Error::environment("takes no input").at(&self.name));
                }
                let notice = rustix::time::Timespec::try_from(NOTICE_TIME_MAX).context("cannot wait that long")?;
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

    /// Waits for the next answer; a failure becomes the error that it carries.
    ///
    /// # Errors
    /// It is gone, did not answer in time, or answered nonsense; and what it reports.
    pub fn receive<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T> {
        let Some(line) = self.output.next(Some(timeout)).map_err(|error| error.at(&self.name))? else {
            return Err(self.gone());
        };
        match serde_json::from_str(&line) {
            Ok(Outcome::Ok(answer)) => Ok(answer),
            Ok(Outcome::Error(error)) => Err(error.at(&self.name)),
            Err(error) => {
                let start: String = line.chars().take(80).flat_map(char::escape_debug).collect();
                Err(Error::environment(format!("{}: answered `{start}`: {error}", self.name)))
            }
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// See `receive`.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &impl Serialize, timeout: Duration) -> Result<T> {
        self.send(request)?;
        self.receive(timeout)
    }

    /// The error for an answer that does not belong to the order.
    pub fn unexpected(&self, answer: &impl std::fmt::Debug) -> Error {
        Error::environment(format!("{}: gave an answer that does not belong to its order: {answer:?}", self.name))
    }

    /// How it ended, as an error.
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
        Error::incomplete(format!("{}: the process closed its channel", self.name))
    }

    /// The last line that it wrote to standard error.
    fn diagnostic(&mut self) -> String {
        let Some(pipe) = &mut self.diagnostics else { return String::new() };
        let mut bytes = vec![0; DIAGNOSTIC_BYTES_MAX];
        let mut length = 0;
        // Processes that it left behind may hold the pipe open, so this reads only what is there.
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

    /// True once it has ended; false if it has not by `deadline`.
    fn leaves(&mut self, deadline: Instant) -> bool {
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                Ok(status) => return status.is_some(),
                Err(_) => return true,
            }
        }
    }

    /// Ends it by closing its input; kills it if it does not leave.
    fn end(&mut self) {
        self.input = None;
        let deadline = Instant::now() + LEAVE_TIME_MAX;
        // Our own processes close their output only when they end.
        if !(self.output.drain(deadline) && self.leaves(deadline)) {
            // An error means that it is gone already.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Most bytes read of a child's standard error: as much as a pipe holds.
const DIAGNOSTIC_BYTES_MAX: usize = 64 << 10;

/// Time that a child may take to leave before it is killed.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end();
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
        assert!(late.message().contains("did not answer in time"), "{late}");
        let endless = std::thread::spawn(move || while writer.write_all(&[b'x'; 4 << 10]).is_ok() {});
        let error = lines.next(None).unwrap_err();
        assert!(error.message().contains("a line that is too long"), "{error}");
        assert!(lines.buffer.len() <= limits::LINE_BYTES_MAX + (16 << 10));
        drop(lines);
        endless.join().unwrap();
    }
}
