//! Prints the published tables. Text and Markdown have the layout of the reports; CSV and JSON have one record for each value.
//!
//! Text and Markdown show the regenerated cells, which were computed from raw counters. If a regenerated cell differs from the
//! printed cell, a line below the table reports the difference. This module computes no figures.

use super::data::{Count, Pair, Report, Table};
use crate::Format;
use crate::words::thousands;
use serde::Serialize;
use serde_json::{Number, json};
use std::fmt::Write as _;

const SCHEMA: &str = "siga/published/1";
const REPORTS: [Report; 2] = [Report::Stack, Report::Vctc];
const INFERRED: &str = "\
The reports do not contain the counters from which their tables were computed. siga reads rates, total utilisations
and the times of file transfers from the tables. It infers the CPU seconds of the stacks and the division of the total.
Agreement shows that siga's arithmetic is that of the reports; it does not repeat their measurements.";

/// Returns the list of all tables. Each has its number of cells, and the number of cells whose computed text is exactly the
/// printed text.
pub(super) fn list(tables: &[Table], format: Format) -> String {
    match format {
        Format::Text => list_text(tables),
        Format::Json => list_json(tables),
        Format::Csv => records(tables.iter().map(Entry::of)),
        Format::Md => list_markdown(tables),
    }
}

/// Returns one table in the requested format.
pub(super) fn table(table: &Table, format: Format) -> String {
    match format {
        Format::Text => table_text(table),
        Format::Json => table_json(table),
        Format::Csv => records(rows(table).into_iter()),
        Format::Md => table_markdown(table),
    }
}

/// The entry of a table in the list.
#[derive(Serialize)]
struct Entry<'a> {
    table: &'a str,
    title: &'a str,
    cells: usize,
    regenerated: usize,
}

impl<'a> Entry<'a> {
    fn of(table: &'a Table) -> Self {
        let Count { cells, regenerated } = table.count();
        Self { table: &table.id, title: &table.title, cells, regenerated }
    }
}

fn list_text(tables: &[Table]) -> String {
    let mut text = String::new();
    for report in REPORTS {
        let _ = writeln!(text, "{}\n", report.title());
        let mut grid = vec![vec!["table".into(), "title".into(), "cells".into(), "regenerated".into()]];
        for table in tables.iter().filter(|table| table.report == report) {
            let Count { cells, regenerated } = table.count();
            grid.push(vec![table.id.clone(), table.title.clone(), cells.to_string(), regenerated.to_string()]);
        }
        align(&mut text, &grid, 2);
        text.push('\n');
    }
    text.push_str(&summary(tables));
    text.push_str("`siga published TABLE` shows one of them.\n");
    text
}

fn list_markdown(tables: &[Table]) -> String {
    let mut text = String::from("| table | title | cells | regenerated |\n|---|---|---:|---:|\n");
    for table in tables {
        let Count { cells, regenerated } = table.count();
        let _ = writeln!(text, "| {} | {} | {cells} | {regenerated} |", table.id, table.title);
    }
    let _ = write!(text, "\n{}", summary(tables));
    text
}

fn list_json(tables: &[Table]) -> String {
    let Count { cells, regenerated } = tables.iter().map(Table::count).sum();
    let entries: Vec<_> = tables.iter().map(Entry::of).collect();
    let note = INFERRED.replace('\n', " ");
    pretty(&json!({
        "schema": SCHEMA, "cells": cells, "regenerated": regenerated, "note": note, "tables": entries,
    }))
}

fn summary(tables: &[Table]) -> String {
    let mut text = String::new();
    for report in REPORTS {
        let of_report = tables.iter().filter(|table| table.report == report);
        let Count { cells, regenerated } = of_report.map(Table::count).sum();
        let title = report.title();
        let _ = writeln!(
            text,
            "{title}: siga recomputed {} of {} cells.",
            thousands(&regenerated.to_string()),
            thousands(&cells.to_string())
        );
    }
    text.push_str(INFERRED);
    text.push('\n');
    text
}

fn table_text(table: &Table) -> String {
    let mut text = format!("{}\n\n", heading(table));
    let mut grid = heads(table);
    for block in &table.blocks {
        grid.push(Vec::new());
        for metric in block {
            let cells = metric.cells().map(|cell| cell.regenerated.clone());
            grid.push(std::iter::once(metric.name.clone()).chain(cells).collect());
        }
    }
    align(&mut text, &grid, 1);
    let _ = writeln!(text, "\nNote: {}\n", table.note);
    text.push_str(&agreement(table));
    text
}

