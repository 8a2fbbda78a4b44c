//! The call chains of one trial with the CPU time per unit of each function, and sums over functions.

use super::Part;
use crate::record::{ChainsRecord, Owner, ProcessCpu, TrialRecord, total};
use std::collections::HashMap;

/// Numbers for the names of functions, the same in all trials.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<String, Function>,
    names: Vec<String>,
}

/// The number of a function.
pub(super) type Function = usize;

impl Names {
    fn number(&mut self, name: &str) -> Function {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    pub(super) fn of(&self, function: Function) -> &str {
        self.names.get(function).map_or("", String::as_str)
    }

    pub(super) fn count(&self) -> usize {
        self.names.len()
    }
}

/// How complete the sampled call chains of some trials are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quality {
    /// Number of all samples.
    pub samples: u64,
    /// Number of samples whose chain was lost.
    pub lost: u64,
    /// Number of samples whose chain lacks functions.
    pub shortened: u64,
    /// Number of samples whose innermost function has no known name.
    pub unknown: u64,
}

impl Quality {
    fn of(chains: &ChainsRecord) -> Self {
        let kept = total(chains.trees.iter().flat_map(|tree| &tree.nodes).map(|node| node.samples));
        let ChainsRecord { lost, shortened, unknown, .. } = *chains;
        Self { samples: kept.saturating_add(lost), lost, shortened, unknown }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            samples: self.samples.saturating_add(other.samples),
            lost: self.lost.saturating_add(other.lost),
            shortened: self.shortened.saturating_add(other.shortened),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }
}

/// A function at one place of the call chains of a trial.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// Index of the calling function's node; `None` if the function is the outermost one.
    caller: Option<usize>,
    function: Function,
    owner: Owner,
    /// CPU milliseconds per unit in the function itself.
    own: f64,
}

/// The call chains of one trial. Each node follows its caller.
#[derive(Debug)]
pub(super) struct Forest {
    nodes: Vec<Node>,
    pub(super) quality: Quality,
}

impl Forest {
    /// Returns the call chains of `trial` that are charged to `part`. `None` if the trial recorded no chains or completed no unit.
    pub(super) fn of(trial: &TrialRecord, part: Part, names: &mut Names) -> Option<Self> {
        let chains = trial.cpu.chains.as_ref()?;
        let units = trial.cpu_units();
        let count: usize = chains.trees.iter().map(|tree| tree.nodes.len()).sum();
        if units <= 0.0 || chains.phase.cpu_units(trial.cell.workload) <= 0.0 || count > ChainsRecord::NODES_MAX {
            return None;
        }
        let numbers: Vec<Function> = chains.names.iter().map(|name| names.number(name)).collect();
        let mut nodes: Vec<Node> = Vec::new();
        for tree in chains.trees.iter().filter(|tree| is_in(part, tree.owner)) {
            let ms = sample_ns(trial, chains, tree.process) * 1e-6 / units;
            let first = nodes.len();
            for (at, node) in tree.nodes.iter().enumerate() {
                let caller = (node.caller as usize).checked_sub(1);
                // A record may be damaged or hostile.
                let caller = caller.filter(|caller| *caller < at).map(|caller| first + caller);
                let function = *numbers.get(node.name as usize)?;
                nodes.push(Node { caller, function, owner: tree.owner, own: node.samples as f64 * ms });
            }
        }
        Some(Self { nodes, quality: Quality::of(chains) })
    }

    /// Returns the CPU time of all functions together.
    pub(super) fn total(&self) -> f64 {
        self.nodes.iter().map(|node| node.own).sum()
    }

    /// Returns the sums over the functions. `taken` says for each function whether its samples, and those of the functions that it
    /// called, are left out.
    pub(super) fn sums(&self, taken: &[bool]) -> Sums {
        let mut out = vec![false; self.nodes.len()];
        let mut inclusive = vec![0.0; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            out[at] = is_taken(taken, node.function) || node.caller.is_some_and(|caller| out[caller]);
            inclusive[at] = if out[at] { 0.0 } else { node.own };
        }
        for at in (0..self.nodes.len()).rev() {
            if let Some(caller) = self.nodes[at].caller {
                inclusive[caller] += inclusive[at];
            }
        }
        let mut sums = Sums { inclusive: vec![0.0; taken.len()], own: vec![0.0; taken.len()] };
        for (at, node) in self.nodes.iter().enumerate() {
            if !out[at] {
                sums.own[node.function] += node.own;
            }
            if !out[at] && !self.is_within(at, node.function) {
                sums.inclusive[node.function] += inclusive[at];
            }
        }
        sums
    }

