//! How the packets of a socket behave on paths whose MTU is smaller than the packet.

/// What a socket does to find the MTU of its paths (`IP_MTU_DISCOVER` and `IPV6_MTU_DISCOVER` of Linux). A datagram that is neither
/// fragmented nor short enough is refused with [`UdpError::TooLarge`](crate::udp::UdpError::TooLarge).
///
/// TCP never fragments its own segments, because their size follows the MTU. For a connection, [`Want`](Self::Want) and
/// [`Do`](Self::Do) are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MtuDiscovery {
    /// Datagrams are fragmented for the known MTU of the path, and routers may fragment them (`IP_PMTUDISC_DONT`).
    #[default]
    Dont,
    /// Datagrams are fragmented for the known MTU of the path, and routers must not fragment shorter ones (`IP_PMTUDISC_WANT`).
    Want,
    /// Datagrams are not fragmented. Their length is limited by the known MTU of the path (`IP_PMTUDISC_DO`).
    Do,
    /// Datagrams are not fragmented. Their length is limited by the MTU of the device only (`IP_PMTUDISC_PROBE`), so that an application
    /// can search for the MTU of the path itself.
    Probe,
    /// This stack does not fragment datagrams, but routers may. Their length is limited by the MTU of the device only
    /// (`IP_PMTUDISC_INTERFACE`).
    Interface,
}

impl MtuDiscovery {
    /// Whether this stack fragments datagrams that are too long.
    pub(crate) fn fragments(self) -> bool {
        matches!(self, Self::Dont | Self::Want)
    }

    /// Whether the MTU that routers reported limits datagrams.
    pub(crate) fn uses_path_mtu(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Do)
    }

    /// Whether the MTU that routers reported limits the segments of a TCP connection. If routers may fragment the segments, they need
    /// not report it. Routers never fragment packets of IPv6.
    pub(crate) fn limits_segments(self, is_ipv4: bool) -> bool {
        match self {
            Self::Want | Self::Do => true,
            Self::Dont => !is_ipv4,
            Self::Probe | Self::Interface => false,
        }
    }

    /// Whether routers must not fragment datagrams that this stack does not fragment.
    pub(crate) fn forbids_fragments(self) -> bool {
        matches!(self, Self::Want | Self::Do | Self::Probe)
    }
}
