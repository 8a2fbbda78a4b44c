//! Paths over siga's own network: which there are, what they take, and the topology of each.
//!
//! The way between client and server is one network, or that of Figure 1: a virtual CTC to a router, and from there the
//! network that the path is named after. Client and server are processes of the laboratory: guests with a stack in them
//! (`embedded`), or applications of guests that are processes of their own (`iucv`).

use super::PathKind;
use crate::level::{Guests, Level};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::waiting::Waiting;
use std::fmt;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The guests' names, as z/VM's reports have them: client, router, server.
pub const NAMES: [&str; 3] = ["tcpip1", "tcpip2", "tcpip3"];

/// What joins the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// HiperSockets with frames of 64 KB.
    Hipersockets,
    /// A virtual CTC with blocks of 65,535 bytes.
    Vctc,
}

/// How client and server get at their stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// The stack is in the process of the driver.
    Embedded,
    /// The stack is a guest's, a process of its own that the driver's shares memory with.
    Iucv,
}

impl Attach {
    /// The word for it in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Iucv => "iucv",
        }
    }
}

/// A path over siga's own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestPath {
    /// The network that the server is on.
    pub medium: Medium,
    /// The client is on another, and a guest routes.
    pub routed: bool,
    /// How client and server get at their stacks.
    pub attach: Attach,
}

impl GuestPath {
    /// All of them, in the order of help texts.
    pub const ALL: [Self; 8] = [
        Self { medium: Medium::Hipersockets, routed: false, attach: Attach::Embedded },
        Self { medium: Medium::Hipersockets, routed: true, attach: Attach::Embedded },
        Self { medium: Medium::Vctc, routed: false, attach: Attach::Embedded },
        Self { medium: Medium::Vctc, routed: true, attach: Attach::Embedded },
        Self { medium: Medium::Hipersockets, routed: false, attach: Attach::Iucv },
        Self { medium: Medium::Hipersockets, routed: true, attach: Attach::Iucv },
        Self { medium: Medium::Vctc, routed: false, attach: Attach::Iucv },
        Self { medium: Medium::Vctc, routed: true, attach: Attach::Iucv },
    ];

    /// The MTU when none is asked for: the largest that every network here takes.
    pub const MTU_DEFAULT: u32 = 57_344;

    /// The name used on the command line and in plans.
    pub fn name(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Hipersockets, false, Attach::Embedded) => "hipersockets",
            (Medium::Hipersockets, true, Attach::Embedded) => "hipersockets-routed",
            (Medium::Vctc, false, Attach::Embedded) => "vctc",
            (Medium::Vctc, true, Attach::Embedded) => "vctc-routed",
            (Medium::Hipersockets, false, Attach::Iucv) => "hipersockets-iucv",
            (Medium::Hipersockets, true, Attach::Iucv) => "hipersockets-routed-iucv",
            (Medium::Vctc, false, Attach::Iucv) => "vctc-iucv",
            (Medium::Vctc, true, Attach::Iucv) => "vctc-routed-iucv",
        }
    }

    /// One line for help texts.
    pub fn about(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Hipersockets, false, Attach::Embedded) => "siga: two guests on one HiperSockets network",
            (Medium::Hipersockets, true, Attach::Embedded) => {
                "siga: client, virtual CTC, router, HiperSockets, server (Figure 1)"
            }
            (Medium::Vctc, false, Attach::Embedded) => "siga: two guests joined by a virtual CTC",
            (Medium::Vctc, true, Attach::Embedded) => "siga: client, virtual CTC, router, virtual CTC, server",
            (Medium::Hipersockets, false, Attach::Iucv) => "siga: applications of two guests on HiperSockets",
            (Medium::Hipersockets, true, Attach::Iucv) => "siga: Figure 1, its applications over IUCV",
            (Medium::Vctc, false, Attach::Iucv) => "siga: applications of two guests joined by a virtual CTC",
            (Medium::Vctc, true, Attach::Iucv) => "siga: applications of two guests behind virtual CTCs and a router",
        }
    }

    /// Smallest and largest MTU it takes.
    pub fn mtu_range(self, ipv6: bool) -> (u32, u32) {
        let least = if ipv6 { 1_280 } else { 576 };
        match self.medium {
            Medium::Hipersockets => (least, 57_344),
            Medium::Vctc => (least, 65_527),
        }
    }

    /// What a level sets that there is not here, as a reason for not building it; `None` if it has all.
    pub fn lacks(self, level: &Level) -> Option<String> {
        let of_kernel: Vec<_> =
            level.settings().into_iter().filter(|name| !matches!(*name, "mtu" | "congestion" | "guests")).collect();
        if !of_kernel.is_empty() {
            return Some(format!("level {} sets {} of the kernel's networks", level.name, of_kernel.join(", ")));
        }
        match level.congestion.as_deref() {
            None | Some("cubic" | "reno") => None,
            Some(other) => Some(format!("level {} asks for {other}, and siga's stack has cubic and reno", level.name)),
        }
    }

    /// The kernel's path that leads through as many nodes.
    pub fn of_kernel(self) -> PathKind {
        if self.routed { PathKind::VethRouted } else { PathKind::Veth }
    }

    /// The path that differs from this one only by the absence of the router.
    pub fn without_router(self) -> Option<Self> {
        self.routed.then_some(Self { routed: false, ..self })
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for GuestPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|path| path.name() == text);
        found.ok_or_else(|| Error::usage(format!("unknown path `{text}`")))
    }
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestSpec {
    /// The path.
    pub path: GuestPath,
    /// MTU of every device.
    pub mtu: u32,
    /// Addresses of the path are IPv6.
    pub ipv6: bool,
    /// How every guest waits for traffic, if the level says nothing else.
    pub wait: Waiting,
    /// What the level sets on every guest.
    pub guests: Guests,
}

