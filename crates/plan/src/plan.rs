//! Plans: the matrix of what to measure, and how.
//!
//! A plan is a TOML file. The program contains the plans of `plans/`, and `plans/plan.schema.json` describes the format. Every
//! combination of the axes' values is a *cell*. `exclude` removes cells, `include` adds single cells, and the command line can set
//! each axis. A plan can group its cells in tables.
//!
//! Order of calls: [`Plan::load`] reads a plan, then [`Plan::matrix`] checks all of it and lays out the cells.

mod builds;
mod check;
mod commands;
pub mod finding;
mod keep;
mod layout;
mod links;
pub mod table;

use crate::accounting::AccountingMethod;
use crate::command::Command;
use crate::cpus::cpu_list;
use crate::level::Level;
use crate::limits;
use crate::matrix::{Cell, Matrix};
use crate::offered::Offered;
use crate::place::Place;
use crate::plant::Plant;
use crate::route::Route;
use crate::shipped::PLANS;
use crate::workload::{Close, Workload, parse_size};
use finding::Finding;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::waiting::Waiting;
use std::collections::BTreeMap;
use table::Table;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// A name for tables and the run directory.
    pub name: String,
    /// What the plan asks, as a question. Reports begin with the answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// Paths that siga builds (`veth-routed`, `hipersockets-routed`, …), or two existing places as `PLACE>PLACE` (client, server).
    pub paths: Vec<String>,
    /// Workloads: presets or `rr:REQUEST/RESPONSE`, `crr:`, `strg:`, `strp:`, `strb:`, `udp-rr:`; `udp-strg:BYTES@RATE`;
    /// `rr-1-1+4strg`, which is RR beside 4 streams; or names of commands of `workload`.
    pub workloads: Vec<String>,
    /// Commands as workloads, by the names that `workloads` has. They run on this host, not over a path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub workload: BTreeMap<String, Command>,
    /// MTUs in bytes; empty: each path type's own default. A level that has an MTU is measured with that one.
    pub mtus: Vec<u32>,
    /// Numbers of client-server pairs.
    pub clients: Vec<u32>,
    /// Levels: shipped names, TOML files, levels with a modelled link (`link:latency=1ms,loss=0.1%`, `430@link:latency=1ms`), or levels
    /// with another build of siga (`build:PROGRAM`, `430@build:old=PROGRAM`, `build:git:REVISION`).
    pub levels: Vec<String>,
    /// Trials of each cell; absent: as many rounds as the budget allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<u32>,
    /// Measured time of one trial in seconds.
    pub seconds: f64,
    /// Unmeasured time before each trial, in seconds, on the same connections.
    pub warm_up_seconds: f64,
    /// Time for the whole run; the first round is always finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_seconds: Option<f64>,
    /// IPv6 instead of IPv4 on built paths.
    pub ipv6: bool,
    /// A process per pair instead of all pairs in one epoll process.
    pub processes: bool,
    /// How client and server wait: sleep (`block`), poll (`poll`), or poll while that pays and then sleep (`adaptive`, on siga's
    /// own networks only).
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub wait: Waiting,
    /// The side that closes a CRR connection first.
    pub close: Close,
    /// Largest single write, in bytes ("128k").
    pub write: String,
    /// Transactions per second of all pairs together (open loop); absent: closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Loads to offer after the closed loop, in percent of its rate ("50%"), each for as long as a trial is measured. Latencies
    /// then count from the planned start of each transaction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub load: Vec<Offered>,
    /// CPUs the client runs on ("0", "0-3,8"); absent: the scheduler's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpus: Option<String>,
    /// CPUs the server runs on; absent: the scheduler's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpus: Option<String>,
    /// CPUs on which the routers of siga's own networks run; absent: the scheduler's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_cpus: Option<String>,
    /// CPUs on which the other processes of siga's own networks run: the guests of client and server that are processes of their own,
    /// the switches and the control program; absent: the scheduler's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_cpus: Option<String>,
    /// Most memory that siga and all processes of the run may use together, in bytes ("2g"); absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<String>,
    /// CPU accounting; absent: the best the host allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounting: Option<AccountingMethod>,
    /// Known costs to plant, for calibration.
    #[serde(skip_serializing_if = "Plant::is_none")]
    pub plant: Plant,
    /// How existing places are reached.
    #[serde(skip_serializing_if = "Reach::is_default")]
    pub reach: Reach,
    /// Labelled as a smoke run: figures show that it works, no more.
    pub smoke: bool,
    /// Seed of the order of trials; absent: chosen and recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Named groups of cells (`--table`). The plan measures these groups instead of all combinations of its own values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<Table>,
    /// Single cells to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<Pick>,
    /// Cells to leave out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Pick>,
    /// Statements about ratios of levels, which the report checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finding: Vec<Finding>,
}

