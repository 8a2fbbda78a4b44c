//! `siga monitor`: samples of the processes of a network or a place, as tables, JSON lines, CSV, or OpenMetrics over HTTP.

mod live;
mod serve;

use crate::{note, parse, tell};
use clap::Args;
use live::Live;
use serve::Server;
use siga_fabric::rundir::{self, RunDir};
use siga_measure::interrupt;
use siga_measure::limits::INTERVAL_MIN;
use siga_measure::monitor::Monitor;
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use siga_plan::place::Place;
use siga_report::Layout;
use siga_report::monitor::{self, Users};
use siga_results::monitor::{Reading, Sample};
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const HELP: &str = "\
Examples:
  siga monitor                                  show the only network that is up, each second
  siga monitor figure-1 --interval 5s --for 1m
  siga monitor figure-1 --format jsonl --count 60 >samples.jsonl
  siga monitor --place netns:blue               show the processes in a network namespace
  siga monitor figure-1 --layout zvm --count 3  use the layout of z/VM's reports
  siga monitor figure-1 --listen 127.0.0.1:9464
                                                serve OpenMetrics, for Prometheus

On a terminal, press q or Ctrl-C to end, and the arrow keys to scroll.
Exit status 4 means that the network ended before the last sample.";

/// How samples are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SampleFormat {
    /// A table for each sample.
    Table,
    /// A line of JSON for each sample.
    Jsonl,
    /// A CSV record for each process and sample.
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct MonitorArgs {
    /// Name of the network that `siga net up` started. Default: the only network that is up.
    network: Option<Name>,
    /// Show the processes in the network namespace of this place (netns:NAME, pid:PID or local) instead of a network. Default:
    /// show a network.
    #[arg(long, value_parser = parse::<Place>, conflicts_with = "network")]
    place: Option<Place>,
    /// Set the time between two samples, of at least 100ms.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// End after this number of samples. Default: continue until you press Ctrl-C.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time. Default: continue until you press Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "count")]
    duration: Option<Duration>,
    /// Set the output format: table, jsonl (a line of JSON for each sample) or csv. Default: table; with `--listen`,
    /// print no samples.
    #[arg(long)]
    format: Option<SampleFormat>,
    /// Set the layout of the text: plain (siga's own layout) or zvm (SYSTEM_SUMMARY_BY_TIME and
    /// USER_RESOURCE_UTILIZATION of z/VM's performance data).
    #[arg(long, default_value = "plain", value_parser = parse::<Layout>, conflicts_with = "format")]
    layout: Layout,
    /// Serve the latest counters as OpenMetrics at http://ADDRESS:PORT/metrics. An address other than a loopback address
    /// needs a token. Default: do not serve.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Require the token in this file from each client of `--listen`. Only you may be able to read the file. Default: no
    /// token for a loopback address; for other addresses a random token, which siga prints.
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
}

/// Samples until the end.
pub(crate) fn run(args: &MonitorArgs) -> Result<()> {
    if args.interval < INTERVAL_MIN {
        return Err(Error::usage(format!("an interval of {:?} is too short", args.interval))
            .hint(format!("use at least {INTERVAL_MIN:?}")));
    }
    let server = args.listen.map(|address| Server::start(address, args.token_file.as_deref())).transpose()?;
    let (target, monitor) = match &args.place {
        Some(place) => (format!("place {place}"), Monitor::of_place(place)?),
        None => {
            let network = args.network.clone().map_or_else(only_network, Ok)?;
            (format!("network {network}"), Monitor::of_network(&network)?)
        }
    };
    interrupt::catch_interrupts()?;
    if let Some(server) = &server {
        note(&format!("siga: serving http://{}/metrics", server.address()));
        // The user needs the token of this line, so `--quiet` does not suppress it.
        if let Some(token) = server.drawn_token() {
            tell(&format!("siga: clients need the header `Authorization: Bearer {token}`"));
        }
    }
    let output = output(args)?;
    let count = match (args.count, args.duration) {
        (Some(count), _) => count,
        (None, Some(duration)) => samples_in(duration, args.interval),
        (None, None) => u64::MAX,
    };
    let mut watch = Watch { target, monitor, server, output, users: Users::default() };
    let outcome = watch.sample(args.interval, count);
    watch.end(outcome)
}

/// Returns the number of intervals in a time, at least 1.
fn samples_in(duration: Duration, interval: Duration) -> u64 {
    let count = (duration.as_secs_f64() / interval.as_secs_f64()).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a conversion of f64 saturates")]
    let count = count as u64;
    count.max(1)
}

