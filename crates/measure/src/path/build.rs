//! Builds the network of a path: namespaces, interfaces, addresses and routes. The order of the steps avoids pauses.
//!
//! Sysctls are set first, because a new interface takes its defaults from them. Addresses are added when every interface can
//! carry frames, because IPv6 can use an address only then. The packet filter of a level is loaded last, because its rules may
//! name interfaces. The sysctls of the packet filter are set after that, because they exist only when the filter is loaded.
//! Packets that are too large for a link are fragmented by the kernel.

use super::carrier;
use super::filter;
use super::namespace::{Node, NodeKind, gain_privilege};
use super::netlink::Requests as _;
use super::network::{Interface, Network};
use super::settings::{self, Notes};
use super::{Built, Counters, Namespace, napi, qdisc};
use crate::socket::smc;
use netlink_packet_core::NLM_F_EXCL;
use netlink_packet_route::link::{
    BondMode, BondXmitHashPolicy, BridgeStpState, InfoBond, InfoBridge, InfoData, InfoIpVlan, InfoKind, InfoMacVlan,
    InfoVeth, InfoVlan, IpVlanMode, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MacVlanMode, State, Stats64,
};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::path::PathKind;
use siga_plan::spec::{PathSpec, address};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Maximum time until all interfaces can carry frames. Normally the kernel's link watcher needs a millisecond.
const READY_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause between two checks whether an interface can carry frames.
const READY_PAUSE: Duration = Duration::from_micros(100);

/// The VLAN ID in the tags. Any of 1 to 4094 would do.
const VLAN_ID: u16 = 100;

/// Minimum MTU of an interface with which the kernel uses IPv6 on it (RFC 8200, section 5).
const IPV6_MTU_MIN: u32 = 1_280;

impl Network {
    /// Builds the path that `spec` describes. Returns the network, and its settings as siga has read them back from the kernel.
    pub(super) fn build(spec: &PathSpec) -> Result<(Self, Built)> {
        let own_user_namespace = gain_privilege()?;
        let nodes = nodes(spec.kind).iter().map(|kind| Node::create(*kind)).collect::<Result<Vec<_>>>()?;
        let mut network = Self { nodes, interfaces: Vec::new() };
        let mut notes = Notes::default();
        let ipv6 = network.nodes[0].has_sysctl("net.ipv6.conf.all.disable_ipv6")?;
        if spec.ipv6 && !ipv6 {
            return Err(Error::environment("this kernel has no IPv6").hint("measure over IPv4 (without --ipv6)"));
        }
        settings::prepare(&network, spec, ipv6, &mut notes)?;
        network.link(spec)?;
        settings::shape(&mut network, &spec.level)?;
        network.raise()?;
        napi::apply(&mut network, &spec.level)?;
        qdisc::apply(&mut network, &spec.level)?;
        network.address(spec.kind, ipv6 && spec.frame_mtu().is_none_or(|mtu| mtu >= IPV6_MTU_MIN))?;
        let filters = filter::load(&mut network, spec)?;
        settings::finish(&network, &spec.level, &mut notes)?;
        let congestion = settings::choose_congestion(&network, spec.level.congestion.as_deref(), &mut notes)?;

        if spec.kind == PathKind::SmcLoopback {
            network.node(NodeKind::Shared)?.enter()?;
            smc::probe(spec.ipv6)?;
        }

        let (client_address, server_address) = endpoints(spec);
        let built = Built {
            namespaces: network.namespaces(own_user_namespace),
            client_address,
            server_address,
            interfaces: settings::read_interfaces(&mut network, &spec.level)?,
            sysctls: settings::read_sysctls(&network, spec, &mut notes)?,
            filters,
            congestion,
            notes: notes.into_lines(),
        };
        Ok((network, built))
    }

    /// Returns the counters of every interface. The key is the label of the interface. An additional entry `.../conntrack`
    /// counts the packets that connection tracking dropped in a namespace.
    pub(super) fn counters(&mut self) -> Result<BTreeMap<String, Counters>> {
        let mut counters = BTreeMap::new();
        for interface in self.interfaces.clone() {
            let link = self.read(interface)?;
            let stats = link.attributes.iter().find_map(|attribute| {
                if let LinkAttribute::Stats64(stats) = attribute { Some(counters_of(stats)) } else { None }
            });
            let stats =
                stats.ok_or_else(|| Error::environment(format!("interface {} has no counters", interface.label())))?;
            counters.insert(interface.label(), Counters { carrier_losses: carrier::of(&link), ..stats });
        }
        for node in &self.nodes {
            let rx_dropped = filter::dropped(node)?;
            if rx_dropped > 0 {
                let label = format!("{}/conntrack", node.kind.name());
                counters.insert(label, Counters { rx_dropped, ..Counters::default() });
            }
        }
        Ok(counters)
    }

