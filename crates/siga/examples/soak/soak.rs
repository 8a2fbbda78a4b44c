//! The course of a soak: brings the network up, starts the workers, disturbs guests in random order, counts resources in between,
//! and takes everything down.

use super::count::{self, Held};
use super::disturb::{Disturbance, Draw};
use super::network::{NAME, Network};
use super::{Outcome, worker::TOKEN};
use siga_measure::interrupt::{catch_interrupts, interrupted};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Time limit until a worker is ready, and until traffic resumes after a disturbance.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long connections to a server may still fail to open after a disturbance has cut it off. A guest repeats its request for a
/// refused ring pair after 5 s.
const AFTERMATH: Duration = Duration::from_secs(8);
/// The interval at which the resources of processes are counted.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// Time limit for the resources of processes to return to their first values before a leak is reported.
const SETTLE_MAX: Duration = Duration::from_secs(15);
/// Time limit for processes to end after the network went down; they end by themselves.
const GONE_MAX: Duration = Duration::from_secs(3);
/// If traffic took longer than this to resume after a disturbance, a message is printed at once.
const LONG: Duration = Duration::from_secs(3);
/// The run ends when it has more findings than this.
const FINDINGS_MAX: usize = 20;
/// The counts of the client that have to grow after each disturbance.
const GROWING: [&str; 5] = ["stream_bytes", "exchanges", "connections", "datagrams", "others"];

/// The lines that a worker has printed so far.
#[derive(Debug, Default)]
struct Said {
    counts: BTreeMap<String, u64>,
    findings: Vec<String>,
    results: Vec<String>,
    ready: bool,
}

/// The process of a guest. Dropping the value kills it.
#[derive(Debug)]
struct Worker {
    child: Child,
    said: Arc<Mutex<Said>>,
}

