//! Scenarios with TCP. Either two hosts at the ends of a row of stacks run programs, or an attacker floods a listener with SYNs
//! while regular clients use it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use siga_stack::time::Duration;

use super::draw::{self, Company, Kind};
use super::{Goal, Outcome, plan, play};
use crate::fault::{Medium, Wire};
use crate::flood::{Flood, Flooder};
use crate::host::{Host, HostOr};
use crate::net;
use crate::node::Node;
use crate::rng::Rng;
use crate::tcp::{Dial, Listen, Programs, Report, judge};
use crate::trace::{LinkId, Side};
use crate::world::{BuildError, World};

/// Maximum time from the end of the last fault to the end of the last connection. The following things take time:
/// - A retransmission timeout may double once more.
/// - A stack gives up the half-open connections of a flood after a minute.
/// - A port that is used again by connections without timestamps waits for the end of TIME-WAIT.
/// - Programs pause between reads and writes.
const PROGRESS_WITHIN: Duration = Duration::from_secs(300);
const LISTENING_PORT: u16 = 80;
const DIALING_PORT: u16 = 3_000;
/// Number of the attacker's random generator.
const FLOOD: u64 = (1 << 32) + 1;

/// A node of a scenario with TCP: a host with programs, a router, or an attacker.
type Citizen = HostOr<Flooder>;

/// Runs a scenario of TCP connections.
pub(super) fn calls(mut world: World<Citizen>, seed: u64, rng: &mut Rng) -> Result<Outcome, BuildError> {
    let kind = Kind::ALL[rng.index(Kind::ALL.len())];
    let company = draw::company(rng, kind);
    let flood = kind == Kind::Flood;
    let wires = draw_wires(rng, flood);
    let last = u8::try_from(wires.len()).map_err(|_| BuildError::TooManyLinks)?;
    let first = u8::from(flood);
    for place in 0..=last {
        if place < first {
            world.add(Citizen::Other(Box::new(Flooder::new(draw_flood(rng), Rng::new(seed, FLOOD)))))?;
            continue;
        }
        let mut host = Host::new(net::stack(seed ^ u64::from(place), place, &wires)?);
        host.tcp = Programs::new(Rc::from(company.scripts.as_slice()));
        if place == first || place == last {
            let networks = [first, last - 1];
            furnish(&mut host, rng, &company, usize::from(place == last), networks)?;
        }
        world.add(Citizen::Host(Box::new(host)))?;
    }
    let links = world.link_row(&wires)?;
    finish(world, rng, &links[usize::from(first)..], &company, kind)
}

fn finish(
    mut world: World<Citizen>,
    rng: &mut Rng,
    faulty: &[LinkId],
    company: &Company,
    kind: Kind,
) -> Result<Outcome, BuildError> {
    let well_at = plan(&mut world, rng, faulty)?;
    let done = |world: &World<Citizen>| {
        world.node_ids().all(|node| match world.node(node) {
            Citizen::Host(host) => host.is_hung_up(),
            Citizen::Other(flooder) => flooder.left_over().is_empty(),
        })
    };
    let hosts = |world: &World<Citizen>, each: &mut dyn FnMut(&Host)| {
        for node in world.node_ids() {
            match world.node(node) {
                Citizen::Host(host) => each(host),
                Citizen::Other(_) => {}
            }
        }
    };
    let judge = |world: &World<Citizen>| {
        let mut reports: Vec<Report> = Vec::new();
        hosts(world, &mut |host| reports.extend(&host.tcp.reports));
        judge(&company.scripts, &reports)
    };
    let waiting = |world: &World<Citizen>| {
        let mut flows = Vec::new();
        hosts(world, &mut |host| flows.extend(host.describe()));
        flows
    };
    let goal = Goal {
        name: kind.name(),
        what: "every connection is over",
        within: PROGRESS_WITHIN,
        done: &done,
        judge: &judge,
        waiting: &waiting,
    };
    Ok(play(world, well_at, &goal))
}

/// Draws the links of a scenario. The stacks form a row, and each link connects two neighbours. Without `flood`, one to four links
/// connect two to five stacks. With `flood`, there are two links: the first connects the attacker with a stack, and the second
/// connects this stack with another one.
fn draw_wires(rng: &mut Rng, flood: bool) -> Vec<Wire> {
    let count = if flood { 1 } else { rng.between(1, 4) };
    let first = flood.then_some(Wire { medium: Medium::Ip, ..Wire::ethernet() });
    let drawn = (0..count).map(|_| Wire {
        medium: [Medium::Ethernet, Medium::Ip][rng.index(2)],
        marks_agreed: rng.below(4) == 0,
        ..super::draw_wire(rng)
    });
    first.into_iter().chain(drawn).collect()
}

fn draw_flood(rng: &mut Rng) -> Flood {
    Flood {
        network: [10, 0, 0],
        target: SocketAddrV4::new(net::v4(1, 2), LISTENING_PORT),
        victim: net::v4(1, 1),
        pause: Duration::from_micros(rng.between(200, 5_000)),
        segments: u32::try_from(rng.between(100, 3_000)).unwrap_or(100),
    }
}

/// Adds the programs of the host at one end of the row. `end` is 0 for the left end and 1 for the right end. `networks` contains
/// the number of the left host's network, then that of the right host's.
fn furnish(host: &mut Host, rng: &mut Rng, company: &Company, end: usize, networks: [u8; 2]) -> Result<(), BuildError> {
    let address = |end: usize, v6: bool| -> IpAddr {
        let (network, number) = (networks[end], if end == 0 { 1 } else { 2 });
        if v6 { net::v6(network, number).into() } else { net::v4(network, number).into() }
    };
    for (at, group) in company.groups.iter().enumerate() {
        let port = |base: u16| base + u16::try_from(at).unwrap_or(0);
        let dials = end == usize::from(group.from_right);
        let own = address(end, group.v6);
        let peer = address(1 - end, group.v6);
        if !dials && !group.crossed {
            let listen = Listen {
                local: SocketAddr::new(own, port(LISTENING_PORT)),
                backlog: group.backlog,
                options: group.options[1],
                accept_pause: group.accept_pause,
                closed: group.closed,
            };
            host.listen(listen).map_err(|_| BuildError::Stack)?;
            continue;
        }
        let (local_port, remote_port) = match (group.crossed, dials) {
            (false, _) if group.one_port => (port(DIALING_PORT), port(LISTENING_PORT)),
            (false, _) => (0, port(LISTENING_PORT)),
            (true, true) => (port(DIALING_PORT), port(LISTENING_PORT)),
            (true, false) => (port(LISTENING_PORT), port(DIALING_PORT)),
        };
        let any = if group.v6 { IpAddr::from([0; 16]) } else { IpAddr::from([0; 4]) };
        host.tcp.dial(Dial {
            local: SocketAddr::new(if rng.below(2) == 0 { own } else { any }, local_port),
            remote: SocketAddr::new(peer, remote_port),
            options: group.options[usize::from(!dials)],
            scripts: VecDeque::from(group.scripts.clone()),
            at_once: group.at_once,
            begin: group.begin,
            pause: group.pause,
            side: if dials { Side::A } else { Side::B },
        });
    }
    Ok(())
}
