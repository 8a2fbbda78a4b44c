//! The suites of `cargo xtask nightly`. A further suite is one more entry of the table.

use std::time::Duration;

use crate::vm;

/// A suite: one command that fails if a check fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// The command line, without quoting. The command runs in the root of the source tree.
    pub(super) command: &'static str,
    /// The usual duration with the build, in minutes.
    pub(super) usual_minutes: u64,
    /// The time limit, in minutes.
    pub(super) limit_minutes: u64,
    /// Without these, the suite is skipped.
    pub(super) needs: &'static [Need],
}

/// What a suite needs from the host.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    Root,
    /// A program in `PATH`.
    Program {
        name: &'static str,
        package: &'static str,
    },
}

const CXX: Need = Need::Program { name: "c++", package: "g++" };

/// All suites, in the order in which they run.
pub(super) const SUITES: &[Suite] = &[
    suite("loom", "cargo xtask loom", 5, 20, &[]),
    suite("miri", "cargo xtask miri", 10, 30, &[]),
    suite("instructions", "cargo xtask instructions", 5, 20, &[program("valgrind", "valgrind")]),
    suite("dialogue", "cargo test --locked --package siga-stack --test dialogue -- --ignored", 3, 15, &[]),
    suite("memory", "cargo test --locked --package siga-stack --test memory -- --ignored", 3, 15, &[]),
    suite(
        "net",
        "cargo test --locked --package siga --test net --test exec -- --ignored --skip needs_vm::",
        3,
        15,
        &[],
    ),
    suite(
        "upgrade",
        "cargo test --locked --release --package siga --test upgrade -- --ignored --nocapture",
        8,
        20,
        &[],
    ),
    suite("direct", "cargo test --locked --package siga-fabric --test direct -- --ignored", 10, 30, &[]),
    suite(
        "kernel",
        "env SIGA_BULK_BYTES=1000000000 cargo test --locked --package siga-stack --test kernel",
        3,
        15,
        &[Need::Root],
    ),
    suite(
        "switch-bytes",
        "env SIGA_SWITCH_BYTES=1073741824 cargo test --locked --package siga --test switch -- long_streams --test-threads 1",
        10,
        30,
        &[Need::Root],
    ),
    suite(
        "packets",
        "cargo xtask differential --packets --for 10m",
        11,
        20,
        &[Need::Root, program("unshare", "util-linux"), program("chrt", "util-linux"), program("ip", "iproute2")],
    ),
    suite(
        "differential",
        "cargo xtask differential --for 1h",
        62,
        75,
        &[Need::Root, program("unshare", "util-linux"), program("chrt", "util-linux"), program("ip", "iproute2")],
    ),
    suite("programs", "cargo xtask programs", 20, 45, &[]),
    suite("vm", "cargo xtask vm-tests", 10, 30, &[program(vm::QEMU.0, vm::QEMU.1)]),
    suite("sim", "cargo xtask sim --for 30m", 31, 40, &[]),
    suite("fuzz-frames", "cargo xtask fuzz frames --for 10m", 12, 20, &[CXX]),
    suite("fuzz-dialogue", "cargo xtask fuzz dialogue --for 10m", 11, 20, &[CXX]),
    suite("fuzz-reassembly", "cargo xtask fuzz reassembly --for 10m", 11, 20, &[CXX]),
    suite("fuzz-ring", "cargo xtask fuzz ring --for 10m", 11, 20, &[CXX]),
    suite("fuzz-direct", "cargo xtask fuzz direct --for 10m", 11, 20, &[CXX]),
    suite("fuzz-control", "cargo xtask fuzz control --for 10m", 11, 20, &[CXX]),
    suite("fuzz-switch", "cargo xtask fuzz switch --for 10m", 11, 20, &[CXX]),
    suite("fuzz-addresses", "cargo xtask fuzz addresses --for 10m", 11, 20, &[CXX]),
    suite("fuzz-cni", "cargo xtask fuzz cni --for 10m", 11, 20, &[CXX]),
    suite("fuzz-filter", "cargo xtask fuzz filter --for 10m", 11, 20, &[CXX]),
    suite("fuzz-blocks", "cargo xtask fuzz blocks --for 10m", 11, 20, &[CXX]),
    suite("soak", "cargo xtask soak --for 1h", 65, 80, &[]),
    suite("soak-switch", "cargo xtask soak switch --for 1h", 62, 75, &[Need::Root, program("ip", "iproute2")]),
    suite("soak-copy", "cargo xtask soak copy", 1, 10, &[]),
    suite("soak-crr", "cargo xtask soak crr", 2, 15, &[]),
    suite("soak-hold", "cargo xtask soak hold", 11, 20, &[]),
    // The rows of the comparison include those with a hostile guest and a hostile namespace, `attacked` and `attacked-switch`.
    suite("bench", "cargo xtask bench --all-axes --out target/nightly/bench.json", 25, 40, &[]),
    suite(
        "bench-drivers",
        "cargo xtask bench-drivers",
        4,
        15,
        &[Need::Root, program("iperf3", "iperf3"), program("qperf", "qperf"), program("sockperf", "sockperf")],
    ),
];

