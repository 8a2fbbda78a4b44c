//! Made-up trials and runs for the tests of this crate and of crates that depend on it (feature `testing`).

use crate::environment::Environment;
use crate::histogram;
use crate::record::{CpuRecord, LoadCounts, ProcessCpu, ProfileRecord, TrialRecord};
use crate::store::Run;
use siga_plan::matrix::Cell;
use siga_plan::plan::Plan;

/// Returns a trial with 1,000 transactions in one second on two CPUs.
pub fn trial(path: &str, round: u32, busy_ms: u64, profile: Option<ProfileRecord>) -> TrialRecord {
    let counts = LoadCounts { transactions: 1_000, sent: 200_000, received: 1_000_000, ..LoadCounts::default() };
    TrialRecord {
        cell: Cell {
            path: path.into(),
            workload: "rr-200-1000".parse().expect("a preset"),
            mtu: Some(1500),
            clients: 1,
            level: "plain".into(),
        },
        round,
        session: 0,
        at: String::new(),
        io: "epoll, block".into(),
        elapsed_ns: 1_000_000_000,
        client: counts,
        server: LoadCounts { sent: counts.received, received: counts.sent, ..counts },
        latency: histogram::encode(&histogram::empty()).expect("an empty histogram"),
        corrected: None,
        slices: vec![100.0; 10],
        pair_units: (1_000.0, 1_000.0),
        fairness: None,
        jitter_ns: None,
        beside: None,
        neighbours_rate: None,
        cpu: CpuRecord {
            hosts: 1,
            cpus: 2,
            wall_ns: 1_000_000_000,
            busy_ns: busy_ms * 1_000_000,
            resolution_ns: 0,
            user_tick_ns: 100_000_000,
            system_tick_ns: 500_000_000,
            softirq_tick_ns: 100_000_000,
            client: ProcessCpu { run_ns: 400_000_000, user_ns: 40_000_000 },
            server: ProcessCpu { run_ns: 300_000_000, user_ns: 30_000_000 },
            profile,
            chains: None,
            guests: None,
            between: Default::default(),
            planted_router: None,
        },
        command: None,
        observer: None,
        offered: Vec::new(),
        host: None,
        protocol: Default::default(),
        devices: Default::default(),
        drops: 0,
        flags: Vec::new(),
    }
}

/// Returns a run that has ended and contains only these trials.
pub fn run(name: &str, trials: Vec<TrialRecord>) -> Run {
    Run {
        directory: name.into(),
        plan: Plan::default(),
        levels: Vec::new(),
        environment: Environment::default(),
        trials,
        paths: Vec::new(),
        skipped: Vec::new(),
        monitor: Vec::new(),
        damage: Vec::new(),
        ended: true,
    }
}
