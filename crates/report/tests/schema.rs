//! The JSON of a run has exactly the members that its JSON Schema describes.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use serde_json::Value;
use siga_plan::level::Level;
use siga_report::{Format, Layout, SCHEMA, render};
use siga_results::record::Skipped;
use siga_results::store::Run;
use siga_results::testing;

/// Returns what is wrong with a value; `None` if the schema allows it. Knows the keywords that the schema uses.
fn wrong(schema: &Value, value: &Value, root: &Value, at: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return wrong(&root["$defs"][name.strip_prefix("#/$defs/").unwrap()], value, root, at);
    }
    if let Some(all) = schema["anyOf"].as_array() {
        let found: Vec<String> = all.iter().filter_map(|own| wrong(own, value, root, at)).collect();
        return (found.len() == all.len()).then(|| found.join(" | "));
    }
    if let Some(all) = schema["enum"].as_array() {
        return (!all.contains(value)).then(|| format!("{at}: {value} is not in {all:?}"));
    }
    if !schema["const"].is_null() {
        return (schema["const"] != *value).then(|| format!("{at}: {value} is not {}", schema["const"]));
    }
    let is_of = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        types @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => types
            .as_array()
            .unwrap_or_else(|| panic!("{at}: no type"))
            .iter()
            .map(|one| one.as_str().unwrap())
            .collect(),
    };
    if !types.iter().any(|name| is_of(name)) {
        return Some(format!("{at}: {value} has another type than {types:?}"));
    }
    if let (Some(members), Some(known)) = (value.as_object(), schema["properties"].as_object()) {
        let missing =
            schema["required"].as_array().unwrap().iter().find(|name| !members.contains_key(name.as_str().unwrap()));
        if let Some(name) = missing {
            return Some(format!("{at}: no {name}"));
        }
        return members.iter().find_map(|(name, member)| match known.get(name) {
            Some(own) => wrong(own, member, root, &format!("{at}.{name}")),
            None if schema["additionalProperties"] == false => Some(format!("{at}: the schema does not know {name}")),
            None => None,
        });
    }
    let items = value.as_array().filter(|_| !schema["items"].is_null());
    items.into_iter().flatten().find_map(|item| wrong(&schema["items"], item, root, &format!("{at}[]")))
}

fn run() -> Run {
    let mut run = testing::run("run", Vec::new());
    run.levels = ["plain", "reno"].map(|name| Level { name: name.into(), ..Level::plain() }).into();
    for round in 0..9_u32 {
        for (path, ms) in [("veth", 900), ("veth-routed", 1_000), ("hipersockets-routed", 400)] {
            for (level, clients) in [("plain", 1), ("plain", 10), ("reno", 1)] {
                let mut trial = testing::trial(path, round, 700, None);
                (trial.cell.level, trial.cell.clients) = (level.into(), clients);
                trial.elapsed_ns = (ms + u64::from(round * 7 % 5)) * 1_000_000;
                run.trials.push(trial);
            }
        }
    }
    let cell = testing::trial("vctc", 0, 1, None).cell;
    run.skipped.push(Skipped { cell, reason: "no such path".into() });
    run
}

#[test]
fn the_json_of_a_run_has_the_members_of_its_schema_and_no_others() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let report: Value = serde_json::from_str(&render(&run(), Format::Json, Layout::Plain, None).unwrap()).unwrap();
    for (list, least) in [("cells", 8), ("hops", 1), ("beside", 1), ("comparisons", 2)] {
        assert!(report[list].as_array().unwrap().len() >= least, "{list}: {report:#}");
    }
    assert_eq!(wrong(&schema, &report, &schema, "result"), None);
    // The check finds an unknown member, a missing one and a wrong type.
    for change in [
        (|report: &mut Value| report["cells"][0]["more"] = 1.into()) as fn(&mut Value),
        |report| drop(report["cells"][0].as_object_mut().unwrap().remove("rate")),
        |report| report["comparisons"][0]["cells"][0]["ratio"] = "2".into(),
    ] {
        let mut changed = report.clone();
        change(&mut changed);
        assert!(wrong(&schema, &changed, &schema, "result").is_some());
    }
}
