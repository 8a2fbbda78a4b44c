//! Operations that call the stack, as the stack's owner or an application would.

use super::*;

impl World {
    /// Makes one call on a connection, as an application would.
    pub(super) fn call(&mut self, input: &mut Input<'_>) {
        let (kind, at) = (input.u8(), input.index(self.apps.len()));
        let Some(id) = self.apps.get(at).map(|app| app.id) else { return };
        let setting = match kind % 14 {
            0 => {
                let _ = self.stack.tcp_shutdown(self.now, id);
                return;
            }
            1 | 2 => {
                let app = self.apps.swap_remove(at);
                let closed = self.stack.tcp_close(self.now, app.id);
                assert_eq!(closed, Ok(()));
                return;
            }
            3 => {
                let app = self.apps.swap_remove(at);
                assert_eq!(self.stack.tcp_abort(self.now, app.id), Ok(()));
                return;
            }
            4 => TcpSetting::NoDelay(input.u8() & 1 != 0),
            5 => TcpSetting::SendBuffer(input.size()),
            6 => TcpSetting::ReceiveBuffer(input.size()),
            7 => TcpSetting::Congestion(input.pick(&CongestionControl::ALL)),
            8 => TcpSetting::Keepalive(options(u16::from(input.u8()) << 7).config.keepalive),
            9 => TcpSetting::UserTimeout(Some(Duration::from_millis(u64::from(input.u16())))),
            10 => TcpSetting::Linger(Some(Duration::from_millis(u64::from(input.u16())))),
            11 => {
                let app = &mut self.apps[at];
                let bytes = contents(app.written, input.size());
                let taken = self.stack.tcp_send_urgent(self.now, id, &bytes).unwrap_or(0);
                app.written = app.written.wrapping_add(u32::try_from(taken).unwrap());
                return;
            }
            12 => TcpSetting::HopLimit(input.u8()),
            _ => TcpSetting::Service(input.u8()),
        };
        let _ = self.stack.tcp_set(self.now, id, setting);
    }

    pub(super) fn connect(&mut self, input: &mut Input<'_>) {
        let (device, v6) = (input.index(3), input.u8() & 1 != 0);
        let host = input.pick(&[9, 9, 9, 77, 1, 255]);
        let port = input.pick(&[2_000, 2_001, 80, 0]);
        let from = input.pick(&[0, 0, 80, 1_000]);
        let options = options(input.u16());
        if self.apps.len() < APPS_MAX {
            let remote = SocketAddr::new(address(device, v6, host), port);
            if let Ok(id) = self.stack.tcp_connect(self.now, any(v6, from), remote, &options) {
                self.drain();
                self.adopt(id);
            }
        }
    }

    /// Makes one call that concerns no single connection, as the stack's owner or an application would.
    pub(super) fn own(&mut self, input: &mut Input<'_>) {
        let (kind, device) = (input.u8(), input.index(3));
        match kind % 11 {
            8 | 9 => self.join_or_leave(input, device),
            10 => self.send_group_message(input, device),
            0 => {
                let mtu = 1_280 + input.u16() % (MTU[device] - 1_279);
                assert_eq!(self.stack.set_mtu(self.now, id(device), mtu), Ok(()));
            }
            1 => self.stack.carrier_up(self.now, id(device)),
            2 => {
                let prefix = Prefix::new(address(device, false, 0), 24).unwrap();
                let _ = self.stack.add_route(prefix, id(input.index(3)), Some(address(1, false, 9)));
            }
            3 => {
                self.stack.remove_route(Prefix::new(address(device, input.u8() & 1 != 0, 0), 24).unwrap());
            }
            4 => {
                for listener in std::mem::take(&mut self.listeners) {
                    assert_eq!(self.stack.tcp_unlisten(self.now, listener), Ok(()));
                }
                self.listen();
            }
            5 => {
                let to = SocketAddr::new(address(device, false, input.pick(&[9, 1, 77, 255])), 6);
                let len = input.size();
                if let Some(socket) = self.sockets.first() {
                    let _ = self.stack.udp_send(self.now, *socket, Some(to), &contents(0, len));
                }
            }
            6 => {
                let socket = self.stack.udp_bind(any(false, 0)).unwrap();
                let _ = self.stack.udp_connect(socket, SocketAddr::new(address(device, false, 9), 5));
                let _ = self.stack.udp_send(self.now, socket, None, &[1]);
                self.sockets.push(socket);
            }
            _ => {
                for socket in &self.sockets {
                    for _ in 0..9 {
                        let _ = self.stack.udp_receive(*socket);
                    }
                }
            }
        }
    }

    pub(super) fn join_or_leave(&mut self, input: &mut Input<'_>, device: usize) {
        let (which, how) = (input.index(self.sockets.len()), input.u8());
        let Some(socket) = self.sockets.get(which).copied() else { return };
        let group = group(how & 1 != 0, input.u8());
        let _ = match how >> 1 & 3 {
            0 => self.stack.udp_join(self.now, socket, group, id(device)),
            1 => self.stack.udp_leave(self.now, socket, group, id(device)),
            2 => self.stack.udp_send(self.now, socket, Some(SocketAddr::new(group, 6)), &[1; 9]),
            _ => self.stack.udp_set_group_loop(socket, how & 8 != 0),
        };
    }
}
