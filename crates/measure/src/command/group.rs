//! A control group with limits for a command or a run (cgroups(7), versions 1 and 2). The process that starts the command is in the group,
//! too, so that no process of the command begins outside of it.

use rustix::fs::{major, minor, stat};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Length of the period of a CPU limit, in microseconds: the kernel's default.
const PERIOD_US: f64 = 100_000.0;
/// A group of version 1 that has reached its limit may use so much less: CPUs keep pages in advance.
const UNUSED_BYTES_MAX: u64 = 1 << 20;
/// Number of attempts to remove a group whose processes have ended.
const REMOVALS_MAX: u32 = 100;
/// Time between two attempts.
const REMOVAL_WAIT: Duration = Duration::from_millis(5);

/// Limits of a command's processes together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: Option<u64>,
    /// Number of CPUs whose time the processes get.
    pub(crate) cpus: Option<f64>,
    /// Bytes per second from the disk of the command's directory.
    pub(crate) read_bytes: Option<u64>,
    /// Bytes per second to this disk.
    pub(crate) write_bytes: Option<u64>,
}

impl Limits {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A directory of a control group that this process has entered.
#[derive(Debug)]
struct Entered {
    version: Version,
    directory: PathBuf,
    /// The directory of the group that has this process. In version 2, it is below `directory`, because a group with processes cannot
    /// have groups with limits below it.
    inner: PathBuf,
    /// The directory of the group in which this process was before.
    before: PathBuf,
}

/// The control group of a command: one directory in version 2, one for each controller in version 1.
#[derive(Debug)]
pub(crate) struct Group {
    entered: Vec<Entered>,
    memory_bytes: Option<u64>,
}

impl Group {
    /// Makes a group with these limits and moves this process into it.
    pub(crate) fn enter(limits: &Limits, directory: &str) -> Result<Self> {
        let mut group = Self { entered: Vec::new(), memory_bytes: limits.memory_bytes };
        if let Some(bytes) = limits.memory_bytes {
            let at = group.controller("memory")?;
            let file = of_version(at.version, "memory.limit_in_bytes", "memory.max");
            set(&at.directory, file, &bytes.to_string())?;
        }
        if let Some(cpus) = limits.cpus {
            let at = group.controller("cpu")?;
            let quota = format!("{:.0}", cpus * PERIOD_US);
            match at.version {
                Version::One => set(&at.directory, "cpu.cfs_quota_us", &quota)?,
                Version::Two => set(&at.directory, "cpu.max", &format!("{quota} {PERIOD_US:.0}"))?,
            }
        }
        for (name, bytes) in [("read", limits.read_bytes), ("write", limits.write_bytes)] {
            let Some(bytes) = bytes else { continue };
            let disk = disk_of(directory)?;
            let at = group.controller("io")?;
            match at.version {
                Version::One => {
                    set(&at.directory, &format!("blkio.throttle.{name}_bps_device"), &format!("{disk} {bytes}"))?;
                }
                Version::Two => set(&at.directory, "io.max", &format!("{disk} {}bps={bytes}", &name[..1]))?,
            }
        }
        for at in &group.entered {
            set(&at.inner, "cgroup.procs", &std::process::id().to_string())?;
        }
        Ok(group)
    }

    /// Returns how many processes the kernel has ended because of the memory limit of this group, and not of a group around it or within it.
    pub(crate) fn ended_for_memory(&self) -> u64 {
        let count = |at: &Entered| {
            let number = |file: &str, name: &str| {
                let text = fs::read_to_string(at.directory.join(file)).ok()?;
                text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            };
            match at.version {
                // The kernel also counts processes that it ended because of the limit of a group around this one.
                Version::One => {
                    let reached = self.memory_bytes_max()?.saturating_add(UNUSED_BYTES_MAX) >= self.memory_bytes?;
                    number("memory.oom_control", "oom_kill ").filter(|_| reached)
                }
                Version::Two => {
                    number("memory.events.local", "oom ").filter(|count| *count > 0)?;
                    number("memory.events", "oom_kill ")
                }
            }
        };
        self.entered.iter().filter_map(count).sum()
    }

