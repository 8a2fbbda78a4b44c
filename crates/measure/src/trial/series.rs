//! Writes a time series while a trial runs: one line for each interval of the measured phase.
//!
//! The agent's control thread reports the counts, which the workload driver publishes anyway. This process adds the CPU times. So the
//! measured loop does no further work; the cost is a few system calls for each interval, in other threads.

use super::fixture::Fixture;
use super::reading::Reading;
use crate::agent::protocol::Tick;
use crate::cpu::host::HostCpu;
use crate::cpu::process;
use crate::limits;
use crate::monitor::Monitor;
use siga_model::error::{IoContext, Result};
use siga_plan::matrix::Cell;
use siga_results::monitor::{MonitorRecord, Reading as MonitorReading, Sample};
use siga_results::record::{SeriesCpu, SeriesRecord};
use siga_results::store::SeriesFile;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// Where a run writes its time series.
pub struct Series {
    /// Length of an interval.
    pub interval: Duration,
    /// The file in the run directory.
    pub file: SeriesFile,
    /// The file of the monitor's samples in the run directory.
    pub monitor: SeriesFile,
    /// A further output with its name, for example standard output.
    pub copy: Option<(String, Box<dyn Write>)>,
}

impl std::fmt::Debug for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Series").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl Series {
    fn write(&mut self, record: &SeriesRecord) -> Result<()> {
        self.file.add(record)?;
        let Some((name, output)) = &mut self.copy else { return Ok(()) };
        let mut line = serde_json::to_vec(record).context("cannot encode a line of the time series")?;
        line.push(b'\n');
        output.write_all(&line).and_then(|()| output.flush()).context(format!("cannot write {name}"))
    }
}

/// The processes of each component; `None` if their CPU time is not known during a trial.
#[derive(Debug, Clone, Default)]
pub(super) struct Pids {
    pub(super) client: Option<Vec<u32>>,
    pub(super) router: Option<Vec<u32>>,
    pub(super) server: Option<Vec<u32>>,
}

/// CPU times in nanoseconds at one moment.
#[derive(Debug)]
struct CpuNow {
    client: Option<u64>,
    router: Option<u64>,
    server: Option<u64>,
    host: Option<HostCpu>,
}

impl CpuNow {
    fn read(pids: &Pids) -> Self {
        let sum = |pids: &Option<Vec<u32>>| {
            let pids = pids.as_ref().filter(|pids| pids.len() <= limits::SERIES_PROCESSES_MAX)?;
            pids.iter().map(|&pid| process::of(pid, "a process").ok().map(|cpu| cpu.run_ns)).sum()
        };
        let (client, router, server) = (sum(&pids.client), sum(&pids.router), sum(&pids.server));
        Self { client, router, server, host: HostCpu::read().ok() }
    }

    fn since(&self, earlier: &Self) -> SeriesCpu {
        let ms = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?) as f64 / 1e6);
        let host = self.host.as_ref().zip(earlier.host.as_ref()).map(|(now, then)| now.busy_since(then) as f64 / 1e6);
        SeriesCpu {
            client: ms(self.client, earlier.client),
            router: ms(self.router, earlier.router),
            server: ms(self.server, earlier.server),
            host,
        }
    }
}

/// Turns the agent's reports of one trial into records.
pub(super) struct Sampler<'a> {
    series: &'a mut Series,
    cell: &'a Cell,
    round: u32,
    pids: Pids,
    before: (Tick, CpuNow),
    /// The monitor, with its last reading and the number of samples. `None` if there are too many processes.
    monitor: Option<(Monitor, MonitorReading, u64)>,
}

impl<'a> Sampler<'a> {
    /// Makes a sampler for a phase that is about to begin. `ends` names the processes of both ends.
    pub(super) fn new(
        series: &'a mut Series,
        (cell, round): (&'a Cell, u32),
        fixture: &Fixture,
        ends: &Reading,
    ) -> Self {
        let pids = fixture.component_pids(ends);
        let processes = fixture.monitored(ends);
        let monitor = if processes.is_empty() { None } else { Monitor::of_processes(processes).ok() };
        let monitor = monitor.and_then(|mut monitor| {
            let first = monitor.read().ok()?;
            Some((monitor, first, 0))
        });
        let before = (Tick::default(), CpuNow::read(&pids));
        Self { series, cell, round, pids, before, monitor }
    }

    /// Returns the length of an interval.
    pub(super) fn interval(&self) -> Duration {
        self.series.interval
    }

    /// Writes the record of the interval that ends with `tick`.
    pub(super) fn add(&mut self, tick: Tick) -> Result<()> {
        let now = (tick, CpuNow::read(&self.pids));
        let (then, cpu_before) = std::mem::replace(&mut self.before, now);
        let seconds = tick.at_ns.saturating_sub(then.at_ns) as f64 / 1e9;
        let transactions = tick.transactions.saturating_sub(then.transactions);
        let sent = tick.sent.saturating_sub(then.sent);
        let received = tick.received.saturating_sub(then.received);
        let workload = self.cell.workload;
        let record = SeriesRecord {
            at: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            cell: self.cell.clone(),
            round: self.round,
            second: tick.at_ns as f64 / 1e9,
            seconds,
            rate: workload.units(transactions, sent.saturating_add(received)) / seconds.max(1e-9),
            rate_unit: workload.unit().rate_name().to_owned(),
            transactions,
            bytes_to_server: sent,
            bytes_to_client: received,
            lost: tick.lost.saturating_sub(then.lost),
            cpu_ms: self.before.1.since(&cpu_before),
        };
        self.series.write(&record)?;
        self.sample()
    }

    /// Writes a sample of the monitor.
    fn sample(&mut self) -> Result<()> {
        let Some((monitor, before, count)) = &mut self.monitor else { return Ok(()) };
        let after = monitor.read()?;
        *count += 1;
        let sample = Sample::between(before, &after, *count);
        *before = after;
        self.series.monitor.add(&MonitorRecord { cell: self.cell.clone(), round: self.round, sample })
    }
}
