//! The modelled link between a port of a switch and its station.

use crate::counters::Counters;
use crate::emulator::{Emulator, set};
use siga_model::topology::PortLink;
use siga_stack::time::Instant;

/// Both directions of a modelled link. Each frame to the station has the VLAN tag with which it leaves.
#[derive(Debug, Default)]
pub(crate) struct Emulators {
    pub(crate) from_station: Option<Emulator<()>>,
    pub(crate) to_station: Option<Emulator<Option<u16>>>,
}

impl Emulators {
    /// Makes the emulators of a link, or changes their settings.
    pub(crate) fn set(&mut self, link: &PortLink, at: Instant) {
        set(&mut self.from_station, (link.from_station.as_ref(), 0), at);
        set(&mut self.to_station, (link.to_station.as_ref(), 1), at);
    }

    pub(crate) fn is_there(&self) -> bool {
        self.from_station.is_some() || self.to_station.is_some()
    }

    /// Returns the time at which the next frame arrives.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let from = self.from_station.as_ref().and_then(Emulator::next_due);
        from.into_iter().chain(self.to_station.as_ref().and_then(Emulator::next_due)).min()
    }

    pub(crate) fn add_to(&self, counters: &mut Counters) {
        let of = [
            ("link_from_station", self.from_station.as_ref().map(|emulator| emulator.counters)),
            ("link_to_station", self.to_station.as_ref().map(|emulator| emulator.counters)),
        ];
        for (direction, own) in of {
            let Some(own) = own else { continue };
            own.add_to(direction, counters);
        }
    }
}
