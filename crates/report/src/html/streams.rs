//! Draws what became of the datagrams of streams: one bar for each cell, divided into what was delivered and what was lost.

use super::ShownRun;
use super::bars::{Bar, Fill, bars};
use super::page::{Figure, Section, figure};
use super::tables::legend;
use crate::streams::{HEADS, LEGEND, TITLE, percent, rows};
use crate::words::number;
use maud::html;

/// Returns the section with a chart of each run; `None` if no run has a stream of datagrams.
pub(super) fn section(shown: &[ShownRun<'_>]) -> Option<Section> {
    let figures: Vec<Figure> = shown.iter().filter_map(chart).collect();
    (!figures.is_empty()).then(|| {
        let body = html! {
            p { (LEGEND) }
            div class="charts" { @for one in &figures { (figure(one)) } }
        };
        Section::open("datagrams", TITLE, body)
    })
}

fn chart(shown: &ShownRun<'_>) -> Option<Figure> {
    let reduced = &shown.judged.agreed;
    let streams = reduced.cells.iter().filter_map(|summary| Some((summary, summary.median.datagrams()?)));
    let drawn = streams.map(|(summary, seen)| {
        let lost = (seen.send_rate - summary.rate).max(0.0);
        let (label, loss) = (summary.cell.to_string(), percent(seen.loss()));
        let (sent, delivered) = (number(seen.send_rate), number(summary.rate));
        Bar {
            group: String::new(),
            value: format!("{delivered} MB/sec, {loss} lost"),
            parts: vec![(Fill::Neither, summary.rate), (Fill::Worse, lost)],
            says: format!("{label}\nsent: {sent} MB/sec\ndelivered: {delivered} MB/sec\nlost: {loss} of the datagrams"),
            label,
        }
    });
    let drawn: Vec<Bar> = drawn.collect();
    let title = format!("Delivered and lost: {}", shown.name);
    (!drawn.is_empty()).then(|| Figure {
        about: "The whole bar is what the server sent.".into(),
        drawing: html! {
            (legend(&[(Fill::Neither, "delivered"), (Fill::Worse, "lost")]))
            (bars(&drawn, &title, "MB/sec of payload", None))
        },
        head: HEADS.map(str::to_owned).to_vec(),
        numbers: 1..7,
        rows: rows(reduced).into_iter().map(Vec::from).collect(),
        left_out: None,
        title,
    })
}
