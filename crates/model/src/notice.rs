//! Notices about old spellings in files. Such a file is still read, and a notice names the new spelling.

use crate::features::DriverFeatures;
use toml::{Table, Value};

/// Old and new values of the key `waiting`.
const POLICIES: [(&str, &str); 2] = [("blocking", "block"), ("polling", "poll")];

/// Returns one notice for each old spelling in a TOML file, without repetitions. Returns nothing if the text is not valid TOML.
pub fn old_spellings(text: &str) -> Vec<String> {
    let mut notices = Vec::new();
    if let Ok(table) = text.parse::<Table>() {
        search(&table, &mut notices);
    }
    notices
}

/// Returns a notice if `name` is the old name of a driver feature.
pub fn renamed_feature(name: &str) -> Option<String> {
    new_name(&DriverFeatures::FORMER_NAMES, name).map(|new| format!("`{name}` is an old key: write `{new}` instead"))
}

fn new_name(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
}

fn search(table: &Table, notices: &mut Vec<String>) {
    for (key, value) in table {
        let notice = match value {
            Value::Boolean(_) => renamed_feature(key),
            Value::String(old) if key == "waiting" => new_name(&POLICIES, old)
                .map(|new| format!("waiting = \"{old}\" is an old spelling: write \"{new}\" instead")),
            Value::Table(inner) => {
                search(inner, notices);
                None
            }
            Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Datetime(_) | Value::Array(_) => None,
        };
        notices.extend(notice.filter(|new| !notices.contains(new)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_old_spelling_is_reported_once() {
        let text =
            "[driver]\ngather = false\n[guest.a]\nwaiting = \"blocking\"\n[guest.gather]\nwaiting = \"blocking\"\n";
        let notices = old_spellings(text);
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices.iter().any(|notice| notice.contains("write `colocate`")), "{notices:?}");
        assert!(notices.iter().any(|notice| notice.contains("write \"block\"")), "{notices:?}");
        assert_eq!(old_spellings("[guest.a]\nwaiting = \"poll\"\nname = \"blocking\"\n"), [""; 0]);
    }
}
