//! Services that several programs make together: a proxy on a guest of its own, a server with a pool of threads, and sessions of ssh.
//! What is not installed is skipped.

use super::network::{Network, wait_until};
use super::{CURL, PYTHON, Program, TOPOLOGY, exec, has, text};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const HAPROXY: &str = "/usr/sbin/haproxy";
const FTP: &str = "/usr/sbin/vsftpd";
const JAVA: [&str; 2] = ["/usr/bin/java", "/usr/bin/javac"];
const SSH: [&str; 4] = ["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen", "/usr/bin/unshare"];

/// The router's guest runs the proxy, so the client and the server use different networks.
const PROXY: &str = "defaults
    mode http
    timeout connect 10s
    timeout client 20s
    timeout server 20s
listen proxy
    bind :::3128 v4v6
    http-request set-uri %[path]
    server origin 10.0.2.2:8000
";

#[test]
fn curl_fetches_a_file_through_haproxy_on_another_guest() {
    if !has(&[PYTHON, CURL, HAPROXY]) {
        return;
    }
    let network = Network::up("exec-proxy", TOPOLOGY);
    let files = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(files.path().join("file"), &bytes).unwrap();
    fs::write(files.path().join("proxy"), PROXY).unwrap();
    let at = files.path().to_str().unwrap();
    let server = [PYTHON, "-u", "-m", "http.server", "8000", "--bind", "10.0.2.2", "--directory", at];
    let (server, _output) = Program::start(&network, "tcpip3", &server);
    let proxy = exec(&network, "tcpip2", &[HAPROXY, "-db", "-f", &format!("{at}/proxy")]).spawn().unwrap();
    let proxy = Program(proxy);
    let fetch = |proxy: &str| {
        // Only the proxy reaches the server: the port in the URL is not the server's.
        exec(&network, "tcpip1", &[CURL, "-sS", "-x", proxy, "http://tcpip3:9/file"]).output().unwrap()
    };
    wait_until("the proxy listens", || fetch("http://10.0.1.2:3128").status.success());
    for name in ["10.0.1.2", "[fd00:1::2]", "tcpip2"] {
        let output = fetch(&format!("http://{name}:3128"));
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == bytes, "{name}: the file has changed on the way");
    }
    drop((server, proxy));
}

/// A process of this server confines itself: it may have no file descriptors (`RLIMIT_NOFILE`).
#[test]
fn curl_fetches_a_file_from_vsftpd_through_a_router() {
    if !has(&[CURL, FTP]) || !rustix::process::geteuid().is_root() {
        return;
    }
    let network = Network::up("exec-ftp", TOPOLOGY);
    let files = tempfile::tempdir().unwrap();
    let at = files.path().to_str().unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for directory in ["files", "empty"] {
        fs::create_dir(files.path().join(directory)).unwrap();
    }
    fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(files.path().join("files/file"), &bytes).unwrap();
    let settings = format!(
        "listen=YES\nbackground=NO\nanonymous_enable=YES\nanon_root={at}/files\nsecure_chroot_dir={at}/empty\n\
         ftp_username=daemon\nisolate=NO\nisolate_network=NO\nseccomp_sandbox=NO\n"
    );
    fs::write(files.path().join("settings"), settings).unwrap();
    let server = Program(exec(&network, "tcpip3", &[FTP, &format!("{at}/settings")]).spawn().unwrap());
    let fetch = || {
        let arguments = [CURL, "-sS", "-m", "20", "ftp://10.0.2.2/file", "ftp://10.0.2.2/file"];
        exec(&network, "tcpip1", &arguments).output().unwrap()
    };
    wait_until("the server listens", || fetch().status.success());
    let output = fetch();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == [&bytes[..], &bytes].concat(), "the file has changed on the way");
    drop(server);
}

