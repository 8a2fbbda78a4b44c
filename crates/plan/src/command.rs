//! Commands as workloads: any program that siga starts again and again, with what it needs and how a run of it is judged.
//!
//! A plan names a command in a table `[workload.NAME]`. siga starts the program itself, without a shell, so that no character of an
//! argument has a special meaning. A table with `shell = true` gives one line to `sh -c` instead.

pub mod figure;
pub mod hooks;
pub mod level;
pub mod needs;
pub mod server;

use crate::label::{LABEL_BYTES, Label};
use crate::limits;
use figure::{Figure, UnitOfWork};
use hooks::Hooks;
use level::CommandLevel;
use needs::Need;
use serde::{Deserialize, Serialize};
use server::Server;
use siga_model::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The text that stands for the number of clients.
const CLIENTS: &str = "{clients}";
/// The text that stands for the name of the level.
const LEVEL: &str = "{level}";
/// The text that stands for the path of a directory that siga makes for the run and removes after it.
const SCRATCH: &str = "{scratch}";
/// The text that stands for the path of the running program (siga).
const SIGA: &str = "{siga}";

/// The values of the texts in braces for a cell.
#[derive(Debug, Clone, Copy)]
pub struct Filling<'a> {
    /// Number of clients.
    pub clients: u32,
    /// Name of the level.
    pub level: &'a str,
    /// Path of the scratch directory. Without one, its text stays as it is.
    pub scratch: Option<&'a str>,
    /// Path of the running program (siga). Without one, its text stays as it is.
    pub siga: Option<&'a str>,
}

impl Filling<'_> {
    /// Returns the text with all values.
    pub fn fill(&self, text: &str) -> String {
        let filled = text.replace(CLIENTS, &self.clients.to_string()).replace(LEVEL, self.level);
        let paths = [(SCRATCH, self.scratch), (SIGA, self.siga)];
        paths
            .into_iter()
            .fold(filled, |filled, (text, path)| path.map(|path| filled.replace(text, path)).unwrap_or(filled))
    }
}

/// The name of a command in a plan: ASCII letters, digits, `-`, `_` and `.`; the first is a letter or a digit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandName(Label);

impl CommandName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Makes a name of any text, such as the path of a program.
    pub fn of_program(program: &str) -> Self {
        let base = program.rsplit('/').next().unwrap_or_default();
        let fits = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
        let text: String = base.trim_start_matches(['-', '_', '.']).chars().map(fits).take(LABEL_BYTES).collect();
        text.parse().unwrap_or(Self(Label::COMMAND))
    }
}

impl FromStr for CommandName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = text.parse().ok().filter(Label::is_name);
        name.map(Self).ok_or_else(|| {
            Error::usage(format!("`{}` is not a valid name for a command", text.escape_debug()))
                .hint(format!("a name has 1 to {LABEL_BYTES} characters: letters, digits, `-`, `_` or `.`"))
        })
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

