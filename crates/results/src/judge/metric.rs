//! The figures that are compared, with their names and units.

use siga_plan::command::figure::{Better, FigureKey};
use siga_plan::work::Work;
use siga_plan::workload::Unit;

/// A figure that is compared. Less is better for every judged figure except rates and figures of commands that say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Units per second.
    Rate,
    /// Median latency of a trial, in microseconds.
    P50,
    /// 99th percentile of a trial's latencies, in microseconds.
    P99,
    /// Megabytes per second of the streams beside RR.
    Streams,
    /// Megabytes per second from client to server, of a workload that streams in both directions at once.
    ToServer,
    /// Megabytes per second from server to client, of such a workload.
    ToClient,
    /// Megabytes per second that the server of a stream of datagrams sent. The rate is what was delivered.
    Sent,
    /// Fraction of the sent datagrams that were lost.
    Loss,
    /// Interarrival jitter of streams of datagrams, in microseconds.
    Jitter,
    /// Internal throughput rate (ITR): units per second of CPU time that the whole system used.
    Itr,
    /// CPU milliseconds per unit (transaction or megabyte) that one part of the system used in one mode.
    Cpu(Part, Mode),
    /// A figure that a command printed, or a figure per unit of its work.
    Figure(FigureKey),
}

/// The part of the system that used the CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The whole system.
    Total,
    /// The client: the side that connects.
    Client,
    /// The router.
    Router,
    /// The server: the side that accepts connections.
    Server,
    /// Everything else that ran.
    Other,
}

/// The mode in which CPU time was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// All modes together.
    All,
    /// User mode (virtual time).
    Virtual,
    /// CP time: kernel mode and, for a guest, the code that copies frames between rings (data mover).
    Cp,
}

impl Metric {
    /// All metrics that siga measures itself, in the order of tables and files. Figures of commands follow them.
    pub const ALL: &[Self] = &[
        Self::Rate,
        Self::P50,
        Self::P99,
        Self::Streams,
        Self::ToServer,
        Self::ToClient,
        Self::Sent,
        Self::Loss,
        Self::Jitter,
        Self::Itr,
        Self::Cpu(Part::Total, Mode::All),
        Self::Cpu(Part::Total, Mode::Virtual),
        Self::Cpu(Part::Total, Mode::Cp),
        Self::Cpu(Part::Client, Mode::All),
        Self::Cpu(Part::Client, Mode::Virtual),
        Self::Cpu(Part::Client, Mode::Cp),
        Self::Cpu(Part::Router, Mode::All),
        Self::Cpu(Part::Router, Mode::Virtual),
        Self::Cpu(Part::Router, Mode::Cp),
        Self::Cpu(Part::Server, Mode::All),
        Self::Cpu(Part::Server, Mode::Virtual),
        Self::Cpu(Part::Server, Mode::Cp),
        Self::Cpu(Part::Other, Mode::All),
        Self::Cpu(Part::Other, Mode::Virtual),
        Self::Cpu(Part::Other, Mode::Cp),
    ];

    /// CPU time of the whole system.
    pub const TOTAL: Self = Self::Cpu(Part::Total, Mode::All);

    /// The main metrics of siga's own: those that the question of a comparison is about. Figures of commands are main metrics, too.
    /// All other metrics are exploratory.
    pub const MAIN: &[Self] = &[Self::Rate, Self::P99, Self::Streams, Self::TOTAL];

    /// Returns the main metrics of siga's own that a workload has.
    pub fn main_of(workload: Work) -> impl Iterator<Item = Self> {
        Self::MAIN.iter().copied().filter(move |metric| *metric != Self::Streams || workload.beside() > 0)
    }

    /// Returns true for a main metric. The main figures of a comparison are judged first; the exploratory ones are adjusted apart.
    pub fn is_main(self) -> bool {
        Self::MAIN.contains(&self) || matches!(self, Self::Figure(_))
    }

    /// Returns true if the metric gets verdicts of its own. The others are figures of the trials only: a ratio of losses says nothing
    /// when one of them is zero, and the internal throughput rate has the verdict of the CPU time, of which it is the inverse.
    fn is_judged(self) -> bool {
        !matches!(self, Self::Sent | Self::Loss | Self::Jitter | Self::Itr)
    }

