//! How the two sides of CLAW and of LCS begin, and what they refuse.

use super::*;
use siga_model::topology::Claw as Names;

/// A device with its end of a link.
struct Side {
    outbound: Outbound,
    inbound: Inbound,
    link: Link,
}

impl Side {
    fn count(&self, name: &str) -> u64 {
        self.outbound.counters().iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    /// Sends what is to be sent.
    fn flush(&mut self) {
        self.outbound.flush(&mut self.link.producer).unwrap();
    }

    /// Takes the messages that have come, and returns the first byte of each.
    fn take(&mut self) -> Vec<u8> {
        let mut taken = Vec::new();
        while let Some(frame) = self.link.consumer.next_frame().unwrap() {
            let mut at = 0;
            while let Inside::Message(part) = self.inbound.next(&frame, &mut at) {
                let mut message = vec![0; part.len];
                frame.copy_to(part.at, &mut message);
                self.outbound.receive(&message);
                taken.push(message[0]);
            }
        }
        taken
    }

    /// Sends a message that the device itself would not send.
    fn send_raw(&mut self, bytes: &[u8], tag: u64) {
        self.link.producer.reserve(bytes.len()).unwrap().unwrap().copy_from_slice(bytes);
        self.link.producer.commit(bytes.len(), tag);
        self.link.producer.publish();
    }
}

/// Both sides of a link.
fn sides(kind: NetworkKind, one: &Settings, other: &Settings) -> [Side; 2] {
    let (link, other_link) = ends_with(kind.buffer_bytes() as usize, 8);
    let side = |settings, link| Side { outbound: outbound(kind, settings), inbound: inbound(kind), link };
    [side(one, link), side(other, other_link)]
}

/// Lets both sides exchange messages until none is left. Returns what each has received.
fn begin([one, other]: &mut [Side; 2]) -> [Vec<u8>; 2] {
    let mut received = [Vec::new(), Vec::new()];
    for _ in 0..10 {
        one.flush();
        other.flush();
        received[0].extend(one.take());
        received[1].extend(other.take());
    }
    received
}

fn claw_is_open(side: &mut Side) -> bool {
    send(&mut side.outbound, &mut side.link, &[1], Marks::default()) == Sent::Packet
}

const CLAW: NetworkKind = NetworkKind::Claw { buffer: 32_768 };

fn claw(host: &str, adapter: &str, read_size: u32, write_size: u32) -> Settings {
    let names = Names { host_name: host.to_owned(), adapter_name: adapter.to_owned(), read_size, write_size };
    Settings { claw: Some(Box::new(names)), ..Settings::default() }
}

#[test]
fn the_side_of_claw_whose_name_comes_first_opens_the_link_after_both_have_validated() {
    let mut both = sides(CLAW, &claw("ALPHA", "BETA", 32_768, 32_768), &claw("BETA", "ALPHA", 32_768, 32_768));
    both[0].flush();
    let request = [&[1, 2, 0, 0, 0, 0, 0, 0][..], b"BETA    ALPHA   ", &[0x80, 0, 0x80, 0, 0, 0, 0, 0]].concat();
    assert_eq!(raw(&mut both[1].link), [(request.clone(), 1)]);
    both[1].outbound.receive(&request);
    let [one, other] = begin(&mut both);
    // SYSTEM VALIDATE REQUEST and RESPONSE, CONNECTION REQUEST, RESPONSE and CONFIRM.
    assert_eq!((one, other), (vec![1, 2, 0x22], vec![2, 0x21, 0x23]));
    assert!(both.iter_mut().all(claw_is_open));
    // A block: the length of each packet, no flag, link 1.
    let [one, _] = &mut both;
    assert_eq!(send(&mut one.outbound, &mut one.link, &[2; 3], Marks::default()), Sent::Packet);
    let at = Instant::from_ns(0);
    one.outbound.begin_block(&siga_model::link::Link::channel(8_000_000_000, 0), at).unwrap();
    assert!(one.outbound.end_block(&mut one.link.producer, Instant::from_ns(1_000)).unwrap());
    assert_eq!(raw(&mut both[1].link), [(vec![0, 1, 0, 1, 1, 0, 3, 0, 1, 2, 2, 2], 0)]);
    let [one, other] = &mut both;
    one.outbound.end(&mut one.link.producer).unwrap();
    assert_eq!(other.take(), [0x24]);
    other.outbound.end(&mut other.link.producer).unwrap();
    assert!(one.take().is_empty(), "the link is closed already");
}

#[test]
fn claw_refuses_other_names_other_versions_and_a_partner_that_receives_less_than_it_sends() {
    let right = claw("BETA", "ALPHA", 32_768, 32_768);
    for (wrong, code) in [
        (claw("ALPHA", "GAMMA", 32_768, 32_768), 166),
        (claw("GAMMA", "BETA", 32_768, 32_768), 166),
        (claw("ALPHA", "BETA", 8_192, 8_192), 180),
    ] {
        let mut both = sides(CLAW, &wrong, &right);
        begin(&mut both);
        let [one, other] = &mut both;
        let (refused, rejected) = (format!("refused_{code}"), format!("rejected_{code}"));
        assert_eq!((other.count(&refused), one.count(&rejected)), (1, 1), "{code}");
        assert!(!claw_is_open(one) && !claw_is_open(other));
    }
    // Each side may receive more than the other sends.
    let mut both = sides(CLAW, &claw("ALPHA", "BETA", 32_768, 8_192), &claw("BETA", "ALPHA", 8_192, 32_768));
    begin(&mut both);
    assert!(both.iter_mut().all(claw_is_open));
    assert_eq!(both[0].outbound.packet_bytes_max(), 8_192 - 8 - 4);
    let mut both = sides(CLAW, &claw("ALPHA", "BETA", 32_768, 32_768), &right);
    let request = [&[1, 3, 0, 0, 0, 0, 0, 0][..], b"BETA    ALPHA   ", &[0x80, 0, 0x80, 0, 0, 0, 0, 0]].concat();
    both[0].send_raw(&request, 1);
    assert_eq!(both[1].take(), [1]);
    assert_eq!(both[1].count("refused_167"), 1);
}

#[test]
fn a_control_frame_of_claw_that_does_not_fit_is_counted_and_answered_with_an_error() {
    let names = [claw("ALPHA", "BETA", 32_768, 32_768), claw("BETA", "ALPHA", 32_768, 32_768)];
    for command in [0x21, 0x22, 0x23, 0x99] {
        let mut both = sides(CLAW, &names[0], &names[1]);
        let frame = [&[command, 2, 1, 0, 0, 0, 0, 0][..], &[0; 24]].concat();
        both[0].send_raw(&frame, 1);
        both[1].take();
        assert_eq!(both[1].count("control_errors"), 1, "{command:x}");
        // An error of the partner is not answered, so no error causes another.
        begin(&mut both);
        assert_eq!(both[1].count("control_errors"), 1, "{command:x}");
    }
    // As many errors as a partner may send: the answers that wait are bounded.
    let mut both = sides(CLAW, &names[0], &names[1]);
    let frame = [&[0x99, 2, 1, 0, 0, 0, 0, 0][..], &[0; 24]].concat();
    (0..50).for_each(|_| both[1].outbound.receive(&frame));
    both[1].flush();
    assert!(both[0].take().len() <= 8);
}

const LCS: NetworkKind = NetworkKind::Lcs { mtu: 1_500 };
const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

fn lcs(is_gateway: bool, mac: Mac) -> Settings {
    Settings { is_gateway, mac: Some(mac), ..Settings::default() }
}

#[test]
fn a_device_of_lcs_starts_its_gateway_and_its_lan_and_learns_its_address() {
    let mut both = sides(LCS, &lcs(false, MAC), &lcs(true, MAC));
    both[1].flush();
    assert!(both[0].take().is_empty(), "a gateway does not begin");
    both[0].flush();
    // A header with the offset of the end, then the command 7, sequence 1, return code 0, and the size of a buffer.
    let startup = [&[0, 20, 0, 0, 7, 0, 0, 1, 0, 0, 0, 0, 0x50, 0][..], &[0; 8]].concat();
    assert_eq!(raw(&mut both[1].link), [(startup.clone(), 0)]);
    both[1].outbound.receive(&startup[4..20]);
    assert_eq!(begin(&mut both), [vec![7, 1, 4], vec![1, 4]]);
    assert!(both.iter().all(|side| side.outbound.is_open()));
    // Two frames in a block.
    let [one, other] = &mut both;
    assert_eq!(
        block_of_two(&mut one.outbound, &mut one.link, &mut other.link),
        [0, 7, 1, 0, 1, 1, 1, 0, 15, 1, 0, 2, 2, 2, 2, 0, 0]
    );
    one.outbound.end(&mut one.link.producer).unwrap();
    assert_eq!(other.take(), [8]);
    assert!(!other.outbound.is_open());
}

#[test]
fn a_device_of_lcs_starts_again_if_the_gateway_begins() {
    let mut both = sides(LCS, &lcs(false, MAC), &lcs(true, MAC));
    begin(&mut both);
    let own = [&[0, 20, 0, 0, 7, 1, 0, 0, 0, 0][..], &[0; 12]].concat();
    both[1].send_raw(&own, 0);
    assert_eq!(both[0].take(), [7]);
    assert!(!both[0].outbound.is_open());
    begin(&mut both);
    assert!(both.iter().all(|side| side.outbound.is_open()));
}

#[test]
fn lcs_refuses_a_foreign_address_other_ports_and_commands_out_of_order() {
    let mut both = sides(LCS, &lcs(false, MAC), &lcs(true, Mac([2, 0, 0, 0, 0, 8])));
    begin(&mut both);
    assert_eq!((both[0].outbound.is_open(), both[0].count("control_errors")), (false, 1));
    let mut both = sides(LCS, &lcs(false, MAC), &lcs(true, MAC));
    // A port that the gateway does not have, a LAN before the gateway is started, and a buffer that is too large.
    for (command, more) in [(1, [0, 0, 1, 3]), (1, [0, 0, 1, 0]), (4, [0, 0, 1, 0]), (0xb2, [0, 0, 1, 0])] {
        let body = [&[command, 0, 0, 1][..], &more, &[0; 8]].concat();
        both[1].outbound.receive(&body);
    }
    assert_eq!(both[1].count("commands_refused"), 4);
    both[1].outbound.receive(&[7, 0, 0, 1, 0, 0, 0, 0, 0x50, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(both[1].count("commands_refused"), 5);
    both[1].outbound.receive(&[7, 0]);
    assert_eq!(both[1].count("control_errors"), 1);
    // A port that the gateway does not have, although it is started.
    both[1].outbound.receive(&[7, 0, 0, 2, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(both[1].count("commands_refused"), 5);
    both[1].outbound.receive(&[[1, 0, 0, 3, 0, 0, 1, 3], [0; 8]].concat());
    assert_eq!(both[1].count("commands_refused"), 6);
}
