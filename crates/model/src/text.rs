//! Makes untrusted text safe for the place that shows it, and cuts it to a limit.
//!
//! The names in a record can come from anyone. In text for people, invisible characters and characters that change the text
//! direction are replaced. In CSV, a field cannot become a formula. In Markdown, a name cannot end a table cell or begin an HTML
//! element. JSON for programs keeps every character. A guest's text reaches the log, messages to other guests, and terminals, so
//! siga cuts such text when reading it.

use crate::limits::TEXT_BYTES_MAX;
use serde::{Deserialize, Deserializer};
use std::fmt::Write;

/// Shortens a text to at most `bytes_max` bytes without splitting a character.
pub fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

/// Deserializes a string and cuts it to [`TEXT_BYTES_MAX`], for `#[serde(deserialize_with)]`.
///
/// # Errors
/// The value is not a string.
pub fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| cut(text, TEXT_BYTES_MAX))
}

/// Deserializes an optional string like [`bounded`].
///
/// # Errors
/// The value is not a string.
pub fn bounded_option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from).map(|text| text.map(|text| cut(text, TEXT_BYTES_MAX)))
}

/// Returns true for invisible characters that change how other text appears: control characters, line separators, characters that
/// set the text direction, and those around annotations, which mark colours in reports.
pub fn is_unseen(letter: char) -> bool {
    let turns = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
    );
    turns || letter.is_control()
}

/// Replaces the invisible characters of a text, except line breaks.
pub fn lines(text: &str) -> String {
    text.replace(|letter: char| is_unseen(letter) && letter != '\n', "\u{fffd}")
}

/// Replaces the invisible characters of a name, including line breaks.
pub fn name(text: &str) -> String {
    text.replace(is_unseen, "\u{fffd}")
}

/// Escapes a name for one line of Markdown. The result cannot end a table cell, and cannot begin an HTML element or code.
pub fn markdown(text: &str) -> String {
    let mut safe = String::new();
    for letter in name(text).chars() {
        if matches!(letter, '|' | '<' | '`' | '\\') {
            safe.push('\\');
        }
        safe.push(letter);
    }
    safe
}

/// Escapes a field of CSV: the result is one line, and no spreadsheet executes it as a formula.
pub fn field(text: &str) -> String {
    let plain = name(text);
    let formula = plain.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    if formula { format!("'{plain}") } else { plain }
}

/// Quotes a word for a shell if it needs quoting.
pub fn shell(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "%+,-./:=@_[]".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Replaces the invisible characters in a JSON text by escapes. The line breaks between its values stay.
pub fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_unseen(letter) && letter != '\n' {
            // These characters are not part of JSON's syntax, so they occur in strings only. Each fits into 16 bits.
            let _ = write!(safe, "\\u{:04x}", u32::from(letter));
        } else {
            safe.push(letter);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_text_is_one_line_and_no_formula() {
        for (text, wanted) in [
            ("plain", "plain"),
            ("a,\"b\"", "a,\"b\""),
            ("a\r\nb\u{85}\u{202e}", "a\u{fffd}\u{fffd}b\u{fffd}\u{fffd}"),
            ("=1+1", "'=1+1"),
            ("+a", "'+a"),
            ("-a", "'-a"),
            ("@a", "'@a"),
            ("＝a", "'＝a"),
            ("\t=a", "\u{fffd}=a"),
            ("", ""),
        ] {
            assert_eq!(field(text), wanted);
        }
    }

    #[test]
    fn a_name_cannot_leave_its_line_or_column() {
        assert_eq!(name("a\n\u{2067}b"), "a\u{fffd}\u{fffd}b");
        assert_eq!(markdown("a|b<c>`d`\\|\n"), "a\\|b\\<c>\\`d\\`\\\\\\|\u{fffd}");
        assert_eq!(lines("a\n\u{1b}[31m\u{feff}"), "a\n\u{fffd}[31m\u{fffd}");
    }

    #[test]
    fn a_word_is_one_word_to_a_shell() {
        for (text, wanted) in
            [("-oA=b", "-oA=b"), ("a b", "'a b'"), ("", "''"), ("it's $x", "'it'\\''s $x'"), ("a\nb", "'a\nb'")]
        {
            assert_eq!(shell(text), wanted);
        }
    }

    #[test]
    fn json_keeps_every_letter() {
        let value = serde_json::json!({ "a\u{202e}": "b\n\u{7f}\u{2028}" });
        let safe = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(safe.chars().all(|letter| letter == '\n' || !is_unseen(letter)), "{safe:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
