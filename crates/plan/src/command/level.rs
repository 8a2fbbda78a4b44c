//! What a level changes about commands: their program and arguments, the resources that they get, and the state of memory and cache.

use super::Command;
use crate::cpus::cpu_list;
use crate::limits;
use crate::workload::parse_size;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::text;

/// The word of a command that stands for the arguments of the level.
const ARGUMENTS: &str = "{arguments}";

/// The page cache of the host before a run of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PageCache {
    /// Empty: files are read from the disk. Needs root.
    Dropped,
    /// Filled by one run that is not measured.
    Warm,
}

/// Transparent huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HugePages {
    /// For all memory. The whole host has this setting while a trial runs. Needs root.
    Always,
    /// For memory for which the program asks. The whole host has this setting while a trial runs. Needs root.
    Madvise,
    /// For no memory of the command.
    Never,
}

/// What a level changes about commands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CommandLevel {
    /// Arguments that take the place of the word `{arguments}` of the command, or follow its last word.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// The program, instead of the first word of the command: another build or version of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// CPUs on which the command may run, instead of the plan's `client_cpus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Nice value from -20 to 19. Below that of siga, it needs root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nice: Option<i32>,
    /// Largest memory of all processes of the command together ("512m"). Needs a control group that siga may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<String>,
    /// Largest number of CPUs whose time the command gets (0.5 is half of one). Needs such a control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_max: Option<f64>,
    /// Largest number of bytes per second that the command reads from the disk of its directory. Needs such a control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_max: Option<String>,
    /// Largest number of bytes per second that the command writes to the disk of its directory. Needs such a control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_max: Option<String>,
    /// The page cache before each run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCache>,
    /// Transparent huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<HugePages>,
}

impl CommandLevel {
    /// Beginning of the name of a level that adds arguments, as in `args:-O3 -g`.
    pub const ARGUMENTS: &str = "args:";
    /// Beginning of the name of a level that replaces the program, as in `program:./new`.
    pub const PROGRAM: &str = "program:";
    /// Beginning of the name of a level that limits the CPUs, as in `cpus:0-1`.
    pub const CPUS: &str = "cpus:";

    /// Reads a level such as `args:-O3 -g`. Returns what it sets and the text that names it; `None` if the text begins otherwise.
    pub(crate) fn of_text(text: &str) -> Option<Result<(Self, &str)>> {
        let level = if let Some(line) = text.strip_prefix(Self::ARGUMENTS) {
            let words =
                if line.trim().is_empty() { Ok(Vec::new()) } else { Command::from_line(line).map(|all| all.command) };
            words.map(|arguments| {
                (Self { arguments, ..Self::default() }, if line.trim().is_empty() { "no arguments" } else { line })
            })
        } else if let Some(program) = text.strip_prefix(Self::PROGRAM) {
            Ok((Self { program: Some(program.to_owned()), ..Self::default() }, program))
        } else {
            let cpus = text.strip_prefix(Self::CPUS)?;
            Ok((Self { cpus: Some(cpus.to_owned()), ..Self::default() }, text))
        };
        Some(level)
    }

    /// Returns true if the level changes nothing about commands.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the words of a command at this level.
    pub fn words(&self, command: &Command) -> Vec<String> {
        let program = self.program.iter().cloned();
        if command.shell {
            let line = command.command.first().cloned().unwrap_or_default();
            let arguments: Vec<String> = self.arguments.iter().map(|word| text::shell(word)).collect();
            let arguments = arguments.join(" ");
            let line = match line.contains(ARGUMENTS) {
                true => line.replace(ARGUMENTS, &arguments),
                false if arguments.is_empty() => line,
                false => format!("{line} {arguments}"),
            };
            return vec![line];
        }
        let (first, rest) =
            command.command.split_first().map_or((None, [].as_slice()), |(first, rest)| (Some(first), rest));
        let words = program.chain(first.filter(|_| self.program.is_none()).cloned());
        let has_place = rest.iter().any(|word| word == ARGUMENTS);
        let places =
            rest.iter().flat_map(|word| if word == ARGUMENTS { self.arguments.clone() } else { vec![word.clone()] });
        let last = if has_place { Vec::new() } else { self.arguments.clone() };
        words.chain(places).chain(last).collect()
    }

