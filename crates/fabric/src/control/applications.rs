//! Applications that use a guest's stack: admitted, given their doorbells and each other's memory, and counted until they end.

use super::clients::speaks;
use super::{Control, doorbells, memory};
use crate::application::ApplicationId;
use crate::error::{Error, Result};
use crate::message::{Loss, Order, Token};
use crate::name::Name;
use crate::request::Answer;
use crate::topology;
use std::os::fd::OwnedFd;

impl Control {
    /// A process wants to use the stack of a guest: both are given a bell and an ear, and then say what memory they have.
    pub(super) fn ask_for_application(
        &mut self,
        key: u64,
        (protocol, version): (u32, &str),
        guest: &Name,
        token: &Token,
    ) -> Result<()> {
        let admitted = self.may_use(protocol, version, guest, token);
        if let Err(error) = &admitted {
            self.log.of_clients(&format!("an application of guest {guest} was refused: {error}"));
        }
        admitted?;
        let [(bell_guest, ear_guest), (bell_application, ear_application)] = doorbells()?;
        let topology::Guest { arena_bytes, waiting, .. } = self.topology.guests[guest];
        let [memory, arena] = memory::of_application(arena_bytes)?;
        let last = self.applications.keys().next_back().map_or(0, |last| last.0);
        self.last_application = self.last_application.max(last) + 1;
        let application = ApplicationId(self.last_application);
        self.applications.insert(application, guest.clone());
        self.log.of_guest(guest, &format!("guest {guest}: application {}: attached", application.0));
        self.wait_as_application(key, application);
        self.tell(guest, &Order::Application { application, arena_bytes }, vec![bell_guest, ear_guest, memory, arena]);
        let gather = self.topology.driver.gather;
        let answer = Answer::Application { arena_bytes, waiting, gather };
        self.answer_with(key, &answer, vec![bell_application, ear_application]);
        Ok(())
    }

    fn may_use(&self, protocol: u32, version: &str, guest: &Name, token: &Token) -> Result<()> {
        speaks(protocol, version)?;
        let refused = || Error::usage(format!("the token is not that of the applications of guest {guest}"));
        let secrets = self.state.secrets.get(guest).ok_or_else(refused)?;
        if !secrets.application.is(token) {
            return Err(refused());
        }
        if self.topology.guests[guest].external {
            let message = format!("guest {guest} is external: its stack is its own process's alone");
            return Err(Error::usage(message));
        }
        self.running(guest)?;
        if self.is_falling() {
            return Err(Error::environment("the network is going down"));
        }
        let count = self.applications.values().filter(|of| *of == guest).count();
        if count as u64 >= u64::from(self.topology.guests[guest].applications_max) {
            let message = format!("guest {guest} has {count} applications, as many as it may (applications_max)");
            return Err(Error::environment(message));
        }
        Ok(())
    }

    /// An application has made its half.
    pub(super) fn application_memory(&mut self, application: ApplicationId, descriptors: Vec<OwnedFd>) {
        if let Some(guest) = self.applications.get(&application).cloned() {
            self.tell(&guest, &Order::ApplicationMemory { application }, descriptors);
        }
    }

    /// A guest has made its half for an application.
    pub(super) fn guest_memory(&mut self, guest: &Name, application: ApplicationId, descriptors: Vec<OwnedFd>) {
        if self.applications.get(&application) == Some(guest)
            && let Some(key) = self.client_of(application)
        {
            self.answer_with(key, &Answer::ApplicationMemory, descriptors);
        }
    }

    /// A guest serves an application no more.
    pub(super) fn application_ended(&mut self, guest: &Name, application: ApplicationId, why: &Loss) {
        if self.applications.get(&application) != Some(guest) {
            return;
        }
        self.applications.remove(&application);
        self.log.of_guest(guest, &format!("guest {guest}: application {}: ended: {why}", application.0));
        if let Some(key) = self.client_of(application) {
            let message = format!("guest {guest} does not take this application: {why}");
            self.finish(key, Err(Error::environment(message)));
        }
    }

    /// A guest is gone, and with it whatever it served.
    pub(super) fn applications_gone(&mut self, guest: &Name) {
        let gone: Vec<ApplicationId> =
            self.applications.iter().filter(|(_, of)| *of == guest).map(|(application, _)| *application).collect();
        for application in gone {
            self.application_ended(guest, application, &Loss::PeerGone);
        }
    }

    /// The applications that a guest served before this control program ran.
    pub(super) fn adopt_applications(&mut self, guest: &Name, applications: &[ApplicationId]) {
        for application in applications {
            self.applications.insert(*application, guest.clone());
        }
    }
}
