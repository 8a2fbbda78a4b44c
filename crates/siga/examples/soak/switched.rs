//! The soak of a switch: during traffic, the switch, the control program, guests and namespaces are killed, and interfaces are deleted.
//! After each disturbance, all stations have to reach each other again. Descriptors, memory, processes, interfaces and namespaces are
//! counted before and after.

use super::Outcome;
use super::count::{self, Held};
use super::disturb::{Draw, kill_control, kill_guest};
use super::network::{NAME, Network};
use super::soak;
use rustix::thread::{CapabilitySet, capabilities};
use siga_measure::interrupt::interrupted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit until all stations reach each other again.
const PATIENCE: Duration = Duration::from_secs(20);
/// The interval at which resources are counted.
const COUNT_EVERY: Duration = Duration::from_secs(30);
/// Time limit until resources are released.
const SETTLE_MAX: Duration = Duration::from_secs(15);

/// The addresses that guest `one` has to reach: another guest, namespace `red`, both joined namespaces, and the station behind the
/// uplinks.
const STATIONS: [&str; 5] = ["10.0.3.2", "10.0.3.11", "10.0.3.101", "10.0.3.102", "10.0.3.200"];
const PODS: [&str; 2] = ["pod-1", "pod-2"];

/// A disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Disturbance {
    KillSwitch,
    KillControl,
    KillGuest,
    KillNamespace,
    DeleteNamespace,
    DeleteTap,
    DeleteUplink,
    CutUplink,
}

impl Disturbance {
    const ALL: [Self; 8] = [
        Self::KillSwitch,
        Self::KillControl,
        Self::KillGuest,
        Self::KillNamespace,
        Self::DeleteNamespace,
        Self::DeleteTap,
        Self::DeleteUplink,
        Self::CutUplink,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::KillSwitch => "kill -9 of the switch",
            Self::KillControl => "kill -9 of the control program",
            Self::KillGuest => "kill -9 of a guest",
            Self::KillNamespace => "kill -9 of the only process of a namespace",
            Self::DeleteNamespace => "deletion of a named namespace",
            Self::DeleteTap => "deletion of a TAP interface",
            Self::DeleteUplink => "deletion of the interface of an uplink",
            Self::CutUplink => "loss of the carrier of an uplink",
        }
    }
}

/// The named namespaces of a run. Dropping the value deletes them.
struct Places {
    host: String,
    outside: String,
    red: String,
}

impl Places {
    fn make() -> Outcome<Self> {
        let name = |what: &str| format!("siga-soak-{}-{what}", std::process::id());
        let places = Self { host: name("host"), outside: name("outside"), red: name("red") };
        for place in [&places.host, &places.outside, &places.red] {
            ip(&["netns", "add", place])?;
        }
        ip(&["-n", &places.outside, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &places.outside, "addr", "add", "10.0.3.200/24", "dev", "br0"])?;
        ip(&["-n", &places.outside, "link", "set", "br0", "up"])?;
        (0..2).try_for_each(|rank| places.make_uplink(rank))?;
        Ok(places)
    }

    /// Makes the interface of an uplink. Its other end is a port of a bridge.
    fn make_uplink(&self, rank: u8) -> Outcome<()> {
        let (up, out) = (format!("up{rank}"), format!("out{rank}"));
        let peer = ["type", "veth", "peer", "name", &out, "netns", &self.outside];
        ip(&[&["-n", &self.host, "link", "add", &up][..], &peer].concat())?;
        ip(&["-n", &self.outside, "link", "set", &out, "master", "br0", "up"])?;
        ip(&["-n", &self.host, "link", "set", &up, "up"])
    }

    fn topology(&self) -> String {
        let Self { host, red, .. } = self;
        format!(
            "[network.lan]\ntype = \"vswitch\"\nmtu = 1500\n\
             [[network.lan.port]]\nname = \"red\"\nnetns = \"{red}\"\naddresses = [\"10.0.3.11/24\", \"fd00:3::/64\"]\n\
             router_advertisements = true\n\
             [[network.lan.port]]\nname = \"pod\"\ncount = 2\naddresses = [\"10.0.3.101/24\", \"fd00:3::101/64\"]\n\
             [[network.lan.uplink]]\ninterface = \"up0\"\nnetns = \"{host}\"\n\
             [[network.lan.uplink]]\ninterface = \"up1\"\nnetns = \"{host}\"\n\
             [guest.one]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.1/24\", \"fd00:3::1/64\"] }}]\n\
             [guest.two]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.2/24\", \"fd00:3::2/64\"] }}]\n"
        )
    }

