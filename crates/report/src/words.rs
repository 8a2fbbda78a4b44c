//! Formats numbers and composes sentences for reports that people read.

use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::Cell;
use siga_plan::workload::{Close, Shape, Unit};
use siga_results::judge::{Answers, Beside, RouterOverhead, Row, Verdict};
use siga_results::stats::Estimate;
use siga_results::store::Run;
use siga_results::summary::{Cpu, Reduced, Summary};

/// Formats a number with three significant digits; numbers from 100 on become integers. Commas separate groups of three digits.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let places = match magnitude {
        _ if magnitude >= 99.95 || magnitude == 0.0 => 0,
        _ if magnitude >= 9.995 => 1,
        _ if magnitude >= 0.995 => 2,
        _ if magnitude >= 0.00095 => 3,
        // Two digits of a small value, such as the CPU time per byte.
        _ => (4..15).find(|places| magnitude * 10_f64.powi(*places) >= 9.5).map_or(15, i32::unsigned_abs) as usize,
    };
    let text = format!("{value:.places$}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    match digits.split_once('.') {
        Some((whole, fraction)) => format!("{sign}{}.{fraction}", thousands(whole)),
        None => format!("{sign}{}", thousands(digits)),
    }
}

/// Writes a ratio, or an end of its interval, with three decimal places; a large one with three digits.
pub(super) fn ratio_text(ratio: f64) -> String {
    if ratio < 9.9995 { format!("{ratio:.3}") } else { number(ratio) }
}

/// Inserts commas between groups of three digits.
pub(super) fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the factor by which tables multiply CPU milliseconds per unit, and the name of the product's unit: microseconds per
/// transaction or milliseconds per megabyte.
pub(super) fn cpu_scale(unit: Unit) -> (f64, &'static str) {
    (unit.cpu_scale(), unit.cpu_name())
}

/// Returns a number of client-server pairs in words: "10 pairs", "1 pair".
pub(super) fn pairs(count: u32) -> String {
    counted(count as usize, "pair")
}

/// Returns a count with its noun: "2 trials", "1 trial".
pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Groups items that have the same key. Each group has its key; the groups are in the order of their first items.
pub(super) fn grouped<T, K: PartialEq>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let own = key(&item);
        match groups.iter_mut().find(|(other, _)| *other == own) {
            Some((_, group)) => group.push(item),
            None => groups.push((own, vec![item])),
        }
    }
    groups
}

/// Returns a line for each kind of flaw in a cell's trials, for each skipped cell and for each damage in the run's files. Each
/// line comes with its kind: `Caution`, `Skipped` or `Damaged`.
pub(super) fn cautions(run: &Run, reduced: &Reduced) -> Vec<(&'static str, String)> {
    let flags = reduced.cells.iter().flat_map(|summary| {
        let measured = run.trials.iter().filter(|trial| trial.cell == summary.cell).count();
        summary.flags.iter().map(move |flag| (&summary.cell, flag, measured))
    });
    let flags = flags.map(|(cell, (flag, count), measured)| {
        // A trial that failed gave no result and is not among those that were measured.
        let all = if flag.starts_with("no figure") { measured + count } else { measured };
        format!("{cell}: {flag}, in {count} of {}", counted(all, "trial"))
    });
    let skipped = reduced.skipped.iter().map(|one| format!("{}: {}", one.cell, one.reason.replace("\n  ", "; ")));
    let (flags, skipped) = (flags.map(|words| ("Caution", words)), skipped.map(|words| ("Skipped", words)));
    flags.chain(skipped).chain(run.damage.iter().map(|damage| ("Damaged", damage.clone()))).collect()
}

/// Returns the ratio of a row with its interval, such as "1.37x (95% interval 1.20 to 1.52)".
fn ratio_words(row: &Row) -> String {
    let trials = row.trials.0.min(row.trials.1);
    let interval = match row.low.zip(row.high) {
        Some((low, high)) => format!("95% interval {} to {}", number(low), number(high)),
        None => format!("{}, no interval", counted(trials, "trial")),
    };
    format!("{}x ({interval})", number(row.ratio))
}

/// Returns an interval in parentheses, each end written by `text`: " (95% interval 1.20 to 1.52)". Returns an empty string without an
/// interval.
pub(super) fn in_interval(ends: Option<(f64, f64)>, text: fn(f64) -> String) -> String {
    ends.map_or(String::new(), |(low, high)| format!(" (95% interval {} to {})", text(low), text(high)))
}

