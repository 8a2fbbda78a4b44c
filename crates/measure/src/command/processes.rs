//! One run of a command: its start, its end, and the end of all processes that it left behind.

use super::Order;
use crate::clock::{nanoseconds, now_ns};
use crate::cpu::process::split;
use crate::cpu::stat::{Stat, descends};
use crate::sys;
use crate::sys::wait::{Children, Reaped, children, reap};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::time::Timespec;
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use siga_results::record::{CommandRecord, NamedProcesses, ProcessCpu, Usage};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Number of bytes of the command's standard error that are kept, from its end.
const DIAGNOSTIC_BYTES_MAX: usize = 4 << 10;
/// Time in which processes that a run left behind may end by themselves.
const GRACE: Duration = Duration::from_millis(100);
/// Time after which siga gives up ending the processes of a command.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// Time between two looks at processes that are about to end.
const LOOK: Duration = Duration::from_millis(1);
/// Maximum number of different names of processes. Processes with further names count as [`OTHERS`].
const NAMES_MAX: usize = 200;
/// The name of processes beyond [`NAMES_MAX`].
const OTHERS: &str = "(others)";

/// A run of a command that has begun.
pub(super) struct Started {
    pid: u32,
    descriptor: OwnedFd,
    diagnostics: Option<ChildStderr>,
    begun_ns: u64,
}

/// A run of a command that has ended with the expected exit status.
pub(super) struct Ended {
    /// Time from the start of the program to its end.
    pub(super) elapsed_ns: u64,
    /// CPU time of all processes of the run.
    pub(super) cpu: ProcessCpu,
    pub(super) record: CommandRecord,
    /// Names of processes that did not end by themselves.
    pub(super) left_behind: Vec<String>,
}

impl Started {
    /// Starts the command. Returns an error of kind `Environment` if the program does not exist or cannot be executed.
    pub(super) fn start(order: &Order) -> Result<Self> {
        let program = order.words.first().map(String::as_str).unwrap_or_default();
        let mut command = Command::new(program);
        command.args(order.words.iter().skip(1)).envs(&order.environment).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(directory) = &order.directory {
            if !std::path::Path::new(directory).is_dir() {
                return Err(Error::environment(format!("there is no directory {directory}"))
                    .hint("create this directory, or change `directory` in the plan"));
            }
            command.current_dir(directory);
        }
        if let Some(input) = &order.input {
            let file = File::open(input).map_err(|error| {
                Error::environment(format!("cannot read the input {input}: {error}")).hint("change `input` in the plan")
            })?;
            command.stdin(file);
        }
        let begun_ns = now_ns();
        let mut child = command.spawn().map_err(|error| cannot_start(program, &error))?;
        let pid = child.id();
        let pidfd = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pidfd = pidfd.ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        Ok(Self {
            pid,
            descriptor: pidfd.context("cannot watch the command")?,
            diagnostics: child.stderr.take(),
            begun_ns,
        })
    }

    /// Waits until the command has ended. Returns an error of kind `Incomplete` if it ended in another way than the order says, or takes
    /// longer than its limit. Also returns an error if the coordinator has ended.
    pub(super) fn ends(mut self, order: &Order) -> Result<Ended> {
        let mut diagnostic = Vec::new();
        let ended_ns = loop {
            let passed_ns = now_ns().saturating_sub(self.begun_ns);
            let Some(left_ns) = order.limit_ns.checked_sub(passed_ns).filter(|&left| left > 0) else {
                let limit = Duration::from_nanos(order.limit_ns).as_secs_f64();
                return Err(Error::incomplete(format!(
                    "a run took longer than its limit of {limit} s, and siga ended it"
                ))
                .hint("raise `time_limit_seconds` of the command, or --time-limit"));
            };
            if self.waits(left_ns, &mut diagnostic)? {
                break now_ns();
            }
        };
        let (mut record, mut cpu) = (CommandRecord::default(), ProcessCpu::default());
        let (name, status) = collect(self.pid, &mut cpu, &mut record)?;
        let left_behind = leftovers(&mut cpu, &mut record)?;
        if let Some(pipe) = &mut self.diagnostics {
            read_available(pipe, &mut diagnostic);
        }
        if status.code() != Some(order.exit_status.into()) {
            return Err(wrong_end(&name, status, order.exit_status, &diagnostic));
        }
        Ok(Ended { elapsed_ns: ended_ns.saturating_sub(self.begun_ns), cpu, record, left_behind })
    }

