//! Lists every command that a run of a plan executes, so that a user can read the list before the run starts.
//!
//! The functions that build the commands for a run also build this list. It shows placeholders for values that are known only
//! after a path was built.

use crate::agent::launch::{AgentOptions, agent_command};
use crate::agent::ssh;
use crate::path::{filter, holder};
use crate::trial::command::runner;
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use siga_plan::matrix::Matrix;
use siga_plan::path::PathKind;
use siga_plan::place::Place;
use siga_plan::plan::Plan;
use siga_plan::route::Route;
use std::path::Path;
use std::process::Command;

/// A command and its purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Program and arguments, quoted for a shell.
    pub line: String,
    /// The purpose of the command, and the input that siga sends to it.
    pub about: String,
}

/// Returns the commands that the cells of a plan need, in the order of the cells and without duplicates. `ssh` is the command
/// that connects to other hosts.
///
/// # Errors
/// Returns an error of kind `Usage` if `ssh` is not a valid command. Returns an error of kind `Environment` if the size of this
/// program cannot be read.
pub fn of(plan: &Plan, matrix: &Matrix, ssh: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut add = |command: &Command, about: String| {
        let step = Step { line: line(command), about };
        if !steps.contains(&step) {
            steps.push(step);
        }
    };
    for cell in &matrix.cells {
        if let Some(command) = plan.command_of(cell) {
            add(&runner(), "this program: runs a command of the plan, and ends what the command leaves behind".into());
            let words = command.words(cell.clients);
            let mut own = Command::new(&words[0]);
            own.args(&words[1..]);
            add(&own, format!("the command {} of the plan", cell.workload));
            continue;
        }
        let route: Route = cell.path.parse()?;
        let holder = holder::command(Path::new("/proc/self/exe"));
        let ends = match &route {
            Route::Places(client, server) => [client.clone(), server.clone()],
            Route::Host => continue,
            Route::Guests(_) => {
                add(&holder, format!("this program (siga): starts the control program and the guests of path {route}"));
                [Place::Local, Place::Local]
            }
            Route::Built(kind) => {
                add(&holder, format!("this program (siga): builds path {kind} in its own namespaces"));
                [built(), built()]
            }
        };
        let level = matrix.levels.iter().find(|level| level.name == cell.level);
        if matches!(route, Route::Built(_)) && level.is_some_and(|level| level.nftables.is_some()) {
            let [load, list] = filter::commands();
            add(
                &load,
                format!(
                    "loads the ruleset of level {}, which siga writes to its input, in a namespace of the path",
                    cell.level
                ),
            );
            add(&list, "lists the loaded rules in the same namespace".into());
        }
        for end in &ends {
            let (mut command, about) = end_of(end, ssh)?;
            if route == Route::Built(PathKind::Sockmap) {
                command.args(["--sockmap", "FD"]);
            }
            add(&command, about);
        }
        if plan.processes {
            add(
                &agent_command(&AgentOptions::default()),
                "this program (siga): one worker process for each client-server pair, on both sides".into(),
            );
        }
    }
    Ok(steps)
}

/// Returns a placeholder for the namespace of a path that is not built yet.
fn built() -> Place {
    Place::Built("/proc/HOLDER/fd/N".into(), Some("/proc/HOLDER/ns/user".into()))
}

/// Returns the command that starts an agent in a place, and the purpose of the command.
fn end_of(place: &Place, ssh: &str) -> Result<(Command, String)> {
    let about = match place {
        Place::Local => "this program (siga): the agent for client or server".into(),
        Place::Netns(_) | Place::Pid(_) => format!("this program (siga): the agent for client or server, in {place}"),
        Place::Built(..) => "this program (siga): the agent for client or server, in its namespace".into(),
        Place::Ssh(host) => {
            let program = std::fs::metadata("/proc/self/exe").context("cannot read the size of the running program")?;
            let about = format!(
                "connects to {place}; siga copies itself there through the command's input and runs as the agent"
            );
            return Ok((ssh::command(host, ssh, program.len()).map_err(|error: Error| error.at("--ssh"))?, about));
        }
    };
    Ok((agent_command(&AgentOptions::in_place(place)), about))
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| text::shell(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(plan: &Plan) -> Vec<String> {
        let steps = of(plan, &plan.matrix().unwrap(), "ssh -F 'my file'").unwrap();
        steps.into_iter().map(|step| step.line).collect()
    }

    #[test]
    fn the_list_has_the_command_that_enters_each_place() {
        let path = "ssh:me@blue>netns:red".to_owned();
        let plan = Plan { paths: vec![path, "pid:7>local".into()], ..Plan::default() };
        let lines = lines(&plan);
        assert!(
            lines[0].starts_with(r"ssh -F ''\''my' 'file'\''' -T -o BatchMode=yes me@blue 'exec sh -c "),
            "{lines:?}"
        );
        assert_eq!(
            lines[1..],
            [
                "/proc/self/exe agent --net /run/netns/red",
                "/proc/self/exe agent --net /proc/7/ns/net --user /proc/7/ns/user",
                "/proc/self/exe agent",
            ]
        );
    }

    #[test]
    fn the_list_has_the_commands_of_rulesets_and_built_paths() {
        let plan = Plan {
            paths: vec!["veth".into()],
            levels: vec!["plain".into(), "nft-100-rules".into()],
            processes: true,
            ..Plan::default()
        };
        let lines = lines(&plan);
        let has = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        assert_eq!(
            (has("/proc/self/exe namespace-holder"), has("nft -e -f -"), has("nft -s -j list ruleset")),
            (1, 1, 1),
            "{lines:?}"
        );
        assert_eq!(has("agent --net /proc/HOLDER/fd/N --user /proc/HOLDER/ns/user"), 1, "{lines:?}");
        assert!(lines.contains(&"/proc/self/exe agent".to_owned()), "{lines:?}");
    }
}
