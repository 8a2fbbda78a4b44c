//! CPU time per unit in one trial, charged to components (client, router, server, other) by an accounting method: `profile`,
//! `subtract`, `tick` or `processes`.

use super::overhead;
use crate::record::{Charges, GuestTimes, GuestsRecord, ProcessCpu, ProfileRecord, Samples, TrialRecord};
use crate::store::Run;
use siga_plan::accounting::AccountingMethod;

/// CPU milliseconds per unit in one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    /// The accounting method that charged kernel work to components.
    pub method: AccountingMethod,
    /// CPU time of the whole system, or of all processes of a command. The field `uncertainty` contains its error.
    pub total: Component,
    /// CPU time of the client: the side that connects.
    pub client: Component,
    /// CPU time of the router; `None` if the accounting method cannot measure it or if the path has no router.
    pub router: Option<Component>,
    /// CPU time of the server: the side that accepts connections.
    pub server: Component,
    /// CPU time of everything else that ran.
    pub other: Component,
    /// The part of `other` that the control program used; `None` unless the path is a siga network.
    pub control: Option<Component>,
    /// The parts of `client` and of `server` that the applications used; `None` if an application and its stack are one process.
    pub applications: Option<(Component, Component)>,
    /// CPU time that the accounting method could not charge to a component: `total` minus all components.
    pub residue: f64,
    /// Utilisation of all processors in percent; 100 means that all are busy.
    pub utilisation: f64,
}

impl Cpu {
    /// Returns these CPU times multiplied by `scale`. The utilisation stays as it is.
    #[must_use]
    pub fn times(&self, scale: f64) -> Self {
        let times = |component: Component| component.times(scale);
        Self {
            method: self.method,
            total: times(self.total),
            client: times(self.client),
            router: self.router.map(times),
            server: times(self.server),
            other: times(self.other),
            control: self.control.map(times),
            applications: self.applications.map(|(client, server)| (times(client), times(server))),
            residue: self.residue * scale,
            utilisation: self.utilisation,
        }
    }
}

/// CPU milliseconds per unit (transaction or megabyte) that one component used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Component {
    /// Total CPU time.
    pub total: f64,
    /// Time in user mode. For a guest, it excludes the data mover and polling.
    pub user: f64,
    /// Time in the kernel. For a guest, it includes the data mover.
    pub kernel: f64,
    /// A guest's time spent polling and yielding. It is part of neither `user` nor `kernel`.
    pub wait: f64,
    /// Half the width of the 95% interval of `total`.
    pub uncertainty: f64,
}

impl Component {
    fn split(total: f64, user: f64, uncertainty: f64) -> Self {
        let user = user.clamp(0.0, total.max(0.0));
        Self { total, user, kernel: total - user, wait: 0.0, uncertainty }
    }

    /// Computes the CPU time of a guest's process. The parts in `times` were measured by the stack's own clock. They are limited
    /// so that their sum does not exceed the exact run time of the process.
    fn guest(process: ProcessCpu, times: GuestTimes) -> Self {
        let (run, user) = (process.run_ns as f64, process.user_ns.min(process.run_ns) as f64);
        let copying = (times.copying_ns as f64).min(user);
        let looking = (times.looking_ns as f64).min(user - copying);
        let yielding = (times.yielding_ns as f64).min(run - user);
        let (user, wait) = (user - copying - looking, looking + yielding);
        Self { total: run, user, kernel: run - user - wait, wait, uncertainty: 0.0 }
    }

    /// Returns the sum of two components.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            total: self.total + other.total,
            user: self.user + other.user,
            kernel: self.kernel + other.kernel,
            wait: self.wait + other.wait,
            uncertainty: self.uncertainty.hypot(other.uncertainty),
        }
    }

    /// Returns this component without `part`.
    #[must_use]
    pub fn without(self, part: &Self) -> Self {
        Self {
            total: self.total - part.total,
            user: self.user - part.user,
            kernel: self.kernel - part.kernel,
            wait: self.wait - part.wait,
            uncertainty: self.uncertainty,
        }
    }

    fn per(self, units: f64) -> Self {
        // Convert nanoseconds in total to milliseconds per unit.
        self.times(1e-6 / units.max(f64::MIN_POSITIVE))
    }

    /// Returns this component with all its times multiplied by `scale`.
    #[must_use]
    pub fn times(self, scale: f64) -> Self {
        Self {
            total: self.total * scale,
            user: self.user * scale,
            kernel: self.kernel * scale,
            wait: self.wait * scale,
            uncertainty: self.uncertainty * scale,
        }
    }
}

