//! Compares siga's own network with the kernel's, cell by cell: the path of Figure 1 with the kernel's routed path in its best
//! modes.
//!
//! In each cell, a screening measures each mode of the kernel's path once. A mode combines process layout, waiting policy,
//! congestion control, BIG TCP, write size, MTU, and in CRR the side that closes first. The fastest mode of each waiting policy is
//! then measured with both ends on one CPU, with a CPU for each end, and in streams with threaded NAPI. In RR and CRR, the
//! fastest modes with epoll are also measured with io_uring instead (decision 030). Cells that differ only in siga's part share
//! a screening. The screening has three winners: the best rate, the best rate of a blocking mode that the scheduler places, and the
//! least CPU time per unit. The winners are measured again, interleaved with siga's modes. The result is the median over the rounds
//! of the ratio within a round, with the minimum and the maximum.
//!
//! siga co-locates its blocking processes, so the kernel's best blocking mode is also compared on one CPU. The kernel's loopback and sockmap, which have no router, are separate rows. The report shows
//! targets next to the results; a missed target does not make the task fail. A row that cannot be measured states the reason. The
//! result file is written after each row. The task needs a quiet host; only sockmap needs root.

mod outcome;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::{Value, json};

use super::attacked::{self, Attack};
use super::disturb::{self, Disturber};
use super::figures::{Figures, Ratio, middle};
use super::hog::Hog;
use super::record::Record;
use super::{build, laboratory, ports, scratch};
use crate::command;
use outcome::{Outcome, Screened};
use rows::{FRAMES, IO_URING, Mode, Placement, ROWS, Row};

/// The options of the comparison.
pub(crate) struct Options {
    /// The number of rounds of each cell.
    pub(crate) rounds: u32,
    /// The duration of each measurement, in seconds.
    pub(crate) seconds: f64,
    /// Only rows whose name contains this text are measured.
    pub(crate) only: String,
    /// Whether the kernel is also measured with the settings of [`Bench::other_levels`].
    pub(crate) all_axes: bool,
    /// Whether the disturbing program runs meanwhile.
    pub(crate) disturbed: bool,
    /// The JSON file for the result.
    pub(crate) out: PathBuf,
}

/// Runs the comparison, prints the table and writes the result file.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name().contains(&options.only)).collect();
    let attacks: Vec<Attack> =
        attacked::ATTACKS.into_iter().filter(|attack| attack.name.contains(&options.only)).collect();
    let sizes = ports::NAME.contains(&options.only);
    if rows.is_empty() && attacks.is_empty() && !sizes {
        let attacked = attacked::ATTACKS.iter().map(|attack| attack.name).chain([ports::NAME]).map(str::to_owned);
        let names: Vec<String> = ROWS.iter().map(Row::name).chain(attacked).collect();
        return Err(format!("no row's name contains \"{}\"; the rows are {}", options.only, names.join("; ")));
    }
    let mut bench = Bench::new(build(root)?, options.all_axes)?;
    let beside = if options.disturbed { ", beside a program that takes a tenth of each CPU" } else { "" };
    let settings = json!({ "rounds": options.rounds, "seconds": options.seconds, "disturbed": options.disturbed });
    let environment = laboratory::environment(&bench.siga, &bench.directory)?;
    let mut result = Record::new("siga/bench/2", root, environment, settings);
    let _disturber = options.disturbed.then(|| Disturber::start(disturb::SECONDS_MAX)).transpose()?;
    let mut text = result.head(beside);
    eprint!("{text}");
    for (at, row) in rows.iter().enumerate() {
        eprintln!("{}/{} {}  ({})", at + 1, rows.len(), row.name(), result.elapsed());
        let (lines, json) = match bench.measure(row, options) {
            Ok(outcome) => (outcome.text(), outcome.json()),
            Err(reason) => {
                let lines = format!("\n{}\n  skipped, because {reason}\n", row.name());
                (lines, json!({ "row": row.name(), "skipped": reason }))
            }
        };
        eprint!("{lines}");
        text += &lines;
        result.rows.push(json);
        result.write(&options.out, at + 1 == rows.len() && attacks.is_empty() && !sizes)?;
    }
    for (at, attack) in attacks.iter().enumerate() {
        let measured = attacked::measure(root, &bench.siga, *attack, (options.rounds, options.seconds));
        let (lines, json) = match measured {
            Ok(measured) => measured,
            Err(reason) if attack.needs_namespaces() => {
                let lines = format!("\n{}\n  skipped, because {reason}\n", attack.name);
                (lines, json!({ "row": attack.name, "skipped": reason }))
            }
            Err(reason) => return Err(reason),
        };
        eprint!("{lines}");
        text += &lines;
        result.rows.push(json);
        result.write(&options.out, at + 1 == attacks.len() && !sizes)?;
    }
    if sizes {
        let (lines, json) = ports::measure(root, &bench.siga, (options.rounds, options.seconds))?;
        eprint!("{lines}");
        text += &lines;
        result.rows.push(json);
        result.write(&options.out, true)?;
    }
    text += &format!("\n{} rows in {}\n", result.rows.len(), result.elapsed());
    command::print(&text)
}

