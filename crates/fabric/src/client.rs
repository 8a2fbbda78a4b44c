//! The client side of the connection to a control program. The command line and applications use this module to start and end
//! networks and to send requests.

use crate::control::{CONTROL_ARGUMENTS, TAKE_OVER_TIME_MAX, has_hung_up, topology_in, topology_left_in};
use crate::convert;
use crate::files::through;
use crate::isolate::launch::{Process, Program};
use crate::limits::{ANSWER_TIME_MAX, START_TIME_MAX, TAKE_UP_TIME_MAX};
use crate::protocol::channel::{Channel, Ended};
use crate::protocol::message::PROTOCOL;
use crate::protocol::request::{Answer, Moment, Request, TimedRequest};
use crate::protocol::secret::Secret;
use crate::rundir::{self, RunDir};
use crate::tcp_settings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, geteuid};
use siga_iucv::broker::{HalfEnd, Terms};
use siga_iucv::client::ApplicationEnd;
use siga_iucv::passing::Passing;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::Topology;
use siga_ring::{NotifyFd, WakeFd};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A connection to the control program of a network.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    /// The time until which the control program must answer `TakenUp` to the current request. `None` if it has done so, or if there
    /// is no request.
    take_up_until: Option<Instant>,
}

/// The additional time that a client waits for a control program, beyond the sum of the control program's own time limits.
const GRACE: Duration = Duration::from_secs(20);

/// Starts a network: first its control program, then its guests. If the network's control program has died, the new control program
/// adopts the guests that still run.
///
/// # Errors
/// Returns an error if the topology is invalid, the network is already up, or a guest does not start. After an error, nothing of a
/// new network remains.
pub fn up(name: &Name, text: &str) -> Result<Client> {
    start(&rundir::base()?, name, text, false).map(|(client, _)| client)
}

/// A network that is taken down when this value is dropped or when this process ends for any reason.
#[derive(Debug)]
pub struct Leased {
    /// The connection to the control program. The network is taken down when this connection is closed.
    pub client: Client,
    control: Process,
}

impl Leased {
    /// Starts a network whose files are in a directory below `base`. When the network is taken down, both directories are removed.
    /// But `base` is kept if it contains other files.
    ///
    /// # Errors
    /// Returns the same errors as [`up`].
    pub fn up_at(base: &Path, name: &Name, text: &str) -> Result<Self> {
        let (client, control) = start(base, name, text, true)?;
        Ok(Self { client, control })
    }

    /// Returns the process id of the control program.
    pub fn control(&self) -> Pid {
        self.control.pid()
    }

    /// Takes the network down, and returns when none of its processes and files remains.
    ///
    /// # Errors
    /// Returns an error if a process or file of the network cannot be removed.
    pub fn down(mut self) -> Result<()> {
        self.client.down()?;
        self.control.wait().map(|_| ())
    }
}

fn start(base: &Path, name: &Name, text: &str, lease: bool) -> Result<(Client, Process)> {
    tcp_settings::check(&Topology::parse(text)?)?;
    start_with(
        &Program::load()?,
        base,
        Request::Start { name: name.clone(), topology: text.to_owned(), lease, takes_over: false },
    )
}

/// Starts a control program, and waits until it has started or adopted the guests.
pub(crate) fn start_with(program: &Program, base: &Path, start: Request) -> Result<(Client, Process)> {
    let (channel, other) = Channel::pair()?;
    let base = std::path::absolute(base).context(format!("cannot find the absolute path of {}", base.display()))?;
    let arguments = CONTROL_ARGUMENTS.iter().map(PathBuf::from).chain([base]);
    let process = program.start(arguments, other)?;
    let mut client = Client::over(channel);
    client.ask(start, Vec::new())?;
    match client.outcome(START_TIME_MAX + ANSWER_TIME_MAX + GRACE) {
        Ok(()) => Ok((client, process)),
        Err(error) => {
            // The control program ends by itself. Wait for its end, so that the next start does not find it still running. The wait
            // has a limit, because a signal may have suspended the process.
            let time =
                Timespec::try_from(GRACE).context("the timeout for an answer of the control program is too long")?;
            let _ = poll(&mut [PollFd::from_borrowed_fd(process.pidfd(), PollFlags::IN)], Some(&time));
            Err(error)
        }
    }
}

