//! The accounts of Guest LANs (`accounting = true`): what each station has exchanged with the switch, from the records of the switch. An
//! account outlives the guest, the namespace, the switch and the control program, and ends with the network.

use super::Control;
use crate::protocol::message::AccountRecord;
use crate::protocol::report::Traffic;
use siga_model::name::Name;

impl Control {
    /// Returns true if a network keeps accounts.
    pub(super) fn keeps_accounts(&self, network: &Name) -> bool {
        let switch = self.topology.networks.get(network).and_then(|network| network.switch.as_ref());
        switch.is_some_and(|switch| switch.accounting)
    }

    /// Adds the records of a switch to the accounts. Returns false if the process is no switch that keeps accounts, or has no such port.
    pub(super) fn account(&mut self, network: &Name, records: &[AccountRecord]) -> bool {
        if !self.keeps_accounts(network) {
            return false;
        }
        for AccountRecord { port, traffic } in records {
            if !self.topology.port(network, port).is_ok_and(|known| known.label() == *port) {
                return false;
            }
            let accounts = self.state.accounts.entry(network.clone()).or_default();
            let account = accounts.entry(port.clone()).or_default();
            *account = account.with(*traffic, u64::saturating_add);
            let Traffic { frames_sent, bytes_sent, frames_received, bytes_received } = traffic;
            let line = format!(
                "network {network}: account of {port}: sent {frames_sent} frames with {bytes_sent} bytes, \
                 received {frames_received} frames with {bytes_received} bytes"
            );
            self.log.of_guest(network, &line);
        }
        true
    }

    /// Returns the account of a station, or `None` if the network keeps no accounts.
    pub(super) fn account_of(&self, network: &Name, port: &str) -> Option<Traffic> {
        let account = self.state.accounts.get(network).and_then(|accounts| accounts.get(port));
        self.keeps_accounts(network).then(|| account.copied().unwrap_or_default())
    }
}