/// The program that measures, with the files and screenings that all rows share.
struct Bench {
    siga: PathBuf,
    directory: PathBuf,
    /// The levels with which the kernel's path is measured.
    levels: Vec<String>,
    /// Levels with which the fastest modes of the kernel's path are measured in addition, if all axes are wanted. Decision 030 found
    /// none of them faster in any row.
    other_levels: Vec<String>,
    /// The level of siga's network that turns large segments off.
    frames: String,
    /// Two CPUs on which this process may run; one CPU twice if there is no other.
    cpus: [String; 2],
    screened: Vec<Screening>,
}

/// A screening of the kernel's modes, and the conditions under which it was measured.
struct Screening {
    workload: &'static str,
    clients: u32,
    hog: bool,
    /// The modes that the scheduler places, from which the others follow.
    modes: Vec<Mode>,
    found: Vec<Screened>,
}

impl Bench {
    fn new(siga: PathBuf, all_axes: bool) -> Result<Self, String> {
        let directory = scratch(&siga);
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
        let allowed = sched_getaffinity(None).map_err(|error| format!("cannot find the CPUs of this host: {error}"))?;
        let mut other_levels = Vec::new();
        if all_axes {
            for (name, settings) in OTHER_LEVELS {
                other_levels.push(level(name, settings)?);
            }
        }
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let first = cpus.next().unwrap_or(0);
        let cpus = [first, cpus.next().unwrap_or(first)].map(|cpu| cpu.to_string());
        Ok(Self { siga, levels, other_levels, frames, cpus, directory, screened: Vec::new() })
    }

    /// Measures one trial of each of `modes`, which may differ only in level and MTU.
    fn trials(&self, row: &Row, modes: &[&Mode], seconds: f64) -> Result<Vec<Result<Figures, String>>, String> {
        let Some(first) = modes.first() else { return Ok(Vec::new()) };
        let list = |mut items: Vec<String>| {
            items.sort();
            items.dedup();
            items.join(",")
        };
        let what = |command: &mut Command| {
            command.args(["--path", first.path, "--workload", row.workload, "--wait", first.wait]);
            command.args(["--write", first.write, "--clients", &row.clients.to_string(), "--close", first.close]);
            command.args(["--level", &list(modes.iter().map(|mode| mode.level.clone()).collect())]);
            command.args(["--mtu", &list(modes.iter().map(|mode| mode.mtu.to_string()).collect())]);
            if first.processes {
                command.arg("--processes");
            }
            let [one, other] = &self.cpus;
            match first.placement {
                Placement::Scheduler => {}
                Placement::OneCpu => _ = command.args(["--client-cpus", one, "--server-cpus", one]),
                Placement::Apart => _ = command.args(["--client-cpus", one, "--server-cpus", other]),
            }
        };
        let json = laboratory::run(&self.siga, &self.directory, what, seconds)
            .map_err(|error| format!("{}: {error}", first.name()))?;
        let cells = json["cells"].as_array().map_or(&[][..], Vec::as_slice);
        let of = |mode: &&Mode| {
            let is = |cell: &&Value| cell["level"] == *mode.level_name() && cell["mtu"] == mode.mtu;
            let figures =
                cells.iter().find(is).map_or(Err("siga printed no cell for this row".to_owned()), Figures::of);
            figures.map_err(|reason| format!("{}: {reason}", mode.name()))
        };
        Ok(modes.iter().map(of).collect())
    }

