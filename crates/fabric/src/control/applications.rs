//! Applications: processes that use the stack of a guest. The control program admits them, passes descriptors between application
//! and guest, and limits their number.

use super::clients::check_protocol;
use super::peer::Peer;
use super::{Control, doorbells, memory};
use crate::protocol::message::{Loss, Order};
use crate::protocol::request::Answer;
use crate::protocol::secret::Secret;
use crate::protocol::ticket::ApplicationId;
use siga_iucv::passing::Passing;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_model::topology;
use std::os::fd::OwnedFd;

impl Control {
    /// Admits a process as an application of a guest. Application and guest first receive their doorbell descriptors. Then each
    /// sends its memory files, which the control program passes to the other.
    pub(super) fn ask_for_application(
        &mut self,
        key: u64,
        (protocol, version): (u32, &str),
        guest: &Name,
        secret: &Secret,
        process: Option<u32>,
    ) -> Result<()> {
        let admitted = self.may_use(protocol, version, guest, secret);
        if let Err(error) = &admitted {
            self.log.of_clients(&format!("an application could not attach to guest {guest}: {error}"));
        }
        admitted?;
        let [(notify_guest, wake_guest), (notify_application, wake_application)] = doorbells()?;
        let topology::Guest { arena_bytes, waiting, .. } = self.topology.guests[guest];
        let [memory, arena] = memory::of_application(arena_bytes)?;
        let (at_guest, at_application) =
            Passing::pair().context("cannot create a socket between a guest and an application")?;
        self.last_application += 1;
        let application = self.state.issuer().application(self.last_application, guest);
        if let Some(guest) = self.guests.get_mut(guest) {
            guest.applications.insert(application);
        }
        let peer = self.clients.get(&key).and_then(|client| Peer::of(&client.channel).ok());
        let peer = peer.map(|peer| peer.pid.as_raw_nonzero().get().unsigned_abs());
        self.application_pids.extend(process.or(peer).map(|pid| (application, pid)));
        self.log.of_guest(guest, &format!("guest {guest}: application {}: attached", application.0));
        self.wait_as_application(key, application, guest.clone());
        self.send_order(
            guest,
            &Order::Application { application, arena_bytes },
            vec![notify_guest, wake_guest, memory, arena, at_guest],
        );
        if !self.serves(guest, application) {
            // The order could not be sent, so the control program ended the guest. The client has already received an error.
            return Ok(());
        }
        let colocate = self.topology.features.colocate;
        let answer = Answer::Application { arena_bytes, waiting, colocate };
        self.answer_with(key, &answer, vec![notify_application, wake_application, at_application]);
        Ok(())
    }

    fn may_use(&self, protocol: u32, version: &str, guest: &Name, secret: &Secret) -> Result<()> {
        check_protocol(protocol, version)?;
        let refused = || Error::usage(format!("the given secret is not the secret for applications of guest {guest}"));
        let secrets = self.state.secrets.get(guest).ok_or_else(refused)?;
        if !secrets.application.is(secret) {
            return Err(refused());
        }
        if self.topology.guests[guest].external {
            let message = format!("guest {guest} is external, so only its own process can use its stack");
            return Err(Error::usage(message));
        }
        self.running(guest)?;
        if self.is_stopping() {
            return Err(Error::environment("the network is going down, so no application can attach to a guest"));
        }
        let count = self.guests[guest].applications.len();
        if count as u64 >= u64::from(self.topology.guests[guest].applications_max) {
            let message = format!("guest {guest} has {count} applications, which is its maximum (applications_max)");
            return Err(Error::environment(message));
        }
        Ok(())
    }

    /// Passes an application's memory files to its guest.
    pub(super) fn application_memory(&mut self, application: ApplicationId, guest: &Name, descriptors: Vec<OwnedFd>) {
        if self.serves(guest, application) {
            self.send_order(guest, &Order::ApplicationMemory { application }, descriptors);
        }
    }

    /// Passes a guest's memory files to the client that waits for them. Only the first call for an application has an effect.
    pub(super) fn guest_memory(&mut self, guest: &Name, application: ApplicationId, descriptors: Vec<OwnedFd>) {
        if let Some(key) = self.awaits_guest_memory(guest, application) {
            self.answer_with(key, &Answer::ApplicationMemory, descriptors);
        }
    }

    /// Returns true if the guest serves this application.
    fn serves(&self, guest: &Name, application: ApplicationId) -> bool {
        self.guests.get(guest).is_some_and(|guest| guest.applications.contains(&application))
    }

    /// Handles the event that a guest has stopped serving an application.
    pub(super) fn application_ended(&mut self, guest: &Name, application: ApplicationId, why: &Loss) {
        if !self.guests.get_mut(guest).is_some_and(|guest| guest.applications.remove(&application)) {
            return;
        }
        self.application_pids.remove(&application);
        self.log.of_guest(guest, &format!("guest {guest}: application {}: ended: {why}", application.0));
        let orders = self.direct.application_ended(guest, application);
        self.send_all(Some(guest), orders);
        if let Some(key) = self.client_of(application) {
            let message = format!("guest {guest} refused this application: {why}");
            self.finish(key, Err(Error::environment(message)));
        }
    }

    /// Ends all applications of a guest, because the guest has ended.
    pub(super) fn applications_gone(&mut self, guest: &Name) {
        let gone: Vec<ApplicationId> =
            self.guests.get(guest).iter().flat_map(|guest| &guest.applications).copied().collect();
        for application in gone {
            self.application_ended(guest, application, &Loss::PeerGone);
        }
    }

    /// Takes over the applications that an adopted guest reports. Returns false if the ticket of one was not issued for the guest's
    /// current process, or if the applications exceed the guest's limit.
    pub(super) fn adopt_applications(&mut self, guest: &Name, applications: &[ApplicationId]) -> bool {
        let issuer = self.state.issuer();
        let are_ours = applications.iter().all(|application| issuer.issued_application(*application, guest));
        let Some(known) = self.guests.get_mut(guest).filter(|_| are_ours) else { return false };
        known.applications.extend(applications);
        let highest = known.applications.iter().map(|application| application.0.number()).max().unwrap_or(0);
        self.last_application = self.last_application.max(highest);
        known.applications.len() as u64 <= u64::from(self.topology.guests[guest].applications_max)
    }
}
