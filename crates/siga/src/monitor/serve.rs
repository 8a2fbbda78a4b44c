//! The HTTP server of `siga monitor --listen`: it answers `GET /metrics` with the latest counters.
//!
//! Every request is hostile. One thread serves at most [`CLIENTS_MAX`] connections. Each has a bounded request and a bounded time, and
//! one answer. A request causes no reading of counters, so clients cannot make the monitor use the network.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use siga_fabric::protocol::secret::Secret;
use siga_model::error::{Error, IoContext, Result};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of connections at a time. A further connection replaces the oldest one.
const CLIENTS_MAX: usize = 32;
/// Maximum length of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Maximum time of a connection.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(5);
/// Minimum length of a token in a file, in characters.
const TOKEN_CHARS_MIN: usize = 16;
/// Maximum size of the file of a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 4 << 10;
/// The type of OpenMetrics texts.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A running server. It ends with the process.
pub(super) struct Server {
    address: SocketAddr,
    latest: Arc<Mutex<Arc<str>>>,
    /// The token, if siga has drawn it.
    drawn: Option<Secret>,
}

impl Server {
    /// Listens on an address, and serves in a thread.
    ///
    /// # Errors
    /// Returns an error if the address cannot be used, or if the file of the token is not private.
    pub(super) fn start(address: SocketAddr, token_file: Option<&Path>) -> Result<Self> {
        let (token, drawn) = match token_file {
            Some(file) => (Some(read_token(file)?), None),
            None if address.ip().is_loopback() => (None, None),
            None => {
                let drawn = Secret::draw().context("cannot draw a token")?;
                (Some(drawn.clone()), Some(drawn))
            }
        };
        let listener = TcpListener::bind(address).map_err(|error| refused(address, &error))?;
        listener.set_nonblocking(true).context("cannot prepare the socket of --listen")?;
        let address = listener.local_addr().context("cannot read the address of --listen")?;
        let latest: Arc<Mutex<Arc<str>>> = Arc::new(Mutex::new("# EOF\n".into()));
        let mut service = Service { listener, clients: Vec::new(), token, latest: Arc::clone(&latest) };
        let thread = std::thread::Builder::new().name("siga-metrics".into());
        thread.spawn(move || while service.turn() {}).context("cannot start the thread of --listen")?;
        Ok(Self { address, latest, drawn })
    }

    /// Returns the address on which the server listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the token, if siga has drawn it.
    pub(super) fn drawn_token(&self) -> Option<&str> {
        self.drawn.as_ref().map(Secret::text)
    }

    /// Replaces the text that clients get.
    pub(super) fn publish(&self, text: String) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = text.into();
    }
}

fn refused(address: SocketAddr, error: &std::io::Error) -> Error {
    let message = format!("cannot listen on {address}: {error}");
    let hint = if error.kind() == ErrorKind::AddrInUse {
        "another process uses this port; choose another one"
    } else {
        "use an address of this host, and a port that you may use"
    };
    Error::environment(message).hint(hint)
}

/// Reads a token: the only line of a file that only the user can read.
fn read_token(path: &Path) -> Result<Secret> {
    let at = || format!("cannot read the token in {}", path.display());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).context(at())?);
    let known = file.metadata().context(at())?;
    if !known.is_file() {
        return Err(Error::usage(format!("{}: it is not a regular file", at())));
    }
    if known.mode() & 0o077 != 0 || known.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::usage(format!("{}: the file does not belong to you alone", at()))
            .hint(format!("run `chmod 600 {}`", siga_model::text::shell(&path.display().to_string()))));
    }
    let mut text = String::new();
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).context(at())?;
    let token = text.trim();
    if token.chars().count() < TOKEN_CHARS_MIN || !token.chars().all(|letter| letter.is_ascii_graphic()) {
        return Err(Error::usage(format!("{}: it is not one word of at least {TOKEN_CHARS_MIN} characters", at()))
            .hint("make one with `openssl rand -hex 32`"));
    }
    Ok(Secret::claimed(token))
}

/// A connection.
struct Client {
    stream: TcpStream,
    until: Instant,
    request: Vec<u8>,
    /// The answer that is left to send. `None` before the request is complete.
    answer: Option<(Vec<u8>, usize)>,
}

struct Service {
    listener: TcpListener,
    clients: Vec<Client>,
    token: Option<Secret>,
    latest: Arc<Mutex<Arc<str>>>,
}