    /// Waits until the command ends, writes to standard error, or `left_ns` have passed. Returns true if it has ended.
    fn waits(&mut self, left_ns: u64, diagnostic: &mut Vec<u8>) -> Result<bool> {
        let stdin = std::io::stdin();
        let mut watched =
            vec![PollFd::new(&self.descriptor, PollFlags::IN), PollFd::new(&stdin, PollFlags::RDHUP | PollFlags::HUP)];
        watched.extend(self.diagnostics.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let timeout = Timespec::try_from(Duration::from_nanos(left_ns)).context("the timeout is too long")?;
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::environment(format!("cannot wait for the command: {error}"))),
        }
        let seen: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
        if seen[0].contains(PollFlags::IN) {
            return Ok(true);
        }
        if seen[1].intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR) {
            return Err(Error::incomplete("the coordinator has ended"));
        }
        if seen.get(2).is_some_and(|seen| !seen.is_empty())
            && let Some(pipe) = &mut self.diagnostics
            && !read_available(pipe, diagnostic)
        {
            self.diagnostics = None;
        }
        Ok(false)
    }
}

/// Ends all processes that this process started, and those that they left behind. Their CPU time is not counted.
pub(super) fn end_all() {
    // If a process cannot be read, this process has no way to report it: the outcome of the order is already known.
    let _ = end_rest(&mut ProcessCpu::default(), &mut CommandRecord::default());
}

/// Waits for the processes that a run left behind, and ends those that do not end by themselves. Returns the names of the latter.
fn leftovers(cpu: &mut ProcessCpu, record: &mut CommandRecord) -> Result<Vec<String>> {
    let deadline = now_ns().saturating_add(nanoseconds(GRACE));
    loop {
        match children().context("cannot wait for processes of the command")? {
            Children::None => return Ok(Vec::new()),
            Children::Ended(pid) => drop(collect(pid, cpu, record)?),
            Children::Running if now_ns() < deadline => std::thread::sleep(LOOK),
            Children::Running => break,
        }
    }
    end_rest(cpu, record)
}

