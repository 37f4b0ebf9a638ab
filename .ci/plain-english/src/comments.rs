//! Finds the comments in Rust files.

/// Mark at the beginning of each line of a comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The mark `///`, before an item.
    Item,
    /// The mark `//!`, at the beginning of a module.
    Module,
    /// The mark `//`, inside code.
    Inside,
}

/// A comment: adjacent lines with one kind of mark (`///`, `//!` or `//`). Fenced examples are left out.
#[derive(Debug)]
pub(crate) struct Comment {
    /// The number of the first line, counted from 1.
    pub(crate) line: usize,
    pub(crate) mark: Mark,
    pub(crate) lines: Vec<String>,
}

impl Comment {
    /// Returns the first 120 characters of the comment, which the list of findings shows.
    pub(crate) fn beginning(&self) -> String {
        self.lines.join(" ").chars().take(120).collect()
    }
}

pub(crate) fn parse(text: &str) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    let (mut previous, mut is_in_fence) = (None, false);
    for (index, line) in text.lines().enumerate() {
        let Some((mark, content)) = split_mark(line.trim_start()) else {
            previous = None;
            continue;
        };
        if previous != Some(mark) {
            comments.push(Comment { line: index + 1, mark, lines: Vec::new() });
            is_in_fence = false;
        }
        previous = Some(mark);
        if content.trim_start().starts_with("```") {
            is_in_fence = !is_in_fence;
        } else if let (false, Some(comment)) = (is_in_fence, comments.last_mut()) {
            comment.lines.push(content.to_owned());
        }
    }
    comments
}

fn split_mark(line: &str) -> Option<(Mark, &str)> {
    let marks = [("///", Mark::Item), ("//!", Mark::Module), ("//", Mark::Inside)];
    let (text, mark) = marks.into_iter().find(|(text, _)| line.starts_with(text))?;
    let content = &line[text.len()..];
    // Lines with four slashes are parts of drawings, not comments.
    if content.starts_with('/') { None } else { Some((mark, content.strip_prefix(' ').unwrap_or(content))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_lines_with_the_same_comment_mark_are_one_comment() {
        let text = "//! Module.\n//! More.\n\n/// Item.\n/// ```\n/// example\n/// ```\n// Inside.\nfn f() {}\n";
        let found: Vec<_> = parse(text).into_iter().map(|own| (own.line, own.mark, own.lines.join("|"))).collect();
        let wanted = [
            (1, Mark::Module, "Module.|More.".to_owned()),
            (4, Mark::Item, "Item.".to_owned()),
            (8, Mark::Inside, "Inside.".to_owned()),
        ];
        assert_eq!(found, wanted);
    }
}
