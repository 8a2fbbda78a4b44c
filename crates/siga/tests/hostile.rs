//! Passes directories and files of an attacker to every command that takes a path. No file outside of them is read or written, no
//! file in them is executed, and no command hangs or uses unbounded memory.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, NOBODY, names, paths_build, root, script};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The options for short trials of one cell.
const ONE: &str = "--path unix --workload rr-1-1 --clients 1 --seconds 0.02 --warm-up 0";
/// The content of a file that no command may change. It has no newline, so that it looks like a truncated line.
const SECRET: &str = "secret";
/// The files that siga writes in a run directory.
const WRITTEN: [&str; 5] = ["trials.jsonl", "paths.jsonl", "skipped.jsonl", "end.json", "report.html"];
/// The files that siga reads in a run directory.
const READ: [&str; 7] =
    ["plan.toml", "levels.json", "environment.json", "trials.jsonl", "paths.jsonl", "skipped.jsonl", "end.json"];
/// Commands that read the run directory `bad`; some also read the run `good`.
const READERS: [&str; 9] = [
    "show bad",
    "show bad --format json",
    "compare good bad",
    "compare bad good",
    "compare plain reno --run bad",
    "report bad -o page.html",
    "export bad",
    "export good bad --output out.csv",
    "run --resume bad",
];

/// Creates a link or another special file at a path.
type Put<'a> = dyn Fn(&Path) + 'a;

/// Returns a bench of the current user and, if possible, one of a user without privileges. Each has a run `good` of two trials.
/// Prints what is skipped.
fn benches() -> impl Iterator<Item = Bench> {
    let own = Some(Bench::new());
    [own, Bench::unprivileged()].into_iter().flatten().filter(|bench| {
        let builds = paths_build(bench);
        if builds {
            bench.run(&format!("run --out good {ONE} --trials 2")).ok();
        }
        builds
    })
}

/// Runs the program with limits on memory (4 GB of address space) and time.
fn bounded(bench: &Bench, arguments: &str) -> Ended {
    let mut command = bench.command("sh");
    command.args(["-c", "ulimit -v 4000000; exec timeout -k 1 20 \"$0\" \"$@\""]).arg(&bench.program);
    command.args(arguments.split_whitespace());
    let ended = Ended::new(arguments, command.output().unwrap());
    assert!(![Some(124), Some(137), None].contains(&ended.status), "it hangs, or dies for memory: {ended}");
    ended
}

/// Copies the run `good` to `bad`, optionally with another owner.
fn copy(bench: &Bench, owner: Option<u32>) -> PathBuf {
    let bad = bench.path("bad");
    let _absent = fs::remove_dir_all(&bad);
    let mut command = bench.command("cp");
    assert!(command.args(["-r", "good", "bad"]).status().unwrap().success());
    if owner.is_some() {
        give(&bad, owner);
    }
    bad
}

fn give(directory: &Path, owner: Option<u32>) {
    for file in fs::read_dir(directory).unwrap().flatten() {
        std::os::unix::fs::lchown(file.path(), owner, owner).unwrap();
    }
    chown(directory, owner, owner).unwrap();
}

/// Makes a file outside the run directories that only the user of the bench can write.
fn secret(bench: &Bench) -> PathBuf {
    let file = bench.path("secret");
    fs::write(&file, SECRET).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let owner = fs::metadata(bench.path("good")).unwrap().uid();
    chown(&file, Some(owner), Some(owner)).unwrap();
    file
}

#[track_caller]
fn assert_untouched(file: &Path, ended: &Ended) {
    assert_eq!(fs::read_to_string(file).unwrap_or_default(), SECRET, "the file elsewhere was changed: {ended}");
}

/// Replaces a file with whatever `put` creates.
fn replace(file: &Path, put: impl FnOnce(&Path)) {
    let _absent = fs::remove_file(file);
    put(file);
}

/// Returns the kinds of links with which an attacker who may write to a directory can replace a file.
fn links(to: &Path) -> [(&'static str, Box<Put<'_>>); 2] {
    [
        ("a symbolic link", Box::new(move |file| symlink(to, file).unwrap())),
        ("a hard link", Box::new(move |file| fs::hard_link(to, file).unwrap())),
    ]
}

