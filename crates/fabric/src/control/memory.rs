//! The memory of guests: memory files for their rings, and a memory limit for each process. A confined guest cannot create memory
//! files itself.
//!
//! The memory limit is the guest's `memory_max`, or is computed from the topology. A control group enforces the limit if the host
//! allows that. Otherwise a limit on the address space does. The limit is set before the guest receives its configuration.

use super::Control;
use crate::limits::{
    ADDRESS_SPACE_BYTES_EXTRA, BACKLOG_FRAME_BYTES, DESCRIPTORS_BASE, DESCRIPTORS_EACH, MEMORY_BYTES_BASE,
};
use crate::protocol::message::Buffers;
use crate::protocol::request::{GuestMemory, MemoryLimit};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::Topology;
use siga_ring::{Shape, memory_file};
use std::os::fd::OwnedFd;

/// Creates the memory file for a guest's outgoing ring of a pair.
pub(super) fn of_ring(outbound: Buffers) -> Result<OwnedFd> {
    let bytes = ring_bytes(outbound).ok_or_else(|| {
        Error::usage("siga cannot make a ring with this number of buffers, or with buffers of this size")
    })?;
    memory_file(bytes).context("cannot allocate memory for a ring")
}

/// Creates the memory files for a guest's ring to an application and for the guest's arena.
pub(super) fn of_application(arena_bytes: u64) -> Result<[OwnedFd; 2]> {
    let shape = siga_iucv::shape().ok_or_else(|| {
        Error::usage("siga cannot make a ring with this number of buffers, or with buffers of this size")
    })?;
    let arena_bytes = usize::try_from(arena_bytes)
        .map_err(|_| Error::usage("arena_bytes is larger than the maximum size of an application's arena"))?;
    let make = |bytes| memory_file(bytes).context("cannot allocate memory for an application");
    Ok([make(shape.memory_bytes())?, make(arena_bytes)?])
}

fn ring_bytes(buffers: Buffers) -> Option<usize> {
    let bytes = usize::try_from(buffers.bytes).ok()?;
    Some(Shape::new(bytes, usize::from(buffers.count))?.memory_bytes())
}

/// Returns the memory in bytes that a guest's ring pairs may use, and the number of these pairs. Each pair has two rings and a
/// backlog (packets that wait to be forwarded). If the guest has more partners than `pairs_max`, the sum is that of the `pairs_max`
/// largest pairs.
fn pairs_bytes(topology: &Topology, name: &Name) -> (u64, u64) {
    let mut pairs: Vec<u64> = Vec::new();
    for own in &topology.guests[name].devices {
        let bytes = topology.networks[&own.network].kind.buffer_bytes();
        for (_, partner) in topology.partners(name, own) {
            let ring = |count| ring_bytes(Buffers { bytes, count }).map_or(0, |bytes| bytes as u64);
            let backlog = u64::from(own.netdev_max_backlog) * BACKLOG_FRAME_BYTES as u64;
            pairs.push(ring(own.buffer_count) + ring(partner.buffer_count) + backlog);
        }
    }
    pairs.sort_unstable_by(|one, other| other.cmp(one));
    pairs.truncate(usize::try_from(topology.guests[name].pairs_max).unwrap_or(usize::MAX));
    (pairs.iter().sum(), pairs.len() as u64)
}

/// Returns the memory limit of a guest's process in bytes.
fn memory_max(topology: &Topology, name: &Name) -> u64 {
    let guest = &topology.guests[name];
    let ring = siga_iucv::shape().map_or(0, |shape| shape.memory_bytes() as u64);
    let applications = u64::from(guest.applications_max) * 2 * (guest.arena_bytes + ring);
    guest.memory_max.unwrap_or_else(|| MEMORY_BYTES_BASE + pairs_bytes(topology, name).0 + applications)
}

