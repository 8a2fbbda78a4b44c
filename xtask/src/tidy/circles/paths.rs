//! Finds the paths that a Rust source uses: its `use` declarations and the paths in its code.
//!
//! The input is code without comments, literals and tests. Paths that a macro assembles are not found.

/// One path in a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// The names between the `::`.
    pub(super) parts: Vec<String>,
    /// The name that a `use` declaration binds to the path in this file; `None` for a glob, `as _` or a path in an expression.
    pub(super) alias: Option<String>,
    /// The line number, counted from 1.
    pub(super) line: usize,
}

#[derive(Debug)]
struct Token {
    text: String,
    line: usize,
}

/// Returns all paths in `code`, in order.
pub(super) fn paths(code: &str) -> Vec<Named> {
    let tokens = tokens(code);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if text(at) == "use" && text(at + 1) != "<" {
            at = tree(&tokens, at + 1, &[], &mut found);
        } else if is_name(text(at)) && text(at + 1) == "::" {
            let (line, mut parts) = (tokens[at].line, vec![text(at).to_owned()]);
            // In `<A as B>::c` and `a::<B>::c`, these names continue a path that starts elsewhere.
            let continues = at > 0 && text(at - 1) == "::";
            while text(at + 1) == "::" && is_name(text(at + 2)) {
                at += 2;
                parts.push(text(at).to_owned());
            }
            if !continues {
                found.push(Named { parts, alias: None, line });
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

/// Parses the `use` tree at token `at`, whose paths begin with `prefix`. Returns the index of the first token after the tree.
fn tree(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut parts = prefix.to_vec();
    if text(at) == "::" {
        // A path with a leading `::` names another crate, so it cannot resolve to a module of this crate.
        parts.push(String::new());
        at += 1;
    }
    let line = tokens.get(at).map_or(0, |token| token.line);
    loop {
        match text(at) {
            "{" => {
                at += 1;
                while !matches!(text(at), "}" | "") {
                    at = tree(tokens, at, &parts, found);
                    at += usize::from(text(at) == ",");
                }
                return at + 1;
            }
            "*" => {
                found.push(Named { parts, alias: None, line });
                return at + 1;
            }
            "self" if !parts.is_empty() => {}
            name if is_name(name) => parts.push(name.to_owned()),
            _ => return at + 1,
        }
        at += 1;
        match text(at) {
            "::" => at += 1,
            "as" => {
                let alias = Some(text(at + 1)).filter(|name| *name != "_").map(str::to_owned);
                found.push(Named { parts, alias, line });
                return at + 2;
            }
            _ => {
                let alias = parts.last().cloned();
                found.push(Named { parts, alias, line });
                return at;
            }
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_') && token != "use" && token != "as"
}

/// Splits code into names, `::` and single characters. `$crate` becomes `crate`, and `r#name` becomes `name`.
fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let in_name = |c: char| c.is_alphanumeric() || c == '_';
            let length = match first {
                c if in_name(c) => rest.find(|c| !in_name(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                c => c.len_utf8(),
            };
            if !matches!(&rest[..length], "$" | "#") && !rest.starts_with("r#") {
                tokens.push(Token { text: rest[..length].to_owned(), line });
            }
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<String> {
        let text = |named: &Named| match &named.alias {
            Some(alias) => format!("{} as {alias}", named.parts.join("::")),
            None => named.parts.join("::"),
        };
        paths(code).iter().map(text).collect()
    }

    #[test]
    fn every_leaf_of_a_use_tree_is_a_path_with_its_name() {
        assert_eq!(found("use a::b;"), ["a::b as b"]);
        assert_eq!(
            found("pub(crate) use a::{self, b::{c, d as e}, f::*};"),
            ["a as a", "a::b::c as c", "a::b::d as e", "a::f"]
        );
        assert_eq!(found("use a::{\n    b,\n    c,\n};\nuse d as _;"), ["a::b as b", "a::c as c", "d"]);
        assert_eq!(found("use ::a::b;"), ["::a::b as b"]);
        assert_eq!(found("use super::super::a; use self::r#mod::b;"), ["super::super::a as a", "self::mod::b as b"]);
    }

    #[test]
    fn paths_in_code_are_found_with_their_lines() {
        assert_eq!(found("fn a(b: crate::c::D) -> e::F { g::<H>::i() }"), ["crate::c::D", "e::F", "g"]);
        assert_eq!(found("$crate::a::b!()"), ["crate::a::b"]);
        assert_eq!(found("fn a() -> impl B + use<'c> { d(e) }"), [""; 0]);
        assert_eq!(paths("a\n\nb::c\n")[0].line, 3);
    }
}
