//! Entries of the process table: what `/proc/PID/stat` says of a process.

/// What `/proc/PID/stat` says of a process. CPU times are in ticks of 1/USER_HZ seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The name of the program, cut off after 15 bytes.
    pub(crate) name: String,
    pub(crate) parent: u32,
    /// The flags of the kernel (PF_*).
    pub(crate) flags: u64,
    /// CPU time in user mode.
    pub(crate) user: u64,
    /// CPU time in the kernel.
    pub(crate) system: u64,
    /// CPU time of the ended children for which the process has waited, and of their descendants.
    pub(crate) children: u64,
    /// Number of threads.
    pub(crate) threads: u64,
    /// Time at which the process began.
    pub(crate) start: u64,
}

impl Stat {
    /// Reads the contents of `/proc/PID/stat`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        // The name is in parentheses and may contain any character, so the fields begin after the last parenthesis.
        let (name, rest) = line.split_once('(')?.1.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number)?.parse::<u64>().ok();
        Some(Self {
            name: name.to_owned(),
            parent: u32::try_from(field(1)?).ok()?,
            flags: field(6)?,
            user: field(11)?,
            system: field(12)?,
            children: field(13)?.saturating_add(field(14)?),
            threads: field(17)?,
            start: field(19)?,
        })
    }

    /// Reads the entry of a process of this host. Returns `None` if the process has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let bytes = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }
}

/// Returns whether a process or one of its ancestors is a root. `parent_of` returns the parent of each of at most `processes`
/// processes.
pub(crate) fn descends(
    pid: u32,
    processes: usize,
    parent_of: impl Fn(u32) -> Option<u32>,
    is_root: impl Fn(u32) -> bool,
) -> bool {
    let mut at = pid;
    // A process table is no snapshot, so that its parents can form a circle.
    for _ in 0..processes {
        if is_root(at) {
            return true;
        }
        match parent_of(at) {
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_a_process_is_read_whatever_its_name_is() {
        let line = "7 (a) (b) S 3 7 7 0 -1 4194304 1 2 3 4 50 60 70 80 20 0 1 0 9 0";
        let wanted = Stat {
            name: "a) (b".into(),
            parent: 3,
            flags: 4_194_304,
            user: 50,
            system: 60,
            children: 150,
            threads: 1,
            start: 9,
        };
        assert_eq!(Stat::parse(line), Some(wanted));
        assert_eq!(Stat::parse("7 (a) S x"), None);
    }
}
