//! Finds, downloads and unpacks the Debian packages of the machine.
//!
//! apt resolves the list of packages as if nothing were installed, so that the result does not depend on this host. Nothing is
//! installed on this host. Programs end when this process ends.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::program;

/// What commands inside find. The packages that these depend on are added.
const PACKAGES: [&str; 32] = [
    "base-passwd",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "diffutils",
    "e2fsprogs",
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
    "lvm2",
    "mawk",
    "mount",
    "nbd-client",
    "nbd-server",
    "netbase",
    "nftables",
    "openssl",
    "procps",
    "python3-minimal",
    "sed",
    "tar",
    "tcpdump",
    "util-linux",
    "xz-utils",
];

/// The files and directories whose changes may change what apt finds.
const APT_STATE: [&str; 5] =
    ["/var/lib/apt/lists", "/etc/apt", "/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/preferences.d"];

/// Returns an error if a program that this file uses is missing.
pub(crate) fn check_programs() -> Result<(), String> {
    let needed = [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg"), ("tar", "tar")];
    needed.iter().try_for_each(|(name, package)| program(name, package))
}

/// Returns a text that changes when [`release`] or [`list`] may return something else: what is wanted, and the times of apt's files.
pub(crate) fn question(version: Option<&str>) -> String {
    let times = APT_STATE.map(|path| match fs::metadata(path) {
        Ok(metadata) => format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()),
        Err(_) => "missing".to_owned(),
    });
    format!("{} {} {}", package(version), PACKAGES.join(" "), times.join(" "))
}

/// Returns the kernel's release for the option `--kernel`. Packages such as `linux-image-amd64` only depend on a kernel.
pub(crate) fn release(version: Option<&str>) -> Result<String, String> {
    let package = package(version);
    let mut query = bound("apt-cache");
    let depends = output(query.args(["depends", &package]), "").map_err(|_| unknown(&package, &known_kernels()))?;
    let needed = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let release = needed.or_else(|| package.strip_prefix("linux-image-"));
    release.map(str::to_owned).ok_or_else(|| format!("{package} is not a kernel"))
}

/// Returns one line for each package file: name, size and checksum.
pub(crate) fn list(release: &str) -> Result<String, String> {
    let mut list = output(apt_get("--print-uris").args(install()), "cannot list the packages")?;
    let kernel = format!("linux-image-{release}");
    list += &output(apt_get("--print-uris").args(["download", &kernel]), "cannot find the kernel")?;
    Ok(without_uris(&list))
}

/// Downloads the files of all packages into the directory `archives`.
pub(crate) fn download(archives: &Path, release: &str) -> Result<(), String> {
    fs::create_dir_all(archives.join("partial")).map_err(|error| format!("{}: {error}", archives.display()))?;
    let mut packages = apt_get("--download-only");
    packages.arg("-o").arg(format!("Dir::Cache::archives={}", archives.display())).args(install());
    output(&mut packages, "cannot download the packages")?;
    let mut kernel = apt_get("download");
    kernel.arg(format!("linux-image-{release}")).current_dir(archives);
    output(&mut kernel, "cannot download the kernel").map(drop)
}

/// Unpacks the files of the package `archive` into `target`.
pub(crate) fn unpack(archive: &Path, target: &Path) -> Result<(), String> {
    let what = format!("cannot unpack {}", archive.display());
    let context = |error| format!("{what}: {error}");
    let mut reader = bound("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(archive)
        .stdout(Stdio::piped())
        // Its message would be a second one beside the message of tar.
        .stderr(Stdio::null())
        .spawn()
        .map_err(context)?;
    let mut tar = bound("tar");
    tar.args(["--extract", "--keep-directory-symlink", "--directory"]).arg(target);
    if let Some(stdout) = reader.stdout.take() {
        tar.stdin(stdout);
    }
    let unpacked = output(&mut tar, &what);
    drop(tar);
    let status = reader.wait().map_err(context)?;
    unpacked?;
    if status.success() { Ok(()) } else { Err(format!("{what}: dpkg-deb ended with {status}")) }
}

/// Returns the stdout of `command`. The error has `what`, and the first line of stderr that is not a warning of apt.
pub(crate) fn output(command: &mut Command, what: &str) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let cause = stderr.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("W: "));
        return Err(match cause {
            Some(cause) => format!("{what}: {cause}"),
            None => format!("{what}: {}", output.status),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a command that the kernel kills when this process ends.
fn bound(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]).stdin(Stdio::null()).env("LC_ALL", "C");
    command
}

