//! An input as choices: which events, tickets, names and descriptors hostile guests send.

use super::guest::{memory_file, name};
use super::{GUESTS, World};
use siga_fabric::protocol::message::{AccountRecord, Buffers, GuestEvent, Loss, MemberId, PROTOCOL, RingPairEnd};
use siga_fabric::protocol::report::{ApplicationReport, DeviceReport, LinkReport, ReportPart, StackReport, Traffic};
use siga_fabric::protocol::ticket::ApplicationId;
use siga_fabric::protocol::ticket::RingPairId;
use siga_fabric::protocol::ticket::Ticket;
use siga_model::error::Error;
use siga_model::name::Name;
use std::collections::BTreeMap;

/// The numbers that an input is.
pub(crate) struct Draw<'a>(pub(super) &'a [u8]);

impl Draw<'_> {
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `bound`, which is at most 256; zeroes once the input is used up.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % bound
    }

    pub(crate) fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

impl World {
    /// A message, or something else that a guest can do.
    pub(super) fn act(&mut self, guest: &str, draw: &mut Draw<'_>) {
        let event = match draw.below(32) {
            28 => return self.junk(guest, draw),
            29 => return self.turn(),
            30 => {
                // It dies.
                if guest == "hostile" {
                    self.hostile = None;
                    self.turn();
                }
                return;
            }
            31 => {
                // It obeys for once.
                if let Some(hostile) = self.slot(guest) {
                    for (order, descriptors) in hostile.orders() {
                        hostile.obey(order, descriptors);
                    }
                }
                return;
            }
            kind => self.event(kind, draw),
        };
        let honest_count = match &event {
            GuestEvent::Memory { .. } => 1,
            GuestEvent::ApplicationMemory { .. } => 2,
            _ => 0,
        };
        let count = if draw.below(16) == 0 { draw.below(5) } else { honest_count };
        let descriptors = (0..count).map(|_| memory_file()).collect();
        if let Some(hostile) = self.slot(guest) {
            hostile.send(&event, descriptors);
        }
    }

    /// A packet that is no message.
    fn junk(&mut self, guest: &str, draw: &mut Draw<'_>) {
        let junk = draw.one_of(&["this is not an event", "", "{}", "[[[[[[[[[["]);
        if let Some(hostile) = self.slot(guest) {
            let _ = hostile.channel.send(&junk, Vec::new());
        }
    }

