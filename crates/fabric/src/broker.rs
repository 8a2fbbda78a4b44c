//! The broker of a program under `siga exec`: it attaches the program's processes to a guest, and resolves names of the network.
//!
//! The names are those of the guests that run when the broker starts.
//!
//! The broker holds the secret of the guest's applications, so the program need not know it. It ends when no process of the program
//! has the other end of the channel any more. Every message of a process may be hostile: a wrong one ends its conversation only.

use crate::client::Client;
use crate::protocol::message::GuestDevice;
use crate::protocol::report::ReportPart;
use crate::protocol::request::{Answer as ControlAnswer, Request};
use crate::protocol::secret::Secret;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use siga_iucv::broker::{ADDRESSES_MAX, Answer, Conversation, INTERFACE_NAME_BYTES_MAX, Interface, Question, Terms};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_ring::NotifyFd;
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Largest number of conversations at the same time. Each process of the program has one.
const CONVERSATIONS_MAX: usize = 1_024;
/// Largest number of passed sockets that no process has received. One more makes the broker forget the oldest.
const PASSED_MAX: usize = 1_024;
/// Largest number of interfaces that a process learns of.
const INTERFACES_MAX: usize = 64;

/// A broker for the programs on one guest.
#[derive(Debug)]
pub struct Broker<'a> {
    /// The directory with the files of all networks.
    pub base: &'a Path,
    /// The network.
    pub network: &'a Name,
    /// The guest whose stack the program uses.
    pub guest: &'a Name,
    /// The secret of the guest's applications.
    pub secret: &'a Secret,
}

/// The devices of each guest.
type Devices = BTreeMap<Name, Vec<GuestDevice>>;

/// The descriptions of sockets that processes have passed and no process has received, each with the inode of the placeholder.
type Passed = VecDeque<(u64, String)>;

/// What a broker knows beyond its settings.
struct Known {
    devices: Devices,
    passed: Passed,
    /// A connection to the control program that no process uses yet. So a process need not wait until the broker has made one.
    spare: Option<Client>,
}

/// A conversation with a process, and the connection to the control program while the process is being attached.
struct Talk {
    conversation: Conversation,
    attaching: Option<Client>,
}

