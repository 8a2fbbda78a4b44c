//! The two ends of a workload in threads of one process, and sockets that go wrong on purpose.

use rustix::fd::OwnedFd;
use siga_measure::limits;
use siga_measure::load::client::{Client, ClientConfig, Phase, PhaseReport};
use siga_measure::load::server::{Server, ServerConfig};
use siga_measure::load::{Shared, UNKNOWN};
use siga_measure::socket::kernel::{Kernel, KernelOptions};
use siga_measure::socket::{Endpoint, Ready, Sockets, Token, Waker};
use siga_model::waiting::Waiting;
use siga_plan::workload::Close;
use siga_plan::workload::Workload;
use siga_results::record::LoadCounts;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that has to happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Faults, each with the number of operations between two of its kind; 0: none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// One byte received is another.
    pub(crate) flip: u64,
    /// Fewer bytes than there was room for are sent or received.
    pub(crate) short: u64,
    /// An operation that could go on says that it cannot.
    pub(crate) not_yet: u64,
    /// The connection ends with an error.
    pub(crate) reset: u64,
    /// A connection is refused when it is accepted.
    pub(crate) refuse: u64,
    /// Not a number of operations: how long the host lets each look at the sockets wait.
    pub(crate) delay: Duration,
}

/// The kernel's sockets with faults; keeps the contract of `Sockets` all the same.
pub(crate) struct Faulty {
    pub(crate) kernel: Kernel,
    pub(crate) faults: Faults,
    pub(crate) random: u64,
    /// Told too little or "not yet" although there was more: `poll` has to report them again.
    pub(crate) owed: BTreeSet<usize>,
}

impl Faulty {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        let options = options(Waiting::Block, false);
        Self { kernel: Kernel::new(options, None).unwrap(), faults, random: seed, owed: BTreeSet::new() }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    pub(crate) fn happens(&mut self, every: u64) -> bool {
        every > 0 && self.next().is_multiple_of(every)
    }

    /// What happens to any operation on a connection.
    pub(crate) fn fault(&mut self, token: Token) -> io::Result<()> {
        if self.happens(self.faults.reset) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if self.happens(self.faults.not_yet) {
            self.owed.insert(token.0);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    }

    pub(crate) fn part(&mut self, length: usize) -> usize {
        if length > 1 && self.happens(self.faults.short) {
            1 + usize::try_from(self.next()).unwrap() % (length - 1)
        } else {
            length
        }
    }
}

impl Sockets for Faulty {
    type Socket = (OwnedFd, Token);
    type Listener = OwnedFd;

    fn listen(&mut self, at: &Endpoint, token: Token) -> io::Result<(OwnedFd, Endpoint)> {
        self.kernel.listen(at, token)
    }

    fn accept(&mut self, listener: &OwnedFd, token: Token) -> io::Result<(OwnedFd, Token)> {
        let socket = self.kernel.accept(listener, token)?;
        if self.happens(self.faults.refuse) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok((socket, token))
    }

    fn connect(&mut self, to: &Endpoint, token: Token) -> io::Result<(OwnedFd, Token)> {
        Ok((self.kernel.connect(to, token)?, token))
    }

    fn connected(&mut self, (socket, _): &(OwnedFd, Token)) -> io::Result<bool> {
        self.kernel.connected(socket)
    }

    fn send(&mut self, (socket, token): &(OwnedFd, Token), bytes: &[u8]) -> io::Result<usize> {
        self.fault(*token)?;
        let length = self.part(bytes.len());
        self.kernel.send(socket, &bytes[..length])
    }

    fn receive(&mut self, (socket, token): &(OwnedFd, Token), buffer: &mut [u8]) -> io::Result<usize> {
        self.fault(*token)?;
        let length = self.part(buffer.len());
        let received = self.kernel.receive(socket, &mut buffer[..length])?;
        if length < buffer.len() {
            self.owed.insert(token.0);
        }
        if received > 0 && self.happens(self.faults.flip) {
            let at = usize::try_from(self.next()).unwrap() % received;
            buffer[at] ^= 0x10;
        }
        Ok(received)
    }

