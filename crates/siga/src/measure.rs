//! `siga run` and `siga plan`.

use crate::again;
use crate::axes::Axes;
use crate::live::Live;
use crate::reach::Reach;
use crate::{note, on, parse, print, print_run};
use clap::Args;
use siga_measure::build::{Builds, check_checkout};
use siga_measure::commands::{self, Step};
use siga_measure::cpu::profile::Profiler;
use siga_measure::memory::MemoryLimit;
use siga_measure::needs::skip_lacking;
use siga_measure::run::{self, Ended, Given, Series, Watch as _};
use siga_measure::topology::Networks;
use siga_measure::{host, interrupt, limits, place};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::plan::Plan;
use siga_report::{Format, Layout};
use siga_results::directory::Directory;
use siga_results::environment::{EMULATED, EMULATED_FIGURES, Environment};
use siga_results::store::{Run, Store};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) axes: Axes,
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Write the results to this directory. With --on, write the run of each place to its own directory inside this
    /// directory. Default: a new directory in runs/.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Resume the interrupted run in this directory. siga keeps the finished trials. If the run uses other hosts,
    /// also set --ssh. If the run measures commands, also repeat all options of the original command line. Default:
    /// start a new run.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "on"])]
    resume: Option<PathBuf>,
    /// Set the output format: text, json, csv or md.
    #[arg(long, default_value = "text", value_parser = parse::<Format>)]
    pub(crate) format: Format,
    /// Set the layout of the tables: plain (siga's own layout) or zvm (the layout of the z/VM performance reports).
    #[arg(long, default_value = "plain", conflicts_with = "on", value_parser = parse::<Layout>)]
    layout: Layout,
    /// During each trial, write one line of JSON per interval to the file series.jsonl in the run directory (a time
    /// series), and the CPU time of each process to monitor.jsonl. TIME is the length of an interval, at least 100ms.
    /// Default: no time series.
    #[arg(long, value_name = "TIME", conflicts_with = "on", value_parser = interval)]
    interval: Option<Duration>,
    /// Also append the time series of --interval to this file. With -, siga writes the time series to standard
    /// output, and the report to standard error. Default: write the time series only to the run directory.
    #[arg(long, value_name = "FILE", requires = "interval")]
    series: Option<PathBuf>,
}

/// Parses the interval of a time series.
fn interval(text: &str) -> std::result::Result<Duration, String> {
    let range = limits::INTERVAL_MIN..=Duration::from_secs(3_600);
    let time = humantime::parse_duration(text).ok().filter(|time| range.contains(time));
    time.ok_or_else(|| "use a time from 100ms to 1h, such as 1s".into())
}

/// Opens the outputs of the time series, if the user wants one.
fn series(args: &RunArgs, store: &Store) -> Result<Option<Series>> {
    let Some(interval) = args.interval else { return Ok(None) };
    let copy: Option<(String, Box<dyn std::io::Write>)> = match &args.series {
        None => None,
        Some(file) if file.as_os_str() == "-" => Some(("standard output".into(), Box::new(std::io::stdout()))),
        Some(file) => {
            let name = file.display().to_string();
            let output = Directory::around(file).and_then(|(directory, entry)| directory.append(entry));
            let output = output.context(format!("cannot write {name}"))?;
            Some((name, Box::new(output)))
        }
    };
    Ok(Some(Series { interval, file: store.series()?, monitor: store.monitor()?, copy }))
}

/// A run that is ready to be measured.
struct Begun {
    store: Store,
    run: Run,
    /// The command that reaches other hosts.
    ssh: String,
    builds: Builds,
    networks: Networks,
    profiler: Option<Profiler>,
    limit: Option<MemoryLimit>,
}

