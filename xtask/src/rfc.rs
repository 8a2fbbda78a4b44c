//! Compares the numbered requirements of RFC 9293 (TCP) with the sources of the stack. Each requirement has the code that meets
//! it, its test, or the reason why it is not met.
//!
//! `rfc/rfc9293.toml` has the requirements, notes, exceptions and partial exceptions. The citations are comments in
//! `crates/stack`; `citations.rs` describes their form. A requirement with MUST or SHOULD has to be decided: by code and a test,
//! or by an exception with its reason. A requirement with MAY is only listed. This task cannot check whether a comment is true:
//! the comment's reader and its test do.

mod citations;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use self::citations::Citation;
use crate::command;
use crate::tidy::tree::{self, File};
use crate::tidy::{self, Problem};

/// The requirements, and the path of their file, which problems name.
const DATA: &str = include_str!("rfc/rfc9293.toml");
const DATA_PATH: &str = "xtask/src/rfc/rfc9293.toml";
/// The folder with the sources that cite requirements.
const SOURCES: &str = "crates/stack/";
/// The table for readers, which this task writes.
const TABLE_PATH: &str = "docs/rfc9293.md";

/// The options of `cargo xtask rfc`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Output format: text with source lines, or the Markdown table of docs/
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print no requirements; check them and compare the table in docs/
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the table into docs/
    #[arg(long)]
    write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Md,
}

/// The word of the RFC that says how strict a requirement is. The order is that of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Must,
    Should,
    May,
    Recommended,
}

impl Level {
    const ALL: [Self; 4] = [Self::Must, Self::Should, Self::May, Self::Recommended];

    fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHLD",
            Self::May => "MAY",
            Self::Recommended => "REC",
        }
    }

    /// Whether a requirement of this level that is not met needs an exception.
    fn has_to_be_decided(self) -> bool {
        match self {
            Self::Must | Self::Should => true,
            Self::May | Self::Recommended => false,
        }
    }
}

/// The number of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    level: Level,
    number: u32,
}

impl Id {
    fn new(level: &str, number: &str) -> Option<Self> {
        let level = Level::ALL.into_iter().find(|known| known.name() == level)?;
        Some(Self { level, number: number.parse().ok()? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.level.name(), self.number)
    }
}

/// A requirement, with its notes, exceptions and citations.
#[derive(Debug, Default)]
struct Requirement {
    section: String,
    about: String,
    /// How the stack meets the requirement.
    note: Option<String>,
    /// The case in which the requirement is not met, and the reason.
    partly: Option<String>,
    exception: Option<String>,
    code: Vec<Citation>,
    tests: Vec<Citation>,
}

type Requirements = BTreeMap<Id, Requirement>;

/// Whether and how a requirement is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Met,
    InPart,
    Exception,
    /// The requirement is optional, and no comment cites it.
    LeftOut,
    Undecided,
}

impl Requirement {
    fn standing(&self, id: Id) -> Standing {
        let (code, tests) = (!self.code.is_empty(), !self.tests.is_empty());
        match self.exception {
            Some(_) => Standing::Exception,
            None if code && tests && self.partly.is_some() => Standing::InPart,
            None if code && tests => Standing::Met,
            None if !code && !tests && !id.level.has_to_be_decided() => Standing::LeftOut,
            None => Standing::Undecided,
        }
    }
}

/// Prints, compares or writes the table. Returns an error if a requirement is undecided.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let (requirements, problems) = look(DATA, &tree::load(root)?)?;
    let table = markdown(&requirements);
    let path = root.join(TABLE_PATH);
    if options.write {
        std::fs::write(&path, &table).map_err(|error| format!("cannot write {TABLE_PATH}: {error}"))?;
    } else if options.check {
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&table) {
            return Err(format!("{TABLE_PATH} is not what the sources say; write it by `cargo xtask rfc --write`"));
        }
    } else {
        command::print(&if options.format == Format::Md { table } else { text(&requirements) })?;
    }
    tidy::conclude("rfc", &problems)
}

/// Checks the requirements and compares the table in docs/ with the sources, as `cargo xtask ci` does.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    run(root, &Options { format: Format::Text, check: true, write: false })
}

