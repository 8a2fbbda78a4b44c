//! The blocks of LCS (LAN Channel Station): Ethernet frames and control frames between a guest and a gateway to a LAN, which is a switch.
//!
//! Before each frame is a header of four bytes: the offset in the block at which the next header is, the type of the frame, and the port
//! of the gateway. An offset of zero ends the block.
//!
//! The guest starts the gateway (STARTUP), then the LAN of one of its ports (STARTLAN), and asks for its Ethernet address (LANSTAT). The
//! gateway answers each command with the command itself and a return code. Then both send Ethernet frames. If the gateway begins itself,
//! the guest starts again.

use super::{Bytes, Format, Inside, next_in_chain, word};
use std::collections::VecDeque;

use siga_model::limits::LCS_BUFFER_BYTES;
use siga_stack::link::frame::Marks;

const FRAME_HEADER_BYTES: usize = 4;
const END_BYTES: usize = 2;
const CONTROL: u8 = 0;
const ETHERNET: u8 = 1;
/// The only port of a gateway.
const PORT: u8 = 0;
/// The last port number for which a guest looks.
const PORT_MAX: u8 = 16;
/// Length of a control frame without its header, in bytes: of LANSTAT, and of all others.
const LANSTAT_BYTES: usize = 60;
const COMMAND_BYTES: usize = 16;
/// Most control frames that wait to be sent.
const WAITING_MAX: usize = 8;

pub(crate) const STARTLAN: u8 = 0x01;
pub(crate) const STOPLAN: u8 = 0x02;
pub(crate) const LANSTAT: u8 = 0x04;
pub(crate) const STARTUP: u8 = 0x07;
pub(crate) const SHUTDOWN: u8 = 0x08;

/// The side that begins a dialogue.
const HOST: u8 = 0;
pub(crate) const GATEWAY: u8 = 1;

const OK: u16 = 0;
/// The gateway has no such port, or no LAN of this type.
const NO_PORT: u16 = 1;
/// The command does not fit the state of the gateway, or the gateway does not have it.
const NO_COMMAND: u16 = 4;

/// How far a guest or a gateway has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The gateway is not started.
    Down,
    /// The gateway is started, its LAN is not.
    Started,
    /// The LAN is started. A guest does not know its address yet.
    Lan,
    /// Ethernet frames can be sent.
    Open,
}

/// One side of an LCS device.
#[derive(Debug)]
pub(crate) struct Lcs {
    is_gateway: bool,
    /// The Ethernet address of the guest.
    mac: [u8; 6],
    step: Step,
    port: u8,
    sequence: u16,
    waiting: VecDeque<Vec<u8>>,
    refused: u64,
    errors: u64,
}

impl Lcs {
    pub(crate) fn new(is_gateway: bool, mac: [u8; 6]) -> Self {
        let mut lcs = Self {
            is_gateway,
            mac,
            step: Step::Down,
            port: PORT,
            sequence: 0,
            waiting: VecDeque::new(),
            refused: 0,
            errors: 0,
        };
        lcs.begin();
        lcs
    }

    /// Begins to start the gateway, if this side is a guest.
    fn begin(&mut self) {
        (self.step, self.port) = (Step::Down, PORT);
        if !self.is_gateway {
            self.command(STARTUP);
        }
    }

