//! Tests of the page of advice and of its data.

use super::*;
use serde_json::{Value, json};

const PLAN: &str = "[[finding]]\nid = \"a\"\n[[finding]]\nid = \"d\"\n";
const PUBLISHED: &str = "[[finding]]\nid = \"b\"\n";
const ITEMS: &str = "[[section]]\ntitle = \"Buffers\"\n\
    [[section.advice]]\nsays = \"Take 128\"\nplan = \"p\"\nfindings = [\"a\", \"b\", \"d\"]\n\
    [[section.advice]]\nsays = \"Turn it off\"\nabsent = \"siga has none.\"\n\
    [[section.advice]]\nsays = \"Look\"\nfact = \"It shows 64.\"\n";

fn report(change: impl FnOnce(&mut Value)) -> String {
    let case = |ratio: f64| json!({ "measured": ratio });
    let finding = |id: &str, from: &str, verdict: &str| {
        json!({ "id": id, "from": from, "verdict": verdict, "for": 2, "against": 1, "open": 0,
            "cases": [case(1.2004), case(0.9), { "measured": null }] })
    };
    let mut report = json!({
        "plan": "p", "smoke": false, "emulated": false,
        "environment": { "moment": { "time": "2026-11-28T10:00:00Z" }, "kernel": { "release": "6.18" },
            "cpu": { "model": "X", "online": 2 } },
        "cells": [{ "trials": 7 }, { "trials": 9 }, { "skipped": "x" }],
        "findings": [finding("z", "text", "holds"), finding("a", "plan", "does not hold")],
        "overview": [finding("b", "text", "holds")],
    });
    change(&mut report);
    report.to_string()
}

/// A source tree with the data of this page, and the results of a run.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["docs/advice", "plans", "published", "xtask/src/advice"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    std::fs::write(dir.path().join("plans/p.toml"), PLAN).unwrap();
    std::fs::write(dir.path().join("published/p.toml"), PUBLISHED).unwrap();
    std::fs::write(dir.path().join(ITEMS_PATH), ITEMS).unwrap();
    let (plan, text) = results::reduced(&report(|_| ())).unwrap();
    std::fs::write(dir.path().join(format!("docs/advice/{plan}.json")), text).unwrap();
    dir
}

#[test]
fn every_recommendation_names_a_finding_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let Data { sections, problems, .. } = look(root).unwrap();
    assert_eq!(problems, []);
    assert!(sections.iter().map(|section| section.advice.len()).sum::<usize>() >= 40);
}

#[test]
fn the_page_has_each_recommendation_with_the_verdict_of_its_findings() {
    let tree = tree();
    run(tree.path(), &Options { take: None, siga: None, check: false }).unwrap();
    let page = std::fs::read_to_string(tree.path().join(PAGE_PATH)).unwrap();
    for line in [
        "| Take 128 | plan `p` | `a`: **does not hold** (2 of 3 cases support it, 1 contradict it; ratios 0.90 to 1.20); `b`: **holds** (2 of 3 cases support it, 1 contradict it; ratios 0.90 to 1.20); `d`: not measured yet |",
        "| Turn it off | | not applicable: siga has none. |",
        "| Look | | It shows 64. |",
        "| `p` | 2026-11-28, up to 9 trials of each cell, 2 CPUs (X), Linux 6.18 |",
    ] {
        assert!(page.contains(&format!("\n{line}\n")), "{line}\n{page}");
    }
    check(tree.path()).unwrap();
    std::fs::write(tree.path().join(PAGE_PATH), page + "more\n").unwrap();
    assert!(check(tree.path()).unwrap_err().contains("write the page with `cargo xtask advice`"));
}

#[test]
fn data_that_contradicts_the_plans_is_a_problem() {
    let tree = tree();
    std::fs::write(tree.path().join("plans/p.toml"), PLAN.replace("\"a\"", "\"c\"")).unwrap();
    let problems: Vec<String> = look(tree.path()).unwrap().problems.iter().map(Problem::to_string).collect();
    assert_eq!(
        problems,
        [
            format!("{ITEMS_PATH}: `Take 128` names finding a of plan p, which does not exist"),
            "docs/advice/p.json: plan p has no finding a; measure the plan again".to_owned(),
        ]
    );
    for (text, error) in [
        (ITEMS.replace("absent", "abcent"), "Buffers: `Turn it off`: unknown key abcent"),
        (
            ITEMS.replace("absent = \"siga has none.\"\n", ""),
            "Buffers: `Turn it off`: needs one of the keys plan, fact, absent and open",
        ),
        (ITEMS.replace("[\"a\", \"b\", \"d\"]", "[]"), "Buffers: `Take 128`: names no `findings` of its plan"),
    ] {
        assert_eq!(items::read(&text).unwrap_err(), error);
    }
}

#[test]
fn only_a_run_with_verdicts_on_its_plan_becomes_a_result() {
    for (change, error) in [
        ((|report| report["smoke"] = true.into()) as fn(&mut Value), "a smoke run"),
        (|report| report["emulated"] = true.into(), "an emulated machine"),
        (|report| report["plan"] = "../../etc".into(), "no plan with a usual name"),
        (|report| (report["findings"], report["overview"]) = (json!([]), Value::Null), "has no findings of the plan"),
    ] {
        let refused = results::reduced(&report(change)).unwrap_err();
        assert!(refused.contains(error), "{refused}");
    }
    assert_eq!(results::all(Path::new("/nowhere")).unwrap(), [], "no plan was measured");
    assert!(results::reduced("no JSON").unwrap_err().starts_with("the report of the run: "));
}