/// Returns the interval of a row's ratio in parentheses.
pub(super) fn ends_words(row: &Row) -> String {
    in_interval(row.low.zip(row.high), number)
}

/// Returns what a verdict says about a figure without a direction, such as "the same rate within 2%" or "rate inconclusive
/// (…; 14 trials would be needed)". Returns `None` if the figure became better or worse. All sentences of all reports use this
/// function, so none of them claims a direction that the verdict does not have.
pub(super) fn undirected(row: &Row, noun: &str) -> Option<String> {
    match &row.verdict {
        Verdict::Better | Verdict::Worse => None,
        Verdict::Equivalent => Some(format!("the same {noun} within 2%")),
        Verdict::NotComparable { .. } => Some(format!("{noun} not comparable")),
        Verdict::Inconclusive { trials } => {
            let seen = ratio_words(row).replace(['(', ')'], "").replace("x ", "x, ");
            Some(format!("{noun} inconclusive ({seen}{})", would_decide(*trials)))
        }
    }
}

/// Returns the number of trials that would be needed, as the end of a parenthesis: "; 14 trials would be needed".
fn would_decide(trials: Option<usize>) -> String {
    trials.map(|trials| format!("; {trials} trials would be needed")).unwrap_or_default()
}

/// Returns the sentences on the overhead of routers as one line; an empty string if there are none.
pub(super) fn words_of_router(reduced: &Reduced, answers: &Answers) -> String {
    overheads(reduced, answers).replace(".\n  and ", "; and ").replace(".\n", "; ")
}

/// Returns what else a reader must know about the compared paths: how siga's and the kernel's were measured, and the overhead of routers.
pub(super) fn notes(reduced: &Reduced, answers: &Answers) -> String {
    let overheads = Some(overheads(reduced, answers)).filter(|text| !text.is_empty());
    beside_conditions(answers).into_iter().chain(overheads).collect::<Vec<_>>().join("\n")
}

