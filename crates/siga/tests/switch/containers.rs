//! Containers join a network by the Container Network Interface: with `cnitool`, with Podman, and by hand.

use super::network::{Network, wait_until};
use super::place::{Place, possible};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const TOPOLOGY: &str = "[network.lan]\ntype = \"vswitch\"\nmtu = 1500\n\
    [[network.lan.port]]\nname = \"box\"\ncount = 2\naddresses = [\"10.0.3.11/24\", \"fd00:3::11/64\"]\n\
    route = [{ to = \"default\", via = \"10.0.3.1\" }]\n\
    [guest.one]\ndevice = [{ network = \"lan\", addresses = [\"10.0.3.1/24\", \"fd00:3::1/64\"] }]\n";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn configuration(network: &Network, version: &str, more: &str) -> String {
    let (name, run) = (&network.name, network.run_dir());
    format!(
        "{{\"cniVersion\":\"{version}\",\"name\":\"net\",\"type\":\"siga\",\"network\":\"{name}\",\"lan\":\"lan\",\
         \"runDirectory\":\"{}\"{more}}}",
        run.display()
    )
}

/// Starts the plug-in as a container runtime does.
fn plug_in(command: &str, container: &str, place: &Place, input: &str) -> std::process::Child {
    let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
    siga.env("CNI_COMMAND", command).env("CNI_CONTAINERID", container).env("CNI_IFNAME", "eth0");
    siga.env("CNI_NETNS", format!("/proc/{}/ns/net", place.pid())).env("CNI_PATH", "/nowhere");
    let mut child = siga.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child
}

fn call(command: &str, container: &str, place: &Place, input: &str) -> (bool, serde_json::Value) {
    let output = plug_in(command, container, place, input).wait_with_output().unwrap();
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

fn tenants(network: &Network) -> usize {
    network.status()["networks"][0]["tenants"].as_object().unwrap().len()
}

fn interfaces(place: &Place) -> String {
    place.run("ip -o link")
}

#[test]
fn a_container_is_added_checked_and_deleted_in_each_version() {
    if !possible(&[]) {
        return;
    }
    let network = Network::up("versions", TOPOLOGY);
    let (one, other) = (Place::new(), Place::new());
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let plain = configuration(&network, version, "");
        let (added, result) = call("ADD", "one", &one, &plain);
        assert!(added && result["cniVersion"] == version, "{result}");
        let address = result["ips"][0]["address"].as_str().unwrap();
        assert!(one.run("ip -o addr show eth0").contains(address));
        assert!(one.run("ip route").contains("default via 10.0.3.1"));
        assert!(one.run("ip link show eth0").contains(result["interfaces"][0]["mac"].as_str().unwrap()));
        one.run("ping -c 1 -W 5 10.0.3.1");
        one.run("ping -c 1 -W 5 fd00:3::1");
        let previous = configuration(&network, version, &format!(",\"prevResult\":{result}"));
        assert!(call("CHECK", "one", &one, &previous).0);
        let (again, error) = call("ADD", "one", &one, &plain);
        assert!(!again && error["msg"].as_str().unwrap().contains("already"), "{error}");
        // A second container reaches the first one.
        let (added, result) = call("ADD", "two", &other, &plain);
        assert!(added, "{result}");
        other.run(&format!("ping -c 1 -W 5 {}", address.split('/').next().unwrap()));
        assert_eq!(tenants(&network), 2);
        let third = Place::new();
        let (added, error) = call("ADD", "three", &third, &plain);
        assert!(
            !added && error["code"] == 11 && error["msg"].as_str().unwrap().contains("no port of the switch is free"),
            "{error}"
        );
        assert!(!interfaces(&third).contains("eth0"));
        // What CHECK finds.
        one.run("ip addr del 10.0.3.11/24 dev eth0");
        let (sound, error) = call("CHECK", "one", &one, &previous);
        assert!(!sound && error["msg"].as_str().unwrap().contains("10.0.3.11"), "{error}");
        for (container, place) in [("one", &one), ("two", &other)] {
            assert!(call("DEL", container, place, &previous).0);
            assert!(!interfaces(place).contains("eth0"), "{}", interfaces(place));
            assert!(call("DEL", container, place, &previous).0, "a second time");
        }
        let (sound, error) = call("CHECK", "one", &one, &previous);
        assert!(!sound && error["code"] == 3, "{error}");
        assert_eq!(tenants(&network), 0);
    }
}

