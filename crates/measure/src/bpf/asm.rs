//! A small BPF assembler: a program is a list of [`Line`]s, and [`assemble`] resolves the jumps between them.
//!
//! Contract: instructions are encoded for this machine: its byte order determines the order of the two register fields.
//! [`assemble`] returns an error if the label of a jump is missing, defined twice or too far away. The assembler supports only
//! the instructions that siga's programs use. It does not check what a program does, because the kernel's verifier does that.

use siga_model::error::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A BPF register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Register(u8);

/// The register with the return value of a call, and of the program.
pub(crate) const R0: Register = Register(0);
/// First argument of a call. At the start of the program, a pointer to its context.
pub(crate) const R1: Register = Register(1);
/// Second argument of a call.
pub(crate) const R2: Register = Register(2);
/// Third argument of a call.
pub(crate) const R3: Register = Register(3);
/// Fourth argument of a call.
pub(crate) const R4: Register = Register(4);
/// A register that keeps its value across calls.
pub(crate) const R6: Register = Register(6);
/// A register that keeps its value across calls.
pub(crate) const R7: Register = Register(7);
/// A register that keeps its value across calls.
pub(crate) const R8: Register = Register(8);
/// A register that keeps its value across calls.
pub(crate) const R9: Register = Register(9);
/// Address of the end of the 512-byte stack frame. Programs cannot change this register.
pub(crate) const R10: Register = Register(10);

/// Width of a memory access, as its bits in an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Width {
    /// 32 bits.
    Word = 0x00,
    /// 64 bits.
    Double = 0x18,
}

/// The condition of a jump, as its bits in an instruction. The jump compares a register with a second value; both are unsigned
/// 64-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Condition {
    /// The register equals the second value.
    Equal = 0x10,
    /// The register differs from the second value.
    NotEqual = 0x50,
    /// The register is less than the second value.
    Less = 0xa0,
    /// The register is greater than or equal to the second value.
    AtLeast = 0x30,
}

/// Helper functions of the kernel with their numbers in `enum bpf_func_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Helper {
    /// `void *bpf_map_lookup_elem(map, key)`.
    MapLookup = 1,
    /// `long bpf_map_update_elem(map, key, value, flags)`.
    MapUpdate = 2,
    /// `u64 bpf_ktime_get_ns()`.
    Nanoseconds = 5,
    /// `u64 bpf_get_current_pid_tgid()`.
    PidTgid = 14,
    /// `long bpf_get_stack(context, buffer, bytes, flags)`.
    Stack = 67,
    /// `long bpf_probe_read_kernel(to, bytes, from)`.
    ReadKernel = 113,
    /// `long bpf_msg_redirect_hash(message, map, key, flags)`.
    MessageRedirectHash = 71,
}

/// One 8-byte instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    destination: Register,
    source: Register,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn encode(self) -> [u8; 8] {
        // `struct bpf_insn` stores the numbers of both registers as bit fields in one byte. The order of the bit fields depends
        // on the byte order of the machine.
        let registers = if cfg!(target_endian = "little") {
            self.source.0 << 4 | self.destination.0
        } else {
            self.destination.0 << 4 | self.source.0
        };
        let [offset_0, offset_1] = self.offset.to_ne_bytes();
        let [immediate_0, immediate_1, immediate_2, immediate_3] = self.immediate.to_ne_bytes();
        [self.code, registers, offset_0, offset_1, immediate_0, immediate_1, immediate_2, immediate_3]
    }
}

/// A line of a BPF program.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line<'a> {
    /// An instruction without a label.
    Plain(Instruction),
    /// A load of a 64-bit constant, which is encoded as two instructions.
    Wide(Instruction, Instruction),
    /// A load of a map's address. The borrow keeps the map's descriptor open until the program is loaded.
    Map(Register, BorrowedFd<'a>),
    /// A jump to the label with this name. `assemble` sets the instruction's offset to the distance to the label.
    Jump(Instruction, &'static str),
    /// A label, which jumps refer to by its name. It produces no instruction.
    Label(&'static str),
}

impl Line<'_> {
    fn instructions(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Jump(..) => 1,
            Self::Wide(..) | Self::Map(..) => 2,
            Self::Label(_) => 0,
        }
    }
}

const fn plain(code: u8, destination: Register, source: Register, offset: i16, immediate: i32) -> Line<'static> {
    Line::Plain(Instruction { code, destination, source, offset, immediate })
}

/// `destination = source`.
pub(crate) const fn copy(destination: Register, source: Register) -> Line<'static> {
    plain(0xbf, destination, source, 0, 0)
}

