//! Computes figures of a run for the rows of the published tables: for a cell (from its median trial), and for each trial of a
//! cell.
//!
//! Rows and components have the names of the published tables; for example, `tcpip2` is the router. If applications and stacks
//! are separate processes, `tcpip1` and `tcpip3` are the stacks of client and server, without the applications. Otherwise these
//! components are called `client` and `server`, because stack and application are one process.

use super::published::metric as named;
use siga_model::error::Result;
use siga_plan::matrix::Cell;
use siga_plan::path::guest::GuestPath;
use siga_plan::path::guest::{Attach, NAMES};
use siga_plan::workload::Unit;
use siga_results::judge::{Figures, Metric, Mode, Part};
use siga_results::record::{Slot, TrialRecord};
use siga_results::reduce::{self, Blocks, CpuTime, Figure, RawCounters, reduce};
use siga_results::summary::{Component, Cpu, Summary, by_processes, itr};
use std::collections::BTreeMap;

/// The figures of a cell: for each row, the values of the sound trials by slot (session and round).
pub(crate) type Rows = BTreeMap<String, BTreeMap<Slot, f64>>;

/// The names of client, router and server on paths over the kernel's network. On a siga network, client and server also have
/// these names if stack and application are one process.
const KERNEL_NAMES: [&str; 3] = ["client", "router", "server"];

/// Returns the names of client, router and server in the rows of a cell.
pub(crate) fn names(cell: &Cell) -> [&'static str; 3] {
    match cell.path.parse::<GuestPath>() {
        Ok(GuestPath { attach: Attach::Iucv, .. }) => NAMES,
        Ok(GuestPath { attach: Attach::Embedded | Attach::Mixed | Attach::Netns, .. }) => {
            [KERNEL_NAMES[0], NAMES[1], KERNEL_NAMES[2]]
        }
        Err(_) => KERNEL_NAMES,
    }
}

/// Returns the components of a cell with their names, in the order of the tables' rows. Components that the published tables lack
/// (applications, other) come last.
pub(crate) fn components(cpu: &Cpu, cell: &Cell) -> Vec<(&'static str, Component)> {
    if cell.workload.is_command() {
        let server = (cpu.server != Component::default()).then_some(("server", cpu.server));
        return [("command", cpu.client)].into_iter().chain(server).chain([("other", cpu.other)]).collect();
    }
    let [client, router, server] = names(cell);
    let (of_client, of_server) = cpu.applications.unwrap_or_default();
    let applications = cpu.applications.map(|(one, other)| one.plus(other));
    let all = [
        (client, Some(cpu.client.without(&of_client))),
        (router, cpu.router),
        (server, Some(cpu.server.without(&of_server))),
        ("applications", applications),
        ("other", Some(cpu.other)),
    ];
    all.into_iter().filter_map(|(name, component)| Some((name, component?))).collect()
}

/// Returns the column of a cell: the blocks of rows that the published tables have, then a block of rows that only siga has. All
/// figures come from the median trial. Returns an error of kind `Incomplete` if the cell has completed no unit, because there is
/// then no figure per unit.
pub(crate) fn column(summary: &Summary) -> Result<Blocks<f64>> {
    let mut blocks = reduce(&counters(summary))?;
    // As in the published reports, the rate is the one that the workload driver measured. All other figures are for the interval
    // between the two readings of the CPU counters. That interval is longer than the driver's, because it includes the pauses in
    // which all ends stop sending (quiescent points).
    if let Some(rate) = blocks.first_mut().and_then(|block| block.first_mut()) {
        rate.value = summary.rate;
    }
    blocks.push(beyond(summary));
    Ok(blocks)
}

/// Returns the rows that only siga has: the guests' CPU time spent waiting (polling and yielding), the duration of the trial, and
/// latencies.
fn beyond(summary: &Summary) -> Vec<Figure<f64>> {
    let unit = summary.cell.workload.unit();
    let per_unit = format!("msec/{}", unit.name());
    let figure = |metric: String, unit: &str, value| Figure { metric, unit: unit.to_owned(), value, places: 2 };
    let mut rows = Vec::new();
    if summary.median.cpu.guests.is_some() {
        let parts = components(&summary.cpu, &summary.cell);
        let all = [("", summary.cpu.total)].into_iter().chain(parts.into_iter().filter(|(_, part)| part.wait > 0.0));
        rows.extend(all.map(|(name, part)| figure(named(&wait(name), unit), &per_unit, part.wait)));
    }
    let rate = itr(summary.cpu.total.total);
    rows.extend(rate.map(|rate| figure(itr_row(unit), unit.itr_name(), rate)));
    rows.push(figure("elapsed_sec".to_owned(), "sec", summary.median.elapsed_ns as f64 / 1e9));
    for (name, value) in [("p50_us", summary.latency.p50), ("p99_us", summary.latency.p99)] {
        rows.extend(value.map(|value| figure(name.to_owned(), "us", value)));
    }
    rows
}

/// Returns the name of the row with the internal throughput rate: `itr_trans/CPUsec`.
fn itr_row(unit: Unit) -> String {
    format!("itr_{}", unit.itr_name().replace(' ', ""))
}

