//! Memory of TCP buffers: the limit of all connections together, and reuse.

use crate::net::{Link, Net, PLAIN, content};
use siga_stack::drops::TcpDrop;
use siga_stack::limits::TCP_SOCKET_BYTES_FREE;
use siga_stack::sockets::TcpId;
use siga_stack::stack::StackConfig;
use siga_stack::time::Duration;

#[test]
fn tcp_buffers_stay_within_the_common_limit_and_every_connection_progresses() {
    let config = StackConfig { tcp_buffers_bytes_max: 200_000, ..StackConfig::default() };
    let mut net = Net::with(&[PLAIN], &[config; 2]);
    let listener = net.listen(false, 80, 100);
    let pairs: Vec<(TcpId, TcpId)> = (0..50).map(|_| net.open(false, 80, listener)).collect();
    let bytes = content(60_000);
    let mut sent = vec![0; pairs.len()];
    let mut arrived = vec![Vec::new(); pairs.len()];
    let (mut into, end) = (vec![0; 3_000], net.now + Duration::from_secs(300));
    while arrived.iter().any(|arrived| arrived.len() < bytes.len()) && net.now < end {
        let now = net.now;
        for (at, (here, there)) in pairs.iter().enumerate() {
            sent[at] += net.first().tcp_send(now, *here, &bytes[sent[at]..]).unwrap();
            if let Some(count) = net.last().tcp_receive(now, *there, &mut into).unwrap() {
                arrived[at].extend_from_slice(&into[..count]);
            }
        }
        for stack in &net.stacks {
            assert!(stack.memory().held("bytes in TCP buffers") < 200_000 + 50 * 8_192 + 65_536);
        }
        net.pass(Duration::from_millis(5));
    }
    assert!(arrived.iter().all(|arrived| *arrived == bytes));
    assert!(net.stacks[1].drops().get(TcpDrop::Memory) > 0, "the bound was met: {:?}", net.dropped());
    for stack in &net.stacks {
        let memory = stack.memory();
        assert!(memory.bytes_held() < memory.bytes_most());
        assert!(memory.to_string().lines().count() > 10);
    }
}

#[test]
fn a_connection_without_common_memory_receives_its_free_allowance_and_no_more() {
    let scarce = StackConfig { tcp_buffers_bytes_max: 1, ..StackConfig::default() };
    for (bytes, received) in [(TCP_SOCKET_BYTES_FREE, TCP_SOCKET_BYTES_FREE), (TCP_SOCKET_BYTES_FREE + 1, 1)] {
        let mut net = Net::with(&[Link { mtu: 9_000, ..PLAIN }], &[StackConfig::default(), scarce]);
        let listener = net.listen(false, 80, 1);
        let (here, there) = net.open(false, 80, listener);
        let now = net.now;
        // The first byte finds memory, the others none.
        for part in [1, bytes - 1] {
            assert_eq!(net.first().tcp_send(now, here, &content(part)), Ok(part));
            net.pass(Duration::from_millis(100));
        }
        assert_eq!(net.last().tcp_progress(there).unwrap().received, received);
        assert_eq!(net.stacks[1].drops().get(TcpDrop::Memory) > 0, received < bytes);
    }
}

#[test]
fn an_empty_grown_buffer_is_kept_while_memory_use_is_below_three_quarters() {
    for (tcp_buffers_bytes_max, kept) in [(1 << 30, 131_072), (180_000, 131_072), (160_000, 0)] {
        let config = StackConfig { tcp_buffers_bytes_max, ..StackConfig::default() };
        let mut net = Net::with(&[PLAIN], &[StackConfig::default(), config]);
        let listener = net.listen(false, 80, 10);
        let (here, there) = net.open(false, 80, listener);
        let (bytes, mut sent) = (content(100_000), 0);
        while sent < bytes.len() {
            let now = net.now;
            sent += net.first().tcp_send(now, here, &bytes[sent..]).unwrap();
            net.pass(Duration::from_millis(1));
        }
        let (now, mut into) = (net.now, vec![0; bytes.len()]);
        assert_eq!(net.last().tcp_receive(now, there, &mut into), Ok(Some(bytes.len())));
        assert_eq!(net.stacks[1].memory().held("bytes in TCP buffers"), 131_072);
        // The receiver announces that there is room again.
        assert!(net.cross());
        assert_eq!(net.stacks[1].memory().held("bytes in TCP buffers"), kept, "{tcp_buffers_bytes_max}");
    }
}

#[test]
fn memory_of_emptied_buffers_is_reused() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 10);
    let (here, there) = net.open(false, 80, listener);
    assert_eq!(net.stream((0, here), (1, there), &content(1_000)).len(), 1_000);
    assert_eq!(net.stacks[0].memory().held("bytes in TCP buffers"), 0, "all is acknowledged");
    let spare = |net: &Net| net.stacks[1].memory().held("bytes in spare TCP buffers");
    let (now, before) = (net.now, spare(&net));
    assert_eq!(net.last().tcp_send(now, there, b"answer"), Ok(6));
    assert!(before > 0 && spare(&net) == 0, "{before}");
}

#[test]
fn a_failed_send_holds_no_memory() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 10);
    let (here, there) = net.open(false, 80, listener);
    assert_eq!(net.stream((0, here), (1, there), &content(1_000)).len(), 1_000);
    let now = net.now;
    net.last().tcp_abort(now, there).unwrap();
    net.cross();
    assert!(net.first().tcp_send(now, here, b"late").is_err());
    net.first().check();
    assert_eq!(net.first().memory().held("bytes in TCP buffers"), 0);
}
