//! Decides whether two cells may be compared: they must have the same settings, except those whose effect is compared.
//!
//! The settings of a path are those that were read back from the kernel and the guests when the path was built. The settings of
//! the trials come from the plan. If a level changes a setting, the comparison is about the effect of that setting. Any other
//! setting that differs makes the cells not comparable, and the verdict names it.

use super::comparison::Subject;
use crate::environment::Difference;
use crate::store::Run;
use serde_json::Value;
use siga_model::features::DriverFeatures;
use siga_plan::level::Level;
use siga_plan::matrix::Cell;
use siga_plan::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};

/// Returns, in words, the first three settings that differ although the comparison is not about them; `None` if there are none.
pub(super) fn obstacle(base: (&Run, &Cell), new: (&Run, &Cell), subject: Subject) -> Option<String> {
    const NAMED_MAX: usize = 3;
    let (base_settings, new_settings) = (settings(base.0, base.1), settings(new.0, new.1));
    let levels = (level(base.0, base.1), level(new.0, new.1));
    let compared = |key: &str| match subject {
        Subject::Paths => key.starts_with("interface "),
        Subject::Mtus => key.starts_with("interface ") && key.ends_with(" mtu"),
        Subject::Runs | Subject::Levels => names_alone(levels.0, levels.1, key),
    };
    let keys: BTreeSet<&String> = base_settings.keys().chain(new_settings.keys()).collect();
    let differing: Vec<String> = keys
        .into_iter()
        .filter(|key| !compared(key))
        .filter_map(|key| match (base_settings.get(key), new_settings.get(key)) {
            (Some(base), Some(new)) if base != new => Some(format!("{key}: {base} -> {new}")),
            (Some(_), Some(_)) | (None, None) => None,
            // Two paths have different nodes, so a setting of a node may exist on one side only.
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

/// Returns differences between two runs whose effect the user may want to measure: levels with the same name but different
/// settings, commands with the same name but different settings, and planted costs. A planted cost is a known cost that siga adds to a path, to check that a measurement finds it.
pub(super) fn differences(base: &Run, new: &Run) -> Vec<Difference> {
    let mut all = Vec::new();
    let mut compare = |key: String, base: Option<&Value>, new: Option<&Value>| {
        if base != new {
            let text = |value: Option<&Value>| value.map_or("unset".to_owned(), ToString::to_string);
            all.push(Difference { key, base: text(base), new: text(new), matters: false });
        }
    };
    for level in &base.levels {
        let Some(other) = new.levels.iter().find(|other| other.name == level.name) else { continue };
        let (own, other) = (fields(level), fields(other));
        let keys: BTreeSet<&String> = own.keys().chain(other.keys()).filter(|key| *key != "about").collect();
        keys.into_iter().for_each(|key| compare(format!("level {}.{key}", level.name), own.get(key), other.get(key)));
    }
    for (name, command) in &base.plan.workload {
        let Some(other) = new.plan.workload.get(name) else { continue };
        let value = |command| serde_json::to_value(command).unwrap_or_default();
        compare(format!("plan.workload.{name}"), Some(&value(command)), Some(&value(other)));
    }
    let plant = |run: &Run| serde_json::to_value(run.plan.plant).unwrap_or_default();
    compare("plan.plant".into(), Some(&plant(base)), Some(&plant(new)));
    all
}

fn fields(level: &Level) -> serde_json::Map<String, Value> {
    serde_json::to_value(level).ok().and_then(|value| value.as_object().cloned()).unwrap_or_default()
}

/// Returns true if one of the levels changes the setting `key` and the two levels have different settings.
fn names_alone(base: Option<&Level>, new: Option<&Level>, key: &str) -> bool {
    let named = [base, new].into_iter().flatten().any(|level| names(level, key));
    let alike = base.zip(new).is_some_and(|(base, new)| base.sets_the_same(new));
    named && !alike
}

fn level<'a>(run: &'a Run, cell: &Cell) -> Option<&'a Level> {
    run.levels.iter().find(|level| level.name == cell.level)
}

/// Returns the settings of a cell's trials by name.
fn settings(run: &Run, cell: &Cell) -> BTreeMap<String, String> {
    let mut all = plan(&run.plan);
    let Some(path) = run.paths.iter().find(|path| path.cell == *cell) else { return all };
    if let Some(congestion) = &path.congestion {
        all.insert("congestion control".into(), congestion.clone());
    }
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

/// Returns the settings of a plan that affect a trial. Every field is listed, so that a new field causes a compile error until it
/// is added here.
fn plan(plan: &Plan) -> BTreeMap<String, String> {
    let Plan {
        seconds,
        warm_up_seconds,
        ipv6,
        processes,
        wait,
        close,
        write,
        rate,
        client_cpus,
        server_cpus,
        router_cpus,
        guest_cpus,
        memory_limit,
        reach,
        // The two cells contain the values of these fields and are compared elsewhere.
        name: _,
        question: _,
        paths: _,
        workloads: _,
        // `differences` compares the commands of the cells.
        workload: _,
        mtus: _,
        clients: _,
        levels: _,
        table: _,
        include: _,
        exclude: _,
        finding: _,
        // Loads are offered after the closed loop, whose figures are compared.
        load: _,
        // The number and order of trials do not affect a single trial.
        trials: _,
        budget_seconds: _,
        seed: _,
        smoke: _,
        // `differences` compares planted costs. The accounting method is compared for each figure (in `table`).
        plant: _,
        accounting: _,
    } = plan;
    let optional = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".into());
    [
        ("seconds", seconds.to_string()),
        ("warm_up_seconds", warm_up_seconds.to_string()),
        ("ipv6", ipv6.to_string()),
        ("processes", processes.to_string()),
        ("wait", format!("{wait:?}").to_lowercase()),
        ("close", format!("{close:?}").to_lowercase()),
        ("write", write.clone()),
        ("rate", optional(&rate.map(|rate| rate.to_string()))),
        ("client_cpus", optional(client_cpus)),
        ("server_cpus", optional(server_cpus)),
        ("router_cpus", optional(router_cpus)),
        ("guest_cpus", optional(guest_cpus)),
        ("memory_limit", optional(memory_limit)),
        ("congestion", optional(&reach.congestion)),
    ]
    .map(|(name, value)| (format!("plan {name}"), value))
    .into()
}

/// Returns true if the level changes the setting itself, or changes another setting and the kernel then changes this one, too.
fn names(level: &Level, key: &str) -> bool {
    let last = key.rsplit(' ').next().unwrap_or(key);
    let has_frame = level.frame().is_some();
    match key.split(' ').next() {
        Some("filter") => level.nftables.is_some(),
        Some("congestion") => level.congestion.is_some(),
        Some("sysctl") => {
            level.sysctl.contains_key(last) || (level.congestion.is_some() && last == "net.ipv4.tcp_congestion_control")
        }
        Some("interface") => match last {
            // Builds can have other features of devices, and other defaults.
            last if level.build.is_some() && last != "mtu" => true,
            // The kernel disables TSO together with GSO.
            "gso" | "tso" => level.gso.is_some() || level.tso.is_some(),
            "gro" => level.gro.is_some(),
            // The size of the frames limits the MTU.
            "mtu" => level.mtu.is_some() || has_frame,
            "buffer_bytes" => has_frame,
            "threaded-napi" => level.threaded_napi.is_some(),
            "qdisc" => level.qdisc.is_some(),
            netem if netem.starts_with("netem-") => level.qdisc.is_some(),
            "link" | "link-from" | "link-to" => level.link.is_some(),
            "full" | "buffer_count" => level.guests.is_some(),
            // On a virtual CTC, a modelled link turns some features off.
            feature if DriverFeatures::default().named().iter().any(|(name, _)| *name == feature) => {
                level.guests.is_some() || level.link.is_some()
            }
            size if size.starts_with("gso-") || size.starts_with("gro-") => level.big_tcp_bytes.is_some(),
            _ => false,
        },
        _ => false,
    }
}
