//! The rules R1 to R10 that the printed cells obey. Each rule is checked wherever it applies.
//!
//! The rules use only the printed cells (and the intervals of R6), so they would find a misprint or a transcription error. Each
//! rule counts its checks, the checks that are equal in printed precision, and those outside the rounding of its terms. R7, the
//! grammar of run ids, compares the nine columns of a table with their headings.

use super::super::data::{Printed, RawRun, Report};
use siga_plan::run_id::RunId;
use siga_results::reduce::{Exact, Number, ratio};
use std::collections::BTreeMap;

/// The printed cells of one run.
struct Run {
    table: String,
    title: String,
    clients: u32,
    runid: String,
    cells: BTreeMap<String, Exact>,
    ratios: BTreeMap<String, Exact>,
}

impl Run {
    /// Returns the stacks for which the run has figures.
    fn stacks(&self) -> impl Iterator<Item = &'static str> {
        ["tcpip1", "tcpip2", "tcpip3"].into_iter().filter(|stack| self.cells.contains_key(&util(stack)))
    }

    fn rate(&self) -> Exact {
        self.cells.get("MB/sec").copied().unwrap_or_else(|| self.cells["trans/sec"])
    }

    /// Returns the CPU time per unit, in hundredths of a millisecond.
    fn msec(&self, prefix: &str) -> u128 {
        let unit = if self.cells.contains_key("MB/sec") { "MB" } else { "trans" };
        self.cells[&format!("{prefix}_msec/{unit}")].scaled(2)
    }
}

fn util(stack: &str) -> String {
    format!("{stack}_tot_cpu_util")
}

/// Returns the runs of a report in pairs of base and changed run, as in its tables.
fn runs(report: Report) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for row in Printed::all().unwrap().into_iter().filter(|row| row.report() == report) {
        let same = |run: &Run| (&run.table, run.clients, &run.runid) == (&row.table(), row.clients, &row.runid);
        if !runs.last().is_some_and(same) {
            runs.push(Run {
                table: row.table(),
                title: row.title.clone(),
                clients: row.clients,
                runid: row.runid.clone(),
                cells: BTreeMap::new(),
                ratios: BTreeMap::new(),
            });
        }
        let run = runs.last_mut().unwrap();
        if let Some(ratio) = &row.ratio {
            run.ratios.insert(row.metric.clone(), ratio.parse().unwrap());
        }
        run.cells.insert(row.metric, row.value.parse().unwrap());
    }
    runs
}

/// The result of a rule's checks.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    checks: u32,
    equal: u32,
    outside: Vec<String>,
}

impl Tally {
    fn add(&mut self, place: impl Into<String>, equal: bool, allowed: bool) {
        self.checks += 1;
        self.equal += u32::from(equal);
        if !(equal || allowed) {
            self.outside.push(place.into());
        }
    }

    /// Asserts that `checks` checks were made, that `equal` of them hold exactly, and that none is outside the rounding.
    fn expect(&self, checks: u32, equal: u32) {
        assert_eq!(self.outside, Vec::<String>::new(), "outside what rounding allows");
        assert_eq!((self.checks, self.equal), (checks, equal));
    }
}

#[test]
fn r1_cpu_msec_follows_from_the_total_utilisation() {
    let mut tally = Tally::default();
    for run in runs(Report::Stack) {
        let both = run.cells["total_cpu_util"].times(Exact::whole(2 * 10));
        tally.add(&run.runid, both.over(run.rate()).unwrap().scaled(2) == run.msec("cpu"), false);
    }
    tally.expect(108, 108);
}

#[test]
fn r2_cpu_is_emulation_and_cp() {
    let mut tally = Tally::default();
    for run in runs(Report::Stack) {
        let off = run.msec("cpu").abs_diff(run.msec("emul") + run.msec("cp"));
        tally.add(&run.runid, off == 0, off == 1);
    }
    tally.expect(108, 79);
}

#[test]
fn r3_a_stacks_msec_follows_from_its_utilisation() {
    let mut tally = Tally::default();
    let rounding: Exact = "0.005".parse().unwrap();
    for run in runs(Report::Stack) {
        for stack in run.stacks() {
            let printed = run.msec(&format!("{stack}_cpu"));
            let per_unit = |util: Exact| util.times(Exact::whole(10)).over(run.rate()).unwrap().scaled(2);
            let value = run.cells[&util(stack)];
            // The utilisation is itself rounded, so its true value can be up to half a hundredth away.
            let slack = per_unit(rounding) + 1;
            let off = per_unit(value).abs_diff(printed);
            tally.add(format!("{} {stack}", run.runid), off == 0, off <= slack);
        }
    }
    tally.expect(240, 220);
}

#[test]
fn r4_a_stacks_cpu_is_its_virtual_and_cp_time() {
    let mut tally = Tally::default();
    for run in runs(Report::Stack) {
        for stack in run.stacks() {
            let [cpu, vcpu, ccpu] = ["cpu", "vcpu", "ccpu"].map(|part| run.msec(&format!("{stack}_{part}")));
            let off = cpu.abs_diff(vcpu + ccpu);
            tally.add(format!("{} {stack}", run.runid), off == 0, off == 1);
        }
    }
    tally.expect(240, 165);
}

