//! Why packets are dropped. One enum per layer serves as the error, the counter's key and the label.

use std::fmt;

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$case_doc])* $case,)*
        }

        impl $name {
            /// All reasons of this layer.
            pub const ALL: &[Self] = &[$(Self::$case,)*];

            /// The reason in a few words.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$case => $label,)*
                }
            }
        }
    };
}

reasons! {
    /// Drops by devices and by the checks of a frame's link header.
    LinkDrop {
        /// The stack has no such device.
        NoDevice = "no such device",
        /// The frame ends inside its link header, or exceeds the MTU.
        Length = "bad frame length",
        /// It is neither IPv4 nor IPv6 nor ARP.
        Protocol = "unknown protocol",
        /// Sent to another station.
        OtherStation = "for another station",
        /// The link did not agree to its marks, or they do not fit the packet.
        Marks = "bad marks",
        /// The device's queue is full.
        QueueFull = "transmit queue full",
    }
}

reasons! {
    /// Drops by address resolution.
    NeighbourDrop {
        /// An ARP packet or a neighbour message against its format or RFC 4861 7.1.
        Malformed = "malformed",
        /// It asks about an address of another station.
        NotOurs = "not about us",
        /// It claims an address of this stack.
        OurAddress = "claims our address",
        /// It announces an address that the source filter of the link refuses.
        Refused = "address not allowed",
        /// It answers no request, and the neighbour is not known.
        Unasked = "unasked",
        /// The table of neighbours is full.
        TableFull = "table full",
        /// Too many packets wait for this neighbour, or for all.
        QueueFull = "queue full",
        /// The neighbour did not answer.
        Silent = "no answer",
    }
}

reasons! {
    /// Drops by IPv4 and IPv6.
    IpDrop {
        /// The packet ends inside a header, or a length field exceeds the packet.
        Length = "bad length",
        /// The version does not fit the frame.
        Version = "bad version",
        /// The header's checksum is wrong.
        Checksum = "bad header checksum",
        /// Bad options or extension headers.
        Options = "bad options",
        /// A source route (RFC 7126 4.3 and 4.4, RFC 5095).
        SourceRoute = "source route",
        /// A source that no packet may have.
        SourceMartian = "martian source",
        /// The source filter of the link refuses the source.
        SourceRefused = "source not allowed",
        /// The route back to the source leads over another device.
        SourceElsewhere = "source of another link",
        /// A destination that no packet may have, or that routers do not forward to.
        DestinationMartian = "martian destination",
        /// No socket of this stack joined the group.
        NotJoined = "group not joined",
        /// It is for another host, and this stack does not forward.
        NotForUs = "not for us",
        /// A broadcast of a network or of the link is not forwarded.
        Broadcast = "broadcast not forwarded",
        /// The hop limit reached zero.
        HopLimit = "hop limit",
        /// There is no route, or no own address of that IP version.
        NoRoute = "no route",
        /// It exceeds the next link's MTU and may not be fragmented.
        TooBig = "too big",
        /// The stack does not implement the transport protocol.
        Protocol = "unknown protocol",
    }
}

reasons! {
    /// Drops by reassembly.
    FragmentDrop {
        /// The length is not a multiple of 8, or the fragment ends beyond the largest datagram.
        Malformed = "malformed",
        /// It overlaps another; its whole datagram is dropped (RFC 5722).
        Overlap = "overlap",
        /// The fragment is already there.
        Duplicate = "duplicate",
        /// Its datagram was dropped before.
        Late = "of a dropped datagram",
        /// The datagram has too many fragments, or was evicted to make room for this one.
        Full = "full",
        /// An incomplete datagram was evicted for another: the oldest one of the source that held most.
        Evicted = "evicted",
        /// The rest of the datagram did not arrive in time.
        Timeout = "timeout",
    }
}

reasons! {
    /// Drops by ICMP and ICMPv6.
    IcmpDrop {
        /// Too short.
        Length = "bad length",
        /// The checksum is wrong.
        Checksum = "bad checksum",
        /// A type that this stack ignores, redirects included.
        Ignored = "ignored type",
        /// An echo request to a broadcast or IPv4 multicast address (RFC 1122 3.2.2.6).
        EchoToMany = "echo to many",
        /// An error that quotes no packet of this stack.
        Quote = "quotes nothing of ours",
        /// An error message is not sent because of the rate limit.
        RateLimit = "rate limit",
        /// An error message is not sent: RFC 1122 3.2.2 and RFC 4443 2.4 (e) forbid one about such a packet.
        Forbidden = "no error about this",
    }
}

reasons! {
    /// Drops by UDP.
    UdpDrop {
        /// It is too short, or its length field exceeds the packet.
        Length = "bad length",
        /// The checksum is wrong, or missing over IPv6.
        Checksum = "bad checksum",
        /// The destination port is 0.
        Port = "port 0",
        /// No socket has the port.
        NoSocket = "no socket",
        /// The socket's queue is full.
        QueueFull = "receive queue full",
    }
}

