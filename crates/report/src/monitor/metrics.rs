//! A reading in the text format of OpenMetrics 1.0, which Prometheus reads.

use siga_results::monitor::{CpuReading, NetReading, ProcessReading, Reading, State};
use std::fmt::Write;

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// The text under construction.
struct Text<'a> {
    text: String,
    /// The network or place.
    target: &'a str,
}

/// Returns a reading in the text format of OpenMetrics.
pub fn metrics(target: &str, reading: &Reading) -> String {
    let mut text = Text { text: String::new(), target };
    text.host(reading);
    text.processes(&reading.processes);
    text.family("siga_monitor_cpu_seconds", Kind::Counter, "seconds", "CPU time of siga monitor itself.");
    for (mode, seconds) in modes(&reading.monitor) {
        text.value("siga_monitor_cpu_seconds_total", &[("mode", mode)], seconds);
    }
    text.text.push_str("# EOF\n");
    text.text
}

fn modes(cpu: &CpuReading) -> [(&'static str, f64); 2] {
    let cp = cpu.run_ns.saturating_sub(cpu.virtual_ns);
    [("virtual", seconds(cpu.virtual_ns)), ("cp", seconds(cp))]
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Text<'_> {
    fn family(&mut self, name: &str, kind: Kind, unit: &str, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {help}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{name}{{target=\"{}\"", escaped(self.target));
        for (label, text) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(text));
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    fn host(&mut self, reading: &Reading) {
        let host = &reading.host;
        self.family("siga_host_cpu_seconds", Kind::Counter, "seconds", "CPU time of the host, summed over all CPUs.");
        for (mode, ns) in
            [("virtual", host.virtual_ns), ("cp", host.cp_ns), ("idle", host.idle_ns), ("steal", host.steal_ns)]
        {
            self.value("siga_host_cpu_seconds_total", &[("mode", mode)], seconds(ns));
        }
        let help = "Time in which a task waited for the resource (PSI, some).";
        self.family("siga_host_pressure_seconds", Kind::Counter, "seconds", help);
        for (resource, ns) in ["cpu", "io", "memory"].into_iter().zip(host.pressure_ns) {
            if let Some(ns) = ns {
                self.value("siga_host_pressure_seconds_total", &[("resource", resource)], seconds(ns));
            }
        }
    }

    fn processes(&mut self, processes: &[ProcessReading]) {
        self.cpu(processes);
        let one = |name: &'static str, kind, help, figure: fn(&NetReading) -> u64| (name, kind, help, figure);
        for (name, kind, help, figure) in [
            one("siga_dropped_packets", Kind::Counter, "Packets dropped for any reason.", |net| net.dropped),
            one("siga_tcp_connections", Kind::Gauge, "TCP connections without TIME-WAIT.", |net| net.connections),
            one("siga_ring_buffers", Kind::Gauge, "Buffers of the outgoing rings.", |net| net.buffers),
            one("siga_ring_buffers_used", Kind::Gauge, "Outgoing buffers in use.", |net| net.buffers_used),
        ] {
            self.family(name, kind, "", help);
            let name = if kind == Kind::Counter { format!("{name}_total") } else { name.to_owned() };
            for (process, net) in processes.iter().filter_map(|process| Some((process, process.net.as_ref()?))) {
                self.of(&name, process, None, figure(net) as f64);
            }
        }
        type Directions = fn(&NetReading) -> [u64; 2];
        let packets: Directions = |net| [net.packets_sent, net.packets_received];
        let bytes: Directions = |net| [net.bytes_sent, net.bytes_received];
        for (name, unit, help, both) in [
            ("siga_packets", "", "Packets by direction. A large segment is one packet.", packets),
            ("siga_traffic_bytes", "bytes", "Bytes of the packets by direction.", bytes),
        ] {
            self.family(name, Kind::Counter, unit, help);
            for (process, net) in processes.iter().filter_map(|process| Some((process, process.net.as_ref()?))) {
                for (direction, count) in ["sent", "received"].into_iter().zip(both(net)) {
                    self.of(&format!("{name}_total"), process, Some(("direction", direction)), count as f64);
                }
            }
        }
    }

    fn cpu(&mut self, processes: &[ProcessReading]) {
        let cpus = || processes.iter().filter_map(|process| Some((process, process.cpu.as_ref()?)));
        let help = "CPU time of the process: virtual is user mode, cp is the kernel.";
        self.family("siga_process_cpu_seconds", Kind::Counter, "seconds", help);
        for (process, cpu) in cpus() {
            for (mode, seconds) in modes(cpu) {
                self.of("siga_process_cpu_seconds_total", process, Some(("mode", mode)), seconds);
            }
        }
        let help = "Time in which threads of the process could run, but waited for a CPU.";
        self.family("siga_process_wait_seconds", Kind::Counter, "seconds", help);
        for (process, wait_ns) in cpus().filter_map(|(process, cpu)| Some((process, cpu.wait_ns?))) {
            self.of("siga_process_wait_seconds_total", process, None, seconds(wait_ns));
        }
        self.family("siga_process_up", Kind::Gauge, "", "1 if the process runs.");
        for process in processes {
            let is_up = process.who.state != State::Down;
            self.of("siga_process_up", process, None, f64::from(u8::from(is_up)));
        }
        self.family("siga_process_restarts", Kind::Counter, "", "Restarts of the guest after a failure.");
        for process in processes {
            self.of("siga_process_restarts_total", process, None, f64::from(process.who.restarts));
        }
    }

    /// Writes a value with the labels of a process.
    fn of(&mut self, name: &str, process: &ProcessReading, label: Option<(&str, &str)>, value: f64) {
        let who = &process.who;
        let pid = who.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let guest = who.guest.as_deref().unwrap_or_default();
        let own = [("name", who.name.as_str()), ("role", who.role.name()), ("guest", guest), ("pid", pid.as_str())];
        let labels: Vec<(&str, &str)> = own.into_iter().chain(label).collect();
        self.value(name, &labels, value);
    }
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    siga_model::text::name(text).replace('\\', "\\\\").replace('"', "\\\"")
}
