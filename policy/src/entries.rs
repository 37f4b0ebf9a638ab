//! The entries of one field of a rule.

use crate::explanation::Reason;
use crate::names::{Name, is_of_spelling};
use crate::pattern::{Pattern, TextPattern};

/// The values that a field accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldEntries<P> {
    /// Every value, because of the `*` at this index, or because the field is empty.
    Any(Option<usize>),
    /// Values that match an entry; no value if there are no entries.
    Only(Vec<Entry<P>>),
    /// Values that match no entry.
    AllBut(Vec<Entry<P>>),
}

/// A pattern with its index in the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<P> {
    pub(crate) place: usize,
    pub(crate) pattern: P,
}

/// The meaning of an empty field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    /// An empty field matches every value.
    Any,
    /// An empty field matches no value.
    Nothing,
}

/// The number of values that a request has for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// A single value: for example the verb or the name.
    One,
    /// Any number of values: the groups of the user.
    Several,
}

impl<P: Pattern> FieldEntries<P> {
    /// Parses a field. With a `*` the field matches everything. Entries without `-` make the inverted entries void.
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
        // A field with `-*` accepts no value.
        if !only.is_empty() || but.is_empty() || but.iter().any(|(text, _)| *text == "*") {
            return Self::Only(only);
        }
        Self::AllBut(but.into_iter().map(|(text, place)| Entry { place, pattern: P::parse(text) }).collect())
    }

    /// Whether the field accepts a request, and the entry that decides.
    pub(crate) fn verdict<'a>(&self, asked: impl Iterator<Item = P::Asked<'a>> + Clone) -> Reason {
        let is_match = |pattern: &P| asked.clone().any(|value| pattern.matches(value));
        self.verdict_by(is_match, is_match)
    }

    /// As [`verdict`](Self::verdict), with separate matchers for entries and for inverted entries.
    fn verdict_by(&self, is_named: impl Fn(&P) -> bool, is_excluded: impl Fn(&P) -> bool) -> Reason {
        match self {
            Self::Any(None) => Reason::Empty,
            Self::Any(Some(place)) => Reason::Entry(*place),
            Self::Only(entries) => first(entries, is_named).map_or(Reason::NoEntry, Reason::Entry),
            Self::AllBut(entries) => first(entries, is_excluded).map_or(Reason::NotExcluded, Reason::Excluded),
        }
    }

    /// Whether the field certainly accepts all values that `other` accepts. `false` means "unknown".
    pub(crate) fn covers(&self, other: &Self, values: Values) -> bool {
        match (self, other) {
            (Self::Any(_), _) => true,
            (Self::Only(mine), Self::Only(theirs)) => all_covered(theirs, mine),
            (Self::AllBut(mine), Self::AllBut(theirs)) => all_covered(mine, theirs),
            (Self::AllBut(mine), Self::Only(theirs)) => {
                // A user in an accepted group may also be in an excluded group.
                values == Values::One
                    && !mine.iter().any(|mine| theirs.iter().any(|theirs| mine.pattern.overlaps(&theirs.pattern)))
            }
            (Self::Only(_), _) | (Self::AllBut(_), Self::Any(_)) => false,
        }
    }

    /// Whether the field accepts no value.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Only(entries) if entries.is_empty())
    }
}

impl FieldEntries<TextPattern> {
    /// As [`verdict`](Self::verdict), for the name of the object, which may have several spellings.
    pub(crate) fn verdict_of_name(&self, name: Name<'_>, denies: bool) -> Reason {
        let (wide, narrow) = (|entry: &TextPattern| name.is_wide(entry), |entry: &TextPattern| name.is_narrow(entry));
        match denies {
            true => self.verdict_by(wide, narrow),
            false => self.verdict_by(narrow, wide),
        }
    }

    /// Whether an entry contains a colon and so matches a spelling of the name.
    pub(crate) fn has_spellings(&self) -> bool {
        match self {
            Self::Any(_) => false,
            Self::Only(entries) | Self::AllBut(entries) => {
                entries.iter().any(|entry| is_of_spelling(entry.pattern.text()))
            }
        }
    }
}

/// The index of the first entry that matches.
fn first<P>(entries: &[Entry<P>], is_match: impl Fn(&P) -> bool) -> Option<usize> {
    entries.iter().find(|entry| is_match(&entry.pattern)).map(|entry| entry.place)
}

fn all_covered<P: Pattern>(these: &[Entry<P>], by: &[Entry<P>]) -> bool {
    these.iter().all(|this| by.iter().any(|one| one.pattern.covers(&this.pattern)))
}
