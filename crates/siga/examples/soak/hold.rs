//! Many connections that are open at the same time on one thread, each used from time to time.

use super::Outcome;
use super::client::SERVER;
use super::exchange::{Content, HEAD_BYTES, Head, PORT};
use super::report::Report;
use siga_fabric::sockets::{Attachment, Poller, SocketId, SocketOptions, TcpStream};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The greatest number of connections that are being opened at the same time.
const OPENING_MAX: usize = 500;
/// Each connection is used once in this interval.
const USED_EVERY: Duration = Duration::from_secs(20);
/// Time limit of an exchange.
const PATIENCE: Duration = Duration::from_secs(30);
/// The length of a request, and of a response.
const BYTES: usize = 64;

struct Held {
    stream: TcpStream,
    open: bool,
    /// While an exchange is in progress: the number of received response bytes, and the time of the request.
    asked: Option<(usize, Instant)>,
}

struct Holder<'a> {
    attachment: &'a Attachment,
    report: &'a Report,
    content: Content,
    to: SocketAddr,
    all: HashMap<SocketId, Held>,
    order: Vec<SocketId>,
    open: usize,
    exchanges: u64,
    longest: Duration,
}

/// Opens all connections, uses each from time to time until `time` is over, and finally uses all at once.
pub(super) fn run(attachment: &Attachment, report: &Report, count: u32, time: Duration) -> Outcome<()> {
    let to = format!("{SERVER}:{PORT}").parse().map_err(|_| "an address that is none".to_owned())?;
    let mut holder = Holder {
        attachment,
        report,
        content: Content::new(),
        to,
        all: HashMap::new(),
        order: Vec::new(),
        open: 0,
        exchanges: 0,
        longest: Duration::ZERO,
    };
    let poller = Poller::new(attachment);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let begun = Instant::now();
    while holder.open < count {
        while holder.all.len() < count && holder.all.len() - holder.open < OPENING_MAX {
            holder.begin()?;
        }
        holder.turn(&poller)?;
        if begun.elapsed() > PATIENCE + time {
            return Err(format!("{} of {count} connections are open after {:?}", holder.open, begun.elapsed()));
        }
    }
    let opened = begun.elapsed();
    report.say(&format!("ready: {count} connections are open after {:.1} s", opened.as_secs_f64()));
    let begun = Instant::now();
    let mut used = 0;
    while begun.elapsed() < time {
        let due = begun.elapsed().as_secs_f64() / USED_EVERY.as_secs_f64() * count as f64;
        while (used as f64) < due {
            holder.ask(used % count)?;
            used += 1;
        }
        holder.turn(&poller)?;
    }
    holder.settle(&poller)?;
    let (spread, longest) = (holder.exchanges, std::mem::take(&mut holder.longest));
    (0..count).try_for_each(|place| holder.ask(place))?;
    holder.settle(&poller)?;
    report.say(&format!(
        "result {count} connections open at a time, opened in {:.1} s, held for {:.0} s; {spread} exchanges on them, none failed, \
         the longest took {:.0} ms; then one on each at once, the longest {:.0} ms",
        opened.as_secs_f64(),
        begun.elapsed().as_secs_f64(),
        longest.as_secs_f64() * 1e3,
        holder.longest.as_secs_f64() * 1e3
    ));
    Ok(())
}

impl Holder<'_> {
    fn begin(&mut self) -> Outcome<()> {
        let options = SocketOptions { no_delay: true, ..SocketOptions::default() };
        let stream = TcpStream::begin(self.attachment, self.to, &options)
            .map_err(|error| format!("connection {}: {error}", self.all.len() + 1))?;
        stream.set_nonblocking(true);
        self.order.push(stream.id());
        self.all.insert(stream.id(), Held { stream, open: false, asked: None });
        Ok(())
    }

    /// Sends a request on a connection, unless an exchange is in progress there.
    fn ask(&mut self, place: usize) -> Outcome<()> {
        let held = self.all.get_mut(&self.order[place]).ok_or("a connection is gone")?;
        if held.asked.is_some() {
            return Ok(());
        }
        let head = Head { request: BYTES as u64, response: BYTES as u64, last: false };
        let request = [&head.bytes(), self.content.at(0, BYTES as u64)].concat();
        match held.stream.write(&request) {
            Ok(sent) if sent == HEAD_BYTES + BYTES => {}
            Ok(sent) => return Err(format!("{sent} bytes found room on a connection at rest")),
            Err(error) => return Err(format!("connection {place} of {}: {error}", self.order.len())),
        }
        held.asked = Some((0, Instant::now()));
        Ok(())
    }

    /// Waits briefly for events and processes them.
    fn turn(&mut self, poller: &Poller) -> Outcome<()> {
        let mut news = Vec::new();
        poller.wait(&mut news, Some(Duration::from_millis(2))).map_err(|error| error.to_string())?;
        news.into_iter().try_for_each(|id| self.hear(id).map_err(|error| format!("a connection failed: {error}")))
    }

    fn hear(&mut self, id: SocketId) -> io::Result<()> {
        let Some(held) = self.all.get_mut(&id) else { return Ok(()) };
        if !held.open && held.stream.is_connected()? {
            held.open = true;
            self.open += 1;
            self.report.add("open", 1);
        }
        let mut buffer = [0; BYTES + 1];
        loop {
            let have = held.asked.map_or(0, |(have, _)| have);
            match held.stream.read(&mut buffer[..=BYTES - have]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    let Some((have, begun)) = held.asked.as_mut() else {
                        return Err(io::Error::new(ErrorKind::InvalidData, "bytes that nobody asked for"));
                    };
                    if buffer[..count] != *self.content.at(*have as u64, count as u64) || *have + count > BYTES {
                        return Err(io::Error::new(ErrorKind::InvalidData, "other bytes than were asked for"));
                    }
                    *have += count;
                    if *have == BYTES {
                        self.longest = self.longest.max(begun.elapsed());
                        self.exchanges += 1;
                        self.report.add("exchanges", 1);
                        held.asked = None;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until no exchange is in progress.
    fn settle(&mut self, poller: &Poller) -> Outcome<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let under_way = self.all.values().filter(|held| held.asked.is_some()).count();
            if under_way == 0 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{under_way} exchanges are not over after {PATIENCE:?}"));
            }
            self.turn(poller)?;
        }
    }
}
