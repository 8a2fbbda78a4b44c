//! An address with the length of its network's prefix, as people write it: `10.1.0.1/24`.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use siga_stack::wire::address::Prefix;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address and a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr(Prefix);

impl Cidr {
    /// The whole of one IP version.
    pub fn everything(like: IpAddr) -> Self {
        let any = if like.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        Self(Prefix::new(any, 0).unwrap_or_else(|| unreachable!("a prefix of no bits fits every address")))
    }

    /// An address alone.
    pub fn host(address: IpAddr) -> Self {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Self(Prefix::new(address, bits).unwrap_or_else(|| unreachable!("a prefix of all bits fits its address")))
    }

    /// The address.
    pub fn address(self) -> IpAddr {
        self.0.address()
    }

    /// The address of everybody on the network, where there is one: networks of two addresses or one have none (RFC 3021).
    pub fn broadcast(self) -> Option<Ipv4Addr> {
        let IpAddr::V4(own) = self.address() else { return None };
        let hosts = u32::MAX.checked_shr(self.0.length().into()).unwrap_or(0);
        (self.0.length() < 31).then(|| Ipv4Addr::from_bits(own.to_bits() | hosts))
    }

    /// The same prefix with its first address.
    #[must_use]
    pub fn network(self) -> Self {
        let length = u32::from(self.0.length());
        let first = match self.address() {
            IpAddr::V4(own) => Ipv4Addr::from_bits(own.to_bits() & !u32::MAX.checked_shr(length).unwrap_or(0)).into(),
            IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() & !u128::MAX.checked_shr(length).unwrap_or(0)).into(),
        };
        Prefix::new(first, self.0.length()).map_or(self, Self)
    }

    /// As the stack has it.
    pub fn prefix(self) -> Prefix {
        self.0
    }
}

impl From<Prefix> for Cidr {
    fn from(prefix: Prefix) -> Self {
        Self(prefix)
    }
}

impl TryFrom<String> for Cidr {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl FromStr for Cidr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts =
            text.split_once('/').and_then(|(address, length)| Some((address.parse().ok()?, length.parse().ok()?)));
        parts.and_then(|(address, length)| Prefix::new(address, length)).map(Self).ok_or_else(|| {
            Error::usage(format!("{text:?} is not an address with a prefix length"))
                .hint("write it as 10.1.0.1/24 or fd00::1/64")
        })
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.0.address(), self.0.length()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in ["10.1.2.3/24", "0.0.0.0/0", "fd00::1/64", "::/0"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        for bad in ["10.1.2.3", "10.1.2.3/33", "fd00::1/129", "/24", "10.1.2/24", "a/1"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
        let network = |text: &str| text.parse::<Cidr>().unwrap().network().to_string();
        assert_eq!((network("10.1.2.3/20"), network("fd00::1/8")), ("10.1.0.0/20".to_owned(), "fd00::/8".to_owned()));
        assert_eq!((network("10.1.2.3/32"), network("10.1.2.3/0")), ("10.1.2.3/32".to_owned(), "0.0.0.0/0".to_owned()));
        let broadcast = |text: &str| text.parse::<Cidr>().unwrap().broadcast();
        assert_eq!(broadcast("10.1.2.3/24"), Some(Ipv4Addr::new(10, 1, 2, 255)));
        assert_eq!(broadcast("10.1.2.3/0"), Some(Ipv4Addr::BROADCAST));
        assert_eq!((broadcast("10.1.2.3/31"), broadcast("fd00::1/64")), (None, None));
    }
}
