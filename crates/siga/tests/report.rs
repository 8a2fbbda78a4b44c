//! Tests the HTML report in a browser: on a phone and on a desk, in light and dark colours, printed, and offline. Also tests the
//! file to which the report is written.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::browser::Browser;
use common::{Bench, Ended, names, paths_build};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A name that a page without proper escaping would execute, load, or use to close an element.
const HOSTILE: &str = "<img src=x onerror=alert(1)><script>alert(2)<!-- & ' \u{202e} a rather long level name";

/// Measures two paths with two numbers of pairs and three levels, one with a hostile name, in six short trials each.
fn measured() -> Option<Bench> {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return None;
    }
    let level = format!("name = \"{HOSTILE}\"\nabout = \"hostile\"\n[sysctl]\n\"net.ipv4.tcp_sack\" = \"0\"\n");
    fs::write(bench.path("hostile.toml"), level).unwrap();
    let axes = "--path loopback,unix --clients 1,2 --workload rr-1-1 --level plain,reno,./hostile.toml";
    let trials = "--seconds 0.04 --warm-up 0 --trials 6";
    bench.run(&format!("run --out run {axes} {trials}")).ok();
    bench.undisturb("run", 6);
    Some(bench)
}

/// Measures two cells with two trials each, which is enough for a report.
fn small() -> Option<Bench> {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return None;
    }
    bench
        .run("run --out run --path unix,loopback --workload rr-1-1 --clients 1 --seconds 0.02 --warm-up 0 --trials 2")
        .ok();
    Some(bench)
}

/// Asserts what must be true of every report on every screen.
fn assert_sound(browser: &mut Browser, file: &Path, width: u32, scheme: &str) {
    browser.open(file, width, scheme);
    let place = format!("{} at {width} px, {scheme}", file.display());

    let requests = browser.events_of("Network.requestWillBeSent");
    let urls: Vec<_> = requests.iter().map(|one| one["request"]["url"].as_str().unwrap().to_owned()).collect();
    let own = |url: &String| url.starts_with("file://") && url.ends_with(".html") || url.starts_with("data:");
    assert!(!urls.is_empty() && urls.iter().all(own), "{place}: a request leaves the page: {urls:?}");
    for kind in ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"] {
        assert_eq!(browser.events_of(kind), Vec::<Value>::new(), "{place}: {kind}");
    }

    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)");
    let inner = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
    assert!(inner <= u64::from(width), "{place}: the page is {inner} px wide");

    // Each row of the chart's table has a mark, and each mark has a label.
    let counts = browser.value(
        "[...document.querySelectorAll('figure.chart')].map(one => [
            one.querySelector('h3').textContent,
            one.querySelectorAll('.mark[aria-label]:not([aria-label=\"\"])').length,
            one.querySelectorAll('details tbody tr').length,
            one.querySelectorAll('.axis').length || one.querySelectorAll('.diagram').length])",
    );
    for chart in counts.as_array().unwrap() {
        assert!(chart[1].as_u64() > Some(0) && chart[1] == chart[2], "{place}: marks and rows: {chart}");
        assert!(chart[3].as_u64() > Some(0), "{place}: no title at an axis: {chart}");
    }

    // No text is clipped at the edge of the screen or of its own box, and no texts of a drawing overlap.
    let clipped = browser.value(
        "[...document.querySelectorAll('.drawing svg text, .drawing span, .drawing p, header *, .cost *, .outcome *, .made-of *')].filter(text => {
            const box = text.getBoundingClientRect();
            const own = text instanceof HTMLElement && getComputedStyle(text).display !== 'inline';
            return box.left < 0 || box.right > document.documentElement.clientWidth ||
                own && text.scrollWidth > text.clientWidth + 1;
        }).map(text => text.textContent)",
    );
    assert_eq!(clipped, json!([]), "{place}: cut off");
    let touching = browser.value(
        "[...document.querySelectorAll('.drawing')].flatMap(drawing => {
            const texts = [...drawing.querySelectorAll('svg text, .label, .value, .side, b, .word, .what, .group, .heads span')]
                .filter(text => text.textContent.trim()).map(text => [text, text.getBoundingClientRect()])
                .filter(([, box]) => box.width > 0);
            return texts.flatMap(([text, box], at) => texts.slice(at + 1, at + 60).filter(([other, there]) =>
                !text.contains(other) && !other.contains(text) && box.left + 1 < there.right && there.left + 1 < box.right &&
                box.top + 3 < there.bottom && there.top + 3 < box.bottom
            ).map(([other]) => text.textContent + ' | ' + other.textContent));
        })",
    );
    assert_eq!(touching, json!([]), "{place}: one on the other");
    assert_columns_are_wide(browser, &place);
    assert_contrast(browser, &place);
}

