//! Lists every command that a run of a plan executes, so that a user can read the list before the run starts.
//!
//! The functions that build the commands for a run also build this list. It shows placeholders for values that are known only
//! after a path was built.

use crate::agent::launch::{AgentOptions, Programs, RUNNING, Role, command_as};
use crate::agent::ssh;
use crate::build;
use crate::path::{filter, holder};
use crate::trial::command::runner;
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use siga_plan::build::Build;
use siga_plan::command::hooks::Scope;
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::path::PathKind;
use siga_plan::path::own::{OwnPath, Source};
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
/// that connects to other hosts. `on` are the places in which a run on several hosts measures. `checkout` is the git checkout of levels that
/// name a revision.
///
/// # Errors
/// Returns an error of kind `Usage` if `ssh` is not a valid command. Returns an error of kind `Environment` if the size of this
/// program cannot be read.
pub fn of(plan: &Plan, matrix: &Matrix, on: &[Place], ssh: &str, checkout: Option<&Path>) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut add = |command: &Command, about: String| {
        let step = Step { line: line(command), about };
        if !steps.contains(&step) {
            steps.push(step);
        }
    };
    for place in on {
        let (command, about) = process_in(place, Role::Measurer, Programs { siga: Path::new(RUNNING), ssh })?;
        add(&command, about);
    }
    for (command, about) in of_builds(matrix, checkout) {
        add(&command, about);
    }
    for cell in &matrix.cells {
        if let Some(command) = plan.command_of(cell) {
            for (command, about) in of_command(matrix, cell, command) {
                add(&command, about);
            }
            continue;
        }
        let route: Route = cell.path.parse()?;
        let level = matrix.levels.iter().find(|level| level.name == cell.level);
        let program = build::shown(level);
        let holder = holder::command(&program);
        let ends = match &route {
            Route::Places(client, server) => [client.clone(), server.clone()],
            Route::Host => continue,
            Route::Guests(_) => {
                add(&holder, format!("this program (siga): starts the control program and the guests of path {route}"));
                [Place::Local, Place::Local]
            }
            // siga only sends requests to the control program of a network that is up.
            Route::Own(OwnPath { source: Source::Up(_), .. }) => [Place::Local, Place::Local],
            Route::Own(_) => {
                add(&holder, format!("this program (siga): starts the control program and the guests of {route}"));
                [Place::Local, Place::Local]
            }
            Route::Built(kind) => {
                add(&holder, format!("this program (siga): builds path {kind} in its own namespaces"));
                [built(), built()]
            }
        };
        if matches!(route, Route::Built(_)) && level.is_some_and(|level| level.nftables.is_some()) {
            let [load, list] = filter::commands();
            add(
                &load,
                format!(
                    "loads the rules of level {} in a namespace of the path; siga writes the rules to the standard input of nft",
                    cell.level
                ),
            );
            add(&list, "lists the loaded rules in the same namespace".into());
        }
        for end in &ends {
            let (mut command, about) = process_in(end, Role::Agent, Programs { siga: &program, ssh })?;
            if route == Route::Built(PathKind::Sockmap) {
                command.args(["--sockmap", "FD"]);
            }
            add(&command, about);
        }
        if plan.processes {
            add(
                &command_as(&program, Role::Agent, &AgentOptions::default()),
                "this program (siga): one worker process for each client-server pair, on both sides".into(),
            );
        }
    }
    Ok(steps)
}

/// Returns the commands of a cell that measures a command: its own, its servers, setups and teardowns.
fn of_command(matrix: &Matrix, cell: &Cell, command: &siga_plan::command::Command) -> Vec<(Command, String)> {
    let filling = Plan::filling(cell);
    let of_words = |words: &[String]| {
        let mut own = Command::new(&words[0]);
        own.args(&words[1..]);
        own
    };
    let fill = |words: &[String]| -> Vec<String> { words.iter().map(|word| filling.fill(word)).collect() };
    let level = matrix.levels.iter().find(|level| level.name == cell.level);
    let of_level = level.map(|level| level.command.clone()).unwrap_or_default();
    let name = &cell.workload;
    let mut all = vec![
        (
            runner(),
            "this program (siga): runs a command of the plan, and ends processes that the command leaves behind"
                .to_owned(),
        ),
        (of_words(&command.words(&of_level, &filling)), format!("the command {name} of the plan")),
    ];
    for server in &command.server {
        all.push((of_words(&fill(&server.command)), format!("a server of the command {name}")));
    }
    for (hooks, kind) in [(&command.setup, "setup"), (&command.teardown, "teardown")] {
        for (scope, words) in Scope::ALL.iter().filter_map(|&scope| Some((scope, hooks.of(scope)?))) {
            all.push((of_words(&fill(words)), format!("the {kind} of a {} of the command {name}", scope.name())));
        }
    }
    all
}

