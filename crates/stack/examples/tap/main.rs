//! Runs the stack as a host or a router on TAP devices, where the Linux kernel is its neighbour.
//!
//! Run `cargo run --example tap -- --help`; docs/tap.md has examples. One thread reads frames, passes them to the stack, runs the
//! services, and writes the stack's frames. Then it waits for the devices or the next deadline.
#![expect(clippy::print_stdout, reason = "a program that prints what it did")]
#![expect(clippy::disallowed_methods, reason = "the stack's owner tells it the time, and finds its own by number")]

mod client;
mod content;
mod device;
mod http;
mod options;
mod services;

use clap::Parser;
use client::Client;
use device::{BUFFER_BYTES, Tap};
use options::Options;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use services::Services;
use siga_stack::Stack;
use siga_stack::ip::route::Target;
use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use siga_stack::link::capture::CaptureSettings;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::seed::Seed;
use siga_stack::sockets::{TcpEvent, TcpOptions};
use siga_stack::stack::{Handled, StackConfig};
use siga_stack::tcp::Config;
use siga_stack::tcp::CongestionControl;
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::ethernet::MacAddress;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// The greatest number of frames that are read from a device before the services run.
const BATCH_FRAMES: usize = 32;
/// The size of the buffer for captured bytes that are not yet written.
const CAPTURE_BYTES: usize = 64 << 20;
/// Maximum number of Fast Open connections of a service whose handshake is not complete.
const FAST_OPEN_PENDING_MAX: usize = 64;
/// Time limit for the stack's connections to end after the client has finished.
const ENDING: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let options = Options::parse();
    let sound = Host::open(&options).and_then(|mut host| {
        host.run()?;
        host.finish()
    });
    match sound {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("tap: {error}");
            ExitCode::from(3)
        }
    }
}

