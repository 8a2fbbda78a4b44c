//! The IP layer: routes, forwarding, reassembly, segmentation, ICMP, path MTUs and redirects.

pub(crate) mod addresses;
pub mod echo;
pub mod forward;
pub mod icmp;
pub(crate) mod output;
pub(crate) mod path_mtu;
pub(crate) mod reassembly;
pub(crate) mod redirect;
pub(crate) mod resolve;
pub mod route;
pub mod segmentation;
pub(crate) mod sent;
