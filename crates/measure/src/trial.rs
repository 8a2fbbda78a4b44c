//! One trial: a single timed measurement of a cell (a combination of path, workload, MTU, pairs and level). Its steps: build
//! the path, start the agents (the client and the server process), warm up, quiesce (stop all traffic), measure, quiesce.
//!
//! A trial creates its own path and agents and ends them, so no state passes from one trial to the next. Payload and CPU time
//! are counted over the same interval: between the two quiescent points, at which no data is in flight.

pub(crate) mod command;
mod ends;
mod fixture;
mod neighbours;
pub(crate) mod prepare;
mod reach;
mod reading;
pub(crate) mod series;
mod servers;

use crate::agent::launch::Programs;
use crate::agent::protocol::{Order, Report, Tick};
use crate::build::Builds;
use crate::clock::nanoseconds;
use crate::cpu::chains::Names;
use crate::cpu::charge::charge;
use crate::cpu::host::{At, HostCpu};
use crate::cpu::profile::Profiler;
use crate::interrupt::interrupted;
use crate::limits;
use crate::load::client::Phase;
use crate::probe;
use crate::topology::Networks;
use ends::io_name;
use fixture::Fixture;
use prepare::Preparation;
use reading::Reading;
use series::{Sampler, Series};
use siga_model::error::{Error, Result};
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::offered::Offered;
use siga_plan::plan::Plan;
use siga_plan::workload::{Shape, Unit, Workload};
use siga_results::histogram::{self, Percentiles};
use siga_results::record::{
    ChainsRecord, CpuRecord, HostRecord, LoadCounts, ObserverRecord, OfferedRecord, PathRecord, PhaseRecord,
    ProcessCpu, ProfileRecord, TrialRecord,
};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// Duration in seconds of the unmeasured phase in which the receivers check every byte. If the trial is shorter than this, the
/// phase has the duration of the trial.
const CHECK_SECONDS: f64 = 0.1;
/// Duration of the phase with the profiler, as a fraction of the trial's own phase.
pub(crate) const WITH_PROFILER: f64 = 0.5;
/// Duration of the phase without the profiler after it, as a fraction of the trial's own phase.
pub(crate) const WITHOUT_PROFILER: f64 = 0.25;
/// Minimum mean number of transactions of a pair for Jain's index. Fewer transactions differ between pairs by chance alone.
const FAIRNESS_TRANSACTIONS_LEAST: f64 = 10.0;
/// Minimum mean number of megabytes of a pair for Jain's index.
const FAIRNESS_MEGABYTES_LEAST: f64 = 1.0;
/// Maximum number of further attempts at a trial that the host kept from running, so that there is no result.
const AGAIN_MAX: usize = 2;
/// Minimum latency that can mean lost service, in microseconds: Linux's minimum time until TCP sends a lost segment again.
const SERVICE_LOST_US_LEAST: f64 = 200_000.0;
/// A latency of this length means lost service in a trial of any duration, in microseconds.
const SERVICE_LOST_US: f64 = 1_000_000.0;
/// Minimum factor between a latency that means lost service and the median latency.
const SERVICE_LOST_FACTOR: f64 = 10.0;

/// The state that all trials of a run share.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The plan's cells and levels.
    pub matrix: &'a Matrix,
    /// The command that connects to other hosts. It comes from the command line or the user's configuration, never from a plan
    /// or a run directory.
    pub ssh: &'a str,
    /// The builds that levels name.
    pub builds: &'a Builds,
    /// The user's own networks of the plan's paths.
    pub networks: &'a Networks,
    /// The profiler; `None` if the host does not permit it or the plan does not use it.
    pub profiler: Option<Profiler>,
    /// The names of functions in the call chains of the profiler's samples. `None` without a profiler.
    pub names: Option<Names>,
    /// Where the time series goes; `None` if the user wants none.
    pub series: Option<Series>,
    /// The setups of commands that have no teardown yet.
    pub preparation: Preparation,
}

/// Called with the client's counts after each interval of a phase.
type Each<'a> = &'a mut dyn FnMut(Tick) -> Result<()>;

