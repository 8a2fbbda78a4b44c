//! The server: checks and answers every exchange and echoes every datagram, all on one thread.

use super::Outcome;
use super::exchange::{Content, HEAD_BYTES, Head, PIECE_BYTES_MAX, PORT};
use super::report::Report;
use siga_fabric::sockets::{Attachment, Poller, SocketId, SocketOptions, TcpListener, TcpStream, UdpSocket};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

/// A connection, with the state that is kept between two events.
struct Served {
    stream: TcpStream,
    state: State,
}

enum State {
    /// Receiving a header: the bytes, and how many have arrived.
    Head([u8; HEAD_BYTES], usize),
    /// Receiving a request: the header, and how many bytes have arrived.
    Request(Head, u64),
    /// Sending a response: the header, and how many bytes have been sent.
    Response(Head, u64),
}

/// The result of serving a connection until it has to wait or is over.
enum Turn {
    Waits,
    Over,
}

/// Serves connections and datagrams until the network goes down.
pub(super) fn run(attachment: &Attachment, report: &Report) -> Outcome<()> {
    let words = |error: io::Error| error.to_string();
    let options = SocketOptions { no_delay: true, ..SocketOptions::default() };
    let mut listeners = Vec::new();
    let mut datagrams = Vec::new();
    for any in ["0.0.0.0", "[::]"] {
        let at = format!("{any}:{PORT}").parse().map_err(|_| "an address that is none".to_owned())?;
        let listener = TcpListener::bind_with(attachment, at, &options).map_err(words)?;
        listener.set_nonblocking(true);
        listeners.push(listener);
        let socket = UdpSocket::bind(attachment, at).map_err(words)?;
        socket.set_nonblocking(true);
        datagrams.push(socket);
    }
    let poller = Poller::new(attachment);
    let mut news = Vec::new();
    // Sleep once, so that the resources for sleeping exist before they are first counted.
    poller.wait(&mut news, Some(Duration::ZERO)).map_err(words)?;
    report.say("ready");
    let mut server = Server { content: Content::new(), buffer: vec![0; PIECE_BYTES_MAX], all: HashMap::new() };
    loop {
        poller.wait(&mut news, Some(Duration::from_secs(1))).map_err(words)?;
        for listener in &listeners {
            server.accept(listener);
        }
        for socket in &datagrams {
            server.echo(socket, report);
        }
        for id in news.drain(..) {
            server.turn(id, report);
        }
    }
}

struct Server {
    content: Content,
    buffer: Vec<u8>,
    all: HashMap<SocketId, Served>,
}

impl Server {
    fn accept(&mut self, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true);
            self.all.insert(stream.id(), Served { stream, state: State::Head([0; HEAD_BYTES], 0) });
        }
    }

    fn echo(&mut self, socket: &UdpSocket, report: &Report) {
        while let Ok((count, from)) = socket.recv_from(&mut self.buffer) {
            // A datagram that does not fit into the send buffer is lost.
            let _ = socket.send_to(&self.buffer[..count], from);
            report.add("datagrams_served", 1);
        }
    }

    fn turn(&mut self, id: SocketId, report: &Report) {
        let Some(served) = self.all.get_mut(&id) else { return };
        match served.turn(&self.content, &mut self.buffer, report) {
            Ok(Turn::Waits) => {}
            Ok(Turn::Over) => _ = self.all.remove(&id),
            Err(error) => {
                // Other errors are ignored: the client reports the failures of its connections.
                if error.kind() == ErrorKind::InvalidData {
                    report.finding(&format!("the server was sent something else: {error}"));
                }
                report.add("connections_lost", 1);
                self.all.remove(&id);
            }
        }
    }
}

impl Served {
    /// Serves the connection until it has to wait.
    fn turn(&mut self, content: &Content, buffer: &mut [u8], report: &Report) -> io::Result<Turn> {
        loop {
            let step = match &mut self.state {
                State::Head(bytes, have) => match self.stream.read(&mut bytes[*have..]) {
                    Ok(0) if *have == 0 => return Ok(Turn::Over),
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(count) => {
                        *have += count;
                        if *have == HEAD_BYTES {
                            let head = Head::read(bytes);
                            let head = head.map_err(|text| io::Error::new(ErrorKind::InvalidData, text))?;
                            self.state = State::Request(head, 0);
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                State::Request(head, have) if *have == head.request => {
                    self.state = State::Response(*head, 0);
                    Ok(())
                }
                State::Request(head, have) => {
                    let room = usize::try_from(head.request - *have).unwrap_or(buffer.len()).min(buffer.len());
                    match self.stream.read(&mut buffer[..room]) {
                        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                        Ok(count) => {
                            if buffer[..count] != *content.at(*have, count as u64) {
                                return Err(io::Error::new(ErrorKind::InvalidData, format!("bytes near {have}")));
                            }
                            *have += count as u64;
                            report.add("bytes_served", count as u64);
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                }
                State::Response(head, gone) if *gone == head.response => {
                    report.add("exchanges_served", 1);
                    if head.last {
                        return Ok(Turn::Over);
                    }
                    self.state = State::Head([0; HEAD_BYTES], 0);
                    Ok(())
                }
                State::Response(head, gone) => {
                    let piece = content.at(*gone, head.response - *gone);
                    self.stream.write(piece).map(|count| *gone += count as u64)
                }
            };
            match step {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Turn::Waits),
                Err(error) => return Err(error),
            }
        }
    }
}
