//! Finds the functions of programs and libraries in the symbol tables of their files.
//!
//! Contract: names are demangled and have at most [`NAME_BYTES_MAX`] bytes. A file that is larger than [`FILE_BYTES_MAX`], that is no
//! ELF file or that has no symbols has no functions. Every file is read once, however many processes have mapped it.

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Maximum size of a file whose symbols are read.
const FILE_BYTES_MAX: u64 = 1 << 28;
/// Maximum length of a function's name. Longer names are cut.
const NAME_BYTES_MAX: usize = 160;

/// The files that have been read.
#[derive(Debug, Default)]
pub(crate) struct Programs(HashMap<Id, Program>);

/// Identifies a version of a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl Id {
    /// Returns the id of the file at `path`. Returns `None` if it is no regular file, such as a device: opening one can have effects.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let state = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some(Self { device: state.dev(), inode: state.ino(), modified: (state.mtime(), state.mtime_nsec()) })
    }
}

/// The functions of one file.
#[derive(Debug, Default)]
struct Program {
    /// The parts of the file that are loaded, each with its address.
    segments: Vec<(Range<u64>, u64)>,
    /// The addresses and the symbols of the functions, sorted by address.
    functions: Vec<(Range<u64>, Box<str>)>,
}

impl Programs {
    /// Returns the name of the function at `offset` of the file `id` at `path`; `None` if no known function is there.
    pub(crate) fn function(&mut self, id: Id, path: &Path, offset: u64) -> Option<String> {
        self.0.entry(id).or_insert_with(|| Program::read(path).unwrap_or_default()).function(offset)
    }
}

impl Program {
    fn read(path: &Path) -> Option<Self> {
        let mut content = Vec::new();
        File::open(path).ok()?.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).ok()?;
        if content.len() as u64 > FILE_BYTES_MAX {
            return None;
        }
        let file = object::File::parse(&*content).ok()?;
        let segment = |(start, len): (u64, u64), address| (start..start.saturating_add(len), address);
        let segments = file.segments().map(|part| segment(part.file_range(), part.address())).collect();
        let mut functions = functions(file.symbols());
        if functions.is_empty() {
            functions = self::functions(file.dynamic_symbols());
        }
        functions.sort_by_key(|(addresses, _)| addresses.start);
        Some(Self { segments, functions })
    }

    fn function(&self, offset: u64) -> Option<String> {
        let (range, start) = self.segments.iter().find(|(range, _)| range.contains(&offset))?;
        let address = start.checked_add(offset - range.start)?;
        let next = self.functions.partition_point(|(addresses, _)| addresses.start <= address);
        let (addresses, symbol) = self.functions.get(next.checked_sub(1)?)?;
        addresses.contains(&address).then(|| demangled(symbol))
    }
}

fn functions<'data>(symbols: impl Iterator<Item = object::Symbol<'data, 'data>>) -> Vec<(Range<u64>, Box<str>)> {
    let function = |symbol: object::Symbol<'data, 'data>| {
        let is_function = symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0;
        let name = symbol.name().ok().filter(|name| is_function && !name.is_empty())?;
        Some((symbol.address()..symbol.address().saturating_add(symbol.size()), name.into()))
    };
    symbols.filter_map(function).collect()
}

/// Returns the name that the source code gave to a function.
fn demangled(symbol: &str) -> String {
    let mut name = format!("{:#}", rustc_demangle::demangle(symbol));
    let end = (0..=NAME_BYTES_MAX).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.truncate(end);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(programs: &mut Programs, path: &Path, offset: u64) -> Option<String> {
        programs.function(Id::of(path)?, path, offset)
    }

    #[test]
    fn a_file_without_symbols_has_no_functions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        for content in ["", "#!/bin/sh\n", "\x7fELF\x02\x01\x01"] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(function(&mut Programs::default(), &path, 0), None, "{content:?}");
        }
        assert_eq!(function(&mut Programs::default(), Path::new("/dev/zero"), 0), None);
        assert_eq!(function(&mut Programs::default(), directory.path(), 0), None);
    }

    #[test]
    fn damaged_files_have_no_effect() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("damaged");
        let head = &own[..own.len().min(1 << 16)];
        for at in (0..4_096).step_by(61) {
            let mut damaged = head.to_vec();
            damaged[at..at + 8].fill(0xff);
            std::fs::write(&path, &damaged).unwrap();
            let mut programs = Programs::default();
            for offset in [0, 1 << 12, u64::MAX] {
                function(&mut programs, &path, offset);
            }
        }
    }

    #[test]
    fn a_replaced_file_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, "no program").unwrap();
        let mut programs = Programs::default();
        function(&mut programs, &path, 0);
        std::fs::remove_file(&path).unwrap();
        std::fs::copy("/proc/self/exe", &path).unwrap();
        function(&mut programs, &path, 0);
        let read: Vec<bool> = programs.0.values().map(|program| !program.functions.is_empty()).collect();
        assert!(read.contains(&true), "{read:?}");
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangled("memcpy"), "memcpy");
        let long = format!("{}é", "x".repeat(NAME_BYTES_MAX - 1));
        assert_eq!(demangled(&long), "x".repeat(NAME_BYTES_MAX - 1));
        assert_eq!(demangled(&"é".repeat(40)), "é".repeat(40));
    }
}
