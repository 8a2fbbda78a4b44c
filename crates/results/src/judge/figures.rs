//! The figures of every trial of a run, for comparisons and for export.
//!
//! A summary has one figure for a cell; this module computes one for each trial. With the accounting method `subtract`, the CPU
//! times of router, client and server need a partner trial: the trial of the path without the router in the same round. A figure
//! that the accounting method cannot measure is absent, never zero.

use super::metric::{Metric, Mode, Part};
use super::rounds::Rounds;
use crate::histogram::{self, Percentiles};
use crate::record::{Slot, TrialRecord};
use crate::store::Run;
use crate::summary::{self, Component, Cpu, base_of, by_profile, by_tick, cpu_ms, exact};
use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::Cell;
use std::collections::HashMap;

/// Computes the figures of a run's trials.
#[derive(Debug)]
pub struct Figures<'a> {
    run: &'a Run,
    method: Option<AccountingMethod>,
    rounds: Rounds<'a>,
    /// Cells with a router of which at least one trial has a partner trial, each with the cell of the path without the router.
    paired: HashMap<&'a Cell, Cell>,
}

impl<'a> Figures<'a> {
    /// Prepares the figures of `run`. `method` is the accounting method; if it is `None`, each trial uses the best method for
    /// which it has data.
    pub fn new(run: &'a Run, method: Option<AccountingMethod>) -> Self {
        let rounds = Rounds::new(run);
        let pair = |cell: &'a Cell| {
            let base = base_of(cell)?;
            let own = rounds.of(cell);
            let slots = own.sound.values().chain(&own.flawed).map(|trial| trial.slot());
            let mut partners = slots.filter(|slot| rounds.of(&base).sound.contains_key(slot));
            partners.next().map(|_| (cell, base.clone()))
        };
        let paired = rounds.cells().filter_map(pair).collect();
        Self { run, method, rounds, paired }
    }

    /// Returns the trials of the run by cell.
    pub(super) fn rounds(&self) -> &Rounds<'a> {
        &self.rounds
    }

    /// Returns the sound trials (those without a flaw) of a cell in the order of time, each with its session and round.
    pub fn sound(&self, cell: &Cell) -> impl Iterator<Item = (Slot, &'a TrialRecord)> {
        self.rounds.of(cell).sound.iter().map(|(slot, trial)| (*slot, *trial))
    }

    /// Returns the accounting method of a trial's CPU times, and the figures of the trial in the order of `Metric::ALL`, then
    /// those of its command.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if a histogram is damaged.
    pub fn of(&self, trial: &TrialRecord) -> Result<(AccountingMethod, Vec<(Metric, f64)>)> {
        let cpu = self.cpu(trial);
        let latency = histogram::decode(&trial.latency).map_err(|error| {
            let place = format!("{}: {}, trial of {}", self.run.directory.display(), trial.cell, trial.at);
            error.at(place).hint("the run directory was changed after siga wrote it; do not use this run")
        })?;
        let latency = histogram::percentiles(&latency);
        let partner = || {
            let base = self.rounds.of(self.paired.get(&trial.cell)?);
            base.sound.get(&trial.slot()).copied()
        };
        let one = |&metric: &Metric| Some((metric, figure(trial, &cpu, &latency, metric, partner)?));
        let own = Metric::ALL.iter().filter_map(one);
        let of_command = trial.figures().into_iter().map(|(key, value)| (Metric::Figure(key), value));
        Ok((cpu.method, own.chain(of_command).collect()))
    }

    fn cpu(&self, trial: &TrialRecord) -> Cpu {
        if let Some(exact) = exact(trial) {
            return exact;
        }
        let own = by_tick(trial);
        match (self.method, &trial.cpu.profile) {
            (None | Some(AccountingMethod::Profile), Some(profile)) => by_profile(trial, profile),
            (None | Some(AccountingMethod::Subtract), _) if self.paired.contains_key(&trial.cell) => {
                Cpu { method: AccountingMethod::Subtract, ..own }
            }
            (
                None
                | Some(
                    AccountingMethod::Profile
                    | AccountingMethod::Subtract
                    | AccountingMethod::Tick
                    | AccountingMethod::Processes,
                ),
                _,
            ) => own,
        }
    }
}

