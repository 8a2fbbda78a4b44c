//! The monitor's sampler: reads the counters of all processes of a network or a place, and of the host.
//!
//! The caller calls [`Monitor::read`] once for each interval, and computes samples from the readings. A reading costs little: a network is
//! asked by one request, files in /proc stay open, and a process that used no CPU time is not read again.

mod host;
mod network;
mod place;
mod process;

use crate::clock::now_ns;
use crate::cpu::{delay, process as own};
use crate::limits::MONITORED_MAX;
use host::HostReader;
use network::NetworkSource;
use place::PlaceSource;
use process::ProcessReader;
use siga_model::error::Result;
use siga_model::name::Name;
use siga_plan::place::Place;
use siga_results::monitor::{CpuReading, NetReading, ProcessReading, Reading, Role, State, Who};
use std::collections::HashMap;
use std::time::SystemTime;

/// A monitor of one network or place.
#[derive(Debug)]
pub struct Monitor {
    source: Source,
    host: HostReader,
    readers: HashMap<u32, ProcessReader>,
}

/// Where the list of processes comes from.
#[derive(Debug)]
enum Source {
    Network(Box<NetworkSource>),
    Place(PlaceSource),
    /// Processes that do not change.
    Processes(Vec<Found>),
}

/// A process that a source names, and the counters of its stack.
#[derive(Debug, Clone)]
struct Found {
    /// The name of the guest. `None` if the process has the name of its program.
    name: Option<String>,
    role: Role,
    guest: Option<String>,
    pid: Option<u32>,
    state: State,
    restarts: u32,
    net: Option<NetReading>,
}

impl Found {
    /// Returns a running process without a stack.
    fn process(role: Role, pid: u32) -> Self {
        Self { name: None, role, guest: None, pid: Some(pid), state: State::Running, restarts: 0, net: None }
    }
}

impl Monitor {
    /// Makes a monitor of a network.
    ///
    /// # Errors
    /// Returns an error if the network is not up, or if /proc is not readable.
    pub fn of_network(name: &Name) -> Result<Self> {
        Self::of(Source::Network(Box::new(NetworkSource::open(name)?)))
    }

    /// Makes a monitor of the processes in the network namespace of a place on this host.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` for a place on another host, and of kind `Environment` if the place does not exist.
    pub fn of_place(place: &Place) -> Result<Self> {
        Self::of(Source::Place(PlaceSource::open(place)?))
    }

    /// Makes a monitor of these processes of this host, each with its name and role. It reads only CPU times, so it takes no CPU time of
    /// the processes.
    ///
    /// # Errors
    /// Returns an error if /proc is not readable.
    pub(crate) fn of_processes(processes: Vec<(String, Role, u32)>) -> Result<Self> {
        let found = |(name, role, pid)| Found { name: Some(name), ..Found::process(role, pid) };
        Self::of(Source::Processes(processes.into_iter().map(found).collect()))
    }

    fn of(source: Source) -> Result<Self> {
        // Each process needs two open files.
        crate::place::raise_descriptor_limit();
        Ok(Self { source, host: HostReader::open()?, readers: HashMap::new() })
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// Returns an error of kind `Incomplete` if the network or the place has ended.
    pub fn read(&mut self) -> Result<Reading> {
        let mut found = match &mut self.source {
            Source::Network(network) => {
                network.find(|pid| self.readers.get(&pid).is_some_and(ProcessReader::is_still))?
            }
            Source::Place(place) => place.find()?,
            Source::Processes(processes) => processes.clone(),
        };
        found.truncate(MONITORED_MAX);
        let at_ns = now_ns();
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let host = self.host.read();
        let mut readers = std::mem::take(&mut self.readers);
        let mut processes = Vec::with_capacity(found.len());
        for Found { name, role, guest, pid, state, restarts, net } in found {
            let reader = pid.and_then(|pid| readers.remove(&pid).or_else(|| ProcessReader::open(pid)));
            let read = reader.and_then(|mut reader| Some((reader.read()?, reader)));
            let (cpu, reader) = read.unzip();
            if name.is_none() && reader.is_none() {
                // The process ended before it was read.
                continue;
            }
            let name = name.unwrap_or_else(|| reader.as_ref().map(ProcessReader::name).unwrap_or_default());
            if let (Some(pid), Some(reader)) = (pid, reader) {
                self.readers.insert(pid, reader);
            }
            let who = Who { name, role, guest, pid, state, restarts };
            processes.push(ProcessReading { who, cpu, net });
        }
        Ok(Reading { at, at_ns, host, processes, monitor: monitor() })
    }
}

/// Returns the CPU time of this process.
fn monitor() -> CpuReading {
    let cpu = own::own();
    CpuReading { run_ns: cpu.run_ns, virtual_ns: cpu.user_ns, wait_ns: delay::own() }
}
