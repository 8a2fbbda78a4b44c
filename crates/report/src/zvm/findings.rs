//! The findings of z/VM's report on levels 420 and 430 as data. Each finding is a statement with bounds for figures of the
//! report's tables.
//!
//! A finding holds if *every* one of its cases lies within its bounds. A case is a figure (the ratio of both levels, or the value
//! at one level). It can also be the quotient of two figures from different tables, rows or numbers of clients. The module
//! `check` computes the same cases from the cells of a run.

use super::published::{PublishedTable, metric};
use crate::words::counted;
use serde::Deserialize;
use siga_model::error::{Error, Result};

pub(crate) const FINDINGS: &str = include_str!("../../../../published/findings.toml");

/// The levels that the tables compare: the base level, then the changed level.
pub(crate) const LEVELS: [&str; 2] = ["420", "430"];

/// One finding, as in the file `findings.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    /// The name that identifies the finding in files and reports.
    pub(crate) id: String,
    /// The finding as a sentence.
    pub(crate) says: String,
    /// The origin of the finding.
    pub(crate) from: Origin,
    /// Whether the finding is about ratios of both levels or about the values at each level.
    pub(crate) figure: Figure,
    /// The row that contains the figures, without its unit: `rate`, `cpu`, `tcpip2_cpu`, `tcpip3_tot_cpu_util`.
    pub(crate) row: String,
    /// The numbers of the tables that the finding is about. If there are none, the finding is about every cell that was measured
    /// at both levels.
    #[serde(default)]
    pub(crate) tables: Vec<String>,
    /// The numbers of clients that the finding is about, in each of the tables.
    #[serde(default)]
    pub(crate) clients: Vec<u32>,
    /// The denominator of each case, if cases are quotients. If all members of `over` are absent, each case is a single figure.
    #[serde(default)]
    pub(crate) over: Over,
    /// The finding holds only if every case is larger than this bound; `None` if there is no lower bound.
    pub(crate) above: Option<f64>,
    /// The finding holds only if every case is smaller than this bound; `None` if there is no upper bound.
    pub(crate) below: Option<f64>,
}

/// The origin of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// The text of the report states the finding.
    Text,
    /// The tables of the report show the finding, but the report's text does not mention it.
    Tables,
    /// The finding is a question that siga asks, not a statement of the report.
    Siga,
    /// The run's plan states the finding. It is about the ratio of two levels of the plan.
    Plan,
    /// The finding is an entry of the throughput overview of 2009. It is about the ratio of two connections.
    Overview,
}

impl Origin {
    /// Returns the name that files use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Tables => "tables",
            Self::Siga => "siga",
            Self::Plan => "plan",
            Self::Overview => "overview",
        }
    }
}

/// The kind of figure that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Figure {
    /// The value at 430 (the changed level) divided by the value at 420 (the base level).
    Ratio,
    /// The value at each of the two levels. Each level is a separate case.
    Levels,
}

/// The denominator of a finding's cases. It can be in another table, row or column than the numerator. A member that is absent is
/// the same as for the numerator.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Over {
    /// The tables that contain the denominators. Their order is that of [`Finding::tables`], which are the tables that contain the
    /// numerators.
    pub(crate) tables: Option<Vec<String>>,
    /// The row that has the denominator.
    pub(crate) row: Option<String>,
    /// The number of clients for which the denominator is taken.
    pub(crate) clients: Option<u32>,
}

/// One case of a finding: a figure, or the quotient of two figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    /// The numerator, or the only figure.
    pub(crate) top: Term,
    /// The denominator; `None` if the case is a single figure.
    pub(crate) bottom: Option<Term>,
}

/// The position of one figure in the published tables.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    /// The number of the table.
    pub(crate) table: String,
    /// The number of clients, which selects the columns of the table.
    pub(crate) clients: u32,
    /// The name of the row, without its unit.
    pub(crate) row: String,
    /// The index of the level in [`LEVELS`]; `None` for the ratio of both levels.
    pub(crate) level: Option<usize>,
}

impl Finding {
    /// Returns a finding that a plan states. `row` is the row of its figure.
    pub(crate) fn of_plan(stated: &siga_plan::plan::finding::Finding, row: &str) -> Self {
        let own = Self::of_ratio(&stated.id, &stated.says, (stated.above, stated.below), Origin::Plan);
        Self { row: row.to_owned(), ..own }
    }

    /// Returns a finding about ratios of rates that are not in the report's tables. `bounds` are the lower and the upper one.
    pub(crate) fn of_ratio(id: &str, says: &str, bounds: (Option<f64>, Option<f64>), from: Origin) -> Self {
        Self {
            id: id.to_owned(),
            says: says.to_owned(),
            from,
            figure: Figure::Ratio,
            row: "rate".to_owned(),
            tables: Vec::new(),
            clients: Vec::new(),
            over: Over::default(),
            above: bounds.0,
            below: bounds.1,
        }
    }