    /// Sends a command of the guest.
    fn command(&mut self, command: u8) {
        let mut body = [0; COMMAND_BYTES];
        self.sequence = self.sequence.wrapping_add(1);
        (body[0], body[1]) = (command, HOST);
        body[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        match command {
            STARTUP => body[8..10].copy_from_slice(&word(LCS_BUFFER_BYTES as usize)),
            _ => (body[6], body[7]) = (ETHERNET, self.port),
        }
        self.put(&body);
    }

    fn put(&mut self, body: &[u8]) {
        if self.waiting.len() == WAITING_MAX {
            self.errors += 1;
            return;
        }
        self.waiting.push_back(body.to_vec());
    }

    /// Acts on a command of the guest, and answers it.
    fn serve(&mut self, command: &[u8; 8], body: &[u8]) {
        let [kind, _, _, _, _, _, lan_type, port] = *command;
        let buffer = body.get(8..10).map_or(0, |bytes| u32::from(u16::from_be_bytes([bytes[0], bytes[1]])));
        let code = match (kind, self.step) {
            (STARTUP, _) if (1..=LCS_BUFFER_BYTES).contains(&buffer) => {
                self.step = Step::Started;
                OK
            }
            (STARTLAN, Step::Started | Step::Open) if lan_type == ETHERNET && port == PORT => {
                self.step = Step::Open;
                OK
            }
            (STARTLAN, Step::Started | Step::Open) => NO_PORT,
            (LANSTAT, Step::Open) => OK,
            (STOPLAN, Step::Open) => {
                self.step = Step::Started;
                OK
            }
            (SHUTDOWN, _) => {
                self.step = Step::Down;
                OK
            }
            _ => NO_COMMAND,
        };
        self.refused += u64::from(code != OK);
        let mut answer = vec![0; if kind == LANSTAT { LANSTAT_BYTES } else { COMMAND_BYTES }];
        answer[..8].copy_from_slice(command);
        answer[4..6].copy_from_slice(&code.to_be_bytes());
        if kind == LANSTAT {
            // The nine counters behind the address begin at the start of the gateway, so they are zero here.
            answer[18..24].copy_from_slice(&self.mac);
        }
        self.put(&answer);
    }

    /// Acts on the gateway's answer to a command.
    fn proceed(&mut self, command: &[u8; 8], body: &[u8]) {
        let [kind, _, sequence @ .., _, _, _, _] = *command;
        let code = u16::from_be_bytes([command[4], command[5]]);
        let is_awaited = u16::from_be_bytes(sequence) == self.sequence;
        match (kind, self.step) {
            _ if !is_awaited => self.errors += 1,
            (STARTUP, Step::Down) if code == OK => {
                self.step = Step::Started;
                self.command(STARTLAN);
            }
            (STARTLAN, Step::Started) if code == OK => {
                self.step = Step::Lan;
                self.command(LANSTAT);
            }
            (STARTLAN, Step::Started) if self.port < PORT_MAX => {
                self.refused += 1;
                self.port += 1;
                self.command(STARTLAN);
            }
            (LANSTAT, Step::Lan) if code == OK && body.get(18..24) == Some(&self.mac) => self.step = Step::Open,
            (STARTUP | STARTLAN | LANSTAT, _) if code != OK => self.refused += 1,
            (SHUTDOWN, _) => {}
            _ => self.errors += 1,
        }
    }
}

impl Format for Lcs {
    const NUMBER: u8 = 4;
    const BEGIN_BYTES: usize = 0;
    const HEADER_BYTES: usize = FRAME_HEADER_BYTES;
    const END_BYTES: usize = END_BYTES;

    #[inline]
    fn write_header(header: &mut [u8], next: usize, _: usize, _: Marks) {
        header[..2].copy_from_slice(&word(next));
        header[2..].copy_from_slice(&[ETHERNET, PORT]);
    }

    #[inline]
    fn complete(block: &mut [u8], fill: usize) {
        block[fill..fill + END_BYTES].fill(0);
    }

    #[inline]
    fn next<B: Bytes + ?Sized>(block: &B, _: u64, _: &mut usize, at: &mut usize) -> Inside {
        match next_in_chain::<B, FRAME_HEADER_BYTES>(block, block.len(), at) {
            Ok(([_, _, CONTROL, _], part)) => Inside::Message(part),
            Ok(([_, _, ETHERNET, _], part)) => Inside::Packet(part),
            Ok(_) => Inside::Malformed,
            Err(none) => none,
        }
    }

    fn is_open(&self) -> bool {
        self.step == Step::Open && self.waiting.is_empty()
    }

    fn has_message(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn write_message(&mut self, block: &mut [u8]) -> (usize, u64) {
        let body = self.waiting.pop_front().unwrap_or_default();
        let fill = FRAME_HEADER_BYTES + body.len();
        block[..2].copy_from_slice(&word(fill));
        block[2..FRAME_HEADER_BYTES].copy_from_slice(&[CONTROL, PORT]);
        block[FRAME_HEADER_BYTES..fill].copy_from_slice(&body);
        Self::complete(block, fill);
        (fill + END_BYTES, 0)
    }

    fn receive(&mut self, message: &[u8]) {
        let Some(command) = message.first_chunk::<8>().filter(|_| message.len() >= COMMAND_BYTES) else {
            self.errors += 1;
            return;
        };
        match (command[1], self.is_gateway) {
            (HOST, true) => self.serve(command, message),
            (HOST, false) => self.proceed(command, message),
            (GATEWAY, false) if matches!(command[0], STARTUP | STARTLAN) => self.begin(),
            _ => self.errors += 1,
        }
    }

    fn end(&mut self) {
        if !self.is_gateway && self.step == Step::Open {
            self.step = Step::Down;
            self.command(SHUTDOWN);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("commands_refused", self.refused), ("control_errors", self.errors)]
    }
}
