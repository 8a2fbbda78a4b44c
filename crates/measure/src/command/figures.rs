//! Finds the figures of a command in what one of its runs wrote. The output is hostile: it is of bounded size, and no figure comes from
//! text that does not clearly have exactly one.

use super::Order;
use regex_lite::{Regex, RegexBuilder};
use serde_json::Value;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_plan::command::figure::{Figure, Source, Stream, Take};
use siga_plan::file;
use siga_plan::limits::REGEX_BYTES_MAX;
use siga_results::record::{CommandRecord, FigureRecord, WorkRecord};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Largest output of a run from which figures are read, in bytes.
pub(super) const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// The kernel's time of a file's change can be this much earlier than the change.
const COARSE_CLOCK: Duration = Duration::from_millis(20);

/// What a run of a command wrote, and when.
pub(super) struct Written<'a> {
    pub(super) output: &'a [u8],
    pub(super) error: &'a [u8],
    /// When the run began.
    pub(super) begun: SystemTime,
    pub(super) elapsed_ns: u64,
}

/// The figures of an order, ready to be read.
pub(super) struct Reader<'a> {
    order: &'a Order,
    figures: Vec<(&'a Figure, Option<Regex>)>,
    check: Option<Regex>,
    /// Whether all output is read, also without a figure.
    all: bool,
}

impl<'a> Reader<'a> {
    /// Prepares the figures of an order.
    pub(super) fn new(order: &'a Order) -> Result<Self> {
        let regex = |text: &str| {
            let built = RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build();
            built.map_err(|error| Error::usage(format!("regex: {error}")))
        };
        let of = |figure: &'a Figure| Ok((figure, figure.regex.as_deref().map(regex).transpose()?));
        let figures = order.figures.iter().map(of).collect::<Result<_>>()?;
        Ok(Self { order, figures, check: order.output.as_deref().map(regex).transpose()?, all: false })
    }

    /// Prepares to read all output of a server, without figures.
    pub(super) fn all_output(order: &'a Order) -> Result<Self> {
        Ok(Self { all: true, ..Self::new(order)? })
    }

    /// Returns true if a figure, or the check of the output, needs all of a stream.
    pub(super) fn needs(&self, stream: Stream) -> bool {
        let of_stream = |figure: &Figure| figure.stream == stream && figure.file.is_none() && !figure.elapsed;
        self.all
            || self.figures.iter().any(|(figure, _)| of_stream(figure))
            || (stream == Stream::Output && self.check.is_some())
    }

    /// Adds the figures of a run to its record.
    ///
    /// # Errors
    /// Returns an error of kind `Incomplete` if the output is not that of a run that went well, or if a figure has no value, several
    /// values, or a value with another unit.
    pub(super) fn read(&self, written: &Written<'_>, record: &mut CommandRecord) -> Result<()> {
        if let Some(check) = &self.check
            && !check.is_match(&String::from_utf8_lossy(written.output))
        {
            let last = last_line(written.output);
            return Err(Error::incomplete(format!("the output of the command does not match the regular expression in `output`; the last line of the output is `{last}`"))
                .hint("start the command by hand to see its output, or change `output` in the plan"));
        }
        for (figure, regex) in &self.figures {
            let value = self.value(figure, regex.as_ref(), written);
            let value = value.map_err(|error| error.at(format!("figure {}", figure.name)))?;
            record.figures.push(FigureRecord::of(figure.key(), value));
        }
        if let Some(unit) = &self.order.unit {
            let of_figure = |name: &String| {
                record.figures.iter().find(|figure| figure.key.name.as_str() == name).map(|figure| figure.sum)
            };
            let amount = unit.count.or_else(|| unit.figure.as_ref().and_then(of_figure)).unwrap_or(0.0);
            if amount <= 0.0 {
                return Err(Error::incomplete(format!(
                    "the execution did {amount} units of work ({}), but it must do more than 0",
                    unit.name
                ))
                .hint("start the command by hand to see its output, or change `unit` in the plan"));
            }
            record.work = Some(WorkRecord { unit: unit.name, amount });
        }
        Ok(())
    }

