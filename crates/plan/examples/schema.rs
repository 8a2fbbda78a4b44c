//! Prints the JSON Schema of a plan or a level. `cargo xtask schema` uses this output to write and check the published files.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use siga_plan::level::Level;
use siga_plan::plan::Plan;

fn main() -> Result<(), String> {
    let schema = match std::env::args().nth(1).as_deref() {
        Some("plan") => schemars::schema_for!(Plan),
        Some("level") => schemars::schema_for!(Level),
        Some(_) | None => return Err("say plan or level".into()),
    };
    println!("{}", serde_json::to_string_pretty(&schema).map_err(|error| error.to_string())?);
    Ok(())
}
