//! The JSON file with the result of a comparison. It is written after each row, so an interrupted comparison leaves the rows that it
//! has measured.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::command;

/// The result file's content, which grows row by row: the measured commit, the host and the rows.
pub(crate) struct Record {
    start: Instant,
    /// The commit of the source tree; `None` if the tree is not a git repository.
    commit: Option<String>,
    schema: &'static str,
    environment: Value,
    /// An object with the settings of the comparison.
    settings: Value,
    pub(crate) rows: Vec<Value>,
}

impl Record {
    pub(crate) fn new(schema: &'static str, root: &Path, environment: Value, settings: Value) -> Self {
        let commit = command::commit(root);
        Self { start: Instant::now(), commit, schema, environment, settings, rows: Vec::new() }
    }

    /// Returns a line about the commit and the host. It ends with the text `beside`.
    pub(crate) fn head(&self, beside: &str) -> String {
        let of = |part: &str, name: &str| {
            let value = &self.environment[part][name];
            let text = if value.is_null() { Some("unknown") } else { value.as_str() };
            text.map_or_else(|| value.to_string(), str::to_owned)
        };
        let commit = self.commit.as_deref().unwrap_or("unknown");
        format!(
            "commit {commit}, Linux {}, {} x {}, {}{beside}\n",
            of("kernel", "release"),
            of("cpu", "allowed"),
            of("cpu", "model"),
            of("moment", "time")
        )
    }

    pub(crate) fn elapsed(&self) -> String {
        let seconds = self.start.elapsed().as_secs();
        format!("{}:{:02} min", seconds / 60, seconds % 60)
    }

    fn json(&self, is_complete: bool) -> Value {
        let mut json = json!({
            "schema": self.schema,
            "commit": self.commit,
            "environment": self.environment,
            "elapsed_seconds": self.start.elapsed().as_secs(),
            "complete": is_complete,
            "rows": self.rows,
        });
        if let (Some(json), Some(settings)) = (json.as_object_mut(), self.settings.as_object()) {
            json.extend(settings.clone());
        }
        json
    }

    /// Replaces the file atomically, so that a reader always finds a complete JSON document.
    pub(crate) fn write(&self, out: &Path, is_complete: bool) -> Result<(), String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", out.display());
        let part = out.with_extension("part");
        if let Some(directory) = out.parent() {
            fs::create_dir_all(directory).map_err(wrong)?;
        }
        fs::write(&part, format!("{:#}\n", self.json(is_complete))).map_err(wrong)?;
        fs::rename(&part, out).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(root: &Path) -> Record {
        let environment = json!({ "kernel": { "release": "6.1" }, "cpu": { "allowed": 2, "model": "a CPU" } });
        Record::new("test/1", root, environment, json!({ "rounds": 2 }))
    }

    #[test]
    fn the_result_is_written_after_each_row_with_its_commit_and_host() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("bench/network.json");
        let mut record = record(root.path());
        assert_eq!(record.head(""), "commit unknown, Linux 6.1, 2 x a CPU, unknown\n");
        for (rows, is_complete) in [(1, false), (2, true)] {
            record.rows.push(json!({ "row": rows }));
            record.write(&out, is_complete).unwrap();
            let json: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
            assert_eq!((json["rows"].as_array().unwrap().len(), &json["complete"]), (rows, &json!(is_complete)));
            assert!((&json["rounds"], &json["schema"]) == (&json!(2), &json!("test/1")));
            assert!(json["elapsed_seconds"].is_u64() && json["environment"]["cpu"]["allowed"] == 2);
        }
        let left: Vec<_> = fs::read_dir(out.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
