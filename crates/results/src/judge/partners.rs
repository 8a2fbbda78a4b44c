//! Selection of the cells of a run, or of two runs, that are compared with each other.

use super::comparison::Subject;
use crate::summary::{base_of, kernel_path_of};
use siga_plan::level::{Level, Variant};
use siga_plan::matrix::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Returns the level with which `level` is compared: the nearest measured level of which `level` is a variant, according to its
/// name. For example, `430-packing-colocate` is compared with `430-packing` if that was measured, otherwise with `430`. If no
/// such level was measured, the first level is returned.
fn base_level<'a>(level: &str, levels: &[&'a str]) -> Option<&'a str> {
    let mut base = Variant::of(level).map(|variant| variant.base);
    while let Some(name) = base {
        if let Some(found) = levels.iter().find(|level| **level == name) {
            return Some(found);
        }
        base = Variant::of(name).map(|variant| variant.base);
    }
    levels.first().copied()
}

/// Returns the comparisons that [`super::within`] makes: each with its subject, the name of the base side and the name of the new
/// side.
pub(super) fn subjects(levels: &[Level], cells: &[Cell]) -> Vec<(Subject, String, String)> {
    let mut names: Vec<&str> = levels.iter().map(|level| level.name.as_str()).collect();
    names.retain(|name| cells.iter().any(|cell| cell.level == *name));
    if names.len() > 1 {
        let further = names.iter().skip(1);
        let pairs =
            further.filter_map(|new| Some((Subject::Levels, base_level(new, &names)?.to_owned(), (*new).to_owned())));
        return pairs.collect();
    }
    path_subjects(cells)
}

/// Returns the comparisons of paths that siga makes by default, whatever the levels are.
fn path_subjects(cells: &[Cell]) -> Vec<(Subject, String, String)> {
    let known: HashSet<&Cell> = cells.iter().collect();
    let mut paths: Vec<(Subject, String, String)> = Vec::new();
    for cell in cells {
        let base = base_of(cell).filter(|base| known.contains(base));
        let entry = base.map(|base| (Subject::Paths, base.path, cell.path.clone()));
        paths.extend(entry.filter(|entry| !paths.contains(entry)));
        let kernel = kernel_path_of(&cell.path).filter(|path| cells.iter().any(|cell| cell.path == *path));
        let entry = kernel.map(|path| (Subject::Paths, path.to_owned(), cell.path.clone()));
        paths.extend(entry.filter(|entry| !paths.contains(entry)));
    }
    paths
}

/// Returns the comparisons that [`super::shown`] makes in addition to the default ones: if the run has several levels, the
/// comparisons of paths; each path that is compared with no other path, against the first path of the run; and the MTUs of a path.
pub(super) fn further(levels: &[Level], cells: &[Cell]) -> Vec<(Subject, String, String)> {
    let known = subjects(levels, cells);
    let mut paths = path_subjects(cells);
    for cell in cells {
        let first = &cells[0].path;
        let is_compared = paths.iter().any(|(_, _, new)| *new == cell.path);
        let is_base = paths.iter().any(|(_, base, new)| *base == cell.path && new == first);
        if cell.path != *first && !is_compared && !is_base {
            paths.push((Subject::Paths, first.clone(), cell.path.clone()));
        }
    }
    paths.retain(|entry| !known.contains(entry));
    paths.extend(mtu_subjects(cells));
    paths
}

/// Returns the comparisons of each MTU with each smaller one, if the run has several MTUs of one path.
fn mtu_subjects(cells: &[Cell]) -> Vec<(Subject, String, String)> {
    let differs = |cell: &Cell, other: &Cell| other.mtu != cell.mtu && Cell { mtu: cell.mtu, ..other.clone() } == *cell;
    let several = cells.iter().filter(|cell| cells.iter().any(|other| differs(cell, other)));
    let mtus: BTreeSet<u32> = several.filter_map(|cell| cell.mtu).collect();
    let pairs = mtus.iter().flat_map(|base| mtus.range(base + 1..).map(move |new| (base, new)));
    pairs.map(|(base, new)| (Subject::Mtus, base.to_string(), new.to_string())).collect()
}

