//! The published tables as data: the printed cells, and the raw counters that were read from them or inferred from them.
//!
//! `reduce` computes every cell from the raw counters (`raw_runs.csv`, `raw_transfers.csv`), and the result is compared with the
//! printed cell. `published.csv` has the printed cells. It is used only for this comparison, and for titles and notes. The module
//! `layout` prints the tables.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use siga_model::error::{Error, Result};
use siga_plan::workload::Unit;
use siga_results::reduce::{
    self, Blocks, Component, CpuTime, Exact, Figure, RawCounters, Transfer, ratio, reduce_transfer,
};
use std::collections::HashMap;

pub(super) const PRINTED: &str = include_str!("../../../../../published/published.csv");
pub(super) const RAW_RUNS: &str = include_str!("../../../../../published/raw_runs.csv");
pub(super) const RAW_TRANSFERS: &str = include_str!("../../../../../published/raw_transfers.csv");

/// Number of processors of the partition in which the runs of the stack report ([`Report::Stack`]) were measured.
const STACK_PROCESSORS: u32 = 2;

/// The report in which a table was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The stack report, which compares two levels of the TCP/IP stack over five connectivity types.
    Stack,
    /// The report on virtual channel-to-channel devices, which compares them before and after an improvement, and with real
    /// devices.
    Vctc,
}

impl Report {
    /// Returns the title of the report.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Stack => "TCP/IP Stack Performance Improvements",
            Self::Vctc => "Virtual Channel-to-Channel Performance",
        }
    }
}

/// A published table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// The name of the table on the command line: `5`, `vctc-1`.
    pub(super) id: String,
    /// The report in which the table was printed.
    pub(super) report: Report,
    /// The title of the table as printed.
    pub(super) title: String,
    /// The connectivity, workload and MTU that the table is about.
    pub(super) measured: [String; 3],
    /// The name of the property in which the two runs of a pair differ, such as `TCPIP level`. It is also the name of the header
    /// row with this property.
    pub(super) attribute: String,
    /// The note that is printed below the table.
    pub(super) note: String,
    /// The pairs of runs that the table compares, from left to right. Each pair has three columns: base run, changed run, ratio.
    pub(super) pairs: Vec<Pair>,
    /// The blocks of rows from top to bottom.
    pub(super) blocks: Vec<Vec<Metric>>,
}

/// Two runs that a table compares.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    /// The number of clients, which is also the number of servers.
    pub(super) clients: u32,
    /// The base run. Its values are the denominators of the ratios.
    pub(super) base: Run,
    /// The run that is compared with the base run.
    pub(super) changed: Run,
}

/// A run of a published report.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// The run's value of the property [`Table::attribute`], such as `420`.
    pub(super) level: String,
    /// The name of the run in the report.
    pub(super) runid: String,
}

/// One row of a table.
#[derive(Debug, Clone)]
pub(super) struct Metric {
    /// The name of the row.
    pub(super) name: String,
    /// The unit of the row's values.
    pub(super) unit: String,
    /// The cells of the row, three for each pair of runs.
    pub(super) triples: Vec<Triple>,
}

/// The three cells of a row that belong to one pair of runs.
#[derive(Debug, Clone)]
pub(super) struct Triple {
    /// The value of the base run.
    pub(super) base: Cell,
    /// The value of the changed run.
    pub(super) changed: Cell,
    /// The value of the changed run divided by the value of the base run. Both are rounded as printed before the division.
    pub(super) ratio: Cell,
}

/// One numeric cell, with as many decimals as in the printed table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    /// The text of the cell as printed.
    pub(super) printed: String,
    /// The text of the cell as computed from the raw counters.
    pub(super) regenerated: String,
}

impl Cell {
    /// Returns true if the computed text is exactly the printed text, including trailing zeros.
    pub(super) fn agrees(&self) -> bool {
        self.printed == self.regenerated
    }
}

impl Triple {
    /// Returns the cells from left to right.
    pub(super) fn cells(&self) -> [&Cell; 3] {
        [&self.base, &self.changed, &self.ratio]
    }
}

impl Metric {
    /// Returns all cells of the row from left to right.
    pub(super) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.triples.iter().flat_map(Triple::cells)
    }
}

