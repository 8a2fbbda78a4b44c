//! Shows a run in the layout of z/VM's reports: one table for each path, MTU and workload, with columns for each combination of
//! number of client-server pairs and level.
//!
//! Each level other than the base level has two more columns: the measured ratio to the base level, and the published ratio if
//! there is one. The rows of the published tables come first, then the rows that only siga has.

use super::pairs::{Pair, levels};
use super::published::{PublishedTable, align};
use super::repeat::Repeat;
use super::rows::{column, names};
use crate::table::mark;
use crate::words::grouped;
use siga_model::error::Result;
use siga_model::text::name;
use siga_plan::run_id::RunId;
use siga_results::environment::EMULATED_FIGURES;
use siga_results::reduce::Blocks;
use siga_results::store::Run;
use siga_results::summary::{Reduced, Summary};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns the tables as text, without the findings. Returns an error of kind `Incomplete` if a cell has completed no unit, because
/// the cell then has no figure per unit.
pub(crate) fn tables_text(run: &Run, reduced: &Reduced, repeat: &Repeat) -> Result<String> {
    let mut out = String::new();
    if run.environment.is_emulated() {
        let _ = writeln!(out, "EMULATED MACHINE: {EMULATED_FIGURES}.\n");
    }
    if run.plan.smoke {
        let _ = writeln!(out, "SMOKE RUN: the trials are too short for reliable figures.\n");
    }
    let disturbed = reduced.disturbance.sentence();
    if !disturbed.is_empty() {
        let _ = writeln!(out, "{disturbed}\n");
    }
    let order = levels(run, reduced);
    for (number, cells) in tables(reduced, &order).iter().enumerate() {
        let table = Table::of(cells, repeat)?;
        let cell = &cells[0].cell;
        let mtu = cell.mtu.map(|mtu| format!(" {mtu}")).unwrap_or_default();
        let _ = writeln!(out, "Table {}. {} - {}{mtu}{}", number + 1, name(&cell.path), cell.workload, mark(run));
        if let Some(published) = table.published() {
            let _ = writeln!(out, "Published: {}", published.heading);
        }
        out.push('\n');
        align(&mut out, &table.grid(), 1);
        table.notes(&mut out);
        out.push('\n');
    }
    Ok(out)
}

/// Groups the cells into tables. Cells that differ only in number of client-server pairs and level are in the same table.
fn tables<'a>(reduced: &'a Reduced, levels: &[&str]) -> Vec<Vec<&'a Summary>> {
    let level = |summary: &Summary| levels.iter().position(|level| *level == summary.cell.level);
    let tables = grouped(&reduced.cells, |Summary { cell, .. }| (cell.path.clone(), cell.workload, cell.mtu));
    let sorted = tables.into_iter().map(|(_, mut table)| {
        table.sort_by_key(|summary| (summary.cell.clients, level(summary)));
        table
    });
    sorted.collect()
}

/// A cell of the run, with the figures of its column in the table.
struct Column<'a> {
    summary: &'a Summary,
    blocks: Blocks<f64>,
    /// The pair that consists of the same cell at the base level and this cell; `None` if this cell is at the base level.
    pair: Option<&'a Pair>,
}

struct Table<'a> {
    cells: Vec<Column<'a>>,
    /// The names of the rows, in blocks. They are the rows that a cell has, and the rows in `absent`.
    rows: Vec<Vec<String>>,
    /// The names of the rows that the published table has but no cell of the run.
    absent: Vec<String>,
    repeat: &'a Repeat,
}

impl<'a> Table<'a> {
    fn of(cells: &[&'a Summary], repeat: &'a Repeat) -> Result<Self> {
        let shown =
            |summary: &&'a Summary| Ok(Column { summary, blocks: column(summary)?, pair: repeat.pair(&summary.cell) });
        let cells = cells.iter().map(shown).collect::<Result<Vec<_>>>()?;
        let mut table = Self { cells, rows: Vec::new(), absent: Vec::new(), repeat };
        table.find_rows();
        Ok(table)
    }

    fn published(&self) -> Option<&'a PublishedTable> {
        self.cells.iter().find_map(|cell| Some(&self.repeat.published[cell.pair?.table?]))
    }

