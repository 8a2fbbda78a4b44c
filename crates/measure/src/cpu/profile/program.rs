//! The two BPF programs of the profiler. The marker runs for each received packet: it stores the packet's device as the mark of
//! the CPU, and counts the packet. The sampler runs for each sample: it adds the sample to the count of its process, namespace and mode,
//! and to the count of its call chain.
//!
//! Contract: the marker stores only two words per packet, because its CPU time delays the measured path. The marker takes 40 to
//! 50 ns per packet. Of this time, the kernel needs 35 ns to call a BPF program at a tracepoint. The sampler may take longer,
//! because it runs less often.

use crate::bpf::asm::{
    Condition, Helper, Line, R0, R1, R2, R3, R4, R6, R7, R8, R9, R10, Register, Width, add, and, atomic_add, call,
    copy, exit, jump, jump_if, jump_if_register, label, load, load_map, set, set_wide, shift_right, store,
    store_constant, subtract_register,
};
use crate::bpf::btf::Btf;
use crate::bpf::symbols::Symbols;
use crate::sys::bpf::Map;
use siga_model::error::{Error, Result};
use std::ops::Range;

/// Size in bytes of the key of the map `counts`: process id, namespace inode and mode, each a `u32`.
pub(super) const KEY_BYTES: u32 = 12;
/// Size in bytes of a mark: the address of a device, and a number of packets.
pub(super) const MARK_BYTES: u32 = 16;
/// Value of the mode in a key: the CPU was executing the process's own code.
pub(super) const MODE_USER: i32 = 0;
/// Value of the mode in a key: the CPU was executing kernel code on behalf of the process.
pub(super) const MODE_KERNEL: i32 = 1;
/// Value of the mode in a key: the CPU was executing a softirq that had interrupted the process.
pub(super) const MODE_SOFTIRQ: i32 = 2;

/// Maximum number of stack frames that the sampler examines in a call chain. It is also the kernel's default limit.
const FRAMES_MAX: i32 = 127;
/// Size in bytes of the buffer for a call chain, including the head of its key.
pub(super) const BUFFER_BYTES: u32 = (CHAIN_HEAD_BYTES + 8 * FRAMES_MAX).unsigned_abs();

/// Size in bytes of the head of a key of the map `chains`: process id, namespace inode, mode, and the length of the whole call
/// chain in bytes (negative if the kernel could not walk it), each 32 bits wide. The addresses of the chain follow.
const CHAIN_HEAD_BYTES: i32 = 16;
/// Maximum number of stack frames in a key of the map `chains`, the innermost ones. The kernel limits a key to 512 bytes.
pub(super) const CHAIN_FRAMES: i32 = 60;
/// Size in bytes of a key of the map `chains`.
pub(super) const CHAIN_BYTES: u32 = (CHAIN_HEAD_BYTES + 8 * CHAIN_FRAMES).unsigned_abs();

/// Address ranges of kernel functions. If one of them is in a call chain, the CPU is in softirq (`softirq`) or is receiving a
/// packet (`receive`).
#[derive(Debug)]
pub(super) struct Code {
    softirq: Vec<Range<u64>>,
    /// Functions that stay on the call stack while the kernel delivers or forwards a packet. The tracepoint at which the marker
    /// runs is in the outermost of these functions, or in a function that the outermost calls. So the marker has run before the
    /// packet is processed.
    receive: Vec<Range<u64>>,
}

impl Code {
    /// Finds the addresses of the functions. Returns an error of kind `Environment` if this kernel has no function for softirq or
    /// for reception.
    pub(super) fn of_kernel(symbols: &Symbols) -> Result<Self> {
        let all = |functions: &[&str]| {
            let pieces: Vec<_> = functions.iter().flat_map(|function| symbols.pieces(function)).collect();
            let missing = || {
                Error::environment(format!(
                    "the profiler needs one of the kernel functions {}, but this kernel has none of them",
                    functions.join(", ")
                ))
            };
            if pieces.is_empty() { Err(missing()) } else { Ok(pieces) }
        };
        // Kernels before 6.10 have `__do_softirq` instead of `handle_softirqs`. The kernel receives single packets and lists of
        // packets in different functions.
        let softirq = all(&["handle_softirqs", "__do_softirq"])?;
        let mut receive = all(&["__netif_receive_skb_one_core"])?;
        receive.extend(all(&["__netif_receive_skb_list_core"])?);
        Ok(Self { softirq, receive })
    }
}