const fn suite(
    name: &'static str,
    command: &'static str,
    usual_minutes: u64,
    limit_minutes: u64,
    needs: &'static [Need],
) -> Suite {
    Suite { name, command, usual_minutes, limit_minutes, needs }
}

const fn program(name: &'static str, package: &'static str) -> Need {
    Need::Program { name, package }
}

impl Suite {
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_minutes * 60)
    }

    /// Returns why this host cannot run the suite.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.needs.iter().find_map(|need| match need {
            Need::Root => (!rustix::process::geteuid().is_root()).then(|| "the suite needs root".to_owned()),
            Need::Program { name, package } => vm::program(name, package).err(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use clap::CommandFactory as _;

    use super::*;
    use crate::tidy::tree;

    #[test]
    fn the_help_names_the_duration_of_all_suites() {
        let command = crate::Cli::command();
        let nightly = command.find_subcommand("nightly").unwrap();
        let about = nightly.get_about().unwrap().to_string();
        let hours = |minutes: fn(&Suite) -> u64| SUITES.iter().map(minutes).sum::<u64>() as f64 / 60.0;
        let (usual, limit) = (hours(|suite| suite.usual_minutes), hours(|suite| suite.limit_minutes));
        assert!((7.5..8.5).contains(&usual) && about.contains("about eight hours"), "{usual} {about}");
        assert!((13.5..15.0).contains(&limit) && about.contains("at most fifteen"), "{limit} {about}");
    }

    #[test]
    fn every_suite_has_its_own_name_and_a_limit_above_its_duration() {
        let names: HashSet<&str> = SUITES.iter().map(|suite| suite.name).collect();
        assert_eq!(names.len(), SUITES.len());
        for suite in SUITES {
            assert!(suite.limit_minutes > suite.usual_minutes, "{suite:?}");
        }
    }

    #[test]
    fn every_task_of_a_suite_exists() {
        for suite in SUITES {
            let Some(words) = suite.command.strip_prefix("cargo xtask ") else { continue };
            let words = std::iter::once("xtask").chain(words.split(' '));
            crate::Cli::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{suite:?}: {error}"));
        }
    }

    #[test]
    fn every_fuzz_target_has_a_suite() {
        for target in crate::fuzz::names() {
            let command = format!("cargo xtask fuzz {target} --for 10m");
            assert!(SUITES.iter().any(|suite| suite.command == command), "{target}");
        }
    }

    #[test]
    fn every_ignored_test_names_the_suite_that_runs_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut count = 0;
        for file in tree::load(root).unwrap().iter().filter(|file| file.path.starts_with("crates/")) {
            for line in file.text.lines().filter(|line| line.starts_with("#[ignore")) {
                count += 1;
                let named =
                    line.split_once("`cargo xtask nightly --only ").and_then(|(_, rest)| rest.split('`').next());
                let has_suite = named.is_some_and(|name| SUITES.iter().any(|suite| suite.name == name));
                assert!(has_suite || line.contains("other tests start it"), "{}: {line}", file.path);
            }
        }
        assert!(count >= 6, "{count}");
    }
}
