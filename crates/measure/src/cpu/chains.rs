//! Builds the record of a trial's call chains from a profile: names instead of addresses, and trees instead of single chains.
//!
//! Functions of the kernel have the names of its symbol table. Thunks, through which the compiler lets functions return or call, count
//! for the function around them. Code in user mode has the name of the file that is mapped there, in square brackets, and then the
//! name of its function, if the file has a symbol for it. Chains that differ only in addresses within the same functions become one
//! chain.

use crate::bpf::symbols::Functions;
use crate::cpu::charge::Owners;
use crate::cpu::profile::{Chain, Mode, Profile};
use crate::cpu::program::{Id, Programs};
use siga_model::error::Result;
use siga_results::record::{ChainNode, ChainTree, ChainsRecord, Owner, PhaseRecord};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Names of the kernel's thunks begin or end with one of these.
const THUNKS: ([&str; 2], &str) = (["__x86_indirect_", "srso_"], "_return_thunk");
/// Maximum number of times that the kernel's functions are read again without any benefit.
const VAIN_READS_MAX: u32 = 3;

/// Finds the names of functions. The kernel's functions are read once, and again if an address is in none of them, because the
/// kernel may have loaded a module or a BPF program meanwhile.
#[derive(Debug)]
pub(crate) struct Names {
    kernel: Functions,
    vain_reads: u32,
    programs: Programs,
}

impl Names {
    /// Reads the kernel's functions. Returns an error of kind `Environment` if the kernel hides them.
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { kernel: Functions::of_kernel()?, vain_reads: 0, programs: Programs::default() })
    }

    /// Returns the record of the call chains of `profile`, which was taken in `phase`. The processes of the trial must still exist, so
    /// that their mapped files are known. `is_new` says whether the trial has loaded a BPF program of its own.
    pub(crate) fn record(
        &mut self,
        profile: &Profile,
        owners: &Owners,
        phase: PhaseRecord,
        is_new: bool,
    ) -> ChainsRecord {
        self.refresh(&profile.chains, is_new);
        let mut files = Files::default();
        let mut forest = Forest::default();
        let (mut shortened, mut unknown) = (0, 0);
        for chain in &profile.chains {
            let count = chain.sample.count;
            let names = match chain.sample.mode {
                Mode::User => {
                    let address = chain.addresses.first().copied().unwrap_or(0);
                    files.names(&mut self.programs, chain.sample.tgid, address)
                }
                Mode::Kernel | Mode::Softirq => self.kernel_names(&chain.addresses),
            };
            shortened += if chain.is_shortened { count } else { 0 };
            unknown += if names.last().is_none_or(|name| name.starts_with('[')) { count } else { 0 };
            forest.add(owners.of(&chain.sample), &names, count);
        }
        let cut = forest.prune(ChainsRecord::NODES_MAX);
        let (names, trees) = forest.finish();
        let shortened = shortened + cut;
        let (period_ns, lost) = (profile.period_ns, profile.chains_lost);
        ChainsRecord { phase, period_ns, names, trees, lost, shortened, unknown }
    }

    /// Returns the names of the functions of a chain in the kernel, the outermost first.
    fn kernel_names(&self, addresses: &[u64]) -> Vec<String> {
        let name = |(depth, address): (usize, &u64)| {
            // All addresses but the innermost are return addresses. The instruction before is the call.
            let address = if depth == 0 { *address } else { address.saturating_sub(1) };
            self.kernel.at(address).unwrap_or("[kernel]").to_owned()
        };
        let mut names: Vec<String> = addresses.iter().enumerate().map(name).collect();
        if names.len() > 1 && names.first().is_some_and(|name| is_thunk(name)) {
            names.remove(0);
        }
        names.reverse();
        if names.is_empty() { vec!["[kernel]".into()] } else { names }
    }

    fn refresh(&mut self, chains: &[Chain], is_new: bool) {
        let unnamed = |functions: &Functions| {
            let of_kernel = chains.iter().filter(|chain| chain.sample.mode != Mode::User);
            of_kernel.flat_map(|chain| &chain.addresses).filter(|address| functions.at(**address).is_none()).count()
        };
        let before = unnamed(&self.kernel);
        if !is_new && (before == 0 || self.vain_reads >= VAIN_READS_MAX) {
            return;
        }
        // Without the new names, the functions keep those that are known.
        let Ok(functions) = Functions::of_kernel() else { return };
        self.vain_reads = if unnamed(&functions) < before { 0 } else { self.vain_reads.saturating_add(1) };
        self.kernel = functions;
    }
}