/// Asserts that no column of a table and no label is so narrow that it breaks a word.
fn assert_columns_are_wide(browser: &mut Browser, place: &str) {
    let broken = browser.value(
        "[...document.querySelectorAll('th, td, .side, .label, .outcome span, .cost p')].flatMap(cell => {
            const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
            const broken = [];
            while (texts.nextNode()) {
                for (const word of texts.currentNode.data.matchAll(/[\\w,.%]{2,12}(?=\\s|$)/g)) {
                    if (!/^$|\\s/.test(texts.currentNode.data.charAt(word.index - 1))) continue;
                    const range = document.createRange();
                    range.setStart(texts.currentNode, word.index);
                    range.setEnd(texts.currentNode, word.index + word[0].length);
                    const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
                    if (lines > 1) broken.push(word[0]);
                }
            }
            return broken;
        })",
    );
    assert_eq!(broken, json!([]), "{place}: words that a narrow column breaks");
}

/// Asserts that the contrast to the background is at least 4.5 to 1 for text, and 3 to 1 for lines and marks.
fn assert_contrast(browser: &mut Browser, place: &str) {
    let poor = browser.value(
        "(() => {
            const style = getComputedStyle(document.documentElement);
            const probe = document.createElement('i');
            document.body.append(probe);
            const light = name => {
                probe.style.color = `var(--${name})`;
                const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(part => {
                    const value = part / 255;
                    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
                });
                return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
            };
            const ratio = (one, other) => {
                const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
                return (high + 0.05) / (low + 0.05);
            };
            const poor = [];
            const need = (least, front, back) => {
                if (!(ratio(front, back) >= least)) poor.push([front, back, ratio(front, back)]);
            };
            for (const back of ['paper', 'panel']) {
                for (const front of ['ink', 'soft', 'link', 'warn', 'better-text', 'worse-text']) need(4.5, front, back);
                for (const front of ['edge', 'focus', 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7']) need(3, front, back);
            }
            probe.remove();
            return poor;
        })()",
    );
    assert_eq!(poor, json!([]), "{place}: too little contrast");
}

const TIP: &str =
    "(() => { const tip = document.getElementById('tip'); return tip.hidden ? null : tip.textContent; })()";

/// Scrolls to the first mark of a chart. Returns the mark's centre.
fn middle(browser: &mut Browser, chart: usize) -> (Value, Value) {
    let place = browser.value(&format!(
        "(() => {{
            const mark = document.querySelectorAll('figure.chart')[{chart}].querySelector('.mark');
            mark.scrollIntoView({{ block: 'center' }});
            const box = (mark.querySelector('.hit') ?? mark).getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2, mark.getAttribute('aria-label')];
        }})()"
    ));
    (json!({"type": "mouseMoved", "x": place[0], "y": place[1]}), place[2].clone())
}

