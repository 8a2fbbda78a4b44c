//! Draws latency against load: one chart for each cell to which the plan offered loads.

use super::ShownRun;
use super::lines::{Across, Point, Series, lines};
use super::page::{Figure, Section, figure};
use super::plot::Scale;
use crate::offered::{LEGEND, TITLE};
use crate::words::number;
use maud::html;
use siga_results::histogram::Percentiles;
use siga_results::summary::{OfferedLoad, Summary};

/// A percentile of the chart: its name and its value.
type Percentile = (&'static str, fn(&Percentiles) -> Option<f64>);

const PERCENTILES: [Percentile; 3] =
    [("p50", |latency| latency.p50), ("p99", |latency| latency.p99), ("p99.9", |latency| latency.p999)];

/// Maximum number of charts; the tables of the run have all loads.
const CHARTS_MAX: usize = 24;

/// Returns the section with the charts; `None` if no plan offered loads.
pub(super) fn section(shown: &[ShownRun<'_>]) -> Option<Section> {
    let of_run = |shown: &'_ ShownRun<'_>| {
        let cells = shown.judged.agreed.cells.iter().filter(|cell| !cell.offered.is_empty());
        cells.map(|cell| chart(&shown.name, cell)).collect::<Vec<_>>()
    };
    let figures: Vec<Figure> = shown.iter().flat_map(of_run).take(CHARTS_MAX).collect();
    (!figures.is_empty()).then(|| {
        let body = html! {
            p { (LEGEND) }
            div class="charts" { @for one in &figures { (figure(one)) } }
        };
        Section::open("load", TITLE, body)
    })
}

fn chart(run: &str, summary: &Summary) -> Figure {
    let loads = &summary.offered;
    let most = loads.iter().map(|one| one.load.share()).fold(0.0, f64::max);
    let place = |one: &OfferedLoad| one.load.share() / most.max(f64::MIN_POSITIVE) * 0.96;
    let values = loads.iter().flat_map(|one| PERCENTILES.iter().filter_map(|(_, pick)| pick(&one.latency)));
    let scale = Scale::log(values);
    let series: Vec<Series> = PERCENTILES
        .iter()
        .map(|(name, pick)| Series {
            label: (*name).to_owned(),
            points: loads
                .iter()
                .filter_map(|one| {
                    let y = pick(&one.latency)?;
                    let says = format!(
                        "{name} at {} of the closed loop's rate: {} us; {} of {} planned transactions a second{}",
                        one.load,
                        number(y),
                        number(one.rate),
                        number(one.planned_per_s),
                        if one.is_carried() { "" } else { ", not carried" }
                    );
                    Some(Point { x: place(one), y, interval: None, says })
                })
                .collect(),
        })
        .collect();
    let ticks = loads.iter().map(|one| (place(one), one.load.to_string())).collect();
    let across = Across { title: "planned transactions, in percent of the closed loop's rate".into(), ticks };
    let title = format!("{TITLE}: {}, {run}", summary.cell);
    let knee = match OfferedLoad::knee(loads) {
        Some(at) => format!("Above {} of the closed loop's rate (the knee), latency grows faster than the rate.", loads[at].load),
        None => "Within the loads that were carried, there is no knee (a load above which latency grows faster than the rate).".to_owned(),
    };
    // The table has a row for each mark.
    let rows = series.iter().flat_map(|one| one.points.iter().map(|point| vec![one.label.clone(), point.says.clone()]));
    let rows: Vec<Vec<String>> = rows.collect();
    let drawing = lines(&series, &title, &across, scale, "latency in us (log scale)");
    Figure {
        title,
        about: knee,
        drawing,
        head: vec!["percentile".into(), "figure".into()],
        numbers: 0..0,
        rows,
        left_out: None,
    }
}
