//! Dialogues with a stack: frames in, frames out, one file a topic.
#![expect(clippy::unwrap_used, reason = "a test says what it wants by failing")]

mod application_buffers;
mod attack;
mod bounds;
mod capture;
mod echo;
mod errors;
mod forwarding;
mod fragment_floods;
mod fragments;
mod group_sockets;
mod groups;
mod held_back;
mod hostile;
mod icmp_attacks;
mod large;
mod net;
mod off_path;
mod packet_attacks;
mod path_mtu;
mod ping;
mod redirects;
mod resolution;
mod rfc9293;
mod scale;
mod secrets;
mod segment_forms;
mod senders;
mod sockets;
mod statistics;
mod tcp;
mod tcp_attacks;
mod tcp_links;
mod tcp_memory;
mod time_wait;
mod world;
