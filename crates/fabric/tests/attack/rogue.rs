//! A control program whose guests are puppets: those called `rogue...` do deeds that a test orders by pings, those called
//! `talker...` run a node and write to descriptor 2 all the time, the others run a node.
//!
//! All of them are confined as guests are, by the same start, the same filter and the same control program.

use super::deeds::{ALLOCATE, ERASE, FLOOD, FORGE, FORGED, MAKE_FILES, PANIC, SILENCE};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::stdio::stderr;
use siga_fabric::guest::Node;
use siga_fabric::isolate::launch;
use siga_fabric::isolate::{Profile, confine, hide, raise_descriptor_limit};
use siga_fabric::protocol::channel::Channel;
use siga_fabric::protocol::message::{GuestConfig, GuestEvent, MemberId, Order, PROTOCOL};
use siga_model::error::{Error, IoContext, Result};
use siga_model::limits::NAME_BYTES_MAX;
use siga_model::name::Name;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How often a talker says something.
const TALK_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of it, so that a pipe that nobody reads is soon full.
const TALK_BYTES: usize = 1_000;

/// A guest of any name.
pub(crate) fn guest() -> Result<()> {
    hide()?;
    let mut channel = Channel::new(launch::channel()?)?;
    channel.send(&GuestEvent::Hello { protocol: PROTOCOL, version: "puppet".to_owned() }, Vec::new())?;
    wait(&channel)?;
    let Ok(Some((Order::Configure(config), mut descriptors))) = channel.receive::<Order>() else {
        return Err(Error::environment("no configuration"));
    };
    let listener = descriptors.pop().ok_or_else(|| Error::environment("no socket"))?;
    rustix::net::listen(&listener, 4).context("cannot listen")?;
    raise_descriptor_limit();
    let confinement = confine(Profile::Guest)?.to_string();
    if config.name.as_str().starts_with("rogue") {
        return rogue(channel, &confinement);
    }
    honest(*config, channel, listener, confinement)
}

fn wait(channel: &Channel) -> Result<()> {
    poll(&mut [PollFd::new(channel, PollFlags::IN)], None).context("cannot wait")?;
    Ok(())
}

fn honest(config: GuestConfig, channel: Channel, listener: OwnedFd, confinement: String) -> Result<()> {
    let talks = config.name.as_str().starts_with("talker");
    let mut node = Node::new(config, channel, Some(listener))?;
    node.set_confinement(confinement);
    let mut count = 0;
    while !node.stops() {
        if !node.iterate() {
            node.wait(talks.then_some(TALK_INTERVAL));
        }
        if talks {
            count += 1;
            let _ = rustix::io::write(stderr(), format!("talk {count} {}\n", "-".repeat(TALK_BYTES)).as_bytes());
        }
    }
    Ok(())
}

fn rogue(mut channel: Channel, confinement: &str) -> Result<()> {
    loop {
        wait(&channel)?;
        match channel.receive::<Order>() {
            Ok(None) => {}
            Ok(Some((Order::Run, _))) => channel.send(&ready(confinement), Vec::new())?,
            Ok(Some((Order::Ping { request, bytes, .. }, _))) => {
                let answer = deed(&mut channel, bytes)?;
                channel.send(&GuestEvent::Pong { request, time_ns: Some(answer) }, Vec::new())?;
            }
            Ok(Some((Order::Stop, _))) | Err(_) => return Ok(()),
            Ok(Some(_)) => {}
        }
        while channel.is_behind() {
            poll(&mut [PollFd::new(&channel, PollFlags::OUT)], None).context("cannot wait")?;
            channel.flush()?;
        }
    }
}

fn ready(confinement: &str) -> GuestEvent {
    GuestEvent::Ready { confinement: confinement.to_owned() }
}

fn deed(channel: &mut Channel, number: u16) -> Result<u64> {
    match number {
        ERASE => Ok(error_number(ftruncate(stderr(), 0))),
        SILENCE => {
            let long: Name = "x".repeat(NAME_BYTES_MAX).parse()?;
            let member = MemberId { guest: long.clone(), device: long.clone() };
            for _ in 0..7_000 {
                channel.send(&GuestEvent::Couple { device: long.clone(), member: member.clone() }, Vec::new())?;
                while let Ok(Some(_)) = channel.receive::<Order>() {}
            }
            Ok(0)
        }
        FORGE => {
            let lines = format!("{FORGED}\n\u{1b}[2J\u{202e}reversed\u{0}\rhidden\n");
            let written = rustix::io::write(stderr(), lines.as_bytes()).map(|_| ());
            // A line that is no UTF-8, in two parts.
            let parts = [&b"one \xff\xfe part"[..], b" and another\n"];
            Ok(error_number(
                parts.iter().try_fold((), |(), part| rustix::io::write(stderr(), part).map(|_| ())).and(written),
            ))
        }
        FLOOD => {
            let line = format!("{}\n", "flood ".repeat(170));
            let refused = (0..16 << 10).filter(|_| rustix::io::write(stderr(), line.as_bytes()) == Err(Errno::AGAIN));
            Ok(refused.count() as u64)
        }
        ALLOCATE => {
            let all: Vec<Vec<u8>> = (0..128).map(|count: u8| vec![count | 1; 16 << 20]).collect();
            Ok(all.iter().map(|piece| piece.len() as u64 >> 20).sum())
        }
        MAKE_FILES => Ok(make_files()),
        PANIC => panic!("a rogue panics"),
        other => Err(Error::usage(format!("{other} is no deed"))),
    }
}

fn error_number(outcome: rustix::io::Result<()>) -> u64 {
    outcome.map_or_else(|error| error.raw_os_error().unsigned_abs().into(), |()| 0)
}

/// Up to 1 GB in memory files of 16 MB each.
fn make_files() -> u64 {
    let mut files = Vec::new();
    while files.len() < 64 {
        let Ok(file) = memfd_create("rogue", MemfdFlags::CLOEXEC) else { break };
        let mut file = File::from(file);
        if file.write_all(&vec![1; 16 << 20]).is_err() {
            break;
        }
        files.push(file);
    }
    files.len() as u64 * 16
}
