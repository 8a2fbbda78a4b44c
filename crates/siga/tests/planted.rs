//! Tests verdicts with planted costs. A level that costs one component a known fraction more CPU time per transaction is found
//! worse in that component. An identical level is not found different, as far as the host's noise allows. A profiler that costs more
//! than it says is found out.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, paths_build, root};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// CPU time planted into the server at the base level, in microseconds per transaction. It is most of the server's cost.
const BASE_US: f64 = 200.0;
/// The additional cost of the other level, as a fraction of the base.
const MORE: f64 = 0.05;
/// The number of rounds: enough to find one difference among all tests of two comparisons.
const TRIALS: u32 = 12;
/// The number of runs. Each has a verdict on the more expensive level and on the identical one.
const ATTEMPTS: usize = 3;
/// The number of runs that may find the identical level different. By chance, one in several hundred tables does, so two of three
/// runs practically never do.
const FALSE_MAX: usize = 1;
/// The least statistical power. On a host whose noise leaves less power, the test cannot promise to find 5%.
const POWER_LEAST: f64 = 0.99;

fn level(bench: &Bench, name: &str, server_us: f64) {
    let text = format!("name = \"{name}\"\n[plant]\nserver_us = {server_us:?}\n");
    fs::write(bench.path(&format!("{name}.toml")), text).unwrap();
}

/// Returns the comparison of the server's CPU time at a level with that at the base.
fn server(bench: &Bench, run: &str, level: &str) -> Value {
    let report = bench.run(&format!("compare base {level} --run {run} --format json")).ok();
    let cells = report.json()["cells"].as_array().unwrap().clone();
    cells.into_iter().find(|cell| cell["metric"] == "server_cpu").unwrap_or_else(|| panic!("no figure: {report}"))
}

/// Returns the probability that a standard normal variable is below `z`, by Simpson's rule from the middle.
fn below(z: f64) -> f64 {
    const STEPS: u32 = 200;
    let density = |at: f64| (-at * at / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let step = z.clamp(-8.0, 8.0) / f64::from(STEPS);
    let weight = |at: u32| match at {
        0 | STEPS => 1.0,
        at if at % 2 == 1 => 4.0,
        _ => 2.0,
    };
    0.5 + (0..=STEPS).map(|at| weight(at) * density(f64::from(at) * step)).sum::<f64>() * step / 3.0
}

/// Returns how often a 95% interval with this half width excludes 1 if the true ratio differs from 1 by `effect`. Estimates are
/// assumed to be normally distributed. A noise floor that is too low by chance makes the result too high, and the adjustment for
/// many tests is left out. The result therefore only says whether the host's noise allows a verdict.
fn power(effect: f64, half_width: f64) -> f64 {
    below(1.96 * effect / half_width - 1.96)
}

#[test]
fn statistical_power_is_that_of_the_normal_distribution() {
    // From tables of the normal distribution: half of the estimates are above their mean, and 97.5% are above 1.96 deviations
    // below the mean. Without an effect, 2.5% exclude 1.
    for (effect, half_width, share) in [(0.02, 0.02, 0.5), (0.04, 0.02, 0.975), (0.0, 0.02, 0.025), (0.05, 1e-6, 1.0)] {
        assert!(
            (power(effect, half_width) - share).abs() < 1e-4,
            "{effect} {half_width}: {}",
            power(effect, half_width)
        );
    }
}

#[test]
fn a_component_with_5_percent_more_cost_is_judged_worse_and_an_identical_level_is_not() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    level(&bench, "base", BASE_US);
    level(&bench, "same", BASE_US);
    level(&bench, "more", BASE_US * (1.0 + MORE));
    let (mut told, mut found, mut false_verdicts, mut best) = (Vec::new(), 0, 0, 0.0_f64);
    for attempt in 0..ATTEMPTS {
        let out = format!("run{attempt}");
        bench
            .run(&format!(
                "run --out {out} --path loopback --workload rr-200-1000 --clients 1 --accounting tick \
                 --level base.toml,same.toml,more.toml --seconds 0.3 --warm-up 0.05 --trials {TRIALS}"
            ))
            .ok();
        // The other tests of this program would disturb every round. The noise floor says what they cost.
        bench.undisturb(&out, TRIALS.into());
        let (same, more) = (server(&bench, &out, "same"), server(&bench, &out, "more"));
        let noise = more["noise_floor"].as_f64().unwrap();
        let ratio = more["ratio"].as_f64().unwrap();
        let power = power(MORE, noise);
        println!(
            "noise floor {:.2}%: {:.0}% are found with a power of {:.2}%; found x{ratio:.4}: {}; identical: {}",
            100.0 * noise,
            100.0 * MORE,
            100.0 * power,
            more["verdict"],
            same["verdict"]
        );
        best = best.max(power);
        found += usize::from(more["verdict"] == "worse" && (ratio - 1.0 - MORE).abs() < noise.max(0.01));
        false_verdicts += usize::from(["better", "worse"].contains(&same["verdict"].as_str().unwrap()));
        told.push(format!("noise {noise}, same {same}, more {more}"));
        assert!(more["verdict"] != "better", "{told:?}");
    }
    assert!(
        false_verdicts <= FALSE_MAX,
        "{false_verdicts} of {ATTEMPTS} call two names for the same different: {told:?}"
    );
    if found == 0 && best < POWER_LEAST {
        println!("skipped, because the noise of this host hides 5%: {told:?}");
        return;
    }
    assert!(found > 0, "not found in {ATTEMPTS} attempts: {}", told.join("\n"));
}

