//! Makes every system call that a guest may make with every kind of descriptor that a guest has. Checks that no call changes
//! anything for the process at the other end of the descriptor.
//!
//! Children of the test program make the calls. They have the system call filter and the descriptors of a guest. The test program
//! has the other ends, in place of the control program and the partner.

use super::{Profile, system_calls};
use crate::sys::{Outcome, attempt, attempt_all};
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::{Errno, read};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, recv, socket_with, socketpair,
};
use rustix::pipe::fcntl_getpipe_size;
use seccompiler::BpfProgram;
use siga_ring::arena::OwnArena;
use siga_ring::limits::DOORBELL_PIPE_BYTES;
use siga_ring::{doorbell, memory_file};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A call that blocks for longer than this is interrupted.
const WAIT: Duration = Duration::from_millis(50);
const MEMORY_BYTES: usize = 1 << 16;
const FILE: &[u8] = b"what a file held that a guest was given";
const F_SETPIPE_SZ: u64 = 1_031;

/// The descriptors of a guest, each with the other end of the same object.
struct World {
    null: OwnedFd,
    /// The write end and the read end of the guest's standard error.
    messages: (OwnedFd, OwnedFd),
    /// The guest's end and the control program's end of the guest's channel.
    channel: (OwnedFd, OwnedFd),
    listener: OwnedFd,
    /// The write end (guest) and the read end (partner) of the guest's notify descriptor.
    notify_fd: (OwnedFd, OwnedFd),
    /// The read end (guest) and the write end (partner) of the guest's wake descriptor.
    wake_fd: (OwnedFd, OwnedFd),
    own_memory: OwnedFd,
    /// The guest's descriptor of the partner's memory, and the partner's memory itself.
    partner: (OwnedFd, OwnArena),
    /// A regular file, opened twice. No real guest has such a descriptor.
    file: (OwnedFd, File),
}

impl World {
    fn new() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pipe = || doorbell::pipe().map(|(read, write)| (write, read)).unwrap();
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&listener, &SocketAddrUnix::new_unnamed()).unwrap();
        listen(&listener, 4).unwrap();
        let (mut arena, memory) = OwnArena::create(MEMORY_BYTES).unwrap();
        arena.write(0, &[7; MEMORY_BYTES]).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(FILE).unwrap();
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        let given = open(name, OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let (ring, heard) = pipe();
        Self {
            null: open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap(),
            messages: pipe(),
            channel: socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap(),
            listener,
            notify_fd: pipe(),
            wake_fd: (heard, ring),
            own_memory: memory_file(MEMORY_BYTES).unwrap(),
            partner: (memory, arena),
            file: (given, file),
        }
    }

    /// Returns the guest's descriptors with their names.
    fn of_the_guest(&self) -> [(&'static str, &OwnedFd); 9] {
        [
            ("0 and 1", &self.null),
            ("2", &self.messages.0),
            ("channel", &self.channel.0),
            ("listener", &self.listener),
            ("notify", &self.notify_fd.0),
            ("wake", &self.wake_fd.0),
            ("own memory", &self.own_memory),
            ("partner's memory", &self.partner.0),
            ("file", &self.file.0),
        ]
    }

    /// Returns a description of each change that a process at the other end of a descriptor would notice.
    fn changes(&self) -> Vec<String> {
        let mut changes = Vec::new();
        let mut check = |what: &str, is_as_before: bool| {
            if !is_as_before {
                changes.push(what.to_owned());
            }
        };
        for (what, pipe) in [("messages", &self.messages.1), ("notify", &self.notify_fd.1), ("wake", &self.wake_fd.1)] {
            check(&format!("capacity of {what}"), fcntl_getpipe_size(pipe) == Ok(DOORBELL_PIPE_BYTES));
            let access = fcntl_getfl(pipe).unwrap() - (OFlags::NONBLOCK | OFlags::WRONLY);
            check(&format!("flags of {what}"), access.is_empty());
            check(&format!("{what} waits"), fcntl_getfl(pipe).unwrap().contains(OFlags::NONBLOCK));
        }
        for (what, pipe) in [("messages", &self.messages.1), ("notify", &self.notify_fd.1)] {
            let drained = read(pipe, &mut [0; 2 * DOORBELL_PIPE_BYTES][..]);
            check(&format!("reading {what}"), matches!(drained, Ok(1..=DOORBELL_PIPE_BYTES) | Err(Errno::AGAIN)));
        }
        let of_channel = recv(&self.channel.1, &mut [0; 1 << 17][..], rustix::net::RecvFlags::empty());
        check("channel", !matches!(of_channel, Err(error) if error != Errno::AGAIN));
        let size = |file: &dyn AsFd| fstat(file.as_fd()).map(|stat| stat.st_size);
        let memory_size = Ok(i64::try_from(MEMORY_BYTES).unwrap());
        check("size of own memory", size(&self.own_memory) == memory_size);
        let size_seals = SealFlags::GROW | SealFlags::SHRINK;
        check("seals of own memory", fcntl_get_seals(&self.own_memory).unwrap().contains(size_seals));
        check("size of the partner's memory", size(&self.partner.0) == memory_size);
        check("the partner's memory", self.partner.1.bytes(0, MEMORY_BYTES).unwrap() == [7; MEMORY_BYTES]);
        let mut held = [0; FILE.len()];
        check("file", self.file.1.read_exact_at(&mut held, 0).is_ok() && held == FILE);
        changes
    }

    /// Restores the file status flags of the guest's own descriptors, which a guest may change. The next call then starts from the
    /// same state.
    fn restore(&self) {
        for (_, descriptor) in self.of_the_guest() {
            let flags = fcntl_getfl(descriptor).unwrap() - (OFlags::ASYNC | OFlags::DIRECT);
            fcntl_setfl(descriptor, flags | OFlags::NONBLOCK).unwrap();
        }
    }
}

