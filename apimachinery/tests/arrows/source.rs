//! Removes comments, strings and tests from a file's source.

/// Replaces comments, the contents of strings and test modules by spaces. The line numbers do not change.
pub(crate) fn code(text: &str) -> String {
    without_tests(without_comments(text.as_bytes().to_vec()))
}

fn blank(text: &mut [u8]) {
    text.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

fn without_comments(mut text: Vec<u8>) -> String {
    let mut at = 0;
    while at < text.len() {
        let end = end_of_prose(&text, at);
        match end {
            Some(end) => {
                blank(&mut text[at..end]);
                at = end;
            }
            None => at += 1,
        }
    }
    String::from_utf8(text).unwrap()
}

/// Returns the end of the comment or literal at `at`; `None` for any other code.
fn end_of_prose(text: &[u8], at: usize) -> Option<usize> {
    let rest = &text[at..];
    let is_in_name = at > 0 && (text[at - 1].is_ascii_alphanumeric() || text[at - 1] == b'_');
    let end_of = |from: usize, end: &[u8]| {
        let found = rest[from..].windows(end.len()).position(|window| window == end);
        Some(found.map_or(text.len(), |found| at + from + found + end.len()))
    };
    match rest {
        [b'/', b'/', ..] => Some(rest.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| at + end)),
        [b'/', b'*', ..] => end_of(2, b"*/"),
        [b'r', b'"' | b'#', ..] | [b'b', b'r', b'"' | b'#', ..] if !is_in_name => {
            let from = rest.iter().position(|byte| matches!(byte, b'"' | b'#'))?;
            let hashes = rest[from..].iter().take_while(|byte| **byte == b'#').count();
            // `r#` without a quote is not a raw string but begins an identifier such as `r#type`.
            (rest.get(from + hashes) == Some(&b'"')).then_some(())?;
            let end = [&b"\""[..], &b"#".repeat(hashes)].concat();
            end_of(from + hashes + 1, &end)
        }
        [b'"', ..] => {
            let mut end = 1;
            while end < rest.len() && rest[end] != b'"' {
                end += if rest[end] == b'\\' { 2 } else { 1 };
            }
            Some(at + (end + 1).min(rest.len()))
        }
        // A quote without a closing quote begins a lifetime, not a literal.
        [b'\'', b'\\', _, ..] => end_of(3, b"'"),
        [b'\'', ..] => {
            let width =
                std::str::from_utf8(&rest[1..rest.len().min(5)]).map_or_else(|error| error.valid_up_to(), str::len);
            let first = std::str::from_utf8(&rest[1..1 + width]).ok()?.chars().next()?.len_utf8();
            (rest.get(1 + first) == Some(&b'\'')).then_some(at + first + 2)
        }
        _ => None,
    }
}

fn without_tests(text: String) -> String {
    let mut text = text.into_bytes();
    for attribute in ["#[cfg(test", "#[cfg(all(test", "#[cfg(any(test"] {
        let mut from = 0;
        while let Some(found) = text[from..].windows(attribute.len()).position(|window| window == attribute.as_bytes())
        {
            let begin = from + found;
            let end = end_of_item(&text, begin);
            blank(&mut text[begin..end]);
            from = end;
        }
    }
    String::from_utf8(text).unwrap()
}

/// Returns the end of the item whose attributes begin at `begin`.
fn end_of_item(text: &[u8], begin: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.iter().enumerate().skip(begin) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(byte, b';' | b'}') {
            return at + 1;
        }
    }
    text.len()
}

#[test]
fn comments_strings_and_tests_are_removed_from_rust_source() {
    let text = "use a; // use b;
let x = \"use c; \\\" use d;\"; /* use e;
 */ let y: &'static str = r#\"use f;\"#;
let z = ('\"', '\\'', 'ü'); use g;
#[cfg(test)]
#[allow(x)]
mod tests {
    use h; fn i() {}
}
use j;
";
    let code = code(text);
    assert_eq!(code.lines().count(), text.lines().count());
    let left: Vec<&str> = code.split("use ").skip(1).map(|rest| rest.split(';').next().unwrap()).collect();
    assert_eq!(left, ["a", "g", "j"]);
}
