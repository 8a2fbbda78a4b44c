//! Finds the addresses of the kernel's functions in /proc/kallsyms, and the function at an address.
//!
//! Contract: a lookup by name finds all parts into which the compiler split a function (`name`, `name.constprop.0`, `name.cold`).
//! Each part is a range of addresses. It ignores the functions of kernel modules. A lookup by address also finds functions of
//! modules and BPF programs, and returns the name without the suffix of the part. If the kernel hides the addresses, this module
//! returns an error.

use siga_model::error::{Error, IoContext, Result};
use std::ops::Range;

const PLACE: &str = "/proc/kallsyms";
/// Maximum distance in bytes of an address from the start of its function. Beyond it, the address is in no known function.
const FUNCTION_BYTES_MAX: u64 = 1 << 16;

/// The kernel's functions, sorted by address. BPF programs and functions of modules are included.
#[derive(Debug)]
pub(crate) struct Functions(Vec<(u64, Box<str>)>);

impl Functions {
    /// Reads the functions of the running kernel. Returns the errors of [`Symbols::of_kernel`].
    pub(crate) fn of_kernel() -> Result<Self> {
        Ok(Self::of(&Symbols::of_kernel()?))
    }

    /// Returns the functions in a symbol table.
    pub(crate) fn of(symbols: &Symbols) -> Self {
        let mut functions: Vec<(u64, Box<str>)> = Vec::new();
        for line in symbols.text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let (Some(address), "t" | "T" | "w" | "W") = (read(address), kind) else { continue };
            // Several names can have the same address. The first one is as good as the others.
            if functions.last().is_none_or(|(last, _)| *last != address) {
                functions.push((address, base_name(name).into()));
            }
        }
        functions.sort_by_key(|(address, _)| *address);
        Self(functions)
    }

    /// Returns the name of the function that contains `address`; `None` if no known function does.
    pub(crate) fn at(&self, address: u64) -> Option<&str> {
        let next = self.0.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.0.get(next.checked_sub(1)?)?;
        (address - start < FUNCTION_BYTES_MAX).then_some(name)
    }
}

/// Returns the name of a function without the suffix with which the compiler marks a part (`.cold`, `.constprop.0`). A BPF program
/// has the name that its owner gave it, after `bpf:`.
fn base_name(name: &str) -> String {
    let named = name.strip_prefix("bpf_prog_").and_then(|rest| rest.split_once('_'));
    if let Some((_tag, own)) = named {
        return format!("bpf:{own}");
    }
    name.split_once('.').map_or(name, |(base, _)| if base.is_empty() { name } else { base }).to_owned()
}

/// The kernel's symbol table, as text.
#[derive(Debug)]
pub(crate) struct Symbols {
    text: String,
}

impl Symbols {
    /// Reads the symbol table of the running kernel. Returns an error of kind `Environment` if the kernel has no symbol table, or
    /// hides the addresses from this process.
    pub(crate) fn of_kernel() -> Result<Self> {
        let text = std::fs::read_to_string(PLACE).context(format_args!("cannot read {PLACE}"))?;
        let symbols = Self { text };
        if symbols.lines().all(|(address, _)| read(address) == Some(0)) {
            return Err(Error::environment(format!("{PLACE} does not show the addresses of the kernel's functions"))
                .hint("run siga as root or with CAP_SYSLOG, and set the sysctl kernel.kptr_restrict to 0 or 1"));
        }
        Ok(symbols)
    }

    /// Returns the address ranges of all parts of a kernel function that is not in a module, in the order of the symbol table.
    /// The list is empty if the function has no parts, for example because the compiler inlined it everywhere.
    pub(crate) fn pieces(&self, function: &str) -> Vec<Range<u64>> {
        let mut pieces: Vec<Range<u64>> = Vec::new();
        // The table is sorted by address, and several names can have the same address. So a part ends not at the next symbol,
        // but at the next higher address.
        let mut open = None;
        for (address, name) in self.lines() {
            let is_piece = name.strip_prefix(function).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            // The table has a hundred thousand addresses. To save time, parse only the addresses of a part and of the symbols
            // that follow it.
            if !is_piece && open.is_none() {
                continue;
            }
            let Some(address) = read(address) else { continue };
            if let Some(start) = open.take_if(|start| *start != address)
                && start < address
            {
                pieces.push(start..address);
            }
            if is_piece {
                open = Some(address);
            }
        }
        pieces
    }

    /// Returns the address (hexadecimal digits) and the name of each symbol that is not in a module.
    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter(|line| !line.ends_with(']')).filter_map(|line| {
            let (address, rest) = line.split_once(' ')?;
            let (_kind, name) = rest.split_once(' ')?;
            Some((address, name))
        })
    }
}

fn read(address: &str) -> Option<u64> {
    u64::from_str_radix(address, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<(u64, u64)> {
        let pieces = Symbols { text: text.into() }.pieces("serve");
        pieces.into_iter().map(|piece| (piece.start, piece.end)).collect()
    }

    #[test]
    fn an_address_belongs_to_the_function_that_starts_before_it() {
        let text = "10 t before\n20 t serve.isra.0\n20 t alias\n38 D data\n40 T after\nc000 t bpf_prog_1_mark\t[bpf]\n";
        let functions = Functions::of(&Symbols { text: text.into() });
        let names = [0xf, 0x10, 0x20, 0x3f, 0x40, 0xc008, 0xd0000].map(|address| functions.at(address));
        assert_eq!(names, [None, Some("before"), Some("serve"), Some("serve"), Some("after"), Some("bpf:mark"), None]);
    }

    #[test]
    fn a_function_ends_where_the_next_address_begins() {
        assert_eq!(pieces("10 t before\n20 t serve\n20 t alias\n38 t after\n"), [(0x20, 0x38)]);
    }

    #[test]
    fn all_pieces_count_and_longer_names_do_not() {
        let text =
            "10 t serve.cold\n14 t observe\n20 T serve\n28 t server\n30 t serve.part.0\n40 t x\n50 t serve\t[module]\n";
        assert_eq!(pieces(text), [(0x10, 0x14), (0x20, 0x28), (0x30, 0x40)]);
    }

    #[test]
    fn nonsense_and_an_open_end_are_left_out() {
        assert!(pieces("").is_empty());
        assert!(pieces("zz t serve\n10\n20 t\n30 t serve").is_empty());
        assert!(pieces("30 t serve\n10 t before").is_empty());
    }
}
