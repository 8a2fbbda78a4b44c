//! Every system call that a guest may make, against every kind of descriptor that it has: nothing changes for the other end.
//!
//! The calls are made in children of the test program that have a guest's filter and a guest's descriptors; the test program
//! holds the other ends, as the control program and the partner do.

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

/// After so long a call that waits is given up.
const WAIT: Duration = Duration::from_millis(50);
const MEMORY_BYTES: usize = 1 << 16;
const FILE: &[u8] = b"what a file held that a guest was given";
const F_SETPIPE_SZ: u64 = 1_031;

/// Descriptors that a guest has, and the ends that others have of the same.
struct World {
    null: OwnedFd,
    /// Where the guest's messages go, and come from.
    messages: (OwnedFd, OwnedFd),
    /// The guest's end of its channel, and the control program's.
    channel: (OwnedFd, OwnedFd),
    listener: OwnedFd,
    /// The guest rings; the partner hears.
    notify_fd: (OwnedFd, OwnedFd),
    /// The guest hears; the partner rings.
    wake_fd: (OwnedFd, OwnedFd),
    own_memory: OwnedFd,
    /// The partner's memory as the guest has it, and as the partner has it.
    partner: (OwnedFd, OwnArena),
    /// An ordinary file, which no guest is given.
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

    /// The guest's descriptors by name.
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

    /// What others would notice.
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

    /// A guest may change how its own ends wait; the next call is to find them as they were.
    fn restore(&self) {
        for (_, descriptor) in self.of_the_guest() {
            let flags = fcntl_getfl(descriptor).unwrap() - (OFlags::ASYNC | OFlags::DIRECT);
            fcntl_setfl(descriptor, flags | OFlags::NONBLOCK).unwrap();
        }
    }
}

/// Memory that calls with pointers get: bytes, a vector of one part, a message of one part.
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

    /// The arguments that a call gets beside a descriptor in the first place, and a mapping of that descriptor.
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

/// The commands and arguments of fcntl that there are, and of ioctl those that any of these descriptors could know.
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

/// Makes a call with all arguments in one child if it outlives that, else each in a child of its own. How many were done, and
/// how many had to be given up.
fn try_all(filters: &[BpfProgram], call: i64, arguments: &[[u64; 6]]) -> (usize, usize) {
    // The first close would take the descriptor from the next.
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
