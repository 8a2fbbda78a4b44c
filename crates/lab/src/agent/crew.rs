//! A process per pair: the crew of an agent, which does together what the agent is told.
//!
//! Orders go to all processes before the first answer is awaited, so that they work at the same time; a phase begins at a
//! moment agreed on beforehand. Answers are added up; per-process figures stay in the order of the pairs.

use super::AgentOptions;
use crate::account::process::ProcessCpu;
use crate::control::{Answer, Helper, Order, Report};
use crate::driver::client::{ClientConfig, Phase};
use crate::driver::now_ns;
use crate::driver::server::ServerConfig;
use crate::error::{Error, Result};
use crate::histogram;
use crate::limits;
use crate::place;
use crate::socket::Endpoint;
use crate::socket::kernel::KernelOptions;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Crew {
    members: Vec<Helper>,
}

impl Crew {
    /// Starts the processes; they share this process's namespaces.
    pub(super) fn start(options: &AgentOptions, processes: u32) -> Result<Self> {
        let options = AgentOptions { sockmap: options.sockmap, ..AgentOptions::default() };
        let mut members = Vec::new();
        for number in 0..processes {
            let mut helper = place::start_agent(&options, &format!("process {number}"))?;
            place::greet(&mut helper)?;
            members.push(helper);
        }
        Ok(Self { members })
    }

    /// Asks every process and collects the answers in order.
    fn all(&mut self, order: impl Fn(usize) -> Order, time: Duration) -> Result<Vec<Answer>> {
        for (number, member) in self.members.iter_mut().enumerate() {
            member.say(&order(number))?;
        }
        self.members.iter_mut().map(|member| member.hear(limits::ANSWER_TIME_MAX + time)).collect()
    }

    pub(super) fn serve(&mut self, config: &ServerConfig, kernel: &KernelOptions, pairs: u32) -> Result<Answer> {
        let processes = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let answers = self.all(
            |number| Order::Serve {
                config: ServerConfig { endpoint: nth_endpoint(&config.endpoint, number), ..config.clone() },
                kernel: kernel.clone(),
                processes: 1,
                pairs: pairs.div_ceil(processes),
                // Inherited from this process.
                cpus: Vec::new(),
            },
            Duration::ZERO,
        )?;
        let mut all = Vec::new();
        for answer in answers {
            let Answer::Serving { endpoints } = answer else { return Err(out_of_turn(&answer)) };
            all.extend(endpoints);
        }
        Ok(Answer::Serving { endpoints: all })
    }

    pub(super) fn connect(&mut self, config: &ClientConfig, kernel: &KernelOptions) -> Result<Answer> {
        let processes = self.members.len();
        let answers = self.all(
            |number| {
                let (first, pairs) = share(config.pairs, processes, number);
                let endpoint = config.endpoints[number % config.endpoints.len()].clone();
                let config = ClientConfig { first_pair: first, pairs, endpoints: vec![endpoint], ..config.clone() };
                Order::Connect { config, kernel: kernel.clone(), processes: 1, cpus: Vec::new() }
            },
            limits::CONNECT_TIME_MAX,
        )?;
        match answers.into_iter().find(|answer| !matches!(answer, Answer::Connected)) {
            Some(answer) => Err(out_of_turn(&answer)),
            None => Ok(Answer::Connected),
        }
    }

    pub(super) fn obey(&mut self, order: &Order) -> Result<Answer> {
        match order {
            Order::Run { phase } => self.run(*phase),
            Order::Finish { received } => self.finish(received),
            Order::Hold { received } => {
                let part = |number: usize| vec![received.get(number).copied().unwrap_or(0)];
                let answers = self.all(|number| Order::Hold { received: part(number) }, Duration::ZERO)?;
                let mut all = Vec::new();
                for answer in answers {
                    let Answer::Held { accounts } = answer else { return Err(out_of_turn(&answer)) };
                    all.extend(accounts);
                }
                Ok(Answer::Held { accounts: all })
            }
            Order::Resume { stride } => {
                self.all(|_| Order::Resume { stride: *stride }, Duration::ZERO)?;
                Ok(Answer::Resumed)
            }
            Order::Serve { .. } | Order::Connect { .. } | Order::Snapshot => {
                Err(Error::usage("not an order for a process per pair"))
            }
        }
    }

