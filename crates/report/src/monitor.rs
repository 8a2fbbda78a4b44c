//! Samples of the monitor, as tables, CSV, JSON lines, OpenMetrics, and in the layout of z/VM's reports.

mod grid;
mod metrics;
mod zvm;

pub use grid::Grid;
pub use metrics::metrics;
pub use zvm::{Users, summary_head, summary_line};

use crate::format::csv;
use serde_json::{Value, json};
use siga_model::error::{IoContext, Result};
use siga_model::text;
use siga_results::monitor::{CpuSample, HostSample, ProcessSample, Sample};

/// The columns of the CSV.
const COLUMNS: [&str; 26] = [
    "at",
    "sample",
    "seconds",
    "target",
    "name",
    "role",
    "guest",
    "pid",
    "state",
    "restarts",
    "cpu_percent",
    "virtual_ms",
    "cp_ms",
    "wait_ms",
    "idle_ms",
    "steal_ms",
    "cpu_pressure_ms",
    "io_pressure_ms",
    "memory_pressure_ms",
    "packets_sent",
    "packets_received",
    "bytes_sent",
    "bytes_received",
    "dropped",
    "connections",
    "ring_fill_percent",
];

/// Returns the first lines of a table: the time, the host, and the monitor's own cost.
pub fn heading(target: &str, sample: &Sample) -> Vec<String> {
    let HostSample { cpus, virtual_ms, cp_ms, steal_ms, .. } = sample.host;
    let host = &sample.host;
    let percent = |ms: f64| format!("{:.1}%", host.percent(ms));
    let pressure = |ms: Option<f64>| match ms {
        Some(ms) => format!("{:.1}%", ms / sample.seconds.max(1e-9) / 10.0),
        None => "-".to_owned(),
    };
    vec![
        format!("{target}  {}  sample {} ({:.2} s)", sample.at, sample.number, sample.seconds),
        format!(
            "host: {cpus} CPUs, {} virtual, {} CP, {} steal; pressure: CPU {}, I/O {}, memory {}; monitor: {:.2}% of a CPU",
            percent(virtual_ms),
            percent(cp_ms),
            percent(steal_ms),
            pressure(host.cpu_pressure_ms),
            pressure(host.io_pressure_ms),
            pressure(host.memory_pressure_ms),
            sample.monitor.percent
        ),
    ]
}

/// Returns a sample as text that fits a screen.
pub fn table(target: &str, sample: &Sample, width: usize) -> String {
    let mut lines = heading(target, sample);
    lines.extend(Grid::of(sample, width).lines());
    text::lines(&(lines.join("\n") + "\n\n"))
}

/// Returns a sample as one line of JSON.
///
/// # Errors
/// Returns an error of kind `Environment` if a figure is not finite.
pub fn json_line(target: &str, sample: &Sample) -> Result<String> {
    let mut value = json!({ "format": "siga/monitor/1", "target": target });
    if let (Value::Object(all), Value::Object(more)) = (&mut value, json!(sample)) {
        all.extend(more);
    }
    Ok(text::json(&serde_json::to_string(&value).context("cannot write JSON")?) + "\n")
}

/// Returns a sample as CSV records: one for the host, one for the monitor, and one for each process. The first sample begins with the
/// names of the columns.
///
/// # Errors
/// Returns an error of kind `Environment` if the records cannot be written.
pub fn csv_records(target: &str, sample: &Sample) -> Result<String> {
    let common = |name: &str, role: &str, cpu: Option<&CpuSample>| {
        json!({
            "at": sample.at, "sample": sample.number, "seconds": sample.seconds, "target": target, "name": name, "role": role,
            "cpu_percent": cpu.map(|cpu| cpu.percent), "virtual_ms": cpu.map(|cpu| cpu.virtual_ms),
            "cp_ms": cpu.map(|cpu| cpu.cp_ms), "wait_ms": cpu.and_then(|cpu| cpu.wait_ms),
        })
    };
    let with = |mut value: Value, more: Value| {
        if let (Value::Object(all), Value::Object(more)) = (&mut value, more) {
            all.extend(more);
        }
        value
    };
    let host = &sample.host;
    let percent = f64::from(host.cpus) * host.percent(host.virtual_ms + host.cp_ms);
    let of_host = with(with(common("host", "host", None), json!(host)), json!({ "cpu_percent": percent }));
    let of_process = |process: &ProcessSample| {
        let own = common(&process.who.name, process.who.role.name(), process.cpu.as_ref());
        with(with(own, json!(process.who)), json!(process.net))
    };
    let monitor = common("monitor", "monitor", Some(&sample.monitor));
    let records = [of_host, monitor].into_iter().chain(sample.processes.iter().map(of_process));
    let all = csv(COLUMNS, records)?;
    let body = all.split_once('\n').map_or("", |(_, body)| body);
    Ok(if sample.number == 1 { all } else { body.to_owned() })
}

#[cfg(test)]
mod tests;