    /// Returns the cases of a finding that names tables. If the finding names none, it is about every cell of a run, so the
    /// result is empty.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (at, table) in self.tables.iter().enumerate() {
            for &clients in &self.clients {
                for &level in self.levels() {
                    let top = Term { table: table.clone(), clients, row: self.row.clone(), level };
                    cases.push(Case { bottom: self.bottom(&top, at), top });
                }
            }
        }
        cases
    }

    /// Returns the levels for which the finding has cases, as indices in [`LEVELS`]. `None` stands for the ratio of both levels.
    pub(crate) fn levels(&self) -> &'static [Option<usize>] {
        match self.figure {
            Figure::Ratio => &[None],
            Figure::Levels => &[Some(0), Some(1)],
        }
    }

    /// Returns the denominator that belongs to the numerator `top`; `None` if cases are single figures. `at` is the index of the
    /// numerator's table in [`Finding::tables`].
    fn bottom(&self, top: &Term, at: usize) -> Option<Term> {
        let Over { tables, row, clients } = &self.over;
        (self.over != Over::default()).then(|| Term {
            table: tables.as_ref().and_then(|tables| tables.get(at)).unwrap_or(&top.table).clone(),
            clients: clients.unwrap_or(top.clients),
            row: row.as_ref().unwrap_or(&top.row).clone(),
            level: top.level,
        })
    }

    /// Returns true if a value lies within the bounds.
    pub(crate) fn allows(&self, value: f64) -> bool {
        self.above.is_none_or(|above| value > above) && self.below.is_none_or(|below| value < below)
    }

    /// Returns the bounds in words: `below 1`, `0.9 to 1.1`.
    pub(crate) fn bounds(&self) -> String {
        match (self.above, self.below) {
            (Some(above), Some(below)) => format!("{above} to {below}"),
            (Some(above), None) => format!("above {above}"),
            (None, Some(below)) => format!("below {below}"),
            (None, None) => "anything".to_owned(),
        }
    }
}

impl Case {
    /// Returns the figure or quotient that the published tables give for the case; `None` if they lack a figure.
    pub(crate) fn published(&self, tables: &[PublishedTable]) -> Option<f64> {
        let top = self.top.published(tables)?;
        match &self.bottom {
            Some(bottom) => Some(top / bottom.published(tables)?),
            None => Some(top),
        }
    }

    /// Returns the name of the case in words: "Table 1 over table 2, 10 clients, 430".
    pub(crate) fn name(&self) -> String {
        let mut name = format!("Table {}", self.top.table);
        if let Some(bottom) = self.bottom.as_ref().filter(|bottom| bottom.table != self.top.table) {
            name += &format!(" over table {}", bottom.table);
        }
        name += &format!(", {}", counted(self.top.clients as usize, "client"));
        if let Some(bottom) = self.bottom.as_ref().filter(|bottom| bottom.clients != self.top.clients) {
            name += &format!(" over {}", bottom.clients);
        }
        if let Some(level) = self.top.level {
            name += &format!(", {}", LEVELS[level]);
        }
        name
    }
}

impl Term {
    fn published(&self, tables: &[PublishedTable]) -> Option<f64> {
        let table = tables.iter().find(|table| table.id == self.table)?;
        let figures = table.figures(&metric(&self.row, table.unit()), self.clients)?;
        Some(figures[self.level.unwrap_or(LEVELS.len())])
    }
}

/// Returns all findings in the order of the file `findings.toml`. Returns an error of kind `Incomplete` if the file is invalid. The
/// file is part of the program and is tested, so users never see this error.
pub(crate) fn findings() -> Result<Vec<Finding>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        finding: Vec<Finding>,
    }
    let file: File = toml::from_str(FINDINGS).map_err(|error| Error::incomplete(format!("findings.toml: {error}")))?;
    Ok(file.finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zvm::published::shown;
    use std::collections::HashSet;

    /// The findings of the text that some of the report's own cases contradict, with the number of these cases.
    const CONTRADICTED: [(&str, usize); 3] =
        [("server-gains", 4), ("throughput-up", 2), ("crr-server-is-the-bottleneck", 13)];

    #[test]
    fn every_finding_holds_in_the_tables_it_is_about() {
        let tables = shown().unwrap();
        let all = findings().unwrap();
        let ids: HashSet<&str> = all.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids.len(), all.len(), "a finding has a name of its own");
        for finding in &all {
            let lengths = finding.over.tables.as_ref().map_or(finding.tables.len(), Vec::len);
            assert_eq!(lengths, finding.tables.len(), "{}: a denominator for each table", finding.id);
            assert_eq!(finding.tables.is_empty(), finding.from == Origin::Siga, "{}", finding.id);
            assert!(finding.above.is_some() || finding.below.is_some(), "{} cannot fail", finding.id);
            let value = |case: &Case| case.published(&tables).unwrap_or_else(|| panic!("{}: not printed", case.name()));
            let outside: Vec<Case> = finding.cases().into_iter().filter(|case| !finding.allows(value(case))).collect();
            let known = CONTRADICTED.iter().find(|(id, _)| *id == finding.id).map_or(0, |(_, count)| *count);
            assert_eq!(outside.len(), known, "{}, to be {}: {outside:?}", finding.id, finding.bounds());
            assert!(known == 0 || finding.from == Origin::Text, "{}: read from the tables", finding.id);
        }
    }

    #[test]
    fn cases_have_the_names_of_the_figures_that_they_compare() {
        let all = findings().unwrap();
        let names = |id: &str| -> Vec<String> {
            all.iter().find(|one| one.id == id).unwrap().cases().iter().map(Case::name).collect()
        };
        assert_eq!(names("router-gains-most-at-1500")[2], "Table 1 over table 2, 10 clients");
        assert_eq!(names("router-alike-for-any-clients")[0], "Table 1, 1 client over 10");
        assert_eq!(names("crr-server-is-the-bottleneck")[..2], ["Table 3, 1 client, 420", "Table 3, 1 client, 430"]);
        assert_eq!(names("router-below-everywhere"), [""; 0]);
    }
}