/// The maps that the sampler reads and writes.
#[derive(Debug)]
pub(super) struct Maps<'a> {
    /// The mark, per CPU: the address of the device of the packet that the CPU received last, and the number of packets.
    pub(super) marks: &'a Map,
    /// A buffer for a call chain, per CPU. It begins with room for the head of a key of `chains`.
    pub(super) frames: &'a Map,
    /// Number of samples of each key.
    pub(super) counts: &'a Map,
    /// Number of samples that were not counted because `counts` was full.
    pub(super) uncounted: &'a Map,
    /// Number of samples of each call chain. A key has the process, namespace and mode, and the addresses of the chain.
    pub(super) chains: &'a Map,
    /// Number of samples whose call chain was lost because `chains` was full.
    pub(super) chains_lost: &'a Map,
}

// Offsets in bytes of stack slots from the end of the stack frame. TGID, NAMESPACE and MODE form the key of `counts`. COUNT
// first contains a pointer, and later the initial count of a new key. ZERO contains the index 0, with which the programs look
// up the only entry of an array.
const TGID: i16 = -24;
const NAMESPACE: i16 = -20;
const MODE: i16 = -16;
const COUNT: i16 = -8;
const ZERO: i16 = -28;

/// Offset in bytes of the innermost frame in the buffer for a call chain.
const FIRST_FRAME: i16 = 16;
/// Flag of an update of a map that inserts only keys that the map does not contain (`BPF_NOEXIST`).
const NEW_ONLY: i32 = 1;

/// Returns instructions that set `destination` to the address of the stack slot at offset `place`.
fn address(destination: Register, place: i16) -> [Line<'static>; 2] {
    [copy(destination, R10), add(destination, i32::from(place))]
}

/// Returns instructions that set `R0` to the address of this CPU's value in a per-CPU array with one entry. If the address is
/// null, they jump to `without`. The verifier demands this check, although the value always exists.
fn own_value<'a>(map: &'a Map, without: &'static str) -> Vec<Line<'a>> {
    let lookup = [load_map(R1, map.fd()), call(Helper::MapLookup), jump_if(R0, Condition::Equal, 0, without)];
    [&[store_constant(Width::Word, R10, ZERO, 0)], &address(R2, ZERO)[..], &lookup].concat()
}

/// Offsets in bytes of the members of kernel structures that lead from a packet to its network namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offsets {
    device_in_packet: i16,
    namespace_in_device: i32,
    inode_in_namespace: i32,
}

impl Offsets {
    /// Finds the offsets. Returns an error of kind `Environment` if the kernel's type information does not contain them.
    pub(super) fn of_kernel(btf: &Btf) -> Result<Self> {
        let offset = |structure: &str, path: &str| {
            let missing = || {
                Error::environment(format!(
                    "the type information (BTF) of this kernel lacks the field {structure}.{path}"
                ))
            };
            btf.offset(structure, path).and_then(|offset| i16::try_from(offset).ok()).ok_or_else(missing)
        };
        Ok(Self {
            device_in_packet: offset("sk_buff", "dev")?,
            namespace_in_device: offset("net_device", "nd_net.net")?.into(),
            inode_in_namespace: offset("net", "ns.inum")?.into(),
        })
    }
}

/// Returns the marker, a program for the tracepoint `netif_receive_skb(skb)`. It stores the packet's device as the mark of this
/// CPU, and counts the packet.
pub(super) fn mark<'a>(marks: &'a Map, offsets: Offsets) -> Vec<Line<'a>> {
    // The kernel knows the type of the pointer `skb`, so the program can dereference it directly. A read through an invalid
    // pointer returns zero.
    let device = [load(Width::Double, R1, R1, 0), load(Width::Double, R6, R1, offsets.device_in_packet)];
    // The increment need not be atomic. If a packet is received in an interrupt of this program, one of both is not counted.
    let store = [
        store(Width::Double, R0, 0, R6),
        load(Width::Double, R1, R0, 8),
        add(R1, 1),
        store(Width::Double, R0, 8, R1),
        label("out"),
        set(R0, 0),
        exit(),
    ];
    [&device[..], &own_value(marks, "out"), &store].concat()
}

