//! What a host does while a command runs: its disks (`/proc/diskstats`), pressure (PSI) and energy (RAPL).

use siga_results::record::HostActivity;
use std::fs;
use std::path::Path;

/// Size of a sector in `/proc/diskstats`, in bytes.
const SECTOR_BYTES: u64 = 512;

/// A reading of the counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    total: HostActivity,
    /// Energy counters of the processor packages, each with the value at which it begins again.
    energy_uj: Vec<(u64, u64)>,
}

impl Activity {
    /// Reads the counters of this host.
    pub(crate) fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    /// Reads the counters below a directory that has the layout of `/`.
    fn read_below(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let is_disk = |name: &str| {
            // Partitions are not entries of this directory, and a RAM disk or a loop device is no disk.
            root.join("sys/block").join(name.replace('/', "!")).exists()
                && !["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind))
        };
        let mut total = disks(&text("proc/diskstats"), is_disk);
        total.cpu_pressure_ns = pressure(&text("proc/pressure/cpu"));
        total.io_pressure_ns = pressure(&text("proc/pressure/io"));
        total.memory_pressure_ns = pressure(&text("proc/pressure/memory"));
        Self { total, energy_uj: packages(&root.join("sys/class/powercap")) }
    }

    /// Returns the activity since an earlier reading.
    pub(crate) fn since(&self, before: &Self) -> HostActivity {
        let (own, old) = (&self.total, &before.total);
        let both = |own: Option<u64>, old: Option<u64>| own.zip(old).map(|(own, old)| own.saturating_sub(old));
        let energy = self.energy_uj.iter().zip(&before.energy_uj).map(|((own, range), (old, _))| {
            // The counter begins again at its range.
            if own >= old { own - old } else { own.saturating_add(range.saturating_sub(*old)) }
        });
        HostActivity {
            disk_reads: own.disk_reads.saturating_sub(old.disk_reads),
            disk_writes: own.disk_writes.saturating_sub(old.disk_writes),
            disk_read_bytes: own.disk_read_bytes.saturating_sub(old.disk_read_bytes),
            disk_written_bytes: own.disk_written_bytes.saturating_sub(old.disk_written_bytes),
            disk_queue_ns: own.disk_queue_ns.saturating_sub(old.disk_queue_ns),
            cpu_pressure_ns: both(own.cpu_pressure_ns, old.cpu_pressure_ns),
            io_pressure_ns: both(own.io_pressure_ns, old.io_pressure_ns),
            memory_pressure_ns: both(own.memory_pressure_ns, old.memory_pressure_ns),
            energy_uj: (!self.energy_uj.is_empty() && self.energy_uj.len() == before.energy_uj.len())
                .then(|| energy.fold(0_u64, u64::saturating_add)),
        }
    }
}

/// Sums the lines of `/proc/diskstats` for which `is_disk` returns true.
fn disks(text: &str, is_disk: impl Fn(&str) -> bool) -> HostActivity {
    let mut total = HostActivity::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if !fields.get(2).is_some_and(|name| is_disk(name)) {
            continue;
        }
        let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let add = |sum: &mut u64, value: u64| *sum = sum.saturating_add(value);
        add(&mut total.disk_reads, field(3));
        add(&mut total.disk_read_bytes, field(5).saturating_mul(SECTOR_BYTES));
        add(&mut total.disk_writes, field(7));
        add(&mut total.disk_written_bytes, field(9).saturating_mul(SECTOR_BYTES));
        // Milliseconds, weighted by the number of operations at each time.
        add(&mut total.disk_queue_ns, field(13).saturating_mul(1_000_000));
    }
    total
}

/// Returns the time of the line `some` of a file of pressure.
pub(crate) fn pressure(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse::<u64>().ok().map(|us| us.saturating_mul(1_000))
}

/// Returns the counters of the processor packages: `intel-rapl:0`, but not its parts `intel-rapl:0:0`.
fn packages(directory: &Path) -> Vec<(u64, u64)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| {
        name.strip_prefix("intel-rapl:").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    names.sort();
    let number =
        |name: &str, file: &str| fs::read_to_string(directory.join(name).join(file)).ok()?.trim().parse::<u64>().ok();
    names.iter().filter_map(|name| Some((number(name, "energy_uj")?, number(name, "max_energy_range_uj")?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a file of the planted tree.
    fn plant(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn disks_pressure_and_energy_are_read_from_a_planted_tree() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        for name in ["sda", "loop0"] {
            fs::create_dir_all(root.join("sys/block").join(name)).unwrap();
        }
        let disks = |reads: u64| {
            format!(
                "   8 0 sda {reads} 1 200 4 5 6 70 8 0 10 110 0 0 0 0\n   8 1 sda1 9 9 9 9 9 9 9 9 9 9 9\n   7 0 loop0 9 9 9 9 9 9 9 9 9 9 9\n"
            )
        };
        plant(root, "proc/diskstats", &disks(10));
        plant(root, "proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=100\nfull avg10=0.00 total=7\n");
        plant(root, "sys/class/powercap/intel-rapl:0/energy_uj", "900\n");
        plant(root, "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000\n");
        plant(root, "sys/class/powercap/intel-rapl:0:0/energy_uj", "5\n");
        plant(root, "sys/class/powercap/intel-rapl:0:0/max_energy_range_uj", "1000\n");
        plant(root, "sys/class/powercap/intel-rapl:1/energy_uj", "10\n");
        plant(root, "sys/class/powercap/intel-rapl:1/max_energy_range_uj", "1000\n");
        let before = Activity::read_below(root);
        assert_eq!((before.total.disk_reads, before.total.disk_writes), (10, 5));
        assert_eq!(
            (before.total.disk_read_bytes, before.total.disk_written_bytes, before.total.disk_queue_ns),
            (102_400, 35_840, 110_000_000)
        );
        plant(root, "proc/diskstats", &disks(15));
        plant(root, "proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=350\n");
        // The first counter has begun again.
        plant(root, "sys/class/powercap/intel-rapl:0/energy_uj", "50\n");
        plant(root, "sys/class/powercap/intel-rapl:0:0/energy_uj", "45\n");
        plant(root, "sys/class/powercap/intel-rapl:1/energy_uj", "40\n");
        let seen = Activity::read_below(root).since(&before);
        assert_eq!(
            (seen.disk_reads, seen.cpu_pressure_ns, seen.io_pressure_ns, seen.energy_uj),
            (5, Some(250_000), None, Some(180))
        );
    }

    #[test]
    fn a_host_without_these_files_has_no_pressure_and_no_energy() {
        let tree = tempfile::tempdir().unwrap();
        let none = Activity::read_below(tree.path());
        let seen = none.since(&none);
        assert_eq!(seen, HostActivity::default());
        plant(tree.path(), "proc/pressure/cpu", "some total=x\n");
        plant(tree.path(), "proc/diskstats", "garbage\n\n1 2\n");
        assert_eq!(Activity::read_below(tree.path()).since(&none), HostActivity::default());
    }
}
