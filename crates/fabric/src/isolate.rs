//! How a process of the fabric shuts itself off: from other processes of its user, and from most of the kernel.
//!
//! [`hide`] keeps others from reaching in (no tracing, no reading or writing of memory, no taking of descriptors, no core
//! dumps). [`confine`] does that and keeps the process, should it be taken over, from reaching out: no new privileges, no
//! capabilities, a user namespace of its own, and a filter of system calls. What the host refused is told, not hidden.
//!
//! What the kernel lets any process do to another of its user stays possible from outside: signals, limits on resources,
//! scheduling.

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

/// What a process is, and so what it needs from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Our own program on one thread: an event loop over rings, descriptors that it has or is sent, no file and no other
    /// process. All it may ask the kernel is on a list.
    Guest,
    /// Other people's code beside a stack, with sockets, files, threads and children: it may ask for anything but what
    /// serves to reach into another process or to change what all processes see.
    Application,
}

/// What shuts a process off, as far as the host allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// What was asked for. Its filter of system calls is in force, and so is no_new_privs.
    pub profile: Profile,
    /// Whether nobody could reach in since the program's first instruction; if not, since its first call of [`hide`] only.
    pub hidden_from_start: bool,
    /// Whose user namespace it is in.
    pub user_namespace: UserNamespace,
}

/// Whose user namespace a process is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserNamespace {
    /// Its own: even without its filter it could not trace another process of its user. No id is mapped in it, as nobody may
    /// write the map of a hidden process: it sees everybody's user id as 65534, while others see its id as it is.
    Own,
    /// That of the process that started it.
    Inherited {
        /// Why it has none of its own.
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

/// Keeps other processes of the same user out: afterwards none can trace this one, read or write its memory, take its
/// descriptors, or have its core dumped. Calling it again does no harm.
///
/// It is for the start of a program: what was opened before (`/proc/PID/mem`) stays open. Only a start by
/// [`Program`](crate::isolate::launch::Program) leaves no such moment.
///
/// # Errors
/// The process is traced, or the kernel does not do as it is asked.
pub fn hide() -> Result<()> {
    hidden_from_start()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot hide from other processes")?;
    if dumpable()? != DumpableBehavior::NotDumpable {
        return Err(Error::environment("cannot hide from other processes: the kernel does not keep to it"));
    }
    // For what ignores the mark above; a core would hold the frames and keys of everybody here.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).context("cannot forbid core dumps")?;
    // A tracer from before would stay; none can come any more.
    match status("TracerPid")? {
        0 => Ok(()),
        tracer => Err(Error::environment(format!("process {tracer} traces this one")).hint("end the debugger")),
    }
}

/// Confines the calling process for good. It is called before anything that comes from outside is looked at.
///
/// A guest has all its descriptors by then, as it can open no file and make no socket afterwards.
///
/// # Errors
/// As [`hide`]; a guest has more than one thread; the kernel has no filters of system calls.
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

/// Lets this process have as many descriptors as the host lets it: a partner takes two.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // With fewer, pairs are refused one by one.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Whether this process was hidden when it asked for the first time.
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
    dumpable_behavior().context("cannot tell whether other processes are kept out")
}

/// Enters a user namespace of its own, where possible, and gives up every capability in it and elsewhere.
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
    fn what_is_not_in_force_is_told() {
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