/// `destination = constant`. The constant is sign-extended to 64 bits.
pub(crate) const fn set(destination: Register, constant: i32) -> Line<'static> {
    plain(0xb7, destination, R0, 0, constant)
}

/// `destination += constant`.
pub(crate) const fn add(destination: Register, constant: i32) -> Line<'static> {
    plain(0x07, destination, R0, 0, constant)
}

/// `destination += source`.
pub(crate) const fn add_register(destination: Register, source: Register) -> Line<'static> {
    plain(0x0f, destination, source, 0, 0)
}

/// `destination -= source`.
pub(crate) const fn subtract_register(destination: Register, source: Register) -> Line<'static> {
    plain(0x1f, destination, source, 0, 0)
}

/// `destination &= constant`. The constant is sign-extended to 64 bits.
pub(crate) const fn and(destination: Register, constant: i32) -> Line<'static> {
    plain(0x57, destination, R0, 0, constant)
}

/// `destination >>= bits`, filled with zeros from the left.
pub(crate) const fn shift_right(destination: Register, bits: i32) -> Line<'static> {
    plain(0x77, destination, R0, 0, bits)
}

/// Converts the lower 32 bits from network byte order to the byte order of this machine, and clears the upper 32 bits.
pub(crate) const fn from_network_32(destination: Register) -> Line<'static> {
    plain(0xdc, destination, R0, 0, 32)
}

/// `destination = *(source + offset)`.
pub(crate) fn load(width: Width, destination: Register, source: Register, offset: i16) -> Line<'static> {
    plain(0x61 | width as u8, destination, source, offset, 0)
}

/// `*(destination + offset) = source`.
pub(crate) fn store(width: Width, destination: Register, offset: i16, source: Register) -> Line<'static> {
    plain(0x63 | width as u8, destination, source, offset, 0)
}

/// `*(destination + offset) = constant`. The constant is sign-extended to the width of the access.
pub(crate) fn store_constant(width: Width, destination: Register, offset: i16, constant: i32) -> Line<'static> {
    plain(0x62 | width as u8, destination, R0, offset, constant)
}

/// `*(destination + offset) += source`, as one atomic 64-bit access.
pub(crate) const fn atomic_add(destination: Register, offset: i16, source: Register) -> Line<'static> {
    plain(0xdb, destination, source, offset, 0)
}

/// `destination =` the address of the map that the descriptor `map` refers to.
pub(crate) const fn load_map(destination: Register, map: BorrowedFd<'_>) -> Line<'_> {
    Line::Map(destination, map)
}

/// `destination = constant`, with all 64 bits of the constant.
pub(crate) fn set_wide(destination: Register, constant: u64) -> Line<'static> {
    let [byte_0, byte_1, byte_2, byte_3, byte_4, byte_5, byte_6, byte_7] = constant.to_le_bytes();
    let low = i32::from_le_bytes([byte_0, byte_1, byte_2, byte_3]);
    let high = i32::from_le_bytes([byte_4, byte_5, byte_6, byte_7]);
    Line::Wide(
        Instruction { code: 0x18, destination, source: R0, offset: 0, immediate: low },
        Instruction { code: 0, destination: R0, source: R0, offset: 0, immediate: high },
    )
}

/// Calls a helper function.
pub(crate) fn call(helper: Helper) -> Line<'static> {
    plain(0x85, R0, R0, 0, helper as i32)
}

/// Ends the program. `R0` is its return value.
pub(crate) const fn exit() -> Line<'static> {
    plain(0x95, R0, R0, 0, 0)
}

