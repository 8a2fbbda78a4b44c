//! The samples that the monitor took during the trials of a run: those of each cell's median trial.

use super::monitor::{Users, summary_head, summary_line};
use siga_model::text::name;
use siga_results::monitor::{MonitorRecord, Sample};
use siga_results::store::Run;
use siga_results::summary::{Reduced, Summary};
use std::fmt::Write;

/// Returns the samples of a cell's median trial, in the order of time. If the trial was measured twice, because the run was resumed,
/// returns those of the second time.
pub(super) fn of_cell<'a>(run: &'a Run, summary: &Summary) -> Vec<&'a Sample> {
    let round = summary.median.round;
    let own = |record: &&MonitorRecord| record.cell == summary.cell && record.round == round;
    let all: Vec<&Sample> = run.monitor.iter().filter(own).map(|record| &record.sample).collect();
    let first = all.iter().rposition(|sample| sample.number == 1).unwrap_or(0);
    all.into_iter().skip(first).collect()
}

/// Returns SYSTEM_SUMMARY_BY_TIME and USER_RESOURCE_UTILIZATION of each cell's median trial; an empty string if the run has no samples.
pub(super) fn text(run: &Run, reduced: &Reduced) -> String {
    let mut out = String::new();
    for summary in &reduced.cells {
        let samples = of_cell(run, summary);
        let Some(first) = samples.first() else { continue };
        let trial = summary.median.round.saturating_add(1);
        let _ = writeln!(out, "\nMonitor: {}, trial {trial}\n", name(&summary.cell.to_string()));
        out += &summary_head(first.host.cpus);
        let mut users = Users::default();
        for sample in samples {
            out += &summary_line(sample);
            users.add(sample);
        }
        out += &users.text();
    }
    out
}

/// Returns the CPU time of each user in a trial: name, all CPU seconds, those in user mode.
pub(super) fn users(samples: &[&Sample]) -> Vec<[String; 3]> {
    let mut users = Users::default();
    samples.iter().for_each(|sample| users.add(sample));
    users.rows()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Layout, html, render};
    use siga_results::monitor::{CpuSample, HostSample, ProcessSample, Role, State, Who};
    use siga_results::{judge, testing};

    /// Returns a run of two trials with three samples each; the first trial was measured twice.
    fn run() -> Run {
        let mut run = testing::run("run", Vec::new());
        for round in 0..2 {
            run.trials.push(testing::trial("vctc-iucv", round, 700 + 10 * u64::from(round), None));
        }
        let cell = run.trials[0].cell.clone();
        for (round, number, virtual_ms) in
            [(0, 1, 9.0), (0, 2, 9.0), (0, 1, 100.0), (0, 2, 300.0), (0, 3, 200.0), (1, 1, 50.0)]
        {
            let host = HostSample {
                cpus: 2,
                virtual_ms: 2.0 * virtual_ms,
                cp_ms: 100.0,
                idle_ms: 1_900.0 - 2.0 * virtual_ms,
                steal_ms: 0.0,
                cpu_pressure_ms: None,
                io_pressure_ms: None,
                memory_pressure_ms: None,
            };
            let cpu = CpuSample { virtual_ms, cp_ms: 50.0, wait_ms: None, percent: 0.0 };
            let who = |name: &str, role| Who {
                name: name.to_owned(),
                role,
                guest: None,
                pid: Some(7),
                state: State::Running,
                restarts: 0,
            };
            let processes = [("tcpip1", Role::Guest), ("client<b>", Role::Application)]
                .map(|(name, role)| ProcessSample { who: who(name, role), cpu: Some(cpu), net: None });
            let sample = Sample {
                at: format!("2026-11-28T08:00:0{number}.000Z"),
                number,
                seconds: 1.0,
                host,
                processes: processes.to_vec(),
                monitor: cpu,
            };
            run.monitor.push(MonitorRecord { cell: cell.clone(), round, sample });
        }
        run
    }

    #[test]
    fn a_report_has_the_samples_of_the_median_trial_in_the_layout_of_zvm_and_as_a_chart() {
        let run = run();
        let text = render(&run, Format::Text, Layout::Zvm, None).unwrap();
        let own = text.split_once("Monitor: ").unwrap().1;
        assert!(own.contains("SYSTEM_SUMMARY_BY_TIME (average of 2 processors, out of 100%)"), "{own}");
        let lines: Vec<&str> = own.lines().filter(|line| line.starts_with("2026-11-28T08:00:0")).collect();
        assert_eq!(lines.len(), 3, "only the second measurement of the median trial: {own}");
        let figures = |line: &str| line.split_whitespace().skip(1).take(3).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(figures(lines[1]), ["35.0", "30.0", "5.0"]);
        let user = own.lines().find(|line| line.starts_with("tcpip1")).unwrap();
        assert!(user.ends_with("0.750000       0.600000"), "{user}");
        let page = html::html(std::slice::from_ref(&run), &judge::within(&run).unwrap()).unwrap();
        assert!(page.contains("id=\"monitor\"") && page.contains("second 2.0: total 35.0%"), "no chart");
        assert!(!page.contains("client<b>"), "names are escaped");
        let without = Run { monitor: Vec::new(), ..run };
        assert!(!render(&without, Format::Text, Layout::Zvm, None).unwrap().contains("SYSTEM_SUMMARY"));
        assert!(!html::html(&[without], &[]).unwrap().contains("id=\"monitor\""));
    }

    #[test]
    fn a_sample_reads_back_as_written() {
        for record in run().monitor {
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<MonitorRecord>(&text).unwrap(), record);
        }
    }
}
