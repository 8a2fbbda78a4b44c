//! Hostile guests say anything to a control program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it wants by failing, and looks at the messages that it is about"
)]

mod play;

use play::World;

/// Sequences of messages; a successor takes over after each of this many.
const SEQUENCES: u64 = 10_000;
/// Networks that are played with side by side, each its share of the sequences.
const WORLDS: u64 = 2;
const SUCCESSIONS_EVERY: u64 = 500;
/// Bytes of the longest input that says what a sequence is.
const INPUT_BYTES_MAX: u64 = 96;
/// How much more memory the process may hold after the last sequence than after the first tenth of them.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

/// Numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn input(&mut self) -> Vec<u8> {
        let bytes = self.next() % INPUT_BYTES_MAX;
        (0..bytes).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

/// Plays with a world. Bytes that the process holds when a tenth of the sequences has been played.
fn play(seed: u64) -> u64 {
    let mut numbers = Numbers(seed);
    let mut world = World::new();
    let mut held = 0;
    for count in 1..=SEQUENCES / WORLDS {
        let input = numbers.input();
        // Shown if it fails.
        eprintln!("world {seed}, sequence {count}: {input:02x?}");
        world.play(&input);
        if count % SUCCESSIONS_EVERY == 0 {
            world.succeed(&numbers.input());
        }
        if count == SEQUENCES / WORLDS / 10 {
            held = resident_bytes();
        }
    }
    held
}

#[test]
fn hostile_messages_change_nothing_of_other_guests() {
    let held = std::thread::scope(|scope| {
        let worlds: Vec<_> = (1..=WORLDS).map(|seed| scope.spawn(move || play(seed))).collect();
        worlds.into_iter().map(|world| world.join().unwrap()).max().unwrap()
    });
    // Freed memory stays with the process, so that the most it had is still to be seen.
    let growth = resident_bytes().saturating_sub(held);
    println!("{SEQUENCES} sequences: {held} bytes held, {growth} more in the end");
    assert!(growth <= GROWTH_BYTES_MAX, "the control programs hold {growth} bytes more");
}
