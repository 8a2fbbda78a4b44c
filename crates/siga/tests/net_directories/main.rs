//! Tests every command of `siga net` that takes a path: the path leads to hostile directories and files. Also tests requests by a
//! process that has no right to make them.
//!
//! If the tests run as root, another user is the attacker or the victim. A test that needs root prints *skipped, because*.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod attacker;
#[path = "../common/network.rs"]
mod network;
mod requests;

use attacker::{
    JOB, NAME, Stage, USER, become_user, commands, connect, finish, give, is_root, net, next, run_all, serve_forged,
};
use network::Network;
use rustix::fs::Mode;
use siga_fabric::protocol::channel::Channel;
use siga_fabric::protocol::request::Request;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const TOPOLOGY: &str = r#"
[network.lan]
type = "hipersockets"
[guest.a]
device = [{ network = "lan", addresses = ["10.0.0.1/24"] }]
[guest.b]
external = true
device = [{ network = "lan", addresses = ["10.0.0.2/24"] }]
"#;

/// Not a test: the code of a process that runs as another user.
#[test]
#[ignore = "the process of another user; other tests start it"]
pub(crate) fn other_user_process() {
    let Ok(job) = std::env::var(JOB) else { return };
    match job.split_once(' ').unwrap() {
        ("serve", path) => serve_forged(Path::new(path)),
        ("ask", path) => {
            println!("player ready");
            match connect(Path::new(path)) {
                Ok(socket) => {
                    let mut channel = Channel::new(socket).unwrap();
                    let request = Request::Secret { guest: "a".parse().unwrap(), application: false };
                    let _ = channel.send(&request, Vec::new());
                    println!("@ {:?}", next(&mut channel));
                }
                Err(error) => println!("@ {error}"),
            }
        }
        _ => panic!("{job}"),
    }
    let _ = std::io::stdout().flush();
}

#[test]
fn root_refuses_a_run_directory_that_another_user_made() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let base = stage.make("base", Some(USER), 0o755);
    let directory = stage.make("base/n", Some(USER), 0o755);
    let control = directory.join("control");
    fs::write(directory.join("lock"), "").unwrap();
    let player = stage.play(Some(USER), &format!("serve {}", control.display()));
    for (command, outcome) in run_all(&stage, None, &base) {
        let is_told = outcome.output.contains("belongs to user 58232") || command.starts_with("control");
        assert!(outcome.is_refusal() && is_told, "{command}: {outcome:?}");
    }
    let all = net(&stage, None, &base, &["status"]);
    assert!(all.is_refusal(), "{all:?}");
    assert_eq!(player.seen(), Vec::<String>::new());
    assert!(control.exists() && directory.join("lock").exists());
}

#[test]
fn a_control_socket_that_another_user_serves_is_refused_by_its_credentials_alone() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let base = stage.make("base", None, 0o700);
    let directory = stage.make("base/n", None, 0o700);
    let outside = stage.make("outside", Some(USER), 0o755);
    let player = stage.play(Some(USER), &format!("serve {}", outside.join("control").display()));
    let control = directory.join("control");
    fs::rename(outside.join("control"), &control).unwrap();
    // Root now owns the socket file, so only the credentials of the listening process show the attacker.
    give(&control, Some(0));
    fs::write(directory.join("lock"), "").unwrap();
    for line in ["status n", "token n a", "ping n a 10.0.0.2 -c 1"] {
        let words: Vec<&str> = line.split(' ').collect();
        let outcome = net(&stage, None, &base, &words);
        assert!(
            outcome.is_refusal() && outcome.output.contains("belongs to user 58232, but you are user"),
            "{line}: {outcome:?}"
        );
    }
    assert!(player.seen().iter().all(|line| !line.starts_with("asked")));
}

