//! Resuming a run whose plan names commands, builds of siga, or the user's own networks. A run directory must not supply a program, because another user may have written it. So the
//! command line names the plan again, and the recorded plan only has to agree with it.

use crate::axes::Axes;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_plan::plan::Plan;
use siga_plan::route::Route;
use std::path::Path;

/// Returns the plan with which the run in `directory` goes on: the plan of the command line if the recorded plan names commands, builds or own networks,
/// otherwise the recorded plan.
pub(crate) fn plan(axes: &Axes, recorded: Plan, directory: &Path) -> Result<Plan> {
    let given = !axes.is_empty();
    let matrix = recorded.matrix()?;
    let builds = matrix.levels.iter().filter_map(|level| Some(level.build.as_ref()?.to_string()));
    let own = recorded.paths.iter().filter(|path| matches!(path.parse(), Ok(Route::Own(_)))).cloned();
    let named: Vec<String> = builds.chain(own).collect();
    if !recorded.has_commands() && named.is_empty() {
        let refused = Error::usage(
            "--resume uses the recorded plan of the run, so you cannot give another plan or options that change it",
        );
        return if given {
            Err(refused.hint("with --resume, give no plan and no options that change the plan; or start a new run"))
        } else {
            Ok(recorded)
        };
    }
    let place = text::shell(&directory.to_string_lossy());
    if !given {
        let commands = recorded.workload.values().flat_map(|command| command.lines());
        let commands: Vec<String> = commands.chain(named).collect();
        let words =
            format!("the plan of the run in {} contains these commands: {}", directory.display(), commands.join("; "));
        return Err(Error::usage(words).hint(format!(
            "siga never executes or starts what only a run directory names; repeat the original command line, and add --resume {place}"
        )));
    }
    let plan = axes.plan()?;
    let plan = Plan { seed: recorded.seed, ..plan };
    if plan == recorded {
        return Ok(plan);
    }
    let differing: Vec<String> = differing(&plan, &recorded)?;
    Err(Error::usage(format!(
        "the command line does not match the recorded plan of the run in {}: these settings differ: {}",
        directory.display(),
        differing.join(", ")
    ))
    .hint(format!("use the plan {place}/plan.toml without other options, or start a new run")))
}

/// Returns the names of the top-level values in which two plans differ.
fn differing(one: &Plan, other: &Plan) -> Result<Vec<String>> {
    let read = |plan: &Plan| {
        serde_json::to_value(plan)
            .map_err(|error| Error::environment(format!("cannot compare the plan with the recorded plan: {error}")))
    };
    let (one, other) = (read(one)?, read(other)?);
    let names = |value: &serde_json::Value| value.as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
    let mut all: Vec<String> = [names(&one), names(&other)].into_iter().flatten().flatten().collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|name| one.get(name) != other.get(name));
    Ok(all)
}
