//! Specifications of paths: what siga has to build for a cell. They are checked before anything is built.

use crate::kernel_setting::{GuestSetting, check_congestion, check_sysctl};
use crate::level::frame::Frame;
use crate::level::{Guests, Level};
use crate::path::PathKind;
use crate::path::guest::{Attach, GuestPath, Medium, NAMES, NEIGHBOURS};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::limits::{APPLICATIONS_DEFAULT, APPLICATIONS_MAX, ARENA_BYTES_DEFAULT};
use siga_model::link::Link;
use siga_model::waiting::Waiting;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl PathKind {
    /// Returns why a path of this type does not support every setting of the level, or `None` if it does.
    pub fn lacks(self, level: &Level) -> Option<String> {
        let name = &level.name;
        if level.guests.is_some() {
            return Some(format!(
                "level {name} sets driver features of siga's own networks, but {self} is a kernel path"
            ));
        }
        if level.link.is_some() {
            return Some(format!(
                "level {name} has a modelled link, but {self} is a kernel path; use a path of siga's own networks such as \
                vswitch, or level netem"
            ));
        }
        match self {
            Self::Unix if level.mtu.is_some() => {
                Some(format!("level {name} sets an MTU, but path unix sends no frames"))
            }
            Self::Unix if level.nftables.is_some() => {
                Some(format!("level {name} filters packets, but path unix sends no packets"))
            }
            Self::Sockmap if level.nftables.is_some() => {
                Some(format!("level {name} filters packets, but path sockmap sends its payload without packets"))
            }
            Self::Unix | Self::Sockmap if level.qdisc.is_some() => {
                Some(format!("level {name} sets a queueing discipline, but path {self} has no queue of packets"))
            }
            Self::Unix | Self::Sockmap if level.io_uring => {
                Some(format!("level {name} uses io_uring, but siga does not support io_uring on path {self}"))
            }
            Self::Unix | Self::Sockmap | Self::Loopback if level.threaded_napi.is_some() => {
                Some(format!("level {name} sets threaded NAPI, but path {self} has no interface with NAPI"))
            }
            Self::SmcLoopback => {
                let settings = level.settings();
                let unused: Vec<_> = settings.into_iter().filter(|name| !matches!(*name, "sysctl" | "build")).collect();
                (!unused.is_empty()).then(|| {
                    format!(
                        "path smc-loopback sends no packets with payload, so siga cannot apply these settings of \
                        level {name}: {}",
                        unused.join(", ")
                    )
                })
            }
            Self::Unix
            | Self::Sockmap
            | Self::Loopback
            | Self::Veth
            | Self::VethRouted
            | Self::Bridge
            | Self::Macvlan
            | Self::Bond
            | Self::Vlan
            | Self::Ipvlan => None,
        }
    }
}

impl GuestPath {
    /// Returns why this path does not support every setting of the level, or `None` if it does.
    pub fn lacks(self, level: &Level) -> Option<String> {
        let of_kernel: Vec<_> = level
            .settings()
            .into_iter()
            .filter(|name| !matches!(*name, "mtu" | "congestion" | "guests" | "link" | "build" | "sysctl"))
            .collect();
        if !of_kernel.is_empty() {
            return Some(format!(
                "level {} sets kernel settings ({}), but path {self} uses siga's own network",
                level.name,
                of_kernel.join(", ")
            ));
        }
        if level.link.is_some() && !self.medium.takes_links() {
            return Some(format!(
                "level {} has a modelled link, but path {self} cannot have one; use a path such as vctc or vswitch",
                level.name
            ));
        }
        if let Some(link) = level.link.as_ref().filter(|link| self.medium.has_channel() && !link.is_channel()) {
            return Some(format!(
                "level {} has the modelled link {}, but path {self} has only the settings rate and latency; use path vctc",
                level.name,
                link.label()
            ));
        }
        if let Some(frame) = level.frame().filter(|_| !self.medium.has_frames()) {
            return Some(format!(
                "level {} has HiperSockets frames of {}, but path {self} has no HiperSockets network",
                level.name,
                frame.name()
            ));
        }
        self.lacks_sysctl(level).or_else(|| self.lacks_cards(level)).or_else(|| level.foreign_congestion())
    }

    /// Returns why the path has no place for the level's settings of OSA-Express adapters, or `None` if it has.
    fn lacks_cards(self, level: &Level) -> Option<String> {
        let (name, guests) = (&level.name, level.guests?);
        if guests.priority_queueing.is_some() && !self.medium.has_cards() {
            return Some(format!(
                "level {name} sets `priority_queueing`, but path {self} has no OSA-Express adapters; use a path such as qdio-1gbe"
            ));
        }
        let takes = matches!(self.medium, Medium::Qdio1000BaseT | Medium::Qdio1Gbe);
        let takes = takes && !self.routed && self.attach == Attach::Embedded;
        (guests.neighbour.is_some() && !takes).then(|| {
            format!(
                "level {name} sets `neighbour`, which only the paths qdio-1gbe and qdio-1000base-t have, because its traffic is made for \
                 their wires"
            )
        })
    }

