//! The requirements of each RFC, read from `xtask/src/rfc/rfc<number>.toml`, and the RFCs that the sources cite for one fact, read
//! from `related.toml`.
//!
//! A file has a `title`, may have a text `about`, and lists requirements as `[[must]]`, `[[should]]`, `[[may]]` or
//! `[[recommended]]`. Each requirement has a `section` and the words `asks`. It is decided by `code` and `tests`, or by `why_not` or
//! `not_applicable`. With `partly`, it is met except in one case; a `note` only explains. A requirement of an RFC that numbers its
//! requirements has a `number` instead of `code` and `tests`, because citations in the sources name these.

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

use crate::tidy::tree::File;

/// The folder with the files of all RFCs.
const FOLDER: &str = "xtask/src/rfc/";

/// The word of the RFC that says how strict a requirement is. The order is that of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Must,
    Should,
    May,
    Recommended,
}

impl Level {
    const ALL: [Self; 4] = [Self::Must, Self::Should, Self::May, Self::Recommended];

    /// Returns the name in numbered requirements, as RFC 9293 spells it.
    fn short(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHLD",
            Self::May => "MAY",
            Self::Recommended => "REC",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
            Self::Recommended => "RECOMMENDED",
        }
    }

    /// Whether a requirement of this level that is not met needs a reason.
    fn has_to_be_decided(self) -> bool {
        match self {
            Self::Must | Self::Should => true,
            Self::May | Self::Recommended => false,
        }
    }
}

/// The number of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) level: Level,
    pub(super) number: u32,
}

impl Id {
    pub(super) fn new(level: &str, number: &str) -> Option<Self> {
        let level = Level::ALL.into_iter().find(|known| known.short() == level)?;
        Some(Self { level, number: number.parse().ok()? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.level.short(), self.number)
    }
}

/// A function, type, constant or test in the sources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The path from the root. Empty for a test that a data file names, because a test has only its name.
    pub(super) path: String,
    pub(super) item: String,
}

/// A requirement, with the places that meet it or the reason why it is not met.
#[derive(Debug)]
pub(super) struct Requirement {
    pub(super) level: Level,
    pub(super) number: Option<u32>,
    pub(super) section: String,
    pub(super) asks: String,
    /// How the stack meets the requirement.
    pub(super) note: Option<String>,
    /// The case in which the requirement is not met, and the reason.
    pub(super) partly: Option<String>,
    pub(super) why_not: Option<String>,
    pub(super) not_applicable: Option<String>,
    pub(super) code: Vec<Place>,
    pub(super) tests: Vec<Place>,
}

/// Whether and how a requirement is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Kept,
    InPart,
    NotKept,
    NotApplicable,
    /// The requirement is optional, and the stack does not have it.
    NotBuilt,
    Undecided,
}

impl Standing {
    /// All standings that a checked requirement can have, with the words of the page.
    pub(super) const DECIDED: [(Self, &'static str); 5] = [
        (Self::Kept, "fulfilled"),
        (Self::InPart, "in part"),
        (Self::NotKept, "not fulfilled"),
        (Self::NotApplicable, "not applicable"),
        (Self::NotBuilt, "not implemented"),
    ];
}

impl Requirement {
    pub(super) fn standing(&self) -> Standing {
        let (code, tests) = (!self.code.is_empty(), !self.tests.is_empty());
        match (&self.why_not, &self.not_applicable) {
            (Some(_), None) => Standing::NotKept,
            (None, Some(_)) => Standing::NotApplicable,
            (None, None) if code && tests && self.partly.is_some() => Standing::InPart,
            (None, None) if code && tests => Standing::Kept,
            (None, None) if !code && !tests && !self.level.has_to_be_decided() => Standing::NotBuilt,
            (Some(_) | None, _) => Standing::Undecided,
        }
    }

    pub(super) fn id(&self) -> Option<Id> {
        self.number.map(|number| Id { level: self.level, number })
    }

