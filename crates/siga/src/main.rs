//! The command line of siga: it parses arguments, calls the library crates, and prints.

mod again;
mod axes;
mod compare;
mod doctor;
mod exec;
mod export;
mod live;
mod measure;
mod net;
mod report;

use axes::{Axes, Reach};
use clap::{Parser, Subcommand};
use siga_measure::agent::launch::AgentOptions;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_plan::accounting::AccountingMethod;
use siga_report::{Format, Layout, Screen};
use siga_results::store::Run;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The version, the commit of the sources and the cargo features of this build.
const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("SIGA_COMMIT"), "; features: ", env!("SIGA_FEATURES"), ")");

/// Whether progress and notes are printed.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Measure what a network hop costs, and whether a change helped.
#[derive(Debug, Parser)]
#[command(
    name = "siga",
    version = VERSION,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        siga run                                    compare siga's own network with the kernel's (at most four minutes)\n  \
        siga run hop                                measure what a router costs on this host\n  \
        siga run --quick                            check in some seconds that siga can run the default plan\n  \
        siga run --path veth,bridge --clients 1,10 --workload rr-200-1000,strg-20m\n  \
        siga run --command 'gzip -9 -c FILE'        measure a command: time, and CPU time by process\n  \
        siga run --client netns:blue --server pid:4711 --workload crr-64-8k\n  \
        siga show runs/DIR --format json            print a run again as JSON\n  \
        siga compare runs/BEFORE runs/AFTER         list what became better or worse\n  \
        siga report runs/DIR                        write one HTML file with tables and charts\n  \
        siga export runs/* --output trials.csv      write every trial of several runs for other programs\n  \
        siga published 5                            print a table of the z/VM report that siga follows\n  \
        siga net up topologies/figure-1.toml        start a virtual network with guests, a router and HiperSockets\n  \
        siga doctor                                 check what this host can measure, and how accurately\n\n\
        Environment variables:\n  \
        NO_COLOR           show verdicts without colours, also on terminals\n  \
        COLUMNS            the width of tables if the width of the terminal is unknown; by default 120 in files and pipes\n  \
        SIGA_RUN_DIR       the directory of virtual networks; by default $XDG_RUNTIME_DIR/siga, otherwise /tmp/siga-UID\n  \
        SIGA_EXEC_LOG      a log file of calls that `siga exec` cannot carry out with the sockets of a guest\n  \
        XDG_CONFIG_HOME    the directory with siga/config.toml; by default ~/.config\n  \
        TMPDIR             the directory for the networks of a measurement; by default /tmp\n  \
        PATH               where siga finds nft, ssh, and the programs of `siga exec`\n\n\
        Exit status: 0 success, 1 regression, 2 usage error, 3 unsuitable environment, 4 incomplete."
)]
struct Cli {
    /// Print no progress and no notes, only results and errors.
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure network paths, or commands.
    ///
    /// Without arguments, siga runs the default plan. It compares siga's own network with the kernel's network, both
    /// with a router between client and server. Each setting can be an option or part of a plan. Commas separate the
    /// values of lists.
    #[command(after_help = axes::HELP)]
    Run(Box<measure::RunArgs>),
    /// Print the cells that a plan measures, the duration, and every command that a run executes.
    #[command(after_help = axes::PLAN_HELP)]
    Plan {
        /// The plan and its axes.
        #[command(flatten)]
        axes: Box<Axes>,
        /// The command that reaches other hosts.
        #[command(flatten)]
        reach: Reach,
        /// Print the JSON Schema of plans instead.
        #[arg(long)]
        schema: bool,
    },
    /// Show the results of a run, which may be finished, interrupted or still running.
    #[command(after_help = "\
Examples:
  siga show runs/20261120-104133-default
  siga show runs/20261120-104133-default --layout zvm
  siga show runs/20261120-104133-default --format csv >cells.csv")]
    Show {
        /// Directory of the run.
        directory: PathBuf,
        /// Set the output format: text, json, csv or md.
        #[arg(long, default_value = "text", value_parser = parse::<Format>)]
        format: Format,
        /// Set the layout of the tables: plain, or zvm for the layout of z/VM's reports.
        #[arg(long, default_value = "plain", value_parser = parse::<Layout>)]
        layout: Layout,
        /// Set the method of CPU accounting: profile, subtract or tick. The run must contain the data of the method.
        /// Default: the best method.
        #[arg(long, value_parser = axes::method)]
        accounting: Option<AccountingMethod>,
    },
    /// Print the JSON Schema of a file or of an output.
    #[command(after_help = "\
Examples:
  siga schema plan >plan.schema.json          complete and check plans in an editor
  siga schema result                          describe the output of `siga show DIR --format json`")]
    Schema {
        /// File or output that the schema describes.
        kind: Schema,
    },
    /// Write a report of one or several runs as one HTML file with verdicts, environment, tables and charts.
    ///
    /// The file contains all its data and works offline.
    #[command(after_help = "\
Examples:
  siga report runs/20261120-104133-default
  siga report runs/before runs/after -o change.html
  siga report --published -o published.html")]
    Report(report::ReportArgs),
    /// Compare two runs, or two levels or paths of one run.
    #[command(after_help = compare::HELP)]
    Compare(compare::CompareArgs),
    /// Write the figures of runs for other programs, as CSV.
    ///
    /// The form `trials` has one record for each trial and metric, for DuckDB, R or a spreadsheet. The form `otava` has
    /// one record for each run, in which Apache Otava finds changes. docs/export.md describes the columns.
    #[command(after_help = export::HELP)]
    Export(export::ExportArgs),
    /// Print the published z/VM tables whose method siga follows. siga computes them again from inferred inputs.
    #[command(after_help = "\
Examples:
  siga published                              list the tables
  siga published 5
  siga published vctc-1 --format csv")]
    Published {
        /// Name of the table: 1 to 18, vctc-1 or vctc-2. Default: a list of the tables.
        table: Option<String>,
        /// Set the output format: text, json, csv or md.
        #[arg(long, default_value = "text", value_parser = parse::<Format>)]
        format: Format,
    },
    /// Check what this host can measure, and how accurately.
    ///
    /// siga tries each feature. For each missing feature, siga prints the effect on measurements and how to fix it.
    /// This takes about ten seconds.
    #[command(after_help = "\
Examples:
  siga doctor
  siga doctor --format json
  siga doctor --calibrate                     check that siga measures planted costs (minutes)")]
    Doctor(doctor::DoctorArgs),
    /// Start, inspect and stop virtual networks of guests on this host.
    #[command(subcommand, after_help = net::HELP)]
    Net(net::NetCommand),
    /// Run a program with the sockets of a guest.
    ///
    /// The program runs unmodified; its TCP and UDP sockets use the TCP/IP stack of the guest.
    #[command(after_help = exec::HELP)]
    Exec(exec::ExecArgs),
    /// Attach the processes of a program to a guest (siga itself starts it).
    #[command(hide = true)]
    ExecBroker {
        /// The network.
        network: siga_model::name::Name,
        /// The guest.
        guest: siga_model::name::Name,
        /// Start another process that does so, and end.
        #[arg(long)]
        start: bool,
    },
    /// Work in a place of a path (siga itself starts it).
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
    /// Run a command of a plan again and again (siga itself starts it).
    #[command(hide = true, name = "command-runner")]
    RunCommands,
    /// Keep the namespaces of a path alive (siga itself starts it).
    #[command(hide = true)]
    NamespaceHolder,
}

/// What `siga schema` describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Schema {
    /// The file of a plan.
    Plan,
    /// The file of a level.
    Level,
    /// The report of a run as JSON.
    Result,
}

impl Schema {
    fn text(self) -> &'static str {
        match self {
            Self::Plan => include_str!("../../../plans/plan.schema.json"),
            Self::Level => include_str!("../../../levels/level.schema.json"),
            Self::Result => siga_report::SCHEMA,
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    IS_QUIET.store(cli.quiet, Ordering::Relaxed);
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
        Command::Plan { schema: true, .. } => print(Schema::Plan.text()),
        Command::Schema { kind } => print(kind.text()),
        Command::Plan { axes, reach, .. } => measure::plan(&axes, &reach),
        Command::Show { directory, format, layout, accounting } => {
            print_run(&Run::load(&directory)?, format, layout, accounting)
        }
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Published { table, format } => print(&siga_report::zvm::published::render(table.as_deref(), format)?),
        Command::Doctor(args) => doctor::run(&args),
        Command::Net(command) => net::run(command),
        Command::Exec(args) => exec::run(&args),
        Command::ExecBroker { network, guest, start } => exec::broker(&network, &guest, start),
        Command::Agent { net, user, sockmap, unlink } => {
            siga_measure::agent::run(&AgentOptions { net, user, sockmap, unlink })
        }
        Command::RunCommands => siga_measure::command::run(),
        Command::NamespaceHolder => siga_measure::path::holder::hold(),
    }
}

/// Writes a report to standard output without invisible characters, because some of it comes from other hosts. A reader that closes the
/// pipe early (`| head`) is not an error.
fn print(text: &str) -> Result<()> {
    write_out(&text::lines(text))
}

/// Returns the screen on which standard output is shown. Verdicts are coloured on terminals, unless NO_COLOR is set (no-color.org).
fn screen() -> Screen {
    let out = std::io::stdout();
    let none = Screen::default();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    if !out.is_terminal() {
        return Screen { width: columns.unwrap_or(none.width), ..none };
    }
    let size = rustix::termios::tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_col));
    let width = size.filter(|width| *width > 0).or(columns).unwrap_or(80);
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Screen { width, wraps: true, colour }
}

/// Prints the report of a run.
fn print_run(run: &Run, format: Format, layout: Layout, method: Option<AccountingMethod>) -> Result<()> {
    match format {
        Format::Text => write_out(&siga_report::text(run, layout, method, &screen())?),
        Format::Json | Format::Csv | Format::Md => print(&siga_report::render(run, format, layout, method)?),
    }
}

fn write_out(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::environment(format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a note or a line of progress to standard error, unless `--quiet` is given.
fn note(line: &str) {
    if !is_quiet() {
        tell(line);
    }
}

fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Writes a line to standard error. Unlike `eprintln!`, it does not panic if standard error is closed.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", text::lines(line));
}

/// Lets clap parse a type by its `FromStr`, and show the hint of its error.
fn parse<T: std::str::FromStr<Err = Error>>(text: &str) -> std::result::Result<T, String> {
    text.parse().map_err(|error: Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{Command, CommandFactory};

    /// Returns every visible command with its full name, such as "siga net up".
    fn commands(command: &Command, name: &str, all: &mut Vec<(String, Command)>) {
        for own in command.get_subcommands().filter(|own| !own.is_hide_set() && own.get_name() != "help") {
            let name = format!("{name} {}", own.get_name());
            all.push((name.clone(), own.clone()));
            commands(own, &name, all);
        }
    }

    fn all() -> Vec<(String, Command)> {
        let mut all = Vec::new();
        commands(&Cli::command(), "siga", &mut all);
        all
    }

    #[test]
    fn the_help_of_every_command_ends_with_two_examples() {
        let all = all();
        assert!(all.len() > 20, "{}", all.len());
        for (name, command) in all {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.lines().filter(|line| line.starts_with(&format!("  {name}")));
            assert!(help.contains("Examples:\n") && examples.count() >= 2, "{name}: {help}");
        }
    }

    #[test]
    fn the_help_of_every_option_has_its_default() {
        for (name, command) in all() {
            for option in
                command.get_opts().filter(|option| option.get_action().takes_values() && !option.is_required_set())
            {
                let help = option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default();
                let has_default = !option.get_default_values().is_empty() || help.contains("Default: ");
                assert!(has_default, "{name} --{}: {help}", option.get_long().unwrap_or_default());
            }
        }
    }
}