/// How existing places are reached. The command that reaches another host is not part of a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Reach {
    /// Address that the client connects to; absent: the first address in the server's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_address: Option<std::net::IpAddr>,
    /// Port the server listens on; 0: any free one.
    pub port: u16,
    /// Congestion control of sockets in existing places; absent: the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

impl Reach {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Selects cells by their values. In `include` it selects one cell, and an absent value is the first value of its axis. In
/// `exclude` it selects every cell that has the given values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pick {
    /// Path.
    pub path: Option<String>,
    /// Workload.
    pub workload: Option<String>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Pairs.
    pub clients: Option<u32>,
    /// Level.
    pub level: Option<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            name: "plan".into(),
            question: String::new(),
            paths: vec!["veth".into(), "veth-routed".into()],
            workloads: vec!["rr-200-1000".into()],
            workload: BTreeMap::new(),
            mtus: Vec::new(),
            clients: vec![1],
            levels: vec!["plain".into()],
            trials: None,
            seconds: 1.0,
            warm_up_seconds: 0.25,
            budget_seconds: None,
            ipv6: false,
            processes: false,
            wait: Waiting::Block,
            close: Close::Server,
            write: "128k".into(),
            rate: None,
            load: Vec::new(),
            client_cpus: None,
            server_cpus: None,
            router_cpus: None,
            guest_cpus: None,
            memory_limit: None,
            accounting: None,
            plant: Plant::default(),
            reach: Reach::default(),
            smoke: false,
            seed: None,
            table: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            finding: Vec::new(),
        }
    }
}

impl Plan {
    /// Reads a shipped plan by its name, or a plan from a TOML file.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the name is unknown, the file is unreadable, or a key is unknown or has a wrong type
    /// (with line and column).
    pub fn load(name_or_file: &str) -> Result<Self> {
        Self::parse(&PLANS.read(name_or_file)?, name_or_file)
    }

