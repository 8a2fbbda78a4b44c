//! The reports of a run for other programs: JSON (schema `siga/run/2`) and CSV. Figures are not rounded.

use super::answer;
use super::connections::{self, Connections};
use super::disturbance;
use super::format;
use super::printed;
use super::verdicts;
use super::zvm::answers;
use super::zvm::pairs::Pair;
use super::zvm::repeat::Repeat;
use super::zvm::rows::column;
use super::{observer, offered, streams};
use serde_json::{Value, json};
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use siga_plan::matrix::Cell;
use siga_plan::path::guest::NAMES;
use siga_plan::run_id::RunId;
use siga_results::judge::{Answers, Beside, Judged, RouterOverhead, Row};
use siga_results::reduce::{Blocks, Figure};
use siga_results::store::Run;
use siga_results::summary::{Component, Cpu, Reduced, Summary, itr};

/// Returns the report as one JSON object.
pub(super) fn json(run: &Run, judged: &Judged, repeat: &Repeat, connections: Option<&Connections>) -> Result<String> {
    let Judged { median, agreed: reduced, comparisons } = judged;
    let answers = Answers::of(run, reduced, comparisons);
    let overheads: Vec<Value> = answers.overheads.iter().map(overhead).collect();
    let beside: Vec<Value> = answers.beside.iter().map(one_beside).collect();
    let skipped = reduced.skipped.iter().map(|one| of_cell(&one.cell, json!({ "skipped": one.reason })));
    let cells: Vec<Value> = reduced.cells.iter().map(cell).chain(skipped).collect();
    let report = json!({
        "schema": "siga/run/2",
        "plan": run.plan.name,
        "question": run.plan.question,
        "answer": answer::of(run, judged)?,
        "smoke": run.plan.smoke,
        "emulated": run.environment.is_emulated(),
        "environment": run.environment,
        "cells": cells,
        "hops": overheads,
        "beside": beside,
        "comparisons": comparisons.iter().map(verdicts::value).collect::<Vec<_>>(),
        "levels": levels(median, repeat)?,
        "disturbance": disturbance::of_run(run, &reduced.disturbance),
        "findings": answers::json(median, repeat),
        "overview": connections::value(connections),
        "damage": run.damage,
    });
    format::json(&report)
}

/// Adds the members that identify a cell to the JSON object `more`.
fn of_cell(cell: &Cell, mut more: Value) -> Value {
    more["path"] = json!(cell.path);
    more["workload"] = json!(cell.workload);
    more["mtu"] = json!(cell.mtu);
    more["clients"] = json!(cell.clients);
    more["level"] = json!(cell.level);
    more["runid"] = json!(RunId::of(cell).map(|id| id.to_string()));
    more
}

fn cell(summary: &Summary) -> Value {
    let unit = summary.cell.workload.unit();
    let cpu = &summary.cpu.times(summary.cell.workload.cpu_unit().cpu_scale());
    let figures = json!({
        "io": summary.median.io,
        "trials": summary.trials,
        "rate": summary.rate,
        "rate_unit": unit.rate_name(),
        "rate_mean": summary.rate_estimate,
        "itr": itr(summary.cpu.total.total),
        "itr_unit": summary.cell.workload.cpu_unit().itr_name(),
        "itr_mean": summary.itr,
        "latency_us": summary.latency,
        "latency_corrected_us": summary.corrected,
        "cpu": {
            "method": cpu.method,
            "unit": summary.cell.workload.cpu_unit().cpu_name(),
            "total": cpu.total.total,
            "virtual": cpu.total.user,
            "cp": cpu.total.kernel,
            "wait": cpu.total.wait,
            "uncertainty": finite(cpu.total.uncertainty),
            "utilisation": cpu.utilisation,
            "components": components(cpu, summary),
            "guests": guests(cpu),
            "residue": cpu.residue,
        },
        "figures": printed::value(summary),
        "offered": offered::value(summary),
        "datagrams": streams::value(summary),
        "streams": streams::rates(summary),
        "accounting_cost": observer::value(summary),
        "pair_units": {
            "least": summary.median.pair_units.0,
            "most": summary.median.pair_units.1,
            "fairness": summary.median.fairness,
        },
        "retransmits": summary.retransmits(),
        "drops": summary.drops,
        "errors": summary.errors,
        "flags": summary.flags.iter().map(|(flag, _)| flag).collect::<Vec<_>>(),
        "skipped": null,
    });
    of_cell(&summary.cell, figures)
}

