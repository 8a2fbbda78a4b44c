//! The CPU time that the processes of a network have used since they started, as z/VM's QUERY TIME shows it for a virtual machine.

use crate::net::StatusFormat;
use crate::print;
use serde_json::json;
use siga_measure::monitor::Monitor;
use siga_model::error::Result;
use siga_model::name::Name;
use siga_results::monitor::ProcessReading;
use std::fmt::Write as _;

/// Prints the CPU time of each process of a network.
pub(super) fn print_time(network: &Name, format: StatusFormat) -> Result<()> {
    let reading = Monitor::of_network(network)?.read()?;
    print(&match format {
        StatusFormat::Text => text(&reading.processes),
        StatusFormat::Json => format!("{:#}\n", json!({ "processes": values(&reading.processes) })),
    })
}

/// Returns virtual and total CPU time of a process in seconds. `None` if there is no process.
fn seconds(process: &ProcessReading) -> Option<[f64; 2]> {
    let cpu = process.cpu?;
    Some([cpu.virtual_ns, cpu.run_ns].map(|ns| ns as f64 / 1e9))
}

fn text(processes: &[ProcessReading]) -> String {
    let label = |process: &ProcessReading| match &process.who.guest {
        Some(guest) => format!("{guest}/{}", process.who.name),
        None => process.who.name.clone(),
    };
    let width = processes.iter().map(|process| label(process).chars().count()).max().unwrap_or(0).max(7);
    let mut text = format!("{:width$} {:<11} {:>14} {:>14}\n", "process", "role", "virtual (s)", "total (s)");
    for process in processes {
        let times =
            seconds(process).map_or(["-".to_owned(), "-".to_owned()], |times| times.map(|time| format!("{time:.6}")));
        let (label, role) = (label(process), process.who.role.name());
        let _ = writeln!(text, "{label:width$} {role:<11} {:>14} {:>14}", times[0], times[1]);
    }
    text
}

fn values(processes: &[ProcessReading]) -> Vec<serde_json::Value> {
    let value = |process: &ProcessReading| {
        let [virtual_s, total_s] = seconds(process).map_or([None, None], |times| times.map(Some));
        let who = &process.who;
        json!({
            "name": who.name, "role": who.role, "guest": who.guest, "pid": who.pid,
            "virtual_s": virtual_s, "total_s": total_s,
        })
    };
    processes.iter().map(value).collect()
}
