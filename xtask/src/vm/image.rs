//! The root file system and the kernel of the machine, made from Debian packages and cached.
//!
//! apt resolves the list of packages as if nothing were installed, so that the result does not depend on this host. The cache's
//! directory has the hash of the resolved list in its name: file names (with versions), sizes and checksums. A directory under
//! that name is always complete, because it is renamed last. Nothing is installed on this host.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::modules::Modules;
use super::program;
use crate::command;

/// What commands inside find. The packages that these depend on are added.
const PACKAGES: [&str; 24] = [
    "base-passwd",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "diffutils",
    "ethtool",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libc-bin",
    "mawk",
    "mount",
    "netbase",
    "nftables",
    "procps",
    "sed",
    "tar",
    "util-linux",
];

/// A version that is raised if the same packages have to give a different root file system.
const LAYOUT: &str = "1";

/// A complete root file system with a kernel.
#[derive(Debug)]
pub(crate) struct Image {
    directory: PathBuf,
    /// The kernel's release, such as `6.1.0-56-amd64`.
    release: String,
    pub(crate) modules: Modules,
}

impl Image {
    /// Returns the image with the kernel `version` (default: the one on which `linux-image-amd64` depends). Builds the image below
    /// `cache` if it is not there.
    pub(crate) fn get(root: &Path, cache: &Path, version: Option<&str>) -> Result<Self, String> {
        for needed in [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg"), ("tar", "tar")] {
            program(needed.0, needed.1)?;
        }
        let release = release(root, version)?;
        let list = package_list(root, &release)?;
        let directory = cache.join(key(&list));
        if !directory.exists() {
            let packages = list.lines().count();
            eprintln!(
                "vm: making the root file system from {packages} Debian packages, once for each list of packages"
            );
            build(cache, &directory, |building| fill(root, building, &release))?;
        }
        let modules = Modules::read(&directory.join("root/usr/lib/modules").join(&release))?;
        Ok(Self { directory, release, modules })
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    pub(crate) fn kernel(&self) -> PathBuf {
        self.root().join(format!("boot/vmlinuz-{}", self.release))
    }

    pub(crate) fn module_directory(&self) -> PathBuf {
        self.root().join("usr/lib/modules").join(&self.release)
    }

    pub(crate) fn release(&self) -> &str {
        &self.release
    }
}

/// Returns the kernel's release for the option `--kernel`. Packages such as `linux-image-amd64` only depend on a kernel.
fn release(root: &Path, version: Option<&str>) -> Result<String, String> {
    let package = package(version);
    let depends = command::output(command::command(root, &format!("apt-cache depends {package}")))
        .map_err(|_| format!("apt has no package {package}; it has kernels {}", known_kernels(root)))?;
    let needed = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let release = needed.or_else(|| package.strip_prefix("linux-image-"));
    release.map(str::to_owned).ok_or_else(|| format!("{package} is not a kernel"))
}

fn package(version: Option<&str>) -> String {
    match version.map(|version| version.trim_end_matches("-amd64")) {
        Some(version) => format!("linux-image-{version}-amd64"),
        None => "linux-image-amd64".to_owned(),
    }
}

/// Returns an apt-get command that ignores what is installed on this host.
fn apt_get(root: &Path, line: &str) -> Command {
    let mut apt = command::command(root, "apt-get -qq -o Dir::State::status=/dev/null -o Debug::NoLocking=true");
    // Without these options, apt would replace its index of this host by one for an empty host.
    apt.args(["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "APT::Sandbox::User=root"]);
    apt.args(line.split_whitespace());
    apt
}

fn install_line() -> String {
    format!("--yes --no-install-recommends install {}", PACKAGES.join(" "))
}

/// Returns one line for each package file: name, size and checksum.
fn package_list(root: &Path, release: &str) -> Result<String, String> {
    let packages = apt_get(root, &format!("--print-uris {}", install_line()));
    let mut list = output(packages, "cannot list the packages")?;
    let kernel = apt_get(root, &format!("--print-uris download linux-image-{release}"));
    list += &output(kernel, "cannot find the kernel")?;
    Ok(without_uris(&list))
}

/// Returns the output of an apt command. The error has `what` in place of the long command line.
fn output(apt: Command, what: &str) -> Result<String, String> {
    let shorter = |error: String| {
        error.split_once(" ended with ").map_or(error.clone(), |(_, end)| format!("apt-get ended with {end}"))
    };
    command::output(apt).map_err(|error| format!("{what}: {}", shorter(error)))
}

/// Removes the address from each line of `apt-get --print-uris`, because any mirror has the same packages.
fn without_uris(list: &str) -> String {
    let mut lines: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix('\'')?.split_once("' ")).map(|it| it.1).collect();
    lines.sort_unstable();
    lines.iter().map(|line| format!("{}\n", line.trim())).collect()
}

fn known_kernels(root: &Path) -> String {
    let names = command::output(command::command(root, "apt-cache pkgnames linux-image-")).unwrap_or_default();
    let mut releases: Vec<&str> = names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-image-")?.strip_suffix("-amd64"))
        .filter(|release| release.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|release| !["cloud", "rt"].iter().any(|flavour| release.ends_with(flavour)))
        .collect();
    releases.sort_unstable();
    releases.join(", ")
}

/// Returns the name of the cache's directory for a list of packages: 64 bits of FNV-1a, in hexadecimal.
fn key(list: &str) -> String {
    let bytes = LAYOUT.bytes().chain(list.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// Lets `fill` make the image in a temporary directory, and renames this directory to `directory`.
fn build(cache: &Path, directory: &Path, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let context = |error| format!("{}: {error}", cache.display());
    fs::create_dir_all(cache).map_err(context)?;
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
    }
    outcome
}

/// Downloads and unpacks all packages into `building`.
fn fill(root: &Path, building: &Path, release: &str) -> Result<(), String> {
    let context = |error| format!("{}: {error}", building.display());
    let (archives, target) = (building.join("archives"), building.join("root"));
    fs::create_dir_all(archives.join("partial")).map_err(context)?;
    let mut packages = apt_get(root, &format!("--download-only {}", install_line()));
    packages.arg("-o").arg(format!("Dir::Cache::archives={}", archives.display()));
    output(packages, "cannot download the packages")?;
    let mut kernel = apt_get(root, &format!("download linux-image-{release}"));
    kernel.current_dir(&archives);
    output(kernel, "cannot download the kernel")?;

    // Some packages still have files in /bin and /lib, which are links to directories below /usr since Debian 12.
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(target.join("usr").join(name)).map_err(context)?;
        symlink(format!("usr/{name}"), target.join(name)).map_err(context)?;
    }
    for entry in fs::read_dir(&archives).map_err(context)? {
        let path = entry.map_err(context)?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            unpack(&path, &target)?;
        }
    }
    fs::remove_dir_all(&archives).map_err(context)?;
    complete(&target).map_err(context)?;
    index_modules(root, &target, release)
}

/// Unpacks the files of the package `archive` into `target`.
fn unpack(archive: &Path, target: &Path) -> Result<(), String> {
    let context = |error| format!("{}: {error}", archive.display());
    let mut reader = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(archive)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(context)?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--keep-directory-symlink", "--directory"]).arg(target);
    if let Some(stdout) = reader.stdout.take() {
        tar.stdin(stdout);
    }
    let unpacked = command::output(tar);
    let status = reader.wait().map_err(context)?;
    unpacked?;
    if status.success() { Ok(()) } else { Err(format!("{}: dpkg-deb ended with {status}", archive.display())) }
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

/// Writes the kernel's index of modules with the depmod of the packages, because this host may have none.
fn index_modules(root: &Path, target: &Path, release: &str) -> Result<(), String> {
    let mut depmod = Command::new(target.join("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"));
    depmod.current_dir(root).stdin(Stdio::null());
    depmod.arg("--library-path").arg(target.join("usr/lib/x86_64-linux-gnu"));
    depmod.args(["--argv0", "depmod"]).arg(target.join("usr/bin/kmod"));
    depmod.arg("--basedir").arg(target).arg(release);
    command::output(depmod).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "'http://a/pool/bash_5.2_amd64.deb' bash_5.2_amd64.deb 1490652 MD5Sum:f9\n\
        'http://a/pool/acl_2.3_amd64.deb' acl_2.3_amd64.deb 31488 \n";

    #[test]
    fn the_cache_depends_on_packages_and_versions_and_not_on_the_mirror() {
        let list = without_uris(LIST);
        assert_eq!(list, "acl_2.3_amd64.deb 31488\nbash_5.2_amd64.deb 1490652 MD5Sum:f9\n");
        assert_eq!(key(&list), key(&without_uris(&LIST.replace("http://a", "https://b"))));
        assert_ne!(key(&list), key(&without_uris(&LIST.replace("5.2", "5.3"))));
        assert_eq!(key(&list).len(), 16);
    }

    #[test]
    fn a_kernel_is_named_with_or_without_its_architecture() {
        for version in ["6.1.0-56", "6.1.0-56-amd64"] {
            assert_eq!(package(Some(version)), "linux-image-6.1.0-56-amd64");
        }
        assert_eq!(package(None), "linux-image-amd64");
    }

    #[test]
    fn an_unfinished_build_is_thrown_away() {
        let cache = tempfile::tempdir().unwrap();
        let (building, image) = (cache.path().join("building"), cache.path().join("0123"));
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
