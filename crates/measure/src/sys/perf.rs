//! Samples with the CPU clock of perf_event_open(2). An event belongs to one CPU and runs a BPF program for each sample.
//!
//! Contract: an event counts and samples only between `enable` and `disable`, and is closed when its value is dropped. It has
//! no ring buffer, so the BPF program must store each sample itself. `crate::bpf` and `crate::cpu` contain the program.

use rustix::io::{Errno, Result};
use rustix::ioctl;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const TYPE_SOFTWARE: u32 = 1;
const COUNT_SW_CPU_CLOCK: u64 = 0;
/// `perf_event_attr.disabled`: the event does not run until it is enabled.
const DISABLED: u64 = flag(0);
/// `perf_event_attr.exclude_idle`: the event does not sample the idle task.
const EXCLUDE_IDLE: u64 = flag(7);
/// Flag of perf_event_open: sets FD_CLOEXEC on the descriptor.
const FD_CLOEXEC: u64 = 8;

const ENABLE: ioctl::Opcode = ioctl::opcode::none(b'$', 0);
const DISABLE: ioctl::Opcode = ioctl::opcode::none(b'$', 1);
const SET_BPF: ioctl::Opcode = ioctl::opcode::write::<u32>(b'$', 8);

/// Returns the mask of flag `number`. The flags are bit fields in C, so on big-endian machines flag 0 is the most significant
/// bit.
const fn flag(number: u32) -> u64 {
    if cfg!(target_endian = "little") { 1 << number } else { 1 << (63 - number) }
}

/// `struct perf_event_attr` with the fields and the size of its first published version.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// A clock of one CPU, which runs a BPF program at each of its ticks.
#[derive(Debug)]
pub(crate) struct CpuClock {
    fd: OwnedFd,
    cpu: u32,
}

impl CpuClock {
    /// Opens an event on `cpu`, which is stopped at first. After `enable`, it samples the task that runs on this CPU every
    /// `period_ns` nanoseconds, except the idle task.
    ///
    /// Samples of the idle task would be unreliable. After `perf_event_max_sample_rate` / HZ samples without a timer tick, the
    /// kernel stops an event until the next tick. An idle CPU has no ticks. So the event would stay stopped, and would miss
    /// short bursts of work that follow. Some virtual machines deliver no samples of the idle task at all. Returns EACCES or
    /// EPERM if this process lacks the privilege, ENODEV if the CPU is not online, or another error of the kernel.
    pub(crate) fn open(cpu: u32, period_ns: u64) -> Result<Self> {
        let size = u32::try_from(size_of::<Attributes>()).map_err(|_| Errno::OVERFLOW)?;
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size,
            config: COUNT_SW_CPU_CLOCK,
            sample_period: period_ns,
            sample_type: 0,
            read_format: 0,
            flags: DISABLED | EXCLUDE_IDLE,
            wakeup: 0,
            breakpoint_type: 0,
            config1: 0,
        };
        let any_process: libc::c_long = -1;
        let no_group: libc::c_long = -1;
        let on_cpu = libc::c_long::from(i32::try_from(cpu).map_err(|_| Errno::INVAL)?);
        // SAFETY: the attributes are initialised, their field `size` is their true size, and the kernel only reads them.
        let result = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, any_process, on_cpu, no_group, FD_CLOEXEC)
        };
        let number = i32::try_from(result).map_err(|_| Errno::OVERFLOW)?;
        if number < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error));
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { fd, cpu })
    }

    /// Returns the CPU that the clock runs on.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Makes every sample run `program`. The event keeps a reference to the program.
    pub(crate) fn attach(&self, program: BorrowedFd<'_>) -> Result<()> {
        let number = usize::try_from(program.as_raw_fd()).map_err(|_| Errno::BADF)?;
        // SAFETY: the argument of PERF_EVENT_IOC_SET_BPF is a descriptor, passed by value.
        let request = unsafe { ioctl::IntegerSetter::<SET_BPF>::new_usize(number) };
        // SAFETY: PERF_EVENT_IOC_SET_BPF expects the descriptor of a program, and `self.fd` is always a perf event.
        unsafe { ioctl::ioctl(&self.fd, request) }
    }

    /// Starts counting and sampling.
    pub(crate) fn enable(&self) -> Result<()> {
        // SAFETY: PERF_EVENT_IOC_ENABLE takes no argument.
        let request = unsafe { ioctl::NoArg::<ENABLE>::new() };
        // SAFETY: PERF_EVENT_IOC_ENABLE expects no argument, and `self.fd` is always a perf event.
        unsafe { ioctl::ioctl(&self.fd, request) }
    }

    /// Stops counting and sampling.
    pub(crate) fn disable(&self) -> Result<()> {
        // SAFETY: PERF_EVENT_IOC_DISABLE takes no argument.
        let request = unsafe { ioctl::NoArg::<DISABLE>::new() };
        // SAFETY: PERF_EVENT_IOC_DISABLE expects no argument, and `self.fd` is always a perf event.
        unsafe { ioctl::ioctl(&self.fd, request) }
    }

    /// Returns the time in nanoseconds for which the clock has been enabled. Returns the kernel's error, or EIO if the event
    /// ended because its CPU went offline.
    pub(crate) fn elapsed_ns(&self) -> Result<u64> {
        let mut value = [0_u8; 8];
        match rustix::io::read(&self.fd, &mut value)? {
            8 => Ok(u64::from_ne_bytes(value)),
            _ => Err(Errno::IO),
        }
    }
}
