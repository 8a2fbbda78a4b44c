//! How much more a frame costs a switch with 1,000 ports and 10,000 Ethernet addresses than a switch with 4 ports and 4 addresses
//! (`crates/siga/examples/ports`).

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::median;
use crate::command;

/// The name of the row.
pub(crate) const NAME: &str = "switch-ports";
/// The target: how much more a frame may cost the large switch.
const RATIO_MAX: f64 = 1.3;
const BUILD: &str = "cargo build --release --package siga --example ports";
/// The workloads: the name in the program's output, and what the table says.
const WORKLOADS: [(&str, &str); 3] = [
    ("some", "frames to 3 ports, CPU time"),
    ("all", "frames to all ports, CPU time"),
    ("single", "frame by frame, elapsed time"),
];

/// Measures with the program `siga`. Returns the text for the terminal and the times of each round as JSON.
pub(crate) fn measure(root: &Path, siga: &Path, (rounds, seconds): (u32, f64)) -> Result<(String, Value), String> {
    let mut program = Command::new(command::built(root, BUILD)?);
    program.arg(siga).args([rounds.to_string(), seconds.to_string()]);
    let output = command::output(program)?;
    let mut json: Value = serde_json::from_str(&output).map_err(|error| format!("{NAME}: {error}"))?;
    let text = text(&json)?;
    json["row"] = NAME.into();
    Ok((text, json))
}

fn text(json: &Value) -> Result<String, String> {
    let rounds = json["rounds"].as_array().filter(|rounds| !rounds.is_empty()).ok_or("no round was measured")?;
    let mut text = format!("\n{NAME}: a switch with 1,000 ports and 10,000 addresses over one with 4 ports\n");
    for (key, name) in WORKLOADS {
        let of = |size: usize| rounds.iter().map(move |round| round[key][size].as_f64().unwrap_or(f64::NAN));
        let mut ratios: Vec<f64> = of(1).zip(of(0)).map(|(many, few)| many / few).collect();
        let [mut few, mut many] = [0, 1].map(|size| of(size).collect::<Vec<f64>>());
        let (ratio, few, many) = (median(&mut ratios), median(&mut few), median(&mut many));
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let missed = if ratio > RATIO_MAX { ", missed" } else { "" };
        let _ = writeln!(
            text,
            "  {name:<30} {ratio:>6.2} ({least:.2} to {most:.2})   {many:.0} and {few:.0} ns a frame (target {RATIO_MAX}{missed})"
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_has_the_median_ratio_and_says_if_the_target_is_missed() {
        let rounds = json!([
            { "some": [100.0, 110.0], "all": [100.0, 110.0], "single": [200.0, 400.0] },
            { "some": [100.0, 120.0], "all": [100.0, 110.0], "single": [200.0, 200.0] },
            { "some": [100.0, 150.0], "all": [100.0, 110.0], "single": [100.0, 300.0] },
        ]);
        let text = text(&json!({ "rounds": rounds })).unwrap();
        assert!(text.contains("  1.20 (1.10 to 1.50)   120 and 100 ns a frame (target 1.3)"), "{text}");
        assert!(text.contains("  2.00 (1.00 to 3.00)   300 and 200 ns a frame (target 1.3, missed)"), "{text}");
    }
}
