//! The multicast groups that this stack joined on each device's link, and when messages about them are due. One state machine
//! implements the host part of IGMP (RFC 3376) and of MLD (RFC 3810). While a querier of an older version is present, the state
//! machine follows RFC 2236, RFC 1112 or RFC 2710.
//!
//! A group is joined for any source: the filter of every member is EXCLUDE{}, and no other filters exist. A change (joining or
//! leaving a group) is announced immediately and then repeated. The querier's robustness variable is the total number of these
//! announcements. A query is answered after a random time. Several changes or answers share a report where possible.
//!
//! `messages.rs` receives and sends the messages. The group of all systems (IPv4), the group of all nodes (IPv6) and groups of
//! interface-local scope are never reported.

use crate::limits::{
    GROUP_ANSWER_GAP, GROUP_CHANGE_REPEAT, GROUP_QUERY_INTERVAL, GROUP_QUERY_SOURCES_MAX, GROUP_REPORT_REPEAT,
    GROUP_ROBUSTNESS, GROUPS_DEVICE_MAX, GROUPS_MAX,
};
use crate::link::frame::DeviceId;
use crate::seed::Random;
use crate::time::{Duration, Instant};
use crate::wire::address::{ALL_NODES, ALL_SYSTEMS, NODE_SCOPE, scope};
use crate::wire::membership::{Query, Record, RecordKind, Version};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// A message to be sent on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// Group records. They are sent in one report, or in several if they do not fit into one.
    Records(Vec<Record>),
    /// A report of one group in an older protocol version.
    Report(Version, IpAddr),
    /// A message in an older protocol version that says that this stack left one group.
    Leave(IpAddr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinError {
    NoDevice,
    TooManyGroups,
}

#[derive(Debug)]
pub(crate) struct Groups {
    /// For each device: the link state for IPv4, then the link state for IPv6.
    links: Vec<[Link; 2]>,
    /// Number of groups on all links, without the groups that the stack itself needs.
    pub(crate) count: usize,
    random: Random,
    pub(crate) due: Option<Instant>,
}

/// The groups of one IP version on one device, and what this stack has learnt about the queriers on the link.
#[derive(Debug)]
struct Link {
    newest: Version,
    version: Version,
    /// `oldest_until`: until this time, a querier of the oldest version is assumed to be present. `older_until` is the same for
    /// IGMPv2.
    oldest_until: Instant,
    older_until: Instant,
    /// The robustness variable and the query interval that the link's querier announced.
    robustness: u8,
    interval: Duration,
    groups: BTreeMap<IpAddr, Group>,
    own_count: usize,
    /// `fresh`: when new changes are announced for the first time. `again`: when announced changes are repeated.
    fresh: Option<Instant>,
    again: Option<Instant>,
    /// `answer`: when a general query is answered. `answer_min`: the earliest time at which the next general query may be
    /// answered.
    answer: Option<Instant>,
    answer_min: Instant,
    due: Option<Instant>,
}

#[derive(Debug, Default)]
struct Group {
    /// True if the stack itself needs the group, so that the group stays joined without sockets.
    own: bool,
    sockets: usize,
    change: Change,
    /// `answer`: when a query about this group is answered, or when a report of an older version is repeated. `answer_min`: the
    /// earliest time at which the next such query may be answered.
    answer: Option<Instant>,
    answer_min: Instant,
    /// The sources that an unanswered query asked about. Empty if the query asked about all sources.
    asked: Vec<IpAddr>,
    /// True if the last report of this group on the link came from this stack.
    reporter: bool,
}

/// Maximum memory of a group in bytes, including the list of sources that queries asked about.
pub(crate) const ENTRY_BYTES: usize =
    2 * size_of::<(IpAddr, Group)>() + GROUP_QUERY_SOURCES_MAX * 2 * size_of::<IpAddr>();

/// Whether a change (the group was joined or left) still has to be announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Change {
    /// The change was announced as often as required, or the group has not changed.
    #[default]
    Announced,
    /// The change has not been announced yet.
    Fresh,
    /// The change was announced, and has to be announced again as many times as the number says.
    Again(u8),
}

impl Groups {
    pub(crate) fn new(random: Random) -> Self {
        Self { links: Vec::new(), count: 0, random, due: None }
    }

    /// Adds the next device. The stack joins the groups `own` on its link, which it needs itself, and announces them immediately.
    pub(crate) fn add_device(&mut self, own: &[Ipv6Addr]) {
        let [v4, mut v6] = [Version::Igmp3, Version::Mld2].map(Link::new);
        for group in own {
            v6.join(Instant::default(), IpAddr::V6(*group)).own = true;
        }
        v6.own_count = v6.groups.len();
        v6.due = v6.earliest();
        self.links.push([v4, v6]);
        self.due = self.earliest();
    }

