//! Options that say how siga reaches other hosts and builds.

use clap::Args;
use siga_measure::config;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_plan::matrix::Matrix;
use siga_plan::place::Place;
use siga_plan::plan::Plan;
use std::path::Path;

/// The command that reaches other hosts, and the checkout of builds. They are not part of a plan, so that neither a plan nor a run
/// directory executes anything.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// Set the command with which siga connects to the places ssh:HOST. Default: the command in
    /// ~/.config/siga/config.toml, otherwise ssh.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh: Option<String>,
    /// Measure the whole plan in each of these places, such as ssh:HOST, and compare them. The places take turns, round by
    /// round. siga copies itself to other hosts. Default: this host only.
    #[arg(long, value_delimiter = ',', value_name = "PLACE,…", value_parser = crate::parse::<Place>)]
    pub(crate) on: Vec<Place>,
    /// Name the git checkout of siga whose revisions levels use as builds (git:REVISION). siga compiles a revision with
    /// cargo, in a directory of its own below ~/.cache/siga/builds, and keeps the program there. Default: none.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkout: Option<std::path::PathBuf>,
}

impl Reach {
    /// Returns the command that reaches the hosts of a plan, or those of `--on`.
    pub(crate) fn of_plan(&self, plan: &Plan, matrix: &Matrix) -> Result<String> {
        let mut hosts = plan.hosts(matrix);
        if let (Some(host), Some(on)) = (hosts.first(), self.on.first()) {
            return Err(Error::usage(format!("the plan reaches ssh:{host} by itself, so it cannot run on {on}"))
                .hint("remove --on, or use a plan whose paths need no other host"));
        }
        for (at, place) in self.on.iter().enumerate() {
            if self.on[..at].contains(place) {
                return Err(Error::usage(format!("--on names {place} twice")).hint("name each place once"));
            }
            if let Place::Ssh(host) = place {
                hosts.push(host.clone());
            }
        }
        self.command(&hosts)
    }

    /// Returns the command that reaches these hosts.
    pub(crate) fn command(&self, hosts: &[String]) -> Result<String> {
        match (&self.ssh, hosts) {
            // No host is reached, so the command is never executed and the configuration file is not needed.
            (None, []) => Ok(config::SSH.to_owned()),
            (Some(_), []) => {
                Err(Error::usage("--ssh has no effect, because no option names a place on another host (ssh:HOST)")
                    .hint("use --client and --server, or --on, with ssh:HOST, or remove --ssh"))
            }
            (given, _) => config::ssh(given.as_deref()),
        }
    }

    /// Returns the command for a resumed run. Only `--ssh` can set it, because the hosts come from the run directory, which another
    /// user may have written.
    pub(crate) fn command_again(&self, hosts: &[String], directory: &Path) -> Result<String> {
        if let (None, [first, others @ ..]) = (&self.ssh, hosts) {
            let known = config::ssh(None).unwrap_or_else(|_| config::SSH.to_owned());
            let hosts = others.iter().fold(format!("ssh:{first}"), |all, host| format!("{all}, ssh:{host}"));
            return Err(Error::usage(format!(
                "to resume the run in {}, siga must connect to these hosts again: {hosts}",
                directory.display()
            ))
            .hint(format!(
                "siga connects to hosts from a run directory only with your permission; if you trust this directory, use `siga run --resume {} --ssh {}`",
                text::shell(&directory.to_string_lossy()),
                text::shell(&known)
            )));
        }
        self.command(hosts)
    }
}
