//! The setup of a guest: makes its stack and links from its configuration, and adds and removes partners.

use super::Node;
use super::peer_link::{Links, Partner, Receiver, Sender};
use super::port_filter::PortFilter;
use super::senders::Senders;
use super::wakes::{ReadyKey, Wakes};
use crate::backpressure;
use crate::clock::Clock;
use crate::convert;
use crate::groups::GroupNetworks;
use crate::iucv::applications::Applications;
use crate::limits::{BACKPRESSURE_TIME_MAX, EVENTS_INTERVAL, HOT_TIME, HOT_TIME_POLLING, MIXED_TIME, RETAIN_TIME_MAX};
use crate::protocol::channel::Channel;
use crate::protocol::message::{GuestConfig, GuestDevice, Member, MemberId};
use crate::random;
use crate::switch::Switch;
use crate::tcp_settings;
use siga_model::allow::Allow;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::{NetworkKind, Route};
use siga_model::waiting::Waiting;
use siga_ring::clock::Ticks;
use siga_ring::wait::Waiter;
use siga_stack::Stack;
use siga_stack::link::device::{DeviceConfig, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::link::source::Sources;
use siga_stack::seed::Seed;
use siga_stack::stack::StackConfig;
use siga_stack::wire::address::Prefix;
use siga_stack::wire::ethernet::MacAddress;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

impl Node {
    /// Makes the node of a guest. `channel` is the channel to the control program. `listener` is the socket to which a restarted
    /// control program connects.
    ///
    /// # Errors
    /// Returns an error if the host provides no random numbers or descriptors, or if the stack refuses an address or MTU.
    pub fn new(config: GuestConfig, channel: Channel, listener: Option<OwnedFd>) -> Result<Self> {
        let seed = Seed(random::draw().context("cannot generate a random seed for the guest's stack")?);
        Self::seeded(config, channel, listener, seed)
    }

    /// Makes the node of a guest, with a given random seed for the stack.
    pub(super) fn seeded(config: GuestConfig, channel: Channel, listener: Option<OwnedFd>, seed: Seed) -> Result<Self> {
        let stack_config =
            StackConfig { seed, forwarding: config.forwarding, loopback: true, ..StackConfig::default() };
        let colocates = config.devices.iter().any(|device| device.features.colocate);
        let waiter = Waiter::new(convert::mode(config.waiting)).with_colocation(colocates);
        let now = Ticks::now();
        let clock = Clock::new(now, waiter.rate());
        let backpressure_times =
            backpressure::Times { backpressure: clock.span(BACKPRESSURE_TIME_MAX), mixed: clock.span(MIXED_TIME) };
        let mut wakes = Wakes::new(clock.span(EVENTS_INTERVAL))?;
        let control = Some((
            wakes.events.add(&channel, ReadyKey::Control).context("the guest cannot wait for an event")?,
            channel,
        ));
        if let Some(listener) = &listener {
            wakes.events.add(listener, ReadyKey::Listener).context("the guest cannot wait for an event")?;
        }
        let direct = config.devices.iter().filter(|device| device.direct);
        let direct_networks = direct.flat_map(|device| &device.addresses).copied().collect();
        let own = config.devices.iter().flat_map(|device| &device.addresses).map(|net| net.addr()).collect();
        let mut node = Self {
            stack: Stack::with_storage(stack_config),
            confinement: String::new(),
            links: Links {
                senders: Senders::new(config.switch.is_some()),
                backpressure_times,
                retain_time: clock.span(RETAIN_TIME_MAX),
                hot_time: clock.span(if config.waiting == Waiting::Poll { HOT_TIME_POLLING } else { HOT_TIME }),
                ..Links::default()
            },
            main_links: Vec::new(),
            control,
            listener,
            reconnecting: Vec::new(),
            wakes,
            waiter,
            owes_answers: false,
            puts_answers_off: false,
            clock,
            halves: Vec::new(),
            held: Vec::new(),
            applications: Applications::none(direct_networks, own),
            group_networks: GroupNetworks::default(),
            pings: Vec::new(),
            capture: None,
            next_idle_look: now,
            scratch: Vec::new(),
            switch: config.switch.map(|switch| Box::new(Switch::new(switch))),
            retained_until: None,
            stopping: None,
            runs: false,
            stops: false,
            config,
        };
        for place in 0..node.config.devices.len() {
            node.add_main_link(place)?;
        }
        tcp_settings::apply(&mut node.stack, &node.config.tcp, &node.config.tcp_to)?;
        node.set_allow(node.config.allow.clone());
        node.set_group_routes()?;
        for at in 0..node.config.routes.len() {
            let route = node.config.routes[at];
            node.set_route(node.main_links[route.device], convert::prefix(route.to), route.via)?;
        }
        Ok(node)
    }

    /// Replaces the rules that say what others may open to this guest.
    pub(super) fn set_allow(&mut self, allow: Option<Allow>) {
        self.config.allow.clone_from(&allow);
        match (allow, &mut self.links.filter) {
            (None, filter) => *filter = None,
            (Some(allow), Some(filter)) => filter.set(allow),
            (Some(allow), none) => {
                let own = self.config.devices.iter().flat_map(|device| &device.addresses).map(|net| net.addr());
                let own = self.config.forwarding.then(|| own.collect());
                *none = Some(Box::new(PortFilter::new(allow, own)));
            }
        }
    }

    /// Carries out the order to replace the rules. Direct connections with other guests end if there are rules (`docs/direct.md`).
    pub(super) fn change_allow(&mut self, now: Ticks, allow: Option<Allow>) {
        if allow.is_some() {
            self.reset_direct_with_others(now);
        }
        self.set_allow(allow);
    }

    /// Sets the description of how this process is confined. The guest sends the description to control programs.
    pub fn set_confinement(&mut self, words: String) {
        self.confinement = words;
    }

    /// Adds the main link of a device. In the stack, the main link's device has the addresses of the guest on this network.
    fn add_main_link(&mut self, place: usize) -> Result<()> {
        let device = self.config.devices[place].clone();
        let addresses = device.addresses.iter().copied().map(convert::prefix).collect();
        // The partner on a point-to-point device is set later, when a `Member` order announces it.
        let link = self.add_link(place, &device, addresses, Partner::Group)?;
        self.group_networks.0.push((number(link), device.addresses.iter().map(|own| own.addr()).collect()));
        self.main_links.push(link);
        Ok(())
    }

    fn add_link(
        &mut self,
        place: usize,
        device: &GuestDevice,
        addresses: Vec<Prefix>,
        partner: Partner,
    ) -> Result<usize> {
        let refused = |error: siga_stack::link::device::DeviceError| {
            Error::usage(format!("device {}: the stack refuses this device: {error:?}", device.name))
        };
        let agreed = convert::agreed(device.features, device.kind);
        let medium = device.mac.map_or(Medium::Ip, |mac| Medium::Ethernet(MacAddress(mac.0)));
        let config = DeviceConfig { medium, mtu: device.mtu, addresses, agreed };
        let id = self.stack.add_device(config).map_err(refused)?;
        let name = match &partner {
            Partner::Member(member) => format!("{} to {member}", device.name),
            Partner::Group => device.name.to_string(),
        };
        self.stack.name_device(id, &name).map_err(refused)?;
        // Until the partner is known, no source address is allowed, so all received packets are dropped. The source of a multicast
        // packet is checked by the link on which the packet arrives, and not by the main link.
        self.stack.set_sources(id, Some(Sources::default())).map_err(refused)?;
        if device.link.is_some() {
            self.links.wired.push(self.links.senders.len());
        }
        self.links.senders.push(Sender::new(partner, place, device));
        self.links.receivers.push(Receiver::new(device));
        Ok(usize::from(id.0))
    }

    fn set_route(&mut self, link: usize, to: Prefix, via: IpAddr) -> Result<()> {
        let refused =
            |error| Error::usage(format!("the stack refuses the route to {}/{}: {error:?}", to.address(), to.length()));
        self.stack.add_route(to, number(link), Some(via)).map_err(refused)
    }

    /// Sets the source addresses that the partner of a link may use; `None` for all addresses.
    fn set_sources(&mut self, link: usize, sources: Option<Sources>) -> Result<()> {
        let refused = |error| Error::usage(format!("the stack refuses the source addresses of a partner: {error:?}"));
        self.stack.set_sources(number(link), sources).map_err(refused)
    }

    /// Returns the link of a partner, or `None` if the partner is unknown.
    pub(super) fn link_of(&self, device: &Name, member: &MemberId) -> Option<usize> {
        let place = self.config.devices.iter().position(|own| own.name == *device)?;
        let leads = |sender: &Sender| {
            sender.device == place && matches!(&sender.partner, Partner::Member(known) if known == member)
        };
        self.links.senders.iter().position(leads)
    }

    /// Adds a partner: adds its link and the routes to its addresses. If the partner is already known, updates them.
    pub(super) fn add_member(&mut self, device: &Name, member: &Member) -> Result<()> {
        let place = self.config.devices.iter().position(|own| own.name == *device);
        let place = place.ok_or_else(|| Error::usage(format!("the guest has no device {device}")))?;
        let own = self.config.devices[place].clone();
        let sources = convert::filter(&member.sources)?;
        if own.kind.is_point_to_point() && self.switch.is_none() {
            return self.set_only_partner(self.main_links[place], &member.id, own.kind, sources);
        }
        let link = match self.link_of(device, &member.id) {
            Some(known) => {
                // A known partner is announced again after a change of access, so an earlier refusal of a ring pair no longer
                // counts.
                self.links.senders[known].refused_until = None;
                known
            }
            None => {
                let addresses = own.addresses.iter().map(|own| convert::prefix(own.addr().into())).collect();
                self.add_link(place, &own, addresses, Partner::Member(member.id.clone()))?
            }
        };
        if let Some(port) = &member.port {
            self.set_member_port(link, member, port, sources)?;
            return Ok(());
        }
        self.set_sources(link, Some(sources))?;
        let hosts: Vec<Prefix> = member.addresses.iter().map(|host| convert::prefix((*host).into())).collect();
        for host in &hosts {
            let refused = |error| Error::usage(format!("the stack refuses the route to {}: {error:?}", host.address()));
            self.stack.add_route(*host, number(link), None).map_err(refused)?;
        }
        self.links.senders[link].hosts = hosts;
        // A multicast route stays on the main link, because it leads to all partners on a network and not to one.
        let led_by = |route: &Route| member.addresses.contains(&route.via) && !route.to.addr().is_multicast();
        let routes: Vec<_> =
            self.config.routes.iter().filter(|route| route.device == place && led_by(route)).copied().collect();
        routes.into_iter().try_for_each(|route| self.set_route(link, convert::prefix(route.to), route.via))
    }

    /// Sets the only partner of a device: the other guest of a virtual CTC, or a switch. A switch has checked the source addresses
    /// of what it sends.
    fn set_only_partner(&mut self, link: usize, member: &MemberId, kind: NetworkKind, sources: Sources) -> Result<()> {
        let sender = &mut self.links.senders[link];
        sender.partner = Partner::Member(member.clone());
        sender.refused_until = None;
        self.set_sources(link, (!kind.is_switched()).then_some(sources))
    }

    /// Removes a partner, and the routes to the partner's addresses.
    pub(super) fn remove_member(&mut self, device: &Name, member: &MemberId) {
        let Some(link) = self.link_of(device, member) else { return };
        for host in std::mem::take(&mut self.links.senders[link].hosts) {
            self.stack.remove_route(host);
        }
        // The call fails only if the link is unknown, and this link exists.
        let _ = self.set_sources(link, Some(Sources::default()));
        self.remove_member_port(link);
        self.end_link(link);
    }
}

/// Returns the number that a link's device has in the stack.
pub(super) fn number(link: usize) -> DeviceId {
    DeviceId(u16::try_from(link).unwrap_or(u16::MAX))
}
