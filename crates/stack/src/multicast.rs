//! The host part of IGMP and MLD: the multicast groups that this stack joined on each device's link, and the messages about them.

pub(crate) mod group;
mod messages;
