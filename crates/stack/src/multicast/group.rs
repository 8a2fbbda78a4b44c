//! Groups: which ones each device's link hears of us, and when it is told. One state machine for IGMP (RFC 3376, and RFC 2236 and
//! RFC 1112 where an older querier is heard) and MLD (RFC 3810, RFC 2710), the host's part only.
//!
//! A group is joined for any source: the filter of every member is EXCLUDE{}, and there are no others. Changes are told at once
//! and again up to the querier's robustness, queries are answered after a random time, both in as few reports as there can be.
//! `igmp.rs` and `mld.rs` read and write the messages, `udp/members.rs` knows the sockets. All-systems, all-nodes and groups that
//! end in the node itself are never reported.

use crate::limits::{
    GROUP_ANSWER_GAP, GROUP_CHANGE_REPEAT, GROUP_QUERY_INTERVAL, GROUP_QUERY_SOURCES_MAX, GROUP_REPORT_REPEAT,
    GROUP_ROBUSTNESS, GROUPS_DEVICE_MAX, GROUPS_MAX,
};
use crate::link::frame::DeviceId;
use crate::seed::Random;
use crate::stack::Stack;
use crate::tcp::Storage;
use crate::time::{Duration, Instant};
use crate::udp::UdpError;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Every host is in it, unasked and unreported (RFC 1112 4).
pub(crate) const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// The same for IPv6 (RFC 4291 2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Where hosts tell routers of what they leave (RFC 2710 3).
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// What is spoken on a link: the newest version, or the oldest that a querier there was heard to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Igmp1,
    Igmp2,
    Igmp3,
    Mld1,
    Mld2,
}

impl Version {
    /// True if a report is a list of records for routers alone; else it is one group's, and other members hear it.
    fn lists_records(self) -> bool {
        match self {
            Self::Igmp3 | Self::Mld2 => true,
            Self::Igmp1 | Self::Igmp2 | Self::Mld1 => false,
        }
    }
}

/// What a record says of its group (RFC 3376 4.2.12, RFC 3810 5.2.12): the numbers of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// In answer to a query: these sources are wanted.
    ModeIsInclude = 1,
    /// In answer to a query: all are.
    ModeIsExclude = 2,
    /// The group was left.
    ChangeToInclude = 3,
    /// The group was joined.
    ChangeToExclude = 4,
}

/// A group record of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    pub(crate) group: IpAddr,
    pub(crate) sources: Vec<IpAddr>,
}

/// What a link is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// Records, in as many reports as they need.
    Records(Vec<Record>),
    /// A report of one group, in an older version.
    Report(Version, IpAddr),
    /// That one group was left, in an older version.
    Leave(IpAddr),
}

/// A query, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) version: Version,
    /// The group asked about; every one if there is none.
    pub(crate) group: Option<IpAddr>,
    /// The sources asked about; every one if there are none.
    pub(crate) sources: Vec<IpAddr>,
    /// Within which time the answer is wanted.
    pub(crate) delay_max: Duration,
    /// The querier's robustness, if it says one.
    pub(crate) robustness: Option<u8>,
    /// The querier's interval, if it says one.
    pub(crate) interval: Option<Duration>,
}

/// The groups of a stack.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Those of IPv4 and those of IPv6, for each device.
    links: Vec<[Link; 2]>,
    /// Groups over all links, but for the stack's own.
    count: usize,
    random: Random,
    due: Option<Instant>,
}

/// The groups of one IP version on one device.
#[derive(Debug)]
struct Link {
    newest: Version,
    version: Version,
    /// Until when queriers of the oldest version, and of the one between, count as present.
    oldest_until: Instant,
    older_until: Instant,
    /// What the querier says of itself.
    robustness: u8,
    interval: Duration,
    groups: BTreeMap<IpAddr, Group>,
    own_count: usize,
    /// When fresh changes are told, and when others are told again.
    fresh: Option<Instant>,
    again: Option<Instant>,
    /// When a query about all groups is answered, and before when none is.
    answer: Option<Instant>,
    answer_min: Instant,
    due: Option<Instant>,
}

#[derive(Debug)]
struct Group {
    /// The stack itself needs it.
    own: bool,
    sockets: usize,
    change: Change,
    /// When a query is answered or a report of an older version is repeated, and before when no query is answered.
    answer: Option<Instant>,
    answer_min: Instant,
    /// The sources that queries asked about; empty for all.
    asked: Vec<IpAddr>,
    /// The last report of it was ours.
    reporter: bool,
}

/// Bytes that a group takes at most, with the sources that queries ask about.
pub(crate) const ENTRY_BYTES: usize =
    2 * size_of::<(IpAddr, Group)>() + GROUP_QUERY_SOURCES_MAX * 2 * size_of::<IpAddr>();

