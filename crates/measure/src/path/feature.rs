//! Features of the kernel that decide which paths and levels can be measured: interface types, queueing disciplines, IPsec, SMC.
//!
//! Each feature is tried once in a new network namespace of its own, which vanishes afterwards. If a feature is a module, the kernel may load
//! the module for the attempt, as it does for a path. The module then stays loaded.

use super::namespace::{Node, NodeKind, gain_privilege};
use super::netlink::{Netlink, Requests as _};
use crate::socket::smc;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, InfoVlan, LinkAttribute, LinkInfo, LinkMessage};
use rustix::net::netlink::XFRM;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

/// A feature of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Feature {
    /// Interfaces that consist of several others (bonding).
    Bonding,
    /// Interfaces for tagged frames (VLAN, 802.1Q).
    Vlan,
    /// The queueing discipline netem, which delays and drops packets.
    Netem,
    /// The queueing discipline fq, which paces each flow.
    Fq,
    /// IPsec's ESP over IPv4, with AES-GCM.
    Esp4,
    /// IPsec's ESP over IPv6, with AES-GCM.
    Esp6,
    /// Sockets of SMC (shared memory communications).
    Smc,
    /// TAP devices, by which network namespaces join virtual switches.
    Tap,
}

impl Feature {
    pub(crate) const ALL: [Self; 8] =
        [Self::Bonding, Self::Vlan, Self::Netem, Self::Fq, Self::Esp4, Self::Esp6, Self::Smc, Self::Tap];

    /// Returns the name of the kernel module that contains the feature.
    pub(crate) fn module(self) -> &'static str {
        match self {
            Self::Bonding => "bonding",
            Self::Vlan => "8021q",
            Self::Netem => "sch_netem",
            Self::Fq => "sch_fq",
            Self::Esp4 => "esp4",
            Self::Esp6 => "esp6",
            Self::Smc => "smc",
            Self::Tap => "tun",
        }
    }

    /// Uses the feature in the namespace of `netlink`, which is also that of the calling thread.
    fn try_in(self, netlink: &mut Netlink) -> io::Result<()> {
        /// Index of the interface lo in every namespace.
        const LO: i32 = 1;
        match self {
            Self::Bonding => netlink.create_link(link("siga-bond", InfoKind::Bond, None)),
            Self::Vlan => {
                let peer = InfoData::Veth(InfoVeth::Peer(named("siga-s")));
                netlink.create_link(link("siga-c", InfoKind::Veth, Some(peer)))?;
                let parent = rustix::net::netdevice::name_to_index(inet()?, "siga-c")?;
                let mut vlan = link("siga-vlan", InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(2)])));
                vlan.attributes.push(LinkAttribute::Link(parent));
                netlink.create_link(vlan)
            }
            // The options of netem are six words (tc_netem_qopt). The second one is the maximum number of queued packets.
            Self::Netem => {
                let options = [0_u32, 1_000, 0, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
                netlink.add_qdisc(LO, "netem", Some(options))
            }
            Self::Fq => netlink.add_qdisc(LO, "fq", None),
            Self::Esp4 => add_security_association(AddressFamily::INET),
            Self::Esp6 => add_security_association(AddressFamily::INET6),
            Self::Smc => {
                let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
                smc::socket(&any, SocketFlags::CLOEXEC).map(drop).map_err(Into::into)
            }
            // `attempt` makes the device itself, because the error has advice.
            Self::Tap => Ok(()),
        }
    }
}

/// Tries a feature in a new namespace.
///
/// # Errors
/// Returns an error of kind `Environment` if the namespace cannot be made, or if the kernel refuses the feature.
pub(super) fn attempt(feature: Feature) -> Result<()> {
    gain_privilege()?;
    let mut node = Node::create(NodeKind::Shared)?;
    if feature == Feature::Tap {
        return siga_fabric::join::try_device();
    }
    let advice = || format!("load the module (`modprobe {0}`), or use a kernel with this module", feature.module());
    feature.try_in(&mut node.netlink).map_err(|error| Error::environment(refusal(feature, &error)).hint(advice()))
}

