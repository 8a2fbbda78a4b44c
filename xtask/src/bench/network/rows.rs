//! The rows of the comparison with their targets, and the modes in which a path is measured.

use std::path::Path;

/// The two MTUs of the kernel's path: the MTU of siga's links, and that of Ethernet.
const MTU: u32 = 57_344;
const ETHERNET: u32 = 1_500;

/// Targets for the ratios of siga's figures to the kernel's. A ratio without a target (`None`) is only reported.
#[derive(Clone, Copy, Default)]
pub(super) struct Targets {
    /// Least ratio of siga's rate, with the mode that [`Row::own_best_counts`] selects, to the kernel's best rate.
    pub(super) best: Option<f64>,
    /// Least ratio of siga's rate with `poll` to the best rate of the kernel's blocking modes.
    pub(super) blocking: Option<f64>,
    /// Least ratio of siga's rate with `block` to the best rate of the kernel's blocking modes.
    pub(super) alike: Option<f64>,
    /// Greatest ratio of siga's CPU time per unit, in its cheapest mode, to that of the kernel's cheapest mode.
    pub(super) cpu: Option<f64>,
    /// Greatest ratio of siga's 99th and 99.9th percentiles of latency, with the same mode as `best`, to those of the kernel's
    /// best mode.
    pub(super) tail: Option<f64>,
}

/// A cell of the comparison.
pub(super) struct Row {
    pub(super) path: &'static str,
    /// The kernel's path with which siga's is compared.
    pub(super) kernel: &'static str,
    pub(super) workload: &'static str,
    pub(super) clients: u32,
    pub(super) mtu: u32,
    pub(super) level: &'static str,
    /// Whether the kernel may also use another MTU, BIG TCP and large writes.
    pub(super) kernel_is_free: bool,
    /// Whether a process that uses all available CPU time runs during the measurement.
    pub(super) hog: bool,
    pub(super) targets: Targets,
}

const fn targets(best: f64, blocking: f64, alike: f64, cpu: f64) -> Targets {
    Targets { best: Some(best), blocking: Some(blocking), alike: Some(alike), cpu: Some(cpu), tail: Some(1.0) }
}

const ROUTED: &str = "hipersockets-routed";
const IUCV: &str = "hipersockets-routed-iucv";
const VETH: &str = "veth-routed";
const SERVER: &str = "server";
const CLIENT: &str = "client";
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
/// The level in which io_uring serves the kernel's sockets instead of epoll.
pub(super) const IO_URING: &str = "io-uring";
/// The level of siga's network without large segments.
pub(super) const FRAMES: &str = "frames";
const APPLICATIONS: Targets = Targets { best: Some(1.5), cpu: Some(1.0), tail: Some(1.0), ..NOTHING };
const CROWDED: Targets = Targets { best: Some(1.0), tail: Some(1.0), ..NOTHING };
/// siga's path has a router and the kernel's has none, so these rows have no targets.
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

/// One way of measuring a path: its settings and the processes' placement.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) path: &'static str,
    pub(super) processes: bool,
    pub(super) wait: &'static str,
    pub(super) level: String,
    pub(super) write: &'static str,
    pub(super) mtu: u32,
    pub(super) placement: Placement,
    /// The side that closes a CRR connection first.
    pub(super) close: &'static str,
}

/// The CPUs of client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// The scheduler places both ends.
    Scheduler,
    /// Both ends run on one CPU, where siga's processes co-locate themselves.
    OneCpu,
    /// Each end has a CPU of its own.
    Apart,
}

impl Mode {
    pub(super) fn name(&self) -> String {
        let layout = if self.processes { "processes" } else { "epoll" };
        let Self { path, wait, write, mtu, .. } = self;
        match *path {
            VETH => {
                let place = match self.placement {
                    Placement::Scheduler => "",
                    Placement::OneCpu => ", on one CPU",
                    Placement::Apart => ", on two CPUs",
                };
                let close = if self.close == CLIENT { ", the client closes first" } else { "" };
                format!("{layout}, {wait}, {}, MTU {mtu}, writes of {write}{close}{place}", self.level_name())
            }
            _ => format!("{path}, {wait}"),
        }
    }

    /// Returns the level's name. A level that is a file has the name of the file without its extension.
    pub(super) fn level_name(&self) -> String {
        Path::new(&self.level).file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether the mode is one of the kernel's path with a router.
    pub(super) fn is_routed(&self) -> bool {
        self.path == VETH
    }

    /// Whether the mode waits with blocking sockets.
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

    /// Whether the kernel's path has a router, as siga's path does.
    pub(super) fn is_routed(&self) -> bool {
        self.kernel == VETH
    }

    /// Returns the level that makes the fastest modes of the kernel's routed path faster in some rows of this kind.
    pub(super) fn further_level(&self) -> &'static str {
        if self.streams() { "threaded-napi" } else { IO_URING }
    }

    /// Whether siga's fastest waiting policy is compared with the kernel's best mode. True beside a busy process, and if more
    /// processes have work than there are CPUs. In other rows, `poll` is compared.
    pub(super) fn own_best_counts(&self) -> bool {
        self.hog || self.path == IUCV
    }

    /// Returns siga's modes, one per waiting policy; `poll` is first and `block` is last.
    pub(super) fn own_modes(&self, frames: &str) -> Vec<Mode> {
        let level = if self.level == FRAMES { frames } else { self.level };
        let waits: &[&'static str] = if self.is_routed() { &["poll", "adaptive", "block"] } else { &["poll", "block"] };
        let mode = |&wait| Mode { wait, mtu: self.mtu, ..Mode::of(self.path, level) };
        waits.iter().map(mode).collect()
    }

    /// Returns the kernel's modes: every combination of process layout, waiting policy, closing side (CRR), write size, level and
    /// MTU. Levels and MTUs vary innermost, because one run of siga can measure them as lists.
    pub(super) fn kernel_modes(&self, levels: &[String]) -> Vec<Mode> {
        if !self.is_routed() {
            return ["block", "poll"].map(|wait| Mode { wait, ..Mode::of(self.kernel, "cubic") }).to_vec();
        }
        let mtus: &[u32] = if self.kernel_is_free { &[MTU, ETHERNET] } else { std::slice::from_ref(&self.mtu) };
        let large = self.streams() && self.kernel_is_free;
        let writes: &[&'static str] = if large { &["128k", "512k"] } else { &["128k"] };
        // BIG TCP does not affect writes that are smaller than a BIG TCP segment.
        let levels = &levels[..if large { levels.len() } else { 2 }];
        let closes: &[&'static str] = if self.workload.starts_with("crr") { &[SERVER, CLIENT] } else { &[SERVER] };
        let mut modes = Vec::new();
        for processes in [false, true] {
            for wait in ["block", "poll"] {
                for &close in closes {
                    for write in writes {
                        for level in levels {
                            let mode = |&mtu| Mode { processes, wait, write, mtu, close, ..Mode::of(VETH, level) };
                            modes.extend(mtus.iter().map(mode));
                        }
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
        Self {
            path,
            processes: false,
            wait: "block",
            level,
            write: "128k",
            mtu: MTU,
            placement: Placement::Scheduler,
            close: SERVER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    /// The expected rows: path, workload, pairs, MTU, frames, and the modes that the kernel may use. Then the targets: rate
    /// compared with the kernel's best mode, rate compared with its blocking sockets, `block` compared with `block`, CPU time,
    /// and p99 and p99.9.
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
        let counts = [0, 3, 5, 7, 20].map(|row| modes(&ROWS[row]));
        assert_eq!(counts, [16, 32, 64, 8, 2]);
    }
}
