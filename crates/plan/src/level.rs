//! Levels: a named set of what differs between two measurements of one path.
//!
//! A level is a TOML file. The program contains the levels of `levels/`. Every setting can be switched by itself. The default of a
//! setting is the kernel's ordinary best: cubic (or reno where cubic is restricted), offloads on, 64 KB segments. A level only
//! says what to set. `siga-measure` sets it in every namespace and reads it back.

mod built;
pub mod frame;
mod linked;

pub use crate::command::level::{CommandLevel, HugePages, PageCache};

use self::frame::Frame;
use crate::build::Build;
use crate::command::check_variables;
use crate::file;
use crate::kernel_setting::{check_congestion, check_sysctl};
use crate::limits;
use crate::path::PathKind;
use crate::plant::Plant;
use crate::qdisc::Qdisc;
use crate::shipped::LEVELS;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::features::DriverFeatures;
use siga_model::link::Link;
use siga_model::notice;
use siga_model::topology::{Full, Queueing};
use siga_model::waiting::Waiting;
use std::collections::BTreeMap;
use std::path::Path;

/// What a level sets on a built path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// The level's name, as `--level` and the tables show it.
    pub name: String,
    /// One line about it, for people.
    #[serde(default)]
    pub about: String,
    /// MTU of every interface in bytes: its cells have this one and no other; `None`: the plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
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
    /// Threaded NAPI: a kernel thread of its own receives the packets of each interface (veth: with GRO only); `None`: as the
    /// kernel made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded_napi: Option<bool>,
    /// Whether io_uring serves the TCP sockets of both ends, instead of epoll.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub io_uring: bool,
    /// Raises the largest segment (BIG TCP) of every interface to this many bytes (65,537 to 524,280); `None`: 64 KB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub big_tcp_bytes: Option<u32>,
    /// Queueing discipline of the interfaces with which client and server send: "fq", or the table `netem`; `None`: as the
    /// kernel made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qdisc: Option<Qdisc>,
    /// A ruleset in nft's own language, in force where IP packets of the path pass: in the router, or without one at the
    /// server. It includes no files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nftables: Option<String>,
    /// Settings of siga's own networks; `None`: all features on. No kernel path has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<Guests>,
    /// Modelled link between the server and its network, in both directions, such as "rate=1gbit,latency=500us,loss=0.1%"; `None`: no
    /// link. No kernel path has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub link: Option<Link>,
    /// Build of siga from which guests, routers, switches and workload drivers come, and for which `{siga}` in commands stands: the path
    /// of a program, or a revision as `{ git = "REVISION" }`; `None`: the program that carries out the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// Known costs planted at this level, instead of the plan's; `None`: the plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plant: Option<Plant>,
    /// Variables of the environment of commands. They replace those of the plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What is changed about commands.
    #[serde(default, skip_serializing_if = "CommandLevel::is_empty")]
    pub command: CommandLevel,
    /// Sysctls set in every namespace of the path, by dotted name ("net.ipv4.tcp_rmem"). Guests of siga's own networks have some of them:
    /// `net.ipv4.tcp_*` and `net.core.netdev_max_backlog`. A command gets its own network namespace, which has the loopback interface only.
    /// Needs root, except for siga's own networks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
}

/// What a level sets on every guest of a path over siga's own networks, in the words of topologies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Guests {
    /// How guests wait for traffic: `adaptive`, `block`, `poll`; `None`: as the plan's sockets do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub waiting: Option<Waiting>,
    /// What happens to a frame for which the partner has no empty buffer: `drop`, `pending`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub full: Full,
    /// Size of the frames of HiperSockets: `16K`, `24K`, `40K` or `64K`. The MTU is at most 8 KB less, and by default exactly this;
    /// `None`: 64K.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<Frame>,
    /// Buffers of each ring; `None`: as many as devices have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_count: Option<u16>,
    /// Which output queue of their OSA-Express adapters client and server use for a frame: `no_prio_queueing`, `no_prio_queueing:0` to
    /// `no_prio_queueing:3`, `prio_queueing_prec`, `prio_queueing_tos` or `prio_queueing_skb`; `None`: queue 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub priority_queueing: Option<Queueing>,
    /// Two more guests share the OSA-Express adapters of client and server, and exchange transactions that take four fifths of a wire of
    /// 1 Gbit/s. The value says which output queue they use, in the words of `priority_queueing`; `None`: no such guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub neighbour: Option<Queueing>,
    /// The driver features of the networks.
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, bool>"))]
    #[serde(rename = "driver")]
    pub features: DriverFeatures,
}

