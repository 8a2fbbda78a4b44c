//! The laboratory's own driver of the kernel's sockets, loaded with the preload library, beside the same workload over the Rust API of
//! siga's applications.
//!
//! The driver needs a siga that is linked dynamically and makes its system calls through libc. siga reaches both ends as if they were
//! other hosts: the command in the place of ssh runs the driver under `siga exec`.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::places::Place;
use super::{Bench, Options};
use crate::bench::figures::{Figures, Ratio, mode_lines, modes_json, ratio_lines};
use crate::bench::laboratory;
use crate::command;

/// The name of the row.
pub(super) const NAME: &str = "driver";

const BUILD: &str = "cargo build --release --package siga --target-dir target/dynamic";
const FLAGS: &str = "-C target-feature=-crt-static --cfg rustix_use_libc";
/// The path with the same guests over the Rust API.
const RUST_API: &str = "hipersockets-iucv";

/// The workloads: name, pairs, and unit.
const WORKLOADS: [(&str, &str, &str); 4] = [
    ("rr-200-1000", "1", "trans/sec"),
    ("rr-200-1000", "10", "trans/sec"),
    ("crr-64-8k", "10", "trans/sec"),
    ("strg-20m", "1", "MB/sec"),
];

/// Measures the driver. Returns the text for the terminal, and the figures of each round as JSON.
pub(super) fn measure(root: &Path, bench: &Bench, options: &Options) -> Result<(String, Value), String> {
    let mut build = command::command(root, BUILD);
    build.env("RUSTFLAGS", FLAGS).arg("--message-format=json-render-diagnostics");
    let messages = command::messages(build)?;
    let program = messages.iter().rev().find_map(|message| message["executable"].as_str());
    let program = Path::new(program.ok_or("the build made no program")?);
    let reach = bench.places.reach(&bench.directory.0)?;
    let seconds = f64::from(options.seconds) / 2.0;
    let (mut text, mut json) = (String::new(), Vec::new());
    for (workload, clients, unit) in WORKLOADS {
        let mut modes = [("the driver under `siga exec`", Vec::new()), ("the Rust API", Vec::new())];
        for round in 0..options.rounds {
            let mut order = [0, 1];
            order.rotate_left(usize::try_from(round).unwrap_or(0) % 2);
            for at in order {
                let what = |command: &mut Command| {
                    command.args(["--workload", workload, "--clients", clients, "--wait", "block"]);
                    if at == 0 {
                        command.args(["--client", "ssh:client", "--server", "ssh:server"]);
                        command.args(["--server-address", Place::TwoGuests.address()]);
                        command.args(["--ssh", &format!("sh {}", reach.display())]);
                    } else {
                        command.args(["--path", RUST_API]);
                    }
                };
                let siga = if at == 0 { program } else { &bench.siga };
                let json = laboratory::run(siga, &bench.directory.0, what, seconds)?;
                let figures = Figures::of(&json["cells"][0]).map_err(|error| format!("{}: {error}", modes[at].0))?;
                modes[at].1.push(figures);
            }
        }
        let modes: Vec<(String, Vec<Figures>)> =
            modes.into_iter().map(|(name, trials)| (name.to_owned(), trials)).collect();
        let pair = (&modes[0].1[..], &modes[1].1[..]);
        let ratios = [
            Ratio::of("rate over the Rust API", Some(0.9), pair, |it| it.rate),
            Ratio::of("CPU a unit", Some(1.15), pair, |it| it.cpu),
            Ratio::of("p99", None, pair, |it| it.p99),
        ];
        text += &format!(
            "\n{NAME}: {workload}, {clients} pairs\n{}{}",
            ratio_lines(&ratios, options.rounds),
            mode_lines(unit, &modes)
        );
        json.push(json!({
            "workload": workload,
            "clients": clients,
            "unit": unit,
            "ratios": ratios.iter().map(Ratio::json).collect::<Vec<_>>(),
            "modes": modes_json(&modes),
        }));
    }
    Ok((text, json!({ "row": NAME, "workloads": json })))
}
