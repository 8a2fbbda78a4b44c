//! Finds words and sentence forms that readers had to read twice, so that they do not return.
//!
//! The rules check comments of Rust sources and Markdown prose. There are few rules, and each has a reason.

use super::Problem;
use super::prose::{Paragraph, Word, paragraphs};
use super::tree::File;

/// The greatest number of words in a sentence of a document.
///
/// A reader has to remember the complete sentence. Authors aim at 25 words; a sentence of more than 35 words can always be split.
const SENTENCE_WORDS_MAX: usize = 35;

/// Forbidden phrases, each with the reason and the replacement.
const PHRASES: [(&str, &str); 12] = [
    ("so many", "it reads as an exclamation; write how many, `as many as` or `up to`"),
    ("goes by", "a thing has a name and follows a rule; say which"),
    ("go by", "a thing has a name and follows a rule; say which"),
    ("tells", TOLD),
    ("is told", TOLD),
    ("are told", TOLD),
    ("was told", TOLD),
    ("were told", TOLD),
    ("be told", TOLD),
    ("been told", TOLD),
    ("being told", TOLD),
    ("tell of", TOLD),
];
const TOLD: &str =
    "only people are told something; a process receives a message, a report shows a figure, a field says something";

/// A sentence that begins with one of these words has no actor, so the reader has to guess whom it is about.
const HEADLESS: [&str; 2] = ["Who", "Whoever"];

/// The paths to which the rules apply: directory trees (with a final `/`) and single files. README.md has longer
/// sentences, and docs/rfcs.md is generated.
const RULED: [&str; 23] = [
    "crates/",
    "xtask/",
    "fuzz/",
    "docs/commands.md",
    "docs/comparing.md",
    "docs/decisions/",
    "docs/exec.md",
    "docs/export.md",
    "docs/extending.md",
    "docs/glossary.md",
    "docs/linux-differences.md",
    "docs/measuring.md",
    "docs/mutants.md",
    "docs/net.md",
    "docs/reading.md",
    "docs/reports.md",
    "docs/sockets.md",
    "docs/tap.md",
    "docs/why.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "SPECIFICATION.md",
];

/// Applies the rules to those of `files` that are in [`RULED`].
pub(crate) fn check(files: &[File]) -> Vec<Problem> {
    files.iter().filter(|file| RULED.iter().any(|ruled| file.path.starts_with(ruled))).flat_map(check_file).collect()
}

/// Applies the rules to one file.
fn check_file(file: &File) -> Vec<Problem> {
    let is_document = file.path.ends_with(".md");
    let mut problems = Vec::new();
    for paragraph in paragraphs(file) {
        problems.extend(phrases(&file.path, &paragraph));
        for sentence in paragraph.split_inclusive(Word::ends_sentence) {
            problems.extend(headless(&file.path, sentence));
            if is_document {
                problems.extend(too_long(&file.path, sentence));
            }
        }
    }
    problems
}

fn phrases(path: &str, paragraph: &Paragraph) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, word) in paragraph.iter().enumerate() {
        for (phrase, reason) in PHRASES {
            let mut rest = paragraph[at..].iter();
            if phrase.split(' ').all(|part| rest.next().is_some_and(|word| word.bare().eq_ignore_ascii_case(part))) {
                problems.push(Problem::at(path, word.line, format!("`{phrase}`: {reason}")));
            }
        }
    }
    problems
}

/// Returns a problem if the sentence has no actor. A question may begin with these words.
fn headless(path: &str, sentence: &[Word]) -> Option<Problem> {
    let (first, last) = (sentence.first()?, sentence.last()?);
    let is_question = last.text.contains('?');
    let what = format!("a sentence begins with `{}`: name the actor with a noun", first.bare());
    (HEADLESS.contains(&first.bare()) && !is_question).then(|| Problem::at(path, first.line, what))
}

fn too_long(path: &str, sentence: &[Word]) -> Option<Problem> {
    let count = sentence.iter().filter(|word| word.text.contains(char::is_alphanumeric)).count();
    let what = format!("a sentence of {count} words, the limit is {SENTENCE_WORDS_MAX}");
    (count > SENTENCE_WORDS_MAX).then(|| Problem::at(path, sentence[0].line, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check_file(&File { path: path.to_owned(), text: text.to_owned() }).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_sentence_without_an_actor_is_found_and_a_question_is_not() {
        let found = |text| found("a.rs", text).len();
        assert_eq!(found("// Who sleeps moves.\n"), 1);
        assert_eq!(found("/// A b. Whoever\n/// asks waits.\n"), 1);
        assert_eq!(found("// Who asks? The guest. Guests who ask wait.\n"), 0);
        assert_eq!(found("let who = \"Who asks waits\"; // `Who` is a name\n"), 0);
    }

    #[test]
    fn each_phrase_is_found_over_the_end_of_a_line_and_in_any_case() {
        for (phrase, reason) in PHRASES {
            let text = format!("A b\n{}, c.\n", phrase.replace(' ', "\n").to_uppercase());
            assert_eq!(found("a.md", &text), [format!("a.md:2: `{phrase}`: {reason}")]);
        }
        assert_eq!(found("a.md", "`tells` and retells, so few, going by train, told.\n"), [""; 0]);
    }

    #[test]
    fn a_long_sentence_is_found_in_a_document_only() {
        let longest = format!("{}b.", "a ".repeat(SENTENCE_WORDS_MAX - 1));
        assert_eq!(found("a.md", &format!("{longest} {longest}\n- {longest}\n")), [""; 0]);
        assert_eq!(
            found("a.md", &format!("A.\n`a b` - {longest}\n")),
            ["a.md:2: a sentence of 36 words, the limit is 35"]
        );
        assert_eq!(found("a.rs", &format!("// a {longest}\n")), [""; 0]);
        for text in [format!("| a {longest} |\n"), format!("# a {longest}\n"), format!("```\na {longest}\n```\n")] {
            assert_eq!(found("a.md", &text), [""; 0]);
        }
    }
}
