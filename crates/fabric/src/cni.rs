//! The Container Network Interface (CNI, versions 0.4.0, 1.0.0 and 1.1.0): a container's namespace joins a port of a network.
//!
//! A container runtime executes the plug-in with environment variables (`CNI_...`) and a configuration on standard input. The plug-in
//! keeps no files: the control program knows which container has which port. A plug-in that is killed while it adds a container leaves
//! either nothing, or a port that DEL finds by the name of the container.

use crate::client::Client;
use crate::join::{self, ReservedPort};
use crate::limits::{CNI_INPUT_BYTES_MAX, TENANT_BYTES_MAX};
use crate::rundir;
use serde::{Deserialize, Serialize};
use siga_model::error::Error;
use siga_model::limits::INTERFACE_NAME_BYTES_MAX;
use siga_model::name::Name;
use siga_model::topology::KernelPort;
use std::ffi::OsString;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The versions of the specification that this plug-in supports.
const VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];

/// The name of the environment variable with the operation.
pub const COMMAND_VARIABLE: &str = "CNI_COMMAND";

/// The error codes of the specification that this plug-in uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    IncompatibleVersion = 1,
    UnknownContainer = 3,
    Environment = 4,
    Io = 5,
    Decoding = 6,
    Configuration = 7,
    TryAgainLater = 11,
    NotAvailable = 50,
    /// The first code that the specification leaves to plug-ins.
    Check = 100,
}

/// An error in the form of the specification.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    code: Code,
    message: String,
    details: Option<String>,
}

impl Failure {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    fn of(code: Code, error: &Error) -> Self {
        Self { code, message: error.message().to_owned(), details: error.way_out().map(str::to_owned) }
    }

    fn text(&self, version: &str) -> String {
        let mut value = serde_json::json!({ "cniVersion": version, "code": self.code as u32, "msg": self.message });
        if let Some(details) = &self.details {
            value["details"] = details.clone().into();
        }
        format!("{value:#}\n")
    }
}

type Outcome<T> = Result<T, Failure>;

/// The configuration of a network, as far as this plug-in reads it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    #[serde(default)]
    cni_version: String,
    #[serde(default)]
    name: String,
    /// The network that `siga net up` started.
    network: Option<Name>,
    /// A switched network of its topology. By default, any.
    lan: Option<Name>,
    /// A port of its topology. By default, any free one.
    port: Option<Name>,
    /// The directory of networks. By default, as for `siga net`.
    run_directory: Option<PathBuf>,
    prev_result: Option<Previous>,
    #[serde(default, rename = "cni.dev/valid-attachments")]
    valid_attachments: Vec<Attachment>,
}

/// The result of an earlier ADD.
#[derive(Debug, Deserialize)]
struct Previous {
    #[serde(default)]
    ips: Vec<PreviousAddress>,
}

#[derive(Debug, Deserialize)]
struct PreviousAddress {
    address: ipnet::IpNet,
}

/// A container and the name of its interface.
#[derive(Debug, Deserialize)]
struct Attachment {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
}

/// The operation and the container, from the environment.
#[derive(Debug, Default)]
struct Call {
    command: String,
    container: String,
    namespace: PathBuf,
    interface: String,
}

/// The result of ADD.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Added {
    cni_version: String,
    interfaces: Vec<AddedInterface>,
    ips: Vec<AddedAddress>,
    routes: Vec<AddedRoute>,
    dns: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct AddedInterface {
    name: String,
    mac: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u16>,
    sandbox: String,
}

#[derive(Debug, Serialize)]
struct AddedAddress {
    /// Only of version 0.4.0: `4` or `6`.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    interface: u32,
}

#[derive(Debug, Serialize)]
struct AddedRoute {
    dst: String,
    gw: IpAddr,
}