/// Returns the CPU time of `trial`, charged to components by the accounting method `method`. If `method` is `None`, the best method
/// for which the run has data is used.
pub(super) fn of(run: &Run, trial: &TrialRecord, method: Option<AccountingMethod>) -> Cpu {
    if let Some(exact) = exact(trial) {
        return exact;
    }
    let best = if trial.cpu.profile.is_some() {
        AccountingMethod::Profile
    } else if overhead::base_of(&trial.cell).is_some_and(|base| run.trials.iter().any(|other| other.cell == base)) {
        AccountingMethod::Subtract
    } else {
        AccountingMethod::Tick
    };
    match (method.unwrap_or(best), &trial.cpu.profile) {
        (AccountingMethod::Profile, Some(profile)) => by_profile(trial, profile),
        (AccountingMethod::Subtract, _) => by_subtraction(run, trial),
        (AccountingMethod::Profile | AccountingMethod::Tick | AccountingMethod::Processes, _) => by_tick(trial),
    }
}

/// Returns the CPU time of a trial whose components are processes, so that all run times are exact: that of a command, or of a path over
/// siga's own network. Returns `None` for all other trials.
pub fn exact(trial: &TrialRecord) -> Option<Cpu> {
    if trial.cell.workload.is_command() {
        return Some(of_command(trial));
    }
    trial.cpu.guests.as_ref().map(|guests| by_processes(trial, guests))
}

/// Returns the CPU time of a command: `total` is that of its processes, `other` that of the rest of the host.
fn of_command(trial: &TrialRecord) -> Cpu {
    let (cpu, units) = (&trial.cpu, trial.units());
    let exact = |used: ProcessCpu| Component::split(used.run_ns as f64, used.user_ns as f64, 0.0);
    let (client, server) = (exact(cpu.client), exact(cpu.server));
    let own = exact(cpu.client.plus(cpu.server));
    let host = total(trial, cpu.user_tick_ns as f64);
    let rest = (host.total - own.total).max(0.0);
    Cpu {
        method: AccountingMethod::Processes,
        total: own.per(units),
        client: client.per(units),
        router: None,
        server: server.per(units),
        other: Component::split(rest, host.user - own.user, host.uncertainty).per(units),
        control: None,
        applications: None,
        residue: 0.0,
        utilisation: utilisation(trial),
    }
}

fn total(trial: &TrialRecord, user_ns: f64) -> Component {
    // Each of the two readings of a CPU's counter has an error of up to one unit of the counter. The error of their difference
    // has a triangular distribution, so with 95% probability it is below 0.78 units.
    Component::split(trial.cpu.busy_ns as f64, user_ns, 0.78 * trial.cpu.resolution_ns as f64)
}

fn utilisation(trial: &TrialRecord) -> f64 {
    let capacity = trial.cpu.wall_ns as f64 * f64::from(trial.cpu.cpus.max(1)) / f64::from(trial.cpu.hosts.max(1));
    100.0 * trial.cpu.busy_ns as f64 / capacity.max(1.0)
}

/// Charges CPU time by the accounting method `profile`: the exact run times of client and server processes are divided among
/// components in proportion to the CPU samples.
pub fn by_profile(trial: &TrialRecord, profile: &ProfileRecord) -> Cpu {
    let cpu = &trial.cpu;
    let contexts = [
        (cpu.client.run_ns as f64, &profile.on_client),
        (cpu.server.run_ns as f64, &profile.on_server),
        // The exact run time of all other processes is unknown, so each sample in them counts as one sampling period. The samples
        // are from another phase of the trial, which has its own number of units.
        (profile.elsewhere.all() as f64 * profile.period_ns as f64 * sampled(trial), &profile.elsewhere),
    ];
    let component = |pick: fn(&Charges) -> Samples| {
        let (mut all, mut user, mut variance) = (0.0, 0.0, 0.0);
        for (index, (time, charges)) in contexts.iter().enumerate() {
            let count = charges.all() as f64;
            if count == 0.0 {
                continue;
            }
            let samples = pick(charges);
            let share = (samples.user as f64 + samples.kernel as f64) / count;
            all += time * share;
            user += time * samples.user as f64 / count;
            // The run time of client and server (index 0 and 1) is exact, so only the component's share of it is uncertain
            // (binomial). For other processes, the number of samples itself is uncertain (Poisson).
            let spread = if index < 2 { share * (1.0 - share) / count } else { share / count };
            variance += time * time * spread;
        }
        Component::split(all, user, 1.96 * variance.sqrt())
    };
    let routed = overhead::has_router(&trial.cell);
    let client = component(|charges| charges.client);
    let server = component(|charges| charges.server);
    let router = if routed { component(|charges| charges.router) } else { Component::default() };
    // On a path without a router, samples can still be charged to the router (for the parent interface of macvlans). They count
    // as other, because there is no path without this interface to compare with.
    let other = component(if routed { |charges| charges.other } else { |charges| charges.router.plus(charges.other) });
    let units = trial.cpu_units();
    let users = client.user + server.user + router.user + other.user;
    let residue = cpu.busy_ns as f64 - client.total - server.total - router.total - other.total;
    Cpu {
        method: AccountingMethod::Profile,
        total: total(trial, users).per(units),
        client: client.per(units),
        router: routed.then(|| router.per(units)),
        server: server.per(units),
        other: other.per(units),
        control: None,
        applications: None,
        residue: residue * 1e-6 / units.max(f64::MIN_POSITIVE),
        utilisation: utilisation(trial),
    }
}

