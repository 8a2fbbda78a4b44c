//! `siga net upgrade`: replaces the processes of a network by another build of siga.

use crate::print;
use clap::Args;
use siga_fabric::protocol::request::{Answer, Request};
use siga_fabric::upgrade::{self, Upgraded};
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use std::path::PathBuf;
use std::time::Duration;

/// The longest time between two answers: the new process of a guest has 10 s to start.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

pub(super) const HELP: &str = "\
Examples:
  siga net upgrade figure-1                   replace its processes by this build of siga
  siga net upgrade figure-1 --to ./siga-new   replace its processes by the build in this file";

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// Name of the network that `siga net up` started.
    network: Name,
    /// Program file of the new build. Default: the program of this command.
    #[arg(long)]
    to: Option<PathBuf>,
}

pub(super) fn run(args: &UpgradeArgs) -> Result<()> {
    let Upgraded { mut client, version, pids } = upgrade::control_program(&args.network, args.to.as_deref())?;
    let pid = |pid: Option<u32>| pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    print(&format!("control program: replaced, process {} by {} (siga {version})\n", pid(pids[0]), pid(pids[1])))?;
    let mut kept = 0;
    client.ask(Request::Replace, Vec::new())?;
    loop {
        match client.answer(ANSWER_TIME_MAX)? {
            Some(Answer::Replaced { guest, pids, gap_us }) => print(&format!(
                "{guest}: replaced, process {} by {}, gap {}.{:03} ms\n",
                pids[0],
                pids[1],
                gap_us / 1_000,
                gap_us % 1_000
            ))?,
            Some(Answer::Kept { guest, why }) => {
                kept += 1;
                print(&format!("{guest}: not replaced, and goes on: {why}\n"))?;
            }
            Some(Answer::Done) => break,
            Some(_) => {}
            None => return Err(Error::environment("the control program does not answer")),
        }
    }
    if kept > 0 {
        return Err(Error::incomplete(format!("guests with the old build: {kept}"))
            .hint("docs/upgrade.md says what cannot be replaced while it runs"));
    }
    Ok(())
}
