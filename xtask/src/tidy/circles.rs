//! Folders of a crate form layers: no folder imports a module that imports it in turn, directly or through other modules.
//!
//! A reader must understand a lower folder without opening an upper one. A *room* is a module with all modules below it. The file
//! `a.rs` and the folder `a/` are one room, because Rust makes the folder's files parts of the module in `a.rs`. The check
//! compares sibling rooms at every depth of each `src/` folder. It reports only circles in which at least one room has a folder:
//! single files in one folder may import each other. Test code is ignored.
//!
//! The scan follows `use` declarations, paths in code, and re-exports of one name. It does not follow method calls and glob
//! re-exports.

mod paths;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter::successors;

use super::Problem;
use super::code::{code_only, without_tests};
use super::tree::File;
use paths::Named;

/// The most re-exports that the scan follows in a row. The limit ends the scan if two re-exports refer to each other.
const REEXPORTS_MAX: usize = 8;

/// Folders in which a circle is allowed if only one of its rooms has a folder, each with the reason.
const ONE_FOLDER: [(&str, &str); 1] = [(
    "crates/stack/src/tcp",
    "the states of a connection are one machine; `connection/` has its public interface alone",
)];

/// The path of a module: the names from the crate root; empty for the root itself.
type Module = Vec<String>;

/// A place where one room uses another: the file, the line, and the path in the code.
type Site = (String, usize, String);

/// For each room, the rooms that it uses, with the first place of each use.
type Uses = BTreeMap<String, BTreeMap<String, Site>>;

/// Finds the circles of every `src/` folder in `files`.
pub(crate) fn check(files: &[File]) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        if let Some((root, _)) = file.path.split_once("/src/") {
            crates.entry(root).or_default().push(file);
        }
    }
    crates.iter().flat_map(|(root, sources)| Crate::new(root, sources).circles()).collect()
}

struct Source {
    file: String,
    named: Vec<Named>,
}

/// The modules of one crate, without tests.
struct Crate {
    /// The crate's `src/` folder.
    src: String,
    modules: BTreeMap<Module, Source>,
    /// The modules and all their parent modules.
    known: BTreeSet<Module>,
}

impl Crate {
    fn new(root: &str, files: &[&File]) -> Self {
        let src = format!("{root}/src/");
        let mut modules = BTreeMap::new();
        for file in files {
            let Some(module) = file.path.strip_prefix(&src).and_then(module_of) else { continue };
            let named = paths::paths(&without_tests(&code_only(&file.text)));
            modules.insert(module, Source { file: file.path.clone(), named });
        }
        let known = modules.keys().flat_map(|module| (0..=module.len()).map(|end| module[..end].to_vec())).collect();
        Self { src, modules, known }
    }

    /// Returns one problem for each set of rooms that reach each other.
    fn circles(&self) -> Vec<Problem> {
        let mut levels: BTreeMap<Module, Uses> = BTreeMap::new();
        for (module, source) in &self.modules {
            for named in &source.named {
                let Some(target) = self.resolve(module, &named.parts, REEXPORTS_MAX) else { continue };
                let common = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(user), Some(used)) = (module.get(common), target.get(common)) {
                    let site = (source.file.clone(), named.line, named.parts.join("::"));
                    let level = levels.entry(module[..common].to_vec()).or_default();
                    level.entry(user.clone()).or_default().entry(used.clone()).or_insert(site);
                }
            }
        }
        levels.iter().flat_map(|(parent, uses)| self.circles_below(parent, uses)).collect()
    }

    fn circles_below(&self, parent: &Module, uses: &Uses) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for room in uses.keys() {
            let reached = reach(uses, room);
            let is_back = |other: &&str| reach(uses, other).contains_key(room.as_str());
            let circle: Vec<&str> = reached.keys().copied().filter(is_back).collect();
            let folders = circle.iter().filter(|room| self.is_folder(parent, room)).count();
            if folders >= self.folders_min(parent) && !seen.contains(room.as_str()) {
                problems.push(self.describe(parent, uses, &circle, &shortest(&reached, room)));
                seen.extend(circle);
            }
        }
        problems
    }

    /// Returns the least number of rooms with folders that makes a circle below `parent` a problem.
    fn folders_min(&self, parent: &[String]) -> usize {
        let is_exempt = |(folder, _): &(&str, &str)| **folder == format!("{}{}", self.src, parent.join("/"));
        if ONE_FOLDER.iter().any(is_exempt) { 2 } else { 1 }
    }

    fn is_folder(&self, parent: &[String], room: &str) -> bool {
        let depth = parent.len() + 1;
        self.modules
            .keys()
            .any(|module| module.len() > depth && module.starts_with(parent) && module[depth - 1] == room)
    }

    /// Describes a problem: the `rooms` that reach each other, and the shortest `circle` among them with the lines that cause it.
    fn describe(&self, parent: &Module, uses: &Uses, rooms: &[&str], circle: &[&str]) -> Problem {
        let steps = circle.windows(2).map(|pair| {
            let (file, line, path) = &uses[pair[0]][pair[1]];
            format!(" -> {} ({file}:{line} `{path}`)", pair[1])
        });
        let what = format!("import circle of {}: {}{}", rooms.join(", "), circle[0], steps.collect::<String>());
        Problem::new(format!("{}{}", self.src, parent.join("/")), what)
    }

    /// Returns the module to which the path `parts` leads from `module`; `None` if that module is outside the crate.
    fn resolve(&self, module: &Module, parts: &[String], hops: usize) -> Option<Module> {
        let mut at = module.clone();
        for (number, part) in parts.iter().enumerate() {
            at = match part.as_str() {
                "crate" => Module::new(),
                "self" => at,
                "super" => at[..at.len().checked_sub(1)?].to_vec(),
                name => match self.child_or_alias(&at, name, hops) {
                    Some(next) => next,
                    None if number == 0 => return None,
                    // The name is an item of this module.
                    None => return Some(at),
                },
            };
        }
        Some(at)
    }

    /// Returns the module that `name` means in `module`: a child module, or the module that a `use` declaration there binds to
    /// the name.
    fn child_or_alias(&self, module: &Module, name: &str, hops: usize) -> Option<Module> {
        let mut child = module.clone();
        child.push(name.to_owned());
        if self.known.contains(&child) {
            return Some(child);
        }
        let named = &self.modules.get(module)?.named;
        let target = named.iter().find(|named| named.alias.as_deref() == Some(name) && named.parts != [name])?;
        self.resolve(module, &target.parts, hops.checked_sub(1)?)
    }
}

