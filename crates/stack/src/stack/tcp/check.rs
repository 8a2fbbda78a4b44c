//! Invariants across all sockets, for tests and fuzzers.

use crate::sockets::FlowTarget;
use crate::sockets::socket::Owner;
use crate::stack::Stack;
use crate::tcp::Storage;
use crate::time::Instant;

impl<S: Storage> Stack<S> {
    /// Checks all connections for consistency: all tables of TCP sockets must agree with each other. Panics if they do not.
    pub fn check(&self) {
        let tcp = &self.tcp;
        let (mut held, mut attached) = (0, 0);
        for slot in tcp.sockets.indices() {
            self.check_socket(slot);
            let Some(socket) = tcp.sockets.get(slot) else { continue };
            held += socket.held;
            attached += usize::from(!socket.detached);
        }
        let opens_fast = |slot| tcp.sockets.get(slot).is_some_and(|socket| socket.connection.opens_fast());
        assert!(tcp.fast_open.pending.keys().all(|slot| opens_fast(*slot)), "a complete handshake is not pending");
        assert_eq!(held, tcp.buffers.held, "bytes of buffers");
        assert_eq!(attached + tcp.waits.slab.len(), tcp.flows.len(), "flows");
        for slot in tcp.listeners.indices() {
            let Some(listener) = tcp.listeners.get(slot) else { continue };
            let owners = || tcp.sockets.indices().filter_map(|slot| tcp.sockets.get(slot)).map(|socket| socket.owner);
            let owned = |owner| owners().filter(|other| *other == owner).count();
            assert_eq!(owned(Owner::Opening(slot)), listener.opening, "connections that open");
            assert_eq!(owned(Owner::Waiting(slot)), listener.waiting.len(), "connections that wait");
            assert!(listener.opening <= listener.backlog && listener.waiting.len() <= listener.backlog, "backlog");
            let generation = tcp.listeners.generation(slot);
            let pending = tcp.fast_open.pending.values().filter(|id| (id.slot, id.generation) == (slot, generation));
            assert_eq!(pending.count(), listener.fast_open.pending, "connections that open fast");
            assert!(listener.waiting.iter().all(|slot| tcp.sockets.get(*slot).is_some()), "what waits is there");
        }
    }

    fn check_socket(&self, slot: u32) {
        let tcp = &self.tcp;
        let Some(socket) = tcp.sockets.get(slot) else { return };
        socket.connection.check();
        let held = socket.connection.buffer_bytes();
        assert!(socket.queued || socket.held == held, "{:?} holds {held} bytes, not {}", socket.flow, socket.held);
        if !socket.detached {
            assert_eq!(tcp.look_up(&socket.flow), Some(FlowTarget::Connection(slot)), "{:?}", socket.flow);
        }
        if socket.queued {
            let listed = tcp.pending.iter().chain([&tcp.own_pending]).any(|list| list.contains(&slot));
            assert!(listed, "{:?} has something to send and is in no list", socket.flow);
        } else if !socket.detached {
            let wanted = Some(socket.connection.deadline().min(socket.linger_until)).filter(|at| *at != Instant::NEVER);
            let set = tcp.wheel.deadline(slot);
            // If the deadline has passed, the wheel reports it at once.
            let latest = |at: Instant| at.max(tcp.wheel.time()).as_ns().saturating_add(1 << 21);
            let late = wanted.is_some_and(|at| set.is_none_or(|set| set.as_ns() > latest(at)));
            assert!(!late, "{:?} wants {wanted:?}, its deadline is {set:?}", socket.flow);
        }
    }
}
