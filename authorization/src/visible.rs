//! The objects of one resource in one cluster for which a user has a permission.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::share::GRANTED_WORDS_MAX;

/// The namespaces and names for which a user has one permission (get, list, …) on one resource of one cluster.
///
/// The value is cheap to clone. It is valid until [`crate::FleetRights::generation_of`] changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// All objects of the resource.
    Whole,
    /// Some objects, without redundant entries: names are listed only outside of completely allowed namespaces.
    Part(Arc<Part>),
}

/// The allowed namespaces and names of a user who may not see all objects. The default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The namespaces in which every name is allowed.
    pub namespaces: BTreeSet<Arc<str>>,
    /// The names that are allowed in every namespace, and for cluster-scoped objects.
    pub names: BTreeSet<Arc<str>>,
    /// The names that are allowed in single namespaces, by namespace.
    pub names_within: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// The difference between a user's rights before and after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisibleChange {
    /// At least one object has become visible.
    pub gains: bool,
    /// At least one object is no longer visible.
    pub losses: bool,
}

impl Part {
    /// Removes the names that are redundant, because an allowed namespace, or a name that is allowed in every
    /// namespace, already covers them.
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

    /// Returns the intersection; `None` if it would need more than [`GRANTED_WORDS_MAX`] namespaces and names. If one
    /// value allows whole namespaces and the other value allows names in every namespace, the intersection has an entry
    /// for each combination.
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
    /// Returns a value that allows no object.
    pub fn nothing() -> Self {
        Self::Part(Arc::default())
    }

    /// Returns whether no object is allowed.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Part(part) if **part == Part::default())
    }

    /// Returns whether an authorizer would allow a request for this name in this namespace. An empty name means a
    /// request without a name. An empty namespace means a request for all namespaces or a cluster-scoped object. Costs
    /// three searches.
    pub fn allows(&self, namespace: &str, name: &str) -> bool {
        match self {
            Self::Whole => true,
            Self::Part(part) => part.allows(namespace, name),
        }
    }

    /// Returns whether a list without a name shows the objects of this namespace (empty for cluster-scoped objects).
    /// The filter of a list calls this function for each object. A list of one name uses [`Self::allows`].
    pub fn lists(&self, namespace: &str) -> bool {
        self.allows(namespace, "")
    }

    /// Returns whether this value allows every object that `other` allows.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole, _) => true,
            (Self::Part(_), Self::Whole) => false,
            (Self::Part(own), Self::Part(other)) => own.covers(other),
        }
    }

    /// Returns the intersection of two values; `None` if it would need more than [`GRANTED_WORDS_MAX`] namespaces and
    /// names.
    pub fn within(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Whole, one) | (one, Self::Whole) => Some(one.clone()),
            (Self::Part(own), Self::Part(other)) => own.within(other).map(|part| Self::Part(Arc::new(part))),
        }
    }

    /// Returns the number of allowed namespaces and names.
    pub fn entry_count(&self) -> usize {
        match self {
            Self::Whole => 0,
            Self::Part(part) => {
                let within: usize = part.names_within.values().map(BTreeSet::len).sum();
                part.namespaces.len() + part.names.len() + part.names_within.len() + within
            }
        }
    }

    /// Returns the difference for a user whose visible objects change from this value to `now`.
    pub fn change(&self, now: &Self) -> VisibleChange {
        VisibleChange { gains: !self.covers(now), losses: !now.covers(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a test notation: `n` is a namespace, `/a` a name in every namespace, `n/a` a name in one namespace, `*`
    /// means all objects.
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
    fn change_of_rights_reports_gained_and_lost_objects() {
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
            // A name that is allowed in every namespace is also allowed in namespaces that the rights do not list.
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
    fn intersection_of_rights_allows_the_common_requests() {
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
    fn intersection_of_rights_above_the_size_limit_is_not_computed() {
        let many = |letter: &str| (0..300).map(|it| format!("{letter}{it}").into()).collect();
        let namespaces = Visible::Part(Arc::new(Part { namespaces: many("n"), ..Part::default() }));
        let names = Visible::Part(Arc::new(Part { names: many("a"), ..Part::default() }));
        assert_eq!((namespaces.within(&names), names.within(&namespaces)), (None, None));
        assert_eq!(namespaces.within(&Visible::Whole), Some(namespaces.clone()));
        assert_eq!(namespaces.within(&namespaces), Some(namespaces.clone()));
    }

    #[test]
    fn simplified_rights_have_no_redundant_entries() {
        for (text, same) in [("n n/a", "n"), ("/a n/a n/b", "/a n/b"), ("n/a m/a /a", "/a")] {
            assert_eq!(visible(text), visible(same));
        }
        assert!(visible("").is_nothing() && !visible("/a").is_nothing() && !Visible::Whole.is_nothing());
    }
}
