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
fn the_first_screen_has_question_answer_ratios_costs_and_disturbance_in_this_order() {
    let mut run = two_paths();
    run.plan.question = "How fast is it?".into();
    run.environment.cpu.online = Some(2);
    run.environment.moment.time = Some("2026-11-26T09:26:59Z".into());
    let page = page(&run);
    let screen = first_screen(&page);
    assert_order(
        screen,
        &[
            "<p class=\"title\">How fast is it?</p>",
            "<h1>siga carries 3.0 times the kernel's traffic for 0.25 of the CPU time per unit.</h1>",
            "rate: ",
            "better</span> in <b>1</b> of 1",
            "CPU time per unit: ",
            "better</span> in <b>1</b> of 1",
            "hipersockets with MTU 1,500 against veth with MTU 1,500; waiting policy of both: block",
            "Host</a>: nothing disturbed the 12 rounds.",
            "<h2>Ratios of rate and CPU time</h2>",
            "(better →)",
            "(← better)",
            "siga (hipersockets, MTU 1,500) against the kernel (veth, MTU 1,500)",
            "rr-200-1000, 1 pair",
            "<b>3.00</b>x",
            "3.00 to 3.00",
            "better</span>",
            "<b>0.250</b>x",
            "better</span>",
            ">same</text>",
            "log scale; better and worse: p &lt; 0.05 after adjustment",
            "noise floor: how far the ratio of two equal sides can be from 1",
            "rr: requests and responses over one connection · pair: one client and its server",
            "<h2>Where the CPU time goes</h2>",
            "rr-200-1000, 1 pair",
            "kernel: <strong>veth</strong><span class=\"mtu\">, MTU 1,500</span>",
            "<b>801</b> µs/trans",
            "client 401",
            "rate <b>998</b> trans/sec, with <b>0.800</b> of 2 CPUs busy",
            "siga: <strong>hipersockets</strong><span class=\"mtu\">, MTU 1,500</span>",
            "<b>200</b> µs/trans",
            "rate <b>2,995</b> trans/sec, with <b>0.600</b> of 2 CPUs busy",
            "The rate with siga is <b>3.00 times</b> that with the kernel: each transaction takes <b>0.250 times</b> the CPU time, \
             and <b>0.600</b> CPUs are busy instead of 0.800.",
            "Less CPU time (µs/trans): client 301, server 225, other 75.1. ",
            "Noise floor of this row: rate ±",
            "<h2>What disturbed the measurement</h2>",
            "Nothing: no round was disturbed (12 rounds).",
            "Plan plan · 2 cells · 12 rounds",
            "2026-11-26 09:26 UTC",
            "Words on this page",
        ],
    );
    // All bars have one scale: the side with a quarter of the CPU time has a quarter of the length.
    let totals = between(screen, "<line class=\"total\" x1=\"", "\"");
    assert_eq!(totals, ["100.00%", "25.00%"]);
    assert!(
        page.contains("<title>siga report: made-up</title>") && !screen.contains("siga report"),
        "{}",
        text(screen)
    );
    for (word, meaning) in [("residue", "not attributed"), ("us/trans", "µs/trans"), ("x1", "1 pair")] {
        assert!(!text(screen).contains(word), "`{word}` instead of `{meaning}`: {}", text(screen));
    }
}

#[test]
fn both_figures_have_the_same_scale_and_a_shape_hides_no_whisker() {
    let page = page(&two_paths());
    let screen = first_screen(&page);
    let plots = between(
        between(screen, "<div class=\"outcome", "<ul class=\"legend")[0],
        "<svg class=\"plot\"",
        "better</span>",
    );
    assert_eq!(plots.len(), 2);
    let same: Vec<&str> = plots.iter().map(|plot| between(plot, "<line class=\"reference\" x1=\"", "\"")[0]).collect();
    assert_eq!(same[0], same[1], "the line at 1 of both figures");
    let axes = between(screen, "<svg class=\"across\"", "same</text>");
    assert_eq!(axes.len(), 2);
    for axis in axes {
        let places = between(axis, " x=\"", "\"");
        assert!(places.len() >= 3 && places.last() == Some(&same[0]), "ticks, and `same` at 1: {axis}");
    }
    for plot in plots {
        let (shape, whisker) = (plot.find("class=\"shape").unwrap(), plot.find("class=\"whisker").unwrap());
        assert!(shape < whisker, "the shape is drawn on the whisker: {plot}");
    }
}

