//! Unmodified programs use the sockets of a guest (`siga exec`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod direct;
#[path = "../common/network.rs"]
mod network;
mod programs;
mod services;

use network::{Network, kill, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// Two guests with a router between them. The guests are siga's own processes.
const TOPOLOGY: &str = include_str!("../../../../topologies/figure-1.toml");

const PYTHON: &str = "/usr/bin/python3";
const CURL: &str = "/usr/bin/curl";

/// Returns false if one of the programs is missing, and says so.
fn has(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !Path::new(program).exists());
    if let Some(program) = missing {
        println!("skipped, because {program} is not installed");
    }
    missing.is_none()
}

/// Returns a command that runs a program on a guest.
fn exec(network: &Network, guest: &str, program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.args(["exec", network.name.as_str(), guest]).args(program).env("SIGA_RUN_DIR", network.run_dir());
    command
}

/// A program on a guest. It is killed when this value is dropped.
struct Program(Child);

impl Program {
    /// Starts a program, and waits until it has printed a line.
    fn start(network: &Network, guest: &str, program: &[&str]) -> (Self, BufReader<ChildStdout>) {
        let mut child = exec(network, guest, program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{program:?} printed nothing: {:?}", child.wait());
        (Self(child), output)
    }

    fn pid(&self) -> i32 {
        self.0.id().try_into().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a script of Python on a guest, and returns what it printed.
fn python(network: &Network, guest: &str, script: &str) -> String {
    let output = exec(network, guest, &[PYTHON, "-c", script]).output().unwrap();
    text(&output)
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the number of brokers of a network.
fn brokers(network: &Network) -> usize {
    let wanted = format!("SIGA_RUN_DIR={}", network.run_dir().display());
    let is_broker = |entry: &std::fs::DirEntry| {
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let has = |bytes: Vec<u8>, part: &str| bytes.split(|byte| *byte == 0).any(|one| one == part.as_bytes());
        has(read("cmdline"), "exec-broker") && has(read("environ"), &wanted)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(is_broker).count()
}

#[test]
fn curl_fetches_a_file_from_pythons_server_through_a_router() {
    if !has(&[PYTHON, CURL]) {
        return;
    }
    let network = Network::up("exec", TOPOLOGY);
    let files = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(files.path().join("file"), &bytes).unwrap();
    let directory = files.path().to_str().unwrap();
    let server = [PYTHON, "-u", "-m", "http.server", "8000", "--bind", "::", "--directory", directory];
    let (server, _output) = Program::start(&network, "tcpip3", &server);
    for host in ["10.0.2.2", "[fd00:2::2]", "tcpip3", "tcpip3.exec"] {
        let output = exec(&network, "tcpip1", &[CURL, "-sS", &format!("http://{host}:8000/file")]).output().unwrap();
        assert!(output.status.success(), "{host}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == bytes, "{host}: the file has changed on the way");
    }
    let unknown = exec(&network, "tcpip1", &[CURL, "-sS", "http://nowhere:8000/"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(6), "curl's status for a name without an address");
    let refused = exec(&network, "tcpip1", &[CURL, "-sS", "http://10.0.2.2:8001/"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(7), "curl's status for a refused connection");
    drop(server);
    wait_until("the brokers have ended", || brokers(&network) == 0);
}

#[test]
fn sockets_behave_as_the_kernels() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-sockets", TOPOLOGY);
    assert_eq!(
        python(
            &network,
            "tcpip3",
            concat!(include_str!("common.py"), include_str!("pair.py"), include_str!("sockets.py"))
        ),
        "all is well\n"
    );
}

#[test]
fn a_number_that_comes_back_is_no_longer_that_of_a_socket() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-numbers", TOPOLOGY);
    assert_eq!(
        python(&network, "tcpip3", concat!(include_str!("pair.py"), include_str!("descriptors.py"))),
        "all is well\n"
    );
}

#[test]
fn a_program_that_closes_all_descriptors_stays_on_the_guest() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-close", TOPOLOGY);
    // The shell starts Python with an environment and descriptors that it inherits.
    let script = "import ctypes, os, socket; libc = ctypes.CDLL(None); \
        [libc.close(number) for number in range(3, 4096)]; os.closerange(3, 4096); \
        s = socket.socket(); s.bind(('10.0.2.2', 5000)); s.listen(); print(s.getsockname())";
    let output = exec(&network, "tcpip3", &["/bin/sh", "-c", &format!("{PYTHON} -c \"{script}\"")]).output().unwrap();
    assert_eq!(text(&output), "('10.0.2.2', 5000)\n");
}

#[test]
fn io_uring_is_absent_for_a_program() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-uring", TOPOLOGY);
    // 425 is `io_uring_setup` on all architectures.
    let script = "import ctypes, errno; libc = ctypes.CDLL(None, use_errno=True); \
        print(libc.syscall(425, 1, 0), errno.errorcode[ctypes.get_errno()])";
    assert_eq!(python(&network, "tcpip3", script), "-1 ENOSYS\n");
}

#[test]
fn addresses_of_the_host_itself_stay_the_hosts() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-loopback", TOPOLOGY);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("import socket; print(socket.create_connection(('127.0.0.1', {port}), 10).getpeername()[1])");
    assert_eq!(python(&network, "tcpip3", &script), format!("{port}\n"));
}

#[test]
fn a_guest_has_loopback_addresses_of_its_own() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-own-loopback", TOPOLOGY);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.args(["exec", "--loopback", "guest", network.name.as_str(), "tcpip3", PYTHON, "-c"]);
    command
        .args([concat!(include_str!("common.py"), include_str!("loopback.py")), &port])
        .env("SIGA_RUN_DIR", network.run_dir());
    assert_eq!(text(&command.output().unwrap()), "all is well\n");
}

#[test]
fn processes_share_sockets_by_fork_and_exec() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-share", TOPOLOGY);
    assert_eq!(python(&network, "tcpip3", include_str!("sharing.py")), "all is well\n");
}

/// The program is the same on both, so its expectations are those of the kernel.
#[test]
fn options_have_the_effects_that_they_have_on_the_kernels_sockets() {
    if !has(&[PYTHON]) {
        return;
    }
    let script = concat!(include_str!("common.py"), include_str!("options.py"));
    let kernel = Command::new(PYTHON).args(["-c", script]).env("SIGA_TEST_SCRIPT", script).output().unwrap();
    assert_eq!(text(&kernel), "all is well\n", "on the kernel");
    let network = Network::up("exec-options", TOPOLOGY);
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.args(["exec", "--loopback", "guest", network.name.as_str(), "tcpip3", PYTHON, "-c", script]);
    command.env("SIGA_RUN_DIR", network.run_dir()).env("SIGA_TEST_SCRIPT", script);
    assert_eq!(text(&command.output().unwrap()), "all is well\n", "on a guest");
}

#[test]
fn a_program_keeps_its_scheduling_its_cpus_and_its_dumpability() {
    if !has(&[PYTHON]) {
        return;
    }
    // These guests sleep, and move to the CPU of the process that wakes them.
    let network =
        Network::up("exec-attributes", &TOPOLOGY.replace("[guest.tcpip3]", "[guest.tcpip3]\nwaiting = \"block\""));
    let script = include_str!("attributes.py");
    let plain = text(&Command::new(PYTHON).args(["-c", script, "print"]).output().unwrap());
    let mut command = exec(&network, "tcpip3", &[PYTHON, "-c", script, plain.trim()]);
    assert_eq!(text(&command.output().unwrap()), "all is well\n");
}

#[test]
fn no_process_can_change_the_library() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-library", TOPOLOGY);
    let script = "import os; path = '/proc/self/fd/' + os.environ['SIGA_EXEC_LIBRARY']; file = os.open(path, os.O_RDWR)
for change in (lambda: os.write(file, b'x'), lambda: os.ftruncate(file, 0)):
    try:
        change(); print('changed')
    except PermissionError:
        print('refused')";
    assert_eq!(python(&network, "tcpip3", script), "refused\nrefused\n");
}

