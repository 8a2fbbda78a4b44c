//! Checks that the tests which SPECIFICATION.md and SECURITY.md name exist, because a promise without a test is not reliable.
//!
//! The rules read each table whose last column has the heading `Test`. Every name in backticks in that column, `test_name` or
//! `crate::module::test_name`, must be a function marked as a test, in a file of that crate and those modules. Text outside
//! backticks ("none yet") and commands (with a space) are not checked. An empty cell is a problem.
//!
//! In SPECIFICATION.md, each such row has a unique id in its first column and at most three tests. With the id, code, reviews and
//! other documents can refer to a promise. A promise that needs more than three tests should be split.

use std::collections::HashSet;

use super::tree::File;
use super::{Problem, rust};

/// The page on which each promise must have an id.
const WITH_IDS: &str = "SPECIFICATION.md";

/// The greatest number of tests of a promise with an id.
const TESTS_MAX: usize = 3;

/// A test and its place: the crate, followed by the parts of the file's path.
struct Test {
    name: String,
    place: Vec<String>,
}

/// Reports every test that `specification` names but that no source in `files` has.
pub(crate) fn check(specification: &File, files: &[File]) -> Vec<Problem> {
    let path = &specification.path;
    let tests: Vec<Test> = files.iter().flat_map(tests_of).collect();
    let rows = rows(&specification.text);
    if rows.is_empty() {
        return vec![Problem::new(path, "it has no table whose last column is headed `Test`")];
    }
    let mut problems = Vec::new();
    let mut ids = HashSet::new();
    for (line, id, cell) in rows {
        let mut found = |what: String| problems.push(Problem::at(path, line, what));
        if path == WITH_IDS {
            let count = names(cell).count();
            if count > TESTS_MAX {
                found(format!("{count} tests of one promise, the limit is {TESTS_MAX}"));
            }
            if !is_id(id) {
                found(format!("`{id}` is no id like STACK-1"));
            } else if !ids.insert(id) {
                found(format!("{id} is the id of another promise"));
            }
        }
        if cell.is_empty() {
            found("a promise without a test says so in words".to_owned());
        }
        for name in names(cell).filter(|name| !tests.iter().any(|test| test.is(name))) {
            found(format!("there is no test `{name}`"));
        }
    }
    problems
}

/// Returns the rows of all tables whose last column has the heading `Test`: the line number, the first cell and the last cell.
fn rows(text: &str) -> Vec<(usize, &str, &str)> {
    let mut rows = Vec::new();
    let mut heading: Option<&str> = None;
    for (line, text) in (1..).zip(text.lines()) {
        let Some(row) = text.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            heading = None;
            continue;
        };
        let (first, last) = (row.split('|').next().unwrap_or_default(), row.rsplit('|').next().unwrap_or_default());
        match heading {
            None => heading = Some(last.trim()),
            Some("Test") if !is_rule(row) => rows.push((line, first.trim(), last.trim())),
            Some(_) => {}
        }
    }
    rows
}

/// Whether `id` is an upper-case word, a hyphen and a number.
fn is_id(id: &str) -> bool {
    id.split_once('-').is_some_and(|(group, number)| {
        !group.is_empty() && group.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u32>().is_ok()
    })
}

/// Whether the row is the line of dashes below a table's heading.
fn is_rule(row: &str) -> bool {
    row.chars().all(|c| matches!(c, '-' | ':' | '|' | ' '))
}

/// Returns the names in backticks. A span that contains a space is a command and is left out.
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
    /// Whether `name` means this test: the function's name is the same, and the path has all of the name's modules in order.
    fn is(&self, name: &str) -> bool {
        let mut modules: Vec<&str> = name.split("::").collect();
        if modules.pop() != Some(self.name.as_str()) {
            return false;
        }
        let mut place = self.place.iter();
        // `tests` is the module at the end of a file, which is not a part of the path.
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
                "crates/measure/src/net/veth.rs",
                "#[cfg(test)]\nmod tests {\n#[test]\nfn left_clean() {}\nfn helper() {}\n}\n",
            ),
            file("crates/siga/tests/cli.rs", "#[test]\nfn exit_status() {}\n"),
            file("notes.md", "#[test]\nfn in_prose() {}\n"),
        ];
        check(&file("SPECIFICATION.md", specification), &files).iter().map(Problem::to_string).collect()
    }

    fn row(cell: &str) -> String {
        format!("# A\n\n| id | Promise | Test |\n| --- | --- | ---: |\n| A-1 | a | {cell} |\n")
    }

    #[test]
    fn names_of_existing_tests_pass() {
        for cell in [
            "`left_clean`",
            "`siga_measure::net::veth::tests::left_clean`",
            "`siga_measure::left_clean`, `exit_status`",
            "`siga::cli::exit_status`",
            "`cargo xtask tidy`",
            "none yet",
        ] {
            assert_eq!(found(&row(cell)), [""; 0], "{cell}");
        }
    }

    #[test]
    fn a_name_that_is_no_test_is_found() {
        for name in
            ["left_dirty", "helper", "in_prose", "siga::left_clean", "siga_measure::veth::net::left_clean", "a-b"]
        {
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
        let other = row("`gone`").replace("A-1", "A-2");
        let text = format!("{}\n| Name | Unit |\n|---|---|\n| a | `b` |\n\n{other}", row("none"));
        assert_eq!(found(&text), ["SPECIFICATION.md:15: there is no test `gone`"]);
    }

    #[test]
    fn an_id_that_is_missing_or_taken_is_found() {
        for id in ["", "a", "A1", "a-1", "A-x", "-1"] {
            let text = row("none yet").replace("A-1", id);
            assert_eq!(found(&text), [format!("SPECIFICATION.md:5: `{id}` is no id like STACK-1")]);
        }
        let twice = format!("{}| A-1 | b | none yet |\n", row("none yet"));
        assert_eq!(found(&twice), ["SPECIFICATION.md:6: A-1 is the id of another promise"]);
    }

    #[test]
    fn a_promise_with_more_than_three_tests_is_found() {
        let cell = ["`exit_status`"; TESTS_MAX + 1].join(", ");
        assert_eq!(found(&row(&cell)), ["SPECIFICATION.md:5: 4 tests of one promise, the limit is 3"]);
        assert_eq!(found(&row(&cell["`exit_status`, ".len()..])), [""; 0]);
    }
}