/// Carries out the operation in the environment, with the configuration on `input`. Returns the text for standard output, and whether the
/// operation succeeded.
pub fn run(variable: impl Fn(&str) -> Option<OsString>, input: impl Read) -> (String, bool) {
    let mut bytes = Vec::new();
    let read = input.take(CNI_INPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
    let version = version_of(&bytes);
    let done = match read {
        Err(error) => Err(Failure::new(Code::Io, format!("cannot read the CNI configuration: {error}"))),
        Ok(_) if bytes.len() as u64 > CNI_INPUT_BYTES_MAX => Err(Failure::new(
            Code::Decoding,
            format!("the CNI configuration has more than {CNI_INPUT_BYTES_MAX} bytes"),
        )),
        Ok(_) => call_of(variable).and_then(|call| carry_out(&call, &bytes)),
    };
    match done {
        Ok(text) => (text, true),
        Err(failure) => (failure.text(&version), false),
    }
}

/// Returns the version for an error message: that of the configuration if this plug-in supports it.
fn version_of(bytes: &[u8]) -> String {
    let asked = serde_json::from_slice::<serde_json::Value>(bytes).ok();
    let asked = asked.and_then(|value| value.get("cniVersion")?.as_str().map(str::to_owned));
    asked.filter(|asked| VERSIONS.contains(&asked.as_str())).unwrap_or_else(|| "1.0.0".to_owned())
}

fn call_of(variable: impl Fn(&str) -> Option<OsString>) -> Outcome<Call> {
    let text = |name: &str| -> Outcome<String> {
        let value = variable(name).unwrap_or_default();
        value
            .into_string()
            .map_err(|_| Failure::new(Code::Environment, format!("the environment variable {name} is not valid UTF-8")))
    };
    let command = text(COMMAND_VARIABLE)?;
    let call = Call {
        container: text("CNI_CONTAINERID")?,
        namespace: variable("CNI_NETNS").unwrap_or_default().into(),
        interface: text("CNI_IFNAME")?,
        command,
    };
    let missing = |name: &str| Failure::new(Code::Environment, format!("the environment variable {name} is missing"));
    match call.command.as_str() {
        "VERSION" | "STATUS" | "GC" => Ok(call),
        "ADD" | "DEL" | "CHECK" => {
            let needs_namespace = call.command != "DEL";
            if call.container.is_empty() {
                return Err(missing("CNI_CONTAINERID"));
            }
            if call.interface.is_empty() {
                return Err(missing("CNI_IFNAME"));
            }
            if needs_namespace && call.namespace.as_os_str().is_empty() {
                return Err(missing("CNI_NETNS"));
            }
            check_names(&call)?;
            Ok(call)
        }
        "" => Err(missing(COMMAND_VARIABLE)),
        other => Err(Failure::new(
            Code::Environment,
            format!("the environment variable {COMMAND_VARIABLE} has the unknown value {other:?}"),
        )),
    }
}

fn check_names(call: &Call) -> Outcome<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let starts = call.container.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !starts || !call.container.bytes().all(is_plain) {
        return Err(Failure::new(
            Code::Environment,
            "the environment variable CNI_CONTAINERID has characters that are not allowed",
        ));
    }
    let name = &call.interface;
    let fits = name.len() <= INTERFACE_NAME_BYTES_MAX && name.bytes().all(is_plain) && name != "." && name != "..";
    if !fits {
        return Err(Failure::new(
            Code::Environment,
            format!(
                "the environment variable CNI_IFNAME is {name:?}, which is not a valid name of a network interface"
            ),
        ));
    }
    Ok(())
}

fn carry_out(call: &Call, input: &[u8]) -> Outcome<String> {
    if call.command == "VERSION" {
        return Ok(format!("{:#}\n", serde_json::json!({ "cniVersion": "1.1.0", "supportedVersions": VERSIONS })));
    }
    let configuration = configuration_of(input)?;
    let is_of_1_1 = matches!(call.command.as_str(), "GC" | "STATUS");
    if is_of_1_1 && configuration.cni_version != "1.1.0" {
        let message = format!(
            "the command {} needs a configuration of CNI version 1.1.0, but the version is {}",
            call.command, configuration.cni_version
        );
        return Err(Failure::new(Code::IncompatibleVersion, message));
    }
    let network = Network::of(&configuration)?;
    match call.command.as_str() {
        "ADD" => network.add(call),
        "DEL" => network.delete(call),
        "CHECK" => network.check(call),
        "GC" => network.collect(),
        _ => network.status(),
    }
}

