//! Statistics of connections in Linux's fields (`TCP_INFO`). The numbers of segments and bytes are those of Linux 6.18, which was asked
//! after the same exchange over its loopback device.

use crate::net::{Net, PLAIN};
use siga_stack::sockets::TcpId;
use siga_stack::tcp::LinuxInfo;
use siga_stack::time::Duration;

const RTT: Duration = Duration::from_millis(2);

fn info(net: &Net, place: usize, id: TcpId) -> LinuxInfo {
    net.stacks[place].tcp_linux_info(net.now, id).unwrap()
}

/// Segments sent and received, with and without payload; bytes acknowledged, received, sent; segments delivered.
fn counts(info: &LinuxInfo) -> [u64; 8] {
    let LinuxInfo { segs_out, segs_in, data_segs_in, data_segs_out, delivered, .. } = *info;
    let [out, into, data_in, data_out, delivered] =
        [segs_out, segs_in, data_segs_in, data_segs_out, delivered].map(u64::from);
    [out, into, data_in, data_out, info.bytes_acked, info.bytes_received, info.bytes_sent, delivered]
}

#[test]
fn a_stack_counts_segments_and_bytes_of_an_exchange_as_linux_does() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let (here, there) = net.open(false, 80, listener);
    assert_eq!(counts(&info(&net, 0, here)), [2, 1, 0, 0, 1, 0, 0, 1]);
    assert_eq!(counts(&info(&net, 1, there)), [0, 2, 0, 0, 0, 0, 0, 1]);
    let now = net.now;
    net.first().tcp_send(now, here, &[1; 1_000]).unwrap();
    net.pass(Duration::from_millis(100));
    let now = net.now;
    assert_eq!(net.last().tcp_receive(now, there, &mut [0; 2_000]), Ok(Some(1_000)));
    net.last().tcp_send(now, there, &[2; 300]).unwrap();
    net.pass(Duration::from_millis(100));
    assert_eq!(net.stacks[0].tcp_unread(here), Ok(300));
    assert_eq!(counts(&info(&net, 0, here)), [4, 3, 1, 1, 1_001, 300, 1_000, 2]);
    assert_eq!(counts(&info(&net, 1, there)), [2, 4, 1, 1, 300, 1_000, 300, 2]);
    let LinuxInfo { state, options, snd_mss, advmss, pmtu, reordering, ato, unacked, notsent_bytes, .. } =
        info(&net, 0, here);
    assert_eq!((state, options, snd_mss, advmss, pmtu), (1, 7, 1_448, 1_448, 1_500));
    assert_eq!((reordering, ato, unacked, notsent_bytes), (3, 40_000, 0, 0));
}

#[test]
fn the_states_of_a_connection_have_the_numbers_of_linux() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let here = net.connect(false, 80);
    assert_eq!(info(&net, 0, here).state, 2);
    net.cross();
    let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
    let now = net.now;
    net.first().tcp_shutdown(now, here).unwrap();
    assert_eq!(info(&net, 0, here).state, 4);
    net.cross();
    assert_eq!((info(&net, 0, here).state, info(&net, 1, there).state), (5, 8));
    assert_eq!(net.last().tcp_unread(there), Ok(1), "the end of the stream counts as one, as in Linux");
    net.last().tcp_shutdown(now, there).unwrap();
    assert_eq!(info(&net, 1, there).state, 9);
    net.cross();
    assert_eq!((info(&net, 0, here).state, info(&net, 1, there).state), (6, 7));
}

#[test]
fn the_time_in_which_the_peers_window_holds_data_back_is_measured() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let (here, there) = net.open(false, 80, listener);
    net.pass(Duration::from_secs(5));
    assert_eq!(info(&net, 0, here).busy_time, 0, "an idle connection is not busy");
    let now = net.now;
    while net.first().tcp_send(now, here, &[0; 65_536]).unwrap() == 65_536 {
        net.cross();
    }
    net.pass(Duration::from_millis(300));
    let full = info(&net, 0, here);
    assert_eq!((full.snd_wnd, full.busy_time, full.rwnd_limited, full.sndbuf_limited), (0, 300_000, 300_000, 0));
    assert!(full.notsent_bytes > 0);
    let mut into = vec![0; 100_000];
    while info(&net, 0, here).notsent_bytes > 0 {
        let now = net.now;
        net.last().tcp_receive(now, there, &mut into).unwrap();
        net.pass(RTT);
    }
    let drained = info(&net, 0, here);
    net.pass(Duration::from_secs(9));
    let idle = info(&net, 0, here);
    assert_eq!((idle.busy_time, idle.rwnd_limited), (drained.busy_time, drained.rwnd_limited));
    assert_eq!(idle.bytes_sent, idle.bytes_acked - 1);
}

#[test]
fn the_time_in_which_the_send_buffer_limits_the_sender_is_measured() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let (here, _) = net.open(false, 80, listener);
    let now = net.now;
    net.first().tcp_set(now, here, siga_stack::sockets::TcpSetting::SendBuffer(2_000)).unwrap();
    net.lost = Box::new(|from, _| from == 1);
    assert_eq!(net.first().tcp_send(now, here, &[0; 9_000]), Ok(2_000));
    net.pass(Duration::from_millis(50));
    let full = info(&net, 0, here);
    assert_eq!((full.notsent_bytes, full.unacked), (0, 2));
    assert_eq!((full.busy_time, full.sndbuf_limited, full.rwnd_limited), (50_000, 50_000, 0));
}

#[test]
fn lost_and_repeated_segments_are_counted() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let (here, _) = net.open(false, 80, listener);
    let mut count = 0;
    // The first of ten segments is lost.
    net.lost = Box::new(move |from, _| {
        count += u32::from(from == 0);
        from == 0 && count == 1
    });
    let now = net.now;
    net.first().tcp_send(now, here, &[0; 14_480]).unwrap();
    net.pass(Duration::from_secs(2));
    let sender = info(&net, 0, here);
    assert_eq!((sender.total_retrans, sender.bytes_retrans, sender.bytes_sent), (1, 1_448, 14_480 + 1_448));
    assert_eq!((sender.delivered, sender.data_segs_out, sender.bytes_acked), (11, 11, 14_481));
}
