//! The grants of a subject in a cluster.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::attributes::Attributes;
use crate::object::{Binding, NamespacedName};
use crate::rule::{BloomFilter, Rules};

/// The limit for the grants of one subject in one cluster. It applies to two sums: the number of strings in the rules
/// (each role counted once), and the number of bindings plus the resource names of their roles. If one of the sums
/// exceeds the limit, all grants of the subject are ignored.
///
/// 50,000 strings take some milliseconds and 2 MB. Ten thousand namespaces with two bindings each have less than half
/// of the limit. Without a limit, a cluster could bind any number of rules to `system:authenticated` and slow down the
/// first requests of each user, because Tributary evaluates all grants of a user before it can cache the result.
pub const GRANTED_WORDS_MAX: usize = 50_000;

/// A binding and the rules of its role. The rules are `None` if the role does not exist.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) binding: Arc<Binding>,
    pub(crate) rules: Option<Arc<Rules>>,
}

/// Bindings and rules are interned, so equal grants have equal addresses.
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
    /// Returns the sort key, which groups grants by namespace, and within a namespace by role.
    fn order(&self) -> (&str, Option<*const Rules>, &str) {
        let NamespacedName { namespace, name } = &self.binding.key;
        (namespace, self.rules.as_ref().map(Arc::as_ptr), name)
    }

    fn addresses(&self) -> (*const Binding, Option<*const Rules>) {
        (Arc::as_ptr(&self.binding), self.rules.as_ref().map(Arc::as_ptr))
    }
}

/// The grants of one subject in one cluster: all bindings that name the subject. The order is by namespace, role and
/// name, with ClusterRoleBindings first. Equal shares of several subjects or clusters are interned in one allocation.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Share {
    grants: Vec<Grant>,
    /// The number of ClusterRoleBindings among the grants.
    cluster_wide: usize,
    /// The number of bindings, plus the number of resource names that limit the rules of their roles.
    entry_count: usize,
    exceeds_limit: bool,
    lacks_role: bool,
}

impl Share {
    pub(crate) fn new(mut grants: Vec<Grant>) -> Self {
        grants.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        let cluster_wide = grants.partition_point(|grant| grant.binding.key.namespace.is_empty());
        grants.shrink_to_fit();
        let mut roles = HashSet::new();
        let once = |rules: &&Arc<Rules>| roles.insert(Arc::as_ptr(rules));
        let words: usize =
            grants.iter().filter_map(|grant| grant.rules.as_ref()).filter(once).map(|it| it.words()).sum();
        let names = |grant: &Grant| 1 + grant.rules.as_ref().map_or(0, |rules| rules.names());
        let entry_count: usize = grants.iter().map(names).sum();
        let exceeds_limit = words.max(entry_count) > GRANTED_WORDS_MAX;
        let lacks_role = grants.iter().any(|grant| grant.rules.is_none());
        Self { grants, cluster_wide, entry_count, exceeds_limit, lacks_role }
    }

    /// Returns the number of bindings and resource names; 0 if the grants exceed the limit.
    pub(crate) fn entry_count(&self) -> usize {
        if self.exceeds_limit { 0 } else { self.entry_count }
    }

    /// Returns whether the grants exceed [`GRANTED_WORDS_MAX`]. Such grants allow nothing, and the real rights are
    /// unknown.
    pub(crate) fn exceeds_limit(&self) -> bool {
        self.exceeds_limit
    }

    pub(crate) fn lacks_role(&self) -> bool {
        self.lacks_role
    }

    /// Returns all grants of the share. Returns no grants if the grants exceed the limit.
    pub(crate) fn evaluated_grants(&self) -> &[Grant] {
        if self.exceeds_limit { &[] } else { &self.grants }
    }

    /// Returns all grants of the share, even if the grants exceed the limit.
    pub(crate) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns the grants that apply in a namespace, ClusterRoleBindings first. An empty namespace selects only
    /// ClusterRoleBindings. Returns no grants if the grants of the share exceed the limit.
    pub(crate) fn within(&self, namespace: &str) -> impl Iterator<Item = &Grant> {
        let grants = self.evaluated_grants();
        let (cluster_wide, namespaced) = grants.split_at(self.cluster_wide.min(grants.len()));
        let from = namespaced.partition_point(|grant| *grant.binding.key.namespace < *namespace);
        let own = namespaced[from..].iter().take_while(move |grant| *grant.binding.key.namespace == *namespace);
        cluster_wide.iter().chain(own)
    }

    /// Returns the rules of the roles that apply in a namespace (empty for cluster-wide). A role occurs once, whatever
    /// the number of its bindings in the namespace. A role that is also bound cluster-wide may occur twice.
    pub(crate) fn roles_within(&self, namespace: &str) -> impl Iterator<Item = &Rules> {
        let mut last: Option<*const Rules> = None;
        let rules = self.within(namespace).filter_map(|grant| grant.rules.as_deref());
        rules.filter(move |rules| last.replace(std::ptr::from_ref(*rules)) != Some(std::ptr::from_ref(*rules)))
    }

    pub(crate) fn allows(&self, attributes: &Attributes<'_>, request_filter: BloomFilter) -> bool {
        let mut rules = self.roles_within(attributes.namespace());
        rules.any(|rules| rules.allow(attributes, request_filter))
    }
}
