//! Compares unmodified programs under `siga exec` with the same programs on the kernel's sockets: servers with their usual load
//! generators, the laboratory's own driver, and the cost of the preload library itself.
//!
//! All ends sleep while they wait. In each row, a screening first measures the kernel's loopback (or veth) with each placement on
//! CPUs. The fastest mode is measured again, interleaved with the modes of siga and with the kernel's other paths. The result is the
//! median over the rounds of the ratio within a round, with the minimum and the maximum. CPU time is that of the whole host while the
//! client runs, so nothing else may run on the host. The report shows targets next to the results; a missed target does not make the
//! task fail. The task needs root for the kernel's namespaces.

mod costs;
mod driver;
mod loads;
mod places;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::figures::{Figures, Ratio, middle, mode_lines, modes_json, ratio_lines};
use super::record::Record;
use super::{build, laboratory};
use crate::command;
use loads::Load;
use places::{End, Place, Placement, Places};

/// The options of the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; each round measures each configuration of a row once
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Measure only the rows whose name contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// JSON file for the results
    #[arg(long, default_value = "target/bench/programs.json")]
    out: PathBuf,
}

/// A row of the comparison: a load, and the targets for the ratios of siga's figures to the kernel's.
struct Row {
    name: &'static str,
    load: Load,
    /// The kernel's paths among which the best is compared with siga.
    kernel: &'static [Place],
    /// The paths of siga among which the best is compared with the kernel.
    own: &'static [Place],
    /// Least ratio of the rates.
    rate: f64,
    /// Greatest ratio of the CPU time of a unit.
    cpu: Option<f64>,
}

const LOOPBACK: &[Place] = &[Place::Loopback];
const WITH_BIG_TCP: &[Place] = &[Place::Loopback, Place::BigTcp];
const VETH: &[Place] = &[Place::Veth, Place::VethEthernet];
/// One guest stands beside the kernel's loopback.
const OWN: &[Place] = &[Place::OneGuest, Place::TwoGuests, Place::GuestsDirect];
const TWO_GUESTS: &[Place] = &[Place::TwoGuests, Place::GuestsDirect];

const fn over_loopback(name: &'static str, load: Load, rate: f64) -> Row {
    Row { name, load, kernel: LOOPBACK, own: OWN, rate, cpu: None }
}

/// The rows in the order of the report.
const ROWS: [Row; 10] = [
    over_loopback("redis -c 50", Load::Redis { clients: 50, bytes: 3, requests: 50_000 }, 1.3),
    over_loopback("redis -c 200 -d 1024", Load::Redis { clients: 200, bytes: 1_024, requests: 40_000 }, 1.3),
    Row {
        kernel: VETH,
        own: TWO_GUESTS,
        ..over_loopback("redis -c 1 over veth", Load::Redis { clients: 1, bytes: 3, requests: 10_000 }, 1.0)
    },
    over_loopback("nginx, keep-alive", Load::Nginx { close: false, workers: 1 }, 1.3),
    over_loopback("nginx, Connection: close", Load::Nginx { close: true, workers: 1 }, 2.0),
    over_loopback("nginx with 4 workers, Connection: close", Load::Nginx { close: true, workers: 4 }, 1.0),
    over_loopback("memcached", Load::Memcached, 1.3),
    Row { cpu: Some(1.0), ..over_loopback("pgbench -S -c 10", Load::Postgres, 1.0) },
    Row { kernel: WITH_BIG_TCP, ..over_loopback("iperf3, 1 stream", Load::Iperf { streams: 1 }, 0.6) },
    Row { kernel: WITH_BIG_TCP, ..over_loopback("iperf3, 10 streams", Load::Iperf { streams: 10 }, 0.6) },
];

/// Paths that are measured beside those that are compared: the first of each pair is siga's, the second the kernel's.
const BESIDE: [(Place, Place); 2] =
    [(Place::GuestsEthernet, Place::VethEthernet), (Place::GuestsRouted, Place::VethRouted)];