    /// Measures each of the kernel's modes once. Rows that need the same screening share one.
    fn screen(&mut self, row: &Row, seconds: f64) -> Result<Vec<Screened>, String> {
        let modes = row.kernel_modes(&self.levels);
        let Row { workload, clients, hog, .. } = *row;
        let is_same = |screening: &&Screening| {
            (screening.workload, screening.clients, screening.hog) == (workload, clients, hog)
                && screening.modes == modes
        };
        if let Some(screening) = self.screened.iter().find(is_same) {
            return Ok(screening.found.clone());
        }
        let mut found: Vec<Screened> = Vec::new();
        for group in modes.chunk_by(|one, other| {
            (one.processes, one.wait, one.write, one.close) == (other.processes, other.wait, other.write, other.close)
        }) {
            let group: Vec<&Mode> = group.iter().collect();
            let figures = self.trials(row, &group, seconds)?;
            found.extend(group.into_iter().cloned().zip(figures));
        }
        for mode in variations(&found, row.further_level(), &self.other_levels) {
            let figures = self.trials(row, &[&mode], seconds)?;
            found.extend(figures.into_iter().map(|figures| (mode.clone(), figures)));
        }
        self.screened.push(Screening { workload, clients, hog, modes, found: found.clone() });
        Ok(found)
    }

    fn measure(&mut self, row: &Row, options: &Options) -> Result<Outcome, String> {
        let _hog = row.hog.then(Hog::start).transpose()?;
        let screened = self.screen(row, options.seconds / 3.0)?;
        let kernel = winners(&screened)?;
        let mut modes = row.own_modes(&self.frames);
        let own = modes.len();
        let together = row.is_routed().then(|| Mode { placement: Placement::OneCpu, ..kernel[1].clone() });
        for mode in kernel.iter().chain(&together) {
            if !modes.contains(mode) {
                modes.push(mode.clone());
            }
        }
        let mut all = vec![Vec::new(); modes.len()];
        for round in 0..options.rounds {
            for at in 0..modes.len() {
                // Each round begins with a different mode.
                let at = (at + usize::try_from(round).unwrap_or(0)) % modes.len();
                all[at].extend(self.trials(row, &[&modes[at]], options.seconds)?.pop().transpose()?);
            }
        }
        Ok(Comparison { row, modes, all, own, together }.outcome(options.rounds, screened))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Settings that made the kernel's path faster in no row so far: receive packet steering, generic receive offload (with it, veth uses
/// NAPI), and buffers of 4 MB.
const OTHER_LEVELS: [(&str, &str); 3] = [
    ("rps", "congestion = \"cubic\"\nsysctl = { \"net.core.rps_default_mask\" = \"3\" }\n"),
    ("gro", "congestion = \"cubic\"\ngro = true\n"),
    (
        "buffers",
        "congestion = \"cubic\"\nsysctl = { \"net.ipv4.tcp_rmem\" = \"4096 4194304 16777216\", \"net.ipv4.tcp_wmem\" = \"4096 4194304 16777216\" }\n",
    ),
];

/// Returns the fastest mode of each waiting policy on the kernel's routed path, with both placements of the ends, with the level
/// `further`, and with each of `others`. io_uring replaces epoll, so its level goes with the fastest mode that uses epoll.
fn variations(screened: &[Screened], further: &str, others: &[String]) -> Vec<Mode> {
    let fastest = |wait: &str, needs_epoll: bool| {
        let of_policy = screened.iter().filter(|(mode, _)| mode.wait == wait && mode.is_routed());
        let of_policy = of_policy.filter(|(mode, _)| !(needs_epoll && mode.processes));
        let measured = of_policy.filter_map(|(mode, figures)| Some((mode, figures.as_ref().ok()?.rate)));
        measured.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(mode, _)| mode)
    };
    let of_policy = |wait: &'static str| {
        let mode = fastest(wait, false);
        let placed = mode
            .into_iter()
            .flat_map(|mode| [Placement::OneCpu, Placement::Apart].map(|placement| Mode { placement, ..mode.clone() }));
        let with = |mode: &Mode, level: &str| Mode { level: level.to_owned(), ..mode.clone() };
        let further = fastest(wait, further == IO_URING).map(|mode| with(mode, further));
        let others = mode.into_iter().flat_map(move |mode| others.iter().map(move |level| with(mode, level)));
        placed.chain(further).chain(others).collect::<Vec<_>>()
    };
    ["block", "poll"].into_iter().flat_map(of_policy).collect()
}