#[test]
fn a_report_is_shown_whole_in_a_browser() {
    let Some(bench) = measured() else { return };
    let told = bench.run("report run").ok();
    assert_eq!(told.out, "");
    assert_eq!(told.err, "report: run/report.html\n");
    let Some(mut browser) = Browser::start(&bench) else { return };
    let file = bench.path("run/report.html");
    for (width, scheme) in [(360, "light"), (390, "dark"), (768, "light"), (1280, "light"), (1280, "dark")] {
        assert_sound(&mut browser, &file, width, scheme);
    }
    let dark = browser.value("getComputedStyle(document.body).backgroundColor");
    browser.open(&file, 1280, "light");
    assert_ne!(browser.value("getComputedStyle(document.body).backgroundColor"), dark);

    let headings = browser.value("[...document.querySelectorAll('h2')].map(one => one.textContent)");
    let expected = json!([
        "Ratios of rate and CPU time",
        "Where the CPU time goes",
        "What disturbed the measurement",
        "Workload by workload",
        "Verdicts in words",
        "Ratios with their intervals",
        "Latency by percentile",
        "Rate over pairs",
        "The host, round by round",
        "Tables",
        "Environment and settings",
        "Raw data",
    ]);
    assert_eq!(headings, expected);
    let titles = browser.value("[...document.querySelectorAll('figure.chart h3')].map(one => one.textContent)");
    let titles: Vec<&str> = titles.as_array().unwrap().iter().map(|title| title.as_str().unwrap()).collect();
    for title in [
        "rr-1-1",
        "reno against plain",
        "Rate over pairs: rr-1-1",
        "Latency: rr-1-1, 1 pair",
        "Latency: rr-1-1, 2 pairs",
        "What disturbed the rounds: run",
        "Probes of the host: run",
    ] {
        assert!(titles.contains(&title), "no chart `{title}`: {titles:?}");
    }
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)");
    assert_says_its_figures(&mut browser, titles.len());
    assert_taps(&mut browser, &file);
    assert_hostile_is_text(&mut browser);
    assert_saves(&mut browser, &bench);
    assert_prints(&mut browser);
    drop(browser);
    fs::remove_dir_all(bench.path("browser")).unwrap();
    bench.assert_nothing_left();
}

#[test]
fn the_figures_of_a_study_are_shown_beside_the_published_ones_in_a_browser() {
    let bench = Bench::new();
    let trials = "--seconds 0.05 --warm-up 0 --trials 1";
    for (name, plan) in
        [("zvm", "zvm430 --table 3,11 --clients 10"), ("linux", "linux2009 --table osa-1gbe,hipersockets")]
    {
        bench.run(&format!("run --out {name} {plan} {trials}")).ok();
        bench.undisturb(name, 1);
        bench.run(&format!("report {name}")).ok();
    }
    let Some(mut browser) = Browser::start(&bench) else { return };
    for (name, headings, charts) in [
        (
            "zvm",
            &["Findings of z/VM's report", "Figures of z/VM's report, published and measured"][..],
            &[
                "Figure 1. Environment",
                "Figure 2. Router Stack CPU Time Ratios - 10 clients",
                "Figure 6. CPU msec/trans CRR with HiperSockets, measured",
            ][..],
        ),
        (
            "linux",
            &["Networking throughput overview of 2009, published and measured", "The matrix of 2009"],
            &["Online transaction: trans/sec", "File transfer, get: server CPU in ms/MB"],
        ),
    ] {
        let file = bench.path(&format!("{name}/report.html"));
        for (width, scheme) in [(390, "dark"), (1280, "light")] {
            assert_sound(&mut browser, &file, width, scheme);
        }
        for (kind, wanted) in [("h2", headings), ("figure.chart h3", charts)] {
            let all = browser.value(&format!("[...document.querySelectorAll('{kind}')].map(one => one.textContent)"));
            let all: Vec<&str> = all.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
            assert!(wanted.iter().all(|text| all.contains(text)), "{name}: {wanted:?} in {all:?}");
        }
    }
    drop(browser);
    fs::remove_dir_all(bench.path("browser")).unwrap();
    bench.assert_nothing_left();
}

