//! A plan whose levels are measured with several builds of siga.

use super::Plan;
use crate::level::Level;
use siga_model::error::{Error, Result};

impl Plan {
    /// Measures each level of the plan with each of these builds: the text of a build, or `this` for the program that carries out the
    /// run. A single build is compared with `this`.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if a text is not a build.
    pub fn over_builds(&mut self, builds: &[String]) -> Result<()> {
        let this = crate::build::THIS.to_owned();
        let builds: Vec<String> = match builds {
            [only] if *only != this => vec![this, only.clone()],
            builds => builds.to_vec(),
        };
        for (at, build) in builds.iter().enumerate() {
            let name = Level::name_with_build("plain", build).map_err(|error| error.at("--build"))?;
            let same = |other: &String| Level::name_with_build("plain", other).is_ok_and(|other| other == name);
            if builds[..at].iter().any(same) {
                return Err(Error::usage(format!("--build gives the name {name} to two builds"))
                    .hint("give each build a name of its own: NAME=PROGRAM"));
            }
        }
        self.over(&builds, Level::text_with_build, Level::name_with_build)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(text: &str, builds: &[&str]) -> Result<Vec<String>> {
        let mut plan = Plan::parse(text, "test").unwrap();
        plan.over_builds(&builds.iter().map(|build| (*build).to_owned()).collect::<Vec<_>>())?;
        let matrix = plan.matrix()?;
        assert_eq!(plan.matrix_with(&matrix.levels).unwrap().cells, matrix.cells);
        Ok(matrix.cells.into_iter().map(|cell| cell.level).collect())
    }

    #[test]
    fn each_level_is_measured_with_each_build() {
        let paths = "paths = [\"hipersockets\"]\n";
        assert_eq!(levels(paths, &["old=/x"]).unwrap(), ["plain", "old"]);
        assert_eq!(levels(paths, &["new=/y", "old=/x"]).unwrap(), ["new", "old"]);
        let two = format!("{paths}levels = [\"430\", \"420\"]\n[[exclude]]\nlevel = \"420\"\n");
        assert_eq!(levels(&two, &["this", "git:v1"]).unwrap(), ["430", "v1 430"]);
    }

    #[test]
    fn wrong_and_useless_builds_of_a_plan_are_refused_with_a_hint() {
        let path = "paths = [\"veth\"]";
        let command = "paths = [\"host\"]\nworkloads = [\"a\"]\n[workload.a]\ncommand = [\"true\"]\n";
        let ssh = "paths = [\"local>ssh:host\"]";
        for (text, builds, part) in [
            (path, &["old="][..], "is not a path of a program of a build"),
            (path, &["a=x", "a=y"], "gives the name a to two builds"),
            (path, &["this", "this"], "gives the name plain to two builds"),
            (command, &["x=/x", "y=/y"], "does not contain {siga}"),
            (ssh, &["x=/x", "y=/y"], "does not copy to ssh:host"),
        ] {
            let error = levels(text, builds).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains(part), "{text}: {error}");
            assert!(error.to_string().contains('\n'), "{error} has no hint");
        }
    }
}
