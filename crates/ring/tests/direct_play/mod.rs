//! A sound end of a couple whose peer writes anything at any time. An input is a program: each step is one byte for what happens, and one
//! for its argument.
//!
//! What has to hold: nothing panics, no count exceeds a slot, a violation is reported and concerns one lane, and the next use of the slot
//! works with a sound peer.
#![allow(clippy::unwrap_used, reason = "a failed step is a broken promise")]

use siga_ring::arena::OwnArena;
use siga_ring::direct::{Couple, Incoming, Lane, OwnSlots, PeerSlots, Shape, Stopped};
use siga_ring::doorbell;

const SLOTS: usize = 2;
const BYTES: usize = 64;
/// Where the words of slot 0 lie in its memory file, and the distance to those of slot 1 (`docs/direct.md`).
const WORDS: usize = 4_096;
const DISTANCE: usize = 256;
const OF_SLOT: [usize; 9] = [0, 8, 16, 24, 32, 128, 136, 144, 152];

/// The peer's memory, which it writes as it likes.
struct Evil(OwnArena);

impl Evil {
    fn word(&mut self, at: usize, value: u64) {
        self.0.write(at, &value.to_ne_bytes()).unwrap();
    }

    /// A value near those that a sound peer would write, or far away.
    fn value(argument: u8, generation: u64) -> u64 {
        match argument >> 6 {
            0 => u64::from(argument & 63),
            1 => generation.wrapping_add(u64::from(argument & 3)).wrapping_sub(1),
            2 => u64::MAX - u64::from(argument & 63),
            _ => 1 << (argument & 63),
        }
    }
}

/// Plays an input.
pub(crate) fn direct(input: &[u8]) {
    let shape = Shape::new(SLOTS, BYTES).unwrap();
    let (own, _file) = OwnSlots::create(shape).unwrap();
    let (evil, file) = OwnArena::create(shape.memory_bytes()).unwrap();
    let (notify, wake) = doorbell::pair().unwrap();
    let mut couple = Couple::new(own, PeerSlots::map(file, shape).unwrap(), notify, false);
    let mut evil = Evil(evil);
    let mut generation = 1;
    let mut lane = Lane::bind(&mut couple, 0, generation);
    let mut published = 0_u64;
    for step in input.chunks_exact(2) {
        let (what, argument) = (step[0] % 20, step[1]);
        let count = usize::from(argument);
        let outcome = match what {
            0..=8 => {
                evil.word(WORDS + OF_SLOT[usize::from(what)], Evil::value(argument, generation));
                Ok(())
            }
            9 => {
                evil.word(0, u64::from(argument));
                Ok(())
            }
            10 => lane.look(&mut couple).map(|_| ()),
            11 => lane.room(&couple).map(|room| assert!(room <= BYTES)),
            12 => lane.send(&mut couple, &vec![7; count]).map(|sent| {
                assert!(sent <= count.min(BYTES));
                published += sent as u64;
            }),
            13 => {
                let received = lane.receive(&mut couple, &mut vec![0; count]);
                assert!(received <= count.min(BYTES));
                Ok(())
            }
            14 => lane.stop(&mut couple).map(|rest| assert!(rest.len() <= BYTES)),
            15 => lane.stopped(&couple).map(|stopped| {
                if stopped == Stopped::Yes {
                    assert!(lane.read_own(&couple, lane.unread_by_peer()).len() <= BYTES);
                }
            }),
            16 => lane.want_room(&mut couple).map(|_| ()),
            17 => {
                if lane.can_begin(&couple) {
                    lane.begin(&mut couple, argument.into());
                }
                lane.check_begin(0)
            }
            18 => {
                couple.declare_asleep();
                couple.awake();
                lane.end(&mut couple);
                lane.close(&mut couple);
                let _ = lane.peer_has_closed(&couple);
                Ok(())
            }
            _ => {
                let _ = lane.lose_peer(&mut couple);
                Ok(())
            }
        };
        assert!(lane.unread() <= BYTES && lane.unconsumed() <= BYTES);
        assert!(matches!(lane.incoming(), Incoming::Tcp | Incoming::TcpUpTo(_) | Incoming::TcpAfterMemory(_)));
        let notifications = wake.drain().unwrap().notifications;
        assert!(notifications <= 3, "{notifications} notifications in one step");
        if outcome.is_err() || what >= 18 {
            generation += 1;
            lane = Lane::bind(&mut couple, 0, generation);
        }
    }
    assert_eq!(couple.moved_bytes().0, published);
    works_with_a_sound_peer(&mut couple, &mut evil, generation + 1);
}

/// The other slot serves a connection, whatever was written before.
fn works_with_a_sound_peer(couple: &mut Couple, evil: &mut Evil, generation: u64) {
    let mut lane = Lane::bind(couple, 1, generation);
    let buffer = Shape::new(SLOTS, BYTES).unwrap().memory_bytes() - 4_096 + BYTES;
    for word in OF_SLOT {
        evil.word(WORDS + DISTANCE + word, 0);
    }
    evil.0.write(buffer, b"sound").unwrap();
    evil.word(WORDS + DISTANCE, 5);
    evil.word(WORDS + DISTANCE + 8, generation);
    assert_eq!(lane.look(couple), Ok(true));
    let mut bytes = [0; 8];
    assert_eq!(lane.receive(couple, &mut bytes), 5);
    assert_eq!(&bytes[..5], b"sound");
}
