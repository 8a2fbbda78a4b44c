//! How often a byte is copied between two applications that use the stacks of guests, all on this thread.

use super::super::provider::{Provider, SocketId, SocketOptions};
use super::{Iucv, Kind, id_of};
use crate::application::record::Command;
use crate::guest::tests::lockstep::{Guest, couple, figure_1};
use crate::protocol::report::ReportPart;
use std::collections::VecDeque;
use std::io::ErrorKind;

const PART: usize = 33_000;
/// Those of a part, its acknowledgements, and the records that tell of it.
const HEADERS: usize = 2_000;

/// Figure 1 with an application of its client and one of its server.
struct Scene {
    guests: [Guest; 3],
    client: Iucv,
    server: Iucv,
}

impl Scene {
    fn new() -> Self {
        let topology = figure_1();
        let mut guests = ["client", "router", "server"].map(|name| Guest::new(&topology, name));
        let [client, router, server] = &mut guests;
        couple(1, "link", client, router);
        couple(2, "lan", router, server);
        let [client, server] = [client, server].map(|guest| Iucv::new(guest.application()).unwrap());
        Self { guests, client, server }
    }

    fn turn(&mut self) {
        self.client.work();
        self.guests.iter_mut().for_each(Guest::turn_with_applications);
        self.server.work();
    }

    /// Turns until something is there.
    fn until<T>(&mut self, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..10_000 {
            self.turn();
            if let Some(found) = found(self) {
                return found;
            }
        }
        panic!("it does not come");
    }

    /// A connection that is open at both ends.
    fn connect(&mut self) -> (SocketId, SocketId) {
        let (to, options) =
            ("10.0.2.2:7".parse().unwrap(), SocketOptions { no_delay: true, ..SocketOptions::default() });
        let command = Command::Listen { local: to, backlog: 1, options };
        // Nobody waits for the answer: it comes in a later turn.
        let listener = self.server.ask(Kind::Listener { incoming: VecDeque::new() }, command).unwrap();
        self.turn();
        let client = self.client.connect("0.0.0.0:0".parse().unwrap(), to, &options).unwrap();
        let accept = |scene: &mut Self| scene.server.accept(id_of(listener)).ok();
        let (server, _) = self.until(accept);
        (client, server)
    }

    /// Has bytes cross.
    fn carry(&mut self, (client, server): (SocketId, SocketId), bytes: &[u8]) {
        let (mut sent, mut received) = (0, vec![0; bytes.len()]);
        let mut done = 0;
        let take = |outcome: std::io::Result<usize>| match outcome {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            outcome => outcome.unwrap(),
        };
        self.until(|scene| {
            sent += if sent < bytes.len() { take(scene.client.send(client, &bytes[sent..])) } else { 0 };
            done += take(scene.server.receive(server, &mut received[done..]));
            (done == bytes.len()).then_some(())
        });
        assert!(received == bytes);
    }

    /// Bytes copied out of memory of others, by guests and applications.
    fn copied(&mut self) -> usize {
        let guests: u64 = self.guests.iter().map(|guest| guest.count("copied_bytes")).sum();
        let of = |parts: Vec<ReportPart>| match &parts[..] {
            [ReportPart::Application(own)] => own.counters["copied_bytes"],
            parts => panic!("{parts:?}"),
        };
        let applications = of(self.client.report().unwrap()) + of(self.server.report().unwrap());
        usize::try_from(guests + applications).unwrap()
    }
}

#[test]
fn a_byte_that_applications_of_guests_stream_is_copied_five_times() {
    let mut scene = Scene::new();
    let connection = scene.connect();
    let part: Vec<u8> = (0..=250).cycle().take(PART).collect();
    (0..50).for_each(|_| scene.carry(connection, &part));
    for _ in 0..100 {
        let sent = |scene: &Scene| usize::try_from(scene.guests[0].count("bytes_sent")).unwrap();
        let start = (scene.copied(), sent(&scene));
        scene.carry(connection, &part);
        (0..5).for_each(|_| scene.turn());
        // What is sent is copied into the application's arena, which nobody counts.
        let all = PART + scene.copied() - start.0;
        // Else something was repeated, as it was due by the clock.
        if sent(&scene) - start.1 < PART + HEADERS {
            let expected = 5 * PART..5 * (PART + HEADERS);
            return assert!(expected.contains(&all), "{all} for {PART}");
        }
    }
    panic!("interrupted each time");
}
