//! Whether two cells may be compared: what differs between them beside that which is compared.
//!
//! A path's settings are those that were read back when it was built; how a trial was made stands in the plan. What a
//! level sets is what is compared, and no difference; a setting that differs otherwise is named.

use super::Subject;
use crate::level::Level;
use crate::plan::{Cell, Plan};
use crate::store::Run;
use std::collections::{BTreeMap, BTreeSet};

/// The first few settings that differ and are not what is compared, in words; `None` if there are none.
pub(super) fn obstacle(base: (&Run, &Cell), new: (&Run, &Cell), subject: Subject) -> Option<String> {
    const NAMED_MAX: usize = 3;
    let (base_settings, new_settings) = (settings(base.0, base.1), settings(new.0, new.1));
    let levels = [level(base.0, base.1), level(new.0, new.1)];
    let compared = |key: &str| match subject {
        Subject::Paths => key.starts_with("interface "),
        Subject::Runs | Subject::Levels => levels.iter().flatten().any(|level| names(level, key)),
    };
    let keys: BTreeSet<&String> = base_settings.keys().chain(new_settings.keys()).collect();
    let differing: Vec<String> = keys
        .into_iter()
        .filter(|key| !compared(key))
        .filter_map(|key| match (base_settings.get(key), new_settings.get(key)) {
            (Some(base), Some(new)) if base != new => Some(format!("{key}: {base} -> {new}")),
            // Another path has other nodes.
            (Some(_), Some(_)) | (None, None) => None,
            (Some(_), None) | (None, Some(_)) if subject == Subject::Paths => None,
            (Some(base), None) => Some(format!("{key}: {base} -> absent")),
            (None, Some(new)) => Some(format!("{key}: absent -> {new}")),
        })
        .collect();
    let more = differing.len().saturating_sub(NAMED_MAX);
    let named = differing[..differing.len() - more].join("; ");
    match (differing.len(), more) {
        (0, _) => None,
        (_, 0) => Some(named),
        _ => Some(format!("{named}; and {more} more")),
    }
}

fn level(run: &Run, cell: &Cell) -> Option<Level> {
    run.levels.iter().find(|level| level.name == cell.level).cloned()
}

/// How the trials of a cell were made, by name.
fn settings(run: &Run, cell: &Cell) -> BTreeMap<String, String> {
    let mut all = plan(&run.plan);
    let Some(path) = run.paths.iter().find(|path| path.cell == *cell) else { return all };
    all.insert("congestion control".into(), path.congestion.clone().unwrap_or_else(|| "the host's".into()));
    for (interface, words) in &path.interfaces {
        for word in words.split(' ') {
            let (name, value) = word.split_once('=').unwrap_or((word, "set"));
            all.insert(format!("interface {interface} {name}"), value.to_owned());
        }
    }
    all.extend(path.filters.iter().map(|(place, filter)| (format!("filter {place}"), filter.clone())));
    all.extend(path.sysctls.iter().map(|(name, value)| (format!("sysctl {name}"), value.clone())));
    all
}

/// What of a plan decides what a trial is worth. Numbers of trials and the time for all of them do not.
fn plan(plan: &Plan) -> BTreeMap<String, String> {
    let optional = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".into());
    [
        ("seconds", plan.seconds.to_string()),
        ("warm_up_seconds", plan.warm_up_seconds.to_string()),
        ("ipv6", plan.ipv6.to_string()),
        ("processes", plan.processes.to_string()),
        ("wait", format!("{:?}", plan.wait).to_lowercase()),
        ("close", format!("{:?}", plan.close).to_lowercase()),
        ("write", plan.write.clone()),
        ("rate", optional(&plan.rate.map(|rate| rate.to_string()))),
        ("client_cpus", optional(&plan.client_cpus)),
        ("server_cpus", optional(&plan.server_cpus)),
    ]
    .map(|(name, value)| (format!("plan {name}"), value))
    .into()
}

/// True if the level says something about a setting, or about one that the kernel ties to it.
fn names(level: &Level, key: &str) -> bool {
    let last = key.rsplit(' ').next().unwrap_or(key);
    match key.split(' ').next() {
        Some("filter") => level.nftables.is_some(),
        Some("congestion") => level.congestion.is_some(),
        Some("sysctl") => {
            level.sysctl.contains_key(last) || (level.congestion.is_some() && last == "net.ipv4.tcp_congestion_control")
        }
        Some("interface") => match last {
            // Without GSO there is no TSO either.
            "gso" | "tso" => level.gso.is_some() || level.tso.is_some(),
            "gro" => level.gro.is_some(),
            "mtu" => level.mtu.is_some(),
            size if size.starts_with("gso-") || size.starts_with("gro-") => level.big_tcp_bytes.is_some(),
            _ => false,
        },
        _ => false,
    }
}
