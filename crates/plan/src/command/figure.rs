//! Figures that a command prints, and the work that one of its runs does.

use crate::label::Label;
use crate::limits;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};

/// Names of figures that siga measures itself, so that no figure of a command has one of them.
pub const OWN_NAMES: [&str; 10] =
    ["rate", "p50", "p99", "streams_rate", "to_server_rate", "to_client_rate", "sent_rate", "loss", "jitter", "itr"];
/// The longest name of a unit of work, in bytes. Names of figures begin with `cpu_per_` and this name.
const WORK_BYTES: usize = 20;

/// Whether a higher or a lower value of a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// A higher value is better, as of a rate.
    Higher,
    /// A lower value is better, as of a time.
    Lower,
}

/// Which of several values in the output a figure takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// The only value; several ones are an error.
    #[default]
    Only,
    /// The first value.
    First,
    /// The last value.
    Last,
    /// The sum of all values.
    Sum,
}

/// The standard stream of a command that has a figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    #[default]
    Output,
    /// Standard error.
    Error,
}

/// A figure of a command. Exactly one of `regex`, `json`, `csv` and `elapsed` says where its value stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The name in tables and files.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: Label,
    /// The unit of the value.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub unit: Label,
    /// Whether a higher or a lower value is better.
    pub better: Better,
    /// A regular expression. The value is the text of its first group, or of the whole match if it has none. If it has a group
    /// named `unit`, the text of that group must be the figure's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// A JSON pointer (RFC 6901), such as `/jobs/0/read/bw`, into output that is one JSON value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// The name of a column of output that is CSV with a line of names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<String>,
    /// Whether the value is the time in seconds from the start of the program to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elapsed: bool,
    /// The stream that is read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stream: Stream,
    /// A file that the command writes, which is read instead of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Which of several values is taken.
    #[serde(default, skip_serializing_if = "is_default")]
    pub take: Take,
    /// A factor that converts the value to the unit.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f64,
}

/// The work that one run of a command does. With it, a run has two more figures: units a second, and CPU time per unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnitOfWork {
    /// The unit, such as `transaction` or `MB`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: Label,
    /// Number of units of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<f64>,
    /// The name of the figure whose value is the number of units of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
}

/// The identity of a figure: figures with the same key are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FigureKey {
    /// Name of the figure.
    pub name: Label,
    /// Unit of its values.
    pub unit: Label,
    /// Whether a higher or a lower value is better.
    pub better: Better,
}

