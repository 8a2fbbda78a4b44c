//! The counters of every component of a path at a quiescent point, and their growth between two readings.

use crate::clock;
use crate::cpu::Spent;
use crate::cpu::guest::GuestCounters;
use crate::cpu::process;
use crate::path::Net;
use siga_model::error::{Error, Result};
use siga_results::record::{GuestsRecord, ProcessCpu, RunQueueDelay};
use std::collections::BTreeMap;

/// The counters of every component of a path, from one reading.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) client: Spent,
    pub(super) server: Spent,
    /// For a network of guests: the counters of the client's guest, of the routers and of the server's guest, if they have processes of
    /// their own, and the run time of the control program. `None` for all other paths.
    pub(super) guests: Option<([Option<Counted>; 3], ProcessCpu)>,
    /// On a path over the user's own network: the run time of each router and switch between client and server.
    pub(super) between: BTreeMap<String, ProcessCpu>,
    /// The names of the client's guest, the router and the server's guest.
    pub(super) names: [String; 3],
    /// How long the threads of each guest that has its own process have waited for a CPU, in nanoseconds.
    pub(super) guests_waited: [u64; 3],
}

/// The run time of a guest's process, and the counters of the guest's stack.
pub(super) type Counted = (ProcessCpu, GuestCounters);

/// Reads the run times of each guest that has its own process, and those of the control program and the switches in sum: a switch does the
/// work of z/VM's control program. Other guests are embedded in the client's or the server's process.
pub(super) fn run_times(net: &Net) -> Result<RunTimes> {
    let mut times = [None; 3];
    for ((time, pid), name) in times.iter_mut().zip(net.raised.guests).zip(net.names()) {
        *time = pid.map(|pid| process::of(pid, &format!("guest {name}"))).transpose()?;
    }
    let control = process::of(net.raised.control, "the control program")?;
    let switches = net.raised.switches.iter().map(|pid| process::of(*pid, "a switch"));
    let control = switches.into_iter().try_fold(control, |sum, switch| Ok::<_, Error>(sum.plus(switch?)))?;
    let mut between = BTreeMap::new();
    for (name, pid) in &net.raised.routers {
        let own = process::of(*pid, &format!("router {name}"))?;
        times[1] = Some(times[1].map_or(own, |sum: ProcessCpu| sum.plus(own)));
        between.insert(format!("router {name}"), own);
    }
    for (name, pid) in net.raised.switch_names.iter().zip(&net.raised.switches) {
        between.insert(format!("switch {name}"), process::of(*pid, &format!("the switch of {name}"))?);
    }
    Ok(RunTimes { guests: times, control, between })
}

/// The run times of the processes of a network.
#[derive(Debug)]
pub(super) struct RunTimes {
    /// Those of the client's guest, the routers and the server's guest.
    pub(super) guests: [Option<ProcessCpu>; 3],
    /// Those of the control program and the switches in sum.
    pub(super) control: ProcessCpu,
    /// Those of each router and switch between client and server, on a path over the user's own network.
    pub(super) between: BTreeMap<String, ProcessCpu>,
}

impl Reading {
    /// Returns how long the threads of each component have waited for a CPU since the reading `earlier`. `None` if the kernel does not
    /// count this time.
    pub(super) fn run_queue_since(&self, earlier: &Self) -> Option<RunQueueDelay> {
        Some(self.run_queue()?.since(earlier.run_queue()?))
    }

    fn run_queue(&self) -> Option<RunQueueDelay> {
        let (client_ns, server_ns) = (self.client.waited_ns?, self.server.waited_ns?);
        let [client, router, server] = self.guests_waited;
        Some(RunQueueDelay { client_ns: client_ns + client, router_ns: router, server_ns: server_ns + server })
    }

    /// Returns the counters of the guests: client, router, server. If a guest has no process of its own, its counters come from
    /// the client or server that embeds the guest.
    pub(super) fn guests(&self) -> [Option<&GuestCounters>; 3] {
        let own = |at: usize| self.guests.as_ref().and_then(|(guests, _)| guests[at].as_ref().map(|(_, own)| own));
        [own(0).or(self.client.guest.as_ref()), own(1), own(2).or(self.server.guest.as_ref())]
    }

    /// Returns how the guests and the control program have used CPU time since the reading `earlier`.
    pub(super) fn guests_since(&self, earlier: &Self) -> Option<GuestsRecord> {
        let (guests, control) = self.guests.as_ref()?;
        let (guests_before, control_before) = earlier.guests.as_ref()?;
        let times = |end: &Spent| end.guest.as_ref().map(|counters| counters.times).unwrap_or_default();
        let since = |at: usize| {
            let (after, before) = (guests[at].as_ref()?, guests_before[at].as_ref()?);
            Some((after.0.since(before.0), after.1.times.since(before.1.times)))
        };
        Some(GuestsRecord {
            client: times(&self.client).since(times(&earlier.client)),
            server: times(&self.server).since(times(&earlier.server)),
            router: since(1),
            stacks: match (since(0), since(2)) {
                (None, None) => None,
                (client, server) => Some((client.unwrap_or_default(), server.unwrap_or_default())),
            },
            control: control.since(*control_before),
            clock_ns: clock::reading_ns(),
        })
    }

    /// Returns the CPU time of each router and switch between client and server since the reading `earlier`.
    pub(super) fn between_since(&self, earlier: &Self) -> BTreeMap<String, ProcessCpu> {
        let before = |name: &String| earlier.between.get(name).copied().unwrap_or_default();
        self.between.iter().map(|(name, after)| (name.clone(), after.since(before(name)))).collect()
    }

    /// Returns how much each counter of the guests' devices has grown since the reading `earlier`.
    pub(super) fn devices_since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        let mut grown = BTreeMap::new();
        for ((guest, after), before) in self.names.iter().zip(self.guests()).zip(earlier.guests()) {
            let (Some(after), Some(before)) = (after, before) else { continue };
            for (name, count) in &after.counted {
                let growth = count.saturating_sub(before.counted.get(name).copied().unwrap_or(0));
                if growth > 0 {
                    grown.insert(format!("{guest}/{name}"), growth);
                }
            }
        }
        grown
    }

    /// Returns the number of frames that the guests' devices could not send.
    pub(super) fn drops(&self) -> u64 {
        self.guests().into_iter().flatten().map(|counters| counters.drops).sum()
    }
}
