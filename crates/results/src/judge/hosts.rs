//! Compares hosts: runs of the same plan on different hardware.
//!
//! The hosts may differ in everything but the build of siga. So a ratio is that of the hosts as a whole, and never the effect of one
//! property. Three ratios answer three questions: units a second (throughput), units per second of CPU time used (internal throughput
//! rate, ITR), and its inverse, the CPU time for equal work. If levels give commands different numbers of CPUs, the comparison also says
//! how many CPUs of one host do the work of the other's.
//!
//! CPU time used is that of a command and its servers, or that of the whole host for a workload over a path.

use super::comparison::{Comparison, Row, Verdict};
use super::decide::EQUIVALENT;
use super::metric::Metric;
use super::runs_varying;
use super::vary::Vary;
use crate::environment::Environment;
use crate::store::Run;
use siga_model::error::Result;
use siga_plan::cpus::cpu_list;
use siga_plan::level::{CommandLevel, Level};
use siga_plan::matrix::Cell;
use std::collections::BTreeMap;

/// The comparison of a host with the base host.
#[derive(Debug, Clone)]
pub struct Hosts {
    /// Every figure with its verdict.
    pub comparison: Comparison,
    /// Properties of both hosts: hardware, kernel, kernel command line, firmware.
    pub properties: Vec<Property>,
    /// The throughput of each cell, and the CPU time that it took.
    pub work: Vec<HostWork>,
    /// The numbers of CPUs that do the same work.
    pub equal_work: Vec<EqualWork>,
}

/// A property of both hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// Its value on the base host.
    pub base: String,
    /// Its value on the other host.
    pub new: String,
}

/// What both hosts did of the same work.
#[derive(Debug, Clone)]
pub struct HostWork {
    /// The cell of the base host.
    pub base: Cell,
    /// The cell of the other host.
    pub new: Cell,
    /// Number of CPUs on which the work could run, on both hosts. `None` if it is unknown.
    pub cpus: (Option<u32>, Option<u32>),
    /// The unit of rates.
    pub rate_unit: String,
    /// Units a second of both hosts.
    pub rates: (f64, f64),
    /// Ratio of the rates, with its verdict.
    pub throughput: HostRatio,
    /// Units per second of CPU time used, of both hosts, and their ratio. `None` if a host used no CPU time that was measured.
    pub itr: Option<((f64, f64), HostRatio)>,
    /// Ratio of the CPU times for the same work.
    pub cpu: Option<HostRatio>,
}

/// A ratio of the other host's figure to the base host's.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRatio {
    /// The ratio.
    pub value: f64,
    /// The ends of its 95% interval.
    pub ends: Option<(f64, f64)>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Two numbers of CPUs: the fewest of the other host that do at least the work of those of the base host.
#[derive(Debug, Clone, PartialEq)]
pub struct EqualWork {
    /// A cell of the work on the base host.
    pub cell: Cell,
    /// Number of CPUs of the base host.
    pub base_cpus: u32,
    /// The fewest CPUs of the other host with at least the same rate. `None` if all that were measured are slower.
    pub new_cpus: Option<u32>,
    /// Ratio of the rate with `new_cpus` to that with `base_cpus`; with the most CPUs if all are slower.
    pub ratio: f64,
}

/// Compares two runs of the same plan on different hosts.
///
/// # Errors
/// Returns the errors of [`super::runs`].
pub fn compare(base: &Run, new: &Run) -> Result<Hosts> {
    let mut comparison = runs_varying(base, new, &[Vary::Host])?;
    if let (Some(own), Some(other)) = (&base.environment.host.boot_id, &new.environment.host.boot_id)
        && own == other
    {
        comparison.cautions.push("both runs are from the same host, which was not restarted between them".to_owned());
    }
    let rows = comparison.rows.chunk_by(|left, right| left.base == right.base && left.new == right.new);
    let work: Vec<HostWork> = rows.filter_map(|rows| HostWork::of(rows, base, new)).collect();
    let equal_work = equal_work(&work, &base.levels);
    Ok(Hosts { properties: properties(&base.environment, &new.environment), comparison, work, equal_work })
}

