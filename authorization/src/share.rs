//! What one subject has in one cluster.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::attributes::Attributes;
use crate::object::{Binding, ObjectPlace};
use crate::rule::{Marks, Rules};

/// How much of one subject's grants in one cluster is looked at: so many words of rules, each role counted once, and so
/// many bindings, each with the names that its role is limited to, of which what may be seen is made. 50,000 take some
/// milliseconds and 2 MB: ten thousand namespaces with two bindings each are less than half of it. A cluster decides
/// what it gives to whom, `system:authenticated` included, and whoever asks for anything asks with all of it, and
/// remembers it.
pub const GRANTED_WORDS_MAX: usize = 50_000;

/// A binding and the rules of its role; no rules where the role is not there.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) binding: Arc<Binding>,
    pub(crate) rules: Option<Arc<Rules>>,
}

/// Bindings and rules are interned, so that equal ones are the same.
impl PartialEq for Grant {
    fn eq(&self, other: &Self) -> bool {
        self.addresses() == other.addresses()
    }
}

impl Eq for Grant {}

impl Hash for Grant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.addresses().hash(state);
    }
}

impl Grant {
    /// What orders grants: those of a namespace come together, and in it those of a role.
    fn order(&self) -> (&str, Option<*const Rules>, &str) {
        let ObjectPlace { namespace, name } = &self.binding.place;
        (namespace, self.rules.as_ref().map(Arc::as_ptr), name)
    }

    fn addresses(&self) -> (*const Binding, Option<*const Rules>) {
        (Arc::as_ptr(&self.binding), self.rules.as_ref().map(Arc::as_ptr))
    }
}

/// What one subject has in one cluster: every binding that names it, in the order of their namespaces and names, those
/// of no namespace first. Interned: subjects and clusters that have the same share hold one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Share {
    grants: Vec<Grant>,
    /// How many are ClusterRoleBindings.
    everywhere: usize,
    /// How many bindings there are, and names that their roles are limited to.
    places: usize,
    /// Whether they are more than is looked at.
    is_beyond: bool,
    /// Whether one of them names a role that is not there.
    lacks_role: bool,
}

impl Share {
    pub(crate) fn new(mut grants: Vec<Grant>) -> Self {
        grants.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        let everywhere = grants.partition_point(|grant| grant.binding.place.namespace.is_empty());
        grants.shrink_to_fit();
        let mut roles = HashSet::new();
        let once = |rules: &&Arc<Rules>| roles.insert(Arc::as_ptr(rules));
        let words: usize =
            grants.iter().filter_map(|grant| grant.rules.as_ref()).filter(once).map(|it| it.words()).sum();
        let names = |grant: &Grant| 1 + grant.rules.as_ref().map_or(0, |rules| rules.names());
        let places: usize = grants.iter().map(names).sum();
        let is_beyond = words.max(places) > GRANTED_WORDS_MAX;
        let lacks_role = grants.iter().any(|grant| grant.rules.is_none());
        Self { grants, everywhere, places, is_beyond, lacks_role }
    }

    /// How much what may be seen by it is made of.
    pub(crate) fn places(&self) -> usize {
        if self.is_beyond { 0 } else { self.places }
    }

    /// Whether there is more than is looked at. It is as if there were nothing, and is not known to be.
    pub(crate) fn is_beyond(&self) -> bool {
        self.is_beyond
    }

    /// Whether a binding of it names a role that is not there.
    pub(crate) fn lacks_role(&self) -> bool {
        self.lacks_role
    }

    /// Every grant that is looked at.
    pub(crate) fn looked_at(&self) -> &[Grant] {
        if self.is_beyond { &[] } else { &self.grants }
    }

    /// Every grant, whether it is looked at or not.
    pub(crate) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The grants that count in a namespace and are looked at, those of ClusterRoleBindings first; only these where it
    /// is empty.
    pub(crate) fn within(&self, namespace: &str) -> impl Iterator<Item = &Grant> {
        let grants = self.looked_at();
        let (everywhere, namespaced) = grants.split_at(self.everywhere.min(grants.len()));
        let from = namespaced.partition_point(|grant| *grant.binding.place.namespace < *namespace);
        let own = namespaced[from..].iter().take_while(move |grant| *grant.binding.place.namespace == *namespace);
        everywhere.iter().chain(own)
    }

    /// The rules of the roles that count in a namespace, and for what is in none. However many bindings give one in a
    /// namespace, it comes once; one that is given everywhere, too, may come twice.
    pub(crate) fn roles_within(&self, namespace: &str) -> impl Iterator<Item = &Rules> {
        let mut last: Option<*const Rules> = None;
        let rules = self.within(namespace).filter_map(|grant| grant.rules.as_deref());
        rules.filter(move |rules| last.replace(std::ptr::from_ref(*rules)) != Some(std::ptr::from_ref(*rules)))
    }

    /// Whether one of them allows the request.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>, asked: Marks) -> bool {
        let mut rules = self.roles_within(attributes.namespace());
        rules.any(|rules| rules.allow(attributes, asked))
    }
}