    /// Returns why guests of this path do not have every sysctl of the level, or `None` if they do.
    fn lacks_sysctl(self, level: &Level) -> Option<String> {
        let name = &level.name;
        let foreign: Vec<_> = level.sysctl.keys().filter(|name| GuestSetting::of(name).is_none()).cloned().collect();
        if !foreign.is_empty() {
            return Some(format!(
                "level {name} sets kernel settings ({}), but path {self} uses siga's own network",
                foreign.join(", ")
            ));
        }
        if !level.sysctl.is_empty() && self.attach.in_namespaces() != [false, false] {
            return Some(format!(
                "level {name} sets sysctls, but an end of path {self} uses the kernel's stack, for which siga cannot set them there"
            ));
        }
        let waits = self.routed || self.medium.is_switched();
        let backlog = level.sysctl.keys().any(|name| GuestSetting::of(name) == Some(GuestSetting::Backlog));
        (backlog && !waits).then(|| {
            format!(
                "level {name} sets net.core.netdev_max_backlog, but path {self} has no router and no switch in which packets wait"
            )
        })
    }
}

impl Level {
    /// Returns why siga's own stack does not support the level's congestion control, or `None` if it does.
    pub(crate) fn foreign_congestion(&self) -> Option<String> {
        match self.congestion.as_deref() {
            None | Some("cubic" | "reno" | "bbr") => None,
            Some(other) => Some(format!(
                "level {} sets congestion control {other}, but siga's stack supports only cubic, reno and bbr",
                self.name
            )),
        }
    }
}

/// A path to build from the kernel's networks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathSpec {
    /// Type of the path.
    pub kind: PathKind,
    /// MTU of every interface on the path. `None`: the level's MTU, else the type's default, if the type has frames.
    pub mtu: Option<u32>,
    /// Addresses of the path are IPv6.
    pub ipv6: bool,
    /// Level that sets the path's interfaces and sysctls.
    pub level: Level,
}

impl PathSpec {
    /// Checks everything that can be checked before the path is built.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` for an MTU or address family that the type does not support, and for a malformed sysctl or
    /// congestion control.
    pub fn check(&self) -> Result<()> {
        self.check_mtu()?;
        if let Some(reason) = self.kind.lacks(&self.level) {
            return Err(Error::usage(reason).hint("remove this level, or choose another path"));
        }
        if self.kind == PathKind::Unix && self.ipv6 {
            return Err(Error::usage("path unix has no IP addresses, so it does not support IPv6")
                .hint("remove --ipv6, or choose another path"));
        }
        self.level.congestion.as_deref().map_or(Ok(()), check_congestion)?;
        self.level.sysctl.iter().try_for_each(|(name, value)| check_sysctl(name, value))
    }

    /// Returns the MTU of every interface, or `None` if the type has no frames.
    pub fn frame_mtu(&self) -> Option<u32> {
        self.mtu.or(self.level.mtu).or_else(|| self.kind.mtu_default())
    }

    fn check_mtu(&self) -> Result<()> {
        let Some(mtu) = self.mtu.or(self.level.mtu) else { return Ok(()) };
        if let Some(other) = self.level.mtu.filter(|&other| other != mtu) {
            return Err(Error::usage(format!(
                "the plan asks for an MTU of {mtu} bytes, but level {} sets the MTU to {other} bytes",
                self.level.name
            )));
        }
        let Some((least, most)) = self.kind.mtu_range(self.ipv6) else {
            return Err(
                Error::usage(format!("path {} sends no frames, so it has no MTU", self.kind)).hint("remove the MTU")
            );
        };
        if (least..=most).contains(&mtu) {
            return Ok(());
        }
        let family = if self.ipv6 { " with IPv6" } else { "" };
        Err(Error::usage(format!(
            "MTU {mtu} is outside the range {least} to {most} that path {}{family} supports",
            self.kind
        )))
    }
}

/// Size of the arenas of all applications of a guest in one direction, in bytes.
const ARENAS_BYTES: u64 = 4 << 30;
/// Smallest size of an arena, in bytes: room for the largest write and what is in flight.
const ARENA_BYTES_LEAST: u64 = 4 << 20;

/// A path over siga's own network that is to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestSpec {
    /// Path over siga's own network.
    pub path: GuestPath,
    /// MTU of every device.
    pub mtu: u32,
    /// Addresses of the path are IPv6.
    pub ipv6: bool,
    /// How each guest waits for traffic, unless the level sets it.
    pub wait: Waiting,
    /// Settings of the level for each guest.
    pub guests: Guests,
    /// Modelled link between the server and its network, in both directions.
    pub link: Option<Link>,
    /// Sysctls of the level, by dotted name. Each is a setting of guests.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Number of applications of each end that use the stack of a guest: one, or one for each pair.
    #[serde(default = "one")]
    pub applications: u32,
}