/// Reads a configuration.
fn configuration_of(input: &[u8]) -> Outcome<Configuration> {
    let configuration: Configuration = serde_json::from_slice(input)
        .map_err(|error| Failure::new(Code::Decoding, format!("cannot read the CNI configuration: {error}")))?;
    if !VERSIONS.contains(&configuration.cni_version.as_str()) {
        let message = format!("siga does not support CNI version {:?}", configuration.cni_version);
        let details = Some(format!("supported versions: {}", VERSIONS.join(", ")));
        return Err(Failure { code: Code::IncompatibleVersion, message, details });
    }
    Ok(configuration)
}

/// Reads a configuration and names a container.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn survives(input: &[u8]) {
    let _ = configuration_of(input).and_then(|configuration| {
        let network = Network::of(&configuration)?;
        network.tenant("container", "eth0")
    });
}

/// A network with its configuration.
struct Network<'a> {
    configuration: &'a Configuration,
    network: &'a Name,
}

impl<'a> Network<'a> {
    fn of(configuration: &'a Configuration) -> Outcome<Self> {
        if configuration.name.is_empty() {
            return Err(Failure::new(Code::Configuration, "the CNI configuration has no `name`"));
        }
        let network = configuration.network.as_ref();
        let network = network.ok_or_else(|| {
            Failure::new(
                Code::Configuration,
                "the CNI configuration has no key `network`, which names a virtual network of siga",
            )
        })?;
        Ok(Self { configuration, network })
    }

    /// Returns the name of a container's interface for the control program.
    fn tenant(&self, container: &str, interface: &str) -> Outcome<String> {
        let tenant = format!("{}{container}/{interface}", self.prefix());
        if tenant.len() > TENANT_BYTES_MAX {
            return Err(Failure::new(
                Code::Environment,
                "the names of the CNI network and of the container are too long",
            ));
        }
        Ok(tenant)
    }

    fn prefix(&self) -> String {
        format!("cni/{}/", self.configuration.name)
    }

    fn connect(&self) -> siga_model::error::Result<Client> {
        match &self.configuration.run_directory {
            Some(base) => Client::connect_at(base, self.network),
            None => Client::connect_at(&rundir::base()?, self.network),
        }
    }

    fn add(&self, call: &Call) -> Outcome<String> {
        if self.configuration.prev_result.is_some() {
            let message = "siga must be the first plug-in of the list `plugins`, because it makes the interface";
            return Err(Failure::new(Code::Configuration, message));
        }
        let tenant = self.tenant(&call.container, &call.interface)?;
        let failed = |error: Error| Failure::of(Code::TryAgainLater, &error);
        let mut client = self.connect().map_err(failed)?;
        let Configuration { lan, port, .. } = self.configuration;
        let reserved = ReservedPort::reserve(&mut client, lan.clone(), port.clone(), &tenant).map_err(failed)?;
        if !call.namespace.exists() {
            let message = format!("there is no network namespace {}", call.namespace.display());
            return Err(Failure::new(Code::UnknownContainer, message));
        }
        let port = reserved.join_at(&call.namespace, &call.interface).map_err(|error| Failure::of(Code::Io, &error))?;
        let added = added(&self.configuration.cni_version, &call.namespace, &port);
        let text = serde_json::to_string_pretty(&added);
        text.map(|text| text + "\n").map_err(|error| Failure::new(Code::Io, error.to_string()))
    }

    /// Removes the interface and frees the port. Succeeds if there is nothing to remove: the kernel removes interfaces of containers and
    /// networks that have ended.
    fn delete(&self, call: &Call) -> Outcome<String> {
        let tenant = self.tenant(&call.container, &call.interface)?;
        let failed = |error: Error| Failure::of(Code::Io, &error);
        match self.connect() {
            Ok(mut client) => {
                let tenants = join::tenants(&mut client).map_err(failed)?;
                if tenants.iter().any(|(known, _)| *known == tenant) {
                    remove(&call.namespace, &call.interface)?;
                }
                join::release(&mut client, &tenant).map_err(failed)?;
            }
            // Without a control program, the switch notices that the interface is gone, and the next control program frees the port.
            Err(_) => remove(&call.namespace, &call.interface)?,
        }
        Ok(String::new())
    }

