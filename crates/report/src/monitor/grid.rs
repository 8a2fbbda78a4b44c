//! The table of a sample: one row for each process. A narrow screen has fewer columns.

use siga_model::text;
use siga_results::monitor::{NetSample, ProcessSample, Role, Sample, State};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum number of places that a name takes.
const NAME_WIDTH_MAX: usize = 28;
/// The number of columns on the widest screen.
const COLUMNS: usize = 14;
/// The titles. The first two columns are aligned to the left.
const TITLES: [&str; COLUMNS] = [
    "process",
    "role",
    "pid",
    "CPU %",
    "virtual ms",
    "CP ms",
    "wait ms",
    "packets in",
    "packets out",
    "KB in",
    "KB out",
    "ring %",
    "TCP",
    "drops",
];
/// The columns that a narrow screen lacks, in this order.
const DROPPED: [usize; 9] = [2, 1, 7, 8, 11, 6, 12, 4, 5];

/// A table of texts that fits a screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// The width of each column.
    pub widths: Vec<usize>,
    /// The titles.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// True for each column that is aligned to the left.
    pub left: Vec<bool>,
}

impl Grid {
    /// Returns the table of a sample, with the columns that fit `width`.
    pub fn of(sample: &Sample, width: usize) -> Self {
        let rows: Vec<[String; COLUMNS]> =
            sample.processes.iter().map(|process| row(process, sample.seconds)).collect();
        let widths: [usize; COLUMNS] = std::array::from_fn(|at| {
            rows.iter().map(|row| row[at].width()).chain([TITLES[at].width()]).max().unwrap_or(0)
        });
        let mut kept: Vec<usize> = (0..COLUMNS).collect();
        let fits = |kept: &[usize]| kept.iter().map(|at| widths[*at] + 2).sum::<usize>() <= width + 2;
        for dropped in DROPPED {
            if fits(&kept) {
                break;
            }
            kept.retain(|at| *at != dropped);
        }
        Self {
            widths: kept.iter().map(|at| widths[*at]).collect(),
            head: kept.iter().map(|at| TITLES[*at].to_owned()).collect(),
            rows: rows.iter().map(|row| kept.iter().map(|at| row[*at].clone()).collect()).collect(),
            left: kept.iter().map(|at| *at < 2).collect(),
        }
    }

    /// Returns the lines of the table, the titles first.
    pub fn lines(&self) -> Vec<String> {
        [&self.head].into_iter().chain(&self.rows).map(|row| self.line(row)).collect()
    }

    fn line(&self, row: &[String]) -> String {
        let field = |(at, text): (usize, &String)| {
            let gap = " ".repeat(self.widths[at].saturating_sub(text.width()));
            if self.left[at] { format!("{text}{gap}") } else { format!("{gap}{text}") }
        };
        let fields: Vec<String> = row.iter().enumerate().map(field).collect();
        fields.join("  ").trim_end().to_owned()
    }
}

fn row(process: &ProcessSample, seconds: f64) -> [String; COLUMNS] {
    let who = &process.who;
    let none = || "-".to_owned();
    let cpu = |figure: &dyn Fn(&siga_results::monitor::CpuSample) -> Option<f64>| {
        process.cpu.as_ref().and_then(figure).map_or_else(none, |figure| format!("{figure:.1}"))
    };
    let net = |figure: &dyn Fn(&NetSample) -> Option<f64>, digits: usize| {
        process.net.as_ref().and_then(figure).map_or_else(none, |figure| format!("{figure:.digits$}"))
    };
    let rate = |count: u64| Some(count as f64 / seconds.max(1e-9));
    let role = match who.state {
        State::Running => who.role.name().to_owned(),
        State::Silent | State::Down => format!("{}, {}", who.role.name(), who.state.name()),
    };
    let name = match (&who.guest, who.role) {
        (Some(guest), Role::Application) => format!("{guest}: {}", who.name),
        (_, _) => who.name.clone(),
    };
    [
        shortened(&text::name(&name)),
        role,
        who.pid.map_or_else(none, |pid| pid.to_string()),
        cpu(&|cpu| Some(cpu.percent)),
        cpu(&|cpu| Some(cpu.virtual_ms)),
        cpu(&|cpu| Some(cpu.cp_ms)),
        cpu(&|cpu| cpu.wait_ms),
        net(&|net| rate(net.packets_received), 0),
        net(&|net| rate(net.packets_sent), 0),
        net(&|net| rate(net.bytes_received / 1_000), 0),
        net(&|net| rate(net.bytes_sent / 1_000), 0),
        net(&|net| net.ring_fill_percent, 0),
        net(&|net| Some(net.connections as f64), 0),
        net(&|net| Some(net.dropped as f64), 0),
    ]
}

/// Shortens a name to [`NAME_WIDTH_MAX`] places.
fn shortened(name: &str) -> String {
    if name.width() <= NAME_WIDTH_MAX {
        return name.to_owned();
    }
    let mut short = String::new();
    let mut width = 0;
    for letter in name.chars() {
        width += letter.width().unwrap_or(0);
        if width > NAME_WIDTH_MAX - 1 {
            break;
        }
        short.push(letter);
    }
    short + "…"
}
