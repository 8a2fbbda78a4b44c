//! Reads the user's configuration, which contains the command with which siga connects to other hosts.
//!
//! The file is `$XDG_CONFIG_HOME/siga/config.toml` or `~/.config/siga/config.toml`. Because siga executes this command, siga
//! refuses the file if a user other than the caller and root could have written it.

use crate::limits;
use serde::Deserialize;
use siga_model::error::{Error, Result};
use siga_results::directory;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The default command for connecting to other hosts.
pub const SSH: &str = "ssh";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    reach: Reach,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Reach {
    /// The command that connects to the host of a place `ssh:HOST`. Spaces separate its words.
    ssh: Option<String>,
}

/// Returns the command for connecting to other hosts: `given`, which comes from the command line; if it is `None`, the command
/// in the user's configuration; if there is none, [`SSH`].
///
/// # Errors
/// Returns an error of kind `Usage` if the configuration is malformed or the command is empty. Returns an error of kind
/// `Environment` if the file cannot be read, or if other users could have written it.
pub fn ssh(given: Option<&str>) -> Result<String> {
    let said = match given {
        Some(given) => Some(given.to_owned()),
        None => place(|name| std::env::var_os(name)).map_or(Ok(None), |place| read(&place))?,
    };
    let said = said.unwrap_or_else(|| SSH.to_owned());
    if said.trim().is_empty() {
        return Err(Error::usage("the command with which siga connects to other hosts (--ssh) is empty")
            .hint("--ssh accepts a command such as `ssh -F FILE`"));
    }
    Ok(said)
}

/// Returns the path of the configuration file. `variable` returns the value of an environment variable. Ignores variables with
/// a relative path, as the XDG specification requires.
fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(base.join("siga/config.toml"))
}

fn read(place: &Path) -> Result<Option<String>> {
    let shown = place.display();
    let text = match directory::read_trusted(place, limits::CONFIG_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::environment(format!("cannot read {shown}: {error}")).hint(
                "the configuration file must belong to you, and no other user may have write permission; or use --ssh \
                    COMMAND",
            ));
        }
    };
    let config: Config = toml::from_str(&text).map_err(|error| {
        Error::usage(format!("configuration {shown}: {error}"))
            .hint("the file supports one key: `ssh = \"COMMAND\"` in the table [reach]")
    })?;
    Ok(config.reach.ssh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_lies_where_the_xdg_specification_says() {
        let place_of = |xdg: Option<&str>, home: Option<&str>| {
            let variable = |name: &str| if name == "HOME" { home } else { xdg }.map(OsString::from);
            place(variable).map(|path| path.display().to_string())
        };
        assert_eq!(place_of(Some("/x"), Some("/h")).unwrap(), "/x/siga/config.toml");
        for xdg in [None, Some(""), Some("relative")] {
            assert_eq!(place_of(xdg, Some("/h")).unwrap(), "/h/.config/siga/config.toml", "{xdg:?}");
        }
        assert_eq!(place_of(None, Some("relative")), None);
        assert_eq!(place_of(None, None), None);
    }
}
