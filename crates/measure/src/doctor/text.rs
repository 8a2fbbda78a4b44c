//! Formats the report of `siga doctor` as aligned text. Each result begins with a mark such as `ok` or `missing`. The lines
//! below a problem say its consequence and what the user can do.

use super::calibrate::Calibration;
use super::check::{Check, CheckState, Group};
use super::clean::Cleaning;
use super::examine::Examination;
use super::recovery::{Ratio, Verdict};
use super::timing::Timing;
use super::watch::Watched;
use siga_results::environment::{EMULATED, EMULATED_FIGURES};
use std::fmt::Write;

impl CheckState {
    fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Caution => "caution",
            Self::Missing => "missing",
        }
    }
}

impl Group {
    fn title(self) -> &'static str {
        match self {
            Self::Paths => "Paths",
            Self::Kernel => "Kernel features",
            Self::Accounting => "CPU accounting",
            Self::Tools => "Tools",
            Self::Host => "This host",
        }
    }
}

impl Verdict {
    fn mark(self) -> &'static str {
        match self {
            Self::Recovered => "ok",
            Self::Off => "off",
            Self::Undecided => "undecided",
        }
    }
}

/// Width in characters of the column with the marks.
const MARK: usize = 9;
/// Width in characters of the column with the names of the checks.
const NAME: usize = 17;

pub(super) fn examination(examination: &Examination) -> String {
    let mut out = format!("{}\n{}\n", examination.summary, examination.host);
    if examination.emulated {
        let _ = writeln!(out, "EMULATED MACHINE: {EMULATED_FIGURES}.");
    }
    for group in Group::ALL {
        let _ = writeln!(out, "\n{}", group.title());
        for check in examination.checks.iter().filter(|check| check.group == group) {
            self::check(check, &mut out);
        }
    }
    let mark = if examination.emulated { format!(", {EMULATED}") } else { String::new() };
    let _ = writeln!(out, "\nTimes of basic operations (medians){mark}");
    for timing in &examination.timings {
        self::timing(timing, &mut out);
    }
    if let Some(overhead) = &examination.overhead {
        let ratio = overhead.rate_ratio;
        let _ = writeln!(
            out,
            "\nThe cost of accounting: with the profiler, the rate is {:.3} of the rate without it (95% interval: {}; \
                the profiler's own estimate: {:.3}).\nMeasured in {} trials of {}, at {:.0} transactions per second. \
                siga measures rates without the profiler. The methods subtract and tick cost nothing during a trial.",
            ratio.value,
            interval(&ratio),
            overhead.said_ratio,
            ratio.rounds,
            overhead.cell,
            overhead.rate
        );
    }
    if let Some(watched) = &examination.watched {
        self::watched(watched, &mut out);
    }
    out
}

fn watched(watched: &Watched, out: &mut String) {
    let others = watched.others.map(|share| format!(", and processes outside siga used {:.1}%", 100.0 * share));
    let _ = writeln!(
        out,
        "\nWatched this host for {:.0} s with {} trials of {}: the hypervisor took {:.1}% of the CPU time{}.",
        watched.seconds,
        watched.trials,
        watched.cell,
        100.0 * watched.steal,
        others.unwrap_or_default()
    );
    if let Some(words) = &watched.disturbance {
        let _ = writeln!(out, "Disturbed: {words}.");
    }
    let _ = writeln!(out, "{}", watched.sentence());
}

fn check(check: &Check, out: &mut String) {
    // The longest names are wider than their column.
    let name = format!("{} ", check.name);
    let _ = writeln!(out, "  {:<MARK$}{name:<NAME$}{}", check.state.mark(), check.finding);
    let indent = " ".repeat(2 + MARK + NAME);
    if let Some(costs) = &check.costs {
        let _ = writeln!(out, "{indent}effect: {costs}");
    }
    if let Some(way_out) = &check.way_out {
        let _ = writeln!(out, "{indent}fix: {way_out}");
    }
}

fn timing(timing: &Timing, out: &mut String) {
    let us = timing.median_ns / 1e3;
    let digits = if us < 10.0 { 3 } else { 1 };
    let _ = writeln!(out, "  {:<50}{us:>9.digits$} us   {}", timing.what, timing.means);
}

