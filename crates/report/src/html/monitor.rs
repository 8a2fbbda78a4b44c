//! Draws the samples that the monitor took during the median trial of each cell: the utilisation of the host over time. A table has the
//! CPU seconds of each process.

use super::ShownRun;
use super::lines::{Across, Point, SERIES_MAX, Series, lines};
use super::page::{Figure, figure};
use super::plot::Scale;
use crate::monitored::{of_cell, users};
use crate::words::number;
use maud::{Markup, html};
use siga_model::text::name;
use siga_results::monitor::Sample;
use siga_results::summary::Summary;

/// The heading of the section.
pub(super) const TITLE: &str = "Utilisation over time";
/// Maximum number of charts. Further cells have none.
const CHARTS_MAX: usize = 24;
/// Maximum number of points of a line. If there are more samples, every n-th is drawn.
const POINTS_MAX: usize = 200;

/// Returns the section; `None` if no run has samples.
pub(super) fn section(shown: &[ShownRun<'_>]) -> Option<Markup> {
    let cells = shown.iter().flat_map(|one| one.judged.median.cells.iter().map(move |summary| (one, summary)));
    let sampled = cells.map(|(one, summary)| (one, summary, of_cell(one.run, summary)));
    let sampled: Vec<_> = sampled.filter(|(.., samples)| !samples.is_empty()).collect();
    if sampled.is_empty() {
        return None;
    }
    let charts: Vec<Figure> =
        sampled.iter().take(CHARTS_MAX).map(|(one, summary, samples)| chart(one, summary, samples)).collect();
    Some(html! {
        p { "The monitor sampled the host during each trial. The charts show the median trial of each cell, and the tables the CPU \
            seconds of its processes." }
        div class="charts" { @for one in &charts { (figure(one)) } }
        @if sampled.len() > CHARTS_MAX { p class="note" { (CHARTS_MAX) " of " (sampled.len()) " cells are shown." } }
    })
}

fn chart(shown: &ShownRun<'_>, summary: &Summary, samples: &[&Sample]) -> Figure {
    let end: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let step = samples.len().div_ceil(POINTS_MAX).max(1);
    let mut time = 0.0;
    let mut drawn: Vec<(f64, [f64; 3])> = Vec::new();
    for (at, sample) in samples.iter().enumerate() {
        time += sample.seconds;
        if at % step == 0 {
            let (emulation, cp) = (sample.host.percent(sample.host.virtual_ms), sample.host.percent(sample.host.cp_ms));
            drawn.push((time, [emulation + cp, emulation, cp]));
        }
    }
    let line = |(at, label): (usize, &str)| Series {
        label: label.to_owned(),
        points: drawn
            .iter()
            .map(|(time, values)| Point {
                x: if end > 0.0 { time / end } else { 0.0 },
                y: values[at],
                interval: None,
                says: format!("second {time:.1}: {label} {:.1}%", values[at]),
            })
            .collect(),
    };
    let series: Vec<Series> = ["total", "emulation", "CP"].into_iter().enumerate().map(line).collect();
    debug_assert!(series.len() <= SERIES_MAX, "each line has a colour of its own");
    let ticks = (0..=4).map(|quarter| (f64::from(quarter) / 4.0, number(end * f64::from(quarter) / 4.0))).collect();
    let across = Across { title: "seconds since the begin of the trial".to_owned(), ticks };
    let title = format!("{}: {}", shown.name, name(&summary.cell.to_string()));
    let most = drawn.iter().map(|(_, values)| values[0]);
    Figure {
        about: "Average utilisation of all processors of the host: emulation is user mode, CP is kernel mode.".into(),
        drawing: lines(&series, &title, &across, Scale::linear(most), "utilisation, % of all processors"),
        head: ["user", "CPU seconds", "virtual"].map(str::to_owned).to_vec(),
        numbers: 1..3,
        rows: users(samples).into_iter().map(Vec::from).collect(),
        left_out: None,
        title,
    }
}