    fn run(&mut self, phase: Phase) -> Result<Answer> {
        // Time for the order to reach every process before the agreed moment.
        let start_ns = now_ns() + 2_000_000 + 50_000 * self.members.len() as u64;
        let processes = self.members.len() as f64;
        let phase = Phase { start_ns, rate: phase.rate.map(|rate| rate / processes), ..phase };
        let time = Duration::from_nanos(phase.duration_ns) + limits::STALL_TIME_MAX;
        let mut all = Vec::new();
        for answer in self.all(|_| Order::Run { phase }, time)? {
            let Answer::Stopped { sent } = answer else { return Err(out_of_turn(&answer)) };
            all.extend(sent);
        }
        Ok(Answer::Stopped { sent: all })
    }

    fn finish(&mut self, received: &[u64]) -> Result<Answer> {
        let part = |number: usize| vec![received.get(number).copied().unwrap_or(0)];
        let answers = self.all(|number| Order::Finish { received: part(number) }, limits::STALL_TIME_MAX)?;
        let mut sum: Option<Report> = None;
        for answer in answers {
            let Answer::Report(report) = answer else { return Err(out_of_turn(&answer)) };
            sum = Some(match sum {
                Some(sum) => merge(&sum, &report)?,
                None => *report,
            });
        }
        sum.map(|report| Answer::Report(Box::new(report))).ok_or_else(|| Error::incomplete("no process reported"))
    }

    /// CPU time and ids of all processes.
    pub(super) fn snapshot(&mut self) -> Result<(ProcessCpu, Vec<u32>)> {
        let mut process = ProcessCpu::default();
        let mut pids = Vec::new();
        for answer in self.all(|_| Order::Snapshot, Duration::ZERO)? {
            let Answer::Snapshot(snapshot) = answer else { return Err(out_of_turn(&answer)) };
            process = process.plus(snapshot.process);
            pids.extend(snapshot.pids);
        }
        Ok((process, pids))
    }
}

/// First pair and number of pairs of one process, as even as can be.
fn share(pairs: u32, processes: usize, number: usize) -> (u32, u32) {
    let processes = u32::try_from(processes).unwrap_or(u32::MAX).max(1);
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let (each, more) = (pairs / processes, pairs % processes);
    (number * each + number.min(more), each + u32::from(number < more))
}

/// A fixed port counts up from process to process; names get a number.
fn nth_endpoint(endpoint: &Endpoint, number: usize) -> Endpoint {
    let shift = |mut address: std::net::SocketAddr| {
        if address.port() != 0 {
            address.set_port(address.port().saturating_add(u16::try_from(number).unwrap_or(u16::MAX)));
        }
        address
    };
    match endpoint {
        Endpoint::Tcp(address) => Endpoint::Tcp(shift(*address)),
        Endpoint::Udp(address) => Endpoint::Udp(shift(*address)),
        Endpoint::Unix(name) => Endpoint::Unix(format!("{name}-{number}")),
    }
}

fn merge(sum: &Report, report: &Report) -> Result<Report> {
    let add = |left: &str, right: &str| -> Result<String> {
        let mut left = histogram::decode(left)?;
        left.add(histogram::decode(right)?).map_err(|_| Error::incomplete("histograms do not add up"))?;
        histogram::encode(&left)
    };
    let corrected = match (&sum.corrected, &report.corrected) {
        (Some(left), Some(right)) => Some(add(left, right)?),
        _ => None,
    };
    Ok(Report {
        start_ns: sum.start_ns.min(report.start_ns),
        end_ns: sum.end_ns.max(report.end_ns),
        counts: sum.counts.plus(report.counts),
        latency: add(&sum.latency, &report.latency)?,
        corrected,
        slices: sum.slices.iter().zip(&report.slices).map(|(left, right)| left + right).collect(),
        pair_least: sum.pair_least.min(report.pair_least),
        pair_most: sum.pair_most.max(report.pair_most),
    })
}

fn out_of_turn(answer: &Answer) -> Error {
    Error::environment(format!("a process answered out of turn: {answer:?}"))
}
