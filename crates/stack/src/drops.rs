//! The reasons for which packets are dropped. Each layer has one enum, which serves as the error, the counter's key and the
//! label.

use std::fmt;

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$case_doc])* #[doc = concat!("Displayed as: ", $label, ".")] $case,)*
        }

        impl $name {
            /// All reasons of this layer.
            pub const ALL: &[Self] = &[$(Self::$case,)*];

            /// Returns the reason in a few words.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$case => $label,)*
                }
            }
        }
    };
}

reasons! {
    /// Reasons for which a device, or the check of a frame's link header, drops a frame.
    LinkDrop {
        NoDevice = "no such device",
        /// The frame ends inside its link header, or exceeds the MTU.
        Length = "bad frame length",
        /// The frame carries neither IPv4 nor IPv6 nor ARP.
        Protocol = "unknown protocol",
        /// The frame was sent to another station.
        OtherStation = "for another station",
        /// The link's ends did not agree to the frame's [`Marks`](crate::link::frame::Marks), or these marks do not fit the
        /// packet.
        Marks = "bad marks",
        QueueFull = "transmit queue full",
    }
}

reasons! {
    /// Reasons for which address resolution drops a message or a waiting packet.
    NeighbourDrop {
        /// An ARP packet or a neighbour discovery message has an invalid format, or fails the checks of RFC 4861 7.1.
        Malformed = "malformed",
        /// The message is about an address of another station.
        NotOurs = "not about us",
        OurAddress = "claims our address",
        /// The sender announces an address that the source filter of the link refuses.
        Refused = "address not allowed",
        /// The message answers no request of this stack, and its sender is not in the neighbour table.
        Unasked = "unasked",
        TableFull = "table full",
        /// Too many packets wait for this neighbour, or for all neighbours together.
        QueueFull = "queue full",
        Silent = "no answer",
    }
}

reasons! {
    /// Reasons for which IPv4 or IPv6 drops a packet.
    IpDrop {
        /// The packet ends inside a header, or a length field exceeds the packet.
        Length = "bad length",
        Version = "bad version",
        Checksum = "bad header checksum",
        Options = "bad options",
        /// The packet has a source route (RFC 7126 4.3 and 4.4, RFC 5095).
        SourceRoute = "source route",
        /// The source address is one that no packet may have.
        SourceMartian = "martian source",
        SourceRefused = "source not allowed",
        /// The route back to the source leads over another device.
        SourceElsewhere = "source of another link",
        /// The destination is an address that no packet may have, or one to which routers do not forward.
        DestinationMartian = "martian destination",
        /// The destination is a group that no socket of this stack has joined.
        NotJoined = "group not joined",
        /// The packet is for another host, and this stack does not forward packets.
        NotForUs = "not for us",
        Broadcast = "broadcast not forwarded",
        HopLimit = "hop limit",
        /// There is no route to the destination, or the stack has no address of that IP version.
        NoRoute = "no route",
        /// The packet exceeds the next link's MTU and must not be fragmented.
        TooBig = "too big",
        /// The stack does not implement the transport protocol.
        Protocol = "unknown protocol",
    }
}

reasons! {
    /// Reasons for which reassembly drops a fragment or a datagram.
    FragmentDrop {
        /// The fragment is empty or ends beyond the largest datagram. Or it is not the last one, and its length is not a multiple
        /// of 8.
        Malformed = "malformed",
        /// The fragment overlaps another, so the complete datagram is dropped (RFC 5722).
        Overlap = "overlap",
        Duplicate = "duplicate",
        /// The datagram of this fragment was dropped before.
        Late = "of a dropped datagram",
        /// The datagram has too many fragments, or it was evicted to make room for this fragment.
        Full = "full",
        /// An incomplete datagram was evicted to make room for another. It was the oldest one of the source with the largest
        /// share of the table.
        Evicted = "evicted",
        /// The rest of the datagram did not arrive in time.
        Timeout = "timeout",
    }
}

reasons! {
    /// Reasons for which ICMP or ICMPv6 drops a message, or does not send one.
    IcmpDrop {
        Length = "bad length",
        Checksum = "bad checksum",
        /// The message has a type that this stack ignores, for example a redirect.
        Ignored = "ignored type",
        /// An echo request to a broadcast or IPv4 multicast address (RFC 1122 3.2.2.6).
        EchoToMany = "echo to many",
        /// An ICMP error does not quote a packet that this stack sent.
        Quote = "quotes no packet of this stack",
        RateLimit = "rate limit",
        /// An ICMP error is not sent, because RFC 1122 3.2.2 or RFC 4443 2.4 (e) forbids errors about this kind of packet.
        Forbidden = "error not allowed",
    }
}

