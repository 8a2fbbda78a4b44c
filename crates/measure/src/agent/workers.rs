//! The worker processes of an agent. With the option `--processes`, an agent (client or server) starts one worker process for
//! each of its pairs. It passes every order on to all worker processes.
//!
//! The agent sends an order to all processes before it waits for the first answer, so that the processes work at the same time.
//! A phase begins in all processes at the same time, which the order contains. The agent combines the answers into one. Lists
//! with one figure per process have the same order as the pairs.

use super::launch::{self, AgentOptions};
use super::protocol::{Answer, Order, Report, Tick};
use crate::channel::{ChildProcess, write_outcome};
use crate::clock::now_ns;
use crate::cpu::guest::GuestCounters;
use crate::limits;
use crate::load::client::{ClientConfig, Phase};
use crate::load::server::ServerConfig;
use crate::socket::SocketsOf;
use siga_model::error::{Error, Result};
use siga_results::histogram;
use siga_results::record::{LoadCounts, ProcessCpu};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Workers {
    workers: Vec<ChildProcess>,
    /// Number of processes, the last ones, that serve streams beside the workload of the others.
    beside: usize,
}

/// What all worker processes together have used since they began.
#[derive(Debug)]
pub(super) struct WorkersSpent {
    pub(super) process: ProcessCpu,
    /// Time in which threads of the processes waited for a CPU. `None` if the kernel does not count this time.
    pub(super) waited_ns: Option<u64>,
    pub(super) pids: Vec<u32>,
    /// The counters of all processes that use the stack of a guest, in sum. `None` if none does.
    pub(super) guest: Option<GuestCounters>,
}

impl Workers {
    /// Starts `processes` worker processes in the namespaces of this process.
    pub(super) fn start(options: &AgentOptions, processes: u32) -> Result<Self> {
        let options = AgentOptions { sockmap: options.sockmap, ..AgentOptions::default() };
        let start = |number| launch::start_agent(&options, &format!("process {number}"));
        let mut workers = (0..processes).map(start).collect::<Result<Vec<_>>>()?;
        for worker in &mut workers {
            launch::greet(worker)?;
        }
        Ok(Self { workers, beside: 0 })
    }

    fn answer_time_max(&self) -> Duration {
        limits::answer_time_max(u32::try_from(self.workers.len()).unwrap_or(u32::MAX))
    }