#[test]
fn a_writer_follows_no_link_out_of_a_run_directory() {
    for bench in benches() {
        let secret = secret(&bench);
        for name in WRITTEN {
            for (what, put) in links(&secret) {
                // Remove one trial, so that resuming the run has something to write.
                let bad = copy(&bench, None);
                let first = bench.path("good/trials.jsonl");
                let first = fs::read_to_string(first).unwrap().lines().next().unwrap().to_owned() + "\n";
                fs::write(bad.join("trials.jsonl"), first).unwrap();
                replace(&bad.join(name), &put);
                for arguments in ["run --resume bad", "report bad", "doctor --clean"] {
                    let ended = bounded(&bench, arguments);
                    assert_untouched(&secret, &ended);
                    let adds = arguments == "run --resume bad" && name.ends_with(".jsonl");
                    assert!(!adds || ended.status != Some(0), "{what} for {name} is taken for the file: {ended}");
                }
            }
        }
    }
}

#[test]
fn a_new_run_follows_no_link_out_of_its_directory() {
    for bench in benches() {
        let secret = secret(&bench);
        for name in ["plan.part", "environment.part", "levels.part", "end.part", "trials.jsonl", "paths.jsonl"] {
            for (what, put) in links(&secret) {
                let new = bench.path("new");
                let _absent = fs::remove_dir_all(&new);
                fs::create_dir(&new).unwrap();
                chown(&new, Some(secret.metadata().unwrap().uid()), None).unwrap();
                put(&new.join(name));
                let ended = bounded(&bench, &format!("run --out new {ONE} --trials 1"));
                assert_untouched(&secret, &ended);
                assert!(name.ends_with(".part") || ended.status != Some(0), "{what} for {name} was followed: {ended}");
            }
        }
    }
}

#[test]
fn an_output_follows_no_link_to_a_file_of_another_name() {
    for bench in benches() {
        let secret = secret(&bench);
        for (what, put) in links(&secret) {
            for (part, arguments) in [
                ("out.csv.part", "export good --output out.csv"),
                ("page.html.part", "report good -o page.html"),
                ("good/report.html.part", "report good"),
            ] {
                replace(&bench.path(part), &put);
                let ended = bounded(&bench, arguments).ok();
                assert_untouched(&secret, &ended);
                assert!(fs::symlink_metadata(bench.path(part)).is_ok(), "{what} at {part} was used");
                fs::remove_file(bench.path(part)).unwrap();
            }
        }
        // Without --output, a report stays in the run directory, even if a link is in its place.
        let absent = bench.path("absent");
        replace(&bench.path("good/report.html"), |file| symlink(&absent, file).unwrap());
        bounded(&bench, "report good").refused(2, &["good/report.html is not a regular file", "--output"]);
        assert!(!absent.exists(), "a link in the run directory was followed");
    }
}

#[test]
fn a_writer_follows_no_link_of_another_user() {
    let bench = Bench::new();
    if !root("own a link as another user") || !paths_build(&bench) {
        return;
    }
    bench.run(&format!("run --out good {ONE} --trials 1")).ok();
    let target = bench.path("target");
    fs::create_dir(&target).unwrap();
    fs::create_dir(bench.path("theirs")).unwrap();
    let link = bench.path("theirs/link");
    symlink(&target, &link).unwrap();
    give(&bench.path("theirs"), Some(NOBODY));
    for out in ["theirs/link", "theirs/link/below", "theirs/link/../target"] {
        bounded(&bench, &format!("run --out {out} {ONE} --trials 1"))
            .refused(3, &["symbolic link that belongs to another user"]);
        assert_eq!(names(&target), [""; 0], "--out {out}");
    }
    for output in ["theirs/link/out.html", "theirs/link/../out.html"] {
        bounded(&bench, &format!("report good -o {output}"))
            .refused(3, &["symbolic link that belongs to another user"]);
    }
    assert!(names(&target).is_empty() && !bench.path("out.html").exists());

    // A pipe without a reader would block the writer, and another user's device could be of any kind.
    let pipe = bench.path("theirs/pipe");
    mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
    chown(&pipe, Some(NOBODY), None).unwrap();
    bounded(&bench, "export good --output theirs/pipe")
        .refused(3, &["theirs/pipe", "a pipe that belongs to another user"]);
    bounded(&bench, "export good --output theirs/link").refused(3, &["symbolic link that belongs to another user"]);
}

#[test]
fn an_output_file_may_be_an_open_pipe() {
    for bench in benches() {
        let printed = bounded(&bench, "export good").ok().out;
        for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            assert_eq!(bounded(&bench, &format!("export good --output {name}")).ok().out, printed, "{name}");
        }
    }
}