    fn check(&self, call: &Call) -> Outcome<String> {
        let tenant = self.tenant(&call.container, &call.interface)?;
        let wrong = |message: String| Failure::new(Code::Check, message);
        let tenants = self.connect().and_then(|mut client| join::tenants(&mut client));
        let tenants = tenants.map_err(|error| Failure::of(Code::Check, &error))?;
        if !tenants.iter().any(|(known, _)| *known == tenant) {
            let message = format!("container {} is not connected to a port of the virtual network", call.container);
            return Err(Failure::new(Code::UnknownContainer, message));
        }
        let found = join::interface_at(&call.namespace, &call.interface);
        let found = found.map_err(|error| Failure::of(Code::Check, &error))?;
        if !found.is_up {
            return Err(wrong(format!("interface {} of the container is down", call.interface)));
        }
        let expected = self.configuration.prev_result.iter().flat_map(|previous| &previous.ips);
        match expected.map(|ip| ip.address.addr()).find(|address| !found.addresses.contains(address)) {
            Some(missing) => {
                Err(wrong(format!("interface {} of the container lacks the address {missing}", call.interface)))
            }
            None => Ok(String::new()),
        }
    }

    /// Frees the ports of containers that the runtime does not know any more.
    fn collect(&self) -> Outcome<String> {
        let valid = self.configuration.valid_attachments.iter();
        let valid: Vec<String> =
            valid.map(|valid| self.tenant(&valid.container, &valid.ifname)).collect::<Outcome<_>>()?;
        let failed = |error: Error| Failure::of(Code::Io, &error);
        let mut client = self.connect().map_err(failed)?;
        for (tenant, _) in join::tenants(&mut client).map_err(failed)? {
            if tenant.starts_with(&self.prefix()) && !valid.contains(&tenant) {
                join::release(&mut client, &tenant).map_err(failed)?;
            }
        }
        Ok(String::new())
    }

    /// Says whether a container can be added now: reserves a port and lets it go.
    fn status(&self) -> Outcome<String> {
        let failed = |error: Error| Failure::of(Code::NotAvailable, &error);
        let mut client = self.connect().map_err(failed)?;
        let Configuration { lan, port, .. } = self.configuration;
        let tenant = format!("cni status {}", std::process::id());
        ReservedPort::reserve(&mut client, lan.clone(), port.clone(), &tenant).map_err(failed)?;
        Ok(String::new())
    }
}

fn remove(namespace: &Path, interface: &str) -> Outcome<()> {
    if namespace.as_os_str().is_empty() {
        return Ok(());
    }
    join::remove_interface(namespace, interface).map_err(|error| Failure::of(Code::Io, &error))
}

