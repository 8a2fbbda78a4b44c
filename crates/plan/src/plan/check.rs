//! Refuses plans that cannot be measured, before anything is built.

use super::table::Table;
use super::{Plan, Reach};
use crate::kernel_setting::check_congestion;
use crate::level::Level;
use crate::limits;
use crate::matrix::{Cell, Matrix};
use crate::plant::{Plant, within};
use crate::route::Route;
use siga_model::error::{Error, Result};

impl Plan {
    /// Refuses axes with too many values or combinations, before the values themselves are checked.
    pub(super) fn check_lengths(&self) -> Result<()> {
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
            return Err(Error::usage(format!("the list `{name}` in the plan has too many values: {length}"))
                .hint(format!("write at most {most} values in this list")));
        }
        let product =
            |lengths: [usize; 5]| lengths.into_iter().fold(1, |all: usize, one| all.saturating_mul(one.max(1)));
        let of_table = |table: &Table| {
            let mtus = table.mtu_axis(self).len();
            let lengths = [table.paths(self).len(), table.workloads(self).len(), mtus];
            product([lengths[0], lengths[1], lengths[2], self.clients.len(), self.levels.len()])
        };
        let own = product(axes.map(|(_, length)| length));
        let combinations = self.table.iter().map(of_table).fold(own, usize::saturating_add);
        if combinations > limits::COMBINATIONS_MAX {
            let most = limits::COMBINATIONS_MAX;
            return Err(Error::usage(format!(
                "the plan has {combinations} combinations of values, which are too many"
            ))
            .hint(format!(
                "a plan can have at most {most} combinations; remove values, or split the plan into several plans"
            )));
        }
        Ok(())
    }

    pub(super) fn check_times(&self) -> Result<()> {
        within("seconds", self.seconds, 0.01, limits::TRIAL_SECONDS_MAX)?;
        within("warm_up_seconds", self.warm_up_seconds, 0.0, limits::TRIAL_SECONDS_MAX)?;
        if let Some(budget) = self.budget_seconds {
            within("budget_seconds", budget, 0.1, 1e7)?;
        }
        if let Some(rate) = self.rate {
            within("rate", rate, 0.001, 1e8)?;
        }
        if self.load.len() > limits::LOADS_MAX {
            let most = limits::LOADS_MAX;
            let count = self.load.len();
            return Err(Error::usage(format!(
                "the list `load` in the plan has {count} values, but may have at most {most}"
            )));
        }
        if self.rate.is_some() && !self.load.is_empty() {
            return Err(Error::usage("the plan sets both --rate and --load, but only one of them is possible").hint(
                "remove --rate (transactions per second) or --load (percentages of the rate of the closed loop)",
            ));
        }
        if let Some(trials) = self.trials {
            within("trials", f64::from(trials), 1.0, f64::from(limits::TRIALS_MAX))?;
        }
        self.plant.check()?;
        if let Some(seed) = self.seed.filter(|&seed| i64::try_from(seed).is_err()) {
            // A larger seed could not be written to a plan file, because TOML's integers are signed.
            return Err(Error::usage(format!("seed = {seed} is not allowed"))
                .hint(format!("the seed must be from 0 to {}", i64::MAX)));
        }
        Ok(())
    }

    /// Refuses settings that have no effect on any cell.
    pub(super) fn check_settings(&self, matrix: &Matrix) -> Result<()> {
        let routes: Vec<Route> = matrix.cells.iter().map(|cell| cell.path.parse()).collect::<Result<_>>()?;
        self.check_plants(matrix, &routes)?;
        self.check_findings(matrix)?;
        let existing = |route: &Route| matches!(route, Route::Places(..));
        let default = Reach::default();
        for (what, set) in [
            ("server address", self.reach.server_address != default.server_address),
            ("congestion control", self.reach.congestion != default.congestion),
        ] {
            if set && !routes.iter().any(existing) {
                return Err(Error::usage(format!(
                    "the plan sets a {what}, which only paths between existing hosts, \
                    namespaces or containers use, but it has no such path"
                ))
                .hint("name the two ends with --client and --server, or remove the setting"));
            }
        }
        let has_network = |route: &Route| matches!(route, Route::Guests(_) | Route::Own(_));
        let has_router = |route: &Route| match route {
            Route::Guests(path) => path.routed,
            Route::Own(_) => true,
            Route::Built(_) | Route::Places(..) | Route::Host => false,
        };
        for (option, set, path, is_used) in [
            ("router-cpus", &self.router_cpus, "hipersockets-routed", routes.iter().any(has_router)),
            ("guest-cpus", &self.guest_cpus, "hipersockets-iucv", routes.iter().any(has_network)),
        ] {
            if set.is_some() && !is_used {
                return Err(Error::usage(format!(
                    "--{option} has no effect, because no path of the plan has such a process of siga's own networks"
                ))
                .hint(format!("add a path such as {path}, or remove --{option}")));
            }
        }
        self.reach.congestion.as_deref().map_or(Ok(()), check_congestion)
    }

    /// Refuses planted costs, of the plan or of a level, that would be added in no cell.
    fn check_plants(&self, matrix: &Matrix, routes: &[Route]) -> Result<()> {
        let cells_of = |wanted: &dyn Fn(&Level) -> bool| -> Vec<(&Cell, &Route)> {
            let is_of = |cell: &Cell| matrix.levels.iter().any(|level| level.name == cell.level && wanted(level));
            matrix.cells.iter().zip(routes).filter(|(cell, _)| is_of(cell)).collect()
        };
        let cells = cells_of(&|level| level.plant.is_none());
        if cells.is_empty() && !self.plant.is_none() {
            return Err(Error::usage(
                "the planted costs of the plan have no effect, because each level has its own planted costs",
            )
            .hint("remove --plant, or remove `plant` from one of the levels"));
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

    /// Refuses more client-server pairs than the workload drivers support.
    pub(super) fn check_pairs(&self, clients: u32, beside: u32) -> Result<()> {
        let refused = |text: String, hint: String| Err(Error::usage(text).hint(hint));
        if clients == 0 || clients > limits::PAIRS_MAX {
            return refused(
                format!("siga cannot use {clients} client-server pairs (--clients)"),
                format!("--clients accepts 1 to {} pairs", limits::PAIRS_MAX),
            );
        }
        if beside > 0 && clients > limits::PAIRS_MAX - beside {
            return refused(
                format!("{clients} client-server pairs and {beside} streams beside them are too many connections"),
                format!("use at most {} pairs and streams in total", limits::PAIRS_MAX),
            );
        }
        let clients = clients + beside;
        if self.processes && clients > limits::PROCESSES_MAX {
            let most = limits::PROCESSES_MAX;
            return refused(
                format!("{clients} client-server pairs are too many for one process per pair"),
                format!(
                    "with --processes, use at most {most} pairs; without --processes, use at most {}",
                    limits::PAIRS_MAX
                ),
            );
        }
        if self.processes && self.reach.port > 0 && clients > u32::from(u16::MAX - self.reach.port) + 1 {
            return refused(
                format!(
                    "{clients} server processes need {clients} port numbers, but there are fewer from {} to 65535",
                    self.reach.port
                ),
                "use a lower --port, because with --processes each server process listens on its own port".into(),
            );
        }
        Ok(())
    }
}

impl Plant {
    /// Refuses a cost that siga can add in none of `cells`, and a delay for which datagrams would count as lost.
    fn check_use(&self, cells: &[(&Cell, &Route)]) -> Result<()> {
        let routed = |route: &Route| matches!(route, Route::Built(kind) if kind.without_router().is_some());
        if self.router_us > 0.0 && !cells.iter().any(|(_, route)| routed(route)) {
            return Err(Error::usage(
                "the plan adds a cost to the router (--plant router=), but no kernel path of the plan has a router",
            )
            .hint("add a path such as veth-routed, or remove router= from the planted costs"));
        }
        if self.profiler_us > 0.0 && !cells.iter().any(|(_, route)| routed(route)) {
            return Err(Error::usage(
                "the plan plants a cost in the router while the profiler runs, but no kernel path of the plan has a \
                    router",
            )
            .hint("add a path such as veth-routed, or remove profiler= from the planted costs"));
        }
        if let Some((cell, _)) =
            cells.iter().find(|(cell, _)| self.delay_us > 0.0 && cell.workload.is_datagram_stream())
        {
            return Err(Error::usage(format!("plant.delay_us = {} is not allowed, because workload {} is a stream of datagrams", self.delay_us, cell.workload))
                .hint("remove delay= from the planted costs, because a stream of datagrams has no responses that siga could delay"));
        }
        let lost_us = limits::DATAGRAM_LOST_AFTER.as_micros() as f64;
        if self.delay_us >= lost_us
            && cells.iter().any(|(cell, _)| cell.workload.network().is_some_and(|workload| workload.udp))
        {
            return Err(Error::usage(format!("plant.delay_us = {} is too long for a UDP workload", self.delay_us))
                .hint(format!(
                    "use a shorter delay, because siga counts a datagram as lost if no response arrives within {lost_us} us"
                )));
        }
        Ok(())
    }
}
