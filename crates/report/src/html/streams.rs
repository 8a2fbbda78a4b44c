//! Draws what streams show besides the rate of a cell: what became of datagrams, and the rate of each direction. Each cell has a
//! bar.

use super::ShownRun;
use super::bars::{Bar, Fill, bars};
use super::page::{Figure, Section, figure};
use super::tables::legend;
use crate::streams::{
    DIRECTIONS, DIRECTIONS_HEADS, DIRECTIONS_LEGEND, HEADS, LEGEND, TITLE, directions, percent, rows,
};
use crate::words::number;
use maud::html;

/// Returns the sections with a chart of each run: streams of datagrams, and streams in both directions or beside RR. A section
/// without a chart is left out.
pub(super) fn sections(shown: &[ShownRun<'_>]) -> Vec<Section> {
    let kinds = [
        ("datagrams", TITLE, LEGEND, shown.iter().filter_map(chart).collect::<Vec<Figure>>()),
        ("directions", DIRECTIONS, DIRECTIONS_LEGEND, shown.iter().filter_map(both).collect()),
    ];
    let kinds = kinds.into_iter().filter(|(.., figures)| !figures.is_empty());
    let section = |(id, title, legend, figures): (_, _, &str, Vec<Figure>)| {
        let body = html! {
            p { (legend) }
            div class="charts" { @for one in &figures { (figure(one)) } }
        };
        Section::open(id, title, body)
    };
    kinds.map(section).collect()
}

/// Returns a chart with a bar for each cell that streams in both directions, or beside RR.
fn both(shown: &ShownRun<'_>) -> Option<Figure> {
    let reduced = &shown.judged.agreed;
    let drawn = reduced.cells.iter().filter_map(|summary| {
        let beside = summary.median.beside.map(|beside| (0.0, beside.rate()));
        let (to_server, to_client) = summary.median.directions().or(beside)?;
        let (label, server, client) = (summary.cell.to_string(), number(to_server), number(to_client));
        Some(Bar {
            group: String::new(),
            value: format!("{} MB/sec", number(to_server + to_client)),
            parts: vec![(Fill::Client, to_server), (Fill::Server, to_client)],
            says: format!("{label}\nto the server: {server} MB/sec\nto the client: {client} MB/sec"),
            label,
        })
    });
    let drawn: Vec<Bar> = drawn.collect();
    let title = format!("Rates of streams: {}", shown.name);
    (!drawn.is_empty()).then(|| Figure {
        about: "The whole bar is the sum of both directions.".into(),
        drawing: html! {
            (legend(&[(Fill::Client, "from the client to the server"), (Fill::Server, "from the server to the client")]))
            (bars(&drawn, &title, "MB/sec of payload", None))
        },
        head: DIRECTIONS_HEADS.map(str::to_owned).to_vec(),
        numbers: 1..4,
        rows: directions(reduced).into_iter().map(Vec::from).collect(),
        left_out: None,
        title,
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