/// The results of one phase: counts between two quiescent points.
#[derive(Debug)]
struct Interval {
    report: Report,
    /// Time in nanoseconds from the first byte to the arrival of the last byte, on the clock of the side that receives the
    /// payload.
    elapsed_ns: u64,
    server: LoadCounts,
}

impl Interval {
    /// Returns the counts of the phase for the record.
    fn counted(&self) -> PhaseRecord {
        PhaseRecord { elapsed_ns: self.elapsed_ns, client: self.report.counts }
    }
}

/// The records of the phase with the profiler.
#[derive(Debug, Default)]
struct Observed {
    profile: Option<ProfileRecord>,
    observer: Option<ObserverRecord>,
    chains: Option<ChainsRecord>,
}

/// Measures trials: on this host, or on another one. Tests have an implementation that decides what a trial finds.
pub(crate) trait Measures {
    /// Measures one trial of `cell`. If `check` is true, an unmeasured phase before the measured phase checks every byte. If the
    /// host keeps the trial from running so that there is no result, the trial is attempted again, and `progress` receives the
    /// reason. The record counts these attempts, and the rule for disturbed rounds leaves the whole round out. Returns an error of
    /// kind `Environment` if the path cannot be built or a place refuses access. Returns an error of kind `Incomplete` if an end
    /// died or stopped answering, or if no attempt gave a result.
    fn trial(
        &mut self,
        cell: &Cell,
        round: u32,
        check: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(TrialRecord, PathRecord)>;

    /// Returns the reason why there will be no further trial; `None` as long as trials can be measured.
    fn lost(&self) -> Option<Error> {
        None
    }
}

impl Measures for Bench<'_> {
    fn trial(
        &mut self,
        cell: &Cell,
        round: u32,
        check: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(TrialRecord, PathRecord)> {
        let mut lost = 0;
        let (mut record, mut path) = until_it_runs(
            || self.attempt(cell, round, check),
            |reason| {
                lost += 1;
                progress(&format!("{cell}: siga repeats this trial, because {reason}"));
            },
        )?;
        record.host.get_or_insert_default().lost_attempts = lost;
        path.build = self.builds.version(&cell.level);
        Ok((record, path))
    }
}

impl Bench<'_> {
    /// Returns the programs from which the processes of a trial come.
    fn programs(&self, cell: &Cell) -> Result<Programs<'_>> {
        Ok(Programs { siga: self.builds.program(&cell.level)?, ssh: self.ssh })
    }

    fn attempt(&mut self, cell: &Cell, round: u32, check: bool) -> Result<(TrialRecord, PathRecord)> {
        let Some(workload) = cell.workload.network() else { return self.command_trial(cell, round) };
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let probe = probe::probe();
        let mut fixture = Fixture::set(self.plan, self.matrix, (self.programs(cell)?, self.networks), cell)?;
        if check {
            let checked = self.phase(&mut fixture, self.plan.seconds.min(CHECK_SECONDS), limits::STAMP_BYTES)?;
            sound_content(&checked, "while siga checked every byte")?;
        }
        if self.plan.warm_up_seconds > 0.0 {
            self.phase(&mut fixture, self.plan.warm_up_seconds, limits::STAMP_STRIDE_BYTES)?;
        }
        let lost = fixture.losses()?;
        let planted = fixture.planted()?;
        let beside_before = fixture.neighbours_progress()?;
        // Before the phase, the counters of the hosts are read after all other counters; after the phase, before all others. So
        // the hosts' totals include little CPU time of the other readings.
        let before = fixture.read(true)?;
        let hosts_before = fixture.hosts(At::Begin, None)?;
        let measured = self.measure(&mut fixture, (cell, round), &before)?;
        let hosts = fixture.hosts(At::End, Some(&before))?;
        let after = fixture.read(false)?;
        let beside_after = fixture.neighbours_progress()?;
        let planted = fixture.planted()?.map(|now| since(now, planted));
        let losses = fixture.losses()?;
        let observed = self.observe(&mut fixture, &after, planted.is_some())?;
        let offered = self.offer(&mut fixture, cell, &measured)?;
        let cpu = CpuRecord {
            client: after.client.process.since(before.client.process),
            server: after.server.process.since(before.server.process),
            profile: observed.profile,
            chains: observed.chains,
            guests: after.guests_since(&before),
            between: after.between_since(&before),
            planted_router: planted,
            ..hosts_record(&hosts_before, &hosts)
        };
        let carrier_losses = losses.carrier.saturating_sub(lost.carrier);
        let besides = besides((&hosts_before, &hosts), (&before, &after), &cpu);
        let host = HostRecord { probe, carrier_losses, ..besides };
        let record = TrialRecord {
            cell: cell.clone(),
            round,
            session: 0,
            at,
            io: io_name(self.plan, self.matrix, self.networks, cell)?,
            elapsed_ns: measured.elapsed_ns,
            client: measured.report.counts,
            server: measured.server,
            flags: [flags(workload, &measured, self.plan.seconds)?, fixture.neighbours_flaws()?].concat(),
            latency: measured.report.latency,
            corrected: measured.report.corrected,
            slices: measured.report.slices,
            pair_units: (measured.report.pair_least, measured.report.pair_most),
            fairness: jain(cell, measured.report.pair_sums),
            jitter_ns: jitter(measured.report.jitter),
            beside: measured.report.beside,
            neighbours_rate: beside_after.zip(beside_before).map(|(after, before)| after.rate_since(before)),
            cpu,
            command: None,
            observer: observed.observer,
            offered,
            host: Some(host),
            protocol: grown(&before, &after),
            devices: after.devices_since(&before),
            drops: (losses.drops + after.drops()).saturating_sub(lost.drops + before.drops()),
        };
        if record.units() == 0.0 {
            return Err(nothing_done(&record.flags));
        }
        Ok((record, fixture.path_record(cell, &after)))
    }

    /// Runs a phase with the profiler and a phase without it, after the trial's own phase. `ends` names the processes of both ends.
    /// `is_planted` says whether the trial has a BPF program that plants a cost. On a path of guests, whose run times are exact, only
    /// the call chains are recorded. The result is empty if there is no profiler.
    fn observe(&mut self, fixture: &mut Fixture, ends: &Reading, is_planted: bool) -> Result<Observed> {
        let is_of_guests = fixture.is_of_guests();
        // Without names, a profile of guests would say nothing.
        let Some(profiler) = self.profiler.as_mut().filter(|_| !is_of_guests || self.names.is_some()) else {
            return Ok(Observed::default());
        };
        let cost = profiler.cost();
        let planted = fixture.plant_in_profiler()?;
        profiler.start()?;
        let with = self.phase(fixture, WITH_PROFILER * self.plan.seconds, limits::STAMP_STRIDE_BYTES);
        let profile = self.profiler.as_mut().map(Profiler::stop).transpose()?;
        let is_planted = is_planted || planted.is_some();
        drop(planted);
        let (Some(profile), with) = (profile, with?) else { return Ok(Observed::default()) };
        let owners = fixture.owners(ends);
        let chains = self.names.as_mut().map(|names| names.record(&profile, &owners, with.counted(), is_planted));
        if is_of_guests {
            return Ok(Observed { chains, ..Observed::default() });
        }
        let without = self.phase(fixture, WITHOUT_PROFILER * self.plan.seconds, limits::STAMP_STRIDE_BYTES)?;
        let observer = ObserverRecord {
            with: with.counted(),
            without: without.counted(),
            sample_ns: cost.sample_ns,
            packet_ns: cost.packet_ns,
            packets: profile.packets,
        };
        Ok(Observed { profile: Some(charge(&profile, &owners)), observer: Some(observer), chains })
    }

    /// Runs a phase with each load of the plan, in percent of the rate of the trial's own phase `closed`.
    fn offer(&self, fixture: &mut Fixture, cell: &Cell, closed: &Interval) -> Result<Vec<OfferedRecord>> {
        let rate = closed.counted().rate(cell.workload);
        if rate == 0.0 {
            return Ok(Vec::new());
        }
        let one = |load: &Offered| {
            let planned_per_s = load.share() * rate;
            let phase = self.phase_at(fixture, self.plan.seconds, limits::STAMP_STRIDE_BYTES, Some(planned_per_s))?;
            let counted = phase.counted();
            let latency = phase
                .report
                .corrected
                .ok_or_else(|| Error::incomplete("a phase with planned transactions contains no latencies"))?;
            Ok(OfferedRecord { load: *load, planned_per_s, phase: counted, latency })
        };
        self.plan.load.iter().map(one).collect()
    }

    /// Runs the measured phase, and writes its time series if the user wants one. `before` is the reading before the phase.
    fn measure(&mut self, fixture: &mut Fixture, trial: (&Cell, u32), before: &Reading) -> Result<Interval> {
        let (seconds, stride) = (self.plan.seconds, limits::STAMP_STRIDE_BYTES);
        let Some(mut series) = self.series.take() else { return self.phase(fixture, seconds, stride) };
        let mut sampler = Sampler::new(&mut series, trial, fixture, before);
        let interval = sampler.interval();
        let mut each = |tick| sampler.add(tick);
        let measured = self.phase_watched(fixture, (seconds, stride), self.plan.rate, Some((interval, &mut each)));
        self.series = Some(series);
        measured
    }

    /// Runs one phase of a trial at the rate of the plan.
    fn phase(&self, fixture: &mut Fixture, seconds: f64, stride: u64) -> Result<Interval> {
        self.phase_at(fixture, seconds, stride, self.plan.rate)
    }

    /// Runs one phase of a trial, from one quiescent point to the next. `stride` is the distance in bytes between two checked
    /// pieces (stamps) of the payload. `rate` is the number of planned transactions per second; `None` means a closed loop.
    fn phase_at(&self, fixture: &mut Fixture, seconds: f64, stride: u64, rate: Option<f64>) -> Result<Interval> {
        self.phase_watched(fixture, (seconds, stride), rate, None)
    }

    /// Runs a phase as [`Self::phase_at`], and calls the function of `watch` after each interval.
    fn phase_watched(
        &self,
        fixture: &mut Fixture,
        (seconds, stride): (f64, u64),
        rate: Option<f64>,
        watch: Option<(Duration, Each<'_>)>,
    ) -> Result<Interval> {
        let duration_ns = seconds_to_ns(seconds);
        let long = Duration::from_nanos(duration_ns) + limits::STALL_TIME_MAX + fixture.answer_time_max;
        let server_before = fixture.quiesced.counts;
        fixture.server_does(&Order::Resume { stride })?;
        let phase = Phase { start_ns: 0, duration_ns, stride, rate };
        let (interval_ns, each): (_, Each<'_>) = match watch {
            Some((interval, each)) => (Some(nanoseconds(interval)), each),
            None => (None, &mut |_| Ok(())),
        };
        let sent = fixture.client_stops(&Order::Run { phase, interval_ns }, long, each)?;
        // Lost datagrams never arrive. So if the network may lose data, the server must not wait for all bytes that the client
        // has sent.
        let awaited = if fixture.lossy { vec![0; sent.len()] } else { sent };
        let held = fixture.quiesce(awaited)?;
        let report = fixture.client_reports(&Order::Finish { received: held })?;
        let client_ns = report.end_ns.saturating_sub(report.start_ns);
        let elapsed_ns = match (fixture.quiesced.span_ns(), fixture.shape) {
            (0, _) => client_ns,
            // Both sides receive.
            (span_ns, Shape::Strb) => span_ns.max(client_ns),
            (span_ns, Shape::Rr | Shape::Crr | Shape::Strg | Shape::Strp) => span_ns,
        };
        Ok(Interval { report, elapsed_ns, server: fixture.quiesced.counts.since(server_before) })
    }
}

