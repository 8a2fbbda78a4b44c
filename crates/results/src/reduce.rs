//! The formulas that compute the figures of a table from the raw counters of one measurement.
//!
//! The number type chooses one of two precisions:
//! - [`Exact`] reproduces z/VM's printed reports. Arithmetic is exact. Each figure is rounded half up to the decimals of its
//!   column, and ratios are computed from rounded figures.
//! - `f64` is for siga's own runs. Figures are not rounded until they are shown.
//!
//! CPU time per unit is computed from the CPU seconds, not from the rounded utilisation in the same table. A unit is a
//! transaction or a megabyte (10^6 bytes of payload without headers). The CPU milliseconds per unit are 1000 x seconds /
//! (interval x rate). "Virtual" is the time in which a guest or user process ran its own code. "CP" is the time that the
//! hypervisor or kernel spent on behalf of the guest or process.

use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_plan::workload::Unit;
use std::str::FromStr;

/// A number of one of the two precisions. The number is a time, a rate, a percentage or a ratio, so it is never negative.
pub trait Number: Copy {
    /// Converts `n` into this number type.
    fn whole(n: u32) -> Self;

    /// Returns the product of `self` and `by`.
    #[must_use]
    fn times(self, by: Self) -> Self;

    /// Returns the sum of `self` and `other`.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// Returns `self` divided by `by`; `None` unless `by` is above zero.
    #[must_use]
    fn over(self, by: Self) -> Option<Self>;

    /// Returns the number as it is shown in a column with `places` decimals. An [`Exact`] is rounded half up; an `f64` stays
    /// unchanged.
    #[must_use]
    fn printed(self, places: u32) -> Self;
}

/// CPU seconds that the whole system or one component used within the interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuTime<N> {
    /// Total CPU seconds. The total is not computed from the parts: where counters are rounded, the parts need not add up to the
    /// total.
    pub cpu_s: N,
    /// Virtual CPU seconds. The tables call those of the whole system `emul`.
    pub vcpu_s: N,
    /// CP's CPU seconds: those of the hypervisor or kernel. The tables call those of the whole system `cp`.
    pub ccpu_s: N,
}

impl<N: Number> CpuTime<N> {
    /// Converts utilisations in percent to CPU seconds; 100% means that all processors are busy. `total`, `emul` and `cp` become
    /// `cpu_s`, `vcpu_s` and `ccpu_s`.
    pub fn from_util(interval_s: N, processors: u32, total: N, emul: N, cp: N) -> Option<Self> {
        let capacity = interval_s.times(N::whole(processors));
        let seconds = |percent: N| percent.times(capacity).over(N::whole(100));
        Some(Self { cpu_s: seconds(total)?, vcpu_s: seconds(emul)?, ccpu_s: seconds(cp)? })
    }
}

/// A part of the path to which CPU time is charged: a stack, a router, a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Component<N> {
    /// The prefix of the component's columns (`tcpip2`, `router`).
    pub name: String,
    /// The CPU time that the component used.
    pub time: CpuTime<N>,
}

/// The counters of one measurement. The rate and the CPU times are for the same interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawCounters<N> {
    /// Length of the interval in seconds.
    pub interval_s: N,
    /// Number of processors that the system had during the whole interval.
    pub processors: u32,
    /// Units per second over the interval, as the workload driver counted them.
    pub rate: N,
    /// The unit that the rate counts.
    pub unit: Unit,
    /// CPU seconds of the whole system, summed over all processors.
    pub total: CpuTime<N>,
    /// CPU seconds of the components. They need not add up to the total.
    pub components: Vec<Component<N>>,
}

/// One figure of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure<N> {
    /// Name of the figure's row (`tcpip2_vcpu_msec/MB`).
    pub metric: String,
    /// Unit of the value, in words.
    pub unit: String,
    /// The value of the figure.
    pub value: N,
    /// Number of decimals with which the column shows the value.
    pub places: u32,
}

/// The figures of one measurement, in the blocks of a table. Block 1 contains the rate and the utilisation of the system. Block 2
/// contains the utilisation of each component. Block 3 contains the CPU time per unit of the system. Each further block contains
/// the CPU time per unit of one component.
pub type Blocks<N> = Vec<Vec<Figure<N>>>;