/// Returns the kernel's refusal in words. The name of the module stands before them.
fn refusal(feature: Feature, error: &io::Error) -> String {
    let unknown = match feature {
        Feature::Bonding | Feature::Vlan => libc::EOPNOTSUPP,
        Feature::Netem | Feature::Fq => libc::ENOENT,
        Feature::Esp4 | Feature::Esp6 => libc::EPROTONOSUPPORT,
        Feature::Smc => libc::EAFNOSUPPORT,
        Feature::Tap => libc::ENODEV,
    };
    match error.raw_os_error() {
        Some(libc::ENOSYS) if matches!(feature, Feature::Esp4 | Feature::Esp6) => {
            "this kernel does not support AES-GCM (module gcm), or lacks the module".to_owned()
        }
        Some(errno) if errno == unknown => "this kernel lacks the module".to_owned(),
        Some(_) | None => format!("the kernel refuses this feature: {error}"),
    }
}

fn named(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

fn link(name: &str, kind: InfoKind, data: Option<InfoData>) -> LinkMessage {
    let mut message = named(name);
    let info = std::iter::once(LinkInfo::Kind(kind)).chain(data.map(LinkInfo::Data));
    message.attributes.push(LinkAttribute::LinkInfo(info.collect()));
    message
}

fn inet() -> io::Result<std::os::fd::OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Adds a security association of ESP in transport mode with AES-GCM (RFC 4106), in the calling thread's network namespace.
fn add_security_association(family: AddressFamily) -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(XFRM))?;
    send(&socket, &new_association(family), SendFlags::empty())?;
    let mut answer = [0_u8; 4_096];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // The answer is an acknowledgement: a header of 16 bytes, then the negative errno or 0.
    let error = answer[..length].get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("malformed netlink answer")),
    }
}

/// Returns the request XFRM_MSG_NEWSA: a header, the structure xfrm_usersa_info, and the attribute with algorithm and key.
fn new_association(family: AddressFamily) -> Vec<u8> {
    const XFRM_MSG_NEWSA: u16 = 0x10;
    const REQUEST_ACK_CREATE: u16 = 0x1 | 0x4 | 0x400;
    const XFRMA_ALG_AEAD: u16 = 18;
    /// Number of the protocol ESP in IP headers.
    const ESP: u8 = 50;
    /// Length of the key: 128 bits for AES, and a salt of 32 bits.
    const KEY_BYTES: usize = 20;
    const KEY_BITS: u32 = 160;
    /// Length of the integrity check value in bits.
    const ICV_BITS: u32 = 128;

    let mut info = [0_u8; 224];
    let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
    // Offsets in xfrm_usersa_info. The address ends in 1, so that it is not the unspecified address.
    put(56, &[192, 0, 2, 1]);
    put(72, &256_u32.to_be_bytes());
    put(76, &[ESP]);
    put(212, &family.as_raw().to_ne_bytes());

    // The structure xfrm_algo_aead, with a key of zeros, because no packet uses the association.
    let mut algorithm = [0_u8; 64 + 4 + 4 + KEY_BYTES];
    let name = b"rfc4106(gcm(aes))";
    algorithm[..name.len()].copy_from_slice(name);
    algorithm[64..68].copy_from_slice(&KEY_BITS.to_ne_bytes());
    algorithm[68..72].copy_from_slice(&ICV_BITS.to_ne_bytes());

    const HEADER_BYTES: usize = 16;
    const ATTRIBUTE_BYTES: u16 = 4 + 64 + 4 + 4 + 20;
    let length = HEADER_BYTES + info.len() + usize::from(ATTRIBUTE_BYTES);
    let mut message = u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes().to_vec();
    message.extend(XFRM_MSG_NEWSA.to_ne_bytes());
    message.extend(REQUEST_ACK_CREATE.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(info);
    message.extend(ATTRIBUTE_BYTES.to_ne_bytes());
    message.extend(XFRMA_ALG_AEAD.to_ne_bytes());
    message.extend(algorithm);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whether_the_kernel_lacks_the_feature() {
        let of = |feature, errno| refusal(feature, &io::Error::from_raw_os_error(errno));
        assert_eq!(of(Feature::Netem, libc::ENOENT), "this kernel lacks the module");
        assert_eq!(of(Feature::Bonding, libc::EOPNOTSUPP), "this kernel lacks the module");
        assert_eq!(of(Feature::Esp6, libc::EPROTONOSUPPORT), "this kernel lacks the module");
        assert!(of(Feature::Esp4, libc::ENOSYS).starts_with("this kernel does not support AES-GCM"));
        assert!(
            of(Feature::Netem, libc::EPERM).starts_with("the kernel refuses this feature: Operation not permitted")
        );
    }
}
