//! The bpf(2) system call for maps, programs and links. Each of these objects is represented by file descriptors, and the
//! kernel removes it when its last descriptor is closed.
//!
//! Contract: no call reads or writes outside the slices that its caller passes. The module knows the sizes of keys and values
//! because it created the map, or because it asked the kernel for them. `crate::bpf`, `crate::cpu` and `crate::socket::sockmap`
//! decide what a program does and where it is attached. This module offers only what siga uses: it cannot pin objects or load
//! BTF, and supports only the kinds of program below.

use rustix::io::{Errno, Result};
use std::ffi::c_long;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// Commands of bpf(2), from `enum bpf_cmd`.
const MAP_CREATE: c_long = 0;
const MAP_LOOKUP_ELEM: c_long = 1;
const MAP_UPDATE_ELEM: c_long = 2;
const PROG_LOAD: c_long = 5;
const PROG_ATTACH: c_long = 8;
const OBJ_GET_INFO_BY_FD: c_long = 15;
const RAW_TRACEPOINT_OPEN: c_long = 17;
const MAP_LOOKUP_BATCH: c_long = 24;
const MAP_LOOKUP_AND_DELETE_BATCH: c_long = 25;
const LINK_CREATE: c_long = 28;

// Attach types, from `enum bpf_attach_type`.
const SK_MSG_VERDICT: u32 = 7;
const TRACE_RAW_TP: u32 = 23;
const TCX_INGRESS: u32 = 46;

/// Size in bytes of the buffer for the verifier's log.
const LOG_BYTES: usize = 65_536;

/// The license of the programs. The kernel checks the license, because only GPL-compatible programs may call some of the helper
/// functions.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// The types of map that siga uses, with their numbers in `enum bpf_map_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    /// A hash map with one value for each key, which all CPUs share.
    Hash = 1,
    /// An array with one value for each CPU and index. The key is the index, a `u32`.
    PerCpuArray = 6,
    /// A hash map with one value for each CPU and key.
    PerCpuHash = 5,
    /// A hash map of sockets. The value is a descriptor of the socket when written, and the socket's cookie when read.
    SockHash = 18,
}

impl MapKind {
    fn is_per_cpu(self) -> bool {
        match self {
            Self::PerCpuArray | Self::PerCpuHash => true,
            Self::Hash | Self::SockHash => false,
        }
    }
}

/// A map, with the sizes of its keys and values. Every access is checked against these sizes.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    kind: MapKind,
    key_bytes: usize,
    /// Number of bytes that user space reads or writes per key: one value, or for a per-CPU map one value per possible CPU,
    /// each padded to 8 bytes.
    value_bytes: usize,
    entries_max: u32,
}

impl Map {
    /// Creates a map for up to `entries_max` entries. Diagnostic tools show the first 15 characters of `name`. Returns the
    /// kernel's error: EPERM if this process lacks the privilege, EINVAL if the kernel does not support the kind or a size, or
    /// ENOMEM.
    pub(crate) fn create(
        kind: MapKind,
        name: &str,
        key_bytes: u32,
        value_bytes: u32,
        entries_max: u32,
    ) -> Result<Self> {
        let mut attributes = Attributes::new();
        attributes.u32(0, kind as u32);
        attributes.u32(4, key_bytes);
        attributes.u32(8, value_bytes);
        attributes.u32(12, entries_max);
        attributes.name(28, name);
        let fd = attributes.call_for_fd(MAP_CREATE)?;
        Self::with_sizes(fd, kind, key_bytes, value_bytes, entries_max)
    }

