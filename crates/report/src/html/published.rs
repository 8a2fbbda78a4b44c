//! The HTML report of the tables that z/VM's reports published. It shows the results in words, the measurement environment, the
//! tables, and six figures. The published page has only the titles of these figures, so siga draws them from the tables.

use super::bars::{Bar, Fill, bars, meanings};
use super::diagram;
use super::page::{self, Download, Figure, Section, Top, columns, figure, heads, table};
use super::tables::legend;
use crate::zvm::figures::{CLIENTS, RATIOS, STACK_FIGURES};
use crate::zvm::published::{FILES, PublishedTable, metric, shown};
use maud::{Markup, html};
use siga_model::error::Result;
use std::cmp::Ordering;

/// The components of a stacked bar: prefix of the component's rows in the tables, name in the chart, and fill. The rest of the
/// total is `other`.
pub(super) const STACKS: [(&str, &str, Fill); 3] = [
    ("tcpip1", "TCPIP1 (clients' stack)", Fill::Client),
    ("tcpip2", "TCPIP2 (router)", Fill::Router),
    ("tcpip3", "TCPIP3 (servers' stack)", Fill::Server),
];

/// Returns the complete page.
pub(super) fn page() -> Result<String> {
    let tables = shown()?;
    let downloads = FILES.map(|(name, about, text)| Download {
        name: name.into(),
        about: about.into(),
        media: "text/csv",
        text: text.into(),
    });
    let ratios = RATIOS.map(|(title, part, _)| ratio_figure(&tables, title, part));
    let [(five, streams), (six, crr)] = STACK_FIGURES;
    let stacks = [stack_figure(&tables, five, streams, "MB"), stack_figure(&tables, six, crr, "trans")];
    let charts = html! {
        p class="soft" {
            "Hover, tap or focus a mark to see its exact figures; the arrow keys move to the next mark. The source contains \
             only the titles of these charts; siga draws the charts from the source's tables."
        }
        div class="charts" {
            (figure(&diagram::environment()))
            @for one in ratios.iter().chain(&stacks) { (figure(one)) }
        }
    };
    let sections = [
        Section::open("verdict", "Range of the ratios", verdict(&tables)),
        Section::open("charts", "Charts", charts),
        Section::folded("tables", "Tables", tables_of(&tables)),
        Section::folded("environment", "Environment", environment()),
    ];
    let lead = html! {
        p {
            "siga takes its method from two performance reports about z/VM. One report compares TCP/IP levels 420 and 430 over \
             five kinds of connectivity. The other compares virtual and real channel-to-channel devices."
        }
    };
    let top = Top {
        title: "The published tables".to_owned(),
        question: "The published tables".to_owned(),
        answer: answer(&tables),
        lead,
    };
    Ok(page::page(&top, &sections, 1, &downloads))
}

/// Returns the complete name of a row of a table. `part` is the name without the unit: for `tcpip2_cpu` in a table whose unit is
/// the megabyte, the name is `tcpip2_cpu_msec/MB`.
fn row(table: &PublishedTable, part: &str) -> String {
    metric(part, table.unit())
}

/// Splits the title of a table, such as "HiperSockets - Streaming 1500", into the connectivity and the workload with its MTU.
fn parted(table: &PublishedTable) -> (String, String) {
    let title = table.heading.split_once(". ").map_or(table.heading.as_str(), |(_, title)| title);
    let words: Vec<&str> = title.split_whitespace().filter(|word| *word != "-").collect();
    let (connectivity, rest) = words.split_at(words.len().saturating_sub(2));
    (connectivity.join(" "), rest.join(" "))
}

/// Returns the tables that compare the levels 420 and 430: only these have columns for 10 clients. The other tables compare
/// virtual and real channel-to-channel devices.
fn stack_tables(tables: &[PublishedTable]) -> impl Iterator<Item = &PublishedTable> {
    tables.iter().filter(|table| table.pairs.iter().any(|(clients, ..)| *clients == CLIENTS))
}

fn ratios(tables: &[PublishedTable], part: &str) -> Vec<(String, String, [f64; 3])> {
    stack_tables(tables)
        .filter_map(|table| {
            let (connectivity, workload) = parted(table);
            Some((connectivity, workload, table.figures(&row(table, part), CLIENTS)?))
        })
        .collect()
}

