//! Plans: the matrix of what to measure, and how.
//!
//! A plan is TOML (`plans/*.toml` are shipped inside the program; `plans/plan.schema.json` describes the form). Every
//! combination of its axes is a *cell*; `exclude` takes cells away, `include` adds single ones. The command line can set
//! each axis. A plan is checked whole before anything is built, so that a typing error costs no measuring time.

use crate::account::Method;
use crate::bpf::cost_injector::PER_PACKET_NS_MAX;
use crate::directory;
use crate::level::Level;
use crate::limits;
use crate::load::Close;
use crate::path::{GuestPath, PathKind, check_congestion};
use crate::place::Place;
use crate::sys::cpu_list;
use crate::workload::{Workload, parse_size};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::waiting::Waiting;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// A name for tables and the run directory.
    pub name: String,
    /// Paths that siga builds (`veth-routed`, `hipersockets-routed`, …), or two existing places as `PLACE>PLACE` (client, server).
    pub paths: Vec<String>,
    /// Workloads: presets or `rr:REQUEST/RESPONSE`, `crr:`, `strg:`, `strp:`, `udp-rr:`.
    pub workloads: Vec<String>,
    /// MTUs in bytes; empty: each path type's own default. A level that has an MTU is measured with that one.
    pub mtus: Vec<u32>,
    /// Numbers of client-server pairs.
    pub clients: Vec<u32>,
    /// Levels: shipped names or TOML files.
    pub levels: Vec<String>,
    /// Trials of each cell; absent: as many rounds as the budget allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<u32>,
    /// Measured time of one trial in seconds.
    pub seconds: f64,
    /// Unmeasured time before it, on the same connections.
    pub warm_up_seconds: f64,
    /// Time for the whole run; the first round is always finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_seconds: Option<f64>,
    /// IPv6 instead of IPv4 on built paths.
    pub ipv6: bool,
    /// A process per pair instead of all pairs in one epoll process.
    pub processes: bool,
    /// While nothing can go on: sleep (`block`), ask again and again (`poll`), or ask while that pays and then sleep
    /// (`adaptive`: siga's own networks alone).
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub wait: Waiting,
    /// Who closes a CRR connection first.
    pub close: Close,
    /// Largest single write in bytes ("128k").
    pub write: String,
    /// Transactions per second of all pairs together (open loop); absent: closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// CPUs the client runs on ("0", "0-3,8"); absent: the scheduler's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpus: Option<String>,
    /// CPUs the server runs on; absent: the scheduler's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpus: Option<String>,
    /// CPU accounting; absent: the best the host allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounting: Option<Method>,
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
    /// Single cells to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<Pick>,
    /// Cells to leave out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Pick>,
}

/// Known costs, planted to see whether accounting finds them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Plant {
    /// CPU in user mode before each exchange, in the client, in microseconds.
    pub client_us: f64,
    /// CPU in user mode before each response, in the server, in microseconds.
    pub server_us: f64,
    /// CPU for each packet the router receives, in microseconds (privilege; routed paths).
    pub router_us: f64,
    /// Waiting before each response, in microseconds.
    pub delay_us: f64,
}

impl Plant {
    /// True if nothing is planted.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that every cost is one that can be planted.
    ///
    /// # Errors
    /// Usage: the first that is out of range.
    pub fn check(&self) -> Result<()> {
        for (what, value) in [
            ("plant.client_us", self.client_us),
            ("plant.server_us", self.server_us),
            ("plant.delay_us", self.delay_us),
        ] {
            within(what, value, 0.0, 1e6)?;
        }
        within("plant.router_us", self.router_us, 0.0, f64::from(PER_PACKET_NS_MAX) / 1e3)
    }

    /// Fails if none of the cells that it is for would have it; `routes` are theirs.
    fn check_use(&self, cells: &[(&Cell, &Route)]) -> Result<()> {
        let routed = |route: &Route| matches!(route, Route::Built(kind) if kind.without_router().is_some());
        if self.router_us > 0.0 && !cells.iter().any(|(_, route)| routed(route)) {
            return Err(Error::usage("a cost is planted in the router, and no path has one")
                .hint("add a path such as veth-routed, or leave out plant router="));
        }
        let lost_us = limits::DATAGRAM_LOST_AFTER.as_micros() as f64;
        if self.delay_us >= lost_us && cells.iter().any(|(cell, _)| cell.workload.udp) {
            return Err(Error::usage(format!("plant.delay_us = {} with a UDP workload", self.delay_us))
                .hint(format!("datagrams without an answer for {lost_us} us are lost; plant less than that")));
        }
        Ok(())
    }
}

