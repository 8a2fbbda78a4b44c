//! The places where client and server of a comparison run: network namespaces of the kernel, and guests of siga's networks.
//!
//! The namespaces are made for this run, with the congestion control cubic, or reno where cubic is restricted. All guests wait by sleeping, as the kernel does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::drivers::output;
use crate::guests::Network;

const TOPOLOGY: &str = include_str!("topology.toml");

/// The name of the topology's network.
const NETWORK: &str = "programs";

/// The namespaces: one with loopback only, and the client, the server, the bridge and the router of the other paths.
const ALONE: &str = "siga-programs-a";
const CLIENT: &str = "siga-programs-c";
const SERVER: &str = "siga-programs-s";
const BRIDGE: &str = "siga-programs-b";
const ROUTER: &str = "siga-programs-r";
const NAMESPACES: [&str; 5] = [ALONE, CLIENT, SERVER, BRIDGE, ROUTER];

/// The end of a path at which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

/// The path between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The kernel's loopback interface.
    Loopback,
    /// The same with segments of up to 192 KB (BIG TCP), over IPv6.
    BigTcp,
    /// A veth pair with the MTU of siga's networks.
    Veth,
    /// A veth pair with the MTU of Ethernet.
    VethEthernet,
    /// Two ports of a bridge.
    Bridge,
    /// A router between two veth pairs with the MTU of siga's networks.
    VethRouted,
    /// One guest. The programs use its loopback address, and their connections are direct.
    OneGuest,
    /// Two guests on one network. The connections use TCP.
    TwoGuests,
    /// Two guests on one network that permits direct connections.
    GuestsDirect,
    /// Two guests on one network with the MTU of Ethernet.
    GuestsEthernet,
    /// A router between two guests.
    GuestsRouted,
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Loopback => "kernel, loopback",
            Self::BigTcp => "kernel, loopback with BIG TCP",
            Self::Veth => "kernel, veth",
            Self::VethEthernet => "kernel, veth, MTU 1500",
            Self::Bridge => "kernel, bridge",
            Self::VethRouted => "kernel, router",
            Self::OneGuest => "siga, one guest",
            Self::TwoGuests => "siga, two guests",
            Self::GuestsDirect => "siga, two guests, direct",
            Self::GuestsEthernet => "siga, two guests, MTU 1500",
            Self::GuestsRouted => "siga, router",
        }
    }

    /// Returns the address of the server.
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Loopback | Self::OneGuest => "127.0.0.1",
            Self::BigTcp => "::1",
            Self::Veth => "198.18.78.2",
            Self::VethEthernet => "198.18.79.2",
            Self::Bridge => "198.18.80.2",
            Self::VethRouted => "198.18.82.2",
            Self::TwoGuests => "10.9.1.2",
            Self::GuestsDirect => "10.9.5.2",
            Self::GuestsEthernet => "10.9.2.2",
            Self::GuestsRouted => "10.9.4.2",
        }
    }

    /// Returns the namespace of the kernel, or the guest.
    fn at(self, end: End) -> &'static str {
        match (self, end) {
            (Self::Loopback | Self::BigTcp, _) => ALONE,
            (Self::Veth | Self::VethEthernet | Self::Bridge | Self::VethRouted, End::Client) => CLIENT,
            (Self::Veth | Self::VethEthernet | Self::Bridge | Self::VethRouted, End::Server) => SERVER,
            (Self::OneGuest, _) => "server",
            (Self::TwoGuests | Self::GuestsDirect | Self::GuestsEthernet | Self::GuestsRouted, End::Client) => "client",
            (Self::TwoGuests | Self::GuestsDirect | Self::GuestsEthernet | Self::GuestsRouted, End::Server) => "server",
        }
    }

    pub(super) fn is_sigas(self) -> bool {
        !matches!(
            self,
            Self::Loopback | Self::BigTcp | Self::Veth | Self::VethEthernet | Self::Bridge | Self::VethRouted
        )
    }
}

/// The CPUs of client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// The scheduler chooses.
    Scheduler,
    /// Both on the first CPU.
    OneCpu,
    /// The client on the first CPU, and the server on the second.
    Apart,
}

impl Placement {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "",
            Self::OneCpu => ", on one CPU",
            Self::Apart => ", a CPU for each end",
        }
    }

    fn cpu(self, end: End) -> Option<&'static str> {
        match (self, end) {
            (Self::Scheduler, _) => None,
            (Self::OneCpu, _) | (Self::Apart, End::Client) => Some("0"),
            (Self::Apart, End::Server) => Some("1"),
        }
    }
}

