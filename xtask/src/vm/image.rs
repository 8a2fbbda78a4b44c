//! The root file system and the kernel of the machine, made from Debian packages and cached.
//!
//! The cache's directory `images` has a directory for each image, with the hash of the list of packages as its name: file names
//! (with versions), sizes and checksums. A directory there is always complete, because it is renamed last. When a new image is
//! complete, old ones are removed.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::directories;
use super::kernel;
use super::modules::Modules;
use super::packages;

/// A version that is raised if the same packages have to give a different root file system.
const LAYOUT: &str = "2";

/// The number of images that are kept. An image needs 700 MB.
const IMAGES_KEPT: usize = 3;

/// A complete root file system with a kernel.
#[derive(Debug)]
pub(crate) struct Image {
    directory: PathBuf,
    /// The kernel's release, such as `6.1.0-56-amd64`.
    release: String,
    pub(crate) modules: Modules,
    /// Keeps other processes from removing the image.
    _in_use: File,
}

impl Image {
    /// Returns the image with the kernel `version` (default: the one on which `linux-image-amd64` depends). Builds the image below
    /// `cache` if it is not there.
    pub(crate) fn get(cache: &Path, version: Option<&str>) -> Result<Self, String> {
        let question = format!("{LAYOUT} {}", packages::question(version));
        if let Some((directory, release)) = answer(cache, &question)
            && let Some(image) = Self::open(&directory, &release)?
        {
            return Ok(image);
        }
        packages::check_programs()?;
        let release = packages::release(version)?;
        let list = packages::list(&release)?;
        let directory = cache.join("images").join(key(&list));
        let image = loop {
            // Another process may remove an image before this one opens it.
            if let Some(image) = Self::open(&directory, &release)? {
                break image;
            }
            build(cache, &directory, |building| {
                let number = list.lines().count();
                eprintln!(
                    "vm: building the root file system from {number} Debian packages (once for each list of packages)"
                );
                fill(building, &release)
            })?;
        };
        // Without this file, the next start asks apt again.
        let _ = fs::write(directory.join(ANSWER), format!("{question}\n{release}"));
        Ok(image)
    }