/// Defines the label `name`.
pub(crate) const fn label(name: &'static str) -> Line<'static> {
    Line::Label(name)
}

/// Jumps to the label `target`.
pub(crate) const fn jump(target: &'static str) -> Line<'static> {
    Line::Jump(Instruction { code: 0x05, destination: R0, source: R0, offset: 0, immediate: 0 }, target)
}

/// Jumps to `target` if `condition` holds between `register` and the sign-extended `constant`.
pub(crate) fn jump_if(register: Register, condition: Condition, constant: i32, target: &'static str) -> Line<'static> {
    let code = 0x05 | condition as u8;
    Line::Jump(Instruction { code, destination: register, source: R0, offset: 0, immediate: constant }, target)
}

/// Jumps to `target` if `condition` holds between `left` and `right`.
pub(crate) fn jump_if_register(
    left: Register,
    condition: Condition,
    right: Register,
    target: &'static str,
) -> Line<'static> {
    let code = 0x0d | condition as u8;
    Line::Jump(Instruction { code, destination: left, source: right, offset: 0, immediate: 0 }, target)
}

/// Encodes a program in the form that the kernel loads. Returns an error of kind `Environment` if a label is missing, defined twice
/// or too far away. Such an error is a mistake in siga and would occur on every host, because siga's programs differ between hosts
/// only in offsets.
pub(crate) fn assemble(lines: &[Line<'_>]) -> Result<Vec<[u8; 8]>> {
    let broken = |label: &str, what: &str| Error::environment(format!("BPF assembler: label `{label}` {what}"));
    let mut labels: Vec<(&str, usize)> = Vec::new();
    let mut position = 0;
    for line in lines {
        if let Line::Label(name) = line {
            if labels.iter().any(|(known, _)| known == name) {
                return Err(broken(name, "is defined twice"));
            }
            labels.push((name, position));
        }
        position += line.instructions();
    }
    let mut code = Vec::with_capacity(position);
    for line in lines {
        match line {
            Line::Plain(instruction) => code.push(instruction.encode()),
            Line::Wide(low, high) => code.extend([low.encode(), high.encode()]),
            Line::Map(destination, map) => code.extend(map_instructions(*destination, *map).map(Instruction::encode)),
            Line::Jump(instruction, name) => {
                let (_, target) =
                    labels.iter().find(|(known, _)| known == name).ok_or_else(|| broken(name, "is missing"))?;
                // The distance of a jump is counted from the instruction that follows the jump.
                let distance = i64::try_from(*target).ok().zip(i64::try_from(code.len() + 1).ok());
                let offset = distance.and_then(|(target, next)| i16::try_from(target - next).ok());
                let offset = offset.ok_or_else(|| broken(name, "is too far away"))?;
                code.push(Instruction { offset, ..*instruction }.encode());
            }
            Line::Label(_) => {}
        }
    }
    Ok(code)
}

fn map_instructions(destination: Register, map: BorrowedFd<'_>) -> [Instruction; 2] {
    const PSEUDO_MAP_FD: Register = Register(1);
    [
        Instruction { code: 0x18, destination, source: PSEUDO_MAP_FD, offset: 0, immediate: map.as_raw_fd() },
        Instruction { code: 0, destination: R0, source: R0, offset: 0, immediate: 0 },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn encodes_as_the_kernel_headers_say() {
        let code = assemble(&[
            set(R0, 1),
            load(Width::Word, R2, R1, 60),
            from_network_32(R2),
            store(Width::Word, R10, -8, R2),
            add(R2, -8),
            call(Helper::MapLookup),
            set_wide(R9, 0x8877_6655_4433_2211),
            atomic_add(R0, 8, R1),
            exit(),
        ])
        .unwrap();
        assert_eq!(
            code,
            [
                [0xb7, 0x00, 0, 0, 1, 0, 0, 0],
                [0x61, 0x12, 60, 0, 0, 0, 0, 0],
                [0xdc, 0x02, 0, 0, 32, 0, 0, 0],
                [0x63, 0x2a, 0xf8, 0xff, 0, 0, 0, 0],
                [0x07, 0x02, 0, 0, 0xf8, 0xff, 0xff, 0xff],
                [0x85, 0x00, 0, 0, 1, 0, 0, 0],
                [0x18, 0x09, 0, 0, 0x11, 0x22, 0x33, 0x44],
                [0x00, 0x00, 0, 0, 0x55, 0x66, 0x77, 0x88],
                [0xdb, 0x10, 8, 0, 0, 0, 0, 0],
                [0x95, 0x00, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn jumps_count_from_the_next_instruction_and_a_wide_load_counts_twice() {
        let wide = load_map(R1, rustix::stdio::stdin());
        let code =
            assemble(&[label("top"), jump_if(R0, Condition::Equal, 0, "end"), wide, jump("top"), label("end"), exit()])
                .unwrap();
        assert_eq!(code.len(), 5);
        assert_eq!(code[0][2..4], 3_i16.to_ne_bytes());
        assert_eq!(code[3][2..4], (-4_i16).to_ne_bytes());
    }

    #[test]
    fn a_label_must_exist_exactly_once_within_reach() {
        let message = |lines: &[Line<'_>]| assemble(lines).unwrap_err().message().to_owned();
        assert!(message(&[jump("nowhere")]).contains("missing"));
        assert!(message(&[label("a"), label("a")]).contains("twice"));
        let mut far = vec![jump("end")];
        far.extend(std::iter::repeat_n(exit(), 40_000));
        far.push(label("end"));
        assert!(message(&far).contains("too far"));
    }
}