    /// Takes ownership of the descriptor of a map that another process created. Reads the sizes of the map from the kernel.
    /// Returns EINVAL if the descriptor is not a map of this kind.
    pub(crate) fn adopt(fd: OwnedFd, kind: MapKind) -> Result<Self> {
        // `struct bpf_map_info`: type, id, key_size, value_size, max_entries, ...
        let mut info = [0_u32; 22];
        let info_bytes = u32::try_from(size_of_val(&info)).map_err(|_| Errno::OVERFLOW)?;
        // If the descriptor refers to a program or a link, the kernel fills in a different structure. So first check that it
        // refers to a map: only maps have a line `map_type`.
        let shown =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).map_err(|_| Errno::BADF)?;
        if !shown.lines().any(|line| line.starts_with("map_type:")) {
            return Err(Errno::INVAL);
        }
        let mut attributes = Attributes::new();
        attributes.fd(0, fd.as_fd());
        attributes.u32(4, info_bytes);
        attributes.output(8, &mut info);
        attributes.call(OBJ_GET_INFO_BY_FD)?;
        let [map_type, _id, key_bytes, value_bytes, entries_max, ..] = info;
        if map_type != kind as u32 {
            return Err(Errno::INVAL);
        }
        Self::with_sizes(fd, kind, key_bytes, value_bytes, entries_max)
    }

    fn with_sizes(fd: OwnedFd, kind: MapKind, key_bytes: u32, value_bytes: u32, entries_max: u32) -> Result<Self> {
        let size = |bytes: u32| usize::try_from(bytes).map_err(|_| Errno::OVERFLOW);
        let copies = if kind.is_per_cpu() { possible_cpus()? } else { 1 };
        let one = if kind.is_per_cpu() { size(value_bytes)?.next_multiple_of(8) } else { size(value_bytes)? };
        let value_bytes = one.checked_mul(copies).ok_or(Errno::OVERFLOW)?;
        Ok(Self { fd, kind, key_bytes: size(key_bytes)?, value_bytes, entries_max })
    }

    /// Returns the size of a key in bytes.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Returns the number of bytes that `put` expects and `get` returns. This is the size of one value, or for a per-CPU map of
    /// one value per possible CPU, each padded to 8 bytes.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Returns the map's descriptor, for use in programs and for passing to other processes.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the value of `key`, or `None` if the map does not contain it. For a per-CPU map, returns the values of all
    /// possible CPUs, each padded to 8 bytes. Returns EINVAL if `key` does not have the map's key size, or an error of the
    /// kernel.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = vec![0_u8; self.value_bytes];
        let mut attributes = self.element(key)?;
        attributes.output(16, &mut value);
        match attributes.call(MAP_LOOKUP_ELEM) {
            Ok(_) => Ok(Some(value)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of `key`. Returns EINVAL if the length of `key` or `value` is wrong for this map, E2BIG if the map is
    /// full, or another error of the kernel.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let mut attributes = self.element(key)?;
        attributes.input(16, value);
        attributes.call(MAP_UPDATE_ELEM).map(drop)
    }

    /// Returns every key with its value, in no particular order.
    pub(crate) fn entries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.batch(MAP_LOOKUP_BATCH)
    }

    /// Removes every entry of a hash map.
    pub(crate) fn clear(&self) -> Result<()> {
        self.batch(MAP_LOOKUP_AND_DELETE_BATCH).map(drop)
    }

    /// Executes a batch command on all entries. One call is enough, because the buffers have room for the maximum number of
    /// entries.
    fn batch(&self, command: c_long) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let count = usize::try_from(self.entries_max).map_err(|_| Errno::OVERFLOW)?;
        let mut keys = vec![0_u8; self.key_bytes.checked_mul(count).ok_or(Errno::OVERFLOW)?];
        let mut values = vec![0_u8; self.value_bytes.checked_mul(count).ok_or(Errno::OVERFLOW)?];
        // The kernel stores its position in the iteration here: a `u32` for hash maps; for other maps, at most as many bytes as
        // a key has.
        let mut bookmark = vec![0_u8; self.key_bytes.max(4)];
        let mut attributes = Attributes::new();
        attributes.output(8, &mut bookmark);
        attributes.output(16, &mut keys);
        attributes.output(24, &mut values);
        attributes.u32(32, self.entries_max);
        attributes.fd(36, self.fd());
        match attributes.call(command) {
            // ENOENT means that the kernel reached the end of the map, which is the normal result of a complete batch.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        let found = usize::try_from(attributes.read_u32(32)).map_err(|_| Errno::OVERFLOW)?.min(count);
        let pairs = keys.chunks_exact(self.key_bytes).zip(values.chunks_exact(self.value_bytes));
        Ok(pairs.take(found).map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
    }

    fn element<'a>(&self, key: &'a [u8]) -> Result<Attributes<'a>> {
        if key.len() != self.key_bytes {
            return Err(Errno::INVAL);
        }
        let mut attributes = Attributes::new();
        attributes.fd(0, self.fd());
        attributes.input(8, key);
        Ok(attributes)
    }

    /// Attaches `program`, which must be of the kind [`ProgramKind::SocketMessage`], to this map of sockets. Afterwards the
    /// kernel runs the program for every message that is sent on a socket in this map.
    ///
    /// The map keeps a reference to the program until the last descriptor of the map is closed. Returns EINVAL if this is
    /// not a map of sockets, or if `program` is not of that kind.
    pub(crate) fn attach_message_verdict(&self, program: BorrowedFd<'_>) -> Result<()> {
        if self.kind != MapKind::SockHash {
            return Err(Errno::INVAL);
        }
        let mut attributes = Attributes::new();
        attributes.fd(0, self.fd());
        attributes.fd(4, program);
        attributes.u32(8, SK_MSG_VERDICT);
        attributes.call(PROG_ATTACH).map(drop)
    }
}

