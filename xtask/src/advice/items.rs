//! The recommendations, read from `items.toml`: sections with a title, each with its recommendations in order.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// Recommendations about one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) advice: Vec<Advice>,
}

/// A recommendation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    /// The recommendation as a sentence without its full stop.
    pub(super) says: String,
    pub(super) basis: Basis,
}

/// What decides a recommendation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Basis {
    /// Findings of a plan.
    Findings { plan: String, findings: Vec<String> },
    /// A fact about siga, which no run has to show.
    Fact(String),
    /// siga does not have what the recommendation is about, for this reason.
    Absent(String),
    /// No plan decides the recommendation yet; the text says what helps until then.
    Open(String),
}

/// Reads the file.
///
/// Returns an error for a key that is absent, unknown or of a wrong type, and for a recommendation that is decided twice.
pub(super) fn read(text: &str) -> Result<Vec<Section>, String> {
    let table: Table = text.parse().map_err(|error| format!("items.toml: {error}"))?;
    list(&table, "section")?.iter().map(section).collect()
}

fn section(table: &Table) -> Result<Section, String> {
    let title = string(table, "title")?;
    let advice = list(table, "advice")?.iter().map(advice).collect::<Result<_, _>>();
    Ok(Section { advice: advice.map_err(|error| format!("{title}: {error}"))?, title })
}

fn advice(table: &Table) -> Result<Advice, String> {
    let says = string(table, "says")?;
    let at = |error: String| format!("`{says}`: {error}");
    let known = ["says", "plan", "findings", "fact", "absent", "open"];
    if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(at(format!("unknown key {key}")));
    }
    let basis = match ["plan", "fact", "absent", "open"].map(|key| table.contains_key(key)) {
        [true, false, false, false] => {
            let findings = table.get("findings").and_then(Value::as_array).into_iter().flatten();
            let findings: Vec<String> = findings.filter_map(Value::as_str).map(str::to_owned).collect();
            if findings.is_empty() {
                return Err(at("names no `findings` of its plan".to_owned()));
            }
            Basis::Findings { plan: string(table, "plan")?, findings }
        }
        [false, true, false, false] => Basis::Fact(string(table, "fact")?),
        [false, false, true, false] => Basis::Absent(string(table, "absent")?),
        [false, false, false, true] => Basis::Open(string(table, "open")?),
        _ => return Err(at("needs one of the keys plan, fact, absent and open".to_owned())),
    };
    Ok(Advice { says, basis })
}

fn string(table: &Table, key: &str) -> Result<String, String> {
    let text = table.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    text.map(str::to_owned).ok_or_else(|| format!("the key {key} is not a text"))
}

fn list(table: &Table, key: &str) -> Result<Vec<Table>, String> {
    let values = table.get(key).and_then(Value::as_array).ok_or_else(|| format!("the key {key} is not a list"))?;
    let tables = values.iter().map(|value| value.as_table().cloned().ok_or_else(|| format!("{key} has no keys")));
    tables.collect()
}

/// The level of a finding and its base, which are the two sides of its ratios.
pub(super) type Sides = (String, String);

/// The findings of plans, which are read when they are needed.
pub(super) struct Plans<F> {
    read: F,
    findings: BTreeMap<String, Vec<(String, Option<Sides>)>>,
}

impl<F: Fn(&str) -> Vec<String>> Plans<F> {
    /// `read` returns, by the name of a plan, the texts that have its findings.
    pub(super) fn new(read: F) -> Self {
        Self { read, findings: BTreeMap::new() }
    }

    /// Returns whether a plan has a finding with this name.
    pub(super) fn has(&mut self, plan: &str, finding: &str) -> bool {
        self.findings(plan).iter().any(|(own, _)| own == finding)
    }

    /// Returns the sides of a finding. `None` if it compares no levels, but paths, as the findings of a document.
    pub(super) fn sides(&mut self, plan: &str, finding: &str) -> Option<Sides> {
        self.findings(plan).iter().find(|(own, _)| own == finding).and_then(|(_, sides)| sides.clone())
    }

    fn findings(&mut self, plan: &str) -> &[(String, Option<Sides>)] {
        let read = &self.read;
        self.findings.entry(plan.to_owned()).or_insert_with(|| {
            let tables = read(plan).into_iter().filter_map(|text| text.parse::<Table>().ok());
            let findings = tables.flat_map(|table| list(&table, "finding").unwrap_or_default());
            let sides = |finding: &Table| string(finding, "level").ok().zip(string(finding, "base").ok());
            findings.filter_map(|finding| Some((string(&finding, "id").ok()?, sides(&finding)))).collect()
        })
    }
}
