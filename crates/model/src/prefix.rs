//! Addresses with a prefix length, as people write them: `10.1.0.1/24`.

use crate::error::{Error, Result};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr};

/// Reads an address with a prefix length. It keeps the host bits, because `10.1.0.1/24` can also be the address of a device.
///
/// # Errors
/// Returns an error of kind `Usage` if the text is not an address with a prefix length.
pub fn parse(text: &str) -> Result<IpNet> {
    text.parse().map_err(|_| {
        Error::usage(format!("{text:?} is not an address with a prefix length"))
            .hint("write, for example, 10.1.0.1/24 or fd00::1/64")
    })
}

/// Returns the prefix that contains every address of the IP version of `like`: `0.0.0.0/0` or `::/0`.
pub fn everything(like: IpAddr) -> IpNet {
    if like.is_ipv4() { Ipv4Net::default().into() } else { Ipv6Net::default().into() }
}

/// Returns the broadcast address of an IPv4 network. Networks of one or two addresses have none (RFC 3021).
pub fn broadcast(own: IpNet) -> Option<Ipv4Addr> {
    match own {
        IpNet::V4(own) => (own.prefix_len() < 31).then(|| own.broadcast()),
        IpNet::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_prefix_length_reads_back_as_written() {
        for text in ["10.1.2.3/24", "0.0.0.0/0", "fd00::1/64", "::/0"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for bad in ["10.1.2.3", "10.1.2.3/33", "fd00::1/129", "/24", "10.1.2/24", "a/1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(everything(Ipv4Addr::LOCALHOST.into()).to_string(), "0.0.0.0/0");
        assert_eq!(everything("fd00::1".parse().unwrap()).to_string(), "::/0");
    }

    #[test]
    fn networks_of_two_addresses_or_one_have_no_broadcast_address() {
        let broadcast = |text: &str| broadcast(parse(text).unwrap());
        assert_eq!(broadcast("10.1.2.3/24"), Some(Ipv4Addr::new(10, 1, 2, 255)));
        assert_eq!(broadcast("10.1.2.3/0"), Some(Ipv4Addr::BROADCAST));
        assert_eq!((broadcast("10.1.2.3/31"), broadcast("10.1.2.3/32"), broadcast("fd00::1/64")), (None, None, None));
    }
}
