//! One field of a rule: what it accepts.

use crate::explanation::Reason;
use crate::names::{Name, is_of_spelling};
use crate::pattern::{Pattern, TextPattern};

/// What one field of a rule accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldEntries<P> {
    /// Whatever is asked: by the `*` at this place, or because the field is empty.
    Any(Option<usize>),
    /// What one of the entries matches; nothing if there are none.
    Only(Vec<Entry<P>>),
    /// What none of the entries matches.
    AllBut(Vec<Entry<P>>),
}

/// A pattern, and its place in the field as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<P> {
    pub(crate) place: usize,
    pub(crate) pattern: P,
}

/// What an empty field means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    /// Everything.
    Any,
    /// Nothing.
    Nothing,
}

/// How many values a request has of what a field is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Exactly one: a verb, a name.
    One,
    /// Any number: groups.
    Several,
}

impl<P: Pattern> FieldEntries<P> {
    /// Reads a field. A `*` makes it match everything; entries without `-` make those with it void.
    pub(crate) fn parse(texts: &[String], empty: Empty) -> Self {
        if let Some(place) = texts.iter().position(|text| text == "*") {
            return Self::Any(Some(place));
        }
        if texts.is_empty() && empty == Empty::Any {
            return Self::Any(None);
        }
        let (mut only, mut but) = (Vec::new(), Vec::new());
        for (place, text) in texts.iter().enumerate() {
            match text.strip_prefix('-') {
                None => only.push(Entry { place, pattern: P::parse(text) }),
                Some(text) => but.push((text, place)),
            }
        }
        // Whoever excludes everything accepts nothing.
        if !only.is_empty() || but.is_empty() || but.iter().any(|(text, _)| *text == "*") {
            return Self::Only(only);
        }
        Self::AllBut(but.into_iter().map(|(text, place)| Entry { place, pattern: P::parse(text) }).collect())
    }

    /// Whether the field accepts a request, and by which entry.
    pub(crate) fn verdict<'a>(&self, asked: impl Iterator<Item = P::Asked<'a>> + Clone) -> Reason {
        let is_meant = |pattern: &P| asked.clone().any(|value| pattern.matches(value));
        self.verdict_by(is_meant, is_meant)
    }

    /// As [`verdict`](Self::verdict), by what an entry matches and what an inverted one does.
    fn verdict_by(&self, is_named: impl Fn(&P) -> bool, is_excluded: impl Fn(&P) -> bool) -> Reason {
        match self {
            Self::Any(None) => Reason::Empty,
            Self::Any(Some(place)) => Reason::Entry(*place),
            Self::Only(entries) => first(entries, is_named).map_or(Reason::NoEntry, Reason::Entry),
            Self::AllBut(entries) => first(entries, is_excluded).map_or(Reason::NotExcluded, Reason::Excluded),
        }
    }

    /// Whether the field surely accepts whatever the other one does. `false` proves nothing.
    pub(crate) fn covers(&self, other: &Self, values: Values) -> bool {
        match (self, other) {
            (Self::Any(_), _) => true,
            (Self::Only(mine), Self::Only(theirs)) => all_covered(theirs, mine),
            (Self::AllBut(mine), Self::AllBut(theirs)) => all_covered(mine, theirs),
            (Self::AllBut(mine), Self::Only(theirs)) => {
                // Of a user who is in an accepted group it is not known in which others they are.
                values == Values::One
                    && !mine.iter().any(|mine| theirs.iter().any(|theirs| mine.pattern.overlaps(&theirs.pattern)))
            }
            (Self::Only(_), _) | (Self::AllBut(_), Self::Any(_)) => false,
        }
    }

    /// Whether it accepts nothing at all.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Only(entries) if entries.is_empty())
    }
}

impl FieldEntries<TextPattern> {
    /// As [`verdict`](Self::verdict), of the names of objects, in a policy that denies or in another one.
    pub(crate) fn verdict_of_name(&self, name: Name<'_>, denies: bool) -> Reason {
        let (wide, narrow) = (|entry: &TextPattern| name.is_wide(entry), |entry: &TextPattern| name.is_narrow(entry));
        match denies {
            true => self.verdict_by(wide, narrow),
            false => self.verdict_by(narrow, wide),
        }
    }

    /// Whether an entry is about how a name is spelled.
    pub(crate) fn has_spellings(&self) -> bool {
        match self {
            Self::Any(_) => false,
            Self::Only(entries) | Self::AllBut(entries) => {
                entries.iter().any(|entry| is_of_spelling(entry.pattern.text()))
            }
        }
    }
}

/// The place of the first entry that is meant.
fn first<P>(entries: &[Entry<P>], is_meant: impl Fn(&P) -> bool) -> Option<usize> {
    entries.iter().find(|entry| is_meant(&entry.pattern)).map(|entry| entry.place)
}

fn all_covered<P: Pattern>(these: &[Entry<P>], by: &[Entry<P>]) -> bool {
    these.iter().all(|this| by.iter().any(|one| one.pattern.covers(&this.pattern)))
}
