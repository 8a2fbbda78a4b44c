//! Finds the modules of a kernel in the index that belongs to it, for example in `modules.dep`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The modules of one kernel. Names have `_` in place of `-`, as in the kernel.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// For each module, the files to load, in this order; the module's own file is the last one.
    files: BTreeMap<String, Vec<String>>,
    built_in: BTreeSet<String>,
    /// Other names of modules, such as `net-pf-43`. Patterns, which name devices, are left out.
    aliases: BTreeSet<String>,
}

impl Modules {
    /// Reads the files in `directory` (`lib/modules/RELEASE`).
    pub(crate) fn read(directory: &Path) -> Result<Self, String> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut modules = Self::parse(&read("modules.dep")?, &read("modules.builtin")?);
        modules.add_aliases(&read("modules.alias")?, &read("modules.builtin.modinfo")?);
        Ok(modules)
    }

    fn parse(dependencies: &str, built_in: &str) -> Self {
        let mut files = BTreeMap::new();
        for (file, needed) in dependencies.lines().filter_map(|line| line.split_once(':')) {
            // depmod writes first what has to be loaded last.
            let order = needed.split_whitespace().rev().chain([file]).map(str::to_owned);
            files.insert(name(file), order.collect());
        }
        Self { files, built_in: built_in.lines().map(name).collect(), aliases: BTreeSet::new() }
    }

    /// Adds the lines `alias NAME MODULE` of `loadable`, and the entries `MODULE.alias=NAME` of `built_in`, which end with a zero.
    fn add_aliases(&mut self, loadable: &str, built_in: &str) {
        let of_files = loadable.lines().filter_map(|line| line.strip_prefix("alias ")?.split_once(' ')).map(|it| it.0);
        let of_kernel = built_in.split('\0').filter_map(|entry| entry.split_once(".alias=")).map(|it| it.1);
        let names = of_files.chain(of_kernel).filter(|alias| !alias.contains(['*', '?', '[']));
        self.aliases.extend(names.map(|alias| alias.replace('-', "_")));
    }

    /// Returns the files that `modules` need, in the order in which they have to be loaded, each once. Modules that are part of
    /// the kernel need no file. The error names a module that the kernel does not have.
    pub(crate) fn files(&self, modules: &[&str]) -> Result<Vec<&str>, String> {
        let mut order: Vec<&str> = Vec::new();
        for module in modules {
            self.check(module)?;
            for file in self.files.get(&name(module)).into_iter().flatten() {
                if !order.contains(&file.as_str()) {
                    order.push(file);
                }
            }
        }
        Ok(order)
    }

    /// Returns an error that names `module` if the kernel has no module with this name or alias.
    pub(crate) fn check(&self, module: &str) -> Result<(), String> {
        let key = name(module);
        if self.files.contains_key(&key) || self.built_in.contains(&key) || self.aliases.contains(&key) {
            return Ok(());
        }
        Err(format!("the kernel has no module `{module}`"))
    }
}

/// Returns the name of the module in the file `path`.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Modules {
        let dependencies = "kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko\n\
            kernel/net/9p/9pnet.ko:\nkernel/fs/netfs/netfs.ko:\n\
            kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio-ring.ko\n";
        Modules::parse(dependencies, "kernel/drivers/virtio/virtio-pci.ko\n")
    }

    #[test]
    fn what_a_module_needs_is_loaded_before_it_and_once() {
        let modules = modules();
        let files = modules.files(&["9p", "virtio_pci", "9pnet-virtio"]).unwrap();
        let names: Vec<String> = files.into_iter().map(name).collect();
        assert_eq!(names, ["netfs", "9pnet", "9p", "virtio_ring", "9pnet_virtio"]);
    }

    #[test]
    fn a_module_has_its_aliases_as_names_too() {
        let mut modules = modules();
        let loadable = "# Aliases\nalias net-pf-43 smc\nalias pci:v00001AF4d*sv*sd*bc*sc*i* virtio_pci\n";
        modules.add_aliases(loadable, "unix.license=GPL\0unix.alias=net-pf-1\0");
        for alias in ["net-pf-43", "net_pf_43", "net-pf-1"] {
            assert_eq!(modules.check(alias), Ok(()), "{alias}");
        }
        for unknown in ["net-pf-44", "GPL", "pci:v00001AF4d*sv*sd*bc*sc*i*"] {
            assert!(modules.check(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn a_missing_module_is_named() {
        assert_eq!(modules().files(&["9p", "bond-ing"]).unwrap_err(), "the kernel has no module `bond-ing`");
        assert_eq!(modules().check("virtio-pci"), Ok(()));
    }
}
