//! Rules for the form of comments.

use std::fmt;

use crate::comments::{Comment, Mark};

/// Vague words: a reader has to guess the noun to which the word refers.
const VAGUE: &[&str] = &[
    "another",
    "anybody",
    "anything",
    "as",
    "else",
    "everybody",
    "everything",
    "he",
    "her",
    "him",
    "his",
    "it",
    "its",
    "itself",
    "many",
    "much",
    "nobody",
    "none",
    "nothing",
    "one",
    "ones",
    "other",
    "others",
    "she",
    "so",
    "somebody",
    "someone",
    "something",
    "such",
    "that",
    "their",
    "them",
    "themselves",
    "there",
    "these",
    "they",
    "this",
    "those",
    "what",
    "whatever",
    "which",
    "whichever",
    "who",
    "whoever",
    "whom",
    "whose",
];

/// First words of a sentence whose subject is not a noun, for example "nobody".
const OPENERS: &[&str] = &[
    "another",
    "everybody",
    "he",
    "it",
    "nobody",
    "none",
    "nothing",
    "one",
    "ones",
    "others",
    "somebody",
    "such",
    "that",
    "these",
    "they",
    "this",
    "those",
    "what",
    "who",
    "whoever",
    "whom",
    "whose",
];

/// First words of a clause that replaces a noun, for example "by what".
const CLAUSES: &[&str] = &[
    "by what",
    "by which",
    "by whom",
    "for what",
    "for which",
    "for whom",
    "from what",
    "from whom",
    "how many of it",
    "how much of it",
    "in what",
    "in which",
    "of that",
    "of those",
    "of what",
    "of which",
    "of whom",
    "to what",
    "to whom",
    "with what",
    "with whom",
];

/// The maximum number of words in a sentence. Longer sentences are hard to follow.
const SENTENCE_MAX: usize = 45;

/// Smallest share of vague words that makes a comment unclear.
const VAGUE_MAX: f64 = 0.25;

/// The rule that a comment breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The first sentence has no noun as its subject.
    NoSubject,
    /// At least a quarter of the words are vague.
    Vague,
    /// The comment has fewer than four words, hardly more than the name of the item.
    Empty,
    LongSentence,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSubject => "begin with a noun or a verb",
            Self::Vague => "name the things",
            Self::Empty => "say more than the name, or delete",
            Self::LongSentence => "a sentence of more than 45 words",
        })
    }
}

/// Returns the first rule that a comment breaks, or `None` for a good comment.
pub(crate) fn judge(comment: &Comment) -> Option<Broken> {
    let paragraphs = paragraphs(comment);
    let text = paragraphs.join(" ");
    let words = words(&text);
    let has_name = words.iter().any(|word| word == "`name`");
    if words.is_empty() {
        return None;
    }
    if comment.mark == Mark::Item && words.len() < 4 && !has_name {
        return Some(Broken::Empty);
    }
    // A comment of fewer than six words beside a line of code may begin with "this", because the word refers to the
    // line.
    let is_remark = comment.mark == Mark::Inside && words.len() < 6;
    if !is_remark && begins_without_noun(&paragraphs[0]) {
        return Some(Broken::NoSubject);
    }
    let vague = words.iter().filter(|word| VAGUE.contains(&word.as_str())).count();
    if words.len() >= 6 && vague as f64 / words.len() as f64 >= VAGUE_MAX {
        return Some(Broken::Vague);
    }
    let is_long = |sentence: &str| self::words(sentence).len() > SENTENCE_MAX;
    text.split_inclusive(". ").any(is_long).then_some(Broken::LongSentence)
}

/// Returns the running text of a comment, without lists, tables and headings. Each `code` span becomes one word.
fn paragraphs(comment: &Comment) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in &comment.lines {
        let line = line.trim();
        match (line.is_empty(), line.starts_with(['#', '|', '*', '-'])) {
            (true, _) | (_, true) => paragraphs.push(String::new()),
            _ => {
                let last = paragraphs.len() - 1;
                paragraphs[last].push_str(line);
                paragraphs[last].push(' ');
            }
        }
    }
    let code = |text: String| {
        let pieces = text.split('`').enumerate();
        pieces.map(|(index, piece)| if index % 2 == 1 { " `name` ".to_owned() } else { piece.to_owned() }).collect()
    };
    paragraphs.into_iter().filter(|text| !text.trim().is_empty()).map(code).collect::<Vec<String>>()
}

/// Splits a text into words in lower case. The word `name` in backquotes stands for a code span.
fn words(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphabetic() || matches!(c, '\'' | '’' | '`' | '-');
    let pieces = text.split(|c| !is_word(c)).filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '`'));
    pieces.map(str::to_lowercase).collect()
}

fn begins_without_noun(text: &str) -> bool {
    let words = words(text);
    let Some(first) = words.first() else { return false };
    let begins = |clause: &&str| clause.split(' ').eq(words.iter().take(clause.split(' ').count()).map(String::as_str));
    // "this crate" and "such a request" contain a noun after the vague word.
    let has_noun = matches!(first.as_str(), "this" | "these" | "those" | "such" | "another" | "one" | "that");
    let second = words.get(1).map_or("", String::as_str);
    let is_clause = matches!(
        second,
        "is" | "are" | "of" | "that" | "which" | "who" | "for" | "has" | "have" | "says" | "may" | "can" | "to"
    );
    (OPENERS.contains(&first.as_str()) && (!has_noun || is_clause)) || CLAUSES.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comments;

    fn judged(comment: &str) -> Option<Broken> {
        judge(&comments::parse(comment)[0])
    }

    #[test]
    fn comment_sentence_without_a_grammatical_subject_is_reported() {
        assert_eq!(judged("/// What is held of a cluster, for somebody."), Some(Broken::NoSubject));
        assert_eq!(judged("/// Those that have room for the answer."), Some(Broken::NoSubject));
        assert_eq!(judged("/// Of which members a union is made."), Some(Broken::NoSubject));
        assert_eq!(judged("/// Objects of a cluster, ordered by name."), None);
        assert_eq!(judged("/// This crate knows no cache and no view."), None);
    }

    #[test]
    fn comment_of_vague_words_is_reported() {
        assert_eq!(judged("/// Tells them that it is so for those others."), Some(Broken::Vague));
    }

    #[test]
    fn short_comment_is_reported_only_before_items() {
        assert_eq!(judged("/// The file."), Some(Broken::Empty));
        assert_eq!(judged("/// Seconds since `start`."), None);
        assert_eq!(judged("// The file."), None);
    }

    #[test]
    fn long_sentence_is_reported() {
        let sentence = format!("/// Cluster {}.", "and cluster ".repeat(30));
        assert_eq!(judged(&sentence), Some(Broken::LongSentence));
    }
}
