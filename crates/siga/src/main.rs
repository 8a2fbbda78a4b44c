//! The command line of siga: wiring only. What a command does lives in `siga-lab`.

mod axes;
mod compare;
mod doctor;
mod export;
mod live;
mod measure;
mod net;
mod report;

use axes::{Axes, Reach};
use clap::{Parser, Subcommand};
use siga_lab::agent::launch::AgentOptions;
use siga_lab::report::{Format, Layout};
use siga_lab::store::Run;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_plan::accounting::Method;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// What does a network hop cost, and did your change help?
#[derive(Debug, Parser)]
#[command(
    name = "siga",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        siga run                                    siga's own network beside the kernel's (two and a half minutes)\n  \
        siga run hop                                what a router hop costs on this host\n  \
        siga run --quick                            a smoke run of the first (some seconds)\n  \
        siga run --path veth,bridge --clients 1,10 --workload rr-200-1000,strg-20m\n  \
        siga run --client netns:blue --server pid:4711 --workload crr-64-8k\n  \
        siga show runs/DIR --format json            a run again, in another form\n  \
        siga compare runs/BEFORE runs/AFTER         what became better or worse\n  \
        siga report runs/DIR                        one HTML file with tables and charts\n  \
        siga export runs/* --output trials.csv      every trial of several runs, for other programs\n  \
        siga published 5                            a table of the z/VM report this follows\n  \
        siga net up topologies/figure-1.toml        a virtual network: guests, a router, HiperSockets\n  \
        siga doctor                                 what this host can measure, and how well\n\n\
        Exit status: 0 fine, 1 regression, 2 usage, 3 environment unfit, 4 incomplete."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure network paths.
    ///
    /// Without arguments: the default plan, which compares siga's own network with the kernel's, each with a router between
    /// client and server. Every axis can be set here or in a plan; lists are separated by commas.
    #[command(after_help = axes::HELP)]
    Run(Box<measure::RunArgs>),
    /// Print the matrix of a plan, how long it will take, and every command that it executes.
    #[command(after_help = axes::HELP)]
    Plan {
        /// The plan and its axes.
        #[command(flatten)]
        axes: Box<Axes>,
        /// How other hosts are reached.
        #[command(flatten)]
        reach: Reach,
        /// Print the JSON Schema of plans instead.
        #[arg(long)]
        schema: bool,
    },
    /// Show a finished, killed or running run.
    #[command(after_help = "\
Examples:
  siga show runs/20261120-104133-default
  siga show runs/20261120-104133-default --layout zvm
  siga show runs/20261120-104133-default --format csv >cells.csv")]
    Show {
        /// The run's directory.
        directory: PathBuf,
        /// text, json, csv or md.
        #[arg(long, default_value = "text", value_parser = parse::<Format>)]
        format: Format,
        /// plain, or zvm for the layout of z/VM's reports.
        #[arg(long, default_value = "plain", value_parser = parse::<Layout>)]
        layout: Layout,
        /// profile, subtract or tick, where the run has what it takes.
        #[arg(long, value_parser = axes::method)]
        accounting: Option<Method>,
    },
    /// Write one HTML file with verdict, environment, tables and charts.
    ///
    /// The file works offline and holds all its data.
    #[command(after_help = "\
Examples:
  siga report runs/20261120-104133-default
  siga report runs/before runs/after -o change.html
  siga report --published -o published.html")]
    Report(report::ReportArgs),
    /// Say what became better or worse: two runs, or two levels or paths of one run.
    #[command(after_help = compare::HELP)]
    Compare(compare::CompareArgs),
    /// Write the figures of runs for other programs, as CSV.
    ///
    /// The long form has a record a trial and metric, for DuckDB, R or a spreadsheet; the form `otava` has a record a run,
    /// in which Apache Otava looks for change points. docs/export.md has the columns and examples.
    #[command(after_help = export::HELP)]
    Export(export::ExportArgs),
    /// Print the published tables that siga's method follows, regenerated from their inferred inputs.
    #[command(after_help = "\
Examples:
  siga published                              a list of the tables
  siga published 5
  siga published vctc-1 --format csv")]
    Published {
        /// A table: 1 to 18, vctc-1, vctc-2; none lists them.
        table: Option<String>,
        /// text, json, csv or md.
        #[arg(long, default_value = "text", value_parser = parse::<Format>)]
        format: Format,
    },
    /// Say what this host can measure and how well.
    ///
    /// Everything is tried for real; of what is missing it says what that costs and the way out. Takes some ten seconds.
    #[command(after_help = "\
Examples:
  siga doctor
  siga doctor --format json
  siga doctor --calibrate                     whether planted costs are found again (minutes)")]
    Doctor(doctor::DoctorArgs),
    /// Run virtual networks for the guests of this host.
    #[command(subcommand, after_help = net::HELP)]
    Net(net::NetCommand),
    /// Work in a place of a path (started by siga itself).
    #[command(hide = true)]
    Agent {
        /// Network namespace to enter.
        #[arg(long)]
        net: Option<PathBuf>,
        /// User namespace to enter first.
        #[arg(long)]
        user: Option<PathBuf>,
        /// Inherited descriptor of a sockmap.
        #[arg(long)]
        sockmap: Option<i32>,
        /// Remove the program file.
        #[arg(long)]
        unlink: bool,
    },
    /// Hold a built path (started by siga itself).
    #[command(hide = true)]
    NamespaceHolder,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("siga: {error}"));
            ExitCode::from(error.exit_status())
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Run(args) => measure::run(&args),
        Command::Plan { schema: true, .. } => print(include_str!("../../../plans/plan.schema.json")),
        Command::Plan { axes, reach, .. } => measure::plan(&axes, &reach),
        Command::Show { directory, format, layout, accounting } => {
            print(&siga_lab::report::render(&Run::load(&directory)?, format, layout, accounting)?)
        }
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Published { table, format } => {
            print(&siga_lab::report::zvm::published::render(table.as_deref(), format)?)
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Net(command) => net::run(command),
        Command::Agent { net, user, sockmap, unlink } => {
            siga_lab::agent::run(&AgentOptions { net, user, sockmap, unlink })
        }
        Command::NamespaceHolder => siga_lab::path::holder::hold(),
    }
}

/// Writes a report to standard output, without letters that are not seen: some of it comes from other hosts. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    write_out(&text::lines(text))
}

/// The same, lines that end in a verdict in its colour.
fn print_coloured(text: &str) -> Result<()> {
    const GREEN: &str = "\u{1b}[32m";
    const RED: &str = "\u{1b}[31m";
    let text = text::lines(text);
    let coloured = text.split_inclusive('\n').map(|line| {
        let colour = match line.trim_end() {
            line if line.ends_with("  better") => GREEN,
            line if line.ends_with("  worse") => RED,
            _ => return line.to_owned(),
        };
        format!("{colour}{}\u{1b}[0m\n", line.trim_end())
    });
    write_out(&coloured.collect::<String>())
}

fn write_out(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::environment(format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a line to standard error. Nobody has to read it: unlike `eprintln!`, this does not panic then.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", text::lines(line));
}

/// Lets clap read a type by its `FromStr`, hint included.
fn parse<T: std::str::FromStr<Err = Error>>(text: &str) -> std::result::Result<T, String> {
    text.parse().map_err(|error: Error| error.to_string())
}
