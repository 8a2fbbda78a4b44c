//! Namespaces that join ports while the network runs (`siga netns`), and control programs that take over ports.

use super::network::{Network, kill, wait_until};
use super::place::{Place, possible};
use super::{One, Red, Setup, World};
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const TOPOLOGY: &str = "[network.lan]\ntype = \"vswitch\"\nmtu = 1500\n\
    [[network.lan.port]]\nname = \"pod\"\ncount = 3\naddresses = [\"10.0.3.11/24\", \"fd00:3::11/64\"]\n\
    route = [{ to = \"default\", via = \"10.0.3.1\" }]\n\
    [guest.one]\ndevice = [{ network = \"lan\", addresses = [\"10.0.3.1/24\", \"fd00:3::1/64\"] }]\n";

/// Returns the command `siga netns` for a port.
fn netns(network: &Network, port: &str, command: &[&str]) -> Command {
    let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
    siga.args(["netns", network.name.as_str(), port, "--"]).args(command);
    siga.env("SIGA_RUN_DIR", network.run_dir()).stdin(Stdio::null());
    siga
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn tenants(network: &Network) -> Vec<String> {
    let status = network.status();
    let tenants = status["networks"][0]["tenants"].as_object().unwrap();
    tenants.iter().map(|(port, tenant)| format!("{port} {}", tenant.as_str().unwrap())).collect()
}

/// A shell in a namespace that has joined a port. It is killed when this value is dropped.
struct Shell {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start(network: &Network, port: &str) -> Self {
        let mut child = netns(network, port, &["sh"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut shell = Self { child, output };
        assert_eq!(shell.run("echo starts"), "starts");
        shell
    }

    /// Runs a command that prints one line, and returns the line.
    fn run(&mut self, command: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pings(&mut self, address: &str) -> bool {
        self.run(&format!("ping -c 1 -W 2 {address} >/dev/null 2>&1; echo $?")) == "0"
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_namespace_joins_a_port_with_its_settings_until_its_last_process_ends() {
    if !possible(&["getent"]) {
        return;
    }
    let network = Network::up("joins", TOPOLOGY);
    let shown = "ip -o addr show dev siga0; ip link show siga0; ip route; getent hosts one; getent hosts pod-3; \
        ls /sys/class/net; ping -4 -c 1 -W 5 one; ping -c 1 -W 5 fd00:3::1";
    let output = netns(&network, "pod-2", &["sh", "-c", shown]).output().unwrap();
    let all = text(&output);
    assert!(output.status.success(), "{all}");
    for part in [
        "10.0.3.12/24",
        "fd00:3::12/64",
        "mtu 1500",
        "default via 10.0.3.1",
        "fd00:3::1 ",
        "fd00:3::13 ",
        "from 10.0.3.1",
        "from fd00:3::1",
    ] {
        assert!(all.contains(part) || all.contains(&part.replace("from ", "from one (")), "{part}: {all}");
    }
    assert!(!all.contains("eth0"), "/sys shows the interfaces of the host: {all}");
    wait_until("a free port", || tenants(&network).is_empty());
    let mut shell = Shell::start(&network, "pod-2");
    assert_eq!(tenants(&network), [format!("pod-2 process {}", shell.child.id())]);
    for (port, part) in
        [("pod-2", "port pod-2 is in use by process"), ("none", "no port none"), ("pod", "pod-1, pod-2")]
    {
        let refused = netns(&network, port, &["true"]).output().unwrap();
        assert!(text(&refused).contains(part), "{port}: {refused:?}");
    }
    // Another namespace reaches this one.
    let other = netns(&network, "pod-1", &["ping", "-c", "1", "-W", "5", "pod-2"]).output().unwrap();
    assert!(other.status.success(), "{}", text(&other));
    // If the switch is killed, the port comes back.
    let before = network.pid_of("lan").unwrap();
    kill(before);
    wait_until("an answer over another switch", || shell.pings("10.0.3.1"));
    // Another namespace waits for the port.
    let waits = ["netns", "joins", "pod-2", "--wait", "60", "--", "ping", "-c", "1", "-W", "5", "10.0.3.1"];
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_siga"));
    let mut waiting = waiting.args(waits).env("SIGA_RUN_DIR", network.run_dir()).stdin(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(waiting.try_wait().unwrap(), None, "the port is in use");
    drop(shell);
    assert!(waiting.wait().unwrap().success());
    wait_until("a free port", || tenants(&network).is_empty());
}

#[test]
fn a_program_on_a_port_runs_in_a_namespace_and_one_on_a_guest_does_not() {
    if !possible(&[]) {
        return;
    }
    let network = Network::up("tiers", TOPOLOGY);
    let exec = |tier: &[&str], place: &str, program: &[&str]| {
        let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
        siga.arg("exec").args(tier).args([network.name.as_str(), place, "--"]).args(program);
        siga.env("SIGA_RUN_DIR", network.run_dir()).stdin(Stdio::null()).output().unwrap()
    };
    let shown = ["ip", "-o", "addr", "show", "dev", "siga0"];
    for (tier, port, address) in [(&[][..], "pod-1", "10.0.3.11/24"), (&["--tier", "netns"], "pod-2", "10.0.3.12/24")] {
        let output = exec(tier, port, &shown);
        assert!(output.status.success() && text(&output).contains(address), "{port}: {}", text(&output));
    }
    let refused = exec(&["--tier", "preload"], "pod-3", &["ip", "link"]);
    assert!(text(&refused).contains("no guest pod-3"), "{}", text(&refused));
    let refused = exec(&["--tier", "netns"], "one", &["ip", "link"]);
    assert!(text(&refused).contains("no port one"), "{}", text(&refused));
    // A setuid program cannot use the preload library. It gets a free port of the guest's switch.
    let directory = tempfile::tempdir().unwrap();
    let setuid = directory.path().join("ip");
    let ip =
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|path| path.join("ip")).find(|ip| ip.is_file());
    std::fs::copy(ip.unwrap(), &setuid).unwrap();
    std::fs::set_permissions(&setuid, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let setuid = [setuid.to_str().unwrap(), "-o", "addr", "show", "dev", "siga0"];
    let beside = exec(&[], "one", &setuid);
    let said = text(&beside);
    assert!(beside.status.success() && said.contains("inet 10.0.3.1"), "{said}");
    assert!(said.contains("setuid") && said.contains("the program runs in a network namespace at port pod-"), "{said}");
    let refused = exec(&["--tier", "preload"], "one", &setuid);
    assert!(!refused.status.success() && text(&refused).contains("setuid"), "{}", text(&refused));
    let of_host = exec(&[], "one", &["ip", "-o", "link"]);
    assert!(of_host.status.success() && !text(&of_host).contains("siga0"), "{}", text(&of_host));
}

/// A program that is linked with a library named liburing. It prints whether the kernel answers `io_uring_setup` (425 on all
/// architectures) as without io_uring, and the network interfaces of its namespace.
const LINKED_WITH_LIBURING: &str = "#include <errno.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    int needed(void);\n\
    int main(void) {\n\
    char line[256]; FILE *file = fopen(\"/proc/self/net/dev\", \"r\");\n\
    if (needed() < 0 && syscall(425, 1, 0) < 0 && errno == ENOSYS) puts(\"no io_uring\");\n\
    while (fgets(line, sizeof line, file)) fputs(line, stdout);\n\
    return 0; }\n";

#[test]
fn a_program_that_is_linked_with_liburing_runs_in_a_namespace_if_a_port_is_free() {
    if !possible(&["cc"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let built = |words: &[&str], source: &str| {
        let mut cc = Command::new("cc")
            .current_dir(place.path())
            .args(["-x", "c", "-"])
            .args(words)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        cc.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        assert!(cc.wait().unwrap().success(), "cc {words:?}");
    };
    built(&["-shared", "-Wl,-soname,liburing.so.2", "-o", "liburing.so.2"], "int needed(void) { return -1; }\n");
    built(&["-o", "program", "-x", "none", "liburing.so.2", "-Wl,-rpath,$ORIGIN"], LINKED_WITH_LIBURING);
    let program = place.path().join("program");
    let network = Network::up("uring", TOPOLOGY);
    let siga = |words: &[&str]| {
        let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
        let output =
            siga.arg("exec").args(words).arg(&program).env("SIGA_RUN_DIR", network.run_dir()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output)
    };
    let checked = siga(&["--check"]);
    assert!(checked.contains("without io_uring") && checked.contains("linked with liburing.so.2"), "{checked}");
    let name = network.name.as_str();
    let beside = siga(&[name, "one", "--"]);
    assert!(
        beside.contains("siga0:")
            && beside.contains("liburing.so.2, but a guest does not have io_uring; the program runs in"),
        "{beside}"
    );
    let on_guest = siga(&["--tier", "preload", name, "one", "--"]);
    assert!(
        on_guest.contains("no io_uring") && !on_guest.contains("siga0:") && !on_guest.contains("siga: "),
        "{on_guest}"
    );
    // With all ports in use, the program runs on the guest, and siga says so.
    wait_until("free ports", || tenants(&network).is_empty());
    let _shells = ["pod-1", "pod-2", "pod-3"].map(|port| Shell::start(&network, port));
    let without = siga(&[name, "one", "--"]);
    assert!(without.contains("no port is free for it") && without.contains("no io_uring"), "{without}");
}

#[test]
fn a_user_without_privileges_joins_a_namespace_and_configures_it() {
    if !possible(&["setpriv", "unshare", "mount", "mknod"]) {
        return;
    }
    let base = tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755)).tempdir();
    let base = base.unwrap();
    let run = base.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let topology = base.path().join("plain.toml");
    std::fs::write(&topology, TOPOLOGY).unwrap();
    // The program file may be in a directory that only root can search.
    let program = base.path().join("siga");
    std::fs::copy(env!("CARGO_BIN_EXE_siga"), &program).unwrap();
    std::os::unix::fs::chown(&run, Some(65_534), Some(65_534)).unwrap();
    // Some hosts allow only root to open this device. The program gets one of its own, in a mount namespace.
    let device = base.path().join("tun");
    let made = Command::new("mknod").args(["-m", "666"]).arg(&device).args(["c", "10", "200"]).status().unwrap();
    assert!(made.success());
    let siga = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$1\" /dev/net/tun && shift && exec \"$@\"", "sh"]);
        command.arg(&device).arg("setpriv").args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
        ]);
        command.arg(&program).args(arguments).env("SIGA_RUN_DIR", &run).stdin(Stdio::null()).current_dir("/");
        command.output().unwrap()
    };
    let up = siga(&["net", "up", topology.to_str().unwrap()]);
    assert!(up.status.success(), "{}", text(&up));
    let work =
        "id -u; ip link set siga0 mtu 1400; ip -o link show siga0; ping -c 1 -W 5 10.0.3.1; ping -c 1 -W 5 fd00:3::1";
    let joined = siga(&["netns", "plain", "pod-1", "--", "sh", "-e", "-c", work]);
    let named = siga(&["netns", "plain", "pod-2", "--name", "siga-test-plain"]);
    let down = siga(&["net", "down", "plain"]);
    assert!(down.status.success(), "{}", text(&down));
    let all = text(&joined);
    if all.contains("cannot make a user namespace") {
        assert!(!joined.status.success(), "{all}");
        println!("skipped, because this host refuses: {all}");
        return;
    }
    assert!(joined.status.success(), "{all}");
    assert!(all.starts_with("65534\n") && all.contains("mtu 1400") && all.contains("0% packet loss"), "{all}");
    assert!(text(&named).contains("only root"), "{}", text(&named));
}

#[test]
fn a_named_namespace_keeps_its_port_until_it_is_deleted() {
    if !possible(&[]) {
        return;
    }
    let name = format!("siga-test-joins-{}", std::process::id());
    let network = Network::up("named", TOPOLOGY);
    let ip = |arguments: &[&str]| Command::new("ip").arg("netns").args(arguments).output().unwrap();
    let siga = |port: &str| {
        let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
        siga.args(["netns", network.name.as_str(), port, "--name", &name]).env("SIGA_RUN_DIR", network.run_dir());
        siga.output().unwrap()
    };
    let made = siga("pod-1");
    assert!(made.status.success(), "{}", text(&made));
    assert_eq!(tenants(&network), [format!("pod-1 network namespace {name}")]);
    let again = siga("pod-2");
    let pings = ip(&["exec", &name, "ping", "-c", "1", "-W", "5", "10.0.3.1"]);
    let deleted = ip(&["del", &name]);
    assert!(pings.status.success() && deleted.status.success(), "{} {}", text(&pings), text(&deleted));
    assert!(text(&again).contains("exists") || text(&again).contains("already has port pod-1"), "{}", text(&again));
    wait_until("a free port", || tenants(&network).is_empty());
}

#[test]
fn a_client_that_is_killed_while_it_joins_leaves_the_port_free() {
    if !possible(&[]) {
        return;
    }
    let network = Network::up("killed-joins", TOPOLOGY);
    let host = || String::from_utf8(Command::new("ip").args(["-o", "link"]).output().unwrap().stdout).unwrap();
    for step in 0..40 {
        let mut client = netns(&network, "pod-1", &["sleep", "60"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(step));
        client.kill().unwrap();
        client.wait().unwrap();
        wait_until("a free port", || tenants(&network).is_empty());
    }
    // Other tests make devices on this host for a moment.
    wait_until("no device on this host", || !host().contains(" siga"));
    let joined = netns(&network, "pod-1", &["ping", "-c", "1", "-W", "5", "10.0.3.1"]).output().unwrap();
    assert!(joined.status.success(), "{}", text(&joined));
}

/// Kills the control program of a network and starts another one.
pub(crate) fn restart_control(network: &Network) {
    kill(network.control_pid());
    start_control(network);
}

/// Kills the control program of a network, changes the state that it has written, and starts another one.
pub(crate) fn restart_with_state(network: &Network, change: impl FnOnce(&mut serde_json::Value)) {
    kill(network.control_pid());
    let path = network.run_dir().join(network.name.as_str()).join("state.json");
    let mut state = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut state);
    std::fs::write(&path, state.to_string()).unwrap();
    start_control(network);
}

fn start_control(network: &Network) {
    let path = network.base.path().join(format!("{}.toml", network.name));
    network.text(&["up", path.to_str().unwrap(), "--name", network.name.as_str()]);
}

#[test]
fn a_new_control_program_manages_the_ports_of_an_earlier_one() {
    if !possible(&[]) {
        return;
    }
    let mut world = World::up("taken-over", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let switch = world.network.pid_of("lan").unwrap();
    restart_control(&world.network);
    assert_eq!(world.network.pid_of("lan"), Some(switch), "the switch runs on");
    assert!(world.ping(Red, One, false));
    // A killed switch gets the ports again.
    kill(switch);
    wait_until("an answer over another switch", || world.ping(Red, One, false));
    // The end of a namespace's process ends its port.
    restart_control(&world.network);
    world.blue = Place::new();
    let log = || std::fs::read_to_string(world.network.run_dir().join("taken-over").join("log")).unwrap();
    wait_until("the port's end in the log", || log().contains("port blue was removed"));
    assert!(world.ping(Red, One, true));
    // A process that started at another time is not the process of the topology, although it has the same number.
    restart_with_state(&world.network, |state| state["ports"]["lan"]["red"]["holder_started"] = 1.into());
    let refused = format!("port red: the network namespace of process {}: this process has ended", world.red.pid());
    wait_until("the refusal in the log", || log().contains(&refused));
    wait_until("the end of the interface", || !world.red.run("ip link").contains("siga0"));
}

#[test]
fn a_new_control_program_knows_which_namespaces_have_joined() {
    if !possible(&[]) {
        return;
    }
    let network = Network::up("kept", TOPOLOGY);
    let mut shell = Shell::start(&network, "pod-1");
    restart_control(&network);
    assert_eq!(tenants(&network), [format!("pod-1 process {}", shell.child.id())]);
    let refused = netns(&network, "pod-1", &["true"]).output().unwrap();
    assert!(text(&refused).contains("in use by process"), "{}", text(&refused));
    let switch = network.pid_of("lan").unwrap();
    kill(switch);
    wait_until("an answer over another switch", || shell.pings("10.0.3.1"));
    restart_control(&network);
    drop(shell);
    wait_until("a free port", || tenants(&network).is_empty());
    // The process of a namespace ends while no control program runs.
    let shell = Shell::start(&network, "pod-2");
    kill(network.control_pid());
    drop(shell);
    std::thread::sleep(Duration::from_millis(200));
    start_control(&network);
    wait_until("a free port", || tenants(&network).is_empty());
}
