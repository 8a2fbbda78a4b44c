//! `siga cni`: the plug-in by which container runtimes join containers to a virtual network (Container Network Interface).

use crate::print;
use siga_fabric::cni;
use siga_model::error::Result;
use std::process::ExitCode;

pub(crate) const HELP: &str = "\
Examples:
  siga cni <net.json       with CNI_COMMAND=ADD, CNI_CONTAINERID, CNI_NETNS and CNI_IFNAME set: add a container
  siga cni <net.json       with CNI_COMMAND=DEL, CNI_CONTAINERID, CNI_NETNS and CNI_IFNAME set: delete it again

To install the plug-in, copy siga to /opt/cni/bin/siga. The network must be up (siga net up). A configuration, for example in /etc/cni/net.d/50-siga.conflist:
  { \"cniVersion\": \"1.0.0\", \"name\": \"siga\",
    \"plugins\": [{ \"type\": \"siga\", \"network\": \"switch\", \"lan\": \"lan\" }] }

Keys: `network` names the network of `siga net up`, `lan` a switched network of its topology, `port` one port of it (default: any free
one), `runDirectory` the directory of networks (default: as for siga net).

If CNI_COMMAND is set, siga without arguments does the same as `siga cni`.";

/// Returns true if a container runtime has executed this program as a plug-in.
pub(crate) fn is_called() -> bool {
    std::env::args_os().len() == 1 && std::env::var_os(cni::COMMAND_VARIABLE).is_some()
}

/// Carries out the operation of the environment. An error is printed in the form of the specification.
pub(crate) fn run() -> Result<ExitCode> {
    let (text, succeeded) = cni::run(|name| std::env::var_os(name), std::io::stdin().lock());
    print(&text)?;
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
