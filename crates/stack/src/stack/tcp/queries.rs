//! What an application can ask about a connection: its statistics, its options and its unread bytes.

use crate::sockets::settings::PacketClass;
use crate::sockets::socket::header_bytes;
use crate::sockets::{TcpError, TcpId, TcpOptions};
use crate::stack::Stack;
use crate::tcp::{Info, LinuxInfo, Storage};
use crate::time::Instant;

impl<S: Storage> Stack<S> {
    /// Returns statistics of a connection, such as its RTT. Returns `None` if the connection is not established.
    pub fn tcp_info(&self, id: TcpId) -> Result<Option<Info>, TcpError> {
        Ok(self.socket(id)?.connection.info())
    }

    /// Returns the statistics of a connection in the fields and units of Linux's `TCP_INFO`.
    pub fn tcp_linux_info(&self, now: Instant, id: TcpId) -> Result<LinuxInfo, TcpError> {
        let socket = self.socket(id)?;
        Ok(socket.connection.linux_info(now, header_bytes(socket.flow.remote_ip())))
    }

    /// Returns the options that a connection uses now. Fast Open has no option of an open connection, so its options have
    /// their defaults.
    pub fn tcp_options(&self, id: TcpId) -> Result<TcpOptions, TcpError> {
        let socket = self.socket(id)?;
        let PacketClass { hop_limit, service } = socket.class;
        let (config, linger, report_errors) = (*socket.connection.config(), socket.linger, socket.report_errors);
        Ok(TcpOptions { config, hop_limit, service, linger, report_errors, ..TcpOptions::default() })
    }

    /// Returns the number of bytes that [`Stack::tcp_receive`] can return now (`TCP_INQ`). As in Linux, returns 1 if no byte but
    /// the end of the stream can be received.
    pub fn tcp_unread(&self, id: TcpId) -> Result<usize, TcpError> {
        let connection = &self.socket(id)?.connection;
        Ok(connection.received().max(usize::from(connection.finished())))
    }
}