fn is_thunk(name: &str) -> bool {
    let (beginnings, ending) = THUNKS;
    name.ends_with(ending) || beginnings.iter().any(|beginning| name.starts_with(beginning))
}

/// The files that processes have mapped, read once for each process.
#[derive(Debug, Default)]
struct Files(HashMap<u32, Vec<Mapped>>);

/// An executable part of a process's memory, in which a file is mapped.
#[derive(Debug)]
struct Mapped {
    addresses: Range<u64>,
    /// The place in the file.
    offset: u64,
    /// The path under which the kernel shows the mapped file, even if it was deleted.
    path: PathBuf,
    /// `None` if no regular file is mapped.
    file: Option<Id>,
    name: String,
}

impl Files {
    /// Returns the name of the file that process `pid` has mapped at `address`, and the function there if its name is known; the
    /// name of the process if no file is mapped there.
    fn names(&mut self, programs: &mut Programs, pid: u32, address: u64) -> Vec<String> {
        let parts = self.0.entry(pid).or_insert_with(|| mapped(pid));
        let Some(part) = parts.iter().find(|part| part.addresses.contains(&address)) else {
            return vec![format!("[{}]", process_name(pid))];
        };
        let offset = (address - part.addresses.start).saturating_add(part.offset);
        let function = part.file.and_then(|file| programs.function(file, &part.path, offset));
        [Some(format!("[{}]", part.name)), function].into_iter().flatten().collect()
    }
}

/// Returns the executable parts of a process's memory in which a file is mapped. Empty if the process has ended.
fn mapped(pid: u32) -> Vec<Mapped> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (range, permissions, offset) = (words.next()?, words.next()?, words.next()?);
        let file = words.nth(2)?;
        let (start, end) = range.split_once('-')?;
        let name = Path::new(file.trim_start_matches("/memfd:")).file_name()?.to_str()?.trim_matches(['[', ']']);
        if !permissions.contains('x') {
            return None;
        }
        let place = format!("{}-{}", start.trim_start_matches('0'), end.trim_start_matches('0'));
        let path = PathBuf::from(format!("/proc/{pid}/map_files/{place}"));
        Some(Mapped {
            addresses: hexadecimal(start)?..hexadecimal(end)?,
            offset: hexadecimal(offset)?,
            file: Id::of(&path),
            path,
            name: name.to_owned(),
        })
    };
    text.lines().filter_map(line).collect()
}

fn process_name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // Kernel threads have numbers in their names, which say nothing about the work.
    let name = name.trim().split(['/', ':']).next().unwrap_or_default();
    if name.is_empty() { "ended process".into() } else { name.to_owned() }
}

/// Trees of functions under construction. In a tree, a function follows the function that called it.
#[derive(Debug, Default)]
struct Forest {
    names: Vec<String>,
    indices: HashMap<String, u32>,
    trees: BTreeMap<(Owner, Owner), Tree>,
}

#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<ChainNode>,
    /// The number of each node, by its caller and name.
    places: HashMap<(u32, u32), u32>,
}

impl Forest {
    /// Adds `count` samples of a chain, whose outermost function is the first of `names`.
    fn add(&mut self, of: (Owner, Owner), names: &[String], count: u64) {
        let tree = self.trees.entry(of).or_default();
        let mut at = 0;
        for name in names {
            let index = match self.indices.get(name) {
                Some(index) => *index,
                None => {
                    let index = number(self.names.len());
                    self.names.push(name.clone());
                    self.indices.insert(name.clone(), index);
                    index
                }
            };
            at = *tree.places.entry((at, index)).or_insert_with(|| {
                tree.nodes.push(ChainNode { caller: at, name: index, samples: 0 });
                number(tree.nodes.len())
            });
        }
        if let Some(node) = index(at).and_then(|at| tree.nodes.get_mut(at)) {
            node.samples += count;
        }
    }

    /// Cuts the rarest functions off until at most `most` are left. Returns the number of samples that lost their innermost
    /// functions.
    fn prune(&mut self, most: usize) -> u64 {
        let mut cut = 0;
        let mut rarest = 0;
        while self.trees.values().map(|tree| tree.nodes.len()).sum::<usize>() > most {
            rarest += 1;
            self.trees.values_mut().for_each(|tree| cut += tree.prune(rarest));
        }
        cut
    }

