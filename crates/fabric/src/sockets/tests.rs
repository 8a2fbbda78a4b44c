//! What applications that sleep and poll put on the wire, with both ends on this thread.

use super::embedded::Embedded;
use super::{Attachment, Poller, SocketId, SocketOptions, TcpListener, TcpStream};
use crate::guest::tests::lockstep::{Guest, couple};
use crate::protocol::channel::Channel;
use crate::protocol::report::ReportPart;
use siga_model::topology::Topology;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

const NETWORK: &str = r#"
[network.lan]
type = "hipersockets"
[guest.client]
device = [{ network = "lan", addresses = ["10.0.2.1/24"] }]
[guest.server]
device = [{ network = "lan", addresses = ["10.0.2.2/24"] }]
"#;
const SERVER: &str = "10.0.2.2:7";

/// An application that polls its sockets.
struct End {
    attachment: Attachment,
    poller: Poller,
    _control: Channel,
}

impl End {
    fn new(guest: Guest) -> Self {
        let (node, control) = guest.sleeper();
        let attachment = Attachment::new(Box::new(Embedded::new(node))).unwrap();
        Self { poller: Poller::new(&attachment), attachment, _control: control }
    }

    fn look(&self) -> Vec<SocketId> {
        let mut news = Vec::new();
        self.poller.look(&mut news).unwrap();
        news
    }

    fn frames_sent(&self) -> u64 {
        let parts = self.attachment.report().unwrap();
        let sent = |part: &ReportPart| match part {
            ReportPart::Link(link) => link.counters["frames_sent"],
            ReportPart::Device(_)
            | ReportPart::Application(_)
            | ReportPart::Stack(_)
            | ReportPart::Totals(_)
            | ReportPart::Addresses { .. } => 0,
        };
        parts.iter().map(sent).sum()
    }
}

struct Pair {
    client: End,
    server: End,
    listener: TcpListener,
}

impl Pair {
    fn new() -> Self {
        let topology = Topology::parse(NETWORK).unwrap();
        let [mut client, mut server] = ["client", "server"].map(|name| Guest::new(&topology, name));
        couple(1, "lan", &mut client, &mut server);
        let [client, server] = [client, server].map(End::new);
        let listener = TcpListener::bind(&server.attachment, SERVER.parse().unwrap()).unwrap();
        listener.set_nonblocking(true);
        Self { client, server, listener }
    }

    /// Connections that say something as soon as they are open, which the server has taken in, but not its application.
    fn ask(&self, count: usize) -> Vec<TcpStream> {
        let options = SocketOptions { no_delay: true, ..SocketOptions::default() };
        let begin = || TcpStream::begin(&self.client.attachment, SERVER.parse().unwrap(), &options).unwrap();
        let streams: Vec<_> = (0..count).map(|_| begin()).collect();
        assert_eq!(self.server.look(), []);
        assert_eq!(self.client.look(), streams.iter().map(TcpStream::id).collect::<Vec<_>>());
        let before = self.client.frames_sent();
        for stream in &streams {
            assert_eq!((&*stream).write(b"request").unwrap(), 7);
        }
        assert_eq!((before, self.client.frames_sent()), (count as u64, 2 * count as u64), "none but SYNs and requests");
        assert_eq!(self.server.look(), [self.listener.id()]);
        streams
    }

    fn accept(&self) -> TcpStream {
        let stream = self.listener.accept().unwrap().0;
        stream.set_nonblocking(true);
        stream
    }
}

/// Runs a scenario, and again if it failed and was interrupted for so long that something came due by the clock.
fn undisturbed(scenario: impl Fn(&Pair)) {
    const UNDISTURBED: Duration = Duration::from_millis(30);
    for _ in 0..100 {
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(&Pair::new())));
        match outcome {
            Ok(()) => return,
            Err(cause) if start.elapsed() < UNDISTURBED => resume_unwind(cause),
            Err(_) => {}
        }
    }
    panic!("interrupted each time");
}

