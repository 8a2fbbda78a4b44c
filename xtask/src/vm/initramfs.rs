//! The initramfs of the machine: BusyBox, the modules that the root file system needs, the scripts, and the command.
//!
//! The archive has cpio's format `newc`, the only one that the kernel unpacks. It is made in memory for each start, because it
//! carries the command; so no temporary file is left if this program is killed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::image::Image;

/// The modules without which the root file system cannot be mounted or no message arrives.
const BOOT_MODULES: [&str; 5] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"];

const INIT: &str = include_str!("init.sh");
const START: &str = include_str!("start.sh");

const FILE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;

/// What the machine does after its start.
#[derive(Debug)]
pub(crate) enum Job {
    /// Only report that the kernel started.
    Probe,
    /// Run a command.
    Run {
        /// The program and its arguments.
        command: Vec<OsString>,
        /// The directory in which the command starts.
        directory: PathBuf,
        /// The source tree, which has the same path outside and inside.
        tree: PathBuf,
        /// The shared directory for results.
        out: PathBuf,
        /// Modules to load before the command.
        modules: Vec<String>,
    },
}

/// Returns the archive for `job`.
pub(crate) fn archive(image: &Image, job: &Job) -> Result<Vec<u8>, String> {
    let read = |path: PathBuf| fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
    let files = image.modules.files(&BOOT_MODULES)?;
    let names: Vec<String> = files.iter().map(|file| file.rsplit('/').next().unwrap_or(file).to_owned()).collect();

    let mut archive = Archive::default();
    for directory in ["bin", "siga", "siga/modules"] {
        archive.add(directory, DIRECTORY, &[]);
    }
    archive.add("bin/busybox", FILE, &read(image.root().join("usr/bin/busybox"))?);
    for (file, name) in files.iter().zip(&names) {
        archive.add(&format!("siga/modules/{name}"), FILE, &read(image.module_directory().join(file))?);
    }
    archive.add("init", FILE, INIT.as_bytes());
    archive.add("siga/start", FILE, START.as_bytes());
    archive.add("siga/config", FILE, &config(&names, job));
    if let Job::Run { command, directory, .. } = job {
        archive.add("siga/command", FILE, &script(command, directory));
    }
    Ok(archive.finish())
}

/// Returns the variables that the scripts read, as assignments of the shell.
fn config(boot_modules: &[String], job: &Job) -> Vec<u8> {
    let mut text = Vec::new();
    let mut set = |name: &str, value: &OsStr| {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend(quoted(value));
        text.push(b'\n');
    };
    set("boot_modules", boot_modules.join(" ").as_ref());
    match job {
        Job::Probe => set("probe", "1".as_ref()),
        Job::Run { tree, out, modules, .. } => {
            set("probe", "0".as_ref());
            set("tree", tree.as_os_str());
            set("out", out.as_os_str());
            set("modules", modules.join(" ").as_ref());
        }
    }
    text
}

/// Returns the shell script that becomes the command.
fn script(command: &[OsString], directory: &Path) -> Vec<u8> {
    let mut text = b"cd ".to_vec();
    text.extend(quoted(directory.as_os_str()));
    text.extend_from_slice(b" || exit\nexec --");
    for word in command {
        text.push(b' ');
        text.extend(quoted(word));
    }
    text.push(b'\n');
    text
}

/// Quotes `word` so that a shell takes every byte literally.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend_from_slice(br"'\''"),
            byte => text.push(byte),
        }
    }
    text.push(b'\'');
    text
}

/// A cpio archive in the format `newc`.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: usize,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let (number, size, name_size) = (self.entries, contents.len(), name.len() + 1);
        // Inode, mode, user, group, links, time, size, four device numbers, length of the name, checksum (unused).
        let header = format!(
            "070701{number:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}\
             {0:08x}{0:08x}{0:08x}{0:08x}{name_size:08x}{0:08x}",
            0, 1
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    /// Names and contents end at a multiple of four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_gets_the_arguments_exactly() {
        let words = ["printf", "<%s>", "two  words", "it's", "\"$HOME\" `id` \\ *", "", "-n", "a\nb\n", "\u{e9};&|"];
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("it's here");
        fs::create_dir(&there).unwrap();
        fs::write(there.join("script"), script(&command, &there)).unwrap();
        let output = Command::new("bash").arg(there.join("script")).output().unwrap();
        let expected: String = words[2..].iter().map(|word| format!("<{word}>")).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        fs::write(there.join("script"), script(&["pwd".into()], &there)).unwrap();
        let output = Command::new("bash").arg(there.join("script")).output().unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().ends_with("/it's here\n"));
    }

    #[test]
    fn an_archive_has_a_header_and_padding_for_each_entry() {
        let mut archive = Archive::default();
        archive.add("a", FILE, b"12345");
        let bytes = archive.finish();
        let header = "07070100000001000081ed0000000000000000000000010000000000000005\
            00000000000000000000000000000000000000020000000000";
        assert!(bytes.starts_with(&header.as_bytes()[..110]), "{}", String::from_utf8_lossy(&bytes));
        assert_eq!(&bytes[110..120], b"a\x0012345\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert_eq!(bytes.len(), 120 + 124);
    }
}
