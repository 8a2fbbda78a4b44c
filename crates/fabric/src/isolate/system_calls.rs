//! The system calls that a process may make, for each profile of a process (guest or application).
//!
//! - A guest has an allow list, which also restricts the arguments of some calls. Most other calls return EPERM, so that harmless
//!   code continues, such as a backtrace that looks for symbols. Some calls kill the process, because siga's code never makes them
//!   and they could help an attacker to escape. The control program then logs how the process ended.
//! - An application has a deny list. A denied call returns EPERM and does not kill the process, because the application's own code
//!   may make such a call without bad intent.
//!
//! A filter sees only the numbers in a call's arguments, not the object behind a descriptor or a pointer. Therefore a guest may not
//! make any call that takes a path (not even statx) or a socket address. A guest also may not change the size or the holes of a
//! file. It need not, because the control program gives it memory files of full size. A guest cannot create a socket, so its
//! `sendmsg` calls only reach the peers of the sockets that it received.

use super::Profile;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use siga_model::error::{IoContext, Result};
use std::collections::BTreeMap;

/// Calls that a guest may make with any arguments. Each only reads the clock, or affects nothing but the guest itself, its memory
/// and its descriptors.
const ALLOWED: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_set_robust_list,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Calls that kill a guest that makes them, in addition to [`DENIED`] and [`SYSTEM_WIDE`]. They access other processes, start
/// processes or programs, create sockets, or use parts of the kernel that could help an attacker to escape. siga's code makes none
/// of them.
const DEADLY: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kill,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_tkill,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Calls that are denied to guests and applications, in addition to [`SYSTEM_WIDE`]. They access other processes, use resources
/// that the processes of a user share, or change the system. Two kinds of calls are not in this list. Applications may send
/// signals. They may also call perf_event_open, because the kernel itself refuses it for hidden processes.
const DENIED: &[i64] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
];

/// Calls that change a clock, a host name, a device or a resource that all processes share.
const SYSTEM_WIDE: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    SYS_OPEN_TREE_ATTR,
];

/// The number of `open_tree_attr`, which exists since Linux 6.15. The number is the same on all architectures.
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// The flags of clone(2) that create namespaces. The flag for a time namespace is missing, because only unshare(2) and clone3(2)
/// accept it.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Calls whose arguments are in memory, where a filter cannot see them. For an application they return ENOSYS, as in a kernel
/// without these calls. Libraries then use clone(2), whose flags a filter can see, and ordinary I/O calls.
const OPAQUE: &[i64] = &[libc::SYS_clone3, libc::SYS_io_uring_setup];

/// Returns the filters of a profile, in the order in which they must be installed. For each system call, the kernel runs all
/// installed filters and applies the strictest result.
pub(crate) fn filters(profile: Profile) -> Result<Vec<BpfProgram>> {
    let refuse = || SeccompAction::Errno(libc::EPERM.unsigned_abs());
    match profile {
        Profile::Guest => Ok(vec![
            compile(
                any_arguments(&[DEADLY, DENIED, SYSTEM_WIDE].concat()),
                SeccompAction::Allow,
                SeccompAction::KillProcess,
            )?,
            compile(allowed()?, refuse(), SeccompAction::Allow)?,
        ]),
        Profile::Application => {
            let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
            let mut filters = vec![
                compile(denied()?, SeccompAction::Allow, refuse())?,
                compile(any_arguments(OPAQUE), SeccompAction::Allow, unknown)?,
            ];
            filters.extend(other_numbers());
            Ok(filters)
        }
    }
}

/// Returns the calls that an application may not make: [`DENIED`], [`SYSTEM_WIDE`], and some other calls if they have certain
/// arguments.
fn denied() -> Result<Rules> {
    let one = |argument, length, compare, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, length, compare, value)?])
    };
    let mut rules = any_arguments(&[DENIED, SYSTEM_WIDE].concat());
    let namespace = |flag: i32| {
        let flag = u64::from(flag.unsigned_abs());
        one(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)
    };
    let namespaces: std::result::Result<_, _> = NAMESPACES.into_iter().map(namespace).collect();
    rules.insert(libc::SYS_clone, namespaces.context(PLACE)?);
    let typed = |request: u32| one(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request.into());
    let typed: std::result::Result<_, _> =
        [IOCTL_TERMINAL_INPUT, IOCTL_TERMINAL_LINUX].into_iter().map(typed).collect();
    rules.insert(libc::SYS_ioctl, typed.context(PLACE)?);
    for call in [libc::SYS_migrate_pages, libc::SYS_move_pages] {
        // The argument 0 means the calling process.
        let others = one(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0).context(PLACE)?;
        rules.insert(call, vec![others]);
    }
    Ok(rules)
}

