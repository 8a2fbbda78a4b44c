//! Control groups with memory limits for the guests of a network (cgroups(7), versions 1 and 2).
//!
//! The control group of a network is a sibling or a child of the control program's own group. It contains one group for each guest.
//! A group outlives the process that created it. Therefore the state file contains the path of the network's group, and the control
//! program that takes the network down removes the group.

use crate::limits::{CGROUP_REMOVAL_WAIT, CGROUP_REMOVALS_MAX};
use crate::random;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use siga_model::error::{IoContext, Result};
use siga_model::name::Name;
use std::fs;
use std::path::{Path, PathBuf};

/// The prefix of the names of siga's control groups.
const PREFIX: &str = "siga-";

/// The version of control groups that the host uses. The version decides which files a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Version {
    One,
    Two,
}

/// The control group of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroup {
    directory: PathBuf,
    version: Version,
}

impl Cgroup {
    /// Chooses the path for the control group of a network. Returns `None` if this process is in no control group that has a memory
    /// controller.
    pub(crate) fn place(network: &Name) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let (own, version) = own_group(&groups, &mounts)?;
        // In version 2, a group that contains processes cannot contain groups with limits. This process's own group contains this
        // process, so create the new group in its parent.
        let parent = if version == Version::Two && own.parent()?.join("cgroup.procs").exists() {
            own.parent()?.to_owned()
        } else {
            own
        };
        let random = random::draw().ok()?;
        let directory = parent.join(format!("{PREFIX}{network}-{:016x}", u64::from_ne_bytes(random)));
        Some(Self { directory, version })
    }

    /// Creates the control group, unless an earlier control program has already created it.
    ///
    /// # Errors
    /// Returns an error if the directory belongs to another user or has no memory controller.
    pub(crate) fn make(&self) -> Result<()> {
        let made = || -> std::io::Result<()> {
            make_directory(&self.directory)?;
            match self.version {
                Version::One => fs::metadata(self.directory.join("memory.limit_in_bytes")).map(drop),
                Version::Two => fs::write(self.directory.join("cgroup.subtree_control"), "+memory"),
            }
        };
        made().inspect_err(|_| _ = fs::remove_dir(&self.directory)).context("cannot create a control group for a guest")
    }

    /// Creates a group for one guest, sets its memory limit, and moves the guest's process into it.
    ///
    /// # Errors
    /// Returns an error if the group cannot be created or limited, or if the process may not be moved.
    pub(crate) fn limit(&self, guest: &Name, bytes: u64, process: Pid) -> Result<()> {
        let directory = self.of(guest);
        let limited = || -> std::io::Result<()> {
            make_directory(&directory)?;
            let set = |file: &str, value: String| fs::write(directory.join(file), value);
            match self.version {
                Version::One => {
                    set("memory.limit_in_bytes", bytes.to_string())?;
                    // This file exists only if the kernel limits swap space, so ignore an error.
                    let _ = set("memory.memsw.limit_in_bytes", bytes.to_string());
                }
                Version::Two => {
                    set("memory.max", bytes.to_string())?;
                    let _ = set("memory.swap.max", "0".to_owned());
                }
            }
            set("cgroup.procs", process.as_raw_nonzero().to_string())
        };
        limited().context("cannot put a guest into a control group")
    }

    /// Returns how many processes of a guest the kernel has killed because they reached the memory limit.
    pub(crate) fn kills(&self, guest: &Name) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let counters = fs::read_to_string(self.of(guest).join(file)).unwrap_or_default();
        counters.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }

    /// Kills the processes that an earlier control program started for a guest.
    pub(crate) fn end(&self, guest: &Name) {
        let numbers = || -> Vec<Pid> {
            let text = fs::read_to_string(self.of(guest).join("cgroup.procs")).unwrap_or_default();
            text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
        };
        for pid in numbers() {
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            // The listed process may have ended, and another process may have got its id, before pidfd_open(2). That process is not
            // in the group, so read the group's list again.
            if self.is_ours() && numbers().contains(&pid) {
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
        }
    }

    /// Returns true if the path, which was read from the state file, is that of a group of siga. siga never changes or removes any
    /// other group.
    fn is_ours(&self) -> bool {
        let name = self.directory.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    }

    fn of(&self, guest: &Name) -> PathBuf {
        // With this prefix, a guest's name cannot equal the name of one of the group's files.
        self.directory.join(format!("guest-{guest}"))
    }

    /// Removes the control group of a network that is down, including the guests' groups in it.
    pub(crate) fn remove(&self) {
        if !self.is_ours() {
            return;
        }
        let guests = fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|entry| entry.path());
        guests.filter(|path| path.is_dir()).for_each(|guest| remove_directory(&guest));
        remove_directory(&self.directory);
    }
}

fn make_directory(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn remove_directory(path: &Path) {
    for _ in 0..CGROUP_REMOVALS_MAX {
        match rustix::fs::rmdir(path) {
            Err(Errno::BUSY) => std::thread::sleep(CGROUP_REMOVAL_WAIT),
            _ => return,
        }
    }
}

/// Returns the directory of the control group with a memory controller that this process belongs to. `groups` is the text of
/// `/proc/self/cgroup`, and `mounts` is the text of `/proc/self/mountinfo`.
fn own_group(groups: &str, mounts: &str) -> Option<(PathBuf, Version)> {
    let of = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(controllers).then_some(path)
        })
    };
    let mounted = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            // Each line contains the fields of a mount, a hyphen, and then the type, source and options of the file system.
            let (mount, file_system) = line.split_once(" - ")?;
            let mut file_system = file_system.split(' ');
            let is_it = file_system.next()? == kind && file_system.nth(1)?.split(',').any(|word| word == option);
            let mut fields = mount.split(' ').skip(3);
            is_it.then_some((fields.next()?, fields.next()?))
        })
    };
    let directory = |path: &str, (root, point): (&str, &str)| {
        let below = Path::new(path).strip_prefix(root).ok()?;
        let is_plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        is_plain.then(|| Path::new(point).join(below))
    };
    let one = of(&|controllers| controllers.split(',').any(|word| word == "memory"));
    if let Some(path) = one {
        return Some((directory(path, mounted("cgroup", "memory")?)?, Version::One));
    }
    let path = of(&str::is_empty)?;
    Some((directory(path, mounted("cgroup2", "rw")?)?, Version::Two))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu
";

    #[test]
    fn the_control_group_of_a_process_is_found_in_both_versions() {
        let one = (PathBuf::from("/sys/fs/cgroup/memory/a/b"), Version::One);
        assert_eq!(own_group("9:cpu:/x\n8:memory:/a/b\n0::/c\n", MOUNTS), Some(one));
        let two = (PathBuf::from("/sys/fs/cgroup/unified/c"), Version::Two);
        assert_eq!(own_group("0::/c\n", MOUNTS), Some(two));
        // A container sees a part of the tree only.
        let part = "31 30 0:27 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let below = (PathBuf::from("/sys/fs/cgroup/app"), Version::Two);
        assert_eq!(own_group("0::/docker/1/app\n", part), Some(below));
        for (groups, mounts) in [("0::/docker/2\n", part), ("0::/docker/1/../2\n", part), ("0::/c\n", ""), ("", MOUNTS)]
        {
            assert_eq!(own_group(groups, mounts), None, "{groups}");
        }
    }
}