/// Returns the number of units of the trial's own phase, as a multiple of those of the phase with the profiler. In records of earlier
/// versions, this is one phase.
fn sampled(trial: &TrialRecord) -> f64 {
    trial
        .observer
        .as_ref()
        .map_or(1.0, |observer| trial.cpu_units() / observer.with.cpu_units(trial.cell.workload).max(f64::MIN_POSITIVE))
}

/// Charges CPU time by the accounting method `processes`: each component of a siga network is one or more processes, so the
/// component's CPU time is the exact run time of these processes.
pub fn by_processes(trial: &TrialRecord, guests: &GuestsRecord) -> Cpu {
    let cpu = &trial.cpu;
    let units = trial.cpu_units();
    let ends = [Component::guest(cpu.client, guests.client), Component::guest(cpu.server, guests.server)];
    let stack = |(process, times): (ProcessCpu, GuestTimes)| Component::guest(process, times);
    let [client, server] = match guests.stacks {
        Some((client, server)) => [ends[0].plus(stack(client)), ends[1].plus(stack(server))],
        None => ends,
    };
    let router = guests.router.map(|(process, times)| Component::guest(process, times));
    // The control program works only on behalf of guests, so all its CPU time is CP time.
    let control = Component::split(guests.control.run_ns as f64, 0.0, 0.0);
    let stacks = guests.stacks.map(|(client, server)| client.0.plus(server.0));
    let router_process = guests.router.map(|(process, _)| process);
    let processes = [Some(cpu.client), Some(cpu.server), router_process, stacks, Some(guests.control)];
    let known: ProcessCpu = processes.into_iter().flatten().fold(ProcessCpu::default(), ProcessCpu::plus);
    let rest = cpu.busy_ns as f64 - known.run_ns as f64;
    let rest_user = (cpu.user_tick_ns as f64 - known.user_ns as f64).clamp(0.0, rest.max(0.0));
    let mut whole = total(trial, 0.0);
    let other = Component::split(rest.max(0.0) + control.total, rest_user, whole.uncertainty);
    let parts = [client, server, other, router.unwrap_or_default()];
    whole.user = parts.iter().map(|part| part.user).sum();
    whole.wait = parts.iter().map(|part| part.wait).sum();
    whole.kernel = whole.total - whole.user - whole.wait;
    Cpu {
        method: AccountingMethod::Processes,
        total: whole.per(units),
        client: client.per(units),
        router: router.map(|router| router.per(units)),
        server: server.per(units),
        other: other.per(units),
        control: Some(control.per(units)),
        applications: guests.stacks.map(|_| (ends[0].per(units), ends[1].per(units))),
        residue: rest.min(0.0) * 1e-6 / units.max(f64::MIN_POSITIVE),
        utilisation: utilisation(trial),
    }
}

/// Charges CPU time by the accounting method `tick`: client and server have the exact run times of their processes. The method
/// cannot measure the router.
pub fn by_tick(trial: &TrialRecord) -> Cpu {
    let cpu = &trial.cpu;
    let units = trial.cpu_units();
    // The division into user and kernel mode is from timer ticks, which are samples: a count of n ticks has an error of about the
    // square root of n ticks. The totals are exact.
    let client = Component::split(cpu.client.run_ns as f64, cpu.client.user_ns as f64, 0.0);
    let server = Component::split(cpu.server.run_ns as f64, cpu.server.user_ns as f64, 0.0);
    let rest = cpu.busy_ns as f64 - client.total - server.total;
    let rest_user = cpu.user_tick_ns as f64 - client.user - server.user;
    let whole = total(trial, cpu.user_tick_ns as f64);
    let other = Component::split(rest.max(0.0), rest_user, whole.uncertainty);
    Cpu {
        method: AccountingMethod::Tick,
        total: whole.per(units),
        client: client.per(units),
        router: None,
        server: server.per(units),
        other: other.per(units),
        control: None,
        applications: None,
        residue: rest.min(0.0) * 1e-6 / units.max(f64::MIN_POSITIVE),
        utilisation: utilisation(trial),
    }
}