#[test]
fn the_first_screen_has_room_for_ratios_costs_and_disturbance() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let axes = "--path loopback --clients 1 --workload rr-1-1 --level plain,reno";
    bench.run(&format!("run --out run {axes} --seconds 0.04 --warm-up 0 --trials 6")).ok();
    bench.undisturb("run", 6);
    bench.run("report run").ok();
    let Some(mut browser) = Browser::start(&bench) else { return };
    // The heights are those of a small laptop and of a phone. On a phone, the verdict on the host stands at the top.
    let parts = ["h1", ".verdicts", ".host", ".outcome", ".costs", ".made-of", ".strip"];
    for (width, height, count) in [(1280, 800.0, 7), (390, 844.0, 5)] {
        browser.open(&bench.path("run/report.html"), width, "light");
        let ends = browser.value(&format!(
            "{}.map(part => document.querySelector(part).getBoundingClientRect().bottom)",
            json!(parts[..count])
        ));
        let ends: Vec<f64> = ends.as_array().unwrap().iter().map(|end| end.as_f64().unwrap()).collect();
        assert!(ends.is_sorted(), "the parts are in another order: {ends:?}");
        assert!(ends.iter().all(|end| *end > 0.0 && *end <= height), "{width} px: {ends:?} on a screen of {height} px");
    }
}

/// Asserts that hover, focus and arrow keys show the label of a mark.
fn assert_says_its_figures(browser: &mut Browser, charts: usize) {
    for chart in 0..charts {
        let (order, says) = middle(browser, chart);
        browser.call("Input.dispatchMouseEvent", &json!({"type": "mouseMoved", "x": 1, "y": 1}));
        assert_eq!(browser.value(TIP), Value::Null, "chart {chart} says something before it is asked");
        browser.call("Input.dispatchMouseEvent", &order);
        let shown = browser.value(TIP);
        // Points of a line chart can overlap; then the tip shows the label of the upper one.
        let label = says.as_str().unwrap().lines().count();
        assert!(
            shown.as_str().is_some_and(|shown| shown.lines().count() == label),
            "chart {chart}: {shown} for {says}"
        );
    }
    let (_, says) = middle(browser, 0);
    browser.call("Input.dispatchMouseEvent", &json!({"type": "mouseMoved", "x": 1, "y": 1}));
    browser.value("document.querySelector('.mark').focus()");
    assert_eq!(browser.value(TIP), says, "focus");
    for (key, at) in [("ArrowDown", 1), ("End", -1), ("Home", 0)] {
        browser.call("Input.dispatchKeyEvent", &json!({"type": "keyDown", "key": key, "code": key}));
        let wanted = format!(
            "[...document.querySelector('[role=group]').querySelectorAll('.mark')].at({at}).getAttribute('aria-label')"
        );
        let wanted = browser.value(&wanted);
        assert_eq!(browser.value(TIP), wanted, "{key}");
    }
    browser.call("Input.dispatchKeyEvent", &json!({"type": "keyDown", "key": "Escape", "code": "Escape"}));
    assert_eq!(browser.value(TIP), Value::Null, "Escape");
}

/// Asserts that a tap shows the label of a mark, because touch screens have no hover.
fn assert_taps(browser: &mut Browser, file: &Path) {
    browser.call("Emulation.setTouchEmulationEnabled", &json!({"enabled": true}));
    browser.open(file, 360, "light");
    let (place, says) = middle(browser, 0);
    let touch = json!({"type": "touchStart", "touchPoints": [{"x": place["x"], "y": place["y"]}]});
    browser.call("Input.dispatchTouchEvent", &touch);
    browser.call("Input.dispatchTouchEvent", &json!({"type": "touchEnd", "touchPoints": []}));
    assert_eq!(browser.value(TIP), says, "tap");
    browser.call("Emulation.setTouchEmulationEnabled", &json!({"enabled": false}));
    browser.open(file, 1280, "light");
}

fn assert_hostile_is_text(browser: &mut Browser) {
    assert_eq!(browser.value("document.images.length + document.querySelectorAll('script:not([type])').length"), 1);
    // The character that reverses the text direction is replaced; all other characters stay.
    let shown = HOSTILE.replace('\u{202e}', "\u{fffd}");
    for place in ["header", "#costs", "#charts", "#verdict"] {
        let words = format!("document.querySelector('{place}').textContent.includes({})", json!(shown));
        assert_eq!(browser.value(&words), true, "the name of the level in {place}");
    }
    assert_eq!(browser.value("document.documentElement.outerHTML.includes('\\u202e')"), false);
}

