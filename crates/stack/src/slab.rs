//! A slab stores values at fixed indices and finds them in constant time. The id of a socket consists of an index and a
//! generation. A slot gets a new generation when its value is removed, so an old id finds nothing.

use crate::prefetch::prefetch;

/// Number of values in a chunk. The slab grows by one chunk at a time, so no value ever moves.
const CHUNK: usize = 64;

/// Returns the memory that a value and its slot use, in bytes.
pub(crate) const fn bytes_each<T>() -> usize {
    size_of::<Slot<T>>() + size_of::<u32>()
}

#[derive(Debug)]
#[repr(C)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Inserts a value. Returns its index and generation.
    pub(crate) fn insert(&mut self, value: T) -> (u32, u32) {
        self.len += 1;
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slot_mut(index)
        {
            slot.value = Some(value);
            return (index, slot.generation);
        }
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK);
        if full {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let index = self.chunks.last_mut().map_or(0, |chunk| {
            chunk.push(Slot { generation: 0, value: Some(value) });
            before + chunk.len() - 1
        });
        (u32::try_from(index).unwrap_or(u32::MAX), 0)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slot_mut(index)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        self.len -= 1;
        Some(value)
    }

    /// Drops the value at an index in place, without moving it first.
    pub(crate) fn discard(&mut self, index: u32) {
        if let Some(slot) = self.slot_mut(index)
            && slot.value.is_some()
        {
            slot.value = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(index);
            self.len -= 1;
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.value.as_mut()
    }

    #[inline]
    pub(crate) fn get_with_generation(&mut self, index: u32) -> Option<(&mut T, u32)> {
        let slot = self.slot_mut(index)?;
        let generation = slot.generation;
        slot.value.as_mut().map(|value| (value, generation))
    }

    /// Returns the value at an index if its slot still has the given generation.
    #[inline]
    pub(crate) fn named(&self, index: u32, generation: u32) -> Option<&T> {
        self.slot(index).filter(|slot| slot.generation == generation)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn named_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        self.slot_mut(index).filter(|slot| slot.generation == generation)?.value.as_mut()
    }

    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.slot(index).map_or(0, |slot| slot.generation)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().filter_map(|slot| slot.value.as_ref())
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        let places = self.chunks.iter().flatten().zip(0..);
        places.filter(|(slot, _)| slot.value.is_some()).map(|(_, index)| index)
    }

    /// Begins to load a slot into the CPU cache.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(slot) = self.slot(index) {
            prefetch(slot);
        }
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        let index = index as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_socket_slot_has_another_generation() {
        let mut slab = Slab::default();
        let names: Vec<(u32, u32)> = (0..200).map(|n| slab.insert(n)).collect();
        assert_eq!((slab.len(), slab.get(130)), (200, Some(&130)));
        assert_eq!((slab.remove(130), slab.remove(130), slab.get(130)), (Some(130), None, None));
        let (index, generation) = slab.insert(7);
        assert_eq!((index, slab.named(index, generation), slab.named(130, names[130].1)), (130, Some(&7), None));
        assert_eq!((slab.indices().count(), slab.remove(9999)), (200, None));
        slab.prefetch(9999);
        slab.discard(index);
        slab.discard(index);
        assert_eq!((slab.len(), slab.named(index, generation)), (199, None));
        assert_eq!(slab.insert(8), (130, generation + 1));
    }
}