/// Returns instructions that, if the sample interrupted user code, store the address of this code as the whole call chain and
/// jump to the label `count`. `R6` points to the context of the program, which begins with the registers of the interrupted code.
/// At `count`, `R9` is the length of the call chain in bytes.
///
/// The callers of user code are not recorded, because programs are rarely built with the frame pointers that the kernel would
/// need to find them.
fn unless_kernel<'a>(maps: &Maps<'a>) -> Result<Vec<Line<'a>>> {
    // Where the registers contain the CPU's mode: the offset of a 64-bit word, the number of bits to shift the word right, and
    // the mask of the mode's bits. The condition `is_user` compares the masked bits with 0, and is true in user mode. `code` is
    // the offset of the address of the interrupted code.
    let (offset, shift, mask, is_user, code) = if cfg!(target_arch = "x86_64") {
        // `struct pt_regs`: the low bits of cs contain the privilege level. The word before is ip.
        (17 * 8, 0, 3, Condition::NotEqual, 16 * 8)
    } else if cfg!(target_arch = "aarch64") {
        // `struct user_pt_regs`: 31 registers, sp, pc and pstate. The mode bits of pstate are zero in EL0 (user mode).
        (33 * 8, 0, 0xf, Condition::Equal, 32 * 8)
    } else if cfg!(target_arch = "s390x") {
        // `user_pt_regs`: one word, then the program status word. Bit 15 (from the left) of the program status word is set in
        // problem state (user mode). The second half of the program status word is the address.
        (8, 48, 1, Condition::NotEqual, 16)
    } else {
        return Err(Error::environment("the profiler cannot distinguish user from kernel time on this architecture")
            .hint("choose the accounting method `subtract` or `tick`"));
    };
    let word = load(Width::Double, R1, R6, offset);
    let test = [word, shift_right(R1, shift), and(R1, mask), jump_if(R1, is_user, 0, "user"), jump("kernel")];
    let store_code = [copy(R7, R0), load(Width::Double, R1, R6, code), store(Width::Double, R7, FIRST_FRAME, R1)];
    let further = (1..CHAIN_FRAMES).filter_map(|frame| i16::try_from(8 * frame).ok());
    let clear: Vec<_> = further.map(|place| store_constant(Width::Double, R7, FIRST_FRAME + place, 0)).collect();
    let end = [set(R9, 8), jump("count"), label("kernel")];
    Ok([&test[..], &[label("user")], &own_value(maps.frames, "out"), &store_code, &clear, &end].concat())
}

/// Returns the sampler, a program that adds one to the count of the sample's process, namespace and mode, and to the count of its
/// call chain.
pub(super) fn sample<'a>(maps: &Maps<'a>, code: &Code, offsets: Offsets) -> Result<Vec<Line<'a>>> {
    let process = [
        copy(R6, R1),
        call(Helper::PidTgid),
        shift_right(R0, 32),
        store(Width::Word, R10, TGID, R0),
        store_constant(Width::Word, R10, NAMESPACE, 0),
        store_constant(Width::Word, R10, MODE, MODE_USER),
    ];
    let end = [label("out"), set(R0, 0), exit()];
    let counts = [count(maps), count_chain(maps)].concat();
    Ok([&process[..], &unless_kernel(maps)?, &walk(maps, code), &name_namespace(maps, offsets), &counts, &end].concat())
}

/// Returns instructions that walk the call chain from the innermost function outwards, to a softirq function or the end of the
/// chain. They store the mode in the key. They set `R6` to 1 if a packet is being received, otherwise to 0, and `R9` to the length of
/// the whole chain in bytes. The kernel clears the rest of the buffer.
fn walk<'a>(maps: &Maps<'a>, code: &Code) -> Vec<Line<'a>> {
    let chain = [
        copy(R7, R0),
        add(R7, CHAIN_HEAD_BYTES),
        store_constant(Width::Word, R10, MODE, MODE_KERNEL),
        copy(R1, R6),
        copy(R2, R7),
        set(R3, 8 * FRAMES_MAX),
        set(R4, 0),
        call(Helper::Stack),
        copy(R9, R0),
        set(R6, 0),
        set(R8, 0),
        // If the length of the call chain is a negative error code, the unsigned comparison sees a very large number and jumps
        // to the end.
        jump_if(R9, Condition::AtLeast, 8 * FRAMES_MAX + 1, "walked"),
        label("frame"),
        jump_if_register(R8, Condition::AtLeast, R9, "walked"),
        load(Width::Double, R3, R7, 0),
    ];
    let within = |ranges: &[Range<u64>], target| {
        let test = |range: &Range<u64>| {
            // The test includes the start of a range and excludes its end. So a return address that equals the end is not
            // attributed to the function. This is rare: it happens only if the last instruction of the function is a call and no
            // padding follows.
            let length = i32::try_from(range.end - range.start).unwrap_or(i32::MAX);
            [
                set_wide(R2, range.start),
                copy(R1, R3),
                subtract_register(R1, R2),
                jump_if(R1, Condition::Less, length, target),
            ]
        };
        ranges.iter().flat_map(test).collect::<Vec<_>>()
    };
    let next = [
        label("next"),
        add(R7, 8),
        add(R8, 8),
        jump_if(R8, Condition::Less, 8 * FRAMES_MAX, "frame"),
        jump("walked"),
        label("receiving"),
        set(R6, 1),
        jump("next"),
        label("softirq"),
        store_constant(Width::Word, R10, MODE, MODE_SOFTIRQ),
        label("walked"),
    ];
    let tests = [within(&code.receive, "receiving"), within(&code.softirq, "softirq")].concat();
    [&own_value(maps.frames, "out")[..], &chain, &tests, &next].concat()
}

