//! A ring of io_uring(7) with safe functions for sockets: multishot accept and receive, connect, send, shutdown and close.
//!
//! Each function queues a request, and [`Ring::enter`] gives the queued requests to the kernel. A completion has the kind of its
//! request and the number (*slot*) that the caller chose. The kernel writes received bytes into buffers of the ring. The caller
//! returns each buffer with [`Ring::recycle`].
//!
//! The kernel may use the memory of a request until the request is complete. So the memory is never freed: if the ring is dropped,
//! its buffers and the bytes and addresses of requests are leaked. A process of siga makes one ring and uses it until it ends.

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrArg;
use std::alloc::{Layout, alloc_zeroed};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Maximum number of requests that one system call gives to the kernel.
const REQUESTS: u32 = 512;
/// Number of completions that fit into the ring. The kernel keeps further completions in a list.
const COMPLETIONS: u32 = 8_192;

/// Number of receive buffers (a power of two), and the length of each in bytes. They are few and short, so that they stay in the
/// CPU's cache.
const BUFFERS: u16 = 128;
const BUFFER_BYTES: u32 = 16_384;
/// Alignment of the table of buffers.
const PAGE_BYTES: usize = 4_096;
/// Number of the group of buffers. There is only one.
const GROUP: u16 = 0;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Report when an event counter (eventfd) can be read. The request stays in force.
    Watch,
    /// Accept connections. The request stays in force.
    Accept,
    /// Connect.
    Connect,
    /// Receive bytes. The request stays in force.
    Receive,
    /// Send bytes.
    Send,
    /// Shut down both directions of a connection.
    Shutdown,
    /// Close a descriptor.
    Close,
}

impl Request {
    const ALL: [Self; 7] =
        [Self::Watch, Self::Accept, Self::Connect, Self::Receive, Self::Send, Self::Shutdown, Self::Close];
}

/// What a completion brings.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The request has succeeded. For `Send`, all bytes were sent. For `Receive`, the peer has ended its stream.
    Done,
    /// A new connection.
    Accepted(OwnedFd),
    /// Bytes have arrived in this buffer.
    Received(u16),
    /// The request has failed.
    Failed(io::Error),
}

/// The completion of a request.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) slot: usize,
    pub(crate) request: Request,
    pub(crate) outcome: Outcome,
    /// True if the request stays in force and can have further completions.
    pub(crate) more: bool,
}

/// Memory that the kernel reads until a request of this slot is complete.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    is_sending: bool,
    address: Option<Box<SocketAddrAny>>,
}

/// A ring with its buffers. The kernel refuses calls of other threads than the one that made it.
pub(crate) struct Ring {
    uring: IoUring,
    /// Requests for the next call of `enter`. The flag says that the next request begins when this one is complete.
    waiting: VecDeque<(squeue::Entry, bool)>,
    /// The table in which the kernel finds the free buffers, and the memory of all buffers.
    table: NonNull<types::BufRingEntry>,
    memory: NonNull<u8>,
    /// Number of buffers that were ever put into the table, modulo 65,536: the table's tail.
    tail: u16,
    /// For each buffer, the number of bytes that the caller may read, or `None` if the kernel may write into it.
    filled: Vec<Option<usize>>,
    kept: ManuallyDrop<Vec<Kept>>,
}