/// Calls `attempt`. While `attempt` returns the error that the host kept it from running, calls it again, up to `AGAIN_MAX` times.
/// Before each repetition, `progress` receives the reason.
fn until_it_runs<T>(mut attempt: impl FnMut() -> Result<T>, mut progress: impl FnMut(&str)) -> Result<T> {
    for _ in 0..AGAIN_MAX {
        match attempt() {
            Err(error) if error.is_disturbance() && !interrupted() => progress(error.message()),
            ended => return ended,
        }
    }
    attempt()
}

/// Returns the packets and the CPU time that the CPU-cost injector has added since `before`.
fn since((packets, ns): (u64, u64), before: Option<(u64, u64)>) -> (u64, u64) {
    let (packets_before, ns_before) = before.unwrap_or_default();
    (packets - packets_before, ns - ns_before)
}

/// Returns the error for a trial that completed no unit (transaction or megabyte). If `flags` contains no problem that explains
/// this, the reason must be that the host gave client and server no CPU time.
fn nothing_done(flags: &[String]) -> Error {
    let reasons: Vec<_> = flags.iter().map(|flag| format!(", {flag}")).collect();
    let message = format!("client and server completed no unit of work during the trial{}", reasons.concat());
    let error = if flags.is_empty() { Error::disturbed(message) } else { Error::incomplete(message) };
    error.hint("use longer trials (--seconds), or reduce other load on the host")
}

