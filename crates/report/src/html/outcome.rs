//! The first picture of the page: the ratio of the rate and of the CPU time per unit for each workload and number of pairs, with
//! interval and verdict. All ratios have one scale, with a line at 1, where both sides are the same.

use super::costs::ratio;
use super::forest::{self, Ratio, noise_floor, word};
use super::plot::{Scale, percent, tick};
use super::rows::grid;
use super::sides::{Network, is_drawn, load, network};
use super::verdict::interval;
use crate::words::{counted, number};
use maud::{Markup, html};
use siga_plan::matrix::Cell;
use siga_plan::workload::Shape;
use siga_results::judge::{Comparison, Metric, Row, Subject, Verdict};

/// Maximum number of rows that are visible when the page opens. The reader unfolds the others.
const ROWS_MAX: usize = 8;

/// The two figures that the picture shows and that the verdicts at the top count.
pub(super) const COUNTED: [Metric; 2] = [Metric::Rate, Metric::TOTAL];

/// A row of the picture: two cells that are compared.
struct Line<'a> {
    /// The two sides in words. It is a heading above the first row with the same sides.
    sides: String,
    /// The cell of the new side.
    cell: &'a Cell,
    rate: Option<&'a Row>,
    cpu: Option<&'a Row>,
}

/// Returns the picture; `None` if there is nothing to compare.
pub(super) fn section(comparisons: &[Comparison]) -> Option<Markup> {
    let lines: Vec<Line<'_>> = comparisons.iter().filter(|one| !one.emulated).flat_map(lines).collect();
    if lines.is_empty() {
        return None;
    }
    let rows = || lines.iter().flat_map(|line| [line.rate, line.cpu]).flatten();
    let ratios: Vec<Ratio<'_>> = rows().filter(|row| is_comparable(row)).map(ratio).collect();
    let scale = forest::scale(ratios.iter());
    // The longer names of verdicts get a wider column.
    let has_long =
        rows().any(|row| matches!(row.verdict, Verdict::Inconclusive { .. } | Verdict::NotComparable { .. }));
    let (first, more) = lines.split_at(if lines.len() > ROWS_MAX + 1 { ROWS_MAX } else { lines.len() });
    Some(html! {
        div class={ "outcome" @if has_long { " long" } } {
            div class="line tops" aria-hidden="true" {
                span {}
                @for (name, better) in [("rate", "better →"), ("CPU time", "← better")] {
                    span class="figure" {
                        span class="head" { b { (name) } " (" (better) ")" }
                        span class="value" { "ratio" }
                        span class="interval" { "95% interval" }
                        span { "verdict" }
                    }
                }
            }
            (all(first, "", scale))
            (axis(scale))
            @if !more.is_empty() {
                details class="print" {
                    summary { (more.len()) " more rows" }
                    (all(more, &first[first.len() - 1].sides, scale))
                    (axis(scale))
                }
            }
        }
        ul class="legend key" {
            li { "Ratio of the first side to the second, with its 95% interval, on a log scale; better and worse: p < 0.05 after adjustment" }
            (noise_floor())
        }
        p class="note" { (shapes(&lines)) }
        @if let Some(reason) = reason(rows()) { p class="note" { (word(&never())) ": " (reason) "." } }
    })
}

