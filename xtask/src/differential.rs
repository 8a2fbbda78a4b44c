//! Plays the same dialogues with the kernel's TCP and with the stack's, and compares what both do.
//!
//! The kernel plays in a network namespace of this process, which vanishes with the process. A difference counts only if it
//! appears each time that the dialogue is played, because timers of a busy machine are late. Each difference that is a decision of
//! the stack has a rule, which names a line of `docs/linux-differences.md`. Any other difference fails the run, and the shortest
//! dialogue that shows it is printed.

mod compare;
mod coverage;
mod dialogue;
mod generate;
mod kernel;
mod minimise;
mod packet;
mod packets;
mod player;
mod regression;
mod rules;
mod session;
mod stack;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities};

use crate::command;
use dialogue::Dialogue;
use kernel::Kernel;
use player::Ends;
use session::Session;

/// The MTU of the kernel's device and of the stack's.
const MTU: u16 = 1_500;
const BACKLOG: usize = 16;
/// The number of dialogues after which differences are reported.
const BATCH: u64 = 1_000;
const LOCAL_V4: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
const LOCAL_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

const RECORDED: &str = include_str!("differential/recorded.txt");

/// The options of `cargo xtask differential`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Play sequences of UDP datagrams, ICMP messages, fragments and forwarded packets instead of TCP dialogues
    #[arg(long)]
    packets: bool,
    /// Play only the dialogue of this seed, and print what the kernel and the stack do
    #[arg(long, conflicts_with_all = ["time", "dialogues", "from"])]
    seed: Option<u64>,
    /// Play only the dialogues of this file, in the format of recorded.txt, and print what the kernel and the stack do
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "time", "dialogues", "from"])]
    file: Option<PathBuf>,
    /// Play the recorded dialogues, then random dialogues for this time, such as 90s, 10m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = crate::sim::time, conflicts_with = "dialogues")]
    time: Option<Duration>,
    /// Play the recorded dialogues, then this number of random dialogues
    #[arg(long, default_value_t = 2_000)]
    dialogues: u64,
    /// First seed of the random dialogues; with `--for`, the default depends on the time of day
    #[arg(long)]
    from: Option<u64>,
    /// Shorten at most this number of dialogues in which the kernel and the stack differ
    #[arg(long, default_value_t = 5)]
    minimise: usize,
    /// Set when the command has started itself in a network namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
}

impl Options {
    /// The seeds of each batch, until the number or the time is reached.
    fn batches(&self, began: Instant) -> impl Iterator<Item = Range<u64>> {
        let first = self.from.unwrap_or(if self.time.is_some() { crate::sim::seed_of_now() } else { 0 });
        let (time, end) =
            (self.time, if self.time.is_some() { u64::MAX } else { first.saturating_add(self.dialogues) });
        let starts = std::iter::successors(Some(first), |start| start.checked_add(BATCH));
        starts
            .take_while(move |start| *start < end && time.is_none_or(|time| began.elapsed() < time))
            .map(move |start| start..end.min(start.saturating_add(BATCH)))
    }
}

/// Plays dialogues. Returns an error if a difference is not explained, or if this host cannot play.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    if let Some(reason) = obstacle() {
        return Err(reason);
    }
    if !options.inside {
        let mut command = Command::new("unshare");
        // With real-time priority, other programs hardly delay the kernel's side, so that few dialogues have to be repeated.
        command.args(["--net", "--", "chrt", "--fifo", "1"]);
        command.arg(std::env::current_exe().map_err(|error| error.to_string())?);
        let error = command.args(std::env::args_os().skip(1)).arg("--inside").exec();
        return Err(format!("cannot run unshare: {error}"));
    }
    if options.packets {
        return packets::run(options);
    }
    let failed = |error: io::Error| format!("the kernel's part of the comparison failed: {error}");
    let mut session = Session::new(Kernel::open().map_err(failed)?);
    if let Some(file) = &options.file {
        let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let dialogues = blocks(&text).map(str::parse).collect::<Result<Vec<Dialogue>, _>>()?;
        // Every dialogue is printed, also behind one that differs.
        let results: io::Result<Vec<_>> = dialogues.iter().map(|dialogue| one(&mut session, dialogue)).collect();
        return results.map_err(failed)?.into_iter().collect();
    }
    match options.seed {
        Some(seed) => one(&mut session, &generate::dialogue(seed)).map_err(failed)?,
        None => many(&mut session, options).map_err(failed)?,
    }
}

/// Returns why this host cannot play dialogues with its kernel, if it cannot.
pub(crate) fn obstacle() -> Option<String> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::SYS_NICE;
    if !capabilities(None).is_ok_and(|held| held.effective.contains(needed)) {
        return Some("dialogues with the kernel need root".to_owned());
    }
    let device = File::options().read(true).write(true).open("/dev/net/tun");
    if let Err(error) = device {
        return Some(format!("dialogues with the kernel need /dev/net/tun: {error}"));
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let is_there = |program: &str| path.split(':').any(|directory| Path::new(directory).join(program).is_file());
    let missing = ["unshare", "chrt", "ip"].into_iter().find(|program| !is_there(program))?;
    Some(format!("dialogues with the kernel need the program {missing}"))
}

/// Plays one dialogue, and prints both records.
fn one(session: &mut Session, dialogue: &Dialogue) -> io::Result<Result<(), String>> {
    let comparison = session.play(std::slice::from_ref(dialogue), 1)?.remove(0);
    let table = compare::table(dialogue, &comparison.kernel, &comparison.stack);
    let difference = comparison.difference.map(|difference| format!("{difference}\n"));
    let is_different = difference.is_some();
    Ok(command::print(&format!("{table}{}", difference.unwrap_or_default()))
        .and_then(|()| if is_different { Err("the kernel and the stack differ".to_owned()) } else { Ok(()) }))
}

