//! The reports for programs: JSON (`siga/run/1`) and CSV. Full precision, nothing rounded.

use super::zvm::answers;
use super::zvm::pairs::Pair;
use super::zvm::repeat::Repeat;
use super::zvm::rows::column;
use serde_json::{Value, json};
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use siga_plan::path::guest::NAMES;
use siga_results::histogram::Percentiles;
use siga_results::reduce::{Blocks, Figure};
use siga_results::store::Run;
use siga_results::summary::{Beside, Component, Cpu, Reduced, RouterOverhead, Summary};

/// The report as one JSON object.
pub(super) fn json(run: &Run, reduced: &Reduced, repeat: &Repeat) -> Result<String> {
    let cells: Vec<Value> = reduced.cells.iter().map(cell).collect();
    let overheads: Vec<Value> = reduced.overheads.iter().map(overhead).collect();
    let beside: Vec<Value> = reduced.beside.iter().map(one_beside).collect();
    let skipped: Vec<Value> = reduced
        .skipped
        .iter()
        .map(|skipped| {
            json!({
                "path": skipped.cell.path,
                "workload": skipped.cell.workload.to_string(),
                "mtu": skipped.cell.mtu,
                "clients": skipped.cell.clients,
                "level": skipped.cell.level,
                "skipped": skipped.reason,
            })
        })
        .collect();
    let all: Vec<Value> = cells.into_iter().chain(skipped).collect();
    let report = json!({
        "schema": "siga/run/1",
        "plan": run.plan.name,
        "smoke": run.plan.smoke,
        "environment": run.environment,
        "cells": all,
        "hops": overheads,
        "beside": beside,
        "levels": levels(reduced, repeat)?,
        "findings": answers::json(reduced, repeat),
        "damage": run.damage,
    });
    let json = serde_json::to_string_pretty(&report).context("cannot write JSON")?;
    Ok(text::json(&json) + "\n")
}

fn cell(summary: &Summary) -> Value {
    let cpu = &summary.cpu;
    let unit = summary.cell.workload.unit();
    json!({
        "path": summary.cell.path,
        "workload": summary.cell.workload.to_string(),
        "mtu": summary.cell.mtu,
        "clients": summary.cell.clients,
        "level": summary.cell.level,
        "io": summary.median.io,
        "trials": summary.trials,
        "rate": summary.rate,
        "rate_unit": unit.rate_name(),
        "rate_mean": summary.rate_estimate,
        "latency_us": latency(&summary.latency),
        "latency_corrected_us": summary.corrected.as_ref().map(latency),
        "cpu": {
            "method": cpu.method,
            "unit": format!("msec/{}", unit.name()),
            "total": cpu.total.total,
            "virtual": cpu.total.user,
            "cp": cpu.total.kernel,
            "wait": cpu.total.wait,
            "uncertainty": finite(cpu.total.uncertainty),
            "utilisation": cpu.utilisation,
            "components": {
                "client": component(&cpu.client),
                "router": cpu.router.as_ref().map(component),
                "server": component(&cpu.server),
                "other": component(&cpu.other),
            },
            "guests": guests(cpu),
            "residue": cpu.residue,
        },
        "pair_units": {"least": summary.median.pair_units.0, "most": summary.median.pair_units.1},
        "retransmits": summary.retransmits(),
        "drops": summary.drops,
        "errors": summary.errors,
        "flags": summary.flags.iter().map(|(flag, _)| flag).collect::<Vec<_>>(),
        "skipped": null,
    })
}

fn latency(percentiles: &Percentiles) -> Value {
    json!(percentiles)
}

/// JSON has no infinity: an unknown uncertainty is null.
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

/// The processes of a siga network by their names in z/VM's reports; null for other paths. With the residue they add up.
fn guests(cpu: &Cpu) -> Option<Value> {
    let control = cpu.control.as_ref()?;
    let [client, router, server] = NAMES;
    let mut guests = serde_json::Map::new();
    // A workload driver in the process of its stack cannot be separated from the stack.
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
    json!({
        "path": overhead.cell.path,
        "base": overhead.base.path,
        "workload": overhead.cell.workload.to_string(),
        "mtu": overhead.cell.mtu,
        "clients": overhead.cell.clients,
        "level": overhead.cell.level,
        "cpu_msec": overhead.cpu,
        "rate_ratio": overhead.rate_ratio,
        "latency_p50_us": overhead.latency_us,
    })
}