/// Makes `io_uring_setup` fail with `ENOSYS` in this process and in the programs that it executes. Such programs then use other calls
/// of libc. Also sets `no_new_privs`.
///
/// # Errors
/// Returns an error if the kernel has no system call filters.
pub fn without_io_uring() -> Result<()> {
    let error = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter = compile(any_arguments(&[libc::SYS_io_uring_setup]), SeccompAction::Allow, error)?;
    seccompiler::apply_filter(&filter).context(PLACE)
}

/// Installs the filters of a profile permanently, for all threads of this process and all its future children.
pub(super) fn restrict(profile: Profile) -> Result<()> {
    for filter in filters(profile)? {
        apply_filter_all_threads(&filter).context("cannot restrict the system calls of this process")?;
    }
    Ok(())
}

/// Returns a filter that refuses the x32 interface. On x86-64, each call also has an x32 number. The deny list does not contain
/// these numbers, so without this filter they would bypass it.
#[cfg(target_arch = "x86_64")]
fn other_numbers() -> Option<BpfProgram> {
    use seccompiler::sock_filter;
    const X32: u32 = 0x4000_0000;
    let line = |code: u32, jt, jf, k| u16::try_from(code).map(|code| sock_filter { code, jt, jf, k }).ok();
    [
        // The first word of the data that the kernel passes to a filter is the call's number.
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
    .into_iter()
    .collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn other_numbers() -> Option<BpfProgram> {
    None
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The context of every error in this module.
const PLACE: &str = "cannot create a filter for the system calls of this process";

fn compile(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into().context(PLACE)?;
    SeccompFilter::new(rules, otherwise, matched, architecture).and_then(TryInto::try_into).context(PLACE)
}

fn any_arguments(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

/// Returns the calls that a guest may make: [`ALLOWED`], and some other calls if they have certain arguments.
fn allowed() -> Result<Rules> {
    let mut rules = any_arguments(ALLOWED);
    for Only { call, argument, length, compare, values, and } in by_argument() {
        let rule = |value| {
            let mut conditions = vec![SeccompCondition::new(argument, length.clone(), compare.clone(), value)?];
            if let Some((argument, bits)) = and {
                let without = SeccompCmpOp::MaskedEq(bits);
                conditions.push(SeccompCondition::new(argument, SeccompCmpArgLen::Qword, without, 0)?);
            }
            SeccompRule::new(conditions)
        };
        let ways: std::result::Result<Vec<_>, _> = values.into_iter().map(rule).collect();
        rules.entry(call).or_default().extend(ways.context(PLACE)?);
    }
    Ok(rules)
}

/// Returns every call that a guest may make, including the calls that it may make only with certain arguments.
#[cfg(test)]
pub(super) fn of_a_guest() -> Vec<i64> {
    let by_argument = by_argument();
    ALLOWED.iter().copied().chain(by_argument.iter().map(|only| only.call)).collect()
}

/// A call that is allowed only if a certain argument satisfies the comparison `compare` with one of `values`. Arguments are counted
/// from 0.
struct Only {
    call: i64,
    argument: u8,
    length: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    values: Vec<u64>,
    /// If set, a second condition: the number of another argument, and the bits that must not be set in it.
    and: Option<(u8, u64)>,
}

fn by_argument() -> Vec<Only> {
    let word = |call, argument, values: &[u32]| Only {
        call,
        argument,
        length: SeccompCmpArgLen::Dword,
        compare: SeccompCmpOp::Eq,
        values: values.iter().copied().map(u64::from).collect(),
        and: None,
    };
    let no_bit = |call, argument, mask| Only {
        call,
        argument,
        length: SeccompCmpArgLen::Qword,
        compare: SeccompCmpOp::MaskedEq(mask),
        values: vec![0],
        and: None,
    };
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    // Some commands of fcntl are not allowed. F_SETOWN and F_SETSIG could send signals to any process of this user. F_SETPIPE_SZ
    // could use up pipe memory that other processes need. Locks and leases could make other processes wait.
    let of_descriptor =
        [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_ADD_SEALS, libc::F_GET_SEALS];
    let of_process = [libc::PR_GET_DUMPABLE, libc::PR_GET_NAME, libc::PR_GET_NO_NEW_PRIVS, libc::PR_GET_SECCOMP];
    let set_flags = [libc::F_SETFL.unsigned_abs()];
    // The argument 0 means the calling process.
    let own = [0];
    vec![
        no_bit(libc::SYS_mmap, 2, executable),
        no_bit(libc::SYS_mprotect, 2, executable),
        // The address must be null, so that the guest can send only to the peer of a connected socket.
        no_bit(libc::SYS_sendto, 4, u64::MAX),
        word(libc::SYS_fcntl, 1, &of_descriptor.map(i32::unsigned_abs)),
        Only {
            and: Some((2, !u64::from(FLAGS_OF_A_DESCRIPTOR.unsigned_abs()))),
            ..word(libc::SYS_fcntl, 1, &set_flags)
        },
        // When a reconnecting control program sends a new pipe, the guest replaces its standard error by this pipe.
        word(SYS_DUP_TO, 1, &[libc::STDERR_FILENO.unsigned_abs()]),
        word(libc::SYS_ioctl, 1, &[IOCTL_NONBLOCKING, IOCTL_READABLE_BYTES]),
        word(libc::SYS_prctl, 0, &of_process.map(i32::unsigned_abs)),
        word(libc::SYS_sched_getaffinity, 0, &own),
        word(libc::SYS_sched_setaffinity, 0, &own),
        word(libc::SYS_sched_getattr, 0, &own),
        word(libc::SYS_sched_setattr, 0, &own),
        // abort() ends the process with this call.
        word(libc::SYS_tgkill, 0, &[std::process::id()]),
    ]
}

/// The flags that a guest may pass to F_SETFL: O_NONBLOCK, and flags that F_SETFL ignores. O_ASYNC is not allowed, because it makes
/// the kernel send signals. O_DIRECT is not allowed, because it would change how many bytes the reader of a pipe gets in one read.
const FLAGS_OF_A_DESCRIPTOR: i32 = libc::O_NONBLOCK | libc::O_ACCMODE | O_LARGEFILE;

/// The value of the flag in the kernel. The libc crate defines it as 0 on 64-bit architectures.
#[cfg(target_arch = "x86_64")]
const O_LARGEFILE: i32 = 0o100_000;
#[cfg(not(target_arch = "x86_64"))]
const O_LARGEFILE: i32 = 0o400_000;

/// The system call with which rustix replaces descriptor 2.
#[cfg(target_arch = "x86_64")]
const SYS_DUP_TO: i64 = libc::SYS_dup2;
#[cfg(not(target_arch = "x86_64"))]
const SYS_DUP_TO: i64 = libc::SYS_dup3;

/// TIOCSTI and TIOCLINUX. With these requests a process could insert input into its terminal, and another process on the terminal
/// would execute the input.
const IOCTL_TERMINAL_INPUT: u32 = 0x5412;
const IOCTL_TERMINAL_LINUX: u32 = 0x541c;

/// FIONBIO and FIONREAD. Their values are the same on both architectures.
const IOCTL_NONBLOCKING: u32 = 0x5421;
const IOCTL_READABLE_BYTES: u32 = 0x541b;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Outcome, attempt};

    /// Above the last system call of any kernel.
    const CALL_MAX: i64 = 600;

    /// Calls that no process of ours may make, whatever else changes in the lists.
    const REACHING_INTO_OTHERS: [i64; 9] = [
        libc::SYS_bpf,
        libc::SYS_kcmp,
        libc::SYS_keyctl,
        libc::SYS_mount,
        libc::SYS_pidfd_getfd,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        libc::SYS_userfaultfd,
    ];

    /// The outcomes that differ from `expected`.
    fn unexpected(filters: &[BpfProgram], calls: &[i64], expected: Outcome) -> Vec<(i64, Outcome)> {
        let outcomes = calls.iter().map(|call| (*call, attempt(filters, *call, &[])));
        outcomes.filter(|(_, outcome)| *outcome != expected).collect()
    }

    fn guest() -> Vec<BpfProgram> {
        filters(Profile::Guest).unwrap()
    }

    fn application() -> Vec<BpfProgram> {
        filters(Profile::Application).unwrap()
    }

    #[test]
    fn calls_that_help_to_escape_kill_a_guest() {
        let deadly = [DEADLY, DENIED, SYSTEM_WIDE].concat();
        assert_eq!(unexpected(&guest(), &deadly, Outcome::Killed(libc::SIGSYS)), []);
        for call in REACHING_INTO_OTHERS {
            assert!(deadly.contains(&call), "{call}");
        }
        for call in [libc::SYS_clone, libc::SYS_execve, libc::SYS_io_uring_setup, libc::SYS_kill, libc::SYS_socket] {
            assert!(deadly.contains(&call), "{call}");
        }
    }

    /// Calls of the kernel's own trampolines on x86-64, which pass every filter and fail elsewhere.
    #[cfg(target_arch = "x86_64")]
    const TRAMPOLINES: [i64; 2] = [335, 336];
    #[cfg(not(target_arch = "x86_64"))]
    const TRAMPOLINES: [i64; 0] = [];

    #[test]
    fn all_other_calls_of_a_guest_return_eperm() {
        let mut known: Vec<i64> = by_argument().iter().map(|only| only.call).collect();
        known.extend([ALLOWED, DEADLY, DENIED, SYSTEM_WIDE, &TRAMPOLINES].concat());
        let rest: Vec<i64> = (0..CALL_MAX).filter(|call| !known.contains(call)).collect();
        for call in [libc::SYS_openat, libc::SYS_statx, libc::SYS_unlinkat, libc::SYS_connect, libc::SYS_prlimit64] {
            assert!(rest.contains(&call), "{call}");
        }
        assert_eq!(unexpected(&guest(), &rest, Outcome::Refused(libc::EPERM)), []);
    }

    #[test]
    fn arguments_give_a_guest_neither_executable_memory_nor_another_process() {
        const ANYWHERE: u64 = 0x2222;
        const F_SETSIG: u64 = 10;
        let flag = |flag: i32| u64::from(flag.unsigned_abs());
        let (read, exec) = (flag(libc::PROT_READ), flag(libc::PROT_EXEC));
        let private = flag(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let parent = u64::from(std::process::id());
        const F_SETLEASE: u64 = 1_024;
        const F_NOTIFY: u64 = 1_026;
        const F_SETPIPE_SZ: u64 = 1_031;
        let refused: [(i64, &[u64]); 20] = [
            (libc::SYS_mmap, &[0, 4096, read | exec, private]),
            (libc::SYS_mmap, &[0, 4096, exec, private]),
            (libc::SYS_mprotect, &[0, 4096, read | exec]),
            (libc::SYS_fcntl, &[0, flag(libc::F_SETOWN), parent]),
            (libc::SYS_fcntl, &[0, F_SETSIG, 9]),
            (libc::SYS_fcntl, &[0, flag(libc::F_SETFL), flag(libc::O_ASYNC)]),
            (libc::SYS_fcntl, &[1, flag(libc::F_SETFL), flag(libc::O_DIRECT | libc::O_NONBLOCK)]),
            (libc::SYS_fcntl, &[0, F_SETLEASE, 1]),
            (libc::SYS_fcntl, &[0, F_NOTIFY, 1]),
            (libc::SYS_fcntl, &[0, F_SETPIPE_SZ, 4_096]),
            (libc::SYS_fcntl, &[0, flag(libc::F_SETLK), ANYWHERE]),
            (SYS_DUP_TO, &[0, 1]),
            (libc::SYS_ioctl, &[0, libc::TIOCSTI, ANYWHERE]),
            (libc::SYS_prctl, &[flag(libc::PR_SET_DUMPABLE), 1]),
            (libc::SYS_sched_setattr, &[parent, ANYWHERE, 0]),
            (libc::SYS_sched_getaffinity, &[parent, 8, ANYWHERE]),
            (libc::SYS_sched_setaffinity, &[parent, 8, ANYWHERE]),
            (libc::SYS_sendto, &[0, ANYWHERE, 1, 0, ANYWHERE, 16]),
            (libc::SYS_sendto, &[0, ANYWHERE, 1, 0, 1 << 32, 16]),
            // The filter allows the process that made it: the parent, not the child.
            (libc::SYS_tgkill, &[1, 1, 0]),
        ];
        for (call, arguments) in refused {
            assert_eq!(attempt(&guest(), call, arguments), Outcome::Refused(libc::EPERM), "{call} {arguments:x?}");
        }
        let done: [(i64, &[u64]); 6] = [
            (libc::SYS_mmap, &[0, 4096, read, private]),
            (libc::SYS_fcntl, &[2, flag(libc::F_GETFL)]),
            (SYS_DUP_TO, &[0, 2]),
            (libc::SYS_prctl, &[flag(libc::PR_GET_DUMPABLE)]),
            (libc::SYS_tgkill, &[parent, parent, 0]),
            (libc::SYS_sched_yield, &[]),
        ];
        for (call, arguments) in done {
            assert_eq!(attempt(&guest(), call, arguments), Outcome::Done, "{call} {arguments:x?}");
        }
        assert_eq!(attempt(&guest(), libc::SYS_sendto, &[u64::MAX]), Outcome::Refused(libc::EBADF));
    }

    #[test]
    fn an_application_survives_denied_calls_into_other_processes() {
        assert_eq!(unexpected(&application(), DENIED, Outcome::Refused(libc::EPERM)), []);
        for call in REACHING_INTO_OTHERS {
            assert!(DENIED.contains(&call), "{call}");
        }
        let free = [libc::SYS_getpid, libc::SYS_getuid, libc::SYS_sched_yield];
        assert_eq!(unexpected(&application(), &free, Outcome::Done), []);
    }

    #[test]
    fn an_application_cannot_change_the_system_or_make_namespaces() {
        // What none of these calls can carry out, if it is not refused.
        const NOWHERE: [u64; 6] = [u64::MAX; 6];
        let mut outcomes: Vec<(i64, Outcome)> = SYSTEM_WIDE
            .iter()
            .filter(|call| **call != libc::SYS_vhangup)
            .map(|call| (*call, attempt(&application(), *call, &NOWHERE)))
            .collect();
        let exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
        for namespace in NAMESPACES {
            let flags = u64::from(namespace.unsigned_abs()) | exit_signal;
            outcomes.push((libc::SYS_clone, attempt(&application(), libc::SYS_clone, &[flags])));
        }
        for request in [IOCTL_TERMINAL_INPUT, IOCTL_TERMINAL_LINUX] {
            outcomes.push((libc::SYS_ioctl, attempt(&application(), libc::SYS_ioctl, &[2, request.into(), 0])));
        }
        let others = [1, 0, 0];
        for call in [libc::SYS_migrate_pages, libc::SYS_move_pages] {
            outcomes.push((call, attempt(&application(), call, &others)));
        }
        outcomes.retain(|(_, outcome)| *outcome != Outcome::Refused(libc::EPERM));
        assert_eq!(outcomes, []);
        for call in [libc::SYS_clone3, libc::SYS_io_uring_setup] {
            assert_eq!(attempt(&application(), call, &NOWHERE), Outcome::Refused(libc::ENOSYS), "{call}");
        }
        // Its own children and pages are its own affair.
        assert_eq!(attempt(&application(), libc::SYS_clone, &[exit_signal]), Outcome::Done);
        assert_eq!(attempt(&application(), libc::SYS_move_pages, &[0, 0, 0]), Outcome::Done);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn other_numbers_of_a_call_do_not_pass_the_filters() {
        use crate::sys::attempt_32_bit;
        let x32: Vec<i64> = (0..CALL_MAX).map(|call| call | 0x4000_0000).collect();
        for filters in [guest(), application()] {
            assert_eq!(unexpected(&filters, &x32, Outcome::Refused(libc::EPERM)), []);
            // A kernel without that interface kills by another signal.
            let outcome = attempt_32_bit(&filters);
            assert!(matches!(outcome, Outcome::Killed(libc::SIGSYS | libc::SIGSEGV)), "{outcome:?}");
        }
    }
}
