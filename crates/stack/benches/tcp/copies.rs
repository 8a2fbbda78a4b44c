//! The memory copies that a stream needs, without a stack.

use crate::pair::Setting;
use std::hint::black_box;

pub(crate) struct Copies {
    output: Vec<u8>,
    send_buffer: Vec<u8>,
    frames: Vec<Vec<u8>>,
    receive_buffer: Vec<u8>,
    input: Vec<u8>,
    piece_bytes: usize,
}

/// The length of the IPv4 and TCP headers in front of each payload.
const HEADERS_BYTES: usize = 40;

impl Copies {
    pub(crate) fn new(piece_bytes: usize, setting: Setting, write_bytes: usize) -> Self {
        let frame = || vec![0; HEADERS_BYTES + piece_bytes];
        Self {
            output: vec![0x5a; write_bytes],
            send_buffer: vec![0; write_bytes],
            frames: (0..setting.burst_frames).map(|_| frame()).collect(),
            receive_buffer: vec![0; write_bytes],
            input: vec![0; write_bytes],
            piece_bytes,
        }
    }

    /// Copies `bytes` bytes in bursts. A burst has as many bytes as the application writes at a time.
    pub(crate) fn transfer(&mut self, bytes: usize) {
        for _ in 0..bytes / self.output.len() {
            self.send_buffer.copy_from_slice(&self.output);
            black_box(&mut self.send_buffer);
            let bursts = self.frames.len() * self.piece_bytes;
            let (from, to) = (self.send_buffer.chunks(bursts), self.receive_buffer.chunks_mut(bursts));
            for (from, to) in from.zip(to) {
                for (piece, frame) in from.chunks(self.piece_bytes).zip(&mut self.frames) {
                    frame[HEADERS_BYTES..HEADERS_BYTES + piece.len()].copy_from_slice(piece);
                }
                black_box(&mut self.frames);
                for (piece, frame) in to.chunks_mut(self.piece_bytes).zip(&self.frames) {
                    piece.copy_from_slice(&frame[HEADERS_BYTES..HEADERS_BYTES + piece.len()]);
                }
            }
            black_box(&mut self.receive_buffer);
            self.input.copy_from_slice(&self.receive_buffer);
            black_box(&mut self.input);
        }
    }
}
