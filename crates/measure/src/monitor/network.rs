//! The processes of a network, and the counters that its guests report. One request for each reading goes to the control program.
//!
//! Every answer of the control program may be hostile: its length and its duration are limited.

use super::Found;
use crate::limits::{MONITORED_MAX, SAMPLE_TIME_MAX};
use siga_fabric::client::Client;
use siga_fabric::protocol::report::{ReportPart, Totals, Traffic};
use siga_fabric::protocol::request::{Answer, ProcessRole, ProcessStatus, Request};
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use siga_results::monitor::{NetReading, Role, State};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

/// A network that is up.
#[derive(Debug)]
pub(super) struct NetworkSource {
    name: Name,
    client: Client,
    /// Guests that did not report in time, with the number of readings in which they are not asked.
    silent: HashMap<Name, u32>,
    /// The last report of each guest.
    known: BTreeMap<Name, Known>,
    readings: u64,
}

/// The last report of a guest.
#[derive(Debug, Clone, Copy)]
struct Known {
    pid: Option<u32>,
    totals: Totals,
    /// True if the report before had the same counters.
    is_stable: bool,
}

/// Number of readings in which each guest is asked at least once. A guest that used no CPU time and whose last two reports are equal is
/// asked no more often. Its counters can be old only if its last packets came between its report and the reading of its CPU time.
const ASKED_EACH: u64 = 30;

/// Number of readings in which a guest that did not report in time is not asked again, because each such guest delays a reading.
const SILENT_READINGS: u32 = 10;

/// The answers to a request for a sample.
#[derive(Debug, Default)]
struct Answers {
    processes: Vec<ProcessStatus>,
    totals: HashMap<Name, Totals>,
    silent: HashSet<Name>,
}

impl NetworkSource {
    pub(super) fn open(name: &Name) -> Result<Self> {
        Ok(Self {
            name: name.clone(),
            client: Client::connect(name)?,
            silent: HashMap::new(),
            known: BTreeMap::new(),
            readings: 0,
        })
    }

    /// Returns the control program and the processes of the network. `is_still` returns true for a process that has not run since it was
    /// last read.
    pub(super) fn find(&mut self, is_still: impl Fn(u32) -> bool) -> Result<Vec<Found>> {
        self.readings += 1;
        let quiet = rested(&self.known, self.readings, is_still);
        let answers = match self.ask(&quiet) {
            Ok(answers) => answers,
            Err(_) => {
                // A restarted control program has another socket.
                let ended =
                    |error: Error| Error::incomplete(format!("network {} has ended: {}", self.name, error.message()));
                self.client = Client::connect(&self.name).map_err(ended)?;
                self.ask(&quiet)
                    .map_err(|error| Error::incomplete(error.message()).at(format!("network {}", self.name)))?
            }
        };
        let control = self
            .client
            .control_pid()
            .map(|pid| Found { name: Some("control program".into()), ..Found::process(Role::Control, pid) });
        self.remember(&answers, &quiet);
        let processes = answers.processes.iter().map(|process| found(process, &answers, &self.known));
        Ok(control.into_iter().chain(processes).collect())
    }

    /// Keeps the reports of guests that still have the same process: the new ones, and those of guests that were not asked.
    fn remember(&mut self, answers: &Answers, quiet: &HashSet<Name>) {
        let mut known = BTreeMap::new();
        for ProcessStatus { guest, role, pid, .. } in &answers.processes {
            let before = self.known.get(guest).filter(|before| before.pid == *pid);
            let now = match answers.totals.get(guest) {
                Some(totals) => {
                    let is_stable = before.is_some_and(|before| before.totals == *totals);
                    Some(Known { pid: *pid, totals: *totals, is_stable })
                }
                None => before.copied().filter(|_| quiet.contains(guest)),
            };
            if !matches!(role, ProcessRole::Application(_)) {
                known.extend(now.map(|now| (guest.clone(), now)));
            }
        }
        self.known = known;
    }