/// Returns the result of the published report in a sentence.
fn answer(tables: &[PublishedTable]) -> String {
    // Compare ratios as they are printed, with two decimals, so that a ratio printed as 1.00 counts as no change.
    let became = |part: &str, wanted: Ordering| {
        let all = ratios(tables, part);
        let count = all.iter().filter(|one| one.2[2].total_cmp(&1.0) == wanted).count();
        format!("{count} of {}", all.len())
    };
    format!(
        "With level 430, the router's TCP/IP stack took less CPU time in {} combinations of connectivity, workload and MTU. \
         The server's TCP/IP stack took less CPU time in {}, and the rate was higher in {}.",
        became("tcpip2_cpu", Ordering::Less),
        became("tcpip3_cpu", Ordering::Less),
        became("rate", Ordering::Greater)
    )
}

fn verdict(tables: &[PublishedTable]) -> Markup {
    let range = |part: &str| {
        let all = ratios(tables, part);
        let at = |order: Ordering| {
            all.iter().reduce(|best, one| if one.2[2].total_cmp(&best.2[2]) == order { one } else { best }).cloned()
        };
        at(Ordering::Less).zip(at(Ordering::Greater))
    };
    let words = |part: &str| {
        range(part).map(|((least, least_load, least_ratio), (most, most_load, most_ratio))| {
            format!(
                "{:.2} ({least}, {least_load}) to {:.2} ({most}, {most_load}) times the value of level 420",
                least_ratio[2], most_ratio[2]
            )
        })
    };
    let (cells, regenerated) =
        tables.iter().fold((0, 0), |(cells, again), table| (cells + table.cells.0, again + table.cells.1));
    let sentences = [
        ("CPU time of the router stack per unit", "tcpip2_cpu"),
        ("CPU time of the server stack per unit", "tcpip3_cpu"),
        ("Throughput", "rate"),
    ];
    html! {
        p { "With " (CLIENTS) " clients, level 430 against level 420:" }
        ul {
            @for (start, part) in sentences {
                @if let Some(words) = words(part) { li { (start) ": " (words) } }
            }
        }
        p {
            (regenerated) " of " (cells) " numbers of the tables are exactly those that siga computes from counters. siga has \
             read or inferred these counters from the tables themselves. The agreement shows that siga's arithmetic is that of the \
             reports; it does not repeat their measurements. Each column is one run, so there are no intervals."
        }
    }
}

fn environment() -> Markup {
    let rows = [
        ("Machine", "2064-109, a partition with 2 dedicated processors"),
        ("Memory", "1 GB central, 2 GB expanded storage"),
        ("Software, level 420", "CP 420 with APAR VM62938, TCP/IP 420 with APAR PQ51738"),
        ("Software, level 430", "CP 430, TCP/IP 430"),
        ("Workloads", "RR 200/1000 bytes; CRR 64/8K bytes; streaming 20 bytes/20 MB; 1, 5 and 10 client-server pairs"),
        ("CPU time", "CP monitor data, reduced by VMPRF"),
    ];
    let rows: Vec<_> = rows.map(|(what, value)| vec![what.to_owned(), value.to_owned()]).into();
    html! {
        (table(&heads(&["what", "as in the source"]), &rows, 0..0))
        p { "Base and changed level ran on the same machine and differ only in the level. Figure 1 shows the nodes and their links." }
    }
}

fn tables_of(tables: &[PublishedTable]) -> Markup {
    html! {
        @for (at, table) in tables.iter().enumerate() {
            @if at == 0 || tables[at - 1].report != table.report { h3 { (table.report) } }
            details class="print" id={ "table-" (table.id) } {
                summary { (table.heading) " (" (table.cells.1) " of " (table.cells.0) " cells regenerate)" }
                (columns(&table.text))
            }
        }
    }
}

