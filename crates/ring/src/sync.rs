//! Selects what producers and consumers run on: mapped memory, pipes and the processor's fences, or Loom's model of all three.

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