impl Worker {
    fn start(network: &Network, guest: &str, words: &[&str]) -> Outcome<Self> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(own);
        command
            .arg("worker")
            .arg("--base")
            .arg(network.run_dir())
            .args(["--network", NAME, "--guest", guest])
            .args(words);
        command.env(TOKEN, network.token(guest)?).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| format!("cannot start {guest}: {error}"))?;
        let said: Arc<Mutex<Said>> = Arc::default();
        let (heard, output) = (Arc::clone(&said), child.stdout.take().ok_or("a worker without output")?);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).hear(&line);
            }
        });
        Ok(Self { child, said })
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, name: &str) -> u64 {
        self.said().counts.get(name).copied().unwrap_or(0)
    }

    fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn ready(mut self, guest: &str) -> Outcome<Self> {
        let end = Instant::now() + PATIENCE;
        while !self.said().ready {
            if self.is_over() || Instant::now() > end {
                let why = self.said().findings.join("; ");
                return Err(format!("{guest} is not ready: {why}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(self)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Errors are ignored, because the process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    fn hear(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("count", rest)) => {
                if let Some((name, count)) =
                    rest.split_once(' ').and_then(|(name, count)| Some((name, count.parse().ok()?)))
                {
                    self.counts.insert(name.to_owned(), count);
                }
            }
            Some(("finding", text)) => self.findings.push(text.to_owned()),
            Some(("result", text)) => self.results.push(text.to_owned()),
            _ if line.starts_with("ready") => self.ready = true,
            _ => {}
        }
    }
}

/// Runs one task of the client with a server, without disturbances.
pub(super) fn alone(task: &[&str]) -> Outcome<()> {
    catch_interrupts().map_err(|error| error.to_string())?;
    let mut network = Network::up()?;
    let server = Worker::start(&network, "server", &["--serve"])?.ready("the server")?;
    let router = network.guest("router")?.ok_or("there is no router")?;
    let before = Held::of(router);
    let mut client = Worker::start(&network, "client", task)?;
    let mut told = Instant::now();
    while !client.is_over() {
        if interrupted() {
            return Err("interrupted".to_owned());
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let held = [("client", client.child.id()), ("router", router), ("server", server.child.id())];
            eprintln!("{}", counts(&client.said().counts));
            for (who, pid) in held {
                if let Ok(held) = Held::of(pid) {
                    eprintln!("  {who}: {held}");
                }
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // Wait for the thread that reads the client's last lines.
    std::thread::sleep(Duration::from_millis(100));
    let mut findings = client.said().findings.clone();
    findings.extend(server.said().findings.clone());
    let results = client.said().results.clone();
    if network.guest("router")? != Some(router) {
        findings.push("the router is another than at the beginning".to_owned());
    }
    if let (Ok(before), Ok(after)) = (before, Held::of(router)) {
        eprintln!("router before: {before}\nrouter after:  {after}");
    }
    drop((client, server));
    network.down()?;
    results.iter().for_each(|result| eprintln!("{result}"));
    findings.iter().take(FINDINGS_MAX).for_each(|finding| eprintln!("finding: {finding}"));
    match (findings.len(), results.len()) {
        (0, 1) => Ok(()),
        (0, _) => Err("the client has no result".to_owned()),
        (count, _) => Err(format!("{count} findings")),
    }
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// The state of a running soak.
struct Soak {
    network: Network,
    client: Worker,
    server: Worker,
    other: Worker,
    begun: Instant,
    findings: Vec<String>,
    /// The resources of each process when it was first counted.
    first: BTreeMap<(String, u32), Held>,
    files: Vec<String>,
    /// Every process of the network that was ever seen, with its start time.
    processes: BTreeSet<(String, u32, u64)>,
    done: BTreeMap<Disturbance, (u32, Duration)>,
    counted: u32,
    cut_off: Option<Instant>,
    connects_failed: u64,
    connects_excused: u64,
    uncounted: Option<String>,
}

/// Says what runs, and returns the seed: the given one, or else the current time.
pub(super) fn begin(time: Duration, seed: Option<u64>) -> Outcome<u64> {
    catch_interrupts().map_err(|error| error.to_string())?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seed = seed.unwrap_or(now);
    eprintln!("soak for {}, seed {seed}", humantime::format_duration(time));
    Ok(seed)
}

/// Runs the soak for `time`.
pub(super) fn run(time: Duration, seed: Option<u64>) -> Outcome<()> {
    let seed = begin(time, seed)?;
    let mut soak = Soak::start()?;
    let outcome = soak.go_on(time, seed);
    soak.end(outcome, seed)
}

impl Soak {
    fn start() -> Outcome<Self> {
        let network = Network::up()?;
        let server = Worker::start(&network, "server", &["--serve"])?.ready("the server")?;
        let other = Worker::start(&network, "other", &["--serve"])?.ready("the other server")?;
        let client = Worker::start(&network, "client", &["--traffic"])?.ready("the client")?;
        let uncounted = Held::of(server.child.id()).err();
        Ok(Self {
            network,
            client,
            server,
            other,
            begun: Instant::now(),
            findings: Vec::new(),
            first: BTreeMap::new(),
            files: Vec::new(),
            processes: BTreeSet::new(),
            done: BTreeMap::new(),
            counted: 0,
            cut_off: None,
            connects_failed: 0,
            connects_excused: 0,
            uncounted,
        })
    }

    fn go_on(&mut self, time: Duration, seed: u64) -> Outcome<()> {
        let mut draw = Draw(seed);
        self.progress("the beginning", &BTreeMap::new())?;
        self.count()?;
        let mut counted = Instant::now();
        while self.begun.elapsed() < time {
            if !self.rest(Duration::from_millis(500 + draw.below(3_000)))? {
                return Err("interrupted".to_owned());
            }
            let what = draw.disturbance();
            self.disturb(what)?;
            let before = self.client.said().counts.clone();
            let gap = self.progress(what.name(), &before)?;
            let entry = self.done.entry(what).or_default();
            *entry = (entry.0 + 1, entry.1.max(gap));
            if counted.elapsed() >= COUNT_EVERY {
                self.count()?;
                counted = Instant::now();
                self.tell();
            }
        }
        self.count()
    }

    /// Carries out a disturbance.
    fn disturb(&mut self, what: Disturbance) -> Outcome<()> {
        self.remember()?;
        if what.cuts_the_server_off() {
            self.cut_off = Some(Instant::now());
        }
        what.commit(&self.network, self.other.child.id()).map_err(|error| format!("{}: {error}", what.name()))?;
        if what == Disturbance::KillOther {
            self.other = Worker::start(&self.network, "other", &["--serve"])?.ready("the other server")?;
        }
        if what.cuts_the_server_off() {
            self.cut_off = Some(Instant::now());
        }
        Ok(())
    }

    /// Waits until every kind of traffic has progressed beyond `before`. Returns how long that took.
    fn progress(&mut self, after: &str, before: &BTreeMap<String, u64>) -> Outcome<Duration> {
        let begun = Instant::now();
        let mut slowest = String::new();
        loop {
            let still: Vec<&str> = {
                let said = self.client.said();
                let of = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0);
                GROWING.into_iter().filter(|name| of(&said.counts, name) <= of(before, name)).collect()
            };
            self.judge()?;
            if still.is_empty() {
                if begun.elapsed() > LONG {
                    eprintln!("after {after} it took {:?} until this went on: {slowest}", begun.elapsed());
                }
                return Ok(begun.elapsed());
            }
            slowest = still.join(", ");
            if begun.elapsed() > PATIENCE {
                return Err(format!("after {after} no progress for {PATIENCE:?}: {slowest}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets traffic continue for `time`. Returns false if the user interrupted the run.
    fn rest(&mut self, time: Duration) -> Outcome<bool> {
        let end = Instant::now() + time;
        while Instant::now() < end && !interrupted() {
            self.judge()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(!interrupted())
    }

    /// Collects the workers' findings, and adds a finding if connections failed to open without a reason. Returns an error if a
    /// worker has ended or there are too many findings.
    fn judge(&mut self) -> Outcome<()> {
        for worker in [&self.client, &self.server, &self.other] {
            self.findings.append(&mut worker.said().findings);
        }
        let failed = self.client.count("connects_failed");
        let more = failed.saturating_sub(self.connects_failed);
        if more > 0 && self.cut_off.is_some_and(|since| since.elapsed() < AFTERMATH) {
            self.connects_excused += more;
        } else if more > 0 {
            self.findings.push(format!("{more} connections to the server failed while nothing was in their way"));
        }
        self.connects_failed = failed;
        for (who, worker) in [("client", &mut self.client), ("server", &mut self.server), ("other", &mut self.other)] {
            if worker.is_over() {
                return Err(format!("the {who}'s process has ended"));
            }
        }
        if self.findings.len() > FINDINGS_MAX { Err("too many findings".to_owned()) } else { Ok(()) }
    }

    /// Returns the current processes of the network: the role and the process id of each.
    fn members(&self) -> Outcome<Vec<(String, u32)>> {
        let mut all = vec![("control program".to_owned(), self.network.control()?)];
        for name in ["router", "bystander"] {
            all.push((name.to_owned(), self.network.guest(name)?.ok_or(format!("{name} does not run"))?));
        }
        for (name, worker) in [("client", &self.client), ("server", &self.server), ("other", &self.other)] {
            all.push((name.to_owned(), worker.child.id()));
        }
        Ok(all)
    }

    fn remember(&mut self) -> Outcome<()> {
        let began = |(name, pid): (String, u32)| Some((name, pid, count::began(pid)?));
        self.processes.extend(self.members()?.into_iter().filter_map(began));
        Ok(())
    }

    /// Compares the resources of every process with those at its first count. Waits up to [`SETTLE_MAX`] until temporary
    /// resources are released.
    fn count(&mut self) -> Outcome<()> {
        self.remember()?;
        // The ping makes the ring pair between the bystander and the router, which existed at the first count as well.
        self.network.siga(&["ping", NAME, "router", "10.0.2.4", "-c", "1"])?;
        self.rest(Duration::from_secs(2))?;
        let files = self.network.files();
        if self.files.is_empty() {
            self.files = files;
        } else if self.files != files {
            self.findings.push(format!("the network's files were {:?} and are {files:?}", self.files));
        }
        self.counted += 1;
        if self.uncounted.is_some() {
            return Ok(());
        }
        for (name, pid) in self.members()? {
            let first = self.first.entry((name.clone(), pid)).or_insert(Held::of(pid)?).clone();
            let begun = Instant::now();
            while let Some(more) = Held::of(pid)?.grown_since(&first) {
                if begun.elapsed() > SETTLE_MAX {
                    self.findings.push(format!("{name} ({pid}) leaks: {more}"));
                    break;
                }
                self.rest(Duration::from_millis(200))?;
            }
        }
        Ok(())
    }

    fn tell(&self) {
        let disturbances: u32 = self.done.values().map(|(count, _)| count).sum();
        eprintln!(
            "{:>6.0} s: {disturbances} disturbances, {} findings; {}",
            self.begun.elapsed().as_secs_f64(),
            self.findings.len(),
            counts(&self.client.said().counts)
        );
    }

    /// Takes everything down and prints the results.
    fn end(mut self, outcome: Outcome<()>, seed: u64) -> Outcome<()> {
        self.tell();
        for (what, (count, gap)) in &self.done {
            let name = what.name();
            eprintln!("{count:>6} x {name}: all traffic went on after at most {:.0} ms", gap.as_secs_f64() * 1e3);
        }
        eprintln!("{} connections failed while a router or the server was away", self.connects_excused);
        for (name, pid) in self.members().unwrap_or_default() {
            if let (Some(first), Ok(last)) = (self.first.get(&(name.clone(), pid)), Held::of(pid)) {
                eprintln!("{name} at first: {first}\n{name} at last:  {last}");
            }
        }
        match &self.uncounted {
            Some(why) => eprintln!("what processes hold was not counted, because {why}"),
            None => eprintln!("what processes hold was counted {} times", self.counted),
        }
        let remembered = self.remember();
        let Self { mut network, client, server, other, processes, mut findings, .. } = self;
        drop((client, server, other));
        findings.extend([outcome, remembered, network.down()].into_iter().filter_map(Result::err));
        let end = Instant::now() + GONE_MAX;
        let is_left = |(_, pid, began): &&(String, u32, u64)| count::began(*pid) == Some(*began);
        while processes.iter().any(|member| is_left(&member)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left: Vec<_> = processes.iter().filter(is_left).collect();
        if !left.is_empty() {
            findings.push(format!("processes are left {GONE_MAX:?} after the network went down: {left:?}"));
        }
        findings.iter().for_each(|finding| eprintln!("finding: {finding}"));
        match findings.len() {
            0 => Ok(()),
            count => Err(format!("{count} findings; again by --seed {seed}, as far as time allows")),
        }
    }
}
