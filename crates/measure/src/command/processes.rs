//! One run of a command: its start, its end, and the end of all processes that it left behind.

use super::Order;
use super::figures::{OUTPUT_BYTES_MAX, Reader, Written, last_line};
use crate::clock::{nanoseconds, now_ns};
use crate::cpu::process::split;
use crate::cpu::stat::{Stat, descends};
use crate::ended_first::EndedFirst;
use crate::sys;
use crate::sys::wait::{Children, Reaped, children, reap};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use rustix::time::Timespec;
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use siga_plan::command::figure::Stream;
use siga_results::record::{CommandRecord, NamedProcesses, ProcessCpu, Usage};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

/// Number of bytes of the command's standard error that are kept, from its end.
const DIAGNOSTIC_BYTES_MAX: usize = 4 << 10;
/// Number of bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Time in which processes that a run left behind may end by themselves.
const GRACE: Duration = Duration::from_millis(100);
/// Time after which siga gives up ending the processes of a command.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// Duration of a tick of `/proc/PID/stat` in nanoseconds. USER_HZ is 100 on every architecture that siga supports.
const TICK_NS: u64 = 10_000_000;
/// Time between two looks at processes that are about to end.
const LOOK: Duration = Duration::from_millis(1);
/// Maximum number of different names of processes. Processes with further names count as [`OTHERS`].
const NAMES_MAX: usize = 200;
/// The name of processes beyond [`NAMES_MAX`].
const OTHERS: &str = "(others)";

/// A run of a command that has begun.
pub(super) struct Started {
    program: String,
    pid: u32,
    descriptor: OwnedFd,
    /// Standard output, if something is read from it, and standard error.
    streams: [Pipe; 2],
    begun_ns: u64,
    begun: SystemTime,
}

/// A pipe to which a command writes.
struct Pipe {
    /// `None` if nothing is read from it, or at the end of the stream.
    end: Option<OwnedFd>,
    /// Whether all of the stream is needed, or only its end.
    all: bool,
    kept: Vec<u8>,
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
    pub(super) fn start(order: &Order, reader: &Reader<'_>) -> Result<Self> {
        let program = order.words.first().map(String::as_str).unwrap_or_default();
        let mut command = Command::new(program);
        command.args(order.words.iter().skip(1)).envs(&order.environment).process_group(0);
        let (output, error) = (reader.needs(Stream::Output), reader.needs(Stream::Error));
        command.stdin(Stdio::null()).stdout(if output { Stdio::piped() } else { Stdio::null() });
        command.stderr(Stdio::piped());
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
        let ended_first = order.conditions.limits.memory_bytes.map(|_| EndedFirst::begin());
        let (begun, begun_ns) = (SystemTime::now(), now_ns());
        let mut child = command.spawn().map_err(|error| cannot_start(program, &error))?;
        drop(ended_first);
        let pid = child.id();
        let pidfd = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pidfd = pidfd.ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        Ok(Self {
            program: program.to_owned(),
            pid,
            descriptor: pidfd.context("cannot watch the command")?,
            streams: [
                Pipe { end: child.stdout.take().map(OwnedFd::from), all: output, kept: Vec::new() },
                Pipe { end: child.stderr.take().map(OwnedFd::from), all: error, kept: Vec::new() },
            ],
            begun_ns,
            begun,
        })
    }

