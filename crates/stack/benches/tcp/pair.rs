//! The measured work, independent of the stack: two hosts that are joined by a link in one thread, and applications at both hosts
//! that use sockets.

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The settings of a pair; the same for every stack.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// The size of the largest IP packet (MTU), in bytes.
    pub(crate) mtu: u16,
    /// Whether segments of up to 64 KB cross the link uncut, whatever the MTU is.
    pub(crate) large_segments: bool,
    /// Whether checksums are filled in and verified.
    pub(crate) checksums: bool,
    /// Whether frames have an Ethernet header.
    pub(crate) ethernet: bool,
    /// The size of the send buffer and of the receive buffer, and thus of the window.
    pub(crate) buffer_bytes: usize,
    /// The number of frames for which the link has room in one direction.
    pub(crate) burst_frames: usize,
    /// The number of connections that are open at the same time.
    pub(crate) connections: usize,
}

impl Setting {
    /// Returns the memory for a frame, in bytes. The size is not rounded up: otherwise the first bytes of all frames would
    /// compete for the same cache sets.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        14 + if self.large_segments { usize::from(u16::MAX) } else { usize::from(self.mtu) }
    }
}

/// Two hosts with the same stack, joined by a link.
pub(crate) trait Pair {
    /// One end of a connection.
    type Socket: Copy;

    /// Makes two hosts without connections.
    fn new(setting: Setting) -> Self;
    /// Starts to open a connection from the client.
    fn connect(&mut self) -> Self::Socket;
    /// Accepts the next open connection. Returns the server's socket.
    fn accept(&mut self) -> Option<Self::Socket>;
    /// Writes as many bytes as the send buffer has room for, and returns their number.
    fn send(&mut self, side: Side, socket: Self::Socket, bytes: &[u8]) -> usize;
    /// Reads the received bytes, and returns their number.
    fn receive(&mut self, side: Side, socket: Self::Socket, into: &mut [u8]) -> usize;
    /// Whether the other side has closed and all bytes were read.
    fn is_finished(&mut self, side: Side, socket: Self::Socket) -> bool;
    /// Closes the direction from this side.
    fn close(&mut self, side: Side, socket: Self::Socket);
    /// Releases the sockets of a connection for reuse. Both ends have closed, and every frame has crossed the link.
    fn release(&mut self, client: Self::Socket, server: Self::Socket);
    /// Puts the stack's frames on the link until the stack has no more or the link is full.
    fn emit(&mut self, side: Side);
    /// Passes all frames from the link to the stack.
    fn take(&mut self, side: Side);
    /// Returns how many frames have crossed the link in both directions.
    fn frames(&self) -> u64;
}

/// The two ends of an open connection.
#[derive(Clone, Copy)]
pub(crate) struct Ends<S> {
    pub(crate) client: S,
    pub(crate) server: S,
}

impl<S: Copy> Ends<S> {
    fn of(&self, side: Side) -> S {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
    }
}

/// Buffers of both applications, allocated once.
pub(crate) struct Application {
    output: Vec<u8>,
    input: Vec<u8>,
}

/// A transfer counts as stalled after this many rounds over the link without a byte.
const STALL_ROUNDS_MAX: usize = 1000;

impl Application {
    pub(crate) fn new(write_bytes: usize) -> Self {
        Self { output: vec![0x5a; write_bytes], input: vec![0; write_bytes] }
    }

    /// Moves `bytes` bytes from the application of the side `from` to that of the other side.
    pub(crate) fn transfer<P: Pair>(&mut self, pair: &mut P, from: Side, ends: &Ends<P::Socket>, bytes: usize) {
        let (source, sink) = (ends.of(from), ends.of(from.other()));
        let (mut sent, mut received, mut idle) = (0, 0, 0);
        loop {
            if sent < bytes {
                sent += pair.send(from, source, &self.output[..self.output.len().min(bytes - sent)]);
            }
            cross(pair, from);
            let before = received;
            received += self.read(pair, from.other(), sink);
            if received >= bytes {
                break;
            }
            idle = if received > before { 0 } else { idle + 1 };
            assert!(idle < STALL_ROUNDS_MAX, "stalled at {received} of {bytes} bytes");
            cross(pair, from.other());
        }
        assert_eq!(received, bytes);
    }

    fn read<P: Pair>(&mut self, pair: &mut P, side: Side, socket: P::Socket) -> usize {
        let mut received = 0;
        loop {
            match pair.receive(side, socket, &mut self.input) {
                0 => return received,
                more => received += more,
            }
        }
    }

    /// Carries out a request and its response.
    pub(crate) fn request<P: Pair>(&mut self, pair: &mut P, ends: &Ends<P::Socket>, request: usize, answer: usize) {
        self.transfer(pair, Side::Client, ends, request);
        self.transfer(pair, Side::Server, ends, answer);
    }

    /// Carries out a request and its response over several connections at the same time. Each connection may occur once.
    pub(crate) fn requests<P: Pair>(&mut self, pair: &mut P, ends: &[Ends<P::Socket>], request: usize, answer: usize) {
        for one in ends {
            assert_eq!(pair.send(Side::Client, one.client, &self.output[..request]), request);
        }
        cross(pair, Side::Client);
        for one in ends {
            assert_eq!(self.read(pair, Side::Server, one.server), request);
            assert_eq!(pair.send(Side::Server, one.server, &self.output[..answer]), answer);
        }
        cross(pair, Side::Server);
        for one in ends {
            assert_eq!(self.read(pair, Side::Client, one.client), answer);
        }
    }

    /// Opens a connection for one request and its response. The server closes first, together with its last byte.
    pub(crate) fn connect_request<P: Pair>(&mut self, pair: &mut P, request: usize, answer: usize) {
        let client = pair.connect();
        cross(pair, Side::Client);
        cross(pair, Side::Server);
        assert_eq!(pair.send(Side::Client, client, &self.output[..request]), request);
        cross(pair, Side::Client);
        let server = pair.accept().expect("the third segment opens a connection");
        assert_eq!(self.read(pair, Side::Server, server), request);
        assert_eq!(pair.send(Side::Server, server, &self.output[..answer]), answer);
        pair.close(Side::Server, server);
        let (mut received, mut rounds) = (0, 0);
        while received < answer || !pair.is_finished(Side::Client, client) {
            cross(pair, Side::Server);
            received += self.read(pair, Side::Client, client);
            if received < answer {
                cross(pair, Side::Client);
            }
            rounds += 1;
            assert!(rounds < STALL_ROUNDS_MAX, "stalled at {received} of {answer} bytes");
        }
        assert_eq!(received, answer);
        pair.close(Side::Client, client);
        cross(pair, Side::Client);
        cross(pair, Side::Server);
        pair.release(client, server);
    }
}

/// Opens a connection and returns its two ends.
pub(crate) fn open<P: Pair>(pair: &mut P) -> Ends<P::Socket> {
    let client = pair.connect();
    for _ in 0..STALL_ROUNDS_MAX {
        cross(pair, Side::Client);
        if let Some(server) = pair.accept() {
            return Ends { client, server };
        }
        cross(pair, Side::Server);
    }
    panic!("no connection");
}

/// Moves all frames that one side has to send to the other side.
fn cross<P: Pair>(pair: &mut P, from: Side) {
    pair.emit(from);
    pair.take(from.other());
}
