//! Fast Open (RFC 7413) of a stack: the keys and cookies of its listeners, the cookies that its clients have received, and the
//! time for which black holes switch Fast Open off.
//!
//! A cookie is the SipHash-2-4 of the client's and the server's address, as in Linux. With the same key, several servers behind
//! one address therefore give the same cookies. A cookie proves only that the client has received a packet at its address.

use super::ListenerId;
use super::flow::Flow;
use crate::limits::{
    TCP_FAST_OPEN_BLACK_HOLE_DOUBLINGS, TCP_FAST_OPEN_BLACK_HOLE_TIME, TCP_FAST_OPEN_KEY_TIME, TCP_FAST_OPEN_PEERS_MAX,
    TCP_FAST_OPEN_RESET_TIME,
};
use crate::seed::{Random, Secret};
use crate::tcp::FAST_OPEN_BYTES;
use crate::time::{Duration, Instant};
use crate::wire::tcp::FastOpenOption;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use subtle::{Choice, ConstantTimeEq};

/// How the sockets of a stack may use Fast Open. These are the bits and the black-hole time of Linux's `tcp_fastopen` settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOpenSettings {
    /// Whether active opens may use Fast Open (bit 0x1).
    pub client: bool,
    /// Whether listeners may use Fast Open (bit 0x2). Each listener also needs a limit of pending connections above 0.
    pub server: bool,
    /// Whether active opens send data in a SYN without a cookie (bit 0x4). This is safe only if no host of the network
    /// can forge source addresses, and if the servers accept such data.
    pub client_without_cookie: bool,
    /// Whether listeners accept data in a SYN without a cookie (bit 0x200). This is safe only if no host of the network
    /// can forge source addresses.
    pub server_without_cookie: bool,
    /// Whether a listener without its own limit may have as many pending connections as its backlog (bit 0x400).
    pub all_listeners: bool,
    /// Time for which active opens use no Fast Open after the first black hole (`tcp_fastopen_blackhole_timeout_sec`). The time
    /// doubles with each further black hole. With zero, black holes are ignored.
    pub black_hole_time: Duration,
}

impl Default for FastOpenSettings {
    /// Returns settings that allow Fast Open to clients and servers, but only with cookies. Linux allows it to clients only.
    fn default() -> Self {
        Self {
            client: true,
            server: true,
            client_without_cookie: false,
            server_without_cookie: false,
            all_listeners: false,
            black_hole_time: TCP_FAST_OPEN_BLACK_HOLE_TIME,
        }
    }
}

/// Keys from which a listener computes and checks Fast Open cookies. New cookies have the primary key. To replace a key without
/// making all cookies invalid, the application makes the old key the backup key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenKeys {
    /// The key of new cookies.
    pub primary: [u8; 16],
    /// A key whose cookies are still valid. A client with such a cookie gets a new one.
    pub backup: Option<[u8; 16]>,
}

impl fmt::Debug for FastOpenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FastOpenKeys(..)")
    }
}

/// The result of checking a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CookieCheck {
    Primary,
    Backup,
    Invalid,
}

/// The keys in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    primary: Secret,
    backup: Option<Secret>,
}

impl From<FastOpenKeys> for Keys {
    fn from(keys: FastOpenKeys) -> Self {
        // Linux also reads a key as two little-endian numbers.
        let secret = |key: [u8; 16]| {
            let (words, _) = key.as_chunks::<8>();
            Secret([words[0], words[1]].map(u64::from_le_bytes))
        };
        Self { primary: secret(keys.primary), backup: keys.backup.map(secret) }
    }
}

impl Keys {
    /// Returns the cookie for the client of a flow. The cookie is an option of eight bytes.
    pub(crate) fn cookie(&self, flow: &Flow) -> Option<FastOpenOption> {
        FastOpenOption::new(&Self::bytes(self.primary, flow))
    }

    fn bytes(key: Secret, flow: &Flow) -> [u8; 8] {
        let hash = match flow.ipv4() {
            Some((local, remote)) => key.hash([remote, local].map(u32::to_be_bytes).as_flattened()),
            None => key.hash([flow.remote, flow.local].map(u128::to_be_bytes).as_flattened()),
        };
        hash.to_le_bytes()
    }

