//! The section with the six figures of z/VM's report on levels 420 and 430: the published figures beside those of the runs.

use super::ShownRun;
use super::bars::{Bar, Fill, bars, meanings};
use super::diagram;
use super::page::{Figure, figure, heads};
use super::published::STACKS;
use super::tables::legend;
use crate::zvm::beside::{RatioRow, Ratios, Shares, StackRow, Stacks, ratios, stacks};
use crate::zvm::table::ratio_text;
use maud::{Markup, html};

/// The heading of the section.
pub(super) const TITLE: &str = "Figures of z/VM's report, published and measured";

/// Returns the section; `None` if no run has measured a published table at both levels.
pub(super) fn section(shown: &[ShownRun<'_>]) -> Option<Markup> {
    let figures = |one: &ShownRun<'_>| {
        let ratios = ratios(&one.repeat).into_iter().map(|figure| of_ratios(&figure));
        let stacks = stacks(&one.judged.median, &one.repeat);
        ratios.chain(stacks.iter().flat_map(of_stacks)).collect::<Vec<Figure>>()
    };
    let all: Vec<(&ShownRun<'_>, Vec<Figure>)> = shown.iter().map(|one| (one, figures(one))).collect();
    all.iter().any(|(_, figures)| !figures.is_empty()).then(|| {
        html! {
            p class="soft" {
                "The source contains only the titles of these figures; siga draws them from the source's tables, with the \
                 figures of the run beside them."
            }
            div class="charts" {
                (figure(&diagram::environment()))
                @for (one, figures) in &all {
                    @if all.len() > 1 && !figures.is_empty() { h3 { (one.name) } }
                    @for one in figures { (figure(one)) }
                }
            }
        }
    })
}

fn fill(ratio: f64, more: bool) -> Fill {
    if ratio == 1.0 {
        Fill::Neither
    } else if (ratio > 1.0) == more {
        Fill::Better
    } else {
        Fill::Worse
    }
}

fn of_ratios(Ratios { title, more, rows }: &Ratios) -> Figure {
    let interval = |row: &RatioRow| {
        let interval = row.measured.interval;
        interval.map_or_else(|| "-".to_owned(), |(low, high)| format!("{} to {}", ratio_text(low), ratio_text(high)))
    };
    let mut drawn = Vec::new();
    let mut table = Vec::new();
    for row in rows {
        let sides = [("published", row.published, "-".to_owned()), ("measured", row.measured.value, interval(row))];
        for (side, ratio, interval) in sides {
            drawn.push(Bar {
                group: row.name.clone(),
                label: side.to_owned(),
                value: ratio_text(ratio),
                parts: vec![(fill(ratio, *more), ratio)],
                says: format!("{}\n{side}: {}\n95% interval: {interval}", row.name, ratio_text(ratio)),
            });
            table.push(vec![row.name.clone(), side.to_owned(), ratio_text(ratio), interval]);
        }
    }
    let reading = if *more { "the longer the bar, the better" } else { "the shorter the bar, the larger the gain" };
    Figure {
        title: (*title).to_owned(),
        about: format!("The ratio of level 430 to level 420. A ratio of 1 means no difference; {reading}."),
        drawing: html! {
            (legend(&meanings(&drawn)))
            (bars(&drawn, title, "ratio, level 430 over level 420", Some(1.0)))
        },
        head: heads(&["what", "side", "ratio", "95% interval"]),
        numbers: 2..4,
        rows: table,
        left_out: None,
    }
}

/// Returns two figures, because measured CPU times are much shorter than published ones and need another scale.
fn of_stacks(figure: &Stacks) -> [Figure; 2] {
    [of_side(figure, "published", |row| row.published), of_side(figure, "measured", |row| row.measured)]
}

fn of_side(Stacks { title, unit, rows }: &Stacks, side: &str, shares: impl Fn(&StackRow) -> Shares) -> Figure {
    let unit = unit.name();
    let title = format!("{title}, {side}");
    let names = || STACKS.iter().map(|(_, name, _)| *name).chain(["other"]);
    let mut drawn = Vec::new();
    let mut table = Vec::new();
    for row in rows {
        let own = shares(row);
        let values: Vec<f64> = own.stacks.into_iter().chain([own.other()]).collect();
        let mut says = format!("{}\n{side}, total: {} msec/{unit}", row.name, ratio_text(own.total));
        for (name, value) in names().zip(&values) {
            says.push_str(&format!("\n{name}: {} msec/{unit}", ratio_text(*value)));
        }
        let mut cells = vec![row.name.clone(), ratio_text(own.total)];
        cells.extend(values.iter().map(|value| ratio_text(*value)));
        table.push(cells);
        let fills = STACKS.iter().map(|(_, _, fill)| *fill).chain([Fill::Other]);
        drawn.push(Bar {
            group: String::new(),
            label: row.name.clone(),
            value: ratio_text(own.total),
            parts: fills.zip(values).collect(),
            says,
        });
    }
    let legends: Vec<_> = STACKS.iter().map(|(_, name, fill)| (*fill, *name)).chain([(Fill::Other, "other")]).collect();
    Figure {
        about:
            "CPU time of the whole system by component. \"Other\" is the rest of the total, with the workload drivers."
                .into(),
        drawing: html! { (legend(&legends)) (bars(&drawn, &title, &format!("CPU time in msec/{unit}"), None)) },
        head: heads(&["what", "total", "TCPIP1", "TCPIP2", "TCPIP3", "other"]),
        numbers: 1..6,
        rows: table,
        left_out: None,
        title,
    }
}
