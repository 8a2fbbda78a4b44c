//! The blocks of CLAW (Common Link Access to Workstation) in packed mode, and its control frames.
//!
//! A block contains packets. Before each packet is a header of four bytes: the packet's length, a flag and the number of the logical link.
//! Control frames have 32 bytes. They use link 0, which the command of the channel program says on the hardware. Here the tag of the
//! frame in the ring says it.
//!
//! Each side first asks the other to check the names and buffer sizes of both systems (SYSTEM VALIDATE). Then the side whose name comes
//! first opens the only logical link (CONNECTION REQUEST, RESPONSE and CONFIRM). A side that refuses sends the reason code of the type.

use super::{Bytes, Format, Inside, MESSAGE_BYTES_MAX, word};
use crate::device::Part;
use siga_model::topology;
use siga_stack::link::frame::Marks;
use std::collections::{BTreeMap, VecDeque};

pub(crate) const CONTROL_BYTES: usize = 32;
const PACKET_HEADER_BYTES: usize = 4;
/// The tag of a control frame that is not in a block.
const CONTROL: u64 = 1;
const VERSION: u8 = 2;
/// The number of the only logical link.
const LINK: u8 = 1;
const NAME_BYTES: usize = 8;
/// The name of the application at both ends of the link.
const APPLICATION: &[u8; NAME_BYTES] = b"PACKED  ";
/// Most control frames that wait to be sent.
const WAITING_MAX: usize = 8;
const _: () = assert!(CONTROL_BYTES <= MESSAGE_BYTES_MAX);

pub(crate) const VALIDATE_REQUEST: u8 = 0x01;
pub(crate) const VALIDATE_RESPONSE: u8 = 0x02;
pub(crate) const CONNECTION_REQUEST: u8 = 0x21;
pub(crate) const CONNECTION_RESPONSE: u8 = 0x22;
pub(crate) const CONNECTION_CONFIRM: u8 = 0x23;
pub(crate) const DISCONNECT: u8 = 0x24;
pub(crate) const ERROR: u8 = 0x41;

const OK: u8 = 0;
/// The names do not match.
pub(crate) const NAME_MISMATCH: u8 = 166;
/// The version of the protocol is not the same.
pub(crate) const WRONG_VERSION: u8 = 167;
/// The partner receives smaller blocks than this side sends.
pub(crate) const RECEIVE_TOO_SMALL: u8 = 180;

/// The state of the logical link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// This side has sent a request.
    Asked,
    /// This side has answered a request.
    Answered,
    Open,
}

/// One side of a CLAW link.
#[derive(Debug)]
pub(crate) struct Claw {
    settings: topology::Claw,
    waiting: VecDeque<[u8; CONTROL_BYTES]>,
    /// Whether the partner accepts this side, and whether this side accepts the partner.
    is_valid: bool,
    accepts: bool,
    state: State,
    /// How many requests were refused, by this side and by the partner, by reason code.
    refused: BTreeMap<u8, u64>,
    rejected: BTreeMap<u8, u64>,
    errors: u64,
}

impl Claw {
    pub(crate) fn new(settings: topology::Claw) -> Self {
        let mut claw = Self {
            settings,
            waiting: VecDeque::new(),
            is_valid: false,
            accepts: false,
            state: State::Closed,
            refused: BTreeMap::new(),
            rejected: BTreeMap::new(),
            errors: 0,
        };
        claw.put(VALIDATE_REQUEST, OK, &claw.own_data());
        claw
    }

    /// Returns the data of a SYSTEM VALIDATE: the names of the partner's and of this system, and the sizes of blocks.
    fn own_data(&self) -> [u8; 24] {
        let mut data = [0; 24];
        data[..NAME_BYTES].copy_from_slice(&padded(&self.settings.adapter_name));
        data[NAME_BYTES..2 * NAME_BYTES].copy_from_slice(&padded(&self.settings.host_name));
        data[16..18].copy_from_slice(&word(self.settings.read_size as usize));
        data[18..20].copy_from_slice(&word(self.settings.write_size as usize));
        data
    }