const JAVA_SERVER: &str = r#"import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Server {
    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(8080), 64);
        server.createContext("/", exchange -> {
            int size = exchange.getRequestBody().readAllBytes().length;
            byte[] text = (size + " of " + exchange.getRequestURI()).getBytes();
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
        System.out.println("listens");
    }
}
"#;
/// Each thread uses one connection for its first requests, and then a connection for each request.
const JAVA_CLIENT: &str = "import concurrent.futures, http.client, urllib.request
body = bytes(100_000)
def ask(thread):
    stays = http.client.HTTPConnection('10.0.2.2', 8080, timeout=20)
    for at in range(20):
        path = f'/{thread}/{at}'
        if at < 10:
            stays.request('POST', path, body)
            answer = stays.getresponse().read()
        else:
            answer = urllib.request.urlopen(f'http://10.0.2.2:8080{path}', body, timeout=20).read()
        assert answer == f'100000 of {path}'.encode(), answer
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    list(threads.map(ask, range(8)))
print('all is well')";

#[test]
fn javas_server_answers_with_a_pool_of_threads() {
    if !has(&[&JAVA[..], &[PYTHON]].concat()) {
        return;
    }
    let network = Network::up("exec-java", TOPOLOGY);
    let place = tempfile::tempdir().unwrap();
    let at = place.path().to_str().unwrap();
    fs::write(place.path().join("Server.java"), JAVA_SERVER).unwrap();
    text(&Command::new(JAVA[1]).args(["-d", at]).arg(place.path().join("Server.java")).output().unwrap());
    let (server, _output) = Program::start(&network, "tcpip3", &[JAVA[0], "-cp", at, "Server"]);
    assert_eq!(text(&exec(&network, "tcpip1", &[PYTHON, "-c", JAVA_CLIENT]).output().unwrap()), "all is well\n");
    drop(server);
}

/// Makes the keys and the settings of an ssh server and its client in a directory.
fn prepare_ssh(place: &Path) {
    let at = place.display();
    for key in ["host", "user"] {
        let mut keygen = Command::new(SSH[2]);
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(place.join(key));
        assert!(keygen.status().unwrap().success());
    }
    let server = format!(
        "Port 2222\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    );
    fs::write(place.join("sshd_config"), server).unwrap();
    let host_key = fs::read_to_string(place.join("host.pub")).unwrap();
    fs::write(place.join("known_hosts"), format!("[10.0.2.2]:2222 {host_key}")).unwrap();
    let client = format!(
        "Host server\nHostName 10.0.2.2\nPort 2222\nUser root\nIdentityFile {at}/user\nIdentitiesOnly yes\n\
         UserKnownHostsFile {at}/known_hosts\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n"
    );
    fs::write(place.join("ssh_config"), client).unwrap();
}

#[test]
fn a_session_of_ssh_runs_a_command_on_a_guest() {
    if !has(&SSH) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped, because the server of ssh needs root");
        return;
    }
    let network = Network::up("exec-ssh", TOPOLOGY);
    let place = tempfile::tempdir().unwrap();
    prepare_ssh(place.path());
    let at = place.path().to_str().unwrap();
    // The server needs a directory below /run, which is made in a separate mount namespace.
    let script =
        format!("mount -t tmpfs none /run && mkdir /run/sshd && exec {} -D -E {at}/log -f {at}/sshd_config", SSH[0]);
    let server = [SSH[3], "--mount", "--propagation", "private", "/bin/sh", "-c", &script];
    let server = Program(exec(&network, "tcpip3", &server).spawn().unwrap());
    let ssh = |line: &str| {
        let configuration = format!("{at}/ssh_config");
        let mut command =
            exec(&network, "tcpip1", &[SSH[1], "-F", &configuration, "-o", "BatchMode=yes", "server", line]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let log = || fs::read_to_string(place.path().join("log")).unwrap_or_default();
    wait_until("the server listens", || log().contains("listening"));
    // The session has the addresses of the guests, its input and output pass the connection, and so does its status.
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut client = ssh("echo $SSH_CONNECTION; cat; exit 42").spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || input.write_all(&sent));
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(42), "{}{}", String::from_utf8_lossy(&output.stderr), log());
    sender.join().unwrap().unwrap();
    let end = output.stdout.iter().position(|byte| *byte == b'\n').unwrap();
    let addresses: Vec<&str> = std::str::from_utf8(&output.stdout[..end]).unwrap().split(' ').collect();
    assert_eq!((addresses[0], &addresses[2..]), ("10.0.1.1", &["10.0.2.2", "2222"][..]));
    assert!(output.stdout[end + 1..] == bytes, "the bytes have changed on the way");
    drop(server);
}
