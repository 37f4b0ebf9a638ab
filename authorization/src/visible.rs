//! What somebody may do with the objects of one resource in one cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::share::GRANTED_WORDS_MAX;

/// In which namespaces, and with which names, somebody may do one thing (get, list, …) with one resource of one
/// cluster.
///
/// Cheap to clone, and a value: it holds until [`crate::FleetRights::generation_of`] changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// Everywhere, whatever the name.
    Whole,
    /// Only there. What is said twice is said once: a namespace that is allowed as a whole has no names of its own.
    Part(Arc<Part>),
}

/// What is not everything. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The namespaces that are allowed as a whole.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Names that are allowed in every namespace, and where there is none.
    pub names: BTreeSet<Arc<str>>,
    /// Names that are allowed in one namespace.
    pub names_within: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// How what somebody may see differs from what they could see before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisibleChange {
    /// Something is visible that was not.
    pub gains: bool,
    /// Something was visible that is not.
    pub losses: bool,
}

impl Part {
    /// Takes out what is said twice.
    pub(crate) fn simplified(mut self) -> Self {
        let Self { namespaces, names, names_within } = &mut self;
        names_within.retain(|namespace, own| {
            own.retain(|name| !names.contains(name));
            !own.is_empty() && !namespaces.contains(namespace)
        });
        self
    }

    fn allows(&self, namespace: &str, name: &str) -> bool {
        self.namespaces.contains(namespace)
            || self.names.contains(name)
            || self.names_within.get(namespace).is_some_and(|names| names.contains(name))
    }

    /// What both allow; `None` where that is made of more namespaces and names than are looked at: what one allows in a
    /// namespace as a whole, and the other for names in every namespace, comes once for each of both.
    fn within(&self, other: &Self) -> Option<Self> {
        let pairs = |one: &Self, other: &Self| one.namespaces.len().saturating_mul(other.names.len());
        if pairs(self, other).max(pairs(other, self)) > GRANTED_WORDS_MAX {
            return None;
        }
        let mut part = Self {
            namespaces: self.namespaces.intersection(&other.namespaces).cloned().collect(),
            names: self.names.intersection(&other.names).cloned().collect(),
            names_within: BTreeMap::new(),
        };
        for (one, other) in [(self, other), (other, self)] {
            let of_both = other.names_within.iter().flat_map(|(namespace, names)| {
                names.iter().filter(|name| one.allows(namespace, name)).map(move |name| (namespace, name))
            });
            let everywhere = one.namespaces.iter().flat_map(|own| other.names.iter().map(move |name| (own, name)));
            for (namespace, name) in of_both.chain(everywhere) {
                part.names_within.entry(Arc::clone(namespace)).or_default().insert(Arc::clone(name));
            }
        }
        Some(part.simplified())
    }

    fn covers(&self, other: &Self) -> bool {
        let within = |(namespace, names): (&Arc<str>, &BTreeSet<Arc<str>>)| {
            names.iter().all(|name| self.allows(namespace, name))
        };
        self.namespaces.is_superset(&other.namespaces)
            && self.names.is_superset(&other.names)
            && other.names_within.iter().all(within)
    }
}

impl Visible {
    /// Nothing.
    pub fn nothing() -> Self {
        Self::Part(Arc::default())
    }