fn sound_content(interval: &Interval, while_doing: &str) -> Result<()> {
    let wrong = interval.report.counts.wrong_content + interval.server.wrong_content;
    if wrong > 0 {
        return Err(Error::incomplete(format!("{while_doing}: {wrong} parts of the payload were corrupted"))
            .hint("the path corrupts data, so siga does not measure it"));
    }
    Ok(())
}

/// Returns a description of each problem that the counts and the latencies of a trial of `seconds` show.
fn flags(workload: &Workload, interval: &Interval, seconds: f64) -> Result<Vec<String>> {
    let (client, server) = (&interval.report.counts, &interval.server);
    let mut flags = Vec::new();
    let lossless = !workload.udp && client.errors() == 0;
    let agree = client.sent == server.received && client.received == server.sent;
    if lossless && !(agree && (workload.is_stream() || client.transactions == server.transactions)) {
        flags.push(format!(
            "the byte counts of client and server differ: {} and {} bytes to the server, {} and {} bytes to the client",
            client.sent, server.received, server.sent, client.received
        ));
    }
    for (what, count) in [
        ("connections could not be opened", client.connect_failures),
        ("connections were reset", client.resets + server.resets),
        ("messages were incomplete", client.short_reads + server.short_reads),
        ("parts of the payload were corrupted", client.wrong_content + server.wrong_content),
        ("datagrams were lost", client.lost),
        ("planned transactions were not started", client.unstarted),
    ] {
        if count > 0 {
            flags.push(format!("{count} {what}"));
        }
    }
    if workload.shape == Shape::Crr
        && let Some((early, late)) = collapse(&interval.report.slices)
    {
        flags.push(format!(
            "the rate collapsed during the trial: from {early:.0} to {late:.0} units per tenth of the trial"
        ));
    }
    flags.extend(lost_service(&histogram::percentiles(&histogram::decode(&interval.report.latency)?), seconds));
    Ok(flags)
}

