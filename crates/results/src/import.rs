//! Results of other benchmark programs as runs, so that siga's statistics judge them: hyperfine (`--export-json`), Go (`go test -bench`),
//! Criterion (`sample.json`) and JMH (`-rf json`).
//!
//! Each sample becomes a trial. The files say nothing about the host, and their programs measure one benchmark after the other, so a
//! caution says that the trials were not interleaved.

use crate::environment::Environment;
use crate::histogram;
use crate::record::{CommandRecord, CpuRecord, FigureRecord, LoadCounts, ProcessCpu, TrialRecord};
use crate::store::Run;
use serde_json::Value;
use siga_model::error::{Error, Result};
use siga_plan::command::CommandName;
use siga_plan::command::figure::{Better, FigureKey};
use siga_plan::file;
use siga_plan::level::Level;
use siga_plan::matrix::Cell;
use siga_plan::plan::Plan;
use siga_plan::route::HOST;
use siga_plan::work::Work;
use std::collections::HashMap;
use std::path::Path;

/// Largest file that is imported, in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Largest file that names a benchmark, in bytes.
const NAME_BYTES_MAX: u64 = 1 << 20;
/// The file in which Criterion writes the samples of a benchmark.
const CRITERION_SAMPLES: &str = "sample.json";
/// The file beside it that names the benchmark.
const CRITERION_NAME: &str = "benchmark.json";
/// Maximum number of samples in a file.
const SAMPLES_MAX: usize = 100_000;
/// What the user has to know about the trials of a file.
pub const CAUTION: &str =
    "the trials come from another program, which measured the benchmarks one after the other, not alternately";

/// One sample of a benchmark.
struct Sample {
    benchmark: String,
    level: String,
    /// Mean time of one run, in nanoseconds.
    time_ns: Option<f64>,
    figures: Vec<(FigureKey, f64)>,
}

/// Returns true if a path is a result of another program: a file, or the directory of a benchmark of Criterion.
pub fn is_result(path: &Path) -> bool {
    path.is_file() || path.join(CRITERION_SAMPLES).is_file()
}

/// Reads the results of another program: a file, or the directory in which Criterion writes the samples of a benchmark.
///
/// # Errors
/// Returns an error of kind `Usage` if the file cannot be read, has an unknown format, or has no sample.
pub fn read(path: &Path) -> Result<Run> {
    let refused = |error: std::io::Error| {
        Error::usage(format!("cannot read {}: {error}", path.display()))
            .hint("use a run directory, or a result file of hyperfine, Go, Criterion or JMH")
    };
    let file = if path.is_dir() { path.join(CRITERION_SAMPLES) } else { path.to_owned() };
    let text = file::read_named(&file, BYTES_MAX).map_err(refused)?;
    let mut samples = samples(&text).map_err(|error| error.at(path.display()))?;
    if let Some(name) = criterion_name(&file) {
        samples.iter_mut().for_each(|sample| sample.benchmark.clone_from(&name));
    }
    run(path, samples).map_err(|error| error.at(path.display()))
}

/// Returns the name of the benchmark whose samples are in this file of Criterion, such as `sort/1000`.
fn criterion_name(file: &Path) -> Option<String> {
    if file.file_name()? != CRITERION_SAMPLES {
        return None;
    }
    let text = file::read_named(&file.with_file_name(CRITERION_NAME), NAME_BYTES_MAX).ok()?;
    let benchmark: Value = serde_json::from_str(&text).ok()?;
    benchmark.get("full_id")?.as_str().map(str::to_owned)
}

fn samples(text: &str) -> Result<Vec<Sample>> {
    let found = match serde_json::from_str::<Value>(text) {
        Ok(json) => of_json(&json),
        Err(_) => of_go(text),
    };
    match found {
        Some(samples) if samples.is_empty() => Err(Error::usage("the result file contains no sample")),
        Some(samples) if samples.len() > SAMPLES_MAX => {
            Err(Error::usage(format!("the result file contains too many samples: {}", samples.len()))
                .hint(format!("siga imports at most {SAMPLES_MAX} samples")))
        }
        Some(samples) => Ok(samples),
        None => Err(Error::usage("siga does not know the format of this result file").hint(
            "siga can read JSON of hyperfine (--export-json) and JMH (-rf json), sample.json of Criterion, and the output of `go test -bench`",
        )),
    }
}