/// The longest time in which a server begins to listen, in seconds.
const START_SECONDS_MAX: u32 = 20;
/// How long a server may take to end.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Connects to a server until it accepts.
const AWAIT: &str = "import socket, sys, time
end = time.monotonic() + float(sys.argv[3])
while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()
        break
    except OSError:
        if time.monotonic() > end:
            raise
        time.sleep(0.02)
";

/// A path with a placement.
type Mode = (Place, Placement);

fn name_of((place, placement): Mode) -> String {
    format!("{}{}", place.name(), placement.name())
}

/// Runs the comparison, prints the table and writes the result file.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name.contains(&options.only)).collect();
    let (with_driver, with_costs) = (driver::NAME.contains(&options.only), costs::NAME.contains(&options.only));
    if rows.is_empty() && !with_driver && !with_costs {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).chain([driver::NAME, costs::NAME]).collect();
        return Err(format!("no row's name contains \"{}\"; the rows are {}", options.only, names.join("; ")));
    }
    let out = root.join(&options.out);
    let bench = Bench::new(build(root)?)?;
    let settings = json!({ "rounds": options.rounds, "seconds": options.seconds });
    let environment = laboratory::environment(&bench.siga, &bench.directory.0)?;
    let mut record = Record::new("siga/bench-programs/1", root, environment, settings);
    let mut text = record.head("");
    eprint!("{text}");
    let mut add = |name: &str, outcome: Result<(String, Value), String>| {
        let (lines, json) = outcome.unwrap_or_else(|reason| {
            (format!("\n{name}\n  skipped, because {reason}\n"), json!({ "row": name, "skipped": reason }))
        });
        eprint!("{lines}");
        text += &lines;
        record.rows.push(json);
        record.write(&out, false)
    };
    for row in rows {
        eprintln!("{}", row.name);
        add(row.name, bench.measure(row, options))?;
    }
    if with_driver {
        add(driver::NAME, driver::measure(root, &bench, options))?;
    }
    if with_costs {
        add(costs::NAME, costs::measure(&bench, options))?;
    }
    record.write(&out, true)?;
    text += &format!("\n{} rows in {}\n", record.rows.len(), record.elapsed());
    command::print(&text)
}

/// A directory that is removed when the value is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program that is measured, and the places.
struct Bench {
    siga: PathBuf,
    places: Places,
    directory: Scratch,
}

impl Bench {
    fn new(siga: PathBuf) -> Result<Self, String> {
        // PostgreSQL's user has to reach the directory.
        let directory = Scratch(std::env::temp_dir().join(format!("siga-bench-{}", std::process::id())));
        fs::create_dir_all(&directory.0).map_err(|error| format!("{}: {error}", directory.0.display()))?;
        Ok(Self { places: Places::build(&siga, &directory.0)?, siga, directory })
    }

    /// Measures a row.
    fn measure(&self, row: &Row, options: &Options) -> Result<(String, Value), String> {
        let load = row.load;
        if let Some(missing) = load.programs().iter().find(|program| !Path::new(program.path).exists()) {
            return Err(format!(
                "the program {} is missing; install Debian's package {}",
                missing.path, missing.package
            ));
        }
        let directory = self.directory.0.join(load.port().to_string());
        load.prepare(&directory)?;
        let screened = self.screen(row, options.seconds, &directory);
        let by_rate = screened.iter().filter_map(|(mode, found)| Some((*mode, found.as_ref().ok()?.rate)));
        let (best, _) = by_rate.max_by(|one, other| one.1.total_cmp(&other.1)).ok_or_else(|| reason(&screened))?;
        let modes = modes_of(row, best);
        let mut all = vec![Vec::new(); modes.len()];
        for round in 0..options.rounds {
            for at in 0..modes.len() {
                // Each round begins with a different mode.
                let at = (at + usize::try_from(round).unwrap_or(0)) % modes.len();
                let figures = self.trial(load, modes[at], options.seconds, &directory);
                all[at].push(figures.map_err(|error| format!("{}: {error}", name_of(modes[at])))?);
            }
        }
        let ratios = ratios(row, best, &modes, &all);
        let modes: Vec<(String, Vec<Figures>)> = modes.into_iter().map(name_of).zip(all).collect();
        let versions = load.versions();
        let lines = format!(
            "\n{}  ({})\n{}{}",
            row.name,
            versions.join("; "),
            ratio_lines(&ratios, options.rounds),
            mode_lines(load.unit(), &modes)
        );
        let screened = screened.iter().map(|(mode, found)| match found {
            Ok(figures) => json!({ "mode": name_of(*mode), "figures": figures.json() }),
            Err(reason) => json!({ "mode": name_of(*mode), "skipped": reason }),
        });
        let json = json!({
            "row": row.name,
            "programs": versions,
            "unit": load.unit(),
            "kernel": name_of(best),
            "ratios": ratios.iter().map(Ratio::json).collect::<Vec<_>>(),
            "modes": modes_json(&modes),
            "screened": screened.collect::<Vec<_>>(),
        });
        Ok((lines, json))
    }

