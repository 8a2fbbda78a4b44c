//! The network of a path as it stands: its namespaces and interfaces, and how one of them is read or changed.

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

/// The network of one path; it is gone when this value is.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) nodes: Vec<Node>,
    /// Lower devices before the devices above them.
    pub(super) interfaces: Vec<Interface>,
}

impl Network {
    /// The node of this kind, if the path has one.
    pub(super) fn node(&mut self, kind: NodeKind) -> Result<&mut Node> {
        self.nodes
            .iter_mut()
            .find(|node| node.kind == kind)
            .ok_or_else(|| Error::environment(format!("this path has no {} namespace", kind.name())))
    }

    /// Reads an interface.
    pub(super) fn read(&mut self, interface: Interface) -> Result<LinkMessage> {
        let node = self.node(interface.node)?;
        node.netlink.link(interface.index).context(format!("cannot read interface {}", interface.label()))
    }

    /// Changes an interface; `operation` completes "cannot ... client/siga-c".
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
    /// Its name in the records: `client/siga-c`.
    pub(super) fn label(self) -> String {
        format!("{}/{}", self.node.name(), self.name)
    }
}