/// Returns the CPU time of the components: those of a path, or the processes of a command and the rest of the host.
fn components(cpu: &Cpu, summary: &Summary) -> Value {
    if is_alone(summary) {
        return json!({ "command": component(&cpu.client), "other": component(&cpu.other) });
    }
    json!({
        "client": component(&cpu.client),
        "router": cpu.router.as_ref().map(component),
        "server": component(&cpu.server),
        "other": component(&cpu.other),
    })
}

/// Returns `value`, or `None` (null) if it is infinite, because JSON has no infinity. An uncertainty is infinite if it is
/// unknown.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn component(component: &Component) -> Value {
    json!({
        "total": component.total,
        "virtual": component.user,
        "cp": component.kernel,
        "wait": component.wait,
        "uncertainty": finite(component.uncertainty),
    })
}

/// Returns the CPU time of each process of a siga network, under the name that z/VM's reports use for the process. All entries
/// and the residue add up to the total. Returns `None` (null) for other paths.
fn guests(cpu: &Cpu) -> Option<Value> {
    let control = cpu.control.as_ref()?;
    let [client, router, server] = NAMES;
    let mut guests = serde_json::Map::new();
    // If a workload driver and its stack are one process, their CPU times cannot be separated, so the guest's entry contains
    // both.
    let (of_client, of_server) = cpu.applications.unwrap_or_default();
    guests.insert(client.into(), component(&cpu.client.without(&of_client)));
    guests.insert(router.into(), json!(cpu.router.as_ref().map(component)));
    guests.insert(server.into(), component(&cpu.server.without(&of_server)));
    guests.insert("applications".into(), json!(cpu.applications.map(|(one, other)| component(&one.plus(other)))));
    guests.insert("cp".into(), component(control));
    guests.insert("other".into(), component(&cpu.other.without(control)));
    Some(Value::Object(guests))
}

fn overhead(overhead: &RouterOverhead) -> Value {
    let unit = overhead.cell.workload.cpu_unit();
    let cost = |value: f64| value * unit.cpu_scale();
    let figures = json!({
        "base": overhead.base.path,
        "cpu": { "value": cost(overhead.cost.value), "low": overhead.cost.low.map(cost), "high": overhead.cost.high.map(cost),
            "count": overhead.cost.count },
        "cpu_unit": unit.cpu_name(),
        "cpu_verdict": overhead.cpu.verdict.name(),
        "rate_ratio": ratio(&overhead.rate),
        "rate_verdict": overhead.rate.verdict.name(),
        "latency_p50_us": overhead.latency_us,
    });
    of_cell(&overhead.cell, figures)
}

fn ratio(row: &Row) -> Value {
    json!({ "value": row.ratio, "low": row.low, "high": row.high, "count": row.trials.0 })
}

fn one_beside(one: &Beside) -> Value {
    let figures = json!({
        "kernel": one.kernel.path,
        "kernel_mtu": one.kernel.mtu,
        "wait": one.wait,
        "colocated": one.colocated,
        "rate_ratio": ratio(&one.rate),
        "rate_verdict": one.rate.verdict.name(),
        "cpu_ratio": ratio(&one.cpu),
        "cpu_verdict": one.cpu.verdict.name(),
    });
    of_cell(&one.cell, figures)
}

