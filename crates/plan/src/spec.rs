//! Specifications of paths: what siga has to build for a cell. They are checked before anything is built.

use crate::kernel_setting::{check_congestion, check_sysctl};
use crate::level::frame::Frame;
use crate::level::{Guests, Level};
use crate::path::PathKind;
use crate::path::guest::{Attach, GuestPath, Medium, NAMES};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::limits::{APPLICATIONS_DEFAULT, APPLICATIONS_MAX, ARENA_BYTES_DEFAULT};
use siga_model::link::Link;
use siga_model::waiting::Waiting;
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
            .filter(|name| !matches!(*name, "mtu" | "congestion" | "guests" | "link" | "build"))
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
        level.foreign_congestion()
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
        let of_switch = if self.path.medium.is_switched() { waiting.as_str() } else { "" };
        let _ = writeln!(text, "[network.lan]\n{medium}\n{of_switch}");
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

    /// Adds the modelled link to the server's device or port.
    fn link(&self, text: &mut String, name: &str) {
        if let Some(link) = self.link.as_ref().filter(|_| name == NAMES[2]) {
            let _ = writeln!(text, "link = \"{link}\"");
        }
    }

    /// Adds a guest to the topology. Each entry of `devices` has the name of a network, and the network and host number of the
    /// device's address. Each entry of `routes` has the destination network, and the network and host number of the next hop.
    fn guest(&self, text: &mut String, name: &str, kind: &str, devices: &[(&str, u8, u8)], routes: &[(u8, u8, u8)]) {
        let waiting = self.guests.wait(self.wait).name();
        let full = self.guests.full.name();
        let bits = if self.ipv6 { 64 } else { 24 };
        let _ = writeln!(text, "[guest.{name}]\n{kind}\nwaiting = \"{waiting}\"");
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
            self.link(text, name);
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
mod tests {
    use super::*;
    use crate::qdisc::Qdisc;
    use siga_model::topology::Topology;

    fn check(change: impl FnOnce(&mut PathSpec)) -> Result<()> {
        let mut spec = PathSpec { kind: PathKind::Veth, mtu: None, ipv6: false, level: Level::plain() };
        change(&mut spec);
        spec.check()
    }

    fn check_sysctl(name: &str, value: &str) -> Result<()> {
        check(|spec| spec.level.sysctl = [(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn a_spec_without_mtu_has_its_types_frames() {
        let spec = |kind| PathSpec { kind, mtu: None, ipv6: false, level: Level::plain() };
        assert_eq!(spec(PathKind::Loopback).frame_mtu(), Some(65_536));
        assert_eq!(spec(PathKind::Unix).frame_mtu(), None);
    }

    #[test]
    fn unix_takes_neither_mtu_nor_ipv6() {
        assert!(check(|spec| spec.kind = PathKind::Unix).is_ok());
        assert!(check(|spec| (spec.kind, spec.mtu) = (PathKind::Unix, Some(1_500))).is_err());
        assert!(check(|spec| (spec.kind, spec.ipv6) = (PathKind::Unix, true)).is_err());
    }

    #[test]
    fn a_spec_has_the_mtu_of_its_level_and_no_other() {
        let level = || Level { mtu: Some(8_992), ..Level::plain() };
        let spec = PathSpec { kind: PathKind::Veth, mtu: None, ipv6: false, level: level() };
        assert_eq!(spec.frame_mtu(), Some(8_992));
        assert!(check(|spec| (spec.mtu, spec.level) = (Some(8_992), level())).is_ok());
        assert!(check(|spec| (spec.mtu, spec.level) = (Some(1_500), level())).is_err());
        assert!(check(|spec| spec.level.mtu = Some(65_536)).is_err());
    }

    #[test]
    fn a_path_refuses_a_level_that_it_cannot_have() {
        let ruleset = || Level { nftables: Some("flush ruleset".into()), ..Level::plain() };
        let jumbo = || Level { mtu: Some(8_992), ..Level::plain() };
        let queued = || Level { qdisc: Some(Qdisc::Fq), ..Level::plain() };
        for kind in PathKind::ALL {
            let filters = !matches!(kind, PathKind::Unix | PathKind::SmcLoopback | PathKind::Sockmap);
            assert_eq!(check(|spec| (spec.kind, spec.level) = (kind, ruleset())).is_ok(), filters, "{kind}");
            assert_eq!(check(|spec| (spec.kind, spec.level) = (kind, queued())).is_ok(), filters, "{kind}");
            assert_eq!(
                check(|spec| (spec.kind, spec.level) = (kind, jumbo())).is_ok(),
                !matches!(kind, PathKind::Unix | PathKind::SmcLoopback),
                "{kind}"
            );
        }
    }

    #[test]
    fn sysctl_names_cannot_leave_the_network_part() {
        assert!(check_sysctl("net.ipv4.conf.siga-c.rp_filter", "1").is_ok());
        for name in ["kernel.panic", "net", "net.", "net..ipv4", "net.ipv4/../../kernel/panic", "net.ipv4.tcp_rmem\n"] {
            let error = check_sysctl(name, "1").unwrap_err();
            assert_eq!(error.kind(), siga_model::error::ErrorKind::Usage, "{name}");
        }
    }

    #[test]
    fn sysctl_values_are_one_line() {
        assert!(check_sysctl("net.ipv4.tcp_rmem", "4096\t65536 1000000").is_ok());
        assert!(check_sysctl("net.ipv4.tcp_sack", "").is_err());
        assert!(check_sysctl("net.ipv4.tcp_sack", "1\n0").is_err());
    }

    #[test]
    fn congestion_control_is_chosen_by_its_own_setting() {
        let error = check_sysctl("net.ipv4.tcp_congestion_control", "reno").unwrap_err();
        assert!(error.to_string().contains("congestion = "), "{error}");
        assert!(check(|spec| spec.level.congestion = Some("reno".into())).is_ok());
        for name in ["", "two words", "longer-than-the-kernel-takes"] {
            assert!(check(|spec| spec.level.congestion = Some(name.into())).is_err(), "{name}");
        }
    }

    #[test]
    fn every_path_has_a_topology_that_holds_at_each_end_of_its_range() {
        for path in GuestPath::ALL {
            assert_eq!(path.name().parse::<GuestPath>().unwrap(), path);
            for ipv6 in [false, true] {
                if ipv6 && path.medium.carries_only_v4() {
                    continue;
                }
                let (least, most) = path.mtu_range(ipv6);
                assert!((least..=most).contains(&path.mtu_default()));
                for mtu in [least, 1_500, most] {
                    let link = path.medium.takes_links().then(|| "latency=1ms".parse().unwrap());
                    let (wait, guests) = (Waiting::Poll, Guests::default());
                    let spec = GuestSpec { path, mtu: mtu.min(57_344), ipv6, wait, guests, link, applications: 1 };
                    let links = spec.topology().matches("link = \"latency=1ms\"").count();
                    assert_eq!(links, usize::from(spec.link.is_some()), "only the server has a link");
                    let topology = Topology::parse(&spec.topology()).unwrap();
                    assert!(topology.guests.values().all(|guest| guest.waiting == Waiting::Poll), "also switches");
                    let guests: Vec<_> = topology.guests.values().filter(|guest| !guest.is_switch).collect();
                    let switches = topology.networks.values().filter_map(|network| network.switch.as_ref());
                    let ports: Vec<_> = switches.flat_map(|switch| &switch.ports).collect();
                    assert_eq!(guests.len() + ports.len(), if path.routed { 3 } else { 2 });
                    assert!(ports.iter().all(|port| u32::from(port.mtu) == spec.mtu && port.addresses.len() == 1));
                    let inside = path.attach.in_namespaces().into_iter().filter(|inside| *inside).count();
                    assert_eq!(ports.len(), inside);
                    let external = guests.iter().filter(|guest| guest.external).count();
                    assert_eq!(external, if path.attach == Attach::Iucv { 0 } else { 2 - inside });
                }
            }
        }
    }
}
