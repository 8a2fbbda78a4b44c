//! The network of a built path: its namespaces and interfaces, and functions that read or change an interface.

use super::namespace::{Node, NodeKind};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use siga_model::error::{Error, IoContext, Result};

/// An interface of the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interface {
    pub(super) node: NodeKind,
    pub(super) name: &'static str,
    pub(super) index: u32,
}

/// The network of one path. The kernel removes the network when this value is dropped.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) nodes: Vec<Node>,
    /// The interfaces of the path. An interface that is built on another (macvlan, bridge) comes later in the list.
    pub(super) interfaces: Vec<Interface>,
}

impl Network {
    /// Returns the namespace of this kind. Returns an error of kind `Environment` if the path has no such namespace.
    pub(super) fn node(&mut self, kind: NodeKind) -> Result<&mut Node> {
        self.nodes
            .iter_mut()
            .find(|node| node.kind == kind)
            .ok_or_else(|| Error::environment(format!("this path has no {} namespace", kind.name())))
    }

    /// Reads the attributes of an interface from the kernel.
    pub(super) fn read(&mut self, interface: Interface) -> Result<LinkMessage> {
        let node = self.node(interface.node)?;
        node.netlink
            .link(interface.index)
            .context(format!("cannot read the settings of interface {}", interface.label()))
    }

    /// Changes attributes of an interface. `operation` completes the error message: for example, "bring up" leads to "cannot
    /// bring up client/siga-c".
    pub(super) fn change(
        &mut self,
        interface: Interface,
        operation: &str,
        attributes: Vec<LinkAttribute>,
    ) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface.index;
        message.attributes = attributes;
        let node = self.node(interface.node)?;
        node.netlink.set_link(message).context(format!("cannot {operation} {}", interface.label()))
    }
}

impl Interface {
    /// Returns the name of the interface in records, for example `client/siga-c`.
    pub(super) fn label(self) -> String {
        format!("{}/{}", self.node.name(), self.name)
    }
}
