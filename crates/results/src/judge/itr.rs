//! The internal throughput rate (ITR): units of work per second of CPU time, as if the work kept one CPU busy all the time.
//!
//! It is the inverse of the CPU time per unit, and so are its ratio and the interval of its ratio. It therefore gets no test of its
//! own: a comparison shows it with the verdict on the CPU time.

use super::comparison::Row;
use super::metric::Metric;
use crate::summary::itr;

impl Row {
    /// Returns the comparison of the internal throughput rates that this row's CPU times give. Returns `None` if the row does not
    /// compare the CPU time of the whole system.
    pub fn itr(&self) -> Option<Self> {
        if self.metric != Metric::TOTAL {
            return None;
        }
        Some(Self {
            metric: Metric::Itr,
            values: (itr(self.values.0)?, itr(self.values.1)?),
            ratio: 1.0 / self.ratio,
            low: self.high.map(|high| 1.0 / high),
            high: self.low.map(|low| 1.0 / low),
            ..self.clone()
        })
    }
}

/// Returns the rows with a row for each internal throughput rate, which follows the row of the CPU time.
pub fn with_itr(rows: &[Row]) -> Vec<Row> {
    rows.iter().flat_map(|row| [Some(row.clone()), row.itr()]).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{self, Verdict};
    use crate::testing;

    #[test]
    fn the_itr_is_the_inverse_of_the_cpu_time_with_its_interval_and_verdict() {
        let mut run = testing::run("run", Vec::new());
        for round in 0..9_u32 {
            for (level, busy) in [("420", 1_000), ("430", 500)] {
                let mut trial = testing::trial("veth", round, busy + round as u64, None);
                trial.cell.level = level.to_owned();
                run.trials.push(trial);
            }
        }
        let comparison = judge::levels(&run, "420", "430").unwrap();
        let rows = with_itr(&comparison.rows);
        let at = rows.iter().position(|row| row.metric == Metric::TOTAL).unwrap();
        let (cpu, own) = (&rows[at], &rows[at + 1]);
        assert_eq!((own.metric, own.metric.role()), (Metric::Itr, "derived"));
        let close = |left: f64, right: f64| assert!((left / right - 1.0).abs() < 1e-9, "{left} {right}");
        close(own.values.0, 1e3 / cpu.values.0);
        close(own.values.1, 1e3 / cpu.values.1);
        close(own.ratio, own.values.1 / own.values.0);
        close(own.low.unwrap(), 1.0 / cpu.high.unwrap());
        close(own.high.unwrap(), 1.0 / cpu.low.unwrap());
        assert!(own.low < Some(own.ratio) && Some(own.ratio) < own.high, "{own:?}");
        assert!((1.9..2.1).contains(&own.ratio) && own.verdict == Verdict::Better, "{own:?}");
        assert_eq!(rows.len(), comparison.rows.len() + 1, "only the whole system has one");
        assert_eq!(itr(0.0), None);
    }
}