    /// Checks the cookie of a client. The time that this takes does not depend on the cookie.
    pub(crate) fn check(&self, flow: &Flow, cookie: &[u8]) -> CookieCheck {
        let is = |key| Self::bytes(key, flow).as_slice().ct_eq(cookie);
        let (primary, backup) = (is(self.primary), self.backup.map_or(Choice::from(0), is));
        if primary.into() {
            CookieCheck::Primary
        } else if backup.into() {
            CookieCheck::Backup
        } else {
            CookieCheck::Invalid
        }
    }
}

/// Fast Open of one listener: its limit, and the connections that count against it.
#[derive(Debug, Default)]
pub(crate) struct FastOpenQueue {
    /// Maximum number of pending connections (`TCP_FASTOPEN`). With 0, the listener uses no Fast Open.
    pub(crate) most: usize,
    /// Number of connections whose handshake is not complete.
    pub(crate) pending: usize,
    /// When each connection that its peer has reset ceases to count as pending.
    pub(crate) resets: VecDeque<Instant>,
    /// The listener's own keys. With `None`, the listener uses the keys of the stack.
    pub(crate) keys: Option<Box<Keys>>,
}

impl FastOpenQueue {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Returns whether another connection may be pending.
    pub(crate) fn has_room(&mut self, now: Instant) -> bool {
        while self.resets.front().is_some_and(|until| *until <= now) {
            self.resets.pop_front();
        }
        self.pending + self.resets.len() < self.most
    }
}

/// A server's cookie, and the MSS that the server has sent with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownCookie {
    pub(crate) cookie: FastOpenOption,
    pub(crate) mss: u16,
    number: u64,
}

/// The local and the remote address of a client's flows. The cookie belongs to both.
type Pair = (u128, u128);

/// Maximum memory of an entry of the cookie table, in bytes: its place in the table and in the order of age.
pub(crate) const COOKIE_BYTES: usize = 2 * size_of::<(Pair, KnownCookie)>() + 2 * size_of::<(u64, Pair)>();

/// Maximum memory in bytes that Fast Open adds to a connection.
pub(crate) const CONNECTION_BYTES: usize = FAST_OPEN_BYTES + 2 * size_of::<(u32, ListenerId)>();

/// The cookies that servers have given to this stack.
#[derive(Debug, Default)]
pub(crate) struct Cookies {
    known: BTreeMap<Pair, KnownCookie>,
    /// The pairs in the order in which their cookies arrived.
    ages: BTreeMap<u64, Pair>,
    next: u64,
}

impl Cookies {
    pub(crate) fn get(&self, flow: &Flow) -> Option<&KnownCookie> {
        self.known.get(&(flow.local, flow.remote))
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Stores what a server has sent in its SYN-ACK. Without a new cookie, the old one stays valid.
    pub(crate) fn learn(&mut self, flow: &Flow, cookie: Option<FastOpenOption>, mss: u16) {
        let pair = (flow.local, flow.remote);
        let Some(cookie) = cookie.filter(|cookie| !cookie.is_request()) else {
            if let Some(known) = self.known.get_mut(&pair) {
                known.mss = mss;
            }
            return;
        };
        if let Some(old) = self.known.remove(&pair) {
            self.ages.remove(&old.number);
        } else if self.known.len() >= TCP_FAST_OPEN_PEERS_MAX
            && let Some((_, oldest)) = self.ages.pop_first()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(pair, KnownCookie { cookie, mss, number: self.next });
        self.ages.insert(self.next, pair);
        self.next += 1;
    }
}

/// The black holes that active opens have detected, as in Linux.
#[derive(Debug, Default)]
struct BlackHoles {
    latest: Instant,
    count: u32,
}

/// Fast Open of a stack.
#[derive(Debug)]
pub(crate) struct FastOpenState {
    pub(crate) settings: FastOpenSettings,
    keys: Keys,
    /// When the primary key is replaced. `None` if the owner has set the keys.
    renewal: Option<Instant>,
    random: Random,
    pub(crate) cookies: Cookies,
    black_holes: BlackHoles,
    /// The connections that count against a listener's limit: the index of each, and its listener.
    pub(crate) pending: BTreeMap<u32, ListenerId>,
}

impl FastOpenState {
    pub(crate) fn new(settings: FastOpenSettings, mut random: Random) -> Self {
        Self {
            settings,
            keys: Keys { primary: new_key(&mut random), backup: None },
            renewal: Some(Instant::default() + TCP_FAST_OPEN_KEY_TIME),
            random,
            cookies: Cookies::default(),
            black_holes: BlackHoles::default(),
            pending: BTreeMap::new(),
        }
    }

