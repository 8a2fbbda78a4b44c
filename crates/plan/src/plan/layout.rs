//! Lays out the cells of a plan: every combination of its axes that can be measured, in order and without duplicates.

use super::Plan;
use super::table::Table;
use crate::level::Level;
use crate::level::frame::Frame;
use crate::limits;
use crate::matrix::{Cell, Matrix};
use crate::path::PathKind;
use crate::path::guest::{Attach, GuestPath};
use crate::path::own::{OwnPath, Source};
use crate::place::{self, Place};
use crate::route::Route;
use crate::workload::{Workload, parse_size};
use siga_model::error::{Error, Result};
use siga_model::waiting::Waiting;
use std::borrow::Cow;
use std::collections::HashMap;

impl Plan {
    /// Checks the whole plan and lays out its cells.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` for the first impossible value that the check finds.
    pub fn matrix(&self) -> Result<Matrix> {
        self.check_lengths()?;
        let read = |name: Cow<'_, str>| Ok((name.clone().into_owned(), Level::load(&name)?));
        let loaded = self.level_names().map(read).collect::<Result<HashMap<_, _>>>()?;
        let mut levels: Vec<Level> = Vec::new();
        for level in self.level_names().filter_map(|name| loaded.get(&*name)) {
            match levels.iter().find(|other| other.name == level.name) {
                Some(other) if other != level => {
                    return Err(Error::usage(format!("two levels are named `{}`", level.name))
                        .hint("change the key `name` in the file of one of these levels"));
                }
                Some(_) => {}
                None => levels.push(level.clone()),
            }
        }
        self.lay_out(levels, &loaded.iter().map(|(name, level)| (name.as_str(), level)).collect())
    }

    /// Does the same as [`Plan::matrix`] with the levels of an earlier matrix of this plan. It does not open the files that the
    /// plan names, so they may have moved or changed since.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` for an impossible value, or for levels that do not belong to this plan.
    pub fn matrix_with(&self, levels: &[Level]) -> Result<Matrix> {
        self.check_lengths()?;
        let names = self.distinct_level_names();
        // `levels` must have the order in which the plan first names each level. The level in a file may have any name.
        let is_named =
            |(name, level): (&Cow<'_, str>, &Level)| !Level::names().contains(&&**name) || level.name == **name;
        if names.len() != levels.len() || !names.iter().zip(levels).all(is_named) {
            return Err(Error::usage("the levels that the run has recorded differ from the levels in the plan"));
        }
        self.lay_out(levels.to_vec(), &names.iter().map(|name| &**name).zip(levels).collect())
    }

    /// Returns the levels as the plan writes them, each once. The levels of a run have this order.
    pub(super) fn distinct_level_names(&self) -> Vec<Cow<'_, str>> {
        let mut names: Vec<Cow<'_, str>> = Vec::new();
        for name in self.level_names() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the levels as the plan writes them: each is the name of a shipped level, or a file.
    pub(super) fn level_names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let own = self.levels.iter().map(|level| level.as_str().into()).filter(|_| self.table.is_empty());
        let of_tables = self.table.iter().flat_map(|table| self.levels.iter().map(|level| table.level(level)));
        let included = self.include.iter().filter_map(|include| Some(include.level.as_deref()?.into()));
        own.chain(of_tables).chain(included)
    }

