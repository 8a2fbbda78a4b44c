//! Starts QEMU, passes the command's output on, and ends QEMU.
//!
//! Everything goes through inherited descriptors: the initramfs is a memory file, the console and the ports are pipes. So there
//! is no temporary file. `setpriv` lets the kernel kill QEMU if this process ends in whatever way.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;

use super::image::Image;
use super::initramfs::{self, Job};
use super::qemu::{Accelerator, Machine, PROGRAM, Share};

/// The longest time from the start of QEMU to the command. An emulated machine on a busy host needs 10 s.
const BOOT_TIME_MAX: Duration = Duration::from_secs(90);

/// The longest time in which a killed QEMU ends. One that hangs in KVM may never do so.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// The most bytes that the machine's messages may have. A few hundred are usual, but the command may write to the port as well.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// The most bytes of the console's messages that are kept. The last ones are.
const CONSOLE_BYTES_MAX: usize = 1 << 20;

/// The size of a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
}

/// A failure of the machine, with the messages of the kernel and of QEMU.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: String,
    pub(crate) console: Vec<u8>,
}

/// A message of the scripts in the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Message {
    /// The kernel runs, and its devices work.
    Up,
    /// The command begins.
    Start,
    /// The machine cannot run the command.
    Error(String),
    /// The command has ended.
    Exit { status: u8, output_bytes: Output<u64> },
}

/// A value for each of the command's outputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Output<T> {
    stdout: T,
    stderr: T,
}

#[derive(Debug)]
enum Event {
    Message(Message),
    Stdout(u64),
    Stderr(u64),
    /// Output of the command cannot be written.
    Lost(io::Error),
    /// QEMU has closed its pipes.
    Ended,
}

/// Boots a machine for at most `time`. Returns whether its kernel started.
pub(crate) fn probe(image: &Image, accelerator: Accelerator, time: Duration) -> Result<bool, String> {
    let size = Size { cpus: 1, memory_mib: 256 };
    let mut running = Running::start(image, accelerator, size, &Job::Probe)?;
    let first = running.events.recv_timeout(time);
    let is_up = matches!(first, Ok(Event::Message(Message::Up)));
    running.end();
    Ok(is_up)
}

/// Runs the command of `job` and returns its exit status.
pub(crate) fn run(
    image: &Image,
    accelerator: Accelerator,
    size: Size,
    job: &Job,
    time: Duration,
) -> Result<u8, Failure> {
    let without_console = |what| Failure { what, console: Vec::new() };
    let mut running = Running::start(image, accelerator, size, job).map_err(without_console)?;
    let outcome = running.status(time);
    let status = running.end();
    outcome.map_err(|end| {
        let console = running.console();
        let what = match end {
            End::Because(what) => what,
            End::Qemu => reason(&console, status),
        };
        Failure { what, console }
    })
}

/// The cause of a failure.
enum End {
    Because(String),
    /// QEMU ended by itself.
    Qemu,
}

/// A running QEMU. Its end is the end of the machine, because QEMU has no other processes.
struct Running {
    qemu: Child,
    events: Receiver<Event>,
    console: Arc<Mutex<Vec<u8>>>,
}