impl Service {
    /// Waits for connections and bytes, and handles them. Returns false if waiting is not possible.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        self.clients.retain(|client| client.until > now);
        let next = self.clients.iter().map(|client| client.until.saturating_duration_since(now)).min();
        // Rounded up, so that the wait does not end just before the time.
        let limit = next.and_then(|next| Timespec::try_from(next + Duration::from_millis(1)).ok());
        let wanted = |client: &Client| if client.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
        let ready: Vec<bool> = {
            let mut entries = vec![PollFd::new(&self.listener, PollFlags::IN)];
            entries.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, wanted(client))));
            match poll(&mut entries, limit.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => return true,
                Err(_) => return false,
            }
            entries.iter().map(|entry| !entry.revents().is_empty()).collect()
        };
        let mut is_ready = ready[1..].iter().copied();
        let (token, latest) = (&self.token, &self.latest);
        self.clients.retain_mut(|client| !is_ready.next().unwrap_or(false) || client.advance(token.as_ref(), latest));
        if ready[0] {
            self.accept(now);
        }
        true
    }

    fn accept(&mut self, now: Instant) {
        match self.listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                if self.clients.len() >= CLIENTS_MAX {
                    self.clients.remove(0);
                }
                let until = now + CLIENT_TIME_MAX;
                self.clients.push(Client { stream, until, request: Vec::new(), answer: None });
            }
            Ok(_) => {}
            // Without free descriptors, the connection stays in the queue. The wait keeps this thread from spinning.
            Err(error) if error.kind() != ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(100)),
            Err(_) => {}
        }
    }
}