/// Computes the figures of one measurement, which are one column of a table.
///
/// # Errors
/// Returns an error of kind `Incomplete` if the interval, the number of processors or the rate is not above zero, because figures
/// are divided by them.
pub fn reduce<N: Number>(raw: &RawCounters<N>) -> Result<Blocks<N>> {
    let unit = raw.unit.name();
    let units = raw.interval_s.times(raw.rate);
    let capacity = raw.interval_s.times(N::whole(raw.processors));
    let per_unit = |prefix: &str, seconds: N| -> Result<Figure<N>> {
        let msec = seconds.times(N::whole(1000)).over(units).ok_or_else(|| nothing("units of work"))?;
        Ok(figure(format!("{prefix}msec/{unit}"), format!("msec/{unit}"), msec.printed(2)))
    };
    let percent = |seconds: N, capacity: N| -> Result<N> {
        seconds.times(N::whole(100)).over(capacity).ok_or_else(|| nothing("CPU capacity"))
    };

    let total_unit = match raw.processors {
        1 => "% of one processor".to_owned(),
        n => format!("% (average of the {n} processors, each 100)"),
    };
    let per_second = format!("{unit}/sec");
    let mut blocks = vec![vec![
        figure(per_second.clone(), per_second, raw.rate.printed(2)),
        figure("total_cpu_util", total_unit, percent(raw.total.cpu_s, capacity)?.printed(1)),
    ]];
    let mut utilisations = Vec::with_capacity(raw.components.len());
    for Component { name, time } in &raw.components {
        let value = percent(time.cpu_s, raw.interval_s)?.printed(2);
        utilisations.push(figure(format!("{name}_tot_cpu_util"), "% of one processor", value));
    }
    blocks.push(utilisations);
    blocks.push(vec![
        per_unit("cpu_", raw.total.cpu_s)?,
        per_unit("emul_", raw.total.vcpu_s)?,
        per_unit("cp_", raw.total.ccpu_s)?,
    ]);
    for Component { name, time } in &raw.components {
        blocks.push(vec![
            per_unit(&format!("{name}_cpu_"), time.cpu_s)?,
            per_unit(&format!("{name}_vcpu_"), time.vcpu_s)?,
            per_unit(&format!("{name}_ccpu_"), time.ccpu_s)?,
        ]);
    }
    Ok(blocks)
}

/// The measured values of one timed file transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Transfer<N> {
    /// Size of the file in megabytes.
    pub megabytes: N,
    /// Duration of the transfer in seconds.
    pub elapsed_s: N,
    /// CPU seconds that z/VM's control program (CP) used.
    pub cp_s: N,
    /// Virtual CPU seconds that the guests used.
    pub virtual_s: N,
}

/// Computes the figures of one file transfer, which are one column of a table.
///
/// # Errors
/// Returns an error of kind `Incomplete` if the elapsed time is not above zero.
pub fn reduce_transfer<N: Number>(raw: &Transfer<N>) -> Result<Blocks<N>> {
    let elapsed = Figure { places: 3, ..figure("elapsed time (sec)", "sec", raw.elapsed_s.printed(3)) };
    let rate = raw.megabytes.over(raw.elapsed_s).ok_or_else(|| nothing("elapsed time"))?;
    let total_s = raw.cp_s.plus(raw.virtual_s);
    Ok(vec![vec![
        elapsed,
        figure("Megabytes/sec", "MB/sec", rate.printed(2)),
        figure("CP CPU time", "CPU sec", raw.cp_s.printed(2)),
        figure("virtual CPU time", "CPU sec", raw.virtual_s.printed(2)),
        figure("total CPU time", "CPU sec", total_s.printed(2)),
    ]])
}

/// Returns `changed` divided by `base` with two decimals; `None` if `base` is zero. Both are values as the tables show them, so
/// with [`Exact`] the ratio is computed from rounded values.
pub fn ratio<N: Number>(base: N, changed: N) -> Option<N> {
    changed.over(base).map(|ratio| ratio.printed(2))
}

fn figure<N>(metric: impl Into<String>, unit: impl Into<String>, value: N) -> Figure<N> {
    Figure { metric: metric.into(), unit: unit.into(), value, places: 2 }
}

fn nothing(of: &str) -> Error {
    Error::incomplete(format!("the counters of this trial show no {of}, so siga cannot compute its figures"))
}

impl Number for f64 {
    fn whole(n: u32) -> Self {
        Self::from(n)
    }

    fn times(self, by: Self) -> Self {
        self * by
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn over(self, by: Self) -> Option<Self> {
        (by > 0.0).then(|| self / by)
    }

    fn printed(self, _places: u32) -> Self {
        self
    }
}

/// A fraction in lowest terms. It represents each decimal number exactly, unlike a binary floating-point number (where 2.675
/// becomes 2.67499...).
///
/// The fraction is parsed from a decimal number of at most nine digits. So the products and quotients in [`reduce`] always fit in
/// 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Exact {
    numerator: u128,
    denominator: u128,
}

const DIGITS_MAX: usize = 9;

