//! `siga run` and `siga plan`.

use crate::again;
use crate::axes::{Axes, Reach};
use crate::live::Live;
use crate::{note, parse, print, print_run};
use clap::Args;
use siga_measure::commands::{self, Step};
use siga_measure::cpu::profile::Profiler;
use siga_measure::run::{self, Ended, Series};
use siga_measure::{host, interrupt, limits, place};
use siga_model::error::{Error, IoContext, Result};
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
    axes: Axes,
    #[command(flatten)]
    reach: Reach,
    /// Write the run to this directory. Default: a new directory in runs/.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Resume the interrupted run in this directory; finished trials are kept. A run over ssh needs --ssh again, and a
    /// run of commands needs its whole command line again. Default: start a new run.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Set the output format: text, json, csv or md.
    #[arg(long, default_value = "text", value_parser = parse::<Format>)]
    format: Format,
    /// Set the layout of the tables: plain, or zvm for the layout of z/VM's reports.
    #[arg(long, default_value = "plain", value_parser = parse::<Layout>)]
    layout: Layout,
    /// Write a time series while the run goes on: a line of JSON for each interval of each trial, to series.jsonl in the run
    /// directory. The shortest interval is 100ms. Default: none.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    /// Append the time series to this file too, or with - write it to standard output; the report then goes to standard error.
    /// Default: only the run directory.
    #[arg(long, value_name = "FILE", requires = "interval")]
    series: Option<PathBuf>,
}

/// Parses the interval of a time series.
fn interval(text: &str) -> std::result::Result<Duration, String> {
    let range = limits::INTERVAL_MIN..=Duration::from_secs(3_600);
    let time = humantime::parse_duration(text).ok().filter(|time| range.contains(time));
    time.ok_or_else(|| "a time from 100ms to 1h, such as 1s".into())
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
    Ok(Some(Series { interval, file: store.series()?, copy }))
}

/// A run that is ready to be measured.
struct Begun {
    store: Store,
    run: Run,
    /// The command that reaches other hosts.
    ssh: String,
    profiler: Option<Profiler>,
}

/// Measures, then prints the report.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    interrupt::catch_interrupts()?;
    let environment = host::environment();
    announce(&environment);
    let mut live = Live::new(environment.is_emulated());
    let Begun { mut store, run: mut so_far, ssh, profiler } = match &args.resume {
        Some(directory) => {
            let (store, mut run) = Store::resume(directory, &environment)?;
            run.plan = again::plan(&args.axes, run.plan, directory)?;
            let ssh = args.reach.command_again(&run.plan.hosts(&run.plan.matrix()?), directory)?;
            let profiler = run::profiler(&run.plan, &mut live)?;
            Begun { store, run, ssh, profiler }
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
    let ended = run::run(&mut store, so_far, &ssh, profiler, series, &mut live)?;
    live.end();
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
fn verdict(ended: &Ended) -> Result<()> {
    let Ended { run, failed, died, .. } = ended;
    let matrix = run.plan.matrix()?;
    let all = matrix.cells.len() + matrix.skipped.len();
    let missing = all - run.cells().len();
    let text = format!("{missing} of {all} cells have no figure");
    let again =
        || format!("the report lists the reasons; try again with `siga run --resume {}`", run.directory.display());
    match (missing, failed) {
        (0, 0) => Ok(()),
        (0, 1) => Err(Error::incomplete("1 trial has no figure").hint(again())),
        (0, _) => Err(Error::incomplete(format!("{failed} trials have no figure")).hint(again())),
        (..) if *died > 0 => Err(Error::incomplete(text).hint(again())),
        (..) if missing == all => Err(Error::environment(text).hint("`siga doctor` lists what this host lacks")),
        (..) => {
            Err(Error::incomplete(text).hint("the report lists the reasons; `siga doctor` lists what this host lacks"))
        }
    }
}

/// Checks the plan and what it needs, then makes its run directory.
fn start(args: &RunArgs, environment: &Environment, live: &mut Live) -> Result<Begun> {
    let mut plan = args.axes.plan()?;
    let ssh = args.reach.command(&plan.hosts(&plan.matrix()?))?;
    let now = SystemTime::now();
    if plan.seed.is_none() {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // The seed must fit into TOML's signed integers, because the plan is written to the run directory.
        plan.seed = Some(u64::from(since.subsec_nanos()));
    }
    let profiler = run::profiler(&plan, live)?;
    let (store, run) = match &args.out {
        Some(directory) => Store::create(directory, &plan, environment)?,
        None => Store::create_unused(&new_directory(&plan, now), &plan, environment)?,
    };
    Ok(Begun { store, run, ssh, profiler })
}

/// Returns a path such as `runs/20261120-104133-default`.
fn new_directory(plan: &Plan, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string();
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    let name: String = plan.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Path::new("runs").join(format!("{}-{}-{name}", &digits[..8], &digits[8..]))
}

/// Prints the matrix of a plan, its duration, and the commands that it executes.
pub(crate) fn plan(axes: &Axes, reach: &Reach) -> Result<()> {
    announce(&host::environment());
    let plan = axes.plan()?;
    let matrix = plan.matrix()?;
    let steps = commands::of(&plan, &matrix, &reach.command(&plan.hosts(&matrix))?)?;
    let run::Extent { rounds, time, .. } = run::estimate(&plan, &matrix);
    let mut out = String::new();
    if !plan.question.is_empty() {
        let _ = writeln!(out, "{}\n", plan.question);
    }
    for cell in &matrix.cells {
        let _ = writeln!(out, "{cell}");
    }
    for (cell, reason) in &matrix.skipped {
        let _ = writeln!(out, "{cell}: skipped: {reason}");
    }
    let words = |time: Duration| humantime::format_duration(Duration::from_secs(time.as_secs().max(1))).to_string();
    let (least, most) = (words(time.0), words(time.1));
    let cells = matrix.cells.len();
    let _ = match rounds {
        (rounds, most_rounds) if rounds == most_rounds => {
            writeln!(out, "\n{cells} cells, {rounds} rounds of trials, about {most}")
        }
        (fewest, most_rounds) => writeln!(
            out,
            "\n{cells} cells, {fewest} to {most_rounds} rounds of trials until the comparisons are clear, about {least} to {most}"
        ),
    };
    out += "\nA run of this plan executes these commands as your user:\n";
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
