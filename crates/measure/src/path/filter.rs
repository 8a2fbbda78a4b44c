//! The packet filter of a level (a named set of settings to measure): a ruleset in the language of nft. siga loads the ruleset
//! into one namespace of the path and reads it back.
//!
//! siga uses the program `nft` for both. The namespace holder starts nft as a child process in the namespace. The kernel kills
//! nft if the holder ends, and siga limits nft's time and output. Loading fails if a part of the ruleset is not loaded, or if
//! no packet of the path would pass one of its chains.

use super::namespace::{Node, NodeKind};
use super::network::Network;
use crate::limits;
use crate::sys::end_with_parent;
use rustix::fs::{Access, MemfdFlags, access, memfd_create};
use serde_json::Value;
use siga_model::error::{Error, IoContext, Result};
use siga_plan::path::PathKind;
use siga_plan::spec::PathSpec;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Directories in which siga searches for nft in addition to those in PATH. They contain programs for administrators, and a
/// user's PATH often lacks them.
const ALSO_SEARCHED: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Pause between two checks whether nft has ended. For comparison: nft needs ten milliseconds for a hundred rules.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of lines of nft's error output that siga copies into its own error. The first lines name the cause.
const DIAGNOSTIC_LINES_MAX: usize = 3;
/// Maximum length in characters of a line of nft's error output in siga's own error.
const DIAGNOSTIC_LETTERS_MAX: usize = 160;

/// Arguments with which nft loads the ruleset from standard input.
const LOAD: [&str; 3] = ["-e", "-f", "-"];
/// Arguments with which nft lists the loaded rules as JSON.
const LIST: [&str; 4] = ["-s", "-j", "list", "ruleset"];

/// Returns the commands that load a ruleset and read it back.
pub(crate) fn commands() -> [Command; 2] {
    let program = Nft::find().map_or_else(|_| PathBuf::from("nft"), |nft| nft.program);
    [&LOAD[..], &LIST[..]].map(|arguments| {
        let mut command = Command::new(&program);
        command.args(arguments);
        command
    })
}

/// Runs nft and returns the version that it prints. Returns an error of kind `Environment` if nft is not installed or does not run.
pub(crate) fn version() -> Result<String> {
    let mut nft = Nft::find()?;
    let ran = nft.run(&["--version"], "")?;
    if !ran.status.success() {
        return Err(Error::environment(format!("nft: {}", ran.diagnostic())).hint(INSTALL));
    }
    Ok(clean(&ran.said).lines().next().unwrap_or_default().trim().to_owned())
}

/// Loads the ruleset of the level, if the level has one. Returns a summary of the rules that the kernel lists afterwards. The
/// key of the map names the namespace.
pub(super) fn load(network: &mut Network, spec: &PathSpec) -> Result<BTreeMap<String, String>> {
    let Some(ruleset) = &spec.level.nftables else { return Ok(BTreeMap::new()) };
    let node = node(spec.kind);
    let listed = apply(network.node(node)?, ruleset).and_then(|listing| {
        listing.meets(node, spec.ipv6)?;
        Ok(listing)
    });
    let listed = listed.map_err(|error| error.at(format!("level {}", spec.level.name)))?;
    Ok([(format!("{} nftables", node.name()), listed.summary())].into())
}

