//! Writes a report as one HTML file. A reader first sees the answer, where the CPU time goes, how sure that is and what disturbed the
//! measurement. Then comes a chart for each workload. Further charts, tables, environment and the data for download are folded.
//!
//! The file needs no network and is readable on a phone, on paper, and in light and dark mode. Charts are SVG, and each chart has
//! a table of its figures. Texts from a run (names, settings, errors) are treated as hostile, because an attacker may have
//! written the run. The caller chooses which comparisons are shown, and writes the file.

mod answer;
mod answers;
mod bars;
mod beside;
mod connections;
mod costs;
mod diagram;
mod disturbance;
mod environment;
mod figures;
mod forest;
mod lines;
mod monitor;
mod offered;
mod outcome;
mod page;
mod plot;
mod published;
mod replication;
mod rows;
mod sides;
mod streams;
mod tables;
mod terms;
#[cfg(test)]
mod tests;
mod verdict;
mod workloads;

use super::connections::{self as matrix_2009, Connections};
use super::{Format, data, verdicts};
use crate::zvm::repeat::Repeat;
use maud::html;
use page::{Download, Section, Top, page};
use siga_model::error::{Error, Result};
use siga_results::judge::{Comparison, Figures, Judged};
use siga_results::store::Run;

/// A run with the figures that the page shows.
#[derive(Debug)]
struct ShownRun<'a> {
    /// The name of the run: the last component of the run's directory, or the complete path if two runs share the last component.
    name: String,
    run: &'a Run,
    /// The figures of the cells, and all comparisons within the run.
    judged: Judged,
    repeat: Repeat,
    /// The matrix of 2009, if the run has measured it.
    connections: Option<Connections>,
}

/// Maximum size in bytes of the raw trials of one run in the page. If they are larger, the page does not contain them.
const TRIALS_BYTES_MAX: usize = 8_000_000;

/// Returns the HTML report of runs and comparisons.
///
/// # Errors
/// Returns an error of kind `Incomplete` if a run has no trial, and an error of kind `Environment` if a run's record is damaged.
pub fn html(runs: &[Run], comparisons: &[Comparison]) -> Result<String> {
    let mut shown = Vec::new();
    for run in runs {
        if run.trials.is_empty() {
            return Err(Error::incomplete(format!("the run {} has no trial to report", run.directory.display()))
                .hint("continue its measurement with `siga run --resume DIR`"));
        }
        let judged = Judged::of(run, None)?;
        let repeat = Repeat::of(run, &judged.median, None)?;
        let connections = matrix_2009::of(run, &judged.median, &Figures::new(run, None))?;
        shown.push(ShownRun { name: name(run, runs), run, repeat, judged, connections });
    }
    let names: Vec<_> = shown.iter().map(|shown| shown.name.as_str()).collect();
    let emulated = runs.iter().any(|run| run.environment.is_emulated());
    let mark = if emulated { " of an emulated machine" } else { "" };
    let title = format!("siga report{mark}: {}", names.join(", "));
    // A chart of ratios is a comparison, and figures of an emulated machine are not compared.
    let charted: Vec<&Comparison> = comparisons.iter().filter(|comparison| !comparison.emulated).collect();
    let (top, first) = (top(title, &shown, comparisons)?, first(&shown, comparisons));
    let above = first.len();
    let mut sections = first;
    sections.extend(verdict::worth(comparisons));
    sections.push(Section::open("charts", "Workload by workload", workloads::section(&shown, comparisons)));
    sections.extend(connections::sections(&shown));
    sections.extend(streams::sections(&shown));
    sections.extend(offered::section(&shown));
    sections.push(Section::folded("verdict", "Verdicts in words", verdict::section(&shown, comparisons)));
    sections.extend(answers::section(&shown).map(|body| Section::folded("findings", answers::TITLE, body)));
    sections.extend(beside::section(&shown).map(|body| Section::folded("beside", beside::TITLE, body)));
    sections.extend(monitor::section(&shown).map(|body| Section::folded("monitor", monitor::TITLE, body)));
    sections.extend(answers::of_plans(&shown).map(|body| Section::open("plan-findings", "Findings of the plan", body)));
    sections.extend(figures::folds(&shown, &charted)?);
    sections.push(Section::folded("tables", "Tables", tables::section(&shown, comparisons)));
    sections.push(Section::folded(
        "environment",
        "Environment and settings",
        environment::section(&shown, comparisons),
    ));
    Ok(page(&top, &sections, above, &downloads(&shown, comparisons)?))
}