fn one() -> u32 {
    1
}

impl GuestSpec {
    /// Returns the address of the client.
    pub fn client_address(&self) -> IpAddr {
        address(self.ipv6, 1, 1)
    }

    /// Returns the address that the server listens on.
    pub fn server_address(&self) -> IpAddr {
        if self.path.routed { address(self.ipv6, 2, 2) } else { address(self.ipv6, 1, 2) }
    }

    /// Returns the topology of the path as the text of a topology file. A client or server in a network namespace has a port with the
    /// name of its guest.
    pub fn topology(&self) -> String {
        let frame = self.guests.frame.unwrap_or(Frame::K64).name();
        let medium = match self.path.medium {
            Medium::Hipersockets => &format!("type = \"hipersockets\"\nframe = \"{frame}\""),
            Medium::Vctc => "type = \"vctc\"\nbuffer = 65535",
            Medium::Ctc => "type = \"ctc\"",
            Medium::Netiucv => "type = \"netiucv\"",
            Medium::Claw => "type = \"claw\"",
            Medium::Lcs => "type = \"lcs\"",
            Medium::GuestlanHipers => &format!("type = \"guestlan\"\nnic = \"hipersockets\"\nframe = \"{frame}\""),
            Medium::GuestlanQdio => "type = \"guestlan\"\nnic = \"qdio\"\nmtu = 32768",
            Medium::Vswitch => "type = \"vswitch\"\nmtu = 9000",
            Medium::Qdio1000BaseT => "type = \"qdio\"\nwire = \"1000base-t\"\nmtu = 8992",
            Medium::Qdio1Gbe => "type = \"qdio\"\nwire = \"1gbe\"\nmtu = 8992",
            Medium::Qdio10Gbe => "type = \"qdio\"\nwire = \"10gbe\"\nmtu = 8992",
        };
        let link = match self.path.attach {
            Attach::Embedded | Attach::Iucv | Attach::Mixed => "type = \"vctc\"\nbuffer = 65535",
            Attach::Netns => medium,
        };
        let mut text = String::from("[driver]\n");
        for (feature, is_on) in self.guests.features.named() {
            let _ = writeln!(text, "{feature} = {is_on}");
        }
        // The switch of a network waits as the guests do.
        let waiting = format!("waiting = \"{}\"", self.guests.wait(self.wait).name());
        let of_switch = format!("{waiting}\n{}", self.backlog());
        let of_switch = if self.path.medium.is_switched() { of_switch.as_str() } else { "" };
        let _ = writeln!(text, "[network.lan]\n{medium}\n{of_switch}");
        if self.guests.neighbour.is_some() {
            [NAMES[0], NAMES[2]].iter().for_each(|name| self.card(&mut text, name));
        }
        let [client, router, server] = NAMES;
        let end = match self.path.attach {
            Attach::Embedded | Attach::Mixed | Attach::Netns => "external = true",
            // Each application has two arenas. Many applications share the memory of a few.
            Attach::Iucv => &format!(
                "external = false\napplications_max = {}\narena_bytes = {}",
                self.applications.clamp(APPLICATIONS_DEFAULT, APPLICATIONS_MAX),
                (ARENAS_BYTES / u64::from(self.applications.max(1))).clamp(ARENA_BYTES_LEAST, ARENA_BYTES_DEFAULT)
            ),
        };
        let end =
            |text: &mut String, name: &str, in_namespace: bool, device: (&str, u8, u8), routes: &[(u8, u8, u8)]| {
                if in_namespace {
                    self.port(text, name, device, routes);
                } else {
                    self.guest(text, name, end, &[device], routes);
                }
            };
        let [of_client, of_server] = self.path.attach.in_namespaces();
        if self.path.routed {
            let of_switch = if self.path.attach == Attach::Netns { of_switch } else { "" };
            let _ = writeln!(text, "[network.link]\n{link}\n{of_switch}");
            end(&mut text, client, of_client, ("link", 1, 1), &[(2, 1, 2)]);
            self.guest(&mut text, router, "forwarding = true", &[("link", 1, 2), ("lan", 2, 1)], &[]);
            end(&mut text, server, of_server, ("lan", 2, 2), &[(1, 2, 1)]);
        } else {
            end(&mut text, client, of_client, ("lan", 1, 1), &[]);
            end(&mut text, server, of_server, ("lan", 1, 2), &[]);
        }
        if self.guests.neighbour.is_some() {
            end(&mut text, NEIGHBOURS[0], false, ("lan", 1, 4), &[]);
            end(&mut text, NEIGHBOURS[1], false, ("lan", 1, 5), &[]);
        }
        text
    }