/// Returns how many packets the namespace dropped because its connection tracking table was full. Returns 0 if the kernel
/// does not report this.
pub(super) fn dropped(node: &Node) -> Result<u64> {
    node.enter()?;
    Ok(std::fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack").map_or(0, |text| dropped_in(&text)))
}

/// Adds up the column `drop` of /proc/net/stat/nf_conntrack. This table has one line per CPU, with hexadecimal numbers.
fn dropped_in(table: &str) -> u64 {
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let column = lines.next().and_then(|names| names.iter().position(|name| *name == "drop"));
    let Some(column) = column else { return 0 };
    lines.filter_map(|line| u64::from_str_radix(line.get(column)?, 16).ok()).sum()
}

/// Returns the namespace into which the ruleset of a path is loaded: the router's if the path has an IP router, otherwise the
/// server's. In the namespace of a bridge, a macvlan parent or an ipvlan parent, the ruleset would have no effect, because frames
/// do not pass the IP layer there.
fn node(kind: PathKind) -> NodeKind {
    match kind {
        PathKind::VethRouted => NodeKind::Router,
        PathKind::Loopback | PathKind::Unix | PathKind::SmcLoopback => NodeKind::Shared,
        PathKind::Veth
        | PathKind::Bridge
        | PathKind::Macvlan
        | PathKind::Bond
        | PathKind::Vlan
        | PathKind::Ipvlan
        | PathKind::Sockmap => NodeKind::Server,
    }
}

/// Returns the names of the netfilter hooks that packets of the workload pass in a namespace.
fn hooks(node: NodeKind) -> &'static [&'static str] {
    match node {
        NodeKind::Router => &["prerouting", "forward", "postrouting", "ingress", "egress"],
        NodeKind::Client | NodeKind::Server | NodeKind::Shared => {
            &["prerouting", "input", "output", "postrouting", "ingress", "egress"]
        }
    }
}

fn apply(node: &Node, ruleset: &str) -> Result<Listing> {
    let mut nft = Nft::find()?;
    node.enter_surely()?;
    let loading = nft.run(&LOAD, ruleset)?;
    if !loading.status.success() {
        return Err(refused(node, &loading.diagnostic()));
    }
    node.enter_surely()?;
    let reading = nft.run(&LIST, "")?;
    if !reading.status.success() {
        return Err(Error::environment(format!("nft cannot list its rules: {}", reading.diagnostic()))
            .hint("siga reads the rules as JSON; install an nft with JSON support"));
    }
    let listing = Listing::parse(&reading.said)?;
    let loaded = loaded(&String::from_utf8_lossy(&loading.said));
    if listing.rules != loaded {
        return Err(Error::environment(format!("nft loaded {loaded} rules, but {} rules are active", listing.rules))
            .hint("remove rules that the ruleset itself later replaces or flushes"));
    }
    Ok(listing)
}

/// Returns the number of rules that exist after loading, computed from the changes that nft printed (`-e`). Does not count
/// rules of anonymous chains, because nft later lists them as part of the rule that contains the chain.
fn loaded(echo: &str) -> usize {
    let rules = |what: &str| {
        let lines = echo.lines().filter_map(|line| line.strip_prefix(what));
        lines.filter(|rule| rule.split(' ').nth(2).is_some_and(|chain| !chain.starts_with("__chain"))).count()
    };
    (rules("add rule ") + rules("insert rule ")).saturating_sub(rules("delete rule "))
}

fn refused(node: &Node, diagnostic: &str) -> Error {
    let hint = if diagnostic.contains("Operation not permitted") {
        "run siga as root, or where unprivileged user namespaces are allowed (in a container: --privileged)"
    } else if diagnostic.contains("Message too long") {
        "without root, the kernel accepts about 500 rules at once; run siga as root, or put addresses and ports into \
            sets"
    } else if ["Could not process", "not supported", "netlink"].iter().any(|text| diagnostic.contains(text)) {
        "this kernel lacks a feature that the rules need; try `modprobe nf_tables`, or remove these rules from the \
            level"
    } else {
        "`nft -c -f FILE` checks the rules without loading them"
    };
    Error::environment(format!("nft cannot load the rules in the {} namespace: {diagnostic}", node.kind.name()))
        .hint(hint)
}

/// The rules and chains that the kernel lists.
#[derive(Debug)]
struct Listing {
    rules: usize,
    chains: usize,
    /// Address family and hook of each chain that is attached to a hook.
    hooked: Vec<(String, String)>,
    /// Hash of the listing without handles and versions, which differ each time a ruleset is loaded or with another version of
    /// nft.
    hash: u64,
}