/// Returns the top of the page: the question, the answer, the verdicts by number, the verdict on the host, and the banners.
fn top(title: String, shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Result<Top> {
    let sentences = answer::sentences(shown, comparisons)?;
    let replicated = replication::heading(shown);
    let question = match &replicated {
        Some(_) => "Do the findings of z/VM's report on TCP/IP levels 420 and 430 hold here?".to_owned(),
        None => answer::question(shown).unwrap_or_else(|| title.clone()),
    };
    let others = |from: usize| html! { @for sentence in sentences.iter().skip(from) { p class="lead" { (sentence) } } };
    let lead = html! {
        @match (&replicated, shown.first()) {
            (Some(_), Some(one)) => (replication::lead(one, comparisons, &sentences)),
            _ => (others(1)),
        }
        (outcome::verdicts(comparisons))
        (answer::fairness(shown))
        (disturbance::host(shown))
        (verdict::lead(shown))
    };
    let answer = replicated.or_else(|| sentences.first().cloned()).unwrap_or_default();
    Ok(Top { title, question, answer, lead })
}

/// Returns the sections that a reader sees first: the ratios, where the CPU time goes, and what disturbed the measurement.
fn first(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Vec<Section> {
    let ratios = outcome::section(comparisons);
    let ratios = ratios.map(|body| Section::open("outcome", "Ratios of rate and CPU time", body));
    let costs = costs::section(shown, comparisons);
    let costs = costs.map(|body| Section::open("costs", "Where the CPU time goes", body));
    let quiet = Section::open(
        "quiet",
        "What disturbed the measurement",
        html! { (disturbance::section(shown, comparisons)) (answer::conditions(shown)) (terms::fold()) },
    );
    ratios.into_iter().chain(costs).chain([quiet]).collect()
}

/// Returns the HTML report of the tables that z/VM's reports published. It also draws the six figures of which the published page
/// has only the titles.
///
/// # Errors
/// Returns an error of kind `Incomplete` if the published data are inconsistent. The data are part of the program and are tested,
/// so users never see this error.
pub fn published() -> Result<String> {
    published::page()
}

fn name(run: &Run, all: &[Run]) -> String {
    let last = |run: &Run| run.directory.file_name().map(|name| name.to_string_lossy().into_owned());
    let same = all.iter().filter(|other| last(other) == last(run)).count();
    match last(run) {
        Some(name) if same == 1 => name,
        Some(_) | None => run.directory.display().to_string(),
    }
}

fn downloads(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Result<Vec<Download>> {
    let mut all = Vec::new();
    for ShownRun { name, run, judged, repeat, connections } in shown {
        let mut add = |kind: &str, media, about: &str, text| {
            let about = if shown.len() > 1 { format!("{about} of {name}") } else { about.to_owned() };
            let name = name.replace('/', "-");
            all.push(Download { name: format!("{name}-{kind}"), about, media, text });
        };
        add("cells.csv", "text/csv", "one line a cell, full precision", data::csv(run, &judged.agreed)?);
        add(
            "run.json",
            "application/json",
            "environment, cells and router overhead",
            data::json(run, judged, repeat, connections.as_ref())?,
        );
        let mut lines = String::new();
        for trial in &run.trials {
            // Call chains are several times as long as all other counters of a trial.
            let mut trial = trial.clone();
            trial.cpu.chains = None;
            lines.push_str(&serde_json::to_string(&trial).map_err(|error| Error::environment(error.to_string()))?);
            lines.push('\n');
        }
        if lines.len() <= TRIALS_BYTES_MAX {
            add(
                "trials.jsonl",
                "application/jsonl",
                "raw counters and histograms without call chains, one line a trial",
                lines,
            );
        }
    }
    for comparison in comparisons {
        all.push(Download {
            name: format!("{}-against-{}.csv", comparison.new, comparison.base),
            about: format!("{} against {}, full precision", comparison.new, comparison.base),
            media: "text/csv",
            text: verdicts::render(comparison, Format::Csv, true, None)?,
        });
    }
    Ok(all)
}