/// Returns an apt-get command that ignores what is installed on this host.
fn apt_get(argument: &str) -> Command {
    let mut apt = bound("apt-get");
    apt.args(["-qq", "-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=true"]);
    // Without these options, apt would replace its index of this host by one for an empty host.
    apt.args(["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "APT::Sandbox::User=root"]);
    apt.arg(argument);
    apt
}

fn install() -> impl Iterator<Item = &'static str> {
    ["--yes", "--no-install-recommends", "install"].into_iter().chain(PACKAGES)
}

fn package(version: Option<&str>) -> String {
    match version.map(|version| version.trim_end_matches("-amd64")) {
        Some(version) => format!("linux-image-{version}-amd64"),
        None => "linux-image-amd64".to_owned(),
    }
}

/// Removes the address from each line of `apt-get --print-uris`, because any mirror has the same packages.
fn without_uris(list: &str) -> String {
    let mut lines: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix('\'')?.split_once("' ")).map(|it| it.1).collect();
    lines.sort_unstable();
    lines.iter().map(|line| format!("{}\n", line.trim())).collect()
}

fn unknown(package: &str, known: &[String]) -> String {
    if known.is_empty() {
        return format!("apt knows no kernel; run `apt-get update` as root, with Debian in {}", APT_STATE[2]);
    }
    format!("apt has no package {package}; the kernels that it has are {}", known.join(", "))
}

fn known_kernels() -> Vec<String> {
    let names = output(bound("apt-cache").args(["pkgnames", "linux-image-"]), "").unwrap_or_default();
    let mut releases: Vec<String> = names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-image-")?.strip_suffix("-amd64"))
        .filter(|release| release.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|release| !["cloud", "rt"].iter().any(|flavour| release.ends_with(flavour)))
        .map(str::to_owned)
        .collect();
    releases.sort_unstable();
    releases
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
        assert_eq!(list, without_uris(&LIST.replace("http://a", "https://b")));
        assert_ne!(list, without_uris(&LIST.replace("5.2", "5.3")));
    }

    #[test]
    fn a_kernel_is_named_with_or_without_its_architecture() {
        for version in ["6.1.0-56", "6.1.0-56-amd64"] {
            assert_eq!(package(Some(version)), "linux-image-6.1.0-56-amd64");
        }
        assert_eq!(package(None), "linux-image-amd64");
        assert_ne!(question(None), question(Some("6.1.0-56")));
    }

    #[test]
    fn an_unknown_kernel_and_missing_lists_of_apt_are_told_apart() {
        let error = unknown("linux-image-9-amd64", &["6.1.0-55".to_owned(), "6.1.0-56".to_owned()]);
        assert_eq!(error, "apt has no package linux-image-9-amd64; the kernels that it has are 6.1.0-55, 6.1.0-56");
        assert!(unknown("linux-image-amd64", &[]).contains("`apt-get update`"));
    }

    #[test]
    fn an_error_of_a_program_has_its_cause_in_one_line() {
        let script = "echo 'W: old'; echo; echo 'E: no space'; echo 'E: failed'; exit 100";
        let error = output(Command::new("sh").args(["-c", &format!("{{ {script}; }} >&2")]), "cannot do it");
        assert_eq!(error, Err("cannot do it: E: no space".to_owned()));
        let error = output(Command::new("sh").args(["-c", "exit 7"]), "cannot do it");
        assert_eq!(error, Err("cannot do it: exit status: 7".to_owned()));
    }
}
