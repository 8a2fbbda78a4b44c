//! The inputs kept from fuzzing, played again.
#![expect(clippy::unwrap_used, reason = "a test says what it wants by failing")]

use siga_sim::fuzz::{TARGETS, unpack};
use siga_sim::rng::Rng;
use std::path::PathBuf;

/// Bytes of all kept inputs: a repository is no place for a whole corpus.
const KEPT_BYTES_MAX: usize = 500_000;

/// Number of random dialogues: enough for each kind of loss, and done in some seconds.
const DIALOGUES: usize = 1_500;

/// What reaches every place, and what broke a promise once.
const PACKS: [&str; 2] = ["", "-found"];

fn kept(name: &str, pack: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../fuzz/corpus/{name}{pack}.bin"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn play(name: &str) {
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).unwrap();
    for pack in PACKS {
        let kept = kept(name, pack);
        let inputs = unpack(&kept);
        assert!(!inputs.is_empty(), "{name}{pack} is empty");
        for (at, input) in inputs.into_iter().enumerate() {
            // Shown if it fails.
            eprintln!("{name}{pack}: input {at}: {input:02x?}");
            target(input);
        }
    }
}

#[test]
fn kept_frames_break_no_promise() {
    play("frames");
}

#[test]
fn kept_dialogues_break_no_promise() {
    play("dialogue");
}

/// As an honest link: the first byte of an input decides whether its segments are changed.
#[test]
fn random_honest_dialogues_break_no_promise() {
    let mut rng = Rng::new(5_961, 0);
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == "dialogue").unwrap();
    for at in 0..DIALOGUES {
        let mut input: Vec<u8> = (0..rng.between(20, 400)).map(|_| rng.bits().to_be_bytes()[0]).collect();
        input[0] = (input[0] | 1) & !0x10;
        // Shown if it fails.
        eprintln!("dialogue {at}: {input:02x?}");
        target(&input);
    }
}

#[test]
fn kept_fragments_are_put_together_as_the_reference_does() {
    play("reassembly");
}

#[test]
fn kept_inputs_are_small() {
    let bytes: usize = TARGETS.iter().flat_map(|(name, _)| PACKS.map(|pack| kept(name, pack).len())).sum();
    assert!(bytes <= KEPT_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn any_bytes_are_an_input() {
    let mut rng = Rng::new(9_293, 0);
    for length in 0..200 {
        let input: Vec<u8> = (0..length).map(|_| rng.bits().to_be_bytes()[0]).collect();
        for (name, target) in TARGETS {
            eprintln!("{name}: {input:02x?}");
            target(&input);
        }
    }
}
