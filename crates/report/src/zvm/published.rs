//! The tables that z/VM's performance reports published: 18 tables that compare TCP/IP level 420 with 430, and two about
//! channel-to-channel devices.
//!
//! The tables are used to check siga's arithmetic. `reduce` computes every numeric cell from raw counters in printed precision,
//! and the result is compared with the printed cell. The counters were never published; they were inferred from the tables (see
//! `published/README.md`). So if the cells agree, the arithmetic is the same, but the published measurement is not confirmed.

use crate::Format;
use data::Table;
use siga_model::error::{Error, Result};
use siga_plan::matrix::Cell;
use siga_plan::path::guest::GuestPath;
use siga_plan::path::guest::Medium;
use siga_plan::run_id::RunId;
use siga_plan::workload::Unit;

pub(crate) use layout::align;

mod data;
mod layout;

/// Returns one of the published tables. If `table` is `None`, returns the list of all tables.
///
/// `table` is `1` to `18` for a table of the report on levels 420 and 430. It is `vctc-1` or `vctc-2` for a table of the report
/// on channel-to-channel devices. It can also be a run identifier such as `420hss12`: then the result has only this run, the run at
/// the other level, and their ratios.
///
/// # Errors
/// Returns an error of kind `Usage` if there is no such table or run.
pub fn render(table: Option<&str>, format: Format) -> Result<String> {
    let tables = data::tables()?;
    let Some(id) = table else {
        return Ok(layout::list(&tables, format));
    };
    match tables.iter().find(|table| table.id == id) {
        Some(table) => Ok(layout::table(table, format)),
        None if is_like_a_run(id) => Ok(layout::table(&of_run(id.parse()?, &tables)?, format)),
        None => Err(unknown(id, &tables)),
    }
}

/// Returns true if a text is longer than the number of a table and begins like a run identifier, with a digit.
fn is_like_a_run(text: &str) -> bool {
    text.len() > 2 && text.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns the part of a table that has the run with this identifier.
fn of_run(id: RunId, tables: &[Table]) -> Result<Table> {
    let is_here = |runid: &str| runid.parse::<RunId>().is_ok_and(|printed| printed.of_cell() == id.of_cell());
    for table in tables {
        for pair in &table.pairs {
            let Some(run) = [&pair.base, &pair.changed].into_iter().find(|run| is_here(&run.runid)) else { continue };
            if id.trial().is_some() && id.to_string() != run.runid {
                return Err(Error::usage(format!("z/VM's report did not print the trial {id}"))
                    .hint(format!("of the trials of this cell, it printed {}", run.runid)));
            }
            return Ok(table.only(|other| other.base.runid == pair.base.runid));
        }
    }
    Err(Error::usage(format!("z/VM's report printed no run {id}"))
        .hint("`siga published` lists the tables; each of them prints the identifiers of its runs"))
}

/// A published table with its regenerated figures: the figures that `reduce` computes from the raw counters.
#[derive(Debug)]
pub(crate) struct PublishedTable {
    /// The number and the title of the table as printed.
    pub(crate) heading: String,
    /// The name of the table on the command line.
    pub(crate) id: String,
    /// The title of the report that printed the table.
    pub(crate) report: &'static str,
    /// The connectivity, workload and MTU that the table is about.
    measured: [String; 3],
    /// Number of numeric cells, and how many of them have a regenerated figure that is exactly the printed one.
    pub(crate) cells: (usize, usize),
    /// The table as text in the layout of its report.
    pub(crate) text: String,
    /// The pairs of runs that the table compares. Each pair has the number of clients, the level of the base run and the level of
    /// the changed run.
    pub(crate) pairs: Vec<(u32, String, String)>,
    /// The rows of the table. Each row has a name and, for each pair of runs, three figures: base run, changed run, ratio.
    pub(crate) metrics: Vec<(String, Vec<[f64; 3]>)>,
}

impl PublishedTable {
    /// Returns the figures of a row (base, changed, ratio) for the pair of runs with this number of clients. Returns `None` if
    /// there is no such row or pair.
    pub(crate) fn figures(&self, metric: &str, clients: u32) -> Option<[f64; 3]> {
        let at = self.pairs.iter().position(|(count, ..)| *count == clients)?;
        self.metrics.iter().find(|(name, _)| name == metric)?.1.get(at).copied()
    }

    /// Returns the connectivity that the table is about.
    pub(crate) fn connectivity(&self) -> &str {
        &self.measured[0]
    }

    /// Returns the unit that the table's rates count: megabytes for streams, otherwise transactions.
    pub(crate) fn unit(&self) -> Unit {
        let is_stream = self.metrics.iter().any(|(name, _)| *name == metric("rate", Unit::Megabyte));
        if is_stream { Unit::Megabyte } else { Unit::Transaction }
    }

    /// Returns true if the table is about the connectivity, workload and MTU of this cell.
    pub(crate) fn shows(&self, cell: &Cell) -> bool {
        let Some(connectivity) = connectivity_of(cell) else { return false };
        let workload = match cell.workload.to_string().as_str() {
            "strg-20m" => "Streaming",
            "crr-64-8k" => "CRR",
            "rr-200-1000" => "RR",
            _ => return false,
        };
        let mtu = cell.mtu.map(|mtu| mtu.to_string());
        let own = [Some(connectivity), Some(workload), mtu.as_deref()];
        own.iter().zip(&self.measured).all(|(own, printed)| *own == Some(printed.as_str()))
    }
}

/// Returns the connectivity of a cell as the published tables name it; `None` if they do not have it.
pub(crate) fn connectivity_of(cell: &Cell) -> Option<&'static str> {
    match cell.path.parse::<GuestPath>() {
        // In all published tables, a router is between the two ends. So a path without a router corresponds to no table.
        Ok(GuestPath { medium: Medium::Hipersockets, routed: true, .. }) => Some("HiperSockets"),
        Ok(GuestPath { medium: Medium::Vctc, routed: true, .. }) => Some("virtual CTC"),
        Ok(GuestPath { medium: Medium::GuestlanHipers, routed: true, .. }) => Some("Guest LAN type HiperSockets"),
        Ok(GuestPath { medium: Medium::Qdio1Gbe, routed: true, .. }) => Some("OSA-Express QDIO GbE"),
        Ok(GuestPath { medium: Medium::Claw, routed: true, .. }) => Some("CLAW"),
        Ok(GuestPath { .. }) | Err(_) => None,
    }
}