    /// Returns the bytes of a size of this level. `check` has accepted the text.
    pub fn bytes(text: Option<&String>) -> Option<u64> {
        text.and_then(|text| parse_size(text).ok())
    }

    /// Refuses values that cannot be set.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |message: String, hint: &str| Err(Error::usage(message).hint(hint.to_owned()));
        let words = self.arguments.iter().chain(&self.program);
        if words.clone().any(|word| word.contains('\0'))
            || words.map(String::len).sum::<usize>() > limits::COMMAND_BYTES_MAX
        {
            return refused(
                "the level's arguments or its program contain a zero byte, or have more than 1 MB".into(),
                "remove the zero byte or shorten the arguments, because the kernel does not accept them",
            );
        }
        if self.program.as_ref().is_some_and(|program| program.trim().is_empty()) {
            return refused(
                "the key `program` of the level is empty".into(),
                "set `program` to the name or the path of a program",
            );
        }
        if let Some(cpus) = self.cpus.as_ref().filter(|cpus| cpu_list(cpus).is_none()) {
            return refused(
                format!("the key `cpus` of the level, `{}`, is not a list of CPUs", cpus.escape_debug()),
                "write CPU numbers or ranges, such as 0-3,8",
            );
        }
        if let Some(nice) = self.nice.filter(|nice| !(-20..=19).contains(nice)) {
            return refused(format!("nice = {nice} is not allowed"), "`nice` must be from -20 to 19");
        }
        if let Some(cpus) = self.cpus_max.filter(|cpus| !(0.01..=10_000.0).contains(cpus)) {
            return refused(
                format!("cpus_max = {cpus} is not allowed"),
                "`cpus_max` must be from 0.01 to 10000; 1 means one CPU",
            );
        }
        let sizes = [
            ("memory_max", &self.memory_max, limits::COMMAND_MEMORY_LEAST),
            ("read_max", &self.read_max, 1),
            ("write_max", &self.write_max, 1),
        ];
        for (name, size, least) in sizes {
            let Some(size) = size else { continue };
            if parse_size(size).map_err(|error| error.at(name))? < least {
                return refused(
                    format!("{name} = {size} is not allowed"),
                    &format!("the value must be at least {least} bytes"),
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_program_take_their_places() {
        let level = |text: &str| CommandLevel::of_text(text).unwrap().unwrap().0;
        let words =
            |line: &str, text: &str| level(text).words(&Command::new(line.split(' ').map(String::from).collect()));
        assert_eq!(words("cc {arguments} a.c", "args:-O3 '-D x'"), ["cc", "-O3", "-D x", "a.c"]);
        assert_eq!(words("cc a.c", "args:-O3"), ["cc", "a.c", "-O3"]);
        assert_eq!(words("cc {arguments} a.c", "args:"), ["cc", "a.c"]);
        assert_eq!(words("cc a.c", "program:./new cc"), ["./new cc", "a.c"]);
        let shell = Command::from_shell_line("a {arguments} | b").unwrap();
        assert_eq!(level("args:-x 'y z'").words(&shell), ["a -x 'y z' | b"]);
        assert_eq!(level("args:-x").words(&Command::from_shell_line("a | b").unwrap()), ["a | b -x"]);
        assert!(CommandLevel::of_text("args:a | b").unwrap().is_err() && CommandLevel::of_text("plain").is_none());
    }

    #[test]
    fn impossible_values_are_refused() {
        let check = |text: &str| toml::from_str::<CommandLevel>(text).unwrap().check();
        check("cpus = '0-1'\nnice = -20\nmemory_max = '64m'\ncpus_max = 0.5\nread_max = '1m'\npage_cache = 'warm'\nhuge_pages = 'never'").unwrap();
        for text in [
            "cpus = 'x'",
            "nice = 20",
            "memory_max = '1k'",
            "memory_max = 'x'",
            "cpus_max = 0.0",
            "cpus_max = nan",
            "write_max = '0'",
            "program = ' '",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
