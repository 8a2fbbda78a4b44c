//! What may differ between two runs on purpose: parts of the environment that the user wants to compare.

use crate::environment::Difference;
use siga_model::error::{Error, Result};
use std::str::FromStr;

/// A part of the environment that differs on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vary {
    /// The kernel: its version, build options and boot options.
    Kernel,
    /// The processors: model, number, frequency, idle states, hypervisor.
    Cpu,
    /// The mitigations of processor vulnerabilities.
    Mitigations,
    /// The build of siga.
    Program,
    /// The host: everything but the build of siga. The report says which parts differ.
    Host,
}

impl Vary {
    /// The parts that the user can name, in the order of help texts. `siga compare --hosts` stands for [`Self::Host`].
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Cpu, Self::Mitigations, Self::Program];

    /// Returns the name: the part of the environment's record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Cpu => "cpu",
            Self::Mitigations => "mitigations",
            Self::Program => "program",
            Self::Host => "the host",
        }
    }

    /// Returns whether a difference belongs to this part.
    pub(super) fn covers(self, difference: &Difference) -> bool {
        const OF_HOST: [&str; 7] = ["kernel", "cpu", "mitigations", "memory", "sysctl", "user", "host"];
        difference.key.split_once('.').is_some_and(|(part, name)| match self {
            Self::Kernel | Self::Cpu | Self::Mitigations | Self::Program => part == self.name(),
            Self::Host => OF_HOST.contains(&part) || (part, name) == ("program", "architecture"),
        })
    }
}

impl FromStr for Vary {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|vary| vary.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::usage(format!("`{text}` is not a part of the environment that --vary can name"))
                .hint(format!("--vary accepts {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::judge::{self, Vary, Verdict};
    use crate::testing;

    #[test]
    fn what_differs_on_purpose_is_compared_and_named_and_nothing_else() {
        let run = |name: &str, kernel: &str, cpu: &str| {
            let trials = (0..9).map(|round| testing::trial("veth", round, 700, None)).collect();
            let mut run = testing::run(name, trials);
            run.environment.kernel.release = Some(kernel.into());
            run.environment.cpu.model = Some(cpu.into());
            run
        };
        let (old, new) = (run("old", "6.1", "Abacus"), run("new", "6.12", "Abacus"));
        let forbidden = |comparison: &judge::Comparison| {
            comparison.rows.iter().filter(|row| matches!(row.verdict, Verdict::NotComparable { .. })).count()
        };
        assert!(forbidden(&judge::runs(&old, &new).unwrap()) > 0);
        let compared = judge::runs_varying(&old, &new, &[Vary::Kernel]).unwrap();
        assert_eq!((forbidden(&compared), compared.varied.len(), compared.environment.len()), (0, 1, 0));
        assert_eq!(compared.varied[0].to_string(), "kernel.release: 6.1 -> 6.12");
        // Another difference that matters still forbids the comparison.
        let other = run("other", "6.12", "Slide rule");
        assert!(forbidden(&judge::runs_varying(&old, &other, &[Vary::Kernel]).unwrap()) > 0);
        assert_eq!(forbidden(&judge::runs_varying(&old, &other, &[Vary::Kernel, Vary::Cpu]).unwrap()), 0);
        // A part that was to vary and does not is named.
        let same = judge::runs_varying(&old, &new, &[Vary::Kernel, Vary::Cpu]).unwrap();
        assert!(
            same.cautions.iter().any(|caution| caution.contains("cpu is the same in both runs")),
            "{:?}",
            same.cautions
        );
    }
}