fn of_json(json: &Value) -> Option<Vec<Sample>> {
    if let Some(results) = json.get("results").and_then(Value::as_array) {
        return results
            .iter()
            .map(of_hyperfine)
            .collect::<Option<Vec<_>>>()
            .map(|all| all.into_iter().flatten().collect());
    }
    if let (Some(iterations), Some(times)) = (json.get("iters"), json.get("times")) {
        return of_criterion(iterations, times);
    }
    let results = json.as_array()?;
    results.iter().map(of_jmh).collect::<Option<Vec<_>>>().map(|all| all.into_iter().flatten().collect())
}

/// Reads a command of hyperfine. Commands are levels, so that those of one file can be compared.
fn of_hyperfine(result: &Value) -> Option<Vec<Sample>> {
    let command = result.get("command")?.as_str()?;
    let one = |time: &Value| {
        let seconds = time.as_f64().filter(|seconds| *seconds > 0.0)?;
        let (benchmark, level) = ("hyperfine".to_owned(), command.to_owned());
        Some(Sample { benchmark, level, time_ns: Some(seconds * 1e9), figures: Vec::new() })
    };
    result.get("times")?.as_array()?.iter().map(one).collect()
}

fn of_criterion(iterations: &Value, times: &Value) -> Option<Vec<Sample>> {
    let pairs = iterations.as_array()?.iter().zip(times.as_array()?);
    let one = |(iterations, time): (&Value, &Value)| {
        let time_ns = time.as_f64()? / iterations.as_f64().filter(|count| *count > 0.0)?;
        Some(Sample {
            benchmark: "criterion".into(),
            level: "plain".into(),
            time_ns: Some(time_ns),
            figures: Vec::new(),
        })
    };
    pairs.map(one).collect()
}

/// Reads a benchmark of JMH: the iterations of all forks. A mode that counts operations is better with a higher score.
fn of_jmh(result: &Value) -> Option<Vec<Sample>> {
    let benchmark = result.get("benchmark")?.as_str()?.rsplit('.').next()?.to_owned();
    let better = if result.get("mode")?.as_str()? == "thrpt" { Better::Higher } else { Better::Lower };
    let metric = result.get("primaryMetric")?;
    let key = FigureKey { name: "score".parse().ok()?, unit: metric.get("scoreUnit")?.as_str()?.parse().ok()?, better };
    let parameters = result.get("params").and_then(Value::as_object).into_iter().flatten();
    let parameters: Vec<String> =
        parameters.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    let level = if parameters.is_empty() { "plain".to_owned() } else { parameters.join(" ") };
    let forks = metric.get("rawData")?.as_array()?.iter();
    let scores = forks.map(Value::as_array).collect::<Option<Vec<_>>>()?.into_iter().flatten();
    let one = |score: &Value| {
        let figures = vec![(key, score.as_f64()?)];
        Some(Sample { benchmark: benchmark.clone(), level: level.clone(), time_ns: None, figures })
    };
    scores.map(one).collect()
}

/// Reads the output of `go test -bench`, such as `BenchmarkSort-8  1000  1234 ns/op  64 B/op`. Returns `None` if no line is of it.
fn of_go(text: &str) -> Option<Vec<Sample>> {
    let samples: Vec<Sample> = text.lines().filter_map(go_line).collect();
    (!samples.is_empty()).then_some(samples)
}

fn go_line(line: &str) -> Option<Sample> {
    let mut words = line.split_whitespace();
    let name = words.next()?.strip_prefix("Benchmark")?;
    let _iterations: u64 = words.next()?.parse().ok()?;
    // The number of CPUs follows the name.
    let benchmark = match name.rsplit_once('-') {
        Some((own, cpus)) if cpus.parse::<u32>().is_ok() => own,
        Some(_) | None => name,
    };
    let words: Vec<&str> = words.collect();
    let mut sample =
        Sample { benchmark: benchmark.to_owned(), level: "plain".into(), time_ns: None, figures: Vec::new() };
    for pair in words.chunks_exact(2) {
        let value: f64 = pair[0].parse().ok().filter(|value: &f64| value.is_finite())?;
        if pair[1] == "ns/op" {
            sample.time_ns = Some(value);
            continue;
        }
        let better = if pair[1].ends_with("/s") { Better::Higher } else { Better::Lower };
        let name = pair[1].replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        sample.figures.push((FigureKey { name: name.parse().ok()?, unit: pair[1].parse().ok()?, better }, value));
    }
    Some(sample)
}

