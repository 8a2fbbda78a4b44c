//! Multicast groups of a guest's sockets: maps a socket's choice of network to the stack's device on which the socket joins a
//! group.
//!
//! A multicast group is joined on the main link of a network. The main link is the stack's device that stands for all partners on
//! the network. A packet from a partner to several guests is handled as if the main link had received it. A packet that is sent
//! over the main link is copied to all partners. So memberships do not change when partners start, end or get new links.

use crate::stack_sockets::mtu_discovery;
use siga_iucv::options::{DatagramChange, DatagramOptions, Interface};
use siga_stack::Stack;
use siga_stack::ip::route::Target;
use siga_stack::link::frame::DeviceId;
use siga_stack::tcp::Storage;
use siga_stack::time::Instant;
use siga_stack::udp::{self, UdpError, UdpId};
use std::net::{IpAddr, SocketAddr};

/// For each network of a guest, its main link and the guest's addresses on the network, in the order of the topology.
#[derive(Debug, Default)]
pub(crate) struct GroupNetworks(pub(crate) Vec<(DeviceId, Vec<IpAddr>)>);

impl GroupNetworks {
    /// Changes the multicast groups or an option of a datagram socket.
    pub(crate) fn change<S: Storage>(
        &self,
        stack: &mut Stack<S>,
        at: Instant,
        id: UdpId,
        change: DatagramChange,
    ) -> Result<(), UdpError> {
        match change {
            DatagramChange::Join(group, on) => {
                let device = self.device(stack, group, on)?;
                stack.udp_join(at, id, group, device)
            }
            DatagramChange::Leave(group, on) => {
                let device = self.device(stack, group, on)?;
                stack.udp_leave(at, id, group, device)
            }
            DatagramChange::HopLimit(hops) => stack.udp_set_group_hop_limit(id, hops),
            DatagramChange::Loop(on) => stack.udp_set_group_loop(id, on),
            DatagramChange::MtuDiscovery(discovery) => stack.udp_set_mtu_discovery(id, mtu_discovery(discovery)),
            DatagramChange::Timing(timing) => stack.udp_set_send_times(id, timing.sent),
            DatagramChange::UnicastHopLimit(hops) => stack.udp_set_hop_limit(id, hops),
            DatagramChange::Service(service) => stack.udp_set_service(id, service),
            DatagramChange::GroupNetwork(Interface::OfRoute) => stack.udp_set_group_device(id, None),
            DatagramChange::GroupNetwork(on) => {
                let device = self.chosen(on).ok_or(UdpError::NoDevice)?;
                stack.udp_set_group_device(id, Some(device))
            }
        }
    }

    /// Sends a datagram with options of its own.
    pub(crate) fn send<S: Storage>(
        &self,
        stack: &mut Stack<S>,
        at: Instant,
        id: UdpId,
        to: SocketAddr,
        bytes: &[u8],
        with: DatagramOptions,
    ) -> Result<(), UdpError> {
        let DatagramOptions { from, network, hop_limit, service } = with;
        let device = match network {
            Some(number) => Some(self.chosen(Interface::Number(number)).ok_or(UdpError::NoDevice)?),
            None => None,
        };
        stack.udp_send_with(at, id, Some(to), bytes, udp::DatagramOptions { from, device, hop_limit, service })
    }

    /// Returns the number of the network with this main link, counted from 1.
    pub(crate) fn number(&self, device: DeviceId) -> Option<u32> {
        let place = self.0.iter().position(|(main, _)| *main == device)?;
        u32::try_from(place + 1).ok()
    }

    fn device<S: Storage>(&self, stack: &Stack<S>, group: IpAddr, on: Interface) -> Result<DeviceId, UdpError> {
        if !group.is_multicast() {
            return Err(UdpError::NotGroup);
        }
        let device = match on {
            Interface::OfRoute => match stack.routes().lookup(group) {
                Some(Target::Via { device, .. }) => Some(device),
                Some(Target::Broadcast(_) | Target::Local(_) | Target::Nobody) | None => None,
            },
            Interface::Address(_) | Interface::Number(_) => self.chosen(on),
        };
        device.ok_or(UdpError::NoDevice)
    }

    /// Returns the main link of a network that an application has chosen.
    fn chosen(&self, on: Interface) -> Option<DeviceId> {
        let network = match on {
            Interface::OfRoute => None,
            Interface::Address(own) => self.0.iter().find(|(_, addresses)| addresses.contains(&own.into())),
            Interface::Number(number) => {
                let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
                place.and_then(|place| self.0.get(place))
            }
        };
        network.map(|(device, _)| *device)
    }
}