/// The parts of a level name such as `430-packing`: a base level with one feature added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant<'a> {
    /// Name of the base level, which can itself be a variant.
    pub base: &'a str,
    /// Feature that the level adds or removes.
    pub feature: &'static str,
    /// True if the feature is added (`+`), false if it is removed (`-`).
    pub with: bool,
}

impl<'a> Variant<'a> {
    /// Parses a name such as `430-packing`. Returns `None` if the name is not that of a variant.
    pub fn of(name: &'a str) -> Option<Self> {
        let names = Guests::FEATURES.into_iter().map(|feature| (feature, feature)).chain(DriverFeatures::FORMER_NAMES);
        names.into_iter().find_map(|(spelling, feature)| {
            let rest = name.strip_suffix(spelling)?;
            let with = rest.strip_suffix('+').map(|base| (base, true));
            let (base, with) = with.or_else(|| Some((rest.strip_suffix('-')?, false)))?;
            Some(Self { base, feature, with })
        })
    }
}

impl Guests {
    /// Features that the name of a level can add or remove.
    pub const FEATURES: [&str; 10] = [
        "packing",
        "suppress_doorbells",
        "copy_once",
        "omit_checksums",
        "large_segments",
        "zero_copy",
        "colocate",
        "direct",
        "adaptive_waiting",
        "pending",
    ];

    /// Returns the waiting policy of the guests: that of this level, or the plan's policy `of_plan` if the level has none.
    pub fn wait(&self, of_plan: Waiting) -> Waiting {
        self.waiting.unwrap_or(of_plan)
    }

    fn switch(&mut self, feature: &str, on: bool) {
        match feature {
            "pending" => self.full = if on { Full::Pending } else { Full::Drop },
            "adaptive_waiting" => self.waiting = Some(if on { Waiting::Adaptive } else { Waiting::Block }),
            feature => {
                let found = self.features.switches().into_iter().find(|(name, _)| *name == feature);
                found.into_iter().for_each(|(_, is_on)| *is_on = on);
            }
        }
    }
}

impl Level {
    /// Names of the settings that commands have. All other settings are those of networks.
    pub const OF_COMMANDS: [&str; 4] = ["environment", "command", "sysctl", "build"];
    /// Names of the settings that only commands have.
    pub const ONLY_OF_COMMANDS: [&str; 2] = ["environment", "command"];
    /// Names of levels in z/VM's reports that a level cannot have here, each with the name that it has.
    const PRINTED: [(&str, &str); 2] = [("VM/ESA 2.4.0", "vmesa-2.4.0"), ("z/VM 3.1.0", "zvm-3.1.0")];
    /// Beginning of the name of a level that sets one variable of the environment, as in `env:NAME=VALUE`.
    pub const ENVIRONMENT: &str = "env:";

    /// Returns the level `plain`, which changes no setting.
    pub fn plain() -> Self {
        Self { name: "plain".into(), ..Self::default() }
    }

    /// Reads a shipped level by its name, a level from a TOML file, a variable of the environment (`env:NAME=VALUE`), arguments
    /// (`args:WORDS`), a program (`program:PATH`) or CPUs (`cpus:LIST`) of commands, a level with a modelled link (`link:SETTINGS`,
    /// `LEVEL@link:SETTINGS`) or another build of siga (`build:BUILD`, `LEVEL@build:BUILD`), or a packet filter from a file of nft (`.nft`). A packet filter is a level that has the file's name and
    /// sets nothing else.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the name is unknown, the file is missing or malformed, or a value is out of range.
    pub fn load(name_or_file: &str) -> Result<Self> {
        let printed = Self::PRINTED.into_iter().find(|(printed, _)| *printed == name_or_file);
        let name_or_file = printed.map_or(name_or_file, |(_, name)| name);
        if let Some(level) = Self::of_build(name_or_file) {
            return level;
        }
        if let Some(variable) = name_or_file.strip_prefix(Self::ENVIRONMENT) {
            return Self::of_variable(variable);
        }
        if let Some(level) = Self::of_link(name_or_file) {
            return level;
        }
        if let Some(level) = CommandLevel::of_text(name_or_file) {
            let (command, name) = level?;
            let about = format!("Commands: {name_or_file}.");
            let level = Self { name: name_of(name), about, command, ..Self::default() };
            level.check()?;
            return Ok(level);
        }
        match Self::varied(name_or_file) {
            Some(level) => level,
            None if name_or_file.ends_with(".nft") => Self::of_ruleset(name_or_file),
            None => Self::parse(&LEVELS.read(name_or_file)?, name_or_file),
        }
    }