    /// Collects the names of the rows of all cells, in the order in which the cells have them. Rows that only the published table
    /// has are put into a block of their own.
    fn find_rows(&mut self) {
        for block in self.cells.iter().flat_map(|cell| cell.blocks.iter().enumerate()) {
            let (number, figures) = block;
            if self.rows.len() <= number {
                self.rows.resize(number + 1, Vec::new());
            }
            for figure in figures {
                if !self.rows.iter().flatten().any(|row| *row == figure.metric) {
                    self.rows[number].push(figure.metric.clone());
                }
            }
        }
        let Some(published) = self.published() else { return };
        let known = |row: &String| self.rows.iter().flatten().any(|own| own == row);
        self.absent = published.metrics.iter().map(|(row, _)| row).filter(|row| !known(row)).cloned().collect();
        // This block comes before the last block, which has the rows that only siga has.
        let at = self.rows.len().saturating_sub(1);
        if !self.absent.is_empty() {
            self.rows.insert(at, self.absent.clone());
        }
    }

    fn grid(&self) -> Vec<Vec<String>> {
        let head = |title: &str, own: &dyn Fn(&Column<'a>) -> [String; 3]| {
            let columns = self.cells.iter().flat_map(|cell| {
                let [value, ratio, published] = own(cell);
                let beside = cell.pair.map(|pair| [Some(ratio), pair.table.map(|_| published)]);
                std::iter::once(value).chain(beside.into_iter().flatten().flatten())
            });
            std::iter::once(title.to_owned()).chain(columns).collect::<Vec<_>>()
        };
        let clients = |cell: &Column<'_>| [0; 3].map(|_| format!("{:02}", cell.summary.cell.clients));
        // The number of the median trial's round, from 1. A run identifier ends in this number.
        let trial =
            |cell: &Column<'_>| [cell.summary.median.round.saturating_add(1).to_string(), String::new(), String::new()];
        let level = |cell: &Column<'_>| [name(&cell.summary.cell.level), "ratio".into(), "published".into()];
        let runid = |cell: &Column<'_>| {
            let id = RunId::of(&cell.summary.cell);
            let id = id.map(|id| id.with_trial(cell.summary.median.round.saturating_add(1)).to_string());
            [id.unwrap_or_default(), String::new(), String::new()]
        };
        let has_ids = self.cells.iter().any(|cell| RunId::of(&cell.summary.cell).is_some());
        let mut grid = vec![head("Number of clients", &clients)];
        grid.extend(has_ids.then(|| head("runid", &runid)));
        grid.extend([head("trial", &trial), head("level", &level)]);
        for block in self.rows.iter().filter(|block| !block.is_empty()) {
            grid.push(Vec::new());
            for row in block {
                grid.push(head(row, &|cell| self.figures(cell, row)));
            }
        }
        grid
    }

    /// Returns the three figures of a cell in a row: value, ratio to the base level, published ratio. A missing figure is "-".
    fn figures(&self, cell: &Column<'a>, row: &str) -> [String; 3] {
        let absent = || "-".to_owned();
        let figure = cell.blocks.iter().flatten().find(|figure| figure.metric == row);
        let ratio = cell.pair.and_then(|pair| pair.ratio(row));
        let printed = cell.pair.and_then(|pair| pair.printed(&self.repeat.published, row));
        [
            // On today's processors, CPU times per unit are too small for the two decimals of the published tables.
            figure.map_or_else(absent, |figure| format!("{:.*}", places(figure.value), figure.value)),
            ratio.map_or_else(absent, |ratio| ratio_text(ratio.value)),
            printed.map_or_else(absent, |[_, _, ratio]| format!("{ratio:.2}")),
        ]
    }

    fn notes(&self, out: &mut String) {
        let first = &self.cells[0].summary;
        let unit = first.cell.workload.unit().name();
        let methods: Vec<_> = self.cells.iter().map(|cell| cell.summary.cpu.method.to_string()).collect();
        let residues: Vec<_> = self.cells.iter().map(|cell| format!("{:.4}", cell.summary.cpu.residue)).collect();
        let mut same = methods.clone();
        same.dedup();
        let methods = if same.len() == 1 { &same } else { &methods };
        let trials: Vec<usize> = self.cells.iter().map(|cell| cell.summary.trials).collect();
        let (least, most) =
            (trials.iter().min().copied().unwrap_or_default(), trials.iter().max().copied().unwrap_or_default());
        let trials = if least == most { format!("{most} trials") } else { format!("{least} to {most} trials") };
        let _ = writeln!(
            out,
            "\nNote: CPU by {}; residue {} msec/{unit};\nvcpu is user mode, ccpu the kernel; MB is 10^6 bytes of payload; \
             median of {trials}",
            methods.join(", "),
            residues.join(", "),
        );
        if let Some(pair) = self.cells.iter().find_map(|cell| cell.pair) {
            let base = name(&pair.base_level);
            let _ = writeln!(
                out,
                "ratio: compared with {base}, computed from trials of the same round, so it can differ slightly from \
                    the ratio of the two medians beside it"
            );
        }
        for (reason, rows) in self.absences() {
            let _ = writeln!(out, "Absent: {}: {reason}", rows.join(", "));
        }
    }

    /// Returns the stacks whose rows have no figures, grouped by the reason for which the figures are missing.
    fn absences(&self) -> BTreeMap<&'static str, Vec<String>> {
        let mut absent: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for row in &self.absent {
            let stack = row.split_once('_').map_or(row.as_str(), |(stack, _)| stack);
            let rows = absent.entry(
                "the applications run in the processes of these stacks; to measure them separately, use a path that ends in \
                    -iucv",
            );
            let rows = rows.or_default();
            if !rows.iter().any(|other| other == stack) {
                rows.push(stack.to_owned());
            }
        }
        for cell in &self.cells {
            let summary = cell.summary;
            let [_, router, _] = names(&summary.cell);
            if summary.cpu.router.is_none() && siga_results::summary::has_router(&summary.cell) {
                let rows =
                    absent.entry("the accounting method does not measure this component separately").or_default();
                if rows.is_empty() {
                    rows.push(router.to_owned());
                }
            }
        }
        absent
    }
}

