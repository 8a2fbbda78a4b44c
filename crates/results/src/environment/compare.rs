//! Comparison of two environments.
//!
//! Both environments are converted to JSON and flattened to maps from names to values. A field that is added to [`Environment`] is
//! therefore compared without a change in this file. `MATTERS` lists the values whose difference makes figures not comparable. If a
//! value could be read in one environment only, the difference is shown. But the figures stay comparable, because the difference
//! does not prove a change.

use super::Environment;
use super::names::{DEBUG_OPTIONS, listed};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A value that differs between two environments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Name of the value that differs: the name of its part and its own name, joined by a dot ("kernel.release").
    pub key: String,
    /// The value in the base environment.
    pub base: String,
    /// The value in the environment that is compared with the base.
    pub new: String,
    /// Whether this difference makes the figures not comparable.
    pub matters: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.base, self.new)
    }
}

/// Text for a value that could not be read.
const UNKNOWN: &str = "unknown";
/// Text for a value whose name is missing from a map: an option that is not set, or a setting that this kernel does not have.
const ABSENT: &str = "absent";

/// Names of the values that make figures not comparable if they differ. An entry that ends in `*` matches every name with that
/// beginning.
const MATTERS: &[&str] = &[
    "program.profile",
    "program.architecture",
    "kernel.release",
    "kernel.version",
    "kernel.preemption",
    "kernel.hz",
    "kernel.boot.*",
    "kernel.config.CONFIG_HZ*",
    "kernel.config.CONFIG_NO_HZ*",
    "kernel.config.CONFIG_PREEMPT*",
    "cpu.model",
    "cpu.online",
    "cpu.allowed",
    "cpu.hypervisor",
    "cpu.emulated",
    "cpu.machine",
    "cpu.governor",
    "cpu.frequency_driver",
    "cpu.turbo",
    "cpu.smt",
    "cpu.idle",
    "cpu.clocksource",
    "mitigations.*",
];

impl Environment {
    /// Returns every value of the environment by its full name: the name of its part and its own name, joined by dots
    /// ("kernel.release").
    pub fn flat(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let tree = serde_json::to_value(self)
            .expect("structs with named fields and maps with string keys can be written as JSON");
        flatten(String::new(), &tree, &mut all);
        all
    }
}

fn flatten(key: String, value: &Value, all: &mut BTreeMap<String, String>) {
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match value {
        Value::Object(parts) => parts.iter().for_each(|(name, part)| flatten(below(name), part, all)),
        Value::Array(parts) => {
            parts.iter().enumerate().for_each(|(index, part)| flatten(below(&index.to_string()), part, all));
        }
        Value::Null => drop(all.insert(key, UNKNOWN.into())),
        Value::String(text) => drop(all.insert(key, text.clone())),
        Value::Bool(_) | Value::Number(_) => drop(all.insert(key, value.to_string())),
    }
}

/// Returns all differences between two environments. Those that matter come first; each group is sorted by name.
pub fn differences(base: &Environment, new: &Environment) -> Vec<Difference> {
    let (base_flat, new_flat) = (base.flat(), new.flat());
    // If one side could not read the kernel's build options, only `config_source` is reported as different, not every option.
    let options_known = base.kernel.config_source.is_some() && new.kernel.config_source.is_some();
    let keys: BTreeSet<&String> = base_flat.keys().chain(new_flat.keys()).collect();
    let mut all: Vec<Difference> = keys
        .into_iter()
        .filter(|key| options_known || !key.starts_with("kernel.config."))
        .map(|key| {
            let value = |side: &BTreeMap<String, String>| side.get(key).map_or(ABSENT, String::as_str).to_owned();
            let (base, new) = (value(&base_flat), value(&new_flat));
            let matters = matters(key, &base, &new);
            Difference { key: key.clone(), base, new, matters }
        })
        .filter(|difference| difference.base != difference.new)
        .collect();
    all.sort_by_key(|difference| !difference.matters);
    all
}

