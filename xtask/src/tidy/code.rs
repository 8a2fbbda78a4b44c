//! Splits a Rust source into code and comments, without a parser.
//!
//! Each function returns a text with as many lines as its input, so that line numbers stay valid. Spaces replace the parts that
//! the caller did not ask for.

use std::iter;

/// Returns only the comments, documentation included; spaces replace code and literals.
pub(crate) fn comments_only(text: &str) -> String {
    split(text, |kind| matches!(kind, Kind::Comment))
}

/// Returns the text with spaces in place of comments and literals. Line numbers do not change.
pub(crate) fn code_only(text: &str) -> String {
    split(text, |kind| matches!(kind, Kind::Code))
}

/// Returns `code` (from [`code_only`]) with spaces in place of each item with `#[cfg(test)]`.
pub(crate) fn without_tests(code: &str) -> String {
    let mut chars: Vec<char> = code.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let is_test = ["#[cfg(test)]", "#[cfg(all(test"].iter().any(|mark| starts_with(&chars[at..], mark));
        let end = if is_test { at + item_length(&chars[at..]) } else { at };
        chars[at..end].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
        at = end.max(at + 1);
    }
    chars.into_iter().collect()
}

fn starts_with(chars: &[char], prefix: &str) -> bool {
    prefix.chars().enumerate().all(|(i, c)| chars.get(i) == Some(&c))
}

/// Returns the length of the item at the start of `chars`. An item ends with a `;` or with the `}` that closes its body.
fn item_length(chars: &[char]) -> usize {
    let mut depth = 0_usize;
    for (at, c) in chars.iter().enumerate() {
        match c {
            '(' | '[' | '{' => depth += 1,
            '}' if depth <= 1 => return at + depth,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    chars.len()
}

/// The kind of a piece of source text.
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Returns `text` with spaces in place of all pieces for which `keep` returns false.
fn split(text: &str, keep: impl Fn(&Kind) -> bool) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let (kind, length) = match rest {
            ['/', '/', ..] => (Kind::Comment, line_comment(rest)),
            ['/', '*', ..] => (Kind::Comment, block_comment(rest)),
            ['"', ..] => (Kind::Literal, string(rest)),
            ['\'', ..] => (Kind::Literal, character(rest)),
            ['r', ..] if starts_token(&chars[..at]) => (Kind::Literal, raw_string(rest)),
            _ => (Kind::Code, 1),
        };
        // Length 0 means that no literal starts here, but a lifetime or a name that begins with `r`.
        let (kind, length) = if length == 0 { (Kind::Code, 1) } else { (kind, length) };
        let is_kept = keep(&kind);
        kept.extend(rest[..length].iter().map(|&c| if is_kept || c == '\n' { c } else { ' ' }));
        at += length;
    }
    kept
}

/// Whether a literal can start after `before`: at the start of a token, or after its prefix `b` or `c`.
fn starts_token(before: &[char]) -> bool {
    let in_name = |c: &char| c.is_alphanumeric() || *c == '_';
    match before {
        [head @ .., 'b' | 'c'] => !head.last().is_some_and(in_name),
        _ => !before.last().is_some_and(in_name),
    }
}

fn line_comment(rest: &[char]) -> usize {
    rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] if depth == 1 => return at + 2,
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '"' => return at + 1,
            '\\' => at += 2,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a character literal, or 0 for a lifetime.
fn character(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', escaped @ ..] => {
            let close = escaped.iter().skip(1).position(|&c| c == '\'');
            close.map_or(rest.len(), |close| close + 4)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

/// Returns the length of a raw string that starts with `r`, or 0 if something else starts there.
fn raw_string(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let closing: Vec<char> = iter::once('"').chain(iter::repeat_n('#', hashes)).collect();
    let open = hashes + 2;
    let close = rest[open..].windows(closing.len()).position(|window| window == closing);
    close.map_or(rest.len(), |close| open + close + closing.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanking_keeps_lines_and_the_rest_of_the_code() {
        assert_eq!(code_only("a /* b\nc */ d // e\nf"), "a     \n     d     \nf");
        assert_eq!(code_only("var(\"x\", 'y', r#\"z\"#, r#fn)"), "var(   ,    ,       , r#fn)");
        assert_eq!(code_only("\"open"), "     ");
    }

    #[test]
    fn comments_are_split_from_code_and_literals() {
        assert_eq!(comments_only("a /* b\nc */ \"// d\" // e\nf"), "  /* b\nc */        // e\n ");
        assert_eq!(comments_only("'/' // a"), "    // a");
    }

    #[test]
    fn items_behind_cfg_test_are_blanked() {
        for (code, rest) in [
            ("#[cfg(test)]\nmod a {\n fn b() { c[0]; }\n}\nd", "d"),
            ("#[cfg(test)] use a::{b, c};\nd", "d"),
            ("#[cfg(test)]\n#[rustfmt::skip]\nmod tests;\nd", "d"),
            ("#[cfg(all(test, unix))] fn a(b: [u8; 2]) -> c { e }\nd", "d"),
            ("struct a {\n#[cfg(test)]\n b: c }\nd", "struct a { } d"),
            ("#[cfg(any(test, a))] fn b() {}", "#[cfg(any(test, a))] fn b() {}"),
        ] {
            let blanked = without_tests(code);
            assert_eq!(blanked.lines().count(), code.lines().count(), "{code}");
            let words = blanked.replace(';', " ").split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words, rest, "{code}");
        }
    }
}
