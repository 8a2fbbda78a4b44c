//! Draws explanations of verdicts on CPU time as a differential flame graph, an SVG file.
//!
//! A box is a function on the functions that called it. Its width is the mean CPU time of both sides together, so the graph has the
//! functions of both sides. It is red if the new side takes more CPU time in it, and blue if it takes less.

use super::output::FLAME_GRAPH;
use super::verdicts::pair_name;
use super::why::part_name;
use inferno::flamegraph::{Options, from_lines};
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use siga_results::judge::Comparison;
use siga_results::judge::why::{Stack, Why};

/// Number of units of the graph's counts in a millisecond.
const PER_MS: f64 = 1e9;

/// Returns the flame graph of the explanations of a comparison.
///
/// # Errors
/// Returns an error of kind `Incomplete` if there is no explanation, or of kind `Environment` if the graph cannot be drawn.
pub fn svg(comparison: &Comparison, explained: &[Why]) -> Result<String> {
    if explained.is_empty() {
        return Err(Error::incomplete(
            "siga cannot draw a flame graph, because there is no difference in CPU time that siga can explain",
        )
        .hint("`siga compare --why` prints the reason"));
    }
    let mut lines = Vec::new();
    for why in explained {
        let cell = frame(&pair_name(comparison, &why.base, &why.new));
        lines.extend(why.stacks.iter().filter_map(|stack| line(&cell, stack)));
    }
    let mut options = Options::default();
    options.title = format!("CPU time of {} and {}", text::name(&comparison.base), text::name(&comparison.new));
    let new = text::name(&comparison.new);
    options.subtitle =
        Some(format!("width: CPU time of both sides; red: more CPU time with {new}; blue: less CPU time with {new}"));
    options.count_name = "fs per unit".into();
    let mut svg = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| Error::environment(format!("cannot draw the flame graph: {error}")))?;
    let svg = String::from_utf8(svg).context("cannot draw the flame graph")?;
    // By the beginning, siga recognises a file that it may replace.
    Ok(svg.split_once("?>").map_or_else(|| svg.clone(), |(_, drawing)| format!("{FLAME_GRAPH}{drawing}")))
}

/// Returns a line of the form that flame graphs are drawn from: the functions, and two counts. The second count is the width, and the
/// difference between the counts is the colour.
fn line(cell: &str, stack: &Stack) -> Option<String> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` limits the value to the type")]
    let count = |ms: f64| (ms * PER_MS).round() as u64;
    let (base, new) = stack.values;
    let functions: Vec<String> = stack.functions.iter().map(|function| frame(function)).collect();
    let part = part_name(stack.part);
    let wide = count(base) + count(new);
    (wide > 0).then(|| format!("{cell};{part};{} {} {wide}", functions.join(";"), 2 * count(base)))
}

/// Returns a name without the characters that separate names and counts.
fn frame(name: &str) -> String {
    text::name(name).replace(';', ",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_results::judge::Part;

    #[test]
    fn a_line_has_both_sides_in_its_width_and_the_difference_in_its_counts() {
        let stack =
            |base, new| Stack { part: Part::Router, functions: vec!["a;b".into(), "c".into()], values: (base, new) };
        assert_eq!(line("cell", &stack(1e-6, 3e-6)).unwrap(), "cell;router;a,b;c 2000 4000");
        assert_eq!(line("cell", &stack(1e-6, 0.0)).unwrap(), "cell;router;a,b;c 2000 1000");
        assert_eq!(line("cell", &stack(0.0, 0.0)), None);
    }
}
