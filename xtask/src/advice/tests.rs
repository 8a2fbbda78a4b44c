//! Tests of the page of advice and of its data.

use super::*;
use serde_json::{Value, json};

const PLAN: &str = "[[finding]]\nid = \"a\"\nlevel = \"430\"\nbase = \"plain\"\n[[finding]]\nid = \"d\"\n";
/// What `siga plan p` prints.
const LISTED: &str = "Which?\n\nvctc rr-1-1 mtu 1500 x1\nvctc rr-1-1 mtu 1500 x1 430\n\n2 cells, 9 rounds of trials, duration: about 9s\n";
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
    let cell = |level: &str, trials: u32| json!({ "path": "vctc", "workload": "rr-1-1", "mtu": 1500, "clients": 1, "level": level, "trials": trials, "skipped": null });
    let mut report = json!({
        "plan": "p", "smoke": false, "emulated": false,
        "environment": { "moment": { "time": "2026-11-28T10:00:00Z" }, "kernel": { "release": "6.18" },
            "cpu": { "model": "X", "online": 2 } },
        "cells": [cell("plain", 7), cell("430", 9)],
        "findings": [finding("z", "text", "holds"), finding("a", "plan", "does not hold")],
        "overview": [finding("b", "text", "holds")],
    });
    change(&mut report);
    report.to_string()
}

fn reduced(root: &Path, change: impl FnOnce(&mut Value), listed: &str) -> Result<(String, String), String> {
    let listed = |plan: &str| if plan == "p" { Ok(listed.to_owned()) } else { Err(format!("no plan {plan}")) };
    results::reduced(&report(change), &mut Tree { plans: plans(root), listed })
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
    let (plan, text) = reduced(dir.path(), |_| (), LISTED).unwrap();
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
        "| Take 128 | plan `p` | `a`: **does not hold** (2 of 3 cases support it, 1 contradict it; ratios of `430` to `plain`: 0.90 to 1.20); `b`: **holds** (2 of 3 cases support it, 1 contradict it; ratios: 0.90 to 1.20); `d`: not measured yet |",
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
    std::fs::write(tree.path().join("plans/p.toml"), PLAN.replace("430", "420")).unwrap();
    let problems: Vec<String> = look(tree.path()).unwrap().problems.iter().map(Problem::to_string).collect();
    assert_eq!(problems, ["docs/advice/p.json: finding a of plan p compares other levels now; measure the plan again"]);
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
    let tree = tree();
    for (change, error) in [
        ((|report| report["smoke"] = true.into()) as fn(&mut Value), "a smoke run"),
        (|report| report["emulated"] = true.into(), "an emulated machine"),
        (|report| report["plan"] = "../../etc".into(), "no plan with a usual name"),
        (|report| report["plan"] = "q".into(), "no plan q"),
        (|report| (report["findings"], report["overview"]) = (json!([]), Value::Null), "has no findings of the plan"),
        (|report| report["cells"][1]["mtu"] = 9000.into(), "has no cell `vctc rr-1-1 mtu 9000 x1 430`"),
        (|report| report["cells"][1]["skipped"] = "no root".into(), "has measured 1 of 2 cells"),
        (|report| report["environment"]["kernel"] = Value::Null, "is incomplete: the key kernel is not a text"),
    ] {
        let refused = reduced(tree.path(), change, LISTED).unwrap_err();
        assert!(refused.contains(error), "{refused}");
    }
    let refused = reduced(tree.path(), |_| (), "").unwrap_err();
    assert!(refused.contains("no cell `vctc rr-1-1 mtu 1500 x1`"), "{refused}");
    let (_, text) = reduced(tree.path(), |report| report["environment"]["cpu"]["model"] = Value::Null, LISTED).unwrap();
    std::fs::write(tree.path().join("docs/advice/p.json"), text).unwrap();
    let [read] = &results::all(&tree.path().join("docs/advice")).unwrap()[..] else { panic!("one file") };
    assert!(read.host.contains("2 CPUs (unknown model)"), "{read:?}");
    assert_eq!(results::all(Path::new("/nowhere")).unwrap(), [], "no plan was measured");
    let listed = |_: &str| Ok(String::new());
    let broken = results::reduced("no JSON", &mut Tree { plans: plans(tree.path()), listed }).unwrap_err();
    assert!(broken.starts_with("the report of the run: "));
}

/// The send and receive windows that a level permits a connection with ten segments of `mtu` bytes in its congestion window.
fn windows(root: &Path, level: &str, mtu: i64) -> [String; 2] {
    let text = read(&root.join(format!("levels/{level}.toml"))).unwrap();
    let level: toml::Table = text.parse().unwrap();
    let sysctl = |name: &str| level.get("sysctl").and_then(|own| own.get(name)?.as_str()).unwrap_or_default();
    let sizes: Vec<i64> = sysctl("net.ipv4.tcp_wmem").split(' ').filter_map(|size| size.parse().ok()).collect();
    let sent = match sizes[..] {
        [_, default, largest] => default.max(2 * 10 * (mtu - 52)).min(largest).to_string(),
        _ => "siga's own".to_owned(),
    };
    [sent, sysctl("net.ipv4.tcp_rmem").to_owned()]
}

#[test]
fn the_findings_about_windows_compare_levels_with_different_windows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let plan: toml::Table = read(&root.join("plans/windows.toml")).unwrap().parse().unwrap();
    let findings = plan["finding"].as_array().unwrap();
    assert!(!findings.is_empty());
    for finding in findings {
        for mtu in finding.get("mtus").unwrap_or(&plan["mtus"]).as_array().unwrap() {
            let [level, base] =
                ["level", "base"].map(|key| windows(root, finding[key].as_str().unwrap(), mtu.as_integer().unwrap()));
            assert_ne!(level[0], base[0], "{finding} at {mtu}");
        }
    }
    let received =
        ["window-16k", "window-32k", "window-64k", "window-128k"].map(|level| windows(root, level, 1_500)[1].clone());
    assert!(received.iter().all(|one| *one == received[0] && !one.is_empty()), "{received:?}");
}