/// Returns the rooms that `from` uses, directly or through others. Each has the room before it on the shortest path.
fn reach<'a>(uses: &'a Uses, from: &'a str) -> BTreeMap<&'a str, &'a str> {
    let mut before = BTreeMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(room) = open.pop_front() {
        for used in uses.get(room).into_iter().flat_map(BTreeMap::keys) {
            if let Entry::Vacant(entry) = before.entry(used.as_str()) {
                entry.insert(room);
                open.push_back(used);
            }
        }
    }
    before
}

/// Returns the shortest circle from `start` back to `start`. `before` has the rooms that `start` reaches.
fn shortest<'a>(before: &BTreeMap<&'a str, &'a str>, start: &'a str) -> Vec<&'a str> {
    let back = successors(before.get(start), |room| before.get(*room).filter(|next| **next != start));
    let mut circle: Vec<&str> = [start].into_iter().chain(back.copied()).chain([start]).collect();
    circle.reverse();
    circle
}

/// Returns the module path of a file below `src/`; `None` for test code.
fn module_of(path: &str) -> Option<Module> {
    let mut parts: Module = path.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if parts.iter().any(|part| part == "tests") {
        return None;
    }
    if parts.last().is_some_and(|last| last == "mod") || ["lib", "main"].iter().any(|root| parts == [*root]) {
        parts.pop();
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file =
            |(path, text): &(&str, &str)| File { path: format!("crates/a/src/{path}"), text: (*text).to_owned() };
        check(&files.iter().map(file).collect::<Vec<_>>()).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn two_folders_that_import_each_other_are_found() {
        let files = [
            ("lib.rs", "mod b; mod c;"),
            ("b.rs", "mod x;"),
            ("b/x.rs", "use crate::c::y::Y;"),
            ("c.rs", "mod y;"),
            ("c/y.rs", "fn f() { crate::b::x::g() }"),
        ];
        assert_eq!(
            found(&files),
            [
                "crates/a/src/: import circle of b, c: b -> c (crates/a/src/b/x.rs:1 `crate::c::y::Y`) -> b (crates/a/src/c/y.rs:1 `crate::b::x::g`)"
            ]
        );
        assert_eq!(found(&files[..4]), [""; 0]);
    }

    #[test]
    fn a_circle_of_folders_through_a_file_is_found() {
        let files = [("b/x.rs", "use crate::c::D;"), ("c.rs", "use crate::d::E;"), ("d/y.rs", "use crate::b::F;")];
        let found = found(&files);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/a/src/: import circle of b, c, d: b -> c (") && found[0].contains(" -> d ("),
            "{found:?}"
        );
    }

    #[test]
    fn circles_below_the_first_level_are_found() {
        let files = [("b/x/y.rs", "use super::super::z::D;"), ("b/z/y.rs", "use super::super::x::y::E;")];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn a_parent_and_its_folder_are_one_room_and_single_files_may_import_each_other() {
        assert_eq!(found(&[("b.rs", "use x::X;"), ("b/x.rs", "use super::D;")]), [""; 0]);
        assert_eq!(found(&[("b.rs", "use crate::c::D;"), ("c.rs", "use crate::b::E;")]), [""; 0]);
        assert_eq!(found(&[("b/x.rs", "use crate::c::D;"), ("c.rs", "use crate::b::x::E;")]).len(), 1);
    }

    #[test]
    fn a_reexport_is_looked_through() {
        let files = [("lib.rs", "pub use c::y::D;"), ("b/x.rs", "use crate::D;"), ("c/y.rs", "use crate::b::x::E;")];
        assert_eq!(found(&files).len(), 1);
        let files = [("b.rs", "use crate::c::D;"), ("b/x.rs", "use super::D;"), ("c.rs", "mod e;"), ("c/e.rs", "")];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn tests_comments_and_other_crates_make_no_circle() {
        for text in [
            "#[cfg(test)]\nmod tests {\n use crate::b::x::E;\n}",
            "#[cfg(test)]\nuse crate::b::x::E;",
            "// crate::b::x::E",
            "use other::b::x::E; use ::b::x::E;",
        ] {
            assert_eq!(found(&[("b/x.rs", "use crate::c::D;"), ("c.rs", text), ("c/y.rs", "")]), [""; 0], "{text}");
        }
        assert_eq!(
            found(&[("b/x.rs", "use crate::c::D;"), ("c/y.rs", ""), ("c/tests.rs", "use crate::b::x::E;")]),
            [""; 0]
        );
    }
}
