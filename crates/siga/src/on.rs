//! `siga run --on`: one plan on several hosts, in turns, with a run directory for each.

use crate::compare::print_hosts;
use crate::live::Live;
use crate::measure::{RunArgs, announce, file_name, new_directory, seed, verdict};
use crate::{note, print_run};
use siga_measure::build::{Builds, check_checkout};
use siga_measure::run::hosts::{self, Host, HostRun};
use siga_measure::topology::Networks;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_plan::place::Place;
use siga_plan::plan::Plan;
use siga_report::Layout;
use siga_results::judge;
use siga_results::store::{Run, Store};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Measures the plan in each place, then prints the comparison of the hosts, or the report of a single one.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let mut plan = args.axes.plan()?;
    let matrix = plan.matrix()?;
    Builds::refuse(&matrix)?;
    Networks::refuse(&matrix)?;
    check_checkout(&matrix, args.reach.checkout.as_deref())?;
    if plan.memory_limit.is_some() {
        return Err(
            Error::usage("siga limits the memory of a run only on this host").hint("remove --memory-limit or --on")
        );
    }
    let ssh = args.reach.of_plan(&plan, &matrix)?;
    let now = SystemTime::now();
    seed(&mut plan, now);
    // All hosts are reached before anything is written, so that a wrong name costs nothing.
    let hosts = args.reach.on.iter().map(|place| Host::open(place, &ssh)).collect::<Result<Vec<_>>>()?;
    let directory = args.out.clone().unwrap_or_else(|| new_directory(&plan, now));
    let mut live = Live::new(hosts.iter().any(|host| host.environment.is_emulated()));
    let mut runs = Vec::new();
    for (index, (host, place)) in hosts.into_iter().zip(&args.reach.on).enumerate() {
        announce(&host.environment);
        let (store, run) = create(&directory, index, place, &plan, &host)?;
        runs.push(HostRun { host, store, run });
    }
    let ended = hosts::run(runs, &mut live)?;
    live.end();
    let measured: Vec<&Run> = ended.iter().map(|ended| &ended.run).collect();
    print_report(args, &measured)?;
    for ended in ended {
        match ended.cut_short {
            Some(error) => return Err(error),
            None => {
                let directory = ended.run.directory.display();
                let hint = format!("`siga show {directory}` lists the reasons");
                verdict(&ended).map_err(|error| error.at(directory).hint(hint))?;
            }
        }
    }
    Ok(())
}

/// Makes the run directory of a place, such as `runs/20261120-104133-default/2-ssh-blue`.
fn create(directory: &Path, index: usize, place: &Place, plan: &Plan, host: &Host) -> Result<(Store, Run)> {
    let own = directory.join(format!("{}-{}", index + 1, file_name(&place.to_string())));
    Store::create(&own, plan, &host.environment)
}

fn print_report(args: &RunArgs, runs: &[&Run]) -> Result<()> {
    let [base, others @ ..] = runs else { return Ok(()) };
    if others.is_empty() {
        return print_run(base, args.format, Layout::Plain, base.plan.accounting);
    }
    let compared: Result<Vec<_>> = others.iter().map(|other| judge::hosts::compare(base, other)).collect();
    match compared {
        Ok(compared) => print_hosts(&compared, args.format, false)?,
        // The reason why a host has no trial follows as the error of its run.
        Err(error) => note(&format!("note: the hosts are not compared: {}", error.message())),
    }
    let shown = |path: &PathBuf| text::shell(&path.to_string_lossy());
    let all: Vec<String> = runs.iter().map(|run| shown(&run.directory)).collect();
    note(&format!("`siga show DIR` shows the run of a host: {}", all.join(", ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_directory_of_a_place_has_a_plain_name() {
        assert_eq!(super::file_name("ssh:me@[fe80::1%eth0]"), "ssh-me--fe80--1-eth0-");
    }
}
