//! Levels with a modelled link. A plan writes them as `link:SETTINGS` or `LEVEL@link:SETTINGS`.

use super::{Level, before_level, name_of, text_with};
use crate::file;
use siga_model::error::{Error, Result};
use siga_model::link::{Link, table};
use std::path::Path;

/// Beginning of the text of a level that only has a link.
const ALONE: &str = "link:";
/// Separates the text of a level from the settings of its link.
const WITH: &str = "@link:";
/// The settings of no link.
const OFF: &str = "off";

/// Reads the settings of a link. Files with tables of jitter are read.
fn link(settings: &str) -> Result<Link> {
    with_tables(settings, Path::new(""))?.parse()
}

/// Replaces the names of files with tables of jitter by the tables. Relative names are below `directory`.
pub(super) fn with_tables(text: &str, directory: &Path) -> Result<String> {
    table::with_files(text, |file| {
        let read = file::read_named(&directory.join(file), table::FILE_BYTES_MAX);
        read.map_err(|error| {
            Error::usage(format!("cannot read the file: {error}")).hint("use the name of a file with a table")
        })
    })
}

impl Level {
    /// Returns the text with which a plan names a level with a link. `settings` is `off` or the text of a link.
    pub fn text_with_link(level: &str, settings: &str) -> String {
        if settings == OFF { level.to_owned() } else { text_with(level, (ALONE, WITH), settings) }
    }

    /// Returns the name of a level that has the name `level` without its link. `settings` is `off` or the text of a link.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if `settings` is not the text of a link.
    pub fn name_with_link(level: &str, settings: &str) -> Result<String> {
        if settings == OFF {
            return Ok(level.to_owned());
        }
        let name = name_of(&link(settings)?.label().replace(',', " "));
        Ok(before_level(name, level))
    }

    /// Returns the text of the level without its link, and the settings of the link; `None` for the text of another level.
    pub(super) fn split_link(text: &str) -> Option<(&str, &str)> {
        text.strip_prefix(ALONE).map(|settings| ("plain", settings)).or_else(|| text.split_once(WITH))
    }

    /// Reads a level with a link. Returns `None` for the text of another level.
    pub(super) fn of_link(text: &str) -> Option<Result<Self>> {
        let (level, settings) = Self::split_link(text)?;
        Some(
            Self::load(level)
                .and_then(|level| level.with_link(settings))
                .map_err(|error| error.at(format!("level {text}"))),
        )
    }

    fn with_link(self, settings: &str) -> Result<Self> {
        if let Some(link) = &self.link {
            return Err(Error::usage(format!("level {} already has the modelled link {link}", self.name))
                .hint("use a level without a link, or remove the second link"));
        }
        let name = Self::name_with_link(&self.name, settings)?;
        if settings == OFF {
            return Ok(self);
        }
        let about = format!("{} Modelled link {settings}.", self.about);
        Ok(Self { name, about: about.trim_start().to_owned(), link: Some(link(settings)?), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_the_link_that_its_text_names() {
        let level = Level::load("link:latency=500us,rate=1gbit,loss=0.1%").unwrap();
        assert_eq!(level.name, "rate=1gbit latency=500us loss=0.1%");
        assert_eq!(level.link, Some("rate=1gbit,latency=500us,loss=0.1%".parse().unwrap()));
        assert_eq!(level.settings(), ["link"]);
        let level = Level::load("430-packing@link:latency=1ms").unwrap();
        assert_eq!(level.name, "latency=1ms 430-packing");
        assert!(level.link.is_some() && !level.guests.unwrap().features.packing);
        for (level, settings) in [("plain", "latency=1ms"), ("430", "loss=1%,seed=2"), ("420", "off"), ("plain", "off")]
        {
            let text = Level::text_with_link(level, settings);
            let name = Level::name_with_link(level, settings).unwrap();
            assert_eq!(Level::load(&text).unwrap().name, name, "{text}");
        }
        assert_eq!(Level::load("link:off").unwrap(), Level::load("plain").unwrap());
    }

    #[test]
    fn a_wrong_link_of_a_level_is_refused_with_a_hint() {
        for text in ["link:", "link:rate=0bit", "link:colour=red", "430@link:latency=1", "nosuch@link:latency=1ms"] {
            let error = Level::load(text).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains('\n'), "{text}: {error}");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("slow.toml");
        std::fs::write(&file, "name = \"slow\"\nlink = \"latency=5ms\"\n").unwrap();
        let file = file.display().to_string();
        assert_eq!(Level::load(&file).unwrap().link, Some("latency=5ms".parse().unwrap()));
        let twice = Level::load(&format!("{file}@link:latency=1ms")).unwrap_err();
        assert!(twice.to_string().contains("already has the modelled link latency=5ms"), "{twice}");
        std::fs::write(directory.path().join("table"), "-8192 8192").unwrap();
        std::fs::write(&file, "name = \"slow\"\nlink = \"jitter=5ms:./table\"\n").unwrap();
        assert_eq!(Level::load(&file).unwrap().link, Some("jitter=5ms:table:-8192/8192".parse().unwrap()));
        let named = format!("link:jitter=5ms:{}/table", directory.path().display());
        assert_eq!(Level::load(&named).unwrap().name, "jitter=5ms:table");
        assert!(Level::load("link:jitter=5ms:/none").unwrap_err().to_string().contains("/none"));
        std::fs::write(&file, "name = \"slow\"\nlink = \"rate=0bit\"\n").unwrap();
        assert_eq!(Level::load(&file).unwrap_err().exit_status(), 2);
    }
}
