//! Levels: a named set of what differs between two measurements of one path.
//!
//! A level is a TOML file (`levels/*.toml` are shipped inside the program). Every setting can be switched alone; what a
//! level leaves out keeps the laboratory's default, which is the kernel at its ordinary best: cubic (or reno where cubic is
//! restricted), offloads on, 64 KB segments. A level says what to set; `path` sets it in every namespace and reads it back.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a level sets on a built path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// The level's name, as `--level` and the tables show it.
    pub name: String,
    /// One line about it, for people.
    #[serde(default)]
    pub about: String,
    /// TCP congestion control of every socket on the path; `None`: cubic where allowed, else reno.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Generic receive offload of every interface; `None`: as the kernel made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro: Option<bool>,
    /// Generic segmentation offload of every interface; `None`: as the kernel made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gso: Option<bool>,
    /// TCP segmentation offload of every interface; `None`: as the kernel made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tso: Option<bool>,
    /// Raises the largest segment (BIG TCP) of every interface to this many bytes (65,537 to 524,280); `None`: 64 KB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub big_tcp_bytes: Option<u32>,
    /// Sysctls set in every namespace of the path, by dotted name ("net.ipv4.tcp_rmem").
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
}

const SHIPPED: [(&str, &str); 7] = [
    ("plain", include_str!("../../../levels/plain.toml")),
    ("bigtcp", include_str!("../../../levels/bigtcp.toml")),
    ("gro-on", include_str!("../../../levels/gro-on.toml")),
    ("gro-off", include_str!("../../../levels/gro-off.toml")),
    ("reno", include_str!("../../../levels/reno.toml")),
    ("cubic", include_str!("../../../levels/cubic.toml")),
    ("bbr", include_str!("../../../levels/bbr.toml")),
];

impl Level {
    /// The level that changes nothing.
    pub fn plain() -> Self {
        Self { name: "plain".into(), ..Self::default() }
    }

    /// Reads a level by its shipped name or from a TOML file.
    ///
    /// # Errors
    /// Usage: the name is unknown, the file is missing or malformed, or a value is out of range.
    pub fn load(name_or_file: &str) -> Result<Self> {
        if let Some((_, text)) = SHIPPED.iter().find(|(name, _)| *name == name_or_file) {
            return Self::parse(text, name_or_file);
        }
        if !name_or_file.ends_with(".toml") {
            return Err(Error::usage(format!("unknown level `{name_or_file}`"))
                .hint(format!("levels: {}; or the path of a .toml file", Self::names().join(", "))));
        }
        let text = std::fs::read_to_string(name_or_file).map_err(|error| {
            Error::usage(format!("cannot read level {name_or_file}: {error}"))
                .hint(format!("levels: {}; or the path of a .toml file", Self::names().join(", ")))
        })?;
        Self::parse(&text, name_or_file)
    }

    /// True if only name and description differ.
    pub fn sets_the_same(&self, other: &Self) -> bool {
        Self { name: other.name.clone(), about: other.about.clone(), ..self.clone() } == *other
    }

    /// Names of the shipped levels.
    pub fn names() -> Vec<&'static str> {
        SHIPPED.iter().map(|(name, _)| *name).collect()
    }

    fn parse(text: &str, place: &str) -> Result<Self> {
        let level: Self = toml::from_str(text).map_err(|error| Error::usage(format!("level {place}: {error}")))?;
        level.check().map_err(|error| error.at(format!("level {place}")))?;
        Ok(level)
    }

    fn check(&self) -> Result<()> {
        if self.name.is_empty() || self.name.contains([',', '/', '"']) || self.name.chars().any(char::is_control) {
            return Err(Error::usage(format!("`{}` is no level name", self.name)));
        }
        if let Some(bytes) = self.big_tcp_bytes
            && !(65_537..=524_280).contains(&bytes)
        {
            return Err(Error::usage(format!("big_tcp_bytes = {bytes} is outside 65537..=524280")));
        }
        let outside = self.sysctl.keys().find(|key| {
            !key.starts_with("net.") || key.contains("..") || key.contains('/') || key.chars().any(char::is_control)
        });
        match outside {
            Some(key) => Err(Error::usage(format!("sysctl `{key}` does not belong to a network namespace"))
                .hint("only net.* names can be set, as `net.ipv4.tcp_rmem`")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_levels_are_sound_and_carry_their_own_names() {
        for name in Level::names() {
            let level = Level::load(name).unwrap();
            assert_eq!(level.name, name);
            assert!(!level.about.is_empty(), "{name} does not say what it is");
        }
    }

    #[test]
    fn what_a_level_cannot_set_is_refused() {
        for text in [
            "name = \"\"",
            "name = \"a,b\"",
            "name = \"x\"\nbig_tcp_bytes = 65536",
            "name = \"x\"\nmtu = 9000",
            "name = \"x\"\n[sysctl]\n\"kernel.panic\" = \"1\"",
            "name = \"x\"\n[sysctl]\n\"net..ipv4\" = \"1\"",
            "name = \"x\"\n[sysctl]\n\"net./../../tmp/x\" = \"1\"",
        ] {
            assert_eq!(Level::parse(text, "test").unwrap_err().exit_status(), 2, "{text}");
        }
        assert_eq!(Level::load("nosuch").unwrap_err().exit_status(), 2);
    }
}
