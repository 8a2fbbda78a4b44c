//! Writes the requirements for readers: as a page of tables for docs/, or as text with the path of each place.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::data::{Place, Requirement, Rfc, Standing};

/// Returns the page. It has no line numbers, so that it changes only if the data or the names of functions and tests change.
pub(super) fn markdown(rfcs: &[Rfc], related: &BTreeMap<u32, String>) -> String {
    let mut out = String::from(
        "# RFCs, requirement by requirement\n\n\
         siga has its own TCP/IP stack. This page lists the requirements of the RFCs that the stack implements. There is one table\n\
         for each RFC. Each row of such a table has one requirement in short form, the code that fulfils it, and a test that fails\n\
         without this code. If the stack does not fulfil a requirement, the last column gives the reason. An RFC can also have\n\
         requirements for other programs, for example for applications, or for protocols that siga does not have. The page omits\n\
         these requirements, or marks them as not applicable.\n\n\
         The files in `xtask/src/rfc/` contain the data of this page. `cargo xtask rfc --write` writes the page from these files.\n\
         `cargo xtask ci` fails in these cases:\n\n\
         - the page differs from the data in the files\n\
         - a MUST or SHOULD has no code or no test, and its row gives no reason\n\
         - a file, function or test that the page names does not exist\n\
         - the source code of the stack cites an RFC that is not on this page\n\n\
         Paths are relative to `crates/stack/src/`. The first table has the number of requirements of each RFC by their state:\n\n\
         - *fulfilled*: the stack does what the RFC requires\n\
         - *in part*: the stack does what the RFC requires, with an exception\n\
         - *not fulfilled*: the stack does not do what the RFC requires, and the row of the requirement gives the reason\n\
         - *not applicable*: the requirement is not for a TCP/IP stack, or for a protocol that siga does not have\n\
         - *not implemented*: the requirement is optional (MAY), and the stack does not implement it\n\n",
    );
    let heads = Standing::DECIDED.map(|(_, words)| words).join(" | ");
    put(&mut out, format_args!("| RFC | title | {heads} |\n| --- | --- | --- | --- | --- | --- | --- |"));
    for rfc in rfcs {
        let counts = counts(&rfc.requirements).map(|count| count.to_string()).join(" | ");
        put(&mut out, format_args!("| [{0}](#rfc-{0}) | {1} | {counts} |", rfc.number, rfc.title));
    }
    let all = total(rfcs).map(|count| count.to_string()).join(" | ");
    put(&mut out, format_args!("| {} | all | {all} |\n", rfcs.len()));
    out += "The stack's source code also cites these RFCs, for one fact or as background:\n\n| RFC | cited for |\n| --- | --- |\n";
    for (number, about) in related {
        put(&mut out, format_args!("| {number} | {about} |"));
    }
    for rfc in rfcs {
        put(&mut out, format_args!("\n## RFC {}\n\nThe title of this RFC is \"{}\".", rfc.number, rfc.title));
        if let Some(about) = &rfc.about {
            put(&mut out, format_args!("{about}"));
        }
        out += "\n| keyword | section | requirement | code | test, or reason |\n| --- | --- | --- | --- | --- |\n";
        for requirement in &rfc.requirements {
            out += &row(requirement);
        }
    }
    out
}

fn row(requirement: &Requirement) -> String {
    let code = places(&requirement.code, |Place { path, item }| {
        let path = path.strip_prefix(super::SOURCES).and_then(|path| path.strip_prefix("src/")).unwrap_or(path);
        format!("`{path}` `{item}`")
    });
    let tests = places(&requirement.tests, |place| format!("`{}`", place.item));
    let not_built = (requirement.standing() == Standing::NotBuilt).then(|| "Optional, and not implemented.".to_owned());
    let said = |words: &str, text: &Option<String>| text.as_ref().map(|text| format!("{words}{text}"));
    let parts = [
        said("Not fulfilled: ", &requirement.why_not),
        said("Not applicable: ", &requirement.not_applicable),
        said("In part: ", &requirement.partly),
        requirement.note.clone(),
        not_built,
        Some(tests).filter(|tests| !tests.is_empty()),
    ];
    let held = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    format!("| {} | {} | {} | {code} | {held} |\n", requirement.name(), requirement.section, requirement.asks)
}

/// Returns all requirements as text, with complete paths.
pub(super) fn text(rfcs: &[Rfc]) -> String {
    let mut out = String::new();
    for rfc in rfcs {
        put(&mut out, format_args!("RFC {}: {}", rfc.number, rfc.title));
        for requirement in &rfc.requirements {
            let standing = Standing::DECIDED.iter().find(|(standing, _)| *standing == requirement.standing());
            let (name, standing) = (requirement.name(), standing.map_or("UNDECIDED", |(_, words)| words));
            put(&mut out, format_args!("  {name:<8} {:<10} {standing:<19} {}", requirement.section, requirement.asks));
            for (kind, cited) in [("code", &requirement.code), ("test", &requirement.tests)] {
                for Place { path, item } in cited {
                    put(&mut out, format_args!("      {kind}  {}", format!("{path} {item}").trim_start()));
                }
            }
            for (kind, words) in [
                ("note", &requirement.note),
                ("part", &requirement.partly),
                ("why ", &requirement.why_not),
                ("n/a ", &requirement.not_applicable),
            ] {
                if let Some(words) = words {
                    put(&mut out, format_args!("      {kind}  {words}"));
                }
            }
        }
    }
    let counts: Vec<String> =
        Standing::DECIDED.iter().zip(total(rfcs)).map(|((_, words), count)| format!("{count} {words}")).collect();
    put(&mut out, format_args!("\n{} RFCs: {}.", rfcs.len(), counts.join(", ")));
    out
}

fn total(rfcs: &[Rfc]) -> [usize; 5] {
    Standing::DECIDED.map(|(standing, _)| {
        rfcs.iter().flat_map(|rfc| &rfc.requirements).filter(|requirement| requirement.standing() == standing).count()
    })
}

fn counts(requirements: &[Requirement]) -> [usize; 5] {
    Standing::DECIDED
        .map(|(standing, _)| requirements.iter().filter(|requirement| requirement.standing() == standing).count())
}

/// Lists each place once, sorted.
fn places(places: &[Place], show: impl Fn(&Place) -> String) -> String {
    let mut shown: Vec<String> = places.iter().map(show).collect();
    shown.sort();
    shown.dedup();
    shown.join(", ")
}

fn put(out: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{line}");
}
