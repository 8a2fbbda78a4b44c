//! Compares the requirements of the RFCs with the sources of the stack. Each requirement has the code that keeps it and its test, or
//! the reason why it is not fulfilled.
//!
//! `rfc/rfc<number>.toml` has the requirements of one RFC (`data.rs` describes the form). The code and tests of a numbered
//! requirement of RFC 9293 are citations, comments in `crates/stack` (`citations.rs` describes their form). A requirement with MUST
//! or SHOULD has to be decided. A requirement with MAY may only be listed. `names.rs` checks that all names exist. This task cannot
//! check whether the data is true: its reader and the tests do.

mod citations;
mod data;
mod names;
mod page;

use std::collections::BTreeMap;
use std::path::Path;

use self::citations::Citation;
use self::data::{Place, Requirement, Rfc, Standing};
use crate::command;
use crate::tidy::tree::{self, File};
use crate::tidy::{self, Problem};

/// The folder with the sources that implement the RFCs.
const SOURCES: &str = "crates/stack/";
/// The RFC whose requirements have numbers.
const NUMBERED: u32 = 9293;
/// The page for readers, which this task writes.
const PAGE_PATH: &str = "docs/rfcs.md";

/// The options of `cargo xtask rfc`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Output format: text, or the Markdown page of docs/
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Check the requirements and the page in docs/, without printing the requirements
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the page docs/rfcs.md
    #[arg(long)]
    write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Md,
}

/// All RFCs with the places of their requirements.
#[derive(Debug)]
struct Rfcs {
    rfcs: Vec<Rfc>,
    related: BTreeMap<u32, String>,
}

/// Prints, compares or writes the page. Returns an error if a requirement is undecided, or a name does not exist.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let (all, problems) = look(&tree::load(root)?)?;
    let written = page::markdown(&all.rfcs, &all.related);
    let path = root.join(PAGE_PATH);
    if options.write {
        std::fs::write(&path, &written).map_err(|error| format!("cannot write {PAGE_PATH}: {error}"))?;
    } else if options.check {
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&written) {
            tidy::conclude("rfc", &problems)?;
            return Err(format!(
                "{PAGE_PATH} does not match the sources; write the page with `cargo xtask rfc --write`"
            ));
        }
    } else {
        command::print(&if options.format == Format::Md { written } else { page::text(&all.rfcs) })?;
    }
    tidy::conclude("rfc", &problems)
}

/// Checks the requirements and compares the page in docs/ with the sources, as `cargo xtask ci` does.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    run(root, &Options { format: Format::Text, check: true, write: false })
}

/// Reads the RFCs, assigns the citations to the numbered requirements, and returns all problems.
fn look(files: &[File]) -> Result<(Rfcs, Vec<Problem>), String> {
    let (mut rfcs, related) = (data::rfcs(files)?, data::related(files)?);
    let sources: Vec<File> = files.iter().filter(|file| file.path.starts_with(SOURCES)).cloned().collect();
    let (citations, mut problems) = citations::find(&sources);
    let mut none = Vec::new();
    let numbered = rfcs.iter_mut().find(|rfc| rfc.number == NUMBERED).map_or(&mut none, |rfc| &mut rfc.requirements);
    for citation in citations {
        let Some(requirement) = numbered.iter_mut().find(|requirement| requirement.id() == Some(citation.id)) else {
            problems.push(Problem::at(&citation.path, citation.line, format!("RFC {NUMBERED} has no {}", citation.id)));
            continue;
        };
        let Citation { path, item, in_test, .. } = citation;
        if in_test { &mut requirement.tests } else { &mut requirement.code }.push(Place { path, item });
    }
    for rfc in &rfcs {
        let undecided = rfc.requirements.iter().filter(|requirement| requirement.standing() == Standing::Undecided);
        problems.extend(undecided.map(|requirement| undecided_problem(rfc, requirement)));
    }
    problems.extend(names::missing_places(&rfcs, files));
    problems.extend(names::missing_rfcs(&rfcs, &related, &sources));
    Ok((Rfcs { rfcs, related }, problems))
}

