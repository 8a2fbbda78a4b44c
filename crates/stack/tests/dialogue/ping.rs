//! Echo requests that a stack sends, and the replies to them.

use siga_stack::Stack;
use siga_stack::drops::IpDrop;
use siga_stack::ip::echo::Ping;
use siga_stack::limits::{HEADER_BYTES_MAX, PINGS_MAX};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::stack::StackConfig;
use siga_stack::time::Instant;
use siga_stack::wire::address::Prefix;

fn host(addresses: [&str; 2]) -> Stack {
    let mut stack = Stack::new(StackConfig::default());
    let lengths = [24, 64];
    let prefix = |(address, length): (&str, u8)| Prefix::new(address.parse().unwrap(), length).unwrap();
    let addresses = addresses.into_iter().zip(lengths).map(prefix).collect();
    let config = DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses, agreed: Agreed::default() };
    stack.add_device(config).unwrap();
    stack
}

fn carry(now: Instant, from: &mut Stack, to: &mut Stack) -> usize {
    let mut room = [0; 2_000];
    let mut count = 0;
    while let Some(sent) = from.poll_transmit(now, DeviceId(0), &mut room) {
        let (head, rest) = room[..sent.len].split_at(sent.len.min(HEADER_BYTES_MAX));
        to.handle_frame(now, DeviceId(0), Received::unmarked(head, rest));
        count += 1;
    }
    count
}

#[test]
fn an_echo_reply_is_reported_once_and_only_for_an_open_request() {
    let now = Instant::default();
    let mut one = host(["10.0.0.1", "fd00::1"]);
    let mut other = host(["10.0.0.2", "fd00::2"]);
    for to in ["10.0.0.2", "fd00::2"] {
        let ping = Ping { to: to.parse().unwrap(), ident: 7, seq: 1 };
        one.ping(now, ping, 56).unwrap();
        assert_eq!(one.poll_pong(), None);
        carry(now, &mut one, &mut other);
        carry(now, &mut other, &mut one);
        assert_eq!((one.poll_pong(), one.poll_pong()), (Some(ping), None));
    }
    let nowhere = Ping { to: "10.9.0.1".parse().unwrap(), ident: 7, seq: 2 };
    assert_eq!(one.ping(now, nowhere, 0), Err(IpDrop::NoRoute.into()));
    // A request to the host itself is answered without a device.
    let own = Ping { to: "10.0.0.1".parse().unwrap(), ident: 7, seq: 3 };
    one.ping(now, own, 8).unwrap();
    assert_eq!(one.poll_pong(), Some(own));
}

#[test]
fn unanswered_echo_requests_are_forgotten_beyond_a_bound() {
    let now = Instant::default();
    let mut one = host(["10.0.0.1", "fd00::1"]);
    let mut other = host(["10.0.0.2", "fd00::2"]);
    let ping = |seq| Ping { to: "10.0.0.2".parse().unwrap(), ident: 7, seq };
    for seq in 0..100 {
        one.ping(now, ping(seq), 0).unwrap();
    }
    carry(now, &mut one, &mut other);
    carry(now, &mut other, &mut one);
    let pongs: Vec<_> = std::iter::from_fn(|| one.poll_pong()).collect();
    let newest = 100 - u16::try_from(PINGS_MAX).unwrap()..100;
    assert_eq!(pongs, newest.map(ping).collect::<Vec<_>>());
}