/// The program's state: the stack, its devices and the services.
struct Host {
    clock: Clock,
    stack: Stack,
    taps: Vec<Tap>,
    services: Services,
    client: Option<Client>,
    /// The time at which the program stops waiting for closed connections of the client.
    end: Option<Instant>,
    tcp: TcpOptions,
    capture: Option<File>,
    /// A socket that is readable after SIGINT or SIGTERM.
    signals: UnixStream,
    /// Buffers for a received frame and for a frame to send (`outgoing`).
    received: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Host {
    fn open(options: &Options) -> Result<Self, String> {
        let clock = Clock::start();
        let now = clock.now();
        let seed = Seed(drawn()?);
        let mut stack = Stack::new(StackConfig { seed, forwarding: options.router, ..StackConfig::default() });
        let taps = open_devices(options, &mut stack)?;
        let congestion = CongestionControl::by_name(&options.congestion).ok_or("no such congestion control")?;
        let config = Config { ecn: options.ecn, congestion, ..Config::LINUX };
        let fast_open_pending_max = if options.fast_open { FAST_OPEN_PENDING_MAX } else { 0 };
        let tcp = TcpOptions { config, fast_open: options.fast_open, fast_open_pending_max, ..TcpOptions::default() };
        let services = Services::open(now, &mut stack, &tcp)?;
        let capture = options.capture.as_ref().map(|path| {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let epoch_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(0).saturating_sub(now.as_ns());
            stack.start_capture(CaptureSettings { snap_bytes: FRAME_BYTES_MAX, bytes_max: CAPTURE_BYTES, epoch_ns });
            File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))
        });
        let capture = capture.transpose()?;
        let signals = catch_signals().map_err(|error| format!("cannot catch signals: {error}"))?;
        let (client, end) = (Client::new(now, options), None);
        let (received, outgoing) = (vec![0; BUFFER_BYTES], vec![0; FRAME_BYTES_MAX]);
        println!("ready");
        Ok(Self { clock, stack, taps, services, client, end, tcp, capture, signals, received, outgoing })
    }

    /// Runs until a signal arrives or the client is done.
    fn run(&mut self) -> Result<(), String> {
        loop {
            let mut now = self.clock.now();
            let mut busy = false;
            for device in 0..self.taps.len() {
                busy |= self.receive(now, device)?;
            }
            if self.stack.poll_timeout().is_some_and(|due| due <= now) {
                self.stack.handle_timeout(now);
            }
            self.serve(now);
            now = self.clock.now();
            self.transmit(now);
            self.keep_capture()?;
            if self.is_done(now) {
                return Ok(());
            }
            if !busy && self.wait(now)? {
                return Ok(());
            }
        }
    }

    /// Reads a batch of frames from a device. Returns true if more may be waiting.
    fn receive(&mut self, now: Instant, at: usize) -> Result<bool, String> {
        let device = DeviceId(u16::try_from(at).unwrap_or(u16::MAX));
        for _ in 0..BATCH_FRAMES {
            let tap = &mut self.taps[at];
            let frame = tap.receive(&mut self.received).map_err(|error| format!("{}: {error}", tap.name))?;
            let Some((frame, marks)) = frame else { return Ok(false) };
            let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
            match self.stack.handle_frame(now, device, Received { header, payload, marks }) {
                // The stack has counted the frames that it dropped.
                Handled::Done | Handled::Dropped(_) => {}
                Handled::Forward(mut forward) => {
                    let out = forward.device;
                    while let Some(piece) = forward.next_piece() {
                        let rest = &frame[piece.range.clone()];
                        self.taps[usize::from(out.0)].send(piece.header, rest, piece.marks);
                    }
                }
            }
            // Transmit at once: each out-of-order segment needs its own acknowledgement (RFC 5681 4.2).
            self.transmit(now);
        }
        Ok(true)
    }

    /// Lets the services and the client process events.
    fn serve(&mut self, now: Instant) {
        while let Some(ready) = self.stack.tcp_poll_event() {
            match ready {
                TcpEvent::Listener(id) => self.services.accept(now, &mut self.stack, id),
                TcpEvent::Connection(id) => {
                    let stack = &mut self.stack;
                    if !self.client.as_mut().is_some_and(|client| client.step(now, stack, id)) {
                        self.services.serve(now, stack, id);
                    }
                }
            }
        }
        self.services.answer_datagrams(now, &mut self.stack);
        if let Some(client) = &mut self.client {
            client.begin(now, &mut self.stack, &self.tcp);
        }
    }

    /// Writes the stack's outgoing frames to the devices.
    fn transmit(&mut self, now: Instant) {
        for (device, tap) in (0..).map(DeviceId).zip(&mut self.taps) {
            while let Some(frame) = self.stack.poll_transmit(now, device, &mut self.outgoing) {
                tap.send(&self.outgoing[..frame.len], &[], frame.marks);
            }
        }
    }

    /// Writes the captured frames to the file.
    fn keep_capture(&mut self) -> Result<(), String> {
        let Some(file) = &mut self.capture else { return Ok(()) };
        file.write_all(&self.stack.take_capture()).map_err(|error| format!("cannot write the capture: {error}"))
    }

    /// Whether the client has finished, and the connections that it closed have ended or their time limit is over.
    fn is_done(&mut self, now: Instant) -> bool {
        if !self.client.as_ref().is_some_and(Client::is_finished) {
            return false;
        }
        let end = *self.end.get_or_insert(now + ENDING);
        end <= now || self.stack.memory().held("TCP connections") == 0
    }

    /// Waits for a frame, a deadline or a signal. Returns true on a signal.
    fn wait(&self, now: Instant) -> Result<bool, String> {
        let due = [self.stack.poll_timeout(), self.end].into_iter().flatten().min();
        let time = due.and_then(|due| Timespec::try_from(std::time::Duration::from(due.since(now))).ok());
        let mut sources: Vec<PollFd<'_>> =
            self.taps.iter().map(|tap| PollFd::from_borrowed_fd(tap.as_fd(), PollFlags::IN)).collect();
        sources.push(PollFd::new(&self.signals, PollFlags::IN));
        match poll(&mut sources, time.as_ref()) {
            Ok(_) => Ok(sources.last().is_some_and(|signals| !signals.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(format!("cannot wait: {error}")),
        }
    }

    /// Prints the results. Returns true if the client found no error.
    fn finish(mut self) -> Result<bool, String> {
        print!("{}", self.services.report(self.clock.now(), &self.stack));
        for tap in self.taps.iter().filter(|tap| tap.unfit > 0) {
            println!("{}: {} frames that the device or the kernel did not take", tap.name, tap.unfit);
        }
        if let Some(client) = &self.client {
            print!("{}", client.report());
        }
        let left_out = self.stack.stop_capture();
        if left_out > 0 {
            println!("left out of the capture: {left_out} frames");
        }
        Ok(self.client.as_ref().is_none_or(Client::is_sound))
    }
}

/// The stack's clock: it starts with the time of day, which captures need, and then runs monotonically.
struct Clock {
    began: std::time::Instant,
    at_began: Instant,
}

impl Clock {
    fn start() -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: std::time::Instant::now(), at_began: Instant::from_ns(0) + Duration::from(time) }
    }

    fn now(&self) -> Instant {
        self.at_began + Duration::from(self.began.elapsed())
    }
}

/// Returns random bytes from the operating system.
fn drawn<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(count) if count == N => Ok(bytes),
        Ok(_) => Err("the system gave too few random bytes".into()),
        Err(error) => Err(format!("cannot draw random bytes: {error}")),
    }
}

/// Opens the devices, and adds them and the routes to the stack.
fn open_devices(options: &Options, stack: &mut Stack) -> Result<Vec<Tap>, String> {
    let mut taps = Vec::new();
    let [a, b, c, d] = drawn()?;
    for (index, option) in (0_u8..).zip(&options.devices) {
        let name = &option.name;
        let tap = Tap::open(option, options.tun, options.offload)
            .map_err(|error| format!("cannot make {name}: {error}; run tap as root, on a kernel with /dev/net/tun"))?;
        let medium = if options.tun { Medium::Ip } else { Medium::Ethernet(MacAddress([2, a, b, c, d, index])) };
        let agreed = Agreed { checksum_unfilled: options.offload, large_segments: options.offload };
        let config = DeviceConfig { medium, mtu: option.mtu, addresses: option.addresses.clone(), agreed };
        stack.add_device(config).map_err(|error| format!("the stack refuses {name}: {error:?}"))?;
        taps.push(tap);
    }
    for route in &options.routes {
        let gateway = route.gateway;
        let Some(Target::Via { device, gateway: None }) = stack.routes().lookup(gateway) else {
            return Err(format!("the gateway {gateway} is on no device's network"));
        };
        let added = stack.add_route(route.prefix, device, Some(gateway));
        added.map_err(|error| format!("the stack refuses the route through {gateway}: {error:?}"))?;
    }
    Ok(taps)
}

fn catch_signals() -> std::io::Result<UnixStream> {
    let (receiver, sender) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    Ok(receiver)
}