    /// Checks that the connections of the path `smc-loopback` use SMC-D.
    pub(super) fn check_smc(&mut self) -> Result<()> {
        self.node(NodeKind::Shared)?.enter()?;
        smc::check()
    }

    fn namespaces(&self, own_user_namespace: bool) -> Vec<Namespace> {
        let user = own_user_namespace.then(|| format!("/proc/{}/ns/user", std::process::id()));
        let of_node = |node: &Node| {
            let (net, inode, user) = (node.proc_path(), node.inode, user.clone());
            node.kind.roles().iter().map(move |role| Namespace {
                role: *role,
                net: net.clone(),
                user: user.clone(),
                inode,
            })
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// Creates all interfaces, in the state down.
    fn link(&mut self, spec: &PathSpec) -> Result<()> {
        let mtu = spec.frame_mtu();
        match spec.kind {
            PathKind::Loopback | PathKind::Unix | PathKind::SmcLoopback => {
                let lo = self.register(NodeKind::Shared, "lo")?;
                match mtu {
                    Some(mtu) => self.change(lo, "set the MTU of", vec![LinkAttribute::Mtu(mtu)]),
                    None => Ok(()),
                }
            }
            PathKind::Veth | PathKind::Sockmap => {
                self.veth((NodeKind::Client, "siga-c"), (NodeKind::Server, "siga-s"), mtu)
            }
            PathKind::VethRouted => {
                self.veth((NodeKind::Client, "siga-c"), (NodeKind::Router, "siga-rc"), mtu)?;
                self.veth((NodeKind::Router, "siga-rs"), (NodeKind::Server, "siga-s"), mtu)
            }
            PathKind::Bridge => self.bridge(mtu),
            PathKind::Macvlan => {
                let data = InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Bridge)]);
                self.children(&InfoKind::MacVlan, &data, mtu)
            }
            PathKind::Ipvlan => {
                let data = InfoData::IpVlan(vec![InfoIpVlan::Mode(IpVlanMode::L2)]);
                self.children(&InfoKind::IpVlan, &data, mtu)
            }
            PathKind::Bond => self.bond(mtu),
            PathKind::Vlan => self.vlan(mtu),
        }
    }

    fn veth(&mut self, one: (NodeKind, &'static str), other: (NodeKind, &'static str), mtu: Option<u32>) -> Result<()> {
        let mut peer = named(other.1, mtu);
        peer.attributes.push(LinkAttribute::NetNsFd(self.node(other.0)?.descriptor()));
        let data = InfoData::Veth(InfoVeth::Peer(peer));
        self.create(one.0, named(one.1, mtu), InfoKind::Veth, data)?;
        self.register(one.0, one.1)?;
        self.register(other.0, other.1)?;
        Ok(())
    }

    /// Creates a bridge with two ports. It forwards even the first frame, because it has no spanning tree, no forwarding delay
    /// and no multicast snooping.
    fn bridge(&mut self, mtu: Option<u32>) -> Result<()> {
        self.veth((NodeKind::Client, "siga-c"), (NodeKind::Router, "siga-rc"), mtu)?;
        self.veth((NodeKind::Server, "siga-s"), (NodeKind::Router, "siga-rs"), mtu)?;
        let data = InfoData::Bridge(vec![
            InfoBridge::StpState(BridgeStpState::Disabled),
            InfoBridge::ForwardDelay(0),
            InfoBridge::MulticastSnooping(false),
        ]);
        self.create(NodeKind::Router, named("siga-br", mtu), InfoKind::Bridge, data)?;
        let bridge = self.register(NodeKind::Router, "siga-br")?;
        for port in self.interfaces.clone() {
            if port.node == NodeKind::Router && port.index != bridge.index {
                self.change(port, "attach the interface to the bridge", vec![LinkAttribute::Controller(bridge.index)])?;
            }
        }
        // Set the MTU of the bridge last: otherwise it follows the smallest MTU of its ports.
        self.change(bridge, "set the MTU of", mtu.map(LinkAttribute::Mtu).into_iter().collect())
    }

    /// Creates an interface of this kind (macvlan, ipvlan) for the client and one for the server. Their parent is one end of a veth
    /// pair in the middle namespace. So the parent has a carrier, although there is no hardware.
    fn children(&mut self, kind: &InfoKind, data: &InfoData, mtu: Option<u32>) -> Result<()> {
        self.veth((NodeKind::Router, "siga-q"), (NodeKind::Router, "siga-p"), mtu)?;
        let parent = self.node(NodeKind::Router)?.index("siga-p")?;
        for (node, name) in [(NodeKind::Client, "siga-c"), (NodeKind::Server, "siga-s")] {
            let mut child = named(name, mtu);
            child.attributes.push(LinkAttribute::NetNsFd(self.node(node)?.descriptor()));
            child.attributes.push(LinkAttribute::Link(parent));
            self.create(NodeKind::Router, child, kind.clone(), data.clone())?;
            self.register(node, name)?;
        }
        Ok(())
    }

    /// Joins client and server by two veth pairs, and bonds the two ends at each side. Each connection uses one pair, which a hash
    /// of addresses and ports chooses. The mode 802.3ad (LACP) sends in the same way, but first negotiates for seconds.
    fn bond(&mut self, mtu: Option<u32>) -> Result<()> {
        self.veth((NodeKind::Client, "siga-c1"), (NodeKind::Server, "siga-s1"), mtu)?;
        self.veth((NodeKind::Client, "siga-c2"), (NodeKind::Server, "siga-s2"), mtu)?;
        let ports = self.interfaces.clone();
        for (node, name) in [(NodeKind::Client, "siga-c"), (NodeKind::Server, "siga-s")] {
            let data = InfoData::Bond(vec![
                InfoBond::Mode(BondMode::BalanceXor),
                InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34),
            ]);
            self.create(node, named(name, mtu), InfoKind::Bond, data)?;
            let bond = self.register(node, name)?;
            for port in ports.iter().filter(|port| port.node == node) {
                self.change(*port, "attach the interface to the bond", vec![LinkAttribute::Controller(bond.index)])?;
            }
        }
        Ok(())
    }

    /// Creates a veth pair, and an interface with an IEEE 802.1Q tag on each end of it.
    fn vlan(&mut self, mtu: Option<u32>) -> Result<()> {
        self.veth((NodeKind::Client, "siga-ct"), (NodeKind::Server, "siga-st"), mtu)?;
        for (trunk, name) in self.interfaces.clone().into_iter().zip(["siga-c", "siga-s"]) {
            let mut tagged = named(name, mtu);
            tagged.attributes.push(LinkAttribute::Link(trunk.index));
            let data = InfoData::Vlan(vec![InfoVlan::Id(VLAN_ID)]);
            self.create(trunk.node, tagged, InfoKind::Vlan, data)?;
            self.register(trunk.node, name)?;
        }
        Ok(())
    }

    fn create(&mut self, node: NodeKind, mut link: LinkMessage, kind: InfoKind, data: InfoData) -> Result<()> {
        let name = kind.to_string();
        link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)]));
        self.node(node)?.netlink.create_link(link).map_err(|error| {
            let message = format!("cannot create an interface of type {name}: {error}");
            if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
                let module = module(&name);
                Error::environment(message).hint(format!("the kernel has no {name} driver; try `modprobe {module}`"))
            } else {
                Error::environment(message)
            }
        })
    }

    fn register(&mut self, kind: NodeKind, name: &'static str) -> Result<Interface> {
        let interface = Interface { node: kind, name, index: self.node(kind)?.index(name)? };
        self.interfaces.push(interface);
        Ok(interface)
    }

    /// Brings every interface up and waits until all of them can carry frames.
    fn raise(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            let (name, index) = (node.kind.name(), node.index("lo")?);
            node.netlink.set_link(up(index)).context(format!("cannot bring up the interface {name}/lo"))?;
        }
        for interface in self.interfaces.clone() {
            let node = self.node(interface.node)?;
            let raised = node.netlink.set_link(up(interface.index));
            raised.context(format!("cannot bring up the interface {}", interface.label()))?;
        }
        let deadline = Instant::now() + READY_TIME_MAX;
        for interface in self.interfaces.clone() {
            while !is_ready(&self.read(interface)?) {
                if Instant::now() > deadline {
                    return Err(Error::environment(format!(
                        "interface {} has no carrier, so it cannot send frames",
                        interface.label()
                    ))
                    .hint("the kernel is slow to report the interface as up, or the host is overloaded; try again"));
                }
                std::thread::sleep(READY_PAUSE);
            }
        }
        Ok(())
    }

    /// Adds addresses and routes to client, router and server.
    fn address(&mut self, kind: PathKind, ipv6: bool) -> Result<()> {
        let families = if ipv6 { &[false, true][..] } else { &[false] };
        for &ipv6 in families {
            match kind {
                PathKind::Loopback | PathKind::Unix | PathKind::SmcLoopback => {}
                PathKind::Veth
                | PathKind::Bridge
                | PathKind::Macvlan
                | PathKind::Bond
                | PathKind::Vlan
                | PathKind::Ipvlan
                | PathKind::Sockmap => {
                    self.add_address("siga-c", address(ipv6, 1, 1))?;
                    self.add_address("siga-s", address(ipv6, 1, 2))?;
                }
                PathKind::VethRouted => {
                    self.add_address("siga-c", address(ipv6, 1, 1))?;
                    self.add_address("siga-rc", address(ipv6, 1, 2))?;
                    self.add_address("siga-rs", address(ipv6, 2, 1))?;
                    self.add_address("siga-s", address(ipv6, 2, 2))?;
                    self.add_route(NodeKind::Client, address(ipv6, 2, 0), address(ipv6, 1, 2))?;
                    self.add_route(NodeKind::Server, address(ipv6, 1, 0), address(ipv6, 2, 1))?;
                }
            }
        }
        Ok(())
    }

    /// Adds an address to an interface. For an IPv6 address, also adds the link-local address from [`link_local`], because a
    /// router sends neighbour solicitations for forwarded packets from its link-local address.
    fn add_address(&mut self, name: &str, address: IpAddr) -> Result<()> {
        let interfaces: Vec<_> = self.interfaces.iter().copied().filter(|interface| interface.name == name).collect();
        for interface in interfaces {
            let node = self.node(interface.node)?;
            for address in [Some(address), link_local(address)].into_iter().flatten() {
                let added = node.netlink.add_address(interface.index, address, prefix_bits(address), NLM_F_EXCL);
                added.context(format!("cannot give the interface {} the address {address}", interface.label()))?;
            }
        }
        Ok(())
    }

    fn add_route(&mut self, node: NodeKind, network: IpAddr, gateway: IpAddr) -> Result<()> {
        let added = self.node(node)?.netlink.add_route(network, prefix_bits(network), gateway);
        added.context(format!("cannot add the route to {network} via {gateway} in the {} namespace", node.name()))
    }
}

