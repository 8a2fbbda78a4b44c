//! siga's own network against the kernel's: the path of Figure 1 beside the kernel's routed path at its best, cell by cell.
//!
//! The kernel's best is looked for anew in each cell: process layout, waiting, congestion control, BIG TCP, size of writes, MTU.
//! The modes that win (rate, rate of those that sleep, CPU time of a unit) are then measured again, interleaved with siga's, and
//! what is told is the median over the rounds of the ratio within a round, with the least and the most. The kernel's ends are where
//! the scheduler has them; as siga's gather where they sleep, the best of those that sleep is measured on one CPU too. Targets stand
//! beside what was reached; nothing fails by them. Needs no root, but a quiet host; the kernel's loopback and sockmap are rows of
//! their own (sockmap needs root).

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::{Value, json};

use super::{build, median};

/// What the kernel's path has at the least and the most: the MTU of siga's links, and Ethernet's.
const MTU: u32 = 57_344;
const ETHERNET: u32 = 1_500;

/// Ratios to reach; `None`: only reported.
#[derive(Clone, Copy, Default)]
struct Targets {
    /// Rate, polling, against the kernel's best.
    best: Option<f64>,
    /// Rate, polling, against the kernel's best of those that sleep.
    blocking: Option<f64>,
    /// Rate, sleeping, against the same.
    alike: Option<f64>,
    /// CPU time of a unit, in the cheapest mode, against the kernel's cheapest: at most.
    cpu: Option<f64>,
    /// The 99th and the 99.9th percentile of latency, each against the kernel's best: at most.
    tail: Option<f64>,
}

/// A cell of the comparison.
struct Row {
    path: &'static str,
    workload: &'static str,
    clients: u32,
    mtu: u32,
    level: &'static str,
    /// The kernel may take another MTU, BIG TCP and large writes.
    kernel_is_free: bool,
    /// Beside a process that takes all CPU time it gets.
    hog: bool,
    targets: Targets,
}

const fn targets(best: f64, blocking: f64, alike: f64, cpu: f64) -> Targets {
    Targets { best: Some(best), blocking: Some(blocking), alike: Some(alike), cpu: Some(cpu), tail: Some(1.0) }
}

const ROUTED: &str = "hipersockets-routed";
const IUCV: &str = "hipersockets-routed-iucv";
const NOTHING: Targets = Targets { best: None, blocking: None, alike: None, cpu: None, tail: None };
const PLAIN: Row = Row {
    path: ROUTED,
    workload: "rr-200-1000",
    clients: 10,
    mtu: MTU,
    level: "plain",
    kernel_is_free: true,
    hog: false,
    targets: NOTHING,
};
const STREAMS: Targets = Targets { best: Some(1.0), alike: Some(1.0), cpu: Some(0.6), ..NOTHING };
const SAME_MTU: Targets = Targets { best: Some(2.0), ..NOTHING };
const LARGE_SEGMENTS: Targets = Targets { best: Some(1.0), cpu: Some(0.8), ..NOTHING };
const FRAMES: &str = "frames";
const APPLICATIONS: Targets = Targets { best: Some(1.5), cpu: Some(1.0), tail: Some(1.0), ..NOTHING };
const CROWDED: Targets = Targets { best: Some(1.0), tail: Some(1.0), ..NOTHING };