    fn close(&mut self, (socket, _): (OwnedFd, Token)) {
        self.kernel.close(socket);
    }

    fn receive_from(&mut self, listener: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.kernel.receive_from(listener, buffer)
    }

    fn send_to(&mut self, listener: &OwnedFd, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.kernel.send_to(listener, bytes, to)
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        thread::sleep(self.faults.delay);
        self.kernel.poll(ready, if self.owed.is_empty() { timeout } else { Some(Duration::ZERO) })?;
        let owed = std::mem::take(&mut self.owed).into_iter();
        ready.extend(owed.map(|token| Ready { token: Token(token), ended: false }));
        Ok(())
    }

    fn operations_wait(&self) -> bool {
        false
    }

    fn tend(&mut self) -> Option<Duration> {
        self.kernel.tend()
    }

    fn waker(&self) -> Arc<dyn Waker> {
        self.kernel.waker()
    }
}

/// Options of sockets that one process serves, with the settings of the host.
pub(crate) fn options(wait: Waiting, io_uring: bool) -> KernelOptions {
    KernelOptions { wait, direct: false, congestion: None, segment_bytes: None, io_uring }
}

pub(crate) fn localhost() -> Endpoint {
    Endpoint::Tcp((Ipv4Addr::LOCALHOST, 0).into())
}

/// A server in a thread, steered as an agent steers it.
pub(crate) struct ServerEnd {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stride: Arc<AtomicU64>,
    pub(crate) waker: Arc<dyn Waker>,
    pub(crate) endpoint: Endpoint,
    pub(crate) thread: Option<thread::JoinHandle<io::Result<LoadCounts>>>,
}

impl ServerEnd {
    pub(crate) fn start<S>(sockets: S, workload: Workload, close: Close, at: Endpoint) -> Self
    where
        S: Sockets + Send + 'static,
        S::Socket: Send,
        S::Listener: Send,
    {
        let config = ServerConfig {
            workload,
            endpoint: at,
            close,
            write_bytes: 128 << 10,
            extra_cpu_ns: 0,
            delay_ns: 0,
            trial: 7,
        };
        let (mut server, endpoint) = Server::listen(sockets, config).unwrap();
        let (shared, stride) = (Arc::new(Shared::default()), Arc::new(AtomicU64::new(limits::STAMP_STRIDE_BYTES)));
        let waker = server.waker();
        let thread = {
            let (shared, stride) = (Arc::clone(&shared), Arc::clone(&stride));
            thread::spawn(move || server.serve(&shared, &stride))
        };
        Self { shared, stride, waker, endpoint, thread: Some(thread) }
    }

    /// Waits until so much has arrived, or nothing more does, and holds still.
    pub(crate) fn quiesce(&self, received: u64) -> LoadCounts {
        self.shared.ending.store(true, Ordering::Relaxed);
        let _arrived = nap_until(Duration::from_secs(1), || self.shared.received.load(Ordering::Relaxed) >= received);
        self.shared.quiesce(&*self.waker, SOON).expect("the server holds still").counts
    }

    pub(crate) fn go_on(&self, stride: u64) {
        self.stride.store(stride, Ordering::Relaxed);
        assert!(self.shared.go_on(SOON), "the server goes on");
    }

