//! siga's processes without its command line: the program that the tests of networks start.
//!
//! `net control` and `net guest` are a control program and its guests. `net up`, `down` and `request` are its clients, in processes of
//! their own: a control program takes only few requests from a process that attached.

use siga_fabric::client::{self, Client};
use siga_fabric::protocol::request::Answer;
use siga_model::error::{Error, IoContext, Result};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["net", "control", base] => siga_fabric::upgrade::run_control(Path::new(base)),
        ["net", "build"] => siga_fabric::upgrade::say_build(),
        ["net", "guest" | "switch", _] => siga_fabric::guest::process::run(),
        ["net", "up", name, topology] => up(name, topology),
        ["net", "down", name] => name.parse().and_then(|name| client::down(&name)),
        ["net", "request", name, request] => answers(name, request),
        _ => Err(Error::usage("this program is for tests: it takes net control, guest, up, down or request")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a network below `SIGA_RUN_DIR`.
fn up(name: &str, topology: &str) -> Result<()> {
    let text = std::fs::read_to_string(topology).context("cannot read the topology")?;
    client::up(&name.parse()?, &text).map(drop)
}

/// Makes a request in JSON, and prints the answers in JSON. A refusal is the last answer.
fn answers(name: &str, request: &str) -> Result<()> {
    let request = serde_json::from_str(request).context("cannot read the request")?;
    let answers = match Client::connect(&name.parse()?)?.request(request) {
        Ok(answers) => answers,
        Err(error) => vec![Answer::Failed(error)],
    };
    serde_json::to_writer(std::io::stdout(), &answers).map_err(std::io::Error::from).context("cannot write the answers")
}
