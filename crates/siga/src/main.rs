//! The command line of siga: it parses arguments, calls the library crates, and prints.

mod again;
mod axes;
mod chosen;
mod cni;
mod compare;
mod doctor;
mod exec;
mod export;
mod live;
mod measure;
mod monitor;
mod net;
mod netns;
mod on;
mod reach;
mod report;

use axes::Axes;
use clap::{Parser, Subcommand};
use reach::Reach;
use siga_measure::agent::launch::AgentOptions;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_plan::accounting::AccountingMethod;
use siga_plan::run_id::RunId;
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

/// Measure network paths and commands, and judge whether a change made them faster.
#[derive(Debug, Parser)]
#[command(
    name = "siga",
    version = VERSION,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        siga run                                    compare siga's network with the kernel's (4 minutes)\n  \
        siga run hop                                measure how much latency and CPU time a router adds\n  \
        siga run --quick                            check in a few seconds that siga can measure here\n  \
        siga run --path veth,bridge --clients 1,10 --workload rr-200-1000,strg-20m\n  \
        siga run --command 'gzip -9 -c FILE'        measure how long a command takes, and its CPU time\n  \
        siga run --client netns:blue --server pid:4711 --workload crr-64-8k\n  \
        siga show runs/DIR --format json            print the results of a run as JSON\n  \
        siga compare runs/BEFORE runs/AFTER         list what became better or worse\n  \
        siga run compilers --on local,ssh:HOST      compare this host with another one\n  \
        siga report runs/DIR                        write one HTML file with tables and charts\n  \
        siga export runs/* --output trials.csv      write the figures of several runs as CSV\n  \
        siga published 5                            print table 5 of the published z/VM reports\n  \
        siga net up topologies/figure-1.toml        start the virtual network that this file describes\n  \
        siga monitor figure-1                       show CPU time and traffic of its guests each second\n  \
        siga doctor                                 check what this host can measure, and how accurately\n\n\
        Environment variables:\n  \
        NO_COLOR           if this variable is set, siga prints verdicts without colours\n  \
        COLUMNS            width of tables in files, pipes, and terminals of unknown width\n  \
        SIGA_RUN_DIR       directory for the files of virtual networks (default: $XDG_RUNTIME_DIR/siga)\n  \
        SIGA_EXEC_LOG      file to which `siga exec` appends each socket call that it does not support\n  \
        XDG_CONFIG_HOME    directory that contains siga/config.toml (default: ~/.config)\n  \
        TMPDIR             directory for temporary files and sockets of a run (default: /tmp)\n  \
        PATH               directories in which siga looks for nft, ssh, and programs of `siga exec`\n\n\
        Exit status:\n  \
        0  the command succeeded\n  \
        1  `siga compare --fail-on` found a figure that is worse\n  \
        2  an option, a plan or another input file is wrong\n  \
        3  this host lacks something that the command needs, such as a privilege or a program\n  \
        4  the results are incomplete, because siga could not measure or judge a part of them"
)]
struct Cli {
    /// Print only results and errors, without progress and notes.
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure network paths or commands.
    ///
    /// Without arguments, siga runs the default plan. The default plan compares siga's own network with the
    /// kernel's network. In each network, a router is between client and server.
    ///
    /// A plan is a file that says what to measure. Options replace the values in the plan. To give several values
    /// to an option, separate them with commas.
    #[command(after_help = axes::HELP)]
    Run(Box<measure::RunArgs>),
    /// Print what a plan measures, how long a run takes, and which commands the run executes.
    #[command(after_help = axes::PLAN_HELP)]
    Plan {
        /// The plan and its axes.
        #[command(flatten)]
        axes: Box<Axes>,
        /// The command that reaches other hosts.
        #[command(flatten)]
        reach: Reach,
        /// Print only the JSON Schema of plan files.
        #[arg(long)]
        schema: bool,
    },
    /// Show the results of a run. The run can be finished, interrupted or still running.
    #[command(after_help = "\
Examples:
  siga show runs/20261120-104133-default
  siga show runs/20261120-104133-default --layout zvm
  siga show runs/20261120-104133-zvm430 --run-id 420hss1,311hss1 --layout zvm
  siga show runs/20261120-104133-default --format csv >cells.csv")]
    Show {
        /// Directory of the run.
        directory: PathBuf,
        /// Set the output format: text, json, csv or md.
        #[arg(long, default_value = "text", value_parser = parse::<Format>)]
        format: Format,
        /// Set the layout of the tables: plain (siga's own layout) or zvm (the layout of the z/VM performance
        /// reports).
        #[arg(long, default_value = "plain", value_parser = parse::<Layout>)]
        layout: Layout,
        /// Select how siga divides CPU time between client, router and server: profile, subtract or tick. The run
        /// must contain the measurements that this method needs. Default: the most accurate method that the run
        /// allows.
        #[arg(long, value_parser = axes::method)]
        accounting: Option<AccountingMethod>,
        /// Show only the cells that these run identifiers name, such as 420hss1. Default: all cells.
        #[arg(long, value_delimiter = ',', value_name = "RUNID,…", value_parser = parse::<RunId>)]
        run_id: Vec<RunId>,
    },
    /// Print the JSON Schema of plan files, level files, or results.
    #[command(after_help = "\
Examples:
  siga schema plan >plan.schema.json          write the schema for an editor that checks plan files
  siga schema result                          print the schema of `siga show DIR --format json`")]
    Schema {
        /// Kind of file or output that the schema describes.
        kind: Schema,
    },
    /// Write an HTML report of one or more runs, with verdicts, tables and charts.
    ///
    /// The report is one file, and needs no network to be shown.
    #[command(after_help = "\
Examples:
  siga report runs/20261120-104133-default
  siga report runs/before runs/after -o change.html
  siga report --published -o published.html")]
    Report(report::ReportArgs),
    /// Compare several runs, or the levels, paths or MTUs of one run.
    #[command(after_help = compare::HELP)]
    Compare(compare::CompareArgs),
    /// Write the figures of runs for other programs, for example as CSV.
    ///
    /// The form `trials` has one CSV record for each trial and figure, for example for DuckDB, R or a spreadsheet.
    /// The form `otava` has one CSV record for each run; the program Apache Otava finds changes between these
    /// records. docs/export.md describes the columns.
    #[command(after_help = export::HELP)]
    Export(export::ExportArgs),
    /// Print the tables of the published z/VM performance reports.
    ///
    /// siga's measurements follow the method of these reports. The reports do not contain the counters from which
    /// their tables were computed. siga infers the counters, and computes the tables from them.
    #[command(after_help = "\
Examples:
  siga published                              list the tables
  siga published 5
  siga published vctc-1 --format csv
  siga published 420hss12                     print only this run and the run at the other level
  siga published --figure 2                   draw figure 2 of the report on levels 420 and 430")]
    Published {
        /// Name of the table: 1 to 18, vctc-1 or vctc-2. Or a run identifier such as 420hss12; the number of the
        /// trial at its end may be left out. Default: print the list of tables.
        table: Option<String>,
        /// Draw a figure of the report on levels 420 and 430, from 1 to 6. Default: print a table.
        #[arg(long, value_name = "N", conflicts_with_all = ["table", "format"])]
        figure: Option<u8>,
        /// Set the output format: text, json, csv or md.
        #[arg(long, default_value = "text", value_parser = parse::<Format>)]
        format: Format,
    },
    /// Check what this host can measure, and how accurately.
    ///
    /// siga tests each feature of the host that measurements can use. For each missing feature, siga prints the
    /// effect on measurements and how to fix it. The check takes about ten seconds.
    #[command(after_help = "\
Examples:
  siga doctor
  siga doctor --format json
  siga doctor --calibrate                     check that siga measures known CPU costs correctly")]
    Doctor(doctor::DoctorArgs),
    /// Show the CPU time and the traffic of the processes of a virtual network or a place.
    ///
    /// siga samples the guests, routers, switches, applications and the control program of a network, and the host. Each
    /// sample contains the CPU time of siga monitor itself.
    #[command(after_help = monitor::HELP)]
    Monitor(monitor::MonitorArgs),
    /// Start, inspect and stop virtual networks of guests on this host.
    #[command(subcommand, after_help = net::HELP)]
    Net(net::NetCommand),
    /// Make a network namespace at a port of a virtual network, and run a command in it.
    ///
    /// The command uses the TCP/IP stack of the host's kernel, and its traffic goes to a virtual switch or Guest LAN.
    #[command(after_help = netns::HELP)]
    Netns(netns::NetnsArgs),
    /// Join a container to a virtual network, as a plug-in of the Container Network Interface (CNI).
    ///
    /// A container runtime sets the environment and writes the configuration to standard input.
    #[command(after_help = cni::HELP)]
    Cni,
    /// Run an unmodified program on the TCP/IP stack of a guest.
    ///
    /// The TCP and UDP sockets of the program use the guest's stack instead of the kernel's.
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
    /// Measure trials on this host for a run on several hosts (siga itself starts it).
    #[command(hide = true)]
    Measurer {
        /// Network namespace to enter.
        #[arg(long)]
        net: Option<PathBuf>,
        /// User namespace to enter first.
        #[arg(long)]
        user: Option<PathBuf>,
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
    /// A plan file.
    Plan,
    /// A level file.
    Level,
    /// The results of a run, as `siga show DIR --format json` prints them.
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
    let outcome = if cni::is_called() {
        cni::run()
    } else {
        let cli = Cli::parse();
        IS_QUIET.store(cli.quiet, Ordering::Relaxed);
        run(cli.command)
    };
    match outcome {
        Ok(status) => status,
        Err(error) => {
            tell(&format!("siga: {error}"));
            ExitCode::from(error.exit_status())
        }
    }
}

/// Carries out a command. Returns the exit status of a command that succeeds or has printed its own error.
fn run(command: Command) -> Result<ExitCode> {
    if let Command::Cni = command {
        return cni::run();
    }
    run_plain(command).map(|()| ExitCode::SUCCESS)
}

fn run_plain(command: Command) -> Result<()> {
    match command {
        Command::Run(args) => measure::run(&args),
        Command::Plan { schema: true, .. } => print(Schema::Plan.text()),
        Command::Schema { kind } => print(kind.text()),
        Command::Plan { axes, reach, .. } => measure::plan(&axes, &reach),
        Command::Show { directory, format, layout, accounting, run_id } => {
            let mut run = Run::load(&directory)?;
            chosen::keep(&mut run, &run_id)?;
            print_run(&run, format, layout, accounting)
        }
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Published { figure: Some(number), .. } => print(&siga_report::zvm::figures::render(number)?),
        Command::Published { table, format, figure: None } => {
            print(&siga_report::zvm::published::render(table.as_deref(), format)?)
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Monitor(args) => monitor::run(&args),
        Command::Net(command) => net::run(command),
        Command::Netns(args) => netns::run(&args),
        Command::Cni => cni::run().map(drop),
        Command::Exec(args) => exec::run(&args),
        Command::ExecBroker { network, guest, start } => exec::broker(&network, &guest, start),
        Command::Agent { net, user, sockmap, unlink } => {
            siga_measure::agent::run(&AgentOptions { net, user, sockmap, unlink })
        }
        Command::Measurer { net, user, unlink } => {
            siga_measure::run::measurer::serve(&AgentOptions { net, user, unlink, sockmap: None })
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
