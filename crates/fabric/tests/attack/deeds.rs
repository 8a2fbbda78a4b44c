//! The numbers of the deeds that a test orders from a hostile guest (`rogue.rs`), as the bytes of a ping.
#![allow(dead_code, reason = "the test orders, the puppet obeys")]

/// Cuts descriptor 2 to no bytes. The answer is an error's number, 0 if it was done.
pub(crate) const ERASE: u16 = 1;
/// Asks for thousands of pairs with partners that do not exist. The control program logs each refusal.
pub(crate) const SILENCE: u16 = 2;
/// Writes lines to descriptor 2 that look like the control program's.
pub(crate) const FORGE: u16 = 3;
/// Writes 16 MB of lines to descriptor 2. The answer is the number of writes that were refused because nobody had read.
pub(crate) const FLOOD: u16 = 4;
/// Allocates and touches 2 GB, piece by piece, and so ends where its memory is limited. The answer is the number of MB.
pub(crate) const ALLOCATE: u16 = 5;
/// Makes memory files and fills them until none can be made. The answer is how many MB there are.
pub(crate) const MAKE_FILES: u16 = 6;
/// Panics.
pub(crate) const PANIC: u16 = 7;

/// What a forging guest writes: a whole line of the control program's.
pub(crate) const FORGED: &str = "2026-11-23T00:00:00.000000Z network: going down";