/// Measures, then prints the report.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    interrupt::catch_interrupts()?;
    if !args.reach.on.is_empty() {
        return on::run(args);
    }
    let environment = host::environment();
    announce(&environment);
    let mut live = Live::new(environment.is_emulated());
    let Begun { mut store, run: mut so_far, ssh, builds, networks, profiler, limit } = match &args.resume {
        Some(directory) => {
            let (store, mut run) = Store::resume(directory, &environment)?;
            run.plan = again::plan(&args.axes, run.plan, directory)?;
            let matrix = run.plan.matrix()?;
            let ssh = args.reach.command_again(&run.plan.hosts(&matrix), directory)?;
            let builds = Builds::open(&matrix, args.reach.checkout.as_deref(), &mut |text| live.note(text))?;
            builds.check_same(&run.paths)?;
            let networks = Networks::open(&matrix, &run.plan)?;
            let limit = MemoryLimit::set(&run.plan)?;
            let profiler = run::profiler(&run.plan, &mut live)?;
            Begun { store, run, ssh, builds, networks, profiler, limit }
        }
        None => start(args, &environment, &mut live)?,
    };
    for damage in so_far.damage.drain(..) {
        note(&format!("note: {damage}"));
    }
    if !run::is_commands_only(&so_far.plan) {
        // A command inherits the limit, so its runs keep that of the user.
        place::raise_descriptor_limit();
    }
    let series = series(args, &store)?;
    let given = Given { ssh: &ssh, builds: &builds, networks: &networks };
    let has_samples = series.is_some();
    let ended = run::run(&mut store, so_far, given, profiler, series, &mut live);
    live.end();
    if let Some(limit) = limit {
        note(&limit.words());
    }
    let mut ended = ended?;
    if has_samples {
        ended.run.monitor = Run::load(&ended.run.directory)?.monitor;
    }
    if args.series.as_ref().is_some_and(|file| file.as_os_str() == "-") {
        note(&siga_report::render(&ended.run, args.format, args.layout, ended.run.plan.accounting)?);
    } else {
        print_run(&ended.run, args.format, args.layout, ended.run.plan.accounting)?;
    }
    match ended.cut_short {
        Some(error) => Err(error),
        None => verdict(&ended),
    }
}

/// Says on standard error that this machine is emulated, if it is.
pub(crate) fn announce(environment: &Environment) {
    if environment.is_emulated() {
        note(&format!("note: {EMULATED}: {EMULATED_FIGURES}"));
    }
}

/// Fails if a trial or a cell has no figure.
pub(crate) fn verdict(ended: &Ended) -> Result<()> {
    let Ended { run, failed, died, .. } = ended;
    let matrix = run.plan.matrix()?;
    let all = matrix.cells.len() + matrix.skipped.len();
    let missing = all - run.cells().len();
    let text = format!("{missing} of {all} cells have no figure");
    let again =
        || format!("the report lists the reasons; try again with `siga run --resume {}`", run.directory.display());
    match (missing, failed) {
        (0, 0) => Ok(()),
        (0, 1) => Err(Error::incomplete("siga could not compute the figures of 1 trial").hint(again())),
        (0, _) => {
            Err(Error::incomplete(format!("siga could not compute the figures of {failed} trials")).hint(again()))
        }
        (..) => {
            let measured = run.cells();
            let lost = matrix.cells.iter().filter(|cell| !measured.contains(cell));
            let (commands, paths): (Vec<_>, Vec<_>) = lost.partition(|cell| cell.workload.is_command());
            let hint = match (commands.as_slice(), paths.as_slice()) {
                ([_, ..], []) => {
                    "the report lists the reasons; start the command by hand to find the error, then change the command or the plan".to_owned()
                }
                (..) if *died > 0 => again(),
                ([], _) if missing == all => "`siga doctor` lists what this host lacks".to_owned(),
                (..) => "the report lists the reasons; `siga doctor` lists what this host lacks".to_owned(),
            };
            let error = if missing == all && commands.is_empty() && *died == 0 {
                Error::environment(text)
            } else {
                Error::incomplete(text)
            };
            Err(error.hint(hint))
        }
    }
}

/// Checks the plan and what it needs, then makes its run directory.
fn start(args: &RunArgs, environment: &Environment, live: &mut Live) -> Result<Begun> {
    let mut plan = args.axes.plan()?;
    let matrix = plan.matrix()?;
    let ssh = args.reach.of_plan(&plan, &matrix)?;
    let builds = Builds::open(&matrix, args.reach.checkout.as_deref(), &mut |text| live.note(text))?;
    let networks = Networks::open(&matrix, &plan)?;
    let now = SystemTime::now();
    seed(&mut plan, now);
    let limit = MemoryLimit::set(&plan)?;
    let profiler = run::profiler(&plan, live)?;
    let (store, run) = match &args.out {
        Some(directory) => Store::create(directory, &plan, environment)?,
        None => Store::create_unused(&new_directory(&plan, now), &plan, environment)?,
    };
    Ok(Begun { store, run, ssh, builds, networks, profiler, limit })
}