#[test]
fn sides_with_different_mtus_say_so() {
    let mut run = two_paths();
    let mtu = |path: &str| if path == "veth" { 1_500 } else { 57_344 };
    run.trials.iter_mut().for_each(|trial| trial.cell.mtu = Some(mtu(&trial.cell.path)));
    let page = page(&run);
    let screen = text(first_screen(&page));
    assert_order(
        &screen,
        &[
            "siga (hipersockets, MTU 57,344) against the kernel (veth, MTU 1,500), different MTUs",
            "kernel: veth, MTU 1,500",
            "siga: hipersockets, MTU 57,344",
        ],
    );
    run.trials.iter_mut().for_each(|trial| trial.cell.mtu = Some(1_500));
    assert!(!text(first_screen(&self::page(&run))).contains("different MTUs"));
}

#[test]
fn the_counts_at_the_top_are_those_of_the_picture() {
    let mut all = run(&[]);
    for (clients, cpu) in [1, 2, 3].into_iter().zip([0.5, 1.5, 1.0]) {
        let mut sides = run(&[("veth", "plain", 1.0, 1.0), ("hipersockets", "plain", 2.0, cpu)]);
        sides.trials.iter_mut().for_each(|trial| trial.cell.clients = clients);
        all.trials.extend(sides.trials);
    }
    let page = page(&all);
    let screen = first_screen(&page);
    let heads = text(between(screen, "<p class=\"verdicts\">", "</p>")[0]);
    assert_eq!(heads, "rate: better in 3 of 3CPU time per unit: better in 1 of 3 worse in 1 of 3 equivalent in 1 of 3");
    let rows = between(screen, "<div class=\"outcome", "<ul class=\"legend")[0];
    for (word, count) in [("better", 4), ("worse", 1), ("equivalent", 1)] {
        assert_eq!(rows.matches(&format!("{word}</span>")).count(), count, "{word}");
    }
    let heading = between(&page, "<h1>", "</h1>")[0];
    assert!(!heading.contains("figures") && !heading.contains("rounds"), "{heading}");
}

#[test]
fn the_row_that_loses_most_is_explained() {
    let mut all = run(&[]);
    for (clients, rate) in [(1, 2.0), (2, 3.0), (3, 0.8), (4, 0.5)] {
        let mut sides = run(&[("veth", "plain", 1.0, 1.0), ("hipersockets", "plain", rate, 0.5)]);
        sides.trials.iter_mut().for_each(|trial| trial.cell.clients = clients);
        all.trials.extend(sides.trials);
    }
    let words = "The row rr-200-1000, 4 pairs has the lowest ratio of the rate: 0.500x the rate, and 0.500x the CPU time per \
        transaction; 0.200 CPUs are busy instead of 0.800.";
    let screen = text(first_screen(&page(&all)));
    assert!(screen.contains(words), "{screen}");
    assert!(!text(first_screen(&page(&two_paths()))).contains("has the lowest ratio"), "nothing became worse");
}

