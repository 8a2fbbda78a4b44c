//! Prepares a process for its place, that is, where the client or server of a path runs. Moves the process into namespaces,
//! restricts its CPUs and sets its limits. Also reads addresses and protocol counters of the process's network namespace.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use siga_model::error::{Error, IoContext, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Moves this process into the network namespace `net`. If the kernel does not permit this, first enters the user namespace
/// `user`.
///
/// # Errors
/// Returns an error of kind `Environment` if a namespace does not exist, or if this process may not enter it.
pub fn enter(net: Option<&Path>, user: Option<&Path>) -> Result<()> {
    let Some(net) = net else { return Ok(()) };
    let hint = "run siga as root, or as the owner of the user namespace to which this namespace belongs";
    let open = |path: &Path| {
        let refused = |error| Error::environment(format!("cannot open {}: {error}", path.display())).hint(hint);
        std::fs::File::open(path).map_err(refused)
    };
    let refused = |error: Errno| Error::environment(format!("cannot enter {}: {error}", net.display())).hint(hint);
    let file = match (open(net), user) {
        (Err(_), Some(user)) => {
            enter_user(&open(user)?).map_err(refused)?;
            open(net)?
        }
        (opened, _) => opened?,
    };
    match move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) if user.is_some() => {}
        Err(error) => return Err(refused(error)),
    }
    if let Some(user) = user {
        enter_user(&open(user)?).map_err(refused)?;
    }
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(refused)
}

fn enter_user(user: &std::fs::File) -> std::result::Result<(), Errno> {
    move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
}

/// Requests that the kernel kills this process when its parent dies. A process that enters a user namespace loses this request,
/// so call this function afterwards.
///
/// # Errors
/// Returns an error of kind `Incomplete` if the parent has already ended.
pub fn die_with_parent() -> Result<()> {
    let parent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot arrange that this process ends with its parent process")?;
    if rustix::process::getppid() != parent || parent.is_some_and(Pid::is_init) {
        return Err(Error::incomplete("the siga process that started this process has ended"));
    }
    Ok(())
}

/// Raises the limit of open files to the highest value that this process may set.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let raised = Rlimit { current: most.or(limit.maximum), maximum: most.or(limit.maximum) };
    if setrlimit(Resource::Nofile, raised).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Checks that this process may open the number of files that its share of the pairs needs.
///
/// # Errors
/// Returns an error of kind `Environment` if the limit of open files is too low.
pub fn need_descriptors(pairs: u32, processes: u32) -> Result<()> {
    let sockets = if processes > 1 { 2 * u64::from(processes) } else { u64::from(pairs) };
    let need = sockets + 64;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < need => {
            let limit_name = "the limit of open files";
            Err(Error::environment(format!("{pairs} pairs need {need} file descriptors, but {limit_name} is {limit}"))
                .hint(format!("raise the limit with `ulimit -n {need}`, or use fewer pairs (--clients)")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Restricts this thread, and the threads and processes that it starts later, to the CPUs in `cpus`. An empty list changes
/// nothing.
///
/// # Errors
/// Returns an error of kind `Environment` if a CPU does not exist, or if this process may not use it.
pub fn stay_on(cpus: &[u32]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    restrict(None, cpus)
}

/// Restricts all threads of a process to the CPUs in `cpus`. An empty list changes nothing.
///
/// # Errors
/// Returns the same errors as [`stay_on`], and one of kind `Environment` if the process has ended.
pub(crate) fn keep_on(pid: u32, cpus: &[u32]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut kept = BTreeSet::new();
    // A thread may start another one before it is restricted. So look again until there is no new thread.
    loop {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).context(format!("cannot read process {pid}"))?;
        let ids = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse::<i32>().ok());
        let new: Vec<i32> = ids.filter(|id| kept.insert(*id)).collect();
        if new.is_empty() {
            return Ok(());
        }
        new.into_iter().filter_map(Pid::from_raw).try_for_each(|id| restrict(Some(id), cpus))?;
    }
}

/// Restricts a thread, or this one, to CPUs. A thread that has ended is no error.
fn restrict(thread: Option<Pid>, cpus: &[u32]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        match usize::try_from(cpu) {
            Ok(cpu) if cpu < CpuSet::MAX_CPU => set.set(cpu),
            Ok(_) | Err(_) => return Err(Error::environment(format!("there is no CPU {cpu}"))),
        }
    }
    match sched_setaffinity(thread, &set) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) if thread.is_some() => Ok(()),
        Err(error) => Err(Error::environment(format!("cannot run on CPUs {cpus:?}: {error}"))
            .hint("`nproc --all` prints the number of CPUs; CPU numbers begin at 0")),
    }
}