    /// Waits until the command has ended. Returns an error of kind `Incomplete` if it ended in another way than the order says, or takes
    /// longer than its limit, or if its output has no figure. Also returns an error if the coordinator has ended.
    pub(super) fn ends(mut self, order: &Order, reader: &Reader<'_>, watched: bool) -> Result<Ended> {
        let mut stopped_ns = None;
        let ended_ns = loop {
            let passed_ns = now_ns().saturating_sub(self.begun_ns);
            if let (None, Some(stop_ns)) = (stopped_ns, order.stop_ns)
                && passed_ns >= stop_ns
            {
                stopped_ns = Some(now_ns());
                self.stop();
            }
            let Some(left_ns) = order.limit_ns.checked_sub(passed_ns).filter(|&left| left > 0) else {
                let limit = Duration::from_nanos(order.limit_ns).as_secs_f64();
                return Err(Error::incomplete(format!(
                    "the command ran longer than its time limit of {limit} s, so siga ended it"
                ))
                .hint("raise `time_limit_seconds` in the plan, or use --time-limit"));
            };
            let until_stop_ns =
                order.stop_ns.filter(|_| stopped_ns.is_none()).map(|stop_ns| stop_ns.saturating_sub(passed_ns));
            if self.waits(left_ns.min(until_stop_ns.unwrap_or(left_ns)), watched)? {
                break now_ns();
            }
        };
        let (mut record, mut cpu) = (CommandRecord::default(), ProcessCpu::default());
        let (name, status) = collect(self.pid, &mut cpu, &mut record)?;
        let left_behind = leftovers(&mut cpu, &mut record)?;
        self.streams.iter_mut().try_for_each(Pipe::read)?;
        let [Pipe { kept: output, .. }, Pipe { kept: error, .. }] = &self.streams;
        let ended_ns = match (order.stop_ns, stopped_ns) {
            (None, _) => ended_ns,
            // A run that siga ends has no exit status of its own.
            (Some(_), Some(stopped_ns)) => stopped_ns,
            (Some(stop_ns), None) => {
                return Err(too_early(&name, ended_ns.saturating_sub(self.begun_ns), stop_ns, error));
            }
        };
        if stopped_ns.is_none() && status.code() != Some(order.exit_status.into()) {
            return Err(wrong_end(&name, status, order.exit_status, error));
        }
        let elapsed_ns = ended_ns.saturating_sub(self.begun_ns);
        reader.read(&Written { output, error, begun: self.begun, elapsed_ns }, &mut record)?;
        Ok(Ended { elapsed_ns, cpu, record, left_behind })
    }

    /// Waits until the command ends, writes something, or `left_ns` have passed. Returns true if it has ended.
    /// If `watched` is true, returns an error if the coordinator has ended.
    fn waits(&mut self, left_ns: u64, watched: bool) -> Result<bool> {
        let stdin = std::io::stdin();
        let mut polled = vec![PollFd::new(&self.descriptor, PollFlags::IN)];
        polled.extend(watched.then(|| PollFd::new(&stdin, PollFlags::RDHUP | PollFlags::HUP)));
        polled.extend(self.streams.iter().filter_map(|pipe| Some(PollFd::new(pipe.end.as_ref()?, PollFlags::IN))));
        let timeout =
            Timespec::try_from(Duration::from_nanos(left_ns)).context("the time limit of the command is too long")?;
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::environment(format!("cannot wait for the command: {error}"))),
        }
        let seen: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        if seen[0].contains(PollFlags::IN) {
            return Ok(true);
        }
        if watched && seen[1].intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR) {
            return Err(Error::incomplete("the siga process that carries out the run has ended"));
        }
        if seen[1..].iter().any(|seen| !seen.is_empty()) {
            self.streams.iter_mut().try_for_each(Pipe::read)?;
        }
        Ok(false)
    }
}

impl Started {
    /// Returns the name of the program.
    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// Returns the pipes from which the output is read.
    pub(super) fn pipes(&self) -> impl Iterator<Item = &OwnedFd> {
        self.streams.iter().filter_map(|pipe| pipe.end.as_ref())
    }

    /// Reads the output that is available.
    pub(super) fn read(&mut self) -> Result<()> {
        self.streams.iter_mut().try_for_each(Pipe::read)
    }

    /// Returns the output that is kept: standard output and standard error.
    pub(super) fn output(&self) -> [&[u8]; 2] {
        self.streams.each_ref().map(|pipe| pipe.kept.as_slice())
    }

    /// Keeps only the end of the output from now on.
    pub(super) fn forget_output(&mut self) {
        for pipe in &mut self.streams {
            pipe.all = false;
            pipe.kept.clear();
        }
    }

