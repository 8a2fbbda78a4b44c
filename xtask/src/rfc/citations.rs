//! Finds citations in sources: comments that name a requirement by its number. Each citation refers to an item or a test.
//!
//! A citation is the complete number, such as `MUST-17`, in a comment; a comment may have several. In code, a citation is inside
//! the function that applies the rule, or above the item that does. In tests, a citation is above or inside a function that is
//! marked `#[test]`. The scan is no parser: it relies on the lines and the indentation that rustfmt produces.

use super::data::Id;
use crate::tidy::Problem;
use crate::tidy::tree::File;

/// A requirement named in a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Citation {
    pub(super) id: Id,
    pub(super) path: String,
    /// The line number, counted from 1.
    pub(super) line: usize,
    /// The function, test, type or field to which the citation refers.
    pub(super) item: String,
    pub(super) in_test: bool,
}

/// The parts of a source file in which the scan looks for items.
struct Source<'a> {
    path: &'a str,
    lines: Vec<&'a str>,
    /// The line at which the tests begin, counted from 0.
    tests_from: usize,
}

/// Finds the citations in all sources, and reports citations that do not have the required form.
pub(super) fn find(files: &[File]) -> (Vec<Citation>, Vec<Problem>) {
    let sources: Vec<&File> = files.iter().filter(|file| file.path.ends_with(".rs")).collect();
    let test_modules: Vec<String> = sources.iter().flat_map(|file| test_modules(file)).collect();
    let (mut citations, mut problems) = (Vec::new(), Vec::new());
    for file in sources {
        let is_test = file.path.contains("/tests/") || test_modules.iter().any(|module| is_in(&file.path, module));
        let lines: Vec<&str> = file.text.lines().collect();
        let tests_from = if is_test { 0 } else { inner_tests(&lines).unwrap_or(lines.len()) };
        let source = Source { path: &file.path, lines, tests_from };
        for at in 0..source.lines.len() {
            source.cited_at(at, &mut citations, &mut problems);
        }
    }
    (citations, problems)
}

impl Source<'_> {
    fn cited_at(&self, at: usize, citations: &mut Vec<Citation>, problems: &mut Vec<Problem>) {
        let Some((code, comment)) = split_comment(self.lines[at]) else { return };
        let (ids, shortened) = ids_in(comment);
        if shortened {
            problems.push(Problem::at(self.path, at + 1, "each requirement is cited by its number in full"));
        }
        if ids.is_empty() {
            return;
        }
        let in_test = at >= self.tests_from;
        let place = self.item_of(at, code, comment);
        let item = place.and_then(|place| item_name(self.lines[place]).map(|name| (place, name)));
        let item = item.filter(|(place, _)| !in_test || self.is_test(*place));
        let Some((_, item)) = item else {
            let what = if in_test { "a test" } else { "an item of code" };
            problems.push(Problem::at(self.path, at + 1, format!("a citation stands above or inside {what}")));
            return;
        };
        for id in ids {
            let (path, item) = (self.path.to_owned(), item.to_owned());
            citations.push(Citation { id, path, line: at + 1, item, in_test });
        }
    }

    /// Returns the line of the item to which a comment refers: the function around the comment, the item on the same line, or the
    /// next item below.
    fn item_of(&self, at: usize, code: &str, comment: &str) -> Option<usize> {
        if comment.starts_with('!') {
            return None;
        }
        let is_doc = comment.starts_with('/');
        if let Some(function) = self.function_around(at).filter(|_| !is_doc) {
            return Some(function);
        }
        if !code.trim().is_empty() {
            return Some(at);
        }
        let skipped = |line: &str| line.is_empty() || line.starts_with("//") || line.starts_with("#[");
        (at + 1..self.lines.len()).find(|line| !skipped(self.lines[*line].trim()))
    }

    fn function_around(&self, at: usize) -> Option<usize> {
        let mut below = indent(self.lines[at]);
        for place in (0..at).rev() {
            let line = self.lines[place];
            let text = line.trim();
            // The last line of a signature has the same indentation as the first, so it must not count as the enclosing item.
            if text.is_empty() || text.starts_with(')') || text.starts_with("where") || text == "{" {
                continue;
            }
            if indent(line) < below {
                below = indent(line);
                if is_function(text) {
                    return Some(place);
                }
            }
        }
        None
    }

    /// Whether the function at line `place` is marked as a test.
    fn is_test(&self, place: usize) -> bool {
        let above = self.lines[..place].iter().rev().map(|line| line.trim());
        let mut marks = above.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        is_function(self.lines[place].trim()) && marks.any(|line| line == "#[test]")
    }
}

/// Returns the paths, without `.rs`, of modules that are compiled only for tests.
fn test_modules(file: &File) -> Vec<String> {
    let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    let folder = match stem.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder,
        Some(_) | None => stem,
    };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]");
    let names = pairs.filter_map(|pair| pair[1].strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')));
    names.map(|name| format!("{folder}/{name}")).collect()
}

fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Returns the line at which the test module at the end of a source begins.
fn inner_tests(lines: &[&str]) -> Option<usize> {
    lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'))
}

/// Splits a line into the code and the text after `//`; `None` if the line has no comment.
fn split_comment(line: &str) -> Option<(&str, &str)> {
    line.match_indices("//").map(|(at, _)| line.split_at(at)).find_map(|(code, comment)| {
        let quotes = code.replace("\\\"", "").matches('"').count();
        quotes.is_multiple_of(2).then(|| (code, &comment[2..]))
    })
}

