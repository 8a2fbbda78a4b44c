//! Rules that say which connections others may open to a guest: `tcp 443 from lan`, `udp 5000-5010`, `icmp`.

use crate::error::{Error, Result};
use crate::limits::ALLOW_RULES_MAX;
use crate::name::Name;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A protocol of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP connections.
    Tcp,
    /// UDP datagrams that do not answer a datagram of the guest.
    Udp,
    /// ICMP requests, such as pings.
    Icmp,
}

/// The senders of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// All that send over this network.
    Network(Name),
    /// All addresses of this prefix.
    Prefix(IpNet),
}

/// What others may open to a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    /// The protocol.
    pub protocol: Protocol,
    /// The ports of the guest; `None`: all. ICMP has no ports.
    pub ports: Option<RangeInclusive<u16>>,
    /// The senders; `None`: all.
    pub from: Option<From>,
}

/// The rules of a guest. A connection may be opened if one of the rules allows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Rule>", into = "Vec<Rule>")]
pub struct Allow(Vec<Rule>);

impl Rule {
    /// Returns true if the rule allows to open `port` (of TCP and UDP) from an address over a network.
    pub fn allows(&self, protocol: Protocol, port: u16, from: IpAddr, network: &Name) -> bool {
        self.protocol == protocol
            && self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
            && match &self.from {
                None => true,
                Some(From::Network(name)) => name == network,
                Some(From::Prefix(prefix)) => prefix.contains(&from),
            }
    }
}

impl Allow {
    /// Makes a list of rules.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if there are too many.
    pub fn new(rules: Vec<Rule>) -> Result<Self> {
        if rules.len() > ALLOW_RULES_MAX {
            return Err(Error::usage(format!("a guest has {} rules of `allow`, which are too many", rules.len()))
                .hint(format!("write at most {ALLOW_RULES_MAX} rules; use ranges of ports and prefixes")));
        }
        Ok(Self(rules))
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// Refuses a rule for a network on which the guest has no device.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` that names the network.
    pub fn check<'a>(&self, networks: impl Iterator<Item = &'a Name> + Clone) -> Result<()> {
        for rule in &self.0 {
            if let Some(From::Network(network)) = &rule.from
                && !networks.clone().any(|own| own == network)
            {
                let known = networks.map(Name::as_str).collect::<Vec<_>>().join(", ");
                return Err(Error::usage(format!("rule `{rule}`: the guest has no device on a network {network}"))
                    .hint(format!("name a network of the guest ({known}) or a prefix such as 10.0.0.0/8")));
            }
        }
        Ok(())
    }
}

impl TryFrom<Vec<Rule>> for Allow {
    type Error = Error;

    fn try_from(rules: Vec<Rule>) -> Result<Self> {
        Self::new(rules)
    }
}

impl std::convert::From<Allow> for Vec<Rule> {
    fn from(allow: Allow) -> Self {
        allow.0
    }
}

impl TryFrom<String> for Rule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl std::convert::From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage(format!("`{}` is not a rule for connections", text.escape_debug())).hint(
                "write PROTOCOL [PORT[-PORT]] [from NETWORK|PREFIX], such as `tcp 443 from lan`, `udp 5000-5010` or `icmp`",
            )
        };
        let mut words = text.split_ascii_whitespace().peekable();
        let protocol = match words.next() {
            Some("tcp") => Protocol::Tcp,
            Some("udp") => Protocol::Udp,
            Some("icmp") => Protocol::Icmp,
            Some(_) | None => return Err(bad()),
        };
        let ports = match words.next_if(|word| *word != "from") {
            None => None,
            Some(_) if protocol == Protocol::Icmp => return Err(bad()),
            Some(word) => {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0);
                let (first, last) =
                    port(first).zip(port(last)).filter(|(first, last)| first <= last).ok_or_else(bad)?;
                Some(first..=last)
            }
        };
        let from = match (words.next(), words.next(), words.next()) {
            (None, ..) => None,
            (Some("from"), Some(sender), None) => match (sender.parse::<IpNet>(), sender.parse::<IpAddr>()) {
                (Ok(prefix), _) => Some(From::Prefix(prefix.trunc())),
                (Err(_), Ok(address)) => Some(From::Prefix(address.into())),
                (Err(_), Err(_)) => Some(From::Network(sender.parse().map_err(|_| bad())?)),
            },
            (Some(_), ..) => return Err(bad()),
        };
        Ok(Self { protocol, ports, from })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
        })?;
        match &self.ports {
            None => {}
            Some(ports) if ports.start() == ports.end() => write!(f, " {}", ports.start())?,
            Some(ports) => write!(f, " {}-{}", ports.start(), ports.end())?,
        }
        match &self.from {
            None => Ok(()),
            Some(From::Network(name)) => write!(f, " from {name}"),
            Some(From::Prefix(prefix)) => write!(f, " from {prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_read_back_as_written_and_others_are_refused_with_a_hint() {
        for text in ["tcp 443 from lan", "udp 5000-5010", "icmp", "tcp", "tcp from 10.0.0.0/8", "icmp from fd00::/16"] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        assert_eq!("tcp 1 from 10.1.2.3".parse::<Rule>().unwrap().to_string(), "tcp 1 from 10.1.2.3/32");
        for text in [
            "",
            "sctp",
            "tcp x",
            "tcp 0",
            "tcp 9-8",
            "tcp 65536",
            "icmp 8",
            "tcp 1 2",
            "tcp from",
            "tcp 1 from a b",
            "tcp 1 lan",
            "tcp from /",
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains('\n'), "{text}: {error}");
        }
        let many = vec!["icmp".parse::<Rule>().unwrap(); ALLOW_RULES_MAX + 1];
        assert!(Allow::new(many[1..].to_vec()).is_ok() && Allow::new(many).is_err());
    }

    #[test]
    fn a_rule_allows_its_protocol_ports_and_senders() {
        let lan: Name = "lan".parse().unwrap();
        let allows = |rule: &str, protocol, port, from: &str| {
            rule.parse::<Rule>().unwrap().allows(protocol, port, from.parse().unwrap(), &lan)
        };
        assert!(allows("tcp 443 from lan", Protocol::Tcp, 443, "10.0.0.1"));
        assert!(!allows("tcp 443 from wan", Protocol::Tcp, 443, "10.0.0.1"));
        assert!(
            !allows("tcp 443", Protocol::Udp, 443, "10.0.0.1") && !allows("tcp 443", Protocol::Tcp, 444, "10.0.0.1")
        );
        assert!(allows("udp 5-7 from 10.0.0.0/8", Protocol::Udp, 7, "10.9.9.9"));
        assert!(!allows("udp 5-7 from 10.0.0.0/8", Protocol::Udp, 7, "11.0.0.1"));
        assert!(allows("icmp from fd00::/16", Protocol::Icmp, 0, "fd00::1"));
    }
}