    /// Returns true if the stack receives packets to the group on this device, because a socket or the stack itself has joined it.
    pub(crate) fn is_joined(&self, device: DeviceId, group: IpAddr) -> bool {
        let all = group == IpAddr::V4(ALL_SYSTEMS) || group == IpAddr::V6(ALL_NODES);
        let link = self.links.get(usize::from(device.0)).map(|links| &links[usize::from(group.is_ipv6())]);
        all || link.and_then(|link| link.groups.get(&group)).is_some_and(Group::is_joined)
    }

    /// Returns the groups that are joined on a device.
    pub(crate) fn on(&self, device: DeviceId) -> impl Iterator<Item = IpAddr> {
        let links = self.links.get(usize::from(device.0)).into_iter().flatten();
        links.flat_map(|link| &link.groups).filter(|(_, group)| group.is_joined()).map(|(address, _)| *address)
    }

    pub(crate) fn join(&mut self, now: Instant, device: DeviceId, group: IpAddr) -> Result<(), JoinError> {
        let full = self.count >= GROUPS_MAX;
        let joined = self.change(device, group.is_ipv6(), |link, _| {
            link.update_version(now);
            let full = full || link.groups.len() - link.own_count >= GROUPS_DEVICE_MAX;
            if full && !link.groups.contains_key(&group) {
                // To make room, remove a group that was left and that stays in the table only for repeated announcements.
                let left = link.groups.iter().find(|(_, group)| !group.is_joined()).map(|(address, _)| *address);
                link.groups.remove(&left.ok_or(JoinError::TooManyGroups)?);
            }
            link.join(now, group).sockets += 1;
            Ok(())
        });
        joined.unwrap_or(Err(JoinError::NoDevice))
    }

    pub(crate) fn leave(&mut self, now: Instant, device: DeviceId, group: IpAddr) {
        self.change(device, group.is_ipv6(), |link, _| link.leave(now, group));
    }

    pub(crate) fn handle_query(&mut self, now: Instant, device: DeviceId, query: &Query) {
        let ipv6 = matches!(query.version, Version::Mld1 | Version::Mld2);
        self.change(device, ipv6, |link, random| link.query(now, query, random));
    }

    /// Processes another host's report in an older protocol version. Returns false if this stack has not joined the reported
    /// group.
    pub(crate) fn handle_report(&mut self, now: Instant, device: DeviceId, group: IpAddr) -> bool {
        let joined = self.change(device, group.is_ipv6(), |link, _| {
            link.update_version(now);
            let lists_records = link.version.lists_records();
            let Some(group) = link.groups.get_mut(&group).filter(|group| group.is_joined()) else { return false };
            if !lists_records {
                group.answer = None;
                group.reporter = false;
            }
            true
        });
        joined == Some(true)
    }

    /// Returns the next link with messages to send: its device and the messages. Returns `None` if no message is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(DeviceId, Vec<Announcement>)> {
        self.due.filter(|due| *due <= now)?;
        let links = self.links.iter().enumerate().flat_map(|(n, [v4, v6])| [(n, false, v4), (n, true, v6)]);
        let (n, ipv6, _) = links.into_iter().find(|(_, _, link)| link.due.is_some_and(|due| due <= now))?;
        let device = DeviceId(u16::try_from(n).ok()?);
        let announcements = self.change(device, ipv6, |link, random| link.announce(now, random))?;
        Some((device, announcements))
    }

    /// Calls `work` for one link, then updates the number of groups and the deadlines.
    fn change<T>(&mut self, device: DeviceId, ipv6: bool, work: impl FnOnce(&mut Link, &mut Random) -> T) -> Option<T> {
        let link = &mut self.links.get_mut(usize::from(device.0))?[usize::from(ipv6)];
        let before = link.groups.len();
        let result = work(link, &mut self.random);
        self.count = self.count + link.groups.len() - before;
        link.due = link.earliest();
        self.due = self.earliest();
        Some(result)
    }

    fn earliest(&self) -> Option<Instant> {
        self.links.iter().flatten().filter_map(|link| link.due).min()
    }
}

impl Link {
    fn new(newest: Version) -> Self {
        Self {
            newest,
            version: newest,
            oldest_until: Instant::default(),
            older_until: Instant::default(),
            robustness: GROUP_ROBUSTNESS,
            interval: GROUP_QUERY_INTERVAL,
            groups: BTreeMap::new(),
            own_count: 0,
            fresh: None,
            again: None,
            answer: None,
            answer_min: Instant::default(),
            due: None,
        }
    }

    fn earliest(&self) -> Option<Instant> {
        let answers = self.groups.values().filter_map(|group| group.answer);
        [self.fresh, self.again, self.answer].into_iter().flatten().chain(answers).min()
    }

