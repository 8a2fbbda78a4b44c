//! Reads numbers from an input. After the end of the input, all numbers are 0.

/// An input. `rest` is the part that has not been read yet.
#[derive(Debug)]
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Calls `step` until the whole input is read, but at most `most` times.
    pub(super) fn each_step(&mut self, most: usize, mut step: impl FnMut(&mut Self)) {
        for _ in 0..most {
            if self.rest.is_empty() {
                break;
            }
            step(self);
        }
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(super) fn size(&mut self) -> usize {
        usize::from(self.u16())
    }

    pub(super) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    /// Returns the next `count` bytes, or fewer at the end of the input.
    pub(super) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        front
    }

    /// Returns one of the values in `from`, which the next byte selects.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.u8()) % from.len()]
    }

    /// Returns an index into a list of length `count`, or 0 if the list is empty.
    pub(super) fn index(&mut self, count: usize) -> usize {
        usize::from(self.u8()) % count.max(1)
    }

    /// Returns a number to add to a correct number: usually 0, sometimes a small positive or negative number, and rarely any
    /// number.
    pub(super) fn distance(&mut self) -> u32 {
        match self.u8() {
            0..0x80 => 0,
            near @ 0x80..0xc0 => u32::from(near).wrapping_sub(0xa0),
            0xc0..0xe0 => u32::from(self.u16()),
            0xe0..0xf8 => u32::from(self.u16()).wrapping_neg(),
            0xf8.. => self.u32(),
        }
    }

    /// Returns a payload length: usually a short one, sometimes that of a full segment, and rarely a longer one.
    pub(super) fn payload_len(&mut self) -> usize {
        match self.u8() {
            short @ 0..0x80 => usize::from(short),
            0x80..0xa0 => 1_000,
            0xa0..0xc0 => 1_448,
            0xc0..0xf0 => self.size() % 1_461,
            0xf0.. => self.size(),
        }
    }
}
