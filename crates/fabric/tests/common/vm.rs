//! Tests that need the virtual machine of `cargo xtask vm`: its kernel has modules that other hosts lack.
//!
//! A test program includes this file at its root as the module `vm`. The names of all these tests contain `needs_vm::`, by which
//! `cargo xtask vm-tests` finds them.

use std::process::Command;

/// Makes tests of functions, with the kernel's modules that each test needs, separated by commas. Write one table in a module.
///
/// `cargo test` ignores the tests and prints the modules as the reason. In the virtual machine, each test first loads its
/// modules. Elsewhere, it fails before it calls the function.
///
/// ```ignore
/// needs_vm! {
///     a_bond_carries_traffic: "bonding",
///     a_vlan_over_a_bond_carries_traffic: "bonding, 8021q",
/// }
/// ```
macro_rules! needs_vm {
    ($($test:ident: $modules:literal),+ $(,)?) => {
        mod needs_vm {
            $(
                #[test]
                #[ignore = $modules]
                fn $test() {
                    $crate::vm::enter($modules);
                    super::$test();
                }
            )+
        }
    };
}

pub(crate) use needs_vm;

/// Loads `modules`, which are separated by commas.
///
/// # Panics
///
/// If this process does not run in the virtual machine, or if the kernel lacks a module.
pub(crate) fn enter(modules: &str) {
    let is_inside = std::env::var_os("SIGA_VM").is_some();
    assert!(is_inside, "this test changes the host, so it runs only in the virtual machine: `cargo xtask vm-tests`");
    for module in modules.split(',').map(str::trim).filter(|module| !module.is_empty()) {
        let output = Command::new("modprobe").args(["--", module]).output().expect("modprobe starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cannot load the module {module}: {message}");
    }
}
