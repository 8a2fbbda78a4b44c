//! Extracts the prose of a file: paragraphs of Markdown, or the comments of a Rust source.
//!
//! A paragraph is a list of words with their lines. Headings, tables, code blocks and HTML are left out. A list item is a
//! paragraph of its own. A code span counts as one word; a link counts as the words of its text.

use super::code::comments_only;
use super::tree::File;

/// A word with its punctuation, as written in the text, and its line number, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Word {
    /// Whether a sentence ends with this word, which a bracket or quotation mark may follow.
    pub(crate) fn ends_sentence(&self) -> bool {
        self.text.trim_end_matches(['"', '\'', ')', '*', '_', '”']).ends_with(['.', '!', '?'])
    }

    /// Returns the word without punctuation; empty for a code span.
    pub(crate) fn bare(&self) -> &str {
        if self.text.contains('`') { "" } else { self.text.trim_matches(|c: char| !c.is_alphanumeric()) }
    }
}

/// A paragraph, a list item, or one comment.
pub(crate) type Paragraph = Vec<Word>;

/// Returns the paragraphs of a Markdown document or of a Rust source's comments. Other files have none.
pub(crate) fn paragraphs(file: &File) -> Vec<Paragraph> {
    let comments;
    let lines: Vec<(usize, &str)> = if file.path.ends_with(".md") {
        (1..).zip(file.text.lines()).collect()
    } else if file.path.ends_with(".rs") {
        comments = comments_only(&file.text);
        (1..).zip(comments.lines().map(|line| without_mark(line.trim()))).collect()
    } else {
        Vec::new()
    };
    let mut paragraphs: Vec<Vec<Word>> = Vec::new();
    let mut open = Vec::new();
    let mut in_code = false;
    for (number, line) in lines {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        let is_prose = !in_code && !is_fence && !line.starts_with(['#', '|', '<']);
        let item = item(line);
        if !is_prose || line.is_empty() || item.is_some() {
            paragraphs.push(std::mem::take(&mut open));
        }
        if is_prose {
            let words = item.unwrap_or(line).split_whitespace();
            open.extend(words.map(|text| Word { text: text.to_owned(), line: number }));
        }
    }
    paragraphs.push(open);
    paragraphs.into_iter().filter(|words| !words.is_empty()).map(join_spans).collect()
}

/// Returns a comment's line without the comment mark.
fn without_mark(line: &str) -> &str {
    ["//!", "///", "//", "/*", "*"].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line)
}

/// Returns the text after the mark of a list item or a quotation; `None` if the line has no mark.
fn item(line: &str) -> Option<&str> {
    let bullet = ["- ", "* ", "> "].iter().find_map(|mark| line.strip_prefix(mark));
    bullet.or_else(|| line.split_once(". ").filter(|(number, _)| number.parse::<u32>().is_ok()).map(|(_, rest)| rest))
}

/// Joins the words of each code span, and of each link address, into one word.
fn join_spans(words: Vec<Word>) -> Paragraph {
    let mut joined: Paragraph = Vec::new();
    for word in words {
        match joined.last_mut().filter(|last| last.text.matches('`').count() % 2 == 1) {
            Some(last) => last.text.push_str(&word.text),
            None => joined.push(word),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, text: &str) -> Vec<String> {
        let words = |paragraph: Paragraph| paragraph.into_iter().map(|word| word.text).collect::<Vec<_>>().join(" ");
        paragraphs(&File { path: path.to_owned(), text: text.to_owned() }).into_iter().map(words).collect()
    }

    #[test]
    fn paragraphs_and_items_are_prose_and_headings_tables_and_code_are_not() {
        let document = "# A b\n\nc\nd.\n\n| e | f |\n|---|---|\n\n```\ng\n```\n- h\n  i\n- j\n1. k\n> l\n";
        assert_eq!(text("a.md", document), ["c d.", "h i", "j", "k", "l"]);
    }

    #[test]
    fn comments_are_prose_and_code_is_not() {
        let source =
            "//! A\n//! b.\n\nfn c() { \"// d\" } // e\n/// f\n///\n/// ```\n/// g();\n/// ```\n// h\n/* i */\n";
        assert_eq!(text("a.rs", source), ["A b.", "e f", "h i */"]);
        assert_eq!(text("a.toml", "# A\n"), [""; 0]);
    }

    #[test]
    fn a_code_span_is_one_word() {
        assert_eq!(text("a.md", "a `b c\nd` e\n"), ["a `bcd` e"]);
    }
}
