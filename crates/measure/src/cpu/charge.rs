//! Charges each sample of the profiler to a component: client, router, server or others.
//!
//! Work on a received packet is charged to the client, router or server whose network namespace the packet was in. The process
//! that the work interrupted does not matter. Exception: if client and server share a namespace (loopback), the work is charged
//! to the client or server whose process was interrupted. All work that is not on a received packet is charged to the component
//! of the process that ran.

use crate::cpu::profile::{Mode, Profile, Sample};
use siga_results::record::{Charges, Owner, ProfileRecord, Samples};
use std::collections::BTreeSet;

/// Processes and network namespaces of each component in one trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners {
    /// Ids of the client's processes.
    pub client_pids: BTreeSet<u32>,
    /// Ids of the routers' processes. Only routers of virtual networks are processes.
    pub router_pids: BTreeSet<u32>,
    /// Ids of the server's processes.
    pub server_pids: BTreeSet<u32>,
    /// Inode number of the client's network namespace.
    pub client_inode: u64,
    /// Inode number of the server's network namespace.
    pub server_inode: u64,
    /// Inode number of the router's network namespace. `None` if the path has no router.
    pub router_inode: Option<u64>,
}

impl Owners {
    /// Returns the component whose process was on the CPU, and the component to which the samples are charged.
    pub(crate) fn of(&self, sample: &Sample) -> (Owner, Owner) {
        let process = self.by_process(sample.tgid);
        let owner = match (sample.mode, sample.namespace_inode) {
            (Mode::User, _) | (Mode::Kernel, 0) => process,
            (Mode::Softirq, 0) => Owner::Other,
            (Mode::Kernel | Mode::Softirq, inode) => self.by_namespace(u64::from(inode), process),
        };
        (process, owner)
    }

    fn by_process(&self, pid: u32) -> Owner {
        if self.client_pids.contains(&pid) {
            Owner::Client
        } else if self.router_pids.contains(&pid) {
            Owner::Router
        } else if self.server_pids.contains(&pid) {
            Owner::Server
        } else {
            Owner::Other
        }
    }

    fn by_namespace(&self, inode: u64, context: Owner) -> Owner {
        if Some(inode) == self.router_inode {
            Owner::Router
        } else if inode == self.client_inode && inode == self.server_inode {
            context
        } else if inode == self.client_inode {
            Owner::Client
        } else if inode == self.server_inode {
            Owner::Server
        } else {
            Owner::Other
        }
    }
}

/// Charges every sample of a profile to the component that owns the work.
pub(crate) fn charge(profile: &Profile, owners: &Owners) -> ProfileRecord {
    let mut record = ProfileRecord { period_ns: profile.period_ns, ..ProfileRecord::default() };
    for sample in &profile.samples {
        let (context, owner) = owners.of(sample);
        let charges: &mut Charges = match context {
            Owner::Client => &mut record.on_client,
            Owner::Server => &mut record.on_server,
            Owner::Router | Owner::Other => &mut record.elsewhere,
        };
        let samples: &mut Samples = match owner {
            Owner::Client => &mut charges.client,
            Owner::Router => &mut charges.router,
            Owner::Server => &mut charges.server,
            Owner::Other => &mut charges.other,
        };
        match sample.mode {
            Mode::User => samples.user += sample.count,
            Mode::Kernel | Mode::Softirq => samples.kernel += sample.count,
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::profile::Watched;

    fn profile(samples: &[(u32, u32, Mode, u64)]) -> Profile {
        let samples = samples
            .iter()
            .map(|&(tgid, namespace_inode, mode, count)| Sample { tgid, namespace_inode, mode, count })
            .collect();
        let cpus = vec![Watched { cpu: 0, wall_ns: 1_000_000 }];
        Profile { period_ns: 1_000, cpus, samples, uncounted: 0, packets: 0, chains: Vec::new(), chains_lost: 0 }
    }

    fn owners() -> Owners {
        Owners {
            client_pids: [10].into(),
            router_pids: BTreeSet::new(),
            server_pids: [20].into(),
            client_inode: 100,
            server_inode: 300,
            router_inode: Some(200),
        }
    }

    #[test]
    fn softirq_work_goes_to_the_namespace_not_to_the_process_it_interrupts() {
        let seen = profile(&[
            (10, 0, Mode::User, 1),
            (10, 0, Mode::Kernel, 2),
            (10, 200, Mode::Softirq, 4),
            (10, 300, Mode::Softirq, 8),
            (20, 100, Mode::Softirq, 16),
            (7, 200, Mode::Kernel, 32),
            (99, 0, Mode::User, 128),
            (99, 0, Mode::Softirq, 256),
        ]);
        let record = charge(&seen, &owners());
        let kernel = |kernel| Samples { user: 0, kernel };
        let (client, server) = (Samples { user: 1, kernel: 2 }, kernel(8));
        assert_eq!(record.on_client, Charges { client, router: kernel(4), server, ..Charges::default() });
        assert_eq!(record.on_server, Charges { client: kernel(16), ..Charges::default() });
        let other = Samples { user: 128, kernel: 256 };
        assert_eq!(record.elsewhere, Charges { router: kernel(32), other, ..Charges::default() });
    }

    #[test]
    fn in_a_shared_namespace_softirq_stays_with_the_process_it_ran_on() {
        let owners = Owners { server_inode: 100, router_inode: None, ..owners() };
        let record = charge(&profile(&[(10, 100, Mode::Softirq, 3), (20, 100, Mode::Softirq, 5)]), &owners);
        assert_eq!((record.on_client.client.kernel, record.on_server.server.kernel), (3, 5));
    }
}