fn matters(key: &str, base: &str, new: &str) -> bool {
    // Kernels of the same version list the same CPU vulnerabilities. So if the entry of a vulnerability is missing on one side
    // only, that side could not read the list.
    let unread = |value: &str| value == UNKNOWN || (value == ABSENT && key.starts_with("mitigations."));
    let debugging = key.strip_prefix("kernel.config.").is_some_and(|option| listed(DEBUG_OPTIONS, option));
    (debugging || listed(MATTERS, key)) && !unread(base) && !unread(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Program;

    fn keys(base: &Environment, new: &Environment) -> Vec<(String, bool)> {
        differences(base, new).into_iter().map(|difference| (difference.key, difference.matters)).collect()
    }

    fn known() -> Environment {
        let program = Program { profile: "release".into(), ..Program::default() };
        let mut host = Environment { program, ..Environment::default() };
        host.kernel.release = Some("6.12".into());
        host.cpu.online = Some(4);
        host.memory.total_bytes = Some(2);
        host.sysctl.insert("net.core.default_qdisc".into(), "fq".into());
        host.moment.load = Some(0.5);
        host
    }

    #[test]
    fn a_record_reads_back_and_an_older_one_without_some_parts_too() {
        let environment = known();
        let text = serde_json::to_string(&environment).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), environment);
        let old: Environment = serde_json::from_str(r#"{"kernel":{"release":"6.1"},"gone":1}"#).unwrap();
        assert_eq!(old.kernel.release.as_deref(), Some("6.1"));
        assert_eq!(old.cpu.model, None);
    }

    #[test]
    fn differences_that_matter_come_first() {
        let base = known();
        let mut new = base.clone();
        assert_eq!(differences(&base, &new), []);
        new.moment.load = Some(99.5);
        new.host.boot_id = Some("another".into());
        new.memory.total_bytes = Some(1);
        new.program.version = "0.0.0".into();
        new.sysctl.insert("net.core.default_qdisc".into(), "other".into());
        assert!(differences(&base, &new).iter().all(|difference| !difference.matters));
        assert_eq!(differences(&base, &new).len(), 5);
        new.kernel.release = Some("1.0".into());
        new.program.profile = "another".into();
        let keys = keys(&base, &new);
        assert_eq!(keys[..2], [("kernel.release".to_owned(), true), ("program.profile".to_owned(), true)]);
        assert!(keys[2..].iter().all(|(_, matters)| !matters));
        assert!(differences(&base, &new)[0].to_string().ends_with(" -> 1.0"));
    }

    #[test]
    fn every_key_that_matters_is_one_of_the_record() {
        let mut full = Environment::default();
        for option in ["CONFIG_HZ", "CONFIG_NO_HZ", "CONFIG_PREEMPT"] {
            full.kernel.config.insert(option.into(), "y".into());
        }
        full.kernel.boot.insert("preempt".into(), "full".into());
        full.mitigations.insert("meltdown".into(), "Not affected".into());
        let flat = full.flat();
        for key in MATTERS {
            assert!(flat.keys().any(|name| listed(&[key], name)), "{key} names nothing");
        }
    }

    #[test]
    fn a_value_that_one_side_could_not_read_does_not_matter() {
        let mut base = Environment::default();
        let mut new = base.clone();
        new.cpu.smt = Some("on".into());
        new.kernel.config_source = Some("/proc/config.gz".into());
        new.kernel.hz = Some(250);
        new.kernel.config.insert("CONFIG_HZ".into(), "250".into());
        new.mitigations.insert("meltdown".into(), "Mitigation: PTI".into());
        let unread = ["cpu.smt", "kernel.config_source", "kernel.hz", "mitigations.meltdown"];
        assert_eq!(keys(&base, &new), unread.map(|key| (key.to_owned(), false)));

        base = new.clone();
        new.kernel.config.insert("CONFIG_KASAN".into(), "y".into());
        new.kernel.boot.insert("preempt".into(), "full".into());
        new.mitigations.insert("meltdown".into(), "Vulnerable".into());
        let given = ["kernel.boot.preempt", "kernel.config.CONFIG_KASAN", "mitigations.meltdown"];
        assert_eq!(keys(&base, &new), given.map(|key| (key.to_owned(), true)));
    }
}
