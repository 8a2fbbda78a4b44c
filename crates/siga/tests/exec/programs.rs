//! Servers with several processes, and the tests of another project. What is not installed is skipped.

use super::network::{Network, wait_until};
use super::{CURL, PYTHON, Program, TOPOLOGY, exec, has, text};
use rustix::process::{Pid, Signal};
use std::path::Path;
use std::process::Command;

const NGINX: &str = "/usr/sbin/nginx";
const REDIS: [&str; 2] = ["/usr/bin/redis-server", "/usr/bin/redis-benchmark"];
const PYTHON_TESTS: [&str; 2] = ["/usr/bin/python3.11", "/usr/lib/python3.11/test/test_socket.py"];

/// Fetches a page again and again, each time over a new connection, until a file exists.
const FETCH: &str = "import os, sys, urllib.request
print('begins', flush=True)
count = 0
while not os.path.exists(sys.argv[1]):
    assert urllib.request.urlopen('http://10.0.2.2:8080/', timeout=20).read() == b'a page'
    count += 1
print(count)";

#[test]
fn nginx_with_four_workers_is_reloaded_without_a_failed_request() {
    if !has(&[NGINX, PYTHON, CURL]) {
        return;
    }
    let network = Network::up("exec-nginx", TOPOLOGY);
    let place = tempfile::tempdir().unwrap();
    let at = place.path().to_str().unwrap();
    std::fs::write(place.path().join("index.html"), "a page").unwrap();
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {at}/{name};"))
        .concat();
    let configuration = format!(
        "daemon off; worker_processes 4; {user} pid {at}/pid; error_log {at}/errors; events {{ }}
        http {{ access_log off; {temporary} server {{ listen 8080; root {at}; }} }}"
    );
    std::fs::write(place.path().join("nginx.conf"), configuration).unwrap();
    let mut server = exec(&network, "tcpip3", &[NGINX, "-c", &format!("{at}/nginx.conf")]).spawn().unwrap();
    let listens = || exec(&network, "tcpip1", &[CURL, "-s", "http://10.0.2.2:8080/"]).output().unwrap();
    wait_until("nginx listens", || listens().stdout == b"a page");
    let end = format!("{at}/end");
    let (mut client, mut output) = Program::start(&network, "tcpip1", &[PYTHON, "-c", FETCH, &end]);
    let master: i32 = std::fs::read_to_string(place.path().join("pid")).unwrap().trim().parse().unwrap();
    let signal = |signal| rustix::process::kill_process(Pid::from_raw(master).unwrap(), signal).unwrap();
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(700));
        signal(Signal::HUP);
    }
    std::thread::sleep(std::time::Duration::from_millis(700));
    std::fs::write(&end, "").unwrap();
    let mut count = String::new();
    std::io::Read::read_to_string(&mut output, &mut count).unwrap();
    assert!(client.0.wait().unwrap().success(), "a request has failed");
    assert!(count.trim().parse::<u32>().unwrap() > 10, "{count}");
    signal(Signal::QUIT);
    assert!(server.wait().unwrap().success());
}

/// libuv with its sets of epoll, its threads and its child processes: two processes of Node serve the same listener.
const NODE_SERVER: &str = "const cluster = require('cluster'), http = require('http');
if (cluster.isPrimary) {
    let listening = 0;
    cluster.on('listening', () => { if (++listening == 2) console.log('listens'); });
    for (let at = 0; at < 2; at++) cluster.fork();
} else {
    http.createServer((request, response) => {
        let size = 0;
        request.on('data', part => { size += part.length; });
        request.on('end', () => response.end(`${size} of ${request.url}`));
    }).listen(8080, '0.0.0.0');
}";
const NODE_CLIENT: &str = "const http = require('http'), body = Buffer.alloc(300000);
let answers = 0;
for (let at = 0; at < 50; at++) {
    const request = http.request({ host: '10.0.2.2', port: 8080, path: '/' + at, method: 'POST' }, response => {
        let text = '';
        response.on('data', part => { text += part; });
        response.on('end', () => {
            if (text != `300000 of /${at}`) throw new Error(text);
            if (++answers == 50) console.log('all is well');
        });
    });
    request.end(body);
}";

#[test]
fn two_processes_of_node_serve_one_listener() {
    let node = ["/usr/bin/node", "/usr/local/bin/node"].into_iter().find(|path| Path::new(path).exists());
    let Some(node) = node else {
        println!("skipped, because Node is not installed");
        return;
    };
    let network = Network::up("exec-node", TOPOLOGY);
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("server.js");
    std::fs::write(&program, NODE_SERVER).unwrap();
    let (server, _output) = Program::start(&network, "tcpip3", &[node, program.to_str().unwrap()]);
    assert_eq!(text(&exec(&network, "tcpip1", &[node, "-e", NODE_CLIENT]).output().unwrap()), "all is well\n");
    drop(server);
}

#[test]
fn redis_saves_in_the_background_while_it_serves() {
    if !has(&REDIS) {
        return;
    }
    let network = Network::up("exec-redis", TOPOLOGY);
    let place = tempfile::tempdir().unwrap();
    let arguments = ["--save", "1 1", "--protected-mode", "no", "--dir", place.path().to_str().unwrap()];
    let (server, _output) = Program::start(&network, "tcpip3", &[&[REDIS[0]], &arguments[..]].concat());
    let benchmark = ["-h", "10.0.2.2", "-q", "-t", "set,get", "-c", "20", "-n", "20000"];
    let benchmark = || exec(&network, "tcpip1", &[&[REDIS[1]], &benchmark[..]].concat()).output().unwrap();
    wait_until("redis listens", || benchmark().status.success());
    wait_until("redis has saved", || {
        assert!(benchmark().status.success(), "a client has failed");
        place.path().join("dump.rdb").exists()
    });
    drop(server);
}

#[test]
fn pythons_tests_of_waiting_and_of_servers_pass() {
    if !has(&PYTHON_TESTS) {
        return;
    }
    let network = Network::up("exec-python-tests", TOPOLOGY);
    let place = tempfile::tempdir().unwrap();
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/src/programs/run.py");
    let run = |module: &str| {
        let results = place.path().join(module);
        let _ = std::fs::remove_file(&results);
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(["exec", "--loopback", "guest", network.name.as_str(), "tcpip3", PYTHON_TESTS[0]]);
        command.arg(&runner).arg(module).arg(&results).arg("120");
        command.env("SIGA_RUN_DIR", network.run_dir()).current_dir(place.path());
        text(&command.output().unwrap());
        std::fs::read_to_string(&results).unwrap()
    };
    for (module, least) in [("test_select", 5), ("test_poll", 5), ("test_epoll", 8), ("test_socketserver", 20)] {
        // Some tests limit the time of a call, and fail on a busy host.
        let mut results = run(module);
        for _ in 0..2 {
            if results.contains("failed ") {
                results = run(module);
            }
        }
        assert!(!results.contains("failed "), "{module}: {results}");
        assert!(results.matches("passed ").count() >= least, "{module}: {results}");
    }
}
