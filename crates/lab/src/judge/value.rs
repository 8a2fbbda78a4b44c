//! One figure of one trial, for comparisons and for export.
//!
//! A summary shows what belongs to a cell; here each trial stands for itself. That matters under `subtract`, where a
//! summary's router is the mean over all rounds and its ends are those of another path's median trial: for one trial both
//! come from the trial of that path in the same round, its partner. What a method does not see is absent, never zero.

use super::{Metric, Mode, Part};
use crate::account::Method;
use crate::histogram::Percentiles;
use crate::record::TrialRecord;
use crate::store::Run;
use crate::summary::{Component, Cpu, by_tick, cpu_ms, partner};

/// The figure of `trial`, in the unit that [`Metric::unit`] names; `None` where the method of `cpu` does not see it, where
/// the sample is too small, and where there is no finite value.
///
/// `cpu` and `latency` are the trial's own: CPU time by one method, percentiles of its histogram.
pub fn value(run: &Run, trial: &TrialRecord, cpu: &Cpu, latency: &Percentiles, metric: Metric) -> Option<f64> {
    figure(trial, cpu, latency, metric, || partner(&run.trials, trial))
}

/// The same with a way of its own to find the partner: the trial side by side on the path without the router.
pub(crate) fn figure<'a>(
    trial: &TrialRecord,
    cpu: &Cpu,
    latency: &Percentiles,
    metric: Metric,
    partner: impl FnOnce() -> Option<&'a TrialRecord>,
) -> Option<f64> {
    let value = match metric {
        Metric::Rate => Some(trial.rate()),
        Metric::P50 => latency.p50,
        Metric::P99 => latency.p99,
        // Nothing done, nothing to divide by.
        Metric::Cpu(..) if trial.units() <= 0.0 => None,
        Metric::Cpu(Part::Total, mode) => Some(part(&cpu.total, mode)),
        Metric::Cpu(of, mode) => match cpu.method {
            Method::Profile | Method::Tick => component(cpu, of).map(|component| part(component, mode)),
            Method::Subtract => subtracted(trial, partner()?, of, mode),
        },
    };
    value.filter(|value| value.is_finite())
}

/// By difference to the partner: the ends are as there, the router is what the whole host spent more, undivided.
fn subtracted(trial: &TrialRecord, partner: &TrialRecord, of: Part, mode: Mode) -> Option<f64> {
    if partner.units() <= 0.0 {
        return None;
    }
    match (of, mode) {
        (Part::Router, Mode::All) => Some(cpu_ms(trial) - cpu_ms(partner)),
        (Part::Router, Mode::Virtual | Mode::Cp) => None,
        (Part::Total | Part::Client | Part::Server | Part::Other, _) => {
            component(&by_tick(partner), of).map(|component| part(component, mode))
        }
    }
}

fn component(cpu: &Cpu, of: Part) -> Option<&Component> {
    match of {
        Part::Total => Some(&cpu.total),
        Part::Client => Some(&cpu.client),
        Part::Router => cpu.router.as_ref(),
        Part::Server => Some(&cpu.server),
        Part::Other => Some(&cpu.other),
    }
}