    /// Sends an order to every process and returns the contents of the answers, in the order of the processes. `order` builds
    /// the order for a process number. `contents` extracts the content of an answer. If the answer does not fit the order,
    /// `contents` returns the answer itself as the error.
    fn all<T>(
        &mut self,
        order: impl Fn(usize) -> Order,
        time: Duration,
        contents: impl Fn(Answer) -> std::result::Result<T, Answer>,
    ) -> Result<Vec<T>> {
        let time = time + self.answer_time_max();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            worker.send(&order(number))?;
        }
        let receive =
            |worker: &mut ChildProcess| contents(worker.receive(time)?).map_err(|answer| out_of_turn(&answer));
        self.workers.iter_mut().map(receive).collect()
    }

    pub(super) fn serve(&mut self, config: &ServerConfig, sockets: &SocketsOf, pairs: u32) -> Result<Answer> {
        let processes = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        self.beside = usize::try_from(config.workload.beside).unwrap_or(usize::MAX);
        let order = |number| Order::Serve {
            config: ServerConfig {
                endpoint: config.endpoint.of_listener(number),
                workload: config.workload.of_pair(u32::try_from(number).unwrap_or(u32::MAX), processes),
                ..config.clone()
            },
            sockets: sockets.clone(),
            processes: 1,
            pairs: pairs.div_ceil(processes),
            // The list can be empty, because worker processes inherit the CPU affinity of this process.
            cpus: Vec::new(),
        };
        let contents = |answer| if let Answer::Serving { endpoints } = answer { Ok(endpoints) } else { Err(answer) };
        Ok(Answer::Serving { endpoints: self.all(order, Duration::ZERO, contents)?.concat() })
    }

    pub(super) fn connect(&mut self, config: &ClientConfig, sockets: &SocketsOf) -> Result<Answer> {
        let processes = self.workers.len();
        self.beside = usize::try_from(config.workload.beside).unwrap_or(usize::MAX);
        let order = |number| {
            let (first, pairs) = share(config.pairs, processes, number);
            let workload = config.workload.of_pair(first, config.pairs);
            let endpoint = config.endpoints[number % config.endpoints.len()].clone();
            let config =
                ClientConfig { first_pair: first, pairs, endpoints: vec![endpoint], workload, ..config.clone() };
            Order::Connect { config, sockets: sockets.clone(), processes: 1, cpus: Vec::new() }
        };
        let contents = |answer| if matches!(answer, Answer::Connected) { Ok(()) } else { Err(answer) };
        self.all(order, limits::CONNECT_TIME_MAX, contents)?;
        Ok(Answer::Connected)
    }

    pub(super) fn obey(&mut self, order: &Order) -> Result<Answer> {
        match order {
            Order::Run { phase, interval_ns } => self.run(*phase, *interval_ns),
            Order::Finish { received } => self.finish(received),
            Order::Quiesce { received } => {
                let order = |number| Order::Quiesce { received: nth_count(received, number) };
                let contents =
                    |answer| if let Answer::Quiesced { accounts } = answer { Ok(accounts) } else { Err(answer) };
                let mut accounts = self.all(order, Duration::ZERO, contents)?.concat();
                let own = accounts.len().saturating_sub(self.beside);
                // A record counts the transactions of the workload only.
                accounts[own..].iter_mut().for_each(|account| account.counts.transactions = 0);
                Ok(Answer::Quiesced { accounts })
            }
            Order::Resume { stride } => {
                let contents = |answer| if matches!(answer, Answer::Resumed) { Ok(()) } else { Err(answer) };
                self.all(|_| Order::Resume { stride: *stride }, Duration::ZERO, contents)?;
                Ok(Answer::Resumed)
            }
            Order::Serve { .. }
            | Order::Connect { .. }
            | Order::Spent
            | Order::Host { .. }
            | Order::Carrier { .. }
            | Order::Routes { .. } => {
                Err(Error::usage("a worker process of a client-server pair cannot carry out this order"))
            }
        }
    }

    /// Starts a phase in all processes. Their reports of an interval are passed on as one.
    fn run(&mut self, phase: Phase, interval_ns: Option<u64>) -> Result<Answer> {
        // The start of the phase lies in the future, so that every process receives the order before this time.
        let start_ns = now_ns() + 2_000_000 + 50_000 * self.workers.len() as u64;
        let own = self.workers.len().saturating_sub(self.beside);
        let phase = |number| {
            let rate = phase.rate.filter(|_| number < own).map(|rate| rate / own as f64);
            Phase { start_ns, rate, ..phase }
        };
        let duration_ns = phase(0).duration_ns;
        let time = Duration::from_nanos(duration_ns) + limits::STALL_TIME_MAX + self.answer_time_max();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            worker.send(&Order::Run { phase: phase(number), interval_ns })?;
        }
        let mut stopped: Vec<Option<Vec<u64>>> = vec![None; self.workers.len()];
        while stopped.contains(&None) {
            let mut sum: Option<Tick> = None;
            let running = self.workers.iter_mut().zip(&mut stopped).enumerate();
            for (number, (worker, stopped)) in running.filter(|(_, (_, stopped))| stopped.is_none()) {
                match worker.receive(time)? {
                    Answer::Stopped { sent } => *stopped = Some(sent),
                    // A record counts the transactions of the workload only.
                    Answer::Tick(tick) if number >= own => {
                        sum = Some(sum.unwrap_or_default().plus(Tick { transactions: 0, ..tick }));
                    }
                    Answer::Tick(tick) => sum = Some(sum.unwrap_or_default().plus(tick)),
                    answer @ (Answer::Hello { .. }
                    | Answer::Serving { .. }
                    | Answer::Connected
                    | Answer::Report(_)
                    | Answer::Quiesced { .. }
                    | Answer::Resumed
                    | Answer::Spent(_)
                    | Answer::Host(_)
                    | Answer::Carrier { .. }
                    | Answer::Routes { .. }) => return Err(out_of_turn(&answer)),
                }
            }
            if let Some(tick) = sum {
                write_outcome(&mut std::io::stdout(), Ok(Answer::Tick(tick)))?;
            }
        }
        Ok(Answer::Stopped { sent: stopped.into_iter().flatten().flatten().collect() })
    }

    fn finish(&mut self, received: &[u64]) -> Result<Answer> {
        let order = |number| Order::Finish { received: nth_count(received, number) };
        let contents = |answer| if let Answer::Report(report) = answer { Ok(*report) } else { Err(answer) };
        let reports = self.all(order, limits::STALL_TIME_MAX, contents)?;
        let own = reports.len().saturating_sub(self.beside);
        merge(&reports[..own], &reports[own..]).map(|report| Answer::Report(Box::new(report)))
    }

    /// Returns the CPU time and the run-queue delay of all worker processes together, and their process ids.
    pub(super) fn spent(&mut self) -> Result<WorkersSpent> {
        let contents = |answer| if let Answer::Spent(spent) = answer { Ok(spent) } else { Err(answer) };
        let all = self.all(|_| Order::Spent, Duration::ZERO, contents)?;
        let process = all.iter().fold(ProcessCpu::default(), |sum, spent| sum.plus(spent.process));
        let waited_ns = all.iter().map(|spent| spent.waited_ns).sum();
        let mut guest: Option<GuestCounters> = None;
        for counters in all.iter().filter_map(|spent| spent.guest.as_ref()) {
            guest.get_or_insert_default().add(counters, "");
        }
        Ok(WorkersSpent { process, waited_ns, guest, pids: all.into_iter().flat_map(|spent| spent.pids).collect() })
    }
}

