//! The section on the verdict: the comparisons in words. This module also makes the tables of comparisons for the section on
//! tables.

use super::ShownRun;
use super::page::{Section, heads, table};
use super::plot::micro;
use crate::answer;
use crate::verdicts::{EXPLORATORY, ITR, cell_name, how, mark, pair_name, probability, ratio, sentences, summary};
use crate::why::{self, Explained};
use crate::words::{capital, headline, in_interval, noise_floor, number, ratio_text};
use crate::worth;
use maud::{Markup, html};
use siga_model::text;
use siga_plan::work::Work;
use siga_results::environment::EMULATED_FIGURES;
use siga_results::judge::why::Why;
use siga_results::judge::{Answers, Comparison, Metric, Mode, Part, Row, Subject, Verdict, with_itr};
use siga_results::store::Run;

/// Returns the banners at the top of the page. They name the runs on emulated machines, the smoke runs, which only show that
/// everything works, and the runs that have not ended.
pub(super) fn lead(shown: &[ShownRun<'_>]) -> Markup {
    let names = |is: fn(&Run) -> bool| -> Vec<&str> {
        shown.iter().filter(|one| is(one.run)).map(|one| one.name.as_str()).collect()
    };
    let (emulated, smoke) = (names(|run| run.environment.is_emulated()), names(|run| run.plan.smoke));
    html! {
        @if !emulated.is_empty() {
            div class="banner" {
                strong { "Emulated machine" } ": " (emulated.join(", ")) ": " (EMULATED_FIGURES) ". There is no verdict."
            }
        }
        @if !smoke.is_empty() {
            div class="banner" {
                strong { "Smoke run" } ": " (smoke.join(", "))
                " only checks that everything works. Its trials are too short for reliable figures, so there is no verdict."
            }
        }
        @for one in shown {
            @if let Some(reason) = one.judged.agreed.disturbance.no_verdict() {
                div class="banner" { strong { "No verdict" } ": " @if shown.len() > 1 { (one.name) ": " } (reason) "." }
            }
        }
        @for one in shown {
            @if let Some(words) = unfinished(one) { div class="banner" { strong { "Unfinished" } ": " (words) } }
        }
    }
}

/// Returns a sentence that says how much of its plan a run has measured so far; `None` if the run has ended.
fn unfinished(shown: &ShownRun<'_>) -> Option<String> {
    let run = shown.run;
    let planned = run.plan.matrix_with(&run.levels).map(|matrix| matrix.cells.len()).unwrap_or_default();
    (!run.ended).then(|| {
        format!(
            "{} is still running, or was interrupted. It has {} trials of {} of {planned} cells so far. `siga run --resume` \
             continues an interrupted run.",
            shown.name,
            run.trials.len(),
            run.cells().len()
        )
    })
}

/// Returns the section: the most important sentences about each run, and a summary of each comparison.
pub(super) fn section(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Markup {
    html! {
        @for one in shown {
            @let sentences = of_run(one);
            @if !sentences.is_empty() {
                @if shown.len() > 1 { h3 { (one.name) } }
                @for sentence in sentences.lines() {
                    // The indented lines begin with names of workloads, which keep their case.
                    p class=[sentence.starts_with(' ').then_some("indented")] { @if sentence.starts_with(' ') { (sentence.trim()) } @else { (capital(sentence)) } }
                }
            }
        }
        @if comparisons.is_empty() && shown.iter().all(|one| of_run(one).is_empty()) {
            p { "There is nothing to compare, because there is only one path, one level and one run." }
        }
        @for comparison in comparisons { (words(comparison)) }
    }
}

/// Returns the section with the effect of each driver feature; `None` if no level was compared with its variant.
pub(super) fn worth(comparisons: &[Comparison]) -> Option<Section> {
    let worth = worth::of(comparisons)?;
    let body = html! { (table(&worth.heads, &worth.rows, 0..0)) p class="note" { (worth::LEGEND) } };
    Some(Section::open("worth", worth::TITLE, body))
}

fn of_run(shown: &ShownRun<'_>) -> String {
    // Damaged histograms were found when the run was reduced.
    let answer = answer::of(shown.run, &shown.judged).unwrap_or_default();
    let told = headline(&shown.judged.agreed, &Answers::of(shown.run, &shown.judged.agreed, &shown.judged.comparisons));
    if answer::has_overheads(&answer) {
        return micro(&answer);
    }
    micro(format!("{answer}\n{told}").trim_matches('\n'))
}

/// Maximum number of sentences of a comparison that are visible before the reader unfolds the rest. Also the maximum number of rows
/// that are listed for the same verdict.
const TELLING_MAX: usize = 6;

/// Returns the summary of one comparison.
fn words(comparison: &Comparison) -> Markup {
    let undecided = |row: &Row| matches!(row.verdict, Verdict::Inconclusive { .. } | Verdict::NotComparable { .. });
    let sentences = if comparison.rows.iter().all(undecided) { Vec::new() } else { sentences(comparison) };
    let (first, rest) = sentences.split_at(sentences.len().min(TELLING_MAX));
    html! {
        h3 { (comparison.new) " against " (comparison.base) }
        p { (sentence(comparison)) }
        p { (summary(comparison)) "." }
        @if !first.is_empty() { ul { @for sentence in first { li { (sentence) } } } }
        @if !rest.is_empty() {
            details { summary { (rest.len()) " more" } ul { @for sentence in rest { li { (sentence) } } } }
        }
        @for (verdict, title) in [(Verdict::Worse, "Worse by most"), (Verdict::Better, "Better by most")] {
            @let rows = telling(comparison, &verdict);
            @if !rows.is_empty() {
                p class="verdict" { (title) }
                ul { @for row in rows { li { (row_words(comparison, row)) } } }
            }
        }
        @if let Some(reason) = comparison.rows.iter().find_map(not_comparable) {
            p { "Not comparable: " (reason) "." }
        }
        @for caution in &comparison.cautions { p { strong { "Caution" } ": " (caution) "." } }
        p class="soft" { (how(comparison.form)) ". A ratio is new over base." }
    }
}

/// Returns what the verdicts of a comparison say as a whole, the main figures first.
fn sentence(comparison: &Comparison) -> String {
    let Comparison { base, new, .. } = comparison;
    let of = |is_main: bool| -> Vec<&str> {
        let rows = comparison.rows.iter().filter(|row| row.metric.is_main() == is_main);
        rows.map(|row| row.verdict.name()).collect()
    };
    let (main, exploratory) = (of(true), of(false));
    let all = |name: &str| !comparison.rows.is_empty() && comparison.rows.iter().all(|row| row.verdict.name() == name);
    let open = main.iter().filter(|name| **name == "inconclusive").count();
    let rest = if open > 0 {
        format!("for {open} of {} main figures, this run cannot tell", main.len())
    } else {
        String::new()
    };
    let and = |word: &str| if rest.is_empty() { ".".to_owned() } else { format!("{word}{rest}.") };
    let found = match (main.contains(&"better"), main.contains(&"worse")) {
        _ if comparison.rows.is_empty() => return format!("siga measured no figure for both {new} and {base}."),
        (true, true) => format!("{new} is better than {base} in some main figures and worse in others{}", and("; ")),
        (true, false) => format!("{new} is better than {base} in some main figures and worse in none{}", and("; ")),
        (false, true) => format!("{new} is worse than {base} in some main figures and better in none{}", and("; ")),
        (false, false) if all("equivalent") => format!("{new} and {base} are equivalent within 2%."),
        (false, false) if all("not comparable") => format!("{new} cannot be compared with {base}."),
        (false, false) if open == 0 => format!("The main figures of {new} and {base} are equivalent within 2%."),
        (false, false) => format!("No main figure of {new} clearly differs from {base}{}", and("; ")),
    };
    let differing = exploratory.iter().filter(|name| matches!(**name, "better" | "worse")).count();
    match differing {
        0 => found,
        1 => format!("{found} One exploratory figure differs."),
        _ => format!("{found} {differing} exploratory figures differ."),
    }
}

/// Returns the most important rows with this verdict, at most [`TELLING_MAX`]. The main figures come before the
/// exploratory ones. Within both groups, the largest differences come first.
fn telling<'a>(comparison: &'a Comparison, verdict: &Verdict) -> Vec<&'a Row> {
    let mut rows: Vec<_> = comparison.rows.iter().filter(|row| row.verdict == *verdict).collect();
    rows.sort_by(|left, right| {
        right
            .metric
            .is_main()
            .cmp(&left.metric.is_main())
            .then(right.ratio.ln().abs().total_cmp(&left.ratio.ln().abs()))
    });
    rows.truncate(TELLING_MAX);
    rows
}