/// Asserts that the saved files are identical to the output of `siga show`, and to the trials of the run without call chains.
fn assert_saves(browser: &mut Browser, bench: &Bench) {
    let saved = browser.value(
        "(async () => {
            const files = {};
            for (const button of document.querySelectorAll('button[data-from]')) {
                const file = new Promise(saved => { URL.createObjectURL = blob => { saved(blob); return '#saved'; }; });
                button.click();
                files[button.textContent] = await (await file).text();
            }
            return files;
        })()",
    );
    let saved = |name: &str| saved[format!("Save {name}")].as_str().unwrap_or_else(|| panic!("no {name}")).to_owned();
    assert_eq!(saved("run-cells.csv"), bench.run("show run --format csv").ok().out);
    let trials = |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let mut expected = trials(&fs::read_to_string(bench.path("run/trials.jsonl")).unwrap());
    expected.iter_mut().for_each(|trial| _ = trial["cpu"].as_object_mut().unwrap().remove("chains"));
    assert_eq!(trials(&saved("run-trials.jsonl")), expected);
    let report: Value = serde_json::from_str(&saved("run-run.json")).unwrap();
    assert_eq!(report["cells"].as_array().unwrap().len(), 12);
    assert!(saved("reno-against-plain.csv").lines().count() > 4);
}

