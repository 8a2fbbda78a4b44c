//! Disturbances of guests during traffic.

use super::Outcome;
use super::network::{NAME, Network};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// How long a guest stays revoked or stopped.
const AWAY: Duration = Duration::from_millis(400);

/// A disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Disturbance {
    /// kill -9 of the router; the control program starts it again.
    KillRouter,
    /// kill -9 of the bystander, a guest without traffic.
    KillBystander,
    /// kill -9 of the other server's process; the soak program starts a new one.
    KillOther,
    /// kill -9 of the control program; the soak program starts a new one.
    KillControl,
    /// `siga net stop` and `start` of the router.
    StopRouter,
    /// `siga net stop` and `start` of the bystander.
    StopBystander,
    /// `siga net revoke` and `grant` of the server.
    RevokeServer,
    /// `siga net revoke` and `grant` of the other server.
    RevokeOther,
}

impl Disturbance {
    /// All disturbances. The router's kill is listed twice, so that it is drawn twice as often as the others.
    pub(super) const ALL: [Self; 9] = [
        Self::KillRouter,
        Self::KillRouter,
        Self::KillBystander,
        Self::KillOther,
        Self::KillControl,
        Self::StopRouter,
        Self::StopBystander,
        Self::RevokeServer,
        Self::RevokeOther,
    ];

    /// The disturbance in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KillRouter => "kill -9 of the router",
            Self::KillBystander => "kill -9 of the bystander",
            Self::KillOther => "kill -9 of the other server",
            Self::KillControl => "kill -9 of the control program",
            Self::StopRouter => "stop and start of the router",
            Self::StopBystander => "stop and start of the bystander",
            Self::RevokeServer => "revoke and grant of the server",
            Self::RevokeOther => "revoke and grant of the other server",
        }
    }

    /// Whether new connections to the server may fail because of this disturbance.
    pub(super) fn cuts_the_server_off(self) -> bool {
        match self {
            Self::KillRouter | Self::StopRouter | Self::RevokeServer => true,
            Self::KillBystander | Self::KillOther | Self::KillControl | Self::StopBystander | Self::RevokeOther => {
                false
            }
        }
    }

    /// Carries out the disturbance, and waits until every guest that has to run is running. The caller replaces the other
    /// server's process.
    pub(super) fn commit(self, network: &Network, other: u32) -> Outcome<()> {
        match self {
            Self::KillRouter => kill_guest(network, "router"),
            Self::KillBystander => kill_guest(network, "bystander"),
            Self::KillOther => kill(other),
            Self::KillControl => kill_control(network),
            Self::StopRouter => stop_and_start(network, "router"),
            Self::StopBystander => stop_and_start(network, "bystander"),
            Self::RevokeServer => revoke_and_grant(network, "server"),
            Self::RevokeOther => revoke_and_grant(network, "other"),
        }
    }
}

fn kill(pid: u32) -> Outcome<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("a process that has no number")?;
    kill_process(pid, Signal::KILL).map_err(|error| format!("cannot kill {pid:?}: {error}"))
}

/// Kills the control program, and starts another one after a while.
pub(super) fn kill_control(network: &Network) -> Outcome<()> {
    let old = network.control()?;
    kill(old)?;
    let end = Instant::now() + Duration::from_secs(5);
    while super::count::began(old).is_some() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(AWAY);
    network.control_program()
}

pub(super) fn kill_guest(network: &Network, name: &str) -> Outcome<()> {
    let old = network.guest(name)?.ok_or(format!("{name} does not run"))?;
    kill(old)?;
    network.guest_other_than(name, old).map(|_| ())
}

fn stop_and_start(network: &Network, name: &str) -> Outcome<()> {
    network.siga(&["stop", NAME, name])?;
    std::thread::sleep(AWAY);
    network.siga(&["start", NAME, name])?;
    network.guest_other_than(name, 0).map(|_| ())
}

fn revoke_and_grant(network: &Network, name: &str) -> Outcome<()> {
    network.siga(&["revoke", NAME, "lan", name])?;
    std::thread::sleep(AWAY);
    network.siga(&["grant", NAME, "lan", name]).map(|_| ())
}

/// A random number generator with a seed (SplitMix64).
#[derive(Debug)]
pub(super) struct Draw(pub(super) u64);

impl Draw {
    /// Returns a number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    /// Draws a disturbance.
    pub(super) fn disturbance(&mut self) -> Disturbance {
        let at = self.below(Disturbance::ALL.len() as u64);
        Disturbance::ALL[usize::try_from(at).unwrap_or(0)]
    }
}
