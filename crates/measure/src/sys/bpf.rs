//! The bpf(2) system call: maps, programs and their attachment, as file descriptors that end everything when closed.
//!
//! Contract: no call reads or writes outside the slices it is given; sizes are those the map was created with or those
//! the kernel reports for it. Nothing is pinned. What a program does and where it goes is decided in `crate::bpf`, `crate::cpu` and `crate::socket::sockmap`.
//! It does not wrap what the laboratory does not use: no pinning, no BTF loading, no program of a kind not listed here.

use rustix::io::{Errno, Result};
use std::ffi::c_long;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// Commands, `enum bpf_cmd`.
const MAP_CREATE: c_long = 0;
const MAP_LOOKUP_ELEM: c_long = 1;
const MAP_UPDATE_ELEM: c_long = 2;
const MAP_DELETE_ELEM: c_long = 3;
const PROG_LOAD: c_long = 5;
const PROG_ATTACH: c_long = 8;
const OBJ_GET_INFO_BY_FD: c_long = 15;
const RAW_TRACEPOINT_OPEN: c_long = 17;
const MAP_LOOKUP_BATCH: c_long = 24;
const MAP_LOOKUP_AND_DELETE_BATCH: c_long = 25;
const LINK_CREATE: c_long = 28;

// Attach types, `enum bpf_attach_type`.
const SK_MSG_VERDICT: u32 = 7;
const TRACE_RAW_TP: u32 = 23;
const TCX_INGRESS: u32 = 46;

/// Bytes of verifier log kept for an error message.
const LOG_BYTES: usize = 65_536;

/// The license the kernel checks a program's helpers against; some of them are for GPL-compatible programs only.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// Types of map in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// One value per CPU and index; the key is a `u32`.
    PerCpuArray,
    /// One value per CPU and key.
    PerCpuHash,
    /// Sockets by key; a value is a socket's descriptor going in and its cookie coming out.
    SockHash,
}

impl MapKind {
    fn number(self) -> u32 {
        match self {
            Self::PerCpuArray => 6,
            Self::PerCpuHash => 5,
            Self::SockHash => 18,
        }
    }

    fn is_per_cpu(self) -> bool {
        match self {
            Self::PerCpuArray | Self::PerCpuHash => true,
            Self::SockHash => false,
        }
    }
}

/// A map and the sizes that every access is checked against.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    kind: MapKind,
    key_bytes: usize,
    /// Bytes user space reads or writes per key: one value, or one 8-byte-aligned value per possible CPU.
    value_bytes: usize,
    entries_max: u32,
}

impl Map {
    /// Creates a map of at most `entries_max` entries. `name` shows up in diagnostic tools (15 characters at most are used).
    ///
    /// # Errors
    /// The kernel's: EPERM without the privilege, EINVAL for a kind or size it does not know, ENOMEM.
    pub fn create(kind: MapKind, name: &str, key_bytes: u32, value_bytes: u32, entries_max: u32) -> Result<Self> {
        let mut attributes = Attributes::new();
        attributes.u32(0, kind.number());
        attributes.u32(4, key_bytes);
        attributes.u32(8, value_bytes);
        attributes.u32(12, entries_max);
        attributes.name(28, name);
        let fd = attributes.call_for_fd(MAP_CREATE)?;
        Self::with_sizes(fd, kind, key_bytes, value_bytes, entries_max)
    }