fn row_words(comparison: &Comparison, row: &Row) -> String {
    let interval = in_interval(interval(row), ratio_text);
    let mark = if row.metric.is_main() { "" } else { " (exploratory)" };
    let (metric, cell) = (metric(&row.metric), cell_name(comparison, row));
    format!("{metric}{mark} of {cell}: {} times the base{interval}", ratio_text(row.ratio))
}

fn not_comparable(row: &Row) -> Option<&str> {
    match &row.verdict {
        Verdict::NotComparable { reason } => Some(reason),
        Verdict::Equivalent | Verdict::Better | Verdict::Worse | Verdict::Inconclusive { .. } => None,
    }
}

/// Maximum number of rows of a table that is visible when the page opens. The reader has to unfold a longer table.
const OPEN_ROWS_MAX: usize = 60;

/// Returns every row of a comparison as a table, and the functions behind its differences in CPU time.
pub(super) fn table_of(comparison: &Comparison, explained: Option<&Explained>) -> Markup {
    let head = heads(&[
        "what",
        "figure",
        "base",
        "new",
        "unit",
        "ratio",
        "95% interval",
        "p, adjusted",
        "noise floor",
        "trials",
        "verdict",
    ]);
    let rows: Vec<_> = with_itr(&comparison.rows).iter().map(|row| cells(comparison, row)).collect();
    html! {
        h3 { "Comparison: " (comparison.new) " against " (comparison.base) }
        @if rows.len() > OPEN_ROWS_MAX {
            details { summary { "All " (rows.len()) " figures" } (table(&head, &rows, 2..10)) }
        } @else if !rows.is_empty() {
            (table(&head, &rows, 2..10))
        }
        @if comparison.rows.iter().any(|row| row.metric == Metric::TOTAL) { p class="note" { (ITR) } }
        @if comparison.rows.iter().any(|row| !row.metric.is_main()) { p class="note" { (EXPLORATORY) } }
        @if let Some((all, _)) = explained {
            @for explained in all { (functions(comparison, explained)) }
        }
        @if !comparison.skipped.is_empty() {
            details {
                summary { (comparison.skipped.len()) " cells that siga could not compare" }
                ul { @for (cell, reason) in &comparison.skipped { li { (cell) ": " (reason) } } }
            }
        }
    }
}

