//! Shows the measured figures behind the verdict on a finding: the deciding cases, the components whose CPU time differs between
//! the levels, and the counters of the devices. The sentences contain only figures, and never guess a cause.

use super::check::{CheckedCase, CheckedFinding, FindingVerdict, Stance};
use super::findings::Finding;
use super::pairs::Pair;
use super::repeat::Repeat;
use super::rows::components;
use super::table::ratio_text;
use crate::words::{cpu_scale, number};
use siga_plan::path::guest::NAMES;
use siga_plan::workload::Unit;
use siga_results::record::{DEVICE_COUNTERS, total};
use siga_results::summary::{Component, Reduced, Summary};

/// Maximum number of cases that are explained for a finding that does not hold.
const EXPLAINED_MAX: usize = 2;
/// A relative change of CPU time up to this fraction counts as no change (0.01 is 1%).
const SAME: f64 = 0.01;

/// Returns sentences about a finding: the range of all its cases, then an explanation of the deciding cases.
pub(crate) fn sentences(judged: &CheckedFinding, reduced: &Reduced, repeat: &Repeat) -> Vec<String> {
    let mut all: Vec<String> = ranges(&judged.cases).into_iter().chain(printed(judged)).collect();
    for case in deciding(judged) {
        let lead = match case.speaks {
            Stance::For => "Nearest to the bounds",
            Stance::Against => "Farthest outside",
            Stance::Neither { .. } => "Least clear",
        };
        all.push(format!("{lead}: {}.", case.name));
        for at in &case.pairs {
            let pair = &repeat.pairs[*at];
            let sides = [&reduced.cells[pair.base], &reduced.cells[pair.new]];
            all.extend(of_pair(&judged.finding, pair, sides, case.pairs.len() > 1));
        }
    }
    all
}

/// Returns a sentence with the range of all measured figures of the cases, and the range of the published figures of the same
/// cases. Returns `None` if nothing was measured.
fn ranges(cases: &[CheckedCase]) -> Option<String> {
    let range = |values: Vec<f64>| {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        let (low, high) = (ratio_text(low), ratio_text(high));
        Some(if low == high { low } else { format!("{low} to {high}") })
    };
    let own = range(cases.iter().filter_map(|case| Some(case.measured?.value)).collect())?;
    let measured = cases.iter().filter(|case| case.measured.is_some());
    let published = range(measured.filter_map(|case| case.published).collect());
    Some(match published {
        Some(published) => format!("Measured {own}; published {published} for the same cases."),
        None => format!("Measured {own}; the report has no figures for the same cases."),
    })
}

/// Returns a sentence with the number of cases that lie within the bounds in the report's own tables; `None` if all of them do.
fn printed(judged: &CheckedFinding) -> Option<String> {
    let values: Vec<f64> = judged.cases.iter().filter_map(|case| case.published).collect();
    let within = values.iter().filter(|value| judged.finding.allows(**value)).count();
    let all = values.len();
    (within < all).then(|| format!("The report's own tables support the finding with {within} of {all} cases."))
}

/// Returns the cases that decided the verdict, sorted by [`badness`]:
/// - For a finding that does not hold, the cases that contradict it and lie farthest outside the bounds, up to
///   [`EXPLAINED_MAX`].
/// - For a finding that holds, the case that lies nearest to the bounds.
/// - For an undecided finding, the case among those that decide nothing whose estimate lies farthest outside the bounds. If all
///   estimates lie inside, the one nearest to a bound.
fn deciding(judged: &CheckedFinding) -> Vec<&CheckedCase> {
    let wanted = |case: &&CheckedCase| match (judged.verdict, &case.speaks) {
        (FindingVerdict::Holds, Stance::For)
        | (FindingVerdict::DoesNotHold, Stance::Against)
        | (FindingVerdict::CannotTell, Stance::Neither { .. }) => case.measured.is_some(),
        (FindingVerdict::Holds | FindingVerdict::DoesNotHold | FindingVerdict::CannotTell, _) => false,
    };
    let mut cases: Vec<&CheckedCase> = judged.cases.iter().filter(wanted).collect();
    let worst = |case: &CheckedCase| badness(&judged.finding, case);
    cases.sort_by(|left, right| worst(right).total_cmp(&worst(left)));
    // Several cases can be computed from the same pairs of cells. Only the first of these cases is kept, so that no pair is
    // explained twice.
    let mut explained: Vec<&[usize]> = Vec::new();
    cases.retain(|case| {
        let is_known = explained.contains(&case.pairs.as_slice());
        explained.push(&case.pairs);
        !is_known
    });
    cases.truncate(if judged.verdict == FindingVerdict::DoesNotHold { EXPLAINED_MAX } else { 1 });
    cases
}