/// Assigns the citations in `files` to the requirements in `data`, and returns the problems.
fn look(data: &str, files: &[File]) -> Result<(Requirements, Vec<Problem>), String> {
    let mut requirements = parse(data).map_err(|error| format!("{DATA_PATH}: {error}"))?;
    let sources: Vec<File> = files.iter().filter(|file| file.path.starts_with(SOURCES)).cloned().collect();
    let (citations, mut problems) = citations::find(&sources);
    for citation in citations {
        let Some(requirement) = requirements.get_mut(&citation.id) else {
            problems.push(Problem::at(&citation.path, citation.line, format!("RFC 9293 has no {}", citation.id)));
            continue;
        };
        if citation.in_test { &mut requirement.tests } else { &mut requirement.code }.push(citation);
    }
    for (id, requirement) in &requirements {
        if requirement.standing(*id) == Standing::Undecided {
            let missing = match (requirement.code.is_empty(), requirement.tests.is_empty()) {
                (true, true) => "neither code nor a test cites it, and it is no exception",
                (true, false) => "a test cites it and no code",
                (false, _) => "code cites it and no test",
            };
            problems.push(Problem::new(id.to_string(), missing));
        }
    }
    Ok((requirements, problems))
}

fn parse(data: &str) -> Result<Requirements, String> {
    let data: toml::Table = data.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let part = |name: &str| data.get(name).and_then(toml::Value::as_table).ok_or(format!("there is no [{name}]"));
    let id_of = |key: &str| {
        key.split_once('-').and_then(|(level, number)| Id::new(level, number)).ok_or(format!("{key} is no requirement"))
    };
    let mut requirements = Requirements::new();
    for (key, value) in part("requirements")? {
        let texts: Vec<&str> = value.as_array().into_iter().flatten().filter_map(toml::Value::as_str).collect();
        let [section, about] = texts[..] else { return Err(format!("{key} has to be a section and what it asks for")) };
        let (section, about) = (section.to_owned(), about.to_owned());
        requirements.insert(id_of(key)?, Requirement { section, about, ..Requirement::default() });
    }
    type Field = fn(&mut Requirement) -> &mut Option<String>;
    let kinds: [(&str, Field); 3] = [
        ("notes", |requirement| &mut requirement.note),
        ("partly", |requirement| &mut requirement.partly),
        ("exceptions", |requirement| &mut requirement.exception),
    ];
    for (name, field) in kinds {
        for (key, value) in part(name)? {
            let requirement = requirements.get_mut(&id_of(key)?).ok_or(format!("{key} is in [{name}] alone"))?;
            let words = value.as_str().map(str::trim).filter(|words| !words.is_empty());
            let words = words.ok_or(format!("{key} says nothing in [{name}]"))?.to_owned();
            *field(requirement) = Some(words);
        }
    }
    Ok(requirements)
}

fn text(requirements: &Requirements) -> String {
    let mut out = String::new();
    for (id, requirement) in requirements {
        let standing = match requirement.standing(*id) {
            Standing::Met => "met",
            Standing::InPart => "in part",
            Standing::Exception => "exception",
            Standing::LeftOut => "left out",
            Standing::Undecided => "UNDECIDED",
        };
        let (name, Requirement { section, about, .. }) = (id.to_string(), requirement);
        put(&mut out, format_args!("{name:<8} {section:<10} {standing:<10} {about}"));
        for (kind, cited) in [("code", &requirement.code), ("test", &requirement.tests)] {
            for Citation { path, line, item, .. } in cited {
                put(&mut out, format_args!("    {kind}  {path}:{line} {item}"));
            }
        }
        let words = [("note", &requirement.note), ("not ", &requirement.partly), ("why ", &requirement.exception)];
        for (kind, words) in words {
            if let Some(words) = words {
                put(&mut out, format_args!("    {kind}  {words}"));
            }
        }
    }
    put(&mut out, format_args!("\n{}", summary(requirements)));
    out
}

fn put(out: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{line}");
}