/// Returns the conditions of each comparison of siga's own networks with the kernel's, each in parentheses.
pub(super) fn beside_conditions(answers: &Answers) -> Vec<String> {
    let groups = grouped(&answers.beside, |one| (one.cell.path.clone(), one.cell.mtu, one.cell.level.clone()));
    let lines = groups.iter().map(|(_, group)| conditions(group));
    lines.flat_map(|text| text.trim().split("\n  ").map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Returns sentences that compare siga's own networks with the kernel's, then sentences on the overhead of routers. Returns an
/// empty string if there is nothing to compare.
pub(super) fn headline(reduced: &Reduced, answers: &Answers) -> String {
    let parts = [beside(&answers.beside), overheads(reduced, answers)];
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// Returns a sentence for each path over siga's own network, MTU and level. After the sentence comes a line for each workload and
/// number of client-server pairs.
fn beside(all: &[Beside]) -> String {
    let groups = grouped(all, |one| (one.cell.path.clone(), one.cell.mtu, one.cell.level.clone()));
    groups.iter().map(|(_, group)| beside_of(group)).collect::<Vec<_>>().join("\n")
}

/// Returns the number of rows with each verdict: better, worse, equivalent, and all others.
pub(super) fn tally<'a>(rows: impl Iterator<Item = &'a Row>) -> [usize; 4] {
    let mut counts = [0; 4];
    for row in rows {
        let at = match row.verdict {
            Verdict::Better => 0,
            Verdict::Worse => 1,
            Verdict::Equivalent => 2,
            Verdict::Inconclusive { .. } | Verdict::NotComparable { .. } => 3,
        };
        counts[at] += 1;
    }
    counts
}

/// Returns the end of a clause about cases: "", ", as fast in 1", " (cannot tell in 2)".
fn rest(same: usize, open: usize, words: &str) -> String {
    let same = if same > 0 { format!(", {words} in {same}") } else { String::new() };
    let open = if open > 0 { format!(" (cannot tell in {open})") } else { String::new() };
    format!("{same}{open}")
}

fn beside_of(group: &[&Beside]) -> String {
    let first = group[0];
    let routed = first.kernel.path == "veth-routed";
    let way = if routed { "Through a router" } else { "Without a router" };
    let [faster, slower, as_fast, untold] = tally(group.iter().map(|one| &one.rate));
    let [less, more, as_much, open] = tally(group.iter().map(|one| &one.cpu));
    let cases = group.len();
    let mut text = if untold == cases && open == cases {
        format!("{way}, this run cannot tell whether siga's own network is faster than the kernel's:")
    } else {
        format!(
            "{way}, siga's own network is faster than the kernel's in {faster} of {cases} cases and slower in {slower}{}; \
             it takes less CPU time per unit in {less} and more in {more}{}:",
            rest(as_fast, untold, "as fast"),
            rest(as_much, open, "as much")
        )
    };
    for one in group {
        let noun = match one.cell.workload.cpu_unit() {
            Unit::Transaction => "CPU time per transaction",
            Unit::Megabyte => "CPU time per megabyte",
            Unit::Run => "CPU time per run",
        };
        text += &format!(
            "\n  {}, {}: {}, {}",
            one.cell.workload,
            pairs(one.cell.clients),
            times(&one.rate, "rate"),
            times(&one.cpu, noun)
        );
    }
    text + &conditions(group)
}

/// Returns the conditions of a comparison of siga's own network with the kernel's: paths, MTUs, waiting policy, closing side, co-location.
fn conditions(group: &[&Beside]) -> String {
    let first = group[0];
    let side = |cell: &Cell| match cell.mtu {
        Some(mtu) => format!("{} with MTU {}", cell.path, number(mtu.into())),
        None => cell.path.clone(),
    };
    let level = if first.cell.level == "plain" { String::new() } else { format!(", level {}", first.cell.level) };
    let colocated = 100.0 * group.iter().map(|one| one.colocated).fold(0.0, f64::max);
    let note = if colocated < 1.0 {
        String::new()
    } else {
        format!(
            "\n  (siga ran its client and its server on the same CPU for up to {colocated:.0}% of the time: feature `colocate`)"
        )
    };
    let close = match group.iter().find_map(|one| one.close) {
        Some(Close::Server) => "; in CRR the server closes first on both",
        Some(Close::Client) => "; in CRR the client closes first on both",
        None => "",
    };
    format!(
        "\n  ({} against {}{level}; waiting policy of both: `{}`{close}){note}",
        side(&first.cell),
        side(&first.kernel),
        first.wait
    )
}

/// Returns a figure of the new side as a multiple of the base's, if it became better or worse: "1.37x the rate (95% interval …)".
fn times(row: &Row, noun: &str) -> String {
    undirected(row, noun).unwrap_or_else(|| ratio_words(row).replacen("x (", &format!("x the {noun} ("), 1))
}

/// Returns a sentence on router overhead for each path and kind of exchange (RR, CRR or stream; RR first). Each sentence is about
/// the cell with the fewest client-server pairs. If the level `plain` was measured, other levels are ignored.
fn overheads(reduced: &Reduced, answers: &Answers) -> String {
    let mut overheads: Vec<&RouterOverhead> =
        answers.overheads.iter().filter(|overhead| overhead.cell.level == "plain").collect();
    if overheads.is_empty() {
        overheads = answers.overheads.iter().collect();
    }
    let rank = |overhead: &&RouterOverhead| match overhead.cell.workload.shape() {
        Some(Shape::Rr) => 0,
        Some(Shape::Crr) => 1,
        Some(Shape::Strg | Shape::Strp | Shape::Strb) => 2,
        None => 3,
    };
    overheads.sort_by_key(|overhead| (overhead.cell.path.clone(), rank(overhead), overhead.cell.clients));
    let mut said: Vec<(String, Option<Shape>)> = Vec::new();
    let mut sentences = Vec::new();
    for overhead in overheads {
        let key = (overhead.cell.path.clone(), overhead.cell.workload.shape());
        if said.contains(&key) {
            continue;
        }
        let lead = said.iter().all(|(path, _)| *path != key.0);
        said.push(key);
        sentences.push(sentence(overhead, reduced, lead));
    }
    sentences.join("\n")
}

fn sentence(overhead: &RouterOverhead, reduced: &Reduced, lead: bool) -> String {
    let workload = overhead.cell.workload;
    let (scale, _) = cpu_scale(workload.cpu_unit());
    let node = if overhead.cell.path == "bridge" { "bridge" } else { "router" };
    let start = if lead { format!("A {node}") } else { "  and".to_owned() };
    let cell = reduced.cells.iter().find(|summary| summary.cell == overhead.cell);
    let seen = cell.and_then(|summary| {
        let how = match summary.cpu.method {
            AccountingMethod::Profile => " by profile",
            AccountingMethod::Processes => "",
            AccountingMethod::Subtract | AccountingMethod::Tick => return None,
        };
        Some(format!("; of this, {} in the {node} itself{how}", number(summary.cpu.router?.total * scale)))
    });
    format!(
        "{start} {} and {} ({workload}, {}{}).",
        cpu_cost(overhead, scale),
        rate_cost(&overhead.rate),
        pairs(overhead.cell.clients),
        seen.unwrap_or_default()
    )
}

/// Returns what a router costs in CPU time, in words.
fn cpu_cost(overhead: &RouterOverhead, scale: f64) -> String {
    let (unit, a_unit) = match overhead.cell.workload.cpu_unit() {
        Unit::Transaction => ("us", "per transaction"),
        Unit::Megabyte => ("ms", "per megabyte"),
        Unit::Run => ("ms", "per run"),
    };
    let cost = &overhead.cost;
    let ends = |sign: f64| match cost.low.zip(cost.high) {
        Some((low, high)) => {
            let (low, high) = if sign < 0.0 { (-high, -low) } else { (low, high) };
            format!("95% interval {} to {}", number(low * scale), number(high * scale))
        }
        None => format!("{}, no interval", counted(cost.count, "trial")),
    };
    match &overhead.cpu.verdict {
        Verdict::Worse => {
            format!("adds {} {unit} of CPU time {a_unit} ({})", number(cost.value * scale), ends(1.0))
        }
        Verdict::Better => {
            format!("saves {} {unit} of CPU time {a_unit} ({})", number(-cost.value * scale), ends(-1.0))
        }
        Verdict::Equivalent => format!("changes the CPU time {a_unit} by less than 2%"),
        Verdict::NotComparable { .. } => format!("has no comparable CPU time {a_unit}"),
        Verdict::Inconclusive { trials } => format!(
            "may change the CPU time {a_unit} (inconclusive: {} {unit}, {}{})",
            number(cost.value * scale),
            ends(1.0),
            would_decide(*trials)
        ),
    }
}

/// Returns what a router costs in rate, in words.
fn rate_cost(row: &Row) -> String {
    let percent = |ratio: f64| format!("{:.0}%", 100.0 * (ratio - 1.0).abs());
    let ends = |low: Option<f64>, high: Option<f64>| {
        low.zip(high)
            .map(|(low, high)| format!(" (95% interval {} to {})", percent(low), percent(high)))
            .unwrap_or_default()
    };
    match &row.verdict {
        Verdict::Worse => format!("lowers the rate by {}{}", percent(row.ratio), ends(row.high, row.low)),
        Verdict::Better => format!("raises the rate by {}{}", percent(row.ratio), ends(row.low, row.high)),
        Verdict::Equivalent => "changes the rate by less than 2%".to_owned(),
        Verdict::NotComparable { .. } => "has no comparable rate".to_owned(),
        Verdict::Inconclusive { .. } => {
            let words = undirected(row, "rate").unwrap_or_default();
            format!("may change the {}", words.replacen("inconclusive (", "(inconclusive: ", 1))
        }
    }
}

/// Maximum half width of an interval that is shown as a percentage, as a fraction of the mean. Beyond it, a factor is shown.
const HALF_WIDTH_SHOWN_MAX: f64 = 0.5;
/// Maximum factor that is shown. Beyond it, the mean says nothing.
const FACTOR_SHOWN_MAX: f64 = 10.0;

/// Returns half the width of an estimate's interval, as a fraction of the estimate; `None` if there is no interval.
fn half_width(estimate: &Estimate) -> Option<f64> {
    let (low, high) = estimate.low.zip(estimate.high)?;
    (estimate.value > 0.0).then(|| (high - low) / 2.0 / estimate.value)
}

/// Returns half the width of the mean rate's 95% interval as a percentage of the mean rate, such as "3.0%". A wide interval is shown
/// as a factor: "×÷3.0" means from a third of the mean to three times the mean. Returns "-" if there is no interval.
pub(super) fn spread(summary: &Summary) -> String {
    match (summary.rate_estimate.low, summary.rate_estimate.high) {
        (Some(low), Some(high)) if summary.rate_estimate.value > 0.0 => {
            let (half, factor) = (half_width(&summary.rate_estimate), (high / low.max(f64::MIN_POSITIVE)).sqrt());
            match half {
                Some(half) if half <= HALF_WIDTH_SHOWN_MAX => format!("{:.1}%", 100.0 * half),
                _ if factor <= FACTOR_SHOWN_MAX => format!("×÷{factor:.1}"),
                _ => format!("×÷{FACTOR_SHOWN_MAX}+"),
            }
        }
        _ => "-".into(),
    }
}

/// Returns the sentence with a capital letter at its beginning. The name siga keeps its small letter.
pub(super) fn capital(sentence: &str) -> String {
    if sentence.starts_with("siga ") || sentence.starts_with("siga's ") {
        return sentence.to_owned();
    }
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns the CPU times of a cell, each converted by `figure`: client, router, server, others, and the residue. The residue is the CPU
/// time that could not be charged to a component.
pub(super) fn components<Text: From<&'static str>>(cpu: &Cpu, figure: impl Fn(f64) -> Text) -> [Text; 5] {
    [
        figure(cpu.client.total),
        cpu.router.map_or("-".into(), |router| figure(router.total)),
        figure(cpu.server.total),
        figure(cpu.other.total),
        figure(cpu.residue),
    ]
}

/// Returns a noise floor: "±1.2%". A floor of 100% or more says only that the trials scatter too much, so it has no figure.
pub(super) fn noise_floor(floor: Option<f64>) -> String {
    match floor {
        None => "-".to_owned(),
        Some(floor) if floor < 1.0 => format!("±{:.1}%", 100.0 * floor),
        Some(_) => "over 100%".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_results::disturbance::Disturbance;
    use siga_results::judge::Metric;

    fn row(base: &Cell, new: &Cell, metric: Metric, (ratio, low, high): (f64, f64, f64), verdict: Verdict) -> Row {
        let (low, high) = (Some(low), Some(high));
        let (base, new, trials) = (base.clone(), new.clone(), (9, 9));
        let (values, p, p_adjusted, noise_floor) = ((1.0, ratio), 0.01, Some(0.01), None);
        Row { base, new, metric, trials, values, ratio, low, high, p, p_adjusted, noise_floor, verdict }
    }

    fn open(trials: usize) -> Verdict {
        Verdict::Inconclusive { trials: Some(trials) }
    }

    #[test]
    fn a_small_number_keeps_two_digits() {
        for (value, text) in
            [(0.0, "0"), (0.012, "0.012"), (0.000_96, "0.001"), (0.000_247, "0.00025"), (-3.1e-7, "-0.00000031")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(1e-300), "0.000000000000000");
    }

    #[test]
    fn a_sentence_counts_the_cases_where_siga_is_faster_than_the_kernel() {
        let one = |clients: u32, rate: ((f64, f64, f64), Verdict), cpu: ((f64, f64, f64), Verdict)| {
            let mut cell = siga_results::testing::trial("hipersockets-routed", 0, 1, None).cell;
            (cell.clients, cell.mtu) = (clients, Some(57_344));
            let kernel = siga_results::testing::trial("veth-routed", 0, 1, None).cell;
            let colocated = if clients == 1 { 0.87 } else { 0.0 };
            let rate = row(&kernel, &cell, Metric::Rate, rate.0, rate.1);
            let cpu = row(&kernel, &cell, Metric::TOTAL, cpu.0, cpu.1);
            Beside { cell, kernel, rate, cpu, wait: "block".into(), close: None, colocated }
        };
        let all = [
            one(1, ((2.0, 1.5, 2.5), Verdict::Better), ((0.5, 0.4, 0.6), Verdict::Better)),
            one(10, ((0.9, 0.8, 0.95), Verdict::Worse), ((1.1, 0.9, 1.3), open(41))),
        ];
        let text = beside(&all);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(
            lines[0].starts_with("Through a router, siga's own network is faster than the kernel's in 1 of 2 cases")
        );
        assert!(
            lines[0].ends_with("slower in 1; it takes less CPU time per unit in 1 and more in 0 (cannot tell in 1):"),
            "{text}"
        );
        assert!(
            lines[1]
                .contains("1 pair: 2.00x the rate (95% interval 1.50 to 2.50), 0.500x the CPU time per transaction"),
            "{text}"
        );
        let open =
            "CPU time per transaction inconclusive (1.10x, 95% interval 0.900 to 1.30; 41 trials would be needed)";
        assert!(
            lines[2].ends_with(&format!("10 pairs: 0.900x the rate (95% interval 0.800 to 0.950), {open}")),
            "{text}"
        );
        assert!(
            lines[3].contains("57,344 against veth-routed with MTU 1,500; waiting policy of both: `block`)"),
            "{text}"
        );
        assert_eq!(
            lines[4],
            "  (siga ran its client and its server on the same CPU for up to 87% of the time: feature `colocate`)"
        );
        let closed = one(1, ((2.0, 1.5, 2.5), Verdict::Better), ((0.5, 0.4, 0.6), Verdict::Better));
        let closed = Beside { close: Some(Close::Client), ..closed };
        assert!(beside(&[closed]).contains("of both: `block`; in CRR the client closes first on both)"));
        // An interval that excludes 1 is no claim if the verdict is none.
        let text = beside(&[one(1, ((2.0, 1.5, 2.5), self::open(12)), ((0.5, 0.4, 0.6), self::open(12)))]);
        assert!(text.starts_with(
            "Through a router, this run cannot tell whether siga's own network is faster than the kernel's:"
        ));
        assert!(
            text.contains("rate inconclusive (2.00x, 95% interval 1.50 to 2.50; 12 trials would be needed)"),
            "{text}"
        );
    }

    #[test]
    fn the_cost_of_a_router_is_claimed_only_with_a_verdict() {
        let cell = siga_results::testing::trial("veth-routed", 0, 1, None).cell;
        let base = siga_results::testing::trial("veth", 0, 1, None).cell;
        let said = |cost: (f64, f64, f64), cpu: Verdict, rate: Verdict| {
            let (value, low, high) = cost;
            let overhead = RouterOverhead {
                cell: cell.clone(),
                base: base.clone(),
                cost: Estimate { value, low: Some(low), high: Some(high), count: 9 },
                cpu: row(&base, &cell, Metric::TOTAL, (1.2, 0.9, 1.5), cpu),
                rate: row(&base, &cell, Metric::Rate, (0.33, 0.3, 1.2), rate),
                latency_us: None,
            };
            sentence(
                &overhead,
                &Reduced { disturbance: Disturbance::default(), cells: Vec::new(), skipped: Vec::new() },
                true,
            )
        };
        let text = said((0.119, -1.331, 1.569), open(40), open(25));
        assert_eq!(
            text,
            "A router may change the CPU time per transaction (inconclusive: 119 us, 95% interval -1,331 to 1,569; 40 \
                trials \
             would be needed) and may change the rate (inconclusive: 0.330x, 95% interval 0.300 to 1.20; 25 trials would \
             be needed) (rr-200-1000, 1 pair)."
        );
        let text = said((0.0073, 0.007, 0.008), Verdict::Worse, Verdict::Worse);
        assert!(text.starts_with(
            "A router adds 7.30 us of CPU time per transaction (95% interval 7.00 to 8.00) and lowers the rate by 67%"
        ));
        let text = said((-0.0073, -0.008, -0.007), Verdict::Better, Verdict::Equivalent);
        let saved = "A router saves 7.30 us of CPU time per transaction (95% interval 7.00 to 8.00) and changes the rate by less than 2%";
        assert!(text.starts_with(saved), "{text}");
    }

    #[test]
    fn a_wide_spread_is_a_factor_and_never_a_huge_percentage() {
        let trials = |rates: &[u64]| {
            let trial = |(round, rate): (u32, &u64)| {
                let mut trial = siga_results::testing::trial("veth", round, 1, None);
                trial.client.transactions = *rate;
                trial
            };
            siga_results::testing::run("run", (0..).zip(rates).map(trial).collect())
        };
        let of = |rates: &[u64]| spread(&siga_results::summary::reduce(&trials(rates), None).unwrap().cells[0]);
        assert_eq!(of(&[1_000]), "-");
        assert!(of(&[1_000, 1_020, 990, 1_010]).ends_with('%'));
        assert!(
            of(&[900, 400, 1_100, 300, 1_000, 350]).starts_with("×÷1."),
            "{}",
            of(&[900, 400, 1_100, 300, 1_000, 350])
        );
        assert_eq!(of(&[1, 19_300]), "×÷10+");
    }

    #[test]
    fn a_noise_floor_is_a_percentage_as_long_as_it_says_something() {
        for (floor, text) in [
            (None, "-"),
            (Some(0.012), "±1.2%"),
            (Some(0.994), "±99.4%"),
            (Some(1.0), "over 100%"),
            (Some(f64::INFINITY), "over 100%"),
            (Some(f64::NAN), "over 100%"),
        ] {
            assert_eq!(noise_floor(floor), text);
        }
    }

    #[test]
    fn numbers_have_three_digits_and_commas() {
        for (value, text) in [
            (1_234_567.8, "1,234,568"),
            (100.4, "100"),
            (99.94, "99.9"),
            (9.994, "9.99"),
            (0.1234, "0.123"),
            (-1_000.0, "-1,000"),
            (0.0, "0"),
            (999_999.6, "1,000,000"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
