//! The section on the environment. It shows the hosts of the runs and the differences between them. It also shows the settings of
//! the levels, and those of the paths as they were built. All of these affect the figures.

use super::ShownRun;
use super::page::{columns, heads, table};
use maud::{Markup, html};
use serde_json::Value;
use siga_plan::level::Level;
use siga_results::environment::Environment;
use siga_results::judge::Comparison;
use siga_results::record::PathRecord;

/// Returns the section for all runs.
pub(super) fn section(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Markup {
    let mut head = vec![String::new()];
    head.extend(shown.iter().map(|shown| shown.name.clone()));
    html! {
        (table(&head, &facts(shown), 0..0))
        @for one in shown { (warnings(one, shown.len() > 1)) }
        (differences(shown, comparisons))
        @for one in shown {
            @if !one.run.levels.is_empty() {
                h3 { "Levels" @if shown.len() > 1 { " of " (one.name) } }
                (table(&heads(&["level", "what it is", "what it sets"]), &levels(&one.run.levels), 0..0))
                @for (level, ruleset) in one.run.levels.iter().filter_map(|level| Some((level, level.nftables.as_ref()?))) {
                    details { summary { "The rules of " (level.name) } (columns(ruleset)) }
                }
            }
            details {
                summary { "The whole record" @if shown.len() > 1 { " of " (one.name) } }
                (table(&heads(&["what", "value"]), &record(&one.run.environment), 0..0))
            }
            details {
                summary { "Paths as they were built" @if shown.len() > 1 { " in " (one.name) } }
                (table(&heads(&["path", "interfaces", "settings", "could not be set"]), &paths(&one.run.paths), 0..0))
            }
        }
    }
}

/// Returns the most important facts about the environment of each run: one row for each fact, one column for each run.
fn facts(shown: &[ShownRun<'_>]) -> Vec<Vec<String>> {
    type Fact = fn(&ShownRun<'_>) -> Option<String>;
    let facts: [(&str, Fact); 15] = [
        ("Program", |shown| {
            let program = &shown.run.environment.program;
            Some(format!("{} {} ({})", program.name, program.version, program.profile))
        }),
        ("Kernel", |shown| shown.run.environment.kernel.release.clone()),
        ("Preemption", |shown| shown.run.environment.kernel.preemption.clone()),
        ("CPU", |shown| shown.run.environment.cpu.model.clone()),
        ("CPUs", |shown| {
            let cpu = &shown.run.environment.cpu;
            Some(format!("{} online, {} allowed", cpu.online?, cpu.allowed?))
        }),
        ("Machine", |shown| shown.run.environment.cpu.machine.clone()),
        ("Hypervisor", |shown| shown.run.environment.cpu.hypervisor.clone()),
        ("Emulated", |shown| Some(if shown.run.environment.cpu.emulated? { "yes" } else { "no" }.into())),
        ("Frequency governor", |shown| shown.run.environment.cpu.governor.clone()),
        ("Memory", |shown| {
            Some(format!("{:.1} GiB", shown.run.environment.memory.total_bytes? as f64 / f64::from(1 << 30)))
        }),
        ("Distribution", |shown| shown.run.environment.host.distribution.clone()),
        ("Begun", |shown| shown.run.environment.moment.time.clone()),
        ("Load before", |shown| Some(format!("{:.2}", shown.run.environment.moment.load?))),
        ("Plan", |shown| Some(plan(shown))),
        ("Trials", |shown| Some(shown.run.trials.len().to_string())),
    ];
    let row = |(name, fact): (&str, Fact)| {
        let values = shown.iter().map(|shown| fact(shown).unwrap_or_else(|| "unknown".into()));
        std::iter::once(name.to_owned()).chain(values).collect()
    };
    facts.into_iter().map(row).collect()
}

fn plan(shown: &ShownRun<'_>) -> String {
    let plan = &shown.run.plan;
    let seed = plan.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    format!("{}: {} s measured, after a warm-up of {} s{seed}", plan.name, plan.seconds, plan.warm_up_seconds)
}

fn warnings(shown: &ShownRun<'_>, named: bool) -> Markup {
    let warnings = shown.run.environment.fitness();
    html! {
        @if !warnings.is_empty() {
            div class="banner" {
                strong { "What disturbs measurements on this host" @if named { " (" (shown.name) ")" } }
                ul { @for warning in &warnings { li { (warning.message) ". What to do: " (warning.hint) } } }
            }
        }
    }
}

fn differences(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Markup {
    let head = heads(&["what", "base", "new", "matters"]);
    html! {
        @if shown.len() > 1 {
            @for comparison in comparisons {
                h3 { "What differs: " (comparison.new) " against " (comparison.base) }
                @if comparison.environment.is_empty() {
                    p { "Nothing." }
                } @else {
                    (table(&head, &rows(comparison), 0..0))
                }
            }
        } @else {
            p class="soft" { "All sides of a comparison within one run have the same environment. They differ only in what the comparison names." }
        }
    }
}

fn rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let row = |difference: &siga_results::environment::Difference| {
        let matters = if difference.matters { "yes" } else { "no" };
        vec![difference.key.clone(), difference.base.clone(), difference.new.clone(), matters.to_owned()]
    };
    comparison.environment.iter().map(row).collect()
}

/// Returns the name, description and settings of each level. The settings are taken from the level's JSON form, so a new setting
/// is shown without a change in this function.
fn levels(levels: &[Level]) -> Vec<Vec<String>> {
    let row = |level: &Level| {
        let tree = serde_json::to_value(level).unwrap_or_default();
        let settings = tree.as_object().into_iter().flatten().filter(|(name, _)| *name != "name" && *name != "about");
        let told = |(name, value): (&String, &Value)| match value.as_str() {
            Some(text) if text.contains('\n') => format!("{name} = {} lines, below", text.trim().lines().count()),
            _ => format!("{name} = {value}"),
        };
        let settings: Vec<_> = settings.map(told).collect();
        let settings = if settings.is_empty() { "nothing".to_owned() } else { settings.join("; ") };
        vec![level.name.clone(), level.about.clone(), settings]
    };
    levels.iter().map(row).collect()
}

fn record(environment: &Environment) -> Vec<Vec<String>> {
    environment.flat().into_iter().map(|(key, value)| vec![key, value]).collect()
}

/// Returns one row for each path, MTU and level, because all cells of the same path, MTU and level have the same settings.
fn paths(paths: &[PathRecord]) -> Vec<Vec<String>> {
    let mut seen = Vec::new();
    let mut rows = Vec::new();
    for record in paths {
        let key = (&record.cell.path, record.cell.mtu, &record.cell.level);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let pairs = |map: &std::collections::BTreeMap<String, String>| {
            map.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join("; ")
        };
        let mtu = record.cell.mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
        let mut settings = [pairs(&record.sysctls), pairs(&record.filters)].join("; ");
        if let Some(congestion) = &record.congestion {
            settings = format!("congestion control {congestion}; {settings}");
        }
        if let Some(build) = &record.build {
            settings = format!("build {build}; {settings}");
        }
        rows.push(vec![
            format!("{}{mtu} {}", record.cell.path, record.cell.level),
            pairs(&record.interfaces),
            settings,
            record.notes.join("; "),
        ]);
    }
    rows
}