    /// Checks the whole plan and lays out its cells. `named` maps each level's text in the plan to the level.
    fn lay_out(&self, levels: Vec<Level>, named: &HashMap<&str, &Level>) -> Result<Matrix> {
        self.check_times()?;
        self.check_commands()?;
        self.cpus()?;
        self.network_cpus()?;
        self.memory_limit_bytes()?;
        self.exclude.iter().try_for_each(|pick| pick.check(self))?;
        let level_of = |name: &str| {
            named.get(name).copied().ok_or_else(|| Error::usage(format!("the plan does not list level {name}")))
        };
        let mut matrix = Matrix { cells: Vec::new(), levels, write_bytes: self.write_bytes()?, skipped: Vec::new() };
        self.check_tables()?;
        let own = self.table.is_empty().then(Table::default);
        for table in own.iter().chain(&self.table) {
            for (path, workload) in cross(table.paths(self), table.workloads(self)) {
                for mtu in table.mtu_axis(self) {
                    for (clients, level) in cross(&self.clients, &self.levels) {
                        self.add(&mut matrix, path, workload, mtu, *clients, level_of(&table.level(level))?)?;
                    }
                }
            }
        }
        for include in &self.include {
            let path = include.path.as_ref().or(self.paths.first());
            let workload = include.workload.as_ref().or(self.workloads.first());
            let level = include.level.as_ref().or(self.levels.first());
            let (Some(path), Some(workload), Some(level)) = (path, workload, level) else {
                return Err(Error::usage("an entry of `include` needs a path, a workload and a level"));
            };
            let clients = include.clients.or(self.clients.first().copied()).unwrap_or(1);
            let first = || self.mtus.first().copied();
            let level = level_of(level)?;
            let mtu = include.mtu.or(level.mtu).or_else(first);
            self.add(&mut matrix, path, workload, mtu, clients, level)?;
        }
        match (matrix.cells.as_slice(), matrix.skipped.first()) {
            ([], None) => {
                let hint = "list at least one path, one workload and one number of clients, and do not exclude every \
                    combination";
                Err(Error::usage("the plan has no cells").hint(hint))
            }
            ([], Some((cell, reason))) => Err(Error::usage(format!(
                "siga can measure no cell of the plan; the first cell, {cell}, fails because: {reason}"
            ))
            .hint("`siga plan` with the same options lists the reason for each cell")),
            _ => self.check_settings(&matrix).map(|()| matrix),
        }
    }

    fn write_bytes(&self) -> Result<u64> {
        let bytes = parse_size(&self.write).map_err(|error| error.at("write"))?;
        if bytes == 0 || bytes > limits::WRITE_BYTES_MAX {
            return Err(Error::usage(format!("siga cannot write {bytes} bytes with one call"))
                .hint(format!("--write accepts 1 to {} bytes", limits::WRITE_BYTES_MAX)));
        }
        Ok(bytes)
    }

    /// Adds a cell unless the matrix already has it, the plan excludes it, or its path cannot be built that way.
    fn add(
        &self,
        matrix: &mut Matrix,
        path: &str,
        workload: &str,
        mtu: Option<u32>,
        clients: u32,
        level: &Level,
    ) -> Result<()> {
        let workload = match self.command_cell(workload, clients, level)? {
            Ok(cell) => return self.place(matrix, cell, |cell| Ok(self.impossible_command(cell, level))),
            Err(workload) => workload,
        };
        let route: Route = path.parse()?;
        self.check_pairs(clients, workload.beside)?;
        if self.rate.is_some() && workload.is_stream() {
            return Err(Error::usage(format!(
                "workload {workload} is a stream, so it has no transactions that could start at planned times"
            ))
            .hint("remove --rate, or choose workloads of the types rr and crr"));
        }
        if !self.load.is_empty() && workload.is_stream() {
            return Err(Error::usage(format!(
                "workload {workload} is a stream, so it has no transactions that could start at planned times"
            ))
            .hint("remove --load, or choose workloads of the types rr and crr"));
        }
        let asked = mtu.or(level.mtu);
        let known = match route {
            Route::Built(kind) => asked.or(kind.mtu_default()).filter(|_| kind.mtu_default().is_some()),
            Route::Guests(path) => asked.or(level.frame().map(Frame::mtu_max)).or(Some(path.mtu_default())),
            Route::Own(_) | Route::Places(..) => asked,
            Route::Host => {
                return Err(Error::usage(format!(
                    "path {route} is only for commands, but workload {workload} is not a command"
                ))
                .hint("use a network path that siga builds, such as veth"));
            }
        };
        let cell =
            Cell { path: route.to_string(), workload: workload.into(), mtu: known, clients, level: level.name.clone() };
        self.place(matrix, cell, |_| self.impossible(&route, &workload, asked, level))
    }

    /// Adds a cell unless the matrix already has it, or the plan excludes it. `impossible` returns why the cell cannot be measured.
    fn place(
        &self,
        matrix: &mut Matrix,
        cell: Cell,
        impossible: impl FnOnce(&Cell) -> Result<Option<String>>,
    ) -> Result<()> {
        if self.exclude.iter().any(|exclude| exclude.matches(&cell)) || matrix.cells.contains(&cell) {
            return Ok(());
        }
        if let Some(reason) = impossible(&cell)? {
            if !matrix.skipped.iter().any(|(other, _)| *other == cell) {
                matrix.skipped.push((cell, reason));
            }
            return Ok(());
        }
        if matrix.cells.len() == limits::CELLS_MAX {
            return Err(Error::usage(format!("the plan has more than {} cells", limits::CELLS_MAX))
                .hint("remove values, or split the plan into several plans"));
        }
        matrix.cells.push(cell);
        Ok(())
    }

