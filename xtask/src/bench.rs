//! What siga is compared with, each beside the other in one run: its own networks with the kernel's paths, its drivers with
//! the field's C drivers.

pub(crate) mod drivers;
pub(crate) mod network;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Builds siga as it would be released; where it is.
fn build(root: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root).args(["build", "--release", "--package", "siga", "--message-format", "json"]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    program.ok_or_else(|| "cargo build made no program".to_owned())
}

/// Sorts and takes the median (the mean of the two in the middle).
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
    }
}