impl Listing {
    fn parse(json: &[u8]) -> Result<Self> {
        let malformed = || Error::environment("nft lists its rules in an unknown format");
        let all: Value = serde_json::from_slice(json).map_err(|_| malformed())?;
        let all = all.get("nftables").and_then(Value::as_array).ok_or_else(malformed)?;
        let mut listing = Self { rules: 0, chains: 0, hooked: Vec::new(), hash: FNV_BASIS };
        for (kind, value) in all.iter().filter_map(Value::as_object).flatten().filter(|(kind, _)| *kind != "metainfo") {
            let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            listing.rules += usize::from(kind == "rule");
            listing.chains += usize::from(kind == "chain");
            if kind == "chain" && value.get("hook").is_some() {
                listing.hooked.push((text("family"), text("hook")));
            }
            let mut value = value.clone();
            if let Some(fields) = value.as_object_mut() {
                fields.remove("handle");
            }
            listing.hash = fnv(listing.hash, format!("{kind} {value}\n").as_bytes());
        }
        Ok(listing)
    }

    /// Checks that packets of the path pass at least one of the listed chains.
    fn meets(&self, node: NodeKind, ipv6: bool) -> Result<()> {
        let families = ["inet", "netdev", if ipv6 { "ip6" } else { "ip" }];
        let passed = |(family, hook): &(String, String)| {
            families.contains(&family.as_str()) && hooks(node).contains(&hook.as_str())
        };
        if self.hooked.iter().any(passed) {
            return Ok(());
        }
        Err(Error::usage(format!("the ruleset has no chain that processes packets in the {} namespace", node.name()))
            .hint(format!("packets in this namespace go only through chains with the hooks {} and the families {}: add one of them", hooks(node).join(", "), families.join(", "))))
    }

    fn summary(&self) -> String {
        format!("rules={} chains={} hash={:016x}", self.rules, self.chains, self.hash)
    }
}

/// Adds `bytes` to a 64-bit hash by Fowler, Noll and Vo, variant 1a. The algorithm is fixed, so that different versions of siga
/// compute the same hash of a ruleset.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

const INSTALL: &str = "install nftables (`apt-get install nftables`), or remove `nftables` from the level";

/// The program nft, and the deadline for all its runs together.
struct Nft {
    program: PathBuf,
    deadline: Instant,
}

/// The outcome of one run of nft.
struct Ran {
    status: ExitStatus,
    said: Vec<u8>,
    errors: Vec<u8>,
}

impl Nft {
    fn find() -> Result<Self> {
        let searched = std::env::var_os("PATH").unwrap_or_default();
        let all: Vec<_> = std::env::split_paths(&searched).chain(ALSO_SEARCHED.map(PathBuf::from)).collect();
        // Skip relative directories in PATH. They depend on the current directory, which could belong to another user.
        let mut programs =
            all.iter().filter(|directory| directory.is_absolute()).map(|directory| directory.join("nft"));
        let found = programs.find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok());
        let program = found.ok_or_else(|| {
            Error::environment("the program nft, which loads rulesets (nftables), is not installed").hint(INSTALL)
        })?;
        Ok(Self { program, deadline: Instant::now() + limits::RULESET_TIME_MAX })
    }

    /// Runs nft in the network namespace of the calling thread. Input and output are memory files, because with pipes siga
    /// would need a thread that reads and writes while nft runs.
    fn run(&mut self, arguments: &[&str], input: &str) -> Result<Ran> {
        let (mut given, mut said, mut errors) = (memory()?, memory()?, memory()?);
        given.write_all(input.as_bytes()).and_then(|()| given.rewind()).context("cannot pass the rules to nft")?;
        let mut command = Command::new(&self.program);
        command.args(arguments).env("LC_ALL", "C").stdin(given);
        command.stdout(again(&said)?).stderr(again(&errors)?);
        end_with_parent(&mut command);
        let child = command.spawn().map_err(|error| {
            Error::environment(format!("cannot start the program {}: {error}", self.program.display())).hint(INSTALL)
        })?;
        let status = self.wait(child, &[&said, &errors])?;
        Ok(Ran { status, said: content(&mut said)?, errors: content(&mut errors)? })
    }

    fn wait(&self, mut child: Child, outputs: &[&File]) -> Result<ExitStatus> {
        let ended = loop {
            let bytes: u64 = outputs.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
            match child.try_wait() {
                Ok(Some(status)) if bytes <= limits::RULESET_ANSWER_BYTES_MAX => return Ok(status),
                Ok(None) if Instant::now() > self.deadline => {
                    break format!("nft did not end within {:?}", limits::RULESET_TIME_MAX);
                }
                Ok(_) if bytes > limits::RULESET_ANSWER_BYTES_MAX => {
                    break format!("nft wrote too much output ({bytes} bytes)");
                }
                Ok(_) => thread::sleep(PAUSE),
                Err(error) => break format!("cannot wait for nft: {error}"),
            }
        };
        // `kill` fails only if the process has already ended.
        let _gone = child.kill();
        let _status = child.wait();
        Err(Error::environment(ended).hint("use fewer rules, and remove commands that list rules or wait for events"))
    }
}