    /// Returns true if the program itself has ended.
    pub(super) fn has_ended(&self) -> Result<bool> {
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec::default())) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Error::environment(format!("cannot check a process of a server: {error}"))),
        }
    }

    /// Removes ended processes of the run, except the program itself, from the process table, and adds what they used.
    pub(super) fn collect_others(&self, cpu: &mut ProcessCpu, record: &mut CommandRecord) -> Result<()> {
        loop {
            match children().context("cannot wait for processes of a server")? {
                Children::Ended(pid) if pid != self.pid => drop(collect(pid, cpu, record)?),
                Children::Ended(_) | Children::Running | Children::None => return Ok(()),
            }
        }
    }

    /// Asks all processes of the run to end.
    pub(super) fn stop(&self) {
        let group = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // The command has ended in between, or it has made its own process group: then the limit ends it.
        let _ = group.map(|group| kill_process_group(group, Signal::TERM));
    }
}

impl Pipe {
    /// Reads what is available, and keeps all of it, or the end.
    fn read(&mut self) -> Result<()> {
        let mut chunk = [0; CHUNK_BYTES];
        while let Some(end) = &self.end
            && poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&Timespec::default())) == Ok(1)
        {
            match rustix::io::read(end, &mut chunk) {
                Ok(0) => self.end = None,
                Ok(count) => self.keep(&chunk[..count])?,
                Err(Errno::INTR) => {}
                Err(_) => self.end = None,
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<()> {
        self.kept.extend_from_slice(bytes);
        if !self.all {
            let surplus = self.kept.len().saturating_sub(DIAGNOSTIC_BYTES_MAX);
            self.kept.drain(..surplus);
        } else if self.kept.len() > OUTPUT_BYTES_MAX {
            return Err(Error::incomplete(format!(
                "the command wrote more than {} MB of output in one execution",
                OUTPUT_BYTES_MAX >> 20
            ))
            .hint("let the command print less, because siga keeps its output to read figures from it"));
        }
        Ok(())
    }
}

/// Adds what all living descendants of this process have used so far. The CPU time of a process is exact; that of the ended children for
/// which it waited is known in ticks only.
pub(super) fn used_by_all(cpu: &mut ProcessCpu, record: &mut CommandRecord) {
    for pid in descendants() {
        let (Some(stat), Ok(run_ns)) = (Stat::of(pid), sys::process_cpu_ns(pid)) else { continue };
        let own = split(run_ns, stat.user, stat.system);
        let of_children = stat.children.saturating_mul(TICK_NS);
        let of_children = ProcessCpu { run_ns: of_children, user_ns: of_children / 2 };
        let name = name(Some(&stat));
        add(record, name.clone(), NamedProcesses { count: 1, cpu: own });
        *cpu = cpu.plus(own);
        if of_children.run_ns > 0 {
            add(record, format!("{name}: its children"), NamedProcesses { count: 0, cpu: of_children });
            *cpu = cpu.plus(of_children);
        }
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

fn cannot_start(program: &str, error: &std::io::Error) -> Error {
    let hint = if error.kind() == ErrorKind::NotFound {
        "install the program, or use its full path; siga looks for programs in the directories of PATH"
    } else if error.kind() == ErrorKind::PermissionDenied {
        "make the file of the program executable (`chmod +x`)"
    } else {
        "start the program by hand to see the reason"
    };
    Error::environment(format!("cannot start {program}: {error}")).hint(hint)
}

fn too_early(name: &str, elapsed_ns: u64, stop_ns: u64, diagnostic: &[u8]) -> Error {
    let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
    let last = last_line(diagnostic);
    let last = if last.is_empty() { last } else { format!(": {last}") };
    Error::incomplete(format!(
        "{name} ended after {:.3} s, but `stop_after_seconds` is {} s{last}",
        seconds(elapsed_ns),
        seconds(stop_ns)
    ))
    .hint("remove `stop_after_seconds` if the command ends by itself")
}

fn wrong_end(name: &str, status: ExitStatus, wanted: u8, diagnostic: &[u8]) -> Error {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}, not {wanted}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    };
    let last = Some(last_line(diagnostic)).filter(|line| !line.is_empty());
    let last = last.map(|line| format!(": {line}")).unwrap_or_default();
    Error::incomplete(format!("{name} {how}{last}"))
        .hint("start the command by hand to see the reason; if this status is correct, set `exit_status` in the plan")
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
