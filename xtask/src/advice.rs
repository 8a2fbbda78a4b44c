//! The page of advice: recommendations about networks, and siga's verdicts.
//!
//! `advice/items.toml` has the recommendations. Each names the findings of a plan that decide it, or says why siga cannot decide it. The
//! results are in `docs/advice/PLAN.json`, one file for each plan that was measured. `--take RUN` writes such a file from a run. A
//! recommendation whose plan has no results, or not those of its findings, is *not measured yet*.

mod items;
mod page;
mod results;

use std::path::{Path, PathBuf};
use std::process::Command;

use self::items::{Basis, Plans, Section, Sides};
use self::results::{Results, Shipped};
use crate::command;
use crate::tidy::{self, Problem};

/// The page for readers, which this task writes.
const PAGE_PATH: &str = "docs/advice.md";
/// The recommendations.
const ITEMS_PATH: &str = "xtask/src/advice/items.toml";
/// The folder with the results of plans.
const RESULTS_PATH: &str = "docs/advice";
/// The program that reads runs and plans, if the user names none.
const PROGRAM: &str = "cargo run --quiet --release --package siga --";

/// The options of `cargo xtask advice`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory of a run of a plan: write the run's findings into docs/advice, then the page
    #[arg(long, conflicts_with = "check")]
    take: Option<PathBuf>,
    /// Program with which --take reads the run. Default: this source tree, built with --release
    #[arg(long, requires = "take")]
    siga: Option<PathBuf>,
    /// Check the recommendations, the results and the page, without writing anything
    #[arg(long)]
    check: bool,
}

/// Writes the page, or compares it with its data. Returns an error if the data contradicts the plans.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    if let Some(run) = &options.take {
        take(root, run, options.siga.as_deref())?;
    }
    let Data { sections, results, problems } = look(root)?;
    let written = page::markdown(&sections, &results);
    let path = root.join(PAGE_PATH);
    if !options.check {
        std::fs::write(&path, &written).map_err(|error| format!("cannot write {PAGE_PATH}: {error}"))?;
    } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&written) {
        tidy::conclude("advice", &problems)?;
        return Err(format!("{PAGE_PATH} does not match its data; write the page with `cargo xtask advice`"));
    }
    tidy::conclude("advice", &problems)
}

/// Writes the file of results of a run, which `program` reads.
fn take(root: &Path, run: &Path, program: Option<&Path>) -> Result<(), String> {
    let siga = || program.map_or_else(|| command::command(root, PROGRAM), Command::new);
    let mut show = siga();
    show.arg("show").arg(run).args(["--format", "json"]);
    let listed = |plan: &str| {
        let mut list = siga();
        list.args(["plan", plan]);
        command::output(list)
    };
    let mut tree = Tree { plans: plans(root), listed };
    let (plan, text) = results::reduced(&command::output(show)?, &mut tree)?;
    let folder = root.join(RESULTS_PATH);
    let path = folder.join(format!("{plan}.json"));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, text));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The plans of the source tree, and a function that lists the cells of a plan.
struct Tree<F, L> {
    plans: Plans<F>,
    listed: L,
}

impl<F: Fn(&str) -> Vec<String>, L: FnMut(&str) -> Result<String, String>> Shipped for Tree<F, L> {
    fn listed(&mut self, plan: &str) -> Result<String, String> {
        (self.listed)(plan)
    }

    fn sides(&mut self, plan: &str, finding: &str) -> Option<Sides> {
        self.plans.sides(plan, finding)
    }
}

/// Returns the plans of a source tree. The document of a study states findings, too.
fn plans(root: &Path) -> Plans<impl Fn(&str) -> Vec<String>> {
    Plans::new(move |name| {
        let texts = ["plans", "published"].map(|folder| read(&root.join(folder).join(format!("{name}.toml"))));
        texts.into_iter().flatten().collect()
    })
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Compares the page with its data, as `cargo xtask ci` does.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    run(root, &Options { take: None, siga: None, check: true })
}

/// The recommendations, the results, and all contradictions between them and the plans.
#[derive(Debug)]
struct Data {
    sections: Vec<Section>,
    results: Vec<Results>,
    problems: Vec<Problem>,
}

/// Reads the data of the page.
fn look(root: &Path) -> Result<Data, String> {
    let sections = items::read(&read(&root.join(ITEMS_PATH))?)?;
    let results = results::all(&root.join(RESULTS_PATH))?;
    let mut plans = plans(root);
    let mut problems = Vec::new();
    for advice in sections.iter().flat_map(|section| &section.advice) {
        let Basis::Findings { plan, findings } = &advice.basis else { continue };
        let missing = findings.iter().filter(|finding| !plans.has(plan, finding));
        problems.extend(missing.map(|finding| {
            let what = format!("`{}` names finding {finding} of plan {plan}, which does not exist", advice.says);
            Problem::new(ITEMS_PATH, what)
        }));
    }
    for result in &results {
        let stale = result.findings.iter().filter(|finding| {
            plans.has(&result.plan, &finding.id) && plans.sides(&result.plan, &finding.id) != finding.sides
        });
        problems.extend(stale.map(|finding| {
            let what = format!(
                "finding {} of plan {} compares other levels now; measure the plan again",
                finding.id, result.plan
            );
            Problem::new(format!("{RESULTS_PATH}/{}.json", result.plan), what)
        }));
        let missing = result.findings.iter().filter(|finding| !plans.has(&result.plan, &finding.id));
        problems.extend(missing.map(|finding| {
            let what = format!("plan {} has no finding {}; measure the plan again", result.plan, finding.id);
            Problem::new(format!("{RESULTS_PATH}/{}.json", result.plan), what)
        }));
    }
    Ok(Data { sections, results, problems })
}

#[cfg(test)]
mod tests;