    pub(crate) fn set_keys(&mut self, keys: FastOpenKeys) {
        (self.keys, self.renewal) = (keys.into(), None);
    }

    /// Returns the stack's keys, after replacing the primary key if its time is over. After two intervals without a call, no
    /// cookie is valid any more.
    pub(crate) fn keys(&mut self, now: Instant) -> Keys {
        if let Some(renewal) = self.renewal.filter(|renewal| *renewal <= now) {
            let old = Some(self.keys.primary).filter(|_| now < renewal + TCP_FAST_OPEN_KEY_TIME);
            self.keys = Keys { primary: new_key(&mut self.random), backup: old };
            self.renewal = Some(now + TCP_FAST_OPEN_KEY_TIME);
        }
        self.keys
    }

    /// Returns whether a black hole switches Fast Open off for active opens at `now`.
    pub(crate) fn is_off(&self, now: Instant) -> bool {
        let BlackHoles { latest, count } = self.black_holes;
        let Some(doublings) = count.checked_sub(1) else { return false };
        let doublings = doublings.min(TCP_FAST_OPEN_BLACK_HOLE_DOUBLINGS);
        now < latest + self.settings.black_hole_time * (1 << doublings)
    }

    pub(crate) fn note_black_hole(&mut self, now: Instant) {
        if !self.settings.black_hole_time.is_zero() {
            self.black_holes = BlackHoles { latest: now, count: self.black_holes.count.saturating_add(1) };
        }
    }

    /// Records that a connection that opened with Fast Open has received data, so the path carries such connections again.
    pub(crate) fn note_success(&mut self, now: Instant) {
        if !self.is_off(now) {
            self.black_holes.count = 0;
        }
    }
}

fn new_key(random: &mut Random) -> Secret {
    Secret([random.next(), random.next()])
}

/// Returns until when a connection that its peer has reset counts as pending.
pub(crate) fn reset_until(now: Instant) -> Instant {
    now + TCP_FAST_OPEN_RESET_TIME
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};
    use std::net::{IpAddr, Ipv4Addr};

    fn flow(client: u32, server: u32) -> Flow {
        let address = |bits| IpAddr::V4(Ipv4Addr::from_bits(bits));
        Flow::new(address(server), address(client), 80, 1_000)
    }

