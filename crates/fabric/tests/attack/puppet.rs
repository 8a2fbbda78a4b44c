//! What the attack test starts: `control KIND` stands in for a control program, `victim KIND` for what it starts.
//!
//! A control answers each line on its standard input with one line. Victims are `confined` as guests are, `application` as
//! programs beside a stack are, `late` hidden by themselves and not by how they are started, or `bare`; a `starter` starts
//! one that is confined, and passes questions on to it. `net ...` are the commands by which networks of such processes run.

mod deeds;
mod rogue;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{accept_with, bind, connect, getsockname, listen, recv, send, shutdown, socket_with, socketpair};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal};
use rustix::process::{getpid, getrlimit, pidfd_getfd, pidfd_open, setrlimit};
use rustix::thread::{sched_getaffinity, sched_yield};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use siga_fabric::isolate::launch::{Process, Program, channel};
use siga_fabric::isolate::{Profile, confine, hide};
use siga_fabric::protocol::request::{Answer, Request};
use siga_model::error::{Error, IoContext, Result};
use siga_ring::{NotifyFd, doorbell, memory_file};
use std::fs::{File, read_dir, read_to_string};
use std::io::{self, BufRead, Write, stdin, stdout};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The type of a memory file system in fstatfs(2).
const TMPFS_MAGIC: i64 = 0x0102_1994;

