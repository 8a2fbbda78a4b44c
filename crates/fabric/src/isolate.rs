//! Isolation: a process protects itself against other processes of its user, and limits which parts of the kernel it can use.
//!
//! [`hide`] protects the process. Afterwards other processes of the same user cannot trace it, read or write its memory, take its
//! descriptors, or make it dump core. [`confine`] also limits what an attacker who takes over the process can do: it sets
//! `no_new_privs` and installs a system call filter. A guest also drops all capabilities and enters its own user
//! namespace.
//! [`Confinement`] says which of these steps the host refused.
//!
//! Other processes of the same user can still send signals, set resource limits, and change scheduling.

#[cfg(test)]
mod descriptor_tests;
pub mod launch;
pub(crate) mod system_calls;

use crate::sys;
use rustix::process::{DumpableBehavior, Resource, Rlimit, dumpable_behavior, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use siga_model::error::{Error, IoContext, Result};
use std::fmt;
use std::sync::OnceLock;
pub use system_calls::without_io_uring;

/// The kind of a process, which decides which system calls the process may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// A guest's process, which runs only siga's own code, on one thread. Its event loop uses rings, and descriptors that it
    /// received from other processes. It needs no files and starts no processes. An allow list names the system calls that it may
    /// make.
    Guest,
    /// An application's process, which contains other code in addition to siga's. That code may use sockets, files, threads and
    /// child processes. A deny list names the system calls that the process may not make. These calls access other processes or
    /// change something that all processes share.
    Application,
}

/// How a process is confined. The host may have refused some of the steps of [`confine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The profile of the process. The system call filter of this profile is installed, and `no_new_privs` is set.
    pub profile: Profile,
    /// True if the process was hidden from its first instruction on; false if it was hidden only by its first call of [`hide`].
    pub hidden_from_start: bool,
    /// The user namespace in which the process runs.
    pub user_namespace: UserNamespace,
}

/// The user namespace of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserNamespace {
    /// A user namespace of its own. Therefore the process could not trace another process of its user, even without a system
    /// call
    /// filter. No user id is mapped, because no process may write the id map of a hidden process. So the process sees every user id
    /// as 65534, while other processes see its real id.
    Own,
    /// The user namespace of its parent process.
    Inherited {
        /// The reason why the process has no user namespace of its own.
        why: String,
    },
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filter = match self.profile {
            Profile::Guest => "only the system calls that a guest needs",
            Profile::Application => "no system calls that affect other processes",
        };
        let hidden = if self.hidden_from_start { "its first instruction" } else { "its start-up code" };
        write!(f, "{filter}, protected from other processes since {hidden}, ")?;
        match &self.user_namespace {
            UserNamespace::Own => write!(f, "own user namespace"),
            UserNamespace::Inherited { why } => write!(f, "no own user namespace: {why}"),
        }
    }
}

/// Hides this process. Afterwards no other process of the same user can trace it, read or write its memory, take its descriptors,
/// or make it dump core. Further calls have no effect.
///
/// Call this function at the start of a program. If another process has opened a file such as `/proc/PID/mem` before, that file
/// stays usable. A process that [`Program`](crate::isolate::launch::Program) starts from its unreadable copy is hidden from its
/// first instruction on.
///
/// # Errors
/// Returns an error if another process traces this process, or if the kernel refuses to hide it.
pub fn hide() -> Result<()> {
    hidden_from_start()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot protect this process from other processes")?;
    if dumpable()? != DumpableBehavior::NotDumpable {
        return Err(Error::environment(
            "cannot protect this process from other processes: the kernel ignored the request",
        ));
    }
    // A core dump would contain frames and keys of guests. Some core dump handlers ignore the dumpable flag that was set above, so
    // also set the size limit of core dumps to 0.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .context("cannot disable core dumps of this process")?;
    // From now on no process can begin to trace this process. But a process that traces it already would continue, so return an
    // error if there is one.
    match status("TracerPid")? {
        0 => Ok(()),
        tracer => Err(Error::environment(format!("cannot protect this process, because process {tracer} traces it"))
            .hint("end this process, for example a debugger, and try again")),
    }
}

/// Confines the calling process permanently. Call this function before the process reads any data that an attacker may have
/// written.
///
/// Afterwards a process with the profile of a guest can neither open a file nor create a socket. It uses descriptors that it
/// already has or receives.
///
/// # Errors
/// Returns the errors of [`hide`]. Also returns an error if a guest has more than one thread, or if the kernel has no system call
/// filters.
pub fn confine(profile: Profile) -> Result<Confinement> {
    hide()?;
    set_no_new_privs(true).context("cannot set no_new_privs, which prevents this process from gaining privileges")?;
    let user_namespace = match profile {
        Profile::Guest => leave_others()?,
        Profile::Application => UserNamespace::Inherited { why: "applications keep their privileges".to_owned() },
    };
    system_calls::restrict(profile)?;
    Ok(Confinement { profile, hidden_from_start: hidden_from_start()?, user_namespace })
}

/// Raises the descriptor limit of this process to the hard limit, because a guest needs two descriptors for each partner.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // If this call fails, the lower limit stays in force, and some ring pairs may be refused later.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Returns true if this process was already hidden when this function was first called.
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
    dumpable_behavior().context("cannot check whether this process is protected from other processes")
}

/// Moves this process into its own user namespace, if the host allows that. Drops all capabilities.
fn leave_others() -> Result<UserNamespace> {
    let threads = status("Threads")?;
    if threads != 1 {
        return Err(Error::usage(format!(
            "cannot restrict a guest whose process has {threads} threads, because it must have only one"
        )));
    }
    let user_namespace = match sys::unshare_user() {
        Ok(()) => UserNamespace::Own,
        Err(error) => UserNamespace::Inherited { why: error.to_string() },
    };
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).context("cannot drop the capabilities of this process")?;
    Ok(user_namespace)
}

/// Returns the number in one field of `/proc/self/status`.
fn status(field: &str) -> Result<u32> {
    const PATH: &str = "/proc/self/status";
    let text = std::fs::read_to_string(PATH).context(PATH)?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| Error::environment(format!("the file {PATH} contains no field {field}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_model::error::ErrorKind;

    #[test]
    fn a_guest_with_several_threads_is_refused() {
        let error = confine(Profile::Guest).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.message().starts_with("cannot restrict a guest whose process has "), "{error}");
    }

    #[test]
    fn the_text_of_a_confinement_names_what_is_missing() {
        let full = Confinement { profile: Profile::Guest, hidden_from_start: true, user_namespace: UserNamespace::Own };
        let text = "only the system calls that a guest needs, protected from other processes since its first instruction, \
                    own user namespace";
        assert_eq!(full.to_string(), text);
        let why = "Operation not permitted".to_owned();
        let less = Confinement {
            profile: Profile::Application,
            hidden_from_start: false,
            user_namespace: UserNamespace::Inherited { why },
        };
        let text = "no system calls that affect other processes, protected from other processes since its start-up code, \
                    no own user namespace: Operation not permitted";
        assert_eq!(less.to_string(), text);
    }
}
