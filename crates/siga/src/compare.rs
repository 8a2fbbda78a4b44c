//! `siga compare`.

use crate::{parse, print, screen, write_out};
use clap::Args;
use siga_model::error::{Error, Result};
use siga_plan::matrix::Cell;
use siga_report::output::Output;
use siga_report::{Explained, Format, flame, verdicts};
use siga_results::import;
use siga_results::judge::hosts::{self, Hosts};
use siga_results::judge::{self, Comparison, Vary};
use siga_results::store::{Run, is_run, newest};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Shown below the options.
pub(crate) const HELP: &str = "\
BASE and NEW can be:
  - run directories
  - result files of hyperfine, Go or JMH, or directories of Criterion such as
    target/criterion/sort/new
  - levels, paths or MTUs of one run; option --run selects this run
  - with --hosts, runs of the same plan on different hosts, as `siga run --on` writes them

If you give several NEW, siga compares each with BASE. In each comparison,
it adjusts the p-value (p) of each figure for the number of figures.

The verdict is the first of these that applies:
  not comparable    BASE and NEW also differ in a condition that is not compared but affects the
                    figures
  equivalent        the 90% interval of the ratio is within 2% of 1
  better, worse     p is below 0.05 after adjustment for the number of figures, and the 95%
                    interval does not include 1
  inconclusive      none of the above; the report estimates how many trials would be needed

The main figures are rate, p99 and total CPU time. siga judges them first. All other figures
are exploratory. siga adjusts p separately for the main figures and for the exploratory figures.

Examples:
  siga run --path veth-routed --level plain,nft-100-rules
  siga compare plain nft-100-rules                        compares two levels of that run
  siga compare veth veth-routed --run runs/20261120-104133-default
  siga compare plain nft-100-rules --why                  explains the difference in CPU time
  siga compare plain nft-100-rules --flame why.svg        draws these functions as a flame graph
  siga compare 1500 57344                                 compares two MTUs of one run
  siga compare plain reno bbr                             compares reno and bbr with plain
  siga compare runs/old runs/new --vary kernel            compares the kernels of two hosts
  siga compare --hosts runs/DIR/1-ssh-old runs/DIR/2-ssh-new
                                                          compares two hosts
  siga compare old.txt new.txt                            compares two outputs of `go test -bench`
  siga compare 'sort a' 'sort b' --run hyperfine.json     compares two commands of hyperfine
  siga compare runs/before runs/after --fail-on regression:5%
  siga compare runs/before runs/after --format json >verdicts.json";

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Base of the comparison: a run directory, a level, a path or an MTU.
    base: String,
    /// Run directories, levels, paths or MTUs to compare with the base.
    #[arg(required = true)]
    new: Vec<String>,
    /// Name the parts of the environment that you want to compare: kernel, cpu, mitigations, program. These parts
    /// can differ between the runs. The report lists the differences. Default: none, so siga does not compare
    /// figures of different kernels or CPUs.
    #[arg(long, value_delimiter = ',', value_name = "PART,…", value_parser = parse::<Vary>)]
    vary: Vec<Vary>,
    /// Compare hosts. Their hardware, kernel and firmware can differ, and the report lists these differences first. For each
    /// number of CPUs, the report also shows the rates, the units of work per second of CPU time (internal throughput rate,
    /// ITR), and the CPU time for equal work.
    #[arg(long, conflicts_with_all = ["vary", "run", "why", "flame"])]
    hosts: bool,
    /// Set the run whose levels, paths or MTUs siga compares. Default: the newest run in runs/ that has a finished
    /// trial.
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Set the output format: text, json, csv or md.
    #[arg(long, default_value = "text", value_parser = parse::<Format>)]
    format: Format,
    /// In text and Markdown, show all figures, and all differences between the environments of the runs. JSON and CSV always
    /// contain all figures and differences.
    #[arg(long)]
    all: bool,
    /// List the functions that cause each difference in CPU time. The run must have been measured with the
    /// profiler. Output in CSV does not contain these functions.
    #[arg(long)]
    why: bool,
    /// Write a flame graph of the differences in CPU time to this SVG file. Open the file in a browser. Default: no
    /// flame graph.
    #[arg(long, value_name = "FILE")]
    flame: Option<PathBuf>,
    /// Exit with status 1 if a figure is worse. With `regression:5%`, a figure must be worse by 5% or more. Exit
    /// with status 4 if no figure is worse, but siga could not judge some figures. Default: the verdicts do not
    /// affect the exit status.
    #[arg(long, value_name = "regression[:PERCENT]", value_parser = parse::<FailOn>)]
    fail_on: Option<FailOn>,
}