    fn state(settings: FastOpenSettings) -> FastOpenState {
        FastOpenState::new(settings, Seed::simulated(1).random(Purpose::FastOpenKeys))
    }

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(3_600 * hours)
    }

    #[test]
    fn a_cookie_is_valid_for_its_addresses_and_key_only() {
        let keys = Keys::from(FastOpenKeys { primary: [1; 16], backup: Some([2; 16]) });
        let old = Keys::from(FastOpenKeys { primary: [2; 16], backup: None });
        let other = Keys::from(FastOpenKeys { primary: [3; 16], backup: None });
        let check = |by: Keys, flow_of: Flow| keys.check(&flow(1, 2), by.cookie(&flow_of).unwrap().cookie());
        assert_eq!(check(keys, flow(1, 2)), CookieCheck::Primary);
        assert_eq!(check(old, flow(1, 2)), CookieCheck::Backup);
        for (by, flow) in [(other, flow(1, 2)), (keys, flow(3, 2)), (keys, flow(1, 3)), (old, flow(2, 1))] {
            assert_eq!(check(by, flow), CookieCheck::Invalid);
        }
        let cookie = keys.cookie(&flow(1, 2)).unwrap();
        for len in 0..8 {
            assert_eq!(keys.check(&flow(1, 2), &cookie.cookie()[..len]), CookieCheck::Invalid, "{len} bytes");
        }
        assert_eq!(keys.check(&flow(1, 2), &[cookie.cookie(), &[0, 0]].concat()), CookieCheck::Invalid);
        assert_eq!(format!("{:?}", FastOpenKeys { primary: [7; 16], backup: None }), "FastOpenKeys(..)");
    }

    #[test]
    fn the_stack_replaces_its_key_and_the_old_cookies_stay_valid_for_one_interval() {
        let mut state = state(FastOpenSettings::default());
        let at = |days: u32| Instant::from_ns(1) + TCP_FAST_OPEN_KEY_TIME * days;
        let cookie = state.keys(at(0)).cookie(&flow(1, 2)).unwrap();
        let mut check = |days| state.keys(at(days)).check(&flow(1, 2), cookie.cookie());
        assert_eq!(
            [0, 1, 1, 2].map(&mut check),
            [CookieCheck::Primary, CookieCheck::Backup, CookieCheck::Backup, CookieCheck::Invalid]
        );
        let mut idle = self::state(FastOpenSettings::default());
        let cookie = idle.keys(at(0)).cookie(&flow(1, 2)).unwrap();
        assert_eq!(idle.keys(at(9)).check(&flow(1, 2), cookie.cookie()), CookieCheck::Invalid);
        idle.set_keys(FastOpenKeys { primary: [1; 16], backup: None });
        let cookie = idle.keys(at(9)).cookie(&flow(1, 2)).unwrap();
        assert_eq!(
            idle.keys(at(99)).check(&flow(1, 2), cookie.cookie()),
            CookieCheck::Primary,
            "the owner's key stays"
        );
    }

    #[test]
    fn a_full_cookie_table_evicts_the_oldest_cookie() {
        let mut cookies = Cookies::default();
        let cookie = FastOpenOption::new(&[1; 8]);
        let most = u32::try_from(TCP_FAST_OPEN_PEERS_MAX).unwrap();
        for server in 0..most {
            cookies.learn(&flow(server, 1), cookie, 1_460);
        }
        cookies.learn(&flow(0, 1), cookie, 1_000);
        cookies.learn(&flow(most, 1), cookie, 1_460);
        assert_eq!((cookies.len(), cookies.ages.len()), (TCP_FAST_OPEN_PEERS_MAX, TCP_FAST_OPEN_PEERS_MAX));
        assert!(cookies.get(&flow(1, 1)).is_none(), "the oldest");
        assert_eq!(cookies.get(&flow(0, 1)).map(|known| known.mss), Some(1_000), "it was renewed");
        cookies.learn(&flow(0, 1), None, 900);
        cookies.learn(&flow(9_999, 1), None, 900);
        cookies.learn(&flow(9_999, 1), Some(FastOpenOption::REQUEST), 900);
        assert_eq!(cookies.get(&flow(0, 1)).map(|known| (Some(known.cookie), known.mss)), Some((cookie, 900)));
        assert!(cookies.get(&flow(9_999, 1)).is_none(), "an MSS without a cookie is not stored");
    }

    #[test]
    fn black_holes_switch_fast_open_off_for_one_hour_that_doubles_up_to_six_times() {
        let mut state = state(FastOpenSettings::default());
        let mut now = Instant::from_ns(1);
        assert!(!state.is_off(now));
        for time in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            state.note_black_hole(now);
            assert!(state.is_off(now + hours(time) - Duration::from_nanos(1)), "{time}");
            state.note_success(now);
            now += hours(time);
            assert!(!state.is_off(now), "{time}");
        }
        state.note_success(now);
        state.note_black_hole(now);
        assert!(!state.is_off(now + hours(1)), "a success begins the times anew");
        let mut without =
            self::state(FastOpenSettings { black_hole_time: Duration::ZERO, ..FastOpenSettings::default() });
        without.note_black_hole(now);
        assert!(!without.is_off(now));
    }

    #[test]
    fn a_reset_connection_counts_as_pending_for_a_minute() {
        let (mut queue, now) = (FastOpenQueue::new(2), Instant::from_ns(5));
        queue.pending = 1;
        assert!(queue.has_room(now));
        queue.resets.push_back(reset_until(now));
        assert!(!queue.has_room(now + Duration::from_millis(59_999)));
        assert!(queue.has_room(now + Duration::from_secs(60)) && queue.resets.is_empty());
        assert!(!FastOpenQueue::new(0).has_room(now));
    }
}
