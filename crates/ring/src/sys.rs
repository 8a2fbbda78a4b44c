//! The system calls that no safe library offers: they read and set the scheduling attributes of a thread.
#![allow(unsafe_code, reason = "the one module of this crate that makes raw system calls")]

use rustix::thread::Pid;
use std::io;
use std::mem::MaybeUninit;

/// Scheduling policies of a thread without real-time priority. They differ in what happens when the thread is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The woken thread may preempt the running thread (SCHED_OTHER).
    Other,
    /// The woken thread does not preempt the running thread (SCHED_BATCH).
    Batch,
}

impl Policy {
    fn number(self) -> u32 {
        match self {
            Self::Other => libc::SCHED_OTHER.unsigned_abs(),
            Self::Batch => libc::SCHED_BATCH.unsigned_abs(),
        }
    }
}

/// Requests a time slice of `slice_ns` nanoseconds for the calling thread, and returns the slice that the scheduler then uses.
///
/// A thread with a shorter slice runs sooner after it is woken. The call needs no privilege. Kernels before 6.12 have one slice
/// for all threads, so on them the result is 0. The thread's policy and nice value stay the same.
///
/// # Errors
/// Returns an error if the kernel refused to return or to set the attributes.
pub fn set_slice(slice_ns: u64) -> io::Result<u64> {
    let mut attributes = read_attributes(None)?;
    attributes.sched_runtime = slice_ns;
    set_attributes(None, &attributes)?;
    Ok(read_attributes(None)?.sched_runtime)
}

/// Changes the scheduling policy of a thread (`None`: the calling thread) from `from` to `to`. A thread with another policy than
/// `from` is not changed. Returns whether the policy was `from`. The time slice stays the same.
///
/// # Errors
/// Returns an error if the kernel refused to return or to set the attributes.
pub(crate) fn change_policy(thread: Option<Pid>, from: Policy, to: Policy) -> io::Result<bool> {
    let mut attributes = read_attributes(thread)?;
    if attributes.sched_policy != from.number() {
        return Ok(false);
    }
    attributes.sched_policy = to.number();
    set_attributes(thread, &attributes)?;
    Ok(true)
}

fn read_attributes(thread: Option<Pid>) -> io::Result<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    let thread = Pid::as_raw(thread);
    // SAFETY: the pointer is valid for writes of `size` bytes, and the kernel writes no more than `size` bytes.
    let status = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, attributes.as_mut_ptr(), size, 0) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all-zero bytes are valid attributes, and so are the bytes that the kernel wrote.
    Ok(unsafe { attributes.assume_init() })
}

fn set_attributes(thread: Option<Pid>, attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the attributes are valid for reads of the number of bytes in their size field, and the kernel only reads them.
    let status = unsafe { libc::syscall(libc::SYS_sched_setattr, Pid::as_raw(thread), &raw const *attributes, 0) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no scheduler")]
    fn the_slice_is_as_asked_where_the_kernel_knows_slices() {
        let before = read_attributes(None).unwrap();
        let slice_ns = set_slice(100_000).unwrap();
        if slice_ns == 0 {
            eprintln!("skipped, because this kernel has one slice for all");
            return;
        }
        let after = read_attributes(None).unwrap();
        assert_eq!((slice_ns, after.sched_policy, after.sched_nice), (100_000, before.sched_policy, before.sched_nice));
        assert_ne!(before.sched_runtime, slice_ns, "the test shows nothing where it is so by default");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no scheduler")]
    fn a_policy_changes_only_from_what_it_was_thought_to_be() {
        let before = read_attributes(None).unwrap();
        assert!(!change_policy(None, Policy::Batch, Policy::Other).unwrap());
        assert!(change_policy(None, Policy::Other, Policy::Batch).unwrap());
        assert!(!change_policy(None, Policy::Other, Policy::Batch).unwrap());
        let after = read_attributes(None).unwrap();
        assert_eq!(
            (after.sched_policy, after.sched_nice, after.sched_runtime),
            (Policy::Batch.number(), before.sched_nice, before.sched_runtime)
        );
        assert!(change_policy(None, Policy::Batch, Policy::Other).unwrap());
    }
}