    /// Whether it is nothing.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Part(part) if **part == Part::default())
    }

    /// Whether a request for this name in this namespace is allowed: what an authorizer would answer. An empty name is
    /// a request without one, an empty namespace one for all namespaces or for what has none. Costs three searches.
    pub fn allows(&self, namespace: &str, name: &str) -> bool {
        match self {
            Self::Whole => true,
            Self::Part(part) => part.allows(namespace, name),
        }
    }

    /// Whether a list without a name shows the objects of this namespace. What a list's filter asks of each object
    /// (empty for those without a namespace). A list of one name asks [`Self::allows`].
    pub fn lists(&self, namespace: &str) -> bool {
        self.allows(namespace, "")
    }

    /// Whether all that `other` allows is allowed.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole, _) => true,
            (Self::Part(_), Self::Whole) => false,
            (Self::Part(own), Self::Part(other)) => own.covers(other),
        }
    }

    /// What both this and `other` allow; `None` where that is made of more namespaces and names than are looked at
    /// ([`GRANTED_WORDS_MAX`]).
    pub fn within(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Whole, one) | (one, Self::Whole) => Some(one.clone()),
            (Self::Part(own), Self::Part(other)) => own.within(other).map(|part| Self::Part(Arc::new(part))),
        }
    }

    /// Of how many namespaces and names it is made.
    pub fn places(&self) -> usize {
        match self {
            Self::Whole => 0,
            Self::Part(part) => {
                let within: usize = part.names_within.values().map(BTreeSet::len).sum();
                part.namespaces.len() + part.names.len() + part.names_within.len() + within
            }
        }
    }

    /// What changes for somebody who could see this and now sees `now`.
    pub fn change(&self, now: &Self) -> VisibleChange {
        VisibleChange { gains: !self.covers(now), losses: !now.covers(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` a namespace, `/a` a name everywhere, `n/a` a name in a namespace, `*` everything.
    fn visible(text: &str) -> Visible {
        let mut part = Part::default();
        for word in text.split_whitespace() {
            match word.split_once('/') {
                _ if word == "*" => return Visible::Whole,
                None => part.namespaces.extend([word.into()]),
                Some(("", name)) => part.names.extend([name.into()]),
                Some((namespace, name)) => {
                    part.names_within.entry(namespace.into()).or_default().extend([name.into()]);
                }
            }
        }
        Visible::Part(Arc::new(part.simplified()))
    }

    #[test]
    fn a_change_tells_gains_from_losses() {
        let cases = [
            ("", "", false, false),
            ("", "n", true, false),
            ("n", "", false, true),
            ("n", "m", true, true),
            ("n m", "*", true, false),
            ("*", "n m", false, true),
            ("*", "*", false, false),
            ("n", "n n/a", false, false),
            ("n/a", "n", true, false),
            ("n/a", "/a", true, false),
            ("/a", "n/a", false, true),
            // No namespaces that are named are all of them.
            ("/a", "n m", true, true),
            ("n/a n/b", "n/a", false, true),
            ("n/a m/a", "/a n/a", true, false),
            ("n /a", "n /a m/a", false, false),
        ];
        for (before, now, gains, losses) in cases {
            let change = visible(before).change(&visible(now));
            assert_eq!(change, VisibleChange { gains, losses }, "{before:?} {now:?}");
        }
    }

    #[test]
    fn what_two_allow_is_what_each_allows() {
        let words = ["", "*", "n", "n m", "/a", "n/a", "n/b m/a", "n /a", "m/a /b", "n m/b /a"];
        for (one, other) in words.iter().flat_map(|one| words.iter().map(move |other| (one, other))) {
            let (one, other) = (visible(one), visible(other));
            let both = one.within(&other).unwrap();
            for (namespace, name) in
                ["", "n", "m", "o"].into_iter().flat_map(|own| ["", "a", "b", "c"].map(|name| (own, name)))
            {
                let expected = one.allows(namespace, name) && other.allows(namespace, name);
                assert_eq!(both.allows(namespace, name), expected, "{one:?} {other:?}: {namespace}/{name}");
            }
            let simplified = |own: &Visible| match own {
                Visible::Part(part) => Visible::Part(Arc::new(Part::clone(part).simplified())),
                Visible::Whole => Visible::Whole,
            };
            assert_eq!(both, simplified(&both));
        }
    }

    #[test]
    fn what_two_allow_takes_no_more_than_what_one_does() {
        let many = |letter: &str| (0..300).map(|it| format!("{letter}{it}").into()).collect();
        let namespaces = Visible::Part(Arc::new(Part { namespaces: many("n"), ..Part::default() }));
        let names = Visible::Part(Arc::new(Part { names: many("a"), ..Part::default() }));
        assert_eq!((namespaces.within(&names), names.within(&namespaces)), (None, None));
        assert_eq!(namespaces.within(&Visible::Whole), Some(namespaces.clone()));
        assert_eq!(namespaces.within(&namespaces), Some(namespaces.clone()));
    }

    #[test]
    fn what_is_said_twice_is_said_once() {
        for (text, same) in [("n n/a", "n"), ("/a n/a n/b", "/a n/b"), ("n/a m/a /a", "/a")] {
            assert_eq!(visible(text), visible(same));
        }
        assert!(visible("").is_nothing() && !visible("/a").is_nothing() && !Visible::Whole.is_nothing());
    }
}
