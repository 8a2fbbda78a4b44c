//! The rows of the comparison with their targets, and the modes of using a path.

use std::path::Path;

/// The two MTUs of the kernel's path: that of siga's links, and Ethernet's.
const MTU: u32 = 57_344;
const ETHERNET: u32 = 1_500;

/// Ratios to reach; `None`: only reported.
#[derive(Clone, Copy, Default)]
pub(super) struct Targets {
    /// Rate, polling, against the kernel's best.
    pub(super) best: Option<f64>,
    /// Rate, polling, against the kernel's best mode that blocks.
    pub(super) blocking: Option<f64>,
    /// Rate, blocking, against the same.
    pub(super) alike: Option<f64>,
    /// CPU time of a unit, in the cheapest mode, against the kernel's cheapest: at most.
    pub(super) cpu: Option<f64>,
    /// The 99th and the 99.9th percentile of latency, each against the kernel's best: at most.
    pub(super) tail: Option<f64>,
}

/// A cell of the comparison.
pub(super) struct Row {
    pub(super) path: &'static str,
    /// The kernel's path.
    pub(super) kernel: &'static str,
    pub(super) workload: &'static str,
    pub(super) clients: u32,
    pub(super) mtu: u32,
    pub(super) level: &'static str,
    /// The kernel may take another MTU, BIG TCP and large writes.
    pub(super) kernel_is_free: bool,
    /// Beside a process that takes all CPU time it gets.
    pub(super) hog: bool,
    pub(super) targets: Targets,
}

const fn targets(best: f64, blocking: f64, alike: f64, cpu: f64) -> Targets {
    Targets { best: Some(best), blocking: Some(blocking), alike: Some(alike), cpu: Some(cpu), tail: Some(1.0) }
}

const ROUTED: &str = "hipersockets-routed";
const IUCV: &str = "hipersockets-routed-iucv";
const VETH: &str = "veth-routed";
const NOTHING: Targets = Targets { best: None, blocking: None, alike: None, cpu: None, tail: None };
const BASE: Row = Row {
    path: ROUTED,
    kernel: VETH,
    workload: "rr-200-1000",
    clients: 10,
    mtu: MTU,
    level: "plain",
    kernel_is_free: true,
    hog: false,
    targets: NOTHING,
};
const STREAMS: Targets = Targets { best: Some(1.0), alike: Some(1.0), cpu: Some(0.6), ..NOTHING };
const SAME_MTU: Targets = Targets { best: Some(2.0), ..NOTHING };
const LARGE_SEGMENTS: Targets = Targets { best: Some(1.0), cpu: Some(0.8), ..NOTHING };
/// The level without large segments.
pub(super) const FRAMES: &str = "frames";
const APPLICATIONS: Targets = Targets { best: Some(1.5), cpu: Some(1.0), tail: Some(1.0), ..NOTHING };
const CROWDED: Targets = Targets { best: Some(1.0), tail: Some(1.0), ..NOTHING };
/// The kernel's path has no router there, while siga's has one: only reported.
const LOOPBACK: Row = Row { kernel: "loopback", ..BASE };
const SOCKMAP: Row = Row { kernel: "sockmap", ..BASE };

pub(super) const ROWS: [Row; 30] = [
    Row { clients: 1, targets: targets(1.3, 5.0, 1.0, 1.0), ..BASE },
    Row { targets: targets(2.5, 3.0, 1.2, 0.5), ..BASE },
    Row { workload: "rr-200-32k", targets: targets(2.0, 2.5, 1.2, 0.5), ..BASE },
    Row { workload: "crr-64-8k", clients: 1, targets: targets(2.5, 5.0, 1.5, 0.6), ..BASE },
    Row { workload: "crr-64-8k", targets: targets(4.0, 5.0, 3.0, 0.4), ..BASE },
    Row { workload: "strg-20m", clients: 1, targets: STREAMS, ..BASE },
    Row { workload: "strg-20m", targets: STREAMS, ..BASE },
    Row { workload: "strg-20m", clients: 1, kernel_is_free: false, targets: SAME_MTU, ..BASE },
    Row { workload: "strg-20m", kernel_is_free: false, targets: SAME_MTU, ..BASE },
    Row { workload: "strg-20m", clients: 1, mtu: ETHERNET, kernel_is_free: false, targets: LARGE_SEGMENTS, ..BASE },
    Row { workload: "strg-20m", mtu: ETHERNET, kernel_is_free: false, targets: LARGE_SEGMENTS, ..BASE },
    Row { mtu: ETHERNET, level: FRAMES, ..BASE },
    Row { workload: "rr-200-32k", mtu: ETHERNET, level: FRAMES, ..BASE },
    Row { workload: "crr-64-8k", mtu: ETHERNET, level: FRAMES, ..BASE },
    Row { workload: "strg-20m", mtu: ETHERNET, level: FRAMES, ..BASE },
    Row { path: IUCV, targets: APPLICATIONS, ..BASE },
    Row { path: IUCV, workload: "crr-64-8k", targets: APPLICATIONS, ..BASE },
    Row { path: IUCV, workload: "strg-20m", targets: Targets { best: Some(0.8), tail: None, ..APPLICATIONS }, ..BASE },
    Row { clients: 1, hog: true, targets: CROWDED, ..BASE },
    Row { hog: true, targets: CROWDED, ..BASE },
    Row { clients: 1, ..LOOPBACK },
    LOOPBACK,
    Row { workload: "rr-200-32k", ..LOOPBACK },
    Row { workload: "crr-64-8k", ..LOOPBACK },
    Row { workload: "strg-20m", ..LOOPBACK },
    Row { clients: 1, ..SOCKMAP },
    SOCKMAP,
    Row { workload: "rr-200-32k", ..SOCKMAP },
    Row { workload: "crr-64-8k", ..SOCKMAP },
    Row { workload: "strg-20m", ..SOCKMAP },
];