/// The regressions that make the command fail.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FailOn {
    /// The smallest change for the worse, as a fraction.
    least: f64,
}

impl FromStr for FailOn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage(format!("`{text}` is not a condition of --fail-on"))
                .hint("use --fail-on regression or --fail-on regression:5%")
        };
        match text.split_once(':') {
            None if text == "regression" => Ok(Self { least: 0.0 }),
            Some(("regression", percent)) => {
                let percent: f64 = percent.strip_suffix('%').unwrap_or(percent).parse().map_err(|_| bad())?;
                let sound = percent.is_finite() && percent >= 0.0;
                sound.then_some(Self { least: percent / 100.0 }).ok_or_else(bad)
            }
            None | Some(_) => Err(bad()),
        }
    }
}

impl FailOn {
    /// Fails if a figure is worse by at least the smallest change.
    fn check(self, comparisons: &[Comparison]) -> Result<()> {
        let regressions: Vec<String> = comparisons
            .iter()
            .flat_map(|comparison| comparison.regressions(self.least))
            .map(|row| format!("{} {} x{:.3}", row.new, row.metric.name(), row.ratio))
            .collect();
        let Some(first) = regressions.first() else { return comparisons.iter().try_for_each(Self::whole) };
        let text = match regressions.len() {
            1 => format!("a figure is worse: {first}"),
            count => format!("{count} figures are worse; the first is {first}"),
        };
        Err(Error::regression(text).hint(
            "the report shows all of them; --fail-on regression:PERCENT ignores regressions of less than PERCENT",
        ))
    }

    /// Fails if a figure could not be judged, because a regression of that figure would remain unnoticed.
    fn whole(comparison: &Comparison) -> Result<()> {
        let judged = match comparison.skipped.len() {
            0 => None,
            1 => Some("siga could not judge 1 comparison".to_owned()),
            count => Some(format!("siga could not judge {count} comparisons")),
        };
        let comparable = match comparison.count("not comparable") {
            0 => None,
            1 => Some("1 figure is not comparable".to_owned()),
            count => Some(format!("{count} figures are not comparable")),
        };
        let open = comparable.into_iter().chain(judged).collect::<Vec<_>>().join(", and ");
        if open.is_empty() {
            return Ok(());
        }
        Err(Error::incomplete(format!("no figure is worse, but {open}")).hint("the report above gives the reasons"))
    }
}

/// Compares, prints, and fails if `--fail-on` asks for it.
pub(crate) fn run(args: &CompareArgs) -> Result<()> {
    if args.flame.is_some() && args.new.len() > 1 {
        return Err(
            Error::usage("a flame graph (--flame) can compare only two sides").hint("give BASE and exactly one NEW")
        );
    }
    if args.hosts {
        return of_hosts(args);
    }
    let sides = args.new.iter().map(|new| side(args, new)).collect::<Result<Vec<_>>>()?;
    let wants_reasons = args.why || args.flame.is_some();
    let explain = |side: &Side| wants_reasons.then(|| side.explain());
    let explained: Vec<Option<Explained>> = sides.iter().map(explain).collect();
    let named: Vec<Option<&Explained>> = explained.iter().map(|one| one.as_ref().filter(|_| args.why)).collect();
    let comparisons: Vec<Comparison> = sides.into_iter().map(|side| side.comparison).collect();
    let report = verdicts::render_sides(&comparisons, args.format, args.all, &named, &screen())?;
    match args.format {
        Format::Text => write_out(&report)?,
        Format::Json | Format::Csv | Format::Md => print(&report)?,
    }
    if let (Some(file), [comparison], [Some((explained, _))]) = (&args.flame, &comparisons[..], &explained[..]) {
        let svg = flame::svg(comparison, explained)?;
        let mut output = Output::file(file)?;
        output.put(&svg)?;
        output.finish()?;
    }
    judged(args.fail_on, &comparisons)
}

/// Compares runs of different hosts.
fn of_hosts(args: &CompareArgs) -> Result<()> {
    let load = |name: &String| Run::load(Path::new(name));
    let (base, new) = (load(&args.base)?, args.new.iter().map(load).collect::<Result<Vec<_>>>()?);
    let compared = new.iter().map(|new| hosts::compare(&base, new)).collect::<Result<Vec<_>>>()?;
    print_hosts(&compared, args.format, args.all)?;
    let comparisons: Vec<Comparison> = compared.into_iter().map(|one| one.comparison).collect();
    judged(args.fail_on, &comparisons)
}

/// Prints comparisons of hosts with the same base.
pub(crate) fn print_hosts(compared: &[Hosts], format: Format, all: bool) -> Result<()> {
    let report = siga_report::hosts::render(compared, format, all, &screen())?;
    match format {
        Format::Text => write_out(&report),
        Format::Json | Format::Csv | Format::Md => print(&report),
    }
}

