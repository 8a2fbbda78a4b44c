//! The loads: for each, the server, the client with its arguments, and how the client's output is read.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::places::Place;
use crate::command;

/// A server with clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// redis-benchmark: SET and GET of values of `bytes` bytes. `requests` is the number of requests for each second of the measurement.
    Redis { clients: u32, bytes: u32, requests: u32 },
    /// wrk with 50 connections fetches a page of 1 KB from this number of worker processes. With `close`, each request has a connection of
    /// its own.
    Nginx { close: bool, workers: u32 },
    /// memcslap: GET, in ten threads.
    Memcached,
    /// pgbench: SELECT of a row, with ten clients.
    Postgres,
    /// iperf3 from the client to the server.
    Iperf { streams: u32 },
}

/// A program that a load needs.
pub(super) struct Program {
    pub(super) path: &'static str,
    /// The package of Debian.
    pub(super) package: &'static str,
    version: &'static str,
}

const REDIS: [Program; 2] = [
    Program { path: "/usr/bin/redis-server", package: "redis-server", version: "--version" },
    Program { path: "/usr/bin/redis-benchmark", package: "redis-tools", version: "--version" },
];
const NGINX: [Program; 2] = [
    Program { path: "/usr/sbin/nginx", package: "nginx-light", version: "-v" },
    Program { path: "/usr/bin/wrk", package: "wrk", version: "-v" },
];
const MEMCACHED: [Program; 2] = [
    Program { path: "/usr/bin/memcached", package: "memcached", version: "-V" },
    Program { path: "/usr/bin/memcslap", package: "libmemcached-tools", version: "--version" },
];
const POSTGRES: [Program; 2] = [
    Program { path: "/usr/lib/postgresql/15/bin/postgres", package: "postgresql", version: "--version" },
    Program { path: "/usr/bin/pgbench", package: "postgresql", version: "--version" },
];
const IPERF: [Program; 1] = [Program { path: "/usr/bin/iperf3", package: "iperf3", version: "--version" }];

/// The number of memcslap's threads.
const MEMCACHED_THREADS: u32 = 10;
/// The number of requests that each thread of memcslap makes for each second of the measurement.
const MEMCACHED_REQUESTS: u32 = 10_000;
/// Debian's user for PostgreSQL, which does not run as root.
const POSTGRES_USER: &str = "postgres";
/// The scale of pgbench's tables: 100,000 rows each.
const POSTGRES_SCALE: &str = "5";

/// What a client measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    /// Units a second. The unit is a request, a transaction, or a MB (10^6 bytes).
    pub(super) rate: f64,
    /// The number of units.
    pub(super) units: f64,
    /// The 99th percentile of the latency, or no number if the client does not measure it.
    pub(super) p99_us: f64,
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns the first number behind a text.
fn number_behind(text: &str, mark: &str) -> Option<f64> {
    let rest = text.split_once(mark)?.1.trim_start();
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().ok()
}