impl Exact {
    fn new(numerator: u128, denominator: u128) -> Self {
        let common = common_divisor(numerator, denominator);
        Self { numerator: numerator / common, denominator: denominator / common }
    }

    /// Returns the number times 10^`places`, rounded half up to an integer (2.675 with two places: 268).
    pub fn scaled(self, places: u32) -> u128 {
        let doubled = 2 * self.numerator * 10_u128.pow(places);
        (doubled + self.denominator) / (2 * self.denominator)
    }

    /// Returns the number as text with exactly `places` decimals (at least one), rounded half up.
    pub fn fixed(self, places: u32) -> String {
        let one = 10_u128.pow(places);
        let scaled = self.scaled(places);
        let width = usize::try_from(places).unwrap_or(usize::MAX);
        format!("{}.{:0width$}", scaled / one, scaled % one)
    }
}

impl Number for Exact {
    fn whole(n: u32) -> Self {
        Self { numerator: n.into(), denominator: 1 }
    }

    fn times(self, by: Self) -> Self {
        // Cancel each numerator with the other fraction's denominator before multiplying, so that a common factor (the interval)
        // never makes a product overflow.
        let one = Self::new(self.numerator, by.denominator);
        let other = Self::new(by.numerator, self.denominator);
        Self { numerator: one.numerator * other.numerator, denominator: one.denominator * other.denominator }
    }

    fn plus(self, other: Self) -> Self {
        let crosswise = self.numerator * other.denominator + other.numerator * self.denominator;
        Self::new(crosswise, self.denominator * other.denominator)
    }

    fn over(self, by: Self) -> Option<Self> {
        let reciprocal = Self { numerator: by.denominator, denominator: by.numerator };
        (by.numerator > 0).then(|| self.times(reciprocal))
    }

    fn printed(self, places: u32) -> Self {
        Self::new(self.scaled(places), 10_u128.pow(places))
    }
}

impl FromStr for Exact {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let no_decimal = || Error::usage(format!("`{text}` is not a decimal number of at most {DIGITS_MAX} digits"));
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{part}");
        let plain = !whole.is_empty() && part.is_empty() != text.contains('.');
        if !plain || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(no_decimal());
        }
        let numerator = digits.parse().map_err(|_| no_decimal())?;
        let places = u32::try_from(part.len()).map_err(|_| no_decimal())?;
        Ok(Self::new(numerator, 10_u128.pow(places)))
    }
}

impl TryFrom<String> for Exact {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

fn common_divisor(a: u128, b: u128) -> u128 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siga_model::error::ErrorKind;

    fn exact(text: &str) -> Exact {
        text.parse().unwrap()
    }

    #[test]
    fn half_up_is_decimal_not_binary() {
        for (number, printed) in [
            ("0.005", "0.01"),
            ("0.0049", "0.00"),
            ("1.005", "1.01"),
            ("2.675", "2.68"),
            ("0.285", "0.29"),
            ("9.995", "10.00"),
        ] {
            assert_eq!(exact(number).fixed(2), printed);
            assert_eq!(exact(number).printed(2), exact(printed));
        }
        assert_eq!(format!("{:.2}", 2.675_f64), "2.67", "the trap that decimals avoid");
    }

    #[test]
    fn a_quotient_on_the_half_rounds_up() {
        assert_eq!(ratio(exact("8"), exact("0.04")).unwrap(), exact("0.01"), "0.005");
        assert_eq!(ratio(exact("2"), exact("2.01")).unwrap(), exact("1.01"), "1.005");
        assert_eq!(ratio(exact("0"), exact("2.01")), None);
    }

    #[test]
    fn fixed_fills_with_zeros() {
        assert_eq!(exact("82.1").fixed(2), "82.10");
        assert_eq!(exact("7").fixed(3), "7.000");
        assert_eq!(exact("0.02").fixed(2), "0.02");
    }