impl Client {
    /// Reads or writes. Returns false if the connection has ended.
    fn advance(&mut self, token: Option<&Secret>, latest: &Mutex<Arc<str>>) -> bool {
        if self.answer.is_none() {
            let mut bytes = [0; 2 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.request.extend_from_slice(&bytes[..count]),
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
            let text = || Arc::clone(&latest.lock().unwrap_or_else(PoisonError::into_inner));
            self.answer = answer(&self.request, token, text).map(|answer| (answer, 0));
        }
        let Some((answer, sent)) = &mut self.answer else { return true };
        match self.stream.write(&answer[*sent..]) {
            Ok(count) => {
                *sent += count;
                if *sent < answer.len() {
                    return true;
                }
                // If the client sent more than was read, closing now would make the kernel discard the answer.
                let _ = self.stream.shutdown(std::net::Shutdown::Write);
                let mut rest = [0; 2 << 10];
                for _ in 0..64 {
                    if !matches!(self.stream.read(&mut rest), Ok(count) if count > 0) {
                        break;
                    }
                }
                false
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}

/// Returns the answer to a request, or `None` if the request is not complete. `metrics` returns the latest counters.
fn answer(request: &[u8], token: Option<&Secret>, metrics: impl FnOnce() -> Arc<str>) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() < REQUEST_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(response("431 Request Header Fields Too Large", "", "the request is too long\n", true));
        }
        Err(_) => return Some(response("400 Bad Request", "", "this is not a request of HTTP/1\n", true)),
        Ok(httparse::Status::Complete(_)) => {}
    }
    let header = |name: &str| {
        let mut values = parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        values.next().and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let claimed = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let is_allowed =
        token.is_none_or(|token| claimed.is_some_and(|claimed| token.is(&Secret::claimed(claimed.trim()))));
    if !is_allowed {
        let ask = "WWW-Authenticate: Bearer realm=\"siga monitor\"\r\n";
        return Some(response("401 Unauthorized", ask, "this server needs a token\n", true));
    }
    if token.is_none() && !header("host").is_none_or(is_own_host) {
        let text = "without a token, the host of the URL must be an IP address or localhost\n";
        return Some(response("403 Forbidden", "", text, true));
    }
    let has_body = match parsed.method.unwrap_or_default() {
        "GET" => true,
        "HEAD" => false,
        _ => return Some(response("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "use GET\n", true)),
    };
    let path = parsed.path.unwrap_or_default();
    match path.split('?').next() {
        Some("/metrics") => {
            let head = format!("Content-Type: {OPEN_METRICS}\r\n");
            Some(response("200 OK", &head, &metrics(), has_body))
        }
        _ => Some(response("404 Not Found", "", "use /metrics\n", has_body)),
    }
}

/// Returns true if the host of a URL is an IP address or localhost. A page on the web can let a name of its own lead to this host, but
/// not an address.
fn is_own_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn response(status: &str, head: &str, body: &str, has_body: bool) -> Vec<u8> {
    let kind = if head.contains("Content-Type") { "" } else { "Content-Type: text/plain; charset=utf-8\r\n" };
    let length = body.len();
    let sent = if has_body { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\n{kind}{head}Content-Length: {length}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{sent}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str, token: Option<&Secret>) -> String {
        let answer = answer(request.as_bytes(), token, || "metrics 1\n# EOF\n".into()).unwrap();
        String::from_utf8(answer).unwrap().lines().next().unwrap().to_owned()
    }

    #[test]
    fn metrics_need_the_right_token_if_there_is_one() {
        let token = Secret::draw().unwrap();
        let with =
            |claimed: &str| format!("GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {claimed}\r\n\r\n");
        assert_eq!(status(&with(token.text()), Some(&token)), "HTTP/1.1 200 OK");
        for wrong in ["", "x", &token.text()[1..]] {
            assert_eq!(status(&with(wrong), Some(&token)), "HTTP/1.1 401 Unauthorized");
        }
        assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n", Some(&token)), "HTTP/1.1 401 Unauthorized");
    }

    #[test]
    fn a_name_that_leads_to_this_host_gets_no_metrics_without_a_token() {
        for (host, wanted) in [
            ("127.0.0.1:9464", "200 OK"),
            ("[::1]:9464", "200 OK"),
            ("localhost", "200 OK"),
            ("evil.example:9464", "403 Forbidden"),
            ("localhost.evil.example", "403 Forbidden"),
        ] {
            let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(status(&request, None), format!("HTTP/1.1 {wanted}"), "{host}");
        }
    }

    #[test]
    fn wrong_and_long_requests_get_an_error() {
        for (request, wanted) in [
            ("POST /metrics HTTP/1.1\r\n\r\n".to_owned(), "405 Method Not Allowed"),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), "404 Not Found"),
            ("HEAD /metrics HTTP/1.0\r\n\r\n".to_owned(), "200 OK"),
            ("\u{0}\u{1}\r\n\r\n".to_owned(), "400 Bad Request"),
            (format!("GET /{} HTTP/1.1\r\n", "x".repeat(REQUEST_BYTES_MAX)), "431 Request Header Fields Too Large"),
            (
                format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1)),
                "431 Request Header Fields Too Large",
            ),
        ] {
            assert_eq!(status(&request, None), format!("HTTP/1.1 {wanted}"));
        }
        assert!(answer(b"GET /metrics HTTP/1.1\r\nHost: h\r\n", None, || "".into()).is_none());
    }

    #[test]
    fn slow_clients_do_not_keep_others_from_the_metrics() {
        let server = Server::start("127.0.0.1:0".parse().unwrap(), None).unwrap();
        server.publish("metrics 1\n# EOF\n".into());
        let slow: Vec<TcpStream> = (0..2 * CLIENTS_MAX)
            .map(|_| {
                let mut client = TcpStream::connect(server.address()).unwrap();
                client.write_all(b"GET /met").unwrap();
                client
            })
            .collect();
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("metrics 1\n# EOF\n"), "{text}");
        // The server closes the connections of slow clients: at once if there are too many, or else after their time.
        for mut client in slow {
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_port_in_use_and_a_token_that_others_can_read_are_refused() {
        let server = Server::start("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let error = Server::start(server.address(), None).err().unwrap();
        assert!(error.message().contains("cannot listen on 127.0.0.1:") && error.exit_status() == 3, "{error}");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        for (mode, wanted) in [(0o644, Some("does not belong to you alone")), (0o600, None)] {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&file, permissions).unwrap();
            let error = read_token(&file).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), wanted.is_some(), "{error:?}");
            assert!(error.unwrap_or_default().contains(wanted.unwrap_or_default()));
        }
        std::fs::write(&file, "short\n").unwrap();
        assert!(read_token(&file).is_err());
    }

    #[test]
    fn an_address_of_the_network_needs_a_token_that_siga_draws() {
        let server = Server::start("0.0.0.0:0".parse().unwrap(), None).unwrap();
        assert_eq!(server.drawn_token().map(str::len), Some(64));
    }
}