/// Returns the commands that check the builds of levels, and compile those that are revisions.
fn of_builds(matrix: &Matrix, checkout: Option<&Path>) -> Vec<(Command, String)> {
    let mut all = Vec::new();
    for level in &matrix.levels {
        let Some(of_level) = &level.build else { continue };
        if let Build::Git(revision) = of_level {
            let checkout = checkout.unwrap_or(Path::new("CHECKOUT"));
            let compiles =
                format!("compiles revision {} for level {}, unless the cache has it", revision.git, level.name);
            all.extend(build::steps(checkout, &revision.git).into_iter().map(|command| (command, compiles.clone())));
        }
        let program = build::shown(Some(level));
        let mut version = Command::new(&program);
        version.arg("--version");
        all.push((version, format!("checks that the build of level {} is siga", level.name)));
        let agent = command_as(&program, Role::Agent, &AgentOptions::default());
        all.push((agent, format!("the build of level {}, as the agent for the client and the server", level.name)));
    }
    all
}

/// Returns a placeholder for the namespace of a path that is not built yet.
fn built() -> Place {
    Place::Built("/proc/HOLDER/fd/N".into(), Some("/proc/HOLDER/ns/user".into()))
}

/// Returns the command that starts siga in a place, and the purpose of the command.
fn process_in(place: &Place, role: Role, from: Programs<'_>) -> Result<(Command, String)> {
    let purpose = match role {
        Role::Agent => "for the client or the server",
        Role::Measurer => "which measures there",
    };
    let about = match (place, role) {
        (Place::Local, Role::Agent) => "siga itself, as the agent for the client and the server".into(),
        (Place::Local, Role::Measurer) => format!("siga itself, as a process of its own, {purpose}"),
        (Place::Netns(_) | Place::Pid(_), _) => format!("siga itself, as an agent in {place}, {purpose}"),
        (Place::Built(..), _) => format!("siga itself, as an agent in its namespace, {purpose}"),
        (Place::Ssh(host), _) => {
            let program =
                std::fs::metadata("/proc/self/exe").context("cannot read the size of siga's own program file")?;
            let about = format!(
                "connects to {place}, sends a copy of siga through standard input, and starts this copy as an agent, {purpose}"
            );
            return Ok((
                ssh::command(host, role, from.ssh, program.len()).map_err(|error: Error| error.at("--ssh"))?,
                about,
            ));
        }
    };
    Ok((command_as(from.siga, role, &AgentOptions::in_place(place)), about))
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| text::shell(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(plan: &Plan) -> Vec<String> {
        let steps = of(plan, &plan.matrix().unwrap(), &[], "ssh -F 'my file'", None).unwrap();
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

    #[test]
    fn the_list_has_the_programs_of_builds_and_the_commands_that_compile_a_revision() {
        let plan = Plan {
            paths: vec!["hipersockets".into()],
            levels: vec!["plain".into(), "build:old=/opt/siga".into(), "build:git:v1".into()],
            ..Plan::default()
        };
        let lines = lines(&plan);
        let has = |part: &str| lines.iter().any(|line| line.contains(part));
        for part in [
            "/proc/self/exe namespace-holder",
            "/opt/siga --version",
            "/opt/siga namespace-holder",
            "/opt/siga agent",
            "git -C CHECKOUT rev-parse",
            "cargo build --release --locked --package siga",
            "COMMIT-OF-v1/siga namespace-holder",
        ] {
            assert!(has(part), "{part}: {lines:?}");
        }
    }
}