fn only_network() -> Result<Name> {
    let all = RunDir::all(&rundir::base()?)?;
    match all.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Error::environment("no network is up").hint("run `siga net up TOPOLOGY`, or give --place")),
        several => {
            let names: Vec<&str> = several.iter().map(Name::as_str).collect();
            Err(Error::usage("several networks are up").hint(format!("name one of them: {}", names.join(", "))))
        }
    }
}

/// Where samples go.
enum Output {
    Nothing,
    Format(SampleFormat),
    Zvm,
    Live(Box<Live>),
}

fn output(args: &MonitorArgs) -> Result<Output> {
    Ok(match (args.format, args.layout) {
        (Some(format), _) => Output::Format(format),
        (None, Layout::Zvm) => Output::Zvm,
        (None, Layout::Plain) if args.listen.is_some() => Output::Nothing,
        (None, Layout::Plain) if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() => {
            Output::Live(Box::new(Live::begin()?))
        }
        (None, Layout::Plain) => Output::Format(SampleFormat::Table),
    })
}

/// Whether the reader of the samples is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    NoFurther,
}

/// Writes text to standard output. A reader that has closed the pipe (`| head`) ends the samples without an error.
fn print(text: &str) -> Result<Goes> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Goes::On),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Goes::NoFurther),
        Err(error) => Err(Error::environment(format!("cannot write to standard output: {error}"))),
    }
}

/// A monitor with its outputs.
struct Watch {
    target: String,
    monitor: Monitor,
    server: Option<Server>,
    output: Output,
    users: Users,
}

impl Watch {
    /// Samples `count` times, or until an interrupt. Returns the number of samples, and the error that ended the sampling.
    fn sample(&mut self, interval: Duration, count: u64) -> (u64, Result<()>) {
        let mut before = match self.read() {
            Ok(reading) => reading,
            Err(error) => return (0, Err(error)),
        };
        let mut next = Instant::now();
        for number in 1..=count {
            // After a delay, the missed samples are not made up for.
            next = (next + interval).max(Instant::now());
            if self.rest(next) {
                return (number - 1, Ok(()));
            }
            let done = self.read().and_then(|after| {
                let sample = Sample::between(&before, &after, number);
                before = after;
                self.show(sample)
            });
            match done {
                Ok(Goes::On) => {}
                Ok(Goes::NoFurther) => return (number, Ok(())),
                Err(error) => return (number - 1, Err(error)),
            }
        }
        (count, Ok(()))
    }

    fn read(&mut self) -> Result<Reading> {
        let reading = self.monitor.read()?;
        if let Some(server) = &self.server {
            server.publish(monitor::metrics(&self.target, &reading));
        }
        Ok(reading)
    }

    /// Waits until `until`. Returns true if the user ends the command.
    fn rest(&mut self, until: Instant) -> bool {
        loop {
            if interrupt::interrupted() {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // A signal that arrives just before the wait does not end it, so no wait is long.
            let left = left.min(Duration::from_millis(500));
            match &mut self.output {
                Output::Live(live) => {
                    if live.wait(left) {
                        return true;
                    }
                }
                Output::Nothing | Output::Format(_) | Output::Zvm => live::pause(left),
            }
        }
    }

    fn show(&mut self, sample: Sample) -> Result<Goes> {
        let target = self.target.as_str();
        match &mut self.output {
            Output::Nothing => Ok(Goes::On),
            Output::Format(SampleFormat::Table) => print(&monitor::table(target, &sample, crate::screen().width)),
            Output::Format(SampleFormat::Jsonl) => print(&monitor::json_line(target, &sample)?),
            Output::Format(SampleFormat::Csv) => print(&monitor::csv_records(target, &sample)?),
            Output::Zvm => {
                let head = if sample.number == 1 { monitor::summary_head(sample.host.cpus) } else { String::new() };
                self.users.add(&sample);
                print(&(head + &monitor::summary_line(&sample)))
            }
            Output::Live(live) => live.show(target, sample).map(|()| Goes::On),
        }
    }

    /// Restores the terminal, and prints what comes after the last sample.
    fn end(self, (count, outcome): (u64, Result<()>)) -> Result<()> {
        let Self { output, users, .. } = self;
        if let (Output::Zvm, true) = (&output, count > 0) {
            print(&users.text())?;
        }
        drop(output);
        outcome.map_err(|error| error.hint(format!("siga monitor took {count} samples")))
    }
}
