//! What a process tries on another of its user, and what came of it. Every attack that succeeds is undone.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, pidfd_getfd, pidfd_open, prlimit};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use std::fs::{File, OpenOptions, read_dir, read_link};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The target of an attack: a process, and the address of its secret in its memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) pid: i32,
    pub(crate) address: u64,
    pub(crate) length: usize,
}

/// Tries everything; the names of the attacks with what the kernel answered.
pub(crate) fn attack(target: Target) -> Vec<(String, io::Result<()>)> {
    let mut outcomes: Vec<(String, io::Result<()>)> = [
        ("ptrace attach", attach(target.pid)),
        ("ptrace seize", seize(target.pid)),
        ("process_vm_readv", read_memory(target)),
        ("process_vm_writev", write_memory(target)),
        ("pidfd_getfd", take_descriptor(target.pid)),
        ("read through mem", read_mem_file(target)),
        ("write through mem", write_mem_file(target)),
        ("prlimit to allow cores", allow_cores(target.pid)),
    ]
    .map(|(name, outcome)| (name.to_owned(), outcome))
    .into();
    let path = |file: &str| format!("/proc/{}/{file}", target.pid);
    for file in ["maps", "smaps", "environ", "auxv", "pagemap", "io", "personality", "fdinfo/0"] {
        outcomes.push((format!("read {file}"), read_some(&path(file))));
    }
    for directory in ["fd", "map_files"] {
        outcomes.push((format!("list {directory}"), read_dir(path(directory)).map(drop)));
    }
    for link in ["fd/1", "root", "cwd", "exe", "ns/user"] {
        outcomes.push((format!("open {link}"), File::open(path(link)).map(drop)));
        outcomes.push((format!("follow {link}"), read_link(path(link)).map(drop)));
    }
    for file in ["oom_score_adj", "coredump_filter", "clear_refs", "autogroup", "uid_map"] {
        outcomes.push((format!("open {file} to write"), OpenOptions::new().write(true).open(path(file)).map(drop)));
    }
    outcomes
}

/// What there is to try once a process has a own user namespace, whose owner is its user.
pub(crate) fn enter_user_namespace(pid: i32) -> io::Result<()> {
    Ok(move_into_thread_name_spaces(pidfd(pid)?.as_fd(), ThreadNameSpaceType::USER)?)
}

/// Quick attacks on a process, for the race with its start.
pub(crate) fn attack_at_once(pid: i32) -> Vec<(String, io::Result<()>)> {
    let nowhere = Target { pid, address: 8, length: 1 };
    let reached = |outcome: io::Result<()>| match outcome {
        // The kernel looked into the memory, and there is nothing at that place.
        Err(error) if error.raw_os_error() == Some(Errno::EFAULT as i32) => Ok(()),
        other => other,
    };
    [
        ("open mem", OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).map(drop)),
        ("process_vm_readv", reached(read_memory(nowhere))),
        ("pidfd_getfd", take_descriptor(pid)),
        ("ptrace seize", seize(pid)),
    ]
    .map(|(name, outcome)| (name.to_owned(), outcome))
    .into()
}

fn attach(pid: i32) -> io::Result<()> {
    let pid = Pid::from_raw(pid);
    ptrace::attach(pid)?;
    waitpid(pid, None)?;
    Ok(ptrace::detach(pid, None)?)
}

fn seize(pid: i32) -> io::Result<()> {
    let pid = Pid::from_raw(pid);
    ptrace::seize(pid, ptrace::Options::empty())?;
    // This also releases a target that ended meanwhile.
    ptrace::interrupt(pid)?;
    waitpid(pid, None)?;
    Ok(ptrace::detach(pid, None)?)
}

fn remote(target: Target) -> [RemoteIoVec; 1] {
    [RemoteIoVec { base: usize::try_from(target.address).unwrap(), len: target.length }]
}

fn read_memory(target: Target) -> io::Result<()> {
    let mut bytes = vec![0; target.length];
    let mut local = [IoSliceMut::new(&mut bytes)];
    let length = process_vm_readv(Pid::from_raw(target.pid), &mut local, &remote(target))?;
    assert_eq!((length, bytes), (target.length, crate::SECRET.as_bytes().to_vec()));
    Ok(())
}

fn write_memory(target: Target) -> io::Result<()> {
    let local = [IoSlice::new(crate::FORGED.as_bytes())];
    let length = process_vm_writev(Pid::from_raw(target.pid), &local, &remote(target))?;
    assert_eq!(length, target.length);
    Ok(())
}

fn read_mem_file(target: Target) -> io::Result<()> {
    let mut bytes = vec![0; target.length];
    File::open(format!("/proc/{}/mem", target.pid))?.read_exact_at(&mut bytes, target.address)
}

fn write_mem_file(target: Target) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(format!("/proc/{}/mem", target.pid))?;
    file.write_all_at(crate::FORGED.as_bytes(), target.address)
}

fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn take_descriptor(pid: i32) -> io::Result<()> {
    pidfd_getfd(pidfd(pid)?, 1, PidfdGetfdFlags::empty())?;
    Ok(())
}

fn allow_cores(pid: i32) -> io::Result<()> {
    let all = Rlimit { current: None, maximum: None };
    prlimit(rustix::process::Pid::from_raw(pid), Resource::Core, all)?;
    Ok(())
}

/// A file of /proc may open and then read as nothing.
fn read_some(path: &str) -> io::Result<()> {
    let length = File::open(path)?.read(&mut [0; 64])?;
    if length == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