    /// Returns the image in `directory`, or `None` if it does not exist.
    fn open(directory: &Path, release: &str) -> Result<Option<Self>, String> {
        let in_use = directories::open(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let Some(in_use) = in_use else { return Ok(None) };
        let modules = Modules::read(&directory.join("root/usr/lib/modules").join(release))?;
        Ok(Some(Self { directory: directory.to_owned(), release: release.to_owned(), modules, _in_use: in_use }))
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    pub(crate) fn kernel(&self) -> PathBuf {
        self.root().join(KERNEL)
    }

    pub(crate) fn module_directory(&self) -> PathBuf {
        self.root().join("usr/lib/modules").join(&self.release)
    }

    pub(crate) fn release(&self) -> &str {
        &self.release
    }
}

/// The file with the kernel that QEMU starts.
const KERNEL: &str = "boot/kernel";

/// The file of an image with the question of [`packages::question`] that led to it, and the kernel's release.
const ANSWER: &str = "answer";

/// Returns the directory and the kernel's release of the image to which `question` led before. This saves asking apt.
fn answer(cache: &Path, question: &str) -> Option<(PathBuf, String)> {
    fs::read_dir(cache.join("images")).ok()?.find_map(|entry| {
        let directory = entry.ok()?.path();
        let text = fs::read_to_string(directory.join(ANSWER)).ok()?;
        let (known, release) = text.split_once('\n')?;
        (known == question).then(|| (directory, release.to_owned()))
    })
}

/// Returns the name of the cache's directory for a list of packages: 64 bits of FNV-1a, in hexadecimal.
fn key(list: &str) -> String {
    let bytes = LAYOUT.bytes().chain(list.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// Lets `fill` make the image in a temporary directory, and renames this directory to `directory`. Then removes old images.
fn build(cache: &Path, directory: &Path, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let context = |error| format!("{}: {error}", cache.display());
    let images = cache.join("images");
    fs::create_dir_all(&images).map_err(context)?;
    // The kernel releases the lock even if this process is killed. So the holder may delete what an earlier process left.
    let lock = File::create(cache.join("lock")).map_err(context)?;
    lock.lock().map_err(context)?;
    if directory.exists() {
        return Ok(());
    }
    let building = cache.join("building");
    if building.exists() {
        fs::remove_dir_all(&building).map_err(context)?;
    }
    let outcome = fill(&building).and_then(|()| fs::rename(&building, directory).map_err(context));
    if outcome.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(&building);
        return outcome;
    }
    // The new image is the most recently used one, so it stays.
    let _in_use = directories::open(directory).map_err(context)?;
    // An image that is only half removed must not have an image's name.
    let remove = |old: &Path| fs::rename(old, &building).and_then(|()| fs::remove_dir_all(&building));
    directories::remove_old(&images, IMAGES_KEPT, remove).map_err(context)
}

/// Downloads and unpacks all packages into `building`.
fn fill(building: &Path, release: &str) -> Result<(), String> {
    let context = |error| format!("{}: {error}", building.display());
    let (archives, target) = (building.join("archives"), building.join("root"));
    packages::download(&archives, release)?;
    // Some packages still have files in /bin and /lib, which are links to directories below /usr since Debian 12.
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(target.join("usr").join(name)).map_err(context)?;
        symlink(format!("usr/{name}"), target.join(name)).map_err(context)?;
    }
    for entry in fs::read_dir(&archives).map_err(context)? {
        let path = entry.map_err(context)?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            packages::unpack(&path, &target)?;
        }
    }
    fs::remove_dir_all(&archives).map_err(context)?;
    complete(&target).map_err(context)?;
    let mut depmod = command(&target, "kmod", "depmod");
    depmod.arg("--basedir").arg(&target).arg(release);
    packages::output(&mut depmod, "cannot index the modules")?;
    let vmlinuz = target.join(format!("boot/vmlinuz-{release}"));
    kernel::decompress(&vmlinuz, &target.join(KERNEL), command(&target, "xz", "xz"))
}

/// Does what the packages' installation scripts would do, as far as the machine needs it.
fn complete(target: &Path) -> std::io::Result<()> {
    for (file, master) in [("passwd", "passwd.master"), ("group", "group.master")] {
        fs::copy(target.join("usr/share/base-passwd").join(master), target.join("etc").join(file))?;
    }
    fs::write(target.join("etc/hosts"), "127.0.0.1 localhost vm\n::1 localhost\n")?;
    // As Debian's udev does: these modules make no devices that nobody asked for.
    let options = "options bonding max_bonds=0\noptions dummy numdummies=0\noptions ifb numifbs=0\n";
    fs::create_dir_all(target.join("etc/modprobe.d"))?;
    fs::write(target.join("etc/modprobe.d/vm.conf"), options)?;
    for (link, program) in [("sh", "dash"), ("awk", "mawk")] {
        let link = target.join("usr/bin").join(link);
        if link.symlink_metadata().is_err() {
            symlink(program, link)?;
        }
    }
    for directory in ["dev", "proc", "run", "sys", "tmp", "root"] {
        fs::create_dir_all(target.join(directory))?;
    }
    Ok(())
}

/// Returns a command for the `program` of the packages under this name, because this host may have none.
fn command(target: &Path, program: &str, name: &str) -> Command {
    let libraries = target.join("usr/lib/x86_64-linux-gnu");
    let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(libraries).stdin(Stdio::null());
    command.arg("--argv0").arg(name).arg(target.join("usr/bin").join(program));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_list_of_packages_makes_another_image() {
        assert_eq!(key("bash_5.2_amd64.deb\n").len(), 16);
        assert_ne!(key("bash_5.2_amd64.deb\n"), key("bash_5.3_amd64.deb\n"));
    }

    #[test]
    fn the_same_question_finds_its_image_without_apt() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(answer(cache.path(), "q1"), None);
        for (name, text) in [("a", "q1\n6.1"), ("b", "q2\n6.12"), ("c", "half")] {
            let directory = cache.path().join("images").join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(ANSWER), text).unwrap();
        }
        assert_eq!(answer(cache.path(), "q2"), Some((cache.path().join("images/b"), "6.12".to_owned())));
        assert_eq!(answer(cache.path(), "half"), None);
    }

    #[test]
    fn a_new_image_replaces_the_oldest_one_that_no_machine_uses() {
        let cache = tempfile::tempdir().unwrap();
        let image = |number: usize| cache.path().join("images").join(number.to_string());
        let make = |number: usize| {
            build(cache.path(), &image(number), |directory| {
                fs::create_dir(directory).map_err(|error| error.to_string())
            })
        };
        make(0).unwrap();
        let in_use = directories::open(&image(0)).unwrap();
        for number in 1..=IMAGES_KEPT + 1 {
            make(number).unwrap();
        }
        assert!(image(0).exists(), "an image was removed while a machine used it");
        assert!(!image(1).exists() && image(2).exists());
        drop(in_use);
    }

    #[test]
    fn an_unfinished_build_is_thrown_away() {
        let cache = tempfile::tempdir().unwrap();
        let (building, image) = (cache.path().join("building"), cache.path().join("images/0123"));
        let fill = |directory: &Path| {
            assert!(!directory.exists(), "what an interrupted build left is still there");
            fs::create_dir(directory).map_err(|error| error.to_string())?;
            fs::write(directory.join("half"), "").map_err(|error| error.to_string())
        };
        let error =
            build(cache.path(), &image, |directory| fill(directory).and(Err("disk full".to_owned()))).unwrap_err();
        assert_eq!(error, "disk full");
        assert!(!building.exists() && !image.exists());

        fs::create_dir(&building).unwrap();
        build(cache.path(), &image, fill).unwrap();
        assert!(!building.exists() && image.join("half").exists());
        build(cache.path(), &image, |_| Err("a complete image was built again".to_owned())).unwrap();
    }
}