/// Charges CPU time by the accounting method `subtract`. The CPU times of client, server and other are those on the path without
/// the router. The router's CPU time is the mean difference between the two paths in the host's CPU time, over trials of the same
/// round.
fn by_subtraction(run: &Run, trial: &TrialRecord) -> Cpu {
    let own = by_tick(trial);
    let base = overhead::base_of(&trial.cell).map(|base| super::sound(&run.trials, &base)).unwrap_or_default();
    let base_rates: Vec<f64> = base.iter().map(|trial| trial.rate()).collect();
    let median = crate::stats::lower_median(&base_rates).and_then(|at| base.get(at));
    let (Some(base), Some(difference)) = (median, overhead::cpu_difference(&run.trials, &trial.cell)) else {
        return own;
    };
    let base = by_tick(base);
    let half = match (difference.low, difference.high) {
        (Some(low), Some(high)) => (high - low) / 2.0,
        _ => f64::INFINITY,
    };
    let router = Component { uncertainty: half, ..Component::split(difference.value, 0.0, 0.0) };
    let residue = own.total.total - base.client.total - base.server.total - base.other.total - router.total;
    Cpu {
        method: AccountingMethod::Subtract,
        router: Some(router),
        client: base.client,
        server: base.server,
        other: base.other,
        residue,
        ..own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{LoadCounts, ObserverRecord, PhaseRecord};
    use crate::testing::trial;

    #[test]
    fn a_profile_divides_exact_run_times_and_shows_the_residue() {
        let samples = |user, kernel| Samples { user, kernel };
        let profile = ProfileRecord {
            period_ns: 1_000_000,
            // The client's 400 ms: half is the client's own, and a quarter each belongs to router and server.
            on_client: Charges {
                client: samples(20, 180),
                router: samples(0, 100),
                server: samples(0, 100),
                ..Charges::default()
            },
            on_server: Charges { server: samples(30, 270), ..Charges::default() },
            elsewhere: Charges { router: samples(0, 10), other: samples(5, 15), ..Charges::default() },
        };
        let cpu = by_profile(&trial("veth-routed", 0, 740, Some(profile)), &profile);
        // 1,000 transactions, so milliseconds per transaction are the milliseconds / 1,000.
        assert!((cpu.client.total - 0.200).abs() < 1e-9 && (cpu.client.user - 0.020).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.server.total - 0.400).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.router.unwrap().total - 0.110).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.residue - 0.010).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.utilisation - 37.0).abs() < 1e-9, "{cpu:?}");
    }

    #[test]
    fn samples_in_the_middle_of_a_path_without_router_are_other() {
        let samples = |user, kernel| Samples { user, kernel };
        let profile = ProfileRecord {
            period_ns: 1_000_000,
            on_client: Charges { client: samples(40, 40), router: samples(0, 20), ..Charges::default() },
            on_server: Charges { server: samples(50, 50), ..Charges::default() },
            elsewhere: Charges { other: samples(3, 2), router: samples(0, 5), ..Charges::default() },
        };
        let cpu = by_profile(&trial("macvlan", 0, 740, Some(profile)), &profile);
        assert!(cpu.router.is_none());
        // Other: a fifth of the client's 400 ms, and ten samples of 1 ms.
        assert!((cpu.other.total - 0.090).abs() < 1e-9, "{cpu:?}");
        let sum = cpu.client.total + cpu.server.total + cpu.other.total + cpu.residue;
        assert!((sum - cpu.total.total).abs() < 1e-9, "{cpu:?}");
    }

    #[test]
    fn samples_outside_the_ends_are_scaled_to_the_units_of_the_trial() {
        let elsewhere = Charges { other: Samples { user: 5, kernel: 15 }, ..Charges::default() };
        let profile = ProfileRecord { period_ns: 1_000_000, elsewhere, ..ProfileRecord::default() };
        let mut trial = trial("veth-routed", 0, 740, Some(profile));
        assert!((by_profile(&trial, &profile).other.total - 0.020).abs() < 1e-9, "20 ms of 1,000 transactions");
        // The phase with the profiler has 400 of the trial's transactions, so its 20 ms are 50 ms of the trial.
        let client = LoadCounts { transactions: 400, ..LoadCounts::default() };
        let with = PhaseRecord { elapsed_ns: 500_000_000, client };
        trial.observer = Some(ObserverRecord { with, ..ObserverRecord::default() });
        assert!((by_profile(&trial, &profile).other.total - 0.050).abs() < 1e-9);
    }

    #[test]
    fn the_tick_method_has_no_figure_for_the_router() {
        let cpu = by_tick(&trial("veth-routed", 0, 740, None));
        assert!(cpu.router.is_none());
        assert!((cpu.other.total - 0.040).abs() < 1e-9 && cpu.residue == 0.0, "{cpu:?}");
    }
}