impl HostWork {
    fn of(rows: &[Row], base: &Run, new: &Run) -> Option<Self> {
        let find = |metric: Metric| rows.iter().find(|row| row.metric == metric);
        // The names of these figures come from the unit of work (`UnitOfWork::keys`).
        let unit = base.plan.command_of(&rows.first()?.base).and_then(|command| command.unit.as_ref());
        let own =
            |name: String| rows.iter().find(|row| matches!(row.metric, Metric::Figure(_)) && row.metric.name() == name);
        let of_unit =
            unit.and_then(|unit| Some((own(format!("{}_rate", unit.name))?, own(format!("cpu_per_{}", unit.name)))));
        let (rate, cpu) = match of_unit {
            Some(found) => found,
            None => (find(Metric::Rate)?, find(Metric::TOTAL)),
        };
        // siga's own figures are in milliseconds per unit, those of a unit of work in microseconds.
        let per_second = |row: &Row| if matches!(row.metric, Metric::Figure(_)) { 1e6 } else { 1e3 };
        let itr = |row: &Row, time: f64| per_second(row) / time;
        Some(Self {
            base: rate.base.clone(),
            new: rate.new.clone(),
            cpus: (cpus(base, &rate.base), cpus(new, &rate.new)),
            rate_unit: rate.metric.unit(rate.new.workload).to_owned(),
            rates: rate.values,
            throughput: HostRatio::of(rate),
            itr: cpu.map(|row| ((itr(row, row.values.0), itr(row, row.values.1)), HostRatio::of(row).inverse())),
            cpu: cpu.map(HostRatio::of),
        })
    }
}

impl HostRatio {
    fn of(row: &Row) -> Self {
        Self { value: row.ratio, ends: row.low.zip(row.high), verdict: row.verdict.clone() }
    }

    fn inverse(self) -> Self {
        Self { value: 1.0 / self.value, ends: self.ends.map(|(low, high)| (1.0 / high, 1.0 / low)), ..self }
    }
}

/// Returns the number of CPUs on which a cell could run: those of its level, otherwise those of the plan, otherwise the host's.
fn cpus(run: &Run, cell: &Cell) -> Option<u32> {
    let cpu = &run.environment.cpu;
    let of_host = cpu.online.into_iter().chain(cpu.allowed).min();
    let level = run.levels.iter().find(|level| level.name == cell.level);
    let of_level = level.and_then(|level| level.command.cpus.as_deref());
    let listed = of_level.or(run.plan.client_cpus.as_deref()).and_then(cpu_list);
    listed.and_then(|list| u32::try_from(list.len()).ok()).into_iter().chain(of_host).min()
}