/// Returns the trials of one command of hyperfine, or of one set of parameters of JMH, as a run of its own. Two of them are two samples:
/// their trials are not pairs, because they were not measured alternately. Returns `None` if the run has no trial of this name.
pub fn part(run: &Run, name: &str) -> Option<Run> {
    let level = level_name(name);
    let mut trials: Vec<TrialRecord> = run.trials.iter().filter(|trial| trial.cell.level == level).cloned().collect();
    trials.iter_mut().for_each(|trial| trial.cell.level = Level::plain().name);
    (!trials.is_empty()).then(|| Run {
        directory: name.into(),
        plan: run.plan.clone(),
        levels: vec![Level::plain()],
        environment: run.environment.clone(),
        trials,
        paths: Vec::new(),
        skipped: Vec::new(),
        monitor: Vec::new(),
        damage: Vec::new(),
        ended: true,
    })
}

/// Returns the name of a level for any text. Names of levels have no commas, slashes and quotation marks.
fn level_name(text: &str) -> String {
    text.replace([',', '/', '"'], "_").replace(char::is_control, "_")
}

fn run(path: &Path, samples: Vec<Sample>) -> Result<Run> {
    let mut run = Run {
        directory: path.to_owned(),
        plan: Plan { name: "import".into(), ..Plan::default() },
        levels: Vec::new(),
        environment: Environment::default(),
        trials: Vec::new(),
        paths: Vec::new(),
        skipped: Vec::new(),
        monitor: Vec::new(),
        damage: Vec::new(),
        ended: true,
    };
    let mut rounds: HashMap<Cell, u32> = HashMap::new();
    for sample in samples {
        let level = level_name(&sample.level);
        if !run.levels.iter().any(|other| other.name == level) {
            run.levels.push(Level { name: level.clone(), ..Level::plain() });
        }
        let workload = Work::Command(CommandName::of_program(&sample.benchmark.replace('/', "-")));
        let cell = Cell { path: HOST.to_owned(), workload, mtu: None, clients: 1, level };
        let round = rounds.entry(cell.clone()).or_insert(0);
        run.trials.push(trial(cell, *round, &sample)?);
        *round += 1;
    }
    Ok(run)
}