impl Broker<'_> {
    /// Answers questions until no process has the other end of `channel`.
    ///
    /// # Errors
    /// Returns an error if the control program does not answer, or if the host has no descriptors left.
    pub fn serve(&self, channel: &OwnedFd) -> Result<()> {
        // The control program answers no other requests of a process that has attached an application.
        let mut client = self.connect()?;
        let devices = devices(&mut client)?;
        let mut known = Known { devices, passed: Passed::new(), spare: Some(client) };
        let mut talks: Vec<Talk> = Vec::new();
        loop {
            let mut ready: Vec<PollFd<'_>> = vec![PollFd::new(channel, PollFlags::IN)];
            ready.extend(talks.iter().map(|talk| PollFd::new(&talk.conversation, PollFlags::IN)));
            match poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for requests of the processes of the program"),
            }
            let ready: Vec<bool> = ready.iter().map(|entry| !entry.revents().is_empty()).collect();
            let mut asked = ready[1..].iter();
            talks.retain_mut(|talk| !asked.next().is_some_and(|asked| *asked) || self.answer(&mut known, talk));
            if talks.is_empty() && known.spare.is_none() {
                // Without a spare connection, the next process gets one of its own, or an error.
                known.spare = self.connect().ok();
            }
            if ready[0] {
                match Conversation::accept(channel.as_fd()) {
                    Ok(conversation) if talks.len() < CONVERSATIONS_MAX => {
                        talks.push(Talk { conversation, attaching: None });
                    }
                    // Without a conversation, the process receives an error.
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::InvalidData => {}
                    Err(_) => return Ok(()),
                }
            }
        }
    }

    /// Answers the next question of a process. Returns false if the conversation has ended.
    fn answer(&self, known: &mut Known, talk: &mut Talk) -> bool {
        let (answer, descriptors) = match talk.conversation.question() {
            Ok(Some((question, descriptors))) => self
                .reply(known, talk, question, descriptors)
                .unwrap_or_else(|error| (Answer::Refused(error.to_string()), Vec::new())),
            Ok(None) | Err(_) => return false,
        };
        talk.conversation.answer(&answer, &descriptors).is_ok()
    }

    fn connect(&self) -> Result<Client> {
        Client::connect_at(self.base, self.network)
    }

    /// Begins to attach a process. Returns the connection to the control program for the next step, the terms, the notify and the wake
    /// descriptor, and the socket over which guest and application pass descriptors.
    fn begin_application(
        &self,
        spare: Option<Client>,
        process: Option<u32>,
    ) -> Result<(Client, Terms, [OwnedFd; 2], OwnedFd)> {
        if let Some(mut client) = spare
            && let Ok((terms, doorbell, passing)) = client.begin_application(self.guest, self.secret, process)
        {
            return Ok((client, terms, doorbell, passing));
        }
        // The control program may have restarted, or closed a connection on which it got no request.
        let mut client = self.connect()?;
        let (terms, doorbell, passing) = client.begin_application(self.guest, self.secret, process)?;
        Ok((client, terms, doorbell, passing))
    }

    fn reply(
        &self,
        known: &mut Known,
        talk: &mut Talk,
        question: Question,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Answer, Vec<OwnedFd>)> {
        match question {
            Question::Attach => {
                // The process has made the socket of its conversation.
                let peer = sockopt::socket_peercred(&talk.conversation).ok();
                let process = peer.map(|peer| peer.pid.as_raw_nonzero().get().unsigned_abs());
                let (client, terms, doorbell, passing) = self.begin_application(known.spare.take(), process)?;
                talk.attaching = Some(client);
                let reader = NotifyFd::open_reader(&doorbell[0])
                    .context("cannot open the read end of a pipe that wakes a process")?;
                Ok((Answer::Terms(terms), doorbell.into_iter().chain([reader, passing]).collect()))
            }
            Question::Memory => {
                let unexpected = || Error::usage("a process sent its memory before it asked to attach to the guest");
                let memory = talk.attaching.take().ok_or_else(unexpected)?.exchange_memory(descriptors)?;
                Ok((Answer::Memory, memory.into()))
            }
            Question::Resolve(name) => Ok((Answer::Addresses(self.resolve(&known.devices, &name)), Vec::new())),
            Question::Interfaces => Ok((Answer::Interfaces(self.interfaces(&known.devices)), Vec::new())),
            Question::Pass(inode, text) => {
                let passed = &mut known.passed;
                passed.retain(|(known, _)| *known != inode);
                if passed.len() == PASSED_MAX {
                    passed.pop_front();
                }
                passed.push_back((inode, text));
                Ok((Answer::Described(None), Vec::new()))
            }
            Question::Receive(inode) => {
                let passed = &mut known.passed;
                let place = passed.iter().position(|(known, _)| *known == inode);
                let text = place.and_then(|place| passed.remove(place)).map(|(_, text)| text);
                Ok((Answer::Described(text), Vec::new()))
            }
        }
    }

    /// Returns the network interfaces of the guest, with as many addresses as one packet has room for.
    fn interfaces(&self, devices: &Devices) -> Vec<Interface> {
        let mut room = ADDRESSES_MAX;
        let own = devices.get(self.guest).map_or(&[][..], Vec::as_slice);
        let interface = |device: &GuestDevice| {
            let mut name = device.name.as_str().to_owned();
            name.truncate(INTERFACE_NAME_BYTES_MAX);
            let addresses = device.addresses.iter().map(|net| (net.addr(), net.prefix_len()));
            let addresses: Vec<_> = addresses.take(room).collect();
            room -= addresses.len();
            Interface { name, mtu: device.mtu, addresses }
        };
        own.iter().take(INTERFACES_MAX).map(interface).collect()
    }

    /// Returns the addresses of the guest with the name `name` or `name.network`. Without such a guest, returns none.
    fn resolve(&self, devices: &Devices, name: &str) -> Vec<IpAddr> {
        let suffix = format!(".{}", self.network);
        let guest = name.strip_suffix(&suffix).unwrap_or(name).parse::<Name>().ok();
        let devices = guest.and_then(|guest| devices.get(&guest)).map_or(&[][..], Vec::as_slice);
        let addresses = devices.iter().flat_map(|device| &device.addresses).map(ipnet::IpNet::addr);
        addresses.take(ADDRESSES_MAX).collect()
    }
}

/// Returns the devices of all guests that run.
fn devices(client: &mut Client) -> Result<Devices> {
    let mut devices = Devices::new();
    for answer in client.request(Request::Status { detail: true })? {
        if let ControlAnswer::Report { guest, part: ReportPart::Device(report) } = answer {
            devices.entry(guest).or_default().push(report.device);
        }
    }
    Ok(devices)
}
