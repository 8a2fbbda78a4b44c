//! The processes in the network namespace of a place.

use super::Found;
use crate::limits::MONITORED_MAX;
use siga_model::error::{Error, IoContext, Result};
use siga_plan::place::Place;
use siga_results::monitor::Role;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

/// A place.
#[derive(Debug)]
pub(super) struct PlaceSource {
    name: String,
    /// The namespace. It exists as long as this file is open, so its number stays its own.
    _namespace: File,
    number: u64,
    /// True if the place ends with its last process.
    ends: bool,
}

impl PlaceSource {
    pub(super) fn open(place: &Place) -> Result<Self> {
        let (path, ends) = match place {
            Place::Local => ("/proc/self/ns/net".to_owned(), false),
            Place::Netns(name) => (format!("/run/netns/{name}"), false),
            Place::Pid(pid) => (format!("/proc/{pid}/ns/net"), true),
            Place::Ssh(_) | Place::Built(..) => {
                return Err(Error::usage(format!("`siga monitor` cannot read the processes of place {place}"))
                    .hint("run `siga monitor` on that host"));
            }
        };
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.ino(), file)));
        let (number, namespace) = opened.context(format!("cannot open {path}, the place {place}"))?;
        Ok(Self { name: place.to_string(), _namespace: namespace, number, ends })
    }

    /// Returns the processes of the place that this process may inspect.
    pub(super) fn find(&mut self) -> Result<Vec<Found>> {
        let entries = fs::read_dir("/proc").context("cannot read /proc")?;
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_here = |pid: &u32| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| ns.ino() == self.number);
        let mut here: Vec<u32> = pids.filter(is_here).take(MONITORED_MAX).collect();
        if here.is_empty() && self.ends {
            return Err(Error::incomplete(format!("the last process of place {} has ended", self.name)));
        }
        here.sort_unstable();
        Ok(here.into_iter().map(|pid| Found::process(Role::Process, pid)).collect())
    }
}