/// Returns a flaw if the longest latency of a trial of `seconds` means that a pair was without service for some time: it takes half
/// of the trial or a second, and is much longer than the median. A path that is slow in every exchange does not lose service.
fn lost_service(latency: &Percentiles, seconds: f64) -> Option<String> {
    let (usual, most) = (latency.p50?, latency.max?);
    let long = SERVICE_LOST_US.min(seconds * 1e6 / 2.0).max(SERVICE_LOST_US_LEAST);
    let lost = most >= long && most >= SERVICE_LOST_FACTOR * usual;
    let ms = |us: f64| us / 1e3;
    lost.then(|| {
        format!("the path stalled: one transaction took {:.0} ms of a {:.0} ms trial", ms(most), ms(seconds * 1e6))
    })
}

/// Compares the mean rate of the first third of `slices` (three of ten parts of the trial) with that of the last third. Returns
/// both if the rate has fallen by half or more. In CRR this happens, without any error, when connections in TIME-WAIT use up
/// all ports.
fn collapse(slices: &[f64]) -> Option<(f64, f64)> {
    let third = slices.len() / 3;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let (early, late) = (mean(&slices[..third]), mean(&slices[slices.len() - third..]));
    // If each tenth contains only a few long exchanges, a difference between the means is no evidence of a falling rate.
    (early >= 10.0 && late <= early / 2.0).then_some((early, late))
}