    fn value(&self, figure: &Figure, regex: Option<&Regex>, written: &Written<'_>) -> Result<f64> {
        let from_file;
        let bytes = match &figure.file {
            Some(path) => {
                from_file = self.file(path, written.begun)?;
                from_file.as_bytes()
            }
            None if figure.stream == Stream::Error => written.error,
            None => written.output,
        };
        let texts = match (figure.source(), regex) {
            (Some(Source::Elapsed), _) => return Ok(written.elapsed_ns as f64 / 1e9 * figure.scale),
            (Some(Source::Regex(_)), Some(regex)) => matches(figure, regex, bytes)?,
            (Some(Source::Json(pointer)), _) => vec![of_json(pointer, bytes)?],
            (Some(Source::Csv(column)), _) => of_csv(column, bytes)?,
            (Some(Source::Regex(_)) | None, _) => Vec::new(),
        };
        let values = texts.iter().map(|text| number(text)).collect::<Result<Vec<f64>>>()?;
        let value = match (figure.take, values.as_slice()) {
            (_, []) => return Err(no_value(bytes)),
            (Take::Only | Take::First | Take::Last | Take::Sum, [value]) => *value,
            (Take::Only, several) => {
                return Err(Error::incomplete(format!("the output contains {} values for this figure, but siga expects one value", several.len()))
                    .hint("change the figure in the plan so that it matches only one value, or set take = \"first\", \"last\" or \"sum\""));
            }
            (Take::First, [first, ..]) => *first,
            (Take::Last, [.., last]) => *last,
            (Take::Sum, several) => several.iter().sum(),
        };
        Some(value * figure.scale)
            .filter(|value| value.is_finite())
            .ok_or_else(|| Error::incomplete("the value of the figure is too large"))
    }

    /// Reads a file that the run wrote.
    fn file(&self, path: &str, begun: SystemTime) -> Result<String> {
        let path = Path::new(self.order.directory.as_deref().unwrap_or(".")).join(path);
        let hint = "the command must write this file in every execution; otherwise, change `file` in the plan";
        let cannot = |error: std::io::Error| {
            Error::incomplete(format!("cannot read the file {}: {error}", path.display())).hint(hint)
        };
        let changed = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).map_err(cannot)?;
        if changed + COARSE_CLOCK < begun {
            return Err(Error::incomplete(format!(
                "the command has not written the file {}, because the file is older than the execution",
                path.display()
            ))
            .hint(hint));
        }
        file::read_named(&path, OUTPUT_BYTES_MAX as u64).map_err(cannot)
    }
}

/// Returns the texts that a regular expression matches. The unit in the output must be that of the figure.
fn matches(figure: &Figure, regex: &Regex, bytes: &[u8]) -> Result<Vec<String>> {
    let all = String::from_utf8_lossy(bytes);
    let is_unit = |at: usize| regex.capture_names().nth(at).flatten() == Some("unit");
    let mut texts = Vec::new();
    for found in regex.captures_iter(&all) {
        if let Some(unit) = found.name("unit").filter(|unit| unit.as_str() != figure.unit.as_str()) {
            let unit = text::name(&text::cut(unit.as_str().to_owned(), 40));
            return Err(Error::incomplete(format!(
                "the output has the unit `{unit}`, but the figure in the plan has the unit `{}`",
                figure.unit
            ))
            .hint("let the command print the same unit at every level"));
        }
        let group = (1..found.len()).find(|&at| !is_unit(at)).unwrap_or(0);
        texts.extend(found.get(group).map(|found| found.as_str().to_owned()));
    }
    Ok(texts)
}

