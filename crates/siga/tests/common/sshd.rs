//! ssh servers on loopback that play other hosts. Each has its own port, keys, CPUs and temporary directory, and ends with its value.

use super::{Bench, has, processes, root};
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// An ssh server on loopback that plays another host.
pub(crate) struct Host {
    server: Child,
    /// The directory for temporary files of commands on the host.
    pub(crate) remote: PathBuf,
}

impl Host {
    /// Starts the host `name`, which `ssh -F ssh_config NAME` reaches from then on. `cpus` is a list of the host's CPUs; empty: all.
    /// Returns `None` if this machine cannot run ssh servers.
    pub(crate) fn start(bench: &Bench, name: &str, cpus: &str) -> Option<Self> {
        let needed = ["sshd", "ssh", "ssh-keygen", "unshare", "taskset"];
        if !root("run an sshd of its own") || !needed.into_iter().all(has) {
            return None;
        }
        let remote = bench.path(&format!("{name}-tmp"));
        fs::create_dir(&remote).unwrap();
        Self::configure(bench, name, &remote.display().to_string());
        // sshd needs a directory below /run, which is made in a separate mount namespace.
        let pinned = if cpus.is_empty() { String::new() } else { format!("taskset -c {cpus} ") };
        let script = format!(
            "mount -t tmpfs none /run && mkdir /run/sshd && exec {pinned}/usr/sbin/sshd -D -e -f {name}-sshd_config"
        );
        let mut command = bench.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let host = Self { server, remote };
        let begun = Instant::now();
        loop {
            let mut ssh = bench.command("ssh");
            let output = ssh.args(["-F", "ssh_config", "-o", "BatchMode=yes", name, "true"]).output().unwrap();
            if output.status.success() {
                return Some(host);
            }
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            if begun.elapsed() > Duration::from_secs(5) {
                println!("skipped, because the sshd of the test refuses the login: {text}");
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Writes keys and configuration of the server, and adds the host to the client's configuration.
    fn configure(bench: &Bench, name: &str, remote: &str) {
        let directory = bench.path("").display().to_string();
        for key in ["host", "user"] {
            let mut keygen = bench.command("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(bench.path(&format!("{name}-{key}")));
            assert!(keygen.status().unwrap().success());
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let server = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {directory}{name}-host\n\
             AuthorizedKeysFile {directory}{name}-user.pub\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\nSetEnv TMPDIR={remote}\n"
        );
        fs::write(bench.path(&format!("{name}-sshd_config")), server).unwrap();
        let host_key = fs::read_to_string(bench.path(&format!("{name}-host.pub"))).unwrap();
        append(bench, "known_hosts", &format!("[127.0.0.1]:{port} {host_key}"));
        let client = format!(
            "Host {name}\nHostName 127.0.0.1\nPort {port}\nUser root\nIdentityFile {directory}{name}-user\n\
             IdentitiesOnly yes\nUserKnownHostsFile {directory}known_hosts\nGlobalKnownHostsFile none\n\
             StrictHostKeyChecking yes\n"
        );
        append(bench, "ssh_config", &client);
    }

    /// Returns the command lines of processes that run the program's copy on the host.
    pub(crate) fn agents(&self) -> Vec<String> {
        let remote = self.remote.display().to_string();
        let line = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        processes().into_iter().map(line).filter(|line| line.contains(&remote)).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

fn append(bench: &Bench, file: &str, text: &str) {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(bench.path(file)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