    /// Returns the reason why a cell cannot be measured on its path, if there is one. If no other path of the plan supports the
    /// value either, this is an error.
    fn impossible(
        &self,
        route: &Route,
        workload: &Workload,
        asked_mtu: Option<u32>,
        level: &Level,
    ) -> Result<Option<String>> {
        if let Some(setting) = level.settings().into_iter().find(|name| Level::ONLY_OF_COMMANDS.contains(name)) {
            return Ok(Some(format!(
                "level {} sets `{setting}`, which applies only to commands, but workload {workload} is not a command",
                level.name
            )));
        }
        let (lacks, range) = match route {
            Route::Built(kind) => (kind.lacks(level), kind.mtu_range(self.ipv6)),
            Route::Guests(path) => (self.lacks(*path, level), Some(path.mtu_range(self.ipv6))),
            Route::Own(path) => (self.own_lacks(path, asked_mtu, level), None),
            Route::Host => {
                (Some(format!("path {route} is only for commands, but workload {workload} is not a command")), None)
            }
            Route::Places(client, server) => (
                lacks_of_places([client, server], workload.udp && asked_mtu.is_some(), level),
                Some(place::mtu_range(self.ipv6)),
            ),
        };
        if lacks.is_some() {
            return Ok(lacks);
        }
        if let Some(reason) = exceeds_frame(asked_mtu, level) {
            return Ok(Some(reason));
        }
        if self.wait == Waiting::Adaptive && !matches!(route, Route::Guests(_) | Route::Own(_)) {
            return Ok(Some(no_adaptive(route)));
        }
        if let (Some(asked), Some(own)) = (asked_mtu, level.mtu)
            && asked != own
        {
            return Ok(Some(format!(
                "level {} sets the MTU to {own} bytes, but the plan asks for an MTU of {asked} bytes",
                level.name
            )));
        }
        if let (Some(mtu), Some((least, most))) = (asked_mtu, range)
            && !(least..=most).contains(&mtu)
        {
            let text = format!("path {route} supports an MTU from {least} to {most} bytes, but the MTU is {mtu}");
            let elsewhere = self.has_path_with(mtu);
            let hint = match level.mtu {
                Some(_) => format!("remove level {}, or change its `mtu`", level.name),
                None => "choose another MTU with --mtu".into(),
            };
            return if elsewhere { Ok(Some(text)) } else { Err(Error::usage(text).hint(hint)) };
        }
        let stream_sockets_only =
            matches!(route, Route::Built(PathKind::Unix | PathKind::SmcLoopback | PathKind::Sockmap));
        if workload.udp && stream_sockets_only {
            return Ok(Some(format!("path {route} does not support UDP")));
        }
        if level.io_uring && (workload.udp || workload.beside > 0) {
            let what = if workload.udp { "uses UDP" } else { "has two listeners" };
            return Ok(Some(format!(
                "level {} uses io_uring, which siga supports only for one TCP listener, but the workload {what}",
                level.name
            )));
        }
        if self.ipv6 && *route == Route::Built(PathKind::Unix) {
            return Ok(Some(format!("path {route} has no IP addresses, so it does not support IPv6")));
        }
        Ok(None)
    }

    /// Returns true if a path of the plan supports this MTU.
    fn has_path_with(&self, mtu: u32) -> bool {
        let of_tables = self.table.iter().flat_map(|table| &table.paths);
        self.paths.iter().chain(of_tables).any(|path| {
            let range = match path.parse() {
                Ok(Route::Built(kind)) => kind.mtu_range(self.ipv6),
                Ok(Route::Guests(path)) => Some(path.mtu_range(self.ipv6)),
                Ok(Route::Places(..)) => Some(place::mtu_range(self.ipv6)),
                Ok(Route::Own(_) | Route::Host) | Err(_) => None,
            };
            range.is_some_and(|(least, most)| (least..=most).contains(&mtu))
        })
    }