/// Fails if a figure is worse and `--fail-on` asks for it, or if there is nothing to compare.
fn judged(fail_on: Option<FailOn>, comparisons: &[Comparison]) -> Result<()> {
    if let Some(fail_on) = fail_on {
        fail_on.check(comparisons)?;
    }
    if comparisons.iter().any(|comparison| comparison.rows.is_empty()) {
        return Err(Error::incomplete("the two sides of the comparison have no figure that siga can compare")
            .hint("the report above lists the reason for each cell"));
    }
    Ok(())
}

/// The comparison of one new side with the base.
struct Side {
    comparison: Comparison,
    runs: Runs,
}

/// The runs of the base side and of the new side.
struct Runs {
    base: Run,
    /// `None` if both sides are in one run.
    new: Option<Run>,
}

impl Side {
    fn explain(&self) -> Explained {
        let Runs { base, new } = &self.runs;
        judge::why::explain(&self.comparison, base, new.as_ref().unwrap_or(base))
    }
}

fn side(args: &CompareArgs, new: &str) -> Result<Side> {
    let (base, new_run) = (Path::new(&args.base), Path::new(new));
    if args.run.is_none() && import::is_result(base) && import::is_result(new_run) {
        let (base, new) = (import::read(base)?, import::read(new_run)?);
        let mut comparison = judge::runs_varying(&base, &new, &args.vary)?;
        comparison.cautions.push(import::CAUTION.to_owned());
        return Ok(Side { comparison, runs: Runs { base, new: Some(new) } });
    }
    match (&args.run, is_run(base), is_run(new_run)) {
        (Some(file), ..) if import::is_result(file) => {
            let all = import::read(file)?;
            let (Some(base), Some(new_part)) = (import::part(&all, &args.base), import::part(&all, new)) else {
                return of_one(all, args, new);
            };
            let mut comparison = judge::runs_varying(&base, &new_part, &args.vary)?;
            comparison.cautions.push(import::CAUTION.to_owned());
            Ok(Side { comparison, runs: Runs { base, new: Some(new_part) } })
        }
        (Some(directory), ..) => of_one(Run::load(directory)?, args, new),
        (None, true, true) => {
            let (base, new) = (Run::load(base)?, Run::load(new_run)?);
            let comparison = judge::runs_varying(&base, &new, &args.vary)?;
            Ok(Side { comparison, runs: Runs { base, new: Some(new) } })
        }
        (None, false, false) if !args.base.contains('/') && !new.contains('/') => {
            of_one(Run::load(&newest(Path::new("runs"))?)?, args, new)
        }
        (None, base_is, _) => {
            // Reading the argument that is not a run produces the error that says why.
            let missing = if base_is { new_run } else { base };
            Run::load(missing).and(Err(Error::usage(format!("{} is not a run directory", missing.display()))))
        }
    }
}

fn of_one(run: Run, args: &CompareArgs, new: &str) -> Result<Side> {
    if !args.vary.is_empty() {
        return Err(Error::usage("--vary needs two runs, but both sides are in the same run")
            .hint("compare two runs: `siga compare runs/BEFORE runs/AFTER --vary kernel`"));
    }
    let cells = run.cells();
    let both = |is: &dyn Fn(&str, &Cell) -> bool| {
        [&args.base, new].into_iter().all(|name| cells.iter().any(|cell| is(name, cell)))
    };
    let levels = both(&|name, cell| cell.level == name);
    let paths = both(&|name, cell| cell.path == name);
    let mtus = both(&|name, cell| cell.mtu.is_some_and(|mtu| name == mtu.to_string()));
    let comparison = match (levels, paths) {
        (false, false) if mtus => judge::mtus(&run, &args.base, new),
        (true, true) => Err(Error::usage(format!(
            "in this run, `{}` and `{new}` are names of levels and also names of paths",
            args.base
        ))
        .hint("rename the levels, and measure again")),
        (false, true) => judge::paths(&run, &args.base, new),
        (true | false, false) => judge::levels(&run, &args.base, new),
    }?;
    Ok(Side { comparison, runs: Runs { base: run, new: None } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_fail_on_is_read_or_refused() {
        for (text, least) in [("regression", 0.0), ("regression:5%", 0.05), ("regression:2.5", 0.025)] {
            let read: FailOn = text.parse().unwrap();
            assert!((read.least - least).abs() < 1e-12, "{text}");
        }
        for text in ["", "regress", "regression:", "regression:x%", "regression:-1%", "regression:NaN", "better:5%"] {
            assert!(text.parse::<FailOn>().is_err(), "{text}");
        }
    }
}
