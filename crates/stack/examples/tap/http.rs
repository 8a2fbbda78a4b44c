//! A small HTTP/1.1 server (RFC 9112): a page, content of any length, and the stack's counters.

use crate::content;
use crate::services::{Step, Totals};
use siga_stack::Stack;
use siga_stack::sockets::{TcpError, TcpId};
use siga_stack::time::Instant;

/// Length limit of a request's header section.
const HEAD_BYTES_MAX: usize = 8 << 10;

const PAGE: &str = "<!doctype html><title>siga</title><h1>siga</h1>\
    <p>A page from a TCP/IP stack in a process of its own.\
    <ul><li><a href=/status>what it has counted and holds</a><li><a href=/bytes/1000000>a million bytes</a></ul>\n";

/// A function that generates the text of `/status`.
pub(crate) type Status<'a> = &'a dyn Fn(&Stack, &Totals) -> String;

/// A connection of a browser.
#[derive(Default)]
pub(crate) struct Http {
    /// Received bytes that are not yet processed.
    request: Vec<u8>,
    answer: Option<Answer>,
}

struct Answer {
    /// The header section, and the body unless it is generated content.
    text: Vec<u8>,
    sent: usize,
    /// The positions of the generated content that follows the text: the next byte, and the end.
    at: u64,
    end: u64,
    /// Whether the connection is closed after this response.
    last: bool,
}

impl Http {
    /// Receives requests and sends responses as far as possible.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        id: TcpId,
        totals: &mut Totals,
        chunk: &mut [u8],
        status: Status<'_>,
    ) -> Result<Step, TcpError> {
        loop {
            if let Some(answer) = &mut self.answer {
                if !answer.send(now, stack, id, totals, chunk)? {
                    return Ok(Step::Open);
                }
                if answer.last {
                    return stack.tcp_close(now, id).map(|()| Step::Closed);
                }
                self.answer = None;
            }
            let end = self.request.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if let Some(end) = end {
                let head: Vec<u8> = self.request.drain(..end + 4).collect();
                self.answer = Some(answer(&head, &mut || status(stack, totals)));
                continue;
            }
            if self.request.len() > HEAD_BYTES_MAX {
                self.answer = Some(Answer::text("431 Request Header Fields Too Large", "too long\n", true));
                continue;
            }
            let room = chunk.len().min(HEAD_BYTES_MAX);
            match stack.tcp_receive(now, id, &mut chunk[..room])? {
                None => return Ok(Step::Open),
                Some(0) => return stack.tcp_close(now, id).map(|()| Step::Closed),
                Some(count) => {
                    totals.bytes_received += count as u64;
                    self.request.extend_from_slice(&chunk[..count]);
                }
            }
        }
    }
}

impl Answer {
    fn text(status: &str, body: &str, last: bool) -> Self {
        let mut answer = Self::head(status, "text/plain", body.len() as u64, last);
        answer.text.extend_from_slice(body.as_bytes());
        answer
    }

    fn head(status: &str, kind: &str, bytes: u64, last: bool) -> Self {
        let connection = if last { "close" } else { "keep-alive" };
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\nConnection: {connection}\r\n\r\n"
        );
        Self { text: text.into_bytes(), sent: 0, at: 0, end: 0, last }
    }

    /// Sends as much as possible. Returns true if the complete response is sent.
    fn send(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        id: TcpId,
        totals: &mut Totals,
        chunk: &mut [u8],
    ) -> Result<bool, TcpError> {
        while self.sent < self.text.len() {
            let count = stack.tcp_send(now, id, &self.text[self.sent..])?;
            self.sent += count;
            totals.bytes_sent += count as u64;
            if count == 0 {
                return Ok(false);
            }
        }
        while self.at < self.end {
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            let part = &mut chunk[..left.min(64 << 10)];
            content::fill(self.at, part);
            let count = stack.tcp_send(now, id, part)?;
            self.at += count as u64;
            totals.bytes_sent += count as u64;
            if count < part.len() {
                return Ok(self.at == self.end);
            }
        }
        Ok(true)
    }
}

/// Returns the response to a request with this header section.
fn answer(head: &[u8], status: &mut dyn FnMut() -> String) -> Answer {
    let head = String::from_utf8_lossy(head);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Answer::text("400 Bad Request", "not a request\n", true);
    };
    let named = |line: &str, name: &str| {
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_ascii_lowercase())
    };
    let field = |name: &str| head.lines().skip(1).find_map(|line| named(line, name));
    let last = match field("connection") {
        Some(value) => value.contains("close"),
        None => version == "HTTP/1.0",
    };
    if method != "GET" && method != "HEAD" {
        return Answer::text("405 Method Not Allowed", "GET and HEAD only\n", true);
    }
    let mut answer = match path {
        "/" => {
            let mut answer = Answer::head("200 OK", "text/html", PAGE.len() as u64, last);
            answer.text.extend_from_slice(PAGE.as_bytes());
            answer
        }
        "/status" => Answer::text("200 OK", &status(), last),
        _ => match path.strip_prefix("/bytes/").and_then(|count| count.parse().ok()) {
            Some(bytes) => Answer { end: bytes, ..Answer::head("200 OK", "application/octet-stream", bytes, last) },
            None => Answer::text("404 Not Found", "there are /, /status and /bytes/N\n", last),
        },
    };
    if method == "HEAD" {
        let body = answer.text.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(0, |end| end + 4);
        answer.text.truncate(body);
        answer.end = 0;
    }
    answer
}
