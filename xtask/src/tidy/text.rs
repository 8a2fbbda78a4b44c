//! Rules for text files: ends of lines and files, size, the first line of a source file, and words that mark unfinished work.
//!
//! The rules apply to every text file, data and lock files included; only sources and prose have a size limit. Lines of CSV files
//! may end in CR LF, as RFC 4180 specifies.

use super::Problem;
use super::tree::File;

/// The greatest number of lines of a source or a document. A longer file usually contains more than one idea.
const LINES_MAX: usize = 600;

/// Pages that may be longer: a task writes the first one from other files, and the second one has a line for each promise.
const LISTS: [&str; 2] = ["docs/rfcs.md", "SPECIFICATION.md"];

/// Words that mark unfinished work. They are split in two here, so that this file does not contain them.
const UNFINISHED: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("db", "g!("),
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
];

/// Checks one file.
pub(crate) fn check(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (path, text) = (file.path.as_str(), file.text.as_str());
    problems.extend(trailing_space(path, text));
    for (number, line) in (1..).zip(text.lines()) {
        for word in UNFINISHED.into_iter().filter(|word| contains_word(line, word)) {
            problems.push(Problem::at(path, number, format!("`{word}` marks unfinished work")));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        problems.push(Problem::new(path, "it does not end with a newline"));
    }
    let is_rust = path.ends_with(".rs");
    if is_rust && !text.starts_with("//!") {
        problems.push(Problem::at(path, 1, "a source opens with `//!`: what it is, its contract, what it does not do"));
    }
    let lines = text.lines().count();
    let is_written = is_rust || (path.ends_with(".md") && !LISTS.contains(&path));
    if is_written && lines > LINES_MAX {
        problems.push(Problem::new(path, format!("{lines} lines, the limit is {LINES_MAX}")));
    }
    problems
}

/// Returns one problem for the complete file, at the first line with trailing space, because an editor usually adds it to many
/// lines at once.
fn trailing_space(path: &str, text: &str) -> Option<Problem> {
    let line_end = if path.ends_with(".csv") { "\r" } else { "" };
    let lines = (1..).zip(text.split('\n').map(|line| line.strip_suffix(line_end).unwrap_or(line)));
    let mut found = lines.filter(|(_, line)| line.ends_with(char::is_whitespace)).map(|(number, _)| number);
    let first = found.next()?;
    let what = match found.count() {
        0 => "white space at the end of the line".to_owned(),
        others => format!("white space at the end of the line, and of {others} more below"),
    };
    Some(Problem::at(path, first, what))
}

/// Whether `line` contains `word` other than as a part of a longer name.
pub(crate) fn contains_word(line: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    let open_ended = !word.ends_with(in_name);
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !before.ends_with(in_name) && (open_ended || !after.starts_with(in_name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&File { path: path.to_owned(), text: text.to_owned() }).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_plain_source_passes() {
        assert_eq!(found("a.rs", "//! A.\n\nfn a() {}\n"), [""; 0]);
        assert_eq!(found("empty.txt", ""), [""; 0]);
    }

    #[test]
    fn white_space_at_the_end_is_found() {
        for line in ["a ", "a\t", "a\r", " "] {
            assert_eq!(found("a.toml", &format!("x\n{line}\n")), ["a.toml:2: white space at the end of the line"]);
        }
        let many = "white space at the end of the line, and of 2 more below";
        assert_eq!(found("a.toml", "a \nb \nc \n"), [format!("a.toml:1: {many}")]);
    }

    #[test]
    fn csv_may_end_its_lines_as_its_standard_says() {
        assert_eq!(found("a.csv", "a,b\r\n1,2\r\n"), [""; 0]);
        assert_eq!(found("a.csv", "a,b\r\n1,2 \r\n"), ["a.csv:2: white space at the end of the line"]);
    }

    #[test]
    fn a_missing_newline_is_found() {
        assert_eq!(found("a.md", "a"), ["a.md: it does not end with a newline"]);
    }

    #[test]
    fn a_source_without_its_opening_is_found() {
        for text in ["", "\n//! A.\n", "// A.\n", "#![no_std]\n//! A.\n"] {
            assert_eq!(found("a.rs", text).len(), 1, "{text:?}");
        }
    }

    #[test]
    fn a_long_file_is_found_and_long_data_is_not() {
        let text = format!("//! A.\n{}", "//\n".repeat(LINES_MAX));
        assert_eq!(found("a.rs", &text), ["a.rs: 601 lines, the limit is 600"]);
        assert_eq!(found("a.md", &text).len(), 1);
        assert_eq!(found("Cargo.lock", &text), [""; 0]);
        assert_eq!(found("docs/rfcs.md", &text), [""; 0], "a task writes this page");
        assert_eq!(found("a.rs", &text[..text.len() - 3]), [""; 0]);
    }

    #[test]
    fn each_mark_of_unfinished_work_is_found() {
        for word in UNFINISHED {
            let text = format!("a\n// {word} b\n");
            assert_eq!(found("a.toml", &text), [format!("a.toml:2: `{word}` marks unfinished work")]);
        }
    }

    #[test]
    fn a_word_inside_a_longer_name_is_not_it() {
        assert!(contains_word("if unsafe {", "unsafe"));
        assert!(contains_word("x.unsafe", "unsafe"));
        assert!(!contains_word("deny(unsafe_code)", "unsafe"));
        assert!(!contains_word("an_unsafe thing", "unsafe"));
        assert!(!contains_word("mktemp run.XXXXXXXX", UNFINISHED[2]));
        assert!(contains_word(&format!("{}x)", UNFINISHED[3]), UNFINISHED[3]));
    }
}