impl Table {
    /// Returns the same table with only the pairs of runs that `is_kept` selects.
    pub(super) fn only(&self, is_kept: impl Fn(&Pair) -> bool) -> Self {
        let kept: Vec<bool> = self.pairs.iter().map(is_kept).collect();
        let mut table = self.clone();
        let mut flags = kept.iter();
        table.pairs.retain(|_| flags.next() == Some(&true));
        for metric in table.blocks.iter_mut().flatten() {
            let mut flags = kept.iter();
            metric.triples.retain(|_| flags.next() == Some(&true));
        }
        table
    }

    /// Returns all rows from top to bottom.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.blocks.iter().flatten()
    }

    /// Counts the numeric cells, and those whose computed text is exactly the printed text.
    pub(super) fn count(&self) -> Count {
        let agreeing = self.metrics().flat_map(Metric::cells).map(Cell::agrees);
        agreeing.fold(Count::default(), |count, agrees| Count {
            cells: count.cells + 1,
            regenerated: count.regenerated + usize::from(agrees),
        })
    }

    /// Returns one line for each cell whose computed text differs from the printed text.
    pub(super) fn differences(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for metric in self.metrics() {
            for (pair, triple) in self.pairs.iter().zip(&metric.triples) {
                let columns = [pair.base.runid.as_str(), pair.changed.runid.as_str(), "ratio"];
                for (column, cell) in columns.into_iter().zip(triple.cells()).filter(|(_, cell)| !cell.agrees()) {
                    let Cell { printed, regenerated } = cell;
                    let place = format!("table {}, {} clients, {column}, {}", self.id, pair.clients, metric.name);
                    lines.push(format!("{place}: printed {printed}, regenerated {regenerated}"));
                }
            }
        }
        lines
    }
}

/// A count of the numeric cells of one or more tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    /// The number of numeric cells, ratios included.
    pub(super) cells: usize,
    /// The number of cells that regenerate: for these, the text computed from the raw counters is exactly the printed text.
    pub(super) regenerated: usize,
}

impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, count| Self {
            cells: sum.cells + count.cells,
            regenerated: sum.regenerated + count.regenerated,
        })
    }
}

/// Returns all tables in the order of the reports. Returns an error of kind `Incomplete` if the data files are inconsistent. The
/// files are part of the program and are tested, so users never see this error.
pub(super) fn tables() -> Result<Vec<Table>> {
    let printed = Printed::all()?;
    let by_place: Printings<'_> = printed.iter().map(|row| (row.place(), row)).collect();
    let mut columns = Vec::new();
    for run in RawRun::all()? {
        columns.push(run.column()?);
    }
    for transfer in RawTransfer::all()? {
        columns.push(transfer.column()?);
    }
    columns.chunk_by(|a, b| a.table == b.table).map(|columns| assemble(columns, &by_place)).collect()
}

/// The key of a printed value: table, number of clients, run and metric.
type Place<'a> = (String, u32, &'a str, &'a str);
type Printings<'a> = HashMap<Place<'a>, &'a Printed>;

/// One column of a table, which was computed from raw counters, with the contents of its header rows.
struct Column {
    report: Report,
    table: String,
    attribute: String,
    clients: u32,
    run: Run,
    blocks: Blocks<Exact>,
}

impl Column {
    fn figure(&self, metric: &str) -> Result<&Figure<Exact>> {
        let missing = || inconsistent(format!("run {} lacks {metric}", self.run.runid));
        self.blocks.iter().flatten().find(|figure| figure.metric == metric).ok_or_else(missing)
    }

    fn printed<'a>(&self, figure: &Figure<Exact>, by_place: &Printings<'a>) -> Result<&'a Printed> {
        let Figure { metric, unit, .. } = figure;
        let place = (self.table.clone(), self.clients, self.run.runid.as_str(), metric.as_str());
        let missing =
            || inconsistent(format!("table {} lacks the {metric} (in {unit}) of run {}", self.table, self.run.runid));
        by_place.get(&place).copied().filter(|printed| printed.unit == *unit).ok_or_else(missing)
    }
}

