//! Accurate ECN (RFC 9768): the receiver counts marked packets, and the sender learns how many of its packets were marked.
//!
//! Both sides agree on it in the handshake (`opening.rs`). Then each header has the lowest three bits of the receiver's counter of
//! marked packets (the ACE field) instead of ECE and CWR. An option reports more, with counters of bytes. The congestion control of this
//! stack reduces cwnd at most once in a round trip, however many packets were marked (decision 024).
//!
//! Names in parentheses are those of the RFC.

use super::sender::Sender;
use super::synchronized::Synchronized;
use crate::time::Instant;
use crate::wire::tcp::{AccurateEcnOption, Header, IpEcn};

/// First value of the counters of packets.
const PACKETS_FIRST: u32 = 5;
/// First value of the counters of bytes with ECT(0) and ECT(1).
const BYTES_FIRST: u32 = 1;
/// Number of values of the ACE field.
const ACE_VALUES: u32 = 8;

/// How much of accurate ECN is used, as agreed in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AccurateStart {
    /// On the side that opened the connection, the ECN field with which the SYN-ACK arrived. The first acknowledgement reports it.
    pub(super) answers: Option<IpEcn>,
    /// Whether the peer sends the option, so that middleboxes let it pass.
    pub(super) options: bool,
}

/// The counters of a connection with accurate ECN.
#[derive(Debug)]
pub(super) struct AccurateEcn {
    /// Number of marked packets that were received (`r.cep`).
    received_packets: u32,
    /// Numbers of received bytes that were marked, had ECT(0), and had ECT(1) (`r.ceb`, `r.e0b`, `r.e1b`).
    received_bytes: [u32; 3],
    handshake_ace: Option<u8>,
    /// Whether the peer opened the connection.
    is_passive: bool,
    /// Whether options are sent, and the counters in the latest one.
    options: bool,
    reported: Option<[u32; 3]>,
    /// Number of marked packets that the peer has reported (`s.cep`), and number of marked bytes according to its options (`s.ceb`).
    sent_packets: u32,
    sent_bytes: u32,
    /// Whether the first ACE field of the peer was checked.
    is_checked: bool,
}

impl AccurateEcn {
    pub(super) fn new(start: AccurateStart) -> Self {
        let is_marked = start.answers.is_some_and(IpEcn::is_marked);
        Self {
            received_packets: PACKETS_FIRST + u32::from(is_marked),
            received_bytes: [0, BYTES_FIRST, BYTES_FIRST],
            handshake_ace: start.answers.map(IpEcn::ace_of_handshake),
            is_passive: start.answers.is_none(),
            options: start.options,
            reported: None,
            sent_packets: PACKETS_FIRST,
            sent_bytes: 0,
            is_checked: false,
        }
    }

    /// Counts a received packet (RFC 9768 section 3.2.1).
    fn count(&mut self, ecn: IpEcn, payload_bytes: u32) {
        let [marked, capable_0, capable_1] = &mut self.received_bytes;
        match ecn {
            IpEcn::NotCapable => {}
            IpEcn::Capable1 => *capable_1 = capable_1.wrapping_add(payload_bytes),
            IpEcn::Capable0 => *capable_0 = capable_0.wrapping_add(payload_bytes),
            IpEcn::Congestion => {
                *marked = marked.wrapping_add(payload_bytes);
                self.received_packets = self.received_packets.wrapping_add(1);
            }
        }
    }

    /// Returns the ACE field of the next segment.
    fn ace(&mut self) -> u8 {
        let counter = u8::try_from(self.received_packets % ACE_VALUES).unwrap_or(0);
        self.handshake_ace.take().unwrap_or(counter)
    }

    /// Returns the option of the next bare acknowledgement, if the counters have changed.
    fn option(&mut self) -> Option<AccurateEcnOption> {
        if !self.options || self.reported == Some(self.received_bytes) {
            return None;
        }
        self.reported = Some(self.received_bytes);
        let [marked, capable_0, capable_1] = self.received_bytes;
        Some(AccurateEcnOption::new(marked, capable_0, capable_1))
    }