fn added(version: &str, namespace: &Path, port: &KernelPort) -> Added {
    let ips = port.addresses.iter().map(|own| AddedAddress {
        version: (version == "0.4.0").then_some(if own.addr().is_ipv4() { "4" } else { "6" }),
        address: own.to_string(),
        gateway: port.routes.iter().map(|(_, via)| *via).find(|via| own.contains(via)),
        interface: 0,
    });
    Added {
        cni_version: version.to_owned(),
        interfaces: vec![AddedInterface {
            name: port.interface.clone(),
            mac: port.settings.mac.to_string(),
            mtu: (version == "1.1.0").then_some(port.mtu),
            sandbox: namespace.display().to_string(),
        }],
        ips: ips.collect(),
        routes: port.routes.iter().map(|(to, via)| AddedRoute { dst: to.to_string(), gw: *via }).collect(),
        dns: serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(variables: &[(&str, &str)], input: &str) -> (serde_json::Value, bool) {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let (text, succeeded) = run(variable, input.as_bytes());
        (serde_json::from_str(&text).unwrap_or_default(), succeeded)
    }

    #[test]
    fn the_versions_are_printed_without_a_configuration() {
        let (value, succeeded) = call(&[("CNI_COMMAND", "VERSION")], "");
        assert!(succeeded);
        assert_eq!(value["supportedVersions"], serde_json::json!(["0.4.0", "1.0.0", "1.1.0"]));
    }

    #[test]
    fn bad_input_has_the_code_of_the_specification() {
        const ADD: [(&str, &str); 4] = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "box"),
            ("CNI_NETNS", "/run/netns/none"),
            ("CNI_IFNAME", "eth0"),
        ];
        let good =
            r#"{"cniVersion":"1.0.0","name":"n","type":"siga","network":"siga-test-none","runDirectory":"/nowhere"}"#;
        let with = |name: &str, value: &'static str| {
            ADD.map(|(known, own)| if known == name { (known, value) } else { (known, own) })
        };
        for (variables, input, code) in [
            (ADD, "", 6),
            (ADD, "[]", 6),
            (ADD, r#"{"cniVersion":"0.3.1","name":"n","network":"x"}"#, 1),
            (ADD, r#"{"name":"n","network":"x"}"#, 1),
            (ADD, r#"{"cniVersion":"1.0.0","name":"n"}"#, 7),
            (ADD, r#"{"cniVersion":"1.0.0","network":"x"}"#, 7),
            (ADD, r#"{"cniVersion":"1.0.0","name":"n","network":"a/b"}"#, 6),
            (ADD, r#"{"cniVersion":"1.0.0","name":"n","network":"x","prevResult":{}}"#, 7),
            (ADD, good, 11),
            (with("CNI_COMMAND", "MOVE"), good, 4),
            (with("CNI_COMMAND", ""), good, 4),
            (with("CNI_CONTAINERID", ""), good, 4),
            (with("CNI_CONTAINERID", "../box"), good, 4),
            (with("CNI_IFNAME", "much-too-long-a-name"), good, 4),
            (with("CNI_IFNAME", "a/b"), good, 4),
            (with("CNI_NETNS", ""), good, 4),
            (with("CNI_COMMAND", "CHECK"), good, 100),
            (with("CNI_COMMAND", "GC"), good, 1),
            (with("CNI_COMMAND", "STATUS"), good, 1),
            (with("CNI_COMMAND", "STATUS"), &good.replace("1.0.0", "1.1.0"), 50),
            (with("CNI_COMMAND", "GC"), &good.replace("1.0.0", "1.1.0"), 5),
        ] {
            let (value, succeeded) = call(&variables, input);
            assert!(!succeeded && value["code"] == code, "{variables:?} {input}: {value}");
            assert!(value["msg"].as_str().is_some_and(|text| !text.is_empty()), "{value}");
            assert!(VERSIONS.contains(&value["cniVersion"].as_str().unwrap()), "{value}");
        }
        let long = format!("{{\"cniVersion\":\"1.0.0\",\"a\":\"{}\"}}", "x".repeat(1 << 20));
        assert_eq!(call(&ADD, &long).0["code"], 6);
    }

    #[test]
    fn a_container_of_a_network_that_is_not_up_is_deleted() {
        let variables = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "box"), ("CNI_IFNAME", "eth0")];
        let input = r#"{"cniVersion":"0.4.0","name":"n","network":"siga-test-none","runDirectory":"/nowhere"}"#;
        assert!(call(&variables, input).1);
    }

    #[test]
    fn the_result_has_the_form_of_its_version() {
        let text = "[network.lan]\ntype = \"vswitch\"\n[[network.lan.port]]\nname = \"a\"\nmac = \"02:00:00:00:00:09\"\n\
            addresses = [\"10.0.3.9/24\", \"fd00::9/64\"]\nroute = [{ to = \"default\", via = \"10.0.3.1\" }]\n[guest.g]\n";
        let topology = siga_model::topology::Topology::parse(text).unwrap();
        let port = &topology.networks.values().next().unwrap().switch.as_ref().unwrap().ports[0];
        for version in VERSIONS {
            let value = serde_json::to_value(added(version, Path::new("/run/netns/x"), port)).unwrap();
            assert_eq!(value["cniVersion"], version);
            assert_eq!(value["interfaces"][0]["mac"], "02:00:00:00:00:09");
            assert_eq!(value["interfaces"][0]["sandbox"], "/run/netns/x");
            assert_eq!(value["interfaces"][0]["mtu"].is_null(), version != "1.1.0");
            assert_eq!(value["ips"][0]["address"], "10.0.3.9/24");
            assert_eq!(value["ips"][0]["gateway"], "10.0.3.1");
            assert_eq!(value["ips"][0]["version"].as_str(), (version == "0.4.0").then_some("4"));
            assert_eq!(value["ips"][1]["version"].as_str(), (version == "0.4.0").then_some("6"));
            assert_eq!(value["routes"][0], serde_json::json!({ "dst": "0.0.0.0/0", "gw": "10.0.3.1" }));
        }
    }
}
