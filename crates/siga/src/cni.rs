//! `siga cni`: the plug-in by which container runtimes join containers to a virtual network (Container Network Interface).

use crate::print;
use siga_fabric::cni;
use siga_model::error::Result;
use std::process::ExitCode;

pub(crate) const HELP: &str = "\
Examples:
  siga cni <net.json       with CNI_COMMAND=ADD in the environment: add a container
  siga cni <net.json       with CNI_COMMAND=DEL in the environment: remove the container

Both examples also need CNI_CONTAINERID, CNI_NETNS and CNI_IFNAME in the environment. The file
net.json contains the configuration.

To install the plug-in, copy siga to /opt/cni/bin/siga. Start the virtual network with siga net up.
This is an example of a configuration file, such as /etc/cni/net.d/50-siga.conflist:
  { \"cniVersion\": \"1.0.0\", \"name\": \"siga\",
    \"plugins\": [{ \"type\": \"siga\", \"network\": \"switch\", \"lan\": \"lan\" }] }

Keys of the configuration:
  network         name of the virtual network that `siga net up` started
  lan             name of a network in the topology of the virtual network; it must have a switch
  port            name of a port of the switch (default: any free port)
  runDirectory    directory of the files of virtual networks (default: see `siga net --help`)

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