/// Returns instructions that, while a packet is being received, store the inode number of the packet's namespace in the key.
/// They follow the pointers from the device in this CPU's mark. This device still exists, because the interrupted code is using
/// it. If a read fails anyway, the sample is counted without a namespace.
fn name_namespace<'a>(maps: &Maps<'a>, offsets: Offsets) -> Vec<Line<'a>> {
    let read = |offset: i32, bytes: i32, place: i16| {
        let from = [copy(R3, R6), add(R3, offset), set(R2, bytes)];
        let check = [call(Helper::ReadKernel), jump_if(R0, Condition::NotEqual, 0, "count")];
        [&from[..], &address(R1, place), &check].concat()
    };
    let device = [load(Width::Double, R6, R0, 0)];
    let namespace = [load(Width::Double, R6, R10, COUNT)];
    [
        &[jump_if(R6, Condition::Equal, 0, "count")],
        &own_value(maps.marks, "out")[..],
        &device,
        &read(offsets.namespace_in_device, 8, COUNT),
        &namespace,
        &read(offsets.inode_in_namespace, 4, NAMESPACE),
    ]
    .concat()
}

/// Returns instructions that add one to the count of the key on the stack.
fn count<'a>(maps: &Maps<'a>) -> Vec<Line<'a>> {
    let key = address(R2, TGID);
    let lookup =
        [load_map(R1, maps.counts.fd()), call(Helper::MapLookup), jump_if(R0, Condition::NotEqual, 0, "known")];
    let insert = [
        store_constant(Width::Double, R10, COUNT, 1),
        load_map(R1, maps.counts.fd()),
        set(R4, 0),
        call(Helper::MapUpdate),
        jump_if(R0, Condition::Equal, 0, "chain"),
    ];
    // The increment need not be atomic, because samples on one CPU do not interrupt each other, and other CPUs do not write
    // this CPU's values.
    let increase = [label("known"), load(Width::Double, R1, R0, 0), add(R1, 1), store(Width::Double, R0, 0, R1)];
    let start = [label("count")];
    let uncounted = own_value(maps.uncounted, "out");
    [&start[..], &key, &lookup, &key, &address(R3, COUNT), &insert, &uncounted, &increase].concat()
}

/// Returns instructions that add one to the count of the call chain in this CPU's buffer. They first copy the key on the stack and
/// the length `R9` to the head of the buffer.
fn count_chain<'a>(maps: &Maps<'a>) -> Vec<Line<'a>> {
    let start = [label("chain")];
    let head = [
        copy(R7, R0),
        load(Width::Double, R1, R10, TGID),
        store(Width::Double, R7, 0, R1),
        load(Width::Word, R1, R10, MODE),
        store(Width::Word, R7, 8, R1),
        store(Width::Word, R7, 12, R9),
    ];
    let lookup = [
        load_map(R1, maps.chains.fd()),
        copy(R2, R7),
        call(Helper::MapLookup),
        jump_if(R0, Condition::NotEqual, 0, "increase"),
    ];
    let [value, below] = address(R3, COUNT);
    let insert = [
        store_constant(Width::Double, R10, COUNT, 0),
        load_map(R1, maps.chains.fd()),
        copy(R2, R7),
        value,
        below,
        set(R4, NEW_ONLY),
        call(Helper::MapUpdate),
    ];
    // Look the chain up again, whatever the result: another CPU may have inserted the same chain meanwhile.
    let again = [
        load_map(R1, maps.chains.fd()),
        copy(R2, R7),
        call(Helper::MapLookup),
        jump_if(R0, Condition::NotEqual, 0, "increase"),
    ];
    let increase = [label("increase"), set(R1, 1), atomic_add(R0, 0, R1)];
    let buffer = own_value(maps.frames, "out");
    let lost = own_value(maps.chains_lost, "out");
    [&start[..], &buffer, &head, &lookup, &insert, &again, &lost, &increase].concat()
}