/// Returns the numbers of CPUs that do the same work. Cells differ only in the CPUs of their levels. Empty if no cell was measured with
/// several numbers of CPUs, or if no figures may be compared.
fn equal_work(work: &[HostWork], levels: &[Level]) -> Vec<EqualWork> {
    let same = |one: &Cell, other: &Cell| {
        let rest = |cell: &Cell| Cell { level: String::new(), ..cell.clone() };
        rest(one) == rest(other) && without_cpus(levels, &one.level) == without_cpus(levels, &other.level)
    };
    let mut groups: Vec<Vec<&HostWork>> = Vec::new();
    for one in work.iter().filter(|one| !matches!(one.throughput.verdict, Verdict::NotComparable { .. })) {
        match groups.iter_mut().find(|group| same(&group[0].base, &one.base)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.iter().flat_map(|group| of_group(group)).collect()
}

/// Returns the settings of a level besides its CPUs; `None` for an unknown level.
fn without_cpus(levels: &[Level], name: &str) -> Option<Level> {
    let level = levels.iter().find(|level| level.name == name)?;
    let command = CommandLevel { cpus: None, ..level.command.clone() };
    Some(Level { name: String::new(), about: Default::default(), command, ..level.clone() })
}

fn of_group(group: &[&HostWork]) -> Vec<EqualWork> {
    let (mut own, mut others) = (BTreeMap::new(), BTreeMap::new());
    for one in group {
        let (Some(base), Some(new)) = one.cpus else { return Vec::new() };
        for (rates, cpus, rate) in [(&mut own, base, one.rates.0), (&mut others, new, one.rates.1)] {
            let best: &mut f64 = rates.entry(cpus).or_insert(rate);
            *best = best.max(rate);
        }
    }
    if own.len() < 2 && others.len() < 2 {
        return Vec::new();
    }
    let of_base = |(&base_cpus, &rate): (&u32, &f64)| {
        let enough = others.iter().find(|(_, other)| **other >= rate * EQUIVALENT.0);
        let (_, most) = others.last_key_value()?;
        let (new_cpus, ratio) = enough.map_or((None, most / rate), |(cpus, other)| (Some(*cpus), other / rate));
        Some(EqualWork { cell: group[0].base.clone(), base_cpus, new_cpus, ratio })
    };
    own.iter().filter_map(of_base).collect()
}

/// Returns the properties of the hosts that a reader needs first, also those that are the same.
fn properties(base: &Environment, new: &Environment) -> Vec<Property> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let both = |name, value: &dyn Fn(&Environment) -> String| Property { name, base: value(base), new: value(new) };
    let number = |value: Option<u32>| value.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    vec![
        both("machine", &|host| text(&host.cpu.machine)),
        both("CPU", &|host| text(&host.cpu.model)),
        both("CPUs", &|host| match (host.cpu.online, host.cpu.allowed) {
            (Some(online), Some(allowed)) if allowed < online => format!("{allowed} of {online}"),
            (online, _) => number(online),
        }),
        both("caches", &|host| text(&host.cpu.caches)),
        both("memory", &|host| {
            let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
            host.memory.total_bytes.map_or_else(|| "unknown".to_owned(), gib)
        }),
        both("hypervisor", &|host| text(&host.cpu.hypervisor)),
        both("firmware", &|host| text(&host.cpu.firmware)),
        both("microcode", &|host| text(&host.cpu.microcode)),
        both("frequency governor", &|host| text(&host.cpu.governor)),
        both("kernel", &|host| text(&host.kernel.release)),
        both("kernel build", &|host| text(&host.kernel.version)),
        both("kernel options", &|host| {
            let known = host.kernel.boot.iter().map(|(name, value)| match value.as_str() {
                "given" => name.clone(),
                value => format!("{name}={value}"),
            });
            let all: Vec<String> = known.chain(host.kernel.boot_others.clone()).collect();
            if all.is_empty() { "none".to_owned() } else { all.join(" ") }
        }),
        both("distribution", &|host| text(&host.host.distribution)),
        both("architecture", &|host| host.program.architecture.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TrialRecord;
    use crate::testing;
    use siga_plan::command::CommandName;
    use siga_plan::work::Work;

    /// Returns a run of a command on a host with `cpus` CPUs. `busy_ms` is the CPU time of the command per second and 1,000 units; each
    /// entry of `levels` is a list of CPUs and the milliseconds that the 1,000 units take.
    fn run(name: &str, model: &str, busy_ms: u64, levels: &[(&str, u64)]) -> Run {
        let text = "workloads = [\"work\"]\n[workload.work]\ncommand = [\"true\"]\n";
        let plan = siga_plan::plan::Plan::parse(text, "plan").unwrap();
        let trial = |round: u32, (cpus, ms): &(&str, u64)| -> TrialRecord {
            let mut trial = testing::trial("host", round, busy_ms, None);
            trial.cell.workload = Work::Command(CommandName::of_program("work"));
            (trial.cell.mtu, trial.cell.level) = (None, format!("cpus:{cpus}"));
            // No two trials are the same, as on any real host.
            trial.elapsed_ns = ms * 1_000_000 + u64::from(round) * 1_000;
            trial.cpu.client.run_ns = busy_ms * 1_000_000;
            trial.cpu.server.run_ns = 0;
            trial
        };
        let mut run =
            testing::run(name, (0..9).flat_map(|round| levels.iter().map(move |level| trial(round, level))).collect());
        run.levels = levels.iter().map(|(cpus, _)| Level::load(&format!("cpus:{cpus}")).unwrap()).collect();
        run.plan = plan;
        run.environment.cpu.model = Some(model.into());
        run.environment.cpu.online = Some(8);
        run
    }

    #[test]
    fn hosts_are_compared_by_rate_itr_and_cpu_for_equal_work() {
        let old = run("old", "Abacus", 800, &[("0", 1_000), ("0-1", 500)]);
        let new = run("new", "Slide rule", 200, &[("0", 500), ("0-1", 250)]);
        let hosts = compare(&old, &new).unwrap();
        let cpu = hosts.properties.iter().find(|property| property.name == "CPU").unwrap();
        assert_eq!((cpu.base.as_str(), cpu.new.as_str()), ("Abacus", "Slide rule"));
        assert!(hosts.comparison.environment.is_empty() && !hosts.comparison.varied.is_empty());
        assert_eq!(hosts.work.len(), 2);
        for (work, count) in hosts.work.iter().zip([1, 2]) {
            assert_eq!(work.cpus, (Some(count), Some(count)));
            assert!((work.throughput.value - 2.0).abs() < 0.01, "{work:?}");
            assert_eq!(work.throughput.verdict, Verdict::Better);
            let ((own, other), itr) = work.itr.clone().unwrap();
            // 1,000 units took 0.8 s and 0.2 s of CPU time.
            assert!((own - 1_250.0).abs() < 1.0 && (other - 5_000.0).abs() < 1.0, "{own} {other}");
            let cpu = work.cpu.clone().unwrap();
            assert!((itr.value - 4.0).abs() < 0.01 && (cpu.value - 0.25).abs() < 0.01);
            let ((low, high), (least, most)) = (itr.ends.unwrap(), cpu.ends.unwrap());
            assert!((low * most - 1.0).abs() < 1e-9 && (high * least - 1.0).abs() < 1e-9 && low <= high);
        }
        let equal: Vec<_> = hosts.equal_work.iter().map(|one| (one.base_cpus, one.new_cpus)).collect();
        assert_eq!(equal, [(1, Some(1)), (2, Some(1))], "one CPU of the new host does the work of two");
        let reverse = compare(&new, &old).unwrap();
        let equal: Vec<_> = reverse.equal_work.iter().map(|one| (one.base_cpus, one.new_cpus)).collect();
        assert_eq!(equal, [(1, Some(2)), (2, None)]);
        assert!((reverse.equal_work[1].ratio - 0.5).abs() < 0.01);
    }

    #[test]
    fn firmware_kernel_and_kernel_options_of_both_hosts_are_shown() {
        let mut old = run("old", "Abacus", 800, &[("0", 1_000)]);
        let mut new = run("new", "Abacus", 800, &[("0", 1_000)]);
        let boot = [("nosmt", "given"), ("preempt", "full")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        old.environment.kernel.boot = boot.into();
        old.environment.kernel.boot_others = Some("root".into());
        old.environment.kernel.release = Some("6.1".into());
        new.environment.kernel.release = Some("6.18".into());
        (old.environment.cpu.firmware, new.environment.cpu.firmware) = (Some("A 1".into()), Some("A 2".into()));
        let properties = compare(&old, &new).unwrap().properties;
        for (name, base, other) in [
            ("firmware", "A 1", "A 2"),
            ("kernel", "6.1", "6.18"),
            ("kernel options", "nosmt preempt=full root", "none"),
            ("CPU", "Abacus", "Abacus"),
        ] {
            let property = properties.iter().find(|property| property.name == name).unwrap();
            assert_eq!((property.base.as_str(), property.new.as_str()), (base, other), "{name}");
        }
    }

    #[test]
    fn builds_of_siga_and_plans_must_not_differ_between_hosts() {
        let old = run("old", "Abacus", 800, &[("0", 1_000)]);
        let mut new = run("new", "Slide rule", 800, &[("0", 1_000)]);
        (new.environment.program.profile, new.environment.program.architecture) = ("debug".into(), "s390x".into());
        let hosts = compare(&old, &new).unwrap();
        let refused = |hosts: &Hosts| matches!(hosts.work[0].throughput.verdict, Verdict::NotComparable { .. });
        assert!(refused(&hosts) && hosts.equal_work.is_empty());
        new.environment.program.profile.clear();
        assert!(!refused(&compare(&old, &new).unwrap()));
    }

    #[test]
    fn two_runs_of_one_host_are_pointed_out() {
        let [mut one, mut other] = ["one", "other"].map(|name| run(name, "Abacus", 800, &[("0", 1_000)]));
        one.environment.host.boot_id = Some("b".into());
        other.environment.host.boot_id = Some("b".into());
        let cautions = compare(&one, &other).unwrap().comparison.cautions;
        assert!(cautions.iter().any(|caution| caution.contains("from the same host")), "{cautions:?}");
        assert!(cautions.iter().any(|caution| caution.contains("the host is the same in both runs")), "{cautions:?}");
    }
}