    fn put(&mut self, command: u8, code: u8, data: &[u8]) {
        if self.waiting.len() == WAITING_MAX {
            self.errors += 1;
            return;
        }
        let mut frame = [0; CONTROL_BYTES];
        let link = if command >= CONNECTION_REQUEST { LINK } else { 0 };
        // One request is under way at a time, so the number that joins it with its answer is always the same.
        frame[..5].copy_from_slice(&[command, VERSION, link, 0, code]);
        frame[8..8 + data.len()].copy_from_slice(data);
        self.waiting.push_back(frame);
    }

    /// Refuses a request with a reason code, or accepts it if the code is 0.
    fn answer(&mut self, command: u8, code: u8, data: &[u8]) {
        if code != OK {
            *self.refused.entry(code).or_default() += 1;
        }
        self.put(command, code, data);
    }

    /// Returns the reason code for the partner's SYSTEM VALIDATE.
    fn judge(&self, data: &[u8]) -> u8 {
        let own = self.own_data();
        let read_size = u32::from(u16::from_be_bytes([data[16], data[17]]));
        let (own_adapter, own_host) = (&own[..NAME_BYTES], &own[NAME_BYTES..2 * NAME_BYTES]);
        let (adapter, host) = (&data[..NAME_BYTES], &data[NAME_BYTES..2 * NAME_BYTES]);
        // The order of the two names decides which side opens the link.
        if adapter != own_host || host != own_adapter || own_host == own_adapter {
            NAME_MISMATCH
        } else if read_size < self.settings.write_size {
            RECEIVE_TOO_SMALL
        } else {
            OK
        }
    }

    /// Opens the logical link if both sides accept each other, and if it is this side that opens it.
    fn connect(&mut self) {
        let is_first = self.settings.host_name < self.settings.adapter_name;
        if self.is_valid && self.accepts && is_first && self.state == State::Closed {
            self.state = State::Asked;
            self.put(CONNECTION_REQUEST, OK, &applications());
        }
    }

    /// Counts a control frame that does not fit the state, and says so to the partner.
    fn fail(&mut self, code: u8) {
        self.errors += 1;
        self.state = State::Closed;
        self.put(ERROR, code, &[]);
    }

    fn take(&mut self, command: u8, code: u8, data: &[u8]) {
        match (command, self.state) {
            (VALIDATE_REQUEST, _) => {
                let code = self.judge(data);
                self.accepts = code == OK;
                self.answer(VALIDATE_RESPONSE, code, &self.own_data());
                self.connect();
            }
            (VALIDATE_RESPONSE, _) if code == OK => {
                self.is_valid = true;
                self.connect();
            }
            (CONNECTION_REQUEST, State::Closed | State::Answered) if self.accepts => {
                let code = if data[..16] == applications() { OK } else { NAME_MISMATCH };
                self.state = if code == OK { State::Answered } else { State::Closed };
                self.answer(CONNECTION_RESPONSE, code, &applications());
            }
            (CONNECTION_RESPONSE, State::Asked) if code == OK => {
                self.state = State::Open;
                self.put(CONNECTION_CONFIRM, OK, &applications());
            }
            (CONNECTION_CONFIRM, State::Answered) => self.state = State::Open,
            (VALIDATE_RESPONSE | CONNECTION_RESPONSE, _) if code != OK => {
                *self.rejected.entry(code).or_default() += 1;
                self.state = State::Closed;
            }
            (DISCONNECT, _) => self.state = State::Closed,
            (ERROR, _) => {
                self.errors += 1;
                self.state = State::Closed;
            }
            _ => self.fail(OK),
        }
    }
}

fn padded(name: &str) -> [u8; NAME_BYTES] {
    let mut padded = [b' '; NAME_BYTES];
    padded.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
    padded
}

/// Returns the names of the applications at both ends of the link.
fn applications() -> [u8; 16] {
    let mut both = [b' '; 16];
    both[..NAME_BYTES].copy_from_slice(APPLICATION);
    both[NAME_BYTES..].copy_from_slice(APPLICATION);
    both
}

