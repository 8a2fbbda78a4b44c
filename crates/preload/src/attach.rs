//! The process's conversation with the broker of `siga exec`.

use crate::errors::{Error, Result};
use crate::numbers::{self, Meaning};
use crate::{log, sys};
use siga_iucv::broker::{Answer, CHANNEL_VARIABLE, Conversation, LIBRARY_VARIABLE, Question};
use siga_iucv::client::Client;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// Returns the descriptor of the inherited channel, or `None` if the program does not run under `siga exec`.
fn channel() -> Option<&'static OwnedFd> {
    static CHANNEL: OnceLock<Option<OwnedFd>> = OnceLock::new();
    CHANNEL.get_or_init(|| inherited(CHANNEL_VARIABLE)).as_ref()
}

/// Takes over the descriptor whose number is in the environment.
fn inherited(variable: &str) -> Option<OwnedFd> {
    let number: RawFd = std::env::var(variable).ok()?.parse().ok()?;
    sys::adopt(number)
}

/// Reserves the inherited descriptors, so that the program cannot close them. Called when the library is loaded.
pub(crate) fn reserve() {
    static LIBRARY: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| inherited(LIBRARY_VARIABLE)).as_ref();
    for descriptor in [channel(), library].into_iter().flatten() {
        numbers::set(descriptor.as_raw_fd(), Meaning::Reserved);
    }
}

fn begin() -> Result<Conversation> {
    let channel = channel().ok_or(Error(libc::ENETDOWN))?;
    Ok(Conversation::begin(channel)?)
}

/// Attaches this process to its guest.
pub(crate) fn attach() -> Result<Client> {
    let attached = begin()?.attach().and_then(Client::new);
    attached.map_err(|error| {
        log::line(format_args!("cannot attach to the guest: {error}"));
        Error(libc::ENETDOWN)
    })
}

/// Returns the addresses of a host of the network; none if the name is unknown.
pub(crate) fn resolve(name: &str) -> Result<Vec<IpAddr>> {
    match begin()?.ask(&Question::Resolve(name.to_owned()), &[])? {
        (Answer::Addresses(addresses), _) => Ok(addresses),
        (Answer::Terms(_) | Answer::Memory | Answer::Refused(_), _) => Err(Error(libc::EIO)),
    }
}