#[test]
fn a_run_directory_of_another_user_is_read_but_not_written() {
    let bench = Bench::new();
    if !root("own a directory as another user") || !paths_build(&bench) {
        return;
    }
    bench.run(&format!("run --out good {ONE} --trials 2")).ok();
    let bad = copy(&bench, Some(NOBODY));
    for arguments in ["show bad", "show bad --format csv", "report bad -o page.html", "export bad", "compare good bad"]
    {
        let ended = bounded(&bench, arguments);
        assert!(matches!(ended.status, Some(0 | 4)), "{ended}");
    }
    let before = fs::read(bad.join("trials.jsonl")).unwrap();
    let listed = names(&bad);
    bounded(&bench, "run --resume bad").refused(3, &["bad", "belongs to user 65534"]);
    bounded(&bench, &format!("run --out bad/ {ONE}")).refused(3, &["bad/", "belongs to user 65534", "--out"]);
    bounded(&bench, "report bad").refused(3, &["bad", "belongs to user 65534", "--output"]);
    fs::remove_file(bad.join("plan.toml")).unwrap();
    fs::write(bad.join("trials.jsonl"), "").unwrap();
    bounded(&bench, &format!("run --out bad {ONE}")).refused(3, &["bad", "belongs to user 65534"]);
    assert!(!bad.join("plan.toml").exists());
    fs::copy(bench.path("good/plan.toml"), bad.join("plan.toml")).unwrap();
    fs::write(bad.join("trials.jsonl"), &before).unwrap();
    assert_eq!(names(&bad).len(), listed.len(), "{:?}", names(&bad));

    // Another user could change a directory with write permission for others at any moment.
    let bad = copy(&bench, None);
    for mode in [0o777, 0o775, 0o1777] {
        fs::set_permissions(&bad, fs::Permissions::from_mode(mode)).unwrap();
        bounded(&bench, "run --resume bad").refused(3, &["other users have write permission", "chmod go-w bad"]);
    }
    fs::set_permissions(&bad, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(bad.join("trials.jsonl"), fs::Permissions::from_mode(0o666)).unwrap();
    bounded(&bench, "run --resume bad").refused(3, &["bad/trials.jsonl", "chmod go-w"]);
    bench.run("show bad").ok();
}

#[test]
fn a_run_does_not_follow_a_replacement_of_its_directory() {
    for bench in benches() {
        let target = bench.path("target");
        fs::create_dir(&target).unwrap();
        chown(&target, Some(fs::metadata(bench.path("good")).unwrap().uid()), None).unwrap();
        let mut run = bench.start(&format!("run --out run {} --trials 8", ONE.replace("0.02", "0.1")));
        run.until("a first trial", || !bench.lines("trials.jsonl").is_empty());
        fs::rename(bench.path("run"), bench.path("moved")).unwrap();
        symlink(&target, bench.path("run")).unwrap();
        run.end();
        assert_eq!(names(&target), [""; 0], "the run has followed the link");
        assert!(bench.path("moved/end.json").exists(), "it goes on where it was begun");
    }
}

#[test]
fn every_reader_of_a_run_refuses_what_is_not_a_regular_file_of_bounded_size() {
    for bench in benches() {
        let owner = fs::metadata(bench.path("good")).unwrap().uid();
        let outside = bench.path("outside");
        let huge = |file: &Path| fs::File::create(file).unwrap().set_len(1 << 40).unwrap();
        let kinds: [(&str, &Put<'_>); 5] = [
            ("a pipe", &|file| mkfifoat(CWD, file, Mode::RWXU | Mode::RWXG | Mode::RWXO).unwrap()),
            ("an endless file", &|file| symlink("/dev/zero", file).unwrap()),
            ("a directory", &|file| fs::create_dir(file).unwrap()),
            ("a huge file", &huge),
            ("a file elsewhere", &|file| symlink(&outside, file).unwrap()),
        ];
        for name in READ {
            for (what, put) in kinds {
                let bad = copy(&bench, None);
                fs::copy(bench.path("good").join(name), &outside).unwrap();
                let file = bad.join(name);
                replace(&file, put);
                std::os::unix::fs::lchown(&file, Some(owner), Some(owner)).unwrap();
                for arguments in READERS {
                    let ended = bounded(&bench, arguments);
                    let status = ended.status.unwrap();
                    assert!([2, 3].contains(&status), "{what} for {name}: {ended}");
                    assert!(ended.err.contains(name), "{what} for {name} is not named: {ended}");
                }
            }
        }
    }
}

#[test]
fn an_endless_line_of_a_record_takes_bounded_memory() {
    for bench in benches() {
        for name in ["trials.jsonl", "paths.jsonl", "skipped.jsonl"] {
            let bad = copy(&bench, None);
            let file = fs::File::options().write(true).open(bad.join(name)).unwrap();
            // The file continues with zeros only, so its last line has no end.
            file.set_len(900 << 20).unwrap();
            for arguments in ["show bad", "run --resume bad"] {
                bounded(&bench, arguments).refused(3, &[&format!("bad/{name}"), "line"]);
            }
        }
    }
}

#[test]
fn a_plan_or_level_that_is_not_a_regular_file_of_bounded_size_is_refused() {
    for bench in benches() {
        let mode = Mode::RWXU | Mode::RWXG | Mode::RWXO;
        mkfifoat(CWD, bench.path("pipe.toml"), mode).unwrap();
        symlink("/dev/zero", bench.path("zero.toml")).unwrap();
        symlink("/dev/fd/0", bench.path("terminal.toml")).unwrap();
        fs::create_dir(bench.path("directory.toml")).unwrap();
        fs::File::create(bench.path("huge.toml")).unwrap().set_len(1 << 40).unwrap();
        for file in ["pipe.toml", "zero.toml", "terminal.toml", "directory.toml", "huge.toml"] {
            for arguments in
                ["run FILE", "plan FILE", "run --level FILE", "plan --level FILE-packing", "plan --level plain,FILE"]
            {
                bounded(&bench, &arguments.replace("FILE", file)).refused(2, &[file, "cannot read"]);
            }
        }
    }
}

#[test]
fn a_reader_survives_files_that_shrink_or_vanish() {
    for bench in benches() {
        let bad = copy(&bench, None);
        let all: Vec<(PathBuf, Vec<u8>)> =
            READ.iter().map(|name| (bad.join(name), fs::read(bad.join(name)).unwrap_or_default())).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (file, bytes) in &all {
                        let _gone = fs::remove_file(file);
                        fs::write(file, bytes).unwrap();
                        fs::File::options().write(true).open(file).unwrap().set_len(bytes.len() as u64 / 2).unwrap();
                        fs::write(file, bytes).unwrap();
                    }
                }
            });
            for _ in 0..30 {
                for arguments in ["show bad", "export bad", "report bad -o page.html"] {
                    let ended = bounded(&bench, arguments);
                    assert!(matches!(ended.status, Some(0 | 2 | 3 | 4)), "{ended}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn cleaning_follows_no_link_and_removes_known_files_only() {
    for bench in benches() {
        let secret = secret(&bench);
        let owner = secret.metadata().unwrap().uid();
        let elsewhere = bench.path("elsewhere");
        let fill = |directory: &Path| {
            fs::create_dir_all(directory).unwrap();
            for name in ["plan.part", "environment.part", "levels.part", "end.part", "thesis.part", "trials.jsonl"] {
                let _absent = fs::remove_file(directory.join(name));
                fs::write(directory.join(name), "{\"cut\":").unwrap();
                chown(directory.join(name), Some(owner), Some(owner)).unwrap();
                let file = fs::File::options().write(true).open(directory.join(name)).unwrap();
                file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3_600)).unwrap();
            }
            chown(directory, Some(owner), Some(owner)).unwrap();
        };
        fill(&elsewhere);
        let runs = bench.path("runs");
        fs::create_dir(&runs).unwrap();
        chown(&runs, Some(owner), Some(owner)).unwrap();
        fill(&runs.join("own"));
        symlink(&elsewhere, runs.join("link")).unwrap();
        let before = names(&elsewhere).len();
        let ended = bounded(&bench, "doctor --clean");
        assert_eq!(names(&elsewhere).len(), before, "files behind a link were removed: {ended}");
        let mut left = names(&runs.join("own"));
        left.sort();
        assert_eq!(left, ["thesis.part", "trials.jsonl"], "{ended}");

        fs::remove_dir_all(&runs).unwrap();
        symlink(bench.path("."), &runs).unwrap();
        fs::rename(&elsewhere, bench.path("own")).unwrap();
        let ended = bounded(&bench, "doctor --clean");
        assert_eq!(names(&bench.path("own")).len(), before, "`runs` is a link, and was followed: {ended}");
    }
}

#[test]
fn a_plan_executes_no_command() {
    for bench in benches() {
        let (marker, program) = (bench.path("tmp/executed"), bench.path("program"));
        script(&program, &format!("#!/bin/sh\ntouch {}\n", marker.display()));
        let plan = format!(
            "paths = [\"local>ssh:blue\"]\nworkloads = [\"rr-1-1\"]\ntrials = 1\n[reach]\nssh = \"{}\"\n",
            program.display()
        );
        fs::write(bench.path("theirs.toml"), &plan).unwrap();
        for arguments in ["run theirs.toml --out run", "plan theirs.toml"] {
            let ended = bounded(&bench, arguments);
            assert!(!marker.exists(), "a plan has executed a program: {ended}");
            ended.refused(2, &["theirs.toml", "`ssh`", "--ssh COMMAND", "config.toml"]);
        }

        // A run directory with such a plan: earlier versions of siga wrote the plan there.
        let bad = copy(&bench, None);
        fs::write(bad.join("plan.toml"), &plan).unwrap();
        fs::write(bad.join("trials.jsonl"), "").unwrap();
        bench.run("show bad").ok();
        let ended = bounded(&bench, "run --resume bad");
        assert!(!marker.exists(), "a run directory has executed a program: {ended}");
        ended.refused(2, &["ssh:blue", "run --resume bad --ssh ssh"]);
        // A program that the caller names on the command line is executed.
        let ended = bounded(&bench, &format!("run --resume bad --ssh {}", program.display()));
        assert!(marker.exists(), "{ended}");
    }
}

/// Runs the program with the bench's configuration directory.
fn configured(bench: &Bench, arguments: &str) -> Ended {
    let mut command = bench.siga(arguments);
    Ended::new(arguments, command.env("XDG_CONFIG_HOME", bench.path("config")).output().unwrap())
}

#[test]
fn a_plan_shows_every_command_that_it_executes() {
    let bench = Bench::new();
    let plan = "paths = [\"local>ssh:blue\", \"pid:7>netns:red\"]\nworkloads = [\"rr-1-1\"]\ntrials = 1\n";
    fs::write(bench.path("plan.toml"), plan).unwrap();
    let shown = bench.run("plan plan.toml --ssh ./reach").ok().out;
    for line in [
        "  ./reach -T -o BatchMode=yes blue 'exec sh -c ",
        "\"$f\" agent --unlink",
        "  /proc/self/exe agent --net /proc/7/ns/net --user /proc/7/ns/user\n",
        "  /proc/self/exe agent --net /run/netns/red\n",
        "  /proc/self/exe agent\n",
    ] {
        assert!(shown.contains(line), "nothing about {line}: {shown}");
    }
    let shown = bench.run("plan --path veth --level plain,nft-100-rules").ok().out;
    for line in [
        "  /proc/self/exe namespace-holder\n",
        "nft -e -f -\n",
        "nft -s -j list ruleset\n",
        "rules of level nft-100-rules",
    ] {
        assert!(shown.contains(line), "nothing about {line}: {shown}");
    }
    bench.run("plan plan.toml --ssh ").refused(2, &["--ssh"]);
    bench.run("plan --ssh ./reach").refused(2, &["--ssh has no effect"]);
}

#[test]
fn only_the_configuration_of_the_user_sets_how_hosts_are_reached() {
    let bench = Bench::new();
    let file = bench.path("config/siga/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "[reach]\nssh = \"./mine\"\n").unwrap();
    const PLAN: &str = "plan --client local --server ssh:blue";
    let shown = configured(&bench, PLAN).ok();
    assert!(shown.out.contains("  ./mine -T -o"), "{shown}");
    let shown = configured(&bench, &format!("{PLAN} --ssh ./other")).ok();
    assert!(shown.out.contains("  ./other -T -o"), "the command line comes first: {shown}");

    for mode in [0o664, 0o646] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        configured(&bench, PLAN).refused(3, &["config.toml", "other users have write permission", "chmod go-w"]);
        configured(&bench, &format!("{PLAN} --ssh ./other")).ok();
        configured(&bench, "plan hop").ok();
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    for (text, words) in
        [("[reach]\nshell = \"x\"\n", "shell"), ("ssh = \"x\"\n", "table [reach]"), ("[reach", "config.toml")]
    {
        fs::write(&file, text).unwrap();
        configured(&bench, PLAN).refused(2, &["config.toml", words]);
    }
    fs::remove_file(&file).unwrap();
    for (put, words) in [
        (&(|file: &Path| mkfifoat(CWD, file, Mode::RWXU).unwrap()) as &Put<'_>, "a pipe"),
        (&|file: &Path| symlink("/dev/zero", file).unwrap(), "a device"),
        (&|file: &Path| fs::File::create(file).unwrap().set_len(1 << 40).unwrap(), "more than"),
    ] {
        put(&file);
        configured(&bench, PLAN).refused(3, &["config.toml", words]);
        fs::remove_file(&file).unwrap();
    }
    assert!(configured(&bench, PLAN).ok().out.contains("  ssh -T -o"));
    if root("own a configuration as another user") {
        fs::write(&file, "[reach]\nssh = \"./theirs\"\n").unwrap();
        chown(&file, Some(NOBODY), None).unwrap();
        configured(&bench, PLAN).refused(3, &["config.toml", "belongs to user 65534"]);
    }
}