    /// Returns the role of the metric in a comparison: `main`, `exploratory`, or `derived` from another metric.
    pub fn role(self) -> &'static str {
        match (self == Self::Itr, self.is_main()) {
            (true, _) => "derived",
            (false, true) => "main",
            (false, false) => "exploratory",
        }
    }

    /// Returns the metrics of siga's own that get verdicts, in the order of tables and files.
    pub fn judged() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|metric| metric.is_judged())
    }

    /// Returns the part of the system whose CPU time this metric is. Returns `None` for all metrics that are no CPU times.
    pub fn part(self) -> Option<Part> {
        if let Self::Cpu(part, _) = self { Some(part) } else { None }
    }

    /// Returns the metric of which this metric is a part: for a CPU time in one mode, the CPU time in all modes of the same part
    /// of the system. Returns `None` for all other metrics.
    pub(super) fn parent(self) -> Option<Self> {
        if let Self::Cpu(part, Mode::Virtual | Mode::Cp) = self { Some(Self::Cpu(part, Mode::All)) } else { None }
    }

    /// Returns the name in tables and files: `rate`, `p99`, `cpu_total`, `router_virtual`.
    pub fn name(&self) -> &str {
        match self {
            Self::Figure(key) => key.name.as_str(),
            Self::Rate => "rate",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Streams => "streams_rate",
            Self::ToServer => "to_server_rate",
            Self::ToClient => "to_client_rate",
            Self::Sent => "sent_rate",
            Self::Loss => "loss",
            Self::Jitter => "jitter",
            Self::Itr => "itr",
            Self::Cpu(Part::Total, Mode::All) => "cpu_total",
            Self::Cpu(Part::Total, Mode::Virtual) => "cpu_virtual",
            Self::Cpu(Part::Total, Mode::Cp) => "cpu_cp",
            Self::Cpu(Part::Client, Mode::All) => "client_cpu",
            Self::Cpu(Part::Client, Mode::Virtual) => "client_virtual",
            Self::Cpu(Part::Client, Mode::Cp) => "client_cp",
            Self::Cpu(Part::Router, Mode::All) => "router_cpu",
            Self::Cpu(Part::Router, Mode::Virtual) => "router_virtual",
            Self::Cpu(Part::Router, Mode::Cp) => "router_cp",
            Self::Cpu(Part::Server, Mode::All) => "server_cpu",
            Self::Cpu(Part::Server, Mode::Virtual) => "server_virtual",
            Self::Cpu(Part::Server, Mode::Cp) => "server_cp",
            Self::Cpu(Part::Other, Mode::All) => "other_cpu",
            Self::Cpu(Part::Other, Mode::Virtual) => "other_virtual",
            Self::Cpu(Part::Other, Mode::Cp) => "other_cp",
        }
    }

    /// Returns the name of the unit in which reports show the metric's values: `trans/sec`, `us`, `ms/MB`.
    pub fn unit(&self, workload: Work) -> &str {
        match self {
            Self::Figure(key) => key.unit.as_str(),
            Self::Rate => workload.unit().rate_name(),
            Self::Streams | Self::ToServer | Self::ToClient | Self::Sent => Unit::Megabyte.rate_name(),
            Self::P50 | Self::P99 | Self::Jitter => "us",
            Self::Loss => "fraction",
            Self::Itr => workload.cpu_unit().itr_name(),
            Self::Cpu(..) => workload.cpu_unit().cpu_name(),
        }
    }

    /// Returns the factor that converts the metric's values to the unit of [`Self::unit`].
    pub fn scale(self, workload: Work) -> f64 {
        if self.part().is_some() { workload.cpu_unit().cpu_scale() } else { 1.0 }
    }

    /// Returns true if the metric's value depends on the accounting method. This is so for all CPU times except those of the
    /// whole system in all modes together.
    pub fn depends_on_method(self) -> bool {
        self.part().is_some() && self != Self::TOTAL
    }

    /// Returns true if a higher value is better.
    pub fn more_is_better(self) -> bool {
        match self {
            Self::Rate | Self::Streams | Self::ToServer | Self::ToClient | Self::Itr => true,
            Self::Figure(key) => key.better == Better::Higher,
            Self::P50 | Self::P99 | Self::Sent | Self::Loss | Self::Jitter | Self::Cpu(..) => false,
        }
    }
}
