//! Whole connections over a link: opened, used both ways, closed, and nothing left.

use super::super::*;
use super::pair::*;

#[test]
fn a_connection_opens_carries_data_both_ways_and_leaves_nothing() {
    let mut pair = Pair::established(Config::LINUX, Config::LINUX);
    let bytes = stream(300_000);
    pair.transfer(CLIENT, &bytes);
    pair.transfer(SERVER, &bytes);
    assert_eq!(pair.drops, []);
    assert_eq!(pair.ends.each_ref().map(|end| end.info().unwrap().repeated_segments), [0, 0]);
    pair.close();
}

/// Drops segments by a generator of its own.
fn lossy(seed: u64, percent: u64) -> Plan {
    let mut state = seed;
    Box::new(move |_, _| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let dice = (state >> 33) % 100;
        match dice {
            _ if dice < percent => Some(Fault::Drop),
            _ if dice < percent * 2 => Some(Fault::Delay(ms(3))),
            _ if dice < percent * 3 => Some(Fault::Twice),
            _ => None,
        }
    })
}

#[test]
fn a_stream_survives_loss_reordering_and_duplication() {
    let bytes = stream(400_000);
    for congestion in CongestionControl::ALL {
        for sack in [true, false] {
            for seed in 1..6 {
                let config = Config { congestion, sack, timestamps: seed % 2 == 0, ..Config::LINUX };
                let mut pair = Pair::established(config, config);
                pair.faults = [lossy(seed, 5), lossy(seed + 100, 5)];
                pair.transfer(CLIENT, &bytes);
                pair.transfer(SERVER, &bytes[..100_000]);
                pair.faults = [Box::new(|_, _| None), Box::new(|_, _| None)];
                pair.run(ms(5_000));
                pair.close();
            }
        }
    }
}

#[test]
fn a_handshake_and_a_close_survive_loss_of_any_segment() {
    for end in [CLIENT, SERVER] {
        for lost in 1..12 {
            let mut pair = Pair::new(Config::LINUX, Config::LINUX);
            pair.faults[end] = Box::new(move |number, _| (number == lost).then_some(Fault::Drop));
            pair.run(ms(4_000));
            pair.transfer(CLIENT, &stream(5_000));
            pair.transfer(SERVER, &stream(5_000));
            pair.close();
        }
    }
}

#[test]
fn a_stream_of_large_segments_survives_the_loss_of_whole_ones() {
    for seed in 1..4 {
        let mut pair = Pair::established(Config::LINUX, Config::LINUX);
        pair.large_bytes = 64_000;
        pair.faults = [lossy(seed, 3), lossy(seed + 9, 3)];
        pair.transfer(CLIENT, &stream(3_000_000));
        assert!(pair.counts[CLIENT] < 400, "{pair:?}");
        pair.faults = [Box::new(|_, _| None), Box::new(|_, _| None)];
        pair.run(ms(5_000));
        pair.close();
    }
}

#[test]
fn ecn_slows_a_sender_down_without_a_loss() {
    let config = Config { ecn: true, ..Config::LINUX };
    let mut pair = Pair::established(config, Config::LINUX);
    pair.faults[CLIENT] = Box::new(|number, packet| (packet.ecn_capable && number == 40).then_some(Fault::Mark));
    pair.transfer(CLIENT, &stream(600_000));
    let info = pair.ends[CLIENT].info().unwrap();
    assert!(info.threshold < 1_000_000 && info.repeated_segments == 0, "{pair:?}");
    pair.close();
}

#[test]
fn a_receive_buffer_grows_with_the_rate_of_the_application() {
    let mut pair = Pair::established(Config::LINUX, Config::LINUX);
    pair.delay = ms(50);
    pair.transfer(CLIENT, &stream(8_000_000));
    assert!(pair.ends[SERVER].info().unwrap().window > 1_000_000, "{pair:?}");
    pair.close();
}