const SECRET: &str = "the frames of somebody else";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["control", kind] => control(kind),
        ["victim", kind] => victim(kind),
        ["net", "up", name, topology] => up(name, topology),
        ["net", "down", name] => name.parse().and_then(|name| siga_fabric::client::down(&name)),
        ["net", "ping", name, guest, to] => ping(name, guest, to),
        ["net", "control", base] => siga_fabric::upgrade::run_control(Path::new(base)),
        ["net", "guest", _] => rogue::guest(),
        _ => Err(Error::usage("a helper of the attack test")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("puppet: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a network below `SIGA_RUN_DIR`.
fn up(name: &str, topology: &str) -> Result<()> {
    let text = read_to_string(topology).context("cannot read the topology")?;
    siga_fabric::client::up(&name.parse()?, &text).map(drop)
}

/// Has a guest of a network below `SIGA_RUN_DIR` send an echo request that is to be answered.
fn ping(name: &str, guest: &str, to: &str) -> Result<()> {
    let (guest, to) = (guest.parse()?, to.parse().context("no address")?);
    let request = Request::Ping { guest, to, bytes: 56, timeout_ms: 20_000 };
    match siga_fabric::client::Client::connect(&name.parse()?)?.request(request)?[..] {
        [Answer::Pong { time_ns: Some(_) }] => Ok(()),
        _ => Err(Error::environment("no answer")),
    }
}

/// A victim, with our end of its channel.
struct Held {
    process: Started,
    channel: OwnedFd,
}

enum Started {
    Guest(Process),
    Plain(Child),
}

fn control(kind: &str) -> Result<()> {
    let program = if ["confined", "starter"].contains(&kind) { Some(Program::load()?) } else { None };
    if program.is_none() {
        // So that a core is left, where one can be.
        let maximum = getrlimit(Resource::Core).maximum;
        setrlimit(Resource::Core, Rlimit { current: maximum, maximum }).context("cannot allow core dumps")?;
    }
    let mut held = None;
    for line in stdin().lock().lines() {
        let line = line.context("standard input")?;
        let answer = match (line.as_str(), held.take()) {
            ("exposed", none) => {
                held = none;
                program.as_ref().and_then(Program::exposed).unwrap_or("no").to_owned()
            }
            ("start", None) => {
                let mut started = start(program.as_ref(), kind)?;
                match started.ask("where") {
                    Ok(place) => {
                        let answer = format!("{} {place}", started.process.pid());
                        held = Some(started);
                        answer
                    }
                    // It has ended before it could answer.
                    Err(_) => exit_text(started.process.wait()?),
                }
            }
            ("end", Some(mut victim)) => {
                drop(victim.channel);
                exit_text(victim.process.wait()?)
            }
            ("wait", Some(mut victim)) => exit_text(victim.process.wait()?),
            ("kill", Some(mut victim)) => {
                victim.process.kill()?;
                exit_text(victim.process.wait()?)
            }
            (question, Some(victim)) => {
                let answer = victim.ask(question)?;
                held = Some(victim);
                answer
            }
            (order, None) => return Err(Error::usage(format!("{order} without a victim"))),
        };
        writeln!(stdout(), "{answer}").context("standard output")?;
    }
    Ok(())
}

fn exit_text(status: ExitStatus) -> String {
    let core = if status.core_dumped() { " with a core" } else { "" };
    match status.signal() {
        Some(signal) => format!("signal {signal}{core}"),
        None => format!("status {}", status.code().unwrap_or(-1)),
    }
}

fn start(program: Option<&Program>, kind: &str) -> Result<Held> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (channel, theirs) = pair.context("cannot create a channel")?;
    let process = match program {
        Some(program) => Started::Guest(program.start(["victim", kind], theirs)?),
        None => {
            let mut command = Command::new("/proc/self/exe");
            let child = command.args(["victim", kind]).stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn();
            Started::Plain(child.context("cannot start a victim")?)
        }
    };
    Ok(Held { process, channel })
}

impl Held {
    /// Asks the victim; its answer is empty if it ended over the question.
    fn ask(&self, question: &str) -> Result<String> {
        send(&self.channel, question.as_bytes(), SendFlags::NOSIGNAL).context("cannot ask")?;
        receive(&self.channel)
    }
}

impl Started {
    fn pid(&self) -> u32 {
        match self {
            Self::Guest(process) => process.pid().as_raw_nonzero().get().unsigned_abs(),
            Self::Plain(child) => child.id(),
        }
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        match self {
            Self::Guest(process) => process.wait(),
            Self::Plain(child) => child.wait().context("cannot wait"),
        }
    }

    fn kill(&mut self) -> Result<()> {
        match self {
            Self::Guest(process) => process.signal(Signal::KILL),
            Self::Plain(child) => child.kill().context("cannot kill"),
        }
    }
}

fn receive(channel: &OwnedFd) -> Result<String> {
    let mut bytes = [0; 256];
    let (length, _) = recv(channel, &mut bytes, RecvFlags::empty()).context("cannot receive")?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

fn victim(kind: &str) -> Result<()> {
    if kind != "bare" {
        hide()?;
    }
    let channel = channel()?;
    if kind == "starter" {
        return pass_on(&channel);
    }
    let inherited = inherited()?;
    let visited = visited().context("cannot create a listening socket")?;
    let (order, orders) = mpsc::channel::<mpsc::Sender<String>>();
    if kind != "confined" {
        // A thread from before is under the same rules.
        thread::spawn(move || orders.iter().try_for_each(|answer| answer.send(outcome_text(own_descriptor()))));
    }
    let confinement = match kind {
        "confined" => confine(Profile::Guest)?.to_string(),
        "application" => confine(Profile::Application)?.to_string(),
        _ => kind.to_owned(),
    };
    let secret = SECRET.as_bytes().to_vec();
    loop {
        let question = receive(&channel)?;
        let answer = match question.as_str() {
            "" => return Ok(()),
            "where" => format!("{} {}", secret.as_ptr().addr(), secret.len()),
            "secret" => String::from_utf8_lossy(&secret).into_owned(),
            "confinement" => confinement.clone(),
            "inherited" => inherited.clone(),
            "linger" => linger(&channel)?,
            "work" => outcome_text(work(&visited)),
            "open" => outcome_text(File::open("/etc/passwd")),
            "socket" => outcome_text(UdpSocket::bind("127.0.0.1:0")),
            "child" => outcome_text(Command::new("true").status()),
            "thread" => outcome_text(thread::Builder::new().spawn(|| ())),
            "exec" => Command::new("/bin/true").exec().to_string(),
            "descriptor" => outcome_text(own_descriptor()),
            "descriptor of another thread" => {
                let (answer, answers) = mpsc::channel();
                order.send(answer).context("no thread")?;
                answers.recv().context("no answer")?
            }
            other => return Err(Error::usage(format!("{other} is no question"))),
        };
        send(&channel, answer.as_bytes(), SendFlags::NOSIGNAL).context("cannot answer")?;
    }
}

fn pass_on(channel: &OwnedFd) -> Result<()> {
    let held = start(Some(&Program::load()?), "confined")?;
    loop {
        let question = receive(channel)?;
        if question.is_empty() {
            return Ok(());
        }
        send(channel, held.ask(&question)?.as_bytes(), SendFlags::NOSIGNAL).context("cannot answer")?;
    }
}

fn outcome_text<T, E: std::fmt::Display>(outcome: std::result::Result<T, E>) -> String {
    outcome.map_or_else(|error| error.to_string(), |_| "done".to_owned())
}

/// A listening socket with a visitor at its door, and what a guest gets from its control program.
struct Visited {
    listener: OwnedFd,
    visitor: OwnedFd,
    notify_fd: OwnedFd,
    wake_fd: OwnedFd,
    memory: OwnedFd,
}

fn visited() -> io::Result<Visited> {
    let open = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (listener, visitor) = (open()?, open()?);
    // The kernel finds a name.
    bind(&listener, &SocketAddrUnix::new_unnamed())?;
    listen(&listener, 1)?;
    connect(&visitor, &getsockname(&listener)?)?;
    let (notify_fd, wake_fd) = doorbell::pair()?;
    Ok(Visited {
        listener,
        visitor,
        notify_fd: notify_fd.into(),
        wake_fd: wake_fd.into(),
        memory: memory_file(1 << 20)?,
    })
}

/// What the event loop of a guest asks of the kernel.
fn work(visited: &Visited) -> io::Result<()> {
    let memory = &visited.memory;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    fcntl_add_seals(memory, seals)?;
    let file_system = fstatfs(memory)?.f_type;
    if !fcntl_get_seals(memory)?.contains(seals) || fstat(memory)?.st_size != 1 << 20 || file_system != TMPFS_MAGIC {
        return Err(io::Error::other("the memory is not as it was made"));
    }

    let guest = accept_with(&visited.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    socket_peercred(&guest)?;
    send(&visited.visitor, b"hello", SendFlags::NOSIGNAL)?;
    let (doorbell, rung) = (NotifyFd::from_fd(visited.notify_fd.try_clone()?)?, &visited.wake_fd);
    doorbell.notify();
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let soon = Itimerspec { it_interval: Timespec::default(), it_value: Timespec { tv_sec: 0, tv_nsec: 1 } };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &soon)?;
    let counter = eventfd(1, EventfdFlags::CLOEXEC)?;
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, descriptor) in (0..).zip([guest.as_fd(), rung.as_fd(), timer.as_fd(), counter.as_fd()]) {
        epoll::add(&ready, descriptor, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    let mut told = [false; 4];
    while told.contains(&false) {
        let mut events = Vec::with_capacity(4);
        epoll::wait(&ready, spare_capacity(&mut events), Some(&Timespec { tv_sec: 10, tv_nsec: 0 }))?;
        if events.is_empty() {
            return Err(io::Error::other("not all that is ready is told of"));
        }
        events.iter().for_each(|event| told[usize::try_from(event.data.u64()).unwrap_or(0)] = true);
    }
    poll(&mut [PollFd::new(&guest, PollFlags::IN)], Some(&Timespec::default()))?;

    // A guest that grows gets memory in every way that the allocator knows.
    let mut grown: Vec<u8> = Vec::new();
    (0..8).for_each(|step| grown.resize(4 << (3 * step), 1));
    sched_yield();
    thread::sleep(Duration::from_nanos(1));
    sched_getaffinity(None)?;
    siga_ring::sys::set_slice(100_000)?;
    shutdown(&guest, Shutdown::Both)?;
    Ok(())
}

/// What the kernel grants any process: a descriptor of its own by pidfd_getfd(2).
fn own_descriptor() -> io::Result<OwnedFd> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(own, 0, PidfdGetfdFlags::empty())?)
}

/// What a process has from who started it, as one line.
fn inherited() -> Result<String> {
    let mut open = Vec::new();
    for entry in read_dir("/proc/self/fd").context("descriptors")? {
        open.push(entry.context("descriptors")?.file_name().to_string_lossy().into_owned());
    }
    open.sort();
    let status = read_to_string("/proc/self/status").context("status")?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    let place = std::env::current_dir().context("directory")?;
    // Not `getsid`, whose 0 for a session that began outside this process namespace rustix takes for impossible.
    let leader = field("NSsid:") == getpid().to_string();
    let (ignored, blocked, variables) = (field("SigIgn:"), field("SigBlk:"), std::env::vars_os().count());
    Ok(format!("open {open:?} ignored {ignored} blocked {blocked} variables {variables} in {place:?} leader {leader}"))
}

/// Outlives the control, and says so.
fn linger(channel: &OwnedFd) -> Result<String> {
    send(channel, b"lingering", SendFlags::NOSIGNAL).context("cannot answer")?;
    let end = receive(channel)?;
    eprintln!("the victim is still there");
    Ok(end)
}