/// Returns the module with the driver for interfaces of this kind.
fn module(kind: &str) -> &str {
    match kind {
        "bond" => "bonding",
        "vlan" => "8021q",
        other => other,
    }
}

/// Returns the namespaces that a path of this type needs, in the order of [`Built::namespaces`].
fn nodes(kind: PathKind) -> &'static [NodeKind] {
    match kind {
        PathKind::Loopback | PathKind::Unix | PathKind::SmcLoopback => &[NodeKind::Shared],
        PathKind::Veth | PathKind::Bond | PathKind::Vlan | PathKind::Sockmap => &[NodeKind::Client, NodeKind::Server],
        PathKind::VethRouted | PathKind::Bridge | PathKind::Macvlan | PathKind::Ipvlan => {
            &[NodeKind::Client, NodeKind::Router, NodeKind::Server]
        }
    }
}

/// Returns the address of the client and the address of the server on the path.
fn endpoints(spec: &PathSpec) -> (Option<IpAddr>, Option<IpAddr>) {
    let localhost = if spec.ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    match spec.kind {
        PathKind::Unix => (None, None),
        PathKind::Loopback | PathKind::SmcLoopback => (Some(localhost), Some(localhost)),
        PathKind::VethRouted => (Some(address(spec.ipv6, 1, 1)), Some(address(spec.ipv6, 2, 2))),
        PathKind::Veth
        | PathKind::Bridge
        | PathKind::Macvlan
        | PathKind::Bond
        | PathKind::Vlan
        | PathKind::Ipvlan
        | PathKind::Sockmap => (Some(address(spec.ipv6, 1, 1)), Some(address(spec.ipv6, 1, 2))),
    }
}

