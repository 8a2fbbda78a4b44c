//! Selects the memory, pipes and fences that producers and consumers use: the real ones, or Loom's models of them.

#[cfg(not(loom))]
pub(crate) use crate::{
    doorbell::NotifyFd,
    map::{Region, View},
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{Ordering, fence};

#[cfg(loom)]
pub(crate) use crate::model::{NotifyFd, Region, View};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};
