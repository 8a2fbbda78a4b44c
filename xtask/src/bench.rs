//! Comparisons within one run: siga's own networks with the kernel's paths, its workload drivers with well-known C drivers.

mod attacked;
pub(crate) mod drivers;
mod hog;
pub(crate) mod network;

use std::path::{Path, PathBuf};

use crate::command;

const BUILD: &str = "cargo build --release --package siga";

/// Builds siga as it would be released; where it is.
fn build(root: &Path) -> Result<PathBuf, String> {
    command::built(root, BUILD)
}

/// A directory beside the program, for what one comparison writes.
fn scratch(siga: &Path) -> PathBuf {
    siga.with_file_name(format!("bench-{}", std::process::id()))
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
