//! What is measured, written once for every stack: two hosts joined by a link, in one thread, and the work that
//! applications at both of them do over the sockets.

/// A host.
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

/// How a pair is made; the same for every stack.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Largest IP packet.
    pub(crate) mtu: u16,
    /// Segments of up to 64 KB cross the link whole, whatever the MTU.
    pub(crate) large_segments: bool,
    /// Checksums are filled in and verified.
    pub(crate) checksums: bool,
    /// Frames begin with an Ethernet header.
    pub(crate) ethernet: bool,
    /// Send buffer, receive buffer and so the window.
    pub(crate) buffer_bytes: usize,
    /// Frames that the link holds in one direction.
    pub(crate) burst_frames: usize,
    /// Connections at a time.
    pub(crate) connections: usize,
}

impl Setting {
    /// Memory of a frame. In more than it needs, the beginnings of all frames would lie in the same few places of the caches.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        14 + if self.large_segments { usize::from(u16::MAX) } else { usize::from(self.mtu) }
    }
}

/// Two hosts of one kind.
pub(crate) trait Pair {
    /// One end of a connection.
    type Socket: Copy;

    /// Hosts without a connection.
    fn new(setting: Setting) -> Self;
    /// Begins a connection from the client.
    fn connect(&mut self) -> Self::Socket;
    /// The server's end of the next connection that is open.
    fn accept(&mut self) -> Option<Self::Socket>;
    /// Writes as much as there is room for, and says how much.
    fn send(&mut self, side: Side, socket: Self::Socket, bytes: &[u8]) -> usize;
    /// Reads what is there, and says how much.
    fn receive(&mut self, side: Side, socket: Self::Socket, into: &mut [u8]) -> usize;
    /// True if the other side has closed and all was read.
    fn is_finished(&mut self, side: Side, socket: Self::Socket) -> bool;
    /// Ends the direction from this side.
    fn close(&mut self, side: Side, socket: Self::Socket);
    /// Both ends have closed, and every frame has crossed. Their sockets may be used again.
    fn release(&mut self, client: Self::Socket, server: Self::Socket);
    /// Puts frames on the link until there are none or it is full.
    fn emit(&mut self, side: Side);
    /// Takes all frames off the link.
    fn take(&mut self, side: Side);
}

/// An open connection.
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

/// Memory of both applications, made once.
pub(crate) struct Application {
    output: Vec<u8>,
    input: Vec<u8>,
}

/// Crossings of the link after which a transfer counts as stalled, each without a byte.
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

    /// A request and its answer.
    pub(crate) fn request<P: Pair>(&mut self, pair: &mut P, ends: &Ends<P::Socket>, request: usize, answer: usize) {
        self.transfer(pair, Side::Client, ends, request);
        self.transfer(pair, Side::Server, ends, answer);
    }

    /// A connection for one request and its answer. The server closes first, with its last byte.
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

/// Opens a connection.
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

/// Moves all frames that one side has to send to the other.
fn cross<P: Pair>(pair: &mut P, from: Side) {
    pair.emit(from);
    pair.take(from.other());
}
