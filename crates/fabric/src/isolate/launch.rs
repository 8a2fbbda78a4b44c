//! Starts further processes that run this same program: control programs, guests and other processes.
//!
//! No other process of the same user may gain access to a guest, not even before the guest's first system call. If the user may not
//! read the executable file, the kernel makes the process non-dumpable from the process's first instruction on. Other processes of
//! the user then cannot access the process. Therefore this module executes a copy of the running program from an anonymous memory
//! file that is executable but not readable. Only this process can access the copy. If the file on disk is replaced, the copy does
//! not change.
//!
//! The command-line arguments decide what a started process does. A started process keeps running when its parent ends.

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
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;

/// The path of the file that this process executes. The path is valid even if the file was renamed.
const RUNNING: &str = "/proc/self/exe";

/// The name that process lists show for guests.
const NAME: &str = "siga";
const THREAD_NAME: &CStr = c"siga";

/// The running program, from which further processes can be started. All of them run the same version of the program.
#[derive(Debug)]
pub struct Program {
    image: Image,
}

#[derive(Debug)]
enum Image {
    /// An unreadable copy in an anonymous memory file.
    Copy(OwnedFd),
    /// The executable file on disk, which is itself unreadable.
    Unreadable,
    /// The executable file on disk, which is readable. A process that is started from this file is not hidden until it calls
    /// [`isolate::hide`].
    Readable {
        /// The reason why the program could not be copied to memory.
        why: String,
    },
}

impl Program {
    /// Prepares the running program for starting further processes, and hides this process. Otherwise an attacker who controls this
    /// process could also control the processes that it starts.
    ///
    /// If the host forbids execution from memory (`vm.memfd_noexec=2`), further processes are started from the file itself.
    ///
    /// # Errors
    /// Returns the errors of [`isolate::hide`], and an error if there is not enough memory for the copy.
    pub fn load() -> Result<Self> {
        isolate::hide()?;
        let mut file = match File::open(RUNNING) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Self { image: Image::Unreadable });
            }
            Err(error) => return Err(error).context(RUNNING),
        };
        Self::of(&mut file)
    }

    /// Prepares another program for starting processes: a build of siga in a file. As [`Program::load`], it copies the file and hides
    /// this process. What happens to the file later has no effect.
    ///
    /// # Errors
    /// Returns an error if the file is not a regular file, or cannot be read. Also returns the errors of [`Program::load`], and an
    /// error if the host forbids execution from memory.
    pub fn at(path: &Path) -> Result<Self> {
        isolate::hide()?;
        let at = || format!("cannot use {} as a build of siga", path.display());
        let mut file = File::open(path).map_err(|error| Error::usage(format!("{}: {error}", at())))?;
        if !file.metadata().context(at())?.is_file() {
            return Err(Error::usage(format!("{}: it is not a regular file", at())));
        }
        match Self::of(&mut file)? {
            Self { image: Image::Readable { why } } => {
                Err(Error::environment(format!("{}: this host runs no program from memory: {why}", at()))
                    .hint("allow it (sysctl vm.memfd_noexec=0), or run the command of the new build itself"))
            }
            program => Ok(program),
        }
    }

    fn of(file: &mut File) -> Result<Self> {
        let image = match executable_memory() {
            Ok(memory) => copy(file, memory).context("cannot copy the program into memory")?,
            Err(why @ (Errno::ACCESS | Errno::PERM | Errno::NOSYS)) => Image::Readable { why: why.to_string() },
            Err(error) => return Err(error).context("cannot allocate memory for a copy of the program"),
        };
        Ok(Self { image })
    }

    /// Returns the reason why started processes are not hidden from their first instruction on. Returns `None` if they are hidden.
    pub fn exposed(&self) -> Option<&str> {
        match &self.image {
            Image::Copy(_) | Image::Unreadable => None,
            Image::Readable { why } => Some(why),
        }
    }

    /// Starts a process with `channel` as descriptor 0; the process obtains it by the function [`channel`]. The process gets its
    /// own session, the root directory as working directory, and an empty environment. It inherits standard error, but no other
    /// descriptors.
    ///
    /// Every user of the host can read the arguments, so they must not contain secrets.
    ///
    /// # Errors
    /// Returns an error if the host allows no more processes or descriptors.
    pub fn start<I, A>(&self, arguments: I, channel: OwnedFd) -> Result<Process>
    where
        I: IntoIterator<Item = A>,
        A: AsRef<OsStr>,
    {
        self.start_with(arguments, channel, Stdio::inherit())
    }

    /// Starts a process like [`Program::start`], with `stderr` as its standard error.
    ///
    /// # Errors
    /// Returns the same errors as [`Program::start`].
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
        Process::watch(command.spawn().context("cannot start a process of siga")?)
    }
}

