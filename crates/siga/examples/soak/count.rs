//! The resources of a process: descriptors, memory files, mappings, memory. Only root can read those of guests.

use super::Outcome;
use std::collections::BTreeMap;
use std::fs;

/// The resources of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// The number of open descriptors of each kind: `socket`, `pipe`, `anon_inode`, or the name of a file.
    pub(super) descriptors: BTreeMap<String, usize>,
    /// The number of mappings of memory files.
    pub(super) mapped_files: usize,
    /// The number of all mappings.
    pub(super) mappings: usize,
    /// The number of threads.
    pub(super) threads: usize,
    /// Resident memory in kilobytes.
    pub(super) resident_kb: u64,
}

/// The number of other mappings may grow by this much, because the allocator adds and removes mappings.
const MAPPINGS_MORE_MAX: usize = 16;
/// Resident memory may grow by this much, for buffers of the connections that are open at the time.
const RESIDENT_MORE_KB_MAX: u64 = 128 << 10;

impl Held {
    /// Reads the resources of a process.
    pub(super) fn of(pid: u32) -> Outcome<Self> {
        let place = format!("/proc/{pid}");
        let failed = |what: &str| format!("cannot read {place}/{what}");
        let mut descriptors: BTreeMap<String, usize> = BTreeMap::new();
        for entry in fs::read_dir(format!("{place}/fd")).map_err(|error| format!("{}: {error}", failed("fd")))? {
            let Ok(entry) = entry else { continue };
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            let kind =
                target.strip_suffix(']').and_then(|text| text.split_once(":[")).map_or(&*target, |(kind, _)| kind);
            *descriptors.entry(kind.to_owned()).or_default() += 1;
        }
        let maps =
            fs::read_to_string(format!("{place}/maps")).map_err(|error| format!("{}: {error}", failed("maps")))?;
        let status = fs::read_to_string(format!("{place}/status")).map_err(|_| failed("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        Ok(Self {
            descriptors,
            mapped_files: maps.lines().filter(|line| line.contains("/memfd:siga-")).count(),
            mappings: maps.lines().count(),
            threads: usize::try_from(field("Threads:").unwrap_or(0)).unwrap_or(0),
            resident_kb: field("VmRSS:").ok_or_else(|| failed("status"))?,
        })
    }

    /// Describes every resource that has grown since `first`; `None` if none has.
    pub(super) fn grown_since(&self, first: &Self) -> Option<String> {
        let counts = [
            ("mapped files", first.mapped_files, self.mapped_files, 0),
            ("mappings", first.mappings, self.mappings, MAPPINGS_MORE_MAX),
            ("threads", first.threads, self.threads, 0),
        ];
        let mut words: Vec<String> = counts
            .iter()
            .filter(|(_, first, own, more)| *own > first + more)
            .map(|(what, first, own, _)| format!("{first} {what} have become {own}"))
            .collect();
        for (kind, own) in &self.descriptors {
            let first = first.descriptors.get(kind).copied().unwrap_or(0);
            if *own > first {
                words.push(format!("{first} descriptors of {kind} have become {own}"));
            }
        }
        if self.resident_kb > first.resident_kb + RESIDENT_MORE_KB_MAX {
            words.push(format!("{} KB of memory have become {}", first.resident_kb, self.resident_kb));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { descriptors, mapped_files, mappings, threads, resident_kb } = self;
        let descriptors: usize = descriptors.values().sum();
        write!(
            f,
            "{descriptors} descriptors, {mappings} mappings ({mapped_files} of memory files), {threads} threads, \
             {resident_kb} KB"
        )
    }
}

/// Returns the ids of the processes whose command line contains `holding`.
pub(super) fn processes(holding: &str) -> Vec<u32> {
    let holds = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(holding)
    };
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(holds).collect()
}

/// Returns the start time of a process, in ticks since the host's start; `None` if the process is gone or a zombie. Process ids
/// are reused, but an id with its start time is unique.
pub(super) fn began(pid: u32) -> Option<u64> {
    /// Index of the start time among the words after the process's name in `stat`, where the state has index 0.
    const BEGAN: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    words.first().filter(|state| !matches!(**state, "Z" | "X")).and_then(|_| words.get(BEGAN)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_more_of_it_found() {
        let before = Held::of(std::process::id()).unwrap();
        let file = fs::File::open("/proc/cpuinfo").unwrap();
        let after = Held::of(std::process::id()).unwrap();
        assert!(after.mappings > 0 && after.threads > 0 && after.resident_kb > 0, "{after}");
        let more = after.grown_since(&before).unwrap();
        assert!(more.contains("0 descriptors of /proc/cpuinfo have become 1"), "{more}");
        drop(file);
        assert_eq!(before.grown_since(&before), None);
        let mapped = Held { mapped_files: before.mapped_files + 1, mappings: before.mappings + 16, ..before.clone() };
        assert_eq!(mapped.grown_since(&before).unwrap(), "0 mapped files have become 1");
        let own = began(std::process::id()).unwrap();
        assert_eq!((began(std::process::id()), began(u32::MAX)), (Some(own), None));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let childs = began(child.id()).unwrap();
        assert!(childs >= own, "{childs} and {own}");
        child.kill().unwrap();
        while began(child.id()).is_some() {}
        child.wait().unwrap();
    }
}