    /// Returns the number of interfaces in each of the namespaces.
    fn interfaces(&self) -> Outcome<[usize; 3]> {
        let count = |place: &String| ip_output(&["-n", place, "-o", "link"]).map(|text| text.lines().count());
        Ok([count(&self.host)?, count(&self.outside)?, count(&self.red)?])
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for place in [&self.host, &self.outside, &self.red] {
            // Errors are ignored, because an earlier failure is the one to report.
            let _ = ip(&["netns", "del", place]);
        }
    }
}

fn ip(words: &[&str]) -> Outcome<()> {
    ip_output(words).map(drop)
}

fn ip_output(words: &[&str]) -> Outcome<String> {
    let output = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("ip {} ended with {}: {}", words.join(" "), output.status, String::from_utf8_lossy(&output.stderr)))
}

/// A process that sends traffic without end. Dropping the value kills it.
struct Traffic(Child);

impl Traffic {
    fn start(command: &mut Command) -> Outcome<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.map(Self).map_err(|error| format!("cannot start traffic: {error}"))
    }

    /// Sends echo requests from a named namespace to guest `one`.
    fn from(place: &str) -> Outcome<Self> {
        let mut command = Command::new("ip");
        Self::start(command.args(["netns", "exec", place, "ping", "-q", "-i", "0.002", "-s", "1200", "10.0.3.1"]))
    }

    /// Sends echo requests from a new namespace that joins a port.
    fn at(network: &Network, port: &str) -> Outcome<Self> {
        Self::start(&mut network.netns(port, &["ping", "-q", "-i", "0.002", "-s", "1200", "10.0.3.1"]))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The state of a running soak.
struct Soak {
    places: Places,
    network: Network,
    /// The traffic of the named namespaces, and of those that have joined ports.
    named: BTreeMap<&'static str, Traffic>,
    pods: BTreeMap<&'static str, Traffic>,
    first: BTreeMap<(&'static str, u32), Held>,
    /// Every process of the network that was ever seen, with its start time.
    processes: BTreeSet<(&'static str, u32, u64)>,
    /// The namespaces that processes had before they were killed.
    namespaces: BTreeSet<String>,
    interfaces: Option<[usize; 3]>,
    findings: Vec<String>,
    done: BTreeMap<Disturbance, (u32, Duration)>,
    counted: u32,
}

/// Returns why this host cannot run the soak.
fn obstacle() -> Option<String> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if !capabilities(None).is_ok_and(|held| held.effective.contains(needed)) {
        return Some("it needs root".to_owned());
    }
    let tun = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
    tun.err().map(|error| format!("/dev/net/tun cannot be opened: {error}"))
}

/// Runs the soak for `time`.
pub(super) fn run(time: Duration, seed: Option<u64>) -> Outcome<()> {
    if let Some(why) = obstacle() {
        eprintln!("skipped, because {why}");
        return Ok(());
    }
    let seed = soak::begin(time, seed)?;
    let places = Places::make()?;
    let network = Network::up_with(&places.topology())?;
    let mut soak = Soak {
        places,
        network,
        named: BTreeMap::new(),
        pods: BTreeMap::new(),
        first: BTreeMap::new(),
        processes: BTreeSet::new(),
        namespaces: BTreeSet::new(),
        interfaces: None,
        findings: Vec::new(),
        done: BTreeMap::new(),
        counted: 0,
    };
    let outcome = soak.go_on(time, seed);
    soak.end(outcome, seed)
}

impl Soak {
    fn go_on(&mut self, time: Duration, seed: u64) -> Outcome<()> {
        let (begun, mut draw) = (Instant::now(), Draw(seed));
        self.start_traffic()?;
        self.reach("the beginning")?;
        self.count()?;
        let mut counted = Instant::now();
        while begun.elapsed() < time {
            if interrupted() {
                return Err("interrupted".to_owned());
            }
            std::thread::sleep(Duration::from_millis(200 + draw.below(800)));
            let all = Disturbance::ALL;
            let what = all[usize::try_from(draw.below(all.len() as u64)).unwrap_or(0)];
            self.remember()?;
            self.disturb(what, &mut draw).map_err(|error| format!("{}: {error}", what.name()))?;
            self.start_traffic()?;
            let gap = self.reach(what.name())?;
            let entry = self.done.entry(what).or_default();
            *entry = (entry.0 + 1, entry.1.max(gap));
            if counted.elapsed() >= COUNT_EVERY {
                self.count()?;
                counted = Instant::now();
            }
        }
        self.count()
    }

    /// Starts the traffic of each namespace that has none.
    fn start_traffic(&mut self) -> Outcome<()> {
        for (name, place) in [("red", &self.places.red), ("outside", &self.places.outside)] {
            if self.named.get_mut(name).is_none_or(|traffic| traffic.0.try_wait().is_ok_and(|ended| ended.is_some())) {
                self.named.insert(name, Traffic::from(place)?);
            }
        }
        for port in PODS {
            if self.pods.get_mut(port).is_none_or(|traffic| traffic.0.try_wait().is_ok_and(|ended| ended.is_some())) {
                self.pods.insert(port, Traffic::at(&self.network, port)?);
            }
        }
        Ok(())
    }

    fn disturb(&mut self, what: Disturbance, draw: &mut Draw) -> Outcome<()> {
        match what {
            Disturbance::KillSwitch => kill_guest(&self.network, "lan"),
            Disturbance::KillControl => kill_control(&self.network),
            Disturbance::KillGuest => kill_guest(&self.network, if draw.below(2) == 0 { "one" } else { "two" }),
            Disturbance::KillNamespace => {
                let port = PODS[usize::from(draw.below(2) == 0)];
                if let Some(Traffic(child)) = self.pods.get(port) {
                    let namespace = std::fs::read_link(format!("/proc/{}/ns/net", child.id()));
                    self.namespaces.extend(namespace.map(|link| link.to_string_lossy().into_owned()));
                }
                // Dropping the traffic kills its process.
                self.pods.remove(port);
                Ok(())
            }
            Disturbance::DeleteNamespace => {
                self.named.remove("red");
                ip(&["netns", "del", &self.places.red])?;
                ip(&["netns", "add", &self.places.red])
            }
            Disturbance::DeleteTap => {
                // A deleted interface may be in the course of being made again.
                let _ = ip(&["-n", &self.places.red, "link", "del", "siga0"]);
                Ok(())
            }
            Disturbance::DeleteUplink => {
                let rank = u8::from(draw.below(2) == 0);
                ip(&["-n", &self.places.host, "link", "del", &format!("up{rank}")])?;
                std::thread::sleep(Duration::from_millis(draw.below(500)));
                self.places.make_uplink(rank)
            }
            Disturbance::CutUplink => {
                ip(&["-n", &self.places.outside, "link", "set", "out0", "down"])?;
                std::thread::sleep(Duration::from_millis(draw.below(500)));
                ip(&["-n", &self.places.outside, "link", "set", "out0", "up"])
            }
        }
    }

    /// Waits until guest `one` reaches all stations. Returns how long that took.
    fn reach(&mut self, after: &str) -> Outcome<Duration> {
        let begun = Instant::now();
        for station in STATIONS {
            while self.network.siga(&["ping", NAME, "one", station, "-c", "1", "-W", "1"]).is_err() {
                if begun.elapsed() > PATIENCE {
                    return Err(format!("after {after}, {station} was not reached for {PATIENCE:?}"));
                }
                // For example a namespace has joined its port while the control program was away.
                self.start_traffic()?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(begun.elapsed())
    }

    fn members(&self) -> Outcome<Vec<(&'static str, u32)>> {
        let mut all = vec![("control program", self.network.control()?)];
        for name in ["lan", "one", "two"] {
            all.extend(self.network.guest(name)?.map(|pid| (name, pid)));
        }
        Ok(all)
    }

    fn remember(&mut self) -> Outcome<()> {
        let began = |(name, pid)| Some((name, pid, count::began(pid)?));
        self.processes.extend(self.members()?.into_iter().filter_map(began));
        Ok(())
    }

    /// Compares the resources of each process, and the interfaces of the namespaces, with those at the first count.
    fn count(&mut self) -> Outcome<()> {
        self.remember()?;
        self.counted += 1;
        let begun = Instant::now();
        let first = *self.interfaces.get_or_insert(self.places.interfaces()?);
        while self.places.interfaces()? != first {
            if begun.elapsed() > SETTLE_MAX {
                let now = self.places.interfaces()?;
                self.findings.push(format!("the namespaces had {first:?} interfaces and have {now:?}"));
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        for (name, pid) in self.members()? {
            let first = self.first.entry((name, pid)).or_insert(Held::of(pid)?).clone();
            while let Some(more) = Held::of(pid)?.grown_since(&first) {
                if begun.elapsed() > SETTLE_MAX {
                    self.findings.push(format!("{name} ({pid}) leaks: {more}"));
                    break;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(())
    }

    /// Takes everything down and prints the results.
    fn end(mut self, outcome: Outcome<()>, seed: u64) -> Outcome<()> {
        for (what, (count, gap)) in &self.done {
            let ms = gap.as_secs_f64() * 1e3;
            eprintln!("{count:>6} x {}: all stations were reached after at most {ms:.0} ms", what.name());
        }
        for (name, pid) in self.members().unwrap_or_default() {
            if let (Some(first), Ok(last)) = (self.first.get(&(name, pid)), Held::of(pid)) {
                eprintln!("{name} at first: {first}\n{name} at last:  {last}");
            }
        }
        eprintln!("what processes hold was counted {} times", self.counted);
        let remembered = self.remember();
        let Self { places, mut network, named, pods, processes, namespaces, interfaces, mut findings, .. } = self;
        drop((named, pods));
        findings.extend([outcome, remembered, network.down()].into_iter().filter_map(Result::err));
        let left = left_after(&processes, &namespaces);
        eprintln!(
            "{} processes of the network were seen, {} are left; {} namespaces were killed, {} are left",
            processes.len(),
            left.0.len(),
            namespaces.len(),
            left.1.len()
        );
        if !left.0.is_empty() || !left.1.is_empty() {
            findings.push(format!("after the network went down, these are left: {left:?}"));
        }
        // Each namespace keeps its own interfaces and loses those of siga: only `red` has one.
        let during = interfaces.unwrap_or_default();
        let now = places.interfaces()?;
        eprintln!("interfaces of the named namespaces: {during:?} during the run, {now:?} after it");
        let [host, outside, red] = during;
        if now != [host, outside, red.saturating_sub(1)] {
            findings.push(format!("after the network went down, the namespaces have {now:?} interfaces"));
        }
        findings.iter().for_each(|finding| eprintln!("finding: {finding}"));
        match findings.len() {
            0 => Ok(()),
            count => Err(format!("{count} findings; again by --seed {seed}, as far as time allows")),
        }
    }
}

/// Returns the processes and namespaces that still exist after a while.
fn left_after<'a>(
    processes: &'a BTreeSet<(&'static str, u32, u64)>,
    namespaces: &'a BTreeSet<String>,
) -> (Vec<&'a (&'static str, u32, u64)>, Vec<&'a String>) {
    let end = Instant::now() + SETTLE_MAX;
    loop {
        let runs = |(_, pid, began): &&(&str, u32, u64)| count::began(*pid) == Some(*began);
        let used = namespaces_in_use();
        let left: (Vec<_>, Vec<_>) =
            (processes.iter().filter(runs).collect(), namespaces.iter().filter(|one| used.contains(*one)).collect());
        if (left.0.is_empty() && left.1.is_empty()) || Instant::now() > end {
            return left;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the network namespaces of all processes.
fn namespaces_in_use() -> BTreeSet<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let namespace = |path: &Path| std::fs::read_link(path.join("ns/net")).ok();
    processes.filter_map(|entry| Some(namespace(&entry.path())?.to_string_lossy().into_owned())).collect()
}