/// The kinds of program that siga uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// Runs at a tracepoint, with typed arguments. The number is the BTF type id of `btf_trace_NAME`, where NAME is the name of
    /// the tracepoint.
    Tracepoint(u32),
    /// Runs when a perf event overflows.
    PerfEvent,
    /// Runs for each packet that an interface receives (tcx ingress).
    Ingress,
    /// Decides what happens to each message that is sent on a socket.
    SocketMessage,
}

/// The reason why the kernel refused a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The kernel's error.
    pub errno: Errno,
    /// The verifier's log. Empty if the verifier did not run.
    pub log: String,
}

/// Loads a program. Diagnostic tools show the first 15 characters of `name`. Returns the kernel's error, with the
/// verifier's log if there is one.
pub(crate) fn load(kind: ProgramKind, name: &str, instructions: &[[u8; 8]]) -> std::result::Result<OwnedFd, Refusal> {
    let (number, attach_type, attach_id) = match kind {
        ProgramKind::Tracepoint(id) => (26, TRACE_RAW_TP, id),
        ProgramKind::PerfEvent => (7, 0, 0),
        ProgramKind::Ingress => (3, TCX_INGRESS, 0),
        ProgramKind::SocketMessage => (16, SK_MSG_VERDICT, 0),
    };
    let refuse = |errno| Refusal { errno, log: String::new() };
    let count = u32::try_from(instructions.len()).map_err(|_| refuse(Errno::TOOBIG))?;
    let attempt = |log: &mut [u8]| {
        let mut attributes = Attributes::new();
        attributes.u32(0, number);
        attributes.u32(4, count);
        attributes.input(8, instructions);
        attributes.input(16, LICENSE);
        if !log.is_empty() {
            attributes.u32(24, 1);
            attributes.u32(28, u32::try_from(log.len()).map_err(|_| Errno::OVERFLOW)?);
            attributes.output(32, log);
        }
        attributes.name(48, name);
        attributes.u32(68, attach_type);
        attributes.u32(108, attach_id);
        attributes.call_for_fd(PROG_LOAD)
    };
    load_by(attempt)
}

/// Loads a program by calling `attempt`, several times if necessary. `attempt` receives a buffer for the verifier's log. If the
/// buffer is empty, `attempt` must not request a log.
fn load_by<T>(mut attempt: impl FnMut(&mut [u8]) -> Result<T>) -> std::result::Result<T, Refusal> {
    /// Maximum number of attempts if the verifier returns EAGAIN, which happens when a signal interrupts it. If the last
    /// attempt returns EAGAIN, the caller receives this error.
    const ATTEMPTS: u32 = 100;
    let mut patiently = |log: &mut [u8]| {
        let mut outcome = attempt(log);
        for _ in 1..ATTEMPTS {
            if !matches!(outcome, Err(Errno::AGAIN)) {
                break;
            }
            outcome = attempt(log);
        }
        outcome
    };
    // With a log, verification is several times slower. So first try without a log. If the kernel refuses the program, repeat
    // the attempt with a log.
    match patiently(&mut []) {
        Ok(loaded) => Ok(loaded),
        Err(errno @ (Errno::PERM | Errno::NOSYS)) => Err(Refusal { errno, log: String::new() }),
        Err(refused) => {
            let mut log = vec![0_u8; LOG_BYTES];
            patiently(&mut log).map_err(|errno| {
                let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
                // ENOSPC only means that the log did not fit into the buffer. In this case, return the error of the attempt
                // without a log, because that is the reason for the refusal.
                let errno = if errno == Errno::NOSPC { refused } else { errno };
                Refusal { errno, log: String::from_utf8_lossy(text).trim().to_owned() }
            })
        }
    }
}

/// Attaches a [`ProgramKind::Tracepoint`] program. The program stays attached until the returned link is closed.
pub(crate) fn attach_tracepoint(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    // The attribute `name` stays zero, because the program got its tracepoint when it was loaded.
    let mut attributes = Attributes::new();
    attributes.fd(8, program);
    attributes.call_for_fd(RAW_TRACEPOINT_OPEN)
}

/// Attaches a [`ProgramKind::Ingress`] program to an interface of the calling thread's network namespace. The program stays
/// attached until the returned link is closed. Returns ENODEV if the interface does not exist, EINVAL if the kernel has no tcx
/// (before 6.6), or another error of the kernel.
pub(crate) fn attach_ingress(program: BorrowedFd<'_>, interface_index: u32) -> Result<OwnedFd> {
    let mut attributes = Attributes::new();
    attributes.fd(0, program);
    attributes.u32(4, interface_index);
    attributes.u32(8, TCX_INGRESS);
    attributes.call_for_fd(LINK_CREATE)
}

