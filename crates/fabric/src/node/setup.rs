//! From a guest's configuration to its stack.

use super::applications::Applications;
use super::{Clock, Node, Ports, Source, Wakes};
use crate::convert;
use crate::hold;
use crate::limits::{EVENTS_INTERVAL, HOLD_TIME_MAX, KEEP_TIME_MAX, MIXED_TIME};
use crate::port::{Partner, Receiver, Sender};
use crate::protocol::channel::Channel;
use crate::protocol::message::{GuestConfig, GuestDevice, Member, MemberId};
use crate::random;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::{NetworkKind, Route};
use siga_ring::clock::Ticks;
use siga_ring::wait::Waiter;
use siga_stack::Stack;
use siga_stack::link::device::{DeviceConfig, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::link::source::Sources;
use siga_stack::seed::Seed;
use siga_stack::stack::StackConfig;
use siga_stack::wire::address::Prefix;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

impl Node {
    /// The node of a guest, with its channel to the control program and the socket where a later one may knock.
    ///
    /// # Errors
    /// The host has no random numbers or descriptors; the stack refuses an address or MTU.
    pub fn new(config: GuestConfig, channel: Channel, listener: Option<OwnedFd>) -> Result<Self> {
        let seed = Seed(random::draw().context("cannot draw a seed")?);
        Self::seeded(config, channel, listener, seed)
    }

    /// The same, with what else is drawn.
    pub(super) fn seeded(config: GuestConfig, channel: Channel, listener: Option<OwnedFd>, seed: Seed) -> Result<Self> {
        let stack_config = StackConfig { seed, forwarding: config.forwarding, ..StackConfig::default() };
        let colocates = config.devices.iter().any(|device| device.driver.colocate);
        let waiter = Waiter::new(convert::mode(config.waiting)).with_colocation(colocates);
        let now = Ticks::now();
        let clock = Clock::new(now, waiter.rate());
        let hold_times = hold::Times { hold: clock.span(HOLD_TIME_MAX), mixed: clock.span(MIXED_TIME) };
        let mut wakes = Wakes::new(clock.span(EVENTS_INTERVAL))?;
        let control = Some((wakes.events.add(&channel, Source::Control)?, channel));
        if let Some(listener) = &listener {
            wakes.events.add(listener, Source::Listener)?;
        }
        let mut node = Self {
            stack: Stack::with_storage(stack_config),
            confinement: String::new(),
            ports: Ports { hold_times, keep_time: clock.span(KEEP_TIME_MAX), ..Ports::default() },
            main_ports: Vec::new(),
            control,
            listener,
            suitors: Vec::new(),
            wakes,
            waiter,
            owes_answers: false,
            puts_answers_off: false,
            clock,
            halves: Vec::new(),
            held: Vec::new(),
            applications: Applications::none(),
            pings: Vec::new(),
            capture: None,
            next_idle_look: now,
            scratch: Vec::new(),
            keeps_until: None,
            runs: false,
            stops: false,
            config,
        };
        for place in 0..node.config.devices.len() {
            node.add_main_port(place)?;
        }
        node.set_group_routes()?;
        for at in 0..node.config.routes.len() {
            let route = node.config.routes[at];
            node.set_route(node.main_ports[route.device], convert::prefix(route.to), route.via)?;
        }
        Ok(node)
    }

    /// How the process is confined, as it is told to control programs.
    pub fn set_confinement(&mut self, words: String) {
        self.confinement = words;
    }

    /// The port that a device has whoever its partners are: it has the addresses.
    fn add_main_port(&mut self, place: usize) -> Result<()> {
        let device = self.config.devices[place].clone();
        let addresses = device.addresses.iter().copied().map(convert::prefix).collect();
        // Whom the one port of a point-to-point device leads to is told later.
        let port = self.add_port(place, &device, addresses, Partner::Group)?;
        self.main_ports.push(port);
        Ok(())
    }

    fn add_port(
        &mut self,
        place: usize,
        device: &GuestDevice,
        addresses: Vec<Prefix>,
        partner: Partner,
    ) -> Result<usize> {
        let refused = |error: siga_stack::link::device::DeviceError| {
            Error::usage(format!("device {}: the stack refuses it: {error:?}", device.name))
        };
        let agreed = convert::agreed(device.driver, device.kind);
        let config = DeviceConfig { medium: Medium::Ip, mtu: device.mtu, addresses, agreed };
        let id = self.stack.add_device(config).map_err(refused)?;
        // Nothing is taken from a link before its partner is known. What comes to a group is judged by the link that it comes by.
        self.stack.set_sources(id, Some(Sources::default())).map_err(refused)?;
        self.ports.senders.push(Sender::new(partner, place, device));
        self.ports.receivers.push(Receiver::new(device.kind));
        Ok(usize::from(id.0))
    }

    fn set_route(&mut self, port: usize, to: Prefix, via: IpAddr) -> Result<()> {
        let refused = |error| Error::usage(format!("route to {}/{}: {error:?}", to.address(), to.length()));
        self.stack.add_route(to, number(port), Some(via)).map_err(refused)
    }

    /// Says which sources the partner of a port may send from.
    fn set_sources(&mut self, port: usize, sources: Sources) -> Result<()> {
        let refused = |error| Error::usage(format!("sources of a partner: {error:?}"));
        self.stack.set_sources(number(port), Some(sources)).map_err(refused)
    }

    /// The port of a partner, if it is known.
    pub(super) fn port_of(&self, device: &Name, member: &MemberId) -> Option<usize> {
        let place = self.config.devices.iter().position(|own| own.name == *device)?;
        let leads = |sender: &Sender| {
            sender.device == place && matches!(&sender.partner, Partner::Member(known) if known == member)
        };
        self.ports.senders.iter().position(leads)
    }

    /// There is a partner: it gets a port, and its addresses lead there.
    pub(super) fn add_member(&mut self, device: &Name, member: &Member) -> Result<()> {
        let place = self.config.devices.iter().position(|own| own.name == *device);
        let place = place.ok_or_else(|| Error::usage(format!("there is no device {device}")))?;
        let own = self.config.devices[place].clone();
        let sources = convert::filter(&member.sources)?;
        let port = match self.port_of(device, &member.id) {
            Some(known) => {
                // Whoever is told of anew was granted access since: a refusal before that counts no more.
                self.ports.senders[known].refused_until = None;
                known
            }
            None if matches!(own.kind, NetworkKind::Vctc { .. }) => {
                let main = self.main_ports[place];
                self.ports.senders[main].partner = Partner::Member(member.id.clone());
                return self.set_sources(main, sources);
            }
            None => {
                let addresses = own.addresses.iter().map(|own| convert::prefix(own.addr().into())).collect();
                self.add_port(place, &own, addresses, Partner::Member(member.id.clone()))?
            }
        };
        self.set_sources(port, sources)?;
        let hosts: Vec<Prefix> = member.addresses.iter().map(|host| convert::prefix((*host).into())).collect();
        for host in &hosts {
            let refused = |error| Error::usage(format!("the way to {}: {error:?}", host.address()));
            self.stack.add_route(*host, number(port), None).map_err(refused)?;
        }
        self.ports.senders[port].hosts = hosts;
        // A route to groups stays with all partners: it says which network they are on.
        let led_by = |route: &Route| member.addresses.contains(&route.via) && !route.to.addr().is_multicast();
        let routes: Vec<_> =
            self.config.routes.iter().filter(|route| route.device == place && led_by(route)).copied().collect();
        routes.into_iter().try_for_each(|route| self.set_route(port, convert::prefix(route.to), route.via))
    }

    /// A partner is gone for good: its addresses lead nowhere.
    pub(super) fn remove_member(&mut self, device: &Name, member: &MemberId) {
        let Some(port) = self.port_of(device, member) else { return };
        for host in std::mem::take(&mut self.ports.senders[port].hosts) {
            self.stack.remove_route(host);
        }
        // There is such a port.
        let _ = self.set_sources(port, Sources::default());
        self.end_link(port);
    }
}

/// The stack's number of a port.
pub(super) fn number(port: usize) -> DeviceId {
    DeviceId(u16::try_from(port).unwrap_or(u16::MAX))
}