/// Returns how far the estimate of a case lies outside the bounds, as a difference of logarithms. The distance is negative if the
/// estimate lies within the bounds.
fn badness(finding: &Finding, case: &CheckedCase) -> f64 {
    let log = case.measured.map_or(f64::NEG_INFINITY, |measured| measured.value.ln());
    let above = finding.above.map(|above| above.ln() - log);
    let below = finding.below.map(|below| log - below.ln());
    above.into_iter().chain(below).fold(f64::NEG_INFINITY, f64::max)
}

/// Returns sentences about one pair of cells. They are about the stacks that occur in the names of the finding's rows (such as
/// `tcpip2`). If no stack occurs there, they are about the whole system.
fn of_pair(finding: &Finding, pair: &Pair, sides: [&Summary; 2], several: bool) -> Vec<String> {
    let lead =
        if several { format!("{} {} x{}: ", pair.cell.path, mtu(pair), pair.cell.clients) } else { String::new() };
    let rows = [Some(&finding.row), finding.over.row.as_ref()];
    let mut named: Vec<&str> =
        rows.into_iter().flatten().filter_map(|row| NAMES.into_iter().find(|stack| row.starts_with(stack))).collect();
    named.dedup();
    let mut all = Vec::new();
    for stack in named {
        all.extend(component(stack, sides, [&pair.base_level, &pair.cell.level]).map(|words| format!("{lead}{words}")));
        all.extend(devices(stack, sides).map(|words| format!("{lead}{words}")));
    }
    // If the finding is about a share of the total CPU time or about a utilisation, its figure also depends on other processes.
    // So there is also a sentence about the whole system.
    let of_system = finding.over.row.as_deref() == Some("cpu") || finding.row.ends_with("_util");
    if all.is_empty() || of_system {
        all.push(format!("{lead}{}", system(sides, [&pair.base_level, &pair.cell.level])));
    }
    all
}

fn mtu(pair: &Pair) -> String {
    let mtu = pair.cell.mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
    format!("{}{mtu}", pair.cell.workload)
}

fn of(name: &str, side: &Summary) -> Option<Component> {
    components(&side.cpu, &side.cell).into_iter().find(|(own, _)| *own == name).map(|(_, component)| component)
}

/// Returns a sentence with the parts of a stack's CPU time (virtual, CP, wait) at both levels, and with the part that changed
/// most. Returns `None` if a cell does not have this stack as a component.
fn component(stack: &str, sides: [&Summary; 2], levels: [&str; 2]) -> Option<String> {
    let unit = sides[0].cell.workload.unit();
    let (scale, name) = cpu_scale(unit);
    let [base, new] = [of(stack, sides[0])?, of(stack, sides[1])?];
    let parts: Vec<(&str, f64, f64)> =
        vec![("virtual", base.user, new.user), ("CP", base.kernel, new.kernel), ("wait", base.wait, new.wait)];
    let words: Vec<String> = parts
        .iter()
        .filter(|(_, base, new)| *base > 0.0 || *new > 0.0)
        .map(|(part, base, new)| format!("{part} {} to {}", number(base * scale), number(new * scale)))
        .collect();
    let (from, to) = (number(base.total * scale), number(new.total * scale));
    let [old, other] = levels;
    let changes = parts.iter().map(|(part, base, new)| (*part, new - base));
    Some(format!(
        "{stack}, {old} to {other} in {name}: {from} to {to} ({}){}.",
        words.join(", "),
        most(changes.collect(), new.total - base.total, base.total, scale)
    ))
}

