//! `siga net decode`: shows captured blocks.

use crate::print;
use siga_fabric::{decode, files};
use siga_model::error::{Error, Result};
use std::fmt::Write as _;
use std::path::Path;

/// Largest capture that is read, in bytes.
const CAPTURE_BYTES_MAX: u64 = 1 << 30;

/// Prints the blocks of a capture, with their packets and messages.
pub(super) fn decode(path: &Path) -> Result<()> {
    let bytes = files::read_bytes(path, CAPTURE_BYTES_MAX)?;
    let (mut blocks, mut others) = (0_u64, 0_u64);
    for block in decode::blocks(&bytes) {
        let block = block.map_err(|why| Error::usage(format!("cannot read {}: {why}", path.display())))?;
        let Some(block) = block else {
            others += 1;
            continue;
        };
        blocks += 1;
        let (seconds, ns) = (block.at_ns / 1_000_000_000, block.at_ns % 1_000_000_000);
        let (name, (len, captured)) = (block.link.escape_debug(), block.bytes);
        let direction = if block.is_sent { "sent" } else { "received" };
        let mut text = format!("{seconds}.{ns:09} {name} {direction} {}, {len} bytes\n", block.format);
        if captured < len {
            let _ = writeln!(text, "  only {captured} bytes are in the capture");
        }
        for part in block.parts {
            let _ = writeln!(text, "  {part}");
        }
        print(&text)?;
    }
    if blocks == 0 {
        return Err(Error::usage(format!("{} contains no blocks, but {others} other frames", path.display()))
            .hint("capture blocks with `siga net capture --blocks`"));
    }
    Ok(())
}