    fn event(&self, kind: usize, draw: &mut Draw<'_>) -> GuestEvent {
        match kind {
            0 => GuestEvent::Hello { protocol: draw.one_of(&[PROTOCOL, 0, u32::MAX]), version: text(draw) },
            1 | 2 => GuestEvent::Ready { confinement: text(draw) },
            3 => GuestEvent::Failed(Error::usage(text(draw)).hint(text(draw))),
            4 | 5 => {
                let pairs = (0..draw.below(80)).map(|_| self.held(draw)).collect();
                let applications = (0..draw.below(4)).map(|_| self.application_ticket(draw)).collect();
                GuestEvent::Inventory { confinement: text(draw), pairs, applications, last: draw.below(2) == 0 }
            }
            6..=10 => GuestEvent::Couple { device: self.device(draw), member: self.member(draw) },
            11..=13 => GuestEvent::Memory { pair: self.pair(draw) },
            14 => GuestEvent::ApplicationMemory { application: self.application_ticket(draw) },
            15 => GuestEvent::ApplicationEnded { application: self.application_ticket(draw), why: loss(draw) },
            16 | 17 => GuestEvent::Linked { pair: self.pair(draw) },
            18 | 19 => GuestEvent::Idle { pair: self.pair(draw) },
            20 | 21 => GuestEvent::Quiet { pair: self.pair(draw) },
            22 | 23 => GuestEvent::Lost { pair: self.pair(draw), why: loss(draw) },
            24 | 25 => GuestEvent::Report { request: number(draw), part: self.part(draw) },
            26 if draw.below(3) == 0 => GuestEvent::PortLost { port: self.device(draw), why: text(draw) },
            26 if draw.below(2) == 0 => {
                let record = |draw: &mut Draw<'_>| AccountRecord {
                    port: text(draw),
                    traffic: Traffic { frames_sent: number(draw), bytes_sent: u64::MAX, ..Traffic::default() },
                };
                GuestEvent::Account { records: (0..draw.below(4)).map(|_| record(draw)).collect() }
            }
            26 if draw.below(4) == 0 => GuestEvent::Prepared { why_not: Some(text(draw)) },
            26 if draw.below(4) == 0 => GuestEvent::Learned { addresses: Vec::new() },
            26 if draw.below(4) == 0 => GuestEvent::Retired,
            26 => GuestEvent::Pong { request: number(draw), time_ns: draw.one_of(&[None, Some(0), Some(u64::MAX)]) },
            _ => GuestEvent::CaptureEnded { missed: number(draw) },
        }
    }

    /// A ticket of its own, of others, or invented.
    fn pair(&self, draw: &mut Draw<'_>) -> RingPairId {
        let own = [&self.hostile, &self.inner].into_iter().flatten().flat_map(|guest| guest.pairs.keys().copied());
        let others = self.honest.values().flat_map(|guest| guest.pairs.keys().copied());
        let mut all: Vec<RingPairId> = own.chain(others).chain(self.pairs.iter().copied()).collect();
        all.extend([0, 1, 2, u64::MAX].map(|number| RingPairId(Ticket::claimed(number, [0; 2]))));
        draw.one_of(&all[..all.len().min(200)])
    }

    fn application_ticket(&self, draw: &mut Draw<'_>) -> ApplicationId {
        let mut all = self.honest.get("victim").map_or_else(Vec::new, |victim| victim.applications.clone());
        all.extend([0, 1, 2, u64::MAX].map(|number| ApplicationId(Ticket::claimed(number, [0; 2]))));
        draw.one_of(&all)
    }

    fn held(&self, draw: &mut Draw<'_>) -> RingPairEnd {
        let buffers = |draw: &mut Draw<'_>| {
            let (bytes, count) = (draw.one_of(&[16 << 10, 0, u32::MAX]), draw.one_of(&[8, 0, u16::MAX]));
            Buffers { bytes, count }
        };
        let standing = self.standing_pair().filter(|_| draw.below(2) == 0);
        standing.unwrap_or_else(|| RingPairEnd {
            pair: self.pair(draw),
            asked: draw.below(2) == 0,
            device: self.device(draw),
            member: self.member(draw),
            inbound: buffers(draw),
            outbound: buffers(draw),
        })
    }

    fn device(&self, draw: &mut Draw<'_>) -> Name {
        name(&draw.one_of(&["dev0".to_owned(), "dev0".to_owned(), "dev1".to_owned(), "x".repeat(32)]))
    }

    fn member(&self, draw: &mut Draw<'_>) -> MemberId {
        let guest = draw.one_of(&GUESTS);
        MemberId { guest: name(guest), device: self.device(draw) }
    }

    pub(super) fn part(&self, draw: &mut Draw<'_>) -> ReportPart {
        let mut counters: BTreeMap<String, u64> = (0..draw.below(40)).map(|at| (at.to_string(), u64::MAX)).collect();
        counters.insert(text(draw), 1);
        match draw.below(4) {
            0 => {
                let device = self.a_device(draw);
                ReportPart::Device(DeviceReport { device, counters })
            }
            1 => ReportPart::Link(LinkReport {
                device: self.device(draw),
                member: self.member(draw),
                pair: None,
                counters,
            }),
            2 => ReportPart::Application(ApplicationReport {
                application: Some(number(draw)),
                sockets: u64::MAX,
                free_bytes: 0,
                counters: counters.clone(),
                times_ns: counters,
            }),
            _ => ReportPart::Stack(StackReport { drops: counters, ..StackReport::default() }),
        }
    }

    /// A device, with more addresses than any has.
    fn a_device(&self, draw: &mut Draw<'_>) -> siga_fabric::protocol::message::GuestDevice {
        let addresses: Vec<_> = (0..draw.below(256)).map(|_| "10.0.0.9/24".parse().expect("an address")).collect();
        siga_fabric::protocol::message::GuestDevice {
            name: self.device(draw),
            network: name("lan"),
            kind: siga_model::topology::NetworkKind::Hipersockets { frame: 16 << 10 },
            addresses,
            mtu: 8 << 10,
            direct: false,
            buffer_count: 8,
            full: siga_model::topology::Full::Drop,
            netdev_max_backlog: 256,
            features: siga_model::features::DriverFeatures::default(),
            idle_seconds: 60,
            mac: None,
            link: None,
            queueing: siga_model::topology::Queueing::default(),
            claw: None,
        }
    }
}

/// Mostly short, at times as long as a message can be.
pub(crate) fn text(draw: &mut Draw<'_>) -> String {
    // An input that is used up draws zeroes.
    match draw.below(256) {
        253 if draw.below(4) == 3 => "x".repeat(130_000),
        254 => "\u{1f980}\n\u{1b}[2J".repeat(2_000),
        255 => "y".repeat(1_025),
        _ => String::new(),
    }
}

fn number(draw: &mut Draw<'_>) -> u64 {
    draw.one_of(&[0, 1, 2, 3, 4, 5, 6, 7, u64::MAX])
}

fn loss(draw: &mut Draw<'_>) -> Loss {
    let text = text(draw);
    draw.one_of(&[Loss::PeerGone, Loss::Violation(text.clone()), Loss::Failed(text)])
}