/// Returns the complete name of a row in a table with this unit. If the unit is the megabyte, `rate` becomes `MB/sec` and
/// `tcpip2_cpu` becomes `tcpip2_cpu_msec/MB`. The name of a utilisation stays unchanged, because a utilisation does not depend on
/// the unit.
pub(crate) fn metric(row: &str, unit: Unit) -> String {
    match row {
        "rate" => unit.rate_name().to_owned(),
        _ if row.ends_with("_util") => row.to_owned(),
        _ => format!("{row}_msec/{}", unit.name()),
    }
}

/// Returns all published tables. Returns an error of kind `Incomplete` if the data files are inconsistent.
pub(crate) fn shown() -> Result<Vec<PublishedTable>> {
    data::tables()?.iter().map(shown_table).collect()
}

fn shown_table(table: &Table) -> Result<PublishedTable> {
    let number = |cell: &data::Cell| -> Result<f64> {
        cell.regenerated.parse().map_err(|_| Error::incomplete(format!("table {}: `{}`", table.id, cell.regenerated)))
    };
    let row = |metric: &data::Metric| -> Result<_> {
        let triples = metric.triples.iter().map(|triple| {
            let [base, changed, ratio] = triple.cells();
            Ok([number(base)?, number(changed)?, number(ratio)?])
        });
        Ok((metric.name.clone(), triples.collect::<Result<Vec<_>>>()?))
    };
    let pair = |pair: &data::Pair| (pair.clients, pair.base.level.clone(), pair.changed.level.clone());
    let data::Count { cells, regenerated } = table.count();
    Ok(PublishedTable {
        heading: layout::heading(table),
        id: table.id.clone(),
        report: table.report.title(),
        measured: table.measured.clone(),
        cells: (cells, regenerated),
        text: layout::table(table, Format::Text),
        pairs: table.pairs.iter().map(pair).collect(),
        metrics: table.metrics().map(row).collect::<Result<_>>()?,
    })
}

/// The data files of the tables: name, description of the content, and content.
pub(crate) const FILES: [(&str, &str, &str); 3] = [
    ("published.csv", "every printed value", data::PRINTED),
    ("raw_runs.csv", "counters of the runs, which were read from or inferred from the tables", data::RAW_RUNS),
    ("raw_transfers.csv", "file transfers of the other report", data::RAW_TRANSFERS),
];