    fn ask(&mut self, rested: &HashSet<Name>) -> Result<Answers> {
        let end = Instant::now() + SAMPLE_TIME_MAX;
        self.silent.retain(|_, left| {
            *left -= 1;
            *left > 0
        });
        let mut answers = Answers { silent: self.silent.keys().cloned().collect(), ..Answers::default() };
        let quiet = answers.silent.iter().chain(rested).cloned().collect();
        self.client.ask(Request::Sample { quiet }, Vec::new())?;
        // Each answer is about at least one process, or about one guest.
        for _ in 0..2 * MONITORED_MAX {
            let left = end.saturating_duration_since(Instant::now());
            match self.client.answer(left)? {
                Some(Answer::Done) => return Ok(answers),
                Some(Answer::Processes(processes)) => {
                    let room = MONITORED_MAX.saturating_sub(answers.processes.len());
                    answers.processes.extend(processes.into_iter().take(room));
                }
                Some(Answer::Report { guest, part: ReportPart::Totals(totals) }) => {
                    answers.totals.insert(guest, totals);
                }
                Some(Answer::Silent { guest }) => {
                    self.silent.insert(guest.clone(), SILENT_READINGS);
                    answers.silent.insert(guest);
                }
                Some(_) => return Err(Error::environment("the control program sent an answer to another request")),
                None => return Err(Error::environment("the control program does not answer")),
            }
        }
        Err(Error::environment("the control program does not end its answer"))
    }
}

/// Returns the guests that need not be asked in this reading.
fn rested(known: &BTreeMap<Name, Known>, reading: u64, is_still: impl Fn(u32) -> bool) -> HashSet<Name> {
    let rests = |known: &Known| known.is_stable && known.pid.is_some_and(&is_still);
    // Each reading asks other guests, so that all readings cost the same.
    let turns = known.iter().zip(reading..);
    let quiet = turns.filter(|((_, known), turn)| turn % ASKED_EACH != 0 && rests(known));
    quiet.map(|((name, _), _)| name.clone()).collect()
}

fn found(process: &ProcessStatus, answers: &Answers, known: &BTreeMap<Name, Known>) -> Found {
    let ProcessStatus { guest, role, pid, is_running, restarts } = process;
    let (role, is_guest) = match role {
        ProcessRole::Guest => (Role::Guest, true),
        ProcessRole::Router => (Role::Router, true),
        ProcessRole::Switch => (Role::Switch, true),
        ProcessRole::Application(_) => (Role::Application, false),
    };
    let state = match (is_running, answers.silent.contains(guest)) {
        (false, _) => State::Down,
        (true, true) if is_guest => State::Silent,
        (true, _) => State::Running,
    };
    Found {
        name: is_guest.then(|| guest.to_string()),
        role,
        guest: (!is_guest).then(|| guest.to_string()),
        pid: *pid,
        state,
        restarts: *restarts,
        net: known.get(guest).filter(|_| is_guest).map(|known| reading(&known.totals)),
    }
}

fn reading(totals: &Totals) -> NetReading {
    let Totals { traffic, dropped, buffers, buffers_used, connections } = *totals;
    let Traffic { frames_sent, bytes_sent, frames_received, bytes_received } = traffic;
    NetReading {
        packets_sent: frames_sent,
        packets_received: frames_received,
        bytes_sent,
        bytes_received,
        dropped,
        connections,
        buffers,
        // A hostile guest may report more.
        buffers_used: buffers_used.min(buffers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_rests_is_asked_once_in_thirty_readings_and_others_in_each() {
        let known: BTreeMap<Name, Known> = (0..60)
            .map(|number| {
                let known = Known { pid: Some(number), totals: Totals::default(), is_stable: number != 7 };
                (format!("g{number:02}").parse().unwrap(), known)
            })
            .collect();
        let asked = |reading: u64| -> Vec<u32> {
            let quiet = rested(&known, reading, |pid| pid != 8);
            let asked = known.iter().filter(|(name, _)| !quiet.contains(*name));
            asked.filter_map(|(_, known)| known.pid).collect()
        };
        let mut times = [0; 60];
        for reading in 1..=60 {
            let asked = asked(reading);
            assert!(asked.len() <= 4, "{asked:?}");
            asked.iter().for_each(|number| times[*number as usize] += 1);
        }
        assert!(
            times.iter().enumerate().all(|(number, times)| *times == if number == 7 || number == 8 { 60 } else { 2 })
        );
    }
}
