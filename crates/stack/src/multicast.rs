//! Multicast groups: which groups each link has members of, and the messages of IGMP and MLD that announce them.

pub(crate) mod group;
mod messages;
