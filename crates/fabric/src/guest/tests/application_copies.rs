//! How often a byte is copied between two applications that use the stacks of guests, all on this thread.

use super::lockstep::{Guest, couple, figure_1};
use siga_iucv::client::Client;
use siga_iucv::options::{SendFlags, SocketOptions};
use siga_iucv::record::Number;
use std::io::ErrorKind;

const PART: usize = 33_000;
/// Bytes of a part's headers, of its acknowledgements, and of the records that announce it.
const HEADERS: usize = 2_000;

/// The network of Figure 1 of z/VM's reports, with an application of its client and one of its server.
struct Fixture {
    guests: [Guest; 3],
    client: Client,
    server: Client,
}

impl Fixture {
    fn new() -> Self {
        let topology = figure_1();
        let mut guests = ["client", "router", "server"].map(|name| Guest::new(&topology, name));
        let [client, router, server] = &mut guests;
        couple(1, "link", client, router);
        couple(2, "lan", router, server);
        let [client, server] = [client, server].map(|guest| Client::new(guest.application()).unwrap());
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
    fn connect(&mut self) -> (Number, Number) {
        let (to, options) =
            ("10.0.2.2:7".parse().unwrap(), SocketOptions { no_delay: true, ..SocketOptions::default() });
        // The server waits for its guest's answer, so another thread takes the guest's turns meanwhile.
        let Self { guests, server, .. } = self;
        let listener = std::thread::scope(|scope| {
            let listening = scope.spawn(|| server.listen(to, 1, &options));
            while !listening.is_finished() {
                guests.iter_mut().for_each(Guest::turn_with_applications);
            }
            listening.join().expect("the server does not panic").unwrap()
        });
        let client = self.client.connect("0.0.0.0:0".parse().unwrap(), to, &options).unwrap();
        let accept = |fixture: &mut Self| fixture.server.accept(listener).ok();
        let (server, _) = self.until(accept);
        (client, server)
    }

    /// Has bytes cross.
    fn carry(&mut self, (client, server): (Number, Number), bytes: &[u8]) {
        let (mut sent, mut received) = (0, vec![0; bytes.len()]);
        let mut done = 0;
        let take = |outcome: std::io::Result<usize>| match outcome {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            outcome => outcome.unwrap(),
        };
        self.until(|fixture| {
            sent += if sent < bytes.len() {
                take(fixture.client.send(client, &bytes[sent..], SendFlags::default()))
            } else {
                0
            };
            done += take(fixture.server.receive(server, &mut received[done..]));
            (done == bytes.len()).then_some(())
        });
        assert!(received == bytes);
    }

    /// Bytes copied out of memory of others, by guests and applications.
    fn copied(&self) -> usize {
        let guests: u64 = self.guests.iter().map(|guest| guest.count("copied_bytes")).sum();
        let of = |application: &Client| {
            let counted = application.counters();
            counted.copied_bytes + counted.events.copied_bytes
        };
        let applications = of(&self.client) + of(&self.server);
        usize::try_from(guests + applications).unwrap()
    }
}

#[test]
fn a_byte_streamed_between_iucv_applications_is_copied_five_times() {
    let mut fixture = Fixture::new();
    let connection = fixture.connect();
    let part: Vec<u8> = (0..=250).cycle().take(PART).collect();
    (0..50).for_each(|_| fixture.carry(connection, &part));
    for _ in 0..100 {
        let sent = |fixture: &Fixture| usize::try_from(fixture.guests[0].count("bytes_sent")).unwrap();
        let start = (fixture.copied(), sent(&fixture));
        fixture.carry(connection, &part);
        (0..5).for_each(|_| fixture.turn());
        // What is sent is copied into the application's arena, which nobody counts.
        let all = PART + fixture.copied() - start.0;
        // Else something was repeated, as it was due by the clock.
        if sent(&fixture) - start.1 < PART + HEADERS {
            let expected = 5 * PART..5 * (PART + HEADERS);
            return assert!(expected.contains(&all), "{all} for {PART}");
        }
    }
    panic!("interrupted each time");
}
