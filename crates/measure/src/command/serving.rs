//! A server that runs while a command is measured: its start, its readiness, the CPU time of its processes, and its end.

use super::Order;
use super::figures::{Reader, last_line};
use super::processes::{Started, used_by_all};
use crate::clock::now_ns;
use regex_lite::Regex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::command::server::Ready;
use siga_results::record::{CommandRecord, ProcessCpu};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

/// Time between two looks whether a server is ready.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time until a connection of such a look is accepted.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(500);
/// Time that a server has to end after SIGTERM.
const END_TIME: Duration = Duration::from_secs(10);

/// What to start as a server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerOrder {
    pub(crate) order: Order,
    pub(crate) ready: Ready,
    pub(crate) ready_ns: u64,
}

/// What the processes of a server have used so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) cpu: ProcessCpu,
    pub(crate) record: CommandRecord,
}

/// A server that runs.
pub(super) struct Serving {
    started: Started,
    /// What ended processes have used, for which this process has waited.
    ended: Used,
}

impl Serving {
    /// Starts a server and waits until it is ready.
    pub(super) fn start(wanted: &ServerOrder) -> Result<Self> {
        let reader = Reader::all_output(&wanted.order)?;
        let mut serving = Self { started: Started::start(&wanted.order, &reader)?, ended: Used::default() };
        let regex = wanted.ready.output.as_deref().map(Regex::new).transpose();
        let regex = regex.map_err(|error| Error::usage(format!("regex: {error}")))?;
        let deadline = now_ns().saturating_add(wanted.ready_ns);
        loop {
            serving.look()?;
            if serving.is_ready(&wanted.ready, regex.as_ref()) {
                serving.started.forget_output();
                return Ok(serving);
            }
            if now_ns() > deadline {
                let seconds = Duration::from_nanos(wanted.ready_ns).as_secs_f64();
                return Err(serving.error(&format!("is not ready after {seconds} s")));
            }
            serving.rest(LOOK)?;
        }
    }

    /// Waits for an order on standard input, and reads what the server writes meanwhile, so that the server does not wait for a reader.
    pub(super) fn wait(&mut self) -> Result<()> {
        loop {
            let stdin = std::io::stdin();
            let mut polled = vec![PollFd::new(&stdin, PollFlags::IN)];
            polled.extend(self.started.pipes().map(|end| PollFd::new(end, PollFlags::IN)));
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(Error::environment(format!(
                        "the process that runs a server cannot wait for orders: {error}"
                    )));
                }
            }
            let has_order = !polled[0].revents().is_empty();
            drop(polled);
            self.started.read()?;
            if has_order {
                return Ok(());
            }
        }
    }

    /// Returns the CPU time and counters of all processes of the server so far.
    pub(super) fn used(&mut self) -> Result<Used> {
        self.look()?;
        let mut used = self.ended.clone();
        used_by_all(&mut used.cpu, &mut used.record);
        Ok(used)
    }

    /// Asks the server to end, and waits for a while. The caller then ends what is left.
    pub(super) fn stop(self) -> Result<()> {
        self.started.stop();
        let deadline = now_ns().saturating_add(crate::clock::nanoseconds(END_TIME));
        while now_ns() < deadline && !self.started.has_ended()? {
            self.rest(LOOK)?;
        }
        Ok(())
    }

    /// Waits for ended processes. Returns an error if the server itself has ended.
    fn look(&mut self) -> Result<()> {
        self.started.read()?;
        if self.started.has_ended()? {
            return Err(self.error("ended"));
        }
        self.started.collect_others(&mut self.ended.cpu, &mut self.ended.record)
    }

    fn is_ready(&self, ready: &Ready, regex: Option<&Regex>) -> bool {
        if let Some(port) = ready.port {
            let addresses =
                [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
            return addresses.iter().any(|address| TcpStream::connect_timeout(address, CONNECT_TIME_MAX).is_ok());
        }
        if let Some(file) = &ready.file {
            return is_there(Path::new(file));
        }
        let matches = |bytes: &[u8]| regex.is_some_and(|regex| regex.is_match(&String::from_utf8_lossy(bytes)));
        self.started.output().into_iter().any(matches)
    }

    fn rest(&self, time: Duration) -> Result<()> {
        let timeout = Timespec::try_from(time).context("the pause between two checks of a server is too long")?;
        let stdin = std::io::stdin();
        let mut polled = [PollFd::new(&stdin, PollFlags::RDHUP | PollFlags::HUP)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(count) if count > 0 => Err(Error::incomplete("the siga process that carries out the run has ended")),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn error(&self, what: &str) -> Error {
        let [output, error] = self.started.output();
        let last = if last_line(error).is_empty() { last_line(output) } else { last_line(error) };
        let last = if last.is_empty() { last } else { format!(": {last}") };
        Error::incomplete(format!("the server {} {what}{last}", self.started.program()))
            .hint("start the server by hand to see the reason; a server must stay in the foreground")
    }
}

/// Returns whether a file exists. A UNIX socket must also accept connections, because a server that was killed leaves its socket behind.
fn is_there(path: &Path) -> bool {
    match path.metadata() {
        Ok(file) if file.file_type().is_socket() => accepts(path),
        found => found.is_ok(),
    }
}

fn accepts(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    // The server may listen on a socket of any of these types.
    [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM].into_iter().any(|kind| {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None);
        // `AGAIN` means that the queue of a listening socket is full.
        socket.is_ok_and(|socket| matches!(connect(&socket, &address), Ok(()) | Err(Errno::AGAIN)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn a_socket_without_a_server_is_not_there() {
        let scratch = tempfile::tempdir().unwrap();
        let [stream, datagram, file] = ["stream", "datagram", "file"].map(|name| scratch.path().join(name));
        assert!(!is_there(&file));
        std::fs::write(&file, "").unwrap();
        assert!(is_there(&file));
        let servers = (UnixListener::bind(&stream).unwrap(), UnixDatagram::bind(&datagram).unwrap());
        assert!(is_there(&stream) && is_there(&datagram));
        drop(servers);
        assert!(stream.exists() && datagram.exists(), "the sockets stay behind");
        assert!(!is_there(&stream) && !is_there(&datagram));
    }
}
