//! Starting processes that run this program: guests, switches, and whatever else belongs to one control program.
//!
//! Other processes of the same user must not get hold of a guest, not even between its start and its first system call. The
//! kernel hides a process from its first instruction if the file it executes is unreadable to it. So what is started is a
//! copy of the running program in anonymous memory that may be executed and not read, which nobody but this process can
//! reach, and which stays as it is when the file on disk is replaced.
//!
//! What a started process does is its arguments' business. It outlives who started it.

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

/// The file that this process executes, whatever became of its name.
const RUNNING: &str = "/proc/self/exe";

/// What guests are called in lists of processes.
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
    /// The file that runs, which is unreadable itself.
    Unreadable,
    /// The file that runs. What starts from it is hidden as soon as it says so itself.
    Readable {
        /// Why there is no copy.
        why: String,
    },
}

impl Program {
    /// Makes the program ready, and hides this process, as whoever gets hold of it gets hold of what it starts.
    ///
    /// Where the host allows no execution from memory (`vm.memfd_noexec=2`), the file itself is started.
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

    /// Why what is started is not hidden from its first instruction, if so.
    pub fn exposed(&self) -> Option<&str> {
        match &self.image {
            Image::Copy(_) | Image::Unreadable => None,
            Image::Readable { why } => Some(why),
        }
    }

    /// Starts a process with `channel` as its descriptor 0 (it gets at it by [`channel`]), in a session of its own, without
    /// environment or any other descriptor, in the root directory. Messages go where this process's go.
    ///
    /// Everybody on the host can read the arguments.
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

    /// The same, with messages that go to `messages`.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn start_with<I, A>(&self, arguments: I, channel: OwnedFd, messages: impl Into<Stdio>) -> Result<Process>
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
        command.stdin(channel).stdout(Stdio::null()).stderr(messages);
        sys::start_afresh(&mut command);
        Process::watch(command.spawn().context("cannot start a process")?)
    }
}

/// A way to start the processes of guests.
pub trait Launcher: std::fmt::Debug {
    /// Starts a process with these arguments, `channel` as its descriptor 0, and `messages` as its descriptor 2.
    ///
    /// # Errors
    /// The host allows no more processes or descriptors.
    fn start(&self, arguments: &[&str], channel: OwnedFd, messages: OwnedFd) -> Result<Process>;
}

impl Launcher for Program {
    fn start(&self, arguments: &[&str], channel: OwnedFd, messages: OwnedFd) -> Result<Process> {
        self.start_with(arguments, channel, messages)
    }
}

/// An empty file in memory that may be executed.
fn executable_memory() -> std::result::Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(NAME, flags | MemfdFlags::EXEC) {
        // Kernels before 6.3 do not know the flag, and make all such files executable.
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        made => made,
    }
}

/// Fills `memory` with the program and closes it for good: nobody can write, read or open it for either.
fn copy(file: &mut File, memory: OwnedFd) -> io::Result<Image> {
    let mut memory = File::from(memory);
    io::copy(file, &mut memory)?;
    rustix::fs::fchmod(&memory, Mode::XUSR | Mode::XGRP | Mode::XOTH)?;
    // Nobody has mapped it to write into, so that a seal on what is still to come seals all. `WRITE` would say the same and fail
    // (EBUSY) whenever the host holds one of the pages for a moment, as its search for idle memory does.
    let seals = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    // Some hosts let such files be made and not be executed.
    match rustix::fs::access(through(&memory), Access::EXEC_OK) {
        Ok(()) => Ok(Image::Copy(memory.into())),
        Err(error) => Ok(Image::Readable { why: error.to_string() }),
    }
}

/// A process that was started. It goes on when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pidfd: OwnedFd,
}

impl Process {
    /// Watches a child of this process.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn watch(child: Child) -> Result<Self> {
        // The number is the child's until somebody waits for it, which only this value can.
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a process that was started")?;
        Ok(Self { child, pidfd })
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// A descriptor that is readable once the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// None is known.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for a process that was started")
    }

    /// How it ends; waits until then.
    ///
    /// # Errors
    /// None is known.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().context("cannot wait for a process that was started")
    }

    /// Sends it a signal; nothing happens if it has ended.
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

/// Takes the channel that this process was started with, once; descriptor 0 is /dev/null afterwards.
///
/// # Errors
/// Descriptor 0 is no socket: this process was not started by [`Program::start`], or the channel is taken.
pub fn channel() -> Result<OwnedFd> {
    let stdin = rustix::stdio::stdin();
    if rustix::net::sockopt::socket_type(stdin).is_err() {
        return Err(Error::usage("this command is run by the control program, not by hand"));
    }
    let channel = rustix::io::fcntl_dupfd_cloexec(stdin, 3).context("cannot take the channel")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context("/dev/null")?;
    rustix::stdio::dup2_stdin(null).context("cannot take the channel")?;
    // Lists of threads name it after the file in memory otherwise, a number.
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
    fn the_copy_can_be_changed_by_nobody() {
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
    fn the_copy_is_made_while_somebody_holds_one_of_its_pages() {
        let memory = executable_memory().unwrap();
        File::from(memory.try_clone().unwrap()).write_all(b"a").unwrap();
        let (_held, into) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        // The page itself is in the pipe, not what it says.
        assert_eq!(splice(&memory, Some(&mut 0), &into, None, 1, SpliceFlags::empty()), Ok(1));
        File::from(memory.try_clone().unwrap()).seek(SeekFrom::Start(0)).unwrap();
        assert!(matches!(copied(memory), Image::Copy(_)));
    }
}