/// Returns the modes that are measured again: the fastest, the fastest that blocks and that the scheduler places, and the one with
/// the least CPU time per unit.
fn winners(screened: &[Screened]) -> Result<[Mode; 3], String> {
    let found = || screened.iter().filter_map(|(mode, figures)| Some((mode, figures.as_ref().ok()?)));
    let by_rate = |one: &(&Mode, &Figures), other: &(&Mode, &Figures)| one.1.rate.total_cmp(&other.1.rate);
    let best = found().max_by(by_rate);
    let blocking = found().filter(|(mode, _)| mode.blocks() && mode.placement == Placement::Scheduler).max_by(by_rate);
    let cheapest = found().min_by(|one, other| one.1.cpu.total_cmp(&other.1.cpu));
    match (best, blocking, cheapest) {
        (Some(best), Some(blocking), Some(cheapest)) => Ok([best, blocking, cheapest].map(|(mode, _)| mode.clone())),
        _ => {
            let reason = screened.iter().find_map(|(_, figures)| figures.as_ref().err());
            Err(reason.cloned().unwrap_or_else(|| "the kernel's path has no figure".to_owned()))
        }
    }
}

/// Returns which of the kernel's modes is the fastest, the fastest that blocks and that the scheduler places, and the one with the least
/// CPU time per unit, by the medians of the rounds. The short trials of the screening can pick another one. The kernel's best is the
/// best of all that the rounds measured, so this choice can only favour the kernel.
fn again(modes: &[Mode], all: &[Vec<Figures>]) -> [usize; 3] {
    let most = |is: &dyn Fn(&Mode) -> bool, figure: fn(&Figures) -> f64| {
        let allowed = (0..modes.len()).filter(|at| is(&modes[*at]));
        allowed.max_by(|one, other| middle(&all[*one], figure).total_cmp(&middle(&all[*other], figure))).unwrap_or(0)
    };
    let is_placed = |mode: &Mode| mode.blocks() && mode.placement == Placement::Scheduler;
    [most(&|_| true, |it| it.rate), most(&is_placed, |it| it.rate), most(&|_| true, |it| -it.cpu)]
}

/// The trials of one row.
struct Comparison<'a> {
    row: &'a Row,
    /// siga's modes, followed by the kernel's.
    modes: Vec<Mode>,
    all: Vec<Vec<Figures>>,
    /// The number of siga's modes in `modes`.
    own: usize,
    /// The kernel's best blocking mode, with client and server on one CPU.
    together: Option<Mode>,
}