    fn of_variable(text: &str) -> Result<Self> {
        let Some((variable, value)) = text.split_once('=') else {
            return Err(Error::usage(format!("`{text}` is not an assignment to an environment variable"))
                .hint("write NAME=VALUE"));
        };
        let name = name_of(text);
        let about = format!("Environment variable {variable}.");
        let environment = [(variable.to_owned(), value.to_owned())].into();
        let level = Self { name, about, environment, ..Self::default() };
        level.check()?;
        Ok(level)
    }

    fn of_ruleset(path: &str) -> Result<Self> {
        let bytes_max = u64::try_from(limits::RULESET_BYTES_MAX).unwrap_or(u64::MAX);
        let text = file::read_named(Path::new(path), bytes_max).map_err(|error| {
            Error::usage(format!("cannot read the packet filter {path}: {error}"))
                .hint("use a file with rules in nft's syntax")
        })?;
        let name = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if Self::names().contains(&name.as_str()) {
            return Err(Error::usage(format!("the packet filter {path} has the same name as siga's level {name}"))
                .hint("rename the file of the packet filter"));
        }
        let about = format!("The packet filter {name}.nft.");
        let level = Self { name, about, nftables: Some(text), ..Self::default() };
        level.check().map_err(|error| error.at(format!("packet filter {path}")))?;
        Ok(level)
    }

    /// Builds a level with a feature added (`420+packing`) or removed (`430-packing`). Returns `None` if `name` names no variant.
    fn varied(name: &str) -> Option<Result<Self>> {
        let Variant { base, feature, with } = Variant::of(name)?;
        let varied = Self::load(base).and_then(|level| {
            let Some(mut guests) = level.guests else {
                return Err(Error::usage(format!(
                    "level {base} has no driver features, because it does not configure siga's own networks"
                ))
                .hint(format!("use level 420 or 430 as the base: `420+{feature}` or `430-{feature}`")));
            };
            guests.switch(feature, with);
            let about = format!("{base} {} {feature}.", if with { "with" } else { "without" });
            // If the base is a file, the new name starts with the name of the level in that file.
            let name = format!("{}{}{feature}", level.name, if with { '+' } else { '-' });
            Ok(Self { name, about, guests: Some(guests), ..level })
        });
        Some(varied)
    }

    /// Returns notices about old spellings in the name or the file of a level. Such a level is still read.
    pub fn notices(name_or_file: &str) -> Vec<String> {
        let mut notices = Vec::new();
        let mut base = name_or_file;
        while let Some(variant) = Variant::of(base) {
            notices.extend(notice::renamed_feature(&base[variant.base.len() + 1..]));
            base = variant.base;
        }
        if base.ends_with(".toml")
            && let Ok(text) = file::read_named(Path::new(base), limits::LEVEL_BYTES_MAX)
        {
            notices.extend(notice::old_spellings(&text));
        }
        notices.into_iter().map(|notice| format!("level {name_or_file}: {notice}")).collect()
    }

    /// Returns the size of HiperSockets frames that the level sets.
    pub fn frame(&self) -> Option<Frame> {
        self.guests.and_then(|guests| guests.frame)
    }

    /// Returns true if the levels differ only in their names and descriptions.
    pub fn sets_the_same(&self, other: &Self) -> bool {
        Self { name: other.name.clone(), about: other.about.clone(), ..self.clone() } == *other
    }