/// Memory for pointer arguments of calls: bytes, an I/O vector with one entry, and a message with one entry.
struct Pointers {
    bytes: Box<[u8; 4_096]>,
    vector: Box<[u64; 2]>,
    message: Box<[u64; 7]>,
}

fn address<T>(of: &T) -> u64 {
    u64::try_from(std::ptr::from_ref(of).addr()).unwrap()
}

impl Pointers {
    fn new() -> Self {
        let bytes = Box::new([1; 4_096]);
        let vector = Box::new([address(&*bytes), 64]);
        let message = Box::new([0, 0, address(&*vector), 1, 0, 0, 0]);
        Self { bytes, vector, message }
    }

    /// Returns lists of arguments: lists with the descriptor as the first argument, and the arguments that map the descriptor with
    /// mmap.
    fn arguments(&self, descriptor: u64) -> Vec<[u64; 6]> {
        let (bytes, vector, message) = (address(&*self.bytes), address(&*self.vector), address(&*self.message));
        let (read_write, shared) = (3, 1);
        vec![
            [descriptor, 0, 0, 0, 0, 0],
            [descriptor, 1, 1, 1, 1, 1],
            [descriptor, 4_096, 4_096, 0, 0, 0],
            [descriptor, u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX],
            [descriptor, bytes, 64, 0, 0, 0],
            [descriptor, bytes, 4_096, 1, 0, 0],
            [descriptor, vector, 1, 0, 0, 0],
            [descriptor, message, 0, 0, 0, 0],
            [0, 4_096, read_write, shared, descriptor, 0],
        ]
    }
}

