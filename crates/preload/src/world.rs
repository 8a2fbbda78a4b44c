//! The state of this process: the client of the guest's stack, the sockets, their descriptor numbers, and the sets of epoll.
//!
//! One lock protects the state. While a thread has the lock, its signals are deferred. When the lock is free and a thread sleeps, the
//! client has asked the guest for notifications, so no event is lost.

use crate::epoll::Set;
use crate::errors::{Error, Result};
use crate::event::{OwnEvent, Unwritten};
pub(crate) use crate::held::{Held, lock};
use crate::numbers::{self, Meaning};
use crate::socket::{Socket, State};
use crate::{attach, log, sys};
use siga_iucv::client::{Client, SharedSocket};
use siga_iucv::extent::Table;
use siga_iucv::record::{Number, ShareKey};
use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{LazyLock, Mutex, Once};

/// The place of a socket in [`World::sockets`].
pub(crate) type Place = usize;

/// A thread that sleeps.
pub(crate) struct Sleeper {
    /// The sockets for which the thread waits.
    pub(crate) sockets: Vec<Place>,
    /// The eventfd that wakes the thread.
    pub(crate) event: OwnEvent,
    /// Whether the thread watches the client's descriptor.
    pub(crate) watches: bool,
}

/// The state of this process.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) client: Option<Client>,
    sockets: Vec<Option<Socket>>,
    of_number: Table<RawFd, Place>,
    of_stack: Table<Number, Place>,
    /// The sockets that listen.
    listeners: Vec<Place>,
    /// The sets with siga sockets, each by one of its descriptor numbers.
    pub(crate) sets: Table<RawFd, Set>,
    /// The other descriptor numbers of these sets, each with the number by which the set is known.
    set_numbers: Table<RawFd, RawFd>,
    pub(crate) sleepers: Vec<Option<Sleeper>>,
    /// Threads that sleep in the kernel with the client's descriptor among those that they watch.
    pub(crate) asleep: usize,
    pub(crate) spare_events: Vec<OwnEvent>,
    /// How often threads have begun to use the state.
    pub(crate) uses: u64,
    /// Whether a thread polls.
    pub(crate) is_polled: bool,
    free_places: Vec<Place>,
    /// What the child inherits while this process forks.
    bequest: Option<Bequest>,
}

/// The sockets that another process inherits, and the key with which it does.
pub(crate) struct Bequest {
    pub(crate) key: ShareKey,
    pub(crate) sockets: Vec<SharedSocket>,
}

pub(crate) static WORLD: LazyLock<Mutex<World>> = LazyLock::new(Mutex::default);

impl World {
    /// Lets a sleeper watch the client's descriptor, if none does. A thread that watches and sleeps again at once goes on watching, so a
    /// notification for other threads wakes no further thread.
    pub(crate) fn hand_over_watch(&mut self) {
        let mut sleepers = self.sleepers.iter().flatten();
        if self.client.is_some() && !sleepers.clone().any(|sleeper| sleeper.watches) {
            sleepers.next().into_iter().for_each(|sleeper| sleeper.event.set());
        }
    }

    pub(crate) fn add_sleeper(&mut self, sleeper: Sleeper) -> usize {
        let free = self.sleepers.iter().position(Option::is_none);
        let place = free.unwrap_or(self.sleepers.len());
        match self.sleepers.get_mut(place) {
            Some(slot) => *slot = Some(sleeper),
            None => self.sleepers.push(Some(sleeper)),
        }
        place
    }

    /// Returns the client of the guest's stack. The first call attaches this process.
    pub(crate) fn client(&mut self) -> Result<&mut Client> {
        if self.client.as_ref().is_some_and(Client::has_ended) {
            // An operation has found the end of the guest, and no thread has processed it.
            self.work();
        }
        if self.client.is_none() {
            let client = attach::attach()?;
            self.use_client(client);
        }
        self.client.as_mut().ok_or(Error(libc::ENETDOWN))
    }

    fn use_client(&mut self, client: Client) {
        static ONCE: Once = Once::new();
        client.descriptors().for_each(|own| _ = numbers::set(own.as_raw_fd(), Meaning::Reserved));
        ONCE.call_once(|| {
            sys::at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
            sys::at_exit(finish);
        });
        sys::own_memory();
        self.client = Some(client);
        // A program in a sandbox, such as the server of ssh, may not be allowed to make an eventfd when it first sleeps.
        if self.spare_events.is_empty() {
            self.spare_events.extend(OwnEvent::new());
        }
        // Threads that sleep do not watch the client's descriptor yet.
        self.wake_all();
    }