    /// Measures each of the kernel's modes that are candidates for the comparison once.
    fn screen(&self, row: &Row, seconds: u32, directory: &Path) -> Vec<(Mode, Result<Figures, String>)> {
        let placements = [Placement::Scheduler, Placement::OneCpu, Placement::Apart];
        let modes = row.kernel.iter().flat_map(|place| placements.map(|placement| (*place, placement)));
        modes.map(|mode| (mode, self.trial(row.load, mode, seconds, directory))).collect()
    }

    /// Starts the server, runs the client, and returns the figures.
    fn trial(&self, load: Load, mode: Mode, seconds: u32, directory: &Path) -> Result<Figures, String> {
        let (place, placement) = mode;
        let command = |end, program: &[String]| self.places.command(place, placement, end, program);
        let _server = Server::start(command(End::Server, &load.server(directory)))?;
        let port = load.port().to_string();
        let limit = START_SECONDS_MAX.to_string();
        let wait = ["/usr/bin/python3", "-c", AWAIT, place.address(), &port, &limit].map(str::to_owned);
        command::output(command(End::Client, &wait))
            .map_err(|error| format!("the server did not start to listen: {error}"))?;
        let before = busy()?;
        let text = command::output(command(End::Client, &load.client(place, seconds)))?;
        let busy_ms = (busy()? - before) * 1e3;
        let measured = load.read(&text, seconds)?;
        Ok(Figures { rate: measured.rate, cpu: busy_ms / measured.units, p99: measured.p99_us, p999: f64::NAN })
    }
}

/// Returns the modes of siga that are candidates for the comparison. Like the kernel's ends, those of siga may share a CPU.
fn own_modes(row: &Row) -> impl Iterator<Item = Mode> {
    row.own.iter().flat_map(|place| [Placement::Scheduler, Placement::OneCpu].map(|placement| (*place, placement)))
}

/// Returns the modes of a row in the order of the report: siga's, then the kernel's.
fn modes_of(row: &Row, best: Mode) -> Vec<Mode> {
    let mut modes: Vec<Mode> = own_modes(row).collect();
    modes.extend(BESIDE.map(|(own, _)| (own, Placement::Scheduler)));
    modes.push(best);
    for place in [Place::Veth, Place::VethEthernet, Place::Bridge, Place::VethRouted] {
        if !modes.contains(&(place, Placement::Scheduler)) {
            modes.push((place, Placement::Scheduler));
        }
    }
    modes
}

