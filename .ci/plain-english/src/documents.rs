//! Finds vague words in documents. A word is vague if a reader has to guess the noun to which the word refers.

/// Vague words that technical documents rarely need. Pronouns like "it" are not in this list, because documents need
/// pronouns.
const VAGUE: &[&str] = &[
    "another",
    "anybody",
    "anything",
    "else",
    "everybody",
    "everything",
    "nobody",
    "none",
    "nothing",
    "ones",
    "others",
    "somebody",
    "someone",
    "something",
    "those",
    "what",
    "whatever",
    "whichever",
    "who",
    "whoever",
    "whom",
    "whose",
    "themselves",
];

pub(crate) fn is_vague(word: &str) -> bool {
    VAGUE.contains(&word)
}

/// Returns the words of a page in lower case, without code and the targets of links.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut is_in_fence = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_in_fence = !is_in_fence;
        } else if !is_in_fence {
            let line = without_targets(&without_code(line));
            let is_word = |c: char| c.is_alphabetic() || c == '\'';
            words.extend(line.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_lowercase));
        }
    }
    words
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" name ")
}

fn without_targets(line: &str) -> String {
    let mut pieces = line.split("](");
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept.push(' ');
        kept.push_str(piece.split_once(')').map_or("", |(_, rest)| rest));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_markdown_text_exclude_code_and_link_targets() {
        let text = "See [the page](whose/path.md) and `who --am-i`.\n```\nnobody\n```\n";
        assert_eq!(words(text), ["see", "the", "page", "and", "name"]);
    }
}