impl Load {
    pub(super) fn programs(self) -> &'static [Program] {
        match self {
            Self::Redis { .. } => &REDIS,
            Self::Nginx { .. } => &NGINX,
            Self::Memcached => &MEMCACHED,
            Self::Postgres => &POSTGRES,
            Self::Iperf { .. } => &IPERF,
        }
    }

    /// Returns the first line that each program prints about its version.
    pub(super) fn versions(self) -> Vec<String> {
        let of = |program: &Program| {
            let output = Command::new(program.path).arg(program.version).output().ok()?;
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).lines().next().map(|line| line.trim().to_owned())
        };
        self.programs().iter().filter_map(of).collect()
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Redis { .. } | Self::Nginx { .. } | Self::Memcached => "requests/s",
            Self::Postgres => "trans/sec",
            Self::Iperf { .. } => "MB/sec",
        }
    }

    pub(super) fn port(self) -> u16 {
        match self {
            Self::Redis { .. } => 6_379,
            Self::Nginx { .. } => 8_080,
            Self::Memcached => 11_211,
            Self::Postgres => 5_432,
            Self::Iperf { .. } => 5_201,
        }
    }

    /// Makes the files that the server needs in `directory`.
    pub(super) fn prepare(self, directory: &Path) -> Result<(), String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(wrong)?;
        match self {
            Self::Nginx { workers, .. } => {
                fs::write(directory.join("index.html"), "a".repeat(1_024)).map_err(wrong)?;
                fs::write(directory.join("nginx.conf"), nginx_configuration(directory, workers)).map_err(wrong)
            }
            Self::Postgres => prepare_postgres(directory),
            Self::Redis { .. } | Self::Memcached | Self::Iperf { .. } => Ok(()),
        }
    }

    /// Returns the server with its arguments. Its files lie in `directory`.
    pub(super) fn server(self, directory: &Path) -> Vec<String> {
        let at = directory.display();
        words(&match self {
            Self::Redis { .. } => {
                format!(
                    "{} --bind 0.0.0.0 --protected-mode no --save 1000000 1000000000 --appendonly no --dir {at}",
                    REDIS[0].path
                )
            }
            Self::Nginx { .. } => format!("{} -c {at}/nginx.conf", NGINX[0].path),
            Self::Memcached => format!("{} -u root -l 0.0.0.0 -U 0", MEMCACHED[0].path),
            Self::Postgres => format!(
                "{} {} -D {at}/data -c listen_addresses=0.0.0.0 -c unix_socket_directories= -c fsync=off",
                as_postgres(),
                POSTGRES[0].path
            ),
            Self::Iperf { .. } => format!("{} -s", IPERF[0].path),
        })
    }

    /// Returns the client with its arguments.
    pub(super) fn client(self, place: Place, seconds: u32) -> Vec<String> {
        let (address, port) = (place.address(), self.port());
        let mut all = words(&match self {
            Self::Redis { clients, bytes, requests } => {
                let path = REDIS[1].path;
                format!("{path} -h {address} -t set,get -c {clients} -d {bytes} -n {} --csv", requests * seconds)
            }
            Self::Nginx { .. } => {
                format!("{} -t 1 -c 50 -d {seconds}s --latency http://{address}:{port}/", NGINX[1].path)
            }
            Self::Memcached => format!(
                "{} --servers={address}:{port} --tcp-nodelay --test=get --concurrency={MEMCACHED_THREADS} --initial-load=1000 --execute-number={}",
                MEMCACHED[1].path,
                MEMCACHED_REQUESTS * seconds
            ),
            Self::Postgres => {
                format!("{} -n -S -c 10 -j 1 -T {seconds} -h {address} -U {POSTGRES_USER} postgres", POSTGRES[1].path)
            }
            Self::Iperf { streams } => format!("{} -c {address} -t {seconds} -P {streams} -J", IPERF[0].path),
        });
        if matches!(self, Self::Nginx { close: true, .. }) {
            all.extend(["-H", "Connection: close"].map(str::to_owned));
        }
        all
    }

    /// Reads the output of the client.
    pub(super) fn read(self, text: &str, seconds: u32) -> Result<Measured, String> {
        let measured = match self {
            Self::Redis { requests, .. } => read_redis(text, f64::from(requests * seconds)),
            Self::Nginx { .. } => read_wrk(text),
            Self::Memcached => {
                let units = f64::from(MEMCACHED_THREADS * MEMCACHED_REQUESTS * seconds);
                read_memcslap(text).map(|time| Measured { rate: units / time, units, p99_us: f64::NAN })
            }
            Self::Postgres => number_behind(text, "tps = ")
                .zip(number_behind(text, "number of transactions actually processed: "))
                .map(|(rate, units)| Measured { rate, units, p99_us: f64::NAN }),
            Self::Iperf { .. } => read_iperf(text),
        };
        measured.ok_or_else(|| format!("the output of the client contains no result: {}", text.trim()))
    }
}

fn nginx_configuration(directory: &Path, workers: u32) -> String {
    let at = directory.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = temporary.iter().map(|name| format!("{name}_temp_path {at}/{name};\n")).collect();
    format!(
        "daemon off; worker_processes {workers}; user root; pid {at}/pid; error_log {at}/errors;\n\
         events {{ }}\n\
         http {{ access_log off; keepalive_requests 1000000; {temporary} server {{ listen 8080; root {at}; }} }}\n"
    )
}

/// Returns the beginning of a command line that runs a program as PostgreSQL's user.
fn as_postgres() -> String {
    format!("setpriv --reuid={POSTGRES_USER} --regid={POSTGRES_USER} --clear-groups")
}

/// Makes a database with the tables of pgbench, unless the database exists already.
fn prepare_postgres(directory: &Path) -> Result<(), String> {
    let at = directory.display();
    let data = directory.join("data");
    if data.exists() {
        return Ok(());
    }
    let bin = Path::new(POSTGRES[0].path).with_file_name("");
    let (bin, user) = (bin.display(), as_postgres());
    // The user of PostgreSQL has to reach the directory through those above it.
    for above in directory.ancestors().take(2) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(above, mode).map_err(|error| format!("{}: {error}", above.display()))?;
    }
    let run = |line: &str| command::output(command::command(directory, line)).map(drop);
    fs::create_dir(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    run(&format!("chown {POSTGRES_USER} {at}/data"))?;
    run(&format!("{user} {bin}initdb -D {at}/data -A trust -N"))?;
    let rules = data.join("pg_hba.conf");
    fs::write(&rules, "host all all all trust\nlocal all all trust\n").map_err(|error| format!("pg_hba: {error}"))?;
    run(&format!("{user} {bin}pg_ctl -D {at}/data -w -l {at}/data/log -o -cunix_socket_directories={at}/data start"))?;
    let filled = run(&format!("{user} pgbench -q -i -s {POSTGRES_SCALE} -h {at}/data -U {POSTGRES_USER} postgres"));
    run(&format!("{user} {bin}pg_ctl -D {at}/data -w -m fast stop"))?;
    filled
}

