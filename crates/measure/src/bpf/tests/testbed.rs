//! Network namespaces for tests of the profiler, the cost injector and the sockmap. The programs `unshare` and `ip` create
//! them.
//!
//! A child process keeps each namespace alive while it reads a pipe from this process. So the namespace always ends with the
//! test.

use crate::bpf::in_namespace;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A network namespace and the process that keeps it alive.
#[derive(Debug)]
pub(crate) struct Namespace {
    holder: Child,
}

impl Namespace {
    fn new() -> Result<Self, String> {
        // The holder writes a line when it is in the namespace. Then it waits until its standard input closes.
        let holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`unshare` cannot be run: {error}"))?;
        let mut namespace = Self { holder };
        let mut ready = [0];
        let output = namespace.holder.stdout.as_mut().unwrap();
        output.read_exact(&mut ready).map_err(|_| "`unshare --net` is not permitted".to_owned())?;
        Ok(namespace)
    }

    /// Path of the namespace, for setns(2).
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// Inode number, which identifies the namespace.
    pub(crate) fn inode(&self) -> u32 {
        u32::try_from(std::fs::metadata(self.path()).unwrap().ino()).unwrap()
    }

    /// Runs `work` in the namespace.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        in_namespace(&self.path(), work).unwrap()
    }

    /// Runs the program `ip` in the namespace with the arguments `words`.
    fn ip(&self, words: &str) -> Result<(), String> {
        let output = self.run(|| Command::new("ip").args(words.split(' ')).output());
        let output = output.map_err(|error| format!("`ip` cannot be run: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("`ip {words}` failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// Returns the sum of the bytes that an interface has received and sent.
    pub(crate) fn interface_bytes(&self, interface: &str) -> u64 {
        let text = self.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).unwrap();
        let fields: Vec<u64> = line.split_whitespace().map(|field| field.parse().unwrap()).collect();
        fields[0] + fields[8]
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Client 10.1.0.2 and server 10.2.0.2, with a router (10.1.0.1 on `left`, 10.2.0.1 on `right`) between them.
#[derive(Debug)]
pub(crate) struct Routed {
    pub(crate) client: Namespace,
    pub(crate) router: Namespace,
    pub(crate) server: Namespace,
}

/// Creates three namespaces: a client, a router and a server. If they cannot be created, prints the reason and returns
/// `None`.
pub(crate) fn routed() -> Option<Routed> {
    or_skip((|| {
        let path = Routed { client: Namespace::new()?, router: Namespace::new()?, server: Namespace::new()? };
        for (end, name, number) in [(&path.client, "left", 1), (&path.server, "right", 2)] {
            path.router.ip(&format!("link add {name} type veth peer name end netns {}", end.holder.id()))?;
            path.router.ip(&format!("addr add 10.{number}.0.1/24 dev {name}"))?;
            path.router.ip(&format!("link set {name} up"))?;
            end.ip(&format!("addr add 10.{number}.0.2/24 dev end"))?;
            end.ip("link set end up")?;
            end.ip(&format!("route add default via 10.{number}.0.1"))?;
        }
        path.router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).map_err(|error| error.to_string())?;
        Ok(path)
    })())
}

/// Creates two namespaces with a veth pair between them. Both interfaces have the name `end`. Their addresses are 10.1.0.1
/// and 10.1.0.2.
pub(crate) fn pair() -> Option<(Namespace, Namespace)> {
    or_skip((|| {
        let (first, second) = (Namespace::new()?, Namespace::new()?);
        first.ip(&format!("link add end type veth peer name end netns {}", second.holder.id()))?;
        for (namespace, number) in [(&first, 1), (&second, 2)] {
            namespace.ip(&format!("addr add 10.1.0.{number}/24 dev end"))?;
            namespace.ip("link set end up")?;
        }
        Ok((first, second))
    })())
}

fn or_skip<T>(built: Result<T, String>) -> Option<T> {
    built.inspect_err(|reason| eprintln!("skipped, because no network namespaces can be set up: {reason}")).ok()
}

/// Sends one byte back and forth until `until` returns true. Returns the number of round trips.
pub(crate) fn ping_pong(path: &Routed, until: impl Fn(u64) -> bool) -> u64 {
    let listener = path.server.run(|| TcpListener::bind("10.2.0.2:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() == 1 {
                stream.write_all(&byte).unwrap();
            }
        });
        let mut stream = path.client.run(|| TcpStream::connect(address).unwrap());
        stream.set_nodelay(true).unwrap();
        let mut rounds = 0;
        while !until(rounds) {
            stream.write_all(&[1]).unwrap();
            stream.read_exact(&mut [0]).unwrap();
            rounds += 1;
        }
        rounds
    })
}