/// A command that is measured. In arguments, values of the environment, paths, setups and teardowns, `{clients}` stands for the number
/// of clients of a cell, `{level}` for the name of its level, `{scratch}` for a directory that siga makes for the run and removes after
/// it, and `{siga}` for the path of siga's program: the running one, or the build of the level.
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
    /// A regular expression that the standard output of every run matches; absent: the output is not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Figures that the command prints. Each gets verdicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// The work that one run does; absent: siga counts runs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitOfWork>,
    /// Programs and files that the command needs, with the packages that have them. A cell that lacks one is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// Where the command runs: `local`, `netns:NAME` or `pid:PID`; absent: `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Servers that run while the command is measured, in the order in which they start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<Server>,
    /// Commands that run before the measurements.
    #[serde(default, skip_serializing_if = "Hooks::is_empty")]
    pub setup: Hooks,
    /// Commands that run after the measurements, also after a failed one.
    #[serde(default, skip_serializing_if = "Hooks::is_empty")]
    pub teardown: Hooks,
    /// Texts of files that siga places below `{scratch}` before the first setup, and again before each trial.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Time in seconds for which a command that never ends is measured. Then siga sends it SIGTERM. Absent: a run ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after_seconds: Option<f64>,
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
            output: None,
            figures: Vec::new(),
            unit: None,
            needs: Vec::new(),
            place: None,
            server: Vec::new(),
            setup: Hooks::default(),
            teardown: Hooks::default(),
            files: BTreeMap::new(),
            stop_after_seconds: None,
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

    /// Returns the program and its arguments for a cell of this level.
    pub fn words(&self, level: &CommandLevel, filling: &Filling<'_>) -> Vec<String> {
        let own = level.words(self);
        let own = own.iter().map(|word| filling.fill(word));
        if self.shell { ["sh", "-c"].map(String::from).into_iter().chain(own).collect() } else { own.collect() }
    }

    /// Returns the command as one line for people. What differs between levels stays in braces.
    pub fn shown(&self, clients: u32) -> String {
        self.command.join(" ").replace(CLIENTS, &clients.to_string())
    }

    /// Returns the command, its setups and its teardowns, each as one line for people.
    pub fn lines(&self) -> Vec<String> {
        let hooks = [&self.setup, &self.teardown];
        let hooks =
            hooks.into_iter().flat_map(|hooks| hooks::Scope::ALL.into_iter().filter_map(move |scope| hooks.of(scope)));
        let servers = self.server.iter().map(|server| server.command.as_slice());
        [self.command.as_slice()].into_iter().chain(servers).chain(hooks).map(|words| words.join(" ")).collect()
    }

    /// Returns the variables of a cell: those of this command and then those of a level, which replace them.
    pub fn variables(&self, of_level: &BTreeMap<String, String>, filling: &Filling<'_>) -> BTreeMap<String, String> {
        let all = self.environment.iter().chain(of_level);
        all.map(|(name, value)| (name.clone(), filling.fill(value))).collect()
    }

    /// Returns true if the command differs with the number of clients.
    pub fn scales(&self) -> bool {
        self.texts().any(|text| text.contains(CLIENTS))
    }

    /// Returns true if the command needs a scratch directory.
    pub fn has_scratch(&self) -> bool {
        !self.files.is_empty() || self.texts().any(|text| text.contains(SCRATCH))
    }

    /// Returns true if siga's own program is a part of the command.
    pub(crate) fn names_siga(&self) -> bool {
        self.files.values().chain(self.texts()).any(|text| text.contains(SIGA))
    }

    /// Returns all texts in which values are filled in.
    fn texts(&self) -> impl Iterator<Item = &String> {
        let paths =
            self.directory.iter().chain(&self.input).chain(self.figures.iter().filter_map(|one| one.file.as_ref()));
        let own = self.command.iter().chain(self.environment.values()).chain(paths);
        let servers = self.server.iter().flat_map(Server::texts);
        own.chain(self.setup.texts()).chain(self.teardown.texts()).chain(servers)
    }

    /// Returns the number of figures that get verdicts besides time and CPU time.
    pub fn figure_count(&self) -> usize {
        self.figures.len() + if self.unit.is_some() { 2 } else { 0 }
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
                format!("`command` has {} words, but with shell = true it must have one", self.command.len()),
                "write the whole shell command as one text: command = [\"one line\"]",
            );
        }
        let texts = || self.command.iter().chain(&self.directory).chain(&self.input);
        let bytes = texts().map(String::len).sum::<usize>();
        if bytes > limits::COMMAND_BYTES_MAX {
            let most = limits::COMMAND_BYTES_MAX;
            return refused(
                format!("the command is too long: {bytes} bytes"),
                &format!("a command can have at most {most} bytes; put long input into a file"),
            );
        }
        if texts().any(|text| text.contains('\0')) {
            return refused(
                "a word of the command contains a zero byte".into(),
                "remove the zero byte, because the kernel does not accept it",
            );
        }
        check_variables(&self.environment)?;
        self.needs.iter().try_for_each(Need::check).map_err(|error| error.at("needs"))?;
        server::check_place(self.place.as_deref()).map_err(|error| error.at("place"))?;
        if self.server.len() > limits::SERVERS_MAX {
            return refused(
                format!("the command has too many servers: {}", self.server.len()),
                &format!("a command can have at most {} servers", limits::SERVERS_MAX),
            );
        }
        self.server.iter().try_for_each(Server::check).map_err(|error| error.at("server"))?;
        self.setup.check().map_err(|error| error.at("setup"))?;
        self.teardown.check().map_err(|error| error.at("teardown"))?;
        hooks::check_files(&self.files).map_err(|error| error.at("files"))?;
        if let Some(seconds) =
            self.stop_after_seconds.filter(|seconds| !(0.001..self.time_limit_seconds).contains(seconds))
        {
            return refused(
                format!("stop_after_seconds = {seconds} is not allowed"),
                "stop_after_seconds must be at least 0.001, and less than time_limit_seconds",
            );
        }
        self.output.as_deref().map_or(Ok(()), figure::check_regex).map_err(|error| error.at("output"))?;
        figure::check(&self.figures, self.unit.as_ref())?;
        let most = limits::COMMAND_SECONDS_MAX;
        if !(0.001..=most).contains(&self.time_limit_seconds) {
            return refused(
                format!("time_limit_seconds = {} is not allowed", self.time_limit_seconds),
                &format!("time_limit_seconds must be from 0.001 to {most}"),
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
            return Err(Error::usage(format!(
                "`{}` is not a valid name for an environment variable",
                name.escape_debug()
            ))
            .hint("a name consists of letters, digits and _, and does not begin with a digit"));
        }
        if value.contains('\0') || value.len() > limits::VARIABLE_BYTES_MAX {
            return Err(Error::usage(format!("the kernel does not accept the value of environment variable {name}"))
                .hint(format!("a value can have at most {} bytes, and no zero byte", limits::VARIABLE_BYTES_MAX)));
        }
    }
    Ok(())
}

