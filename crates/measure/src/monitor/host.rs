//! The CPU time and the pressure of the host. The files stay open from one reading to the next.

use super::process::read_at_start;
use crate::cpu::activity::pressure;
use crate::cpu::host::HostCpu;
use siga_model::error::{IoContext, Result};
use siga_results::monitor::HostReading;
use std::fs::File;

/// Maximum number of bytes that are read of /proc/stat. Its first lines, one for each CPU, are needed.
const STAT_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes that are read of a file of pressure.
const PRESSURE_BYTES_MAX: usize = 512;

/// Reads the counters of the host.
#[derive(Debug)]
pub(super) struct HostReader {
    stat: File,
    pressure: [Option<File>; 3],
    buffer: Vec<u8>,
}

impl HostReader {
    pub(super) fn open() -> Result<Self> {
        let stat = File::open("/proc/stat").context("cannot open /proc/stat")?;
        let pressure = ["cpu", "io", "memory"].map(|what| File::open(format!("/proc/pressure/{what}")).ok());
        Ok(Self { stat, pressure, buffer: vec![0; STAT_BYTES_MAX] })
    }

    /// Returns the counters; zeros if the kernel writes /proc/stat in an unknown format.
    pub(super) fn read(&mut self) -> HostReading {
        let text = read_at_start(&self.stat, &mut self.buffer).unwrap_or_default();
        let cpu = HostCpu::of_stat(&text);
        let buffer = &mut self.buffer[..PRESSURE_BYTES_MAX];
        let mut read = |file: &Option<File>| {
            let text = read_at_start(file.as_ref()?, buffer)?;
            pressure(&text)
        };
        let pressure_ns = [read(&self.pressure[0]), read(&self.pressure[1]), read(&self.pressure[2])];
        let Some(cpu) = cpu else { return HostReading { pressure_ns, ..HostReading::default() } };
        HostReading {
            cpus: cpu.cpus,
            virtual_ns: cpu.user_tick_ns,
            cp_ns: cpu.system_tick_ns.saturating_add(cpu.softirq_tick_ns),
            idle_ns: cpu.idle_ns,
            steal_ns: cpu.steal_ns,
            pressure_ns,
        }
    }
}