/// Returns the fold with the functions that account for a difference in CPU time.
fn functions(comparison: &Comparison, explained: &Why) -> Markup {
    let rows: Vec<Vec<String>> = why::rows(explained, text::name).into_iter().map(Vec::from).collect();
    html! {
        details {
            summary { "Why: " (pair_name(comparison, &explained.base, &explained.new)) }
            p { (why::sentence(explained)) }
            (table(&heads(&why::HEAD), &rows, 2..7))
            p class="note" { (why::quality(explained)) }
        }
    }
}

fn cells(comparison: &Comparison, row: &Row) -> Vec<String> {
    let (scale, unit) = scaled(row.metric, row.base.workload);
    let verdict = match &row.verdict {
        Verdict::Inconclusive { trials: Some(trials) } => format!("inconclusive; {trials} trials would be needed"),
        Verdict::NotComparable { reason } => format!("not comparable: {reason}"),
        Verdict::Better | Verdict::Worse | Verdict::Equivalent | Verdict::Inconclusive { trials: None } => {
            row.verdict.name().to_owned()
        }
    };
    let trials = if row.trials.0 == row.trials.1 {
        row.trials.0.to_string()
    } else {
        format!("{} and {}", row.trials.0, row.trials.1)
    };
    vec![
        cell_name(comparison, row),
        format!("{}{}", metric(&row.metric), mark(row, false)),
        number(row.values.0 * scale),
        number(row.values.1 * scale),
        unit,
        ratio(comparison, row),
        interval(row).map_or("-".into(), |(low, high)| format!("{low:.3} to {high:.3}")),
        row.p_adjusted.map_or("-".into(), probability),
        noise_floor(row.noise_floor),
        trials,
        verdict,
    ]
}