    /// Returns the entry of a group for joining it. If the stack had not joined the group before, schedules an announcement.
    fn join(&mut self, now: Instant, address: IpAddr) -> &mut Group {
        let group = self.groups.entry(address).or_default();
        if !group.is_joined() && is_reported(address) {
            group.change = Change::Fresh;
            self.fresh = Instant::first(self.fresh, Some(now));
        }
        group
    }

    fn leave(&mut self, now: Instant, address: IpAddr) {
        let Some(group) = self.groups.get_mut(&address) else { return };
        group.sockets = group.sockets.saturating_sub(1);
        if group.is_joined() {
            return;
        }
        group.forget_query();
        if is_reported(address) {
            group.change = Change::Fresh;
            self.fresh = Instant::first(self.fresh, Some(now));
        }
        self.drop_left();
    }

    /// Removes the groups that were left and need no further announcement.
    fn drop_left(&mut self) {
        self.groups.retain(|_, group| group.is_joined() || group.change != Change::Announced);
    }

    /// Switches to the protocol version of the queriers that are present. A switch cancels the answers and repetitions that are
    /// scheduled in the previous version (RFC 3376 7.2.1, RFC 3810 8.2.1). New changes are still announced.
    fn update_version(&mut self, now: Instant) {
        let oldest = now < self.oldest_until;
        let version = match self.newest {
            Version::Mld1 | Version::Mld2 if oldest => Version::Mld1,
            Version::Igmp1 | Version::Igmp2 | Version::Igmp3 if oldest => Version::Igmp1,
            Version::Igmp1 | Version::Igmp2 | Version::Igmp3 if now < self.older_until => Version::Igmp2,
            newest @ (Version::Igmp1 | Version::Igmp2 | Version::Igmp3 | Version::Mld1 | Version::Mld2) => newest,
        };
        if version == self.version {
            return;
        }
        self.version = version;
        (self.again, self.answer) = (None, None);
        for group in self.groups.values_mut() {
            group.forget_query();
            if group.change != Change::Fresh {
                group.change = Change::Announced;
            }
        }
        self.drop_left();
    }

    fn query(&mut self, now: Instant, query: &Query, random: &mut Random) {
        self.learn(now, query);
        self.update_version(now);
        let at = now + within(random, query.delay_max);
        if !self.version.lists_records() {
            return self.query_older(now, query, random);
        }
        let Some(address) = query.group else {
            if !self.groups.is_empty() {
                self.answer = Instant::first(self.answer, Some(at.max(self.answer_min)));
            }
            return;
        };
        // RFC 3376 5.2: no separate answer if a general query is answered earlier, because that answer covers this group.
        if self.answer.is_none_or(|answer| answer > at)
            && is_reported(address)
            && let Some(group) = self.groups.get_mut(&address).filter(|group| group.is_joined())
        {
            group.query(at, &query.sources);
        }
    }

    /// Processes a query in an older protocol version, in which each group has its own report (RFC 2236 3, RFC 2710 4). The query
    /// can move a scheduled answer to an earlier time, but never to a later one.
    fn query_older(&mut self, now: Instant, query: &Query, random: &mut Random) {
        let asked = |address: &IpAddr| is_reported(*address) && query.group.is_none_or(|group| group == *address);
        for (_, group) in self.groups.iter_mut().filter(|(address, group)| group.is_joined() && asked(address)) {
            if group.answer.is_none_or(|answer| answer > now + query.delay_max) {
                group.answer = Some((now + within(random, query.delay_max)).max(group.answer_min));
            }
        }
    }

    /// Stores what a query says about the link's queriers: the protocol version, the robustness variable and the query interval.
    /// Only a general query proves that a querier uses an older version (RFC 3376 7.2.1).
    fn learn(&mut self, now: Instant, query: &Query) {
        let until = now + self.interval * u32::from(self.robustness) + query.delay_max;
        match query.version {
            Version::Igmp3 | Version::Mld2 => {
                self.robustness = query.robustness.unwrap_or(GROUP_ROBUSTNESS);
                self.interval = query.interval.unwrap_or(GROUP_QUERY_INTERVAL);
            }
            Version::Igmp2 if query.group.is_none() => self.older_until = until,
            Version::Igmp1 | Version::Mld1 if query.group.is_none() => self.oldest_until = until,
            Version::Igmp1 | Version::Igmp2 | Version::Mld1 => {}
        }
    }

    fn announce(&mut self, now: Instant, random: &mut Random) -> Vec<Announcement> {
        self.update_version(now);
        let announcements = if self.version.lists_records() {
            let lists =
                [self.changes(now, random), self.answers(now)].into_iter().filter(|records| !records.is_empty());
            lists.map(Announcement::Records).collect()
        } else {
            self.reports(now, random)
        };
        self.drop_left();
        announcements
    }