    /// Lets all threads and sets look again what they have to watch.
    pub(crate) fn wake_all(&mut self) {
        self.sleepers.iter().flatten().for_each(|sleeper| sleeper.event.set());
        self.sets.values_mut().for_each(Set::wake);
    }

    /// Processes the guest's events, and wakes the threads and sets that wait for them.
    pub(crate) fn work(&mut self) -> bool {
        if self.sets.values().any(Set::is_nested) {
            // While a notification is unread, such a set is readable for the kernel, and so for the program.
            self.note_notification();
            self.note_bell(None);
        }
        let Some(client) = &mut self.client else { return false };
        let moved = client.work();
        if let Some(why) = client.ended() {
            log::line(format_args!("{why}"));
            self.leave_guest();
            self.lose_sockets(Error(libc::ENETDOWN));
            return true;
        }
        self.announce_events();
        moved
    }

    /// Wakes the threads and sets that wait for sockets about which the client has processed events.
    fn announce_events(&mut self) {
        while let Some(number) = self.client.as_mut().and_then(Client::poll_event) {
            if let Some(place) = self.of_stack.get(&number).copied() {
                self.announce(place);
            }
        }
    }

    /// Ends the use of the guest: it has ended, or this is a child of the process that uses it.
    fn leave_guest(&mut self) {
        let Some(client) = self.client.take() else { return };
        client.descriptors().for_each(|own| _ = numbers::set(own.as_raw_fd(), Meaning::Foreign));
        client.abandon();
        self.sets.values_mut().for_each(Set::forget_client);
    }

    /// Separates all sockets from the stack. Their operations return `error` from now on.
    fn lose_sockets(&mut self, error: Error) {
        self.of_stack.clear();
        self.sockets.iter_mut().flatten().for_each(|socket| socket.lose(error));
        (0..self.sockets.len()).for_each(|place| self.announce(place));
    }

    /// Shares sockets of the stack with another process of this program: those with these numbers, or all if there are none. Returns
    /// `None` if this process has none.
    pub(crate) fn bequeath(&mut self, numbers: &[Number]) -> Option<Bequest> {
        if self.of_stack.is_empty() {
            return None;
        }
        let key = sys::random_key();
        let shared = self.client.as_mut()?.share(key, numbers);
        let sockets = shared.inspect_err(|error| {
            log::line(format_args!("the process cannot share its sockets with another process: {error}"));
        });
        Some(Bequest { key, sockets: sockets.ok()? })
    }

    /// Attaches this process, and takes over sockets that another process of this program has shared.
    pub(crate) fn inherit(&mut self, bequest: &Bequest) -> Result<()> {
        let mut client = attach::attach()?;
        client.inherit(bequest.key, &bequest.sockets)?;
        self.use_client(client);
        Ok(())
    }

    /// Records that a socket listens.
    pub(crate) fn begin_listening(&mut self, place: Place) {
        if !self.listeners.contains(&place) {
            self.listeners.push(place);
        }
    }

    /// Lets the guest hand over the next connections of a listener that other processes have too, because a thread waits for them. Does
    /// nothing for other sockets.
    pub(crate) fn expect_connections(&mut self, place: Place) {
        let socket = self.sockets.get(place).and_then(Option::as_ref);
        let Some(State::Listening { numbers, .. }) = socket.map(|socket| &socket.state) else { return };
        if let Some(client) = &mut self.client {
            numbers.iter().for_each(|number| client.expect(*number));
        }
    }

    /// Does the same for the listeners for which a set waits.
    pub(crate) fn expect_connections_of_set(&mut self, set: RawFd) {
        for at in 0..self.listeners.len() {
            let place = self.listeners[at];
            let watched_by =
                self.sockets.get(place).and_then(Option::as_ref).map_or(&[][..], |socket| &socket.watched_by);
            let mut numbers = watched_by.iter().filter(|(of, _)| *of == set).map(|(_, number)| *number);
            if self.sets.get(&set).is_some_and(|known| numbers.any(|number| known.waits_for_input(number))) {
                self.expect_connections(place);
            }
        }
    }

