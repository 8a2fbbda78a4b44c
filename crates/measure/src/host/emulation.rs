//! Finds out whether a program emulates the CPUs of this machine, such as QEMU without KVM (TCG).
//!
//! Such a machine runs 10 to 50 times slower than its host, and by different factors for different code. A guest whose code the
//! CPU executes directly, such as a guest of KVM, is not emulated, even if QEMU provides its devices.

use super::{Files, field};

/// What the machine reveals about its CPUs.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Readings<'a> {
    /// The signature that the hypervisor puts into the registers of CPUID (leaf 0x40000000). `None` if there is no hypervisor, if
    /// it hides, or if the architecture has no such instruction.
    pub(super) signature: Option<[u8; 12]>,
    /// Text of /proc/cpuinfo.
    pub(super) cpuinfo: &'a str,
    /// Maker of the machine (DMI).
    pub(super) maker: Option<&'a str>,
    /// Text of /proc/sysinfo, which exists on z only.
    pub(super) sysinfo: Option<&'a str>,
}

/// Returns the hypervisor's signature, as in [`Readings::signature`].
#[cfg(target_arch = "x86_64")]
pub(super) fn signature() -> Option<[u8; 12]> {
    use core::arch::x86_64::__cpuid;
    /// The bit in the register ECX of leaf 1 that is set in a virtual machine.
    const HYPERVISOR: u32 = 1 << 31;
    if __cpuid(1).ecx & HYPERVISOR == 0 {
        return None;
    }
    let leaf = __cpuid(0x4000_0000);
    let mut signature = [0; 12];
    for (bytes, register) in signature.chunks_exact_mut(4).zip([leaf.ebx, leaf.ecx, leaf.edx]) {
        bytes.copy_from_slice(&register.to_le_bytes());
    }
    (signature != [0; 12]).then_some(signature)
}

/// Returns the hypervisor's signature, as in [`Readings::signature`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn signature() -> Option<[u8; 12]> {
    None
}

/// Returns whether the machine is emulated; `None` if the readings do not show it.
pub(super) fn is_emulated(readings: &Readings<'_>) -> Option<bool> {
    let model = field(readings.cpuinfo, "model name").unwrap_or_default();
    // QEMU gives this name only to a CPU that it emulates. A guest of KVM in an emulated machine can have it, too.
    if model.starts_with("QEMU TCG") {
        return Some(true);
    }
    if let Some(signature) = readings.signature {
        return Some(&signature == b"TCGTCGTCGTCG");
    }
    // Without KVM, QEMU names itself as the maker of a z machine.
    if let Some(system) = readings.sysinfo {
        return field(system, "Manufacturer").map(|maker| maker == "QEMU");
    }
    // Arm reserves the implementer 0x00 for software. QEMU's CPU `max` has it if the CPU is emulated.
    if field(readings.cpuinfo, "CPU implementer").as_deref() == Some("0x00") {
        return Some(true);
    }
    // A guest of KVM can have this model, too, but then KVM's signature is readable, unless the user hides it.
    if model.starts_with("QEMU Virtual CPU") {
        return Some(true);
    }
    // Without a signature, nothing distinguishes the other machines of QEMU with KVM from those without.
    readings.maker.filter(|maker| *maker != "QEMU").map(|_| false)
}

/// Returns whether the machine is emulated, from its files and its hypervisor's signature; `None` if they do not show it.
pub(super) fn read(files: &Files<'_>, cpuinfo: &str, signature: Option<[u8; 12]>) -> Option<bool> {
    let maker = files.line("/sys/class/dmi/id/sys_vendor");
    let sysinfo = files.text("/proc/sysinfo");
    is_emulated(&Readings { signature, cpuinfo, maker: maker.as_deref(), sysinfo: sysinfo.as_deref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL: &str = "model name\t: Intel(R) Xeon(R) CPU\nflags\t\t: fpu hypervisor\n";
    const TCG: &str = "model name\t: QEMU TCG CPU version 2.5+\nflags\t\t: fpu hypervisor\n";
    const QEMU64: &str = "model name\t: QEMU Virtual CPU version 2.5+\nflags\t\t: fpu hypervisor\n";
    const CORTEX: &str = "CPU implementer\t: 0x41\nCPU part\t: 0xd07\n";
    const MAX: &str = "CPU implementer\t: 0x00\nCPU architecture: 8\nCPU part\t: 0x051\n";

    #[test]
    fn only_a_machine_whose_cpus_a_program_emulates_is_emulated() {
        let kvm = *b"KVMKVMKVM\0\0\0";
        let of = |signature: Option<&[u8; 12]>, cpuinfo, maker| Readings {
            signature: signature.copied(),
            cpuinfo,
            maker,
            sysinfo: None,
        };
        let z = |sysinfo| Readings { sysinfo: Some(sysinfo), ..Readings::default() };
        let cases = [
            ("bare metal", of(None, INTEL, Some("Dell Inc.")), Some(false)),
            ("guest of KVM in QEMU", of(Some(&kvm), INTEL, Some("QEMU")), Some(false)),
            ("guest of KVM with QEMU's model", of(Some(&kvm), QEMU64, Some("QEMU")), Some(false)),
            ("Firecracker", of(Some(&kvm), INTEL, None), Some(false)),
            ("Hyper-V", of(Some(b"Microsoft Hv"), INTEL, Some("Microsoft Corporation")), Some(false)),
            ("VMware", of(Some(b"VMwareVMware"), INTEL, Some("VMware, Inc.")), Some(false)),
            ("Xen", of(Some(b"XenVMMXenVMM"), INTEL, Some("Xen")), Some(false)),
            ("TCG", of(Some(b"TCGTCGTCGTCG"), QEMU64, Some("QEMU")), Some(true)),
            ("TCG with the model of a real CPU", of(Some(b"TCGTCGTCGTCG"), INTEL, Some("QEMU")), Some(true)),
            ("TCG without signature", of(None, TCG, Some("QEMU")), Some(true)),
            ("TCG without signature, another model", of(None, QEMU64, None), Some(true)),
            ("KVM in an emulated machine", of(Some(&kvm), TCG, Some("QEMU")), Some(true)),
            ("QEMU with a hidden hypervisor", of(None, INTEL, Some("QEMU")), None),
            ("Arm server", of(None, CORTEX, Some("Ampere(R)")), Some(false)),
            ("Arm under TCG", of(None, MAX, Some("QEMU")), Some(true)),
            ("Arm with QEMU, KVM or not", of(None, CORTEX, Some("QEMU")), None),
            ("Arm board", of(None, CORTEX, None), None),
            ("z/VM", z("Manufacturer:         IBM\nVM00 Control Program: z/VM    7.3.0\n"), Some(false)),
            ("z under KVM", z("Manufacturer:         IBM\nVM00 Control Program: KVM/Linux\n"), Some(false)),
            ("z under TCG", z("Manufacturer:         QEMU\nVM00 Control Program: KVM/Linux\n"), Some(true)),
            ("nothing readable", Readings::default(), None),
        ];
        for (machine, readings, emulated) in cases {
            assert_eq!(is_emulated(&readings), emulated, "{machine}");
        }
    }

    #[test]
    fn a_hypervisor_that_the_kernel_sees_has_a_signature() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = field(&info, "flags").unwrap_or_default();
        assert_eq!(signature().is_some(), flags.split(' ').any(|flag| flag == "hypervisor"));
    }
}