fn within(what: &str, value: f64, least: f64, most: f64) -> Result<()> {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::usage(format!("{what} = {value}")).hint(format!("{what} goes from {least} to {most}")))
}

/// How existing places are reached. The command that reaches another host is no part of a plan: a plan executes nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Reach {
    /// Address the client connects to; absent: the first the server's place has.
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

/// Cells by their values. As `include` it is one cell, and what is absent takes the first value of the axis; as `exclude`
/// it is every cell that equals the values given.
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
            paths: vec!["veth".into(), "veth-routed".into()],
            workloads: vec!["rr-200-1000".into()],
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
            client_cpus: None,
            server_cpus: None,
            accounting: None,
            plant: Plant::default(),
            reach: Reach::default(),
            smoke: false,
            seed: None,
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

/// A way between client and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Built by siga of the kernel's networks.
    Built(PathKind),
    /// Over siga's own network.
    Guests(GuestPath),
    /// Between two places that exist: client, server.
    Places(Place, Place),
}

impl FromStr for Route {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once('>') {
            Some((client, server)) => Ok(Self::Places(client.parse()?, server.parse()?)),
            None => match text.parse() {
                Ok(path) => Ok(Self::Guests(path)),
                Err(_) => text.parse().map(Self::Built),
            },
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Built(kind) => f.pad(kind.name()),
            Self::Guests(path) => f.pad(path.name()),
            Self::Places(client, server) => f.pad(&format!("{client}>{server}")),
        }
    }
}

/// One combination of the matrix. Equal cells are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Canonical text of a [`Route`].
    pub path: String,
    /// What is said.
    pub workload: Workload,
    /// MTU in bytes; `None` where the path has none or its own is kept.
    pub mtu: Option<u32>,
    /// Pairs.
    pub clients: u32,
    /// Name of the level.
    pub level: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.workload)?;
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        write!(f, " x{}", self.clients)?;
        if self.level != "plain" {
            write!(f, " {}", self.level)?;
        }
        Ok(())
    }
}

/// A checked plan: its cells in order, its levels by name, its sizes as numbers.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Every cell once, in the order of the axes.
    pub cells: Vec<Cell>,
    /// The levels that cells name.
    pub levels: Vec<Level>,
    /// Largest single write in bytes.
    pub write_bytes: u64,
    /// What the plan asks for and cannot be, with its reason (a path type without the MTU asked for).
    pub skipped: Vec<(Cell, String)>,
}

const SHIPPED: [(&str, &str); 7] = [
    ("ablation", include_str!("../../../plans/ablation.toml")),
    ("default", include_str!("../../../plans/default.toml")),
    ("guests", include_str!("../../../plans/guests.toml")),
    ("hop", include_str!("../../../plans/hop.toml")),
    ("mtu", include_str!("../../../plans/mtu.toml")),
    ("paths", include_str!("../../../plans/paths.toml")),
    ("zvm430-memory", include_str!("../../../plans/zvm430-memory.toml")),
];

impl Plan {
    /// Reads a plan by its shipped name or from a TOML file.
    ///
    /// # Errors
    /// Usage: unknown name, unreadable file, unknown key or wrong type (with line and column).
    pub fn load(name_or_file: &str) -> Result<Self> {
        if let Some((_, text)) = SHIPPED.iter().find(|(name, _)| *name == name_or_file) {
            return Self::parse(text, name_or_file);
        }
        if !name_or_file.ends_with(".toml") {
            return Err(Error::usage(format!("unknown plan `{name_or_file}`"))
                .hint(format!("plans: {}; or the path of a .toml file", Self::names().join(", "))));
        }
        let text = directory::read_named(Path::new(name_or_file), limits::PLAN_BYTES_MAX).map_err(|error| {
            Error::usage(format!("cannot read plan {name_or_file}: {error}"))
                .hint(format!("plans: {}; or the path of a .toml file", Self::names().join(", ")))
        })?;
        Self::parse(&text, name_or_file)
    }