/// Assembles a table from its columns. Columns of base runs and of changed runs alternate, and the first is a base run.
fn assemble(columns: &[Column], by_place: &Printings<'_>) -> Result<Table> {
    let (pairs, rest) = columns.as_chunks::<2>();
    let (Some([frame, _]), []) = (pairs.first(), rest) else {
        return Err(inconsistent("a table has an odd number of runs, but needs pairs of runs"));
    };
    let Some(first) = frame.blocks.iter().flatten().next() else {
        return Err(inconsistent("a table has no rows"));
    };
    let printed = frame.printed(first, by_place)?;
    let mut blocks = Vec::with_capacity(frame.blocks.len());
    for block in &frame.blocks {
        let mut metrics = Vec::with_capacity(block.len());
        for Figure { metric, unit, .. } in block {
            let triples: Result<Vec<_>> = pairs.iter().map(|pair| triple(pair, metric, by_place)).collect();
            metrics.push(Metric { name: metric.clone(), unit: unit.clone(), triples: triples? });
        }
        blocks.push(metrics);
    }
    let heads = |[base, changed]: &[Column; 2]| Pair {
        clients: base.clients,
        base: base.run.clone(),
        changed: changed.run.clone(),
    };
    Ok(Table {
        id: frame.table.clone(),
        report: frame.report,
        title: printed.title.clone(),
        measured: [&printed.connectivity, &printed.workload, &printed.mtu].map(Clone::clone),
        attribute: frame.attribute.clone(),
        note: printed.note.clone(),
        pairs: pairs.iter().map(heads).collect(),
        blocks,
    })
}

fn triple([base, changed]: &[Column; 2], metric: &str, by_place: &Printings<'_>) -> Result<Triple> {
    let cell = |printed: &str, value: Exact, places| Cell { printed: printed.into(), regenerated: value.fixed(places) };
    let (base_figure, changed_figure) = (base.figure(metric)?, changed.figure(metric)?);
    let (base_printed, changed_printed) =
        (base.printed(base_figure, by_place)?, changed.printed(changed_figure, by_place)?);
    let ratio_printed = changed_printed.ratio.as_deref().unwrap_or_default();
    let ratio = ratio(base_figure.value, changed_figure.value)
        .ok_or_else(|| inconsistent(format!("{metric} of run {} is zero", base.run.runid)))?;
    Ok(Triple {
        base: cell(&base_printed.value, base_figure.value, base_figure.places),
        changed: cell(&changed_printed.value, changed_figure.value, changed_figure.places),
        ratio: cell(ratio_printed, ratio, 2),
    })
}

/// One printed value: a line of `published.csv`. For a changed run, the line also has the ratio that is printed next to the
/// value.
#[derive(Debug, Deserialize)]
pub(super) struct Printed {
    table: String,
    pub(super) title: String,
    connectivity: String,
    workload: String,
    mtu: String,
    pub(super) clients: u32,
    pub(super) runid: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) value: String,
    pub(super) ratio: Option<String>,
    pub(super) note: String,
    source: String,
}

impl Printed {
    /// Returns all printed values in the order of the file.
    pub(super) fn all() -> Result<Vec<Self>> {
        rows(PRINTED, "published/published.csv")
    }

    /// Returns the report that contains the value. It is identified by the number at the start of `source`, the name of the file
    /// from which the value was read.
    pub(super) fn report(&self) -> Report {
        if self.source.starts_with("002") { Report::Vctc } else { Report::Stack }
    }

    /// Returns the name of the table on the command line. Both reports number their tables from 1, so the names of the second
    /// report's tables have the prefix `vctc-`.
    pub(super) fn table(&self) -> String {
        match self.report() {
            Report::Stack => self.table.clone(),
            Report::Vctc => format!("vctc-{}", self.table),
        }
    }

    fn place(&self) -> Place<'_> {
        (self.table(), self.clients, &self.runid, &self.metric)
    }
}