#[test]
fn many_rows_are_folded_and_none_is_lost() {
    let mut all = run(&[]);
    for clients in 1..=11 {
        let mut sides = run(&[("veth", "plain", 1.0, 1.0), ("hipersockets", "plain", 2.0, 0.5)]);
        sides.trials.iter_mut().for_each(|trial| trial.cell.clients = clients);
        all.trials.extend(sides.trials);
    }
    let page = page(&all);
    let rows = between(first_screen(&page), "<div class=\"outcome", "<ul class=\"legend")[0];
    let (open, folded) = rows.split_once("<details").unwrap();
    let count = |part: &str| part.matches("class=\"load\"").count();
    assert_eq!((count(open), count(folded)), (8, 3));
    assert!(folded.contains("3 more rows"), "{}", text(folded));
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
    for absent in ["class=\"outcome", "word better", "badge", " times "] {
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
    assert_order(
        screen,
        &[
            "<h1>Level reno has 0.5 of the rate of level plain for 2.0 times the CPU time per unit.</h1>",
            "<p class=\"lead\">Level bbr compared with level plain: rate better in 0 of 1 cells, equivalent in 1; CPU time better in 0 of 1, equivalent in 1.</p>",
            "Level reno against plain: veth (kernel), MTU 1,500",
            "Level bbr against plain: veth (kernel), MTU 1,500",
            "The rate with level reno is <b>0.500 times</b> that with level plain",
            "Noise floor of this row (level bbr)",
        ],
    );
    let rows = between(screen, "<div class=\"outcome", "<ul class=\"legend")[0];
    assert_eq!(between(rows, "<span class=\"word ", "\""), ["worse", "worse", "equivalent", "equivalent"]);
    assert!(!screen.contains("The rate with level bbr"), "a rate without a difference is explained");
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
fn the_picture_of_the_cpu_time_shows_the_middle_row_of_every_plan() {
    let shown = |factors: &[f64]| {
        let mut all = run(&[]);
        for (clients, cpu) in (1..).zip(factors) {
            let mut sides = run(&[("veth", "plain", 1.0, 1.0), ("hipersockets", "plain", 1.0, *cpu)]);
            sides.trials.iter_mut().for_each(|trial| trial.cell.clients = clients);
            all.trials.extend(sides.trials);
        }
        let page = page(&all);
        text(between(&page, "<p class=\"shown\">", "</p>")[0])
    };
    for (factors, pairs, count) in [
        (&[0.5, 1.5, 0.9][..], 3, 3),
        (&[0.1, 0.9, 0.5], 3, 3),
        (&[0.1, 0.9, 0.5, 0.7], 4, 4),
        (&[1.2, 1.5, 2.0], 2, 3),
    ] {
        let rule = match count {
            4 => "of the two rows with the median ratios of CPU time among the 4 rows above, the less favourable one.",
            _ => "the row with the median ratio of CPU time among the 3 rows above.",
        };
        let words = format!("rr-200-1000, {pairs} pairs: {rule}");
        let shown = shown(factors);
        assert!(shown.starts_with(&words), "{factors:?}: {shown}");
    }
}

#[test]
fn a_level_says_what_it_changes() {
    use siga_plan::level::Guests;
    let mut run = run(&[("hipersockets", "420", 1.0, 1.0), ("hipersockets", "430", 2.0, 0.5)]);
    let level = |packing: bool, waiting: &str| -> Guests {
        let text = format!("{{\"driver\": {{\"packing\": {packing}}}, \"waiting\": \"{waiting}\"}}");
        serde_json::from_str(&text).unwrap()
    };
    for (name, packing, waiting) in [("420", false, "block"), ("430", true, "adaptive")] {
        let own = run.levels.iter_mut().find(|level| level.name == name).unwrap();
        (own.about, own.guests) = (format!("about {name}"), Some(level(packing, waiting)));
    }
    let screen = text(first_screen(&page(&run)));
    assert_order(
        &screen,
        &["level 420, MTU 1,500 about 420", "level 430, MTU 1,500 as 420, with packing; waiting: adaptive"],
    );
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
        (disturbed, "No verdict", "This run gives no verdict on siga's network compared with the kernel's."),
    ] {
        let page = page(&run);
        let screen = first_screen(&page);
        assert!(screen.contains(&format!("<h1>{answer}</h1>")), "{}", text(screen));
        assert!(screen.contains(&format!("<strong>{reason}</strong>")), "{}", text(screen));
        for claim in ["has 3.0", "has 3 times", "takes 0.25", "figure better", "better</span>", "The rate with siga is"]
        {
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
    assert!(text(screen).contains("CPU time in 1 of 12 rounds; siga uses only the other 11."), "{}", text(screen));
    assert!(text(screen).contains("Damaged: trials.jsonl: a line was cut."), "{}", text(screen));
    assert!(text(screen).contains("Host: 1 of 12 rounds disturbed; siga uses the other 11."), "{}", text(screen));
}

#[test]
fn a_record_that_says_nothing_about_the_host_is_not_called_quiet() {
    let mut run = two_paths();
    run.trials.iter_mut().for_each(|trial| trial.host = None);
    let page = page(&run);
    assert!(first_screen(&page).contains("This run has no record of the load on the host."));
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
        "CPU: 200 µs/trans",
        "client: 100 µs/trans",
        "by ",
        "rate: 3.00x (95% interval 3.00 to 3.00), better",
        "CPU time: 0.250x",
    ] {
        assert!(says.contains(figure), "`{figure}` is not in {says}");
    }
    assert!(text(marks[0]).ends_with("base"), "{}", text(marks[0]));
}