fn of_json(pointer: &str, bytes: &[u8]) -> Result<String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        Error::incomplete(format!("the output is not valid JSON: {error}"))
            .hint("the whole output must be one JSON value")
    })?;
    match value.pointer(pointer) {
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            Err(Error::incomplete(format!("the value at `{pointer}` in the output is not a number"))
                .hint("change the figure's key `json` in the plan"))
        }
        None => Err(Error::incomplete(format!("the output has no value at `{pointer}`"))
            .hint("change the figure's key `json` in the plan")),
    }
}

fn of_csv(column: &str, bytes: &[u8]) -> Result<Vec<String>> {
    let bad = |error: csv::Error| Error::incomplete(format!("the output is not valid CSV: {error}"));
    let mut reader = csv::Reader::from_reader(bytes);
    let heads = reader.headers().map_err(bad)?;
    let Some(at) = heads.iter().position(|head| head.trim() == column) else {
        return Err(Error::incomplete(format!("the output has no column {column}"))
            .hint("change the figure's key `csv` in the plan"));
    };
    let field = |line: csv::Result<csv::StringRecord>| Ok(line.map_err(bad)?.get(at).unwrap_or_default().to_owned());
    reader.records().map(field).collect()
}

fn number(text: &str) -> Result<f64> {
    let value = text.trim().parse().ok().filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| {
        let shown = text::name(&text::cut(text.trim().to_owned(), 40));
        Error::incomplete(format!("the value `{shown}` of the figure is not a number"))
            .hint("a number must consist of digits and a decimal point, without commas")
    })
}

fn no_value(bytes: &[u8]) -> Error {
    let seen = if bytes.iter().all(u8::is_ascii_whitespace) {
        "the output is empty".to_owned()
    } else {
        format!("the output contains no value for this figure; the last line of the output is `{}`", last_line(bytes))
    };
    Error::incomplete(seen).hint("start the command by hand to see its output, or change the figure in the plan")
}

