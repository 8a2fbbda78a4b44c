//! The formats and layouts of a report, with their names on the command line, and the writers of JSON and CSV.

use serde_json::Value;
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use std::fmt;
use std::str::FromStr;

/// The format of a report: the value of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text with aligned columns, for people.
    #[default]
    Text,
    /// One JSON object. Its member `schema` names the format and its version.
    Json,
    /// CSV: a header line, then one record on each line (RFC 4180 quoting, lines end in LF).
    Csv,
    /// Text and tables in Markdown.
    Md,
}

impl Format {
    /// All formats, in the order of help texts.
    pub const ALL: [Self; 4] = [Self::Text, Self::Json, Self::Csv, Self::Md];

    /// Returns the name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Md => "md",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|format| format.name()).collect();
            Error::usage(format!("unknown format `{text}`")).hint(format!("formats: {}", names.join(", ")))
        })
    }
}

/// The layout of a text report: the value of `--layout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Sentences about the run, then one table for each workload and number of client-server pairs.
    #[default]
    Plain,
    /// The layout of z/VM's reports: one table for each path, MTU and workload, with a column for each combination of number of
    /// client-server pairs and level.
    Zvm,
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "plain" => Ok(Self::Plain),
            "zvm" => Ok(Self::Zvm),
            _ => Err(Error::usage(format!("unknown layout `{text}`")).hint("layouts: plain, zvm")),
        }
    }
}

/// Returns a value as indented JSON with a newline at its end.
pub(super) fn json(value: &Value) -> Result<String> {
    Ok(text::json(&serde_json::to_string_pretty(value).context("cannot write JSON")?) + "\n")
}

/// Returns CSV with one record for each object: the members that `columns` names. A member that is absent or null is an empty field.
pub(super) fn csv<const N: usize>(columns: [&str; N], objects: impl Iterator<Item = Value>) -> Result<String> {
    let failed = |error: csv::Error| Error::environment(format!("cannot write CSV: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns).map_err(failed)?;
    for object in objects {
        let field = |column: &str| match &object[column] {
            Value::Null => String::new(),
            Value::String(text) => text::field(text),
            value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => value.to_string(),
        };
        writer.write_record(columns.map(field)).map_err(failed)?;
    }
    let bytes = writer.into_inner().context("cannot write CSV")?;
    String::from_utf8(bytes).context("cannot write CSV")
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_model::error::ErrorKind;

    #[test]
    fn every_format_is_read_by_its_name() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
    }

    #[test]
    fn an_unknown_format_is_a_usage_error_that_names_the_known_ones() {
        let error = "yaml".parse::<Format>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("text, json, csv, md"), "{error}");
    }
}
