//! The figures of a trial, and their statistics over the rounds: medians, spreads, and ratios within a round with their targets.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::median;

/// The figures of one mode in one trial.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) rate: f64,
    /// CPU time of a unit, in milliseconds.
    pub(crate) cpu: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

impl Figures {
    /// Reads the figures from a cell in siga's JSON. Returns the reason as an error if the cell has no figures.
    pub(crate) fn of(cell: &Value) -> Result<Self, String> {
        // siga shows the CPU time of a transaction in microseconds, and that of a megabyte in milliseconds.
        let ms = if cell["cpu"]["unit"] == "us/trans" { 1e-3 } else { 1.0 };
        let latency = |name: &str| cell["latency_us"][name].as_f64().unwrap_or(f64::NAN);
        match (cell["rate"].as_f64(), cell["cpu"]["total"].as_f64(), cell["skipped"].as_str()) {
            (Some(rate), Some(cpu), _) => Ok(Self { rate, cpu: cpu * ms, p99: latency("p99"), p999: latency("p999") }),
            (_, _, Some(reason)) => Err(reason.replace("\n  ", "; ")),
            _ => Err("siga printed no figure for this row".to_owned()),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "rate": self.rate, "cpu_ms": self.cpu, "p99_us": self.p99, "p999_us": self.p999 })
    }
}

/// Returns the median, the minimum and the maximum; `None` if no trial has the figure.
fn spread(trials: &[Figures], figure: impl Fn(&Figures) -> f64) -> Option<[f64; 3]> {
    let mut values: Vec<f64> = trials.iter().map(figure).filter(|value| value.is_finite()).collect();
    if values.is_empty() {
        return None;
    }
    let median = median(&mut values);
    Some([median, values[0], values[values.len() - 1]])
}

pub(crate) fn middle(trials: &[Figures], figure: impl Fn(&Figures) -> f64) -> f64 {
    spread(trials, figure).map_or(f64::NAN, |[median, ..]| median)
}

/// The ratio of siga's figure to the kernel's over all rounds.
pub(crate) struct Ratio {
    what: String,
    target: Option<f64>,
    median: f64,
    least: f64,
    most: f64,
}

impl Ratio {
    pub(crate) fn of(
        what: impl Into<String>,
        target: Option<f64>,
        (own, kernel): (&[Figures], &[Figures]),
        figure: impl Fn(&Figures) -> f64,
    ) -> Self {
        let mut ratios: Vec<f64> = own.iter().zip(kernel).map(|(own, kernel)| figure(own) / figure(kernel)).collect();
        ratios.retain(|ratio| ratio.is_finite());
        if ratios.is_empty() {
            ratios.push(f64::NAN);
        }
        let median = median(&mut ratios);
        Self { what: what.into(), target, median, least: ratios[0], most: ratios[ratios.len() - 1] }
    }

    /// Whether the ratio meets its target: a rate must reach the target, and a cost must not exceed it. `None` if there is no
    /// target or no figure. A percentile, for example, has no figure if the trial has too few units.
    fn is_met(&self) -> Option<bool> {
        let target = self.target.filter(|_| !self.median.is_nan())?;
        let is_cost = ["CPU", "p99"].iter().any(|cost| self.what.starts_with(cost));
        Some(if is_cost { self.median <= target } else { self.median >= target })
    }

    pub(crate) fn json(&self) -> Value {
        let Self { what, target, median, least, most } = self;
        json!({ "what": what, "target": target, "met": self.is_met(), "median": median, "least": least, "most": most })
    }
}

/// Returns a line for each ratio. A ratio without a target and without a figure has none: streams, for example, have no latency.
pub(crate) fn ratio_lines(ratios: &[Ratio], rounds: u32) -> String {
    let mut out = format!("  {:<34} {:>7}  least to most of {rounds} rounds\n", "ratio", "median");
    for ratio in ratios.iter().filter(|ratio| ratio.target.is_some() || !ratio.median.is_nan()) {
        let target = match (ratio.target, ratio.is_met()) {
            (Some(target), Some(true)) => format!("target {target}: met"),
            (Some(target), Some(false)) => format!("target {target}: MISSED"),
            (Some(target), None) => format!("target {target}: too few units for a result"),
            (None, _) => String::new(),
        };
        let Ratio { what, median, least, most, .. } = ratio;
        let _ = writeln!(out, "  {what:<34} {median:>7.2}  {least:.2} to {most:.2}  {target}");
    }
    out
}