    /// Waits for a count, as others cannot know when a server has seen something.
    pub(crate) fn until(&self, what: &str, seen: impl Fn(&LoadCounts) -> bool) -> LoadCounts {
        let begun = Instant::now();
        loop {
            let counts = self.quiesce(0);
            if seen(&counts) {
                return counts;
            }
            assert!(begun.elapsed() < SOON, "never {what}: {counts:?}");
            self.go_on(limits::STAMP_STRIDE_BYTES);
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn quit(mut self) -> LoadCounts {
        self.shared.quit(&*self.waker);
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

/// Sleeps in naps until something is so; false once patience has come to an end. What counts is the time slept, and not what passes
/// on a clock: while the host stops this process, those that are waited for stand still too.
pub(crate) fn nap_until(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    const NAP: Duration = Duration::from_micros(200);
    let mut slept = Duration::ZERO;
    while !is_so() {
        if slept >= patience {
            return false;
        }
        thread::sleep(NAP);
        slept += NAP;
    }
    true
}

/// A client in a thread, steered as an agent steers it.
pub(crate) struct ClientEnd {
    pub(crate) shared: Arc<Shared>,
    pub(crate) waker: Arc<dyn Waker>,
    pub(crate) phases: Sender<Phase>,
    pub(crate) reports: Receiver<io::Result<PhaseReport>>,
    /// How long to wait for a server that may never answer.
    pub(crate) patience: Duration,
}

impl ClientEnd {
    pub(crate) fn start<S>(sockets: S, workload: Workload, close: Close, pairs: u32, to: &Endpoint) -> Self
    where
        S: Sockets + Send + 'static,
        S::Socket: Send,
    {
        let shared = Arc::new(Shared::default());
        let waker = sockets.waker();
        let endpoints = vec![to.clone()];
        let config = ClientConfig {
            workload,
            pairs,
            first_pair: 0,
            endpoints,
            close,
            write_bytes: 128 << 10,
            extra_cpu_ns: 0,
            trial: 7,
        };
        let mut client = Client::new(sockets, config);
        let (phases, orders) = channel();
        let (answers, reports) = channel();
        let (connects, connected) = channel();
        let thread = Arc::clone(&shared);
        thread::spawn(move || {
            connects.send(client.connect(&thread)).unwrap();
            while let Ok(phase) = orders.recv() {
                let _nobody_listens = answers.send(client.phase(phase, &thread));
            }
        });
        connected.recv().unwrap().unwrap();
        Self { shared, waker, phases, reports, patience: Duration::from_secs(5) }
    }

    /// Runs a phase until nothing more is initiated; bytes sent so far.
    pub(crate) fn run(&self, time: Duration, stride: u64, rate: Option<f64>) -> u64 {
        self.shared.expected.store(UNKNOWN, Ordering::Relaxed);
        self.shared.stopped.store(false, Ordering::Relaxed);
        self.shared.ending.store(false, Ordering::Relaxed);
        let duration_ns = u64::try_from(time.as_nanos()).unwrap();
        self.phases.send(Phase { start_ns: 0, duration_ns, stride, rate }).unwrap();
        thread::sleep(time);
        self.shared.ending.store(true, Ordering::Relaxed);
        let _stopped = nap_until(self.patience, || {
            self.waker.wake();
            self.shared.stopped.load(Ordering::Acquire)
        });
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Lets the phase end once so much has arrived, or at once if that never will.
    pub(crate) fn finish(&self, received: u64) -> io::Result<PhaseReport> {
        self.shared.expected.store(received, Ordering::Release);
        self.waker.wake();
        let mut report = None;
        if nap_until(self.patience, || {
            report = self.reports.try_recv().ok();
            report.is_some()
        }) {
            return report.unwrap();
        }
        self.shared.give_up.store(true, Ordering::Relaxed);
        self.waker.wake();
        let report = self.reports.recv_timeout(SOON).expect("a phase that is given up ends");
        self.shared.give_up.store(false, Ordering::Relaxed);
        report
    }
}

/// One phase between two ends, and what both have counted in it; on a busy host the first in which anything moves.
pub(crate) fn phase(client: &ClientEnd, server: &ServerEnd, stride: u64) -> (PhaseReport, LoadCounts) {
    phase_of(Duration::from_millis(60), client, server, stride)
}

pub(crate) fn phase_of(
    time: Duration,
    client: &ClientEnd,
    server: &ServerEnd,
    stride: u64,
) -> (PhaseReport, LoadCounts) {
    let begun = Instant::now();
    loop {
        let before = server.quiesce(0);
        server.go_on(stride);
        let sent = client.run(time, stride, None);
        let quiesced = server.quiesce(sent);
        let report = client.finish(quiesced.sent).unwrap();
        if report.counts.sent + report.counts.received > 0 {
            return (report, quiesced.since(before));
        }
        assert!(begun.elapsed() < SOON, "nothing moves: {:?}", report.counts);
    }
}