const ROWS: [Row; 19] = [
    Row { clients: 1, targets: targets(1.3, 5.0, 1.0, 1.0), ..PLAIN },
    Row { targets: targets(2.5, 3.0, 1.2, 0.5), ..PLAIN },
    Row { workload: "rr:200/32k", targets: targets(2.0, 2.5, 1.2, 0.5), ..PLAIN },
    Row { workload: "crr-64-8k", clients: 1, targets: targets(2.5, 5.0, 1.5, 0.6), ..PLAIN },
    Row { workload: "crr-64-8k", targets: targets(4.0, 5.0, 3.0, 0.4), ..PLAIN },
    Row { workload: "strg-20m", clients: 1, targets: STREAMS, ..PLAIN },
    Row { workload: "strg-20m", targets: STREAMS, ..PLAIN },
    Row { workload: "strg-20m", clients: 1, kernel_is_free: false, targets: SAME_MTU, ..PLAIN },
    Row { workload: "strg-20m", kernel_is_free: false, targets: SAME_MTU, ..PLAIN },
    Row { workload: "strg-20m", clients: 1, mtu: ETHERNET, kernel_is_free: false, targets: LARGE_SEGMENTS, ..PLAIN },
    Row { workload: "strg-20m", mtu: ETHERNET, kernel_is_free: false, targets: LARGE_SEGMENTS, ..PLAIN },
    Row { mtu: ETHERNET, level: FRAMES, ..PLAIN },
    Row { workload: "crr-64-8k", mtu: ETHERNET, level: FRAMES, ..PLAIN },
    Row { workload: "strg-20m", mtu: ETHERNET, level: FRAMES, ..PLAIN },
    Row { path: IUCV, targets: APPLICATIONS, ..PLAIN },
    Row { path: IUCV, workload: "crr-64-8k", targets: APPLICATIONS, ..PLAIN },
    Row { path: IUCV, workload: "strg-20m", targets: Targets { best: Some(0.8), tail: None, ..APPLICATIONS }, ..PLAIN },
    Row { clients: 1, hog: true, targets: CROWDED, ..PLAIN },
    Row { hog: true, targets: CROWDED, ..PLAIN },
];

/// A way of using a path.
#[derive(Clone, PartialEq, Eq)]
struct Mode {
    path: &'static str,
    processes: bool,
    wait: &'static str,
    level: String,
    write: &'static str,
    mtu: u32,
    /// Client and server on one CPU, where siga's gather by themselves; else where the scheduler has them.
    one_cpu: bool,
}

impl Mode {
    fn name(&self) -> String {
        let layout = if self.processes { "processes" } else { "epoll" };
        let Self { path, wait, level, write, mtu, .. } = self;
        let level = Path::new(level).file_stem().unwrap_or_default().to_string_lossy();
        match *path {
            "veth-routed" => {
                let place = if self.one_cpu { ", on one CPU" } else { "" };
                format!("{layout}, {wait}, {level}, MTU {mtu}, writes of {write}{place}")
            }
            _ => format!("{path}, {wait}"),
        }
    }

    /// The waiting of the kernel's blocking sockets.
    fn sleeps(&self) -> bool {
        self.wait == "block"
    }
}

/// What was measured of a mode in one trial.
#[derive(Clone, Copy, Default)]
struct Figures {
    rate: f64,
    cpu: f64,
    p99: f64,
    p999: f64,
}

impl Figures {
    fn of(cell: &Value) -> Option<Self> {
        let latency = |name: &str| cell["latency_us"][name].as_f64().unwrap_or(f64::NAN);
        let (rate, cpu) = (cell["rate"].as_f64()?, cell["cpu"]["total"].as_f64()?);
        Some(Self { rate, cpu, p99: latency("p99"), p999: latency("p999") })
    }
}

/// What measures.
struct Bench {
    siga: PathBuf,
    directory: PathBuf,
    /// The levels of the kernel's path.
    levels: Vec<String>,
    /// The level of siga's without large segments.
    frames: String,
    /// A CPU that this process may run on.
    cpu: String,
}

/// How the comparison goes.
pub(crate) struct Options {
    /// Rounds of each cell.
    pub(crate) rounds: u32,
    /// Seconds of each measurement.
    pub(crate) seconds: f64,
    /// Only the rows whose name holds this.
    pub(crate) only: String,
    /// Where the result goes as JSON.
    pub(crate) out: PathBuf,
}