    /// Returns the largest memory of the group so far, in bytes.
    pub(crate) fn memory_bytes_max(&self) -> Option<u64> {
        let most = |at: &Entered| {
            let file = of_version(at.version, "memory.max_usage_in_bytes", "memory.peak");
            fs::read_to_string(at.directory.join(file)).ok()?.trim().parse::<u64>().ok()
        };
        self.entered.iter().filter_map(most).max()
    }

    /// Returns the memory limit.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.memory_bytes
    }

    /// Returns the directory of a controller, and makes it if it does not exist.
    fn controller(&mut self, name: &str) -> Result<&Entered> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let Some((version, before)) = own_group(&groups, &mounts, name) else {
            return Err(unavailable(name, "this host has no control group with this controller"));
        };
        let at = self.entered.iter().position(|entered| entered.before == before);
        let at = match at {
            Some(at) => at,
            None => {
                self.entered.push(make(version, before).map_err(|error| unavailable(name, &error.to_string()))?);
                self.entered.len() - 1
            }
        };
        let entered = &self.entered[at];
        if version == Version::Two {
            let known = fs::read_to_string(entered.directory.join("cgroup.controllers")).unwrap_or_default();
            if !known.split_whitespace().any(|known| known == name) {
                if let Some(parent) = entered.directory.parent() {
                    // If this fails, the next line of this function says what is missing.
                    let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{name}"));
                }
                let known = fs::read_to_string(entered.directory.join("cgroup.controllers")).unwrap_or_default();
                if !known.split_whitespace().any(|known| known == name) {
                    return Err(unavailable(name, "the parent control group does not enable this controller"));
                }
            }
        }
        Ok(entered)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for Entered { directory, inner, before, .. } in &self.entered {
            // If one of these fails, an empty group stays. It holds nothing and limits nothing.
            let _ = fs::write(before.join("cgroup.procs"), std::process::id().to_string());
            for _ in 0..REMOVALS_MAX {
                match remove(inner, directory) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(REMOVAL_WAIT),
                    Ok(()) | Err(_) => break,
                }
            }
        }
    }
}

/// The beginning of the name of a group. The id of the process that made it follows.
const PREFIX: &str = "siga-command-";
/// The name of the group of version 2 that has this process.
const INNER: &str = "inner";

fn make(version: Version, before: PathBuf) -> io::Result<Entered> {
    // In version 2, a group that contains processes passes no controllers on, so the new group is beside that of this process.
    let parent = match version {
        Version::Two if before.join("cgroup.events").exists() => before.parent().map(Path::to_owned),
        Version::One | Version::Two => None,
    };
    let parent = parent.unwrap_or_else(|| before.clone());
    remove_left(&parent);
    let directory = parent.join(format!("{PREFIX}{}", std::process::id()));
    fs::create_dir(&directory)?;
    let inner = of_version(version, directory.clone(), directory.join(INNER));
    if inner != directory {
        fs::create_dir(&inner)?;
    }
    Ok(Entered { version, directory, inner, before })
}

/// Removes the groups of processes that were killed. The kernel refuses to remove a group that has processes.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        let Some(maker) = maker else { continue };
        if maker == std::process::id() || !Path::new(&format!("/proc/{maker}")).exists() {
            remove_left(&entry.path());
            let _ = remove(&entry.path().join(INNER), &entry.path());
        }
    }
}

fn remove(inner: &Path, directory: &Path) -> io::Result<()> {
    match fs::remove_dir(inner) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ if inner == directory => Ok(()),
        Ok(()) | Err(_) => fs::remove_dir(directory),
    }
}

fn of_version<T>(version: Version, one: T, two: T) -> T {
    match version {
        Version::One => one,
        Version::Two => two,
    }
}

fn set(directory: &Path, file: &str, value: &str) -> Result<()> {
    fs::write(directory.join(file), value).map_err(|error| {
        Error::environment(format!("cannot write {value} to {}: {error}", directory.join(file).display()))
            .hint("to limit memory, CPUs or disks, siga needs root, or a control group that your user owns")
    })
}