/// Returns lists of arguments for fcntl and ioctl: all commands of fcntl, and those commands of ioctl that one of the descriptors
/// may support.
fn commands(call: i64, descriptor: u64) -> Vec<[u64; 6]> {
    let numbers: Vec<u64> = match call {
        libc::SYS_fcntl => (0..43).chain(1_024..1_043).collect(),
        // FIOASYNC, FIOSETOWN, SIOCSPGRP, FIONBIO, FIONREAD, TIOCSTI, FIOCLEX, FIGETBSZ, FITRIM, FS_IOC_SETFLAGS.
        libc::SYS_ioctl => {
            vec![0x5452, 0x8901, 0x8902, 0x5421, 0x541b, 0x5412, 0x5451, 2, 0xc018_5879, 0x4008_6602]
        }
        _ => Vec::new(),
    };
    let flags = [OFlags::ASYNC, OFlags::DIRECT, OFlags::APPEND].map(|flag| u64::from(flag.bits()));
    let values = [0, 1, 1 << 20, u64::from(std::process::id())];
    let values: Vec<u64> = values.into_iter().chain(flags).collect();
    numbers.iter().flat_map(|number| values.iter().map(|value| [descriptor, *number, *value, 0, 0, 0])).collect()
}

/// Makes a call with each list of arguments, all in one child. If the child dies, makes each call in a separate child. Returns how
/// many calls returned, and how many were interrupted because they blocked.
fn try_all(filters: &[BpfProgram], call: i64, arguments: &[[u64; 6]]) -> (usize, usize) {
    // The first close(2) in a child would close the descriptor for all further calls.
    if call != libc::SYS_close
        && let Ok(done) = attempt_all(WAIT, filters, call, arguments)
    {
        return (done, 0);
    }
    let each = arguments.iter().map(|arguments| attempt_all(WAIT, filters, call, &[*arguments]));
    each.fold((0, 0), |(done, waited), outcome| match outcome {
        Ok(count) => (done + count, waited),
        Err(Outcome::Killed(libc::SIGALRM)) => (done, waited + 1),
        Err(_) => (done, waited),
    })
}

#[test]
fn no_call_of_a_guest_on_any_of_its_descriptors_changes_anything_for_others() {
    let pointers = Pointers::new();
    let filters = system_calls::filters(Profile::Guest).unwrap();
    let (mut done, mut waited) = (0, 0);
    for call in system_calls::of_a_guest() {
        let world = World::new();
        for (name, descriptor) in world.of_the_guest() {
            let number = u64::try_from(descriptor.as_raw_fd()).unwrap();
            let arguments: Vec<[u64; 6]> =
                pointers.arguments(number).into_iter().chain(commands(call, number)).collect();
            let outcome = try_all(&filters, call, &arguments);
            (done, waited) = (done + outcome.0, waited + outcome.1);
            assert_eq!(world.changes(), Vec::<String>::new(), "call {call} on {name}");
            world.restore();
        }
    }
    assert!(done > 500 && waited < done / 4, "{done} calls were done, {waited} had to be given up");
    let world = World::new();
    for (what, pipe) in [("messages", &world.messages.0), ("notify", &world.notify_fd.0), ("wake", &world.wake_fd.0)] {
        let number = u64::try_from(pipe.as_raw_fd()).unwrap();
        for size in [1, 1 << 20] {
            let outcome = attempt(&filters, libc::SYS_fcntl, &[number, F_SETPIPE_SZ, size]);
            assert_eq!(outcome, Outcome::Refused(libc::EPERM), "{what}");
        }
    }
}

#[test]
fn calls_without_a_filter_are_seen_to_change_something_for_others() {
    let of = |descriptor: &OwnedFd| u64::try_from(descriptor.as_raw_fd()).unwrap();
    for (change, call, arguments) in [
        ("capacity of notify", libc::SYS_fcntl, &|world: &World| {
            [of(&world.notify_fd.0), F_SETPIPE_SZ, 1 << 20, 0, 0, 0]
        }),
        ("file", libc::SYS_ftruncate, &|world: &World| [of(&world.file.0), 0, 0, 0, 0, 0]),
    ] as [(&str, i64, &dyn Fn(&World) -> [u64; 6]); 2]
    {
        let world = World::new();
        assert_eq!(world.changes(), Vec::<String>::new());
        assert_eq!(attempt(&[], call, &arguments(&world)), Outcome::Done);
        assert_eq!(world.changes(), [change]);
    }
}