/// Returns the meaning of the names of the rows: one clause for each kind of workload among them, and one for pairs.
fn shapes(lines: &[Line<'_>]) -> String {
    let has = |shape: Shape| lines.iter().any(|line| line.cell.workload.shape() == Some(shape));
    let meaning = |shape: Shape| match shape {
        Shape::Rr => "rr: requests and responses over one connection",
        Shape::Crr => "crr: a new connection for each request",
        Shape::Strg => "strg: a stream from server to client",
        Shape::Strp => "strp: a stream from client to server",
        Shape::Strb => "strb: a stream in each direction",
    };
    let shown = [Shape::Rr, Shape::Crr, Shape::Strg, Shape::Strp, Shape::Strb].into_iter().filter(|shape| has(*shape));
    let mut words: Vec<&str> = shown.map(meaning).collect();
    if !words.is_empty() {
        words.push("pair: one client and its server");
    }
    words.join(" · ")
}

fn never() -> Verdict {
    Verdict::NotComparable { reason: String::new() }
}

/// Returns the rows of a comparison.
fn lines(comparison: &Comparison) -> Vec<Line<'_>> {
    let cells = comparison.rows.chunk_by(|one, next| one.base == next.base && one.new == next.new);
    let all = cells.filter_map(|rows| {
        let of = |metric| rows.iter().find(|row| row.metric == metric);
        let [rate, cpu] = COUNTED.map(of);
        let row = rate.or(cpu)?;
        Some(Line { sides: sides(comparison, row), cell: &row.new, rate, cpu })
    });
    all.collect()
}

/// Returns the sides of a row in words: "siga (hipersockets, MTU 57,344) against the kernel (veth, MTU 1,500)".
fn sides(comparison: &Comparison, row: &Row) -> String {
    let (base, new) = (&row.base, &row.new);
    let mtu = |cell: &Cell| cell.mtu.map(|mtu| format!("MTU {}", number(mtu.into())));
    let level = (new.level != "plain" && new.level == base.level).then(|| format!("level {}", new.level));
    let joined = |words: Vec<Option<String>>| words.into_iter().flatten().collect::<Vec<_>>().join(", ");
    // What both sides have in common.
    let path = match network(&new.path) {
        Some(network) => format!("{} ({})", new.path, network.name()),
        None => new.path.clone(),
    };
    match comparison.subject {
        Subject::Paths => {
            let side = |cell: &Cell| joined(vec![Some(cell.path.clone()), mtu(cell)]);
            let named = |cell: &Cell| match network(&cell.path) {
                Some(Network::Siga) => format!("siga ({})", side(cell)),
                Some(Network::Kernel) => format!("the kernel ({})", side(cell)),
                None => side(cell),
            };
            let mtus = (base.mtu != new.mtu).then(|| "different MTUs".to_owned());
            joined(vec![Some(format!("{} against {}", named(new), named(base))), mtus, level])
        }
        Subject::Levels => {
            let (base, new) = (&comparison.base, &comparison.new);
            joined(vec![Some(format!("Level {new} against {base}: {path}")), mtu(&row.new)])
        }
        Subject::Mtus => {
            let size = |cell: &Cell| mtu(cell).unwrap_or_else(|| "MTU of the path".to_owned());
            joined(vec![Some(format!("{} against {}: {path}", size(new), size(base))), level])
        }
        Subject::Runs => {
            let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
            let (base, new) = (last(&comparison.base), last(&comparison.new));
            joined(vec![Some(format!("{new} against {base}: {path}")), mtu(&row.new), level])
        }
    }
}

fn is_comparable(row: &Row) -> bool {
    is_drawn(row) && !matches!(row.verdict, Verdict::NotComparable { .. })
}

