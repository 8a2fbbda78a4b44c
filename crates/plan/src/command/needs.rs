//! What a command needs besides the kernel: programs and files, and the packages that have them.

use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};

/// A program or a file that a command needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// The name of a program in the directories of PATH, or the path of a file.
    pub file: String,
    /// The package of Debian that has it.
    pub package: String,
    /// Only levels whose names contain this text need it; absent: all levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

impl Need {
    /// Returns true if a cell of this level needs the file.
    pub fn concerns(&self, level: &str) -> bool {
        self.level.as_ref().is_none_or(|part| level.contains(part.as_str()))
    }

    /// Refuses names that no file and no package has.
    pub(super) fn check(&self) -> Result<()> {
        let is_package = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if self.file.is_empty() || self.file.contains('\0') {
            return Err(Error::usage(
                "a program or file that the command needs has no valid name: its key `file` is empty or \
                 contains a zero byte",
            )
            .hint("set `file` to the name of a program or the path of a file"));
        }
        if self.package.is_empty() || !self.package.bytes().all(is_package) || self.package.starts_with('-') {
            return Err(Error::usage(format!("`{}` is not a valid name of a package", self.package.escape_debug()))
                .hint("use the name of the Debian package"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_names_a_file_and_a_package() {
        let need = |file: &str, package: &str| Need { file: file.into(), package: package.into(), level: None };
        assert!(need("gcc-12", "g++-12").check().is_ok() && need("/usr/include/x.h", "libx-dev").check().is_ok());
        for (file, package) in [("", "a"), ("a", ""), ("a", "b; rm x"), ("a", "-y"), ("a\0", "b")] {
            assert!(need(file, package).check().is_err(), "{file:?} {package:?}");
        }
        let only = Need { level: Some("gcc-11".into()), ..need("gcc-11", "gcc-11") };
        assert!(only.concerns("CC=gcc-11 -O2") && !only.concerns("CC=gcc-12 -O2"));
    }
}