/// CPU time planted for each packet of the router while the profiler runs, in microseconds: several times what the router costs.
const PROFILER_US: f64 = 10.0;

#[test]
fn a_profiler_that_costs_more_than_it_says_is_found_out() {
    let bench = Bench::new();
    if !root("plant a cost in a router, and to profile it") || !paths_build(&bench) {
        return;
    }
    const ROUNDS: u64 = 10;
    let run = |out: &str, arguments: &str| {
        bench
            .run(&format!(
                "run --out {out} --workload rr-200-1000 --clients 10 --accounting profile {arguments} --seconds 0.2 \
                 --warm-up 0.05 --trials {ROUNDS}"
            ))
            .ok();
        bench.undisturb(out, ROUNDS);
        let report = bench.run(&format!("show {out} --format json")).ok().json();
        let of = |path: &str| report["cells"].as_array().unwrap().iter().find(|cell| cell["path"] == path).cloned();
        (of("veth-routed").unwrap(), of("hipersockets-routed"))
    };
    let (honest, of_guests) = run("honest", "--path veth-routed,hipersockets-routed");
    let (dear, _) = run("dear", &format!("--path veth-routed --plant profiler={PROFILER_US}"));
    let shown = dear["rate"].as_f64().unwrap();
    let (honest, dear) = (&honest["accounting_cost"], &dear["accounting_cost"]);
    println!("{honest}; planted, {shown:.0} a second: {dear}");
    let of = |cost: &Value, key: &str| cost[key].as_f64().unwrap_or_else(|| panic!("no {key}: {cost}"));
    // Each transaction has two packets in the router, so 20 us more of CPU time. The profiler knows nothing of that.
    assert!(of(dear, "high") < of(honest, "low"), "{dear} and {honest}");
    assert!(of(dear, "said_ratio") > of(dear, "high") + 0.2 && dear["more_than_said"] == true, "{dear}");
    // The rate that is shown is from the phase without the profiler, so the planted cost does not lower it.
    let rate_of = |phase: &Value| {
        let figure = |at: &Value| at.as_f64().unwrap();
        figure(&phase["client"]["transactions"]) * 1e9 / figure(&phase["elapsed_ns"])
    };
    let trials = fs::read_to_string(bench.path("dear/trials.jsonl")).unwrap();
    let trials: Vec<Value> = trials.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(trials.iter().any(|trial| (rate_of(trial) - shown).abs() < 1.0), "{shown} is no trial's own rate");
    for (phase, is_slower) in [("with", true), ("without", false)] {
        let is_as_planted = |trial: &&Value| {
            let (own, other) = (rate_of(trial), rate_of(&trial["observer"][phase]));
            if is_slower { other < 0.75 * own } else { own > 0.7 * other }
        };
        let count = trials.iter().filter(is_as_planted).count();
        assert!(count > trials.len() / 2, "{phase}: {count} of {} trials: {dear}", trials.len());
    }
    // No CPU time of a network of siga's own comes from the profiler. Its guests say what timing their copies takes at most.
    let of_guests = &of_guests.unwrap()["accounting_cost"];
    assert_eq!((&of_guests["method"], &of_guests["rate_ratio"]), (&Value::from("processes"), &Value::Null));
    assert!((0.9..1.0).contains(&of(of_guests, "said_ratio")), "{of_guests}");
    let text = bench.run("show dear").ok().out;
    assert!(text.contains("The cost of CPU accounting") && text.contains("more than estimated"), "{text}");
}

/// Returns the explanations of a comparison of the level `base` with another level.
fn why(bench: &Bench, level: &str) -> Value {
    bench.run(&format!("compare base {level} --run why --why --format json")).ok().json()["why"].clone()
}

/// Returns whether the interval of a difference excludes 0.
fn is_clear(cost: &Value) -> bool {
    cost["low"].as_f64().is_some_and(|low| low > 0.0) || cost["high"].as_f64().is_some_and(|high| high < 0.0)
}