    #[test]
    fn only_plain_short_decimals_are_read() {
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1.2.3", "1,5", " 1", "1234567890", "NaN"] {
            assert_eq!(text.parse::<Exact>().unwrap_err().kind(), ErrorKind::Usage, "{text:?}");
        }
        assert_eq!(exact("123456.789").scaled(4), 1_234_567_890);
    }

    proptest! {
        #[test]
        fn rounding_agrees_with_integers(thousandths in 0_u32..1_000_000) {
            let number = exact(&format!("{}.{:03}", thousandths / 1000, thousandths % 1000));
            prop_assert_eq!(number.scaled(2), u128::from((thousandths + 5) / 10));
        }

        #[test]
        fn inputs_of_nine_digits_do_not_overflow(
            numbers in prop::array::uniform5((100_000_000_u32..1_000_000_000, 1_usize..9)),
            processors in 1_u32..=u32::MAX,
        ) {
            let [interval_s, total, part, rate, cpu_s] = numbers.map(|(digits, places)| {
                let digits = digits.to_string();
                let (whole, part) = digits.split_at(digits.len() - places);
                exact(&format!("{whole}.{part}"))
            });
            let component = Component { name: "router".into(), time: CpuTime { cpu_s, vcpu_s: cpu_s, ccpu_s: cpu_s } };
            let total = CpuTime::from_util(interval_s, processors, total, part, part).unwrap();
            let raw = RawCounters { interval_s, processors, rate, unit: Unit::Megabyte, total, components: vec![component] };
            let figures: Vec<_> = reduce(&raw).unwrap().into_iter().flatten().collect();
            let msec = figures.iter().find(|f| f.metric == "router_cpu_msec/MB").unwrap();
            let expected = to_f64(cpu_s) * 1000.0 / (to_f64(interval_s) * to_f64(rate));
            prop_assert!((to_f64(msec.value) - expected).abs() < 0.005 + expected * 1e-9);
        }
    }

    fn to_f64(number: Exact) -> f64 {
        number.fixed(8).parse().unwrap()
    }

    /// Returns the counters of Table 1, 1 client, level 420, which has every kind of figure once.
    fn run<N: Number>(number: impl Fn(&str) -> N) -> RawCounters<N> {
        let interval_s = number("330");
        RawCounters {
            interval_s,
            processors: 2,
            rate: number("25.58"),
            unit: Unit::Megabyte,
            total: CpuTime::from_util(interval_s, 2, number("82.1"), number("63.5"), number("18.6")).unwrap(),
            components: vec![Component {
                name: "tcpip2".into(),
                time: CpuTime { cpu_s: number("159"), vcpu_s: number("128"), ccpu_s: number("31") },
            }],
        }
    }

    const COLUMN: [(&str, &str); 9] = [
        ("MB/sec", "25.58"),
        ("total_cpu_util", "82.10"),
        ("tcpip2_tot_cpu_util", "48.18"),
        ("cpu_msec/MB", "64.19"),
        ("emul_msec/MB", "49.65"),
        ("cp_msec/MB", "14.54"),
        ("tcpip2_cpu_msec/MB", "18.84"),
        ("tcpip2_vcpu_msec/MB", "15.16"),
        ("tcpip2_ccpu_msec/MB", "3.67"),
    ];

    #[test]
    fn a_column_is_named_and_printed_as_in_the_report() {
        let figures: Vec<_> = reduce(&run(exact)).unwrap().into_iter().flatten().collect();
        let column: Vec<_> = figures.iter().map(|f| (f.metric.as_str(), f.value.fixed(f.places))).collect();
        assert_eq!(column, COLUMN.map(|(metric, value)| (metric, value.to_owned())));
    }

    #[test]
    fn full_precision_rounds_nothing() {
        let figures: Vec<_> =
            reduce(&run(|text| text.parse::<f64>().unwrap())).unwrap().into_iter().flatten().collect();
        let util = figures.iter().find(|f| f.metric == "tcpip2_tot_cpu_util").unwrap().value;
        assert!((util - 15_900.0 / 330.0).abs() < 1e-9, "{util}");
        for (figure, (metric, printed)) in figures.iter().zip(COLUMN) {
            assert_eq!(figure.metric, metric);
            assert!((figure.value - printed.parse::<f64>().unwrap()).abs() <= 0.005 + 1e-9, "{metric}");
        }
        assert_eq!(ratio(3.0, 2.0), Some(2.0 / 3.0));
        assert_eq!(ratio(0.0, 2.0), None);
    }

    #[test]
    fn one_processor_is_named_so() {
        let figures = reduce(&RawCounters { processors: 1, ..run(exact) }).unwrap();
        assert_eq!(figures[0][1].unit, "% of one processor");
    }

    #[test]
    fn without_work_time_or_processors_there_is_no_figure() {
        let good = run(exact);
        let none = exact("0");
        for raw in [
            RawCounters { rate: none, ..good.clone() },
            RawCounters { interval_s: none, ..good.clone() },
            RawCounters { processors: 0, ..good },
        ] {
            assert_eq!(reduce(&raw).unwrap_err().kind(), ErrorKind::Incomplete);
        }
        let transfer = Transfer { megabytes: 10.0, elapsed_s: 0.0, cp_s: 0.0, virtual_s: 0.0 };
        assert_eq!(reduce_transfer(&transfer).unwrap_err().kind(), ErrorKind::Incomplete);
    }
}