/// Two guests on one network, with the MTU of Ethernet.
const ONE_NETWORK: &str = "
[network.lan]
type = \"hipersockets\"
[guest.tcpip1]
[[guest.tcpip1.device]]
network = \"lan\"
mtu = 1500
addresses = [\"10.0.2.1/24\", \"fd00:2::1/64\"]
[guest.tcpip3]
[[guest.tcpip3.device]]
network = \"lan\"
mtu = 1500
addresses = [\"10.0.2.2/24\", \"fd00:2::2/64\"]
";

#[test]
#[ignore = "takes a minute or two; `cargo xtask nightly --only net` runs it"]
fn a_program_has_ten_thousand_connections_through_a_router_and_on_one_network() {
    const CONNECTIONS: usize = 10_000;
    if !has(&[PYTHON]) {
        return;
    }
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if descriptors.current.is_some_and(|current| current < 2 * CONNECTIONS as u64) {
        println!("skipped, because this process may have fewer than {} descriptors", 2 * CONNECTIONS);
        return;
    }
    for (name, topology) in [("exec-many-routed", TOPOLOGY), ("exec-many", ONE_NETWORK)] {
        let network = Network::up(name, topology);
        let (script, count) = (include_str!("many.py"), CONNECTIONS.to_string());
        let server = [PYTHON, "-c", script, "server", &count, "::"];
        let (mut server, mut output) = Program::start(&network, "tcpip3", &server);
        let client = [PYTHON, "-c", script, "client", &count, "10.0.2.2", "fd00:2::2"];
        assert_eq!(text(&exec(&network, "tcpip1", &client).output().unwrap()), "all is well\n", "{name}");
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert!(server.0.wait().unwrap().success() && rest == "all is well\n", "{name}: {rest}");
    }
}

#[test]
fn a_killed_programs_peer_receives_its_bytes_and_the_end() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-kill", TOPOLOGY);
    let script = "import socket; s = socket.create_server(('10.0.2.2', 7)); print('listens', flush=True); \
        c, _ = s.accept(); c.sendall(bytes(200_000)); print('has sent', flush=True); c.recv(1)";
    let (server, mut sent) = Program::start(&network, "tcpip3", &[PYTHON, "-c", script]);
    // Most bytes are still with the server when it is killed.
    let script = "import socket; c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); \
        c.settimeout(20); c.connect(('10.0.2.2', 7)); print('connected', flush=True); input(); count = 0
while part := c.recv(65536): count += len(part)
print(count)";
    let (mut client, mut output) = Program::start(&network, "tcpip1", &[PYTHON, "-c", script]);
    let mut line = String::new();
    sent.read_line(&mut line).unwrap();
    assert_eq!(line, "has sent\n");
    kill(server.pid());
    wait_until("the broker of the server has ended", || brokers(&network) == 1);
    writeln!(client.0.stdin.take().unwrap()).unwrap();
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "200000\n");
}

