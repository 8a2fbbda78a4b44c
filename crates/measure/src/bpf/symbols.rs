//! Finds the addresses of the kernel's functions in /proc/kallsyms.
//!
//! Contract: a lookup finds all parts into which the compiler split a function (`name`, `name.constprop.0`, `name.cold`). Each
//! part is a range of addresses. If the kernel hides the addresses, this module returns an error. It ignores the functions of
//! kernel modules.

use siga_model::error::{Error, IoContext, Result};
use std::ops::Range;

const PLACE: &str = "/proc/kallsyms";

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
            return Err(Error::environment(format!("{PLACE} hides the addresses of the kernel's functions"))
                .hint("it shows them to root and with CAP_SYSLOG, unless the sysctl kernel.kptr_restrict is 2"));
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
