//! The conditions of a level under which a command runs. The process that starts the command has them, too, because the command inherits
//! them. What the host shares is as before when this value is dropped.

use super::Order;
use super::group::{Group, Limits};
use crate::path::own_network;
use crate::place;
use rustix::process::setpriority_process;
use rustix::thread::disable_transparent_huge_pages;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::level::{HugePages, PageCache};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The host's setting of transparent huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The file by which the kernel drops its caches.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// The conditions that an order names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// CPUs on which the command may run. If the list is empty, the scheduler chooses.
    pub(crate) cpus: Vec<u32>,
    pub(crate) nice: Option<i32>,
    pub(crate) limits: Limits,
    pub(crate) page_cache: Option<PageCache>,
    pub(crate) huge_pages: Option<HugePages>,
    /// Sysctls of a network namespace of the command's own.
    pub(crate) sysctls: BTreeMap<String, String>,
}

/// Conditions that are in force.
#[derive(Debug)]
pub(super) struct Conditions {
    pub(super) group: Option<Group>,
    page_cache: Option<PageCache>,
    huge_pages_before: Option<String>,
}

impl Conditions {
    /// Puts the conditions of an order into force.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the host does not permit one of them.
    pub(super) fn of(order: &Order) -> Result<Self> {
        let wanted = &order.conditions;
        place::stay_on(&wanted.cpus)?;
        if let Some((net, user)) = &order.place {
            place::enter(Some(net), Some(user).filter(|user| user.exists()).map(PathBuf::as_path))?;
        }
        if !wanted.sysctls.is_empty() {
            own_network(&wanted.sysctls)?;
        }
        if let Some(nice) = wanted.nice {
            setpriority_process(None, nice).map_err(|error| {
                Error::environment(format!("cannot set the nice value {nice}: {error}"))
                    .hint("a nice value below that of siga itself needs root or CAP_SYS_NICE")
            })?;
        }
        if let Some(PageCache::Dropped) = wanted.page_cache {
            drop_caches()?;
        }
        let directory = order.directory.as_deref().unwrap_or(".");
        let group = (!wanted.limits.is_empty()).then(|| Group::enter(&wanted.limits, directory)).transpose()?;
        let mut all = Self { group, page_cache: wanted.page_cache, huge_pages_before: None };
        all.huge_pages(wanted.huge_pages)?;
        Ok(all)
    }

    /// Brings the page cache into the state that a run finds.
    pub(super) fn before_run(&self) -> Result<()> {
        match self.page_cache {
            Some(PageCache::Dropped) => drop_caches(),
            Some(PageCache::Warm) | None => Ok(()),
        }
    }

    /// Returns true if a run without a figure comes first.
    pub(super) fn is_warm(&self) -> bool {
        self.page_cache == Some(PageCache::Warm)
    }

    fn huge_pages(&mut self, wanted: Option<HugePages>) -> Result<()> {
        let word = match wanted {
            None => return Ok(()),
            Some(HugePages::Never) => {
                return disable_transparent_huge_pages(true).context("cannot switch off transparent huge pages");
            }
            Some(HugePages::Always) => "always",
            Some(HugePages::Madvise) => "madvise",
        };
        let cannot = |error: std::io::Error| {
            Error::environment(format!("cannot set transparent huge pages to {word}: {error}"))
                .hint("this setting applies to the whole host, so only root can change it")
        };
        let before = selected(&fs::read_to_string(HUGE_PAGES).map_err(cannot)?);
        if before.as_deref() != Some(word) {
            self.huge_pages_before = before;
            fs::write(HUGE_PAGES, word).map_err(cannot)?;
        }
        Ok(())
    }
}

impl Drop for Conditions {
    fn drop(&mut self) {
        if let Some(before) = &self.huge_pages_before {
            // The write succeeded with another word, so it can fail only if the host changed meanwhile.
            let _ = fs::write(HUGE_PAGES, before);
        }
    }
}

/// Returns the word in brackets of a line such as `always [madvise] never`.
fn selected(line: &str) -> Option<String> {
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

fn drop_caches() -> Result<()> {
    // Dirty pages stay in the cache, so write them first.
    rustix::fs::sync();
    fs::write(DROP_CACHES, "3").map_err(|error| {
        Error::environment(format!("cannot drop the page cache: {error}"))
            .hint("only root can write /proc/sys/vm/drop_caches; remove `page_cache` from the level")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_word_is_the_one_in_brackets() {
        assert_eq!(selected("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(selected("always"), None);
    }
}