/// Splits a line into words as a shell does, without expansions.
fn words(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    let open = |mark: char| {
        Error::usage(format!("the command has an opening {mark}, but no closing {mark}"))
            .hint("add the closing character, or write \\ before the opening one")
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
    Error::usage(format!(
        "the command contains the shell character `{letter}`, but siga starts the program without a shell"
    ))
    .hint("use --shell to execute the command with `sh -c`, or put the character in quotation marks ('…')")
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
                error.message().contains("the shell character") && error.to_string().contains("--shell"),
                "{line}: {error}"
            );
        }
        for line in ["", "  ", "''", "a 'b", "a \"b", "a \\"] {
            assert_eq!(Command::from_line(line).unwrap_err().exit_status(), 2, "{line}");
        }
        let filling = Filling { clients: 1, level: "", scratch: None, siga: None };
        assert_eq!(
            Command::from_shell_line("a | b").unwrap().words(&CommandLevel::default(), &filling),
            ["sh", "-c", "a | b"]
        );
    }

    #[test]
    fn the_number_of_clients_fills_its_places() {
        let mut command = Command::from_line("load --clients {clients}").unwrap();
        command.environment.insert("N".into(), "x{clients}".into());
        assert!(command.scales() && !Command::from_line("load").unwrap().scales());
        let filling = Filling { clients: 4, level: "fast", scratch: Some("/tmp/s"), siga: Some("/bin/siga") };
        assert_eq!(command.words(&CommandLevel::default(), &filling), ["load", "--clients", "4"]);
        assert_eq!(filling.fill("{siga} {scratch}/{level}-{clients} {other}"), "/bin/siga /tmp/s/fast-4 {other}");
        assert_eq!(Filling { scratch: None, ..filling }.fill("{scratch}"), "{scratch}");
        let of_level = [("M".to_owned(), "1".to_owned()), ("N".to_owned(), "y".to_owned())].into();
        assert_eq!(command.variables(&BTreeMap::new(), &filling)["N"], "x4");
        assert_eq!(command.variables(&of_level, &filling)["N"], "y");
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
        assert_eq!(CommandName::of_program(&"x".repeat(99)).as_str().len(), LABEL_BYTES);
        for text in ["", "-a", "a b", "a/b", "ä", &"x".repeat(LABEL_BYTES + 1)] {
            assert!(text.parse::<CommandName>().is_err(), "{text}");
        }
    }
}