/// Takes a network down, even if its control program has died.
///
/// # Errors
/// Returns an error if the network does not exist, or if one of its processes or files cannot be removed.
pub fn down(name: &Name) -> Result<()> {
    let base = rundir::base()?;
    let run = RunDir::open(&base, name)?.ok_or_else(|| unknown(&base, name))?;
    let Err(error) = Client::connect_to(&run, &base, name).and_then(|mut client| client.down()) else { return Ok(()) };
    match topology_left_in(&run)? {
        // The control program has died, perhaps just now. Start a new one, which adopts the guests and ends them.
        Some(topology) => up(name, &topology).map_err(|_| error)?.down(),
        None if run.is_network() => run.remove_dead(),
        None => Err(error),
    }
}

/// Returns the topology of a network that is up, with the access that is granted now.
///
/// # Errors
/// Returns an error if the network does not exist, or if its state is damaged.
pub fn topology_of(name: &Name) -> Result<Topology> {
    let base = rundir::base()?;
    let run = RunDir::open(&base, name)?.ok_or_else(|| unknown(&base, name))?;
    topology_in(&run)?.ok_or_else(|| unknown(&base, name))
}

/// Returns the error for an unknown network. The hint lists the networks that are up.
pub(crate) fn unknown(base: &Path, name: &Name) -> Error {
    let known = match RunDir::all(base) {
        Ok(known) => known,
        Err(error) => return error,
    };
    let known: Vec<&str> = known.iter().map(Name::as_str).collect();
    let hint = if known.is_empty() {
        "no network is up".to_owned()
    } else {
        format!("these networks are up: {}", known.join(", "))
    };
    Error::usage(format!("there is no network {name}")).hint(hint)
}

impl Client {
    /// Connects to the control program of a network. The control program must run as the same user as this process.
    ///
    /// # Errors
    /// Returns an error if there is no control program, or if other users may write to its directory or socket. Also returns an
    /// error if a process of another user listens on the socket.
    pub fn connect(name: &Name) -> Result<Self> {
        Self::connect_at(&rundir::base()?, name)
    }

    /// Connects like [`Client::connect`], but to a network whose files are below `base`.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::connect`].
    pub fn connect_at(base: &Path, name: &Name) -> Result<Self> {
        let run = RunDir::open(base, name)?.ok_or_else(|| unknown(base, name))?;
        Self::connect_to(&run, base, name)
    }