fn summary(requirements: &Requirements) -> String {
    let counts = Level::ALL.map(|level| {
        let count = |standing| {
            let of_level = requirements.iter().filter(|(id, _)| id.level == level);
            of_level.filter(|(id, requirement)| requirement.standing(**id) == standing).count()
        };
        let (met, in_part, exceptions) = (count(Standing::Met), count(Standing::InPart), count(Standing::Exception));
        let (left_out, undecided) = (count(Standing::LeftOut), count(Standing::Undecided));
        let mut text = format!("{}: {met} met and tested", level.name());
        for (count, what) in
            [(in_part, "in part"), (exceptions, "with an exception"), (left_out, "left out"), (undecided, "undecided")]
        {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    });
    format!("{}.", counts.join("; "))
}

/// Returns the table for readers. The table has no line numbers, so that it changes only if citations change.
fn markdown(requirements: &Requirements) -> String {
    let mut out = String::from(
        "# RFC 9293, requirement by requirement\n\n\
         What the stack does about each numbered requirement of RFC 9293 (TCP), from the citations in `crates/stack`. What\n\
         each asks for is in words of our own. `cargo xtask rfc --write` writes this file, `cargo xtask rfc` prints it with\n\
         lines of sources, and `cargo xtask ci` fails if a MUST or SHOULD has neither code and a test nor an exception.\n\n",
    );
    put(&mut out, format_args!("{}\n", summary(requirements)));
    out += "| requirement | section | asks for | code | held to it by, or why not |\n| --- | --- | --- | --- | --- |\n";
    for (id, requirement) in requirements {
        let tests = places(&requirement.tests, |citation| format!("`{}`", citation.item));
        let left_out = (requirement.standing(*id) == Standing::LeftOut).then(|| "left out".to_owned());
        let partly = requirement.partly.as_ref().map(|words| format!("In part: {words}"));
        let parts = [requirement.exception.clone(), partly, requirement.note.clone(), left_out, Some(tests)];
        let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        let held = parts.join(" ");
        let code = places(&requirement.code, |Citation { path, item, .. }| {
            let path = path.strip_prefix(SOURCES).and_then(|path| path.strip_prefix("src/")).unwrap_or(path);
            format!("`{path}` `{item}`")
        });
        let Requirement { section, about, .. } = requirement;
        put(&mut out, format_args!("| {id} | {section} | {about} | {code} | {held} |"));
    }
    out
}

/// Lists each place of a citation once, sorted.
fn places(citations: &[Citation], show: impl Fn(&Citation) -> String) -> String {
    let mut shown: Vec<String> = citations.iter().map(show).collect();
    shown.sort();
    shown.dedup();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIREMENTS: &str = "[requirements]\nMUST-1 = [\"3.1\", \"a window\"]\nMUST-2 = [\"3.2\", \"a sum\"]\n\
        SHLD-1 = [\"3.3\", \"a habit\"]\nMAY-1 = [\"3.4\", \"a liberty\"]\n[notes]\nMUST-1 = \"Mostly.\"\n[partly]\n[exceptions]\nMUST-2 = \"Nobody adds.\"\n";
    const MET: &str = "//! A.\n// MUST-1, SHLD-1\nfn a() {}\n#[cfg(test)]\nmod tests {\n    // MUST-1, SHLD-1\n    #[test]\n    fn b() {}\n}\n";

    fn looked(path: &str, text: &str) -> (Requirements, Vec<String>) {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        let (requirements, problems) = look(REQUIREMENTS, &[file]).unwrap();
        (requirements, problems.iter().map(Problem::to_string).collect())
    }

    #[test]
    fn no_must_and_no_should_of_rfc_9293_is_undecided() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (requirements, problems) = look(DATA, &tree::load(root).unwrap()).unwrap();
        assert_eq!(problems, []);
        let numbers =
            |level| requirements.keys().filter(|id| id.level == level).map(|id| id.number).collect::<Vec<_>>();
        for (level, last) in [(Level::Must, 69), (Level::Should, 31), (Level::May, 18), (Level::Recommended, 1)] {
            assert_eq!(numbers(level), (1..=last).collect::<Vec<_>>(), "{level:?}");
        }
    }

    #[test]
    fn code_and_a_test_or_an_exception_decide() {
        let (requirements, problems) = looked("crates/stack/src/a.rs", MET);
        assert_eq!(problems, [""; 0]);
        let standings: Vec<Standing> = requirements.iter().map(|(id, requirement)| requirement.standing(*id)).collect();
        assert_eq!(standings, [Standing::Met, Standing::Exception, Standing::Met, Standing::LeftOut]);
    }

    #[test]
    fn a_requirement_met_in_part_is_counted_apart_with_its_exception() {
        let data = REQUIREMENTS.replace("[partly]\n", "[partly]\nSHLD-1 = \"Not on Sundays.\"\n");
        let file = |text: &str| [File { path: "crates/stack/src/a.rs".to_owned(), text: text.to_owned() }];
        let (requirements, problems) = look(&data, &file(MET)).unwrap();
        assert_eq!(problems, []);
        assert!(summary(&requirements).contains("; SHLD: 0 met and tested, 1 in part; "));
        assert!(text(&requirements).contains("SHLD-1   3.3        in part    a habit\n"));
        assert!(markdown(&requirements).contains("| In part: Not on Sundays. `b` |"));
        // A requirement with a partial exception still needs code and a test.
        let (_, problems) = look(&data, &file("//! A.\n// MUST-1\nfn a() {}\n")).unwrap();
        assert!(problems.iter().any(|problem| problem.to_string().starts_with("SHLD-1: neither")), "{problems:?}");
    }

    #[test]
    fn half_of_it_decides_nothing() {
        let neither = "neither code nor a test cites it, and it is no exception";
        let (_, problems) = looked("crates/other/src/a.rs", MET);
        assert_eq!(problems, [format!("MUST-1: {neither}"), format!("SHLD-1: {neither}")]);
        let (_, problems) = looked("crates/stack/src/a.rs", "//! A.\n// MUST-1, MAY-1\nfn a() {}\n");
        let no_test = "code cites it and no test";
        assert_eq!(problems, [format!("MUST-1: {no_test}"), format!("SHLD-1: {neither}"), format!("MAY-1: {no_test}")]);
        let (_, problems) = looked("crates/stack/tests/a.rs", "//! A.\n// MUST-1 SHLD-1\n#[test]\nfn a() {}\n");
        assert_eq!(problems, ["MUST-1: a test cites it and no code", "SHLD-1: a test cites it and no code"]);
    }

    #[test]
    fn a_number_that_there_is_not_is_found() {
        let (_, problems) = looked("crates/stack/src/a.rs", &MET.replace("// MUST-1,", "// MUST-3, MUST-1,"));
        assert_eq!(
            problems,
            ["crates/stack/src/a.rs:2: RFC 9293 has no MUST-3", "crates/stack/src/a.rs:6: RFC 9293 has no MUST-3"]
        );
    }

    #[test]
    fn both_tables_tell_each_requirement_with_its_places_and_reasons() {
        let (requirements, _) = looked("crates/stack/src/a.rs", MET);
        let summary = "MUST: 1 met and tested, 1 with an exception; SHLD: 1 met and tested; \
            MAY: 0 met and tested, 1 left out; REC: 0 met and tested.";
        let text = text(&requirements);
        assert!(text.starts_with(
            "MUST-1   3.1        met        a window\n    code  crates/stack/src/a.rs:2 a\n    test  crates/stack/src/a.rs:6 b\n\
             \x20   note  Mostly.\nMUST-2   3.2        exception  a sum\n    why   Nobody adds.\n"
        ));
        assert!(text.ends_with(&format!("\n\n{summary}\n")), "{text}");
        let table = markdown(&requirements);
        assert!(table.contains(&format!("\n{summary}\n")));
        assert!(table.contains("\n| MUST-1 | 3.1 | a window | `a.rs` `a` | Mostly. `b` |\n"), "{table}");
        assert!(table.contains("\n| MUST-2 | 3.2 | a sum |  | Nobody adds. |\n"));
        assert!(table.ends_with("\n| MAY-1 | 3.4 | a liberty |  | left out |\n"));
    }

    #[test]
    fn an_exception_needs_a_requirement_and_a_reason() {
        for (text, error) in [
            ("MUST-9 = \"why\"", "MUST-9 is in [exceptions] alone"),
            ("MUST-1 = \" \"", "MUST-1 says nothing in [exceptions]"),
            ("WILL-1 = \"why\"", "WILL-1 is no requirement"),
        ] {
            assert_eq!(parse(&format!("{REQUIREMENTS}{text}\n")).unwrap_err(), error);
        }
        assert!(parse("[requirements]\nMUST-1 = [\"3\"]\n").unwrap_err().contains("has to be a section"));
        assert_eq!(parse("[requirements]\n").unwrap_err(), "there is no [notes]");
    }
}