/// Distributes `pairs` pairs over `processes` processes. Returns the number of the first pair and the number of pairs for
/// process `number`. The numbers of pairs of two processes differ by at most one.
fn share(pairs: u32, processes: usize, number: usize) -> (u32, u32) {
    let processes = u32::try_from(processes).unwrap_or(u32::MAX).max(1);
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let (each, more) = (pairs / processes, pairs % processes);
    (number * each + number.min(more), each + u32::from(number < more))
}

/// Returns a list that contains only the count of process `number`, for the order to this process.
fn nth_count(received: &[u64], number: usize) -> Vec<u64> {
    vec![received.get(number).copied().unwrap_or(0)]
}

/// Combines the reports of all worker processes into one. `streams` are the reports of the processes with streams beside the others.
fn merge(reports: &[Report], streams: &[Report]) -> Result<Report> {
    let (first, rest) = reports.split_first().ok_or_else(|| Error::incomplete("no worker process sent a report"))?;
    let mut sum = first.clone();
    for report in rest {
        sum.start_ns = sum.start_ns.min(report.start_ns);
        sum.end_ns = sum.end_ns.max(report.end_ns);
        sum.counts = sum.counts.plus(report.counts);
        sum.slices.iter_mut().zip(&report.slices).for_each(|(sum, slice)| *sum += slice);
        sum.pair_least = sum.pair_least.min(report.pair_least);
        sum.pair_most = sum.pair_most.max(report.pair_most);
        sum.pair_sums = (sum.pair_sums.0 + report.pair_sums.0, sum.pair_sums.1 + report.pair_sums.1);
        sum.jitter = (sum.jitter.0 + report.jitter.0, sum.jitter.1.saturating_add(report.jitter.1));
    }
    for stream in streams {
        let beside = sum.beside.get_or_insert_default();
        beside.bytes = beside.bytes.saturating_add(stream.counts.received);
        beside.elapsed_ns = beside.elapsed_ns.max(stream.end_ns.saturating_sub(stream.start_ns));
        sum.counts = sum.counts.plus(LoadCounts { transactions: 0, ..stream.counts });
    }
    sum.latency = add_up(reports.iter().map(|report| report.latency.as_str()))?;
    if sum.corrected.is_some() {
        sum.corrected = Some(add_up(reports.iter().filter_map(|report| report.corrected.as_deref()))?);
    }
    Ok(sum)
}

/// Adds up histograms in their text form (HdrHistogram V2, base64).
fn add_up<'a>(texts: impl Iterator<Item = &'a str>) -> Result<String> {
    let mut sum = histogram::empty();
    for text in texts {
        sum.add(histogram::decode(text)?)
            .map_err(|_| Error::incomplete("the histograms of the worker processes cannot be added"))?;
    }
    histogram::encode(&sum)
}

fn out_of_turn(answer: &Answer) -> Error {
    Error::environment(format!("a client process sent the agent an answer that does not fit the request: {answer:?}"))
}
