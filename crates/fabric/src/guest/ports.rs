//! The ports of a switch while it runs: adding, changing and removing them. `relay.rs` moves the frames.

use super::Node;
use super::relay::{Broken, send};
use super::wakes::ReadyKey;
use crate::convert;
use crate::limits::{ACCOUNTS_PART_MAX, REPORT_ADDRESSES_MAX};
use crate::protocol::message::{GuestEvent, Member, MemberPort};
use crate::protocol::report::ReportPart;
use crate::switch::Switch;
use crate::switch::assigning::Assigning;
use crate::switch::capture::Capture;
use crate::switch::flood::Flood;
use crate::switch::guard::Guard;
use crate::switch::port::{Attachment, Port, PortCounters};
use crate::switch::tap::Tap;
use rustix::io::Errno;
use siga_model::error::{Error, IoContext, Result};
use siga_model::mac::Mac;
use siga_model::name::Name;
use siga_model::topology::{KernelPort, PortSettings};
use siga_ring::clock::Ticks;
use siga_stack::link::device::Agreed;
use siga_stack::link::frame::Marks;
use siga_stack::link::source::Sources;
use siga_stack::pcapng::LinkType;
use siga_stack::time::Instant;
use std::os::fd::{AsFd, OwnedFd};

impl Node {
    /// Removes a port whose TAP device is gone, and reports it to the control program. The port of an uplink stays while its interface is
    /// down.
    pub(super) fn lose_port(&mut self, port: usize, why: Errno, at: Instant) {
        let ports = self.switch.as_ref().map(|switch| &*switch.ports).unwrap_or_default();
        let is_uplink = matches!(ports.get(port), Some(Some(Port { uplink: Some(_), .. })));
        if is_uplink && why == Errno::NETDOWN {
            self.change_uplink(at, |switch| switch.set_carrier(port, false));
            return;
        }
        let Some(lost) = self.remove_switch_port(port, at) else { return };
        if let Some(name) = lost.kernel_port {
            self.send_event(&GuestEvent::PortLost { port: name, why: why.to_string() }, Vec::new());
        }
    }

    fn remove_switch_port(&mut self, port: usize, at: Instant) -> Option<Port> {
        self.account(Some(port));
        let mut removed = None;
        self.change_uplink(at, |switch| {
            let (lost, uplink) = switch.remove_port(port)?;
            removed = Some(lost);
            uplink
        });
        if let Some(Port { attachment: Attachment::Tap(tap), .. }) = &removed {
            self.wakes.events.remove(tap.registration, &**tap);
        }
        removed
    }

    /// Makes a change. If another uplink is used from now on, announces the stations of the switch there, so that the switches behind it
    /// send frames for them to the new uplink.
    fn change_uplink(&mut self, at: Instant, change: impl FnOnce(&mut Switch) -> Option<usize>) {
        let Some(mut switch) = self.switch.take() else { return };
        let mut broken = Broken::new();
        if let Some(uplink) = change(&mut switch) {
            for (header, decision) in switch.announcements(uplink) {
                let frame = (&header, &[][..], Marks::default());
                send(&mut switch, &mut self.links, at, (uplink, decision), frame, &mut broken);
            }
        }
        self.switch = Some(switch);
        self.lose_broken(broken);
    }

    /// Adds the port of a network namespace, or replaces it. The descriptor is its TAP device.
    pub(super) fn add_kernel_port(&mut self, now: Ticks, port: KernelPort, descriptors: Vec<OwnedFd>) -> Result<()> {
        let [tap]: [OwnedFd; 1] = descriptors
            .try_into()
            .map_err(|_| Error::usage("the order for a port lacks the descriptor of its TAP device"))?;
        rustix::io::ioctl_fionbio(&tap, true).context("cannot make a TAP device non-blocking")?;
        self.remove_kernel_port(now, &port.name);
        let Some((switch, device)) = self.switch.as_mut().zip(self.config.devices.first()) else { return Ok(()) };
        let own = convert::agreed(device.features, device.kind);
        let server = Mac::derived(device.network.as_str());
        let at = switch.ports.iter().position(Option::is_none).unwrap_or(switch.ports.len());
        let registration = self
            .wakes
            .events
            .add(&tap, ReadyKey::Port(at))
            .context("the guest cannot wait for frames of a TAP device")?;
        let prefixes: Vec<_> = port.addresses.iter().map(|own| convert::prefix(own.addr().into())).collect();
        let refused = |error| Error::usage(format!("sources: {error:?}"));
        let own_addresses = Sources::new(&prefixes, &[]).map_err(refused)?;
        let sources = port.sources.iter().copied().map(convert::prefix);
        let prefixes: Vec<_> = prefixes.into_iter().chain(sources).collect();
        let sources = Sources::new(&prefixes, &[]).map_err(refused)?;
        let guard = Guard { mac: port.settings.mac, sources, own: own_addresses, is_router: !port.sources.is_empty() };
        let assigning = Assigning::of(&port, server, self.clock.instant(now)).map(Box::new);
        if assigning.is_some() {
            switch.advertise_at = Some(self.clock.instant(now));
        }
        let mut added = Port {
            label: port.name.to_string(),
            kernel_port: Some(port.name),
            uplink: port.uplink,
            has_carrier: false,
            settings: port.settings,
            guard,
            mtu: usize::from(port.mtu),
            agreed: if port.offload { own } else { Agreed::default() },
            attachment: Attachment::Tap(Box::new(Tap::new(tap, registration))),
            flood: Flood::new(switch.flood_per_second()),
            assigning,
            link: None,
            card: None,
            output: None,
            counters: PortCounters::default(),
        };
        added.set_link(&added.settings.link.clone(), self.clock.instant(now));
        switch.add_port(added);
        Ok(())
    }