    /// Wakes the threads and sets that wait for a socket, because it may have become ready.
    pub(crate) fn announce(&mut self, place: Place) {
        for sleeper in self.sleepers.iter().flatten().filter(|sleeper| sleeper.sockets.contains(&place)) {
            sleeper.event.set();
        }
        let Some(socket) = self.sockets.get(place).and_then(Option::as_ref) else { return };
        for (set, number) in &socket.watched_by {
            if let Some(set) = self.sets.get_mut(set) {
                set.announce(*number);
            }
        }
    }

    /// Asks the guest for notifications. Returns false if there is something to do already.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        // While the client waited for an answer of the guest, it may have processed events of any socket.
        self.announce_events();
        for _ in 0..2 {
            let has_more = |client: &mut Client| client.has_ended() || !client.fall_asleep();
            if !self.client.as_mut().is_some_and(has_more) {
                return true;
            }
            self.work();
        }
        false
    }

    /// Adds a socket with its first descriptor number.
    ///
    /// # Errors
    /// `EMFILE` if the number is too large for a siga socket.
    pub(crate) fn add(&mut self, number: RawFd, mut socket: Socket) -> Result<Place> {
        self.forget(number);
        socket.inode = sys::socket_inode(number).unwrap_or(0);
        if !numbers::set(number, Meaning::Socket) {
            return Err(Error(libc::EMFILE));
        }
        let place = self.free_places.pop().unwrap_or(self.sockets.len());
        match self.sockets.get_mut(place) {
            Some(slot) => *slot = Some(socket),
            None => self.sockets.push(Some(socket)),
        }
        self.of_number.insert(number, place);
        Ok(place)
    }

    /// Gives a socket a further number.
    pub(crate) fn duplicate(&mut self, from: RawFd, to: RawFd) -> Result<()> {
        let place = self.place(from)?;
        self.forget(to);
        if !numbers::set(to, Meaning::Socket) {
            return Err(Error(libc::EMFILE));
        }
        self.of_number.insert(to, place);
        self.socket_at(place)?.holders += 1;
        Ok(())
    }

    /// Makes a number foreign. Closes its socket if this was the last number of the socket.
    pub(crate) fn forget(&mut self, number: RawFd) {
        if numbers::meaning(number) == Meaning::EpollSet {
            self.forget_set(number);
        }
        let Some(place) = self.of_number.remove(&number) else { return };
        numbers::set(number, Meaning::Foreign);
        // Threads that wait for the socket under this number must not go on.
        self.announce(place);
        let Some(socket) = self.sockets[place].as_mut() else { return };
        socket.holders -= 1;
        let (is_last, watched_by) = (socket.holders == 0, socket.watched_by.clone());
        for (set, watched) in watched_by.into_iter().filter(|(_, watched)| is_last || *watched == number) {
            if let Some(set) = self.sets.get_mut(&set) {
                set.remove(watched);
            }
        }
        if !is_last {
            if let Some(socket) = self.sockets[place].as_mut() {
                socket.watched_by.retain(|(_, watched)| *watched != number);
            }
            return;
        }
        if let Some(socket) = self.sockets[place].take() {
            self.free_places.push(place);
            self.listeners.retain(|listener| *listener != place);
            for stack in socket.stack_numbers() {
                self.of_stack.remove(&stack);
            }
            if let Some(client) = &mut self.client {
                socket.close(client);
            }
        }
    }

    fn forget_set(&mut self, number: RawFd) {
        numbers::set(number, Meaning::Foreign);
        if self.set_numbers.remove(&number).is_some() {
            return;
        }
        let Some(set) = self.sets.remove(&number) else { return };
        let other = self.set_numbers.iter().find(|(_, known)| **known == number).map(|(other, _)| *other);
        let Some(other) = other else {
            for socket in self.sockets.iter_mut().flatten() {
                socket.watched_by.retain(|(of, _)| *of != number);
            }
            return;
        };
        // The set is open under another number, and is known by that one from now on.
        self.set_numbers.remove(&other);
        self.set_numbers.values_mut().filter(|known| **known == number).for_each(|known| *known = other);
        self.sets.insert(other, set);
        let watches = self.sockets.iter_mut().flatten().flat_map(|socket| &mut socket.watched_by);
        watches.filter(|(of, _)| *of == number).for_each(|(of, _)| *of = other);
    }

    /// Returns the number by which a set is known that has this descriptor number.
    pub(crate) fn set_number(&self, number: RawFd) -> RawFd {
        self.set_numbers.get(&number).copied().unwrap_or(number)
    }

    /// Gives a set a further descriptor number.
    pub(crate) fn duplicate_set(&mut self, from: RawFd, to: RawFd) {
        let known = self.set_number(from);
        if self.sets.contains_key(&known) && numbers::set(to, Meaning::EpollSet) {
            self.set_numbers.insert(to, known);
        }
    }

    /// Forgets the sockets of the stack that this process has not inherited: the addresses of sockets that neither listen nor connect.
    fn keep_only(&mut self, inherited: &[SharedSocket]) {
        let is_inherited = |number: &Number| inherited.iter().any(|one| one.number == *number);
        self.of_stack.retain(|number, _| is_inherited(number));
        for socket in self.sockets.iter_mut().flatten() {
            if !socket.stack_numbers().iter().all(is_inherited) {
                socket.state = State::New;
            }
        }
    }

    /// Records that a socket of the stack belongs to a socket of the program.
    pub(crate) fn bind_number(&mut self, stack: Number, place: Place) {
        self.of_stack.insert(stack, place);
    }

    /// Forgets to which socket of the program some sockets of the stack belonged.
    pub(crate) fn forget_numbers(&mut self, numbers: &[Number]) {
        for number in numbers {
            self.of_stack.remove(number);
        }
    }

    /// Returns the inodes of the placeholders of all sockets, and the places of the sockets.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = (u64, Place)> {
        let sockets = self.sockets.iter().enumerate();
        sockets.filter_map(|(place, socket)| Some((socket.as_ref()?.inode, place)))
    }

    /// Returns one of the descriptor numbers of a socket.
    pub(crate) fn number_at(&self, place: Place) -> Option<RawFd> {
        self.of_number.iter().find(|(_, of)| **of == place).map(|(number, _)| *number)
    }

    /// Returns the place of the socket with this descriptor number.
    pub(crate) fn place(&self, number: RawFd) -> Result<Place> {
        self.of_number.get(&number).copied().ok_or(Error(libc::EBADF))
    }

    pub(crate) fn socket_at(&mut self, place: Place) -> Result<&mut Socket> {
        self.sockets.get_mut(place).and_then(Option::as_mut).ok_or(Error(libc::EBADF))
    }

    pub(crate) fn socket(&mut self, number: RawFd) -> Result<&mut Socket> {
        let place = self.place(number)?;
        self.socket_at(place)
    }

    /// Returns a socket and the client. The first use attaches this process.
    pub(crate) fn socket_and_client(&mut self, place: Place) -> Result<(&mut Socket, &mut Client)> {
        self.client()?;
        let socket = self.sockets.get_mut(place).and_then(Option::as_mut).ok_or(Error(libc::EBADF))?;
        Ok((socket, self.client.as_mut().ok_or(Error(libc::ENETDOWN))?))
    }
}