    /// Returns the names of the shipped levels.
    pub fn names() -> Vec<&'static str> {
        LEVELS.names()
    }

    /// Returns the names of the settings that the level makes on a path. Planted costs are not settings of the path.
    pub fn settings(&self) -> Vec<&'static str> {
        let all = [
            ("mtu", self.mtu.is_some()),
            ("congestion", self.congestion.is_some()),
            ("gro", self.gro.is_some()),
            ("gso", self.gso.is_some()),
            ("tso", self.tso.is_some()),
            ("threaded_napi", self.threaded_napi.is_some()),
            ("io_uring", self.io_uring),
            ("big_tcp_bytes", self.big_tcp_bytes.is_some()),
            ("qdisc", self.qdisc.is_some()),
            ("nftables", self.nftables.is_some()),
            ("guests", self.guests.is_some()),
            ("link", self.link.is_some()),
            ("build", self.build.is_some()),
            ("environment", !self.environment.is_empty()),
            ("command", !self.command.is_empty()),
            ("sysctl", !self.sysctl.is_empty()),
        ];
        all.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
    }

    fn parse(text: &str, place: &str) -> Result<Self> {
        let directory = Path::new(place).parent().unwrap_or(Path::new(""));
        let text = linked::with_tables(text, directory).map_err(|error| error.at(format!("level {place}")))?;
        let level: Self = toml::from_str(&text).map_err(|error| Error::usage(format!("level {place}: {error}")))?;
        level.check().map_err(|error| error.at(format!("level {place}")))?;
        Ok(Self { build: level.build.map(|build| build.below(directory)), ..level })
    }

    fn check(&self) -> Result<()> {
        if self.name.is_empty() || self.name.contains([',', '/', '"']) || self.name.contains(char::is_control) {
            return Err(Error::usage(format!("`{}` is not a valid name for a level", self.name.escape_debug()))
                .hint("use a name without commas, slashes and quotation marks"));
        }
        if let Some(bytes) = self.big_tcp_bytes
            && !(65_537..=524_280).contains(&bytes)
        {
            return Err(Error::usage(format!("big_tcp_bytes = {bytes} is outside the range 65537 to 524280"))
                .hint("without `big_tcp_bytes`, segments have at most 64 KB"));
        }
        let takes = |mtu: u32| {
            let ranges = PathKind::ALL.into_iter().filter_map(|kind| kind.mtu_range(false));
            ranges.into_iter().any(|(least, most)| (least..=most).contains(&mtu))
        };
        if let Some(mtu) = self.mtu.filter(|&mtu| !takes(mtu)) {
            return Err(Error::usage(format!("no type of path supports mtu = {mtu}"))
                .hint("use an MTU from 1280 to 65535 bytes, which all paths that send frames support"));
        }
        if let Some(ruleset) = &self.nftables {
            check_ruleset(ruleset)?;
        }
        if let Some(qdisc) = self.qdisc {
            qdisc.check()?;
        }
        if let Some(plant) = &self.plant {
            plant.check()?;
        }
        self.build.as_ref().map_or(Ok(()), Build::check)?;
        check_variables(&self.environment)?;
        self.command.check().map_err(|error| error.at("command"))?;
        self.congestion.as_deref().map_or(Ok(()), check_congestion)?;
        self.sysctl.iter().try_for_each(|(name, value)| check_sysctl(name, value))
    }
}

/// Makes the name of a level of any text: such a name has no comma, slash or quotation mark.
fn name_of(text: &str) -> String {
    text.replace([',', '/', '"'], "_").replace(char::is_control, "_")
}

/// Returns the text with which a plan names a level with a setting, such as a link. `alone` and `with` mark the setting without and with
/// the name of a level.
fn text_with(level: &str, (alone, with): (&str, &str), setting: &str) -> String {
    if level == "plain" { format!("{alone}{setting}") } else { format!("{level}{with}{setting}") }
}

/// Returns the name of a level with a setting. The level comes last, so that a name such as `old 430-packing` still says which feature is
/// missing.
fn before_level(name: String, level: &str) -> String {
    if level == "plain" { name } else { format!("{name} {level}") }
}

/// Refuses rulesets that nft would accept but that a level must not contain.
fn check_ruleset(ruleset: &str) -> Result<()> {
    if ruleset.trim().is_empty() {
        return Err(Error::usage("the nftables ruleset is empty").hint("remove `nftables` from the level"));
    }
    if ruleset.len() > limits::RULESET_BYTES_MAX {
        let most = limits::RULESET_BYTES_MAX;
        return Err(Error::usage(format!("the nftables ruleset is too long: it has {} bytes", ruleset.len())).hint(
            format!(
                "a level can have at most {most} bytes of rules; use nft sets and intervals to shorten the ruleset"
            ),
        ));
    }
    if ruleset.chars().any(|letter| letter.is_control() && !matches!(letter, '\n' | '\t')) {
        return Err(Error::usage("the nftables ruleset contains control characters")
            .hint("remove the control characters, because nft reads plain text"));
    }
    // nft would open an included file with siga's privileges, and its error messages would show text of that file. The word is
    // refused anywhere in the ruleset, because this code does not repeat nft's rules for where a word begins.
    if ruleset.contains("include") {
        return Err(Error::usage("the nftables ruleset contains the word `include`, which siga does not allow")
            .hint("write all rules into this file, and avoid the word `include` also in comments"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