/// Compares each cell of a level that has a base level with the same cell of that base level. For every row of the tables, the
/// JSON has the measured values at both levels with their ratio. It also has the values and the ratio that z/VM's reports
/// printed.
fn levels(reduced: &Reduced, repeat: &Repeat) -> Result<Vec<Value>> {
    let one = |pair: &Pair| {
        let [base, new] = [column(&reduced.cells[pair.base])?, column(&reduced.cells[pair.new])?];
        let find = |blocks: &Blocks<f64>, row: &str| {
            blocks.iter().flatten().find(|figure| figure.metric == row).map(|figure| figure.value)
        };
        let row = |figure: &Figure<f64>| {
            let ratio = pair.ratio(&figure.metric);
            let interval = ratio.and_then(|ratio| ratio.interval);
            let printed = pair.printed(&repeat.published, &figure.metric);
            json!({
                "metric": figure.metric,
                "base_value": find(&base, &figure.metric),
                "new_value": figure.value,
                "ratio": ratio.map(|ratio| ratio.value),
                "low": interval.map(|(low, _)| low),
                "high": interval.map(|(_, high)| high),
                "trials": ratio.map(|ratio| ratio.trials),
                "published_base": printed.map(|[base, _, _]| base),
                "published_new": printed.map(|[_, new, _]| new),
                "published_ratio": printed.map(|[_, _, ratio]| ratio),
            })
        };
        let figures = json!({
            "base_level": pair.base_level,
            "table": pair.table.map(|table| &repeat.published[table].id),
            "rows": new.iter().flatten().map(row).collect::<Vec<_>>(),
        });
        Ok(of_cell(&pair.cell, figures))
    };
    repeat.pairs.iter().map(one).collect()
}

/// Returns the report as CSV: one line for each cell, followed by a line for each figure that its command
/// prints, and for each load that the plan offers to it.
pub(super) fn csv(run: &Run, reduced: &Reduced) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Error::environment(format!("cannot write CSV: {error}"));
    let heads = CELL_COLUMNS.map(|(name, _)| name).into_iter().chain(COLUMNS.map(|(name, _)| name));
    let heads = heads.chain(["skipped", "emulated", "rounds", "disturbed_rounds"]);
    let heads = heads.chain(offered::COLUMNS).chain(observer::COLUMNS).chain(streams::COLUMNS);
    let heads = heads.chain(printed::CSV_COLUMNS);
    writer.write_record(heads).map_err(failed)?;
    let of_run = [
        run.environment.is_emulated().to_string(),
        reduced.disturbance.rounds().to_string(),
        reduced.disturbance.disturbed().to_string(),
    ];
    let no_figure = || printed::CSV_COLUMNS.map(|_| String::new());
    let no_load = || offered::COLUMNS.map(|_| String::new());
    let nothing_beside = || std::array::from_fn(|_| String::new());
    let mut write = |cell: &Cell,
                     figures: [String; COLUMNS.len()],
                     skipped: String,
                     load: [String; 2],
                     beside: [String; BESIDE],
                     figure: [String; 3]| {
        let of_cell = CELL_COLUMNS.map(|(_, field)| field(cell));
        let line = of_cell.into_iter().chain(figures).chain([skipped]).chain(of_run.clone()).chain(load).chain(beside);
        let line = line.chain(figure);
        writer.write_record(line).map_err(failed)
    };
    for summary in &reduced.cells {
        let scale = summary.cell.workload.cpu_unit().cpu_scale();
        let shown = Summary { cpu: summary.cpu.times(scale), ..summary.clone() };
        let figures = COLUMNS.map(|(_, field)| field(&shown));
        write(&summary.cell, figures, String::new(), no_load(), beside(summary), no_figure())?;
        for own in &summary.figures {
            let figure = [own.key.name.to_string(), own.key.unit.to_string(), own.value.to_string()];
            write(&summary.cell, COLUMNS.map(|_| String::new()), String::new(), no_load(), nothing_beside(), figure)?;
        }
        for load in &summary.offered {
            let figures = COLUMNS.map(|(name, _)| offered::field(load, name));
            write(&summary.cell, figures, String::new(), offered::fields(load), nothing_beside(), no_figure())?;
        }
    }
    for skipped in &reduced.skipped {
        let reason = text::field(&skipped.reason.replace("\n  ", "; "));
        write(&skipped.cell, COLUMNS.map(|_| String::new()), reason, no_load(), nothing_beside(), no_figure())?;
    }
    let bytes = writer.into_inner().context("cannot write CSV")?;
    String::from_utf8(bytes).context("cannot write CSV")
}

/// Number of columns with further figures of a cell, after those of its loads.
const BESIDE: usize = observer::COLUMNS.len() + streams::COLUMNS.len();