fn wait(component: &str) -> String {
    if component.is_empty() { "wait".to_owned() } else { format!("{component}_wait") }
}

/// Returns the counters of the median trial, with CPU times in seconds, for the interval between the two readings of the CPU
/// counters.
fn counters(summary: &Summary) -> RawCounters<f64> {
    let trial = &summary.median;
    let interval_s = trial.cpu.wall_ns.max(1) as f64 / 1e9;
    let units = trial.units();
    let seconds = |component: &Component| CpuTime {
        cpu_s: component.total * units / 1e3,
        vcpu_s: component.user * units / 1e3,
        ccpu_s: component.kernel * units / 1e3,
    };
    let named = components(&summary.cpu, &summary.cell);
    RawCounters {
        interval_s,
        processors: trial.cpu.cpus,
        rate: units / interval_s,
        unit: trial.cell.workload.unit(),
        total: seconds(&summary.cpu.total),
        components: named
            .iter()
            .map(|(name, component)| reduce::Component { name: (*name).to_owned(), time: seconds(component) })
            .collect(),
    }
}

/// Returns the figures of every sound trial of a cell. Returns an error of kind `Environment` if a histogram is damaged.
pub(crate) fn of_cell(figures: &Figures<'_>, cell: &Cell) -> Result<Rows> {
    let mut rows = Rows::new();
    for (slot, trial) in figures.sound(cell) {
        for (name, value) in of_trial(figures, trial)? {
            rows.entry(name).or_default().insert(slot, value);
        }
    }
    Ok(rows)
}

fn of_trial(figures: &Figures<'_>, trial: &TrialRecord) -> Result<BTreeMap<String, f64>> {
    let unit = trial.cell.workload.unit();
    let names = names(&trial.cell);
    let (_, values) = figures.of(trial)?;
    let mut rows: BTreeMap<String, f64> =
        values.iter().map(|(metric, value)| (row(*metric, names, unit), *value)).collect();
    if let Some(guests) = trial.cpu.guests.as_ref().filter(|_| trial.units() > 0.0) {
        let cpu = by_processes(trial, guests);
        rows.insert(named(&wait(""), unit), cpu.total.wait);
        for (name, part) in components(&cpu, &trial.cell) {
            for (kind, value) in [("cpu", part.total), ("vcpu", part.user), ("ccpu", part.kernel), ("wait", part.wait)]
            {
                rows.insert(named(&format!("{name}_{kind}"), unit), value);
            }
        }
    }
    rows.extend(utilisations(trial, &rows, unit));
    rows.insert("elapsed_sec".to_owned(), trial.elapsed_ns as f64 / 1e9);
    Ok(rows)
}

/// Returns the utilisations of the components and of the whole system in percent, with the names of their rows. 100% is one busy
/// processor for a component, and all processors busy for the whole system.
fn utilisations(trial: &TrialRecord, rows: &BTreeMap<String, f64>, unit: Unit) -> Vec<(String, f64)> {
    let busy = |msec: f64| 100.0 * msec * trial.units() * 1e6 / trial.cpu.wall_ns.max(1) as f64;
    let suffix = named("_cpu", unit);
    let part =
        |(name, msec): (&String, &f64)| Some((format!("{}_tot_cpu_util", name.strip_suffix(&suffix)?), busy(*msec)));
    let mut all: Vec<(String, f64)> = rows.iter().filter_map(part).collect();
    let total = rows.get(&named("cpu", unit));
    all.extend(total.map(|msec| ("total_cpu_util".to_owned(), busy(*msec) / f64::from(trial.cpu.cpus.max(1)))));
    all
}

/// Returns the name of the row for a metric. The array has the names of client, router and server.
fn row(metric: Metric, [client, router, server]: [&str; 3], unit: Unit) -> String {
    let of = |component: &str, mode| {
        let kind = match mode {
            Mode::All => "cpu",
            Mode::Virtual => "vcpu",
            Mode::Cp => "ccpu",
        };
        named(&format!("{component}_{kind}"), unit)
    };
    match metric {
        Metric::Figure(key) => key.name.to_string(),
        Metric::Rate => named("rate", unit),
        Metric::P50 => "p50_us".to_owned(),
        Metric::P99 => "p99_us".to_owned(),
        Metric::Streams => "streams_MB/sec".to_owned(),
        Metric::ToServer => "to_server_MB/sec".to_owned(),
        Metric::ToClient => "to_client_MB/sec".to_owned(),
        Metric::Sent => named("sent_rate", unit),
        Metric::Loss => "loss".to_owned(),
        Metric::Jitter => "jitter_us".to_owned(),
        Metric::Itr => itr_row(unit),
        Metric::Cpu(Part::Total, Mode::All) => named("cpu", unit),
        Metric::Cpu(Part::Total, Mode::Virtual) => named("emul", unit),
        Metric::Cpu(Part::Total, Mode::Cp) => named("cp", unit),
        Metric::Cpu(Part::Client, mode) => of(client, mode),
        Metric::Cpu(Part::Router, mode) => of(router, mode),
        Metric::Cpu(Part::Server, mode) => of(server, mode),
        Metric::Cpu(Part::Other, mode) => of("other", mode),
    }
}
