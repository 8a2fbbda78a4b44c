//! The formats and layouts of a report, with their names on the command line.

use siga_model::error::{Error, Result};
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