reasons! {
    /// Drops by TCP, of a segment or a part of it.
    TcpDrop {
        /// Fewer bytes than the shortest header.
        Truncated = "truncated",
        /// The data offset points into the fixed header or past the end.
        BadOffset = "bad data offset",
        /// An option's length is less than 2 or exceeds the header.
        BadOption = "bad option",
        /// The checksum is wrong.
        Checksum = "bad checksum",
        /// Port 0.
        Port = "port 0",
        /// The destination is a group, or the frame was sent to several stations.
        ToGroup = "to a group",
        /// No connection and no listener matches; answered by a reset where one is allowed.
        NoConnection = "no connection",
        /// Too many connections wait to be accepted.
        BacklogFull = "backlog full",
        /// The buffers have reached their limit.
        Memory = "buffers full",
        /// While the connection opens, it acknowledges a number that was never sent.
        AckUnacceptable = "unacceptable acknowledgement",
        /// It acknowledges a number that was never sent.
        AckUnsent = "acknowledges what was not sent",
        /// Its acknowledgement is more than a window before SND.UNA.
        AckOld = "old acknowledgement",
        /// It has no acknowledgement.
        NoAck = "no acknowledgement",
        /// Neither a SYN nor a reset, where a SYN has to begin the connection.
        NoSyn = "no SYN",
        /// A SYN for a connection that exists.
        SynInWindow = "SYN in a connection",
        /// A reset whose sequence number does not prove that the peer sent it.
        ResetBlind = "blind reset",
        /// A reset in TIME-WAIT (RFC 1337).
        ResetInTimeWait = "reset in TIME-WAIT",
        /// Outside the window.
        OutOfWindow = "out of window",
        /// Its timestamp is older than one already seen (PAWS).
        TimestampOld = "old timestamp",
        /// It has no timestamp although both sides agreed to send them.
        TimestampMissing = "timestamp missing",
        /// All its bytes were received before.
        Duplicate = "duplicate",
        /// The window is full.
        WindowFull = "window full",
        /// There are too many gaps.
        GapLimit = "too many gaps",
        /// Data or a FIN after the peer's FIN.
        AfterFin = "behind the FIN",
        /// The connection is closed.
        Closed = "closed",
        /// An ICMP error about a segment that is not outstanding (RFC 5927).
        IcmpNotOutstanding = "ICMP about nothing outstanding",
    }
}

reasons! {
    /// Drops by group membership: IGMP and MLD.
    GroupDrop {
        /// Too short, a length that no version has, or fewer sources than announced.
        Length = "bad length",
        /// The checksum is wrong.
        Checksum = "bad checksum",
        /// The hop limit is not 1, so it may come from beyond the link.
        HopLimit = "hop limit not 1",
        /// The source is no link-local address.
        Source = "bad source",
        /// A query without a router alert.
        RouterAlert = "no router alert",
        /// It names no group, a report's group is not its destination, or a query has sources without a group.
        Address = "bad group",
        /// Another station reports a group that no socket of this stack joined.
        NotJoined = "group not joined",
        /// A message for routers, or of an unknown type.
        Ignored = "ignored type",
    }
}

macro_rules! layers {
    ($($(#[$doc:meta])* $layer:ident($name:ident) $field:ident = $label:literal,)*) => {
        /// Why a packet was dropped, in any layer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum DropReason {
            $($(#[$doc])* $layer($name),)*
        }

        $(impl From<$name> for DropReason {
            fn from(reason: $name) -> Self {
                Self::$layer(reason)
            }
        })*

        impl fmt::Display for DropReason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$layer(reason) => write!(f, "{}: {}", $label, reason.label()),)*
                }
            }
        }

        /// Packets dropped, by reason.
        #[derive(Debug, Clone, Default)]
        pub struct Drops {
            $($field: [u64; $name::ALL.len()],)*
        }

        impl Drops {
            /// Packets dropped for this reason.
            pub fn get(&self, reason: impl Into<DropReason>) -> u64 {
                match reason.into() {
                    $(DropReason::$layer(reason) => self.$field[reason as usize],)*
                }
            }

            /// Every reason with its count.
            pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
                std::iter::empty()$(.chain($name::ALL.iter().map(|&reason| (reason.into(), self.$field[reason as usize]))))*
            }

            pub(crate) fn count(&mut self, reason: impl Into<DropReason>) {
                match reason.into() {
                    $(DropReason::$layer(reason) => self.$field[reason as usize] += 1,)*
                }
            }
        }
    };
}

layers! {
    /// By a device.
    Link(LinkDrop) link = "link",
    /// By address resolution.
    Neighbour(NeighbourDrop) neighbour = "neighbour",
    /// By IPv4 or IPv6.
    Ip(IpDrop) ip = "ip",
    /// By reassembly.
    Fragment(FragmentDrop) fragment = "fragment",
    /// By ICMP or ICMPv6.
    Icmp(IcmpDrop) icmp = "icmp",
    /// By IGMP or MLD.
    Group(GroupDrop) group = "group",
    /// By UDP.
    Udp(UdpDrop) udp = "udp",
    /// By TCP.
    Tcp(TcpDrop) tcp = "tcp",
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_drop_reason_has_its_own_counter_and_label() {
        let mut drops = Drops::default();
        let all: Vec<DropReason> = drops.iter().map(|(reason, _)| reason).collect();
        for (n, reason) in all.iter().enumerate() {
            (0..=n).for_each(|_| drops.count(*reason));
        }
        assert!(all.iter().enumerate().all(|(n, reason)| drops.get(*reason) == n as u64 + 1));
        assert_eq!(all.iter().map(ToString::to_string).collect::<BTreeSet<_>>().len(), all.len());
    }
}
