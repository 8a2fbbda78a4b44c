//! Two more guests on the cards of client and server: the traffic beside the measured traffic. Their agents are processes of the trial,
//! but no component of the path: their CPU time counts as other CPU time.

use super::ends::Neighbours as Ends;
use crate::agent::launch::{Programs, launch};
use crate::agent::protocol::{Answer, Order};
use crate::channel::ChildProcess;
use crate::limits;
use crate::load::client::{ClientConfig, Phase};
use crate::load::datagrams::random_trial;
use crate::load::server::ServerConfig;
use siga_model::error::{IoContext, Result};
use siga_plan::place::Place;
use siga_plan::workload::{Close, Workload};
use std::time::Duration;

/// Number of connections, so that the transactions rarely wait for each other.
const PAIRS: u32 = 16;
/// Transactions per second. With responses of 64 KB, they take four fifths of a wire of 1 Gbit/s.
const RATE: f64 = 1_500.0;
/// The workload.
const WORKLOAD: &str = "rr:200/64k";
/// Longest time for which the traffic runs. It ends with the trial.
const TIME_MAX: Duration = Duration::from_secs(600);

/// The agents. Dropping this value ends them.
#[derive(Debug)]
pub(super) struct Neighbours {
    client: ChildProcess,
    server: ChildProcess,
}

impl Neighbours {
    /// Starts the agents and their traffic.
    pub(super) fn start(ends: &Ends, from: Programs<'_>, write_bytes: u64) -> Result<Self> {
        let start = |name: &str| launch(&Place::Local, name, None, from).map(|agent| agent.process);
        let mut own = Self { server: start("server of the neighbours")?, client: start("client of the neighbours")? };
        let trial = random_trial().context("cannot get random numbers for the trial from the kernel")?;
        let (workload, close) = (WORKLOAD.parse::<Workload>()?, Close::Server);
        let [of_client, of_server] = &ends.sockets;
        let config = ServerConfig {
            workload,
            endpoint: ends.endpoint.clone(),
            close,
            write_bytes,
            extra_cpu_ns: 0,
            delay_ns: 0,
            trial,
        };
        let order = Order::Serve { config, sockets: of_server.clone(), processes: 1, pairs: PAIRS, cpus: Vec::new() };
        let answer = own.server.ask(&order, limits::ANSWER_TIME_MAX)?;
        let Answer::Serving { endpoints } = answer else { return Err(own.server.unexpected(&answer)) };
        let config = ClientConfig {
            workload,
            pairs: PAIRS,
            first_pair: 0,
            endpoints,
            close,
            write_bytes,
            extra_cpu_ns: 0,
            trial,
        };
        let order = Order::Connect { config, sockets: of_client.clone(), processes: 1, cpus: Vec::new() };
        let answer = own.client.ask(&order, limits::CONNECT_TIME_MAX)?;
        let Answer::Connected = answer else { return Err(own.client.unexpected(&answer)) };
        let duration_ns = u64::try_from(TIME_MAX.as_nanos()).unwrap_or(u64::MAX);
        let phase = Phase { start_ns: 0, duration_ns, stride: limits::STAMP_STRIDE_BYTES, rate: Some(RATE) };
        own.client.send(&Order::Run { phase, interval_ns: None })?;
        Ok(own)
    }

    /// Returns the process ids of the agents.
    pub(super) fn pids(&self) -> [u32; 2] {
        [self.client.pid(), self.server.pid()]
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        // In the middle of their traffic, they would not notice the end of their input.
        [&mut self.client, &mut self.server].into_iter().for_each(|agent| agent.end_within(Duration::ZERO));
    }
}
