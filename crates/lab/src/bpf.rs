//! The privileged instruments: programs of our own in the kernel, loaded by the bare bpf(2) system call.
//!
//! [`profile`] tells in which process and for which network namespace CPU time is spent, [`cost_injector`] plants a known cost
//! into a forwarding path, [`sockmap`] joins TCP sockets past TCP. Each opens with an error that says what is missing, and
//! each has an `available` for `siga doctor`, which leaves nothing behind. Nothing is pinned: the kernel removes every
//! program and map when the descriptors close, however the process ends.

pub mod asm;
pub mod btf;
pub mod cost_injector;
pub mod profile;
pub mod sockmap;
pub mod symbols;
#[cfg(test)]
mod testbed;

use crate::sys::bpf::{ProgramKind, load};
use rustix::io::Errno;
use siga_model::error::{Error, Result};
use std::os::fd::OwnedFd;

/// A capability, by its bit in `/proc/PID/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capability {
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

    /// CAP_SYS_ADMIN stands for the two that were split off it in Linux 5.8.
    fn is_in(self, set: u64) -> bool {
        let stands_in = match self {
            Self::Perfmon | Self::Bpf => Self::SysAdmin.bit(),
            Self::NetAdmin | Self::SysAdmin | Self::Syslog => 0,
        };
        set & (self.bit() | stands_in) != 0
    }
}

/// Names of those capabilities that this process lacks.
fn missing(needed: &[Capability]) -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or_default();
    needed.iter().filter(|capability| !capability.is_in(set)).map(|capability| capability.name()).collect()
}

/// Assembles and loads one of our programs.
fn load_program(kind: ProgramKind, name: &str, lines: &[asm::Line<'_>], needed: &[Capability]) -> Result<OwnedFd> {
    let code = asm::assemble(lines)?;
    load(kind, name, &code).map_err(|refusal| {
        let error = refused(format_args!("the kernel refused the BPF program `{name}`"), refusal.errno, needed);
        // The last line is a summary, the one before it says what is wrong.
        let log: Vec<_> = refusal.log.lines().rev().take(3).collect();
        if log.is_empty() { error } else { error.hint(log.into_iter().rev().collect::<Vec<_>>().join("; ")) }
    })
}

/// An environment error for a failed call, with the missing capabilities as the hint if that is the reason.
fn refused(what: impl std::fmt::Display, errno: Errno, needed: &[Capability]) -> Error {
    let error = Error::environment(format!("{what}: {errno}"));
    if errno != Errno::PERM && errno != Errno::ACCESS {
        return error;
    }
    let missing = missing(needed);
    if missing.is_empty() {
        return error
            .hint("the capabilities are there, but hold only in a user namespace, or a security module forbids it");
    }
    error.hint(format!("run as root, or with {}", missing.join(", ")))
}
