//! The entries of one field of a policy rule, for example `verbs`.

use crate::explanation::Reason;
use crate::names::{Name, is_of_spelling};
use crate::pattern::{Pattern, TextPattern};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldEntries<P> {
    /// The field accepts every value, because of the `*` at this index, or because the field is empty.
    Any(Option<usize>),
    /// The field accepts values that match an entry. Without entries, the field accepts no value.
    Only(Vec<Entry<P>>),
    /// The field accepts values that match no entry.
    AllBut(Vec<Entry<P>>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<P> {
    pub(crate) place: usize,
    pub(crate) pattern: P,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    Any,
    Nothing,
}

/// Number of values that a request has for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// One value, for example the verb.
    One,
    /// Any number of values: the groups of the user.
    Several,
}

impl<P: Pattern> FieldEntries<P> {
    /// Parses a field. An entry `*` matches every value. If the field has entries without `-`, its inverted entries
    /// (`-x`) have no effect.
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
        // A field with the entry `-*` accepts no value.
        if !only.is_empty() || but.is_empty() || but.iter().any(|(text, _)| *text == "*") {
            return Self::Only(only);
        }
        Self::AllBut(but.into_iter().map(|(text, place)| Entry { place, pattern: P::parse(text) }).collect())
    }

    /// Returns whether the field accepts the values of a request, and the index of the deciding entry.
    pub(crate) fn verdict<'a>(&self, asked: impl Iterator<Item = P::Asked<'a>> + Clone) -> Reason {
        let is_match = |pattern: &P| asked.clone().any(|value| pattern.matches(value));
        self.verdict_by(is_match, is_match)
    }

    /// Like [`verdict`](Self::verdict), with separate matchers for entries and for inverted entries.
    fn verdict_by(&self, is_named: impl Fn(&P) -> bool, is_excluded: impl Fn(&P) -> bool) -> Reason {
        match self {
            Self::Any(None) => Reason::Empty,
            Self::Any(Some(place)) => Reason::Entry(*place),
            Self::Only(entries) => first(entries, is_named).map_or(Reason::NoEntry, Reason::Entry),
            Self::AllBut(entries) => first(entries, is_excluded).map_or(Reason::NotExcluded, Reason::Excluded),
        }
    }

    /// Returns `true` if the field certainly accepts all values that `other` accepts. `false` means "unknown".
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

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Only(entries) if entries.is_empty())
    }
}

impl FieldEntries<TextPattern> {
    /// Like [`verdict`](Self::verdict), for an object's name, which may have several spellings.
    pub(crate) fn verdict_of_name(&self, name: Name<'_>, denies: bool) -> Reason {
        let (wide, narrow) = (|entry: &TextPattern| name.is_wide(entry), |entry: &TextPattern| name.is_narrow(entry));
        match denies {
            true => self.verdict_by(wide, narrow),
            false => self.verdict_by(narrow, wide),
        }
    }

    /// Returns whether an entry contains a colon, and so matches a spelling in the path instead of the object's name.
    pub(crate) fn has_spellings(&self) -> bool {
        match self {
            Self::Any(_) => false,
            Self::Only(entries) | Self::AllBut(entries) => {
                entries.iter().any(|entry| is_of_spelling(entry.pattern.text()))
            }
        }
    }
}

fn first<P>(entries: &[Entry<P>], is_match: impl Fn(&P) -> bool) -> Option<usize> {
    entries.iter().find(|entry| is_match(&entry.pattern)).map(|entry| entry.place)
}

fn all_covered<P: Pattern>(these: &[Entry<P>], by: &[Entry<P>]) -> bool {
    these.iter().all(|this| by.iter().any(|one| one.pattern.covers(&this.pattern)))
}
