//! The process's conversation with the broker of `siga exec`.

use crate::errors::{Error, Result};
use crate::numbers::{self, Meaning};
use crate::{log, sys};
use siga_iucv::broker::{
    Answer, CHANNEL_VARIABLE, Conversation, Interface, LIBRARY_VARIABLE, LOOPBACK_OF_GUEST, LOOPBACK_VARIABLE, Question,
};
use siga_iucv::client::{ApplicationEnd, Client};
use siga_ring::wait::policy::Mode;
use std::ffi::CString;
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

/// The variables that a program needs so that it stays on the guest.
const VARIABLES: [&str; 5] = ["LD_PRELOAD", CHANNEL_VARIABLE, LIBRARY_VARIABLE, LOOPBACK_VARIABLE, log::LOG_VARIABLE];

/// Returns these variables as they were when this library was loaded, each as `NAME=value`.
pub(crate) fn environment() -> &'static [CString] {
    static ENVIRONMENT: OnceLock<Vec<CString>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let value = |name: &str| Some([name.as_bytes(), b"=", std::env::var_os(name)?.as_encoded_bytes()].concat());
        VARIABLES.into_iter().filter_map(value).filter_map(|text| CString::new(text).ok()).collect()
    })
}

/// Prepares what the library needs later. Called when the library is loaded. The inherited descriptors are reserved, so that the
/// program cannot close them.
pub(crate) fn prepare() {
    siga_ring::clock::begin();
    environment();
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
    // The threads of the program keep the CPUs on which they may run, so the client must not move them. While it waits for an answer of
    // the guest, it does not poll or yield either: the guest needs the CPU, and a sandbox may not allow the system call.
    let waits = |end: ApplicationEnd| {
        let polls = end.waiting != Mode::Block;
        let mut client = Client::without_wake(ApplicationEnd { waiting: Mode::Block, colocate: false, ..end });
        if polls {
            client.allow_polling();
        }
        client
    };
    let attached = begin()?.attach().map(waits);
    attached.map_err(|error| {
        log::line(format_args!("cannot attach to the guest: {error}"));
        Error(libc::ENETDOWN)
    })
}

/// Returns the addresses of a host of the network; none if the name is unknown.
pub(crate) fn resolve(name: &str) -> Result<Vec<IpAddr>> {
    match begin()?.ask(&Question::Resolve(name.to_owned()), &[])? {
        (Answer::Addresses(addresses), _) => Ok(addresses),
        (Answer::Terms(_) | Answer::Memory | Answer::Interfaces(_) | Answer::Described(_) | Answer::Refused(_), _) => {
            Err(Error(libc::EIO))
        }
    }
}

/// Returns the network interfaces of the guest.
pub(crate) fn interfaces() -> Result<Vec<Interface>> {
    match begin()?.ask(&Question::Interfaces, &[])? {
        (Answer::Interfaces(interfaces), _) => Ok(interfaces),
        (Answer::Terms(_) | Answer::Memory | Answer::Addresses(_) | Answer::Described(_) | Answer::Refused(_), _) => {
            Err(Error(libc::EIO))
        }
    }
}

/// Lets the broker keep the description of a socket, whose placeholder has this inode, for the process that receives it.
pub(crate) fn pass(inode: u64, description: String) -> Result<()> {
    begin()?.ask(&Question::Pass(inode, description), &[])?;
    Ok(())
}

/// Returns the description of a socket that another process has passed, if it is one.
pub(crate) fn received(inode: u64) -> Result<Option<String>> {
    match begin()?.ask(&Question::Receive(inode), &[])? {
        (Answer::Described(description), _) => Ok(description),
        (Answer::Terms(_) | Answer::Memory | Answer::Addresses(_) | Answer::Interfaces(_) | Answer::Refused(_), _) => {
            Err(Error(libc::EIO))
        }
    }
}

/// Returns whether loopback addresses are the guest's. Otherwise they are the host's.
pub(crate) fn has_own_loopback() -> bool {
    static OWN: OnceLock<bool> = OnceLock::new();
    *OWN.get_or_init(|| std::env::var_os(LOOPBACK_VARIABLE).is_some_and(|owner| owner == LOOPBACK_OF_GUEST))
}
