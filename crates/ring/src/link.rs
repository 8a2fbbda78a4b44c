//! A link: one end of a ring pair, with its own memory, the peer's memory, and a doorbell in each direction.

use crate::consumer::Consumer;
use crate::doorbell::{NotifyFd, WakeFd};
use crate::layout::CONSUMER_WORDS_BYTES;
use crate::memory::{OwnMemory, PeerMemory};
use crate::producer::Producer;
use std::sync::Arc;

/// One end of a link.
///
/// The producer and the consumer can be used by different threads. Both send their notifications over the same notify descriptor.
/// The wake descriptor receives the notifications of the peer's producer and consumer.
///
/// ```
/// use siga_ring::{Link, OwnMemory, PeerMemory, Shape, doorbell};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shape = Shape::new(2_048, 16).ok_or("a shape within the bounds")?;
/// // Each process makes its own memory, and sends the descriptor of this memory to the other process.
/// let ((own, fd), (other, other_fd)) = (OwnMemory::create(shape)?, OwnMemory::create(shape)?);
/// let ((notify, other_wake), (other_notify, wake)) = (doorbell::pair()?, doorbell::pair()?);
/// let mut one = Link::new(own, PeerMemory::map(other_fd, shape)?, notify, wake);
/// let mut two = Link::new(other, PeerMemory::map(fd, shape)?, other_notify, other_wake);
///
/// one.producer.reserve(5)?.ok_or("a free buffer")?.copy_from_slice(b"frame");
/// one.producer.commit(5, 7);
/// one.producer.publish();
///
/// let frame = two.consumer.next_frame()?.ok_or("a frame")?;
/// let mut bytes = [0; 5];
/// frame.copy_to(0, &mut bytes);
/// assert_eq!((&bytes, frame.tag()), (b"frame", 7));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Link {
    /// Sends over the outgoing ring.
    pub producer: Producer,
    /// Receives over the incoming ring.
    pub consumer: Consumer,
    /// Wake descriptor. It is readable when the peer has sent a notification about new frames or empty buffers. It reports a
    /// hang-up when the peer is gone.
    pub wake_fd: WakeFd,
}

impl Link {
    /// Makes a link from memory files that neither side has used yet. This side wakes the peer by `notify_fd`, and the peer wakes
    /// this side by `wake_fd`.
    pub fn new(own: OwnMemory, peer: PeerMemory, notify_fd: NotifyFd, wake_fd: WakeFd) -> Self {
        let (outbound, inbound) = (own.shape, peer.shape);
        let (words, rest) = own.region.split(CONSUMER_WORDS_BYTES);
        let notify_fd = Arc::new(notify_fd);
        let producer = Producer::new(rest, peer.view.clone(), Arc::clone(&notify_fd), outbound);
        let consumer = Consumer::new(words, peer.view, notify_fd, inbound);
        Self { producer, consumer, wake_fd }
    }
}