fn undecided_problem(rfc: &Rfc, requirement: &Requirement) -> Problem {
    let missing = match (&requirement.why_not, requirement.code.is_empty(), requirement.tests.is_empty()) {
        (Some(_), _, _) => "the requirement has two reasons, `why_not` and `not_applicable`",
        (None, true, true) => "the requirement has neither code nor a test, and no reason",
        (None, true, false) => "the requirement has a test, but no code",
        (None, false, _) => "the requirement has code, but no test",
    };
    Problem::new(format!("{}: {} `{}`", rfc.path, requirement.name(), requirement.asks), missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIREMENTS: &str = "title = \"A\"\nabout = \"All of it.\"\n\
        [[must]]\nnumber = 1\nsection = \"3.1\"\nasks = \"a window\"\nnote = \"Mostly.\"\n\
        [[must]]\nnumber = 2\nsection = \"3.2\"\nasks = \"a sum\"\nwhy_not = \"No one adds.\"\n\
        [[should]]\nnumber = 1\nsection = \"3.3\"\nasks = \"a habit\"\n\
        [[may]]\nnumber = 1\nsection = \"3.4\"\nasks = \"a liberty\"\n";
    const KEPT: &str = "//! A.\n// MUST-1, SHLD-1\nfn a() {}\n#[cfg(test)]\nmod tests {\n    // MUST-1, SHLD-1\n    #[test]\n    fn b() {}\n}\n";

    fn looked_at(data: &str, path: &str, text: &str) -> (Rfcs, Vec<String>) {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let (all, problems) = look(&[file("xtask/src/rfc/rfc9293.toml", data), file(path, text)]).unwrap();
        (all, problems.iter().map(Problem::to_string).collect())
    }

    fn looked(path: &str, text: &str) -> (Rfcs, Vec<String>) {
        looked_at(REQUIREMENTS, path, text)
    }

    #[test]
    fn no_must_and_no_should_of_an_rfc_is_undecided_and_every_name_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (all, problems) = look(&tree::load(root).unwrap()).unwrap();
        assert_eq!(problems, []);
        let numbered = all.rfcs.iter().find(|rfc| rfc.number == NUMBERED).unwrap();
        for (level, last) in [("MUST", 69), ("SHLD", 31), ("MAY", 18), ("REC", 1)] {
            let ids = numbered.requirements.iter().filter_map(Requirement::id).map(|id| id.to_string());
            let ids: Vec<String> = ids.filter(|id| id.starts_with(level)).collect();
            assert_eq!(ids, (1..=last).map(|number| format!("{level}-{number}")).collect::<Vec<_>>());
        }
    }

    #[test]
    fn citations_decide_numbered_requirements() {
        let (all, problems) = looked("crates/stack/src/a.rs", KEPT);
        assert_eq!(problems, [""; 0]);
        let standings: Vec<Standing> = all.rfcs[0].requirements.iter().map(Requirement::standing).collect();
        assert_eq!(standings, [Standing::Kept, Standing::NotKept, Standing::Kept, Standing::NotBuilt]);
    }

    #[test]
    fn a_requirement_kept_in_part_is_counted_apart_with_its_exception() {
        let data = REQUIREMENTS.replace("asks = \"a habit\"\n", "asks = \"a habit\"\npartly = \"Not on Sundays.\"\n");
        let (all, problems) = looked_at(&data, "crates/stack/src/a.rs", KEPT);
        assert_eq!(problems, [""; 0]);
        assert!(page::text(&all.rfcs).contains("  SHLD-1   3.3        in part             a habit\n"));
        let written = page::markdown(&all.rfcs, &all.related);
        assert!(written.contains("| In part: Not on Sundays. `b` |"));
        assert!(written.contains("| [9293](#rfc-9293) | A | 1 | 1 | 1 | 0 | 1 |\n"), "{written}");
        // A requirement that is kept in part still needs code and a test.
        let (_, problems) = looked_at(&data, "crates/stack/src/a.rs", "//! A.\n// MUST-1\nfn a() {}\n");
        assert!(
            problems.iter().any(|problem| problem.contains("SHLD-1 `a habit`: the requirement has neither")),
            "{problems:?}"
        );
    }

    #[test]
    fn half_of_it_decides_nothing() {
        let at = |id: &str| format!("xtask/src/rfc/rfc9293.toml: {id}");
        let neither = "the requirement has neither code nor a test, and no reason";
        let (_, problems) = looked("crates/other/src/a.rs", KEPT);
        let (must, should, may) = (at("MUST-1 `a window`"), at("SHLD-1 `a habit`"), at("MAY-1 `a liberty`"));
        assert_eq!(problems, [format!("{must}: {neither}"), format!("{should}: {neither}")]);
        let (_, problems) = looked("crates/stack/src/a.rs", "//! A.\n// MUST-1, MAY-1\nfn a() {}\n");
        let no_test = "the requirement has code, but no test";
        assert_eq!(
            problems,
            [format!("{must}: {no_test}"), format!("{should}: {neither}"), format!("{may}: {no_test}")]
        );
        let (_, problems) = looked("crates/stack/tests/a.rs", "//! A.\n// MUST-1 SHLD-1\n#[test]\nfn a() {}\n");
        let no_code = "the requirement has a test, but no code";
        assert_eq!(problems, [format!("{must}: {no_code}"), format!("{should}: {no_code}")]);
        let data = REQUIREMENTS.replace("why_not", "not_applicable = \"b\"\nwhy_not");
        let (_, problems) = looked_at(&data, "crates/stack/src/a.rs", KEPT);
        assert_eq!(
            problems,
            [format!("{}: the requirement has two reasons, `why_not` and `not_applicable`", at("MUST-2 `a sum`"))]
        );
    }

    #[test]
    fn a_citation_of_an_unknown_number_is_found() {
        let (_, problems) = looked("crates/stack/src/a.rs", &KEPT.replace("// MUST-1,", "// MUST-3, MUST-1,"));
        assert_eq!(
            problems,
            ["crates/stack/src/a.rs:2: RFC 9293 has no MUST-3", "crates/stack/src/a.rs:6: RFC 9293 has no MUST-3"]
        );
    }

    #[test]
    fn the_page_and_the_text_have_each_requirement_with_its_places_and_reasons() {
        let (all, _) = looked("crates/stack/src/a.rs", KEPT);
        let text = page::text(&all.rfcs);
        assert!(text.starts_with(
            "RFC 9293: A\n  MUST-1   3.1        fulfilled           a window\n      code  crates/stack/src/a.rs a\n\
             \x20     test  crates/stack/src/a.rs b\n      note  Mostly.\n\
             \x20 MUST-2   3.2        not fulfilled       a sum\n      why   No one adds.\n"
        ));
        let counts = "2 fulfilled, 0 in part, 1 not fulfilled, 0 not applicable, 1 not implemented.";
        assert!(text.ends_with(&format!("\n\n1 RFCs: {counts}\n")), "{text}");
        let related = BTreeMap::from([(7, "a fact".to_owned())]);
        let written = page::markdown(&all.rfcs, &related);
        assert!(
            written.contains(
                "\n| 7 | a fact |\n\n## RFC 9293\n\nThe title of this RFC is \"A\".\nAll of it.\n\n| keyword |"
            ),
            "{written}"
        );
        assert!(written.contains("\n| MUST-1 | 3.1 | a window | `a.rs` `a` | Mostly. `b` |\n"));
        assert!(written.contains("\n| MUST-2 | 3.2 | a sum |  | Not fulfilled: No one adds. |\n"));
        assert!(written.ends_with("\n| MAY-1 | 3.4 | a liberty |  | Optional, and not implemented. |\n"));
    }
}
