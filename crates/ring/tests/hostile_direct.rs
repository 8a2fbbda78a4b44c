//! The peer of a direct connection writes anything at any time.

#[path = "direct_play/mod.rs"]
mod direct_play;

/// Numbers by which a program is drawn (splitmix64).
fn bits(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn whatever_a_peer_writes_harms_one_lane_only() {
    for seed in 0..3_000 {
        let mut state = seed;
        let input: Vec<u8> = (0..60).flat_map(|_| bits(&mut state).to_le_bytes()).collect();
        let played = std::panic::catch_unwind(|| direct_play::direct(&input));
        assert!(played.is_ok(), "seed {seed}");
    }
}