/// Returns the ratios of a row. The mode of siga with the best rate is compared with the best mode of the kernel.
fn ratios(row: &Row, best: Mode, modes: &[Mode], all: &[Vec<Figures>]) -> Vec<Ratio> {
    let of = |wanted: Mode| modes.iter().position(|mode| *mode == wanted).map_or(&[][..], |at| &all[at][..]);
    let scheduled = |place: Place| (place, Placement::Scheduler);
    let rate = |mode: Mode| middle(of(mode), |it| it.rate);
    let own = own_modes(row).max_by(|one, other| rate(*one).total_cmp(&rate(*other))).unwrap_or(best);
    let pair = (of(own), of(best));
    let mut ratios = vec![
        Ratio::of(format!("rate, {}", name_of(own)), Some(row.rate), pair, |it| it.rate),
        Ratio::of(format!("CPU a unit, {}", name_of(own)), row.cpu, pair, |it| it.cpu),
        Ratio::of(format!("p99, {}", name_of(own)), None, pair, |it| it.p99),
    ];
    for place in row.own.iter().filter(|place| **place != own.0) {
        ratios
            .push(Ratio::of(format!("rate, {}", place.name()), None, (of(scheduled(*place)), of(best)), |it| it.rate));
    }
    for (own, kernel) in BESIDE {
        let pair = (of(scheduled(own)), of(scheduled(kernel)));
        ratios.push(Ratio::of(format!("rate, {} over {}", own.name(), kernel.name()), None, pair, |it| it.rate));
    }
    ratios
}

fn reason(screened: &[(Mode, Result<Figures, String>)]) -> String {
    let reason =
        screened.iter().find_map(|(mode, found)| Some(format!("{}: {}", name_of(*mode), found.as_ref().err()?)));
    reason.unwrap_or_else(|| "the kernel's path has no figure".to_owned())
}

/// Returns the CPU time that the host has spent since it started, in seconds, without idle, waiting and stolen time.
fn busy() -> Result<f64, String> {
    let text = fs::read_to_string("/proc/stat").map_err(|error| format!("/proc/stat: {error}"))?;
    let ticks = parse_busy(&text).ok_or("/proc/stat has no line for the CPUs")?;
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

fn parse_busy(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let mut fields = line.split_whitespace().skip(1).map(|field| field.parse::<f64>());
    let [user, nice, system, _idle, _waiting, hardirq, softirq] = [(); 7].map(|()| fields.next()?.ok());
    Some(user? + nice? + system? + hardirq? + softirq?)
}

/// A server. It ends when the value is dropped.
struct Server(Child);

impl Server {
    fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot start the server: {error}"))?;
        Ok(Self(child))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < END_TIME_MAX {
            if matches!(self.0.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_has_neither_idle_nor_stolen_time() {
        assert_eq!(parse_busy("cpu  1 2 4 8 16 32 64 128 0 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n"), Some(103.0));
        assert_eq!(parse_busy("cpu  1 2\n"), None);
    }

    #[test]
    fn the_best_path_of_siga_is_compared_with_the_best_mode_of_the_kernel() {
        let row = &ROWS[0];
        let best = (Place::Loopback, Placement::OneCpu);
        let modes = modes_of(row, best);
        let places = ["one guest", "two guests", "two guests, direct"];
        let names = places.iter().flat_map(|place| ["", ", on one CPU"].map(|cpu| format!("siga, {place}{cpu}")));
        assert_eq!(modes[..6].iter().map(|mode| name_of(*mode)).collect::<Vec<_>>(), names.collect::<Vec<_>>());
        let figures = |rate: f64| vec![Figures { rate, cpu: 1.0, ..Figures::default() }];
        let all: Vec<Vec<Figures>> =
            [2.0, 1.0, 1.0, 3.0, 2.5, 1.0, 4.0, 5.0, 1.5, 8.0, 2.0, 8.0, 10.0].map(figures).into();
        assert_eq!(modes.len(), all.len());
        let text = ratio_lines(&ratios(row, best, &modes, &all), 1);
        for line in [
            "rate, siga, two guests, on one CPU    2.00  2.00 to 2.00  target 1.3: met",
            "rate, siga, one guest                 1.33",
            "rate, siga, two guests, direct        1.67",
            "rate, siga, two guests, MTU 1500 over kernel, veth, MTU 1500    2.00",
            "rate, siga, router over kernel, router    0.50",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