    /// Returns true if `function` is among the callers of the node at `at`: a function that calls itself counts once.
    fn is_within(&self, at: usize, function: Function) -> bool {
        let mut next = self.nodes[at].caller;
        while let Some(at) = next {
            if self.nodes[at].function == function {
                return true;
            }
            next = self.nodes[at].caller;
        }
        false
    }

    /// Calls `add` with each place of `function` and its CPU time there.
    pub(super) fn places(&self, function: Function, taken: &[bool], mut add: impl FnMut(Place, f64)) {
        for (at, node) in self.nodes.iter().enumerate() {
            if node.function != function {
                continue;
            }
            let callers = self.callers(node);
            if callers.iter().all(|&caller| caller != function && !is_taken(taken, caller)) {
                add((callers, node.owner), self.inclusive(at, taken));
            }
        }
    }

    /// Calls `add` with each call chain, the innermost function first, and the CPU time in its innermost function.
    pub(super) fn chains(&self, mut add: impl FnMut(Place, f64)) {
        for node in self.nodes.iter().filter(|node| node.own > 0.0) {
            let functions = [vec![node.function], self.callers(node)].concat();
            add((functions, node.owner), node.own);
        }
    }

    /// Returns the callers of a node, the nearest first.
    fn callers(&self, node: &Node) -> Vec<Function> {
        let mut callers = Vec::new();
        let mut next = node.caller;
        while let Some(at) = next {
            callers.push(self.nodes[at].function);
            next = self.nodes[at].caller;
        }
        callers
    }

    fn inclusive(&self, at: usize, taken: &[bool]) -> f64 {
        let mut within = vec![false; self.nodes.len()];
        let mut sum = 0.0;
        for (index, node) in self.nodes.iter().enumerate().skip(at) {
            let inherits = node.caller.is_some_and(|caller| within[caller]);
            within[index] = index == at || inherits && !is_taken(taken, node.function);
            sum += if within[index] { node.own } else { 0.0 };
        }
        sum
    }
}

fn is_taken(taken: &[bool], function: Function) -> bool {
    taken.get(function).copied().unwrap_or(false)
}

/// Where a function was called: its callers, the nearest first, and the component to which the CPU time is charged.
pub(super) type Place = (Vec<Function>, Owner);

/// CPU milliseconds per unit of each function, by its number.
#[derive(Debug)]
pub(super) struct Sums {
    /// With the functions that it called.
    pub(super) inclusive: Vec<f64>,
    /// In the function itself.
    pub(super) own: Vec<f64>,
}

fn is_in(part: Part, owner: Owner) -> bool {
    part == Part::Total || part == part_of(owner)
}

pub(super) fn part_of(owner: Owner) -> Part {
    match owner {
        Owner::Client => Part::Client,
        Owner::Router => Part::Router,
        Owner::Server => Part::Server,
        Owner::Other => Part::Other,
    }
}

/// Returns the CPU time in nanoseconds for which one sample in a process of `process` stands. The run time of client, router and
/// server in the trial's own phase is known. So it is divided by the number of their samples.
fn sample_ns(trial: &TrialRecord, chains: &ChainsRecord, process: Owner) -> f64 {
    let of = |process: Option<Owner>| {
        let trees = chains.trees.iter().filter(|tree| process.is_none_or(|process| tree.process == process));
        total(trees.flat_map(|tree| &tree.nodes).map(|node| node.samples)) as f64
    };
    let cpu = &trial.cpu;
    let stacks = cpu.guests.as_ref().and_then(|guests| guests.stacks);
    let stack = |pick: fn(((ProcessCpu, _), (ProcessCpu, _))) -> ProcessCpu| stacks.map_or(0, |both| pick(both).run_ns);
    let run_ns = match process {
        Owner::Client => cpu.client.run_ns.saturating_add(stack(|((client, _), _)| client)),
        Owner::Server => cpu.server.run_ns.saturating_add(stack(|(_, (server, _))| server)),
        Owner::Router => cpu.guests.as_ref().and_then(|guests| guests.router).map_or(0, |(router, _)| router.run_ns),
        Owner::Other => {
            // Lost chains may belong to any process. The samples are from a phase with a number of units of its own.
            let kept = of(None);
            let phases = trial.cpu_units() / chains.phase.cpu_units(trial.cell.workload).max(f64::MIN_POSITIVE);
            return chains.period_ns as f64 * phases * (kept + chains.lost as f64) / kept.max(1.0);
        }
    };
    run_ns as f64 / of(Some(process)).max(1.0)
}
