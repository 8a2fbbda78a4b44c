//! Tables of a plan: named groups of cells, such as the tables of a published report. A run can measure some of them only.

use super::Plan;
use crate::level::Level;
use crate::limits;
use crate::matrix::Cell;
use crate::work::Work;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::borrow::Cow;

/// A named group of cells: every combination of its values. A list that is empty has the values of the plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Name for `--table`: a number or a word.
    pub id: String,
    /// Title for people.
    pub title: String,
    /// Paths; empty: those of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Workloads; empty: those of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// MTUs in bytes; empty: those of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mtus: Vec<u32>,
    /// Modelled link between the server and its network at each level of the plan, such as "rate=1gbit"; absent: no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Table {
    /// Returns the paths of the table.
    pub(super) fn paths<'a>(&'a self, plan: &'a Plan) -> &'a [String] {
        if self.paths.is_empty() { &plan.paths } else { &self.paths }
    }

    /// Returns the workloads of the table.
    pub(super) fn workloads<'a>(&'a self, plan: &'a Plan) -> &'a [String] {
        if self.workloads.is_empty() { &plan.workloads } else { &self.workloads }
    }

    fn mtus<'a>(&'a self, plan: &'a Plan) -> &'a [u32] {
        if self.mtus.is_empty() { &plan.mtus } else { &self.mtus }
    }

    /// Returns the MTUs of the table; `None` stands for the default of each path.
    pub(super) fn mtu_axis(&self, plan: &Plan) -> Vec<Option<u32>> {
        let mtus = self.mtus(plan);
        if mtus.is_empty() { vec![None] } else { mtus.iter().copied().map(Some).collect() }
    }

    /// Returns the text of a level of the plan with the link of the table.
    pub(super) fn level<'a>(&self, level: &'a str) -> Cow<'a, str> {
        match &self.link {
            Some(link) => Level::text_with_link(level, link).into(),
            None => level.into(),
        }
    }

    /// Returns the names of the levels of the table's cells, in the order of the plan: each level of the plan with the link of the table.
    /// `levels` are the levels of a run of `plan`.
    pub fn level_names<'a>(&self, plan: &Plan, levels: &'a [Level]) -> Vec<&'a str> {
        let texts = plan.distinct_level_names();
        let name = |level: &String| {
            let at = texts.iter().position(|text| *text == self.level(level))?;
            Some(levels.get(at)?.name.as_str())
        };
        plan.levels.iter().filter_map(name).collect()
    }

    /// Returns true if a cell of a run of `plan` belongs to the table and has one of these levels, which [`Self::level_names`] returns.
    pub fn has(&self, plan: &Plan, levels: &[&str], cell: &Cell) -> bool {
        let mtus = self.mtus(plan);
        self.paths(plan).contains(&cell.path)
            && levels.contains(&cell.level.as_str())
            && (mtus.is_empty() || cell.mtu.is_some_and(|mtu| mtus.contains(&mtu)))
            && self.has_work(plan, cell.workload)
    }

    fn has_work(&self, plan: &Plan, work: Work) -> bool {
        self.workloads(plan).iter().any(|own| own.parse::<Workload>().is_ok_and(|own| work == own.into()))
    }

    fn number(&self) -> Option<u32> {
        number(&self.id)
    }
}

