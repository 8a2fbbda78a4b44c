//! Reads the kernel's type information (BTF). Finds a type by its name, and the offset of a member by its path.
//!
//! Contract: this module accepts any bytes. For malformed data, it returns an error or finds nothing, but never panics. No
//! search visits more than `MEMBERS_MAX` members. A search follows typedefs and qualifiers to other types, but not pointers or
//! arrays. Bit fields are not supported.

use siga_model::error::{Error, IoContext, Result};

/// File in which the kernel publishes its own types.
const KERNEL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// Length in bytes of the fixed part of a type: its name, its kind with the number of members, and its size or the id of
/// another type.
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;
/// Maximum number of members that one lookup visits. The largest structure of a real kernel has a few hundred members.
const MEMBERS_MAX: u32 = 20_000;
/// Maximum nesting depth of anonymous structures, and maximum length of a chain of typedefs.
const DEPTH_MAX: u32 = 16;

/// Kinds of type that [`Btf::id`] can look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// `struct`.
    Structure = STRUCTURE,
    /// `typedef`.
    Typedef = TYPEDEF,
}

const STRUCTURE: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;

/// Type information, indexed by type id.
#[derive(Debug)]
pub(crate) struct Btf {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Offset in bytes of each type in `types`. Index 0 has the type with id 1.
    starts: Vec<u32>,
}

/// The fixed part of a type.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    members: u32,
    /// Whether the upper byte of each member's offset contains the width of a bit field. The width is 0 for a member that is
    /// not a bit field.
    with_widths: bool,
    /// If the kind of this type refers to another type: the id of that type.
    target: u32,
}

impl Btf {
    /// Reads the types of the running kernel. Returns an error of kind `Environment` if the kernel does not publish its types, or
    /// if the data is malformed.
    pub(crate) fn of_kernel() -> Result<Self> {
        let bytes = std::fs::read(KERNEL).context(format_args!("cannot read {KERNEL}"));
        let bytes = bytes.map_err(|error| error.hint("use a kernel that was built with CONFIG_DEBUG_INFO_BTF"))?;
        Self::parse(&bytes).ok_or_else(|| Error::environment(format!("{KERNEL} is not in the BTF format")))
    }

