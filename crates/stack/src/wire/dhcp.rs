//! DHCP messages between a client and a server on one Ethernet link (RFC 2131, RFC 2132).

use super::ethernet::MacAddress;
use smoltcp::wire::{ArpHardware, DhcpFlags, DhcpMessageType, DhcpOpCode, DhcpOption, DhcpPacket, EthernetAddress};
use std::net::Ipv4Addr;

pub(crate) const SERVER_PORT: u16 = smoltcp::wire::DHCP_SERVER_PORT;
pub(crate) const CLIENT_PORT: u16 = smoltcp::wire::DHCP_CLIENT_PORT;

/// The numbers of the options that this module reads or writes.
pub(crate) mod option {
    pub(crate) const SUBNET_MASK: u8 = 1;
    pub(crate) const ROUTER: u8 = 3;
    pub(crate) const HOST_NAME: u8 = 12;
    pub(crate) const INTERFACE_MTU: u8 = 26;
    pub(crate) const BROADCAST_ADDRESS: u8 = 28;
    pub(crate) const REQUESTED_ADDRESS: u8 = 50;
    pub(crate) const LEASE_TIME: u8 = 51;
    pub(crate) const MESSAGE_TYPE: u8 = 53;
    pub(crate) const SERVER_IDENTIFIER: u8 = 54;
    pub(crate) const PARAMETER_REQUEST_LIST: u8 = 55;
    pub(crate) const MESSAGE_BYTES_MAX: u8 = 57;
    pub(crate) const RENEWAL_TIME: u8 = 58;
    pub(crate) const REBINDING_TIME: u8 = 59;
    pub(crate) const CLIENT_IDENTIFIER: u8 = 61;
    /// RFC 3442.
    pub(crate) const CLASSLESS_ROUTES: u8 = 121;
}

/// The first number behind the fixed fields of each message (RFC 2131 3).
const MAGIC_COOKIE: u32 = 0x6382_5363;
/// The length of the fixed fields, and of the option that ends a message.
const FIXED_BYTES: usize = 240;
const END_BYTES: usize = 1;
/// The shortest message: some clients ignore shorter ones, because BOOTP had messages of this length (RFC 1542 2.1).
const MESSAGE_BYTES_MIN: usize = 300;
/// The length of each option's number and length field.
const OPTION_HEADER_BYTES: usize = 2;
/// The longest message that every client can receive (RFC 2131 2: an IP packet of 576 bytes).
const BYTES_MAX_DEFAULT: usize = 576 - 20 - 8;
/// The longest answer, also if the client can receive longer ones: one IP packet of 1,500 bytes.
const BYTES_MAX: usize = 1_500 - 20 - 8;

/// The type of a message that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientMessage {
    Discover,
    Request,
    Decline,
    Release,
    Inform,
}

/// The type of a message that a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerMessage {
    Offer = 2,
    Ack = 5,
    Nak = 6,
}

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DhcpRequest {
    pub(crate) kind: ClientMessage,
    pub(crate) transaction: u32,
    /// True if the client can receive only broadcasts.
    pub(crate) broadcast: bool,
    /// True if a relay agent has passed the message on.
    pub(crate) is_relayed: bool,
    /// The address that the client has, or the unspecified address (`ciaddr`).
    pub(crate) client: Ipv4Addr,
    pub(crate) mac: MacAddress,
    pub(crate) requested: Option<Ipv4Addr>,
    pub(crate) server: Option<Ipv4Addr>,
    /// Empty if the message has no client identifier.
    pub(crate) client_identifier: Vec<u8>,
    /// The numbers of the options that the client wants. Empty if the message has no such list.
    pub(crate) parameters: Vec<u8>,
    /// The longest message that the client can receive.
    pub(crate) bytes_max: usize,
}

