//! Tests that a network without traffic uses no CPU time.

use crate::network::{EXTERNAL_FIGURE_1, Network, PATIENCE, wait_until};
use siga_fabric::sockets::{TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Returns the threads of processes, as directories in /proc.
pub(crate) fn threads(pids: &[i32]) -> Vec<PathBuf> {
    let of = |pid: &i32| std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    pids.iter().flat_map(of).map(|thread| thread.unwrap().path()).collect()
}

/// Returns how often the thread was scheduled, and for how many ticks of 10 ms.
fn turns_and_ticks(thread: &Path) -> (u64, u64) {
    let status = std::fs::read_to_string(thread.join("status")).unwrap();
    let switches = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    let turns = switches.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum();
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
    // The name in parentheses is the second field. User and system time are fields 14 and 15.
    let (_, behind) = stat.rsplit_once(')').unwrap();
    let ticks = behind.split_whitespace().skip(11).take(2).map(|count| count.parse::<u64>().unwrap()).sum();
    (turns, ticks)
}

/// Waits until these threads have been idle for four seconds. Returns their activity as an error if this takes too long.
pub(crate) fn are_idle(threads: &[PathBuf]) -> Result<(), String> {
    const TURNS_MAX: u64 = 4;
    const TICKS_MAX: u64 = 1;
    let end = Instant::now() + 2 * PATIENCE;
    loop {
        let before: Vec<_> = threads.iter().map(|thread| turns_and_ticks(thread)).collect();
        std::thread::sleep(Duration::from_secs(4));
        let spent = threads.iter().zip(before).map(|(thread, (turns, ticks))| {
            let after = turns_and_ticks(thread);
            (thread.display(), after.0 - turns, after.1 - ticks)
        });
        let all: Vec<_> = spent.collect();
        let busy: Vec<_> = all.iter().filter(|(_, turns, ticks)| *turns > TURNS_MAX || *ticks > TICKS_MAX).collect();
        if busy.is_empty() {
            let (turns, ticks) = all.iter().fold((0, 0), |sum, (_, turns, ticks)| (sum.0 + turns, sum.1 + ticks));
            println!("{} idle threads: {turns} turns, {ticks} ticks", all.len());
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("turns and ticks of who should be idle: {busy:?}"));
        }
    }
}

#[test]
fn an_idle_network_with_open_connections_uses_no_cpu() {
    // Remove the last `external = true`, that of the server, so that the control program runs the server and an application uses
    // its stack.
    let (before, after) = EXTERNAL_FIGURE_1.rsplit_once("external = true\n").unwrap();
    let network = Network::up("quiet", &format!("{before}{after}"));
    let (embedded, application) = (network.attach("client"), network.application("server"));
    let listener = TcpListener::bind(&application, "10.0.2.2:7".parse().unwrap()).unwrap();
    listener.set_timeout(Some(Duration::from_millis(200)));
    let client = TcpStream::connect(&embedded, "10.0.2.2:7".parse().unwrap()).unwrap();
    let mut accepted = None;
    wait_until("the connection", || {
        // The stack in this process only runs when it is used. `tend` answers a retransmitted SYN-ACK.
        embedded.tend();
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let server = accepted.unwrap().0;
    // A time limit that is longer than any operation of this test.
    for stream in [&client, &server] {
        stream.set_timeout(Some(4 * PATIENCE));
    }
    let (tell, told) = channel();
    let wait = |mut stream: &TcpStream, tell: Sender<_>| {
        stream.write_all(&[7; 40_000]).unwrap();
        stream.read_exact(&mut [0; 40_000]).unwrap();
        tell.send(rustix::thread::gettid()).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the end is all that comes");
    };
    std::thread::scope(|scope| {
        for stream in [&client, &server] {
            let tell = tell.clone();
            scope.spawn(move || wait(stream, tell));
        }
        let waiting = (0..2).map(|_| told.recv_timeout(PATIENCE).unwrap());
        let mut idle: Vec<_> = waiting.map(|id| format!("/proc/self/task/{id}").into()).collect();
        idle.extend(threads(&[network.pid("router"), network.pid("server"), network.control_pid()]));
        let outcome = are_idle(&idle);
        client.shutdown(Shutdown::Write).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        outcome.unwrap();
    });
}