impl Comparison<'_> {
    fn outcome(self, rounds: u32, screened: Vec<Screened>) -> Outcome {
        let Self { row, modes, all, own, together } = self;
        let of = |wanted: &Mode| modes.iter().position(|mode| mode == wanted).map_or(&[][..], |at| &all[at][..]);
        let kernel = again(&modes[own..], &all[own..]);
        let [best, blocking, cheapest] = kernel.map(|at| &all[own + at][..]);
        let together = together.as_ref().map_or(&[][..], of);
        let (polling, own_blocking) = (&all[0], &all[own - 1]);
        let least = |figure: fn(&Figures) -> f64| {
            let least =
                (0..own).min_by(|one, other| middle(&all[*one], figure).total_cmp(&middle(&all[*other], figure)));
            least.unwrap_or(0)
        };
        let own_cheapest = &all[least(|it| it.cpu)];
        let counts = if row.own_best_counts() { least(|it| -it.rate) } else { 0 };
        let own_best = &all[counts];
        let targets = row.targets;
        Outcome {
            name: row.name(),
            unit: if row.streams() { "MB/sec" } else { "trans/sec" },
            rounds,
            ratios: vec![
                Ratio::of("rate against the kernel's best", targets.best, (own_best, best), |it| it.rate),
                Ratio::of("rate, polling, against blocking", targets.blocking, (polling, blocking), |it| it.rate),
                Ratio::of("rate, blocking against blocking", targets.alike, (own_blocking, blocking), |it| it.rate),
                Ratio::of("the same, the kernel on one CPU", None, (own_blocking, together), |it| it.rate),
                Ratio::of("CPU a unit against the cheapest", targets.cpu, (own_cheapest, cheapest), |it| it.cpu),
                Ratio::of("p99 against that of the best", targets.tail, (own_best, best), |it| it.p99),
                Ratio::of("p99.9 against that of the best", targets.tail, (own_best, best), |it| it.p999),
            ],
            own: modes[counts].name(),
            kernel: kernel.map(|at| modes[own + at].name()),
            modes: modes.iter().map(Mode::name).zip(all).collect(),
            screened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rounds_decide_which_of_the_kernels_modes_is_the_best() {
        let modes = ROWS[0].kernel_modes(&["cubic", "reno"].map(str::to_owned));
        let placed = modes.iter().find(|mode| mode.blocks()).unwrap();
        let modes = [placed.clone(), Mode { placement: Placement::OneCpu, ..placed.clone() }];
        let rounds = |rates: [f64; 3], cpu: f64| rates.map(|rate| Figures { rate, cpu, ..Figures::default() }).to_vec();
        assert_eq!(again(&modes, &[rounds([9.0, 1.0, 2.0], 4.0), rounds([3.0, 3.0, 3.0], 5.0)]), [1, 0, 0]);
        assert_eq!(again(&modes, &[rounds([4.0, 4.0, 1.0], 6.0), rounds([3.0, 3.0, 3.0], 5.0)]), [0, 0, 1]);
    }

    #[test]
    fn the_winners_are_the_best_the_best_that_blocks_and_the_cheapest_or_a_reason() {
        let modes = ROWS[0].kernel_modes(&["cubic", "reno"].map(str::to_owned));
        let figures = |at: usize| match at {
            0 => Err("no such level".to_owned()),
            _ => Ok(Figures { rate: f64::from(u8::try_from(at).unwrap()), cpu: 1.0, ..Figures::default() }),
        };
        let mut screened: Vec<Screened> = modes.into_iter().enumerate().map(|(at, mode)| (mode, figures(at))).collect();
        screened[5].1 = Ok(Figures { rate: 0.5, cpu: 0.1, ..Figures::default() });
        let [best, blocking, cheapest] = winners(&screened).unwrap();
        let last_that_blocks = screened.iter().rposition(|(mode, _)| mode.blocks()).unwrap();
        let expected = [screened.len() - 1, last_that_blocks, 5].map(|at| screened[at].0.name());
        assert_eq!([best, blocking, cheapest].map(|mode| mode.name()), expected);
        let with_levels = variations(&screened, IO_URING, &["rps.toml".to_owned()]);
        let of_level = |name: &str| with_levels.iter().filter(|mode| mode.level_name() == name).collect::<Vec<_>>();
        assert_eq!((with_levels.len(), of_level("rps").len()), (8, 2));
        let with_io_uring = of_level(IO_URING);
        assert!(with_io_uring.len() == 2 && with_io_uring.iter().all(|mode| !mode.processes));
        let mut on_cpus = variations(&screened, "threaded-napi", &[]);
        let threaded: Vec<Mode> = on_cpus.extract_if(.., |mode| mode.level == "threaded-napi").collect();
        assert!(threaded.len() == 2 && threaded.iter().all(|mode| mode.processes), "that of the fastest modes");
        assert_eq!(on_cpus.len(), 4);
        let wanted = [expected[1].clone(), expected[0].clone()];
        let wanted = wanted.map(|name| [", on one CPU", ", on two CPUs"].map(|place| format!("{name}{place}")));
        assert_eq!(on_cpus.iter().map(Mode::name).collect::<Vec<_>>(), wanted.concat());
        // A mode on one CPU can be the fastest. The fastest that blocks is one that the scheduler places.
        screened
            .extend(on_cpus.into_iter().map(|mode| (mode, Ok(Figures { rate: 99.0, cpu: 1.0, ..Figures::default() }))));
        let [best, blocking, _] = winners(&screened).unwrap();
        assert!(best.placement != Placement::Scheduler && blocking.name() == expected[1]);
        screened.truncate(1);
        assert_eq!(winners(&screened).err().as_deref(), Some("no such level"));
        assert!(variations(&screened, IO_URING, &[]).is_empty());
    }
}
