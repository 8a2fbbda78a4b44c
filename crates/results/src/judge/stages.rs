//! Adjusts the p values of a comparison in three stages (decision 028).
//!
//! 1. The main figures (rate, p99, total CPU time) of all cells are adjusted together, whatever the other figures are.
//! 2. The median latency and the CPU times of client, router, server and others are exploratory. The figures of one metric in all
//!    cells form a family. A metric that changed in all cells is therefore not lost among the others.
//! 3. The CPU times in one mode (virtual, CP) are tested only if the CPU time in all modes of the same part differs in a cell.
//!
//! If no main figure differs, the exploratory figures need stronger evidence, so that a comparison of identical sides seldom shows
//! any difference.

use super::decide::LEVEL;
use super::metric::Metric;
use crate::stats::adjust::{benjamini_hochberg, families};
use std::collections::{BTreeMap, BTreeSet};

/// Significance level of exploratory figures if no main figure differs.
const LEVEL_ALONE: f64 = 0.01;

/// The result of the adjustment of one test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adjusted {
    /// The adjusted p. The figure differs if it is below [`LEVEL`].
    pub p: f64,
    /// The number of tests by which p is multiplied if no other figure of the same stage differs.
    pub tests: usize,
}

/// Returns the adjusted p of each test, in the order of `tests`. A test consists of the metric of its figure and its p.
pub fn adjusted(tests: &[(Metric, f64)]) -> Vec<Adjusted> {
    let mut all = vec![Adjusted { p: 1.0, tests: 1 }; tests.len()];
    let main: Vec<usize> = (0..tests.len()).filter(|&at| tests[at].0.is_main()).collect();
    let p: Vec<f64> = main.iter().map(|&at| tests[at].1).collect();
    for (&at, p) in main.iter().zip(benjamini_hochberg(&p)) {
        all[at] = Adjusted { p, tests: main.len() };
    }
    let level = if main.iter().any(|&at| all[at].p < LEVEL) { LEVEL } else { LEVEL_ALONE };
    let metrics: BTreeSet<Metric> =
        tests.iter().map(|(metric, _)| *metric).filter(|metric| !metric.is_main()).collect();
    let (modes, parts): (Vec<Metric>, Vec<Metric>) = metrics.into_iter().partition(|metric| metric.parent().is_some());
    explore(tests, &parts, level, &mut all);
    let differ: BTreeSet<Metric> = (0..tests.len()).filter(|&at| all[at].p < LEVEL).map(|at| tests[at].0).collect();
    let has_parent = |metric: &Metric| metric.parent().is_some_and(|parent| differ.contains(&parent));
    let (tested, untested): (Vec<Metric>, Vec<Metric>) = modes.into_iter().partition(has_parent);
    explore(tests, &tested, level, &mut all);
    explore(tests, &untested, level, &mut all);
    for (at, (metric, _)) in tests.iter().enumerate() {
        if untested.contains(metric) {
            all[at].p = all[at].p.max(LEVEL);
        }
    }
    all
}