#[test]
fn down_leaves_a_directory_that_was_never_a_network_alone() {
    let stage = Stage::new();
    let base = stage.make("base", None, 0o700);
    let directory = stage.make("base/n", None, 0o700);
    fs::create_dir_all(directory.join("sub/deep")).unwrap();
    fs::write(directory.join("sub/deep/thesis"), "years of work").unwrap();
    fs::write(directory.join("log"), "a log of something else").unwrap();
    for (command, outcome) in run_all(&stage, None, &base) {
        assert!(outcome.is_refusal(), "{command}: {outcome:?}");
    }
    assert_eq!(fs::read_to_string(directory.join("sub/deep/thesis")).unwrap(), "years of work");
    assert_eq!(fs::read_to_string(directory.join("log")).unwrap(), "a log of something else");
    let all = net(&stage, None, &base, &["status"]);
    assert_eq!((all.status, all.output.as_str()), (Some(0), "no network is up\n"));
}

#[test]
fn down_removes_the_files_of_siga_and_names_the_others() {
    let network = Network::up("tidy", TOPOLOGY);
    let directory = network.run_dir().join("tidy");
    let elsewhere = network.base.path().join("elsewhere");
    fs::write(&elsewhere, "mine").unwrap();
    fs::write(directory.join("notes.txt"), "mine").unwrap();
    symlink(&elsewhere, directory.join("guests").join("c")).unwrap();
    let down = network.siga(&["down", "tidy"]);
    let message = String::from_utf8_lossy(&down.stderr);
    assert!(message.contains("notes.txt") || message.contains("guests/c"), "{message}");
    assert_eq!(down.status.code(), Some(3), "{message}");
    let mut left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["guests", "notes.txt"]);
    assert!(directory.join("guests/c").is_symlink() && elsewhere.exists());
    // Because an unknown file is in it, the directory does not count as a network either.
    let up = network.siga(&["up", network.base.path().join("tidy.toml").to_str().unwrap()]);
    assert_eq!(up.status.code(), Some(3));
    fs::remove_file(directory.join("guests/c")).unwrap();
    fs::remove_file(directory.join("notes.txt")).unwrap();
    network.text(&["up", network.base.path().join("tidy.toml").to_str().unwrap()]);
}

/// Removes a directory in a shared place when dropped, even if the test fails.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0).or_else(|_| fs::remove_dir(&self.0));
    }
}

#[test]
fn a_shared_directory_in_which_others_replace_directories_is_refused() {
    if !is_root() {
        return;
    }
    // In a separate mount namespace, /tmp has no sticky bit or belongs to another user.
    for options in ["mode=0777", "mode=0755,uid=58232"] {
        let line = format!("mount -t tmpfs -o {options} none /tmp && exec \"$0\" net status");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &line]).arg(env!("CARGO_BIN_EXE_siga"));
        let outcome = finish(command.env_remove("SIGA_RUN_DIR").env_remove("XDG_RUNTIME_DIR"));
        if !outcome.output.contains("siga") && !outcome.output.contains("network") {
            println!("skipped, because this host lets nobody mount: {outcome:?}");
            return;
        }
        let advises = outcome.output.contains("/tmp is not safe") && outcome.output.contains("SIGA_RUN_DIR");
        assert!(outcome.is_refusal() && advises, "{options}: {outcome:?}");
    }
}

