//! Presents the matrix of 2009 as text.

use super::{Block, Connections, Entry, Line};
use crate::words::number;
use crate::zvm::answers::{CASE_HEADS, RULE, case, tally, wrap};
use crate::zvm::check::Stance;
use crate::zvm::figures::bar;
use crate::zvm::published::align;
use siga_model::text::name;
use std::fmt::Write;

/// Longest list of cases that the text shows whole. Of a longer one, it shows the cases that do not support the finding.
const CASES_MAX: usize = 4;

/// How the figures of the overview are computed, for people.
pub(crate) const ABOUT: &str = "Each figure is a ratio of rates in the same round, with 10 connections. The document does not say which \
    virtual networks its third row compares; here it is the geometric mean of HiperSockets, the two types of Guest LAN and the VSWITCH, \
    each with its largest MTU, over OSA with an MTU of 8992. File transfer has a case for each direction. The published factors are \
    those of other machines: a finding says only which side is faster.";

/// Returns the figures of each workload, then the overview.
pub(crate) fn text(connections: &Connections) -> String {
    let mut out = String::from("\nThe matrix of 2009, measured here\n\n");
    for block in &connections.workloads {
        of_block(&mut out, block);
    }
    let _ = writeln!(out, "Networking throughput overview of 2009, published and measured here\n");
    wrap(&mut out, "", ABOUT);
    wrap(&mut out, "", RULE);
    for (row, entries) in connections.rows() {
        let _ = writeln!(out, "\n{row}\n");
        for entry in entries {
            of_entry(&mut out, entry);
        }
    }
    out
}

fn of_block(out: &mut String, Block { workload, name: title, lines }: &Block) {
    let (unit, scale, cpu) =
        (workload.unit().rate_name(), workload.cpu_unit().cpu_scale(), workload.cpu_unit().cpu_name());
    let _ = writeln!(out, "{title} ({workload}, 10 connections)\n");
    let most = |of: fn(&Line) -> f64| lines.iter().map(of).fold(0.0, f64::max);
    let (most_rate, most_cpu) = (most(|line| line.rate.0), most(|line| line.server_ms));
    let server = format!("server CPU, {cpu}");
    let heads = ["connection", "MTU", unit, "", &server, ""].map(str::to_owned).to_vec();
    let row = |line: &Line| {
        vec![
            name(&line.connection),
            line.mtu.map(|mtu| mtu.to_string()).unwrap_or_default(),
            number(line.rate.0),
            half(&bar('█', line.rate.0, most_rate)),
            number(line.server_ms * scale),
            half(&bar('▓', line.server_ms, most_cpu)),
        ]
    };
    let grid: Vec<Vec<String>> = std::iter::once(heads).chain(lines.iter().map(row)).collect();
    align(out, &grid, 1);
    out.push('\n');
}

/// Length of the longest bar, in characters. Two of them fit on a line.
const BAR: usize = 20;

/// Shortens a bar to half its length, and fills it up to the longest.
fn half(bar: &str) -> String {
    let short: String = bar.chars().take(bar.chars().count().div_ceil(2)).collect();
    format!("{short:<BAR$}")
}

fn of_entry(out: &mut String, entry: &Entry) {
    let checked = &entry.checked;
    let verdict = checked.verdict.name().to_uppercase();
    wrap(out, "  ", &format!("{}, published {}. {verdict}: {}", entry.column, entry.printed, checked.finding.says));
    wrap(out, "    ", &format!("{}.", tally(checked)));
    let shown = checked.cases.iter().filter(|one| checked.cases.len() <= CASES_MAX || one.speaks != Stance::For);
    let rows: Vec<[String; 6]> = shown.map(case).collect();
    if rows.is_empty() {
        return;
    }
    let rows = std::iter::once(CASE_HEADS.map(str::to_owned)).chain(rows);
    let grid: Vec<Vec<String>> =
        rows.map(|[place, figures @ ..]| std::iter::once(format!("      {place}")).chain(figures).collect()).collect();
    align(out, &grid, 2);
}
