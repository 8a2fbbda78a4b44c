//! Networks of type claw: two guests on an ESCON channel with the protocol CLAW (Common Link Access to Workstation).

use super::check::{refuse, within};
use super::file::{DeviceEntry, NetworkEntry};
use super::{Device, NetworkKind, Topology};
use crate::error::{Error, Result};
use crate::limits;
use crate::name::Name;
use serde::{Deserialize, Serialize};

/// The settings of a device of type claw. The names of its partner must be the same crosswise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claw {
    /// Name of this system, at most 8 characters.
    pub host_name: String,
    /// Name of the system at the other end, at most 8 characters.
    pub adapter_name: String,
    /// Largest block that the device receives, in bytes.
    pub read_size: u32,
    /// Largest block that the device sends, in bytes. The packets of a block have 8 bytes less.
    pub write_size: u32,
}

impl Claw {
    /// Returns the settings of a device with the names that the topology leaves out. They are the names of the two guests.
    pub fn complete(&self, topology: &Topology, device: &Device) -> Self {
        let ends: Vec<_> = topology.on(&device.network).map(|(guest, _, end)| (guest, end)).collect();
        let first: Vec<_> = ends.iter().map(|(guest, _)| start_of_name(guest, limits::CLAW_NAME_BYTES)).collect();
        let are_equal = first.windows(2).any(|names| names[0] == names[1]);
        let name_of = |place: usize| {
            let (guest, end) = ends[place];
            match end.claw.as_ref().map(|claw| claw.host_name.as_str()) {
                Some(name) if !name.is_empty() => name.to_owned(),
                _ if are_equal => format!("{}{}", start_of_name(guest, limits::CLAW_NAME_BYTES - 1), place + 1),
                _ => first[place].clone(),
            }
        };
        let place_of = |is_own: bool| ends.iter().position(|(_, end)| std::ptr::eq(*end, device) == is_own);
        let host_name = place_of(true).map(name_of).unwrap_or_default();
        let adapter_name = match self.adapter_name.as_str() {
            "" => place_of(false).map(name_of).unwrap_or_default(),
            name => name.to_owned(),
        };
        Self { host_name, adapter_name, ..*self }
    }
}

/// Returns the first characters of a guest's name in capital letters.
fn start_of_name(guest: &Name, characters: usize) -> String {
    guest.as_str().chars().take(characters).collect::<String>().to_uppercase()
}

/// Returns the kind of a network of type claw.
pub(super) fn kind(entry: &NetworkEntry) -> Result<NetworkKind> {
    refuse(entry.frame.is_some(), "frame", "networks of type claw have the key `buffer` instead")?;
    let buffer = entry.buffer.unwrap_or(limits::CLAW_BUFFER_BYTES);
    let range = limits::CLAW_FRAME_BYTES..=limits::CLAW_BUFFER_BYTES;
    within(format_args!("a buffer of {buffer} bytes"), buffer, range).map(|()| NetworkKind::Claw { buffer })
}

/// Returns the settings of a device on a network of type claw. For a device on another network, refuses these settings.
pub(super) fn settings(kind: NetworkKind, entry: &DeviceEntry, mtu: u16) -> Result<Option<Claw>> {
    let NetworkKind::Claw { buffer } = kind else {
        for (is_there, key) in [
            (entry.host_name.is_some(), "host_name"),
            (entry.adapter_name.is_some(), "adapter_name"),
            (entry.read_size.is_some(), "read_size"),
            (entry.write_size.is_some(), "write_size"),
        ] {
            refuse(is_there, key, "only devices on networks of type claw have this key")?;
        }
        return Ok(None);
    };
    let size = |key: &str, size: Option<u32>| {
        let size = size.unwrap_or(buffer);
        within(format_args!("{key} of {size} bytes"), size, limits::CLAW_FRAME_BYTES..=buffer).map(|()| size)
    };
    if let Some(count) = entry.buffer_count {
        let range = u32::from(limits::BUFFER_COUNT_MIN)..=u32::from(limits::BUFFER_COUNT_MAX);
        within(format_args!("a buffer_count of {count} (on a network of type claw)"), count, range)?;
    }
    let (host_name, adapter_name) = (name(entry.host_name.as_deref())?, name(entry.adapter_name.as_deref())?);
    if !host_name.is_empty() && host_name == adapter_name {
        return Err(Error::usage(format!("host_name and adapter_name are both {host_name}, but must be different")));
    }
    let (read_size, write_size) = (size("read_size", entry.read_size)?, size("write_size", entry.write_size)?);
    let most = write_size - limits::CLAW_UNUSED_BYTES - limits::CLAW_HEADER_BYTES;
    if u32::from(mtu) > most {
        return Err(Error::usage(format!(
            "an MTU of {mtu} bytes is too large for a write_size of {write_size} bytes, whose largest packet has {most} bytes"
        )));
    }
    Ok(Some(Claw { host_name, adapter_name, read_size, write_size }))
}

fn name(name: Option<&str>) -> Result<String> {
    let Some(name) = name else { return Ok(String::new()) };
    let fits = (1..=limits::CLAW_NAME_BYTES).contains(&name.len());
    if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Ok(name.to_owned());
    }
    let most = limits::CLAW_NAME_BYTES;
    Err(Error::usage(format!("{name:?} is not a name of CLAW: a name has 1 to {most} letters, digits or underscores")))
}