/// Plays the recorded dialogues and drawn ones.
fn many(session: &mut Session, options: &Options) -> io::Result<Result<(), String>> {
    let began = Instant::now();
    let mut found = Findings::default();
    found.check(session, options, &recorded(), |place| format!("recorded dialogue {}", place + 1))?;
    for seeds in options.batches(began) {
        let dialogues: Vec<Dialogue> = seeds.clone().map(generate::dialogue).collect();
        found.check(session, options, &dialogues, |place| {
            format!("seed {}", seeds.start + u64::try_from(place).unwrap_or(0))
        })?;
    }
    Ok(found.report(session, began.elapsed()))
}

/// The differences of a run that no rule explains.
#[derive(Default)]
struct Findings {
    /// How many dialogues show each kind of difference.
    kinds: BTreeMap<String, usize>,
}

impl Findings {
    /// Plays dialogues, and prints those that differ. Shortens the first of each kind.
    fn check(
        &mut self,
        session: &mut Session,
        options: &Options,
        dialogues: &[Dialogue],
        name: impl Fn(usize) -> String,
    ) -> io::Result<()> {
        for (place, comparison) in session.check(dialogues)? {
            let Some(difference) = comparison.difference else { continue };
            let (name, kind) = (name(place), session::kind(&difference));
            eprintln!("{name}: {difference}");
            let is_new = !self.kinds.contains_key(&kind);
            if is_new && self.kinds.len() < options.minimise {
                let shorter = minimise::minimise(session, &dialogues[place], &difference)?;
                let comparison = session.play(std::slice::from_ref(&shorter), 1)?.remove(0);
                let table = compare::table(&shorter, &comparison.kernel, &comparison.stack);
                eprintln!("the shortest dialogue found from {name}, as in recorded.txt:\n\n{shorter}\n{table}");
                let test = regression::source(&name, &shorter, &comparison.kernel);
                eprintln!("as a test of xtask/src/differential/regression.rs:\n\n{test}");
            }
            *self.kinds.entry(kind).or_default() += 1;
        }
        Ok(())
    }

    /// Prints how often each rule applied. Returns an error if there is an unexplained difference.
    fn report(&self, session: &Session, time: Duration) -> Result<(), String> {
        let Session { applied, compared, unstable, late, coverage, .. } = session;
        let reached = coverage::ALL.iter().map(|name| format!("{:>8}  {name}\n", coverage.count(name)));
        let rules = rules::RULES.iter().zip(applied).map(|(rule, count)| format!("{count:>8}  {}\n", rule.name));
        let kinds = self.kinds.iter().map(|(kind, count)| format!("{count:>8}  not explained: {kind}\n"));
        let different: usize = self.kinds.values().sum();
        let seconds = time.as_secs();
        command::print(&format!(
            "dialogues that reached each state and feature:\n{}dialogues in which each rule applied:\n{}{}{compared} dialogues compared in {seconds} s; {different} differ without \
             explanation; {unstable} differed only once; {late} were too late each time\n",
            reached.collect::<String>(),
            rules.collect::<String>(),
            kinds.collect::<String>(),
        ))?;
        if different == 0 { Ok(()) } else { Err(format!("{different} dialogues differ without explanation")) }
    }
}

/// The recorded dialogues. The tests check that all of them can be read.
fn recorded() -> Vec<Dialogue> {
    blocks(RECORDED).filter_map(|block| block.parse().ok()).collect()
}

/// The dialogues of a text, without blocks that are only comments.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").filter(|block| block.lines().any(|line| !line.starts_with('#')))
}

/// Returns the ends of the connection of the dialogue with this number. The prefix of the peer decides whether the kernel offers
/// ECN.
fn ends(number: u32, dialogue: &Dialogue) -> Ends {
    let port = u16::try_from(number % 60_000).unwrap_or(0) + 2_000;
    let remote_port = u16::try_from(number / 60_000 % 60_000).unwrap_or(0) + 2_000;
    let host = number % ((1 << 22) - 2) + 2;
    let (local, remote): (IpAddr, IpAddr) = if dialogue.v6 {
        let net = u16::from(dialogue.ecn);
        let [high, low] = [host >> 16, host & 0xffff].map(|half| u16::try_from(half).unwrap_or(0));
        (LOCAL_V6.into(), Ipv6Addr::new(0x2001, 0xdb8, 1, net, 0, 1, high, low).into())
    } else {
        let net = if dialogue.ecn { 0x0ac0_0000 } else { 0x0a80_0000 };
        (LOCAL_V4.into(), Ipv4Addr::from(net + host).into())
    };
    Ends { local, local_port: port, remote, remote_port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_dialogue_is_valid() {
        let blocks =
            RECORDED.split("\n\n").map(str::trim).filter(|block| !block.lines().all(|line| line.starts_with('#')));
        let read: Vec<Dialogue> = blocks.map(|block| block.parse().unwrap()).collect();
        assert_eq!(read, recorded());
        assert!(!read.is_empty());
    }

    #[test]
    fn dialogues_that_run_at_once_have_different_peers() {
        let dialogue = Dialogue { v6: false, ecn: true, steps: Vec::new() };
        let mut peers: Vec<IpAddr> = (0..2_000).map(|number| ends(number, &dialogue).remote).collect();
        peers.sort_unstable();
        peers.dedup();
        assert_eq!(peers.len(), 2_000);
        assert!(peers.iter().all(|peer| *peer != IpAddr::from(LOCAL_V4)));
    }
}