    /// Names of the shipped plans.
    pub fn names() -> Vec<&'static str> {
        SHIPPED.iter().map(|(name, _)| *name).collect()
    }

    /// Reads a plan from text; `place` names it in messages.
    ///
    /// # Errors
    /// Usage: unknown key or wrong type (with line and column), or a command to execute.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        match without_command(text) {
            Some(_) => Err(Error::usage(format!(
                "plan {place}: `ssh` below [reach] names a command, and a plan executes none"
            ))
            .hint("take it out of the plan; give --ssh COMMAND, or write it into ~/.config/siga/config.toml")),
            None => toml::from_str(text).map_err(|error| malformed(place, &error)),
        }
    }

    /// Reads the plan of a run directory. Where an earlier version has recorded the command that reached other hosts, it is
    /// left out: a run directory names nothing to execute.
    ///
    /// # Errors
    /// Usage: unknown key or wrong type.
    pub(crate) fn of_run(text: &str, place: &str) -> Result<Self> {
        match without_command(text) {
            Some(table) => table.try_into().map_err(|error| malformed(place, &error)),
            None => toml::from_str(text).map_err(|error| malformed(place, &error)),
        }
    }

    /// Hosts that the plan reaches by ssh, each once.
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

    /// The plan as TOML.
    ///
    /// # Errors
    /// Environment: out of memory.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string_pretty(self).map_err(|error| Error::environment(format!("cannot write the plan: {error}")))
    }

    /// Checks everything and lays out the cells.
    ///
    /// # Errors
    /// Usage: the first thing that cannot be.
    pub fn matrix(&self) -> Result<Matrix> {
        self.check_lengths()?;
        let loaded =
            self.level_names().map(|name| Ok((name, Level::load(name)?))).collect::<Result<HashMap<_, _>>>()?;
        let mut levels: Vec<Level> = Vec::new();
        for level in self.level_names().filter_map(|name| loaded.get(name)) {
            match levels.iter().find(|other| other.name == level.name) {
                Some(other) if other != level => {
                    return Err(Error::usage(format!("two levels are named `{}`", level.name))
                        .hint("give one of their files another `name`"));
                }
                Some(_) => {}
                None => levels.push(level.clone()),
            }
        }
        self.lay_out(levels, &loaded.iter().map(|(name, level)| (*name, level)).collect())
    }

    /// The same with the levels of an earlier matrix of this plan: no file that it names is opened, so that it does not
    /// matter where that happens or what has become of them.
    ///
    /// # Errors
    /// Usage: something that cannot be, or levels that are not those of this plan.
    pub fn matrix_with(&self, levels: &[Level]) -> Result<Matrix> {
        self.check_lengths()?;
        let mut names: Vec<&str> = Vec::new();
        for name in self.level_names() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        // Levels stand in the order in which they are named first. A file may hold a level of any name.
        let is_named = |(name, level): (&&str, &Level)| !Level::names().contains(name) || level.name == **name;
        if names.len() != levels.len() || !names.iter().zip(levels).all(is_named) {
            return Err(Error::usage("these are not the levels that the plan names"));
        }
        self.lay_out(levels.to_vec(), &names.into_iter().zip(levels).collect())
    }

    /// The levels as the plan names them: by name or file.
    fn level_names(&self) -> impl Iterator<Item = &str> {
        let included = self.include.iter().filter_map(|include| include.level.as_ref());
        self.levels.iter().chain(included).map(String::as_str)
    }

    /// Checks everything and lays out the cells; `named` has each level by what the plan calls it.
    fn lay_out(&self, levels: Vec<Level>, named: &HashMap<&str, &Level>) -> Result<Matrix> {
        self.check_times()?;
        self.cpus()?;
        self.exclude.iter().try_for_each(Pick::check)?;
        let level_of = |name: &str| {
            named.get(name).copied().ok_or_else(|| Error::usage(format!("level {name} is not among those of the plan")))
        };
        let mut matrix = Matrix { cells: Vec::new(), levels, write_bytes: self.write_bytes()?, skipped: Vec::new() };
        for path in &self.paths {
            for workload in &self.workloads {
                for mtu in self.mtu_axis() {
                    for &clients in &self.clients {
                        for level in &self.levels {
                            self.add(&mut matrix, path, workload, mtu, clients, level_of(level)?)?;
                        }
                    }
                }
            }
        }
        for include in &self.include {
            let path = include.path.as_ref().or(self.paths.first());
            let workload = include.workload.as_ref().or(self.workloads.first());
            let level = include.level.as_ref().or(self.levels.first());
            let (Some(path), Some(workload), Some(level)) = (path, workload, level) else {
                return Err(Error::usage("an `include` needs a path, a workload and a level"));
            };
            let clients = include.clients.or(self.clients.first().copied()).unwrap_or(1);
            let first = || self.mtu_axis().into_iter().next().flatten();
            let level = level_of(level)?;
            let mtu = include.mtu.or(level.mtu).or_else(first);
            self.add(&mut matrix, path, workload, mtu, clients, level)?;
        }
        match (matrix.cells.as_slice(), matrix.skipped.first()) {
            ([], None) => {
                let hint = "give at least one path, workload and number of clients that is not excluded";
                Err(Error::usage("the plan has no cells").hint(hint))
            }
            ([], Some((cell, reason))) => Err(Error::usage(format!("no cell of the plan can be: {cell}: {reason}"))
                .hint("`siga plan` with the same options shows all of them")),
            _ => self.check_settings(&matrix).map(|()| matrix),
        }
    }

    fn mtu_axis(&self) -> Vec<Option<u32>> {
        if self.mtus.is_empty() { vec![None] } else { self.mtus.iter().copied().map(Some).collect() }
    }

    fn write_bytes(&self) -> Result<u64> {
        let bytes = parse_size(&self.write).map_err(|error| error.at("write"))?;
        if bytes == 0 || bytes > limits::WRITE_BYTES_MAX {
            return Err(Error::usage(format!("a write of {bytes} bytes"))
                .hint(format!("--write takes 1 to {} bytes", limits::WRITE_BYTES_MAX)));
        }
        Ok(bytes)
    }

    /// CPUs of the client and of the server; empty: the scheduler's choice.
    ///
    /// # Errors
    /// Usage: no list of CPUs.
    pub fn cpus(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        let list = |text: &Option<String>| match text {
            None => Ok(Vec::new()),
            Some(text) => cpu_list(text)
                .ok_or_else(|| Error::usage(format!("`{text}` is no list of CPUs")).hint("write 0, or 0-3,8")),
        };
        Ok((list(&self.client_cpus)?, list(&self.server_cpus)?))
    }

    /// Where guests do not wait as the plan says, because their level does; `None` if all wait as it says.
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
            Some(format!("by `{}` at {words}", wait.name()))
        });
        let others: Vec<String> = others.collect();
        let wait = self.wait.name();
        (!others.is_empty())
            .then(|| format!("guests wait {}, and not by `{wait}`: these levels say how", others.join(", ")))
    }

    /// Refuses axes that would take for ever to go through, whatever comes of their combinations.
    fn check_lengths(&self) -> Result<()> {
        let axes = [
            ("paths", self.paths.len()),
            ("workloads", self.workloads.len()),
            ("mtus", self.mtus.len()),
            ("clients", self.clients.len()),
            ("levels", self.levels.len()),
        ];
        let lists =
            [("include", self.include.len(), limits::CELLS_MAX), ("exclude", self.exclude.len(), limits::EXCLUDES_MAX)];
        let axes_long = axes.into_iter().map(|(name, length)| (name, length, limits::CELLS_MAX));
        if let Some((name, length, most)) = axes_long.chain(lists).find(|(_, length, most)| length > most) {
            return Err(Error::usage(format!("`{name}` of the plan has {length} entries"))
                .hint(format!("it takes up to {most}")));
        }
        let combinations = axes.into_iter().fold(1_usize, |all, (_, length)| all.saturating_mul(length.max(1)));
        if combinations > limits::COMBINATIONS_MAX {
            let most = limits::COMBINATIONS_MAX;
            return Err(Error::usage(format!("the plan's axes have {combinations} combinations"))
                .hint(format!("they may have up to {most}; shorten them, or spread them over several plans")));
        }
        Ok(())
    }

    fn check_times(&self) -> Result<()> {
        within("seconds", self.seconds, 0.01, limits::TRIAL_SECONDS_MAX)?;
        within("warm_up_seconds", self.warm_up_seconds, 0.0, limits::TRIAL_SECONDS_MAX)?;
        if let Some(budget) = self.budget_seconds {
            within("budget_seconds", budget, 0.1, 1e7)?;
        }
        if let Some(rate) = self.rate {
            within("rate", rate, 0.001, 1e8)?;
        }
        if let Some(trials) = self.trials {
            within("trials", f64::from(trials), 1.0, f64::from(limits::TRIALS_MAX))?;
        }
        self.plant.check()?;
        if let Some(seed) = self.seed.filter(|&seed| i64::try_from(seed).is_err()) {
            // TOML's integers are signed.
            return Err(Error::usage(format!("seed = {seed}")).hint(format!("seed goes from 0 to {}", i64::MAX)));
        }
        Ok(())
    }

    /// Refuses settings that would do nothing in any cell.
    fn check_settings(&self, matrix: &Matrix) -> Result<()> {
        let routes: Vec<Route> = matrix.cells.iter().map(|cell| cell.path.parse()).collect::<Result<_>>()?;
        self.check_plants(matrix, &routes)?;
        let existing = |route: &Route| matches!(route, Route::Places(..));
        let default = Reach::default();
        for (what, set) in [
            ("server address", self.reach.server_address != default.server_address),
            ("congestion control", self.reach.congestion != default.congestion),
        ] {
            if set && !routes.iter().any(existing) {
                return Err(Error::usage(format!("a {what} is given, and no path is between existing places"))
                    .hint("give --client and --server, or leave it out"));
            }
        }
        self.reach.congestion.as_deref().map_or(Ok(()), check_congestion)
    }

    /// Refuses planted costs, the plan's and those of levels, that no cell would have.
    fn check_plants(&self, matrix: &Matrix, routes: &[Route]) -> Result<()> {
        let cells_of = |wanted: &dyn Fn(&Level) -> bool| -> Vec<(&Cell, &Route)> {
            let is_of = |cell: &Cell| matrix.levels.iter().any(|level| level.name == cell.level && wanted(level));
            matrix.cells.iter().zip(routes).filter(|(cell, _)| is_of(cell)).collect()
        };
        let cells = cells_of(&|level| level.plant.is_none());
        if cells.is_empty() && !self.plant.is_none() {
            return Err(Error::usage("the plan plants costs, and every level has its own instead")
                .hint("leave out --plant, or the `plant` of a level"));
        }
        self.plant.check_use(&cells)?;
        for level in &matrix.levels {
            let Some(plant) = level.plant else { continue };
            let cells = cells_of(&|other| other.name == level.name);
            if !cells.is_empty() {
                plant.check_use(&cells).map_err(|error| error.at(format!("level {}", level.name)))?;
            }
        }
        Ok(())
    }

    /// Refuses numbers of pairs that the drivers cannot serve.
    fn check_pairs(&self, clients: u32) -> Result<()> {
        let refused = |text: String, hint: String| Err(Error::usage(text).hint(hint));
        if clients == 0 || clients > limits::PAIRS_MAX {
            return refused(format!("{clients} clients"), format!("--clients takes 1 to {} pairs", limits::PAIRS_MAX));
        }
        if self.processes && clients > limits::PROCESSES_MAX {
            let most = limits::PROCESSES_MAX;
            return refused(
                format!("{clients} clients with a process each"),
                format!("--processes takes up to {most} pairs; without it {} can be had", limits::PAIRS_MAX),
            );
        }
        if self.processes && self.reach.port > 0 && clients > u32::from(u16::MAX - self.reach.port) + 1 {
            return refused(
                format!("{clients} servers on ports from {} on", self.reach.port),
                "give a lower --port: each process listens on a port of its own".into(),
            );
        }
        Ok(())
    }

    /// Adds a cell unless it is there, excluded, or not possible on its path.
    fn add(
        &self,
        matrix: &mut Matrix,
        path: &str,
        workload: &str,
        mtu: Option<u32>,
        clients: u32,
        level: &Level,
    ) -> Result<()> {
        let route: Route = path.parse()?;
        let workload: Workload = workload.parse()?;
        self.check_pairs(clients)?;
        if self.rate.is_some() && workload.is_stream() {
            return Err(Error::usage(format!("workload {workload} has no transactions to plan"))
                .hint("--rate goes with rr and crr workloads"));
        }
        let asked = mtu.or(level.mtu);
        let known = match route {
            Route::Built(kind) => asked.or(kind.mtu_default()).filter(|_| kind.mtu_default().is_some()),
            Route::Guests(_) => asked.or(Some(GuestPath::MTU_DEFAULT)),
            Route::Places(..) => None,
        };
        let cell = Cell { path: route.to_string(), workload, mtu: known, clients, level: level.name.clone() };
        if self.exclude.iter().any(|exclude| exclude.matches(&cell)) || matrix.cells.contains(&cell) {
            return Ok(());
        }
        if let Some(reason) = self.impossible(&route, &cell, asked, level)? {
            if !matrix.skipped.iter().any(|(other, _)| *other == cell) {
                matrix.skipped.push((cell, reason));
            }
            return Ok(());
        }
        if matrix.cells.len() == limits::CELLS_MAX {
            return Err(Error::usage(format!("the plan has more than {} cells", limits::CELLS_MAX))
                .hint("shorten its axes, or spread them over several plans"));
        }
        matrix.cells.push(cell);
        Ok(())
    }

    /// Why a cell of the matrix makes no sense on its path; an error where the user asked for just this.
    fn impossible(&self, route: &Route, cell: &Cell, asked_mtu: Option<u32>, level: &Level) -> Result<Option<String>> {
        let adaptive =
            || format!("ends of {route} sleep (block) or ask (poll); only siga's own networks do either as it pays");
        let (lacks, range) = match route {
            Route::Built(kind) => (kind.lacks(level), kind.mtu_range(self.ipv6)),
            Route::Guests(path) => (self.lacks(*path, level), Some(path.mtu_range(self.ipv6))),
            Route::Places(..) => {
                if self.wait == Waiting::Adaptive {
                    return Ok(Some(adaptive()));
                }
                let settings = level.settings();
                return Ok(if !settings.is_empty() {
                    let settings = settings.join(", ");
                    Some(format!("siga sets nothing in existing places, and level {} sets {settings}", level.name))
                } else {
                    asked_mtu.map(|_| "siga does not set the MTU of a path it has not built".to_owned())
                });
            }
        };
        if lacks.is_some() {
            return Ok(lacks);
        }
        if self.wait == Waiting::Adaptive && !matches!(route, Route::Guests(_)) {
            return Ok(Some(adaptive()));
        }
        if let (Some(asked), Some(own)) = (asked_mtu, level.mtu)
            && asked != own
        {
            return Ok(Some(format!("level {} has an MTU of its own, {own}", level.name)));
        }
        if let (Some(mtu), Some((least, most))) = (asked_mtu, range)
            && !(least..=most).contains(&mtu)
        {
            let text = format!("{route} takes an MTU of {least} to {most} bytes, not {mtu}");
            let elsewhere = self.paths.iter().any(|path| {
                let range = match path.parse() {
                    Ok(Route::Built(kind)) => kind.mtu_range(self.ipv6),
                    Ok(Route::Guests(path)) => Some(path.mtu_range(self.ipv6)),
                    Ok(Route::Places(..)) | Err(_) => None,
                };
                range.is_some_and(|(l, m)| (l..=m).contains(&mtu))
            });
            let hint = match level.mtu {
                Some(_) => format!("leave level {} out, or give it another `mtu`", level.name),
                None => "give another --mtu".into(),
            };
            return if elsewhere { Ok(Some(text)) } else { Err(Error::usage(text).hint(hint)) };
        }
        let stream_sockets_only = matches!(route, Route::Built(PathKind::Unix | PathKind::Sockmap));
        if cell.workload.udp && stream_sockets_only {
            return Ok(Some(format!("{route} has no UDP")));
        }
        if self.ipv6 && *route == Route::Built(PathKind::Unix) {
            return Ok(Some(format!("{route} has no addresses, so no IPv6")));
        }
        Ok(None)
    }

    /// What the plan or a level wants that a path over siga's own network has not.
    fn lacks(&self, path: GuestPath, level: &Level) -> Option<String> {
        if self.processes {
            return Some(format!("each end of {path} is one guest, and a guest is one process"));
        }
        if path.routed && level.plant.unwrap_or(self.plant).router_us > 0.0 {
            return Some(format!("a cost can be planted in the kernel's routers alone, not in that of {path}"));
        }
        path.lacks(level)
    }
}

/// A plan without the command below [reach]; `None` if it has none.
fn without_command(text: &str) -> Option<toml::Table> {
    let mut table: toml::Table = toml::from_str(text).ok()?;
    table.get_mut("reach")?.as_table_mut()?.remove("ssh")?;
    Some(table)
}

fn malformed(place: &str, error: &toml::de::Error) -> Error {
    Error::usage(format!("plan {place}: {error}")).hint("`siga plan --schema` prints the form of a plan")
}

impl Pick {
    /// A typing error in a value would match nothing and go unnoticed.
    fn check(&self) -> Result<()> {
        self.path.as_deref().map(str::parse::<Route>).transpose()?;
        self.workload.as_deref().map(str::parse::<Workload>).transpose()?;
        Ok(())
    }

    fn matches(&self, cell: &Cell) -> bool {
        let same = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        // The workload takes longest to read, so it comes last.
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