impl Running {
    fn start(image: &Image, accelerator: Accelerator, size: Size, job: &Job) -> Result<Self, String> {
        let archive = initramfs::archive(image, job)?;
        let context = |error| format!("cannot start the machine: {error}");
        let mut initramfs = File::from(
            rustix::fs::memfd_create("initramfs", MemfdFlags::empty()).map_err(|error| context(error.into()))?,
        );
        initramfs.write_all(&archive).map_err(context)?;
        let (console, console_writer) = inherited_pipe().map_err(context)?;
        let (control, control_writer) = inherited_pipe().map_err(context)?;
        let (stdout, stdout_writer) = inherited_pipe().map_err(context)?;
        let (stderr, stderr_writer) = inherited_pipe().map_err(context)?;
        let machine = Machine {
            accelerator,
            cpus: size.cpus,
            memory_mib: size.memory_mib,
            kernel: image.kernel(),
            initramfs: initramfs.as_raw_fd(),
            console: console_writer.as_raw_fd(),
            ports: vec![
                ("control", control_writer.as_raw_fd()),
                ("stdout", stdout_writer.as_raw_fd()),
                ("stderr", stderr_writer.as_raw_fd()),
            ],
            shares: shares(image, job),
        };
        let qemu = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", PROGRAM.0])
            .args(machine.arguments())
            .stdin(Stdio::null())
            .stdout(console_writer.try_clone().map_err(context)?)
            .stderr(console_writer.try_clone().map_err(context)?)
            .spawn()
            .map_err(context)?;
        drop((initramfs, console_writer, control_writer, stdout_writer, stderr_writer));

        let (sender, events) = mpsc::channel();
        let of_stdout = sender.clone();
        thread::spawn(move || pass_on(stdout, io::stdout(), Event::Stdout, &of_stdout));
        let of_stderr = sender.clone();
        thread::spawn(move || pass_on(stderr, io::stderr(), Event::Stderr, &of_stderr));
        thread::spawn(move || read_messages(control, &sender));
        let text = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&text);
        thread::spawn(move || keep(console, &copy));
        Ok(Self { qemu, events, console: text })
    }

    /// Waits for the command's exit status and for all of its output.
    fn status(&self, time: Duration) -> Result<u8, End> {
        let begun = Instant::now();
        let mut limit = BOOT_TIME_MAX.min(time);
        let mut has_started = false;
        let mut copied = Output::default();
        let mut exit = None;
        loop {
            if let Some((status, expected)) = exit
                && expected == copied
            {
                return Ok(status);
            }
            match self.events.recv_timeout(limit.saturating_sub(begun.elapsed())) {
                Ok(Event::Message(Message::Up)) => {}
                Ok(Event::Message(Message::Start)) => (has_started, limit) = (true, time),
                Ok(Event::Message(Message::Error(what))) => return Err(End::Because(what)),
                Ok(Event::Message(Message::Exit { status, output_bytes })) => exit = Some((status, output_bytes)),
                Ok(Event::Stdout(bytes)) => copied.stdout += bytes,
                Ok(Event::Stderr(bytes)) => copied.stderr += bytes,
                Ok(Event::Lost(error)) => {
                    return Err(End::Because(format!("cannot write the command's output: {error}")));
                }
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return Err(End::Qemu),
                Err(RecvTimeoutError::Timeout) => {
                    let what = if has_started { "the command did not end" } else { "the machine did not boot" };
                    return Err(End::Because(format!("{what} within {} s", limit.as_secs())));
                }
            }
        }
    }

    /// Kills QEMU if it runs, and returns its exit status if it ends.
    fn end(&mut self) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < END_TIME_MAX {
            if let Ok(Some(status)) = self.qemu.try_wait() {
                return Some(status);
            }
            // A QEMU that is just ending by itself keeps its exit status. The only possible error is that it has ended.
            let _ = self.qemu.kill();
            thread::sleep(Duration::from_millis(10));
        }
        None
    }

    fn console(&self) -> Vec<u8> {
        self.console.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn shares(image: &Image, job: &Job) -> Vec<Share> {
    let share = |tag, directory, is_writable| Share { tag, directory, is_writable };
    match job {
        Job::Probe => Vec::new(),
        Job::Run { tree, out, .. } => vec![
            share("root", image.root(), false),
            share("tree", tree.clone(), false),
            share("out", out.clone(), true),
        ],
    }
}

/// Returns a pipe whose writer is inherited by programs that this process starts.
fn inherited_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    rustix::io::fcntl_setfd(writer.as_fd(), FdFlags::empty())?;
    Ok((reader, writer))
}

/// Copies `from` to `to` as data arrives, and sends the number of bytes after each copy. A closed pipe is not an error, because its
/// reader may have seen enough.
fn pass_on(mut from: PipeReader, mut to: impl Write, copied: impl Fn(u64) -> Event, events: &Sender<Event>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let event = match to.write_all(&buffer[..length]).and_then(|()| to.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Event::Lost(error),
            Ok(()) | Err(_) => copied(length as u64),
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

fn read_messages(control: PipeReader, events: &Sender<Event>) {
    let mut control = BufReader::new(control.take(MESSAGE_BYTES_MAX));
    for line in control.by_ref().split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let message =
            parse(&line).unwrap_or_else(|| Message::Error(format!("unknown message of the machine: {line:.80}")));
        if events.send(Event::Message(message)).is_err() {
            return;
        }
    }
    // The receiver may have ended.
    let _ = events.send(Event::Ended);
}

fn parse(line: &str) -> Option<Message> {
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    match kind {
        "up" => Some(Message::Up),
        "start" => Some(Message::Start),
        "error" => Some(Message::Error(rest.to_owned())),
        "exit" => {
            let words: Vec<&str> = rest.split(' ').collect();
            let [status, stdout, stderr] = words[..] else { return None };
            let output_bytes = Output { stdout: stdout.parse().ok()?, stderr: stderr.parse().ok()? };
            Some(Message::Exit { status: status.parse().ok()?, output_bytes })
        }
        _ => None,
    }
}

/// Appends what arrives from `console` to `text`. Forgets the older half if `text` is too long.
fn keep(mut console: impl Read, text: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 4_096];
    while let Ok(length @ 1..) = console.read(&mut buffer) {
        let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() + length > CONSOLE_BYTES_MAX {
            text.drain(..CONSOLE_BYTES_MAX / 2);
        }
        text.extend_from_slice(&buffer[..length]);
    }
}