/// Returns the interval of the ratio; `None` if the row has no interval.
pub(super) fn interval(row: &Row) -> Option<(f64, f64)> {
    row.low.zip(row.high)
}

/// Returns a short label with the settings that both cells of a row have in common. If their MTUs differ, the label has both MTUs.
/// Charts also show the name of the comparison.
pub(super) fn what(comparison: &Comparison, row: &Row) -> String {
    let (base, new) = (&row.base, &row.new);
    let mut words = Vec::new();
    if comparison.subject != Subject::Paths {
        words.push(new.path.clone());
    }
    words.push(new.workload.to_string());
    let mtus = comparison.rows.iter().any(|other| other.new.path == new.path && other.new.mtu != new.mtu);
    match (base.mtu, new.mtu) {
        (Some(own), Some(other)) if own != other => words.push(format!("mtu {own}→{other}")),
        (_, Some(mtu)) if mtus => words.push(format!("mtu {mtu}")),
        (_, Some(_) | None) => {}
    }
    words.push(format!("x{}", new.clients));
    if comparison.subject != Subject::Levels && new.level != "plain" {
        words.push(new.level.clone());
    }
    words.join(" ")
}

/// Returns the name of a metric in words.
pub(super) fn metric(metric: &Metric) -> &str {
    match metric {
        Metric::Figure(key) => key.name.as_str(),
        Metric::Rate => "rate",
        Metric::P50 => "median latency",
        Metric::P99 => "99th percentile",
        Metric::Streams => "streams beside",
        Metric::ToServer => "rate to the server",
        Metric::ToClient => "rate to the client",
        Metric::Sent => "sent",
        Metric::Loss => "loss",
        Metric::Jitter => "jitter",
        Metric::Itr => "ITR",
        Metric::Cpu(part, mode) => match (part, mode) {
            (Part::Total, Mode::All) => "CPU",
            (Part::Total, Mode::Virtual) => "virtual CPU",
            (Part::Total, Mode::Cp) => "CP CPU",
            (Part::Client, Mode::All) => "client CPU",
            (Part::Client, Mode::Virtual) => "client virtual CPU",
            (Part::Client, Mode::Cp) => "client CP CPU",
            (Part::Router, Mode::All) => "router CPU",
            (Part::Router, Mode::Virtual) => "router virtual CPU",
            (Part::Router, Mode::Cp) => "router CP CPU",
            (Part::Server, Mode::All) => "server CPU",
            (Part::Server, Mode::Virtual) => "server virtual CPU",
            (Part::Server, Mode::Cp) => "server CP CPU",
            (Part::Other, Mode::All) => "other CPU",
            (Part::Other, Mode::Virtual) => "other virtual CPU",
            (Part::Other, Mode::Cp) => "other CP CPU",
        },
    }
}

/// Returns the factor by which a value of the metric is multiplied before it is shown, and the unit of the product.
fn scaled(metric: Metric, workload: Work) -> (f64, String) {
    let name = metric.unit(workload);
    (metric.scale(workload), if name == "us" { "µs".to_owned() } else { micro(name) })
}

/// Returns the values of both sides as text, the new side first: "12.3 against 15.6 us/trans".
pub(super) fn values(row: &Row) -> String {
    let (scale, unit) = scaled(row.metric, row.base.workload);
    format!("{} against {} {unit}", number(row.values.1 * scale), number(row.values.0 * scale))
}