/// Reads redis-benchmark's table: a line for each test, with the requests a second and seven columns of latency in milliseconds.
/// Each test has `requests` requests.
fn read_redis(text: &str, requests: f64) -> Option<Measured> {
    let (mut time, mut units, mut p99_ms) = (0.0, 0.0, f64::NAN);
    for line in text.lines().filter(|line| !line.starts_with("\"test\"")) {
        let column = |at: usize| line.split(',').nth(at)?.trim_matches('"').parse::<f64>().ok();
        time += requests / column(1)?;
        units += requests;
        p99_ms = column(6)?.max(p99_ms);
    }
    (units > 0.0).then(|| Measured { rate: units / time, units, p99_us: p99_ms * 1e3 })
}

/// Reads wrk's output. Requests that failed make the measurement void.
fn read_wrk(text: &str) -> Option<Measured> {
    if text.contains("Socket errors") || text.contains("Non-2xx") {
        return None;
    }
    let rate = number_behind(text, "Requests/sec:")?;
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    let units = line.split_whitespace().next()?.parse().ok()?;
    let p99 = text.lines().find_map(|line| line.trim().strip_prefix("99%"))?.trim();
    let digits = p99.trim_end_matches(|c: char| c.is_alphabetic());
    let us = match &p99[digits.len()..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(Measured { rate, units, p99_us: digits.parse::<f64>().ok()? * us })
}

/// Returns the time of memcslap's test, in seconds.
fn read_memcslap(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("Time to get"))?;
    number_behind(line, "threads:").filter(|time| *time > 0.0)
}

fn read_iperf(text: &str) -> Option<Measured> {
    let json: Value = serde_json::from_str(text).ok()?;
    let sum = &json["end"]["sum_received"];
    let (rate, units) = (sum["bits_per_second"].as_f64()? / 8e6, sum["bytes"].as_f64()? / 1e6);
    Some(Measured { rate, units, p99_us: f64::NAN })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outputs_of_the_clients_are_read() {
        let redis = Load::Redis { clients: 1, bytes: 3, requests: 100 };
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET\",\"100.00\",\"0.4\",\"0.1\",\"0.4\",\"0.5\",\"0.9\",\"1.0\"\n\
            \"GET\",\"300.00\",\"0.4\",\"0.1\",\"0.4\",\"0.5\",\"0.7\",\"1.0\"\n";
        assert_eq!(redis.read(text, 3).unwrap(), Measured { rate: 150.0, units: 600.0, p99_us: 900.0 });

        let nginx = Load::Nginx { close: false, workers: 1 };
        let text = "  Latency Distribution\n     50%  100.00us\n     99%    2.50ms\n  40 requests in 2.00s, 1.00MB read\nRequests/sec:     20.50\n";
        assert_eq!(nginx.read(text, 2).unwrap(), Measured { rate: 20.5, units: 40.0, p99_us: 2_500.0 });
        let failed = format!("{text}  Socket errors: connect 0, read 0, write 1, timeout 0\n");
        assert!(nginx.read(&failed, 2).is_err(), "a request has failed");

        let text = "number of transactions actually processed: 500\ntps = 250.5 (without initial connection time)\n";
        let measured = Load::Postgres.read(text, 2).unwrap();
        assert_eq!((measured.rate, measured.units), (250.5, 500.0));

        let text =
            "Time to set  1000 keys:  0.021 seconds.\nTime to get  200000 keys by  10 threads:  0.500 seconds.\n";
        let measured = Load::Memcached.read(text, 2).unwrap();
        assert_eq!((measured.rate, measured.units), (400_000.0, 200_000.0));

        let text = "{\"end\":{\"sum_received\":{\"bits_per_second\":8e9,\"bytes\":2e9}}}";
        let measured = Load::Iperf { streams: 1 }.read(text, 2).unwrap();
        assert_eq!((measured.rate, measured.units), (1_000.0, 2_000.0));
        for load in [redis, nginx, Load::Memcached, Load::Postgres, Load::Iperf { streams: 1 }] {
            assert!(load.read("nothing", 2).is_err(), "{load:?}");
        }
    }
}
