//! Tests of the first screen of the HTML report: its parts and their order, and which cell and which sides it shows. The browser
//! tests of the program check that the screen has room for it.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use siga_plan::level::Level;
use siga_report::html;
use siga_results::judge;
use siga_results::record::{HostRecord, TrialRecord};
use siga_results::store::Run;

/// Number of rounds, enough for verdicts.
const ROUNDS: u32 = 12;

/// Returns a run of these sides with small noise. A side is a path, a level, a factor of the rate and a factor of the CPU time.
fn run(sides: &[(&str, &str, f64, f64)]) -> Run {
    let mut run = siga_results::testing::run("runs/made-up", Vec::new());
    for round in 0..ROUNDS {
        run.trials.extend(sides.iter().map(|side| trial(*side, round)));
    }
    for (_, level, ..) in sides {
        if run.levels.iter().all(|known| known.name != *level) {
            run.levels.push(Level { name: (*level).into(), ..Level::plain() });
        }
    }
    run
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of some seconds")]
fn trial((path, level, rate, cpu): (&str, &str, f64, f64), round: u32) -> TrialRecord {
    let noise = 1.0 + 0.001 * f64::from(round % 5);
    let mut trial = siga_results::testing::trial(path, round, 0, None);
    trial.cell.level = level.into();
    trial.elapsed_ns = (1e9 * noise / rate) as u64;
    trial.cpu.wall_ns = trial.elapsed_ns;
    for (part, share) in
        [(&mut trial.cpu.client.run_ns, 4e8), (&mut trial.cpu.server.run_ns, 3e8), (&mut trial.cpu.busy_ns, 8e8)]
    {
        *part = (share * noise * cpu) as u64;
    }
    trial.host = Some(HostRecord::default());
    trial.at = "2026-01-01T00:00:00Z".into();
    trial
}

/// Returns a run of two paths: the kernel's network and siga's own.
fn two_paths() -> Run {
    run(&[("veth", "plain", 1.0, 1.0), ("hipersockets", "plain", 3.0, 0.25)])
}

fn page(run: &Run) -> String {
    html::html(std::slice::from_ref(run), &judge::within(run).unwrap()).unwrap()
}

/// Returns the part of the page that is visible before the list of contents.
fn first_screen(page: &str) -> &str {
    page.split_once("<body>").unwrap().1.split_once("<nav").unwrap().0
}

/// Returns the texts between two strings.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    text.split(from).skip(1).filter_map(|part| part.split(to).next()).collect()
}