fn trial(cell: Cell, round: u32, sample: &Sample) -> Result<TrialRecord> {
    // Without a time, a trial has no run, so that it has no rate either.
    let runs = u64::from(sample.time_ns.is_some());
    // Runs of less than a microsecond need a finer unit than the nanosecond: siga counts a million of them.
    let many = if sample.time_ns.is_some_and(|ns| ns < 1e6) { 1_000_000 } else { 1 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of a run is positive and short"
    )]
    let elapsed_ns = (sample.time_ns.unwrap_or(1e9) * many as f64) as u64;
    let nothing = ProcessCpu::default();
    Ok(TrialRecord {
        cell,
        round,
        session: 0,
        at: String::new(),
        io: "command".into(),
        elapsed_ns,
        client: LoadCounts { transactions: runs * many, ..LoadCounts::default() },
        server: LoadCounts::default(),
        latency: histogram::encode(&histogram::empty())?,
        corrected: None,
        slices: Vec::new(),
        pair_units: (0.0, 0.0),
        fairness: None,
        jitter_ns: None,
        beside: None,
        neighbours_rate: None,
        cpu: CpuRecord {
            hosts: 1,
            cpus: 1,
            wall_ns: elapsed_ns,
            busy_ns: 0,
            resolution_ns: 0,
            user_tick_ns: 0,
            system_tick_ns: 0,
            softirq_tick_ns: 0,
            client: nothing,
            server: nothing,
            profile: None,
            chains: None,
            guests: None,
            between: Default::default(),
            planted_router: None,
        },
        command: Some(CommandRecord {
            figures: sample.figures.iter().map(|(key, value)| FigureRecord::of(*key, *value)).collect(),
            ..CommandRecord::default()
        }),
        observer: None,
        offered: Vec::new(),
        host: None,
        protocol: std::collections::BTreeMap::new(),
        devices: std::collections::BTreeMap::new(),
        drops: 0,
        flags: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{self, Metric, Verdict};

    fn read_text(text: &str) -> Run {
        run(Path::new("file"), samples(text).unwrap()).unwrap()
    }

    #[test]
    fn commands_of_hyperfine_are_levels_and_get_a_verdict() {
        let times = |mean: f64| {
            (0..10).map(|at| format!("{}", mean + 0.0001 * f64::from(at % 3))).collect::<Vec<_>>().join(",")
        };
        let run = read_text(&format!(
            r#"{{"results": [{{"command": "old -x", "times": [{}]}}, {{"command": "new/a", "times": [{}]}}]}}"#,
            times(0.2),
            times(0.1)
        ));
        let [old, new] = ["old -x", "new/a"].map(|name| part(&run, name).unwrap());
        assert!(part(&run, "other").is_none());
        let compared = judge::runs(&old, &new).unwrap();
        assert_eq!(compared.subject, judge::Subject::Runs, "the trials are not pairs");
        let rate = compared.rows.iter().find(|row| row.metric == Metric::Rate).unwrap();
        assert!(rate.verdict == Verdict::Better && (rate.ratio - 2.0).abs() < 0.01, "{rate:?}");
        assert_eq!(compared.rows.len(), 1, "hyperfine gives no CPU time of each run: {:?}", compared.rows);
    }

    #[test]
    fn benchmarks_of_go_have_times_and_figures() {
        let line = |ns: u32| format!("BenchmarkSort/n=10-8   1000   {ns}.5 ns/op   64 B/op   2 allocs/op   99 MB/s\n");
        let text =
            format!("goos: linux\npkg: x\n{}PASS\nok x 1s\n", (0..8).map(|at| line(200 + at)).collect::<String>());
        let run = read_text(&text);
        assert_eq!((run.trials.len(), run.trials[0].cell.workload.to_string().as_str()), (8, "Sort-n-10"));
        assert!((run.trials[0].rate() - 1e9 / 200.5).abs() < 10.0, "{}", run.trials[0].rate());
        let names: Vec<_> =
            run.trials[0].figures().iter().map(|(key, value)| (key.name.to_string(), key.better, *value)).collect();
        let lower = |name: &str, value| (name.to_owned(), Better::Lower, value);
        assert_eq!(names, [lower("B_op", 64.0), lower("allocs_op", 2.0), ("MB_s".to_owned(), Better::Higher, 99.0)]);
        let slower = read_text(&text.replace(" 20", " 30"));
        let compared = judge::runs(&run, &slower).unwrap();
        let rate = compared.rows.iter().find(|row| row.metric == Metric::Rate).unwrap();
        assert_eq!(rate.verdict, Verdict::Worse, "{compared:?}");
        assert!(compared.cautions.iter().all(|caution| !caution.contains("copy")), "{:?}", compared.cautions);
    }

    #[test]
    fn samples_of_criterion_and_scores_of_jmh_are_read() {
        let run = read_text(r#"{"sampling_mode": "Linear", "iters": [10, 20.0], "times": [5000, 11000.0]}"#);
        assert_eq!(run.trials.iter().map(|trial| (1e9 / trial.rate()).round()).collect::<Vec<_>>(), [500.0, 550.0]);
        let jmh = r#"[{"benchmark": "a.b.Sort.run", "mode": "thrpt", "params": {"size": "10"},
            "primaryMetric": {"scoreUnit": "ops/s", "rawData": [[10.0, 11.0], [12.0]]}}]"#;
        let run = read_text(jmh);
        assert_eq!((run.trials.len(), run.trials[2].round, run.levels[0].name.as_str()), (3, 2, "size=10"));
        let (key, value) = run.trials[2].figures()[0];
        assert_eq!((key.better, key.unit.as_str(), value, run.trials[0].units()), (Better::Higher, "ops/s", 12.0, 0.0));
        assert_eq!(read_text(&jmh.replace("thrpt", "avgt")).trials[0].figures()[0].0.better, Better::Lower);
    }

    #[test]
    fn a_directory_of_criterion_has_samples_and_the_name_of_the_benchmark() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(!is_result(path) && read(path).is_err_and(|error| error.exit_status() == 2));
        std::fs::write(path.join("sample.json"), r#"{"iters": [10.0], "times": [5000.0]}"#).unwrap();
        let name = |run: &Run| run.trials[0].cell.workload.to_string();
        assert!(is_result(path) && name(&read(path).unwrap()) == "criterion");
        std::fs::write(path.join("benchmark.json"), r#"{"group_id": "sort", "full_id": "sort/1000"}"#).unwrap();
        for path in [path.to_owned(), path.join("sample.json")] {
            let run = read(&path).unwrap();
            assert_eq!((name(&run).as_str(), run.trials[0].rate().round()), ("sort-1000", 2e6));
        }
    }

    #[test]
    fn other_files_are_refused() {
        for text in
            ["", "text", "{}", "[]", "[1]", r#"{"results": [{}]}"#, r#"{"results": []}"#, "BenchmarkX 1 x ns/op"]
        {
            assert!(samples(text).is_err_and(|error| error.exit_status() == 2), "{text}");
        }
        let negative = r#"{"results": [{"command": "a", "times": [-1]}]}"#;
        assert!(samples(negative).is_err());
    }
}