fn part(component: &Component, mode: Mode) -> f64 {
    match mode {
        Mode::All => component.total,
        Mode::Virtual => component.user,
        Mode::Cp => component.kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::plan::Plan;
    use crate::record::{Charges, ProfileRecord, Samples};
    use crate::summary::{cpu_of, trial_of};

    const NONE: Percentiles = Percentiles { p50: None, p90: None, p99: None, p999: None, max: None };

    fn run(trials: Vec<TrialRecord>) -> Run {
        Run {
            directory: "run".into(),
            plan: Plan::default(),
            levels: Vec::new(),
            environment: Environment::default(),
            trials,
            paths: Vec::new(),
            skipped: Vec::new(),
            damage: Vec::new(),
            ended: true,
        }
    }

    /// All CPU figures of a trial by name.
    fn cpu_figures(run: &Run, index: usize, method: Option<Method>) -> Vec<(&'static str, f64)> {
        let trial = &run.trials[index];
        let cpu = cpu_of(run, trial, method);
        let figure = |&metric: &Metric| Some((metric.name(), value(run, trial, &cpu, &NONE, metric)?));
        Metric::ALL.iter().filter(|metric| matches!(metric, Metric::Cpu(..))).filter_map(figure).collect()
    }

    #[track_caller]
    fn assert_figure(figures: &[(&str, f64)], name: &str, wanted: Option<f64>) {
        let found = figures.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        match (found, wanted) {
            (Some(found), Some(wanted)) => assert!((found - wanted).abs() < 1e-9, "{name}: {found}, not {wanted}"),
            (found, wanted) => assert_eq!(found, wanted, "{name}"),
        }
    }

    #[test]
    fn under_subtract_each_trial_is_paired_with_that_of_its_round() {
        let mut trials = vec![
            trial_of("veth", 0, 700, None),
            trial_of("veth-routed", 0, 1_000, None),
            trial_of("veth", 1, 900, None),
            trial_of("veth-routed", 1, 1_100, None),
            trial_of("veth-routed", 2, 1_500, None),
        ];
        trials[2].cpu.client.run_ns = 500_000_000;
        let run = run(trials);
        let [first, second, alone] = [1, 3, 4].map(|index| cpu_figures(&run, index, None));
        // 300 and 200 ms over 1,000 transactions; the mean would be 0.25 for both.
        assert_figure(&first, "router_cpu", Some(0.3));
        assert_figure(&second, "router_cpu", Some(0.2));
        assert_figure(&first, "client_cpu", Some(0.4));
        assert_figure(&second, "client_cpu", Some(0.5));
        assert_figure(&second, "router_virtual", None);
        assert_eq!(alone.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["cpu_total", "cpu_virtual", "cpu_cp"]);
        assert_figure(&alone, "cpu_total", Some(1.5));
    }

    #[test]
    fn what_a_method_does_not_see_is_absent() {
        let samples = |user, kernel| Samples { user, kernel };
        let profile = ProfileRecord {
            period_ns: 1_000_000,
            on_client: Charges { client: samples(20, 180), router: samples(0, 200), ..Charges::default() },
            on_server: Charges { server: samples(30, 270), ..Charges::default() },
            elsewhere: Charges::default(),
        };
        let run = run(vec![trial_of("veth-routed", 0, 740, Some(profile)), trial_of("veth", 0, 740, Some(profile))]);
        let routed = cpu_figures(&run, 0, None);
        assert_figure(&routed, "router_cpu", Some(0.2));
        assert_figure(&routed, "router_virtual", Some(0.0));
        assert_figure(&routed, "client_virtual", Some(0.02));
        assert_figure(&routed, "client_cp", Some(0.18));
        for figures in [cpu_figures(&run, 0, Some(Method::Tick)), cpu_figures(&run, 1, None)] {
            assert!(figures.iter().all(|(name, _)| !name.starts_with("router")), "{figures:?}");
            assert_eq!(figures.len(), 12, "{figures:?}");
        }
    }

    #[test]
    fn a_trial_that_did_nothing_has_a_rate_and_no_cpu_per_unit() {
        let mut idle = trial_of("veth", 0, 1, None);
        idle.client.transactions = 0;
        let routed = trial_of("veth-routed", 0, 1, None);
        let run = run(vec![idle, routed]);
        assert_eq!(cpu_figures(&run, 0, None), []);
        let cpu = cpu_of(&run, &run.trials[0], None);
        assert_eq!(value(&run, &run.trials[0], &cpu, &NONE, Metric::Rate), Some(0.0));
        assert_figure(&cpu_figures(&run, 1, Some(Method::Subtract)), "client_cpu", None);
    }

    #[test]
    fn latencies_are_there_where_the_sample_has_them() {
        let run = run(vec![trial_of("veth", 0, 740, None)]);
        let (trial, latency) = (&run.trials[0], Percentiles { p50: Some(62.5), ..NONE });
        let cpu = cpu_of(&run, trial, None);
        assert_eq!(value(&run, trial, &cpu, &latency, Metric::P50), Some(62.5));
        assert_eq!(value(&run, trial, &cpu, &latency, Metric::P99), None);
        assert_eq!(value(&run, trial, &cpu, &latency, Metric::Rate), Some(1_000.0));
    }

    #[test]
    fn every_metric_is_listed_once() {
        let mut names: Vec<_> = Metric::ALL.iter().map(|metric| metric.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 3 + 5 * 3);
    }
}
