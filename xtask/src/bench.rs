//! Benchmarks that compare programs within one run: siga's own networks with the kernel's paths, its workload drivers with
//! well-known C drivers, and unmodified programs under `siga exec` with the same programs on the kernel's sockets.

mod attacked;
pub(crate) mod disturb;
pub(crate) mod drivers;
mod figures;
mod hog;
mod laboratory;
pub(crate) mod links;
pub(crate) mod network;
mod ports;
pub(crate) mod programs;
mod record;

use std::path::{Path, PathBuf};

use crate::command;

const BUILD: &str = "cargo build --release --package siga";

/// Builds siga with the release profile. Returns the program's path.
fn build(root: &Path) -> Result<PathBuf, String> {
    command::built(root, BUILD)
}

/// A directory next to the program, for the files that one comparison writes.
fn scratch(siga: &Path) -> PathBuf {
    siga.with_file_name(format!("bench-{}", std::process::id()))
}

/// Sorts `values` and returns the median (the mean of the two middle values if their number is even).
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
