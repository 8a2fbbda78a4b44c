//! The picture of the CPU time on the first screen: where the CPU time of one unit of work goes on each side, to one scale, and what
//! the difference in rate is made of.
//!
//! The picture shows one workload with one number of client-server pairs: the row in the middle of the first picture, in order of
//! the ratios of CPU time. So it is neither the most favourable nor the least favourable one.

use super::ShownRun;
use super::bars::{Fill, stretches};
use super::forest::{Ratio, word};
use super::plot::{Scale, micro, percent, px};
use super::sides::{Judged, Network, Side, all, changes, load, names, network};
use super::tables::{named_parts, parts};
use super::verdict::interval;
use crate::table::charged;
use crate::words::{cpu_scale, in_interval, noise_floor, number};
use maud::{Markup, html};
use siga_plan::matrix::Cell;
use siga_plan::workload::Unit;
use siga_results::judge::{Comparison, Metric, Row, Verdict};
use siga_results::summary::{Cpu, Summary};

/// Maximum number of sides in the picture.
const SIDES_MAX: usize = 5;

/// The cell that the picture shows, and how it was selected.
struct Selected<'a> {
    sides: Vec<Side<'a>>,
    /// How the cell was selected; empty if there was nothing to select.
    reason: String,
    /// Number of sides of this workload that the picture has no room for.
    left_out: usize,
}

/// Returns the picture; `None` if no cell has a figure.
pub(super) fn section(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Option<Markup> {
    let selected = select(shown, comparisons)?;
    let sides = &selected.sides;
    let first = sides.first()?;
    let names = names(sides);
    let most = sides.iter().map(|side| charged(&side.summary.cpu).max(side.summary.cpu.total.total));
    let across = Scale::Linear { high: most.filter(|most| most.is_finite()).fold(f64::MIN_POSITIVE, f64::max) };
    let judged: Vec<Option<Judged<'_>>> =
        sides.iter().map(|side| side.judged(comparisons.iter(), first.cell())).collect();
    let common = if names.common.is_empty() { String::new() } else { format!(", {}", names.common) };
    let a_unit = a_unit(first.cell().workload.cpu_unit());
    let whose =
        if first.cell().workload.is_command() { "of all processes of the command" } else { "of the whole host" };
    Some(html! {
        p class="shown" {
            b { (load(first.cell())) (common) } (selected.reason)
            ". CPU time " (whose) " for one " (a_unit) "; shorter is better."
        }
        div class="costs" {
            @for (side, name) in sides.iter().zip(&names.own) { (bar(side, name, first, sides, across)) }
        }
        @if selected.left_out > 0 {
            p class="note" { (selected.left_out) " more sides of this workload are in the charts below." }
        }
        @for (side, judged) in sides.iter().zip(&judged) {
            @if let Some(judged) = judged { (made_of(side, judged, sides, &names.own)) }
        }
        @if let Some(words) = slowest(shown, comparisons) { p class="made-of" { (words) } }
    })
}

/// Returns a sentence on the worst row of the first comparison: the row with the lowest ratio of the rate, if that became worse and the bars show
/// another row.
fn slowest(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Option<String> {
    let comparison = comparisons.iter().find(|one| !one.emulated && !one.rows.is_empty())?;
    let (drawn, _) = shown_row(comparisons)?;
    let worse = comparison.rows.iter().filter(|row| row.metric == Metric::Rate && row.verdict == Verdict::Worse);
    let rate = worse.min_by(|one, other| one.ratio.total_cmp(&other.ratio)).filter(|row| row.new != drawn.new)?;
    let of_same_cells = |row: &&Row| row.base == rate.base && row.new == rate.new;
    let cpu = comparison.rows.iter().filter(of_same_cells).find(|row| row.metric == Metric::TOTAL)?;
    let sides = all(shown);
    let busy_of = |cell: &Cell| sides.iter().find(|side| side.cell() == cell).map(|side| number(busy(side.summary)));
    Some(format!(
        "The row {} has the lowest ratio of the rate: {}x the rate, and {}x the CPU time per {}; {} CPUs are busy instead of {}.",
        load(&rate.new),
        number(rate.ratio),
        number(cpu.ratio),
        a_unit(rate.new.workload.cpu_unit()),
        busy_of(&rate.new)?,
        busy_of(&rate.base)?
    ))
}

fn a_unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Transaction => "transaction",
        Unit::Megabyte => "megabyte of payload",
        Unit::Run => "run",
    }
}