#[test]
fn the_default_run_directory_is_made_safely_or_refused_with_advice() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    // A user id that no other concurrent test uses.
    let user = 58_300 + std::process::id() % 1_000;
    let default = PathBuf::from(format!("/tmp/siga-{user}"));
    let _removed = Removed(default.clone());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(stage.siga());
        command
            .arg("net")
            .args(arguments)
            .env_remove("SIGA_RUN_DIR")
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null());
        become_user(&mut command, Some(user));
        finish(&mut command)
    };
    let topology = stage.path("n.toml").display().to_string();
    let elsewhere = stage.make("elsewhere", Some(user), 0o700);
    for squat in ["directory", "open", "link", "file"] {
        match squat {
            "directory" => fs::create_dir(&default).unwrap(),
            "open" => {
                fs::create_dir(&default).unwrap();
                give(&default, Some(user));
                fs::set_permissions(&default, fs::Permissions::from_mode(0o777)).unwrap();
            }
            "link" => symlink(&elsewhere, &default).unwrap(),
            _ => fs::write(&default, "").unwrap(),
        }
        for arguments in [&["up", topology.as_str()][..], &["status"], &["down", "n"], &["token", "n", "a"]] {
            let outcome = run(arguments);
            let advises = outcome.output.contains("SIGA_RUN_DIR") && outcome.output.contains("XDG_RUNTIME_DIR");
            assert!(outcome.is_refusal() && advises, "{squat} {arguments:?}: {outcome:?}");
        }
        let _ = fs::remove_file(&default).or_else(|_| fs::remove_dir(&default));
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    let up = run(&["up", &topology]);
    assert_eq!(up.status, Some(0), "{up:?}");
    let made = fs::metadata(&default).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o7777), (user, 0o700));
    assert_eq!(run(&["down", "n"]).status, Some(0));
    fs::remove_dir(&default).unwrap();
}

#[test]
fn a_runtime_directory_that_is_not_the_callers_alone_is_refused() {
    let stage = Stage::new();
    let owner = rustix::process::geteuid().is_root().then_some(USER);
    // For root, the directory belongs to a user, as after `su`. For other users, everybody may write to it.
    let runtime = stage.make("runtime", owner, if owner.is_some() { 0o700 } else { 0o777 });
    for arguments in
        [&["status"][..], &["token", "n", "a"], &["down", "n"], &["up", stage.path("n.toml").to_str().unwrap()]]
    {
        let mut command = Command::new(stage.siga());
        command.arg("net").args(arguments).env_remove("SIGA_RUN_DIR").env("XDG_RUNTIME_DIR", &runtime);
        let outcome = finish(command.stdin(Stdio::null()));
        assert!(outcome.is_refusal() && outcome.output.contains("XDG_RUNTIME_DIR"), "{arguments:?}: {outcome:?}");
    }
    assert_eq!(fs::read_dir(&runtime).unwrap().count(), 0);
}

/// The ways in which a directory of networks can be hostile. In each, one file must stay unchanged.
const HOSTILE: [&str; 22] = [
    "base is a link",
    "base is a FIFO",
    "base is a file",
    "base is open to all",
    "base is open to a group",
    "network is a link",
    "network is a FIFO",
    "network is open to all",
    "guests is a link",
    "control is a link",
    "control is a FIFO",
    "control is a file",
    "state is a link",
    "state is an endless link",
    "state is a FIFO",
    "state is huge",
    "state is a directory",
    "log is a link",
    "log is a FIFO",
    "lock is a link",
    "lock is a FIFO",
    "state.part is a link",
];

