//! The report of a guest: the counters of each device with its links, of the applications, and of the stack.

use super::peer_link::{Partner, Receiver};
use super::{Node, setup};
use crate::counters::{self, Counters};
use crate::protocol::report::{DeviceReport, LinkReport, ReportPart, StackReport};
use siga_ring::clock::Ticks;

impl Node {
    /// Returns the parts of the report in this order: each device followed by its links, the applications, and the stack.
    pub fn report_parts(&self) -> Vec<ReportPart> {
        let mut parts = Vec::new();
        for place in 0..self.config.devices.len() {
            let device = self.config.devices[place].clone();
            let mut all = Counters::new();
            let mut links = Vec::new();
            for (at, (sender, receiver)) in self.links.senders.iter().zip(&self.links.receivers).enumerate() {
                if sender.device != place {
                    continue;
                }
                let mut counters = sender.counters();
                if let Some(switch) = &self.switch
                    && let Some(port) = switch.port_of_link(at)
                {
                    counters::add(&mut counters, &switch.port_counters(port));
                }
                counters::add(&mut counters, &receiver.counters());
                counters::add(&mut all, &counters);
                if let Some(packets) = self.stack.counters(setup::number(at)) {
                    let packets =
                        [("packets_sent", packets.frames_sent), ("packets_received", packets.frames_received)];
                    counters::add(&mut all, &counters::named(packets));
                }
                // A main link has no single partner, so it is not reported as a link. Its counters are part of those of the device.
                if let Partner::Member(member) = sender.partner.clone() {
                    let (device, pair) = (device.name.clone(), sender.pair.map(|pair| pair.0.number()));
                    links.push(ReportPart::Link(LinkReport { device, member, pair, counters }));
                }
            }
            if let Some(switch) = &self.switch {
                for (member, counters) in switch.kernel_ports() {
                    counters::add(&mut all, &counters);
                    let device = device.name.clone();
                    links.push(ReportPart::Link(LinkReport { device, member, pair: None, counters }));
                }
                counters::add(&mut all, &switch.counters());
            }
            parts.push(ReportPart::Device(DeviceReport { device, counters: all }));
            parts.extend(links);
        }
        parts.extend(self.applications.reports(&self.clock.rate).map(ReportPart::Application));
        parts.push(ReportPart::Stack(self.stack_report()));
        parts
    }

    fn stack_report(&self) -> StackReport {
        let drops = self.stack.drops().iter().filter(|(_, count)| *count > 0);
        let memory = self.stack.memory();
        let copying = self.links.receivers.iter().map(Receiver::copy_ticks).sum::<u64>();
        let copying = Ticks(copying + self.applications.copy_ticks());
        let mut times_ns = counters::wait_times(&self.waiter.counters(), &self.clock.rate);
        times_ns.insert("copying".to_owned(), self.clock.rate.ns(copying));
        StackReport {
            drops: drops.map(|(reason, count)| (reason.to_string(), count)).collect(),
            memory: memory.0.iter().map(|part| (part.name.to_owned(), (part.held * part.bytes_each) as u64)).collect(),
            times_ns,
            connections: memory.held("TCP connections") as u64,
        }
    }
}
