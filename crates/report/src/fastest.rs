//! Answers which path is the fastest for which kind of work.

use super::answer::{KINDS, all, rows, span};
use siga_model::error::Result;
use siga_results::judge::{self, Comparison, Judged, Metric, Verdict};
use siga_results::store::Run;
use siga_results::summary::has_router;
use std::collections::BTreeMap;

/// Returns which path suits which work: for each kind of work the fastest direct path and the fastest path through a router. A path is the
/// fastest if its rate is better than those of all others in every cell; otherwise the paths that may be as fast are named, too.
pub(super) fn connectivity(run: &Run, judged: &Judged) -> Result<String> {
    let mut known: BTreeMap<(String, String), Comparison> = BTreeMap::new();
    let mut sentences = Vec::new();
    for (shapes, kind) in KINDS {
        let mut found = Vec::new();
        for (routed, way) in [(false, "directly"), (true, "through a router")] {
            let cells = || {
                let all = judged.agreed.cells.iter();
                all.filter(|one| {
                    one.cell.workload.shape().is_some_and(|shape| shapes.contains(&shape))
                        && has_router(&one.cell) == routed
                })
            };
            let mut rates: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
            cells().for_each(|one| rates.entry(&one.cell.path).or_default().push(one.rate.ln()));
            let most = rates.values().map(Vec::len).max().unwrap_or(0);
            rates.retain(|_, own| own.len() == most);
            let Some((best, _)) =
                rates.iter().max_by(|one, other| one.1.iter().sum::<f64>().total_cmp(&other.1.iter().sum::<f64>()))
            else {
                continue;
            };
            // Paths that were measured at different levels have no cell in common. None of them is the fastest of all.
            if rates.keys().any(|other| other != best && !judge::share_a_cell(run, other, best)) {
                continue;
            }
            let (mut ties, mut reference) = (Vec::new(), None);
            for other in rates.keys().filter(|path| *path != best) {
                let key = ((*other).to_owned(), (*best).to_owned());
                if !known.contains_key(&key) {
                    known.insert(key.clone(), judge::paths(run, other, best)?);
                }
                let own = rows(&known[&key], Metric::Rate, shapes);
                if !all(&own, &Verdict::Better) {
                    ties.push(*other);
                } else if ["veth", "veth-routed"].contains(other) || rates.len() == 2 {
                    reference = Some(format!("{} times {other}", span(&own)));
                }
            }
            let reference = reference.map(|words| format!(" ({words})")).unwrap_or_default();
            found.push(match (rates.len(), ties.as_slice()) {
                (1, _) => continue,
                (_, []) => format!("{best} {way}{reference}"),
                (_, ties) => format!(
                    "{best} or {} {way}{reference}, which this run cannot tell apart in every cell",
                    ties.join(" or ")
                ),
            });
        }
        if !found.is_empty() {
            sentences.push(format!("for {kind}: {}", found.join(", and ")));
        }
    }
    Ok(if sentences.is_empty() { String::new() } else { format!("Fastest {}.", sentences.join("; ")) })
}

#[cfg(test)]
mod tests {
    use crate::{Format, Layout, html, render};
    use siga_plan::level::Level;
    use siga_results::{judge, testing};

    #[test]
    fn paths_without_a_common_level_are_reported_each_on_its_own() {
        let mut run = testing::run("run", Vec::new());
        for (path, level) in [("hipersockets", "430"), ("loopback", "bigtcp")] {
            run.levels.push(Level { name: level.to_owned(), ..Level::plain() });
            for round in 0..9 {
                let mut trial = testing::trial(path, round, 700, None);
                trial.cell.level = level.to_owned();
                run.trials.push(trial);
            }
        }
        for format in [Format::Text, Format::Md, Format::Json, Format::Csv] {
            let text = render(&run, format, Layout::Plain, None).unwrap();
            assert!(text.contains("hipersockets") && text.contains("loopback"), "{text}");
            assert!(!text.contains("Fastest"), "{text}");
        }
        render(&run, Format::Text, Layout::Zvm, None).unwrap();
        html::html(&[run.clone()], &judge::within(&run).unwrap()).unwrap();
        for trial in &mut run.trials {
            trial.cell.level = "430".to_owned();
        }
        let text = render(&run, Format::Text, Layout::Plain, None).unwrap();
        assert!(text.contains("hipersockets") && text.contains("Fastest for request-response"), "{text}");
    }
}
