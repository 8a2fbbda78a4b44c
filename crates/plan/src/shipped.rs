//! The plans and levels that the program ships, by name, and how one is found by its name or file. The build script lists the
//! files of `plans/` and `levels/`.

use crate::file;
use siga_model::error::{Error, Result};
use std::borrow::Cow;
use std::path::Path;

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Files of a kind, which messages call `kind`: names and texts.
pub(crate) struct Shipped {
    kind: &'static str,
    files: &'static [(&'static str, &'static str)],
    bytes_max: u64,
}

pub(crate) const PLANS: Shipped =
    Shipped { kind: "plan", files: &PLAN_FILES, bytes_max: crate::limits::PLAN_BYTES_MAX };
pub(crate) const LEVELS: Shipped =
    Shipped { kind: "level", files: &LEVEL_FILES, bytes_max: crate::limits::LEVEL_BYTES_MAX };

impl Shipped {
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.files.iter().map(|(name, _)| *name).collect()
    }

    /// Returns the text of a shipped file or of a TOML file.
    pub(crate) fn read(&self, name_or_file: &str) -> Result<Cow<'static, str>> {
        if let Some((_, text)) = self.files.iter().find(|(name, _)| *name == name_or_file) {
            return Ok(Cow::Borrowed(text));
        }
        let kind = self.kind;
        let refused = |message: String| {
            let hint = format!("use one of these {kind}s, or the path of a .toml file: {}", self.names().join(", "));
            Error::usage(message).hint(hint)
        };
        if !name_or_file.ends_with(".toml") {
            return Err(refused(format!("unknown {kind} `{name_or_file}`")));
        }
        let text = file::read_named(Path::new(name_or_file), self.bytes_max);
        text.map(Cow::Owned).map_err(|error| refused(format!("cannot read {kind} {name_or_file}: {error}")))
    }
}
