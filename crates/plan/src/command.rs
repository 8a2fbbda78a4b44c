//! Commands as workloads: any program that siga starts again and again, with what it needs and how a run of it is judged.
//!
//! A plan names a command in a table `[workload.NAME]`. siga starts the program itself, without a shell, so that no character of an
//! argument has a special meaning. A table with `shell = true` gives one line to `sh -c` instead.

use crate::limits;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The longest name of a command, in bytes.
const NAME_BYTES: usize = 31;
/// The text that stands for the number of clients in arguments and in the environment.
const CLIENTS: &str = "{clients}";

/// The name of a command in a plan: ASCII letters, digits, `-`, `_` and `.`; the first is a letter or a digit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandName {
    /// The name, followed by zeros. A cell has a copy of the name, so the name has no allocation of its own.
    bytes: [u8; NAME_BYTES],
}

impl CommandName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        let length = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        // `from_str` accepts ASCII only.
        std::str::from_utf8(&self.bytes[..length]).unwrap_or_default()
    }

    /// Makes a name of any text, such as the path of a program.
    pub fn of_program(program: &str) -> Self {
        let base = program.rsplit('/').next().unwrap_or_default();
        let fits = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
        let text: String = base.trim_start_matches(['-', '_', '.']).chars().map(fits).take(NAME_BYTES).collect();
        text.parse().or_else(|_| "command".parse()).unwrap_or(Self { bytes: [0; NAME_BYTES] })
    }
}

impl FromStr for CommandName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if !begins || text.len() > NAME_BYTES || !text.bytes().all(fits) {
            return Err(Error::usage(format!("`{}` is no name of a command", text.escape_debug()))
                .hint(format!("a name has 1 to {NAME_BYTES} letters, digits, -, _ and .")));
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes })
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A command that is measured. In arguments and values of the environment, `{clients}` stands for the number of clients of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments. With `shell`, one line for `sh -c`.
    pub command: Vec<String>,
    /// Whether a shell carries out the command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shell: bool,
    /// The directory in which the command runs; absent: the one in which siga was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Variables that are added to siga's own environment. A level can replace them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The file from which the command reads standard input; absent: the input is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The exit status of a run that went well.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub exit_status: u8,
    /// Longest time of one run in seconds. siga ends a run that takes longer.
    #[serde(default = "time_limit", skip_serializing_if = "is_time_limit")]
    pub time_limit_seconds: f64,
}

fn is_zero(status: &u8) -> bool {
    *status == 0
}

fn time_limit() -> f64 {
    limits::COMMAND_SECONDS
}

fn is_time_limit(seconds: &f64) -> bool {
    *seconds == limits::COMMAND_SECONDS
}

impl Command {
    /// Returns a command that starts a program directly and has no other settings.
    pub fn new(command: Vec<String>) -> Self {
        Self {
            command,
            shell: false,
            directory: None,
            environment: BTreeMap::new(),
            input: None,
            exit_status: 0,
            time_limit_seconds: time_limit(),
        }
    }

    /// Reads a line such as `zstd -3 -c 'my file'`: words that are separated by blanks. Quotation marks and backslashes keep blanks
    /// in a word.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if a quotation mark has no partner, or if the line has a character with a special meaning for
    /// a shell, because nothing here gives it that meaning.
    pub fn from_line(line: &str) -> Result<Self> {
        let command = Self::new(words(line)?);
        command.check()?;
        Ok(command)
    }

    /// Returns a command that a shell carries out.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the line is empty.
    pub fn from_shell_line(line: &str) -> Result<Self> {
        let command = Self { shell: true, ..Self::new(vec![line.to_owned()]) };
        command.check()?;
        Ok(command)
    }

    /// Returns the program and its arguments for a cell with this number of clients.
    pub fn words(&self, clients: u32) -> Vec<String> {
        let own = self.command.iter().map(|word| filled(word, clients));
        if self.shell { ["sh", "-c"].map(String::from).into_iter().chain(own).collect() } else { own.collect() }
    }

    /// Returns the variables of a cell: those of this command and then those of a level, which replace them.
    pub fn variables(&self, of_level: &BTreeMap<String, String>, clients: u32) -> BTreeMap<String, String> {
        let all = self.environment.iter().chain(of_level);
        all.map(|(name, value)| (name.clone(), filled(value, clients))).collect()
    }

    /// Returns true if the command differs with the number of clients.
    pub fn scales(&self) -> bool {
        self.command.iter().chain(self.environment.values()).any(|text| text.contains(CLIENTS))
    }

    /// Refuses a command that cannot be started.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` for the first value that is impossible.
    pub fn check(&self) -> Result<()> {
        let refused = |message: String, hint: &str| Err(Error::usage(message).hint(hint.to_owned()));
        if self.command.first().is_none_or(|program| program.trim().is_empty()) {
            return refused("the command is empty".into(), "give the program and its arguments");
        }
        if self.shell && self.command.len() > 1 {
            return refused(
                format!("shell = true with {} words", self.command.len()),
                "a shell takes one line: command = [\"one line\"]",
            );
        }
        let texts = || self.command.iter().chain(&self.directory).chain(&self.input);
        let bytes = texts().map(String::len).sum::<usize>();
        if bytes > limits::COMMAND_BYTES_MAX {
            let most = limits::COMMAND_BYTES_MAX;
            return refused(
                format!("a command of {bytes} bytes"),
                &format!("it takes up to {most}; put them into a file"),
            );
        }
        if texts().any(|text| text.contains('\0')) {
            return refused("a word of the command has a zero byte".into(), "the kernel takes none");
        }
        check_variables(&self.environment)?;
        let most = limits::COMMAND_SECONDS_MAX;
        if !(0.001..=most).contains(&self.time_limit_seconds) {
            return refused(
                format!("time_limit_seconds = {}", self.time_limit_seconds),
                &format!("it goes from 0.001 to {most}"),
            );
        }
        Ok(())
    }
}

