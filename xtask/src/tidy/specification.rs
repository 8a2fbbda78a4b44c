//! The tests that SPECIFICATION.md and SECURITY.md name must exist: a promise is worth what its test is.
//!
//! Looked at is the last column of each table that is headed `Test`. Every name in backticks there, `test_name` or
//! `crate::module::test_name`, has to be a function marked as a test, in a file of that crate and those modules. Words
//! outside backticks ("none yet") and commands (with a space) are left to the reader; an empty cell is a finding.

use super::tree::File;
use super::{Finding, rust};

/// A test and where it stands: the crate, then the parts of the file's path.
struct Test {
    name: String,
    place: Vec<String>,
}

/// Looks up every test that `specification` names among the sources in `files`.
pub(crate) fn check(specification: &File, files: &[File]) -> Vec<Finding> {
    let path = &specification.path;
    let tests: Vec<Test> = files.iter().flat_map(tests_of).collect();
    let cells = test_cells(&specification.text);
    if cells.is_empty() {
        return vec![Finding::new(path, "it has no table whose last column is headed `Test`")];
    }
    let mut findings = Vec::new();
    for (line, cell) in cells {
        if cell.is_empty() {
            findings.push(Finding::at(path, line, "a promise without a test says so in words"));
        }
        for name in names(cell).filter(|name| !tests.iter().any(|test| test.is(name))) {
            findings.push(Finding::at(path, line, format!("there is no test `{name}`")));
        }
    }
    findings
}

/// The last cells, with the numbers of their lines, of all rows in tables whose last column is headed `Test`.
fn test_cells(text: &str) -> Vec<(usize, &str)> {
    let mut cells = Vec::new();
    let mut heading: Option<&str> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(row) = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            heading = None;
            continue;
        };
        let cell = row.rsplit('|').next().unwrap_or_default().trim();
        match heading {
            None => heading = Some(cell),
            Some("Test") if !is_rule(row) => cells.push((number, cell)),
            Some(_) => {}
        }
    }
    cells
}

/// Whether the row is the line of dashes under a table's heading.
fn is_rule(row: &str) -> bool {
    row.chars().all(|c| matches!(c, '-' | ':' | '|' | ' '))
}

/// The names in backticks; what has a space in it is a command.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|span| !span.contains(' '))
}

fn tests_of(file: &File) -> Vec<Test> {
    let Some(stem) = file.path.strip_suffix(".rs") else { return Vec::new() };
    let mut parts = stem.split('/');
    let mut place = match (parts.next(), parts.next()) {
        (Some("crates"), Some("siga")) => vec!["siga".to_owned()],
        (Some("crates"), Some(name)) => vec![format!("siga_{name}")],
        (first, second) => first.into_iter().chain(second).map(str::to_owned).collect(),
    };
    place.extend(parts.map(str::to_owned));
    rust::tests(&file.text).into_iter().map(|name| Test { name, place: place.clone() }).collect()
}

impl Test {
    /// Whether `name` is this test: the same function, and its modules are found on the way to the file in that order.
    fn is(&self, name: &str) -> bool {
        let mut modules: Vec<&str> = name.split("::").collect();
        if modules.pop() != Some(self.name.as_str()) {
            return false;
        }
        let mut place = self.place.iter();
        // `tests` is the module at the end of a file, which no path shows.
        modules.iter().filter(|module| **module != "tests").all(|module| place.any(|part| part == module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(specification: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(
                "crates/lab/src/net/veth.rs",
                "#[cfg(test)]\nmod tests {\n#[test]\nfn left_clean() {}\nfn helper() {}\n}\n",
            ),
            file("crates/siga/tests/cli.rs", "#[test]\nfn exit_status() {}\n"),
            file("notes.md", "#[test]\nfn in_prose() {}\n"),
        ];
        check(&file("SPECIFICATION.md", specification), &files).iter().map(Finding::to_string).collect()
    }

    fn row(cell: &str) -> String {
        format!("# A\n\n| Promise | Test |\n| --- | ---: |\n| a | {cell} |\n")
    }

    #[test]
    fn names_of_existing_tests_pass() {
        for cell in [
            "`left_clean`",
            "`siga_lab::net::veth::tests::left_clean`",
            "`siga_lab::left_clean`, `exit_status`",
            "`siga::cli::exit_status`",
            "`cargo xtask tidy`",
            "none yet",
        ] {
            assert_eq!(found(&row(cell)), [""; 0], "{cell}");
        }
    }

    #[test]
    fn names_of_nothing_are_found() {
        for name in ["left_dirty", "helper", "in_prose", "siga::left_clean", "siga_lab::veth::net::left_clean", "a-b"] {
            let cell = format!("`exit_status` and `{name}`");
            assert_eq!(found(&row(&cell)), [format!("SPECIFICATION.md:5: there is no test `{name}`")]);
        }
    }

    #[test]
    fn an_empty_cell_is_found() {
        assert_eq!(found(&row("")), ["SPECIFICATION.md:5: a promise without a test says so in words"]);
    }

    #[test]
    fn a_specification_that_names_no_tests_is_found() {
        assert_eq!(found("| Test | Promise |\n|---|---|\n| `nothing` | a |\n").len(), 1);
        assert_eq!(found("Words.\n").len(), 1);
    }

    #[test]
    fn every_table_is_read_and_other_tables_are_not() {
        let text = format!("{}\n| Name | Unit |\n|---|---|\n| a | `b` |\n\n{}", row("none"), row("`gone`"));
        assert_eq!(found(&text), ["SPECIFICATION.md:15: there is no test `gone`"]);
    }
}
