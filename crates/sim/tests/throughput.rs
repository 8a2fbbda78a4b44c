//! The table of throughputs is the one that is checked in.

use siga_sim::throughput;

const ACCEPTED: &str = include_str!("snapshots/throughput.txt");

#[test]
fn throughput_over_loss_and_buffer_is_as_accepted() {
    let measured = throughput::table().unwrap_or_else(|error| panic!("{error}"));
    let lines = |text: &'static str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (accepted, measured) = (lines(ACCEPTED), measured.lines().map(str::to_owned).collect::<Vec<_>>());
    let mut changes = Vec::new();
    for at in 0..accepted.len().max(measured.len()) {
        let (accepted, measured) = (accepted.get(at), measured.get(at));
        if accepted != measured {
            let line = |sign, text: Option<&String>| text.map(|text| format!("{sign} {:>3} {text}", at + 1));
            changes.extend([line('-', accepted), line('+', measured)].into_iter().flatten());
        }
    }
    let changes = changes.join("\n");
    assert!(
        changes.is_empty(),
        "accepted (-) and measured (+) differ by line:\n{changes}\nto accept what is measured: cargo xtask sim --accept"
    );
}