/// Returns why QEMU ended by itself.
fn reason(console: &[u8], status: Option<ExitStatus>) -> String {
    let text = String::from_utf8_lossy(console);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    if let Some(panic) = lines().find(|line| line.contains("Kernel panic")) {
        return format!("the kernel of the machine panicked: {panic}");
    }
    if let Some(error) = lines().find(|line| line.starts_with(PROGRAM.0) || line.starts_with("setpriv: ")) {
        return error.to_owned();
    }
    match status {
        Some(status) if !status.success() => format!("QEMU ended with {status}"),
        _ => "the machine ended before the command did".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_machine_are_understood() {
        let output_bytes = Output { stdout: 12, stderr: 0 };
        assert_eq!(parse("exit 7 12 0"), Some(Message::Exit { status: 7, output_bytes }));
        assert_eq!(parse("error no module"), Some(Message::Error("no module".to_owned())));
        assert_eq!((parse("up"), parse("start")), (Some(Message::Up), Some(Message::Start)));
        for line in ["", "exit", "exit 256 0 0", "exit 7 x 0", "exit 7 0", "ex"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_failure_says_what_ended_the_machine() {
        let panic = b"[ 1.0] boot\n[ 2.1] Kernel panic - not syncing: VFS\n[ 2.2] ---\n";
        assert_eq!(reason(panic, None), "the kernel of the machine panicked: [ 2.1] Kernel panic - not syncing: VFS");
        assert_eq!(reason(b"qemu-system-x86_64: no memory\n", None), "qemu-system-x86_64: no memory");
        assert_eq!(reason(b"", None), "the machine ended before the command did");
    }

    #[test]
    fn output_is_passed_on_and_counted() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"a\0b").unwrap();
        drop(writer);
        let (sender, events) = mpsc::channel();
        let mut copy = Vec::new();
        pass_on(reader, &mut copy, Event::Stdout, &sender);
        assert_eq!(copy, b"a\0b");
        assert!(matches!(events.try_recv(), Ok(Event::Stdout(3))));
    }

    #[test]
    fn output_that_cannot_be_written_is_an_error_unless_its_reader_ended() {
        let event = |to: &mut dyn Write| {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(b"abc").unwrap();
            drop(writer);
            let (sender, events) = mpsc::channel();
            pass_on(reader, to, Event::Stdout, &sender);
            events.try_recv().unwrap()
        };
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        assert!(matches!(event(&mut full), Event::Lost(_)));
        let (reader, mut closed) = io::pipe().unwrap();
        drop(reader);
        assert!(matches!(event(&mut closed), Event::Stdout(3)));
    }

    #[test]
    fn endless_messages_take_bounded_memory() {
        let text = Mutex::new(Vec::new());
        keep(io::repeat(b'x').take(3 * CONSOLE_BYTES_MAX as u64).chain(&b"last"[..]), &text);
        let text = text.into_inner().unwrap();
        assert!(text.len() <= CONSOLE_BYTES_MAX && text.ends_with(b"xlast"), "{}", text.len());

        let (reader, mut writer) = io::pipe().unwrap();
        let endless = thread::spawn(move || while writer.write_all(&[b'x'; 65_536]).is_ok() {});
        let (sender, events) = mpsc::channel();
        read_messages(reader, &sender);
        endless.join().unwrap();
        assert!(matches!(events.try_recv(), Ok(Event::Message(Message::Error(what))) if what.len() < 200));
    }
}