#[test]
fn a_program_works_again_after_its_guest_has_restarted() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-restart", TOPOLOGY);
    let script = concat!(include_str!("common.py"), include_str!("restart.py"));
    let (mut program, mut output) = Program::start(&network, "tcpip3", &[PYTHON, "-c", script]);
    let before = network.pid_of("tcpip3").unwrap();
    kill(before);
    wait_until("the guest runs again", || network.pid_of("tcpip3").is_some_and(|pid| pid != before));
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(program.0.wait().unwrap().success(), "{rest}");
    assert_eq!(rest, "lost\nlistens again\n");
}

#[test]
fn a_program_that_does_not_ignore_sigpipe_survives_the_end_of_its_guest() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-sigpipe", TOPOLOGY);
    let (mut program, mut output) = Program::start(&network, "tcpip3", &[PYTHON, "-c", include_str!("pipe.py")]);
    let before = network.pid_of("tcpip3").unwrap();
    kill(before);
    wait_until("the guest runs again", || network.pid_of("tcpip3").is_some_and(|pid| pid != before));
    writeln!(program.0.stdin.take().unwrap()).unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(program.0.wait().unwrap().success(), "{rest}");
    assert_eq!(rest, "listens again\n");
}

#[test]
fn a_stopped_programs_peer_waits_for_its_window() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-stop", TOPOLOGY);
    let script = "import socket; s = socket.create_server(('10.0.2.2', 7)); print('listens', flush=True); \
        c, _ = s.accept(); print('accepted', flush=True); input(); count = 0
