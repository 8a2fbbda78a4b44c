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

const UDPLITE: &str = "the stack has no UDP-Lite";
const ANCILLARY: &str = "recvmsg does not report the hop limit and the traffic class of a datagram";
const PASSED_ON: &str = "a socket of the guest cannot be passed to another process by SCM_RIGHTS";
const NAME: &str = "the name of the host is no name of the network, so the test is skipped";
const LISTENER: &str =
    "the size of a listener's receive buffer, set after listen, does not reach the connections that it accepts";
const INHERITED: &str = "the test counts the descriptors of a program, which inherits two more";

pub(super) const EXCEPTIONS: &[Exception] = &[
    exception("test.test_socket.BasicUDPLITETest.*", UDPLITE),
    exception("test.test_socket.UDPLITETimeoutTest.*", UDPLITE),
    exception("test.test_socket.SendmsgUDPLITETest.*", UDPLITE),
    exception("test.test_socket.SendmsgUDPLITE6Test.*", UDPLITE),
    exception("test.test_socket.RecvmsgUDPLITETest.*", UDPLITE),
    exception("test.test_socket.RecvmsgUDPLITE6Test.*", UDPLITE),
    exception("test.test_socket.RecvmsgIntoUDPLITETest.*", UDPLITE),
    exception("test.test_socket.RecvmsgIntoUDPLITE6Test.*", UDPLITE),
    exception("test.test_socket.RecvmsgRFC3542AncillaryUDPLITE6Test.*", UDPLITE),
    exception("test.test_socket.RecvmsgIntoRFC3542AncillaryUDPLITE6Test.*", UDPLITE),
    exception("test.test_socket.RecvmsgRFC3542AncillaryUDP6Test.*", ANCILLARY),
    exception("test.test_socket.GeneralModuleTests.testHostnameRes", NAME),
    exception("test.test_socket.GeneralModuleTests.testSockName", NAME),
    exception("test.test_socket.RecvmsgIntoRFC3542AncillaryUDP6Test.*", ANCILLARY),
    exception("test.test_subprocess.POSIXProcessTestCase.test_pass_fds_redirected", INHERITED),
    exception("test.test_multiprocessing_fork.WithProcessesTestPicklingConnections.test_pickling", PASSED_ON),
    exception(
        "test.test_asyncio.test_sendfile.EPollEventLoopTests.test_sendfile_close_peer_in_the_middle_of_receiving",
        LISTENER,
    ),
    exception(
        "test.test_asyncio.test_sendfile.PollEventLoopTests.test_sendfile_close_peer_in_the_middle_of_receiving",
        LISTENER,
    ),
    exception(
        "test.test_asyncio.test_sendfile.SelectEventLoopTests.test_sendfile_close_peer_in_the_middle_of_receiving",
        LISTENER,
    ),
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
