//! Logs in a directory of their own, with times that the test chooses.

use super::*;
use crate::limits::{LOG_GUEST_BURST_LINES, LOG_GUEST_BYTES_MIN, LOG_LEFT_OUT_INTERVAL, LOG_LINE_BYTES_MAX};
use rustix::fs::{CWD, FileType, Mode};
use siga_model::limits::GUESTS_MAX;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const FILE: &str = "log";
const FORMER: &str = "log.1";

fn log() -> (TempDir, Log) {
    let base = tempfile::tempdir().unwrap();
    let log = open_at(base.path()).unwrap();
    (base, log)
}

fn open_at(base: &Path) -> Result<Log> {
    Log::open(&Rc::new(RunDir::create(base, &"net".parse().unwrap()).unwrap()))
}

fn read(base: &TempDir, file: &str) -> String {
    fs::read_to_string(base.path().join("net").join(file)).unwrap()
}

fn guest(at: usize) -> Cause {
    Cause::Guest(format!("g{at}").parse().unwrap())
}

/// The texts of lines without their times.
fn texts(log: &str) -> Vec<&str> {
    log.lines().map(|line| line.split_once(' ').unwrap().1).collect()
}

#[test]
fn a_text_is_one_line_of_visible_characters() {
    for (said, seen) in [
        (&b"as it is: \"quoted\" it's"[..], "as it is: \"quoted\" it's"),
        (b"two\nlines\r\t\0", "two\\nlines\\r\\t\\0"),
        (b"\x1b[31mred\x7f", "\\u{1b}[31mred\\u{7f}"),
        (
            "\u{202e}right\u{2066}\u{200b}\u{2028}\u{85}\u{e0041}".as_bytes(),
            "\\u{202e}right\\u{2066}\\u{200b}\\u{2028}\\u{85}\\u{e0041}",
        ),
        (b"\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82"),
        (b"back\\slash", "back\\\\slash"),
        ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
    ] {
        assert_eq!(text::line(said), seen);
    }
    let long = text::line(&vec![0; 1 << 20]);
    assert!(long.len() < LOG_LINE_BYTES_MAX + 40 && long.ends_with(" more bytes)"), "{}", long.len());
    let (shown, _) = long.split_once(' ').unwrap();
    assert!(long.ends_with(&format!("({} more bytes)", (1 << 20) - shown.len() / 2)));
}

#[test]
fn a_flood_of_one_guest_is_cut_counted_and_costs_no_other_line() {
    let (base, mut log) = log();
    let now = Instant::now();
    for count in 0..10_000 {
        log.of(&guest(1), &format!("flood {count}"), now);
    }
    log.of(&guest(2), "of another guest", now);
    log.line("its own");
    let written = read(&base, FILE);
    let lines = texts(&written);
    assert_eq!(lines.len() as u64, LOG_GUEST_BURST_LINES + 2);
    assert_eq!(lines[lines.len() - 2..], ["of another guest", "its own"]);
    assert_eq!(log.due(), Some(now + LOG_LEFT_OUT_INTERVAL));
    log.write_due_counts(now);
    assert_eq!(texts(&read(&base, FILE)).len(), lines.len(), "it is not yet due");
    log.write_due_counts(now + LOG_LEFT_OUT_INTERVAL);
    let count = 10_000 - LOG_GUEST_BURST_LINES;
    assert_eq!(texts(&read(&base, FILE)).last().unwrap(), &format!("guest g1: {count} lines omitted"));
    assert_eq!(log.due(), None);
    // With time it may speak again.
    log.of(&guest(1), "later", now + Duration::from_secs(1));
    assert_eq!(texts(&read(&base, FILE)).last().unwrap(), &"later");
}

#[test]
fn guests_together_cannot_take_the_room_of_the_control_program() {
    let (base, mut log) = log();
    let begun = Instant::now();
    let long = "x".repeat(1_000);
    log.line("the first of its own");
    // Less than the time for which a file is kept.
    for second in 0..LOG_KEPT_MIN.as_secs() {
        for at in 0..20 {
            for _ in 0..4 {
                log.of(&guest(at), &long, begun + Duration::from_secs(second));
            }
        }
    }
    let written = read(&base, FILE);
    assert!(!base.path().join("net").join(FORMER).exists(), "the guests made the file rotate");
    assert!((written.len() as u64) < LOG_GUESTS_BYTES_MAX + 20 * LOG_GUEST_BYTES_MIN + 1_000, "{}", written.len());
    log.line("the last of its own");
    let written = read(&base, FILE);
    assert_eq!(texts(&written)[0], "the first of its own");
    assert_eq!(texts(&written).last().unwrap(), &"the last of its own");
    // A guest that has said nothing so far is heard all the same.
    log.of(&guest(99), "quiet so far", begun);
    assert_eq!(texts(&read(&base, FILE)).last().unwrap(), &"quiet so far");
}

#[test]
fn the_log_rotates_and_its_two_files_are_bounded() {
    let (base, mut log) = log();
    let line = "y".repeat(LOG_LINE_BYTES_MAX - 40);
    let each = written_bytes(&line);
    for _ in 0..LOG_BYTES_MAX / each * 3 {
        log.line(&line);
    }
    log.line("the last");
    for file in [FILE, FORMER] {
        let metadata = fs::symlink_metadata(base.path().join("net").join(file)).unwrap();
        assert!(metadata.len() <= LOG_BYTES_MAX && metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    fs::remove_file(base.path().join("net").join(FILE)).unwrap();
    log.rotate();
    log.line("the last");
    assert_eq!(read(&base, FILE).len() as u64, log.bytes, "a line takes as many bytes as it is counted for");
    assert!(read(&base, FILE).ends_with("the last\n"));
    let is_log = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.starts_with(FILE));
    assert_eq!(fs::read_dir(base.path().join("net")).unwrap().flatten().filter(is_log).count(), 2);
}

#[test]
fn the_shares_of_all_guests_leave_room() {
    let sure = (GUESTS_MAX as u64 + 1) * LOG_GUEST_BYTES_MIN;
    assert!(sure + LOG_GUESTS_BYTES_MAX < LOG_BYTES_MAX / 8 * 7);
}

#[test]
fn a_log_that_is_a_link_or_no_file_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let place = base.path().join("net");
    let run = Rc::new(RunDir::create(base.path(), &"net".parse().unwrap()).unwrap());
    let open = || Log::open(&run);
    let other = base.path().join("other");
    fs::write(&other, "kept").unwrap();
    symlink(&other, place.join(FILE)).unwrap();
    assert!(open().is_err());
    fs::remove_file(place.join(FILE)).unwrap();
    fs::hard_link(&other, place.join(FILE)).unwrap();
    assert!(open().is_err());
    fs::remove_file(place.join(FILE)).unwrap();
    rustix::fs::mknodat(CWD, place.join(FILE), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(open().is_err());
    fs::remove_file(place.join(FILE)).unwrap();
    // A link in place of the former log is replaced, not followed.
    symlink(&other, place.join(FORMER)).unwrap();
    let mut log = open().unwrap();
    log.line("moved");
    log.rotate();
    assert!(read(&base, FORMER).ends_with("moved\n") && read(&base, FILE).is_empty());
    assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
}