/// Sets the seed of a plan that has none.
pub(crate) fn seed(plan: &mut Plan, now: SystemTime) {
    if plan.seed.is_none() {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // The seed must fit into TOML's signed integers, because the plan is written to the run directory.
        plan.seed = Some(u64::from(since.subsec_nanos()));
    }
}

/// Returns a path such as `runs/20261120-104133-default`.
pub(crate) fn new_directory(plan: &Plan, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string();
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    Path::new("runs").join(format!("{}-{}-{}", &digits[..8], &digits[8..], file_name(&plan.name)))
}

/// Returns a name for a file: letters and digits, and a hyphen for each other character.
pub(crate) fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Lists the cells of a matrix, below the heading of each table of the plan. A cell of several tables is below the first of them.
fn cells(plan: &Plan, matrix: &Matrix) -> String {
    let measured = matrix.cells.iter().map(|cell| (cell, None));
    let mut cells: Vec<(&Cell, Option<&String>)> =
        measured.chain(matrix.skipped.iter().map(|(cell, reason)| (cell, Some(reason)))).collect();
    let mut out = String::new();
    let mut list = |heading: String, some: Vec<(&Cell, Option<&String>)>| {
        out += &heading;
        for (cell, reason) in some {
            let reason = reason.map(|reason| format!(": skipped: {reason}")).unwrap_or_default();
            let _ = writeln!(out, "{cell}{reason}");
        }
    };
    for table in &plan.table {
        let levels = table.level_names(plan, &matrix.levels);
        let (own, others) = cells.into_iter().partition(|(cell, _)| table.has(plan, &levels, cell));
        cells = others;
        list(format!("Table {}. {}\n", table.id, table.title), own);
    }
    let heading = if plan.table.is_empty() || cells.is_empty() { "" } else { "Other cells\n" };
    list(heading.to_owned(), cells);
    out
}

/// Prints the matrix of a plan, its duration, and the commands that it executes.
pub(crate) fn plan(axes: &Axes, reach: &Reach) -> Result<()> {
    announce(&host::environment());
    let plan = axes.plan()?;
    let mut matrix = plan.matrix()?;
    check_checkout(&matrix, reach.checkout.as_deref())?;
    Networks::open(&matrix, &plan)?;
    skip_lacking(&plan, &mut matrix);
    let steps = commands::of(&plan, &matrix, &reach.on, &reach.of_plan(&plan, &matrix)?, reach.checkout.as_deref())?;
    let run::Extent { rounds, time, .. } = run::estimate(&plan, &matrix);
    let mut out = String::new();
    if !plan.question.is_empty() {
        let _ = writeln!(out, "{}\n", plan.question);
    }
    out += &cells(&plan, &matrix);
    let words = |time: Duration| humantime::format_duration(Duration::from_secs(time.as_secs().max(1))).to_string();
    let (least, most) = (words(time.0), words(time.1));
    let cells = matrix.cells.len();
    let longer = if matrix.cells.iter().any(|cell| cell.workload.is_command()) {
        format!(", or longer if an execution of a command takes more than {} s", plan.seconds)
    } else {
        String::new()
    };
    let _ = match rounds {
        (rounds, most_rounds) if rounds == most_rounds => {
            writeln!(out, "\n{cells} cells, {rounds} rounds of trials, duration: about {most}{longer}")
        }
        (fewest, most_rounds) => writeln!(
            out,
            "\n{cells} cells, {fewest} to {most_rounds} rounds of trials (until the comparisons are clear), duration: about {least} to {most}{longer}"
        ),
    };
    out += "\nA run of this plan executes these commands with your permissions:\n";
    for Step { line, about } in steps {
        let _ = writeln!(out, "  {line}\n      {about}");
    }
    for note in plan.waits_otherwise(&matrix).into_iter().chain(run::too_few(&plan, &matrix)) {
        crate::note(&format!("note: {note}"));
    }
    print(&out)
}

#[cfg(test)]
mod tests {
    use siga_plan::level::Level;
    use siga_plan::path::PathKind;
    use siga_plan::path::guest::GuestPath;
    use siga_plan::plan::Plan;

    #[test]
    fn the_help_text_names_every_path_level_and_plan() {
        let paths = PathKind::ALL.map(PathKind::name).into_iter().chain(GuestPath::ALL.map(GuestPath::name));
        for name in paths.chain(Level::names()).chain(Plan::names()) {
            assert!(crate::axes::HELP.split([' ', ',', ':', '\n']).any(|word| word == name), "{name}");
        }
    }
}