fn assert_prints(browser: &mut Browser) {
    let opened = "document.querySelectorAll('details[open]').length";
    browser.value("document.querySelectorAll('details').forEach(one => one.open = false)");
    let printed = browser.call("Page.printToPDF", &json!({"paperWidth": 8.27, "paperHeight": 11.69}));
    let data = printed["data"].as_str().unwrap();
    assert!(data.starts_with("JVBERi0"), "no PDF: {}", &data[..20]);
    assert!(data.len() > 50_000, "an almost empty PDF of {} bytes", data.len());
    assert_eq!(browser.value(opened), 0, "what was opened for the printer is closed again");
    browser.call("Emulation.setEmulatedMedia", &json!({"media": "print"}));
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        &json!({"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": false}),
    );
    assert_eq!(browser.value("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
    assert!(wide <= 720, "paper of 720 px, a page of {wide}");
}

#[test]
fn the_published_tables_have_all_their_figures() {
    let bench = Bench::new();
    assert_eq!(bench.run("report --published").ok().err, "report: published.html\n");
    let text = fs::read_to_string(bench.path("published.html")).unwrap();
    assert!(!text.contains("NaN"), "a figure came to nothing");
    for table in 1..=18 {
        assert!(text.contains(&format!("id=\"table-{table}\"")), "no table {table}");
    }
    let Some(mut browser) = Browser::start(&bench) else { return };
    let file = bench.path("published.html");
    for (width, scheme) in [(360, "dark"), (1280, "light")] {
        assert_sound(&mut browser, &file, width, scheme);
    }
    let titles = browser.value("[...document.querySelectorAll('figure.chart')].map(one => [one.querySelector('h3').textContent, one.querySelectorAll('.mark').length])");
    let expected = json!([
        ["Figure 1. Environment", 4],
        ["Figure 2. Router Stack CPU Time Ratios - 10 clients", 18],
        ["Figure 3. Server Stack CPU Time Ratios - 10 clients", 18],
        ["Figure 4. Throughput Ratios - 10 clients", 18],
        ["Figure 5. CPU msec/MB Streaming with HiperSockets", 12],
        ["Figure 6. CPU msec/trans CRR with HiperSockets", 6],
    ]);
    assert_eq!(titles, expected);
    // The mark is Table 1, 10 clients, for which the source says that the router gained most.
    let says =
        browser.value("document.querySelectorAll('figure.chart')[1].querySelector('.mark').getAttribute('aria-label')");
    assert!(says.as_str().unwrap().ends_with("ratio: 0.34"), "{says}");
    let tables = browser.value("document.querySelectorAll('details.print pre').length");
    assert_eq!(tables, 20);
    let text = browser.value("document.querySelector('#table-5 pre').textContent");
    assert_eq!(text, bench.run("published 5").ok().out, "the table as it was printed");
}

#[test]
fn a_report_of_two_runs_compares_with_the_first_as_base() {
    let Some(bench) = small() else { return };
    bench.run("run --out other --path unix --workload rr-1-1 --clients 1 --seconds 0.02 --warm-up 0 --trials 2").ok();
    assert_eq!(bench.run("report run other -o change.html").ok().err, "report: change.html\n");
    let page = fs::read_to_string(bench.path("change.html")).unwrap();
    assert!(page.contains("<h3>other against run</h3>"), "which is the base?");
    assert!(page.contains("What differs: other against run"), "no environments");
    bench.run("report run run/nothing").refused(2, &["run/nothing is not a run directory"]);
}

#[test]
fn a_report_replaces_only_a_file_of_siga() {
    let Some(bench) = small() else { return };
    let before = names(&bench.path(""));
    fs::write(bench.path("thesis.html"), "<!DOCTYPE html><p>ten years of work").unwrap();
    bench.run("report run -o thesis.html").refused(2, &["thesis.html was not written by siga"]);
    assert_eq!(fs::read_to_string(bench.path("thesis.html")).unwrap(), "<!DOCTYPE html><p>ten years of work");
    bench.run("report run -o run").refused(2, &["run is a directory"]);
    std::os::unix::fs::symlink("thesis.html", bench.path("link.html")).unwrap();
    bench.run("report run -o link.html").refused(2, &["link.html was not written by siga"]);
    bench.run("report run -o /dev/null").ok();
    bench.run("report run -o absent/report.html").refused(3, &["cannot write to absent/report.html"]);
    bench.run("report").refused(2, &["RUN"]);
    bench.run("report run --published").refused(2, &["cannot be used with"]);
    fs::remove_file(bench.path("link.html")).unwrap();
    fs::remove_file(bench.path("thesis.html")).unwrap();
    assert_eq!(names(&bench.path("")), before);

    bench.run("report run").ok();
    bench.run("report run").ok();
    // A limit of 8 blocks on the file's size has the same effect as a full disk.
    let mut command = bench.command("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" report run", bench.program.to_str().unwrap()]);
    let whole = fs::read(bench.path("run/report.html")).unwrap();
    Ended::new("report on a full disk", command.output().unwrap()).refused(3, &["cannot write to run/report.html"]);
    assert_eq!(fs::read(bench.path("run/report.html")).unwrap(), whole, "what was there stays");
    assert!(!names(&bench.path("run")).iter().any(|name| name.contains("part")), "half a file is left");
}

#[test]
fn a_report_says_that_its_run_is_incomplete() {
    let Some(bench) = small() else { return };
    let page = |bench: &Bench| {
        bench.run("report run").ok();
        fs::read_to_string(bench.path("run/report.html")).unwrap()
    };
    assert!(!page(&bench).contains("Unfinished"));
    let trials = fs::read_to_string(bench.path("run/trials.jsonl")).unwrap();
    let first = trials.lines().next().unwrap();
    fs::write(bench.path("run/trials.jsonl"), format!("{first}\n{{\"cut")).unwrap();
    let cut = page(&bench);
    assert!(cut.contains("Unfinished") && cut.contains("1 trials of 1 of 2 cells"), "{cut}");
    assert!(cut.contains("Damaged"), "a cut line is told");
    fs::write(bench.path("run/trials.jsonl"), "").unwrap();
    bench.run("report run").refused(4, &["run has no trial"]);
    fs::write(bench.path("run/trials.jsonl"), "{}\n").unwrap();
    bench.run("report run").refused(3, &["trials.jsonl line 1"]);
    bench.run("report tmp").refused(2, &["tmp is not a run directory"]);
}