fn unknown(id: &str, tables: &[Table]) -> Error {
    let ids: Vec<_> = tables.iter().map(|table| table.id.as_str()).collect();
    Error::usage(format!("there is no published table `{id}`"))
        .hint(format!("tables: {}; `siga published` lists them with their titles", ids.join(", ")))
}

#[cfg(test)]
mod tests {
    mod rules;

    use super::*;
    use data::{Count, Report};
    use serde_json::Value;
    use siga_model::error::ErrorKind;

    fn rendered(table: Option<&str>, format: Format) -> String {
        render(table, format).unwrap()
    }

    fn json(table: Option<&str>) -> Value {
        let value: Value = serde_json::from_str(&rendered(table, Format::Json)).unwrap();
        assert_eq!(value["schema"], "siga/published/1");
        value
    }

    #[test]
    fn every_cell_of_every_table_regenerates() {
        let tables = data::tables().unwrap();
        let differences: Vec<_> = tables.iter().flat_map(Table::differences).collect();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        let count = |report| -> Count { tables.iter().filter(|t| t.report == report).map(Table::count).sum() };
        assert_eq!(count(Report::Stack), Count { cells: 2_250, regenerated: 2_250 });
        assert_eq!(count(Report::Vctc), Count { cells: 30, regenerated: 30 });
    }

    #[test]
    fn no_printed_cell_is_left_out() {
        let printed = data::Printed::all().unwrap();
        for (report, cells) in [(Report::Stack, 2_250), (Report::Vctc, 30)] {
            let rows = printed.iter().filter(|row| row.report() == report);
            let numeric: usize = rows.map(|row| 1 + usize::from(row.ratio.is_some())).sum();
            assert_eq!(numeric, cells, "{report:?}");
        }
    }

    #[test]
    fn a_cell_that_differs_is_named_and_counted() {
        let mut tables = data::tables().unwrap();
        let table = &mut tables[4];
        table.blocks[1][0].triples[2].changed.printed = "26.37".into();
        assert_eq!(table.count(), Count { cells: 117, regenerated: 116 });
        let place = "table 5, 10 clients, 311gssa3, tcpip2_tot_cpu_util";
        assert_eq!(table.differences(), [format!("{place}: printed 26.37, regenerated 26.36")]);
        let text = layout::table(table, Format::Text);
        assert!(text.contains("116 of 117 cells") && text.contains(place), "{text}");
        assert!(layout::list(&tables, Format::Text).contains("2,249 of 2,250"));
    }

