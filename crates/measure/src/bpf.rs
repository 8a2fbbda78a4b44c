//! Loads siga's BPF programs into the kernel with the system call bpf(2), without a library. The submodules contain the
//! assembler and the readers of the kernel's types (BTF) and symbols.
//!
//! Three parts of siga use this module: the profiler, the CPU-cost injector and the sockmap. If one of them cannot be opened,
//! its error says what the host lacks. Each has a function `available` for `siga doctor`, which checks this and leaves nothing
//! behind. No program or map is pinned. So when the process ends for any reason, its descriptors are closed, and the kernel
//! removes its programs and maps.

pub(crate) mod asm;
pub(crate) mod btf;
pub(crate) mod symbols;

use crate::sys::bpf::{ProgramKind, load};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use siga_model::error::{Error, IoContext, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A Linux capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin,
    SysAdmin,
    Syslog,
    Perfmon,
    Bpf,
}

impl Capability {
    fn bit(self) -> u64 {
        let number = match self {
            Self::NetAdmin => 12,
            Self::SysAdmin => 21,
            Self::Syslog => 34,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        };
        1 << number
    }

    fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Syslog => "CAP_SYSLOG",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }

    /// Returns whether a process with the capabilities `set` has this capability. CAP_SYS_ADMIN implies CAP_PERFMON and CAP_BPF,
    /// which were split off from it in Linux 5.8.
    fn is_in(self, set: u64) -> bool {
        let stands_in = match self {
            Self::Perfmon | Self::Bpf => Self::SysAdmin.bit(),
            Self::NetAdmin | Self::SysAdmin | Self::Syslog => 0,
        };
        set & (self.bit() | stands_in) != 0
    }
}

/// Returns the names of the needed capabilities that this process lacks.
pub(crate) fn missing(needed: &[Capability]) -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or_default();
    needed.iter().filter(|capability| !capability.is_in(set)).map(|capability| capability.name()).collect()
}

/// Assembles a BPF program and loads it into the kernel. If the kernel refuses the program, the error names the capabilities
/// in `needed` that this process lacks.
pub(crate) fn load_program(
    kind: ProgramKind,
    name: &str,
    lines: &[asm::Line<'_>],
    needed: &[Capability],
) -> Result<OwnedFd> {
    let code = asm::assemble(lines)?;
    load(kind, name, &code).map_err(|refusal| {
        let error = refused(format_args!("the kernel refused the BPF program `{name}`"), refusal.errno, needed);
        // The verifier's log ends with the error and a summary, so its last three lines go into the hint.
        let log: Vec<_> = refusal.log.lines().rev().take(3).collect();
        if log.is_empty() { error } else { error.hint(log.into_iter().rev().collect::<Vec<_>>().join("; ")) }
    })
}

/// Builds an error of kind `Environment` for a system call that failed with `errno`. If the reason was a missing permission, the
/// hint names the capabilities in `needed` that this process lacks.
pub(crate) fn refused(what: impl std::fmt::Display, errno: Errno, needed: &[Capability]) -> Error {
    let error = Error::environment(format!("{what}: {errno}"));
    if errno != Errno::PERM && errno != Errno::ACCESS {
        return error;
    }
    let missing = missing(needed);
    if missing.is_empty() {
        return error.hint(
            "this process has the needed capabilities, but only within a user namespace, or a security module \
                denies BPF",
        );
    }
    error.hint(format!("run siga as root, or with {}", missing.join(", ")))
}

/// Runs `work` in the network namespace `path`. Uses a new thread, so that the calling thread stays in its own namespace.
pub(crate) fn in_namespace<R: Send>(path: &Path, work: impl FnOnce() -> R + Send) -> Result<R> {
    let file = std::fs::File::open(path).context("cannot open the network namespace for a BPF program")?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("siga-namespace".into()).spawn_scoped(scope, || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|errno| {
                refused("cannot enter the network namespace for a BPF program", errno, &[Capability::SysAdmin])
            })?;
            Ok(work())
        });
        let thread = thread.context("cannot start a thread in another network namespace")?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) mod testbed;
}