    /// Returns the names of the shipped plans.
    pub fn names() -> Vec<&'static str> {
        PLANS.names()
    }

    /// Reads a plan from text; `place` names it in messages.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if a key is unknown or has a wrong type (with line and column), or the plan contains the
    /// command that reaches other hosts.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        if without_command(text).is_some() {
            let message = format!(
                "plan {place}: `ssh` in the table [reach] contains a command, but a plan must not contain the command that connects to other hosts"
            );
            let hint = "remove `ssh` from the plan; use --ssh COMMAND or ~/.config/siga/config.toml instead";
            return Err(Error::usage(message).hint(hint));
        }
        toml::from_str(text).map_err(|error| malformed(place, &error))
    }

    /// Reads the plan of a run directory. Earlier versions recorded the command that reached other hosts. This function ignores that
    /// command, because a run directory must not contain anything to execute.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if a key is unknown or has a wrong type.
    pub fn of_run(text: &str, place: &str) -> Result<Self> {
        let plan = without_command(text).map_or_else(|| toml::from_str(text), toml::Table::try_into);
        plan.map_err(|error| malformed(place, &error))
    }

    /// Returns notices about old spellings in the levels that the plan names. Such levels are still read.
    pub fn notices(&self) -> Vec<String> {
        self.level_names().flat_map(|name| Level::notices(&name)).collect()
    }

    /// Returns the hosts that the plan reaches through ssh, without duplicates.
    pub fn hosts(&self, matrix: &Matrix) -> Vec<String> {
        let mut hosts = Vec::new();
        for cell in &matrix.cells {
            let Ok(Route::Places(client, server)) = cell.path.parse() else { continue };
            for place in [client, server] {
                match place {
                    Place::Ssh(host) if !hosts.contains(&host) => hosts.push(host),
                    Place::Ssh(_) | Place::Local | Place::Netns(_) | Place::Pid(_) | Place::Built(..) => {}
                }
            }
        }
        hosts
    }

    /// Returns the plan as TOML.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if memory is exhausted.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string_pretty(self).map_err(|error| Error::environment(format!("cannot write the plan: {error}")))
    }

    /// Returns the CPUs of the client and of the server. An empty list leaves the choice to the scheduler.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the plan's text is not a list of CPUs.
    pub fn cpus(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        Ok((cpus_in(&self.client_cpus)?, cpus_in(&self.server_cpus)?))
    }

    /// Returns the CPUs of the routers and of the other processes of siga's own networks, as [`Plan::cpus`] does for client and server.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the plan's text is not a list of CPUs.
    pub fn network_cpus(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        Ok((cpus_in(&self.router_cpus)?, cpus_in(&self.guest_cpus)?))
    }

    /// Returns the most memory that the run may use, in bytes.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the plan's text is not a size, or if siga itself needs more.
    pub fn memory_limit_bytes(&self) -> Result<Option<u64>> {
        let Some(text) = &self.memory_limit else { return Ok(None) };
        let bytes = parse_size(text).map_err(|error| error.at("memory_limit"))?;
        if bytes < limits::MEMORY_LIMIT_MIN {
            return Err(Error::usage(format!("a memory limit of {bytes} bytes is too small"))
                .hint(format!("--memory-limit accepts at least {} bytes", limits::MEMORY_LIMIT_MIN)));
        }
        Ok(Some(bytes))
    }

    /// Returns a sentence that names the levels whose waiting policy differs from the plan's, or `None` if there are none.
    pub fn waits_otherwise(&self, matrix: &Matrix) -> Option<String> {
        let has_guests = |level: &Level| {
            let of_level = matrix.cells.iter().filter(|cell| cell.level == level.name);
            of_level.into_iter().any(|cell| matches!(cell.path.parse(), Ok(Route::Guests(_))))
        };
        let others = Waiting::ALL.into_iter().filter(|wait| *wait != self.wait).filter_map(|wait| {
            let is_so = |level: &&Level| level.guests.is_some_and(|guests| guests.wait(self.wait) == wait);
            let levels = matrix.levels.iter().filter(is_so).filter(|level| has_guests(level));
            let names: Vec<&str> = levels.map(|level| level.name.as_str()).collect();
            let words = match names.as_slice() {
                [] => return None,
                [first, .., last] if names.len() > 3 => format!("{first}, …, {last} ({} levels)", names.len()),
                few => few.join(", "),
            };
            Some(format!("`{}` at {words}", wait.name()))
        });
        let others: Vec<String> = others.collect();
        let wait = self.wait.name();
        (!others.is_empty()).then(|| {
            format!(
                "`--wait {wait}` has no effect at some levels, which set themselves how guests wait for data: {}",
                others.join(", ")
            )
        })
    }
}

/// Returns the CPU numbers that a setting lists, such as `0-3,8`.
fn cpus_in(text: &Option<String>) -> Result<Vec<u32>> {
    match text {
        None => Ok(Vec::new()),
        Some(text) => cpu_list(text).ok_or_else(|| {
            Error::usage(format!("`{text}` is not a list of CPUs"))
                .hint("write CPU numbers or ranges, such as 0 or 0-3,8")
        }),
    }
}

/// Removes the command from the `[reach]` table of a plan. Returns `None` if the plan has none.
fn without_command(text: &str) -> Option<toml::Table> {
    let mut table: toml::Table = toml::from_str(text).ok()?;
    table.get_mut("reach")?.as_table_mut()?.remove("ssh")?;
    Some(table)
}

fn malformed(place: &str, error: &toml::de::Error) -> Error {
    Error::usage(format!("plan {place}: {error}")).hint("`siga plan --schema` prints the JSON Schema of plans")
}

impl Pick {
    /// Refuses a value that cannot match any cell. Otherwise a typing error would remain unnoticed.
    fn check(&self, plan: &Plan) -> Result<()> {
        self.path.as_deref().map(str::parse::<Route>).transpose()?;
        let of_path = self.workload.as_deref().filter(|name| !plan.workload.contains_key(*name));
        of_path.map(str::parse::<Workload>).transpose()?;
        Ok(())
    }

    fn matches(&self, cell: &Cell) -> bool {
        let same = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        // The workload is compared last, because parsing it takes the most time.
        let workload = || self.workload.as_ref().is_none_or(|wanted| wanted.parse() == Ok(cell.workload));
        same(&self.path, &cell.path)
            && self.mtu.is_none_or(|mtu| Some(mtu) == cell.mtu)
            && self.clients.is_none_or(|clients| clients == cell.clients)
            && same(&self.level, &cell.level)
            && workload()
    }
}

#[cfg(test)]
mod tests;