fn all(lines: &[Line<'_>], before: &str, scale: Scale) -> Markup {
    html! {
        @for (at, line) in lines.iter().enumerate() {
            @let above = if at == 0 { before } else { lines[at - 1].sides.as_str() };
            @if line.sides != above { p class="sides-of" { (line.sides) } }
            div class="line" {
                span class="load" { (load(line.cell)) }
                (figure("rate", line.rate, scale))
                (figure("CPU time", line.cpu, scale))
            }
        }
    }
}

/// Returns a ratio with its interval and its verdict.
fn figure(name: &str, row: Option<&Row>, scale: Scale) -> Markup {
    const HEIGHT: f64 = 20.0;
    let drawn = row.filter(|row| is_comparable(row));
    html! {
        span class="figure" {
            span class="what" { (name) }
            svg class="plot" width="100%" height="20" aria-hidden="true" {
                (grid(scale, HEIGHT))
                @match drawn {
                    Some(row) => (forest::plot(&ratio(row), scale, HEIGHT)),
                    None => (forest::same(scale, HEIGHT)),
                }
            }
            span class="value" { @if let Some(row) = drawn { b { (number(row.ratio)) } "x" } }
            span class="interval" {
                @match drawn.map(interval) {
                    Some(Some((low, high))) => { (number(low)) " to " (number(high)) }
                    Some(None) => "no interval",
                    None => "",
                }
            }
            @match row { Some(row) => (word(&row.verdict)), None => span class="word" { "not measured" } }
        }
    }
}

/// Draws the axis below the rows. The tick at 1 also has the word "same".
fn axis(scale: Scale) -> Markup {
    let ticks = scale.spaced_ticks();
    let one = || {
        html! {
            svg class="across" width="100%" height="30" {
                @for value in &ticks {
                    text class="tick" x=(percent(scale.at(*value))) y="12" text-anchor="middle" { (tick(*value)) }
                }
                text class="axis" x=(percent(scale.at(1.0))) y="26" text-anchor="middle" { "same" }
            }
        }
    };
    html! {
        div class="line axis-of" aria-hidden="true" {
            span {}
            @for _ in COUNTED { span class="figure" { span class="what" {} (one()) } }
        }
    }
}

/// Returns why figures are not comparable: the reason of the first one, and the number of the others.
fn reason<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let reason = |row: &'a Row| match &row.verdict {
        Verdict::NotComparable { reason } => Some((row, reason)),
        Verdict::Better | Verdict::Worse | Verdict::Equivalent | Verdict::Inconclusive { .. } => None,
    };
    let all: Vec<(&Row, &String)> = rows.filter_map(reason).collect();
    let (row, reason) = all.first()?;
    let mtu = row.new.mtu.map(|mtu| format!(", MTU {}", number(mtu.into()))).unwrap_or_default();
    let others = match all.len() - 1 {
        0 => String::new(),
        more => format!(". The tables have the reasons for {}", counted(more, "more figure")),
    };
    Some(format!("in {}, {}{mtu}, {reason}{others}", load(&row.new), row.new.path))
}

/// Returns for rate and CPU time how many rows have each verdict, in colour and in words.
pub(super) fn verdicts(comparisons: &[Comparison]) -> Markup {
    let rows = |metric: Metric| {
        let judged = comparisons.iter().filter(|one| !one.emulated);
        judged.flat_map(|one| &one.rows).filter(move |row| row.metric == metric)
    };
    let kinds = [Verdict::Better, Verdict::Worse, Verdict::Equivalent, Verdict::Inconclusive { trials: None }, never()];
    let counts = |metric: Metric| {
        let of = |kind: &Verdict| rows(metric).filter(|row| row.verdict.name() == kind.name()).count();
        kinds.iter().map(move |kind| (kind, of(kind))).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    let named = COUNTED.into_iter().zip(["rate", "CPU time per unit"]);
    let shown: Vec<_> = named.map(|(metric, name)| (name, rows(metric).count(), counts(metric))).collect();
    html! {
        @if shown.iter().any(|(_, all, _)| *all > 0) {
            p class="verdicts" {
                @for (name, all, counts) in shown.iter().filter(|(_, all, _)| *all > 0) {
                    span class="badge" {
                        (name) ":"
                        @for (kind, count) in counts { " " (word(kind)) " in " b { (count) } " of " (all) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_ticks_have_room_and_one_of_them_is_at_1() {
        for (low, high) in [(0.96, 1.04), (0.15, 8.0), (0.9, 40.0), (0.001, 2.0), (0.5, 1.1)] {
            let scale = Scale::Log { low, high };
            let ticks = scale.spaced_ticks();
            assert_eq!(ticks[0], 1.0);
            assert!(ticks.len() >= 2, "{low} to {high}: {ticks:?}");
            for (at, one) in ticks.iter().enumerate() {
                for other in &ticks[..at] {
                    assert!((scale.at(*one) - scale.at(*other)).abs() > 0.16, "{low} to {high}: {ticks:?}");
                }
            }
        }
    }
}