/// Starts the processes of guests. This is a trait so that tests can replace the implementation.
pub trait Launcher: std::fmt::Debug {
    /// Starts a process with `arguments`, with `channel` as descriptor 0 and `stderr` as descriptor 2.
    ///
    /// # Errors
    /// Returns an error if the host allows no more processes or descriptors.
    fn start(&self, arguments: &[&str], channel: OwnedFd, stderr: OwnedFd) -> Result<Process>;
}

impl Launcher for Rc<Program> {
    fn start(&self, arguments: &[&str], channel: OwnedFd, stderr: OwnedFd) -> Result<Process> {
        self.start_with(arguments, channel, stderr)
    }
}

/// Creates an empty memory file that may be executed.
fn executable_memory() -> std::result::Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(NAME, flags | MemfdFlags::EXEC) {
        // Kernels before 6.3 do not know the flag `MFD_EXEC`. All their memory files are executable.
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        made => made,
    }
}

/// Copies the program into `memory` and seals the copy permanently. Afterwards no process can read or write the copy, or open it
/// for reading or writing.
fn copy(file: &mut File, memory: OwnedFd) -> io::Result<Image> {
    let mut memory = File::from(memory);
    io::copy(file, &mut memory)?;
    rustix::fs::fchmod(&memory, Mode::XUSR | Mode::XGRP | Mode::XOTH)?;
    // A seal on future mappings is enough, because no process has a writable mapping. The seal `WRITE` would fail with EBUSY
    // whenever the kernel briefly holds a reference to one of the pages, as idle page tracking does.
    let seals = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    // Some hosts allow a process to create an executable memory file but refuse to execute it.
    match rustix::fs::access(through(&memory), Access::EXEC_OK) {
        Ok(()) => Ok(Image::Copy(memory.into())),
        Err(error) => Ok(Image::Readable { why: error.to_string() }),
    }
}

/// A process that this process started. It keeps running when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pidfd: OwnedFd,
}

impl Process {
    /// Makes a `Process` from a child of this process, by opening a process descriptor for it.
    ///
    /// # Errors
    /// Returns an error if this process has no free descriptors.
    pub fn watch(child: Child) -> Result<Self> {
        // The id still refers to the child, because the kernel does not reuse an id before the parent has waited for the child.
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a process that siga has started")?;
        Ok(Self { child, pidfd })
    }

    /// Returns the process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns a descriptor that becomes readable when the process ends.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the exit status if the process has ended, otherwise `None`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the call, which is not expected.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for a process that siga has started")
    }

    /// Waits until the process ends, and returns its exit status.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the call, which is not expected.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().context("cannot wait for a process that siga has started")
    }

    /// Sends a signal to the process. Does nothing if the process has already ended.
    ///
    /// # Errors
    /// Returns an error if the process now runs as another user.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).context("cannot signal a process that siga has started"),
        }
    }
}

/// Returns the channel with which this process was started. Replaces descriptor 0 by `/dev/null`.
///
/// # Errors
/// Returns an error if descriptor 0 is not a socket, because [`Program::start`] did not start this process or an earlier call
/// already returned the channel.
pub fn channel() -> Result<OwnedFd> {
    let stdin = rustix::stdio::stdin();
    if rustix::net::sockopt::socket_type(stdin).is_err() {
        return Err(Error::usage("this is an internal command, which only the control program can run"));
    }
    let channel = rustix::io::fcntl_dupfd_cloexec(stdin, 3)
        .context("cannot use descriptor 0, the socket to the parent process")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context("/dev/null")?;
    rustix::stdio::dup2_stdin(null).context("cannot use descriptor 0, the socket to the parent process")?;
    // Name the thread: otherwise process lists would show the descriptor number of the memory file as its name.
    rustix::thread::set_name(THREAD_NAME).context("cannot set the name of the process")?;
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
