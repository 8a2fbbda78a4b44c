//! The results of plans: the verdicts of one run on the plan's findings, as files in the source tree.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::items::Sides;

/// The verdicts of a run on the findings of its plan.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Results {
    pub(super) plan: String,
    /// When and where the run was measured, in words.
    pub(super) host: String,
    pub(super) findings: Vec<Finding>,
}

/// The verdict on a finding.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) id: String,
    /// `holds`, `does not hold` or `cannot tell`.
    pub(super) verdict: String,
    /// The number of cases that support the finding, contradict it, and decide nothing.
    pub(super) cases: [u64; 3],
    /// The two levels of the ratios. `None` if the finding compares no levels.
    pub(super) sides: Option<Sides>,
    /// The smallest and the largest ratio of the cases.
    pub(super) ratios: Option<(f64, f64)>,
}

/// What the source tree says about plans.
pub(super) trait Shipped {
    /// Returns what `siga plan PLAN` prints.
    fn listed(&mut self, plan: &str) -> Result<String, String>;
    /// Returns the two levels that a finding of a plan compares.
    fn sides(&mut self, plan: &str, finding: &str) -> Option<Sides>;
}

/// Returns the name of the plan of a run, and the text of its file of results. `report` is the run as `siga show --format json` prints it.
///
/// Returns an error if the run gives no verdicts on a plan, or if its cells are not those of the shipped plan.
pub(super) fn reduced(report: &str, shipped: &mut impl Shipped) -> Result<(String, String), String> {
    let report: Value = serde_json::from_str(report).map_err(|error| format!("the report of the run: {error}"))?;
    let plan = report["plan"].as_str().filter(|plan| is_name(plan)).ok_or("the run has no plan with a usual name")?;
    if report["smoke"] == true || report["emulated"] == true {
        return Err("a smoke run and a run on an emulated machine give no verdicts".to_owned());
    }
    let all = report["findings"].as_array().into_iter().flatten();
    let overview = report["overview"].as_array().into_iter().flatten();
    let findings = all.filter(|finding| finding["from"] == "plan").chain(overview);
    let findings: Vec<Value> = findings
        .map(|finding| {
            let sides = finding["id"].as_str().and_then(|id| shipped.sides(plan, id));
            reduced_finding(finding, sides)
        })
        .collect();
    if findings.is_empty() {
        return Err(format!("the run of plan {plan} has no findings of the plan"));
    }
    same_cells(&report, plan, &shipped.listed(plan)?)?;
    let environment = &report["environment"];
    let cells = report["cells"].as_array().into_iter().flatten();
    let results = json!({
        "plan": plan,
        "day": environment["moment"]["time"].as_str().and_then(|time| time.get(..10)),
        "kernel": environment["kernel"]["release"],
        // Some kernels name no model.
        "cpu": environment["cpu"]["model"].as_str().unwrap_or("unknown model"),
        "cpus": environment["cpu"]["online"],
        "trials": cells.filter_map(|cell| cell["trials"].as_u64()).max(),
        "findings": findings,
    });
    let text = serde_json::to_string_pretty(&results).map_err(|error| format!("cannot write the results: {error}"))?;
    // A file that could not be read would also prevent the page from being written.
    read(&text).map_err(|error| format!("the report of the run is incomplete: {error}"))?;
    Ok((plan.to_owned(), text + "\n"))
}

/// Returns an error unless a run has measured exactly the cells that `listed`, the output of `siga plan`, names.
fn same_cells(report: &Value, plan: &str, listed: &str) -> Result<(), String> {
    let cells = report["cells"].as_array().into_iter().flatten().filter(|cell| cell["skipped"].is_null());
    let measured: BTreeSet<String> = cells.map(line_of).collect();
    let lines: BTreeSet<&str> = listed.lines().collect();
    if let Some(other) = measured.iter().find(|cell| !lines.contains(cell.as_str())) {
        return Err(format!("the run is not one of the shipped plan {plan}, which has no cell `{other}`"));
    }
    let counted = listed.lines().find_map(|line| line.split_once(" cells, ")?.0.parse::<usize>().ok());
    let planned = counted.ok_or_else(|| format!("`siga plan {plan}` does not say how many cells the plan has"))?;
    if measured.len() != planned {
        return Err(format!("the run has measured {} of {planned} cells of the plan {plan}", measured.len()));
    }
    Ok(())
}

/// Returns a cell of a report in the form in which `siga plan` lists it.
fn line_of(cell: &Value) -> String {
    let word = |key: &str| cell[key].as_str().unwrap_or_default();
    let mut line = format!("{} {}", word("path"), word("workload"));
    if let Some(mtu) = cell["mtu"].as_u64() {
        line += &format!(" mtu {mtu}");
    }
    line += &format!(" x{}", cell["clients"].as_u64().unwrap_or(0));
    if word("level") != "plain" {
        line += &format!(" {}", word("level"));
    }
    line
}

fn is_name(plan: &str) -> bool {
    !plan.is_empty() && plan.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn reduced_finding(finding: &Value, sides: Option<Sides>) -> Value {
    let (level, base) = sides.unzip();
    let ratios = finding["cases"].as_array().into_iter().flatten().filter_map(|case| case["measured"].as_f64());
    let least = ratios.clone().reduce(f64::min);
    json!({
        "id": finding["id"],
        "level": level,
        "base": base,
        "verdict": finding["verdict"],
        "for": finding["for"],
        "against": finding["against"],
        "open": finding["open"],
        "least": least.map(rounded),
        "most": ratios.reduce(f64::max).map(rounded),
    })
}

fn rounded(ratio: f64) -> f64 {
    (ratio * 1_000.0).round() / 1_000.0
}

/// Reads all files of results in a folder, in the order of their names. A folder that does not exist has none.
pub(super) fn all(folder: &Path) -> Result<Vec<Results>, String> {
    let unreadable = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut paths = Vec::new();
    if !folder.exists() {
        return Ok(Vec::new());
    }
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|it| it == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    let one = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        text.and_then(|text| read(&text)).map_err(|error| format!("{}: {error}", path.display()))
    };
    paths.iter().map(one).collect()
}

fn read(text: &str) -> Result<Results, String> {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let word = |value: &Value, key: &str| {
        value[key].as_str().map(str::to_owned).ok_or_else(|| format!("the key {key} is not a text"))
    };
    let count = |value: &Value, key: &str| value[key].as_u64().ok_or_else(|| format!("the key {key} is not a number"));
    let finding = |value: &Value| {
        Ok(Finding {
            id: word(value, "id")?,
            verdict: word(value, "verdict")?,
            cases: [count(value, "for")?, count(value, "against")?, count(value, "open")?],
            sides: word(value, "level").ok().zip(word(value, "base").ok()),
            ratios: value["least"].as_f64().zip(value["most"].as_f64()),
        })
    };
    let findings = file["findings"].as_array().into_iter().flatten().map(finding);
    let (day, kernel, cpu) = (word(&file, "day")?, word(&file, "kernel")?, word(&file, "cpu")?);
    let (trials, cpus) = (count(&file, "trials")?, count(&file, "cpus")?);
    let host = format!("{day}, up to {trials} trials of each cell, {cpus} CPUs ({cpu}), Linux {kernel}");
    Ok(Results { plan: word(&file, "plan")?, host, findings: findings.collect::<Result<_, String>>()? })
}