/// Returns the number of decimals of a value: two, as in the published tables, or more for small values.
fn places(value: f64) -> usize {
    match value.abs() {
        small if small > 0.0 && small < 0.1 => 5,
        small if small < 1.0 => 4,
        _ => 2,
    }
}

/// Returns a ratio with two decimals, as in the published tables, or with two significant digits if the ratio is below 0.1.
pub(crate) fn ratio_text(ratio: f64) -> String {
    let places = match ratio.abs() {
        tiny if tiny > 0.0 && tiny < 0.01 => 4,
        small if small > 0.0 && small < 0.1 => 3,
        _ => 2,
    };
    format!("{ratio:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;
    use crate::zvm::check::FindingVerdict;
    use crate::zvm::repeat::tests::{at_430, dearer_router, like_tables, repeated};
    use serde_json::Value;
    use siga_plan::plan::Plan;
    use siga_plan::plan::finding::{Finding, FindingFigure};
    use siga_results::judge::Judged;
    use siga_results::record::TrialRecord;

    fn shown(run: &Run) -> String {
        let (reduced, repeat) = repeated(run);
        crate::zvm::text(run, &reduced, &repeat).unwrap()
    }

    /// Returns the cells of the first row `name` after `title`.
    fn row<'a>(text: &'a str, title: &str, name: &str) -> Vec<&'a str> {
        let table = text.split_once(title).unwrap().1;
        table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap().split_whitespace().collect()
    }

    #[test]
    fn the_published_ratio_stands_beside_the_measured_one() {
        let text = shown(&like_tables(12));
        let expected = "\
Table 1. hipersockets-routed-iucv - strg-20m 1500
Published: Table 1. HiperSockets - Streaming 1500

Number of clients                01        01     01         01        05        05     05         05        10        10     10         10
";
        assert!(text.starts_with(expected), "{text}");
        let first = "Table 1. hipersockets";
        assert_eq!(row(&text, first, "level")[..4], ["420", "430", "ratio", "published"]);
        // The tables print 18.84 and 5.46 ms per megabyte. The run has a hundred times as many megabytes, and a little noise.
        let router = row(&text, first, "tcpip2_cpu_msec/MB");
        assert!(router[0].starts_with("0.188") && router[1].starts_with("0.054"), "{router:?}");
        assert_eq!(router[2..4], ["0.29", "0.29"]);
        assert_eq!(row(&text, first, "MB/sec")[2..4], ["1.58", "1.58"]);
        assert_eq!(row(&text, first, "tcpip1_tot_cpu_util")[2..4], ["1.28", "1.28"]);
        assert_eq!(row(&text, first, "total_cpu_util")[2..4], ["0.88", "0.88"]);
        assert_eq!(row(&text, first, "applications_cpu_msec/MB")[3], "-", "printed nowhere");
        let last = "Published: Table 18. VCTC - RR 1500";
        assert_eq!(row(&text, last, "tcpip1_cpu_msec/trans")[3], "-", "not printed in tables 16 to 18");
        assert_eq!(row(&text, last, "tcpip3_cpu_msec/trans")[10..], ["0.84", "0.84"]);
    }

    #[test]
    fn without_a_published_table_the_measured_ratio_stands_alone() {
        let mut run = like_tables(2);
        run.trials.retain(|trial| trial.cell.workload.to_string() == "strg-20m" && trial.cell.mtu == Some(1_500));
        for trial in &mut run.trials {
            trial.cell.mtu = Some(8_192);
        }
        let text = shown(&run);
        assert!(!text.contains("Published:"), "{text}");
        assert_eq!(row(&text, "Table 1.", "level")[..3], ["420", "430", "ratio"]);
        assert_eq!(row(&text, "Table 1.", "tcpip2_cpu_msec/MB")[2], "0.29");
    }

    #[test]
    fn a_row_that_siga_cannot_measure_is_absent_with_the_reason() {
        let mut run = like_tables(2);
        for trial in &mut run.trials {
            trial.cell.path = trial.cell.path.trim_end_matches("-iucv").to_owned();
            let guests = trial.cpu.guests.as_mut().unwrap();
            guests.stacks = None;
        }
        let text = shown(&run);
        assert!(text.contains("Published: Table 1."), "{text}");
        assert_eq!(row(&text, "Table 1.", "tcpip3_cpu_msec/MB")[..4], ["-", "-", "-", "0.53"]);
        assert_eq!(row(&text, "Table 1.", "tcpip2_cpu_msec/MB")[2..4], ["0.29", "0.29"]);
        assert!(
            text.contains("Absent: tcpip1, tcpip3: the applications run in the processes of these stacks"),
            "{text}"
        );
    }

    #[test]
    fn a_finding_is_explained_by_measured_figures() {
        let mut run = like_tables(12);
        let cell = ("hipersockets-routed-iucv", "rr-200-1000", 10);
        at_430(&mut run, cell).for_each(|trial| dearer_router(trial, 3));
        let text = shown(&run);
        assert!(text.contains("14 of 21 findings of z/VM's report hold here: 7 are contradicted."), "{text}");
        let own = text.split_once("NO: Router CPU per unit at 430 is below 420 in every cell.\n").unwrap().1;
        let own = own.split_once("\n\n    case").unwrap();
        let why = own.0.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "Judged on 5 of 5 connectivities (HiperSockets, Guest LAN type HiperSockets, OSA-Express QDIO GbE, CLAW, virtual CTC), and holds on \
             4 of 5 (Guest LAN type HiperSockets, OSA-Express QDIO GbE, CLAW, virtual CTC): 53 of 54 cases support the finding, 1 \
             contradict it, and 0 are undecided.",
            "published 0.29 to 0.80 for the same cases.",
            "Farthest outside: hipersockets-routed-iucv rr-200-1000 mtu 1500 x10.",
            // The tables print 0.19 and 0.10 ms per transaction; 0.20 ms of CP time were added. The run has a hundred times as
            // many transactions.
            "tcpip2, 420 to 430 in us/trans: 1.90 to 3.00 (virtual 1.50 to 0.500, CP 0.400 to 2.50); of +1.10 the most is CP: +2.10.",
            "Devices of tcpip2, per transaction: doorbells_sent 2.85 to 0.226.",
        ] {
            assert!(why.contains(part), "no {part} in {why}");
        }
        let case = own.1.lines().find(|line| line.contains("rr-200-1000 mtu 1500 x10")).unwrap();
        let cells: Vec<&str> = case.split_whitespace().skip(5).collect();
        assert_eq!(cells[..2], ["against", "0.53"], "{case}");
        assert!(cells[2].starts_with("1.5") && cells.last() == Some(&"12"), "{case}");
        assert!(text.contains("\nDOES NOT HOLD: Throughput is higher at 430"), "{text}");
    }

    #[test]
    fn a_run_of_the_report_has_run_identifiers_and_internal_throughput_rates() {
        let run = like_tables(2);
        let text = shown(&run);
        let first = "Table 1. hipersockets";
        let ids = row(&text, first, "runid");
        assert!(ids.len() == 6 && ids[0].starts_with("420hss1") && ids[5].starts_with("311hssa"), "{ids:?}");
        for (id, trial) in ids.iter().zip(row(&text, first, "trial")) {
            assert_eq!(&id[7..], trial, "{ids:?}");
        }
        let number = |name: &str, at: usize| row(&text, first, name)[at].parse::<f64>().unwrap();
        // CPU time in milliseconds per megabyte, and megabytes per second of CPU time.
        for at in [0, 1] {
            let product = number("cpu_msec/MB", at) * number("itr_MB/CPUsec", at);
            assert!((990.0..1_010.0).contains(&product), "{product}");
        }
        let ratio = number("itr_MB/CPUsec", 2) * number("cpu_msec/MB", 2);
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
        let json: Value =
            serde_json::from_str(&crate::render(&run, crate::Format::Json, crate::Layout::Plain, None).unwrap())
                .unwrap();
        let cell = &json["cells"][0];
        assert_eq!((&cell["runid"], &cell["itr_unit"]), (&"420hss1".into(), &"MB/CPU sec".into()), "{cell:#}");
        let itr = cell["itr"].as_f64().unwrap();
        assert!((itr * cell["cpu"]["total"].as_f64().unwrap() / 1e3 - 1.0).abs() < 1e-9, "{cell:#}");
        assert!(cell["itr_mean"]["low"].as_f64().unwrap() <= cell["itr_mean"]["high"].as_f64().unwrap());
        let compared = json["comparisons"][0]["cells"].as_array().unwrap();
        assert!(compared.iter().any(|one| one["metric"] == "itr" && one["role"] == "derived"), "{compared:#?}");
    }

    #[test]
    fn a_finding_of_the_plan_is_judged_in_every_cell_that_it_is_about() {
        let mut run = like_tables(12);
        let finding = |id: &str, figure, above, below| Finding {
            id: id.to_owned(),
            says: "The newer level is better.".to_owned(),
            figure,
            level: "430".to_owned(),
            base: "420".to_owned(),
            paths: Vec::new(),
            mtus: Vec::new(),
            workloads: vec!["rr-200-1000".to_owned()],
            clients: vec![1, 10],
            above,
            below,
        };
        run.plan.finding = vec![
            finding("more", FindingFigure::Rate, Some(1.0), None),
            finding("hardly-less", FindingFigure::Cpu, Some(0.99), None),
        ];
        for text in [shown(&run), crate::render(&run, crate::Format::Text, crate::Layout::Plain, None).unwrap()] {
            let own = text.split_once("Findings of the plan\n").unwrap().1;
            let words = own.split_whitespace().collect::<Vec<_>>().join(" ");
            // One case for each of five paths and two numbers of pairs.
            assert!(
                words
                    .contains("HOLDS: The newer level is better. more (rate, to be above 1). Judged on 10 of 10 cases"),
                "{own}"
            );
            assert!(words.contains("DOES NOT HOLD: The newer level is better. hardly-less"), "{own}");
            assert!(own.contains("hipersockets-routed-iucv rr-200-1000 mtu 1500 x10: for; ratio 1.26"), "{own}");
        }
        let json: Value =
            serde_json::from_str(&crate::render(&run, crate::Format::Json, crate::Layout::Plain, None).unwrap())
                .unwrap();
        let findings = json["findings"].as_array().unwrap();
        let last = findings.last().unwrap();
        assert_eq!(
            (&last["from"], &last["verdict"], &last["judged_on"]),
            (&"plan".into(), &"does not hold".into(), &"Judged on 10 of 10 cases".into())
        );
        let page = crate::html::html(&[run], &[]).unwrap();
        assert!(page.contains("Findings of the plan") && page.contains("cpu, to be above 0.99"), "no section");
    }

    #[test]
    fn a_finding_of_the_plan_does_not_hold_if_a_planned_cell_was_not_measured() {
        let mut run = like_tables(12);
        run.plan = Plan::parse(
            "paths = [\"hipersockets-routed-iucv\"]\nworkloads = [\"rr-200-1000\"]\nmtus = [1500]\nclients = [1, 10]\n\
            levels = [\"420\", \"430\"]\n[[finding]]\nid = \"more\"\nsays = \"More.\"\nfigure = \"rate\"\nlevel = \"430\"\n\
            base = \"420\"\nabove = 1.0\npaths = [\"hipersockets-routed-iucv\"]\nworkloads = [\"rr-200-1000\"]\n",
            "test",
        )
        .unwrap();
        run.levels = run.plan.matrix().unwrap().levels;
        // The run also has five pairs, which the plan does not have.
        run.trials.retain(|trial| trial.cell.clients != 5);
        let verdict = |run: &Run| {
            let (_, repeat) = repeated(run);
            let own = &repeat.of_plan[0];
            (own.verdict, own.count("for"), own.count("open"))
        };
        assert_eq!(verdict(&run), (FindingVerdict::Holds, 2, 0));
        let of = |trial: &TrialRecord, level: &str| {
            trial.cell.clients == 10 && trial.cell.level == level && trial.cell.workload.to_string() == "rr-200-1000"
        };
        for levels in [&["430"][..], &["420"], &["420", "430"]] {
            let mut part = run.clone();
            part.trials.retain(|trial| !levels.iter().any(|level| of(trial, level)));
            assert_eq!(verdict(&part), (FindingVerdict::CannotTell, 1, 1), "without {levels:?}");
            let text = crate::render(&part, crate::Format::Text, crate::Layout::Plain, None).unwrap();
            assert!(text.contains("this run did not measure both levels"), "{text}");
        }
    }

    #[test]
    fn programs_get_ratios_and_findings_as_they_are() {
        let run = like_tables(12);
        let (reduced, repeat) = repeated(&run);
        let judged = Judged { agreed: reduced.clone(), median: reduced, comparisons: Vec::new() };
        let json: Value = serde_json::from_str(&data::json(&run, &judged, &repeat, None).unwrap()).unwrap();
        let pairs = json["levels"].as_array().unwrap();
        assert_eq!((pairs.len(), &pairs[0]["table"], &pairs[0]["base_level"]), (54, &"1".into(), &"420".into()));
        let rows = pairs[0]["rows"].as_array().unwrap();
        let router = rows.iter().find(|row| row["metric"] == "tcpip2_cpu_msec/MB").unwrap();
        assert_eq!((&router["published_base"], &router["published_ratio"]), (&18.84.into(), &0.29.into()));
        let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() / wanted - 1.0).abs() < 0.01;
        assert!(near(&router["ratio"], 5.46 / 18.84) && near(&router["low"], 5.46 / 18.84), "{router:#}");
        let applications = rows.iter().find(|row| row["metric"] == "applications_cpu_msec/MB").unwrap();
        assert!(applications["published_ratio"].is_null(), "{applications:#}");
        let findings = json["findings"].as_array().unwrap();
        assert_eq!(findings.len(), repeat.judged.len());
        let (own, last) = (&findings[0], &findings[0]["cases"][53]);
        assert_eq!((&own["id"], &own["verdict"]), (&"router-below-everywhere".into(), &"holds".into()));
        assert_eq!((&own["for"], &own["against"], &last["speaks"]), (&54.into(), &0.into(), &"for".into()));
        assert!(last["low"].as_f64() <= last["measured"].as_f64() && last["reason"].is_null(), "{last:#}");
    }
}
