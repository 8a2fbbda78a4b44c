//! Jitter from a file: the tables of values that tc's netem reads (`/usr/lib/tc/*.dist`).
//!
//! A table has whole numbers that are separated by white space, and comments that begin with `#`. Each number is a deviation in units of
//! [`UNIT`] parts of the jitter. siga reads a file only where a user names it, and passes on a shorter table with the same distribution.

use crate::error::{Error, Result};
use std::sync::Arc;

/// A deviation of this size is one jitter, as in netem.
pub const UNIT: i16 = 8_192;
/// How the text of a table begins.
pub(super) const NAME: &str = "table:";
/// Maximum number of values that a link keeps.
const VALUES_MAX: usize = 257;
/// Maximum size of a file with a table.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of values in a file, as in netem.
const FILE_VALUES_MAX: usize = 16_384;
/// Where the value of the setting `jitter` begins in a text.
const SETTING: &str = "jitter=";

/// Reads the text of a table: at least two values in ascending order.
pub(super) fn parse(text: &str) -> Option<Arc<[i16]>> {
    let values: Option<Vec<i16>> = text.strip_prefix(NAME)?.split('/').map(|value| value.parse().ok()).collect();
    let values = values.filter(|values| (2..=VALUES_MAX).contains(&values.len()) && values.is_sorted())?;
    Some(values.into())
}

pub(super) fn text(values: &[i16]) -> String {
    let values: Vec<String> = values.iter().map(i16::to_string).collect();
    format!(":{NAME}{}", values.join("/"))
}

/// Replaces each `jitter=TIME:FILE` in `text` by the table in the file. `text` is the settings of a link, or a file that contains such
/// settings. The name of a file contains a `/`. `read` returns the text of a file.
///
/// # Errors
/// Returns an error of kind `Usage` if a file cannot be read or is no table.
pub fn with_files(text: &str, read: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut all = String::new();
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while let Some((before, value)) = rest.split_once(SETTING).filter(|(before, _)| !before.contains('#')) {
            let end = value.find([',', '"', '\'', '\r', '\n']).unwrap_or(value.len());
            let (value, after) = value.split_at(end);
            all.push_str(before);
            all.push_str(SETTING);
            match value.split_once(':').filter(|(_, file)| file.contains('/') && !file.starts_with(NAME)) {
                Some((time, file)) => {
                    let values = read(file).and_then(|text| quantiles(&text));
                    let values = values.map_err(|error| error.at(format!("table of jitter {file}")))?;
                    all.push_str(time);
                    all.push_str(&self::text(&values));
                }
                None => all.push_str(value),
            }
            rest = after;
        }
        all.push_str(rest);
    }
    Ok(all)
}

/// Reads the numbers of a table, and returns its quantiles.
fn quantiles(text: &str) -> Result<Vec<i16>> {
    let refused = |why: String| {
        Error::usage(why).hint("use a file with whole numbers, such as /usr/lib/tc/pareto.dist of the package iproute2")
    };
    let words = text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace());
    let mut values = Vec::new();
    for word in words {
        let not = || refused(format!("`{}` is not a whole number from -32768 to 32767", word.escape_debug()));
        values.push(word.parse::<i16>().map_err(|_| not())?);
        if values.len() > FILE_VALUES_MAX {
            return Err(refused(format!("the file has more than {FILE_VALUES_MAX} numbers")));
        }
    }
    if values.len() < 2 {
        return Err(refused(format!("the file has fewer than two numbers: {}", values.len())));
    }
    values.sort_unstable();
    Ok(shortened(&values))
}

/// Returns at most [`VALUES_MAX`] values with the same distribution: the quantiles of the given ones.
fn shortened(values: &[i16]) -> Vec<i16> {
    let count = values.len().min(VALUES_MAX);
    (0..count).map(|at| values[at * (values.len() - 1) / (count - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Distribution, Link};

    fn linked(table: &str) -> Result<Link> {
        with_files("latency=1ms,jitter=100us:./a,loss=1%", |_| Ok(table.to_owned()))?.parse()
    }

    #[test]
    fn a_table_in_a_file_replaces_its_name() {
        let read = linked("# a comment\n 8192 -8192\n0 # another 5\n").unwrap();
        assert_eq!(read.jitter, Some((100_000, Distribution::Table([-8_192, 0, 8_192].into()))));
        assert_eq!(read.to_string().parse::<Link>().unwrap(), read);
        let topology =
            "a = \"jitter=1us:/b,loss=1%\" # jitter=1us:/c\nb = 'jitter=2us:./d'\nc = \"jitter=3us:normal\"\n";
        let expanded = with_files(topology, |file| Ok(if file == "/b" { "1 2" } else { "3 4" }.to_owned())).unwrap();
        let expected = "a = \"jitter=1us:table:1/2,loss=1%\" # jitter=1us:/c\nb = 'jitter=2us:table:3/4'\nc = \"jitter=3us:normal\"\n";
        assert_eq!(expanded, expected);
        let long: Vec<String> = (-5_000..5_000).map(|value: i16| value.to_string()).collect();
        let Some((_, Distribution::Table(values))) = linked(&long.join("\n")).unwrap().jitter else {
            panic!("no table")
        };
        assert_eq!((values.len(), values[0], values[128], values[256]), (VALUES_MAX, -5_000, -1, 4_999));
        let link = linked(&long.join(" ")).unwrap();
        assert_eq!(link.label(), "latency=1ms,jitter=100us:table,loss=1%");
        let json = serde_json::to_string(&link).unwrap();
        assert_eq!(serde_json::from_str::<Link>(&json).unwrap(), link);
    }

    #[test]
    fn a_file_that_is_no_table_is_refused() {
        let many = "1 ".repeat(FILE_VALUES_MAX + 1);
        for (text, part) in [
            ("", "fewer than two numbers"),
            ("1", "fewer than two numbers"),
            ("1 2 x", "`x` is not a whole number"),
            ("1 40000", "`40000` is not a whole number"),
            ("1 \u{1b}[2J", "`\\u{1b}[2J` is not a whole number"),
            (&many, "more than 16384 numbers"),
        ] {
            let error = linked(text).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains(part), "{error}");
        }
        let absent = with_files("jitter=1us:/none", |_| Err(Error::usage("cannot read"))).unwrap_err();
        assert!(absent.to_string().contains("/none"), "{absent}");
    }
}