fn fifo(path: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

pub(crate) fn directory(path: &Path, mode: u32) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Prepares a hostile directory in `place` and returns the base.
fn arrange(place: &Path, hostile: &str) -> PathBuf {
    directory(place, 0o700);
    let (base, elsewhere) = (place.join("base"), place.join("elsewhere"));
    directory(&elsewhere, 0o700);
    for name in ["lock", "log", "notes", "state.json", "n"] {
        fs::write(elsewhere.join(name), "mine").unwrap();
    }
    match hostile {
        "base is a link" => symlink(&elsewhere, &base).unwrap(),
        "base is a FIFO" => fifo(&base),
        "base is a file" => fs::write(&base, "mine").unwrap(),
        "base is open to all" => directory(&base, 0o777),
        "base is open to a group" => directory(&base, 0o770),
        _ => directory(&base, 0o700),
    }
    let network = base.join(NAME);
    match hostile {
        "network is a link" => symlink(&elsewhere, &network).unwrap(),
        "network is a FIFO" => fifo(&network),
        "network is open to all" => directory(&network, 0o777),
        _ if hostile.starts_with("base is a ") => return base,
        _ => directory(&network, 0o700),
    }
    if hostile.starts_with("network is a ") {
        return base;
    }
    let (what, how) = hostile.split_once(" is ").unwrap();
    let file = network.join(if what == "state" { "state.json" } else { what });
    if what != "lock" {
        fs::write(network.join("lock"), "").unwrap();
    }
    match (what, how) {
        ("base" | "network", _) => {}
        ("guests", _) => symlink(&elsewhere, file).unwrap(),
        (_, "a link") => symlink(elsewhere.join("notes"), file).unwrap(),
        (_, "a FIFO") => fifo(&file),
        (_, "a file") => fs::write(file, "mine").unwrap(),
        (_, "a directory") => fs::create_dir_all(file.join("deep")).unwrap(),
        (_, "an endless link") => symlink("/dev/zero", file).unwrap(),
        (_, "huge") => fs::File::create(file).unwrap().set_len(1 << 40).unwrap(),
        _ => panic!("{hostile}"),
    }
    base
}

/// Lists every file below a directory with its type, mode, owner and size, and with the content of small files.
fn tree(path: &Path) -> Vec<String> {
    let metadata = fs::symlink_metadata(path).unwrap();
    let content =
        if metadata.is_file() && metadata.len() < 100 { fs::read_to_string(path).unwrap() } else { String::new() };
    let size = if metadata.is_file() { metadata.len() } else { 0 };
    let mut all = vec![format!("{} {:o} {} {size} {content}", path.display(), metadata.mode(), metadata.uid())];
    if metadata.is_dir() {
        let mut entries: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| all.extend(tree(entry)));
    }
    all
}

fn give_all(path: &Path, user: Option<u32>) {
    give(path, user);
    if fs::symlink_metadata(path).unwrap().is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give_all(&entry.unwrap().path(), user));
    }
}

#[test]
fn no_command_follows_a_link_waits_at_a_fifo_or_reads_without_end_in_a_hostile_directory() {
    let stage = Stage::new();
    let users = if is_root() { vec![None, Some(USER)] } else { vec![None] };
    let mut wrong = Vec::new();
    let mut lines = commands(&stage);
    lines.push(vec!["status".to_owned()]);
    for (hostile, user) in HOSTILE.iter().flat_map(|hostile| users.iter().map(move |user| (hostile, user))) {
        for words in &lines {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let place = stage.path("place");
            let base = arrange(&place, hostile);
            give_all(&place, *user);
            let before = tree(&place.join("elsewhere"));
            let outcome = net(&stage, *user, &base, &words);
            // The list of all networks omits networks with an unsafe directory.
            let is_listed = words == ["status"] && !hostile.starts_with("base") && outcome.status == Some(0);
            if !outcome.is_refusal() && !is_listed {
                wrong.push(format!("{hostile}, user {user:?}, {words:?}: {outcome:?}"));
            }
            let after = tree(&place.join("elsewhere"));
            if after != before {
                wrong.push(format!("{hostile}, user {user:?}, {words:?}: {before:?} became {after:?}"));
            }
            fs::remove_dir_all(&place).unwrap();
        }
    }
    assert!(!stage.path("never.pcapng").exists());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_link_of_another_user_on_the_way_to_the_base_is_refused() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let open = stage.make("open", None, 0o777);
    let mine = stage.make("mine", None, 0o700);
    symlink(&mine, open.join("way")).unwrap();
    let base = open.join("way/base");
    // The link belongs to the caller, so siga follows it.
    assert_eq!(net(&stage, None, &base, &["status"]).status, Some(0));
    give(&open.join("way"), Some(USER));
    for (command, outcome) in run_all(&stage, None, &base) {
        let is_told = outcome.output.contains("link") || command.starts_with("control");
        assert!(outcome.is_refusal() && is_told, "{command}: {outcome:?}");
    }
    assert_eq!(fs::read_dir(&mine).unwrap().count(), 0);
}

