//! The settings of TCP in topologies: checks them, and applies them to the stack of a guest.

use crate::convert;
use siga_model::error::{Error, Result};
use siga_model::topology::{TcpSettings, TcpTo, Topology};
use siga_stack::Stack;
use siga_stack::limits::TCP_ROUTE_SETTINGS_MAX;
use siga_stack::sockets::{RouteSettings, TcpDefaults};
use siga_stack::tcp::Storage;

/// Checks the settings of TCP of all guests. The stack decides which names and values it accepts.
///
/// # Errors
/// Returns an error that names the guest, the route and the setting.
pub fn check(topology: &Topology) -> Result<()> {
    for (name, guest) in &topology.guests {
        let at = |error: Error| error.at(format!("guest {name}"));
        let mut defaults = TcpDefaults::default();
        set_all(&guest.tcp, |name, value| defaults.set_named(name, value)).map_err(at)?;
        // All settings are valid, but values of two of them may contradict each other.
        defaults.config.check().map_err(|error| at(Error::usage(format!("tcp: {error:?}"))))?;
        if guest.tcp_to.len() > TCP_ROUTE_SETTINGS_MAX {
            let message = format!(
                "the guest has too many routes with TCP settings: {}, but at most {TCP_ROUTE_SETTINGS_MAX} are allowed",
                guest.tcp_to.len()
            );
            return Err(at(Error::usage(message)));
        }
        for of in &guest.tcp_to {
            route_settings(of).map_err(at)?;
        }
    }
    Ok(())
}

/// Applies the settings of a guest to its stack.
///
/// # Errors
/// Returns an error that names a setting that the stack refuses.
pub(crate) fn apply<S: Storage>(stack: &mut Stack<S>, tcp: &TcpSettings, tcp_to: &[TcpTo]) -> Result<()> {
    set_all(tcp, |name, value| stack.set_tcp_default(name, value))?;
    for of in tcp_to {
        let refused =
            |error| Error::usage(format!("the stack refuses the TCP settings of the route to {}: {error:?}", of.to));
        stack.set_route_settings(convert::prefix(of.to), route_settings(of)?).map_err(refused)?;
    }
    Ok(())
}

fn route_settings(of: &TcpTo) -> Result<RouteSettings> {
    let mut settings = RouteSettings::default();
    let set = |name: &str, value: &str| settings.set_named(name, value);
    set_all(&of.settings, set).map_err(|error| error.at(format!("route to {}", of.to)))?;
    Ok(settings)
}

fn set_all<E: std::fmt::Display>(
    settings: &TcpSettings,
    mut set: impl FnMut(&str, &str) -> std::result::Result<(), E>,
) -> Result<()> {
    let refused = |error: E| Error::usage(error.to_string()).at("tcp");
    settings.iter().try_for_each(|(name, value)| set(name, value)).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_stack::stack::StackConfig;

    fn topology(guest: &str, route: &str) -> Topology {
        let text = format!(
            "[network.lan]\ntype = \"hipersockets\"\n[guest.a]\ntcp = {{ {guest} }}\n\
             device = [{{ network = \"lan\", addresses = [\"10.0.0.1/24\"] }}]\n\
             route = [{{ to = \"10.0.0.0/24\", tcp = {{ {route} }} }}, {{ to = \"10.1.0.0/16\", via = \"10.0.0.2\" }}]\n"
        );
        Topology::parse(&text).unwrap()
    }

    #[test]
    fn settings_that_the_stack_refuses_are_reported_with_their_place() {
        assert!(check(&topology("tcp_sack = true", "initcwnd = 2")).is_ok());
        for (guest, route, message) in [
            ("tcp_sac = 1", "initcwnd = 2", "guest a: tcp: \"tcp_sac\" is not a setting; the settings are: "),
            ("tcp_sack = 2", "initcwnd = 2", "guest a: tcp: tcp_sack: 2 is out of range; write 0 to 1"),
            ("tcp_rmem = [1, 2]", "initcwnd = 2", "guest a: tcp: tcp_rmem: 1 is not supported"),
            (
                "tcp_wmem = [4096, 9000, 8000]",
                "initcwnd = 2",
                "guest a: tcp: tcp_wmem: the default size 9000 is larger than",
            ),
            ("tcp_sack = 1", "mtu = 9", "guest a: route to 10.0.0.0/24: tcp: \"mtu\" is not a setting"),
            ("tcp_sack = 1", "tcp_sack = 2", "guest a: route to 10.0.0.0/24: tcp: tcp_sack: 2 is out of range"),
            ("tcp_sack = 1", "initcwnd = 0", "guest a: route to 10.0.0.0/24: tcp: initcwnd: 0 is out of range"),
        ] {
            let error = check(&topology(guest, route)).unwrap_err();
            assert!(error.message().starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_stack_has_the_settings_of_its_guest() {
        let topology = topology("tcp_keepalive_intvl = 5, tcp_ecn = 0", "initcwnd = 2");
        let guest = &topology.guests[&"a".parse().unwrap()];
        let mut stack: Stack = Stack::new(StackConfig::default());
        apply(&mut stack, &guest.tcp, &guest.tcp_to).unwrap();
        let value = |name| stack.tcp_defaults().named(name).unwrap();
        assert_eq!((value("tcp_keepalive_intvl"), value("tcp_ecn")), ("5".to_owned(), "0".to_owned()));
    }
}
