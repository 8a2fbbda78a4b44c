//! A link: one's own memory, the peer's, and a doorbell each way.

use crate::consumer::Consumer;
use crate::doorbell::{NotifyFd, WakeFd};
use crate::layout::CONSUMER_WORDS_BYTES;
use crate::memory::{OwnMemory, PeerMemory};
use crate::producer::Producer;
use std::sync::Arc;

/// One end of a link. Producer and consumer may be used by different threads; both ring by the same doorbell, and the ear
/// hears the peer's both.
#[derive(Debug)]
pub struct Link {
    /// Sends over the outgoing ring.
    pub producer: Producer,
    /// Receives over the incoming ring.
    pub consumer: Consumer,
    /// Hears that frames or room are there, or that the peer is gone.
    pub wake_fd: WakeFd,
}

impl Link {
    /// Puts an end together from memory that neither end has used yet, with the doorbell to the peer and the ear for its.
    pub fn new(own: OwnMemory, peer: PeerMemory, notify_fd: NotifyFd, wake_fd: WakeFd) -> Self {
        let (outbound, inbound) = (own.shape, peer.shape);
        let (words, rest) = own.region.split(CONSUMER_WORDS_BYTES);
        let notify_fd = Arc::new(notify_fd);
        let producer = Producer::new(rest, peer.view.clone(), Arc::clone(&notify_fd), outbound);
        let consumer = Consumer::new(words, peer.view, notify_fd, inbound);
        Self { producer, consumer, wake_fd }
    }
}
