//! Publications that do not notify the peer.

use super::{Pair, receive, rings, send};

#[test]
fn a_quiet_publication_is_visible_and_leaves_the_notification_to_the_next_one() {
    let mut pair = Pair::of(8);
    pair.a.producer.set_packing(true);
    assert!(pair.b.consumer.declare_asleep().unwrap());
    assert!(send(&mut pair.a, &[1], 0));
    pair.a.producer.publish_quietly();
    assert_eq!(rings(&pair.b.wake_fd), 0);
    assert!(pair.b.consumer.is_ready().unwrap(), "the frame is visible");
    pair.a.producer.publish();
    assert_eq!(rings(&pair.b.wake_fd), 0, "there is nothing new");
    assert!(send(&mut pair.a, &[2], 0));
    pair.a.producer.publish();
    assert_eq!(rings(&pair.b.wake_fd), 1);
    assert_eq!((receive(&mut pair.b).unwrap().0, receive(&mut pair.b).unwrap().0), (vec![1], vec![2]));
    assert!(receive(&mut pair.b).is_none() && pair.b.consumer.declare_asleep().unwrap());
    assert!(send(&mut pair.a, &[3], 0));
    pair.a.producer.publish_quietly();
    pair.a.producer.notify();
    pair.a.producer.notify();
    assert_eq!(rings(&pair.b.wake_fd), 1, "one notification for each request");
}
