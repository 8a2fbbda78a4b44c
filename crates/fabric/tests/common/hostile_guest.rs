//! A hostile guest: it attaches as an external guest, sends any event, and has bare links to its partners for any packet.
#![allow(dead_code, reason = "each program uses what it needs")]

use siga_fabric::client::Client;
use siga_fabric::protocol::channel::Channel;
use siga_fabric::protocol::message::{Buffers, GuestEvent, MemberId, Order, RingPairEnd};
use siga_fabric::protocol::report::{ReportPart, StackReport};
use siga_fabric::protocol::secret::Secret;
use siga_model::error::Result;
use siga_model::name::Name;
use siga_ring::{Link, NotifyFd, OwnMemory, PeerMemory, Shape, WakeFd};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the control program and a partner may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that attached as an external guest.
pub(crate) struct HostileGuest {
    pub(crate) channel: Channel,
}

impl HostileGuest {
    pub(crate) fn attach(run_dir: &Path, network: &Name, guest: &str, secret: &Secret) -> Self {
        Self::try_attach(run_dir, network, guest, secret).unwrap()
    }

    /// As [`Self::attach`]; an error if the control program refuses.
    pub(crate) fn try_attach(run_dir: &Path, network: &Name, guest: &str, secret: &Secret) -> Result<Self> {
        let channel = Client::connect_at(run_dir, network)?.attach(&guest.parse()?, secret)?;
        let mut hostile = Self { channel };
        hostile.wait_for_order(|order, _| matches!(order, Order::Run).then_some(()));
        hostile.send(&GuestEvent::Ready { confinement: "none".to_owned() }, Vec::new());
        Ok(hostile)
    }

    pub(crate) fn send(&mut self, event: &GuestEvent, descriptors: Vec<OwnedFd>) {
        self.channel.send(event, descriptors).unwrap();
    }

    /// Receives orders until `wanted` returns something for one.
    pub(crate) fn wait_for_order<T>(&mut self, mut wanted: impl FnMut(Order, Vec<OwnedFd>) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the order did not arrive");
            match self.channel.receive::<Order>().unwrap() {
                Some((order, descriptors)) => {
                    if let Some(found) = wanted(order, descriptors) {
                        return found;
                    }
                }
                None => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }

    /// Asks for a pair by one of its devices with a partner's (`guest.device`).
    pub(crate) fn ask_for_pair(&mut self, device: &str, partner: &str) {
        let (guest, of_partner) = partner.split_once('.').unwrap();
        let member = MemberId { guest: guest.parse().unwrap(), device: of_partner.parse().unwrap() };
        self.send(&GuestEvent::Couple { device: device.parse().unwrap(), member }, Vec::new());
    }

    /// Gets a pair, and the descriptors for its end of it.
    pub(crate) fn pair_with(&mut self, device: &str, partner: &str) -> (RingPairEnd, [OwnedFd; 3]) {
        self.ask_for_pair(device, partner);
        self.wait_for_order(|order, descriptors| {
            if let Order::MakePair(end) = order { Some((end, descriptors.try_into().unwrap())) } else { None }
        })
    }

    /// Gets a pair, and sends other memory than the control program's for it. Returns its descriptors: a dropped one hangs up.
    pub(crate) fn pair_with_memory(&mut self, partner: &str, memory: OwnedFd) -> (NotifyFd, OwnedFd) {
        let (end, [notify_fd, wake_fd, _own_memory]) = self.pair_with("dev0", partner);
        self.send(&GuestEvent::Memory { pair: end.pair }, vec![memory]);
        (NotifyFd::from_fd(notify_fd).unwrap(), wake_fd)
    }

    /// The reason for the end of its pair.
    pub(crate) fn end_of_pair(&mut self) -> String {
        self.wait_for_order(|order, _| if let Order::Unpair { why, .. } = order { Some(why) } else { None })
    }

    /// The reason for the refusal of a pair.
    pub(crate) fn refusal(&mut self) -> String {
        self.wait_for_order(
            |order, _| if let Order::Refused { why, .. } = order { Some(why.to_string()) } else { None },
        )
    }

    /// A bare link by one of its devices to a partner's (`guest.device`).
    pub(crate) fn link(&mut self, device: &str, partner: &str) -> Wire {
        let (RingPairEnd { pair, inbound, outbound, .. }, [notify_fd, wake_fd, memory]) =
            self.pair_with(device, partner);
        let (own, memory) = OwnMemory::in_file(memory, shape(outbound)).unwrap();
        self.send(&GuestEvent::Memory { pair }, vec![memory]);
        let memory = self.wait_for_order(
            |order, mut memory| {
                if let Order::PeerMemory { .. } = order { memory.pop() } else { None }
            },
        );
        let peer = PeerMemory::map(memory, shape(inbound)).unwrap();
        let link = Link::new(own, peer, NotifyFd::from_fd(notify_fd).unwrap(), WakeFd::from_fd(wake_fd).unwrap());
        self.send(&GuestEvent::Linked { pair }, Vec::new());
        Wire { link }
    }

    /// Answers requests for reports in a thread, until the control program ends.
    pub(crate) fn stay(mut self) {
        std::thread::spawn(move || {
            while let Ok(order) = self.channel.receive::<Order>() {
                match order {
                    Some((Order::Report { request }, _)) => {
                        let event = GuestEvent::Report { request, part: ReportPart::Stack(StackReport::default()) };
                        if self.channel.send(&event, Vec::new()).is_err() {
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
