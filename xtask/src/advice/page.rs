//! Writes the page of advice.

use std::fmt::Write as _;

use super::items::{Advice, Basis, Section};
use super::results::{Finding, Results};

const HEAD: &str = "\
# Recommendations about networks, and siga's verdicts

z/VM's documents and a document of 2009 on the performance of networks with Linux on System z recommend connectivities, MTUs, numbers of
buffers and sizes of windows. This page lists these recommendations. For each, it names the plan that decides it, and the verdict of the last
measurement. A verdict is about one machine with siga's networks, or with those of the kernel in the plan `firewall`. It is not about the
hardware.

- *holds*: every case supports the finding of the plan. *does not hold*: at least one case contradicts it. *cannot tell*: neither.
  [Reading reports](reading.md#what-the-report-found-and-whether-it-holds) has the rules.
- *not measured yet*: no result is stored.
- *not applicable*: siga does not have the feature, or a measurement cannot show its effect. Other text: a fact that needs no measurement.
- A ratio is the figure at the finding's level, divided by the figure at its base. The page shows the smallest and the largest ratio of all
  cases. [Effects of single settings](knobs.md) explains the plans and their levels.

To measure a plan and to update this page, run these commands on a quiet machine. The last command writes the results into `docs/advice/`,
and then this page:

```sh
siga run packing --out RUN
cargo xtask advice --take RUN
```

`cargo xtask advice` writes the page again without a new result. `cargo xtask ci` fails if the page differs from its data, which is in
`xtask/src/advice/items.toml` and `docs/advice/`.
";

/// Returns the page.
pub(super) fn markdown(sections: &[Section], results: &[Results]) -> String {
    let mut out = HEAD.to_owned();
    for section in sections {
        put(
            &mut out,
            format_args!("\n## {}\n\n| recommendation | decided by | verdict |\n| --- | --- | --- |", section.title),
        );
        for advice in &section.advice {
            put(&mut out, format_args!("{}", row(advice, results)));
        }
    }
    if !results.is_empty() {
        out.push_str("\n## Measurements\n\n| plan | measured |\n| --- | --- |\n");
        for one in results {
            put(&mut out, format_args!("| `{}` | {} |", one.plan, one.host));
        }
    }
    out
}

fn row(Advice { says, basis }: &Advice, results: &[Results]) -> String {
    match basis {
        Basis::Fact(fact) => format!("| {says} | | {fact} |"),
        Basis::Absent(why) => format!("| {says} | | not applicable: {why} |"),
        Basis::Open(until) => format!("| {says} | | not measured yet: {until} |"),
        Basis::Findings { plan, findings } => {
            let own = results.iter().find(|one| one.plan == *plan);
            let verdicts = findings.iter().map(|id| {
                let found = own.and_then(|own| own.findings.iter().find(|finding| finding.id == *id));
                format!("`{id}`: {}", found.map_or_else(|| "not measured yet".to_owned(), words))
            });
            format!("| {says} | plan `{plan}` | {} |", verdicts.collect::<Vec<_>>().join("; "))
        }
    }
}

/// Returns the verdict on a finding, the cases that support it, and their ratios.
fn words(finding: &Finding) -> String {
    let [for_it, against, open] = finding.cases;
    let verdict = &finding.verdict;
    let cases = format!("{for_it} of {} cases support it", for_it + against + open);
    let against = if against > 0 { format!(", {against} contradict it") } else { String::new() };
    let sides = finding.sides.as_ref().map(|(level, base)| format!(" of `{level}` to `{base}`")).unwrap_or_default();
    let ratios = finding.ratios.map(|(least, most)| format!("; ratios{sides}: {least:.2} to {most:.2}"));
    format!("**{verdict}** ({cases}{against}{})", ratios.unwrap_or_default())
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{line}");
}