fn ratio_figure(tables: &[PublishedTable], title: &str, part: &str) -> Figure {
    let more = part == "rate";
    let all = ratios(tables, part);
    let bar = |(connectivity, workload, figures): &(String, String, [f64; 3])| {
        let [base, changed, ratio] = *figures;
        let better = if more { ratio > 1.0 } else { ratio < 1.0 };
        let fill = match (better, ratio == 1.0) {
            (_, true) => Fill::Neither,
            (true, false) => Fill::Better,
            (false, false) => Fill::Worse,
        };
        Bar {
            group: connectivity.clone(),
            label: workload.clone(),
            value: format!("{ratio:.2}"),
            parts: vec![(fill, ratio)],
            says: format!(
                "{connectivity}, {workload}, {CLIENTS} clients\nlevel 420: {base:.2}\nlevel 430: {changed:.2}\nratio: {ratio:.2}"
            ),
        }
    };
    let row = |(connectivity, workload, figures): &(String, String, [f64; 3])| {
        let [base, changed, ratio] = figures.map(|figure| format!("{figure:.2}"));
        vec![format!("{connectivity}, {workload}"), base, changed, ratio]
    };
    let drawn: Vec<_> = all.iter().map(bar).collect();
    let reading = if more { "the longer the bar, the better" } else { "the shorter the bar, the larger the gain" };
    Figure {
        title: title.into(),
        about: format!(
            "The ratio of level 430 to level 420, for each connectivity, workload and MTU. A ratio of 1 means no difference; {reading}."
        ),
        drawing: html! {
            (legend(&meanings(&drawn)))
            (bars(&drawn, title, "ratio, level 430 over level 420", Some(1.0)))
        },
        head: heads(&["what", "level 420", "level 430", "ratio"]),
        numbers: 1..4,
        rows: all.iter().map(row).collect(),
        left_out: None,
    }
}

fn stack_figure(tables: &[PublishedTable], title: &str, ids: &[&str], unit: &str) -> Figure {
    let mut drawn = Vec::new();
    let mut rows = Vec::new();
    for table in ids.iter().filter_map(|id| tables.iter().find(|table| table.id == *id)) {
        let (connectivity, workload) = parted(table);
        for (clients, base, changed) in &table.pairs {
            for (side, level) in [base, changed].into_iter().enumerate() {
                let figure = |part: &str| {
                    table.figures(&format!("{part}cpu_msec/{unit}"), *clients).map(|figures| figures[side])
                };
                let Some(total) = figure("") else { continue };
                let parts: Vec<f64> = STACKS.iter().filter_map(|(name, ..)| figure(&format!("{name}_"))).collect();
                let other = total - parts.iter().sum::<f64>();
                let values: Vec<f64> = parts.into_iter().chain([other]).collect();
                let label = format!("{} client{}, level {level}", clients, if *clients == 1 { "" } else { "s" });
                let names = STACKS.iter().map(|(_, name, _)| *name).chain(["other"]);
                let mut says = format!("{connectivity}, {workload}, {label}\ntotal: {total:.2} msec/{unit}");
                for (name, value) in names.zip(&values) {
                    says.push_str(&format!("\n{name}: {value:.2} msec/{unit}"));
                }
                let mut cells = vec![format!("{workload}, {label}"), format!("{total:.2}")];
                cells.extend(values.iter().map(|value| format!("{value:.2}")));
                rows.push(cells);
                let fills = STACKS.iter().map(|(_, _, fill)| *fill).chain([Fill::Other]);
                drawn.push(Bar {
                    group: if ids.len() > 1 { workload.clone() } else { String::new() },
                    label,
                    value: format!("{total:.2}"),
                    parts: fills.zip(values).collect(),
                    says,
                });
            }
        }
    }
    let names: Vec<_> = STACKS.iter().map(|(_, name, fill)| (*fill, *name)).chain([(Fill::Other, "other")]).collect();
    Figure {
        title: title.into(),
        about: "CPU time of the whole system by component. \"Other\" is the rest of the total: CP, and the client \
                and server workload tool."
            .into(),
        drawing: html! { (legend(&names)) (bars(&drawn, title, &format!("CPU time in msec/{unit}"), None)) },
        head: heads(&["what", "total", "TCPIP1", "TCPIP2", "TCPIP3", "other"]),
        numbers: 1..6,
        rows,
        left_out: None,
    }
}