/// Returns the requirements in a comment, and whether the comment abbreviates a number (`MUST-20 to 23`).
fn ids_in(comment: &str) -> (Vec<Id>, bool) {
    let (mut ids, mut shortened) = (Vec::new(), false);
    for (at, _) in comment.match_indices('-') {
        let (before, after) = (&comment[..at], &comment[at + 1..]);
        let level = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Some(id) = Id::new(level, &after[..digits]) else { continue };
        ids.push(id);
        let rest = after[digits..].trim_start();
        let joined = ["to ", "and ", "or ", ",", "-", "/", "–", "&"].iter().find_map(|word| rest.strip_prefix(word));
        shortened |= joined.is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    }
    (ids, shortened)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_function(line: &str) -> bool {
    words(line).any(|word| word == "fn") && !line.starts_with("//")
}

/// Splits the beginning of a line into at most six words.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split([' ', '(', '<', ':', ')', ',', '{', ';', '=']).filter(|word| !word.is_empty()).take(6)
}

/// Returns the name of the item that begins on a line.
fn item_name(line: &str) -> Option<&str> {
    const KINDS: [&str; 13] =
        ["pub", "crate", "super", "const", "async", "unsafe", "static", "fn", "struct", "enum", "trait", "type", "mod"];
    words(line.trim()).find(|word| !KINDS.contains(word)).filter(|name| {
        name.chars().all(|c| c.is_alphanumeric() || c == '_')
            && !matches!(*name, "let" | "if" | "match" | "impl" | "use")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> (Vec<String>, Vec<String>) {
        let mut files = vec![File { path: path.to_owned(), text: text.to_owned() }];
        let parent = "#[cfg(test)]\nmod pair;\n#[cfg(test)]\nmod tests;\n";
        files.push(File { path: "crates/a/src/tcp.rs".to_owned(), text: parent.to_owned() });
        let (citations, problems) = find(&files);
        let kind = |in_test| if in_test { "test" } else { "code" };
        let show = |cited: &Citation| format!("{} {} {}:{}", cited.id, kind(cited.in_test), cited.item, cited.line);
        (citations.iter().map(show).collect(), problems.iter().map(Problem::to_string).collect())
    }

    const SOURCE: &str = "//! A.

/// Tests (MUST-1).
pub(crate) fn one() {}

struct A {
    /// A window, MUST-2.
    field: u32,
}

impl A {
    /// MUST-3, and SHLD-4: two in a line.
    #[inline]
    pub const fn two(
        &self,
    ) -> Self {
        // MUST-5.
        let a = \"MUST-6 // MUST-7\"; // MAY-8
        match a {
            // REC-1.
            _ => {}
        }
    }
}

/// See section 3.8.
const B: u32 = 3; // SHLD-9

#[cfg(test)]
mod tests {
    // MUST-10: says so.
    #[test]
    fn holds() {
        // MUST-11.
    }
}
";

    #[test]
    fn a_citation_belongs_to_its_function_item_or_test() {
        let (citations, problems) = found("crates/a/src/a.rs", SOURCE);
        assert_eq!(problems, [""; 0]);
        let expected = [
            "MUST-1 code one:3",
            "MUST-2 code field:7",
            "MUST-3 code two:12",
            "SHLD-4 code two:12",
            "MUST-5 code two:17",
            "MAY-8 code two:18",
            "REC-1 code two:20",
            "SHLD-9 code B:27",
            "MUST-10 test holds:31",
            "MUST-11 test holds:34",
        ];
        assert_eq!(citations, expected);
    }

    #[test]
    fn a_module_for_tests_holds_tests_alone() {
        for path in ["crates/a/src/tcp/pair.rs", "crates/a/src/tcp/tests/flow.rs", "crates/a/tests/dialogue/tcp.rs"] {
            let (citations, _) = found(path, "//! A.\n// MUST-1\n#[test]\nfn a() {}\n");
            assert_eq!(citations, ["MUST-1 test a:2"], "{path}");
            let (citations, problems) = found(path, "//! A.\n// MUST-1\nfn helper() {}\n");
            assert_eq!(citations, [""; 0]);
            assert_eq!(problems, [format!("{path}:2: a citation stands above or inside a test")]);
        }
    }

    #[test]
    fn a_citation_that_is_not_written_in_full_is_found() {
        for text in ["MUST-20 to 23", "MUST-15 and 16", "MUST-1, 2", "SHLD-1/2", "MUST-1-3"] {
            let (_, problems) = found("crates/a/src/a.rs", &format!("// {text}\nfn a() {{}}\n"));
            assert_eq!(problems, ["crates/a/src/a.rs:1: each requirement is cited by its number in full"], "{text}");
        }
        let (citations, problems) =
            found("crates/a/src/a.rs", "// MUST-28 (two hours) and 9 more, MUST-9b\nfn a() {}\n");
        assert_eq!((citations.len(), problems.len()), (2, 0));
    }

    #[test]
    fn a_citation_that_stands_for_nothing_is_found() {
        for text in ["//! MUST-1\nfn a() {}\n", "// MUST-1\n"] {
            let (citations, problems) = found("crates/a/src/a.rs", text);
            assert_eq!(citations, [""; 0]);
            assert_eq!(problems, ["crates/a/src/a.rs:1: a citation stands above or inside an item of code"]);
        }
    }
}
