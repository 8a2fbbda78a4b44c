//! The findings of the report on levels 420 and 430 as data: each is a predicate over figures of its tables.
//!
//! A finding holds if *every* one of its cases lies within its bounds. A case is a figure (the ratio of both levels, or the value
//! at one of them) or the quotient of two figures from different tables, rows or numbers of clients. `check` reads the same
//! cases from a run.

use super::published::{PublishedTable, metric};
use crate::words::counted;
use serde::Deserialize;
use siga_model::error::{Error, Result};

pub(crate) const FINDINGS: &str = include_str!("../../../../published/findings.toml");

/// The levels that the tables compare: base, changed.
pub(crate) const LEVELS: [&str; 2] = ["420", "430"];

/// One finding.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    /// Its name.
    pub(crate) id: String,
    /// The finding as a sentence.
    pub(crate) says: String,
    /// Its origin.
    pub(crate) from: Origin,
    /// Whether ratios or values are compared.
    pub(crate) figure: Figure,
    /// The row of the tables, without its unit: `rate`, `cpu`, `tcpip2_cpu`, `tcpip3_tot_cpu_util`.
    pub(crate) row: String,
    /// The tables by number; if empty, every cell that was measured at both levels.
    #[serde(default)]
    pub(crate) tables: Vec<String>,
    /// Numbers of clients in each of the tables.
    #[serde(default)]
    pub(crate) clients: Vec<u32>,
    /// The denominator of each figure, if there is one.
    #[serde(default)]
    pub(crate) over: Over,
    /// Every case lies above this.
    pub(crate) above: Option<f64>,
    /// Every case lies below this.
    pub(crate) below: Option<f64>,
}

/// The origin of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// The report's text.
    Text,
    /// The report's tables; its text does not mention it.
    Tables,
    /// A question of siga's own.
    Siga,
}

impl Origin {
    /// The name in files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Tables => "tables",
            Self::Siga => "siga",
        }
    }
}

/// The kind of figure that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Figure {
    /// The value at the changed level over that at the base.
    Ratio,
    /// The values at each level.
    Levels,
}

/// The denominator of a case; a part that is absent is that of the numerator.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Over {
    /// One table for each table of the finding.
    pub(crate) tables: Option<Vec<String>>,
    /// Another row.
    pub(crate) row: Option<String>,
    /// Another number of clients.
    pub(crate) clients: Option<u32>,
}

/// One place that a finding is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    /// The figure.
    pub(crate) top: Term,
    /// The denominator.
    pub(crate) bottom: Option<Term>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    /// Table.
    pub(crate) table: String,
    /// Clients.
    pub(crate) clients: u32,
    /// Row, without its unit.
    pub(crate) row: String,
    /// The level by its place in [`LEVELS`]; `None` is the ratio of both.
    pub(crate) level: Option<usize>,
}

impl Finding {
    /// Its cases in the tables; none if it is about every cell.
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

    /// The levels of its figures, or `None` for the ratio.
    pub(crate) fn levels(&self) -> &'static [Option<usize>] {
        match self.figure {
            Figure::Ratio => &[None],
            Figure::Levels => &[Some(0), Some(1)],
        }
    }

    /// The denominator of the figure of the table at that index.
    fn bottom(&self, top: &Term, at: usize) -> Option<Term> {
        let Over { tables, row, clients } = &self.over;
        (self.over != Over::default()).then(|| Term {
            table: tables.as_ref().and_then(|tables| tables.get(at)).unwrap_or(&top.table).clone(),
            clients: clients.unwrap_or(top.clients),
            row: row.as_ref().unwrap_or(&top.row).clone(),
            level: top.level,
        })
    }

    /// True if a value lies within the bounds.
    pub(crate) fn allows(&self, value: f64) -> bool {
        self.above.is_none_or(|above| value > above) && self.below.is_none_or(|below| value < below)
    }

    /// The bounds in words: `below 1`, `0.9 to 1.1`.
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
    /// The published figure; `None` if the tables have no such cell.
    pub(crate) fn published(&self, tables: &[PublishedTable]) -> Option<f64> {
        let top = self.top.published(tables)?;
        match &self.bottom {
            Some(bottom) => Some(top / bottom.published(tables)?),
            None => Some(top),
        }
    }

    /// The name in words: "Table 1 over table 2, 10 clients, 430".
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

/// All findings in the order of the file.
///
/// # Errors
/// Incomplete: the file does not make sense; it is part of the program, so a user never sees it.
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
            for case in finding.cases() {
                let place = format!("{}: {}", finding.id, case.name());
                let value = case.published(&tables).unwrap_or_else(|| panic!("{place} is not printed"));
                assert!(finding.allows(value), "{place}: {value} is not {}", finding.bounds());
            }
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
        assert_eq!(names("crr-server-is-the-bottleneck")[..2], ["Table 3, 5 clients, 420", "Table 3, 5 clients, 430"]);
        assert_eq!(names("router-below-everywhere"), [""; 0]);
    }
}