/// Returns, in words, the part that contributed most to the change of a total. `changes` are the changes of the parts, `whole` is
/// the change of the total, `before` is the total at the base level. All are multiplied by `scale` when they are shown.
fn most(changes: Vec<(&str, f64)>, whole: f64, before: f64, scale: f64) -> String {
    if whole.abs() <= SAME * before.abs() {
        return "; almost no change".to_owned();
    }
    let most = changes.into_iter().max_by(|left, right| (left.1 * whole).total_cmp(&(right.1 * whole)));
    let sign = |value: f64| if value > 0.0 { "+" } else { "" };
    most.map_or_else(String::new, |(part, change)| {
        let (change, whole) = (change * scale, whole * scale);
        format!("; of {}{} the most is {part}: {}{}", sign(whole), number(whole), sign(change), number(change))
    })
}

/// Returns a sentence with the counters of a stack's devices, per unit, at both levels. Returns `None` if all of them are zero.
fn devices(stack: &str, sides: [&Summary; 2]) -> Option<String> {
    let counted = sides.map(|side| counts(stack, side));
    // In records of earlier versions of siga, which lack these counters, all of them count as zero.
    if counted.iter().flatten().all(|count| *count == 0.0) {
        return None;
    }
    let unit = match sides[0].cell.workload.unit() {
        Unit::Transaction => "per transaction",
        Unit::Megabyte => "per megabyte",
        Unit::Run => "per run",
    };
    let words: Vec<String> = DEVICE_COUNTERS
        .iter()
        .enumerate()
        .filter(|(at, _)| counted.iter().any(|side| side[*at] > 0.0))
        .map(|(at, counter)| format!("{counter} {} to {}", number(counted[0][at]), number(counted[1][at])))
        .collect();
    Some(format!("Devices of {stack}, {unit}: {}.", words.join(", ")))
}

/// Returns the counters of a stack's devices in the median trial, divided by the number of units. The order is that of
/// [`DEVICE_COUNTERS`].
fn counts(stack: &str, side: &Summary) -> [f64; DEVICE_COUNTERS.len()] {
    let trial = &side.median;
    DEVICE_COUNTERS.map(|counter| {
        let of_stack = trial.devices.iter().filter(|(name, _)| {
            let place = name.strip_prefix(stack).and_then(|rest| rest.strip_prefix('/'));
            place.and_then(|place| place.rsplit_once(' ')).is_some_and(|(_, own)| own == counter)
        });
        let sum = total(of_stack.map(|(_, count)| *count));
        if trial.units() > 0.0 { sum as f64 / trial.units() } else { 0.0 }
    })
}

/// Returns a sentence with the CPU time of all components at both levels, and with the busiest component at each level.
fn system(sides: [&Summary; 2], levels: [&str; 2]) -> String {
    let unit = sides[0].cell.workload.unit();
    let (scale, name) = cpu_scale(unit);
    let [base, new] = sides.map(|side| components(&side.cpu, &side.cell));
    let mut changes = Vec::new();
    let mut words = Vec::new();
    for (part, own) in &base {
        let Some((_, other)) = new.iter().find(|(name, _)| name == part) else { continue };
        changes.push((*part, other.total - own.total));
        words.push(format!("{part} {} to {}", number(own.total * scale), number(other.total * scale)));
    }
    let totals = sides.map(|side| side.cpu.total.total);
    let [old, other] = levels;
    format!(
        "CPU, {old} to {other} in {name}: {} to {} ({}){}. Busiest: {}.",
        number(totals[0] * scale),
        number(totals[1] * scale),
        words.join(", "),
        most(changes, totals[1] - totals[0], totals[0], scale),
        [busiest(sides[0]), busiest(sides[1])]
            .map(|words| words.unwrap_or_else(|| "no component".to_owned()))
            .join(", then ")
    )
}

/// Returns, in words, the component that used most CPU time in the median trial, with its utilisation and the host's.
fn busiest(side: &Summary) -> Option<String> {
    let trial = &side.median;
    let all = components(&side.cpu, &side.cell);
    let (name, part) = all.into_iter().max_by(|left, right| left.1.total.total_cmp(&right.1.total))?;
    let util = 100.0 * part.total * trial.units() * 1e6 / trial.cpu.wall_ns.max(1) as f64;
    Some(format!("{name} with {util:.0}% of a CPU (whole host: {:.0}%)", side.cpu.utilisation))
}