/// Converts a time of a plan to nanoseconds.
fn seconds_to_ns(seconds: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the plan's check")]
    {
        (seconds * 1e9) as u64
    }
}

/// Returns the growth of the hosts' CPU counters as a record. The fields for client, server and guests stay empty.
fn hosts_record(before: &[HostCpu], after: &[HostCpu]) -> CpuRecord {
    let hosts: Vec<_> = before.iter().zip(after).collect();
    let sum = |f: fn(&HostCpu) -> u64| -> u64 {
        hosts.iter().map(|(before, after)| f(after).saturating_sub(f(before))).sum()
    };
    CpuRecord {
        hosts: u32::try_from(hosts.len()).unwrap_or(u32::MAX),
        cpus: after.iter().map(|host| host.cpus).sum(),
        wall_ns: hosts.iter().map(|(before, after)| after.wall_since(before)).max().unwrap_or(0),
        busy_ns: hosts.iter().map(|(before, after)| after.busy_since(before)).sum(),
        resolution_ns: hosts.iter().map(|(before, after)| after.resolution_since(before)).sum(),
        user_tick_ns: sum(|host| host.user_tick_ns),
        system_tick_ns: sum(|host| host.system_tick_ns),
        softirq_tick_ns: sum(|host| host.softirq_tick_ns),
        client: ProcessCpu::default(),
        server: ProcessCpu::default(),
        profile: None,
        chains: None,
        guests: None,
        between: Default::default(),
        planted_router: None,
    }
}

/// Returns what the hosts did besides the trial, and how long the path's threads waited for a CPU. Each argument has the readings
/// before and after the phase.
fn besides(hosts: (&[HostCpu], &[HostCpu]), ends: (&Reading, &Reading), cpu: &CpuRecord) -> HostRecord {
    let host = host_record(hosts.0, hosts.1);
    // If an orphan ends, the kernel adds its whole CPU time to that of its new parent. But the ends used a part of the CPU time.
    let rest_ns = cpu.busy_ns.saturating_sub(cpu.client.run_ns).saturating_sub(cpu.server.run_ns);
    let others_ns = host.others_ns.map(|ns| ns.min(rest_ns));
    HostRecord { others_ns, run_queue: ends.1.run_queue_since(ends.0), ..host }
}

/// Returns what the hosts did besides the trial. The figures that do not come from the hosts' counters stay empty.
pub(crate) fn host_record(before: &[HostCpu], after: &[HostCpu]) -> HostRecord {
    let steal = before.iter().zip(after).map(|(before, after)| after.steal_ns.saturating_sub(before.steal_ns));
    HostRecord {
        steal_ns: steal.sum(),
        others_ns: after.iter().map(|host| host.others_ns).sum(),
        other_runs: after.iter().map(|host| host.other_runs).sum(),
        ..HostRecord::default()
    }
}

/// Returns Jain's index of the units that each pair completed, from their sum and the sum of their squares. `None` if there is one pair only, or if the pairs completed so few
/// units on average that the index says nothing.
fn jain(cell: &Cell, (sum, squares): (f64, f64)) -> Option<f64> {
    let pairs = f64::from(cell.clients);
    let least = match cell.workload.unit() {
        Unit::Transaction | Unit::Run => FAIRNESS_TRANSACTIONS_LEAST,
        Unit::Megabyte => FAIRNESS_MEGABYTES_LEAST,
    };
    (cell.clients > 1 && sum >= least * pairs).then(|| sum * sum / (pairs * squares))
}