    /// Returns the number of the requirement, or the word that says how strict it is.
    pub(super) fn name(&self) -> String {
        self.id().map_or_else(|| self.level.word().to_owned(), |id| id.to_string())
    }
}

/// An RFC with its requirements.
#[derive(Debug)]
pub(super) struct Rfc {
    pub(super) number: u32,
    /// The path of the file that describes it.
    pub(super) path: String,
    pub(super) title: String,
    pub(super) about: Option<String>,
    pub(super) requirements: Vec<Requirement>,
}

/// Reads all RFCs that have requirements, by number.
pub(super) fn rfcs(files: &[File]) -> Result<Vec<Rfc>, String> {
    let mut rfcs = Vec::new();
    for file in files {
        let name = file.path.strip_prefix(FOLDER).and_then(|path| path.strip_prefix("rfc")?.strip_suffix(".toml"));
        let Some(name) = name else { continue };
        let number = name.parse().map_err(|_| format!("{}: `{name}` is not the number of an RFC", file.path))?;
        rfcs.push(rfc(number, file).map_err(|error| format!("{}: {error}", file.path))?);
    }
    rfcs.sort_by_key(|rfc| rfc.number);
    Ok(rfcs)
}

/// Reads the RFCs without requirements that the sources cite: the number of each, and for what it is cited.
pub(super) fn related(files: &[File]) -> Result<BTreeMap<u32, String>, String> {
    let path = format!("{FOLDER}related.toml");
    let Some(file) = files.iter().find(|file| file.path == path) else { return Ok(BTreeMap::new()) };
    let table: Table = file.text.parse().map_err(|error: toml::de::Error| format!("{path}: {error}"))?;
    let entry = |(number, about): (&String, &Value)| Some((number.parse().ok()?, about.as_str()?.to_owned()));
    let entries = table.iter().map(|pair| entry(pair).ok_or(format!("{path}: `{}` is not an RFC with a text", pair.0)));
    entries.collect()
}

fn rfc(number: u32, file: &File) -> Result<Rfc, String> {
    let mut table: Table = file.text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let title = take_text(&mut table, "title")?.ok_or("it has no title")?;
    let about = take_text(&mut table, "about")?;
    let mut requirements = Vec::new();
    for level in Level::ALL {
        let key = level.word().to_lowercase();
        let Some(list) = table.remove(&key) else { continue };
        let Value::Array(list) = list else { return Err(format!("`{key}` is not a list of requirements")) };
        for entry in list {
            let Value::Table(entry) = entry else { return Err(format!("`{key}` is not a list of requirements")) };
            let words = entry.get("asks").and_then(Value::as_str).unwrap_or_default().to_owned();
            requirements.push(requirement(level, entry).map_err(|error| format!("{key} `{words}`: {error}"))?);
        }
    }
    no_more(&table)?;
    Ok(Rfc { number, path: file.path.clone(), title, about, requirements })
}

fn requirement(level: Level, mut entry: Table) -> Result<Requirement, String> {
    let entry = &mut entry;
    let number = entry.remove("number");
    let number =
        number.map(|value| value.as_integer().and_then(|number| u32::try_from(number).ok()).ok_or("a bad number"));
    let found = Requirement {
        level,
        number: number.transpose()?,
        section: take_text(entry, "section")?.ok_or("it has no section")?,
        asks: take_text(entry, "asks")?.ok_or("it has no words")?,
        note: take_text(entry, "note")?,
        partly: take_text(entry, "partly")?,
        why_not: take_text(entry, "why_not")?,
        not_applicable: take_text(entry, "not_applicable")?,
        code: take_texts(entry, "code")?.iter().map(|text| code_place(text)).collect::<Result<_, _>>()?,
        tests: take_texts(entry, "tests")?.into_iter().map(|item| Place { path: String::new(), item }).collect(),
    };
    if found.number.is_some() && !(found.code.is_empty() && found.tests.is_empty()) {
        return Err("citations in the sources name the code and tests of a numbered requirement".to_owned());
    }
    no_more(entry)?;
    Ok(found)
}

/// Reads a place such as `tcp/opening.rs poll_transmit`. The path is relative to the sources of the stack, or begins with `crates/`.
fn code_place(text: &str) -> Result<Place, String> {
    let (path, item) = text.split_once(' ').ok_or(format!("`{text}` is not a file and an item"))?;
    let path = if path.starts_with("crates/") { path.to_owned() } else { format!("{}src/{path}", super::SOURCES) };
    Ok(Place { path, item: item.to_owned() })
}

fn take_text(table: &mut Table, key: &str) -> Result<Option<String>, String> {
    let Some(value) = table.remove(key) else { return Ok(None) };
    let text = value.as_str().map(str::trim).filter(|text| !text.is_empty());
    text.map(|text| Some(text.to_owned())).ok_or(format!("`{key}` says nothing"))
}

fn take_texts(table: &mut Table, key: &str) -> Result<Vec<String>, String> {
    let Some(value) = table.remove(key) else { return Ok(Vec::new()) };
    let texts = value.as_array().and_then(|list| list.iter().map(|text| text.as_str().map(str::to_owned)).collect());
    texts.ok_or(format!("`{key}` is not a list of texts"))
}

fn no_more(table: &Table) -> Result<(), String> {
    table.keys().next().map_or(Ok(()), |key| Err(format!("`{key}` is no key")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Rfc>, String> {
        rfcs(&[File { path: "xtask/src/rfc/rfc7.toml".to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn code_and_a_test_or_a_reason_decide_a_requirement() {
        let text = "title = \"A\"\n[[must]]\nsection = \"1\"\nasks = \"a\"\n";
        for (more, standing) in [
            ("", Standing::Undecided),
            ("code = [\"a.rs b\"]\n", Standing::Undecided),
            ("tests = [\"c\"]\n", Standing::Undecided),
            ("code = [\"a.rs b\"]\ntests = [\"c\"]\n", Standing::Kept),
            ("code = [\"a.rs b\"]\ntests = [\"c\"]\npartly = \"d\"\n", Standing::InPart),
            ("partly = \"d\"\n", Standing::Undecided),
            ("why_not = \"d\"\n", Standing::NotKept),
            ("not_applicable = \"d\"\n", Standing::NotApplicable),
            ("why_not = \"d\"\nnot_applicable = \"d\"\n", Standing::Undecided),
        ] {
            let rfcs = read(&format!("{text}{more}")).unwrap();
            assert_eq!(rfcs[0].requirements[0].standing(), standing, "{more}");
        }
        let optional = read(&text.replace("must", "may")).unwrap();
        assert_eq!(optional[0].requirements[0].standing(), Standing::NotBuilt);
    }

    #[test]
    fn a_file_with_a_wrong_key_or_value_is_refused_with_the_requirement() {
        let good = "title = \"A\"\n[[must]]\nsection = \"1\"\nasks = \"a\"\n";
        assert!(read(good).is_ok());
        for (text, error) in [
            (good.replace("title", "name"), "it has no title"),
            (good.replace("must", "shall"), "`shall` is no key"),
            (good.replace("section", "part"), "must `a`: it has no section"),
            (format!("{good}note = \" \"\n"), "must `a`: `note` says nothing"),
            (format!("{good}code = [\"a.rs\"]\n"), "must `a`: `a.rs` is not a file and an item"),
            (format!("{good}tests = \"b\"\n"), "must `a`: `tests` is not a list of texts"),
            (format!("{good}number = 1\ntests = [\"b\"]\n"), "must `a`: citations in the sources name"),
            (format!("{good}number = -1\n"), "must `a`: a bad number"),
            (format!("{good}reason = \"b\"\n"), "must `a`: `reason` is no key"),
        ] {
            let found = read(&text).unwrap_err();
            assert!(found.starts_with(&format!("xtask/src/rfc/rfc7.toml: {error}")), "{found}");
        }
        let misnamed = File { path: "xtask/src/rfc/rfcs.toml".to_owned(), text: good.to_owned() };
        assert_eq!(rfcs(&[misnamed]).unwrap_err(), "xtask/src/rfc/rfcs.toml: `s` is not the number of an RFC");
    }
}