/// Returns an upper bound for the number of CPUs that have a value in a per-CPU map.
fn possible_cpus() -> Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").map_err(|_| Errno::NOENT)?;
    let last = siga_plan::cpus::cpu_list(&text).and_then(|list| list.last().copied()).ok_or(Errno::INVAL)?;
    // The kernel stores one value for each CPU in the mask of possible CPUs. If the mask has gaps, the result is larger than
    // the number of these CPUs. Then buffers are longer than necessary, which is harmless.
    usize::try_from(last).ok().and_then(|last| last.checked_add(1)).ok_or(Errno::OVERFLOW)
}

/// A type for which all combinations of bytes are valid, so that the kernel may write any bytes into a value.
trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for u32 {}
impl Plain for [u8; 8] {}

/// The argument `union bpf_attr` of bpf(2), which this module writes field by field. This type borrows all data whose addresses
/// it contains.
struct Attributes<'a> {
    words: [u64; 19],
    borrowed: std::marker::PhantomData<&'a mut ()>,
}

impl<'a> Attributes<'a> {
    fn new() -> Self {
        Self { words: [0; 19], borrowed: std::marker::PhantomData }
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        for (place, byte) in bytes.iter().enumerate() {
            let at = offset + place;
            let mut word = self.words[at / 8].to_ne_bytes();
            word[at % 8] = *byte;
            self.words[at / 8] = u64::from_ne_bytes(word);
        }
    }

    fn u32(&mut self, offset: usize, value: u32) {
        self.put(offset, &value.to_ne_bytes());
    }

    fn read_u32(&self, offset: usize) -> u32 {
        let word = self.words[offset / 8].to_ne_bytes();
        let start = offset % 8;
        u32::from_ne_bytes([word[start], word[start + 1], word[start + 2], word[start + 3]])
    }

    fn fd(&mut self, offset: usize, fd: BorrowedFd<'_>) {
        self.put(offset, &fd.as_raw_fd().to_ne_bytes());
    }

    fn name(&mut self, offset: usize, name: &str) {
        let kept = &name.as_bytes()[..name.len().min(15)];
        self.put(offset, kept);
    }

    fn input<T: Plain>(&mut self, offset: usize, data: &'a [T]) {
        self.put(offset, &address(data.as_ptr().expose_provenance()));
    }

    fn output<T: Plain>(&mut self, offset: usize, data: &'a mut [T]) {
        self.put(offset, &address(data.as_mut_ptr().expose_provenance()));
    }

    fn call(&mut self, command: c_long) -> Result<u32> {
        let bytes = size_of_val(&self.words);
        // SAFETY: `words` has the length `bytes`. `input` and `output` wrote every address in it, each from a slice that `'a`
        // keeps borrowed. The caller of `input` or `output` derived the length next to the address from the same slice.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.words.as_mut_ptr(), bytes) };
        u32::try_from(result).map_err(|_| last_error())
    }

    fn call_for_fd(&mut self, command: c_long) -> Result<OwnedFd> {
        let number = self.call(command)?;
        let number = i32::try_from(number).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: callers use only commands that return a new descriptor, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }
}

/// Returns a pointer as a 64-bit field of `union bpf_attr`. The result is correct on 32-bit machines too, for both byte orders.
fn address(pointer: usize) -> [u8; 8] {
    u64::try_from(pointer).unwrap_or_default().to_ne_bytes()
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_during_verification_does_not_prevent_loading() {
        let mut outcomes = [Err(Errno::AGAIN), Err(Errno::AGAIN), Ok(7)].into_iter();
        let loaded = load_by(|log| {
            assert!(log.is_empty(), "nothing was refused");
            outcomes.next().unwrap()
        });
        assert_eq!(loaded, Ok(7));
        let mut attempts = 0;
        let refused = load_by(|_| -> Result<()> {
            attempts += 1;
            Err(Errno::AGAIN)
        });
        assert_eq!((refused.unwrap_err().errno, attempts), (Errno::AGAIN, 200), "there is an end to it");
    }

    #[test]
    fn a_refusal_names_the_programs_error_and_not_the_length_of_the_log() {
        let refused = load_by(|log| -> Result<()> {
            if log.is_empty() {
                return Err(Errno::INVAL);
            }
            log[..5].copy_from_slice(b"words");
            Err(Errno::NOSPC)
        });
        assert_eq!(refused, Err(Refusal { errno: Errno::INVAL, log: "words".to_owned() }));
    }
}
