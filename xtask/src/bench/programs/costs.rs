//! What the preload library costs where it has little or nothing to do: attaching a process to its guest, a call on a foreign descriptor,
//! a fork without siga sockets, and idle connections.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use super::places::{End, Place, Placement};
use super::{Bench, Options, Server};
use crate::bench::median;
use crate::command;

/// The name of the row.
pub(super) const NAME: &str = "costs";

/// Makes processes, and prints the median time from a fork to the end of the child, in microseconds.
const FORK: &str = "import os, statistics, sys, time
times = []
for _ in range(int(sys.argv[1])):
    begun = time.perf_counter_ns()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    times.append(time.perf_counter_ns() - begun)
print(statistics.median(times) / 1000)
";
const FORKS: u32 = 500;

/// Binds two sockets. The first bind also attaches the process. Prints how much longer the first bind takes, in microseconds, and by how
/// many KB the memory of the process grows meanwhile, without the pages of program files, which all processes share.
const ATTACH: &str = "import socket, time
def resident():
    size = 0
    for line in open('/proc/self/smaps'):
        name, *values = line.split()
        if not name.endswith(':'):
            counted = 'Rss:' if 'siga-ring' in line else 'Anonymous:'
        elif name == counted:
            size += int(values[0])
    return size
def bind():
    made = socket.socket()
    begun = time.perf_counter_ns()
    made.bind(('10.9.1.2', 0))
    return time.perf_counter_ns() - begun
resident()
before = resident()
first, after, second = bind(), resident(), bind()
print((first - second) / 1000, after - before)
";
/// The number of processes of which each round takes the median.
const ATTACHED: usize = 9;

/// The number of blocks that dd copies. For each block, it reads and writes one byte.
const BLOCKS: u32 = 1_000_000;

/// Accepts connections, or opens them, prints a line and sleeps.
const IDLE: &str = "import select, socket, sys
role, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
waits, held = select.epoll(), []
if role == 'server':
    listener = socket.create_server((address, 7000), backlog=1024)
    print('listens', flush=True)
while len(held) < count:
    held.append(listener.accept()[0] if role == 'server' else socket.create_connection((address, 7000), 20))
    waits.register(held[-1], select.EPOLLIN)
print('holds', flush=True)
waits.poll(600)
";
const CONNECTIONS: u32 = 1_000;
const PYTHON: &str = "/usr/bin/python3";

/// A cost with its limit.
struct Cost {
    what: &'static str,
    unit: &'static str,
    most: f64,
    values: Vec<f64>,
}

/// Measures the costs. Returns the text for the terminal, and the values of each round as JSON.
pub(super) fn measure(bench: &Bench, options: &Options) -> Result<(String, Value), String> {
    let mut costs = [
        Cost { what: "attaching a process", unit: "us", most: 500.0, values: Vec::new() },
        Cost { what: "memory of an attached process", unit: "KB", most: 256.0, values: Vec::new() },
        Cost { what: "a call on a foreign descriptor", unit: "ns more", most: 10.0, values: Vec::new() },
        Cost { what: "a fork without siga sockets", unit: "us more", most: 5.0, values: Vec::new() },
        Cost { what: "1000 idle connections", unit: "% of a CPU", most: 0.1, values: Vec::new() },
    ];
    let plain = |program: &[String]| {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).stdin(Stdio::null());
        command
    };
    let own = |program: &[String]| bench.places.command(Place::OneGuest, Placement::Scheduler, End::Server, program);
    for _ in 0..options.rounds {
        let program = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", &format!("count={BLOCKS}")].map(str::to_owned);
        let calls = f64::from(2 * BLOCKS);
        let (time, memory) = attached(&|| own(&[PYTHON, "-c", ATTACH].map(str::to_owned)))?;
        costs[0].values.push(time);
        costs[1].values.push(memory);
        costs[2].values.push((dd_seconds(own(&program))? - dd_seconds(plain(&program))?) * 1e9 / calls);
        let program = [PYTHON, "-c", FORK, &FORKS.to_string()].map(str::to_owned);
        costs[3].values.push(printed(own(&program))? - printed(plain(&program))?);
        costs[4].values.push(idle_percent(bench, options.seconds)?);
    }
    let mut lines = format!("\n{NAME} of the preload library\n");
    let mut json = Vec::new();
    for Cost { what, unit, most, values } in &mut costs {
        let value = median(values);
        let (least, greatest) = (values[0], values[values.len() - 1]);
        let is_met = value <= *most;
        let verdict = if is_met { "met" } else { "MISSED" };
        lines +=
            &format!("  {what:<34} {value:>7.2} {unit:<10}  {least:.2} to {greatest:.2}  target {most}: {verdict}\n");
        json.push(
            json!({ "cost": what, "unit": unit, "target": most, "met": is_met, "median": value, "values": values }),
        );
    }
    Ok((lines, json!({ "row": NAME, "costs": json })))
}