/// A way of using a path.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) path: &'static str,
    pub(super) processes: bool,
    pub(super) wait: &'static str,
    pub(super) level: String,
    pub(super) write: &'static str,
    pub(super) mtu: u32,
    /// Client and server on one CPU, as siga's co-locate by themselves; else the scheduler places them.
    pub(super) one_cpu: bool,
}

impl Mode {
    pub(super) fn name(&self) -> String {
        let layout = if self.processes { "processes" } else { "epoll" };
        let Self { path, wait, write, mtu, .. } = self;
        match *path {
            VETH => {
                let place = if self.one_cpu { ", on one CPU" } else { "" };
                format!("{layout}, {wait}, {}, MTU {mtu}, writes of {write}{place}", self.level_name())
            }
            _ => format!("{path}, {wait}"),
        }
    }

    /// What siga calls its level, which may be a file's.
    pub(super) fn level_name(&self) -> String {
        Path::new(&self.level).file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Waits as the kernel's blocking sockets do.
    pub(super) fn blocks(&self) -> bool {
        self.wait == "block"
    }
}

impl Row {
    pub(super) fn name(&self) -> String {
        let Self { path, kernel, workload, clients, mtu, level, .. } = self;
        let level = if *level == "plain" { String::new() } else { format!(" {level}") };
        let against = if self.is_routed() { String::new() } else { format!(" against {kernel}") };
        let beside = if self.hog { " beside a busy process" } else { "" };
        let bound = if self.kernel_is_free { "" } else { ", the kernel at this MTU too, without BIG TCP" };
        format!("{path} {workload} x{clients} mtu {mtu}{level}{against}{beside}{bound}")
    }

    pub(super) fn streams(&self) -> bool {
        self.workload.starts_with("str")
    }

    /// The kernel's path has a router, too.
    pub(super) fn is_routed(&self) -> bool {
        self.kernel == VETH
    }

    /// Whether siga's best waiting policy is compared with the kernel's best: beside a busy process, and where more processes have
    /// work than there are CPUs. Elsewhere `poll` is.
    pub(super) fn own_best_counts(&self) -> bool {
        self.hog || self.path == IUCV
    }

