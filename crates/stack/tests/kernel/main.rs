//! The stack against the Linux kernel, over TAP devices in namespaces of each test's own.
//!
//! `SIGA_BULK_BYTES=1000000000` has the bulk transfers move as much as that, instead of what a debug build does in a second or
//! two. Needs root; without, each test says that it is skipped.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]
#![expect(clippy::disallowed_methods, reason = "the kernel's side has clocks and threads")]

mod bottleneck;
#[path = "../../examples/tap/content.rs"]
mod content;
mod host;
mod peer;
mod place;
mod router;
mod tap;
#[path = "../../../fabric/tests/common/vm.rs"]
mod vm;