/// Returns a figure of `trial` in the unit that [`Metric::unit`] names. Returns `None` if the accounting method cannot measure
/// the figure, or if there are too few latencies for a percentile. A value that is not finite is also `None`.
fn figure<'a>(
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
        Metric::Streams => trial.beside.map(|beside| beside.rate()),
        Metric::ToServer => trial.directions().map(|(to_server, _)| to_server),
        Metric::ToClient => trial.directions().map(|(_, to_client)| to_client),
        Metric::Sent => trial.datagrams().map(|seen| seen.send_rate),
        Metric::Loss => trial.datagrams().map(|seen| seen.loss()),
        Metric::Jitter => trial.datagrams().and_then(|seen| seen.jitter_us),
        Metric::Figure(key) => trial.figures().into_iter().find(|(other, _)| *other == key).map(|(_, value)| value),
        // No unit was completed, so there is nothing to divide by.
        Metric::Itr | Metric::Cpu(..) if trial.cpu_units() <= 0.0 => None,
        Metric::Itr => summary::itr(part(&cpu.total, Mode::All)),
        Metric::Cpu(Part::Total, mode) => Some(part(&cpu.total, mode)),
        // A command without a server has one side only: all its processes are the total.
        Metric::Cpu(Part::Client | Part::Router | Part::Server, _)
            if trial.cell.workload.is_command() && !trial.has_server() =>
        {
            None
        }
        Metric::Cpu(of, mode) => match cpu.method {
            AccountingMethod::Profile | AccountingMethod::Tick | AccountingMethod::Processes => {
                component(cpu, of).map(|component| part(component, mode))
            }
            AccountingMethod::Subtract => subtracted(trial, partner()?, of, mode),
        },
    };
    value.filter(|value| value.is_finite())
}