#[test]
fn the_ports_of_containers_that_the_runtime_does_not_know_are_freed() {
    if !possible(&[]) {
        return;
    }
    let network = Network::up("collected", TOPOLOGY);
    let (one, other) = (Place::new(), Place::new());
    let plain = configuration(&network, "1.1.0", "");
    assert!(call("STATUS", "", &one, &plain).0);
    assert!(call("ADD", "one", &one, &plain).0 && call("ADD", "two", &other, &plain).0);
    let (is_ready, error) = call("STATUS", "", &one, &plain);
    assert!(!is_ready && error["code"] == 50, "{error}");
    let valid = ",\"cni.dev/valid-attachments\":[{\"containerID\":\"two\",\"ifname\":\"eth0\"}]";
    assert!(call("GC", "", &one, &configuration(&network, "1.1.0", valid)).0);
    wait_until("the end of the interface", || !interfaces(&one).contains("eth0"));
    assert!(interfaces(&other).contains("eth0"));
    other.run("ping -c 1 -W 5 10.0.3.1");
    assert!(call("GC", "", &one, &plain).0);
    wait_until("the end of the interface", || !interfaces(&other).contains("eth0"));
    assert!(call("STATUS", "", &one, &plain).0);
}

#[test]
fn deleting_a_container_leaves_nothing_also_if_adding_it_was_killed() {
    if !possible(&[]) {
        return;
    }
    let network = Network::up("cut-short", TOPOLOGY);
    let place = Place::new();
    let host = || String::from_utf8(Command::new("ip").args(["-o", "link"]).output().unwrap().stdout).unwrap();
    let plain = configuration(&network, "1.0.0", "");
    let mut added = 0;
    for step in 0..60 {
        let mut child = plug_in("ADD", "box", &place, &plain);
        std::thread::sleep(Duration::from_micros(step * 500));
        child.kill().unwrap();
        child.wait().unwrap();
        added += usize::from(interfaces(&place).contains("eth0"));
        let (deleted, error) = call("DEL", "box", &place, &plain);
        assert!(deleted, "{step}: {error}");
        wait_until("the end of the interface", || !interfaces(&place).contains("eth0"));
        wait_until("a free port", || tenants(&network) == 0);
        // Other tests make devices on this host for a moment.
        wait_until("no device on this host", || !host().contains(" siga"));
    }
    println!("{added} of 60 were killed after they had made the interface");
    assert!(call("ADD", "box", &place, &plain).0);
    place.run("ping -c 1 -W 5 10.0.3.1");
}

/// Writes a list of plug-ins and a directory with the plug-in `siga`. Returns their paths.
fn install(network: &Network) -> (String, String) {
    let (list, programs) = (network.base.path().join("cni"), network.base.path().join("bin"));
    std::fs::create_dir_all(&list).unwrap();
    std::fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_siga"), programs.join("siga")).unwrap();
    let plug_in = format!(
        "{{\"cniVersion\":\"1.0.0\",\"name\":\"siga\",\"plugins\":[{{\"type\":\"siga\",\"network\":\"{}\",\
         \"runDirectory\":\"{}\"}}]}}",
        network.name,
        network.run_dir().display()
    );
    std::fs::write(list.join("50-siga.conflist"), plug_in).unwrap();
    (list.display().to_string(), programs.display().to_string())
}

#[test]
fn cnitool_adds_checks_and_deletes() {
    if !possible(&["cnitool"]) {
        return;
    }
    let network = Network::up("cnitool", TOPOLOGY);
    let (list, programs) = install(&network);
    let name = format!("siga-test-cni-{}", std::process::id());
    let ip = |arguments: &[&str]| Command::new("ip").args(arguments).output().unwrap();
    if !ip(&["netns", "add", &name]).status.success() {
        println!("skipped, because named network namespaces cannot be made here");
        return;
    }
    let namespace = format!("/run/netns/{name}");
    let tool = |command: &str| {
        let mut tool = Command::new("cnitool");
        tool.args([command, "siga", &namespace]).env("CNI_PATH", &programs).env("NETCONFPATH", &list);
        // cnitool keeps the results of ADD.
        tool.env("XDG_CACHE_HOME", &list);
        tool.output().unwrap()
    };
    let added = tool("add");
    let pings = ip(&["netns", "exec", &name, "ping", "-c", "1", "-W", "5", "fd00:3::1"]);
    let checked = tool("check");
    let deleted = tool("del");
    let left = ip(&["netns", "exec", &name, "ip", "-o", "link"]);
    ip(&["netns", "del", &name]);
    for output in [&added, &pings, &checked, &deleted] {
        assert!(output.status.success(), "{}", text(output));
    }
    assert!(text(&added).contains("\"address\": \"10.0.3.11/24\""), "{}", text(&added));
    assert!(!text(&left).contains("eth0"), "{}", text(&left));
    assert_eq!(tenants(&network), 0);
}