/// Selects the sides to show: those of one pair of compared cells, and all others that are compared with the same base. Without a
/// comparison, these are all sides of the first workload.
fn select<'a>(shown: &'a [ShownRun<'a>], comparisons: &[Comparison]) -> Option<Selected<'a>> {
    let mut sides = all(shown);
    let judged = || comparisons.iter().filter(|comparison| !comparison.emulated);
    let mut reason = String::new();
    match shown_row(comparisons) {
        Some((row, words)) => {
            reason = words;
            let is_compared = |cell: &Cell| {
                let rows = judged().flat_map(|comparison| &comparison.rows);
                rows.filter(|other| other.base == row.base).any(|other| other.new == *cell)
            };
            sides.retain(|side| *side.cell() == row.base || is_compared(side.cell()));
        }
        None => {
            let first = sides.iter().find(|side| is_positive(side.summary))?.cell().clone();
            sides.retain(|side| side.is_beside(first.workload, first.clients));
        }
    }
    sides.retain(|side| is_positive(side.summary));
    let left_out = sides.len().saturating_sub(SIDES_MAX);
    sides.truncate(SIDES_MAX);
    (!sides.is_empty()).then_some(Selected { sides, reason, left_out })
}

fn is_positive(summary: &Summary) -> bool {
    let total = summary.cpu.total.total.max(charged(&summary.cpu));
    total.is_finite() && total > 0.0 && summary.rate.is_finite()
}

/// Returns a row of the pair of cells that the picture shows, and how it was selected, in words: of the first comparison, the pair in
/// the middle by ratio of CPU time. Of an even number of pairs, it is the less favourable of the two in the middle.
pub(super) fn shown_row(comparisons: &[Comparison]) -> Option<(&Row, String)> {
    let comparison = comparisons.iter().find(|one| !one.emulated && !one.rows.is_empty())?;
    let cells = comparison.rows.chunk_by(|one, next| one.base == next.base && one.new == next.new);
    let mut cells: Vec<&[Row]> = cells.collect();
    let never = |row: &&Row| matches!(row.verdict, Verdict::NotComparable { .. });
    let of =
        |rows: &[Row], metric: Metric| rows.iter().find(|row| row.metric == metric && !never(row)).map(|row| row.ratio);
    // A pair without a ratio of CPU time is shown only if there is no other.
    let is_first = |rows: &&[Row]| of(rows, Metric::TOTAL).is_some();
    if cells.iter().any(is_first) {
        cells.retain(is_first);
    }
    let size = |rows: &[Row]| of(rows, Metric::TOTAL).or_else(|| of(rows, Metric::Rate)).unwrap_or(1.0);
    cells.sort_by(|one, other| size(one).total_cmp(&size(other)));
    let middle = cells.get(cells.len() / 2)?;
    let reason = match cells.len() {
        1 => String::new(),
        count if count % 2 == 1 => format!(": the row with the median ratio of CPU time among the {count} rows above"),
        count => {
            format!(
                ": of the two rows with the median ratios of CPU time among the {count} rows above, the less favourable one"
            )
        }
    };
    Some((middle.first()?, reason))
}

/// Returns how many CPUs worked on average: units per second times CPU time per unit.
fn busy(summary: &Summary) -> f64 {
    summary.rate * summary.cpu.total.total / 1_000.0
}

/// Returns the bar of one side with its CPU time per unit, the CPU time of each component, and the rate as text.
fn bar(side: &Side<'_>, name: &str, first: &Side<'_>, sides: &[Side<'_>], across: Scale) -> Markup {
    const HEIGHT: f64 = 30.0;
    let (summary, cpu) = (side.summary, &side.summary.cpu);
    let (scale, unit) = cpu_scale(side.cell().workload.cpu_unit());
    let total = percent(across.at(cpu.total.total));
    let named = parts(cpu).into_iter().zip(named_parts([side.cell()])).filter(|((_, value), _)| *value > 0.0);
    // A residue of less than a hundredth of the total is not visible in the bar.
    let named = named.filter(|((fill, value), _)| *fill != Fill::Residue || *value > cpu.total.total / 100.0);
    let cpus = side.shown.run.environment.cpu.online.map(|count| format!(" of {count}")).unwrap_or_default();
    html! {
        div class="cost" {
            div class="side" {
                @if let Some(network) = network(&side.cell().path).filter(|_| is_path(sides)) { (network.name()) ": " }
                strong { (name) }
                @if let Some(mtu) = side.cell().mtu { span class="mtu" { ", MTU " (number(mtu.into())) } }
                @let about = about(side, first, sides);
                @if !about.is_empty() { " " span class="soft" { (about) } }
            }
            svg class="plot" width="100%" height=(px(HEIGHT)) aria-hidden="true" {
                (stretches(&parts(cpu), across, 3.0, HEIGHT - 6.0))
                line class="total" x1=(total) x2=(total) y1="0" y2=(px(HEIGHT)) {}
            }
            p class="total-of" { b { (number(cpu.total.total * scale)) } " " (micro(unit)) }
            p class="parts" {
                @for ((fill, value), (_, name)) in named {
                    span class="part" { (swatch(fill)) (name) " " (number(value * scale)) } " "
                }
            }
            p class="rate" {
                "rate " b { (number(summary.rate)) } " " (summary.cell.workload.unit().rate_name())
                @if busy(summary).is_finite() { ", with " b { (number(busy(summary))) } (cpus) " CPUs busy" }
            }
        }
    }
}

/// Returns whether the sides differ in their paths.
fn is_path(sides: &[Side<'_>]) -> bool {
    sides.iter().any(|side| side.cell().path != sides[0].cell().path)
}

/// Returns what distinguishes a side, in a few words: its path, or else what its level changes.
fn about(side: &Side<'_>, first: &Side<'_>, sides: &[Side<'_>]) -> String {
    if is_path(sides) || sides.iter().all(|other| other.cell().level == first.cell().level) {
        return side.about();
    }
    match (first.level(), side.level()) {
        (Some(base), Some(own)) if base.name != own.name => {
            let changes = changes(base, own);
            if changes.is_empty() { own.about.clone() } else { format!("as {}, with {changes}", base.name) }
        }
        (_, Some(own)) => own.about.clone(),
        (_, None) => String::new(),
    }
}

/// Returns a small square with the colour and pattern of a part of a bar.
pub(super) fn swatch(fill: Fill) -> Markup {
    html! {
        svg class="swatch" width="13" height="13" aria-hidden="true" {
            rect class=(fill.class()) x="1" y="1" width="11" height="11" {}
        }
    }
}

/// Returns what the difference in rate is made of, the ratio of latency, and the noise floors of these cells.
fn made_of(side: &Side<'_>, judged: &Judged<'_>, sides: &[Side<'_>], names: &[String]) -> Markup {
    let [rate, cpu, p99] = judged.rows;
    let name = |at: Option<usize>| match at {
        Some(at) => match network(&sides[at].cell().path).filter(|_| sides.len() == 2 && is_mixed(sides)) {
            Some(Network::Siga) => "siga".to_owned(),
            Some(Network::Kernel) => "the kernel".to_owned(),
            None => names[at].clone(),
        },
        None => judged.comparison.base.clone(),
    };
    let own = sides.iter().position(|other| std::ptr::eq(other.summary, side.summary));
    let base = sides.iter().position(|other| Some(other.cell()) == judged.base());
    let (new, old) = (name(own), name(base));
    let decided = |row: &&Row| matches!(row.verdict, Verdict::Better | Verdict::Worse);
    let before = base.map(|at| busy(sides[at].summary)).filter(|busy| busy.is_finite());
    let per = a_unit(side.cell().workload.cpu_unit());
    html! {
        p class="made-of" {
            @if let (Some(rate), Some(cpu), Some(before)) = (rate.filter(decided), cpu, before) {
                "The rate with " (new) " is " b { (number(rate.ratio)) " times" } " that with " (old) ": "
                "each " (per) " takes " b { (number(cpu.ratio)) " times" } " the CPU time, and " b { (number(busy(side.summary))) }
                " CPUs are busy instead of " (number(before)) ". "
            }
            @if let Some(base) = base { (moved(&sides[base].summary.cpu, &side.summary.cpu, side.cell())) }
            @if let Some(p99) = p99 {
                "p99 latency (99% of all exchanges take less): " (word(&p99.verdict)) ", " b { (number(p99.ratio)) " times" }
                (in_interval(interval(p99), number)) ". "
            }
        }
        @let floors: Vec<String> = [("rate", rate), ("CPU time", cpu), ("p99 latency", p99)].into_iter()
            .filter_map(|(name, row)| Some(format!("{name} {}", noise_floor(Some(row?.noise_floor?)))))
            .collect();
        @if !floors.is_empty() {
            p class="note" { "Noise floor of this row" @if sides.len() > 2 { " (" (new) ")" } ": " (floors.join(", ")) "." }
        }
    }
}

/// Returns where the CPU time per unit differs between two sides: "Less CPU time: server 2.59, client 1.73 µs/trans; more: router 0.301."
/// Differences below a hundredth of the base's total are left out.
fn moved(base: &Cpu, new: &Cpu, cell: &Cell) -> String {
    let (scale, unit) = cpu_scale(cell.workload.cpu_unit());
    let differences = parts(base)
        .into_iter()
        .zip(parts(new))
        .zip(named_parts([cell]))
        .map(|(((_, old), (_, new)), (_, name))| (new - old, name));
    let mut told: Vec<(f64, &str)> = differences.filter(|(by, _)| by.abs() > base.total.total / 100.0).collect();
    told.sort_by(|one, other| other.0.abs().total_cmp(&one.0.abs()));
    let list = |is: fn(f64) -> bool| {
        let own = told.iter().filter(|(by, _)| is(*by));
        own.map(|(by, name)| format!("{name} {}", number(by.abs() * scale))).collect::<Vec<_>>().join(", ")
    };
    let (less, more) = (list(|by| by < 0.0), list(|by| by > 0.0));
    let unit = micro(unit);
    match (less.is_empty(), more.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("Less CPU time ({unit}): {less}. "),
        (true, false) => format!("More CPU time ({unit}): {more}. "),
        (false, false) => format!("Less CPU time ({unit}): {less}; more: {more}. "),
    }
}

/// Returns whether some sides are the kernel's and others siga's.
fn is_mixed(sides: &[Side<'_>]) -> bool {
    sides.iter().any(|side| network(&side.cell().path) != network(&sides[0].cell().path))
}

/// Returns the ratio of a row as it is drawn.
pub(super) fn ratio(row: &Row) -> Ratio<'_> {
    Ratio {
        value: row.ratio,
        interval: interval(row),
        noise: row.noise_floor.filter(|noise| noise.is_finite()),
        verdict: &row.verdict,
    }
}