/// How much of a change the link was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// All, or there is nothing to tell.
    Announced,
    /// Nothing.
    Fresh,
    /// It is to be told so many times again.
    Again(u8),
}

impl Groups {
    pub(crate) fn new(random: Random) -> Self {
        Self { links: Vec::new(), count: 0, random, due: None }
    }

    /// Makes room for the groups of the next device; the stack itself needs these. They are told at once.
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

    /// True if somebody here is in the group.
    pub(crate) fn is_joined(&self, device: DeviceId, group: IpAddr) -> bool {
        let all = group == IpAddr::V4(ALL_SYSTEMS) || group == IpAddr::V6(ALL_NODES);
        let link = self.links.get(usize::from(device.0)).map(|links| &links[usize::from(group.is_ipv6())]);
        all || link.and_then(|link| link.groups.get(&group)).is_some_and(Group::is_joined)
    }

    /// The groups on a device that somebody joined.
    pub(crate) fn on(&self, device: DeviceId) -> impl Iterator<Item = IpAddr> {
        let links = self.links.get(usize::from(device.0)).into_iter().flatten();
        links.flat_map(|link| &link.groups).filter(|(_, group)| group.is_joined()).map(|(address, _)| *address)
    }

    /// One more socket in a group.
    pub(crate) fn join(&mut self, now: Instant, device: DeviceId, group: IpAddr) -> Result<(), UdpError> {
        let full = self.count >= GROUPS_MAX;
        let joined = self.change(device, group.is_ipv6(), |link, _| {
            link.update_version(now);
            let full = full || link.groups.len() - link.own_count >= GROUPS_DEVICE_MAX;
            if full && !link.groups.contains_key(&group) {
                // A group that was left and only waits to be told again gives way.
                let left = link.groups.iter().find(|(_, group)| !group.is_joined()).map(|(address, _)| *address);
                link.groups.remove(&left.ok_or(UdpError::TooManyGroups)?);
            }
            link.join(now, group).sockets += 1;
            Ok(())
        });
        joined.unwrap_or(Err(UdpError::NoDevice))
    }

    /// One socket less in a group.
    pub(crate) fn leave(&mut self, now: Instant, device: DeviceId, group: IpAddr) {
        self.change(device, group.is_ipv6(), |link, _| link.leave(now, group));
    }

    /// Takes a query from a device's link.
    pub(crate) fn handle_query(&mut self, now: Instant, device: DeviceId, query: &Query) {
        let ipv6 = matches!(query.version, Version::Mld1 | Version::Mld2);
        self.change(device, ipv6, |link, random| link.query(now, query, random));
    }

    /// Takes another station's report in an older version; false if nobody here is in the group.
    pub(crate) fn handle_report(&mut self, now: Instant, device: DeviceId, group: IpAddr) -> bool {
        let heard = self.change(device, group.is_ipv6(), |link, _| {
            link.update_version(now);
            let lists_records = link.version.lists_records();
            let Some(group) = link.groups.get_mut(&group).filter(|group| group.is_joined()) else { return false };
            if !lists_records {
                group.answer = None;
                group.reporter = false;
            }
            true
        });
        heard == Some(true)
    }

