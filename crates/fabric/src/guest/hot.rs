//! Hot links: the links whose rings a guest polls. A link is hot while it has traffic. For all other links, the guest has requested
//! notifications.
//!
//! During a sleep, no link is hot, so each partner notifies the guest of its next frame. After a sleep, the links that were hot before
//! are hot again. Otherwise, a router would poll only the ring whose partner has woken it. The answer to the packet that the router
//! forwards then comes over another ring, and the partner would have to wake the router again.

use super::peer_link::{Links, Receiver};
use crate::limits::HOT_AFTER_SLEEP_MAX;
use siga_ring::clock::Ticks;

impl Links {
    /// Makes a link hot, so that its ring is polled.
    pub(super) fn heat(&mut self, link: usize) {
        let receiver = &mut self.receivers[link];
        if let Some(ring) = receiver.ring.as_mut().filter(|_| !receiver.is_hot) {
            ring.awake();
            receiver.is_hot = true;
            self.hot.push(link);
        }
    }

    /// If a ring has had no frame for the time `after`, requests a notification for the next frame. Returns true if the ring need
    /// not be polled any more.
    #[inline]
    pub(super) fn falls_asleep(&mut self, link: usize, now: Ticks, after: Ticks) -> bool {
        let receiver = &mut self.receivers[link];
        let cold = now.since(receiver.last_traffic) >= after;
        // An error is a violation of the ring's protocol. Ignore it here, because the next use of the ring returns it again.
        cold && receiver.ring.as_mut().is_none_or(|ring| ring.declare_asleep().unwrap_or(false))
    }

    /// Requests notifications for the next frames of all hot links, which are cold afterwards. Returns false if a link has frames. The
    /// caller then calls [`Links::awake`].
    pub(super) fn fall_asleep(&mut self) -> bool {
        self.cooled.clear();
        let Self { receivers, senders, hot, cooled, .. } = self;
        let mut is_quiet = true;
        // A link under back-pressure requests no notification from its own partner, because the guest will not receive from it yet.
        // The guest waits for the partner without an empty buffer, which sends a notification when it has one. A guest whose card has no
        // room waits for the card's wire, and the switch knows when that is free.
        hot.retain(|link| {
            let Receiver { ring, backpressure, is_hot, waits_for_card, .. } = &mut receivers[*link];
            if !is_quiet
                || *waits_for_card
                || backpressure.waits_for().is_some_and(|(to, _)| senders[to].has_backpressure())
            {
                return true;
            }
            // An error is a violation of the protocol, which the next use of the ring reports.
            is_quiet = ring.as_mut().is_none_or(|ring| ring.declare_asleep().unwrap_or(false));
            *is_hot = !is_quiet;
            if is_quiet {
                cooled.push(*link);
            }
            !is_quiet
        });
        is_quiet
    }

    /// Makes the links hot again that [`Links::fall_asleep`] has made cold.
    pub(super) fn awake(&mut self) {
        let mut cooled = std::mem::take(&mut self.cooled);
        cooled.drain(..).take(HOT_AFTER_SLEEP_MAX).for_each(|link| self.heat(link));
        self.cooled = cooled;
    }
}