    /// Parses BTF. Returns `None` if the bytes are malformed.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
        if magic != MAGIC {
            return None;
        }
        let header = word(bytes, 4)?;
        let section = |offset: usize| {
            let start = index(header)?.checked_add(index(word(bytes, offset)?)?)?;
            let length = index(word(bytes, offset + 4)?)?;
            Some(bytes.get(start..start.checked_add(length)?)?.to_vec())
        };
        let (types, strings) = (section(8)?, section(16)?);
        let mut starts = Vec::with_capacity(types.len() / 20);
        let mut position = 0;
        while position < types.len() {
            starts.push(u32::try_from(position).ok()?);
            position = position.checked_add(TYPE_BYTES + trailing_bytes(type_at(&types, position)?)?)?;
        }
        (position == types.len()).then_some(Self { types, strings, starts })
    }

    /// Returns the id of the first type with this kind and name.
    pub(crate) fn id(&self, kind: Kind, name: &str) -> Option<u32> {
        let found = (1_u32..).zip(&self.starts).find(|(_, start)| {
            index(**start)
                .and_then(|start| type_at(&self.types, start))
                .is_some_and(|found| found.kind == kind as u32 && self.is_named(found.name, name))
        });
        found.map(|(id, _)| id)
    }

    /// Returns the offset in bytes of a member of `struct structure`. `path` names the member: `nd_net.net` is the member `net`
    /// of the structure in member `nd_net`. Members of an anonymous structure or union count as members of the structure that
    /// contains the anonymous one.
    pub(crate) fn offset(&self, structure: &str, path: &str) -> Option<u32> {
        let mut budget = MEMBERS_MAX;
        let mut id = self.id(Kind::Structure, structure)?;
        let mut bits = 0_u32;
        for name in path.split('.') {
            let (offset, target) = self.member(id, name, DEPTH_MAX, &mut budget)?;
            bits = bits.checked_add(offset)?;
            id = target;
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Returns the offset in bits and the type id of the member `name` of type `id`.
    fn member(&self, id: u32, name: &str, depth: u32, budget: &mut u32) -> Option<(u32, u32)> {
        let (start, holder) = self.resolve(id)?;
        if holder.kind != STRUCTURE && holder.kind != UNION {
            return None;
        }
        let mut position = start.checked_add(TYPE_BYTES)?;
        for _ in 0..holder.members {
            *budget = budget.checked_sub(1)?;
            let (member_name, target) = (word(&self.types, position)?, word(&self.types, position + 4)?);
            let packed = word(&self.types, position + 8)?;
            let (offset, width) = if holder.with_widths { (packed & 0x00ff_ffff, packed >> 24) } else { (packed, 0) };
            position += MEMBER_BYTES;
            if self.is_named(member_name, name) {
                return (width == 0).then_some((offset, target));
            }
            if member_name == 0
                && let Some(depth) = depth.checked_sub(1)
                && let Some((inner, target)) = self.member(target, name, depth, budget)
            {
                return Some((offset.checked_add(inner)?, target));
            }
        }
        None
    }

    /// Follows typedefs and qualifiers from type `id` to the first type of another kind. Returns this type and its offset in
    /// `types`.
    fn resolve(&self, mut id: u32) -> Option<(usize, Type)> {
        for _ in 0..DEPTH_MAX {
            let start = index(*self.starts.get(index(id.checked_sub(1)?)?)?)?;
            let found = type_at(&self.types, start)?;
            match found.kind {
                // typedef, volatile, const, restrict, type tag
                TYPEDEF..=11 | 18 => id = found.target,
                _ => return Some((start, found)),
            }
        }
        None
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let text = index(offset).and_then(|offset| self.strings.get(offset..));
        text.and_then(|text| text.strip_prefix(name.as_bytes())).is_some_and(|rest| rest.first() == Some(&0))
    }
}

fn type_at(types: &[u8], position: usize) -> Option<Type> {
    let info = word(types, position.checked_add(4)?)?;
    Some(Type {
        name: word(types, position)?,
        kind: info >> 24 & 0x1f,
        members: info & 0xffff,
        with_widths: info >> 31 == 1,
        target: word(types, position.checked_add(8)?)?,
    })
}

/// Returns the number of bytes that follow the fixed part of a type (Documentation/bpf/btf.rst). Returns `None` for an unknown
/// kind, because the length is then unknown.
fn trailing_bytes(found: Type) -> Option<usize> {
    let members = index(found.members)?;
    match found.kind {
        // integer, variable, declaration tag
        1 | 14 | 17 => Some(4),
        // array
        3 => Some(12),
        // structure, union, data section, 64-bit enumeration
        STRUCTURE | UNION | 15 | 19 => Some(12 * members),
        // enumeration, function prototype
        6 | 13 => Some(8 * members),
        // pointer, forward, typedef, qualifiers, function, float, type tag
        2 | 7..=12 | 16 | 18 => Some(0),
        _ => None,
    }
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let four = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

fn index(value: u32) -> Option<usize> {
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// BTF of: `struct inner { int a; int b; }; typedef struct inner alias;
    /// struct outer { int first; union { struct { int hidden; alias held; }; int other; }; int narrow : 3; }`.
    fn sample() -> Vec<u8> {
        let mut strings = vec![0_u8];
        let mut name = |text: &str| {
            let offset = u32::try_from(strings.len()).unwrap();
            strings.extend(text.as_bytes());
            strings.push(0);
            offset
        };
        let kind = |number: u32, members: u32| number << 24 | members;
        let types: Vec<u32> = [
            vec![name("int"), kind(1, 0), 4, 32],
            vec![name("inner"), kind(STRUCTURE, 2), 8, name("a"), 1, 0, name("b"), 1, 32],
            vec![name("alias"), kind(TYPEDEF, 0), 2],
            vec![0, kind(STRUCTURE, 2), 12, name("hidden"), 1, 0, name("held"), 3, 32],
            vec![0, kind(UNION, 2), 12, 0, 4, 0, name("other"), 1, 0],
            vec![
                name("outer"),
                kind(STRUCTURE, 3) | 1 << 31,
                20,
                name("first"),
                1,
                0,
                0,
                5,
                32,
                name("narrow"),
                1,
                128 | 3 << 24,
            ],
        ]
        .concat();
        let length = |words: usize| u32::try_from(words).unwrap();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, length(4 * types.len()), length(4 * types.len()), length(strings.len())] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        types.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    /// Calls every query, so that a panic in any of them shows.
    fn ask(btf: &Btf) {
        for structure in ["outer", "inner", "alias", ""] {
            for path in ["first", "held.b", "narrow", "", "."] {
                let _ = btf.offset(structure, path);
            }
        }
    }

    #[test]
    fn members_are_found_through_anonymous_structures_and_typedefs() {
        let btf = Btf::parse(&sample()).unwrap();
        assert_eq!(btf.offset("outer", "first"), Some(0));
        assert_eq!(btf.offset("outer", "hidden"), Some(4));
        assert_eq!(btf.offset("outer", "held.b"), Some(12));
        assert_eq!(btf.offset("outer", "other"), Some(4));
        assert_eq!(btf.id(Kind::Typedef, "alias"), Some(3));
        for (structure, path) in [("outer", "narrow"), ("outer", "first.a"), ("outer", "held.c"), ("alias", "a")] {
            assert_eq!(btf.offset(structure, path), None, "{structure}.{path}");
        }
    }

    #[test]
    fn truncated_type_information_is_refused_or_harmless() {
        let whole = sample();
        for length in 0..whole.len() {
            if let Some(btf) = Btf::parse(&whole[..length]) {
                ask(&btf);
            }
        }
        assert!(Btf::parse(&whole[..whole.len() - 1]).is_none());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            changes in proptest::collection::vec((0_usize..400, any::<u8>()), 1..12),
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = sample();
            let length = bytes.len();
            changes.iter().for_each(|(place, byte)| bytes[place % length] = *byte);
            Btf::parse(&bytes).iter().for_each(ask);
            Btf::parse(&noise).iter().for_each(ask);
        }
    }

    #[test]
    fn a_search_in_a_structure_that_contains_itself_ends() {
        let mut bytes = sample();
        // The union's anonymous member (type 4) becomes the union itself (type 5).
        let types = 24 + 4 * (4 + 9 + 3 + 9);
        bytes[types + 16..types + 20].copy_from_slice(&5_u32.to_ne_bytes());
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.offset("outer", "held"), None);
    }

    #[test]
    fn the_running_kernel_has_what_the_profiler_needs() {
        let Ok(btf) = Btf::of_kernel() else {
            eprintln!("skipped, because this kernel shows no BTF");
            return;
        };
        // `struct sk_buff` begins with `next` and `prev`, and `dev` follows them inside a union.
        let pointer = u32::try_from(size_of::<usize>()).unwrap();
        assert_eq!(btf.offset("sk_buff", "dev"), Some(2 * pointer));
        assert!(btf.offset("net_device", "nd_net.net").is_some());
        assert!(btf.offset("net", "ns.inum").is_some());
        assert!(btf.id(Kind::Typedef, "btf_trace_netif_receive_skb").is_some());
        assert_eq!(btf.offset("sk_buff", "no_such_member"), None);
    }
}
