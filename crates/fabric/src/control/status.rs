//! The status of a network and the reports of its guests. The control program asks each guest for its report. A report has several
//! parts, which the control program passes to the client one by one.

use super::Control;
use super::clients::{Client, Waits};
use crate::limits::{ANSWER_TIME_MAX, PROCESSES_PART_MAX};
use crate::protocol::message::{GuestDevice, Order};
use crate::protocol::report::ReportPart;
use crate::protocol::request::{Answer, GuestState, NetworkStatus, ProcessRole, ProcessStatus};
use crate::protocol::ticket::ApplicationId;
use siga_model::name::Name;
use siga_model::topology::{Access, Device};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

impl Control {
    pub(super) fn status(&mut self, key: u64, detail: bool) {
        let networks: Vec<Answer> = self.topology.networks.keys().map(|name| self.network_status(name)).collect();
        networks.iter().for_each(|answer| self.answer(key, answer));
        let networks: Vec<Name> = self.topology.networks.keys().cloned().collect();
        networks.iter().for_each(|network| self.member_status(key, network));
        let names: Vec<Name> = self.guests.keys().cloned().collect();
        let mut running = BTreeSet::new();
        for name in names {
            let Some(status) = self.status_of(&name) else { continue };
            if status.state == GuestState::Running {
                running.insert(name);
            }
            self.answer(key, &Answer::Guest(status));
        }
        if !detail || running.is_empty() {
            self.finish(key, Ok(()));
            return;
        }
        self.ask_for_reports(key, &running);
    }

    /// Sends a client the processes of the network, and the sums of the counters of its running guests except for those of `quiet`.
    pub(super) fn sample(&mut self, key: u64, quiet: &[Name]) {
        let processes: Vec<ProcessStatus> = self.guests.keys().flat_map(|name| self.processes_of(name)).collect();
        for part in processes.chunks(PROCESSES_PART_MAX) {
            self.answer(key, &Answer::Processes(part.to_vec()));
        }
        let quiet: BTreeSet<&Name> = quiet.iter().collect();
        let running = self.guests.iter().filter(|(name, guest)| guest.runs() && !quiet.contains(name));
        let from: BTreeMap<Name, usize> = running.map(|(name, _)| (name.clone(), 1)).collect();
        if from.is_empty() {
            self.finish(key, Ok(()));
        } else {
            self.ask_for_parts(key, from, |request| Order::Totals { request });
        }
    }

    /// Returns the process of a guest, and the processes of its applications.
    fn processes_of(&self, name: &Name) -> Vec<ProcessStatus> {
        let (guest, plan) = (&self.guests[name], &self.topology.guests[name]);
        let role = match (plan.is_switch, plan.forwarding) {
            (true, _) => ProcessRole::Switch,
            (false, true) => ProcessRole::Router,
            (false, false) => ProcessRole::Guest,
        };
        let pid = guest.process.as_ref().map(|(_, process)| process.pid().as_raw_nonzero().get().unsigned_abs());
        let restarts = self.state.restarts.get(name).copied().unwrap_or(0);
        let own = ProcessStatus { guest: name.clone(), role, pid, is_running: guest.runs(), restarts };
        let application = |application: &ApplicationId| ProcessStatus {
            role: ProcessRole::Application(application.0.number()),
            pid: self.application_pids.get(application).copied(),
            is_running: true,
            restarts: 0,
            ..own.clone()
        };
        let applications: Vec<ProcessStatus> = guest.applications.iter().map(application).collect();
        [own].into_iter().chain(applications).collect()
    }

    pub(super) fn ask_for_reports(&mut self, key: u64, guests: &BTreeSet<Name>) {
        let from = guests.iter().map(|name| (name.clone(), self.report_parts_max(name))).collect();
        self.ask_for_parts(key, from, |request| Order::Report { request });
    }

