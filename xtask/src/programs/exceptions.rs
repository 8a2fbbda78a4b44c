//! Tests that pass on the kernel's sockets and may fail on those of a guest, each with the reason.

/// A test that may fail on a guest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exception {
    /// The test, or with `*` at its end all tests whose names begin with this text.
    pub(super) test: &'static str,
    /// Why it may fail.
    pub(super) why: &'static str,
}

/// The greatest number of exceptions.
#[cfg(test)]
const EXCEPTIONS_MAX: usize = 25;

const BOUND: &str = "a socket that is bound, and neither listens nor is connected, cannot be passed by SCM_RIGHTS";
const SPURIOUS: &str = "poll reports a connection as writable more often than a write succeeds";
const SOURCES: &str = "a socket cannot choose the sources of a group";
const REUSED: &str = "only one socket receives what arrives at an address that several sockets share";
const LATE: &str = "the reset of the peer arrives after the send buffer is full";
const ERRORS: &str = "an unconnected datagram socket has no queue of errors (IP_RECVERR)";
const FULL: &str = "accept needs a free descriptor before it looks for a connection";
const LINK_LOCAL: &str = "the list of interfaces has no link-local addresses, so the test is skipped";
const MANY: &str = "fewer datagram sockets can share an address";
const URGENT: &str = "a program cannot receive urgent data";
const NAME: &str = "the name of the host is no name of the network, so the test is skipped";
const INHERITED: &str = "the test counts the descriptors of a program, which inherits two more";

pub(super) const EXCEPTIONS: &[Exception] = &[
    exception("test.test_socket.GeneralModuleTests.testHostnameRes", NAME),
    exception("test.test_socket.GeneralModuleTests.testSockName", NAME),
    exception("test.test_subprocess.POSIXProcessTestCase.test_pass_fds_redirected", INHERITED),
    exception("libuv.emfile", FULL),
    exception("libuv.ipc_listen_after_write", BOUND),
    exception("libuv.ipc_listen_before_write", BOUND),
    exception("libuv.ipc_send_recv_tcp", BOUND),
    exception("libuv.ipc_send_recv_tcp_inprocess", BOUND),
    exception("libuv.poll_duplex", SPURIOUS),
    exception("libuv.poll_unidirectional", SPURIOUS),
    exception("libuv.poll_oob", URGENT),
    exception("libuv.tcp_connect6_link_local", LINK_LOCAL),
    exception("libuv.tcp_reuseport", REUSED),
    exception("libuv.tcp_try_write_error", LATE),
    exception("libuv.udp_multicast_join", SOURCES),
    exception("libuv.udp_multicast_join6", SOURCES),
    exception("libuv.udp_recvmsg_unreachable_error", ERRORS),
    exception("libuv.udp_recvmsg_unreachable_error6", ERRORS),
    exception("libuv.udp_reuseport", REUSED),
    exception("libuv.watcher_cross_stop", MANY),
];

const fn exception(test: &'static str, why: &'static str) -> Exception {
    Exception { test, why }
}

impl Exception {
    /// Returns whether a test is one of those that this exception names.
    pub(super) fn covers(&self, test: &str) -> bool {
        self.test.strip_suffix('*').map_or(self.test == test, |beginning| test.starts_with(beginning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_few_exceptions_and_each_has_a_reason() {
        assert!(EXCEPTIONS.len() <= EXCEPTIONS_MAX, "{}", EXCEPTIONS.len());
        assert!(EXCEPTIONS.iter().all(|exception| !exception.why.is_empty()));
    }
}