#[test]
fn a_topology_is_a_regular_file_of_bounded_size_or_a_pipe_of_the_shell() {
    let stage = Stage::new();
    let base = stage.make("base", None, 0o700);
    fifo(&stage.path("fifo.toml"));
    symlink("/dev/zero", stage.path("zero.toml")).unwrap();
    symlink(stage.path("n.toml"), stage.path("linked.toml")).unwrap();
    fs::File::create(stage.path("huge.toml")).unwrap().set_len(1 << 40).unwrap();
    let places = ["fifo.toml", "zero.toml", "huge.toml", "missing.toml", "base"].map(|name| stage.path(name));
    for path in places.iter().map(|path| path.to_str().unwrap()).chain(["/dev/zero", "/dev/null"]) {
        for command in ["check", "up"] {
            let outcome = net(&stage, None, &base, &[command, path]);
            assert!(outcome.is_refusal() && outcome.output.contains(path), "{command} {path}: {outcome:?}");
        }
    }
    assert_eq!(net(&stage, None, &base, &["check", stage.path("linked.toml").to_str().unwrap()]).status, Some(0));
    let piped = |source: &str| {
        let line = format!("{source} | {} net check /dev/stdin", stage.siga().display());
        finish(Command::new("sh").args(["-c", &line]))
    };
    let whole = piped(&format!("cat {}", stage.path("n.toml").display()));
    assert_eq!(whole.status, Some(0), "{whole:?}");
    let endless = piped("yes");
    assert!(endless.is_refusal() && endless.output.contains("1048576"), "{endless:?}");
}

#[test]
fn a_capture_is_written_only_to_a_new_file_or_a_regular_file_of_the_caller() {
    let network = Network::up("captured", TOPOLOGY);
    let path = |name: &str| network.base.path().join(name);
    let capture = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(["net", "capture", "captured", "a", "--seconds", "0.2", "-o"]).arg(path(name));
        finish(command.env("SIGA_RUN_DIR", network.run_dir()))
    };
    fs::write(path("precious"), "mine").unwrap();
    symlink(path("precious"), path("link")).unwrap();
    symlink(path("nothing"), path("dangling")).unwrap();
    fs::hard_link(path("precious"), path("second")).unwrap();
    fifo(&path("fifo"));
    let mut hostile = vec!["link", "dangling", "second", "fifo"];
    if is_root() {
        fs::write(path("others"), "mine").unwrap();
        give(&path("others"), Some(USER));
        hostile.push("others");
    }
    for name in hostile {
        let outcome = capture(name);
        assert!(outcome.is_refusal() && outcome.output.contains(name), "{name}: {outcome:?}");
    }
    assert_eq!(fs::read_to_string(path("precious")).unwrap(), "mine");
    assert!(!path("nothing").exists());
    assert_eq!(capture("new").status, Some(0));
    assert_eq!(fs::metadata(path("new")).unwrap().mode() & 0o7777, 0o600);
    let length = fs::metadata(path("new")).unwrap().len();
    fs::write(path("old"), vec![0; 10_000]).unwrap();
    assert_eq!(capture("old").status, Some(0));
    assert_eq!(fs::metadata(path("old")).unwrap().len(), length);
}

#[test]
fn a_network_works_in_a_path_longer_than_a_socket_address() {
    let deep = format!("{}/{}", "d".repeat(100), "e".repeat(100));
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join(deep);
    fs::create_dir_all(base.parent().unwrap()).unwrap();
    let topology = directory.path().join("n.toml");
    fs::write(&topology, TOPOLOGY).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        finish(command.arg("net").args(arguments).env("SIGA_RUN_DIR", &base))
    };
    let up = run(&["up", topology.to_str().unwrap()]);
    assert_eq!(up.status, Some(0), "{up:?}");
    assert_eq!(run(&["token", "n", "b"]).status, Some(0));
    assert_eq!(run(&["down", "n"]).status, Some(0));
    assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
}
