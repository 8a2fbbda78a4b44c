//! z/VM's layout: a block a path, MTU and workload, columns by number of pairs (and level), the rows of the printed reports.

use crate::error::Result;
use crate::plan::Cell;
use crate::reduce::{Blocks, Component, CpuTime, RawCounters, reduce};
use crate::store::Run;
use crate::summary::{Cpu, Reduced, Summary};
use std::fmt::Write;

/// The report as text.
pub(super) fn text(run: &Run, reduced: &Reduced) -> Result<String> {
    let mut out = String::new();
    if run.plan.smoke {
        let _ = writeln!(out, "SMOKE RUN: the figures are too short to rely on.\n");
    }
    for (number, columns) in tables(reduced).iter().enumerate() {
        let cell = &columns[0].cell;
        let mtu = cell.mtu.map(|mtu| format!(" {mtu}")).unwrap_or_default();
        let _ = writeln!(out, "Table {}. {} - {}{mtu}\n", number + 1, cell.path, cell.workload);
        let blocks = columns.iter().map(|summary| column(summary)).collect::<Result<Vec<_>>>()?;
        block(&mut out, columns, &blocks);
        let methods: Vec<_> = columns.iter().map(|summary| summary.cpu.method.to_string()).collect();
        let residues: Vec<_> = columns.iter().map(|summary| format!("{:.4}", summary.cpu.residue)).collect();
        let unit = cell.workload.unit();
        let _ = writeln!(
            out,
            "\nNote: CPU by {}; residue {} msec/{};",
            methods.join(", "),
            residues.join(", "),
            unit.name()
        );
        let _ = writeln!(
            out,
            "vcpu is user mode, ccpu the kernel; MB is 10^6 bytes of payload; median of {} trials\n",
            columns[0].trials
        );
    }
    for skipped in &reduced.skipped {
        let _ = writeln!(out, "Skipped: {}: {}", skipped.cell, skipped.reason);
    }
    Ok(out)
}

/// Cells that differ only by pairs and level share a table.
fn tables(reduced: &Reduced) -> Vec<Vec<&Summary>> {
    let key = |cell: &Cell| (cell.path.clone(), cell.workload, cell.mtu);
    let mut tables: Vec<Vec<&Summary>> = Vec::new();
    for summary in &reduced.cells {
        match tables.iter_mut().find(|table| key(&table[0].cell) == key(&summary.cell)) {
            Some(table) => table.push(summary),
            None => tables.push(vec![summary]),
        }
    }
    for table in &mut tables {
        table.sort_by_key(|summary| summary.cell.clients);
    }
    tables
}

fn block(out: &mut String, columns: &[&Summary], blocks: &[Blocks<f64>]) {
    let label = 26;
    let head = |out: &mut String, name: &str, values: &mut dyn Iterator<Item = String>| {
        let _ = write!(out, "{name:<label$}");
        values.for_each(|value| {
            let _ = write!(out, "{value:>14}");
        });
        let _ = writeln!(out);
    };
    head(out, "Number of clients", &mut columns.iter().map(|summary| format!("{:02}", summary.cell.clients)));
    head(out, "level", &mut columns.iter().map(|summary| summary.cell.level.clone()));
    for (number, part) in blocks[0].iter().enumerate() {
        let _ = writeln!(out);
        for (row, figure) in part.iter().enumerate() {
            let values = blocks.iter().map(|column| match column.get(number).and_then(|part| part.get(row)) {
                // Hardware has become faster than the places of the printed tables.
                Some(figure) => format!("{:.*}", places(figure.value), figure.value),
                None => "-".into(),
            });
            head(out, &figure.metric, &mut values.collect::<Vec<_>>().into_iter());
        }
    }
}

/// Two decimals as printed, more where the figure would have fewer than three digits.
fn places(value: f64) -> usize {
    match value.abs() {
        small if small > 0.0 && small < 0.1 => 5,
        small if small < 1.0 => 4,
        _ => 2,
    }
}

/// The figures of one cell. The rate is the driver's, as in the printed reports; all others are per unit of the interval
/// between the readings of the CPU counters, which is longer by the standstill.
fn column(summary: &Summary) -> Result<Blocks<f64>> {
    let mut blocks = reduce(&counters(summary))?;
    if let Some(rate) = blocks.first_mut().and_then(|block| block.first_mut()) {
        rate.value = summary.rate;
    }
    Ok(blocks)
}

/// The counters of the median trial, in seconds over its interval.
fn counters(summary: &Summary) -> RawCounters<f64> {
    let trial = &summary.median;
    let interval_s = trial.cpu.wall_ns.max(1) as f64 / 1e9;
    let units = trial.units();
    let seconds = |component: &crate::summary::Component| CpuTime {
        cpu_s: component.total * units / 1e3,
        vcpu_s: component.user * units / 1e3,
        ccpu_s: component.kernel * units / 1e3,
    };
    let Cpu { client, router, server, other, total, .. } = &summary.cpu;
    let named =
        [("client", Some(client)), ("router", router.as_ref()), ("server", Some(server)), ("other", Some(other))];
    RawCounters {
        interval_s,
        processors: trial.cpu.cpus,
        rate: units / interval_s,
        unit: trial.cell.workload.unit(),
        total: seconds(total),
        components: named
            .into_iter()
            .filter_map(|(name, component)| Some(Component { name: name.into(), time: seconds(component?) }))
            .collect(),
    }
}
