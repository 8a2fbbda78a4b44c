//! The table of a comparison with more than two sides: all cells in one table, with a row for each side.

use super::fit::{self, Column, Field, Line};
use super::overview;
use super::verdicts::pair_name;
use super::words::number;
use siga_results::judge::{Comparison, Metric, Row};

/// The metrics of the table: each with its values and its ratios.
const METRICS: [Metric; 3] = [Metric::Rate, Metric::P99, Metric::TOTAL];

const fn value(head: &str, drop: u8) -> Column<'_> {
    Column { head, right: true, drop, shorten: 0 }
}

const fn ratio(head: &str, drop: u8) -> Column<'_> {
    Column { head, right: false, drop, shorten: 2 }
}

const COLUMNS: [Column<'static>; 7] = [
    Column { head: "", right: false, drop: 0, shorten: 0 },
    value("rate", 0),
    ratio("rate ratio", 0),
    value("p99 us", 3),
    ratio("p99 ratio", 1),
    value("CPU", 0),
    ratio("CPU ratio", 0),
];

/// Returns the table as text with lines of at most `width` characters. All comparisons have the same base.
pub(super) fn table(comparisons: &[Comparison], width: usize) -> String {
    let mut lines = Vec::new();
    let mut bases: Vec<&Row> = Vec::new();
    for row in comparisons.iter().flat_map(|one| &one.rows).filter(|row| row.metric == Metric::Rate) {
        if !bases.iter().any(|base| base.base == row.base) {
            bases.push(row);
        }
    }
    for base in bases {
        let of_base = |comparison: &Comparison| {
            let found = comparison.rows.iter().find(|row| row.base == base.base && row.metric == Metric::Rate);
            found.map(|row| row.new.clone())
        };
        let sides = || comparisons.iter().filter_map(|one| Some((one, of_base(one)?)));
        let Some((first, new)) = sides().next() else { continue };
        let workload = new.workload;
        let name = pair_name(first, &base.base, &base.base);
        lines.push(Line::Heading(format!(
            "{name} ({}, CPU in {})",
            workload.unit().rate_name(),
            workload.cpu_unit().cpu_name()
        )));
        let row = |comparison: &Comparison, new: &siga_plan::matrix::Cell, is_base: bool| {
            let side = if is_base { &comparison.base } else { &comparison.new };
            let mut fields = vec![Field::from(format!("  {side}"))];
            for metric in METRICS {
                let found = comparison.rows.iter().find(|row| row.metric == metric && row.new == *new);
                let pair = found.map(|row| {
                    let value = if is_base { row.values.0 } else { row.values.1 };
                    let ratio = if is_base { "base".into() } else { overview::ratio(row) };
                    [Field::from(number(value * metric.scale(workload))), ratio]
                });
                fields.extend(pair.unwrap_or_else(|| ["-".into(), "-".into()]));
            }
            Line::Row(fields)
        };
        lines.push(row(first, &new, true));
        lines.extend(sides().map(|(comparison, new)| row(comparison, &new, false)));
    }
    let means = comparisons.iter().filter(|one| !one.means.is_empty()).map(|one| {
        let of = |metric: Metric| {
            one.means.iter().find(|mean| mean.metric == metric).map_or(Field::default(), overview::mean)
        };
        let name = format!("  {}, {} cells", one.new, one.means[0].cells);
        let fields = [Field::from(name), Field::default(), of(Metric::Rate)];
        let rest = [Field::default(), Field::default(), Field::default(), of(Metric::TOTAL)];
        Line::Row(fields.into_iter().chain(rest).collect())
    });
    let means: Vec<Line> = means.collect();
    if !means.is_empty() {
        lines.push(Line::Heading("Geometric means of the ratios".into()));
        lines.extend(means);
    }
    fit::table(&COLUMNS, &lines, width)
}

#[cfg(test)]
mod tests {
    use crate::{Format, Screen, verdicts};
    use siga_plan::level::Level;
    use siga_results::{judge, testing};

    #[test]
    fn several_sides_stand_in_one_table_whose_values_and_ratios_agree() {
        let mut run = testing::run("run", Vec::new());
        let levels = [("plain", 1_000), ("reno", 1_500), ("bbr", 500)];
        run.levels = levels.map(|(name, _)| Level { name: name.into(), ..Level::plain() }).into();
        for round in 0..9_u32 {
            for (level, ms) in levels {
                let mut trial = testing::trial("veth", round, 700, None);
                trial.cell.level = level.into();
                trial.elapsed_ns = (ms + u64::from(round * 7 % 5)) * 1_000_000;
                run.trials.push(trial);
            }
        }
        let all: Vec<_> = ["reno", "bbr"].map(|new| judge::levels(&run, "plain", new).unwrap()).into();
        let render = |format| verdicts::render_sides(&all, format, false, &[None, None], &Screen::default()).unwrap();
        let text = render(Format::Text);
        let lines: Vec<&str> = text.lines().take(5).collect();
        assert!(lines[1].starts_with("veth rr-200-1000, 1 pair"), "{text}");
        let rate = |line: &str| line.split_whitespace().nth(1).unwrap().replace(',', "").parse::<f64>().unwrap();
        for (line, side) in lines[2..].iter().zip(["plain", "reno", "bbr"]) {
            assert!(line.starts_with(&format!("  {side}  ")), "{text}");
            let ratio = line.split_whitespace().nth(2).unwrap().trim_end_matches('x');
            let ratio = if side == "plain" { 1.0 } else { ratio.parse().unwrap() };
            assert!((rate(line) / rate(lines[2]) / ratio - 1.0).abs() < 0.01, "{line}");
        }
        let json: serde_json::Value = serde_json::from_str(&render(Format::Json)).unwrap();
        assert_eq!(json["comparisons"].as_array().unwrap().len(), 2);
        let csv = render(Format::Csv);
        assert!(
            csv.lines().nth(1).unwrap().ends_with(",plain,reno") && csv.lines().last().unwrap().ends_with(",plain,bbr")
        );
    }
}