pub(super) fn calibration(calibration: &Calibration) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", verdict(calibration));
    let _ = writeln!(
        out,
        "siga added known CPU costs to {} {}, with {} s per trial. Each round measures each cost twice: small and large.\n\
         The columns `planted` and `recovered` show the difference between the large and the small cost, \
         in microseconds per transaction.\n",
        calibration.path, calibration.workload, calibration.seconds
    );
    let _ = writeln!(
        out,
        "  {:<11}{:<12}{:<10}{:>8}{:>12}{:>8}   {:<16}{:>6}",
        "", "planted in", "method", "planted", "recovered", "ratio", "95% interval", "rounds"
    );
    for row in &calibration.rows {
        let _ = writeln!(
            out,
            "  {:<11}{:<12}{:<10}{:>8.1}{:>12.1}{:>8.3}   {:<16}{:>6}",
            row.verdict.mark(),
            row.planted_in,
            row.way,
            row.planted_us,
            row.recovered_us,
            row.ratio.value,
            interval(&row.ratio),
            row.ratio.rounds
        );
        if let Some(note) = &row.note {
            let _ = writeln!(out, "{:13}{note}", "");
        }
    }
    for absent in &calibration.skipped {
        let _ = writeln!(out, "  {:<11}{:<12}{:<10}{}", "skipped", absent.planted_in, absent.way, absent.reason);
    }
    if let Some(percent) = calibration.others_percent {
        let _ = writeln!(out, "\nOther processes used {percent:.1}% of the CPU time in the median trial.");
    }
    out
}

fn interval(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{low:.3} to {high:.3}"),
        _ => "-".into(),
    }
}

fn verdict(calibration: &Calibration) -> String {
    let count = |verdict: Verdict| calibration.rows.iter().filter(|row| row.verdict == verdict).count();
    let all = calibration.rows.len();
    match (count(Verdict::Off), count(Verdict::Undecided)) {
        (0, 0) => "Every accounting method measured the planted costs correctly.".into(),
        (0, undecided) => {
            format!(
                "siga added {all} known CPU costs. siga could not determine {undecided} of them within 5%, because other \
                load on this host is too high."
            )
        }
        (off, _) => {
            format!("siga added {all} known CPU costs, and measured {off} of them with an error of more than 5%.")
        }
    }
}

pub(super) fn cleaning(cleaning: &Cleaning) -> String {
    let mut out = String::new();
    for removed in &cleaning.found {
        let _ = match &removed.problem {
            None => writeln!(out, "removed     {}", removed.what),
            Some(problem) => writeln!(out, "not removed {}: {problem}", removed.what),
        };
    }
    if cleaning.found.is_empty() {
        let _ = writeln!(out, "siga found no leftovers. It searched for:");
        for place in &cleaning.looked {
            let _ = writeln!(out, "  {place}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_it_costs_and_the_way_out() {
        let missing = Check {
            group: Group::Paths,
            name: "sockmap".into(),
            state: CheckState::Missing,
            finding: "cannot create a BPF map".into(),
            costs: Some("cells of this path are skipped".into()),
            way_out: Some("run as root".into()),
        };
        let mut out = String::new();
        check(&missing, &mut out);
        let indent = " ".repeat(28);
        assert_eq!(
            out,
            format!(
                "  missing  sockmap          cannot create a BPF map\n{indent}effect: cells of this path are skipped\n{indent}fix: run as root\n"
            )
        );
    }

    #[test]
    fn a_report_of_an_emulated_machine_says_so_near_its_top_and_at_its_figures() {
        let mut examination = Examination {
            fit: true,
            emulated: true,
            summary: "This host can measure.".into(),
            host: "4 CPUs".into(),
            checks: Vec::new(),
            timings: Vec::new(),
            overhead: None,
            watched: None,
        };
        let text = super::examination(&examination);
        assert!(text.starts_with("This host can measure.\n4 CPUs\nEMULATED MACHINE: a program emulates"), "{text}");
        assert!(text.contains("\nTimes of basic operations (medians), emulated machine\n"), "{text}");
        examination.emulated = false;
        let text = super::examination(&examination);
        assert!(!text.to_lowercase().contains("emulated"), "{text}");
    }

    #[test]
    fn the_report_of_a_clean_host_says_where_siga_searched() {
        let text = cleaning(&Cleaning { looked: vec!["/tmp/siga.XXXXXXXXXX".into()], found: Vec::new() });
        assert_eq!(text, "siga found no leftovers. It searched for:\n  /tmp/siga.XXXXXXXXXX\n");
    }
}
