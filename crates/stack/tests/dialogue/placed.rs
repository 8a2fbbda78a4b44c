//! Connections whose buffers lie with their application.

use crate::net::{Net, PLAIN, content};
use siga_stack::tcp::{Failure, Heap, StateName, Storage};
use siga_stack::tcp_sockets::TcpError;

#[test]
fn bytes_are_read_where_they_lie_and_taken() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let (here, there) = net.open(false, 80, listener);
    let (now, bytes, mut into) = (net.now, content(1_000), vec![0; 1_000]);
    assert_eq!(net.first().tcp_send(now, here, &bytes), Ok(1_000));
    net.first().tcp_outgoing(here).unwrap().read(0, &mut into);
    assert!(into == bytes);
    net.cross();
    into.fill(0);
    net.last().tcp_incoming(there).unwrap().read(0, &mut into);
    assert!(into == bytes);
    net.last().tcp_take(now, there, 400).unwrap();
    assert_eq!(net.last().tcp_progress(there).unwrap().received, 600);
    assert_eq!(net.last().tcp_receive(now, there, &mut into), Ok(Some(600)));
    assert!(into[..600] == bytes[400..]);
}

#[test]
fn bytes_are_sent_from_where_they_were_placed() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 1);
    let (here, there) = net.open(false, 80, listener);
    let (now, bytes, mut into) = (net.now, content(1_000), vec![0; 2_000]);
    let place = |memory: &mut Heap| {
        memory.grow(2_048);
        memory.write(0, &bytes);
    };
    assert_eq!(net.first().tcp_send_placed(now, here, bytes.len(), place), Ok(()));
    net.cross();
    assert_eq!(net.last().tcp_receive(now, there, &mut into), Ok(Some(1_000)));
    assert!(into[..1_000] == bytes);
    net.first().tcp_shutdown(now, here).unwrap();
    let late = net.first().tcp_send_placed(now, here, 1, |memory| panic!("nothing is to be placed in {memory:?}"));
    assert_eq!(late, Err(TcpError::ShutDown));
}

#[test]
fn connections_end_by_resets_with_the_memory_that_they_send_from_and_no_others_do() {
    let mut net = Net::new(&[PLAIN]);
    let listener = net.listen(false, 80, 3);
    let [meant, closed, other] = std::array::from_fn(|_| net.open(false, 80, listener));
    let now = net.now;
    for ((id, _), bytes) in [(meant, 5_000), (closed, 5_000), (other, 100)] {
        assert_eq!(net.first().tcp_send(now, id, &content(bytes)), Ok(bytes));
    }
    // What it still has to send lies in its application's memory.
    net.first().tcp_close(now, closed.0).unwrap();
    net.first().tcp_abort_those(now, |memory| memory.capacity() > 5_000);
    net.cross();
    for (_, there) in [meant, closed] {
        assert_eq!(net.last().tcp_progress(there).unwrap().failure, Some(Failure::Reset));
    }
    assert_eq!(net.first().tcp_state(meant.0), Err(TcpError::Closed));
    assert_eq!(net.first().tcp_state(other.0), Ok(StateName::Established));
    assert_eq!(net.last().tcp_progress(other.1).unwrap().received, 100);
}
