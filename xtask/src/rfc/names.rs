//! Checks the names that the files of the RFCs use: each file, item and test has to exist, and each RFC that the stack's sources
//! cite has to have an entry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::data::{Place, Rfc};
use crate::tidy::tree::File;
use crate::tidy::{Problem, rust};

/// Reports each place of a requirement that the sources do not have.
pub(super) fn missing_places(rfcs: &[Rfc], files: &[File]) -> Vec<Problem> {
    let sources: HashMap<&str, &File> = files.iter().map(|file| (file.path.as_str(), file)).collect();
    let tests: HashSet<String> =
        files.iter().filter(|file| is_source(file)).flat_map(|file| rust::tests(&file.text)).collect();
    let mut problems = Vec::new();
    for rfc in rfcs {
        for requirement in rfc.requirements.iter().filter(|requirement| requirement.number.is_none()) {
            let mut found = |what| problems.push(Problem::new(&rfc.path, format!("`{}`: {what}", requirement.asks)));
            for Place { path, item } in &requirement.code {
                match sources.get(path.as_str()) {
                    None => found(format!("there is no file {path}")),
                    Some(file) if !has_item(&file.text, item) => found(format!("{path} has no item `{item}`")),
                    Some(_) => {}
                }
            }
            for Place { item, .. } in requirement.tests.iter().filter(|test| !tests.contains(&test.item)) {
                found(format!("there is no test `{item}`"));
            }
        }
    }
    problems
}

/// Reports each RFC that a source of the stack cites and that has no entry, and each related RFC that no source cites.
pub(super) fn missing_rfcs(rfcs: &[Rfc], related: &BTreeMap<u32, String>, sources: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut cited = BTreeSet::new();
    for file in sources.iter().filter(|file| is_source(file)) {
        for (line, text) in (1..).zip(file.text.lines()) {
            for number in cited_in(text) {
                let known = rfcs.iter().any(|rfc| rfc.number == number) || related.contains_key(&number);
                if cited.insert(number) && !known {
                    problems.push(Problem::at(
                        &file.path,
                        line,
                        format!("RFC {number} has no entry in xtask/src/rfc/"),
                    ));
                }
            }
        }
    }
    for number in related.keys() {
        let path = "xtask/src/rfc/related.toml";
        if rfcs.iter().any(|rfc| rfc.number == *number) {
            problems.push(Problem::new(path, format!("RFC {number} has a file of its own")));
        } else if !cited.contains(number) {
            problems.push(Problem::new(path, format!("no source of the stack cites RFC {number}")));
        }
    }
    problems
}

fn is_source(file: &File) -> bool {
    file.path.starts_with("crates/") && file.path.ends_with(".rs")
}

/// Returns the numbers of the RFCs that a line cites.
fn cited_in(line: &str) -> impl Iterator<Item = u32> {
    line.split("RFC ").skip(1).filter_map(|rest| {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        rest[..digits].parse().ok()
    })
}

/// Whether a source defines a function, type, constant, field or variant with this name.
fn has_item(text: &str, item: &str) -> bool {
    const KINDS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];
    text.lines().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let defined =
            words.clone().zip(words.clone().skip(1)).any(|(kind, name)| KINDS.contains(&kind) && name == item);
        let field = code.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        let field = field.trim_start_matches("pub ").strip_prefix(item);
        defined
            || (words.any(|word| word == item) && field.is_some_and(|rest| rest.starts_with([':', ',', '(', ' ', '='])))
    })
}

#[cfg(test)]
mod tests {
    use super::super::data;
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn told(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(Problem::to_string).collect()
    }

    const DATA: &str =
        "title = \"A\"\n[[must]]\nsection = \"1\"\nasks = \"a\"\ncode = [\"a.rs one\"]\ntests = [\"holds\"]\n";
    const SOURCE: &str = "//! RFC 7 section 1.\nconst fn one() {}\n#[test]\nfn holds() {}\n";

    #[test]
    fn a_file_an_item_or_a_test_that_does_not_exist_is_found() {
        let rfcs = data::rfcs(&[file("xtask/src/rfc/rfc7.toml", DATA)]).unwrap();
        let places = |path, text: &str| told(&missing_places(&rfcs, &[file(path, text)]));
        assert_eq!(places("crates/stack/src/a.rs", SOURCE), [""; 0]);
        let at = "xtask/src/rfc/rfc7.toml: `a`:";
        assert_eq!(places("crates/stack/src/b.rs", SOURCE), [format!("{at} there is no file crates/stack/src/a.rs")]);
        assert_eq!(
            places("crates/stack/src/a.rs", &SOURCE.replace("one", "two")),
            [format!("{at} crates/stack/src/a.rs has no item `one`")]
        );
        assert_eq!(
            places("crates/stack/src/a.rs", &SOURCE.replace("#[test]\n", "")),
            [format!("{at} there is no test `holds`")]
        );
    }

    #[test]
    fn items_are_functions_types_constants_and_fields() {
        for text in
            ["pub(crate) fn it() {", "    const it: u8 = 1;", "    pub(super) it: u32,", "    it,", "pub enum it {"]
        {
            assert!(has_item(text, "it"), "{text}");
        }
        for text in ["// fn it()", "let it2 = 1;", "fn other(it: u8) {}", "    call(it);"] {
            assert!(!has_item(text, "it"), "{text}");
        }
    }

    #[test]
    fn a_cited_rfc_needs_an_entry_and_a_related_one_a_citation() {
        let rfcs = data::rfcs(&[file("xtask/src/rfc/rfc7.toml", DATA)]).unwrap();
        let source = |text| [file("crates/stack/src/a.rs", text)];
        let related = |numbers: &[u32]| numbers.iter().map(|number| (*number, "a".to_owned())).collect();
        assert_eq!(told(&missing_rfcs(&rfcs, &related(&[]), &source(SOURCE))), [""; 0]);
        let two = "//! RFC 7 and RFC 8.\n// RFC 8 again.\n";
        let problems = told(&missing_rfcs(&rfcs, &related(&[]), &source(two)));
        assert_eq!(problems, ["crates/stack/src/a.rs:1: RFC 8 has no entry in xtask/src/rfc/"]);
        assert_eq!(told(&missing_rfcs(&rfcs, &related(&[8]), &source(two))), [""; 0]);
        let problems = told(&missing_rfcs(&rfcs, &related(&[7, 9]), &source(SOURCE)));
        let path = "xtask/src/rfc/related.toml";
        assert_eq!(
            problems,
            [format!("{path}: RFC 7 has a file of its own"), format!("{path}: no source of the stack cites RFC 9")]
        );
    }
}