    /// Returns the names that the trees use, and the trees.
    fn finish(self) -> (Vec<String>, Vec<ChainTree>) {
        let mut used: HashMap<u32, u32> = HashMap::new();
        let mut names = Vec::new();
        let mut trees = Vec::new();
        for ((process, owner), mut tree) in self.trees {
            for node in &mut tree.nodes {
                node.name = *used.entry(node.name).or_insert_with(|| {
                    names.extend(index(node.name + 1).and_then(|name| self.names.get(name)).cloned());
                    number(names.len() - 1)
                });
            }
            trees.push(ChainTree { process, owner, nodes: tree.nodes });
        }
        (names, trees)
    }
}

impl Tree {
    /// Cuts off all functions that at most `rarest` samples have, except for the outermost ones. Returns the number of samples
    /// that lost their innermost functions.
    fn prune(&mut self, rarest: u64) -> u64 {
        let mut totals: Vec<u64> = self.nodes.iter().map(|node| node.samples).collect();
        // Every node follows its caller.
        for at in (0..self.nodes.len()).rev() {
            if let Some(caller) = index(self.nodes[at].caller) {
                totals[caller] += totals[at];
            }
        }
        let (mut kept, mut places) = (Vec::<ChainNode>::new(), vec![0; self.nodes.len()]);
        let mut cut = 0;
        for (at, node) in self.nodes.iter().enumerate() {
            let caller = index(node.caller).map_or(0, |caller| places[caller]);
            if let (Some(caller), true) = (index(caller), totals[at] <= rarest) {
                kept[caller].samples += node.samples;
                cut += node.samples;
                places[at] = number(caller + 1);
            } else {
                kept.push(ChainNode { caller, ..*node });
                places[at] = number(kept.len());
            }
        }
        self.nodes = kept;
        cut
    }
}

/// Returns the index of the node with this number; `None` for 0, which means no node.
fn index(number: u32) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1)
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forest(chains: &[(&[&str], u64)]) -> Forest {
        let mut forest = Forest::default();
        for (names, count) in chains {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            forest.add((Owner::Client, Owner::Router), &names, *count);
        }
        forest
    }

    fn nodes(forest: Forest) -> Vec<(u32, String, u64)> {
        let (names, mut trees) = forest.finish();
        let tree = trees.remove(0);
        assert_eq!((tree.process, tree.owner, trees.len()), (Owner::Client, Owner::Router, 0));
        tree.nodes.iter().map(|node| (node.caller, names[node.name as usize].clone(), node.samples)).collect()
    }

    #[test]
    fn chains_with_the_same_beginning_share_it() {
        let chains: [(&[&str], u64); 4] =
            [(&["send", "ip", "nft"], 3), (&["send", "ip"], 2), (&["send", "ip", "nft"], 1), (&["nft"], 5)];
        let wanted = [(0, "send", 0), (1, "ip", 2), (2, "nft", 4), (0, "nft", 5)];
        assert_eq!(nodes(forest(&chains)), wanted.map(|(caller, name, count)| (caller, name.to_owned(), count)));
    }

    #[test]
    fn the_rarest_functions_are_cut_off_and_no_sample_is_lost() {
        let chains: [(&[&str], u64); 4] =
            [(&["a", "b", "c"], 1), (&["a", "b", "d", "e"], 2), (&["a", "f"], 9), (&["g"], 1)];
        let mut forest = forest(&chains);
        assert_eq!(forest.prune(4), 3, "c, then d with e");
        let wanted = [(0, "a", 0), (1, "b", 3), (1, "f", 9), (0, "g", 1)];
        assert_eq!(nodes(forest), wanted.map(|(caller, name, count)| (caller, name.to_owned(), count)));
    }

    #[test]
    fn code_of_a_process_has_the_names_of_its_file_and_function() {
        let address = code_of_a_process_has_the_names_of_its_file_and_function as *const () as u64;
        let (mut files, mut programs) = (Files::default(), Programs::default());
        let names = files.names(&mut programs, std::process::id(), address);
        assert!(names[0].starts_with("[siga_measure"), "{names:?}");
        // Only root may open the files that a process has mapped.
        if rustix::process::geteuid().is_root() {
            let wanted = "siga_measure::cpu::chains::tests::code_of_a_process_has_the_names_of_its_file_and_function";
            assert_eq!(names[1..], [wanted], "{names:?}");
        }
        assert_eq!(files.names(&mut programs, u32::MAX, address), ["[ended process]"]);
    }
}