    /// siga's waiting policies: `poll` first, `block` last.
    pub(super) fn own_modes(&self, frames: &str) -> Vec<Mode> {
        let level = if self.level == FRAMES { frames } else { self.level };
        let waits: &[&'static str] = if self.is_routed() { &["poll", "adaptive", "block"] } else { &["poll", "block"] };
        let mode = |&wait| Mode { wait, mtu: self.mtu, ..Mode::of(self.path, level) };
        waits.iter().map(mode).collect()
    }

    /// What is varied of the kernel's path: layouts, waiting, sizes of writes; levels and MTUs are lists of one run.
    pub(super) fn kernel_modes(&self, levels: &[String]) -> Vec<Mode> {
        if !self.is_routed() {
            return ["block", "poll"].map(|wait| Mode { wait, ..Mode::of(self.kernel, "cubic") }).to_vec();
        }
        let mtus: &[u32] = if self.kernel_is_free { &[MTU, ETHERNET] } else { std::slice::from_ref(&self.mtu) };
        let large = self.streams() && self.kernel_is_free;
        let writes: &[&'static str] = if large { &["128k", "512k"] } else { &["128k"] };
        // BIG TCP changes nothing for writes that are smaller than its segments.
        let levels = &levels[..if large { levels.len() } else { 2 }];
        let mut modes = Vec::new();
        for processes in [false, true] {
            for wait in ["block", "poll"] {
                for write in writes {
                    for level in levels {
                        let mode = |&mtu| Mode { processes, wait, write, mtu, ..Mode::of(VETH, level) };
                        modes.extend(mtus.iter().map(mode));
                    }
                }
            }
        }
        modes
    }
}

impl Mode {
    fn of(path: &'static str, level: &str) -> Self {
        let level = level.to_owned();
        Self { path, processes: false, wait: "block", level, write: "128k", mtu: MTU, one_cpu: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    /// The table of rows: path, workload, pairs, MTU, frames, what the kernel may use; then the targets for rate
    /// against its best, against its blocking sockets and blocking against blocking, for CPU time, and for p99 and p99.9.
    const TABLE: &str = "
        routed rr-200-1000 1 57344 large any: 1.3 5 1 1 1
        routed rr-200-1000 10 57344 large any: 2.5 3 1.2 0.5 1
        routed rr-200-32k 10 57344 large any: 2 2.5 1.2 0.5 1
        routed crr-64-8k 1 57344 large any: 2.5 5 1.5 0.6 1
        routed crr-64-8k 10 57344 large any: 4 5 3 0.4 1
        routed strg-20m 1 57344 large any: 1 - 1 0.6 -
        routed strg-20m 10 57344 large any: 1 - 1 0.6 -
        routed strg-20m 1 57344 large same-mtu: 2 - - - -
        routed strg-20m 10 57344 large same-mtu: 2 - - - -
        routed strg-20m 1 1500 large same-mtu: 1 - - 0.8 -
        routed strg-20m 10 1500 large same-mtu: 1 - - 0.8 -
        routed rr-200-1000 10 1500 frames any: - - - - -
        routed rr-200-32k 10 1500 frames any: - - - - -
        routed crr-64-8k 10 1500 frames any: - - - - -
        routed strg-20m 10 1500 frames any: - - - - -
        iucv rr-200-1000 10 57344 large any: 1.5 - - 1 1
        iucv crr-64-8k 10 57344 large any: 1.5 - - 1 1
        iucv strg-20m 10 57344 large any: 0.8 - - 1 -
        routed rr-200-1000 1 57344 large any, hog: 1 - - - 1
        routed rr-200-1000 10 57344 large any, hog: 1 - - - 1
        routed rr-200-1000 1 57344 large loopback: - - - - -
        routed rr-200-1000 10 57344 large loopback: - - - - -
        routed rr-200-32k 10 57344 large loopback: - - - - -
        routed crr-64-8k 10 57344 large loopback: - - - - -
        routed strg-20m 10 57344 large loopback: - - - - -
        routed rr-200-1000 1 57344 large sockmap: - - - - -
        routed rr-200-1000 10 57344 large sockmap: - - - - -
        routed rr-200-32k 10 57344 large sockmap: - - - - -
        routed crr-64-8k 10 57344 large sockmap: - - - - -
        routed strg-20m 10 57344 large sockmap: - - - - -
";

    #[test]
    fn the_rows_are_those_of_the_table_with_its_targets() {
        let mut table = String::from("\n");
        for row in &ROWS {
            let path = if row.path == IUCV { "iucv" } else { "routed" };
            let frames = if row.level == FRAMES { "frames" } else { "large" };
            let bound = if row.kernel_is_free { "any" } else { "same-mtu" };
            let kernel = if row.is_routed() { bound } else { row.kernel };
            let beside = if row.hog { ", hog" } else { "" };
            let Targets { best, blocking, alike, cpu, tail } = row.targets;
            let text = |target: Option<f64>| target.map_or("-".to_owned(), |target| target.to_string());
            let targets = [best, blocking, alike, cpu, tail].map(text).join(" ");
            let Row { workload, clients, mtu, .. } = row;
            let _ = writeln!(table, "        {path} {workload} {clients} {mtu} {frames} {kernel}{beside}: {targets}");
        }
        assert_eq!(table, TABLE);
    }

    #[test]
    fn each_row_has_a_name_of_its_own() {
        let mut names: Vec<String> = ROWS.iter().map(Row::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn the_kernel_has_all_its_modes_where_it_is_free() {
        let levels = ["cubic", "reno", "bigtcp", "both"].map(str::to_owned);
        let modes = |row: &Row| row.kernel_modes(&levels).len();
        assert_eq!((modes(&ROWS[0]), modes(&ROWS[5]), modes(&ROWS[7]), modes(&ROWS[20])), (16, 64, 8, 2));
    }
}
