//! A siga network for one path: the holder's side, which starts and ends it, and the coordinator's.
//!
//! The network's files lie in a directory of its own. The network depends on the holder's connection to its control
//! program: if the holder is killed, the control program ends all guests and removes the directory.

use super::holder::{self, Request};
use crate::channel::{ChildProcess, Lines, write_outcome};
use serde::{Deserialize, Serialize};
use siga_fabric::client::Leased;
use siga_fabric::protocol::report::ReportPart;
use siga_fabric::protocol::request::{Answer, Request as Ask};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::rundir::{self, RunDir};
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use siga_plan::path::guest::{Attach, NAMES};
use siga_plan::spec::GuestSpec;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time that starting may take: the control program's own limits, and some more.
const RAISE_TIME_MAX: Duration = Duration::from_secs(40);
/// Time that a report may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Name of the network.
const NAME: &str = "path";

/// What was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Raised {
    /// Where the network's files lie.
    pub base: PathBuf,
    /// Its name there.
    pub network: Name,
    /// The ticket with which the client attaches.
    pub client: Secret,
    /// The ticket with which the server attaches.
    pub server: Secret,
    /// The processes of the client's guest, the router and the server's guest, if they exist.
    pub guests: [Option<u32>; 3],
    /// The process of the control program.
    pub control: u32,
}

/// A network that is up as long as this value lives.
#[derive(Debug)]
pub struct Net {
    /// What was started.
    pub raised: Raised,
    holder: ChildProcess,
}

impl Net {
    /// Starts `program namespace-holder` and has it start the network.
    ///
    /// The holder dies with the calling *thread* (PR_SET_PDEATHSIG), which therefore must outlive the path.
    ///
    /// # Errors
    /// Environment: the program cannot be started, or a guest does not start.
    pub fn raise(program: &Path, spec: &GuestSpec) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("namespace-holder");
        let mut holder = ChildProcess::start(command, format!("path {}", spec.path))?;
        let request = Request::Raise { spec: spec.clone(), parent: std::process::id() };
        let raised = holder.ask(&request, RAISE_TIME_MAX)?;
        Ok(Self { raised, holder })
    }

    /// What a guest has counted, by its index in [`NAMES`].
    ///
    /// # Errors
    /// Environment: the holder or the network is gone or does not answer.
    pub fn report(&mut self, guest: usize) -> Result<Vec<ReportPart>> {
        self.holder.ask(&Request::Guest { guest }, ANSWER_TIME_MAX)
    }
}

/// Serves the coordinator of one network until its input ends.
pub(super) fn hold(spec: &GuestSpec, output: &mut std::io::Stdout, requests: &mut Lines<std::io::Stdin>) -> Result<()> {
    let mut network = match Network::start(spec) {
        Ok((network, raised)) => {
            write_outcome(output, Ok(raised))?;
            network
        }
        Err(error) => return write_outcome::<()>(output, Err(error)),
    };
    while let Some(request) = holder::next(requests)? {
        match request {
            Request::Guest { guest } => write_outcome(output, network.report(guest))?,
            Request::Build { .. } | Request::Raise { .. } | Request::Counters => {
                write_outcome::<()>(output, Err(Error::usage("this namespace holder has a network of guests")))?;
            }
        }
    }
    network.leased.down()
}

struct Network {
    leased: Leased,
}

impl Network {
    fn start(spec: &GuestSpec) -> Result<(Self, Raised)> {
        let drawn = Secret::draw().map_err(|error| Error::environment(format!("no random numbers: {error}")))?;
        // The path of a socket has to be short.
        let base = std::env::temp_dir().join(format!("siga-{}", &drawn.text()[..12]));
        let name: Name = NAME.parse()?;
        let leased = Leased::up_at(&base, &name, &spec.topology()).inspect_err(|_| {
            // The first error is reported, not a failure to remove files.
            let _ = RunDir::open(&base, &name).map(|run| run.map(|run| run.remove_dead()));
            let _ = rundir::remove_base(&base);
        })?;
        let mut network = Self { leased };
        let attach = spec.path.attach;
        let raised = Raised {
            client: network.secret(NAMES[0], attach)?,
            server: network.secret(NAMES[2], attach)?,
            guests: network.pids()?,
            control: u32::try_from(network.leased.control().as_raw_nonzero().get()).unwrap_or(0),
            base,
            network: name,
        };
        Ok((network, raised))
    }

    fn ask(&mut self, request: Ask) -> Result<Vec<Answer>> {
        self.leased.client.request(request)
    }

    fn secret(&mut self, guest: &str, attach: Attach) -> Result<Secret> {
        let application = attach == Attach::Iucv;
        let answers = self.ask(Ask::Secret { guest: guest.parse()?, application })?;
        let secret = answers
            .into_iter()
            .find_map(|answer| if let Answer::Secret(secret) = answer { Some(secret) } else { None });
        secret.ok_or_else(|| Error::environment(format!("the control program has no secret for {guest}")))
    }

    fn pids(&mut self) -> Result<[Option<u32>; 3]> {
        let answers = self.ask(Ask::Status { detail: false })?;
        let state = |answer| if let Answer::Guest(state) = answer { Some(state) } else { None };
        let states: Vec<_> = answers.into_iter().filter_map(state).collect();
        let pid = |name: &str| states.iter().find(|state| state.name.as_str() == name).and_then(|state| state.pid);
        Ok(NAMES.map(pid))
    }

    fn report(&mut self, guest: usize) -> Result<Vec<ReportPart>> {
        let name = NAMES.get(guest).ok_or_else(|| Error::usage("no such guest"))?;
        let answers = self.ask(Ask::Report(name.parse()?))?;
        let part = |answer| if let Answer::Report { part, .. } = answer { Some(part) } else { None };
        Ok(answers.into_iter().filter_map(part).collect())
    }
}
