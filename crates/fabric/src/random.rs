//! Random bytes from the operating system, for secrets and seeds.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// Returns `BYTES` random bytes.
///
/// # Errors
/// Returns an error if the host provides no random numbers.
pub(crate) fn draw<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let mut drawn = 0;
    while drawn < BYTES {
        match getrandom(&mut bytes[drawn..], GetRandomFlags::empty()) {
            Ok(count) => drawn += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn draws_differ_and_fill_every_byte() {
        let drawn: BTreeSet<[u8; 32]> = (0..100).map(|_| draw().unwrap()).collect();
        assert_eq!(drawn.len(), 100);
        assert!((0..32).all(|at| drawn.iter().any(|bytes| bytes[at] != 0)));
    }
}