#[test]
fn two_containers_of_podman_reach_each_other_and_a_guest() {
    if !possible(&["podman", "runc", "curl", "python3", "busybox"]) {
        return;
    }
    let network = Network::up("podman", TOPOLOGY);
    let (list, programs) = install(&network);
    let directory = network.base.path();
    let at = |name: &str| directory.join(name).display().to_string();
    std::fs::write(
        directory.join("containers.conf"),
        format!(
            "[containers]\ndefault_ulimits=[\"nofile=20000:20000\",\"nproc=32768:32768\"]\n[network]\n\
             network_backend=\"cni\"\ncni_plugin_dirs=[\"{programs}\"]\nnetwork_config_dir=\"{list}\"\n\
             [engine]\nruntime=\"runc\"\ncgroup_manager=\"cgroupfs\"\nevents_logger=\"file\"\n"
        ),
    )
    .unwrap();
    let root = directory.join("rootfs");
    for path in ["bin", "proc", "sys", "dev", "etc", "tmp", "run"] {
        std::fs::create_dir_all(root.join(path)).unwrap();
    }
    std::fs::copy(which("busybox"), root.join("bin/busybox")).unwrap();
    let podman = |arguments: &[&str]| {
        let mut podman = Command::new("podman");
        podman.args(["--root", &at("storage"), "--runroot", &at("runroot"), "--storage-driver", "vfs"]);
        podman.args(arguments).env("CONTAINERS_CONF", at("containers.conf")).stdin(Stdio::null());
        podman
    };
    let root = root.display().to_string();
    let run = |name: &str, command: &[&str]| {
        let mut run = podman(&[
            "run",
            "--rm",
            "--cap-add",
            "NET_RAW",
            "--network",
            "siga",
            "--name",
            name,
            "--rootfs",
            &root,
            "/bin/busybox",
        ]);
        run.args(command);
        run
    };
    let mut server = run("one", &["httpd", "-f", "-p", "8000", "-h", "/bin"]).stdout(Stdio::null()).spawn().unwrap();
    wait_until("the first container", || tenants(&network) == 1);
    let steps = "ping -c 1 -W 5 10.0.3.11 && ping -c 1 -W 5 10.0.3.1 && ping -c 1 -W 5 fd00:3::11 && \
        wget -q -O /tmp/copy http://10.0.3.11:8000/busybox && cmp /tmp/copy /bin/busybox && echo intact";
    let steps = steps.replace("ping", "busybox ping").replace("wget", "busybox wget").replace("cmp", "busybox cmp");
    let client = run("two", &["sh", "-c", &format!("PATH=/bin; sleep 1; {steps}").replace("sleep", "busybox sleep")]);
    let client = { client }.output().unwrap();
    // A guest of siga fetches a file from the container.
    let copy = at("copy");
    let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
    siga.args(["exec", network.name.as_str(), "one", "--", "curl", "-s", "-o", &copy, "http://10.0.3.11:8000/busybox"]);
    let fetched = siga.env("SIGA_RUN_DIR", network.run_dir()).output().unwrap();
    let stopped = podman(&["stop", "--time", "0", "one"]).output().unwrap();
    let _ = server.wait();
    let whole = std::fs::read(which("busybox")).unwrap() == std::fs::read(&copy).unwrap_or_default();
    assert!(text(&client).contains("intact"), "{}", text(&client));
    assert!(fetched.status.success() && whole, "{}", text(&fetched));
    assert!(stopped.status.success(), "{}", text(&stopped));
    wait_until("free ports", || tenants(&network) == 0);
}

fn which(program: &str) -> std::path::PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').map(|directory| Path::new(directory).join(program)).find(|file| file.is_file()).unwrap()
}
