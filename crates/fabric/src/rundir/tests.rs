//! Directories of networks in the ways that an attacker, or an accident, could arrange them.

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

fn name() -> Name {
    "n".parse().unwrap()
}

/// Takes a directory over whose lock was given up. Children that other tests fork at this moment hold it a little longer.
fn take_over(base: &Path) -> Result<RunDir> {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match RunDir::create(base, &name()) {
            Err(error) if error.message().contains("is in use") && std::time::Instant::now() < end => {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            outcome => return outcome,
        }
    }
}

/// Creates one and gives it up, with all that a control program leaves.
fn left_behind(base: &Path) {
    let run = RunDir::create(base, &name()).unwrap();
    run.write_state(b"one", true).unwrap();
    run.append_log().unwrap();
    drop(UnixListener::bind(run.control()).unwrap());
    drop(UnixListener::bind(run.guest(&"g".parse().unwrap())).unwrap());
    for known in ["log.1", "state.part"] {
        fs::write(run.path().join(known), "").unwrap();
    }
}

#[test]
fn a_directory_is_made_for_its_user_alone_and_refused_once_others_can_write_into_it() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("siga");
    assert!(RunDir::open(&base, &name()).unwrap().is_none());
    assert_eq!(RunDir::all(&base).unwrap(), []);
    let run = RunDir::create(&base, &name()).unwrap();
    assert_eq!(run.read_state().unwrap(), None);
    run.write_state(b"one", true).unwrap();
    run.write_state(b"two", true).unwrap();
    assert_eq!(run.read_state().unwrap().unwrap(), b"two");
    for (made, mode) in [("", 0o700), ("n", 0o700), ("n/guests", 0o700), ("n/lock", 0o600), ("n/state.json", 0o600)] {
        assert_eq!(fs::metadata(base.join(made)).unwrap().permissions().mode() & 0o7777, mode, "{made}");
    }
    assert_eq!(RunDir::all(&base).unwrap(), [name()]);
    drop(run);
    for mode in [0o777, 0o770, 0o702] {
        for directory in [&base, &base.join("n"), &base.join("n/guests")] {
            let before = fs::metadata(directory).unwrap().permissions();
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
            let refused = take_over(&base).unwrap_err();
            fs::set_permissions(directory, before).unwrap();
            let is_told = refused.message().contains("other users may write");
            assert!(is_told, "{mode:o} {}: {refused}", directory.display());
        }
    }
}

#[test]
fn a_directory_that_is_swapped_once_it_is_open_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (base, kept) = (place.path().join("base"), place.path().join("kept"));
    let run = RunDir::create(&base, &name()).unwrap();
    let listener = UnixListener::bind(run.control()).unwrap();
    run.write_state(b"mine", true).unwrap();
    fs::rename(&base, &kept).unwrap();
    fs::create_dir_all(base.join("n/guests")).unwrap();
    for file in ["state.json", "log", "lock", "control"] {
        fs::write(base.join("n").join(file), "forged").unwrap();
    }
    assert_eq!(run.read_state().unwrap().unwrap(), b"mine");
    run.write_state(b"mine again", true).unwrap();
    run.append_log().unwrap();
    let socket = run.control_socket().unwrap().unwrap();
    std::os::unix::net::UnixStream::connect(through(&socket)).unwrap();
    listener.accept().unwrap();
    drop(UnixListener::bind(run.guest(&"g".parse().unwrap())).unwrap());
    assert!(kept.join("n/guests/g").exists());
    run.remove().unwrap();
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
    for file in ["state.json", "log", "lock", "control"] {
        assert_eq!(fs::read_to_string(base.join("n").join(file)).unwrap(), "forged", "{file}");
    }
}

#[test]
fn foreign_files_and_directories_are_not_listed_as_networks() {
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("file"), "").unwrap();
    fs::create_dir(base.path().join("empty")).unwrap();
    fs::create_dir_all(base.path().join("notes/lock")).unwrap();
    let _run = RunDir::create(base.path(), &name()).unwrap();
    assert_eq!(RunDir::all(base.path()).unwrap(), [name()]);
}

