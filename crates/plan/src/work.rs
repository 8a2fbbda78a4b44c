//! What a cell measures: a workload over a path, or a command.

use crate::command::CommandName;
use crate::serde_by_text::serde_by_text;
use crate::workload::{Shape, Unit, Workload};
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The work that a cell measures. Equal work has equal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// Client and server exchange messages over a path.
    Network(Workload),
    /// A command of the plan runs on this host.
    Command(CommandName),
}

impl Work {
    /// Returns the unit in which the rate of this work is measured.
    pub fn unit(&self) -> Unit {
        match self {
            Self::Network(workload) => workload.unit(),
            Self::Command(_) => Unit::Run,
        }
    }

    /// Converts a number of exchanges or runs, and of payload bytes in both directions, into the unit of this work.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub fn units(&self, transactions: u64, payload_bytes: u64) -> f64 {
        match self {
            Self::Network(workload) => workload.units(transactions, payload_bytes),
            Self::Command(_) => transactions as f64,
        }
    }

    /// Returns the unit to which CPU time is related; see [`Workload::cpu_unit`].
    pub fn cpu_unit(&self) -> Unit {
        match self {
            Self::Network(workload) => workload.cpu_unit(),
            Self::Command(_) => Unit::Run,
        }
    }

    /// Returns the number of units of [`Self::cpu_unit`].
    pub fn cpu_units(&self, transactions: u64, payload_bytes: u64) -> f64 {
        match self {
            Self::Network(workload) => workload.cpu_units(transactions, payload_bytes),
            Self::Command(_) => self.units(transactions, payload_bytes),
        }
    }

    /// Returns the number of streams beside RR.
    pub fn beside(&self) -> u32 {
        self.network().map_or(0, |workload| workload.beside)
    }

    /// Returns the workload over a path, or `None` for a command.
    pub fn network(&self) -> Option<&Workload> {
        match self {
            Self::Network(workload) => Some(workload),
            Self::Command(_) => None,
        }
    }

    /// Returns the shape of the exchange, or `None` for a command.
    pub fn shape(&self) -> Option<Shape> {
        self.network().map(|workload| workload.shape)
    }

    /// Returns true for a stream of datagrams.
    pub fn is_datagram_stream(&self) -> bool {
        self.network().is_some_and(Workload::is_datagram_stream)
    }

    /// Returns true if the work is a command.
    pub fn is_command(&self) -> bool {
        matches!(self, Self::Command(_))
    }
}

impl From<Workload> for Work {
    fn from(workload: Workload) -> Self {
        Self::Network(workload)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(workload) => workload.fmt(f),
            Self::Command(name) => name.fmt(f),
        }
    }
}

/// Reads a workload over a path, or else the name of a command. No name of a command is that of a workload: [`crate::plan::Plan`]
/// refuses it.
impl FromStr for Work {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text.parse(), text.parse()) {
            (Ok(workload), _) => Ok(Self::Network(workload)),
            (Err(_), Ok(name)) => Ok(Self::Command(name)),
            (Err(error), Err(_)) => Err(error),
        }
    }
}

serde_by_text!(Work);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_the_same_text_after_it_was_read() {
        for text in ["rr-200-1000", "strg:1/2", "zstd", "cc-12"] {
            let work: Work = text.parse().unwrap();
            assert_eq!(
                (work.to_string().as_str(), work.is_command()),
                (text, !text.contains("r-") && !text.contains(':'))
            );
        }
        assert!("rr:0/1".parse::<Work>().is_err() && "".parse::<Work>().is_err());
    }
}
