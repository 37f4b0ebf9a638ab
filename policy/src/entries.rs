//! The entries of one field of a policy rule, for example `verbs`.

use crate::explanation::Reason;
use crate::names::{Name, is_spelling};
use crate::pattern::{Pattern, TextPattern};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldEntries<P> {
    /// The field accepts every value, because the entry with this index is `*`, or because the field is empty.
    Any(Option<usize>),
    /// The field accepts values that match one of these entries. If there are no entries, the field accepts no value.
    Only(Vec<Entry<P>>),
    /// The field accepts values that match none of these entries.
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
    /// The request has one value, for example the verb.
    One,
    /// The request has any number of values, for example the groups of the user.
    Several,
}

impl<P: Pattern> FieldEntries<P> {
    /// Parses a field. An entry `*` matches every value. If the field has an entry without `-`, its inverted entries
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

    /// Returns whether the field accepts the values of a request, with the index of the entry that decides.
    pub(crate) fn verdict<'a>(&self, values: impl Iterator<Item = P::Value<'a>> + Clone) -> Reason {
        let is_match = |pattern: &P| values.clone().any(|value| pattern.matches(value));
        self.verdict_by(is_match, is_match)
    }

    /// Like [`verdict`](Self::verdict), but compares ordinary entries with `is_named`, and inverted entries with
    /// `is_excluded`.
    fn verdict_by(&self, is_named: impl Fn(&P) -> bool, is_excluded: impl Fn(&P) -> bool) -> Reason {
        match self {
            Self::Any(None) => Reason::Empty,
            Self::Any(Some(place)) => Reason::Entry(*place),
            Self::Only(entries) => first(entries, is_named).map_or(Reason::NoEntry, Reason::Entry),
            Self::AllBut(entries) => first(entries, is_excluded).map_or(Reason::NotExcluded, Reason::Excluded),
        }
    }

    /// Returns `true` if this field certainly accepts all values that the field `other` accepts. `false` means that the
    /// result is unknown.
    pub(crate) fn covers(&self, other: &Self, values: Values) -> bool {
        match (self, other) {
            (Self::Any(_), _) => true,
            (Self::Only(mine), Self::Only(theirs)) => all_covered(theirs, mine),
            (Self::AllBut(mine), Self::AllBut(theirs)) => all_covered(mine, theirs),
            (Self::AllBut(mine), Self::Only(theirs)) => {
                // A request with several values may also have an excluded value: a user in an accepted group may be in
                // an excluded group, too.
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
    /// Like [`verdict`](Self::verdict), for the name of an object. The name may have several spellings in a path.
    pub(crate) fn name_verdict(&self, name: Name<'_>, denies: bool) -> Reason {
        let (wide, narrow) = (|entry: &TextPattern| name.is_wide(entry), |entry: &TextPattern| name.is_narrow(entry));
        match denies {
            true => self.verdict_by(wide, narrow),
            false => self.verdict_by(narrow, wide),
        }
    }

    /// Returns whether an entry contains a colon. Such an entry is compared with the spelling in the path and not with
    /// the object's name.
    pub(crate) fn has_spellings(&self) -> bool {
        match self {
            Self::Any(_) => false,
            Self::Only(entries) | Self::AllBut(entries) => {
                entries.iter().any(|entry| is_spelling(entry.pattern.text()))
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