/// All places. Dropping the value removes them.
pub(super) struct Places {
    network: Network,
    _namespaces: Namespaces,
}

impl Places {
    pub(super) fn build(siga: &Path, directory: &Path) -> Result<Self, String> {
        let topology = directory.join("programs.toml");
        fs::write(&topology, TOPOLOGY).map_err(|error| format!("{}: {error}", topology.display()))?;
        let network = Network::up(siga, &directory.join("guests"), &topology, NETWORK)?;
        Ok(Self { network, _namespaces: Namespaces::build()? })
    }

    /// Returns a command that runs a program at one end of a place.
    pub(super) fn command(&self, place: Place, placement: Placement, end: End, program: &[String]) -> Command {
        let at = place.at(end);
        let mut command = if place.is_sigas() {
            self.network.exec(at)
        } else {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", at]);
            command.stdin(Stdio::null());
            command
        };
        if let Some(cpu) = placement.cpu(end) {
            command.args(["taskset", "-c", cpu]);
        }
        command.args(program);
        command
    }

    /// Returns the process ids of the guests.
    pub(super) fn guests(&self) -> Result<Vec<u32>, String> {
        self.network.guests()
    }

    /// Returns the command with which siga reaches an end that is named like a guest, as if it were another host: a script in
    /// `directory`, which gets the name of the guest and a line for a shell as its last arguments.
    pub(super) fn reach(&self, directory: &Path) -> Result<PathBuf, String> {
        let script = directory.join("reach");
        fs::write(&script, self.network.script()).map_err(|error| format!("{}: {error}", script.display()))?;
        Ok(script)
    }
}

/// The namespaces of the kernel's paths. Dropping the value removes them.
struct Namespaces;

impl Namespaces {
    fn build() -> Result<Self, String> {
        let all = Self;
        for name in NAMESPACES {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
            let set = |line: &str| output(&["ip", "netns", "exec", name, "sysctl", "-qw", line]);
            set("net.ipv4.ip_forward=1")?;
            // The host may not allow cubic in other namespaces than its first.
            set("net.ipv4.tcp_congestion_control=cubic").or_else(|_| set("net.ipv4.tcp_congestion_control=reno"))?;
        }
        ip(&format!("-n {ALONE} link set lo gso_max_size 196608 gro_max_size 196608"))?;
        pair((CLIENT, "veth0", "198.18.78.1"), (SERVER, "veth0", "198.18.78.2"), 57_344)?;
        pair((CLIENT, "veth1", "198.18.79.1"), (SERVER, "veth1", "198.18.79.2"), 1_500)?;
        ip(&format!("-n {BRIDGE} link add br0 type bridge"))?;
        ip(&format!("-n {BRIDGE} link set br0 up"))?;
        for (end, address, port) in [(CLIENT, "198.18.80.1", "port0"), (SERVER, "198.18.80.2", "port1")] {
            ip(&format!("-n {end} link add veth2 mtu 57344 type veth peer name {port} netns {BRIDGE}"))?;
            ip(&format!("-n {end} addr add {address}/24 dev veth2"))?;
            ip(&format!("-n {end} link set veth2 up"))?;
            ip(&format!("-n {BRIDGE} link set {port} mtu 57344 master br0 up"))?;
        }
        pair((CLIENT, "veth3", "198.18.81.1"), (ROUTER, "veth0", "198.18.81.2"), 57_344)?;
        pair((ROUTER, "veth1", "198.18.82.1"), (SERVER, "veth3", "198.18.82.2"), 57_344)?;
        ip(&format!("-n {CLIENT} route add 198.18.82.0/24 via 198.18.81.2"))?;
        ip(&format!("-n {SERVER} route add 198.18.81.0/24 via 198.18.82.1"))?;
        Ok(all)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in NAMESPACES {
            let _ = output(&["ip", "netns", "del", name]);
        }
    }
}

/// Joins two namespaces by a veth pair. Each end has a namespace, a name and an address.
fn pair(one: (&str, &str, &str), other: (&str, &str, &str), mtu: u32) -> Result<(), String> {
    let ((at, name, _), (other_at, other_name, _)) = (one, other);
    ip(&format!("-n {at} link add {name} mtu {mtu} type veth peer name {other_name} mtu {mtu} netns {other_at}"))?;
    for (at, name, address) in [one, other] {
        ip(&format!("-n {at} addr add {address}/24 dev {name}"))?;
        ip(&format!("-n {at} link set {name} up"))?;
    }
    Ok(())
}

fn ip(line: &str) -> Result<(), String> {
    output(&[&["ip"], &line.split(' ').collect::<Vec<_>>()[..]].concat()).map(drop)
}
