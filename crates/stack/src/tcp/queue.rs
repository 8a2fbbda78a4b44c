//! A queue that stores its first entry inline. A request-response connection has one segment in flight, so its queue needs no
//! separate allocation, which might not be in the CPU cache.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The first entry. `None` only if the queue is empty.
    first: Option<T>,
    /// The other entries. The box keeps a connection that never has more than one entry small (decision 025).
    #[expect(clippy::box_collection, reason = "a connection with one entry needs 24 bytes less")]
    rest: Option<Box<VecDeque<T>>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { first: None, rest: None }
    }
}

/// Number of entries for which memory is allocated when the second entry is added. This is enough for the segments of a response
/// of some kilobytes.
const REST_MIN: usize = 8;

impl<T: Copy> Queue<T> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.rest.as_ref().map_or(0, |rest| size_of::<VecDeque<T>>() + rest.capacity() * size_of::<T>())
    }

    /// Frees the memory of all entries but the first, if the queue is empty.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.first.is_none() {
            self.rest = None;
        }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// Returns the only entry. Returns `None` if the queue has no entry or several.
    #[inline]
    pub(super) fn only(&self) -> Option<&T> {
        self.first.as_ref().filter(|_| self.rest.as_ref().is_none_or(|rest| rest.is_empty()))
    }

    pub(super) fn back(&self) -> Option<&T> {
        self.rest.as_ref().and_then(|rest| rest.back()).or(self.first.as_ref())
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        match at.checked_sub(1) {
            None => self.first.as_ref(),
            Some(at) => self.rest.as_ref()?.get(at),
        }
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match at.checked_sub(1) {
            None => self.first.as_mut(),
            Some(at) => self.rest.as_mut()?.get_mut(at),
        }
    }

    #[inline]
    pub(super) fn push_back(&mut self, entry: T) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.rest_mut().push_back(entry);
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        if self.rest.is_none() { self.first.take() } else { self.pop_rest() }
    }

    #[inline(never)]
    fn pop_rest(&mut self) -> Option<T> {
        std::mem::replace(&mut self.first, self.rest.as_mut().and_then(|rest| rest.pop_front()))
    }

    fn rest_mut(&mut self) -> &mut VecDeque<T> {
        self.rest.get_or_insert_with(|| Box::new(VecDeque::with_capacity(REST_MIN)))
    }

    /// Inserts an entry after the one at index `at`, which must exist.
    pub(super) fn insert_behind(&mut self, at: usize, entry: T) {
        self.rest_mut().insert(at, entry);
    }

    /// Removes the entry after the one at index `at`, if there is one.
    pub(super) fn remove_behind(&mut self, at: usize) {
        if let Some(rest) = &mut self.rest {
            rest.remove(at);
        }
    }

    /// Returns the index of the first entry for which `is_before` is false, like [`VecDeque::partition_point`].
    pub(super) fn partition_point(&self, mut is_before: impl FnMut(&T) -> bool) -> usize {
        match &self.first {
            Some(first) if is_before(first) => 1 + self.rest.as_ref().map_or(0, |rest| rest.partition_point(is_before)),
            Some(_) | None => 0,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }

    pub(super) fn iter_from(&self, at: usize) -> impl Iterator<Item = &T> {
        let first = if at == 0 { self.first.as_ref() } else { None };
        first.into_iter().chain(self.rest.iter().flat_map(move |rest| rest.range(at.saturating_sub(1)..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    #[test]
    fn the_queue_agrees_with_a_vec_deque_over_random_calls() {
        let mut random = Seed::simulated(3).random(Purpose::UdpPorts);
        let (mut queue, mut model) = (Queue::default(), VecDeque::new());
        let mut last = 0;
        for _ in 0..20_000 {
            let at = usize::try_from(random.below(8)).unwrap();
            match random.below(4) {
                0 => {
                    last += 10;
                    queue.push_back(last);
                    model.push_back(last);
                }
                1 => assert_eq!(queue.pop_front(), model.pop_front()),
                2 if at < model.len() => {
                    let between = model[at] + 1;
                    if model.get(at + 1).is_none_or(|next| *next > between) {
                        queue.insert_behind(at, between);
                        model.insert(at + 1, between);
                        last = last.max(between);
                    }
                }
                _ => {
                    if let Some(entry) = queue.get_mut(at) {
                        assert_eq!(model.get(at), Some(&*entry));
                    }
                    let from = at.min(model.len());
                    assert!(queue.iter_from(from).eq(model.range(from..)));
                    let bound = at * 10 + model.front().copied().unwrap_or(0);
                    assert_eq!(
                        queue.partition_point(|entry| *entry < bound),
                        model.partition_point(|entry| *entry < bound)
                    );
                }
            }
            assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            assert_eq!((queue.front(), queue.back(), queue.get(at)), (model.front(), model.back(), model.get(at)));
            assert!(queue.iter().eq(&model));
        }
    }

    #[test]
    fn a_queue_of_one_entry_allocates_nothing() {
        let mut queue = Queue::default();
        for entry in 0..100_u64 {
            queue.push_back(entry);
            assert_eq!((queue.bytes(), queue.pop_front()), (0, Some(entry)));
        }
        queue.push_back(1);
        queue.push_back(2);
        let bytes = size_of::<VecDeque<u64>>() + REST_MIN * 8;
        assert_eq!(queue.bytes(), bytes);
        queue.release();
        assert_eq!((queue.bytes(), queue.pop_front(), queue.pop_front()), (bytes, Some(1), Some(2)));
        queue.release();
        assert_eq!(queue.bytes(), 0);
    }
}
