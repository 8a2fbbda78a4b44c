//! The tables of throughputs are those that are checked in.

use siga_sim::{sharing, throughput};

fn assert_accepted(accepted: &'static str, measured: Result<String, String>) {
    let measured = measured.unwrap_or_else(|error| panic!("{error}"));
    let lines = |text: &'static str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (accepted, measured) = (lines(accepted), measured.lines().map(str::to_owned).collect::<Vec<_>>());
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

#[test]
fn throughput_over_loss_and_buffer_is_as_accepted() {
    assert_accepted(include_str!("snapshots/throughput.txt"), throughput::table());
}

#[test]
fn shares_and_queues_of_bbr_and_cubic_are_as_accepted() {
    assert_accepted(include_str!("snapshots/sharing.txt"), sharing::table());
}

#[test]
fn the_decision_about_bbr_has_the_accepted_table() {
    let decision = include_str!("../../../docs/decisions/022-bbr.md");
    assert!(decision.contains(include_str!("snapshots/sharing.txt")), "copy snapshots/sharing.txt into the decision");
}