impl Ran {
    /// Returns the first lines of nft's standard error, joined into one line.
    fn diagnostic(&self) -> String {
        let text = clean(&self.errors).replace("/dev/stdin:", "line ");
        let is_pointer = |line: &str| line.chars().all(|letter| matches!(letter, ' ' | '^' | '~'));
        let lines: Vec<String> = text
            .lines()
            .map(str::trim)
            .filter(|line| !is_pointer(line))
            .take(DIAGNOSTIC_LINES_MAX)
            .map(|line| line.chars().take(DIAGNOSTIC_LETTERS_MAX).collect())
            .collect();
        if lines.is_empty() { format!("{}", self.status) } else { lines.join("; ") }
    }
}

/// Returns `bytes` as text, with a space for each control character except line feeds.
fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { ' ' } else { letter }).collect()
}

fn memory() -> Result<File> {
    Ok(File::from(
        memfd_create("siga-nft", MemfdFlags::CLOEXEC).context("cannot create a file in memory for the input of nft")?,
    ))
}

fn again(file: &File) -> Result<File> {
    file.try_clone().context("cannot pass a file to nft")
}

fn content(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).context("cannot read nft's output")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(json: &str) -> Listing {
        Listing::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn a_listing_is_hashed_without_handles_and_versions() {
        let rule = |handle: u32, port: u32| {
            format!(
                r#"{{"nftables": [{{"metainfo": {{"version": "1.0.{handle}"}}}},
                {{"table": {{"family": "inet", "name": "t", "handle": {handle}}}}},
                {{"chain": {{"family": "inet", "table": "t", "name": "c", "handle": {handle}, "hook": "forward"}}}},
                {{"rule": {{"family": "inet", "table": "t", "chain": "c", "handle": {handle}, "expr": [{port}]}}}}]}}"#
            )
        };
        let one = listing(&rule(1, 22));
        assert_eq!((one.rules, one.chains), (1, 1));
        assert_eq!(one.summary(), listing(&rule(7, 22)).summary());
        assert_ne!(one.summary(), listing(&rule(1, 23)).summary());
        for nonsense in ["", "[]", "{}", "{\"nftables\": 1}"] {
            assert!(Listing::parse(nonsense.as_bytes()).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_ruleset_without_a_chain_on_the_path_is_refused() {
        let chain = |family: &str, hook: &str| {
            listing(&format!(r#"{{"nftables": [{{"chain": {{"family": "{family}", "hook": "{hook}"}}}}]}}"#))
        };
        for (family, hook, node, ipv6, met) in [
            ("inet", "forward", NodeKind::Router, false, true),
            ("inet", "input", NodeKind::Router, false, false),
            ("inet", "input", NodeKind::Server, true, true),
            ("inet", "forward", NodeKind::Server, false, false),
            ("ip", "prerouting", NodeKind::Shared, false, true),
            ("ip", "prerouting", NodeKind::Shared, true, false),
            ("ip6", "output", NodeKind::Server, true, true),
            ("netdev", "ingress", NodeKind::Router, false, true),
            ("bridge", "forward", NodeKind::Router, false, false),
            ("arp", "input", NodeKind::Server, false, false),
        ] {
            assert_eq!(chain(family, hook).meets(node, ipv6).is_ok(), met, "{family} {hook} {node:?}");
        }
        let error =
            listing(r#"{"nftables": [{"chain": {"family": "inet"}}]}"#).meets(NodeKind::Router, false).unwrap_err();
        assert!(error.to_string().contains("forward"), "{error}");
    }

    #[test]
    fn rules_that_were_loaded_are_counted_as_they_are_listed() {
        let echo = "add table inet t\nadd chain inet t c { type filter hook input priority filter; }\n\
            add rule inet t c tcp dport 22 drop\ninsert rule inet t c counter packets 0 bytes 0\n\
            add chain inet t __chain1\nadd rule inet t __chain1 drop\nadd rule inet t c jump __chain1\n\
            delete rule inet t c handle 2\n";
        assert_eq!(loaded(echo), 2);
    }

    #[test]
    fn a_diagnostic_is_its_first_lines_and_cannot_steer_a_terminal() {
        let ran =
            |errors: &str| Ran { status: ExitStatus::default(), said: Vec::new(), errors: errors.as_bytes().to_vec() };
        let diagnostic =
            ran("/dev/stdin:3:25-25: Error: syntax error\n \u{1b}[2Jdropp\n   ^^^~\n\nthree\nfour\n").diagnostic();
        assert_eq!(diagnostic, "line 3:25-25: Error: syntax error; [2Jdropp; three");
        assert_eq!(ran(&"x".repeat(100_000)).diagnostic().len(), DIAGNOSTIC_LETTERS_MAX);
        assert!(ran("").diagnostic().contains("exit status"), "it says at least how it ended");
    }

    #[test]
    fn drops_of_all_cpus_add_up() {
        assert_eq!(dropped_in("entries  found drop early_drop\n00000001 00 0000000a 1\n00000001 00 00000010 1\n"), 26);
        assert_eq!(dropped_in("entries found\n1 2\n"), 0);
        assert_eq!(dropped_in(""), 0);
    }

    /// A program that stands in for nft. Another process writes it: children of other tests may inherit a descriptor
    /// that this process has open for writing, and then nobody can run the file.
    fn stand_in(directory: &tempfile::TempDir, script: &str) -> Nft {
        let (text, program) = (directory.path().join("text"), directory.path().join("nft"));
        std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        assert!(Command::new("install").args(["-m", "755"]).args([&text, &program]).status().unwrap().success());
        Nft { program, deadline: Instant::now() + limits::RULESET_TIME_MAX }
    }

    #[test]
    fn nft_that_does_not_end_or_writes_too_much_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let mut nft = stand_in(&directory, "exec sleep 1000");
        nft.deadline = Instant::now() + Duration::from_millis(100);
        let error = nft.run(&[], "").err().unwrap();
        assert!(error.message().contains("did not end within 60s"), "{error}");
        let error = stand_in(&directory, "exec yes").run(&[], "").err().unwrap();
        assert!(error.message().contains("nft wrote"), "{error}");
    }

    #[test]
    fn nft_receives_the_rules_and_its_output_is_returned() {
        let directory = tempfile::tempdir().unwrap();
        let ran = stand_in(&directory, "cat; cat /dev/stdin >&2; echo $1").run(&["-e"], "rules\n").unwrap();
        assert!(ran.status.success());
        assert_eq!((&ran.said[..], &ran.errors[..]), (&b"rules\n-e\n"[..], &b"rules\n"[..]));
    }
}