/// Returns the pairs of cells (base, new) of each comparison that siga makes by default in a run with these levels and cells.
pub(crate) fn pairs(levels: &[Level], cells: &[Cell]) -> Vec<Vec<(Cell, Cell)>> {
    let subjects = subjects(levels, cells);
    subjects.iter().map(|(subject, base, new)| Sides::of(cells, *subject, base, new).pairs()).collect()
}

/// The cells of both sides of a comparison within one run.
pub(super) struct Sides<'a> {
    subject: Subject,
    new_name: &'a str,
    pub(super) base: Vec<Cell>,
    pub(super) new: Vec<Cell>,
}

impl<'a> Sides<'a> {
    pub(super) fn of(cells: &[Cell], subject: Subject, base: &str, new_name: &'a str) -> Self {
        let of = |name: &str| cells.iter().filter(|cell| subject.of(cell) == name).cloned().collect();
        Self { subject, new_name, base: of(base), new: of(new_name) }
    }

    pub(super) fn pairs(&self) -> Vec<(Cell, Cell)> {
        let new = self.new_name.to_owned();
        partners(&self.base, &self.new, |cell| match self.subject {
            Subject::Levels => Cell { level: new.clone(), ..cell.clone() },
            Subject::Mtus => Cell { mtu: new.parse().ok(), ..cell.clone() },
            Subject::Paths | Subject::Runs => Cell { path: new.clone(), ..cell.clone() },
        })
    }
}

/// Pairs each cell of `own` with the cell that `wanted` computes from it. If the computed cell is not in `others`, the partner is
/// the cell of `others` that differs from it only in the MTU. If several cells of `others` differ only in the MTU, there is no
/// partner. If several cells of `own` would get the same partner in this way, they get none.
pub(super) fn partners(own: &[Cell], others: &[Cell], wanted: impl Fn(&Cell) -> Cell) -> Vec<(Cell, Cell)> {
    let key = |cell: &Cell| Cell { mtu: None, ..cell.clone() };
    let known: HashSet<&Cell> = others.iter().collect();
    let wanted: Vec<(&Cell, Cell)> = own.iter().map(|cell| (cell, wanted(cell))).collect();
    let mut similar: HashMap<Cell, Vec<&Cell>> = HashMap::new();
    others.iter().for_each(|other| similar.entry(key(other)).or_default().push(other));
    let mut askers: HashMap<Cell, usize> = HashMap::new();
    wanted.iter().for_each(|(_, wanted)| *askers.entry(key(wanted)).or_default() += 1);
    let partner = |wanted: &Cell| match (known.contains(wanted), similar.get(&key(wanted)).map(Vec::as_slice)) {
        (true, _) => Some(wanted.clone()),
        (false, Some([single])) if askers[&key(wanted)] == 1 => Some((*single).clone()),
        (false, _) => None,
    };
    wanted.iter().filter_map(|(cell, wanted)| Some(((*cell).clone(), partner(wanted)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_may_differ_in_mtu_if_there_is_only_one_choice() {
        let cell = |level: &str, mtu| Cell {
            level: level.into(),
            mtu: Some(mtu),
            ..crate::testing::trial("veth", 0, 700, None).cell
        };
        let other = |cell: &Cell| Cell { level: "large".into(), ..cell.clone() };
        let pairs = partners(&[cell("small", 1_500)], &[cell("large", 8_992)], other);
        assert_eq!(pairs[0].1.mtu, Some(8_992));
        let two = [cell("large", 8_992), cell("large", 1_500)];
        assert_eq!(partners(&[cell("small", 1_500)], &two, other)[0].1.mtu, Some(1_500));
        assert!(partners(&[cell("small", 9_000)], &two, other).is_empty());
        let small = [cell("small", 1_500), cell("small", 8_992)];
        let pairs = partners(&small, &[cell("large", 1_500)], other);
        assert_eq!(pairs.len(), 1, "the other cell has no partner: {pairs:?}");
    }
}
