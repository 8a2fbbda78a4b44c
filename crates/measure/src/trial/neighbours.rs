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
use siga_model::error::{Error, IoContext, Result};
use siga_plan::place::Place;
use siga_plan::workload::{Close, Workload};
use std::time::{Duration, Instant};

/// Number of connections, so that the transactions rarely wait for each other.
const PAIRS: u32 = 16;
/// Transactions per second. With responses of 64 KB, they take four fifths of a wire of 1 Gbit/s.
const RATE: f64 = 1_500.0;
/// The workload.
const WORKLOAD: &str = "rr:200/64k";
/// Longest time for which the traffic runs. It ends with the trial.
const TIME_MAX: Duration = Duration::from_secs(600);

/// The number of transactions that the neighbours have completed at a point in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    transactions: u64,
    at: Instant,
}

impl Progress {
    /// Returns the number of transactions per second since `before`.
    pub(super) fn rate_since(self, before: Self) -> f64 {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-9);
        self.transactions.saturating_sub(before.transactions) as f64 / seconds
    }
}

/// The agents. Dropping this value ends them.
#[derive(Debug)]
pub(super) struct Neighbours {
    client: ChildProcess,
    server: ChildProcess,
}

impl Neighbours {
    /// Starts the agents and their traffic, and waits until each connection has completed a transaction on average.
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
        own.await_traffic()?;
        Ok(own)
    }

    fn await_traffic(&mut self) -> Result<()> {
        let begun = Instant::now();
        while self.progress()?.transactions < u64::from(PAIRS) {
            let flaw = self.flaw()?;
            if flaw.is_some() || begun.elapsed() > limits::STALL_TIME_MAX {
                let flaw = flaw.unwrap_or_else(|| "the neighbours exchange no data".to_owned());
                return Err(Error::incomplete(format!("before the trial, {flaw}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns what the neighbours have done so far. For this, their server pauses between two operations.
    pub(super) fn progress(&mut self) -> Result<Progress> {
        let answer = self.server.ask(&Order::Quiesce { received: vec![0] }, limits::ANSWER_TIME_MAX)?;
        let Answer::Quiesced { accounts } = answer else { return Err(self.server.unexpected(&answer)) };
        let progress =
            Progress { transactions: accounts.iter().map(|one| one.counts.transactions).sum(), at: Instant::now() };
        let answer = self.server.ask(&Order::Resume { stride: limits::STAMP_STRIDE_BYTES }, limits::ANSWER_TIME_MAX)?;
        let Answer::Resumed = answer else { return Err(self.server.unexpected(&answer)) };
        Ok(progress)
    }

    /// Returns the flaw of a trial during which the traffic has ended. Traffic without progress is no flaw: the measured traffic can
    /// leave nothing of the wire.
    pub(super) fn flaw(&mut self) -> Result<Option<String>> {
        if !self.client.has_answered()? {
            return Ok(None);
        }
        let reason = match self.client.receive::<Answer>(limits::ANSWER_TIME_MAX) {
            Ok(_) => "it stopped".to_owned(),
            Err(error) => error.message().to_owned(),
        };
        Ok(Some(format!("the traffic of the neighbours ended too early: {reason}")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::write_outcome;
    use crate::load::Quiesced;
    use siga_results::record::LoadCounts;

    fn shell(script: &str) -> ChildProcess {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]);
        ChildProcess::start(command, "neighbour").unwrap()
    }

    fn line(outcome: Result<Answer>) -> String {
        let mut bytes = Vec::new();
        write_outcome(&mut bytes, outcome).unwrap();
        String::from_utf8(bytes).unwrap().trim_end().to_owned()
    }

    /// Returns neighbours whose client does what `client` says, and whose server has completed 16 transactions, and then 48.
    fn neighbours(client: &str) -> Neighbours {
        let quiesced = |transactions| {
            let counts = LoadCounts { transactions, ..LoadCounts::default() };
            line(Ok(Answer::Quiesced { accounts: vec![Quiesced { counts, ..Quiesced::default() }] }))
        };
        let resumed = line(Ok(Answer::Resumed));
        let answers = [quiesced(16), resumed.clone(), quiesced(48), resumed];
        let server: String = answers.iter().map(|answer| format!("read order; echo '{answer}'; ")).collect();
        Neighbours { client: shell(client), server: shell(&format!("{server} read order")) }
    }

    #[test]
    fn the_rate_of_the_neighbours_is_that_between_two_readings() {
        let mut neighbours = neighbours("read order");
        neighbours.await_traffic().unwrap();
        let before = Progress { transactions: 16, at: Instant::now() };
        std::thread::sleep(Duration::from_millis(10));
        let now = neighbours.progress().unwrap();
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        assert!(seconds >= 0.01 && (now.rate_since(before) * seconds - 32.0).abs() < 1e-6);
        assert_eq!(neighbours.flaw().unwrap(), None);
    }

    #[test]
    fn neighbours_whose_traffic_ends_make_a_flaw() {
        let failed = line(Err(Error::incomplete("no progress")));
        let stopped = line(Ok(Answer::Stopped { sent: vec![1] }));
        for (client, reason) in [
            (format!("echo '{failed}'; read order"), "no progress"),
            (format!("echo '{stopped}'; read order"), "it stopped"),
            ("exit 3".to_owned(), "the process died (exit status: 3)"),
        ] {
            let mut neighbours = neighbours(&client);
            let begun = Instant::now();
            let flaw = loop {
                if let Some(flaw) = neighbours.flaw().unwrap() {
                    break flaw;
                }
                assert!(begun.elapsed() < Duration::from_secs(10), "{client}");
                std::thread::sleep(Duration::from_millis(1));
            };
            assert!(
                flaw.starts_with("the traffic of the neighbours ended too early: ") && flaw.contains(reason),
                "{flaw}"
            );
        }
    }
}