    /// How many there are, but for the stack's own.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.due
    }

    /// What is due on one of the links: of which device, if it is of IPv6, and what to say.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(DeviceId, bool, Vec<Announcement>)> {
        self.due.filter(|due| *due <= now)?;
        let links = self.links.iter().enumerate().flat_map(|(n, [v4, v6])| [(n, false, v4), (n, true, v6)]);
        let (n, ipv6, _) = links.into_iter().find(|(_, _, link)| link.due.is_some_and(|due| due <= now))?;
        let device = DeviceId(u16::try_from(n).ok()?);
        let announcements = self.change(device, ipv6, |link, random| link.announce(now, random))?;
        Some((device, ipv6, announcements))
    }

    /// Does something to one link and keeps the books.
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

    /// The group, with its joining told if it was not joined.
    fn join(&mut self, now: Instant, address: IpAddr) -> &mut Group {
        let group = self.groups.entry(address).or_insert_with(Group::new);
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

    /// Forgets groups that were left once that is told.
    fn drop_left(&mut self) {
        self.groups.retain(|_, group| group.is_joined() || group.change != Change::Announced);
    }

    /// Changes to the version of the queriers that are present. What was to be answered or repeated in the other is
    /// not (RFC 3376 7.2.1, RFC 3810 8.2.1); what was never told still is.
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
        // RFC 3376 5.2: nothing more where all groups are about to be reported anyway.
        if self.answer.is_none_or(|answer| answer > at)
            && is_reported(address)
            && let Some(group) = self.groups.get_mut(&address).filter(|group| group.is_joined())
        {
            group.query(at, &query.sources);
        }
    }

    /// A query where each group has its own report (RFC 2236 3, RFC 2710 4): sooner than planned, never later.
    fn query_older(&mut self, now: Instant, query: &Query, random: &mut Random) {
        let asked = |address: &IpAddr| is_reported(*address) && query.group.is_none_or(|group| group == *address);
        for (_, group) in self.groups.iter_mut().filter(|(address, group)| group.is_joined() && asked(address)) {
            if group.answer.is_none_or(|answer| answer > now + query.delay_max) {
                group.answer = Some((now + within(random, query.delay_max)).max(group.answer_min));
            }
        }
    }

    /// What a query tells of the link's queriers. Only those about all groups tell of older versions (RFC 3376 7.2.1).
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
            let lists = [self.changes(now, random), self.answers(now)];
            lists.into_iter().filter(|records| !records.is_empty()).map(Announcement::Records).collect()
        } else {
            self.reports(now, random)
        };
        self.drop_left();
        announcements
    }

    /// Records of what changed: fresh changes at once, and all that are not told often enough again after a while.
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

    /// Records in answer to a query about all groups, or to those about some.
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

    /// Reports of single groups, and leaves where our report was the last. IGMPv1 has none (RFC 2236 4).
    fn reports(&mut self, now: Instant, random: &mut Random) -> Vec<Announcement> {
        let fresh = self.fresh.take_if(|at| *at <= now).is_some();
        let mut announcements = Vec::new();
        for (address, group) in &mut self.groups {
            let changed = fresh && group.change == Change::Fresh;
            if changed {
                group.change = Change::Announced;
            }
            if changed && !group.is_joined() {
                let heard = group.reporter && self.version != Version::Igmp1;
                announcements.extend(heard.then_some(Announcement::Leave(*address)));
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
    fn new() -> Self {
        Self {
            own: false,
            sockets: 0,
            change: Change::Announced,
            answer: None,
            answer_min: Instant::default(),
            asked: Vec::new(),
            reporter: false,
        }
    }

    fn is_joined(&self) -> bool {
        self.own || self.sockets > 0
    }

    fn forget_query(&mut self) {
        self.answer = None;
        self.asked.clear();
    }

    /// A query about this group, or about sources of it (RFC 3376 5.2). Of too many sources it is answered for all.
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

impl<S: Storage> Stack<S> {
    /// Says what is due about groups.
    pub(crate) fn handle_group_timeout(&mut self, now: Instant) {
        while let Some((device, ipv6, announcements)) = self.groups.due(now) {
            for announcement in announcements {
                if ipv6 {
                    self.send_mld(now, device, &announcement);
                } else {
                    self.send_igmp(now, device, &announcement);
                }
            }
        }
    }
}

/// True if a query's destination is right for it. One about a group may come to any address that is ours (RFC 3376 4.1.12),
/// one about all not to a group of others (RFC 3376 9.1).
pub(crate) fn fits_query(to: IpAddr, group: Option<IpAddr>) -> bool {
    let all = if to.is_ipv4() { IpAddr::V4(ALL_SYSTEMS) } else { IpAddr::V6(ALL_NODES) };
    group.is_some() || !to.is_multicast() || to == all
}

/// True if routers and switches are told of a group: it goes beyond this node, and not everybody is in it anyway (RFC 3376
/// 6, RFC 3810 6).
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != ALL_SYSTEMS,
        IpAddr::V6(group) => group != ALL_NODES && scope(group) > NODE_SCOPE,
    }
}

/// Groups of this scope, and of the reserved one below it, end in the node (RFC 4291 2.7).
pub(crate) const NODE_SCOPE: u8 = 1;

/// How far an IPv6 group goes.
pub(crate) fn scope(group: Ipv6Addr) -> u8 {
    group.octets()[1] & 15
}

/// Records in lists of at most so many bytes, and at least one record.
pub(crate) fn lists(records: &[Record], room: usize, bytes: impl Fn(&Record) -> usize) -> Vec<&[Record]> {
    let mut lists = Vec::new();
    let (mut begin, mut used) = (0, 0);
    for (n, record) in records.iter().enumerate() {
        if used + bytes(record) > room && n > begin {
            lists.push(&records[begin..n]);
            (begin, used) = (n, 0);
        }
        used += bytes(record);
    }
    lists.push(&records[begin..]);
    lists
}

/// A code of one or two octets that is a number up to half its range and a mantissa with an exponent beyond (RFC 3376 4.1.1,
/// RFC 3810 5.1.3). `bits` of it are the mantissa.
pub(crate) fn decoded(code: u16, bits: u32) -> u32 {
    let code = u32::from(code);
    let linear_end = 1 << (bits + 3);
    if code < linear_end {
        return code;
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    mantissa << (((code >> bits) & 7) + 3)
}

/// A random time above none and up to `max`.
fn within(random: &mut Random, max: Duration) -> Duration {
    const STEPS: u32 = 1 << 20;
    let parts = 1 + random.below(STEPS);
    max * parts / STEPS
}