/// Kills all children of this process, and what they leave behind. Returns the names of the killed processes.
fn end_rest(cpu: &mut ProcessCpu, record: &mut CommandRecord) -> Result<Vec<String>> {
    let deadline = now_ns().saturating_add(nanoseconds(END_TIME_MAX));
    let mut killed: BTreeMap<u32, String> = BTreeMap::new();
    loop {
        match children().context("cannot wait for processes of the command")? {
            Children::None => return Ok(killed.into_values().collect()),
            Children::Ended(pid) => drop(collect(pid, cpu, record)?),
            Children::Running if now_ns() >= deadline => {
                let names: Vec<&str> = killed.values().map(String::as_str).collect();
                return Err(Error::environment(format!("cannot end processes of the command: {}", names.join(", "))));
            }
            Children::Running => {
                for pid in descendants() {
                    killed.entry(pid).or_insert_with(|| name(Stat::of(pid).as_ref()));
                    let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
                    if let Some(target) = target {
                        // The process may have ended in between.
                        let _ = kill_process(target, Signal::KILL);
                    }
                }
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// Returns the ids of all descendants of this process.
fn descendants() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: BTreeMap<u32, u32> = pids.filter_map(|pid| Some((pid, Stat::of(pid)?.parent))).collect();
    let own = std::process::id();
    let is_descendant =
        |&pid: &u32| pid != own && descends(pid, parents.len(), |pid| parents.get(&pid).copied(), |pid| pid == own);
    parents.keys().copied().filter(is_descendant).collect()
}

/// Removes an ended child from the process table, and adds what it used. Returns its name, and how it ended.
///
/// The kernel gives the CPU time of the child together with that of the descendants for which it waited. The exact CPU time of the child
/// alone is known while it is still in the process table, so the rest is that of these descendants.
fn collect(pid: u32, cpu: &mut ProcessCpu, record: &mut CommandRecord) -> Result<(String, ExitStatus)> {
    let (stat, own_ns) = (Stat::of(pid), sys::process_cpu_ns(pid).ok());
    let name = name(stat.as_ref());
    let ticks = stat.unwrap_or_default();
    let Reaped { status, user_ns, system_ns, usage } = reap(pid).context("cannot wait for the command")?;
    let all = ProcessCpu { run_ns: user_ns.saturating_add(system_ns), user_ns };
    *cpu = cpu.plus(all);
    let own = match own_ns {
        // The kernel has counted no tick for descendants, so all of the time is the child's own.
        None => all,
        Some(_) if ticks.children == 0 => all,
        Some(run_ns) => {
            let own = split(run_ns.min(all.run_ns), ticks.user, ticks.system);
            ProcessCpu { user_ns: own.user_ns.min(all.user_ns), ..own }
        }
    };
    add(record, name.clone(), NamedProcesses { count: 1, cpu: own });
    let rest = all.since(own);
    if rest.run_ns > 0 {
        add(record, format!("{name}: its children"), NamedProcesses { count: 0, cpu: rest });
    }
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let resident_kb = count(usage.ru_maxrss);
    record.usage = record.usage.plus(Usage {
        resident_bytes_max: if resident_kb > own_resident_kb() { resident_kb.saturating_mul(1024) } else { 0 },
        faults_minor: count(usage.ru_minflt),
        faults_major: count(usage.ru_majflt),
        switches_voluntary: count(usage.ru_nvcsw),
        switches_involuntary: count(usage.ru_nivcsw),
        bytes_read: count(usage.ru_inblock).saturating_mul(512),
        bytes_written: count(usage.ru_oublock).saturating_mul(512),
    });
    Ok((name, status))
}

/// Returns the largest resident memory of this process so far, in kilobytes.
fn own_resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(u64::MAX)
}

fn add(record: &mut CommandRecord, name: String, used: NamedProcesses) {
    let is_known = record.processes.contains_key(&name) || record.processes.len() < NAMES_MAX;
    record.add_processes(if is_known { name } else { OTHERS.to_owned() }, used);
}

/// Returns the name of a process for people; "(unknown)" if it has ended.
fn name(stat: Option<&Stat>) -> String {
    stat.map_or_else(|| "(unknown)".to_owned(), |stat| text::name(&stat.name))
}

/// Reads what is available from the command's standard error, and keeps the end of it. Returns false at the end of the input.
fn read_available(pipe: &mut ChildStderr, kept: &mut Vec<u8>) -> bool {
    let mut chunk = [0; DIAGNOSTIC_BYTES_MAX];
    while poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], Some(&Timespec::default())) == Ok(1) {
        match pipe.read(&mut chunk) {
            Ok(0) => return false,
            Ok(count) => {
                kept.extend_from_slice(&chunk[..count]);
                let surplus = kept.len().saturating_sub(DIAGNOSTIC_BYTES_MAX);
                kept.drain(..surplus);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

fn cannot_start(program: &str, error: &std::io::Error) -> Error {
    let hint = if error.kind() == ErrorKind::NotFound {
        "install it, or give its path; siga looks for it in the directories of PATH"
    } else if error.kind() == ErrorKind::PermissionDenied {
        "its file must be executable (`chmod +x`)"
    } else {
        "start it by hand to see why"
    };
    Error::environment(format!("cannot start {program}: {error}")).hint(hint)
}

fn wrong_end(name: &str, status: ExitStatus, wanted: u8, diagnostic: &[u8]) -> Error {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}, not {wanted}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    };
    let said = String::from_utf8_lossy(diagnostic);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let last = last.map(|line| format!(": {}", text::name(&text::cut(line.to_owned(), 300)))).unwrap_or_default();
    Error::incomplete(format!("{name} {how}{last}"))
        .hint("start the command by hand to see why; `exit_status` in the plan expects another status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_time_is_divided_in_proportion_to_ticks() {
        assert_eq!(split(1_000, 1, 3).user_ns, 250);
        assert_eq!(split(1_000, 0, 0).user_ns, 0);
    }
}