impl Format for Claw {
    const NUMBER: u8 = 3;
    const BEGIN_BYTES: usize = 0;
    const HEADER_BYTES: usize = PACKET_HEADER_BYTES;
    const END_BYTES: usize = 0;

    #[inline]
    fn write_header(header: &mut [u8], _: usize, bytes: usize, _: Marks) {
        header[..2].copy_from_slice(&word(bytes));
        header[2..].copy_from_slice(&[0, LINK]);
    }

    fn complete(_: &mut [u8], _: usize) {}

    #[inline]
    fn next<B: Bytes + ?Sized>(block: &B, tag: u64, end: &mut usize, at: &mut usize) -> Inside {
        *end = block.len();
        let left = *end - *at;
        let message = |at| Inside::Message(Part { at, len: CONTROL_BYTES, marks: Marks::default() });
        if left == 0 && *at > 0 {
            return Inside::End;
        }
        if tag == CONTROL {
            if *at > 0 || left != CONTROL_BYTES {
                return Inside::Malformed;
            }
            *at = CONTROL_BYTES;
            return message(0);
        }
        if left <= PACKET_HEADER_BYTES {
            return Inside::Malformed;
        }
        let mut header = [0; PACKET_HEADER_BYTES];
        block.copy_to(*at, &mut header);
        let len = usize::from(u16::from_be_bytes([header[0], header[1]]));
        let begin = *at + PACKET_HEADER_BYTES;
        // A packet never continues in the next block, so its flag is always 0.
        if len == 0 || len > *end - begin || header[2] != 0 {
            return Inside::Malformed;
        }
        *at = begin + len;
        match header[3] {
            LINK => Inside::Packet(Part { at: begin, len, marks: Marks::default() }),
            0 if len == CONTROL_BYTES => message(begin),
            _ => Inside::Malformed,
        }
    }

    fn is_open(&self) -> bool {
        self.state == State::Open && self.waiting.is_empty()
    }

    fn has_message(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn write_message(&mut self, block: &mut [u8]) -> (usize, u64) {
        let frame = self.waiting.pop_front().unwrap_or_default();
        block[..CONTROL_BYTES].copy_from_slice(&frame);
        (CONTROL_BYTES, CONTROL)
    }

    fn receive(&mut self, message: &[u8]) {
        let Some((&[command, version, _, _, code, ..], data)) = message.split_first_chunk::<8>() else { return };
        if data.len() != CONTROL_BYTES - 8 {
            return;
        }
        match command {
            _ if version == VERSION => self.take(command, code, data),
            VALIDATE_REQUEST => {
                self.accepts = false;
                self.answer(VALIDATE_RESPONSE, WRONG_VERSION, &self.own_data());
            }
            ERROR => self.errors += 1,
            _ => self.fail(WRONG_VERSION),
        }
    }

    fn end(&mut self) {
        if self.state == State::Open {
            self.state = State::Closed;
            self.put(DISCONNECT, OK, &applications());
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let count = |of: &BTreeMap<u8, u64>, codes: &[u8]| {
            of.iter().filter(|(code, _)| codes.contains(code)).map(|(_, count)| count).sum::<u64>()
        };
        let known = [NAME_MISMATCH, WRONG_VERSION, RECEIVE_TOO_SMALL];
        let other = |of: &BTreeMap<u8, u64>| of.values().sum::<u64>() - count(of, &known);
        vec![
            ("refused_166", count(&self.refused, &[NAME_MISMATCH])),
            ("refused_167", count(&self.refused, &[WRONG_VERSION])),
            ("refused_180", count(&self.refused, &[RECEIVE_TOO_SMALL])),
            ("rejected_166", count(&self.rejected, &[NAME_MISMATCH])),
            ("rejected_167", count(&self.rejected, &[WRONG_VERSION])),
            ("rejected_180", count(&self.rejected, &[RECEIVE_TOO_SMALL])),
            ("rejected_other", other(&self.rejected)),
            ("control_errors", self.errors),
        ]
    }
}