/// Returns the last line of an output that is not empty, for an error message.
pub(super) fn last_line(bytes: &[u8]) -> String {
    let end = &bytes[bytes.len().saturating_sub(4096)..];
    let said = String::from_utf8_lossy(end);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    text::name(&text::cut(last.to_owned(), 300))
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_plan::command::Command;

    /// Reads the figures of a plan's command from this output. Returns their values, or the error.
    fn values(table: &str, output: &str) -> std::result::Result<Vec<f64>, String> {
        let command: Command = toml::from_str(&format!("command = ['a']\n{table}")).unwrap();
        command.check().unwrap();
        let order = Order { figures: command.figures, unit: command.unit, output: command.output, ..Order::default() };
        let reader = Reader::new(&order).unwrap();
        let mut record = CommandRecord::default();
        let (output, error) = (output.as_bytes(), &b"on error: 5"[..]);
        let written = Written { output, error, begun: SystemTime::now(), elapsed_ns: 2_000_000_000 };
        reader.read(&written, &mut record).map_err(|error| error.to_string())?;
        Ok(record.figures.iter().map(|figure| figure.sum).chain(record.work.map(|work| work.amount)).collect())
    }

    fn figure(rest: &str) -> String {
        format!("[[figures]]\nname = 'f'\nunit = 'MB/s'\nbetter = 'higher'\n{rest}\n")
    }

    #[test]
    fn a_figure_comes_from_text_json_csv_error_or_the_clock() {
        let json = r#"{"jobs": [{"bw": 12.5, "text": "7"}]}"#;
        for (rest, output, value) in [
            ("regex = 'rate: ([0-9.]+)'", "rate: 10.5 of 20\n", 10.5),
            ("regex = '[0-9]+'", "a 7 b", 7.0),
            ("regex = '(?<unit>[A-Z]+/s) ([0-9]+)'", "MB/s 7", 7.0),
            ("regex = '([0-9]+)\\s*(?<unit>\\S+)'\nscale = 0.001", "7000 MB/s", 7.0),
            ("regex = '[0-9]+'\ntake = 'first'", "1 2 3", 1.0),
            ("regex = '[0-9]+'\ntake = 'last'", "1 2 3", 3.0),
            ("regex = '[0-9]+'\ntake = 'sum'", "1 2 3", 6.0),
            ("regex = '-?[0-9.e+]+'", "-1.5e+3", -1500.0),
            ("regex = '[0-9]+'\nstream = 'error'", "", 5.0),
            ("json = '/jobs/0/bw'", json, 12.5),
            ("json = '/jobs/0/text'", json, 7.0),
            ("json = ''", " 3 ", 3.0),
            ("csv = 'b'", "a,b\n1,\"2\"\n", 2.0),
            ("csv = 'b'\ntake = 'sum'", "a, b\n1,2\n3, 4\n", 6.0),
            ("elapsed = true\nscale = 1000.0", "", 2000.0),
        ] {
            assert_eq!(values(&figure(rest), output), Ok(vec![value]), "{rest}: {output}");
        }
    }

    #[test]
    fn output_without_a_clear_figure_is_refused_with_the_reason() {
        for (rest, output, words) in [
            ("regex = 'rate: ([0-9.]+)'", "", "the output is empty"),
            (
                "regex = 'rate: ([0-9.]+)'",
                "speed: 1\n\n",
                "no value for this figure; the last line of the output is `speed: 1`",
            ),
            ("regex = '[0-9]+'", "1 2", "the output contains 2 values"),
            ("regex = '\\S+'", "1,000", "the value `1,000` of the figure is not a number"),
            ("regex = '\\S+'", "inf", "the value `inf` of the figure is not a number"),
            (
                "regex = '([0-9]+) (?<unit>\\S+)'",
                "1 GB/s",
                "the unit `GB/s`, but the figure in the plan has the unit `MB/s`",
            ),
            ("json = '/a'", "{", "not valid JSON"),
            ("json = '/a'", "{}", "has no value at `/a`"),
            ("json = '/a'", "{\"a\": [1]}", "is not a number"),
            ("json = '/a'", "{\"a\": 1} x", "not valid JSON"),
            ("csv = 'b'", "a,c\n1,2\n", "no column b"),
            ("csv = 'b'", "a,b\n1\n", "not valid CSV"),
            ("csv = 'b'", "a,b\n", "no value"),
            ("csv = 'b'", "a,b\n1,2\n1,3\n", "2 values"),
            ("regex = '[0-9]+'\nscale = 1e300", "99999999999999", "too large"),
            ("regex = '[0-9]+'\nfile = '/dev/zero'", "1", "figure f: the command has not written the file /dev/zero"),
            ("regex = '[0-9]+'\nfile = '/nosuch'", "1", "figure f: cannot read the file"),
            ("regex = 'root'\nfile = '/etc/passwd'", "1", "is older than the execution"),
        ] {
            let error = values(&figure(rest), output).unwrap_err();
            assert!(error.contains(words), "{rest}: {output}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(values(&figure("json = '/a'"), &deep).unwrap_err().contains("not valid JSON"));
    }

    #[test]
    fn work_is_counted_by_a_number_or_a_figure() {
        let text = figure("regex = '[0-9]+'");
        assert_eq!(values(&format!("unit = {{ name = 'MB', count = 3.0 }}\n{text}"), "7"), Ok(vec![7.0, 3.0]));
        assert_eq!(values(&format!("unit = {{ name = 'MB', figure = 'f' }}\n{text}"), "7"), Ok(vec![7.0, 7.0]));
        let none = values(&format!("unit = {{ name = 'MB', figure = 'f' }}\n{text}"), "0").unwrap_err();
        assert!(none.contains("did 0 units of work (MB)"), "{none}");
    }

    #[test]
    fn output_is_checked() {
        let check = "output = '^done$|^ok'";
        assert_eq!(values(check, "ok 1"), Ok(Vec::new()));
        assert!(values(check, "failed\n").unwrap_err().contains("the last line of the output is `failed`"));
    }
}