    /// Records whether the interface of an uplink has a carrier.
    pub(super) fn set_carrier(&mut self, now: Ticks, name: &Name, is_there: bool) {
        let at = self.clock.instant(now);
        self.change_uplink(at, |switch| switch.set_carrier(switch.named(name)?, is_there));
    }

    pub(super) fn remove_kernel_port(&mut self, now: Ticks, name: &Name) {
        let at = self.clock.instant(now);
        if let Some(port) = self.switch.as_ref().and_then(|switch| switch.named(name)) {
            self.remove_switch_port(port, at);
        }
    }

    /// Changes the settings of the port of a network namespace.
    pub(super) fn set_port_settings(&mut self, now: Ticks, name: &Name, settings: PortSettings) {
        let at = self.clock.instant(now);
        if let Some(switch) = &mut self.switch
            && let Some(port) = switch.named(name)
        {
            switch.set_settings(port, settings, at);
        }
    }

    /// Reports the Ethernet addresses that the switch knows.
    pub(super) fn report_addresses(&mut self, now: Ticks, request: u64, forget: bool) {
        let at = self.clock.instant(now);
        let Some(switch) = &mut self.switch else { return };
        if forget {
            switch.forget_learned();
        }
        let mut addresses = switch.addresses(at);
        loop {
            let rest = addresses.split_off(addresses.len().min(REPORT_ADDRESSES_MAX));
            let last = rest.is_empty();
            self.send_event(
                &GuestEvent::Report { request, part: ReportPart::Addresses { addresses, last } },
                Vec::new(),
            );
            if last {
                return;
            }
            addresses = rest;
        }
    }

    /// Adds the port of a guest's device, or replaces its settings.
    pub(super) fn set_member_port(
        &mut self,
        link: usize,
        member: &Member,
        port: &MemberPort,
        sources: Sources,
    ) -> Result<()> {
        let prefixes: Vec<_> = member.addresses.iter().map(|own| convert::prefix((*own).into())).collect();
        let own = Sources::new(&prefixes, &[]).map_err(|error| Error::usage(format!("addresses: {error:?}")))?;
        let agreed = self.config.devices.first().map(|device| convert::agreed(device.features, device.kind));
        let Some((switch, agreed)) = self.switch.as_mut().zip(agreed) else { return Ok(()) };
        self.links.senders[link].settings.mac = Some(port.settings.mac);
        let place = switch.port_of_link(link);
        let before = place.and_then(|at| switch.take_port(at));
        let (counters, emulators, output) =
            before.map(|port| (port.counters, port.link, port.output)).unwrap_or_default();
        let guard = Guard { mac: port.settings.mac, sources, own, is_router: port.is_router };
        let mut added = Port {
            label: member.id.to_string(),
            kernel_port: None,
            uplink: None,
            has_carrier: false,
            settings: port.settings.clone(),
            guard,
            mtu: usize::from(port.mtu),
            agreed,
            attachment: Attachment::Ring(link),
            flood: Flood::new(switch.flood_per_second()),
            assigning: None,
            link: emulators,
            card: None,
            output,
            counters,
        };
        let now = self.clock.instant(self.clock.now());
        added.set_link(&port.settings.link, now);
        let at = match place {
            Some(at) => {
                switch.put_port(at, added);
                at
            }
            None => switch.add_port(added),
        };
        switch.attach_card(at, port.full, now);
        Ok(())
    }

    /// Removes the port of a guest's device.
    pub(super) fn remove_member_port(&mut self, link: usize) {
        self.account_link(link);
        if let Some(switch) = &mut self.switch
            && let Some(port) = switch.port_of_link(link)
        {
            switch.remove_port(port);
        }
    }

    /// Sends the accounting record of the guest at a link.
    pub(super) fn account_link(&mut self, link: usize) {
        if let Some(port) = self.switch.as_ref().and_then(|switch| switch.port_of_link(link)) {
            self.account(Some(port));
        }
    }

    /// Sends the accounting records of one port or of all ports.
    pub(super) fn account(&mut self, of: Option<usize>) {
        let records = self.switch.as_mut().map(|switch| switch.accounts(of)).unwrap_or_default();
        for part in records.chunks(ACCOUNTS_PART_MAX) {
            self.send_event(&GuestEvent::Account { records: part.to_vec() }, Vec::new());
        }
    }

    /// Passes the descriptors of the ports of namespaces to a control program that has just adopted this switch.
    pub(super) fn send_port_inventory(&mut self) {
        let Some(switch) = &self.switch else { return };
        let of = |port: &Port| match &port.attachment {
            Attachment::Tap(tap) => Some((port.kernel_port.clone()?, tap.as_fd().try_clone_to_owned().ok()?)),
            Attachment::Ring(_) => None,
        };
        let ports: Vec<_> = switch.ports.iter().flatten().filter_map(of).collect();
        for (port, device) in ports {
            self.send_event(&GuestEvent::Port { port }, vec![device]);
        }
    }

    pub(super) fn start_switch_capture(&mut self, snap_bytes: usize, bytes_max: usize, epoch_ns: u64) -> bool {
        let Some(switch) = &mut self.switch else { return false };
        switch.capture = Some(Capture::new(LinkType::Ethernet, (snap_bytes, bytes_max), epoch_ns));
        true
    }
}