fn unavailable(controller: &str, why: &str) -> Error {
    Error::environment(format!("the controller {controller} of control groups is not available: {why}"))
        .hint("to limit memory, CPUs or disks, siga needs root, or a control group that your user owns")
}

/// Returns the group of this process that has a controller, as a directory. `groups` and `mounts` are the texts of /proc/self/cgroup and
/// /proc/self/mountinfo. The controller `io` of version 2 is called `blkio` in version 1.
fn own_group(groups: &str, mounts: &str, controller: &str) -> Option<(Version, PathBuf)> {
    let old = if controller == "io" { "blkio" } else { controller };
    let lines = || {
        groups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        })
    };
    let one = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == old));
    if let Some((_, path)) = one
        && let Some(directory) =
            mounted(mounts, path, |kind, options| kind == "cgroup" && options.split(',').any(|option| option == old))
    {
        return Some((Version::One, directory));
    }
    let (_, path) = lines().find(|(controllers, _)| controllers.is_empty())?;
    mounted(mounts, path, |kind, _| kind == "cgroup2").map(|directory| (Version::Two, directory))
}

/// Returns the directory of the group `path` in the first mounted hierarchy for which `is_it` returns true.
fn mounted(mounts: &str, path: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, _source, options) = (right.next()?, right.next()?, right.next()?);
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        is_it(kind, options).then(|| Path::new(point).join(below))
    })
}

/// Returns the number of the disk that has a directory, as `MAJOR:MINOR`. Limits apply to whole disks.
fn disk_of(directory: &str) -> Result<String> {
    let cannot = |why: String| {
        Error::environment(format!("cannot find the disk of {directory}: {why}"))
            .hint("to limit reading and writing, siga needs a directory on a block device")
    };
    let device = stat(directory).map_err(|error| cannot(error.to_string()))?.st_dev;
    let number = format!("{}:{}", major(device), minor(device));
    let entry = fs::canonicalize(format!("/sys/dev/block/{number}"))
        .map_err(|_| cannot("the directory is not on a disk".into()))?;
    if !entry.join("partition").exists() {
        return Ok(number);
    }
    let whole = entry.parent().map(|parent| parent.join("dev"));
    let whole = whole.and_then(|file| fs::read_to_string(file).ok());
    whole
        .map(|text| text.trim().to_owned())
        .ok_or_else(|| cannot("the partition of the directory belongs to no disk".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "30 29 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        31 29 0:27 /box /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n\
        32 29 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_group_of_each_controller_is_found_in_both_versions() {
        let groups = "7:blkio:/box/a\n4:memory:/api/x:y\n0::/user\n";
        let of = |controller| own_group(groups, MOUNTS, controller);
        assert_eq!(of("memory"), Some((Version::One, "/sys/fs/cgroup/memory/api/x:y".into())));
        assert_eq!(of("io"), Some((Version::One, "/sys/fs/cgroup/blkio/a".into())));
        assert_eq!(of("cpu"), Some((Version::Two, "/sys/fs/cgroup/unified/user".into())));
        assert_eq!(own_group("0::/", "", "cpu"), None);
        assert_eq!(own_group("4:memory:/outside", "30 29 0:26 /box /m rw - cgroup cgroup rw,memory", "memory"), None);
    }

    #[test]
    fn groups_that_killed_processes_have_left_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        // No process has the first id, and the second one is that of the first process of each system.
        for name in [
            "siga-command-99999999/inner",
            "siga-command-99999999/siga-command-99999998",
            "siga-command-1/inner",
            "other",
        ] {
            fs::create_dir_all(parent.path().join(name)).unwrap();
        }
        fs::create_dir_all(parent.path().join("siga-command-88888888")).unwrap();
        fs::write(parent.path().join("siga-command-88888888/used"), "").unwrap();
        remove_left(parent.path());
        let mut left: Vec<_> = fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        // A group that cannot be removed stays.
        assert_eq!(left, ["other", "siga-command-1", "siga-command-88888888"]);
    }
}