/// Where the value of a figure stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// The text that a regular expression matches.
    Regex(&'a str),
    /// A value in JSON, by its pointer.
    Json(&'a str),
    /// The fields of a column of CSV, by its name.
    Csv(&'a str),
    /// The time of the run.
    Elapsed,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> f64 {
    1.0
}

fn is_one(scale: &f64) -> bool {
    *scale == 1.0
}

impl Figure {
    /// Returns the key under which results store the values of the figure.
    pub fn key(&self) -> FigureKey {
        FigureKey { name: self.name, unit: self.unit, better: self.better }
    }

    /// Returns where the value stands; `None` if the figure does not say exactly one place.
    pub fn source(&self) -> Option<Source<'_>> {
        let all = [
            self.regex.as_deref().map(Source::Regex),
            self.json.as_deref().map(Source::Json),
            self.csv.as_deref().map(Source::Csv),
            self.elapsed.then_some(Source::Elapsed),
        ];
        let mut given = all.into_iter().flatten();
        given.next().filter(|_| given.next().is_none())
    }

    /// Refuses a figure that no output can have.
    fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        let Some(source) = self.source() else {
            return Err(Error::usage("a figure must come from exactly one source")
                .hint("set exactly one of the keys `regex`, `json`, `csv` and `elapsed = true`"));
        };
        match source {
            Source::Regex(text) => check_regex(text)?,
            Source::Json(pointer) if !pointer.is_empty() && !pointer.starts_with('/') => {
                return Err(Error::usage(format!("`{}` is not a valid JSON pointer", pointer.escape_debug()))
                    .hint("a JSON pointer begins with /, for example /jobs/0/read/bw"));
            }
            Source::Elapsed if self.file.is_some() || self.stream != Stream::Output => {
                return Err(Error::usage("a figure with `elapsed = true` cannot also have the key `file` or `stream`")
                    .hint("remove `file` and `stream`, because siga measures the elapsed time itself"));
            }
            Source::Json(_) | Source::Csv(_) | Source::Elapsed => {}
        }
        if !(self.scale.is_finite() && self.scale > 0.0) {
            return Err(
                Error::usage(format!("scale = {} is not allowed", self.scale)).hint("`scale` must be greater than 0")
            );
        }
        if self.file.as_ref().is_some_and(|file| file.is_empty() || file.contains('\0')) {
            return Err(Error::usage("the key `file` of a figure is empty or contains a zero byte")
                .hint("set `file` to the path of a file"));
        }
        Ok(())
    }
}

impl UnitOfWork {
    /// Returns the figures that come with this unit: units a second, and CPU microseconds per unit.
    pub fn keys(unit: Label) -> [Option<FigureKey>; 2] {
        let key = |name: String, of: String, better| {
            Some(FigureKey { name: name.parse().ok()?, unit: of.parse().ok()?, better })
        };
        [
            key(format!("{unit}_rate"), format!("{unit}/sec"), Better::Higher),
            key(format!("cpu_per_{unit}"), format!("us/{unit}"), Better::Lower),
        ]
    }
}

/// Refuses figures and units that contradict themselves or each other.
///
/// # Errors
/// Returns an error of kind `Usage` for the first value that is impossible.
pub(super) fn check(figures: &[Figure], unit: Option<&UnitOfWork>) -> Result<()> {
    if figures.len() > limits::FIGURES_MAX {
        return Err(Error::usage(format!("the command has too many figures: {}", figures.len()))
            .hint(format!("a command can have at most {} figures", limits::FIGURES_MAX)));
    }
    for (at, figure) in figures.iter().enumerate() {
        figure.check().map_err(|error| error.at(format!("figure {}", figure.name)))?;
        if figures[..at].iter().any(|other| other.name == figure.name) {
            return Err(Error::usage(format!("two figures have the name {}", figure.name))
                .hint("give each figure a different name"));
        }
    }
    let Some(unit) = unit else { return Ok(()) };
    if !unit.name.is_name() || unit.name.as_str().len() > WORK_BYTES {
        return Err(Error::usage(format!("`{}` is not a valid name for a unit", unit.name))
            .hint(format!("write 1 to {WORK_BYTES} characters: letters, digits, `-`, `_` or `.`")));
    }
    let taken = UnitOfWork::keys(unit.name).into_iter().flatten().map(|key| key.name);
    if let Some(name) = taken.into_iter().find(|name| figures.iter().any(|figure| figure.name == *name)) {
        return Err(Error::usage(format!("the name {name} is not available for a figure, because siga computes a figure of this name from the unit {}", unit.name))
            .hint("give your figure another name"));
    }
    match (unit.count, &unit.figure) {
        (Some(count), None) if count.is_finite() && count > 0.0 => Ok(()),
        (None, Some(name)) if figures.iter().any(|figure| figure.name.as_str() == name) => Ok(()),
        (None, Some(name)) => Err(Error::usage(format!(
            "the unit {} refers to the figure {name}, but the command has no figure of this name",
            unit.name
        ))
        .hint("add the figure to `figures`")),
        (Some(_) | None, _) => Err(Error::usage(format!("the unit {} needs either `count` or `figure`", unit.name))
            .hint("set `count` to a number greater than 0, or `figure` to the name of a figure")),
    }
}

/// Refuses a text that is no regular expression, or a very large one.
pub(super) fn check_regex(text: &str) -> Result<()> {
    let built = regex_lite::RegexBuilder::new(text).size_limit(limits::REGEX_BYTES_MAX).build();
    built.map(drop).map_err(|error| {
        Error::usage(format!("`{}` is not a valid regular expression: {error}", text.escape_debug()))
            .hint("use the syntax of the Rust crate regex; in TOML, write the expression in single quotation marks")
    })
}

fn check_name(name: &Label) -> Result<()> {
    let is_own = OWN_NAMES.contains(&name.as_str())
        || ["cpu", "client", "router", "server", "other"].iter().any(|part| {
            name.as_str().strip_prefix(part).is_some_and(|rest| ["_cpu", "_virtual", "_cp", "_total"].contains(&rest))
        });
    if !name.is_name() || is_own {
        let why = if is_own { "is the name of one of siga's own figures" } else { "is not a valid name for a figure" };
        return Err(Error::usage(format!("`{name}` {why}"))
            .hint("use letters, digits, `-`, `_` and `.`, and a name that siga's tables do not use"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(rest: &str) -> Figure {
        toml::from_str(&format!("name = 'tps'\nunit = 'trans/s'\nbetter = 'higher'\n{rest}")).unwrap()
    }

    #[test]
    fn a_figure_stands_in_exactly_one_place() {
        let good = ["regex = 'tps = ([0-9.]+)'", "json = '/a/0'", "json = ''", "csv = 'x'", "elapsed = true"];
        for rest in good {
            check(&[figure(rest)], None).unwrap();
        }
        for rest in [
            "",
            "regex = 'a'\njson = '/a'",
            "regex = '('",
            "regex = '(((a{999}){999}){999})'",
            "json = 'a'",
            "elapsed = true\nfile = 'x'",
            "elapsed = true\nstream = 'error'",
            "csv = 'x'\nscale = 0.0",
            "csv = 'x'\nscale = nan",
            "csv = 'x'\nfile = ''",
        ] {
            let error = check(&[figure(rest)], None).unwrap_err();
            assert!(error.exit_status() == 2 && error.way_out().is_some(), "{rest}: {error}");
        }
    }

    #[test]
    fn names_are_distinct_and_not_those_of_own_figures() {
        let named = |name: &str| Figure { name: name.parse().unwrap(), ..figure("csv = 'x'") };
        check(&[named("a"), named("b")], None).unwrap();
        assert!(check(&[named("a"), named("a")], None).is_err());
        for name in ["rate", "p99", "cpu_total", "server_cpu", "other_virtual", "a b"] {
            assert!(check(&[named(name)], None).is_err(), "{name}");
        }
        let many: Vec<Figure> = (0..=limits::FIGURES_MAX).map(|at| named(&format!("f{at}"))).collect();
        assert!(check(&many, None).is_err() && check(&many[1..], None).is_ok());
    }

    #[test]
    fn a_unit_of_work_has_one_number() {
        let figures = [figure("csv = 'x'")];
        let unit = |text: &str| -> UnitOfWork { toml::from_str(text).unwrap() };
        for text in ["name = 'trans'\ncount = 10.5", "name = 'trans'\nfigure = 'tps'"] {
            check(&figures, Some(&unit(text))).unwrap();
        }
        for text in [
            "name = 'trans'",
            "name = 'trans'\ncount = 0.0",
            "name = 'trans'\ncount = inf",
            "name = 'trans'\ncount = 1.0\nfigure = 'tps'",
            "name = 'trans'\nfigure = 'absent'",
            "name = 'a/b'\ncount = 1.0",
            "name = 'averyveryverylongunit'\ncount = 1.0",
        ] {
            assert!(check(&figures, Some(&unit(text))).is_err(), "{text}");
        }
        let taken = Figure { name: "trans_rate".parse().unwrap(), ..figures[0].clone() };
        assert!(check(&[taken], Some(&unit("name = 'trans'\ncount = 1.0"))).is_err());
        let longest: Label = "x".repeat(WORK_BYTES).parse().unwrap();
        assert!(UnitOfWork::keys(longest).iter().all(Option::is_some));
    }
}