    /// Returns a setting of the plan or of the level that a path over siga's own network does not support, if there is one.
    fn lacks(&self, path: GuestPath, level: &Level) -> Option<String> {
        if self.processes && matches!(path.attach, Attach::Embedded | Attach::Mixed) {
            return Some(format!(
                "path {path} does not support one process per pair, because client and server are guests, \
                and a guest is one process; use a path such as hipersockets-iucv, on which they are applications of guests"
            ));
        }
        let plant = level.plant.unwrap_or(self.plant);
        if path.routed && (plant.router_us > 0.0 || plant.profiler_us > 0.0) {
            return Some(format!(
                "path {path} does not support a planted cost in the router; only kernel paths with a router do"
            ));
        }
        if self.ipv6 && path.medium.carries_only_v4() {
            return Some(format!("path {path} carries only IPv4 packets, but the plan uses IPv6"));
        }
        path.lacks(level)
    }

    /// Returns a setting of the plan or of the level that a path over the user's own network does not support, if there is one.
    fn own_lacks(&self, path: &OwnPath, asked_mtu: Option<u32>, level: &Level) -> Option<String> {
        let (level_name, plant) = (&level.name, level.plant.unwrap_or(self.plant));
        let refused = |what: &str| Some(format!("{what}, but on path {path}, the topology decides this"));
        let others = level.settings().into_iter().filter(|name| !matches!(*name, "congestion" | "build"));
        let others: Vec<_> = others.collect();
        if !others.is_empty() {
            return refused(&format!("level {level_name} sets {}", others.join(", ")));
        }
        if asked_mtu.is_some() {
            return refused("the plan sets an MTU");
        }
        if self.wait != Waiting::Block {
            return refused("the plan sets how client and server wait for data");
        }
        if plant.router_us > 0.0 || plant.profiler_us > 0.0 {
            return Some(format!("path {path} does not support a planted cost in the router"));
        }
        if let (Source::Up(name), true) = (&path.source, self.router_cpus.is_some() || self.guest_cpus.is_some()) {
            return Some(format!(
                "the plan sets CPUs of guests, but network {name} already runs; use --topology with its file"
            ));
        }
        match (&path.source, &level.build) {
            (Source::Up(name), Some(_)) => Some(format!(
                "level {level_name} uses another build of siga, but network {name} already runs; use --topology with its file"
            )),
            _ => level.foreign_congestion(),
        }
    }
}

/// Returns every combination of two values; the second changes first.
fn cross<'a, A, B>(ones: &'a [A], others: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    ones.iter().flat_map(move |one| others.iter().map(move |other| (one, other)))
}

/// Returns why the frames of a level cannot carry an MTU, or `None` if they can.
fn exceeds_frame(asked_mtu: Option<u32>, level: &Level) -> Option<String> {
    let (mtu, frame) = asked_mtu.zip(level.frame()).filter(|(mtu, frame)| *mtu > frame.mtu_max())?;
    let (name, frame, most) = (&level.name, frame.name(), frame.mtu_max());
    Some(format!(
        "level {name} has frames of {frame}, which carry an MTU of at most {most} bytes, but the MTU is {mtu}"
    ))
}

/// Returns a setting that siga cannot apply between existing places, if there is one. `limits_udp` is true if the cell has an MTU and
/// its workload uses UDP.
fn lacks_of_places(places: [&Place; 2], limits_udp: bool, level: &Level) -> Option<String> {
    let settings: Vec<_> = level.settings().into_iter().filter(|name| *name != "build").collect();
    if level.build.is_some()
        && let Some(host) = places.into_iter().find(|place| matches!(place, Place::Ssh(_)))
    {
        return Some(format!("level {} uses another build of siga, which siga does not copy to {host}", level.name));
    }
    if !settings.is_empty() {
        let (settings, name) = (settings.join(", "), &level.name);
        return Some(format!(
            "siga does not change settings of existing hosts, namespaces or containers, but level {name} sets {settings}"
        ));
    }
    limits_udp.then(|| {
        "between existing hosts, namespaces or containers, siga can apply an MTU to TCP segments only, but the workload \
        uses UDP"
            .to_owned()
    })
}

/// Returns the reason why a path does not support the waiting policy `adaptive`.
fn no_adaptive(route: &Route) -> String {
    format!(
        "client and server on {route} support the waiting policies `block` and `poll`; `adaptive` needs a path over siga's \
         own networks"
    )
}
