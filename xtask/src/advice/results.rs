//! The results of plans: the verdicts of one run on the plan's findings, as files in the source tree.

use std::path::Path;

use serde_json::{Value, json};

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
    /// The smallest and the largest ratio of the cases.
    pub(super) ratios: Option<(f64, f64)>,
}

/// Returns the name of the plan of a run, and the text of its file of results. `report` is the run as `siga show --format json` prints it.
///
/// Returns an error if the run gives no verdicts on a plan.
pub(super) fn reduced(report: &str) -> Result<(String, String), String> {
    let report: Value = serde_json::from_str(report).map_err(|error| format!("the report of the run: {error}"))?;
    let plan = report["plan"].as_str().filter(|plan| is_name(plan)).ok_or("the run has no plan with a usual name")?;
    if report["smoke"] == true || report["emulated"] == true {
        return Err("a smoke run and a run on an emulated machine give no verdicts".to_owned());
    }
    let all = report["findings"].as_array().into_iter().flatten();
    let overview = report["overview"].as_array().into_iter().flatten();
    let findings = all.filter(|finding| finding["from"] == "plan").chain(overview);
    let findings: Vec<Value> = findings.map(reduced_finding).collect();
    if findings.is_empty() {
        return Err(format!("the run of plan {plan} has no findings of the plan"));
    }
    let environment = &report["environment"];
    let cells = report["cells"].as_array().into_iter().flatten();
    let results = json!({
        "plan": plan,
        "day": environment["moment"]["time"].as_str().and_then(|time| time.get(..10)),
        "kernel": environment["kernel"]["release"],
        "cpu": environment["cpu"]["model"],
        "cpus": environment["cpu"]["online"],
        "trials": cells.filter_map(|cell| cell["trials"].as_u64()).max(),
        "findings": findings,
    });
    let text = serde_json::to_string_pretty(&results).map_err(|error| format!("cannot write the results: {error}"))?;
    Ok((plan.to_owned(), text + "\n"))
}

fn is_name(plan: &str) -> bool {
    !plan.is_empty() && plan.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn reduced_finding(finding: &Value) -> Value {
    let ratios = finding["cases"].as_array().into_iter().flatten().filter_map(|case| case["measured"].as_f64());
    let least = ratios.clone().reduce(f64::min);
    json!({
        "id": finding["id"],
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
            ratios: value["least"].as_f64().zip(value["most"].as_f64()),
        })
    };
    let findings = file["findings"].as_array().into_iter().flatten().map(finding);
    let (day, kernel, cpu) = (word(&file, "day")?, word(&file, "kernel")?, word(&file, "cpu")?);
    let (trials, cpus) = (count(&file, "trials")?, count(&file, "cpus")?);
    let host = format!("{day}, up to {trials} trials of each cell, {cpus} CPUs ({cpu}), Linux {kernel}");
    Ok(Results { plan: word(&file, "plan")?, host, findings: findings.collect::<Result<_, String>>()? })
}
