//! Data that an application holds back: `TCP_CORK`, `MSG_MORE`, `TCP_NOTSENT_LOWAT`; and segments that it limits: `TCP_MAXSEG`.

use crate::net::{Net, PLAIN, any};
use siga_stack::sockets::{TcpEvent, TcpId, TcpOptions, TcpSetting};
use siga_stack::tcp::{Config, WriteFlags};
use siga_stack::time::Duration;

const MORE: WriteFlags = WriteFlags { more_follows: true, ends_record: false };

fn open(net: &mut Net) -> (TcpId, TcpId) {
    let listener = net.listen(false, 80, 1);
    net.open(false, 80, listener)
}

fn received(net: &mut Net, id: TcpId) -> usize {
    let now = net.now;
    net.cross();
    net.last().tcp_receive(now, id, &mut [0; 70_000]).unwrap().unwrap_or(0)
}

#[test]
fn a_corked_sender_sends_full_segments_only_until_the_cork_is_removed() {
    let mut net = Net::new(&[PLAIN]);
    let (here, there) = open(&mut net);
    let now = net.now;
    net.first().tcp_set(now, here, TcpSetting::NoDelay(true)).unwrap();
    net.first().tcp_set(now, here, TcpSetting::Cork(true)).unwrap();
    net.first().tcp_send(now, here, &[0; 100]).unwrap();
    assert_eq!(received(&mut net, there), 0);
    net.first().tcp_send(now, here, &[0; 1_448]).unwrap();
    assert_eq!(received(&mut net, there), 1_448);
    net.first().tcp_set(now, here, TcpSetting::Cork(false)).unwrap();
    assert_eq!(received(&mut net, there), 100);
}

/// Linux sends held data after 200 ms at the earliest, with the timer of its window probes.
#[test]
fn a_sender_holds_data_back_for_one_retransmission_timeout_at_most() {
    let mut net = Net::new(&[PLAIN]);
    let (here, there) = open(&mut net);
    let now = net.now;
    net.first().tcp_set(now, here, TcpSetting::Cork(true)).unwrap();
    net.first().tcp_send(now, here, &[0; 100]).unwrap();
    net.pass(Duration::from_millis(199));
    assert_eq!(received(&mut net, there), 0);
    net.pass(Duration::from_millis(2));
    assert_eq!(received(&mut net, there), 100);
}

#[test]
fn a_write_that_announces_more_is_sent_with_the_next_write() {
    let mut net = Net::new(&[PLAIN]);
    let (here, there) = open(&mut net);
    let now = net.now;
    net.first().tcp_send_flagged(now, here, &[0; 100], MORE).unwrap();
    assert_eq!(received(&mut net, there), 0);
    net.first().tcp_send(now, here, &[0; 100]).unwrap();
    assert_eq!(received(&mut net, there), 200);
    // A close sends what is held back.
    net.first().tcp_send_flagged(now, here, &[0; 50], MORE).unwrap();
    net.first().tcp_shutdown(now, here).unwrap();
    assert_eq!(received(&mut net, there), 50);
}

#[test]
fn a_connection_with_a_limit_of_unsent_bytes_is_writable_when_half_of_them_are_sent() {
    let mut net = Net::new(&[PLAIN]);
    let (here, there) = open(&mut net);
    let now = net.now;
    net.first().tcp_set(now, here, TcpSetting::UnsentMax(4_000)).unwrap();
    // More than the peer's window, so that the limit is reached. A large segment is accepted at once, as in Linux.
    let mut written = 0;
    loop {
        net.cross();
        let taken = net.first().tcp_send(now, here, &[0; 3_999]).unwrap();
        written += taken;
        if taken < 3_999 {
            break;
        }
    }
    assert!(net.stacks[0].tcp_linux_info(now, here).unwrap().notsent_bytes >= 4_000, "{written}");
    while net.first().tcp_poll_event().is_some() {}
    assert_eq!(net.first().tcp_send(now, here, &[0]), Ok(0));
    let mut writable_at = None;
    let mut into = vec![0; 1_000];
    while writable_at.is_none() {
        let now = net.now;
        net.last().tcp_receive(now, there, &mut into).unwrap();
        net.pass(Duration::from_millis(1));
        let unsent = net.stacks[0].tcp_linux_info(net.now, here).unwrap().notsent_bytes;
        let readiness = net.stacks[0].tcp_readiness(here).unwrap();
        assert_eq!(readiness.writable, unsent < 2_000, "{unsent}");
        if net.first().tcp_poll_event() == Some(TcpEvent::Connection(here)) {
            writable_at = Some(unsent);
        }
        assert_eq!(writable_at.is_some(), readiness.writable, "the event comes with the change");
    }
}

#[test]
fn an_application_limits_the_segments_of_both_directions() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let options = TcpOptions { config: Config { mss_max: 500, ..Config::LINUX }, ..TcpOptions::default() };
    let (now, to) = (net.now, net.far(false, 80));
    let here = net.first().tcp_connect(now, any(false), to, &options).unwrap();
    net.cross();
    let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
    for (place, id) in [(0, here), (1, there)] {
        assert_eq!(net.stacks[place].tcp_linux_info(now, id).unwrap().snd_mss, 488);
    }
    for (mss_max, valid) in [(87, false), (88, true)] {
        let options = TcpOptions { config: Config { mss_max, ..Config::LINUX }, ..options };
        assert_eq!(net.first().tcp_connect(now, any(false), to, &options).is_ok(), valid, "as in Linux");
    }
}

#[test]
fn a_write_that_exactly_fills_the_send_buffer_is_followed_by_an_event_once_there_is_room() {
    // A buffer with a small maximum, and one that begins with 64 KB.
    for (most, bytes) in [(3_000, 3_000), (4 << 20, 64 << 10)] {
        let mut net = Net::new(&[PLAIN]);
        let (here, _) = open(&mut net);
        let now = net.now;
        net.first().tcp_set(now, here, TcpSetting::SendBuffer(most)).unwrap();
        while net.first().tcp_poll_event().is_some() {}
        assert_eq!(net.first().tcp_send(now, here, &vec![0; bytes]), Ok(bytes));
        assert!(!net.stacks[0].tcp_readiness(here).unwrap().writable, "{most}");
        assert_eq!(net.first().tcp_poll_event(), None);
        net.cross();
        assert!(net.stacks[0].tcp_readiness(here).unwrap().writable, "{most}");
        assert_eq!(net.first().tcp_poll_event(), Some(TcpEvent::Connection(here)), "{most}");
    }
}