/// Compares; prints the table and writes the result.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name().contains(&options.only)).collect();
    if rows.is_empty() {
        let names: Vec<String> = ROWS.iter().map(Row::name).collect();
        return Err(format!("no row's name holds \"{}\"; there are {}", options.only, names.join("; ")));
    }
    let bench = Bench::new(build(root)?)?;
    let mut results = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        eprintln!("{}/{} {}", at + 1, rows.len(), row.name());
        let hog = row.hog.then(Hog::start).transpose()?;
        let result = bench.compare(row, options)?;
        drop(hog);
        eprint!("{}", result.text());
        results.push(result);
    }
    let others = if options.only.is_empty() { bench.others(options)? } else { Vec::new() };
    let json = json!({
        "schema": "siga/bench/1",
        "rounds": options.rounds,
        "seconds": options.seconds,
        "rows": results.iter().map(Outcome::json).collect::<Vec<_>>(),
        "others": others,
    });
    fs::create_dir_all(options.out.parent().unwrap_or(root)).map_err(|error| error.to_string())?;
    fs::write(&options.out, format!("{json:#}\n")).map_err(|error| format!("{}: {error}", options.out.display()))?;
    let mut text: String = results.iter().map(Outcome::text).collect();
    for other in &others {
        let (path, workload, clients) = (&other["path"], &other["workload"], &other["clients"]);
        let _ = writeln!(
            text,
            "{} {} x{clients}: {:.0}",
            plain(path),
            plain(workload),
            other["rate"].as_f64().unwrap_or(0.0)
        );
    }
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot print: {error}"))
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Row {
    fn name(&self) -> String {
        let Self { path, workload, clients, mtu, level, .. } = self;
        let level = if *level == "plain" { String::new() } else { format!(" {level}") };
        let beside = if self.hog { " beside a busy process" } else { "" };
        let bound = if self.kernel_is_free { "" } else { ", the kernel at this MTU too, without BIG TCP" };
        format!("{path} {workload} x{clients} mtu {mtu}{level}{beside}{bound}")
    }

    fn streams(&self) -> bool {
        self.workload.starts_with("str")
    }

    fn own_mode(&self, wait: &'static str, bench: &Bench) -> Mode {
        let level = if self.level == FRAMES { bench.frames.clone() } else { self.level.to_owned() };
        Mode { path: self.path, processes: false, wait, level, write: "128k", mtu: self.mtu, one_cpu: false }
    }

    /// What is varied of the kernel's path: layouts, waiting, sizes of writes; levels and MTUs are lists of one run.
    fn kernel_modes(&self, levels: &[String]) -> Vec<Mode> {
        let mtus: &[u32] = if self.kernel_is_free { &[MTU, ETHERNET] } else { std::slice::from_ref(&self.mtu) };
        let large = self.streams() && self.kernel_is_free;
        let writes: &[&'static str] = if large { &["128k", "512k"] } else { &["128k"] };
        // BIG TCP is nothing to those that send less than it takes.
        let levels = &levels[..if large { levels.len() } else { 2 }];
        let mut modes = Vec::new();
        for processes in [false, true] {
            for wait in ["block", "poll"] {
                for write in writes {
                    for level in levels {
                        modes.extend(mtus.iter().map(|&mtu| Mode {
                            path: "veth-routed",
                            processes,
                            wait,
                            level: level.clone(),
                            write,
                            mtu,
                            one_cpu: false,
                        }));
                    }
                }
            }
        }
        modes
    }
}

impl Bench {
    fn new(siga: PathBuf) -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("siga-bench-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let level = |name: &str, text: &str| {
            let path = directory.join(format!("{name}.toml"));
            let text = format!("name = \"{name}\"\n{text}");
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(path.to_string_lossy().into_owned())
        };
        let both = level("bigtcp-reno", "big_tcp_bytes = 196608\ncongestion = \"reno\"\n")?;
        let frames = level(FRAMES, "[guests.driver]\nlarge_segments = false\n")?;
        let levels = ["cubic", "reno", "bigtcp"].map(str::to_owned).into_iter().chain([both]).collect();
        let allowed = sched_getaffinity(None).map_err(|error| format!("which CPUs there are: {error}"))?;
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap_or(0).to_string();
        Ok(Self { siga, levels, frames, cpu, directory })
    }

    /// One trial of modes that differ in level and MTU alone.
    fn trials(&self, row: &Row, modes: &[&Mode], seconds: f64) -> Result<Vec<Option<Figures>>, String> {
        let Some(first) = modes.first() else { return Ok(Vec::new()) };
        let out = self.directory.join("run");
        let _ = fs::remove_dir_all(&out);
        let list = |items: Vec<String>| {
            let mut items = items;
            items.sort();
            items.dedup();
            items.join(",")
        };
        let mut command = Command::new(&self.siga);
        command.args(["run", "--path", first.path, "--workload", row.workload, "--wait", first.wait]);
        command.args(["--write", first.write, "--clients", &row.clients.to_string()]);
        command.args(["--level", &list(modes.iter().map(|mode| mode.level.clone()).collect())]);
        command.args(["--mtu", &list(modes.iter().map(|mode| mode.mtu.to_string()).collect())]);
        command.args(["--trials", "1", "--seconds", &seconds.to_string(), "--warm-up", &(seconds / 5.0).to_string()]);
        command.args(["--accounting", "tick", "--format", "json", "--out"]).arg(&out);
        if first.processes {
            command.arg("--processes");
        }
        if first.one_cpu {
            command.args(["--client-cpus", &self.cpu, "--server-cpus", &self.cpu]);
        }
        let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run siga: {error}"))?;
        let _ = fs::remove_dir_all(&out);
        let json: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{}: {error}: {}", first.name(), String::from_utf8_lossy(&output.stderr)))?;
        let cells = json["cells"].as_array().map_or(&[][..], Vec::as_slice);
        let of = |mode: &&Mode| {
            let level = Path::new(&mode.level).file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is = |cell: &&Value| cell["level"] == *level && cell["mtu"] == mode.mtu;
            cells.iter().find(is).and_then(Figures::of)
        };
        Ok(modes.iter().map(of).collect())
    }

    /// The kernel's modes that are worth a second look: the best by rate, the best that sleeps, the cheapest.
    fn screen(&self, row: &Row, seconds: f64) -> Result<[Mode; 3], String> {
        let modes = row.kernel_modes(&self.levels);
        let mut found: Vec<(Mode, Figures)> = Vec::new();
        for group in modes
            .chunk_by(|one, other| (one.processes, one.wait, one.write) == (other.processes, other.wait, other.write))
        {
            let group: Vec<&Mode> = group.iter().collect();
            let figures = self.trials(row, &group, seconds)?;
            found.extend(group.iter().zip(figures).filter_map(|(mode, figures)| Some(((*mode).clone(), figures?))));
        }
        let by_rate = |one: &&(Mode, Figures), other: &&(Mode, Figures)| one.1.rate.total_cmp(&other.1.rate);
        let best = found.iter().max_by(by_rate);
        let blocking = found.iter().filter(|(mode, _)| mode.sleeps()).max_by(by_rate);
        let cheapest = found.iter().min_by(|one, other| one.1.cpu.total_cmp(&other.1.cpu));
        match (best, blocking, cheapest) {
            (Some(best), Some(blocking), Some(cheapest)) => {
                Ok([best, blocking, cheapest].map(|(mode, _)| mode.clone()))
            }
            _ => Err(format!("{}: the kernel's path has no figure", row.name())),
        }
    }

    fn compare(&self, row: &Row, options: &Options) -> Result<Outcome, String> {
        let kernel = self.screen(row, options.seconds / 3.0)?;
        let own = ["poll", "adaptive", "block"].map(|wait| row.own_mode(wait, self));
        let together = Mode { one_cpu: true, ..kernel[1].clone() };
        let mut modes: Vec<Mode> = own.to_vec();
        for mode in kernel.iter().chain([&together]) {
            if !modes.contains(mode) {
                modes.push(mode.clone());
            }
        }
        let mut all = vec![Vec::new(); modes.len()];
        for round in 0..options.rounds {
            for at in 0..modes.len() {
                // Each round begins with another mode.
                let at = (at + usize::try_from(round).unwrap_or(0)) % modes.len();
                let figures = self.trials(row, &[&modes[at]], options.seconds)?;
                let figures = figures.into_iter().flatten().next();
                all[at].push(figures.ok_or_else(|| format!("{}: no figure", modes[at].name()))?);
            }
        }
        let of = |wanted: &Mode| modes.iter().position(|mode| mode == wanted).map_or(&[][..], |at| &all[at][..]);
        let cheapest = (0..own.len()).min_by(|one, other| cpu(&all[*one]).total_cmp(&cpu(&all[*other]))).unwrap_or(0);
        let rate = |figures: &Figures| figures.rate;
        let median_rate = |at: usize| median(&mut all[at].iter().map(rate).collect::<Vec<_>>());
        // Beside a busy process, and where more processes have work than there are CPUs, it is the best of each.
        let fastest = (0..own.len()).max_by(|one, other| median_rate(*one).total_cmp(&median_rate(*other)));
        let best_own = fastest.filter(|_| row.hog || row.path == IUCV).unwrap_or(0);
        Ok(Outcome {
            name: row.name(),
            unit: if row.streams() { "MB/sec" } else { "trans/sec" },
            ratios: vec![
                Ratio::of("rate against the kernel's best", row.targets.best, (&all[best_own], of(&kernel[0])), rate),
                Ratio::of("rate, polling, against blocking", row.targets.blocking, (&all[0], of(&kernel[1])), rate),
                Ratio::of("rate, blocking against blocking", row.targets.alike, (&all[2], of(&kernel[1])), rate),
                Ratio::of("the same, the kernel on one CPU", None, (&all[2], of(&together)), rate),
                Ratio::of("CPU a unit against the cheapest", row.targets.cpu, (&all[cheapest], of(&kernel[2])), |it| {
                    it.cpu
                }),
                Ratio::of("p99 against that of the best", row.targets.tail, (&all[best_own], of(&kernel[0])), |it| {
                    it.p99
                }),
                Ratio::of("p99.9 against that of the best", row.targets.tail, (&all[best_own], of(&kernel[0])), |it| {
                    it.p999
                }),
            ],
            own: own[best_own].name(),
            kernel: kernel.map(|mode| mode.name()),
            modes: modes.iter().map(Mode::name).zip(all).collect(),
        })
    }

    /// The kernel's loopback and sockmap, each in the better of two ways to wait.
    fn others(&self, options: &Options) -> Result<Vec<Value>, String> {
        let mut others = Vec::new();
        for path in ["loopback", "sockmap"] {
            for (workload, clients) in [("rr-200-1000", 1), ("rr-200-1000", 10), ("crr-64-8k", 10), ("strg-20m", 10)] {
                let row = Row { workload, clients, ..PLAIN };
                let mut best: Option<(&str, Figures)> = None;
                for wait in ["block", "poll"] {
                    let level = "cubic".to_owned();
                    let mode = Mode { path, processes: false, wait, level, write: "128k", mtu: MTU, one_cpu: false };
                    let figures = self.trials(&row, &[&mode], options.seconds).ok().and_then(|all| *all.first()?);
                    if let Some(figures) = figures
                        && best.is_none_or(|(_, best)| figures.rate > best.rate)
                    {
                        best = Some((wait, figures));
                    }
                }
                if let Some((wait, Figures { rate, cpu, p99, .. })) = best {
                    others.push(json!({ "path": path, "workload": workload, "clients": clients, "wait": wait,
                        "rate": rate, "cpu": cpu, "p99_us": p99 }));
                }
            }
        }
        Ok(others)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn cpu(trials: &[Figures]) -> f64 {
    median(&mut trials.iter().map(|figures| figures.cpu).collect::<Vec<_>>())
}

/// A ratio over all rounds.
struct Ratio {
    what: &'static str,
    target: Option<f64>,
    median: f64,
    least: f64,
    most: f64,
}

impl Ratio {
    fn of(
        what: &'static str,
        target: Option<f64>,
        (own, kernel): (&[Figures], &[Figures]),
        figure: impl Fn(&Figures) -> f64,
    ) -> Self {
        let mut ratios: Vec<f64> = own.iter().zip(kernel).map(|(own, kernel)| figure(own) / figure(kernel)).collect();
        ratios.retain(|ratio| ratio.is_finite());
        if ratios.is_empty() {
            ratios.push(f64::NAN);
        }
        let median = median(&mut ratios);
        Self { what, target, median, least: ratios[0], most: ratios[ratios.len() - 1] }
    }

    /// Rates are to be at least what was aimed at, costs at most. None where nothing was aimed at, or most rounds have no figure:
    /// a percentile that so few units do not tell.
    fn is_met(&self) -> Option<bool> {
        let target = self.target.filter(|_| !self.median.is_nan())?;
        let is_cost = ["CPU", "p99"].iter().any(|cost| self.what.starts_with(cost));
        Some(if is_cost { self.median <= target } else { self.median >= target })
    }
}

/// What came out of a row.
struct Outcome {
    name: String,
    unit: &'static str,
    ratios: Vec<Ratio>,
    /// What of siga's is set against the kernel's best.
    own: String,
    /// The kernel's best, its best that sleeps, its cheapest.
    kernel: [String; 3],
    modes: Vec<(String, Vec<Figures>)>,
}

impl Outcome {
    fn text(&self) -> String {
        let mut out = format!("\n{}\n", self.name);
        // A percentile of a stream is nothing that anybody measures or asks for.
        for ratio in self.ratios.iter().filter(|ratio| ratio.target.is_some() || !ratio.median.is_nan()) {
            let target = match (ratio.target, ratio.is_met()) {
                (Some(target), Some(true)) => format!("target {target}: met"),
                (Some(target), Some(false)) => format!("target {target}: MISSED"),
                (Some(target), None) => format!("target {target}: too few units to tell"),
                (None, _) => String::new(),
            };
            let Ratio { what, median, least, most, .. } = ratio;
            let _ = writeln!(out, "  {what:<34} {median:>7.2}  {least:.2} to {most:.2}  {target}");
        }
        let [best, blocking, cheapest] = &self.kernel;
        let _ = writeln!(out, "  {}; kernel's best: {best}; sleeping: {blocking}; cheapest: {cheapest}", self.own);
        for (name, trials) in &self.modes {
            let rate = median(&mut trials.iter().map(|trial| trial.rate).collect::<Vec<_>>());
            let _ = writeln!(out, "    {rate:>12.0} {}  {:>9.3} us a unit  {name}", self.unit, cpu(trials) * 1e3);
        }
        out
    }

    fn json(&self) -> Value {
        let ratios = self.ratios.iter().map(|ratio| {
            let Ratio { what, target, median, least, most } = ratio;
            json!({ "what": what, "target": target, "met": ratio.is_met(), "median": median, "least": least, "most": most })
        });
        let modes = self.modes.iter().map(|(name, trials)| {
            let trials = trials.iter().map(
                |trial| json!({ "rate": trial.rate, "cpu_ms": trial.cpu, "p99_us": trial.p99, "p999_us": trial.p999 }),
            );
            json!({ "mode": name, "trials": trials.collect::<Vec<_>>() })
        });
        json!({
            "row": self.name,
            "unit": self.unit,
            "own": self.own,
            "kernel": { "best": self.kernel[0], "blocking": self.kernel[1], "cheapest": self.kernel[2] },
            "ratios": ratios.collect::<Vec<_>>(),
            "modes": modes.collect::<Vec<_>>(),
        })
    }
}

/// A process that takes all the CPU time it gets; ended when dropped.
struct Hog(Child);

impl Hog {
    fn start() -> Result<Self, String> {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Self).map_err(|error| format!("cannot start a busy process: {error}"))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_to_be_at_least_its_target_and_a_cost_at_most() {
        let trials = |rate: f64| [Figures { rate, cpu: 1.0 / rate, ..Figures::default() }; 3];
        let (own, kernel) = (trials(3.0), trials(2.0));
        let rate = Ratio::of("rate", Some(1.5), (&own, &kernel), |it| it.rate);
        let cost = |target| Ratio::of("CPU a unit", Some(target), (&own, &kernel), |it| it.cpu);
        assert_eq!((rate.median, rate.is_met()), (1.5, Some(true)));
        assert_eq!((cost(0.7).is_met(), cost(0.6).is_met()), (Some(true), Some(false)));
        let untold = Figures { p99: f64::NAN, ..Figures::default() };
        let p99 = Ratio::of("p99", Some(1.0), (&[untold; 3], &[untold; 3]), |it| it.p99);
        assert!(p99.median.is_nan() && p99.is_met().is_none(), "nobody measured it");
    }

    #[test]
    fn the_kernel_has_all_its_modes_where_it_is_free() {
        let levels = ["cubic", "reno", "bigtcp", "both"].map(str::to_owned);
        let modes = |row: &Row| row.kernel_modes(&levels).len();
        assert_eq!((modes(&ROWS[0]), modes(&ROWS[5]), modes(&ROWS[7])), (16, 64, 8));
    }
}