/// Returns the further figures of a cell.
fn beside(summary: &Summary) -> [String; BESIDE] {
    let mut all = observer::fields(summary).into_iter().chain(streams::fields(summary));
    std::array::from_fn(|_| all.next().unwrap_or_default())
}

/// A column of the CSV: its name and the function that returns its field.
type Column<T> = (&'static str, fn(&T) -> String);

const CELL_COLUMNS: [Column<Cell>; 5] = [
    ("path", |cell| text::field(&cell.path)),
    ("workload", |cell| cell.workload.to_string()),
    ("mtu", |cell| cell.mtu.map(|mtu| mtu.to_string()).unwrap_or_default()),
    ("clients", |cell| cell.clients.to_string()),
    ("level", |cell| text::field(&cell.level)),
];

/// The columns with the figures of a measured cell.
const COLUMNS: [Column<Summary>; 34] = [
    ("io", |summary| text::field(&summary.median.io)),
    ("trials", |summary| summary.trials.to_string()),
    ("rate", |summary| summary.rate.to_string()),
    ("rate_unit", |summary| summary.cell.workload.unit().rate_name().to_owned()),
    ("rate_mean", |summary| summary.rate_estimate.value.to_string()),
    ("rate_low", |summary| optional(summary.rate_estimate.low)),
    ("rate_high", |summary| optional(summary.rate_estimate.high)),
    ("p50_us", |summary| optional(summary.latency.p50)),
    ("p90_us", |summary| optional(summary.latency.p90)),
    ("p99_us", |summary| optional(summary.latency.p99)),
    ("p999_us", |summary| optional(summary.latency.p999)),
    ("max_us", |summary| optional(summary.latency.max)),
    ("cpu_method", |summary| summary.cpu.method.to_string()),
    ("cpu_unit", |summary| summary.cell.workload.cpu_unit().cpu_name().to_owned()),
    ("cpu_total", |summary| summary.cpu.total.total.to_string()),
    ("cpu_virtual", |summary| summary.cpu.total.user.to_string()),
    ("cpu_cp", |summary| summary.cpu.total.kernel.to_string()),
    ("client_cpu", |summary| of_path(summary, |cpu| cpu.client.total)),
    ("client_virtual", |summary| of_path(summary, |cpu| cpu.client.user)),
    ("command_cpu", |summary| of_command(summary, |cpu| cpu.client.total)),
    ("command_virtual", |summary| of_command(summary, |cpu| cpu.client.user)),
    ("router_cpu", |summary| optional(summary.cpu.router.map(|router| router.total))),
    ("router_virtual", |summary| optional(summary.cpu.router.map(|router| router.user))),
    ("server_cpu", |summary| of_path(summary, |cpu| cpu.server.total)),
    ("server_virtual", |summary| of_path(summary, |cpu| cpu.server.user)),
    ("other_cpu", |summary| summary.cpu.other.total.to_string()),
    ("residue", |summary| summary.cpu.residue.to_string()),
    ("wait", |summary| summary.cpu.total.wait.to_string()),
    ("client_wait", |summary| summary.cpu.client.wait.to_string()),
    ("router_wait", |summary| optional(summary.cpu.router.map(|router| router.wait))),
    ("server_wait", |summary| summary.cpu.server.wait.to_string()),
    ("retransmits", |summary| summary.retransmits().map(|count| count.to_string()).unwrap_or_default()),
    ("drops", |summary| summary.drops.to_string()),
    ("errors", |summary| summary.errors.to_string()),
];

/// Returns true for a command without a server: it has one side only.
fn is_alone(summary: &Summary) -> bool {
    summary.cell.workload.is_command() && !summary.median.has_server()
}

/// Returns a CPU time of client or server. A command without a server has neither.
fn of_path(summary: &Summary, time: fn(&Cpu) -> f64) -> String {
    optional((!is_alone(summary)).then(|| time(&summary.cpu)))
}

fn of_command(summary: &Summary, time: fn(&Cpu) -> f64) -> String {
    optional(is_alone(summary).then(|| time(&summary.cpu)))
}

fn optional(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
