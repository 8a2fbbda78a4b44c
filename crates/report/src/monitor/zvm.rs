//! SYSTEM_SUMMARY_BY_TIME and USER_RESOURCE_UTILIZATION, the two reports of z/VM's performance data. Each figure has z/VM's precision,
//! and then all digits.

use siga_model::text;
use siga_results::monitor::{Role, Sample};
use std::collections::HashMap;
use std::fmt::Write;

/// Returns the title and the heads of SYSTEM_SUMMARY_BY_TIME.
pub fn summary_head(cpus: u32) -> String {
    format!(
        "SYSTEM_SUMMARY_BY_TIME (average of {cpus} processors, out of 100%)\n\
         {:<25} {:>6} {:>6} {:>6} {:>12} {:>12} {:>12}\n",
        "Time (end of interval)", "Total", "Emul", "CP", "Total %", "Emul %", "CP %"
    )
}

/// Returns the line of SYSTEM_SUMMARY_BY_TIME for a sample: the total, emulation (user mode) and CP (kernel) utilisation.
pub fn summary_line(sample: &Sample) -> String {
    let host = &sample.host;
    let (emulation, cp) = (host.percent(host.virtual_ms), host.percent(host.cp_ms));
    let total = emulation + cp;
    let at = &sample.at;
    format!("{at:<25} {total:>6.1} {emulation:>6.1} {cp:>6.1} {total:>12.6} {emulation:>12.6} {cp:>12.6}\n")
}

/// The CPU time of each user since the monitor began. A user is a guest, a switch, the control program, or a program.
#[derive(Debug, Default)]
pub struct Users {
    seconds: f64,
    places: HashMap<(String, Role), usize>,
    all: Vec<User>,
}

#[derive(Debug)]
struct User {
    name: String,
    total_ms: f64,
    virtual_ms: f64,
}

/// Maximum number of users. The time of all others is that of the last one.
const USERS_MAX: usize = 16_384;

impl Users {
    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        self.seconds += sample.seconds;
        for process in &sample.processes {
            let name = match &process.who.guest {
                Some(guest) => format!("{guest}: {}", process.who.name),
                None => process.who.name.clone(),
            };
            let next = self.all.len();
            let key = if next < USERS_MAX { (name, process.who.role) } else { ("others".to_owned(), Role::Process) };
            let at = *self.places.entry(key.clone()).or_insert(next);
            if at == next {
                self.all.push(User { name: key.0, total_ms: 0.0, virtual_ms: 0.0 });
            }
            if let (Some(user), Some(cpu)) = (self.all.get_mut(at), &process.cpu) {
                user.total_ms += cpu.virtual_ms + cpu.cp_ms;
                user.virtual_ms += cpu.virtual_ms;
            }
        }
    }

    /// Returns each user with its CPU seconds: name, total, virtual.
    pub(crate) fn rows(&self) -> Vec<[String; 3]> {
        let row = |user: &User| {
            [text::name(&user.name), format!("{:.3}", user.total_ms / 1e3), format!("{:.3}", user.virtual_ms / 1e3)]
        };
        self.all.iter().map(row).collect()
    }

    /// Returns USER_RESOURCE_UTILIZATION.
    pub fn text(&self) -> String {
        let mut text = format!(
            "\nUSER_RESOURCE_UTILIZATION (CPU seconds in {:.3} s)\n{:<28} {:>7} {:>7} {:>14} {:>14}\n",
            self.seconds, "User", "Total", "Virtual", "Total s", "Virtual s"
        );
        for User { name, total_ms, virtual_ms } in &self.all {
            let (total, virtual_) = (total_ms / 1e3, virtual_ms / 1e3);
            let name = text::name(name);
            let _ = writeln!(text, "{name:<28} {total:>7.0} {virtual_:>7.0} {total:>14.6} {virtual_:>14.6}");
        }
        text
    }
}