/// Compares every ratio of a report with the quotient of the two printed values from which it was computed.
fn ratios(report: Report) -> Tally {
    let mut tally = Tally::default();
    for pair in runs(report).as_chunks::<2>().0 {
        let [base, changed] = pair;
        assert_eq!(base.cells.len(), changed.ratios.len(), "{}: every row has a ratio", changed.runid);
        for (metric, printed) in &changed.ratios {
            let expected = ratio(base.cells[metric], changed.cells[metric]).unwrap();
            tally.add(format!("{} {metric}", changed.runid), expected == *printed, false);
        }
    }
    tally
}

#[test]
fn r5_ratios_are_of_printed_values_half_up() {
    ratios(Report::Stack).expect(750, 750);
}

#[test]
fn r6_stack_utilisations_are_whole_cpu_seconds() {
    let intervals: BTreeMap<_, _> = RawRun::all().unwrap().into_iter().map(|run| (run.runid, run.interval_s)).collect();
    let mut tally = Tally::default();
    for run in runs(Report::Stack) {
        let interval_s = intervals[&run.runid];
        for stack in run.stacks() {
            let printed = run.cells[&util(stack)];
            let hundredfold = printed.times(interval_s).over(Exact::whole(100)).unwrap();
            let seconds = u32::try_from(hundredfold.scaled(0)).unwrap();
            let again = Exact::whole(seconds * 100).over(interval_s).unwrap().printed(2);
            tally.add(format!("{} {stack}", run.runid), again == printed, false);
        }
    }
    tally.expect(240, 240);
    for interval_s in intervals.values() {
        let samples = interval_s.over(Exact::whole(30)).unwrap();
        assert_eq!(samples, samples.printed(0), "{} s is no multiple of 30 s", interval_s.fixed(1));
    }
}

#[test]
fn r6_the_parts_of_a_stack_are_whole_seconds_that_add_up() {
    let mut parts = 0;
    for run in RawRun::all().unwrap() {
        for component in run.counters().unwrap().components {
            let time = component.time;
            for part in [time.vcpu_s, time.ccpu_s] {
                assert_eq!(part, part.printed(0), "{} {}", run.runid, component.name);
                parts += 1;
            }
            assert_eq!(time.vcpu_s.plus(time.ccpu_s), time.cpu_s, "{} {}", run.runid, component.name);
        }
    }
    assert_eq!(parts, 480);
}

#[test]
fn total_utilisation_is_emulation_and_cp() {
    for run in RawRun::all().unwrap() {
        let total = run.counters().unwrap().total;
        assert_eq!(total.vcpu_s.plus(total.ccpu_s), total.cpu_s, "{}", run.runid);
    }
}

/// Returns the level, the title and the number of clients that a run id encodes. The reports have trials 1 to 3.
fn decode(runid: &str) -> Option<(&'static str, String, u32)> {
    let id: RunId = runid.parse().ok().filter(|id: &RunId| matches!(id.trial(), Some(1..=3)))?;
    let workload = match id.workload() {
        "strg-20m" => "Streaming",
        "crr-64-8k" => "CRR",
        _ => "RR",
    };
    let connectivity = match id.connectivity() {
        "Guest LAN" => "Guest LAN HIPER",
        "virtual CTC" => "VCTC",
        other => other,
    };
    let mtu = if id.mtu() == 57_344 { "56K".to_owned() } else { id.mtu().to_string() };
    Some((id.level(), format!("{connectivity} - {workload} {mtu}"), id.clients()))
}

#[test]
fn r7_run_ids_stand_where_their_grammar_puts_them() {
    let mut tally = Tally::default();
    let levels: BTreeMap<_, _> = RawRun::all().unwrap().into_iter().map(|run| (run.runid, run.level)).collect();
    for run in runs(Report::Stack) {
        // In the source, the title of table 11 lacks the dash that other titles have, so the dash is added here.
        let title = run.title.replace("QDIO CRR", "QDIO - CRR");
        let expected = Some((levels[&run.runid].as_str(), title, run.clients));
        tally.add(&run.runid, decode(&run.runid) == expected, false);
    }
    tally.expect(108, 108);
    for wrong in
        ["", "420", "430hss11", "208hss11", "311vss11", "420hsn11", "420qsn11", "420hss21", "420hss14", "420hss111"]
    {
        assert_eq!(decode(wrong), None, "{wrong}");
    }
}

#[test]
fn r8_megabytes_a_second_are_ten_over_elapsed() {
    let mut tally = Tally::default();
    for run in runs(Report::Vctc) {
        let rate = Exact::whole(10).over(run.cells["elapsed time (sec)"]).unwrap();
        tally.add(&run.runid, rate.printed(2) == run.cells["Megabytes/sec"], false);
    }
    tally.expect(4, 4);
}

#[test]
fn r9_total_is_cp_and_virtual() {
    let mut tally = Tally::default();
    for run in runs(Report::Vctc) {
        let sum = run.cells["CP CPU time"].plus(run.cells["virtual CPU time"]);
        tally.add(&run.runid, sum == run.cells["total CPU time"], false);
    }
    tally.expect(4, 4);
}

#[test]
fn r10_ratios_of_the_other_report() {
    ratios(Report::Vctc).expect(10, 10);
}