    /// Returns how many of the `delivered` packets that an acknowledgement newly covers were marked (RFC 9768 appendix A.2). The ACE
    /// field may have wrapped if they are many. `segment_bytes` is the payload of a full segment.
    fn marked(&mut self, header: &Header, delivered: u32, segment_bytes: u32) -> u32 {
        let ace = u32::from(header.flags.ace());
        let least = (ace + ACE_VALUES - self.sent_packets % ACE_VALUES) % ACE_VALUES;
        let option = header.options.accurate_ecn.and_then(|option| {
            self.options = true;
            AccurateEcnOption::increase(option.marked, self.sent_bytes)
        });
        let mut marked = least;
        if let Some(bytes) = option {
            self.sent_bytes = self.sent_bytes.wrapping_add(bytes);
            // The packets of these bytes are at least this many, so add as many wraps of the field as they need. A hostile peer cannot
            // report more packets than were delivered.
            let packets = bytes.div_ceil(segment_bytes.max(1)).min(delivered);
            while marked < packets {
                marked += ACE_VALUES;
            }
        } else if delivered >= ACE_VALUES && least > 0 {
            // Without an option, assume as many marks as possible (section 3.2.2.5.2).
            marked = delivered - (delivered - least) % ACE_VALUES;
        }
        self.sent_packets = self.sent_packets.wrapping_add(marked);
        marked
    }
}

impl Synchronized {
    /// Counts a received packet if the connection uses accurate ECN. A marked packet with payload is acknowledged at once, so that the
    /// ACE field of the peer does not wrap unnoticed (RFC 9768 section 3.2.2.5.1).
    pub(super) fn count_ecn(&mut self, ecn: IpEcn, payload_bytes: u32) {
        if let Some(accurate) = self.snd.accurate_ecn() {
            accurate.count(ecn, payload_bytes);
            if ecn.is_marked() && payload_bytes > 0 {
                self.rcv.ack = super::receiver::AckDue::Now;
            }
        }
    }
}

impl Sender {
    pub(super) fn accurate_ecn(&mut self) -> Option<&mut AccurateEcn> {
        self.extras.as_mut()?.accurate_ecn.as_mut()
    }

    /// Checks the first ACE field of the peer (RFC 9768 section 3.2.2.4). Returns whether the connection uses accurate ECN, and the field of
    /// this header is a counter.
    pub(super) fn check_first_ace(&mut self, header: &Header) -> bool {
        let Some(accurate) = self.accurate_ecn() else { return false };
        if std::mem::replace(&mut accurate.is_checked, true) {
            return true;
        }
        // The first acknowledgement of the side that opened the connection reports the ECN field of our SYN-ACK, which had no ECT. If it
        // reports anything else, or if the field is 0, the path changes ECN fields or flags, so no packet gets ECT.
        let is_passive = accurate.is_passive;
        let ace = header.flags.ace();
        self.ecn &= ace != 0 && !(is_passive && matches!(ace, 0b011 | 0b100 | 0b110));
        !is_passive
    }

    /// Processes the marks that an acknowledgement reports. `delivered` is the number of packets that it newly covers. An acknowledgement that
    /// covers nothing new may be old, so its field is ignored.
    pub(super) fn take_marks(&mut self, now: Instant, header: &Header, delivered: u32) {
        if delivered == 0 {
            return;
        }
        let segment_bytes = self.segment_bytes;
        let Some(accurate) = self.accurate_ecn() else { return };
        let marked = accurate.marked(header, delivered, segment_bytes);
        if marked > 0 {
            let history = self.rare.edit();
            history.delivered_ce = history.delivered_ce.wrapping_add(marked);
            self.respond_to_mark(now);
            self.rearm(now);
        }
    }

    /// Sets the ACE field of a header, and of a bare acknowledgement also the option if there is room for it.
    pub(super) fn report_ecn(&mut self, header: &mut Header, is_bare: bool) {
        let Some(accurate) = self.accurate_ecn() else { return };
        header.flags.set_ace(accurate.ace());
        if is_bare && header.options.sack.as_slice().len() <= 1 {
            header.options.accurate_ecn = accurate.option();
        }
    }
}