    /// Sends guests an order that they answer with parts of a report. `from` has the maximum number of parts of each guest.
    pub(super) fn ask_for_parts(&mut self, key: u64, from: BTreeMap<Name, usize>, order: impl Fn(u64) -> Order) {
        self.requests += 1;
        let request = self.requests;
        let guests: Vec<Name> = from.keys().cloned().collect();
        self.wait_for(key, Waits::Reports { request, from, until: Instant::now() + ANSWER_TIME_MAX });
        for name in &guests {
            self.send_order(name, &order(request), Vec::new());
        }
    }

    /// Returns the largest number of parts that a guest's report can have: one for each device, each link to a partner, and each
    /// application, and one for the stack.
    fn report_parts_max(&self, name: &Name) -> usize {
        let guest = &self.topology.guests[name];
        let ports = |device: &Device| {
            let switch = self.topology.networks[&device.network].switch.as_ref();
            switch.map_or(0, |switch| switch.ports.len())
        };
        let members = |device: &Device| self.topology.on(&device.network).count() + ports(device);
        let applications = usize::try_from(guest.applications_max).unwrap_or(usize::MAX);
        guest.devices.iter().map(|device| 1 + members(device)).sum::<usize>().saturating_add(applications + 1)
    }

    fn network_status(&self, name: &Name) -> Answer {
        let network = &self.topology.networks[name];
        let granted = match &network.access {
            Access::Open => None,
            Access::Restricted(granted) => Some(granted.iter().cloned().collect()),
        };
        let pairs = self.pairs.count_on(&self.topology, name);
        let (kind, owner) = (network.kind.to_string(), self.ownership(name));
        let switch = self.switch_status(name);
        Answer::Network(NetworkStatus { name: name.clone(), kind, granted, owner, pairs, switch })
    }

    /// Passes a part of a guest's report to the client that asked for the report, if that client still waits.
    pub(super) fn report(&mut self, request: u64, guest: &Name, mut part: ReportPart) {
        let asks = |client: &mut Client| {
            let Waits::Reports { request: asked, from, .. } = &mut client.waits else { return None };
            if *asked == request { from.remove(guest) } else { None }
        };
        let Some((key, left)) = self.clients.iter_mut().find_map(|(key, client)| Some((*key, asks(client)?))) else {
            return;
        };
        let is_last = part.is_last();
        if left == 0 || !self.is_of_guest(guest, &mut part) {
            self.log.of_guest(
                guest,
                &format!("guest {guest} sent a report that is too long, or that describes devices that the guest does not have"),
            );
            self.answer(key, &Answer::Silent { guest: guest.clone() });
        } else {
            self.answer(key, &Answer::Report { guest: guest.clone(), part });
            if !is_last && let Some(Client { waits: Waits::Reports { from, .. }, .. }) = self.clients.get_mut(&key) {
                from.insert(guest.clone(), left - 1);
                return;
            }
        }
        self.finish_if_reported(key);
    }

    /// Returns false if the part is about a device that the guest does not have. Replaces the reported settings of a device by
    /// those of the topology, because a hostile guest may report wrong ones.
    fn is_of_guest(&self, guest: &Name, part: &mut ReportPart) -> bool {
        let device_of = |name: &Name| self.topology.guests[guest].devices.iter().find(|device| device.name == *name);
        match part {
            ReportPart::Device(report) => device_of(&report.device.name)
                .map(|device| report.device = GuestDevice::of(&self.topology, device))
                .is_some(),
            ReportPart::Link(report) => device_of(&report.device).is_some(),
            ReportPart::Application(_) | ReportPart::Stack(_) | ReportPart::Totals(_) => true,
            ReportPart::Addresses { .. } => self.topology.guests[guest].is_switch,
        }
    }

    /// Sends the last answer to a client if all reports for which it waits have arrived.
    pub(super) fn finish_if_reported(&mut self, key: u64) {
        if let Some(Client { waits: Waits::Reports { from, .. }, .. }) = self.clients.get(&key)
            && from.is_empty()
        {
            self.finish(key, Ok(()));
        }
    }
}
