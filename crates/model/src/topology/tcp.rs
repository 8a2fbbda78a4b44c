//! Reads the settings of TCP in a topology file: a table of names and values.

use super::TcpSettings;
use crate::error::{Error, Result};
use crate::limits::TCP_SETTINGS_MAX;
use std::collections::BTreeMap;
use toml::Value;

/// Converts the values of a table to text, as Linux has it: several numbers are separated by spaces, and true is 1.
pub(super) fn tcp_settings(table: &BTreeMap<String, Value>) -> Result<TcpSettings> {
    if table.len() > TCP_SETTINGS_MAX {
        return Err(Error::usage(format!(
            "the table `tcp` has too many settings: {}, but at most {TCP_SETTINGS_MAX} are allowed",
            table.len()
        )));
    }
    table.iter().map(|(name, value)| Ok((name.clone(), text(name, value)?))).collect()
}

fn text(name: &str, value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Boolean(on) => Ok(u8::from(*on).to_string()),
        Value::Array(values) if values.iter().all(Value::is_integer) => {
            Ok(values.iter().map(Value::to_string).collect::<Vec<_>>().join(" "))
        }
        Value::Array(_) | Value::Float(_) | Value::Datetime(_) | Value::Table(_) => {
            let message = format!("the value of tcp.{name} has the wrong type");
            Err(Error::usage(message).hint("write a number, true, false, a string, or an array of integers"))
        }
    }
}