/// Adjusts the exploratory figures of one stage at a significance level of `level`.
fn explore(tests: &[(Metric, f64)], metrics: &[Metric], level: f64, all: &mut [Adjusted]) {
    let mut own: BTreeMap<Metric, Vec<usize>> = BTreeMap::new();
    for (at, (metric, _)) in tests.iter().enumerate().filter(|(_, (metric, _))| metrics.contains(metric)) {
        own.entry(*metric).or_default().push(at);
    }
    let p: Vec<Vec<f64>> = own.values().map(|family| family.iter().map(|&at| tests[at].1).collect()).collect();
    // With a stricter level, p grows by the same factor, so that every adjusted p is compared with the same level.
    let stricter = LEVEL / level;
    for (family, p) in own.values().zip(families(&p, level)) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count times a small factor")]
        let count = ((own.len() * family.len()) as f64 * stricter).ceil() as usize;
        for (&at, p) in family.iter().zip(p) {
            all[at] = Adjusted { p: (p * stricter).min(1.0), tests: count };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::metric::{Mode, Part};
    use super::*;

    const ROUTER: Metric = Metric::Cpu(Part::Router, Mode::All);
    const ROUTER_CP: Metric = Metric::Cpu(Part::Router, Mode::Cp);

    /// Returns the metrics of a cell of request-response that get verdicts.
    fn metrics() -> impl Iterator<Item = Metric> {
        Metric::judged().filter(|metric| !matches!(metric, Metric::Streams | Metric::ToServer | Metric::ToClient))
    }

    /// Returns a comparison of six cells in which only the given metrics differ, with this p in each cell.
    fn six_cells(differing: &[(Metric, f64)]) -> Vec<(Metric, f64)> {
        let p = |metric: Metric| differing.iter().find(|(own, _)| *own == metric).map_or(0.5, |(_, p)| *p);
        (0..6).flat_map(|_| metrics().map(|metric| (metric, p(metric)))).collect()
    }

    fn of(tests: &[(Metric, f64)], metric: Metric) -> f64 {
        adjusted(tests)
            .into_iter()
            .zip(tests)
            .filter(|(_, (own, _))| *own == metric)
            .map(|(own, _)| own.p)
            .fold(0.0, f64::max)
    }

    #[test]
    fn exploratory_figures_do_not_change_the_main_ones() {
        let mut tests = six_cells(&[]);
        tests[0].1 = 0.002;
        let alone: Vec<(Metric, f64)> = tests.iter().copied().filter(|(metric, _)| metric.is_main()).collect();
        let (all, main) = (adjusted(&tests), adjusted(&alone));
        assert_eq!(all[0], main[0]);
        // By hand: three main figures of six cells are 18 tests.
        assert!((all[0].p - 0.036).abs() < 1e-12 && all[0].tests == 18, "{:?}", all[0]);
    }

    #[test]
    fn a_counter_that_differs_in_every_cell_is_found_among_ninety_figures() {
        // Nine pairs with all differences on one side have a p of 2 / 2^9.
        let p = 2.0 / 512.0;
        let tests = six_cells(&[(Metric::Rate, p), (ROUTER, p), (ROUTER_CP, p)]);
        assert!((of(&tests, ROUTER) - 5.0 * p).abs() < 1e-12, "one family of five: {}", of(&tests, ROUTER));
        assert!(of(&tests, ROUTER_CP) < LEVEL, "{}", of(&tests, ROUTER_CP));
        let in_one_cell: Vec<(Metric, f64)> = tests
            .iter()
            .enumerate()
            .map(|(at, &(metric, p))| (metric, if at < metrics().count() || metric.is_main() { p } else { 0.5 }))
            .collect();
        let flat: Vec<f64> = in_one_cell.iter().map(|(_, p)| *p).collect();
        let at = in_one_cell.iter().position(|(metric, _)| *metric == ROUTER).unwrap();
        assert!(benjamini_hochberg(&flat)[at] >= LEVEL, "in one table, this counter was lost");
    }

    #[test]
    fn exploratory_figures_alone_need_stronger_evidence() {
        let adjusted = |trials: i32| of(&six_cells(&[(ROUTER, 2.0 / 2.0_f64.powi(trials))]), ROUTER);
        // By hand: 2 / 2^10 x 5 families x 5 (the stricter level) is 0.0488; with nine pairs it is 0.0977.
        assert!((adjusted(10) - 0.048_828_125).abs() < 1e-12 && adjusted(9) > LEVEL, "{}", adjusted(10));
    }

    #[test]
    fn a_mode_is_tested_only_if_its_part_differs() {
        let mode_alone = six_cells(&[(Metric::Rate, 0.0001), (ROUTER_CP, 0.0001)]);
        assert!(of(&mode_alone, ROUTER_CP) >= LEVEL);
        let with_part = six_cells(&[(Metric::Rate, 0.0001), (ROUTER_CP, 0.0001), (ROUTER, 0.0001)]);
        assert!(of(&with_part, ROUTER_CP) < LEVEL);
        let total = six_cells(&[(Metric::TOTAL, 0.0001), (Metric::Cpu(Part::Total, Mode::Cp), 0.0001)]);
        assert!(of(&total, Metric::Cpu(Part::Total, Mode::Cp)) < LEVEL, "the total is a main figure");
    }
}