impl GuestSpec {
    /// Address of the client.
    pub fn client_address(&self) -> IpAddr {
        address(self.ipv6, 1, 1)
    }

    /// The address the server listens on.
    pub fn server_address(&self) -> IpAddr {
        if self.path.routed { address(self.ipv6, 2, 2) } else { address(self.ipv6, 1, 2) }
    }

    /// The topology's text.
    pub fn topology(&self) -> String {
        let medium = match self.path.medium {
            Medium::Hipersockets => "type = \"hipersockets\"\nframe = \"64K\"",
            Medium::Vctc => "type = \"vctc\"\nbuffer = 65535",
        };
        let mut text = String::from("[driver]\n");
        for (feature, is_on) in self.guests.driver.features() {
            let _ = writeln!(text, "{feature} = {is_on}");
        }
        let _ = writeln!(text, "[network.lan]\n{medium}");
        let [client, router, server] = NAMES;
        let end = match self.path.attach {
            Attach::Embedded => "external = true",
            Attach::Iucv => "external = false",
        };
        if self.path.routed {
            text += "[network.link]\ntype = \"vctc\"\nbuffer = 65535\n";
            self.guest(&mut text, client, end, &[("link", 1, 1)], &[(2, 1, 2)]);
            self.guest(&mut text, router, "forwarding = true", &[("link", 1, 2), ("lan", 2, 1)], &[]);
            self.guest(&mut text, server, end, &[("lan", 2, 2)], &[(1, 2, 1)]);
        } else {
            self.guest(&mut text, client, end, &[("lan", 1, 1)], &[]);
            self.guest(&mut text, server, end, &[("lan", 1, 2)], &[]);
        }
        text
    }

    /// Adds a guest with devices (network, and the two numbers of its address) and routes (to a network by a host).
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
        }
        for &(to, number, host) in routes {
            let (to, via) = (address(self.ipv6, to, 0), address(self.ipv6, number, host));
            let _ = writeln!(text, "[[guest.{name}.route]]\nto = \"{to}/{bits}\"\nvia = \"{via}\"");
        }
    }
}

/// An address of the blocks set aside for benchmarks: 198.18.0.0/15 (RFC 2544), 2001:2::/48 (RFC 5180).
fn address(ipv6: bool, network: u8, host: u8) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0x2001, 2, 0, network.into(), 0, 0, 0, host.into()).into()
    } else {
        Ipv4Addr::new(198, 18, network, host).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_model::topology::Topology;

    #[test]
    fn every_path_has_a_topology_that_holds_at_each_end_of_its_range() {
        for path in GuestPath::ALL {
            assert_eq!(path.name().parse::<GuestPath>().unwrap(), path);
            for ipv6 in [false, true] {
                let (least, most) = path.mtu_range(ipv6);
                assert!((least..=most).contains(&GuestPath::MTU_DEFAULT));
                for mtu in [least, 1_500, most] {
                    let spec =
                        GuestSpec { path, mtu: mtu.min(57_344), ipv6, wait: Waiting::Poll, guests: Guests::default() };
                    let topology = Topology::parse(&spec.topology()).unwrap();
                    assert_eq!(topology.guests.len(), if path.routed { 3 } else { 2 });
                    assert!(topology.guests.values().all(|guest| guest.waiting == Waiting::Poll));
                    let external = topology.guests.values().filter(|guest| guest.external).count();
                    assert_eq!(external, if path.attach == Attach::Embedded { 2 } else { 0 });
                }
            }
        }
    }
}
