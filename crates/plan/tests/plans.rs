//! Tests that each wrong value in the file of a plan or a level is refused with an error that names the place.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use siga_model::error::{Error, ErrorKind};
use siga_plan::plan::Plan;
use std::fs;
use std::path::Path;

/// Returns the error of a plan in a file. `FOLDER` in `text` stands for the folder of the file.
fn refused(folder: &Path, text: &str) -> Error {
    let file = folder.join("plan.toml");
    fs::write(&file, text.replace("FOLDER", folder.to_str().unwrap())).unwrap();
    let error = Plan::load(file.to_str().unwrap()).and_then(|plan| plan.matrix()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage, "{text}: {error}");
    error
}

#[test]
fn each_wrong_value_of_a_plan_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("own.toml"), "name = \"plain\"\ngro = false\n").unwrap();
    fs::write(folder.path().join("bad.toml"), "name = \"bad\"\nmtu = 5\n").unwrap();
    for (text, words) in [
        ("paths = [\"veth\"]\n[[exclude]]\npath = \"veht\"\n", &["unknown path `veht`"][..]),
        ("paths = [\"veth\"]\n[[exclude]]\nworkload = \"rr\"\n", &["unknown workload `rr`"]),
        ("paths = [\"veth\"]\n[[exclude]]\npath = \"veth\"\n", &["no cells"]),
        ("paths = []\n", &["no cells"]),
        ("trials = \"three\"\n", &["line 1", "three"]),
        ("paths = [\"veth\"", &["line 1"]),
        ("levels = [\"plain\", \"FOLDER/own.toml\"]\n", &["two levels are named `plain`"]),
        ("levels = [\"FOLDER/bad.toml\"]\n", &["bad.toml", "mtu"]),
        ("[plant]\nserver = 5\n", &["line 2", "server"]),
        ("[reach]\nport = 65536\n", &["line 2", "65536"]),
    ] {
        let error = refused(folder.path(), text).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
    }
}

#[test]
fn a_plan_with_too_many_cells_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let clients: Vec<String> = (1..=10_000).map(|number| number.to_string()).collect();
    let text = format!("paths = [\"veth\", \"unix\"]\nworkloads = [\"rr-1-1\"]\nclients = [{}]\n", clients.join(","));
    assert!(refused(folder.path(), &text).message().contains("more than 10000 cells"));
}
