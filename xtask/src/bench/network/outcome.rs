//! The result of a row and its presentation.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::figures::{Figures, Ratio, mode_lines, modes_json, ratio_lines};
use super::rows::Mode;

/// A mode that was measured once, or the reason why it could not be measured.
pub(super) type Screened = (Mode, Result<Figures, String>);

/// The result of one row.
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) rounds: u32,
    pub(super) ratios: Vec<Ratio>,
    /// The text that names the mode of siga that is compared with the kernel's best.
    pub(super) own: String,
    /// The names of the kernel's best mode, best blocking mode and cheapest mode.
    pub(super) kernel: [String; 3],
    pub(super) modes: Vec<(String, Vec<Figures>)>,
    pub(super) screened: Vec<Screened>,
}

impl Outcome {
    pub(super) fn text(&self) -> String {
        let mut out = format!("\n{}\n", self.name);
        out += &ratio_lines(&self.ratios, self.rounds);
        let [best, blocking, cheapest] = &self.kernel;
        let _ = writeln!(out, "  {}; kernel's best: {best}; blocking: {blocking}; cheapest: {cheapest}", self.own);
        out += &mode_lines(self.unit, &self.modes);
        out
    }

    pub(super) fn json(&self) -> Value {
        let screened = self.screened.iter().map(|(mode, figures)| match figures {
            Ok(figures) => json!({ "mode": mode.name(), "figures": figures.json() }),
            Err(reason) => json!({ "mode": mode.name(), "skipped": reason }),
        });
        json!({
            "row": self.name,
            "unit": self.unit,
            "own": self.own,
            "kernel": { "best": self.kernel[0], "blocking": self.kernel[1], "cheapest": self.kernel[2] },
            "ratios": self.ratios.iter().map(Ratio::json).collect::<Vec<_>>(),
            "modes": modes_json(&self.modes),
            "screened": screened.collect::<Vec<_>>(),
        })
    }
}