    /// Takes over a descriptor received from elsewhere, with the sizes the kernel reports for it.
    ///
    /// # Errors
    /// EINVAL if it is no map of this kind.
    pub fn adopt(fd: OwnedFd, kind: MapKind) -> Result<Self> {
        // `struct bpf_map_info`: type, id, key_size, value_size, max_entries, ...
        let mut info = [0_u32; 22];
        let info_bytes = u32::try_from(size_of_val(&info)).map_err(|_| Errno::OVERFLOW)?;
        // A program or a link would answer the same question with another structure, so the kind of descriptor is
        // settled first: only maps show a `map_type`.
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
        if map_type != kind.number() {
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

    /// Bytes of a key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes that `put` takes and `get` returns: one value, or of a per-CPU map all CPUs', each padded to 8 bytes.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The descriptor, for programs and for handing on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The value of `key`, if there is one; of a per-CPU map the values of all possible CPUs, each padded to 8 bytes.
    ///
    /// # Errors
    /// EINVAL if the key has another size than the map's; else the kernel's.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = vec![0_u8; self.value_bytes];
        let mut attributes = self.element(key)?;
        attributes.output(16, &mut value);
        match attributes.call(MAP_LOOKUP_ELEM) {
            Ok(_) => Ok(Some(value)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// EINVAL if key or value have other sizes than the map's; E2BIG when it is full; else the kernel's.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let mut attributes = self.element(key)?;
        attributes.input(16, value);
        attributes.call(MAP_UPDATE_ELEM).map(drop)
    }

    /// Removes `key`; says whether it was there.
    ///
    /// # Errors
    /// EINVAL if the key has another size than the map's; else the kernel's.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        match self.element(key)?.call(MAP_DELETE_ELEM) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Every key with its value, in no order.
    ///
    /// # Errors
    /// The kernel's.
    pub fn entries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.batch(MAP_LOOKUP_BATCH)
    }

    /// Removes every entry of a hash.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self) -> Result<()> {
        self.batch(MAP_LOOKUP_AND_DELETE_BATCH).map(drop)
    }

    /// One batch as large as the map can be, which therefore always takes everything.
    fn batch(&self, command: c_long) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let count = usize::try_from(self.entries_max).map_err(|_| Errno::OVERFLOW)?;
        let mut keys = vec![0_u8; self.key_bytes.checked_mul(count).ok_or(Errno::OVERFLOW)?];
        let mut values = vec![0_u8; self.value_bytes.checked_mul(count).ok_or(Errno::OVERFLOW)?];
        // The kernel's bookmark: a `u32` for hashes, at most a key for anything else.
        let mut bookmark = vec![0_u8; self.key_bytes.max(4)];
        let mut attributes = Attributes::new();
        attributes.output(8, &mut bookmark);
        attributes.output(16, &mut keys);
        attributes.output(24, &mut values);
        attributes.u32(32, self.entries_max);
        attributes.fd(36, self.fd());
        match attributes.call(command) {
            // ENOENT: the end was reached, which is how a complete batch ends.
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

    /// Makes `program`, of kind [`ProgramKind::SocketMessage`], judge what is sent on every socket in this map.
    ///
    /// The map holds the program from here on, until its last descriptor is closed.
    ///
    /// # Errors
    /// EINVAL if this is no map of sockets or that no such program.
    pub fn attach_message_verdict(&self, program: BorrowedFd<'_>) -> Result<()> {
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

/// Kinds of program in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// Runs at a tracepoint given by the BTF type id of its `btf_trace_NAME`, with typed arguments.
    Tracepoint(u32),
    /// Runs when a perf event overflows.
    PerfEvent,
    /// Runs for each packet at an interface's ingress.
    Ingress,
    /// Judges what is sent on a socket.
    SocketMessage,
}

/// Why a program was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kernel's error.
    pub errno: Errno,
    /// What the verifier wrote; empty if it was never asked.
    pub log: String,
}

/// Loads a program; `name` shows up in diagnostic tools (15 characters at most are used).
///
/// # Errors
/// The kernel's, with the verifier's words where it has any.
pub fn load(kind: ProgramKind, name: &str, instructions: &[[u8; 8]]) -> std::result::Result<OwnedFd, Refusal> {
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

/// Loads by a system call that writes into a log, if that has any room.
fn load_by<T>(mut attempt: impl FnMut(&mut [u8]) -> Result<T>) -> std::result::Result<T, Refusal> {
    /// A verifier that a signal interrupts returns EAGAIN; a caller that is interrupted this often gets the error.
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
    // Writing the log makes verification several times slower, so only a refusal asks for it.
    match patiently(&mut []) {
        Ok(loaded) => Ok(loaded),
        Err(errno @ (Errno::PERM | Errno::NOSYS)) => Err(Refusal { errno, log: String::new() }),
        Err(refused) => {
            let mut log = vec![0_u8; LOG_BYTES];
            patiently(&mut log).map_err(|errno| {
                let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
                // A log that does not fit is no reason to refuse a program.
                let errno = if errno == Errno::NOSPC { refused } else { errno };
                Refusal { errno, log: String::from_utf8_lossy(text).trim().to_owned() }
            })
        }
    }
}

/// Starts a [`ProgramKind::Tracepoint`] program; it stops when the returned link is closed.
///
/// # Errors
/// The kernel's.
pub fn attach_tracepoint(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    // The name stays null: the program carries its tracepoint.
    let mut attributes = Attributes::new();
    attributes.fd(8, program);
    attributes.call_for_fd(RAW_TRACEPOINT_OPEN)
}

/// Starts a [`ProgramKind::Ingress`] program on an interface of the calling thread's network namespace; it stops when the
/// returned link is closed.
///
/// # Errors
/// ENODEV if there is no such interface, EINVAL if the kernel has no tcx (before 6.6), else the kernel's.
pub fn attach_ingress(program: BorrowedFd<'_>, interface_index: u32) -> Result<OwnedFd> {
    let mut attributes = Attributes::new();
    attributes.fd(0, program);
    attributes.u32(4, interface_index);
    attributes.u32(8, TCX_INGRESS);
    attributes.call_for_fd(LINK_CREATE)
}

/// Number of CPUs that a per-CPU map has values for.
fn possible_cpus() -> Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").map_err(|_| Errno::NOENT)?;
    let last = siga_plan::cpus::cpu_list(&text).and_then(|list| list.last().copied()).ok_or(Errno::INVAL)?;
    // The kernel counts the members of the mask, and there may be holes in it; too large a buffer does no harm.
    usize::try_from(last).ok().and_then(|last| last.checked_add(1)).ok_or(Errno::OVERFLOW)
}

/// Plain data that the kernel may fill with any bytes.
trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for u32 {}
impl Plain for [u8; 8] {}

/// `union bpf_attr`, written field by field; borrows everything whose address it holds.
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
        // SAFETY: `words` is as long as said, and every address in it was put there by `input` or `output` from a slice
        // that `'a` keeps borrowed, together with a length that its caller derived from that slice.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.words.as_mut_ptr(), bytes) };
        u32::try_from(result).map_err(|_| last_error())
    }

    fn call_for_fd(&mut self, command: c_long) -> Result<OwnedFd> {
        let number = self.call(command)?;
        let number = i32::try_from(number).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: the callers use commands that return a fresh descriptor, which nobody else knows.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }
}

/// A pointer as the 64-bit field of `union bpf_attr`, on 32-bit machines of either byte order too.
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