impl DhcpRequest {
    /// Parses a message. Returns `None` if it is no message of a DHCP client with an Ethernet address. If a message has an option twice,
    /// the first one counts.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let packet = DhcpPacket::new_checked(bytes).ok().filter(|_| bytes.len() >= FIXED_BYTES)?;
        let is_ethernet = packet.hardware_type() == ArpHardware::Ethernet && packet.hardware_len() == 6;
        if packet.opcode() != DhcpOpCode::Request || !is_ethernet || packet.magic_number() != MAGIC_COOKIE {
            return None;
        }
        let find = |number| packet.options().find(|option: &DhcpOption<'_>| option.kind == number);
        let bytes_of = |number| find(number).map(|option| option.data.to_vec()).unwrap_or_default();
        let address = |number| match find(number) {
            None => Some(None),
            Some(DhcpOption { data, .. }) => <[u8; 4]>::try_from(data).ok().map(|octets| Some(Ipv4Addr::from(octets))),
        };
        let kind = match *find(option::MESSAGE_TYPE)?.data {
            [kind] => match DhcpMessageType::from(kind) {
                DhcpMessageType::Discover => ClientMessage::Discover,
                DhcpMessageType::Request => ClientMessage::Request,
                DhcpMessageType::Decline => ClientMessage::Decline,
                DhcpMessageType::Release => ClientMessage::Release,
                DhcpMessageType::Inform => ClientMessage::Inform,
                DhcpMessageType::Offer | DhcpMessageType::Ack | DhcpMessageType::Nak | DhcpMessageType::Unknown(_) => {
                    return None;
                }
            },
            [..] => return None,
        };
        let EthernetAddress(mac) = packet.client_hardware_address();
        let announced = find(option::MESSAGE_BYTES_MAX).and_then(|option| <[u8; 2]>::try_from(option.data).ok());
        let bytes_max = announced.map_or(0, |bytes| usize::from(u16::from_be_bytes(bytes)).saturating_sub(20 + 8));
        Some(Self {
            kind,
            transaction: packet.transaction_id(),
            broadcast: packet.flags().contains(DhcpFlags::BROADCAST),
            is_relayed: !packet.relay_agent_ip().is_unspecified(),
            client: packet.client_ip(),
            mac: MacAddress(mac),
            requested: address(option::REQUESTED_ADDRESS)?,
            server: address(option::SERVER_IDENTIFIER)?,
            client_identifier: bytes_of(option::CLIENT_IDENTIFIER),
            parameters: bytes_of(option::PARAMETER_REQUEST_LIST),
            bytes_max: bytes_max.clamp(BYTES_MAX_DEFAULT, BYTES_MAX),
        })
    }

    /// Returns whether the client wants an option.
    pub(crate) fn wants(&self, number: u8) -> bool {
        self.parameters.is_empty() || self.parameters.contains(&number)
    }
}

/// The answer of a server.
#[derive(Debug, Clone)]
pub(crate) struct DhcpReply<'a> {
    pub(crate) kind: ServerMessage,
    /// The message that is answered.
    pub(crate) request: &'a DhcpRequest,
    /// The address that the client gets, or the unspecified address (`yiaddr`).
    pub(crate) yours: Ipv4Addr,
    pub(crate) server: Ipv4Addr,
    /// The numbers and contents of further options, the most important ones first.
    pub(crate) options: Vec<(u8, Vec<u8>)>,
}

impl DhcpReply<'_> {
    /// Builds the message. Leaves out the options for which it has no room. An answer repeats the client's identifier (RFC 6842 3).
    pub(crate) fn message(&self) -> Option<Vec<u8>> {
        let request = self.request;
        let own = [
            (option::MESSAGE_TYPE, vec![self.kind as u8]),
            (option::SERVER_IDENTIFIER, self.server.octets().to_vec()),
            (option::CLIENT_IDENTIFIER, request.client_identifier.clone()),
        ];
        let mut bytes = vec![0; request.bytes_max.max(MESSAGE_BYTES_MIN)];
        let mut packet = DhcpPacket::new_unchecked(&mut bytes[..]);
        packet.set_opcode(DhcpOpCode::Reply);
        packet.set_hardware_type(ArpHardware::Ethernet);
        packet.set_hardware_len(6);
        packet.set_transaction_id(request.transaction);
        packet.set_flags(if request.broadcast { DhcpFlags::BROADCAST } else { DhcpFlags::empty() });
        packet.set_client_ip(if self.kind == ServerMessage::Nak { Ipv4Addr::UNSPECIFIED } else { request.client });
        packet.set_your_ip(self.yours);
        packet.set_client_hardware_address(EthernetAddress(request.mac.0));
        packet.set_magic_number(MAGIC_COOKIE);
        let mut room = request.bytes_max - FIXED_BYTES - END_BYTES;
        let mut writer = packet.options_mut();
        for (kind, data) in own.iter().chain(&self.options).filter(|(_, data)| !data.is_empty()) {
            let Some(left) = room.checked_sub(OPTION_HEADER_BYTES + data.len()) else { continue };
            if writer.emit(DhcpOption { kind: *kind, data }).is_ok() {
                room = left;
            }
        }
        writer.end().ok()?;
        let length = request.bytes_max - room;
        bytes.truncate(length.max(MESSAGE_BYTES_MIN));
        Some(bytes)
    }
}
