//! Decompresses a packaged kernel once, because an emulated machine needs three seconds for it at each start.
//!
//! The format is in the kernel's `Documentation/arch/x86/boot.rst`. QEMU starts the decompressed kernel, an ELF file, as Xen's PVH does.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use super::packages;

/// The offsets of the fields of a `vmlinuz` file.
const SETUP_SECTORS: usize = 0x1f1;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

const SECTOR_BYTES: usize = 512;

/// The first bytes of data that xz has compressed.
const XZ: &[u8] = b"\xfd7zXZ\0";

/// Writes the kernel in the file `vmlinuz` to the file `kernel`: decompressed by the program `xz`, or as it is if xz did not compress it.
pub(crate) fn decompress(vmlinuz: &Path, kernel: &Path, mut xz: Command) -> Result<(), String> {
    let context = |error| format!("{}: {error}", vmlinuz.display());
    let bytes = fs::read(vmlinuz).map_err(context)?;
    let Some(payload) = payload(&bytes).filter(|payload| payload.starts_with(XZ)) else {
        return fs::copy(vmlinuz, kernel).map(drop).map_err(context);
    };
    let compressed = kernel.with_extension("xz");
    fs::write(&compressed, payload).map_err(context)?;
    xz.args(["--decompress", "--stdout"]).arg(&compressed).stdout(File::create(kernel).map_err(context)?);
    packages::output(&mut xz, "cannot decompress the kernel")?;
    fs::remove_file(&compressed).map_err(context)
}

/// Returns the compressed kernel in a `vmlinuz` file, without the four bytes at its end that give its decompressed size.
fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let field = |offset: usize| {
        let field = bytes.get(offset..offset + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(field)).ok()
    };
    let start = (usize::from(*bytes.get(SETUP_SECTORS)?) + 1) * SECTOR_BYTES + field(PAYLOAD_OFFSET)?;
    bytes.get(start..)?.get(..field(PAYLOAD_LENGTH)?.checked_sub(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compressed_kernel_is_found_in_its_file() {
        let mut bytes = vec![0; 3 * SECTOR_BYTES];
        bytes[SETUP_SECTORS] = 1;
        bytes[PAYLOAD_OFFSET] = 16;
        bytes[PAYLOAD_LENGTH] = 10;
        bytes[2 * SECTOR_BYTES + 16..][..10].copy_from_slice(b"\xfd7zXZ\0size");
        assert_eq!(payload(&bytes), Some(XZ));
        for length in [0, SETUP_SECTORS, PAYLOAD_LENGTH, 2 * SECTOR_BYTES, 2 * SECTOR_BYTES + 20] {
            assert_eq!(payload(&bytes[..length]), None, "{length}");
        }
        bytes[PAYLOAD_LENGTH] = 3;
        assert_eq!(payload(&bytes), None);
    }

    #[test]
    fn a_kernel_of_another_format_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (vmlinuz, kernel) = (directory.path().join("vmlinuz"), directory.path().join("kernel"));
        fs::write(&vmlinuz, b"another format").unwrap();
        decompress(&vmlinuz, &kernel, Command::new("false")).unwrap();
        assert_eq!(fs::read(&kernel).unwrap(), b"another format");
    }
}