/// Returns the median time in which a process attaches, in microseconds, and the median of its memory for this, in KB.
fn attached(program: &dyn Fn() -> Command) -> Result<(f64, f64), String> {
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..ATTACHED {
        let text = command::output(program())?;
        let (time, size) = parse_attached(&text).ok_or_else(|| format!("an attached process printed: {text}"))?;
        times.push(time);
        sizes.push(size);
    }
    Ok((median(&mut times), median(&mut sizes)))
}

/// Reads a line with a time and a size.
fn parse_attached(text: &str) -> Option<(f64, f64)> {
    let (time, size) = text.trim().split_once(' ')?;
    Some((time.parse().ok()?, size.parse().ok()?))
}

/// Returns the time that dd reports.
fn dd_seconds(mut dd: Command) -> Result<f64, String> {
    let output = dd.env("LC_ALL", "C").output().map_err(|error| format!("dd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    parse_dd(&text).ok_or_else(|| format!("dd printed no time: {text}"))
}

/// Reads the time in a line such as `1000000 bytes (1.0 MB, 977 KiB) copied, 0.5 s, 2.0 MB/s`.
fn parse_dd(text: &str) -> Option<f64> {
    text.split_once("copied, ")?.1.split(' ').next()?.parse().ok()
}

fn printed(program: Command) -> Result<f64, String> {
    let text = command::output(program)?;
    text.trim().parse().map_err(|error| format!("{error}: {text}"))
}

/// Returns the CPU time that idle connections between two guests take: that of both programs and of the guests.
fn idle_percent(bench: &Bench, seconds: u32) -> Result<f64, String> {
    let address = Place::TwoGuests.address();
    let start = |end, role: &str| {
        let program = [PYTHON, "-c", IDLE, role, address, &CONNECTIONS.to_string()].map(str::to_owned);
        let mut command = bench.places.command(Place::TwoGuests, Placement::Scheduler, end, &program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start {role}: {error}"))?;
        let output = child.stdout.take().map(BufReader::new).ok_or("no output")?;
        Ok::<_, String>((Server(child), output))
    };
    let expect = |output: &mut dyn BufRead, wanted: &str| {
        let mut line = String::new();
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.trim() == wanted { Ok(()) } else { Err(format!("the connections were not made: {line}")) }
    };
    let (server, mut of_server) = start(End::Server, "server")?;
    expect(&mut of_server, "listens")?;
    let (client, mut of_client) = start(End::Client, "client")?;
    expect(&mut of_client, "holds")?;
    expect(&mut of_server, "holds")?;
    let mut processes = bench.places.guests()?;
    processes.extend([server.0.id(), client.0.id()]);
    // The last timers of the opened connections end meanwhile.
    sleep(Duration::from_secs(2));
    let before = run_time(&processes)?;
    let time = Duration::from_secs(seconds.into());
    sleep(time);
    Ok((run_time(&processes)? - before) / time.as_secs_f64() * 100.0)
}

/// Returns the time for which the scheduler has run processes, in seconds.
fn run_time(processes: &[u32]) -> Result<f64, String> {
    let mut ns = 0.0;
    for process in processes {
        let path = format!("/proc/{process}/schedstat");
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let first = text.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
        ns += first.ok_or_else(|| format!("{path}: {text}"))?;
    }
    Ok(ns / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_dd_is_read() {
        let text = "5+0 records in\n5+0 records out\n5 bytes copied, 0.25 s, 0.0 kB/s\n";
        assert_eq!(parse_dd(text), Some(0.25));
        assert_eq!(parse_dd("dd: failed to open"), None);
    }

    #[test]
    fn the_line_of_an_attached_process_is_read() {
        assert_eq!(parse_attached("420.5 132\n"), Some((420.5, 132.0)));
        assert_eq!(parse_attached("420.5\n"), None);
    }

    #[test]
    fn this_process_has_a_run_time() {
        assert!(run_time(&[std::process::id()]).unwrap() > 0.0);
    }
}