/// The counters of one run of the stack report: a line of `raw_runs.csv`. They were inferred from the run's column in the table.
#[derive(Debug, Deserialize)]
pub(super) struct RawRun {
    pub(super) table: String,
    pub(super) clients: u32,
    pub(super) level: String,
    pub(super) runid: String,
    pub(super) interval_s: Exact,
    rate: Exact,
    rate_unit: String,
    total_util: Exact,
    emul_util: Exact,
    cp_util: Exact,
    tcpip1_cpu_s: Option<Exact>,
    tcpip1_vcpu_s: Option<Exact>,
    tcpip1_ccpu_s: Option<Exact>,
    tcpip2_cpu_s: Option<Exact>,
    tcpip2_vcpu_s: Option<Exact>,
    tcpip2_ccpu_s: Option<Exact>,
    tcpip3_cpu_s: Option<Exact>,
    tcpip3_vcpu_s: Option<Exact>,
    tcpip3_ccpu_s: Option<Exact>,
}

impl RawRun {
    /// Returns all runs in the order of the tables.
    pub(super) fn all() -> Result<Vec<Self>> {
        rows(RAW_RUNS, "published/raw_runs.csv")
    }

    /// Returns the counters of the run in the form that `reduce` needs.
    pub(super) fn counters(&self) -> Result<RawCounters<Exact>> {
        let Self { interval_s, total_util, emul_util, cp_util, .. } = *self;
        let total = CpuTime::from_util(interval_s, STACK_PROCESSORS, total_util, emul_util, cp_util);
        let unit = match self.rate_unit.as_str() {
            "MB/sec" => Unit::Megabyte,
            "trans/sec" => Unit::Transaction,
            other => return Err(inconsistent(format!("run {}: the rate has the unknown unit `{other}`", self.runid))),
        };
        let components = [
            ("tcpip1", self.tcpip1_cpu_s, self.tcpip1_vcpu_s, self.tcpip1_ccpu_s),
            ("tcpip2", self.tcpip2_cpu_s, self.tcpip2_vcpu_s, self.tcpip2_ccpu_s),
            ("tcpip3", self.tcpip3_cpu_s, self.tcpip3_vcpu_s, self.tcpip3_ccpu_s),
        ];
        let given = components.into_iter().filter_map(|(name, cpu_s, vcpu_s, ccpu_s)| {
            let time = CpuTime { cpu_s: cpu_s?, vcpu_s: vcpu_s?, ccpu_s: ccpu_s? };
            Some(Component { name: name.into(), time })
        });
        Ok(RawCounters {
            interval_s,
            processors: STACK_PROCESSORS,
            rate: self.rate,
            unit,
            total: total.ok_or_else(|| {
                inconsistent(format!("the published data lack the CPU utilisation of run {}", self.runid))
            })?,
            components: given.collect(),
        })
    }

    fn column(self) -> Result<Column> {
        let blocks = reduce::reduce(&self.counters()?)?;
        Ok(Column {
            report: Report::Stack,
            table: self.table,
            attribute: "TCPIP level".into(),
            clients: self.clients,
            run: Run { level: self.level, runid: self.runid },
            blocks,
        })
    }
}

/// The file transfer behind one column of the report on virtual channel-to-channel devices: a line of `raw_transfers.csv`.
#[derive(Debug, Deserialize)]
struct RawTransfer {
    table: String,
    attribute: String,
    setting: String,
    runid: String,
    megabytes: Exact,
    elapsed_s: Exact,
    cp_s: Exact,
    virtual_s: Exact,
}

impl RawTransfer {
    fn all() -> Result<Vec<Self>> {
        rows(RAW_TRANSFERS, "published/raw_transfers.csv")
    }

    fn column(self) -> Result<Column> {
        let Self { megabytes, elapsed_s, cp_s, virtual_s, .. } = self;
        Ok(Column {
            report: Report::Vctc,
            table: self.table,
            attribute: self.attribute,
            clients: 1,
            run: Run { level: self.setting, runid: self.runid },
            blocks: reduce_transfer(&Transfer { megabytes, elapsed_s, cp_s, virtual_s })?,
        })
    }
}

fn rows<T: DeserializeOwned>(text: &str, file: &str) -> Result<Vec<T>> {
    csv::Reader::from_reader(text.as_bytes())
        .into_deserialize()
        .collect::<std::result::Result<_, csv::Error>>()
        .map_err(|error| inconsistent(format!("{file}: {error}")))
}

fn inconsistent(what: impl Into<String>) -> Error {
    Error::incomplete(what).at("published tables")
}
