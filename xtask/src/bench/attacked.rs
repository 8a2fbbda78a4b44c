//! How much a hostile guest slows down two other guests (`crates/siga/examples/attacked`). Measures the rates of a stream and of
//! transactions through a router, and between two guests at one switch, with and without a flood of packets.
//!
//! No target exists, because the flood uses CPU time and the host's scheduler decides how much of it the other guests lose.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::median;
use crate::command;

/// A row of the benchmark's result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    title: &'static str,
    /// A further argument of the program.
    argument: Option<&'static str>,
}

impl Attack {
    /// Returns true if the host has to permit `siga netns`.
    pub(crate) fn needs_namespaces(self) -> bool {
        self.argument.is_some()
    }
}

/// All rows.
pub(crate) const ATTACKS: [Attack; 2] = [
    Attack {
        name: "attacked",
        title: "two guests through a router, beside a hostile guest and without it",
        argument: None,
    },
    Attack {
        name: "attacked-switch",
        title: "two guests at one switch, beside a namespace that floods it and without it",
        argument: Some("switch"),
    },
];

const BUILD: &str = "cargo build --release --package siga --example attacked";
/// The workloads: the name in the program's output, the name in the table, and the unit.
const WORKLOADS: [(&str, &str, &str); 2] = [("rr", "RR 200/1000", "trans/sec"), ("strg", "STRG", "MB/sec")];

/// Measures with the program `siga`. Returns the text for the terminal and the rates of each round as JSON.
pub(crate) fn measure(
    root: &Path,
    siga: &Path,
    attack: Attack,
    (rounds, seconds): (u32, f64),
) -> Result<(String, Value), String> {
    let mut program = Command::new(command::built(root, BUILD)?);
    program.arg(siga).args([rounds.to_string(), seconds.to_string()]).args(attack.argument);
    let output = command::output(program)?;
    let mut json: Value = serde_json::from_str(&output).map_err(|error| format!("{}: {error}", attack.name))?;
    let text = text(attack, &json)?;
    json["row"] = attack.name.into();
    Ok((text, json))
}

fn text(attack: Attack, json: &Value) -> Result<String, String> {
    let rounds = json["rounds"].as_array().filter(|rounds| !rounds.is_empty()).ok_or("no round was measured")?;
    let mut text = format!("\n{}: {}\n", attack.name, attack.title);
    for (key, name, unit) in WORKLOADS {
        let of = |side: usize| rounds.iter().map(move |round| round[key][side].as_f64().unwrap_or(f64::NAN));
        let mut ratios: Vec<f64> = of(1).zip(of(0)).map(|(attacked, alone)| attacked / alone).collect();
        let [mut alone, mut attacked] = [0, 1].map(|side| of(side).collect::<Vec<f64>>());
        let (ratio, alone, attacked) = (median(&mut ratios), median(&mut alone), median(&mut attacked));
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let _ =
            writeln!(text, "  {name:<12} {ratio:>6.2} ({least:.2} to {most:.2})   {attacked:.0} of {alone:.0} {unit}");
    }
    let mut floods: Vec<f64> =
        json["packets_per_second"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    if !floods.is_empty() {
        let _ = writeln!(text, "  the hostile guest sent {:.0} packets/sec", median(&mut floods));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_has_the_median_ratio_within_rounds_and_its_spread() {
        let rounds = json!([
            { "rr": [100.0, 50.0], "strg": [10.0, 9.0] },
            { "rr": [200.0, 180.0], "strg": [10.0, 10.0] },
            { "rr": [100.0, 80.0], "strg": [10.0, 8.0] },
        ]);
        let text = text(ATTACKS[0], &json!({ "rounds": rounds, "packets_per_second": [7.0, 9.0] })).unwrap();
        assert!(text.contains("RR 200/1000    0.80 (0.50 to 0.90)   80 of 100 trans/sec"), "{text}");
        assert!(text.contains("STRG           0.90 (0.80 to 1.00)   9 of 10 MB/sec"), "{text}");
        assert!(text.contains("sent 8 packets/sec"), "{text}");
    }
}
