//! Ethernet addresses.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// An Ethernet address of one station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns a locally administered address that is derived from a text. Different texts rarely have the same address.
    pub fn derived(text: &str) -> Self {
        // FNV-1a: the address only has to be the same in each run, and well spread.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let [a, b, c, d, ..] = (hash ^ hash >> 32).to_le_bytes();
        Self([0x02, 0x51, a, b, c, d])
    }

    /// Returns the address that follows this one.
    #[must_use]
    pub fn next(self) -> Self {
        let Self([a, b, c, d, e, f]) = self;
        let [c, d, e, f] = u32::from_be_bytes([c, d, e, f]).wrapping_add(1).to_be_bytes();
        Self([a, b, c, d, e, f])
    }

    /// Returns the link-local IPv6 address that a station with this address gives itself (RFC 4291, appendix A).
    pub fn link_local(self) -> Ipv6Addr {
        let Self([a, b, c, d, e, f]) = self;
        let word = |high, low| u16::from_be_bytes([high, low]);
        Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([a, b, c, d, e, f]) = self;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl FromStr for Mac {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::usage(format!("{text:?} is not an Ethernet address of an interface"))
                .hint("write six hexadecimal bytes, such as \"02:00:00:00:00:01\"; the first byte must be even")
        };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|it| it.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        }
        let fits = parts.next().is_none() && bytes[0] & 1 == 0 && bytes != [0; 6];
        if fits { Ok(Self(bytes)) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for Mac {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_is_six_bytes_of_which_the_first_is_even() {
        let mac: Mac = "02:00:5e:10:0a:ff".parse().unwrap();
        assert_eq!((mac.0, mac.to_string().as_str()), ([2, 0, 0x5e, 0x10, 0x0a, 0xff], "02:00:5e:10:0a:ff"));
        for bad in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "03:00:00:00:00:01", "2:0:0:0:0:1", "02:00:00:00:00:0g"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
        assert!("00:00:00:00:00:00".parse::<Mac>().is_err() && "+2:00:00:00:00:01".parse::<Mac>().is_err());
    }

    #[test]
    fn a_station_derives_its_link_local_address_from_its_ethernet_address() {
        let mac: Mac = "02:00:5e:10:00:01".parse().unwrap();
        assert_eq!(mac.link_local(), "fe80::5eff:fe10:1".parse::<Ipv6Addr>().unwrap());
    }
}