while part := c.recv(65536): count += len(part)
print(count)";
    let (mut server, mut received) = Program::start(&network, "tcpip3", &[PYTHON, "-c", script]);
    let script = "import select, socket; c = socket.create_connection(('10.0.2.2', 7), 20); count = 0
print('connected', flush=True); input(); c.setblocking(False)
while select.select([], [c], [], 0.5)[1]: count += c.send(bytes(65536))
print(count, flush=True); input(); c.setblocking(True); c.sendall(b'more')";
    let (mut client, mut sent) = Program::start(&network, "tcpip1", &[PYTHON, "-c", script]);
    let next = |output: &mut BufReader<ChildStdout>| {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(next(&mut received), "accepted\n");
    let signal =
        |process: &Child, signal| rustix::process::kill_process(rustix::process::Pid::from_child(process), signal);
    signal(&server.0, rustix::process::Signal::STOP).unwrap();
    let mut go_on = client.0.stdin.take().unwrap();
    writeln!(go_on).unwrap();
    let count: usize = next(&mut sent).trim().parse().unwrap();
    assert!(count > 0, "the guest receives while the program is stopped");
    signal(&server.0, rustix::process::Signal::CONT).unwrap();
    writeln!(server.0.stdin.take().unwrap()).unwrap();
    writeln!(go_on).unwrap();
    assert!(client.0.wait().unwrap().success());
    assert_eq!(next(&mut received), format!("{}\n", count + 4));
}

/// The program makes calls that the library cannot carry out, and executes itself with an argument.
const UNSUPPORTED: &str = "import ctypes, fcntl, socket, subprocess, sys
def tries(call, *arguments):
    try: call(*arguments)
    except OSError as error: print(error.strerror)
tries(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
if len(sys.argv) == 1:
    # io_uring_setup
    ctypes.CDLL(None).syscall(425, 1, 0)
    server = socket.create_server(('10.0.2.2', 7))
    server.setsockopt(socket.IPPROTO_TCP, 77, 1)
    # FIOSETOWN
    fcntl.ioctl(server, 0x8901, bytes(4))
    (here, there), fresh = socket.socketpair(), socket.socket()
    tries(socket.send_fds, here, [b'x'], [fresh.fileno()])
    subprocess.run([sys.executable, __file__, 'again'], check=True)";

#[test]
fn the_log_names_the_calls_that_cannot_be_carried_out() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("exec-log", TOPOLOGY);
    let place = tempfile::tempdir().unwrap();
    let (log, script) = (place.path().join("log"), place.path().join("script.py"));
    std::fs::write(&script, UNSUPPORTED).unwrap();
    let mut command = exec(&network, "tcpip3", &[PYTHON, script.to_str().unwrap()]);
    text(&command.env("SIGA_EXEC_LOG", &log).output().unwrap());
    let log = std::fs::read_to_string(log).unwrap();
    for (wanted, count) in [
        (", 1): the guest's stack supports only TCP and UDP", 2),
        ("does not support socket option 77 of level 6", 1),
        ("ioctl 0x8901 is not supported", 1),
        ("cannot be passed to another process by SCM_RIGHTS", 1),
        ("io_uring_setup fails, because a guest does not have io_uring", 1),
    ] {
        assert_eq!(log.matches(wanted).count(), count, "{wanted}: {log}");
    }
    let processes: std::collections::BTreeSet<&str> = log.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(processes.len(), 2, "each line names its process: {log}");
}

#[test]
fn a_program_that_cannot_run_is_refused_with_the_reason() {
    let network = Network::up("exec-refused", TOPOLOGY);
    let run = |guest: &str, program: &str| exec(&network, guest, &[program]).output().unwrap();
    let cases = [
        ("tcpip1", env!("CARGO_BIN_EXE_siga"), 3, "statically linked"),
        ("tcpip1", "no-such-program", 2, "there is no executable program"),
        ("nobody", "/bin/true", 2, "nobody"),
    ];
    for (guest, program, status, text) in cases {
        let output = run(guest, program);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), message.contains(text)), (Some(status), true), "{message}");
    }
    assert_eq!(exec(&network, "tcpip1", &["/bin/sh", "-c", "exit 42"]).status().unwrap().code(), Some(42));
}
