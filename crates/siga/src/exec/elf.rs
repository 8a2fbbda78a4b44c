//! Reads what `siga exec` has to know about a program file of the format ELF with 64 bits: the dynamic loader that it names, and the
//! libraries with which it is linked (System V ABI, "ELF header", "program header" and "dynamic section").
//!
//! The file can have any content. A field that points outside of the file counts as absent.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The part of a file that [`Elf`] holds in memory. It contains the program headers and the name of the loader of usual programs.
pub(super) const HEAD_BYTES: u64 = 64 << 10;
/// The largest dynamic section and the largest table of its strings that are read. Those of usual programs have at most some megabytes.
const SECTION_BYTES_MAX: u64 = 16 << 20;

/// Fields of the file header, of a program header, and of an entry of the dynamic section.
pub(super) mod field {
    use std::ops::Range;

    pub(crate) const MAGIC: &[u8] = b"\x7fELF";
    pub(crate) const CLASS: usize = 4;
    pub(crate) const CLASS_64: u8 = 2;
    pub(crate) const MACHINE: Range<usize> = 18..20;
    pub(crate) const HEADERS_AT: Range<usize> = 32..40;
    pub(crate) const HEADER_BYTES: Range<usize> = 54..56;
    pub(crate) const HEADER_COUNT: Range<usize> = 56..58;
    pub(crate) const HEADER_TYPE: Range<usize> = 0..4;
    pub(crate) const HEADER_OFFSET: Range<usize> = 8..16;
    pub(crate) const HEADER_ADDRESS: Range<usize> = 16..24;
    pub(crate) const HEADER_FILE_BYTES: Range<usize> = 32..40;
    pub(crate) const ENTRY_BYTES: usize = 16;
    pub(crate) const ENTRY_TAG: Range<usize> = 0..8;
    pub(crate) const ENTRY_VALUE: Range<usize> = 8..16;
}

/// The types of program headers: a part of the file that is loaded, the dynamic section, the name of the loader.
const LOAD: u64 = 1;
const DYNAMIC: u64 = 2;
const INTERPRETER: u64 = 3;
/// The tags of the dynamic section: the end, the name of a library, the address and the size of the names.
const END: u64 = 0;
const NEEDED: u64 = 1;
const NAMES_ADDRESS: u64 = 5;
const NAMES_BYTES: u64 = 10;

#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: u64 = 62;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: u64 = 183;
#[cfg(target_arch = "s390x")]
const OWN_MACHINE: u64 = 22;

/// A program file, of which the first bytes are in memory.
#[derive(Debug)]
pub(super) struct Elf<'a> {
    pub(super) file: &'a File,
    pub(super) head: &'a [u8],
}

impl Elf<'_> {
    pub(super) fn has_magic(&self) -> bool {
        self.head.starts_with(field::MAGIC)
    }

    /// Returns whether the file was built for the CPU architecture of this program.
    pub(super) fn is_of_own_machine(&self) -> bool {
        self.head.get(field::CLASS) == Some(&field::CLASS_64) && number(self.head, field::MACHINE) == Some(OWN_MACHINE)
    }

    /// Returns the name of the dynamic loader. A statically linked program has none.
    pub(super) fn interpreter(&self) -> Option<&str> {
        let named = self.headers().find(|header| number(header, field::HEADER_TYPE) == Some(INTERPRETER))?;
        let at = usize::try_from(number(named, field::HEADER_OFFSET)?).ok()?;
        let len = usize::try_from(number(named, field::HEADER_FILE_BYTES)?).ok()?;
        std::str::from_utf8(self.head.get(at..at.checked_add(len)?)?).ok()
    }

    /// Returns the names of the libraries with which the program is linked, without the libraries that these need.
    pub(super) fn libraries(&self) -> Vec<String> {
        self.names_of_libraries().unwrap_or_default()
    }

    fn names_of_libraries(&self) -> Option<Vec<String>> {
        let dynamic = self.headers().find(|header| number(header, field::HEADER_TYPE) == Some(DYNAMIC))?;
        let section = self.read(number(dynamic, field::HEADER_OFFSET)?, number(dynamic, field::HEADER_FILE_BYTES)?)?;
        let entries = section.chunks_exact(field::ENTRY_BYTES).map_while(|entry| {
            let tag = number(entry, field::ENTRY_TAG).filter(|tag| *tag != END)?;
            Some((tag, number(entry, field::ENTRY_VALUE)?))
        });
        let value = |wanted: u64| entries.clone().find(|(tag, _)| *tag == wanted).map(|(_, value)| value);
        let names = self.read(self.offset(value(NAMES_ADDRESS)?)?, value(NAMES_BYTES)?)?;
        let name = |at: u64| {
            let bytes = names.get(usize::try_from(at).ok()?..)?.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        Some(entries.clone().filter(|(tag, _)| *tag == NEEDED).filter_map(|(_, at)| name(at)).collect())
    }

    /// Returns the place in the file of an address in the memory of the program.
    fn offset(&self, address: u64) -> Option<u64> {
        let mut loaded = self.headers().filter(|header| number(header, field::HEADER_TYPE) == Some(LOAD));
        loaded.find_map(|header| {
            let within = address.checked_sub(number(header, field::HEADER_ADDRESS)?)?;
            let is_here = within < number(header, field::HEADER_FILE_BYTES)?;
            is_here.then(|| number(header, field::HEADER_OFFSET)?.checked_add(within)).flatten()
        })
    }

    fn headers(&self) -> impl Iterator<Item = &[u8]> {
        let place = |range| number(self.head, range).and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
        let table = self.head.get(place(field::HEADERS_AT)..).unwrap_or_default();
        table.chunks_exact(place(field::HEADER_BYTES).max(1)).take(place(field::HEADER_COUNT))
    }

    fn read(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        let len = usize::try_from(len).ok().filter(|_| len <= SECTION_BYTES_MAX)?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    }
}

/// Returns a number in the byte order of the machine.
fn number(from: &[u8], range: Range<usize>) -> Option<u64> {
    let bytes = from.get(range)?.iter();
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(if cfg!(target_endian = "little") { bytes.rev().fold(0, add) } else { bytes.fold(0, add) })
}
