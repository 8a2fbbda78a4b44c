//! The mirror of a switch: one port gets copies of the frames of another port or of all ports.

use super::port::Port;
use super::{Decision, Switch, Target};
use siga_model::topology::Mirror;

/// The frames that are copied, and the port that gets the copies.
#[derive(Debug, Default)]
pub(crate) struct Mirroring {
    asked: Option<Mirror>,
    /// The numbers of the ports, while they exist.
    ports: Option<Ports>,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    /// `None`: the frames of all ports are copied.
    from: Option<usize>,
    to: usize,
}

impl Mirroring {
    /// Finds the numbers of the ports again, after a port was added or removed.
    pub(super) fn index(&mut self, ports: &[Option<Port>]) {
        let number = |label: &str| ports.iter().position(|port| port.as_ref().is_some_and(|port| port.label == label));
        self.ports = self.asked.as_ref().and_then(|mirror| {
            let from = match &mirror.from {
                Some(label) => Some(number(label)?),
                None => None,
            };
            Some(Ports { from, to: number(&mirror.to)? })
        });
    }
}

impl Switch {
    pub(crate) fn set_mirror(&mut self, mirror: Option<Mirror>) {
        self.mirror.asked = mirror;
        self.index();
    }

    /// Returns the port that gets a copy of a frame, if there is one. A port that gets the frame anyway gets no copy.
    #[inline]
    pub(crate) fn mirror_of(&self, from: usize, decision: &Decision) -> Option<usize> {
        self.mirror.ports.and_then(|ports| self.copied(ports, from, decision))
    }

    #[cold]
    fn copied(&self, ports: Ports, from: usize, decision: &Decision) -> Option<usize> {
        let goes_to = |port: usize| match decision.target {
            Target::One(to) => to == port,
            Target::All => self.may_pass(from, port, decision.vlan),
        };
        let gets_it =
            goes_to(ports.to) || (self.watchers.contains(&ports.to) && self.may_pass(from, ports.to, decision.vlan));
        let is_copied = ports.from.is_none_or(|source| source == from || goes_to(source));
        (is_copied && ports.to != from && !gets_it).then_some(ports.to)
    }
}