    #[test]
    fn table_5_has_the_layout_of_the_report() {
        let text = rendered(Some("5"), Format::Text);
        let expected = "\
Table 5. Guest LAN HIPER - Streaming 1500

Number of clients          01        01     01        05        05     05        10        10     10
runid                420gss13  311gss12         420gss52  311gss53         420gssa2  311gssa3
TCPIP level               420       430  ratio       420       430  ratio       420       430  ratio

MB/sec                  23.66     39.31   1.66     24.82     44.11   1.78     23.77     40.44   1.70
total_cpu_util          83.90     80.30   0.96     93.80     94.60   1.01     93.10     93.70   1.01

tcpip2_tot_cpu_util     47.88     26.97   0.56     48.48     28.48   0.59     45.15     26.36   0.58
tcpip3_tot_cpu_util     65.45     62.42   0.95     71.52     72.73   1.02     69.09     70.00   1.01

cpu_msec/MB             70.92     40.85   0.58     75.58     42.89   0.57     78.33     46.34   0.59
emul_msec/MB            49.62     23.00   0.46     53.02     24.80   0.47     55.11     27.25   0.49
cp_msec/MB              21.30     17.86   0.84     22.56     18.09   0.80     23.22     19.09   0.82

tcpip2_cpu_msec/MB      20.24      6.86   0.34     19.53      6.46   0.33     19.00      6.52   0.34
tcpip2_vcpu_msec/MB     15.63      4.09   0.26     15.26      3.98   0.26     15.30      4.05   0.26
tcpip2_ccpu_msec/MB      4.61      2.78   0.60      4.27      2.47   0.58      3.70      2.47   0.67

tcpip3_cpu_msec/MB      27.66     15.88   0.57     28.81     16.49   0.57     29.07     17.31   0.60
tcpip3_vcpu_msec/MB     18.70      7.86   0.42     19.29      8.38   0.43     19.38      8.84   0.46
tcpip3_ccpu_msec/MB      8.97      8.02   0.89      9.52      8.11   0.85      9.69      8.47   0.87

Note: 2064-109; LPAR with 2 dedicated processors

siga recomputed 117 of 117 cells from counters that were read from or inferred from the table itself.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_other_reports_columns_are_headed_by_what_differs() {
        let text = rendered(Some("vctc-1"), Format::Text);
        let expected = "\
Table 1. VCTC Performance Improvement

VM62480                   no       yes  ratio
runid               GLLVCTC7  GLLVCTC6

elapsed time (sec)     0.850     0.517   0.61
Megabytes/sec          11.76     19.34   1.64
CP CPU time             0.59      0.28   0.47
virtual CPU time        0.37      0.36   0.97
total CPU time          0.96      0.64   0.67

Note: binary FTP get of a 10M file to /dev/null; ";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn the_list_names_every_table_and_explains_agreement() {
        let text = rendered(None, Format::Text);
        for part in [
            "TCP/IP Stack Performance Improvements",
            "18     VCTC - RR 1500",
            "vctc-2  Comparison of Real ESCON CTC to Virtual CTC",
            "2,250 of 2,250",
            "30 of 30",
            "Agreement shows that siga's arithmetic is that of the reports",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let list = json(None);
        assert_eq!(list["tables"].as_array().unwrap().len(), 20);
        assert_eq!(list["cells"], 2_280);
        assert_eq!(list["regenerated"], 2_280);
    }

    #[test]
    fn json_has_one_row_a_value() {
        let table = json(Some("5"));
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 13 * 6);
        let row = &rows[1];
        assert_eq!((row["metric"].as_str(), row["clients"].as_u64()), (Some("MB/sec"), Some(1)));
        assert_eq!((row["level"].as_str(), row["runid"].as_str()), (Some("430"), Some("311gss12")));
        assert_eq!((row["printed"].as_f64(), row["regenerated"].as_f64()), (Some(39.31), Some(39.31)));
        assert_eq!((row["ratio"].as_f64(), row["ratio_regenerated"].as_f64()), (Some(1.66), Some(1.66)));
        assert!(rows[0]["ratio"].is_null(), "the base run has no ratio");
    }

    #[test]
    fn csv_is_rectangular_and_complete() {
        let mut values = 0;
        for table in data::tables().unwrap() {
            let text = rendered(Some(&table.id), Format::Csv);
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            for record in reader.records() {
                let record = record.unwrap();
                assert_eq!((record.len(), &record[0]), (12, table.id.as_str()));
                values += 1;
            }
        }
        assert_eq!(values, 1_520);
        let list = rendered(None, Format::Csv);
        assert_eq!(csv::Reader::from_reader(list.as_bytes()).records().count(), 20);
    }

    #[test]
    fn markdown_rows_have_the_columns_of_their_head() {
        for (table, columns) in [(None, 4), (Some("1"), 10), (Some("vctc-2"), 4)] {
            let text = rendered(table, Format::Md);
            let mut rows = text.lines().filter(|line| line.starts_with('|')).peekable();
            assert!(rows.peek().is_some());
            for row in rows {
                assert_eq!(row.matches('|').count(), columns + 1, "{row}");
            }
        }
    }

    #[test]
    fn a_run_identifier_selects_the_columns_of_its_pair() {
        for id in ["420gss52", "311gss53", "420gss5"] {
            let text = rendered(Some(id), Format::Text);
            let start = "\
Table 5. Guest LAN HIPER - Streaming 1500

Number of clients          05        05     05
runid                420gss52  311gss53
TCPIP level               420       430  ratio

MB/sec                  24.82     44.11   1.78
";
            assert!(text.starts_with(start), "{text}");
            assert_eq!(json(Some(id))["rows"].as_array().unwrap().len(), 13 * 2);
        }
        for (id, part) in [
            ("420gss51", "it printed 420gss52"),
            ("420hcb1", "printed no run 420hcb1"),
            ("430gss52", "it must begin with the level"),
            ("420gss", "the number of clients"),
        ] {
            let error = render(Some(id), Format::Text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn an_unknown_table_is_a_usage_error_that_names_the_known_ones() {
        for id in ["0", "19", "vctc-3", "05", ""] {
            let error = render(Some(id), Format::Text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("17, 18, vctc-1, vctc-2"), "{error}");
        }
    }
}
