//! Multicast groups: the groups that each link has members of, and the IGMP and MLD messages that announce them.

pub(crate) mod group;
mod messages;