fn descriptors_max(topology: &Topology, name: &Name) -> u64 {
    let users = pairs_bytes(topology, name).1 + u64::from(topology.guests[name].applications_max);
    let ports = topology.networks.get(name).filter(|_| topology.guests[name].is_switch);
    let ports = ports.and_then(|network| network.switch.as_ref()).map_or(0, |switch| switch.ports.len() as u64);
    DESCRIPTORS_BASE + DESCRIPTORS_EACH * (users + ports)
}

impl Control {
    /// Sets the limits of a guest's process for memory and descriptors. The process cannot raise them.
    pub(super) fn limit(&mut self, name: &Name, pid: Pid) -> Result<()> {
        let max_bytes = memory_max(&self.topology, name);
        let limited = self.cgroup.as_ref().map(|cgroup| cgroup.limit(name, max_bytes, pid));
        let by = match limited {
            Some(Ok(())) => MemoryLimit::ControlGroup,
            Some(Err(_)) | None => {
                lower(pid, Resource::As, max_bytes.saturating_add(ADDRESS_SPACE_BYTES_EXTRA))?;
                MemoryLimit::AddressSpace
            }
        };
        self.memory_limits.insert(name.clone(), GuestMemory { max_bytes, by });
        self.kills.insert(name.clone(), self.kills_of(name));
        lower(pid, Resource::Nofile, descriptors_max(&self.topology, name))
    }

    /// Returns true if the kernel has killed a guest's process because the process reached its memory limit.
    pub(super) fn reached_its_limit(&self, name: &Name) -> bool {
        self.kills.get(name).is_some_and(|before| self.kills_of(name) > *before)
    }

    fn kills_of(&self, name: &Name) -> u64 {
        self.cgroup.as_ref().map_or(0, |cgroup| cgroup.kills(name))
    }
}

/// Lowers a resource limit of a process. A limit that is already lower stays unchanged.
fn lower(pid: Pid, resource: Resource, most: u64) -> Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |own| own.min(most));
    match prlimit(Some(pid), resource, Rlimit { current: Some(most), maximum: Some(most) }) {
        // EPERM means that the limit is already lower: the control program that started this guest had lower limits itself.
        Ok(_) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error).context("cannot lower a resource limit of a guest's process"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_memory_limit_covers_its_partners_and_applications() {
        let text = |keys: &str| {
            format!(
                "[network.lan]\ntype = \"hipersockets\"\nframe = \"16K\"\n\
                 [guest.a]\n{keys}device = [{{ network = \"lan\", buffer_count = 8 }}]\n\
                 [guest.b]\ndevice = [{{ network = \"lan\", buffer_count = 16 }}]\n\
                 [guest.c]\ndevice = [{{ network = \"lan\", buffer_count = 32 }}]\n"
            )
        };
        let max = |keys: &str| memory_max(&Topology::parse(&text(keys)).unwrap(), &"a".parse().unwrap());
        // A page of indices, and for each buffer one cache line of header.
        let ring = |bytes: u64, count: u64| (4_096 + count * (bytes + 64)).next_multiple_of(4_096);
        let pair = |count| ring(16 << 10, 8) + ring(16 << 10, count) + (4 << 20);
        let base = MEMORY_BYTES_BASE;
        assert_eq!(max("applications_max = 0\n"), base + pair(16) + pair(32));
        assert_eq!(max("applications_max = 0\npairs_max = 1\n"), base + pair(32));
        let application = 2 * ((1 << 20) + ring(64 << 10, 64));
        let applications = "applications_max = 3\narena_bytes = 1048576\n";
        assert_eq!(max(applications), base + pair(16) + pair(32) + 3 * application);
        assert_eq!(max("memory_max = 100000000\n"), 100_000_000);
        let backlog = |packets: u64| 2 * packets * BACKLOG_FRAME_BYTES as u64;
        let longer = max("applications_max = 0\nnetdev_max_backlog = 1000\n");
        assert_eq!(longer, max("applications_max = 0\n") + backlog(1_000) - backlog(256));
        let topology = Topology::parse(&text("applications_max = 3\n")).unwrap();
        assert_eq!(descriptors_max(&topology, &"a".parse().unwrap()), DESCRIPTORS_BASE + 5 * DESCRIPTORS_EACH);
    }
}