#[test]
fn an_application_that_answers_one_connection_acknowledges_others_at_the_next_poll() {
    undisturbed(|pair| {
        let _asked = pair.ask(3);
        let [_first, second, third] = [0; 3].map(|_| pair.accept());
        let sent = pair.server.frames_sent();
        assert_eq!((&third).write(b"response").unwrap(), 8);
        assert_eq!(pair.server.frames_sent() - sent, 1, "nothing but the response");
        drop(second);
        assert_eq!(pair.server.frames_sent() - sent, 2, "nothing but the end");
        for _ in 0..2 {
            pair.server.look();
        }
        assert_eq!(pair.server.frames_sent() - sent, 3, "the acknowledgement of the first");
    });
}

#[test]
fn a_poll_between_accept_and_read_leaves_the_ack_to_the_response() {
    undisturbed(|pair| {
        let asked = pair.ask(1).remove(0);
        let served = pair.accept();
        assert_eq!(pair.server.look(), [served.id()]);
        assert_eq!((&served).read(&mut [0; 100]).unwrap(), 7);
        assert_eq!((&served).write(b"response").unwrap(), 8);
        assert_eq!(pair.server.frames_sent(), 2, "the answer to the SYN, the response");
        assert_eq!(pair.client.look(), [asked.id()]);
        assert_eq!((&asked).read(&mut [0; 100]).unwrap(), 8);
    });
}

#[test]
fn an_application_that_never_reads_acknowledges_at_the_second_next_poll() {
    undisturbed(|pair| {
        let _asked = pair.ask(1);
        let served = pair.accept();
        assert_eq!((pair.server.look(), pair.server.frames_sent()), (vec![served.id()], 1));
        assert_eq!((pair.server.look(), pair.server.frames_sent()), (vec![], 2));
    });
}

#[test]
fn an_application_that_accepts_before_each_poll_still_acknowledges() {
    undisturbed(|pair| {
        let _asked = pair.ask(3);
        let sent = pair.server.frames_sent();
        let mut served = Vec::new();
        let mut looks = || {
            served.push(pair.accept());
            (pair.server.look().len(), pair.server.frames_sent() - sent)
        };
        assert_eq!([looks(), looks()], [(1, 0), (1, 3)]);
    });
}

#[test]
fn a_program_connects_with_data_that_arrives_before_the_handshake_ends() {
    let mut pair = Pair::new();
    let options = SocketOptions { fast_open_pending_max: 4, ..SocketOptions::default() };
    let local = "10.0.2.2:8".parse().unwrap();
    pair.listener = TcpListener::bind_with(&pair.server.attachment, local, &options).unwrap();
    pair.listener.set_nonblocking(true);
    let connect = |pair: &Pair| {
        let (client, no_options) = (&pair.client.attachment, SocketOptions::default());
        let (stream, written) = TcpStream::connect_with_data(client, local, &no_options, b"request").unwrap();
        assert_eq!(written, 7);
        pair.server.look();
        stream
    };
    // A poll may delay what it has to send until the application has handled its events.
    let turns = |pair: &Pair| {
        for _ in 0..4 {
            pair.client.look();
            pair.server.look();
        }
    };
    let mut first = connect(&pair);
    assert!(pair.listener.accept().is_err(), "without a cookie, the handshake comes first");
    turns(&pair);
    let (mut accepted, _) = pair.listener.accept().unwrap();
    let mut into = [0; 9];
    assert_eq!(accepted.read(&mut into).unwrap(), 7);
    accepted.write_all(b"answer").unwrap();
    turns(&pair);
    assert_eq!(first.read(&mut into).unwrap(), 6);

    let mut second = connect(&pair);
    let (mut accepted, _) = pair.listener.accept().unwrap();
    assert_eq!(accepted.read(&mut into).unwrap(), 7);
    assert_eq!(&into[..7], b"request");
    accepted.write_all(b"answer").unwrap();
    turns(&pair);
    assert_eq!(second.read(&mut into).unwrap(), 6);
}