thread_local! {
    /// The lock that a forking thread holds during the fork.
    static FORKING: RefCell<Option<Held>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    let mut held = lock();
    held.bequest = held.bequeath(&[]);
    FORKING.set(Some(held));
}

extern "C" fn after_fork_in_parent() {
    if let Some(mut held) = FORKING.take() {
        held.bequest = None;
    }
}

/// The child holds the sockets of its parent, too. It is another application of the guest.
extern "C" fn after_fork_in_child() {
    let Some(mut held) = FORKING.take() else { return };
    // The descriptors of these events are shared with the parent.
    drop(Unwritten::take());
    held.sleepers.clear();
    held.spare_events.clear();
    held.sets.values_mut().for_each(Set::forget_event);
    held.asleep = 0;
    held.is_polled = false;
    held.leave_guest();
    sys::own_memory();
    let inherited = match held.bequest.take() {
        Some(bequest) => held.inherit(&bequest).map(|()| bequest.sockets),
        None => Ok(Vec::new()),
    };
    match inherited {
        Ok(sockets) => held.keep_only(&sockets),
        Err(_) => held.lose_sockets(Error::NOT_CONNECTED),
    }
}

/// Closes all sockets, and waits until their bytes are delivered.
pub(crate) extern "C" fn finish() {
    if !sys::has_used_guest() {
        // A child of a program without siga sockets does not make the state, and a child of vfork does not close those of its parent.
        return;
    }
    let client = {
        let mut held = lock();
        let numbers: Vec<RawFd> = held.of_number.keys().copied().collect();
        numbers.into_iter().for_each(|number| held.forget(number));
        let client = held.client.take();
        for own in client.iter().flat_map(Client::descriptors) {
            numbers::set(own.as_raw_fd(), Meaning::Foreign);
        }
        client
    };
    drop(client);
}
