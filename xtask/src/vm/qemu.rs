//! The command line of QEMU.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The program, and the Debian package that has it.
pub(crate) const PROGRAM: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");

/// The last messages of the kernel go to the console. A panic ends QEMU at once (`-no-reboot`). Without `no_timer_check`, an emulated
/// kernel on a busy host finds that its timer does not work, and panics.
const KERNEL_OPTIONS: &str = "console=ttyS0 loglevel=5 panic=-1 rdinit=/init no_timer_check";

/// In a writable directory, QEMU makes only regular files and directories of its own user, without setuid. A link or device that
/// the machine makes becomes a regular file; the machine's view of its owner and type is in an extended attribute.
const MAPPED: &str = "security_model=mapped-xattr,fmode=0644,dmode=0755";

/// A QEMU that the machine has taken over cannot start programs or raise its privileges.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// How QEMU executes the instructions of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The CPU executes them.
    Kvm,
    /// QEMU translates them.
    Tcg,
}

/// A machine to start. Numbers of descriptors are those that QEMU inherits.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) accelerator: Accelerator,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) kernel: PathBuf,
    /// A memory file with the initramfs.
    pub(crate) initramfs: i32,
    /// A pipe for the messages of the kernel.
    pub(crate) console: i32,
    /// virtio-serial ports by name, each with a pipe.
    pub(crate) ports: Vec<(&'static str, i32)>,
    pub(crate) shares: Vec<Share>,
}

/// A directory of this host that the machine mounts by 9p.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) tag: &'static str,
    pub(crate) directory: PathBuf,
    pub(crate) is_writable: bool,
}

impl Machine {
    /// Returns QEMU's arguments.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |option: &str, value: &OsStr| arguments.extend([option.into(), value.to_owned()]);
        let (accelerator, cpu) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            // Five levels of page tables would only slow the emulation down.
            Accelerator::Tcg => ("tcg,thread=multi", "max,la57=off"),
        };
        add("-machine", "q35".as_ref());
        add("-accel", accelerator.as_ref());
        add("-cpu", cpu.as_ref());
        add("-smp", self.cpus.to_string().as_ref());
        add("-m", format!("{}M", self.memory_mib).as_ref());
        add("-sandbox", SANDBOX.as_ref());
        add("-display", "none".as_ref());
        add("-kernel", self.kernel.as_os_str());
        add("-initrd", format!("/dev/fd/{}", self.initramfs).as_ref());
        add("-append", KERNEL_OPTIONS.as_ref());
        add("-chardev", format!("file,id=console,path=/dev/fd/{}", self.console).as_ref());
        add("-serial", "chardev:console".as_ref());
        add("-device", "virtio-serial-pci".as_ref());
        for (name, descriptor) in &self.ports {
            add("-chardev", format!("file,id={name},path=/dev/fd/{descriptor}").as_ref());
            add("-device", format!("virtserialport,chardev={name},name={name}").as_ref());
        }
        for Share { tag, directory, is_writable } in &self.shares {
            let mut share = OsString::from(format!("local,id={tag},multidevs=remap,"));
            share.push(if *is_writable { MAPPED } else { "security_model=none,readonly=on" });
            share.push(",path=");
            share.push(escaped(directory));
            add("-fsdev", &share);
            add("-device", format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}").as_ref());
        }
        arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(OsString::from));
        arguments
    }
}

/// Doubles commas, which separate options otherwise.
fn escaped(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes().iter();
    let doubled = bytes.flat_map(|&byte| std::iter::repeat_n(byte, if byte == b',' { 2 } else { 1 }));
    OsString::from_vec(doubled.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(accelerator: Accelerator) -> String {
        let share = |tag, directory: &str, is_writable| Share { tag, directory: directory.into(), is_writable };
        let machine = Machine {
            accelerator,
            cpus: 3,
            memory_mib: 1_024,
            kernel: "/c/vmlinuz".into(),
            initramfs: 5,
            console: 6,
            ports: vec![("stdout", 7)],
            shares: vec![share("tree", "/a b,c", false), share("out", "/out", true)],
        };
        let arguments = machine.arguments();
        arguments.iter().map(|argument| format!("{}|", argument.display())).collect()
    }

    #[test]
    fn the_machine_has_the_requested_size_and_inherits_descriptors() {
        let line = line(Accelerator::Tcg);
        for part in ["-accel|tcg,thread=multi|", "-smp|3|", "-m|1024M|", "-kernel|/c/vmlinuz|", "-initrd|/dev/fd/5|"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(
            line.contains("-chardev|file,id=stdout,path=/dev/fd/7|-device|virtserialport,chardev=stdout,name=stdout|")
        );
        assert!(line.contains("-chardev|file,id=console,path=/dev/fd/6|-serial|chardev:console|"), "{line}");
        assert!(line.contains("-no-reboot|"), "{line}");
    }

    #[test]
    fn only_the_directory_for_results_is_writable() {
        let line = line(Accelerator::Kvm);
        assert!(line.contains("-accel|kvm|-cpu|host|"), "{line}");
        assert!(
            line.contains("|local,id=tree,multidevs=remap,security_model=none,readonly=on,path=/a b,,c|-device|"),
            "{line}"
        );
        assert!(!line.contains("id=out,multidevs=remap,security_model=none"), "{line}");
    }

    #[test]
    fn the_machine_makes_only_plain_files_outside() {
        let line = line(Accelerator::Tcg);
        assert!(line.contains("|local,id=out,multidevs=remap,security_model=mapped-xattr,"), "{line}");
        assert_eq!(line.matches("security_model=none").count(), line.matches("readonly=on").count());
        assert!(line.contains("|-sandbox|on,") && !line.contains("-netdev") && line.contains("-nodefaults|"), "{line}");
    }
}
