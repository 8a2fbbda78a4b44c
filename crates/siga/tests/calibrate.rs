//! Known costs planted into real trials come back: by `profile`, `tick` and `subtract`, and in the latency.
//!
//! Where planting into the router or profiling is refused, those rows are skipped with the reason. Time is not asserted;
//! what is asserted are ratios of two measurements taken side by side.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

use assert_cmd::Command;
use siga_lab::doctor::{Report, Verdict};

/// Share of the CPUs, in percent, that others may use before a row that cannot be told is their doing.
const OTHERS_PERCENT_MAX: f64 = 5.0;

#[test]
fn planted_costs_are_recovered() {
    let output =
        Command::cargo_bin("siga").unwrap().args(["doctor", "--calibrate", "--format", "json"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if text.is_empty() {
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{error}");
        println!("skipped, because no path can be built here: {error}");
        return;
    }
    let report: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(report.schema, "siga/doctor/1");
    let calibration = report.calibration.as_ref().unwrap();
    println!("{}", report.text());
    for absent in &calibration.skipped {
        println!("skipped, because {}: {} by {}", absent.reason, absent.planted_in, absent.way);
    }
    let others = calibration.others_percent;
    for row in &calibration.rows {
        match row.verdict {
            Verdict::Recovered => {}
            Verdict::Off => panic!("a cost in {} is not recovered by {}: {row:?}", row.planted_in, row.way),
            Verdict::Undecided => {
                let noisy = others.is_none_or(|percent| percent > OTHERS_PERCENT_MAX) || row.note.is_some();
                assert!(noisy, "undecided on a quiet host: {row:?}");
                println!("skipped, because others use the CPUs ({others:?}%): {} by {}", row.planted_in, row.way);
            }
        }
    }
    let decided = calibration.rows.iter().filter(|row| row.verdict == Verdict::Recovered).count();
    assert!(decided > 0, "nothing could be told");
    let all = decided == calibration.rows.len();
    assert_eq!(output.status.code(), Some(if all { 0 } else { 4 }));
}