/// Returns the number that a text consists of; `None` for another text.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Plan {
    /// Keeps only the tables that `wanted` names: each text is the name of a table, or a range of numbers such as `1-4`.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the plan has no such table.
    pub fn keep_tables(&mut self, wanted: &[String]) -> Result<()> {
        if self.table.is_empty() {
            let mut others = Self::names();
            others.retain(|name| Self::load(name).is_ok_and(|plan| !plan.table.is_empty()));
            return Err(Error::usage(format!("the plan {} has no tables", self.name))
                .hint(format!("remove --table, or use a plan with tables: {}", others.join(", "))));
        }
        let chosen = wanted.iter().map(|text| self.tables_in(text)).collect::<Result<Vec<_>>>()?;
        let mut at = 0..self.table.len();
        self.table.retain(|_| at.next().is_some_and(|at| chosen.iter().any(|some| some.contains(&at))));
        // Single cells belong to no table.
        self.include.clear();
        Ok(())
    }

    /// Returns the indices of the tables that a text names.
    fn tables_in(&self, text: &str) -> Result<Vec<usize>> {
        let at = |id: &str| self.table.iter().position(|table| table.id == id);
        if let Some(at) = at(text) {
            return Ok(vec![at]);
        }
        let Some((first, last)) = text.split_once('-').and_then(|(first, last)| number(first).zip(number(last))) else {
            return Err(self.no_table(text));
        };
        if let Some(end) = [first, last].into_iter().find(|end| at(&end.to_string()).is_none()) {
            return Err(self.no_table(&end.to_string()));
        }
        if first > last {
            return Err(Error::usage(format!("the range of tables {text} ends before it begins"))
                .hint(format!("write {last}-{first}")));
        }
        let is_within = |at: &usize| self.table[*at].number().is_some_and(|own| (first..=last).contains(&own));
        Ok((0..self.table.len()).filter(is_within).collect())
    }

    fn no_table(&self, id: &str) -> Error {
        let list: Vec<String> = self.table.iter().map(|table| format!("{} ({})", table.id, table.title)).collect();
        Error::usage(format!("the plan {} has no table `{id}`", self.name))
            .hint(format!("it has these tables: {}", list.join(", ")))
    }

    /// Drops the tables, so that the plan measures every combination of its own values instead. The plan gets all paths and workloads
    /// of its tables. `paths` and `workloads` are what the caller measures instead, if it replaces them. The plan gets the MTUs with
    /// which the tables measure each of these paths with each of these workloads. If there are none, it keeps its own MTUs.
    pub fn drop_tables(&mut self, paths: Option<&[String]>, workloads: Option<&[String]>) {
        let own = self.clone();
        for table in std::mem::take(&mut self.table) {
            add(&mut self.paths, table.paths);
            add(&mut self.workloads, table.workloads);
        }
        let mtus = own.common_mtus(paths.unwrap_or(&self.paths), workloads.unwrap_or(&self.workloads));
        if !mtus.is_empty() {
            self.mtus = mtus;
        }
    }

    /// Returns the MTUs with which the tables measure each of these paths with each of these workloads.
    fn common_mtus(&self, paths: &[String], workloads: &[String]) -> Vec<u32> {
        let mut common: Option<Vec<u32>> = None;
        for (path, workload) in paths.iter().flat_map(|path| workloads.iter().map(move |workload| (path, workload))) {
            let work = workload.parse::<Workload>().map(Work::from);
            let has = |table: &&Table| {
                table.paths(self).contains(path) && work.as_ref().is_ok_and(|work| table.has_work(self, *work))
            };
            let mut mtus = Vec::new();
            self.table.iter().filter(has).for_each(|table| add(&mut mtus, table.mtus(self).to_vec()));
            if let Some(common) = &common {
                mtus.retain(|mtu| common.contains(mtu));
            }
            common = Some(mtus);
        }
        common.unwrap_or_default()
    }

    /// Refuses tables that have no name or the name of another table, and too many tables.
    pub(super) fn check_tables(&self) -> Result<()> {
        if self.table.len() > limits::TABLES_MAX {
            return Err(Error::usage(format!("the plan has {} tables, which are too many", self.table.len()))
                .hint(format!("a plan can have at most {} tables", limits::TABLES_MAX)));
        }
        for (at, table) in self.table.iter().enumerate() {
            let Table { id, title, .. } = table;
            if id.trim().is_empty() || title.trim().is_empty() {
                return Err(Error::usage("each table of a plan needs a name (`id`) and a title"));
            }
            if id.len().max(title.len()) > limits::TABLE_BYTES_MAX || id.contains([',', ' ']) {
                return Err(Error::usage(format!("the name or the title of the table {id} is not allowed")).hint(
                    format!(
                        "both have at most {} bytes, and a name has neither commas nor spaces",
                        limits::TABLE_BYTES_MAX
                    ),
                ));
            }
            if self.table[..at].iter().any(|other| other.id == *id) {
                return Err(Error::usage(format!("the plan has two tables with the name {id}"))
                    .hint("give each table a name of its own (`id`)"));
            }
        }
        Ok(())
    }
}

