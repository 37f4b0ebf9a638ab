//! Finds the paths that a source file names.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) path: Vec<String>,
    /// The local name of the path's target.
    pub(crate) name: String,
    /// The line, counted from one.
    pub(crate) line: usize,
    /// Whether the `use` re-exports the name, so that other files may use it through this file.
    pub(crate) exported: bool,
}

/// Splits the code into identifiers and symbols, with their lines. `::` is one symbol.
fn tokens(code: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (line, text) in code.lines().enumerate() {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let end = match first {
                _ if is_name(first) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            if !first.is_whitespace() {
                found.push((&rest[..end], line + 1));
            }
            rest = &rest[end..];
        }
    }
    found
}

/// Returns all `use` lines, and all other paths that begin with `crate`, `super` or `self`.
pub(crate) fn uses(code: &str) -> Vec<Use> {
    let tokens = tokens(code);
    let text = |at: usize| tokens.get(at).map_or("", |(text, _)| *text);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let line = tokens[at].1;
        let before = at.checked_sub(1).map_or("", text);
        if text(at) == "use" {
            // The symbol before an exported `use` is `pub`, or the closing parenthesis of `pub(crate)`. A parenthesis
            // precedes no other `use`.
            let exported = matches!(before, "pub" | ")");
            at += 1;
            tree(&tokens, &mut at, &[], &mut |path, name| {
                found.push(Use { path, name, line, exported });
            });
        } else if matches!(text(at), "crate" | "super" | "self") && text(at + 1) == "::" && before != "::" {
            let mut path = vec![text(at).to_owned()];
            at += 1;
            while text(at) == "::" && text(at + 1).starts_with(|c: char| c.is_alphabetic() || c == '_') {
                path.push(text(at + 1).to_owned());
                at += 2;
            }
            found.push(Use { name: String::new(), path, line, exported: false });
        } else {
            at += 1;
        }
    }
    found
}

/// Splits the tree of a `use` line: `a::{b, c as d}` becomes `a::b` and `a::c`.
fn tree(tokens: &[(&str, usize)], at: &mut usize, before: &[String], found: &mut impl FnMut(Vec<String>, String)) {
    let text = |at: usize| tokens.get(at).map_or(";", |(text, _)| *text);
    let mut path = before.to_vec();
    loop {
        match text(*at) {
            "{" => {
                *at += 1;
                while !matches!(text(*at), "}" | ";") {
                    tree(tokens, at, &path, found);
                    if text(*at) == "," {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "," | "}" | ";" => break,
            "as" => {
                let name = text(*at + 1).to_owned();
                *at += 2;
                return found(path, name);
            }
            "::" => *at += 1,
            "self" if !path.is_empty() => *at += 1,
            name => {
                path.push(name.to_owned());
                *at += 1;
            }
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    found(path, name);
}

#[test]
fn rust_use_trees_are_split_into_paths() {
    let code =
        "use crate::a::{self, B, c::{D as E, F}};\npub(crate) use g::*;\nfn h() { super::i::J::k(); x.crate_::y }";
    let found: Vec<String> = uses(code)
        .iter()
        .map(|u| format!("{}{} {} {}", if u.exported { "+" } else { "" }, u.line, u.path.join("::"), u.name))
        .collect();
    let expected = [
        "1 crate::a a",
        "1 crate::a::B B",
        "1 crate::a::c::D E",
        "1 crate::a::c::F F",
        "+2 g::* *",
        "3 super::i::J::k ",
    ];
    assert_eq!(found, expected);
}