reasons! {
    /// Reasons for which UDP drops a datagram.
    UdpDrop {
        /// The datagram is shorter than its header, or its length field exceeds the packet.
        Length = "bad length",
        /// The checksum is wrong, or the datagram has none although IPv6 requires one.
        Checksum = "bad checksum",
        NoSocket = "no socket",
        QueueFull = "receive queue full",
    }
}

reasons! {
    /// Reasons for which TCP drops a segment or a part of it.
    TcpDrop {
        Truncated = "truncated",
        /// The data offset points into the fixed header or past the end of the segment.
        BadOffset = "bad data offset",
        /// The length of an option is less than 2, or the option exceeds the header.
        BadOption = "bad option",
        Checksum = "bad checksum",
        Port = "port 0",
        /// The destination address is a multicast group, or the frame was sent to several stations.
        ToGroup = "to a group",
        /// The segment belongs to no connection and no listener. It is answered by a reset if TCP allows one.
        NoConnection = "no connection",
        /// The listener's backlog is full, or the stack has its maximum number of connections.
        BacklogFull = "backlog full",
        /// The receive buffers have reached their memory limit.
        Memory = "buffers full",
        /// The connection is opening, and the segment does not acknowledge exactly the SYN of this stack.
        AckUnacceptable = "unacceptable acknowledgement",
        AckUnsent = "acknowledges unsent data",
        /// The acknowledgement number is too old: it lies before SND.UNA by more than the largest window of the peer.
        AckOld = "old acknowledgement",
        NoAck = "no acknowledgement",
        /// The segment is neither a SYN nor a reset, but only a SYN can begin the connection.
        NoSyn = "no SYN",
        SynInWindow = "SYN in a connection",
        /// The segment is a reset, but its sequence number does not prove that the peer sent it.
        ResetBlind = "blind reset",
        /// The segment is a reset, which TIME-WAIT ignores (RFC 1337).
        ResetInTimeWait = "reset in TIME-WAIT",
        OutOfWindow = "out of window",
        /// The timestamp is older than one that was received before (PAWS).
        TimestampOld = "old timestamp",
        /// The segment has no timestamp, although both sides agreed to send timestamps.
        TimestampMissing = "timestamp missing",
        /// All bytes of the segment were received before.
        Duplicate = "duplicate",
        WindowFull = "window full",
        GapLimit = "too many gaps",
        AfterFin = "behind the FIN",
        Closed = "closed",
        /// An ICMP error quotes a segment that is not outstanding (RFC 5927).
        IcmpNotOutstanding = "ICMP error about no outstanding segment",
        /// An ICMP error reports the MTU of a path, and the connection does not follow it (`IP_MTU_DISCOVER` of Linux).
        MtuIgnored = "path MTU ignored",
    }
}

reasons! {
    /// Reasons for which group membership (IGMP and MLD) drops a message.
    GroupDrop {
        /// The message is too short, has a length that no protocol version allows, or has fewer sources than its count says.
        Length = "bad length",
        Checksum = "bad checksum",
        /// The hop limit is not 1, so the message may come from beyond the link.
        HopLimit = "hop limit not 1",
        /// The source of an MLD message is not a link-local address.
        Source = "bad source",
        RouterAlert = "no router alert",
        /// The message names no group, a report's group is not its destination, or a query's destination or list of sources is
        /// invalid.
        Address = "bad group",
        /// Another station reports a group that no socket of this stack joined.
        NotJoined = "group not joined",
        /// The message is for routers, or has an unknown type.
        Ignored = "ignored type",
    }
}

macro_rules! layers {
    ($($layer:ident($name:ident) $field:ident = $label:literal,)*) => {
        /// The reason for which a packet was dropped, in any layer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum DropReason {
            $(#[doc = concat!("Displayed behind: ", $label, ".")] $layer($name),)*
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

        /// Counters of dropped packets, one for each reason.
        #[derive(Debug, Clone, Default)]
        pub struct Drops {
            $($field: [u64; $name::ALL.len()],)*
        }

        impl Drops {
            /// Returns the number of packets that were dropped for this reason.
            pub fn get(&self, reason: impl Into<DropReason>) -> u64 {
                match reason.into() {
                    $(DropReason::$layer(reason) => self.$field[reason as usize],)*
                }
            }

            /// Returns every reason with its count.
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
    Link(LinkDrop) link = "link",
    Neighbour(NeighbourDrop) neighbour = "neighbour",
    Ip(IpDrop) ip = "ip",
    Fragment(FragmentDrop) fragment = "fragment",
    Icmp(IcmpDrop) icmp = "icmp",
    Group(GroupDrop) group = "group",
    Udp(UdpDrop) udp = "udp",
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
