//! What an application can ask about a connection: its statistics, its options and its unread bytes.

use crate::sockets::settings::PacketClass;
use crate::sockets::socket::header_bytes;
use crate::sockets::{TcpError, TcpId, TcpOptions};
use crate::stack::Stack;
use crate::tcp::{ArrivedBytes, BbrInfo, Info, LinuxInfo, SendTime, Storage, StreamPosition};
use crate::time::Instant;

impl<S: Storage> Stack<S> {
    /// Returns statistics of a connection, such as its RTT. Returns `None` if the connection is not established.
    pub fn tcp_info(&self, id: TcpId) -> Result<Option<Info>, TcpError> {
        Ok(self.socket(id)?.connection.info())
    }

    /// Returns where a connection stands in the streams of its two directions. Returns `None` if it is not open in both directions.
    pub fn tcp_stream_position(&self, id: TcpId) -> Result<Option<StreamPosition>, TcpError> {
        Ok(self.socket(id)?.connection.stream_position())
    }

    /// Returns the statistics of a connection in the fields and units of Linux's `TCP_INFO`.
    pub fn tcp_linux_info(&self, now: Instant, id: TcpId) -> Result<LinuxInfo, TcpError> {
        let socket = self.socket(id)?;
        Ok(socket.connection.linux_info(now, header_bytes(socket.flow.remote_ip())))
    }

    /// Returns the state of a connection's BBR in the fields and units of Linux's `TCP_CC_INFO`, or `None` if the connection has another
    /// congestion control.
    pub fn tcp_bbr_info(&self, id: TcpId) -> Result<Option<BbrInfo>, TcpError> {
        Ok(self.socket(id)?.connection.bbr_info())
    }

    /// Returns the options that a connection uses now. Fast Open has no option of an open connection, so its options have
    /// their defaults.
    pub fn tcp_options(&self, id: TcpId) -> Result<TcpOptions, TcpError> {
        let socket = self.socket(id)?;
        let PacketClass { hop_limit, service } = socket.class;
        let (config, linger, report_errors) =
            (*socket.connection.config(), socket.linger.as_deref().copied(), socket.report_errors);
        Ok(TcpOptions { config, hop_limit, service, linger, report_errors, ..TcpOptions::default() })
    }

    /// Returns the oldest time of a write that the application has not taken. An event reports new times.
    pub fn tcp_take_send_time(&mut self, id: TcpId) -> Result<Option<SendTime>, TcpError> {
        Ok(self.socket_mut(id)?.connection.take_send_time())
    }

    /// Returns whether [`Stack::tcp_take_send_time`] returns a time.
    pub fn tcp_has_send_times(&self, id: TcpId) -> Result<bool, TcpError> {
        Ok(self.socket(id)?.connection.has_send_times())
    }

    /// Returns when the last of the next `bytes` received bytes arrived. See [`Connection::arrival_time`](crate::tcp::Connection).
    pub fn tcp_arrival_time(&self, id: TcpId, bytes: usize) -> Result<Option<Instant>, TcpError> {
        let connection = &self.socket(id)?.connection;
        Ok(connection.arrival_time(bytes.min(connection.received())))
    }

    /// Splits received bytes by the times at which they arrived. See [`Connection::arrivals`](crate::tcp::Connection::arrivals).
    pub fn tcp_arrivals(&self, id: TcpId, skip: usize, most: usize) -> Result<Option<Vec<ArrivedBytes>>, TcpError> {
        Ok(self.socket(id)?.connection.arrivals(skip, most))
    }

    /// Returns the number of bytes that [`Stack::tcp_receive`] can return now (`TCP_INQ`). As in Linux, returns 1 if no byte but
    /// the end of the stream can be received.
    pub fn tcp_unread(&self, id: TcpId) -> Result<usize, TcpError> {
        let connection = &self.socket(id)?.connection;
        Ok(connection.received().max(usize::from(connection.finished())))
    }
}
