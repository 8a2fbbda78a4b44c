//! The command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("keep") => siga_lab::path::keeper::keep(),
        Some(_) | None => Err(siga_lab::Error::usage("the only command is `keep`")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("siga: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}
