//! What the runs of commands used besides time and CPU time, as a table.

use super::fit::{Column, Field, Line};
use super::words::number;
use siga_results::summary::Summary;

/// The columns of the table.
pub(super) const COLUMNS: [Column<'static>; 12] = [
    Column { head: "", right: false, drop: 0, shorten: 0 },
    Column { head: "faults", right: true, drop: 3, shorten: 0 },
    Column { head: "major", right: true, drop: 6, shorten: 0 },
    Column { head: "switches", right: true, drop: 4, shorten: 0 },
    Column { head: "preempted", right: true, drop: 5, shorten: 0 },
    Column { head: "read MB", right: true, drop: 0, shorten: 0 },
    Column { head: "written MB", right: true, drop: 0, shorten: 0 },
    Column { head: "disk reads", right: true, drop: 1, shorten: 0 },
    Column { head: "disk writes", right: true, drop: 1, shorten: 0 },
    Column { head: "CPU wait", right: true, drop: 2, shorten: 0 },
    Column { head: "I/O wait", right: true, drop: 2, shorten: 0 },
    Column { head: "J", right: true, drop: 7, shorten: 0 },
];

/// The explanation of the table.
pub(super) const LEGEND: &str = "\
Resources of one execution: page faults (major: with I/O), context switches (preempted: another thread got the CPU), and MB \
from and to file systems. Disk operations, energy, and the share of time in which a task waited for a CPU or for I/O are those of the whole host.";

/// Returns the row of a cell.
pub(super) fn row(summary: &Summary) -> Line {
    let used = summary.median.command.clone().unwrap_or_default();
    let (usage, host) = (used.usage, used.host.unwrap_or_default());
    let runs = summary.median.units().max(f64::MIN_POSITIVE);
    let wall_ns = summary.median.cpu.wall_ns.max(1) as f64;
    let each = |count: u64| Field::from(number(count as f64 / runs));
    let mb = |bytes: u64| Field::from(number(bytes as f64 / 1e6 / runs));
    let share =
        |ns: Option<u64>| ns.map_or("-".into(), |ns| Field::from(format!("{:.1}%", 100.0 * ns as f64 / wall_ns)));
    Line::Row(vec![
        format!("  {}", summary.cell.level).into(),
        each(usage.faults_minor),
        each(usage.faults_major),
        each(usage.switches_voluntary),
        each(usage.switches_involuntary),
        mb(usage.bytes_read),
        mb(usage.bytes_written),
        each(host.disk_reads),
        each(host.disk_writes),
        share(host.cpu_pressure_ns),
        share(host.io_pressure_ns),
        host.energy_uj.map_or("-".into(), |uj| Field::from(number(uj as f64 / 1e6 / runs))),
    ])
}