/// Refuses variables that no process can have.
///
/// # Errors
/// Returns an error of kind `Usage` for the first variable whose name or value is impossible.
pub fn check_variables(variables: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in variables {
        let begins = name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
        if !begins || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Error::usage(format!("`{}` is no name of a variable", name.escape_debug()))
                .hint("a name has letters, digits and _, and does not begin with a digit"));
        }
        if value.contains('\0') || value.len() > limits::VARIABLE_BYTES_MAX {
            return Err(Error::usage(format!("variable {name} has a value that the kernel does not take"))
                .hint(format!("a value has no zero byte and up to {} bytes", limits::VARIABLE_BYTES_MAX)));
        }
    }
    Ok(())
}

fn filled(text: &str, clients: u32) -> String {
    text.replace(CLIENTS, &clients.to_string())
}

/// Splits a line into words as a shell does, without expansions.
fn words(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    let open = |mark: char| {
        Error::usage(format!("the command has {mark} without its partner")).hint("close it, or write \\ before it")
    };
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => loop {
                let inner = word.get_or_insert_default();
                match letters.next().ok_or_else(|| open(letter))? {
                    end if end == letter => break,
                    '\\' if letter == '"' => match letters.next().ok_or_else(|| open(letter))? {
                        kept @ ('"' | '\\' | '$' | '`') => inner.push(kept),
                        other => inner.extend(['\\', other]),
                    },
                    special @ ('$' | '`') if letter == '"' => return Err(for_shell(special)),
                    other => inner.push(other),
                }
            },
            '\\' => word.get_or_insert_default().push(letters.next().ok_or_else(|| open('\\'))?),
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '\n' => return Err(for_shell(letter)),
            blank if blank.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn for_shell(letter: char) -> Error {
    let letter = letter.escape_debug();
    Error::usage(format!("`{letter}` in the command is for a shell, and siga starts the program without one"))
        .hint("give --shell so that `sh -c` carries out the line, or put the character in quotation marks ('…')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_into_words_as_a_shell_would() {
        let split = |line: &str| Command::from_line(line).unwrap().command;
        assert_eq!(split("  zstd -3\t-c FILE "), ["zstd", "-3", "-c", "FILE"]);
        assert_eq!(split(r#"a 'b c' "d \" e"f \  ''"#), ["a", "b c", "d \" ef", " ", ""]);
        assert_eq!(split("printf '%s|$x*'"), ["printf", "%s|$x*"]);
    }

    #[test]
    fn what_only_a_shell_understands_is_refused_with_the_way_out() {
        for line in ["a | b", "a > b", "a; b", "a $HOME", "a \"$HOME\"", "a `b`", "a &", "ls *.c", "(a)", "a\nb"] {
            let error = Command::from_line(line).unwrap_err();
            assert!(
                error.message().contains("for a shell") && error.to_string().contains("--shell"),
                "{line}: {error}"
            );
        }
        for line in ["", "  ", "''", "a 'b", "a \"b", "a \\"] {
            assert_eq!(Command::from_line(line).unwrap_err().exit_status(), 2, "{line}");
        }
        assert_eq!(Command::from_shell_line("a | b").unwrap().words(1), ["sh", "-c", "a | b"]);
    }

    #[test]
    fn the_number_of_clients_fills_its_places() {
        let mut command = Command::from_line("load --clients {clients}").unwrap();
        command.environment.insert("N".into(), "x{clients}".into());
        assert!(command.scales() && !Command::from_line("load").unwrap().scales());
        assert_eq!(command.words(4), ["load", "--clients", "4"]);
        let of_level = [("M".to_owned(), "1".to_owned()), ("N".to_owned(), "y".to_owned())].into();
        assert_eq!(command.variables(&BTreeMap::new(), 4)["N"], "x4");
        assert_eq!(command.variables(&of_level, 4)["N"], "y");
    }

    #[test]
    fn impossible_settings_are_refused() {
        let check = |change: fn(&mut Command)| {
            let mut command = Command::new(vec!["true".into()]);
            change(&mut command);
            command.check()
        };
        assert!(check(|_| {}).is_ok());
        let changes: [fn(&mut Command); 7] = [
            |command| command.command.clear(),
            |command| command.command.push("a\0b".into()),
            |command| command.command.push("x".repeat(limits::COMMAND_BYTES_MAX)),
            |command| command.time_limit_seconds = f64::NAN,
            |command| drop(command.environment.insert("A=B".into(), String::new())),
            |command| drop(command.environment.insert("A".into(), "\0".into())),
            |command| (command.shell, command.command) = (true, vec!["a".into(), "b".into()]),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let error = check(change).unwrap_err();
            assert!(error.exit_status() == 2 && error.way_out().is_some(), "{at}: {error}");
        }
    }

    #[test]
    fn a_name_comes_from_the_program() {
        for (program, name) in [("/usr/bin/zstd", "zstd"), ("./a b", "a-b"), ("", "command"), ("../..", "command")] {
            assert_eq!(CommandName::of_program(program).as_str(), name);
        }
        assert_eq!(CommandName::of_program(&"x".repeat(99)).as_str().len(), NAME_BYTES);
        for text in ["", "-a", "a b", "a/b", "ä", &"x".repeat(NAME_BYTES + 1)] {
            assert!(text.parse::<CommandName>().is_err(), "{text}");
        }
    }
}
