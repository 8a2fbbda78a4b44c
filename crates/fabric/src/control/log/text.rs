//! Converts text into one line of the log: every character is visible, and the length is limited.

use crate::limits::LOG_LINE_BYTES_MAX;
use std::fmt::Write;

/// Escapes all characters that are not printable, as a Rust string literal does. Among them are control characters, line ends,
/// terminal escapes, direction marks, characters of zero width, and the backslash. A byte that is not UTF-8 becomes `\xNN`. A text
/// that is too long is cut, and the number of missing bytes is appended.
pub(super) fn line(bytes: &[u8]) -> String {
    let mut line = String::new();
    let mut taken = 0;
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if line.len() >= LOG_LINE_BYTES_MAX {
                return cut(line, bytes.len() - taken);
            }
            match letter {
                '"' | '\'' => line.push(letter),
                other => line.extend(other.escape_debug()),
            }
            taken += letter.len_utf8();
        }
        for byte in chunk.invalid() {
            if line.len() >= LOG_LINE_BYTES_MAX {
                return cut(line, bytes.len() - taken);
            }
            let _ = write!(line, "\\x{byte:02x}");
            taken += 1;
        }
    }
    line
}

fn cut(mut line: String, missing: usize) -> String {
    let _ = write!(line, " ({missing} more bytes)");
    line
}