/// Returns the text without elements.
fn text(markup: &str) -> String {
    let mut text = String::new();
    for part in markup.split('<') {
        text += part.split_once('>').map_or(part, |(_, words)| words);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks that the texts occur in this order.
#[track_caller]
fn assert_order(all: &str, texts: &[&str]) {
    let mut rest = all;
    for text in texts {
        rest = rest.split_once(text).unwrap_or_else(|| panic!("`{text}` is absent or too early in {all}")).1;
    }
}

#[test]
fn the_first_screen_has_answer_costs_ratios_and_disturbance_in_this_order() {
    let page = page(&two_paths());
    let screen = first_screen(&page);
    assert_order(
        screen,
        &[
            "siga report: made-up",
            "<h1>siga's network carries 3.0 times the kernel's traffic for 0.25 of the CPU time: better in 2 of 2 figures.</h1>",
            "better</span> in <b>2</b> of 2",
            "<h2>Where the CPU time goes</h2>",
            "rr-200-1000, 1 pair",
            "<strong>veth</strong>",
            "998",
            "801 us/trans",
            "client 401",
            "<strong>hipersockets</strong>",
            "2,995",
            "200 us/trans",
            "card better",
            "3.00",
            "the rate of veth",
            "95%: 3.00 to 3.00",
            "better</span>",
            "the CPU time per transaction of veth",
            "<h2>What disturbed the measurement</h2>",
            "Nothing: no round was disturbed (12 rounds).",
            "Plan plan · 2 cells · 12 rounds",
        ],
    );
    // All bars have one scale: the side with a quarter of the CPU time has a quarter of the length.
    let totals = between(screen, "<line class=\"total\" x1=\"", "\"");
    assert_eq!(totals, ["100.00%", "25.00%"]);
}

#[test]
fn charts_of_workloads_come_next_and_everything_else_is_folded() {
    let page = page(&two_paths());
    let below = page.split_once("<nav").unwrap().1;
    assert_order(
        below,
        &["<h2>Workload by workload</h2>", "<h3>rr-200-1000</h3>", "<details class=\"section print\">"],
    );
    let folded = below.split_once("<details class=\"section print\">").unwrap();
    assert_eq!(between(folded.0, "<h2>", "</h2>"), ["Workload by workload"]);
    let folds = between(&below[folded.0.len()..], "<details class=\"section print\"><summary><h2>", "</h2>");
    assert_eq!(folds.len(), between(folded.1, "<h2>", "</h2>").len(), "a section below the charts is not folded");
    for title in ["Verdicts in words", "Ratios with their intervals", "Tables", "Environment and settings", "Raw data"]
    {
        assert!(folds.contains(&title), "{title} is not in {folds:?}");
    }
}

#[test]
fn one_side_has_its_costs_and_no_ratio() {
    let page = page(&run(&[("veth", "plain", 1.0, 1.0)]));
    let screen = first_screen(&page);
    assert!(screen.contains("<h1>veth carries rr-200-1000 at 998 trans/sec.</h1>"), "{}", text(screen));
    assert!(screen.contains("<strong>veth</strong>") && screen.contains("client 401"), "{}", text(screen));
    for absent in ["class=\"card", "word better", "badge", " times "] {
        assert!(!screen.contains(absent), "`{absent}` in {}", text(screen));
    }
}

#[test]
fn each_of_three_sides_has_a_bar_and_its_ratios() {
    let sides = [("veth", "plain", 1.0, 1.0), ("veth", "reno", 0.5, 2.0), ("veth", "bbr", 1.0, 1.0)];
    let page = page(&run(&sides));
    let screen = first_screen(&page);
    assert_eq!(
        between(screen, "<div class=\"side\"><strong>", "</strong>"),
        ["level plain", "level reno", "level bbr"]
    );
    assert!(screen.contains("<b>rr-200-1000, 1 pair, veth</b>"), "what the sides have in common: {}", text(screen));
    let against: Vec<String> = between(screen, "<p class=\"against\">", "</p>").into_iter().map(text).collect();
    assert_eq!(against, ["level reno against level plain", "level bbr against level plain"]);
    assert_eq!(between(screen, "<div class=\"card ", "\""), ["worse", "worse", "equivalent", "equivalent"]);
    assert_order(
        screen,
        &[
            "<h1>reno carries 0.5 of what plain does for 2.0 times the CPU time: better in 0 of 2 figures, worse in 2.</h1>",
            "<p class=\"lead\">bbr against plain, in rate and CPU time: better in 0 of 2 figures, the same in 2.</p>",
        ],
    );
}

#[test]
fn each_further_run_is_answered_against_the_first() {
    let named = |name: &str, rate: f64, cpu: f64| {
        let mut run = run(&[("veth", "plain", rate, cpu)]);
        run.directory = format!("runs/{name}").into();
        run
    };
    let runs = [named("before", 1.0, 1.0), named("after", 2.0, 0.5), named("same", 1.0, 1.0)];
    let comparisons = [judge::runs(&runs[0], &runs[1]).unwrap(), judge::runs(&runs[0], &runs[2]).unwrap()];
    let page = html::html(&runs, &comparisons).unwrap();
    let screen = first_screen(&page);
    assert_order(
        screen,
        &[
            "<h1>runs/after has 2.0 times the rate and takes 0.50 times the CPU time per unit, compared with runs/before.</h1>",
            "<p class=\"lead\">runs/same has the same rate within 2% and takes the same CPU time per unit within 2%, compared with",
        ],
    );
    assert_eq!(between(screen, "<div class=\"side\"><strong>", "</strong>"), ["before", "after", "same"]);
    assert_eq!(between(screen, "<div class=\"strip\"", ">").len(), 3, "the rounds of each run");
}

#[test]
fn more_sides_than_the_picture_has_room_for_are_counted() {
    let names = ["a", "b", "c", "d", "e", "f", "g"].map(|name| ("veth", name, 1.0, 1.0));
    let page = page(&run(&names));
    let screen = first_screen(&page);
    assert_eq!(between(screen, "<div class=\"side\"><strong>", "</strong>").len(), 5);
    assert!(screen.contains("2 more sides of this workload are in the charts below."), "{}", text(screen));
}

#[test]
fn the_picture_shows_a_cell_that_became_worse_before_those_that_became_better() {
    let shown = |factors: [f64; 3]| {
        let mut all = run(&[]);
        for (clients, cpu) in [1, 2, 3].into_iter().zip(factors) {
            let mut sides = run(&[("veth", "plain", 1.0, 1.0), ("hipersockets", "plain", 1.0, cpu)]);
            sides.trials.iter_mut().for_each(|trial| trial.cell.clients = clients);
            all.trials.extend(sides.trials);
        }
        let page = page(&all);
        let answer = between(&page, "<h1>", "</h1>")[0].to_owned();
        let costs = "<section id=\"costs\"><h2>Where the CPU time goes</h2><p class=\"soft\"><b>";
        (answer, text(between(&page, costs, "<h2>")[0]))
    };
    let (answer, cell) = shown([0.5, 1.5, 0.9]);
    assert!(cell.starts_with("rr-200-1000, 2 pairs"), "{cell}");
    let both = "better in 2 of 6 figures, worse in 1, the same in 3.";
    assert!(answer.ends_with(both), "both directions: {answer}");
    let (answer, cell) = shown([0.1, 0.9, 0.5]);
    assert!(cell.starts_with("rr-200-1000, 3 pairs"), "the middle, not the largest difference: {cell}");
    let reason = "Of the 3 cells in which a main figure became better, this one is in the middle by ratio of CPU time.";
    assert!(cell.contains(reason), "{cell}");
    assert!(answer.contains("better in 3 of 6 figures"), "{answer}");
}

#[test]
fn a_run_without_verdict_claims_nothing() {
    let mut smoke = two_paths();
    smoke.plan.smoke = true;
    let mut disturbed = two_paths();
    let host = HostRecord { others_ns: Some(900_000_000), other_runs: 1, ..HostRecord::default() };
    disturbed.trials.iter_mut().filter(|trial| trial.round < 9).for_each(|trial| trial.host = Some(host));
    for (run, reason, answer) in [
        (
            smoke,
            "Smoke run",
            "This run cannot tell whether siga's network is faster than the kernel's or takes less CPU time.",
        ),
        (disturbed, "No verdict", "This run has no verdict on siga's network against the kernel's."),
    ] {
        let page = page(&run);
        let screen = first_screen(&page);
        assert!(screen.contains(&format!("<h1>{answer}</h1>")), "{}", text(screen));
        assert!(screen.contains(&format!("<strong>{reason}</strong>")), "{}", text(screen));
        for claim in ["has 3", "takes 0.25", "card better", "better</span>"] {
            assert!(!screen.contains(claim), "{reason}: `{claim}` in {}", text(screen));
        }
    }
}

#[test]
fn a_disturbed_round_has_a_mark_and_its_reason() {
    let mut run = two_paths();
    let host = HostRecord { others_ns: Some(900_000_000), other_runs: 1, ..HostRecord::default() };
    run.trials.iter_mut().filter(|trial| trial.round == 3).for_each(|trial| trial.host = Some(host));
    run.damage = vec!["trials.jsonl: a line was cut".into()];
    let page = page(&run);
    let screen = first_screen(&page);
    let marks = between(between(screen, "<div class=\"strip\"", "</div>")[0], "<i", ">");
    assert_eq!(marks.len(), 12);
    let disturbed: Vec<usize> = (0..12).filter(|at| marks[*at].contains("class=\"disturbed\"")).collect();
    assert_eq!(disturbed, [3], "{marks:?}");
    assert!(marks[3].contains("round 4: processes outside the run used "), "{}", marks[3]);
    assert!(
        text(screen).contains("CPU time in 1 of 12 rounds; the figures are from the other 11."),
        "{}",
        text(screen)
    );
    assert!(text(screen).contains("Damaged: trials.jsonl: a line was cut."), "{}", text(screen));
}

#[test]
fn a_record_that_says_nothing_about_the_host_is_not_called_quiet() {
    let mut run = two_paths();
    run.trials.iter_mut().for_each(|trial| trial.host = None);
    let page = page(&run);
    assert!(first_screen(&page).contains("The records of this run do not say what the host did."));
}

#[test]
fn names_keep_their_case_and_no_label_is_cut() {
    const LONG: &str = "a-level-with-a-name-of-more-than-sixty-letters-that-no-column-of-a-chart-has-room-for";
    let run =
        run(&[("veth", "plain", 1.0, 1.0), ("veth", LONG, 2.0, 0.5), ("hipersockets-routed-iucv", "plain", 1.0, 1.0)]);
    let page = page(&run);
    let shown = page.split("id=\"data\"").next().unwrap();
    assert!(!shown.contains('…'), "a label is cut");
    assert!(!shown.contains("Rr-200-1000") && !shown.contains("Veth"), "a name has another case");
    let verdicts = self::page(&two_paths());
    assert!(verdicts.contains(">rr-200-1000, 1 pair: ") && !verdicts.contains("Rr-200-1000"), "the verdicts in words");
    let charts = shown.split_once("id=\"charts\"").unwrap().1;
    assert!(
        between(charts, "<span class=\"side\">", "</span>").iter().any(|name| name.contains(LONG)),
        "{LONG} in a chart"
    );
}

#[test]
fn each_side_of_a_workload_has_a_mark_with_all_its_figures() {
    let page = page(&two_paths());
    let chart = between(&page, "<figure class=\"chart\"", "</figure>")[0];
    let marks = between(chart, "class=\"one mark\"", "</div>");
    assert_eq!(marks.len(), 2);
    let says = between(marks[1], "aria-label=\"", "\"")[0];
    for figure in [
        "hipersockets, rr-200-1000, 1 pair",
        "rate: 2,995 trans/sec (mean of 12 trials",
        "CPU: 200 us/trans",
        "client: 100 us/trans",
        "by ",
        "rate: 3.00x (95%: 3.00 to 3.00), better",
        "CPU time: 0.250x",
    ] {
        assert!(says.contains(figure), "`{figure}` is not in {says}");
    }
    assert!(text(marks[0]).ends_with("base"), "{}", text(marks[0]));
}
