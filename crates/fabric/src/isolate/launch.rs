//! Starts processes of this program: guests and other processes of one control program.
//!
//! Other processes of the same user must not get hold of a guest, not even between its start and its first system call. The kernel
//! hides a process from its first instruction if it cannot read the file that it executes. So this module executes a copy of the
//! running program in anonymous memory that is executable and not readable. Only this process can reach the copy, and it does not
//! change when the file on disk is replaced.
//!
//! The arguments decide what a started process does. It outlives the process that started it.

use crate::files::through;
use crate::{isolate, sys};
use rustix::fs::{Access, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use siga_model::error::{Error, IoContext, Result};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The file that this process executes, even if its name has changed.
const RUNNING: &str = "/proc/self/exe";

/// The name of guests in lists of processes.
const NAME: &str = "siga";
const THREAD_NAME: &CStr = c"siga";

/// The running program, ready to be started as other processes, all of one version.
#[derive(Debug)]
pub struct Program {
    image: Image,
}

#[derive(Debug)]
enum Image {
    /// An unreadable copy in memory.
    Copy(OwnedFd),
    /// The running file, which is unreadable itself.
    Unreadable,
    /// The running file, which is readable. A process from it is hidden only once it calls [`isolate::hide`].
    Readable {
        /// Why there is no copy.
        why: String,
    },
}

impl Program {
    /// Makes the program ready, and hides this process: another process that controlled it would control what it starts.
    ///
    /// If the host does not allow execution from memory (`vm.memfd_noexec=2`), the file itself is started.
    ///
    /// # Errors
    /// As [`isolate::hide`]; there is not enough memory for the copy.
    pub fn load() -> Result<Self> {
        isolate::hide()?;
        let mut file = match File::open(RUNNING) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Self { image: Image::Unreadable });
            }
            Err(error) => return Err(error).context(RUNNING),
        };
        let image = match executable_memory() {
            Ok(memory) => copy(&mut file, memory).context("cannot copy the program into memory")?,
            Err(why @ (Errno::ACCESS | Errno::PERM | Errno::NOSYS)) => Image::Readable { why: why.to_string() },
            Err(error) => return Err(error).context("cannot make memory for a copy of the program"),
        };
        Ok(Self { image })
    }

    /// Why started processes are not hidden from their first instruction; none if they are.
    pub fn exposed(&self) -> Option<&str> {
        match &self.image {
            Image::Copy(_) | Image::Unreadable => None,
            Image::Readable { why } => Some(why),
        }
    }

    /// Starts a process with `channel` as descriptor 0 (see [`channel`]), in a session of its own and in the root directory, without
    /// environment or other descriptors. Its standard error is that of this process.
    ///
    /// Every user of the host can read the arguments.
    ///
    /// # Errors
    /// The host allows no more processes or descriptors.
    pub fn start<I, A>(&self, arguments: I, channel: OwnedFd) -> Result<Process>
    where
        I: IntoIterator<Item = A>,
        A: AsRef<OsStr>,
    {
        self.start_with(arguments, channel, Stdio::inherit())
    }

    /// The same, with `stderr` as standard error.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn start_with<I, A>(&self, arguments: I, channel: OwnedFd, stderr: impl Into<Stdio>) -> Result<Process>
    where
        I: IntoIterator<Item = A>,
        A: AsRef<OsStr>,
    {
        let path = match &self.image {
            Image::Copy(memory) => through(memory),
            Image::Unreadable | Image::Readable { .. } => RUNNING.to_owned(),
        };
        let mut command = Command::new(path);
        command.arg0(NAME).args(arguments).env_clear().current_dir("/");
        command.stdin(channel).stdout(Stdio::null()).stderr(stderr);
        sys::start_afresh(&mut command);
        Process::watch(command.spawn().context("cannot start a process")?)
    }
}

/// Starts the processes of guests.
pub trait Launcher: std::fmt::Debug {
    /// Starts a process with these arguments, `channel` as descriptor 0, and `stderr` as descriptor 2.
    ///
    /// # Errors
    /// The host allows no more processes or descriptors.
    fn start(&self, arguments: &[&str], channel: OwnedFd, stderr: OwnedFd) -> Result<Process>;
}

impl Launcher for Program {
    fn start(&self, arguments: &[&str], channel: OwnedFd, stderr: OwnedFd) -> Result<Process> {
        self.start_with(arguments, channel, stderr)
    }
}