/// Returns a copy of a descriptor that this process inherited from the process that started it.
///
/// # Errors
/// Returns an error of kind `Usage` if the descriptor is not open.
pub fn inherited_descriptor(number: i32) -> Result<OwnedFd> {
    // The descriptor can be that of a BPF map, which cannot be reopened through a pidfd or /proc. So duplicate the descriptor.
    // The original stays open, so that worker processes inherit it too.
    crate::sys::duplicate_descriptor(number)
        .map_err(|error| Error::usage(format!("cannot use descriptor {number}, which siga inherited: {error}")))
}

/// Returns the addresses of this network namespace that other hosts can reach. If this process was started over ssh, the
/// address to which the ssh client connected comes first. Then come the other IPv4 addresses, then the IPv6 addresses.
pub fn addresses() -> Vec<IpAddr> {
    let ssh = std::env::var("SSH_CONNECTION").ok();
    let ssh = ssh.as_deref().and_then(|text| text.split(' ').nth(2)?.parse().ok());
    let four = std::fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default();
    let six = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let mut all: Vec<IpAddr> = ssh.into_iter().collect();
    for address in
        parse_fib_trie(&four).into_iter().map(IpAddr::V4).chain(parse_if_inet6(&six).into_iter().map(IpAddr::V6))
    {
        if !address.is_loopback() && !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// Parses the IPv4 addresses of this namespace from `fib_trie`. The address in a line `|-- ADDRESS` belongs to this namespace
/// if the line `/32 host LOCAL` follows.
fn parse_fib_trie(text: &str) -> Vec<Ipv4Addr> {
    let mut last = None;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(address) = line.trim().strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.trim() == "/32 host LOCAL"
            && let Some(address) = last
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// Parses global IPv6 addresses from `if_inet6`. A line contains the address as 32 hex digits, the interface index, the prefix
/// length, the scope (00: global), flags and the interface name.
fn parse_if_inet6(text: &str) -> Vec<Ipv6Addr> {
    let global = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        (words.nth(2)? == "00").then_some(Ipv6Addr::from_bits(address))
    };
    text.lines().filter_map(global).collect()
}

/// Returns the protocol counters of the network namespace. A key consists of the group and the name of a counter, for example
/// "Tcp RetransSegs".
pub fn protocol_counters() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for file in ["snmp", "netstat"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let (mut names, mut values) = (pair[0].split_whitespace(), pair[1].split_whitespace());
            let group = names.next().unwrap_or_default().trim_end_matches(':').to_owned();
            values.next();
            for (name, value) in names.zip(values) {
                if let Ok(value) = value.parse() {
                    all.insert(format!("{group} {name}"), value);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_found_in_the_kernels_tables() {
        let trie = "Main:\n  |-- 127.0.0.1\n     /32 host LOCAL\n  |-- 198.18.1.0\n     /24 link UNICAST\n  |-- 198.18.1.1\n     /32 host LOCAL\n";
        assert_eq!(parse_fib_trie(trie), [Ipv4Addr::LOCALHOST, Ipv4Addr::new(198, 18, 1, 1)]);
        let six =
            "fd000000000000000000000000000001 02 40 00 80 eth0\nfe800000000000000000000000000001 02 40 20 80 eth0\n";
        assert_eq!(parse_if_inet6(six), ["fd00::1".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn an_error_for_too_few_descriptors_names_the_number_needed() {
        let error = need_descriptors(u32::MAX, 1).unwrap_err();
        assert_eq!(error.exit_status(), 3);
        assert!(error.to_string().contains("ulimit -n 4294967359"), "{error}");
    }
}