#[test]
fn one_control_program_at_a_time_uses_a_directory() {
    let base = tempfile::tempdir().unwrap();
    let run = RunDir::create(base.path(), &name()).unwrap();
    assert!(RunDir::create(base.path(), &name()).unwrap_err().message().contains("n is already up"));
    let client = RunDir::open(base.path(), &name()).unwrap().unwrap();
    assert!(client.remove_dead().unwrap_err().message().contains("is in use"));
    drop(run);
    take_over(base.path()).unwrap();
}

#[test]
fn a_directory_with_nothing_but_a_networks_files_is_removed_whole() {
    let base = tempfile::tempdir().unwrap();
    left_behind(base.path());
    let again = take_over(base.path()).unwrap();
    assert!(again.is_network());
    again.remove().unwrap();
    again.remove().unwrap();
    assert!(!again.path().exists());
    assert!(again.append_log().is_err() && again.write_state(b"x", true).is_err(), "its directory is gone");
}

#[test]
fn a_file_that_siga_did_not_make_stays_and_is_named() {
    for foreign in ["notes", "lock/deep", "log/deep", "guests/a b", "guests/c/deep", "control/x"] {
        let base = tempfile::tempdir().unwrap();
        left_behind(base.path());
        let path = base.path().join("n").join(foreign);
        let parent = path.parent().unwrap();
        if !parent.is_dir() {
            let _ = fs::remove_file(parent);
            fs::create_dir_all(parent).unwrap();
        }
        fs::write(&path, "mine").unwrap();
        let run = RunDir::open(base.path(), &name()).unwrap().unwrap();
        let error = run.remove().unwrap_err();
        let shown = foreign.strip_suffix("/deep").or(foreign.strip_suffix("/x")).unwrap_or(foreign);
        assert!(error.message().contains(shown), "{foreign}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        assert!(!base.path().join("n/state.json").exists());
    }
}

#[test]
fn a_link_is_neither_followed_nor_removed() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "mine").unwrap();
    for linked in ["", "n", "n/guests", "n/control", "n/state.json", "n/state.part", "n/log", "n/log.1", "n/lock"] {
        let base = place.path().join("base");
        if linked.is_empty() {
            symlink(&elsewhere, &base).unwrap();
        } else {
            fs::create_dir(&base).unwrap();
            if linked != "n" {
                left_behind(&base);
            }
            let path = base.join(linked);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            let is_directory = linked == "n" || linked == "n/guests";
            symlink(if is_directory { elsewhere.clone() } else { elsewhere.join("file") }, path).unwrap();
        }
        assert!(take_over(&base).is_err(), "{linked}");
        if let Ok(Some(run)) = RunDir::open(&base, &name()) {
            let outcomes = [run.read_state().is_err(), run.append_log().is_err(), run.control_socket().is_err()];
            let expected = ["n/state.json", "n/log", "n/control"].map(|reads| reads == linked);
            assert_eq!(outcomes, expected, "{linked}");
            assert!(run.remove().is_err() && base.join(linked).is_symlink(), "{linked}");
        } else {
            assert!(linked.len() <= 1, "{linked}");
        }
        assert_eq!(fs::read_to_string(elsewhere.join("file")).unwrap(), "mine", "{linked}");
        let _ = fs::remove_dir_all(&base).or_else(|_| fs::remove_file(&base));
    }
}

#[test]
fn a_directory_of_other_files_does_not_become_a_networks() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir(base.path().join("n")).unwrap();
    fs::write(base.path().join("n/log"), "of something else").unwrap();
    assert!(RunDir::create(base.path(), &name()).unwrap_err().message().contains("contains log, but no lock"));
    assert_eq!(RunDir::all(base.path()).unwrap(), []);
    fs::remove_file(base.path().join("n/log")).unwrap();
    // A control program that ended before it had its lock.
    fs::create_dir(base.path().join("n/guests")).unwrap();
    RunDir::create(base.path(), &name()).unwrap();
}

#[test]
fn a_state_of_more_than_its_bound_is_neither_read_nor_written() {
    let base = tempfile::tempdir().unwrap();
    let run = RunDir::create(base.path(), &name()).unwrap();
    fs::File::create(run.path().join("state.json")).unwrap().set_len(1 << 40).unwrap();
    assert!(run.read_state().unwrap_err().message().contains("more than 67108864 bytes"));
    let long = vec![0; usize::try_from(STATE_BYTES_MAX).unwrap() + 1];
    assert!(run.write_state(&long, true).is_err());
}