fn one_beside(one: &Beside) -> Value {
    json!({
        "path": one.cell.path,
        "kernel": one.kernel.path,
        "workload": one.cell.workload.to_string(),
        "mtu": one.cell.mtu,
        "kernel_mtu": one.kernel.mtu,
        "clients": one.cell.clients,
        "level": one.cell.level,
        "wait": one.wait,
        "colocated": one.colocated,
        "rate_ratio": one.rate,
        "cpu_ratio": one.cpu,
    })
}

/// Each cell of a further level beside the base: every row of the printed tables with measured and published ratio.
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
        let cell = &pair.cell;
        Ok(json!({
            "path": cell.path,
            "workload": cell.workload.to_string(),
            "mtu": cell.mtu,
            "clients": cell.clients,
            "base_level": pair.base_level,
            "level": cell.level,
            "table": pair.table.map(|table| &repeat.published[table].id),
            "rows": new.iter().flatten().map(row).collect::<Vec<_>>(),
        }))
    };
    repeat.pairs.iter().map(one).collect()
}

/// The report as CSV: one line for each cell.
pub(super) fn csv(reduced: &Reduced) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Error::environment(format!("cannot write CSV: {error}"));
    writer.write_record(HEAD).map_err(failed)?;
    for summary in &reduced.cells {
        writer.write_record(line(summary)).map_err(failed)?;
    }
    for skipped in &reduced.skipped {
        let cell = &skipped.cell;
        let mut line = vec![String::new(); HEAD.len()];
        line[0] = text::field(&cell.path);
        line[1] = cell.workload.to_string();
        line[2] = cell.mtu.map(|mtu| mtu.to_string()).unwrap_or_default();
        line[3] = cell.clients.to_string();
        line[4] = text::field(&cell.level);
        line[HEAD.len() - 1] = text::field(&skipped.reason.replace("\n  ", "; "));
        writer.write_record(line).map_err(failed)?;
    }
    let bytes = writer.into_inner().context("cannot write CSV")?;
    String::from_utf8(bytes).context("cannot write CSV")
}

const HEAD: [&str; 38] = [
    "path",
    "workload",
    "mtu",
    "clients",
    "level",
    "io",
    "trials",
    "rate",
    "rate_unit",
    "rate_mean",
    "rate_low",
    "rate_high",
    "p50_us",
    "p90_us",
    "p99_us",
    "p999_us",
    "max_us",
    "cpu_method",
    "cpu_unit",
    "cpu_total",
    "cpu_virtual",
    "cpu_cp",
    "client_cpu",
    "client_virtual",
    "router_cpu",
    "router_virtual",
    "server_cpu",
    "server_virtual",
    "other_cpu",
    "residue",
    "wait",
    "client_wait",
    "router_wait",
    "server_wait",
    "retransmits",
    "drops",
    "errors",
    "skipped",
];

fn line(summary: &Summary) -> Vec<String> {
    let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let (cell, cpu, unit) = (&summary.cell, &summary.cpu, summary.cell.workload.unit());
    vec![
        text::field(&cell.path),
        cell.workload.to_string(),
        cell.mtu.map(|mtu| mtu.to_string()).unwrap_or_default(),
        cell.clients.to_string(),
        text::field(&cell.level),
        text::field(&summary.median.io),
        summary.trials.to_string(),
        summary.rate.to_string(),
        unit.rate_name().to_owned(),
        summary.rate_estimate.value.to_string(),
        optional(summary.rate_estimate.low),
        optional(summary.rate_estimate.high),
        optional(summary.latency.p50),
        optional(summary.latency.p90),
        optional(summary.latency.p99),
        optional(summary.latency.p999),
        optional(summary.latency.max),
        cpu.method.to_string(),
        format!("msec/{}", unit.name()),
        cpu.total.total.to_string(),
        cpu.total.user.to_string(),
        cpu.total.kernel.to_string(),
        cpu.client.total.to_string(),
        cpu.client.user.to_string(),
        optional(cpu.router.map(|router| router.total)),
        optional(cpu.router.map(|router| router.user)),
        cpu.server.total.to_string(),
        cpu.server.user.to_string(),
        cpu.other.total.to_string(),
        cpu.residue.to_string(),
        cpu.total.wait.to_string(),
        cpu.client.wait.to_string(),
        optional(cpu.router.map(|router| router.wait)),
        cpu.server.wait.to_string(),
        summary.retransmits().map(|count| count.to_string()).unwrap_or_default(),
        summary.drops.to_string(),
        summary.errors.to_string(),
        String::new(),
    ]
}
