//! A plan whose levels are measured over modelled links.

use super::{Pick, Plan};
use crate::level::Level;
use siga_model::error::{Error, Result};

impl Plan {
    /// Measures each level of the plan over each of these links: a text of settings, or `off` for no link.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if a text is not a link.
    pub fn over_links(&mut self, links: &[String]) -> Result<()> {
        let Some(first) = self.levels.first().cloned() else { return Ok(()) };
        if let Some(table) = self.table.iter().find(|table| table.link.is_some()) {
            return Err(Error::usage(format!("the table {} of the plan has a modelled link of its own", table.id))
                .hint("remove --link, or choose tables without a link with --table"));
        }
        for (at, link) in links.iter().enumerate() {
            Level::name_with_link(&first, link).map_err(|error| error.at("--link"))?;
            if links[..at].contains(link) {
                return Err(Error::usage(format!("--link names the link {link} twice")).hint("name each link once"));
            }
        }
        self.over(links, Level::text_with_link, Level::name_with_link)
    }

    /// Measures each level of the plan with each of `choices`. `text` returns the text of a level with a choice, and `name` its name.
    pub(super) fn over(
        &mut self,
        choices: &[String],
        text: fn(&str, &str) -> String,
        name: fn(&str, &str) -> Result<String>,
    ) -> Result<()> {
        let Some(first) = self.levels.first().cloned() else { return Ok(()) };
        let with = |level: &str| choices.iter().map(|choice| text(level, choice)).collect::<Vec<_>>();
        self.levels = self.levels.iter().flat_map(|level| with(level)).collect();
        let each = |pick: &Pick| {
            let levels = with(pick.level.as_ref().unwrap_or(&first));
            levels.into_iter().map(|level| Pick { level: Some(level), ..pick.clone() }).collect::<Vec<_>>()
        };
        self.include = self.include.iter().flat_map(each).collect();
        let mut excluded = Vec::new();
        for pick in &self.exclude {
            let Some(level) = &pick.level else {
                excluded.push(pick.clone());
                continue;
            };
            for choice in choices {
                excluded.push(Pick { level: Some(name(level, choice)?), ..pick.clone() });
            }
        }
        self.exclude = excluded;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::parse(text, "test").unwrap()
    }

    fn levels(plan: &Plan) -> Vec<(String, String)> {
        let matrix = plan.matrix().unwrap();
        matrix.cells.iter().map(|cell| (cell.path.clone(), cell.level.clone())).collect()
    }

    #[test]
    fn each_level_is_measured_over_each_link() {
        let mut over = plan(
            "paths = [\"vswitch\"]\nlevels = [\"plain\", \"430\"]\n[[include]]\npath = \"guestlan-qdio\"\n[[include]]\n\
            path = \"vctc\"\nlevel = \"420\"\n[[exclude]]\nlevel = \"430\"\n",
        );
        over.over_links(&["off".into(), "latency=1ms,loss=1%".into()]).unwrap();
        let cell = |path: &str, level: &str| (path.to_owned(), level.to_owned());
        let expected = [
            cell("vswitch", "plain"),
            cell("vswitch", "latency=1ms loss=1%"),
            cell("guestlan-qdio", "plain"),
            cell("guestlan-qdio", "latency=1ms loss=1%"),
            cell("vctc", "420"),
        ];
        assert_eq!(levels(&over)[..5], expected);
        // A run directory has the plan and its levels, from which `siga run --resume` gets the same cells.
        let again = plan(&over.to_toml().unwrap());
        let matrix = over.matrix().unwrap();
        assert_eq!(again.matrix_with(&matrix.levels).unwrap().cells, matrix.cells);
    }

    #[test]
    fn a_path_without_modelled_links_is_skipped_with_the_reason() {
        for (paths, part) in [
            ("\"veth\", \"vswitch\"", "veth is a kernel path; use a path of siga's own networks"),
            ("\"hipersockets\", \"vswitch\"", "path hipersockets cannot have one"),
        ] {
            let mut over = plan(&format!("paths = [{paths}]"));
            over.over_links(&["latency=1ms".into()]).unwrap();
            assert_eq!(levels(&over), [("vswitch".to_owned(), "latency=1ms".to_owned())]);
            let skipped = over.matrix().unwrap().skipped;
            assert!(skipped.len() == 1 && skipped[0].1.contains(part), "{skipped:?}");
        }
        let mut kernel = plan("paths = [\"veth\"]");
        kernel.over_links(&["latency=1ms".into()]).unwrap();
        let error = kernel.matrix().unwrap_err();
        assert!(error.to_string().contains("or level netem"), "{error}");
    }

    #[test]
    fn wrong_links_of_a_plan_are_refused() {
        for links in [&["rate=0bit"][..], &["latency=1"], &["latency=1ms", "latency=1ms"]] {
            let links: Vec<_> = links.iter().map(|link| (*link).to_owned()).collect();
            let error = plan("paths = [\"vswitch\"]").over_links(&links).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{error}");
        }
    }
}