    fn connect_to(run: &RunDir, base: &Path, name: &Name) -> Result<Self> {
        let dead = || {
            let message = format!("network {name} has no control program; its guests continue without it");
            Error::environment(message)
                .hint("run `siga net up TOPOLOGY` to start a control program, which takes over the guests")
        };
        let Some(place) = run.control_socket()? else {
            return Err(if run.is_network() { dead() } else { unknown(base, name).at(run.path().display()) });
        };
        let at = || format!("cannot connect to {}", run.path().join("control").display());
        // Connect through a path in `/proc/self/fd`, because it leads to the same socket that was checked, and is short enough for
        // a socket address.
        let address = SocketAddrUnix::new(through(&place)).context(at())?;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .context("cannot create a socket for requests to the control program")?;
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(GRACE))
            .context("cannot set a time limit for requests to the control program")?;
        match net::connect(&socket, &address) {
            Ok(()) => is_served_by_this_user(&socket, run)?,
            Err(Errno::CONNREFUSED) => return Err(dead()),
            Err(Errno::AGAIN) => {
                return Err(Error::environment(format!("{}: the control program accepts no connections", at())));
            }
            Err(error) => return Err(error).context(at()),
        }
        Ok(Self::over(Channel::new(socket)?))
    }

    /// Returns the id of the control program's process.
    pub fn control_pid(&self) -> Option<u32> {
        let peer = sockopt::socket_peercred(&self.channel).ok()?;
        Some(peer.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Returns the channel of this connection.
    pub(crate) fn into_channel(self) -> Channel {
        self.channel
    }

    fn over(channel: Channel) -> Self {
        Self { channel, take_up_until: None }
    }

    /// Sends a request. The control program does not carry out the request if it reads it later than [`TAKE_UP_TIME_MAX`] from now,
    /// or after this connection was closed.
    ///
    /// # Errors
    /// Returns an error if the control program has ended.
    pub fn ask(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Result<()> {
        let request = TimedRequest { request, until: Moment::now().after(TAKE_UP_TIME_MAX) };
        // The control program may accept the request at the last moment. The extra second is for its acknowledgement to arrive.
        self.take_up_until = Some(Instant::now() + TAKE_UP_TIME_MAX + Duration::from_secs(1));
        Ok(self.channel.send(&request, descriptors)?)
    }

    /// Returns the next answer, or `None` if no answer arrives within `time`.
    ///
    /// # Errors
    /// Returns an error if the control program refuses the request or has ended.
    pub fn answer(&mut self, time: Duration) -> Result<Option<Answer>> {
        Ok(self.answer_with_descriptors(time)?.map(|(answer, _)| answer))
    }

    /// Returns the next answer and the descriptors that it carries, or `None` if no answer arrives within `time`.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::answer`].
    pub fn answer_with_descriptors(&mut self, time: Duration) -> Result<Option<(Answer, Vec<OwnedFd>)>> {
        loop {
            let received = self.channel.receive::<Answer>();
            if !matches!(received, Ok(None)) {
                self.take_up_until = None;
            }
            match received {
                Ok(Some((Answer::TakenUp, _))) => continue,
                Ok(Some((Answer::Failed(error), _))) => return Err(error),
                Ok(Some(answer)) => return Ok(Some(answer)),
                Err(Ended::Closed) => return Err(Error::environment("the control program has ended")),
                Err(Ended::Malformed(what)) => {
                    return Err(Error::environment(format!("the control program sent an invalid answer: {what}")));
                }
                Ok(None) => {}
            }
            let left = self.take_up_until.map(|until| until.saturating_duration_since(Instant::now()));
            let limit = Timespec::try_from(left.map_or(time, |left| left.min(time)))
                .context("the timeout for an answer of the control program is too long")?;
            match poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&limit)) {
                Ok(0) if left.is_some_and(|left| left <= time) => return Err(self.not_taken_up()),
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for an answer of the control program"),
            }
        }
    }

    /// Returns the error for a control program that did not acknowledge the request in time.
    fn not_taken_up(&self) -> Error {
        let seconds = TAKE_UP_TIME_MAX.as_secs();
        let pid = sockopt::socket_peercred(&self.channel).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        let message = format!("the control program (process {pid}) did not accept the request within {seconds} s");
        Error::environment(message)
            .hint(format!("the request had no effect; if the process is suspended, resume it with `kill -CONT {pid}`"))
    }

    /// Receives all answers to a request, up to [`Answer::Done`].
    ///
    /// # Errors
    /// Returns an error if the control program refuses the request, has ended, or does not answer within `time`.
    pub fn answers(&mut self, time: Duration) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        loop {
            match self.answer(time)? {
                Some(Answer::Done) => return Ok(answers),
                Some(answer) => answers.push(answer),
                None => return Err(Error::environment("the control program does not answer")),
            }
        }
    }

    /// Waits for the last answer to a request, and discards the answers.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::answers`].
    pub fn outcome(&mut self, time: Duration) -> Result<()> {
        self.answers(time).map(|_| ())
    }

    /// Sends a request and waits for all answers.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::answers`].
    pub fn request(&mut self, request: Request) -> Result<Vec<Answer>> {
        self.ask(request, Vec::new())?;
        self.answers(START_TIME_MAX + GRACE)
    }

    /// Makes a request like [`Client::request`]. If another control program takes the network over meanwhile, makes the request there
    /// again. The request must not be harmful if it is carried out twice.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::answers`] and [`Client::connect`].
    pub fn request_again(&mut self, name: &Name, request: impl Fn() -> Request) -> Result<Vec<Answer>> {
        let outcome = self.request(request());
        if outcome.is_ok() || !has_hung_up(&self.channel).unwrap_or(true) {
            return outcome;
        }
        let until = Instant::now() + TAKE_OVER_TIME_MAX;
        while let Err(error) = Self::connect(name).map(|client| *self = client) {
            if Instant::now() >= until {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.request(request())
    }

    fn down(&mut self) -> Result<()> {
        self.ask(Request::Down, Vec::new())?;
        self.outcome(ANSWER_TIME_MAX * 2 + GRACE)
    }

    /// Makes this process an application of a guest. Afterwards the process uses the guest's stack over shared memory, and no
    /// longer needs the control program.
    ///
    /// # Errors
    /// Returns an error if the control program or the guest refuses, or if the host has too little memory.
    pub fn use_stack(mut self, guest: &Name, secret: &Secret) -> Result<ApplicationEnd> {
        let (terms, doorbell, passing) = self.begin_application(guest, secret, None)?;
        let half = HalfEnd::new(terms).context("cannot allocate memory that an application shares with its guest")?;
        let copies = half.memory.each_ref().map(OwnedFd::try_clone);
        let copies = copies
            .into_iter()
            .collect::<std::io::Result<Vec<_>>>()
            .context("cannot duplicate the file descriptors of an application's memory")?;
        let memory = self.exchange_memory(copies)?;
        let [notify, wake] = doorbell;
        let completed =
            NotifyFd::from_fd(notify).and_then(|notify| half.complete(notify, WakeFd::from_fd(wake)?, memory));
        let completed =
            completed.and_then(|end| Ok(ApplicationEnd { passing: Some(Passing::from_fd(passing)?), ..end }));
        completed.context("cannot map the memory that the guest shares with this application")
    }

    /// Begins to make a process an application of a guest. Returns what the process needs to make its memory, the notify and the wake
    /// descriptor, and the socket over which guest and application pass descriptors. [`Client::exchange_memory`] is the next step.
    /// `process` is the id of the process that becomes the application, if it is not this process.
    ///
    /// # Errors
    /// Returns an error if the control program or the guest refuses.
    pub fn begin_application(
        &mut self,
        guest: &Name,
        secret: &Secret,
        process: Option<u32>,
    ) -> Result<(Terms, [OwnedFd; 2], OwnedFd)> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let request =
            Request::Application { protocol: PROTOCOL, version, guest: guest.clone(), secret: secret.clone(), process };
        self.ask(request, Vec::new())?;
        let Some((Answer::Application { arena_bytes, waiting, colocate }, doorbell)) =
            self.answer_with_descriptors(GRACE)?
        else {
            return Err(application_without_answer());
        };
        let [notify, wake, passing] = doorbell.try_into().map_err(|_| application_without_answer())?;
        Ok((Terms { arena_bytes, waiting: convert::mode(waiting), colocate }, [notify, wake], passing))
    }

    /// Passes the memory files of an application's ring and arena to the guest. Returns those of the guest.
    ///
    /// # Errors
    /// Returns an error if the control program or the guest refuses.
    pub fn exchange_memory(&mut self, memory: Vec<OwnedFd>) -> Result<[OwnedFd; 2]> {
        self.ask(Request::ApplicationMemory, memory)?;
        let Some((Answer::ApplicationMemory, memory)) = self.answer_with_descriptors(GRACE)? else {
            return Err(application_without_answer());
        };
        memory.try_into().map_err(|_| application_without_answer())
    }

    /// Attaches this process as an external guest. Returns the guest's channel to the control program.
    ///
    /// # Errors
    /// Returns an error if the control program refuses the secret or the version, or if the guest is already attached.
    pub fn attach(mut self, guest: &Name, secret: &Secret) -> Result<Channel> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let request = Request::Attach { protocol: PROTOCOL, version, guest: guest.clone(), secret: secret.clone() };
        self.ask(request, Vec::new())?;
        match self.answer(GRACE)? {
            Some(Answer::Welcome) => Ok(self.channel),
            _ => Err(Error::environment("the control program does not answer")),
        }
    }
}

fn application_without_answer() -> Error {
    Error::environment("the control program did not send the memory and descriptors of an application")
}

/// Returns an error if a process of another user listens on the other end of this connection. The kernel reports the user of the
/// listening process.
fn is_served_by_this_user(socket: impl AsFd, run: &RunDir) -> Result<()> {
    let server = sockopt::socket_peercred(socket).context("cannot identify the user of the control program")?.uid;
    let own = geteuid();
    if server == own {
        return Ok(());
    }
    let path = run.path().join("control");
    let message =
        format!("the process that listens at {} belongs to user {server}, but you are user {own}", path.display());
    Err(Error::environment(message).hint("end that process, and start the network again"))
}
