//! Levels with another build of siga. A plan writes them as `build:BUILD` or `LEVEL@build:BUILD`.

use super::{Level, before_level, name_of, text_with};
use crate::build::{Build, THIS};
use siga_model::error::{Error, Result};

/// Beginning of the text of a level that only has a build.
const ALONE: &str = "build:";
/// Separates the text of a level from its build.
const WITH: &str = "@build:";

impl Level {
    /// Returns the text with which a plan names a level with a build. `build` is `this` or the text of a build.
    pub fn text_with_build(level: &str, build: &str) -> String {
        if build == THIS { level.to_owned() } else { text_with(level, (ALONE, WITH), build) }
    }

    /// Returns the name of a level that has the name `level` without its build. `build` is `this` or the text of a build.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if `build` is not the text of a build.
    pub fn name_with_build(level: &str, build: &str) -> Result<String> {
        if build == THIS {
            return Ok(level.to_owned());
        }
        let name = name_of(&Build::parse(build)?.1);
        Ok(before_level(name, level))
    }

    /// Reads a level with a build. Returns `None` for the text of another level.
    pub(super) fn of_build(text: &str) -> Option<Result<Self>> {
        let alone = text.strip_prefix(ALONE).map(|build| ("plain", build));
        let (level, build) = alone.or_else(|| text.rsplit_once(WITH))?;
        let built = Self::load(level).and_then(|level| level.with_build(build));
        Some(built.map_err(|error| error.at(format!("level {text}"))))
    }

    fn with_build(self, text: &str) -> Result<Self> {
        if let Some(build) = &self.build {
            return Err(Error::usage(format!("level {} already has the build {build}", self.name))
                .hint("use a level without a build, or remove the second build"));
        }
        if text == THIS {
            return Ok(self);
        }
        let name = Self::name_with_build(&self.name, text)?;
        let (build, _) = Build::parse(text)?;
        let about = format!("{} Build {build} of siga.", self.about);
        let level = Self { name, about: about.trim_start().to_owned(), build: Some(build), ..self };
        level.check()?;
        Ok(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_the_build_that_its_text_names() {
        let level = Level::load("build:old=../old/siga").unwrap();
        assert_eq!((level.name.as_str(), level.settings()), ("old", vec!["build"]));
        assert_eq!(level.build, Some(Build::Program("../old/siga".into())));
        let level = Level::load("430-packing@link:latency=1ms@build:git:v1").unwrap();
        assert_eq!(
            (level.name.as_str(), level.settings()),
            ("v1 latency=1ms 430-packing", vec!["guests", "link", "build"])
        );
        for (level, build) in [("plain", "a/b"), ("430", "old=git:x"), ("420", "this"), ("env:A=b", "old=/x")] {
            let text = Level::text_with_build(level, build);
            let name = Level::name_with_build(&Level::load(level).unwrap().name, build).unwrap();
            assert_eq!(Level::load(&text).unwrap().name, name, "{text}");
        }
        assert_eq!(Level::load("build:this").unwrap(), Level::load("plain").unwrap());
    }

    #[test]
    fn a_level_file_names_its_build_relative_to_itself() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("old.toml");
        let load = |build: &str| {
            std::fs::write(&file, format!("name = \"old\"\nbuild = {build}\n")).unwrap();
            Level::load(&file.display().to_string())
        };
        let program = directory.path().join("bin/siga").display().to_string();
        assert_eq!(load("\"bin/siga\"").unwrap().build, Some(Build::Program(program)));
        assert_eq!(load("\"/bin/siga\"").unwrap().build, Some(Build::Program("/bin/siga".into())));
        assert_eq!(load("{ git = \"v1\" }").unwrap().build.unwrap().to_string(), "git:v1");
        for wrong in ["\"\"", "{ git = \"-x\" }", "{ git = \"v1\", path = \"x\" }", "7"] {
            assert_eq!(load(wrong).unwrap_err().exit_status(), 2, "{wrong}");
        }
        load("\"bin/siga\"").unwrap();
        let twice = Level::load(&format!("{}@build:other", file.display())).unwrap_err();
        assert!(twice.to_string().contains("already has the build"), "{twice}");
        assert_eq!(Level::load("nosuch@build:x").unwrap_err().exit_status(), 2);
    }
}