/// An empty memory file that may be executed.
fn executable_memory() -> std::result::Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(NAME, flags | MemfdFlags::EXEC) {
        // Kernels before 6.3 do not have this flag: all their memory files are executable.
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        made => made,
    }
}

/// Copies the program into `memory` and seals it for good: no process can read or write it, or open it to do so.
fn copy(file: &mut File, memory: OwnedFd) -> io::Result<Image> {
    let mut memory = File::from(memory);
    io::copy(file, &mut memory)?;
    rustix::fs::fchmod(&memory, Mode::XUSR | Mode::XGRP | Mode::XOTH)?;
    // No process has a writable mapping, so a seal on future mappings is enough. The seal `WRITE` would fail with EBUSY whenever the
    // kernel holds one of the pages for a moment, as idle page tracking does.
    let seals = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    // Some hosts allow such files but not their execution.
    match rustix::fs::access(through(&memory), Access::EXEC_OK) {
        Ok(()) => Ok(Image::Copy(memory.into())),
        Err(error) => Ok(Image::Readable { why: error.to_string() }),
    }
}

/// A process that was started. It runs on when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pidfd: OwnedFd,
}

impl Process {
    /// Watches a child of this process.
    ///
    /// # Errors
    /// This process has no descriptors left.
    pub fn watch(child: Child) -> Result<Self> {
        // The id belongs to the child until this value waits for it.
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a process that was started")?;
        Ok(Self { child, pidfd })
    }

    /// Its id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// A descriptor that is readable once the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// The kernel refuses, which is not expected.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for a process that was started")
    }

    /// Waits until it ends, and returns its exit status.
    ///
    /// # Errors
    /// The kernel refuses, which is not expected.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().context("cannot wait for a process that was started")
    }

    /// Sends it a signal. Nothing happens if it has ended.
    ///
    /// # Errors
    /// The process runs as another user.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).context("cannot signal a process that was started"),
        }
    }
}

/// Takes the channel that this process was started with. Afterwards descriptor 0 is /dev/null.
///
/// # Errors
/// Descriptor 0 is not a socket: this process was not started by [`Program::start`], or has taken the channel already.
pub fn channel() -> Result<OwnedFd> {
    let stdin = rustix::stdio::stdin();
    if rustix::net::sockopt::socket_type(stdin).is_err() {
        return Err(Error::usage("this command cannot be run by hand: the control program runs it"));
    }
    let channel = rustix::io::fcntl_dupfd_cloexec(stdin, 3).context("cannot take the channel")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context("/dev/null")?;
    rustix::stdio::dup2_stdin(null).context("cannot take the channel")?;
    // Otherwise lists of threads would show the number of the memory file.
    rustix::thread::set_name(THREAD_NAME).context("cannot name the process")?;
    Ok(channel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
    use std::io::{Read, Seek, SeekFrom, Write};

    /// The copy of a small file.
    fn copied(memory: OwnedFd) -> Image {
        let mut program = tempfile::tempfile().unwrap();
        program.write_all(b"a program").unwrap();
        program.seek(SeekFrom::Start(0)).unwrap();
        copy(&mut program, memory).unwrap()
    }

    #[test]
    fn no_process_can_change_the_copy() {
        let Image::Copy(memory) = copied(executable_memory().unwrap()) else { panic!("this host executes no memory") };
        let mut memory = File::from(memory);
        assert_eq!(Errno::from_io_error(&memory.write(b"x").unwrap_err()), Some(Errno::PERM));
        assert_eq!(Errno::from_io_error(&memory.set_len(0).unwrap_err()), Some(Errno::PERM));
        let mut bytes = Vec::new();
        memory.seek(SeekFrom::Start(0)).unwrap();
        memory.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"a program");
    }

    #[test]
    fn the_copy_succeeds_while_one_of_its_pages_is_held() {
        let memory = executable_memory().unwrap();
        File::from(memory.try_clone().unwrap()).write_all(b"a").unwrap();
        let (_held, into) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        // The pipe holds the page itself, not a copy.
        assert_eq!(splice(&memory, Some(&mut 0), &into, None, 1, SpliceFlags::empty()), Ok(1));
        File::from(memory.try_clone().unwrap()).seek(SeekFrom::Start(0)).unwrap();
        assert!(matches!(copied(memory), Image::Copy(_)));
    }
}
