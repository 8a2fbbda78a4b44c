//! Isolation: a process shuts itself off from other processes of its user, and from most of the kernel.
//!
//! [`hide`] keeps others from reaching in: they cannot trace the process, read or write its memory, take its descriptors, or have its
//! core dumped. [`confine`] also keeps the process from reaching out if an attacker takes it over: no new privileges, no capabilities, a
//! user namespace of its own, and a system call filter. [`Confinement`] reports what the host refused.
//!
//! Other processes of the same user can still send signals, set resource limits, and change scheduling.

#[cfg(test)]
mod descriptor_tests;
pub mod launch;
pub(crate) mod system_calls;

use crate::sys;
use rustix::process::{DumpableBehavior, Resource, Rlimit, dumpable_behavior, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use std::fmt;
use std::sync::OnceLock;

/// The kind of a process, which decides what it may ask of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// siga's own code on one thread: an event loop over rings and descriptors that it received, without files and other processes. A
    /// list has the system calls that it may make.
    Guest,
    /// Other code beside a stack, with sockets, files, threads and children. A list has the system calls that it may not make: those that
    /// reach into another process, or change what all processes see.
    Application,
}

/// How a process is confined, as far as the host allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The profile. Its system call filter and no_new_privs are in force.
    pub profile: Profile,
    /// True if the process was hidden from its first instruction; false if only from its first call of [`hide`].
    pub hidden_from_start: bool,
    /// The user namespace that it is in.
    pub user_namespace: UserNamespace,
}

/// The user namespace of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserNamespace {
    /// Its own: even without a filter it could not trace another process of its user. No id is mapped, because no process may write the
    /// map of a hidden process. The process sees every user id as 65534; others see its real id.
    Own,
    /// The namespace of the process that started it.
    Inherited {
        /// Why it has no namespace of its own.
        why: String,
    },
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filter = match self.profile {
            Profile::Guest => "system calls of a guest only",
            Profile::Application => "no system calls into other processes",
        };
        let hidden = if self.hidden_from_start { "its first instruction" } else { "its start-up code" };
        write!(f, "{filter}, hidden since {hidden}, ")?;
        match &self.user_namespace {
            UserNamespace::Own => write!(f, "user namespace of its own"),
            UserNamespace::Inherited { why } => write!(f, "no user namespace of its own: {why}"),
        }
    }
}

/// Hides this process: afterwards no other process of the same user can trace it, read or write its memory, take its descriptors, or
/// have its core dumped. Calling it again does no harm.
///
/// Call it at the start of a program: a file such as `/proc/PID/mem` that was opened before stays open. A process that
/// [`Program`](crate::isolate::launch::Program) starts has no such moment.
///
/// # Errors
/// The process is traced, or the kernel refuses.
pub fn hide() -> Result<()> {
    hidden_from_start()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot hide from other processes")?;
    if dumpable()? != DumpableBehavior::NotDumpable {
        return Err(Error::environment("cannot hide from other processes: the kernel ignored the request"));
    }
    // Some core dump handlers ignore the mark above. A core would contain frames and keys of all guests.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).context("cannot forbid core dumps")?;
    // No new tracer can attach, but one from before would stay.
    match status("TracerPid")? {
        0 => Ok(()),
        tracer => Err(Error::environment(format!("process {tracer} traces this one")).hint("end the debugger")),
    }
}

/// Confines the calling process for good. Call it before the process reads anything from outside.
///
/// Afterwards a guest can open no file and make no socket: it must have its descriptors already.
///
/// # Errors
/// As [`hide`]; a guest has more than one thread; the kernel has no system call filters.
pub fn confine(profile: Profile) -> Result<Confinement> {
    hide()?;
    set_no_new_privs(true).context("cannot give up new privileges")?;
    let user_namespace = match profile {
        Profile::Guest => leave_others()?,
        Profile::Application => UserNamespace::Inherited { why: "applications keep their privileges".to_owned() },
    };
    system_calls::restrict(profile)?;
    Ok(Confinement { profile, hidden_from_start: hidden_from_start()?, user_namespace })
}

/// Raises the descriptor limit of this process to the host's maximum: each partner takes two.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // With a lower limit, some pairs are refused later.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// True if this process was hidden already at its first call.
fn hidden_from_start() -> Result<bool> {
    static FROM_START: OnceLock<bool> = OnceLock::new();
    if let Some(known) = FROM_START.get() {
        return Ok(*known);
    }
    let hidden = match dumpable()? {
        DumpableBehavior::NotDumpable | DumpableBehavior::DumpableReadableOnlyByRoot => true,
        DumpableBehavior::Dumpable => false,
    };
    Ok(*FROM_START.get_or_init(|| hidden))
}

fn dumpable() -> Result<DumpableBehavior> {
    dumpable_behavior().context("cannot see whether other processes are kept out")
}

/// Enters a user namespace of its own, where the host allows it, and gives up every capability.
fn leave_others() -> Result<UserNamespace> {
    let threads = status("Threads")?;
    if threads != 1 {
        return Err(Error::usage(format!("a guest has one thread when it is confined, this one has {threads}")));
    }
    let user_namespace = match sys::unshare_user() {
        Ok(()) => UserNamespace::Own,
        Err(error) => UserNamespace::Inherited { why: error.to_string() },
    };
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).context("cannot give up capabilities")?;
    Ok(user_namespace)
}

/// A number from /proc/self/status.
fn status(field: &str) -> Result<u32> {
    const PATH: &str = "/proc/self/status";
    let text = std::fs::read_to_string(PATH).context(PATH)?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).ok_or_else(|| Error::environment(format!("{PATH}: no {field}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_model::error::ErrorKind;

    #[test]
    fn a_guest_with_several_threads_is_refused() {
        let error = confine(Profile::Guest).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.message().starts_with("a guest has one thread when it is confined"), "{error}");
    }

    #[test]
    fn the_text_of_a_confinement_names_what_is_missing() {
        let full = Confinement { profile: Profile::Guest, hidden_from_start: true, user_namespace: UserNamespace::Own };
        let text = "system calls of a guest only, hidden since its first instruction, user namespace of its own";
        assert_eq!(full.to_string(), text);
        let why = "Operation not permitted".to_owned();
        let less = Confinement {
            profile: Profile::Application,
            hidden_from_start: false,
            user_namespace: UserNamespace::Inherited { why },
        };
        let text = "no system calls into other processes, hidden since its start-up code, \
                    no user namespace of its own: Operation not permitted";
        assert_eq!(less.to_string(), text);
    }
}