/// Returns a table of the modes, each with its medians, and the minimum and maximum of its rate.
pub(crate) fn mode_lines(unit: &str, modes: &[(String, Vec<Figures>)]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "    {unit:>10} {:>21} {:>13} {:>9} {:>9}  mode",
        "least to most", "us CPU a unit", "p99 us", "p99.9 us"
    );
    modes.iter().for_each(|(name, trials)| out += &line(name, trials));
    out
}

/// Returns the figures of all trials of the modes.
pub(crate) fn modes_json(modes: &[(String, Vec<Figures>)]) -> Vec<Value> {
    let of = |(name, trials): &(String, Vec<Figures>)| {
        let trials: Vec<Value> = trials.iter().map(Figures::json).collect();
        json!({ "mode": name, "trials": trials })
    };
    modes.iter().map(of).collect()
}

/// Returns a line with the mode's name, its medians, and the minimum and maximum of its rate.
fn line(name: &str, trials: &[Figures]) -> String {
    let rate = spread(trials, |it| it.rate).map_or(("-".to_owned(), String::new()), |[median, least, most]| {
        (format!("{median:.0}"), format!("{least:.0} to {most:.0}"))
    });
    let latency = |figure: fn(&Figures) -> f64| {
        spread(trials, figure).map_or("-".to_owned(), |[median, ..]| format!("{median:.0}"))
    };
    let (p99, p999) = (latency(|it| it.p99), latency(|it| it.p999));
    let cpu = middle(trials, |it| it.cpu) * 1e3;
    format!("    {:>10} {:>21} {cpu:>13.3} {p99:>9} {p999:>9}  {name}\n", rate.0, rate.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_to_be_at_least_its_target_and_a_cost_at_most() {
        let trials = |rate: f64| [Figures { rate, cpu: 1.0 / rate, ..Figures::default() }; 3];
        let (own, kernel) = (trials(3.0), trials(2.0));
        let rate = Ratio::of("rate", Some(1.5), (&own, &kernel), |it| it.rate);
        let cost = |target| Ratio::of("CPU a unit", Some(target), (&own, &kernel), |it| it.cpu);
        assert_eq!((rate.median, rate.is_met()), (1.5, Some(true)));
        assert_eq!((cost(0.7).is_met(), cost(0.6).is_met()), (Some(true), Some(false)));
        let absent = Figures { p99: f64::NAN, ..Figures::default() };
        let p99 = Ratio::of("p99", Some(1.0), (&[absent; 3], &[absent; 3]), |it| it.p99);
        assert!(p99.median.is_nan() && p99.is_met().is_none(), "there is no figure");
    }

    #[test]
    fn a_cell_without_figures_says_why() {
        let cell = json!({ "rate": 2.5, "cpu": { "total": 0.5 }, "latency_us": { "p99": 7.0, "p999": null }, "skipped": null });
        let figures = Figures::of(&cell).unwrap();
        assert_eq!((figures.rate, figures.cpu, figures.p99, figures.p999.is_nan()), (2.5, 0.5, 7.0, true));
        let cell = json!({ "rate": 2.5, "cpu": { "total": 47.5, "unit": "us/trans" } });
        assert_eq!(Figures::of(&cell).unwrap().cpu, 0.0475);
        let cell = json!({ "rate": 2.5, "cpu": { "total": 0.25, "unit": "ms/MB" } });
        assert_eq!(Figures::of(&cell).unwrap().cpu, 0.25);
        let cell = json!({ "skipped": "cannot create a BPF map\n  run as root" });
        assert_eq!(Figures::of(&cell).err().as_deref(), Some("cannot create a BPF map; run as root"));
    }

    #[test]
    fn a_line_has_a_modes_rate_spread_cost_and_tail() {
        let trial = |rate: f64| Figures { rate, cpu: 0.0125, p99: 50.0, p999: f64::NAN };
        let line = line("loopback, block", &[trial(300.0), trial(100.0), trial(200.0)]);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["200", "100", "to", "300", "12.500", "50", "-", "loopback,", "block"]);
    }
}
