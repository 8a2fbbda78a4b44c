//! A process that attached as a guest and has bare links to its partners: it sends any packet that it likes.
#![allow(dead_code, reason = "each program uses what it needs")]

use siga_fabric::client::Client;
use siga_fabric::protocol::channel::Channel;
use siga_fabric::protocol::message::{Buffers, GuestEvent, MemberId, Order, RingPairEnd};
use siga_fabric::protocol::report::{ReportPart, StackReport};
use siga_fabric::protocol::secret::Secret;
use siga_model::name::Name;
use siga_ring::{Link, NotifyFd, OwnMemory, PeerMemory, Shape, WakeFd};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the control program and a partner may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The attached process.
pub(crate) struct Stranger {
    channel: Channel,
}

impl Stranger {
    /// Attaches as an external guest.
    pub(crate) fn attach(run_dir: &Path, network: &Name, guest: &str, secret: &str) -> Self {
        let client = Client::connect_at(run_dir, network).unwrap();
        let channel = client.attach(&guest.parse().unwrap(), &Secret::claimed(secret)).unwrap();
        let mut stranger = Self { channel };
        while !matches!(stranger.next().0, Order::Run) {}
        stranger.channel.send(&GuestEvent::Ready { confinement: "none".to_owned() }, Vec::new()).unwrap();
        stranger
    }

    /// The next order.
    fn next(&mut self) -> (Order, Vec<OwnedFd>) {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the control program says nothing");
            if let Some((order, descriptors)) = self.channel.receive::<Order>().unwrap() {
                return (order, descriptors);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// A bare link by one of its devices to a partner's (`guest.device`).
    pub(crate) fn link(&mut self, device: &str, partner: &str) -> Wire {
        let (guest, of_partner) = partner.split_once('.').unwrap();
        let member = MemberId { guest: guest.parse().unwrap(), device: of_partner.parse().unwrap() };
        self.channel.send(&GuestEvent::Couple { device: device.parse().unwrap(), member }, Vec::new()).unwrap();
        let (RingPairEnd { pair, inbound, outbound, .. }, descriptors) = loop {
            if let (Order::MakePair(held), descriptors) = self.next() {
                break (held, descriptors);
            }
        };
        let [notify_fd, wake_fd, memory]: [OwnedFd; 3] = descriptors.try_into().unwrap();
        let (own, memory) = OwnMemory::in_file(memory, shape(outbound)).unwrap();
        self.channel.send(&GuestEvent::Memory { pair }, vec![memory]).unwrap();
        let memory = loop {
            if let (Order::PeerMemory { .. }, mut memory) = self.next() {
                break memory.pop().unwrap();
            }
        };
        let peer = PeerMemory::map(memory, shape(inbound)).unwrap();
        let link = Link::new(own, peer, NotifyFd::from_fd(notify_fd).unwrap(), WakeFd::from_fd(wake_fd).unwrap());
        self.channel.send(&GuestEvent::Linked { pair }, Vec::new()).unwrap();
        Wire { link }
    }

    /// Has a thread answer the control program that nothing is to be told, until that ends.
    pub(crate) fn stay(mut self) {
        std::thread::spawn(move || {
            while let Ok(order) = self.channel.receive::<Order>() {
                match order {
                    Some((Order::Report { request }, _)) => {
                        let news = GuestEvent::Report { request, part: ReportPart::Stack(StackReport::default()) };
                        if self.channel.send(&news, Vec::new()).is_err() {
                            return;
                        }
                    }
                    Some(_) => {}
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
    }
}

fn shape(buffers: Buffers) -> Shape {
    Shape::new(buffers.bytes as usize, buffers.count.into()).unwrap()
}

/// A bare link to a partner on a HiperSockets network: a frame is a packet.
pub(crate) struct Wire {
    link: Link,
}

impl Wire {
    /// Sends a packet; false if the partner has not taken the last ones yet.
    pub(crate) fn try_send(&mut self, packet: &[u8]) -> bool {
        let producer = &mut self.link.producer;
        let Ok(Some(place)) = producer.reserve(packet.len()) else { return false };
        place.copy_from_slice(packet);
        producer.commit(packet.len(), 0);
        producer.publish();
        true
    }

    /// Sends a packet as soon as there is room.
    pub(crate) fn send(&mut self, packet: &[u8]) {
        let end = Instant::now() + PATIENCE;
        while !self.try_send(packet) {
            assert!(Instant::now() < end, "the partner takes nothing");
            std::thread::yield_now();
        }
    }

    /// The next packet of the partner, if there is one.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let frame = self.link.consumer.next_frame().unwrap()?;
        let mut packet = vec![0; frame.len()];
        frame.copy_to(0, &mut packet);
        Some(packet)
    }

    /// The next packet of the partner that is wanted.
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.receive() {
                Some(packet) if wanted(&packet) => return packet,
                Some(_) => {}
                None => std::thread::sleep(Duration::from_micros(100)),
            }
            assert!(Instant::now() < end, "the partner says nothing");
        }
    }
}