/// Returns a part's CPU time per unit with the accounting method `subtract`. For the router, this is the host's CPU time minus
/// that of the partner trial. For all other parts, it is their CPU time in the partner trial.
fn subtracted(trial: &TrialRecord, partner: &TrialRecord, of: Part, mode: Mode) -> Option<f64> {
    if partner.cpu_units() <= 0.0 {
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
    use crate::record::{Charges, ProfileRecord, Samples};

    fn run(trials: Vec<TrialRecord>) -> Run {
        crate::testing::run("run", trials)
    }

    fn all(run: &Run, index: usize, method: Option<AccountingMethod>) -> Vec<(String, f64)> {
        let (_, figures) = Figures::new(run, method).of(&run.trials[index]).unwrap();
        figures.into_iter().map(|(metric, value)| (metric.name().to_owned(), value)).collect()
    }

    /// Returns all CPU figures of a trial with their names.
    fn cpu_figures(run: &Run, index: usize, method: Option<AccountingMethod>) -> Vec<(String, f64)> {
        let all = all(run, index, method).into_iter();
        all.filter(|(name, _)| name.contains("cpu") || name.contains("virtual") || name.ends_with("_cp")).collect()
    }

    #[track_caller]
    fn assert_figure(figures: &[(String, f64)], name: &str, wanted: Option<f64>) {
        let found = figures.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
        match (found, wanted) {
            (Some(found), Some(wanted)) => assert!((found - wanted).abs() < 1e-9, "{name}: {found}, not {wanted}"),
            (found, wanted) => assert_eq!(found, wanted, "{name}"),
        }
    }

    #[test]
    fn under_subtract_each_trial_is_paired_with_that_of_its_round() {
        let mut trials = vec![
            crate::testing::trial("veth", 0, 700, None),
            crate::testing::trial("veth-routed", 0, 1_000, None),
            crate::testing::trial("veth", 1, 900, None),
            crate::testing::trial("veth-routed", 1, 1_100, None),
            crate::testing::trial("veth-routed", 2, 1_500, None),
        ];
        trials[2].cpu.client.run_ns = 500_000_000;
        let run = run(trials);
        let [first, second, alone] = [1, 3, 4].map(|index| cpu_figures(&run, index, None));
        // 300 and 200 ms over 1,000 transactions. If both trials used the mean, each would have 0.25.
        assert_figure(&first, "router_cpu", Some(0.3));
        assert_figure(&second, "router_cpu", Some(0.2));
        assert_figure(&first, "client_cpu", Some(0.4));
        assert_figure(&second, "client_cpu", Some(0.5));
        assert_figure(&second, "router_virtual", None);
        assert_eq!(
            alone.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["cpu_total", "cpu_virtual", "cpu_cp"]
        );
        assert_figure(&alone, "cpu_total", Some(1.5));
    }

    #[test]
    fn a_figure_that_the_method_does_not_see_is_absent() {
        let samples = |user, kernel| Samples { user, kernel };
        let profile = ProfileRecord {
            period_ns: 1_000_000,
            on_client: Charges { client: samples(20, 180), router: samples(0, 200), ..Charges::default() },
            on_server: Charges { server: samples(30, 270), ..Charges::default() },
            elsewhere: Charges::default(),
        };
        let run = run(vec![
            crate::testing::trial("veth-routed", 0, 740, Some(profile)),
            crate::testing::trial("veth", 0, 740, Some(profile)),
        ]);
        let routed = cpu_figures(&run, 0, None);
        assert_figure(&routed, "router_cpu", Some(0.2));
        assert_figure(&routed, "router_virtual", Some(0.0));
        assert_figure(&routed, "client_virtual", Some(0.02));
        assert_figure(&routed, "client_cp", Some(0.18));
        for figures in [cpu_figures(&run, 0, Some(AccountingMethod::Tick)), cpu_figures(&run, 1, None)] {
            assert!(figures.iter().all(|(name, _)| !name.starts_with("router")), "{figures:?}");
            assert_eq!(figures.len(), 12, "{figures:?}");
        }
    }

    #[test]
    fn a_trial_that_did_nothing_has_a_rate_and_no_cpu_per_unit() {
        let mut idle = crate::testing::trial("veth", 0, 1, None);
        idle.client.transactions = 0;
        let routed = crate::testing::trial("veth-routed", 0, 1, None);
        let run = run(vec![idle, routed]);
        assert_eq!(cpu_figures(&run, 0, None), []);
        assert_eq!(all(&run, 0, None), [("rate".to_owned(), 0.0)]);
        assert_figure(&cpu_figures(&run, 1, Some(AccountingMethod::Subtract)), "client_cpu", None);
    }

    #[test]
    fn latencies_are_there_where_the_sample_has_them() {
        let mut trial = crate::testing::trial("veth", 0, 740, None);
        let mut histogram = histogram::empty();
        (0..100).for_each(|_| histogram.record(62_500).unwrap());
        trial.latency = histogram::encode(&histogram).unwrap();
        let run = run(vec![trial]);
        let figures = all(&run, 0, None);
        assert_figure(&figures, "rate", Some(1_000.0));
        assert!((figures[1].1 - 62.5).abs() < 0.1 && figures[1].0 == "p50", "{figures:?}");
        assert_figure(&figures, "p99", None);
    }

    #[test]
    fn a_damaged_histogram_is_named() {
        let mut run = run(vec![crate::testing::trial("veth", 0, 740, None)]);
        run.trials[0].latency = "###".into();
        let error = Figures::new(&run, None).of(&run.trials[0]).unwrap_err();
        assert!(error.message().contains("run: veth rr-200-1000") && error.way_out().is_some(), "{error}");
    }

    #[test]
    fn every_metric_is_listed_once() {
        let mut names: Vec<_> = Metric::ALL.iter().map(|metric| metric.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Metric::ALL.len());
        let figure = |name: &str| {
            let text =
                format!("command = ['a']\n[[figures]]\nname = '{name}'\nunit = 's'\nbetter = 'lower'\nelapsed = true");
            toml::from_str::<siga_plan::command::Command>(&text).unwrap().check()
        };
        assert!(figure("time").is_ok());
        for name in names {
            assert!(figure(name).is_err(), "a figure of a command has the name {name} of a metric of siga");
        }
    }
}