    /// Returns records of changes: changes that were never announced, and changes whose announcement must be repeated.
    fn changes(&mut self, now: Instant, random: &mut Random) -> Vec<Record> {
        let fresh = self.fresh.take_if(|at| *at <= now).is_some();
        let again = self.again.take_if(|at| *at <= now).is_some();
        let mut records = Vec::new();
        for (address, group) in &mut self.groups {
            let left = match group.change {
                Change::Fresh if fresh => self.robustness - 1,
                Change::Again(left) if again => left - 1,
                Change::Announced | Change::Fresh | Change::Again(_) => continue,
            };
            group.change = if left == 0 { Change::Announced } else { Change::Again(left) };
            group.reporter = true;
            let joined = group.is_joined();
            let kind = if joined { RecordKind::ChangeToExclude } else { RecordKind::ChangeToInclude };
            records.push(Record { kind, group: *address, sources: Vec::new() });
        }
        let open = self.groups.values().any(|group| matches!(group.change, Change::Again(_)));
        if open && self.again.is_none() {
            self.again = Some(now + within(random, GROUP_CHANGE_REPEAT));
        }
        records
    }

    /// Returns the records that answer a general query, or queries about single groups, if answers are due.
    fn answers(&mut self, now: Instant) -> Vec<Record> {
        let all = self.answer.take_if(|at| *at <= now).is_some();
        if all {
            self.answer_min = now + GROUP_ANSWER_GAP;
        }
        let mut records = Vec::new();
        for (address, group) in self.groups.iter_mut().filter(|(address, _)| is_reported(**address)) {
            let sources = if all {
                Vec::new()
            } else if group.answer.take_if(|at| *at <= now).is_some() {
                group.answer_min = now + GROUP_ANSWER_GAP;
                std::mem::take(&mut group.asked)
            } else {
                continue;
            };
            if group.is_joined() {
                group.reporter = true;
                let kind = if sources.is_empty() { RecordKind::ModeIsExclude } else { RecordKind::ModeIsInclude };
                records.push(Record { kind, group: *address, sources });
            }
        }
        records
    }

    /// Returns reports of single groups, and leave messages. A leave message is sent only if the group's last report came from
    /// this stack, and never in IGMPv1, which has no leave message (RFC 2236 4).
    fn reports(&mut self, now: Instant, random: &mut Random) -> Vec<Announcement> {
        let fresh = self.fresh.take_if(|at| *at <= now).is_some();
        let mut announcements = Vec::new();
        for (address, group) in &mut self.groups {
            let changed = fresh && group.change == Change::Fresh;
            if changed {
                group.change = Change::Announced;
            }
            if changed && !group.is_joined() {
                let is_expected = group.reporter && self.version != Version::Igmp1;
                announcements.extend(is_expected.then_some(Announcement::Leave(*address)));
            } else if changed || group.answer.take_if(|at| *at <= now).is_some() {
                announcements.push(Announcement::Report(self.version, *address));
                group.answer = changed.then(|| now + within(random, GROUP_REPORT_REPEAT));
                group.answer_min = now + GROUP_ANSWER_GAP;
                group.reporter = true;
            }
        }
        announcements
    }
}

impl Group {
    fn is_joined(&self) -> bool {
        self.own || self.sockets > 0
    }

    fn forget_query(&mut self) {
        self.answer = None;
        self.asked.clear();
    }

    /// Processes a query about this group, or about some sources of this group (RFC 3376 5.2). If queries ask about more sources
    /// than the stack stores, the answer covers all sources.
    fn query(&mut self, at: Instant, sources: &[IpAddr]) {
        let about_all = sources.is_empty() || (self.answer.is_some() && self.asked.is_empty());
        self.answer = Instant::first(self.answer, Some(at.max(self.answer_min)));
        if !about_all {
            let more = sources.iter().filter(|source| !self.asked.contains(source)).copied().collect::<Vec<_>>();
            self.asked.extend(more);
        }
        if about_all || self.asked.len() > GROUP_QUERY_SOURCES_MAX {
            self.asked.clear();
        }
    }
}

/// Returns true if membership in a group is reported (RFC 3376 6, RFC 3810 6). It is not reported for the groups of all hosts, and
/// not for groups whose packets never leave this node.
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != ALL_SYSTEMS,
        IpAddr::V6(group) => group != ALL_NODES && scope(group) > NODE_SCOPE,
    }
}

/// Returns a random duration that is greater than zero and at most `max`.
fn within(random: &mut Random, max: Duration) -> Duration {
    const STEPS: u32 = 1 << 20;
    let parts = 1 + random.below(STEPS);
    max * parts / STEPS
}
