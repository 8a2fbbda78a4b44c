//! Tests of the built program file.

use std::fs;

/// The type of the ELF program header that names a dynamic linker.
const PT_INTERP: u32 = 3;

#[test]
fn the_program_needs_no_shared_library() {
    let bytes = fs::read(env!("CARGO_BIN_EXE_siga")).unwrap();
    assert_eq!(bytes[..6], [0x7f, b'E', b'L', b'F', 2, 1], "not a little-endian 64-bit ELF file");
    let number = |at: usize, size: usize| {
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(&bytes[at..at + size]);
        usize::try_from(u64::from_le_bytes(wide)).unwrap()
    };
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    assert!(count > 0);
    let types = (0..count).map(|index| u32::try_from(number(headers + index * size, 4)).unwrap());
    assert!(!types.into_iter().any(|kind| kind == PT_INTERP), "it asks for a dynamic linker");
}