/// Appends the values that the list lacks.
fn add<T: PartialEq>(list: &mut Vec<T>, more: Vec<T>) {
    for value in more {
        if !list.contains(&value) {
            list.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "paths = [\"vswitch\"]\nworkloads = [\"rr-1-1\"]\nmtus = [1500]\nclients = [1, 2]\nlevels = [\"420\", \"430\"]\n\
        [[table]]\nid = \"1\"\ntitle = \"small\"\n[[table]]\nid = \"2\"\ntitle = \"large\"\nmtus = [8992]\n\
        [[table]]\nid = \"osa-1gbe\"\ntitle = \"slow\"\nlink = \"rate=1gbit\"\nworkloads = [\"crr-64-8k\"]\n\
        [[table]]\nid = \"3\"\ntitle = \"other\"\npaths = [\"guestlan-qdio\"]\n";

    fn plan(text: &str) -> Plan {
        Plan::parse(text, "test").unwrap()
    }

    fn cells(plan: &Plan) -> Vec<String> {
        plan.matrix().unwrap().cells.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plan_measures_the_cells_of_its_tables_and_nothing_else() {
        let all = plan(PLAN);
        let own = cells(&all);
        assert_eq!(own.len(), 4 * 4);
        assert_eq!(own[..2], ["vswitch rr-1-1 mtu 1500 x1 420", "vswitch rr-1-1 mtu 1500 x1 430"]);
        assert_eq!(own[4], "vswitch rr-1-1 mtu 8992 x1 420");
        assert_eq!(own[9], "vswitch crr-64-8k mtu 1500 x1 rate=1gbit 430");
        assert_eq!(own[15], "guestlan-qdio rr-1-1 mtu 1500 x2 430");
        let matrix = all.matrix().unwrap();
        let again = plan(&all.to_toml().unwrap());
        assert_eq!(again, all);
        assert_eq!(again.matrix_with(&matrix.levels).unwrap().cells, matrix.cells);
        for (table, from) in all.table.iter().zip([0, 4, 8, 12]) {
            let levels = table.level_names(&all, &matrix.levels);
            let has: Vec<usize> = (0..16).filter(|at| table.has(&all, &levels, &matrix.cells[*at])).collect();
            assert_eq!(has, (from..from + 4).collect::<Vec<_>>(), "{}", table.id);
        }
    }

    #[test]
    fn tables_are_chosen_by_name_and_by_range() {
        let chosen = |wanted: &[&str]| {
            let mut plan = plan(&format!("{PLAN}[[include]]\npath = \"vctc\"\n"));
            let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
            plan.keep_tables(&wanted).map(|()| plan.table.iter().map(|table| table.id.clone()).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["2"]).unwrap(), ["2"]);
        assert_eq!(chosen(&["3", "osa-1gbe", "3"]).unwrap(), ["osa-1gbe", "3"]);
        assert_eq!(chosen(&["1-2", "3"]).unwrap(), ["1", "2", "3"]);
        assert_eq!(chosen(&["1-3"]).unwrap(), ["1", "2", "3"]);
        for (wanted, words) in [
            ("19", "has no table `19`\n  it has these tables: 1 (small), 2 (large), osa-1gbe (slow), 3 (other)"),
            ("1-19", "has no table `19`"),
            ("osa-2gbe", "has no table `osa-2gbe`"),
            ("", "has no table ``"),
            ("3-1", "ends before it begins\n  write 1-3"),
        ] {
            let error = chosen(&[wanted]).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains(words), "{wanted}: {error}");
        }
        let mut kept = plan(&format!("{PLAN}[[include]]\npath = \"vctc\"\n"));
        assert_eq!(cells(&kept).len(), 17);
        kept.keep_tables(&["2".to_owned()]).unwrap();
        assert_eq!(cells(&kept).len(), 4, "a single cell belongs to no table");
        let none = plan("").keep_tables(&["1".to_owned()]).unwrap_err().to_string();
        assert!(none.contains("has no tables") && none.contains("zvm430"), "{none}");
    }

    #[test]
    fn without_its_tables_a_plan_has_the_values_of_all_tables() {
        let mut dropped = plan(PLAN);
        dropped.drop_tables(None, None);
        assert_eq!(dropped.paths, ["vswitch", "guestlan-qdio"]);
        assert_eq!((dropped.workloads.len(), dropped.mtus), (2, vec![1500]));
    }

    #[test]
    fn without_its_tables_a_plan_has_the_mtus_with_which_they_measure_its_cells() {
        let mtus = |paths: &[&str], workloads: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let mut dropped = plan(PLAN);
            dropped.drop_tables(Some(&texts(paths)), Some(&texts(workloads)));
            dropped.mtus
        };
        assert_eq!(mtus(&["vswitch"], &["rr:1/1"]), [1500, 8992]);
        assert_eq!(mtus(&["vswitch"], &["rr-1-1", "crr-64-8k"]), [1500], "no table measures CRR with 8992");
        assert_eq!(mtus(&["vswitch"], &["crr-64-8k", "rr-1-1"]), [1500]);
        assert_eq!(mtus(&["vswitch", "guestlan-qdio"], &["rr-1-1"]), [1500]);
        for others in [&["veth"][..], &[]] {
            assert_eq!(mtus(others, &["rr-1-1"]), [1500], "{others:?}");
        }
        let mut large = plan(&PLAN.replace("[\"guestlan-qdio\"]", "[\"guestlan-qdio\"]\nmtus = [8992]"));
        large.drop_tables(Some(&["guestlan-qdio".to_owned()]), Some(&["rr-1-1".to_owned()]));
        assert_eq!(large.mtus, [8992], "no table measures the path with the plan's own MTU");
    }

    #[test]
    fn cells_of_a_level_with_a_link_belong_to_tables() {
        for (text, link) in
            [(PLAN.replace("\"420\", \"430\"", "\"430@link:latency=1ms\""), None), (PLAN.into(), Some("off"))]
        {
            let mut own = plan(&text);
            own.keep_tables(&["1".to_owned()]).unwrap();
            own.table[0].link = link.map(str::to_owned);
            let matrix = own.matrix().unwrap();
            let levels = own.table[0].level_names(&own, &matrix.levels);
            assert!(!matrix.cells.is_empty());
            for cell in &matrix.cells {
                assert!(own.table[0].has(&own, &levels, cell), "{cell}");
            }
        }
    }

    #[test]
    fn links_and_builds_of_the_command_line_apply_to_tables() {
        let mut over = plan(PLAN);
        over.keep_tables(&["1".to_owned()]).unwrap();
        over.over_links(&["off".into(), "latency=1ms".into()]).unwrap();
        assert_eq!(cells(&over).len(), 8);
        let mut twice = plan(PLAN);
        let error = twice.over_links(&["latency=1ms".into()]).unwrap_err().to_string();
        assert!(error.contains("table osa-1gbe of the plan has a modelled link of its own"), "{error}");
    }

    #[test]
    fn wrong_tables_are_refused() {
        let table = |id: &str, title: &str| format!("[[table]]\nid = \"{id}\"\ntitle = \"{title}\"\n");
        let long = "x".repeat(limits::TABLE_BYTES_MAX + 1);
        let many: String = (0..=limits::TABLES_MAX).map(|at| table(&at.to_string(), "t")).collect();
        for (text, words) in [
            (table("1", "t") + &table("1", "u"), "two tables with the name 1"),
            (table("", "t"), "needs a name"),
            (table("1", " "), "needs a name"),
            (table("1", &long), "is not allowed"),
            (table("1,2", "t"), "neither commas nor spaces"),
            (many, "too many"),
            (format!("{}link = \"rate=0bit\"\n", table("1", "t")), "rate"),
            (format!("{}link = \"rate=1gbit\"\npaths = [\"veth\"]\n", table("1", "t")), "veth"),
            (format!("{}paths = [\"vethh\"]\n", table("1", "t")), "unknown path"),
        ] {
            let error = plan(&text).matrix().unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains(words), "{text}: {error}");
        }
    }
}
