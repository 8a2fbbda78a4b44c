//! Applications, guests and control programs that are killed at any moment of a stream in both directions. No wrong byte arrives, and each
//! stream ends or goes on as specified.

use super::by_memory;
use super::network::{Network, PATIENCE, content, kill, victim};
use siga_fabric::protocol::request::GuestState;
use siga_fabric::sockets::{TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

/// The status of a victim that has read a wrong byte, and of one whose connection has ended.
const WRONG: i32 = 42;
const ENDED: i32 = 0;

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Fin,
    Error(ErrorKind),
}

/// Writes the bytes of a stream until it fails.
fn write_all(stream: &TcpStream) {
    let (mut at, mut bytes) = (0_u64, vec![0; 3_000]);
    loop {
        // Short at first, so that the connection becomes direct soon.
        let part = if at < 100 { 5 } else { bytes.len() };
        content(at, &mut bytes[..part]);
        if (&mut &*stream).write_all(&bytes[..part]).is_err() {
            return;
        }
        at += part as u64;
    }
}

/// Reads a stream up to its end. Returns the number of bytes, or `None` if one was wrong.
fn read_all(stream: &TcpStream, mut each: impl FnMut(u64)) -> Option<(u64, End)> {
    let (mut at, mut bytes, mut expected) = (0, vec![0; 8_192], vec![0; 8_192]);
    loop {
        match (&mut &*stream).read(&mut bytes) {
            Ok(0) => return Some((at, End::Fin)),
            Ok(count) => {
                content(at, &mut expected[..count]);
                if bytes[..count] != expected[..count] {
                    println!("wrong bytes after {at}");
                    return None;
                }
                at += count as u64;
                each(at);
            }
            Err(error) => return Some((at, End::Error(error.kind()))),
        }
    }
}

#[test]
#[expect(clippy::exit, reason = "the other thread may still write")]
fn direct_killed() {
    let Some((attachment, server)) = victim() else { return };
    let stream = TcpStream::connect(&attachment, server.parse().unwrap()).unwrap();
    stream.set_timeout(Some(PATIENCE));
    std::thread::scope(|scope| {
        scope.spawn(|| write_all(&stream));
        let read = read_all(&stream, |_| {});
        let timed_out = read.is_some_and(|(_, end)| end == End::Error(ErrorKind::TimedOut));
        std::process::exit(if read.is_none() || timed_out { WRONG } else { ENDED });
    });
}

fn start_victim(network: &Network, guest: &str, server: &str) -> Child {
    network.start_victim("kills::direct_killed", guest, server)
}

/// The process that a test kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    Application,
    GuestOfVictim,
    OtherGuest,
    Control,
}

/// How often each way of an end was seen, and how many bytes went by memory.
#[derive(Debug, Default)]
struct Seen {
    turns: usize,
    fins: usize,
    resets: usize,
    others: usize,
    went_on: usize,
    direct_turns: usize,
}

/// One victim, and what its peer in this process sees. `delay` is the time from the first byte to the kill.
fn turn(network: &Network, number: usize, killed: Killed, delay: Duration, seen: &mut Seen) {
    // Both applications use different guests, or the same one.
    let (victim, server) = if number.is_multiple_of(5) { ("b", "b") } else { ("a", "b") };
    let at = format!("10.0.2.2:{}", 1_000 + number);
    let application = network.application(server);
    let listener = TcpListener::bind(&application, at.parse().unwrap()).unwrap();
    let killed_guest = if killed == Killed::OtherGuest { server } else { victim };
    let restarts = network.status(killed_guest).restarts;
    let mut child = start_victim(network, victim, &at);
    let (stream, _) = listener.accept().unwrap();
    stream.set_timeout(Some(PATIENCE));
    let (mut count, mut after_kill) = (0, None);
    let end = std::thread::scope(|scope| {
        scope.spawn(|| write_all(&stream));
        let begun = Instant::now();
        let mut is_over = false;
        let end = read_all(&stream, |at| {
            count = at;
            if after_kill.is_none() && begun.elapsed() >= delay {
                match killed {
                    Killed::Application => child.kill().unwrap(),
                    Killed::GuestOfVictim | Killed::OtherGuest => kill(network.pid(killed_guest)),
                    Killed::Control => kill(network.control_pid()),
                }
                after_kill = Some(at);
            }
            // Without the control program, the streams go on. Then the victim ends them.
            if killed == Killed::Control && !is_over && after_kill.is_some_and(|before| at > before + 500_000) {
                is_over = true;
                child.kill().unwrap();
            }
        });
        let (_, end) = end.expect("a wrong byte has come");
        // This also ends the writer.
        stream.shutdown(std::net::Shutdown::Both).unwrap_or_default();
        assert!(
            killed != Killed::Control || is_over,
            "turn {number}: the stream ends with the control program: {end:?}"
        );
        end
    });
    let moved = by_memory(&application);
    seen.turns += 1;
    seen.went_on += usize::from(killed == Killed::Control);
    seen.direct_turns += usize::from(moved.0 > 0 && moved.1 > 0);
    match end {
        End::Fin => seen.fins += 1,
        End::Error(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => seen.resets += 1,
        End::Error(ErrorKind::TimedOut) => {
            panic!("turn {number}: the stream of {count} bytes does not end: {killed:?}")
        }
        End::Error(_) => seen.others += 1,
    }
    drop((stream, listener));
    let _ = child.kill();
    let status = child.wait().unwrap();
    assert_ne!(
        status.code(),
        Some(WRONG),
        "turn {number}: the victim has read wrong bytes, or its stream does not end"
    );
    match killed {
        Killed::Control => network.start(),
        Killed::GuestOfVictim | Killed::OtherGuest => {
            super::wait_until("the guest does not run again", || {
                let status = network.status(killed_guest);
                status.state == GuestState::Running && status.restarts > restarts
            });
        }
        Killed::Application => {}
    }
}

/// Kills in `turns` streams. Most turns kill an application, because the others take longer.
fn play(name: &str, turns: usize) {
    let network = super::direct_network(name);
    let mut seen = Seen::default();
    let begun = Instant::now();
    let mut state = 7_u64;
    for number in 0..turns {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let killed = match number % 12 {
            3 => Killed::GuestOfVictim,
            7 => Killed::OtherGuest,
            11 => Killed::Control,
            _ => Killed::Application,
        };
        turn(&network, number, killed, Duration::from_micros((state >> 33) % 60_000), &mut seen);
    }
    println!("{seen:?} in {:?}", begun.elapsed());
    assert!(seen.direct_turns * 2 > turns, "{seen:?}: most connections were not direct");
}

#[test]
fn a_kill_at_any_moment_causes_no_wrong_byte_and_ends_each_stream() {
    play("kills", 24);
}

#[test]
#[ignore = "takes several minutes; `cargo xtask nightly --only direct` runs it"]
fn a_thousand_kills_cause_no_wrong_byte() {
    play("kills", 1_000);
}