/// Returns the link-local address fe80::NETWORK:HOST for an IPv6 address of the path. `None` for an IPv4 address.
fn link_local(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else { return None };
    let [_, _, _, network, _, _, _, host] = address.segments();
    Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, network, host).into())
}

/// Returns the prefix length. Every network of a path is a /24 (IPv4) or a /64 (IPv6).
fn prefix_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 24 } else { 64 }
}

fn named(name: &str, mtu: Option<u32>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.extend(mtu.map(LinkAttribute::Mtu));
    message
}

pub(super) fn up(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message
}

/// Returns whether an interface can carry frames. Its operational state must be up, except for lo, which never reports this state. In
/// addition, its qdisc must no longer be noop, which drops every frame.
fn is_ready(link: &LinkMessage) -> bool {
    let drops_all = LinkAttribute::Qdisc("noop".to_owned());
    let is_up = link.attributes.contains(&LinkAttribute::OperState(State::Up));
    (is_up || link.header.flags.contains(LinkFlags::Loopback)) && !link.attributes.contains(&drops_all)
}

fn counters_of(stats: &Stats64) -> Counters {
    Counters {
        rx_bytes: stats.rx_bytes,
        rx_dropped: stats.rx_dropped,
        rx_errors: stats.rx_errors,
        tx_bytes: stats.tx_bytes,
        tx_dropped: stats.tx_dropped,
        tx_errors: stats.tx_errors,
        carrier_losses: 0,
    }
}