#[test]
fn why_names_a_planted_function_first_with_most_of_the_difference_and_nothing_between_equal_sides() {
    const ROUTER_US: f64 = 5.0;
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for (name, router_us) in [("base", 0.0), ("same", 0.0), ("more", ROUTER_US)] {
        let text = format!("name = \"{name}\"\n[plant]\nrouter_us = {router_us:?}\n");
        fs::write(bench.path(&format!("{name}.toml")), text).unwrap();
    }
    let run = bench.run(&format!(
        "run --out why --path veth-routed --workload rr-200-1000 --clients 1 --level base.toml,same.toml,more.toml \
         --seconds 0.3 --warm-up 0.05 --trials {TRIALS}"
    ));
    if run.err.contains("the profiler cannot run (") || run.out.contains("CPU-cost injector") {
        println!("skipped, because the profiler or the CPU-cost injector does not work here: {run}");
        return;
    }
    run.ok();
    bench.undisturb("why", TRIALS.into());
    let more = why(&bench, "more");
    let explained = &more["explained"][0];
    let first = &explained["causes"][0];
    // The router's injector is a BPF program, which spends the CPU time on each packet. It reads a clock meanwhile. Where that takes
    // nearly all of the time, the function that reads the clock is named.
    let function = first["function"].as_str().unwrap();
    let is_planted = |name: &Value| name == "bpf:siga_injector";
    assert!(is_planted(&first["function"]) || first["callers"].as_array().unwrap().iter().any(is_planted), "{more}");
    assert_eq!(first["charged_to"], "router", "{more}");
    // Other programs on this host can use CPU time of their own, which is in the whole difference, but has no function of the path.
    let named = explained["causes"].as_array().unwrap().iter().map(|cause| cause["difference"].as_f64().unwrap().abs());
    assert!(first["difference"].as_f64().unwrap() > 0.5 * named.sum::<f64>(), "{more}");
    // The whole difference has an interval, and so has the first cause. The two intervals must allow that the first cause is most of it.
    if !is_clear(&explained["rest"]) {
        assert!(first["high"].as_f64().unwrap() > 0.5 * explained["all"]["low"].as_f64().unwrap(), "{more}");
    }
    let difference_us = first["difference"].as_f64().unwrap();
    // At least one packet in each direction, and seldom a third one that carries only an acknowledgement.
    assert!(difference_us > 1.4 * ROUTER_US && difference_us < 3.5 * ROUTER_US, "{difference_us} us: {more}");
    let lost = &explained["new_samples"]["lost"];
    assert_eq!(lost, 0, "{more}");
    let text = bench.run("compare base more --run why --why").ok();
    let sentence = text.out.lines().find(|line| line.starts_with("Sampled CPU time")).unwrap();
    let named = sentence.contains(&format!("{function} +")) && sentence.contains("% of the difference");
    assert_eq!(named, is_clear(&explained["all"]), "{text}");

    // The second time, the file is replaced.
    (0..2).for_each(|_| drop(bench.run("compare base more --run why --flame flame.svg").ok()));
    let svg = fs::read_to_string(bench.path("flame.svg")).unwrap();
    // `tcp_sendmsg_locked` runs on both sides, the injector only on the new one.
    for name in ["siga_injector", "tcp_sendmsg_locked", "router"] {
        assert!(
            svg.contains(&format!("<title>{name}")) || svg.contains(&format!("<title>bpf:{name}")),
            "no {name}: {svg}"
        );
    }
    let parse = "import sys, xml.dom.minidom as dom; print(dom.parse(sys.argv[1]).documentElement.tagName)";
    match Command::new("python3").args(["-c", parse]).arg(bench.path("flame.svg")).output() {
        Ok(parsed) => assert_eq!(String::from_utf8_lossy(&parsed.stdout), "svg\n", "{parsed:?}"),
        Err(error) => println!("not parsed, because python3 does not run here: {error}"),
    }
    bench.run("report why -o why.html").ok();
    let page = fs::read_to_string(bench.path("why.html")).unwrap();
    let mut folds = page.split("<summary>Why: ").skip(1).filter_map(|fold| fold.split("</details>").next());
    assert!(folds.any(|fold| fold.contains(&format!("{function}</th>"))) || !named, "no fold names {function}");
    let none = bench.run("compare base same --run why --flame none.svg");
    assert!(none.status == Some(4) || bench.path("none.svg").exists(), "{none}");

    // By chance, the identical level can differ, but then no single function accounts for much of it.
    let same = why(&bench, "same");
    let clear = same["explained"].as_array().unwrap().iter().flat_map(|one| one["causes"].as_array().unwrap());
    assert!(clear.clone().count() <= 2, "{same}");
    println!("identical: {} functions named", clear.count());
}