fn table_markdown(table: &Table) -> String {
    let mut text = format!("**{}**\n\n", heading(table));
    for (n, head) in heads(table).iter().enumerate() {
        let _ = writeln!(text, "| {} |", head.join(" | "));
        if n == 0 {
            let _ = writeln!(text, "|---|{}", "---:|".repeat(head.len() - 1));
        }
    }
    for metric in table.metrics() {
        let cells: Vec<_> = metric.cells().map(|cell| cell.regenerated.as_str()).collect();
        let _ = writeln!(text, "| {} | {} |", metric.name, cells.join(" | "));
    }
    let _ = writeln!(text, "\nNote: {}\n", table.note);
    text.push_str(&agreement(table));
    text
}

/// Returns the heading of a table as printed. The heading contains the table's number within its report, which is the id without
/// a prefix.
pub(super) fn heading(table: &Table) -> String {
    let number = table.id.rsplit('-').next().unwrap_or(&table.id);
    format!("Table {number}. {}", table.title)
}

/// Returns the header rows of a table. They have the number of clients (only in the stack report), the run id and the level of
/// each column.
fn heads(table: &Table) -> Vec<Vec<String>> {
    let row = |name: &str, columns: fn(&Pair) -> [String; 3]| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(table.pairs.iter().flat_map(columns)).collect()
    };
    let levels = row(&table.attribute, |pair| [pair.base.level.clone(), pair.changed.level.clone(), "ratio".into()]);
    let runids = row("runid", |pair| [pair.base.runid.clone(), pair.changed.runid.clone(), String::new()]);
    match table.report {
        Report::Stack => {
            let clients = |pair: &Pair| [0; 3].map(|_| format!("{:02}", pair.clients));
            vec![row("Number of clients", clients), runids, levels]
        }
        Report::Vctc => vec![levels, runids],
    }
}

fn agreement(table: &Table) -> String {
    let Count { cells, regenerated } = table.count();
    let from = "from counters that were read from or inferred from the table itself";
    let mut text = format!("siga recomputed {regenerated} of {cells} cells {from}.\n");
    for difference in table.differences() {
        text.push_str(&difference);
        text.push('\n');
    }
    text
}

/// One record of the CSV or JSON: a value of a table, with its ratio to the value of the base run. In the record of a base run,
/// the ratio is empty.
#[derive(Serialize)]
struct Row<'a> {
    table: &'a str,
    title: &'a str,
    clients: u32,
    attribute: &'a str,
    level: &'a str,
    runid: &'a str,
    metric: &'a str,
    unit: &'a str,
    printed: &'a str,
    regenerated: &'a str,
    ratio: &'a str,
    ratio_regenerated: &'a str,
}

fn rows(table: &Table) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for metric in table.metrics() {
        for (pair, triple) in table.pairs.iter().zip(&metric.triples) {
            for (run, cell, ratio) in
                [(&pair.base, &triple.base, None), (&pair.changed, &triple.changed, Some(&triple.ratio))]
            {
                rows.push(Row {
                    table: &table.id,
                    title: &table.title,
                    clients: pair.clients,
                    attribute: &table.attribute,
                    level: &run.level,
                    runid: &run.runid,
                    metric: &metric.name,
                    unit: &metric.unit,
                    printed: &cell.printed,
                    regenerated: &cell.regenerated,
                    ratio: ratio.map_or("", |cell| &cell.printed),
                    ratio_regenerated: ratio.map_or("", |cell| &cell.regenerated),
                });
            }
        }
    }
    rows
}

fn table_json(table: &Table) -> String {
    let rows: Vec<_> = rows(table)
        .into_iter()
        .map(|row| {
            json!({
                "metric": row.metric, "unit": row.unit, "clients": row.clients,
                "level": row.level, "runid": row.runid,
                "printed": number(row.printed), "regenerated": number(row.regenerated),
                "ratio": number(row.ratio), "ratio_regenerated": number(row.ratio_regenerated),
            })
        })
        .collect();
    let Count { cells, regenerated } = table.count();
    pretty(&json!({
        "schema": SCHEMA, "table": table.id, "report": table.report.title(), "title": table.title,
        "attribute": table.attribute, "note": table.note, "inputs": "read from or inferred from the table",
        "cells": cells, "regenerated": regenerated, "rows": rows,
    }))
}

/// Returns a cell as a JSON number; `None` (null) if the cell is empty.
fn number(cell: &str) -> Option<Number> {
    cell.parse().ok()
}

fn records(records: impl Iterator<Item = impl Serialize>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.serialize(record).expect("flat records of strings and numbers can be written to memory");
    }
    let bytes = writer.into_inner().expect("memory takes all bytes");
    String::from_utf8(bytes).expect("strings are written as they are")
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// Appends rows to `text`. Each column is as wide as its widest cell. The first `left` columns are aligned left, the others
/// right.
pub(crate) fn align(text: &mut String, grid: &[Vec<String>], left: usize) {
    let columns = grid.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        grid.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    for row in grid {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ =
                if column < left { write!(line, "{gap}{cell:width$}") } else { write!(line, "{gap}{cell:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}
