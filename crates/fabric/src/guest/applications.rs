//! Applications (other processes that use the guest's stack): handles the orders that begin an application and the notifications
//! from it, and reports its end to the control program.

use super::Node;
use super::wakes::ReadyKey;
use crate::iucv::Host;
use crate::iucv::applications::Applications;
use crate::iucv::direct::DirectReport;
use crate::protocol::direct::DirectOrder;
use crate::protocol::message::{GuestEvent, Loss};
use crate::protocol::ticket::ApplicationId;
use siga_ring::clock::Ticks;
use siga_stack::time::Instant;
use std::os::fd::OwnedFd;

impl Node {
    pub(super) fn begin_application(&mut self, id: ApplicationId, arena_bytes: u64, descriptors: Vec<OwnedFd>) {
        let ready = &mut self.wakes.events;
        let register = |wake_fd: &_, place| ready.add(wake_fd, ReadyKey::Application(place));
        match self.applications.begin(id, arena_bytes, descriptors, register) {
            Ok(memory) => self.send_event(&GuestEvent::ApplicationMemory { application: id }, memory),
            Err(why) => {
                self.send_event(&GuestEvent::ApplicationEnded { application: id, why: Loss::Failed(why) }, Vec::new());
            }
        }
    }

    pub(super) fn complete_application(&mut self, now: Ticks, id: ApplicationId, descriptors: Vec<OwnedFd>) {
        self.applications.complete(now, id, descriptors);
        self.report_ended_applications();
    }

    /// Handles an application whose wake descriptor is readable, because the application has sent a notification or its process has
    /// ended.
    pub(super) fn application_woken(&mut self, now: Ticks, place: usize) {
        let (at, hot_time) = (self.clock.instant(now), self.links.hot_time);
        let (stack, groups, clock) = (&mut self.stack, &self.group_networks, &self.clock);
        let mut host = Host { stack, groups, clock, now, at, hot_time };
        let last = self.applications.woken(&mut host, place);
        self.waiter.notified_by(last);
        self.report_ended_applications();
    }

    /// Carries out commands of applications, and sends events to applications. Returns true if there was anything to do.
    #[inline]
    pub(super) fn serve_applications(&mut self, now: Ticks, at: Instant) -> bool {
        if self.applications.is_empty() {
            return false;
        }
        let hot_time = self.links.hot_time;
        let (stack, groups, clock) = (&mut self.stack, &self.group_networks, &self.clock);
        let mut host = Host { stack, groups, clock, now, at, hot_time };
        let busy = self.applications.serve(&mut host);
        self.report_ended_applications();
        busy
    }

    /// Carries out an order about a direct connection.
    pub(super) fn obey_direct(
        &mut self,
        now: Ticks,
        application: ApplicationId,
        order: DirectOrder,
        mut descriptors: Vec<OwnedFd>,
    ) {
        match order {
            DirectOrder::Couple { couple } => self.applications.begin_couple(application, couple, &descriptors),
            DirectOrder::Memory { couple } => {
                if let Some(memory) = descriptors.pop() {
                    self.applications.peer_memory(application, couple, memory);
                }
            }
            DirectOrder::Slot { request, slot } => self.applications.bind_direct(application, request, slot),
            DirectOrder::Gone { couple, reset } => self.end_couple(now, application, couple, reset),
        }
        self.report_direct();
    }

    /// Ends the memory that an application shares with another one.
    fn end_couple(&mut self, now: Ticks, id: ApplicationId, couple: u64, reset: bool) {
        self.with_host(now, |applications, host| applications.end_couple(host, id, couple, reset));
    }

    /// Resets the direct connections with applications of other guests.
    pub(super) fn reset_direct_with_others(&mut self, now: Ticks) {
        self.with_host(now, Applications::reset_direct_with_others);
    }

    fn with_host(&mut self, now: Ticks, call: impl FnOnce(&mut Applications, &mut Host<'_>)) {
        let (at, hot_time) = (self.clock.instant(now), self.links.hot_time);
        let (stack, groups, clock) = (&mut self.stack, &self.group_networks, &self.clock);
        call(&mut self.applications, &mut Host { stack, groups, clock, now, at, hot_time });
    }

    /// Reports to the control program what applications need for direct connections.
    fn report_direct(&mut self) {
        for DirectReport { application, event, memory } in self.applications.take_direct_reports() {
            self.send_event(&GuestEvent::Direct { application, event }, memory.into_iter().collect());
        }
    }

    fn report_ended_applications(&mut self) {
        self.report_direct();
        for ended in self.applications.take_ended() {
            self.wakes.events.remove(ended.registration, &ended.wake_fd);
            self.send_event(&GuestEvent::ApplicationEnded { application: ended.id, why: ended.why }, Vec::new());
        }
    }
}