// SAFETY: the pointers are those of memory that only this value and the kernel use. No operation depends on the thread, except that
// the kernel refuses the system calls of other threads.
unsafe impl Send for Ring {}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("descriptor", &self.uring.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Ring {
    /// Makes a ring with its buffers.
    ///
    /// # Errors
    /// Returns an error if the kernel has no io_uring, or forbids it, or is older than Linux 6.1.
    pub(crate) fn new() -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(REQUESTS)?;
        let count = usize::from(BUFFERS);
        let table = allocate(count * size_of::<types::BufRingEntry>())?.cast();
        let memory = allocate(count * BUFFER_BYTES as usize)?;
        // SAFETY: the table is aligned to a page, has an entry for each buffer, is zeroed, and is never freed.
        unsafe { uring.submitter().register_buf_ring_with_flags(table.as_ptr() as u64, BUFFERS, GROUP, 0) }?;
        let mut ring = Self {
            uring,
            waiting: VecDeque::new(),
            table,
            memory,
            tail: 0,
            filled: vec![Some(0); count],
            kept: ManuallyDrop::new(Vec::new()),
        };
        (0..BUFFERS).for_each(|buffer| ring.recycle(buffer));
        Ok(ring)
    }

    /// Asks to report when the event counter can be read.
    pub(crate) fn watch(&mut self, event: BorrowedFd<'_>, slot: usize) {
        let events = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(types::Fd(event.as_raw_fd()), events).multi(true).build();
        self.queue(entry, false, Request::Watch, slot);
    }

    /// Accepts all further connections of a listener.
    pub(crate) fn accept(&mut self, listener: BorrowedFd<'_>, slot: usize) {
        let entry = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC).build();
        self.queue(entry, false, Request::Accept, slot);
    }

    /// Connects a socket. A slot has at most one such request at a time.
    pub(crate) fn connect(&mut self, socket: BorrowedFd<'_>, slot: usize, to: &SocketAddr) {
        let address = Box::new(to.as_any());
        let entry = opcode::Connect::new(types::Fd(socket.as_raw_fd()), address.as_ptr().cast(), address.addr_len());
        let entry = entry.build();
        self.kept(slot).address = Some(address);
        self.queue(entry, false, Request::Connect, slot);
    }

    /// Receives all further bytes of a connection.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, slot: usize) {
        let entry = opcode::RecvMulti::new(types::Fd(socket.as_raw_fd()), GROUP).build();
        self.queue(entry, false, Request::Receive, slot);
    }

    /// Sends all of `bytes`. A slot has at most one such request at a time. If `is_linked` is true, the next request begins
    /// when this one is complete.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, slot: usize, bytes: &[u8], is_linked: bool) {
        let kept = self.kept(slot);
        assert!(!kept.is_sending, "the kernel still reads the bytes of slot {slot}");
        kept.bytes.clear();
        kept.bytes.extend_from_slice(bytes);
        kept.is_sending = true;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), kept.bytes.as_ptr(), length);
        let entry = entry.flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build();
        self.queue(entry, is_linked, Request::Send, slot);
    }

    /// Shuts down both directions of a connection, and then begins the next request.
    pub(crate) fn shutdown(&mut self, socket: BorrowedFd<'_>, slot: usize) {
        let entry = opcode::Shutdown::new(types::Fd(socket.as_raw_fd()), libc::SHUT_RDWR).build();
        self.queue(entry, true, Request::Shutdown, slot);
    }

    /// Closes a socket. The caller keeps the descriptor until the completion, and closes it itself if the request has failed.
    pub(crate) fn close(&mut self, socket: BorrowedFd<'_>, slot: usize) {
        let entry = opcode::Close::new(types::Fd(socket.as_raw_fd())).build();
        self.queue(entry, false, Request::Close, slot);
    }

    /// Returns whether a buffer is free, so that the kernel can receive.
    pub(crate) fn has_free_buffer(&self) -> bool {
        self.filled.iter().any(Option::is_none)
    }

    /// Returns the bytes that the kernel has written into a buffer. Empty if the buffer belongs to the kernel.
    pub(crate) fn bytes(&self, buffer: u16) -> &[u8] {
        let length = self.filled.get(usize::from(buffer)).copied().flatten().unwrap_or(0);
        // SAFETY: `filled` has a length only for a buffer in this memory that the kernel has filled up to this length. The kernel
        // does not write into the buffer before `recycle`, which needs a unique reference. The memory is never freed.
        unsafe { std::slice::from_raw_parts(self.at(buffer), length) }
    }

    /// Gives a buffer back to the kernel. Does nothing if the buffer belongs to the kernel already.
    pub(crate) fn recycle(&mut self, buffer: u16) {
        let Some(filled) = self.filled.get_mut(usize::from(buffer)) else { return };
        if filled.take().is_none() {
            return;
        }
        let address = self.at(buffer) as u64;
        // SAFETY: the table has `BUFFERS` entries. The kernel reads an entry only when the tail has passed it, and at most
        // `BUFFERS` entries lie between its position and the tail, because each buffer is in the table at most once.
        let entry = unsafe { self.table.add(usize::from(self.tail % BUFFERS)) };
        // SAFETY: as above, and the kernel never writes into an entry.
        let entry = unsafe { &mut *entry.as_ptr() };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the pointer is that of the first entry of the table, whose reserved field is the table's tail.
        let tail = unsafe { types::BufRingEntry::tail(self.table.as_ptr()) }.cast_mut();
        // SAFETY: the tail is in the table, which is never freed, and all accesses to it are atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Gives the queued requests to the kernel. If `wait` is set, waits for a completion, at most for this time (`None` inside:
    /// without a limit). A signal ends the wait.
    ///
    /// # Errors
    /// Returns the error of io_uring_enter(2).
    pub(crate) fn enter(&mut self, wait: Option<Option<Duration>>) -> io::Result<()> {
        while self.push_waiting() {
            again(self.uring.submit())?;
        }
        let mut submission = self.uring.submission();
        submission.sync();
        let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
        drop(submission);
        let outcome = match wait {
            None if idle => return Ok(()),
            None => self.uring.submit(),
            Some(None) => self.uring.submit_and_wait(1),
            Some(Some(time)) => {
                let time = types::Timespec::from(time);
                self.uring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
        };
        again(outcome)
    }

    /// Returns the next completion.
    pub(crate) fn completion(&mut self) -> Option<Completion> {
        let entry = self.uring.completion().next()?;
        let (data, flags) = (entry.user_data(), entry.flags());
        let request = Request::ALL[usize::try_from(data % 8).unwrap_or(0).min(Request::ALL.len() - 1)];
        let slot = usize::try_from(data / 8).unwrap_or(usize::MAX);
        if let Some(kept) = self.kept.get_mut(slot) {
            match request {
                Request::Send => kept.is_sending = false,
                Request::Connect => kept.address = None,
                Request::Watch | Request::Accept | Request::Receive | Request::Shutdown | Request::Close => {}
            }
        }
        let outcome = match (u32::try_from(entry.result()), request, cqueue::buffer_select(flags)) {
            (Err(_), ..) => Outcome::Failed(io::Error::from_raw_os_error(-entry.result())),
            (Ok(descriptor), Request::Accept, _) => {
                // SAFETY: the kernel has just made this descriptor for this request, so nothing else owns it.
                Outcome::Accepted(unsafe { OwnedFd::from_raw_fd(descriptor.cast_signed()) })
            }
            (Ok(length), Request::Receive, Some(buffer)) => {
                let length = length.min(BUFFER_BYTES) as usize;
                if let Some(filled) = self.filled.get_mut(usize::from(buffer)) {
                    *filled = Some(length);
                }
                Outcome::Received(buffer)
            }
            (Ok(_), ..) => Outcome::Done,
        };
        Some(Completion { slot, request, outcome, more: cqueue::more(flags) })
    }

    fn at(&self, buffer: u16) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(usize::from(buffer) * BUFFER_BYTES as usize)
    }

    fn kept(&mut self, slot: usize) -> &mut Kept {
        if self.kept.len() <= slot {
            self.kept.resize_with(slot + 1, Kept::default);
        }
        &mut self.kept[slot]
    }

    fn queue(&mut self, entry: squeue::Entry, is_linked: bool, request: Request, slot: usize) {
        let kind = request as u64;
        let entry = entry.user_data(slot as u64 * 8 + kind);
        // A hard link: the next request begins even if this one fails.
        let entry = if is_linked { entry.flags(squeue::Flags::IO_HARDLINK) } else { entry };
        self.waiting.push_back((entry, is_linked));
    }

    /// Moves requests into the submission queue. Returns true if more remain than fit. A chain of linked requests stays together,
    /// because the kernel ends a chain at the end of a submission.
    fn push_waiting(&mut self) -> bool {
        let mut submission = self.uring.submission();
        while let Some(last) = self.waiting.iter().position(|(_, is_linked)| !is_linked) {
            if submission.capacity() - submission.len() <= last {
                return true;
            }
            for (entry, _) in self.waiting.drain(..=last) {
                // SAFETY: the bytes and the address that the request points to are in `kept`, where they stay unchanged until the
                // completion, and the buffers are never freed.
                let pushed = unsafe { submission.push(&entry) };
                debug_assert!(pushed.is_ok(), "the queue has no space for a chain that fits");
            }
        }
        false
    }
}

/// Returns the outcome of a submission. A signal, or a time limit that is over, is not an error.
fn again(outcome: io::Result<usize>) -> io::Result<()> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Allocates zeroed memory at the beginning of a page. It is never freed.
fn allocate(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(io::Error::other)?;
    // SAFETY: the layout has a size above 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