/// Returns the mean of the streams' jitters from their sum and their number.
fn jitter((sum, count): (f64, u32)) -> Option<f64> {
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the protocol counters of client and server that have increased between the two readings, each with its increase.
fn grown(before: &Reading, after: &Reading) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (role, before, after) in [("client", &before.client, &after.client), ("server", &before.server, &after.server)]
    {
        for (name, value) in &after.protocol {
            let growth = value.saturating_sub(before.protocol.get(name).copied().unwrap_or(0));
            if growth > 0 {
                all.insert(format!("{role} {name}"), growth);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_falls_by_half_is_flagged_and_noise_is_not() {
        assert!(collapse(&[100.0, 99.0, 101.0, 80.0, 60.0, 40.0, 30.0, 20.0, 20.0, 20.0]).is_some());
        assert!(collapse(&[100.0, 60.0, 101.0, 80.0, 60.0, 90.0, 70.0, 60.0, 80.0, 70.0]).is_none());
        assert!(collapse(&[2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]).is_none());
    }

    #[test]
    fn a_latency_that_means_lost_service_is_flagged() {
        let latency = |p50: f64, max: f64| Percentiles { p50: Some(p50), max: Some(max), ..Percentiles::default() };
        let flag = lost_service(&latency(60.0, 626_000.0), 0.5).unwrap();
        assert_eq!(flag, "the path stalled: one transaction took 626 ms of a 500 ms trial");
        assert!(lost_service(&latency(60.0, 240_000.0), 0.5).is_none(), "less than half of the trial");
        assert!(lost_service(&latency(60.0, 150_000.0), 0.02).is_none(), "a busy host can delay a thread for so long");
        assert!(lost_service(&latency(100_000.0, 626_000.0), 0.5).is_none(), "each exchange takes long");
        assert!(lost_service(&latency(60.0, 1_100_000.0), 10.0).is_some(), "a second is long in every trial");
        assert!(lost_service(&latency(60.0, 900_000.0), 10.0).is_none());
    }

    #[test]
    fn jains_index_says_how_evenly_pairs_share() {
        let mut cell = siga_results::testing::trial("veth", 0, 700, None).cell;
        cell.clients = 4;
        let of = |units: [f64; 4], cell: &Cell| {
            let sums = units.iter().fold((0.0, 0.0), |(sum, squares), unit| (sum + unit, squares + unit * unit));
            jain(cell, sums)
        };
        assert_eq!(of([20.0; 4], &cell), Some(1.0));
        assert_eq!(of([80.0, 0.0, 0.0, 0.0], &cell), Some(0.25));
        assert_eq!(of([9.0, 11.0, 10.0, 9.0], &cell), None, "too few to tell");
        cell.clients = 1;
        assert_eq!(of([80.0, 0.0, 0.0, 0.0], &cell), None);
    }

    #[test]
    fn a_trial_that_the_host_stopped_is_attempted_again_and_others_are_not() {
        let done = |outcomes: Vec<Result<u8>>| {
            let mut left = outcomes.into_iter();
            let mut told = Vec::new();
            let ended = until_it_runs(|| left.next().unwrap(), |reason| told.push(reason.to_owned()));
            (ended, told.len(), left.len())
        };
        let late = || Err(Error::disturbed("the profiler sampled CPU 1 for only 23 of 98 ms"));
        let dead = || Err(Error::incomplete("the process died"));
        assert_eq!(done(vec![Ok(1), Ok(2)]), (Ok(1), 0, 1));
        assert_eq!(done(vec![late(), Ok(2), Ok(3)]), (Ok(2), 1, 1));
        assert_eq!(done(vec![late(), late(), late(), Ok(4)]), (late(), 2, 1), "it is not tried for ever");
        assert_eq!(done(vec![dead(), Ok(2)]), (dead(), 0, 1));
        assert!(nothing_done(&[]).is_disturbance());
        assert!(!nothing_done(&["5 datagrams were lost".into()]).is_disturbance(), "the path is at fault");
    }
}