    /// Adds a port for a network namespace to the topology.
    fn port(&self, text: &mut String, name: &str, (network, number, host): (&str, u8, u8), routes: &[(u8, u8, u8)]) {
        let bits = if self.ipv6 { 64 } else { 24 };
        let own = address(self.ipv6, number, host);
        let _ = writeln!(
            text,
            "[[network.{network}.port]]\nname = \"{name}\"\naddresses = [\"{own}/{bits}\"]\nmtu = {}",
            self.mtu
        );
        self.link(text, name);
        for &(to, number, host) in routes {
            let (to, via) = (address(self.ipv6, to, 0), address(self.ipv6, number, host));
            let _ = writeln!(text, "route = [{{ to = \"{to}/{bits}\", via = \"{via}\" }}]");
        }
    }

    /// Returns the key of guests and switches that limits the packets that wait in them, if the level sets it.
    fn backlog(&self) -> String {
        let set = self.sysctl.iter().find(|(name, _)| GuestSetting::of(name) == Some(GuestSetting::Backlog));
        let packets = set.and_then(|(_, value)| value.trim().parse::<u32>().ok());
        packets.map(|packets| format!("netdev_max_backlog = {packets}")).unwrap_or_default()
    }

    /// Adds the modelled link to the server's device or port.
    fn link(&self, text: &mut String, name: &str) {
        if let Some(link) = self.link.as_ref().filter(|_| name == NAMES[2]) {
            let _ = writeln!(text, "link = \"{link}\"");
        }
    }

    /// Returns the address that the second pair's server listens on.
    pub fn neighbour_address(&self) -> IpAddr {
        address(self.ipv6, 1, 5)
    }

    /// Adds the card of an end, which a neighbour shares, to the topology. It has the name of the guest.
    fn card(&self, text: &mut String, name: &str) {
        let _ = writeln!(text, "[[network.lan.card]]\nname = \"{name}\"");
        self.link(text, name);
    }

    /// Adds the output queue of a guest's device, and the card that it shares.
    fn queue(&self, text: &mut String, name: &str) {
        let place = NEIGHBOURS.iter().position(|neighbour| *neighbour == name);
        let own = if place.is_some() { self.guests.neighbour } else { self.guests.priority_queueing };
        if let Some(queueing) = own {
            let _ = writeln!(text, "priority_queueing = \"{queueing}\"");
        }
        if self.guests.neighbour.is_some() {
            let card = place.map_or(name, |place| [NAMES[0], NAMES[2]][place]);
            let _ = writeln!(text, "card = \"{card}\"");
        } else {
            self.link(text, name);
        }
    }

    /// Adds a guest to the topology. Each entry of `devices` has the name of a network, and the network and host number of the
    /// device's address. Each entry of `routes` has the destination network, and the network and host number of the next hop.
    fn guest(&self, text: &mut String, name: &str, kind: &str, devices: &[(&str, u8, u8)], routes: &[(u8, u8, u8)]) {
        let waiting = self.guests.wait(self.wait).name();
        let full = self.guests.full.name();
        let bits = if self.ipv6 { 64 } else { 24 };
        let _ = writeln!(text, "[guest.{name}]\n{kind}\nwaiting = \"{waiting}\"\n{}", self.backlog());
        for (sysctl, value) in &self.sysctl {
            if let Some(GuestSetting::Tcp(setting)) = GuestSetting::of(sysctl) {
                let _ = writeln!(text, "tcp.{setting} = {}", toml::Value::String(value.clone()));
            }
        }
        for &(network, number, host) in devices {
            let own = address(self.ipv6, number, host);
            let _ = writeln!(
                text,
                "[[guest.{name}.device]]\nname = \"{network}\"\nnetwork = \"{network}\"\naddresses = [\"{own}/{bits}\"]\nmtu = {}\nfull = \"{full}\"",
                self.mtu
            );
            if let Some(buffers) = self.guests.buffer_count {
                let _ = writeln!(text, "buffer_count = {buffers}");
            }
            self.queue(text, name);
        }
        for &(to, number, host) in routes {
            let (to, via) = (address(self.ipv6, to, 0), address(self.ipv6, number, host));
            let _ = writeln!(text, "[[guest.{name}.route]]\nto = \"{to}/{bits}\"\nvia = \"{via}\"");
        }
    }
}

/// Returns an address of the blocks that are reserved for benchmarks: 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC 5180).
pub fn address(ipv6: bool, network: u8, host: u8) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0x2001, 2, 0, network.into(), 0, 0, 0, host.into()).into()
    } else {
        Ipv4Addr::new(198, 18, network, host).into()
    }
}

#[cfg(test)]
mod tests;
